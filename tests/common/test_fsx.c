/* SPDX-License-Identifier: Apache-2.0 */
/* Durable files: the order of the calls, and every call failing once or for ever. */
#include "tests/testing.h"
#include "common/fsx.h"
#include "common/util.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct fsx_ops *real;
static int calls, fail_at;
static bool persistent;
static char trace[512];

/* True when this call is to fail. */
static bool faulty(const char *name)
{
	size_t n = strlen(trace);

	snprintf(trace + n, sizeof(trace) - n, "%s ", name);
	calls++;
	if (fail_at && (calls == fail_at || (persistent && calls > fail_at))) {
		errno = EIO;
		return true;
	}
	return false;
}

static int f_open(const char *p, int flags, mode_t mode)
{
	return faulty(flags & O_DIRECTORY ? "opendir" : "open") ? -1 : real->open(p, flags, mode);
}
static ssize_t f_write(int fd, const void *p, size_t n)
{
	/* Short writes all the way: at most 7 bytes a call. */
	return faulty("write") ? -1 : real->write(fd, p, MIN(n, 7));
}
static ssize_t f_pwrite(int fd, const void *p, size_t n, off_t off)
{
	return faulty("pwrite") ? -1 : real->pwrite(fd, p, MIN(n, 7), off);
}
static int f_fsync(int fd)
{
	return faulty("fsync") ? -1 : real->fsync(fd);
}
static int f_rename(const char *a, const char *b)
{
	return faulty("rename") ? -1 : real->rename(a, b);
}
static int f_link(const char *a, const char *b)
{
	return faulty("link") ? -1 : real->link(a, b);
}
static int f_mkdir(const char *p, mode_t mode)
{
	return faulty("mkdir") ? -1 : real->mkdir(p, mode);
}
static int f_unlink(const char *p)
{
	return faulty("unlink") ? -1 : real->unlink(p);
}
static int f_ftruncate(int fd, off_t len)
{
	return faulty("ftruncate") ? -1 : real->ftruncate(fd, len);
}
static const struct fsx_ops faulty_ops = {
	.open = f_open,
	.write = f_write,
	.pwrite = f_pwrite,
	.fsync = f_fsync,
	.rename = f_rename,
	.link = f_link,
	.mkdir = f_mkdir,
	.unlink = f_unlink,
	.ftruncate = f_ftruncate,
	.stat = stat,
};

static void faults_on(int at, bool for_ever)
{
	real = fsx_io;
	calls = 0;
	trace[0] = '\0';
	fail_at = at;
	persistent = for_ever;
	fsx_io = &faulty_ops;
}

static void faults_off(void)
{
	fsx_io = real;
}

static bool content_is(const char *path, const char *expected)
{
	AUTO_FREE void *p = NULL;
	size_t n;

	return fsx_read_file(path, 4096, &p, &n, NULL) == 0 && n == strlen(expected) &&
	       !memcmp(p, expected, n);
}

static int count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void write_atomic__calls_come_in_the_order_that_survives_a_crash(void **state)
{
	char path[4200];

	testing_path(path, *state, "f");
	faults_on(0, false);
	assert_int_equal(fsx_write_atomic(path, "new", 3, 0600, NULL), 0);
	faults_off();
	assert_string_equal(trace, "open write fsync rename opendir fsync ");
	assert_int_equal(count_entries(*state), 1);
}

static void write_atomic__sets_the_mode_whatever_the_umask(void **state)
{
	char path[4200];
	struct stat st;
	mode_t old = umask(0077);

	testing_path(path, *state, "f");
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0644, NULL), 0);
	umask(old);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
}

