/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent tells of targets it has lost: bounded, the lost ones first, harmless words. */
#include "agent/health.h"
#include "agent/targets.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A line feed, ESC, CSI as one character, right-to-left override, half a character. */
#define HOSTILE "x\nlive \x1b[2J\xc2\x9b\xe2\x80\xae \xc3"
#define ESCAPED "x\\x0alive \\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae \\xc3"

typedef void (*row_fn)(void *arg, const struct dp_engine_health *h);

static struct dp_engine_health row(const char *engine, bool lost, uint64_t age_s, const char *words)
{
	return (struct dp_engine_health){.engine = engine,
	                                 .tenant = "alpha",
	                                 .state = lost ? "BACKOFF" : "LIVE",
	                                 .words = words,
	                                 .live = !lost,
	                                 .lost = lost,
	                                 .since_ns = clock_boottime_ns() - age_s * NS_PER_S};
}

static void tell(row_fn fn, void *arg, const char *engine, bool lost, uint64_t age_s,
                 const char *words)
{
	const struct dp_engine_health h = row(engine, lost, age_s, words);

	fn(arg, &h);
}

static void two_lost_of_three(row_fn fn, void *arg)
{
	tell(fn, arg, "good", false, 50, "an old fault");
	tell(fn, arg, "flash", true, 10, "the connection ended");
	tell(fn, arg, "disk", true, 20, HOSTILE);
}

static void assert_age(const struct target *t, uint64_t age_s)
{
	uint64_t now = clock_unix_ns();

	/* Generous: a machine that stood still, and a clock that was set a little. */
	assert_in_range(now - t->since_unix_ns, (age_s - 1) * NS_PER_S, (age_s + 60) * NS_PER_S);
}

static void targets__lost_ones_come_first_with_harmless_words(void **state)
{
	struct target v[TARGETS_MAX];
	uint32_t left_out = 77;
	char words[256];

	(void)state;
	fake_dp_health = two_lost_of_three;
	assert_int_equal(targets_list(NULL, v, &left_out), 3);
	assert_int_equal(left_out, 0);
	assert_string_equal(v[0].engine, "flash");
	assert_string_equal(v[0].reason, "the connection ended");
	assert_age(&v[0], 10);
	assert_string_equal(v[1].engine, "disk");
	assert_true(v[1].lost);
	assert_string_equal(v[1].state, "BACKOFF");
	assert_string_equal(v[1].reason, ESCAPED);
	assert_age(&v[1], 20);
	/* What was wrong once is no reason of one that is reached. */
	assert_string_equal(v[2].engine, "good");
	assert_false(v[2].lost);
	assert_string_equal(v[2].reason, "");
	assert_age(&v[2], 50);
	/* Of the one that has been for longest. */
	assert_int_equal(targets_lost(NULL, words, sizeof(words)), 2);
	assert_string_equal(words, "2 are lost, first engine disk, tenant alpha: " ESCAPED);
	fake_dp_health = NULL;
	assert_int_equal(targets_lost(NULL, words, sizeof(words)), 0);
	assert_string_equal(words, "");
	assert_int_equal(targets_list(NULL, v, &left_out), 0);
}

static void long_words(row_fn fn, void *arg)
{
	char words[200];

	/* Each byte becomes four: of 199 only 63 have room. */
	memset(words, '\x1b', sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	tell(fn, arg, "flash", true, 1, words);
}

static void targets__words_of_any_length_are_cut_between_characters(void **state)
{
	struct target v[TARGETS_MAX];
	uint32_t left_out;
	char words[256], small[50];

	(void)state;
	fake_dp_health = long_words;
	assert_int_equal(targets_list(NULL, v, &left_out), 1);
	assert_int_equal(strlen(v[0].reason), 252);
	assert_string_equal(v[0].reason + 248, "\\x1b");
	assert_int_equal(targets_lost(NULL, words, sizeof(words)), 1);
	assert_int_equal(strlen(words), sizeof(words) - 1);
	assert_true(utf8_text_printable(words));
	assert_int_equal(targets_lost(NULL, small, sizeof(small)), 1);
	assert_int_equal(strlen(small), sizeof(small) - 1);
	fake_dp_health = NULL;
}

static unsigned many_good, many_lost; /* in this order */

static void many(row_fn fn, void *arg)
{
	for (unsigned i = 0; i < many_good; i++)
		tell(fn, arg, "good", false, 5, "");
	for (unsigned i = 0; i < many_lost; i++)
		tell(fn, arg, "flash", true, 5, "gone");
	tell(fn, arg, "good", false, 5, "");
}

static void targets__more_than_there_is_room_for_are_counted(void **state)
{
	/* Room for TARGETS_MAX, in all, of lost ones, one beyond. */
	static const struct {
		unsigned good, lost, told_lost;
	} cases[] = {{0, 3, 3},
	             {TARGETS_MAX - 4, 3, 3},
	             {TARGETS_MAX, 3, 3},
	             {TARGETS_MAX, TARGETS_MAX, TARGETS_MAX},
	             {3, TARGETS_MAX + 5, TARGETS_MAX}};
	static struct target v[TARGETS_MAX];
	uint32_t left_out;

	(void)state;
	fake_dp_health = many;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned all = cases[i].good + cases[i].lost + 1, lost = 0;
		size_t n;

		many_good = cases[i].good;
		many_lost = cases[i].lost;
		n = targets_list(NULL, v, &left_out);
		assert_int_equal(n, MIN(all, TARGETS_MAX));
		assert_int_equal(n + left_out, all);
		while (lost < n && v[lost].lost)
			lost++;
		assert_int_equal(lost, cases[i].told_lost);
		for (size_t k = lost; k < n; k++) {
			assert_false(v[k].lost);
			assert_string_equal(v[k].engine, "good");
		}
	}
	fake_dp_health = NULL;
}

