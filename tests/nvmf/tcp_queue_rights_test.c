/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP when rights end: of commands that wait in it because the socket has no
 * room nothing is handed on any more, and what had begun to goes to its end. The peer is honest.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define BIG (1u << 20)

static uint8_t got[BIG], want[BIG];
static struct rig_bytes out;
static bool no_room; /* in any socket */

ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (!no_room)
		return __real_sendmsg(fd, msg, flags);
	errno = EAGAIN;
	return -1;
}

/* ---- by time ---- */

/* What waits for room when its time is over does not go; what is not late does, after it, and so
 * does what had begun to. */
static void commands__that_wait_for_room_too_long_are_not_handed_on(void **state)
{
	struct rig *r = *state;
	uint16_t cids[16];
	uint64_t until;
	uint32_t n = 0;

	r->in_capsule_max = BIG;
	r->depth = 16;
	rig_ready(r);
	rig_pattern(want, BIG, 5);
	until = clock_boottime_ns() + 400 * NS_PER_MS;
	for (uint32_t i = 0; i < 16; i++) {
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, want, BIG), 0);
		r->reqs[i].req.until_ns = i == 0 || i % 2 ? until
		                          : i % 4         ? until + 3600 * NS_PER_S
		                                          : 0;
	}
	rig_kick(r);
	assert_true(rig_counters(r).bytes_out < 15ull * BIG);
	/* poll: until the clock says so */
	while (clock_boottime_ns() < until)
		(void)poll(NULL, 0, 1);
	while (r->n_done + n < 16) {
		cids[n++] = rig_read_cmd(r, got, sizeof(got));
		assert_memory_equal(got, want, BIG);
	}
	rig_read_nothing(r);
	assert_true(n >= 8 && n < 16);
	for (uint32_t i = 0; i < 16; i++)
		if (r->reqs[i].done)
			assert_true(i % 2 && r->reqs[i].rc == -ECANCELED);
	assert_int_equal(r->reqs[15].rc, -ECANCELED);
	assert_int_equal(rig_counters(r).cancelled, 16 - n);
	assert_int_equal(rig_counters(r).bytes_out, (uint64_t)n * BIG);
	out.n = 0;
	for (uint32_t i = 0; i < n; i++)
		rig_put_resp(r, &out, cids[i], 0);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 16);
}

/* ---- by word ---- */

static void withdraw(struct rig *r, uint32_t i)
{
	r->ops->withdraw(r->q, &r->reqs[i].req, r->now_ns);
}

/* One more goes and is answered. */
static void still_works(struct rig *r, uint32_t i)
{
	uint32_t n = r->n_done;

	assert_int_equal(rig_submit(r, i, NVMF_NO_DATA, NULL, 0), 0);
	rig_kick(r);
	out.n = 0;
	rig_put_resp(r, &out, rig_read_cmd(r, NULL, 0), 0);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, n + 1);
	assert_int_equal(r->reqs[i].rc, 0);
}

static void commands__withdrawn_before_a_byte_of_them_went_do_not_go(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	no_room = true;
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, want, 4096), 0);
	rig_kick(r);
	for (uint32_t i = 8; i < 12; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, want, 4096), 0);
	/* Those that were kicked, and those that were not. */
	for (uint32_t i = 0; i < 12; i++)
		withdraw(r, i);
	assert_int_equal(r->n_done, 12);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(r->reqs[i].rc, -ECANCELED);
	no_room = false;
	/* Of its room the socket tells nobody who has nothing to send. */
	assert_false(rig_turn(r, 20));
	rig_read_nothing(r);
	still_works(r, 12);
}

/* The socket is full in the middle of one. */
static void commands__that_had_begun_to_go_are_not_withdrawn(void **state)
{
	struct rig *r = *state;
	uint16_t cids[16];
	uint32_t n, back;

	r->in_capsule_max = BIG;
	r->depth = 16;
	rig_ready(r);
	rig_pattern(want, BIG, 5);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, want, BIG), 0);
	rig_kick(r);
	for (uint32_t i = 0; i < 16; i += 2)
		withdraw(r, i);
	withdraw(r, 15);
	back = r->n_done;
	assert_true(back && back < 9);
	assert_int_equal(r->reqs[0].done, 0);
	assert_int_equal(r->reqs[15].rc, -ECANCELED);
	for (n = 0; n < 16 - back; n++) {
		cids[n] = rig_read_cmd(r, got, sizeof(got));
		assert_memory_equal(got, want, BIG);
	}
	rig_read_nothing(r);
	assert_int_equal(rig_counters(r).bytes_out, (uint64_t)n * BIG);
	assert_int_equal(rig_counters(r).cancelled, back);
	/* What is sent needs its answer. */
	withdraw(r, 1);
	assert_int_equal(r->reqs[1].done, 0);
	out.n = 0;
	for (uint32_t i = 0; i < n; i++)
		rig_put_resp(r, &out, cids[i], 0);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 16);
	still_works(r, 16);
}

/* The others of what was submitted with it keep the time limit that they have. */
static void commands__withdrawn_take_no_time_limit_from_others(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(rig_submit(r, i, NVMF_NO_DATA, NULL, 0), 0);
		r->reqs[i].req.timeout_ns = NS_PER_S;
	}
	withdraw(r, 2);
	assert_int_equal(r->reqs[2].rc, -ECANCELED);
	assert_int_equal(r->ops->tick(r->q, r->now_ns), r->now_ns + NS_PER_S);
	withdraw(r, 0);
	withdraw(r, 1);
	assert_int_equal(r->n_done, 3);
	assert_int_equal(r->ops->tick(r->q, r->now_ns), UINT64_MAX);
	still_works(r, 3);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(commands__that_wait_for_room_too_long_are_not_handed_on),
		T(commands__withdrawn_before_a_byte_of_them_went_do_not_go),
		T(commands__that_had_begun_to_go_are_not_withdrawn),
		T(commands__withdrawn_take_no_time_limit_from_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
