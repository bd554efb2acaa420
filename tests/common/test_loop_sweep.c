/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of the event loop: without memory, descriptors or room in epoll it is not made, or a
 * call says so; what must not be lost (urgent posts, timers) is not, and a wait that is interrupted
 * is only made again.
 */
#include "common/clock.h"
#include "common/loop.h"
#include "common/util.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <errno.h>
#include <sys/epoll.h>

#define POSTS  200 /* beyond one chunk of the pool */
#define TIMERS 40

struct seen {
	unsigned bounded, urgent, timers, fds;
	bool watches; /* a descriptor that is readable: not stopped before that was told */
	struct loop *loop;
	struct loop_timer last;
};

static void bounded(void *arg)
{
	((struct seen *)arg)->bounded++;
}

static void urgent(void *arg)
{
	((struct seen *)arg)->urgent++;
}

static void timer(void *arg)
{
	((struct seen *)arg)->timers++;
}

static void stop(void *arg)
{
	struct seen *s = arg;

	if (s->watches && !s->fds)
		assert_int_equal(loop_timer_in_ms(s->loop, &s->last, 1, stop, s), 0);
	else
		loop_stop(s->loop);
}

static void readable(void *arg, uint32_t revents)
{
	((struct seen *)arg)->fds++;
}

/* Returns what loop_new did; everything that was accepted has run when it returns. */
static int one_life(int error, int fd)
{
	struct loop_timer t[TIMERS] = {{0}};
	struct loop_post posts[POSTS] = {{0}};
	struct seen seen = {0};
	unsigned taken = 0;
	struct loop_fd f = {0};
	int rc = loop_new(NULL, &seen.loop);

	if (rc)
		return rc;
	for (int i = 0; i < POSTS; i++) {
		rc = loop_post(seen.loop, bounded, &seen);
		assert_true(rc == 0 || rc == -error);
		taken += !rc;
		loop_post_urgent(seen.loop, &posts[i], urgent, &seen);
	}
	/* Whoever waits for a timer would wait for ever: it takes nothing that could be missing. */
	for (int i = 0; i < TIMERS; i++)
		assert_int_equal(loop_timer_in_ms(seen.loop, &t[i], 0, timer, &seen), 0);
	rc = loop_fd_add(seen.loop, &f, fd, EPOLLIN, readable, &seen);
	assert_true(rc == 0 || rc == -error);
	seen.watches = rc == 0;
	assert_int_equal(loop_timer_in_ms(seen.loop, &seen.last, 1, stop, &seen), 0);
	assert_int_equal(loop_run(seen.loop), 0);
	assert_int_equal(seen.bounded, taken);
	assert_int_equal(seen.urgent, POSTS);
	assert_int_equal(seen.timers, TIMERS);
	assert_true(!seen.watches || seen.fds > 0);
	loop_fd_del(&f);
	loop_free(seen.loop);
	return 0;
}

static void sweep_life(enum sweep_kind kind, int error, bool passes)
{
	struct sweep s = {.kind = kind, .error = error, .most = passes ? 20 : 0};
	unsigned fds;
	int pair[2];

	assert_int_equal(pipe(pair), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	fds = sweep_fds();
	while (sweep_next(&s)) {
		int rc = one_life(error, pair[0]);

		sweep_off();
		assert_true(rc == 0 || (rc == -error && sweep_fired() && !passes));
		assert_int_equal(sweep_fds(), fds);
		assert_int_equal(one_life(error, pair[0]), 0);
	}
	assert_true(s.points >= 4);
	close(pair[0]);
	close(pair[1]);
}

#define SWEEP(name, k, e, p)                                                                       \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_life(k, e, p);                                                               \
	}
SWEEP(loop__without_memory_says_so_and_loses_no_urgent_post, SWEEP_ALLOC, ENOMEM, false)
SWEEP(loop__without_descriptors_is_not_made, SWEEP_FD, EMFILE, false)
SWEEP(loop__without_room_in_epoll_says_so, SWEEP_EPOLL_CTL, ENOSPC, false)
SWEEP(loop__goes_on_after_interrupted_waits, SWEEP_WAIT, EINTR, true)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loop__without_memory_says_so_and_loses_no_urgent_post),
		cmocka_unit_test(loop__without_descriptors_is_not_made),
		cmocka_unit_test(loop__without_room_in_epoll_says_so),
		cmocka_unit_test(loop__goes_on_after_interrupted_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
