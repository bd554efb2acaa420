/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far each object has come at each agent: sent, received, applied or failed, by version. An
 * agent says at hello what it has; from then on only differences are sent. Works on memory alone:
 * an idle agent costs no query.
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include "policy/limits.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define REMOVALS_MAX 512 /* in one message */

static void entry_free(struct ctl_agent *a, struct ctl_rollout *r)
{
	HASH_DEL(a->rollout, r);
	list_del(&r->unacked);
	list_del(&r->waiting);
	free(r->failed_reason);
	free(r);
}

struct ctl_rollout *ctl_rollout_find(const struct ctl_agent *a, enum store_kind kind,
                                     const struct ros2_uid *uid)
{
	struct ctl_rollout *r, key;

	memset(&key, 0, sizeof(key));
	key.key.uid = *uid;
	key.key.kind = kind;
	HASH_FIND(hh, a->rollout, &key.key, sizeof(key.key), r);
	return r;
}

struct ctl_rollout *ctl_rollout_get(struct ctl_agent *a, enum store_kind kind,
                                    const struct ros2_uid *uid, bool make)
{
	struct ctl_rollout *r = ctl_rollout_find(a, kind, uid);

	if (r || !make)
		return r;
	r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->key.uid = *uid;
	r->key.kind = kind;
	list_init(&r->unacked);
	list_init(&r->waiting);
	HASH_ADD(hh, a->rollout, key, sizeof(r->key), r);
	if (!HASH_TOOK(hh, r)) {
		free(r);
		return NULL;
	}
	return r;
}

void ctl_rollout_free(struct ctl_agent *a)
{
	struct ctl_rollout *r, *tmp;

	HASH_ITER (hh, a->rollout, r, tmp)
		entry_free(a, r);
}

/* Not connected: what was applied there is still worth showing, what was sent is not known. */
void ctl_rollout_reset(struct ctl_agent *a)
{
	struct ctl_rollout *r, *tmp;

	HASH_ITER (hh, a->rollout, r, tmp) {
		r->sent = r->had = 0;
		r->nonce = 0;
		list_del(&r->unacked);
	}
}

/* ---- contact limits ---- */

static const struct ctl_object *tenant_of(const struct ctl_agent *a, const struct ctl_rollout *r)
{
	const struct ctl_object *o = ctl_find_uid(a->ctl, &r->key.uid);

	return r->key.kind == STORE_TENANT && o && o->kind == STORE_TENANT ? o : NULL;
}

/* It has the version in force, on its disk, and acts by it: not by one before. */
static void settle_limit(struct ctl_agent *a, struct ctl_rollout *r)
{
	const struct ctl_object *o = tenant_of(a, r);

	if (o && r->sent == o->version && r->applied == o->version && list_empty(&r->waiting) &&
	    list_empty(&r->unacked))
		r->limit_ms = o->policy.limits.contact_limit_ms;
}

/* ---- what it has ---- */

/* Of a tenant it acts by what it says that it has when it says that it applied that: until then it
 * may be in memory only, or of a kind that it cannot apply, and one before in force. */
bool ctl_rollout_have(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid,
                      uint64_t version)
{
	struct ctl_rollout *r = ctl_rollout_get(a, kind, uid, true);

	if (!r)
		return false;
	r->sent = r->received = r->had = version;
	r->limit_ms = limit_fields[LIMIT_CONTACT].max;
	return true;
}

/* What it is told to remove: all that it may have. `sent` may not have left yet, and be of a lower
 * version than what it has: a grant's, where this controller runs on a backup. */
static struct link_have all_of(const struct ctl_rollout *r)
{
	return (struct link_have){(enum store_kind)r->key.kind, r->key.uid, MAX(r->sent, r->had)};
}

void ctl_rollout_drop(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid)
{
	struct ctl_rollout *r = ctl_rollout_get(a, kind, uid, false);

	if (!r)
		return;
	if (r->reply && a->link)
		link_grant_denied(a->link, r->request_id, ROS2_REVOKED,
		                  "the right was withdrawn before it could be handed over");
	entry_free(a, r);
}

