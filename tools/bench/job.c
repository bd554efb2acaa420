/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job of `ros2-bench run`: a session, a slice of the file that no other job touches, and a ring
 * kept full. With --verify a block is never in flight twice, its generation is known, and a read is
 * compared with it; a write whose outcome is unknown makes its block unknown until it is written
 * again, and a flush all that was written since the last good one.
 */
#include "common/clock.h"
#include "common/util.h"
#include "tools/bench/load_priv.h"
#include <errno.h>
#include <string.h>

#define REAP_MAX 64
/* Of generations with --rw zero: the block is zeros. With --rw trim: it was given up, and held the
 * generation beside the bit. What both wrote before is no more than there are blocks. */
#define ZEROED  UINT32_MAX
#define TRIMMED (1u << 31)

void job_init(struct job *j, struct load *l, uint32_t index)
{
	uint64_t blocks = l->o->size / l->o->bs;

	j->load = l;
	j->index = index;
	j->first_block = blocks * index / l->n_jobs;
	j->n_blocks = blocks * (index + 1) / l->n_jobs - j->first_block;
	j->rng = (l->o->seed + 1) * 0x9e3779b97f4a7c15ull ^ (index + 1) * 0xbf58476d1ce4e5b9ull;
}

static uint64_t draw(struct job *j)
{
	j->rng ^= j->rng << 13;
	j->rng ^= j->rng >> 7;
	j->rng ^= j->rng << 17;
	return j->rng;
}

static void fail(struct job *j, const struct ros2_err *err)
{
	if (!j->err.code)
		j->err = *err;
}

/* ---- setting up ---- */

/* As many blocks per buffer as the policy lets a region have. */
static int make_buffers(struct job *j, uint32_t depth, struct ros2_err *err)
{
	uint32_t bs = j->load->o->bs, done = 0;
	struct ros2_session_info info;
	uint64_t largest;

	ros2_session_info(j->session, &info);
	largest = info.region_size_max ? info.region_size_max : UINT64_MAX;
	if (bs > largest)
		return ros2_err_set(err, -EINVAL, "--bs %u: the policy's largest region is %llu",
		                    bs, (unsigned long long)largest);
	while (done < depth) {
		uint32_t n = (uint32_t)MIN((uint64_t)(depth - done), largest / bs);
		void *buf = NULL;
		int rc = ros2_buf_alloc(j->session, (size_t)n * bs, &buf, err);

		if (rc)
			return rc;
		for (uint32_t i = 0; i < n; i++)
			j->slots[done + i].buf = (uint8_t *)buf + (size_t)i * bs;
		done += n;
	}
	return 0;
}

static int set_up(struct job *j, struct ros2_err *err)
{
	const struct bench_opts *o = j->load->o;
	struct ros2_session_opts so = opts_session(o, o->depth);
	uint32_t flags = o->rw == RW_READ && !j->load->layout ? ROS2_O_RDONLY : ROS2_O_RDWR;
	int rc;

	j->slots = calloc(o->depth, sizeof(*j->slots));
	j->free_slots = calloc(o->depth, sizeof(*j->free_slots));
	if (o->verify) {
		j->generations = calloc(j->n_blocks, sizeof(*j->generations));
		j->busy = calloc(j->n_blocks, 1);
		j->unflushed = calloc(j->n_blocks, 1);
	}
	if (!j->slots || !j->free_slots ||
	    (o->verify && (!j->generations || !j->busy || !j->unflushed)))
		return ros2_err_set(err, -ENOMEM, "no memory for a job");
	rc = ros2_session_open(j->load->client, &so, &j->session, err);
	if (!rc)
		rc = ros2_mount(j->session, o->ns, &j->mount, err);
	if (!rc)
		rc = ros2_open(j->mount, o->file, flags, 0644, &j->file, err);
	if (!rc)
		rc = make_buffers(j, o->depth, err);
	for (uint32_t i = 0; i < o->depth && !rc; i++)
		j->free_slots[j->n_free++] = i;
	return rc;
}

