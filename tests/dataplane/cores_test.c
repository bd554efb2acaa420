/* SPDX-License-Identifier: Apache-2.0 */
/* As many reactors as there are cores for them, or time on cores, which may be fewer than the
 * machine has. */
#include "tests/dataplane/fixture.h"
#include "common/fsx.h"
#include "common/group_limits.h"
#include "common/loop.h"
#include "dataplane/dp_priv.h"
#include "tests/testing.h"
#include <sched.h>

#define REACTORS_MAX 64

struct start {
	struct loop *loop;
	uint32_t reactors; /* that there were */
	uint32_t io_workers;
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
	s->io_workers = dp->io_workers;
	dp_free(dp);
}

/* The loop's thread has the affinity of who starts it. */
static struct start started(void)
{
	const struct loop_opts o = {.name = "test"};
	struct start s = {0};

	assert_int_equal(loop_new(&o, &s.loop), 0);
	assert_int_equal(loop_thread_start(s.loop), 0);
	loop_call(s.loop, start, &s);
	loop_stop(s.loop);
	loop_thread_join(s.loop);
	loop_free(s.loop);
	return s;
}

static uint32_t reactors(void)
{
	return started().reactors;
}

static void dp__has_a_reactor_for_each_core_that_it_may_use(void **state)
{
	cpu_set_t all, one;
	int cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(reactors(),
	                 MIN(MIN((uint32_t)CPU_COUNT(&all), cpu_limit_cores("")), REACTORS_MAX));
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(reactors(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

/* ---- a container's time on them ---- */

static const struct fsx_ops *real_io;
static const char *fake_root; /* has what looks like /proc and /sys */

static int fake_open(const char *path, int flags, mode_t mode)
{
	char fake[4200];

	if (strncmp(path, "/proc/self/cgroup", 17) != 0 && strncmp(path, "/sys/fs/cgroup", 14) != 0)
		return real_io->open(path, flags, mode);
	testing_path(fake, fake_root, path);
	return real_io->open(fake, flags, mode);
}

static int fake_setup(void **state)
{
	static struct fsx_ops ops;
	int rc = testing_dir_setup(state);

	real_io = fsx_io;
	ops = *fsx_io;
	ops.open = fake_open;
	fake_root = *state;
	fsx_io = &ops;
	return rc;
}

static int fake_teardown(void **state)
{
	fsx_io = real_io;
	return testing_dir_teardown(state);
}

static void put(void *const *state, const char *name, const char *text)
{
	char path[4200], *last;

	testing_path(path, *state, name);
	last = strrchr(path, '/');
	*last = '\0';
	assert_int_equal(fsx_mkdirs(path, 0700, NULL), 0);
	*last = '/';
	assert_int_equal(fsx_write_atomic(path, text, strlen(text), 0600, NULL), 0);
}

/* Threads that all want to run have among them as much time as the quota says, and then none. */
static void dp__has_no_more_reactors_than_its_quota_is_cores(void **state)
{
	cpu_set_t all;
	int n;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	n = MIN(CPU_COUNT(&all), REACTORS_MAX);
	assert_int_equal(reactors(), n);
	put(state, "proc/self/cgroup", "0::/box\n");
	put(state, "sys/fs/cgroup/box/cpu.max", "100000 100000\n");
	assert_int_equal(reactors(), 1);
	put(state, "sys/fs/cgroup/box/cpu.max", "150000 100000\n");
	assert_int_equal(reactors(), MIN(n, 2));
	put(state, "sys/fs/cgroup/box/cpu.max", "max 100000\n");
	assert_int_equal(reactors(), n);
}

/* Of the threads and processes that it may have: half is kept for what is not of a tenant's calls,
 * a process that seals a tenant's memory first of all. */
static void dp__leaves_half_of_its_tasks_to_others_than_calls_that_block(void **state)
{
	struct start s;

	put(state, "proc/self/cgroup", "0::/box\n");
	put(state, "sys/fs/cgroup/box/pids.max", "400\n");
	s = started();
	assert_int_equal(s.io_workers, 200 / s.reactors);
	assert_int_equal(dp_io_workers(4915, 16), 153);
	/* Some, where there are next to none. */
	assert_int_equal(dp_io_workers(64, 64), 4);
	assert_int_equal(dp_io_workers(UINT64_MAX, 1), 16384);
	assert_int_equal(dp_io_workers(1u << 22, 64), 16384);
	assert_int_equal(dp_io_workers(1u << 22, 4), 16384);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(dp__has_no_more_reactors_than_its_quota_is_cores,
	                                        fake_setup, fake_teardown),
		cmocka_unit_test_setup_teardown(
			dp__leaves_half_of_its_tasks_to_others_than_calls_that_block, fake_setup,
			fake_teardown),
		cmocka_unit_test(dp__has_a_reactor_for_each_core_that_it_may_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
