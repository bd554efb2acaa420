/* SPDX-License-Identifier: Apache-2.0 */
/* The control-plane event loop: order, bounds, timers, descriptors, other threads, signals. */
#include "tests/testing.h"
#include "common/loop.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>

static struct loop *loop;
static int order[64], n_order;

static int loop_setup(void **state)
{
	n_order = 0;
	return loop_new(&(struct loop_opts){.name = "test", .post_max = 8}, &loop);
}

static int loop_teardown(void **state)
{
	loop_free(loop);
	return 0;
}

static void note(void *arg)
{
	assert_true(n_order < (int)ARRAY_SIZE(order));
	order[n_order++] = (int)(intptr_t)arg;
}

static void stop(void *arg)
{
	loop_stop(loop);
}

static struct loop_timer last_fired;
static int n_fired;

static void check_order(void *arg)
{
	const struct loop_timer *t = arg;

	assert_true(t->deadline_ns > last_fired.deadline_ns ||
	            (t->deadline_ns == last_fired.deadline_ns && t->order > last_fired.order));
	last_fired = *t;
	n_fired++;
}

static void *num(int n)
{
	return (void *)(intptr_t)n;
}

static void loop__runs_posts_in_order_and_then_stops(void **state)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(loop_post(loop, note, num(i)), 0);
	assert_int_equal(loop_post(loop, stop, NULL), 0);
	/* Made before the stop takes place, so it runs too. */
	assert_int_equal(loop_post(loop, note, num(4)), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(order[i], i);
}

static void loop__bounds_posts_but_not_urgent_ones(void **state)
{
	struct loop_post urgent[20] = {0};

	for (int i = 0; i < 8; i++)
		assert_int_equal(loop_post(loop, note, num(i)), 0);
	assert_int_equal(loop_post(loop, note, num(99)), -EBUSY);
	for (int i = 8; i < 20; i++)
		loop_post_urgent(loop, &urgent[i], note, num(i));
	assert_int_equal(loop_post(loop, note, num(99)), -EBUSY);
	loop_stop(loop);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 20);
	for (int i = 0; i < 20; i++)
		assert_int_equal(order[i], i);
}

static void loop__refuses_posts_after_stop_and_free_runs_urgent_ones(void **state)
{
	struct loop_post late = {0};
	struct loop *l;

	assert_int_equal(loop_new(NULL, &l), 0);
	assert_int_equal(loop_post(l, note, num(1)), 0);
	loop_stop(l);
	assert_int_equal(loop_post(l, note, num(99)), -ESHUTDOWN);
	assert_int_equal(loop_run(l), 0);
	assert_int_equal(n_order, 1);
	loop_post_urgent(l, &late, note, num(2));
	loop_free(l);
	assert_int_equal(n_order, 2);
	assert_int_equal(order[1], 2);
	loop_free(NULL);
}

static void loop__free_without_run_runs_what_was_posted(void **state)
{
	struct loop_timer t = {0};
	struct loop *l;

	assert_int_equal(loop_new(NULL, &l), 0);
	assert_int_equal(loop_timer_in_ms(l, &t, 1, note, num(99)), 0);
	assert_int_equal(loop_post(l, note, num(1)), 0);
	loop_free(l);
	assert_int_equal(n_order, 1);
	assert_null(t.loop);
}

static void timers__fire_in_the_order_of_their_deadlines(void **state)
{
	struct loop_timer t[20];
	uint64_t now = clock_boottime_ns();

	memset(t, 0, sizeof(t));
	/* Ten deadlines in a shuffled order, two timers each: ties fire as they were armed. */
	for (int i = 0; i < 20; i++) {
		int rank = i * 7 % 10;

		assert_int_equal(loop_timer_at(loop, &t[i], now + (uint64_t)rank * NS_PER_MS, note,
		                               num(rank * 2 + i / 10)),
		                 0);
	}
	struct loop_timer end = {0};

	assert_int_equal(loop_timer_in_ms(loop, &end, 15, stop, NULL), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 20);
	for (int i = 0; i < 20; i++)
		assert_int_equal(order[i], i);
	assert_true(clock_boottime_ns() - now >= 15 * NS_PER_MS);
}

static void timers__can_be_stopped_and_rearmed_anywhere_in_the_heap(void **state)
{
	struct loop_timer t[16], end = {0};
	uint64_t now = clock_boottime_ns();
	int last = -1;

	memset(t, 0, sizeof(t));
	for (int i = 0; i < 16; i++)
		loop_timer_at(loop, &t[i], now + (uint64_t)(i + 1) * 1000, note, num(i));
	for (int i = 0; i < 16; i += 3)
		loop_timer_stop(&t[i]);
	loop_timer_stop(&t[0]); /* twice is harmless */
	loop_timer_at(loop, &t[14], now, note, num(14));
	loop_timer_at(loop, &t[1], now + NS_PER_MS, note, num(1));
	loop_timer_in_ms(loop, &end, 3, stop, NULL);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 10);
	assert_int_equal(order[0], 14);
	assert_int_equal(order[9], 1);
	for (int i = 1; i < 9; i++) {
		assert_true(order[i] > last && order[i] % 3 != 0);
		last = order[i];
	}
	for (int i = 0; i < 16; i++)
		assert_null(t[i].loop);
}

