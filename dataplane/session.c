/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a session at its reactor; its states and the seven steps of its end are told in
 * session_priv.h. Invariants: (1) a session that is not alive has no live lease; (2) after step 4
 * only requests that an engine or a device holds are left; (3) it is gone exactly when it has ended
 * and no engine or device holds anything of it.
 */
#include "dataplane/session_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What follows the session is aligned as anything may want to be. */
#define SESSION_SIZE ((sizeof(struct session) + 63) / 64 * 64)

const char *session_state_to_str(enum session_state s)
{
	static const char *const names[] = {"waiting", "open", "closing", "ended"};

	return (unsigned)s < ARRAY_SIZE(names) ? names[s] : "unknown";
}

struct session *session_new(struct dp_session *ds, const struct transport_ops *transport)
{
	struct session *s = calloc(1, SESSION_SIZE + transport->channel_size);

	if (!s)
		return NULL;
	s->dp = ds->dp;
	s->ds = ds;
	s->tenant = ds->tenant;
	s->grant = ds->grant;
	s->uid = ds->uid;
	s->cert_deadline_ns = ds->cert_deadline_ns;
	s->transport = transport;
	s->channel = (char *)s + SESSION_SIZE;
	list_init(&s->link_active[0]);
	list_init(&s->link_active[1]);
	list_init(&s->link_gone);
	list_init(&s->link_input);
	list_init(&s->link_output);
	request_init_all(s);
	transport->init(s);
	return s;
}

static void rtenant_enter(struct rtenant *rt, struct dp_tenant *t)
{
	if (rt->n_sessions++ && rt->tenant == t)
		return;
	/* An index comes back only when the last session of its former tenant is gone, so there is
	 * nothing to keep. */
	*rt = (struct rtenant){.tenant = t, .n_sessions = 1};
	list_init(&rt->active[0]);
	list_init(&rt->active[1]);
	list_init(&rt->link);
}

void session_attach(struct reactor *r, struct session *s)
{
	uint32_t i = 0;

	while (i < DP_SESSIONS_MAX && r->sessions[i])
		i++;
	assert(i < DP_SESSIONS_MAX); /* the loop counts */
	s->r = r;
	s->index = i;
	s->conn = ++r->next_generation << 16 | i;
	s->rt = &r->tenants[s->tenant->index];
	s->own = (struct slot_source){.pool = r->slots, .tenant = &s->rt->slots};
	rtenant_enter(s->rt, s->tenant);
	s->hello_deadline_ns = clock_add_ns(clock_boottime_ns(), WIRE_HELLO_MS * NS_PER_MS);
	crypto_random(s->secret, sizeof(s->secret));
	s->state = SESSION_WAITING;
	r->sessions[i] = s;
	r->n_attached++;
}

uint32_t session_connected(struct session *s, const char *peer, uint32_t features)
{
	crypto_wipe(s->secret, sizeof(s->secret));
	s->state = SESSION_OPEN;
	s->features = features & WIRE_FEATURES_KNOWN;
	s->stall_since_ns = clock_boottime_ns();
	atomic_store_explicit(&s->stats.connected, true, memory_order_relaxed);
	snprintf(s->peer, sizeof(s->peer), "%s", peer);
	dp_post(s->dp, &s->connected_post, session_on_connected);
	return s->features;
}

enum ros2_status session_rights(const struct session *s, uint64_t now_ns)
{
	return dp_rights_now(s->dp, s->tenant, s->grant, s->cert_deadline_ns, now_ns);
}

uint64_t session_rights_until(const struct session *s)
{
	if (DP_SWITCH(no_deadline_recheck) || DP_SWITCH(no_last_look))
		return UINT64_MAX;
	return MAX(dp_rights_until(s->dp, s->tenant, s->grant, s->cert_deadline_ns), (uint64_t)1);
}

void session_want_input(struct session *s)
{
	if (list_empty(&s->link_input))
		list_add_tail(&s->r->input, &s->link_input);
}

void session_want_output(struct session *s)
{
	if (list_empty(&s->link_output))
		list_add_tail(&s->r->output, &s->link_output);
}

static void drop_handles(struct session *s)
{
	for (uint32_t i = 0; i < DP_HANDLES_MAX; i++) {
		if (!s->handles[i].handle)
			continue;
		s->handles[i].handle = 0;
		dp_file_unref(TAKE_PTR(s->handles[i].file));
	}
}

void session_end_keys(struct session *s)
{
	for (uint32_t i = 0; i < DP_CREDITS && !DP_SWITCH(no_key_end); i++) {
		struct request *req = &s->requests[i];

		if (req->state == REQUEST_ENGINE)
			s->keys_ended +=
				reactor_engine_end_keys(s->r, req->file->mount->engine, &req->io);
	}
}

