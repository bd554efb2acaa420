/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process may have: the machine's, or less where a container or a service
 * manager says so. */
#ifndef ROS2_COMMON_MEMORY_LIMIT_H
#define ROS2_COMMON_MEMORY_LIMIT_H

#include <stdint.h>

/* In bytes: the machine's memory, and the smallest limit of the control groups that the process is
 * in (memory.max of version 2, memory.limit_in_bytes of version 1), each with those above it. A
 * limit that cannot be read is none. @root: put before /proc and /sys, for tests; "" otherwise. As
 * of now: limits that are changed later are not noticed. Any thread; reads files. */
uint64_t memory_limit_bytes(const char *root);
#endif
