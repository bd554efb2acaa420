/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocations that were answered when the journal had no slot left, after a restart: nobody knows
 * them any more, but a filter of what they are about is there (store_doubt.c). Each right in force
 * that it names is taken away here, as if somebody had asked for it, and recorded so. Loop thread.
 */
#include "controller/revoke_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

/* Kinds of the filter that are no kinds of objects. */
#define DOUBT_ISOLATED   (STORE_AGENT | 0x100u)
#define DOUBT_SESSION_AT (STORE_SESSION | 0x100u) /* of an agent: sessions are not known here */

#define WORDS                                                                                      \
	"in doubt: revocations were answered that the disk had no place for, and this may be one " \
	"of them"

void revoke_set_targets(struct store_txn *t, const struct ctl_revocation *r)
{
	const struct ctl_owed *o;

	if (r->kind != STORE_SESSION)
		store_txn_add_target(
			t,
			r->kind == STORE_AGENT && r->unrecorded.isolate ? DOUBT_ISOLATED : r->kind,
			&r->target_uid);
	else
		list_for_each (&r->owed, o, link)
			store_txn_add_target(t, DOUBT_SESSION_AT, &o->agent_uid);
}

/* Every agent owes it: who was told is not known. */
static int owe_all(struct ctl *c, struct ctl_revocation *r)
{
	struct ctl_object *o, *tmp;
	int rc = 0;

	HASH_ITER (by_key, c->by_key, o, tmp)
		if (o->agent)
			rc |= revoke_owe(r, o->agent, UINT64_MAX);
	return rc;
}

static int take(struct ctl *c, const struct ctl_revoke *v)
{
	const struct ctl_object *tenant = v->grant ? v->grant->tenant : v->object;
	struct ctl_revocation *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	list_init(&r->owed);
	r->uid = ros2_uid_new();
	r->kind = v->kind;
	r->target_uid = v->grant ? v->grant->uid : v->object->uid;
	r->version = c->revision + 1;
	r->created_unix_ns = clock_unix_ns();
	snprintf(r->name, sizeof(r->name), "%s", v->grant ? v->grant->principal : v->object->name);
	snprintf(r->reason, sizeof(r->reason), "%s", v->reason);
	if (v->kind != STORE_AGENT) {
		r->tenant_uid = tenant->uid;
		snprintf(r->tenant, sizeof(r->tenant), "%s", tenant->name);
	}
	r->unrecorded.isolate = v->isolate;
	r->unrecorded.who = ctl_system;
	rc = owe_all(c, r);
	/* From here on nothing empties the filter before this one is recorded. */
	if (!rc)
		rc = store_doubt_owe(c->store, &r->uid);
	if (!rc)
		return revoke_adopt(c, r, v, -1);
	revoke_free(c, r);
	return rc;
}

static int look_at_object(struct ctl *c, struct ctl_object *o)
{
	struct ctl_revoke v = {.kind = o->kind, .object = o, .reason = WORDS};
	const struct ctl_agent *a = o->agent;

	if (o->kind == STORE_TENANT && !o->revoked && store_doubts(c->store, o->kind, &o->uid))
		return take(c, &v);
	if (!a)
		return 0;
	v.isolate = !a->isolated && store_doubts(c->store, DOUBT_ISOLATED, &o->uid);
	if (v.isolate || store_doubts(c->store, STORE_AGENT, &o->uid) ||
	    store_doubts(c->store, DOUBT_SESSION_AT, &o->uid))
		return take(c, &v);
	return 0;
}

int ctl_doubt_load(struct ctl *c)
{
	struct ctl_object *o, *otmp;
	struct ctl_grant *g, *gtmp;
	int rc = 0;

	c->revision = MAX(c->revision, store_doubt_revision(c->store));
	/* One by one first: a tenant's revocation ends its grants. */
	HASH_ITER (hh, c->grants, g, gtmp) {
		struct ctl_revoke v = {.kind = STORE_GRANT, .grant = g, .reason = WORDS};

		if (!rc && store_doubts(c->store, STORE_GRANT, &g->uid))
			rc = take(c, &v);
	}
	HASH_ITER (by_key, c->by_key, o, otmp)
		if (!rc)
			rc = look_at_object(c, o);
	return rc;
}
