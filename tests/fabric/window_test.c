// SPDX-License-Identifier: Apache-2.0
/* Keys, binds, and the revoke ladder step by step, on the stub: also what no real device can be
 * made to show. */
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "common/clock.h"
#include <errno.h>

struct ladder {
	struct world w;
	struct fabric_slot slot, theirs;
	struct fabric_window *win;
	uint32_t key;
	uint64_t base;
	struct receipts got;
};

static struct fabric_counters counters(const struct ladder *l)
{
	struct fabric_counters c;

	fabric_set_counters(l->w.set[OURS], &c);
	return c;
}

static int open_ladder(void **state)
{
	struct ladder *l = calloc(1, sizeof(*l));

	world_open(&l->w);
	l->slot = world_slot(&l->w, OURS, 1000);
	l->theirs = world_slot(&l->w, PEER, 1000);
	l->win = world_bind(&l->w, &l->slot, FABRIC_READ | FABRIC_WRITE, &l->key);
	l->base = fabric_window_base(l->win);
	*state = l;
	return 0;
}

static int setup(void **state)
{
	stub_reset();
	return open_ladder(state);
}

static int teardown(void **state)
{
	struct ladder *l = *state;

	/* all of it, with what the test left, once */
	stub_release();
	world_close(&l->w);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
	free(l);
	return 0;
}

static void take_back(struct ladder *l)
{
	assert_int_equal(fabric_window_revoke(l->win, clock_boottime_ns(), on_receipt, &l->got), 0);
	(void)fabric_qp_flush(l->w.qp[OURS], clock_boottime_ns());
}

static void poll_all(struct ladder *l)
{
	struct fabric_completion c;

	while (world_poll(&l->w, OURS, &c))
		;
}

static uint64_t after(uint64_t ms)
{
	return clock_boottime_ns() + ms * NS_PER_MS;
}

static void fabric_window__opens_exactly_its_range_and_access(void **state)
{
	struct ladder *l = *state;
	struct world *w = &l->w;

	l->slot.mem[5] = 77;
	assert_int_equal(world_rdma(w, FABRIC_OP_READ, &l->theirs, 16, l->base, l->key),
	                 FABRIC_END_OK);
	assert_int_equal(l->theirs.mem[5], 77);
	l->theirs.mem[0] = 33;
	assert_int_equal(world_rdma(w, FABRIC_OP_WRITE, &l->theirs, 1, l->base + 9, l->key),
	                 FABRIC_END_OK);
	assert_int_equal(l->slot.mem[9], 33);
	assert_int_equal(world_rdma(w, FABRIC_OP_READ, &l->theirs, 16,
	                            l->base + l->slot.size_bytes - 15, l->key),
	                 FABRIC_END_REMOTE_ACCESS);
	assert_int_equal(fabric_qp_state(w->qp[PEER]), FABRIC_QP_FAILED);
}

static void fabric_window__read_only_is_not_writable(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	uint32_t key;
	struct fabric_window *win = world_bind(&l->w, &slot, FABRIC_READ, &key);

	assert_int_equal(
		world_rdma(&l->w, FABRIC_OP_WRITE, &l->theirs, 8, fabric_window_base(win), key),
		FABRIC_END_REMOTE_ACCESS);
}

static void fabric_window__revoke_invalidates_once_and_gives_a_receipt(void **state)
{
	struct ladder *l = *state;
	struct fabric_counters c;
	uint64_t before = clock_boottime_ns();

	take_back(l);
	assert_int_equal(l->got.n, 0);
	assert_int_equal(fabric_window_state(l->win), FABRIC_WINDOW_INVALIDATING);
	poll_all(l);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_INVALIDATE);
	assert_int_equal(l->got.last.draining, 0);
	assert_true(l->got.last.invalidated_ns >= before && l->got.last.last_posted_ns <= before);
	assert_true(l->got.last.last_posted_ns > 0);
	assert_int_equal(fabric_window_state(l->win), FABRIC_WINDOW_FREE);
	assert_int_equal(fabric_window_revoke(l->win, before, on_receipt, &l->got), -EALREADY);
	c = counters(l);
	assert_int_equal(c.invalidates, 1);
	assert_int_equal(c.receipts, 1);
	assert_int_equal(c.windows_bound + c.windows_waiting, 0);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
	/* and the old key opens nothing */
	assert_int_equal(world_rdma(&l->w, FABRIC_OP_READ, &l->theirs, 8, l->base, l->key),
	                 FABRIC_END_REMOTE_ACCESS);
}

