// SPDX-License-Identifier: Apache-2.0
/*
 * The face on real verbs (soft-RoCE, in the guest of tests/guest): what the stub only claims.
 * Without a device it skips. Times inside the guest are emulated: compared only with each other.
 */
#include "tests/fabric/fixture.h"
#include "dataplane/fabric/fabric_conn.h"
#include "common/clock.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#ifdef WITHOUT_GRACE
#define LANDS 1
#else
#define LANDS 0
#endif
#define CONTROL_ROUNDS 8
#define CUT_ROUNDS     10

/* Of revokes while bytes move; tests/fabric/CMakeLists.txt has 1,000 of them in a guest of their
 * own. */
static uint32_t tries = 100;

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_open(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	world_close(*state);
	free(*state);
	return 0;
}

static void poll_side(struct world *w, int side)
{
	struct fabric_completion c;

	while (world_poll(w, side, &c))
		;
}

static void take_back(struct world *w, struct fabric_window *win, struct receipts *got)
{
	uint32_t before = got->n;
	uint64_t now = clock_boottime_ns(), until = now + 20 * NS_PER_S;

	assert_int_equal(fabric_window_revoke(win, now, on_receipt, got), 0);
	(void)fabric_qp_flush(w->qp[OURS], now);
	while (got->n == before && now < until) {
		poll_side(w, OURS);
		now = clock_boottime_ns();
		(void)fabric_set_tick(w->set[OURS], now);
	}
	assert_int_equal(got->n, before + 1);
}

static void fabric_verbs__tells_the_device(void **state)
{
	struct world *w = *state;
	const struct fabric_dev_attr *a = fabric_dev_attr(w->dev);
	struct fabric_port p;

	print_message(
		"# %s firmware `%s` vendor %#x.%u: %u ports, type 2B windows: %s, port 1 mtu %u\n",
		a->name, a->firmware, a->vendor_id, a->vendor_part_id, a->n_ports,
		a->window_2b ? "yes" : "no", a->ports[0].mtu_bytes);
	assert_true(a->window_2b);
	assert_int_equal(fabric_dev_port(w->dev, 1, &p, NULL), 0);
	assert_true(p.active && p.n_gids > 0);
}

static void fabric_verbs__a_peer_reads_and_writes_through_a_window_until_it_is_revoked(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 1000), theirs = world_slot(w, PEER, 1000);
	struct receipts got = {0};
	struct fabric_window *win;
	uint32_t key;
	uint64_t base;

	win = world_bind(w, &ours, FABRIC_READ | FABRIC_WRITE, &key);
	base = fabric_window_base(win);
	memset(ours.mem, 7, ours.size_bytes);
	assert_int_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 4096, base + 100, key),
	                 FABRIC_END_OK);
	assert_int_equal(theirs.mem[4095], 7);
	theirs.mem[0] = 9;
	assert_int_equal(world_rdma(w, FABRIC_OP_WRITE, &theirs, 1, base + 3, key), FABRIC_END_OK);
	assert_int_equal(ours.mem[3], 9);
	take_back(w, win, &got);
	assert_int_equal(got.last.how, FABRIC_BY_INVALIDATE);
	assert_int_not_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 64, base, key), FABRIC_END_OK);
	assert_int_equal(fabric_qp_state(w->qp[PEER]), FABRIC_QP_FAILED);
}

static void fabric_verbs__a_read_only_window_is_not_written(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 1000), theirs = world_slot(w, PEER, 1000);
	uint32_t key;
	struct fabric_window *win = world_bind(w, &ours, FABRIC_READ, &key);

	memset(theirs.mem, 1, 100);
	assert_int_equal(world_rdma(w, FABRIC_OP_WRITE, &theirs, 100, fabric_window_base(win), key),
	                 FABRIC_END_REMOTE_ACCESS);
	assert_int_equal(ours.mem[0], 0);
}

