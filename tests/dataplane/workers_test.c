/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control workers by themselves: how many calls of whom are inside which engine at once. A call
 * here is inside until the test lets it go. What must never be is looked at as each one begins;
 * what must come about is waited for. Nothing is said of how long anything takes.
 */
#include "common/util.h"
#include "dataplane/dp_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/testing.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define CALLS   256
#define TENANTS 12
#define ENGINES 4

struct call {
	struct dp_op op;
	unsigned tenant, engine;
	bool closes;
	sem_t go;
	_Atomic bool inside, back;
};

static struct call calls[CALLS];
static unsigned n_calls;
static struct dp_tenant tenants[TENANTS];
static struct dp_engine engines[ENGINES];
static _Atomic bool lost[ENGINES];
static struct workers *w;

/* ---- what is inside ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct inside {
	unsigned all, closes, of[TENANTS], at[ENGINES], there[TENANTS][ENGINES],
		closing_at[ENGINES];
} now, most; /* most: the largest that each has been */

static void note(const struct call *c, int by)
{
	unsigned *cells[] = {&now.all,
	                     &now.of[c->tenant],
	                     &now.at[c->engine],
	                     &now.there[c->tenant][c->engine],
	                     c->closes ? &now.closes : NULL,
	                     c->closes ? &now.closing_at[c->engine] : NULL};

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++) {
		unsigned *top;

		if (!cells[i])
			continue;
		*cells[i] += (unsigned)by;
		top = (unsigned *)((char *)&most + ((char *)cells[i] - (char *)&now));
		*top = MAX(*top, *cells[i]);
	}
	pthread_mutex_unlock(&lock);
}

static void be_inside(struct dp_op *op)
{
	struct call *c = op->arg;

	note(c, 1);
	atomic_store(&c->inside, true);
	sem_wait(&c->go);
	note(c, -1);
}

/* In place of the loop's. A call that was never inside is one that was given back. */
void __wrap_dp_op_back(struct dp_op *op);
void __wrap_dp_op_back(struct dp_op *op)
{
	struct call *c = op->arg;

	atomic_store(&c->back, true);
}

static bool is_lost(struct engine *e, const struct ros2_uid *tenant)
{
	return atomic_load(&lost[(uintptr_t)e - 1]);
}

static const struct engine_ops fake_ops = {.lost = is_lost};

static void setup_workers(unsigned n_workers, unsigned n_engines)
{
	n_calls = 0;
	now = most = (struct inside){0};
	memset(tenants, 0, sizeof(tenants));
	for (unsigned i = 0; i < ENGINES; i++) {
		engines[i] = (struct dp_engine){
			.ops = &fake_ops, .engine = (void *)(uintptr_t)(i + 1), .slot = i};
		atomic_store(&lost[i], false);
	}
	assert_int_equal(workers_new(NULL, n_workers, &w), 0);
	workers_engines(w, n_engines);
}

static struct call *put(unsigned tenant, unsigned engine, bool closes)
{
	struct call *c = &calls[n_calls++];

	assert_in_range(n_calls, 1, CALLS);
	*c = (struct call){.tenant = tenant, .engine = engine, .closes = closes};
	c->op = (struct dp_op){.work = be_inside,
	                       .arg = c,
	                       .engine = &engines[engine],
	                       .tenant = closes ? NULL : &tenants[tenant],
	                       .closes_of = closes ? &tenants[tenant] : NULL,
	                       .efile = closes ? (void *)c : NULL};
	sem_init(&c->go, 0, 0);
	workers_put(w, &c->op);
	return c;
}

/* @each calls of @n tenants from @first on, in turns. */
static void put_many(unsigned first, unsigned n, unsigned each, unsigned engine)
{
	for (unsigned k = 0; k < each; k++)
		for (unsigned t = 0; t < n; t++)
			put(first + t, engine, false);
}

static unsigned look(const unsigned *cell)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = *cell;
	pthread_mutex_unlock(&lock);
	return n;
}

static unsigned inside_at(unsigned engine)
{
	return look(&now.at[engine]);
}

static void expect_load(unsigned slot, unsigned inside, unsigned waiting)
{
	struct dp_control_load l[DP_ENGINES_MAX + 1];

	workers_load(w, l);
	assert_int_equal(l[slot].inside, inside);
	assert_int_equal(l[slot].waiting, waiting);
	assert_int_equal(l[slot].oldest_ns > 0, inside > 0);
}

