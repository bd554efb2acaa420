/* SPDX-License-Identifier: Apache-2.0 */
/* A clock on the wall that was behind, until somebody put it right. */
#include "agent/sessions.h"
#include "common/log.h"
#include "tests/agent/world.h"

static _Atomic uint64_t forward_ns;

uint64_t __real_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void);
uint64_t __wrap_clock_unix_ns(void)
{
	return __real_clock_unix_ns() + forward_ns;
}

static void tick(void *arg)
{
	sessions_tick(((struct world *)arg)->agent->sessions);
}

/* For as long as the sessions are looked at: the connections of this test have certificates, too.
 */
static void tick_later(void *arg)
{
	forward_ns = 100ull * 366 * 24 * 3600 * NS_PER_S;
	tick(arg);
	forward_ns = 0;
}

static enum ros2_status mount(struct rpc_channel *c, const struct ros2_uid *session)
{
	Ros2__V1__MountRequest q = ROS2__V1__MOUNT_REQUEST__INIT;

	q.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)session->b};
	q.namespace_name = (char *)"data";
	return world_call(c, &ros2_v1_tenant_mount, &q.base, NULL, NULL);
}

/* By that clock it had hours left when the session began. */
static void session__ends_with_its_certificate_when_the_clock_is_put_right(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct dp_event ev = {.type = DP_EVENT_CONNECTED};
	struct rpc_channel *a;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	assert_int_equal(world_open_session(a, &ev.session), ROS2_OK);
	fake_dp_event(w->agent->dp, &ev);
	loop_call(w->loop, tick, w);
	assert_int_equal(mount(a, &ev.session), ROS2_OK);
	loop_call(w->loop, tick_later, w);
	assert_int_equal(mount(a, &ev.session), ROS2_UNAUTHENTICATED);
	assert_true(world_wait_action(w, "session.close"));
	rpc_channel_free(a);
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(session__ends_with_its_certificate_when_the_clock_is_put_right),
	};

	log_set_level(LOG_LEVEL_ERROR + 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
