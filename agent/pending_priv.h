/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose keys the RDMA device has not ended yet, for the receipt of a whole agent: asked of the data
 * plane, by tenant, bounded. Loop thread.
 */
#ifndef ROS2_AGENT_PENDING_PRIV_H
#define ROS2_AGENT_PENDING_PRIV_H

#include "agent/agent.h"
#include "proto/ros2/v1/agentlink.pb-c.h"

#define PENDING_TENANTS_MAX 64u /* told in one receipt */

struct pending;
/* Never from inside pending_ask. @changed: the list is another than it was before. */
typedef void (*pending_fn)(void *arg, bool changed);

/* NULL: no memory; the list is empty then. @until_ns (boottime): ended by then. */
struct pending *pending_new(struct agent *a, uint64_t until_ns, pending_fn fn, void *arg);
/* Asks again; fn is called once, unless memory is missing (-ENOMEM) or an answer is awaited still
 * (-EALREADY). */
int pending_ask(struct pending *p);
bool pending_any(const struct pending *p);
/* Borrowed by @r until the next call of @p. NULL: an empty list. */
void pending_put(struct pending *p, Ros2__V1__Receipt *r);
/* Also while an answer is awaited: fn is not called any more. */
void pending_free(struct pending *p);
#endif
