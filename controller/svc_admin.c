/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Admin service: what changes something. One row per RPC; every handler decodes, authorises,
 * acts on the domain, maps the error and replies. Reading (Get, List, Status) is in svc_list.c.
 */
#include "controller/svc_admin_priv.h"
#include "controller/svc_show_priv.h"
#include "controller/test_switches.h"
#include "proto/ros2/v1/admin.rpc.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SESSION_CLAIMS_MAX 4096 /* rows of agents that say they have one session */

/* ---- who ---- */

static void record(struct svc *s, const struct ctl_caller *who, const char *method,
                   enum ros2_status status, const char *why)
{
	char key[96];

	snprintf(key, sizeof(key), "admin/%.80s", who->spiffe);
	ctl_audit_denied(s->ctl, key, who, "admin.denied", NULL, "method", method, status, why);
}

void svc_denied(struct svc *s, const struct ctl_caller *who, const char *method, const char *why)
{
	record(s, who, method, ROS2_DENIED, why);
}

static void take_caller(struct svc *s, const struct rpc_peer *peer, struct ctl_caller *ret)
{
	memset(ret, 0, sizeof(*ret));
	snprintf(ret->spiffe, sizeof(ret->spiffe), "%s", peer->spiffe_id);
	snprintf(ret->peer, sizeof(ret->peer), "%s", peer->address);
	if (peer->authenticated)
		ret->role = (enum ctl_role)config_role_of(s->cfg, peer->spiffe_id);
}

void svc_crowded(struct svc *s, const struct rpc_peer *peer, const struct rpc_method *m,
                 const char *words)
{
	struct ctl_caller who;

	take_caller(s, peer, &who);
	record(s, &who, m->name, ROS2_BUSY, words);
}

uint32_t svc_authorise(struct svc *s, const struct rpc_peer *peer, const struct rpc_method *m,
                       struct ctl_caller *ret)
{
	uint32_t kinds;

	take_caller(s, peer, ret);
	kinds = ctl_authz(ret->role, m->name);
	if (!kinds)
		svc_denied(s, ret, m->name,
		           ret->role ? "the role does not allow it"
		                     : "no role is bound to this identity");
	return kinds;
}

bool svc_may(struct svc *s, struct rpc_call *call, uint32_t kind_bit, struct ctl_caller *who)
{
	const struct rpc_method *m = rpc_call_method(call);
	uint32_t kinds = svc_authorise(s, rpc_call_peer(call), m, who);

	if (kinds & kind_bit)
		return true;
	if (kinds && !kind_bit) {
		rpc_call_fail(call, ROS2_INVALID, "the kind of object is missing or not known");
		return false;
	}
	if (kinds)
		svc_denied(s, who, m->name, "the role does not allow it on this kind");
	if (!who->role)
		rpc_call_fail(
			call, ROS2_DENIED,
			"%s has no role here: add a line for it to the controller's roles file",
			who->spiffe);
	else
		rpc_call_fail(call, ROS2_DENIED, "role %s may not do this (%s)",
		              ctl_role_to_str(who->role), m->name);
	return false;
}

/* ---- one call on its way ---- */

struct op {
	struct svc *s;
	struct rpc_call *call;
	struct ctl_caller who;
	uint32_t needs; /* the kind bit that the role must have */
	loop_fn go;     /* what waits for its turn */
	uint64_t started_ns;
	ProtobufCMessage *req; /* owned copy */
	struct ros2_uid uid;
	struct ros2_uid *agents; /* owned: where a session may be */
	size_t n_agents;
	Ros2__V1__RevokeOutcome **outcomes; /* delete: of the revocation before */
	size_t n_outcomes;
	uint64_t lost; /* show_lost, before the outcomes */
};

static void op_free(struct op *op)
{
	for (size_t i = 0; i < op->n_outcomes; i++)
		ros2__v1__revoke_outcome__free_unpacked(op->outcomes[i], NULL);
	free(op->outcomes);
	free(op->agents);
	if (op->req)
		protobuf_c_message_free_unpacked(op->req, NULL);
	free(op);
}

