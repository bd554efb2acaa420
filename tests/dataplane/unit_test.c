/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the data plane that need no thread: header codec, token buckets under a fake clock,
 * slots, the map of UIDs. */
#include "tests/testing.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/qos_priv.h"
#include "common/share.h"
#include "common/spin.h"
#include "dataplane/slots.h"
#include "dataplane/uidmap.h"
#include "dataplane/wire_codec.h"

/* ---- headers ---- */

static struct wire_header sealed(enum wire_opcode op)
{
	struct wire_header h = {.opcode = (uint8_t)op, .length = 4096, .request_id = 7};

	wire_seal(&h);
	return h;
}

static enum ros2_status parse(const struct wire_header *h)
{
	struct wire_header out;
	const char *words = NULL;
	enum ros2_status s = wire_parse_from_tenant((const uint8_t *)h, &out, &words);

	assert_true(s == ROS2_OK || words);
	return s;
}

static void wire_parse__accepts_a_sealed_header_and_nothing_with_one_bit_changed(void **state)
{
	struct wire_header h = sealed(WIRE_READ);

	assert_int_equal(parse(&h), ROS2_OK);
	for (uint32_t bit = 0; bit < WIRE_HEADER_LEN * 8; bit++) {
		struct wire_header bad = h;

		((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(parse(&bad), ROS2_OK);
	}
}

static void wire_parse__accepts_only_what_a_tenant_may_send(void **state)
{
	for (unsigned op = 0; op < 256; op++) {
		bool may = op == WIRE_READ || op == WIRE_WRITE || op == WIRE_FLUSH ||
		           op == WIRE_WINDOW || op == WIRE_MAPPED || op == WIRE_ZERO ||
		           op == WIRE_DISCARD || op == WIRE_PING || op == WIRE_PONG ||
		           op == WIRE_BYE;
		struct wire_header h = sealed((enum wire_opcode)op);

		assert_int_equal(parse(&h) == ROS2_OK, may);
	}
}

static enum ros2_status with_payload(enum wire_opcode op, uint16_t flags, uint32_t length,
                                     uint32_t payload_len)
{
	struct wire_header h = {.opcode = (uint8_t)op,
	                        .flags = flags,
	                        .length = length,
	                        .payload_len = payload_len};

	wire_seal(&h);
	return parse(&h);
}

static void wire_parse__bounds_every_payload(void **state)
{
	assert_int_equal(with_payload(WIRE_WRITE, WIRE_F_INLINE, 16384, 16384), ROS2_OK);
	assert_int_equal(with_payload(WIRE_WRITE, WIRE_F_INLINE, 16385, 16385), ROS2_TOO_LARGE);
	assert_int_equal(with_payload(WIRE_WRITE, WIRE_F_INLINE, 16384, 100), ROS2_PROTOCOL);
	assert_int_equal(with_payload(WIRE_WRITE, 0, 100, 100), ROS2_PROTOCOL);
	assert_int_equal(with_payload(WIRE_READ, WIRE_F_INLINE, 1, 0), ROS2_PROTOCOL);
	assert_int_equal(with_payload(WIRE_READ, 0, 1, 1), ROS2_TOO_LARGE);
	assert_int_equal(with_payload(WIRE_DATA, WIRE_F_LAST, WIRE_IO_MAX, WIRE_IO_MAX), ROS2_OK);
	assert_int_equal(with_payload(WIRE_DATA, 0, WIRE_IO_MAX + 1, WIRE_IO_MAX + 1),
	                 ROS2_TOO_LARGE);
	assert_int_equal(with_payload(WIRE_HELLO, 0, 0, 80), ROS2_OK);
	assert_int_equal(with_payload(WIRE_HELLO, 0, 0, 79), ROS2_TOO_LARGE);
}

static void wire_parse__takes_no_memory_and_no_payload_with_what_clears(void **state)
{
	static const enum wire_opcode ops[] = {WIRE_ZERO, WIRE_DISCARD};

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct wire_header h[5];

		for (size_t k = 0; k < ARRAY_SIZE(h); k++)
			h[k] = sealed(ops[i]);
		h[1].key = 1;
		h[2].address = 1ull << 63;
		h[3].generation = 1;
		h[4].flags = WIRE_F_INLINE;
		for (size_t k = 0; k < ARRAY_SIZE(h); k++) {
			wire_seal(&h[k]);
			assert_int_equal(parse(&h[k]), k ? ROS2_PROTOCOL : ROS2_OK);
		}
		assert_int_equal(with_payload(ops[i], 0, 4096, 4096), ROS2_TOO_LARGE);
		/* What a tenant says to an agent an agent does not say to a tenant. */
		assert_int_equal(wire_parse_from_agent((const uint8_t *)h, &(struct wire_header){0},
		                                       &(const char *){NULL}),
		                 ROS2_PROTOCOL);
	}
}

/* What HELLO says it knows is no payload: any bits are a good header. */
static void wire_parse__takes_features_that_nobody_knows(void **state)
{
	assert_int_equal(with_payload(WIRE_HELLO, 0, UINT32_MAX, 80), ROS2_OK);
}

/* ---- buckets ---- */

/* Takes as much as @cost at a time as goes in @span, looking at the clock every @step. */
static uint64_t drain_n(struct qos_bucket *b, struct qos_local *l, uint32_t n_locals, uint64_t cost,
                        uint64_t from, uint64_t span, uint64_t step)
{
	uint64_t got = 0, at;

	for (uint64_t now = from; now < from + span; now += step)
		for (uint32_t i = 0; i < n_locals; i++)
			while (qos_reserve(b, &l[i], cost, now, &at)) {
				qos_spend(b, &l[i], cost);
				got += cost;
			}
	return got;
}

static void assert_within(uint64_t got, uint64_t want, double percent)
{
	if ((double)got < (double)want * (1 - percent / 100) ||
	    (double)got > (double)want * (1 + percent / 100))
		fail_msg("%llu is not within %.1f %% of %llu", (unsigned long long)got, percent,
		         (unsigned long long)want);
}

static void qos__keeps_the_rate_within_two_percent_over_ten_seconds(void **state)
{
	static const struct {
		uint64_t rate, cost, step;
		uint32_t locals;
	} cases[] = {
		{1000, 1, 1000000, 1},
		{400000, 1, 100000, 1},
		{1u << 30, 4096, 50000, 1},
		{100u << 20, 1u << 20, 1000000, 1}, /* larger than the burst */
		{1000, 1, 3000000, 4},
		{1u << 30, 65536, 100000, 16},
		{50, 1, 1000000, 8},
		{10u << 20, 1u << 20, 2000000, 8},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct qos_bucket b = {0};
		struct qos_local l[16] = {{0}};

		qos_bucket_set(&b, cases[i].rate, 10 * NS_PER_MS, 0);
		assert_within(drain_n(&b, l, cases[i].locals, cases[i].cost, NS_PER_S,
		                      10 * NS_PER_S, cases[i].step),
		              cases[i].rate * 10, 2);
	}
}

static void qos__gives_at_most_the_burst_after_a_pause(void **state)
{
	struct qos_bucket b = {0};
	struct qos_local l = {0};
	uint64_t got;

	qos_bucket_set(&b, 1000, 100 * NS_PER_MS, 0);
	drain_n(&b, &l, 1, 1, NS_PER_S, 1, 1);
	got = drain_n(&b, &l, 1, 1, 100 * NS_PER_S, 1, 1);
	assert_in_range(got, 100, 102);
}

static void qos__tells_when_to_try_again(void **state)
{
	struct qos_bucket b = {0};
	struct qos_local l = {0};
	uint64_t at = 0, now = 10 * NS_PER_S;

	qos_bucket_set(&b, 10, 0, now);
	while (qos_reserve(&b, &l, 1, now, &at))
		qos_spend(&b, &l, 1);
	assert_true(at > now && at <= now + NS_PER_S / 10);
	assert_false(qos_reserve(&b, &l, 1, at - 1, &at));
	assert_true(qos_reserve(&b, &l, 1, at, &at));
}

static void qos__without_a_rate_never_waits_and_does_not_overflow(void **state)
{
	struct qos_bucket b = {0};
	struct qos_local l = {0};
	uint64_t at;

	assert_true(qos_reserve(&b, &l, UINT64_MAX, 1, &at));
	qos_bucket_set(&b, 1, UINT64_MAX, 1);
	assert_true(qos_reserve(&b, &l, UINT64_MAX, 1, &at));
	qos_spend(&b, &l, UINT64_MAX);
	assert_false(qos_reserve(&b, &l, 1, UINT64_MAX - 1, &at));
}

/* How long the next unit waits of a bucket that gave 1 MiB at @rate, which then became @next. */
static uint64_t wait_after(uint64_t rate, uint64_t next)
{
	uint64_t at, now = 1000 * NS_PER_S;
	struct qos_bucket b = {0};
	struct qos_local l = {0};

	qos_bucket_set(&b, rate, 0, now);
	assert_true(qos_reserve(&b, &l, 1u << 20, now, &at));
	qos_spend(&b, &l, 1u << 20);
	qos_bucket_set(&b, next, 0, now);
	if (qos_reserve(&b, &l, 1, now, &at))
		return 0;
	assert_false(qos_reserve(&b, &l, 1, at - 1, &at));
	assert_true(qos_reserve(&b, &l, 1, at, &at));
	return at - now;
}

static void qos__a_debt_is_of_tokens_whatever_the_rate_becomes(void **state)
{
	uint64_t full = QOS_BURST_MIN_NS; /* what was saved up is of time */

	assert_int_equal(wait_after(1024, 1024), 1024 * NS_PER_S - full);
	assert_int_equal(wait_after(1024, 1u << 20), NS_PER_S - full / 1024);
	assert_int_equal(wait_after(1u << 20, 1024), 1024 * (NS_PER_S - full));
	assert_int_equal(wait_after(1024, 0), 0);
	/* days; nothing; and nothing was owed, for the burst was more than that */
	assert_true(wait_after(1, 2) > (1u << 18) * NS_PER_S);
	assert_true(wait_after(1, UINT64_MAX) <= 1);
	assert_true(wait_after(UINT64_MAX, 1) == 0);
}

static void qos__of_what_was_drawn_is_left_as_much_as_the_rate_is_now(void **state)
{
	struct qos_bucket b = {0};
	struct qos_local l = {0};
	uint64_t at, now = 1000 * NS_PER_S;

	qos_bucket_set(&b, 10ull << 30, 0, now);
	assert_true(qos_reserve(&b, &l, 4096, now, &at));
	qos_spend(&b, &l, 4096);
	qos_bucket_set(&b, 10 << 10, 0, now);
	/* Of the bucket 5 ms, 51 bytes, and of the 10 MiB that were drawn 10. */
	assert_in_range(drain_n(&b, &l, 1, 1, now, 1, 1), 40, 80);
	qos_bucket_set(&b, 0, 0, now);
	assert_true(qos_reserve(&b, &l, UINT64_MAX, now, &at));
	qos_bucket_set(&b, 1024, 0, now);
	assert_true(qos_reserve(&b, &l, 1, now, &at));
}

/* Its burst is spent: what is drawn is owed. As where the bucket of operations is dry when that of
 * bytes is not, @cost is not spent before the rate falls. */
static uint64_t wait_for_what_was_drawn(uint64_t rate, uint64_t next, uint64_t cost)
{
	uint64_t at, now = 1000 * NS_PER_S;
	struct qos_bucket b = {0};
	struct qos_local l = {0};

	qos_bucket_set(&b, rate, 0, now);
	drain_n(&b, &l, 1, rate / QOS_QUANTUM_PER_S, now, 1, 1);
	while (!qos_reserve(&b, &l, cost, now, &at))
		now = at;
	qos_bucket_set(&b, next, 0, now);
	if (qos_reserve(&b, &l, cost, now, &at))
		return 0;
	return at - now;
}

static void qos__what_a_lowered_rate_takes_is_not_owed(void **state)
{
	/* A quantum of 10 MiB, and 10 bytes of it are left; a request of 1 MiB is not paid for
	 * twice. */
	assert_in_range(wait_for_what_was_drawn(10ull << 30, 10 << 10, 4096), NS_PER_MS / 2,
	                2 * NS_PER_MS);
	assert_in_range(wait_for_what_was_drawn(1 << 20, 1024, 1 << 20), NS_PER_S - NS_PER_MS,
	                NS_PER_S + 2);
	assert_in_range(wait_for_what_was_drawn(1 << 20, 1, 1 << 20), NS_PER_S - NS_PER_MS,
	                NS_PER_S + 2);
}

/* ---- slots ---- */

static void slots__of_a_tenants_own_memory_are_where_they_were_said_to_be(void **state)
{
	struct slot pieces[] = {{(uint8_t *)0x10000, 0, 0},
	                        {(uint8_t *)0x20000, 2, 0},
	                        {(uint8_t *)0x30000, 0, 0},
	                        {(uint8_t *)0x40000, 0, 0},
	                        {(uint8_t *)0x50000, 0, 0}};
	struct slot_use session = {0}, other = {0}, tenant = {0};
	struct slot a, b, c;
	struct slots *s;

	assert_int_equal(slots_new_over(pieces, ARRAY_SIZE(pieces), &s), 0);
	assert_int_equal(slots_buf_index(s), -1);
	assert_null(slots_memory(s).iov_base);
	assert_true(slots_take(s, 16384, &session, &tenant, &a));
	assert_true(slots_take(s, 1, &session, &tenant, &b));
	assert_ptr_equal(a.mem, pieces[0].mem);
	assert_ptr_equal(b.mem, pieces[2].mem);
	assert_int_equal(b.index, 1);
	/* half of a size for one session, all of it for the tenant */
	assert_false(slots_take(s, 1, &session, &tenant, &c));
	slots_missed(s, 1);
	assert_false(slots_starved(s));
	assert_true(slots_take(s, 1, &other, &tenant, &c));
	assert_false(slots_take(s, 20000, &other, &tenant, &c)); /* none of that size */
	slots_missed(s, 20000);
	assert_true(slots_starved(s));
	slots_unstarve(s);
	assert_false(slots_starved(s));
	slots_give(s, &b, &session, &tenant);
	assert_true(slots_take(s, 1, &session, &tenant, &b));
	assert_ptr_equal(b.mem, pieces[2].mem);
	slots_free(s);
}

static void slots__of_a_session_and_a_tenant_are_capped(void **state)
{
	struct slot_use session = {{0}}, other = {{0}}, tenant = {{0}}, neighbour = {{0}};
	struct slot taken[64];
	struct slots *s;
	uint32_t n = 0;

	assert_int_equal(slots_new(16u << 20, &s), 0); /* 8 of 1 MiB: 2 per session, 4 per tenant */
	while (n < 64 && slots_take(s, 1u << 20, &session, &tenant, &taken[n]))
		n++;
	assert_int_equal(n, 2);
	while (n < 64 && slots_take(s, 1u << 20, &other, &tenant, &taken[n]))
		n++;
	assert_int_equal(n, 4);
	other = (struct slot_use){{0}};
	assert_false(slots_take(s, 1u << 20, &other, &tenant, &taken[n]));
	assert_true(slots_take(s, 200u << 10, &other, &neighbour, &taken[n]));
	assert_int_equal(slots_taken(s), 5);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++)
			assert_ptr_not_equal(taken[i].mem, taken[k].mem);
	slots_give(s, &taken[0], &session, &tenant);
	assert_null(taken[0].mem);
	assert_true(slots_may_take(s, 1u << 20, &session, &tenant));
	slots_free(s);
}

