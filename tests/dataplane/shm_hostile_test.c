/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hostile tenant can do with memory that it shares with the agent: to the rings, the control
 * page, the addresses and the keys. Each attempt has its named end or
 * answer, and the neighbour, another tenant at the same agent, goes on.
 */
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "dataplane/shm_priv.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/slow_fixture.h"
#include <pthread.h>

#define KIB4 4096u

/* ---- messages ---- */

static void before_mapped__any_other_message_ends_the_session(void **state)
{
	static const uint8_t opcodes[] = {WIRE_READ, WIRE_WRITE,   WIRE_FLUSH, WIRE_ZERO,
	                                  WIRE_PING, WIRE_DISCARD, WIRE_PONG,  WIRE_BYE};
	struct fx *fx = *state;
	struct shm_raw n, t;

	rs_neighbour(fx, &n);
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++) {
		struct wire_header h = {.opcode = opcodes[i], .request_id = 1};

		rs_open_session(fx, &t);
		rs_hello(&t);
		rs_memory(&t);
		raw_send(&t.c, &h, NULL, 0);
		rs_expect_end(&t, ROS2_PROTOCOL, "expected MAPPED");
		rs_end(&t);
	}
	rs_works(&n);
	rs_end(&n);
}

/* Of MAPPED each bit counts; it may come byte by byte; and a second one on the socket only wakes.
 */
static void mapped__is_checked_as_any_message_and_told_once(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct shm_raw t;

	for (uint32_t i = 0; i < WIRE_HEADER_LEN; i++) {
		h = (struct wire_header){.opcode = WIRE_MAPPED};
		rs_open_session(fx, &t);
		rs_hello(&t);
		rs_memory(&t);
		wire_seal(&h);
		((uint8_t *)&h)[i] ^= 0x10;
		raw_send_bytes(&t.c, &h, sizeof(h));
		rs_expect_end(&t, ROS2_PROTOCOL, NULL);
		rs_end(&t);
		fx_forget_events(fx);
	}
	rs_open_session(fx, &t);
	rs_hello(&t);
	rs_memory(&t);
	h = (struct wire_header){.opcode = WIRE_MAPPED};
	wire_seal(&h);
	for (uint32_t i = 0; i < 2 * WIRE_HEADER_LEN; i++)
		raw_send_bytes(&t.c, (uint8_t *)&h + i % WIRE_HEADER_LEN, 1);
	rs_ping(&t);
	rs_end(&t);
}

/* What lies in the rings by then is looked at afterwards, and not before. */
static void before_mapped__the_memory_is_not_looked_at(void **state)
{
	struct wire_header h;
	struct shm_raw n, t;

	rs_neighbour(*state, &n);
	rs_open_at(*state, &t, n.path);
	rs_hello(&t);
	rs_memory(&t);
	rs_control(&t)->to_agent.written = 0x12345678;
	rs_control(&t)->to_agent.sleeps = 7;
	for (int i = 0; i < 20; i++)
		rs_works(&n);
	assert_int_equal(rs_control(&t)->to_agent.taken, 0);
	assert_int_equal(rs_control(&t)->to_agent.sleeps, 7);
	t.no_wake = true;
	h = (struct wire_header){.opcode = WIRE_PING, .request_id = 5};
	rs_put(&t, &h);
	t.no_wake = false;
	rs_mapped(&t);
	assert_true(rs_take(&t, &h, NULL));
	assert_int_equal(h.opcode, WIRE_PONG);
	assert_int_equal(h.request_id, 5);
	rs_end(&t);
	rs_end(&n);
}

/* Its storage is slow to close what it had open; more of that waits than workers are its. */
static void closing__of_one_tenant_does_not_keep_another_from_its_memory(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t, n;

	rs_ready(fx, &t);
	for (int i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "file%d", i);
		raw_file(&t.c, name);
	}
	slow_engine_shut_closes(true);
	rs_close(&t);
	assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_CLOSED);
	slow_engine_wait_closes(1);
	rs_neighbour(fx, &n);
	rs_works(&n);
	slow_engine_shut_closes(false);
	rs_end(&n);
}