/* And idle ones over the tenant's memory: whoever has a right yet gets new ones. All leave by one
 * doorbell. */
static void end_rights_keys(struct session *s)
{
	const struct fabric_pd *pd = verbs_lends_of(s);

	session_end_keys(s);
	if (pd && !DP_SWITCH(no_key_end))
		s->keys_ended += reactor_engines_forget(s->r, pd);
}

/* Of the others the connection is lost, or the tenant is done with it: what is inside an engine may
 * end as it does, with its own key, rather than cost the tenant's other sessions their queue. */
static bool ends_right(enum ros2_status why)
{
	return why != ROS2_CLOSED && why != ROS2_PROTOCOL && why != ROS2_TIMEOUT &&
	       why != ROS2_INTERNAL;
}

void session_end(struct session *s, enum ros2_status why, const char *words)
{
	/* After BYE, when the peer's kernel has every reply; in every other case none may arrive
	 * any more. */
	bool orderly = why == ROS2_CLOSED && session_lingers(s) && s->transport->idle(s);

	if (s->state == SESSION_ENDED)
		return;
	s->state = SESSION_ENDED;
	s->end_status = why;
	snprintf(s->end_words, sizeof(s->end_words), "%s", words ? words : ros2_status_text(why));
	crypto_wipe(s->secret, sizeof(s->secret));
	s->leases_ended = lease_end_conn(s->r->leases, s->conn,
	                                 why == ROS2_REVOKED ? ROS2_REVOKED : ROS2_CLOSED);
	s->transport->close(s, !orderly);
	list_del(&s->link_input);
	list_del(&s->link_output);
	session_release_requests(s);
	if (ends_right(why))
		end_rights_keys(s);
	drop_handles(s);
	atomic_store_explicit(&s->stats.connected, false, memory_order_relaxed);
	atomic_store_explicit(&s->stats.in_flight, session_held(s), memory_order_relaxed);
	dp_post(s->dp, &s->ended_post, session_on_ended);
	session_maybe_gone(s);
}

void session_end_bad_message(struct session *s, enum ros2_status what, const char *words)
{
	char all[160];

	snprintf(all, sizeof(all), "%s: %s", ros2_status_to_str(what), words);
	session_end(s, ROS2_PROTOCOL, all);
}

void session_release_requests(struct session *s)
{
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		struct request *req = &s->requests[i];

		if (req->state == REQUEST_ENGINE)
			reactor_engine_withdraw(s->r, req->file->mount->engine, &req->io);
		else if (req->state != REQUEST_FREE && !req->on_device)
			request_release(req);
	}
	admit_forget(s);
}

void session_maybe_closed(struct session *s)
{
	if (session_lingers(s) && s->transport->idle(s))
		session_end(s, ROS2_CLOSED, "the tenant said BYE");
}

void session_maybe_gone(struct session *s)
{
	if (s->state != SESSION_ENDED || s->n_requests || !list_empty(&s->link_gone))
		return;
	if (s->transport->busy && s->transport->busy(s))
		return;
	/* Told at the end of the turn: events of this turn may still point to it. */
	list_add_tail(&s->r->gone, &s->link_gone);
}

static uint32_t held(const struct slot_source *from)
{
	uint32_t n = 0;

	for (int i = 0; i < SLOT_CLASSES; i++)
		n += from->use.n[i];
	return n;
}

/* Its slots wait for the peer to read, or to send what it was asked for. */
static bool waits_for_peer(const struct session *s)
{
	return held(&s->own) + held(&s->lent) && session_alive(s) &&
	       s->transport->waits_for_peer(s);
}

/* Others wait for the share of an engine that it has files of, and it has slots that count there.
 */
static bool in_a_crowd(const struct session *s)
{
	return s->r->crowded & s->engines && session_slots_shared(s, &s->own) && held(&s->own) &&
	       !DP_SWITCH(no_crowded_end);
}

/* A peer may be slow as long as nobody else needs its slots. */
static bool stalls_others(struct session *s, uint64_t now_ns)
{
	uint64_t moved = s->transport->moved(s);

	if (!waits_for_peer(s) || moved - s->stall_moved >= SESSION_STALL_BYTES) {
		s->stall_moved = moved;
		s->stall_since_ns = now_ns;
	}
	return (slots_starved(s->own.pool) || (s->lent.pool && slots_starved(s->lent.pool)) ||
	        in_a_crowd(s)) &&
	       now_ns - s->stall_since_ns >= SESSION_STALL_NS && !DP_SWITCH(no_stall_end);
}

