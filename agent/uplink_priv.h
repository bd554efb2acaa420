/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream to the controller. Opened again with back-off and jitter whenever it ends; begins with
 * what the agent has, so only differences flow. Loop thread.
 *
 *   WAITING -> OPENING -> GREETED -> LIVE -> WAITING
 *   (timer)   (Hello)    (epoch to disk)     (any end)
 *
 * While GREETED what shrinks rights is obeyed; what widens them is not taken.
 */
#ifndef ROS2_AGENT_UPLINK_PRIV_H
#define ROS2_AGENT_UPLINK_PRIV_H

#include "agent/agent.h"
#include "proto/ros2/v1/agentlink.rpc.h"

enum uplink_state { UPLINK_WAITING, UPLINK_OPENING, UPLINK_GREETED, UPLINK_LIVE };
const char *uplink_state_to_str(enum uplink_state s);

int uplink_new(struct agent *a, struct uplink **ret, struct ros2_err *err);
void uplink_start(struct uplink *u);
void uplink_free(struct uplink *u);          /* NULL is fine */
bool uplink_is_live(const struct uplink *u); /* false for NULL */

/* -ENOTCONN before a Welcome. A queue that is full, or no memory, ends the stream: the resume
 * repeats what matters. */
int uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m);
/* Requests of grants, states or audit drafts wait to be told: at the pace at which the stream takes
 * them. NULL is fine. */
void uplink_pump(struct uplink *u);
/* A new connection with the certificate that is on disk now: the old one speaks for the old one
 * until that ends. */
void uplink_reopen(struct uplink *u);
/* agent.in_doubt is over: a stamp is asked for now. NULL is fine. */
void uplink_told_all(struct uplink *u);
/* Ends the stream, so that what could not be taken is sent again on the next. NULL is fine. */
void uplink_abort(struct uplink *u, enum ros2_status status, const char *words);
struct rpc_channel *uplink_channel(const struct uplink *u);
/* A stream ends and another begins; what was asked on the old one is not answered on the new one.
 */
uint64_t uplink_generation(const struct uplink *u);

/* ---- uplink_msgs.c: what the controller says, one function each ---- */
void uplink_on_delta(struct agent *a, const Ros2__V1__Delta *d);
void uplink_on_audit_ack(struct agent *a, const Ros2__V1__AuditAck *ack);
/* Of a Contact. */
void uplink_on_stamp(struct agent *a, const Ros2__V1__Stamp *s);
/* Opens a sealed object of a message: AGENT_SEALED_MAX, seal, epoch. */
int uplink_open_sealed(struct agent *a, const Ros2__V1__SealedObject *s, struct agent_object **ret,
                       struct ros2_err *err);
void uplink_send_hello(struct agent *a, struct rpc_stream *s);
void uplink_send_beat(struct agent *a, size_t *skip);
/* True while there is more to send than the stream takes now. */
bool uplink_send_states(struct agent *a);
bool uplink_send_audit(struct agent *a);

/* ---- revoke.c ---- */
int revoker_new(struct agent *a, struct revoker **ret);
void revoker_free(struct revoker *r);
void revoker_on_revoke(struct agent *a, const Ros2__V1__Revoke *m);
uint64_t revoker_total(const struct revoker *r);
/* Carried out, but not on disk. */
unsigned revoker_unrecorded(const struct revoker *r);
/* Once a second: revokes again what the data plane could not hold, and lets it go on when nothing
 * of that is left. */
void revoker_thaw(struct revoker *r);
/* Once a second: the log of revocations has room ahead of its end, or health says that it has none.
 */
void revoker_keep_room(struct revoker *r);
/* The controller has sent all that it owes on this stream. */
void revoker_synced(struct revoker *r);
/* The data plane is frozen: why, for people; else NULL. */
const char *revoker_frozen(const struct revoker *r);
/* The disk may not know of one, and what is there may give it back. */
bool revoker_is_ahead_of_disk(const struct revoker *r);
bool revoker_is_idle(const struct revoker *r);

/* ---- report.c ---- */
void report_on_request(struct agent *a, const Ros2__V1__ReportRequest *m);

/* ---- renew.c: the certificate at half-life ---- */
struct renewal;
int renewal_new(struct agent *a, struct renewal **ret);
/* The controller does not believe the certificate: another one is asked for, at the enrolment
 * listener, at most every 30 s. */
void renewal_refused(struct renewal *r);
/* The certificate stands, though by this machine's clock, which is not the controller's, it may
 * have ended. */
bool renewal_stands(const struct renewal *r);
void renewal_free(struct renewal *r); /* after its channel: that runs the last callback */
#endif
