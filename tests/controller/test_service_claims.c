/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one agent says of another's, in the fields of AgentLink that name nothing it could own: a
 * grant it says it has, a question it was not asked, a record of another's. No effect, one record
 * each; the control is the same, said by the agent whose it is.
 */
#include "tests/controller/service_audit.h"
#include "tests/await.h"

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

struct two {
	struct sf *f;
	struct fake a, b; /* dpu-0, where alpha is; dpu-1 */
	struct ros2_uid alpha;
};

static Ros2__V1__ControllerMessage *want(struct fake *a, Ros2__V1__ControllerMessage__MsgCase k)
{
	Ros2__V1__ControllerMessage *m = fake_next(a, k, AWAIT_MS);

	if (!m)
		fail_msg("agent %s was not sent message %d (%s)", a->name, k, a->why.msg);
	return m;
}

static void link_up(struct fake *a)
{
	fake_connect(a, NULL, 0);
	want(a, MSG(WELCOME));
	fake_wait_synced(a);
}

static void two_start(void **state, struct two *t)
{
	Ros2__V1__GetReply *g;

	memset(t, 0, sizeof(*t));
	t->f = *state;
	sf_apply(t->f, sf_engine);
	sf_apply(t->f, sf_agent0);
	sf_apply(t->f, sf_agent1);
	sf_apply(t->f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	g = sf_get(t->f, KIND(TENANT), "alpha");
	memcpy(t->alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(t->f, &t->a, "dpu-0");
	fake_enrol(t->f, &t->b, "dpu-1");
	link_up(&t->a);
	link_up(&t->b);
}

static void two_stop(struct two *t)
{
	fake_free(&t->a);
	fake_free(&t->b);
}

/* One record of seq @seq that says it is of @origin ("" = says nothing). */
static void forward(struct fake *a, uint64_t seq, const struct ros2_uid *origin)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *drafts = &d;
	Ros2__V1__AuditRecord r = ROS2__V1__AUDIT_RECORD__INIT;
	Ros2__V1__AuditOrigin o = ROS2__V1__AUDIT_ORIGIN__INIT;
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(origin, uid);
	o.agent = (char *)"dpu-0";
	o.agent_uid = uid;
	r.action = (char *)"session.open";
	r.actor = (char *)TRAINER;
	r.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	r.origin = &o;
	d.seq = seq;
	d.record = &r;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, a->incarnation.b};
	b.drafts = &drafts;
	b.n_drafts = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(a, &m);
	want(a, MSG(AUDIT_ACK));
}

/* What this agent answers to question @id: one session. */
static void answer(struct fake *a, uint64_t id, uint8_t session)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	Ros2__V1__SessionInfo s = ROS2__V1__SESSION_INFO__INIT, *sessions = &s;
	struct ros2_uid uid = {.b = {session}};

	s.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, uid.b};
	s.principal = (char *)TRAINER;
	r.request_id = id;
	r.sessions = &sessions;
	r.n_sessions = 1;
	r.last = true;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
}

struct question {
	struct sf *f;
	pthread_t thread;
	Ros2__V1__ListReply *reply;
};

static void *ask(void *arg)
{
	struct question *q = arg;
	Ros2__V1__ListRequest req = ROS2__V1__LIST_REQUEST__INIT;

	req.kind = KIND(SESSION);
	req.agent = (char *)"dpu-0";
	ros2_v1_admin_list_sync(q->f->admin, &req, 9000, &q->reply, NULL);
	return NULL;
}

/* The sessions that an administrator sees of dpu-0, when these agents answer. */
static void sessions_of_dpu_0(struct two *t, bool forge, uint8_t expect)
{
	struct question q = {.f = t->f};
	uint64_t id;

	assert_int_equal(pthread_create(&q.thread, NULL, ask, &q), 0);
	id = want(&t->a, MSG(REPORT_REQUEST))->report_request->request_id;
	if (forge) {
		answer(&t->b, id, 66);
		sf_audit_wait(t->f, "agent.claim", 1);
	}
	answer(&t->a, id, expect);
	pthread_join(q.thread, NULL);
	assert_non_null(q.reply);
	assert_int_equal(q.reply->n_sessions, 1);
	assert_int_equal(q.reply->sessions[0]->session_uid.data[0], expect);
	ros2__v1__list_reply__free_unpacked(q.reply, NULL);
}

static struct ros2_uid granted(struct two *t)
{
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid uid;

	m = want(&t->a, MSG(GRANT_REPLY));
	assert_int_equal(m->grant_reply->status, 0);
	o = fake_open(&t->a, m->grant_reply->grant);
	memcpy(uid.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return uid;
}

static struct ros2_uid get_grant(struct two *t)
{
	fake_ask_grant(&t->a, 1, &t->alpha, TRAINER);
	return granted(t);
}

static void hello_with(struct fake *a, struct ros2_uid *grant)
{
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;

	fake_disconnect(a);
	have.kind = KIND(GRANT);
	have.uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant->b};
	have.version = 1;
	fake_connect(a, &have, 1);
	want(a, MSG(WELCOME));
	fake_wait_synced(a);
}

