/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission and writing. One flush is at the disk at a time; what arrives meanwhile shares the next
 * fsync. A flush that fails for want of space leaves the segment as it was: the widening records in
 * it fail, the others wait and are tried again. A failed fsync is fatal, never retried.
 */
#include "agent/spool_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define FLUSH_BYTES_MAX (512u * 1024u)
#define RETRY_MS        1000

static void start_flush(struct spool *s);

const char *spool_class_to_str(enum spool_class c)
{
	switch (c) {
	case SPOOL_WIDEN:
		return "widen";
	case SPOOL_SHRINK:
		return "shrink";
	case SPOOL_DENIAL:
		return "denial";
	}
	return "?";
}

static uint64_t used(const struct spool *s)
{
	return s->disk_bytes + s->waiting_bytes;
}

static struct spool_account *account_find(const struct spool *s, const struct ros2_uid *tenant)
{
	struct spool_account *a;

	HASH_FIND(hh, s->accounts, tenant, sizeof(*tenant), a);
	return a;
}

static struct spool_account *account_get(struct spool *s, const struct ros2_uid *tenant)
{
	struct spool_account *a = account_find(s, tenant);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->tenant = *tenant;
	list_init(&a->waiting);
	list_init(&a->turn);
	HASH_ADD(hh, s->accounts, tenant, sizeof(a->tenant), a);
	if (!HASH_TOOK(hh, a)) {
		free(a);
		return NULL;
	}
	return a;
}

/* Forgets an account that has nothing in the spool. */
void spool_account_put(struct spool *s, struct spool_account *a)
{
	if (a->bytes || a->unacked || !list_empty(&a->waiting))
		return;
	list_del(&a->turn);
	HASH_DEL(s->accounts, a);
	free(a);
}

static int admit(const struct spool *s, enum spool_class c, const struct ros2_uid *tenant,
                 size_t len, struct ros2_err *err)
{
	uint64_t quota = s->o.quota_bytes, open = quota - quota / 8;
	const struct spool_account *a = account_find(s, tenant);

	if (s->closing && c == SPOOL_WIDEN)
		return ros2_err_named(err, ROS2_NOT_DURABLE, "the agent is stopping");
	if (c == SPOOL_SHRINK)
		return used(s) + len <= quota
		               ? 0
		               : ros2_err_named(err, ROS2_NOT_DURABLE,
		                                "the audit spool is full: --spool-bytes is %llu",
		                                (unsigned long long)quota);
	if (used(s) + len > open || (used(s) + len > open - open / 4 &&
	                             (c != SPOOL_WIDEN || (a ? a->bytes : 0) + len > SPOOL_SURE)))
		return ros2_err_named(
			err, ROS2_NOT_DURABLE,
			"the audit spool is full (%llu bytes, 7/8 of --spool-bytes, a quarter of "
			"them for each tenant's first %u): the controller has not taken the "
			"records yet: try again later",
			(unsigned long long)open, SPOOL_SURE);
	if (a && a->bytes + len > open / 4)
		return ros2_err_named(
			err, ROS2_BUSY,
			"this tenant's share of the audit spool is full (%llu bytes, 7/32 of "
			"--spool-bytes): the controller has not taken its records yet: try again "
			"later",
			(unsigned long long)(open / 4));
	return 0;
}

int spool_room(const struct spool *s, const struct ros2_uid *tenant, struct ros2_err *err)
{
	return admit(s, SPOOL_WIDEN, tenant, 1024, err);
}