/* Two tenants have all workers that closes get, and more to close. Memory is none of it. */
static void memory__is_given_back_while_closes_of_others_hang(void **state)
{
	struct fx *fx = *state;
	struct shm_raw slow[2], t;
	uint64_t each;

	rs_open_session(fx, &t);
	rs_connect(&t);
	each = rs_shm(fx).used;
	for (int i = 0; i < 2; i++) {
		rs_neighbour(fx, &slow[i]);
		raw_file(&slow[i].c, "other");
	}
	slow_engine_shut_closes(true);
	for (int i = 0; i < 2; i++) {
		rs_close(&slow[i]);
		(void)fx_ended(fx, &slow[i].c.session);
		slow_engine_wait_closes((uint32_t)i + 1);
	}
	rs_end(&t);
	/* Theirs may be left, for their own closes have their shares. */
	assert_in_range(rs_shm(fx).used, 0, 2 * each);
	slow_engine_wait_closes(2);
	slow_engine_shut_closes(false);
	assert_true(AWAIT(rs_shm(fx).used == 0));
}

static void spoil_magic(struct wire_header *h)
{
	h->magic ^= 1;
}
static void spoil_version(struct wire_header *h)
{
	h->version++;
}
static void spoil_crc(struct wire_header *h)
{
	h->header_crc ^= 0x80;
}
static void spoil_bit(struct wire_header *h)
{
	h->offset ^= 1; /* the CRC sees it */
}

static const struct {
	struct wire_header h;
	void (*spoil)(struct wire_header *h);
	const char *words;
} bad_messages[] = {
	{{.opcode = WIRE_MAPPED}, NULL, "there is not over shm"},
	{{.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)}, NULL, "a payload"},
	{{.opcode = WIRE_HELLO}, NULL, "payload_len"},
	{{.opcode = WIRE_WINDOW}, NULL, "there is not over shm"},
	{{.opcode = WIRE_DATA}, NULL, "there is not over shm"},
	{{.opcode = WIRE_DATA, .length = 64, .payload_len = 64}, NULL, "a payload"},
	{{.opcode = WIRE_DATA, .flags = WIRE_F_LAST}, NULL, "there is not over shm"},
	{{.opcode = WIRE_WRITE, .flags = WIRE_F_INLINE, .length = 64, .payload_len = 64},
         NULL,
         "a payload"},
	{{.opcode = WIRE_WRITE, .flags = WIRE_F_INLINE, .length = 64}, NULL, "payload_len"},
	{{.opcode = WIRE_WRITE, .length = 64, .payload_len = 64}, NULL, "inline flag"},
	{{.opcode = WIRE_READ, .length = 64, .payload_len = 64}, NULL, "payload_len"},
	{{.opcode = WIRE_PING, .payload_len = UINT32_MAX}, NULL, "payload_len"},
	{{.opcode = WIRE_PING, .flags = WIRE_F_PAYLOAD_CRC}, NULL, "reserved bit"},
	{{.opcode = WIRE_PING, .reserved = 1}, NULL, "reserved bit"},
	{{.opcode = WIRE_PING, .flags = WIRE_F_INLINE}, NULL, "a flag"},
	{{.opcode = WIRE_ZERO, .length = 64, .address = SHM_BASE}, NULL, "names memory"},
	{{.opcode = WIRE_CHALLENGE, .payload_len = WIRE_NONCE_LEN}, NULL, "not an opcode"},
	{{.opcode = WIRE_WELCOME}, NULL, "not an opcode"},
	{{.opcode = WIRE_PULL}, NULL, "not an opcode"},
	{{.opcode = WIRE_COMPLETE}, NULL, "not an opcode"},
	{{.opcode = WIRE_NAK}, NULL, "not an opcode"},
	{{.opcode = WIRE_MEMORY}, NULL, "not an opcode"},
	{{.opcode = 0}, NULL, "not an opcode"},
	{{.opcode = 23}, NULL, "not an opcode"},
	{{.opcode = 51}, NULL, "not an opcode"},
	{{.opcode = 255}, NULL, "not an opcode"},
	{{.opcode = WIRE_PING}, spoil_magic, "no magic"},
	{{.opcode = WIRE_PING}, spoil_version, "version"},
	{{.opcode = WIRE_PING}, spoil_crc, "CRC"},
	{{.opcode = WIRE_PING}, spoil_bit, "CRC"},
};