/* Fails call 1, 2, 3 ... of fsx_write_atomic until none fires. */
static void sweep_write(const char *dir, bool for_ever)
{
	const char *before = "the old content", *after = "and the new content";
	char path[4200];

	testing_path(path, dir, "f");
	for (int at = 1;; at++) {
		struct ros2_err err = ROS2_ERR_INIT;
		int r;

		assert_int_equal(fsx_write_atomic(path, before, strlen(before), 0600, NULL), 0);
		faults_on(at, for_ever);
		r = fsx_write_atomic(path, after, strlen(after), 0600, &err);
		faults_off();
		if (calls < at) {
			assert_int_equal(r, 0);
			assert_true(content_is(path, after));
			assert_true(at > 6);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_int_equal(err.code, -EIO);
		assert_true(strlen(err.msg) > 0);
		/* Only once the name has changed may the new content be seen. */
		assert_true(content_is(path, strstr(trace, "rename opendir") ? after : before));
		if (!for_ever)
			assert_int_equal(count_entries(dir), 1);
		assert_int_equal(fsx_sweep_tmp(dir, NULL), 0);
		assert_int_equal(count_entries(dir), 1);
		assert_int_equal(fsx_write_atomic(path, after, strlen(after), 0600, NULL), 0);
		assert_true(content_is(path, after));
	}
}

static void write_atomic__any_call_failing_once_loses_nothing(void **state)
{
	sweep_write(*state, false);
}

static void write_atomic__any_call_failing_for_ever_loses_nothing(void **state)
{
	sweep_write(*state, true);
}

static void create_atomic__never_replaces(void **state)
{
	char path[4200];
	struct ros2_err err = ROS2_ERR_INIT;

	testing_path(path, *state, "key");
	assert_int_equal(fsx_create_atomic(path, "one", 3, 0600, NULL), 0);
	assert_int_equal(fsx_create_atomic(path, "two", 3, 0600, &err), -EEXIST);
	assert_int_equal(err.status, ROS2_EXISTS);
	assert_true(content_is(path, "one"));
	assert_int_equal(count_entries(*state), 1);
}

static void create_atomic__any_call_failing_leaves_whole_or_nothing(void **state)
{
	char path[4200];

	testing_path(path, *state, "key");
	for (int at = 1;; at++) {
		int r;

		faults_on(at, at % 2);
		r = fsx_create_atomic(path, "whole content", 13, 0600, NULL);
		faults_off();
		assert_true(access(path, F_OK) < 0 || content_is(path, "whole content"));
		if (calls < at) {
			assert_int_equal(r, 0);
			break;
		}
		if (access(path, F_OK) < 0)
			assert_int_equal(r, -EIO);
		unlink(path);
		assert_int_equal(fsx_sweep_tmp(*state, NULL), 0);
	}
}

static void write_atomic__names_the_path_in_its_words(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200];

	testing_path(path, *state, "missing/f");
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "missing"));
	assert_int_equal(fsx_write_atomic("", "x", 1, 0600, &err), -EINVAL);
	testing_path(path, *state, "");
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, &err), -EINVAL);
	/* A directory is not replaced by a file. */
	assert_true(fsx_write_atomic(*state, "x", 1, 0600, &err) < 0);
}

static void read_file__is_bounded_and_terminated(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	static char big[10000];
	char path[4200];
	void *p = NULL;
	size_t n = 0;

	memset(big, 'x', sizeof(big));
	testing_path(path, *state, "f");
	assert_int_equal(fsx_write_atomic(path, big, sizeof(big), 0600, NULL), 0);
	assert_int_equal(fsx_read_file(path, sizeof(big) - 1, &p, &n, &err), -EFBIG);
	assert_null(p);
	assert_int_equal(fsx_read_file(path, sizeof(big), &p, &n, &err), 0);
	assert_int_equal(n, sizeof(big));
	assert_memory_equal(p, big, n);
	assert_int_equal(((char *)p)[n], 0);
	free(p);
	assert_int_equal(fsx_write_atomic(path, "", 0, 0600, NULL), 0);
	assert_int_equal(fsx_read_file(path, 0, &p, &n, &err), 0);
	assert_int_equal(n, 0);
	free(p);
	p = NULL;
	assert_int_equal(fsx_read_file(*state, 100, &p, &n, &err), -EISDIR);
	assert_null(p);
}

