/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts of the controller's own decisions, and the bounded recording of refusals. What
 * nobody waits for is never dropped without a trace: what the store does not take is counted, and
 * recorded when it takes that.
 */
#include "controller/ctl.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define DENY_FIRST     100  /* recorded one by one */
#define DENY_PER_S     10   /* after that */
#define DENY_KEYS_MAX  1024 /* of each class ("enrol/..."); the rest of a class shares one */
#define DENY_KEY_LEN   64
#define DENY_FORGET_NS (3600 * NS_PER_S)
#define DENY_TICK_MS   1000

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

/* ---- records that nobody waits for ---- */

static struct ctl_lost_action *lost_action(struct ctl *c, const char *name)
{
	struct ctl_lost_action *a = c->lost.actions;

	for (size_t i = 1; a->name && strcmp(a->name, name) != 0; i++, a++)
		assert(i < CTL_LOST_ACTIONS);
	a->ctl = c;
	a->name = name;
	return a;
}

static void submit_failed(struct ctl_lost_action *a)
{
	struct ctl_lost *l = &a->ctl->lost;

	a->n++;
	l->last_unix_ns = clock_unix_ns();
	l->first_unix_ns = l->first_unix_ns ? l->first_unix_ns : l->last_unix_ns;
}

static void submitted(void *arg, const struct store_result *res)
{
	if (res->rc < 0)
		submit_failed(arg);
}

void ctl_audit_submit(struct ctl *c, struct store_txn *t, const char *action)
{
	struct ctl_lost_action *a = lost_action(c, action);

	if (store_submit(c->store, t, submitted, a, NULL) < 0)
		submit_failed(a);
}

static void lost_written(void *arg, const struct store_result *res)
{
	struct ctl_lost *l = &((struct ctl *)arg)->lost;
	uint64_t left = 0;

	l->at_store = false;
	for (size_t i = 0; i < CTL_LOST_ACTIONS; i++) {
		l->actions[i].n -= res->rc < 0 ? 0 : l->actions[i].sent;
		left += l->actions[i].n;
	}
	if (res->rc == 0)
		l->first_unix_ns = left ? l->sent_unix_ns : 0;
}

static uint64_t lost_count(const struct ctl_lost *l)
{
	uint64_t n = 0;

	for (size_t i = 0; i < CTL_LOST_ACTIONS; i++)
		n += l->actions[i].n;
	return n;
}

static void lost_write(struct ctl *c)
{
	struct ctl_lost *l = &c->lost;
	uint64_t n = lost_count(l);
	struct store_txn *t;
	struct store_draft *d;

	if (!n || l->at_store)
		return;
	t = store_txn_new();
	d = store_txn_audit(t);
	d->action = "audit.gap";
	d->actor = ctl_system.spiffe;
	d->role = "system";
	d->object_kind = "controller";
	d->object_name = store_txn_str(t, c->cfg->trust_domain);
	d->result = STORE_AUDIT_FAILED;
	d->status = ros2_status_to_str(ROS2_NOT_DURABLE);
	d->reason = "records of the controller could not be stored";
	d->count = n;
	d->first_unix_ns = l->first_unix_ns;
	d->last_unix_ns = l->last_unix_ns;
	for (size_t i = 0; i < CTL_LOST_ACTIONS; i++) {
		struct ctl_lost_action *a = &l->actions[i];

		a->sent = a->n;
		if (a->n)
			store_draft_detail(t, d, a->name,
			                   store_txn_fmt(t, "%llu", (unsigned long long)a->n));
	}
	l->sent_unix_ns = clock_unix_ns();
	l->at_store = store_submit(c->store, t, lost_written, c, NULL) == 0;
}

/* ---- refusals ---- */

struct ctl_deny {
	char key[DENY_KEY_LEN + 2];
	uint64_t total, last_ns;
	uint32_t this_second;
	/* counted, not yet recorded; the last one is the sample */
	uint64_t swallowed, first_unix_ns, last_unix_ns;
	unsigned at_store; /* records of it */
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

static void deny_count(struct ctl_deny *d, uint64_t n, uint64_t first_unix_ns)
{
	d->first_unix_ns = d->swallowed ? MIN(d->first_unix_ns, first_unix_ns) : first_unix_ns;
	d->swallowed += n;
}

/* One record of so many refusals, on its way. */
struct deny_sent {
	struct ctl_deny *d;
	uint64_t n, first_unix_ns;
};

/* What the log does not have is counted again. */
static void deny_written(void *arg, const struct store_result *res)
{
	struct deny_sent *s = arg;

	s->d->at_store--;
	if (res->rc < 0)
		deny_count(s->d, s->n, s->first_unix_ns);
	free(s);
}

static struct store_txn *deny_txn(const struct ctl_deny *d, struct store_draft **ret)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *r = *ret = store_txn_audit(t);

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
	return t;
}

/* @counted: of before, or of more than one. */
static void deny_write(struct ctl *c, struct ctl_deny *d, uint64_t n, uint64_t first_unix_ns,
                       bool counted)
{
	struct deny_sent *s = malloc(sizeof(*s));
	struct store_draft *r;
	struct store_txn *t = deny_txn(d, &r);

	if (counted) {
		r->count = n;
		r->first_unix_ns = first_unix_ns;
		r->last_unix_ns = d->last_unix_ns;
	}
	if (!s)
		store_txn_spoil(t);
	else
		*s = (struct deny_sent){d, n, first_unix_ns};
	if (store_submit(c->store, t, deny_written, s, NULL) == 0) {
		d->at_store++;
		return;
	}
	free(s);
	deny_count(d, n, first_unix_ns);
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
	d->total++;
	if (d->total <= DENY_FIRST || d->this_second < DENY_PER_S) {
		d->this_second += d->total > DENY_FIRST;
		deny_write(c, d, n, d->last_unix_ns, n > 1);
		return;
	}
	deny_count(d, n, d->last_unix_ns);
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

void ctl_denials_flush(struct ctl *c)
{
	for (struct ctl_deny *d = c->denials; d; d = d->hh.next) {
		uint64_t n = d->swallowed;

		d->swallowed = 0;
		if (n)
			deny_write(c, d, n, d->first_unix_ns, true);
	}
	lost_write(c);
}

static void deny_tick(void *arg)
{
	struct ctl *c = arg;
	struct ctl_deny *d, *tmp;
	uint64_t now = clock_boottime_ns();

	ctl_denials_flush(c);
	HASH_ITER (hh, c->denials, d, tmp) {
		d->this_second = 0;
		if (now - d->last_ns > DENY_FORGET_NS && !d->swallowed && !d->at_store) {
			HASH_DEL(c->denials, d);
			free(d);
		}
	}
	ctl_forward_tick(c);
	loop_timer_in_ms(c->loop, &c->deny_timer, DENY_TICK_MS, deny_tick, c);
}

void ctl_denials_start(struct ctl *c)
{
	loop_timer_in_ms(c->loop, &c->deny_timer, DENY_TICK_MS, deny_tick, c);
}

void ctl_denials_free(struct ctl *c)
{
	struct ctl_deny *d, *tmp;
	uint64_t n = lost_count(&c->lost);

	loop_timer_stop(&c->deny_timer);
	HASH_ITER (hh, c->denials, d, tmp) {
		n += d->swallowed;
		HASH_DEL(c->denials, d);
		free(d);
	}
	if (n)
		log_error("%llu refusals and events of agents are not in the log: it took no "
		          "record of them",
		          (unsigned long long)n);
}