static void tear_down(struct job *j)
{
	struct ros2_session_info info;

	if (j->session) {
		ros2_session_info(j->session, &info);
		j->reconnects = info.reconnects;
		j->copied = info.copied_bytes;
	}
	ros2_session_close(j->session);
	free(j->slots);
	free(j->free_slots);
	free(j->generations);
	free(j->busy);
	free(j->unflushed);
}

/* ---- requests ---- */

static uint64_t pick_block(struct job *j)
{
	const struct bench_opts *o = j->load->o;
	uint64_t b = o->random ? draw(j) % j->n_blocks : j->next++ % j->n_blocks;

	/* More blocks than slots: this ends. */
	while (j->busy && j->busy[b])
		b = (b + 1) % j->n_blocks;
	return b;
}

static int prep(struct job *j, const struct slot *s, uint64_t offset, uint32_t index,
                struct ros2_err *err)
{
	uint32_t bs = j->load->o->bs;

	switch (s->op) {
	case RW_READ:
		return ros2_prep_read(j->file, s->buf, bs, offset, index, err);
	case RW_ZERO:
		return ros2_prep_zero(j->file, bs, offset, index, err);
	case RW_TRIM:
		return ros2_prep_discard(j->file, bs, offset, index, err);
	default:
		return ros2_prep_write(j->file, s->buf, bs, offset, index, err);
	}
}

static int start(struct job *j, enum bench_rw op, uint64_t block, struct ros2_err *err)
{
	const struct bench_opts *o = j->load->o;
	uint32_t index = j->free_slots[j->n_free - 1];
	struct slot *s = &j->slots[index];
	uint64_t offset = (j->first_block + block) * o->bs;
	int rc;

	s->block = block;
	s->op = op;
	s->generation = ++j->last_generation;
	if (op == RW_WRITE && (o->verify || !j->load->go))
		pattern_fill(s->buf, o->bs, j->load->pattern, offset, s->generation);
	if (op == RW_READ && o->verify)
		pattern_spoil(s->buf, o->bs);
	s->began_ns = clock_monotonic_ns();
	rc = prep(j, s, offset, index, err);
	if (rc)
		return rc;
	j->n_free--;
	if (j->busy)
		j->busy[block] = 1;
	return 0;
}

static void check_read(struct job *j, const struct slot *s)
{
	uint64_t offset = (j->first_block + s->block) * j->load->o->bs, seed = j->load->pattern;
	uint32_t bs = j->load->o->bs, is = j->generations ? j->generations[s->block] : 0;
	enum bench_rw rw = j->load->o->rw;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	if (!is)
		return;
	if (rw == RW_ZERO && is == ZEROED)
		rc = pattern_check_zeros(s->buf, bs, offset, &err);
	else if (rw == RW_TRIM && is & TRIMMED)
		rc = pattern_check_trimmed(s->buf, bs, seed, offset, is & ~TRIMMED, &err);
	else
		rc = pattern_check(s->buf, bs, seed, offset, is, &err);
	if (rc)
		fail(j, &err);
	else
		j->verified++;
}

static const char *op_name(enum bench_rw op)
{
	return op == RW_READ ? "read" : op == RW_ZERO ? "zero" : op == RW_TRIM ? "trim" : "write";
}

static void end_failed(struct job *j, struct slot *s, const struct ros2_completion *c)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_completion none;

	if (c->status == ROS2_OUTCOME_UNKNOWN && s->op != RW_READ) {
		j->unknown++;
		/* The next write makes it known again, with a generation never used before. */
		if (j->generations)
			j->generations[s->block] = 0;
		return;
	}
	/* The words are with the session when it has ended. */
	if (ros2_peek(j->session, &none, 0, &err) >= 0 || err.status != c->status) {
		err = (struct ros2_err)ROS2_ERR_INIT;
		ros2_err_named(&err, c->status, "%s of block %llu: %s", op_name(s->op),
		               (unsigned long long)(j->first_block + s->block),
		               ros2_status_text(c->status));
	}
	fail(j, &err);
}

