/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tenant's refusals at several agents: in the log as records and as counts, together exactly as
 * many as there were, and not so many records; also when the controller stops in between, or the
 * store refuses. Without the share (the control, another program of this text) all are records. In
 * a third program the controller's allocations fail.
 */
#include "controller/store.h"
#include "common/util.h"
#include "controller/store_txn.h"
#include "proto/audit/audit.h"
#include "tests/controller/service_audit.h"
#ifdef SWEEP
#include "tests/sweep/sweep.h"
#endif

#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define AGENTS  2
#define EACH    400 /* refusals of each agent */
#define BATCH   50

/* ---- a store that refuses once ---- */

static _Atomic bool refuse, refused; /* the next transaction that is of two agents */

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	const struct ros2_uid *agent = NULL;
	bool two = false;

	for (size_t i = 0; refuse && t && i < t->n_muts; i++) {
		if (t->muts[i].kind != STORE_ORIGIN_PUT)
			continue;
		two |= agent && !ros2_uid_eq(agent, &t->muts[i].origin.agent_uid);
		agent = &t->muts[i].origin.agent_uid;
	}
	if (!two)
		return __real_store_submit(s, t, done, arg, err);
	refuse = false;
	refused = true;
	store_txn_free(t);
	return ros2_err_set(err, -EBUSY, "the test says so");
}

/* ---- agents ---- */

static struct fake agents[AGENTS]; /* their streams outlive a test that fails */

struct stage {
	struct sf *f;
	char alpha[ROS2_UID_STR_LEN];
	struct ros2_uid alpha_uid;
};

static int setup(void **state)
{
	static struct stage s;
	Ros2__V1__GetReply *g;

	if (sf_setup((void **)&s.f))
		return -1;
	*state = &s;
	sf_apply(s.f, sf_engine);
	sf_apply(s.f, sf_agent0);
	sf_apply(s.f, sf_agent1);
	sf_apply(s.f, sf_tenant("alpha", "1h", "10m", "dpu-0, dpu-1"));
	g = sf_get(s.f, KIND(TENANT), "alpha");
	assert_int_equal(ros2_uid_from_bytes(g->object->uid.data, g->object->uid.len, &s.alpha_uid),
	                 0);
	ros2_uid_to_str(&s.alpha_uid, s.alpha);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	refuse = refused = false;
	for (int i = 0; i < AGENTS; i++) {
		memset(&agents[i], 0, sizeof(agents[i]));
		fake_enrol(s.f, &agents[i], i ? "dpu-1" : "dpu-0");
		fake_connect(&agents[i], NULL, 0);
		fake_wait_synced(&agents[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	struct stage *s = *state;
	void *f = s->f;

	for (int i = 0; i < AGENTS; i++)
		fake_free(&agents[i]);
	return sf_teardown(&f);
}

struct kind {
	const char *action;
	Ros2__V1__AuditResult result;
};
static const struct kind denied = {"test.deny", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED};
#ifndef SWEEP
static const struct kind done = {"test.done", ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK};
#endif

static uint64_t tenth_counts = 3;

/* Records @from to @to; every tenth stands for three, or as many as it says. */
static void forward(struct stage *s, struct fake *a, const struct kind *k, uint64_t from,
                    uint64_t to)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditAggregate three = ROS2__V1__AUDIT_AGGREGATE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d[BATCH], *ptrs[BATCH];
	Ros2__V1__AuditRecord rec[BATCH];

	three.count = tenth_counts;
	three.first_unix_ns = 1000;
	three.last_unix_ns = 2000;
	for (uint64_t i = 0; i <= to - from; i++) {
		ros2__v1__audit_draft__init(&d[i]);
		ros2__v1__audit_record__init(&rec[i]);
		rec[i].action = (char *)k->action;
		rec[i].actor = (char *)"spiffe://" TD "/tenant/alpha/trainer";
		rec[i].tenant = (char *)"alpha";
		rec[i].tenant_uid = s->alpha;
		rec[i].status = (char *)"DENIED";
		rec[i].result = k->result;
		rec[i].aggregate = (from + i) % 10 == 0 ? &three : NULL;
		d[i].seq = from + i;
		d[i].record = &rec[i];
		ptrs[i] = &d[i];
	}
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, a->incarnation.b};
	b.drafts = ptrs;
	b.n_drafts = to - from + 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(a, &m);
}

#ifndef SWEEP
/* Batch after batch, of each agent in turn. */
static void flood(struct stage *s, const struct kind *k, const uint64_t from[AGENTS], uint64_t to)
{
	for (uint64_t at = 0; at < to; at += BATCH)
		for (int i = 0; i < AGENTS; i++)
			if (from[i] + at <= to)
				forward(s, &agents[i], k, from[i] + at,
				        MIN(from[i] + at + BATCH - 1, to));
}

static void wait_acked(struct fake *a, uint64_t seq)
{
	const Ros2__V1__ControllerMessage *m;

	do {
		m = fake_next(a, MSG(AUDIT_ACK), 20000);
		if (!m)
			fail_msg("no acknowledgement of %s up to %llu (%s)", a->name,
			         (unsigned long long)seq, a->why.msg);
	} while (m->audit_ack->seq < seq);
}

#endif

/* ---- what the log has ---- */

struct log {
	unsigned records, sums;
	uint64_t events, named; /* counted; records that the sums name */
	uint64_t most;          /* counted in one record */
};

static void take_record(const Ros2__V1__AuditRecord *rec, struct log *l)
{
	l->records++;
	l->events += rec->aggregate ? rec->aggregate->count : 1;
	l->most = MAX(l->most, rec->aggregate ? rec->aggregate->count : 1);
	assert_string_equal(rec->tenant, "alpha");
	if (!rec->n_details)
		return;
	l->sums++;
	assert_string_equal(rec->details[0]->key, "sample");
	assert_int_equal(rec->aggregate->first_unix_ns, 0); /* the sample's agent tells no time */
	for (size_t i = 1; i < rec->n_details; i++) {
		unsigned long long from, to, n;

		assert_string_equal(rec->details[i]->key, "records");
		assert_int_equal(
			sscanf(rec->details[i]->value, "%*s %*s %llu-%llu: %llu", &from, &to, &n),
			3);
		assert_true(n >= 1 && n <= to - from + 1);
		l->named += n;
	}
}

static struct log read_log(struct stage *s, const char *action)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	struct log l = {0};
	ProtobufCMessage *m;
	int rc;

	q.action = (char *)action;
	assert_int_equal(
		rpc_reader_open(s->f->admin, &ros2_v1_audit_query, &q.base, 10000, &r, NULL), 0);
	while ((rc = rpc_reader_next(r, 5000, &m, NULL)) == 0) {
		const Ros2__V1__StoredRecord *row = ros2_v1_audit_query_out(m)->record;
		Ros2__V1__AuditRecord *rec = NULL;

		assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL),
		                 0);
		take_record(rec, &l);
		ros2__v1__audit_record__free_unpacked(rec, NULL);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rc, -ENODATA);
	rpc_reader_close(r);
	return l;
}

