/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the switches of service.c show, which is compiled into this test with them. Whose session it
 * is: beta gets alpha's handle and closes alpha's session only when the check is off. How many
 * calls: alpha gets what its document gives it within 5 %, and more only when the check is off.
 */
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/clock.h"
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

/* ---- control verbs per second ---- */

#define VERBS 40

static enum ros2_status stat_as(struct rpc_channel *c, struct ros2_uid *s, char words[320])
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = 77;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, words);
}

static enum ros2_status renew_as(struct rpc_channel *c, struct ros2_uid *s, uint32_t key)
{
	Ros2__V1__RegionRef req = ROS2__V1__REGION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.key = key;
	return world_call(c, &ros2_v1_tenant_renew_region, &req.base, NULL, NULL);
}

static uint32_t register_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	uint32_t key;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.address = 0x1000;
	req.length = 4096;
	req.access = 3;
	assert_int_equal(world_call(c, &ros2_v1_tenant_register_region, &req.base, &m, NULL),
	                 ROS2_OK);
	key = ((Ros2__V1__RegisterRegionReply *)m)->key;
	protobuf_c_message_free_unpacked(m, NULL);
	return key;
}

struct verbs {
	struct world *w;
	struct rpc_channel *a, *b;
	struct ros2_uid sa, sb;
	uint32_t key;
};

/* Without a connection it would end after 10 s, which is soon on a slow machine. */
static struct ros2_uid connected_session(struct world *w, struct rpc_channel *c)
{
	struct dp_event ev = {.type = DP_EVENT_CONNECTED};

	assert_int_equal(world_open_session(c, &ev.session), ROS2_OK);
	fake_dp_event(w->agent->dp, &ev);
	return ev.session;
}

static void verbs_start(struct verbs *v)
{
	v->w = calloc(1, sizeof(*v->w));
	fix_verbs_per_s = VERBS;
	world_start(v->w);
	world_agent_start(v->w);
	world_populate(v->w);
	fix_verbs_per_s = 0;
	v->a = world_tenant(v->w, "alpha");
	v->b = world_tenant(v->w, "beta");
	v->sa = connected_session(v->w, v->a);
	v->sb = connected_session(v->w, v->b);
	v->key = register_as(v->a, &v->sa);
}

static void verbs_stop(struct verbs *v)
{
	rpc_channel_free(v->a);
	rpc_channel_free(v->b);
	world_stop(v->w);
	free(v->w);
}

/* Alpha calls as fast as it is answered; beta now and then, and alpha renews: neither may notice.
 * How many of alpha's calls were let through, @ret_s the time that took. */
static unsigned flood(struct verbs *v, unsigned *ret_refused, double *ret_s)
{
	uint64_t from = clock_boottime_ns(), now = from, next = from;
	unsigned passed = 0, refused = 0;
	char words[320];

	for (unsigned i = 1; now < from + 3 * NS_PER_S; i++, now = clock_boottime_ns()) {
		enum ros2_status st = stat_as(v->a, &v->sa, words);

		if (st == ROS2_RATE && !refused++)
			assert_non_null(strstr(words, "memory.controlVerbsPerSecond is 40: try "
			                              "again in "));
		passed += st == ROS2_BAD_HANDLE;
		if (st != ROS2_RATE && st != ROS2_BAD_HANDLE)
			fail_msg("call %u: %s: %s", i, ros2_status_to_str(st), words);
		if (now < next) /* on a quick machine each 25th call would be above beta's rate */
			continue;
		next = now + 4 * NS_PER_S / VERBS;
		assert_int_equal(stat_as(v->b, &v->sb, NULL), ROS2_BAD_HANDLE);
		assert_int_equal(renew_as(v->a, &v->sa, v->key), ROS2_OK);
	}
	*ret_refused = refused;
	*ret_s = (double)(now - from) / 1e9;
	return passed;
}

static void tenant__calls_within_its_control_verbs_per_second(void **state)
{
	struct verbs v;
	unsigned refused, passed;
	double s;

	verbs_start(&v);
	/* Spend what the quiet time has saved up, then count. */
	while (stat_as(v.a, &v.sa, NULL) != ROS2_RATE)
		;
	passed = flood(&v, &refused, &s);
	/* On a busy machine he may not get around to asking for all that he may have. */
	if (passed < 0.7 * VERBS * s || passed > 1.05 * VERBS * s || !refused)
		fail_msg("%u calls passed and %u were refused in %.2f s", passed, refused, s);
	/* Its bucket is empty, and still it renews, closes and gives up. */
	assert_int_equal(renew_as(v.a, &v.sa, v.key), ROS2_OK);
	assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
	assert_true(world_wait_action(v.w, "file.deny"));
	verbs_stop(&v);
}

static void control__verbs_per_second(void **state)
{
	struct verbs v;
	unsigned refused, passed;
	double s;

	verbs_start(&v);
	agent_test_switches.no_verb_limit = true;
	passed = flood(&v, &refused, &s);
	agent_test_switches.no_verb_limit = false;
	assert_int_equal(refused, 0);
	if (passed < 1.5 * VERBS * s && getenv("ROS2_EMULATED")) {
		verbs_stop(&v);
		puts("# skipped: under emulation the calls do not reach the rate");
		skip();
	}
	if (passed < 1.5 * VERBS * s)
		fail_msg("%u calls in %.2f s do not reach what is to be limited", passed, s);
	verbs_stop(&v);
}

/* ---- records of what is malformed ---- */

static void open_badly(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__PathRequest path = ROS2__V1__PATH_REQUEST__INIT;
	Ros2__V1__OpenRequest open = ROS2__V1__OPEN_REQUEST__INIT;

	open.session_uid = path.session_uid = req.session_uid = (ProtobufCBinaryData){16, s->b};
	open.mount = 1; /* none: a number of somebody else's, maybe */
	open.path = (char *)"x";
	open.flags = 1;
	assert_int_equal(world_call(c, &ros2_v1_tenant_open, &open.base, NULL, NULL),
	                 ROS2_NOT_FOUND);
	/* The RPC layer refuses this before the service sees it. */
	path.path = (char *)"a\xff";
	assert_int_equal(world_call(c, &ros2_v1_tenant_stat, &path.base, NULL, NULL), ROS2_INVALID);
	req.address = UINT64_MAX - 4095;
	req.length = 8192;
	req.access = 4;
	assert_int_equal(world_call(c, &ros2_v1_tenant_register_region, &req.base, NULL, NULL),
	                 ROS2_INVALID);
}

static void refusal__of_what_is_malformed_is_recorded(void **state)
{
	struct verbs v;

	(void)state;
	/* Control: with the recording off the calls are refused the same, and nothing is said. */
	for (int on = 0; on < 2; on++) {
		verbs_start(&v);
		agent_test_switches.no_refusal_records = !on;
		open_badly(v.a, &v.sa);
		if (on) {
			assert_true(world_wait_action(v.w, "file.deny"));
			assert_true(world_wait_action(v.w, "region.deny"));
		}
		/* time: what the RPC layer refused is told within a second */
		usleep(1200 * 1000);
		assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
		assert_true(world_wait_action(v.w, "session.close"));
		if (!on)
			assert_null(strstr(v.w->actions, ".deny"));
		verbs_stop(&v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control__tenant_of_the_session),
		cmocka_unit_test(tenant__calls_within_its_control_verbs_per_second),
		cmocka_unit_test(control__verbs_per_second),
		cmocka_unit_test(refusal__of_what_is_malformed_is_recorded),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
