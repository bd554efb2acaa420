/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem engine's data path: a queue per reactor, carried out in poll: reads by lending chunks
 * where the caller can take them, else by copying, as writes do. No lock, no allocation and no
 * system call but the clock's; a write over a hole takes chunks from the pool before it copies, so
 * that a full engine never leaves half a write behind.
 */
#include "dataplane/engines/mem_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LOOK_BYTES 16384u

struct engine_reactor {
	/* any thread */
	_Atomic uint64_t turn; /* odd = inside poll */
	/* reactor's thread */
	struct engine *engine;    /* borrowed: outlives its reactors */
	struct engine_io **queue; /* owned: ring of @depth */
	uint32_t depth, head, count;
	uint64_t copied_bytes;
	uint64_t now_unix_ns;       /* read once per poll */
	uint64_t now_ns, looked_at; /* the clock, and copied_bytes when it was read */
	/* guarded by engine.reactors_lock */
	struct list link;
};

int mem_reactor_new(struct engine *e, const struct engine_reactor_opts *o,
                    struct engine_reactor **ret, struct ros2_err *err)
{
	struct engine_reactor *r;

	if (o->depth == 0 || o->depth > 65536)
		return ros2_err_set(err, -EINVAL,
		                    "mem engine: depth: expected 1 to 65536, found %u", o->depth);
	r = calloc(1, sizeof(*r));
	if (r)
		r->queue = calloc(o->depth, sizeof(struct engine_io *));
	if (!r || !r->queue) {
		free(r);
		return ros2_err_set(err, -ENOMEM, "mem engine: no memory for a reactor");
	}
	r->engine = e;
	r->depth = o->depth;
	pthread_mutex_lock(&e->reactors_lock);
	list_add_tail(&e->reactors, &r->link);
	pthread_mutex_unlock(&e->reactors_lock);
	*ret = r;
	return 0;
}

void mem_reactor_free(struct engine_reactor *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->engine->reactors_lock);
	list_del(&r->link);
	pthread_mutex_unlock(&r->engine->reactors_lock);
	free(r->queue);
	free(r);
}

void mem_reactors_pass(struct engine *e)
{
	struct engine_reactor *r;

	/* A reactor in the list is not freed while the lock is held, and a poll is short: waiting
	 * here is bounded. */
	pthread_mutex_lock(&e->reactors_lock);
	list_for_each (&e->reactors, r, link) {
		uint64_t seen = atomic_load(&r->turn);

		while ((seen & 1) && atomic_load(&r->turn) == seen)
			sched_yield();
	}
	pthread_mutex_unlock(&e->reactors_lock);
}

int mem_event_fd(struct engine_reactor *r)
{
	return -1;
}

int mem_submit(struct engine_reactor *r, struct engine_io *io)
{
	if (r->count == r->depth)
		return -EAGAIN;
	r->queue[(r->head + r->count++) % r->depth] = io;
	return 0;
}

/* It is late from now on. */
void mem_withdraw(struct engine_reactor *r, struct engine_io *io)
{
	io->until_ns = 1;
}

int mem_kick(struct engine_reactor *r)
{
	return 0;
}

uint32_t mem_in_flight(const struct engine_reactor *r)
{
	return r->count;
}

uint64_t mem_copied_bytes(const struct engine_reactor *r)
{
	return r->copied_bytes;
}

/* The chunk that holds byte @at; 0 = a hole. */
static uint32_t chunk_of(struct engine *e, struct mem_data *d, uint64_t at)
{
	_Atomic uint32_t *slot = mem_slot(e, d, at >> MEM_CHUNK_SHIFT, false);

	return slot ? atomic_load_explicit(slot, memory_order_acquire) : 0;
}

