/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP under a mix that differs in each round and is the same in each run:
 * sizes, directions, order of the answers, how data is cut into PDUs, errors, how much the socket
 * gives at once. What is read is right; and a buffer that was given back is not touched any more,
 * although payloads are placed ahead of their headers.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <sys/socket.h>

#define BUF   65536u
#define GUARD 64u
#define SLOTS 24u

struct slot {
	uint8_t before[GUARD], mem[BUF], after[GUARD];
	uint32_t len, rounds;
	enum nvmf_dir dir;
	uint8_t seed;
};

static struct slot slots[SLOTS];
static struct peer peer;
static uint32_t state, sizes;
static uint8_t want[BUF];
static uint64_t n_answered, n_failed;

static uint32_t any(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % n;
}

static void fill(void *p, uint8_t with, size_t n)
{
	memset(p, with, n);
}

static bool is_all(const uint8_t *p, uint8_t with, size_t n)
{
	return p[0] == with && memcmp(p, p + 1, n - 1) == 0;
}

static uint32_t any_size(void)
{
	static const uint32_t usual[] = {512, 4096, 4096, 4096, 8192, 16384, 65536};

	if (sizes)
		return sizes;
	return any(4) ? usual[any(ARRAY_SIZE(usual))] : 1 + any(BUF - 1);
}

/* Given back, a buffer holds 0xee until it is used again. */
static void give(struct rig *r, uint32_t i, uint32_t reads_of_10)
{
	struct slot *s = &slots[i];

	if (s->rounds) {
		assert_true(is_all(s->mem, 0xee, BUF));
		assert_true(is_all(s->before, 0x5a, GUARD));
		assert_true(is_all(s->after, 0x5a, GUARD));
	}
	s->rounds++;
	s->len = any_size();
	s->dir = any(10) < reads_of_10 ? NVMF_FROM_TARGET : NVMF_TO_TARGET;
	if (s->dir == NVMF_TO_TARGET && any(5) == 0) {
		s->dir = NVMF_NO_DATA;
		s->len = 0;
	}
	s->seed = (uint8_t)any(256);
	if (s->dir == NVMF_TO_TARGET)
		rig_pattern(s->mem, s->len, s->seed);
	r->cdw10 = 0x100u | s->seed;
	assert_int_equal(rig_submit(r, i, s->dir, s->len ? s->mem : NULL, s->len), 0);
}

static bool take_back(struct rig *r, uint32_t i)
{
	struct slot *s = &slots[i];
	struct rig_req *rr = &r->reqs[i];

	if (!rr->rig || !rr->done || !s->len)
		return rr->rig && rr->done;
	if (rr->rc == 0 && rr->cqe.status == 0 && s->dir == NVMF_FROM_TARGET) {
		rig_pattern(want, s->len, s->seed);
		assert_memory_equal(s->mem, want, s->len);
		n_answered++;
	}
	n_failed += rr->cqe.status != 0;
	return true;
}

/* At once, in done: nothing may lie there any more. */
static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct rig_req *rr = (struct rig_req *)req;
	uint32_t i = (uint32_t)(rr - rr->rig->reqs);

	rig_on_done(req, rc, cqe);
	take_back(rr->rig, i);
	fill(slots[i].mem, 0xee, BUF);
}

static void run(struct rig *r, struct peer_opts o, uint32_t reads_of_10, uint32_t commands)
{
	uint64_t until = clock_boottime_ns() + 60 * NS_PER_S;
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t given = 0;

	r->header_digest = o.header_digest;
	r->data_digest = o.data_digest;
	r->cpda = o.cpda;
	r->on_done = on_done;
	memset(slots, 0, sizeof(slots));
	for (uint32_t i = 0; i < SLOTS; i++) {
		fill(slots[i].before, 0x5a, GUARD);
		fill(slots[i].after, 0x5a, GUARD);
	}
	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	peer_init(&peer, &o, r->peer);
	n_answered = n_failed = 0;
	while (r->n_done < commands) {
		if (r->ops->state(r->q) == NVMF_QUEUE_READY) {
			for (uint32_t i = 0; i < SLOTS && given < commands; i++)
				if (!r->reqs[i].rig || r->reqs[i].done) {
					give(r, i, reads_of_10);
					given++;
				}
			rig_kick(r);
		}
		peer_turn(&peer);
		rig_turn(r, 0);
		assert_string_equal(r->ops->fault(r->q), "");
		assert_true(clock_boottime_ns() < until);
	}
	assert_int_equal(peer.wrong, 0);
	assert_int_equal(peer.commands, commands);
	assert_int_equal(rig_counters(r).answered, commands);
	rig_close(r);
}

