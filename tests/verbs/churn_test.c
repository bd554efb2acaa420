/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants that come, mount an engine that lends their memory to a target, and go: their protection
 * domains go with the last use, which may be the engine's own, and not before. Sessions that come,
 * move bytes and go leave nothing at the device, and not one byte allocated.
 */
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include "tests/verbs/peer.h"
#include <stdatomic.h>

#define TENANTS  40u
#define SESSIONS 30

/* The sanitizers' count; no other allocator says exactly what is allocated. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* The mem engine, under the name of one that lends. */
static struct engine_ops lender_ops;
static _Atomic bool in_use;              /* a controller of somebody is still ending */
static _Atomic(struct fabric_pd *) told; /* at the last mount */

static int lender_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	struct engine_config mem = {.name = c->name, .size_bytes = 1u << 20};

	return engine_mem_ops.create(&mem, ret, err);
}

static int lender_ns_open(struct engine *e, const struct engine_who *who, const char *path,
                          struct engine_ns **ret, struct ros2_err *err)
{
	atomic_store(&told, who->pd);
	return engine_mem_ops.ns_open(e, who, path, ret, err);
}

static bool lender_uses(struct engine *e, const struct ros2_uid *tenant)
{
	return atomic_load(&in_use);
}

static void put_engine(void *arg)
{
	static const struct nvmf_config k = {.transport = NVMF_RDMA,
	                                     .subsystem = "nqn.2026-11.test:sub"};
	struct dp_engine_config c = {.name = "far", .type = "lender", .nvmf = &k};
	struct fx *fx = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (dp_engine_put(fx->dp, &c, &err) < 0)
		fail_msg("%s", err.msg);
}

static int setup(void **state)
{
	lender_ops = engine_mem_ops;
	lender_ops.type = "lender";
	lender_ops.create = lender_create;
	lender_ops.ns_open = lender_ns_open;
	lender_ops.uses = lender_uses;
	dp_test_switches = (struct dp_test_switches){.extra_engine = &lender_ops};
	atomic_store(&in_use, false);
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	if (fx_setup(state) < 0)
		return -1;
	return loop_call(((struct fx *)*state)->loop, put_engine, *state);
}

static uint32_t domains(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.pds;
}

static uint32_t domains_down_to(uint32_t n)
{
	AWAIT(domains() <= n);
	return domains();
}

struct gone {
	struct fx *fx;
	struct ros2_uid uid;
};

static void remove_tenant(void *arg)
{
	struct gone *g = arg;

	assert_int_equal(dp_tenant_remove(g->fx->dp, &g->uid, NULL), 0);
}

/* Mounts, and ends its session. */
static void visit(struct fx *fx, const struct ros2_uid *tenant, const struct ros2_uid *grant)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = *tenant,
	                    .grant = *grant,
	                    .a = UINT64_MAX,
	                    .to = "far",
	                    .path = "ns",
	                    .flags = 3};

	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_OK);
	atomic_store(&told, NULL);
	assert_int_equal(fx_do(fx, FX_MOUNT, &a).status, ROS2_OK);
	assert_non_null(atomic_load(&told));
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
}

static void come_and_go(struct fx *fx)
{
	struct gone g = {.fx = fx, .uid = ros2_uid_new()};
	struct ros2_uid grant = ros2_uid_new();

	fx_tenant(fx, &g.uid);
	assert_int_equal(fx_grant(fx, &grant, &g.uid, UINT64_MAX), 0);
	visit(fx, &g.uid, &grant);
	assert_int_equal(loop_call(fx->loop, remove_tenant, &g), 0);
}

static void domain__of_a_tenant_goes_with_its_last_use(void **state)
{
	struct fx *fx = *state;

	for (uint32_t i = 0; i < TENANTS; i++) {
		come_and_go(fx);
		assert_int_equal(domains_down_to(0), 0);
	}
}

static void domain__stays_while_an_engine_uses_it(void **state)
{
	struct fx *fx = *state;
	struct fabric_pd *pd;

	atomic_store(&in_use, true);
	for (uint32_t i = 0; i < TENANTS / 2; i++)
		come_and_go(fx);
	assert_int_equal(domains(), TENANTS / 2);
	/* One that stays has one, however often it comes. */
	visit(fx, &fx->tenant, &fx->grant);
	pd = atomic_load(&told);
	visit(fx, &fx->tenant, &fx->grant);
	assert_ptr_equal(atomic_load(&told), pd);
	assert_int_equal(domains(), TENANTS / 2 + 1);
	atomic_store(&in_use, false);
	assert_int_equal(domains_down_to(1), 1);
}

static void work_and_go(struct fx *fx, bool takes_its_leave)
{
	struct peer p;

	peer_ready(fx, &p);
	for (int i = 0; i < 4; i++) {
		peer_send(&p, peer_request(&p, i % 2 ? WIRE_READ : WIRE_WRITE, 0, 65536), NULL);
		/* Else it goes with requests under way. */
		if (takes_its_leave)
			assert_int_equal(peer_recv(&p).status, ROS2_OK);
	}
	peer_close(&p);
}

static void many_sessions(struct fx *fx)
{
	for (int i = 0; i < SESSIONS; i++)
		work_and_go(fx, i % 2 == 0);
}

/* What is allocated when the last session has been freed: at most @limit, or what it is
 * after a minute. */
static size_t allocated_down_to(size_t limit)
{
	size_t n;

	AWAIT((n = __sanitizer_get_current_allocated_bytes()) <= limit);
	return n;
}

