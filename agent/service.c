/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of the Tenant service and what every call goes through. A call that is refused because
 * of who calls is recorded (bounded) and never tells whether the session exists.
 */
#include "agent/service.h"
#include "agent/health.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TENANTS_MAX 65536

/* What a tenant has in flight, and how fast it may call. */
struct service_share {
	uint32_t in_flight;
	uint64_t tokens_ns; /* boottime at which the bucket would be empty */
};

/* Calls that keep or give up what a tenant has are counted apart: its own flood of all others
 * leaves it its leases, and a way to close. */
struct service_tenant {
	struct ros2_uid uid;
	struct service_share verbs, keeps;
	uint64_t records_ns; /* boottime at which none of its records would count any more */
	UT_hash_handle hh;
};

struct service {
	struct agent *a;
	struct rpc_server *server;       /* owned */
	struct service_tenant *accounts; /* owned */
};

static const struct service_row rows[] = {
	{&ros2_v1_tenant_open_session, service_open_session, .opens = true,
         .denied = "session.deny", .object_kind = "tenant"},
	{&ros2_v1_tenant_close_session, service_close_session, .closes = true, .keeps = true,
         .denied = "session.deny", .object_kind = "session"},
	{&ros2_v1_tenant_mount, service_mount, .denied = "session.deny",
         .object_kind = "namespace"},
	{&ros2_v1_tenant_open, service_open, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_close, service_close_handle, .keeps = true, .denied = "file.deny",
         .object_kind = "file"},
	{&ros2_v1_tenant_stat_handle, service_stat_handle, .denied = "file.deny",
         .object_kind = "file"},
	{&ros2_v1_tenant_stat, service_stat, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_readdir, service_readdir, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_mkdir, service_mkdir, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_unlink, service_unlink, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_rmdir, service_rmdir, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_rename, service_rename, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_truncate, service_truncate, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_flush, service_flush, .denied = "file.deny", .object_kind = "file"},
	{&ros2_v1_tenant_register_region, service_register, .denied = "region.deny",
         .object_kind = "region"},
	{&ros2_v1_tenant_renew_region, service_renew, .keeps = true, .denied = "region.deny",
         .object_kind = "region"},
	{&ros2_v1_tenant_deregister_region, service_deregister, .keeps = true,
         .denied = "region.deny", .object_kind = "region"},
};

/* Every request but OpenSession's begins with the session's uid. */
#define SAME_OFFSET(type)                                                                          \
	_Static_assert(offsetof(type, session_uid) == offsetof(Ros2__V1__SessionRef, session_uid), \
	               #type)
SAME_OFFSET(Ros2__V1__MountRequest);
SAME_OFFSET(Ros2__V1__OpenRequest);
SAME_OFFSET(Ros2__V1__HandleRef);
SAME_OFFSET(Ros2__V1__PathRequest);
SAME_OFFSET(Ros2__V1__ReaddirRequest);
SAME_OFFSET(Ros2__V1__RenameRequest);
SAME_OFFSET(Ros2__V1__TruncateRequest);
SAME_OFFSET(Ros2__V1__RegisterRegionRequest);
SAME_OFFSET(Ros2__V1__RegionRef);

const struct service_row *service_row_of(const struct rpc_method *method)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].method == method)
			return &rows[i];
	return NULL;
}

/* ---- the op ---- */

void op_free(struct service_op *op)
{
	if (op->share)
		op->share->in_flight--;
	free(op->path);
	free(op->to);
	free(op);
}

void op_reply(struct service_op *op, const ProtobufCMessage *reply)
{
	(void)rpc_call_reply(op->call, reply);
	op_free(op);
}

void op_done(struct service_op *op)
{
	Ros2__V1__Empty empty = ROS2__V1__EMPTY__INIT;

	op_reply(op, &empty.base);
}

void op_ignore(void *arg, const struct dp_result *res)
{
}

