/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking rights away, and knowing that it happened.
 *
 *   per agent: OWED ──receipt, some draining──▶ DRAINING ──receipt, none──▶ CONFIRMED
 *                └──────────────receipt, none draining─────────▶
 *
 * Invariants: (1) the right is dead in memory as soon as the transaction is on its way, before its
 * commit; (2) it is sent after the commit, or when the store says that the record must wait for
 * space (rule 10), or when it does not take the record now: then the record is tried again each
 * second, and until it is through nothing gives the right back; (3) a revocation is sent again at
 * every connection until its receipt is durable here; (4) an agent that is not heard of ends at
 * until_ns at the latest, which the answer states.
 */
#include "controller/revoke_priv.h"
#include "controller/test_switches.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define RECORD_AGAIN_MS 1000
#define SENT_BEFORE     UINT64_MAX /* perhaps, by another process: no stream has that number */

struct ctl_waiter {
	struct ctl *c;
	struct ctl_revocation *rev; /* borrowed: it owns us */
	ctl_revoke_fn fn;
	void *arg;
	uint32_t wait_ms;
	struct ros2_uid close_agent; /* isolated: its stream is ended with the answer */
	bool close;
	struct loop_timer timer;
};

static void owed_free(struct ctl_owed *o)
{
	list_del(&o->link);
	free(o->pending);
	free(o);
}

void revoke_free(struct ctl *c, struct ctl_revocation *r)
{
	struct ctl_owed *o, *tmp;

	if (HASH_TOOK(hh, r))
		HASH_DEL(c->revocations, r);
	if (HASH_TOOK(by_target, r))
		HASH_DELETE(by_target, c->by_target, r);
	list_for_each_safe (&r->owed, o, tmp, link)
		owed_free(o);
	if (r->waiter)
		loop_timer_stop(&r->waiter->timer);
	loop_timer_stop(&r->unrecorded.again);
	free(r->waiter);
	free(r);
}

/* At the end of the process: whoever waits is told. */
void ctl_revocations_free(struct ctl *c)
{
	struct ctl_revocation *r, *tmp;
	struct ctl_revoke_result none = {0};
	struct ros2_err err = ROS2_ERR_INIT;

	ros2_err_named(&err, ROS2_UNAVAILABLE,
	               "the controller is stopping: the revocation holds, receipts come later");
	HASH_ITER (hh, c->revocations, r, tmp) {
		if (r->unrecorded.is)
			log_error("revocation of %s %s: never recorded here; its agents keep it",
			          ctl_kind_to_str(r->kind), r->name);
		if (r->waiter)
			r->waiter->fn(r->waiter->arg, &err, &none);
		revoke_free(c, r);
	}
}

static void set_until(struct ctl_owed *o, const struct ctl_agent *a)
{
	o->until_ns = MIN(ctl_contact_until_ns(a, o->limit_ms), o->at_most_ns);
}

static struct ctl_owed *owe(struct ctl_revocation *r, const struct ctl_agent *a, uint64_t limit_ms,
                            uint64_t at_most)
{
	struct ctl_owed *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->agent_uid = a->obj->uid;
	snprintf(o->agent, sizeof(o->agent), "%s", a->obj->name);
	o->limit_ms = limit_ms;
	o->at_most_ns = at_most;
	set_until(o, a);
	list_add_tail(&r->owed, &o->link);
	return o;
}

static bool all_confirmed(const struct ctl_revocation *r)
{
	const struct ctl_owed *o;

	list_for_each (&r->owed, o, link)
		if (o->state != CTL_CONFIRMED)
			return false;
	return true;
}

bool revoke_is_over(const struct ctl_revocation *r)
{
	return !r->waiter && !r->unrecorded.is && all_confirmed(r);
}

/* ---- the answer ---- */