static void op_fail(struct op *op, const struct ros2_err *err)
{
	rpc_call_fail_err(op->call, err);
	op_free(op);
}

__attribute__((format(printf, 3, 4))) static void op_refuse(struct op *op, enum ros2_status st,
                                                            const char *fmt, ...)
{
	char words[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	rpc_call_fail(op->call, st, "%s", words);
	op_free(op);
}

/* At a cap. */
static void op_crowded(struct op *op, const char *words)
{
	svc_crowded(op->s, rpc_call_peer(op->call), rpc_call_method(op->call), words);
	op_refuse(op, ROS2_BUSY, "%s", words);
}

/* The same, inside the gate. */
#define op_refuse_in(op, ...)                                                                      \
	do {                                                                                       \
		ctl_gate_leave((op)->s->ctl);                                                      \
		op_refuse(op, __VA_ARGS__);                                                        \
	} while (0)

static struct op *op_new(struct svc *s, struct rpc_call *call, const ProtobufCMessage *req,
                         uint32_t needs, const struct ctl_caller *who)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op) {
		op->s = s;
		op->call = call;
		op->who = *who;
		op->needs = needs;
		op->started_ns = clock_boottime_ns();
		op->req = svc_copy_message(req);
	}
	if (op && op->req)
		return op;
	free(op);
	rpc_call_fail(call, ROS2_BUSY, "out of memory");
	return NULL;
}

/* A reload may have taken the caller's role or authority while it waited, and what a reload takes
 * away is gone at once (docs/decisions/0034). */
static void take_turn(void *arg)
{
	struct op *op = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (rpc_call_judge(op->call, &err) < 0) {
		ctl_gate_leave(op->s->ctl);
		op_fail(op, &err);
	} else if (!svc_may(op->s, op->call, op->needs, &op->who)) {
		ctl_gate_leave(op->s->ctl);
		op_free(op);
	} else {
		op->go(op);
	}
}

/* Takes rights away: waits for no other change. */
static void op_enter_urgent(struct op *op, loop_fn fn)
{
	op->go = fn;
	if (ctl_gate_enter_urgent(op->s->ctl, take_turn, op) < 0)
		op_refuse(op, ROS2_BUSY, "out of memory");
}

static void op_enter(struct op *op, loop_fn fn)
{
	char words[SVC_WORDS_MAX];
	int rc;

	op->go = fn;
	rc = ctl_gate_enter(op->s->ctl, take_turn, op);
	snprintf(words, sizeof(words),
	         "too many changes wait, of at most %d (fixed): try again in a moment",
	         CTL_GATE_MAX);
	if (rc == -EBUSY)
		op_crowded(op, words);
	else if (rc < 0)
		op_refuse(op, ROS2_BUSY, "out of memory: try again");
}

static uint32_t bit(const Ros2__V1__ObjectRef *ref)
{
	/* On the wire an enum is any 32-bit number, and its type here has no sign. */
	return ref && ref->kind >= 1 && (unsigned)ref->kind <= STORE_LEASE ? 1u << ref->kind : 0;
}

/* A reason people give goes into the log: there must be one, and it must fit. */
static const char *bad_reason(const char *reason)
{
	if (!reason[0] || strspn(reason, " \t\n") == strlen(reason))
		return "a reason is required: it goes into the audit log";
	return strlen(reason) > CTL_REASON_MAX ? "the reason is longer than 255 bytes" : NULL;
}

static struct ctl_object *named(struct op *op, const Ros2__V1__ObjectRef *ref)
{
	return ctl_find(op->s->ctl, (enum store_kind)ref->kind, ref->name);
}

static const char *kind_name(const Ros2__V1__ObjectRef *ref)
{
	return ctl_kind_to_str((enum store_kind)ref->kind);
}

/* ---- Apply ---- */

