/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on the journal of revocations fail, once and for good, while the database has no room: no
 * revocation is refused, what was answered is on the disk once the journal is good again, and until
 * then it says so. A sync that failed has kept nothing, whatever is synced later (disk_fsx.h).
 */
#include "tests/controller/journal_rig.h"
#include "tests/await.h"
#include "tests/controller/power_vfs.h"
#include "common/crypto.h"
#include "common/util.h"
#include <errno.h>

static bool was_cut;

/* ---- calls that fail ---- */

static const int errors[] = {EIO, ENOSPC, EINTR};

/* The database has no room until the end, and the journal fails once: what was answered is in it by
 * then, and the power goes. */
static const char *fails_once(const struct disk_fsx_opts *o)
{
	rig_begin_run(o);
	if (rig_start()) {
		power_vfs_full(true);
		rig_revoke_some(0, 2);
		if (!rig_told[0].held || !rig_told[1].held)
			return "a revocation was refused for a fault of the journal";
		/* time: some tries of the commit, and of the journal beside each */
		usleep(40000);
		rig_die();
	}
	return NULL;
}

/* The journal fails for good: the revocations are in force, and in the database when it has room.
 */
static const char *fails_for_good(const struct disk_fsx_opts *o)
{
	rig_begin_run(o);
	if (rig_start()) {
		power_vfs_full(true);
		rig_revoke_some(0, 2);
		if (!rig_told[0].held || !rig_told[1].held)
			return "a revocation was refused for a fault of the journal";
		if (rig_check_force())
			return "a revocation was not carried out";
		power_vfs_full(false);
		if (!rig_settle())
			return "a revocation is not recorded although there is space";
		rig_revoke_some(2, 1);
		rig_die();
	}
	return NULL;
}

static const char *fault_at(const struct disk_fsx_opts *o, bool *ret_fired)
{
	const char *bad = o->fault_for_good ? fails_for_good(o) : fails_once(o);

	*ret_fired = disk_fsx_faults() > 0;
	power_vfs_full(false);
	if (rig_store)
		rig_die();
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	bad = bad ? bad : rig_check();
	rig_end_run();
	return bad;
}

static void sweep_faults(bool for_good)
{
	for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
		struct disk_fsx_opts o = {.fault_errno = errors[e],
		                          .fault_path = JOURNAL,
		                          .fault_for_good = for_good};
		bool fired = true;

		/* EINTR for good is no answer of a disk. */
		for (; fired && !(for_good && errors[e] == EINTR); o.fault_call++) {
			const char *bad = fault_at(&o, &fired);

			if (bad)
				fail_msg("call %llu of the journal, %s: %s",
				         (unsigned long long)o.fault_call, strerror(errors[e]),
				         bad);
			assert_true(fired || o.fault_call > 1);
		}
	}
}

static void journal__loses_nothing_that_was_answered_when_any_call_fails_once(void **state)
{
	sweep_faults(false);
}

static void journal__that_fails_for_good_stops_no_revocation(void **state)
{
	sweep_faults(true);
}

static void journal__that_cannot_be_made_is_made_by_the_next_start(void **state)
{
	/* Made under another name, written, synced, renamed; and again with each try. */
	for (size_t i = 0; i < 4 * 2; i++) {
		struct disk_fsx_opts o = {.fault_path = "/revocations.new",
		                          .fault_errno = errors[i % 2],
		                          .fault_call = i / 2,
		                          .fault_for_good = true};
		void *journal = rig_before[1].p;
		const char *bad;
		bool fired;

		rig_before[1].p = NULL;
		bad = fault_at(&o, &fired);
		rig_before[1].p = journal;
		if (bad)
			fail_msg("call %llu of making it: %s", (unsigned long long)o.fault_call,
			         bad);
		assert_true(fired);
	}
}

/* ---- suspect? ---- */

static void look_at_journal(void *arg)
{
	struct store_stats st;

	store_stats(rig_store, &st);
	*(bool *)arg = st.journal_failed;
}

static bool failed_becomes(bool want)
{
	bool is = !want;

	return AWAIT((loop_call(rig_loop, look_at_journal, &is), is == want));
}

/* ---- its name, and what a start has read ---- */

static const char *the_directory(void)
{
	static char dir[80];

	snprintf(dir, sizeof(dir), "=%s", strrchr(rig_fix.dir, '/'));
	return dir;
}

