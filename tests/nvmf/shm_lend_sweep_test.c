/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of memory over shm that an RDMA device is to know: the device, or the memory for it,
 * refuses each registration, and each end of one, once and for good. What a tenant asks is done all
 * the same, and right; it is copied where the device does not know the memory; a neighbour goes on;
 * when the fault has gone the device knows all of it; and nothing is unmapped under it.
 */
#include "dataplane/fabric/fabric.h"
#include "tests/await.h"
#include "tests/nvmf/shm_rdma_rig.h"
#include "tests/verbs/fabric_mem.h"
#include <stdatomic.h>

#define PIECES 4u

/* ---- calls that fail ---- */

enum call { NONE, REGISTER, END };

static struct {
	_Atomic enum call which;
	_Atomic uint32_t calls;
	_Atomic bool fired;
	uint32_t at;
	bool for_good;
} fault;

static void arm(enum call which, uint32_t at, bool for_good)
{
	fault.at = at;
	fault.for_good = for_good;
	atomic_store(&fault.calls, 0);
	atomic_store(&fault.fired, false);
	atomic_store(&fault.which, which);
}

static void disarm(void)
{
	atomic_store(&fault.which, NONE);
}

/* Regions of this length are of requests: slots and rings have others. */
static bool hits(enum call which, uint64_t length)
{
	uint32_t n;

	if (atomic_load(&fault.which) != which || length != KIB64)
		return false;
	n = atomic_fetch_add(&fault.calls, 1) + 1;
	if (n != fault.at && !(fault.for_good && n > fault.at))
		return false;
	atomic_store(&fault.fired, true);
	return true;
}

int __real_fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                             struct fabric_region **ret, struct ros2_err *err);
int __wrap_fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                             struct fabric_region **ret, struct ros2_err *err);
int __wrap_fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                             struct fabric_region **ret, struct ros2_err *err)
{
	if (hits(REGISTER, o->length))
		return ros2_err_set(err, -ENOMEM, "no memory for a region");
	return __real_fabric_region_new(pd, o, ret, err);
}

int __real_fabric_region_free(struct fabric_region *r);
int __wrap_fabric_region_free(struct fabric_region *r);
int __wrap_fabric_region_free(struct fabric_region *r)
{
	return r && hits(END, fabric_region_length(r)) ? -EBUSY : __real_fabric_region_free(r);
}

/* ---- what is asked ---- */

static uint64_t piece(uint32_t i)
{
	return SHM_BASE + (uint64_t)i * KIB64;
}

/* Out of each and into the one behind it. */
static void work(struct run *t)
{
	for (uint32_t i = 0; i < PIECES; i += 2)
		rig_round_trip(t, &t->a, 0, piece(i) + MIB, piece(i) + 2 * MIB, KIB64);
}

static const uint64_t asked[PIECES] = {
	SHM_BASE + MIB,
	SHM_BASE + 2 * MIB,
	SHM_BASE + MIB + 2 * KIB64,
	SHM_BASE + 2 * MIB + 2 * KIB64,
};

static bool registration_fails(uint32_t at, bool for_good)
{
	struct run t;
	bool fired;

	rig_begin(&t, EXACT);
	arm(REGISTER, at, for_good);
	/* poll: workers register, and nobody is told */
	assert_true(AWAIT((work(&t), atomic_load(&fault.fired) || rig_lent(&t).made >= PIECES)));
	fired = atomic_load(&fault.fired);
	if (fired) {
		/* poll: the loop hears of it from the worker */
		assert_true(AWAIT(rig_lent(&t).failed >= 1));
		work(&t);
		rig_neighbour_is_well(&t);
	}
	assert_true(rig_lent(&t).pieces <= PIECES + 4);
	disarm();
	for (uint32_t i = 0; i < PIECES; i++)
		rig_known(&t, &t.a, asked[i], KIB64);
	work(&t);
	rig_end(&t);
	assert_int_equal(atomic_load(&rig_unmapped), 0);
	return fired;
}

static void registration__that_fails_costs_a_copy_until_it_does_not(void **state)
{
	for (int for_good = 0; for_good < 2; for_good++) {
		uint32_t at = 1;

		while (registration_fails(at, for_good))
			at++;
		assert_true(at > PIECES);
	}
}

/* A tenant at its limit: one that nobody uses ends for the next one; at the end all do. */
static bool end_fails(uint32_t at, bool for_good)
{
	struct run t;
	bool fired;

	fabric_mem_max_regions(32);
	rig_begin(&t, EXACT);
	for (uint32_t i = 0; i < PIECES; i++)
		rig_known(&t, &t.a, piece(i), KIB64);
	arm(END, at, for_good);
	assert_true(rig_copies(&t, &t.a, piece(PIECES), KIB64));
	/* poll: a second later one is idle, and a worker ends it */
	assert_true(AWAIT((rig_copies(&t, &t.a, piece(PIECES), KIB64), atomic_load(&fault.calls))));
	assert_int_equal(rig_lent(&t).pieces, PIECES);
	work(&t);
	rig_neighbour_is_well(&t);
	if (for_good)
		disarm();
	rig_known(&t, &t.a, piece(PIECES), KIB64);
	rig_end(&t);
	fired = atomic_load(&fault.fired);
	disarm();
	assert_int_equal(atomic_load(&rig_unmapped), 0);
	return fired;
}

static void end__that_fails_is_asked_again_and_nothing_goes_before(void **state)
{
	uint32_t at = 1;

	assert_true(end_fails(1, true));
	while (end_fails(at, false))
		at++;
	assert_true(at > PIECES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registration__that_fails_costs_a_copy_until_it_does_not),
		cmocka_unit_test(end__that_fails_is_asked_again_and_nothing_goes_before),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
