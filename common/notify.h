/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager is told (sd_notify(3)). */
#ifndef ROS2_COMMON_NOTIFY_H
#define ROS2_COMMON_NOTIFY_H

#include "common/err.h"

/* That this process serves. 0, too, when nobody asked (no NOTIFY_SOCKET in the environment);
 * -EINVAL: what is there names no socket; otherwise of socket(2), sendto(2). */
int notify_ready(struct ros2_err *err);
#endif
