/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts of the controller's own decisions, the bounded recording of refusals, and the
 * records that agents hand up. What an agent says is its claim: it is recorded with its origin, and
 * it can only speak of tenants that are placed on it.
 */
#include "controller/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define DENY_FIRST       100  /* recorded one by one */
#define DENY_PER_S       10   /* after that */
#define DENY_KEYS_MAX    1024 /* of each class ("enrol/..."); the rest of a class shares one */
#define DENY_KEY_LEN     64
#define DENY_FORGET_NS   (3600 * NS_PER_S)
#define DENY_TICK_MS     1000
#define FORWARD_AGAIN_MS 5000 /* a store that is full is not asked all the time */
#define ACK_BACKLOG_MAX  4096 /* records of one agent that wait for the store */

const struct ctl_caller ctl_system = {.spiffe = "system"};

/* Who proved no identity still gets a name that is none: no record is without an actor. */
static const char *actor_of(const struct ctl_caller *who)
{
	return who->spiffe[0] ? who->spiffe : "anonymous";
}

struct ctl_caller ctl_agent_caller(const struct ctl_agent *a)
{
	struct ctl_caller who = {.role = CTL_AGENT};

	snprintf(who.spiffe, sizeof(who.spiffe), "spiffe://%.170s/agent/%s",
	         a->ctl->cfg->trust_domain, a->obj->name);
	if (a->link)
		snprintf(who.peer, sizeof(who.peer), "%.63s", link_peer(a->link));
	return who;
}

struct store_draft *ctl_audit(struct store_txn *t, const struct ctl_caller *who, const char *action,
                              enum store_kind kind, const char *name, const struct ros2_uid *uid)
{
	struct store_draft *d = store_txn_audit(t);

	d->actor = store_txn_str(t, actor_of(who));
	d->role = who == &ctl_system ? "system" : ctl_role_to_str(who->role);
	d->peer = store_txn_str(t, who->peer);
	d->action = store_txn_str(t, action);
	d->object_kind = ctl_kind_to_str(kind);
	d->object_name = store_txn_str(t, name);
	if (uid)
		d->object_uid = store_txn_uid(t, uid);
	d->result = STORE_AUDIT_OK;
	d->status = "OK";
	return d;
}

void ctl_audit_tenant(struct store_txn *t, struct store_draft *d, const struct ctl_object *tenant)
{
	if (!tenant)
		return;
	d->tenant = store_txn_str(t, tenant->name);
	d->tenant_uid = tenant->uid;
}

/* ---- refusals ---- */

struct ctl_deny {
	char key[DENY_KEY_LEN + 2];
	uint64_t total, last_ns;
	uint32_t this_second;
	/* counted, not yet recorded; the last one is the sample */
	uint64_t swallowed, first_unix_ns, last_unix_ns;
	struct ctl_caller who;
	char action[32], object_kind[16], object[ROS2_SPIFFE_MAX + 1], reason[CTL_REASON_MAX + 1];
	char tenant[ROS2_NAME_MAX + 1];
	struct ros2_uid tenant_uid;
	enum ros2_status status;
	UT_hash_handle hh;
};

/* How many keys of this class there are: what strangers can make up at one listener leaves the
 * others theirs. */
static size_t deny_class(const struct ctl *c, const char *key)
{
	size_t class = (size_t)(strchrnul(key, '/') - key), n = 0;

	for (const struct ctl_deny *d = c->denials; d; d = d->hh.next)
		n += strncmp(d->key, key, class) == 0 && d->key[class] == '/';
	return n;
}

static struct ctl_deny *deny_get(struct ctl *c, const char *key)
{
	struct ctl_deny *d;
	char k[DENY_KEY_LEN + 2];

	snprintf(k, DENY_KEY_LEN, "%s", key);
	HASH_FIND_STR(c->denials, k, d);
	if (d)
		return d;
	if (deny_class(c, k) >= DENY_KEYS_MAX) {
		strcpy(strchrnul(k, '/'), "/*");
		HASH_FIND_STR(c->denials, k, d);
		if (d)
			return d;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	strcpy(d->key, k);
	HASH_ADD_STR(c->denials, key, d);
	if (!HASH_TOOK(hh, d)) {
		free(d);
		return NULL;
	}
	return d;
}

static void deny_write(struct ctl *c, const struct ctl_deny *d, uint64_t count)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *r = store_txn_audit(t);

