/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a key opens for somebody who should not have it: another tenant, another queue pair, by
 * guessing, beyond its range, against its access, after its end. Without defence the agent has one
 * region with every access whose key everybody gets, and a revocation only forgets.
 */
#include "tests/attack/verbs_stage.h"
#include "common/clock.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define LEASE 8192u /* asked for; the product's is a whole slot */

/* B writes its letter over 64 bytes at @addr: worked if a byte of the victim's changed. */
static int b_writes(struct stage *s, uint64_t addr, uint32_t key)
{
	memset(s->peer[B].mem, 'x', 64);
	return raw_do(&s->peer[B], IBV_WR_RDMA_WRITE, addr, 64, key);
}

static int cannot(struct attack_try *t, const char *what, int r)
{
	attack_seen(t, "%s: %s", what, raw_end_str(r));
	return r < 0 ? r : -EIO;
}

/* The stage, A's lease, and that A is served before the attack. */
static int begin(struct attack_try *t, struct stage *s, const struct stage_opts *o,
                 struct stage_lease *l, bool writable)
{
	int r = stage_open(s, t->defended, o);

	if (r)
		return cannot(t, s->err.msg[0] ? s->err.msg : "the stage", r);
	r = stage_lend(s, A, LEASE, writable, l);
	if (r)
		return cannot(t, "a lease for A", r);
	return stage_serves(s, l) ? 0 : cannot(t, "A is not served before the attack", -EIO);
}

static void judge(struct attack_try *t, struct stage *s, const struct stage_lease *l, int end,
                  const char *what)
{
	uint32_t changed = stage_changed(l);

	t->worked = end == IBV_WC_SUCCESS || changed;
	attack_seen(t, "%s: %s, %u bytes of A's changed", what, raw_end_str(end), changed);
	if (!t->worked)
		t->neighbour_harmed = !stage_serves(s, l);
}

static int cross_tenant(struct attack_try *t)
{
	static const struct stage_opts o;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true);

	if (!r)
		judge(t, &s, &l, b_writes(&s, l.addr, l.key), "A's key on B's queue pair");
	stage_close(&s);
	return r;
}

static int leaked(struct attack_try *t)
{
	static const struct stage_opts o = {.one_tenant = true};
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true);

	if (!r)
		judge(t, &s, &l, b_writes(&s, l.addr, l.key),
		      "the key on another queue pair of A's own protection domain");
	stage_close(&s);
	return r;
}

/* Everything about the key is known but the byte that its maker chooses, so all 256 are tried, the
 * right one among them. Each wrong one ends B's queue pair, and the agent takes B back. */
static int guessing(struct attack_try *t)
{
	static const struct stage_opts o;
	uint32_t tries = 0, ended = 0;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true), end = 0;

	for (uint32_t byte = 0; byte < 256 && !r && !t->worked; byte++) {
		end = b_writes(&s, l.addr, (l.key & ~0xffu) | byte);
		tries++;
		ended += end != IBV_WC_SUCCESS;
		t->worked = end == IBV_WC_SUCCESS || s.peer[B].mem[0] != 'x' || stage_changed(&l);
		if (!t->worked)
			r = stage_rejoin(&s, B, B);
	}
	if (r) {
		cannot(t, "B could not come back", r);
	} else {
		attack_seen(t,
		            "%u guesses, the right key among them, %u queue pairs of B's ended for "
		            "it, %u bytes of A's changed",
		            tries, ended, stage_changed(&l));
		t->neighbour_harmed = !t->worked && !stage_serves(&s, &l);
	}
	stage_close(&s);
	return r;
}

/* A itself, and what lies behind its memory: B's. */
static int beyond_region(struct attack_try *t)
{
	static const struct stage_opts o;
	struct stage_lease l, of_b;
	struct stage s;
	int r = begin(t, &s, &o, &l, true), end = 0;
	uint64_t addr;

	if (!r)
		r = stage_lend(&s, B, LEASE, true, &of_b);
	if (!r) {
		memset(s.peer[A].mem, 'x', 64);
		addr = (uintptr_t)of_b.mem;
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, addr, 64, l.key);
		if (end != IBV_WC_SUCCESS && !(r = stage_rejoin(&s, A, A)) &&
		    !(r = stage_lend(&s, A, LEASE, true, &l))) {
			memset(s.peer[A].mem, 'x', 64);
			/* across the end */
			end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr + l.length - 32, 64,
			             l.key);
		}
	}
	if (!r) {
		t->worked = end == IBV_WC_SUCCESS || stage_changed(&of_b) || stage_changed(&l);
		t->neighbour_harmed = !t->worked && !stage_serves(&s, &of_b);
		attack_seen(t,
		            "under A's key into B's memory, and across the end: %s, %u bytes of "
		            "B's changed",
		            raw_end_str(end), stage_changed(&of_b));
	} else {
		cannot(t, "leases", r);
	}
	stage_close(&s);
	return r;
}