static void answer(struct ctl_revocation *r)
{
	struct ctl_waiter *w = r->waiter;
	struct ctl_revoke_result res = {.rev = r, .replied_ns = clock_boottime_ns()};
	struct ros2_err none = ROS2_ERR_INIT;
	struct ctl_agent *a;

	if (!w)
		return;
	r->waiter = NULL;
	loop_timer_stop(&w->timer);
	a = w->close ? ctl_agent_uid(w->c, &w->close_agent) : NULL;
	if (a && a->link)
		link_end(a->link, ROS2_REVOKED, "the agent is isolated");
	w->fn(w->arg, &none, &res);
	if (revoke_is_over(r))
		revoke_free(w->c, r);
	free(w);
}

static void waited(void *arg)
{
	answer(arg);
}

static void refuse(struct ctl *c, ctl_revoke_fn fn, void *arg, const struct ros2_err *err)
{
	struct ctl_revoke_result none = {0};

	ctl_gate_leave(c);
	fn(arg, err, &none);
}

/* ---- whom it concerns ---- */

static bool may_have_any(const struct ctl_agent *a, uint64_t contact_limit_ms)
{
	return ctl_agent_unheard(a) &&
	       ctl_contact_until_ns(a, contact_limit_ms) > clock_boottime_ns();
}

static int owe_tenant(struct ctl *c, struct ctl_revocation *r, const struct ctl_object *tenant)
{
	struct ctl_object *o, *tmp;

	HASH_ITER (by_key, c->by_key, o, tmp) {
		struct ctl_agent *a = o->agent;
		uint64_t limit_ms;

		if (!a || !a->enrolled)
			continue;
		limit_ms = ctl_contact_limit_ms(tenant, a);
		if (!ctl_placed(tenant, a) && !ctl_rollout_find(a, STORE_TENANT, &tenant->uid) &&
		    !may_have_any(a, limit_ms))
			continue;
		if (!owe(r, a, limit_ms, UINT64_MAX))
			return -ENOMEM;
	}
	return 0;
}

int revoke_owe(struct ctl_revocation *r, struct ctl_agent *a, uint64_t at_most)
{
	if (!a->enrolled)
		return 0;
	return owe(r, a, ctl_agent_contact_limit_ms(a), at_most) ? 0 : -ENOMEM;
}

static int set_target(struct ctl *c, struct ctl_revocation *r, const struct ctl_revoke *v)
{
	struct ctl_grant *g = v->grant;
	int rc = 0;

	switch (v->kind) {
	case STORE_TENANT:
		r->target_uid = r->tenant_uid = v->object->uid;
		snprintf(r->name, sizeof(r->name), "%s", v->object->name);
		snprintf(r->tenant, sizeof(r->tenant), "%s", v->object->name);
		return owe_tenant(c, r, v->object);
	case STORE_AGENT:
		r->target_uid = v->object->uid;
		snprintf(r->name, sizeof(r->name), "%s", v->object->name);
		return revoke_owe(r, v->object->agent, UINT64_MAX);
	case STORE_GRANT:
		r->target_uid = g->uid;
		r->tenant_uid = g->tenant->uid;
		snprintf(r->name, sizeof(r->name), "%s", g->principal);
		snprintf(r->tenant, sizeof(r->tenant), "%s", g->tenant->name);
		return revoke_owe(r, g->agent, g->t.latest_ns);
	case STORE_SESSION:
		r->target_uid = v->session;
		for (size_t i = 0; i < v->n_session_agents && !rc; i++) {
			struct ctl_agent *a = ctl_agent_uid(c, &v->session_agents[i]);

			rc = a ? revoke_owe(r, a, UINT64_MAX) : 0;
		}
		return rc;
	default:
		return -EINVAL;
	}
}

/* ---- rows and records ---- */

static void add_rows(struct ctl *c, struct store_txn *t, const struct ctl_revocation *r)
{
	const struct ctl_owed *o;

	store_txn_add(t, STORE_REVOCATION_PUT)->revocation =
		(struct store_revocation){.uid = r->uid,
	                                  .kind = r->kind,
	                                  .target_uid = r->target_uid,
	                                  .target_name = store_txn_str(t, r->name),
	                                  .version = r->version,
	                                  .created_unix_ns = r->created_unix_ns,
	                                  .reason = store_txn_str(t, r->reason)};
	list_for_each (&r->owed, o, link)
		store_txn_add(t, STORE_RECEIPT_PUT)->receipt =
			(struct store_receipt){.revocation_uid = r->uid, .agent_uid = o->agent_uid};
	store_txn_set_revision(t, r->version);
	store_txn_set_shrinks(t);
}

