/* SPDX-License-Identifier: Apache-2.0 */
/* What is done while allocations of the agent fail (test_alloc_sweep.c), and with what. */
#ifndef ROS2_TESTS_AGENT_ALLOC_WORKS_H
#define ROS2_TESTS_AGENT_ALLOC_WORKS_H

#include "tests/agent/world.h"

struct t {
	struct world w;
	struct rpc_channel *alpha, *beta;
	struct ros2_uid session, other, neighbour; /* other: of the round */
	uint32_t mount, beta_mount, key;
	uint64_t handle, opened; /* opened: of the round */
	uint64_t version, spare; /* of alpha's document, of an engine nobody uses */
	struct ros2_uid revocation;
	unsigned n; /* of what must differ each time */
	struct {
		unsigned acks, applied, receipts, hellos, closed, reports, probes, removes;
	} was;
};

/* What is done, again until it is done: 0, or the error. */
typedef int (*work_fn)(struct t *t, struct ros2_err *err);

/* True when @fn was so within @ms. Looked at whenever the controller hears something. */
bool works_until(struct t *t, bool (*fn)(struct t *t, const void *arg), const void *arg,
                 unsigned ms);
/* Waits for a stream, and notes what was heard until now. */
void works_remember(struct t *t);
/* There was a hello since. */
bool works_greeted(struct t *t, const void *arg);

/* What the agent says of itself (alloc_itself.c): its certificate and what it has probed. */
int works_all_enforced(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                       struct ros2_err *err);
int works_probe(struct t *t, struct ros2_err *err);
int works_renew(struct t *t, struct ros2_err *err);
/* The waits of the agent pass through here: the next look at the certificate is remembered. */
void works_timer(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn, void *arg);
#endif