void ctl_rollout_given_back(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid)
{
	const struct ctl_rollout *r = ctl_rollout_get(a, kind, uid, false);

	if (r && a->link && !list_empty(&r->unacked))
		link_removals(a->link, (struct link_have[]){all_of(r)}, 1);
	ctl_rollout_drop(a, kind, uid);
}

/* ---- synchronising ---- */

/* @limit_ms: of a tenant's document. */
static void want(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid,
                 uint64_t version, uint64_t limit_ms)
{
	struct ctl_rollout *r = ctl_rollout_get(a, kind, uid, true);

	if (!r) {
		log_error("out of memory: agent %s is told later", a->obj->name);
		link_end(a->link, ROS2_BUSY, "out of memory");
		return;
	}
	r->limit_ms = MAX(r->limit_ms, limit_ms);
	r->mark = a->sync_mark;
	if (r->leaving) { /* told to remove it, and to have it again */
		r->leaving = false;
		r->sent = 0;
		list_del(&r->unacked);
	}
	if (r->sent == version)
		return;
	r->sent = version;
	outbox_push(a, r);
}

/* One whose revocation is not durable stays as the agent has it: of a version that a start may give
 * to another document it hears nothing. */
static void want_tenant(struct ctl_agent *a, const struct ctl_object *tenant)
{
	struct ctl_rollout *r;

	if (!tenant->untold) {
		want(a, STORE_TENANT, &tenant->uid, tenant->version,
		     tenant->policy.limits.contact_limit_ms);
		return;
	}
	r = ctl_rollout_find(a, STORE_TENANT, &tenant->uid);
	if (r)
		r->mark = a->sync_mark;
}

static void want_engines(struct ctl_agent *a, const struct ctl_object *tenant)
{
	struct policy_namespace ns;

	for (uint32_t i = 0; i < tenant->policy.n_namespaces; i++) {
		struct ctl_object *e;

		if (policy_namespace_at(&tenant->policy, i, &ns) < 0)
			continue;
		e = ctl_find(a->ctl, STORE_ENGINE, ns.engine);
		if (e)
			want(a, STORE_ENGINE, &e->uid, e->version, 0);
	}
}

struct removals {
	struct link_have v[REMOVALS_MAX];
	struct ctl_rollout *tenants[REMOVALS_MAX];
	size_t n, n_tenants;
	bool gone; /* tenants that are no more */
};

/* What it was told to remove the agent has until it says that it did: whoever revokes such a tenant
 * meanwhile has to hear of it. */
static void removals_flush(struct ctl_agent *a, struct removals *m)
{
	uint64_t nonce = m->n ? link_removals(a->link, m->v, m->n) : 0;

	for (size_t i = 0; i < m->n_tenants; i++) {
		struct ctl_rollout *r = m->tenants[i];

		r->leaving = true;
		r->nonce = nonce;
		list_del(&r->waiting);
		list_del(&r->unacked);
		list_add_tail(&a->unacked, &r->unacked);
	}
	if (m->gone)
		a->gone_nonce = nonce;
	m->n = m->n_tenants = 0;
	m->gone = false;
}

/* Of what an agent makes up nothing is kept: only a tenant that there is can be revoked. But the
 * agent can, and by the limit of one that was deleted it may act yet. */
static void leave_out(struct ctl_agent *a, struct ctl_rollout *r, struct removals *m)
{
	if (r->sent && r->key.kind == STORE_TENANT) {
		a->gone_limit_ms = MAX(a->gone_limit_ms, r->limit_ms);
		m->gone = true;
	}
	entry_free(a, r);
}

