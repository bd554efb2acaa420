/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grants: the decision that a principal of a tenant may hold keys at one agent, for a time.
 *
 *   (request) ─▶ ISSUING ──committed──▶ LIVE ──expired │ released │ revoked──▶ DEAD
 *                   └──revoked meanwhile, or no space──▶ DEAD
 *
 * Invariants: (1) a grant is sent only after its row and its record are durable; (2) a right that
 * was taken away is gone from memory at once, its row follows, and before that is at the store
 * nothing is committed that might allow it again; (3) the controller counts the end from the commit
 * plus 0.1 %, the agent from its own earlier stamp, so the agent's end is never later.
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define RETRY_NS      (1 * NS_PER_S)
#define RETRY_FULL_NS (10 * NS_PER_S) /* the store took the record, and refused it */
#define ENDS_MAX      256             /* of one transaction */
#define WORD_(x)      #x
#define WORD(x)       WORD_(x)

struct ctl_grant *ctl_grant_find(struct ctl *c, const struct ros2_uid *uid)
{
	struct ctl_grant *g;

	HASH_FIND(hh, c->grants, uid->b, ROS2_UID_LEN, g);
	return g;
}

size_t ctl_grants_live(const struct ctl *c)
{
	return HASH_CNT(hh, c->grants);
}

static struct ctl_slot *slot_get(struct ctl *c, const struct ros2_uid *tenant,
                                 const struct ros2_uid *agent, bool make)
{
	struct ctl_slot *s, key;

	key.key.tenant = *tenant;
	key.key.agent = *agent;
	HASH_FIND(hh, c->slots, &key.key, sizeof(key.key), s);
	if (s || !make)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = key.key;
	HASH_ADD(hh, c->slots, key, sizeof(s->key), s);
	if (!HASH_TOOK(hh, s)) {
		free(s);
		return NULL;
	}
	return s;
}

/* Without grants it goes. */
static void slot_put(struct ctl *c, struct ctl_slot *s)
{
	if (!s || s->n)
		return;
	HASH_DEL(c->slots, s);
	free(s);
}

/* ---- memory ---- */

static void grant_unref(struct ctl_grant *g)
{
	if (g->phase != CTL_GRANT_DEAD || g->in_flight || g->owes_end)
		return;
	free(g->principal);
	free(g);
}

/* What it owed is at the store, or nobody is there any more to whom. */
static void left_end(struct ctl_grant *g)
{
	list_del(&g->of_tenant);
	g->owes_end = false;
	grant_unref(g);
}

static struct ctl_grant *grant_new(struct ctl_object *tenant, struct ctl_agent *a,
                                   const struct ros2_uid *uid, const char *principal)
{
	struct ctl *c = a->ctl;
	struct ctl_grant *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->uid = *uid;
	g->principal = strdup(principal);
	g->slot = slot_get(c, &tenant->uid, &a->obj->uid, true);
	if (g->principal && g->slot)
		HASH_ADD(hh, c->grants, uid.b, ROS2_UID_LEN, g);
	if (!HASH_TOOK(hh, g)) {
		slot_put(c, g->slot);
		free(g->principal);
		free(g);
		return NULL;
	}
	g->ctl = c;
	g->tenant = tenant;
	g->agent = a;
	g->slot->n++;
	tenant->n_grants++;
	a->n_grants++;
	list_add_tail(&a->grants, &g->of_agent);
	list_add_tail(&tenant->grants, &g->of_tenant);
	return g;
}

/* Whether the agent's stream is still the one on which it was asked for. On another one the number
 * of the request may be another's: a process that began anew counts from 1. */
static bool asker_is_there(const struct ctl_grant *g)
{
	return g->stream == g->agent->stream;
}

static void set_ending(struct ctl_grant *g, bool is)
{
	if (g->slot)
		g->slot->ending = g->slot->ending + is - g->ending;
	g->ending = is;
}

/* What the agent was told of it stays to be taken back by the next synchronisation, which tells of
 * many at once; but who waits for it is told now. */
