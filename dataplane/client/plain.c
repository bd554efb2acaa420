/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pread, pwrite, zero, discard and flush for programs that want no ring. They use slots of the
 * table that the ring does not have, so that both can be used on one session. Registered memory is
 * used where it lies, with several pieces in flight; other memory goes through one registered
 * buffer, a piece at a time. Over shared memory there is no such buffer: it goes through the stage
 * (shm.h). These are the only places in the library that copy payload.
 */
#include "common/clock.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include <errno.h>
#include <limits.h>
#include <string.h>

struct plain {
	struct ros2_file *file;
	enum request_kind kind;
	struct ros2_region *region;
	uint8_t *buf;
	size_t len;
	uint64_t offset;
	size_t begun, piece; /* piece: the longest request */
	/* The first piece that was short or failed: nothing behind it counts. */
	size_t done_to;
	struct ros2_err err;
};

static struct request *begin_piece(struct plain *p)
{
	struct ros2_session *s = p->file->mount->session;
	struct request *r = request_get(s, true);

	if (!r)
		return NULL;
	r->kind = p->kind;
	r->file = p->file;
	r->region = p->region;
	r->buf = p->buf ? p->buf + p->begun : NULL;
	r->len = (uint32_t)MIN(p->len - p->begun, p->piece);
	r->offset = p->offset + p->begun;
	r->tag = p->begun;
	p->begun += r->len;
	request_prepare(s, r);
	request_set_ready(s, r, clock_monotonic_ns());
	return r;
}

static void end_piece(struct plain *p, struct request *r)
{
	size_t got = r->result > 0 ? (size_t)r->result : 0;

	/* What changes bytes and failed behind one that was short has failed all the same. */
	if (r->status && (r->tag < p->done_to || (p->kind != REQ_READ && !p->err.code))) {
		p->done_to = MIN(p->done_to, r->tag);
		ros2_err_named(&p->err, r->status, "%s",
		               r->words[0] ? r->words : ros2_status_text(r->status));
		p->err.code = (int)r->result;
	} else if (!r->status && got < r->len && r->tag + got < p->done_to) {
		p->done_to = r->tag + got;
		/* What failed behind the end of a file does not matter to a read. */
		if (p->kind == REQ_READ)
			p->err = (struct ros2_err)ROS2_ERR_INIT;
	}
	request_put(p->file->mount->session, r);
}

/* All pieces that were begun have ended when it returns. */
static void run(struct plain *p)
{
	struct ros2_session *s = p->file->mount->session;

	p->done_to = p->len;
	do {
		while (s->state != LINK_DEAD && p->done_to == p->len && p->begun < p->len)
			if (!begin_piece(p))
				break;
		session_step(s, s->n_internal && list_empty(&s->done_internal) ? 1000 : 0, NULL);
		while (!list_empty(&s->done_internal))
			end_piece(p, list_first(&s->done_internal, struct request, link));
	} while (s->n_internal ||
	         (s->state != LINK_DEAD && p->done_to == p->len && p->begun < p->len));
	if (s->state == LINK_DEAD && p->begun < p->done_to && !p->err.code) {
		p->done_to = p->begun;
		p->err = s->why;
	}
}

/* Bytes that are done from the start, or the error when there are none. An error of what changes
 * bytes is never hidden behind a count. */
static ssize_t result_of(const struct plain *p, struct ros2_err *err)
{
	if (p->err.code && (p->kind != REQ_READ || !p->done_to)) {
		if (err)
			*err = p->err;
		return p->err.code;
	}
	return (ssize_t)p->done_to;
}

static int check(const struct ros2_file *f, const void *buf, size_t len, uint64_t offset,
                 uint32_t access, struct ros2_err *err)
{
	if (!buf && len)
		return ros2_err_set(err, -EINVAL, "no buffer for %zu bytes", len);
	if (len > SSIZE_MAX || offset > (uint64_t)INT64_MAX - len)
		return ros2_err_set(err, -EINVAL, "%zu bytes at offset %llu: beyond any file", len,
		                    (unsigned long long)offset);
	if (!(f->flags & access))
		return ros2_err_named(err, ROS2_ACCESS, "'%s' was not opened for %s", f->path,
		                      access == ROS2_O_RDONLY ? "reading" : "writing");
	return session_need_up(f->mount->session, err);
}

