/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes too late between submit and the call that hands it on: the process was stopped there,
 * so that the clock jumps. Nothing of it may be done, by any engine and any fallback; what is not
 * late goes on. The control of each is the same without the jump.
 */
#include "tests/engines/fixture.h"

#include "common/clock.h"
#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <string.h>

#define LEN 4096u
#define N   8

static const struct variant variants[] = {
	{.name = "mem", .type = "mem"},
	{.name = "deferred", .type = "file", .base = "/var/tmp"},
	{.name = "cooperative",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_FIXED},
	{.name = "plain",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP},
	{.name = "threads", .type = "file", .base = "/var/tmp", .io_features = ENGINE_IO_NO_URING},
};

/* ---- the clock ---- */

static _Atomic uint64_t jumped_ns;
static _Atomic int reads_until_jump; /* 0: none */
static _Atomic int reads_left;       /* 0: not counted */

uint64_t __real_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void)
{
	if (reads_until_jump && --reads_until_jump == 0)
		jumped_ns += 3600 * NS_PER_S;
	if (reads_left && --reads_left == 0)
		fail_msg("the clock is read without end");
	return __real_clock_boottime_ns() + jumped_ns;
}

static void jump(void)
{
	jumped_ns += 3600 * NS_PER_S;
}

/* ---- operations ---- */

static _Alignas(4096) uint8_t data[N][LEN];

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

/* Each second one ends within the minute; of the others one in two never does. */
static bool is_short(int i)
{
	return i % 2 == 1;
}

static void submit(struct fixture *fx, struct engine_file *f, enum engine_op op, struct one o[N])
{
	uint64_t now = clock_boottime_ns();

	memset(o, 0, sizeof(*o) * N);
	for (int i = 0; i < N; i++) {
		o[i].io = (struct engine_io){.file = f,
		                             .op = op,
		                             .offset = (uint64_t)i * LEN,
		                             .buf = data[i],
		                             .len = op == ENGINE_OP_FLUSH ? 0 : LEN,
		                             .buf_index = -1,
		                             .done = ended};
		o[i].io.until_ns = is_short(i)  ? now + 60 * NS_PER_S
		                   : i % 4 == 0 ? 0
		                                : now + 36000 * NS_PER_S;
		assert_int_equal(fx->ops->submit(fx->r, &o[i].io), 0);
	}
}

static void finish(struct fixture *fx, struct one o[N])
{
	struct pollfd p = {.fd = fx->ops->event_fd(fx->r), .events = POLLIN};

	for (int i = 0; fx->ops->in_flight(fx->r) > 0; i++) {
		assert_true(i < 100000);
		if (fx->ops->poll(fx->r, 32) == 0 && p.fd >= 0)
			poll(&p, 1, 1000);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(o[i].ends, 1);
}

static void fill(int byte)
{
	memset(data, byte, sizeof(data));
}

/* What lies at place @i of the file. */
static uint8_t byte_at(struct fixture *fx, struct engine_file *f, int i)
{
	uint8_t b = 0;

	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, (uint64_t)i * LEN + 7, &b, 1), 1);
	return b;
}

static struct engine_file *prepared(struct fixture *fx)
{
	struct engine_file *f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);

	fill(1);
	for (int i = 0; i < N; i++)
		assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, (uint64_t)i * LEN, data[i], LEN),
		                 LEN);
	fill(2);
	return f;
}

static void engine__does_nothing_of_a_write_that_is_late(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	for (int stopped = 1; stopped >= 0; stopped--) {
		submit(fx, f, ENGINE_OP_WRITE, o);
		if (stopped)
			jump();
		assert_int_equal(fx->ops->kick(fx->r), 0);
		finish(fx, o);
		for (int i = 0; i < N; i++) {
			bool late = stopped && is_short(i);

			assert_int_equal(o[i].res, late ? ENGINE_LATE : (int64_t)LEN);
			assert_int_equal(byte_at(fx, f, i), late ? 1 : 2);
		}
	}
	fx->ops->close(f);
}

static void engine__reads_and_flushes_nothing_that_is_late(void **state)
{
	static const enum engine_op ops[] = {ENGINE_OP_READ, ENGINE_OP_FLUSH};
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	for (size_t k = 0; k < ARRAY_SIZE(ops); k++) {
		submit(fx, f, ops[k], o);
		jump();
		assert_int_equal(fx->ops->kick(fx->r), 0);
		finish(fx, o);
		for (int i = 0; i < N; i++) {
			assert_int_equal(o[i].res, is_short(i)                ? ENGINE_LATE
			                           : ops[k] == ENGINE_OP_READ ? (int64_t)LEN
			                                                      : 0);
			if (ops[k] == ENGINE_OP_READ)
				assert_int_equal(data[i][7], is_short(i) ? 2 : 1);
		}
	}
	fx->ops->close(f);
}

