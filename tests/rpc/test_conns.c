/* SPDX-License-Identifier: Apache-2.0 */
/* Who of a full table goes: conns_table.c by itself, with a clock and connections of its own. */
#include "common/clock.h"
#include "proto/rpc/conns_priv.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PLACES 64
#define S      NS_PER_S

static struct conns_table table;
static int next_fd;

static struct host_key host(const char *text)
{
	struct sockaddr_storage ss;

	memset(&ss, 0, sizeof(ss));
	if (strchr(text, ':')) {
		ss.ss_family = AF_INET6;
		assert_int_equal(
			inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&ss)->sin6_addr), 1);
	} else {
		ss.ss_family = AF_INET;
		assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)&ss)->sin_addr),
		                 1);
	}
	return host_key_of(&ss);
}

/* From @at, accepted at @ns; with @group it has made a call then, that is over. */
static struct rpc_conn *conn(const char *at, const char *group, uint64_t ns)
{
	struct rpc_conn *k = calloc(1, sizeof(*k));
	struct host_key from = host(at);

	assert_non_null(k);
	k->fd = ++next_fd;
	k->since_ns = ns;
	snprintf(k->address, sizeof(k->address), "%s %d", at, k->fd);
	list_init(&k->of_source);
	assert_true(conns_add(&table, k, &from));
	if (!group)
		return k;
	conns_called(&table, k, group, ns);
	conns_call_over(k, ns);
	return k;
}

static struct rpc_conn *choose(const char *from, uint64_t now_ns)
{
	struct host_key h;

	if (!from)
		return conns_choose(&table, NULL, PLACES, now_ns);
	h = host(from);
	return conns_choose(&table, &h, PLACES, now_ns);
}

static int clear(void **state)
{
	conns_clear(&table);
	assert_int_equal(conns_count(&table), 0);
	assert_null(table.sources);
	assert_null(table.owners);
	assert_int_equal(table.uncalled, 0);
	return 0;
}

