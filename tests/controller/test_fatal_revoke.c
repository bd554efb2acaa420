/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sync of the database fails while revocations wait for their commit: the process ends, for
 * nobody knows what the file has (rule 10). Each that waited is in the journal before, and answered
 * `effective, record pending`; the next start carries it out and records it, once. Where the
 * journal fails, too, nobody is told anything, and the next start has the old state or the new one.
 * Every sync of the database is swept: at the start, of each revocation, at the end. Negative
 * controls: without the journal's write, and without its sync, the same sweep finds the loss.
 */
#include "tests/controller/journal_rig.h"
#include "tests/controller/power_vfs.h"
#include "controller/store_front_priv.h"
#include "tests/await.h"
#include <errno.h>

/* ---- the journal's write, left out ---- */

static bool no_journal;

unsigned __real_store_journal_keep(struct store *s, struct list *txns);
unsigned __wrap_store_journal_keep(struct store *s, struct list *txns);
unsigned __wrap_store_journal_keep(struct store *s, struct list *txns)
{
	struct store_txn *t;

	if (!no_journal)
		return __real_store_journal_keep(s, txns);
	list_for_each (txns, t, link)
		t->noted |= t->result.record_pending && t->note;
	return 0;
}

/* ---- one run ---- */

struct tally {
	unsigned pending; /* runs that ended with revocations waiting, and told so */
	unsigned untold;  /* runs in which somebody who had asked heard nothing */
};

static void use(const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;

	with.disk = rig_disk;
	disk_fsx_use(&with);
}

/* False: it met the failure, and nobody had asked for anything. */
static bool start_is_recorded(void)
{
	struct store_stats st;

	assert_true(AWAIT((store_stats(rig_store, &st), st.commits) || atomic_load(&rig_fatals)));
	if (!atomic_load(&rig_fatals))
		return true;
	rig_stop();
	return false;
}

static void live(const struct disk_fsx_opts *o, struct tally *t)
{
	unsigned asked = 0, held = 0;

	if (!rig_start() || !start_is_recorded())
		return;
	use(o);
	rig_revoke_some(0, 1);
	rig_revoke_some(1, 3);
	rig_revoke_some(JOURNAL_TENANTS, 1);
	for (unsigned i = 0; i < JOURNAL_TARGETS; i++) {
		asked += rig_told[i].asked;
		held += rig_told[i].held;
	}
	t->pending += rig_pending_answers > 0;
	t->untold += held < asked;
	rig_stop();
}

/* NULL, or what is wrong after the next starts. From the @n-th on no sync of the database works. */
static const char *fail_from(uint64_t n, const struct disk_fsx_opts *o, struct tally *t,
                             bool *ret_failed)
{
	const struct disk_fsx_opts none = {0};
	const char *bad;

	rig_begin_run(&none);
	power_vfs_use(&(struct power_vfs_opts){.disk = rig_disk, .fail_sync_at = n});
	live(o, t);
	*ret_failed = power_vfs_syncs() >= n;
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED + n);
	use(&none);
	power_vfs_use(&(struct power_vfs_opts){.disk = rig_disk});
	bad = rig_check();
	rig_end_run();
	return bad;
}

static const char *sweep(const struct disk_fsx_opts *o, struct tally *ret, uint64_t *ret_n)
{
	const char *bad = NULL;
	bool failed = true;

	*ret = (struct tally){0};
	for (*ret_n = 0; failed && !bad;)
		bad = fail_from(++*ret_n, o, ret, &failed);
	return bad;
}

/* ---- tests ---- */

static const struct disk_fsx_opts journal_fails = {
	.fault_errno = EIO, .fault_path = "/revocations", .fault_for_good = true};

static void revoke__that_meets_a_failed_sync_is_answered_and_kept_by_the_journal(void **state)
{
	struct disk_fsx_opts none = {0};
	struct tally t;
	uint64_t n;
	const char *bad = sweep(&none, &t, &n);

	if (bad)
		fail_msg("sync %llu failed: %s", (unsigned long long)n, bad);
	assert_int_equal(t.untold, 0);
	assert_in_range(t.pending, 3, 5); /* those that are asked together share a commit or not */
}

/* The journal stops at the same time: what nobody keeps nobody is told. */
static void revoke__that_nothing_can_keep_is_not_answered(void **state)
{
	struct tally t;
	uint64_t n;
	const char *bad = sweep(&journal_fails, &t, &n);

	if (bad)
		fail_msg("sync %llu failed: %s", (unsigned long long)n, bad);
	assert_int_equal(t.pending, 0);
	assert_in_range(t.untold, 3, 5);
}

/* Those that a full disk left in memory only, because the journal failed for a moment, have their
 * note before the process ends for a failed sync. */
static void revoke__that_is_in_memory_only_is_noted_before_the_end(void **state)
{
	const struct disk_fsx_opts none = {0};
	const char *bad;

	rig_begin_run(&none);
	assert_true(rig_start());
	use(&journal_fails);
	power_vfs_full(true);
	rig_revoke_some(0, 2);
	assert_true(disk_fsx_faults() > 0);
	assert_int_equal(rig_pending_answers, 2);
	use(&none);
	power_vfs_fail_sync();
	power_vfs_full(false);
	rig_revoke_some(2, 1);
	assert_true(AWAIT(atomic_load(&rig_fatals) > 0));
	rig_stop();
	disk_restore(rig_disk, DISK_LOSE_UNSYNCED, SEED);
	use(&none);
	power_vfs_use(&(struct power_vfs_opts){.disk = rig_disk});
	bad = rig_check();
	rig_end_run();
	if (bad)
		fail_msg("%s", bad);
}

/* ---- negative controls ---- */

static void sweep__finds_the_loss_without_the_journals_write(void **state)
{
	struct disk_fsx_opts none = {0};
	struct tally t;
	uint64_t n;

	no_journal = true;
	assert_non_null(sweep(&none, &t, &n));
	no_journal = false;
}

static void sweep__finds_the_loss_without_the_journals_fsync(void **state)
{
	struct disk_fsx_opts o = {.no_fsync = JOURNAL};
	struct tally t;
	uint64_t n;

	/* What was written is in the page cache, and goes with the power. */
	assert_non_null(sweep(&o, &t, &n));
}

/* No checkpoints beside the revocations: it is their commits that meet the failure. */
static int setup(void **state)
{
	int r = rig_setup(state);

	rig_fix.opts.checkpoint_ms = 3600 * 1000;
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			revoke__that_meets_a_failed_sync_is_answered_and_kept_by_the_journal),
		cmocka_unit_test(revoke__that_nothing_can_keep_is_not_answered),
		cmocka_unit_test(revoke__that_is_in_memory_only_is_noted_before_the_end),
		cmocka_unit_test(sweep__finds_the_loss_without_the_journals_write),
		cmocka_unit_test(sweep__finds_the_loss_without_the_journals_fsync),
	};

	return cmocka_run_group_tests(tests, setup, rig_teardown);
}
