/* SPDX-License-Identifier: Apache-2.0 */
/* Who of a full table goes, and what of whom is read: conns_table.c by itself, with a clock and
 * connections of its own. */
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

static void conns_choose__of_callers_not_known_one_with_a_call_in_flight_too(void **state)
{
	struct rpc_conn *k[4], *young;

	for (int i = 0; i < 4; i++) {
		k[i] = conn(i < 2 ? "192.0.2.1" : i < 3 ? "192.0.2.2" : "192.0.2.3", NULL, S);
		conns_called(&table, k[i], i == 3 ? "alpha" : NULL, (uint64_t)(10 - i) * S);
	}
	young = conn("192.0.2.4", NULL, 10 * S);
	/* Of the address with most, the oldest; never one who is known. */
	assert_ptr_equal(choose(NULL, 10 * S), k[1]);
	conns_remove(&table, k[1]);
	assert_ptr_equal(choose(NULL, 10 * S), k[2]);
	assert_ptr_equal(choose("192.0.2.1", 10 * S), k[0]);
	assert_null(choose("192.0.2.3", 10 * S));
	for (int i = 0; i < 4; i++)
		conns_call_over(k[i], 10 * S);
	assert_ptr_equal(choose("192.0.2.4", 10 * S), young);
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
	conns_sweep(&table, 13 * S);
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

static bool refused(struct rpc_conn *k, const char *group)
{
	conns_called(&table, k, group, S);
	return conns_refused(k);
}

static void conns_refused__are_a_groups_or_an_addresss_until_they_are_taken(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S), *other = conn("192.0.2.2", "beta", S),
			*strange[] = {conn("192.0.2.3", NULL, S), conn("192.0.2.3", NULL, S)};
	const struct conn_owner *beta = k->owner;

	for (unsigned i = 0; i < CONNS_REFUSALS; i++) {
		assert_false(refused(k, "beta"));
		assert_false(refused(strange[0], NULL));
	}
	assert_true(refused(other, "beta"));
	assert_true(refused(strange[1], NULL));
	conns_refusal_over(k, S);
	assert_int_equal(beta->refusals, CONNS_REFUSALS);
	/* What is left of one that is gone is nobody's. */
	conns_remove(&table, other);
	assert_int_equal(beta->refusals, CONNS_REFUSALS - 1);
	conns_refusal_over(other, S);
	conns_refusal_over(strange[1], S);
	for (unsigned i = 0; i < CONNS_REFUSALS; i++) {
		conns_refusal_over(strange[0], S);
		if (i)
			conns_refusal_over(k, S);
	}
	assert_int_equal(beta->refusals, 0);
	assert_int_equal(strange[0]->source->refusals, 0);
	assert_int_equal(k->calls, 0);
}

/* ---- what gRPC gets to read ---- */

#define EACH 10000u

static size_t may_read(struct rpc_conn *k)
{
	bool again;

	return conns_may_read(&table, k, EACH, &again);
}

/* As gRPC does: until it is told that there is nothing. Bytes; *ret_again: it is to look again. */
static size_t read_all(struct rpc_conn *k, bool *ret_again)
{
	size_t n, all = 0;

	while ((n = conns_may_read(&table, k, EACH, ret_again))) {
		conns_has_read(&table, k, n);
		all += n;
	}
	return all;
}

static unsigned gone_on;
static const struct rpc_conn *in_order[8];

static void goes_on(const struct rpc_conn *k)
{
	in_order[gone_on++] = k;
}

static unsigned next_turn(void)
{
	gone_on = 0;
	conns_next_turn(&table, goes_on);
	return gone_on;
}

static void conns_may_read__a_connection_pauses_even_if_nobody_else_has_anything(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S);
	bool again;

	table.idle = true;
	for (int i = 0; i < CONNS_READ_IDLE - 1; i++) {
		assert_int_equal(read_all(k, &again), EACH);
		assert_true(again);
		/* gRPC asks once more without having polled where it had room left. */
		assert_int_equal(may_read(k), 0);
	}
	/* In small pieces it is the same. */
	assert_int_equal(may_read(k), EACH);
	conns_has_read(&table, k, EACH / 2);
	assert_int_equal(may_read(k), EACH / 2);
	conns_has_read(&table, k, EACH / 2);
	assert_int_equal(table.held, 0);
	/* It may have called, and nobody has woken up yet. */
	while (!read_all(k, &again) && again)
		;
	assert_int_equal(table.held, 1);
	assert_int_equal(next_turn(), 1);
	assert_int_equal(may_read(k), EACH);
}

