/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine_io as a row of system calls, whoever makes them (io_uring, a thread, a control
 * worker).
 *
 * A read goes on until it is full or the file ends; a write goes on until it is whole or fails. A
 * flush is fdatasync, and the first flush of a handle also syncs the directory, so that what was
 * flushed can be found again under its name. What clears makes a hole, which all of ext4, xfs,
 * btrfs and tmpfs can; there is no other way that cannot make a file longer or take space beyond
 * its end. io->priv: [0] bytes done (of a hole: 1 = begun), [1] calls made, [2] and [3] belong to
 * the backend.
 */
#include "dataplane/engines/file_priv.h"

#include <errno.h>

#define BUFFERED  (1ull << 32) /* in priv[1]: the device refused the direct way once */
#define CALLS_MAX 64u /* an interrupted or partial call is taken up again, but not for ever */

static bool may_go_direct(const struct engine_io *io, uint64_t offset, uint64_t len,
                          const void *buf)
{
	const struct engine_file *f = io->file;

	return f->direct_fd >= 0 && !(io->priv[1] & BUFFERED) &&
	       ((offset | len) & (f->off_align - 1)) == 0 &&
	       ((uintptr_t)buf & (f->mem_align - 1)) == 0;
}

static void rw_step(struct engine_io *io, struct file_step *s)
{
	const struct engine_file *f = io->file;

	s->call = io->op == ENGINE_OP_READ ? FILE_CALL_READ : FILE_CALL_WRITE;
	s->offset = io->offset + io->priv[0];
	s->buf = (uint8_t *)io->buf + io->priv[0];
	s->len = io->len - (uint32_t)io->priv[0];
	s->fd = may_go_direct(io, s->offset, s->len, s->buf) ? f->direct_fd : f->fd;
	io->priv[1]++;
}

static void end(struct file_step *s, int64_t *res, int64_t value)
{
	s->call = FILE_CALL_NONE;
	*res = value;
}

/* Which failures say for certain that the call did nothing? Of all others a part may be on the
 * device, or all of it. Nor do those say that calls before it did nothing, but for want of space:
 * of that everybody knows that it comes in the middle. */
static int64_t write_error(const struct engine_io *io, int64_t got)
{
	if (got == -ENOSPC || got == -EDQUOT)
		return -ENOSPC;
	if (io->priv[0] > 0)
		return -EREMOTEIO;
	switch (got) {
	case -EFBIG:
	case -EBADF:
	case -EINVAL:
	case -EPERM:
	case -ENOMEM:
		return got;
	case -EFAULT:
	case -EROFS:
		return -EIO;
	default:
		return -EREMOTEIO;
	}
}

static int64_t read_error(int64_t got)
{
	return got == -ENOMEM || got == -EBADF ? got : -EIO;
}

static void punch_step(struct engine_io *io, struct file_step *s)
{
	*s = (struct file_step){
		.call = FILE_CALL_PUNCH, .fd = io->file->fd, .offset = io->offset, .len = io->len};
	io->priv[1]++;
}

/* A hole is made piece by piece: only these say for certain that none was. */
static int64_t punch_error(int64_t got)
{
	switch (got) {
	case -EOPNOTSUPP:
	case -EFBIG:
	case -EBADF:
	case -EINVAL:
	case -EPERM:
		return got;
	default:
		return -EREMOTEIO;
	}
}

static void punch_next(struct engine_io *io, int64_t got, struct file_step *s, int64_t *res)
{
	if (got == -EINTR || got == -EAGAIN) {
		io->priv[0] = 1;
		if (io->priv[1] < CALLS_MAX)
			return punch_step(io, s);
		return end(s, res, -EREMOTEIO);
	}
	end(s, res, got < 0 ? punch_error(got) : io->len);
}

void file_io_begin(struct engine_io *io, struct file_step *s, int64_t *res)
{
	const struct engine_file *f = io->file;
	uint64_t last;
	bool too_far =
		__builtin_add_overflow(io->offset, (uint64_t)io->len, &last) || last > INT64_MAX;

	io->priv[0] = io->priv[1] = 0;
	switch (io->op) {
	case ENGINE_OP_READ:
		if (!(f->flags & ENGINE_READ))
			return end(s, res, -EBADF);
		if (too_far || io->len == 0)
			return end(s, res, 0);
		return rw_step(io, s);
	case ENGINE_OP_WRITE:
		if (!(f->flags & ENGINE_WRITE))
			return end(s, res, -EBADF);
		if (io->len == 0 || too_far)
			return end(s, res, too_far ? -EFBIG : 0);
		return rw_step(io, s);
	case ENGINE_OP_ZERO:
	case ENGINE_OP_DISCARD:
		if (!(f->flags & ENGINE_WRITE))
			return end(s, res, -EBADF);
		if (io->len == 0 || io->len > ENGINE_ZERO_MAX || too_far)
			return end(s, res, too_far ? -EFBIG : io->len ? -EINVAL : 0);
		return punch_step(io, s);
	case ENGINE_OP_FLUSH:
		if (atomic_load(&f->sync_error))
			return end(s, res, -EIO);
		*s = (struct file_step){.call = FILE_CALL_FDATASYNC, .fd = f->fd};
		return;
	}
	end(s, res, -EINVAL);
}

