/* SPDX-License-Identifier: Apache-2.0 */
/* The shim. Real fsyncs are left out: the model does the syncing. */
#include "tests/common/disk_fsx.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FD_MAX 1024

static struct disk_fsx_opts opts;
static const struct fsx_ops *real;
static unsigned skipped;
static uint64_t path_calls, fault_calls;
static unsigned faults;
static struct {
	int inode;
	bool elsewhere;
	char path[512];
} open_files[FD_MAX];

static bool power(void)
{
	errno = EIO;
	return disk_call(opts.disk);
}

static bool is_elsewhere(const char *path)
{
	return opts.only_root && strncmp(path, opts.only_root, strlen(opts.only_root)) != 0;
}

static bool is_path(const char *want, const char *path)
{
	size_t n = strlen(path);

	if (!want)
		return false;
	if (*want != '=')
		return strstr(path, want) != NULL;
	return n >= strlen(want + 1) && !strcmp(path + n - strlen(want + 1), want + 1);
}

static bool fault(const char *path)
{
	uint64_t n;

	if (!opts.fault_errno || (opts.fault_path && !is_path(opts.fault_path, path)))
		return false;
	n = fault_calls++;
	if (n < opts.fault_call ||
	    (!opts.fault_for_good && n - opts.fault_call >= MAX(opts.fault_times, 1u)))
		return false;
	faults++;
	errno = opts.fault_errno;
	return true;
}

/* Of calls that need no space. */
static bool fault_but_space(const char *path)
{
	return opts.fault_errno != ENOSPC && fault(path);
}

static bool power_of(int fd)
{
	if (is_path(opts.cut_path, open_files[fd].path) && ++path_calls > opts.cut_call)
		disk_arm(opts.disk, 0);
	return power();
}

/* The write at which the power goes arrives by half: *n, and *ret_last is set. False: not at all.
 */
static bool power_for(int fd, size_t *n, bool *ret_last)
{
	*ret_last = false;
	if (power_of(fd))
		return true;
	*n /= 2;
	*ret_last = disk_calls(opts.disk) == disk_cut_at(opts.disk) + 1;
	return *ret_last && *n;
}

static int d_open(const char *path, int flags, mode_t mode)
{
	bool create = (flags & O_CREAT) && access(path, F_OK) < 0;
	int fd;

	if (is_elsewhere(path)) {
		fd = real->open(path, flags, mode);
		if (fd >= 0 && fd < FD_MAX)
			open_files[fd].elsewhere = true;
		return fd;
	}
	if (create ? fault(path) : fault_but_space(path))
		return -1;
	errno = EIO;
	if (create ? !power() : disk_is_off(opts.disk))
		return -1;
	fd = real->open(path, flags, mode);
	if (fd < 0)
		return fd;
	if (fd >= FD_MAX) {
		close(fd);
		errno = EMFILE;
		return -1;
	}
	open_files[fd].elsewhere = false;
	open_files[fd].inode = create ? disk_create(opts.disk, path) : disk_lookup(opts.disk, path);
	snprintf(open_files[fd].path, sizeof(open_files[fd].path), "%s", path);
	return fd;
}

/* @at: SIZE_MAX where write(2) would put it. */
static ssize_t put(int fd, const void *p, size_t n, uint64_t at)
{
	bool append = at == SIZE_MAX;
	struct stat st;
	ssize_t k;

	if (append && fstat(fd, &st) < 0)
		return -1;
	if (append)
		at = (uint64_t)(fcntl(fd, F_GETFL) & O_APPEND ? st.st_size
		                                              : lseek(fd, 0, SEEK_CUR));
	k = append ? real->write(fd, p, n) : real->pwrite(fd, p, n, (off_t)at);
	if (k > 0)
		disk_write(opts.disk, open_files[fd].inode, at, p, (size_t)k);
	return k;
}

static ssize_t put_some(int fd, const void *p, size_t n, uint64_t at)
{
	bool last;
	ssize_t k;

	if (fault(open_files[fd].path)) {
		if (opts.fault_errno == ENOSPC && !disk_is_off(opts.disk))
			put(fd, p, n / 2, at);
		errno = opts.fault_errno;
		return -1;
	}
	if (opts.short_writes)
		n = n / 3 + 1;
	if (!power_for(fd, &n, &last))
		return -1;
	k = put(fd, p, n, at);
	errno = EIO;
	return last ? -1 : k;
}

