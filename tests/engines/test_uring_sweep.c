/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of io_uring under the file engine: every set-up call, every submission and every
 * completion fails, once and for good. Each operation ends exactly once, with a result that says
 * what is known; nothing hangs; afterwards the same reactor works.
 */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BATCH 8
#define LEN   4096u

static const struct variant variants[] = {
	{.name = "deferred", .type = "file", .base = "/var/tmp"},
	{.name = "cooperative",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_FIXED},
};

static _Alignas(4096) uint8_t data[FIXTURE_DEPTH][LEN];

struct one {
	struct engine_io io;
	int64_t res;
	int ends;
};

static void ended(struct engine_io *io, int64_t res)
{
	struct one *o = container_of(io, struct one, io);

	o->res = res;
	o->ends++;
}

static bool uring_here(struct fixture *fx)
{
	return strcmp(file_reactor_kind(fx->r), "threads") != 0;
}

/* Submits @n operations at once and waits until nothing is in flight; each has ended once. */
static void batch(struct fixture *fx, struct engine_file *f, enum engine_op op, struct one *o,
                  int n)
{
	struct pollfd p = {.fd = fx->ops->event_fd(fx->r), .events = POLLIN};
	time_t until = time(NULL) + AWAIT_S;

	memset(o, 0, sizeof(*o) * (size_t)n);
	for (int i = 0; i < n; i++) {
		o[i].io = (struct engine_io){.file = f,
		                             .op = op,
		                             .offset = (uint64_t)i * LEN,
		                             .buf = data[i],
		                             .len = op == ENGINE_OP_FLUSH ? 0 : LEN,
		                             .buf_index = -1,
		                             .done = ended};
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
	}
	assert_int_equal(fx->ops->kick(fx->r), 0);
	while (fx->ops->in_flight(fx->r) > 0) {
		if (time(NULL) > until)
			fail_msg("%u operations never ended", fx->ops->in_flight(fx->r));
		if (fx->ops->poll(fx->r, 32) == 0)
			poll(&p, 1, 100);
	}
	for (int i = 0; i < n; i++)
		assert_int_equal(o[i].ends, 1);
}

static bool named(enum engine_op op, int64_t res)
{
	switch (op) {
	case ENGINE_OP_READ:
		return res == LEN || res == -EIO || res == -ENOMEM;
	case ENGINE_OP_WRITE:
	case ENGINE_OP_ZERO:
	case ENGINE_OP_DISCARD:
		return res == LEN || res == -EIO || res == -ENOMEM || res == -EREMOTEIO;
	case ENGINE_OP_FLUSH:
		return res == 0 || res == -EIO || res == -ENOMEM;
	}
	return false;
}

/* Writes, flush, reads; every result is one that the engine may give. Returns how many failed. */
static int some_work(struct fixture *fx, struct engine_file *f, bool *ret_flush_failed)
{
	static const enum engine_op ops[] = {ENGINE_OP_WRITE, ENGINE_OP_FLUSH, ENGINE_OP_READ,
	                                     ENGINE_OP_ZERO};
	struct one o[BATCH];
	int failed = 0;

	for (size_t k = 0; k < ARRAY_SIZE(ops); k++) {
		int n = ops[k] == ENGINE_OP_FLUSH ? 1 : BATCH;

		batch(fx, f, ops[k], o, n);
		for (int i = 0; i < n; i++) {
			if (!named(ops[k], o[i].res))
				fail_msg("op %d: result %lld", ops[k], (long long)o[i].res);
			failed += o[i].res < 0;
			*ret_flush_failed |= ops[k] == ENGINE_OP_FLUSH && o[i].res == -EIO;
		}
	}
	return failed;
}

/* All of it works again, and what is read is what was written. */
static void works_again(struct fixture *fx, struct engine_file *f)
{
	bool flush_failed = false;

	for (int i = 0; i < BATCH; i++)
		fx_pattern(data[i], (uint64_t)i * LEN, LEN, 7);
	assert_int_equal(some_work(fx, f, &flush_failed), 0);
	for (int i = 0; i < BATCH; i++)
		fx_expect_pattern(data[i], (uint64_t)i * LEN, LEN, 7);
}

static uint32_t sweep_work(struct fixture *fx, enum sweep_kind kind, int error, bool must_survive)
{
	struct sweep s = {.kind = kind, .error = error};

	while (sweep_next(&s)) {
		struct engine_file *f =
			fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
		bool flush_failed = false;
		int failed = some_work(fx, f, &flush_failed);

		sweep_off();
		if (!sweep_fired() || (must_survive && !s.persistent))
			assert_int_equal(failed, 0);
		if (s.persistent && sweep_fired())
			assert_true(failed > 0);
		if (flush_failed) { /* what it lost stays lost for this handle */
			fx->ops->close(f);
			f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE);
		}
		works_again(fx, f);
		fx->ops->close(f);
	}
	assert_true(s.points > 0);
	return s.points;
}