static struct agent_audit_event event_of(const struct service_op *op, const char *action,
                                         char uid_buf[ROS2_UID_STR_LEN])
{
	struct agent_audit_event ev = {
		.action = action,
		.actor = op->principal,
		.peer = op->peer,
		.object_kind = op->row->object_kind,
		.result = AGENT_AUDIT_OK,
		.tenant = op->tenant_name,
		.tenant_uid = op->tenant,
		.policy_version = op->policy_version,
	};

	ros2_uid_to_str(&op->session, uid_buf);
	ev.details[0] = (struct agent_audit_detail){"session", uid_buf};
	ev.n_details = 1;
	return ev;
}

static uint32_t records_per_s(const struct agent *a)
{
	return a->o.tenant_records_per_s ? a->o.tenant_records_per_s : SERVICE_RECORDS_PER_S;
}

struct agent_audit_event op_event(const struct service_op *op, const char *action,
                                  char uid_buf[ROS2_UID_STR_LEN])
{
	struct service_tenant *t = op->account;

	t->records_ns = MAX(t->records_ns, clock_boottime_ns()) + NS_PER_S / records_per_s(op->a);
	return event_of(op, action, uid_buf);
}

void op_event_outcome(struct agent_audit_event *ev, const struct dp_result *res)
{
	if (res->status == ROS2_OK)
		return;
	ev->result = AGENT_AUDIT_FAILED;
	ev->status = res->status;
	ev->reason = res->words;
}

/* Refusals of a right, what nobody sends who means no harm, and what is too much at once, which is
 * mostly what BUSY means; not a missing file. Of what is refused because there is no room for its
 * tenant's records there can be none. */
static bool is_refusal(const struct service_op *op, enum ros2_status st)
{
	switch (st) {
	case ROS2_INVALID:
	case ROS2_TOO_LARGE:
		return !AGENT_SWITCH(no_refusal_records);
	case ROS2_NOT_FOUND:
		return op->foreign && !AGENT_SWITCH(no_refusal_records);
	case ROS2_BUSY:
		return spool_room(op->a->spool, &op->tenant, NULL) == 0 &&
		       !AGENT_SWITCH(no_refusal_records);
	case ROS2_UNAUTHENTICATED:
	case ROS2_DENIED:
	case ROS2_BAD_SESSION:
	case ROS2_BAD_HANDLE:
	case ROS2_BAD_KEY:
	case ROS2_OUT_OF_RANGE:
	case ROS2_ACCESS:
	case ROS2_NO_GRANT:
	case ROS2_GRANT_EXPIRED:
	case ROS2_REVOKED:
	case ROS2_CONTACT_LOST:
	case ROS2_LIMIT:
	case ROS2_RATE:
	case ROS2_VIOLATIONS:
	case ROS2_BAD_PATH:
	case ROS2_NOT_REGULAR: /* a link, a device: laid there to lead elsewhere */
		return true;
	default:
		return false;
	}
}

static void record_refusal(const struct service_op *op, const struct ros2_err *err)
{
	char uid[ROS2_UID_STR_LEN];
	struct agent_audit_event ev = event_of(op, op->row->denied, uid);

	ev.result = AGENT_AUDIT_DENIED;
	ev.status = err->status;
	ev.reason = err->msg;
	ev.object_name = op->path ? op->path : op->ns[0] ? op->ns : op->tenant_name;
	if (!*ev.object_name) { /* a stranger: all it named is this agent */
		ev.object_kind = "agent";
		ev.object_name = op->a->o.identity.name;
	}
	ev.details[ev.n_details++] = (struct agent_audit_detail){"method", op->row->method->name};
	agent_audit_denied(op->a->audit, &ev);
}

void op_fail_err(struct service_op *op, const struct ros2_err *err)
{
	if (op->row->denied && is_refusal(op, err->status))
		record_refusal(op, err);
	rpc_call_fail(op->call, err->status ? err->status : ROS2_INTERNAL, "%s", err->msg);
	op_free(op);
}

void op_fail(struct service_op *op, enum ros2_status st, const char *fmt, ...)
{
	struct ros2_err err = {.code = ros2_status_to_errno(st), .status = st};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	va_end(ap);
	op_fail_err(op, &err);
}

