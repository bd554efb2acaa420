/* SPDX-License-Identifier: Apache-2.0 */
/* The log of tombstones: what a crash may take, and what damage denies. */
#include "agent/bytes.h"
#include "agent/revocations.h"
#include "common/clock.h"
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

static ssize_t no_room(int fd, const void *p, size_t n)
{
	errno = ENOSPC;
	return -1;
}

/* It may be torn because of that. */
static void revocations__torn_on_a_full_disk_are_no_reason_not_to_start(void **state)
{
	struct fsx_ops full = *fsx_io;
	const struct fsx_ops *real = fsx_io;
	struct revlog_opened info;
	struct revlog *l = NULL;
	char path[4200];
	size_t n;
	void *p;
	int r;

	testing_path(path, *state, "revocations");
	write_three(path);
	p = slurp(path, &n);
	assert_int_equal(fsx_write_atomic(path, p, n - 1, 0600, NULL), 0);
	free(p);
	full.write = no_room;
	fsx_io = &full;
	r = revlog_open(path, NULL, NULL, &l, &info, NULL);
	fsx_io = real;
	assert_int_equal(r, 0);
	assert_true(info.torn && !info.damaged);
	assert_int_equal(revlog_count(l), 2);
	revlog_free(l);
	l = open_log(path, &info);
	assert_false(info.torn || info.damaged);
	assert_int_equal(revlog_count(l), 2);
	revlog_free(l);
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

static bool is_there(const char *path, unsigned n)
{
	char name[4300];

	snprintf(name, sizeof(name), "%s.damaged-%u", path, n);
	return access(name, F_OK) == 0;
}

static void revocations__damaged_are_kept_and_only_the_newest_of_them(void **state)
{
	unsigned removed = 0, n = REVLOG_DAMAGED_KEPT + 3;
	struct revlog_opened info;
	char path[4200], other[4300];

	testing_path(path, *state, "revocations");
	snprintf(other, sizeof(other), "%s.damaged-1.note", path);
	assert_int_equal(fsx_write_atomic(other, "?", 1, 0600, NULL), 0);
	for (unsigned i = 1; i <= n; i++) {
		char as[64];

		assert_int_equal(fsx_write_atomic(path, "not a log of ours", 17, 0600, NULL), 0);
		revlog_free(open_log(path, &info));
		assert_true(info.damaged);
		snprintf(as, sizeof(as), "revocations.damaged-%u", i);
		assert_string_equal(info.saved_as, as);
		removed += info.removed;
	}
	assert_int_equal(removed, 3);
	for (unsigned i = 1; i <= n; i++)
		assert_int_equal(is_there(path, i), i > 3);
	assert_int_equal(access(other, F_OK), 0);
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

/* ---- leaving out ---- */

static const struct clock_stamp now_here = {.boot_id = {1}, .boottime_ns = 5000};

static void add_and_write(struct revlog *l, struct tombstone t, const struct clock_stamp *received)
{
	t.received = *received;
	t.snapshot_sequence = 40;
	assert_int_equal(revlog_write(l, &t, NULL), 0);
	assert_int_equal(revlog_add(l, &t, NULL), 0);
}

/* A tenant twice, a grant of this boot, one of an earlier boot, one of long ago, a session, all. */
static void write_many(struct revlog *l, const struct clock_stamp *now)
{
	struct clock_stamp other = {.boot_id = {2}, .boottime_ns = 6000}, old = {.boot_id = {1}};
	struct tombstone all = tomb(OBJ_AGENT, 9, 0);

	all.counter = 2;
	all.batch = 7;
	add_and_write(l, tomb(OBJ_TENANT, 1, 4), now);
	add_and_write(l, tomb(OBJ_TENANT, 1, 6), now);
	add_and_write(l, tomb(OBJ_GRANT, 2, 0), now);
	add_and_write(l, tomb(OBJ_GRANT, 3, 0), &other);
	old.boottime_ns = now->boottime_ns > 33ull * 86400 * NS_PER_S ? 1 : now->boottime_ns;
	add_and_write(l, tomb(OBJ_GRANT, 4, 0), &old);
	add_and_write(l, tomb(OBJ_SESSION, 5, 0), now);
	add_and_write(l, all, now);
}

static bool covers_grant(struct fixture *f, const struct revlog *l, uint8_t seed)
{
	struct agent_object *g;
	bool covers;

	f->epoch.counter = 9; /* beyond what everything at the agent was taken away up to */
	g = fix_open(f, fix_grant(f, seed, 77, FIX_ALPHA, 1, 0, 1000, 5));
	covers = revlog_covers_grant(l, g);
	agent_object_free(g);
	return covers;
}

static void revocations__leave_out_only_what_cannot_come_back(void **state)
{
	struct clock_stamp now = {.boot_id = {1}, .boottime_ns = 40ull * 86400 * NS_PER_S};
	struct ros2_uid alpha = fix_uid(1);
	struct revlog_opened info;
	struct fixture f;
	char path[4200];
	struct revlog *l;
	size_t n, len;
	void *p;

	fixture_init(&f);
	testing_path(path, *state, "revocations");
	l = open_log(path, &info);
	write_many(l, &now);
	free(slurp(path, &n));
	assert_int_equal(revlog_compact(l, &now, 1 << 20, &p, &len), 0);
	assert_int_equal(revlog_compact(l, &now, 1, &p, &len), 1);
	assert_int_equal(revlog_replace(l, p, len, NULL), 0);
	free(p);
	assert_true(len < n * 2 / 3);
	/* What is appended later is behind it, in the same file. */
	add_and_write(l, tomb(OBJ_GRANT, 8, 0), &now);
	revlog_free(l);
	l = open_log(path, &info);
	assert_false(info.damaged || info.torn);
	assert_true(revlog_covers_tenant(l, &alpha, 6));
	assert_false(revlog_covers_tenant(l, &alpha, 7));
	assert_true(covers_grant(&f, l, 2));
	assert_true(covers_grant(&f, l, 8));
	assert_false(covers_grant(&f, l, 3));
	assert_false(covers_grant(&f, l, 4));
	assert_int_equal(revlog_snapshot_sequence(l), 40);
	f.epoch.counter = 2;
	f.batch = 1;
	assert_int_equal(revlog_count(l), 4);                      /* tenant, two grants, all */
	assert_int_equal(revlog_compact(l, &now, 1, &p, &len), 1); /* the reason of the last */
	free(p);
	assert_int_equal(revlog_compact(l, &now, 1, &p, &len), 0);
	revlog_free(l);
	fixture_fini(&f);
}

/* Format 1 does not say when: its grants are kept as if they came now. */
static void revocations__of_format_1_are_kept(void **state)
{
	struct revlog_opened info;
	struct tombstone t = tomb(OBJ_GRANT, 2, 0);
	uint8_t frame[REVLOG_FRAME_MAX], four[4 * REVLOG_FRAME_MAX];
	struct clock_stamp later = now_here;
	struct fixture f;
	char path[4200];
	struct revlog *l;
	size_t n, len;
	void *p;

	fixture_init(&f);
	testing_path(path, *state, "revocations");
	n = revlog_encode(&t, frame);
	memcpy(frame, "RVOK", 4);
	memmove(frame + 16 + 72, frame + 16 + 104, n - 16 - 104);
	n -= 32;
	put_le32(frame + 4, (uint32_t)n - 16);
	put_le32(frame + 8, crypto_crc32c(frame + 16, n - 16));
	put_le32(frame + 12, crypto_crc32c(frame, 12));
	for (unsigned i = 0; i < 4; i++)
		memcpy(four + i * n, frame, n);
	assert_int_equal(fsx_write_atomic(path, four, 4 * n, 0600, NULL), 0);
	l = open_log(path, &info);
	assert_false(info.damaged || info.torn);
	assert_true(covers_grant(&f, l, 2));
	assert_int_equal(revlog_compact(l, &now_here, 1, &p, &len), 1);
	assert_int_equal(revlog_replace(l, p, len, NULL), 0);
	free(p);
	revlog_free(l);
	l = open_log(path, &info);
	assert_true(covers_grant(&f, l, 2));
	later.boottime_ns += 33ull * 86400 * NS_PER_S;
	assert_int_equal(revlog_compact(l, &later, 1, &p, &len), 1);
	free(p);
	assert_false(covers_grant(&f, l, 2));
	revlog_free(l);
	fixture_fini(&f);
}

/* Each call fails once while it is replaced: the tombstones are all there, or the process ends. */
static int swap_fail_in = -1;
static const struct fsx_ops *swap_real_io;
static bool swap_fails(void)
{
	errno = ENOSPC;
	return swap_fail_in >= 0 && swap_fail_in-- == 0;
}
static int swap_f_open(const char *p, int flags, mode_t m)
{
	return swap_fails() ? -1 : swap_real_io->open(p, flags, m);
}
static ssize_t swap_f_write(int fd, const void *p, size_t n)
{
	return swap_fails() ? -1 : swap_real_io->write(fd, p, n);
}
static int swap_f_fsync(int fd)
{
	return swap_fails() ? -1 : swap_real_io->fsync(fd);
}
static int swap_f_rename(const char *a, const char *b)
{
	return swap_fails() ? -1 : swap_real_io->rename(a, b);
}

static void revocations__are_all_there_whatever_fails_while_some_are_left_out(void **state)
{
	struct clock_stamp now = now_here;
	struct fsx_ops ops = *fsx_io;
	struct revlog_opened info;
	struct fixture f;
	bool fired = true;

	fixture_init(&f);
	swap_real_io = fsx_io;
	ops.open = swap_f_open;
	ops.write = swap_f_write;
	ops.fsync = swap_f_fsync;
	ops.rename = swap_f_rename;
	for (int i = 0; fired; i++) {
		char path[4200], name[32];
		struct revlog *l;
		size_t len;
		void *p;
		int r;

		snprintf(name, sizeof(name), "revocations-%d", i);
		testing_path(path, *state, name);
		l = open_log(path, &info);
		write_many(l, &now);
		assert_int_equal(revlog_compact(l, &now, 1, &p, &len), 1);
		fsx_io = &ops;
		swap_fail_in = i;
		r = revlog_replace(l, p, len, NULL);
		fired = swap_fail_in < 0;
		swap_fail_in = -1;
		fsx_io = swap_real_io;
		free(p);
		if (r == 0 && fired) /* the room kept ahead: not needed for the answer */
			fail_msg("call %d failed and nobody heard of it", i);
		if (r != -EIO)
			add_and_write(l, tomb(OBJ_GRANT, 8, 0), &now);
		revlog_free(l);
		l = open_log(path, &info);
		assert_false(info.damaged || info.torn);
		assert_true(covers_grant(&f, l, 2));
		assert_int_equal(covers_grant(&f, l, 8), r != -EIO);
		revlog_free(l);
	}
	fixture_fini(&f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, testing_dir_setup, testing_dir_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(revocations__leave_out_only_what_cannot_come_back),
		T(revocations__of_format_1_are_kept),
		T(revocations__are_all_there_whatever_fails_while_some_are_left_out),
		T(revocations__are_obeyed_after_a_restart),
		T(revocations__of_the_agent_cover_grants_sealed_before),
		T(revocations__tolerate_an_append_torn_at_any_byte),
		T(revocations__take_zeros_at_the_end_for_a_torn_append),
		T(revocations__torn_on_a_full_disk_are_no_reason_not_to_start),
		T(revocations__deny_everything_when_a_byte_in_them_is_damaged),
		T(revocations__damaged_are_kept_and_only_the_newest_of_them),
		T(revocations__stay_damaged_when_local_state_cannot_be_forgotten),
		T(revocations__leave_no_half_frame_when_the_disk_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
