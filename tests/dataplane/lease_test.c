/* SPDX-License-Identifier: Apache-2.0 */
/* The lease table: each promise of lease.h as a sentence, and random operations against a naive
 * model. */
#include "dataplane/lease.h"
#include "common/util.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define CONN_A 0x100000001ull
#define CONN_B 0x200000002ull
#define BASE   0x7f0000000000ull

static struct lease_table *new_table(uint32_t capacity)
{
	struct lease_table *t;

	assert_int_equal(lease_table_new(capacity, 3, &t), 0);
	return t;
}

static struct lease_params params(uint64_t conn)
{
	return (struct lease_params){.base = BASE,
	                             .length = 4096,
	                             .deadline_ns = 1000,
	                             .grant = 7,
	                             .conn = conn,
	                             .tenant = 1,
	                             .access = LEASE_READ | LEASE_WRITE};
}

static const struct lease *issue(struct lease_table *t, uint64_t conn)
{
	struct lease_params p = params(conn);
	const struct lease *l;

	assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	return l;
}

static enum ros2_status check(struct lease_table *t, uint32_t key, uint64_t conn, uint64_t addr,
                              uint64_t len)
{
	struct lease *l = NULL;

	return lease_check(t, key, conn, LEASE_READ, addr, len, 1, &l);
}

static void lease_check__accepts_exactly_the_leased_range(void **state)
{
	struct lease_table *t = new_table(8);
	uint32_t key = issue(t, CONN_A)->key;

	assert_int_equal(check(t, key, CONN_A, BASE, 4096), ROS2_OK);
	assert_int_equal(check(t, key, CONN_A, BASE + 4095, 1), ROS2_OK);
	assert_int_equal(check(t, key, CONN_A, BASE - 1, 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, BASE + 4096, 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, BASE + 1, 4096), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, BASE, 4097), ROS2_OUT_OF_RANGE);
	lease_table_free(t);
}

static void lease_check__refuses_zero_length_and_wrap_around(void **state)
{
	struct lease_table *t = new_table(8);
	uint32_t key = issue(t, CONN_A)->key;

	assert_int_equal(check(t, key, CONN_A, BASE, 0), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, UINT64_MAX, 2), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, BASE + 1, UINT64_MAX), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, BASE, UINT64_MAX), ROS2_OUT_OF_RANGE);
	assert_int_equal(check(t, key, CONN_A, UINT64_MAX - 10, 1ull << 63), ROS2_OUT_OF_RANGE);
	lease_table_free(t);
}

static void lease_check__does_not_tell_a_foreign_key_from_an_unknown_one(void **state)
{
	struct lease_table *t = new_table(8);
	uint32_t key = issue(t, CONN_A)->key;

	assert_int_equal(check(t, key, CONN_B, BASE, 1), ROS2_BAD_KEY);
	assert_int_equal(check(t, key ^ 0x10000, CONN_A, BASE, 1), ROS2_BAD_KEY);
	assert_int_equal(check(t, key | 0xffff, CONN_A, BASE, 1), ROS2_BAD_KEY);
	assert_int_equal(check(t, 0, CONN_A, BASE, 1), ROS2_BAD_KEY);
	assert_int_equal(check(t, 0, 0, 0, 1), ROS2_BAD_KEY);
	lease_table_free(t);
}

static void lease_check__refuses_access_that_was_not_leased(void **state)
{
	struct lease_table *t = new_table(8);
	struct lease_params p = params(CONN_A);
	const struct lease *l;
	struct lease *got;

	p.access = LEASE_READ;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	assert_int_equal(lease_check(t, l->key, CONN_A, LEASE_WRITE, BASE, 1, 1, &got),
	                 ROS2_ACCESS);
	assert_int_equal(lease_check(t, l->key, CONN_A, 3, BASE, 1, 1, &got), ROS2_ACCESS);
	assert_int_equal(lease_check(t, l->key, CONN_A, 0, BASE, 1, 1, &got), ROS2_ACCESS);
	assert_int_equal(lease_check(t, l->key, CONN_A, LEASE_READ, BASE, 1, 1, &got), ROS2_OK);
	lease_table_free(t);
}

static void lease_check__looks_at_the_deadline_without_a_sweep(void **state)
{
	struct lease_table *t = new_table(8);
	uint32_t key = issue(t, CONN_A)->key;
	struct lease *l;

	assert_int_equal(lease_check(t, key, CONN_A, 1, BASE, 1, 999, &l), ROS2_OK);
	assert_int_equal(lease_check(t, key, CONN_A, 1, BASE, 1, 1000, &l), ROS2_LEASE_EXPIRED);
	assert_int_equal(lease_check(t, key, CONN_B, 1, BASE, 1, 1000, &l), ROS2_BAD_KEY);
	assert_int_equal(lease_sweep(t, 1000, 100), 1);
	assert_int_equal(lease_check(t, key, CONN_A, 1, BASE, 1, 1000, &l), ROS2_LEASE_EXPIRED);
	assert_int_equal(lease_check(t, key, CONN_A, 1, BASE, 1, 1, &l), ROS2_LEASE_EXPIRED);
	lease_table_free(t);
}