/* Of small records more is counted than was read. */
static void conns_owes__counts_in_the_turn_and_against_nobody(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S), *other = conn("192.0.2.2", "beta", S);

	table.idle = false;
	conns_has_read(&table, k, 23);
	assert_int_equal(may_read(other), EACH - 23);
	conns_owes(&table, k, EACH - 23);
	assert_int_equal(may_read(other), 0);
	assert_int_equal(k->useless, 23);
	assert_int_equal(k->owner->useless, 23);
}

static void conns_may_read__a_group_waits_until_its_own_is_handled(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S), *other = conn("192.0.2.2", "beta", S),
			*alpha = conn("192.0.2.1", "alpha", S);
	bool again;

	table.idle = false;
	conns_has_read(&table, k, EACH - 1);
	assert_int_equal(may_read(other), 1); /* of the same */
	conns_has_read(&table, other, 1);
	assert_int_equal(read_all(other, &again), 0);
	assert_false(again);
	assert_int_equal(read_all(other, &again), 0);
	assert_int_equal(table.held, 1);
	assert_int_equal(read_all(alpha, &again), EACH);
	/* Once: who is held is told once. */
	assert_int_equal(next_turn(), 1);
	assert_ptr_equal(in_order[0], other);
	assert_int_equal(next_turn(), 0);
	assert_int_equal(may_read(other), EACH - 1); /* and then it pauses */
	/* One that goes meanwhile is held no longer. */
	conns_has_read(&table, k, EACH);
	assert_int_equal(read_all(other, &again), 0);
	assert_int_equal(table.held, 1);
	conns_remove(&table, other);
	assert_int_equal(table.held, 0);
}

/* Who polls while nothing is left to be handled is not kept from it, but what was read then
 * counts as soon as it is not. */
static void conns_may_read__counts_from_the_last_that_was_handled(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S);
	bool again;

	next_turn();
	table.idle = true;
	assert_int_equal(read_all(k, &again), EACH);
	table.idle = false;
	while (!may_read(k) && !table.held)
		;
	assert_int_equal(table.held, 1);
	next_turn();
	assert_int_equal(may_read(k), EACH);
}

/* The oldest of many would have something again before the youngest had any. */
static void conns_may_read__who_waits_longest_goes_on_first(void **state)
{
	struct rpc_conn *k[5];
	bool again;

	table.idle = false;
	for (size_t i = 0; i < ARRAY_SIZE(k); i++)
		k[i] = conn("192.0.2.1", NULL, S);
	for (size_t turn = 0; turn < 3 * ARRAY_SIZE(k); turn++) {
		const struct rpc_conn *first = turn ? in_order[0] : k[0];

		assert_ptr_equal(first, k[turn % ARRAY_SIZE(k)]);
		conns_has_read(&table, (struct rpc_conn *)first, CONNS_READ_UNCALLED);
		for (size_t i = 0; i < ARRAY_SIZE(k); i++)
			while (!read_all(k[(i + 1) % ARRAY_SIZE(k)], &again) && again)
				;
		assert_int_equal(table.held, ARRAY_SIZE(k));
		assert_int_equal(next_turn(), ARRAY_SIZE(k));
	}
}

/* Nobody knows whose they are: they share what their address has, and a call changes that. */
static void conns_may_read__without_a_call_it_is_a_little_of_the_address(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", NULL, S), *other = conn("192.0.2.1", NULL, S),
			*elsewhere = conn("192.0.2.2", NULL, S);
	bool again;

	table.idle = false;
	assert_int_equal(read_all(k, &again), CONNS_READ_UNCALLED);
	assert_true(again);
	assert_int_equal(read_all(other, &again), 0);
	assert_false(again);
	assert_int_equal(read_all(elsewhere, &again), CONNS_READ_UNCALLED);
	conns_called(&table, other, "beta", S);
	conns_call_over(other, S);
	assert_int_equal(read_all(other, &again), EACH);
}

/* Until it is held, or has had far too much. */
static void exhaust(struct rpc_conn *k)
{
	bool again;

	for (int i = 0; i < 100 && !table.held; i++)
		(void)read_all(k, &again);
}

/* Its first call comes while it is held: what it may have is its group's from then on. */
static void conns_may_read__who_was_held_and_reads_on_is_let_go_on_again(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", NULL, S);

	table.idle = false;
	exhaust(k);
	assert_int_equal(table.held, 1);
	conns_called(&table, k, "beta", S);
	conns_has_read(&table, k, may_read(k));
	assert_int_equal(next_turn(), 0);
	exhaust(k);
	assert_int_equal(table.held, 1);
	assert_int_equal(next_turn(), 1);
}

/* ---- what becomes nothing ---- */

