/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots that are registered for tenants are pinned memory: of all tenants together they are
 * bounded, whatever each may have at how many reactors, and every tenant has its first while others
 * leave some.
 */
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include "tests/await.h"
#include "tests/verbs/peer.h"

#define SET     (11ull << 20) /* VERBS_SLOTS */
#define TENANTS 4
#define TURNS   40
#define HOUR_MS 3600000u

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

static int sixteen(void **state)
{
	return setup(state, 16, DP_RDMA_KEEP_NONE);
}

static int two(void **state)
{
	return setup(state, 2, DP_RDMA_KEEP_NONE);
}

static int one_kept(void **state)
{
	return setup(state, 1, HOUR_MS);
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

static bool is_gone(struct fx *fx, const struct peer *p)
{
	struct fx_args a = {.session = p->session};

	return fx_do(fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION;
}

static void gets_none(struct fx *fx, const struct tenant *t)
{
	struct peer p;

	ask(fx, &p, t);
	assert_int_equal(p.refused, ROS2_LIMIT);
	peer_close(&p);
	assert_true(AWAIT(is_gone(fx, &p)));
}

static bool gets_now(struct fx *fx, const struct tenant *t)
{
	struct peer p;
	bool is;

	ask(fx, &p, t);
	is = p.established;
	peer_close(&p);
	/* The next try counts the sessions of the reactors without it. */
	assert_true(AWAIT(is_gone(fx, &p)));
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

static void control__where_the_bound_is_far_the_same_have_what_they_ask_for(void **state)
{
	struct fx *fx = *state;
	struct tenant t[TENANTS] = {{fx->tenant, fx->grant}};
	struct peer p[6];

	others(fx, t + 1, TENANTS - 1);
	for (int i = 0; i < 6; i++)
		gets(fx, &p[i], &t[(const int[]){0, 0, 1, 1, 2, 3}[i]]);
	for (int i = 0; i < 6; i++)
		peer_close(&p[i]);
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

/* What it leaves is its slots, which are kept. */
static void connects_and_goes(struct fx *fx, const struct tenant *t)
{
	struct peer p;

	gets(fx, &p, t);
	peer_close(&p);
	assert_true(AWAIT(is_gone(fx, &p)));
}

/* A session over tcp: the next one of anybody is at the other reactor. */
static void stays(struct fx *fx, struct raw *c)
{
	fx_transport = DP_TRANSPORT_TCP;
	raw_open(fx, c);
	raw_connect(c);
	fx_transport = DP_TRANSPORT_VERBS;
}

/* What a tenant that has gone would find again is nobody's: who needs it does not wait until the
 * hour is over, whether it is at the same reactor or at the other. */
static void slots__that_are_only_kept_are_given_up_for_who_has_none(void **state)
{
	struct fx *fx = *state;
	struct tenant t[3] = {{fx->tenant, fx->grant}};
	struct raw there;

	others(fx, t + 1, 2);
	connects_and_goes(fx, &t[0]);
	/* At once: the reactor itself has what is kept. */
	connects_and_goes(fx, &t[1]);
	stays(fx, &there);
	/* With the next tick of the other. */
	gets_none(fx, &t[2]);
	assert_true(AWAIT(gets_now(fx, &t[2])));
	raw_close(&there);
}

static int one_kept_paced(void **state, uint32_t pace_ms)
{
	dp_test_switches = (struct dp_test_switches){.room_pace_ms = pace_ms};
	return one_kept(state);
}

static int seldom(void **state)
{
	return one_kept_paced(state, HOUR_MS);
}

static int often(void **state)
{
	return one_kept_paced(state, 1);
}

static int teardown(void **state)
{
	dp_test_switches = (struct dp_test_switches){0};
	return fx_teardown(state);
}

static uint64_t sets_made(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.sets_made;
}

/* Two take turns at the only set there is, each as often as it can. What the agent made of them:
 * the peers make one each time, too. */
static uint64_t made_in_turns(struct fx *fx)
{
	struct tenant t[2] = {{fx->tenant, fx->grant}};
	uint64_t made = sets_made();

	others(fx, t + 1, 1);
	for (uint32_t i = 0; i < TURNS; i++)
		(void)gets_now(fx, &t[i % 2]);
	return sets_made() - made - TURNS;
}

/* The first, and one at each reactor that was there for somebody else. */
static void slots__that_are_kept_are_given_up_at_a_pace(void **state)
{
	assert_in_range(made_in_turns(*state), 1, 3);
}

static void control__at_a_quick_pace_turns_make_them_again(void **state)
{
	assert_in_range(made_in_turns(*state), TURNS / 4, UINT32_MAX);
}

#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(tenants__have_no_more_pinned_slots_together_than_the_agent_may, four),
		T(control__where_the_bound_is_far_the_same_have_what_they_ask_for, sixteen),
		T(of_two__one_tenant_at_both_reactors_leaves_one, two),
		T(slots__that_are_only_kept_are_given_up_for_who_has_none, one_kept),
		T(slots__that_are_kept_are_given_up_at_a_pace, seldom),
		T(control__at_a_quick_pace_turns_make_them_again, often),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