static void reply_apply(struct op *op, const struct ctl_apply_result *r)
{
	Ros2__V1__ApplyReply m = ROS2__V1__APPLY_REPLY__INIT;
	size_t nd = r->diags ? r->diags->n : 0;
	Ros2__V1__ApplyResult *res = calloc(r->n + 1, sizeof(*res));
	Ros2__V1__Diagnostic *dia = calloc(nd + 1, sizeof(*dia));

	m.results = calloc(r->n + 1, sizeof(*m.results));
	m.diagnostics = calloc(nd + 1, sizeof(*m.diagnostics));
	m.applied = r->applied;
	if (!res || !dia || !m.results || !m.diagnostics) {
		/* What is in force is not answered with an error: the rows are left out. */
		if (r->applied)
			rpc_call_reply(op->call, &m.base);
		else
			rpc_call_fail(op->call, ROS2_BUSY, "out of memory");
	} else {
		for (size_t i = 0; i < r->n; i++) {
			ros2__v1__apply_result__init(&res[i]);
			res[i].kind = (Ros2__V1__ObjectKind)r->v[i].kind;
			res[i].name = (char *)r->v[i].name;
			res[i].uid.data = (uint8_t *)r->v[i].uid.b;
			res[i].uid.len = ros2_uid_is_zero(&r->v[i].uid) ? 0 : ROS2_UID_LEN;
			res[i].version = r->v[i].version;
			res[i].action = (Ros2__V1__ApplyAction)r->v[i].action;
			m.results[m.n_results++] = &res[i];
		}
		for (size_t i = 0; i < nd; i++) {
			ros2__v1__diagnostic__init(&dia[i]);
			dia[i].file = r->diags->v[i].file;
			dia[i].line = (uint32_t)r->diags->v[i].line;
			dia[i].column = (uint32_t)r->diags->v[i].col;
			dia[i].error = r->diags->v[i].severity == POLICY_ERROR;
			dia[i].message = r->diags->v[i].msg;
			m.diagnostics[m.n_diagnostics++] = &dia[i];
		}
		rpc_call_reply(op->call, &m.base);
	}
	free(m.results);
	free(m.diagnostics);
	free(res);
	free(dia);
}

static void applied(void *arg, const struct ros2_err *err, const struct ctl_apply_result *r)
{
	struct op *op = arg;

	if (err->code) {
		/* What kinds there are in the files only the domain has seen. */
		if (err->status == ROS2_DENIED)
			svc_denied(op->s, &op->who, rpc_call_method(op->call)->name, err->msg);
		op_fail(op, err);
		return;
	}
	reply_apply(op, r);
	op_free(op);
}

static void go_apply(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__ApplyRequest *q = (const Ros2__V1__ApplyRequest *)op->req;
	struct policy_source *files = calloc(q->n_files + 1, sizeof(*files));
	struct ctl_expect *expect = calloc(q->n_expect + 1, sizeof(*expect));

	if (!files || !expect) {
		op_refuse_in(op, ROS2_BUSY, "out of memory");
	} else {
		for (size_t i = 0; i < q->n_files; i++)
			files[i] = (struct policy_source){.name = q->files[i]->name,
			                                  .text = (char *)q->files[i]->text.data,
			                                  .len = q->files[i]->text.len};
		for (size_t i = 0; i < q->n_expect; i++)
			expect[i] = (struct ctl_expect){(enum store_kind)q->expect[i]->kind,
			                                q->expect[i]->name, q->expect[i]->version};
		ctl_apply(op->s->ctl, &op->who, files, q->n_files, expect, q->n_expect, q->dry_run,
		          ctl_authz(op->who.role, rpc_call_method(op->call)->name), applied, op);
	}
	free(files);
	free(expect);
}