static void fabric_window__keys_differ_each_time_and_are_not_guessable(void **state)
{
	struct ladder *l = *state;
	uint32_t last = l->key, same_index = 0, bytes[256] = {0}, distinct = 0, key;
	struct receipts got = {0};

	take_back(l);
	poll_all(l);
	for (int i = 0; i < 2000; i++) {
		struct fabric_bind b = {.region = l->slot.region,
		                        .length = 512,
		                        .access = FABRIC_READ,
		                        .flags = FABRIC_QUIET};
		struct fabric_window *win;

		assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
		assert_int_equal(fabric_window_revoke(win, after(0), on_receipt, &got), 0);
		assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
		poll_all(l);
		assert_int_not_equal(key, last);
		same_index += (key ^ last) >> 8 == 0;
		bytes[key & 0xff]++;
		last = key;
	}
	assert_int_equal(got.n, 2000);
	assert_int_equal(same_index,
	                 0); /* with 8 windows the one that came back last is never next */
	for (int i = 0; i < 256; i++)
		distinct += bytes[i] > 0;
	assert_true(distinct > 250);
}

static void fabric_window__a_bind_that_is_not_over_yet_can_be_revoked(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	struct fabric_bind b = {.region = slot.region, .length = 64, .access = FABRIC_READ};
	struct fabric_window *win;
	uint32_t key;

	stub_hold(STUB_BIND);
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	l->win = win;
	take_back(l);
	assert_false(fabric_slot_give(l->w.set[OURS], &slot));
	assert_int_equal(counters(l).slots_quarantined, 5); /* with the four receives */
	stub_release();
	poll_all(l);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_INVALIDATE);
	assert_int_equal(counters(l).slots_quarantined, 4);
}

static void fabric_window__a_late_local_inv_is_followed_by_dealloc(void **state)
{
	struct ladder *l = *state;
	uint64_t next;

	stub_hold(STUB_INV);
	take_back(l);
	next = fabric_set_tick(l->w.set[OURS], after(50));
	assert_int_equal(l->got.n, 0);
	assert_true(next > after(0) && next != UINT64_MAX);
	assert_int_equal(fabric_set_tick(l->w.set[OURS], after(150)), UINT64_MAX);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_DEALLOC);
	assert_int_equal(fabric_window_state(l->win), FABRIC_WINDOW_GONE);
	assert_int_equal(counters(l).late, 1);
	assert_int_equal(counters(l).fallback_deallocs, 1);
	/* no successor while the late one is under way: it could hit it */
	fabric_set_tick(l->w.set[OURS], after(500));
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 7);
	assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_READY);
	stub_end_next(STUB_INV, STUB_OK);
	stub_release();
	poll_all(l);
	fabric_set_tick(l->w.set[OURS], after(600));
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
	assert_int_equal(l->got.n, 1);
}

static void fabric_window__a_local_inv_that_nobody_flushes_leaves_in_time(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	struct fabric_bind b = {.region = slot.region, .length = 64, .access = FABRIC_READ};
	struct receipts other = {0};
	struct fabric_window *win;
	uint32_t key;

	/* also with a bind before it that has not left either */
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_window_revoke(win, after(0), on_receipt, &other), 0);
	assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), 0);
	assert_int_equal(counters(l).invalidates, 0);
	assert_true(fabric_set_tick(l->w.set[OURS], after(150)) > after(200));
	assert_int_equal(counters(l).invalidates, 2);
	poll_all(l);
	assert_int_equal(other.n, 1);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_INVALIDATE);
	assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_READY);
}

static void fabric_window__a_flushed_local_inv_is_followed_by_dealloc(void **state)
{
	struct ladder *l = *state;

	stub_hold(STUB_INV);
	take_back(l);
	assert_int_equal(fabric_qp_kill(l->w.qp[OURS], NULL), 0);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_DEALLOC);
	poll_all(l);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(counters(l).invalidates, 1);
}

static void fabric_window__on_a_failed_queue_pair_is_deallocated_and_never_invalidated(void **state)
{
	struct ladder *l = *state;

	assert_int_equal(fabric_qp_kill(l->w.qp[OURS], NULL), 0);
	assert_int_equal(l->got.n, 0);
	assert_int_equal(fabric_window_state(l->win), FABRIC_WINDOW_GONE);
	take_back(l);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_DEALLOC);
	assert_int_equal(counters(l).invalidates, 0);
	assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), -EALREADY);
}