static void add_state(struct ctl *c, struct store_txn *t, const struct ctl_revocation *r,
                      const struct ctl_revoke *v)
{
	struct store_grant end = {.state = STORE_GRANT_REVOKED,
	                          .ended_unix_ns = clock_unix_ns(),
	                          .version = r->version};

	/* An object that was deleted since, or whose right is another's by now, has nothing to
	 * end, nor has a grant that was given since: that only happens when the record comes late.
	 */
	if (v->kind == STORE_TENANT && (!v->object || v->object->revoked_version > r->version))
		return;
	if (v->kind == STORE_AGENT && !v->object)
		return;
	if (v->kind == STORE_TENANT) {
		struct store_object *row = &store_txn_add(t, STORE_OBJECT_PUT)->object;

		ctl_object_row(t, v->object, row);
		row->version = MAX(row->version, r->version);
		row->revoked_version = r->version;
		row->revoked = true;
		row->state_reason = store_txn_str(t, r->reason);
		row->state_since_unix_ns = r->created_unix_ns;
		end.tenant_uid = v->object->uid;
		store_txn_add(t, STORE_GRANTS_END_TENANT)->grant = end;
	} else if (v->kind == STORE_AGENT) {
		if (v->isolate) {
			struct store_agent *row = &store_txn_add(t, STORE_AGENT_PUT)->agent;

			ctl_agent_row(t, v->object->agent, row);
			row->isolated = true;
			row->isolated_reason = store_txn_str(t, r->reason);
			row->isolated_since_unix_ns = r->created_unix_ns;
		}
		end.agent_uid = v->object->uid;
		store_txn_add(t, STORE_GRANTS_END_AGENT)->grant = end;
	} else if (v->kind == STORE_GRANT) {
		end.uid = r->target_uid;
		store_txn_add(t, STORE_GRANT_END)->grant = end;
	}
}

static struct store_draft *add_record(struct ctl *c, struct store_txn *t,
                                      const struct ctl_caller *who, const struct ctl_revocation *r,
                                      const struct ctl_revoke *v)
{
	char action[32];
	struct store_draft *d;

	snprintf(action, sizeof(action), "%s.%s", ctl_kind_to_str(v->kind),
	         v->isolate ? "isolate" : "revoke");
	d = ctl_audit(t, who, action, v->kind, r->name, &r->target_uid);
	d->reason = store_txn_str(t, r->reason);
	d->policy_version = r->version;
	d->tenant = store_txn_str(t, r->tenant);
	d->tenant_uid = r->tenant_uid;
	store_draft_detail(t, d, "revocation", store_txn_uid(t, &r->uid));
	return d;
}

/* The right is gone, from here on. */
static void take_away(struct ctl *c, const struct ctl_revocation *r, const struct ctl_revoke *v)
{
	if (v->kind == STORE_TENANT) {
		struct ctl_object *o = v->object;

		o->revoked = true;
		o->version = o->revoked_version = r->version;
		o->state_since_unix_ns = r->created_unix_ns;
		snprintf(o->reason, sizeof(o->reason), "%s", r->reason);
		ctl_grants_kill_tenant(o, r->version);
	} else if (v->kind == STORE_AGENT) {
		struct ctl_agent *a = v->object->agent;

		if (v->isolate) {
			a->isolated = true;
			a->isolated_since_unix_ns = r->created_unix_ns;
			snprintf(a->isolated_reason, sizeof(a->isolated_reason), "%s", r->reason);
		}
		a->deleting |= v->remove;
		ctl_grants_kill_agent(a, r->version);
	} else if (v->kind == STORE_GRANT) {
		ctl_grant_kill(v->grant);
	}
}

/* ---- doing it ---- */

