/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The note of targets that may be carrying out writes, whose disk loses its power or fails at each
 * call: what may be mounted is in it for the next process, with its time; what ended in order is
 * not. Negative controls: without the fsync of the file, or of its directory, the sweep finds a
 * loss.
 */
#include "common/log.h"
#include "dataplane/dp_priv.h"
#include "tests/common/disk_fsx.h"
#include "tests/testing.h"
#include <sys/stat.h>

#define SEED 76

static const struct nvmf_config first = {.subsystem = "nqn.2026-11.test:a", .quiesce_ms = 400000},
				second = {.subsystem = "nqn.2026-11.test:b", .quiesce_ms = 500000};

static char *parent, dir[512];
static struct disk *disk;
static struct dp life; /* one process */

static int setup(void **state)
{
	log_set_level(LOG_LEVEL_ERROR + 1);
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&parent) < 0)
		return -1;
	snprintf(dir, sizeof(dir), "%s/state", parent);
	return mkdir(dir, 0700);
}

static int teardown(void **state)
{
	return testing_dir_teardown((void **)&parent);
}

static void begin(const struct disk_fsx_opts *o)
{
	struct disk_fsx_opts with = *o;

	assert_int_equal(nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	with.disk = disk = disk_new(dir);
	disk_fsx_use(&with);
}

static void end(void)
{
	disk_fsx_end();
	disk_free(disk);
}

static void process(void)
{
	memset(&life, 0, sizeof(life));
	life.opts.state_dir = dir;
	assert_int_equal(dp_unquiet_open(&life, NULL), 0);
}

/* Does this process wait for the target of @c as long as it may take? */
static bool waits_for(const struct nvmf_config *c)
{
	struct engine_config told = {0};

	dp_unquiet_tell(&life, c, &told);
	return told.unquiet_since_ns && told.unquiet_quiesce_ms >= c->quiesce_ms;
}

/* ---- power ---- */

/* NULL or what is wrong. */
static const char *cut_at(uint64_t call, enum disk_loss loss, bool in_order, const char *no_fsync,
                          bool *ret_done)
{
	bool mounts[2], ended;
	const char *bad = NULL;

	begin(&(struct disk_fsx_opts){.no_fsync = no_fsync});
	process();
	disk_arm(disk, call);
	mounts[0] = dp_unquiet_note(&life, &first, NULL) == 0;
	mounts[1] = mounts[0] && dp_unquiet_note(&life, &second, NULL) == 0;
	dp_unquiet_close(&life, in_order);
	*ret_done = ended = !disk_is_off(disk);
	disk_restore(disk, loss, SEED + call);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	process();
	if (in_order && ended && life.unquiet.there)
		bad = "a note is back that was taken away";
	if (!in_order && ((mounts[0] && !waits_for(&first)) || (mounts[1] && !waits_for(&second))))
		bad = "a target that was mounted is not noted";
	dp_unquiet_close(&life, false);
	end();
	return bad;
}

static const char *sweep(enum disk_loss loss, bool in_order, const char *no_fsync)
{
	const char *bad = NULL;
	bool done = false;
	uint64_t call;

	for (call = 0; !done && !bad; call++)
		bad = cut_at(call, loss, in_order, no_fsync, &done);
	if (!bad)
		assert_true(call > 8);
	return bad;
}

static void note__is_there_after_a_power_cut_when_something_may_be_mounted(void **state)
{
	const char *bad = sweep(DISK_LOSE_UNSYNCED, false, NULL);

	bad = bad ? bad : sweep(DISK_TEAR, false, NULL);
	if (bad)
		fail_msg("%s", bad);
}

static void note__that_was_taken_away_does_not_come_back(void **state)
{
	const char *bad = sweep(DISK_LOSE_UNSYNCED, true, NULL);

	bad = bad ? bad : sweep(DISK_TEAR, true, NULL);
	if (bad)
		fail_msg("%s", bad);
}

static void power__sweep_finds_the_losses_without_either_fsync(void **state)
{
	assert_non_null(sweep(DISK_LOSE_UNSYNCED, false, ".unquiet-targets.tmp-"));
	assert_non_null(sweep(DISK_LOSE_UNSYNCED, false, "=/state"));
}

/* The note and its removal wait for the directory in different calls. */
static void power__sweep_finds_a_note_that_was_removed_without_its_fsync(void **state)
{
	struct disk_fsx_opts o = {0};

	begin(&o);
	process();
	assert_int_equal(dp_unquiet_note(&life, &first, NULL), 0);
	o = (struct disk_fsx_opts){.disk = disk, .no_fsync = "=/state"};
	disk_fsx_use(&o);
	dp_unquiet_close(&life, true);
	disk_arm(disk, 0);
	disk_restore(disk, DISK_LOSE_UNSYNCED, SEED);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	process();
	assert_true(life.unquiet.there);
	dp_unquiet_close(&life, false);
	end();
}

/* ---- calls that fail ---- */

static bool fails_at(const struct disk_fsx_opts *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	bool fired;
	int r;

	begin(o);
	process();
	r = dp_unquiet_note(&life, &first, &err);
	fired = disk_fsx_faults() > 0;
	assert_true(r == 0 || (fired && err.msg[0]));
	assert_true(r < 0 || !fired || o->fault_errno == EINTR);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	/* Again, and it is noted. */
	assert_int_equal(dp_unquiet_note(&life, &first, &err), 0);
	disk_arm(disk, 0);
	disk_restore(disk, DISK_LOSE_UNSYNCED, SEED);
	dp_unquiet_close(&life, false);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk});
	process();
	assert_true(waits_for(&first));
	dp_unquiet_close(&life, false);
	end();
	return fired;
}

static void note__that_fails_is_told_and_made_when_asked_again(void **state)
{
	static const int errors[] = {EIO, ENOSPC, EINTR};

	for (size_t e = 0; e < 3; e++) {
		for (int for_good = 0; for_good < (errors[e] == EINTR ? 1 : 2); for_good++) {
			struct disk_fsx_opts o = {.fault_errno = errors[e],
			                          .fault_for_good = for_good};

			while (fails_at(&o))
				o.fault_call++;
			assert_true(o.fault_call > 2);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(note__is_there_after_a_power_cut_when_something_may_be_mounted),
		cmocka_unit_test(note__that_was_taken_away_does_not_come_back),
		cmocka_unit_test(power__sweep_finds_the_losses_without_either_fsync),
		cmocka_unit_test(power__sweep_finds_a_note_that_was_removed_without_its_fsync),
		cmocka_unit_test(note__that_fails_is_told_and_made_when_asked_again),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
