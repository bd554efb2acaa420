/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/self/cgroup names the groups, /sys/fs/cgroup has their limits. In a container the two may
 * not belong together: without a namespace of its own it is told the host's path, and sees its own
 * group mounted as the root. So a directory that is not there is passed over, the mounted root is
 * always looked at, and the smallest counts. Takes no memory of its own: a limit that is not seen
 * for want of it would be a wider one.
 */
#include "common/memory_limit.h"
#include "common/fsx.h"
#include "common/util.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 16384 /* bytes of /proc/self/cgroup: 4 KiB of path and a few dozen lines */
#define NUMBER_MAX 64

static uint64_t machine_bytes(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 1ull << 30;
}

/* At most @size - 1 bytes, and a NUL; false: none. */
static bool read_text(const char *path, char *text, size_t size)
{
	AUTO_CLOSE int fd = fsx_io->open(path, O_RDONLY | O_CLOEXEC, 0);
	size_t n = 0;
	ssize_t k = 1;

	while (fd >= 0 && n < size - 1 && (k > 0 || (k < 0 && errno == EINTR))) {
		k = read(fd, text + n, size - 1 - n);
		n += k > 0 ? (size_t)k : 0;
	}
	text[n] = '\0';
	return n > 0;
}

/* "max", what is no number, and what is not there are no limit. */
static uint64_t read_limit(const char *path)
{
	char text[NUMBER_MAX + 1], *end;
	unsigned long long v;

	if (!read_text(path, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
		return UINT64_MAX;
	v = strtoull(text, &end, 10);
	return *end == '\0' || *end == '\n' ? v : UINT64_MAX;
}

/* Of @group and all above it, up to what is mounted at @mount. */
static uint64_t limit_of(const char *root, const char *mount, const char *group, const char *file)
{
	char dir[PATH_MAX], path[PATH_MAX];
	uint64_t least = UINT64_MAX;

	/* A group beside the namespace's own is told as a way up: it is not below the mount. */
	if (strstr(group, "/..") || strlen(group) >= sizeof(dir))
		group = "";
	strcpy(dir, group);
	for (;;) {
		uint64_t limit = UINT64_MAX;
		char *last;

		if ((size_t)snprintf(path, sizeof(path), "%s%s%s/%s", root, mount, dir, file) <
		    sizeof(path))
			limit = read_limit(path);
		least = MIN(least, limit);
		last = strrchr(dir, '/');
		if (!last)
			return least;
		*last = '\0';
	}
}

static bool names_memory(const char *controllers)
{
	const char *at = controllers;
	size_t n;

	for (; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n == 6 && !memcmp(at, "memory", 6))
			return true;
	}
	return false;
}

/* ID:CONTROLLERS:PATH */
static uint64_t limit_of_line(const char *root, char *line)
{
	char *controllers = strchr(line, ':'), *group;

	group = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!group)
		return UINT64_MAX;
	*group++ = '\0';
	controllers++;
	if (!*controllers)
		return limit_of(root, "/sys/fs/cgroup", group, "memory.max");
	if (names_memory(controllers))
		return limit_of(root, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
	return UINT64_MAX;
}

uint64_t memory_limit_bytes(const char *root)
{
	uint64_t least = machine_bytes();
	char path[PATH_MAX], text[GROUPS_MAX], *line, *rest = NULL;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!read_text(path, text, sizeof(text)))
		return least;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		uint64_t limit = limit_of_line(root, line);

		least = MIN(least, limit);
	}
	return least;
}
