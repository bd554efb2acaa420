/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room that the log of revocations keeps ahead of its end, on a disk that fills at the worst
 * moment. The disk is a number of free bytes and what the log has reserved of them; a truncation
 * gives back what is reserved behind the end, as ext4 does.
 */
#include "agent/revocations.h"
#include "common/fsx.h"
#include "tests/agent/fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define PLENTY (16u << 20)
#define ASK_AT 65536u /* where an earlier version asked for more, and nowhere else */

static struct {
	uint64_t free, reserved_to;
	int fallocate_errno, write_errno; /* 0: works */
	unsigned asked;
} disk;
static const struct fsx_ops *real_io;

int __wrap_fallocate(int fd, int mode, off_t from, off_t n);

/* So much of it is the file's; false: there is no room. */
static bool take(uint64_t to)
{
	uint64_t need = to > disk.reserved_to ? to - disk.reserved_to : 0;

	if (need > disk.free)
		return false;
	disk.free -= need;
	disk.reserved_to += need;
	return true;
}

int __wrap_fallocate(int fd, int mode, off_t from, off_t n)
{
	assert_int_equal(mode, FALLOC_FL_KEEP_SIZE);
	disk.asked++;
	errno = disk.fallocate_errno ? disk.fallocate_errno : ENOSPC;
	return disk.fallocate_errno || !take((uint64_t)(from + n)) ? -1 : 0;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_size;
}

/* What fails leaves half of it, so that it has to be cut off. */
static ssize_t disk_write(int fd, const void *p, size_t n)
{
	bool fits = take(size_of(fd) + n);

	if (fits && !disk.write_errno)
		return real_io->write(fd, p, n);
	(void)!real_io->write(fd, p, n / 2);
	errno = fits ? disk.write_errno : ENOSPC;
	return -1;
}

static int disk_truncate(int fd, off_t len)
{
	if (disk.reserved_to > (uint64_t)len) {
		disk.free += disk.reserved_to - (uint64_t)len;
		disk.reserved_to = (uint64_t)len;
	}
	return real_io->ftruncate(fd, len);
}

/* What is on disk is not looked at. */
static int no_fsync(int fd)
{
	return 0;
}

static struct room {
	void *dir;
	char path[4200];
	struct revlog *log;
	uint64_t size; /* of the log */
} room;

static int write_one(struct room *r)
{
	struct tombstone t = {.revocation = fix_uid(101), .uid = fix_uid(1), .kind = OBJ_TENANT};
	uint8_t frame[REVLOG_FRAME_MAX];
	int rc;

	memset(t.reason, 'x', 200);
	rc = revlog_write(r->log, &t, NULL);
	r->size += rc ? 0 : revlog_encode(&t, frame);
	return rc;
}

static void write_to(struct room *r, uint64_t size)
{
	while (r->size + REVLOG_FRAME_MAX < size)
		assert_int_equal(write_one(r), 0);
}

/* Others take all that they can get. As many revocations as are promised find room. */
static void fill_and_revoke(struct room *r)
{
	uint64_t end = r->size + REVLOG_RESERVE_MIN;

	disk.free = 0;
	while (r->size + REVLOG_FRAME_MAX < end)
		if (write_one(r))
			fail_msg("no room at byte %llu, %llu before what is promised",
			         (unsigned long long)r->size, (unsigned long long)(end - r->size));
	disk.free = PLENTY;
}

static void open_room(struct room *r)
{
	struct revlog_opened info;
	struct ros2_err err = ROS2_ERR_INIT;

	if (revlog_open(r->path, NULL, NULL, &r->log, &info, &err) < 0)
		fail_msg("%s", err.msg);
}

static void close_room(struct room *r)
{
	revlog_free(r->log);
	r->log = NULL;
}

static int setup(void **state)
{
	memset(&disk, 0, sizeof(disk));
	memset(&room, 0, sizeof(room));
	disk.free = PLENTY;
	*state = &room;
	if (testing_dir_setup(&room.dir))
		return -1;
	testing_path(room.path, room.dir, "revocations");
	return 0;
}

static int teardown(void **state)
{
	close_room(&room);
	return testing_dir_teardown(&room.dir);
}

