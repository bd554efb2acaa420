/* SPDX-License-Identifier: Apache-2.0 */
/* Domain objects as messages, for svc_admin.c and svc_list.c. Everything is allocated on the heap
 * as protobuf-c does it, so that one free_unpacked of the reply frees it. */
#ifndef ROS2_CONTROLLER_SVC_SHOW_PRIV_H
#define ROS2_CONTROLLER_SVC_SHOW_PRIV_H

#include "controller/svc_priv.h"

/* @sum: of an agent (ctl_agents_sum); @agents: all of them, for a tenant (ctl_agents_list). Not
 * looked at for the others. */
Ros2__V1__ObjectInfo *show_object(struct svc *s, const struct ctl_object *o,
                                  const struct ctl_agent_sum *sum, const struct ctl_agents *agents,
                                  bool whole);
Ros2__V1__GrantInfo *show_grant(const struct ctl_grant *g);
Ros2__V1__GrantInfo *show_stored_grant(struct svc *s, const struct store_grant *g);
size_t show_outcomes(struct ctl *c, const struct ctl_revocation *r, Ros2__V1__RevokeOutcome ***ret);
Ros2__V1__Condition *show_condition(const char *name, bool status, const char *reason,
                                    uint64_t since_unix_ns);
/* Appends to a repeated field; frees @item (a message) without memory. */
#define SHOW_APPEND(list, n, item) show_append((void ***)&(list), &(n), (ProtobufCMessage *)(item))
void show_append(void ***list, size_t *n, ProtobufCMessage *item);
char *show_str(const char *s); /* heap copy; protobuf-c's empty string for "" */
ProtobufCBinaryData show_bytes(const void *p, size_t n);
/* Loop thread. Grows with each piece for which there was no memory: an answer that lacks one must
 * not be given as if it were whole. False: the call was failed, BUSY. */
uint64_t show_lost(void);
void show_lose(void);
bool show_is_whole(struct rpc_call *call, uint64_t lost_before);
#endif
