/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every write and sync of the journal of revocations, while the database has no
 * room and a whole domain (no gRPC) answers revocations `effective, record pending`; and at calls
 * of the database beside it. What was not synced is gone, or torn and reordered; or the process is
 * killed, what it left is read by another, and then the power goes (likewise). After the next start
 * every revocation that was answered, or that a start has carried out, is in force; each has one
 * row and one audit record, nothing that nobody asked for is there, and no slot is left taken.
 * Negative controls: without the journal's syncs, without that of its directory, and with a
 * checksum that is always right, the same sweep finds what is wrong. Built with BEYOND the journal
 * has one slot: what comes beyond is in its filter, and in force after a start without its words.
 *
 * ROS2_POWER_SECONDS: how long the sampled part of each sweep may take (2). ROS2_POWER_ALL=1: every
 * call of each, of the database, too.
 */
#include "tests/controller/journal_rig.h"
#include "tests/controller/power_points.h"
#include "tests/controller/power_vfs.h"
#include "common/util.h"

/* ---- a checksum that is always right ---- */

static bool any_checksum;

uint32_t __real_crypto_crc32c(const void *p, size_t n);
uint32_t __wrap_crypto_crc32c(const void *p, size_t n);
uint32_t __wrap_crypto_crc32c(const void *p, size_t n)
{
	return any_checksum ? 0 : __real_crypto_crc32c(p, n);
}

/* ---- the history ---- */

/* Three starts of the process; revocations wait for the end of a full disk, or for the next start.
 */
static void live(void)
{
	if (!rig_start())
		return;
	power_vfs_full(true);
	rig_revoke_some(0, 2);
	power_vfs_full(false);
	rig_settle();
	power_vfs_full(true);
	rig_revoke_some(2, 1);
	rig_revoke_some(JOURNAL_TENANTS, 1);
	rig_stop();
	power_vfs_full(false);
	if (disk_is_off(rig_disk) || !rig_start())
		return;
	rig_settle();
	rig_revoke_some(3, 1);
	power_vfs_full(true);
	rig_revoke_some(4, 2);
	rig_stop();
	power_vfs_full(false);
	if (disk_is_off(rig_disk) || !rig_start())
		return;
	power_vfs_full(true);
	rig_revoke_some(6, 1); /* before those of the last day are recorded, maybe */
	power_vfs_full(false);
	rig_settle();
	rig_stop();
}

/* What waits together may share a commit or not, and checkpoints come by time: of 25 runs the
 * shortest made 316 calls and the longest 347. Of the journal each made 35; with one slot, which is
 * free again sooner or later, 35 to 37. */
#define SLACK 40
#ifdef BEYOND
#define JOURNAL_SLACK 4
#else
#define JOURNAL_SLACK 0
#endif

enum end { GONE, TORN, KILLED, KILLED_TORN };

static bool was_cut;
static unsigned cuts; /* so many were */
static uint64_t seed = SEED;

/* NULL, or what is wrong. @call: of the journal, or with @o->cut_path NULL of anything. */
static const char *cut_at(uint64_t call, enum end how, const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;
	bool force[JOURNAL_TARGETS];
	const char *bad;

	with.cut_call = call;
	rig_begin_run(&with);
	if (!with.cut_path)
		disk_arm(rig_disk, call);
	live();
	was_cut = disk_is_off(rig_disk);
	cuts += was_cut;
	if (was_cut && rig_ctl)
		rig_stop();
	if (how >= KILLED && was_cut) {
		/* The process is gone, the machine goes on, and only then the power goes. */
		with.cut_path = NULL;
		with.disk = rig_disk;
		disk_fsx_use(&with);
		disk_arm(rig_disk, UINT64_MAX);
		assert_true(rig_start());
		loop_call(rig_loop, rig_look_at_force, force);
		for (unsigned i = 0; i < JOURNAL_TARGETS; i++)
			rig_told[i].held |= force[i];
		rig_die();
	}
	disk_restore(rig_disk, how == TORN || how == KILLED_TORN ? DISK_TEAR : DISK_LOSE_UNSYNCED,
	             seed + call);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	bad = rig_check();
	rig_end_run();
	return bad;
}