	r->actor = store_txn_str(t, actor_of(&d->who));
	r->role = strcmp(d->action, "grant.deny") == 0 ? "tenant" : ctl_role_to_str(d->who.role);
	r->peer = store_txn_str(t, d->who.peer);
	r->action = store_txn_str(t, d->action);
	r->object_kind = store_txn_str(t, d->object_kind);
	r->object_name = store_txn_str(t, d->object);
	r->result = STORE_AUDIT_DENIED;
	r->status = ros2_status_to_str(d->status);
	r->reason = store_txn_str(t, d->reason);
	r->tenant = store_txn_str(t, d->tenant);
	r->tenant_uid = d->tenant_uid;
	if (count > 1) {
		r->count = count;
		r->first_unix_ns = d->first_unix_ns;
		r->last_unix_ns = d->last_unix_ns;
	}
	if (store_submit(c->store, t, NULL, NULL, NULL) < 0)
		log_warn("a refusal could not be recorded: %s on %s", d->action, d->object);
}

void ctl_audit_denied_n(struct ctl *c, const char *key, const struct ctl_caller *who,
                        const char *action, const struct ctl_object *tenant,
                        const char *object_kind, const char *object, enum ros2_status status,
                        const char *reason, uint64_t n)
{
	struct ctl_deny *d = deny_get(c, key);

	if (!d)
		return;
	d->who = *who;
	d->status = status;
	d->last_ns = clock_boottime_ns();
	d->last_unix_ns = clock_unix_ns();
	snprintf(d->action, sizeof(d->action), "%s", action);
	snprintf(d->object_kind, sizeof(d->object_kind), "%s", object_kind);
	snprintf(d->object, sizeof(d->object), "%s", object);
	snprintf(d->reason, sizeof(d->reason), "%s", reason);
	/* A shared count is of many tenants: it is in nobody's history. */
	if (strcmp(strchrnul(d->key, '/'), "/*") == 0)
		tenant = NULL;
	snprintf(d->tenant, sizeof(d->tenant), "%s", tenant ? tenant->name : "");
	d->tenant_uid = tenant ? tenant->uid : (struct ros2_uid){{0}};
	if (!d->swallowed)
		d->first_unix_ns = d->last_unix_ns;
	d->total++;
	if (d->total <= DENY_FIRST || d->this_second < DENY_PER_S) {
		d->this_second += d->total > DENY_FIRST;
		deny_write(c, d, n);
		return;
	}
	d->swallowed += n;
}

void ctl_audit_denied(struct ctl *c, const char *key, const struct ctl_caller *who,
                      const char *action, const struct ctl_object *tenant, const char *object_kind,
                      const char *object, enum ros2_status status, const char *reason)
{
	ctl_audit_denied_n(c, key, who, action, tenant, object_kind, object, status, reason, 1);
}

void ctl_agent_claim(struct ctl_agent *a, const char *words)
{
	struct ctl_caller who = ctl_agent_caller(a);
	char key[80];

	snprintf(key, sizeof(key), "claim/%.63s", a->obj->name);
	ctl_audit_denied(a->ctl, key, &who, "agent.claim", NULL, "agent", a->obj->name, ROS2_DENIED,
	                 words);
}

static void deny_tick(void *arg)
{
	struct ctl *c = arg;
	struct ctl_deny *d, *tmp;
	uint64_t now = clock_boottime_ns();

	HASH_ITER (hh, c->denials, d, tmp) {
		if (d->swallowed)
			deny_write(c, d, d->swallowed);
		d->swallowed = 0;
		d->this_second = 0;
		if (now - d->last_ns > DENY_FORGET_NS) {
			HASH_DEL(c->denials, d);
			free(d);
		}
	}
	loop_timer_in_ms(c->loop, &c->deny_timer, DENY_TICK_MS, deny_tick, c);
}

void ctl_denials_start(struct ctl *c)
{
	loop_timer_in_ms(c->loop, &c->deny_timer, DENY_TICK_MS, deny_tick, c);
}

void ctl_denials_free(struct ctl *c)
{
	struct ctl_deny *d, *tmp;

	loop_timer_stop(&c->deny_timer);
	HASH_ITER (hh, c->denials, d, tmp) {
		HASH_DEL(c->denials, d);
		free(d);
	}
}

/* ---- records of agents ---- */

static struct ctl_origin *origin_get(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o;

	HASH_FIND(hh, a->origins, incarnation->b, ROS2_UID_LEN, o);
	return o;
}

uint64_t ctl_origin_acked(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o = origin_get(a, incarnation);

	return o ? o->acked : 0;
}

struct forward {
	struct ctl *c;
	struct ros2_uid agent_uid, incarnation;
	uint64_t to;
	struct store_txn *t; /* owned until the store has it */
	struct list link;    /* of ctl_origin.waiting */
};

