/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file engine's reactor over io_uring: the only file that knows liburing. Features are tried,
 * best first: completions run when we ask for them (DEFER_TASKRUN, Linux 6.1), then cooperative
 * ones (5.19), then plain. Registered buffers are used when the system lets us pin them.
 *
 * Invariants: an operation has at most one submission entry, and the ring has at least depth of
 * them, so an entry is always free; the event descriptor stays readable while the ring holds a
 * completion. What the kernel refuses is offered again for REFUSED_NS, then taken back and
 * answered: a submission that cannot be made is an error of its operations, never a hang.
 */
#include "dataplane/engines/file_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#define REFUSED_NS  (100 * NS_PER_MS)
#define WORKERS_MAX 16384u /* more than a thread's rings have operations */

struct uring {
	struct engine_reactor base;
	struct io_uring ring;
	uint32_t setup;      /* IORING_SETUP_* in use */
	bool enabled;        /* the ring belongs to the thread of the first kick */
	bool fixed;          /* buffers are registered */
	uint32_t idle;       /* polls in a row that found nothing */
	int refused;         /* what the kernel last said to what waits in the ring; 0 = took it */
	uint64_t refused_ns; /* since then it took and completed nothing */
	uint64_t last_ns;    /* nothing in the ring is late before or at this time */
	struct {
		struct engine_io *first, *last; /* through priv[2]: was late, ends in poll */
	} late;
	char kind[48];
};

static struct uring *uring_of(struct engine_reactor *r)
{
	return container_of(r, struct uring, base);
}

/* Until when it is not late. What only turns in the ring hands nothing on, and never is. */
static uint64_t in_time_until(const struct engine_io *io)
{
	/* 0, no limit, is far away then */
	return io->priv[2] == FILE_CALL_NONE ? UINT64_MAX : io->until_ns - 1;
}

static void prepare(struct uring *u, struct engine_io *io, const struct file_step *s, int64_t res)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	bool fixed = u->fixed && io->buf_index >= 0;

	switch (s->call) {
	case FILE_CALL_READ:
		if (fixed)
			io_uring_prep_read_fixed(sqe, s->fd, s->buf, s->len, s->offset,
			                         io->buf_index);
		else
			io_uring_prep_read(sqe, s->fd, s->buf, s->len, s->offset);
		break;
	case FILE_CALL_WRITE:
		if (fixed)
			io_uring_prep_write_fixed(sqe, s->fd, s->buf, s->len, s->offset,
			                          io->buf_index);
		else
			io_uring_prep_write(sqe, s->fd, s->buf, s->len, s->offset);
		break;
	case FILE_CALL_FDATASYNC:
	case FILE_CALL_FSYNC:
		io_uring_prep_fsync(sqe, s->fd,
		                    s->call == FILE_CALL_FDATASYNC ? IORING_FSYNC_DATASYNC : 0);
		break;
	case FILE_CALL_PUNCH:
		io_uring_prep_fallocate(sqe, s->fd, FILE_PUNCH_MODE, (off_t)s->offset,
		                        (off_t)s->len);
		break;
	case FILE_CALL_NONE:
		/* finished before it began: a turn through the ring, so that done comes from poll
		 * and the event wakes */
		io_uring_prep_nop(sqe);
		break;
	}
	io->priv[2] = s->call;
	io->priv[3] = (uint64_t)res;
	io_uring_sqe_set_data(sqe, io);
	u->last_ns = MIN(u->last_ns, in_time_until(io));
}

static int uring_submit(struct engine_reactor *r, struct engine_io *io)
{
	struct file_step step;
	int64_t res = 0;

	if (r->in_flight == r->depth)
		return -EAGAIN;
	file_io_begin(io, &step, &res);
	prepare(uring_of(r), io, &step, res);
	r->in_flight++;
	return 0;
}

static void wake(struct engine_reactor *r)
{
	uint64_t one = 1;

	/* fails only when the counter is full, and then it is readable */
	if (write(r->event_fd, &one, sizeof(one)) < 0)
		return;
}

