/* SPDX-License-Identifier: Apache-2.0 */
/* The shim. Real fsyncs are left out: the model does the syncing. */
#include "tests/common/disk_fsx.h"
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
static struct {
	int inode;
	char path[512];
} open_files[FD_MAX];

static bool power(void)
{
	errno = EIO;
	return disk_call(opts.disk);
}

static int d_open(const char *path, int flags, mode_t mode)
{
	bool create = (flags & O_CREAT) && access(path, F_OK) < 0;
	int fd;

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
	open_files[fd].inode = create ? disk_create(opts.disk, path) : disk_lookup(opts.disk, path);
	snprintf(open_files[fd].path, sizeof(open_files[fd].path), "%s", path);
	return fd;
}

static ssize_t d_write(int fd, const void *p, size_t n)
{
	bool last = false;
	struct stat st;
	off_t at;
	ssize_t k;

	if (!power()) {
		last = disk_calls(opts.disk) == disk_cut_at(opts.disk) + 1;
		n /= 2;
		if (!last || !n)
			return -1;
	}
	if (fstat(fd, &st) < 0)
		return -1;
	at = fcntl(fd, F_GETFL) & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
	k = real->write(fd, p, n);
	if (k > 0)
		disk_write(opts.disk, open_files[fd].inode, (uint64_t)at, p, (size_t)k);
	errno = EIO;
	return last ? -1 : k;
}

static bool is_left_out(const char *path)
{
	const char *s = opts.no_fsync;
	size_t n = strlen(path);

	if (!s)
		return false;
	if (*s != '=')
		return strstr(path, s) != NULL;
	return n >= strlen(s + 1) && !strcmp(path + n - strlen(s + 1), s + 1);
}

static int d_fsync(int fd)
{
	struct stat st;

	if (!power())
		return -1;
	if (is_left_out(open_files[fd].path)) {
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

	if (access(path, F_OK) == 0) {
		errno = EEXIST;
		return -1;
	}
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
	.fsync = d_fsync,
	.rename = d_rename,
	.link = d_link,
	.mkdir = d_mkdir,
	.unlink = d_unlink,
	.ftruncate = d_ftruncate,
};

void disk_fsx_use(const struct disk_fsx_opts *o)
{
	if (!real)
		real = fsx_io;
	opts = *o;
	skipped = 0;
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
