/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Get, List and Status. Objects and live grants come from memory, ended grants from the store,
 * sessions and leases from the agents that answer within a second.
 */
#include "controller/svc_admin_priv.h"
#include "controller/svc_show_priv.h"
#include "proto/ros2/v1/admin.rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIMIT_DEFAULT 500
#define LIMIT_MAX     5000
#ifndef GET_GRANTS /* shown with a tenant or an agent */
#define GET_GRANTS 1000
#endif
/* Of a page, packed: with one row more it is within what a message may be (4 MiB). */
#define PAGE_BYTES (5u << 19)

static uint32_t bit_of(int kind)
{
	return kind >= 1 && kind <= STORE_LEASE ? 1u << kind : 0;
}

/* ---- List ---- */

struct list_op {
	struct svc *s;
	struct rpc_call *call;
	uint32_t limit;
	struct page_list list;
	struct page_pos after;
	char asked_to[ROS2_NAME_MAX + 1];
	uint64_t lost;              /* show_lost, before */
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
	if (show_is_whole(op->call, op->lost))
		rpc_call_reply(op->call, &op->reply->base);
	list_free(op);
}

static void fail_crowded(struct svc *s, struct rpc_call *call, const char *words)
{
	svc_crowded(s, rpc_call_peer(call), rpc_call_method(call), words);
	rpc_call_fail(call, ROS2_BUSY, "%s", words);
}

static void fail_read(struct svc *s, struct rpc_call *call, int rc)
{
	char words[SVC_WORDS_MAX];

	snprintf(words, sizeof(words), SVC_TOO_MANY_READS, STORE_READS_MAX);
	if (rc == -EBUSY)
		fail_crowded(s, call, words);
	else if (rc == -ENOMEM)
		rpc_call_fail(call, ROS2_BUSY, "out of memory: try again");
	else
		rpc_call_fail(call, ROS2_IO, "the store is not read any more");
}

static void fail_report(struct svc *s, struct rpc_call *call, int rc)
{
	char words[SVC_WORDS_MAX];

	snprintf(words, sizeof(words), SVC_TOO_MANY_REPORTS, REPORTS_MAX);
	if (rc == -EBUSY)
		fail_crowded(s, call, words);
	else
		rpc_call_fail(call, ROS2_BUSY, "out of memory: try again");
}

static void go_on_at(struct list_op *op, const struct page_pos *at)
{
	char token[PAGE_TOKEN_MAX];

	page_token(&op->list, at, token);
	op->reply->next_page_token = show_str(token);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct ctl_object *const *)a)->name,
	              (*(struct ctl_object *const *)b)->name);
}

static bool object_wanted(struct list_op *op, const struct ctl_object *o)
{
	const struct ctl_agent *a;

	if (o->kind != op->list.kind || strcmp(o->name, op->after.name) <= 0)
		return false;
	if (o->kind == STORE_TENANT && !ros2_uid_is_zero(&op->list.agent_uid)) {
		a = ctl_agent_uid(op->s->ctl, &op->list.agent_uid);
		return a && ctl_placed(o, a);
	}
	if (o->kind == STORE_AGENT && !ros2_uid_is_zero(&op->list.tenant_uid)) {
		const struct ctl_object *t = ctl_find_uid(op->s->ctl, &op->list.tenant_uid);

		return t && ctl_placed(t, o->agent);
	}
	return true;
}

/* One page: how many of @v it shows, at least one of them. What agents have is summed for all of
 * them at once, and where tenants may be is listed once: not a walk over all objects for each.
 * -ENOMEM. */
static int show_objects(struct list_op *op, struct ctl_object *const *v, size_t n,
                        size_t *ret_shown)
{
	AUTO_FREE struct ctl_agent_sum *sums = calloc(n + 1, sizeof(*sums));

	struct ctl_agents agents = {.v = NULL};
	size_t bytes = 0, i;

	if (!sums || (op->list.kind == STORE_TENANT && ctl_agents_list(op->s->ctl, &agents) < 0))
		return -ENOMEM;
	if (op->list.kind == STORE_AGENT) {
		for (i = 0; i < n; i++)
			sums[i].agent = v[i]->agent;
		ctl_agents_sum(op->s->ctl, sums, n);
	}
	for (i = 0; i < n && bytes < PAGE_BYTES; i++) {
		Ros2__V1__ObjectInfo *o = show_object(op->s, v[i], &sums[i], &agents, false);

		bytes += o ? protobuf_c_message_get_packed_size(&o->base) : 0;
		SHOW_APPEND(op->reply->objects, op->reply->n_objects, o);
	}
	free(agents.v);
	*ret_shown = i;
	return 0;
}

