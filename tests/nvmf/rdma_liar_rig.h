/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants of the nvmf engine on a real device (soft-RoCE in the guest), at a target of our own that
 * lies and at one that does not. Each request has a slot of its own, and all slots are looked at
 * after each lie.
 */
#ifndef ROS2_TESTS_NVMF_RDMA_LIAR_RIG_H
#define ROS2_TESTS_NVMF_RDMA_LIAR_RIG_H

#include "tests/nvmf/target_verbs.h"
#include "tests/nvmf/vol.h"
#include "tests/testing.h"

#define LIAR_LEN     VOL_IO /* of a request, and of a slot: one command */
#define LIAR_SLOT    3u     /* the one that requests use here */
#define LIAR_WAIT_MS 30000u
#define LIAR_A       "nqn.2026-11.test:host:tenant-a"
#define LIAR_B       "nqn.2026-11.test:host:tenant-b"

struct liar {
	struct target *liar, *honest;
	struct vol bystander; /* at the honest one */
	unsigned fds;         /* of this process, with all of that */
	char device[FABRIC_NAME_MAX];
};
extern struct liar liar;

int liar_setup(void **state);
int liar_teardown(void **state);
/* The lying target is honest at the begin of each. */
int liar_begin(void **state);
#define LIAR_TEST(name) cmocka_unit_test_setup(nvmf_rdma_liar__##name, liar_begin)
/* A tenant at the lying target; opened by the caller. */
void liar_tenant(struct vol *v, const char *tenant, bool per_command);
void liar_open(struct vol *v);
/* Closes it; nothing of it is left, neither here nor there. */
void liar_close(struct vol *v, const char *after);

/* The request's slot, and one of @v. */
uint8_t *liar_slot(struct vol *v, unsigned i);
/* Every slot of @v gets a pattern of its own; it must be there unchanged, but in slot @but (-1: in
 * all). */
void liar_fill(struct vol *v);
void liar_unharmed(struct vol *v, int but, const char *after);
/* The medium where slot @i reads and writes has the pattern of @seed. */
void liar_media(unsigned i, uint32_t seed);
/* One request of LIAR_LEN in LIAR_SLOT: to its end, or only handed on. */
int64_t liar_io(struct vol *v, enum engine_op op);
void liar_submit(struct vol *v, enum engine_op op);
int64_t liar_wait(struct vol *v);
/* Turns @v until this fault was let loose @n times. */
void liar_until_hit(struct vol *v, enum target_fault f, uint64_t n, const char *name);
/* What was before: how often it became live. Words of faults count from here on. */
struct liar_past {
	uint64_t lives;
};
struct liar_past liar_past(struct vol *v);
/* By these words it lost its controller, once, and has another. */
void liar_lost(struct vol *v, const struct liar_past *p, const char *words, const char *name);
/* By these words its I/O queue ended, and was opened again within the same controller: no write was
 * in it. A request must be under way that waits for it. */
void liar_reopened(struct vol *v, const struct liar_past *p, const char *words, const char *name);
/* The honest target's tenant: bytes right, never lost. */
void liar_bystander(const char *after);

/* Keys of this thread's queues do not end until liar_revoke(true), which ends those, too. */
void liar_revoke(bool on);
#endif