static void fabric_window__a_refused_dealloc_takes_the_queue_pair_to_error(void **state)
{
	struct ladder *l = *state;

	stub_hold(STUB_INV);
	stub_fail(STUB_dealloc_mw, 1, EBUSY, true);
	take_back(l);
	fabric_set_tick(l->w.set[OURS], after(150));
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.how, FABRIC_BY_QP_ERROR);
	assert_true(stub_qp_in_error(fabric_qp_number(l->w.qp[OURS])));
	assert_int_equal(fabric_window_state(l->win), FABRIC_WINDOW_SET_ASIDE);
	assert_int_equal(counters(l).windows_set_aside, 1);
	assert_int_equal(counters(l).fallback_errors, 1);
	/* its slot is never used again while the device keeps the window */
	assert_false(fabric_slot_give(l->w.set[OURS], &l->slot));
	poll_all(l);
	assert_int_equal(counters(l).slots_quarantined, 1);
	/* freeing the set is refused, too, and nothing of it is given away */
	fabric_qp_free(l->w.qp[OURS]);
	l->w.qp[OURS] = NULL;
	assert_int_equal(stub_count(STUB_destroy_qp), 0);
	assert_int_equal(fabric_set_free(l->w.set[OURS]), -EBUSY);
	stub_fail(STUB_dealloc_mw, 0, 0, false);
	assert_int_equal(l->got.n, 1);
}

static void fabric_window__set_aside_ends_when_the_device_lets_go(void **state)
{
	struct ladder *l = *state;

	stub_hold(STUB_INV);
	stub_fail(STUB_dealloc_mw, 1, EBUSY, true);
	stub_fail(STUB_modify_qp, 1, EIO, true);
	take_back(l);
	fabric_set_tick(l->w.set[OURS], after(150));
	/* neither step took effect: no receipt may claim it */
	assert_int_equal(l->got.n, 0);
	stub_fail(STUB_dealloc_mw, 0, 0, false);
	stub_fail(STUB_modify_qp, 0, 0, false);
	fabric_set_tick(l->w.set[OURS], after(300));
	assert_int_equal(l->got.n, 1);
	assert_int_equal(counters(l).windows_set_aside, 0);
}

static void fabric_window__a_failed_bind_fails_the_queue_pair_and_names_the_bind(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	struct fabric_bind b = {.cookie = 9,
	                        .region = slot.region,
	                        .length = 64,
	                        .access = FABRIC_READ,
	                        .flags = FABRIC_QUIET};
	struct fabric_completion c = {0};
	struct fabric_window *win;
	uint32_t key;

	stub_end_next(STUB_BIND, STUB_BIND_ERR);
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	c = world_wait(&l->w, OURS, FABRIC_OP_BIND);
	assert_int_equal(c.end, FABRIC_END_LOCAL);
	assert_int_equal(c.cookie, 9);
	assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_FAILED);
	assert_int_equal(counters(l).binds_failed, 1);
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), -ENOTCONN);
	/* the other window, which was well, is gone as well */
	take_back(l);
	assert_int_equal(l->got.last.how, FABRIC_BY_DEALLOC);
}

static void fabric_window__a_bind_without_end_fails_the_queue_pair(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	struct fabric_bind b = {.region = slot.region, .length = 64, .access = FABRIC_READ};
	struct fabric_window *win;
	uint32_t key;

	stub_lose(true);
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	assert_true(fabric_set_tick(l->w.set[OURS], after(900)) != UINT64_MAX);
	fabric_set_tick(l->w.set[OURS], after(1100));
	assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_FAILED);
	assert_int_equal(counters(l).late, 1);
	stub_lose(false);
}

static void fabric_window__a_quiet_bind_is_known_without_a_later_request(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot slot = world_slot(&l->w, OURS, 100);
	struct fabric_bind b = {
		.region = slot.region, .length = 64, .access = FABRIC_READ, .flags = FABRIC_QUIET};
	struct fabric_completion c;
	struct fabric_window *win;
	uint32_t key;

	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	assert_int_equal(world_poll(&l->w, OURS, &c), 0);
	assert_int_equal(fabric_window_state(win), FABRIC_WINDOW_BOUND);
	assert_int_equal(fabric_set_tick(l->w.set[OURS], after(2000)), UINT64_MAX);
}

