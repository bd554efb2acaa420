/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit drafts of the controller's own decisions, and the bounded recording of refusals.
 */
#include "controller/ctl.h"
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

	loop_timer_stop(&c->deny_timer);
	HASH_ITER (hh, c->denials, d, tmp) {
		HASH_DEL(c->denials, d);
		free(d);
	}
}
