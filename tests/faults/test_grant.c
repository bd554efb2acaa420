/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's way to its grant, cut at each message: the tenant's call and its answer, the agent's
 * request and the controller's reply, and what tells of both. Whatever is lost, a session that was
 * answered works and has a grant that is in the store; both sides come to the same grants; and the
 * next call succeeds.
 */
#include "tests/faults/pair.h"
#include "tests/faults/witness.h"
#include "common/util.h"

/* ---- a call on a thread of its own ---- */

struct opening {
	struct pair *p;
	pthread_t thread;
	_Atomic bool done;
	bool again; /* while it cannot be heard and more is to be cut */
	enum ros2_status status;
	struct ros2_uid session;
	struct ros2_err err;
};

static bool may_fail_so(enum ros2_status s)
{
	return s == ROS2_UNAVAILABLE || s == ROS2_CANCELLED || s == ROS2_CLOSED;
}

static void *open_main(void *arg)
{
	struct opening *o = arg;

	do
		o->status = pair_open(o->p->tenant, &o->session, &o->err);
	while (o->again && may_fail_so(o->status) && cut_fired() < CUT_FOR_GOOD);
	o->done = true;
	return NULL;
}

static bool is_settled(struct pair *p, void *arg)
{
	return pair_is_quiet(p) && pair_grants_agree(p);
}

struct round {
	const struct cut *cut;
	struct opening o;
};

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut) || (r->o.done && is_settled(p, NULL));
}

/* Ends what the round left: the next one needs a grant of its own. */
static void revoke_all(struct pair *p)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");

	for (size_t i = 0; i < r->n_grants; i++) {
		Ros2__V1__RevokeReply *rr = NULL;
		struct ros2_err err = ROS2_ERR_INIT;
		char uid[ROS2_UID_STR_LEN];
		struct ros2_uid u;

		assert_int_equal(ros2_uid_from_bytes(r->grants[i]->grant_uid.data, 16, &u), 0);
		ros2_uid_to_str(&u, uid);
		if (sf_revoke(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_GRANT, uid, 5000, &rr, &err))
			fail_msg("%s", err.msg);
		ros2__v1__revoke_reply__free_unpacked(rr, NULL);
	}
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

/* The connection that was lost is made anew by one of the first calls. */
static bool opens(struct pair *p, void *arg)
{
	struct opening *o = arg;

	o->status = pair_open(p->tenant, &o->session, &o->err);
	return !may_fail_so(o->status);
}

static void one(struct pair *p, struct cut *cut)
{
	struct round r = {.cut = cut, .o = {.p = p, .again = cut->for_good}};
	struct opening next = {.p = p};
	char where[CUT_WHERE_MAX];

	cut_where(cut, where);
	assert_int_equal(pthread_create(&r.o.thread, NULL, open_main, &r.o), 0);
	if (!pair_until(p, has_cut, &r))
		fail_msg("%s: neither cut nor settled", where);
	pair_check(p, where);
	cut_off();
	pthread_join(r.o.thread, NULL);
	if (r.o.status == ROS2_OK)
		assert_int_equal(pair_mount(p->tenant, &r.o.session), ROS2_OK);
	else if (!may_fail_so(r.o.status))
		fail_msg("%s: %s: %s", where, ros2_status_to_str(r.o.status), r.o.err.msg);
	if (!pair_until(p, is_settled, NULL))
		fail_msg("%s: the two do not agree after it was mended", where);
	if (!pair_until(p, opens, &next) || next.status != ROS2_OK)
		fail_msg("%s, and again: %s", where, next.err.msg);
	assert_int_equal(pair_mount(p->tenant, &next.session), ROS2_OK);
	revoke_all(p);
	assert_int_not_equal(pair_mount(p->tenant, &next.session), ROS2_OK);
	if (!pair_until(p, is_settled, NULL))
		fail_msg("%s: the two do not agree after the end", where);
	pair_check(p, where);
}

static void sweep(struct pair *p, const char *name, bool both, unsigned max)
{
	for (int kind = 0; kind < 4; kind++) {
		struct cut c = {.name = name,
		                .when = kind & 1 ? CUT_AFTER : CUT_BEFORE,
		                .for_good = kind & 2};
		unsigned before = cut_points();

		if (c.when == CUT_AFTER && !both)
			continue;
		while (cut_next(&c, max))
			one(p, &c);
		if (cut_points() == before)
			fail_msg("%s never came", name);
	}
}

static void grant__cut_at_each_message(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	sweep(p, "AgentMessage.grant_request", true, 2);
	sweep(p, "ControllerMessage.grant_reply", true, 2);
	sweep(p, "AgentMessage.audit", true, 2);
	sweep(p, "ControllerMessage.audit_ack", true, 2);
	assert_true(witness_counts(w)->grants > 0 && witness_counts(w)->receipts > 0);
	witness_free(w);
	pair_verify_log(p);
}

static void grant__call_of_the_tenant_cut(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	sweep(p, "OpenSessionRequest", true, 1);
	sweep(p, "OpenSessionReply", false, 1);
	witness_free(w);
	pair_verify_log(p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(grant__cut_at_each_message),
		T(grant__call_of_the_tenant_cut),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