static void slots__of_one_storage_leave_half_to_another(void **state)
{
	struct slot_use session = {{0}}, a = {{0}}, b = {{0}}, storage = {{0}};
	struct slot pieces[] = {{(uint8_t *)0x10000, 0, 0}}, taken[256];
	struct slots *s, *own;
	uint32_t n = 0;

	/* 256 of 16 KiB: 128 of a tenant, and the first 4 of another. */
	assert_int_equal(slots_new(16u << 20, &s), 0);
	while (n < 256 && slots_may_crowd(s, 1, &a, &storage, 0, 0)) {
		session = (struct slot_use){{0}};
		assert_true(slots_take(s, 1, &session, &a, &taken[n++]));
		storage.n[0]++;
	}
	assert_int_equal(n, 128);
	for (; n < 132; n++, storage.n[0]++) {
		assert_true(slots_may_crowd(s, 1, &b, &storage, 0, 0));
		assert_true(slots_take(s, 1, &session, &b, &taken[n]));
	}
	assert_false(slots_may_crowd(s, 1, &b, &storage, 0, 0));
	storage = (struct slot_use){{0}};
	assert_true(slots_may_crowd(s, 1, &b, &storage, 0, 0));
	slots_free(s);
	/* A tenant's own are nobody else's. */
	storage.n[0] = 1000;
	a.n[0] = 1000;
	assert_int_equal(slots_new_over(pieces, ARRAY_SIZE(pieces), &own), 0);
	assert_true(slots_may_crowd(own, 1, &a, &storage, 0, 5));
	slots_free(own);
}