static void lease_issue__refuses_what_is_never_valid(void **state)
{
	struct lease_table *t = new_table(8);
	struct lease_params p;
	const struct lease *l;

	p = params(CONN_A), p.length = 0;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_INVALID);
	p = params(CONN_A), p.base = UINT64_MAX - 4094;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_INVALID);
	p = params(CONN_A), p.access = 0;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_INVALID);
	p = params(CONN_A), p.access = 4;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_INVALID);
	p = params(CONN_A), p.tenant = LEASE_TENANTS_MAX;
	assert_int_equal(lease_issue(t, &p, &l), ROS2_INVALID);
	lease_table_free(t);
}

static void lease_issue__says_limit_when_full_and_works_again_after_an_end(void **state)
{
	struct lease_table *t = new_table(2);
	struct lease_params p = params(CONN_A);
	const struct lease *l;
	uint32_t key = issue(t, CONN_A)->key;

	issue(t, CONN_A);
	assert_int_equal(lease_issue(t, &p, &l), ROS2_LIMIT);
	assert_int_equal(lease_end(t, key, CONN_B, ROS2_CLOSED), ROS2_BAD_KEY);
	assert_int_equal(lease_end(t, key, CONN_A, ROS2_CLOSED), ROS2_OK);
	assert_int_equal(lease_end(t, key, CONN_A, ROS2_CLOSED), ROS2_BAD_KEY);
	assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	lease_table_free(t);
}

static void lease_issue__never_gives_the_last_value_again(void **state)
{
	struct lease_table *t = new_table(1);
	uint32_t last = 0, generation = 0;

	/* One entry: 16 random bits alone would repeat about once in these rounds. */
	for (int i = 0; i < 300000; i++) {
		const struct lease *l = issue(t, CONN_A);

		if (l->key == last || l->key == 0 || l->generation <= generation)
			fail_msg("round %d: key %08x after %08x", i, l->key, last);
		last = l->key;
		generation = l->generation;
		lease_end(t, last, CONN_A, ROS2_CLOSED);
	}
	lease_table_free(t);
}

static void lease_end__keeps_a_held_entry_until_it_drains(void **state)
{
	struct lease_table *t = new_table(1);
	struct lease_params p = params(CONN_A);
	const struct lease *unused;
	struct lease *l;
	struct lease_counts c;
	uint32_t key = issue(t, CONN_A)->key;

	assert_int_equal(lease_check(t, key, CONN_A, LEASE_READ, BASE, 8, 1, &l), ROS2_OK);
	lease_hold(l);
	lease_hold(l);
	assert_int_equal(lease_end_conn(t, CONN_A, ROS2_REVOKED), 1);
	assert_int_equal(check(t, key, CONN_A, BASE, 8), ROS2_REVOKED);
	assert_int_equal(lease_issue(t, &p, &unused), ROS2_LIMIT);
	lease_counts(t, 1, &c);
	assert_int_equal(c.draining, 1);
	assert_int_equal(c.live, 0);
	lease_unhold(t, l);
	assert_int_equal(check(t, key, CONN_A, BASE, 8), ROS2_REVOKED);
	lease_unhold(t, l);
	assert_int_equal(check(t, key, CONN_A, BASE, 8), ROS2_BAD_KEY);
	lease_counts(t, 1, &c);
	assert_int_equal(c.draining, 0);
	assert_int_equal(lease_issue(t, &p, &unused), ROS2_OK);
	lease_table_free(t);
}

static void lease_renew__moves_the_end_of_ones_own_lease_only_forward(void **state)
{
	struct lease_table *t = new_table(4);
	uint32_t key = issue(t, CONN_A)->key;
	const struct lease *l;

	assert_int_equal(lease_renew(t, key, CONN_A, 1, 2000, &l), ROS2_OK);
	assert_int_equal(l->deadline_ns, 2000);
	assert_int_equal(lease_renew(t, key, CONN_A, 1, 10, &l), ROS2_OK);
	assert_int_equal(l->deadline_ns, 2000);
	assert_int_equal(lease_renew(t, key, CONN_B, 1, 9000, &l), ROS2_BAD_KEY);
	assert_int_equal(lease_renew(t, key, CONN_A, 2000, 9000, &l), ROS2_LEASE_EXPIRED);
	lease_table_free(t);
}