static void fabric_verbs__a_key_is_good_on_its_queue_pair_only(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 1000), theirs = world_slot(w, PEER, 1000);
	struct fabric_qp *mine = w->qp[OURS], *other = w->qp[PEER];
	uint32_t key;
	uint64_t base;

	base = fabric_window_base(world_bind(w, &ours, FABRIC_READ, &key));
	/* a second pair of queue pairs of the same tenants */
	assert_int_equal(world_join(w, 2), 0);
	assert_int_not_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 64, base, key), FABRIC_END_OK);
	fabric_qp_free(w->qp[OURS]);
	fabric_qp_free(w->qp[PEER]);
	w->qp[OURS] = mine;
	w->qp[PEER] = other;
	assert_int_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 64, base, key), FABRIC_END_OK);
}

static void fabric_verbs__old_keys_are_refused_after_kill_and_reconnect(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 1000), theirs = world_slot(w, PEER, 1000);
	struct fabric_receipt r;
	struct receipts got = {0};
	struct fabric_window *win;
	struct fabric_counters c;
	uint32_t key;
	uint64_t base;

	win = world_bind(w, &ours, FABRIC_READ, &key);
	base = fabric_window_base(win);
	assert_int_equal(fabric_qp_kill(w->qp[OURS], &r), 0);
	take_back(w, win, &got);
	assert_int_equal(got.last.how, FABRIC_BY_DEALLOC);
	fabric_set_counters(w->set[OURS], &c);
	assert_int_equal(c.invalidates, 0);
	world_rejoin(w);
	assert_int_not_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 64, base, key), FABRIC_END_OK);
}

static void fabric_verbs__a_queue_pair_without_remote_access_takes_not_even_zero_bytes(void **state)
{
	struct world *w = *state;
	struct fabric_slot theirs = world_slot(w, OURS, 100);
	struct fabric_part part = {.region = theirs.region, .length = 8};
	struct fabric_wr wr = {.remote_address = 1, .remote_key = 1};

	/* PEER was made with remote_access 0: here it is the victim */
	(void)part;
	assert_int_equal(fabric_write(w->qp[OURS], &wr), 0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], clock_boottime_ns()), 0);
	assert_int_not_equal(world_wait(w, OURS, FABRIC_OP_WRITE).end, FABRIC_END_OK);
}

/* How the agent asks whether a silent tenant's host is there. */
static void fabric_verbs__a_write_of_no_bytes_needs_no_key_and_somebody_there(void **state)
{
	static const struct fabric_wr nothing = {.cookie = 5};
	struct world *w = *state;
	struct fabric_completion c;

	assert_int_equal(fabric_write(w->qp[PEER], &nothing), 0);
	assert_int_equal(fabric_qp_flush(w->qp[PEER], clock_boottime_ns()), 0);
	c = world_wait(w, PEER, FABRIC_OP_WRITE);
	assert_int_equal(c.end, FABRIC_END_OK);
	assert_int_equal(c.cookie, nothing.cookie);
	fabric_qp_free(TAKE_PTR(w->qp[OURS]));
	assert_int_equal(fabric_write(w->qp[PEER], &nothing), 0);
	assert_int_equal(fabric_qp_flush(w->qp[PEER], clock_boottime_ns()), 0);
	assert_int_equal(world_wait(w, PEER, FABRIC_OP_WRITE).end, FABRIC_END_NO_ANSWER);
}

static void fabric_verbs__kill_drains_what_was_in_flight(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 1 << 20),
			   theirs = world_slot(w, PEER, 1 << 20);
	struct fabric_part part = {.region = theirs.region, .length = 1 << 20};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};
	struct fabric_receipt r;
	uint64_t until;

	(void)world_bind(w, &ours, FABRIC_READ, &wr.remote_key);
	wr.remote_address = fabric_region_base(ours.region);
	for (int i = 0; i < 8; i++)
		assert_int_equal(fabric_read(w->qp[PEER], &wr), 0);
	assert_int_equal(fabric_qp_flush(w->qp[PEER], clock_boottime_ns()), 0);
	assert_int_equal(fabric_qp_kill(w->qp[PEER], &r), 0);
	assert_true(r.draining <= 8);
	assert_false(fabric_slot_give(w->set[PEER], &theirs));
	until = clock_monotonic_ns() + 20 * NS_PER_S;
	while (fabric_qp_outstanding(w->qp[PEER]) && clock_monotonic_ns() < until)
		poll_side(w, PEER);
	assert_int_equal(fabric_qp_outstanding(w->qp[PEER]), 0);
}

