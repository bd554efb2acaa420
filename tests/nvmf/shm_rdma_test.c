/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants over shared memory at a target over NVMe/RDMA, in the real data plane, on a device that
 * is memory. What the device knows of a tenant's memory it moves payload from and into itself, and
 * nothing is copied; everything else goes through a slot, is copied and counted. What a target can
 * reach by such a key, what ends it, and that the memory is mapped for as long as the device knows
 * any of it, with controls.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/nvmf/shm_rdma_rig.h"
#include "tests/verbs/fabric_mem.h"
#include <stdatomic.h>

/* ---- what is copied ---- */

static const uint32_t lengths[] = {512, KIB4, 3 * KIB4, KIB64, MIB};

/* Also at odd addresses, in the capsule, and as several commands. */
static void moved_by_the_device(uint32_t seen)
{
	uint64_t before, from = SHM_BASE + 7, to = SHM_BASE + 2 * MIB + 13;
	struct run t;

	rig_begin(&t, seen);
	for (uint32_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		rig_known(&t, &t.a, from, lengths[i]);
		rig_known(&t, &t.a, to, lengths[i]);
		before = rig_copied(&t, &t.a);
		for (uint32_t n = 0; n < 3; n++)
			rig_round_trip(&t, &t.a, 0, from, to, lengths[i]);
		assert_int_equal(rig_copied(&t, &t.a), before);
	}
	assert_int_equal(rig_stats(&t).violations, 0);
	rig_neighbour_is_well(&t);
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

static void payload__is_moved_by_the_device_where_windows_are_enforced(void **state)
{
	moved_by_the_device(INSIDE);
}

static void payload__of_the_same_bytes_is_moved_by_the_device_where_only_regions_are(void **state)
{
	moved_by_the_device(EXACT);
}

static void payload__is_copied_once_where_nothing_was_seen_enforced(void **state)
{
	struct run t;

	rig_begin(&t, 1u << PROBE_WINDOW_RANGE);
	for (uint32_t i = 0; i < 10; i++) {
		assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64));
		assert_true(rig_write_copies(&t, &t.a, SHM_BASE, KIB64));
	}
	assert_int_equal(rig_lent(&t).made, 0);
	assert_int_equal(rig_lent(&t).failed + rig_lent(&t).refused, 0);
	rig_end(&t);
}

/* As with a document that lets keys stand: those are over slots only. */
static void payload__has_a_key_for_each_command_where_others_stand(void **state)
{
	struct dp_lease_info rows[16];
	uint32_t n, commands = 0;
	struct wire_header h;
	uint64_t issued = 0;
	struct run t;

	rig_standing = true;
	rig_begin(&t, INSIDE);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_hold(true);
	h = raw_header(&t.a.c, WIRE_READ, 512, SHM_BASE, KIB64);
	rs_put(&t.a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
	n = fx_leases(t.fx, &t.fx->tenant, rows, ARRAY_SIZE(rows));
	for (uint32_t i = 0; i < n; i++)
		if (rows[i].kind == DP_LEASE_PER_COMMAND) {
			commands += rows[i].count;
			issued += rows[i].issued;
		}
	assert_int_equal(commands, 1);
	assert_true(issued >= 2);
	fabric_mem_hold(false);
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.status, ROS2_OK);
	n = fx_leases(t.fx, &t.fx->tenant, rows, ARRAY_SIZE(rows));
	for (uint32_t i = 0; i < n; i++)
		assert_true(rows[i].kind != DP_LEASE_PER_COMMAND || rows[i].count == 0);
	rig_end(&t);
}

/* ---- which memory a request may name ---- */

/* Without more to be had: what is direct now lies in what the device knows. */
static void part__of_known_memory_is_copied_where_windows_are_not_enforced(void **state)
{
	struct run t;

	rig_begin(&t, EXACT);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_refuse_regions(true);
	assert_false(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64 - 512));
	assert_true(rig_copies(&t, &t.a, SHM_BASE + 512, KIB64 - 512));
	assert_true(rig_copies(&t, &t.a, SHM_BASE + 1, KIB64));
	assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64 + 512));
	assert_false(rig_write_copies(&t, &t.a, SHM_BASE, KIB64));
	rig_end(&t);
}

