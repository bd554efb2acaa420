/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who says so may lie, and what was so may be different by now: an agent whose certificate was
 * stolen (it claims sessions, tenants, histories and any number of incarnations), two controllers
 * on copies of one data directory, an administrator who gives back what another one deletes.
 */
#include "controller/store.h"
#include "controller/store_txn.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"

#define TRAINER  "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k)  ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)   ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define STATE(k) ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_##k

/* ---- a store that keeps what agents forward to itself, until it is let go ---- */

#define HELD_MAX 1024

static struct {
	_Atomic bool on;
	_Atomic size_t drafts;
	struct store *store;
	struct {
		struct store_txn *t; /* owned */
		store_done_fn done;
		void *arg;
	} v[HELD_MAX];
	size_t n, longest; /* loop thread: longest of their reasons */
} held;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	bool forwarded = false;

	for (size_t i = 0; t && i < t->n_muts; i++)
		forwarded |= t->muts[i].kind == STORE_ORIGIN_PUT;
	if (!held.on || !forwarded || held.n == HELD_MAX)
		return __real_store_submit(s, t, done, arg, err);
	for (size_t i = 0; i < t->n_drafts; i++)
		held.longest = MAX(held.longest, strlen(t->drafts[i]->reason));
	held.store = s;
	held.v[held.n].t = t;
	held.v[held.n].done = done;
	held.v[held.n++].arg = arg;
	held.drafts += t->n_drafts;
	return 0;
}

static void let_go(void *arg)
{
	held.on = false;
	for (size_t i = 0; i < held.n; i++)
		assert_int_equal(__real_store_submit(held.store, held.v[i].t, held.v[i].done,
		                                     held.v[i].arg, NULL),
		                 0);
	held.n = 0;
}

/* ---- two agents; alpha is placed on dpu-0 ---- */

struct two {
	struct sf *f;
	struct fake a, b; /* dpu-0, dpu-1 */
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

static struct two two; /* its streams outlive a test that fails */

static struct two *two_start(void **state)
{
	struct two *t = &two;
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
	return t;
}

static void two_stop(struct two *t)
{
	fake_free(&t->a);
	fake_free(&t->b);
}

static enum ros2_status asks(struct fake *a, const struct ros2_uid *tenant, const char *principal)
{
	fake_ask_grant(a, 1, tenant, principal);
	return (enum ros2_status)want(a, MSG(GRANT_REPLY))->grant_reply->status;
}

/* ---- an administrator's call that waits for receipts ---- */

struct call {
	struct sf *f;
	void (*fn)(struct call *c);
	const char *name;
	Ros2__V1__ObjectKind kind;
	uint32_t wait_ms;
	int rc;
	struct ros2_err err;
	Ros2__V1__RevokeReply *revoked;
	pthread_t thread;
};

static void do_revoke(struct call *c)
{
	c->rc = sf_revoke(c->f, c->kind, c->name, c->wait_ms, &c->revoked, &c->err);
}

static void do_delete(struct call *c)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;

	ref.kind = c->kind;
	ref.name = (char *)c->name;
	q.ref = &ref;
	c->rc = ros2_v1_admin_delete_sync(c->f->admin, &q, AWAIT_MS, &r, &c->err);
	if (r)
		ros2__v1__delete_reply__free_unpacked(r, NULL);
}

static void do_isolate(struct call *c)
{
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *r = NULL;

	q.agent = (char *)c->name;
	q.reason = (char *)"stolen";
	c->rc = ros2_v1_admin_isolate_agent_sync(c->f->admin, &q, AWAIT_MS, &r, &c->err);
	if (r)
		ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
}

static void *run(void *arg)
{
	struct call *c = arg;

	c->fn(c);
	return NULL;
}

static void begin(struct call *c)
{
	assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
}

/* ---- tests ---- */

/* The receipts of a delete are waited for outside the gate. */
static void delete__does_not_take_what_was_given_back_meanwhile(void **state)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *r = NULL;
	Ros2__V1__ControllerMessage *m;
	struct two *t = two_start(state);

	static struct call c;

	c = (struct call){.f = t->f, .fn = do_delete, .kind = KIND(TENANT), .name = "alpha"};
	begin(&c);
	m = want(&t->a, MSG(REVOKE));
	q.tenant = (char *)"alpha";
	q.reason = (char *)"a mistake";
	assert_int_equal(ros2_v1_admin_reinstate_sync(t->f->admin, &q, AWAIT_MS, &r, NULL), 0);
	ros2__v1__reinstate_reply__free_unpacked(r, NULL);
	assert_int_equal(asks(&t->a, &t->alpha, TRAINER), ROS2_OK);
	fake_receipt(&t->a, &m->revoke->revocation_uid, 0);
	pthread_join(c.thread, NULL);
	assert_int_not_equal(c.rc, 0);
	assert_int_equal(c.err.status, ROS2_CONFLICT);
	assert_int_equal(asks(&t->a, &t->alpha, TRAINER), ROS2_OK);
	/* The control: nobody gives anything back. */
	begin(&c);
	m = want(&t->a, MSG(REVOKE));
	fake_receipt(&t->a, &m->revoke->revocation_uid, 0);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	two_stop(t);
}

