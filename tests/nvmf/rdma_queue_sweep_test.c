// SPDX-License-Identifier: Apache-2.0
/*
 * Swept faults of the queue over NVMe/RDMA, on the real fabric over a stub of the device's
 * libraries: each of its calls fails, the 1st, 2nd, 3rd ... time, once and for good, while it
 * connects, works with keys of either kind, and ends. Whatever fails: the error has a name, each
 * request comes back once, no key lives when nothing is in flight, nothing is done that a device
 * would punish, and the next queue works and leaves nothing. Then what a device does by itself.
 */
#include "tests/nvmf/rdma_host.h"
#include "common/clock.h"
#include "dataplane/nvmf/rdma_queue_priv.h"
#include "tests/fabric/verbs_stub.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <sys/epoll.h>

#define N       HOST_SLOTS
#define TURN_NS (20 * NS_PER_MS)
#define TURNS   400u

enum keys { PER_COMMAND, INVALIDATED_BY_TARGET, STANDING, N_KEYS };

struct bed {
	struct host h;
	enum keys keys;
	struct host_req r[N];
	uint32_t submitted, wrong;
	bool mute; /* the target answers nothing */
	char words[320];
};

static struct bed the_bed; /* too large for a stack */

static const struct {
	uint8_t opcode;
	uint32_t len;
} work[N] = {
	{NVME_IO_READ, 512},    {NVME_IO_WRITE, 512},  {NVME_IO_READ, 8192}, {NVME_IO_WRITE, 8192},
	{NVME_IO_WRITE, 65536}, {NVME_IO_READ, 65536}, {NVME_IO_FLUSH, 0},   {NVME_IO_READ, 4096},
};

static void hold(bool on)
{
	stub_pause(on);
	if (on)
		sweep_hold();
	else
		sweep_release();
}

static struct bed *bed_open(enum keys keys)
{
	struct bed *b = &the_bed;

	stub_reset();
	memset(b, 0, sizeof(*b));
	b->keys = keys;
	host_open(&b->h);
	b->h.now_ns = clock_boottime_ns();
	b->h.o.depth = N;
	b->h.o.keys_per_command = keys != STANDING;
	b->h.o.remote_invalidate = keys == INVALIDATED_BY_TARGET;
	return b;
}

static void bed_close(struct bed *b)
{
	host_close(&b->h);
	assert_null(stub_violation());
}

/* ---- the target: honest, and patient with a host that has gone ---- */

static bool is_pattern(const uint8_t *p, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (p[i] != rdma_peer_pattern(seed, i))
			return false;
	return true;
}

static void serve(struct bed *b, const struct rdma_peer_cmd *cmd)
{
	struct rdma_peer *p = &b->h.peer;
	uint8_t *payload = rdma_peer_payload(p);
	struct nvme_cqe cqe = {.sq_head = (uint16_t)p->sq_head, .cid = cmd->sqe.cid};
	bool invalidate = cmd->sgl.type == NVME_SGL_KEYED_INVALIDATE;

	if (cmd->sgl.type == NVME_SGL_DATA_OFFSET) {
		b->wrong += !is_pattern(cmd->data, cmd->sqe.cdw10, cmd->data_len);
	} else if (cmd->sqe.opcode == NVME_IO_WRITE) {
		if (rdma_peer_read(p, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key) != FABRIC_END_OK)
			return;
		b->wrong += !is_pattern(payload, cmd->sqe.cdw10, cmd->sgl.len);
	} else if (cmd->sgl.len) {
		for (uint32_t i = 0; i < cmd->sgl.len; i++)
			payload[i] = rdma_peer_pattern(cmd->sqe.cdw10, i);
		if (rdma_peer_write(p, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key) != FABRIC_END_OK)
			return;
	}
	rdma_peer_send(p, &cqe, sizeof(cqe), invalidate ? cmd->sgl.key : 0);
}

static void peer_turn(struct bed *b)
{
	struct rdma_peer_cmd *cmd;

	hold(true);
	while ((cmd = rdma_peer_take(&b->h.peer)))
		if (!b->mute && cmd->sqe.opcode != NVME_FABRICS)
			serve(b, cmd);
	hold(false);
}

/* ---- the host ---- */

static void turn(struct bed *b)
{
	struct epoll_event ev;
	struct host *h = &b->h;

	peer_turn(b);
	if (epoll_wait(h->epoll_fd, &ev, 1, 0) == 1)
		h->ops->poll(h->q, 64, h->now_ns);
	h->now_ns += TURN_NS;
	(void)h->ops->tick(h->q, h->now_ns);
}