static void on_apply(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__ApplyRequest *q = ros2_v1_admin_apply_in(msg);
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, 1u << 0, &who))
		return;
	if (!q->n_files) {
		rpc_call_fail(call, ROS2_INVALID, "no files: nothing to apply");
		return;
	}
	if (q->n_files > POLICY_SOURCES_MAX) {
		rpc_call_fail(call, ROS2_TOO_LARGE, "%zu files, at most %d at once", q->n_files,
		              POLICY_SOURCES_MAX);
		return;
	}
	op = op_new(user, call, msg, 1u << 0, &who);
	if (op)
		op_enter(op, go_apply);
}

/* ---- Revoke ---- */

/* An agent that is left out would look as if it owed nothing. */
static void reply_outcomes(struct op *op, const ProtobufCMessage *m)
{
	if (show_lost() == op->lost)
		rpc_call_reply(op->call, m);
	else
		rpc_call_fail(op->call, ROS2_BUSY,
		              "it is in force; out of memory for what the agents said: ask again");
}

static void revoked(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	struct op *op = arg;
	Ros2__V1__RevokeReply m = ROS2__V1__REVOKE_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	m.revocation_uid.data = (uint8_t *)r->rev->uid.b;
	m.revocation_uid.len = ROS2_UID_LEN;
	op->lost = show_lost();
	op->n_outcomes = show_outcomes(op->s->ctl, r->rev, &op->outcomes);
	m.outcomes = op->outcomes;
	m.n_outcomes = op->n_outcomes;
	m.command_to_reply_ns = clock_boottime_ns() - op->started_ns;
	m.record_pending = r->rev->record_pending;
	reply_outcomes(op, &m.base);
	op_free(op);
}

static void go_revoke(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__RevokeRequest *q = (const Ros2__V1__RevokeRequest *)op->req;
	struct ctl_revoke v = {.kind = (enum store_kind)q->ref->kind,
	                       .reason = q->reason,
	                       .wait_ms = q->wait_ms,
	                       .session = op->uid,
	                       .session_agents = op->agents,
	                       .n_session_agents = op->n_agents};

	if (v.kind == STORE_TENANT || v.kind == STORE_AGENT)
		v.object = named(op, q->ref);
	else if (v.kind == STORE_GRANT)
		v.grant = ctl_grant_find(op->s->ctl, &op->uid);
	if (v.kind != STORE_SESSION && !v.object && !v.grant)
		op_refuse_in(op, ROS2_NOT_FOUND, "%s \"%s\" does not exist, or has ended",
		             kind_name(q->ref), q->ref->name);
	else
		ctl_revoke(op->s->ctl, &op->who, &v, revoked, op);
}

static void add_holder(struct op *op, const struct ros2_uid *agent)
{
	for (size_t i = 0; i < op->n_agents; i++)
		if (ros2_uid_eq(&op->agents[i], agent))
			return; /* it said so, and then nothing more */
	op->agents[op->n_agents++] = *agent;
}

/* Where the session is. Who says so may lie, and everybody is asked by its uid: an agent that did
 * not answer may have it, unless somebody says so and no grant lives there to have it under. */
static void session_found(void *arg, const struct report_result *r)
{
	struct op *op = arg;
	const Ros2__V1__RevokeRequest *q = (const Ros2__V1__RevokeRequest *)op->req;

	op->agents = calloc(r->n + r->n_unreachable + 1, sizeof(*op->agents));
	/* Who is not named might be the one that has it. */
	if (!op->agents || r->lost) {
		op_refuse(op, ROS2_BUSY, "out of memory: try again");
		return;
	}
	for (size_t i = 0; i < r->n; i++)
		if (ros2_uid_eq(&r->rows[i].key, &op->uid))
			add_holder(op, &r->rows[i].agent_uid);
	for (size_t i = 0, found = op->n_agents; i < r->n_unreachable; i++) {
		struct ctl_agent *a = ctl_agent(op->s->ctl, r->unreachable[i]);

		if (a && (!found || a->n_grants))
			add_holder(op, &a->obj->uid);
	}
	if (!op->n_agents)
		op_refuse(op, ROS2_NOT_FOUND, "no agent has a session %s", q->ref->name);
	else
		op_enter_urgent(op, go_revoke);
}

