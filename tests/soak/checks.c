// SPDX-License-Identifier: Apache-2.0
/* What the controller shows and what the clients noted, against the history. The lock is held: no
 * operation of the administrator is under way. */
#include "common/clock.h"
#include "common/util.h"
#include "tests/soak/history.h"
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#define TRIES     300
#define TRY_MS    100
#define EXPIRY_NS (5 * NS_PER_S) /* a grant that has ended may be listed as live for so long */
#define TOLD_NS   (5 * NS_PER_S) /* and be used for so long at an agent that is there */

enum { GRANT_LIVE = 1, GRANT_ENDED };

bool check_reach(struct world *w)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	bool unanswered;
	int r = -1;

	for (int i = 0; i < TRIES && r < 0; i++) {
		r = world_call(w, &ros2_v1_admin_status, &q.base, &m, &unanswered, &err);
		if (r < 0)
			poll(NULL, 0, TRY_MS);
	}
	if (r < 0) {
		world_fail(w, "the controller does not answer: %s", err.msg);
		return false;
	}
	const Ros2__V1__StatusReply *s = ros2_v1_admin_status_out(m);

	if (s->epoch->counter < w->epoch)
		world_fail(w, "epoch %" PRIu64 " after %" PRIu64, s->epoch->counter, w->epoch);
	if (s->audit_records < w->log_seq)
		world_fail(w, "%" PRIu64 " audit records, %" PRIu64 " were seen", s->audit_records,
		           w->log_seq);
	w->epoch = MAX(w->epoch, s->epoch->counter);
	protobuf_c_message_free_unpacked(m, NULL);
	return true;
}

void check_objects(struct world *w)
{
	for (int i = 0; i < w->n_objects; i++)
		if (ops_look(w, &w->object[i]) < 0)
			world_fail(w, "%s cannot be looked at", w->object[i].name);
}

/* ---- what is listed ---- */

/* One page of a list; NULL when there is none. @after is moved on. */
static Ros2__V1__ListReply *list(struct world *w, int kind, char after[128], bool ended)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	bool unanswered;

	q.kind = (Ros2__V1__ObjectKind)kind;
	q.page_token = after;
	q.all = ended;
	q.page_size = 5000;
	if (world_call(w, &ros2_v1_admin_list, &q.base, &m, &unanswered, &err) < 0) {
		world_fail(w, "kind %d cannot be listed: %s", kind, err.msg);
		return NULL;
	}
	snprintf(after, 128, "%s", ros2_v1_admin_list_out(m)->next_page_token);
	return (Ros2__V1__ListReply *)(uintptr_t)ros2_v1_admin_list_out(m);
}

static void list_free(Ros2__V1__ListReply *l)
{
	protobuf_c_message_free_unpacked(&l->base, NULL);
}

static void uid_text(const ProtobufCBinaryData *b, char out[ROS2_UID_STR_LEN])
{
	struct ros2_uid u = {{0}};

	ros2_uid_from_bytes(b->data, b->len, &u);
	ros2_uid_to_str(&u, out);
}

static struct object *live_tenant(struct world *w, const char *name)
{
	for (int i = 0; i < LIVE_TENANTS; i++)
		if (!strcmp(w->object[i].name, name))
			return &w->object[i];
	return NULL;
}

static void check_grant(struct world *w, const Ros2__V1__GrantInfo *g)
{
	char uid[ROS2_UID_STR_LEN];
	bool live = !strcmp(g->state, "live");
	const struct object *o = live_tenant(w, g->tenant);
	struct fact *f;

	uid_text(&g->grant_uid, uid);
	f = fact_get(&w->grants, uid);
	if (live && f->n == GRANT_ENDED)
		world_fail(w, "grant %s had ended and is live", uid);
	if (live && f->seen)
		world_fail(w, "grant %s was revoked and is live", uid);
	if (live && o && o->revoked)
		world_fail(w, "grant %s of %s is live, the tenant is revoked", uid, o->name);
	if (live && g->expires_unix_ns + EXPIRY_NS < clock_unix_ns())
		world_fail(w, "grant %s is live past its end", uid);
	if (!live && f->n != GRANT_ENDED)
		f->ended_ns = clock_boottime_ns();
	f->n = live ? GRANT_LIVE : GRANT_ENDED;
	memcpy(f->other, "listed", 7);
}