static void submit_all(struct bed *b)
{
	b->submitted = 0;
	for (uint32_t i = 0; i < N; i++) {
		struct host_slot *s = &b->h.slots[i];

		b->r[i] = host_io(&b->h, work[i].opcode, i, 0, work[i].len);
		for (uint32_t k = 0; k < work[i].len; k++)
			s->mem[k] = work[i].opcode == NVME_IO_WRITE
			                    ? rdma_peer_pattern(b->r[i].req.sqe.cdw10, k)
			                    : 0;
		if (host_submit(&b->h, &b->r[i]) < 0)
			break;
		b->submitted++;
	}
	(void)b->h.ops->kick(b->h.q, b->h.now_ns);
}

static uint32_t done(const struct bed *b)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->submitted; i++)
		n += b->r[i].n_done;
	return n;
}

/* True: every one of them was carried out. */
static bool all_good(struct bed *b)
{
	bool good = b->submitted == N;

	assert_int_equal(done(b), b->submitted);
	for (uint32_t i = 0; i < b->submitted; i++) {
		const struct host_req *r = &b->r[i];

		assert_true(r->rc == 0 || r->rc == -EREMOTEIO || r->rc == -ECANCELED);
		good &= r->rc == 0;
		if (r->rc == 0 && r->req.dir == NVMF_FROM_TARGET)
			b->wrong += !is_pattern(r->req.buf, r->req.sqe.cdw10, r->req.len);
	}
	assert_int_equal(b->wrong, 0);
	return good;
}

static bool ready(const struct bed *b)
{
	return b->h.ops->state(b->h.q) == NVMF_QUEUE_READY;
}

static bool opens(struct bed *b)
{
	struct host *h = &b->h;

	h->o.now_ns = h->now_ns;
	h->err = (struct ros2_err)ROS2_ERR_INIT;
	if (h->ops->open(&h->o, &h->q, &h->err) < 0) {
		assert_null(h->q);
		snprintf(b->words, sizeof(b->words), "%s", h->err.msg);
		assert_true(b->words[0]);
		return false;
	}
	for (uint32_t i = 0; h->ops->state(h->q) == NVMF_QUEUE_CONNECTING; i++) {
		assert_true(i < TURNS);
		turn(b);
	}
	return true;
}

/* As far as it comes; true: all of it. The queue is left for its end. */
static bool live(struct bed *b)
{
	bool good;

	if (!opens(b))
		return false;
	good = ready(b);
	for (uint32_t round = 0; round < 2 && ready(b); round++) {
		submit_all(b);
		for (uint32_t i = 0; done(b) < b->submitted; i++) {
			assert_true(i < TURNS);
			turn(b);
		}
		good &= all_good(b);
	}
	assert_int_equal(b->h.ops->in_flight(b->h.q), 0);
	if (b->keys != STANDING || !ready(b))
		assert_int_equal(stub_keys_live(), 0);
	snprintf(b->words, sizeof(b->words), "%s", b->h.ops->fault(b->h.q));
	assert_true(ready(b) == !b->words[0]);
	/* one that goes on has lost nothing */
	assert_true(good || !ready(b));
	return good && ready(b);
}

static void end(struct bed *b)
{
	b->h.ops->free(TAKE_PTR(b->h.q));
	assert_int_equal(stub_keys_live(), 0);
	peer_turn(b);
}

/* The fault is over: a new queue works, and everything can be freed. */
static void again(struct bed *b)
{
	stub_fail_any(0, false);
	for (int c = 0; c < STUB_N_CALLS; c++)
		stub_fail((enum stub_call)c, 0, 0, false);
	b->mute = false;
	if (!live(b))
		fail_msg("the next queue: %s", b->words);
	end(b);
	bed_close(b);
}

/* ---- each call of the libraries ---- */

/* What its failure is called: while the queue is made, or later. NULL: it cannot be told from what
 * was meant. */
