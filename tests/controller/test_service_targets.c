/* SPDX-License-Identifier: Apache-2.0 */
/* What a scripted agent says of its targets, as people see it: bounded, printable, over when the
 * next beat does not say it. */
#include "common/utf8.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/controller/service_fixture.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define MANY    70

struct said {
	Ros2__V1__TargetInfo v[MANY], *ptrs[MANY];
	Ros2__V1__Condition lost, *condition;
	Ros2__V1__Beat b;
	Ros2__V1__Stamp st;
	uint8_t boot[16];
};

/* @n targets, all lost. */
static struct said *said(struct said *s, size_t n)
{
	ros2__v1__beat__init(&s->b);
	ros2__v1__condition__init(&s->lost);
	fake_stamp(&s->st, s->boot);
	s->b.stamp = &s->st;
	for (size_t i = 0; i < n; i++) {
		ros2__v1__target_info__init(&s->v[i]);
		s->v[i].engine = (char *)"flash";
		s->v[i].tenant = (char *)"alpha";
		s->v[i].state = (char *)"BACKOFF";
		s->v[i].lost = true;
		s->v[i].since_unix_ns = 1000 + i;
		s->v[i].reason = (char *)"the connection ended";
		s->ptrs[i] = &s->v[i];
	}
	s->b.targets = s->ptrs;
	s->b.n_targets = n;
	s->lost.name = (char *)"TargetLost";
	s->lost.status = true;
	s->lost.reason = (char *)"engine flash";
	s->lost.since_unix_ns = 77;
	s->condition = &s->lost;
	s->b.conditions = &s->condition;
	s->b.n_conditions = n > 0;
	return s;
}

/* Returns when the controller has taken it. */
static void send(struct fake *a, struct said *s)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;

	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_BEAT;
	m.beat = &s->b;
	fake_send(a, &m);
	assert_non_null(fake_next(a, MSG(CONTACT), AWAIT_MS));
}

/* Its stream outlives a test that fails. */
static struct fake agent;

static struct fake *start(struct sf *f)
{
	struct fake *a = &agent;

	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	memset(a, 0, sizeof(*a));
	fake_enrol(f, a, "dpu-0");
	fake_connect(a, NULL, 0);
	fake_wait_synced(a);
	return a;
}

static void assert_shown(struct sf *f, size_t n, uint32_t left_out)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(AGENT), "dpu-0");
	const Ros2__V1__Condition *c = NULL;

	assert_int_equal(g->object->agent->n_targets, n);
	assert_int_equal(g->object->agent->targets_left_out, left_out);
	for (size_t i = 0; i < g->object->n_conditions; i++)
		if (!strcmp(g->object->conditions[i]->name, "TargetLost"))
			c = g->object->conditions[i];
	assert_int_equal(c != NULL, n > 0);
	if (c) {
		assert_true(c->status);
		assert_int_equal(c->since_unix_ns, 77);
		assert_string_equal(c->reason, "engine flash");
	}
	ros2__v1__get_reply__free_unpacked(g, NULL);
}

static void targets__are_shown_until_a_beat_says_that_they_are_back(void **state)
{
	const Ros2__V1__TargetInfo *t;
	Ros2__V1__GetReply *g;
	struct sf *f = *state;
	struct said s;
	struct fake *a;

	a = start(f);
	send(a, said(&s, 0));
	assert_shown(f, 0, 0);
	send(a, said(&s, 2));
	assert_shown(f, 2, 0);
	g = sf_get(f, KIND(AGENT), "dpu-0");
	t = g->object->agent->targets[1];
	assert_string_equal(t->engine, "flash");
	assert_string_equal(t->tenant, "alpha");
	assert_string_equal(t->state, "BACKOFF");
	assert_string_equal(t->reason, "the connection ended");
	assert_true(t->lost);
	assert_int_equal(t->since_unix_ns, 1001);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	/* One of them is back, the other is not used any more. */
	said(&s, 1);
	s.v[0].lost = false;
	s.v[0].reason = (char *)"";
	send(a, &s);
	g = sf_get(f, KIND(AGENT), "dpu-0");
	assert_int_equal(g->object->agent->n_targets, 1);
	assert_false(g->object->agent->targets[0]->lost);
	assert_string_equal(g->object->agent->targets[0]->reason, "");
	ros2__v1__get_reply__free_unpacked(g, NULL);
	send(a, said(&s, 0));
	assert_shown(f, 0, 0);
	fake_free(a);
}

static void targets__of_an_agent_that_is_away_are_not_shown(void **state)
{
	struct sf *f = *state;
	struct said s;
	struct fake *a;

	a = start(f);
	send(a, said(&s, 3));
	assert_shown(f, 3, 0);
	fake_disconnect(a);
	/* A new stream, before its first beat: the old one was of a time that is over. */
	fake_connect(a, NULL, 0);
	fake_wait_synced(a);
	assert_shown(f, 0, 0);
	send(a, said(&s, 1));
	assert_shown(f, 1, 0);
	fake_free(a);
}

static void targets__beyond_the_bound_are_counted(void **state)
{
	struct sf *f = *state;
	struct said s;
	struct fake *a;

	a = start(f);
	send(a, said(&s, 64));
	assert_shown(f, 64, 0);
	said(&s, MANY)->b.targets_left_out = 5;
	send(a, &s);
	assert_shown(f, 64, 5 + MANY - 64);
	said(&s, MANY)->b.targets_left_out = UINT32_MAX;
	send(a, &s);
	assert_shown(f, 64, UINT32_MAX);
	fake_free(a);
}

static void targets__words_are_cut_and_cleaned(void **state)
{
	const Ros2__V1__TargetInfo *t;
	struct sf *f = *state;
	Ros2__V1__GetReply *g;
	char words[4000];
	struct said s;
	struct fake *a;

	a = start(f);
	memset(words, 'x', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	memcpy(words, "\x1b[2J\n\xc2\x9b\xe2\x80\xae", 10);
	memcpy(words + 254, "\xc3\xbc", 2); /* one character, where it is cut */
	said(&s, 1);
	s.v[0].engine = s.v[0].tenant = s.v[0].state = s.v[0].reason = words;
	send(a, &s);
	g = sf_get(f, KIND(AGENT), "dpu-0");
	t = g->object->agent->targets[0];
	assert_int_equal(strlen(t->engine), ROS2_NAME_MAX);
	assert_int_equal(strlen(t->tenant), ROS2_NAME_MAX);
	assert_int_equal(strlen(t->state), 15);
	assert_int_equal(strlen(t->reason), 255);
	assert_memory_equal(t->reason,
	                    "?[2J?"
	                    "?????"
	                    "xx",
	                    12);
	assert_int_equal(t->reason[254], '?');
	assert_true(utf8_text_printable(t->engine) && utf8_text_printable(t->tenant) &&
	            utf8_text_printable(t->state) && utf8_text_printable(t->reason));
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_free(a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(targets__are_shown_until_a_beat_says_that_they_are_back),
		T(targets__of_an_agent_that_is_away_are_not_shown),
		T(targets__beyond_the_bound_are_counted),
		T(targets__words_are_cut_and_cleaned),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