/* The peer of one try, on a thread of its own: soft-RoCE moves bytes inside the call that posts. */
struct flight {
	struct world *w;
	struct fabric_slot *from;
	uint64_t to;
	uint32_t key, cut;
	_Atomic bool started;
};

#define FLIGHT_PARTS 4u

static void *fly(void *arg)
{
	struct flight *f = arg;
	uint32_t bytes = f->from->size_bytes / FLIGHT_PARTS;
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;
	struct fabric_completion c;

	for (uint32_t i = 0; i < FLIGHT_PARTS; i++) {
		struct fabric_part part = {
			.region = f->from->region, .offset = i * bytes, .length = bytes};
		struct fabric_wr wr = {.parts = &part,
		                       .n_parts = 1,
		                       .remote_key = f->key,
		                       .remote_address = f->to + i * bytes};

		if (fabric_write(f->w->qp[PEER], &wr) < 0)
			return NULL;
	}
	f->started = true;
	(void)fabric_qp_flush(f->w->qp[PEER], clock_boottime_ns());
	while (fabric_qp_outstanding(f->w->qp[PEER]) && clock_monotonic_ns() < until)
		if (fabric_set_poll(f->w->set[PEER], &c, 1) == 1 && c.end != FABRIC_END_OK)
			f->cut++;
	return f;
}

/* What has arrived when the receipt runs: the writes fill the slot from its beginning, so the first
 * zero says it, and is found in a microsecond. */
struct frontier {
	struct receipts got;
	const volatile uint8_t *mem;
	uint32_t size, arrived;
};

static void on_frontier(void *arg, const struct fabric_receipt *r)
{
	struct frontier *f = arg;
	uint32_t low = 0, high = f->size;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (f->mem[middle])
			low = middle + 1;
		else
			high = middle;
	}
	f->arrived = low;
	f->got.n++;
	f->got.last = *r;
}

static uint32_t count_bytes(const struct fabric_slot *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->size_bytes; i++)
		n += s->mem[i] != 0;
	return n;
}

/* 128 KiB of writes under way, the window revoked @delay_ns after they began. How many bytes
 * arrived after the receipt. */
static uint32_t revoke_in_flight(struct world *w, struct fabric_slot *ours,
                                 struct fabric_slot *theirs, uint64_t delay_ns, uint32_t *ret_cut)
{
	struct flight f = {.w = w, .from = theirs};
	struct frontier at = {.mem = ours->mem, .size = ours->size_bytes};
	struct fabric_window *win;
	uint64_t now, until;
	pthread_t thread;
	void *flown;

	memset(ours->mem, 0, ours->size_bytes);
	win = world_bind(w, ours, FABRIC_WRITE, &f.key);
	f.to = fabric_window_base(win);
	assert_int_equal(pthread_create(&thread, NULL, fly, &f), 0);
	while (!f.started)
		;
	until = clock_monotonic_ns() + delay_ns;
	while (clock_monotonic_ns() < until)
		;
	now = clock_boottime_ns();
	assert_int_equal(fabric_window_revoke(win, now, on_frontier, &at), 0);
	(void)fabric_qp_flush(w->qp[OURS], now);
	until = now + 20 * NS_PER_S;
	while (at.got.n == 0 && now < until) {
		poll_side(w, OURS);
		now = clock_boottime_ns();
		(void)fabric_set_tick(w->set[OURS], now);
	}
	assert_int_equal(pthread_join(thread, &flown), 0);
	assert_non_null(flown);
	assert_int_equal(at.got.n, 1);
	assert_int_equal(fabric_qp_outstanding(w->qp[PEER]), 0);
	*ret_cut += f.cut > 0;
	return count_bytes(ours) - at.arrived;
}

