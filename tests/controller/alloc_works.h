/* SPDX-License-Identifier: Apache-2.0 */
/* What is done while allocations of the controller fail (test_alloc_sweep.c), and in which world.
 */
#ifndef ROS2_TESTS_CONTROLLER_ALLOC_WORKS_H
#define ROS2_TESTS_CONTROLLER_ALLOC_WORKS_H

#include "tests/controller/service_fixture.h"

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

struct world {
	struct sf *f;
	struct fake a, fresh; /* fresh: the agent of some rounds, when there is one */
	unsigned fresh_uses;  /* 0: there is none */
	struct ros2_uid alpha;
	bool linked;
	unsigned n;            /* of what must differ each time */
	uint64_t noted;        /* a record with a checkpoint */
	bool tried;            /* in this round, and failed: it may have been done all the same */
	struct ros2_uid given; /* the grant of the round */
};

/* What is done, again until it is done: 0, or the error. */
typedef int (*work_fn)(struct world *w, struct ros2_err *err);

/* The stream of @a ended, or nothing came. */
int works_lost(struct fake *a, struct ros2_err *err);
/* A grant of alpha; the answer is borrowed. */
int works_grant(struct world *w, const Ros2__V1__GrantReply **ret, struct ros2_err *err);

/* What takes rights away, and who has one (alloc_rights.c); before each what it needs. */
int works_new_tenant(struct world *w, struct ros2_err *err);
int works_delete_tenant(struct world *w, struct ros2_err *err);
int works_fresh_agent(struct world *w, struct ros2_err *err);
int works_delete_agent(struct world *w, struct ros2_err *err);
int works_isolate(struct world *w, struct ros2_err *err);
int works_let_in(struct world *w, struct ros2_err *err); /* after it */
int works_isolated_agent(struct world *w, struct ros2_err *err);
int works_lift(struct world *w, struct ros2_err *err);
int works_renew(struct world *w, struct ros2_err *err);
int works_probe(struct world *w, struct ros2_err *err);
int works_status(struct world *w, struct ros2_err *err);
int works_given_grant(struct world *w, struct ros2_err *err);
int works_release(struct world *w, struct ros2_err *err);
#endif
