/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the file engine: directories, removal, renaming, listing. Each change is made relative
 * to the parent's descriptor. mkdir and rename are durable when they return, because no later flush
 * could make them so; a removal may come back after a power cut (docs/decisions/0005-engines.md).
 */
#include "dataplane/engines/file_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int file_stat(struct engine_ns *ns, const char *path, struct engine_attr *ret, struct ros2_err *err)
{
	AUTO_CLOSE int fd = -1;
	struct engine_attr attr;
	uint32_t links;
	int rc = names_check(path, true, err);

	if (rc < 0)
		return rc;
	fd = file_path_open(ns->fd, path, O_PATH, 0);
	if (fd < 0)
		return file_path_words(err, fd, "stat", path);
	rc = file_attr_get(fd, &attr, &links, err);
	if (!rc)
		rc = file_one_name(&attr, links, "stat", path, err);
	if (!rc)
		*ret = attr;
	return rc;
}

static int sync_dir(int fd, const char *what, const char *path, struct ros2_err *err)
{
	/* file systems without directory sync (EINVAL) have nothing to wait for */
	if (fsync(fd) == 0 || errno == EINVAL)
		return 0;
	return ros2_err_set(err, -EIO, "%s \"%s\": done, but making it durable failed: %s", what,
	                    path, strerror(errno));
}

int file_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err)
{
	AUTO_CLOSE int dir = -1;
	const char *name;
	int rc = names_check(path, false, err);

	if (rc == 0)
		rc = file_path_parent(ns, path, &name, &dir, err);
	if (rc < 0)
		return rc;
	if (mkdirat(dir, name, mode & 0777) < 0)
		return file_path_words(err, -errno, "mkdir", path);
	return sync_dir(dir, "mkdir", path, err);
}

static int remove_name(struct engine_ns *ns, const char *path, int flags, const char *what,
                       struct ros2_err *err)
{
	AUTO_CLOSE int dir = -1;
	const char *name;
	int rc = names_check(path, false, err);

	if (rc == 0)
		rc = file_path_parent(ns, path, &name, &dir, err);
	if (rc < 0)
		return rc;
	if (unlinkat(dir, name, flags) == 0)
		return 0;
	rc = errno == EEXIST ? -ENOTEMPTY : -errno;
	return file_path_words(err, rc, what, path);
}

int file_unlink(struct engine_ns *ns, const char *path, struct ros2_err *err)
{
	return remove_name(ns, path, 0, "unlink", err);
}

int file_rmdir(struct engine_ns *ns, const char *path, struct ros2_err *err)
{
	return remove_name(ns, path, AT_REMOVEDIR, "rmdir", err);
}

int file_rename(struct engine_ns *ns, const char *from, const char *to, struct ros2_err *err)
{
	AUTO_CLOSE int from_dir = -1;
	AUTO_CLOSE int to_dir = -1;
	const char *from_name, *to_name;
	int rc = names_check(from, false, err);

	if (rc == 0)
		rc = names_check(to, false, err);
	if (rc == 0)
		rc = file_path_parent(ns, from, &from_name, &from_dir, err);
	if (rc == 0)
		rc = file_path_parent(ns, to, &to_name, &to_dir, err);
	if (rc < 0)
		return rc;
	if (renameat(from_dir, from_name, to_dir, to_name) < 0)
		return file_path_words(err, errno == EEXIST ? -ENOTEMPTY : -errno, "rename", from);
	rc = sync_dir(to_dir, "rename", to, err);
	return rc < 0 ? rc : sync_dir(from_dir, "rename", from, err);
}

/* As getdents64(2) gives them. */
struct raw_dirent {
	uint64_t ino;
	int64_t off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};

static enum engine_file_type dirent_type(int dir, const struct raw_dirent *d)
{
	struct stat st;

	if (d->type == DT_REG)
		return ENGINE_REGULAR;
	if (d->type == DT_DIR)
		return ENGINE_DIRECTORY;
	if (d->type != DT_UNKNOWN || fstatat(dir, d->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return ENGINE_OTHER;
	if (S_ISREG(st.st_mode))
		return ENGINE_REGULAR;
	return S_ISDIR(st.st_mode) ? ENGINE_DIRECTORY : ENGINE_OTHER;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

struct listing {
	struct engine_dirent *out;
	uint32_t max, n;
	uint64_t last; /* cookie of the last entry looked at */
};

/* Takes entries of one getdents64 buffer until there is no room. */
static void take_entries(struct listing *l, int dir, const char *buf, size_t len)
{
	for (size_t at = 0; at < len && l->n < l->max;) {
		const struct raw_dirent *d = (const struct raw_dirent *)(buf + at);
		struct engine_dirent *o = &l->out[l->n];

		at += d->reclen;
		l->last = (uint64_t)d->off;
		if (is_dots(d->name) || strlen(d->name) > NAMES_NAME_MAX)
			continue;
		memset(o, 0, sizeof(*o));
		memcpy(o->name, d->name, strlen(d->name));
		o->type = dirent_type(dir, d);
		l->n++;
	}
}

int file_readdir(struct engine_ns *ns, const char *path, uint64_t cookie, struct engine_dirent *out,
                 uint32_t max, uint32_t *ret_n, uint64_t *next, struct ros2_err *err)
{
	_Alignas(struct raw_dirent) char buf[16384];
	struct listing l = {.out = out, .max = max, .last = cookie};
	AUTO_CLOSE int dir = -1;
	int rc = names_check(path, true, err);
	long len = 0;

	if (rc < 0)
		return rc;
	if (max == 0)
		return ros2_err_set(err, -EINVAL, "readdir: room for no entry");
	dir = file_path_open(ns->fd, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return file_path_words(err, dir, "readdir", path);
	if (cookie > INT64_MAX || (cookie && lseek(dir, (off_t)cookie, SEEK_SET) < 0))
		return ros2_err_set(err, -EINVAL,
		                    "readdir \"%s\": not a cookie this directory gave", path);
	while (l.n < max) {
		len = syscall(SYS_getdents64, dir, buf, sizeof(buf));
		if (len < 0)
			return file_path_words(err, -errno, "readdir", path);
		if (len == 0)
			break;
		take_entries(&l, dir, buf, (size_t)len);
	}
	*ret_n = l.n;
	*next = len == 0 ? 0 : l.last;
	return 0;
}