static void leave_rollout(const struct ctl_grant *g)
{
	const struct ctl_rollout *r = ctl_rollout_find(g->agent, STORE_GRANT, &g->uid);

	if (r && r->reply)
		ctl_rollout_drop(g->agent, STORE_GRANT, &g->uid);
}

static void kill_grant(struct ctl_grant *g, bool sync_follows)
{
	struct ctl *c = g->ctl;

	if (g->phase == CTL_GRANT_DEAD)
		return;
	if (g->phase == CTL_GRANT_ISSUING && g->in_flight && g->agent->link && asker_is_there(g))
		link_grant_denied(g->agent->link, g->request_id, ROS2_REVOKED,
		                  "the right was withdrawn while it was being given");
	g->phase = CTL_GRANT_DEAD;
	loop_timer_stop(&g->expiry);
	list_del(&g->of_agent);
	list_del(&g->of_tenant);
	HASH_DEL(c->grants, g);
	g->tenant->n_grants--;
	g->agent->n_grants--;
	ctl_grant_left(g);
	set_ending(g, false);
	g->slot->n--;
	slot_put(c, g->slot);
	if (sync_follows)
		leave_rollout(g);
	else
		ctl_rollout_drop(g->agent, STORE_GRANT, &g->uid);
	g->tenant = NULL;
	g->agent = NULL;
	g->slot = NULL;
	grant_unref(g);
}

void ctl_grant_kill(struct ctl_grant *g)
{
	kill_grant(g, false);
}

void ctl_grants_kill_agent(struct ctl_agent *a, uint64_t version)
{
	struct ctl_grant *g, *tmp;

	list_for_each_safe (&a->grants, g, tmp, of_agent)
		if (g->t.version <= version)
			ctl_grant_kill(g);
}

void ctl_grants_kill_tenant(const struct ctl_object *tenant, uint64_t version)
{
	struct ctl_grant *g, *tmp;

	list_for_each_safe (&tenant->grants, g, tmp, of_tenant)
		if (g->t.version <= version)
			ctl_grant_kill(g);
}

void ctl_grants_free(struct ctl *c)
{
	struct ctl_grant *g, *tmp;

	loop_timer_stop(&c->ends_timer);
	HASH_ITER (hh, c->grants, g, tmp) {
		g->in_flight = 0;
		ctl_grant_kill(g);
	}
	list_for_each_safe (&c->ends, g, tmp, of_tenant) {
		g->in_flight = 0;
		left_end(g);
	}
}

/* ---- rows and records ---- */

static void grant_row(struct store_txn *t, const struct ctl_grant *g, const struct ctl_terms *terms)
{
	struct store_grant *row = &store_txn_add(t, STORE_GRANT_PUT)->grant;

	*row = (struct store_grant){
		.uid = g->uid,
		.tenant_uid = g->tenant->uid,
		.agent_uid = g->agent->obj->uid,
		.principal = store_txn_str(t, g->principal),
		.version = terms->version,
		.max_keys = terms->max_keys,
		.access = terms->access,
		.max_bytes = terms->max_bytes,
		.lifetime_ms = terms->lifetime_ms,
		.policy_version = terms->policy_version,
		.epoch_counter = terms->epoch_counter,
		.issued_unix_ns = g->issued_unix_ns,
		.expires_unix_ns = terms->expires_unix_ns,
		.from_boottime_ns = terms->from.boottime_ns,
		.state = STORE_GRANT_LIVE,
	};
	memcpy(row->from_boot_id, terms->from.boot_id, 16);
	store_txn_set_revision(t, terms->version);
}

static struct store_draft *grant_record(struct store_txn *t, const struct ctl_grant *g,
                                        const struct ctl_caller *who, const char *action)
{
	struct store_draft *d = ctl_audit(t, who, action, STORE_GRANT, g->principal, &g->uid);

	ctl_audit_tenant(t, d, g->tenant);
	d->policy_version = g->renewing ? g->next.policy_version : g->t.policy_version;
	store_draft_detail(t, d, "agent", g->agent->obj->name);
	return d;
}

