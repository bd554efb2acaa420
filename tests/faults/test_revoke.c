/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Revocation cut at each message, for a tenant, a grant and a session: the operator's call and its
 * answer, the word to the agent and the agent's receipt. What was acknowledged is in force, and so
 * it is after the link is made anew and after the agent has started again without a controller;
 * what was not is repeated and is then in force. In force: the session has ended, and with a
 * tenant's revocation no other begins.
 */
#include "tests/faults/pair.h"
#include "tests/await.h"
#include "tests/faults/witness.h"
#include "common/util.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

struct target {
	Ros2__V1__ObjectKind kind;
	struct ros2_uid session, grant;
	char name[ROS2_UID_STR_LEN + 8];
};

/* ---- the operator, on a thread of its own ---- */

struct revoking {
	struct pair *p;
	const struct target *t;
	pthread_t thread;
	_Atomic bool done;
	bool again; /* while it cannot be heard and more is to be cut */
	int rc;
	bool confirmed;
	struct ros2_err err;
};

static int take_away(struct pair *p, const struct target *t, uint32_t wait_ms, bool *confirmed,
                     struct ros2_err *err)
{
	Ros2__V1__RevokeRequest q = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__RevokeReply *r = NULL;
	int rc;

	ref.kind = t->kind;
	ref.name = (char *)t->name;
	q.ref = &ref;
	q.reason = (char *)"test";
	q.wait_ms = wait_ms;
	*confirmed = false;
	rpc_channel_reset_backoff(p->admin);
	rc = ros2_v1_admin_revoke_sync(p->admin, &q, 20000, &r, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < r->n_outcomes; i++)
		if (!strcmp(r->outcomes[i]->agent, "dpu-0"))
			*confirmed = r->outcomes[i]->state ==
			             ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED;
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	return 0;
}

static bool was_not_heard(const struct ros2_err *err)
{
	return err->status == ROS2_UNAVAILABLE || err->status == ROS2_CANCELLED ||
	       err->status == ROS2_CLOSED;
}

static void *revoke_main(void *arg)
{
	struct revoking *v = arg;

	do
		v->rc = take_away(v->p, v->t, v->again ? 1500 : 4000, &v->confirmed, &v->err);
	while (v->again && v->rc && was_not_heard(&v->err) && cut_fired() < CUT_FOR_GOOD);
	v->done = true;
	return NULL;
}

/* ---- rounds ---- */

struct round {
	const struct cut *cut;
	struct revoking v;
};

static bool is_quiet(struct pair *p, void *arg)
{
	return pair_is_quiet(p);
}

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut) || (r->v.done && pair_is_quiet(p));
}

struct opening {
	enum ros2_status status;
	struct ros2_uid session;
	struct ros2_err err;
};

static bool opens(struct pair *p, void *arg)
{
	struct opening *o = arg;

	o->status = pair_open(p->tenant, &o->session, &o->err);
	return o->status != ROS2_UNAVAILABLE && o->status != ROS2_CANCELLED;
}

static void begin(struct pair *p, Ros2__V1__ObjectKind kind, struct target *t)
{
	struct opening o = {0};
	Ros2__V1__GetReply *r;

	assert_true(pair_until(p, opens, &o));
	if (o.status != ROS2_OK)
		fail_msg("%s", o.err.msg);
	r = sf_get(p->f, KIND(TENANT), "alpha");
	assert_int_equal(r->n_grants, 1);
	*t = (struct target){.kind = kind, .session = o.session};
	assert_int_equal(ros2_uid_from_bytes(r->grants[0]->grant_uid.data, 16, &t->grant), 0);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	if (kind == KIND(TENANT))
		strcpy(t->name, "alpha");
	else
		ros2_uid_to_str(kind == KIND(GRANT) ? &t->grant : &t->session, t->name);
	assert_int_equal(pair_mount(p->tenant, &t->session), ROS2_OK);
}

/* Nothing of what was revoked works at the agent. */
static void check_in_force(struct pair *p, const struct target *t, const char *where)
{
	struct opening o = {0};

	if (pair_mount(p->tenant, &t->session) == ROS2_OK)
		fail_msg("%s: the session still works", where);
	if (t->kind != KIND(TENANT))
		return;
	assert_true(pair_until(p, opens, &o));
	if (o.status != ROS2_REVOKED)
		fail_msg("%s: a session is answered %s", where, ros2_status_to_str(o.status));
}

static bool is_over(struct pair *p, void *arg)
{
	struct pair_rollout ro;
	struct pair_held h;

	pair_rollout(p, &ro);
	h.uid = ro.uid;
	pair_held(p, &h);
	return pair_is_quiet(p) && !ro.revoked && h.is && !h.revoked && h.version == ro.version;
}