static void fabric_window__invalidated_by_the_peer_gets_no_second_local_inv(void **state)
{
	struct ladder *l = *state;
	struct fabric_completion c;
	uint32_t qpn = fabric_qp_number(l->w.qp[OURS]);

	stub_foreign_invalidate(qpn, l->key);
	c = world_wait(&l->w, OURS, FABRIC_OP_RECV);
	assert_true(c.invalidated && c.key == l->key);
	assert_int_equal(counters(l).foreign_invalidates, 1);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]),
	                 7); /* still ours until we revoke it */
	take_back(l);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(counters(l).invalidates, 0);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
}

static void fabric_window__a_queued_local_inv_is_withdrawn_when_the_peer_was_first(void **state)
{
	struct ladder *l = *state;

	assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), 0);
	stub_foreign_invalidate(fabric_qp_number(l->w.qp[OURS]), l->key);
	(void)world_wait(&l->w, OURS, FABRIC_OP_RECV);
	assert_int_equal(l->got.n, 1);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	assert_int_equal(counters(l).invalidates, 0);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
	assert_int_equal(fabric_qp_send_room(l->w.qp[OURS]), 64);
}

static void fabric_window__work_under_it_keeps_it_from_being_used_again(void **state)
{
	struct ladder *l = *state;
	struct fabric_part part = {.region = l->slot.region, .length = 100};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .under = l->win};
	uint64_t posted = after(5);

	stub_hold(STUB_SEND);
	assert_int_equal(fabric_send(l->w.qp[OURS], &wr), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], posted), 0);
	assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), 0);
	assert_int_equal(fabric_send(l->w.qp[OURS], &wr), -EKEYREVOKED);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(9)), 0);
	fabric_set_tick(l->w.set[OURS], after(150));
	assert_int_equal(l->got.n, 1);
	assert_int_equal(l->got.last.draining, 1);
	assert_int_equal(l->got.last.last_posted_ns, posted);
	fabric_set_tick(l->w.set[OURS], after(200));
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 7);
	stub_end_next(STUB_INV, STUB_OK);
	stub_release();
	poll_all(l);
	fabric_set_tick(l->w.set[OURS], after(300));
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
}

static void fabric_window__is_checked_before_it_is_bound(void **state)
{
	struct ladder *l = *state;
	struct fabric_slot other = world_slot(&l->w, PEER, 100);
	const struct fabric_bind good = {
		.region = l->slot.region, .length = 64, .access = FABRIC_READ};
	struct fabric_bind b;
	struct fabric_window *win;
	struct fabric_region *plain;
	uint64_t refused = counters(l).refused, size = l->slot.size_bytes;
	uint32_t key;
	static uint8_t memory[4096];

#define REFUSED(code, ...)                                                                         \
	b = good;                                                                                  \
	__VA_ARGS__;                                                                               \
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), code);                 \
	assert_int_equal(counters(l).refused, ++refused)
	REFUSED(-EINVAL, b.length = 0);
	REFUSED(-EINVAL, b.access = 0);
	REFUSED(-EINVAL, b.access = 8);
	REFUSED(-EINVAL, b.flags = 64);
	REFUSED(-EINVAL, b.region = NULL);
	REFUSED(-ERANGE, b.length = size + 1);
	REFUSED(-ERANGE, b.offset = size - 63);
	REFUSED(-ERANGE, b.offset = UINT64_MAX - 3);
	REFUSED(-EPERM, b.region = other.region);
	assert_int_equal(fabric_region_new(l->w.pd[OURS],
	                                   &(struct fabric_region_opts){.addr = memory,
	                                                                .length = sizeof(memory)},
	                                   &plain, NULL),
	                 0);
	REFUSED(-EINVAL, b.region = plain);
	assert_int_equal(fabric_region_free(plain), 0);
	for (int i = 0; i < 7; i++)
		assert_int_equal(fabric_window_bind(l->w.qp[OURS], &good, &win, &key), 0);
	REFUSED(-EBUSY, (void)b);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
}