static void take_all(struct slots *s, struct slot_use *storage, uint32_t share, uint32_t due)
{
	struct slot_use session = {{0}}, tenant = {{0}};
	struct slot taken;

	tenant.n[0] = 8; /* the first few of it are long taken */
	while (slots_may_crowd(s, 1, &tenant, storage, share, due)) {
		session = (struct slot_use){{0}};
		tenant = (struct slot_use){.n = {8}};
		assert_true(slots_take(s, 1, &session, &tenant, &taken));
		storage->n[0]++;
	}
}

/* Whoever comes first, and however many do not answer: the last one has its share. */
static void slots__of_several_storages_leave_each_its_share(void **state)
{
	struct slot_use storage[4] = {{{0}}};
	struct slots *s;
	uint32_t share;

	/* 256 of 16 KiB, 64 of them for first ones. */
	assert_int_equal(slots_new(16u << 20, &s), 0);
	share = slots_storage_share(s, 1, 4);
	assert_int_equal(share, 24);
	for (uint32_t i = 0; i < 4; i++)
		take_all(s, &storage[i], share, (3 - i) * share);
	assert_int_equal(storage[0].n[0], 120);
	for (uint32_t i = 1; i < 4; i++)
		assert_int_equal(storage[i].n[0], share);
	assert_int_equal(slots_taken(s), 192);
	slots_free(s);
}