/* Until here beats were answered, and each gave time. From here on the answers come behind it. */
static void send_to_agents(struct ctl *c, struct ctl_revocation *r)
{
	struct ctl_object *target = ctl_find_uid(c, &r->target_uid);
	struct ctl_owed *o;

	r->sent = true;
	if (target)
		target->untold = false;
	list_for_each (&r->owed, o, link) {
		struct ctl_agent *a = ctl_agent_uid(c, &o->agent_uid);

		if (a)
			set_until(o, a);
		if (a && a->link)
			revoke_tell(o, a, r);
	}
	if (r->kind == STORE_TENANT)
		ctl_rollout_sync_all(c);
}

/* @why: what the record waits for; NULL: it is through. */
static void effective(struct ctl_revocation *r, uint64_t at_ns, const struct ros2_err *why)
{
	struct ctl_waiter *w = r->waiter;
	struct ctl *c = w->c;

	r->committed_ns = at_ns;
	r->record_pending = why != NULL;
	if (why)
		log_error("revocation of %s %s is effective, its record waits: %s",
		          ctl_kind_to_str(r->kind), r->name, why->msg);
	send_to_agents(c, r);
	ctl_gate_leave(c);
	if (all_confirmed(r))
		answer(r);
	else
		loop_timer_in_ms(c->loop, &w->timer, w->wait_ms, waited, r);
}

static int submit(struct ctl *c, const struct ctl_caller *who, const struct ctl_revocation *r,
                  const struct ctl_revoke *v, store_done_fn fn, void *arg, struct ros2_err *err)
{
	struct store_txn *t = store_txn_new();
	uint8_t note[STORE_NOTE_MAX];

	store_txn_set_note(t, note, revoke_note_pack(r, who, note), r->unrecorded.slot);
	store_txn_set_order(t, &r->target_uid);
	revoke_set_targets(t, r);
	add_rows(c, t, r);
	add_state(c, t, r, v);
	revoke_supersede_rows(c, t, add_record(c, t, who, r, v), r);
	return store_submit(c->store, t, fn, arg, err);
}

/* ---- a record that the store did not take ---- */

static void record_later(struct ctl_revocation *r);

static void recorded(void *arg, const struct store_result *res)
{
	struct ctl_revocation *r = arg;
	struct ctl *c = r->unrecorded.c;

	/* Without space the store keeps it from here on. */
	r->unrecorded.is = res->rc && !res->record_pending;
	r->record_pending = res->rc != 0;
	if (res->rc)
		log_error("revocation of %s %s: %s", ctl_kind_to_str(r->kind), r->name,
		          res->err.msg);
	else
		log_info("revocation of %s %s is recorded now", ctl_kind_to_str(r->kind), r->name);
	if (r->unrecorded.is)
		record_later(r);
	else if (!res->rc)
		revoke_supersede(c, r);
	ctl_gate_leave(c);
	if (revoke_is_over(r))
		revoke_free(c, r);
}

/* Inside the gate. The rows are made of what is in force now: only what this revocation did. */
static void record_now(void *arg)
{
	struct ctl_revocation *r = arg;
	struct ctl *c = r->unrecorded.c;
	struct ctl_object *o = ctl_find_uid(c, &r->target_uid);
	struct ctl_revoke v = {.kind = r->kind, .object = o, .isolate = r->unrecorded.isolate};
	const struct ctl_caller *who = &r->unrecorded.who;
	struct ros2_err err = ROS2_ERR_INIT;

	/* A record knows the system by its place. */
	if (!strcmp(who->spiffe, ctl_system.spiffe))
		who = &ctl_system;
	if (submit(c, who, r, &v, recorded, r, &err) == 0)
		return;
	ctl_gate_leave(c);
	record_later(r);
}

static void record_again(void *arg)
{
	struct ctl_revocation *r = arg;

	if (ctl_gate_enter_urgent(r->unrecorded.c, record_now, r) < 0)
		record_later(r);
}

static void record_later(struct ctl_revocation *r)
{
	struct ctl *c = r->unrecorded.c;

	loop_timer_in_ms(c->loop, &r->unrecorded.again, RECORD_AGAIN_MS, record_again, r);
}

