/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of an agent's start and end. Each allocation, descriptor, thread, mapping, place in
 * epoll, read, write and sync of a file, bind and listen fails, once and for good. The start: it
 * starts all the same, or says why not in words, leaves no descriptor and no memory behind and its
 * state as it was: the next start has what was there. The end: it ends, in time, with nothing left,
 * and the next start has what was there. Twice: over a data plane that moves nothing, and (REAL_DP)
 * over the real one, whose start and end belong to the agent's. io_uring: engines make their rings
 * when a file is opened: tests/engines has the sweep of that, and tests/dataplane with a tenant.
 */
#include "common/clock.h"
#include "common/log.h"
#include "tests/agent/world.h"
#include "tests/await.h"
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

/* Without its contact file it has no rights until the controller has sent what it owes, and what
 * found no memory is tried again by the agent's sweep, each 10 s. */
static bool has_what_was_there_soon(void)
{
	return AWAIT(has_what_was_there());
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
	w.done_at_hello = true;
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

static bool is_of_files(enum sweep_kind kind)
{
	return kind == SWEEP_WRITE || kind == SWEEP_SYNC;
}

static void look_at_fatal(void *arg)
{
	*(bool *)arg = w.fatal.code != 0;
}

/* After a failed sync a process ends at once: here it is only told. The next start is what counts.
 */
static bool ended_by_its_disk(const struct sweep *s)
{
	bool is = false;

	loop_call(w.loop, look_at_fatal, &is);
	if (is && s->kind != SWEEP_SYNC)
		fail_msg("call %u of kind %d is fatal: %s", s->at, (int)s->kind, w.fatal.msg);
	return is;
}

static void start_round(struct sweep *s)
{
	struct ros2_err err = ROS2_ERR_INIT;
	unsigned beats = w.beats;
	bool failed;
	int r;

	w.fatal = (struct ros2_err)ROS2_ERR_INIT;
	r = world_agent_try(&w, &err);
	if (r == 0 && is_of_files(s->kind))
		world_wait(&w, &w.beats,
		           beats + 2); /* what it writes once its first beat is answered */
	sweep_off();
	if (r < 0 && !err.msg[0])
		fail_msg("call %u%s: %d without a word", s->at, s->persistent ? " and on" : "", r);
	if (r < 0 && !sweep_fired())
		fail_msg("%s", err.msg);
	failed = r == 0 && ended_by_its_disk(s);
	if (failed)
		world_agent_stop(&w);
	if (r == 0 && !failed) {
		bool whole;

		world_wait(&w, &w.beats, beats + 2);
		whole = has_what_was_there_soon();
		world_agent_stop(&w);
		if (!whole)
			fail_msg("call %u%s: it works, but not with what was there", s->at,
			         s->persistent ? " and on" : "");
	}
	if (!sweep_fds_back(fds))
		fail_msg("call %u%s (%s): %u descriptors stay", s->at,
		         s->persistent ? " and on" : "", err.msg, sweep_fds() - fds);
}

/* How many calls were made to fail. */
static unsigned one_sweep(enum sweep_kind kind, int error)
{
	/* Files are written by threads of their own. */
	bool any = is_of_files(kind);
	struct sweep s = {.kind = kind, .error = error, .thread = any ? NULL : THREADS};

	while (sweep_next(&s)) {
		start_round(&s);
		if (!any)
			continue;
		/* What it left of its files is a start's. */
		world_agent_start(&w);
		assert_true(has_what_was_there_soon());
		world_agent_stop(&w);
	}
	return s.points;
}

static void sweep_start(enum sweep_kind kind, int error, unsigned at_least)
{
	unsigned points = 0;

	/* On a busy machine files may be written after all that a round waits for. */
	for (unsigned tries = 0; points < at_least && tries < 10; tries++)
		points = one_sweep(kind, error);
	if (points < at_least)
		fail_msg("only %u calls failed", points);
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

START(start__that_cannot_write_its_files_says_so_or_works, SWEEP_WRITE, ENOSPC, 1)
START(start__that_cannot_sync_its_files_says_so_or_works, SWEEP_SYNC, EIO, 2)
#ifdef REAL_DP
START(start__without_mappings_says_so, SWEEP_MMAP, ENOMEM, 1)
START(start__that_cannot_listen_says_so, SWEEP_BIND, EADDRINUSE, 3)
#endif

static void sweep_stop(enum sweep_kind kind, int error, unsigned at_least)
{
	bool any = is_of_files(kind), more = true;
	struct sweep s = {.kind = kind, .error = error, .thread = any ? NULL : THREADS};

	while (more) {
		uint64_t began;

		w.fatal = (struct ros2_err)ROS2_ERR_INIT;
		world_agent_start(&w);
		assert_true(has_what_was_there_soon());
		began = clock_monotonic_ns();
		more = sweep_next(&s);
		world_agent_stop(&w);
		sweep_off();
		assert_true(clock_monotonic_ns() - began < AWAIT_NS);
		if (w.fatal.code && kind != SWEEP_SYNC)
			fail_msg("call %u: fatal: %s", s.at, w.fatal.msg);
		if (!sweep_fds_back(fds))
			fail_msg("call %u: %u descriptors stay", s.at, sweep_fds() - fds);
	}
	if (s.points < at_least)
		fail_msg("only %u calls failed", s.points);
	world_agent_start(&w);
	assert_true(has_what_was_there_soon());
	world_agent_stop(&w);
}

#define STOP(name, kind, error, n)                                                                 \
	static void name(void **state)                                                             \
	{                                                                                          \
		(void)state;                                                                       \
		sweep_stop(kind, error, n);                                                        \
	}
STOP(stop__without_memory_ends_all_the_same, SWEEP_ALLOC, ENOMEM, 1)
STOP(stop__that_cannot_write_ends_all_the_same, SWEEP_WRITE, ENOSPC, 1)
STOP(stop__that_cannot_sync_ends_all_the_same, SWEEP_SYNC, EIO, 1)
/* It may ask for none of these at all. */
STOP(stop__without_descriptors_ends_all_the_same, SWEEP_FD, EMFILE, 0)
STOP(stop__without_threads_ends_all_the_same, SWEEP_THREAD, EAGAIN, 0)
STOP(stop__without_mappings_ends_all_the_same, SWEEP_MMAP, ENOMEM, 0)
STOP(stop__without_room_in_epoll_ends_all_the_same, SWEEP_EPOLL_CTL, ENOSPC, 0)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start__without_memory_says_so_or_works),
		cmocka_unit_test(start__without_descriptors_says_so_or_works),
		cmocka_unit_test(start__without_threads_says_so),
		cmocka_unit_test(start__without_room_in_epoll_says_so),
		cmocka_unit_test(start__that_cannot_read_its_files_says_so_or_works),
		cmocka_unit_test(start__that_cannot_write_its_files_says_so_or_works),
		cmocka_unit_test(start__that_cannot_sync_its_files_says_so_or_works),
#ifdef REAL_DP
		cmocka_unit_test(start__without_mappings_says_so),
		cmocka_unit_test(start__that_cannot_listen_says_so),
#endif
		cmocka_unit_test(stop__without_memory_ends_all_the_same),
		cmocka_unit_test(stop__that_cannot_write_ends_all_the_same),
		cmocka_unit_test(stop__that_cannot_sync_ends_all_the_same),
		cmocka_unit_test(stop__without_descriptors_ends_all_the_same),
		cmocka_unit_test(stop__without_threads_ends_all_the_same),
		cmocka_unit_test(stop__without_mappings_ends_all_the_same),
		cmocka_unit_test(stop__without_room_in_epoll_ends_all_the_same),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, setup, teardown);
}