/* ---- uids ---- */

static unsigned compared; /* UIDs, by the map */

bool __real_ros2_uid_eq(const struct ros2_uid *a, const struct ros2_uid *b);
bool __wrap_ros2_uid_eq(const struct ros2_uid *a, const struct ros2_uid *b);
bool __wrap_ros2_uid_eq(const struct ros2_uid *a, const struct ros2_uid *b)
{
	compared++;
	return __real_ros2_uid_eq(a, b);
}

/* As the controller makes them for grants: a number, the highest byte first, and random bytes. */
static struct ros2_uid grant_uid(uint64_t version)
{
	struct ros2_uid u = ros2_uid_new();

	for (int i = 0; i < 8; i++)
		u.b[i] = (uint8_t)(version >> (8 * (7 - i)));
	return u;
}

static void uidmap__finds_a_grant_among_thousands_without_a_look_at_each(void **state)
{
	struct uidmap *m = calloc(1, sizeof(*m));
	const unsigned n = 2 * UIDMAP_BUCKETS;
	struct ros2_uid u;

	assert_non_null(m);
	compared = 0;
	/* Half of them are there, the others are over. */
	for (unsigned i = 0; i < n; i++) {
		u = grant_uid(1000000 + i);
		assert_int_equal(uidmap_put(m, &u, UID_GRANT, m), 0);
		if (i % 2)
			continue;
		assert_int_equal(uidmap_kill(m, &u, NULL), 0);
		uidmap_pass(m, &u);
	}
	if (compared > 16 * n)
		fail_msg("%u comparisons for %u UIDs", compared, n);
	uidmap_fini(m);
	free(m);
}

