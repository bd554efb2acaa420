/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file engine may be told to do without, and that it then does; the words for it; and a
 * completion that comes in the middle of a poll. That every fallback moves bytes as it should is
 * scenario.c's.
 */
#include "tests/await.h"
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLAIN (ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP)

static const struct variant variants[] = {
	{.name = "deferred",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DIRECT},
	{.name = "cooperative",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DIRECT | ENGINE_IO_NO_DEFER},
	{.name = "plain",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DIRECT | PLAIN},
};

static const struct variant threads = {
	.name = "threads", .type = "file", .base = "/var/tmp", .io_features = ENGINE_IO_NO_URING};

static const char *kind_with(uint32_t features, char out[64])
{
	struct variant v = {
		.name = "any", .type = "file", .base = "/var/tmp", .io_features = features};
	void *state = &v;

	assert_int_equal(fixture_setup(&state), 0);
	snprintf(out, 64, "%s", file_reactor_kind(((struct fixture *)state)->r));
	assert_int_equal(fixture_teardown(&state), 0);
	return out;
}

static void expect_kind(uint32_t features, const char *kind)
{
	char got[64];

	kind_with(features, got);
	if (strncmp(got, kind, strlen(kind)) != 0)
		fail_msg("without 0x%x: expected %s, found %s", features, kind, got);
	if (features & ENGINE_IO_NO_FIXED)
		assert_null(strstr(got, "fixed"));
}

static void file_engine__does_without_each_thing_it_is_told_to(void **state)
{
	char best[64];

	expect_kind(ENGINE_IO_NO_URING, "threads");
	expect_kind(ENGINE_IO_NO_URING | PLAIN | ENGINE_IO_NO_FIXED, "threads");
	kind_with(0, best);
	if (strcmp(best, "threads") == 0) {
		puts("# skipped: io_uring is forbidden here");
		skip();
	}
	expect_kind(PLAIN, "io_uring, plain");
	expect_kind(PLAIN | ENGINE_IO_NO_FIXED, "io_uring, plain");
	if (!strstr(best, "deferred")) {
		printf("# skipped: this kernel has %s only\n", best);
		skip();
	}
	expect_kind(ENGINE_IO_NO_FIXED, "io_uring, deferred");
	expect_kind(ENGINE_IO_NO_COOP, "io_uring, deferred");
	expect_kind(ENGINE_IO_NO_DEFER, "io_uring, cooperative");
}

static void io_features__are_words_with_commas_between(void **state)
{
	static const struct {
		const char *words;
		uint32_t bits;
	} good[] = {{"", 0},
	            {"no-uring", ENGINE_IO_NO_URING},
	            {"no-deferred,no-cooperative", PLAIN},
	            {"no-direct,no-fixed,no-direct", ENGINE_IO_NO_DIRECT | ENGINE_IO_NO_FIXED}};
	static const char *const bad[] = {"uring",     "no-uring,", ",no-uring",
	                                  "no-urin",   "no-uring ", "no-uring,,no-fixed",
	                                  "no-uringx", "NO-URING"};
	uint32_t bits;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct ros2_err err = ROS2_ERR_INIT;

		bits = ~0u;
		assert_int_equal(engine_io_features_parse(good[i].words, &bits, &err), 0);
		assert_int_equal(bits, good[i].bits);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct ros2_err err = ROS2_ERR_INIT;

		bits = 77;
		assert_int_equal(engine_io_features_parse(bad[i], &bits, &err), -EINVAL);
		assert_int_equal(bits, 77);
		assert_true(err.msg[0] != '\0');
	}
}

/* ---- a completion in the middle of a poll ---- */

static struct {
	struct fixture *fx; /* NULL: nothing happens */
	struct engine_io *io;
} in_between;

ssize_t __real_read(int fd, void *buf, size_t n);
ssize_t __wrap_read(int fd, void *buf, size_t n);

/* The engine clears its event: just before, an operation comes and is completed. */
ssize_t __wrap_read(int fd, void *buf, size_t n)
{
	struct fixture *fx = in_between.fx;

	if (fx && fd == fx->ops->event_fd(fx->r)) {
		in_between.fx = NULL;
		assert_int_equal(fx->ops->submit(fx->r, in_between.io), 0);
		assert_int_equal(fx->ops->kick(fx->r), 0);
	}
	return __real_read(fd, buf, n);
}

