/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Durable files. The order of calls is the whole point: (1) the bytes are in a temporary file
 * beside the target, (2) they are synced, (3) the name changes in one step, (4) the directory is
 * synced. A failed fsync is never retried: after one, the kernel may have dropped the dirty pages
 * and a second call would lie.
 */
#include "common/fsx.h"
#include "common/crypto.h"
#include "common/util.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define TMP_MARK ".tmp-"
#define TMP_RAND 8 /* hex digits after the mark */

#define ANEW_CHUNK 65536

static int real_open(const char *path, int flags, mode_t mode)
{
	return open(path, flags, mode);
}

static const struct fsx_ops real_ops = {
	.open = real_open,
	.write = write,
	.pwrite = pwrite,
	.fsync = fsync,
	.rename = rename,
	.link = link,
	.mkdir = mkdir,
	.unlink = unlink,
	.ftruncate = ftruncate,
	.stat = stat,
};
const struct fsx_ops *fsx_io = &real_ops;

/* Whose the file is that would not open, or the nearest directory that can be looked at. Numbers:
 * a name would have to be asked for, perhaps over the network. */
static int refused(struct ros2_err *err, const char *what, const char *path)
{
	char at[PATH_MAX], subject[PATH_MAX + 16] = "it";
	struct stat st = {0};

	snprintf(at, sizeof(at), "%s", path);
	while (stat(at, &st) < 0 && strcmp(at, ".") != 0) {
		const char *slash = strrchr(at, '/');
		int n = slash ? (int)(slash - at) : 0;

		snprintf(at, sizeof(at), "%.*s", n, path);
		if (!n)
			strcpy(at, slash ? "/" : ".");
		snprintf(subject, sizeof(subject), "directory %s", at);
	}
	return ros2_err_set(
		err, -EACCES,
		"%s %s: permission denied: %.100s is of uid %u, gid %u, mode %04o, this process "
		"runs as uid %u: mend owner or mode (chown, chmod) or run as its owner",
		what, path, subject, st.st_uid, st.st_gid, st.st_mode & 07777, geteuid());
}

static int fail(struct ros2_err *err, const char *what, const char *path)
{
	int code = -errno;

	if (code == -EACCES)
		return refused(err, what, path);
	return ros2_err_set(err, code, "%s %s: %s", what, path, strerrordesc_np(-code));
}

static int sync_fd(int fd, const char *path, struct ros2_err *err)
{
	if (!fsx_io->fsync(fd))
		return 0;
	return ros2_err_set(err, -EIO, "fsync %s: %s: what was written may be lost", path,
	                    strerrordesc_np(errno));
}

int fsx_write_all(int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n) {
		ssize_t k = fsx_io->write(fd, at, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -EIO;
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

int fsx_pwrite_all(int fd, const void *p, size_t n, off_t off)
{
	const char *at = p;

	while (n) {
		ssize_t k = fsx_io->pwrite(fd, at, n, off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (k == 0)
			return -EIO;
		at += k;
		off += k;
		n -= (size_t)k;
	}
	return 0;
}

int fsx_open(const char *path, int flags, mode_t mode, int *ret_fd, struct ros2_err *err)
{
	int fd = fsx_io->open(path, flags | O_CLOEXEC, mode);

	if (fd < 0)
		return fail(err, "open", path);
	*ret_fd = fd;
	return 0;
}

/* The directory part of @path, "." when there is none. */
static int parent_of(const char *path, char out[PATH_MAX])
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (!slash)
		strcpy(out, ".");
	else if (n == 0)
		strcpy(out, "/");
	else {
		memcpy(out, path, n);
		out[n] = '\0';
	}
	return 0;
}

int fsx_sync_dir(const char *path, struct ros2_err *err)
{
	AUTO_CLOSE int fd = fsx_io->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);

	if (fd < 0)
		return fail(err, "open directory", path);
	return sync_fd(fd, path, err);
}

int fsx_sync_parent(const char *path, struct ros2_err *err)
{
	char dir[PATH_MAX];
	int r = parent_of(path, dir);

	if (r < 0)
		return ros2_err_set(err, r, "path of %zu bytes is too long", strlen(path));
	return fsx_sync_dir(dir, err);
}

/* DIR/.NAME.tmp-RANDOM: hidden, on the same file system, recognisable by fsx_sweep_tmp. */
static int tmp_name(const char *path, char out[PATH_MAX], struct ros2_err *err)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	int dir_len = (int)(name - path);
	uint8_t random[TMP_RAND / 2];
	char hex[TMP_RAND + 1];
	int n;

	if (!*name)
		return ros2_err_set(err, -EINVAL, "\"%s\" does not name a file", path);
	crypto_random(random, sizeof(random));
	crypto_hex(random, sizeof(random), hex);
	n = snprintf(out, PATH_MAX, "%.*s.%s" TMP_MARK "%s", dir_len, path, name, hex);
	if (n < 0 || n >= PATH_MAX)
		return ros2_err_set(err, -ENAMETOOLONG, "path of %zu bytes is too long",
		                    strlen(path));
	return 0;
}

