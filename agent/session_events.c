/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to sessions from outside: events of the data plane, revocations, changed documents.
 * A document that takes a right away that a session uses (its principal, a mounted namespace, an
 * open object) ends that session: the data plane checks handles, not paths.
 */
#include "agent/prober.h"
#include "agent/sessions_priv.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "sessions"
#include "common/log.h"

/* ---- events of the data plane ---- */

static void violation(struct sessions *t, const struct dp_event *ev)
{
	struct agent_session *s = agent_session_find(t, &ev->session);
	struct state_tenant tenant;
	char uid[ROS2_UID_STR_LEN], lease[24];
	struct agent_audit_event rec = {
		.action = "lease.violation",
		.actor = s ? s->principal : NULL,
		.peer = s ? s->peer : NULL,
		.object_kind = ev->lease_id ? "lease" : "session",
		.object_id = ev->lease_id ? lease : uid,
		.result = AGENT_AUDIT_DENIED,
		.status = ev->status,
		.reason = ev->words,
		.tenant = s ? s->tenant_name : NULL,
		.tenant_uid = state_of_dp_uid(t->a->state, &ev->tenant),
		.details = {{"session", uid}},
		.n_details = 1,
	};

	if (!s && !state_tenant_get(t->a->state, &rec.tenant_uid, &tenant))
		rec.tenant = tenant.name;
	ros2_uid_to_str(&ev->session, uid);
	snprintf(lease, sizeof(lease), "%llu", (unsigned long long)ev->lease_id);
	if (ev->count > 1) {
		rec.count = ev->count;
		rec.first_unix_ns = ev->first_unix_ns;
		rec.last_unix_ns = ev->last_unix_ns;
	}
	agent_audit_denied(t->a->audit, &rec);
}

static void hello_refused(struct sessions *t, const struct dp_event *ev)
{
	struct agent_session *s = agent_session_find(t, &ev->session);
	bool named = !ros2_uid_is_zero(&ev->session);
	const char *words = strstr(ev->words, ": "); /* "PEER: WORDS" */
	char uid[ROS2_UID_STR_LEN], peer[64];
	struct agent_audit_event rec = {
		.action = "hello.refused",
		.actor = "anonymous", /* no session was proved, so it is nobody's */
		.peer = peer,
		.object_kind = named ? "session" : "agent",
		.object_name = named ? NULL : t->a->o.identity.name,
		.object_id = named ? uid : "",
		.result = AGENT_AUDIT_DENIED,
		.status = ev->status,
		.reason = words ? words + 2 : ros2_status_text(ev->status),
		.tenant = s ? s->tenant_name : NULL,
		.count = ev->count > 1 ? ev->count : 0,
		.first_unix_ns = ev->first_unix_ns,
		.last_unix_ns = ev->last_unix_ns,
	};

	if (s)
		rec.tenant_uid = s->tenant;
	snprintf(peer, sizeof(peer), "%.*s", words ? (int)(words - ev->words) : 63, ev->words);
	ros2_uid_to_str(&ev->session, uid);
	agent_audit_denied(t->a->audit, &rec);
}

void sessions_on_dp_event(struct sessions *t, const struct dp_event *ev)
{
	struct agent_session *s = agent_session_find(t, &ev->session);

	switch (ev->type) {
	case DP_EVENT_VIOLATION:
		violation(t, ev);
		break;
	case DP_EVENT_HELLO_REFUSED:
		hello_refused(t, ev);
		break;
	case DP_EVENT_CONNECTED:
		if (s && s->state <= SESSION_LIVE) {
			s->connected = true;
			loop_timer_stop(&s->connect);
		}
		break;
	case DP_EVENT_SESSION_ENDED:
		if (s)
			sessions_ended_in_dp(s, ev);
		break;
	}
}

/* ---- revocations ---- */