/* All of a batch, so that nothing is left to hand on. */
static void engine__ends_a_batch_of_which_all_is_late(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	submit(fx, f, ENGINE_OP_WRITE, o);
	for (int i = 0; i < N; i++)
		o[i].io.until_ns = clock_boottime_ns() + NS_PER_S;
	jump();
	assert_int_equal(fx->ops->kick(fx->r), 0);
	finish(fx, o);
	for (int i = 0; i < N; i++) {
		assert_int_equal(o[i].res, ENGINE_LATE);
		assert_int_equal(byte_at(fx, f, i), 1);
	}
	fx->ops->close(f);
}

/* Of what waits each second one is withdrawn. The control is the same without. */
static void engine__does_nothing_of_a_write_that_is_withdrawn(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	for (int withdrawn = 1; withdrawn >= 0; withdrawn--) {
		submit(fx, f, ENGINE_OP_WRITE, o);
		for (int i = 1; withdrawn && i < N; i += 2)
			fx->ops->withdraw(fx->r, &o[i].io);
		assert_int_equal(fx->ops->kick(fx->r), 0);
		finish(fx, o);
		for (int i = 0; i < N; i++) {
			bool gone = withdrawn && i % 2 == 1;

			assert_int_equal(o[i].res, gone ? ENGINE_LATE : (int64_t)LEN);
			assert_int_equal(byte_at(fx, f, i), gone ? 1 : 2);
		}
	}
	/* What is over stays as it is. */
	fx->ops->withdraw(fx->r, &o[0].io);
	assert_int_equal(fx->ops->poll(fx->r, 1), 0);
	fx->ops->close(f);
}

/* ---- threads: all of them are inside the kernel, and the rest waits ---- */

#define WRITERS 4 /* threads of a reactor */

static void wait_for(sem_t *sem)
{
	while (sem_wait(sem) < 0)
		assert_int_equal(errno, EINTR);
}

static sem_t entered, gate;
static _Atomic bool gated, halved;
static _Atomic int n_writes;

ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
	n_writes++;
	if (gated) {
		sem_post(&entered);
		wait_for(&gate);
	}
	return __real_pwrite(fd, p, halved ? (n + 1) / 2 : n, at);
}

/* They are let go on when all is withdrawn that is to be. */
static void write_behind_the_gate(struct fixture *fx, struct engine_file *f, struct one o[N],
                                  bool withdrawn)
{
	sem_init(&entered, 0, 0);
	sem_init(&gate, 0, 0);
	n_writes = 0;
	gated = true;
	submit(fx, f, ENGINE_OP_WRITE, o);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	for (int i = 0; i < WRITERS; i++)
		wait_for(&entered);
	for (int i = 0; i < N && withdrawn; i++)
		fx->ops->withdraw(fx->r, &o[i].io);
	gated = false;
	for (int i = 0; i < WRITERS; i++)
		sem_post(&gate);
	finish(fx, o);
}

static void threads__hand_on_nothing_that_was_withdrawn_while_it_waited(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	write_behind_the_gate(fx, f, o, true);
	assert_int_equal(n_writes, WRITERS);
	for (int i = 0; i < N; i++)
		assert_int_equal(o[i].res, i < WRITERS ? (int64_t)LEN : ENGINE_LATE);
	fx->ops->close(f);
}

/* The kernel does a part, and what is left needs another call. The control is the same without. */
static void threads__continue_nothing_that_was_withdrawn(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx);
	struct one o[N];

	halved = true;
	write_behind_the_gate(fx, f, o, true);
	halved = false;
	assert_int_equal(n_writes, WRITERS);
	for (int i = 0; i < N; i++)
		assert_int_equal(o[i].res, i < WRITERS ? -EREMOTEIO : ENGINE_LATE);
	halved = true;
	write_behind_the_gate(fx, f, o, false);
	halved = false;
	assert_true(n_writes > N);
	for (int i = 0; i < N; i++)
		assert_int_equal(o[i].res, LEN);
	fx->ops->close(f);
}

/* A handle whose flush has failed answers the next one without a call, so it is never late; what
 * goes with it is late or done as ever. */