/* There is no journal yet, and its directory fails some times in a row, as it is opened or synced:
 * what was answered out of the one that is good again is there when the power goes. */
static void journal__whose_directory_fails_is_not_trusted_before_it_is_synced(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct disk_fsx_opts o = {.fault_errno = EIO,
		                          .fault_path = the_directory(),
		                          .fault_call = i % 2,
		                          .fault_times = 1 + i / 2};
		void *journal = rig_before[1].p;
		const char *bad;

		rig_before[1].p = NULL;
		rig_begin_run(&o);
		rig_before[1].p = journal;
		if (!rig_start()) {
			rig_end_run();
			continue;
		}
		power_vfs_full(true);
		rig_revoke_some(0, 1);
		assert_true(failed_becomes(false));
		assert_true(rig_told[0].held);
		assert_true(disk_fsx_faults() > 0);
		rig_die();
		power_vfs_full(false);
		disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
		disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
		bad = rig_check();
		rig_end_run();
		if (bad)
			fail_msg("after %u failures from call %u on: %s", o.fault_times, i % 2,
			         bad);
	}
}

/* The process that makes it is killed at any call; the next one answers out of it, and the power
 * goes. */
static void journal__made_by_a_killed_process_is_there_when_the_power_goes(void **state)
{
	void *journal = rig_before[1].p;
	const char *bad = NULL;
	uint64_t call;

	was_cut = true;
	for (call = 0; was_cut && !bad; call++) {
		struct disk_fsx_opts o = {0};

		rig_before[1].p = NULL;
		rig_begin_run(&o);
		rig_before[1].p = journal;
		disk_arm(rig_disk, call);
		if (rig_start()) {
			was_cut = disk_is_off(rig_disk);
			rig_die();
		}
		disk_arm(rig_disk, UINT64_MAX);
		/* What SQLite syncs beside it must not be what keeps the journal's name. */
		power_vfs_use(&(struct power_vfs_opts){.disk = rig_disk, .no_dir_sync = true});
		assert_true(rig_start());
		power_vfs_full(true);
		rig_revoke_some(0, 1);
		assert_true(rig_told[0].held);
		rig_die();
		power_vfs_full(false);
		disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
		disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
		bad = rig_check();
		rig_end_run();
	}
	if (bad)
		fail_msg("killed at call %llu: %s", (unsigned long long)call - 1, bad);
	assert_true(call > 5);
}

#define SLOTS 16 /* the first ones: more than are used */

static void taken_slots(bool ret[SLOTS])
{
	AUTO_FREE void *file = NULL;
	char path[128];
	size_t n;

	fixture_path(&rig_fix, "revocations", path);
	assert_int_equal(fsx_read_file(path, 64u << 20, &file, &n, NULL), 0);
	for (size_t i = 0; i < SLOTS; i++) {
		const uint8_t *p = (const uint8_t *)file + i * 4096;
		uint32_t len, crc;

		memcpy(&len, p + 8, 4);
		memcpy(&crc, p + 12, 4);
		ret[i] = !memcmp(p, "ROS2REV1", 8) && len <= 4096 - 16 &&
		         crypto_crc32c(p + 16, len) == crc;
	}
}

/* Killed at any call of the journal, whether it takes a slot or gives one back: a slot that the
 * next start finds free in the page cache is free on the disk from then on. */
static void journal__that_a_start_has_read_is_what_the_disk_has(void **state)
{
	uint64_t call;

	was_cut = true;
	for (call = 0; was_cut; call++) {
		struct disk_fsx_opts o = {.cut_path = JOURNAL, .cut_call = call};
		bool read[SLOTS], kept[SLOTS];

		rig_begin_run(&o);
		if (rig_start()) {
			power_vfs_full(true);
			rig_revoke_some(0, 2);
			power_vfs_full(false);
			rig_settle();
			was_cut = disk_is_off(rig_disk);
			rig_die();
		}
		disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
		disk_arm(rig_disk, UINT64_MAX);
		taken_slots(read);
		rig_full_from_start = true;
		assert_true(rig_start());
		rig_full_from_start = false;
		rig_die();
		power_vfs_full(false);
		disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
		taken_slots(kept);
		/* One whose revocation is recorded is given back meanwhile. */
		for (unsigned i = 0; i < SLOTS; i++)
			assert_true(read[i] || !kept[i]);
		assert_null(rig_check());
		rig_end_run();
	}
	assert_true(call > 4);
}