struct agent_session *op_session(struct service_op *op)
{
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);
	enum agent_session_state want = op->row->opens ? SESSION_OPENING : SESSION_LIVE;

	if (s && s->state == want)
		return s;
	if (op->in_doubt)
		op_fail(op, ROS2_OUTCOME_UNKNOWN,
		        "the session ended before this was answered: it may have happened");
	else if (s && s->state >= SESSION_CLOSING)
		op_fail(op, s->end ? s->end : ROS2_CLOSED, "the session has ended: %s",
		        agent_session_end_words(s));
	else if (op->row->opens)
		op_fail(op, ROS2_CLOSED, "the session was ended while it was being opened");
	else
		op_fail(op, ROS2_BAD_SESSION, "%s", ros2_status_text(ROS2_BAD_SESSION));
	return NULL;
}

struct agent_session *op_result(struct service_op *op, const struct dp_result *res)
{
	struct agent_session *s;

	op->in_doubt = op_may_have_changed(op, res);
	s = op_session(op);
	if (!s || res->status == ROS2_OK)
		return s;
	op_fail(op, res->status, "%s", res->words[0] ? res->words : ros2_status_text(res->status));
	return NULL;
}

/* Each record is one of what was done, stays in the log for good and has a disk to fill that is
 * everybody's: that a call is allowed does not make it free. */
static int check_records(const struct service_op *op, struct ros2_err *err)
{
	uint64_t most_ns = clock_boottime_ns() + SERVICE_RECORDS_SAVED_NS;
	uint64_t its_ns = op->account->records_ns;

	if (its_ns <= most_ns || AGENT_SWITCH(no_record_limit))
		return 0;
	return ros2_err_named(err, ROS2_RATE,
	                      "tenant %s: --tenant-records is %u a second, and it has had an "
	                      "hour's worth recorded at once: try again in %llu ms",
	                      op->tenant_name, records_per_s(op->a),
	                      (unsigned long long)((its_ns - most_ns) / NS_PER_MS + 1));
}

int op_room(const struct service_op *op, struct ros2_err *err)
{
	int r = AGENT_SWITCH(no_spool_room) ? 0 : spool_room(op->a->spool, &op->tenant, err);

	return r ? r : check_records(op, err);
}

int op_check_room(struct service_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (op_room(op, &err) == 0)
		return 0;
	op_fail_err(op, &err);
	return -1;
}

/* ---- authorise ---- */

static struct service_tenant *account_of(struct service *sv, const struct ros2_uid *tenant)
{
	struct service_tenant *t;

	HASH_FIND(hh, sv->accounts, tenant, sizeof(*tenant), t);
	if (t)
		return t;
	if (HASH_COUNT(sv->accounts) >= TENANTS_MAX)
		return NULL;
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->uid = *tenant;
	HASH_ADD(hh, sv->accounts, uid, sizeof(t->uid), t);
	if (!HASH_TOOK(hh, t)) {
		free(t);
		return NULL;
	}
	return t;
}

/* A bucket of one second: full when its time is a second in the past. 0, or how long until the next
 * token. */
static uint64_t take_token(struct service_share *share, uint32_t per_s, uint64_t now_ns)
{
	uint64_t floor_ns = now_ns > NS_PER_S ? now_ns - NS_PER_S : 0, then;

	then = MAX(share->tokens_ns, floor_ns) + NS_PER_S / per_s;
	if (then > now_ns)
		return then - now_ns;
	share->tokens_ns = then;
	return 0;
}

static int check_rate(struct service_op *op, struct service_share *share, struct ros2_err *err)
{
	uint32_t per_s = op->row->keeps ? SERVICE_KEEPS_PER_S : op->verbs_per_s;
	uint64_t wait_ns = take_token(share, per_s, clock_boottime_ns());

	if (!wait_ns || AGENT_SWITCH(no_verb_limit))
		return 0;
	if (op->row->keeps)
		return ros2_err_named(err, ROS2_RATE,
		                      "tenant %s renews and closes more than %u times a second "
		                      "(fixed): try again in %llu ms",
		                      op->tenant_name, per_s,
		                      (unsigned long long)(wait_ns / NS_PER_MS + 1));
	return ros2_err_named(err, ROS2_RATE,
	                      "tenant %s: memory.controlVerbsPerSecond is %u: try again in %llu ms",
	                      op->tenant_name, per_s,
	                      (unsigned long long)(wait_ns / NS_PER_MS + 1));
}