static void part__of_a_region_is_moved_by_the_device_to_its_ends(void **state)
{
	uint64_t last;
	struct run t;

	rig_begin(&t, INSIDE);
	rig_known(&t, &t.a, SHM_BASE, KIB4);
	fabric_mem_refuse_regions(true);
	last = SHM_BASE + t.a.offered;
	assert_false(rig_copies(&t, &t.a, SHM_BASE, 512));
	assert_false(rig_copies(&t, &t.a, SHM_BASE + 1, KIB64));
	assert_false(rig_copies(&t, &t.a, last - 512, 512));
	assert_false(rig_copies(&t, &t.a, last - MIB, MIB));
	assert_false(rig_write_copies(&t, &t.a, last - KIB64, KIB64));
	assert_int_equal(rs_read(&t.a, 0, last - 511, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE - 1, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(rs_read(&t.a, 0, UINT64_MAX - 255, 512), ROS2_OUT_OF_RANGE);
	assert_int_equal(rig_lent(&t).pieces, 1);
	rig_end(&t);
}

static uint32_t deregister(struct run *t, struct shm_raw *of)
{
	struct fx_args a = {.session = of->c.session, .key = of->c.key};

	return fx_do(t->fx, FX_DEREGISTER, &a).status;
}

/* What the device knows gives nobody a right: the lease does. */
static void key__that_ended_names_nothing_though_the_device_knows_the_memory(void **state)
{
	uint32_t old, second;
	uint64_t made;
	struct run t;

	rig_begin(&t, INSIDE);
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	second = raw_register(&t.a.c, SHM_BASE + KIB64, KIB64, 3);
	old = t.a.c.key = raw_register(&t.a.c, SHM_BASE, KIB64, 3);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	made = rig_lent(&t).made;
	/* From one into the other, which is next to it and the tenant's own. */
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE + KIB4, KIB64), ROS2_OUT_OF_RANGE);
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_BAD_KEY);
	t.a.c.key = second;
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_OUT_OF_RANGE);
	/* The same bytes under another key are known still; for reading only. */
	t.a.c.key = raw_register(&t.a.c, SHM_BASE, KIB64, LEASE_READ);
	assert_int_not_equal(t.a.c.key, old);
	assert_int_equal(rs_read(&t.a, 0, SHM_BASE, KIB64), ROS2_ACCESS);
	assert_false(rig_write_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_int_equal(rig_lent(&t).made, made);
	/* Another tenant's keys and memory are its own. */
	t.b.c.key = t.a.c.key;
	assert_int_equal(rs_read(&t.b, 0, SHM_BASE, KIB64), ROS2_BAD_KEY);
	rig_end(&t);
}

