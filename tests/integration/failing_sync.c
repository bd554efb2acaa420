/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a process by LD_PRELOAD: fsync and fdatasync fail with EIO while there is a file
 * named $ROS2_FAIL_SYNC-PROGRAM; when that holds words, only on files whose path has them in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The words of the file that says so: "" = every sync fails. */
static int read_words(char *out, size_t max)
{
	const char *prefix = getenv("ROS2_FAIL_SYNC");
	char path[4096];
	ssize_t n;
	int fd;

	if (!prefix)
		return -1;
	snprintf(path, sizeof(path), "%s-%s", prefix, program_invocation_short_name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, out, max - 1);
	close(fd);
	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return 0;
}

static int fails(int fd)
{
	char words[256], self[64], path[4096];
	ssize_t n;

	if (read_words(words, sizeof(words)) < 0)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return strstr(path, words) != NULL;
}

int fsync(int fd)
{
	if (!fails(fd))
		return (int)syscall(SYS_fsync, fd);
	errno = EIO;
	return -1;
}

int fdatasync(int fd)
{
	if (!fails(fd))
		return (int)syscall(SYS_fdatasync, fd);
	errno = EIO;
	return -1;
}
