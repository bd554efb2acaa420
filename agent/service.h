/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tenant service. Every call is one row of a table and takes the same five steps: decode (the
 * rpc layer), authorise (service.c: caller's SPIFFE ID -> tenant; the session is that principal's),
 * act, map errors, reply. Unknown and foreign sessions get the same words. Loop thread.
 */
#ifndef ROS2_AGENT_SERVICE_H
#define ROS2_AGENT_SERVICE_H

#include "agent/agent.h"
#include "agent/sessions.h"
#include "dataplane/dp.h"
#include "proto/ros2/v1/tenant.rpc.h"

#define SERVICE_MESSAGE_MAX      (256u * 1024) /* bytes, either way */
#define SERVICE_CALLS_PER_TENANT 256           /* in flight */
#define SERVICE_KEEPS_PER_S      5000          /* per tenant: of what keeps or gives up */
/* Of what a tenant has had done, records a second, and how much of it at once when there were none
 * before: agent_opts.tenant_records_per_s. */
#define SERVICE_RECORDS_PER_S    200
#define SERVICE_RECORDS_SAVED_NS (3600 * NS_PER_S)

int service_new(struct agent *a, struct service **ret, struct ros2_err *err);
int service_start(struct service *s, struct ros2_err *err);
void service_stop(struct service *s, loop_fn fn, void *arg);
/* No more calls; what is unanswered may still be answered (nothing is sent). */
void service_close(struct service *s);
void service_free(struct service *s);
/* Of grpc.health.v1. NULL @s is fine. */
void service_set_health(struct service *s, const char *name, bool serving);
uint16_t service_port(const struct service *s);
/* The tenants' bundle is another: rpc_server_set_trust. */
struct pki_trust;
void service_set_trust(struct service *s, struct pki_trust *trust);
uint64_t service_trust_generation(const struct service *s);
void service_stats(const struct service *s, struct rpc_server_stats *ret);

/* ---- for the files of the service ---- */

/* A control call in flight. Freed by op_reply / op_fail; what a handler adds lies in it until then.
 */
struct service_op {
	struct agent *a;
	struct rpc_call *call;
	const struct service_row *row;
	struct service_share *share;
	struct service_tenant *account;  /* NULL: a stranger's call, which is refused */
	struct ros2_uid tenant, session; /* session zero: OpenSession */
	char tenant_name[ROS2_NAME_MAX + 1], principal[ROS2_SPIFFE_MAX + 1], peer[64];
	uint64_t policy_version;
	uint32_t verbs_per_s;
	/* of the call */
	char *path, *to; /* owned */
	bool changes;    /* made twice what is asked of the data plane would not do the same */
	bool in_doubt;   /* it was carried out, or may have been */
	bool foreign;    /* names a mount that is none of its session's: refused, not missing */
	char ns[ROS2_NAME_MAX + 1];
	uint32_t mount, flags, access, key;
	uint64_t handle, address, length, size;
	struct dp_result res;   /* kept while the record is on its way to disk */
	struct dp_gone gone;    /* CloseSession, which waits for it */
	struct loop_timer late; /* no longer than this */
};

typedef void (*service_fn)(struct service_op *op, const ProtobufCMessage *req);
struct service_row {
	const struct rpc_method *method;
	service_fn fn;
	bool opens;         /* OpenSession: has no session yet */
	bool closes;        /* may be called on a session that has ended */
	bool keeps;         /* keeps or gives up what the tenant has: counted apart */
	const char *denied; /* audit action of a refusal; NULL: not recorded */
	const char *object_kind;
};

/* NULL: no method of the Tenant service. */
const struct service_row *service_row_of(const struct rpc_method *method);
/* service_refused.c; @arg: the agent */
void service_on_refused(void *arg, const struct rpc_refusal *r);

void op_reply(struct service_op *op, const ProtobufCMessage *reply);
/* Answers and, for what is a refusal, records it. */
void op_fail(struct service_op *op, enum ros2_status st, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void op_fail_err(struct service_op *op, const struct ros2_err *err);
/* Its session if it is still LIVE (OPENING for OpenSession); otherwise the call is answered, and
 * NULL: with why it ended, or with OUTCOME_UNKNOWN if the call changed something: CLOSED is said of
 * what was not begun, and libros2 makes it again. */
struct agent_session *op_session(struct service_op *op);
/* The spool has room for another record of its tenant, and the tenant has not had too many: asked
 * before the data plane does what will be recorded. Otherwise the call is answered, and -1. */
int op_check_room(struct service_op *op);
/* The same, and nothing is answered. -errno, NOT_DURABLE, BUSY or RATE. */
int op_room(const struct service_op *op, struct ros2_err *err);
/* The op's session lives and the data plane said yes; otherwise the call is answered, and NULL. */
struct agent_session *op_result(struct service_op *op, const struct dp_result *res);
/* Before op_result. It was carried out, or may have been, and is recorded whatever became of its
 * session. */
static inline bool op_may_have_changed(const struct service_op *op, const struct dp_result *res)
{
	return op->changes && (res->status == ROS2_OK || res->status == ROS2_OUTCOME_UNKNOWN);
}
/* What the data plane says of it: nothing for OK. */
void op_event_outcome(struct agent_audit_event *ev, const struct dp_result *res);
/* Frees an op whose call was answered by somebody else. */
void op_free(struct service_op *op);
/* An empty reply. */
void op_done(struct service_op *op);
/* An event with who and where filled in. */
struct agent_audit_event op_event(const struct service_op *op, const char *action,
                                  char uid_buf[ROS2_UID_STR_LEN]);
void op_ignore(void *arg, const struct dp_result *res);

/* service_session.c */
void service_open_session(struct service_op *op, const ProtobufCMessage *req);
void service_close_session(struct service_op *op, const ProtobufCMessage *req);
void service_mount(struct service_op *op, const ProtobufCMessage *req);
/* service_files.c */
void service_open(struct service_op *op, const ProtobufCMessage *req);
void service_close_handle(struct service_op *op, const ProtobufCMessage *req);
void service_stat_handle(struct service_op *op, const ProtobufCMessage *req);
void service_truncate(struct service_op *op, const ProtobufCMessage *req);
void service_flush(struct service_op *op, const ProtobufCMessage *req);
/* service_paths.c */
/* Path is normal, the mount is the session's and unchanged, the policy allows @wanted: else the
 * call is answered, and -1. */
int op_check_path(struct service_op *op, uint32_t mount, const char *path, uint32_t wanted,
                  bool root_ok);
void service_stat(struct service_op *op, const ProtobufCMessage *req);
void service_readdir(struct service_op *op, const ProtobufCMessage *req);
void service_mkdir(struct service_op *op, const ProtobufCMessage *req);
void service_unlink(struct service_op *op, const ProtobufCMessage *req);
void service_rmdir(struct service_op *op, const ProtobufCMessage *req);
void service_rename(struct service_op *op, const ProtobufCMessage *req);
/* The end of a call that asked for attributes. */
void service_on_stat(void *arg, const struct dp_result *res);
void service_fill_stat(const struct dp_attr *attr, Ros2__V1__StatReply *ret);
/* service_regions.c */
void service_register(struct service_op *op, const ProtobufCMessage *req);
void service_renew(struct service_op *op, const ProtobufCMessage *req);
void service_deregister(struct service_op *op, const ProtobufCMessage *req);
#endif
