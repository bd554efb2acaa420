/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative control of whose session it is: service.c is compiled into this test with its switch,
 * and beta gets alpha's handle and closes alpha's session only when the switch is set.
 */
#include "agent/test_switches.h"
#include "common/log.h"
#include "tests/agent/world.h"

struct agent_test_switches agent_test_switches;

static enum ros2_status mount_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.namespace_name = (char *)"data";
	return world_call(c, &ros2_v1_tenant_mount, &req.base, NULL, NULL);
}

static enum ros2_status close_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__SessionRef req = ROS2__V1__SESSION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	return world_call(c, &ros2_v1_tenant_close_session, &req.base, NULL, NULL);
}

static void control__tenant_of_the_session(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *a, *b;
	struct ros2_uid s;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	b = world_tenant(w, "beta");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(mount_as(b, &s), ROS2_BAD_SESSION);
	assert_int_equal(close_as(b, &s), ROS2_BAD_SESSION);
	assert_int_equal(mount_as(a, &s), ROS2_OK);
	agent_test_switches.no_session_owner = true;
	assert_int_equal(mount_as(b, &s), ROS2_OK);
	assert_int_equal(close_as(b, &s), ROS2_OK);
	agent_test_switches.no_session_owner = false;
	assert_int_not_equal(mount_as(a, &s), ROS2_OK);
	rpc_channel_free(a);
	rpc_channel_free(b);
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(control__tenant_of_the_session)};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