/* Steps 1 and 2. Leaves no file behind on error. */
static int write_tmp(const char *tmp, const void *p, size_t n, mode_t mode, struct ros2_err *err)
{
	AUTO_CLOSE int fd =
		fsx_io->open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r;

	if (fd < 0)
		return fail(err, "create", tmp);
	/* The caller's mode, not the umask's opinion of it. */
	if (fchmod(fd, mode) < 0) {
		r = fail(err, "chmod", tmp);
	} else {
		r = fsx_write_all(fd, p, n);
		if (r < 0)
			ros2_err_set(err, r, "write %s: %s", tmp, strerrordesc_np(-r));
		else
			r = sync_fd(fd, tmp, err);
	}
	if (r < 0)
		fsx_io->unlink(tmp);
	return r;
}

/* Step 3: the name appears or changes in one step. The temporary name is gone afterwards, if unlink
 * lets it. */
static int publish(const char *tmp, const char *path, bool replace, struct ros2_err *err)
{
	int r = 0;

	if (replace) {
		if (!fsx_io->rename(tmp, path))
			return 0;
		r = fail(err, "rename to", path);
	} else if (fsx_io->link(tmp, path) < 0) {
		r = fail(err, "create", path);
	}
	fsx_io->unlink(tmp);
	return r;
}

static int write_named(const char *path, const void *p, size_t n, mode_t mode, bool replace,
                       struct ros2_err *err)
{
	char tmp[PATH_MAX];
	int r;

	r = tmp_name(path, tmp, err);
	if (r < 0)
		return r;
	r = write_tmp(tmp, p, n, mode, err);
	if (r < 0)
		return r;
	r = publish(tmp, path, replace, err);
	if (r < 0)
		return r;
	return fsx_sync_parent(path, err);
}

int fsx_write_atomic(const char *path, const void *p, size_t n, mode_t mode, struct ros2_err *err)
{
	return write_named(path, p, n, mode, true, err);
}

int fsx_create_atomic(const char *path, const void *p, size_t n, mode_t mode, struct ros2_err *err)
{
	return write_named(path, p, n, mode, false, err);
}

static bool is_tmp_name(const char *name)
{
	size_t n = strlen(name), tail = strlen(TMP_MARK) + TMP_RAND;

	return name[0] == '.' && n > tail + 1 &&
	       !memcmp(name + n - tail, TMP_MARK, strlen(TMP_MARK)) &&
	       strspn(name + n - TMP_RAND, "0123456789abcdef") == TMP_RAND;
}

int fsx_sweep_tmp(const char *dir, struct ros2_err *err)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int r = 0;

	if (!d)
		return fail(err, "open directory", dir);
	while ((e = readdir(d)) && r == 0) {
		char path[PATH_MAX];

		if (!is_tmp_name(e->d_name))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path))
			r = ros2_err_set(err, -ENAMETOOLONG, "path under %.80s is too long", dir);
		else if (fsx_io->unlink(path) < 0)
			r = fail(err, "remove", path);
	}
	closedir(d);
	return r;
}

