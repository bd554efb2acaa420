/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/controller/service_rows.h"
#include "tests/await.h"
#include "common/util.h"

#define MSG(k) ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

void rows_session_uid(size_t i, uint8_t uid[16])
{
	memset(uid, 0, 16);
	uid[0] = (uint8_t)((i + 1) >> 8);
	uid[1] = (uint8_t)(i + 1);
}

static bool beyond(const struct rows *r, const Ros2__V1__ReportRequest *q, size_t i)
{
	uint8_t uid[16];

	rows_session_uid(i, uid);
	if (r->gone[i])
		return false;
	if (q->session_uid.len && memcmp(uid, q->session_uid.data, 16) != 0)
		return false;
	if (r->lies)
		return true;
	if (q->leases)
		return i + 1 > q->after_lease_id;
	return !q->after_session_uid.len || memcmp(uid, q->after_session_uid.data, 16) > 0;
}

/* A page of made-up sessions, each message with others. */
static void answer_with_others(struct fake *a, uint64_t request_id, uint8_t from, bool last)
{
	static uint8_t uids[ROWS_MAX][16];
	static Ros2__V1__SessionInfo s[ROWS_MAX], *sp[ROWS_MAX];
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;

	for (size_t i = 0; i < ROWS_MAX; i++) {
		rows_session_uid(i, uids[i]);
		uids[i][2] = from;
		ros2__v1__session_info__init(&s[i]);
		s[i].session_uid = (ProtobufCBinaryData){16, uids[i]};
		sp[i] = &s[i];
	}
	r.request_id = request_id;
	r.last = last;
	r.sessions = sp;
	r.n_sessions = ROWS_MAX;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
}

static bool answers(struct fake *a, const Ros2__V1__ControllerMessage *msg)
{
	static char peer[ROWS_PEER_MAX + 1];
	static uint8_t uids[ROWS_MAX][16];
	static Ros2__V1__SessionInfo s[ROWS_MAX], *sp[ROWS_MAX];
	static Ros2__V1__LeaseInfo l[ROWS_MAX], *lp[ROWS_MAX];
	const Ros2__V1__ReportRequest *q = msg->report_request;
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	struct rows *rows = a->arg;
	size_t n = 0, peer_bytes;

	if (msg->msg_case != MSG(REPORT_REQUEST))
		return false;
	rows->asked++;
	if (rows->silent)
		return false;
	for (uint8_t i = 1; rows->others && i <= 5; i++)
		answer_with_others(a, q->request_id, i, i == 5);
	if (rows->others)
		return true;
	peer_bytes = atomic_load(&rows->peer_bytes);
	memset(peer, 'p', peer_bytes);
	peer[peer_bytes] = '\0';
	/* From the last to the first: the order is the controller's business. */
	for (size_t i = rows->n; i > 0; i--) {
		if (!beyond(rows, q, i - 1))
			continue;
		rows_session_uid(i - 1, uids[n]);
		ros2__v1__session_info__init(&s[n]);
		s[n].session_uid = (ProtobufCBinaryData){16, uids[n]};
		s[n].agent = (char *)"somebody-else";
		s[n].peer = peer;
		sp[n] = &s[n];
		ros2__v1__lease_info__init(&l[n]);
		l[n].lease_id = i;
		lp[n] = &l[n];
		n++;
	}
	r.request_id = q->request_id;
	r.last = true;
	r.more = n > q->limit;
	if (r.more && !rows->lies) { /* the first ones */
		memmove(sp, sp + n - q->limit, q->limit * sizeof(*sp));
		memmove(lp, lp + n - q->limit, q->limit * sizeof(*lp));
		n = q->limit;
	}
	r.sessions = sp;
	r.leases = lp;
	if (q->leases)
		r.n_leases = n;
	else
		r.n_sessions = n;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
	return true;
}

void rows_have(struct fake *a, struct rows *rows, size_t n)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Beat b = ROS2__V1__BEAT__INIT;
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	fake_stamp(&st, boot);
	rows->n = n;
	b.stamp = &st;
	b.sessions = b.leases = (uint32_t)n;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_BEAT;
	m.beat = &b;
	fake_send(a, &m);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
}

void rows_up(struct sf *f, struct fake *a, const char *name, struct rows *rows)
{
	fake_enrol(f, a, name);
	a->sees = answers;
	a->arg = rows;
	fake_connect(a, NULL, 0);
	fake_wait_synced(a);
}

void rows_documents(struct sf *f)
{
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_agent1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0, dpu-1"));
}
