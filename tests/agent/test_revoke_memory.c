/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A revocation for which there is no memory: what it ends is ended, and the stream ends, too, so
 * that the controller sends it again; then it is recorded and answered.
 */
#include "agent/revocations.h"
#include "common/log.h"
#include "tests/agent/fake_dp.h"
#include "tests/agent/world.h"
#include <errno.h>

static _Atomic int failing;

int __real_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
int __wrap_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
int __wrap_revlog_add(struct revlog *l, const struct tombstone *t, struct ros2_err *err)
{
	if (failing)
		return ros2_err_set(err, -ENOMEM, "no memory");
	return __real_revlog_add(l, t, err);
}

static void revoke__without_memory_is_asked_for_again(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *alpha;
	struct ros2_uid session;
	unsigned before;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	alpha = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(alpha, &session), ROS2_OK);
	before = fake_dp_log.revokes;
	failing = 1;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->hellos, 2); /* the stream ended, and another began */
	assert_int_equal(w->receipts, 0);
	assert_int_equal(fake_dp_log.revokes, before + 1); /* carried out all the same */
	assert_int_equal(fake_dp_log.last_scope, DP_SCOPE_TENANT);
	failing = 0;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
	assert_int_not_equal(world_open_session(alpha, &session), ROS2_OK);
	rpc_channel_free(alpha);
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(revoke__without_memory_is_asked_for_again),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