int ctl_revocation_recorded(const struct ctl *c, const struct ros2_uid *target,
                            struct ros2_err *err)
{
	const struct ctl_revocation *r, *tmp;

	HASH_ITER (hh, c->revocations, r, tmp)
		if (r->unrecorded.is && ros2_uid_eq(&r->target_uid, target))
			return ros2_err_named(err, ROS2_BUSY,
			                      "the revocation of %s is not recorded yet: try again "
			                      "in a moment",
			                      r->name);
	return 0;
}

/* A store that has kept the record commits it when there is space; any other refusal is ours to
 * mend: memory, or a lock of another process on the file. */
static void committed(void *arg, const struct store_result *res)
{
	struct ctl_waiter *w = arg;
	struct ctl_revocation *r = w->rev;

	if (res->rc && !res->record_pending) {
		r->unrecorded.is = true;
		record_later(r);
	}
	if (!res->rc)
		revoke_supersede(w->c, r);
	/* Who waits is told before the process is gone. */
	if (res->ending)
		w->wait_ms = MIN(w->wait_ms, STORE_ENDING_MS / 2);
	effective(r, res->committed_boottime_ns, res->rc ? &res->err : NULL);
}

static struct ctl_revocation *rev_new(struct ctl *c, const struct ctl_revoke *v, ctl_revoke_fn fn,
                                      void *arg)
{
	struct ctl_revocation *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->waiter = calloc(1, sizeof(*r->waiter));
	if (!r->waiter) {
		free(r);
		return NULL;
	}
	list_init(&r->owed);
	r->unrecorded.c = c;
	r->unrecorded.slot = -1;
	r->uid = ros2_uid_new();
	r->kind = v->kind;
	r->version = ++c->revision;
	r->created_unix_ns = clock_unix_ns();
	snprintf(r->reason, sizeof(r->reason), "%s", v->reason);
	r->waiter->c = c;
	r->waiter->rev = r;
	r->waiter->fn = fn;
	r->waiter->arg = arg;
	r->waiter->wait_ms = MIN(v->wait_ms ? v->wait_ms : CTL_WAIT_DEFAULT_MS, CTL_WAIT_MAX_MS);
	r->waiter->close = v->isolate;
	if (v->isolate)
		r->waiter->close_agent = v->object->uid;
	HASH_ADD(hh, c->revocations, uid.b, ROS2_UID_LEN, r);
	if (!HASH_TOOK(hh, r)) {
		revoke_free(c, r);
		return NULL;
	}
	return r;
}

void ctl_revoke(struct ctl *c, const struct ctl_caller *who, const struct ctl_revoke *v,
                ctl_revoke_fn fn, void *arg)
{
	struct ctl_revocation *r = rev_new(c, v, fn, arg);
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = r ? set_target(c, r, v) : -ENOMEM;

	if (rc < 0) {
		ros2_err_set(&err, rc, "out of memory");
		if (r)
			revoke_free(c, r);
		refuse(c, fn, arg, &err);
		return;
	}
	/* Without memory it is never superseded. */
	HASH_ADD(by_target, c->by_target, target_uid.b, ROS2_UID_LEN, r);
	r->unrecorded.isolate = v->isolate;
	r->unrecorded.who = *who;
	rc = submit(c, who, r, v, committed, r->waiter, &err);
	take_away(c, r, v);
	if (v->object)
		v->object->untold = true;
	if (rc == 0)
		return;
	r->unrecorded.is = true;
	record_later(r);
	effective(r, clock_boottime_ns(), &err);
}

/* ---- receipts ---- */