static void host_key__is_an_ipv4_address_or_a_64_of_ipv6(void **state)
{
	static const struct {
		const char *a, *b;
		bool same;
	} pairs[] = {
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
		{"2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"::c000:201", "192.0.2.1", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct host_key a = host(pairs[i].a), b = host(pairs[i].b);

		if (!memcmp(&a, &b, sizeof(a)) != pairs[i].same)
			fail_msg("%s and %s", pairs[i].a, pairs[i].b);
	}
}

static void conns_table__counts_a_64_together(void **state)
{
	struct host_key h = host("2001:db8::99");

	conn("2001:db8::1", NULL, S);
	conn("2001:db8::2", NULL, S);
	conn("2001:db8:0:1::2", NULL, S);
	assert_int_equal(conns_count_source(&table, &h), 2);
	assert_int_equal(conns_count(&table), 3);
}

static void conns_choose__without_a_call_first_and_of_the_address_with_most(void **state)
{
	struct rpc_conn *oldest_of_most, *only = conn("192.0.2.1", NULL, 1 * S);

	conn("192.0.2.1", "beta", 1 * S);
	oldest_of_most = conn("192.0.2.2", NULL, 2 * S);
	conn("192.0.2.2", NULL, 3 * S);
	assert_ptr_equal(choose(NULL, 100 * S), oldest_of_most);
	/* Only those of the address that has its share already. */
	assert_ptr_equal(choose("192.0.2.1", 100 * S), only);
}

static void conns_choose__leaves_a_handshake_its_time_beside_idle_ones(void **state)
{
	struct rpc_conn *alpha, *idle;

	idle = conn("192.0.2.1", "beta", 90 * S);
	for (int i = 0; i < 20; i++)
		conn("192.0.2.1", "beta", 91 * S);
	alpha = conn("192.0.2.1", NULL, 100 * S);
	assert_ptr_equal(choose(NULL, 100 * S + S / 2), idle);
	assert_ptr_equal(choose("192.0.2.1", 100 * S + S / 2), idle);
	/* That is over. */
	assert_ptr_equal(choose(NULL, 102 * S), alpha);
}

static void conns_choose__a_flood_of_handshakes_ends_its_own(void **state)
{
	struct rpc_conn *first = NULL, *alpha;

	conn("192.0.2.7", "alpha", 1 * S);
	alpha = conn("192.0.2.1", NULL, 100 * S);
	for (unsigned i = 0; i <= CONNS_YOUNG_EACH; i++) {
		struct rpc_conn *k = conn("192.0.2.2", NULL, 100 * S + i);

		first = first ? first : k;
	}
	assert_ptr_equal(choose(NULL, 100 * S + 99), first);
	assert_ptr_not_equal(choose(NULL, 100 * S + 99), alpha);
}

/* From as many addresses as they like, none of which has more than a few. */
static void conns_choose__young_ones_are_no_more_than_a_quarter_beside_idle_ones(void **state)
{
	char at[32];

	for (int i = 0; i < PLACES / 2; i++)
		conn("192.0.2.7", "alpha", 1 * S);
	for (int i = 0; i <= PLACES / 4; i++) {
		snprintf(at, sizeof(at), "198.51.100.%d", i);
		conn(at, NULL, 100 * S + (uint64_t)i);
		assert_int_equal(choose(NULL, 100 * S + 99)->called, i < PLACES / 4);
	}
}

static void conns_choose__the_longest_idle_of_the_group_that_holds_most(void **state)
{
	struct rpc_conn *longest, *busy;

	conn("192.0.2.1", "alpha", 1 * S);
	busy = conn("192.0.2.1", "beta", 2 * S);
	longest = conn("192.0.2.2", "beta", 3 * S);
	conn("192.0.2.3", "beta", 4 * S);
	conns_called(&table, busy, "beta", 2 * S);
	assert_ptr_equal(choose(NULL, 100 * S), longest);
	conns_call_over(busy, 5 * S);
	assert_ptr_equal(choose(NULL, 100 * S), longest);
	conns_called(&table, longest, "beta", 6 * S);
	assert_string_equal(choose(NULL, 100 * S)->address, "192.0.2.3 4");
	conns_call_over(longest, 6 * S);
}

/* What a group has elsewhere does not count where an address is full. */
static void conns_choose__at_an_address_what_counts_is_what_is_held_there(void **state)
{
	for (int i = 0; i < 20; i++)
		conn("192.0.2.9", "alpha", 1 * S);
	conn("192.0.2.1", "alpha", 1 * S);
	for (int i = 0; i < 5; i++)
		conn("192.0.2.1", "beta", 2 * S);
	assert_string_equal(choose("192.0.2.1", 100 * S)->owner->name, "beta");
	assert_string_equal(choose(NULL, 100 * S)->owner->name, "alpha");
}

static void conns_choose__nobody_with_few_and_a_call_lately_nor_with_one_in_flight(void **state)
{
	struct rpc_conn *k[CONNS_FEW + 1];

	for (int i = 0; i < CONNS_FEW; i++)
		k[i] = conn("192.0.2.1", "alpha", 100 * S);
	assert_null(choose(NULL, 101 * S));
	assert_ptr_equal(choose(NULL, 100 * S + CONNS_RECENT_MS * NS_PER_MS), k[0]);
	/* Few there are not any more. */
	k[CONNS_FEW] = conn("192.0.2.1", "alpha", 100 * S);
	assert_ptr_equal(choose(NULL, 101 * S), k[0]);
	for (int i = 0; i <= CONNS_FEW; i++)
		conns_called(&table, k[i], "alpha", 100 * S);
	assert_null(choose(NULL, 1000 * S));
	for (int i = 0; i <= CONNS_FEW; i++)
		conns_call_over(k[i], 100 * S);
}

static void conns_crowded__at_more_than_three_quarters_of_an_address_or_of_all(void **state)
{
	struct rpc_conn *k[8];

	for (int i = 0; i < 8; i++) {
		k[i] = conn(i < 4 ? "192.0.2.1" : "192.0.2.2", NULL, 1 * S);
		conns_called(&table, k[i], "beta", 1 * S);
		conns_called(&table, k[i], "beta", 1 * S);
		assert_int_equal(conns_crowded(&table, k[i], 4, 8), i == 3 || i > 5);
		assert_int_equal(conns_crowded(&table, k[i], 8, 8), i > 5);
		assert_false(conns_crowded(&table, k[i], 16, 16));
	}
	conns_called(&table, k[0], "alpha", 1 * S);
	assert_false(conns_crowded(&table, k[0], 4, 8));
	assert_int_equal(k[1]->owner->busy, 7);
	for (int i = 0; i < 8; i++) {
		conns_call_over(k[i], 1 * S);
		conns_call_over(k[i], 1 * S);
	}
	assert_int_equal(k[1]->owner->busy, 0);
	assert_int_equal(k[0]->owner->busy, 1);
	conns_call_over(k[0], 1 * S);
	assert_int_equal(k[0]->owner->busy, 0);
}

/* The last call of one that is gone frees it. */
static void conns_table__a_call_may_outlive_its_connection(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "alpha", 1 * S);

	conns_called(&table, k, "alpha", 2 * S);
	conns_called(&table, k, "gamma", 2 * S);
	assert_string_equal(k->owner->name, "gamma");
	conns_remove(&table, k);
	conns_call_over(k, 3 * S);
	conns_call_over(k, 3 * S);
}