static int refuse_open(const char *path, int flags, mode_t mode)
{
	errno = EACCES;
	return -1;
}

static void refusal__names_owner_mode_and_what_to_do(void **state)
{
	struct fsx_ops ops = *fsx_io;
	const struct fsx_ops *real = fsx_io;
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200], who[64];
	void *p = NULL;
	size_t n;

	testing_path(path, *state, "key");
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0640, NULL), 0);
	ops.open = refuse_open;
	fsx_io = &ops;
	assert_int_equal(fsx_read_file(path, 100, &p, &n, &err), -EACCES);
	assert_null(p);
	snprintf(who, sizeof(who), "it is of uid %u, gid %u, mode 0640", getuid(), getgid());
	assert_non_null(strstr(err.msg, path));
	assert_non_null(strstr(err.msg, who));
	assert_non_null(strstr(err.msg, "chown, chmod"));
	/* What does not show itself is told of by the directory above it. */
	testing_path(path, *state, "no/such/key");
	assert_int_equal(fsx_read_file(path, 100, &p, &n, &err), -EACCES);
	snprintf(who, sizeof(who), "directory %s is of uid", (char *)*state);
	assert_non_null(strstr(err.msg, who));
	assert_int_equal(fsx_read_file("nowhere", 100, &p, &n, &err), -EACCES);
	assert_non_null(strstr(err.msg, "directory . is of uid"));
	fsx_io = real;
}

static void mkdirs__makes_all_parts_and_accepts_what_is_there(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200], file[4300];
	struct stat st;

	testing_path(path, *state, "a//b/c/");
	assert_int_equal(fsx_mkdirs(path, 0700, NULL), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(fsx_mkdirs(path, 0700, NULL), 0);
	assert_int_equal(fsx_mkdirs("/", 0700, NULL), 0);
	assert_int_equal(fsx_mkdirs("", 0700, &err), -EINVAL);
	testing_path(file, path, "f");
	assert_int_equal(fsx_write_atomic(file, "x", 1, 0600, NULL), 0);
	assert_int_equal(fsx_mkdirs(file, 0700, &err), -ENOTDIR);
	testing_path(file, path, "f/g");
	assert_true(fsx_mkdirs(file, 0700, &err) < 0);
}

static void mkdirs__reports_every_failing_call(void **state)
{
	for (int at = 1;; at++) {
		char path[4200], name[32];
		int r;

		snprintf(name, sizeof(name), "d%d/e", at);
		testing_path(path, *state, name);
		faults_on(at, false);
		r = fsx_mkdirs(path, 0700, NULL);
		faults_off();
		if (calls < at) {
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -EIO);
		assert_int_equal(fsx_mkdirs(path, 0700, NULL), 0);
	}
}

static void lock_dir__admits_one_and_names_the_holder(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char pid[32], path[4200];
	int fd, again = -1, status;
	pid_t child;

	testing_path(path, *state, ".f.tmp-0123abcd");
	assert_int_equal(fsx_write_atomic(path, "left by a crash", 15, 0600, NULL), 0);
	assert_int_equal(fsx_lock_dir(*state, &fd, &err), 0);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(pid, sizeof(pid), "process %d", getpid());
	child = fork();
	if (child == 0) {
		int r = fsx_lock_dir(*state, &again, &err);

		_exit(r == -EBUSY && again == -1 && strstr(err.msg, pid) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(fd);
	assert_int_equal(fsx_lock_dir(*state, &fd, &err), 0);
	close(fd);
}

/* A full disk on which what a file gives back is not to be had again: what lies there may be
 * written over, and no file grows. */
static ssize_t full_pwrite(int fd, const void *p, size_t n, off_t off)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && off + (off_t)n <= st.st_size)
		return real->pwrite(fd, p, n, off);
	errno = ENOSPC;
	return -1;
}