static void find_session(struct op *op)
{
	struct report_ask ask = {.session = op->uid, .limit = SESSION_CLAIMS_MAX};
	char words[SVC_WORDS_MAX];
	int rc = report_collect(op->s, &ask, session_found, op);

	snprintf(words, sizeof(words), SVC_TOO_MANY_REPORTS, REPORTS_MAX + REPORTS_REVOKE);
	if (rc == -EBUSY)
		op_crowded(op, words);
	else if (rc < 0)
		op_refuse(op, ROS2_BUSY, "out of memory: try again");
}

static void on_revoke(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__RevokeRequest *q = ros2_v1_admin_revoke_in(msg);
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, bit(q->ref), &who))
		return;
	if (bad_reason(q->reason)) {
		rpc_call_fail(call, ROS2_INVALID, "%s", bad_reason(q->reason));
		return;
	}
	op = op_new(user, call, msg, bit(q->ref), &who);
	if (!op)
		return;
	if (q->ref->kind == (int)STORE_TENANT || q->ref->kind == (int)STORE_AGENT)
		op_enter_urgent(op, go_revoke);
	else if (ros2_uid_from_str(q->ref->name, &op->uid) < 0)
		op_refuse(op, ROS2_INVALID, "%s is named by its uid, 32 hex digits, not \"%s\"",
		          kind_name(q->ref), q->ref->name);
	else if (q->ref->kind == (int)STORE_GRANT)
		op_enter_urgent(op, go_revoke);
	else
		find_session(op);
}

/* ---- Delete: revoke what hangs on it, then remove it ---- */

static void deleted(void *arg, const struct ros2_err *err)
{
	struct op *op = arg;
	Ros2__V1__DeleteReply m = ROS2__V1__DELETE_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	m.uid.data = op->uid.b;
	m.uid.len = ROS2_UID_LEN;
	m.outcomes = op->outcomes;
	m.n_outcomes = op->n_outcomes;
	rpc_call_reply(op->call, &m.base);
	op_free(op);
}

/* The gate was left for the receipts: what was taken away may have been given back since, and who
 * has it now was told of no end. */
static bool has_rights_again(const struct ctl_object *o)
{
	return (o->kind == STORE_TENANT && !o->revoked) || (o->agent && !o->agent->deleting);
}

static void go_delete_row(void *arg)
{
	struct op *op = arg;
	struct ctl_object *o = ctl_find_uid(op->s->ctl, &op->uid);
	struct ros2_err err = ROS2_ERR_INIT;

	if (!o) {
		op_refuse_in(op, ROS2_NOT_FOUND, "it was deleted by somebody else meanwhile");
	} else if (has_rights_again(o)) {
		op_refuse_in(op, ROS2_CONFLICT,
		             "%s \"%s\" was given its rights back while it was being deleted: it "
		             "stays as it is; delete it again",
		             ctl_kind_to_str(o->kind), o->name);
	} else if (ctl_delete_check(op->s->ctl, o, &err) < 0) {
		ctl_delete_undo(o);
		ctl_gate_leave(op->s->ctl);
		op_fail(op, &err);
	} else {
		ctl_delete(op->s->ctl, &op->who, o, deleted, op);
	}
}

static void delete_revoked(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	struct op *op = arg;
	struct ctl_object *o;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	op->lost = show_lost();
	op->n_outcomes = show_outcomes(op->s->ctl, r->rev, &op->outcomes);
	/* The second half of what was allowed and has begun: it is not asked again, and not refused
	 * because many wait. */
	if (!ctl_gate_enter_urgent(op->s->ctl, go_delete_row, op))
		return;
	o = ctl_find_uid(op->s->ctl, &op->uid);
	if (o)
		ctl_delete_undo(o);
	op_refuse(op, ROS2_BUSY,
	          "its rights are taken away, it is not removed: out of memory, delete it again");
}