static void list_objects(struct list_op *op)
{
	struct ctl *c = op->s->ctl;
	AUTO_FREE struct ctl_object **v = calloc(HASH_CNT(by_key, c->by_key) + 1, sizeof(*v));
	struct ctl_object *o, *tmp;
	size_t n = 0, shown = 0;

	if (v) {
		HASH_ITER (by_key, c->by_key, o, tmp)
			if (object_wanted(op, o))
				v[n++] = o;
		qsort(v, n, sizeof(*v), by_name);
	}
	if (!v || show_objects(op, v, MIN(n, (size_t)op->limit), &shown) < 0) {
		rpc_call_fail(op->call, ROS2_BUSY, "out of memory");
		list_free(op);
		return;
	}
	if (n > shown) {
		struct page_pos at = {.ended = false};

		strcpy(at.name, v[shown - 1]->name);
		go_on_at(op, &at);
	}
	list_reply(op);
}

static bool grant_wanted(const struct list_op *op, const struct ctl_grant *g)
{
	if (g->phase != CTL_GRANT_LIVE || (g->overdue && !op->list.all))
		return false;
	if (!ros2_uid_is_zero(&op->list.tenant_uid) &&
	    !ros2_uid_eq(&op->list.tenant_uid, &g->tenant->uid))
		return false;
	return ros2_uid_is_zero(&op->list.agent_uid) ||
	       ros2_uid_eq(&op->list.agent_uid, &g->agent->obj->uid);
}

/* Grants in memory are in order of uid: a uid begins with a number that grows. */
static struct ctl_grant *first_beyond(struct ctl *c, const struct ros2_uid *after)
{
	struct ctl_grant *g = ctl_grant_find(c, after);

	if (g)
		return g->hh.next;
	for (g = c->grants; g && memcmp(g->uid.b, after->b, ROS2_UID_LEN) <= 0; g = g->hh.next)
		;
	return g;
}

/* True when the page is full and there are more. */
static bool live_grants(struct list_op *op)
{
	struct page_pos at = {.ended = false};

	for (struct ctl_grant *g = first_beyond(op->s->ctl, &op->after.key); g; g = g->hh.next) {
		if (!grant_wanted(op, g))
			continue;
		if (op->reply->n_grants == op->limit) {
			go_on_at(op, &at);
			return true;
		}
		at.key = g->uid;
		SHOW_APPEND(op->reply->grants, op->reply->n_grants, show_grant(g));
	}
	return false;
}

static void ended_grants(void *arg, int rc, const struct store_grant *g, size_t n,
                         const struct ros2_uid *more)
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
	if (more) {
		struct page_pos at = {.ended = true, .key = *more};

		go_on_at(op, &at);
	}
	list_reply(op);
}

static void list_grants(struct list_op *op)
{
	struct store_grant_query q = {.tenant_uid = op->list.tenant_uid,
	                              .agent_uid = op->list.agent_uid,
	                              .limit = op->limit};
	int rc;

	if (!op->after.ended) {
		if (live_grants(op) || !op->list.all) {
			list_reply(op);
			return;
		}
		q.limit -= MIN((uint32_t)op->reply->n_grants, q.limit - 1);
	} else {
		q.after = op->after.key;
	}
	rc = store_read_grants(op->s->ctl->store, &q, ended_grants, op);
	if (rc < 0) {
		fail_read(op->s, op->call, rc);
		list_free(op);
	}
}

