/* SPDX-License-Identifier: Apache-2.0 */
/* As many reactors as there are cores for them, which may be fewer than the machine has. */
#include "tests/dataplane/fixture.h"
#include "common/loop.h"
#include <sched.h>

#define REACTORS_MAX 64

struct start {
	struct loop *loop;
	uint32_t reactors; /* that there were */
};

static void start(void *arg)
{
	struct start *s = arg;
	struct dp_opts o = {
		.loop = s->loop, .listen_host = "127.0.0.1", .slot_bytes_total = 4u << 20};
	struct ros2_err err = ROS2_ERR_INIT;
	struct dp_slots slots;
	struct dp *dp = NULL;

	if (dp_new(&o, &dp, &err) < 0)
		fail_msg("%s", err.msg);
	while (dp_slots(dp, s->reactors, &slots))
		s->reactors++;
	dp_free(dp);
}

/* The loop's thread has the affinity of who starts it. */
static uint32_t reactors(void)
{
	const struct loop_opts o = {.name = "test"};
	struct start s = {0};

	assert_int_equal(loop_new(&o, &s.loop), 0);
	assert_int_equal(loop_thread_start(s.loop), 0);
	loop_call(s.loop, start, &s);
	loop_stop(s.loop);
	loop_thread_join(s.loop);
	loop_free(s.loop);
	return s.reactors;
}

static void dp__has_a_reactor_for_each_core_that_it_may_use(void **state)
{
	cpu_set_t all, one;
	int cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(reactors(), MIN(CPU_COUNT(&all), REACTORS_MAX));
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(reactors(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dp__has_a_reactor_for_each_core_that_it_may_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
