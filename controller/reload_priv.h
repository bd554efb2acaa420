/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: whom the roles and the trust bundles name is read again. What somebody loses by it is in
 * force at once, and its record is made as soon as it can be; what somebody gets is in force when
 * its record is durable, and not before (ARCHITECTURE, rule 10). What cannot be read for want of
 * memory, or recorded now, is tried again each second and shows as ReloadPending. Loop thread.
 */
#ifndef ROS2_CONTROLLER_RELOAD_PRIV_H
#define ROS2_CONTROLLER_RELOAD_PRIV_H

#include "controller/svc_priv.h"

struct reload;
struct reload_opts {
	struct loop *loop;
	struct config *cfg;
	struct ctl *ctl;
	struct svc *svc;
	/* Whom the administrators' and the infrastructure bundle let in. */
	struct rpc_server *admin, *agents;
};
/* All borrowed: until reload_end. What @cfg has is in force. -ENOMEM. */
int reload_new(const struct reload_opts *o, struct reload **ret);
/* Before the listeners go: what is recorded from here on is in force at the next start. NULL is
 * accepted. */
void reload_end(struct reload *r);
/* After the store is closed: no result comes any more. NULL is accepted. */
void reload_free(struct reload *r);
void reload_now(struct reload *r);
#endif