/* Armed, armed again and stopped at random: what is left fires by deadline, then by order. */
static void timers__fire_in_order_after_whatever_was_done_to_them(void **state)
{
	static struct loop_timer t[1000];
	struct loop_timer end = {0};
	uint64_t now = clock_boottime_ns(), seed = 1;
	int left = 0;

	memset(t, 0, sizeof(t));
	for (int i = 0; i < 20000; i++) {
		struct loop_timer *one;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		one = &t[(seed >> 33) % ARRAY_SIZE(t)];
		if ((seed >> 60) % 4 == 0)
			loop_timer_stop(one);
		else
			loop_timer_at(loop, one, now + (seed >> 40) % 50 * NS_PER_MS, check_order,
			              one);
	}
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		left += t[i].loop != NULL;
	last_fired = (struct loop_timer){0};
	n_fired = 0;
	loop_timer_in_ms(loop, &end, 100, stop, NULL);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_fired, left);
	assert_true(left > 500);
}

static struct loop_timer rearming;
static int rearmed;

static void rearm_in_the_past(void *arg)
{
	rearmed++;
	loop_timer_at(loop, &rearming, 0, rearm_in_the_past, NULL);
}

static void timers__one_that_rearms_in_the_past_starves_nobody(void **state)
{
	struct loop_timer end = {0};

	rearmed = 0;
	memset(&rearming, 0, sizeof(rearming));
	loop_timer_at(loop, &rearming, 0, rearm_in_the_past, NULL);
	loop_timer_in_ms(loop, &end, 2, stop, NULL);
	assert_int_equal(loop_post(loop, note, num(1)), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_true(rearmed > 1);
	assert_int_equal(n_order, 1);
	loop_timer_stop(&rearming);
}

static void timers__far_deadlines_neither_wrap_nor_fire(void **state)
{
	struct loop_timer t[3] = {{0}}, end = {0};

	loop_timer_in_ms(loop, &t[0], UINT64_MAX, note, num(99));
	loop_timer_at(loop, &t[1], UINT64_MAX, note, num(99));
	loop_timer_at(loop, &t[2], 1ull << 63, note, num(99));
	assert_int_equal(loop_post(loop, note, num(1)), 0);
	loop_timer_in_ms(loop, &end, 2, stop, NULL);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 1);
	for (int i = 0; i < 3; i++)
		loop_timer_stop(&t[i]);
}

struct pair {
	struct loop_fd f[2];
	int fds[2][2];
	int seen;
};

static void delete_both(void *arg, uint32_t revents)
{
	struct pair *p = arg;

	p->seen++;
	loop_fd_del(&p->f[0]);
	loop_fd_del(&p->f[1]);
	loop_stop(loop);
}

static void fds__deleting_another_ready_one_silences_it(void **state)
{
	struct pair p = {0};

	for (int i = 0; i < 2; i++) {
		assert_int_equal(pipe(p.fds[i]), 0);
		assert_int_equal(write(p.fds[i][1], "x", 1), 1);
		assert_int_equal(loop_fd_add(loop, &p.f[i], p.fds[i][0], EPOLLIN, delete_both, &p),
		                 0);
	}
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(p.seen, 1);
	for (int i = 0; i < 4; i++)
		close(p.fds[i / 2][i % 2]);
}

static void on_ready(void *arg, uint32_t revents)
{
	struct loop_fd *f = arg;

	note(num((int)revents));
	if (n_order == 3)
		loop_fd_mod(f, 0);
	if (n_order == 3)
		loop_stop(loop);
}

static void fds__are_level_triggered_and_report_errors(void **state)
{
	struct loop_fd f = {0}, bad = {0};
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(loop_fd_add(loop, &bad, 9999, EPOLLIN, on_ready, NULL), -EBADF);
	assert_null(bad.loop);
	assert_int_equal(loop_fd_add(loop, &f, fds[0], EPOLLIN, on_ready, &f), 0);
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 3);
	assert_int_equal(order[2], EPOLLIN);
	loop_fd_del(&f);
	loop_fd_del(&f);
	close(fds[0]);
	close(fds[1]);
}

#define THREADS    4
#define PER_THREAD 2000

static struct loop *busy;
static uint64_t last_seen[THREADS];
static int wrong, ran;

static void from_thread(void *arg)
{
	uint64_t v = (uintptr_t)arg, thread = v / (PER_THREAD + 1), seq = v % (PER_THREAD + 1);

	wrong += !loop_is_owner(busy) || seq != last_seen[thread] + 1;
	last_seen[thread] = seq;
	ran++;
}

