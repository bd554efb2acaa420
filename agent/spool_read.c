/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading, sending and acknowledging. A segment whose end cannot be read is sent up to there: the
 * missing seqs become an audit.gap record at the controller, or, where nothing of that start comes
 * behind them, one of this agent's, before which its file does not go, and so do those of one that
 * is not there any more. One that cannot be read now is waited for, and told. Must never send a
 * frame that fails its check, nor delete one that was not acknowledged.
 */
#define LOG_COMPONENT "spool"
#include "agent/spool_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define SEGMENT_FILE_MAX (4u * 1024u * 1024u)
#define SEGMENTS_MAX     65536u
#define UNREAD_TOLD_NS   (10 * NS_PER_S)

void spool_segment_free(struct spool_segment *g)
{
	if (!g)
		return;
	list_del(&g->link);
	buf_fini(&g->data);
	free(g);
}

static void segment_path(const struct spool *s, const struct spool_segment *g, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.3900s/%s", s->dir, g->name);
}

static int segment_read(const struct spool *s, struct spool_segment *g, struct ros2_err *err)
{
	char path[PATH_MAX];
	void *p;
	size_t len;
	int r;

	segment_path(s, g, path);
	r = fsx_read_file(path, SEGMENT_FILE_MAX, &p, &len, err);
	if (r < 0)
		return r;
	buf_fini(&g->data);
	g->data = (struct buf){.p = p, .n = len, .cap = len};
	return 0;
}

static void insert_sorted(struct spool *s, struct spool_segment *g)
{
	struct list *at = s->segments.prev;

	while (at != &s->segments && list_entry(at, struct spool_segment, link)->serial > g->serial)
		at = at->prev;
	list_add_head(at, &g->link);
}

#define BAD "bad-"

/* Nothing of it can be sent: an empty file goes, a damaged one is kept for people to look at. */
static void set_aside(const struct spool *s, const struct spool_segment *g)
{
	char path[PATH_MAX], bad[PATH_MAX];
	struct stat st;

	segment_path(s, g, path);
	snprintf(bad, sizeof(bad), "%.3900s/" BAD "%s", s->dir, g->name);
	if (stat(path, &st) == 0 && st.st_size == 0)
		(void)fsx_io->unlink(path);
	else
		(void)fsx_io->rename(path, bad);
}

static struct spool_segment *segment_after(const struct spool *s, const struct spool_segment *g)
{
	return g->link.next == &s->segments ? NULL
	                                    : list_entry(g->link.next, struct spool_segment, link);
}

/* A hole that nobody else will see. */
static bool is_hole(const struct spool *s, const struct spool_segment *g)
{
	const struct spool_segment *o = g->lost ? segment_after(s, g) : NULL;

	for (; o; o = segment_after(s, o))
		if (o->records && ros2_uid_eq(&o->incarnation, &g->incarnation))
			return false;
	return g->lost > 0;
}

static void wait_until_told(struct spool *s, struct spool_segment *g)
{
	list_del(&g->link);
	list_add_tail(&s->holes, &g->link);
}

/* Of which nothing can be sent. */
static void set_aside_all(struct spool *s)
{
	struct spool_segment *g, *tmp;

	list_for_each_safe (&s->segments, g, tmp, link) {
		if (g->records)
			continue;
		if (is_hole(s, g)) {
			wait_until_told(s, g);
			continue;
		}
		set_aside(s, g);
		spool_segment_free(g);
	}
}

/* What is readable of the file; false when that is not all of it. */
static bool segment_take(struct spool_segment *g)
{
	struct spool_scan scan;
	bool whole = spool_scan(&g->data, &scan);

	g->records = scan.records;
	g->first_seq = scan.first_seq;
	g->last_seq = scan.last_seq;
	g->size = scan.size;
	g->lost = whole ? 0 : spool_lost(&g->data, scan.size);
	return whole;
}

static int load_one(struct spool *s, const char *name, struct spool_opened *info,
                    struct ros2_err *err)
{
	struct spool_segment *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return ros2_err_set(err, -ENOMEM, "no memory for a spool segment");
	list_init(&g->link);
	if (spool_name_parse(name, &g->serial, &g->incarnation) < 0 ||
	    strlen(name) >= sizeof(g->name)) {
		spool_segment_free(g);
		return 0; /* not ours: left alone */
	}
	strcpy(g->name, name);
	r = segment_read(s, g, err);
	if (r == -EFBIG) {
		info->damaged++;
		spool_segment_free(g);
		return 0;
	}
	if (r < 0) {
		spool_segment_free(g);
		return r;
	}
	if (!segment_take(g))
		info->damaged++;
	buf_fini(&g->data);
	s->serial = MAX(s->serial, g->serial);
	s->disk_bytes += g->size;
	s->n_records += g->records;
	info->records += g->records;
	info->bytes += g->size;
	insert_sorted(s, g);
	return 0;
}

/* ---- what was set aside ---- */

