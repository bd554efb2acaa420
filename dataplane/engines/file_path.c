/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of the file engine: the only place that resolves names. See file_priv.h, rule 1. Symbolic
 * links are refused even where they stay inside: a link that is followed is a name whose meaning
 * somebody else can change.
 */
#include "dataplane/engines/file_priv.h"
#include "dataplane/test_switches.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int file_path_open(int dir_fd, const char *path, int flags, unsigned int mode)
{
	/* A directory's last name may not be a link either, by NO_SYMLINKS, which says so more
	 * clearly (ELOOP). */
	int nofollow = flags & O_DIRECTORY ? 0 : O_NOFOLLOW;
	struct open_how how = {
		.flags = (uint64_t)(flags | nofollow | O_CLOEXEC),
		.mode = flags & O_CREAT ? mode & 0777 : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
	                   RESOLVE_NO_XDEV,
	};

	if (DP_SWITCH(no_beneath)) {
		how.resolve = 0;
		how.flags &= ~(uint64_t)O_NOFOLLOW;
	}
	/* -EAGAIN: a rename or mount somewhere made the kernel unsure; trying again is what
	 * openat2(2) asks for. */
	for (int tries = 0; tries < 64; tries++) {
		long fd = syscall(SYS_openat2, dir_fd, path[0] ? path : ".", &how, sizeof(how));

		if (fd >= 0)
			return (int)fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EBUSY;
}

int file_path_reopen(int fd, int flags)
{
	char link[48];
	int ret;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	/* no O_NONBLOCK: io_uring would answer EAGAIN for it on file systems that cannot do without
	 * waiting */
	ret = open(link, flags | O_CLOEXEC | O_NOCTTY);
	return ret < 0 ? -errno : ret;
}

/* Says nothing about what this system can do. */
static bool passes_by(int rc)
{
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
}

int file_path_probe(int root_fd, struct ros2_err *err)
{
	AUTO_CLOSE int path_fd = file_path_open(root_fd, "", O_PATH | O_DIRECTORY, 0);
	AUTO_CLOSE int fd = -1;

	if (passes_by(path_fd))
		return ros2_err_set(err, path_fd, "file engine: root: %s", strerror(-path_fd));
	if (path_fd < 0)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "file engine: openat2 does not work here (%s): Linux 5.6 or "
		                    "later is needed, "
		                    "and a sandbox must allow it",
		                    strerror(-path_fd));
	fd = file_path_reopen(path_fd, O_RDONLY | O_DIRECTORY);
	if (passes_by(fd))
		return ros2_err_set(err, fd, "file engine: root: %s", strerror(-fd));
	if (fd < 0)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "file engine: cannot reopen a descriptor through /proc/self/fd "
		                    "(%s): /proc must "
		                    "be mounted",
		                    strerror(-fd));
	return 0;
}

int file_path_words(struct ros2_err *err, int rc, const char *what, const char *path)
{
	switch (rc) {
	case -ELOOP:
		return ros2_err_set(
			err, -ELIBBAD,
			"%s \"%s\": a symbolic link lies on the path; links are not followed", what,
			path);
	case -EXDEV:
		return ros2_err_set(err, -ELIBBAD,
		                    "%s \"%s\": leaves the namespace or crosses a mount point",
		                    what, path);
	case -ENAMETOOLONG:
		return ros2_err_set(err, -ELIBBAD,
		                    "%s \"%s\": a name is longer than this file system allows",
		                    what, path);
	case -EDQUOT:
		return ros2_err_set(err, -ENOSPC, "%s \"%s\": the file system's quota is used up",
		                    what, path);
	default:
		/* what has no name of its own is a failure of the storage, not a bug of ours */
		return ros2_err_set(err, ros2_status_from_errno(rc) == ROS2_INTERNAL ? -EIO : rc,
		                    "%s \"%s\": %s", what, path, strerror(-rc));
	}
}

int file_path_parent(const struct engine_ns *ns, const char *path, const char **ret_name,
                     int *ret_fd, struct ros2_err *err)
{
	char parent[NAMES_PATH_MAX + 1];
	size_t len;
	int fd;

	*ret_name = names_last(path, &len);
	memcpy(parent, path, len);
	parent[len] = '\0';
	fd = file_path_open(ns->fd, parent, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return file_path_words(err, fd, "directory", parent);
	*ret_fd = fd;
	return 0;
}

static enum engine_file_type type_of(unsigned int mode)
{
	if (S_ISREG(mode))
		return ENGINE_REGULAR;
	return S_ISDIR(mode) ? ENGINE_DIRECTORY : ENGINE_OTHER;
}

int file_one_name(const struct engine_attr *a, uint32_t links, const char *what, const char *path,
                  struct ros2_err *err)
{
	if (a->type != ENGINE_REGULAR || links <= 1 || DP_SWITCH(no_one_name))
		return 0;
	return ros2_err_set(err, -ELIBBAD,
	                    "%s \"%s\": has %u hard links, so it may lie outside the namespace too",
	                    what, path, links);
}

int file_attr_get(int fd, struct engine_attr *ret, uint32_t *ret_links, struct ros2_err *err)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0)
		return ros2_err_set(err, -errno, "stat: %s", strerror(errno));
	memset(ret, 0, sizeof(*ret));
	ret->type = type_of(st.stx_mode);
	ret->mode = st.stx_mode & 07777u;
	if (ret->type == ENGINE_REGULAR) {
		ret->size = st.stx_size;
		ret->block_size = 1; /* what O_DIRECT wants is this engine's affair */
	}
	ret->blocks_512 = st.stx_blocks;
	ret->mtime_unix_ns = (uint64_t)st.stx_mtime.tv_sec * 1000000000u + st.stx_mtime.tv_nsec;
	if (ret_links)
		*ret_links = st.stx_nlink;
	return 0;
}