static void go_delete(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__DeleteRequest *q = (const Ros2__V1__DeleteRequest *)op->req;
	struct ctl_object *o = named(op, q->ref);
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_revoke v;

	if (!o) {
		op_refuse_in(op, ROS2_NOT_FOUND, "%s \"%s\" does not exist", kind_name(q->ref),
		             q->ref->name);
		return;
	}
	if (!CTL_SWITCH(no_expect_uid) && q->expect_uid.len &&
	    (q->expect_uid.len != ROS2_UID_LEN ||
	     memcmp(q->expect_uid.data, o->uid.b, ROS2_UID_LEN) != 0)) {
		op_refuse_in(op, ROS2_CONFLICT, "%s \"%s\" is another object than you expected",
		             kind_name(q->ref), q->ref->name);
		return;
	}
	if (ctl_delete_check(op->s->ctl, o, &err) < 0) {
		ctl_gate_leave(op->s->ctl);
		op_fail(op, &err);
		return;
	}
	op->uid = o->uid;
	if (o->kind == STORE_ENGINE) {
		go_delete_row(op);
		return;
	}
	v = (struct ctl_revoke){
		.kind = o->kind, .object = o, .reason = "deleted", .remove = o->agent != NULL};
	ctl_revoke(op->s->ctl, &op->who, &v, delete_revoked, op);
}

static void on_delete(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__DeleteRequest *q = ros2_v1_admin_delete_in(msg);
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, bit(q->ref), &who))
		return;
	op = op_new(user, call, msg, bit(q->ref), &who);
	if (op)
		op_enter(op, go_delete);
}

/* ---- Reinstate ---- */

static void reinstated(void *arg, const struct ros2_err *err, uint64_t version)
{
	struct op *op = arg;
	Ros2__V1__ReinstateReply m = ROS2__V1__REINSTATE_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	m.version = version;
	rpc_call_reply(op->call, &m.base);
	op_free(op);
}

static void go_reinstate(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__ReinstateRequest *q = (const Ros2__V1__ReinstateRequest *)op->req;
	struct ctl_object *o = ctl_find(op->s->ctl, STORE_TENANT, q->tenant);

	if (!o)
		op_refuse_in(op, ROS2_NOT_FOUND, "tenant \"%s\" does not exist", q->tenant);
	else if (!o->revoked)
		op_refuse_in(op, ROS2_CONFLICT, "tenant \"%s\" is not revoked", q->tenant);
	else
		ctl_reinstate(op->s->ctl, &op->who, o, q->reason, reinstated, op);
}

static void on_reinstate(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__ReinstateRequest *q = ros2_v1_admin_reinstate_in(msg);
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, 1u << STORE_TENANT, &who))
		return;
	if (bad_reason(q->reason)) {
		rpc_call_fail(call, ROS2_INVALID, "%s", bad_reason(q->reason));
		return;
	}
	op = op_new(user, call, msg, 1u << STORE_TENANT, &who);
	if (op)
		op_enter(op, go_reinstate);
}

/* ---- CreateAgentToken ---- */

static void token_created(void *arg, const struct ros2_err *err, const char *token,
                          uint64_t expires_unix_s)
{
	struct op *op = arg;
	Ros2__V1__CreateAgentTokenReply m = ROS2__V1__CREATE_AGENT_TOKEN_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	m.token = (char *)token;
	m.expires_unix_s = expires_unix_s;
	rpc_call_reply(op->call, &m.base);
	op_free(op);
}

static void go_token(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__CreateAgentTokenRequest *q =
		(const Ros2__V1__CreateAgentTokenRequest *)op->req;
	struct ctl_agent *a = ctl_agent(op->s->ctl, q->agent);

	if (!a)
		op_refuse_in(
			op, ROS2_NOT_FOUND,
			"there is no Agent document \"%s\": apply it first, then create the token",
			q->agent);
	else if (a->isolated)
		op_refuse_in(op, ROS2_CONFLICT, "agent \"%s\" is isolated: lift that first",
		             q->agent);
	else
		ctl_token_create(op->s->ctl, &op->who, a, q->ttl_s, token_created, op);
}