int spool_put(struct spool *s, enum spool_class c, const struct ros2_uid *tenant, const void *p,
              size_t len, spool_done_fn fn, void *arg, struct ros2_err *err)
{
	struct spool_account *a;
	struct spool_item *it;
	int r;

	if (!len || len > SPOOL_RECORD_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE, "an audit record of %zu bytes", len);
	r = admit(s, c, tenant, len + SPOOL_FRAME_HEADER_LEN, err);
	if (r < 0)
		return r;
	a = account_get(s, tenant);
	it = a ? malloc(sizeof(*it) + len) : NULL;
	if (!it) {
		if (a)
			spool_account_put(s, a);
		return ros2_err_set(err, -ENOMEM, "no memory for an audit record");
	}
	*it = (struct spool_item){.class = c, .fn = fn, .arg = arg, .len = (uint32_t)len};
	memcpy(it->bytes, p, len);
	if (list_empty(&a->waiting))
		list_add_tail(&s->turns, &a->turn);
	list_add_tail(&a->waiting, &it->link);
	a->bytes += len + SPOOL_FRAME_HEADER_LEN;
	s->waiting_bytes += len + SPOOL_FRAME_HEADER_LEN;
	start_flush(s);
	return 0;
}

/* ---- one flush ---- */

/* Takes one record from each tenant in turn. */
static void gather(struct spool *s)
{
	struct spool_flush *f = &s->flush;

	f->n = 0;
	f->sync = false;
	while (!list_empty(&s->turns) && f->n < SPOOL_BATCH_MAX && f->frames.n < FLUSH_BYTES_MAX) {
		struct spool_account *a = list_first(&s->turns, struct spool_account, turn);
		struct spool_item *it = list_first(&a->waiting, struct spool_item, link);

		spool_frame_put(&f->frames, s->next_seq + f->n, it->bytes, it->len);
		f->sync |= it->class == SPOOL_WIDEN;
		list_del(&it->link);
		list_add_tail(&f->items, &it->link);
		f->accounts[f->n++] = a;
		list_del(&a->turn);
		if (!list_empty(&a->waiting))
			list_add_tail(&s->turns, &a->turn);
	}
}

static void undo_write(struct spool *s, struct spool_flush *f)
{
	if (f->create) {
		close(s->fd);
		s->fd = -1;
		/* Its records go into another file under the same numbers. */
		f->fatal = fsx_io->unlink(f->path) < 0;
	} else if (fsx_io->ftruncate(s->fd, (off_t)f->offset) < 0) {
		f->fatal = true;
	}
}

static int flush_write(struct spool *s, struct spool_flush *f)
{
	if (f->create) {
		s->fd = fsx_io->open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC,
		                     0600);
		if (s->fd < 0)
			return ros2_err_set(&f->err, -errno, "create %s: %s", f->path,
			                    strerrordesc_np(errno));
	}
	f->r = fsx_write_all(s->fd, f->frames.p, f->frames.n);
	if (f->r < 0) {
		undo_write(s, f);
		return ros2_err_set(&f->err, f->r, "write %s: %s", f->path, strerrordesc_np(-f->r));
	}
	if (f->sync && fsx_io->fsync(s->fd) < 0) {
		f->fatal = true;
		return ros2_err_set(&f->err, -EIO, "fsync %s: %s", f->path, strerrordesc_np(errno));
	}
	if (f->create && fsx_sync_dir(s->dir, &f->err) < 0) {
		f->fatal = true;
		return f->err.code;
	}
	return 0;
}

/* Writer thread. s->fd is the writer's while a flush is busy. */
static void flush_work(struct writer_job *j)
{
	struct spool_flush *f = container_of(j, struct spool_flush, job);

	f->err = (struct ros2_err)ROS2_ERR_INIT;
	f->fatal = false;
	f->r = f->frames.failed ? ros2_err_set(&f->err, -ENOMEM, "no memory to write audit records")
	                        : flush_write(f->spool, f);
}

static int written_push(struct spool *s, uint64_t seq, struct spool_account *a, uint32_t len)
{
	if (s->written_n == s->written_cap) {
		size_t cap = s->written_cap ? s->written_cap * 2 : 1024;
		struct spool_written *w = calloc(cap, sizeof(*w));

		if (!w)
			return -ENOMEM;
		for (size_t i = 0; i < s->written_n; i++)
			w[i] = s->written[(s->written_head + i) % s->written_cap];
		free(s->written);
		s->written = w;
		s->written_head = 0;
		s->written_cap = cap;
	}
	s->written[(s->written_head + s->written_n++) % s->written_cap] =
		(struct spool_written){seq, a, len};
	return 0;
}

