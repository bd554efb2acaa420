/* SPDX-License-Identifier: Apache-2.0 */
/* The log of tombstones: what a crash may take, and what damage denies. */
#include "agent/revocations.h"
#include "common/fsx.h"
#include "tests/agent/fixture.h"
#include <errno.h>

static struct tombstone tomb(enum obj_kind kind, uint8_t seed, uint64_t version)
{
	struct tombstone t = {.revocation = fix_uid((uint8_t)(seed + 100)),
	                      .uid = fix_uid(seed),
	                      .kind = kind,
	                      .version = version,
	                      .reason = "key leaked"};

	return t;
}

static struct revlog *open_log(const char *path, struct revlog_opened *info)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct revlog *l = NULL;

	if (revlog_open(path, NULL, NULL, &l, info, &err) < 0)
		fail_msg("%s", err.msg);
	return l;
}

static void write_three(const char *path)
{
	struct revlog_opened info;
	struct revlog *l = open_log(path, &info);
	struct tombstone t[] = {tomb(OBJ_TENANT, 1, 4), tomb(OBJ_GRANT, 2, 0),
	                        tomb(OBJ_SESSION, 3, 0)};

	for (int i = 0; i < 3; i++)
		assert_int_equal(revlog_write(l, &t[i], NULL), 0);
	revlog_free(l);
}

static void revocations__are_obeyed_after_a_restart(void **state)
{
	struct ros2_uid alpha = fix_uid(1), rev = fix_uid(102), none = fix_uid(9);
	struct revlog_opened info;
	struct fixture f;
	struct agent_object *g;
	struct revlog *l;
	char path[4200];

	fixture_init(&f);
	testing_path(path, *state, "revocations");
	write_three(path);
	l = open_log(path, &info);
	assert_false(info.damaged || info.torn);
	assert_int_equal(revlog_count(l), 3);
	assert_true(revlog_has(l, &rev));
	assert_false(revlog_has(l, &none));
	assert_true(revlog_covers_tenant(l, &alpha, 4));
	assert_false(revlog_covers_tenant(l, &alpha, 5));
	g = fix_open(&f, fix_grant(&f, 2, 7, FIX_ALPHA, 9, 0, 1000, 9));
	assert_true(revlog_covers_grant(l, g));
	agent_object_free(g);
	g = fix_open(&f, fix_grant(&f, 4, 1, FIX_ALPHA, 1, 0, 1000, 4));
	assert_true(revlog_covers_grant(l, g));
	agent_object_free(g);
	g = fix_open(&f, fix_grant(&f, 4, 1, FIX_ALPHA, 1, 0, 1000, 5));
	assert_false(revlog_covers_grant(l, g));
	agent_object_free(g);
	revlog_free(l);
	fixture_fini(&f);
}

static void revocations__of_the_agent_cover_grants_sealed_before(void **state)
{
	struct tombstone t = tomb(OBJ_AGENT, 1, 0);
	struct revlog_opened info;
	struct agent_object *before, *after;
	struct fixture f;
	struct revlog *l;
	char path[4200];

	fixture_init(&f);
	testing_path(path, *state, "revocations");
	before = fix_open(&f, fix_grant(&f, 4, 1, FIX_ALPHA, 1, 0, 1000, 5));
	t.counter = f.epoch.counter;
	t.batch = f.batch;
	after = fix_open(&f, fix_grant(&f, 5, 1, FIX_ALPHA, 1, 0, 1000, 5));
	l = open_log(path, &info);
	assert_int_equal(revlog_add(l, &t, NULL), 0);
	assert_true(revlog_covers_grant(l, before));
	assert_false(revlog_covers_grant(l, after));
	agent_object_free(before);
	agent_object_free(after);
	revlog_free(l);
	fixture_fini(&f);
}

static void *slurp(const char *path, size_t *n)
{
	void *p;

	assert_int_equal(fsx_read_file(path, 1 << 20, &p, n, NULL), 0);
	return p;
}

static void revocations__tolerate_an_append_torn_at_any_byte(void **state)
{
	struct revlog_opened info;
	char path[4200];
	size_t n, two = 0;
	uint8_t *p;

	testing_path(path, *state, "revocations");
	write_three(path);
	p = slurp(path, &n);
	two = n / 3 * 2;
	for (size_t cut = two + 1; cut < n; cut++) {
		struct revlog *l;

		assert_int_equal(fsx_write_atomic(path, p, cut, 0600, NULL), 0);
		l = open_log(path, &info);
		assert_true(info.torn);
		assert_false(info.damaged);
		assert_int_equal(revlog_count(l), 2);
		revlog_free(l);
		/* Cut off for good: the next start sees nothing odd. */
		l = open_log(path, &info);
		assert_false(info.torn || info.damaged);
		revlog_free(l);
	}
	free(p);
}