static void message__that_there_is_not_over_shm_ends_the_session(void **state)
{
	struct fx *fx = *state;
	struct shm_raw n, t;

	rs_neighbour(fx, &n);
	for (size_t i = 0; i < ARRAY_SIZE(bad_messages); i++) {
		struct wire_header h = bad_messages[i].h;

		rs_ready(fx, &t);
		wire_seal(&h);
		if (bad_messages[i].spoil)
			bad_messages[i].spoil(&h);
		rs_put_bytes(&t, &h);
		rs_expect_end(&t, ROS2_PROTOCOL, bad_messages[i].words);
		rs_end(&t);
		fx_forget_events(fx);
	}
	rs_works(&n);
	rs_end(&n);
}

/* ---- counts ---- */

static void counts__that_cannot_be_end_the_session(void **state)
{
	static const uint32_t ahead[] = {WIRE_SHM_RING_ENTRIES + 1, 1u << 31, UINT32_MAX};
	static const uint32_t taken[] = {1, WIRE_SHM_RING_ENTRIES, 1u << 31};
	struct wire_header h = {.opcode = WIRE_PING, .request_id = 1};
	struct fx *fx = *state;
	struct shm_raw n, t;

	rs_neighbour(fx, &n);
	for (size_t i = 0; i < ARRAY_SIZE(ahead); i++) {
		rs_ready(fx, &t);
		rs_ping(&t);
		t.written += ahead[i];
		rs_tell(&t);
		rs_expect_end(&t, ROS2_PROTOCOL, "more entries in the ring");
		rs_end(&t);
		rs_ready(fx, &t);
		rs_ping(&t);
		__atomic_store_n(&rs_control(&t)->to_tenant.taken, t.taken + taken[i],
		                 __ATOMIC_RELEASE);
		rs_put(&t, &h);
		rs_expect_end(&t, ROS2_PROTOCOL, "more was taken");
		rs_end(&t);
	}
	rs_works(&n);
	rs_end(&n);
}

/* A whole ring of what was never put is looked at, and the first of it ends the session. */
static void counts__of_a_ring_that_is_full_of_nothing_end_the_session(void **state)
{
	struct shm_raw t;

	rs_open_session(*state, &t);
	rs_hello(&t);
	rs_memory(&t);
	t.written = WIRE_SHM_RING_ENTRIES;
	rs_tell(&t);
	rs_mapped(&t);
	rs_expect_end(&t, ROS2_PROTOCOL, "no magic");
	rs_end(&t);
}

/* ---- addresses ---- */

static void address__outside_the_memory_is_refused(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct shm_raw t;

	rs_ready(fx, &t);
	{
		const struct {
			uint64_t address;
			uint32_t length;
		} bad[] = {{0, KIB4},
		           {WIRE_SHM_TO_AGENT_OFF, KIB4},
		           {SHM_BASE - 1, KIB4},
		           {SHM_BASE - KIB4, KIB4 + 1},
		           {t.bytes - KIB4 + 1, KIB4},
		           {t.bytes, 1},
		           {t.bytes + 1, 1},
		           {t.bytes + (1ull << 40), KIB4},
		           {1ull << 63, KIB4},
		           {UINT64_MAX, 1},
		           {UINT64_MAX - 100, KIB4},
		           {FX_BASE, KIB4}};

		for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
			h = raw_header(&t.c, WIRE_READ, 0, bad[i].address, bad[i].length);
			rs_expect_nak(&t, &h, ROS2_OUT_OF_RANGE);
			h = raw_header(&t.c, WIRE_WRITE, 0, bad[i].address, bad[i].length);
			rs_expect_nak(&t, &h, ROS2_OUT_OF_RANGE);
		}
	}
	h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, WIRE_IO_MAX + 1);
	rs_expect_nak(&t, &h, ROS2_TOO_LARGE);
	rs_works(&t);
	rs_end(&t);
}

static enum ros2_status try_region(struct shm_raw *t, uint64_t base, uint64_t length)
{
	struct fx_args a = {.session = t->c.session, .a = base, .b = length, .flags = 3};

	return fx_do(t->c.fx, FX_REGISTER, &a).status;
}

