/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The export file: "ROS2AUD1\n", then frames of {u8 type, u32le length, [records: u64le seq, 32
 * bytes chain], bytes}. Written beside its name, synced, renamed into place and its directory
 * synced, so a file of that name is whole, and there when finish said so, also after a power cut.
 * Readers bound every length first.
 */
#include "proto/audit/audit.h"
#include "common/fsx.h"
#include "common/util.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[] = "ROS2AUD1\n";
#define MAGIC_LEN   (sizeof(magic) - 1)
#define FRAME_HEAD  5u
#define RECORD_HEAD (8u + SHA256_LEN)

#define PARTIAL ".partial"

struct audit_file {
	int fd;
	char *path;         /* owned */
	char *tmp;          /* owned */
	size_t n;           /* bytes that are not written yet */
	uint8_t buf[65536]; /* of them */
};

static void file_free(struct audit_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	free(f->tmp);
	free(f);
}

static int flush(struct audit_file *f, struct ros2_err *err)
{
	int r = fsx_write_all(f->fd, f->buf, f->n);

	f->n = 0;
	return r < 0 ? ros2_err_set(err, r, "write %s: %s", f->tmp, strerrordesc_np(-r)) : 0;
}

static int put(struct audit_file *f, const void *p, size_t n, struct ros2_err *err)
{
	const uint8_t *at = p;

	while (n) {
		size_t k = MIN(n, sizeof(f->buf) - f->n);
		int r = 0;

		memcpy(f->buf + f->n, at, k);
		f->n += k;
		at += k;
		n -= k;
		if (f->n == sizeof(f->buf))
			r = flush(f, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* The name may be in a directory of others, and a killed export leaves it behind. It must be a file
 * of ours and of one name only, in which nobody else writes now: no link to another's file, no
 * pipe, none that another owns, who could read it or give it a wider mode. */
static int claim_partial(const struct audit_file *f, struct ros2_err *err)
{
	struct stat st, named;

	if (flock(f->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return ros2_err_set(err, -EBUSY, "%s is being written by another export", f->tmp);
	if (fstat(f->fd, &st) < 0 || lstat(f->tmp, &named) < 0)
		return ros2_err_set(err, -errno, "%s: %s", f->tmp, strerrordesc_np(errno));
	/* Whoever held the lock may have renamed it into place meanwhile. */
	if (st.st_dev != named.st_dev || st.st_ino != named.st_ino)
		return ros2_err_set(err, -EBUSY, "%s was taken by another export", f->tmp);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid())
		return ros2_err_set(err, -EEXIST,
		                    "%s is in the way, and no file of an earlier export: expected "
		                    "a regular file of yours with one name",
		                    f->tmp);
	if (fchmod(f->fd, 0600) < 0 || fsx_io->ftruncate(f->fd, 0) < 0) {
		int rc = ros2_err_set(err, -errno, "%s: %s", f->tmp, strerrordesc_np(errno));

		fsx_io->unlink(f->tmp);
		return rc;
	}
	return 0;
}

int audit_file_create(const char *path, struct audit_file **ret, struct ros2_err *err)
{
	struct audit_file *f = calloc(1, sizeof(*f));
	int r;

	if (!f)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	f->fd = -1;
	f->path = strdup(path);
	f->tmp = malloc(strlen(path) + sizeof(PARTIAL));
	if (!f->path || !f->tmp) {
		file_free(f);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	strcpy(stpcpy(f->tmp, path), PARTIAL);
	r = fsx_open(f->tmp, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0600, &f->fd, err);
	r = r < 0 ? r : claim_partial(f, err);
	if (r < 0) {
		file_free(f);
		return r;
	}
	memcpy(f->buf, magic, MAGIC_LEN);
	f->n = MAGIC_LEN;
	*ret = f;
	return 0;
}

static int put_head(struct audit_file *f, char type, size_t len, struct ros2_err *err)
{
	uint32_t le = htole32((uint32_t)len);
	uint8_t head[FRAME_HEAD];

	head[0] = (uint8_t)type;
	memcpy(head + 1, &le, sizeof(le));
	return put(f, head, sizeof(head), err);
}

int audit_file_write_record(struct audit_file *f, uint64_t seq, const void *bytes, size_t len,
                            const uint8_t chain[SHA256_LEN], struct ros2_err *err)
{
	uint64_t le = htole64(seq);
	int r = put_head(f, 'R', len, err);

	r = r < 0 ? r : put(f, &le, sizeof(le), err);
	r = r < 0 ? r : put(f, chain, SHA256_LEN, err);
	return r < 0 ? r : put(f, bytes, len, err);
}

int audit_file_write_checkpoint(struct audit_file *f, const void *note, size_t len,
                                struct ros2_err *err)
{
	int r = put_head(f, 'C', len, err);

	return r < 0 ? r : put(f, note, len, err);
}

int audit_file_finish(struct audit_file *f, struct ros2_err *err)
{
	int r = flush(f, err);

	if (r == 0 && fsx_io->fsync(f->fd) < 0)
		r = ros2_err_set(err, -EIO, "fsync %s: %s: what was written may be lost", f->tmp,
		                 strerrordesc_np(errno));
	if (r == 0 && fsx_io->rename(f->tmp, f->path) < 0)
		r = ros2_err_set(err, -errno, "rename to %s: %s", f->path, strerrordesc_np(errno));
	if (r < 0)
		fsx_io->unlink(f->tmp);
	else
		r = fsx_sync_parent(f->path, err);
	file_free(f);
	return r;
}

void audit_file_abort(struct audit_file *f)
{
	if (!f)
		return;
	fsx_io->unlink(f->tmp);
	file_free(f);
}

/* ---- reading ---- */
struct frame {
	char type;
	uint64_t offset, seq;
	uint8_t chain[SHA256_LEN];
	size_t len;
	uint8_t bytes[AUDIT_RECORD_MAX];
};

struct reader {
	FILE *in;
	const char *path;
	uint64_t offset;
};

static int take(struct reader *rd, void *p, size_t n, struct ros2_err *err)
{
	if (fread(p, 1, n, rd->in) != n)
		return ros2_err_set(err, -EBADMSG, "%s: ends within a frame at byte %" PRIu64,
		                    rd->path, rd->offset);
	rd->offset += n;
	return 0;
}

static int reader_open(struct reader *rd, const char *path, struct ros2_err *err)
{
	char head[MAGIC_LEN];

	*rd = (struct reader){.path = path, .in = fopen(path, "re")};
	if (!rd->in)
		return ros2_err_set(err, -errno, "%s: %s", path, strerror(errno));
	if (take(rd, head, sizeof(head), err) < 0 || memcmp(head, magic, MAGIC_LEN)) {
		fclose(rd->in);
		return ros2_err_set(err, -EBADMSG, "%s: not an audit export (expected 'ROS2AUD1')",
		                    path);
	}
	return 0;
}

/* 1 = a frame, 0 = the end, negative errno. */
static int reader_next(struct reader *rd, struct frame *fr, struct ros2_err *err)
{
	uint8_t head[FRAME_HEAD];
	uint64_t seq = 0;
	uint32_t len;
	int c = fgetc(rd->in), r;

	if (c == EOF)
		return ferror(rd->in) ? ros2_err_set(err, -EIO, "%s: cannot be read", rd->path) : 0;
	ungetc(c, rd->in);
	fr->offset = rd->offset;
	r = take(rd, head, sizeof(head), err);
	if (r < 0)
		return r;
	memcpy(&len, head + 1, sizeof(len));
	fr->type = (char)head[0];
	fr->len = le32toh(len);
	if ((fr->type != 'R' && fr->type != 'C') || fr->len > AUDIT_RECORD_MAX)
		return ros2_err_set(err, -EBADMSG, "%s: no frame at byte %" PRIu64, rd->path,
		                    fr->offset);
	if (fr->type == 'R') {
		r = take(rd, &seq, sizeof(seq), err);
		r = r < 0 ? r : take(rd, fr->chain, SHA256_LEN, err);
		if (r < 0)
			return r;
	}
	fr->seq = le64toh(seq);
	r = take(rd, fr->bytes, fr->len, err);
	return r < 0 ? r : 1;
}

static int verify_frames(struct reader *rd, struct frame *fr, struct audit_verifier *v,
                         uint64_t *ret_bad_seq, struct ros2_err *err)
{
	int r;

	*ret_bad_seq = 1;
	while ((r = reader_next(rd, fr, err)) > 0) {
		r = fr->type == 'R'
		            ? audit_verifier_record(v, fr->seq, fr->bytes, fr->len, fr->chain, err)
		            : audit_verifier_checkpoint(v, fr->bytes, fr->len, err);
		if (r < 0)
			break;
		*ret_bad_seq += fr->type == 'R';
	}
	return r;
}

int audit_file_verify(const char *path, struct audit_verifier *v, struct audit_verdict *ret,
                      uint64_t *ret_bad_seq, uint64_t *ret_offset, struct ros2_err *err)
{
	AUTO_FREE struct frame *fr = calloc(1, sizeof(*fr));
	struct reader rd;
	uint64_t bad = 0;
	int r;

	*ret_bad_seq = 0;
	*ret_offset = 0;
	if (!fr)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	r = reader_open(&rd, path, err);
	if (r < 0)
		return r;
	r = verify_frames(&rd, fr, v, &bad, err);
	fclose(rd.in);
	if (r < 0) {
		*ret_bad_seq = bad;
		*ret_offset = fr->offset;
		return r;
	}
	audit_verifier_result(v, ret);
	return audit_verifier_end(v, err);
}

int audit_file_each(const char *path,
                    int (*fn)(void *arg, uint64_t seq, const void *bytes, size_t len), void *arg,
                    struct ros2_err *err)
{
	AUTO_FREE struct frame *fr = calloc(1, sizeof(*fr));
	struct reader rd;
	int r;

	if (!fr)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	r = reader_open(&rd, path, err);
	if (r < 0)
		return r;
	while ((r = reader_next(&rd, fr, err)) > 0) {
		r = fr->type == 'R' ? fn(arg, fr->seq, fr->bytes, fr->len) : 0;
		if (r)
			break;
	}
	fclose(rd.in);
	return r;
}