/* A window over a part of a slot: what the product does not lend where the device cannot hold it.
 */
static int beyond_window(struct attack_try *t)
{
	static const struct stage_opts o;
	struct fabric_bind b = {.length = 4096, .access = FABRIC_READ | FABRIC_WRITE};
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true), end = 0;

	if (!r && s.defended) {
		r = stage_revoke(&s, &l);
		b.region = l.slot.region;
		if (!r)
			r = stage_bind(&s, &b, &l);
	}
	if (!r) {
		memset(s.peer[A].mem, 'x', 64);
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr + 4096, 64, l.key);
		t->worked = end == IBV_WC_SUCCESS;
		attack_seen(t, "behind a window of 4096 bytes, inside its region: %s, %u bytes",
		            raw_end_str(end), stage_changed(&l));
	} else {
		cannot(t, "a window over a part", r);
	}
	stage_close(&s);
	return r;
}

static int wrong_access(struct attack_try *t)
{
	static const struct stage_opts o;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, false), end;

	if (!r) {
		memset(s.peer[A].mem, 'x', 64);
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr, 64, l.key);
		t->worked = end == IBV_WC_SUCCESS || stage_changed(&l);
		attack_seen(t, "a write under a key for reading: %s, %u bytes changed",
		            raw_end_str(end), stage_changed(&l));
	}
	stage_close(&s);
	return r;
}

/* The holder keeps a key that was withdrawn; then its memory is lent again, under another. */
static int stale(struct attack_try *t)
{
	static const struct stage_opts o;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true), end;
	uint32_t key;

	if (!r)
		r = stage_revoke(&s, &l);
	key = r ? 0 : l.key;
	if (!r) {
		memset(s.peer[A].mem, 'x', 64);
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr, 64, key);
		t->worked = end == IBV_WC_SUCCESS || stage_changed(&l);
		attack_seen(t, "a key whose revocation was confirmed: %s, %u bytes changed",
		            raw_end_str(end), stage_changed(&l));
	} else if (!t->seen[0]) {
		cannot(t, "a revocation", r);
	}
	stage_close(&s);
	return r;
}

/* Nobody revokes: the ttl is over, and the agent's clock ends the lease. */
static int expired(struct attack_try *t)
{
	static const struct stage_opts o;
	const uint64_t ttl_ns = 300 * NS_PER_MS;
	struct stage_lease l;
	struct stage s;
	int r = begin(t, &s, &o, &l, true), end = 0;
	uint64_t until = clock_boottime_ns() + ttl_ns;
	uint32_t before = 0;

	memset(s.peer[A].mem, 'a', r ? 0 : 64);
	while (!r && clock_boottime_ns() < until && end == IBV_WC_SUCCESS) {
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr, 64, l.key);
		before += end == IBV_WC_SUCCESS;
	}
	if (!r && end != IBV_WC_SUCCESS)
		r = cannot(t, "a write before the expiry", end);
	if (!r)
		r = stage_revoke(&s, &l);
	if (!r) {
		memset(s.peer[A].mem, 'x', 64);
		end = raw_do(&s.peer[A], IBV_WR_RDMA_WRITE, l.addr, 64, l.key);
		t->worked = end == IBV_WC_SUCCESS || stage_changed(&l);
		attack_seen(t, "%u writes within the ttl; one after it: %s, %u bytes changed",
		            before, raw_end_str(end), stage_changed(&l));
	}
	stage_close(&s);
	return r;
}

/* ---- a revocation while bytes move ---- */

#define FLIGHT_TRIES 100u
#define FLIGHT_CUT   (FLIGHT_TRIES / 10) /* so many at least must have been in the middle */
#define FLIGHT_MOST  (20 * FLIGHT_TRIES)
#define FLIGHT_PARTS 4u
#define FLIGHT_BYTES (128u << 10)

struct flight {
	struct raw_end *from;
	const struct stage_lease *to;
	_Atomic bool started;
	uint32_t cut;
};