static uint64_t life_ns(uint64_t lifetime_ms)
{
	uint64_t ns = lifetime_ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : lifetime_ms * NS_PER_MS;

	return clock_add_ns(ns, ns / 1000);
}

static void set_terms(const struct ctl_grant *g, struct ctl_terms *t,
                      const struct clock_stamp *from)
{
	const struct policy_limits *l = &g->tenant->policy.limits;
	uint64_t life = life_ns(l->grant_lifetime_ms);

	t->version = ++g->ctl->revision;
	t->from = *from;
	t->max_keys = l->leases_max;
	t->max_bytes = l->registered_bytes;
	t->access = l->region_access;
	t->lifetime_ms = l->grant_lifetime_ms;
	t->policy_version = g->tenant->version;
	t->epoch_counter = g->ctl->epoch.counter;
	t->expires_ns = clock_add_ns(clock_boottime_ns(), life);
	t->latest_ns = MAX(t->expires_ns, g->t.latest_ns);
	t->expires_unix_ns = clock_add_ns(clock_unix_ns(), life);
}

/* ---- the end of a grant ---- */

static const char *end_action(enum store_grant_state s)
{
	return s == STORE_GRANT_EXPIRED ? "grant.expire" : "grant.release";
}

static void end_row(struct store_txn *t, const struct ctl_grant *g, enum store_grant_state s)
{
	store_txn_add(t, STORE_GRANT_END)->grant =
		(struct store_grant){.uid = g->uid, .state = s, .ended_unix_ns = clock_unix_ns()};
}

static void on_expiry(void *arg);

static void ended(void *arg, const struct store_result *r)
{
	struct ctl_grant *g = arg;

	ctl_grant_waited(g);
	set_ending(g, false);
	if (g->phase == CTL_GRANT_DEAD) {
		grant_unref(g);
		return;
	}
	if (r->rc < 0)
		loop_timer_at(g->ctl->loop, &g->expiry, clock_boottime_ns() + RETRY_FULL_NS,
		              on_expiry, g);
	else
		ctl_grant_kill(g);
}

/* What ends by itself needs no record to be over, so it takes none of the space and none of the
 * places that are kept for revocations: it is tried again until there is room. Meanwhile the grant
 * is expired for everybody. */
static int end_one(struct ctl_grant *g, enum store_grant_state s)
{
	struct store_txn *t;
	int r;

	if (!ctl_grant_may_wait(g->ctl, g->tenant, true))
		return -EBUSY;
	t = store_txn_new();
	end_row(t, g, s);
	grant_record(t, g, &ctl_system, end_action(s));
	ctl_grant_waits(g);
	set_ending(g, true);
	r = store_submit(g->ctl->store, t, ended, g, NULL);
	if (r < 0) {
		ctl_grant_waited(g);
		set_ending(g, false);
	}
	return r;
}

/* Each at another moment of the second: thousands that found no place at once do not come back at
 * once. */
static void end_later(struct ctl_grant *g)
{
	uint64_t part = g->uid.b[ROS2_UID_LEN - 1] + 1u; /* random */

	loop_timer_at(g->ctl->loop, &g->expiry, clock_boottime_ns() + RETRY_NS / 256 * part,
	              on_expiry, g);
}

static void arm(struct ctl_grant *g)
{
	loop_timer_at(g->ctl->loop, &g->expiry, g->t.expires_ns, on_expiry, g);
}

/* Only the clock on the wall says that it is over, and that may have been put forward while no
 * controller ran. */
static bool is_early(const struct ctl_grant *g)
{
	return ctl_agent_unheard(g->agent) && g->t.latest_ns > clock_boottime_ns();
}

static void await_agent(struct ctl_grant *g)
{
	g->overdue = true;
	g->t.expires_ns = g->t.latest_ns;
	arm(g);
}