static const struct kind {
	enum stub_call call;
	const char *first, *later;
} kinds[] = {
	{STUB_reg_mr, "ibv_reg_mr", NULL},
	{STUB_alloc_mw, "ibv_alloc_mw", NULL},
	{STUB_create_comp_channel, "ibv_create_comp_channel", NULL},
	{STUB_create_cq, "ibv_create_cq", NULL},
	{STUB_create_qp, "ibv_create_qp", NULL},
	{STUB_modify_qp, "ibv_modify_qp to INIT", "could not be connected"},
	{STUB_query_qp, "could not be connected", NULL},
	{STUB_post_recv, "not what it is for", "refused"},
	{STUB_post_send, "refused to send", "the queue pair went to error"},
	{STUB_poll_cq, "completion queue of the RDMA device has failed", "the queue pair"},
	{STUB_req_notify_cq, "completion queue of the RDMA device has failed", NULL},
	{STUB_create_event_channel, "connection manager", NULL},
	{STUB_create_id, "rdma_create_id", NULL},
	{STUB_resolve_addr, "rdma_resolve_addr", NULL},
	{STUB_resolve_route, "no route to the peer", NULL},
	{STUB_connect, "rdma_connect", NULL},
	{STUB_establish, "could not be connected", NULL},
	{STUB_init_qp_attr, "rdma_init_qp_attr", "could not be connected"},
	{STUB_dealloc_mw, NULL, NULL},
	{STUB_destroy_qp, NULL, NULL},
	{STUB_dereg_mr, NULL, NULL},
	{STUB_destroy_cq, NULL, NULL},
};

static void check_words(const struct bed *b, const struct kind *k)
{
	if ((k->first && strstr(b->words, k->first)) || (k->later && strstr(b->words, k->later)))
		return;
	fail_msg("%s failed, and the words are '%s'", stub_call_to_str(k->call), b->words);
}

/* One for each of some hundred windows, all in two loops. */
static uint32_t step(enum stub_call c, uint32_t n)
{
	return n > 16 && (c == STUB_alloc_mw || c == STUB_dealloc_mw) ? 29 : 1;
}

/* Returns how many points were tried, and how many of them ended the queue. */
static uint32_t sweep_kind(enum keys keys, const struct kind *k, bool for_good, uint32_t *told)
{
	uint32_t n = 1, tried = 0, fired;
	struct bed *b;
	bool good;

	do {
		b = bed_open(keys);
		stub_fail_any(0, false);
		stub_fail(k->call, n, EIO, for_good);
		n += step(k->call, n);
		good = live(b);
		if (!good)
			check_words(b, k);
		*told += !good;
		end(b);
		fired = stub_failures();
		again(b);
		assert_true(good || fired);
		tried += fired > 0;
	} while (fired);
	return tried;
}

static void rdma_queue_sweep__each_call_fails(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++)
		for (uint32_t i = 0; i < ARRAY_SIZE(kinds); i++)
			for (int for_good = 0; for_good < 2; for_good++) {
				uint32_t told = 0, n = sweep_kind((enum keys)keys, &kinds[i],
				                                  for_good, &told);

				if (n == 0 || (kinds[i].first != NULL) != (told > 0))
					fail_msg("%s: %u points, %u told",
					         stub_call_to_str(kinds[i].call), n, told);
			}
}

/* From the nth on nothing works any more but to destroy. */
static void rdma_queue_sweep__all_calls_fail_from_one_on(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++) {
		uint32_t n = 1, fired;
		struct bed *b;

		do {
			b = bed_open((enum keys)keys);
			stub_fail_any(n++, true);
			(void)live(b);
			end(b);
			fired = stub_failures();
			again(b);
		} while (fired);
		assert_true(n > 50);
	}
}

/* ---- memory and descriptors ---- */

static void sweep_own(struct sweep s, uint32_t points)
{
	struct bed *b;
	bool good;

	for (;;) {
		b = bed_open(STANDING);
		if (!sweep_next(&s))
			break;
		good = live(b);
		sweep_off();
		assert_true(good == !sweep_fired());
		end(b);
		again(b);
	}
	bed_close(b);
	if (s.points < points)
		fail_msg("%u points, expected %u or more", s.points, points);
}

static void rdma_queue_sweep__needs_no_memory_once_it_is_open(void **state)
{
	sweep_own((struct sweep){.kind = SWEEP_ALLOC, .error = ENOMEM}, 12);
}

static void rdma_queue_sweep__does_not_open_without_a_timer(void **state)
{
	sweep_own((struct sweep){.kind = SWEEP_FD, .error = EMFILE}, 2);
}

static void rdma_queue_sweep__does_not_open_unwatched(void **state)
{
	sweep_own((struct sweep){.kind = SWEEP_EPOLL_CTL, .error = ENOSPC}, 6);
}

/* ---- what a device does by itself ---- */

/* All requests are handed on. */
static struct bed *busy(enum keys keys, bool mute)
{
	struct bed *b = bed_open(keys);

	b->mute = mute;
	assert_true(opens(b) && ready(b));
	submit_all(b);
	assert_int_equal(b->submitted, N);
	peer_turn(b);
	return b;
}

static void until_done(struct bed *b)
{
	for (uint32_t i = 0; done(b) < N; i++) {
		assert_true(i < TURNS);
		turn(b);
	}
}

