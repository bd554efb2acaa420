/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of control groups, in a directory that looks like /proc and /sys. */
#include "common/fsx.h"
#include "common/group_limits.h"
#include "common/util.h"
#include "tests/testing.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define V2  "sys/fs/cgroup"
#define V1  "sys/fs/cgroup/memory"

static uint64_t machine(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
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

static void limit__is_the_machines_memory_without_groups(void **state)
{
	assert_int_equal(memory_limit_bytes(*state), machine());
	put(state, "proc/self/cgroup", "0::/user.slice\n");
	assert_int_equal(memory_limit_bytes(*state), machine());
}

static void limit__of_version_2_is_the_smallest_up_to_the_root(void **state)
{
	put(state, "proc/self/cgroup", "0::/system.slice/ros2-agent.service\n");
	put(state, V2 "/system.slice/ros2-agent.service/memory.max", "max\n");
	assert_int_equal(memory_limit_bytes(*state), machine());
	put(state, V2 "/system.slice/ros2-agent.service/memory.max", "536870912\n");
	assert_int_equal(memory_limit_bytes(*state), 512 * MIB);
	put(state, V2 "/system.slice/memory.max", "268435456\n");
	assert_int_equal(memory_limit_bytes(*state), 256 * MIB);
	/* That of a group the process is not in is nothing to it. */
	put(state, V2 "/other.slice/memory.max", "1048576\n");
	assert_int_equal(memory_limit_bytes(*state), 256 * MIB);
	/* More than there is is none. */
	put(state, V2 "/system.slice/memory.max", "9223372036854771712\n");
	put(state, V2 "/system.slice/ros2-agent.service/memory.max", "9223372036854771712\n");
	assert_int_equal(memory_limit_bytes(*state), machine());
}

static void limit__of_a_container_is_at_the_root_of_what_is_mounted(void **state)
{
	put(state, "proc/self/cgroup", "0::/\n");
	put(state, V2 "/memory.max", "134217728\n");
	assert_int_equal(memory_limit_bytes(*state), 128 * MIB);
	/* One that was moved out of its namespace, and one that is told the host's path. */
	put(state, "proc/self/cgroup", "0::/../beside\n");
	put(state, "sys/fs/beside/memory.max", "1048576\n");
	assert_int_equal(memory_limit_bytes(*state), 128 * MIB);
	put(state, "proc/self/cgroup", "0::/docker/0123456789abcdef\n");
	assert_int_equal(memory_limit_bytes(*state), 128 * MIB);
}

static void limit__of_version_1_is_that_of_the_memory_controller(void **state)
{
	put(state, "proc/self/cgroup",
	    "12:cpu,cpuacct:/docker/x\n5:hugetlb,memory:/docker/x\n1:name=systemd:/docker/x\n");
	put(state, V1 "/docker/x/memory.limit_in_bytes", "402653184\n");
	assert_int_equal(memory_limit_bytes(*state), 384 * MIB);
	/* Of the same names, without the controller. */
	put(state, "proc/self/cgroup", "12:cpu:/docker/x\n5:memoryless:/docker/x\n");
	assert_int_equal(memory_limit_bytes(*state), machine());
	put(state, "proc/self/cgroup", "5:memory:/docker/x\n");
	put(state, V1 "/memory.limit_in_bytes", "201326592\n");
	assert_int_equal(memory_limit_bytes(*state), 192 * MIB);
	put(state, V1 "/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(memory_limit_bytes(*state), 384 * MIB);
}

static void limit__that_cannot_be_read_is_none(void **state)
{
	static const char *const bad[] = {"",
	                                  "\n",
	                                  "maximum\n",
	                                  "-1\n",
	                                  "12x\n",
	                                  " 12\n",
	                                  "0x10\n",
	                                  "111111111111111111111111111111111111111111111111111111"
	                                  "111111111111111111111111111111111\n"};
	static const char *const lines[] = {"",        "\n",     "0\n",        "0:\n",   "0::\n",
	                                    ":::::\n", "memory", "1:memory\n", "1:,:/\n"};
	char deep[5100] = "0::";

	put(state, "proc/self/cgroup", "0::/a\n");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put(state, V2 "/a/memory.max", bad[i]);
		assert_int_equal(memory_limit_bytes(*state), machine());
	}
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		put(state, "proc/self/cgroup", lines[i]);
		assert_int_equal(memory_limit_bytes(*state), machine());
	}
	for (size_t n = 3; n + 2 < sizeof(deep); n += 2)
		memcpy(deep + n, "/a", 3);
	put(state, "proc/self/cgroup", deep);
	assert_int_equal(memory_limit_bytes(*state), machine());
}

