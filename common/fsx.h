/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that survive a crash. A file written by fsx_write_atomic is whole and old, or whole and
 * new, after any crash or power cut: temporary file, fsync, rename, fsync of the directory. All I/O
 * goes through fsx_ops so that tests can fail the n-th call or discard what was not synced. Errors
 * name the file; -EACCES also its owner and mode, and what a person has to mend.
 */
#ifndef ROS2_COMMON_FSX_H
#define ROS2_COMMON_FSX_H

#include "common/err.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stat;

/* The system calls durable state rests on. Process-wide; tests replace it before any thread starts.
 */
struct fsx_ops {
	int (*open)(const char *path, int flags, mode_t mode);
	ssize_t (*write)(int fd, const void *p, size_t n);
	ssize_t (*pwrite)(int fd, const void *p, size_t n, off_t off);
	int (*fsync)(int fd);
	int (*rename)(const char *from, const char *to);
	int (*link)(const char *from, const char *to);
	int (*mkdir)(const char *path, mode_t mode);
	int (*unlink)(const char *path);
	int (*ftruncate)(int fd, off_t len);
	int (*stat)(const char *path, struct stat *st);
};
extern const struct fsx_ops *fsx_io; /* never NULL */

/* @mode e.g. 0600 for keys, whatever the umask says. On error nothing of the old file is lost; only
 * when the last step fails (the directory's fsync) may the file be the new one already. -EIO after
 * a failed fsync: the caller of durable state ends the process (docs/architecture.md). */
int fsx_write_atomic(const char *path, const void *p, size_t n, mode_t mode, struct ros2_err *err);
/* As fsx_write_atomic, but never over an existing file: -EEXIST. */
int fsx_create_atomic(const char *path, const void *p, size_t n, mode_t mode, struct ros2_err *err);
/* Removes the temporary files that a crash inside the two above left in @dir. Nobody may be writing
 * there. */
int fsx_sweep_tmp(const char *dir, struct ros2_err *err);
/* Reads a whole file of at most @max bytes; *ret is malloc'd, NUL-terminated beyond *ret_len,
 * caller frees. -EFBIG above @max. */
int fsx_read_file(const char *path, size_t max, void **ret, size_t *ret_len, struct ros2_err *err);
/* For a file that another process may have written to: its bytes are written over themselves and
 * synced. After a sync of that process failed the page cache may show what no block has, as clean:
 * a sync alone keeps nothing of it. Nobody may be writing there. -ENOENT, -EIO. */
int fsx_write_anew(const char *path, struct ros2_err *err);
/* mkdir -p with @mode for new parts, each synced into its parent; so is one that is there and looks
 * as if it was made by this. */
int fsx_mkdirs(const char *path, mode_t mode, struct ros2_err *err);
int fsx_sync_dir(const char *path, struct ros2_err *err);
/* That of the directory @path is in. */
int fsx_sync_parent(const char *path, struct ros2_err *err);
/* write(2) until all is written or an error. */
int fsx_write_all(int fd, const void *p, size_t n);
int fsx_pwrite_all(int fd, const void *p, size_t n, off_t off);
/* open(2), close-on-exec, with words. */
int fsx_open(const char *path, int flags, mode_t mode, int *ret_fd, struct ros2_err *err);
/* Opens DIR/LOCK, takes flock(LOCK_EX|LOCK_NB) and sweeps temporary files; -EBUSY with words naming
 * the holder's pid. The lock lives as long as the descriptor. */
int fsx_lock_dir(const char *dir, int *ret_fd, struct ros2_err *err);
#endif
