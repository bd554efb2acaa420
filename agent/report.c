/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and leases, when the controller asks: a page in order of session uid or lease id, in
 * pieces, the last one marked. Leases are named by lease id, never by key. */
#include "agent/sessions.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <string.h>

#define PIECE      128
#define REPORT_MAX 5000u

struct report { /* leases, while the data plane tells them */
	struct agent *a;
	uint64_t request_id, generation, after;
	uint32_t max;
	struct dp_lease_info *v; /* owned */
	size_t n, cap;
	bool no_memory;
};

static void send_piece(struct agent *a, Ros2__V1__Report *r)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;

	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = r;
	uplink_send(a->uplink, &m);
}

static void session_info(struct agent *a, const struct agent_session *s, Ros2__V1__SessionInfo *o)
{
	struct dp_session_stats st = {0};

	if (dp_session_stats(a->dp, &s->uid, &st) < 0)
		memset(&st, 0, sizeof(st));
	ros2__v1__session_info__init(o);
	o->session_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)s->uid.b};
	o->grant_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)s->grant.b};
	o->tenant = (char *)(uintptr_t)s->tenant_name;
	o->principal = (char *)(uintptr_t)s->principal;
	o->agent = a->o.identity.name;
	o->peer = (char *)(uintptr_t)s->peer;
	o->transport = (char *)(uintptr_t)dp_transport_to_str(s->transport);
	o->opened_unix_ns = s->opened_unix_ns;
	o->regions = st.regions;
	o->handles = HASH_COUNT(s->handles);
	o->read_bytes = st.read_bytes;
	o->write_bytes = st.write_bytes;
	o->cleared_bytes = st.cleared_bytes;
	o->violations = st.violations;
	o->copied_bytes = st.copied_bytes;
}

static int by_session(const void *a, const void *b)
{
	return memcmp((*(const struct agent_session *const *)a)->uid.b,
	              (*(const struct agent_session *const *)b)->uid.b, 16);
}

static bool session_asked(const struct agent_session *s, const Ros2__V1__ReportRequest *m)
{
	const ProtobufCBinaryData *t = &m->tenant_uid, *one = &m->session_uid,
				  *after = &m->after_session_uid;

	if (s->state != SESSION_LIVE || (t->len == 16 && memcmp(t->data, s->tenant.b, 16) != 0))
		return false;
	if (one->len == 16 && memcmp(one->data, s->uid.b, 16) != 0)
		return false;
	return after->len != 16 || memcmp(s->uid.b, after->data, 16) > 0;
}

/* False: nothing was told. */
static bool report_sessions(struct agent *a, const Ros2__V1__ReportRequest *m, uint32_t max)
{
	static Ros2__V1__SessionInfo v[PIECE], *ptrs[PIECE];
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	const struct agent_session *first = sessions_first(a->sessions);
	AUTO_FREE const struct agent_session **all = calloc(HASH_COUNT(first) + 1, sizeof(*all));
	size_t n = 0;

	if (!all)
		return false;
	for (const struct agent_session *s = first; s; s = s->hh.next)
		if (session_asked(s, m))
			all[n++] = s;
	qsort(all, n, sizeof(*all), by_session);
	r.request_id = m->request_id;
	r.sessions = ptrs;
	for (size_t i = 0; i < n && i < max; i++) {
		session_info(a, all[i], &v[r.n_sessions]);
		ptrs[r.n_sessions] = &v[r.n_sessions];
		if (++r.n_sessions == PIECE) {
			send_piece(a, &r);
			r.n_sessions = 0;
		}
	}
	r.last = !m->leases;
	r.more = n > max;
	send_piece(a, &r);
	return true;
}

