/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export whose power is cut, or whose disk or memory fails, at each of its calls: a file of that
 * name is the old one or the new one, whole; it is the new one when the export said so; nothing is
 * left beside it; and the same again works. Negative controls: without the fsync of the file, or of
 * its directory, the sweep finds a loss.
 */
#include "proto/audit/audit.h"
#include "tests/common/disk_fsx.h"
#include "tests/sweep/sweep.h"
#include "tests/testing.h"
#include <sys/stat.h>

#define OLD_RECORDS 2
#define NEW_RECORDS 50 /* more than is written at once */
#define RECORD_LEN  3000
#define SEED        73

static char *parent, dir[512], path[600];
static struct disk *disk;
static struct bytes {
	void *p;
	size_t n;
} old, new;

static int export(unsigned records, struct ros2_err *err)
{
	static const uint8_t chain[SHA256_LEN] = {7};
	uint8_t record[RECORD_LEN];
	struct audit_file *f = NULL;
	int r = audit_file_create(path, &f, err);

	for (unsigned i = 0; i < records && r == 0; i++) {
		memset(record, (int)i, sizeof(record));
		r = audit_file_write_record(f, i + 1, record, sizeof(record), chain, err);
	}
	r = r < 0 ? r : audit_file_write_checkpoint(f, "a note\n", 7, err);
	if (r == 0)
		return audit_file_finish(f, err);
	audit_file_abort(f);
	return r;
}

static struct bytes content(void)
{
	struct bytes b = {0};

	(void)fsx_read_file(path, 1 << 20, &b.p, &b.n, NULL);
	return b;
}

static bool is(const struct bytes *want)
{
	struct bytes b = content();
	bool same = b.p && b.n == want->n && !memcmp(b.p, want->p, b.n);

	free(b.p);
	return same;
}

static bool is_beside(void)
{
	char partial[700];

	snprintf(partial, sizeof(partial), "%s.partial", path);
	return access(partial, F_OK) == 0;
}

static int group_setup(void **state)
{
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&parent) < 0)
		return -1;
	snprintf(dir, sizeof(dir), "%s/exports", parent);
	snprintf(path, sizeof(path), "%s/log.audit", dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(export(OLD_RECORDS, NULL), 0);
	old = content();
	assert_int_equal(export(NEW_RECORDS, NULL), 0);
	new = content();
	assert_true(new.n > (size_t)NEW_RECORDS *RECORD_LEN);
	return 0;
}

static int group_teardown(void **state)
{
	free(old.p);
	free(new.p);
	return testing_dir_teardown((void **)&parent);
}

/* The directory as before, on a disk that is watched. */
static void begin(bool was_there)
{
	unlink(path);
	if (was_there)
		assert_int_equal(export(OLD_RECORDS, NULL), 0);
	disk = disk_new(dir);
	(void)disk_lookup(disk, path); /* it is on the disk */
}

static void end(void)
{
	disk_fsx_end();
	disk_free(disk);
}

/* NULL or what is wrong. */
static const char *check(bool was_there, bool done)
{
	if (is(&new))
		return NULL;
	if (done)
		return "an export that was said to be done is lost";
	if (was_there)
		return is(&old) ? NULL : "the old copy is lost or damaged";
	return access(path, F_OK) < 0 ? NULL : "there is a part of an export under its name";
}

/* ---- power ---- */

static const char *sweep_power(bool was_there, enum disk_loss loss, const char *no_fsync)
{
	const char *bad = NULL;
	bool done = false;
	uint64_t call;

	for (call = 0; !done && !bad; call++) {
		begin(was_there);
		disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
		disk_arm(disk, call);
		done = export(NEW_RECORDS, NULL) == 0;
		disk_restore(disk, loss, SEED + call);
		end();
		bad = check(was_there, done);
	}
	if (!bad)
		assert_true(call > 6);
	return bad;
}

static void export__is_whole_and_there_after_a_power_cut_at_any_call(void **state)
{
	for (int i = 0; i < 4; i++) {
		const char *bad = sweep_power(i % 2, i / 2 ? DISK_TEAR : DISK_LOSE_UNSYNCED, NULL);

		if (bad)
			fail_msg("%s", bad);
	}
}

static void power__sweep_finds_the_losses_without_either_fsync(void **state)
{
	assert_non_null(sweep_power(false, DISK_LOSE_UNSYNCED, ".partial"));
	assert_non_null(sweep_power(true, DISK_LOSE_UNSYNCED, ".partial"));
	assert_non_null(sweep_power(false, DISK_LOSE_UNSYNCED, "=/exports"));
	assert_non_null(sweep_power(true, DISK_LOSE_UNSYNCED, "=/exports"));
}

/* ---- calls that fail ---- */

static const char *fails(const struct disk_fsx_opts *o, bool *ret_fired)
{
	struct disk_fsx_opts with = *o;
	struct ros2_err err = ROS2_ERR_INIT;
	const char *bad;
	int r;

	begin(true);
	with.disk = disk;
	disk_fsx_use(&with);
	r = export(NEW_RECORDS, &err);
	*ret_fired = disk_fsx_faults() > 0;
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	bad = check(true, r == 0);
	if (!bad && r < 0 && !err.msg[0])
		bad = "it failed without a word";
	if (!bad && r == 0 && *ret_fired && o->fault_errno != EINTR)
		bad = "it says that all is well";
	if (!bad && is_beside() && !o->fault_for_good)
		bad = "what was not finished is left beside it";
	if (!bad && export(NEW_RECORDS, &err) < 0)
		bad = "it does not work when the fault has gone";
	disk_restore(disk, DISK_LOSE_UNSYNCED, SEED);
	end();
	return bad ? bad : check(true, true);
}

static void export__says_what_fails_and_keeps_the_old_copy(void **state)
{
	static const int errors[] = {EIO, ENOSPC, EINTR};

	for (size_t e = 0; e < 3; e++) {
		for (int for_good = 0; for_good < (errors[e] == EINTR ? 1 : 2); for_good++) {
			struct disk_fsx_opts o = {.fault_errno = errors[e],
			                          .fault_for_good = for_good};
			bool fired = true;

			for (; fired; o.fault_call++) {
				const char *bad = fails(&o, &fired);

				if (bad)
					fail_msg("call %u, %s: %s", (unsigned)o.fault_call,
					         strerror(errors[e]), bad);
			}
			assert_true(o.fault_call > 3);
		}
	}
}

static void export__is_written_whole_by_short_writes(void **state)
{
	struct disk_fsx_opts o = {.short_writes = true};
	bool fired;

	assert_null(fails(&o, &fired));
}

static void export__without_memory_says_so(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};

	unlink(path);
	assert_int_equal(export(OLD_RECORDS, NULL), 0);
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int r = export(NEW_RECORDS, &err);

		sweep_off();
		assert_int_equal(r, sweep_fired() ? -ENOMEM : 0);
		assert_true(r == 0 || err.msg[0]);
		assert_true(is(r == 0 ? &new : &old));
		assert_false(is_beside());
		assert_int_equal(export(OLD_RECORDS, NULL), 0);
	}
	assert_true(s.points >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(export__is_whole_and_there_after_a_power_cut_at_any_call),
		cmocka_unit_test(power__sweep_finds_the_losses_without_either_fsync),
		cmocka_unit_test(export__says_what_fails_and_keeps_the_old_copy),
		cmocka_unit_test(export__is_written_whole_by_short_writes),
		cmocka_unit_test(export__without_memory_says_so),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
