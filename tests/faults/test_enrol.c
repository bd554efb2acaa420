/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enrolment cut at its two messages: a lost answer is asked for again with the same key and token,
 * and is the same agent; another key gets nothing out of a used token, whatever was lost. And
 * without memory, at any allocation of the agent's.
 */
#include "tests/faults/pair.h"
#include "tests/sweep/sweep.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"

static unsigned number; /* of directories */

struct round {
	const struct cut *cut;
	struct enrolling *e;
};

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut) || pair_enrol_is_done(r->e);
}

static bool is_done(struct pair *p, void *arg)
{
	return pair_enrol_is_done(((struct round *)arg)->e);
}

static void new_dir(struct pair *p, char dir[300])
{
	snprintf(dir, 300, "%s-%u", p->dir, number++);
}

/* What is in the directory is whole and is the agent the controller knows, by this key. */
static void check_identity(struct pair *p, const char *dir, const char *where)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-0");
	struct ros2_err err = ROS2_ERR_INIT;
	struct identity id;
	uint64_t renew_in_s;

	if (identity_load(dir, "dpu-0", &id, &err) < 0 ||
	    identity_check_certificate(dir, "dpu-0", &renew_in_s, &err) < 0)
		fail_msg("%s: %s", where, err.msg);
	assert_true(r->object->agent->enrolled);
	assert_memory_equal(id.agent_uid.b, r->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(r, NULL);
}

static int enrol(struct pair *p, const char *dir, const struct join_token *t, struct ros2_err *err)
{
	struct round r = {.e = pair_enrol_begin(p, dir, t)};

	assert_true(pair_until(p, is_done, &r));
	return pair_enrol_end(r.e, err);
}

static void one(struct pair *p, struct cut *cut)
{
	struct round r = {.cut = cut};
	struct ros2_err err = ROS2_ERR_INIT;
	struct join_token t;
	char where[CUT_WHERE_MAX], dir[300], other[300];
	struct identity id;

	cut_where(cut, where);
	new_dir(p, dir);
	new_dir(p, other);
	pair_token(p, "dpu-0", &t);
	r.e = pair_enrol_begin(p, dir, &t);
	if (!pair_until(p, has_cut, &r))
		fail_msg("%s: neither cut nor done", where);
	/* Enrolled is enrolled as a whole, or not at all. */
	if (cut->for_good && cut_fired() >= CUT_FOR_GOOD)
		assert_int_equal(identity_load(dir, "dpu-0", &id, NULL), -ENOENT);
	cut_off();
	if (!pair_until(p, is_done, &r))
		fail_msg("%s: not done after it was mended", where);
	if (pair_enrol_end(r.e, &err))
		fail_msg("%s: %s", where, err.msg);
	check_identity(p, dir, where);
	/* Again with the same key: the same agent. With another: no. */
	assert_int_equal(enrol(p, dir, &t, &err), 0);
	check_identity(p, dir, where);
	assert_int_not_equal(enrol(p, other, &t, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_int_equal(identity_load(other, "dpu-0", &id, NULL), -ENOENT);
	check_identity(p, dir, where);
	join_token_fini(&t);
}

static void enrol__cut_at_each_message(void **state)
{
	static const struct cut points[] = {
		{.name = "EnrolRequest", .when = CUT_BEFORE},
		{.name = "EnrolRequest", .when = CUT_AFTER},
		{.name = "EnrolReply", .when = CUT_BEFORE},
	};
	struct pair *p = *state;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(points); i++) {
		struct cut c = points[i / 2];
		unsigned before = cut_points();

		c.for_good = i % 2;
		while (cut_next(&c, 2))
			one(p, &c);
		assert_true(cut_points() > before);
	}
	pair_check(p, "enrolment");
	pair_verify_log(p);
}

/* Each allocation of the agent fails, once, and then so many after it: it is enrolled as a whole or
 * not at all and says why, and the same token makes it the same agent. */
static unsigned without_memory(struct pair *p, const char *thread)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = thread, .most = 30};
	struct ros2_err err = ROS2_ERR_INIT;
	char dir[300], where[80];
	struct join_token t;
	struct identity id;

	while (sweep_next(&s)) {
		int r, loaded;

		snprintf(where, sizeof(where), "%s: allocation %u%s", thread, s.at,
		         s.persistent ? " and after" : "");
		new_dir(p, dir);
		pair_token(p, "dpu-0", &t);
		r = enrol(p, dir, &t, &err);
		sweep_off();
		if (r && (!sweep_fired() || !err.msg[0]))
			fail_msg("%s: %d: %s", where, r, err.msg);
		loaded = identity_load(dir, "dpu-0", &id, NULL);
		if (loaded && (!r || loaded != -ENOENT))
			fail_msg("%s: half an identity", where);
		if (enrol(p, dir, &t, &err))
			fail_msg("%s, and again: %s", where, err.msg);
		check_identity(p, dir, where);
		join_token_fini(&t);
	}
	return s.points;
}

static void enrol__without_memory_is_whole_or_not_there(void **state)
{
	struct pair *p = *state;

	assert_true(without_memory(p, "agent") > 20);
	assert_true(without_memory(p, "rpc-enrol") > 2);
	pair_check(p, "enrolment");
	pair_verify_log(p);
}

/* Of what may still be used there are 16 for an agent: what was used for a key that it has no more
 * is none of them. */
static void tokens__that_were_used_leave_room_for_others(void **state)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *reply = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct pair *p = *state;
	struct join_token t;
	char dir[300];

	for (int i = 0; i < 20; i++) {
		new_dir(p, dir);
		pair_token(p, "dpu-0", &t);
		assert_int_equal(enrol(p, dir, &t, &err), 0);
		join_token_fini(&t);
	}
	/* The last that was used is for the key that the agent has. */
	for (int i = 0; i < 15; i++)
		free(sf_token(p->f, "dpu-0", 0));
	q.agent = (char *)"dpu-0";
	assert_int_not_equal(
		ros2_v1_admin_create_agent_token_sync(p->f->admin, &q, 10000, &reply, &err), 0);
	assert_int_equal(err.status, ROS2_LIMIT);
	assert_non_null(strstr(err.msg, "16 tokens"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(tokens__that_were_used_leave_room_for_others,
	                                        pair_setup, pair_teardown),
		cmocka_unit_test_setup_teardown(enrol__without_memory_is_whole_or_not_there,
	                                        pair_setup, pair_teardown),
		cmocka_unit_test_setup_teardown(enrol__cut_at_each_message, pair_setup,
	                                        pair_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
