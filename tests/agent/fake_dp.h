/* SPDX-License-Identifier: Apache-2.0 */
/* A data plane that moves nothing: it keeps sessions, grants and handles, answers through the loop
 * as dp.h says, and lets a test see and steer what it does. */
#ifndef ROS2_TESTS_AGENT_FAKE_DP_H
#define ROS2_TESTS_AGENT_FAKE_DP_H

#include "dataplane/dp.h"

/* Written by the agent's thread while a test reads: what orders them is a call over gRPC, which
 * ThreadSanitizer does not see. */
struct fake_dp_log {
	_Atomic unsigned engine_puts, engine_removes, tenant_puts, grant_puts, grant_removes,
		revokes, opens, mounts, renames, regions, closes, region_ends, paths, truncates,
		renewals;
	_Atomic unsigned session_opens, session_closes, thaws;
	_Atomic enum dp_scope last_scope;
	struct ros2_uid last_uid;
	_Atomic uint64_t contact_ns;
	char last_path[256], last_mounted[256];
	struct nvmf_config nvmf; /* of the last engine that had one */
	_Atomic unsigned rdma_told;
	_Atomic uint32_t rdma_seen; /* as it was told last */
};
extern struct fake_dp_log fake_dp_log;
/* The next engine_put / tenant_put / grant_put fails with this; ROS2_OK: none. */
extern _Atomic enum ros2_status fake_dp_fail_put;
extern const char *fake_dp_fail_words; /* NULL: the test says so */
/* The next asynchronous call answers this. */
extern _Atomic enum ros2_status fake_dp_fail_call;
/* What an open or a path call was asked for is done, and right before or behind its answer its
 * session's data connection is lost; once. */
enum fake_dp_loss { FAKE_DP_STAYS, FAKE_DP_LOST_BEFORE, FAKE_DP_LOST_BEHIND };
extern _Atomic enum fake_dp_loss fake_dp_loss;
extern _Atomic uint64_t fake_dp_read_ops; /* of every session, so far */
/* Engines are in use: they cannot be removed. */
extern _Atomic bool fake_dp_engine_busy;
extern _Atomic unsigned fake_dp_draining; /* of the next revoke: answered, then zero */
/* Revocations cannot be held, and freeze; what they ended. */
extern _Atomic bool fake_dp_no_memory, fake_dp_frozen;
/* NULL, or tells how targets are: dp_engines_health. The agent's thread. */
typedef void (*fake_dp_health_fn)(void (*fn)(void *arg, const struct dp_engine_health *h),
                                  void *arg);
extern _Atomic fake_dp_health_fn fake_dp_health;
/* Calls are carried out and not answered before fake_dp_answer; so many, and what the last one is
 * to be answered to. What it keeps: mounts and open objects, and leases that were not given up. */
extern _Atomic bool fake_dp_hold;
extern _Atomic unsigned fake_dp_held;
extern void *_Atomic fake_dp_held_for;
void fake_dp_answer(void *unused); /* on the loop */
/* Sessions that are closed are not gone before fake_dp_let_go; how many calls wait for that. */
extern _Atomic bool fake_dp_hold_gone;
extern _Atomic unsigned fake_dp_waiting;
void fake_dp_let_go(void *unused); /* on the loop */
unsigned fake_dp_sessions(void);
void fake_dp_event(struct dp *dp, const struct dp_event *ev);
/* The data connection of the session was made. */
void fake_dp_connect(struct dp *dp, const struct ros2_uid *session);
#endif