static void uidmap__never_forgets_what_was_withdrawn(void **state)
{
	struct uidmap *m = calloc(1, sizeof(*m));
	struct ros2_uid a = ros2_uid_new(), b = a, of;
	int x;
	void *obj;

	b.b[15] ^= 1; /* the same bucket */
	assert_int_equal(uidmap_put(m, &a, UID_GRANT, &x), 0);
	assert_int_equal(uidmap_put(m, &b, UID_TENANT, m), 0);
	assert_int_equal(uidmap_get(m, &a, &obj), UID_GRANT);
	assert_ptr_equal(obj, &x);
	assert_false(uidmap_tenant_of(m, &a, &of));
	assert_int_equal(uidmap_kill(m, &a, NULL), 0);
	assert_false(uidmap_tenant_of(m, &a, &of));
	assert_int_equal(uidmap_kill(m, &a, &b), 0);
	assert_int_equal(uidmap_kill(m, &a, NULL), 0);
	assert_true(uidmap_tenant_of(m, &a, &of) && ros2_uid_eq(&of, &b));
	uidmap_remove(m, &a);
	assert_int_equal(uidmap_get(m, &a, &obj), UID_DEAD);
	assert_null(obj);
	assert_int_equal(uidmap_get(m, &b, NULL), UID_TENANT);
	uidmap_remove(m, &b);
	assert_int_equal(uidmap_get(m, &b, NULL), UID_NONE);
	uidmap_fini(m);
	free(m);
}