static void on_expiry(void *arg)
{
	struct ctl_grant *g = arg;
	enum store_grant_state s =
		g->t.expires_ns > clock_boottime_ns() ? STORE_GRANT_RELEASED : STORE_GRANT_EXPIRED;

	if (g->ending)
		return;
	if (is_early(g))
		await_agent(g);
	else if (g->renewing || end_one(g, s) < 0)
		end_later(g);
}

/* The clock on the wall, by which its end was found at the start, may have been put forward before;
 * its agent counts by its own, of which its hello says what it is. */
static void count_as_agent(struct ctl_grant *g, uint64_t now)
{
	const struct clock_stamp *said = &g->agent->stamp;
	uint64_t end = clock_add_ns(g->t.from.boottime_ns, life_ns(g->t.lifetime_ms));

	if (!clock_stamp_same_boot(&g->t.from, said) || end <= said->boottime_ns)
		return;
	end = MIN(clock_add_ns(now, end - said->boottime_ns), g->t.latest_ns);
	if (end <= g->t.expires_ns || g->phase != CTL_GRANT_LIVE || g->ending || g->given_back)
		return;
	g->t.expires_ns = end;
	g->t.expires_unix_ns = ctl_unix_of(end);
	arm(g);
}

void ctl_grants_heard(struct ctl_agent *a)
{
	uint64_t now = clock_boottime_ns();
	struct ctl_grant *g;

	list_for_each (&a->grants, g, of_agent) {
		/* It counts in one boot of the agent's machine only (and this must change together
		 * with `offlineRestart`). */
		g->overdue |=
			g->phase == CTL_GRANT_LIVE && !clock_stamp_same_boot(&g->t.from, &a->stamp);
		if (!g->overdue) {
			count_as_agent(g, now);
			continue;
		}
		g->t.expires_ns = now;
		arm(g);
	}
}

/* Of a grant an agent ends and renews only its own. */
static bool may_say(const struct ctl_agent *a, const struct ctl_grant *g)
{
	return g->agent == a || CTL_SWITCH(no_grant_owner);
}

void ctl_grant_release(struct ctl_agent *a, const struct ros2_uid *uid)
{
	struct ctl_grant *g = ctl_grant_find(a->ctl, uid);

	if (g && !may_say(a, g))
		ctl_agent_claim(a, "it gives back a grant of another agent");
	if (!g || !may_say(a, g) || g->phase != CTL_GRANT_LIVE || g->ending)
		return;
	if (!CTL_SWITCH(no_giving_back)) {
		g->given_back = true;
		ctl_rollout_given_back(g->agent, STORE_GRANT, uid);
	}
	/* The agent says it once: what finds no place now ends by the timer. */
	if (end_one(g, STORE_GRANT_RELEASED) < 0)
		end_later(g);
}

static bool principal_allowed(const struct ctl_object *tenant, const char *principal)
{
	return policy_principal_match(&tenant->policy, principal);
}

static bool still_allowed(const struct ctl_grant *g)
{
	return !g->tenant->revoked && !g->agent->isolated && ctl_placed(g->tenant, g->agent) &&
	       principal_allowed(g->tenant, g->principal);
}

static void recheck(struct ctl_grant *g)
{
	if (still_allowed(g))
		return;
	g->owes_end = true;
	g->end_tenant = g->tenant->uid;
	g->end_agent = g->agent->obj->uid;
	kill_grant(g, true);
	list_add_tail(&g->ctl->ends, &g->of_tenant);
}

void ctl_grants_recheck(struct ctl_object *tenant)
{
	struct ctl_grant *g, *tmp;

	list_for_each_safe (&tenant->grants, g, tmp, of_tenant)
		recheck(g);
}

void ctl_grants_recheck_agent(struct ctl_agent *a)
{
	struct ctl_grant *g, *tmp;

	list_for_each_safe (&a->grants, g, tmp, of_agent)
		recheck(g);
}

