/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a sweep of power cuts: each of them, once, in whatever way they are chosen. */
#include "tests/controller/power_points.h"
#include "tests/testing.h"

#define CALLS_MAX 1000

static unsigned times[CALLS_MAX + 3];

/* Each run with a cut below @calls has it, and none above. How many points were tried. */
static uint64_t walk(struct power_points p, uint64_t calls)
{
	memset(times, 0, sizeof(times));
	while (power_points_next(&p)) {
		assert_in_range(p.at, 0, calls);
		times[p.at]++;
		p.cut = p.at < calls;
	}
	power_points_end(&p, 0);
	return p.tried;
}

static void is_each_once(uint64_t calls)
{
	for (uint64_t at = 0; at < calls; at++)
		assert_int_equal(times[at], 1);
}

static int setup(void **state)
{
	setenv("ROS2_POWER_ALL", "0", 1);
	setenv("ROS2_POWER_SECONDS", "3600", 1);
	return 0;
}

static void points__are_each_tried_once_when_there_is_time(void **state)
{
	for (uint64_t calls = 1; calls < CALLS_MAX; calls++) {
		assert_int_equal(walk((struct power_points){.calls = calls, .seconds = 1}, calls),
		                 calls);
		is_each_once(calls);
		walk((struct power_points){.calls = calls, .first = 40, .seconds = 1}, calls);
		is_each_once(calls);
		walk(
			(struct power_points){
				.calls = calls, .first = 40, .every = 8, .from = 7, .seconds = 1},
			calls);
		is_each_once(calls);
	}
}

/* Wherever time ends no long part of the run is without one. */
static void points__are_spread_evenly_when_there_is_little_time(void **state)
{
	const uint64_t calls = 341, tried = 34;
	struct power_points p = {.calls = calls, .at_least = tried};
	uint64_t gap = 0;

	assert_int_equal(walk(p, calls), tried);
	for (uint64_t at = 0; at < calls; at++) {
		gap = times[at] ? 0 : gap + 1;
		assert_in_range(gap, 0, 3 * calls / tried);
	}
}

static void points__are_all_with_the_switch_whatever_the_time(void **state)
{
	struct power_points p = {.calls = 341, .first = 40, .every = 8, .seconds = 1};

	setenv("ROS2_POWER_ALL", "1", 1);
	setenv("ROS2_POWER_SECONDS", "0", 1);
	setenv("ROS2_SWEEP_STRIDE", "4", 1);
	assert_int_equal(power_stride(), 1);
	walk(p, 341);
	is_each_once(341);
	/* A run that makes more calls than the one they were counted in. */
	walk(p, 343);
	is_each_once(343);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(points__are_each_tried_once_when_there_is_time, setup),
		cmocka_unit_test_setup(points__are_spread_evenly_when_there_is_little_time, setup),
		cmocka_unit_test_setup(points__are_all_with_the_switch_whatever_the_time, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