static void on_token(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, 1u << STORE_AGENT, &who))
		return;
	op = op_new(user, call, msg, 1u << STORE_AGENT, &who);
	if (op)
		op_enter(op, go_token);
}

/* ---- IsolateAgent ---- */

static void isolated(void *arg, const struct ros2_err *err, const struct ctl_revoke_result *r)
{
	struct op *op = arg;
	Ros2__V1__IsolateAgentReply m = ROS2__V1__ISOLATE_AGENT_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	op->lost = show_lost();
	op->n_outcomes = show_outcomes(op->s->ctl, r->rev, &op->outcomes);
	m.outcome = op->n_outcomes ? op->outcomes[0] : NULL;
	reply_outcomes(op, &m.base);
	op_free(op);
}

static void isolation_lifted(void *arg, const struct ros2_err *err)
{
	struct op *op = arg;
	Ros2__V1__IsolateAgentReply m = ROS2__V1__ISOLATE_AGENT_REPLY__INIT;

	if (err->code) {
		op_fail(op, err);
		return;
	}
	rpc_call_reply(op->call, &m.base);
	op_free(op);
}

static void go_isolate(void *arg)
{
	struct op *op = arg;
	const Ros2__V1__IsolateAgentRequest *q = (const Ros2__V1__IsolateAgentRequest *)op->req;
	struct ctl_agent *a = ctl_agent(op->s->ctl, q->agent);
	struct ctl_revoke v = {.kind = STORE_AGENT, .reason = q->reason, .isolate = true};

	if (!a) {
		op_refuse_in(op, ROS2_NOT_FOUND, "agent \"%s\" does not exist", q->agent);
	} else if (q->lift && !a->isolated) {
		op_refuse_in(op, ROS2_CONFLICT, "agent \"%s\" is not isolated", q->agent);
	} else if (q->lift) {
		ctl_lift_isolation(op->s->ctl, &op->who, a, q->reason, isolation_lifted, op);
	} else {
		v.object = a->obj;
		ctl_revoke(op->s->ctl, &op->who, &v, isolated, op);
	}
}

static void on_isolate(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__IsolateAgentRequest *q = ros2_v1_admin_isolate_agent_in(msg);
	uint32_t needs = q->lift ? 1u << 0 : 1u << STORE_AGENT;
	struct ctl_caller who;
	struct op *op;

	if (!svc_may(user, call, needs, &who))
		return;
	if (bad_reason(q->reason)) {
		rpc_call_fail(call, ROS2_INVALID, "%s", bad_reason(q->reason));
		return;
	}
	op = op_new(user, call, msg, needs, &who);
	if (op && q->lift)
		op_enter(op, go_isolate);
	else if (op)
		op_enter_urgent(op, go_isolate);
}

int svc_add_admin(struct svc *s, struct rpc_server *server, struct ros2_err *err)
{
	const struct rpc_handler rows[] = {
		{.method = &ros2_v1_admin_apply, .unary = on_apply, .user = s},
		{.method = &ros2_v1_admin_get, .unary = svc_on_get, .user = s},
		{.method = &ros2_v1_admin_list, .unary = svc_on_list, .user = s},
		{.method = &ros2_v1_admin_delete, .unary = on_delete, .user = s},
		{.method = &ros2_v1_admin_revoke, .unary = on_revoke, .user = s},
		{.method = &ros2_v1_admin_reinstate, .unary = on_reinstate, .user = s},
		{.method = &ros2_v1_admin_create_agent_token, .unary = on_token, .user = s},
		{.method = &ros2_v1_admin_isolate_agent, .unary = on_isolate, .user = s},
		{.method = &ros2_v1_admin_status, .unary = svc_on_status, .user = s},
	};

	return rpc_server_add(server, &ros2_v1_admin_service, rows, ARRAY_SIZE(rows), err);
}
