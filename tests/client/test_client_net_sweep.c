/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of libros2's socket that pass: each send and each receive of a session fails with
 * EAGAIN or EINTR, once and then again and again, or moves one byte. Every request completes once,
 * well, and what is read is what was written. Lost connections are in test_client_reconnect.c.
 */
#include "tests/client/rig.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define LEN 32768u

static void sweep_sockets(struct rig *r, enum sweep_kind kind, int error)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "sweeper", .most = 20};
	static uint8_t want[LEN];
	char was[16];

	rig_open(r, NULL);
	/* Requests are moved by their caller; threads made so far have another name. */
	pthread_getname_np(pthread_self(), was, sizeof(was));
	pthread_setname_np(pthread_self(), "sweeper");
	rig_pattern(want, LEN, 3);
	while (sweep_next(&s)) {
		struct ros2_completion w, g;

		memcpy(r->buf, want, LEN);
		w = rig_write(r, r->buf, LEN, 0);
		g = rig_read(r, r->buf, LEN, 0);
		sweep_off();
		assert_int_equal(w.result, LEN);
		assert_int_equal(g.result, LEN);
		memcpy(r->buf, want, LEN);
		assert_int_equal(rig_write(r, r->buf, LEN, 0).result, LEN);
		memset(r->buf, 0, LEN);
		assert_int_equal(rig_read(r, r->buf, LEN, 0).result, LEN);
		assert_memory_equal(r->buf, want, LEN);
	}
	pthread_setname_np(pthread_self(), was);
	assert_true(s.points >= 4);
}

#define SWEEP(name, k, e)                                                                          \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_sockets(*state, k, e);                                                       \
	}
SWEEP(session__goes_on_after_eagain_of_a_send, SWEEP_SEND, EAGAIN)
SWEEP(session__goes_on_after_eintr_of_a_send, SWEEP_SEND, EINTR)
SWEEP(session__goes_on_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT)
SWEEP(session__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR)
SWEEP(session__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT)

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(session__goes_on_after_eagain_of_a_send),
		T(session__goes_on_after_eintr_of_a_send),
		T(session__goes_on_after_sends_of_one_byte),
		T(session__goes_on_after_eintr_of_a_receive),
		T(session__goes_on_after_receives_of_one_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