void sessions_on_revoke(struct sessions *t, const struct tombstone *ts)
{
	struct agent_session *s, *tmp;

	HASH_ITER (hh, t->all, s, tmp) {
		if (ts->kind == OBJ_AGENT ||
		    (ts->kind == OBJ_TENANT && ros2_uid_eq(&s->tenant, &ts->uid)) ||
		    (ts->kind == OBJ_GRANT && ros2_uid_eq(&s->grant, &ts->uid)) ||
		    (ts->kind == OBJ_SESSION && ros2_uid_eq(&s->uid, &ts->uid)))
			agent_session_end(s, ROS2_REVOKED);
	}
}

/* ---- documents ---- */

static bool mounts_hold(const struct agent_session *s, const struct state_tenant *t)
{
	for (uint32_t i = 0; i < s->n_mounts; i++) {
		const struct agent_session_mount *m = &s->mounts[i];
		struct policy_namespace ns;

		if (state_namespace(t, m->name, &ns) < 0 || strcmp(ns.engine, m->engine) != 0 ||
		    strcmp(ns.path, m->path) != 0 || (m->access & ~ns.access))
			return false;
	}
	return true;
}

static bool handles_hold(struct agent_session *s, const struct state_tenant *t)
{
	const struct agent_session_handle *h;

	for (h = s->handles; h; h = h->hh.next) {
		const struct agent_session_mount *m = agent_session_mount(s, h->mount);

		if (!m || !state_eval_path(t, m->name, h->path, h->access).allowed)
			return false;
	}
	return true;
}

static int transport_allowed(const struct agent_session *s, uint32_t require, struct ros2_err *err)
{
	const struct agent *a = s->sessions->a;
	int rc = prober_allows_transport(a->prober, s->transport, require, err);

	for (uint32_t i = 0; i < s->n_mounts && !rc; i++)
		rc = prober_allows_engine(a->prober, s->mounts[i].engine, require, err);
	return rc;
}

/* False: it is ending. */
static bool transport_holds(struct agent_session *s, const struct state_tenant *t)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (AGENT_SWITCH(no_transport_check) || transport_allowed(s, t->image.require, &err) == 0)
		return true;
	snprintf(s->end_words, sizeof(s->end_words), "%.199s", err.msg);
	agent_session_end(s, ROS2_REVOKED);
	return false;
}

void sessions_on_tenant(struct sessions *t, const struct ros2_uid *uid)
{
	struct agent_session *s, *tmp;
	struct state_tenant tenant;
	bool gone = state_tenant_get(t->a->state, uid, &tenant) < 0 || tenant.revoked;

	if (gone && AGENT_SWITCH(no_tenant_end))
		return;
	HASH_ITER (hh, t->all, s, tmp) {
		if (!ros2_uid_eq(&s->tenant, uid) || s->state >= SESSION_CLOSING)
			continue;
		if (gone || !state_principal_match(&tenant, s->principal) ||
		    !mounts_hold(s, &tenant) || !handles_hold(s, &tenant)) {
			agent_session_end(s, ROS2_REVOKED);
			continue;
		}
		if (transport_holds(s, &tenant))
			s->policy_version = tenant.version;
	}
}

static bool has_mounted(const struct agent_session *s, const char *engine)
{
	for (uint32_t i = 0; i < s->n_mounts; i++)
		if (!strcmp(s->mounts[i].engine, engine))
			return true;
	return false;
}

void sessions_on_engine_gone(struct sessions *t, const char *engine)
{
	struct agent_session *s, *tmp;

	HASH_ITER (hh, t->all, s, tmp) {
		if (s->state >= SESSION_CLOSING || !has_mounted(s, engine))
			continue;
		snprintf(s->end_words, sizeof(s->end_words), "engine %s was taken away", engine);
		agent_session_end(s, ROS2_REVOKED);
	}
}

/* ---- whom the tenants' bundle names ---- */

#define JUDGED_PER_TURN 32