/* What this agent answers to the next question: that it has this session. */
static void claim_session(struct fake *a, const struct ros2_uid *session)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	Ros2__V1__SessionInfo s = ROS2__V1__SESSION_INFO__INIT, *sessions = &s;

	s.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)session->b};
	r.request_id = want(a, MSG(REPORT_REQUEST))->report_request->request_id;
	r.sessions = &sessions;
	r.n_sessions = 1;
	r.last = true;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
}

/* dpu-0 has the session and is not heard; dpu-1 says that it has it. */
static void revoke__of_a_session_reaches_who_did_not_answer(void **state)
{
	struct ros2_uid session = ros2_uid_new();
	char name[ROS2_UID_STR_LEN];
	struct two *t = two_start(state);

	ros2_uid_to_str(&session, name);
	static struct call c;

	c = (struct call){
		.f = t->f, .fn = do_revoke, .kind = KIND(SESSION), .name = name, .wait_ms = 1};
	/* The control: dpu-0 has no grant that lives, so it has no session. */
	begin(&c);
	claim_session(&t->b, &session);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(c.revoked->n_outcomes, 1);
	assert_string_equal(c.revoked->outcomes[0]->agent, "dpu-1");
	ros2__v1__revoke_reply__free_unpacked(c.revoked, NULL);
	assert_int_equal(asks(&t->a, &t->alpha, TRAINER), ROS2_OK);
	begin(&c);
	claim_session(&t->b, &session);
	assert_memory_equal(want(&t->a, MSG(REVOKE))->revoke->uid.data, session.b, ROS2_UID_LEN);
	pthread_join(c.thread, NULL);
	assert_int_equal(c.rc, 0);
	assert_int_equal(c.revoked->n_outcomes, 2);
	assert_string_equal(c.revoked->outcomes[1]->agent, "dpu-0");
	assert_int_equal(c.revoked->outcomes[1]->state, STATE(UNCONFIRMED));
	ros2__v1__revoke_reply__free_unpacked(c.revoked, NULL);
	two_stop(t);
}

/* Its stream stands until its receipt, or until that is waited for no longer. */
static void isolate__gives_the_agent_no_document_any_more(void **state)
{
	Ros2__V1__ControllerMessage *isolation, *m;
	struct two *t = two_start(state);

	static struct call iso, end;

	iso = (struct call){.f = t->f, .fn = do_isolate, .name = "dpu-0"};
	/* The control: it gets what is applied. */
	sf_apply(t->f, sf_tenant("beta", "1h", "10m", "dpu-0"));
	assert_true(want(&t->a, MSG(DELTA))->delta->n_upserts > 0);
	begin(&iso);
	isolation = want(&t->a, MSG(REVOKE));
	sf_apply(t->f, sf_tenant("gamma", "1h", "10m", "dpu-0"));
	end = (struct call){
		.f = t->f, .fn = do_revoke, .kind = KIND(TENANT), .name = "alpha", .wait_ms = 1};
	begin(&end);
	m = want(&t->a, MSG(REVOKE)); /* what takes away is still told, and came after gamma */
	assert_memory_equal(m->revoke->uid.data, t->alpha.b, ROS2_UID_LEN);
	m = fake_next(&t->a, MSG(DELTA), 0);
	if (m)
		fail_msg("%zu documents after the isolation", m->delta->n_upserts);
	fake_receipt(&t->a, &isolation->revoke->revocation_uid, 0);
	pthread_join(iso.thread, NULL);
	pthread_join(end.thread, NULL);
	assert_int_equal(iso.rc, 0);
	ros2__v1__revoke_reply__free_unpacked(end.revoked, NULL);
	two_stop(t);
}