static void lend(struct engine_reactor *r, struct engine_io *io, uint64_t left)
{
	static const uint8_t zeros[MEM_CHUNK];
	struct mem_data *d = io->file->node->data;
	struct mem_pool *pool = &r->engine->pool;
	uint64_t at = io->offset;

	while (left > 0) {
		size_t in = at % MEM_CHUNK, n = MIN(left, MEM_CHUNK - in);
		uint32_t id = chunk_of(r->engine, d, at);
		const uint8_t *from = id ? mem_pool_at(pool, id) : zeros;

		if (id)
			mem_pool_ref(pool, id);
		io->lent[io->n_parts] = id;
		io->parts[io->n_parts++] = (struct iovec){(uint8_t *)from + in, n};
		at += n;
		left -= n;
	}
}

void mem_unlend(struct engine_io *io)
{
	for (uint32_t i = 0; i < io->n_parts; i++)
		if (io->lent[i])
			mem_pool_put(&io->file->engine->pool, io->lent[i]);
	io->n_parts = 0;
}

static int64_t do_read(struct engine_reactor *r, struct engine_io *io)
{
	struct mem_data *d = io->file->node->data;
	uint64_t size = atomic_load_explicit(&d->size, memory_order_acquire), at = io->offset;
	uint64_t left = at < size ? MIN(size - at, io->len) : 0;
	int64_t res = (int64_t)left;
	uint8_t *to = io->buf;

	if (io->may_lend && left <= (ENGINE_PARTS_MAX - 1) * MEM_CHUNK) {
		lend(r, io, left);
		return res;
	}
	while (left > 0) {
		size_t in = at % MEM_CHUNK, n = MIN(left, MEM_CHUNK - in);
		uint32_t id = chunk_of(r->engine, d, at);

		if (id) {
			memcpy(to, mem_pool_at(&r->engine->pool, id) + in, n);
			r->copied_bytes += n;
		} else {
			memset(to, 0, n);
		}
		to += n;
		at += n;
		left -= n;
	}
	return res;
}

static int take_chunks(struct engine_reactor *r, struct mem_data *d, uint64_t from, uint64_t end)
{
	for (uint64_t i = from >> MEM_CHUNK_SHIFT; i <= (end - 1) >> MEM_CHUNK_SHIFT; i++)
		if (!mem_slot(r->engine, d, i, true))
			return -ENOSPC;
	return 0;
}

static void copy_in(struct engine_reactor *r, struct mem_data *d, const struct engine_io *io)
{
	const uint8_t *from = io->buf;
	uint64_t at = io->offset, left = io->len;

	while (left > 0) {
		size_t in = at % MEM_CHUNK, n = MIN(left, MEM_CHUNK - in);
		_Atomic uint32_t *slot = mem_slot(r->engine, d, at >> MEM_CHUNK_SHIFT, false);

		memcpy(mem_pool_at(&r->engine->pool,
		                   atomic_load_explicit(slot, memory_order_acquire)) +
		               in,
		       from, n);
		from += n;
		at += n;
		left -= n;
	}
	r->copied_bytes += io->len;
}

static int64_t do_write(struct engine_reactor *r, struct engine_io *io)
{
	struct mem_data *d = io->file->node->data;
	uint64_t end, size;

	if (io->len == 0)
		return 0;
	if (__builtin_add_overflow(io->offset, (uint64_t)io->len, &end) || end > MEM_FILE_MAX)
		return -EFBIG;
	if (!r->engine->null_mode) {
		int rc = take_chunks(r, d, io->offset, end);

		if (rc < 0)
			return rc;
		copy_in(r, d, io);
	}
	size = atomic_load_explicit(&d->size, memory_order_relaxed);
	while (size < end &&
	       !atomic_compare_exchange_weak_explicit(&d->size, &size, end, memory_order_release,
	                                              memory_order_relaxed))
		;
	atomic_store_explicit(&d->mtime_unix_ns, r->now_unix_ns, memory_order_relaxed);
	return io->len;
}

/* A whole chunk stays the file's and gives its RAM back; only truncate may take it out of the table
 * (mem_priv.h, rule 3). Where the system refuses, and in parts of a chunk: zeros the slow way. */
