/* SPDX-License-Identifier: Apache-2.0 */
/* What one tenant may hold of a reactor's tables, and what stays for the others. */
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include <sys/resource.h>

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

/* ---- descriptors: few in all, so that one tenant could have them ---- */

#define ALL    400 /* RLIMIT_NOFILE: half of it for open files, half of that for one tenant */
#define MOST   (ALL / 4)
#define A_FILE 3 /* of the file engine */

static struct rlimit before;

static int few_setup(void **state)
{
	struct rlimit few;

	if (!testing_has_openat2()) {
		*state = NULL;
		return 0;
	}
	if (getrlimit(RLIMIT_NOFILE, &before) < 0)
		return -1;
	few = (struct rlimit){ALL, before.rlim_max};
	return setrlimit(RLIMIT_NOFILE, &few) || fx_file_setup(state);
}

static int few_teardown(void **state)
{
	if (!*state)
		return 0;
	dp_test_switches.no_descriptor_share = false;
	setrlimit(RLIMIT_NOFILE, &before);
	return fx_file_teardown(state);
}

static struct dp_result mount(struct fx *fx, struct raw *c)
{
	struct fx_args a = {.session = c->session, .path = "ns", .to = "ram", .flags = 3};

	return fx_do(fx, FX_MOUNT, &a);
}

static struct dp_result open_file(struct fx *fx, const struct raw *c, unsigned n)
{
	char name[16];
	struct fx_args a = {.session = c->session,
	                    .mount = 1,
	                    .path = name,
	                    .flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE};

	snprintf(name, sizeof(name), "f-%u", n);
	return fx_do(fx, FX_OPEN, &a);
}

/* How many until one is refused, which is @ret_last. */
static unsigned open_many(struct fx *fx, const struct raw *c, unsigned most,
                          struct dp_result *ret_last)
{
	unsigned n = 0;

	while (n < most && (*ret_last = open_file(fx, c, n)).status == ROS2_OK)
		n++;
	return n;
}

static bool can_open(struct fx *fx, const struct raw *c)
{
	struct dp_result res = open_file(fx, c, 0);
	struct fx_args a = {.session = c->session, .a = res.open.handle};

	if (res.status == ROS2_OK)
		assert_int_equal(fx_do(fx, FX_CLOSE, &a).status, ROS2_OK);
	return res.status == ROS2_OK;
}

static void file__a_tenant_that_opens_many_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct fx_args close = {.a = 0};
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c, d;

	if (!fx)
		testing_no_openat2(state);
	other = second_tenant(fx, &grant);
	raw_open(fx, &c);
	assert_int_equal(mount(fx, &c).status, ROS2_OK);
	assert_int_equal(open_many(fx, &c, 256, &res), (MOST - 1) / A_FILE);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "at most 100 of 200 descriptors"));
	raw_open_as(fx, &d, &other, &grant, UINT64_MAX);
	assert_int_equal(mount(fx, &d).status, ROS2_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(open_file(fx, &d, i).status, ROS2_OK);
	/* What a session had is there again when it has ended, as soon as the engine has closed it.
	 */
	close.session = c.session;
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &close).status, ROS2_OK);
	raw_open(fx, &c);
	assert_true(AWAIT(mount(fx, &c).status == ROS2_OK));
	assert_true(AWAIT(can_open(fx, &c)));
}

static void control__descriptors_of_one_tenant(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c, d;

	if (!fx)
		testing_no_openat2(state);
	dp_test_switches.no_descriptor_share = true;
	other = second_tenant(fx, &grant);
	raw_open(fx, &c);
	assert_int_equal(mount(fx, &c).status, ROS2_OK);
	raw_open_as(fx, &d, &other, &grant, UINT64_MAX);
	assert_int_equal(mount(fx, &d).status, ROS2_OK);
	assert_in_range(open_many(fx, &c, 256, &res), MOST, 2 * MOST);
	assert_int_not_equal(open_file(fx, &d, 0).status, ROS2_OK);
}

int main(void)
{
#define T(name)   cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)
#define FEW(name) cmocka_unit_test_setup_teardown(name, few_setup, few_teardown)
	const struct CMUnitTest tests[] = {
		T(session__a_generous_tenant_leaves_others_theirs),
		T(region__a_generous_tenant_leaves_others_theirs),
		FEW(file__a_tenant_that_opens_many_leaves_others_theirs),
		FEW(control__descriptors_of_one_tenant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