static void send_removals(struct ctl_agent *a)
{
	struct removals m;
	struct ctl_rollout *r, *tmp;

	m.n = m.n_tenants = 0;
	m.gone = false;
	HASH_ITER (hh, a->rollout, r, tmp) {
		if (r->mark == a->sync_mark || r->leaving)
			continue;
		if (r->sent)
			m.v[m.n++] = all_of(r);
		if (r->sent && tenant_of(a, r))
			m.tenants[m.n_tenants++] = r;
		else
			leave_out(a, r, &m);
		if (m.n == REMOVALS_MAX)
			removals_flush(a, &m);
	}
	removals_flush(a, &m);
}

/* Engines, then tenants, then grants: what something needs goes before it. */
void ctl_rollout_sync(struct ctl_agent *a)
{
	struct ctl_object *o, *tmp;
	struct ctl_grant *g;

	/* Cut off: its stream stands until the receipt, for what takes away only. */
	if (!a->link || ctl_agent_cut_off(a))
		return;
	a->sync_mark++;
	HASH_ITER (by_key, a->ctl->by_key, o, tmp)
		if (o->kind == STORE_TENANT && ctl_placed(o, a))
			want_engines(a, o);
	HASH_ITER (by_key, a->ctl->by_key, o, tmp)
		if (o->kind == STORE_TENANT && ctl_placed(o, a))
			want_tenant(a, o);
	list_for_each (&a->grants, g, of_agent) {
		struct ctl_rollout *r = ctl_rollout_get(a, STORE_GRANT, &g->uid, false);

		if (g->given_back || g->overdue)
			continue;
		if (g->phase == CTL_GRANT_LIVE && !g->ending)
			want(a, STORE_GRANT, &g->uid, g->t.version, 0);
		else if (r)
			r->mark = a->sync_mark;
	}
	send_removals(a);
}

void ctl_rollout_sync_all(struct ctl *c)
{
	struct ctl_object *o, *tmp;

	if (!c->agents_connected)
		return;
	HASH_ITER (by_key, c->by_key, o, tmp)
		if (o->agent && o->agent->link)
			ctl_rollout_sync(o->agent);
}

/* ---- what the agent says ---- */

void ctl_rollout_acked(struct ctl_agent *a, uint64_t nonce)
{
	if (nonce >= a->gone_nonce)
		a->gone_limit_ms = 0;
	while (!list_empty(&a->unacked)) {
		struct ctl_rollout *r = list_first(&a->unacked, struct ctl_rollout, unacked);

		if (r->nonce > nonce)
			return;
		r->received = r->sent;
		list_del(&r->unacked);
		if (r->leaving)
			entry_free(a, r);
		else
			settle_limit(a, r);
	}
}

/* It was never sent that, nor is it to have it: a tenant that is placed elsewhere, another agent, a
 * grant of another one. */
static bool is_anothers(const struct ctl_agent *a, const struct ros2_uid *uid)
{
	const struct ctl_object *o = ctl_find_uid(a->ctl, uid);
	const struct ctl_grant *g = ctl_grant_find(a->ctl, uid);

	return (o && o->kind == STORE_TENANT && !ctl_placed(o, a)) ||
	       (o && o->agent && o->agent != a) || (g && g->agent != a);
}

void ctl_rollout_state(struct ctl_agent *a, enum store_kind kind, const struct ros2_uid *uid,
                       uint64_t version, bool applied, const char *reason)
{
	struct ctl_rollout *r = ctl_rollout_get(a, kind, uid, CTL_SWITCH(no_state_owner));
	bool failed = !applied && reason && *reason;

	if (!r && is_anothers(a, uid))
		ctl_agent_claim(a, "how far something came that it was never sent");
	if (!r || version > a->ctl->revision)
		return;
	r->received = MAX(r->received, version);
	if (applied)
		r->applied = MAX(r->applied, version);
	settle_limit(a, r);
	if (version < r->failed)
		return;
	free(r->failed_reason);
	r->failed_reason = failed ? strdup(reason) : NULL;
	r->failed = failed ? version : 0;
}
