/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut at every call that makes directories and a file in the deepest of them that must
 * not be there before: what was said to be there is, whole; what was not is not, or whole. A
 * process that is killed and another that goes on leave the same. Negative controls: without the
 * fsync of any one directory, or of the file, the sweep finds a loss.
 */
#include "common/fsx.h"
#include "tests/common/disk_fsx.h"
#include "tests/testing.h"
#include <errno.h>
#include <sys/stat.h>

#define TEXT "a key that was told to somebody"
#define SEED 75

static char *parent, dir[512], deep[600], path[700];
static struct disk *disk;

static int setup(void **state)
{
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	if (testing_dir_setup((void **)&parent) < 0)
		return -1;
	snprintf(dir, sizeof(dir), "%s/root", parent);
	snprintf(deep, sizeof(deep), "%s/one/two/three", dir);
	snprintf(path, sizeof(path), "%s/key", deep);
	return mkdir(dir, 0700);
}

static int teardown(void **state)
{
	return testing_dir_teardown((void **)&parent);
}

/* 1: there, whole; 0: not there; -1: something else. */
static int found(void)
{
	void *p = NULL;
	size_t n = 0;
	int r = fsx_read_file(path, 4096, &p, &n, NULL);

	if (r == 0)
		r = n == strlen(TEXT) && !memcmp(p, TEXT, n) ? 1 : -1;
	else
		r = r == -ENOENT ? 0 : -1;
	free(p);
	return r;
}

static bool make(void)
{
	int r = fsx_mkdirs(deep, 0700, NULL);

	r = r < 0 ? r : fsx_create_atomic(path, TEXT, strlen(TEXT), 0600, NULL);
	/* Who finds it there, and tells of it, has not synced it yet. */
	return (r == -EEXIST ? fsx_sync_dir(deep, NULL) : r) == 0;
}

static void clean(void)
{
	assert_int_equal(nftw(dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
}

/* NULL or what is wrong. @killed: it only ends there, another goes on, and then the power goes. */
static const char *cut_at(uint64_t call, enum disk_loss loss, bool killed, const char *no_fsync,
                          bool *ret_done)
{
	const char *bad = NULL;
	bool said;
	int is;

	clean();
	disk = disk_new(dir);
	disk_fsx_use(&(struct disk_fsx_opts){.disk = disk, .no_fsync = no_fsync});
	disk_arm(disk, call);
	said = *ret_done = make();
	if (killed && !said) {
		disk_arm(disk, UINT64_MAX);
		said = make();
	}
	disk_restore(disk, loss, SEED + call);
	disk_fsx_end();
	disk_free(disk);
	is = found();
	if (is < 0)
		bad = "a part of a file has its name";
	else if (said && !is)
		bad = "what was said to be there is lost";
	return bad;
}

static const char *sweep(enum disk_loss loss, bool killed, const char *no_fsync)
{
	const char *bad = NULL;
	bool done = false;
	uint64_t call;

	for (call = 0; !done && !bad; call++)
		bad = cut_at(call, loss, killed, no_fsync, &done);
	if (!bad)
		assert_true(call > 10);
	return bad;
}

static void file__that_was_made_is_there_after_a_power_cut(void **state)
{
	const char *bad = sweep(DISK_LOSE_UNSYNCED, false, NULL);

	bad = bad ? bad : sweep(DISK_TEAR, false, NULL);
	if (bad)
		fail_msg("%s", bad);
}

static void file__that_another_process_began_is_there_after_a_power_cut(void **state)
{
	const char *bad = sweep(DISK_LOSE_UNSYNCED, true, NULL);

	bad = bad ? bad : sweep(DISK_TEAR, true, NULL);
	if (bad)
		fail_msg("%s", bad);
}

static void power__sweep_finds_the_loss_without_the_fsync_of_any_one(void **state)
{
	static const char *const kinds[] = {"=/root", "=/one", "=/two", "=/three", ".key.tmp-"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!sweep(DISK_LOSE_UNSYNCED, false, kinds[i]))
			fail_msg("nothing is lost without the fsyncs of %s", kinds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file__that_was_made_is_there_after_a_power_cut),
		cmocka_unit_test(file__that_another_process_began_is_there_after_a_power_cut),
		cmocka_unit_test(power__sweep_finds_the_loss_without_the_fsync_of_any_one),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