static void fabric_window__rotation_costs_no_doorbell_of_its_own(void **state)
{
	struct ladder *l = *state;
	struct fabric_part part = {.region = l->theirs.region, .length = 8};
	struct fabric_part ours = {.region = l->slot.region, .length = 32};
	uint64_t doorbells = counters(l).doorbells, posted = counters(l).posted;

	for (int i = 0; i < 100; i++) {
		struct fabric_bind b = {.region = l->slot.region,
		                        .length = 512,
		                        .access = FABRIC_READ,
		                        .flags = FABRIC_QUIET};
		struct fabric_wr send = {.parts = &ours, .n_parts = 1};
		uint32_t key;

		assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), 0);
		assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &l->win, &key), 0);
		assert_int_equal(fabric_send(l->w.qp[OURS], &send), 0);
		assert_int_equal(
			fabric_recv(l->w.qp[PEER],
		                    &(struct fabric_wr){
					    .parts = &(struct fabric_part){.region = part.region,
		                                                           .length = 64},
					    .n_parts = 1}),
			0);
		assert_int_equal(fabric_qp_flush(l->w.qp[PEER], after(0)), 0);
		assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
		poll_all(l);
		(void)world_wait(&l->w, PEER, FABRIC_OP_RECV);
	}
	assert_int_equal(counters(l).doorbells - doorbells, 100);
	assert_int_equal(counters(l).posted - posted, 300);
	assert_int_equal(l->got.n, 100);
}

static void bind_more(struct ladder *l, uint32_t flags, uint32_t n, struct fabric_window **ret)
{
	struct fabric_bind b = {.region = l->slot.region,
	                        .length = 512,
	                        .access = FABRIC_READ,
	                        .flags = FABRIC_QUIET | flags};
	uint32_t key;

	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &ret[i], &key), 0);
}

static void fabric_window__many_ends_are_one_completion(void **state)
{
	struct ladder *l = *state;
	struct fabric_window *more[6];
	uint64_t cqes;

	bind_more(l, 0, 6, more);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	cqes = counters(l).cqes;
	for (int i = 0; i < 6; i++)
		assert_int_equal(fabric_window_revoke(more[i], after(0), on_receipt, &l->got), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	assert_int_equal(l->got.n, 6);
	assert_int_equal(l->got.last.how, FABRIC_BY_INVALIDATE);
	assert_int_equal(counters(l).cqes - cqes, 1);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 7);
}

/* One that another work request follows in the same chain is still told of by itself. */
static void fabric_window__an_end_does_not_wait_for_what_is_behind_it(void **state)
{
	struct ladder *l = *state;
	struct fabric_part part = {.region = l->slot.region, .length = 32};
	struct fabric_wr send = {.parts = &part, .n_parts = 1};

	stub_hold(STUB_SEND);
	assert_int_equal(fabric_window_revoke(l->win, after(0), on_receipt, &l->got), 0);
	assert_int_equal(fabric_send(l->w.qp[OURS], &send), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	assert_int_equal(l->got.n, 1);
	stub_release();
}

/* A bind that is followed by an answer costs no completion; one that is not does. */
static void fabric_window__an_untimed_bind_ends_with_its_invalidate(void **state)
{
	struct ladder *l = *state;
	struct fabric_part part = {.region = l->slot.region, .length = 32},
			   room = {.region = l->theirs.region, .length = 64};
	struct fabric_wr send = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};
	struct fabric_window *win[2];
	uint64_t cqes = counters(l).cqes;

	for (int i = 0; i < 40; i++) {
		bind_more(l, FABRIC_UNTIMED, 1, win);
		send.under = win[0];
		assert_int_equal(fabric_recv(l->w.qp[PEER],
		                             &(struct fabric_wr){.parts = &room, .n_parts = 1}),
		                 0);
		assert_int_equal(fabric_qp_flush(l->w.qp[PEER], after(0)), 0);
		assert_int_equal(fabric_send(l->w.qp[OURS], &send), 0);
		assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
		poll_all(l);
		assert_int_equal(counters(l).cqes - cqes, (uint64_t)i);
		/* it has no deadline */
		(void)fabric_set_tick(l->w.set[OURS], after(3600 * 1000ull));
		assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_READY);
		assert_int_equal(fabric_window_revoke(win[0], after(0), on_receipt, &l->got), 0);
		assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
		poll_all(l);
		(void)world_wait(&l->w, PEER, FABRIC_OP_RECV);
		assert_int_equal(l->got.n, i + 1);
	}
	assert_int_equal(counters(l).late, 0);
	bind_more(l, 0, 1, win);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	assert_int_equal(counters(l).cqes - cqes, 41);
}

