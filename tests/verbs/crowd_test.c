/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant over verbs has in its own slots takes nothing of the pool that all others share at
 * a reactor, nor is it ended for what others wait for there. Two engines are at each reactor, one
 * of them behind a gate: what is inside it is counted.
 */
#include "tests/verbs/peer.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/slow_engine.h"

#define IO_BYTES (1u << 20)
#define REACTORS 2u
/* Of 8 slots of that size a session of the shared pool may have two, and requests for one engine
 * four. */
#define OWN      4u /* of the session over verbs, in 8 that are its tenant's alone */
#define PER_CONN 2u
#define CONNS    3u /* of a tenant at each reactor: one more than four slots are for */

static void put_other(void *arg)
{
	struct fx *fx = arg;
	struct dp_engine_config c = {.name = "other", .type = "mem", .size_bytes = IO_BYTES};

	assert_int_equal(dp_engine_put(fx->dp, &c, NULL), 0);
}

/* "file" of an engine, over a session that may be anybody's. */
static uint64_t opens_file(struct fx *fx, const struct ros2_uid *session, const char *engine)
{
	struct fx_args a = {.session = *session, .to = engine, .path = "ns", .flags = 3};
	struct dp_result res = fx_do(fx, FX_MOUNT, &a);

	assert_int_equal(res.status, ROS2_OK);
	a.mount = res.mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	res = fx_do(fx, FX_OPEN, &a);
	assert_int_equal(res.status, ROS2_OK);
	return res.open.handle;
}

static void over_tcp(struct fx *fx, struct raw *c)
{
	fx_transport = DP_TRANSPORT_TCP;
	raw_open(fx, c);
	fx_transport = DP_TRANSPORT_VERBS;
}

/* One over TCP that has files of both engines. */
static void joins(struct fx *fx, struct raw *c)
{
	over_tcp(fx, c);
	raw_connect(c);
	(void)opens_file(fx, &c->session, "other");
	c->handle = opens_file(fx, &c->session, "ram");
	c->key = raw_register(c, FX_BASE, IO_BYTES, 3);
}

static void reads(struct raw *c)
{
	for (uint32_t i = 0; i < PER_CONN; i++) {
		struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, IO_BYTES);

		raw_send(c, &h, NULL, 0);
	}
}

/* Of another tenant than the fixture's, with as many of its slots as one session may have. */
static void beta(struct fx *fx, struct peer *p)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_connect(fx, p, &tenant, &grant);
	peer_settle(p);
	/* There is something to read. */
	peer_send(p, peer_request(p, WIRE_WRITE, 0, IO_BYTES), NULL);
	assert_int_equal(peer_recv(p).status, ROS2_OK);
}

static void beta_reads(struct peer *p)
{
	for (uint32_t i = 0; i < OWN; i++)
		peer_send(p, peer_request(p, WIRE_READ, 0, IO_BYTES), NULL);
}

static void slots__of_a_tenant_over_verbs_crowd_nobody_out(void **state)
{
	struct raw c[REACTORS];
	struct fx *fx = *state;
	struct peer p;

	loop_call(fx->loop, put_other, fx);
	beta(fx, &p);
	/* One at each reactor, also at that of beta. */
	for (uint32_t i = 0; i < REACTORS; i++)
		joins(fx, &c[i]);
	assert_int_not_equal(c[0].port, c[1].port);
	slow_engine_shut(true);
	beta_reads(&p);
	slow_engine_wait_held(OWN);
	for (uint32_t i = 0; i < REACTORS; i++)
		reads(&c[i]);
	slow_engine_wait_held(OWN + REACTORS * PER_CONN);
	slow_engine_shut(false);
	for (uint32_t i = 0; i < OWN; i++)
		assert_int_equal(peer_recv(&p).status, ROS2_OK);
	for (uint32_t i = 0; i < REACTORS; i++)
		raw_close(&c[i]);
	peer_close(&p);
}

/* More than a session may stall others; all reactors have looked at the time then: sessions that
 * prove nothing ended by the same look. */
static void time_passes(struct fx *fx)
{
	struct raw late[REACTORS];

	for (uint32_t i = 0; i < REACTORS; i++)
		over_tcp(fx, &late[i]);
	assert_int_not_equal(late[0].port, late[1].port);
	clock_ahead_ns += 11 * NS_PER_S;
	for (uint32_t i = 0; i < REACTORS; i++)
		assert_int_equal(fx_ended(fx, &late[i].session).status, ROS2_TIMEOUT);
}

/* Its device has the answers and does not get rid of them, while others wait for what requests for
 * one engine may have together. */
static void slots__of_a_tenant_over_verbs_are_not_what_a_crowd_waits_for(void **state)
{
	struct raw c[CONNS * REACTORS];
	struct fx *fx = *state;
	struct peer p;

	fx->limits.sessions_max = UINT32_MAX;
	fx_limits(fx);
	loop_call(fx->loop, put_other, fx);
	beta(fx, &p);
	for (uint32_t i = 0; i < ARRAY_SIZE(c); i++)
		joins(fx, &c[i]);
	fabric_mem_hold(true);
	beta_reads(&p);
	AWAIT(fabric_mem_held() >= OWN);
	slow_engine_shut(true);
	for (uint32_t i = 0; i < ARRAY_SIZE(c); i++)
		reads(&c[i]);
	/* Half of the slots at each, and one that waits. */
	slow_engine_wait_held(REACTORS * 4);
	/* The first look sees what moved before. */
	time_passes(fx);
	time_passes(fx);
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), 2 * REACTORS);
	fabric_mem_hold(false);
	for (uint32_t i = 0; i < OWN; i++)
		assert_int_equal(peer_recv(&p).status, ROS2_OK);
	slow_engine_shut(false);
	for (uint32_t i = 0; i < ARRAY_SIZE(c); i++)
		raw_close(&c[i]);
	peer_close(&p);
}

static int setup(void **state)
{
	slow_engine_init();
	dp_test_switches.extra_engine = &slow_engine_ops;
	fx_engine_type = "slow";
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

static int teardown(void **state)
{
	int rc;

	fabric_mem_hold(false);
	slow_engine_shut(false);
	rc = fx_teardown(state);
	dp_test_switches = (struct dp_test_switches){0};
	return rc;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(slots__of_a_tenant_over_verbs_crowd_nobody_out),
		T(slots__of_a_tenant_over_verbs_are_not_what_a_crowd_waits_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