static void lease_end_by__ends_exactly_the_group(void **state)
{
	struct lease_table *t = new_table(64);
	struct lease_params p = params(CONN_A);
	const struct lease *l;
	struct lease_counts c;

	for (uint32_t i = 0; i < 32; i++) {
		p.conn = i % 2 ? CONN_A : CONN_B;
		p.tenant = i % 4;
		p.grant = 100 + i % 8;
		assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	}
	assert_int_equal(lease_end_grant(t, 101, ROS2_REVOKED), 4);
	assert_int_equal(lease_end_grant(t, 999, ROS2_REVOKED), 0);
	assert_int_equal(lease_end_tenant(t, 1, ROS2_REVOKED), 4);
	assert_int_equal(lease_end_conn(t, CONN_A, ROS2_CLOSED), 8);
	lease_counts(t, UINT32_MAX, &c);
	assert_int_equal(c.live, 16);
	assert_int_equal(c.live_bytes, 16 * 4096);
	assert_int_equal(lease_end_conn(t, CONN_B, ROS2_CLOSED), 16);
	lease_table_free(t);
}

static void lease_sweep__looks_at_no_more_than_its_budget(void **state)
{
	struct lease_table *t = new_table(16);

	for (int i = 0; i < 16; i++)
		issue(t, CONN_A);
	assert_int_equal(lease_sweep(t, 999, 16), 0);
	assert_int_equal(lease_sweep(t, 1000, 10), 10);
	assert_int_equal(lease_sweep(t, 1000, 10), 6);
	lease_table_free(t);
}

static void count_lease(void *arg, const struct lease *l)
{
	assert_int_equal(l->state, LEASE_LIVE);
	++*(uint32_t *)arg;
}

static void lease_each__visits_the_live_ones_of_a_tenant_up_to_max(void **state)
{
	struct lease_table *t = new_table(16);
	struct lease_params p = params(CONN_A);
	const struct lease *l;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 10; i++) {
		p.tenant = i & 1;
		assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	}
	lease_end(t, l->key, CONN_A, ROS2_CLOSED);
	lease_each(t, 1, 100, count_lease, &n);
	assert_int_equal(n, 4);
	n = 0;
	lease_each(t, UINT32_MAX, 3, count_lease, &n);
	assert_int_equal(n, 3);
	lease_table_free(t);
}

/* ---- the model: an unordered array, searched from end to end ---- */

#define MODEL_MAX   48
#define MODEL_STEPS 60000

struct model_lease {
	uint64_t conn, base, length, deadline;
	uint32_t key, tenant, holds;
	uint8_t access;
	enum { M_LIVE, M_ENDED, M_EXPIRED } state;
	bool used;
	enum ros2_status why;
	struct lease *held;
};

static uint64_t seed = 0x2545f4914f6cdd1dull;

static uint32_t rnd(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 33) % n;
}

static enum ros2_status model_check(struct model_lease *m, uint64_t conn, uint8_t access,
                                    uint64_t addr, uint64_t len, uint64_t now)
{
	if (!m->used || m->conn != conn)
		return ROS2_BAD_KEY;
	if (m->state == M_EXPIRED || (m->state == M_LIVE && now >= m->deadline))
		return ROS2_LEASE_EXPIRED;
	if (m->state == M_ENDED)
		return m->holds && m->why == ROS2_REVOKED ? ROS2_REVOKED : ROS2_BAD_KEY;
	if (!access || (access & ~m->access))
		return ROS2_ACCESS;
	/* In 128 bits nothing wraps: the plain definition of "inside". */
	if (!len || addr < m->base ||
	    (unsigned __int128)addr + len > (unsigned __int128)m->base + m->length)
		return ROS2_OUT_OF_RANGE;
	return ROS2_OK;
}

static void model_issue(struct lease_table *t, struct model_lease *m, uint64_t now)
{
	struct lease_params p = params(rnd(2) ? CONN_A : CONN_B);
	const struct lease *l;

	p.base = rnd(2) ? BASE + rnd(1000) : UINT64_MAX - 70000 + rnd(100);
	p.length = 1 + rnd(65536);
	p.deadline_ns = now + 1 + rnd(50);
	p.tenant = rnd(3);
	p.access = (uint8_t)(1 + rnd(3));
	assert_int_equal(lease_issue(t, &p, &l), ROS2_OK);
	*m = (struct model_lease){.conn = p.conn,
	                          .base = p.base,
	                          .length = p.length,
	                          .deadline = p.deadline_ns,
	                          .key = l->key,
	                          .tenant = p.tenant,
	                          .access = p.access,
	                          .used = true};
}

