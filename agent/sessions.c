/* SPDX-License-Identifier: Apache-2.0 */
/* The session table: making, ending, remembering. Every end goes through agent_session_end or the
 * data plane's SESSION_ENDED, and each session is closed in the audit log exactly once. */
#include "agent/grants_priv.h"
#include "agent/sessions.h"
#include "agent/sessions_priv.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "proto/rpc/rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *agent_session_state_to_str(enum agent_session_state s)
{
	static const char *const names[] = {"opening", "live", "closing", "ended"};

	return (size_t)s < ARRAY_SIZE(names) ? names[s] : "?";
}

struct session_closing {
	struct sessions *t;
	struct ros2_uid uid;
};

int sessions_new(struct agent *a, struct sessions **ret)
{
	struct sessions *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->a = a;
	t->generation = RPC_TRUST_FIRST;
	list_init(&t->ended);
	*ret = t;
	return 0;
}

static void drop_contents(struct agent_session *s)
{
	struct agent_session_handle *h, *tmp;

	HASH_ITER (hh, s->handles, h, tmp)
		agent_session_drop_handle(s, h);
	for (uint32_t i = 0; i < s->n_mounts; i++)
		free(s->mounts[i].path);
	s->n_mounts = 0;
}

/* ---- counts ---- */

static struct sessions_tenant *tenant_find(const struct sessions *t, const struct ros2_uid *uid)
{
	struct sessions_tenant *n;

	HASH_FIND(hh, t->tenants, uid, sizeof(*uid), n);
	return n;
}

static struct sessions_peer *peer_find(const struct sessions *t, const char *address)
{
	struct sessions_peer *n;

	HASH_FIND_STR(t->peers, address, n);
	return n;
}

static struct sessions_tenant *tenant_get(struct sessions *t, const struct ros2_uid *uid)
{
	struct sessions_tenant *n = tenant_find(t, uid);

	if (n)
		return n;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	n->uid = *uid;
	list_init(&n->ended);
	HASH_ADD(hh, t->tenants, uid, sizeof(n->uid), n);
	if (HASH_TOOK(hh, n))
		return n;
	free(n);
	return NULL;
}

static struct sessions_peer *peer_get(struct sessions *t, const char *address)
{
	struct sessions_peer *n = peer_find(t, address);

	if (n)
		return n;
	n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	snprintf(n->address, sizeof(n->address), "%s", address);
	HASH_ADD_STR(t->peers, address, n);
	if (HASH_TOOK(hh, n))
		return n;
	free(n);
	return NULL;
}

static void tenant_put(struct sessions *t, struct sessions_tenant *n)
{
	if (!n || n->n_live || n->n_ended)
		return;
	HASH_DEL(t->tenants, n);
	free(n);
}

static void peer_put(struct sessions *t, struct sessions_peer *n)
{
	if (!n || n->n_live)
		return;
	HASH_DEL(t->peers, n);
	free(n);
}

/* False: no memory. */
static bool count_in(struct agent_session *s)
{
	struct sessions *t = s->sessions;

	s->of = tenant_get(t, &s->tenant);
	s->from = s->of ? peer_get(t, s->peer) : NULL;
	if (!s->from) {
		tenant_put(t, s->of);
		return false;
	}
	s->of->n_live++;
	s->from->n_live++;
	t->n_live++;
	return true;
}

/* It is not live any more; its tenant stays. */
static void count_out(struct agent_session *s)
{
	struct sessions_peer *from = TAKE_PTR(s->from);

	s->of->n_live--;
	s->sessions->n_live--;
	from->n_live--;
	peer_put(s->sessions, from);
}

static void forget(struct agent_session *s)
{
	struct sessions *t = s->sessions;

	loop_timer_stop(&s->connect);
	drop_contents(s);
	if (s->state == SESSION_ENDED) {
		list_del(&s->ended);
		list_del(&s->ended_of_tenant);
		s->of->n_ended--;
		t->n_ended--;
	} else {
		count_out(s);
	}
	tenant_put(t, s->of);
	HASH_DEL(t->all, s);
	free(s->closing);
	free(s->chain);
	free(s);
}