/* Of an agent's records; of links that are made while memory fails the controller has its own. */
static void assert_no_gaps(struct stage *s)
{
	for (int i = 0; i < AGENTS; i++) {
		Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

		q.action = (char *)"audit.gap";
		q.object = (char *)agents[i].name;
		assert_int_equal(sf_audit_count(s->f, &q), 0);
	}
}

/* Exactly once each, in however many records: of each agent @each. */
static void assert_whole_of(struct stage *s, uint64_t each)
{
	struct log l = read_log(s, denied.action);

	assert_int_equal(l.events, AGENTS * (each + 2 * (each / 10)));
	assert_int_equal(l.records - l.sums + l.named, AGENTS * each);
#ifdef WITHOUT_SHARE
	assert_int_equal(l.records, AGENTS * each);
#else
	/* 200, 20 in each second that the test takes, and the counts. */
	assert_true(l.sums > 0);
	assert_true(l.records < AGENTS * each);
#endif
	assert_no_gaps(s);
}

#ifndef SWEEP
static void assert_whole(struct stage *s)
{
	assert_whole_of(s, EACH);
}

static const uint64_t begin[AGENTS] = {1, 1};

static void refusals__of_one_tenant_at_many_agents_are_counted(void **state)
{
	struct stage *s = *state;

	flood(s, &denied, begin, EACH);
	for (int i = 0; i < AGENTS; i++)
		wait_acked(&agents[i], EACH);
	assert_whole(s);
}

static void records__of_what_was_done_are_never_counted(void **state)
{
	struct stage *s = *state;
	struct log l;

	flood(s, &done, begin, EACH);
	for (int i = 0; i < AGENTS; i++)
		wait_acked(&agents[i], EACH);
	l = read_log(s, done.action);
	assert_int_equal(l.records, AGENTS * EACH);
	assert_int_equal(l.sums, 0);
}

/* The streams are made anew, and what was not acknowledged is sent again. */
static void again(struct stage *s)
{
	uint64_t from[AGENTS];

	for (int i = 0; i < AGENTS; i++) {
		const Ros2__V1__ControllerMessage *m;

		fake_connect(&agents[i], NULL, 0);
		m = fake_next(&agents[i], MSG(WELCOME), 20000);
		assert_non_null(m);
		from[i] = m->welcome->audit_acked_seq + 1;
	}
	flood(s, &denied, from, EACH);
	for (int i = 0; i < AGENTS; i++)
		if (from[i] <= EACH)
			wait_acked(&agents[i], EACH);
}