static void *poster(void *arg)
{
	uintptr_t thread = (uintptr_t)arg;

	for (uintptr_t i = 1; i <= PER_THREAD; i++) {
		void *v = (void *)(thread * (PER_THREAD + 1) + i);

		while (loop_post(busy, from_thread, v) == -EBUSY)
			/* poll: a full queue, which is what this is about */
			usleep(100);
	}
	return NULL;
}

static void set_flag(void *arg)
{
	*(bool *)arg = loop_is_owner(busy);
}

static void loop__serves_many_threads_in_order_on_its_own(void **state)
{
	pthread_t threads[THREADS];
	bool on_owner = false;

	memset(last_seen, 0, sizeof(last_seen));
	wrong = ran = 0;
	assert_int_equal(
		loop_new(&(struct loop_opts){.name = "a-name-longer-than-sixteen", .post_max = 64},
	                 &busy),
		0);
	assert_true(loop_is_owner(busy));
	assert_int_equal(loop_thread_start(busy), 0);
	assert_false(loop_is_owner(busy));
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, poster, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	while (loop_call(busy, set_flag, &on_owner) == -EBUSY)
		/* poll: a full queue, which is what this is about */
		usleep(100);
	assert_true(on_owner);
	loop_stop(busy);
	assert_int_equal(loop_thread_join(busy), 0);
	assert_true(loop_is_owner(busy));
	assert_int_equal(loop_call(busy, set_flag, &on_owner), 0);
	assert_int_equal(ran, THREADS * PER_THREAD);
	assert_int_equal(wrong, 0);
	loop_free(busy);
}

static void *call_after_stop(void *arg)
{
	bool flag;

	return num(loop_call(arg, set_flag, &flag));
}

static void loop__call_after_stop_says_so_instead_of_hanging(void **state)
{
	pthread_t t;
	void *r;

	loop_stop(loop);
	busy = loop;
	assert_int_equal(pthread_create(&t, NULL, call_after_stop, loop), 0);
	pthread_join(t, &r);
	assert_int_equal((intptr_t)r, -ESHUTDOWN);
}

static void on_term(void *arg)
{
	note(num(SIGTERM));
	if (n_order == 3)
		loop_stop(loop);
}

static void on_hup(void *arg)
{
	note(num(SIGHUP));
	kill(getpid(), SIGINT);
}

static void send_term(void *arg)
{
	kill(getpid(), SIGTERM);
}

static void signals__arrive_as_callbacks_on_the_owner(void **state)
{
	struct loop_timer t = {0};
	sigset_t set;

	assert_int_equal(loop_signals(loop, on_term, on_hup, NULL), 0);
	kill(getpid(), SIGHUP);
	loop_timer_in_ms(loop, &t, 20, send_term, NULL);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(n_order, 3);
	assert_int_equal(order[0], SIGHUP);
	assert_int_equal(order[1], SIGTERM); /* the SIGINT */
	assert_int_equal(order[2], SIGTERM);
	assert_true(signal(SIGPIPE, SIG_DFL) == SIG_IGN);
	sigfillset(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* A tenant chooses how long a file is to be: that is an error of its call, and no process's end. */
static void signals__do_not_end_who_reaches_the_limit_of_file_sizes(void **state)
{
	struct rlimit was, little;
	int fd = memfd_create("limit", MFD_CLOEXEC), rc;
	sigset_t set;

	assert_true(fd >= 0);
	assert_int_equal(loop_signals(loop, on_term, on_hup, NULL), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	little = (struct rlimit){.rlim_cur = 4096, .rlim_max = was.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	rc = ftruncate(fd, 8192) < 0 ? -errno : 0;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(rc, -EFBIG);
	assert_true(signal(SIGXFSZ, SIG_DFL) == SIG_IGN);
	close(fd);
	sigfillset(&set);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

#define on_loop(t) cmocka_unit_test_setup_teardown(t, loop_setup, loop_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		on_loop(loop__runs_posts_in_order_and_then_stops),
		on_loop(loop__bounds_posts_but_not_urgent_ones),
		on_loop(loop__refuses_posts_after_stop_and_free_runs_urgent_ones),
		on_loop(loop__free_without_run_runs_what_was_posted),
		on_loop(timers__fire_in_the_order_of_their_deadlines),
		on_loop(timers__can_be_stopped_and_rearmed_anywhere_in_the_heap),
		on_loop(timers__fire_in_order_after_whatever_was_done_to_them),
		on_loop(timers__one_that_rearms_in_the_past_starves_nobody),
		on_loop(timers__far_deadlines_neither_wrap_nor_fire),
		on_loop(fds__deleting_another_ready_one_silences_it),
		on_loop(fds__are_level_triggered_and_report_errors),
		on_loop(loop__serves_many_threads_in_order_on_its_own),
		on_loop(loop__call_after_stop_says_so_instead_of_hanging),
		on_loop(signals__arrive_as_callbacks_on_the_owner),
		on_loop(signals__do_not_end_who_reaches_the_limit_of_file_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
