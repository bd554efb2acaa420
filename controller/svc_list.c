/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Get, List and Status. Objects and live grants come from memory, ended grants from the store,
 * sessions and leases from the agents that answer within a second.
 */
#include "controller/svc_admin.h"
#include "controller/svc_show.h"
#include "proto/ros2/v1/admin.rpc.h"
#include <errno.h>
#include <string.h>

#define LIMIT_DEFAULT 500
#define LIMIT_MAX     5000
#define GET_GRANTS    1000 /* shown with a tenant or an agent */

static uint32_t bit_of(int kind)
{
	return kind >= 1 && kind <= STORE_LEASE ? 1u << kind : 0;
}

/* ---- List ---- */

struct list_op {
	struct svc *s;
	struct rpc_call *call;
	enum store_kind kind;
	uint32_t limit;
	char after[ROS2_NAME_MAX + 1];
	struct ros2_uid tenant_uid, agent_uid;
	Ros2__V1__ListReply *reply; /* owned */
};

static void list_free(struct list_op *op)
{
	if (op->reply)
		ros2__v1__list_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void list_reply(struct list_op *op)
{
	rpc_call_reply(op->call, &op->reply->base);
	list_free(op);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct ctl_object *const *)a)->name,
	              (*(struct ctl_object *const *)b)->name);
}

static bool object_wanted(struct list_op *op, const struct ctl_object *o)
{
	const struct ctl_agent *a;

	if (o->kind != op->kind || strcmp(o->name, op->after) <= 0)
		return false;
	if (o->kind == STORE_TENANT && !ros2_uid_is_zero(&op->agent_uid)) {
		a = ctl_agent_uid(op->s->ctl, &op->agent_uid);
		return a && ctl_placed(o, a);
	}
	if (o->kind == STORE_AGENT && !ros2_uid_is_zero(&op->tenant_uid)) {
		const struct ctl_object *t = ctl_find_uid(op->s->ctl, &op->tenant_uid);

		return t && ctl_placed(t, o->agent);
	}
	return true;
}

static void list_objects(struct list_op *op)
{
	struct ctl *c = op->s->ctl;
	struct ctl_object **v = calloc(HASH_CNT(by_key, c->by_key) + 1, sizeof(*v)), *o, *tmp;
	size_t n = 0;

	if (!v) {
		rpc_call_fail(op->call, ROS2_BUSY, "out of memory");
		list_free(op);
		return;
	}
	HASH_ITER (by_key, c->by_key, o, tmp)
		if (object_wanted(op, o))
			v[n++] = o;
	qsort(v, n, sizeof(*v), by_name);
	for (size_t i = 0; i < n && i < op->limit; i++)
		SHOW_APPEND(op->reply->objects, op->reply->n_objects,
		            show_object(op->s, v[i], false));
	if (n > op->limit)
		op->reply->next = show_str(v[op->limit - 1]->name);
	free(v);
	list_reply(op);
}

static bool grant_wanted(const struct list_op *op, const struct ctl_grant *g)
{
	if (g->phase != CTL_GRANT_LIVE)
		return false;
	if (!ros2_uid_is_zero(&op->tenant_uid) && !ros2_uid_eq(&op->tenant_uid, &g->tenant->uid))
		return false;
	return ros2_uid_is_zero(&op->agent_uid) || ros2_uid_eq(&op->agent_uid, &g->agent->obj->uid);
}

