/* SPDX-License-Identifier: Apache-2.0 */
/* Writing of files in a sweep: what a disk does not take. Sockets and counters are others'. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

static bool is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static bool fails(enum sweep_kind kind)
{
	int err = sweep_hit(kind);

	if (err)
		errno = err;
	return err != 0;
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
	return is_file(fd) && fails(SWEEP_WRITE) ? -1 : __real_write(fd, p, n);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
	return is_file(fd) && fails(SWEEP_WRITE) ? -1 : __real_pwrite(fd, p, n, at);
}

int __wrap_fsync(int fd)
{
	return fails(SWEEP_SYNC) ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	return fails(SWEEP_WRITE) ? -1 : __real_rename(from, to);
}
