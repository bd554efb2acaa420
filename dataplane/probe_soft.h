/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of the software transports: a data plane of its own, on 127.0.0.1 or in a directory
 * that nobody else may enter, and peers that do not keep the rules (dp_probe.h). */
#ifndef ROS2_DATAPLANE_PROBE_SOFT_H
#define ROS2_DATAPLANE_PROBE_SOFT_H

#include "common/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Block for some seconds; any thread, one call at a time. -ENOMEM, -EADDRNOTAVAIL, -EACCES and the
 * like when no data plane can be made here. */
int probe_tcp(struct probe_subject *ret, struct ros2_err *err);
int probe_shm(struct probe_subject *ret, struct ros2_err *err);

#ifdef __cplusplus
}
#endif
#endif
