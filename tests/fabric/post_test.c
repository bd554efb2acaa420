// SPDX-License-Identifier: Apache-2.0
/* Work requests: what is checked before, how they are handed on, and that each end is told exactly
 * once. */
#include "tests/fabric/fixture.h"
#include "tests/fabric/verbs_stub.h"
#include "common/clock.h"
#include <errno.h>
#include <poll.h>

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	stub_reset();
	world_open(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	stub_release();
	world_close(*state);
	assert_null(stub_violation());
	assert_int_equal(stub_alive(), 0);
	free(*state);
	return 0;
}

static struct fabric_counters counters(const struct world *w, int side)
{
	struct fabric_counters c;

	fabric_set_counters(w->set[side], &c);
	return c;
}

static void flush(struct world *w, int side)
{
	assert_int_equal(fabric_qp_flush(w->qp[side], clock_boottime_ns()), 0);
}

static void fabric_post__is_checked_before_it_is_queued(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000), other = world_slot(w, PEER, 1000);
	const struct fabric_part good = {.region = slot.region, .length = 100};
	struct fabric_part part;
	struct fabric_wr wr;
	uint64_t refused = 0, posted = stub_count(STUB_post_send);

#define REFUSED(fn, code, ...)                                                                     \
	part = good;                                                                               \
	wr = (struct fabric_wr){.parts = &part, .n_parts = 1};                                     \
	__VA_ARGS__;                                                                               \
	assert_int_equal(fn(w->qp[OURS], &wr), code);                                              \
	assert_int_equal(counters(w, OURS).refused, ++refused)
	REFUSED(fabric_send, -ERANGE, part.length = slot.size_bytes + 1);
	REFUSED(fabric_send, -ERANGE, part.offset = slot.size_bytes);
	REFUSED(fabric_send, -ERANGE, part.offset = UINT64_MAX - 10);
	REFUSED(fabric_send, -EINVAL, part.length = 0);
	REFUSED(fabric_send, -EINVAL, part.region = NULL);
	REFUSED(fabric_send, -EPERM, part.region = other.region);
	REFUSED(fabric_send, -EINVAL, wr.n_parts = 3);
	REFUSED(fabric_send, -EINVAL, wr.flags = 128);
	REFUSED(fabric_read, -EINVAL, wr.flags = FABRIC_SOLICITED);
	REFUSED(fabric_write, -EINVAL, wr.flags = FABRIC_REMOTE_INVALIDATE);
	REFUSED(fabric_recv, -EINVAL, wr.flags = FABRIC_QUIET);
	REFUSED(fabric_recv, -ERANGE, part.offset = slot.size_bytes - 1);
	REFUSED(fabric_recv, -EPERM, part.region = other.region);
	flush(w, OURS);
	assert_int_equal(stub_count(STUB_post_send), posted);
	assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 0);
}

static void fabric_post__a_chain_is_one_doorbell_and_ends_in_order(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part parts[2] = {{.region = slot.region, .length = 100},
	                               {.region = slot.region, .offset = 500, .length = 28}};
	struct fabric_counters before = counters(w, OURS), after;
	struct fabric_completion c[8];

	for (uint64_t i = 0; i < 4; i++) {
		struct fabric_wr wr = {.cookie = 70 + i, .parts = parts, .n_parts = 2};

		wr.flags = i == 1 ? FABRIC_QUIET : 0;
		assert_int_equal(fabric_send(w->qp[OURS], &wr), 0);
	}
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 8), 0);
	flush(w, OURS);
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 2), 2);
	assert_int_equal(c[0].cookie, 70);
	assert_int_equal(c[1].cookie, 72);
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 8), 1);
	assert_int_equal(c[0].cookie, 73);
	assert_ptr_equal(c[0].qp, w->qp[OURS]);
	after = counters(w, OURS);
	assert_int_equal(after.doorbells - before.doorbells, 1);
	assert_int_equal(after.posted - before.posted, 4);
	assert_int_equal(after.completed - before.completed, 4);
	assert_int_equal(fabric_set_poll(w->set[PEER], c, 8), 4);
	assert_int_equal(c[0].bytes, 128);
}

static void receipt_came(void *arg, const struct fabric_receipt *r)
{
	(void)r;
	++*(uint32_t *)arg;
}