/* priv[1]: 0 = the file's data was synced just now, 1 = the directory. */
static void flush_next(struct engine_io *io, int64_t got, struct file_step *s, int64_t *res)
{
	struct engine_file *f = io->file;
	bool dir = io->priv[1] == 1;

	if (got == -EINTR && io->priv[0]++ < CALLS_MAX) {
		*s = (struct file_step){.call = dir ? FILE_CALL_FSYNC : FILE_CALL_FDATASYNC,
		                        .fd = dir ? f->parent_fd : f->fd};
		return;
	}
	if (got < 0 &&
	    !(dir && got == -EINVAL)) { /* EINVAL: a file system without directory sync */
		atomic_store(&f->sync_error, 1);
		return end(s, res, -EIO);
	}
	if (!dir && atomic_load(&f->name_unsynced)) {
		io->priv[1] = 1;
		*s = (struct file_step){.call = FILE_CALL_FSYNC, .fd = f->parent_fd};
		return;
	}
	if (dir)
		atomic_store(&f->name_unsynced, 0);
	/* another flush of this handle may have failed meanwhile, and taken the error that was ours
	 * too */
	end(s, res, atomic_load(&f->sync_error) ? -EIO : 0);
}

/* The device wants another alignment than it said: the page cache takes any. The call did nothing.
 */
static bool direct_refused(const struct engine_io *io, int64_t got)
{
	uint64_t at = io->priv[0];

	return got == -EINVAL &&
	       may_go_direct(io, io->offset + at, io->len - at, (const uint8_t *)io->buf + at);
}

static uint32_t calls_made(const struct engine_io *io)
{
	return (uint32_t)io->priv[1];
}

void file_io_next(struct engine_io *io, int64_t got, struct file_step *s, int64_t *res)
{
	if (io->op == ENGINE_OP_FLUSH)
		return flush_next(io, got, s, res);
	if (engine_op_clears(io->op))
		return punch_next(io, got, s, res);
	if (direct_refused(io, got)) {
		io->priv[1] |= BUFFERED;
		return rw_step(io, s);
	}
	if (got == -EINTR || got == -EAGAIN) {
		if (calls_made(io) < CALLS_MAX)
			return rw_step(io, s);
		return end(s, res, io->op == ENGINE_OP_WRITE ? -EREMOTEIO : -EIO);
	}
	if (got < 0)
		return end(s, res,
		           io->op == ENGINE_OP_WRITE ? write_error(io, got) : read_error(got));
	io->priv[0] += (uint64_t)got;
	if (got == 0 && io->op == ENGINE_OP_WRITE)
		return end(s, res, -EREMOTEIO);
	if (got == 0 || io->priv[0] >= io->len)
		return end(s, res, (int64_t)io->priv[0]);
	if (calls_made(io) >= CALLS_MAX)
		return end(s, res, io->op == ENGINE_OP_WRITE ? -EREMOTEIO : -EIO);
	rw_step(io, s);
}

bool file_io_is_late(const struct engine_io *io, uint64_t now_ns)
{
	return io->until_ns && now_ns >= io->until_ns;
}

int64_t file_io_late(const struct engine_io *io)
{
	return engine_op_changes(io->op) && io->priv[0] > 0 ? -EREMOTEIO : ENGINE_LATE;
}

int64_t file_io_call(const struct file_step *s)
{
	ssize_t got = -1;

	switch (s->call) {
	case FILE_CALL_READ:
		got = pread(s->fd, s->buf, s->len, (off_t)s->offset);
		break;
	case FILE_CALL_WRITE:
		got = pwrite(s->fd, s->buf, s->len, (off_t)s->offset);
		break;
	case FILE_CALL_FDATASYNC:
		got = fdatasync(s->fd);
		break;
	case FILE_CALL_FSYNC:
		got = fsync(s->fd);
		break;
	case FILE_CALL_PUNCH:
		got = fallocate(s->fd, FILE_PUNCH_MODE, (off_t)s->offset, (off_t)s->len);
		break;
	case FILE_CALL_NONE:
		return -EINVAL;
	}
	return got < 0 ? -errno : got;
}
