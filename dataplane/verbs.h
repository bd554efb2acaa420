/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport as the reactor and the loop see it. Every function accepts a reactor without
 * a device (reactor.verbs NULL) and does nothing then.
 */
#ifndef ROS2_DATAPLANE_VERBS_H
#define ROS2_DATAPLANE_VERBS_H

#include "common/err.h"
#include "dataplane/source.h"
#include <stdbool.h>
#include <stdint.h>

struct dp;
struct dp_op;
struct dp_keys_of;
struct dp_tenant;
struct reactor;
struct session;
struct slot;
struct fabric_pd;
struct fabric_region;
struct ros2_uid;

/* Loop, before the reactor's thread runs. -ENODEV, -EADDRNOTAVAIL, -EOPNOTSUPP, -ENOMEM. */
int verbs_new(struct reactor *r, const char *host, struct ros2_err *err);
/* The reactor's thread, last: no session is left. */
void verbs_stop(struct reactor *r);
/* Loop, after the thread has ended. */
void verbs_free(struct reactor *r);
uint16_t verbs_port(const struct reactor *r);
/* Reactor. @events as epoll gave them. */
void verbs_event(struct reactor *r, const struct source *src, uint32_t events);
/* Takes ends of work requests; returns how many. */
uint32_t verbs_poll(struct reactor *r);
void verbs_tick(struct reactor *r);
/* Some queue is not empty yet: a turn must follow at once. */
bool verbs_must_poll(const struct reactor *r);
/* Something is kept for a time, or tried again: ticks are needed. */
bool verbs_keeps(const struct reactor *r);
/* A tenant's rights end (NULL: everybody's): nothing of its domain is kept for connections to come.
 */
void verbs_forget_pd(struct reactor *r, const struct fabric_pd *pd);
/* A connection still has a queue pair at the device. */
bool verbs_busy(const struct reactor *r);
/* The session gets slots of its tenant's memory here, for engines that lend it; it has them until
 * verbs_unlend. -EOPNOTSUPP: no device; BUSY by name: no room for them now; -ENOMEM, -EDQUOT, -EIO.
 */
int verbs_lend(struct session *s, struct ros2_err *err);
void verbs_unlend(struct session *s); /* the last thing of a session */
/* The region of a slot of the tenant's memory. */
struct fabric_region *verbs_lent_region(const struct session *s, const struct slot *slot);
/* The domain whose slots engines lend for this session; NULL = none does. */
const struct fabric_pd *verbs_lends_of(const struct session *s);
/* What the device said about a set or a queue pair; op->a: tenant index, op->b: queue pair, 0 = the
 * set; op->handle: the device is gone. */
void verbs_run_failed(struct reactor *r, struct dp_op *op);

/* verbs_device.c, loop: the device, and each tenant's protection domain on it. */
int verbs_device_open(struct dp *dp, struct ros2_err *err);
void verbs_device_close(struct dp *dp);
/* What the device reported of a queue pair (static words), among the latest; NULL = nothing. */
const char *verbs_device_said(struct dp *dp, uint64_t qp_id);
/* Made with the tenant's first session over verbs, or namespace of an engine that lends. */
int verbs_tenant_pd(struct dp *dp, struct dp_tenant *t, struct ros2_err *err);
/* The tenant ends: its domain goes when nothing uses it any more, unless it comes back before.
 * -ENOMEM: nobody could remember it, the tenant has to stay. */
int verbs_tenant_pd_free(struct dp *dp, struct dp_tenant *t);
/* Of a tenant that has gone, as long as something uses it; NULL: nothing does. To compare with. */
const struct fabric_pd *verbs_kept_pd(const struct dp *dp, const struct ros2_uid *tenant);
/* All of those, into @v; how many. NULL: only counted. */
uint32_t verbs_kept_pds(const struct dp *dp, struct dp_keys_of *v);
/* Engines are gone: what was kept for them goes. */
void verbs_kept_free(struct dp *dp);
#endif