void sessions_free(struct sessions *t)
{
	struct sessions_account *c, *ctmp;
	struct agent_session *s, *tmp;

	if (!t)
		return;
	loop_timer_stop(&t->judge);
	pki_trust_unref(t->trust);
	HASH_ITER (hh, t->all, s, tmp)
		forget(s);
	HASH_ITER (hh, t->accounts, c, ctmp) {
		HASH_DEL(t->accounts, c);
		free(c);
	}
	free(t);
}

static int check_caps(const struct sessions *t, const struct agent_session_params *p,
                      struct ros2_err *err)
{
	const struct sessions_tenant *of = tenant_find(t, &p->tenant);
	const struct sessions_peer *from = peer_find(t, p->peer);
	uint32_t of_tenant = of ? of->n_live : 0, of_peer = from ? from->n_live : 0;

	if (of_tenant >= p->max_of_tenant)
		return ros2_err_named(err, ROS2_LIMIT,
		                      "tenant %s: sessions.max is %u, and it has %u open at this "
		                      "agent: close one first",
		                      p->tenant_name, p->max_of_tenant, of_tenant);
	if (of_peer >= SESSIONS_PER_CONNECTION && !AGENT_SWITCH(no_connection_cap))
		return ros2_err_named(err, ROS2_BUSY,
		                      "%u sessions over one connection, the most there may be "
		                      "(fixed): close one, or use another connection",
		                      SESSIONS_PER_CONNECTION);
	return 0;
}

/* Not done while the table is walked: where one is added, room is made. */
static void bound_ended(struct sessions *t, const struct ros2_uid *tenant)
{
	const struct sessions_tenant *of = tenant_find(t, tenant);

	if (of && of->n_ended > SESSIONS_ENDED_TENANT)
		forget(list_first(&of->ended, struct agent_session, ended_of_tenant));
	else if (t->n_ended > SESSIONS_ENDED_MAX)
		forget(list_first(&t->ended, struct agent_session, ended));
}

/* False: no memory. */
static bool enter(struct agent_session *s)
{
	struct sessions *t = s->sessions;

	if (!count_in(s))
		return false;
	HASH_ADD(hh, t->all, uid, sizeof(s->uid), s);
	if (HASH_TOOK(hh, s))
		return true;
	count_out(s);
	tenant_put(t, s->of);
	return false;
}

int agent_session_new(struct sessions *t, const struct agent_session_params *p,
                      struct agent_session **ret, struct ros2_err *err)
{
	struct agent_session *s;
	int r = check_caps(t, p, err);

	if (r < 0)
		return r;
	bound_ended(t, &p->tenant);
	s = calloc(1, sizeof(*s));
	if (s)
		s->closing = calloc(1, sizeof(*s->closing));
	if (!s || !s->closing) {
		free(s);
		return ros2_err_set(err, -ENOMEM, "no memory for a session");
	}
	s->sessions = t;
	s->uid = ros2_uid_new();
	s->tenant = p->tenant;
	s->policy_version = p->policy_version;
	s->opened_unix_ns = clock_unix_ns();
	list_init(&s->ended);
	list_init(&s->ended_of_tenant);
	snprintf(s->tenant_name, sizeof(s->tenant_name), "%s", p->tenant_name);
	snprintf(s->principal, sizeof(s->principal), "%s", p->principal);
	snprintf(s->peer, sizeof(s->peer), "%s", p->peer);
	if (!enter(s)) {
		free(s->closing);
		free(s);
		return ros2_err_set(err, -ENOMEM, "no memory for a session");
	}
	s->chain = p->chain;
	s->cert_not_after_unix_s = p->cert_not_after_unix_s;
	s->judged = p->judged;
	if (s->judged != t->generation) /* the bundle changed while the call was on its way */
		sessions_judge_soon(t);
	*ret = s;
	return 0;
}