static void forward_free(struct forward *f)
{
	store_txn_free(f->t);
	free(f);
}

static void waiting_free(struct ctl_origin *o)
{
	struct forward *f, *tmp;

	list_for_each_safe (&o->waiting, f, tmp, link) {
		list_del(&f->link);
		forward_free(f);
	}
}

static struct ctl_origin *origin_new(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->incarnation = *incarnation;
	list_init(&o->waiting);
	HASH_ADD(hh, a->origins, incarnation.b, ROS2_UID_LEN, o);
	if (!HASH_TOOK(hh, o)) {
		free(o);
		return NULL;
	}
	return o;
}

int ctl_origin_load(struct ctl *c, const struct store_origin *row)
{
	struct ctl_agent *a = ctl_agent_uid(c, &row->agent_uid);
	struct ctl_origin *o = a ? origin_new(a, &row->incarnation) : NULL;

	if (!a)
		return 0;
	if (!o)
		return -ENOMEM;
	o->acked = o->queued = row->seq;
	return 0;
}

void ctl_origins_free(struct ctl_agent *a)
{
	struct ctl_origin *o, *tmp;

	loop_timer_stop(&a->forward_timer);
	HASH_ITER (hh, a->origins, o, tmp) {
		HASH_DEL(a->origins, o);
		waiting_free(o);
		free(o);
	}
}

/* The oldest incarnation that has nothing on its way makes room. */
static void origin_evict(struct ctl_agent *a, struct store_txn *t)
{
	struct ctl_origin *o, *tmp;

	if (HASH_COUNT(a->origins) < CTL_ORIGINS_MAX)
		return;
	HASH_ITER (hh, a->origins, o, tmp) {
		if (o->queued != o->acked)
			continue;
		store_txn_add(t, STORE_ORIGIN_DELETE)->origin = (struct store_origin){
			.agent_uid = a->obj->uid, .incarnation = o->incarnation};
		HASH_DEL(a->origins, o);
		free(o);
		return;
	}
}

static void add_gap(struct store_txn *t, struct ctl_agent *a, const struct ros2_uid *incarnation,
                    uint64_t from, uint64_t to)
{
	struct store_draft *d =
		ctl_audit(t, &ctl_system, "audit.gap", STORE_AGENT, a->obj->name, &a->obj->uid);

	d->result = STORE_AUDIT_FAILED;
	d->reason = "records of this agent are missing";
	store_draft_detail(t, d, "incarnation", store_txn_uid(t, incarnation));
	store_draft_detail(t, d, "from_seq", store_txn_fmt(t, "%llu", (unsigned long long)from));
	store_draft_detail(t, d, "to_seq", store_txn_fmt(t, "%llu", (unsigned long long)to));
}

static void end_link(void *arg)
{
	struct ctl_agent *a = arg;

	if (a->link)
		link_end(a->link, ROS2_BUSY,
		         "records could not be stored: they are to be sent again");
}

/* The log stays without a hole: what waits behind the failed ones is the agent's again. */
static void forward_fail(struct ctl_agent *a, const struct ros2_err *err)
{
	struct ctl_origin *o, *tmp;

	HASH_ITER (hh, a->origins, o, tmp) {
		waiting_free(o);
		o->queued = o->at_store ? o->at_store : o->acked;
	}
	if (a->forward_failed || !a->link)
		return;
	a->forward_failed = true;
	loop_timer_in_ms(a->ctl->loop, &a->forward_timer, FORWARD_AGAIN_MS, end_link, a);
	log_warn("records of agent %s are not stored, it keeps them: %s", a->obj->name, err->msg);
}

void ctl_forward_begin(struct ctl_agent *a)
{
	a->forward_failed = false;
	loop_timer_stop(&a->forward_timer);
}

static void forward_next(struct ctl_agent *a, struct ctl_origin *o);

static void forwarded(void *arg, const struct store_result *r)
{
	struct forward *f = arg;
	struct ctl_agent *a = ctl_agent_uid(f->c, &f->agent_uid);
	struct ctl_origin *o = a ? origin_get(a, &f->incarnation) : NULL;

	if (o) {
		o->at_store = 0;
		if (!r->rc)
			o->acked = MAX(o->acked, f->to);
		if (r->rc < 0)
			forward_fail(a, &r->err);
		else if (a->link)
			link_audit_ack(a->link, &f->incarnation, o->acked);
		forward_next(a, o);
	}
	free(f);
}