static void fabric_window__ends_in_order_windows_queue_pair_regions_domain(void **state)
{
	struct ladder *l = *state;

	stub_order_clear();
	assert_int_equal(fabric_set_free(l->w.set[OURS]), 0);
	assert_int_equal(fabric_pd_free(l->w.pd[OURS]), 0);
	assert_string_equal(stub_order(), "dealloc_mw destroy_qp dereg_mr destroy_cq dealloc_pd");
	l->w.set[OURS] = NULL;
	l->w.qp[OURS] = NULL;
	l->w.pd[OURS] = NULL;
}

static int software_setup(void **state)
{
	struct ladder *l = calloc(1, sizeof(*l));

	stub_reset();
	stub_software(true);
	world_open(&l->w);
	l->slot = world_slot(&l->w, OURS, 1000);
	l->win = world_bind(&l->w, &l->slot, FABRIC_READ | FABRIC_WRITE, &l->key);
	*state = l;
	return 0;
}

static void wait_for_receipt(struct ladder *l)
{
	uint64_t until = after(5000);

	while (l->got.n == 0 && clock_boottime_ns() < until)
		poll_all(l);
	assert_int_equal(l->got.n, 1);
}

static void fabric_window__on_a_software_device_the_receipt_waits_for_the_last_packet(void **state)
{
	struct ladder *l = *state;
	uint64_t dead;

	take_back(l);
	fabric_set_poll(l->w.set[OURS], NULL, 0);
	dead = clock_boottime_ns();
	/* not reused, and not even free, before the receipt */
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 7);
	assert_false(fabric_slot_give(l->w.set[OURS], &l->slot));
	wait_for_receipt(l);
	assert_int_equal(l->got.last.how, FABRIC_BY_INVALIDATE);
	assert_true(l->got.last.invalidated_ns >= dead);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
	assert_int_equal(counters(l).slots_quarantined, 4); /* the fixture's */
}

static void fabric_window__on_a_software_device_rotation_does_not_wait(void **state)
{
	struct ladder *l = *state;

	assert_int_equal(fabric_window_revoke(l->win, after(0), NULL, NULL), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	poll_all(l);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
}

static void fabric_window__receipts_that_wait_run_when_the_queue_pair_is_freed(void **state)
{
	struct ladder *l = *state;

	take_back(l);
	fabric_set_poll(l->w.set[OURS], NULL, 0);
	fabric_qp_free(l->w.qp[OURS]);
	l->w.qp[OURS] = NULL;
	assert_int_equal(l->got.n, 1);
}

static int dealloc_setup(void **state)
{
	int r;

	world_end_by_dealloc = true;
	r = software_setup(state);
	world_end_by_dealloc = false;
	return r;
}

/* No LOCAL_INV that could be the second one: a peer may have been first, unseen. */
static void fabric_window__ends_by_dealloc_where_a_second_invalidation_is_fatal(void **state)
{
	struct ladder *l = *state;

	l->theirs = world_slot(&l->w, PEER, 1000);
	for (int i = 0; i < 10; i++) { /* more often than there are windows */
		take_back(l);
		assert_int_equal(l->got.n, 0); /* the last packet */
		wait_for_receipt(l);
		assert_int_equal(l->got.last.how, FABRIC_BY_DEALLOC);
		assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
		l->got = (struct receipts){0};
		l->win = world_bind(&l->w, &l->slot, FABRIC_READ | FABRIC_WRITE, &l->key);
		l->base = fabric_window_base(l->win);
	}
	assert_int_equal(fabric_window_revoke(l->win, after(0), NULL, NULL), 0);
	assert_int_equal(fabric_qp_windows_free(l->w.qp[OURS]), 8);
	assert_int_equal(counters(l).invalidates, 0);
	assert_int_equal(world_rdma(&l->w, FABRIC_OP_READ, &l->theirs, 8, l->base, l->key),
	                 FABRIC_END_REMOTE_ACCESS);
}

static void fabric_window__whose_dealloc_is_refused_ends_with_its_queue_pair(void **state)
{
	struct ladder *l = *state;

	stub_fail(STUB_dealloc_mw, 1, EBUSY, true);
	take_back(l);
	assert_int_equal(fabric_qp_state(l->w.qp[OURS]), FABRIC_QP_FAILED);
	wait_for_receipt(l);
	assert_int_equal(l->got.last.how, FABRIC_BY_QP_ERROR);
	assert_int_equal(counters(l).invalidates, 0);
	stub_fail(STUB_dealloc_mw, 0, 0, false);
}

static int mellanox_setup(void **state)
{
	stub_reset();
	stub_mellanox(true);
	world_pinned_bytes = 8ull << 30;
	return open_ladder(state);
}

static int mellanox_teardown(void **state)
{
	world_pinned_bytes = 0;
	return teardown(state);
}

/* Posted, it would cost the queue pair, and all that is behind it on the way. */
static void fabric_window__longer_than_the_device_takes_is_not_posted(void **state)
{
	static uint8_t first; /* nobody looks at the others */
	struct fabric_region_opts o = {.addr = &first, .length = 3ull << 30, .bindable = true};
	struct ladder *l = *state;
	struct fabric_bind b = {.access = FABRIC_READ};
	struct fabric_window *win;
	struct fabric_region *r;
	uint32_t key;

	assert_true(fabric_dev_attr(l->w.dev)->max_window_bytes == 1ull << 31);
	assert_int_equal(fabric_region_new(l->w.pd[OURS], &o, &r, NULL), 0);
	b.region = r;
	for (b.length = 3ull << 30; b.length > 1ull << 31; b.length -= (1ull << 30) - 1) {
		assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), -EMSGSIZE);
		assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	}
	b.length = 1ull << 31;
	assert_int_equal(fabric_window_bind(l->w.qp[OURS], &b, &win, &key), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	assert_int_equal(world_wait(&l->w, OURS, FABRIC_OP_BIND).end, FABRIC_END_OK);
	assert_int_equal(fabric_window_revoke(win, after(0), on_receipt, &l->got), 0);
	assert_int_equal(fabric_qp_flush(l->w.qp[OURS], after(0)), 0);
	wait_for_receipt(l);
	assert_int_equal(fabric_region_free(r), 0);
}

