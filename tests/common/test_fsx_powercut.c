/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts the power after every call of fsx_write_atomic. A small model of a disk keeps what was
 * synced: the bytes of a file after fsync of the file, the names of a directory after fsync of the
 * directory. What was not synced may be there or not, in every combination. After every cut the
 * file must be whole and old or whole and new; after success, new. Negative controls: with an fsync
 * that does nothing, the same test must find the loss.
 */
#include "tests/testing.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define INODES  8
#define NAMES   8
#define OPS_MAX 8
#define TARGET  "/disk/state"
#define OLD     "the old state"
#define NEW     "a new and longer state"

struct inode {
	char now[64], synced[64];
};
struct name_op {
	char from[128], to[128]; /* from "" = create, to "" = unlink, else rename */
	int inode;               /* of a create */
};
struct name {
	char path[128];
	int inode;
};

static struct {
	struct inode inodes[INODES];
	int n_inodes;
	struct name names[NAMES]; /* as the disk has them */
	int n_names;
	struct name_op pending[OPS_MAX]; /* done, but their directory is not synced */
	int n_pending;
	int calls, cut_at;
	bool file_fsync_lies, dir_fsync_lies;
} disk;

static const struct fsx_ops *real;

static bool power_gone(void)
{
	errno = EIO;
	return ++disk.calls > disk.cut_at;
}

static struct name *find_name(struct name *names, int n, const char *path)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(names[i].path, path))
			return &names[i];
	return NULL;
}

static void set_name(struct name *names, int *n, const char *path, int inode)
{
	struct name *at = find_name(names, *n, path);

	if (!at) {
		assert_true(*n < NAMES);
		at = &names[(*n)++];
		snprintf(at->path, sizeof(at->path), "%s", path);
	}
	at->inode = inode;
}

/* inode -1: no file of that name. */
static void apply(struct name *names, int *n, const struct name_op *op)
{
	struct name *from = find_name(names, *n, op->from);

	if (!op->from[0])
		set_name(names, n, op->to, op->inode);
	else if (from) {
		int inode = from->inode;

		from->inode = -1;
		if (op->to[0])
			set_name(names, n, op->to, inode);
	}
}

static void pend(const char *from, const char *to, int inode)
{
	struct name_op *op = &disk.pending[disk.n_pending++];

	assert_true(disk.n_pending <= OPS_MAX);
	snprintf(op->from, sizeof(op->from), "%s", from);
	snprintf(op->to, sizeof(op->to), "%s", to);
	op->inode = inode;
}

/* Descriptors are real ones of memfds, so that close and fchmod work; the model hangs on their
 * number. */
#define FD_MAX 1024
static int inode_of_fd[FD_MAX];

static int d_open(const char *path, int flags, mode_t mode)
{
	int fd;

	if (power_gone())
		return -1;
	fd = memfd_create("disk", MFD_CLOEXEC);
	assert_true(fd >= 0 && fd < FD_MAX);
	inode_of_fd[fd] = -1;
	if (flags & O_CREAT) {
		assert_true(disk.n_inodes < INODES);
		inode_of_fd[fd] = disk.n_inodes++;
		pend("", path, inode_of_fd[fd]);
	}
	return fd;
}

static ssize_t d_write(int fd, const void *p, size_t n)
{
	struct inode *i = &disk.inodes[inode_of_fd[fd]];
	size_t at = strlen(i->now);

	if (power_gone())
		return -1;
	n = MIN(n, 5);
	assert_true(at + n < sizeof(i->now));
	memcpy(i->now + at, p, n);
	return (ssize_t)n;
}

static int d_fsync(int fd)
{
	if (power_gone())
		return -1;
	if (inode_of_fd[fd] >= 0) {
		struct inode *i = &disk.inodes[inode_of_fd[fd]];

		if (!disk.file_fsync_lies)
			memcpy(i->synced, i->now, sizeof(i->now));
		return 0;
	}
	for (int k = 0; k < disk.n_pending && !disk.dir_fsync_lies; k++)
		apply(disk.names, &disk.n_names, &disk.pending[k]);
	if (!disk.dir_fsync_lies)
		disk.n_pending = 0;
	return 0;
}

static int d_rename(const char *from, const char *to)
{
	if (power_gone())
		return -1;
	pend(from, to, -1);
	return 0;
}

static int d_unlink(const char *path)
{
	if (power_gone())
		return -1;
	pend(path, "", -1);
	return 0;
}

static const struct fsx_ops disk_ops = {
	.open = d_open,
	.write = d_write,
	.fsync = d_fsync,
	.rename = d_rename,
	.unlink = d_unlink,
};

static void new_disk(int cut_at)
{
	memset(&disk, 0, sizeof(disk));
	disk.cut_at = cut_at;
	strcpy(disk.inodes[0].now, OLD);
	strcpy(disk.inodes[0].synced, OLD);
	disk.n_inodes = 1;
	set_name(disk.names, &disk.n_names, TARGET, 0);
}

/* What a reader finds after the machine is on again, if the pending names of @mask and unsynced
 * bytes survived. */
static const char *content_after(unsigned mask, bool bytes_survive)
{
	struct name names[NAMES], *at;
	int n = disk.n_names;

	memcpy(names, disk.names, sizeof(names));
	for (int k = 0; k < disk.n_pending; k++)
		if (mask >> k & 1)
			apply(names, &n, &disk.pending[k]);
	at = find_name(names, n, TARGET);
	if (!at || at->inode < 0)
		return "(missing)";
	return bytes_survive ? disk.inodes[at->inode].now : disk.inodes[at->inode].synced;
}

/* How many outcomes break the promise. */
static int broken_outcomes(bool must_be_new)
{
	int broken = 0;

	for (unsigned mask = 0; mask < 1u << disk.n_pending; mask++) {
		for (int bytes = 0; bytes < 2; bytes++) {
			const char *s = content_after(mask, bytes);
			bool whole = !strcmp(s, NEW) || (!must_be_new && !strcmp(s, OLD));

			broken += !whole;
		}
	}
	return broken;
}

/* Cuts after 0, 1, 2 ... calls until the write gets through; returns how many outcomes were broken.
 */
static int sweep(bool file_fsync_lies, bool dir_fsync_lies, int *ret_cuts)
{
	int broken = 0;

	for (int cut = 0;; cut++) {
		int r;

		new_disk(cut);
		disk.file_fsync_lies = file_fsync_lies;
		disk.dir_fsync_lies = dir_fsync_lies;
		real = fsx_io;
		fsx_io = &disk_ops;
		r = fsx_write_atomic(TARGET, NEW, strlen(NEW), 0600, NULL);
		fsx_io = real;
		broken += broken_outcomes(r == 0);
		if (r == 0) {
			*ret_cuts = cut;
			return broken;
		}
	}
}

static void write_atomic__is_whole_after_a_power_cut_at_any_call(void **state)
{
	int cuts;

	assert_int_equal(sweep(false, false, &cuts), 0);
	assert_true(cuts >= 9);
}

static void powercut__finds_a_file_that_was_not_synced(void **state)
{
	int cuts;

	assert_true(sweep(true, false, &cuts) > 0);
}

static void powercut__finds_a_directory_that_was_not_synced(void **state)
{
	int cuts;

	assert_true(sweep(false, true, &cuts) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_atomic__is_whole_after_a_power_cut_at_any_call),
		cmocka_unit_test(powercut__finds_a_file_that_was_not_synced),
		cmocka_unit_test(powercut__finds_a_directory_that_was_not_synced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