static void
refusals__of_a_controller_that_stops_in_between_are_neither_lost_nor_doubled(void **state)
{
	struct stage *s = *state;

	for (int round = 0; round < 3; round++) {
		if (round)
			again(s);
		else
			flood(s, &denied, begin, EACH);
		for (int i = 0; i < AGENTS; i++)
			fake_disconnect(&agents[i]);
		sf_stop(s->f);
		sf_start(s->f);
	}
	again(s);
	assert_whole(s);
}

#ifndef WITHOUT_SHARE
/* One that lies about who it is stands for its own records only. */
static void refusals__of_two_agents_with_one_incarnation_are_counted_apart(void **state)
{
	struct stage *s = *state;

	agents[1].incarnation = agents[0].incarnation;
	flood(s, &denied, begin, EACH);
	for (int i = 0; i < AGENTS; i++)
		wait_acked(&agents[i], EACH);
	assert_whole(s);
}

/* Who says so many that they cannot be added does not make few of them, nor of others'. */
static void refusals__that_are_too_many_to_count_are_no_few(void **state)
{
	struct stage *s = *state;

	flood(s, &denied, begin, EACH);
	for (int i = 0; i < AGENTS; i++)
		wait_acked(&agents[i], EACH);
	tenth_counts = (uint64_t)1 << 63;
	forward(s, &agents[1], &denied, EACH + 1, EACH + BATCH);
	tenth_counts = 3;
	wait_acked(&agents[1], EACH + BATCH);
	assert_true(read_log(s, denied.action).most == UINT64_MAX);
}

static void refusals__that_the_store_refuses_are_the_agents_again(void **state)
{
	struct stage *s = *state;

	refuse = true;
	flood(s, &denied, begin, EACH);
	for (int i = 0; i < 4000 && !refused; i++)
		/* poll: a flag of the controller's thread */
		usleep(5000);
	assert_true(refused);
	for (int i = 0; i < AGENTS; i++)
		fake_disconnect(&agents[i]);
	again(s);
	assert_whole(s);
}
#endif

#else
/* ---- without memory ---- */

/* What is done each second, or tried again after some, is done soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms >= 1000 && ms <= 5000 ? ms / 100 : ms, fn, arg);
}

/* True when the controller has all up to @to. */
static bool is_acked(struct fake *a, uint64_t to, int ms)
{
	const Ros2__V1__ControllerMessage *m;

	while ((m = fake_next(a, MSG(AUDIT_ACK), ms)))
		if (m->audit_ack->seq >= to)
			return true;
	return false;
}

/* As an agent does whose stream ended: what was not acknowledged is sent again. */
static void hand_up_again(struct stage *s, struct fake *a, uint64_t to)
{
	for (int i = 0; i < 50; i++) {
		const Ros2__V1__ControllerMessage *m;
		uint64_t from;

		fake_disconnect(a);
		fake_connect(a, NULL, 0);
		m = fake_next(a, MSG(WELCOME), 20000);
		if (!m)
			continue;
		from = m->welcome->audit_acked_seq + 1;
		if (from > to)
			return;
		forward(s, a, &denied, from, to);
		if (is_acked(a, to, 20000))
			return;
	}
	fail_msg("%s: %s", a->name, a->why.msg);
}

/* Of each agent in each round so many that some are counted. */
#define ROUND 6

static void refusals__without_memory_are_neither_lost_nor_doubled(void **state)
{
	struct sweep w = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "controller"};
	struct stage *s = *state;
	uint64_t at = 0;

	while (sweep_next(&w)) {
		bool acked[AGENTS];

		for (int i = 0; i < AGENTS; i++)
			forward(s, &agents[i], &denied, at + 1, at + ROUND);
		at += ROUND;
		for (int i = 0; i < AGENTS; i++)
			acked[i] = is_acked(&agents[i], at, w.persistent ? 50 : 5000);
		sweep_off();
		for (int i = 0; i < AGENTS; i++) {
			if (acked[i])
				continue;
			if (!sweep_fired())
				fail_msg("not acknowledged: %s", agents[i].why.msg);
			hand_up_again(s, &agents[i], at);
		}
	}
	assert_true(w.points > 20);
	assert_whole_of(s, at);
}
#endif

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
#ifdef SWEEP
		T(refusals__without_memory_are_neither_lost_nor_doubled),
#else
		T(refusals__of_one_tenant_at_many_agents_are_counted),
		T(records__of_what_was_done_are_never_counted),
		T(refusals__of_a_controller_that_stops_in_between_are_neither_lost_nor_doubled),
#ifndef WITHOUT_SHARE
		T(refusals__of_two_agents_with_one_incarnation_are_counted_apart),
		T(refusals__that_are_too_many_to_count_are_no_few),
		T(refusals__that_the_store_refuses_are_the_agents_again),
#endif
#endif
	};

#ifdef SWEEP
	/* The program's own name begins as the loop's. */
	pthread_setname_np(pthread_self(), "test");
#endif
	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