static void note_change(struct job *j, const struct slot *s)
{
	uint32_t *is = &j->generations[s->block];

	j->unflushed[s->block] = 1;
	if (s->op == RW_WRITE)
		*is = s->generation;
	else if (s->op == RW_ZERO)
		*is = ZEROED;
	else if (*is)
		*is |= TRIMMED;
}

static void finish(struct job *j, const struct ros2_completion *c, uint64_t now)
{
	const struct bench_opts *o = j->load->o;
	struct slot *s = &j->slots[c->tag];
	struct ros2_err err = ROS2_ERR_INIT;

	j->free_slots[j->n_free++] = (uint32_t)c->tag;
	if (j->busy)
		j->busy[s->block] = 0;
	if (c->status) {
		end_failed(j, s, c);
		return;
	}
	if (c->result != (int64_t)o->bs) {
		ros2_err_named(&err, ROS2_IO, "%s of block %llu: %lld bytes instead of %u",
		               op_name(s->op), (unsigned long long)(j->first_block + s->block),
		               (long long)c->result, o->bs);
		fail(j, &err);
		return;
	}
	if (s->op == RW_READ)
		check_read(j, s);
	else if (j->generations)
		note_change(j, s);
	atomic_fetch_add_explicit(&j->moved, o->bs, memory_order_relaxed);
	if (j->counting && atomic_load_explicit(&j->load->measuring, memory_order_relaxed))
		hist_add(s->op == RW_READ    ? &j->read
		         : s->op == RW_WRITE ? &j->write
		                             : &j->clear,
		         now - s->began_ns);
}

/* Sends what is prepared and takes at least one completion. */
static void turn(struct job *j)
{
	struct ros2_completion c[REAP_MAX];
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t now;
	int n;

	if (ros2_submit(j->session, &err) < 0)
		fail(j, &err);
	n = ros2_wait(j->session, c, 1, REAP_MAX, 1000, &err);
	if (n < 0)
		fail(j, &err);
	now = clock_monotonic_ns();
	for (int i = 0; i < n; i++)
		finish(j, &c[i], now);
}

static void drain(struct job *j)
{
	uint64_t until = clock_add_ns(clock_monotonic_ns(), MUTE_MS * NS_PER_MS);
	uint32_t depth = j->load->o->depth;
	struct ros2_err err = ROS2_ERR_INIT;

	/* Every request ends, also on a session that has ended. */
	while (j->n_free < depth) {
		uint32_t before = j->n_free;
		struct ros2_completion c;

		turn(j);
		if (clock_monotonic_ns() > until && j->n_free < depth) {
			ros2_err_named(&err, ROS2_TIMEOUT,
			               "%u requests have not ended %u s after the last was begun",
			               depth - j->n_free, MUTE_MS / 1000);
			fail(j, &err);
			break;
		}
		if (j->n_free == before && ros2_peek(j->session, &c, 0, NULL) < 0)
			break;
	}
}

/* As turn(). An error when nothing has ended for too long: the agent may be there, and hang in its
 * engine. */
static void turn_in_time(struct job *j, uint64_t *heard_ns)
{
	uint64_t ms = opts_patience_ms(j->load->o);
	uint32_t before = j->n_free;
	struct ros2_err err = ROS2_ERR_INIT;

	turn(j);
	if (j->n_free != before || j->n_free == j->load->o->depth)
		*heard_ns = clock_monotonic_ns();
	if (clock_monotonic_ns() - *heard_ns <= ms * NS_PER_MS)
		return;
	ros2_err_named(&err, ROS2_TIMEOUT, "of %u requests none has ended for %llu s",
	               j->load->o->depth - j->n_free, (unsigned long long)ms / 1000);
	fail(j, &err);
}