static ssize_t full_write(int fd, const void *p, size_t n)
{
	return full_pwrite(fd, p, n, lseek(fd, 0, SEEK_CUR));
}

static void lock_dir__needs_no_room(void **state)
{
	static struct fsx_ops full;
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200], pid[32];
	int fd;

	testing_path(path, *state, "LOCK");
	snprintf(pid, sizeof(pid), "%d\n", getpid());
	assert_int_equal(fsx_lock_dir(*state, &fd, &err), 0);
	close(fd);
	full = *fsx_io;
	full.write = full_write;
	full.pwrite = full_pwrite;
	real = fsx_io;
	fsx_io = &full;
	assert_int_equal(fsx_lock_dir(*state, &fd, &err), 0);
	close(fd);
	assert_true(content_is(path, pid));
	/* Nor when there is nothing to write over. */
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(fsx_lock_dir(*state, &fd, &err), 0);
	close(fd);
	faults_off();
	assert_true(content_is(path, ""));
}

/* ---- what a start finds ---- */

static void write_anew__writes_the_same_bytes_and_syncs_them(void **state)
{
	static const char *const all = "what another process left";
	struct ros2_err err = ROS2_ERR_INIT;
	char path[4200];

	testing_path(path, *state, "f");
	assert_int_equal(fsx_write_anew(path, &err), -ENOENT);
	assert_int_equal(fsx_write_atomic(path, all, strlen(all), 0600, NULL), 0);
	faults_on(0, false);
	assert_int_equal(fsx_write_anew(path, &err), 0);
	faults_off();
	assert_string_equal(trace, "open pwrite pwrite pwrite pwrite fsync ");
	assert_true(content_is(path, all));
	for (int at = 1, n = calls; at <= n; at++) {
		faults_on(at, at % 2);
		assert_int_equal(fsx_write_anew(path, &err), -EIO);
		faults_off();
		assert_true(content_is(path, all));
	}
}

static void sweep_tmp__removes_only_what_it_made(void **state)
{
	static const char *const kept[] = {"f",
	                                   ".f",
	                                   ".f.tmp-",
	                                   ".f.tmp-0123abc",
	                                   ".f.tmp-0123ABCD",
	                                   "f.tmp-0123abcd",
	                                   ".tmp-0123abcd"};
	char path[4200];

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		testing_path(path, *state, kept[i]);
		assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, NULL), 0);
	}
	testing_path(path, *state, ".snapshot.tmp-0123abcd");
	assert_int_equal(fsx_write_atomic(path, "x", 1, 0600, NULL), 0);
	assert_int_equal(fsx_sweep_tmp(*state, NULL), 0);
	assert_int_equal(count_entries(*state), ARRAY_SIZE(kept));
	assert_int_equal(access(path, F_OK), -1);
}

#define in_dir(t) cmocka_unit_test_setup_teardown(t, testing_dir_setup, testing_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_dir(write_atomic__calls_come_in_the_order_that_survives_a_crash),
		in_dir(write_atomic__sets_the_mode_whatever_the_umask),
		in_dir(write_atomic__any_call_failing_once_loses_nothing),
		in_dir(write_atomic__any_call_failing_for_ever_loses_nothing),
		in_dir(create_atomic__never_replaces),
		in_dir(create_atomic__any_call_failing_leaves_whole_or_nothing),
		in_dir(write_atomic__names_the_path_in_its_words),
		in_dir(read_file__is_bounded_and_terminated),
		in_dir(refusal__names_owner_mode_and_what_to_do),
		in_dir(mkdirs__makes_all_parts_and_accepts_what_is_there),
		in_dir(mkdirs__reports_every_failing_call),
		in_dir(lock_dir__admits_one_and_names_the_holder),
		in_dir(lock_dir__needs_no_room),
		in_dir(write_anew__writes_the_same_bytes_and_syncs_them),
		in_dir(sweep_tmp__removes_only_what_it_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
