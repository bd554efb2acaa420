/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What isolation rests on, tried (common/probe.h): on each RDMA device's own loopback, and on the
 * software transports through a data plane of this process, on 127.0.0.1 and on a socket in a
 * directory that is made for it, with throw-away tenants. Touches no session of a running data
 * plane. Must never try what takes a kernel down.
 */
#ifndef ROS2_DATAPLANE_DP_PROBE_H
#define ROS2_DATAPLANE_DP_PROBE_H

#include "common/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* @name: a subject ("tcp", "shm", "rxe0"), or NULL: all there are, software first. Blocks for
 * seconds for each (an RDMA device at most about three minutes, if nothing answers); any thread,
 * but one call at a time. A property that could not be tried is PROBE_NOT_TRIED with the reason; so
 * is every property of a device that could not be opened, and of shm where no socket can be made,
 * when all were asked for. 0 and *ret_n (at most PROBE_SUBJECTS_MAX); -ENODEV with the names there
 * are, -EACCES, -ENOTCONN (no active port), -ENOMEM. */
int dp_probe(const char *name, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
             struct ros2_err *err);
/* All that an agent's tenants may go by: as with NULL, but shm only when it is offered. */
int dp_probe_offered(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                     struct ros2_err *err);

#ifdef __cplusplus
}
#endif
#endif
