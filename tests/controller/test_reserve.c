/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls behind the reserve fail, once and for good: without a reserve the store works and says
 * so, makes one as soon as it can, and what takes rights away is carried out and recorded whatever
 * the reserve does. On a disk that is full but for it a store opens.
 */
#include "common/fsx.h"
#include "controller/store_priv.h"
#include "tests/await.h"
#include "tests/controller/store_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- faults ---- */

enum call { OPEN, FALLOCATE, UNLINK };
static _Atomic int failing[3]; /* so many calls fail; -1: all */
static _Atomic unsigned failed;
static _Atomic off_t room; /* of the disk; 0: enough */
static _Atomic int fallocate_errno;

static bool fails(enum call c)
{
	if (!failing[c])
		return false;
	if (failing[c] > 0)
		failing[c]--;
	failed++;
	return true;
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	va_start(ap, flags);
	if (flags & O_CREAT)
		mode = va_arg(ap, mode_t);
	va_end(ap);
	if (strstr(path, "/reserve") && fails(OPEN)) {
		errno = EIO;
		return -1;
	}
	return __real_open(path, flags, mode);
}

int __real_posix_fallocate(int fd, off_t at, off_t len);
int __wrap_posix_fallocate(int fd, off_t at, off_t len);
int __wrap_posix_fallocate(int fd, off_t at, off_t len)
{
	if (fails(FALLOCATE) || (room && len > room))
		return fallocate_errno;
	return __real_posix_fallocate(fd, at, len);
}

static int faulty_unlink(const char *path)
{
	if (strstr(path, "/reserve") && fails(UNLINK)) {
		errno = EIO;
		return -1;
	}
	return unlink(path);
}

static const struct fsx_ops *real_io;
static struct fsx_ops faulty_io;

static int setup(void **state)
{
	struct fixture *f = malloc(sizeof(*f));

	fixture_init(f);
	real_io = fsx_io;
	faulty_io = *fsx_io;
	faulty_io.unlink = faulty_unlink;
	fsx_io = &faulty_io;
	memset((void *)failing, 0, sizeof(failing));
	failed = 0;
	room = 0;
	fallocate_errno = ENOSPC;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(*state);
	fsx_io = real_io;
	free(*state);
	return 0;
}

/* ---- tests ---- */

static bool is_there(const struct fixture *f, const char *name)
{
	char path[128];

	fixture_path(f, name, path);
	return access(path, F_OK) == 0;
}

static bool reserve_is_there(const struct fixture *f)
{
	return is_there(f, "reserve");
}

static bool until_reserve(struct fixture *f, bool there)
{
	struct store_stats st;

	return AWAIT((store_stats(f->store, &st),
	              st.reserve_used == !there && reserve_is_there(f) == there));
}

static int commit_one(struct fixture *f)
{
	struct ros2_uid u = ros2_uid_new(), tenant = {{5}};

	return fixture_commit(f, fixture_grant(&u, &tenant));
}

static void open_fixture(struct fixture *f)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fixture_open(f, &err))
		fail_msg("%s", err.msg);
}

static void reserve__that_cannot_be_made_is_made_when_it_can(void **state)
{
	struct fixture *f = *state;

	for (int c = OPEN; c <= FALLOCATE; c++) {
		char path[128];

		for (int for_good = 0; for_good < 2; for_good++) {
			failed = 0;
			failing[c] = for_good ? -1 : 1;
			open_fixture(f);
			assert_true(failed > 0);
			assert_int_equal(commit_one(f), 0);
			if (for_good)
				assert_true(until_reserve(f, false));
			failing[c] = 0;
			assert_true(until_reserve(f, true));
			assert_int_equal(commit_one(f), 0);
			fixture_close(f);
			fixture_path(f, "reserve", path);
			unlink(path);
		}
	}
}

static void fill_up(struct fixture *f)
{
	struct ros2_uid tenant = {{5}};
	struct wait w = {0};

	for (int i = 0; i < 2000; i++) {
		struct ros2_uid u = ros2_uid_new();

		fixture_submit(f, &w, fixture_grant(&u, &tenant));
	}
	fixture_wait(f, &w);
	assert_true(w.failed > 0);
}

static void reserve__that_cannot_be_given_up_does_not_hinder_what_takes_away(void **state)
{
	struct ros2_uid tenant = {{6}}, u;
	struct fixture *f = *state;
	struct store_stats st;
	struct wait w = {0};

	for (int for_good = 0; for_good < 2; for_good++) {
		fixture_close(f);
		f->opts.max_pages = 120;
		open_fixture(f);
		fill_up(f);
		failed = 0;
		failing[UNLINK] = for_good ? -1 : 1;
		w = (struct wait){0};
		for (int i = 0; i < 50; i++) {
			struct store_txn *t;

			u = ros2_uid_new();
			t = fixture_grant(&u, &tenant);
			store_txn_set_shrinks(t);
			fixture_submit(f, &w, t);
		}
		fixture_wait(f, &w);
		assert_true(failed > 0);
		assert_int_equal(w.pending, w.failed); /* each is recorded, or kept */
		assert_int_equal(commit_one(f), -ENOSPC);
		failing[UNLINK] = 0;
		fixture_sql(f, "DELETE FROM grants");
		AWAIT((store_stats(f->store, &st), !st.record_pending && !st.full));
		assert_int_equal(st.record_pending, 0);
		assert_true(until_reserve(f, true));
		assert_int_equal(commit_one(f), 0);
		fixture_sql(f, "DELETE FROM grants");
	}
}

