/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded into a process by LD_PRELOAD: fsync and fdatasync fail with EIO while there is a file
 * named $ROS2_FAIL_SYNC-PROGRAM; when that holds words, only on files whose path has them in it,
 * and with a second line only once that is in the file itself: it is that write whose sync fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The two lines of the file that says so: "" = every sync fails. */
static int read_words(char path_has[256], char file_has[256])
{
	const char *prefix = getenv("ROS2_FAIL_SYNC");
	char path[4096], text[512];
	ssize_t n;
	int fd;

	if (!prefix)
		return -1;
	snprintf(path, sizeof(path), "%s-%s", prefix, program_invocation_short_name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	path_has[0] = file_has[0] = '\0';
	sscanf(text, "%255[^\n]\n%255[^\n]", path_has, file_has);
	return 0;
}

static int is_in_file(const char *path, const char *words)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), is = 0;
	struct stat st;
	void *p;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && st.st_size) {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		is = p != MAP_FAILED && memmem(p, (size_t)st.st_size, words, strlen(words));
		if (p != MAP_FAILED)
			munmap(p, (size_t)st.st_size);
	}
	close(fd);
	return is;
}

static int fails(int fd)
{
	char path_has[256], file_has[256], self[64], path[4096];
	ssize_t n;

	if (read_words(path_has, file_has) < 0)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	n = readlink(self, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return strstr(path, path_has) && (!file_has[0] || is_in_file(path, file_has));
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