static void count_end(struct engine_io *io, int64_t res)
{
	assert_int_equal(res, 64);
	in_between.io = NULL;
}

static void file_engine__never_sleeps_on_a_completion_that_came_during_a_poll(void **state)
{
	struct fixture *fx = *state;
	struct pollfd p = {.fd = fx->ops->event_fd(fx->r), .events = POLLIN};
	struct engine_file *f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	uint8_t data[64] = {1, 2, 3};

	if (strcmp(file_reactor_kind(fx->r), "threads") == 0) {
		puts("# skipped: io_uring is forbidden here");
		skip();
	}
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, data, sizeof(data)), 64);
	/* Many, as the engine looks at its event in some of its idle polls only. */
	for (int i = 0; i < 64; i++) {
		struct engine_io io = {.file = f,
		                       .op = ENGINE_OP_READ,
		                       .buf = data,
		                       .len = sizeof(data),
		                       .buf_index = -1,
		                       .done = count_end};

		in_between.io = &io;
		in_between.fx = fx;
		while (in_between.fx) {
			uint32_t n = fx->ops->poll(fx->r, 32);

			assert_int_equal(n, in_between.io ? 0 : 1);
		}
		if (in_between.io)
			assert_int_equal(poll(&p, 1, 0), 1);
		fx_drain(fx);
		assert_null(in_between.io);
	}
	fx->ops->close(f);
}

#define V(i, fn)                                                                                   \
	{                                                                                          \
#fn, fn, fixture_setup, fixture_teardown, (void *)&variants[i]                     \
	}
/* ---- flushes that take long ---- */

static _Atomic bool flushes_stand;
static _Atomic int in_flushes;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	in_flushes++;
	while (flushes_stand)
		/* poll: a switch that a test turns */
		usleep(1000);
	in_flushes--;
	return __real_fdatasync(fd);
}

/* Looks until so many have ended; false after a while. */
static bool polled(struct fixture *fx, const int *ended, int want)
{
	return AWAIT((fx->ops->poll(fx->r, 32), *ended >= want));
}

static void threads__flushes_leave_half_of_them_to_what_reads_and_writes(void **state)
{
	static struct fx_counted flush[16], write[8];
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);
	uint8_t *buf = fx_memory(fx, 4096);
	int flushed = 0, written = 0, standing;
	bool went_on;

	flushes_stand = true;
	for (size_t i = 0; i < ARRAY_SIZE(flush); i++) {
		flush[i] = (struct fx_counted){fx_prepare(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0),
		                               &flushed};
		flush[i].io.done = fx_count_end;
		assert_int_equal(fx->ops->submit(fx->r, &flush[i].io), 0);
	}
	assert_int_equal(fx->ops->kick(fx->r), 0);
	assert_true(AWAIT(in_flushes >= 2));
	for (size_t i = 0; i < ARRAY_SIZE(write); i++) {
		write[i] = (struct fx_counted){
			fx_prepare(fx, f, ENGINE_OP_WRITE, i * 4096, buf, 4096), &written};
		write[i].io.done = fx_count_end;
		assert_int_equal(fx->ops->submit(fx->r, &write[i].io), 0);
	}
	assert_int_equal(fx->ops->kick(fx->r), 0);
	went_on = polled(fx, &written, ARRAY_SIZE(write));
	standing = in_flushes;
	flushes_stand = false;
	assert_true(polled(fx, &flushed, ARRAY_SIZE(flush)));
	assert_true(went_on);
	assert_int_equal(standing, 2);
	fx->ops->close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_engine__does_without_each_thing_it_is_told_to),
		cmocka_unit_test(io_features__are_words_with_commas_between),
		V(0, file_engine__never_sleeps_on_a_completion_that_came_during_a_poll),
		V(1, file_engine__never_sleeps_on_a_completion_that_came_during_a_poll),
		V(2, file_engine__never_sleeps_on_a_completion_that_came_during_a_poll),
		{"threads__flushes_leave_half_of_them_to_what_reads_and_writes",
	         threads__flushes_leave_half_of_them_to_what_reads_and_writes, fixture_setup,
	         fixture_teardown, (void *)&threads},
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
