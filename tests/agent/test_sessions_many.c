/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of sessions when it has many. Who asks for one more, and may not have it, makes nobody
 * look at those of the others: he may ask some thousand times a second. What is looked at is seen
 * by AddressSanitizer, from which they are hidden meanwhile; without it the counts are compared.
 */
#include "agent/sessions.h"
#include "agent/sessions_priv.h"
#include "agent/test_switches.h"
#include "proto/rpc/rpc.h"
#include "tests/agent/fixture.h"
#include "tests/agent/fake_dp.h"
#include <sanitizer/asan_interface.h>

#define MANY 400
#define MAX_ 3 /* sessions.max */

struct agent_test_switches agent_test_switches; /* of sessions.c: CMakeLists.txt */

struct env {
	struct agent agent;
	struct sessions *t;
	struct agent_session *others[MANY];
};

static int setup(void **state)
{
	struct env *e = calloc(1, sizeof(*e));

	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &e->agent.o.loop), 0);
	assert_int_equal(sessions_new(&e->agent, &e->t), 0);
	*state = e;
	return 0;
}

static int teardown(void **state)
{
	struct env *e = *state;

	sessions_free(e->t);
	loop_free(e->agent.o.loop);
	free(e);
	return 0;
}

static char words[320]; /* of the last refusal */

static enum ros2_status open_one(struct env *e, uint8_t tenant, const char *peer,
                                 struct agent_session **ret)
{
	struct agent_session_params p = {.tenant = fix_uid(tenant),
	                                 .tenant_name = "t",
	                                 .principal = FIX_ALPHA,
	                                 .peer = peer,
	                                 .max_of_tenant = MAX_,
	                                 .judged = RPC_TRUST_FIRST};
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_session *s;

	if (agent_session_new(e->t, &p, ret ? ret : &s, &err) == 0)
		return ROS2_OK;
	snprintf(words, sizeof(words), "%s", err.msg);
	return err.status;
}

/* As it does when its tenant knows of it. */
static void end(struct agent_session *s)
{
	s->told = true;
	agent_session_end(s, ROS2_CLOSED);
}

static void fill(struct env *e)
{
	char peer[32];

	for (unsigned i = 0; i < MANY; i++) {
		snprintf(peer, sizeof(peer), "10.0.0.%u:%u", i % 250, i);
		assert_int_equal(open_one(e, (uint8_t)(2 + i / 2), peer, &e->others[i]), ROS2_OK);
		if (i % 2)
			end(e->others[i]);
	}
}

static void hide(struct env *e, bool is)
{
	for (unsigned i = 0; i < MANY; i++) {
		if (is)
			ASAN_POISON_MEMORY_REGION(e->others[i], sizeof(*e->others[i]));
		else
			ASAN_UNPOISON_MEMORY_REGION(e->others[i], sizeof(*e->others[i]));
	}
}

static void refusal__looks_at_nobody_elses_session(void **state)
{
	struct env *e = *state;
	enum ros2_status st[2];

	fill(e);
	for (unsigned i = 0; i < MAX_; i++)
		assert_int_equal(open_one(e, 1, "10.0.1.1:1", NULL), ROS2_OK);
	hide(e, true);
	st[0] = open_one(e, 1, "10.0.1.1:2", NULL);
	st[1] = open_one(e, 1, "10.0.1.1:2", NULL);
	hide(e, false);
	assert_int_equal(st[0], ROS2_LIMIT);
	assert_int_equal(st[1], ROS2_LIMIT);
}

static void counts__follow_what_ends(void **state)
{
	struct agent_session *s[MAX_];
	struct env *e = *state;
	unsigned n = 0;

	for (unsigned round = 0; round < 3 * SESSIONS_ENDED_TENANT; round++) {
		for (unsigned i = 0; i < MAX_; i++)
			assert_int_equal(open_one(e, 1, "10.0.1.1:1", &s[i]), ROS2_OK);
		assert_int_equal(open_one(e, 1, "10.0.1.1:1", NULL), ROS2_LIMIT);
		assert_int_equal(sessions_live(e->t), MAX_);
		end(s[0]);
		agent_session_end(s[1], ROS2_CLOSED); /* nobody knew of it: no trace */
		end(s[2]);
	}
	for (const struct agent_session *it = sessions_first(e->t); it; it = it->hh.next)
		n++;
	assert_in_range(n, SESSIONS_ENDED_TENANT, SESSIONS_ENDED_TENANT + MAX_);
	assert_int_equal(HASH_COUNT(e->t->tenants), 1);
	assert_int_equal(HASH_COUNT(e->t->peers), 0);
	sessions_forget_old(e->t, UINT64_MAX);
	assert_null(sessions_first(e->t));
	assert_int_equal(HASH_COUNT(e->t->tenants), 0);
}

static void connection__has_its_share_whosever_sessions_they_are(void **state)
{
	struct agent_session *s[SESSIONS_PER_CONNECTION];
	struct env *e = *state;

	for (unsigned i = 0; i < SESSIONS_PER_CONNECTION; i++)
		assert_int_equal(open_one(e, (uint8_t)(1 + i), "10.0.1.1:1", &s[i]), ROS2_OK);
	assert_int_equal(open_one(e, 200, "10.0.1.1:1", NULL), ROS2_BUSY);
	assert_string_equal(words, "64 sessions over one connection, the most there may be "
	                           "(fixed): close one, or use another connection");
	assert_int_equal(open_one(e, 200, "10.0.1.1:2", NULL), ROS2_OK);
	end(s[7]);
	assert_int_equal(open_one(e, 200, "10.0.1.1:1", NULL), ROS2_OK);
	assert_int_equal(open_one(e, 200, "10.0.1.1:1", NULL), ROS2_BUSY);
}

static void control__without_it_a_connection_has_any_number_of_sessions(void **state)
{
	struct env *e = *state;

	agent_test_switches.no_connection_cap = true;
	for (unsigned i = 0; i < 2 * SESSIONS_PER_CONNECTION; i++)
		assert_int_equal(open_one(e, (uint8_t)(1 + i), "10.0.1.1:1", NULL), ROS2_OK);
	agent_test_switches.no_connection_cap = false;
	assert_int_equal(open_one(e, 200, "10.0.1.1:1", NULL), ROS2_BUSY);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(refusal__looks_at_nobody_elses_session),
		T(counts__follow_what_ends),
		T(connection__has_its_share_whosever_sessions_they_are),
		T(control__without_it_a_connection_has_any_number_of_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
