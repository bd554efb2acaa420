/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of tcp finds that everything holds; and, with one check of the data plane switched off,
 * that what rests on it does not: so it sees the check, and not just a refusal of some kind.
 */
#include "common/util.h"
#include "dataplane/probe_tcp.h"
#include "dataplane/test_switches.h"
#include "tests/testing.h"
#include <string.h>

static int setup(void **state)
{
	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return 0;
}

static struct probe_subject probed(void)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct probe_subject s;

	if (probe_tcp(&s, &err))
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

static void probe_tcp__finds_every_property_enforced(void **state)
{
	struct probe_subject s = probed();

	for (unsigned p = 0; p < PROBE_PROPERTIES; p++)
		expect(&s, p, p == PROBE_DMABUF ? PROBE_NOT_SUPPORTED : PROBE_ENFORCED);
	assert_string_equal(s.name, "tcp");
	assert_string_equal(s.transport, "tcp");
	assert_true(s.kernel[0] && s.firmware[0] && s.tried_unix_ns);
	assert_true(s.revoke_p50_ns && s.revoke_p50_ns <= s.revoke_p99_ns);
	assert_true(s.key_bits >= 6);
}

static void probe_tcp__answers_alike_when_it_is_asked_again(void **state)
{
	struct probe_subject a = probed(), b = probed();
	enum probe_property p;

	assert_true(probe_same_answers(&a, &b, &p));
}

static void probe_tcp__sees_that_keys_have_no_owner(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_key_owner = true;
	s = probed();
	expect(&s, PROBE_PD_ISOLATION, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_QP_BOUND_KEYS, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_MR_RANGE, PROBE_ENFORCED);
}

static void probe_tcp__sees_that_ranges_are_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_range_check = true;
	s = probed();
	expect(&s, PROBE_MR_RANGE, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_WINDOW_RANGE, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_PD_ISOLATION, PROBE_ENFORCED);
}

static void probe_tcp__sees_that_access_is_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_access_check = true;
	s = probed();
	expect(&s, PROBE_ACCESS_MASK, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_MR_RANGE, PROBE_ENFORCED);
}

static void probe_tcp__sees_that_leases_are_not_checked(void **state)
{
	struct probe_subject s;

	dp_test_switches.no_lease_check = true;
	s = probed();
	expect(&s, PROBE_INVALIDATED_KEY, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_REBOUND_KEY, PROBE_NOT_ENFORCED);
	expect(&s, PROBE_QP_REUSE, PROBE_NOT_ENFORCED);
}

#define T(f) cmocka_unit_test_setup(f, setup)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(probe_tcp__finds_every_property_enforced),
		T(probe_tcp__answers_alike_when_it_is_asked_again),
		T(probe_tcp__sees_that_keys_have_no_owner),
		T(probe_tcp__sees_that_ranges_are_not_checked),
		T(probe_tcp__sees_that_access_is_not_checked),
		T(probe_tcp__sees_that_leases_are_not_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