static struct ros2_uid numbered(uint32_t i)
{
	struct ros2_uid u = {{0}};

	memcpy(u.b, &i, sizeof(i));
	u.b[15] = 1;
	return u;
}

static void pass(struct uidmap *m, uint32_t i)
{
	struct ros2_uid u = numbered(i);

	assert_int_equal(uidmap_kill(m, &u, NULL), 0);
	uidmap_pass(m, &u);
}

static void uidmap__keeps_of_what_is_over_the_last(void **state)
{
	struct uidmap *m = calloc(1, sizeof(*m));
	struct ros2_uid first = numbered(0), revoked = numbered(1), second = numbered(2), live;

	(void)state;
	for (uint32_t i = 0; i < UIDMAP_PASSED; i++)
		pass(m, i);
	assert_int_equal(uidmap_get(m, &first, NULL), UID_DEAD);
	/* Revoked after it was over. */
	assert_int_equal(uidmap_kill(m, &revoked, NULL), 0);
	uidmap_pass(m, &second); /* again: is in the ring */
	pass(m, UIDMAP_PASSED);
	assert_int_equal(uidmap_get(m, &first, NULL), UID_NONE);
	assert_int_equal(uidmap_put(m, &first, UID_GRANT, m), 0);
	pass(m, UIDMAP_PASSED + 1);
	assert_int_equal(uidmap_get(m, &revoked, NULL), UID_DEAD);
	assert_int_equal(uidmap_get(m, &second, NULL), UID_DEAD);
	/* What is alive is not over. */
	live = first;
	uidmap_pass(m, &live);
	for (uint32_t i = 0; i < 2 * UIDMAP_PASSED; i++)
		pass(m, 2 * UIDMAP_PASSED + i);
	assert_int_equal(uidmap_get(m, &first, NULL), UID_GRANT);
	assert_int_equal(uidmap_get(m, &revoked, NULL), UID_DEAD);
	assert_int_equal(uidmap_get(m, &second, NULL), UID_NONE);
	uidmap_fini(m);
	free(m);
}

/* ---- shares ---- */

/* @greedy tenants take all they get, in turns or one after the other; then everybody else comes. */
static void take_greedily(const struct share *s, uint32_t greedy, bool in_turns)
{
	uint32_t held[64] = {0}, used = 0, others = s->kept / s->sure;

	for (uint32_t round = 0; round < (in_turns ? s->total : 1); round++)
		for (uint32_t t = 0; t < greedy; t++)
			while (share_allows(s, held[t], used)) {
				held[t]++;
				used++;
				if (in_turns)
					break;
			}
	for (uint32_t t = 0; t < greedy; t++)
		assert_in_range(held[t], s->sure, s->most);
	for (uint32_t t = greedy; t < others; t++)
		for (uint32_t n = 0; n < s->sure; n++) {
			assert_true(share_allows(s, n, used));
			used++;
		}
}