static void file_engine__ends_every_operation_when_submission_fails(void **state)
{
	struct fixture *fx = *state;

	if (!uring_here(fx))
		skip();
	(void)sweep_work(fx, SWEEP_URING_SUBMIT, EAGAIN, true);
	if (fx->v == &variants[0]) { /* as EAGAIN: each persistent round waits for the limit */
		(void)sweep_work(fx, SWEEP_URING_SUBMIT, EBUSY, true);
		(void)sweep_work(fx, SWEEP_URING_SUBMIT, EINTR, true);
	}
	(void)sweep_work(fx, SWEEP_URING_SUBMIT, ENOMEM, false);
	(void)sweep_work(fx, SWEEP_URING_SUBMIT, ENXIO, false);
}

static void file_engine__ends_every_operation_when_completions_fail(void **state)
{
	struct fixture *fx = *state;

	if (!uring_here(fx))
		skip();
	(void)sweep_work(fx, SWEEP_URING_RESULT, EAGAIN, false);
	(void)sweep_work(fx, SWEEP_URING_RESULT, EINTR, true);
	(void)sweep_work(fx, SWEEP_URING_RESULT, ENOMEM, false);
	(void)sweep_work(fx, SWEEP_URING_RESULT, ECANCELED, false);
	(void)sweep_work(fx, SWEEP_URING_RESULT, EIO, false);
}

static void file_engine__refuses_more_than_depth_while_the_kernel_takes_nothing(void **state)
{
	struct fixture *fx = *state;
	struct sweep s = {.kind = SWEEP_URING_SUBMIT, .error = EBUSY, .persistent = true};
	struct engine_file *f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	struct engine_io more = {.file = f,
	                         .op = ENGINE_OP_READ,
	                         .buf = data[0],
	                         .len = LEN,
	                         .buf_index = -1,
	                         .done = ended};
	static struct one o[FIXTURE_DEPTH];

	if (!uring_here(fx))
		skip();
	assert_true(sweep_next(&s));
	for (int i = 0; i < FIXTURE_DEPTH; i++) {
		o[i] = (struct one){.io = more};
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
		assert_int_equal(fx->ops->kick(fx->r), 0);
	}
	assert_int_equal(fx->ops->submit(fx->r, &more), -EAGAIN);
	fx_drain(fx);
	sweep_off();
	for (int i = 0; i < FIXTURE_DEPTH; i++) {
		assert_int_equal(o[i].ends, 1);
		assert_int_equal(o[i].res, -ENOMEM);
	}
	works_again(fx, f);
	fx->ops->close(f);
}

/* A reactor is made over io_uring with less, or over threads, and works. */
static void file_engine__makes_a_reactor_whatever_set_up_call_fails(void **state)
{
	struct fixture *fx = *state;
	struct engine_reactor_opts opts = {
		.depth = FIXTURE_DEPTH, .buffers = fx->buffers, .n_buffers = FIXTURE_BUFFERS};
	struct sweep s = {.kind = SWEEP_URING_SETUP, .error = ENOMEM};
	struct engine_reactor *was = fx->r;
	struct ros2_err err = ROS2_ERR_INIT;

	if (!uring_here(fx))
		skip();
	while (sweep_next(&s)) {
		struct engine_file *f =
			fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
		bool flush_failed = false;

		assert_int_equal(fx->ops->reactor_new(fx->e, &opts, &fx->r, &err), 0);
		(void)some_work(fx, f, &flush_failed); /* enables the ring: may fail */
		assert_false(flush_failed);
		sweep_off();
		works_again(fx, f);
		fx->ops->reactor_free(fx->r);
		fx->ops->close(f);
	}
	assert_true(s.points >= 8);
	fx->r = was;
}

#define V(i, fn)                                                                                   \
	{                                                                                          \
#fn, fn, fixture_setup, fixture_teardown, (void *)&variants[i]                     \
	}
#define BOTH(fn) V(0, fn), V(1, fn)
int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(file_engine__ends_every_operation_when_submission_fails),
		BOTH(file_engine__ends_every_operation_when_completions_fail),
		BOTH(file_engine__refuses_more_than_depth_while_the_kernel_takes_nothing),
		BOTH(file_engine__makes_a_reactor_whatever_set_up_call_fails),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