static void list_reported(void *arg, const struct report_result *r)
{
	struct list_op *op = arg;
	Ros2__V1__ListReply m = ROS2__V1__LIST_REPLY__INIT;
	AUTO_FREE ProtobufCMessage **v = calloc(r->n + 1, sizeof(*v));
	char token[PAGE_TOKEN_MAX] = "";
	struct page_pos at = {.ended = false};

	if (!v) {
		rpc_call_fail(op->call, ROS2_BUSY, "out of memory");
		list_free(op);
		return;
	}
	for (size_t i = 0; i < r->n; i++)
		v[i] = r->rows[i].message;
	if (op->list.kind == STORE_SESSION) {
		m.sessions = (Ros2__V1__SessionInfo **)v;
		m.n_sessions = r->n;
	} else {
		m.leases = (Ros2__V1__LeaseInfo **)v;
		m.n_leases = r->n;
	}
	m.unreachable_agents = r->unreachable;
	m.n_unreachable_agents = r->n_unreachable;
	if (r->more && r->n) {
		strcpy(at.name, r->rows[r->n - 1].agent);
		at.key = r->rows[r->n - 1].key;
	} else {
		strcpy(at.name, op->asked_to);
	}
	if (at.name[0])
		page_token(&op->list, &at, token);
	m.next_page_token = token;
	if (show_is_whole(op->call, op->lost))
		rpc_call_reply(op->call, &m.base);
	list_free(op);
}

static void list_at_agents(struct list_op *op)
{
	const struct page_list *l = &op->list;
	struct ctl *c = op->s->ctl;
	struct report_ask ask = {
		.leases = l->kind == STORE_LEASE, .limit = op->limit, .after = &op->after};
	int rc;

	if (!ros2_uid_is_zero(&l->tenant_uid))
		ask.tenant = ctl_find_uid(c, &l->tenant_uid);
	if (!ros2_uid_is_zero(&l->agent_uid))
		ask.agent = ctl_agent_uid(c, &l->agent_uid);
	rc = report_collect(op->s, &ask, list_reported, op);
	if (rc < 0) {
		fail_report(op->s, op->call, rc);
		list_free(op);
		return;
	}
	strcpy(op->asked_to, ask.asked_to);
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
		op->list.tenant_uid = t->uid;
	if (a)
		op->list.agent_uid = a->uid;
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
	if (!op || !op->reply) {
		free(op);
		rpc_call_fail(call, ROS2_BUSY, "out of memory");
		return;
	}
	ros2__v1__list_reply__init(op->reply);
	op->s = user;
	op->call = call;
	op->lost = show_lost();
	op->list.kind = (enum store_kind)q->kind;
	op->list.all = q->all;
	op->limit = q->page_size ? MIN(q->page_size, (uint32_t)LIMIT_MAX) : LIMIT_DEFAULT;
	if (filter(op, q) < 0) {
		list_free(op);
	} else if (page_parse(&op->list, q->page_token, &op->after) < 0) {
		rpc_call_fail(call, ROS2_INVALID,
		              "page_token is not of this list: begin again without one");
		list_free(op);
	} else if (op->list.kind == STORE_GRANT) {
		list_grants(op);
	} else if (op->list.kind == STORE_SESSION || op->list.kind == STORE_LEASE) {
		list_at_agents(op);
	} else {
		list_objects(op);
	}
}

/* ---- Get ---- */

struct get_op {
	struct svc *s;
	struct rpc_call *call;
	char name[ROS2_UID_STR_LEN];
	uint64_t lost;             /* show_lost, before */
	Ros2__V1__GetReply *reply; /* owned */
};

static void get_free(struct get_op *op)
{
	ros2__v1__get_reply__free_unpacked(op->reply, NULL);
	free(op);
}

static void get_reply(struct get_op *op)
{
	if (show_is_whole(op->call, op->lost))
		rpc_call_reply(op->call, &op->reply->base);
	get_free(op);
}

static void get_reported(void *arg, const struct report_result *r)
{
	struct get_op *op = arg;
	Ros2__V1__GetReply m = *op->reply;
	AUTO_FREE Ros2__V1__SessionInfo **v = calloc(r->n + 1, sizeof(*v));

	for (size_t i = 0; v && i < r->n; i++)
		v[m.n_sessions++] = (Ros2__V1__SessionInfo *)r->rows[i].message;
	m.sessions = v;
	m.unreachable_agents = r->unreachable;
	m.n_unreachable_agents = r->n_unreachable;
	m.more_sessions = r->more;
	if (!v)
		rpc_call_fail(op->call, ROS2_BUSY, "out of memory");
	else if (show_is_whole(op->call, op->lost))
		rpc_call_reply(op->call, &m.base);
	get_free(op);
}

