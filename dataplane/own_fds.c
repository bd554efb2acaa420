/* SPDX-License-Identifier: Apache-2.0 */
/* See own_fds.h. */
#include "dataplane/own_fds.h"
#include "common/util.h"
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

static void close_between(int first, int last)
{
	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
	/* Before Linux 5.9. */
	last = MIN(last, (int)sysconf(_SC_OPEN_MAX));
	for (int fd = first; fd <= last; fd++)
		(void)syscall(SYS_close, fd);
}

int own_fds_keep(int fd)
{
	if (unshare(CLONE_FILES) < 0)
		return -errno;
	close_between(STDERR_FILENO + 1, fd - 1);
	close_between(fd + 1, INT_MAX);
	return 0;
}
