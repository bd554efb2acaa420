/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control-plane event loop. A turn is: wait in epoll, descriptors, due timers, the posts that
 * were waiting when the turn reached them. Must never hold the lock while a callback runs.
 * Invariants: (1) no armed timer is earlier than `first`; (2) the timerfd is armed for it
 * whenever the loop waits; (3) an entry of ready[] whose descriptor was deleted is NULL, so
 * no callback runs on a dead object; (4) after stopping is set only urgent posts enter the queue;
 * (5) a post that waits or runs is no other's: a pooled one goes back to the pool when its batch is
 * over, any other is not touched once its callback has begun.
 */
#include "common/loop.h"
#include "common/clock.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#define POST_MAX_DEFAULT 65536
#define READY_MAX        64
#define POSTS_PER_CHUNK  64

struct post_queue {
	struct loop_post *first, **end; /* borrowed, or of the pool */
};

/* Of loop_post, whose callers bring no memory. */
struct post_chunk {
	struct post_chunk *next;
	struct loop_post posts[POSTS_PER_CHUNK];
};

struct loop {
	/* immutable after init */
	const char *name; /* borrowed: until loop_free */
	size_t post_max;
	int epoll_fd, event_fd, timer_fd;

	/* any thread */
	_Atomic(const void *) owner; /* NULL while a started thread has not taken over */
	pthread_mutex_t lock;

	/* guarded by lock */
	struct post_queue waiting;
	size_t n_bounded;          /* of waiting: those that count against post_max */
	struct post_chunk *chunks; /* owned */
	struct loop_post *pool;    /* of chunks: free ones */
	bool stopping;
	bool asleep; /* in epoll_wait, or about to be: a post must write to event_fd */

	/* owner thread */
	struct loop_timer *first; /* borrowed: the root of the heap of timers */
	uint64_t order, armed_ns, turn_ns;
	struct epoll_event ready[READY_MAX];
	int n_ready;
	struct loop_fd wake, alarm, signals;
	loop_fn term, hup;
	void *signal_arg;
	pthread_t thread;
	bool has_thread;
};

/* The address of a thread-local names the thread: cheap to read, unique among living threads. */
static const void *self(void)
{
	static _Thread_local char here;

	return &here;
}

static void own(struct loop *l, const void *who)
{
	atomic_store_explicit(&l->owner, who, memory_order_release);
}

bool loop_is_owner(const struct loop *l)
{
	return atomic_load_explicit(&((struct loop *)l)->owner, memory_order_acquire) == self();
}

void loop_assert_owner(const struct loop *l)
{
	assert(loop_is_owner(l));
}

/* Timers */

static bool earlier(const struct loop_timer *a, const struct loop_timer *b)
{
	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns < b->deadline_ns;
	return a->order < b->order;
}

/* A pairing heap (Fredman, Sedgewick, Sleator, Tarjan 1986) of timers that carry its links: arming
 * takes no memory, so it cannot fail. The later of two roots becomes the first child of the
 * earlier. */
static struct loop_timer *meld(struct loop_timer *a, struct loop_timer *b)
{
	if (!a || !b)
		return a ? a : b;
	if (earlier(b, a)) {
		struct loop_timer *t = a;

		a = b;
		b = t;
	}
	b->next = a->child;
	b->prev = a;
	if (b->next)
		b->next->prev = b;
	a->child = b;
	return a;
}

/* One root of a row of siblings: in pairs from the left, then all from the right. */
static struct loop_timer *meld_row(struct loop_timer *t)
{
	struct loop_timer *pairs = NULL, *root = NULL;

	while (t) {
		struct loop_timer *a = t, *b = t->next;

		t = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		a = meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while (pairs) {
		t = pairs;
		pairs = t->next;
		t->next = NULL;
		root = meld(root, t);
	}
	return root;
}

static void heap_add(struct loop *l, struct loop_timer *t)
{
	t->child = t->next = t->prev = NULL;
	l->first = meld(l->first, t);
}

static void heap_remove(struct loop *l, struct loop_timer *t)
{
	struct loop_timer *below = meld_row(t->child);

	if (t == l->first) {
		l->first = below;
		return;
	}
	if (t->prev->child == t)
		t->prev->child = t->next;
	else
		t->prev->next = t->next;
	if (t->next)
		t->next->prev = t->prev;
	l->first = meld(l->first, below);
}

int loop_timer_at(struct loop *l, struct loop_timer *t, uint64_t deadline_ns, loop_fn fn, void *arg)
{
	loop_assert_owner(l);
	assert(!t->loop || t->loop == l);
	if (t->loop)
		heap_remove(l, t);
	t->loop = l;
	/* A past deadline counts as "this turn": a timer that always re-arms in the past cannot
	 * starve others. */
	t->deadline_ns = MAX(deadline_ns, MAX(l->turn_ns, 1)); /* 0 would disarm the timerfd */
	t->order = ++l->order;
	t->fn = fn;
	t->arg = arg;
	heap_add(l, t);
	return 0;
}

int loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn, void *arg)
{
	uint64_t ns;

	if (__builtin_mul_overflow(ms, NS_PER_MS, &ns))
		ns = UINT64_MAX;
	return loop_timer_at(l, t, clock_add_ns(clock_boottime_ns(), ns), fn, arg);
}

