/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files of the file engine. An existing name is taken with O_PATH first, so that a FIFO or a
 * device is looked at and never opened; then that inode is reopened, once through the page cache
 * and once direct.
 */
#include "dataplane/engines/file_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECT_MIN 4096u

static int access_flags(uint32_t flags)
{
	if ((flags & ENGINE_READ) && (flags & ENGINE_WRITE))
		return O_RDWR;
	return flags & ENGINE_WRITE ? O_WRONLY : O_RDONLY;
}

/* What may be opened: a regular file with one name. */
static int check_inode(int fd, const char *path, struct ros2_err *err)
{
	struct engine_attr a;
	uint32_t links;
	int rc = file_attr_get(fd, &a, &links, err);

	if (rc < 0)
		return rc;
	if (a.type == ENGINE_DIRECTORY)
		return ros2_err_set(err, -EISDIR, "open \"%s\": is a directory", path);
	if (a.type != ENGINE_REGULAR)
		return ros2_err_set(
			err, -EMEDIUMTYPE,
			"open \"%s\": not a regular file (a link, FIFO, socket or device)", path);
	return file_one_name(&a, links, "open", path, err);
}

static int open_existing(int dir, const char *name, const char *path, uint32_t flags,
                         struct ros2_err *err)
{
	AUTO_CLOSE int path_fd = file_path_open(dir, name, O_PATH, 0);
	int rc;

	if (path_fd < 0)
		return path_fd == -ENOENT ? -ENOENT : file_path_words(err, path_fd, "open", path);
	rc = check_inode(path_fd, path, err);
	if (rc < 0)
		return rc;
	rc = file_path_reopen(path_fd, access_flags(flags));
	return rc < 0 ? file_path_words(err, rc, "open", path) : rc;
}

static int open_or_create(int dir, const char *name, const char *path, uint32_t flags,
                          uint32_t mode, struct ros2_err *err)
{
	int fd;

	/* Bounded: each turn means that somebody made or removed the name between our two looks. */
	for (int tries = 0; tries < 16; tries++) {
		if (!(flags & ENGINE_CREATE) || !(flags & ENGINE_EXCLUSIVE)) {
			fd = open_existing(dir, name, path, flags, err);
			if (fd != -ENOENT)
				return fd;
			if (!(flags & ENGINE_CREATE))
				return ros2_err_set(err, -ENOENT, "open \"%s\": no such file",
				                    path);
		}
		fd = file_path_open(dir, name, access_flags(flags) | O_CREAT | O_EXCL, mode);
		if (fd >= 0)
			return fd;
		if (fd != -EEXIST || (flags & ENGINE_EXCLUSIVE))
			return file_path_words(err, fd, "create", path);
	}
	return ros2_err_set(err, -EBUSY, "open \"%s\": the name keeps coming and going", path);
}

/* A direct write never shares a page of the cache with a buffered one, which would write back what
 * was there before it. Arm's pages may have 64 KiB. */
static uint32_t page_bytes(void)
{
	long n = sysconf(_SC_PAGESIZE);

	return n > (long)DIRECT_MIN ? (uint32_t)n : DIRECT_MIN;
}

/* Fills direct_fd where the file system has direct I/O, else leaves -1. */
static void open_direct(struct engine_file *f, uint32_t flags)
{
	struct statx st = {0};

	f->mem_align = DIRECT_MIN;
	f->off_align = page_bytes();
#ifdef STATX_DIOALIGN
	if (statx(f->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
	    (st.stx_mask & STATX_DIOALIGN)) {
		if (st.stx_dio_offset_align == 0 || st.stx_dio_mem_align == 0)
			return;
		f->mem_align = st.stx_dio_mem_align;
		f->off_align = MAX(st.stx_dio_offset_align, f->off_align);
	}
#endif
	f->direct_fd = file_path_reopen(f->fd, access_flags(flags) | O_DIRECT);
	if (f->direct_fd < 0)
		f->direct_fd = -1;
}

static int open_fds(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                    struct engine_file *f, struct ros2_err *err)
{
	AUTO_CLOSE int dir = -1;
	const char *name;
	int rc = file_path_parent(ns, path, &name, &dir, err);

	if (rc < 0)
		return rc;
	rc = open_or_create(dir, name, path, flags, mode, err);
	if (rc < 0)
		return rc;
	f->fd = rc;
	if ((flags & ENGINE_TRUNCATE) && (flags & ENGINE_WRITE) && ftruncate(f->fd, 0) < 0)
		return file_path_words(err, -errno, "truncate", path);
	if (!(ns->engine->io_features & ENGINE_IO_NO_DIRECT))
		open_direct(f, flags);
	if (flags & (ENGINE_WRITE | ENGINE_CREATE)) {
		f->parent_fd = TAKE_FD(dir);
		atomic_store(&f->name_unsynced, 1);
	}
	return 0;
}

int file_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
              struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	struct engine_file *f;
	int rc = names_check(path, false, err);

	if (rc < 0)
		return rc;
	if (!(flags & (ENGINE_READ | ENGINE_WRITE)))
		return ros2_err_set(err, -EINVAL, "open: neither read nor write was asked for");
	f = calloc(1, sizeof(*f));
	if (!f)
		return ros2_err_set(err, -ENOMEM, "file engine: no memory for an open file");
	f->fd = f->direct_fd = f->parent_fd = -1;
	f->flags = flags;
	rc = open_fds(ns, path, flags, mode, f, err);
	if (rc == 0 && attr)
		rc = file_attr_get(f->fd, attr, NULL, err);
	if (rc < 0) {
		file_close(f);
		return rc;
	}
	*ret = f;
	return 0;
}

void file_close(struct engine_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->direct_fd >= 0)
		close(f->direct_fd);
	if (f->parent_fd >= 0)
		close(f->parent_fd);
	free(f);
}

int file_fstat(struct engine_file *f, struct engine_attr *ret, struct ros2_err *err)
{
	return file_attr_get(f->fd, ret, NULL, err);
}

int file_truncate(struct engine_file *f, uint64_t size, struct ros2_err *err)
{
	if (!(f->flags & ENGINE_WRITE))
		return ros2_err_set(err, -EBADF, "truncate: the file is not open for writing");
	if (size > INT64_MAX)
		return ros2_err_set(err, -EFBIG, "truncate: longer than a file can be");
	if (ftruncate(f->fd, (off_t)size) < 0)
		return ros2_err_set(err, -errno, "truncate: %s", strerror(errno));
	return 0;
}

int file_fsync(struct engine_file *f, struct ros2_err *err)
{
	struct engine_io io = {.file = f, .op = ENGINE_OP_FLUSH};
	struct file_step step;
	int64_t res;

	for (file_io_begin(&io, &step, &res); step.call != FILE_CALL_NONE;)
		file_io_next(&io, file_io_call(&step), &step, &res);
	return res < 0 ? ros2_err_set(err, (int)res, "flush: the data may not be durable: %s",
	                              strerror((int)-res))
	               : 0;
}
