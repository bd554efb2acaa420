/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of the page of metrics: each allocation on the loop fails, once and for good: who
 * asks gets a whole page, an older one if need be, and the next one comes when there is memory;
 * each call of its start fails: it says so and leaves nothing.
 */
#include "common/metrics.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define LAST "\nx_last 1\n"

/* The next page comes soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms ? 1 : 0, fn, arg);
}

static _Atomic uint64_t pages;

/* Larger than the first allocations of it. */
static void render(void *arg, struct metrics_page *p)
{
	uint64_t n = atomic_fetch_add(&pages, 1) + 1;

	metrics_family(p, "x_things", METRICS_GAUGE, "Things.");
	for (unsigned i = 0; i < 2000; i++)
		metrics_u64(p, "x_things", i, "name", "something long enough to fill it", NULL);
	metrics_u64(p, "x_page", n, NULL);
	metrics_u64(p, "x_last", 1, NULL);
}

static char *scrape(uint16_t port)
{
	static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons(port),
	                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char *text = malloc(METRICS_PAGE_MAX);
	size_t n = 0;
	ssize_t k;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_non_null(text);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(write(fd, request, sizeof(request) - 1), sizeof(request) - 1);
	while ((k = read(fd, text + n, METRICS_PAGE_MAX - 1 - n)) > 0)
		n += (size_t)k;
	text[n] = '\0';
	close(fd);
	return text;
}

/* Its number; 0: there is none yet, and the answer says so. */
static uint64_t whole_page(uint16_t port)
{
	char *text = scrape(port);
	const char *at = strstr(text, "\nx_page ");
	uint64_t n = at ? strtoull(at + 8, NULL, 10) : 0;

	if (strstr(text, " 200 OK") && (!n || !strstr(text, LAST)))
		fail_msg("a part of a page was given out: %zu bytes", strlen(text));
	free(text);
	return n;
}

static bool passed(uint64_t n)
{
	return AWAIT(atomic_load(&pages) >= n);
}

static void stop(void *arg)
{
	metrics_stop(arg);
}

static void page__is_whole_when_there_is_no_memory_for_the_next(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "metrics"};
	struct metrics_opts o = {.listen = "127.0.0.1:0", .render = render};
	struct metrics *m;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "metrics"}, &o.loop), 0);
	assert_int_equal(metrics_start(&o, &m, NULL), 0);
	assert_int_equal(loop_thread_start(o.loop), 0);
	assert_true(AWAIT(whole_page(metrics_port(m)) > 0));
	while (sweep_next(&s)) {
		uint64_t before = atomic_load(&pages);

		/* Two are begun: the fault is in the first of them, or in none. */
		assert_true(passed(before + 3));
		assert_true(whole_page(metrics_port(m)) > 0);
		sweep_off();
		before = atomic_load(&pages);
		assert_true(AWAIT(whole_page(metrics_port(m)) > before));
	}
	assert_true(s.points > 3);
	loop_call(o.loop, stop, m);
	loop_stop(o.loop);
	loop_thread_join(o.loop);
	loop_free(o.loop);
}

/* With the first page already. */
static void page__that_never_had_memory_is_none(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "metrics"};

	for (uint32_t at = 1; at < 8; at++) {
		struct metrics_opts o = {.listen = "127.0.0.1:0", .render = render};
		struct metrics *m;

		assert_int_equal(loop_new(&(struct loop_opts){.name = "metrics"}, &o.loop), 0);
		assert_int_equal(metrics_start(&o, &m, NULL), 0);
		atomic_store(&pages, 0);
		s.persistent = true;
		s.at = at - 1;
		assert_true(sweep_next(&s));
		assert_int_equal(loop_thread_start(o.loop), 0);
		assert_true(AWAIT(sweep_fired()));
		(void)whole_page(metrics_port(m));
		sweep_off();
		assert_true(AWAIT(whole_page(metrics_port(m)) > 0));
		loop_call(o.loop, stop, m);
		loop_stop(o.loop);
		loop_thread_join(o.loop);
		loop_free(o.loop);
	}
}

static void sweep_start(enum sweep_kind kind, int error, unsigned at_least)
{
	struct sweep s = {.kind = kind, .error = error};
	struct metrics_opts o = {.listen = "127.0.0.1:0", .render = render};
	unsigned fds;

	assert_int_equal(loop_new(&(struct loop_opts){.name = "start"}, &o.loop), 0);
	fds = sweep_fds();
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		struct metrics *m = NULL;
		int r = metrics_start(&o, &m, &err);

		sweep_off();
		assert_int_equal(r, sweep_fired() ? -error : 0);
		assert_true(r == 0 || err.msg[0]);
		if (r == 0)
			metrics_stop(m);
		assert_true(sweep_fds_back(fds));
	}
	assert_true(s.points >= at_least);
	loop_free(o.loop);
}

static void start__that_fails_says_so_and_leaves_nothing(void **state)
{
	sweep_start(SWEEP_ALLOC, ENOMEM, 2);
	sweep_start(SWEEP_FD, EMFILE, 2);
	sweep_start(SWEEP_BIND, EADDRINUSE, 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(page__is_whole_when_there_is_no_memory_for_the_next),
		cmocka_unit_test(page__that_never_had_memory_is_none),
		cmocka_unit_test(start__that_fails_says_so_and_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
