/* SPDX-License-Identifier: Apache-2.0 */
/* The note of targets as table and text: the longest counts, more than fit are all, and what is
 * not exactly so is refused. */
#include "dataplane/unquiet.h"
#include "common/util.h"
#include "tests/testing.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define A "nqn.2014-08.org.example:a"
#define B "nqn.2014-08.org.example:b"

static struct unquiet_table t;
static char text[UNQUIET_TEXT];

static struct unquiet_times times(uint64_t keep_alive_ms, uint64_t quiesce_ms)
{
	return (struct unquiet_times){keep_alive_ms, quiesce_ms};
}

static bool add(const char *subsystem, uint64_t keep_alive_ms, uint64_t quiesce_ms)
{
	const struct unquiet_times x = times(keep_alive_ms, quiesce_ms);

	return unquiet_add(&t, subsystem, &x);
}

static void unquiet__keeps_the_longest_of_a_subsystem(void **state)
{
	t.n = 0;
	assert_true(add(A, 5000, 0));
	assert_false(add(A, 5000, 0));
	assert_false(add(A, 1000, 0));
	assert_true(add(A, 0, 2000));
	assert_true(add(B, 0, 1));
	assert_int_equal(t.n, 2);
	assert_int_equal(unquiet_find(&t, A).keep_alive_ms, 5000);
	assert_int_equal(unquiet_find(&t, A).quiesce_ms, 2000);
	assert_int_equal(unquiet_find(&t, B).keep_alive_ms, 0);
	assert_int_equal(unquiet_find(&t, "nqn.2014-08.org.example:c").quiesce_ms, 0);
}

static void unquiet__longest_is_as_long_as_any_target_may_take(void **state)
{
	const struct unquiet_times none = times(0, 0), said = times(0, 7), both = times(60000, 7),
				   long_one = times(1000, 3600000);

	assert_int_equal(unquiet_longest_ms(&none), 0);
	assert_int_equal(unquiet_longest_ms(&said), 7);
	assert_int_equal(unquiet_longest_ms(&both), 120000 + 65535);
	assert_int_equal(unquiet_longest_ms(&long_one), 3600000);
}

static void unquiet__more_than_fit_count_for_all_others(void **state)
{
	char name[64];

	t.n = 0;
	for (uint32_t i = 0; i < 2 * UNQUIET_MAX; i++) {
		snprintf(name, sizeof(name), "%s%u", A, i);
		assert_true(add(name, 1, 1000 + i));
	}
	assert_int_equal(t.n, UNQUIET_MAX);
	assert_int_equal(unquiet_find(&t, name).quiesce_ms, 1000 + 2 * UNQUIET_MAX - 1);
	assert_int_equal(unquiet_find(&t, "nqn.never:seen").quiesce_ms, 1000 + 2 * UNQUIET_MAX - 1);
	/* And with names as long as they can be it can be written. */
	for (uint32_t i = 0; i < t.n; i++) {
		memset(t.v[i].subsystem, 'x', NVMF_NQN_MAX);
		t.v[i].subsystem[0] = (char)('0' + i);
		t.v[i].times = times(UNQUIET_TIME_MS, UNQUIET_TIME_MS);
	}
	assert_true(unquiet_format(&t, text) < UNQUIET_TEXT);
	assert_int_equal(unquiet_parse(text, strlen(text), &t, NULL), 0);
	assert_int_equal(t.n, UNQUIET_MAX);
}

static void unquiet__is_read_as_it_was_written(void **state)
{
	static const char want[] = "ros2 unquiet targets 1\n5000 0 " A "\n0 3600000 " B "\n";

	t.n = 0;
	add(A, 5000, 0);
	add(B, 0, 3600000);
	assert_int_equal(unquiet_format(&t, text), sizeof(want) - 1);
	assert_string_equal(text, want);
	t.n = 0;
	assert_int_equal(unquiet_parse(want, sizeof(want) - 1, &t, NULL), 0);
	assert_int_equal(t.n, 2);
	assert_int_equal(unquiet_find(&t, B).quiesce_ms, 3600000);
	/* As agents before 0025 made it. */
	assert_int_equal(unquiet_parse("", 0, &t, NULL), 0);
	assert_int_equal(t.n, 0);
}

static void unquiet__refuses_what_is_not_exactly_so(void **state)
{
	static const char *const bad[] = {
		"ros2 unquiet targets 2\n",
		"ros2 unquiet targets 1",
		"ros2 unquiet targets 1\n5000 0 " A,
		"ros2 unquiet targets 1\n5000 0\n",
		"ros2 unquiet targets 1\n5000 0 \n",
		"ros2 unquiet targets 1\n5000  0 " A "\n",
		"ros2 unquiet targets 1\n05000 0 " A "\n",
		"ros2 unquiet targets 1\n-1 0 " A "\n",
		"ros2 unquiet targets 1\n86400001 0 " A "\n",
		"ros2 unquiet targets 1\n18446744073709551617 0 " A "\n",
		"ros2 unquiet targets 1\n1 0 nqn.\t\n",
		"ros2 unquiet targets 1\n1 0 " A "\n\n",
	};
	char name[NVMF_NQN_MAX + 2] = "";
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(unquiet_parse(bad[i], strlen(bad[i]), &t, &err), -EINVAL);
	memset(name, 'x', NVMF_NQN_MAX + 1);
	snprintf(text, sizeof(text), "ros2 unquiet targets 1\n1 0 %s\n", name);
	assert_int_equal(unquiet_parse(text, strlen(text), &t, &err), -EINVAL);
	assert_int_equal(unquiet_parse("ros2 unquiet targets 1\n1 0 a\0b\n", 31, &t, &err),
	                 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unquiet__keeps_the_longest_of_a_subsystem),
		cmocka_unit_test(unquiet__longest_is_as_long_as_any_target_may_take),
		cmocka_unit_test(unquiet__more_than_fit_count_for_all_others),
		cmocka_unit_test(unquiet__is_read_as_it_was_written),
		cmocka_unit_test(unquiet__refuses_what_is_not_exactly_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