/* The frames are in the file: they are part of the spool. */
static void flush_good(struct spool *s)
{
	struct spool_flush *f = &s->flush;
	struct spool_segment *g = s->active;
	uint32_t i = 0;

	if (!g->size)
		list_add_tail(&s->segments, &g->link);
	if (!g->records)
		g->first_seq = s->next_seq;
	/* Kept until it is sent; without memory for that it is read from the file then. */
	if (g->data.n == g->size)
		buf_put(&g->data, f->frames.p, f->frames.n);
	if (g->data.failed)
		buf_fini(&g->data);
	g->size += f->frames.n;
	s->disk_bytes += f->frames.n;
	s->waiting_bytes -= f->frames.n;
	while (!list_empty(&f->items)) {
		struct spool_item *it = list_first(&f->items, struct spool_item, link);
		struct spool_account *a = f->accounts[i++];
		uint32_t len = it->len + SPOOL_FRAME_HEADER_LEN;

		g->last_seq = s->next_seq++;
		g->records++;
		s->n_records++;
		a->unacked++;
		if (written_push(s, g->last_seq, a, len) < 0) {
			a->unacked--; /* not accounted to the tenant any more; still sent */
			a->bytes -= len;
		}
		list_del(&it->link);
		if (it->fn)
			it->fn(it->arg, NULL);
		free(it);
	}
	if (g->size < SPOOL_SEGMENT_BYTES)
		return;
	/* Closed without fsync when only denials were written since the last one. */
	close(s->fd);
	s->fd = -1;
	g->active = false;
	s->active = NULL;
}

static void flush_bad(struct spool *s)
{
	struct spool_flush *f = &s->flush;
	struct spool_item *it, *tmp;
	struct ros2_err why = ROS2_ERR_INIT;
	uint32_t i = f->n;

	ros2_err_named(&why, ROS2_NOT_DURABLE, "audit spool: %s", f->err.msg);
	if (f->create) {
		spool_segment_free(s->active);
		s->active = NULL;
	}
	/* Backwards, so that records go back to the front of their queues in order. */
	for (it = list_entry(f->items.prev, struct spool_item, link); &it->link != &f->items;
	     it = tmp) {
		struct spool_account *a = f->accounts[--i];
		uint32_t len = it->len + SPOOL_FRAME_HEADER_LEN;

		tmp = list_entry(it->link.prev, struct spool_item, link);
		if (it->class != SPOOL_WIDEN) {
			list_del(&it->link);
			if (list_empty(&a->waiting) && list_empty(&a->turn))
				list_add_tail(&s->turns, &a->turn);
			list_add_head(&a->waiting, &it->link);
			continue;
		}
		a->bytes -= len;
		s->waiting_bytes -= len;
	}
	/* What is left are the widening ones; their owners may put new records from here. */
	while (!list_empty(&f->items)) {
		it = list_first(&f->items, struct spool_item, link);
		list_del(&it->link);
		if (it->fn)
			it->fn(it->arg, &why);
		free(it);
	}
}

static void retry(void *arg)
{
	start_flush(arg);
}

static void flush_done(struct writer_job *j)
{
	struct spool_flush *f = container_of(j, struct spool_flush, job);
	struct spool *s = f->spool;

	if (f->fatal)
		s->o.on_fatal(s->o.arg, &f->err);
	if (s->o.on_wrote)
		s->o.on_wrote(s->o.arg, f->r, &f->err);
	/* Callbacks may put new records: busy keeps them from starting a flush in here. */
	if (f->r < 0)
		flush_bad(s);
	else
		flush_good(s);
	buf_fini(&f->frames);
	f->busy = false;
	if (f->r < 0) {
		if (!s->closing)
			loop_timer_in_ms(s->o.loop, &s->retry, RETRY_MS, retry, s);
		return;
	}
	if (s->o.on_ready)
		s->o.on_ready(s->o.arg);
	start_flush(s);
}