static void share__keeps_each_tenants_first_entries_whatever_others_hold(void **state)
{
	static const struct share keys = {16384, 8192, 4, 4096}, sessions = {256, 128, 1, 64};

	for (uint32_t greedy = 1; greedy <= 64; greedy++) {
		take_greedily(&keys, greedy, false);
		take_greedily(&keys, greedy, true);
		take_greedily(&sessions, greedy, false);
		take_greedily(&sessions, greedy, true);
	}
	assert_false(share_allows(&sessions, 0, 256));
}

/* ---- looks at a ring before sleeping ---- */

static void spin__stops_when_it_brings_nothing_and_tries_now_and_then(void **state)
{
	struct spin w;
	uint32_t tried = 0;

	spin_init(&w);
	w.alone = false;
	for (uint32_t i = 0; i < SPIN_LUCK; i++)
		if (spin_begin(&w))
			spin_end(&w, false);
	assert_int_equal(w.luck, 0);
	for (uint32_t i = 0; i < 10 * SPIN_RETRY; i++)
		if (spin_begin(&w)) {
			tried++;
			spin_end(&w, false);
		}
	assert_in_range(tried, 9, 10);
	/* Once that it brought something: it is done again. */
	while (!spin_begin(&w))
		;
	spin_end(&w, true);
	assert_true(spin_begin(&w));
	/* As long as two of three do; what it has gained is bounded. */
	for (uint32_t i = 0; i < 1000; i++) {
		spin_end(&w, true);
		spin_end(&w, true);
		spin_end(&w, true);
		spin_end(&w, false);
		assert_true(spin_begin(&w));
	}
	assert_in_range(w.luck, 1, SPIN_LUCK);
}

static void spin__is_not_done_where_there_is_one_processor(void **state)
{
	cpu_set_t all, one;
	struct spin w;
	int cpu = sched_getcpu();

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	spin_init(&w);
	for (uint32_t i = 0; i < 10 * SPIN_RETRY; i++)
		assert_false(spin_begin(&w));
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	spin_init(&w);
	assert_int_equal(spin_begin(&w), CPU_COUNT(&all) > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			wire_parse__accepts_a_sealed_header_and_nothing_with_one_bit_changed),
		cmocka_unit_test(wire_parse__accepts_only_what_a_tenant_may_send),
		cmocka_unit_test(wire_parse__bounds_every_payload),
		cmocka_unit_test(wire_parse__takes_no_memory_and_no_payload_with_what_clears),
		cmocka_unit_test(wire_parse__takes_features_that_nobody_knows),
		cmocka_unit_test(qos__keeps_the_rate_within_two_percent_over_ten_seconds),
		cmocka_unit_test(qos__gives_at_most_the_burst_after_a_pause),
		cmocka_unit_test(qos__tells_when_to_try_again),
		cmocka_unit_test(qos__without_a_rate_never_waits_and_does_not_overflow),
		cmocka_unit_test(qos__a_debt_is_of_tokens_whatever_the_rate_becomes),
		cmocka_unit_test(qos__of_what_was_drawn_is_left_as_much_as_the_rate_is_now),
		cmocka_unit_test(qos__what_a_lowered_rate_takes_is_not_owed),
		cmocka_unit_test(spin__stops_when_it_brings_nothing_and_tries_now_and_then),
		cmocka_unit_test(spin__is_not_done_where_there_is_one_processor),
		cmocka_unit_test(slots__of_a_session_and_a_tenant_are_capped),
		cmocka_unit_test(slots__of_one_storage_leave_half_to_another),
		cmocka_unit_test(slots__of_several_storages_leave_each_its_share),
		cmocka_unit_test(slots__of_a_tenants_own_memory_are_where_they_were_said_to_be),
		cmocka_unit_test(share__keeps_each_tenants_first_entries_whatever_others_hold),
		cmocka_unit_test(uidmap__finds_a_grant_among_thousands_without_a_look_at_each),
		cmocka_unit_test(uidmap__never_forgets_what_was_withdrawn),
		cmocka_unit_test(uidmap__keeps_of_what_is_over_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