/* Round after round, so that no place is lost: with it under a window, and as the one whose end
 * would have told that a bind is over. */
static void fabric_post__a_send_that_is_withdrawn_leaves_nothing(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000), lent = world_slot(w, OURS, 1000);
	struct fabric_slot theirs = world_slot(w, PEER, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100},
			   there = {.region = theirs.region, .length = 1000};
	struct fabric_wr back = {.parts = &there, .n_parts = 1};
	struct fabric_bind b = {.region = lent.region,
	                        .length = lent.size_bytes,
	                        .access = FABRIC_READ,
	                        .flags = FABRIC_QUIET};
	struct fabric_completion c[4];
	uint32_t receipts = 0, key;

	for (uint32_t round = 0; round < 500; round++) {
		bool under = round & 1, goes = round & 2;
		struct fabric_wr wr = {.cookie = 5, .parts = &part, .n_parts = 1},
				 other = {.cookie = 6, .parts = &part, .n_parts = 1};
		struct fabric_window *win;

		assert_int_equal(fabric_window_bind(w->qp[OURS], &b, &win, &key), 0);
		wr.under = under ? win : NULL;
		wr.flags = under ? FABRIC_QUIET : 0;
		assert_int_equal(fabric_send(w->qp[OURS], &wr), 0);
		if (goes)
			assert_int_equal(fabric_send(w->qp[OURS], &other), 0);
		assert_true(fabric_send_withdraw(w->qp[OURS], 5));
		assert_false(fabric_send_withdraw(w->qp[OURS], 5));
		flush(w, OURS);
		assert_false(fabric_send_withdraw(w->qp[OURS], 6)); /* it has left */
		assert_int_equal(fabric_set_poll(w->set[OURS], c, 4), goes);
		assert_int_equal(fabric_window_state(win), FABRIC_WINDOW_BOUND);
		assert_int_equal(fabric_set_poll(w->set[PEER], c, 4), goes);
		if (goes) {
			assert_int_equal(fabric_recv(w->qp[PEER], &back), 0);
			flush(w, PEER);
		}
		assert_int_equal(
			fabric_window_revoke(win, clock_boottime_ns(), receipt_came, &receipts), 0);
		flush(w, OURS);
		assert_int_equal(fabric_set_poll(w->set[OURS], c, 4), 0);
		assert_int_equal(receipts, round + 1);
		assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 0);
	}
}

static void fabric_post__quiet_ones_give_their_places_back(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_slot theirs = world_slot(w, PEER, 1000);
	struct fabric_part part = {.region = theirs.region, .length = 64};
	struct fabric_completion c;
	uint32_t key, n = 0;
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};

	wr.remote_address =
		fabric_window_base(world_bind(w, &slot, FABRIC_READ | FABRIC_WRITE, &key));
	wr.remote_key = key;
	while (n < 1000) {
		int r = fabric_write(w->qp[PEER], &wr);

		if (r == 0) {
			n++;
			continue;
		}
		assert_int_equal(r, -EBUSY);
		assert_int_equal(fabric_qp_send_room(w->qp[PEER]), 0);
		flush(w, PEER);
		assert_int_equal(world_poll(w, PEER, &c), 0);
		assert_true(fabric_qp_send_room(w->qp[PEER]) > 0);
	}
	flush(w, PEER);
}

static void fabric_post__what_it_names_is_held_until_its_end(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_region *region = slot.region;
	struct fabric_part part = {.region = region, .length = 100};
	struct fabric_completion c;

	stub_hold(STUB_SEND);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	flush(w, OURS);
	assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 1);
	assert_false(fabric_slot_give(w->set[OURS], &slot));
	assert_null(slot.mem);
	stub_release();
	assert_int_equal(world_poll(w, OURS, &c), 1);
	assert_int_equal(counters(w, OURS).slots_quarantined, 4); /* the receives of the fixture */
	assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 0);
}

static void fabric_post__small_ones_are_inline_and_free_when_flushed(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 64};
	struct fabric_completion c;

	assert_int_equal(fabric_qp_inline_max(w->qp[OURS]), 64);
	memset(slot.mem, 5, 64);
	stub_hold(STUB_SEND);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	flush(w, OURS);
	memset(slot.mem, 6, 64);
	stub_release();
	assert_int_equal(world_poll(w, PEER, &c), 1);
	/* the peer's first receive went to its first slot of the smallest size */
	struct fabric_slot probe = world_slot(w, PEER, 1);
	assert_int_equal(c.bytes, 64);
	assert_int_equal(probe.mem[0], 5);
}