/* dpu-1 asks in the name of a tenant that is not placed there. */
static void grant__asked_elsewhere_is_in_nobodys_history(void **state)
{
	struct two *t = two_start(state);

	assert_int_equal(asks(&t->b, &t->alpha, TRAINER), ROS2_DENIED);
	sf_audit_wait(t->f, "grant.deny", 1);
	assert_int_equal(sf_audit_count_action(t->f, "grant.deny", "alpha"), 0);
	/* The control: where it is placed. */
	assert_int_equal(asks(&t->a, &t->alpha, "spiffe://" TD "/x"), ROS2_DENIED);
	sf_audit_wait(t->f, "grant.deny", 2);
	assert_int_equal(sf_audit_count_action(t->f, "grant.deny", "alpha"), 1);
	two_stop(t);
}

#define BATCH   50
#define BATCHES 200

/* One batch of an incarnation of its own. False: the stream takes no more. */
static bool forward(struct fake *a, const char *reason)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d[BATCH], *ptrs[BATCH];
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	struct ros2_uid incarnation = ros2_uid_new();
	int r = -EAGAIN;

	rec.action = (char *)"test.done";
	rec.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	rec.reason = (char *)reason;
	for (size_t i = 0; i < BATCH; i++) {
		ros2__v1__audit_draft__init(&d[i]);
		d[i].seq = i + 1;
		d[i].record = &rec;
		ptrs[i] = &d[i];
	}
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, incarnation.b};
	b.drafts = ptrs;
	b.n_drafts = BATCH;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	return AWAIT((r = rpc_stream_send(a->s, &m.base)) != -EAGAIN) && !r;
}

/* The store stands, and the agent has a new incarnation for each batch. */
static void audit__of_any_number_of_incarnations_waits_within_one_bound(void **state)
{
	char reason[4001];
	struct two *t;

	memset(reason, 'x', sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = '\0';
	t = two_start(state);
	held.drafts = held.longest = 0;
	held.on = true;
	for (int i = 0; i < BATCHES && forward(&t->a, reason); i++)
		;
	assert_int_not_equal(fake_wait_closed(&t->a, AWAIT_MS), 0);
	assert_int_equal(t->a.why.status, ROS2_BUSY);
	assert_in_range(held.drafts, 4096, 4096 + 2 * BATCH);
	assert_in_range(held.longest, 500, 512); /* no more than the log takes */
	assert_int_equal(loop_call(t->f->loop, let_go, NULL), 0);
	/* What was taken is in the log; then there is room for what comes. */
	AWAIT(sf_audit_count_action(t->f, "test.done", "") >= 1000); /* the most one query gives */
	fake_disconnect(&t->a);
	link_up(&t->a);
	assert_true(forward(&t->a, "after"));
	assert_int_equal(want(&t->a, MSG(AUDIT_ACK))->audit_ack->seq, BATCH);
	two_stop(t);
}

/* Both run on copies of one data directory, so both are of the same epoch. */
static void hello__that_knows_our_epoch_from_another_is_refused(void **state)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__Epoch e = ROS2__V1__EPOCH__INIT;
	Ros2__V1__StatusReply *st = NULL;
	struct two *t = two_start(state);

	fake_disconnect(&t->a);
	sf_stop(t->f);
	sf_start(t->f);
	assert_int_equal(ros2_v1_admin_status_sync(t->f->admin, &q, AWAIT_MS, &st, NULL), 0);
	e.lineage = st->epoch->lineage;
	e.counter = st->epoch->counter;
	t->a.epoch = &e;
	fake_connect(&t->a, NULL, 0);
	assert_int_not_equal(fake_wait_closed(&t->a, AWAIT_MS), 0);
	assert_int_equal(t->a.why.status, ROS2_STALE_EPOCH);
	fake_disconnect(&t->a);
	/* The controls: of the epoch before, and then of ours, which it has from us. */
	e.counter--;
	link_up(&t->a);
	fake_disconnect(&t->a);
	e.counter++;
	link_up(&t->a);
	ros2__v1__status_reply__free_unpacked(st, NULL);
	two_stop(t);
}

/* It has what a newer controller has given out, or one whose data directory an older copy took the
 * place of: it would keep that against what is revoked here. */