/* With ROS2_SWEEP_STRIDE=N only every Nth after the first; a control looks at all. */
static uint64_t stride_after(uint64_t call, bool control)
{
	return call >= 20 && !control ? power_stride() : 1;
}

/* Of a history that goes to its end: *ret_journal to its journal, *ret_all to anything. */
static void count_calls(uint64_t *ret_journal, uint64_t *ret_all)
{
	struct disk_fsx_opts o = {.cut_path = JOURNAL, .cut_call = UINT64_MAX};

	rig_begin_run(&o);
	live();
	*ret_journal = disk_fsx_path_calls();
	*ret_all = disk_calls(rig_disk);
	rig_end_run();
}

static const char *sweep_journal(enum end how, const char *no_fsync, uint64_t *ret_call)
{
	bool control = no_fsync || any_checksum;
	struct disk_fsx_opts o = {.cut_path = JOURNAL, .no_fsync = no_fsync};
	const char *bad = NULL;

	was_cut = true;
	for (*ret_call = 0; was_cut && !bad; *ret_call += stride_after(*ret_call, control))
		bad = cut_at(*ret_call, how, &o);
	return bad;
}

static void sweep(enum end how)
{
	struct power_points p = {.seconds = 2};
	struct disk_fsx_opts o = {0};
	uint64_t call, of_journal;
	const char *bad;

	cuts = 0;
	bad = sweep_journal(how, NULL, &call);
	if (bad)
		fail_msg("ended before call %llu of the journal: %s", (unsigned long long)call,
		         bad);
	/* Two calls to take a slot and two to free it, for most of them. */
	assert_true(call > 20);
	count_calls(&of_journal, &p.calls);
	power_all_tried(cuts, of_journal, JOURNAL_SLACK);
	p.from = how * p.calls / 4;
	while (power_points_next(&p)) {
		bad = cut_at(p.at, how, &o);
		p.cut = was_cut;
		if (bad)
			fail_msg("ended at call %llu: %s", (unsigned long long)p.at, bad);
	}
	power_points_end(&p, SLACK);
}

static void journal__keeps_what_was_answered_when_the_unsynced_is_gone(void **state)
{
	sweep(GONE);
}

static void journal__keeps_what_was_answered_when_the_unsynced_is_torn(void **state)
{
	sweep(TORN);
}

static void journal__keeps_what_a_start_after_a_kill_has_carried_out(void **state)
{
	sweep(KILLED);
}

/* Each third call with a seed of its own; in an ordinary run (ROS2_SWEEP_STRIDE) with one. */
static void journal__keeps_what_a_start_after_a_kill_has_carried_out_when_torn(void **state)
{
	struct disk_fsx_opts o = {.cut_path = JOURNAL};
	unsigned n = stride_after(20, false) > 1 ? 1 : 3;
	uint64_t of_journal, all;

	count_calls(&of_journal, &all);
	cuts = 0;
	for (unsigned i = 0; i < n; i++, seed += 100000) {
		const char *bad = NULL;
		uint64_t call;

		was_cut = true;
		for (call = i; was_cut && !bad; call += 3 * stride_after(call, false))
			bad = cut_at(call, KILLED_TORN, &o);
		if (bad)
			fail_msg("seed %llu, one of the calls before %llu: %s",
			         (unsigned long long)seed, (unsigned long long)call, bad);
		assert_true(call > 20);
	}
	power_all_tried(cuts, of_journal, JOURNAL_SLACK);
	seed = SEED;
}

/* The file of an earlier version ends behind the slots. */
static void journal__of_an_earlier_version_is_made_longer_at_a_start(void **state)
{
	struct disk_fsx_opts o = {0};
	size_t len = rig_before[1].n;

	rig_before[1].n = 1024 * 4096;
	rig_begin_run(&o);
	rig_before[1].n = len;
	live();
	assert_null(rig_check());
	rig_end_run();
}

static void journal__is_used_by_the_history_and_empty_after_it(void **state)
{
	struct disk_fsx_opts o = {.cut_path = JOURNAL, .cut_call = UINT64_MAX};

	rig_begin_run(&o);
	live();
	assert_int_equal(atomic_load(&rig_fatals), 0);
	assert_int_equal(rig_answers, 8);
	assert_true(rig_pending_answers >= 6);
	assert_true(disk_fsx_path_calls() > 20);
	assert_null(rig_check());
	rig_end_run();
}