static uint64_t whole_flight(struct world *w, struct fabric_slot *ours, struct fabric_slot *theirs)
{
	struct flight f = {.w = w, .from = theirs};
	struct receipts got = {0};
	struct fabric_window *win = world_bind(w, ours, FABRIC_WRITE, &f.key);
	uint64_t start = clock_monotonic_ns();

	f.to = fabric_window_base(win);
	assert_non_null(fly(&f));
	assert_int_equal(f.cut, 0);
	start = clock_monotonic_ns() - start;
	take_back(w, win, &got);
	return start;
}

/* How long it takes when nobody revokes: the shortest of a few, since on a busy machine a single
 * one may take many times as long, and most revokes that are timed by it come too late. */
static uint64_t shortest_flight(struct world *w, struct fabric_slot *ours,
                                struct fabric_slot *theirs)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 8; i++) {
		uint64_t ns = whole_flight(w, ours, theirs);

		best = ns < best ? ns : best;
	}
	return best;
}

static void fabric_verbs__no_byte_lands_after_the_receipt(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 128 << 10);
	struct fabric_slot theirs = world_slot(w, PEER, 128 << 10);
	struct fabric_counters c;
	uint64_t landed = 0, whole;
	uint32_t cut = 0, n = 0, enough = tries / 10;

	memset(theirs.mem, 0xa5, theirs.size_bytes);
	whole = shortest_flight(w, &ours, &theirs);
	/* What the control waits for is rare on an idle machine, and a revoke that cuts a transfer
	 * is on a busy one. */
	for (uint32_t i = 0; i < tries || (cut <= enough && i < CUT_ROUNDS * tries) ||
	                     (LANDS && !landed && i < CONTROL_ROUNDS * tries);
	     i++) {
		/* a moment that moves through the transfer; 617 and 1000 have no common factor */
		landed += revoke_in_flight(w, &ours, &theirs, whole * (i * 617ull % tries) / tries,
		                           &cut);
		n++;
		poll_side(w, OURS);
		if (fabric_qp_state(w->qp[PEER]) == FABRIC_QP_FAILED ||
		    fabric_qp_state(w->qp[OURS]) == FABRIC_QP_FAILED)
			world_rejoin(w);
	}
	fabric_set_counters(w->set[OURS], &c);
	print_message(
		"# %u revokes with 128 KiB of writes under way (%llu us emulated): %u of them "
		"cut it, "
		"%llu bytes landed after the receipt; %llu LOCAL_INV, %llu deallocs\n",
		n, (unsigned long long)whole / 1000, cut, (unsigned long long)landed,
		(unsigned long long)c.invalidates, (unsigned long long)c.fallback_deallocs);
	/* else the test proved nothing */
	assert_true(cut > enough);
	if (LANDS && !landed) {
		print_message("# without the wait nothing landed either, in %u tries: no control\n",
		              n);
		skip();
	}
	assert_int_equal(landed > 0, LANDS);
}

enum rotation { BARE, SEND_ONLY, ROTATED, ROTATIONS };

/* @n rounds of one kind, each handed on with one flush and waited for. Returns ns. */
static uint64_t rounds(struct world *w, enum rotation kind, struct fabric_slot *ours,
                       struct fabric_slot *theirs, struct fabric_window **win, uint32_t n)
{
	struct fabric_part out = {.region = ours->region, .length = 512};
	struct fabric_part in = {.region = theirs->region, .length = 512};
	struct fabric_bind b = {.region = ours->region, .length = 4096, .access = FABRIC_READ};
	uint64_t start = clock_monotonic_ns(), last = 0;
	uint32_t key;

	b.flags = kind == ROTATED ? FABRIC_QUIET : 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t now = clock_boottime_ns();