static ssize_t direct(struct ros2_file *f, enum request_kind kind, struct ros2_region *region,
                      void *buf, size_t len, uint64_t offset, struct ros2_err *err)
{
	const struct ros2_session *s = f->mount->session;
	struct plain p = {
		.file = f,
		.kind = kind,
		.region = region,
		.buf = buf,
		.len = len,
		.offset = offset,
		.piece = s->max_io,
	};

	if (buf && s->over == ROS2_TRANSPORT_SHM && !(region && shm_region_is_shared(s, region)))
		p.piece = MIN(s->max_io, MAX(shm_stage_len(s), 1u));
	run(&p);
	return result_of(&p, err);
}

static ssize_t bounced(struct ros2_file *f, enum request_kind kind, uint8_t *buf, size_t len,
                       uint64_t offset, struct ros2_err *err)
{
	struct ros2_region *b;
	size_t done = 0;
	int rc = region_bounce(f->mount->session, &b, err);

	while (!rc && done < len) {
		size_t n = MIN(len - done, MIN(b->len, (size_t)f->mount->session->max_io));
		ssize_t got;

		if (kind == REQ_WRITE)
			memcpy(b->addr, buf + done, n);
		got = direct(f, kind, b, b->addr, n, offset + done, err);
		if (got < 0)
			return done && kind == REQ_READ ? (ssize_t)done : got;
		if (kind == REQ_READ)
			memcpy(buf + done, b->addr, (size_t)got);
		done += (size_t)got;
		if ((size_t)got < n)
			break;
	}
	return rc ? rc : (ssize_t)done;
}

static ssize_t plain_io(struct ros2_file *f, enum request_kind kind, void *buf, size_t len,
                        uint64_t offset, struct ros2_err *err)
{
	bool read = kind == REQ_READ;
	struct ros2_region *region;
	int rc = check(f, buf, len, offset, read ? ROS2_O_RDONLY : ROS2_O_WRONLY, err);

	if (rc || !len)
		return rc;
	region = region_find(f->mount->session, buf, len);
	if (region && region->access & (read ? ROS2_REGION_WRITE : ROS2_REGION_READ))
		return direct(f, kind, region, buf, len, offset, err);
	if (region_is_device(f->mount->session, buf, len))
		return ros2_err_named(
			err, ROS2_ACCESS,
			"memory of a device: expected all %zu bytes at %p in one region "
			"that allows %s by the agent",
			len, buf, read ? "writing" : "reading");
	/* This program's own memory: no region has to allow it. */
	if (f->mount->session->over == ROS2_TRANSPORT_SHM)
		return direct(f, kind, NULL, buf, len, offset, err);
	return bounced(f, kind, buf, len, offset, err);
}

ssize_t ros2_pread(struct ros2_file *f, void *buf, size_t len, uint64_t offset,
                   struct ros2_err *err)
{
	return plain_io(f, REQ_READ, buf, len, offset, err);
}

ssize_t ros2_pwrite(struct ros2_file *f, const void *buf, size_t len, uint64_t offset,
                    struct ros2_err *err)
{
	return plain_io(f, REQ_WRITE, (void *)buf, len, offset, err);
}

static int clear(struct ros2_file *f, enum request_kind kind, uint64_t len, uint64_t offset,
                 struct ros2_err *err)
{
	/* No buffer, so none can be missing. */
	int rc = check(f, f, len, offset, ROS2_O_WRONLY, err);
	ssize_t got;

	if (rc || !len)
		return rc;
	got = direct(f, kind, NULL, NULL, len, offset, err);
	return got < 0 ? (int)got : 0;
}

int ros2_zero(struct ros2_file *f, uint64_t len, uint64_t offset, struct ros2_err *err)
{
	return clear(f, REQ_ZERO, len, offset, err);
}

int ros2_discard(struct ros2_file *f, uint64_t len, uint64_t offset, struct ros2_err *err)
{
	return clear(f, REQ_DISCARD, len, offset, err);
}

int ros2_flush(struct ros2_file *f, struct ros2_err *err)
{
	struct ros2_session *s = f->mount->session;
	struct plain p = {.file = f, .kind = REQ_FLUSH};
	struct request *r;
	int rc = session_need_up(s, err);

	if (rc)
		return rc;
	r = begin_piece(&p);
	if (!r)
		return ros2_err_named(err, ROS2_BUSY, "no free slot");
	while (r->state != REQ_DONE)
		session_step(s, 1000, NULL);
	p.done_to = 1;
	end_piece(&p, r);
	if (p.err.code && err)
		*err = p.err;
	return p.err.code;
}