/* One at a time is at the store: the next is handed over when it is durable. */
static void forward_next(struct ctl_agent *a, struct ctl_origin *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct store_txn *t;
	struct forward *f;

	if (o->at_store || list_empty(&o->waiting))
		return;
	f = list_first(&o->waiting, struct forward, link);
	list_del(&f->link);
	t = TAKE_PTR(f->t);
	o->at_store = f->to;
	if (!store_submit(a->ctl->store, t, forwarded, f, &err))
		return;
	o->at_store = 0;
	free(f);
	forward_fail(a, &err);
}

static void add_forwarded(struct store_txn *t, struct ctl_agent *a,
                          const struct ros2_uid *incarnation, const struct ctl_forward *f)
{
	const struct store_draft *s = &f->draft;
	struct store_draft *d = store_txn_audit(t);
	struct ctl_object *tenant =
		ros2_uid_is_zero(&s->tenant_uid) ? NULL : ctl_find_uid(a->ctl, &s->tenant_uid);

	*d = *s;
	d->actor = store_txn_str(t, s->actor);
	d->role = store_txn_str(t, s->role);
	d->peer = store_txn_str(t, s->peer);
	d->action = store_txn_str(t, s->action);
	d->object_kind = store_txn_str(t, s->object_kind);
	d->object_name = store_txn_str(t, s->object_name);
	d->object_uid = store_txn_str(t, s->object_uid);
	d->status = store_txn_str(t, s->status);
	d->reason = store_txn_str(t, s->reason);
	d->tenant = NULL;
	d->tenant_uid = (struct ros2_uid){{0}};
	d->has_origin = true;
	d->origin_agent = store_txn_str(t, a->obj->name);
	d->origin_agent_uid = store_txn_uid(t, &a->obj->uid);
	d->origin_incarnation = store_txn_uid(t, incarnation);
	d->origin_seq = f->seq;
	d->n_details = 0;
	for (size_t i = 0; i < s->n_details; i++)
		store_draft_detail(t, d, s->details[i].key, s->details[i].value);
	if (tenant && tenant->kind == STORE_TENANT && ctl_placed(tenant, a))
		ctl_audit_tenant(t, d, tenant);
	else if (s->tenant && *s->tenant)
		store_draft_detail(t, d, "claimed_tenant", s->tenant);
	if (f->claimed_agent_uid && *f->claimed_agent_uid &&
	    strcmp(f->claimed_agent_uid, d->origin_agent_uid) != 0) {
		store_draft_detail(t, d, "claimed_agent_uid", f->claimed_agent_uid);
		ctl_agent_claim(a, "a record that names another agent as its origin");
	}
}

/* Adds what follows @last to @t, gaps as records of their own; the last of it. */
static uint64_t take_new(struct store_txn *t, struct ctl_agent *a,
                         const struct ros2_uid *incarnation, uint64_t last,
                         const struct ctl_forward *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].seq <= last)
			continue; /* sent again: it is in the log, or on its way */
		if (v[i].seq > last + 1)
			add_gap(t, a, incarnation, last + 1, v[i].seq - 1);
		add_forwarded(t, a, incarnation, &v[i]);
		last = v[i].seq;
	}
	return last;
}

int ctl_forward(struct ctl *c, struct ctl_agent *a, const struct ros2_uid *incarnation,
                const struct ctl_forward *v, size_t n, struct ros2_err *err)
{
	struct ctl_origin *o = origin_get(a, incarnation);
	struct forward *f = calloc(1, sizeof(*f));

	if (a->forward_failed) {
		free(f);
		return 0;
	}
	if (o && o->queued - o->acked > ACK_BACKLOG_MAX) {
		free(f);
		return ros2_err_named(err, ROS2_BUSY, "records wait for the store");
	}
	if (f)
		*f = (struct forward){.c = c,
		                      .agent_uid = a->obj->uid,
		                      .incarnation = *incarnation,
		                      .t = store_txn_new()};
	if (f && !o) {
		origin_evict(a, f->t);
		o = origin_new(a, incarnation);
	}
	if (!f || !o) {
		if (f)
			forward_free(f);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	f->to = take_new(f->t, a, incarnation, o->queued, v, n);
	if (f->to == o->queued) {
		forward_free(f);
		if (a->link && o->queued == o->acked)
			link_audit_ack(a->link, incarnation, o->acked);
		return 0;
	}
	store_txn_add(f->t, STORE_ORIGIN_PUT)->origin =
		(struct store_origin){.agent_uid = a->obj->uid,
	                              .incarnation = *incarnation,
	                              .seq = f->to,
	                              .updated_unix_ns = clock_unix_ns()};
	o->queued = f->to;
	list_add_tail(&o->waiting, &f->link);
	forward_next(a, o);
	return 0;
}