static void judge(struct sessions *t, struct agent_session *s)
{
	struct ros2_err err = ROS2_ERR_INIT;

	s->judged = t->generation;
	if (AGENT_SWITCH(no_session_trust) ||
	    pki_trust_verify(t->trust, s->chain, strlen(s->chain), &err) == 0)
		return;
	snprintf(s->end_words, sizeof(s->end_words),
	         "the client certificate is not trusted any more: %.140s", err.msg);
	agent_session_end(s, ROS2_UNAUTHENTICATED);
}

/* True when there are more. */
static bool judge_some(struct sessions *t)
{
	struct agent_session *s, *tmp;
	unsigned n = 0;

	HASH_ITER (hh, t->all, s, tmp) {
		if (s->state >= SESSION_CLOSING || s->judged == t->generation)
			continue;
		if (n++ == JUDGED_PER_TURN)
			return true;
		judge(t, s);
	}
	return false;
}

static void on_judge(void *arg)
{
	struct sessions *t = arg;

	if (judge_some(t))
		sessions_judge_soon(t);
}

void sessions_judge_soon(struct sessions *t)
{
	if (t->trust && loop_timer_in_ms(t->a->o.loop, &t->judge, 0, on_judge, t) < 0)
		while (judge_some(t)) /* no memory to come back to it */
			;
}

void sessions_on_trust(struct sessions *t, struct pki_trust *trust, uint64_t generation)
{
	pki_trust_ref(trust);
	pki_trust_unref(t->trust);
	t->trust = trust;
	t->generation = generation;
	sessions_judge_soon(t);
}

void sessions_on_probe(struct sessions *t)
{
	struct agent_session *s, *tmp;
	struct state_tenant tenant;

	HASH_ITER (hh, t->all, s, tmp)
		if (s->state < SESSION_CLOSING &&
		    state_tenant_get(t->a->state, &s->tenant, &tenant) == 0)
			transport_holds(s, &tenant);
}

/* ---- usage ---- */

static void record_usage(struct agent_session *s, const struct dp_session_stats *st)
{
	char uid[ROS2_UID_STR_LEN], n[6][24];
	struct agent_audit_event ev = {
		.action = "session.usage",
		.actor = s->principal,
		.peer = s->peer,
		.object_kind = "session",
		.object_id = uid,
		.result = AGENT_AUDIT_OK,
		.reason = "since the last record of this session",
		.tenant = s->tenant_name,
		.tenant_uid = s->tenant,
		.policy_version = s->policy_version,
		.details = {{"read_bytes", n[0]},
	                    {"write_bytes", n[1]},
	                    {"read_ops", n[2]},
	                    {"write_ops", n[3]},
	                    {"cleared_bytes", n[4]},
	                    {"clear_ops", n[5]}},
		.n_details = 6,
	};
	const struct dp_session_stats *was = &s->usage;

	ros2_uid_to_str(&s->uid, uid);
	snprintf(n[0], 24, "%llu", (unsigned long long)(st->read_bytes - was->read_bytes));
	snprintf(n[1], 24, "%llu", (unsigned long long)(st->write_bytes - was->write_bytes));
	snprintf(n[2], 24, "%llu", (unsigned long long)(st->read_ops - was->read_ops));
	snprintf(n[3], 24, "%llu", (unsigned long long)(st->write_ops - was->write_ops));
	snprintf(n[4], 24, "%llu", (unsigned long long)(st->cleared_bytes - was->cleared_bytes));
	snprintf(n[5], 24, "%llu", (unsigned long long)(st->clear_ops - was->clear_ops));
	ev.count = st->read_ops - was->read_ops + st->write_ops - was->write_ops + st->clear_ops -
	           was->clear_ops;
	ev.last_unix_ns = clock_unix_ns();
	ev.first_unix_ns = s->usage_unix_ns ? s->usage_unix_ns : s->opened_unix_ns;
	if (!agent_audit_counted(s->sessions->a->audit, &ev))
		return; /* the next one has it, too */
	s->usage = *st;
	s->usage_unix_ns = ev.last_unix_ns;
}

