/* SPDX-License-Identifier: Apache-2.0 */
/* The host's end for tests of the queue over RDMA: a tenant's domain, memory in regions, one queue,
 * and a clock of its own. */
#ifndef ROS2_TESTS_NVMF_RDMA_HOST_H
#define ROS2_TESTS_NVMF_RDMA_HOST_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/nvmf/queue.h"
#include "tests/nvmf/rdma_peer.h"
#include "tests/testing.h"

#define HOST_WORD       0x1234567800000042ull
#define HOST_SLOT       (256u << 10)
#define HOST_SLOTS      8u
#define HOST_COMMAND_NS 1000000000ull

/* The device that a test is linked with, and what it tells of itself: rdma_host_mem.c,
 * rdma_host_stub.c. */
struct host_device {
	const char *name;
	bool (*key_lives)(uint32_t key);
	uint32_t (*left)(void); /* objects that there are */
	void (*calm)(void);     /* nothing is held or fails any more */
};
extern const struct host_device host_device;

struct host_slot {
	uint8_t *mem;
	struct fabric_region *region;
};

/* A request, and how it came back. */
struct host_req {
	struct nvmf_req req;
	uint32_t n_done;
	int rc;
	uint16_t status;
	uint32_t dead_key; /* must not live any more when it comes back; 0 = none */
	void (*then)(struct host_req *r);
	void *arg;
};

struct host {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct rdma_peer peer;
	const struct nvmf_queue_ops *ops;
	struct nvmf_queue *q;
	struct nvmf_queue_opts o;
	struct host_slot slots[HOST_SLOTS];
	int epoll_fd;
	uint64_t now_ns;
	struct ros2_err err;
};

/* The device, the peer and the memory; no queue yet. h->o are the options of an I/O queue with keys
 * per command. */
void host_open(struct host *h);
/* Everything; asserts that nothing is left. */
void host_close(struct host *h);
/* Makes the queue, and runs both ends until it is READY. */
void host_connect(struct host *h);
void host_begin(struct host *h); /* only makes it */
/* Both ends once: what the peer has to take, the queue's poll if its word is readable. */
void host_turn(struct host *h);
void host_turns(struct host *h, uint32_t n);
/* The queue's tick at @in_ns from the clock, which goes on. */
void host_tick(struct host *h, uint64_t in_ns);

/* Bytes [offset, +len) of a slot; @opcode of an I/O command. */
struct host_req host_io(struct host *h, uint8_t opcode, uint32_t slot, uint32_t offset,
                        uint32_t len);
int host_submit(struct host *h, struct host_req *r);
void host_submit_ok(struct host *h, struct host_req *r); /* and kicks */
struct nvmf_queue_counters host_counters(struct host *h);
/* FAILED, with @words among its own, and nothing in it. */
void host_assert_failed(struct host *h, const char *words);
/* of cmocka */
int host_setup(void **state);
int host_teardown(void **state);
/* The peer's next command; fails the test when there is none. */
struct rdma_peer_cmd *host_taken(struct host *h);
#endif
