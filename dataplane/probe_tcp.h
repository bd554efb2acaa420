/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of the tcp transport: a data plane of its own on 127.0.0.1, and peers that do not keep
 * the rules (dp_probe.h). */
#ifndef ROS2_DATAPLANE_PROBE_TCP_H
#define ROS2_DATAPLANE_PROBE_TCP_H

#include "common/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks for a second or two; any thread, one call at a time. -ENOMEM, -EADDRNOTAVAIL and the like
 * when no data plane can be made here. */
int probe_tcp(struct probe_subject *ret, struct ros2_err *err);

#ifdef __cplusplus
}
#endif
#endif