/* The tenant or the agent may be gone by now. */
static void owed_end(struct store_txn *t, const struct ctl_grant *g)
{
	const struct ctl_object *tenant = ctl_find_uid(g->ctl, &g->end_tenant);
	const struct ctl_object *agent = ctl_find_uid(g->ctl, &g->end_agent);
	struct store_draft *d;

	end_row(t, g, STORE_GRANT_REVOKED);
	d = ctl_audit(t, &ctl_system, "grant.revoke", STORE_GRANT, g->principal, &g->uid);
	d->reason = "the tenant's document no longer allows it";
	d->policy_version = g->t.policy_version;
	if (tenant)
		ctl_audit_tenant(t, d, tenant);
	if (agent)
		store_draft_detail(t, d, "agent", agent->name);
}

static void settle_again(void *arg)
{
	(void)ctl_grants_settle(arg, NULL);
}

int ctl_grants_settle(struct ctl *c, struct ros2_err *err)
{
	while (!list_empty(&c->ends)) {
		struct store_txn *t = store_txn_new();
		struct ctl_grant *g, *tmp;
		unsigned n = 0;

		list_for_each (&c->ends, g, of_tenant) {
			if (n++ == ENDS_MAX)
				break;
			owed_end(t, g);
		}
		store_txn_set_kept(t);
		if (store_submit(c->store, t, NULL, NULL, NULL) < 0) {
			loop_timer_in_ms(c->loop, &c->ends_timer, RETRY_NS / NS_PER_MS,
			                 settle_again, c);
			return ros2_err_named(err, ROS2_BUSY,
			                      "the end of grants that documents no longer allow is "
			                      "not recorded yet: try again in a moment");
		}
		n = 0;
		list_for_each_safe (&c->ends, g, tmp, of_tenant) {
			if (n++ == ENDS_MAX)
				break;
			left_end(g);
		}
	}
	return 0;
}

/* ---- issue ---- */

static enum ros2_status check_ask(struct ctl_agent *a, const struct ctl_grant_ask *ask,
                                  const struct ctl_object *tenant, const char **ret_words)
{
	const struct ctl_slot *s;

	*ret_words = "no such tenant at this agent";
	if (!tenant || tenant->kind != STORE_TENANT ||
	    (!CTL_SWITCH(no_placement) && !ctl_placed(tenant, a)))
		return ROS2_DENIED;
	*ret_words = "the tenant is revoked";
	if (tenant->revoked && !CTL_SWITCH(no_revocation))
		return ROS2_REVOKED;
	*ret_words = "the agent is isolated";
	if (a->isolated || a->deleting)
		return ROS2_REVOKED;
	*ret_words = "the principal is not one of the tenant's";
	if (!CTL_SWITCH(no_principal) && !principal_allowed(tenant, ask->principal))
		return ROS2_DENIED;
	*ret_words =
		"the tenant has as many grants at this agent as its sessions.max allows: " WORD(
			CTL_GRANTS_PER_SLOT) " for each session";
	s = slot_get(a->ctl, &tenant->uid, &a->obj->uid, false);
	if (s && s->n - s->ending >= tenant->policy.limits.sessions_max * CTL_GRANTS_PER_SLOT &&
	    !CTL_SWITCH(no_grant_limit))
		return ROS2_LIMIT;
	*ret_words = "the tenant has its share of the controller's waiting grants, at most " WORD(
		CTL_GRANTS_WAITING_MAX) " (fixed): try again in a moment";
	if (!ctl_grant_may_wait(a->ctl, tenant, false))
		return ROS2_BUSY;
	return ROS2_OK;
}

static void deny(struct ctl_agent *a, const struct ctl_grant_ask *ask,
                 const struct ctl_object *tenant, enum ros2_status status, const char *words)
{
	struct ctl_caller who = {.role = CTL_AGENT};
	char key[ROS2_NAME_MAX + 16];
	char uid[ROS2_UID_STR_LEN];

	snprintf(who.spiffe, sizeof(who.spiffe), "%s", ask->principal);
	snprintf(who.peer, sizeof(who.peer), "%.63s", ask->peer);
	ros2_uid_to_str(&ask->tenant_uid, uid);
	snprintf(key, sizeof(key), "grant/%s", tenant ? uid : a->obj->name);
	ctl_audit_denied(a->ctl, key, &who, "grant.deny", tenant, "agent", a->obj->name, status,
	                 words);
	link_grant_denied(a->link, ask->request_id, status, words);
}