/* True at the first that is one too many. */
static bool too_many(struct rpc_conn *k, unsigned n, uint64_t now_ns)
{
	while (n--)
		if (conns_futile(k, now_ns))
			return true;
	return false;
}

static void conns_futile__are_a_groups_and_are_forgotten_in_time(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "alpha", S), *other;

	assert_false(too_many(k, CONNS_FUTILE, S));
	assert_true(conns_futile(k, S));
	/* Whoever comes again begins where it was; a neighbour at the same address does not. */
	conns_remove(&table, k);
	conns_sweep(&table, S);
	k = conn("192.0.2.1", "alpha", S);
	assert_true(conns_futile(k, S));
	other = conn("192.0.2.1", "beta", S);
	assert_false(too_many(other, CONNS_FUTILE, S));
	/* What is one too many does not count for later. */
	assert_true(too_many(k, 100000, S));
	assert_false(too_many(k, CONNS_FUTILE_PER_S, 2 * S));
	assert_true(conns_futile(k, 2 * S));
	assert_false(too_many(k, CONNS_FUTILE, 10 * S));
	conns_remove(&table, k);
	conns_remove(&table, other);
	conns_sweep(&table, 10 * S);
	assert_int_equal(HASH_COUNT(table.owners), 1);
	/* Nor that it is slow. */
	conns_sweep(&table, 22 * S);
	assert_int_equal(HASH_COUNT(table.owners), 0);
}

static void conns_futile__of_callers_not_known_are_the_connections(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", NULL, S), *other = conn("192.0.2.1", NULL, S);

	conns_called(&table, k, NULL, S);
	assert_false(too_many(k, CONNS_FUTILE, S));
	assert_true(conns_futile(k, S));
	assert_false(conns_futile(other, S));
	conns_call_over(k, S);
}

/* ---- who kept the listener from its work ---- */

static bool may_come(const char *from, uint64_t now_ns)
{
	struct host_key h = host(from);

	return !conns_held_off_ms(&table, &h, now_ns);
}

static void conns_punish__lets_one_at_a_time_come_and_more_rarely_each_time(void **state)
{
	static const uint64_t each_s[] = {1, 2, 4, 8, 16, 16};
	uint64_t now = 100 * S;

	for (size_t i = 0; i < ARRAY_SIZE(each_s); i++) {
		struct rpc_conn *a = conn("192.0.2.1", NULL, now),
				*b = conn("192.0.2.1", NULL, now);

		conns_punish(a, 1, 1, now);
		conns_punish(b, 1, 1, now); /* together: once */
		conns_remove(&table, a);
		conns_remove(&table, b);
		assert_false(may_come("192.0.2.1", now + each_s[i] * S - 1));
		assert_true(may_come("192.0.2.2", now));
		now += each_s[i] * S;
		assert_true(may_come("192.0.2.1", now));
		assert_false(may_come("192.0.2.1", now));
	}
	/* Ten times as long without another: it is as any. */
	now += 10 * 16 * S;
	conns_sweep(&table, now);
	assert_null(table.sources);
	conns_punish(conn("192.0.2.1", NULL, now), 1, 1, now);
	assert_true(may_come("192.0.2.1", now + S));
}

