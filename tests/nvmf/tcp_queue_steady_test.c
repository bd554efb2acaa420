/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP while it moves data: it allocates nothing, and its system calls for each
 * command stay below a bound. Counted by tests/sweep, whose first fault, EAGAIN, changes nothing.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"

#define DEPTH 32u
#define TURNS 64u

static uint8_t mem[DEPTH][131072];
static struct peer peer;

static void one_turn(struct rig *r, enum nvmf_dir dir, uint32_t len)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;

	r->n_done = 0;
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(rig_submit(r, i, dir, mem[i], len), 0);
	rig_kick(r);
	while (r->n_done < DEPTH) {
		peer_turn(&peer);
		rig_turn(r, 0);
		r->ops->tick(r->q, r->now_ns);
		assert_true(clock_boottime_ns() < until);
	}
}

static void connect_both(struct rig *r, struct peer_opts o)
{
	struct ros2_err err = ROS2_ERR_INIT;

	o.any_data = true;
	r->depth = DEPTH;
	r->header_digest = o.header_digest;
	r->data_digest = o.data_digest;
	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	peer_init(&peer, &o, r->peer);
	while (r->ops->state(r->q) != NVMF_QUEUE_READY) {
		peer_turn(&peer);
		rig_turn(r, 1);
	}
}

/* Calls of a kind for a hundred commands. */
static uint32_t calls(struct rig *r, enum sweep_kind kind, enum nvmf_dir dir, uint32_t len)
{
	struct sweep s = {.kind = kind, .error = EAGAIN};

	for (uint32_t i = 0; i < 8; i++)
		one_turn(r, dir, len);
	assert_true(sweep_next(&s));
	for (uint32_t i = 0; i < TURNS; i++)
		one_turn(r, dir, len);
	sweep_off();
	return sweep_calls() * 100 / (DEPTH * TURNS);
}

static const struct load {
	enum nvmf_dir dir;
	uint32_t len, receives, sends; /* at most, for a hundred commands */
} loads[] = {
	{NVMF_FROM_TARGET, 512, 8, 5},    {NVMF_FROM_TARGET, 4096, 16, 5},
	{NVMF_FROM_TARGET, 16384, 60, 5}, {NVMF_FROM_TARGET, 131072, 260, 5},
	{NVMF_TO_TARGET, 4096, 12, 12},   {NVMF_TO_TARGET, 131072, 120, 160},
};

static void steady_state__allocates_nothing(void **state)
{
	for (int digests = 0; digests < 2; digests++) {
		connect_both(*state,
		             (struct peer_opts){.header_digest = digests, .data_digest = digests});
		for (size_t i = 0; i < ARRAY_SIZE(loads); i++)
			assert_int_equal(calls(*state, SWEEP_ALLOC, loads[i].dir, loads[i].len), 0);
		rig_close(*state);
	}
}

static void steady_state__makes_few_system_calls(void **state)
{
	struct rig *r = *state;

	for (int success = 0; success < 2; success++) {
		connect_both(r, (struct peer_opts){.success = success});
		for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
			const struct load *l = &loads[i];
			uint32_t receives = calls(r, SWEEP_RECV, l->dir, l->len);
			uint32_t sends = calls(r, SWEEP_SEND, l->dir, l->len);

			if (receives > l->receives || sends > l->sends)
				fail_msg("%s of %u: %u receives, %u sends for a hundred",
				         l->dir == NVMF_FROM_TARGET ? "reads" : "writes", l->len,
				         receives, sends);
		}
		rig_close(r);
	}
}

/* Data in the smallest pieces, of many reads by turns, so that none is where it was awaited. How
 * many of them one poll takes at most, while the sockets hold ever more. */
#define PIECE   4u
#define CUT_LEN 16384u

static void put_pieces(struct rig *r, struct rig_bytes *b, const uint16_t cids[DEPTH])
{
	b->n = 0;
	for (uint32_t at = 0; at < CUT_LEN; at += PIECE)
		for (uint32_t i = 0; i < DEPTH; i++)
			rig_put_data(r, b, cids[i], at, mem[i] + CUT_LEN + at, PIECE,
			             at + PIECE == CUT_LEN ? NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS
			                                   : 0);
}

/* What has come, and one poll's worth of it. */
static uint32_t poll_once(struct rig *r)
{
	uint64_t before = rig_counters(r).bytes_in;

	(void)r->ops->poll(r->q, 256, r->now_ns);
	return (uint32_t)(rig_counters(r).bytes_in - before) / PIECE;
}

static void poll__takes_few_of_the_smallest_pieces(void **state)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;
	static struct rig_bytes b;
	uint16_t cids[DEPTH];
	struct rig *r = *state;
	uint32_t most = 0, taken;

	r->depth = DEPTH;
	rig_ready(r);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(rig_submit(r, i, NVMF_FROM_TARGET, mem[i], CUT_LEN), 0);
	rig_kick(r);
	for (uint32_t i = 0; i < DEPTH; i++)
		cids[i] = rig_read_cmd(r, NULL, 0);
	put_pieces(r, &b, cids);
	for (size_t at = 0; r->n_done < DEPTH;) {
		ssize_t sent =
			at < b.n ? send(r->peer, b.b + at, b.n - at, MSG_DONTWAIT | MSG_NOSIGNAL)
				 : 0;

		at += sent > 0 ? (size_t)sent : 0;
		taken = poll_once(r);
		most = MAX(most, taken);
		assert_true(clock_boottime_ns() < until);
	}
	/* A thousand, and what one more read may bring. */
	assert_in_range(most, 1, 6000);
	rig_close(r);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(steady_state__allocates_nothing),
		T(steady_state__makes_few_system_calls),
		T(poll__takes_few_of_the_smallest_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