/* Inline means that a processor copies it, when it is posted. */
static void fabric_post__memory_of_a_device_is_never_inline(void **state)
{
	static uint8_t device[64];
	struct world *w = *state;
	struct fabric_region_opts o = {
		.dmabuf = true, .dmabuf_fd = 3, .addr = device, .length = sizeof(device)};
	struct fabric_part part = {.length = sizeof(device)};
	struct fabric_completion c;
	struct fabric_slot probe;

	assert_int_equal(fabric_region_new(w->pd[OURS], &o, &part.region, NULL), 0);
	memset(device, 5, sizeof(device));
	stub_hold(STUB_SEND);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	flush(w, OURS);
	memset(device, 6, sizeof(device));
	stub_release();
	assert_int_equal(world_poll(w, PEER, &c), 1);
	probe = world_slot(w, PEER, 1);
	assert_int_equal(probe.mem[0], 6);
	(void)world_poll(w, OURS, &c);
	assert_int_equal(fabric_region_free(part.region), 0);
}

static void fabric_post__every_end_is_told_exactly_once_when_a_queue_pair_fails(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	uint32_t ends[64] = {0}, receives = 0, n = 0, ok = 0;
	struct fabric_completion c[7];
	int k;

	for (uint64_t i = 0; i < 20; i++) {
		struct fabric_wr wr = {.cookie = i, .parts = &part, .n_parts = 1};

		/* two go well quietly, one breaks, the others are flushed; the last five were never
		 * handed on */
		wr.flags = i < 2 || i == 9 || i == 16 ? FABRIC_QUIET : 0;
		assert_int_equal(fabric_send(w->qp[OURS], &wr), 0);
		if (i == 1 || i == 14) {
			if (i == 14)
				stub_end_next(STUB_SEND, STUB_REM_ACCESS);
			flush(w, OURS);
		}
	}
	while ((k = fabric_set_poll(w->set[OURS], c, 7)) > 0) {
		for (int i = 0; i < k; i++) {
			if (c[i].op == FABRIC_OP_RECV) {
				assert_int_equal(c[i].end, FABRIC_END_FLUSHED);
				assert_int_equal(c[i].vendor_err, STUB_VENDOR_ERR);
				receives++;
				continue;
			}
			ends[c[i].cookie]++;
			/* what was never handed on no device has a number for */
			assert_int_equal(c[i].vendor_err, c[i].cookie < 15 ? STUB_VENDOR_ERR : 0);
			n++;
			ok += c[i].end == FABRIC_END_OK;
			assert_int_equal(c[i].end, c[i].cookie == 2 ? FABRIC_END_REMOTE_ACCESS
			                                            : FABRIC_END_FLUSHED);
		}
	}
	assert_int_equal(receives, 4);
	assert_int_equal(n, 18); /* all but the two that went well quietly */
	assert_int_equal(ok, 0);
	for (int i = 2; i < 20; i++)
		assert_int_equal(ends[i], 1);
	assert_int_equal(fabric_qp_state(w->qp[OURS]), FABRIC_QP_FAILED);
	assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 0);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}),
		-ENOTCONN);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], 1), -ENOTCONN);
	assert_int_equal(fabric_qp_free(w->qp[OURS]), 0);
	w->qp[OURS] = NULL;
}

static void fabric_post__quiet_ends_before_a_kill_are_known_by_the_mark(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	struct fabric_receipt r;
	struct fabric_completion c[16];

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part,
		                                                     .n_parts = 1,
		                                                     .flags = FABRIC_QUIET}),
			0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], 77), 0);
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 16), 0);
	assert_int_equal(fabric_qp_kill(w->qp[OURS], &r), 0);
	assert_int_equal(r.draining, 3);
	assert_int_equal(r.last_posted_ns, 77);
	assert_int_equal(r.how, FABRIC_BY_QP_ERROR);
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 16), 4); /* receives only */
	assert_int_equal(fabric_qp_outstanding(w->qp[OURS]), 0);
	assert_int_equal(counters(w, OURS).flushed, 4);
	assert_int_equal(counters(w, OURS).completed, 3);
}

