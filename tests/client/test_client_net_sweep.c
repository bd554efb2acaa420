/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of libros2's socket: each send and each receive of a session fails, once and then
 * again and again, or moves one byte. After what passes every request completes well. After what
 * ends a connection a read is made again, a write is either made or in doubt, never both; what a
 * round may take is known: the pauses between the attempts that the fault makes fail.
 */
#include "common/clock.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define LEN 32768u
/* Of attempts that fail one after the other: pauses of 20 to 160 ms, so 300 ms in all. */
#define LOSSES 4

static uint8_t want[LEN];
static char was[16];

static void begin(struct rig *r)
{
	rig_open(r, NULL);
	/* Requests are moved by their caller; threads made so far have another name. */
	pthread_getname_np(pthread_self(), was, sizeof(was));
	pthread_setname_np(pthread_self(), "sweeper");
	rig_pattern(want, LEN, 3);
}

static void works(struct rig *r)
{
	memcpy(r->buf, want, LEN);
	assert_int_equal(rig_write(r, r->buf, LEN, 0).result, LEN);
	memset(r->buf, 0, LEN);
	assert_int_equal(rig_read(r, r->buf, LEN, 0).result, LEN);
	assert_memory_equal(r->buf, want, LEN);
	rig_ok(r, ros2_zero(r->file, LEN, LEN, &r->err));
}

static void sweep_passing(struct rig *r, enum sweep_kind kind, int error)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "sweeper", .most = 20};

	begin(r);
	while (sweep_next(&s)) {
		struct ros2_completion w, g;

		memcpy(r->buf, want, LEN);
		w = rig_write(r, r->buf, LEN, 0);
		g = rig_read(r, r->buf, LEN, 0);
		rig_ok(r, ros2_zero(r->file, LEN, LEN, &r->err));
		sweep_off();
		assert_int_equal(w.result, LEN);
		assert_int_equal(g.result, LEN);
		works(r);
	}
	pthread_setname_np(pthread_self(), was);
	assert_int_equal(r->session->reconnects, 0);
	assert_true(s.points >= 4);
}

/* One that was sent in part or whole is in doubt; one that never left is sent again. */
static void in_doubt_or_done(const struct ros2_completion *c)
{
	if (c->status == ROS2_OUTCOME_UNKNOWN)
		assert_true(sweep_fired());
	else
		assert_int_equal(c->result, LEN);
}

static void sweep_losses(struct rig *r, enum sweep_kind kind, int error)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "sweeper", .most = LOSSES};

	begin(r);
	while (sweep_next(&s)) {
		uint64_t began = clock_monotonic_ns();
		unsigned before, after, clears, cleared;
		struct ros2_completion w, g;
		int z;

		WITH_AGENT(r->agent, before = r->agent->n_writes; clears = r->agent->n_clears);
		/* As after a connection that lived long: a round does not pay for the one before.
		 */
		r->session->backoff_ms = BACKOFF_FIRST_MS;
		memcpy(r->buf, want, LEN);
		w = rig_write(r, r->buf, LEN, 0);
		in_doubt_or_done(&w);
		z = ros2_zero(r->file, LEN, LEN, &r->err);
		if (z)
			assert_true(r->err.status == ROS2_OUTCOME_UNKNOWN && sweep_fired());
		memset(r->buf, 0, LEN);
		g = rig_read(r, r->buf, LEN, 0);
		sweep_off();
		assert_int_equal(g.result, LEN);
		if (!w.status)
			assert_memory_equal(r->buf, want, LEN);
		assert_true(clock_monotonic_ns() - began < AWAIT_NS / 3);
		works(r);
		/* Never made twice: this one, and the one of works(). */
		WITH_AGENT(r->agent, after = r->agent->n_writes; cleared = r->agent->n_clears);
		assert_true(after - before <= 2);
		assert_true(cleared - clears <= 2);
	}
	pthread_setname_np(pthread_self(), was);
	assert_true(s.points >= 4);
}

#define SWEEP(name, k, e)                                                                          \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_passing(*state, k, e);                                                       \
	}
#define LOSSES_OF(name, k, e)                                                                      \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_losses(*state, k, e);                                                        \
	}
SWEEP(session__goes_on_after_eagain_of_a_send, SWEEP_SEND, EAGAIN)
SWEEP(session__goes_on_after_eintr_of_a_send, SWEEP_SEND, EINTR)
SWEEP(session__goes_on_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT)
SWEEP(session__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR)
SWEEP(session__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT)
SWEEP(session__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN)
/* What a send says of a peer that is gone is believed when a receive says so, too. */
SWEEP(session__reads_on_after_a_send_that_was_reset, SWEEP_SEND, ECONNRESET)
LOSSES_OF(session__comes_back_when_a_send_finds_no_buffers, SWEEP_SEND, ENOBUFS)
LOSSES_OF(session__comes_back_when_a_receive_is_reset, SWEEP_RECV, ECONNRESET)
LOSSES_OF(session__comes_back_when_a_receive_finds_no_buffers, SWEEP_RECV, ENOBUFS)

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(session__goes_on_after_eagain_of_a_send),
		T(session__goes_on_after_eintr_of_a_send),
		T(session__goes_on_after_sends_of_one_byte),
		T(session__goes_on_after_eintr_of_a_receive),
		T(session__goes_on_after_receives_of_one_byte),
		T(session__goes_on_after_eagain_of_a_receive),
		T(session__reads_on_after_a_send_that_was_reset),
		T(session__comes_back_when_a_send_finds_no_buffers),
		T(session__comes_back_when_a_receive_is_reset),
		T(session__comes_back_when_a_receive_finds_no_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
