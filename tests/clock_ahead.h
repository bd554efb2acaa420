/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of rights, ahead of the machine's by what a test says: an hour passes at once, and a
 * slow machine takes nothing from it. For programs with ros2_clock_ahead
 * (cmake/ros2_targets.cmake).
 */
#ifndef ROS2_TESTS_CLOCK_AHEAD_H
#define ROS2_TESTS_CLOCK_AHEAD_H

#include "common/clock.h"

extern _Atomic uint64_t clock_ahead_ns; /* added to what clock_boottime_ns says, to every thread */
#endif