/* Pages of live grants are in order of uid; the ended ones follow ("e" before the uid). */
static void live_grants(struct list_op *op, const struct ros2_uid *after, bool *ret_full)
{
	struct ctl_grant *g, *tmp;
	struct ros2_uid cut = {{0}};
	size_t n = 0;

	/* One pass: the `limit` smallest uids above @after, kept sorted by insertion. */
	struct ctl_grant **v = calloc(op->limit + 1, sizeof(*v));

	*ret_full = false;
	if (!v)
		return;
	HASH_ITER (hh, op->s->ctl->grants, g, tmp) {
		size_t lo = 0, hi = n;

		if (!grant_wanted(op, g) || memcmp(g->uid.b, after->b, ROS2_UID_LEN) <= 0)
			continue;
		if (n == op->limit && memcmp(g->uid.b, v[n - 1]->uid.b, ROS2_UID_LEN) > 0) {
			*ret_full = true;
			continue;
		}
		while (lo < hi) {
			size_t mid = (lo + hi) / 2;

			if (memcmp(v[mid]->uid.b, g->uid.b, ROS2_UID_LEN) < 0)
				lo = mid + 1;
			else
				hi = mid;
		}
		memmove(v + lo + 1, v + lo, (n - lo) * sizeof(*v));
		v[lo] = g;
		if (n == op->limit)
			*ret_full = true;
		else
			n++;
	}
	for (size_t i = 0; i < n; i++) {
		SHOW_APPEND(op->reply->grants, op->reply->n_grants, show_grant(v[i]));
		cut = v[i]->uid;
	}
	if (*ret_full) {
		char text[ROS2_UID_STR_LEN];

		ros2_uid_to_str(&cut, text);
		op->reply->next = show_str(text);
	}
	free(v);
}

static void ended_grants(void *arg, int rc, const struct store_grant *g, size_t n)
{
	struct list_op *op = arg;

	if (rc < 0) {
		rpc_call_fail(op->call, ROS2_IO, "reading ended grants failed");
		list_free(op);
		return;
	}
	for (size_t i = 0; i < n; i++)
		SHOW_APPEND(op->reply->grants, op->reply->n_grants,
		            show_stored_grant(op->s, &g[i]));
	if (n == MIN(op->limit, (uint32_t)STORE_PAGE_MAX)) {
		char text[ROS2_UID_STR_LEN + 1] = "e";

		ros2_uid_to_str(&g[n - 1].uid, text + 1);
		op->reply->next = show_str(text);
	}
	list_reply(op);
}

static void list_grants(struct list_op *op, bool all)
{
	bool ended = op->after[0] == 'e' && strlen(op->after) == ROS2_UID_STR_LEN, full = false;
	struct store_grant_query q = {
		.tenant_uid = op->tenant_uid, .agent_uid = op->agent_uid, .limit = op->limit};
	struct ros2_uid after = {{0}};
	int rc;

	if (op->after[0] && ros2_uid_from_str(op->after + ended, &after) < 0) {
		rpc_call_fail(op->call, ROS2_INVALID, "\"%s\" is not a page token of this list",
		              op->after);
		list_free(op);
		return;
	}
	if (!ended)
		live_grants(op, &after, &full);
	if (full || !all) {
		list_reply(op);
		return;
	}
	if (ended)
		q.after = after;
	rc = store_read_grants(op->s->ctl->store, &q, ended_grants, op);
	if (rc < 0) {
		rpc_call_fail(op->call, ROS2_BUSY, "too many readers: try again");
		list_free(op);
	}
}

static void list_reported(void *arg, const struct report_result *r)
{
	struct list_op *op = arg;
	Ros2__V1__ListReply m = ROS2__V1__LIST_REPLY__INIT;

	if (op->kind == STORE_SESSION) {
		m.sessions = r->sessions;
		m.n_sessions = MIN(r->n_sessions, (size_t)op->limit);
	} else {
		m.leases = r->leases;
		m.n_leases = MIN(r->n_leases, (size_t)op->limit);
	}
	m.unreachable_agents = r->unreachable;
	m.n_unreachable_agents = r->n_unreachable;
	rpc_call_reply(op->call, &m.base);
	list_free(op);
}

static void list_at_agents(struct list_op *op)
{
	struct report_ask ask = {.sessions = op->kind == STORE_SESSION,
	                         .leases = op->kind == STORE_LEASE,
	                         .tenant = ros2_uid_is_zero(&op->tenant_uid)
	                                           ? NULL
	                                           : ctl_find_uid(op->s->ctl, &op->tenant_uid),
	                         .agent = ros2_uid_is_zero(&op->agent_uid)
	                                          ? NULL
	                                          : ctl_agent_uid(op->s->ctl, &op->agent_uid),
	                         .limit = op->limit};

	if (report_collect(op->s, &ask, list_reported, op) < 0) {
		rpc_call_fail(op->call, ROS2_BUSY,
		              "too many questions to agents at once: try again");
		list_free(op);
	}
}