/* ---- in beats ---- */

static _Atomic bool gone;
static _Atomic unsigned lost_beats, good_beats;

static void one_target(row_fn fn, void *arg)
{
	tell(fn, arg, "flash", gone, 3, gone ? HOSTILE : "");
}

static bool has_condition(const Ros2__V1__Beat *b)
{
	for (size_t i = 0; i < b->n_conditions; i++)
		if (!strcmp(b->conditions[i]->name, "TargetLost"))
			return b->conditions[i]->status && b->conditions[i]->since_unix_ns &&
			       !strcmp(b->conditions[i]->reason,
			               "engine flash, tenant alpha: " ESCAPED);
	return false;
}

static void sees(const Ros2__V1__Beat *b)
{
	const Ros2__V1__TargetInfo *t = b->n_targets == 1 ? b->targets[0] : NULL;

	if (!t || strcmp(t->engine, "flash") != 0 || strcmp(t->tenant, "alpha") != 0 ||
	    b->targets_left_out || !t->since_unix_ns)
		return;
	if (t->lost && !strcmp(t->state, "BACKOFF") && !strcmp(t->reason, ESCAPED) &&
	    has_condition(b))
		lost_beats++;
	if (!t->lost && !strcmp(t->state, "LIVE") && !*t->reason && !has_condition(b))
		good_beats++;
}

static void beat__tells_a_lost_target_until_it_is_back(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	fake_dp_health = one_target;
	world_start(w);
	w->sees_beat = sees;
	world_agent_start(w);
	for (int i = 0; i < 2; i++) {
		gone = false;
		good_beats = 0;
		world_wait(w, &good_beats, 1);
		gone = true;
		lost_beats = 0;
		world_wait(w, &lost_beats, 1);
	}
	world_stop(w);
	free(w);
	fake_dp_health = NULL;
}

/* ---- what fails at the agent itself ---- */

static _Atomic unsigned failing_beats;
static unsigned pad;

static void sees_failing(const Ros2__V1__Beat *b)
{
	for (size_t i = 0; i < b->n_conditions; i++)
		failing_beats += !strcmp(b->conditions[i]->name, "StateReadOnly") &&
		                 strspn(b->conditions[i]->reason, "x") == pad + 1;
}

static void write_fails(void *arg)
{
	struct world *w = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	char words[301];

	memset(words, 'x', pad + 1);
	for (unsigned i = pad + 1; i + 3 < sizeof(words); i += 3)
		memcpy(words + i, "\xe2\x82\xac", 4);
	ros2_err_set(&err, -EIO, "%s", words);
	health_wrote(w->agent->health, HEALTH_SNAPSHOT, -EIO, &err);
}

/* A beat with half a character would end the link, each time anew. */
static void beat__tells_why_in_whole_characters(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	(void)state;
	world_start(w);
	w->sees_beat = sees_failing;
	world_agent_start(w);
	for (pad = 0; pad < 3; pad++) {
		failing_beats = 0;
		for (int i = 0; i < 20 && !failing_beats; i++) {
			/* It counts for some seconds, and is looked at each. */
			loop_call(w->loop, write_fails, w);
			world_wait(w, &w->beats, w->beats + 1);
		}
		assert_true(failing_beats);
	}
	world_stop(w);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(targets__lost_ones_come_first_with_harmless_words),
		cmocka_unit_test(targets__words_of_any_length_are_cut_between_characters),
		cmocka_unit_test(targets__more_than_there_is_room_for_are_counted),
		cmocka_unit_test(beat__tells_a_lost_target_until_it_is_back),
		cmocka_unit_test(beat__tells_why_in_whole_characters),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