		if (kind != BARE) {
			assert_int_equal(
				fabric_recv(w->qp[PEER],
			                    &(struct fabric_wr){.parts = &in, .n_parts = 1}),
				0);
			assert_int_equal(fabric_qp_flush(w->qp[PEER], now), 0);
		}
		if (kind != SEND_ONLY) {
			assert_int_equal(fabric_window_revoke(*win, now, NULL, NULL), 0);
			assert_int_equal(fabric_window_bind(w->qp[OURS], &b, win, &key), 0);
		}
		if (kind != BARE)
			assert_int_equal(
				fabric_send(w->qp[OURS],
			                    &(struct fabric_wr){.parts = &out, .n_parts = 1}),
				0);
		assert_int_equal(fabric_qp_flush(w->qp[OURS], now), 0);
		last = (uint64_t)world_wait(w, OURS, kind == BARE ? FABRIC_OP_BIND : FABRIC_OP_SEND)
		               .end;
		assert_int_equal(last, FABRIC_END_OK);
		if (kind != BARE)
			(void)world_wait(w, PEER, FABRIC_OP_RECV);
	}
	return clock_monotonic_ns() - start;
}

static void fabric_verbs__rotation_adds_no_doorbell_and_little_time(void **state)
{
	enum { REPEATS = 400, N = 4 };
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 5000), theirs = world_slot(w, PEER, 5000);
	struct fabric_counters a, b;
	double ratio, best[ROTATIONS];
	struct fabric_window *win;
	uint32_t key;

	win = world_bind(w, &ours, FABRIC_READ, &key);
	fabric_set_counters(w->set[OURS], &a);
	(void)rounds(w, ROTATED, &ours, &theirs, &win, N);
	fabric_set_counters(w->set[OURS], &b);
	print_message("# %d rotated sends: %llu doorbells, %llu work requests\n", N,
	              (unsigned long long)(b.doorbells - a.doorbells),
	              (unsigned long long)(b.posted - a.posted));
	assert_int_equal(b.doorbells - a.doorbells, N);
	assert_int_equal(b.posted - a.posted, 3 * N);
	for (int i = 0; i < REPEATS; i++)
		for (int k = 0; k < ROTATIONS; k++) {
			double t = (double)rounds(w, (enum rotation)k, &ours, &theirs, &win, N);

			/* the quickest is the one that nothing else on the machine disturbed */
			best[k] = i == 0 || t < best[k] ? t : best[k];
		}
	ratio = (best[ROTATED] - best[SEND_ONLY]) / best[BARE];
	print_message("# us for %d, best of %d: bare INVALIDATE + BIND %.0f, SEND %.0f, all three "
	              "in one doorbell "
	              "%.0f: rotation adds %.2f of the bare time\n",
	              N, REPEATS, best[BARE] / 1000, best[SEND_ONLY] / 1000, best[ROTATED] / 1000,
	              ratio);
	assert_true(ratio <= 1.5);
}

static void fabric_verbs__an_idle_set_is_woken_through_the_channel(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 100);
	struct fabric_part part = {.region = ours.region, .length = 10};
	struct pollfd p = {.fd = fabric_channel_fd(w->chan), .events = POLLIN};

	assert_int_equal(fabric_set_arm(w->set[PEER]), 0);
	poll_side(w, PEER);
	assert_int_equal(
		fabric_send(w->qp[OURS], &(struct fabric_wr){.parts = &part, .n_parts = 1}), 0);
	assert_int_equal(fabric_qp_flush(w->qp[OURS], clock_boottime_ns()), 0);
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(world_wait(w, PEER, FABRIC_OP_RECV).bytes, 10);
}

static void fabric_verbs__dma_buf_says_what_the_device_can(void **state)
{
	struct world *w = *state;
	struct fabric_region_opts o = {.length = 4096, .dmabuf = true, .dmabuf_fd = 0};
	struct fabric_region *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	int code = fabric_region_new(w->pd[OURS], &o, &r, &err);

	print_message("# %s\n", err.msg);
	assert_int_equal(code, -EOPNOTSUPP);
	assert_non_null(strstr(err.msg, "not supported by"));
}

/* ---- connections ---- */

struct meeting {
	struct world *w;
	struct fabric_cm *cm;
	struct fabric_listener *l;
	struct fabric_conn *asked, *accepted;
	struct fabric_qp *asker, *acceptor;
	uint32_t up, ended;
	uint8_t hello[FABRIC_PRIVATE_MAX], reply[FABRIC_PRIVATE_MAX];
	int code;
};