void loop_timer_stop(struct loop_timer *t)
{
	struct loop *l = t->loop;

	if (!l)
		return;
	loop_assert_owner(l);
	heap_remove(l, t);
	t->loop = NULL;
}

/* Timers armed by a callback of this turn wait for the next one. */
static void run_timers(struct loop *l)
{
	uint64_t last_order = l->order;

	while (l->first && l->first->deadline_ns <= l->turn_ns && l->first->order <= last_order) {
		struct loop_timer *t = l->first;

		loop_timer_stop(t);
		t->fn(t->arg);
	}
}

static int arm_alarm(struct loop *l)
{
	uint64_t ns = l->first ? l->first->deadline_ns : 0;
	/* it_value 0 disarms; a deadline beyond what time_t holds is as good as never. */
	uint64_t s = MIN(ns / NS_PER_S, (uint64_t)INT64_MAX / NS_PER_S);
	struct itimerspec when = {
		.it_value = {.tv_sec = (time_t)s, .tv_nsec = (long)(ns % NS_PER_S)}};

	if (ns == l->armed_ns)
		return 0;
	if (timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) < 0)
		return -errno;
	l->armed_ns = ns;
	return 0;
}

static void on_alarm(void *arg, uint32_t revents)
{
	struct loop *l = arg;
	uint64_t expirations;

	/* The count is of no interest; the read makes the descriptor quiet. */
	if (read(l->timer_fd, &expirations, sizeof(expirations)) > 0)
		l->armed_ns = 0;
}

/* Descriptors */

int loop_fd_add(struct loop *l, struct loop_fd *f, int fd, uint32_t events,
                void (*fn)(void *arg, uint32_t revents), void *arg)
{
	struct epoll_event ev = {.events = events, .data.ptr = f};

	loop_assert_owner(l);
	assert(!f->loop);
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*f = (struct loop_fd){.fd = fd, .events = events, .fn = fn, .arg = arg, .loop = l};
	return 0;
}

int loop_fd_mod(struct loop_fd *f, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = f};

	assert(f->loop);
	loop_assert_owner(f->loop);
	if (f->events == events)
		return 0;
	if (epoll_ctl(f->loop->epoll_fd, EPOLL_CTL_MOD, f->fd, &ev) < 0)
		return -errno;
	f->events = events;
	return 0;
}

void loop_fd_del(struct loop_fd *f)
{
	struct loop *l = f->loop;

	if (!l)
		return;
	loop_assert_owner(l);
	/* Fails only when the caller closed the descriptor first, and then the kernel has forgotten
	 * it. */
	(void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, f->fd, NULL);
	for (int i = 0; i < l->n_ready; i++)
		if (l->ready[i].data.ptr == f)
			l->ready[i].data.ptr = NULL;
	f->loop = NULL;
}

static void run_fds(struct loop *l)
{
	for (int i = 0; i < l->n_ready; i++) {
		struct loop_fd *f = l->ready[i].data.ptr;
		uint32_t revents = l->ready[i].events;

		if (!f)
			continue;
		/* Interest that a callback of this turn withdrew is not reported any more. */
		revents &= f->events | EPOLLERR | EPOLLHUP;
		if (revents)
			f->fn(f->arg, revents);
	}
	l->n_ready = 0;
}

/* Posts */