/* The same for a tenth of a second. */
static size_t settled(void)
{
	size_t was, n = __sanitizer_get_current_allocated_bytes();

	do {
		was = n;
		/* poll: a counter of the allocator */
		usleep(100 * 1000);
		n = __sanitizer_get_current_allocated_bytes();
	} while (n != was);
	return n;
}

static void sessions__that_come_and_go_leave_nothing_allocated(void **state)
{
	struct fabric_mem_counts c;
	struct fx *fx = *state;
	size_t limit;
	void *kept;

	if (!__sanitizer_get_current_allocated_bytes) {
		print_message("# only the sanitizers count what is allocated\n");
		skip();
	}
	/* What is made once. */
	many_sessions(fx);
	limit = settled() + 4096;
	for (int i = 0; i < 4; i++) {
		many_sessions(fx);
		assert_in_range(allocated_down_to(limit), 1, limit);
	}
	fabric_mem_counts(&c);
	assert_int_equal(c.sets + c.qps + c.regions + c.windows + c.conns, 0);
	/* The control: what is kept is seen. */
	kept = malloc(8192);
	assert_non_null(kept);
	memset(kept, 1, 8192);
	many_sessions(fx);
	assert_true(allocated_down_to(limit + 8192) > limit);
	free(kept);
}

/* ---- what a device holds ---- */

static uint32_t queue_pairs(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.qps;
}

static void joins(struct fx *fx, struct peer *p, uint16_t port)
{
	peer_device(fx, p);
	do
		peer_session(p, &fx->tenant, &fx->grant);
	while (port && p->port != port);
	peer_ask(p);
}

static void tenant__has_the_connections_that_it_may_have_and_no_more(void **state)
{
	struct peer p[VERBS_QPS + 1];
	struct fx *fx = *state;

	fx->limits.sessions_max = UINT32_MAX;
	fx_limits(fx);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++) {
		joins(fx, &p[i], i ? p[0].port : 0);
		assert_int_equal(p[i].established, i < VERBS_QPS);
	}
	assert_true(p[VERBS_QPS].over);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		peer_close(&p[i]);
	AWAIT(!queue_pairs());
}

static void close_session(struct fx *fx, const struct peer *p)
{
	struct fx_args a = {.session = p->session};

	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
	fx_event(fx, DP_EVENT_SESSION_ENDED, -1);
}

/* Under the sanitizers: what the device writes at last is into memory that is still there. */
static void memory__that_a_device_does_not_give_up_is_not_freed(void **state)
{
	struct peer p[VERBS_QPS], more;
	struct fx *fx = *state;

	fx->limits.sessions_max = UINT32_MAX;
	fx_limits(fx);
	for (uint32_t i = 0; i < VERBS_QPS; i++) {
		joins(fx, &p[i], i ? p[0].port : 0);
		assert_true(p[i].established);
	}
	fabric_mem_hang(true);
	for (uint32_t i = 0; i < VERBS_QPS; i++)
		close_session(fx, &p[i]);
	fabric_mem_hang(false);
	for (uint32_t i = 0; i < VERBS_QPS; i++)
		peer_close(&p[i]);
	AWAIT(!queue_pairs());
	joins(fx, &more, 0);
	assert_true(more.established);
	peer_close(&more);
	AWAIT(!queue_pairs());
}

/* Pulled by a device that neither flushes nor destroys: what it does later it does where nobody
 * else has anything, and until then it is told that it may. */
static void slots__that_a_device_may_write_into_are_not_used_again(void **state)
{
	struct fabric_mem_counts c;
	struct fx *fx = *state;
	static struct fx_revoked r, again; /* also what comes after a failure has a place */
	struct peer p;

	peer_ready(fx, &p);
	fabric_mem_hold(true);
	for (int i = 0; i < 4; i++)
		peer_send(&p, peer_request(&p, WIRE_WRITE, 0, 4096), NULL);
	assert_true(AWAIT(fabric_mem_held() == 4));
	fabric_mem_hang(true);
	fx_revoke(fx, DP_SCOPE_SESSION, &p.session, &r);
	assert_int_equal(r.first.revoke.draining, 4);
	/* By now it was asked for everything that may end it, and again with the ticks after that.
	 */
	assert_true(AWAIT((fabric_mem_counts(&c), c.qps_kept == 1 && c.qps_refused >= 3)));
	fx_revoke(fx, DP_SCOPE_SESSION, &p.session, &again);
	assert_int_equal(again.first.revoke.draining, 4);
	assert_int_equal(r.calls, 1);
	fabric_mem_hang(false);
	fabric_mem_hold(false);
	fx_wait_calls(fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	fx_wait_calls(fx, &again, 2);
	peer_close(&p);
}

/* Else what is allocated were that of sessions and what is kept for others. */
static int verbs_setup(void **state)
{
	fx_rdma_keep_ms = DP_RDMA_KEEP_NONE;
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

int main(void)
{
#define V(name) cmocka_unit_test_setup_teardown(name, verbs_setup, fx_teardown)
#define T(name) cmocka_unit_test_setup_teardown(name, setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(domain__of_a_tenant_goes_with_its_last_use),
		T(domain__stays_while_an_engine_uses_it),
		V(sessions__that_come_and_go_leave_nothing_allocated),
		V(tenant__has_the_connections_that_it_may_have_and_no_more),
		V(memory__that_a_device_does_not_give_up_is_not_freed),
		V(slots__that_a_device_may_write_into_are_not_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