struct agent_session *agent_session_find(struct sessions *t, const struct ros2_uid *uid)
{
	struct agent_session *s;

	HASH_FIND(hh, t->all, uid, sizeof(*uid), s);
	return s;
}

static void connect_late(void *arg)
{
	agent_session_end(arg, ROS2_TIMEOUT);
}

int agent_session_opened(struct agent_session *s)
{
	s->state = SESSION_LIVE;
	s->told = true;
	if (s->connected)
		return 0;
	return loop_timer_in_ms(s->sessions->a->o.loop, &s->connect, SESSION_CONNECT_MS,
	                        connect_late, s);
}

/* ---- the end ---- */

const char *agent_session_end_words(const struct agent_session *s)
{
	return s->end_words[0] ? s->end_words : ros2_status_text(s->end ? s->end : ROS2_CLOSED);
}

static void record_close(struct agent_session *s, const struct dp_session_stats *st)
{
	char uid[ROS2_UID_STR_LEN], grant[ROS2_UID_STR_LEN], n[7][24];
	struct agent_audit_event ev = {
		.action = "session.close",
		.actor = s->principal,
		.peer = s->peer,
		.object_kind = "session",
		.object_id = uid,
		.result = AGENT_AUDIT_OK,
		.status = s->end,
		.reason = agent_session_end_words(s),
		.tenant = s->tenant_name,
		.tenant_uid = s->tenant,
		.policy_version = s->policy_version,
		.details = {{"grant", grant},
	                    {"read_bytes", n[0]},
	                    {"write_bytes", n[1]},
	                    {"read_ops", n[2]},
	                    {"write_ops", n[3]},
	                    {"violations", n[4]},
	                    {"cleared_bytes", n[5]},
	                    {"clear_ops", n[6]}},
		.n_details = 8,
	};

	ros2_uid_to_str(&s->uid, uid);
	ros2_uid_to_str(&s->grant, grant);
	snprintf(n[0], 24, "%llu", (unsigned long long)st->read_bytes);
	snprintf(n[1], 24, "%llu", (unsigned long long)st->write_bytes);
	snprintf(n[2], 24, "%llu", (unsigned long long)st->read_ops);
	snprintf(n[3], 24, "%llu", (unsigned long long)st->write_ops);
	snprintf(n[4], 24, "%llu", (unsigned long long)st->violations);
	snprintf(n[5], 24, "%llu", (unsigned long long)st->cleared_bytes);
	snprintf(n[6], 24, "%llu", (unsigned long long)st->clear_ops);
	agent_audit_note(s->sessions->a->audit, &ev);
}

/* The data plane has nothing of it any more. */
static void ended(struct agent_session *s, const struct dp_session_stats *st)
{
	struct sessions *t = s->sessions;

	if (s->state == SESSION_ENDED)
		return;
	loop_timer_stop(&s->connect);
	if (s->has_grant) {
		state_grant_use(t->a->state, &s->grant, -1);
		grants_on_returned(t->a->grants);
	}
	s->has_grant = false;
	if (s->recorded)
		record_close(s, st);
	if (!s->told) { /* the tenant never knew of it */
		forget(s);
		return;
	}
	sessions_account_end(s, st);
	drop_contents(s);
	free(TAKE_PTR(s->chain));
	s->state = SESSION_ENDED;
	s->ended_ns = clock_boottime_ns();
	count_out(s);
	s->of->n_ended++;
	t->n_ended++;
	list_add_tail(&t->ended, &s->ended);
	list_add_tail(&s->of->ended, &s->ended_of_tenant);
}

static void on_closed(void *arg, const struct dp_result *res)
{
	struct session_closing *c = arg;
	struct agent_session *s = agent_session_find(c->t, &c->uid);
	struct dp_session_stats none = {0};

	/* Usually SESSION_ENDED was first and brought the statistics. */
	if (s && s->state == SESSION_CLOSING)
		ended(s, &none);
	free(c);
}