static int check_account(struct service_op *op, struct ros2_err *err)
{
	struct service_tenant *t = account_of(op->a->service, &op->tenant);
	struct service_share *share;
	int r;

	if (!t)
		return ros2_err_named(err, ROS2_BUSY,
		                      "calls of %u tenants are counted here, the most there may be "
		                      "(fixed): try again later",
		                      TENANTS_MAX);
	op->account = t;
	share = op->row->keeps ? &t->keeps : &t->verbs;
	r = check_rate(op, share, err);
	if (r < 0)
		return r;
	if (share->in_flight >= SERVICE_CALLS_PER_TENANT)
		return ros2_err_named(err, ROS2_BUSY,
		                      "tenant %s has %u calls in flight%s, the most there may be "
		                      "(fixed): try again when one has ended",
		                      op->tenant_name, share->in_flight,
		                      op->row->keeps ? " that keep or give up what it has" : "");
	op->share = share;
	share->in_flight++;
	return 0;
}

static int check_tenant(struct service_op *op, struct ros2_err *err)
{
	struct state_tenant t;
	int r = state_tenant_of(op->a->state, op->principal, &t);

	if (r < 0)
		return ros2_err_named(err, ROS2_DENIED,
		                      "no tenant placed at this agent has the "
		                      "principal %s",
		                      op->principal);
	op->tenant = t.uid;
	op->policy_version = t.version;
	op->verbs_per_s = t.image.limits.control_verbs_per_s;
	strcpy(op->tenant_name, t.name);
	if (op->row->closes)
		return 0;
	if (t.revoked)
		return ros2_err_named(err, ROS2_REVOKED, "tenant %s is revoked", t.name);
	if (!contact_live(&op->a->contact, t.image.limits.contact_limit_ms, clock_boottime_ns()))
		return ros2_err_named(err, ROS2_CONTACT_LOST, "%s",
		                      ros2_status_text(ROS2_CONTACT_LOST));
	return 0;
}

/* A tenant that was made again has the same name and principals: its uid tells it from the one
 * before. How a session ended its principal hears all the same. */
static bool is_callers(const struct service_op *op, const struct agent_session *s)
{
	if (strcmp(s->principal, op->principal) != 0)
		return AGENT_SWITCH(no_session_owner);
	return s->state != SESSION_LIVE || ros2_uid_is_zero(&op->tenant) ||
	       ros2_uid_eq(&s->tenant, &op->tenant) || AGENT_SWITCH(no_session_tenant);
}

/* The session is the caller's, or it does not exist. */
static int check_session(struct service_op *op, const ProtobufCMessage *req, struct ros2_err *err)
{
	const ProtobufCBinaryData *uid = &((const Ros2__V1__SessionRef *)req)->session_uid;
	const struct agent_session *s = NULL;

	if (!ros2_uid_from_bytes(uid->data, uid->len, &op->session))
		s = agent_session_find(op->a->sessions, &op->session);
	if (!s || !s->told || !is_callers(op, s))
		return ros2_err_named(err, ROS2_BAD_SESSION, "%s",
		                      ros2_status_text(ROS2_BAD_SESSION));
	if (s->state == SESSION_LIVE || op->row->closes)
		return 0;
	return ros2_err_named(err, s->end ? s->end : ROS2_CLOSED, "the session has ended: %s",
	                      agent_session_end_words(s));
}

static int authorise(struct service_op *op, const ProtobufCMessage *req, struct ros2_err *err)
{
	struct ros2_err tenant = ROS2_ERR_INIT;
	int r = check_tenant(op, &tenant);

	/* Before anything else: what is refused for another reason costs the agent as much. */
	if (!ros2_uid_is_zero(&op->tenant) && check_account(op, err) < 0)
		return err->code;
	/* How its own session ended says more than that the tenant is gone: REVOKED, for one. */
	if (!op->row->opens) {
		int rs = check_session(op, req, err);

		if (rs < 0 && (err->status != ROS2_BAD_SESSION || r == 0))
			return rs;
	}
	if (r < 0)
		*err = tenant;
	return r;
}