static void hello__with_a_newer_document_than_ours_is_refused(void **state)
{
	static const struct {
		Ros2__V1__ObjectKind kind;
		const char *name;
	} documents[] = {{KIND(TENANT), "alpha"}, {KIND(ENGINE), "ram"}};
	struct two *t = two_start(state);

	for (size_t i = 0; i < ARRAY_SIZE(documents); i++) {
		Ros2__V1__GetReply *g = sf_get(t->f, documents[i].kind, documents[i].name);
		Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;

		have.kind = documents[i].kind;
		have.uid = g->object->uid;
		have.version = g->object->version + 1;
		fake_disconnect(&t->a);
		fake_connect(&t->a, &have, 1);
		assert_int_not_equal(fake_wait_closed(&t->a, AWAIT_MS), 0);
		assert_int_equal(t->a.why.status, ROS2_STALE_EPOCH);
		assert_null(strstr(t->a.why.msg, documents[i].name)); /* a guess learns nothing */
		fake_disconnect(&t->a);
		/* The controls: ours, and as much of something that is not here. */
		have.version--;
		fake_connect(&t->a, &have, 1);
		want(&t->a, MSG(WELCOME));
		fake_disconnect(&t->a);
		have.version = UINT64_MAX;
		have.kind = KIND(GRANT);
		fake_connect(&t->a, &have, 1);
		want(&t->a, MSG(WELCOME));
		ros2__v1__get_reply__free_unpacked(g, NULL);
	}
	sf_audit_names(t->f, "agent.connect", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED,
	               "spiffe://" TD "/agent/dpu-0", "agent", "spiffe://" TD "/agent/dpu-0");
	two_stop(t);
}

/* ---- hello after hello ---- */

#define HELLOS 250

struct hello {
	struct two *t;
	struct rpc_stream *s;
	struct rpc_channel *ch;
	_Atomic bool told;
};

static void hello_message(struct rpc_stream *s, const ProtobufCMessage *msg, void *user)
{
	((struct hello *)user)->told = true;
}

static void hello_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	((struct hello *)user)->told = true;
}

static void hello_open(void *arg)
{
	static const struct rpc_stream_ops ops = {.on_message = hello_message,
	                                          .on_closed = hello_closed};
	struct hello *h = arg;
	struct rpc_stream_opts o = {.ops = &ops, .user = h};
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AgentHello hello = ROS2__V1__AGENT_HELLO__INIT;
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	h->told = false;
	if (rpc_stream_open(h->ch, &ros2_v1_agent_link_link, NULL, &o, &h->s, NULL))
		return;
	rpc_stream_ref(h->s);
	fake_stamp(&st, boot);
	hello.protocol = RPC_PROTOCOL_VERSION;
	hello.agent_uid = (ProtobufCBinaryData){ROS2_UID_LEN, h->t->b.uid.b};
	hello.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, h->t->b.incarnation.b};
	hello.stamp = &st;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_HELLO;
	m.hello = &hello;
	rpc_stream_send(h->s, &m.base);
}

static void hello_end(void *arg)
{
	struct hello *h = arg;

	rpc_stream_close(h->s, ROS2_OK, NULL);
	rpc_stream_unref(h->s);
}

static void hello_channel_end(void *arg)
{
	rpc_channel_free(((struct hello *)arg)->ch);
}

/* Whoever has the certificate may connect and connect: the log grows by so many a second. */
static void hello__leaves_no_more_records_than_refusals_do(void **state)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	static struct hello h;
	uint64_t began, most;
	unsigned n;
	struct two *t = two_start(state);

	fake_disconnect(&t->b);
	h.t = t;
	h.ch = sf_channel(t->f, t->b.dir, t->f->ports.agent, t->f->client_loop);
	began = clock_monotonic_ns();
	for (int i = 0; i < HELLOS; i++) {
		loop_call(t->f->client_loop, hello_open, &h);
		assert_true(AWAIT(h.told));
		loop_call(t->f->client_loop, hello_end, &h);
	}
	most = 100 + 10 * ((clock_monotonic_ns() - began) / NS_PER_S + 1);
	loop_call(t->f->client_loop, hello_channel_end, &h);
	q.action = (char *)"agent.connect";
	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	n = sf_audit_count(t->f, &q);
	if (n < 20 || n > most + 2) /* both were connected before */
		fail_msg("%u records of connections, expected 20 to %llu", n,
		         (unsigned long long)most + 2);
	two_stop(t);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(delete__does_not_take_what_was_given_back_meanwhile),
		T(revoke__of_a_session_reaches_who_did_not_answer),
		T(isolate__gives_the_agent_no_document_any_more),
		T(grant__asked_elsewhere_is_in_nobodys_history),
		T(audit__of_any_number_of_incarnations_waits_within_one_bound),
		T(hello__that_knows_our_epoch_from_another_is_refused),
		T(hello__with_a_newer_document_than_ours_is_refused),
		T(hello__leaves_no_more_records_than_refusals_do),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