/* With @words; nothing was answered; the next one works. */
static void ended(struct bed *b, const char *words)
{
	until_done(b);
	host_assert_failed(&b->h, words);
	for (uint32_t i = 0; i < N; i++)
		assert_int_equal(b->r[i].rc, -EREMOTEIO);
	assert_int_equal(stub_keys_live(), 0);
	stub_lose(false);
	end(b);
	again(b);
}

static uint32_t our_qpn(const struct bed *b)
{
	return fabric_qp_number(((const struct rdma_queue *)(const void *)b->h.q)->qp);
}

/* The device takes too long over LOCAL_INV, so its windows are deallocated; then it is done after
 * all. */
static void rdma_queue_sweep__ends_of_keys_that_come_late_change_nothing(void **state)
{
	struct bed *b = bed_open(PER_COMMAND);

	assert_true(opens(b) && ready(b));
	stub_hold(STUB_INV);
	submit_all(b);
	until_done(b);
	assert_true(all_good(b) && ready(b));
	assert_int_equal(stub_keys_live(), 0);
	stub_end_held();
	turn(b);
	submit_all(b);
	until_done(b);
	assert_true(all_good(b) && ready(b));
	end(b);
	again(b);
}

/* The right of all that is under way ends; returns how many keys that were. */
static uint32_t rights_end(struct bed *b, uint64_t *ret_until_ns)
{
	struct host *h = &b->h;
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++)
		n += b->r[i].n_done ? 0 : h->ops->end_key(h->q, &b->r[i].req, h->now_ns);
	n += h->ops->forget_regions(h->q, h->now_ns);
	*ret_until_ns = h->now_ns;
	return n;
}

/* Until the device has confirmed; true: the queue goes on. */
static bool confirmed(struct bed *b, uint64_t until_ns)
{
	struct host *h = &b->h;

	for (uint32_t i = 0; h->ops->keys_ending(h->q, until_ns); i++) {
		assert_true(i < TURNS);
		turn(b);
	}
	assert_int_equal(stub_keys_live(), 0);
	turn(b); /* in which the queue hears of its queue pair's end */
	return ready(b);
}

static void rdma_queue_sweep__keys_of_ended_rights_die_whatever_fails(void **state)
{
	static const enum stub_call calls[] = {STUB_post_send, STUB_poll_cq, STUB_req_notify_cq,
	                                       STUB_modify_qp, STUB_dealloc_mw};
	uint32_t lost = 0;

	for (uint32_t i = 0; i < 2 * 2 * ARRAY_SIZE(calls); i++) {
		uint32_t fired = 1;

		for (uint32_t n = 1; fired; n++) {
			struct bed *b = busy(i & 1 ? STANDING : PER_COMMAND, true);
			uint64_t until_ns;

			stub_fail(calls[i / 4], n, EIO, i & 2);
			assert_true(rights_end(b, &until_ns) > 0);
			lost += !confirmed(b, until_ns);
			fired = stub_failures();
			end(b);
			again(b);
			assert_true(n < 200);
		}
	}
	assert_true(lost > 0);
}

/* The whole ladder: LOCAL_INV that does not end, a window that is not given up, then the queue pair
 * in error. */
static void rdma_queue_sweep__keys_of_ended_rights_climb_the_ladder(void **state)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct bed *b = busy(i & 1 ? STANDING : PER_COMMAND, true);
		uint64_t until_ns, began_ns;

		stub_hold(STUB_INV);
		if (i & 2)
			stub_fail(STUB_dealloc_mw, 1, EBUSY, true);
		assert_true(rights_end(b, &until_ns) > 0);
		began_ns = b->h.now_ns;
		assert_true(b->h.ops->keys_ending(b->h.q, until_ns) > 0);
		assert_true(stub_keys_live() > 0);
		assert_int_equal(confirmed(b, until_ns), !(i & 2));
		assert_true(b->h.now_ns - began_ns >= 100 * NS_PER_MS);
		assert_true(b->h.now_ns - began_ns < 3 * NS_PER_S);
		stub_end_held();
		stub_fail(STUB_dealloc_mw, 0, 0, false);
		turn(b);
		end(b);
		again(b);
	}
}

static void rdma_queue_sweep__a_bind_that_fails_ends_it(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++) {
		struct bed *b = bed_open((enum keys)keys);

		b->mute = true;
		assert_true(opens(b) && ready(b));
		stub_end_next(STUB_BIND, STUB_BIND_ERR);
		submit_all(b);
		ended(b, "the RDMA device refused a work request");
	}
}

static void see_event(void *arg, const struct fabric_event *e)
{
	*(struct fabric_event *)arg = *e;
}