/* From sixteen addresses sixteen would come again each second. */
static void conns_punish__the_more_they_are_the_slower(void **state)
{
	struct rpc_conn *one = conn("192.0.2.1", NULL, S), *other = conn("192.0.2.2", NULL, S);

	conns_punish(one, 4, 4, S);
	conns_punish(other, 100, 100, S);
	assert_false(may_come("192.0.2.1", 5 * S - 1));
	assert_true(may_come("192.0.2.1", 5 * S));
	assert_false(may_come("192.0.2.2", 17 * S - 1));
	assert_true(may_come("192.0.2.2", 17 * S));
	/* Fewer the next time: doubled all the same. And a neighbour waits for none of it. */
	conns_punish(one, 1, 1, 18 * S);
	assert_false(may_come("192.0.2.1", 26 * S - 1));
	assert_true(may_come("192.0.2.1", 26 * S));
	conn("192.0.2.1", "alpha", 27 * S);
	conns_punish(conn("192.0.2.1", "beta", 27 * S), 100, 100, 27 * S);
	assert_true(may_come("192.0.2.1", 28 * S));
}

/* All at once they would keep it as the first time. Of more than come in a second some do. */
static void conns_punish__who_was_ended_together_comes_again_one_by_one(void **state)
{
	static const struct {
		size_t place, together;
		uint64_t after_s;
	} each[] = {{1, 4, 1},  {2, 4, 2},    {3, 4, 3},    {4, 4, 4},     {1, 64, 1},
	            {4, 64, 1}, {5, 64, 2},   {64, 64, 16}, {1, 3, 1},     {2, 3, 2},
	            {1, 1, 1},  {13, 13, 13}, {7, 13, 7},   {1, 10000, 1}, {9999, 10000, 16}};
	char at[32];

	for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
		uint64_t after = each[i].after_s * S;

		snprintf(at, sizeof(at), "192.0.2.%zu", i + 1);
		conns_punish(conn(at, NULL, S), each[i].place, each[i].together, S);
		assert_false(may_come(at, S + after - 1));
		assert_true(may_come(at, S + after));
	}
	/* A neighbour waits no longer for it. */
	conn("192.0.2.100", "alpha", S);
	conns_punish(conn("192.0.2.100", "beta", S), 3, 4, S);
	assert_true(may_come("192.0.2.100", 2 * S));
}

/* It has more addresses than one, and each of them would begin anew. */
static void conns_punish__a_group_takes_it_along_to_its_addresses(void **state)
{
	struct rpc_conn *k;

	for (uint64_t i = 0; i < 3; i++) {
		char at[32];

		snprintf(at, sizeof(at), "192.0.2.%u", (unsigned)i + 1);
		k = conn(at, "beta", S);
		conns_punish(k, 1, 1, S + i);
		conns_remove(&table, k);
	}
	assert_true(may_come("192.0.2.1", 2 * S));
	assert_false(may_come("192.0.2.3", 5 * S));
	assert_true(may_come("192.0.2.3", 5 * S + 2));
	/* Who was a neighbour there takes nothing along. */
	conn("192.0.2.3", "alpha", 6 * S);
	k = conn("192.0.2.4", "alpha", 6 * S);
	conns_punish(k, 1, 1, 6 * S);
	assert_true(may_come("192.0.2.4", 7 * S));
}

/* Its new connections go on one each second, among the flooder's: what he does is not made theirs.
 */
