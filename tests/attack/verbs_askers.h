/* SPDX-License-Identifier: Apache-2.0 */
/* Many who ask an agent for a connection over verbs at once, and have no queue pair for it. */
#ifndef ROS2_TESTS_ATTACK_VERBS_ASKERS_H
#define ROS2_TESTS_ATTACK_VERBS_ASKERS_H

#include "common/status.h"
#include "dataplane/wire.h"

#define ASKERS_MAX 64u

/* @n of them ask at @data (HOST:PORT), all by @by. Those that were refused are counted at @ret by
 * the status that the refusal says; whoever was let in, refused without a status, or not answered
 * in ten seconds is in none of them. 0, or -errno: nobody could ask. */
int askers_ask(const char *data, const struct wire_verbs_ask *by, unsigned n,
               unsigned ret[ROS2_STATUS_COUNT]);
#endif