/* ---- a disk that is full but for the reserve ---- */

static const struct fixture *full; /* of whose disk nothing is free */
static const char *in_the_way = "reserve";

static bool finds_no_room(struct ros2_err *err)
{
	if (!full || !is_there(full, in_the_way))
		return false;
	ros2_err_set(err, -ENOSPC, "the disk is full");
	return true;
}

static bool of_the_open; /* already that finds no room */

static int open_on_a_full_disk(const struct store_opts *o, void **ret, struct ros2_err *err)
{
	return of_the_open && finds_no_room(err) ? -ENOSPC : store_sqlite_ops.open(o, ret, err);
}

static int commit_on_a_full_disk(void *b, struct ros2_err *err)
{
	return finds_no_room(err) ? -ENOSPC : store_sqlite_ops.commit(b, err);
}

/* Without its epoch nobody could take anything away. */
static void opens_on_the_reserve(struct fixture *f)
{
	struct ros2_uid tenant = {{6}}, u = ros2_uid_new();
	struct store_ops ops = store_sqlite_ops;
	struct store_stats st;
	struct store_txn *t;
	uint64_t epoch;

	ops.open = open_on_a_full_disk;
	ops.commit = commit_on_a_full_disk;
	f->opts.ops = &ops;
	open_fixture(f);
	epoch = store_epoch(f->store)->counter;
	fixture_close(f);
	assert_true(reserve_is_there(f));
	full = f;
	failing[FALLOCATE] = -1;
	open_fixture(f);
	assert_int_equal(store_epoch(f->store)->counter, epoch + 1);
	store_stats(f->store, &st);
	assert_true(st.full && st.full_since_unix_ns);
	/* What is left is for what takes away. */
	assert_int_equal(commit_one(f), -ENOSPC);
	t = fixture_grant(&u, &tenant);
	store_txn_set_shrinks(t);
	assert_int_equal(fixture_commit(f, t), 0);
	full = NULL;
	failing[FALLOCATE] = 0;
	assert_true(until_reserve(f, true));
	assert_int_equal(commit_one(f), 0);
	fixture_close(f);
}

static void reserve__is_given_up_for_the_epoch_of_a_start(void **state)
{
	of_the_open = false;
	opens_on_the_reserve(*state);
	of_the_open = true;
	opens_on_the_reserve(*state);
}

static off_t size_of(const struct fixture *f, const char *name)
{
	struct stat st;
	char path[128];

	fixture_path(f, name, path);
	return stat(path, &st) < 0 ? 0 : st.st_size;
}

static off_t reserve_size(const struct fixture *f)
{
	return size_of(f, "reserve");
}

static int take_away(struct fixture *f)
{
	struct ros2_uid tenant = {{6}}, u = ros2_uid_new();
	struct store_txn *t = fixture_grant(&u, &tenant);

	store_txn_set_shrinks(t);
	return fixture_commit(f, t);
}

/* What was lent and not used is not for grants after the next start. */
static void reserve__is_made_of_what_a_process_that_lent_it_has_left(void **state)
{
	static struct store_ops ops;
	struct fixture *f = *state;
	off_t whole;

	ops = store_sqlite_ops;
	ops.commit = commit_on_a_full_disk;
	f->opts.ops = &ops;
	open_fixture(f);
	whole = reserve_size(f);
	full = f;
	room = whole - 1;
	assert_int_equal(take_away(f), 0);
	assert_true(until_reserve(f, false));
	fixture_close(f);
	open_fixture(f);
	assert_true(reserve_size(f) == whole / 2);
	assert_int_equal(commit_one(f), -ENOSPC);
	assert_int_equal(take_away(f), 0);
	assert_true(until_reserve(f, false));
	assert_int_equal(commit_one(f), -ENOSPC);
	fixture_close(f);
	open_fixture(f);
	full = NULL;
	assert_int_equal(commit_one(f), 0);
	room = 0;
	assert_true(AWAIT(reserve_size(f) == whole));
}

/* ---- one on which all of the reserve has been used ---- */

static void remove_file(const struct fixture *f, const char *name)
{
	char path[128];

	fixture_path(f, name, path);
	assert_int_equal(unlink(path), 0);
}

static uint64_t counter(struct fixture *f)
{
	return store_epoch(f->store)->counter;
}