/* Reads to the end, growing; one byte more than @max proves that the file is too long. */
static int read_all(int fd, size_t max, char **ret, size_t *ret_len)
{
	size_t cap = 4096, n = 0;
	AUTO_FREE char *buf = malloc(cap + 1);

	if (!buf)
		return -ENOMEM;
	for (;;) {
		ssize_t k = read(fd, buf + n, cap - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		n += (size_t)k;
		if (n > max)
			return -EFBIG;
		if (k == 0)
			break;
		if (n == cap) {
			char *more = cap < SIZE_MAX / 4 ? realloc(buf, cap * 2 + 1) : NULL;

			if (!more)
				return -ENOMEM;
			buf = more;
			cap *= 2;
		}
	}
	buf[n] = '\0';
	*ret = TAKE_PTR(buf);
	*ret_len = n;
	return 0;
}

int fsx_read_file(const char *path, size_t max, void **ret, size_t *ret_len, struct ros2_err *err)
{
	AUTO_CLOSE int fd = fsx_io->open(path, O_RDONLY | O_CLOEXEC, 0);
	char *buf = NULL;
	int r;

	if (fd < 0)
		return fail(err, "open", path);
	r = read_all(fd, max, &buf, ret_len);
	if (r == -EFBIG)
		return ros2_err_set(err, r, "%s is longer than %zu bytes", path, max);
	if (r < 0)
		return ros2_err_set(err, r, "read %s: %s", path, strerrordesc_np(-r));
	*ret = buf;
	return 0;
}

/* The same bytes: no write tears any. */
static int copy_in_place(int fd)
{
	AUTO_FREE char *p = malloc(ANEW_CHUNK);
	ssize_t n = 0;
	int r = p ? 0 : -ENOMEM;

	for (off_t off = 0; r == 0; off += n) {
		n = pread(fd, p, ANEW_CHUNK, off);
		if (n == 0)
			break;
		if (n < 0 && errno == EINTR)
			n = 0;
		else
			r = n < 0 ? -errno : fsx_pwrite_all(fd, p, (size_t)n, off);
	}
	return r;
}

int fsx_write_anew(const char *path, struct ros2_err *err)
{
	AUTO_CLOSE int fd = fsx_io->open(path, O_RDWR | O_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return fail(err, "open", path);
	r = copy_in_place(fd);
	/* On a full file system that copies on write: what is there stays, and is synced. */
	if (r < 0 && r != -ENOSPC && r != -EDQUOT)
		return ros2_err_set(err, r, "write %s anew: %s: what it holds may be lost", path,
		                    strerrordesc_np(-r));
	return sync_fd(fd, path, err);
}

/* A process that was killed may have made it, and not synced its name. Nobody else's is looked at:
 * what cannot be written to, or is of another file system, holds nothing that we made. */
static int sync_again(const char *path, const struct stat *st, mode_t mode, struct ros2_err *err)
{
	char dir[PATH_MAX];
	struct stat up;

	if (st->st_uid != geteuid() || (st->st_mode & 07777) != mode || parent_of(path, dir) < 0 ||
	    access(dir, R_OK | W_OK) < 0 || stat(dir, &up) < 0 || up.st_dev != st->st_dev)
		return 0;
	return fsx_sync_dir(dir, err);
}

static int make_one(const char *path, mode_t mode, struct ros2_err *err)
{
	struct stat st;

	if (!fsx_io->mkdir(path, mode))
		return fsx_sync_parent(path, err);
	if (errno != EEXIST)
		return fail(err, "make directory", path);
	if (stat(path, &st) < 0)
		return fail(err, "stat", path);
	if (!S_ISDIR(st.st_mode))
		return ros2_err_set(err, -ENOTDIR, "%s is not a directory", path);
	return sync_again(path, &st, mode, err);
}

int fsx_mkdirs(const char *path, mode_t mode, struct ros2_err *err)
{
	char part[PATH_MAX];
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n == 0 || n >= sizeof(part))
		return ros2_err_set(
			err, n ? -ENAMETOOLONG : -EINVAL,
			n ? "path of %zu bytes is too long" : "no directory given (%zu bytes)", n);
	memcpy(part, path, n);
	part[n] = '\0';
	for (size_t i = 1; i <= n; i++) {
		char c = part[i];
		int r;

		if ((c != '/' && c != '\0') || part[i - 1] == '/')
			continue;
		part[i] = '\0';
		r = make_one(part, mode, err);
		if (r < 0)
			return r;
		part[i] = c;
	}
	return 0;
}

static int busy(int fd, const char *dir, struct ros2_err *err)
{
	char pid[24] = "";
	ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? n : 0] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
	return ros2_err_set(err, -EBUSY, "%s is in use by process %s", dir,
	                    *pid ? pid : "(unknown)");
}

/* For the words of whoever finds it taken. Over what is there, not behind a truncation: a block
 * that was given back is not to be had again on a full disk (XFS), and one of those is no reason
 * not to start. */
static int write_pid(int fd, const char *path, struct ros2_err *err)
{
	char pid[24];
	int n = snprintf(pid, sizeof(pid), "%d\n", getpid());
	int r = fsx_pwrite_all(fd, pid, (size_t)n, 0);

	/* Without room even for that it is nobody's, which is better than another's. */
	if (r == -ENOSPC || r == -EDQUOT)
		r = n = 0;
	if (r < 0)
		return ros2_err_set(err, r, "write %s: %s", path, strerrordesc_np(-r));
	return fsx_io->ftruncate(fd, n) < 0 ? fail(err, "truncate", path) : 0;
}

int fsx_lock_dir(const char *dir, int *ret_fd, struct ros2_err *err)
{
	AUTO_CLOSE int fd = -1;
	char path[PATH_MAX];
	int r;

	if (snprintf(path, sizeof(path), "%s/LOCK", dir) >= (int)sizeof(path))
		return ros2_err_set(err, -ENAMETOOLONG, "path of %zu bytes is too long",
		                    strlen(dir));
	fd = fsx_io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(err, "open", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? busy(fd, dir, err) : fail(err, "lock", path);
	r = write_pid(fd, path, err);
	if (r == 0)
		r = fsx_sweep_tmp(dir, err);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}
