/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and leases, when the controller asks: in pieces, bounded, the last one marked. Leases
 * are named by lease id, never by key. */
#include "agent/sessions.h"
#include "agent/uplink.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <string.h>

#define PIECE      128
#define REPORT_MAX 5000u

struct report {
	struct agent *a;
	uint64_t request_id, generation;
	uint32_t n, max;
	Ros2__V1__LeaseInfo v[PIECE], *ptrs[PIECE];
	struct ros2_uid uids[PIECE][2];
	uint32_t in_piece;
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
	o->transport = (char *)"tcp";
	o->opened_unix_ns = s->opened_unix_ns;
	o->regions = st.regions;
	o->handles = HASH_COUNT(s->handles);
	o->read_bytes = st.read_bytes;
	o->write_bytes = st.write_bytes;
	o->violations = st.violations;
	o->copied_bytes = st.copied_bytes;
}

static void report_sessions(struct agent *a, const Ros2__V1__ReportRequest *m, uint32_t max,
                            const struct ros2_uid *tenant)
{
	static Ros2__V1__SessionInfo v[PIECE], *ptrs[PIECE];
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	const struct agent_session *s;
	uint32_t n = 0;

	r.request_id = m->request_id;
	r.sessions = ptrs;
	for (s = sessions_first(a->sessions); s && n < max; s = s->hh.next) {
		if (s->state != SESSION_LIVE || (tenant && !ros2_uid_eq(tenant, &s->tenant)))
			continue;
		session_info(a, s, &v[r.n_sessions]);
		ptrs[r.n_sessions] = &v[r.n_sessions];
		n++;
		if (++r.n_sessions == PIECE) {
			send_piece(a, &r);
			r.n_sessions = 0;
		}
	}
	r.last = !m->leases;
	if (r.n_sessions || r.last)
		send_piece(a, &r);
}

static void flush_leases(struct report *rep, bool last)
{
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;

	if (rep->generation != uplink_generation(rep->a->uplink))
		return;
	r.request_id = rep->request_id;
	r.n_leases = rep->in_piece;
	r.leases = rep->ptrs;
	r.last = last;
	rep->in_piece = 0;
	send_piece(rep->a, &r);
}

static void on_lease(void *arg, const struct dp_lease_info *l)
{
	struct report *rep = arg;
	Ros2__V1__LeaseInfo *o;
	const struct agent_session *s;
	uint32_t i;

	if (!l) {
		flush_leases(rep, true);
		free(rep);
		return;
	}
	if (rep->n++ >= rep->max)
		return;
	i = rep->in_piece++;
	o = &rep->v[i];
	s = agent_session_find(rep->a->sessions, &l->session);
	ros2__v1__lease_info__init(o);
	rep->uids[i][0] = l->session;
	rep->uids[i][1] = l->grant;
	o->lease_id = l->lease_id;
	o->tenant = s ? (char *)(uintptr_t)s->tenant_name : (char *)"";
	o->agent = rep->a->o.identity.name;
	o->session_uid = (ProtobufCBinaryData){16, rep->uids[i][0].b};
	o->grant_uid = (ProtobufCBinaryData){16, rep->uids[i][1].b};
	o->length = l->length;
	o->access = (char *)(uintptr_t)policy_access_to_str(l->access);
	o->state = (char *)"live";
	o->expires_in_ms = l->expires_in_ms;
	rep->ptrs[i] = o;
	if (rep->in_piece == PIECE)
		flush_leases(rep, false);
}

void report_on_request(struct agent *a, const Ros2__V1__ReportRequest *m)
{
	uint32_t max = m->limit ? MIN(m->limit, REPORT_MAX) : REPORT_MAX;
	struct ros2_uid tenant;
	bool one = !ros2_uid_from_bytes(m->tenant_uid.data, m->tenant_uid.len, &tenant);
	struct report *rep;

	if (m->sessions)
		report_sessions(a, m, max, one ? &tenant : NULL);
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
	rep->max = max;
	if (one)
		tenant = state_dp_uid(a->state, &tenant);
	dp_leases(a->dp, one ? &tenant : NULL, max, on_lease, rep);
}