static void issued(void *arg, const struct store_result *r)
{
	struct ctl_grant *g = arg;
	struct ctl_agent *a = g->agent; /* NULL when DEAD */

	ctl_grant_waited(g);
	if (g->phase == CTL_GRANT_DEAD) {
		grant_unref(g); /* revoked meanwhile, and answered then */
		return;
	}
	if (r->rc < 0) {
		if (a->link && asker_is_there(g))
			link_grant_denied(a->link, g->request_id,
			                  r->rc == -ENOSPC ? ROS2_NO_SPACE : ROS2_NOT_DURABLE,
			                  "the grant could not be recorded, so it was not given");
		ctl_grant_kill(g);
		return;
	}
	g->phase = CTL_GRANT_LIVE;
	arm(g);
	outbox_grant(a, g, asker_is_there(g));
}

/* Grants come in thousands a second: uids that begin with the growing version lie next to each
 * other in the store, so that a commit writes few pages. The other half is random; a uid is never a
 * right. */
static struct ros2_uid new_uid(const struct ctl *c)
{
	struct ros2_uid u = ros2_uid_new();
	uint64_t v = c->revision + 1;

	for (int i = 0; i < 8; i++)
		u.b[i] = (uint8_t)(v >> (8 * (7 - i)));
	return u;
}

void ctl_grant_request(struct ctl_agent *a, const struct ctl_grant_ask *ask)
{
	struct ctl *c = a->ctl;
	struct ctl_object *tenant = ctl_find_uid(c, &ask->tenant_uid);
	struct ctl_caller who = ctl_agent_caller(a); /* it asked; for whom is the object */
	struct ros2_uid uid = new_uid(c);
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status status;
	struct ctl_grant *g;
	struct store_txn *t;
	struct store_draft *d;
	const char *words;

	if (tenant && tenant->kind != STORE_TENANT)
		tenant = NULL;
	status = check_ask(a, ask, tenant, &words);
	if (status != ROS2_OK) {
		/* Of a tenant that is not placed there an agent adds nothing to its history. */
		deny(a, ask, tenant && ctl_placed(tenant, a) ? tenant : NULL, status, words);
		return;
	}
	g = grant_new(tenant, a, &uid, ask->principal);
	if (!g) {
		link_grant_denied(a->link, ask->request_id, ROS2_BUSY, "out of memory");
		return;
	}
	g->request_id = ask->request_id;
	g->stream = a->stream;
	g->issued_unix_ns = clock_unix_ns();
	set_terms(g, &g->t, &ask->stamp);
	t = store_txn_new();
	grant_row(t, g, &g->t);
	d = grant_record(t, g, &who, "grant.issue");
	/* As much of it as the log takes: its length is the agent's word, and it waits in memory.
	 */
	store_draft_detail(t, d, "peer", store_txn_fmt(t, "%s", ask->peer));
	ctl_grant_waits(g);
	if (store_submit(c->store, t, issued, g, &err) < 0) {
		ctl_grant_waited(g);
		link_grant_denied(a->link, ask->request_id, ROS2_BUSY, err.msg);
		ctl_grant_kill(g);
	}
}

/* ---- renew ---- */

static void renewed(void *arg, const struct store_result *r)
{
	struct ctl_grant *g = arg;

	ctl_grant_waited(g);
	g->renewing = false;
	if (g->phase == CTL_GRANT_DEAD) {
		grant_unref(g);
		return;
	}
	if (r->rc < 0) {
		/* The old terms hold, all of them; the next beat asks again. */
		log_warn("grant renewal could not be recorded: %s", r->err.msg);
		return;
	}
	g->t = g->next;
	if (g->overdue)
		g->t.expires_ns = clock_boottime_ns();
	if (g->given_back || g->overdue)
		return; /* meanwhile: its end is on its way, or its timer tries again */
	arm(g);
	outbox_grant(g->agent, g, false);
}