static int hand_over(struct uring *u)
{
	int rc;

	if (!u->enabled) {
		/* liburing 2.3 declares io_uring_enable_rings and does not export it */
		rc = (int)syscall(SYS_io_uring_register, u->ring.ring_fd,
		                  IORING_REGISTER_ENABLE_RINGS, NULL, 0);
		if (rc < 0)
			return -errno;
		u->enabled = true;
	}
	return io_uring_submit(&u->ring);
}

static void put_late(struct uring *u, struct engine_io *io)
{
	io->priv[2] = 0;
	io->priv[3] = (uint64_t)file_io_late(io);
	if (u->late.first)
		u->late.last->priv[2] = (uint64_t)(uintptr_t)io;
	else
		u->late.first = io;
	u->late.last = io;
}

/* Takes what is late out of the ring, where the kernel has not seen it (without SQPOLL it looks
 * there only inside io_uring_enter); the others close up. */
static void take_late(struct uring *u, uint64_t now_ns)
{
	struct io_uring_sq *sq = &u->ring.sq;
	uint32_t head = *sq->khead, to = head;

	u->last_ns = UINT64_MAX;
	for (uint32_t at = head; at != sq->sqe_tail; at++) {
		struct io_uring_sqe *sqe = &sq->sqes[at & sq->ring_mask];
		struct engine_io *io = (struct engine_io *)(uintptr_t)sqe->user_data;

		if (now_ns > in_time_until(io)) {
			put_late(u, io);
			continue;
		}
		u->last_ns = MIN(u->last_ns, in_time_until(io));
		sq->sqes[to++ & sq->ring_mask] = *sqe;
	}
	sq->sqe_head = *sq->ktail = head;
	sq->sqe_tail = to;
	if (u->late.first)
		wake(&u->base);
}

static uint32_t end_late(struct uring *u)
{
	struct engine_io *io = u->late.first;
	uint32_t done = 0;

	u->late.first = NULL; /* done may submit, and kick */
	for (struct engine_io *next; io; io = next, done++) {
		next = (struct engine_io *)(uintptr_t)io->priv[2];
		u->base.in_flight--;
		io->done(io, (int64_t)io->priv[3]);
	}
	return done;
}

static int uring_kick(struct engine_reactor *r)
{
	struct uring *u = uring_of(r);
	uint32_t before = io_uring_sq_ready(&u->ring), left;
	uint64_t now_ns;
	int rc;

	if (before == 0)
		return 0;
	/* The last thing before the system call. */
	while ((now_ns = clock_boottime_ns()) > u->last_ns)
		take_late(u, now_ns);
	if (io_uring_sq_ready(&u->ring) == 0) {
		u->refused = 0;
		return 0;
	}
	rc = hand_over(u);
	left = io_uring_sq_ready(&u->ring);
	if (left == 0 || left < before)
		u->refused = 0;
	if (left == 0) {
		u->last_ns = UINT64_MAX;
		return 0;
	}
	/* What the kernel had no room for stays in the ring; poll offers it again, or answers it.
	 */
	if (u->refused == 0)
		u->refused_ns = clock_boottime_ns();
	u->refused = rc < 0 ? rc : -EAGAIN;
	wake(r);
	return 0;
}

/* True when the operation is over. */
static bool take_result(struct uring *u, struct engine_io *io, int32_t got)
{
	struct file_step step;
	int64_t res = (int64_t)io->priv[3];

	if (io->priv[2] != FILE_CALL_NONE) {
		file_io_next(io, got, &step, &res);
		if (step.call != FILE_CALL_NONE) {
			prepare(u, io, &step, 0);
			return false;
		}
	}
	u->base.in_flight--;
	io->done(io, res);
	return true;
}

static bool gave_up(const struct uring *u)
{
	if (u->refused == -EAGAIN || u->refused == -EBUSY || u->refused == -EINTR)
		return clock_boottime_ns() - u->refused_ns > REFUSED_NS;
	return u->refused < 0;
}