/* @kept: all of it is durable; else any of it may be gone. */
static void note_flush(struct job *j, bool kept)
{
	for (uint64_t b = 0; j->generations && b < j->n_blocks; b++) {
		if (j->unflushed[b] && !kept)
			j->generations[b] = 0;
		j->unflushed[b] = 0;
	}
}

static void flush(struct job *j)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t began = clock_monotonic_ns();

	if (j->err.code)
		return;
	if (!ros2_flush(j->file, &err)) {
		note_flush(j, true);
	} else if (err.status == ROS2_OUTCOME_UNKNOWN) {
		/* Said once for writes that a lost agent had taken. */
		j->unknown++;
		note_flush(j, false);
	} else {
		fail(j, &err);
	}
	j->flush_ns = clock_monotonic_ns() - began;
}

/* ---- phases ---- */

static void lay_out(struct job *j)
{
	uint64_t heard = clock_monotonic_ns();
	struct ros2_err err = ROS2_ERR_INIT;

	for (uint64_t b = 0; b < j->n_blocks && !j->err.code && !atomic_load(&j->load->stop);) {
		while (j->n_free && b < j->n_blocks && !start(j, RW_WRITE, b, &err))
			b++;
		if (err.code)
			fail(j, &err);
		turn_in_time(j, &heard);
	}
	drain(j);
	flush(j);
}

/* Only written or cleared so far: --verify reads every block whose content is known. */
static void read_back(struct job *j)
{
	uint64_t heard = clock_monotonic_ns();
	struct ros2_err err = ROS2_ERR_INIT;

	for (uint64_t b = 0; b < j->n_blocks && !j->err.code;) {
		for (; j->n_free && b < j->n_blocks && !err.code; b++)
			if (j->generations[b])
				start(j, RW_READ, b, &err);
		if (err.code)
			fail(j, &err);
		if (j->n_free < j->load->o->depth)
			turn_in_time(j, &heard);
	}
	drain(j);
}

static bool may_start(struct job *j)
{
	struct load *l = j->load;

	if (j->err.code || atomic_load_explicit(&l->stop, memory_order_relaxed))
		return false;
	return !l->o->bytes || atomic_fetch_sub(&l->bytes_left, l->o->bs) > 0;
}

static enum bench_rw next_op(struct job *j)
{
	const struct bench_opts *o = j->load->o;

	if (o->rw != RW_BOTH)
		return o->rw;
	return draw(j) % 100 < o->mix ? RW_READ : RW_WRITE;
}

static void work(struct job *j)
{
	const struct bench_opts *o = j->load->o;
	uint64_t heard = clock_monotonic_ns();
	struct ros2_err err = ROS2_ERR_INIT;
	bool more = true;

	while (more && !j->err.code) {
		while (j->n_free && (more = may_start(j))) {
			if (start(j, next_op(j), pick_block(j), &err)) {
				fail(j, &err);
				break;
			}
		}
		/* What is to be moved has an end only if the agent goes on. */
		if (j->n_free < o->depth && o->bytes)
			turn_in_time(j, &heard);
		else if (j->n_free < o->depth)
			turn(j);
		/* Also when nothing comes back, so that nothing more can be begun. */
		more = more && !atomic_load_explicit(&j->load->stop, memory_order_relaxed);
	}
	drain(j);
	if (o->rw != RW_READ)
		flush(j);
}

void *job_main(void *arg)
{
	struct job *j = arg;
	struct load *l = j->load;
	struct ros2_err err = ROS2_ERR_INIT;

	if (set_up(j, &err))
		fail(j, &err);
	else if (l->layout)
		lay_out(j);
	atomic_fetch_add(&l->n_ready, 1);
	while (!atomic_load(&l->go))
		/* poll: the start, once per run */
		usleep(500);
	j->counting = true;
	if (!j->err.code)
		work(j);
	j->counting = false;
	atomic_fetch_add(&l->n_finished, 1);
	if (!j->err.code && l->o->verify && !(l->o->rw & RW_READ))
		read_back(j);
	tear_down(j);
	return NULL;
}