/* On a thread of its own: soft-RoCE may move bytes inside the call that posts. */
static void *fly(void *arg)
{
	struct flight *f = arg;
	uint32_t part = FLIGHT_BYTES / FLIGHT_PARTS;

	f->started = true;
	for (uint32_t i = 0; i < FLIGHT_PARTS; i++)
		if (raw_post(f->from, IBV_WR_RDMA_WRITE, f->to->addr + i * part, part, f->to->key))
			return NULL;
	for (uint32_t i = 0; i < FLIGHT_PARTS; i++)
		f->cut += raw_wait_sent(f->from->cq, RAW_WAIT_MS) != IBV_WC_SUCCESS;
	return NULL;
}

/* One try; 0 or -errno. The moment moves through the transfer with @nth. */
static int revoked_in_flight(struct stage *s, uint32_t nth, uint32_t *landed, uint32_t *cut)
{
	struct flight f = {.from = &s->peer[A]};
	struct stage_lease l;
	pthread_t thread;
	int r = stage_lend(s, A, FLIGHT_BYTES, true, &l);
	uint64_t until;

	if (r)
		return r;
	f.to = &l;
	memset(f.from->mem, 'x', FLIGHT_BYTES);
	if (pthread_create(&thread, NULL, fly, &f))
		return -EAGAIN;
	/* With one processor, what waits has to let the transfer go on. */
	while (!f.started)
		sched_yield();
	until = clock_monotonic_ns() + nth * 617ull % FLIGHT_TRIES * 20000;
	while (clock_monotonic_ns() < until)
		sched_yield();
	r = stage_revoke(s, &l);
	memset(l.mem, 'a', l.length);
	pthread_join(thread, NULL);
	*landed += stage_changed(&l);
	*cut += f.cut > 0;
	if (s->defended)
		(void)fabric_slot_give(s->set[A], &l.slot);
	return r ? r : f.cut ? stage_rejoin(s, A, A) : 0;
}

static int in_flight(struct attack_try *t)
{
	static const struct stage_opts o;
	uint32_t landed = 0, cut = 0, tries = 0;
	struct stage s;
	int r = stage_open(&s, t->defended, &o);

	while (!r &&
	       (tries < FLIGHT_TRIES || (t->defended && cut < FLIGHT_CUT && tries < FLIGHT_MOST)))
		r = revoked_in_flight(&s, tries++, &landed, &cut);
	if (r) {
		cannot(t, "a revocation while bytes move", r);
	} else if (t->defended && cut < FLIGHT_CUT) {
		attack_seen(t, "only %u of %u transfers were cut: nothing is shown", cut, tries);
		r = -EIO;
	} else {
		t->worked = landed;
		attack_seen(t, "%u revocations, %u cut a transfer, %u bytes landed after them",
		            tries, cut, landed);
	}
	stage_close(&s);
	return r;
}

#define REDMARK "ReDMArk (USENIX Security 2021)"

const struct attack attacks_keys[] = {
	{"cross_tenant_key", "key of another tenant", REDMARK,
         "a protection domain for each tenant, keys bound to one queue pair", cross_tenant},
	{"leaked_key_on_another_queue_pair", "leaked key on another queue pair", REDMARK,
         "type 2B windows, bound to one queue pair", leaked},
	{"key_guessing", "key guessing", REDMARK,
         "keys bound to one queue pair; random key bytes; a wrong guess ends the queue pair",
         guessing},
	{"out_of_range", "access outside the leased slot", "IBA vol. 1, 10.6",
         "each slot is a memory region of its own", beyond_region},
	{"outside_a_window_inside_its_region", "access outside a window, inside its region",
         "IBA vol. 1, 10.6.7.2", "whole slots are lent; placement.require: [window-range]",
         beyond_window, true, PROBE_WINDOW_RANGE},
	{"wrong_access", "write under a key for reading", "IBA vol. 1, 10.6.7.2",
         "access mask of the window; regions have no remote flag", wrong_access},
	{"stale_key_after_revoke", "stale key after revocation", "IBA vol. 1, 10.6.7.2",
         "LOCAL_INV before the receipt", stale},
	{"stale_key_after_expiry", "stale key after expiry", "IBA vol. 1, 10.6.7.2",
         "the window is ended when its time is over", expired},
	{"revoke_during_a_transfer", "transfer in flight outlives its revocation",
         "IBA vol. 1, 10.6.7.2", "LOCAL_INV, and a grace period on software devices", in_flight},
};
const unsigned n_attacks_keys = ARRAY_SIZE(attacks_keys);