/* At half its life; by a document with a shorter one so late that it does not end before what it
 * renews: until its agent hears of it that goes on. */
static bool due(const struct ctl_grant *g, uint64_t now)
{
	uint64_t half = life_ns(g->t.lifetime_ms) / 2;
	uint64_t next = life_ns(g->tenant->policy.limits.grant_lifetime_ms);

	return !g->renewing && !g->ending && !g->given_back && !g->overdue &&
	       g->phase == CTL_GRANT_LIVE && g->t.expires_ns > now &&
	       g->t.expires_ns - now < MIN(half, next);
}

/* What finds no place now is asked for again by the next beat. */
static void renew(struct ctl_grant *g)
{
	struct store_txn *t;

	if (!ctl_grant_may_wait(g->ctl, g->tenant, false))
		return;
	t = store_txn_new();
	set_terms(g, &g->next, &g->agent->stamp);
	g->renewing = true;
	grant_row(t, g, &g->next);
	grant_record(t, g, &ctl_system, "grant.renew");
	ctl_grant_waits(g);
	if (!store_submit(g->ctl->store, t, renewed, g, NULL))
		return;
	ctl_grant_waited(g);
	g->renewing = false;
}

void ctl_grants_in_use(struct ctl_agent *a, const struct ros2_uid *uids, size_t n)
{
	uint64_t now = clock_boottime_ns();
	bool anothers = false;

	for (size_t i = 0; i < n; i++) {
		struct ctl_grant *g = ctl_grant_find(a->ctl, &uids[i]);

		anothers |= g && !may_say(a, g);
		if (!g || !may_say(a, g) || !due(g, now) || g->tenant->revoked || a->isolated)
			continue;
		if (principal_allowed(g->tenant, g->principal) && ctl_placed(g->tenant, a))
			renew(g);
	}
	if (anothers)
		ctl_agent_claim(a, "it says that it uses a grant of another agent");
}

/* ---- loading ---- */

int ctl_grant_load(struct ctl *c, const struct store_grant *row)
{
	struct ctl_object *tenant = ctl_find_uid(c, &row->tenant_uid);
	struct ctl_agent *a = ctl_agent_uid(c, &row->agent_uid);
	uint64_t now = clock_unix_ns(), life = life_ns(row->lifetime_ms);
	struct ctl_grant *g;

	if (!tenant || !a || tenant->kind != STORE_TENANT)
		return 0; /* gone with its tenant or agent */
	g = grant_new(tenant, a, &row->uid, row->principal);
	if (!g)
		return -ENOMEM;
	g->issued_unix_ns = row->issued_unix_ns;
	g->t = (struct ctl_terms){.version = row->version,
	                          .max_bytes = row->max_bytes,
	                          .lifetime_ms = row->lifetime_ms,
	                          .policy_version = row->policy_version,
	                          .epoch_counter = row->epoch_counter,
	                          .max_keys = row->max_keys,
	                          .access = row->access,
	                          .expires_unix_ns = row->expires_unix_ns,
	                          .expires_ns = clock_boottime_ns(),
	                          .from.boottime_ns = row->from_boottime_ns};
	memcpy(g->t.from.boot_id, row->from_boot_id, 16);
	/* It was given before this process began. */
	g->t.latest_ns = clock_add_ns(g->t.expires_ns, life);
	/* A wall clock that was put back must not lengthen a life. */
	if (row->expires_unix_ns > now)
		g->t.expires_ns =
			clock_add_ns(g->t.expires_ns, MIN(row->expires_unix_ns - now, life));
	g->phase = CTL_GRANT_LIVE;
	return 0;
}

void ctl_grants_start(struct ctl *c)
{
	struct ctl_grant *g, *gtmp;
	struct ctl_object *o, *tmp;

	HASH_ITER (by_key, c->by_key, o, tmp)
		if (o->kind == STORE_TENANT)
			ctl_grants_recheck(o);
	(void)ctl_grants_settle(c, NULL);
	HASH_ITER (hh, c->grants, g, gtmp)
		arm(g);
}