static void fabric_post__what_the_device_refuses_is_flushed_and_fails_the_queue_pair(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	struct fabric_completion c[16];
	uint32_t sends = 0;
	int n;

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}),
			0);
	stub_fail(STUB_post_send, 1, EIO, false);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], 1), -EIO);
	assert_int_equal(fabric_qp_state(w->qp[OURS]), FABRIC_QP_FAILED);
	n = fabric_set_poll(w->set[OURS], c, 16);
	for (int i = 0; i < n; i++)
		sends += c[i].op == FABRIC_OP_SEND && c[i].end == FABRIC_END_FLUSHED;
	assert_int_equal(sends, 3);
}

static void fabric_post__freeing_forgets_and_says_how_many(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	struct fabric_completion c;

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}),
			0);
	assert_int_equal(fabric_qp_free(w->qp[OURS]), 3 + 4);
	w->qp[OURS] = NULL;
	assert_int_equal(world_poll(w, OURS, &c), 0);
	assert_true(fabric_slot_give(w->set[OURS], &slot));
	assert_int_equal(counters(w, OURS).slots_quarantined, 0);
	assert_int_equal(counters(w, OURS).cq_reserved, 0);
}

static void fabric_post__completions_of_what_is_gone_are_dropped(void **state)
{
	struct world *w = *state;
	uint32_t qpn = fabric_qp_number(w->qp[OURS]);
	struct fabric_completion c;

	stub_spurious_completion(qpn, UINT64_MAX);       /* no such queue pair */
	stub_spurious_completion(qpn, (1ull << 43) | 5); /* nothing was handed on */
	stub_spurious_completion(qpn, (9ull << 43) | 0); /* another generation */
	assert_int_equal(world_poll(w, OURS, &c), 0);
	assert_int_equal(counters(w, OURS).stale, 3);
	assert_int_equal(fabric_qp_state(w->qp[OURS]), FABRIC_QP_READY);
}

static void fabric_post__a_queue_pair_gets_only_what_the_completion_queue_has(void **state)
{
	struct world *w = *state;
	struct fabric_counters c = counters(w, OURS);
	struct fabric_qp_opts o = world_qp(w, OURS);
	struct fabric_qp *qp = NULL, *none = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	o.windows = 0;
	o.recv_depth = 1;
	o.send_depth = c.cq_depth - c.cq_reserved - 1; /* one too many: the mark has a place, too */
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "completion queue has room for"));
	o.send_depth--;
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, NULL), 0);
	assert_int_equal(counters(w, OURS).cq_reserved, c.cq_depth);
	o.send_depth = o.recv_depth = 1;
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &none, NULL), -EBUSY);
	fabric_qp_free(qp);
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, NULL), 0);
	fabric_qp_free(qp);
}

static void fabric_post__options_of_a_queue_pair_are_checked(void **state)
{
	struct world *w = *state;
	struct fabric_qp_opts o;
	struct fabric_qp *qp;

#define NOT_MADE(code, ...)                                                                        \
	o = world_qp(w, OURS);                                                                     \
	__VA_ARGS__;                                                                               \
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, NULL), code)
	NOT_MADE(-EINVAL, o.send_depth = 0);
	NOT_MADE(-EINVAL, o.recv_depth = 0);
	NOT_MADE(-EINVAL, o.send_depth = UINT32_MAX);
	NOT_MADE(-EINVAL, o.recv_depth = UINT32_MAX);
	NOT_MADE(-EINVAL, o.windows = UINT32_MAX);
	NOT_MADE(-EINVAL, o.send_parts = 5);
	NOT_MADE(-EINVAL, o.remote_access = 4);
	NOT_MADE(-EINVAL, o.reads_in = 0);
	NOT_MADE(-EINVAL, o.remote_access = FABRIC_WRITE);
	NOT_MADE(-EINVAL, o.reads_out = 17);
	NOT_MADE(-EINVAL, o.port = 2);
	NOT_MADE(-EDQUOT, o.windows = 510);
	stub_inline_limit(16);
	o = world_qp(w, OURS);
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, NULL), 0);
	assert_int_equal(fabric_qp_inline_max(qp), 0);
	fabric_qp_free(qp);
}

