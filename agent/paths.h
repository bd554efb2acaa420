/* SPDX-License-Identifier: Apache-2.0 */
/* The one reader of paths that tenants send. Pure; any thread. */
#ifndef ROS2_AGENT_PATHS_H
#define ROS2_AGENT_PATHS_H

#include "common/err.h"
#include <stdbool.h>

#define AGENT_PATH_MAX    4095 /* bytes without the NUL: what policy and engines take */
#define AGENT_SEGMENT_MAX 255

/* 0 when @path is normal: '/'-separated below a namespace, no leading, doubled or trailing '/', no
 * '.' or '..' segment, no control byte, UTF-8, within the lengths. "" names the namespace itself
 * and is taken only with @root_ok. BAD_PATH with words otherwise. */
int agent_path_check(const char *path, bool root_ok, struct ros2_err *err);
#endif