static void wake_up(struct loop *l)
{
	uint64_t one = 1;

	/* Not even made: loop_free of what loop_new could not finish. */
	if (l->event_fd < 0)
		return;
	/* EAGAIN means the counter is full, so the loop will wake anyway. */
	if (write(l->event_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN || errno == EINTR);
}

static void on_wake(void *arg, uint32_t revents)
{
	struct loop *l = arg;
	uint64_t count;

	if (read(l->event_fd, &count, sizeof(count)) < 0)
		assert(errno == EAGAIN || errno == EINTR);
}

static void queue_init(struct post_queue *q)
{
	q->first = NULL;
	q->end = &q->first;
}

/* Lock held. */
static void queue_push(struct post_queue *q, struct loop_post *p, loop_fn fn, void *arg)
{
	p->next = NULL;
	p->fn = fn;
	p->arg = arg;
	*q->end = p;
	q->end = &p->next;
}

/* Lock held. One of the pool, or NULL without memory. */
static struct loop_post *pool_take(struct loop *l)
{
	struct post_chunk *c;
	struct loop_post *p;

	if (!l->pool) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return NULL;
		c->next = l->chunks;
		l->chunks = c;
		for (int i = 0; i < POSTS_PER_CHUNK; i++) {
			c->posts[i].pooled = true;
			c->posts[i].next = l->pool;
			l->pool = &c->posts[i];
		}
	}
	p = l->pool;
	l->pool = p->next;
	return p;
}

/* Bounded. @own: the caller's place, NULL for one of the pool. */
static int post(struct loop *l, struct loop_post *own, loop_fn fn, void *arg)
{
	struct loop_post *p = own;
	bool wake = false;
	int r = 0;

	pthread_mutex_lock(&l->lock);
	if (l->stopping)
		r = -ESHUTDOWN;
	else if (l->n_bounded >= l->post_max)
		r = -EBUSY;
	else if (!p && !(p = pool_take(l)))
		r = -ENOMEM;
	if (r == 0) {
		queue_push(&l->waiting, p, fn, arg);
		l->n_bounded++;
		wake = l->asleep;
		l->asleep = false;
	}
	pthread_mutex_unlock(&l->lock);
	if (wake)
		wake_up(l);
	return r;
}

int loop_post(struct loop *l, loop_fn fn, void *arg)
{
	return post(l, NULL, fn, arg);
}

void loop_post_urgent(struct loop *l, struct loop_post *p, loop_fn fn, void *arg)
{
	bool wake, twice = __atomic_exchange_n(&p->queued, true, __ATOMIC_SEQ_CST);

	/* The queue would lose what stands between: worse than an end that says why. */
	if (twice) {
		fprintf(stderr, "fatal: a completion was posted twice on loop %s\n", l->name);
		abort();
	}
	pthread_mutex_lock(&l->lock);
	queue_push(&l->waiting, p, fn, arg);
	wake = l->asleep;
	l->asleep = false;
	pthread_mutex_unlock(&l->lock);
	if (wake)
		wake_up(l);
}

static struct post_queue take_posts(struct loop *l)
{
	struct post_queue taken;

	pthread_mutex_lock(&l->lock);
	taken = l->waiting;
	queue_init(&l->waiting);
	l->n_bounded = 0;
	l->asleep = false;
	pthread_mutex_unlock(&l->lock);
	return taken;
}

static void pool_give(struct loop *l, struct post_queue *done)
{
	if (!done->first)
		return;
	pthread_mutex_lock(&l->lock);
	*done->end = l->pool;
	l->pool = done->first;
	pthread_mutex_unlock(&l->lock);
}

/* Takes everything that waits and runs it in order. Returns how many ran. */
static size_t run_posts(struct loop *l)
{
	struct loop_post *next, *p = take_posts(l).first;
	struct post_queue done;
	size_t n = 0;

	queue_init(&done);
	for (; p; p = next, n++) {
		loop_fn fn = p->fn;
		void *arg = p->arg;

		next = p->next;
		if (p->pooled)
			queue_push(&done, p, NULL, NULL);
		else
			__atomic_store_n(&p->queued, false, __ATOMIC_SEQ_CST);
		fn(arg);
	}
	pool_give(l, &done);
	return n;
}

struct call {
	struct loop_post post;
	loop_fn fn;
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done; /* guarded by lock */
};

static void run_call(void *arg)
{
	struct call *c = arg;

	c->fn(c->arg);
	pthread_mutex_lock(&c->lock);
	c->done = true;
	/* Under the lock: the caller's frame, which holds the condition, may be gone right after.
	 */
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

int loop_call(struct loop *l, loop_fn fn, void *arg)
{
	struct call c = {.fn = fn, .arg = arg};
	int r;

	if (loop_is_owner(l)) {
		fn(arg);
		return 0;
	}
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.cond, NULL);
	r = post(l, &c.post, run_call, &c);
	if (r == 0) {
		pthread_mutex_lock(&c.lock);
		while (!c.done)
			pthread_cond_wait(&c.cond, &c.lock);
		pthread_mutex_unlock(&c.lock);
	}
	pthread_cond_destroy(&c.cond);
	pthread_mutex_destroy(&c.lock);
	return r;
}

/* Life */

