/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A revocation of the whole agent that comes again, because its receipt was lost or said that
 * something drains: what was given since stays given, in the state and in the data plane, which is
 * the real one here. The control: another revocation takes that, too.
 */
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"

#define AGENT_SEED 1

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static enum ros2_status call_on(struct rpc_channel *c, const struct rpc_method *m,
                                struct ros2_uid *session)
{
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;

	ref.session_uid = (ProtobufCBinaryData){16, session->b};
	return world_call(c, m, &ref.base, NULL, NULL);
}

static enum ros2_status stat_on(struct rpc_channel *c, struct ros2_uid *session)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, session->b};
	req.handle = 1;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, NULL);
}

/* Its receipt is heard. */
static void revoke_all(struct world *w, uint8_t revocation)
{
	struct ros2_uid uid = fix_uid(revocation);
	unsigned n = w->receipts;

	world_revoke_as(w, OBJ_AGENT, AGENT_SEED, 1, &uid);
	world_wait(w, &w->receipts, n + 1);
	assert_true(w->last_durable);
	assert_int_equal(w->last_draining, 0);
}

static void revoke__of_the_agent_again_leaves_what_was_given_since(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid before, since;

	assert_int_equal(world_open_session(c, &before), ROS2_OK);
	revoke_all(w, 201);
	assert_int_equal(stat_on(c, &before), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &since), ROS2_OK);
	assert_int_equal(w->grant_requests, 2);
	revoke_all(w, 201);
	assert_int_equal(stat_on(c, &since), ROS2_BAD_HANDLE);
	assert_int_equal(call_on(c, &ros2_v1_tenant_close_session, &since), ROS2_OK);
	assert_int_equal(world_open_session(c, &since), ROS2_OK);
	assert_int_equal(w->grant_requests, 2);
	revoke_all(w, 202);
	assert_int_equal(stat_on(c, &since), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &since), ROS2_OK);
	assert_int_equal(w->grant_requests, 3);
	rpc_channel_free(c);
}

/* The one that carried it out is gone; its log says that it did. */
static void revoke__of_the_agent_again_leaves_what_a_restarted_one_has(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid session;

	revoke_all(w, 201);
	assert_int_equal(world_open_session(c, &session), ROS2_OK);
	assert_int_equal(w->grant_requests, 1);
	rpc_channel_free(c);
	world_wait_stored(w);
	world_agent_stop(w);
	w->hellos = 0;
	world_agent_start(w);
	world_wait(w, &w->hellos, 1);
	revoke_all(w, 201);
	c = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(c, &session), ROS2_OK);
	assert_int_equal(w->grant_requests, 1);
	rpc_channel_free(c);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(revoke__of_the_agent_again_leaves_what_was_given_since),
		T(revoke__of_the_agent_again_leaves_what_a_restarted_one_has),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