void agent_session_end(struct agent_session *s, enum ros2_status why)
{
	struct dp_session_stats none = {0};
	struct session_closing *c;

	if (s->state == SESSION_ENDED || s->state == SESSION_CLOSING)
		return;
	s->end = why;
	if (!s->in_dp) {
		ended(s, &none);
		return;
	}
	s->state = SESSION_CLOSING;
	c = TAKE_PTR(s->closing);
	*c = (struct session_closing){s->sessions, s->uid};
	dp_session_close(s->sessions->a->dp, &s->uid, why, on_closed, c);
}

void sessions_ignore(void *arg, const struct dp_result *res)
{
}

void sessions_ended_in_dp(struct agent_session *s, const struct dp_event *ev)
{
	if (s->state == SESSION_ENDED)
		return;
	if (s->state != SESSION_CLOSING) {
		s->end = ev->status;
		if (!s->end_words[0])
			snprintf(s->end_words, sizeof(s->end_words), "%s", ev->words);
	}
	s->state = SESSION_CLOSING;
	ended(s, &ev->stats);
}

void sessions_end_all(struct sessions *t, enum ros2_status why)
{
	struct agent_session *s, *tmp;

	HASH_ITER (hh, t->all, s, tmp)
		agent_session_end(s, why);
}

/* ---- contents ---- */

int agent_session_add_handle(struct agent_session *s, uint64_t handle, uint32_t mount,
                             uint32_t access, const char *path, struct ros2_err *err)
{
	struct agent_session_handle *h = calloc(1, sizeof(*h));

	if (h)
		h->path = strdup(path);
	if (!h || !h->path) {
		free(h);
		return ros2_err_set(err, -ENOMEM, "no memory for a handle");
	}
	h->handle = handle;
	h->mount = mount;
	h->access = access;
	HASH_ADD(hh, s->handles, handle, sizeof(h->handle), h);
	if (!HASH_TOOK(hh, h)) {
		free(h->path);
		free(h);
		return ros2_err_set(err, -ENOMEM, "no memory for a handle");
	}
	return 0;
}

struct agent_session_handle *agent_session_handle(struct agent_session *s, uint64_t handle)
{
	struct agent_session_handle *h;

	HASH_FIND(hh, s->handles, &handle, sizeof(handle), h);
	return h;
}

void agent_session_drop_handle(struct agent_session *s, struct agent_session_handle *h)
{
	HASH_DEL(s->handles, h);
	free(h->path);
	free(h);
}

int agent_session_add_mount(struct agent_session *s, const struct policy_namespace *ns,
                            uint32_t mount, struct ros2_err *err)
{
	struct agent_session_mount *m = &s->mounts[s->n_mounts];

	if (s->n_mounts == SESSION_MOUNTS_MAX)
		return ros2_err_named(err, ROS2_LIMIT,
		                      "mounts of a session: the limit is %u (fixed)",
		                      SESSION_MOUNTS_MAX);
	*m = (struct agent_session_mount){
		.mount = mount, .access = ns->access, .path = strdup(ns->path)};
	if (!m->path)
		return ros2_err_set(err, -ENOMEM, "no memory for a mount");
	snprintf(m->name, sizeof(m->name), "%s", ns->name);
	snprintf(m->engine, sizeof(m->engine), "%s", ns->engine);
	s->n_mounts++;
	return 0;
}

struct agent_session_mount *agent_session_mount(struct agent_session *s, uint32_t mount)
{
	for (uint32_t i = 0; i < s->n_mounts; i++)
		if (s->mounts[i].mount == mount)
			return &s->mounts[i];
	return NULL;
}

void sessions_forget_old(struct sessions *t, uint64_t now_ns)
{
	struct agent_session *s, *tmp;

	list_for_each_safe (&t->ended, s, tmp, ended) {
		if (now_ns - s->ended_ns < SESSIONS_ENDED_KEEP_S * NS_PER_S)
			break;
		forget(s);
	}
}

uint32_t sessions_live(const struct sessions *t)
{
	return t->n_live;
}

struct agent_session *sessions_first(const struct sessions *t)
{
	return t->all;
}
