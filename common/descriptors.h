/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process may have. */
#ifndef ROS2_COMMON_DESCRIPTORS_H
#define ROS2_COMMON_DESCRIPTORS_H

#include <stdint.h>

/* Takes as many as it may have (RLIMIT_NOFILE: the hard limit), for the soft one is 1024 where
 * nobody thought of it, and kept that low only for programs that use select(2). Once, before
 * threads. */
void descriptors_raise(void);
/* The limit now, at most UINT32_MAX. Any thread. */
uint32_t descriptors_limit(void);
#endif