static void model_try_hold(struct lease_table *t, struct model_lease *m, uint64_t now)
{
	uint64_t addrs[] = {m->base, m->base + m->length - 1, m->base + rnd(70000),
	                    m->base - 1 - rnd(5)};
	uint64_t addr = addrs[rnd(4)], conn = rnd(8) ? m->conn : CONN_A + CONN_B - m->conn;
	uint64_t len = rnd(6) ? rnd(3000) : UINT64_MAX - rnd(100000);
	uint8_t access = (uint8_t)rnd(4);
	struct lease *l = NULL;
	enum ros2_status s = lease_check(t, m->key, conn, access, addr, len, now, &l);

	assert_int_equal(s, model_check(m, conn, access, addr, len, now));
	if (s != ROS2_OK || m->holds > 3)
		return;
	lease_hold(l);
	m->held = l;
	m->holds++;
}

static void model_unhold(struct lease_table *t, struct model_lease *m)
{
	if (!m->holds)
		return;
	m->holds--;
	lease_unhold(t, m->held);
}

static void model_end(struct lease_table *t, struct model_lease *m)
{
	enum ros2_status why = rnd(2) ? ROS2_REVOKED : ROS2_CLOSED;
	enum ros2_status s = lease_end(t, m->key, m->conn, why);

	assert_int_equal(s, m->used && m->state == M_LIVE ? ROS2_OK : ROS2_BAD_KEY);
	if (s == ROS2_OK) {
		m->state = M_ENDED;
		m->why = why;
	}
}

static void model_sweep(struct lease_table *t, struct model_lease *m, uint64_t now)
{
	uint32_t n = 0;

	for (int i = 0; i < MODEL_MAX; i++)
		if (m[i].used && m[i].state == M_LIVE && now >= m[i].deadline) {
			m[i].state = M_EXPIRED;
			n++;
		}
	assert_int_equal(lease_sweep(t, now, LEASE_MAX), n);
}

static void model_compare_counts(struct lease_table *t, const struct model_lease *m)
{
	for (uint32_t tenant = 0; tenant < 3; tenant++) {
		struct lease_counts want = {0}, got;

		for (int i = 0; i < MODEL_MAX; i++) {
			if (!m[i].used || m[i].tenant != tenant)
				continue;
			want.live += m[i].state == M_LIVE;
			want.live_bytes += m[i].state == M_LIVE ? m[i].length : 0;
			want.draining += m[i].state != M_LIVE && m[i].holds;
		}
		lease_counts(t, tenant, &got);
		assert_int_equal(got.live, want.live);
		assert_int_equal(got.live_bytes, want.live_bytes);
		assert_int_equal(got.draining, want.draining);
	}
}

static void lease_table__agrees_with_a_naive_model(void **state)
{
	/* Larger than the model, and indexes go round oldest first: a slot of the model is replaced
	 * long before its index is used again. */
	struct lease_table *t = new_table(4096);
	struct model_lease m[MODEL_MAX] = {{0}};
	uint64_t now = 1;

	for (int step = 0; step < MODEL_STEPS; step++) {
		struct model_lease *one = &m[rnd(MODEL_MAX)];

		now += rnd(10) == 0;
		switch (rnd(8)) {
		case 0:
			if (!one->used || (one->state != M_LIVE && !one->holds))
				model_issue(t, one, now);
			break;
		case 1:
			model_end(t, one);
			break;
		case 2:
		case 3:
			model_unhold(t, one);
			break;
		case 4:
			if (rnd(20) == 0)
				model_sweep(t, m, now);
			break;
		default:
			model_try_hold(t, one, now);
		}
		if (step % 64 == 0)
			model_compare_counts(t, m);
	}
	lease_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lease_check__accepts_exactly_the_leased_range),
		cmocka_unit_test(lease_check__refuses_zero_length_and_wrap_around),
		cmocka_unit_test(lease_check__does_not_tell_a_foreign_key_from_an_unknown_one),
		cmocka_unit_test(lease_check__refuses_access_that_was_not_leased),
		cmocka_unit_test(lease_check__looks_at_the_deadline_without_a_sweep),
		cmocka_unit_test(lease_issue__refuses_what_is_never_valid),
		cmocka_unit_test(lease_issue__says_limit_when_full_and_works_again_after_an_end),
		cmocka_unit_test(lease_issue__never_gives_the_last_value_again),
		cmocka_unit_test(lease_end__keeps_a_held_entry_until_it_drains),
		cmocka_unit_test(lease_renew__moves_the_end_of_ones_own_lease_only_forward),
		cmocka_unit_test(lease_end_by__ends_exactly_the_group),
		cmocka_unit_test(lease_sweep__looks_at_no_more_than_its_budget),
		cmocka_unit_test(lease_each__visits_the_live_ones_of_a_tenant_up_to_max),
		cmocka_unit_test(lease_table__agrees_with_a_naive_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