static int make_active(struct spool *s)
{
	struct spool_segment *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->serial = ++s->serial;
	g->incarnation = s->o.incarnation;
	g->active = true;
	spool_name_format(g->serial, &g->incarnation, g->name);
	list_init(&g->link);
	s->active = g;
	return 0;
}

static void start_flush(struct spool *s)
{
	struct spool_flush *f = &s->flush;

	if (f->busy || list_empty(&s->turns) || s->retry.loop || s->closing)
		return;
	f->create = !s->active;
	if (f->create && make_active(s) < 0) {
		loop_timer_in_ms(s->o.loop, &s->retry, RETRY_MS, retry, s);
		return;
	}
	f->offset = s->active->size;
	snprintf(f->path, sizeof(f->path), "%.3900s/%s", s->dir, s->active->name);
	gather(s);
	f->busy = true;
	writer_submit(s->o.writer, &f->job);
}

/* ---- life ---- */

int spool_open(const struct spool_opts *o, struct spool **ret, struct spool_opened *info,
               struct ros2_err *err)
{
	struct spool *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory for the audit spool");
	s->o = *o;
	if (!s->o.quota_bytes)
		s->o.quota_bytes = SPOOL_QUOTA_DEFAULT;
	s->fd = -1;
	s->next_seq = 1;
	list_init(&s->turns);
	list_init(&s->segments);
	list_init(&s->holes);
	list_init(&s->flush.items);
	s->flush.spool = s;
	s->flush.job.work = flush_work;
	s->flush.job.done = flush_done;
	*info = (struct spool_opened){0};
	r = snprintf(s->dir, sizeof(s->dir), "%s", o->dir) > 3900
	            ? ros2_err_set(err, -ENAMETOOLONG, "path %s is too long", o->dir)
	            : fsx_mkdirs(o->dir, 0700, err);
	if (!r)
		r = spool_load_segments(s, info, err);
	if (r < 0) {
		spool_free(s);
		return r;
	}
	spool_rewind(s);
	*ret = s;
	return 0;
}

static void fail_items(const struct list *items)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct spool_item *it, *tmp;

	ros2_err_named(&why, ROS2_NOT_DURABLE, "the agent is stopping");
	list_for_each_safe (items, it, tmp, link) {
		spool_done_fn fn = it->fn;

		it->fn = NULL;
		if (fn)
			fn(it->arg, &why);
	}
}

/* Records nobody will write now, or of which nobody will be left to hear that they were: their
 * owners undo what they did. */
static void fail_waiting(struct spool *s)
{
	struct spool_account *a, *tmp;

	HASH_ITER (hh, s->accounts, a, tmp)
		fail_items(&a->waiting);
	fail_items(&s->flush.items);
}

void spool_shut(struct spool *s)
{
	s->closing = true;
	loop_timer_stop(&s->retry);
	fail_waiting(s);
}

static void free_items(struct list *items)
{
	while (!list_empty(items)) {
		struct spool_item *it = list_first(items, struct spool_item, link);

		list_del(&it->link);
		free(it);
	}
}

void spool_free(struct spool *s)
{
	struct spool_account *a, *tmp;

	if (!s)
		return;
	s->closing = true;
	loop_timer_stop(&s->retry);
	free_items(&s->flush.items);
	buf_fini(&s->flush.frames);
	HASH_ITER (hh, s->accounts, a, tmp) {
		free_items(&a->waiting);
		HASH_DEL(s->accounts, a);
		free(a);
	}
	if (s->active && !s->active->size)
		spool_segment_free(s->active);
	while (!list_empty(&s->segments))
		spool_segment_free(list_first(&s->segments, struct spool_segment, link));
	while (!list_empty(&s->holes))
		spool_segment_free(list_first(&s->holes, struct spool_segment, link));
	if (s->fd >= 0)
		close(s->fd);
	free(s->written);
	free(s);
}

uint64_t spool_bytes(const struct spool *s)
{
	return used(s);
}

bool spool_is_idle(const struct spool *s)
{
	return !s->flush.busy && list_empty(&s->turns);
}
