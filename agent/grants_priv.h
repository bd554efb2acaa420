/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting a grant for a session: an idle one of the same principal, or one asked for at the
 * controller, waited for a bounded time. Loop thread.
 */
#ifndef ROS2_AGENT_GRANTS_PRIV_H
#define ROS2_AGENT_GRANTS_PRIV_H

#include "agent/agent.h"
#include "proto/ros2/v1/agentlink.pb-c.h"

#define GRANT_WAIT_MS             5000
#define GRANTS_PENDING_MAX        1024
#define GRANTS_PENDING_PER_TENANT 64
#define GRANTS_PENDING_SURE       4 /* of 64 tenants, whatever others wait for */

int grants_new(struct agent *a, struct grants **ret);
/* Waiters are told CANCELLED. */
void grants_free(struct grants *g);

/* @grant NULL: none, words say why. The grant counts as used by one session from here on. */
typedef void (*grants_fn)(void *arg, const struct ros2_uid *grant, const struct ros2_err *err);
/* Calls fn at once, or later. */
void grants_take(struct grants *g, const struct ros2_uid *tenant, const char *principal,
                 const char *peer, grants_fn fn, void *arg);
void grants_on_reply(struct grants *g, const Ros2__V1__GrantReply *m);
void grants_on_lost(struct grants *g);
/* A session gave its grant back: who waits for a controller that is away takes it, soon.
 * @g NULL: nobody waits. */
void grants_on_returned(struct grants *g);
/* Asks the controller for one that is waited for, where it was not asked on this stream yet: at the
 * pace at which the stream takes them. True: there may be more. @g NULL: nobody waits. */
bool grants_send_waiting(struct grants *g);
#endif