/* A filter that names nothing is an error, not an empty list. */
static int filter(struct list_op *op, const Ros2__V1__ListRequest *q)
{
	struct ctl_object *t = q->tenant[0] ? ctl_find(op->s->ctl, STORE_TENANT, q->tenant) : NULL;
	struct ctl_object *a = q->agent[0] ? ctl_find(op->s->ctl, STORE_AGENT, q->agent) : NULL;

	if ((q->tenant[0] && !t) || (q->agent[0] && !a)) {
		rpc_call_fail(op->call, ROS2_NOT_FOUND, "%s \"%s\" does not exist",
		              q->tenant[0] && !t ? "tenant" : "agent",
		              q->tenant[0] && !t ? q->tenant : q->agent);
		return -ENOENT;
	}
	if (t)
		op->tenant_uid = t->uid;
	if (a)
		op->agent_uid = a->uid;
	return 0;
}

void svc_on_list(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__ListRequest *q = ros2_v1_admin_list_in(msg);
	struct ctl_caller who;
	struct list_op *op;

	if (!svc_may(user, call, bit_of((int)q->kind), &who))
		return;
	op = calloc(1, sizeof(*op));
	if (op)
		op->reply = malloc(sizeof(*op->reply));
	if (!op || !op->reply || strlen(q->after) >= sizeof(op->after)) {
		if (op)
			free(op->reply);
		free(op);
		rpc_call_fail(call, ROS2_INVALID, "not a page token of this list");
		return;
	}
	ros2__v1__list_reply__init(op->reply);
	op->s = user;
	op->call = call;
	op->kind = (enum store_kind)q->kind;
	op->limit = q->limit ? MIN(q->limit, (uint32_t)LIMIT_MAX) : LIMIT_DEFAULT;
	strcpy(op->after, q->after);
	if (filter(op, q) < 0)
		list_free(op);
	else if (op->kind == STORE_GRANT)
		list_grants(op, q->all);
	else if (op->kind == STORE_SESSION || op->kind == STORE_LEASE)
		list_at_agents(op);
	else
		list_objects(op);
}

/* ---- Get ---- */

struct get_op {
	struct svc *s;
	struct rpc_call *call;
	char name[ROS2_UID_STR_LEN];
	Ros2__V1__GetReply *reply; /* owned */
};