static void let_all_go(void)
{
	for (unsigned i = 0; i < n_calls; i++)
		sem_post(&calls[i].go);
	for (unsigned i = 0; i < n_calls; i++)
		assert_true(AWAIT(atomic_load(&calls[i].back)));
	for (unsigned i = 0; i < n_calls; i++)
		assert_true(atomic_load(&calls[i].inside));
	for (unsigned i = 0; i <= DP_ENGINES_MAX; i++)
		expect_load(i, 0, 0);
	workers_stop(w);
	workers_free(w);
	for (unsigned i = 0; i < n_calls; i++)
		sem_destroy(&calls[i].go);
}

/* ---- engines ---- */

/* Two of three hang, with as many tenants and calls as there may be. */
static void engines__that_hang_leave_one_worker_to_the_third(void **state)
{
	struct call *c;

	setup_workers(8, 3);
	put_many(0, 6, 4, 0);
	assert_true(AWAIT(inside_at(0) == 4)); /* half */
	put_many(6, 5, 4, 1);
	assert_true(AWAIT(inside_at(1) == 3)); /* what is left, but one */
	c = put(11, 2, false);
	assert_true(AWAIT(atomic_load(&c->inside)));
	let_all_go();
	assert_int_equal(most.at[0], 4);
}

static void control__without_parts_no_worker_is_left(void **state)
{
	struct call *c;

	dp_test_switches.no_engine_share = true;
	setup_workers(8, 3);
	put_many(0, 10, 2, 0);
	assert_true(AWAIT(inside_at(0) == 8));
	c = put(11, 2, false);
	assert_false(atomic_load(&c->inside));
	let_all_go();
	dp_test_switches.no_engine_share = false;
}

/* Of its engine's four a tenant has two; where there is one engine, of all eight four. */
static void engines__that_are_taken_away_leave_their_part(void **state)
{
	setup_workers(8, 2);
	put_many(0, 1, 8, 0);
	assert_true(AWAIT(inside_at(0) == 2));
	assert_int_equal(look(&most.there[0][0]), 2);
	workers_engines(w, 1);
	assert_true(AWAIT(inside_at(0) == 4));
	let_all_go();
	assert_int_equal(most.of[0], 4);
}

/* ---- storage that is lost ---- */

/* One of two is lost, and the calls at the other hang; then it is found. */
static void lost__calls_of_one_engine_have_a_quarter(void **state)
{
	setup_workers(8, 2);
	atomic_store(&lost[0], true);
	put_many(0, 6, 4, 0);
	assert_true(AWAIT(inside_at(0) == 2));
	put_many(6, 6, 4, 1);
	assert_true(AWAIT(inside_at(1) == 4));
	assert_int_equal(look(&most.at[0]), 2);
	atomic_store(&lost[0], false); /* nobody says so: it is looked at again */
	assert_true(AWAIT(inside_at(0) == 4));
	let_all_go();
}

static void lost__calls_of_all_engines_have_half(void **state)
{
	unsigned still;

	setup_workers(8, 4);
	for (unsigned i = 0; i < ENGINES; i++)
		atomic_store(&lost[i], true);
	for (unsigned i = 0; i < ENGINES; i++)
		put_many(i * 3, 3, 4, i);
	assert_true(AWAIT(look(&now.all) == 4));
	atomic_store(&lost[3], false);
	assert_true(AWAIT(look(&now.all) > 4));
	pthread_mutex_lock(&lock);
	still = now.at[0] + now.at[1] + now.at[2];
	pthread_mutex_unlock(&lock);
	assert_in_range(still, 0, 4);
	let_all_go();
}

/* ---- what is closed ---- */

/* A tenant's files at an engine that hangs, and behind them one at another. */
static void closes__at_an_engine_that_hangs_keep_none_at_another(void **state)
{
	struct call *c;

	setup_workers(8, 2);
	for (unsigned i = 0; i < 6; i++)
		put(0, 0, true);
	assert_true(AWAIT(inside_at(0) == 1));
	c = put(0, 1, true);
	assert_true(AWAIT(atomic_load(&c->inside)));
	let_all_go();
	assert_int_equal(most.closing_at[0], 1);
}

/* However many tenants close there: two, and each other engine has one. */
static void closes__of_many_at_engines_that_hang_leave_one_to_the_third(void **state)
{
	struct call *c;

	setup_workers(8, 3);
	for (unsigned t = 0; t < 6; t++)
		put(t, 0, true);
	assert_true(AWAIT(inside_at(0) == 2));
	for (unsigned t = 6; t < 11; t++)
		put(t, 1, true);
	assert_true(AWAIT(inside_at(1) == 1));
	c = put(11, 2, true);
	assert_true(AWAIT(atomic_load(&c->inside)));
	let_all_go();
	assert_int_equal(most.closing_at[0], 2);
	assert_int_equal(most.closes, 4);
}

