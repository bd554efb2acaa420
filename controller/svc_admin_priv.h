/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of the Admin service that only read (svc_list.c). Loop thread. */
#ifndef ROS2_CONTROLLER_SVC_ADMIN_PRIV_H
#define ROS2_CONTROLLER_SVC_ADMIN_PRIV_H

#include "controller/svc_priv.h"

void svc_on_get(struct rpc_call *call, const ProtobufCMessage *msg, void *user);
void svc_on_list(struct rpc_call *call, const ProtobufCMessage *msg, void *user);
void svc_on_status(struct rpc_call *call, const ProtobufCMessage *msg, void *user);
#endif