/* ---- accounts ---- */

/* By name, as they are told: a tenant that was made again goes on counting where the one before it
 * ended. Two under one name would be two samples with the same labels, of which one is lost. */
static struct sessions_account *account_of(struct sessions *t, const struct agent_session *s)
{
	const char *name = s->tenant_name;
	struct sessions_account *c;

	HASH_FIND_STR(t->accounts, name, c);
	if (!c && HASH_COUNT(t->accounts) >= SESSIONS_ACCOUNTS_MAX) {
		name = "";
		HASH_FIND_STR(t->accounts, name, c);
	}
	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	strcpy(c->name, name);
	HASH_ADD_STR(t->accounts, name, c);
	if (!HASH_TOOK(hh, c)) {
		free(c);
		return NULL;
	}
	return c;
}

static void most(struct dp_session_stats *to, const struct dp_session_stats *st)
{
	to->read_bytes = MAX(to->read_bytes, st->read_bytes);
	to->write_bytes = MAX(to->write_bytes, st->write_bytes);
	to->read_ops = MAX(to->read_ops, st->read_ops);
	to->write_ops = MAX(to->write_ops, st->write_ops);
	to->cleared_bytes = MAX(to->cleared_bytes, st->cleared_bytes);
	to->clear_ops = MAX(to->clear_ops, st->clear_ops);
	to->violations = MAX(to->violations, st->violations);
	to->shaped_ns = MAX(to->shaped_ns, st->shaped_ns);
}

static void add(struct dp_session_stats *to, const struct dp_session_stats *st)
{
	to->read_bytes += st->read_bytes;
	to->write_bytes += st->write_bytes;
	to->read_ops += st->read_ops;
	to->write_ops += st->write_ops;
	to->cleared_bytes += st->cleared_bytes;
	to->clear_ops += st->clear_ops;
	to->violations += st->violations;
	to->shaped_ns += st->shaped_ns;
}

void sessions_account_end(struct agent_session *s, const struct dp_session_stats *st)
{
	struct sessions_account *c = account_of(s->sessions, s);

	most(&s->seen, st);
	if (c)
		add(&c->ended, &s->seen);
}

void sessions_account_now(struct sessions *t)
{
	struct sessions_account *c;
	struct agent_session *s;

	for (c = t->accounts; c; c = c->hh.next)
		c->now = c->ended;
	for (s = t->all; s; s = s->hh.next) {
		struct dp_session_stats st;

		if (s->state == SESSION_ENDED || !s->told)
			continue;
		if (dp_session_stats(t->a->dp, &s->uid, &st) == 0)
			most(&s->seen, &st);
		c = account_of(t, s);
		if (c)
			add(&c->now, &s->seen);
	}
}

const struct sessions_account *sessions_accounts(const struct sessions *t)
{
	return t->accounts;
}

void sessions_tick(struct sessions *t)
{
	int64_t now_unix_s = (int64_t)(clock_unix_ns() / NS_PER_S);
	struct agent_session *s, *tmp;

	HASH_ITER (hh, t->all, s, tmp) {
		struct dp_session_stats st;

		/* The data plane counts by the clock on the wall of when the session began: it may
		 * have been behind, and be put right since. */
		if (s->state == SESSION_LIVE && now_unix_s >= s->cert_not_after_unix_s)
			agent_session_end(s, ROS2_UNAUTHENTICATED);
		if (s->state != SESSION_LIVE || dp_session_stats(t->a->dp, &s->uid, &st) < 0)
			continue;
		if (st.read_ops != s->usage.read_ops || st.write_ops != s->usage.write_ops ||
		    st.clear_ops != s->usage.clear_ops)
			record_usage(s, &st);
	}
	sessions_forget_old(t, clock_boottime_ns());
}
