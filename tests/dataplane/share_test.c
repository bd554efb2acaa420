/* SPDX-License-Identifier: Apache-2.0 */
/* What one tenant may hold of a reactor's tables, and what stays for the others. */
#include "tests/dataplane/fixture.h"

/* A second tenant with a grant. */
static struct ros2_uid second_tenant(struct fx *fx, struct ros2_uid *ret_grant)
{
	struct ros2_uid t = ros2_uid_new();

	*ret_grant = ros2_uid_new();
	fx_tenant(fx, &t);
	assert_int_equal(fx_grant(fx, ret_grant, &t, clock_boottime_ns() + 60 * NS_PER_S), 0);
	return t;
}

static void session__a_generous_tenant_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.tenant = fx->tenant, .grant = fx->grant, .a = UINT64_MAX};
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c;

	fx->limits.sessions_max = 100000;
	fx_limits(fx);
	other = second_tenant(fx, &grant);
	for (int i = 0; i < 256; i++) { /* half of what two reactors have */
		a.session = ros2_uid_new();
		assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_OK);
	}
	a.session = ros2_uid_new();
	res = fx_do(fx, FX_OPEN_SESSION, &a);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "at most 128 of the 256"));
	raw_open_as(fx, &c, &other, &grant, UINT64_MAX);
	raw_connect(&c);
	raw_close(&c);
}

static void region__a_generous_tenant_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid other, mine = ros2_uid_new(), grant;
	struct fx_args a = {.a = FX_BASE, .b = 4096, .flags = 3};
	struct dp_result res;
	struct raw c, d[2];

	fx->limits.regions = fx->limits.rkeys_concurrent = 100000;
	fx->max_keys = 100000;
	fx_limits(fx);
	other = second_tenant(fx, &grant);
	fx_grant(fx, &mine, &fx->tenant, clock_boottime_ns() + 60 * NS_PER_S);
	raw_open_as(fx, &c, &fx->tenant, &mine, UINT64_MAX);
	a.session = c.session;
	for (int i = 0; i < 8192; i++)
		raw_register(&c, FX_BASE, 4096, 3);
	res = fx_do(fx, FX_REGISTER, &a);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "at most 8192"));
	for (int i = 0; i < 2; i++) { /* on either reactor */
		raw_open_as(fx, &d[i], &other, &grant, UINT64_MAX);
		raw_register(&d[i], FX_BASE, 4096, 3);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)
	const struct CMUnitTest tests[] = {
		T(session__a_generous_tenant_leaves_others_theirs),
		T(region__a_generous_tenant_leaves_others_theirs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