static void region__outside_the_data_is_refused(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	fx->limits.region_alignment = 1;
	fx->limits.region_size_min = 1;
	fx_limits(fx);
	rs_ready(fx, &t);
	assert_int_equal(try_region(&t, 0, KIB4), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, 0, t.bytes), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, WIRE_SHM_TO_AGENT_OFF, KIB4), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, SHM_BASE - 1, KIB4), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, SHM_BASE - 1, 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, SHM_BASE + 1, t.offered), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, SHM_BASE, t.offered + 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, t.bytes, 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, 1ull << 63, KIB4), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, UINT64_MAX - 4095, 4095), ROS2_OUT_OF_RANGE);
	assert_int_equal(try_region(&t, UINT64_MAX - 4095, KIB4), ROS2_INVALID);
	assert_int_equal(try_region(&t, FX_BASE, KIB4), ROS2_OUT_OF_RANGE);
	/* Nothing of them is counted. */
	assert_int_equal(fx_lease_count(fx), 1);
	assert_int_equal(fx_stats(fx, &t.c.session).regions, 1);
	assert_int_equal(try_region(&t, t.bytes - 1, 1), ROS2_OK);
	rs_works(&t);
	rs_end(&t);
}

/* Without any check of leases an address still leads nowhere else; within the data it works. */
static void control__without_the_lease_check_any_key_works_within_the_data_only(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_lease_check = true;
	rs_ready(*state, &t);
	t.c.key ^= 0x5555;
	rs_works(&t);
	assert_int_equal(rs_do(&t, WIRE_READ, 0, SHM_BASE - KIB4, KIB4, NULL), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_do(&t, WIRE_WRITE, 0, 0, KIB4, NULL), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_do(&t, WIRE_READ, 0, t.bytes - 1, KIB4, NULL), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_do(&t, WIRE_READ, 0, UINT64_MAX - 10, KIB4, NULL), ROS2_OUT_OF_RANGE);
	rs_works(&t);
	rs_end(&t);
}

/* ---- keys ---- */

static void read_by_foreign_key(struct shm_raw *victim, struct shm_raw *t)
{
	struct wire_header h;
	uint32_t own = t->c.key;

	memset(victim->map + SHM_BASE, 'v', victim->offered);
	memset(t->map + SHM_BASE, 't', t->offered);
	assert_int_equal(rs_write(t, 0, SHM_BASE + KIB4, KIB4), ROS2_OK);
	memset(t->map + SHM_BASE, 'T', t->offered);
	t->c.key = victim->c.key;
	h = raw_header(&t->c, WIRE_READ, 0, SHM_BASE + KIB4, KIB4);
	rs_expect_nak(t, &h, ROS2_BAD_KEY);
	h = raw_header(&t->c, WIRE_WRITE, 0, SHM_BASE + KIB4, KIB4);
	rs_expect_nak(t, &h, ROS2_BAD_KEY);
	t->c.key = own;
	for (uint64_t i = 0; i < victim->offered; i++)
		if (victim->map[SHM_BASE + i] != 'v' || t->map[SHM_BASE + i] != 'T')
			fail_msg("byte %llu was changed", (unsigned long long)i);
}

static void key__of_another_session_leads_nowhere(void **state)
{
	struct fx *fx = *state;
	struct dp_session_stats st;
	struct shm_raw victim, same, other;

	rs_ready(fx, &victim);
	rs_ready(fx, &same);
	rs_neighbour(fx, &other);
	rs_works(&victim);
	read_by_foreign_key(&victim, &same);
	read_by_foreign_key(&victim, &other);
	st = fx_stats(fx, &victim.c.session);
	assert_int_equal(st.violations, 0);
	assert_int_equal(st.read_ops, 1);
	assert_int_equal(st.write_ops, 1);
	assert_int_equal(fx_stats(fx, &other.c.session).violations, 2);
	rs_works(&victim);
	rs_works(&same);
	rs_works(&other);
	rs_end(&victim);
	rs_end(&same);
	rs_end(&other);
}

/* At the same reactor: a key of another is not in the table. */
static void control__without_its_owner_a_key_works_and_leads_to_the_own_memory(void **state)
{
	struct shm_raw a, b;

	dp_test_switches.no_key_owner = true;
	rs_ready(*state, &a);
	rs_open_at(*state, &b, a.path);
	rs_connect(&b);
	raw_file(&b.c, "file");
	b.c.key = a.c.key;
	memset(a.map + SHM_BASE, 'a', KIB4);
	rs_works(&b);
	assert_int_equal(a.map[SHM_BASE], 'a');
	rs_end(&b);
	rs_end(&a);
}