static void get_fail(struct get_op *op, enum ros2_status st, const char *what, const char *name)
{
	rpc_call_fail(op->call, st, st == ROS2_NOT_FOUND ? "%s \"%s\" does not exist" : "%s \"%s\"",
	              what, name);
	get_free(op);
}

static void get_grants(struct get_op *op, const struct ctl_object *o)
{
	struct ctl_grant *g, *tmp;

	HASH_ITER (hh, op->s->ctl->grants, g, tmp) {
		if (g->phase != CTL_GRANT_LIVE || g->overdue ||
		    (g->tenant != o && g->agent != o->agent))
			continue;
		if (op->reply->n_grants >= GET_GRANTS) {
			op->reply->more_grants = true;
			break;
		}
		SHOW_APPEND(op->reply->grants, op->reply->n_grants, show_grant(g));
	}
}

static void get_object(struct get_op *op, const struct ctl_object *o)
{
	struct report_ask ask = {.limit = LIMIT_DEFAULT};
	struct ctl_agent_sum sum = {.agent = o->agent};
	struct ctl_agents agents = {.v = NULL};
	int r;

	if (o->kind == STORE_TENANT && ctl_agents_list(op->s->ctl, &agents) < 0) {
		get_fail(op, ROS2_BUSY, "out of memory for", o->name);
		return;
	}
	if (o->agent)
		ctl_agents_sum(op->s->ctl, &sum, 1);
	op->reply->object = show_object(op->s, o, &sum, &agents, true);
	free(agents.v);
	if (o->kind == STORE_ENGINE) {
		get_reply(op);
		return;
	}
	get_grants(op, o);
	if (o->kind == STORE_TENANT)
		ask.tenant = o;
	else
		ask.agent = o->agent;
	r = report_collect(op->s, &ask, get_reported, op);
	if (r < 0) {
		fail_report(op->s, op->call, r);
		get_free(op);
	}
}

static void got_stored_grant(void *arg, int rc, const struct store_grant *g, size_t n,
                             const struct ros2_uid *more)
{
	struct get_op *op = arg;

	if (!rc && n) {
		op->reply->grant = show_stored_grant(op->s, g);
		get_reply(op);
		return;
	}
	if (rc < 0)
		rpc_call_fail(op->call, rc == -ENOMEM ? ROS2_BUSY : ROS2_IO,
		              "reading grants failed");
	else
		rpc_call_fail(op->call, ROS2_NOT_FOUND, "grant %s does not exist", op->name);
	get_free(op);
}

static void get_grant(struct get_op *op, const char *name)
{
	struct store_grant_query q = {.one = true};
	struct ctl_grant *g;
	int rc;

	if (ros2_uid_from_str(name, &q.after) < 0) {
		get_fail(op, ROS2_NOT_FOUND, "grant", name);
		return;
	}
	ros2_uid_to_str(&q.after, op->name);
	g = ctl_grant_find(op->s->ctl, &q.after);
	if (g && g->phase == CTL_GRANT_LIVE) {
		op->reply->grant = show_grant(g);
		get_reply(op);
		return;
	}
	rc = store_read_grants(op->s->ctl->store, &q, got_stored_grant, op);
	if (rc < 0) {
		fail_read(op->s, op->call, rc);
		get_free(op);
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
	op->lost = show_lost();
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
	uint64_t before = show_lost();

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
	SHOW_APPEND(m.conditions, m.n_conditions,
	            show_condition("JournalFailed", st.journal_failed,
	                           st.journal_failed
	                                   ? "the journal of revocations cannot be written: a "
	                                     "revocation that finds no space is in memory only"
	                                   : "",
	                           0));
	SHOW_APPEND(m.conditions, m.n_conditions,
	            show_condition("ReloadFailed", s->cfg->reload_failed[0] != '\0',
	                           s->cfg->reload_failed, s->cfg->reload_failed_unix_ns));
	SHOW_APPEND(m.conditions, m.n_conditions,
	            show_condition("ReloadPending", s->cfg->reload_pending[0] != '\0',
	                           s->cfg->reload_pending, s->cfg->reload_pending_unix_ns));
	if (show_is_whole(call, before))
		rpc_call_reply(call, &m.base);
	for (size_t i = 0; i < m.n_conditions; i++)
		ros2__v1__condition__free_unpacked(m.conditions[i], NULL);
	free(m.conditions);
}