static void start__has_room_of_its_own(void **state)
{
	static struct store_ops ops;
	struct fixture *f = *state;
	uint64_t before;

	ops = store_sqlite_ops;
	ops.commit = commit_on_a_full_disk;
	f->opts.ops = &ops;
	open_fixture(f);
	before = counter(f);
	fixture_close(f);
	remove_file(f, "reserve");
	in_the_way = "start-reserve";
	full = f;
	failing[FALLOCATE] = -1;
	open_fixture(f);
	assert_int_equal(counter(f), before + 1);
	assert_false(is_there(f, "start-reserve"));
	/* with space both are there again */
	failing[FALLOCATE] = 0;
	assert_true(until_reserve(f, true));
	fixture_close(f);
	full = NULL;
	open_fixture(f);
	assert_true(is_there(f, "start-reserve"));
	in_the_way = "reserve";
}

/* The record of a start comes behind its epoch, and without it nothing is served. */
static void start__has_room_for_its_record(void **state)
{
	static const char *const with[] = {"reserve", "start-reserve"};
	static struct store_ops ops;
	struct ros2_uid tenant = {{6}}, u;
	struct fixture *f = *state;

	ops = store_sqlite_ops;
	ops.commit = commit_on_a_full_disk;
	f->opts.ops = &ops;
	for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
		assert_int_equal(store_open(&f->opts, &f->store, NULL), 0);
		in_the_way = with[i];
		full = f;
		u = ros2_uid_new();
		assert_int_equal(store_commit_now(f->store, fixture_grant(&u, &tenant), NULL), 0);
		assert_false(is_there(f, with[i]));
		full = NULL;
		fixture_close(f);
	}
	in_the_way = "reserve";
}

static void unlink_start(const struct fixture *f)
{
	char path[128];

	fixture_path(f, "start-reserve", path);
	unlink(path);
}

static void start__room_that_could_not_be_kept_is_kept_when_it_can(void **state)
{
	struct fixture *f = *state;
	off_t whole;

	open_fixture(f);
	whole = size_of(f, "start-reserve");
	assert_true(whole > 0);
	for (int i = 0; i < 4; i++) {
		int eighths = i % 2;

		fixture_close(f);
		unlink_start(f);
		/* all of it, and its parts down to an eighth */
		failing[FALLOCATE] = 4 - eighths;
		if (i < 2) { /* nothing is tried again before it runs */
			assert_int_equal(store_open(&f->opts, &f->store, NULL), 0);
			assert_true(size_of(f, "start-reserve") == eighths * whole / 8);
			continue;
		}
		open_fixture(f);
		assert_true(AWAIT(size_of(f, "start-reserve") == whole));
		assert_true(until_reserve(f, true));
	}
}

/* As on a full disk. */
static void reserve__is_made_of_what_a_quota_leaves(void **state)
{
	struct fixture *f = *state;
	off_t whole, for_start;

	open_fixture(f);
	whole = reserve_size(f);
	for_start = size_of(f, "start-reserve");
	fixture_close(f);
	remove_file(f, "reserve");
	remove_file(f, "start-reserve");
	fallocate_errno = EDQUOT;
	failing[FALLOCATE] = 3;
	room = whole - 1;
	assert_int_equal(store_open(&f->opts, &f->store, NULL), 0);
	assert_true(size_of(f, "start-reserve") == for_start / 8);
	assert_true(reserve_size(f) == whole / 2);
}

/* Such a call says nothing of space: what there is stays, and is filled up when it can be. */
static void reserve__stays_where_a_call_fails_for_another_reason(void **state)
{
	struct fixture *f = *state;
	off_t whole, for_start;

	open_fixture(f);
	whole = reserve_size(f);
	for_start = size_of(f, "start-reserve");
	for (int part = 1; part <= 2; part++) {
		char path[128];

		fixture_close(f);
		fixture_path(f, "reserve", path);
		assert_int_equal(truncate(path, whole / part), 0);
		fixture_path(f, "start-reserve", path);
		assert_int_equal(truncate(path, for_start / part), 0);
		fallocate_errno = EIO;
		failing[FALLOCATE] = -1;
		failed = 0;
		open_fixture(f);
		/* also by what is tried again */
		assert_true(AWAIT(failed >= (part == 1 ? 2 : 4)));
		assert_true(reserve_size(f) == whole / part);
		assert_true(size_of(f, "start-reserve") == for_start / part);
		failing[FALLOCATE] = 0;
		assert_true(AWAIT(reserve_size(f) == whole));
		assert_true(AWAIT(size_of(f, "start-reserve") == for_start));
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(reserve__that_cannot_be_made_is_made_when_it_can),
		T(reserve__that_cannot_be_given_up_does_not_hinder_what_takes_away),
		T(reserve__is_given_up_for_the_epoch_of_a_start),
		T(reserve__is_made_of_what_a_process_that_lent_it_has_left),
		T(start__has_room_of_its_own),
		T(start__has_room_for_its_record),
		T(start__room_that_could_not_be_kept_is_kept_when_it_can),
		T(reserve__is_made_of_what_a_quota_leaves),
		T(reserve__stays_where_a_call_fails_for_another_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