static void clear(const struct mem_pool *pool, uint32_t id, size_t in, size_t n)
{
	uint8_t *at = mem_pool_at(pool, id) + in;

	if (n < MEM_CHUNK || madvise(at, n, MADV_DONTNEED) < 0)
		memset(at, 0, n);
}

static int64_t do_clear(struct engine_reactor *r, struct engine_io *io)
{
	struct mem_data *d = io->file->node->data;
	uint64_t size = atomic_load_explicit(&d->size, memory_order_acquire), at = io->offset;
	uint64_t left = at < size ? MIN(size - at, io->len) : 0, end;

	if (io->len > ENGINE_ZERO_MAX)
		return -EINVAL;
	if (__builtin_add_overflow(io->offset, (uint64_t)io->len, &end) || end > MEM_FILE_MAX)
		return -EFBIG;
	if (left == 0 || r->engine->null_mode)
		return io->len;
	while (left > 0) {
		size_t in = at % MEM_CHUNK, n = MIN(left, MEM_CHUNK - in);
		uint32_t id = chunk_of(r->engine, d, at);

		if (id)
			clear(&r->engine->pool, id, in, n);
		at += n;
		left -= n;
	}
	r->looked_at = r->copied_bytes - LOOK_BYTES; /* it took as long as a copy */
	atomic_store_explicit(&d->mtime_unix_ns, r->now_unix_ns, memory_order_relaxed);
	return io->len;
}

static int64_t carry_out(struct engine_reactor *r, struct engine_io *io)
{
	switch (io->op) {
	case ENGINE_OP_READ:
		return io->file->flags & ENGINE_READ ? do_read(r, io) : -EBADF;
	case ENGINE_OP_WRITE:
		return io->file->flags & ENGINE_WRITE ? do_write(r, io) : -EBADF;
	case ENGINE_OP_ZERO:
	case ENGINE_OP_DISCARD:
		return io->file->flags & ENGINE_WRITE ? do_clear(r, io) : -EBADF;
	case ENGINE_OP_FLUSH:
		return 0; /* RAM: nothing outlives the process, and no flush can change that */
	}
	return -EINVAL;
}

/* To copy is to hand on: between two looks at the clock no more than LOOK_BYTES are copied. */
static bool is_late(struct engine_reactor *r, const struct engine_io *io)
{
	if (r->copied_bytes - r->looked_at >= LOOK_BYTES) {
		r->now_ns = clock_boottime_ns();
		r->looked_at = r->copied_bytes;
	}
	return io->until_ns && r->now_ns >= io->until_ns;
}

static struct engine_io *take(struct engine_reactor *r)
{
	struct engine_io *io = r->queue[r->head];

	r->head = (r->head + 1) % r->depth;
	r->count--;
	return io;
}

uint32_t mem_poll(struct engine_reactor *r, uint32_t max)
{
	uint32_t n = r->count, done = 0;
	struct timespec ts;

	if (n == 0 || max == 0)
		return 0;
	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	r->now_unix_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	r->now_ns = clock_boottime_ns();
	r->looked_at = r->copied_bytes;
	for (; n > 0 && done < max; n--) {
		struct engine_io *io = take(r);
		int64_t res;

		/* turn before gate, both sequentially consistent: truncate sets the gate and then
		 * looks at turn, so one of the two sees the other. */
		atomic_fetch_add(&r->turn, 1);
		if (atomic_load(&io->file->node->data->gate)) {
			atomic_fetch_add(&r->turn, 1);
			mem_submit(r, io); /* there is room: it has just left */
			continue;
		}
		res = is_late(r, io) ? ENGINE_LATE : carry_out(r, io);
		atomic_fetch_add(&r->turn, 1);
		io->done(io, res); /* outside the turn: it may submit more, or take long */
		done++;
	}
	return done;
}