/* ---- negative controls ---- */

static void sweep__finds_the_loss_without_the_journals_fsync(void **state)
{
	uint64_t call;

	assert_non_null(sweep_journal(GONE, JOURNAL, &call));
	assert_non_null(sweep_journal(TORN, JOURNAL, &call));
	assert_non_null(sweep_journal(KILLED, JOURNAL, &call));
	assert_non_null(sweep_journal(KILLED_TORN, JOURNAL, &call));
}

#ifndef BEYOND
static void sweep__finds_a_torn_slot_that_passes_for_one(void **state)
{
	const char *bad = NULL;
	uint64_t call;

	any_checksum = true;
	/* What is torn off is left to chance: not each seed tears a note in two. */
	for (seed = SEED; seed < SEED + 8 && !bad; seed++)
		bad = sweep_journal(TORN, NULL, &call);
	any_checksum = false;
	seed = SEED;
	assert_non_null(bad);
}
#endif

/* ---- while it is made ---- */

/* The first start is cut at a call of making it; the next one makes or finds it, and uses it. */
static const char *made_at(uint64_t call, enum disk_loss loss, const char *no_fsync)
{
	struct disk_fsx_opts o = {
		.no_fsync = no_fsync, .cut_path = "/revocations.new", .cut_call = call};
	void *journal = rig_before[1].p;
	const char *bad;

	rig_before[1].p = NULL;
	rig_begin_run(&o);
	rig_before[1].p = journal;
	if (rig_start()) {
		/* Beyond making it: the cut comes at once, or after an answer out of the journal.
		 */
		power_vfs_full(true);
		if (call == UINT64_MAX)
			rig_revoke_some(0, 1);
		rig_die();
	}
	was_cut = !rig_told[0].held;
	power_vfs_full(false);
	disk_restore(rig_disk, loss, SEED + call);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	bad = rig_check();
	rig_end_run();
	return bad;
}

static const char *sweep_making(const char *no_fsync)
{
	static const uint64_t calls[] = {0, 1, 2, UINT64_MAX - 1, UINT64_MAX};
	const char *bad = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(calls) && !bad; i++) {
		bad = made_at(calls[i], DISK_LOSE_UNSYNCED, no_fsync);
		bad = bad ? bad : made_at(calls[i], DISK_TEAR, no_fsync);
	}
	return bad;
}

static void journal__is_whole_or_not_there_when_the_power_goes_as_it_is_made(void **state)
{
	const char *bad = sweep_making(NULL);

	if (bad)
		fail_msg("%s", bad);
	assert_false(was_cut);
}

static void sweep__finds_a_journal_made_without_its_fsyncs(void **state)
{
	char dir[80];

	snprintf(dir, sizeof(dir), "=%s", strrchr(rig_fix.dir, '/'));
	assert_non_null(sweep_making("/revocations.new"));
	assert_non_null(sweep_making(dir));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(journal__is_used_by_the_history_and_empty_after_it),
		cmocka_unit_test(journal__keeps_what_was_answered_when_the_unsynced_is_gone),
		cmocka_unit_test(journal__keeps_what_was_answered_when_the_unsynced_is_torn),
		cmocka_unit_test(journal__keeps_what_a_start_after_a_kill_has_carried_out),
		cmocka_unit_test(
			journal__keeps_what_a_start_after_a_kill_has_carried_out_when_torn),
		cmocka_unit_test(journal__of_an_earlier_version_is_made_longer_at_a_start),
		cmocka_unit_test(journal__is_whole_or_not_there_when_the_power_goes_as_it_is_made),
		cmocka_unit_test(sweep__finds_the_loss_without_the_journals_fsync),
#ifndef BEYOND
		cmocka_unit_test(sweep__finds_a_torn_slot_that_passes_for_one),
#endif
		cmocka_unit_test(sweep__finds_a_journal_made_without_its_fsyncs),
	};

#ifdef BEYOND
	rig_slots = 1;
#endif
	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