static void check_grants(struct world *w)
{
	char after[128] = "";
	struct fact *f;

	for (f = w->grants; f; f = f->hh.next)
		f->other[0] = 0;
	do {
		Ros2__V1__ListReply *l =
			list(w, ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT, after, true);

		if (!l)
			return;
		for (size_t i = 0; i < l->n_grants; i++)
			check_grant(w, l->grants[i]);
		list_free(l);
	} while (after[0]);
	for (f = w->grants; f; f = f->hh.next)
		if (!f->other[0])
			world_fail(w, "grant %s was there and is lost", f->key);
}

/* What agents say, so only of those that are there. */
static void check_sessions(struct world *w)
{
	char after[128] = "", uid[ROS2_UID_STR_LEN], grant[ROS2_UID_STR_LEN];
	Ros2__V1__ListReply *l = list(w, ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION, after, false);

	for (size_t i = 0; l && i < l->n_sessions; i++) {
		const struct object *o = live_tenant(w, l->sessions[i]->tenant);
		const struct fact *g, *s;

		uid_text(&l->sessions[i]->session_uid, uid);
		uid_text(&l->sessions[i]->grant_uid, grant);
		g = fact_find(w->grants, grant);
		s = fact_find(w->dead_sessions, uid);
		if ((g && g->at_ns) || s)
			world_fail(w, "session %s goes on, %s was revoked", uid,
			           s ? "it" : "its grant");
		if (o && o->revoked && o->no_io_from_ns)
			world_fail(w, "session %s of the revoked tenant %s goes on", uid, o->name);
	}
	if (!l || l->n_unreachable_agents)
		w->all_there_ns = 0;
	else if (!w->all_there_ns)
		w->all_there_ns = clock_boottime_ns();
	if (l)
		list_free(l);
	after[0] = 0;
	l = list(w, ROS2__V1__OBJECT_KIND__OBJECT_KIND_LEASE, after, false);
	for (size_t i = 0; l && i < l->n_leases; i++) {
		const struct object *o = live_tenant(w, l->leases[i]->tenant);

		if (l->leases[i]->expires_in_ms > (o && o->live < 3 ? 1000 : 30000))
			world_fail(w, "lease %" PRIu64 " of %s has %" PRIu64 " ms",
			           l->leases[i]->lease_id, l->leases[i]->tenant,
			           l->leases[i]->expires_in_ms);
		if (o && o->revoked && o->no_io_from_ns && l->leases[i]->expires_in_ms)
			world_fail(w, "lease %" PRIu64 " of the revoked tenant %s is alive",
			           l->leases[i]->lease_id, o->name);
	}
	if (l)
		list_free(l);
}

void check_rights(struct world *w)
{
	check_grants(w);
	check_sessions(w);
}

/* ---- what clients noted ---- */

static void check_window(struct world *w, const struct window *v, const struct notes *n)
{
	uint64_t count = __atomic_load_n(&n->n_spans, __ATOMIC_ACQUIRE);

	/* Spans are in order of their end; the newest first, until they lie before the window. */
	for (uint64_t i = count; i-- > 0 && n->span[i].done_ns > v->from_ns;) {
		if (n->span[i].submit_ns < v->from_ns || n->span[i].done_ns >= v->until_ns)
			continue;
		world_fail(w, "live-%d: I/O succeeded %.3f ms after its right had ended: %s",
		           v->tenant, (double)(n->span[i].submit_ns - v->from_ns) / 1e6, v->why);
		return;
	}
}

/* Whoever ended it, and why: an agent that can be told has been told after a while. */
static void check_ended(struct world *w, const char *uid, const struct notes_session *s,
                        const struct fact *grant)
{
	uint64_t told = MAX(grant->ended_ns, w->all_there_ns) + TOLD_NS;

	if (grant->n == GRANT_ENDED && w->all_there_ns && s->last_ok_submit_ns > told)
		world_fail(w,
		           "session %s does I/O under grant %s, which has ended at the controller",
		           uid, grant->key);
}

