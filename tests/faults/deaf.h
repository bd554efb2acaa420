/* SPDX-License-Identifier: Apache-2.0 */
/* A controller that does not act on grants given back, for controls. Needs --wrap of
 * ctl_grant_release. */
#ifndef ROS2_TESTS_FAULTS_DEAF_H
#define ROS2_TESTS_FAULTS_DEAF_H

#include <stdbool.h>

extern _Atomic bool deaf_to_releases;

#endif
