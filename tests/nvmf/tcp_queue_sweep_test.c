/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of the queue over NVMe/TCP: each of its system calls and allocations fails, once and
 * then again and again. What passes changes nothing; what does not ends the queue with words; each
 * request comes back once either way, nothing is left behind, and the next queue works.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"

#define BIG  262144u
#define N    9u
#define MOST 40u

static uint8_t bufs[N][BIG], want[BIG];
static struct peer peer;

static const struct {
	enum nvmf_dir dir;
	uint32_t len;
} work[N] = {
	{NVMF_FROM_TARGET, 512}, {NVMF_FROM_TARGET, 4096}, {NVMF_FROM_TARGET, BIG},
	{NVMF_TO_TARGET, 512},   {NVMF_TO_TARGET, 8192},   {NVMF_TO_TARGET, BIG},
	{NVMF_NO_DATA, 0},       {NVMF_FROM_TARGET, 4096}, {NVMF_TO_TARGET, 20000},
};

static void turn(struct rig *r)
{
	bool moved = peer.fd >= 0 && !peer.ended && peer_turn(&peer);

	rig_turn(r, moved ? 0 : 2);
	r->ops->tick(r->q, r->now_ns);
}

static void submit_all(struct rig *r)
{
	r->n_done = 0;
	for (uint32_t i = 0; i < N; i++) {
		if (work[i].dir == NVMF_TO_TARGET)
			rig_pattern(bufs[i], work[i].len, (uint8_t)i);
		else
			memset(bufs[i], 0, work[i].len);
		assert_int_equal(
			rig_submit(r, i, work[i].dir, work[i].len ? bufs[i] : NULL, work[i].len),
			0);
	}
	(void)r->ops->kick(r->q, r->now_ns);
}

static void check_all(struct rig *r)
{
	assert_int_equal(r->n_done, N);
	for (uint32_t i = 0; i < N; i++) {
		assert_int_equal(r->reqs[i].done, 1);
		assert_int_equal(r->reqs[i].rc, 0);
		rig_pattern(want, work[i].len, (uint8_t)i);
		assert_memory_equal(bufs[i], want, work[i].len);
	}
	assert_int_equal(peer.wrong, 0);
}

/* False: the queue did not open, or failed. */
static bool do_work(struct rig *r)
{
	struct peer_opts o = {.header_digest = true,
	                      .data_digest = true,
	                      .c2h_max = 30000,
	                      .r2t_max = 100000,
	                      .maxh2c = 65536,
	                      .cpda = 3};
	uint64_t until = clock_boottime_ns() + AWAIT_NS;
	struct ros2_err err = ROS2_ERR_INIT;

	r->header_digest = r->data_digest = true;
	if (rig_open(r, &err) < 0) {
		assert_true(err.msg[0]);
		assert_null(r->q);
		return false;
	}
	rig_accept(r);
	peer_init(&peer, &o, r->peer);
	while (r->ops->state(r->q) == NVMF_QUEUE_CONNECTING) {
		assert_true(clock_boottime_ns() < until);
		turn(r);
	}
	for (int round = 0; round < 2 && r->ops->state(r->q) == NVMF_QUEUE_READY; round++) {
		submit_all(r);
		while (r->n_done < N) {
			assert_true(clock_boottime_ns() < until);
			turn(r);
		}
		if (r->ops->state(r->q) == NVMF_QUEUE_READY)
			check_all(r);
	}
	assert_int_equal(r->ops->in_flight(r->q), 0);
	if (r->ops->state(r->q) == NVMF_QUEUE_READY)
		return true;
	assert_true(r->ops->fault(r->q)[0]);
	return false;
}

/* A connection that open gave up may have reached the listener. */
static void forget_connections(struct rig *r)
{
	int fd;

	fcntl(r->listener, F_SETFL, O_NONBLOCK);
	while ((fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		close(fd);
	fcntl(r->listener, F_SETFL, 0);
}

static void sweep(struct rig *r, struct sweep s, bool passes, uint32_t points)
{
	unsigned fds = sweep_fds();

	s.most = MOST;
	while (sweep_next(&s)) {
		bool ok = do_work(r);

		sweep_off();
		if (passes || !sweep_fired())
			assert_true(ok);
		else
			assert_false(ok);
		rig_close(r);
		forget_connections(r);
		assert_true(do_work(r));
		rig_close(r);
		assert_int_equal(sweep_fds(), fds);
	}
	if (s.points < points)
		fail_msg("%u points, expected %u or more", s.points, points);
}

#define SWEEP(name, k, e, p, n)                                                                    \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep(*state, (struct sweep){.kind = k, .error = e}, p, n);                        \
	}
SWEEP(queue__goes_on_after_eagain_of_a_send, SWEEP_SEND, EAGAIN, true, 10)
SWEEP(queue__goes_on_after_eintr_of_a_send, SWEEP_SEND, EINTR, true, 10)
SWEEP(queue__goes_on_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT, true, 10)
SWEEP(queue__ends_when_a_send_is_reset, SWEEP_SEND, ECONNRESET, false, 10)
SWEEP(queue__ends_when_a_send_finds_no_buffers, SWEEP_SEND, ENOBUFS, false, 10)
SWEEP(queue__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN, true, 10)
SWEEP(queue__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR, true, 10)
SWEEP(queue__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT, true, 10)
SWEEP(queue__ends_when_a_receive_is_reset, SWEEP_RECV, ECONNRESET, false, 10)
SWEEP(queue__ends_when_it_cannot_be_watched, SWEEP_EPOLL_CTL, ENOMEM, false, 2)
SWEEP(queue__does_not_open_without_a_socket, SWEEP_FD, EMFILE, false, 2)
SWEEP(queue__does_not_open_when_nobody_listens, SWEEP_CONNECT, ECONNREFUSED, false, 2)
SWEEP(queue__does_not_open_without_memory_and_needs_none_later, SWEEP_ALLOC, ENOMEM, false, 6)

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(queue__goes_on_after_eagain_of_a_send),
		T(queue__goes_on_after_eintr_of_a_send),
		T(queue__goes_on_after_sends_of_one_byte),
		T(queue__ends_when_a_send_is_reset),
		T(queue__ends_when_a_send_finds_no_buffers),
		T(queue__goes_on_after_eagain_of_a_receive),
		T(queue__goes_on_after_eintr_of_a_receive),
		T(queue__goes_on_after_receives_of_one_byte),
		T(queue__ends_when_a_receive_is_reset),
		T(queue__ends_when_it_cannot_be_watched),
		T(queue__does_not_open_without_a_socket),
		T(queue__does_not_open_when_nobody_listens),
		T(queue__does_not_open_without_memory_and_needs_none_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