static void revocations__take_zeros_at_the_end_for_a_torn_append(void **state)
{
	struct revlog_opened info;
	struct revlog *l;
	char path[4200];
	size_t n;
	uint8_t *p;

	testing_path(path, *state, "revocations");
	write_three(path);
	p = slurp(path, &n);
	memset(p + n / 3 * 2, 0, n - n / 3 * 2);
	assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
	l = open_log(path, &info);
	assert_true(info.torn && !info.damaged);
	assert_int_equal(revlog_count(l), 2);
	revlog_free(l);
	free(p);
}

static int note_replace(void *arg, struct ros2_err *err)
{
	(*(int *)arg)++;
	return 0;
}

static void revocations__deny_everything_when_a_byte_in_them_is_damaged(void **state)
{
	char path[4200];
	size_t n;
	uint8_t *p;

	testing_path(path, *state, "revocations");
	write_three(path);
	p = slurp(path, &n);
	for (size_t i = 0; i < n; i += 5) {
		struct revlog_opened info;
		struct revlog *l = NULL;
		int replaced = 0;

		p[i] ^= 0x20;
		assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
		p[i] ^= 0x20;
		assert_int_equal(revlog_open(path, note_replace, &replaced, &l, &info, NULL), 0);
		assert_true(info.damaged);
		assert_int_equal(replaced, 1);
		assert_true(strlen(info.words) > 20);
		assert_true(revlog_count(l) < 3);
		revlog_free(l);
	}
	free(p);
}

static int refuse_replace(void *arg, struct ros2_err *err)
{
	return ros2_err_set(err, -EIO, "cannot forget");
}

static void revocations__stay_damaged_when_local_state_cannot_be_forgotten(void **state)
{
	struct revlog_opened info;
	struct revlog *l = NULL;
	char path[4200];
	size_t n;
	uint8_t *p;

	testing_path(path, *state, "revocations");
	write_three(path);
	p = slurp(path, &n);
	p[20] ^= 1;
	assert_int_equal(fsx_write_atomic(path, p, n, 0600, NULL), 0);
	assert_int_equal(revlog_open(path, refuse_replace, NULL, &l, &info, NULL), -EIO);
	assert_int_equal(revlog_open(path, note_replace, &(int){0}, &l, &info, NULL), 0);
	assert_true(info.damaged);
	revlog_free(l);
	free(p);
}

static struct {
	int write_left, fsync_left;
} fault = {-1, -1};
static const struct fsx_ops *real;

static ssize_t f_write(int fd, const void *p, size_t n)
{
	if (fault.write_left < 0 || fault.write_left--)
		return real->write(fd, p, n);
	if (n > 10)
		(void)!real->write(fd, p, 10);
	errno = ENOSPC;
	return -1;
}
static int f_fsync(int fd)
{
	if (fault.fsync_left < 0 || fault.fsync_left--)
		return real->fsync(fd);
	errno = EIO;
	return -1;
}

static void revocations__leave_no_half_frame_when_the_disk_is_full(void **state)
{
	struct fsx_ops ops = *fsx_io;
	struct tombstone t = tomb(OBJ_GRANT, 8, 0);
	struct revlog_opened info;
	struct revlog *l;
	char path[4200];

	testing_path(path, *state, "revocations");
	real = fsx_io;
	ops.write = f_write;
	ops.fsync = f_fsync;
	fsx_io = &ops;
	l = open_log(path, &info);
	fault.write_left = 0;
	assert_int_equal(revlog_write(l, &t, NULL), -ENOSPC);
	assert_int_equal(revlog_write(l, &t, NULL), 0);
	fault.fsync_left = 0;
	assert_int_equal(revlog_write(l, &t, NULL), -EIO);
	/* Never tried again after a failed fsync. */
	assert_int_equal(revlog_write(l, &t, NULL), -EIO);
	revlog_free(l);
	fsx_io = real;
	l = open_log(path, &info);
	assert_false(info.damaged);
	revlog_free(l);
}

#define T(f) cmocka_unit_test_setup_teardown(f, testing_dir_setup, testing_dir_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(revocations__are_obeyed_after_a_restart),
		T(revocations__of_the_agent_cover_grants_sealed_before),
		T(revocations__tolerate_an_append_torn_at_any_byte),
		T(revocations__take_zeros_at_the_end_for_a_torn_append),
		T(revocations__deny_everything_when_a_byte_in_them_is_damaged),
		T(revocations__stay_damaged_when_local_state_cannot_be_forgotten),
		T(revocations__leave_no_half_frame_when_the_disk_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