static void conns_punish__is_not_doubled_where_a_neighbour_is(void **state)
{
	struct rpc_conn *alpha = conn("192.0.2.1", "alpha", S), *k;
	uint64_t now = S;

	for (size_t i = 0; i < 4; i++, now += S) {
		k = conn("192.0.2.1", "beta", now);
		conns_punish(k, 1, 1, now);
		conns_remove(&table, k);
		assert_false(may_come("192.0.2.1", now));
		assert_true(may_come("192.0.2.1", now + S));
	}
	/* No neighbour: his own, that of whoever is not known, or nobody's, and one who does the
	 * same. */
	k = conn("192.0.2.2", "beta", now);
	conn("192.0.2.2", "beta", now);
	conn("192.0.2.2", NULL, now);
	conn("192.0.2.2", RPC_GROUP_NOBODY, now);
	conns_punish(k, 1, 1, now);
	assert_false(may_come("192.0.2.2", now + 15 * S));
	assert_true(may_come("192.0.2.2", now + 16 * S));
	conns_punish(alpha, 1, 1, now);
	k = conn("192.0.2.1", "beta", now + 1);
	conns_punish(k, 1, 1, now + 1);
	assert_false(may_come("192.0.2.1", now + 15 * S));
}

/* It makes a call over one, and floods over others before their first. */
static void conns_punish__who_is_not_known_may_be_who_is_there(void **state)
{
	struct rpc_conn *quiet = conn("192.0.2.1", "beta", S), *k;
	uint64_t now = S;

	for (uint64_t each = 1; each <= 4; now += each * S, each *= 2) {
		k = conn("192.0.2.1", NULL, now);
		conns_punish(k, 1, 1, now);
		conns_remove(&table, k);
		assert_false(may_come("192.0.2.1", now + each * S - 1));
	}
	assert_int_equal(quiet->owner->slow.until_ns, 0);
	/* Of two one is not. */
	conn("192.0.2.1", "alpha", now);
	k = conn("192.0.2.1", NULL, now);
	conns_punish(k, 1, 1, now);
	assert_true(may_come("192.0.2.1", now + S));
}

static void conns_futile__again_soon_makes_the_address_slow_where_no_neighbour_is(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S), *alpha;

	assert_false(too_many(k, CONNS_FUTILE, S));
	assert_true(conns_futile(k, S));
	conns_remove(&table, k);
	assert_true(may_come("192.0.2.1", S));
	k = conn("192.0.2.1", "beta", S + 1);
	alpha = conn("192.0.2.1", "alpha", S + 1);
	assert_true(conns_futile(k, S + 1));
	assert_true(may_come("192.0.2.1", S + 1));
	conns_remove(&table, alpha);
	assert_true(conns_futile(k, S + 2));
	conns_remove(&table, k);
	assert_false(may_come("192.0.2.1", S + 3));
	assert_true(may_come("192.0.2.1", 20 * S));
}

static int numbered(void **state)
{
	next_fd = 0;
	return 0;
}

#define one(t) cmocka_unit_test_setup_teardown(t, numbered, clear)

int main(void)
{
	const struct CMUnitTest tests[] = {
		one(host_key__is_an_ipv4_address_or_a_64_of_ipv6),
		one(conns_table__counts_a_64_together),
		one(conns_choose__without_a_call_first_and_of_the_address_with_most),
		one(conns_choose__leaves_a_handshake_its_time_beside_idle_ones),
		one(conns_choose__a_flood_of_handshakes_ends_its_own),
		one(conns_choose__young_ones_are_no_more_than_a_quarter_beside_idle_ones),
		one(conns_choose__the_longest_idle_of_the_group_that_holds_most),
		one(conns_choose__at_an_address_what_counts_is_what_is_held_there),
		one(conns_choose__nobody_with_few_and_a_call_lately_nor_with_one_in_flight),
		one(conns_crowded__at_more_than_three_quarters_of_an_address_or_of_all),
		one(conns_table__a_call_may_outlive_its_connection),
		one(conns_futile__are_a_groups_and_are_forgotten_in_time),
		one(conns_futile__of_callers_not_known_are_the_connections),
		one(conns_punish__lets_one_at_a_time_come_and_more_rarely_each_time),
		one(conns_punish__the_more_they_are_the_slower),
		one(conns_punish__who_was_ended_together_comes_again_one_by_one),
		one(conns_punish__a_group_takes_it_along_to_its_addresses),
		one(conns_punish__is_not_doubled_where_a_neighbour_is),
		one(conns_punish__who_is_not_known_may_be_who_is_there),
		one(conns_futile__again_soon_makes_the_address_slow_where_no_neighbour_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