static struct fabric_conn_opts conn_opts(struct meeting *m, int side, const char *hello)
{
	struct fabric_conn_opts o = {.qp = world_qp(m->w, side),
	                             .hello = {hello, (uint32_t)strlen(hello)}};

	return o;
}

static void on_conn(void *arg, const struct fabric_conn_event *e)
{
	struct meeting *m = arg;
	struct fabric_conn_opts o;

	switch (e->kind) {
	case FABRIC_CONN_EVENT_REQUEST:
		m->accepted = e->conn;
		memcpy(m->hello, e->data, sizeof(m->hello));
		o = conn_opts(m, PEER, "welcome");
		m->code =
			fabric_conn_accept(e->conn, m->w->set[PEER], &o, &m->acceptor, &m->w->err);
		break;
	case FABRIC_CONN_EVENT_RESOLVED:
		o = conn_opts(m, OURS, "hello");
		m->code = fabric_conn_ask(e->conn, m->w->set[OURS], &o, &m->asker, &m->w->err);
		break;
	case FABRIC_CONN_EVENT_ESTABLISHED:
		m->up++;
		if (e->conn == m->asked && e->data)
			memcpy(m->reply, e->data, sizeof(m->reply));
		break;
	default:
		m->ended++;
		break;
	}
	if (m->code < 0)
		print_message("# %s\n", m->w->err.msg);
}

static void meet(struct meeting *m, const uint32_t *what, uint32_t until)
{
	struct pollfd p = {.fd = fabric_cm_fd(m->cm), .events = POLLIN};

	while (*what < until && m->code == 0 && poll(&p, 1, 5000) == 1)
		(void)fabric_cm_events(m->cm, on_conn, m);
	assert_int_equal(m->code, 0);
	assert_true(*what >= until);
}

static void meeting_open(struct meeting *m, struct world *w)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int r;

	*m = (struct meeting){.w = w};
	inet_pton(AF_INET, "10.77.0.1", &at.sin_addr);
	r = fabric_cm_new(&(struct fabric_cm_opts){0}, &m->cm, &w->err);
	if (r == 0)
		r = fabric_listen(m->cm, (struct sockaddr *)&at, 8, &m->l, &w->err);
	if (r < 0)
		print_message("# %s\n", w->err.msg);
	assert_int_equal(r, 0);
	at.sin_port = htons(fabric_listener_port(m->l));
	assert_int_equal(fabric_connect(m->cm, NULL, (struct sockaddr *)&at, 5, &m->asked, &w->err),
	                 0);
	meet(m, &m->up, 2);
}

static void meeting_close(struct meeting *m)
{
	fabric_qp_free(m->asker);
	fabric_qp_free(m->acceptor);
	fabric_conn_free(m->asked);
	fabric_conn_free(m->accepted);
	fabric_listener_free(m->l);
	fabric_cm_free(m->cm);
}

static void fabric_verbs__connections_are_made_with_private_data_and_move_bytes(void **state)
{
	struct world *w = *state;
	struct fabric_slot ours = world_slot(w, OURS, 5000), theirs = world_slot(w, PEER, 5000);
	struct fabric_qp *kept[SIDES] = {w->qp[OURS], w->qp[PEER]};
	struct receipts got = {0};
	struct fabric_window *win;
	struct meeting m;
	uint32_t key;

	meeting_open(&m, w);
	assert_memory_equal(m.hello, "hello", 6);
	assert_memory_equal(m.reply, "welcome", 8);
	assert_int_equal(fabric_qp_state(m.asker), FABRIC_QP_READY);
	assert_int_equal(fabric_qp_state(m.acceptor), FABRIC_QP_READY);
	w->qp[OURS] = m.asker;
	w->qp[PEER] = m.acceptor;
	win = world_bind(w, &ours, FABRIC_READ, &key);
	memset(ours.mem, 5, 4096);
	assert_int_equal(world_rdma(w, FABRIC_OP_READ, &theirs, 4096, fabric_window_base(win), key),
	                 FABRIC_END_OK);
	assert_int_equal(theirs.mem[4095], 5);
	take_back(w, win, &got);
	assert_int_equal(got.last.how, FABRIC_BY_INVALIDATE);
	w->qp[OURS] = kept[OURS];
	w->qp[PEER] = kept[PEER];
	meeting_close(&m);
}

