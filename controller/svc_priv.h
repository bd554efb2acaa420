/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC services: decode, authorise, act on the domain, map errors, reply. Loop thread. Nothing
 * here decides; the domain (ctl.h) does.
 */
#ifndef ROS2_CONTROLLER_SVC_PRIV_H
#define ROS2_CONTROLLER_SVC_PRIV_H

#include "controller/ctl.h"
#include "controller/page.h"
#include "proto/ros2/v1/admin.pb-c.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "proto/rpc/rpc.h"

struct svc {
	struct ctl *ctl;           /* borrowed */
	const struct config *cfg;  /* borrowed */
	struct list links;         /* of struct link */
	struct report_op *reports; /* owned */
	uint64_t next_report;
};

/* A listener, for what it refuses by itself. */
struct svc_listener {
	struct svc *svc;
	const char *name, *flag; /* "admin", "agents", "enrol"; what sets its address */
};
/* svc_refused.c; @arg: a struct svc_listener */
void svc_on_refused(void *arg, const struct rpc_refusal *r);

/* Rows for rpc_server_add; @user is a struct svc. */
extern const struct rpc_stream_ops svc_link_ops, svc_audit_query_ops, svc_audit_raw_ops;
int svc_add_admin(struct svc *s, struct rpc_server *server, struct ros2_err *err);
int svc_add_audit(struct svc *s, struct rpc_server *server, struct ros2_err *err);
int svc_add_link(struct svc *s, struct rpc_server *server, struct ros2_err *err);
int svc_add_enrol(struct svc *s, struct rpc_server *server, struct ros2_err *err);
void svc_close_links(struct svc *s);
/* Streams end; agents connect again, and are welcomed with what is in force now. */
void svc_renew_links(struct svc *s);

/* Who is calling on the admin listener. @ret is filled either way; 0 = not allowed, and the refusal
 * is on its way to the audit log; otherwise the kinds (ctl_authz). */
uint32_t svc_authorise(struct svc *s, const struct rpc_peer *peer, const struct rpc_method *m,
                       struct ctl_caller *ret);
/* The same, on a kind; answers the call when it is refused. */
bool svc_may(struct svc *s, struct rpc_call *call, uint32_t kind_bit, struct ctl_caller *who);
void svc_denied(struct svc *s, const struct ctl_caller *who, const char *method, const char *why);
/* The same of a caller at a cap: BUSY, in words that name it. */
void svc_crowded(struct svc *s, const struct rpc_peer *peer, const struct rpc_method *m,
                 const char *words);

#define SVC_WORDS_MAX 160
/* Of STORE_READS_MAX: why store_read_audit and store_read_grants answer -EBUSY. */
#define SVC_TOO_MANY_READS                                                                         \
	"too many pages of the store wait to be read, of at most %d (fixed): try again in a "      \
	"moment"

/* NULL without memory; the caller frees it. */
ProtobufCMessage *svc_copy_message(const ProtobufCMessage *m);

/* ---- asking agents (reports.c) ---- */

struct report_row {
	char agent[ROS2_NAME_MAX + 1];
	struct ros2_uid agent_uid; /* who said so */
	struct ros2_uid key;       /* session uid, or page_lease_key */
	ProtobufCMessage
		*message; /* SessionInfo or LeaseInfo; borrowed until the callback returns */
};
struct report_result {
	size_t n, n_unreachable;
	const struct report_row *rows; /* in order of agent's name, then key; at most the limit */
	bool more;                     /* the agents that were asked have rows beyond */
	bool lost;                     /* there was no memory for some row or name */
	char **unreachable;            /* names */
};
typedef void (*report_fn)(void *arg, const struct report_result *r);
#ifndef REPORTS_MAX /* questions at once; more are answered BUSY, so: */
#define REPORTS_MAX 64
#endif
#define REPORTS_REVOKE 16 /* beyond these, for revocations, which must know who has a session */
#define SVC_TOO_MANY_REPORTS                                                                       \
	"too many questions to agents at once, of at most %d (fixed): try again in a moment"
struct report_ask {
	bool leases;                     /* instead of sessions */
	const struct ctl_object *tenant; /* NULL = all */
	const struct ctl_agent *agent;   /* NULL = all enrolled */
	struct ros2_uid session;         /* zero = all; else a revocation asks who has it */
	uint32_t limit;                  /* of the answer, and so of what each agent is asked for */
	/* A page: beyond row @after.key of agent @after.name (NULL: from the first). Only as many
	 * agents are asked as it takes to fill it, by what their beats say. */
	const struct page_pos *after;
	/* Out: where the next page begins when there is no `more`; "" when all were asked. */
	char asked_to[ROS2_NAME_MAX + 1];
};
/* @fn runs once, after this has returned: when all have answered, or after a second. -ENOMEM,
 * -EBUSY. */
int report_collect(struct svc *s, struct report_ask *ask, report_fn fn, void *arg);
void report_in(struct svc *s, struct ctl_agent *a, const Ros2__V1__Report *r);
void report_agent_gone(struct svc *s, struct ctl_agent *a);
void report_free_all(struct svc *s);
#endif
