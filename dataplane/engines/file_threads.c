/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file engine's reactor where io_uring is forbidden: a few threads make the system calls.
 * Operations wait in a list of the reactor until kick, then in one shared list under a lock;
 * results come back in another and wake the event descriptor. Flushes, which take long and of which
 * one tenant may have hundreds here, have lists of their own, and half of the threads at most;
 * where there is only one it takes of both by turns.
 */
#include "dataplane/engines/file_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#define THREADS_MAX 4u

/* In io->priv[3], until the result is there. */
enum { WAITS, AT_WORK };

/* A queue through io->priv[2]; bounded by the reactor's depth. */
struct ios {
	struct engine_io *first, *last;
};

struct threads {
	struct engine_reactor base;
	/* reactor's thread */
	struct ios unsent, unsent_flushes;
	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct ios todo, flushes, done;
	struct {
		struct engine_io *io; /* NULL: waits for work */
		bool withdrawn;
	} at_work[THREADS_MAX]; /* by thread */
	uint32_t begun;         /* threads */
	uint32_t flushing;
	bool flush_next, stop;
	/* immutable after new */
	uint32_t most_flushing;
	pthread_t thread[THREADS_MAX];
	uint32_t n_threads;
};

static struct threads *threads_of(struct engine_reactor *r)
{
	return container_of(r, struct threads, base);
}

static void push(struct ios *q, struct engine_io *io)
{
	io->priv[2] = 0;
	if (q->first)
		q->last->priv[2] = (uint64_t)(uintptr_t)io;
	else
		q->first = io;
	q->last = io;
}

static struct engine_io *pop(struct ios *q)
{
	struct engine_io *io = q->first;

	if (io)
		q->first = (struct engine_io *)(uintptr_t)io->priv[2];
	return io;
}

/* All of @from go behind @to. */
static void append(struct ios *to, struct ios *from)
{
	if (!from->first)
		return;
	if (to->first)
		to->last->priv[2] = (uint64_t)(uintptr_t)from->first;
	else
		to->first = from->first;
	to->last = from->last;
	from->first = NULL;
}

static void wake(struct engine_reactor *r)
{
	uint64_t one = 1;

	/* fails only when the counter is full, and then it is readable */
	if (write(r->event_fd, &one, sizeof(one)) < 0)
		return;
}

static bool is_withdrawn(struct threads *t, uint32_t me)
{
	bool yes;

	pthread_mutex_lock(&t->lock);
	yes = t->at_work[me].withdrawn;
	pthread_mutex_unlock(&t->lock);
	return yes;
}

/* A call is a system call here, so each has its own look at the clock, and at whether what is left
 * of one of which a part is done was withdrawn meanwhile. */
static int64_t carry_out(struct threads *t, uint32_t me, struct engine_io *io)
{
	struct file_step step;
	bool first = true;
	int64_t res = 0;

	for (file_io_begin(io, &step, &res); step.call != FILE_CALL_NONE; first = false) {
		if (io->until_ns && file_io_is_late(io, clock_boottime_ns()))
			return file_io_late(io);
		if (!first && is_withdrawn(t, me))
			return file_io_late(io);
		file_io_next(io, file_io_call(&step), &step, &res);
	}
	return res;
}

/* The next to be carried out; NULL: none now. Under the lock: from here on its thread alone looks
 * at it. */
static struct engine_io *take(struct threads *t)
{
	bool may_flush = t->flushes.first && t->flushing < t->most_flushing;
	bool flush = may_flush && (t->flush_next || !t->todo.first);
	struct engine_io *io = pop(flush ? &t->flushes : &t->todo);

	t->flush_next = !flush;
	t->flushing += flush;
	if (io)
		io->priv[3] = AT_WORK;
	return io;
}

/* Under the lock. */
static void put_done(struct threads *t, struct engine_io *io, int64_t res)
{
	bool first = t->done.first == NULL;

	io->priv[3] = (uint64_t)res;
	push(&t->done, io);
	if (first)
		wake(&t->base);
	if (io->op != ENGINE_OP_FLUSH)
		return;
	t->flushing--;
	/* This thread may take something else. */
	if (t->flushes.first)
		pthread_cond_signal(&t->work);
}

