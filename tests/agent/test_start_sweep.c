/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of an agent's start and end. At the start each allocation, descriptor, thread, place
 * in epoll and read of a file fails, once and for good: it starts all the same, or says why not in
 * words, leaves no descriptor and no memory behind and its state as it was: the next start has what
 * was there. At the end each allocation fails: it ends, in time, with nothing left.
 */
#include "common/clock.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/sweep/sweep.h"
#include <errno.h>

/* Both threads that act: the test's own, which makes the agent, and the agent's loop. */
#define THREADS "agent"

static struct world w;
static unsigned fds;

static enum ros2_status opens(const char *tenant)
{
	struct rpc_channel *c = world_tenant(&w, tenant);
	struct ros2_uid uid;
	enum ros2_status st = world_open_session(c, &uid);

	rpc_channel_free(c);
	return st;
}

/* Alpha has its rights, and beta's program does not have again what a second version of its
 * document took from it: an older version in place of one that found no memory would be a wider
 * one. */
static bool has_what_was_there(void)
{
	if (opens("beta") == ROS2_OK)
		fail_msg("an older document is in force");
	return opens("alpha") == ROS2_OK;
}

static int setup(void **state)
{
	Ros2__V1__AgentObject *narrow;
	unsigned applied;

	(void)state;
	world_start(&w);
	world_agent_start(&w);
	world_populate(&w);
	applied = w.applied;
	narrow = fix_tenant(&w.f, "beta", "spiffe://ros2.test/tenant/nobody", WORLD_BETA_SEED, 2);
	world_send(&w, &narrow, 1, false);
	world_wait(&w, &w.applied, applied + 1);
	assert_true(has_what_was_there());
	world_agent_stop(&w);
	fds = sweep_fds();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	world_stop(&w);
	return 0;
}

static void start_round(struct sweep *s)
{
	struct ros2_err err = ROS2_ERR_INIT;
	unsigned beats = w.beats;
	int r = world_agent_try(&w, &err);

	sweep_off();
	if (r < 0 && !err.msg[0])
		fail_msg("call %u%s: %d without a word", s->at, s->persistent ? " and on" : "", r);
	if (r < 0 && !sweep_fired())
		fail_msg("%s", err.msg);
	if (r == 0) {
		bool whole = false;

		/* Without its contact file it has no rights until the controller answers. */
		world_wait(&w, &w.beats, beats + 2);
		for (int i = 0; i < 50 && !whole; i++)
			whole = has_what_was_there();
		world_agent_stop(&w);
		if (!whole)
			fail_msg("call %u%s: it works, but not with what was there", s->at,
			         s->persistent ? " and on" : "");
	}
	if (!sweep_fds_back(fds))
		fail_msg("call %u%s (%s): %u descriptors stay", s->at,
		         s->persistent ? " and on" : "", err.msg, sweep_fds() - fds);
}

static void sweep_start(enum sweep_kind kind, int error, unsigned at_least)
{
	struct sweep s = {.kind = kind, .error = error, .thread = THREADS};

	while (sweep_next(&s))
		start_round(&s);
	if (s.points < at_least)
		fail_msg("only %u calls failed", s.points);
	world_agent_start(&w);
	assert_true(has_what_was_there());
	world_agent_stop(&w);
}

#define START(name, kind, error, n)                                                                \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		sweep_start(kind, error, n);                                                       \
	}
START(start__without_memory_says_so_or_works, SWEEP_ALLOC, ENOMEM, 50)
START(start__without_descriptors_says_so_or_works, SWEEP_FD, EMFILE, 4)
START(start__without_threads_says_so, SWEEP_THREAD, EAGAIN, 3)
START(start__without_room_in_epoll_says_so, SWEEP_EPOLL_CTL, ENOSPC, 2)
START(start__that_cannot_read_its_files_says_so_or_works, SWEEP_READ, EIO, 2)

static void stop__without_memory_ends_all_the_same(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = THREADS};
	bool more = true;

	(void)state;
	while (more) {
		uint64_t began;

		world_agent_start(&w);
		assert_true(has_what_was_there());
		began = clock_monotonic_ns();
		more = sweep_next(&s);
		world_agent_stop(&w);
		sweep_off();
		assert_true(clock_monotonic_ns() - began < 20 * NS_PER_S);
		if (!sweep_fds_back(fds))
			fail_msg("call %u: %u descriptors stay", s.at, sweep_fds() - fds);
	}
	assert_true(s.points > 0);
	world_agent_start(&w);
	assert_true(has_what_was_there());
	world_agent_stop(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start__without_memory_says_so_or_works),
		cmocka_unit_test(start__without_descriptors_says_so_or_works),
		cmocka_unit_test(start__without_threads_says_so),
		cmocka_unit_test(start__without_room_in_epoll_says_so),
		cmocka_unit_test(start__that_cannot_read_its_files_says_so_or_works),
		cmocka_unit_test(stop__without_memory_ends_all_the_same),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, setup, teardown);
}