#define M(name) cmocka_unit_test_setup_teardown(name, mellanox_setup, mellanox_teardown)
#define S(name) cmocka_unit_test_setup_teardown(name, software_setup, teardown)
#define D(name) cmocka_unit_test_setup_teardown(name, dealloc_setup, teardown)
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(fabric_window__opens_exactly_its_range_and_access),
		T(fabric_window__read_only_is_not_writable),
		T(fabric_window__revoke_invalidates_once_and_gives_a_receipt),
		T(fabric_window__keys_differ_each_time_and_are_not_guessable),
		T(fabric_window__a_bind_that_is_not_over_yet_can_be_revoked),
		T(fabric_window__a_late_local_inv_is_followed_by_dealloc),
		T(fabric_window__a_local_inv_that_nobody_flushes_leaves_in_time),
		T(fabric_window__a_flushed_local_inv_is_followed_by_dealloc),
		T(fabric_window__on_a_failed_queue_pair_is_deallocated_and_never_invalidated),
		T(fabric_window__a_refused_dealloc_takes_the_queue_pair_to_error),
		T(fabric_window__set_aside_ends_when_the_device_lets_go),
		T(fabric_window__a_failed_bind_fails_the_queue_pair_and_names_the_bind),
		T(fabric_window__a_bind_without_end_fails_the_queue_pair),
		T(fabric_window__a_quiet_bind_is_known_without_a_later_request),
		T(fabric_window__invalidated_by_the_peer_gets_no_second_local_inv),
		T(fabric_window__a_queued_local_inv_is_withdrawn_when_the_peer_was_first),
		T(fabric_window__work_under_it_keeps_it_from_being_used_again),
		T(fabric_window__is_checked_before_it_is_bound),
		T(fabric_window__rotation_costs_no_doorbell_of_its_own),
		T(fabric_window__many_ends_are_one_completion),
		T(fabric_window__an_end_does_not_wait_for_what_is_behind_it),
		T(fabric_window__an_untimed_bind_ends_with_its_invalidate),
		S(fabric_window__on_a_software_device_the_receipt_waits_for_the_last_packet),
		S(fabric_window__on_a_software_device_rotation_does_not_wait),
		D(fabric_window__ends_by_dealloc_where_a_second_invalidation_is_fatal),
		D(fabric_window__whose_dealloc_is_refused_ends_with_its_queue_pair),
		S(fabric_window__receipts_that_wait_run_when_the_queue_pair_is_freed),
		T(fabric_window__ends_in_order_windows_queue_pair_regions_domain),
		M(fabric_window__longer_than_the_device_takes_is_not_posted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