static void key__that_has_ended_is_refused(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct fx_args a;
	struct shm_raw t;
	uint32_t kept;

	rs_ready(fx, &t);
	kept = t.c.key;
	a = (struct fx_args){.session = t.c.session, .key = t.c.key};
	assert_int_equal(fx_do(fx, FX_DEREGISTER, &a).status, ROS2_OK);
	h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, KIB4);
	rs_expect_nak(&t, &h, ROS2_BAD_KEY);
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
	assert_int_not_equal(t.c.key, kept);
	rs_works(&t);
	memset(t.map + SHM_BASE, 'x', KIB4);
	clock_ahead_ns += 100 * NS_PER_S; /* of 30 */
	assert_int_equal(rs_do(&t, WIRE_READ, 0, SHM_BASE, KIB4, NULL), ROS2_LEASE_EXPIRED);
	assert_int_equal(rs_do(&t, WIRE_WRITE, 0, SHM_BASE, KIB4, NULL), ROS2_LEASE_EXPIRED);
	assert_int_equal(t.map[SHM_BASE], 'x');
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 1);
	h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, KIB4);
	rs_expect_nak(&t, &h, ROS2_ACCESS);
	rs_end(&t);
}

/* ---- what is changed while it is looked at ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t some(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)((random_state >> 20) % below);
}

struct flipper {
	struct shm_raw *t;
	pthread_t thread;
	_Atomic bool stop;
};

/* Bytes of entries of the ring to the agent, near where it is, there and back. */
static void *flip(void *arg)
{
	struct flipper *f = arg;
	uint32_t at = 0;

	while (!f->stop) {
		uint32_t n = __atomic_load_n(&rs_control(f->t)->to_agent.taken, __ATOMIC_RELAXED);
		uint8_t *e = rs_entry(f->t, WIRE_SHM_TO_AGENT_OFF, n) + at % WIRE_HEADER_LEN;

		__atomic_fetch_xor(e, 0x11, __ATOMIC_RELAXED);
		__atomic_fetch_xor(e, 0x11, __ATOMIC_RELAXED);
		at += 7;
	}
	return NULL;
}

/* True: its session has ended. */
static bool put_many(struct shm_raw *t)
{
	struct wire_header h;

	for (int i = 0; i < 4000; i++) {
		h = i % 3 ? raw_header(&t->c, WIRE_PING, 0, 0, 0)
		          : raw_header(&t->c, WIRE_READ, 0, SHM_BASE, 64);
		if (i % 3)
			h.key = 0;
		rs_put(t, &h);
		if (!rs_take(t, &h, NULL))
			return true;
		assert_true(h.opcode == WIRE_PONG || h.opcode == WIRE_COMPLETE ||
		            h.opcode == WIRE_NAK);
	}
	return false;
}

static void header__that_changes_while_it_is_taken_has_a_named_end(void **state)
{
	struct fx *fx = *state;
	uint32_t ends = 0;
	struct shm_raw n;

	rs_neighbour(fx, &n);
	for (int i = 0; i < 20; i++) {
		struct shm_raw t;
		struct flipper f = {.t = &t};
		bool ended;

		rs_ready(fx, &t);
		assert_int_equal(pthread_create(&f.thread, NULL, flip, &f), 0);
		ended = put_many(&t);
		f.stop = true;
		pthread_join(f.thread, NULL);
		if (ended)
			rs_expect_end(&t, ROS2_PROTOCOL, NULL);
		ends += ended;
		rs_end(&t);
		fx_forget_events(fx);
		rs_works(&n);
	}
	/* Or nothing was tried. */
	assert_true(ends > 0);
	rs_end(&n);
}

static void scribble(struct shm_raw *t, uint32_t from, uint32_t below, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		__atomic_store_n(t->map + from + some(below - from), (uint8_t)some(256),
		                 __ATOMIC_RELAXED);
}