static void *work(void *arg)
{
	struct threads *t = arg;
	struct engine_io *io;
	uint32_t me;
	int64_t res;

	pthread_mutex_lock(&t->lock);
	me = t->begun++;
	for (;;) {
		while (!(io = take(t)) && !t->stop)
			pthread_cond_wait(&t->work, &t->lock);
		if (!io)
			break;
		t->at_work[me].io = io;
		t->at_work[me].withdrawn = false;
		pthread_mutex_unlock(&t->lock);
		res = carry_out(t, me, io);
		pthread_mutex_lock(&t->lock);
		t->at_work[me].io = NULL;
		put_done(t, io, res);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int threads_submit(struct engine_reactor *r, struct engine_io *io)
{
	struct threads *t = threads_of(r);

	if (r->in_flight == r->depth)
		return -EAGAIN;
	io->priv[3] = WAITS;
	push(io->op == ENGINE_OP_FLUSH ? &t->unsent_flushes : &t->unsent, io);
	r->in_flight++;
	return 0;
}

static int threads_kick(struct engine_reactor *r)
{
	struct threads *t = threads_of(r);

	if (!t->unsent.first && !t->unsent_flushes.first)
		return 0;
	pthread_mutex_lock(&t->lock);
	append(&t->todo, &t->unsent);
	append(&t->flushes, &t->unsent_flushes);
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static uint32_t threads_poll(struct engine_reactor *r, uint32_t max)
{
	struct threads *t = threads_of(r);
	struct ios mine = {0};
	struct engine_io *io;
	uint32_t n = 0;
	uint64_t count;
	bool more;

	pthread_mutex_lock(&t->lock);
	while (n < max && (io = pop(&t->done))) {
		push(&mine, io);
		n++;
	}
	more = t->done.first != NULL;
	/* under the lock: a result that comes later finds the list empty and wakes again */
	if (n > 0 && !more && read(r->event_fd, &count, sizeof(count)) < 0)
		count = 0;
	pthread_mutex_unlock(&t->lock);
	r->in_flight -= n;
	while ((io = pop(&mine)))
		io->done(io, (int64_t)io->priv[3]);
	return n;
}

static void threads_free(struct engine_reactor *r)
{
	struct threads *t = threads_of(r);

	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 0; i < t->n_threads; i++)
		pthread_join(t->thread[i], NULL);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->work);
	close(r->event_fd);
	free(t);
}

/* Of one that is done already nobody looks at the time any more. */
static void threads_withdraw(struct engine_reactor *r, struct engine_io *io)
{
	struct threads *t = threads_of(r);

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->begun; i++)
		t->at_work[i].withdrawn |= t->at_work[i].io == io;
	if (io->priv[3] == WAITS)
		io->until_ns = 1;
	pthread_mutex_unlock(&t->lock);
}

static const struct file_backend threads_backend = {threads_submit, threads_kick, threads_poll,
                                                    threads_free, threads_withdraw};

static int start_threads(struct threads *t, uint32_t n)
{
	sigset_t all, was;
	int rc = 0;

	/* signals are for the program's own threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	while (rc == 0 && t->n_threads < n) {
		rc = -pthread_create(&t->thread[t->n_threads], NULL, work, t);
		if (rc == 0)
			t->n_threads++;
	}
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return t->n_threads > 0 ? 0 : rc;
}

int file_threads_new(const struct engine_reactor_opts *o, struct engine_reactor **ret)
{
	struct threads *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->base = (struct engine_reactor){.backend = &threads_backend, .depth = o->depth};
	t->base.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (t->base.event_fd < 0) {
		rc = -errno;
		free(t);
		return rc;
	}
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	t->most_flushing = MAX(MIN(o->depth, THREADS_MAX) / 2, 1u);
	rc = start_threads(t, MIN(o->depth, THREADS_MAX));
	if (rc < 0) {
		threads_free(&t->base);
		return rc;
	}
	*ret = &t->base;
	return 0;
}