static void check_session_notes(struct world *w, const struct notes_session *s)
{
	char uid[ROS2_UID_STR_LEN];
	const struct fact *dead, *open, *grant;
	struct ros2_uid u;

	memcpy(u.b, s->uid, sizeof(u.b));
	ros2_uid_to_str(&u, uid);
	dead = fact_find(w->dead_sessions, uid);
	if (dead && s->last_ok_submit_ns > dead->at_ns)
		world_fail(w, "session %s did I/O %.3f ms after it was revoked", uid,
		           (double)(s->last_ok_submit_ns - dead->at_ns) / 1e6);
	open = fact_find(w->sessions, uid);
	grant = open ? fact_find(w->grants, open->other) : NULL;
	if (grant && grant->at_ns && s->last_ok_submit_ns > grant->at_ns)
		world_fail(w, "session %s did I/O %.3f ms after its grant was revoked", uid,
		           (double)(s->last_ok_submit_ns - grant->at_ns) / 1e6);
	if (grant)
		check_ended(w, uid, s, grant);
}

/* Windows that are still open are looked at as far as they reach now. */
void check_notes(struct world *w)
{
	for (int i = 0; i < w->n_notes; i++) {
		struct notes *n = w->notes[i];
		const struct object *o = &w->object[w->notes_tenant[i]];
		struct window now = {o->live, o->no_io_from_ns, UINT64_MAX, "revoked or deleted"};
		uint64_t count = __atomic_load_n(&n->n_sessions, __ATOMIC_ACQUIRE);

		if (n->failed[0] && !w->told[i])
			world_fail(w, "client %d of %s: %s", i, o->name, n->failed);
		w->told[i] = n->failed[0];
		for (uint64_t k = w->windows_checked; k < w->n_windows; k++)
			if (w->window[k].tenant == o->live)
				check_window(w, &w->window[k], n);
		if (now.from_ns)
			check_window(w, &now, n);
		for (uint64_t s = 0; s < count; s++)
			check_session_notes(w, &n->session[s]);
	}
	w->windows_checked = w->n_windows;
}

/* ---- the end ---- */

static const char *busy_agent(const Ros2__V1__ListReply *l)
{
	static char words[256];

	for (size_t i = 0; i < l->n_objects; i++) {
		const Ros2__V1__AgentInfo *a = l->objects[i]->agent;

		if (!a || !a->enrolled || (a->connected && !a->spool_records))
			continue;
		snprintf(words, sizeof(words),
		         "%.63s: %sconnected, %" PRIu64 " records not forwarded",
		         l->objects[i]->name, a->connected ? "" : "not ", a->spool_records);
		return words;
	}
	if (!l->n_sessions && !l->n_leases && !l->n_unreachable_agents)
		return NULL;
	snprintf(words, sizeof(words), "%zu sessions, %zu leases, %zu agents do not say",
	         l->n_sessions, l->n_leases, l->n_unreachable_agents);
	return words;
}

/* Sessions and leases as the agents say when they are asked, not as of their last beat. */
void check_idle(struct world *w)
{
	static const int kinds[] = {ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT,
	                            ROS2__V1__OBJECT_KIND__OBJECT_KIND_SESSION,
	                            ROS2__V1__OBJECT_KIND__OBJECT_KIND_LEASE};
	const char *busy = "no answer";

	for (int i = 0; busy && i < w->tries; i++) {
		busy = NULL;
		for (size_t k = 0; !busy && k < ARRAY_SIZE(kinds); k++) {
			char after[128] = "";
			Ros2__V1__ListReply *l = list(w, kinds[k], after, false);

			busy = l ? busy_agent(l) : "no answer";
			if (l)
				list_free(l);
		}
		if (busy)
			poll(NULL, 0, TRY_MS);
	}
	if (busy)
		world_fail(w, "nobody works, and yet: %s", busy);
}