static void record_receipt(struct ctl_agent *a, const struct ctl_revocation *r,
                           const struct ctl_owed *o)
{
	struct ctl_caller who = ctl_agent_caller(a); /* the receipt is what the agent states */
	struct store_txn *t = store_txn_new();
	struct store_draft *d;

	store_txn_add(t, STORE_RECEIPT_PUT)->receipt =
		(struct store_receipt){.revocation_uid = r->uid,
	                               .agent_uid = o->agent_uid,
	                               .durable = o->state == CTL_CONFIRMED,
	                               .sessions = o->sessions,
	                               .leases = o->leases,
	                               .draining = o->draining,
	                               .received_unix_ns = clock_unix_ns()};
	store_txn_set_shrinks(t);
	store_txn_set_order(t, &r->target_uid); /* behind the revocation's own rows */
	d = ctl_audit(t, &who, "revoke.receipt", r->kind, r->name, &r->target_uid);
	d->tenant = store_txn_str(t, r->tenant);
	d->tenant_uid = r->tenant_uid;
	store_draft_detail(t, d, "agent", o->agent);
	store_draft_detail(t, d, "revocation", store_txn_uid(t, &r->uid));
	store_draft_detail(t, d, "sessions", store_txn_fmt(t, "%u", o->sessions));
	store_draft_detail(t, d, "leases", store_txn_fmt(t, "%u", o->leases));
	store_draft_detail(t, d, "windows", store_txn_fmt(t, "%u", o->windows));
	store_draft_detail(t, d, "draining", store_txn_fmt(t, "%u", o->draining));
	store_draft_detail(
		t, d, "commit_to_receipt_ns",
		store_txn_fmt(t, "%llu", (unsigned long long)(o->received_ns - r->committed_ns)));
	store_submit(a->ctl->store, t, NULL, NULL, NULL);
}

void ctl_receipt(struct ctl_agent *a, struct ctl_receipt *in)
{
	struct ctl *c = a->ctl;
	struct ctl_revocation *r;
	struct ctl_owed *o;

	HASH_FIND(hh, c->revocations, in->revocation_uid.b, ROS2_UID_LEN, r);
	o = r && r->sent ? revoke_owed_by(r, &a->obj->uid) : NULL;
	if (r && r->sent && !o)
		ctl_agent_claim(a, "a receipt that another agent owes");
	if (CTL_SWITCH(no_receipt_owner) && r && !list_empty(&r->owed))
		o = list_first(&r->owed, struct ctl_owed, link);
	if (!o || o->state == CTL_CONFIRMED)
		return;
	o->received_ns = clock_boottime_ns();
	o->sessions = MAX(o->sessions, in->sessions);
	o->leases = MAX(o->leases, in->leases);
	o->windows = MAX(o->windows, in->windows);
	o->last_window_ns = MAX(o->last_window_ns, in->last_window_ns);
	o->draining = in->draining;
	free(o->pending);
	o->pending = TAKE_PTR(in->pending);
	o->n_pending = in->n_pending;
	o->pending_left_out = in->pending_left_out;
	o->last_byte_ns = in->last_byte_ns;
	o->last_engine_ns = in->last_engine_ns;
	o->durable_ns = in->durable_ns;
	/* Not durable at the agent: the right is dead there, but a restart might bring it back. It
	 * is asked again at the next connection. */
	o->state = in->durable && !in->draining && !in->n_pending && !in->pending_left_out
	                   ? CTL_CONFIRMED
	                   : CTL_DRAINING;
	/* The first and the last are recorded; between them an agent that never gets done takes at
	 * most one record a second of the reserve that revocations rest on. */
	if (!o->recorded_ns || o->state == CTL_CONFIRMED ||
	    o->received_ns - o->recorded_ns >= NS_PER_S) {
		o->recorded_ns = o->received_ns;
		record_receipt(a, r, o);
	}
	if (!all_confirmed(r))
		return;
	if (r->waiter)
		answer(r);
	else if (revoke_is_over(r))
		revoke_free(c, r);
}

void ctl_revocations_forget(struct ctl *c, const struct ros2_uid *agent_uid)
{
	struct ctl_revocation *r, *tmp;

	HASH_ITER (hh, c->revocations, r, tmp) {
		struct ctl_owed *o = revoke_owed_by(r, agent_uid);

		if (o)
			owed_free(o);
		if (revoke_is_over(r))
			revoke_free(c, r);
	}
}

/* ---- loading ---- */

