/* SPDX-License-Identifier: Apache-2.0 */
/* What config.c (files) and rights.c (whom they name) share. */
#ifndef ROS2_CONTROLLER_CONFIG_PRIV_H
#define ROS2_CONTROLLER_CONFIG_PRIV_H

#include "controller/config.h"

/* Of the infrastructure bundle that is in @r. */
int config_hash_infra(struct config_rights *r, struct ros2_err *err);
/* Of @n lines, which are sorted on the way. */
int config_roles_new(struct config_role *v, size_t n, struct config_roles **ret,
                     struct ros2_err *err);
#endif