static bool on_another(int fd)
{
	return fd < FD_MAX && open_files[fd].elsewhere;
}

static ssize_t d_write(int fd, const void *p, size_t n)
{
	if (on_another(fd))
		return real->write(fd, p, n);
	return put_some(fd, p, n, SIZE_MAX);
}

static ssize_t d_pwrite(int fd, const void *p, size_t n, off_t at)
{
	if (on_another(fd))
		return real->pwrite(fd, p, n, at);
	return put_some(fd, p, n, (uint64_t)at);
}

static int d_fsync(int fd)
{
	struct stat st;

	if (on_another(fd))
		return 0;
	if (fault_but_space(open_files[fd].path)) {
		if (open_files[fd].inode >= 0)
			disk_forget(opts.disk, open_files[fd].inode);
		errno = opts.fault_errno;
		return -1;
	}
	if (!power_of(fd))
		return -1;
	if (is_path(opts.no_fsync, open_files[fd].path)) {
		skipped++;
		return 0;
	}
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
		disk_sync_dir(opts.disk, open_files[fd].path);
	else
		disk_sync(opts.disk, open_files[fd].inode);
	return 0;
}

static int d_rename(const char *from, const char *to)
{
	int r;

	if (is_elsewhere(from))
		return real->rename(from, to);
	if (fault(from))
		return -1;
	if (!power())
		return -1;
	disk_lookup(opts.disk, from); /* known before it is gone */
	r = real->rename(from, to);
	if (!r)
		disk_rename(opts.disk, from, to);
	return r;
}

static int d_link(const char *from, const char *to)
{
	int r;

	if (is_elsewhere(from))
		return real->link(from, to);
	if (fault(from))
		return -1;
	if (!power())
		return -1;
	r = real->link(from, to);
	if (!r)
		disk_link(opts.disk, from, to);
	return r;
}

static int d_mkdir(const char *path, mode_t mode)
{
	int r;

	if (is_elsewhere(path))
		return real->mkdir(path, mode);
	if (access(path, F_OK) == 0) {
		errno = EEXIST;
		return -1;
	}
	if (fault(path))
		return -1;
	if (!power())
		return -1;
	r = real->mkdir(path, mode);
	if (!r)
		disk_mkdir(opts.disk, path);
	return r;
}

static int d_unlink(const char *path)
{
	int r;

	if (is_elsewhere(path))
		return real->unlink(path);
	if (fault_but_space(path))
		return -1;
	if (!power())
		return -1;
	disk_lookup(opts.disk, path);
	r = real->unlink(path);
	if (!r)
		disk_unlink(opts.disk, path);
	return r;
}

static int d_ftruncate(int fd, off_t len)
{
	int r;

	if (on_another(fd))
		return real->ftruncate(fd, len);
	if (fault_but_space(open_files[fd].path))
		return -1;
	if (!power())
		return -1;
	r = real->ftruncate(fd, len);
	if (!r)
		disk_truncate(opts.disk, open_files[fd].inode, (uint64_t)len);
	return r;
}

static const struct fsx_ops disk_ops = {
	.open = d_open,
	.write = d_write,
	.pwrite = d_pwrite,
	.fsync = d_fsync,
	.rename = d_rename,
	.link = d_link,
	.mkdir = d_mkdir,
	.unlink = d_unlink,
	.ftruncate = d_ftruncate,
	.stat = stat, /* changes nothing */
};

void disk_fsx_use(const struct disk_fsx_opts *o)
{
	if (!real)
		real = fsx_io;
	opts = *o;
	skipped = 0;
	path_calls = fault_calls = 0;
	faults = 0;
	fsx_io = &disk_ops;
}

void disk_fsx_end(void)
{
	if (real)
		fsx_io = real;
}

unsigned disk_fsx_skipped(void)
{
	return skipped;
}

unsigned disk_fsx_faults(void)
{
	return faults;
}

uint64_t disk_fsx_path_calls(void)
{
	return path_calls;
}