static unsigned grants_of_alpha(struct sf *f)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), "alpha");
	unsigned n = g->object->tenant->grants;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return n;
}

static void claim__of_what_is_anothers_is_recorded_without_effect(void **state)
{
	struct ros2_uid grant;
	struct two t;

	two_start(state, &t);
	/* Controls first: of its own, and nothing is said of it. */
	sessions_of_dpu_0(&t, false, 1);
	forward(&t.a, 1, &t.a.uid);
	grant = get_grant(&t);
	hello_with(&t.a, &grant);
	assert_int_equal(sf_audit_count_action(t.f, "agent.claim", ""), 0);
	/* A question that dpu-0 was asked is not answered by dpu-1. */
	sessions_of_dpu_0(&t, true, 2);
	/* A record is of who sends it, whatever it says. */
	forward(&t.b, 1, &t.a.uid);
	sf_audit_wait(t.f, "agent.claim", 2);
	sf_audit_names(t.f, "agent.claim", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED,
	               "spiffe://" TD "/agent/dpu-1", "agent", "dpu-1");
	/* Who says that it has dpu-0's grant gets nothing by it, and takes nothing away. */
	hello_with(&t.b, &grant);
	sf_audit_wait(t.f, "agent.claim", 3);
	assert_int_equal(grants_of_alpha(t.f), 1);
	two_stop(&t);
}

static void claim__of_anothers_grant_in_use_does_not_renew_it(void **state)
{
	struct ros2_uid grant;
	struct two t;

	two_start(state, &t);
	/* At home at both: so that nothing but whose grant it is decides. */
	sf_apply(t.f, sf_tenant("alpha", "2s", "10m", "dpu-0, dpu-1"));
	grant = get_grant(&t);
	while (!sf_audit_count_action(t.f, "grant.expire", "") &&
	       !sf_audit_count_action(t.f, "grant.renew", "")) {
		fake_beat(&t.b, &grant, 1);
		want(&t.b, MSG(CONTACT));
		/* poll: the log */
		usleep(20000);
	}
	assert_int_equal(sf_audit_count_action(t.f, "grant.renew", ""), 0);
	/* The control: of the agent that has it. */
	fake_ask_grant(&t.a, 2, &t.alpha, TRAINER);
	grant = granted(&t);
	while (!sf_audit_count_action(t.f, "grant.renew", "")) {
		fake_beat(&t.a, &grant, 1);
		want(&t.a, MSG(CONTACT));
		/* poll: the log */
		usleep(20000);
	}
	two_stop(&t);
}

/* ---- text that is cut ---- */

#define LONG_WORDS 600

/* @pad bytes, then characters of three: whatever is kept of it ends within one, for one of 0..2. */
static char *long_words(char out[LONG_WORDS + 1], unsigned pad)
{
	memset(out, 'x', pad);
	for (size_t i = pad; i + 3 <= LONG_WORDS; i += 3) {
		memcpy(out + i, "\xe2\x82\xac", 3);
		out[i + 3] = '\0';
	}
	return out;
}

static void say_failed(struct fake *a, const struct ros2_uid *tenant, const char *words)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ObjectState st = ROS2__V1__OBJECT_STATE__INIT;

	st.kind = KIND(TENANT);
	st.uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)tenant->b};
	st.version = 1;
	st.failed_reason = (char *)words;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
	m.state = &st;
	fake_send(a, &m);
	fake_beat(a, NULL, 0);
	want(a, MSG(CONTACT)); /* so it was heard */
}

static void list_agents(struct sf *f, const char *expect)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__V1__ListReply *r = NULL;

	q.kind = KIND(AGENT);
	if (ros2_v1_admin_list_sync(f->admin, &q, 9000, &r, &err))
		fail_msg("agents: %s", err.msg);
	assert_int_equal(r->n_objects, 2);
	assert_memory_equal(r->objects[0]->agent->address, expect, 30);
	assert_memory_equal(r->objects[0]->agent->version, expect, 30);
	ros2__v1__list_reply__free_unpacked(r, NULL);
}

static void text__that_is_cut_leaves_every_answer_readable(void **state)
{
	char words[LONG_WORDS + 1];
	Ros2__V1__GetReply *g;
	struct two t;

	two_start(state, &t);
	for (unsigned pad = 0; pad < 3; pad++) {
		fake_disconnect(&t.a);
		t.a.software = t.a.address = long_words(words, pad);
		link_up(&t.a);
		list_agents(t.f, words);
		say_failed(&t.a, &t.alpha, words);
		g = sf_get(t.f, KIND(TENANT), "alpha");
		assert_int_equal(g->object->n_rollout, 1);
		assert_memory_equal(g->object->rollout[0]->failed_reason, words, 300);
		ros2__v1__get_reply__free_unpacked(g, NULL);
	}
	two_stop(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			claim__of_what_is_anothers_is_recorded_without_effect, sf_setup,
			sf_teardown),
		cmocka_unit_test_setup_teardown(claim__of_anothers_grant_in_use_does_not_renew_it,
	                                        sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(text__that_is_cut_leaves_every_answer_readable,
	                                        sf_setup, sf_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