/* What the round left goes, and the tenant may work again. */
static void mend(struct pair *p, const struct target *t)
{
	Ros2__V1__GetReply *r;
	struct ros2_err err = ROS2_ERR_INIT;
	bool confirmed;

	if (t->kind == KIND(TENANT)) {
		Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
		Ros2__V1__ReinstateReply *rr = NULL;

		q.tenant = (char *)"alpha";
		q.reason = (char *)"test";
		if (ros2_v1_admin_reinstate_sync(p->f->admin, &q, 5000, &rr, &err))
			fail_msg("%s", err.msg);
		ros2__v1__reinstate_reply__free_unpacked(rr, NULL);
	}
	assert_true(pair_until(p, is_over, NULL));
	r = sf_get(p->f, KIND(TENANT), "alpha");
	for (size_t i = 0; i < r->n_grants; i++) {
		struct target g = {.kind = KIND(GRANT)};
		struct ros2_uid u;

		assert_int_equal(ros2_uid_from_bytes(r->grants[i]->grant_uid.data, 16, &u), 0);
		ros2_uid_to_str(&u, g.name);
		if (take_away(p, &g, 5000, &confirmed, &err))
			fail_msg("%s", err.msg);
		assert_true(confirmed);
	}
	ros2__v1__get_reply__free_unpacked(r, NULL);
	assert_true(pair_until(p, is_quiet, NULL));
}

/* The agent alone, from its disk: what it had to forget it has forgotten. */
static void start_alone(struct pair *p, const struct target *t, const char *where)
{
	relay_target(p->relay, CUT_LINK, 0);
	relay_cut(p->relay, CUT_LINK);
	pair_agent_stop(p);
	pair_agent_start(p);
	check_in_force(p, t, where);
	relay_target(p->relay, CUT_LINK, p->f->ports.agent);
	if (!pair_until(p, is_quiet, NULL))
		fail_msg("%s: no contact after the start", where);
}

/* As take_away, and once more when the connection that was cut is found dead only by the call: the
 * channel may have been ready by it still. */
static int take_away_again(struct pair *p, const struct target *t, bool *ret_confirmed,
                           struct ros2_err *err)
{
	int rc = 0;

	for (int i = 0; i < 5; i++) {
		*err = (struct ros2_err)ROS2_ERR_INIT;
		rc = rpc_channel_wait_ready(p->admin, AWAIT_MS, err);
		if (!rc)
			rc = take_away(p, t, 5000, ret_confirmed, err);
		if (!rc || !was_not_heard(err))
			break;
	}
	return rc;
}

static void one(struct pair *p, struct cut *cut, Ros2__V1__ObjectKind kind, bool restart)
{
	struct target t;
	struct round r = {.cut = cut, .v = {.p = p, .t = &t, .again = cut->for_good}};
	struct ros2_err err = ROS2_ERR_INIT;
	char where[200], at[CUT_WHERE_MAX];
	bool confirmed;

	cut_pause(true);
	begin(p, kind, &t);
	cut_where(cut, at);
	snprintf(where, sizeof(where), "%s, %s", at,
	         kind == KIND(TENANT) ? "tenant" : (kind == KIND(GRANT) ? "grant" : "session"));
	cut_pause(false);
	assert_int_equal(pthread_create(&r.v.thread, NULL, revoke_main, &r.v), 0);
	if (!pair_until(p, has_cut, &r))
		fail_msg("%s: neither cut nor quiet", where);
	cut_off();
	pthread_join(r.v.thread, NULL);
	if (!r.v.rc && r.v.confirmed)
		check_in_force(p, &t, where);
	if (r.v.rc && !was_not_heard(&r.v.err) && r.v.err.status != ROS2_NOT_FOUND)
		fail_msg("%s: %s: %s", where, ros2_status_to_str(r.v.err.status), r.v.err.msg);
	/* Again: the answer was lost, or is given twice. What is gone already is not found. */
	if (!pair_until(p, is_quiet, NULL))
		fail_msg("%s: not quiet after it was mended", where);
	if (take_away_again(p, &t, &confirmed, &err) && err.status != ROS2_NOT_FOUND)
		fail_msg("%s, and again: %s", where, err.msg);
	check_in_force(p, &t, where);
	relay_cut(p->relay, CUT_LINK);
	if (!pair_until(p, is_quiet, NULL))
		fail_msg("%s: not quiet after the link was made anew", where);
	check_in_force(p, &t, where);
	if (restart)
		start_alone(p, &t, where);
	pair_check(p, where);
	mend(p, &t);
}

static void sweep(struct pair *p, const char *name, bool both, unsigned max)
{
	static const Ros2__V1__ObjectKind kinds[] = {KIND(TENANT), KIND(GRANT), KIND(SESSION)};

	for (size_t i = 0; i < 4 * ARRAY_SIZE(kinds); i++) {
		struct cut c = {
			.name = name, .when = i & 1 ? CUT_AFTER : CUT_BEFORE, .for_good = i & 2};
		unsigned before = cut_points();

		if (c.when == CUT_AFTER && !both)
			continue;
		while (cut_next(&c, max))
			one(p, &c, kinds[i / 4], c.for_good && c.at == 1);
		if (cut_points() == before)
			fail_msg("%s never came", name);
	}
}

static void revoke__cut_at_each_message(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	sweep(p, "ControllerMessage.revoke", true, 1);
	sweep(p, "AgentMessage.receipt", true, 1);
	assert_true(witness_counts(w)->receipts > 0);
	witness_free(w);
	pair_verify_log(p);
}

static void revoke__call_of_the_operator_cut(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	sweep(p, "RevokeRequest", true, 1);
	sweep(p, "RevokeReply", false, 1);
	witness_free(w);
	pair_verify_log(p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(revoke__cut_at_each_message),
		T(revoke__call_of_the_operator_cut),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