static struct fabric_event event_of(struct bed *b)
{
	struct fabric_event e = {.kind = FABRIC_EVENT_OTHER};

	assert_int_equal(fabric_dev_events(b->h.dev, see_event, &e), 1);
	return e;
}

/* No completion comes any more. The event names no reactor's set: the queue sees it by the time. */
static void rdma_queue_sweep__a_completion_queue_that_overran_ends_it_in_time(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++) {
		struct bed *b = busy((enum keys)keys, true);
		struct fabric_event e;

		stub_lose(true);
		stub_event_cq_of(our_qpn(b));
		e = event_of(b);
		assert_int_equal(e.kind, FABRIC_EVENT_CQ_FAILED);
		assert_true(e.set_cookie == NVMF_RDMA_SET_COOKIE);
		ended(b, "had no answer in 1000 ms");
	}
}

static void rdma_queue_sweep__a_device_that_is_removed_ends_it(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++) {
		struct bed *b = busy((enum keys)keys, true);

		stub_event_device();
		assert_int_equal(event_of(b).kind, FABRIC_EVENT_DEVICE_REMOVED);
		stub_cm_remove_device();
		ended(b, "the RDMA device is gone");
	}
}

static void
rdma_queue_sweep__a_port_that_is_down_does_not_end_it_but_a_silent_peer_does(void **state)
{
	struct bed *b = busy(PER_COMMAND, false);

	stub_event_port(false);
	assert_int_equal(event_of(b).kind, FABRIC_EVENT_PORT_DOWN);
	until_done(b);
	assert_true(all_good(b) && ready(b));
	b->mute = true;
	stub_end_next(STUB_SEND, STUB_RETRY);
	submit_all(b);
	ended(b, "the target does not answer");
}

/* What keeps a late write of the target out is the end of the key, and the request waits for it. */
static void rdma_queue_sweep__a_late_write_lands_until_the_key_ends(void **state)
{
	struct bed *b = busy(PER_COMMAND, true);
	const struct rdma_peer_cmd *cmd = &b->h.peer.cmds[2];
	struct host_req *r = &b->r[2];
	uint8_t *mem = b->h.slots[2].mem;

	assert_int_equal(cmd->sqe.cdw10, r->req.sqe.cdw10);
	stub_hold(STUB_INV);
	rdma_peer_answer(&b->h.peer, cmd, NVME_SC_ABORT_REQUESTED);
	turn(b);
	memset(rdma_peer_payload(&b->h.peer), 0x77, cmd->sgl.len);
	assert_int_equal(rdma_peer_write(&b->h.peer, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key),
	                 FABRIC_END_OK);
	assert_int_equal(mem[cmd->sgl.len - 1], 0x77);
	assert_int_equal(r->n_done, 0);
	stub_release();
	turn(b);
	assert_int_equal(r->n_done, 1);
	assert_int_equal(r->rc, 0);
	assert_int_equal(r->status, NVME_SC_ABORT_REQUESTED);
	memset(mem, 0, cmd->sgl.len);
	assert_int_equal(rdma_peer_write(&b->h.peer, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key),
	                 FABRIC_END_REMOTE_ACCESS);
	for (uint32_t i = 0; i < cmd->sgl.len; i++)
		assert_int_equal(mem[i], 0);
	until_done(b);
	end(b);
	again(b);
}

static void rdma_queue_sweep__a_message_that_only_invalidates_ends_it(void **state)
{
	for (int keys = 0; keys < N_KEYS; keys++) {
		struct bed *b = busy((enum keys)keys, true);
		uint32_t key = b->h.peer.cmds[0].sgl.key;

		assert_true(stub_key_lives(key));
		stub_foreign_invalidate(our_qpn(b), key);
		ended(b, "expected 16 bytes, found 0");
	}
}

#define T(name) cmocka_unit_test(rdma_queue_sweep__##name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(each_call_fails),
		T(all_calls_fail_from_one_on),
		T(needs_no_memory_once_it_is_open),
		T(does_not_open_without_a_timer),
		T(does_not_open_unwatched),
		T(ends_of_keys_that_come_late_change_nothing),
		T(keys_of_ended_rights_die_whatever_fails),
		T(keys_of_ended_rights_climb_the_ladder),
		T(a_bind_that_fails_ends_it),
		T(a_completion_queue_that_overran_ends_it_in_time),
		T(a_device_that_is_removed_ends_it),
		T(a_port_that_is_down_does_not_end_it_but_a_silent_peer_does),
		T(a_late_write_lands_until_the_key_ends),
		T(a_message_that_only_invalidates_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
