/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries on a device's own loopback, with two throw-away tenants, what isolation rests on, and says
 * what was seen (common/probe.h). Believes nothing the device says of itself, and no refusal
 * without a control that the same access works where it must. Leaves nothing behind.
 *
 * Must never do what takes a kernel down (seen on soft-RoCE of Linux 6.1): a second LOCAL_INV of a
 * window that is already free, a SEND_WITH_INV that names a window never bound. Such cases live in
 * tests/guest, in a guest of their own.
 */
#ifndef ROS2_DATAPLANE_PROBE_H
#define ROS2_DATAPLANE_PROBE_H

#include "common/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Names of the devices of this machine; 0 of them is no error. Any thread. */
int probe_verbs_list(char (*names)[PROBE_NAME_MAX + 1], size_t max, size_t *ret_n,
                     struct ros2_err *err);
/* Blocks for seconds; any thread, one at a time per device. A property that could not be tried is
 * PROBE_NOT_TRIED with the reason. -ENODEV with the names there are, -EACCES, -ENOTCONN (no active
 * port), -ENOMEM. */
int probe_verbs(const char *device, struct probe_subject *ret, struct ros2_err *err);

#ifdef __cplusplus
}
#endif
#endif