/* The end of an operation whose next step the kernel never saw. */
static int64_t refused_result(const struct uring *u, const struct engine_io *io)
{
	bool passing = u->refused == -EAGAIN || u->refused == -EBUSY || u->refused == -EINTR;

	if (io->priv[2] == FILE_CALL_NONE)
		return (int64_t)io->priv[3];
	if (engine_op_changes(io->op) && io->priv[0] > 0)
		return -EREMOTEIO; /* a part is written */
	return passing || u->refused == -ENOMEM ? -ENOMEM : -EIO;
}

/* Takes back everything the kernel has not taken (without SQPOLL it looks at the ring only inside
 * io_uring_enter) and ends it. All of it leaves the ring first: done may submit. */
static uint32_t take_back(struct uring *u)
{
	struct io_uring_sq *sq = &u->ring.sq;
	uint32_t head = *sq->khead, done = 0;
	struct engine_io *first = NULL, *io;

	for (uint32_t at = sq->sqe_tail; at != head; at--) {
		io = (struct engine_io *)(uintptr_t)sq->sqes[(at - 1) & sq->ring_mask].user_data;
		io->priv[3] = (uint64_t)refused_result(u, io);
		io->priv[2] = (uint64_t)(uintptr_t)first;
		first = io;
	}
	sq->sqe_head = sq->sqe_tail = head;
	*sq->ktail = head;
	u->refused = 0;
	for (; (io = first); done++) {
		first = (struct engine_io *)(uintptr_t)io->priv[2];
		u->base.in_flight--;
		io->done(io, (int64_t)io->priv[3]);
	}
	return done;
}

static bool has_more(struct uring *u)
{
	return io_uring_cq_ready(&u->ring) > 0 ||
	       (__atomic_load_n(u->ring.sq.kflags, __ATOMIC_RELAXED) &
	        (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW));
}

static void clear_event(struct engine_reactor *r)
{
	uint64_t n;

	if (read(r->event_fd, &n, sizeof(n)) < 0)
		return; /* was not set */
}

/* Returns how many completions there were; *ended: operations that are over by them. */
static uint32_t take_batch(struct uring *u, uint32_t max, uint32_t *ended)
{
	struct io_uring_cqe *cqes[64];
	struct engine_io *ios[64];
	int32_t got[64];
	uint32_t n = io_uring_peek_batch_cqe(&u->ring, cqes, MIN(max, ARRAY_SIZE(cqes)));

	for (uint32_t i = 0; i < n; i++) {
		ios[i] = io_uring_cqe_get_data(cqes[i]);
		got[i] = cqes[i]->res;
	}
	io_uring_cq_advance(&u->ring, n);
	if (n > 0)
		u->refused_ns = clock_boottime_ns(); /* memory comes back */
	*ended = 0;
	for (uint32_t i = 0; i < n; i++)
		*ended += take_result(u, ios[i], got[i]);
	return n;
}

static uint32_t uring_poll(struct engine_reactor *r, uint32_t max)
{
	struct uring *u = uring_of(r);
	uint32_t n, ended, done = 0;

	if (!has_more(u) && io_uring_sq_ready(&u->ring) == 0 && !u->late.first) {
		/* A wake-up may come after its completion was taken: it is cleared here, but not at
		 * a system call per turn of a reactor that spins. One that comes in between is seen
		 * by the second look: its signal may be the one that was cleared. */
		if (u->idle++ % 16 != 0)
			return 0;
		clear_event(r);
		if (!has_more(u))
			return 0;
	} else {
		clear_event(r);
	}
	u->idle = 0;
	do {
		n = take_batch(u, max - done, &ended);
		done += ended;
	} while (n > 0 && done < max && has_more(u));
	if (io_uring_sq_ready(&u->ring) > 0 && (u->enabled || u->refused))
		uring_kick(r);
	if (gave_up(u))
		done += take_back(u);
	done += end_late(u);
	if (has_more(u))
		wake(r);
	else if (r->in_flight == 0)
		clear_event(r); /* signals of what was reaped in the same batch */
	return done;
}

static void uring_free(struct engine_reactor *r)
{
	struct uring *u = uring_of(r);

	io_uring_queue_exit(&u->ring);
	close(r->event_fd);
	free(u);
}

