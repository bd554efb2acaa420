/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of files in a sweep: what a disk does not give back. Sockets and counters are others'. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

static bool fails(int fd)
{
	struct stat st;
	int err;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	err = sweep_hit(SWEEP_READ);
	if (err)
		errno = err;
	return err != 0;
}

ssize_t __wrap_read(int fd, void *p, size_t n)
{
	return fails(fd) ? -1 : __real_read(fd, p, n);
}

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
	return fails(fd) ? -1 : __real_pread(fd, p, n, at);
}
