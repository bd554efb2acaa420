/* SPDX-License-Identifier: Apache-2.0 */
/* The directory in which engines find secrets by the names that documents give them. */
#ifndef ROS2_AGENT_SECRETS_H
#define ROS2_AGENT_SECRETS_H

#include "common/err.h"

/* 0 when @dir is a directory that this process can list, that belongs to it or to root, and that
 * neither group may change nor others may enter. -EACCES with its owner and mode; -ENOENT, -ENOTDIR
 * and what else opening it says. */
int agent_secrets_check(const char *dir, struct ros2_err *err);
#endif