static void on_call(struct rpc_call *call, const ProtobufCMessage *req, void *user)
{
	struct agent *a = user;
	const struct rpc_peer *peer = rpc_call_peer(call);
	struct service_op *op = calloc(1, sizeof(*op));
	struct ros2_err err = ROS2_ERR_INIT;

	if (!op) {
		rpc_call_fail(call, ROS2_BUSY, "no memory");
		return;
	}
	op->a = a;
	op->call = call;
	op->row = service_row_of(rpc_call_method(call));
	snprintf(op->principal, sizeof(op->principal), "%s", peer->spiffe_id);
	snprintf(op->peer, sizeof(op->peer), "%s", peer->address);
	if (a->stopping)
		op_fail(op, ROS2_UNAVAILABLE, "the agent is stopping");
	else if (authorise(op, req, &err) < 0)
		op_fail_err(op, &err);
	else
		op->row->fn(op, req);
}

/* ---- life ---- */

/* Until a request has come nobody can tell what a call is for, so the layer bounds them by tenant,
 * not by certificate; those whom no tenant here has are one group. Not the loop's thread. */
static void group_of(void *arg, const struct rpc_peer *peer, char group[RPC_GROUP_MAX + 1])
{
	struct ros2_uid tenant = {{0}};
	struct agent *a = arg;

	(void)state_principal_owner(a->state, peer->spiffe_id, &tenant);
	ros2_uid_to_str(&tenant, group);
}

int service_new(struct agent *a, struct service **ret, struct ros2_err *err)
{
	char cert[PATH_MAX], key[PATH_MAX], ca[PATH_MAX];
	struct rpc_server_opts so = {
		.name = "tenants",
		.loop = a->o.loop,
		.listen = a->o.listen,
		.cert_path = cert,
		.key_path = key,
		.client_ca_path = ca,
		.limits = {.max_message_bytes = SERVICE_MESSAGE_MAX,
	                   .max_connections = a->o.tenant_connections,
	                   .max_connections_per_source = a->o.tenant_connections_per_address,
	                   .connections_name = "--tenant-connections"},
		.on_refused = service_on_refused,
		.refused_arg = a,
		.group_of = group_of,
		.group_arg = a};
	struct rpc_handler handlers[ARRAY_SIZE(rows)];
	struct service *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for the tenant service");
	s->a = a;
	agent_path(a, "tls.crt", cert);
	agent_path(a, "tls.key", key);
	agent_path(a, "tenant-bundle.pem", ca);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		handlers[i] = (struct rpc_handler){.method = rows[i].method,
		                                   .unary = on_call,
		                                   .user = a,
		                                   .apart = rows[i].keeps};
	r = rpc_server_new(&so, &s->server, err);
	if (!r)
		r = rpc_server_add(s->server, &ros2_v1_tenant_service, handlers, ARRAY_SIZE(rows),
		                   err);
	if (!r)
		r = rpc_server_add_health(s->server, AGENT_HEALTH_DISK, err);
	if (r < 0) {
		service_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int service_start(struct service *s, struct ros2_err *err)
{
	return rpc_server_start(s->server, err);
}

void service_stop(struct service *s, loop_fn fn, void *arg)
{
	rpc_server_stop(s->server, 1000, fn, arg);
}

void service_set_health(struct service *s, const char *name, bool serving)
{
	if (s && s->server)
		(void)rpc_server_set_health(s->server, name, serving);
}

void service_stats(const struct service *s, struct rpc_server_stats *ret)
{
	*ret = (struct rpc_server_stats){0};
	if (s && s->server)
		rpc_server_stats(s->server, ret);
}

uint16_t service_port(const struct service *s)
{
	return s && s->server ? rpc_server_port(s->server) : 0;
}

void service_set_trust(struct service *s, struct pki_trust *trust)
{
	(void)rpc_server_set_trust(s->server, trust);
}

uint64_t service_trust_generation(const struct service *s)
{
	return rpc_server_trust_generation(s->server);
}

void service_close(struct service *s)
{
	if (s)
		rpc_server_free(TAKE_PTR(s->server));
}

void service_free(struct service *s)
{
	struct service_tenant *t, *tmp;

	if (!s)
		return;
	service_close(s);
	HASH_ITER (hh, s->accounts, t, tmp) {
		HASH_DEL(s->accounts, t);
		free(t);
	}
	free(s);
}