static void cores__are_the_quota_rounded_up(void **state)
{
	static const struct {
		const char *text;
		uint32_t cores;
	} v2[] = {{"max 100000\n", UINT32_MAX}, {"200000 100000\n", 2}, {"200001 100000\n", 3},
	          {"1000 100000\n", 1},         {"50000 1000\n", 50},   {"200000\n", UINT32_MAX},
	          {"200000 0\n", UINT32_MAX},   {" 1 2\n", UINT32_MAX}, {"", UINT32_MAX},
	          {"1 x\n", UINT32_MAX},        {"0 100000\n", 1}};

	assert_int_equal(cpu_limit_cores(*state), UINT32_MAX);
	put(state, "proc/self/cgroup", "0::/a/b\n");
	assert_int_equal(cpu_limit_cores(*state), UINT32_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(v2); i++) {
		put(state, V2 "/a/b/cpu.max", v2[i].text);
		assert_int_equal(cpu_limit_cores(*state), v2[i].cores);
	}
	put(state, V2 "/a/b/cpu.max", "300000 100000\n");
	put(state, V2 "/a/cpu.max", "250000 100000\n");
	put(state, V2 "/cpu.max", "100000 10000\n");
	assert_int_equal(cpu_limit_cores(*state), 3);
	put(state, V2 "/a/cpu.max", "150000 100000\n");
	assert_int_equal(cpu_limit_cores(*state), 2);
}

static void cores__of_version_1_are_quota_and_period(void **state)
{
	put(state, "proc/self/cgroup", "7:cpu,cpuacct:/x\n6:cpuset:/y\n0::/\n");
	put(state, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
	put(state, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cpu_limit_cores(*state), UINT32_MAX);
	put(state, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n");
	assert_int_equal(cpu_limit_cores(*state), 3);
	put(state, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
	assert_int_equal(cpu_limit_cores(*state), 3); /* without a period it is nothing */
	put(state, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	assert_int_equal(cpu_limit_cores(*state), 1);
}

static void tasks__are_those_of_the_group_or_of_the_user(void **state)
{
	struct rlimit was, rl;

	assert_int_equal(getrlimit(RLIMIT_NPROC, &was), 0);
	rl = was;
	assert_int_equal(task_limit(*state), was.rlim_cur);
	put(state, "proc/self/cgroup", "0::/a\n");
	put(state, V2 "/a/pids.max", "max\n");
	assert_int_equal(task_limit(*state), was.rlim_cur);
	put(state, V2 "/a/pids.max", "77\n");
	assert_int_equal(task_limit(*state), 77);
	put(state, V2 "/pids.max", "55\n");
	assert_int_equal(task_limit(*state), 55);
	put(state, "proc/self/cgroup", "9:pids:/b\n0::/none\n");
	put(state, "sys/fs/cgroup/pids/b/pids.max", "33\n");
	assert_int_equal(task_limit(*state), 33);
	rl.rlim_cur = 11;
	assert_int_equal(setrlimit(RLIMIT_NPROC, &rl), 0);
	assert_int_equal(task_limit(*state), 11);
	assert_int_equal(setrlimit(RLIMIT_NPROC, &was), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, testing_dir_setup, testing_dir_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(limit__is_the_machines_memory_without_groups),
		T(limit__of_version_2_is_the_smallest_up_to_the_root),
		T(limit__of_a_container_is_at_the_root_of_what_is_mounted),
		T(limit__of_version_1_is_that_of_the_memory_controller),
		T(limit__that_cannot_be_read_is_none),
		T(cores__are_the_quota_rounded_up),
		T(cores__of_version_1_are_quota_and_period),
		T(tasks__are_those_of_the_group_or_of_the_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
