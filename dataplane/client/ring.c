/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring: prepare, submit, peek, wait. Nothing here allocates or copies; requests live in the
 * session's table from prep to peek.
 */
#include "common/clock.h"
#include "dataplane/client/internal_priv.h"
#include <errno.h>
#include <limits.h>

/* The error of a session that is of no use any more, or not to this process. */
static int dead(const struct ros2_session *s, struct ros2_err *err)
{
	int rc = client_check_own(s->client, err);

	if (rc)
		return rc;
	if (err)
		*err = s->why;
	return s->why.code;
}

static bool is_dead(const struct ros2_session *s)
{
	return s->state == LINK_DEAD || client_is_childs(s->client);
}

static int check_io(const struct ros2_file *f, uint32_t len, uint64_t offset, uint32_t access,
                    struct ros2_err *err)
{
	const struct ros2_session *s = f->mount->session;

	if (is_dead(s))
		return dead(s, err);
	if (!len || len > s->max_io)
		return ros2_err_set(err, -EINVAL, "%u bytes: a request has 1 to %u", len,
		                    s->max_io);
	if (offset > (uint64_t)INT64_MAX - len)
		return ros2_err_set(err, -EINVAL, "offset %llu is beyond any file",
		                    (unsigned long long)offset);
	if (!(f->flags & access))
		return ros2_err_named(err, ROS2_ACCESS, "'%s' was not opened for %s", f->path,
		                      access == ROS2_O_RDONLY ? "reading" : "writing");
	return 0;
}

static int prep_io(struct ros2_file *f, enum request_kind kind, void *buf, uint32_t len,
                   uint64_t offset, uint64_t tag, struct ros2_err *err)
{
	struct ros2_session *s = f->mount->session;
	bool read = kind == REQ_READ;
	struct ros2_region *region;
	struct request *r;
	int rc = check_io(f, len, offset, read ? ROS2_O_RDONLY : ROS2_O_WRONLY, err);

	if (rc)
		return rc;
	region = region_find(s, buf, len);
	if (!region)
		return ros2_err_set(err, -EINVAL,
		                    "the %u bytes at %p do not lie in one registered region", len,
		                    buf);
	if (!(region->access & (read ? ROS2_REGION_WRITE : ROS2_REGION_READ)))
		return ros2_err_named(err, ROS2_ACCESS,
		                      "the region at %p was not registered for %s by the agent",
		                      buf, read ? "writing" : "reading");
	r = request_get(s, false);
	if (!r)
		return -EAGAIN;
	r->kind = kind;
	r->file = f;
	r->region = region;
	r->buf = buf;
	r->len = len;
	r->offset = offset;
	r->tag = tag;
	request_prepare(s, r);
	return 0;
}

int ros2_prep_read(struct ros2_file *f, void *buf, uint32_t len, uint64_t offset, uint64_t tag,
                   struct ros2_err *err)
{
	return prep_io(f, REQ_READ, buf, len, offset, tag, err);
}

int ros2_prep_write(struct ros2_file *f, const void *buf, uint32_t len, uint64_t offset,
                    uint64_t tag, struct ros2_err *err)
{
	return prep_io(f, REQ_WRITE, (void *)buf, len, offset, tag, err);
}

static int prep_clear(struct ros2_file *f, enum request_kind kind, uint32_t len, uint64_t offset,
                      uint64_t tag, struct ros2_err *err)
{
	int rc = check_io(f, len, offset, ROS2_O_WRONLY, err);
	struct request *r;

	if (rc)
		return rc;
	r = request_get(f->mount->session, false);
	if (!r)
		return -EAGAIN;
	r->kind = kind;
	r->file = f;
	r->len = len;
	r->offset = offset;
	r->tag = tag;
	request_prepare(f->mount->session, r);
	return 0;
}

int ros2_prep_zero(struct ros2_file *f, uint32_t len, uint64_t offset, uint64_t tag,
                   struct ros2_err *err)
{
	return prep_clear(f, REQ_ZERO, len, offset, tag, err);
}

int ros2_prep_discard(struct ros2_file *f, uint32_t len, uint64_t offset, uint64_t tag,
                      struct ros2_err *err)
{
	return prep_clear(f, REQ_DISCARD, len, offset, tag, err);
}

int ros2_prep_flush(struct ros2_file *f, uint64_t tag, struct ros2_err *err)
{
	struct ros2_session *s = f->mount->session;
	struct request *r;

	if (is_dead(s))
		return dead(s, err);
	r = request_get(s, false);
	if (!r)
		return -EAGAIN;
	r->kind = REQ_FLUSH;
	r->file = f;
	r->tag = tag;
	request_prepare(s, r);
	return 0;
}

int ros2_submit(struct ros2_session *s, struct ros2_err *err)
{
	uint64_t now = clock_monotonic_ns();
	int n = 0;

	if (is_dead(s))
		return dead(s, err);
	while (!list_empty(&s->prepared)) {
		request_set_ready(s, list_first(&s->prepared, struct request, link), now);
		n++;
	}
	/* While the agent is away they wait, and leave from ros2_wait or ros2_peek. Should the
	 * session end here, their completions say why. */
	if (s->state == LINK_UP)
		session_step(s, 0, NULL);
	return n;
}

static uint32_t reap(struct ros2_session *s, struct ros2_completion *out, uint32_t max)
{
	uint32_t n = 0;

	while (n < max && !list_empty(&s->done)) {
		struct request *r = list_first(&s->done, struct request, link);

		out[n++] = (struct ros2_completion){r->tag, r->result, r->status};
		request_put(s, r);
	}
	return n;
}

static bool is_waiting(const struct ros2_session *s)
{
	return s->n_user && (!list_empty(&s->sent) || !list_empty(&s->ready));
}

int ros2_peek(struct ros2_session *s, struct ros2_completion *out, uint32_t max,
              struct ros2_err *err)
{
	uint32_t n;

	if (client_is_childs(s->client))
		return dead(s, err);
	n = reap(s, out, max);
	if (n)
		return (int)n;
	/* An error is told by the completions first, by name, and only then here. */
	if (is_waiting(s))
		session_step(s, 0, NULL);
	n = reap(s, out, max);
	return n || s->state != LINK_DEAD ? (int)n : dead(s, err);
}

/* Until @until (UINT64_MAX: no limit), in whole milliseconds, not 0 before it. */
static int left_ms(uint64_t until, uint64_t now)
{
	if (until == UINT64_MAX)
		return INT_MAX;
	return now >= until ? 0 : (int)MIN((until - now - 1) / NS_PER_MS + 1, (uint64_t)INT_MAX);
}

int ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min, uint32_t max,
              int timeout_ms, struct ros2_err *err)
{
	uint64_t until = timeout_ms < 0 ? UINT64_MAX
	                                : clock_add_ns(clock_monotonic_ns(),
	                                               (uint64_t)timeout_ms * NS_PER_MS);
	uint64_t awake_until = s->poll_us ? clock_monotonic_ns() + s->poll_us * NS_PER_US : 0;
	uint32_t n;

	if (client_is_childs(s->client))
		return dead(s, err);
	n = reap(s, out, max);
	min = MIN(min, max);
	while (n < min && is_waiting(s)) {
		uint64_t now = timeout_ms < 0 && !s->poll_us ? 0 : clock_monotonic_ns();
		int left = left_ms(until, now);

		session_step(s, now < awake_until ? 0 : left, NULL);
		n += reap(s, out + n, max - n);
		if (!left)
			break;
	}
	return n || s->state != LINK_DEAD ? (int)n : dead(s, err);
}