int ctl_revocation_load(struct ctl *c, const struct store_revocation *row)
{
	struct ctl_revocation *r = calloc(1, sizeof(*r));
	const struct ctl_object *o = ctl_find_uid(c, &row->target_uid);

	if (!r)
		return -ENOMEM;
	r->unrecorded.slot = -1;
	list_init(&r->owed);
	r->uid = row->uid;
	r->kind = row->kind;
	r->target_uid = row->target_uid;
	r->version = row->version;
	r->created_unix_ns = row->created_unix_ns;
	r->committed_ns = c->started_ns;
	r->sent = true;
	snprintf(r->name, sizeof(r->name), "%s", row->target_name);
	snprintf(r->reason, sizeof(r->reason), "%s", row->reason);
	if (row->kind == STORE_TENANT && o) {
		r->tenant_uid = o->uid;
		snprintf(r->tenant, sizeof(r->tenant), "%s", o->name);
	}
	HASH_ADD(hh, c->revocations, uid.b, ROS2_UID_LEN, r);
	if (!HASH_TOOK(hh, r)) {
		revoke_free(c, r);
		return -ENOMEM;
	}
	return 0;
}

int revoke_adopt(struct ctl *c, struct ctl_revocation *r, const struct ctl_revoke *v, int slot)
{
	struct ctl_owed *o;

	r->unrecorded.c = c;
	r->unrecorded.is = true;
	r->unrecorded.slot = slot;
	list_for_each (&r->owed, o, link)
		o->stream = SENT_BEFORE;
	r->committed_ns = c->started_ns;
	r->sent = r->record_pending = true;
	HASH_ADD(hh, c->revocations, uid.b, ROS2_UID_LEN, r);
	if (!HASH_TOOK(hh, r)) {
		revoke_free(c, r);
		return -ENOMEM;
	}
	/* Its version was given out, although no row has it. */
	c->revision = MAX(c->revision, r->version);
	if ((v->kind == STORE_TENANT && v->object && v->object->kind == STORE_TENANT &&
	     v->object->revoked_version < r->version) ||
	    (v->kind == STORE_AGENT && v->object && v->object->agent) ||
	    (v->kind == STORE_GRANT && v->grant))
		take_away(c, r, v);
	log_warn("revocation of %s %s was carried out without a record: it holds, and is recorded",
	         ctl_kind_to_str(r->kind), r->name);
	return 0;
}

int ctl_note_load(struct ctl *c, const void *note, size_t n, int slot)
{
	struct ctl_revocation *r, *same;
	struct ctl_revoke v = {0};
	int rc = revoke_note_unpack(c, note, n, &r);

	if (rc < 0)
		return rc;
	HASH_FIND(hh, c->revocations, r->uid.b, ROS2_UID_LEN, same);
	if (same) { /* a write that failed had arrived all the same, and another place was taken */
		revoke_free(c, r);
		return 1;
	}
	v.kind = r->kind;
	v.isolate = r->unrecorded.isolate;
	v.object = ctl_find_uid(c, &r->target_uid);
	v.grant = ctl_grant_find(c, &r->target_uid);
	return revoke_adopt(c, r, &v, slot);
}

void ctl_revocations_start(struct ctl *c)
{
	struct ctl_revocation *r, *tmp;

	HASH_ITER (hh, c->revocations, r, tmp)
		if (r->unrecorded.is)
			record_again(r);
}

int ctl_receipt_load(struct ctl *c, const struct store_receipt *row)
{
	struct ctl_agent *a = ctl_agent_uid(c, &row->agent_uid);
	struct ctl_revocation *r;
	struct ctl_owed *o;

	HASH_FIND(hh, c->revocations, row->revocation_uid.b, ROS2_UID_LEN, r);
	if (!r || !a || row->durable)
		return 0;
	o = owe(r, a, ctl_agent_contact_limit_ms(a), UINT64_MAX);
	if (!o)
		return -ENOMEM;
	o->stream = SENT_BEFORE;
	o->sessions = row->sessions;
	o->leases = row->leases;
	o->draining = row->draining;
	return 0;
}
