/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file engine: a tenant's namespace is a directory below the engine's root, and its objects are
 * regular files there. A write that was acknowledged is not durable; a flush is. See file_priv.h
 * for the rules that keep every name inside.
 */
#include "dataplane/engines/file_priv.h"

#include "common/fsx.h"
#define LOG_COMPONENT "file"
#include "common/log.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static int open_root(const char *root, int *ret_fd, struct ros2_err *err)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int rc;

	if (!root || root[0] != '/')
		return ros2_err_set(
			err, -EINVAL,
			"file engine: root: expected an absolute directory, found \"%s\"",
			root ? root : "");
	rc = fsx_mkdirs(root, 0700, err);
	if (rc < 0)
		return rc;
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return ros2_err_set(err, -errno, "file engine: root %s: %s", root, strerror(errno));
	/* Whoever may write here could take a tenant's directory away and put another in its place.
	 */
	if (st.st_mode & 0002)
		return ros2_err_set(err, -EPERM,
		                    "file engine: root %s: anybody may write there (mode %04o); "
		                    "expected a directory "
		                    "only the agent may write",
		                    root, (unsigned int)(st.st_mode & 07777));
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int file_create(const struct engine_config *c, struct engine **ret, struct ros2_err *err)
{
	AUTO_CLOSE int fd = -1;
	struct engine *e;
	int rc = open_root(c->root, &fd, err);

	if (rc == 0)
		rc = file_path_probe(fd, err);
	if (rc < 0)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return ros2_err_set(err, -ENOMEM, "file engine: no memory");
	e->root_fd = TAKE_FD(fd);
	e->io_features = c->io_features;
	*ret = e;
	return 0;
}

static void file_destroy(struct engine *e)
{
	if (!e)
		return;
	close(e->root_fd);
	free(e);
}

/* The directory @name in @dir, made when it is missing. Takes @dir over. */
static int enter_or_make(int dir, const char *name, struct ros2_err *err)
{
	AUTO_CLOSE int at = dir;
	AUTO_CLOSE int fd = file_path_open(at, name, O_RDONLY | O_DIRECTORY, 0);

	if (fd == -ENOENT) {
		if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
			return file_path_words(err, -errno, "namespace path: mkdir", name);
		fd = file_path_open(at, name, O_RDONLY | O_DIRECTORY, 0);
	}
	if (fd < 0)
		return file_path_words(err, fd, "namespace path:", name);
	/* Also of one that is there: who made it may have been killed, or have failed, before this.
	 * A file system that is read-only or has no such thing has nothing to wait for. */
	if (fsync(at) < 0 && errno != EINVAL && errno != EROFS)
		return file_path_words(err, -EIO, "namespace path: sync of", name);
	return TAKE_FD(fd);
}

static int file_ns_open(struct engine *e, const struct engine_who *who, const char *path,
                        struct engine_ns **ret, struct ros2_err *err)
{
	char name[NAMES_NAME_MAX + 1];
	struct names_part part;
	struct engine_ns *ns;
	int fd;

	path = names_ns_path(path, err);
	if (!path)
		return -ELIBBAD;
	fd = file_path_open(e->root_fd, "", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return file_path_words(err, fd, "engine root", "");
	while (names_next(&path, &part)) {
		memcpy(name, part.p, part.len);
		name[part.len] = '\0';
		fd = enter_or_make(fd, name, err);
		if (fd < 0)
			return fd;
	}
	ns = calloc(1, sizeof(*ns));
	if (!ns) {
		close(fd);
		return ros2_err_set(err, -ENOMEM, "file engine: no memory for a namespace");
	}
	ns->engine = e;
	ns->fd = fd;
	*ret = ns;
	return 0;
}

static void file_ns_close(struct engine_ns *ns)
{
	if (!ns)
		return;
	close(ns->fd);
	free(ns);
}

static int file_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                            struct engine_reactor **ret, struct ros2_err *err)
{
	int rc = -ENOSYS;

	if (o->depth == 0 || o->depth > 4096)
		return ros2_err_set(err, -EINVAL,
		                    "file engine: depth: expected 1 to 4096, found %u", o->depth);
	if (!(e->io_features & ENGINE_IO_NO_URING))
		rc = file_uring_new(e, o, ret);
	if (rc < 0)
		rc = file_threads_new(o, ret);
	if (rc < 0)
		return ros2_err_set(err, rc, "file engine: cannot start a reactor: %s",
		                    strerror(-rc));
	log_debug("a reactor does its file I/O by %s", file_reactor_kind(*ret));
	return 0;
}

static void file_reactor_free(struct engine_reactor *r)
{
	if (r)
		r->backend->free(r);
}

static int file_event_fd(struct engine_reactor *r)
{
	return r->event_fd;
}

static int file_submit(struct engine_reactor *r, struct engine_io *io)
{
	return r->backend->submit(r, io);
}

static void file_withdraw(struct engine_reactor *r, struct engine_io *io)
{
	r->backend->withdraw(r, io);
}

static int file_kick(struct engine_reactor *r)
{
	return r->backend->kick(r);
}

static uint32_t file_poll(struct engine_reactor *r, uint32_t max)
{
	return r->backend->poll(r, max);
}

static uint32_t file_in_flight(const struct engine_reactor *r)
{
	return r->in_flight;
}

static uint64_t file_copied_bytes(const struct engine_reactor *r)
{
	return 0; /* the kernel moves the bytes between the slot and the file */
}

/* It hands memory to the kernel, and looks at none. */
static bool file_takes_any_memory(const struct engine *e)
{
	return true;
}

const struct engine_ops engine_file_ops = {
	.type = "file",
	.takes_any_memory = file_takes_any_memory,
	.create = file_create,
	.destroy = file_destroy,
	.ns_open = file_ns_open,
	.ns_close = file_ns_close,
	.open = file_open,
	.close = file_close,
	.stat = file_stat,
	.fstat = file_fstat,
	.readdir = file_readdir,
	.mkdir = file_mkdir,
	.unlink = file_unlink,
	.rmdir = file_rmdir,
	.rename = file_rename,
	.truncate = file_truncate,
	.fsync = file_fsync,
	.flushes_in_turn = true,
	.file_descriptors = 3, /* struct engine_file */
	.ns_descriptors = 1,
	.reactor_new_is_slow = true, /* the kernel pins all of the buffers */
	.reactor_new = file_reactor_new,
	.reactor_free = file_reactor_free,
	.event_fd = file_event_fd,
	.submit = file_submit,
	.kick = file_kick,
	.poll = file_poll,
	.in_flight = file_in_flight,
	.withdraw = file_withdraw,
	.copied_bytes = file_copied_bytes,
};