static void mix__without_chaos_is_right(void **st)
{
	run(*st, (struct peer_opts){0}, 10, 1000);
	run(*st, (struct peer_opts){.success = true}, 7, 1000);
	run(*st, (struct peer_opts){.reverse = true}, 9, 1000);
	run(*st, (struct peer_opts){.c2h_max = 3000, .header_digest = true}, 9, 1000);
}

static void mix__with_chaos_is_right(void **st)
{
	for (uint32_t seed = 1; seed <= 16; seed++) {
		struct peer_opts o = {.chaos = seed * 77,
		                      .success = seed & 1,
		                      .header_digest = seed & 2,
		                      .data_digest = seed & 4,
		                      .c2h_max = seed & 8 ? 5000 : 0,
		                      .r2t_max = 9000,
		                      .maxh2c = 4096};

		state = seed;
		run(*st, o, seed % 3 ? 10 : 7, 700);
		assert_true(n_answered > 0 && n_failed > 0);
	}
}

/* Reads of one size, mostly in order: nearly every payload is placed ahead. */
static void mix__of_one_size_with_some_chaos_is_right(void **st)
{
	static const uint32_t all[] = {512, 4096, 30000};

	for (uint32_t i = 0; i < ARRAY_SIZE(all); i++) {
		sizes = all[i];
		for (uint32_t seed = 1; seed <= 6; seed++) {
			state = seed;
			run(*st, (struct peer_opts){.chaos = seed, .data_digest = seed & 1}, 10,
			    700);
		}
	}
	sizes = 0;
}

/* What one call gives ends anywhere in what was placed ahead. */
static void mix__in_pieces_that_end_anywhere_is_right(void **st)
{
	for (uint32_t seed = 1; seed <= 12; seed++) {
		state = seed;
		sizes = seed & 8 ? 512 : 0;
		run(*st,
		    (struct peer_opts){.piece = seed & 8 ? 113 * seed : 1777 * seed,
		                       .chaos = seed & 1 ? seed : 0,
		                       .success = seed & 2,
		                       .header_digest = seed & 4},
		    10, 600);
	}
	sizes = 0;
}

static void few_copies(struct rig *r, struct peer_opts o, uint32_t reads_of_10)
{
	run(r, o, reads_of_10, 1000);
	if (reads_of_10 == 10)
		assert_int_equal(r->counted.bytes_in, 1000ull * sizes);
	if (r->counted.copied_bytes > r->counted.bytes_in / 20)
		fail_msg("%u: %llu of %llu bytes were copied", sizes,
		         (unsigned long long)r->counted.copied_bytes,
		         (unsigned long long)r->counted.bytes_in);
}

static void reads__in_order_are_not_copied_whatever_their_size(void **st)
{
	static const uint32_t all[] = {512, 4096, 16384, 65536};

	for (uint32_t i = 0; i < 2 * ARRAY_SIZE(all); i++) {
		sizes = all[i / 2];
		few_copies(*st, (struct peer_opts){.success = i & 1}, 10);
	}
	sizes = 0;
}

static void reads__in_order_among_writes_are_not_copied(void **st)
{
	static const uint32_t all[] = {512, 4096, 8192};

	for (uint32_t i = 0; i < 2 * ARRAY_SIZE(all); i++) {
		sizes = all[i / 2];
		few_copies(*st, (struct peer_opts){.success = i & 1, .data_digest = i & 2}, 7);
	}
	sizes = 0;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(mix__without_chaos_is_right),
		T(mix__with_chaos_is_right),
		T(mix__of_one_size_with_some_chaos_is_right),
		T(mix__in_pieces_that_end_anywhere_is_right),
		T(reads__in_order_are_not_copied_whatever_their_size),
		T(reads__in_order_among_writes_are_not_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
