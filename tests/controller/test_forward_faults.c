/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of two incarnations of one agent at the store at once, and one of them fails: what waited
 * behind either is the agent's again, what the store has is neither taken twice nor called missing.
 * The store in between keeps batches back until the test says how each ends.
 */
#include "common/util.h"
#include "controller/store_txn.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"

#define MSG(k) ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

/* ---- the store in between ---- */

#define KEPT_MAX 8

struct kept {
	struct store *s;
	struct store_txn *t;
	store_done_fn done;
	void *arg;
	struct ros2_uid incarnation;
	uint64_t to;
	bool fail;
};

static struct kept kept[KEPT_MAX]; /* the controller's loop */
static size_t n_kept;
static _Atomic bool keeps;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	for (size_t i = 0; keeps && t && i < t->n_muts; i++) {
		const struct store_origin *o = &t->muts[i].origin;

		if (t->muts[i].kind != STORE_ORIGIN_PUT)
			continue;
		assert_true(n_kept < KEPT_MAX);
		kept[n_kept++] = (struct kept){s, t, done, arg, o->incarnation, o->seq, false};
		return 0;
	}
	return __real_store_submit(s, t, done, arg, err);
}

struct end {
	const struct ros2_uid *incarnation;
	bool fail;
};

static void end_on_loop(void *arg)
{
	struct store_result no = {.rc = -EBUSY};
	const struct end *e = arg;
	struct kept k = {0};

	for (size_t i = 0; i < n_kept && !k.s; i++) {
		if (!ros2_uid_eq(&kept[i].incarnation, e->incarnation))
			continue;
		k = kept[i];
		memmove(&kept[i], &kept[i + 1], (--n_kept - i) * sizeof(k));
	}
	if (!k.s)
		return;
	if (!e->fail) {
		__real_store_submit(k.s, k.t, k.done, k.arg, NULL);
		return;
	}
	store_txn_free(k.t);
	ros2_err_set(&no.err, -EBUSY, "the database is locked");
	k.done(k.arg, &no);
}

/* ---- the agent ---- */

struct world {
	struct sf *f;
	struct fake a;
	struct ros2_uid old; /* its incarnation before */
};

static void end(struct world *w, const struct ros2_uid *incarnation, bool fail)
{
	struct end e = {incarnation, fail};

	assert_int_equal(loop_call(w->f->loop, end_on_loop, &e), 0);
}

static void look(void *arg)
{
	*(size_t *)arg = n_kept;
}

/* So many batches have come to the store. */
static void wait_kept(struct world *w, size_t n)
{
	size_t have = 0;

	AWAIT(loop_call(w->f->loop, look, &have) || have == n);
	assert_int_equal(have, n);
}

static void forward(struct world *w, const struct ros2_uid *incarnation, uint64_t from, uint64_t to)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d[8], *ptrs[8];
	Ros2__V1__AuditRecord rec[8];

	for (uint64_t s = from; s <= to; s++) {
		size_t i = s - from;

		ros2__v1__audit_draft__init(&d[i]);
		ros2__v1__audit_record__init(&rec[i]);
		rec[i].action =
			ros2_uid_eq(incarnation, &w->old) ? (char *)"test.old" : (char *)"test.new";
		rec[i].actor = (char *)"spiffe://" TD "/agent/dpu-0";
		rec[i].result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
		d[i].seq = s;
		d[i].record = &rec[i];
		ptrs[i] = &d[i];
	}
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)incarnation->b};
	b.drafts = ptrs;
	b.n_drafts = to - from + 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(&w->a, &m);
}

static Ros2__V1__ControllerMessage *want(struct world *w, Ros2__V1__ControllerMessage__MsgCase k)
{
	Ros2__V1__ControllerMessage *m = fake_next(&w->a, k, AWAIT_MS);

	if (!m)
		fail_msg("message %d did not come (%s)", k, w->a.why.msg);
	return m;
}

static void want_ack(struct world *w, const struct ros2_uid *incarnation, uint64_t seq)
{
	Ros2__V1__ControllerMessage *m = want(w, MSG(AUDIT_ACK));

	assert_memory_equal(m->audit_ack->incarnation.data, incarnation->b, ROS2_UID_LEN);
	assert_int_equal(m->audit_ack->seq, seq);
}

static void begin(void **state, struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->f = *state;
	w->old = ros2_uid_new();
	sf_apply(w->f, sf_agent0);
	fake_enrol(w->f, &w->a, "dpu-0");
	fake_connect(&w->a, NULL, 0);
	want(w, MSG(WELCOME));
	fake_wait_synced(&w->a);
	keeps = true;
	/* Two batches of each: the first goes to the store, the second waits behind it. */
	forward(w, &w->old, 1, 2);
	forward(w, &w->old, 3, 3);
	forward(w, &w->a.incarnation, 1, 2);
	forward(w, &w->a.incarnation, 3, 4);
	wait_kept(w, 2);
}

static void link_again(struct world *w, uint64_t acked)
{
	fake_disconnect(&w->a);
	fake_connect(&w->a, NULL, 0);
	assert_int_equal(want(w, MSG(WELCOME))->welcome->audit_acked_seq, acked);
	fake_wait_synced(&w->a);
}

/* All of it once, in order, and nothing is said to be missing. */
static void check_log(struct world *w, unsigned n_old, unsigned n_new)
{
	sf_audit_wait(w->f, "test.old", n_old);
	sf_audit_wait(w->f, "test.new", n_new);
	assert_int_equal(sf_audit_count_action(w->f, "audit.gap", ""), 0);
	fake_free(&w->a);
}

static void forward__one_incarnation_fails_and_the_other_succeeds(void **state)
{
	struct world w;

	begin(state, &w);
	end(&w, &w.old, true);
	keeps = false;
	end(&w, &w.a.incarnation, false);
	want_ack(&w, &w.a.incarnation, 2);
	link_again(&w, 2);
	forward(&w, &w.old, 1, 3);
	want_ack(&w, &w.old, 3);
	forward(&w, &w.a.incarnation, 3, 5);
	want_ack(&w, &w.a.incarnation, 5);
	check_log(&w, 3, 5);
}

static void forward__the_link_is_made_anew_while_the_other_is_at_the_store(void **state)
{
	struct world w;

	begin(state, &w);
	end(&w, &w.old, true);
	link_again(&w, 0);
	/* What the store has comes again: it is on its way, no second time. */
	forward(&w, &w.a.incarnation, 1, 4);
	forward(&w, &w.old, 1, 3);
	wait_kept(&w, 2);
	keeps = false;
	end(&w, &w.a.incarnation, false);
	want_ack(&w, &w.a.incarnation, 2);
	want_ack(&w, &w.a.incarnation, 4);
	end(&w, &w.old, false);
	want_ack(&w, &w.old, 3);
	check_log(&w, 3, 4);
}

static void forward__both_fail_one_after_the_other(void **state)
{
	struct world w;

	begin(state, &w);
	end(&w, &w.old, true);
	end(&w, &w.a.incarnation, true);
	wait_kept(&w, 0);
	keeps = false;
	link_again(&w, 0);
	forward(&w, &w.a.incarnation, 1, 4);
	want_ack(&w, &w.a.incarnation, 4);
	forward(&w, &w.old, 1, 3);
	want_ack(&w, &w.old, 3);
	check_log(&w, 3, 4);
}

#define T(f) cmocka_unit_test_setup_teardown(f, sf_setup, sf_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(forward__one_incarnation_fails_and_the_other_succeeds),
		T(forward__the_link_is_made_anew_while_the_other_is_at_the_store),
		T(forward__both_fail_one_after_the_other),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