/* ---- what is told of it ---- */

static void load__is_who_is_inside_and_who_waits(void **state)
{
	struct call *c;

	setup_workers(8, 2);
	put_many(0, 1, 5, 0);
	put_many(1, 1, 1, 1);
	put(2, 1, true);
	c = put(3, 0, false);
	assert_true(AWAIT(inside_at(0) == 3 && inside_at(1) == 2));
	expect_load(0, 3, 3);
	expect_load(1, 2, 0);
	expect_load(2, 0, 0);
	sem_post(&c->go);
	assert_true(AWAIT(atomic_load(&c->back)));
	expect_load(0, 2, 3);
	let_all_go();
}

static void *stop(void *arg)
{
	workers_stop(w);
	return NULL;
}

/* What waits when the workers end is given back without having been inside, and waits no more. */
static void load__of_what_is_given_back_is_none(void **state)
{
	struct call *first;
	pthread_t t;

	setup_workers(1, 1);
	first = put(0, 0, false);
	assert_true(AWAIT(inside_at(0) == 1));
	put_many(0, 2, 3, 0);
	put(1, 0, true);
	expect_load(0, 1, 7);
	assert_int_equal(pthread_create(&t, NULL, stop, NULL), 0);
	for (unsigned i = 1; i < n_calls; i++)
		assert_true(AWAIT(atomic_load(&calls[i].back)));
	expect_load(0, 1, 0);
	sem_post(&first->go);
	pthread_join(t, NULL);
	for (unsigned i = 1; i < n_calls; i++)
		assert_false(atomic_load(&calls[i].inside));
	expect_load(0, 0, 0);
	workers_free(w);
}

/* ---- any order ---- */

static unsigned below(unsigned *seed, unsigned n)
{
	return (unsigned)rand_r(seed) % n;
}

static void check_most(unsigned n_workers, unsigned n_engines)
{
	unsigned half = MAX(n_workers / 2, 1u), closes = n_workers > 3 ? half : MIN(n_workers, 2u);

	assert_in_range(most.all, 1, n_workers);
	assert_in_range(most.closes, 0, closes);
	for (unsigned t = 0; t < TENANTS; t++)
		assert_in_range(most.of[t], 0, half);
	for (unsigned e = 0; e < ENGINES; e++) {
		assert_in_range(most.at[e], 0, n_engines > 1 ? half : n_workers);
		assert_in_range(most.closing_at[e], 0,
		                n_engines > 1 ? MAX(closes / 2, 1u) : closes);
		for (unsigned t = 0; t < TENANTS; t++)
			assert_in_range(most.there[t][e], 0,
			                n_engines > 1 ? MAX(half / 2, 1u) : half);
	}
}

/* Calls come, hang and go in any order; storage is lost and found. Nothing is more than it may be,
 * and in the end each was carried out. */
static void any_order__each_is_carried_out_and_none_has_more_than_its_part(void **state)
{
	static const unsigned sizes[] = {1, 2, 3, 4, 5, 8};
	unsigned seed = 20261127;

	for (unsigned round = 0; round < 120; round++) {
		unsigned n = sizes[below(&seed, ARRAY_SIZE(sizes))];
		unsigned e = 1 + below(&seed, ENGINES), freed = 0;

		setup_workers(n, e);
		for (unsigned i = 0; i < 150; i++) {
			unsigned what = below(&seed, 10);

			if (what < 6)
				put(below(&seed, TENANTS), below(&seed, e), what < 2);
			else if (what < 9 && freed < n_calls)
				sem_post(&calls[freed++].go);
			else
				atomic_store(&lost[below(&seed, e)], below(&seed, 2));
		}
		let_all_go();
		check_most(n, e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engines__that_hang_leave_one_worker_to_the_third),
		cmocka_unit_test(control__without_parts_no_worker_is_left),
		cmocka_unit_test(engines__that_are_taken_away_leave_their_part),
		cmocka_unit_test(lost__calls_of_one_engine_have_a_quarter),
		cmocka_unit_test(lost__calls_of_all_engines_have_half),
		cmocka_unit_test(closes__at_an_engine_that_hangs_keep_none_at_another),
		cmocka_unit_test(closes__of_many_at_engines_that_hang_leave_one_to_the_third),
		cmocka_unit_test(load__is_who_is_inside_and_who_waits),
		cmocka_unit_test(load__of_what_is_given_back_is_none),
		cmocka_unit_test(any_order__each_is_carried_out_and_none_has_more_than_its_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