/* Everything that is not data, and only the counts. */
static void scribbling__over_the_control_page_and_the_rings_ends_only_the_own_session(void **state)
{
	struct fx *fx = *state;
	uint8_t wake = 1;
	struct shm_raw n;

	rs_neighbour(fx, &n);
	for (int i = 0; i < 60; i++) {
		uint32_t below = i % 2 ? sizeof(struct wire_shm_control) : WIRE_SHM_DATA_OFF;
		struct shm_raw t;
		struct dp_event ev;

		rs_ready(fx, &t);
		for (int k = 0; k < 50; k++) {
			scribble(&t, 0, below, 200);
			raw_send_bytes(&t.c, &wake, 1);
		}
		rs_works(&n);
		/* It says BYE by its socket, unless it was ended before. */
		raw_close(&t.c);
		ev = fx_ended(fx, &t.c.session);
		assert_true(ev.status == ROS2_PROTOCOL || ev.status == ROS2_CLOSED);
		rs_end(&t);
		fx_forget_events(fx);
	}
	rs_works(&n);
	rs_end(&n);
}

/* The flags only say whether a byte is sent. */
static void sleeps__of_any_value_harm_nobody(void **state)
{
	struct shm_raw t;

	rs_ready(*state, &t);
	for (uint32_t i = 0; i < 200; i++) {
		__atomic_store_n(&rs_control(&t)->to_agent.sleeps, some(3) * 0x7fffffff,
		                 __ATOMIC_RELAXED);
		__atomic_store_n(&rs_control(&t)->to_tenant.sleeps, some(UINT32_MAX),
		                 __ATOMIC_RELAXED);
		__atomic_store_n(&rs_control(&t)->to_agent.taken, t.written, __ATOMIC_RELAXED);
		rs_ping(&t);
		assert_int_equal(rs_read(&t, 0, SHM_BASE, 0), ROS2_OK);
	}
	rs_works(&t);
	rs_end(&t);
}

/* ---- a tenant that does not take ---- */

#define PINGS 1000u /* a ring of answers, those that wait in the session, and a ring of others */

static void tenant__that_takes_no_replies_delays_only_itself(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct shm_raw n, t;

	rs_neighbour(fx, &n);
	rs_open_at(fx, &t, n.path);
	rs_connect(&t);
	raw_file(&t.c, "file");
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
	for (uint32_t i = 0; i < PINGS; i++) {
		h = (struct wire_header){.opcode = WIRE_PING, .request_id = 1000000 + i};
		rs_put(&t, &h);
	}
	assert_true(AWAIT(__atomic_load_n(&rs_control(&t)->to_tenant.written, __ATOMIC_ACQUIRE) ==
	                  WIRE_SHM_RING_ENTRIES));
	for (uint32_t i = 0; i < 8; i++) {
		h = raw_header(&t.c, WIRE_WRITE, 0, SHM_BASE, KIB4);
		rs_put(&t, &h);
	}
	for (int i = 0; i < 50; i++)
		rs_works(&n);
	assert_int_equal(__atomic_load_n(&rs_control(&t)->to_tenant.written, __ATOMIC_ACQUIRE),
	                 WIRE_SHM_RING_ENTRIES);
	for (uint32_t i = 0; i < PINGS; i++) {
		assert_true(rs_take(&t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_PONG);
		assert_int_equal(h.request_id, 1000000 + i);
	}
	for (uint32_t i = 0; i < 8; i++) {
		assert_true(rs_take(&t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
	rs_works(&t);
	rs_end(&t);
	rs_end(&n);
}

/* Requests that were carried out wait with their answers, too. */
static void completes__wait_for_room_in_the_ring(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct shm_raw t;

	rs_ready(fx, &t);
	for (uint32_t i = 0; i < WIRE_SHM_RING_ENTRIES; i++) {
		h = (struct wire_header){.opcode = WIRE_PING, .request_id = 1000000 + i};
		rs_put(&t, &h);
	}
	for (uint32_t i = 0; i < 128; i++) {
		h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, KIB4);
		rs_put(&t, &h);
	}
	assert_true(AWAIT(fx_stats(fx, &t.c.session).read_ops == 128));
	/* They count against the credits until they are told. */
	assert_int_equal(fx_stats(fx, &t.c.session).in_flight, 128);
	h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, KIB4);
	rs_put(&t, &h);
	for (uint32_t i = 0; i < WIRE_SHM_RING_ENTRIES; i++)
		assert_true(rs_take(&t, &h, NULL));
	for (uint32_t i = 0, naks = 0; i < 129; i++) {
		assert_true(rs_take(&t, &h, NULL));
		naks += h.opcode == WIRE_NAK;
		assert_int_equal(h.status, h.opcode == WIRE_NAK ? ROS2_LIMIT : ROS2_OK);
		assert_true(naks <= 1);
	}
	rs_works(&t);
	rs_end(&t);
}

static void credits__and_ids_are_watched(void **state)
{
	struct wire_header h;
	struct shm_raw t;
	uint32_t naks = 0;

	rs_ready(*state, &t);
	slow_engine_shut(true);
	for (uint32_t i = 0; i < 130; i++) {
		h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, 64);
		rs_put(&t, &h);
	}
	for (; naks < 2; naks++) {
		assert_true(rs_take(&t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_NAK);
		assert_int_equal(h.status, ROS2_LIMIT);
	}
	slow_engine_shut(false);
	for (uint32_t i = 0; i < 128; i++) {
		assert_true(rs_take(&t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
	}
	slow_engine_shut(true);
	h = raw_header(&t.c, WIRE_READ, 0, SHM_BASE, 64);
	rs_put(&t, &h);
	rs_expect_nak(&t, &h, ROS2_INVALID);
	slow_engine_shut(false);
	assert_true(rs_take(&t, &h, NULL));
	rs_end(&t);
}

/* ---- messages that cost nothing ---- */

static _Thread_local uint32_t messages; /* that this reactor has taken since its last turn */
static _Atomic uint32_t most_messages;

enum ros2_status __real_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words);
enum ros2_status __wrap_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words);
enum ros2_status __wrap_wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                               struct wire_header *ret, const char **ret_words)
{
	if (++messages > most_messages)
		most_messages = messages;
	return __real_wire_parse_from_tenant(bytes, ret, ret_words);
}

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	messages = 0;
	return __real_admit_run(r);
}

