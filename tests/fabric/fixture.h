/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tenants on one device, each with its protection domain, set and queue pair; the two queue
 * pairs are connected by hand. OURS has windows and lets its peer in through them; PEER is who
 * comes in. Works on the stub and on a real device.
 */
#ifndef ROS2_TESTS_FABRIC_FIXTURE_H
#define ROS2_TESTS_FABRIC_FIXTURE_H

#include "dataplane/fabric/fabric.h"
#include "tests/testing.h"

enum { OURS, PEER, SIDES };

struct world {
	struct fabric_dev *dev;
	struct fabric_channel *chan;
	struct fabric_pd *pd[SIDES];
	struct fabric_set *set[SIDES];
	struct fabric_qp *qp[SIDES];
	uint32_t gid_index;
	struct ros2_err err;
};

extern bool world_end_by_dealloc;   /* of the sets that are made; false */
extern uint64_t world_pinned_bytes; /* that each domain may; 0 = 256 MiB */
struct fabric_pd_opts world_caps(void);
struct fabric_set_opts world_set(void);
struct fabric_qp_opts world_qp(const struct world *w, int side);
/* Device, channel, domains, sets. 0, or the first error; then world_close. */
int world_sets(struct world *w);
/* And the queue pairs, connected, each with @receives receives of a small slot posted. */
int world_join(struct world *w, uint32_t receives);
/* Asserts that it works. */
void world_open(struct world *w);
/* Everything, in whatever state; asserts that nothing is left. */
void world_close(struct world *w);

/* Polls until a completion of @op on @side, at most 10 s; fails the test when there is none. Others
 * are dropped. */
struct fabric_completion world_wait(struct world *w, int side, enum fabric_op op);
/* Polls once; how many completions there were. *last is the last one. */
uint32_t world_poll(struct world *w, int side, struct fabric_completion *last);
struct fabric_slot world_slot(struct world *w, int side, uint32_t len);
/* A bound window over the whole of a slot. */
struct fabric_window *world_bind(struct world *w, struct fabric_slot *slot, uint8_t access,
                                 uint32_t *key);
/* The peer reads or writes @len bytes at @address with @key, from or to @slot; how that ended. */
enum fabric_end world_rdma(struct world *w, enum fabric_op op, struct fabric_slot *slot,
                           uint32_t len, uint64_t address, uint32_t key);
/* Ends the peer's and our queue pair and connects new ones. */
void world_rejoin(struct world *w);

struct receipts {
	uint32_t n;
	struct fabric_receipt last;
};
void on_receipt(void *arg, const struct fabric_receipt *r);
#endif