static void end_stalled(struct session *s)
{
	char words[128];

	snprintf(words, sizeof(words),
	         "the tenant held buffers that others waited for: it moved less than %u MiB in "
	         "%llu s (fixed)",
	         SESSION_STALL_BYTES >> 20, (unsigned long long)(SESSION_STALL_NS / NS_PER_S));
	session_end(s, ROS2_TIMEOUT, words);
}

/* Until then it counts as any session does, and a revocation takes back what was not taken. */
static bool never_takes(struct session *s, uint64_t now_ns)
{
	if (!session_lingers(s) || !s->lingers_since_ns)
		s->lingers_since_ns = session_lingers(s) ? now_ns : 0;
	return s->lingers_since_ns && now_ns - s->lingers_since_ns >= SESSION_LINGER_NS;
}

void session_tick(struct session *s, uint64_t now_ns)
{
	enum ros2_status rights;

	session_maybe_closed(s); /* nothing tells that the peer has taken the last of it */
	if (s->state == SESSION_ENDED)
		return;
	if (s->state == SESSION_WAITING && now_ns >= s->hello_deadline_ns) {
		session_end(s, ROS2_TIMEOUT, "no HELLO within 10 s of the session's opening");
		return;
	}
	rights = DP_SWITCH(no_deadline_recheck) ? ROS2_OK : session_rights(s, now_ns);
	if (rights != ROS2_OK)
		session_end(s, rights, NULL);
	else if (stalls_others(s, now_ns))
		end_stalled(s);
	else if (never_takes(s, now_ns))
		session_end(s, ROS2_TIMEOUT, "the tenant said BYE and did not read the answers");
	else
		session_post_violations(s);
	if (s->transport->tick && session_alive(s))
		s->transport->tick(s, now_ns);
}

struct dp_file *session_file(const struct session *s, uint64_t handle)
{
	uint32_t i = handle & (DP_HANDLES_MAX - 1);
	bool ours = DP_SWITCH(no_handle_check) ? s->handles[i].handle != 0
	                                       : s->handles[i].handle == handle;

	return handle && ours ? s->handles[i].file : NULL;
}

static struct violations *violations_of(struct session *s, enum ros2_status status)
{
	/* Kinds beyond the table share its last row: counted, under the name of the latest. */
	struct violations *v = s->violations;

	for (uint32_t i = 0; i < SESSION_VIOLATION_KINDS - 1; i++, v++)
		if (!v->count || v->status == status)
			break;
	v->status = status;
	return v;
}

static void record(struct session *s, enum ros2_status status, const char *words)
{
	struct violations *v = violations_of(s, status);

	v->last_unix_ns = clock_unix_ns();
	if (!v->count++)
		v->first_unix_ns = v->last_unix_ns;
	snprintf(v->words, sizeof(v->words), "%s", words);
	session_post_violations(s);
}

void session_post_violations(struct session *s)
{
	if (!s->violations[0].count ||
	    atomic_load_explicit(&s->violations_posted, memory_order_acquire))
		return;
	memcpy(s->violations_out, s->violations, sizeof(s->violations));
	memset(s->violations, 0, sizeof(s->violations));
	atomic_store_explicit(&s->violations_posted, true, memory_order_relaxed);
	dp_post(s->dp, &s->violations_post, session_on_violations);
}

void session_violation(struct session *s, uint64_t request_id, enum ros2_status status,
                       const char *fmt, ...)
{
	uint32_t limit = atomic_load_explicit(&s->tenant->violations_limit, memory_order_relaxed);
	uint64_t n = atomic_fetch_add_explicit(&s->stats.violations, 1, memory_order_relaxed) + 1;
	char words[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	record(s, status, words);
	s->transport->refuse(s, request_id, status, words);
	if (limit && n >= limit &&
	    atomic_load_explicit(&s->tenant->violations_kill, memory_order_relaxed)) {
		snprintf(words, sizeof(words), "%llu violations, rkeys.violations.limit is %u",
		         (unsigned long long)n, limit);
		session_end(s, ROS2_VIOLATIONS, words);
	}
}

void session_lease_ended(void *arg, const struct lease *l)
{
	struct reactor *r = arg;
	struct session *s = r->sessions[l->conn & 0xffff];

	assert(s && s->conn == l->conn);
	atomic_fetch_sub_explicit(&s->tenant->regions, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->tenant->registered_bytes, l->length, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->grant->keys, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->grant->bytes, l->length, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->stats.regions, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&r->n_leases, 1, memory_order_relaxed);
}