static void fabric_verbs__the_end_of_a_connection_reaches_the_other_side(void **state)
{
	struct world *w = *state;
	struct meeting m;

	meeting_open(&m, w);
	fabric_qp_free(m.acceptor);
	m.acceptor = NULL;
	meet(&m, &m.ended, 1);
	assert_int_equal(fabric_conn_state(m.asked), FABRIC_CONN_ENDED);
	assert_int_equal(fabric_qp_state(m.asker), FABRIC_QP_FAILED);
	meeting_close(&m);
}

static void fabric_verbs__nobody_listens_is_a_rejection(void **state)
{
	struct world *w = *state;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9)};
	struct meeting m = {.w = w};

	inet_pton(AF_INET, "10.77.0.1", &at.sin_addr);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &m.cm, &w->err), 0);
	assert_int_equal(fabric_connect(m.cm, NULL, (struct sockaddr *)&at, 5, &m.asked, &w->err),
	                 0);
	meet(&m, &m.ended, 1);
	meeting_close(&m);
}

struct heard {
	uint32_t down, up;
};

static void on_event(void *arg, const struct fabric_event *e)
{
	struct heard *h = arg;

	h->down += e->kind == FABRIC_EVENT_PORT_DOWN;
	h->up += e->kind == FABRIC_EVENT_PORT_UP;
}

static void hear(struct world *w, struct heard *h, const uint32_t *what)
{
	struct pollfd p = {.fd = fabric_dev_event_fd(w->dev), .events = POLLIN};

	while (*what == 0 && poll(&p, 1, 5000) == 1)
		(void)fabric_dev_events(w->dev, on_event, h);
	assert_true(*what > 0);
}

static void fabric_verbs__port_down_and_up_are_heard(void **state)
{
	struct world *w = *state;
	struct heard h = {0};

	assert_int_equal(system("ip link set v0 down"), 0);
	hear(w, &h, &h.down);
	assert_int_equal(system("ip link set v0 up"), 0);
	hear(w, &h, &h.up);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(fabric_verbs__tells_the_device),
		T(fabric_verbs__a_peer_reads_and_writes_through_a_window_until_it_is_revoked),
		T(fabric_verbs__a_read_only_window_is_not_written),
		T(fabric_verbs__a_key_is_good_on_its_queue_pair_only),
		T(fabric_verbs__old_keys_are_refused_after_kill_and_reconnect),
		T(fabric_verbs__a_queue_pair_without_remote_access_takes_not_even_zero_bytes),
		T(fabric_verbs__a_write_of_no_bytes_needs_no_key_and_somebody_there),
		T(fabric_verbs__kill_drains_what_was_in_flight),
		T(fabric_verbs__rotation_adds_no_doorbell_and_little_time),
		T(fabric_verbs__an_idle_set_is_woken_through_the_channel),
		T(fabric_verbs__dma_buf_says_what_the_device_can),
		T(fabric_verbs__connections_are_made_with_private_data_and_move_bytes),
		T(fabric_verbs__the_end_of_a_connection_reaches_the_other_side),
		T(fabric_verbs__nobody_listens_is_a_rejection),
		T(fabric_verbs__no_byte_lands_after_the_receipt),
		T(fabric_verbs__port_down_and_up_are_heard),
	};
	char names[1][FABRIC_NAME_MAX];
	uint32_t n = 0;

	if (fabric_list(names, 1, &n, NULL) < 0 || n == 0) {
		print_message(
			"1..0 # SKIP no RDMA device: run it in the guest (tests/guest/run)\n");
		return 77;
	}
	if (argc > 1)
		tries = (uint32_t)atoi(argv[1]);
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