/* What the kernel has goes on; its next step, if there is one, is late. */
static void uring_withdraw(struct engine_reactor *r, struct engine_io *io)
{
	io->until_ns = 1;
	uring_of(r)->last_ns = 0;
}

static const struct file_backend uring_backend = {uring_submit, uring_kick, uring_poll, uring_free,
                                                  uring_withdraw};

static int make_ring(struct uring *u, const struct engine *e, uint32_t depth)
{
	static const struct {
		uint32_t flags, left_out_by;
		const char *kind;
	} ways[] = {
		{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
	                 IORING_SETUP_TASKRUN_FLAG,
	         ENGINE_IO_NO_DEFER, "io_uring, deferred"},
		{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, ENGINE_IO_NO_COOP,
	         "io_uring, cooperative"},
		{0, 0, "io_uring, plain"},
	};
	int rc = -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(ways) && rc == -EINVAL; i++) {
		struct io_uring_params p = {.flags = ways[i].flags | IORING_SETUP_R_DISABLED |
		                                     IORING_SETUP_CLAMP};

		if (e->io_features & ways[i].left_out_by)
			continue;
		rc = io_uring_queue_init_params(depth, &u->ring, &p);
		if (rc < 0)
			continue;
		if (p.sq_entries < depth || !(p.features & IORING_FEAT_NODROP)) {
			io_uring_queue_exit(&u->ring);
			return -EOPNOTSUPP;
		}
		u->setup = ways[i].flags;
		strcpy(u->kind, ways[i].kind);
	}
	return rc;
}

static bool ops_supported(struct io_uring *ring)
{
	static const int needed[] = {IORING_OP_NOP,        IORING_OP_READ,        IORING_OP_WRITE,
	                             IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED, IORING_OP_FSYNC};
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool ok = probe != NULL;

	for (size_t i = 0; ok && i < ARRAY_SIZE(needed); i++)
		ok = io_uring_opcode_supported(probe, needed[i]);
	io_uring_free_probe(probe);
	return ok;
}

/* What blocks the kernel gives to threads: flushes, holes, on some file systems each write through
 * the page cache. It has four for each processor, for all rings of a reactor together, so calls
 * that stand in one tenant's file would keep everybody's waiting, at every engine. With one for
 * each they do not, as long as this process may have so many threads. A kernel that cannot be told
 * so (before 5.15) goes on with its own number. */
static void allow_workers(struct uring *u, uint32_t n)
{
	unsigned int most[2] = {n ? n : WORKERS_MAX, 0}; /* 0: as it is, of what is not a file */

	(void)io_uring_register_iowq_max_workers(&u->ring, most);
}

int file_uring_new(const struct engine *e, const struct engine_reactor_opts *o,
                   struct engine_reactor **ret)
{
	struct uring *u = calloc(1, sizeof(*u));
	int rc;

	if (!u)
		return -ENOMEM;
	rc = make_ring(u, e, o->depth);
	if (rc < 0) {
		free(u);
		return rc;
	}
	u->last_ns = UINT64_MAX;
	u->base = (struct engine_reactor){.backend = &uring_backend, .depth = o->depth};
	u->base.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	rc = u->base.event_fd < 0 ? -errno : io_uring_register_eventfd(&u->ring, u->base.event_fd);
	if (rc == 0 && !ops_supported(&u->ring))
		rc = -EOPNOTSUPP;
	if (rc < 0) {
		if (u->base.event_fd >= 0)
			close(u->base.event_fd);
		io_uring_queue_exit(&u->ring);
		free(u);
		return rc;
	}
	allow_workers(u, o->io_workers);
	if (o->n_buffers > 0 && !(e->io_features & ENGINE_IO_NO_FIXED))
		u->fixed = io_uring_register_buffers(&u->ring, o->buffers, o->n_buffers) == 0;
	if (u->fixed)
		strcat(u->kind, ", fixed buffers");
	*ret = &u->base;
	return 0;
}

const char *file_reactor_kind(const struct engine_reactor *r)
{
	return r->backend == &uring_backend ? container_of(r, struct uring, base)->kind : "threads";
}