static void fabric_post__wrong_access_flags_refuse_the_queue_pair(void **state)
{
	struct world *w = *state;
	struct fabric_qp_addr peer;
	struct fabric_qp_opts o = world_qp(w, PEER);
	struct ros2_err err = ROS2_ERR_INIT;
	struct fabric_qp *qp;

	fabric_qp_address(w->qp[OURS], &peer);
	assert_int_equal(fabric_qp_new(w->set[PEER], &o, &qp, NULL), 0);
	stub_show_access(2);
	assert_int_equal(fabric_qp_join(qp, &peer, &err), -EPERM);
	assert_non_null(strstr(err.msg, "shows remote access 0x2"));
	assert_int_equal(fabric_qp_state(qp), FABRIC_QP_FAILED);
	assert_int_equal(fabric_qp_join(qp, &peer, &err), -ENOTCONN);
	stub_show_access(-1);
	fabric_qp_free(qp);
	assert_int_equal(stub_qp_access(fabric_qp_number(w->qp[PEER])), 0);
	assert_int_equal(stub_qp_access(fabric_qp_number(w->qp[OURS])), 6);
}

static void fabric_post__an_idle_set_is_woken_once(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	struct pollfd p = {.fd = fabric_channel_fd(w->chan), .events = POLLIN};
	struct fabric_completion c;

	assert_int_equal(fabric_set_arm(w->set[PEER]), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(
			fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}),
			0);
	flush(w, OURS);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(world_poll(w, PEER, &c), 2);
}

static void woken(void *arg, struct fabric_set *s)
{
	uint64_t *cookies = arg;

	*cookies += fabric_set_cookie(s);
}

static void fabric_post__the_channel_names_each_set_once(void **state)
{
	struct world *w = *state;
	struct fabric_slot slot = world_slot(w, OURS, 1000);
	struct fabric_part part = {.region = slot.region, .length = 100};
	uint64_t cookies = 0;

	assert_int_equal(fabric_set_arm(w->set[PEER]), 0);
	assert_int_equal(fabric_set_arm(w->set[OURS]), 0);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	flush(w, OURS);
	assert_int_equal(fabric_channel_events(w->chan, woken, &cookies), 2);
	assert_int_equal(cookies, 1 + 2);
	assert_int_equal(fabric_channel_events(w->chan, woken, &cookies), 0);
}

static void fabric_post__a_queue_that_cannot_be_polled_fails_its_set(void **state)
{
	struct world *w = *state;
	struct fabric_qp_opts o = world_qp(w, OURS);
	struct fabric_completion c[16];
	struct fabric_qp *qp;

	stub_fail(STUB_poll_cq, 1, EIO, false);
	assert_int_equal(fabric_set_poll(w->set[OURS], c, 16), -ENODEV);
	assert_int_equal(fabric_qp_state(w->qp[OURS]), FABRIC_QP_FAILED);
	assert_int_equal(fabric_qp_new(w->set[OURS], &o, &qp, NULL), -ENODEV);
	stub_fail(STUB_req_notify_cq, 1, EIO, false);
	assert_int_equal(fabric_set_arm(w->set[OURS]), -ENODEV);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(fabric_post__is_checked_before_it_is_queued),
		T(fabric_post__a_chain_is_one_doorbell_and_ends_in_order),
		T(fabric_post__a_send_that_is_withdrawn_leaves_nothing),
		T(fabric_post__quiet_ones_give_their_places_back),
		T(fabric_post__what_it_names_is_held_until_its_end),
		T(fabric_post__small_ones_are_inline_and_free_when_flushed),
		T(fabric_post__memory_of_a_device_is_never_inline),
		T(fabric_post__every_end_is_told_exactly_once_when_a_queue_pair_fails),
		T(fabric_post__quiet_ends_before_a_kill_are_known_by_the_mark),
		T(fabric_post__what_the_device_refuses_is_flushed_and_fails_the_queue_pair),
		T(fabric_post__freeing_forgets_and_says_how_many),
		T(fabric_post__completions_of_what_is_gone_are_dropped),
		T(fabric_post__a_queue_pair_gets_only_what_the_completion_queue_has),
		T(fabric_post__options_of_a_queue_pair_are_checked),
		T(fabric_post__wrong_access_flags_refuse_the_queue_pair),
		T(fabric_post__an_idle_set_is_woken_once),
		T(fabric_post__the_channel_names_each_set_once),
		T(fabric_post__a_queue_that_cannot_be_polled_fails_its_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