static void room__is_there_wherever_the_log_ends_when_the_disk_fills(void **state)
{
	struct room *r = *state;

	open_room(r);
	fill_and_revoke(r);
	for (uint64_t at = ASK_AT; at < 5 * ASK_AT; at += ASK_AT) {
		(void)revlog_reserve(r->log, NULL); /* a second later */
		write_to(r, at - REVLOG_FRAME_MAX);
		fill_and_revoke(r);
		(void)revlog_reserve(r->log, NULL);
		write_to(r, at + ASK_AT / 2);
		fill_and_revoke(r);
	}
	assert_in_range(disk.asked, 5, 40);
}

static void room__that_was_not_there_at_the_start_is_taken_within_a_second_of_it(void **state)
{
	struct room *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	disk.free = 0;
	open_room(r);
	assert_int_equal(revlog_reserve(r->log, &err), -ENOSPC);
	assert_non_null(strstr(err.msg, "no room is kept for revocations in "));
	assert_int_equal(write_one(r), -ENOSPC);
	disk.free = PLENTY;
	assert_int_equal(revlog_reserve(r->log, &err), 0);
	fill_and_revoke(r);
}

static void room__that_was_not_there_later_is_taken_within_a_second_of_it(void **state)
{
	struct room *r = *state;

	open_room(r);
	disk.free = 0;
	while (!write_one(r))
		;
	assert_int_equal(revlog_reserve(r->log, NULL), -ENOSPC);
	disk.free = PLENTY;
	assert_int_equal(revlog_reserve(r->log, NULL), 0);
	fill_and_revoke(r);
}

/* A receipt waits for the write: it is not made to wait for a search as well, again and again. */
static void room__that_was_refused_is_asked_for_once_a_second(void **state)
{
	struct room *r = *state;

	open_room(r);
	disk.fallocate_errno = ENOSPC;
	write_to(r, ASK_AT - REVLOG_FRAME_MAX);
	disk.asked = 0;
	assert_int_equal(write_one(r), 0);
	assert_int_equal(disk.asked, 0);
	assert_int_equal(revlog_reserve(r->log, NULL), -ENOSPC);
	assert_int_equal(disk.asked, 1);
}

static void room__given_back_by_a_truncation_is_taken_again(void **state)
{
	struct room *r = *state;

	open_room(r);
	write_to(r, 5000);
	disk.write_errno = EDQUOT;
	assert_int_equal(write_one(r), -EDQUOT);
	disk.write_errno = 0;
	fill_and_revoke(r);
}

static void room__is_taken_for_the_log_that_replaces_another(void **state)
{
	struct room *r = *state;

	open_room(r);
	write_to(r, 5000);
	disk.reserved_to = 0; /* of another file */
	assert_int_equal(revlog_replace(r->log, "", 0, NULL), 0);
	r->size = 0;
	fill_and_revoke(r);
}

static void room__is_taken_by_the_next_start(void **state)
{
	struct room *r = *state;

	open_room(r);
	write_to(r, ASK_AT - REVLOG_FRAME_MAX);
	close_room(r);
	open_room(r);
	fill_and_revoke(r);
}

static void room__on_a_file_system_that_reserves_nothing_is_no_reason_to_stop(void **state)
{
	struct room *r = *state;

	disk.fallocate_errno = EOPNOTSUPP;
	open_room(r);
	assert_int_equal(revlog_reserve(r->log, NULL), -EOPNOTSUPP);
	assert_int_equal(write_one(r), 0);
	disk.fallocate_errno = ENOSYS;
	assert_int_equal(revlog_reserve(r->log, NULL), -EOPNOTSUPP);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	static struct fsx_ops io;
	const struct CMUnitTest tests[] = {
		T(room__is_there_wherever_the_log_ends_when_the_disk_fills),
		T(room__that_was_not_there_at_the_start_is_taken_within_a_second_of_it),
		T(room__that_was_not_there_later_is_taken_within_a_second_of_it),
		T(room__that_was_refused_is_asked_for_once_a_second),
		T(room__given_back_by_a_truncation_is_taken_again),
		T(room__is_taken_for_the_log_that_replaces_another),
		T(room__is_taken_by_the_next_start),
		T(room__on_a_file_system_that_reserves_nothing_is_no_reason_to_stop),
	};

	real_io = fsx_io;
	io = *real_io;
	io.write = disk_write;
	io.ftruncate = disk_truncate;
	io.fsync = no_fsync;
	fsx_io = &io;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
