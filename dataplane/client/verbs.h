/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data connection over verbs, and the windows through which the agent reaches registered memory.
 * Everything here is of the session's thread.
 *
 * A region's memory: registered once with the device (no remote access), and on each connection one
 * type-2B window bound over it, exactly as long as its lease: bound before the first request under
 * a key, told to the agent by WINDOW, invalidated once when the lease ends on this side's clock,
 * when the region is deregistered, or with the connection. Only then is the memory the caller's
 * again.
 */
#ifndef ROS2_CLIENT_VERBS_H
#define ROS2_CLIENT_VERBS_H

#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

struct link_ops;
struct request;
struct ros2_client;
struct ros2_region;
struct ros2_session;

/* A device of this machine can be used. */
bool verbs_available(void);
extern const struct link_ops verbs_link_ops;
void verbs_link_cut(struct ros2_session *s);
/* Everything but the regions' own memory; with the session. What the device does not give up is the
 * client's from then on. */
void verbs_link_free(struct ros2_session *s);
/* Asks for it again; under the client's lock, or with the client. */
void verbs_ask_again(struct ros2_client *c);

enum verbs_window { VERBS_WINDOW_READY, VERBS_WINDOW_WAIT, VERBS_WINDOW_FAILED };
/* @r may be sent under its key: its memory is known to the device, and if the agent has to reach
 * it, the window is bound and told (what is queued from here on comes after it). */
enum verbs_window verbs_window_ready(struct ros2_session *s, const struct request *r,
                                     struct ros2_err *err);
/* TOO_LARGE: over verbs, and it is longer than a window of the device may be. */
int verbs_region_fits(const struct ros2_session *s, const struct ros2_region *r,
                      struct ros2_err *err);
/* Makes it known to the RDMA device of this connection. UNSUPPORTED: memory of a device, and it
 * cannot, or the connection is not over verbs; and as verbs_region_fits. */
int verbs_know_region(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err);
/* No request uses @r: nobody reaches its memory any more when this returns, and the device has
 * forgotten it. */
void verbs_region_end(struct ros2_session *s, struct ros2_region *r);
#endif