/* The sync of a slot fails, once or for good, and the new file, too, has no room or fails; the
 * process is killed before it could mend it. The next one reads the slot out of the page cache and
 * carries it out; then the power goes. */
static const char *killed_after_failed_sync(bool rewrite)
{
	struct disk_fsx_opts o = {.fault_errno = EIO,
	                          .fault_path = "/revocations",
	                          .fault_call = 3, /* open and sync of the start, one write */
	                          .fault_for_good = true};
	const char *bad;
	bool force[JOURNAL_TARGETS];

	rig_begin_run(&o);
	assert_true(rig_start());
	power_vfs_full(true);
	rig_revoke_some(0, 1);
	assert_true(rig_told[0].held);
	assert_true(disk_fsx_faults() > 0);
	rig_die();
	power_vfs_full(false);
	disk_fsx_use(
		&(struct disk_fsx_opts){.disk = rig_disk, .no_fsync = rewrite ? NULL : JOURNAL});
	disk_arm(rig_disk, UINT64_MAX);
	rig_full_from_start = true;
	assert_true(rig_start());
	rig_full_from_start = false;
	loop_call(rig_loop, rig_look_at_force, force);
	rig_told[0].held = force[0];
	was_cut = force[0];
	rig_die();
	power_vfs_full(false);
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	bad = rig_check();
	rig_end_run();
	return bad;
}

static void journal__is_written_anew_by_a_start_after_a_failed_sync(void **state)
{
	assert_null(killed_after_failed_sync(true));
	assert_true(was_cut); /* the second start carried it out */
	/* The control: without that sync the same power cut loses it. */
	assert_non_null(killed_after_failed_sync(false));
}

/* The old file fails for good: a new one takes its place, and what was answered is in it. */
static void journal__whose_file_fails_is_replaced_by_a_new_one(void **state)
{
	struct disk_fsx_opts o = {
		.fault_errno = EIO, .fault_path = JOURNAL, .fault_call = 2, .fault_for_good = true};

	rig_begin_run(&o);
	assert_true(rig_start());
	power_vfs_full(true);
	rig_revoke_some(0, 2);
	assert_true(disk_fsx_faults() > 0);
	assert_true(failed_becomes(false));
	assert_true(rig_told[0].held && rig_told[1].held);
	rig_die();
	power_vfs_full(false);
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	assert_null(rig_check());
	rig_end_run();
}

/* Every file of that name fails for good: it is said, nothing widens rights, and when the disk is
 * good again the journal has what was answered meanwhile. */
static void journal__that_cannot_be_mended_is_told_and_mended_later(void **state)
{
	struct disk_fsx_opts o = {.fault_errno = EIO,
	                          .fault_path = "/revocations",
	                          .fault_call = 2,
	                          .fault_for_good = true};

	rig_begin_run(&o);
	assert_true(rig_start());
	power_vfs_full(true);
	rig_revoke_some(0, 2);
	assert_true(rig_told[0].held && rig_told[1].held);
	assert_true(failed_becomes(true));
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	assert_true(failed_becomes(false));
	rig_die();
	power_vfs_full(false);
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = rig_disk});
	assert_null(rig_check());
	rig_end_run();
}

static void journal__is_written_whole_by_short_writes(void **state)
{
	struct disk_fsx_opts o = {.short_writes = true};
	bool fired;

	assert_null(fault_at(&o, &fired));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(journal__loses_nothing_that_was_answered_when_any_call_fails_once),
		cmocka_unit_test(journal__that_fails_for_good_stops_no_revocation),
		cmocka_unit_test(journal__that_cannot_be_made_is_made_by_the_next_start),
		cmocka_unit_test(journal__is_written_anew_by_a_start_after_a_failed_sync),
		cmocka_unit_test(journal__whose_file_fails_is_replaced_by_a_new_one),
		cmocka_unit_test(journal__that_cannot_be_mended_is_told_and_mended_later),
		cmocka_unit_test(journal__is_written_whole_by_short_writes),
		cmocka_unit_test(journal__whose_directory_fails_is_not_trusted_before_it_is_synced),
		cmocka_unit_test(journal__made_by_a_killed_process_is_there_when_the_power_goes),
		cmocka_unit_test(journal__that_a_start_has_read_is_what_the_disk_has),
	};

	return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
