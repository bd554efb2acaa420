/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the machine this process may have, where a container or a service manager says less
 * than all: the smallest limit of the control groups that the process is in, each with those above
 * it. A limit that cannot be read is none. As of now: limits that are changed later are not
 * noticed. @root: put before /proc and /sys, for tests; "" otherwise. Any thread; reads files.
 */
#ifndef ROS2_COMMON_GROUP_LIMITS_H
#define ROS2_COMMON_GROUP_LIMITS_H

#include <stdint.h>

/* The machine's memory, or less: memory.max of version 2, memory.limit_in_bytes of version 1. */
uint64_t memory_limit_bytes(const char *root);
/* Cores that its time is worth, rounded up, at least 1 (cpu.max; cpu.cfs_quota_us and
 * cpu.cfs_period_us); UINT32_MAX: no limit. It may run on more of them, and then waits. */
uint32_t cpu_limit_cores(const char *root);
/* Processes and threads: RLIMIT_NPROC, or less (pids.max); UINT64_MAX: no limit. */
uint64_t task_limit(const char *root);
#endif
