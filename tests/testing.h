/* SPDX-License-Identifier: Apache-2.0 */
/* What cmocka tests of every part begin with: cmocka itself, and a directory that is gone after the
 * test. */
#ifndef ROS2_TESTS_TESTING_H
#define ROS2_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int testing_remove_one(const char *path, const struct stat *st, int type,
                                     struct FTW *ftw)
{
	return remove(path);
}

/* cmocka setup: *state becomes the path of a new empty directory. */
static inline int testing_dir_setup(void **state)
{
	const char *base = getenv("TMPDIR");
	char path[4096];

	snprintf(path, sizeof(path), "%s/ros2-test-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(path))
		return -1;
	*state = strdup(path);
	return *state ? 0 : -1;
}

static inline int testing_dir_teardown(void **state)
{
	int r = nftw(*state, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS);

	free(*state);
	return r;
}

/* The file engine opens nothing without openat2 (Linux 5.6; qemu-user 7.2 does not know it). */
static inline bool testing_has_openat2(void)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC};
	long fd = syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));

	if (fd >= 0)
		close((int)fd);
	return fd >= 0 || errno != ENOSYS;
}

/* Stands for a test of the file engine where there is none. */
static inline void testing_no_openat2(void **state)
{
	puts("# skipped: no openat2 here (Linux before 5.6, or qemu-user)");
	skip();
}

/* DIR/NAME in a buffer of the caller. */
#define testing_path(buf, dir, name) snprintf(buf, sizeof(buf), "%s/%s", (const char *)(dir), name)

#endif
