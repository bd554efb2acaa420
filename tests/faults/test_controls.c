/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls: what the sweeps look at tells when it is not so. The agent's receipt that does
 * not wait for its disk, a grant and an acknowledgement that do not wait for the store, and a token
 * that serves any key: each is noticed, and nothing is without its switch.
 */
#include "agent/test_switches.h"
#include "controller/store_txn.h"
#include "tests/faults/pair.h"
#include "tests/faults/witness.h"
#include "common/util.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

struct agent_test_switches agent_test_switches;

/* ---- a slow disk at the agent: a revocation is written when the receipt could long be here ----
 */

#define SLOW_US 400000

static _Atomic bool slow;

int __real_revlog_write(struct revlog *l, const struct tombstone *t, struct ros2_err *err);
int __wrap_revlog_write(struct revlog *l, const struct tombstone *t, struct ros2_err *err);

int __wrap_revlog_write(struct revlog *l, const struct tombstone *t, struct ros2_err *err)
{
	usleep(slow ? SLOW_US : 0); /* time: of a slow disk */
	return __real_revlog_write(l, t, err);
}

/* ---- a store that says committed and commits nothing ---- */

static _Atomic int forgets = -1; /* transactions with a row of this enum store_mut_kind */

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	bool meant = false;

	for (size_t i = 0; t && i < t->n_muts; i++)
		meant |= (int)t->muts[i].kind == forgets;
	if (meant) {
		store_txn_free(t);
		t = store_txn_new();
	}
	return __real_store_submit(s, t, done, arg, err);
}

/* ---- keys that are all the same ---- */

static _Atomic bool all_equal;

bool __real_crypto_equal(const void *a, const void *b, size_t n);
bool __wrap_crypto_equal(const void *a, const void *b, size_t n);

bool __wrap_crypto_equal(const void *a, const void *b, size_t n)
{
	return all_equal || __real_crypto_equal(a, b, n);
}

/* ---- the controls ---- */

static bool is_wrong(struct pair *p, void *arg)
{
	bool is;

	pthread_mutex_lock(&p->lock);
	is = p->wrong[0];
	pthread_mutex_unlock(&p->lock);
	return is;
}

static void expect_wrong(struct pair *p, const char *words)
{
	char wrong[sizeof(p->wrong)];

	assert_true(pair_until(p, is_wrong, NULL));
	pthread_mutex_lock(&p->lock);
	strcpy(wrong, p->wrong);
	p->wrong[0] = '\0';
	pthread_mutex_unlock(&p->lock);
	if (!strstr(wrong, words))
		fail_msg("found \"%s\", expected \"%s\"", wrong, words);
}

static void take_away(struct pair *p)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	if (sf_revoke(p->f, KIND(TENANT), "alpha", 3000, &r, &err))
		fail_msg("%s", err.msg);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
}

static void control__receipt_before_the_disk_is_noticed(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	slow = true;
	take_away(p);
	pair_check(p, "a receipt that waits");
	assert_true(witness_counts(w)->receipts > 0);
	agent_test_switches.receipt_unwritten = true;
	take_away(p);
	expect_wrong(p, "the revocation is not on disk");
	agent_test_switches.receipt_unwritten = false;
	slow = false;
	witness_free(w);
}

static void control__grant_before_the_store_is_noticed(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid session;

	assert_int_equal(pair_open(p->tenant, &session, &err), ROS2_OK);
	pair_check(p, "a grant that waits");
	assert_int_equal(witness_counts(w)->grants, 1);
	forgets = STORE_GRANT_PUT;
	assert_int_equal(pair_open(p->tenant, &session, &err), ROS2_OK);
	expect_wrong(p, "not in the store");
	forgets = -1;
	witness_free(w);
}

static void control__record_acknowledged_before_the_store_is_noticed(void **state)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid session;

	forgets = STORE_ORIGIN_PUT;
	assert_int_equal(pair_open(p->nobody, &session, &err), ROS2_DENIED);
	expect_wrong(p, "acknowledged, not stored");
	forgets = -1;
	witness_free(w);
}

static bool is_done(struct pair *p, void *arg)
{
	return pair_enrol_is_done(arg);
}

static int enrol(struct pair *p, const char *suffix, const struct join_token *t)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct enrolling *e;
	char dir[300];

	snprintf(dir, sizeof(dir), "%s-%s", p->dir, suffix);
	e = pair_enrol_begin(p, dir, t);
	assert_true(pair_until(p, is_done, e));
	return pair_enrol_end(e, &err);
}

static void control__token_for_any_key_is_noticed(void **state)
{
	struct pair *p = *state;
	struct join_token t;

	pair_token(p, "dpu-0", &t);
	assert_int_equal(enrol(p, "one", &t), 0);
	assert_int_not_equal(enrol(p, "two", &t), 0);
	all_equal = true;
	assert_int_equal(enrol(p, "two", &t), 0);
	all_equal = false;
	join_token_fini(&t);
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control__receipt_before_the_disk_is_noticed),
		T(control__grant_before_the_store_is_noticed),
		T(control__record_acknowledged_before_the_store_is_noticed),
		cmocka_unit_test_setup_teardown(control__token_for_any_key_is_noticed, pair_setup,
	                                        pair_teardown),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