static void region__that_is_closed_under_a_command_stays_until_it_is_over(void **state)
{
	struct wire_header h;
	struct run t;

	rig_begin(&t, INSIDE);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	fabric_mem_hold(true);
	h = raw_header(&t.a.c, WIRE_READ, 512, SHM_BASE, KIB64);
	rs_put(&t.a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
	assert_int_equal(deregister(&t, &t.a), ROS2_OK);
	fabric_mem_hold(false);
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.status, ROS2_BAD_KEY);
	t.a.c.key = raw_register(&t.a.c, SHM_BASE, t.a.offered, 3);
	assert_false(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

/* ---- what there is of it ---- */

static void device__that_refuses_a_region_costs_a_copy_until_it_does_not(void **state)
{
	struct run t;

	rig_begin(&t, INSIDE);
	fabric_mem_refuse_regions(true);
	assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	/* poll: a worker was refused */
	assert_true(AWAIT(rig_lent(&t).failed == 1));
	assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_true(rig_write_copies(&t, &t.a, SHM_BASE, KIB64));
	assert_int_equal(rig_lent(&t).pieces, 0);
	fabric_mem_refuse_regions(false);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	rig_end(&t);
}

/* A quarter of what the device has, of that half a tenant. */
static void tenant__at_its_limit_is_copied_and_keeps_none_from_others(void **state)
{
	struct run t;

	fabric_mem_max_regions(32);
	rig_begin(&t, EXACT);
	for (uint32_t i = 0; i < 4; i++)
		rig_known(&t, &t.a, SHM_BASE + (uint64_t)i * KIB64, KIB64);
	assert_true(rig_copies(&t, &t.a, SHM_BASE + MIB, KIB64));
	/* poll: the loop refused it */
	assert_true(AWAIT(rig_lent(&t).refused == 1));
	assert_int_equal(rig_lent(&t).pieces, 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_false(rig_copies(&t, &t.a, SHM_BASE + (uint64_t)i * KIB64, KIB64));
		rig_known(&t, &t.b, SHM_BASE + (uint64_t)i * KIB64, KIB64);
	}
	assert_int_equal(rig_lent(&t).pieces, 8);
	/* One of its own that nobody needs makes room. */
	rig_known(&t, &t.a, SHM_BASE + MIB, KIB64);
	assert_int_equal(rig_lent(&t).pieces, 8);
	rig_end(&t);
}

/* It has nothing of its own to give up for what it wants, and asks again. */
static void session__that_came_when_all_was_taken_finds_what_others_leave(void **state)
{
	struct shm_raw late;
	struct run t;

	fabric_mem_max_regions(32);
	rig_begin(&t, EXACT);
	for (uint32_t i = 0; i < 4; i++)
		rig_known(&t, &t.a, SHM_BASE + (uint64_t)i * KIB64, KIB64);
	rig_session(&t, &late);
	assert_int_equal(rs_read(&late, 0, SHM_BASE, 512), ROS2_OK);
	/* poll: the loop refused it */
	assert_true(AWAIT(rig_lent(&t).refused == 1));
	rs_end(&t.a);
	/* poll: of sessions that are gone nothing is told */
	assert_true(AWAIT(rig_lent(&t).pieces == 0));
	rig_known(&t, &late, SHM_BASE, KIB64);
	t.a = late;
	rig_end(&t);
}

/* No more bytes of a session than it has: overlapping regions take each other's place. */
static void session__has_no_more_registered_than_it_has(void **state)
{
	uint32_t all;
	struct run t;

	rig_begin(&t, INSIDE);
	all = t.a.c.key;
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	t.a.c.key = raw_register(&t.a.c, SHM_BASE + KIB4, t.a.offered - KIB4, 3);
	assert_true(rig_copies(&t, &t.a, SHM_BASE + KIB4, KIB64));
	rig_known(&t, &t.a, SHM_BASE + KIB4, KIB64);
	assert_int_equal(rig_lent(&t).pieces, 1);
	t.a.c.key = all;
	assert_true(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

/* ---- ends in the middle ---- */

/* The target's RDMA WRITE of a read waits in its device. */
static void read_in_flight(struct run *t, uint32_t seen)
{
	struct wire_header h;

	rig_begin(t, seen);
	memset(t->b.map + SHM_BASE, 'n', t->b.offered);
	memset(t->a.map + SHM_BASE, 'f', KIB64);
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, KIB64), ROS2_OK);
	rig_known(t, &t->a, SHM_BASE, KIB64);
	memset(t->a.map + SHM_BASE, 'm', t->a.offered);
	fabric_mem_hold(true);
	h = raw_header(&t->a.c, WIRE_READ, 0, SHM_BASE, KIB64);
	rs_put(&t->a, &h);
	/* poll: as far as the device */
	assert_true(AWAIT(fabric_mem_held() == 1));
}

static void revoked_in_the_middle(struct run *t, uint32_t seen)
{
	struct fx_revoked r;

	read_in_flight(t, seen);
	fx_revoke(t->fx, DP_SCOPE_SESSION, &t->a.c.session, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, 1);
	assert_int_equal(r.first.revoke.windows, dp_test_switches.no_key_end ? 0 : 1);
	rs_expect_end(&t->a, ROS2_REVOKED, NULL);
	fabric_mem_hold(false);
	fx_wait_calls(t->fx, &r, 2);
	assert_int_equal(r.last.status, ROS2_OK);
	assert_int_equal(r.last.revoke.draining, 0);
	assert_true(rig_is_all(t->b.map + SHM_BASE, 'n', (uint32_t)t->b.offered));
	/* poll: of a session that is gone nothing is told */
	assert_true(AWAIT(rig_lent(t).pieces == 0));
	rig_neighbour_is_well(t);
}

static void revoke__in_the_middle_of_a_read_lets_nothing_land_after_the_receipt(void **state)
{
	struct run t;

	for (int i = 0; i < 2; i++) {
		revoked_in_the_middle(&t, i ? EXACT : INSIDE);
		assert_true(rig_is_all(t.a.map + SHM_BASE, 'm', (uint32_t)t.a.offered));
		rig_end(&t);
		assert_int_equal(atomic_load(&rig_unmapped), 0);
	}
}

static void control__without_the_end_of_keys_it_lands(void **state)
{
	struct run t;

	dp_test_switches.no_key_end = true;
	revoked_in_the_middle(&t, EXACT);
	assert_true(rig_is_all(t.a.map + SHM_BASE, 'f', KIB64));
	assert_true(rig_is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	rig_end(&t);
}

static enum ros2_status close_again(struct run *t)
{
	struct fx_args gone = {.session = t->a.c.session};

	return fx_do(t->fx, FX_CLOSE_SESSION, &gone).status;
}

static void disconnect__with_a_command_at_the_target_keeps_memory_and_region(void **state)
{
	struct fx_args again = {.a = UINT64_MAX, .shm_bytes = SHM_BYTES};
	uint64_t connections;
	struct run t;

	fx_shm_tenant_bytes = SHM_BYTES + WIRE_SHM_DATA_OFF;
	read_in_flight(&t, INSIDE);
	connections = rig_stats(&t).connections;
	again.session = ros2_uid_new();
	again.tenant = t.fx->tenant;
	again.grant = t.fx->grant;
	raw_close(&t.a.c);
	assert_int_equal(fx_ended(t.fx, &t.a.c.session).status, ROS2_CLOSED);
	assert_int_equal(close_again(&t), ROS2_CLOSED);
	assert_int_equal(rs_try_open(t.fx, &again).status, ROS2_LIMIT);
	assert_int_equal(rig_lent(&t).pieces, 1);
	fabric_mem_hold(false);
	/* poll: gone, which nobody is told */
	assert_true(AWAIT(close_again(&t) == ROS2_BAD_SESSION));
	assert_int_equal(rig_lent(&t).pieces, 0);
	/* No right was withdrawn: it is its own memory. */
	assert_true(rig_is_all(t.a.map + SHM_BASE, 'f', KIB64));
	rs_close(&t.a);
	/* poll: the kernel tells when the last mapping has gone */
	assert_true(AWAIT(rs_try_open(t.fx, &again).status == ROS2_OK));
	assert_int_equal(fx_do(t.fx, FX_CLOSE_SESSION, &again).status, ROS2_OK);
	assert_int_equal(rig_stats(&t).connections, connections);
	rig_neighbour_is_well(&t);
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

/* The device does not give up what it was asked to: as often as it is asked. */
static void ends_at_a_device_that_keeps_regions(struct run *t)
{
	struct fabric_mem_counts c;

	rig_begin(t, INSIDE);
	rig_known(t, &t->a, SHM_BASE, KIB64);
	fabric_mem_keep_regions(t->a.offered);
	raw_close(&t->a.c);
	assert_int_equal(fx_ended(t->fx, &t->a.c.session).status, ROS2_CLOSED);
	/* poll: it was asked thrice */
	assert_true(AWAIT((fabric_mem_counts(&c), c.regions_kept >= 3)));
	assert_int_equal(close_again(t), ROS2_CLOSED);
	assert_int_equal(rig_lent(t).pieces, 1);
	rig_neighbour_is_well(t);
	fabric_mem_keep_regions(0);
	/* poll: gone, which nobody is told */
	assert_true(AWAIT(close_again(t) == ROS2_BAD_SESSION));
	rig_end(t);
}

static void memory__stays_mapped_as_long_as_the_device_keeps_some_of_it(void **state)
{
	struct run t;

	ends_at_a_device_that_keeps_regions(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

static void control__without_waiting_it_is_unmapped_under_the_device(void **state)
{
	struct run t;

	dp_test_switches.no_lend_wait = true;
	ends_at_a_device_that_keeps_regions(&t);
	assert_true(atomic_load(&rig_unmapped) > 0);
}

/* The agent stops in the middle. */
static void stop__with_commands_and_regions_unmaps_nothing_that_is_known(void **state)
{
	struct wire_header h;
	struct run t;
	void *fx;

	rig_begin(&t, INSIDE);
	rig_known(&t, &t.a, SHM_BASE, KIB64);
	for (uint32_t i = 0; i < 20; i++) {
		h = raw_header(&t.a.c, i % 2 ? WIRE_READ : WIRE_WRITE, 0, SHM_BASE, KIB64);
		rs_put(&t.a, &h);
	}
	fx = t.fx;
	assert_int_equal(fx_teardown(&fx), 0);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
	rs_close(&t.a);
	rs_close(&t.b);
	target_rdma_close(t.target);
	target_free(t.target);
	assert_int_equal(rig_regions(), 0);
}

/* ---- the device, and a target that lies ---- */

static void device__that_loses_its_queue_pairs_is_done_without(void **state)
{
	struct wire_header h;
	struct run t;

	read_in_flight(&t, EXACT);
	fabric_mem_break_all();
	fabric_mem_hold(false);
	/* Asked again, over another queue. */
	assert_true(rs_take(&t.a, &h, NULL));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	assert_true(rig_is_all(t.a.map + SHM_BASE, 'f', KIB64));
	assert_true(rig_is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	assert_false(rig_copies(&t, &t.a, SHM_BASE, KIB64));
	rig_neighbour_is_well(&t);
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
}

/* On a device that lets a key be used anywhere in its region a target reaches behind the bytes of
 * the request it was given. */
static void reach_behind(struct run *t)
{
	struct wire_header h;

	rig_begin(t, EXACT);
	fabric_mem_lax_windows(true);
	memset(t->a.map + SHM_BASE, 'f', KIB64);
	assert_int_equal(rs_write(&t->a, 0, SHM_BASE, KIB64), ROS2_OK);
	rig_known(t, &t->a, SHM_BASE, KIB64);
	memset(t->a.map + SHM_BASE, 'm', t->a.offered);
	fabric_mem_aim(KIB64);
	h = raw_header(&t->a.c, WIRE_READ, 0, SHM_BASE, KIB64);
	rs_put(&t->a, &h);
	assert_true(rs_take(&t->a, &h, NULL));
}

static void target__that_reaches_behind_a_request_reaches_nothing(void **state)
{
	struct run t;

	reach_behind(&t);
	assert_true(rig_is_all(t.a.map + SHM_BASE + KIB64, 'm', (uint32_t)t.a.offered - KIB64));
	rig_neighbour_is_well(&t);
	rig_end(&t);
}

static void control__with_more_than_the_request_it_reaches_that(void **state)
{
	struct run t;

	dp_test_switches.lends_unseen = true;
	reach_behind(&t);
	assert_true(rig_is_all(t.a.map + SHM_BASE + KIB64, 'f', KIB64));
	rig_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payload__is_moved_by_the_device_where_windows_are_enforced),
		cmocka_unit_test(
			payload__of_the_same_bytes_is_moved_by_the_device_where_only_regions_are),
		cmocka_unit_test(payload__is_copied_once_where_nothing_was_seen_enforced),
		cmocka_unit_test(payload__has_a_key_for_each_command_where_others_stand),
		cmocka_unit_test(part__of_known_memory_is_copied_where_windows_are_not_enforced),
		cmocka_unit_test(part__of_a_region_is_moved_by_the_device_to_its_ends),
		cmocka_unit_test(key__that_ended_names_nothing_though_the_device_knows_the_memory),
		cmocka_unit_test(region__that_is_closed_under_a_command_stays_until_it_is_over),
		cmocka_unit_test(device__that_refuses_a_region_costs_a_copy_until_it_does_not),
		cmocka_unit_test(tenant__at_its_limit_is_copied_and_keeps_none_from_others),
		cmocka_unit_test(session__that_came_when_all_was_taken_finds_what_others_leave),
		cmocka_unit_test(session__has_no_more_registered_than_it_has),
		cmocka_unit_test(
			revoke__in_the_middle_of_a_read_lets_nothing_land_after_the_receipt),
		cmocka_unit_test(control__without_the_end_of_keys_it_lands),
		cmocka_unit_test(disconnect__with_a_command_at_the_target_keeps_memory_and_region),
		cmocka_unit_test(memory__stays_mapped_as_long_as_the_device_keeps_some_of_it),
		cmocka_unit_test(control__without_waiting_it_is_unmapped_under_the_device),
		cmocka_unit_test(stop__with_commands_and_regions_unmaps_nothing_that_is_known),
		cmocka_unit_test(device__that_loses_its_queue_pairs_is_done_without),
		cmocka_unit_test(target__that_reaches_behind_a_request_reaches_nothing),
		cmocka_unit_test(control__with_more_than_the_request_it_reaches_that),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