#define MESSAGE 1000u /* bytes */

static bool useless(struct rpc_conn *k, size_t n, uint64_t now_ns)
{
	conns_has_read(&table, k, n);
	return conns_is_useless(k, MESSAGE, 0, now_ns);
}

static void conns_is_useless__what_was_no_call_and_no_message(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", NULL, S);

	assert_false(useless(k, CONNS_USELESS, S));
	assert_true(useless(k, 1, S));
	/* A call begins; a message may be on its way. */
	conns_called(&table, k, "beta", S);
	assert_false(useless(k, CONNS_USELESS + MESSAGE, S));
	assert_true(useless(k, 1, S));
	/* What was a message is none of it any more; nor is what is left when the call is over. */
	conns_message(k);
	assert_false(useless(k, CONNS_USELESS + MESSAGE, S));
	conns_call_over(k, S);
	assert_false(useless(k, CONNS_USELESS + MESSAGE, S));
	assert_true(useless(k, 1, S));
}

/* Many connections would have many times as much. */
static void conns_is_useless__of_a_group_only_so_much(void **state)
{
	struct rpc_conn *k[CONNS_USELESS_GROUP / CONNS_USELESS],
		*alpha = conn("192.0.2.1", "alpha", S);

	for (size_t i = 0; i < ARRAY_SIZE(k); i++) {
		k[i] = conn("192.0.2.1", "beta", S);
		assert_false(useless(k[i], CONNS_USELESS, S));
	}
	assert_true(useless(conn("192.0.2.2", "beta", S), 1, S));
	assert_false(useless(alpha, 1, S));
	/* Each that goes, or has a call or a message, makes room. */
	conns_message(k[0]);
	assert_false(useless(k[1], 0, S));
	conns_has_read(&table, k[0], CONNS_USELESS);
	assert_true(useless(k[1], 0, S));
	conns_remove(&table, k[0]);
	assert_false(useless(k[1], 0, S));
	conns_called(&table, k[2], "alpha", S);
	conns_call_over(k[2], S);
	assert_int_equal(k[1]->owner->useless, CONNS_USELESS_GROUP - 2 * CONNS_USELESS + 1);
	assert_int_equal(alpha->owner->useless, 1);
}

static void conns_is_useless__but_for_some_each_second_and_for_what_we_sent(void **state)
{
	struct rpc_conn *k = conn("192.0.2.1", "beta", S);
	uint64_t now = S;

	assert_false(useless(k, CONNS_USELESS + MESSAGE, now));
	for (int i = 0; i < 10; i++)
		assert_false(useless(k, CONNS_USELESS_PER_S, now += S));
	assert_true(useless(k, 1, now));
	/* A long time forgives all there is, and nothing of what comes later. */
	assert_false(useless(k, 0, now += 1000000 * S));
	assert_true(useless(k, CONNS_USELESS + MESSAGE + 1, now));
	/* Nor does what we sent. */
	assert_false(conns_is_useless(k, MESSAGE, 8, now));
	assert_true(useless(k, 1, now));
	assert_true(conns_is_useless(k, MESSAGE, 8, now));
	assert_false(conns_is_useless(k, MESSAGE, 1u << 30, now));
	assert_true(useless(k, CONNS_USELESS + MESSAGE + 1, now));
	assert_true(conns_is_useless(k, MESSAGE, 1u << 30, now));
}

static int numbered(void **state)
{
	next_fd = 0;
	conns_init(&table);
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
		one(conns_choose__of_callers_not_known_one_with_a_call_in_flight_too),
		one(conns_crowded__at_more_than_three_quarters_of_an_address_or_of_all),
		one(conns_table__a_call_may_outlive_its_connection),
		one(conns_futile__are_a_groups_and_are_forgotten_in_time),
		one(conns_futile__of_callers_not_known_are_the_connections),
		one(conns_refused__are_a_groups_or_an_addresss_until_they_are_taken),
		one(conns_may_read__a_connection_pauses_even_if_nobody_else_has_anything),
		one(conns_may_read__a_group_waits_until_its_own_is_handled),
		one(conns_owes__counts_in_the_turn_and_against_nobody),
		one(conns_may_read__counts_from_the_last_that_was_handled),
		one(conns_may_read__who_waits_longest_goes_on_first),
		one(conns_may_read__without_a_call_it_is_a_little_of_the_address),
		one(conns_may_read__who_was_held_and_reads_on_is_let_go_on_again),
		one(conns_is_useless__what_was_no_call_and_no_message),
		one(conns_is_useless__of_a_group_only_so_much),
		one(conns_is_useless__but_for_some_each_second_and_for_what_we_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