struct bad {
	struct timespec written;
	char name[sizeof(BAD) + SPOOL_NAME_LEN];
};
struct bads {
	struct bad v[SPOOL_BAD_KEPT]; /* the newest so far */
	unsigned n;
};

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static bool bad_look(const struct spool *s, const char *name, struct bad *ret)
{
	struct ros2_uid incarnation;
	char path[PATH_MAX];
	struct stat st;
	uint64_t serial;

	if (strncmp(name, BAD, strlen(BAD)) != 0 ||
	    spool_name_parse(name + strlen(BAD), &serial, &incarnation) < 0)
		return false;
	snprintf(path, sizeof(path), "%.3900s/%s", s->dir, name);
	if (stat(path, &st) < 0)
		return false;
	ret->written = st.st_mtim;
	snprintf(ret->name, sizeof(ret->name), "%s", name);
	return true;
}

static bool bad_remove(const struct spool *s, const struct bad *b)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.3900s/%s", s->dir, b->name);
	return fsx_io->unlink(path) == 0;
}

/* Takes its place among the newest, or is the one that goes. */
static bool bad_add(const struct spool *s, struct bads *k, struct bad *b)
{
	unsigned oldest = 0;

	if (k->n < SPOOL_BAD_KEPT) {
		k->v[k->n++] = *b;
		return false;
	}
	for (unsigned i = 1; i < k->n; i++)
		if (is_before(&k->v[i].written, &k->v[oldest].written))
			oldest = i;
	if (is_before(&k->v[oldest].written, &b->written)) {
		struct bad gone = k->v[oldest];

		k->v[oldest] = *b;
		*b = gone;
	}
	return bad_remove(s, b);
}

/* Returns how many of them went. */
static unsigned sweep_bad(const struct spool *s)
{
	unsigned n = 0;
	struct bads kept = {0};
	DIR *d = opendir(s->dir);
	const struct dirent *e;
	struct bad b;

	while (d && (e = readdir(d)))
		if (bad_look(s, e->d_name, &b))
			n += bad_add(s, &kept, &b);
	if (d)
		closedir(d);
	return n;
}

int spool_load_segments(struct spool *s, struct spool_opened *info, struct ros2_err *err)
{
	DIR *d = opendir(s->dir);
	const struct dirent *e;
	unsigned n = 0;
	int r = 0;

	if (!d)
		return ros2_err_set(err, -errno, "open directory %s: %s", s->dir,
		                    strerrordesc_np(errno));
	while (!r && (e = readdir(d)) && n < SEGMENTS_MAX)
		if (e->d_name[0] != '.') {
			r = load_one(s, e->d_name, info, err);
			n++;
		}
	closedir(d);
	if (!r) {
		set_aside_all(s);
		info->removed += sweep_bad(s);
	}
	return r;
}

/* ---- removing ---- */

static void going_work(struct writer_job *j)
{
	const struct spool_segment *g = container_of(j, struct spool_segment, going);
	char path[PATH_MAX];

	if (!g->size) {
		set_aside(g->spool, g);
		(void)sweep_bad(g->spool);
		return;
	}
	/* A file that stays is sent again after a restart; the controller knows its seqs. */
	segment_path(g->spool, g, path);
	(void)fsx_io->unlink(path);
}

static void going_done(struct writer_job *j)
{
	spool_segment_free(container_of(j, struct spool_segment, going));
}

/* It is on no list. */
static void remove_file(struct spool *s, struct spool_segment *g)
{
	if (s->closing) {
		spool_segment_free(g);
		return;
	}
	g->spool = s;
	g->going.work = going_work;
	g->going.done = going_done;
	writer_submit(s->o.writer, &g->going);
}

static void drop_segment(struct spool *s, struct spool_segment *g)
{
	if (s->at == g) {
		s->at = segment_after(s, g);
		s->at_offset = 0;
	}
	s->disk_bytes -= g->size;
	buf_fini(&g->data);
	if (is_hole(s, g)) {
		wait_until_told(s, g);
		return;
	}
	list_del(&g->link);
	remove_file(s, g);
}

const char *spool_hole(const struct spool *s, uint64_t *ret_n)
{
	const struct spool_segment *g;

	if (list_empty(&s->holes))
		return NULL;
	g = list_first(&s->holes, struct spool_segment, link);
	*ret_n = g->lost;
	return g->name;
}

void spool_hole_told(struct spool *s)
{
	struct spool_segment *g = list_first(&s->holes, struct spool_segment, link);

	list_del(&g->link);
	remove_file(s, g);
}

/* ---- sending ---- */

static void leave(struct spool_segment *g)
{
	if (!g->active)
		buf_fini(&g->data);
}

/* On a segment with frames left, by their sizes; false when there are none. */
static bool cursor_forward(struct spool *s)
{
	if (!s->at && !list_empty(&s->segments)) {
		s->at = list_first(&s->segments, struct spool_segment, link);
		s->at_offset = 0;
	}
	while (s->at && s->at_offset >= s->at->size) {
		struct spool_segment *next = segment_after(s, s->at);

		if (!next)
			return false;
		leave(s->at);
		s->at = next;
		s->at_offset = 0;
	}
	return s->at != NULL;
}

