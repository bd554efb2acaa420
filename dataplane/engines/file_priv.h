/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the file engine. Three layers: paths (openat2 below the namespace's directory), open files
 * (two descriptors: direct and buffered), and reactors, which carry out the same steps (file_io.c)
 * through io_uring or through threads.
 *
 * 1. No path is ever resolved without RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV, and
 * a name is changed only relative to its parent directory's descriptor, so a rename or a link made
 * meanwhile cannot lead outside.
 * 2. Nothing but a regular file is ever opened: the name is taken with O_PATH, looked at, and that
 * very inode is reopened.
 * 3. No read-modify-write of our own: what is not aligned goes through the page cache.
 */
#ifndef ROS2_DATAPLANE_ENGINES_FILE_PRIV_H
#define ROS2_DATAPLANE_ENGINES_FILE_PRIV_H

#include "common/util.h"
#include "dataplane/engine.h"
#include "dataplane/engines/names.h"
#include <fcntl.h>
#include <stdatomic.h>

struct engine {
	int root_fd; /* owned */
	uint32_t io_features;
};

struct engine_ns {
	struct engine *engine; /* borrowed: outlives its namespaces */
	int fd;                /* owned: the directory */
};

struct engine_file {
	/* immutable after open */
	int fd;        /* owned: through the page cache */
	int direct_fd; /* owned: O_DIRECT, -1 where the file system has none */
	/* owned: the directory the name was found in; -1 when it is only read, and was there */
	int parent_fd;
	uint32_t flags;
	uint32_t mem_align; /* direct_fd: of the memory */
	uint32_t off_align; /* direct_fd: of offset and length; at least a page */
	/* any thread */
	_Atomic int name_unsynced; /* 1 = the name may not be durable yet */
	_Atomic int sync_error; /* the first failed flush: what it lost stays lost, so every later
	                           one fails too */
};

/* ---- file_path.c ---- */
/* 0, or -EOPNOTSUPP with words when this system lacks what the engine's safety rests on. */
int file_path_probe(int root_fd, struct ros2_err *err);
/* openat2 with the flags of rule 1; negative errno in the engine's dialect. @path is checked text;
 * "" = the directory. */
int file_path_open(int dir_fd, const char *path, int flags, unsigned int mode);
/* The directory @path lies in, open for reading, and its last name. */
int file_path_parent(const struct engine_ns *ns, const char *path, const char **ret_name,
                     int *ret_fd, struct ros2_err *err);
/* Opens the inode behind @fd (O_PATH or not) anew. */
int file_path_reopen(int fd, int flags);
/* Says what @rc (from file_path_open or errno) means for @path. Returns @rc in the engine's
 * dialect. */
int file_path_words(struct ros2_err *err, int rc, const char *what, const char *path);
/* -ELIBBAD for a regular file with a second name, which may lie outside the namespace: nothing of
 * it is told. */
int file_one_name(const struct engine_attr *a, uint32_t links, const char *what, const char *path,
                  struct ros2_err *err);
int file_attr_get(int fd, struct engine_attr *ret, uint32_t *ret_links, struct ros2_err *err);

/* ---- file_names.c and file_open.c: rows of engine_file_ops ---- */
int file_stat(struct engine_ns *ns, const char *path, struct engine_attr *ret,
              struct ros2_err *err);
int file_readdir(struct engine_ns *ns, const char *path, uint64_t cookie, struct engine_dirent *out,
                 uint32_t max, uint32_t *ret_n, uint64_t *next, struct ros2_err *err);
int file_mkdir(struct engine_ns *ns, const char *path, uint32_t mode, struct ros2_err *err);
int file_unlink(struct engine_ns *ns, const char *path, struct ros2_err *err);
int file_rmdir(struct engine_ns *ns, const char *path, struct ros2_err *err);
int file_rename(struct engine_ns *ns, const char *from, const char *to, struct ros2_err *err);
int file_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
              struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err);
void file_close(struct engine_file *f);
int file_fstat(struct engine_file *f, struct engine_attr *ret, struct ros2_err *err);
int file_truncate(struct engine_file *f, uint64_t size, struct ros2_err *err);
int file_fsync(struct engine_file *f, struct ros2_err *err);

/* ---- file_io.c: one engine_io as a row of system calls, whoever makes them ---- */
#define FILE_PUNCH_MODE (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
enum file_call {
	FILE_CALL_NONE,
	FILE_CALL_READ,
	FILE_CALL_WRITE,
	FILE_CALL_FDATASYNC,
	FILE_CALL_FSYNC,
	FILE_CALL_PUNCH /* a hole: reads as zeros, and no file becomes longer */
};
struct file_step {
	enum file_call call;
	int fd;
	uint64_t offset;
	void *buf;
	uint32_t len;
};
/* The first step. FILE_CALL_NONE: there is nothing to do, the result is *res. */
void file_io_begin(struct engine_io *io, struct file_step *ret, int64_t *res);
/* The step before gave @got (bytes or negative errno): the next one, or FILE_CALL_NONE and *res. */
void file_io_next(struct engine_io *io, int64_t got, struct file_step *ret, int64_t *res);
/* Its time has passed at @now_ns: nothing more of it may be handed on, and its result is this. */
bool file_io_is_late(const struct engine_io *io, uint64_t now_ns);
int64_t file_io_late(const struct engine_io *io);
/* Makes the call, here and now. */
int64_t file_io_call(const struct file_step *s);

/* ---- reactors ---- */
struct file_backend {
	int (*submit)(struct engine_reactor *r, struct engine_io *io);
	int (*kick)(struct engine_reactor *r);
	uint32_t (*poll)(struct engine_reactor *r, uint32_t max);
	void (*free)(struct engine_reactor *r);
	/* No call is begun for it any more: it is late from now on. */
	void (*withdraw)(struct engine_reactor *r, struct engine_io *io);
};
struct engine_reactor {
	const struct file_backend *backend;
	uint32_t depth, in_flight;
	int event_fd; /* owned */
};
/* file_uring.c; negative errno when this system does not let us (then threads are used). */
int file_uring_new(const struct engine *e, const struct engine_reactor_opts *o,
                   struct engine_reactor **ret);
/* file_threads.c */
int file_threads_new(const struct engine_reactor_opts *o, struct engine_reactor **ret);
/* "io_uring, deferred" and so on: for the agent's report and for tests. */
const char *file_reactor_kind(const struct engine_reactor *r);
#endif