/* The most messages that a turn took of one ring, of a flood to which there is no answer. */
static uint32_t flood_of_pongs(struct fx *fx)
{
	struct wire_header h = {.opcode = WIRE_PONG};
	struct shm_raw t;

	rs_ready(fx, &t);
	rs_ping(&t);
	most_messages = 0;
	wire_seal(&h);
	for (int k = 0; k < 20; k++) {
		for (uint32_t i = 0; i < WIRE_SHM_RING_ENTRIES; i++)
			rs_put_quietly(&t, &h);
		rs_tell(&t);
		rs_ping(&t);
	}
	rs_end(&t);
	return most_messages;
}

static void turn__takes_a_bounded_number_of_messages_of_a_ring(void **state)
{
	assert_in_range(flood_of_pongs(*state), 1, SHM_MESSAGES);
}

static void control__without_bounds_a_turn_takes_what_there_is(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_true(flood_of_pongs(*state) > SHM_MESSAGES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(before_mapped__any_other_message_ends_the_session),
		SLOW_TEST(mapped__is_checked_as_any_message_and_told_once),
		SLOW_TEST(before_mapped__the_memory_is_not_looked_at),
		SLOW_TEST(closing__of_one_tenant_does_not_keep_another_from_its_memory),
		FOUR_WORKERS_TEST(memory__is_given_back_while_closes_of_others_hang),
		SLOW_TEST(message__that_there_is_not_over_shm_ends_the_session),
		SLOW_TEST(counts__that_cannot_be_end_the_session),
		SLOW_TEST(counts__of_a_ring_that_is_full_of_nothing_end_the_session),
		SLOW_TEST(address__outside_the_memory_is_refused),
		SLOW_TEST(region__outside_the_data_is_refused),
		SLOW_TEST(control__without_the_lease_check_any_key_works_within_the_data_only),
		SLOW_TEST(key__of_another_session_leads_nowhere),
		SLOW_TEST(control__without_its_owner_a_key_works_and_leads_to_the_own_memory),
		SLOW_TEST(key__that_has_ended_is_refused),
		SLOW_TEST(header__that_changes_while_it_is_taken_has_a_named_end),
		SLOW_TEST(
			scribbling__over_the_control_page_and_the_rings_ends_only_the_own_session),
		SLOW_TEST(sleeps__of_any_value_harm_nobody),
		SLOW_TEST(tenant__that_takes_no_replies_delays_only_itself),
		SLOW_TEST(completes__wait_for_room_in_the_ring),
		SLOW_TEST(credits__and_ids_are_watched),
		SLOW_TEST(turn__takes_a_bounded_number_of_messages_of_a_ring),
		SLOW_TEST(control__without_bounds_a_turn_takes_what_there_is),
	};

	fx_shm = true;
	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