static void get_reply(struct get_op *op)
{
	rpc_call_reply(op->call, &op->reply->base);
	ros2__v1__get_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void get_reported(void *arg, const struct report_result *r)
{
	struct get_op *op = arg;
	Ros2__V1__GetReply m = *op->reply;

	m.sessions = r->sessions;
	m.n_sessions = r->n_sessions;
	rpc_call_reply(op->call, &m.base);
	ros2__v1__get_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void get_object(struct get_op *op, const struct ctl_object *o)
{
	struct report_ask ask = {.sessions = true, .limit = LIMIT_DEFAULT};
	struct ctl_grant *g, *tmp;

	op->reply->object = show_object(op->s, o, true);
	if (o->kind == STORE_ENGINE) {
		get_reply(op);
		return;
	}
	HASH_ITER (hh, op->s->ctl->grants, g, tmp)
		if (g->phase == CTL_GRANT_LIVE && (g->tenant == o || g->agent == o->agent) &&
		    op->reply->n_grants < GET_GRANTS)
			SHOW_APPEND(op->reply->grants, op->reply->n_grants, show_grant(g));
	if (o->kind == STORE_TENANT)
		ask.tenant = o;
	else
		ask.agent = o->agent;
	if (report_collect(op->s, &ask, get_reported, op) < 0)
		get_reply(op);
}

static void got_stored_grant(void *arg, int rc, const struct store_grant *g, size_t n)
{
	struct get_op *op = arg;

	if (!rc && n) {
		op->reply->grant = show_stored_grant(op->s, g);
		get_reply(op);
		return;
	}
	if (rc < 0)
		rpc_call_fail(op->call, ROS2_IO, "reading grants failed");
	else
		rpc_call_fail(op->call, ROS2_NOT_FOUND, "grant %s does not exist", op->name);
	ros2__v1__get_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void get_fail(struct get_op *op, enum ros2_status st, const char *what, const char *name)
{
	rpc_call_fail(op->call, st, "%s \"%s\" does not exist", what, name);
	ros2__v1__get_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void get_grant(struct get_op *op, const char *name)
{
	struct store_grant_query q = {.one = true};
	struct ctl_grant *g;

	if (ros2_uid_from_str(name, &q.after) < 0) {
		get_fail(op, ROS2_NOT_FOUND, "grant", name);
		return;
	}
	ros2_uid_to_str(&q.after, op->name);
	g = ctl_grant_find(op->s->ctl, &q.after);
	if (g && g->phase == CTL_GRANT_LIVE) {
		op->reply->grant = show_grant(g);
		get_reply(op);
	} else if (store_read_grants(op->s->ctl->store, &q, got_stored_grant, op) < 0) {
		get_fail(op, ROS2_BUSY, "grant", name);
	}
}

void svc_on_get(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__GetRequest *q = ros2_v1_admin_get_in(msg);
	struct svc *s = user;
	struct ctl_caller who;
	struct ctl_object *o;
	struct get_op *op;

	if (!svc_may(s, call, q->ref ? bit_of((int)q->ref->kind) : 0, &who))
		return;
	if (q->ref->kind == (int)STORE_SESSION || q->ref->kind == (int)STORE_LEASE) {
		rpc_call_fail(call, ROS2_UNSUPPORTED, "sessions and leases are listed, not got");
		return;
	}
	op = calloc(1, sizeof(*op));
	if (op)
		op->reply = malloc(sizeof(*op->reply));
	if (!op || !op->reply) {
		free(op);
		rpc_call_fail(call, ROS2_BUSY, "out of memory");
		return;
	}
	ros2__v1__get_reply__init(op->reply);
	op->s = s;
	op->call = call;
	if (q->ref->kind == (int)STORE_GRANT) {
		get_grant(op, q->ref->name);
		return;
	}
	o = ctl_find(s->ctl, (enum store_kind)q->ref->kind, q->ref->name);
	if (o)
		get_object(op, o);
	else
		get_fail(op, ROS2_NOT_FOUND, ctl_kind_to_str((enum store_kind)q->ref->kind),
		         q->ref->name);
}

/* ---- Status ---- */

void svc_on_status(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	struct svc *s = user;
	Ros2__V1__StatusReply m = ROS2__V1__STATUS_REPLY__INIT;
	Ros2__V1__Epoch e = ROS2__V1__EPOCH__INIT;
	struct store_stats st;
	struct ctl_caller who;

	if (!svc_may(s, call, 1u << 0, &who))
		return;
	store_stats(s->ctl->store, &st);
	e.lineage.data = s->ctl->epoch.lineage.b;
	e.lineage.len = ROS2_UID_LEN;
	e.counter = s->ctl->epoch.counter;
	m.version = (char *)ROS2_VERSION_STRING;
	m.trust_domain = (char *)s->cfg->trust_domain;
	m.epoch = &e;
	m.started_unix_ns = s->ctl->started_unix_ns;
	m.audit_records = st.audit_records;
	m.last_checkpoint_size = st.checkpoint_size;
	m.agents_connected = s->ctl->agents_connected;
	m.grants_live = ctl_grants_live(s->ctl);
	m.audit_key = (char *)s->cfg->audit_vkey;
	SHOW_APPEND(m.conditions, m.n_conditions,
	            show_condition("StoreFull", st.full,
	                           st.full ? "the disk is full: nothing new is granted" : "",
	                           st.full_since_unix_ns));
	SHOW_APPEND(
		m.conditions, m.n_conditions,
		show_condition("RecordsPending", st.record_pending != 0,
	                       st.record_pending ? "revocations wait for space to be recorded" : "",
	                       0));
	rpc_call_reply(call, &m.base);
	for (size_t i = 0; i < m.n_conditions; i++)
		ros2__v1__condition__free_unpacked(m.conditions[i], NULL);
	free(m.conditions);
}
