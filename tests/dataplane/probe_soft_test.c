/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of tcp and shm finds that everything holds; and, with one check of the data plane
 * switched off, that what rests on it does not: so it sees the check, and not just a refusal of
 * some kind. Each test runs over both.
 */
#include "common/util.h"
#include "dataplane/probe_soft.h"
#include "dataplane/test_switches.h"
#include "tests/testing.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct way {
	const char *name;
	int (*probe)(struct probe_subject *ret, struct ros2_err *err);
};
static struct way tcp = {"tcp", probe_tcp}, shm = {"shm", probe_shm};

static int setup(void **state)
{
	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return 0;
}

static struct probe_subject probed(void **state)
{
	const struct way *w = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct probe_subject s;

	if (w->probe(&s, &err))
		fail_msg("%s", err.msg);
	return s;
}

static void expect(const struct probe_subject *s, enum probe_property p, enum probe_result want)
{
	if (s->findings[p].result != want)
		fail_msg("%s: %s, expected %s (%s)", probe_property_to_str(p),
		         probe_result_to_str(s->findings[p].result), probe_result_to_str(want),
		         s->findings[p].seen);
	assert_true(strlen(s->findings[p].seen) > 10);
}

static void probe__finds_every_property_enforced(void **state)
{
	const struct way *w = *state;
	struct probe_subject s = probed(state);

	for (unsigned p = 0; p < PROBE_PROPERTIES; p++)
		expect(&s, p, p == PROBE_DMABUF ? PROBE_NOT_SUPPORTED : PROBE_ENFORCED);
	assert_string_equal(s.name, w->name);
	assert_string_equal(s.transport, w->name);
	assert_string_equal(s.device, "software");
	assert_true(s.kernel[0] && s.firmware[0] && s.tried_unix_ns);
	assert_true(s.revoke_p50_ns && s.revoke_p50_ns <= s.revoke_p99_ns);
	assert_true(s.key_bits >= 6);
}

static void probe__answers_alike_when_it_is_asked_again(void **state)
{
	struct probe_subject a = probed(state), b = probed(state);
	enum probe_property p;

	assert_true(probe_same_answers(&a, &b, &p));
}

static void probe__sees_that_keys_have_no_owner(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_key_owner = true;
	s = probed(state);
	expect(&s, PROBE_PD_ISOLATION, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_QP_BOUND_KEYS, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_MR_RANGE, PROBE_ENFORCED);
}

static void probe__sees_that_ranges_are_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_range_check = true;
	s = probed(state);
	expect(&s, PROBE_MR_RANGE, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_WINDOW_RANGE, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_PD_ISOLATION, PROBE_ENFORCED);
}

static void probe__sees_that_access_is_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_access_check = true;
	s = probed(state);
	expect(&s, PROBE_ACCESS_MASK, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_MR_RANGE, PROBE_ENFORCED);
}

static void probe__sees_that_leases_are_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_lease_check = true;
	s = probed(state);
	expect(&s, PROBE_INVALIDATED_KEY, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_REBOUND_KEY, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_QP_REUSE, PROBE_NOT_ENFORCED);
}

/* Over tcp there is nothing to seal. */
static void probe__sees_that_the_memory_is_not_sealed(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_seal = true;
	s = probed(state);
	expect(&s, PROBE_MR_RANGE, PROBE_NOT_ENFORCED);
	assert_non_null(strstr(s.findings[PROBE_MR_RANGE].seen, "not sealed"));
	expect(&s, PROBE_WINDOW_RANGE, PROBE_ENFORCED);
}

static void probe__leaves_no_directory(void **state)
{
	char dir[] = "/tmp/ros2-test-XXXXXX";

	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("TMPDIR", dir, 1), 0);
	(void)probed(state);
	assert_int_equal(unsetenv("TMPDIR"), 0);
	assert_int_equal(rmdir(dir), 0);
}

#define T(name, f, over)                                                                           \
	{                                                                                          \
		name "__" #f, probe__##f, setup, NULL, &(over)                                     \
	}
#define BOTH(f) T("probe_tcp", f, tcp), T("probe_shm", f, shm)
int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(finds_every_property_enforced),
		BOTH(answers_alike_when_it_is_asked_again),
		BOTH(sees_that_keys_have_no_owner),
		BOTH(sees_that_ranges_are_not_checked),
		BOTH(sees_that_access_is_not_checked),
		BOTH(sees_that_leases_are_not_checked),
		T("probe_shm", sees_that_the_memory_is_not_sealed, shm),
		T("probe_shm", leaves_no_directory, shm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
