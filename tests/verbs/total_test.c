/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots that are registered for tenants are pinned memory: of all tenants together they are
 * bounded, whatever each may have at how many reactors, and every tenant has its first while others
 * leave some.
 */
#include "dataplane/verbs_priv.h"
#include "tests/await.h"
#include "tests/verbs/peer.h"

#define SET     (11ull << 20) /* VERBS_SLOTS */
#define TENANTS 4

static int setup(void **state, uint32_t sets, uint32_t keep_ms)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	fx_rdma_keep_ms = keep_ms;
	fx_rdma_total_bytes = sets * SET;
	return fx_setup(state);
}

static int four(void **state)
{
	return setup(state, 4, DP_RDMA_KEEP_NONE);
}

static int two(void **state)
{
	return setup(state, 2, DP_RDMA_KEEP_NONE);
}

struct tenant {
	struct ros2_uid uid, grant;
};

static void others(struct fx *fx, struct tenant *t, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		t[i] = (struct tenant){ros2_uid_new(), ros2_uid_new()};
		fx_tenant(fx, &t[i].uid);
		assert_int_equal(fx_grant(fx, &t[i].grant, &t[i].uid, UINT64_MAX), 0);
	}
}

static void ask(struct fx *fx, struct peer *p, const struct tenant *t)
{
	*p = (struct peer){0};
	peer_device(fx, p);
	peer_session(p, &t->uid, &t->grant);
	peer_ask(p);
}

static void gets(struct fx *fx, struct peer *p, const struct tenant *t)
{
	ask(fx, p, t);
	assert_int_equal(p->refused, 0);
	assert_true(p->established);
}

static void gets_none(struct fx *fx, const struct tenant *t)
{
	struct peer p;

	ask(fx, &p, t);
	assert_int_equal(p.refused, ROS2_LIMIT);
	peer_close(&p);
}

static bool gets_now(struct fx *fx, const struct tenant *t)
{
	struct peer p;
	bool is;

	ask(fx, &p, t);
	is = p.established;
	peer_close(&p);
	return is;
}

static void tenants__have_no_more_pinned_slots_together_than_the_agent_may(void **state)
{
	struct fx *fx = *state;
	struct tenant t[TENANTS] = {{fx->tenant, fx->grant}};
	struct peer a[3], b, c;

	others(fx, t + 1, TENANTS - 1);
	/* At both reactors; the last quarter is for those who have none. */
	gets(fx, &a[0], &t[0]);
	gets(fx, &a[1], &t[0]);
	gets(fx, &b, &t[1]);
	gets_none(fx, &t[1]);
	gets(fx, &c, &t[2]);
	gets_none(fx, &t[3]);
	/* One more over what is there takes nothing. */
	gets(fx, &a[2], &t[0]);
	for (int i = 0; i < 3; i++)
		peer_close(&a[i]);
	assert_true(AWAIT(gets_now(fx, &t[3])));
	peer_close(&b);
	peer_close(&c);
}

/* A quarter of so few is none. */
static void of_two__one_tenant_at_both_reactors_leaves_one(void **state)
{
	struct fx *fx = *state;
	struct tenant t[2] = {{fx->tenant, fx->grant}};
	struct peer a, b;

	others(fx, t + 1, 1);
	gets(fx, &a, &t[0]);
	gets_none(fx, &t[0]);
	gets(fx, &b, &t[1]);
	peer_close(&a);
	peer_close(&b);
}

#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(tenants__have_no_more_pinned_slots_together_than_the_agent_may, four),
		T(of_two__one_tenant_at_both_reactors_leaves_one, two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
