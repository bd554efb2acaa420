/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/self/cgroup names the groups, /sys/fs/cgroup has their limits. In a container the two may
 * not belong together: without a namespace of its own it is told the host's path, and sees its own
 * group mounted as the root. So a directory that is not there is passed over, the mounted root is
 * always looked at, and the smallest counts. Takes no memory of its own: a limit that is not seen
 * for want of it would be a wider one.
 */
#include "common/group_limits.h"
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
#include <sys/resource.h>
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

/* "max" and what is no number are no limit. */
static uint64_t number_of(const char *text)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return UINT64_MAX;
	v = strtoull(text, &end, 10);
	return *end == '\0' || *end == '\n' ? v : UINT64_MAX;
}

/* Nor is what is not there. */
static uint64_t read_limit(const char *path)
{
	char text[NUMBER_MAX + 1];

	return read_text(path, text, sizeof(text)) ? number_of(text) : UINT64_MAX;
}

static uint64_t read_file_limit(const char *dir, const char *file)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path))
		return UINT64_MAX;
	return read_limit(path);
}

/* Of @group and all above it, up to what is mounted at @mount. */
static uint64_t limit_of(const char *root, const char *mount, const char *group,
                         uint64_t (*read)(const char *dir))
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

		if ((size_t)snprintf(path, sizeof(path), "%s%s%s", root, mount, dir) < sizeof(path))
			limit = read(path);
		least = MIN(least, limit);
		last = strrchr(dir, '/');
		if (!last)
			return least;
		*last = '\0';
	}
}

/* A controller: its name in version 1, and how the limit of a group is read from its directory. */
struct controller {
	const char *name;
	uint64_t (*read_v2)(const char *dir), (*read_v1)(const char *dir);
};

static bool names(const char *controllers, const char *name)
{
	const char *at = controllers;
	size_t n;

	for (; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n == strlen(name) && !memcmp(at, name, n))
			return true;
	}
	return false;
}

/* ID:CONTROLLERS:PATH */
static uint64_t limit_of_line(const struct controller *c, const char *root, char *line)
{
	char *controllers = strchr(line, ':'), *group, mount[64];

	group = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!group)
		return UINT64_MAX;
	*group++ = '\0';
	controllers++;
	if (!*controllers)
		return limit_of(root, "/sys/fs/cgroup", group, c->read_v2);
	if (!names(controllers, c->name))
		return UINT64_MAX;
	snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", c->name);
	return limit_of(root, mount, group, c->read_v1);
}

static uint64_t limit_by(const struct controller *c, const char *root)
{
	char path[PATH_MAX], text[GROUPS_MAX], *line, *rest = NULL;
	uint64_t least = UINT64_MAX;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	if (!read_text(path, text, sizeof(text)))
		return least;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		uint64_t limit = limit_of_line(c, root, line);

		least = MIN(least, limit);
	}
	return least;
}

static uint64_t memory_v2(const char *dir)
{
	return read_file_limit(dir, "memory.max");
}

static uint64_t memory_v1(const char *dir)
{
	return read_file_limit(dir, "memory.limit_in_bytes");
}

uint64_t memory_limit_bytes(const char *root)
{
	static const struct controller memory = {"memory", memory_v2, memory_v1};
	uint64_t machine = machine_bytes(), limit = limit_by(&memory, root);

	return MIN(machine, limit);
}

static uint64_t cores_of(uint64_t quota_us, uint64_t period_us)
{
	if (quota_us == UINT64_MAX || period_us == UINT64_MAX || period_us == 0)
		return UINT64_MAX;
	return MAX(quota_us / period_us + (quota_us % period_us > 0), 1u);
}

/* QUOTA PERIOD; the first may be "max". */
static uint64_t cpu_v2(const char *dir)
{
	char path[PATH_MAX], text[NUMBER_MAX + 1], *period;

	if ((size_t)snprintf(path, sizeof(path), "%s/cpu.max", dir) >= sizeof(path) ||
	    !read_text(path, text, sizeof(text)))
		return UINT64_MAX;
	period = strchr(text, ' ');
	if (!period)
		return UINT64_MAX;
	*period++ = '\0';
	return cores_of(number_of(text), number_of(period));
}

/* Of no quota the first says -1, which is no number. */
static uint64_t cpu_v1(const char *dir)
{
	return cores_of(read_file_limit(dir, "cpu.cfs_quota_us"),
	                read_file_limit(dir, "cpu.cfs_period_us"));
}

uint32_t cpu_limit_cores(const char *root)
{
	static const struct controller cpu = {"cpu", cpu_v2, cpu_v1};

	return (uint32_t)MIN(limit_by(&cpu, root), UINT32_MAX);
}

static uint64_t tasks(const char *dir)
{
	return read_file_limit(dir, "pids.max");
}

uint64_t task_limit(const char *root)
{
	static const struct controller pids = {"pids", tasks, tasks};
	uint64_t limit = limit_by(&pids, root);
	struct rlimit rl;

	if (getrlimit(RLIMIT_NPROC, &rl) < 0 || rl.rlim_cur == RLIM_INFINITY)
		return limit;
	return MIN(limit, (uint64_t)rl.rlim_cur);
}
