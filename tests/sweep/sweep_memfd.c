/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is shared, in a sweep: what makes a memfd, gives it its size and seals it. */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t n);
int __wrap_ftruncate(int fd, off_t n);
int __real_fallocate(int fd, int mode, off_t from, off_t n);
int __wrap_fallocate(int fd, int mode, off_t from, off_t n);
int __real_fcntl(int fd, int cmd, ...);
int __wrap_fcntl(int fd, int cmd, ...);

static bool fails(void)
{
	int err = sweep_hit(SWEEP_MEMFD);

	if (err)
		errno = err;
	return err != 0;
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
	return fails() ? -1 : __real_memfd_create(name, flags);
}

int __wrap_ftruncate(int fd, off_t n)
{
	return fails() ? -1 : __real_ftruncate(fd, n);
}

int __wrap_fallocate(int fd, int mode, off_t from, off_t n)
{
	return fails() ? -1 : __real_fallocate(fd, mode, from, n);
}

int __wrap_fcntl(int fd, int cmd, ...)
{
	va_list ap;
	long arg;

	va_start(ap, cmd);
	arg = va_arg(ap, long);
	va_end(ap);
	if ((cmd == F_ADD_SEALS || cmd == F_GET_SEALS) && fails())
		return -1;
	return __real_fcntl(fd, cmd, arg);
}