static int open_fds(struct loop *l)
{
	int r;

	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0)
		return -errno;
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->event_fd < 0)
		return -errno;
	l->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (l->timer_fd < 0)
		return -errno;
	r = loop_fd_add(l, &l->wake, l->event_fd, EPOLLIN, on_wake, l);
	if (r < 0)
		return r;
	return loop_fd_add(l, &l->alarm, l->timer_fd, EPOLLIN, on_alarm, l);
}

int loop_new(const struct loop_opts *opts, struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->name = opts && opts->name ? opts->name : "loop";
	l->post_max = opts && opts->post_max ? opts->post_max : POST_MAX_DEFAULT;
	l->epoll_fd = l->event_fd = l->timer_fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	queue_init(&l->waiting);
	own(l, self());
	r = open_fds(l);
	if (r < 0) {
		loop_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static bool is_stopping(struct loop *l)
{
	bool stopping;

	pthread_mutex_lock(&l->lock);
	stopping = l->stopping;
	pthread_mutex_unlock(&l->lock);
	return stopping;
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	own(l, self());
	loop_stop(l);
	while (run_posts(l))
		;
	while (l->first)
		loop_timer_stop(l->first);
	if (l->signals.loop) {
		loop_fd_del(&l->signals);
		close(l->signals.fd);
	}
	util_close_cleanup(&l->timer_fd);
	util_close_cleanup(&l->event_fd);
	util_close_cleanup(&l->epoll_fd);
	pthread_mutex_destroy(&l->lock);
	while (l->chunks) {
		struct post_chunk *c = l->chunks;

		l->chunks = c->next;
		free(c);
	}
	free(l);
}

/* Milliseconds to wait: what is posted from here on wakes the loop. */
static int fall_asleep(struct loop *l)
{
	bool asleep;

	pthread_mutex_lock(&l->lock);
	asleep = l->asleep = !l->waiting.first;
	pthread_mutex_unlock(&l->lock);
	return asleep ? -1 : 0;
}

static int turn(struct loop *l)
{
	int n, r;

	r = arm_alarm(l);
	if (r < 0)
		return r;
	n = epoll_wait(l->epoll_fd, l->ready, READY_MAX, fall_asleep(l));
	if (n < 0 && errno != EINTR)
		return -errno;
	l->n_ready = MAX(n, 0);
	l->turn_ns = clock_boottime_ns();
	run_fds(l);
	run_timers(l);
	run_posts(l);
	return 0;
}

int loop_run(struct loop *l)
{
	int r = 0;

	own(l, self());
	while (r == 0 && !is_stopping(l))
		r = turn(l);
	/* The posts made before loop_stop; those after it are urgent ones and may as well run now.
	 */
	run_posts(l);
	return r;
}

void loop_stop(struct loop *l)
{
	pthread_mutex_lock(&l->lock);
	l->stopping = true;
	pthread_mutex_unlock(&l->lock);
	wake_up(l);
}

static void *thread_main(void *arg)
{
	struct loop *l = arg;

	return (void *)(intptr_t)loop_run(l);
}

int loop_thread_start(struct loop *l)
{
	char name[16];
	int r;

	assert(!l->has_thread);
	loop_assert_owner(l);
	/* From here on a loop_call of this thread waits like any other's. */
	own(l, NULL);
	r = pthread_create(&l->thread, NULL, thread_main, l);
	if (r) {
		own(l, self());
		return -r;
	}
	l->has_thread = true;
	snprintf(name, sizeof(name), "%s", l->name);
	pthread_setname_np(l->thread, name);
	return 0;
}

int loop_thread_join(struct loop *l)
{
	void *result;

	assert(l->has_thread);
	if (pthread_join(l->thread, &result))
		abort();
	l->has_thread = false;
	own(l, self());
	return (int)(intptr_t)result;
}

/* Signals */

static void on_signal(void *arg, uint32_t revents)
{
	struct loop *l = arg;
	struct signalfd_siginfo info;

	while (read(l->signals.fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGHUP)
			l->hup(l->signal_arg);
		else
			l->term(l->signal_arg);
	}
}

int loop_signals(struct loop *l, loop_fn term, loop_fn hup, void *arg)
{
	sigset_t set;
	int fd, r;

	loop_assert_owner(l);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (hup)
		sigaddset(&set, SIGHUP);
	r = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r)
		return -r;
	/* Of a limit of file sizes (RLIMIT_FSIZE) the call itself tells: EFBIG. */
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || signal(SIGXFSZ, SIG_IGN) == SIG_ERR)
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	l->term = term;
	l->hup = hup;
	l->signal_arg = arg;
	r = loop_fd_add(l, &l->signals, fd, EPOLLIN, on_signal, l);
	if (r < 0)
		close(fd);
	return r;
}
