/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of the agent's sockets: each receive and each send of a reactor fails, once and then
 * again and again, or moves one byte. A request ends once: as it should after what passes, or with
 * its connection, and then the session's end is told as CLOSED. Another session works after it, and
 * nothing is left behind.
 */
#include "tests/dataplane/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>

#define SMALL 4096u
#define BIG   65536u

static uint8_t out[BIG], in[BIG];

/* A write in its capsule, one that is pulled, a read, zeros, a flush. ROS2_CLOSED: the connection
 * ended. */
static enum ros2_status some_work(struct raw *c)
{
	enum ros2_status st = raw_write(c, 0, out, SMALL, true);
	uint32_t done = 0;

	if (st == ROS2_OK)
		st = raw_write(c, 0, out, BIG, false);
	if (st == ROS2_OK)
		st = raw_read(c, 0, in, BIG, &done);
	if (st == ROS2_OK) {
		assert_int_equal(done, BIG);
		assert_memory_equal(in, out, BIG);
		st = raw_clear(c, WIRE_ZERO, SMALL, SMALL);
	}
	if (st == ROS2_OK)
		st = raw_flush(c);
	return st;
}

/* The reactor counts a request as over just after its last byte was sent. */
static void nothing_in_flight(struct fx *fx, const struct raw *c)
{
	uint64_t until = clock_boottime_ns() + 20 * NS_PER_S;

	while (fx_stats(fx, &c->session).in_flight > 0)
		assert_true(clock_boottime_ns() < until);
}

static void close_session(struct fx *fx, struct raw *c)
{
	struct fx_args a = {.session = c->session};
	struct dp_result res = fx_do(fx, FX_CLOSE_SESSION, &a);

	assert_true(res.status == ROS2_OK || res.status == ROS2_CLOSED ||
	            res.status == ROS2_BAD_SESSION);
	raw_close(c);
}

static void sweep_sockets(struct fx *fx, struct sweep s, bool passes)
{
	unsigned fds = 0;

	s.thread = "reactor";
	s.most = 40;
	for (size_t i = 0; i < BIG; i++)
		out[i] = (uint8_t)(i * 7 + (i >> 8));
	for (;;) {
		enum ros2_status st;
		struct raw c;

		raw_ready(fx, &c);
		fds = fds ? fds : sweep_fds() - 2; /* without this connection's ends */
		if (!sweep_next(&s)) {
			close_session(fx, &c);
			break;
		}
		st = some_work(&c);
		sweep_off();
		if (passes || !sweep_fired())
			assert_int_equal(st, ROS2_OK);
		else
			assert_int_equal(st, ROS2_CLOSED);
		if (st != ROS2_OK) {
			close_session(fx, &c);
			assert_int_equal(fx_lease_count(fx), 0);
			raw_ready(fx, &c);
		}
		assert_int_equal(some_work(&c), ROS2_OK);
		nothing_in_flight(fx, &c);
		fx_no_slots(fx);
		close_session(fx, &c);
		assert_true(sweep_fds_back(fds));
	}
	assert_true(s.points >= 4);
}

#define SWEEP(name, k, e, p)                                                                       \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_sockets(*state, (struct sweep){.kind = k, .error = e}, p);                   \
	}
SWEEP(reactor__goes_on_after_eagain_of_a_send, SWEEP_SEND, EAGAIN, true)
SWEEP(reactor__goes_on_after_eintr_of_a_send, SWEEP_SEND, EINTR, true)
SWEEP(reactor__goes_on_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT, true)
SWEEP(reactor__ends_the_session_when_a_send_is_reset, SWEEP_SEND, ECONNRESET, false)
SWEEP(reactor__ends_the_session_when_a_send_finds_no_buffers, SWEEP_SEND, ENOBUFS, false)
SWEEP(reactor__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN, true)
SWEEP(reactor__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR, true)
SWEEP(reactor__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT, true)
SWEEP(reactor__ends_the_session_when_a_receive_is_reset, SWEEP_RECV, ECONNRESET, false)

#define T(fn) cmocka_unit_test_setup_teardown(fn, fx_setup, fx_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(reactor__goes_on_after_eagain_of_a_send),
		T(reactor__goes_on_after_eintr_of_a_send),
		T(reactor__goes_on_after_sends_of_one_byte),
		T(reactor__ends_the_session_when_a_send_is_reset),
		T(reactor__ends_the_session_when_a_send_finds_no_buffers),
		T(reactor__goes_on_after_eagain_of_a_receive),
		T(reactor__goes_on_after_eintr_of_a_receive),
		T(reactor__goes_on_after_receives_of_one_byte),
		T(reactor__ends_the_session_when_a_receive_is_reset),
	};

	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