static void lease_info(const struct report *rep, const struct dp_lease_info *l,
                       Ros2__V1__LeaseInfo *o)
{
	const struct agent_session *s = agent_session_find(rep->a->sessions, &l->session);

	ros2__v1__lease_info__init(o);
	o->lease_id = l->lease_id;
	o->tenant = s ? (char *)(uintptr_t)s->tenant_name : (char *)"";
	o->agent = rep->a->o.identity.name;
	o->session_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)l->session.b};
	o->grant_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)l->grant.b};
	o->length = l->length;
	o->access = (char *)(uintptr_t)policy_access_to_str(l->access);
	o->state = (char *)(l->ending ? "ending" : "live");
	o->expires_in_ms = l->expires_in_ms;
	o->kind = (char *)(uintptr_t)dp_lease_kind_to_str(l->kind);
	o->engine = (char *)(uintptr_t)l->engine;
	if (l->kind != DP_LEASE_REGION)
		o->device = (char *)(uintptr_t)rep->a->o.rdma_device;
	o->count = l->count;
	o->since_unix_ns = l->since_unix_ns;
	o->issued = l->issued;
}

static int by_lease(const void *a, const void *b)
{
	uint64_t x = ((const struct dp_lease_info *)a)->lease_id,
		 y = ((const struct dp_lease_info *)b)->lease_id;

	return (x > y) - (x < y);
}

static void send_leases(struct report *rep)
{
	static Ros2__V1__LeaseInfo v[PIECE], *ptrs[PIECE];
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;

	if (rep->n) /* qsort takes no null pointer, not even for nothing */
		qsort(rep->v, rep->n, sizeof(*rep->v), by_lease);
	r.request_id = rep->request_id;
	r.leases = ptrs;
	for (size_t i = 0; i < rep->n && i < rep->max; i++) {
		lease_info(rep, &rep->v[i], &v[r.n_leases]);
		ptrs[r.n_leases] = &v[r.n_leases];
		if (++r.n_leases == PIECE) {
			send_piece(rep->a, &r);
			r.n_leases = 0;
		}
	}
	r.last = true;
	r.more = rep->n > rep->max;
	send_piece(rep->a, &r);
}

static void on_lease(void *arg, const struct dp_lease_info *l)
{
	struct report *rep = arg;

	if (!l) {
		/* Half an answer would look like a whole one: the controller names us instead. */
		if (!rep->no_memory && rep->generation == uplink_generation(rep->a->uplink))
			send_leases(rep);
		free(rep->v);
		free(rep);
		return;
	}
	if (l->lease_id <= rep->after || rep->no_memory)
		return;
	if (rep->n == rep->cap) {
		size_t cap = rep->cap ? 2 * rep->cap : PIECE;
		struct dp_lease_info *more = reallocarray(rep->v, cap, sizeof(*more));

		rep->no_memory = !more;
		if (!more)
			return;
		rep->v = more;
		rep->cap = cap;
	}
	rep->v[rep->n++] = *l;
}

void report_on_request(struct agent *a, const Ros2__V1__ReportRequest *m)
{
	uint32_t max = m->limit ? MIN(m->limit, REPORT_MAX) : REPORT_MAX;
	struct ros2_uid tenant;
	bool one = !ros2_uid_from_bytes(m->tenant_uid.data, m->tenant_uid.len, &tenant);
	struct report *rep;

	/* Half an answer would look like a whole one: the controller's time runs out instead. */
	if (m->sessions && !report_sessions(a, m, max))
		return;
	if (!m->leases) {
		if (!m->sessions) {
			Ros2__V1__Report r = ROS2__V1__REPORT__INIT;

			r.request_id = m->request_id;
			r.last = true;
			send_piece(a, &r);
		}
		return;
	}
	rep = calloc(1, sizeof(*rep));
	if (!rep)
		return; /* the controller's time runs out and it says so */
	rep->a = a;
	rep->request_id = m->request_id;
	rep->generation = uplink_generation(a->uplink);
	rep->after = m->after_lease_id;
	rep->max = max;
	if (one)
		tenant = state_dp_uid(a->state, &tenant);
	/* All of them: the data plane knows no order, the page does. */
	if (dp_leases(a->dp, one ? &tenant : NULL, UINT32_MAX, on_lease, rep) < 0)
		free(rep); /* as above */
}