static void told_unread(struct spool *s, const struct ros2_err *err)
{
	uint64_t now_ns = clock_boottime_ns();

	if (now_ns < s->unread_told_ns)
		return;
	s->unread_told_ns = clock_add_ns(now_ns, UNREAD_TOLD_NS);
	log_error("audit records wait, and those behind them: %s", err->msg);
}

/* Somebody removed the file. Of those of this start the controller sees the hole, and what is
 * acknowledged behind it frees them; of an earlier one nothing may come behind it. */
static void gone(struct spool *s, const struct ros2_err *err)
{
	struct spool_segment *g = s->at;

	log_error("audit records are gone before they were sent: %s", err->msg);
	if (ros2_uid_eq(&g->incarnation, &s->o.incarnation)) {
		s->at_offset = g->size;
		return;
	}
	s->n_records -= g->records;
	s->n_gone += g->records + (is_hole(s, g) ? g->lost : 0);
	g->lost = 0;
	drop_segment(s, g);
}

/* Puts the cursor on a segment with frames left, and reads it; false when there are none, or it
 * cannot be read now. */
static bool cursor_ready(struct spool *s)
{
	struct ros2_err err = ROS2_ERR_INIT;

	while (cursor_forward(s)) {
		int r = s->at->data.n ? 0 : segment_read(s, s->at, &err);

		if (r == 0) {
			/* What is being appended is not part of it yet. */
			s->at->data.n = MIN(s->at->data.n, s->at->size);
			return true;
		}
		if (r != -ENOENT) {
			told_unread(s, &err);
			return false;
		}
		gone(s, &err);
	}
	return false;
}

static void take_frames(struct spool *s, uint32_t max_records, uint32_t max_bytes,
                        struct spool_batch *ret)
{
	uint32_t bytes = 0;
	uint64_t next;

	ret->incarnation = s->at->incarnation;
	while (ret->n < max_records && bytes < max_bytes && s->at_offset < s->at->size) {
		struct spool_view *v = &ret->v[ret->n];

		if (!spool_frame_at(&s->at->data, s->at_offset, v, &next)) {
			s->at_offset = s->at->size; /* rotted since it was loaded: a gap */
			break;
		}
		s->at_offset = next;
		if (v->seq < s->at->first_seq)
			continue; /* acknowledged before the rewind */
		bytes += v->len;
		ret->n++;
	}
}

uint32_t spool_next(struct spool *s, uint32_t max_records, uint32_t max_bytes,
                    struct spool_batch *ret)
{
	ret->n = 0;
	max_records = MIN(max_records, SPOOL_BATCH_MAX);
	/* A segment that has nothing for us keeps nothing from those behind it. */
	while (!ret->n && max_records && max_bytes && cursor_ready(s))
		take_frames(s, max_records, max_bytes, ret);
	s->n_sent += ret->n;
	return ret->n;
}

void spool_rewind(struct spool *s)
{
	if (s->at)
		leave(s->at);
	s->at = NULL;
	s->at_offset = 0;
	s->n_sent = 0;
}

/* Records of @g at or below @seq that were not counted off yet. */
static uint64_t count_off(struct spool_segment *g, uint64_t seq)
{
	uint64_t n;

	if (!g->records || seq < g->first_seq)
		return 0;
	n = MIN(seq, g->last_seq) - g->first_seq + 1;
	n = MIN(n, g->records);
	g->records -= n;
	g->first_seq += n;
	return n;
}

/* A closed segment; or the open one when it is big enough to be worth a new file. */
static bool may_end(struct spool *s, struct spool_segment *g)
{
	if (!g->active)
		return true;
	if (s->flush.busy || g->size < MIN(SPOOL_SEGMENT_BYTES / 4, s->o.quota_bytes / 4))
		return false;
	close(s->fd);
	s->fd = -1;
	s->active = NULL;
	return true;
}

void spool_ack(struct spool *s, const struct ros2_uid *incarnation, uint64_t seq)
{
	struct spool_segment *g, *tmp;

	list_for_each_safe (&s->segments, g, tmp, link) {
		uint64_t n;

		if (!ros2_uid_eq(&g->incarnation, incarnation))
			continue;
		n = count_off(g, seq);
		s->n_records -= n;
		s->n_sent -= MIN(n, s->n_sent);
		if (!g->records && may_end(s, g))
			drop_segment(s, g);
	}
	if (!ros2_uid_eq(incarnation, &s->o.incarnation))
		return;
	while (s->written_n && s->written[s->written_head].seq <= seq) {
		struct spool_written *w = &s->written[s->written_head];

		w->account->bytes -= w->len;
		w->account->unacked--;
		spool_account_put(s, w->account);
		s->written_head = (s->written_head + 1) % s->written_cap;
		s->written_n--;
	}
}

uint64_t spool_unacked(const struct spool *s)
{
	return s->n_records;
}

uint64_t spool_unsent(const struct spool *s)
{
	return s->n_records - MIN(s->n_sent, s->n_records);
}

uint64_t spool_take_gone(struct spool *s)
{
	uint64_t n = s->n_gone;

	s->n_gone = 0;
	return n;
}

uint64_t spool_next_seq(const struct spool *s)
{
	return s->next_seq;
}
