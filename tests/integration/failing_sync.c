/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a process by LD_PRELOAD: fsync and fdatasync fail with EIO while there is a file
 * named $ROS2_FAIL_SYNC-PROGRAM. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void)
{
	const char *prefix = getenv("ROS2_FAIL_SYNC");
	char path[4096];

	if (!prefix)
		return 0;
	snprintf(path, sizeof(path), "%s-%s", prefix, program_invocation_short_name);
	return access(path, F_OK) == 0;
}

int fsync(int fd)
{
	if (!fails())
		return (int)syscall(SYS_fsync, fd);
	errno = EIO;
	return -1;
}

int fdatasync(int fd)
{
	if (!fails())
		return (int)syscall(SYS_fdatasync, fd);
	errno = EIO;
	return -1;
}