static void file__answers_what_needs_no_call_however_late(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = prepared(fx), *lost = fx_open(fx, "f", ENGINE_WRITE);
	struct one flushes[N], writes[N];

	lost->sync_error = 1;
	for (int stopped = 1; stopped >= 0; stopped--) {
		submit(fx, lost, ENGINE_OP_FLUSH, flushes);
		submit(fx, f, ENGINE_OP_WRITE, writes);
		if (stopped)
			jump();
		reads_left = 1000;
		assert_int_equal(fx->ops->kick(fx->r), 0);
		finish(fx, flushes);
		reads_left = 0;
		for (int i = 0; i < N; i++) {
			bool late = stopped && is_short(i);

			assert_int_equal(flushes[i].res, -EIO);
			assert_int_equal(writes[i].ends, 1);
			assert_int_equal(writes[i].res, late ? ENGINE_LATE : (int64_t)LEN);
		}
	}
	fx->ops->close(lost);
	fx->ops->close(f);
}

/* ---- io_uring ---- */

static void need_uring(struct fixture *fx)
{
	if (!strcmp(file_reactor_kind(fx->r), "threads"))
		skip();
}

/* The kernel had no room the first time; the time passed before the ring was offered again. */
static void uring__offers_nothing_again_that_is_late(void **state)
{
	struct sweep s = {.kind = SWEEP_URING_SUBMIT, .error = EBUSY};
	struct fixture *fx = *state;
	struct engine_file *f;
	struct one o[N];

	need_uring(fx);
	f = prepared(fx);
	assert_true(sweep_next(&s));
	submit(fx, f, ENGINE_OP_WRITE, o);
	assert_int_equal(fx->ops->kick(fx->r), 0);
	assert_true(sweep_fired());
	sweep_off();
	jump();
	finish(fx, o);
	for (int i = 0; i < N; i++) {
		/* After an hour that the kernel took nothing the engine gives the others up. */
		assert_true(is_short(i) ? o[i].res == ENGINE_LATE
		                        : o[i].res == LEN || o[i].res == -ENOMEM);
		if (is_short(i))
			assert_int_equal(byte_at(fx, f, i), 1);
	}
	fx->ops->close(f);
}

/* A call that was interrupted is not made again. */
static void uring__continues_nothing_that_is_late(void **state)
{
	struct sweep s = {.kind = SWEEP_URING_RESULT, .error = EINTR};
	struct fixture *fx = *state;
	struct engine_file *f;
	struct one o[N];
	int late = 0;

	need_uring(fx);
	f = prepared(fx);
	while (sweep_next(&s) && !s.persistent) {
		submit(fx, f, ENGINE_OP_READ, o);
		assert_int_equal(fx->ops->kick(fx->r), 0);
		reads_until_jump = 1;
		finish(fx, o);
		for (int i = 0; i < N; i++) {
			assert_true(o[i].res == LEN || (is_short(i) && o[i].res == ENGINE_LATE));
			late += o[i].res == ENGINE_LATE;
		}
		sweep_off();
	}
	sweep_off();
	assert_true(s.points >= N);
	assert_in_range(late, 1, N); /* completions come in any order */
	fx->ops->close(f);
}

static void write__of_which_a_part_is_done_ends_with_an_unknown_outcome(void **state)
{
	struct engine_io io = {.op = ENGINE_OP_WRITE, .until_ns = 5};

	(void)state;
	assert_false(file_io_is_late(&io, 4));
	assert_true(file_io_is_late(&io, 5));
	assert_int_equal(file_io_late(&io), ENGINE_LATE);
	io.priv[0] = 1;
	assert_int_equal(file_io_late(&io), -EREMOTEIO);
	io.op = ENGINE_OP_READ;
	assert_int_equal(file_io_late(&io), ENGINE_LATE);
	io.until_ns = 0;
	assert_false(file_io_is_late(&io, UINT64_MAX));
}

#define V(i, fn)                                                                                   \
	{                                                                                          \
#fn, fn, fixture_setup, fixture_teardown, (void *)&variants[i]                     \
	}
#define URING(fn) V(1, fn), V(2, fn), V(3, fn)
#define ALL(fn)   V(0, fn), URING(fn), V(4, fn)
int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(engine__does_nothing_of_a_write_that_is_late),
		ALL(engine__reads_and_flushes_nothing_that_is_late),
		ALL(engine__ends_a_batch_of_which_all_is_late),
		ALL(engine__does_nothing_of_a_write_that_is_withdrawn),
		V(4, threads__hand_on_nothing_that_was_withdrawn_while_it_waited),
		V(4, threads__continue_nothing_that_was_withdrawn),
		URING(file__answers_what_needs_no_call_however_late),
		V(4, file__answers_what_needs_no_call_however_late),
		URING(uring__offers_nothing_again_that_is_late),
		URING(uring__continues_nothing_that_is_late),
		cmocka_unit_test(write__of_which_a_part_is_done_ends_with_an_unknown_outcome),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
