/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control-plane event loop: one thread owns it and everything that hangs on it; other threads
 * only loop_post(). epoll for descriptors, a heap for timers on CLOCK_BOOTTIME, an eventfd for
 * posts. Invariants: (1) callbacks run on the owner thread, one at a time; (2) posts run in order;
 * (3) the post queue is bounded, except loop_post_urgent, whose callers bound themselves
 * (completions of admitted work) and bring the memory, so that a completion cannot be lost.
 */
#ifndef ROS2_COMMON_LOOP_H
#define ROS2_COMMON_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;

typedef void (*loop_fn)(void *arg);

struct loop_opts {
	const char *name; /* borrowed: until loop_free; the thread's name */
	size_t post_max;  /* 0 = 65536 */
};

int loop_new(const struct loop_opts *opts, struct loop **ret);
/* The maker owns the loop until loop_run or loop_thread_start; then the thread that runs it; after
 * loop_thread_join or in loop_free the caller. So timers and descriptors may be set up before the
 * loop runs. loop_free: after loop_run has returned (or if it never ran). Pending posts are run
 * first; timers are dropped. */
void loop_free(struct loop *l);
/* Runs on the calling thread, which becomes the owner, until loop_stop. 0, or negative errno. */
int loop_run(struct loop *l);
/* Any thread: loop_run returns after the current callback and the posts made before. */
void loop_stop(struct loop *l);
/* Starts a thread that runs loop_run; loop_thread_join after loop_stop. */
int loop_thread_start(struct loop *l);
int loop_thread_join(struct loop *l);
bool loop_is_owner(const struct loop *l);
void loop_assert_owner(const struct loop *l);

/* Any thread. 0, or -EBUSY when the queue is full, -ESHUTDOWN after loop_stop, -ENOMEM. */
int loop_post(struct loop *l, loop_fn fn, void *arg);
/* A place in the queue, embedded in its owner; zeroed to begin. It is in the queue at most once:
 * from the beginning of fn on it may be posted again, or go with its owner. */
struct loop_post {
	/* the loop's */
	struct loop_post *next;
	loop_fn fn;
	void *arg;
	bool queued; /* by __atomic_* only: C++ has no _Atomic */
	bool pooled;
};
/* Any thread; cannot fail. As loop_post, without the bound and also accepted after loop_stop (run
 * by loop_free). */
void loop_post_urgent(struct loop *l, struct loop_post *p, loop_fn fn, void *arg);
/* Owner, or any other thread: runs fn on the owner and waits for it. Runs it at once on the owner.
 * -EBUSY and -ESHUTDOWN as loop_post: fn has not run then. The loop must be running, or about to.
 */
int loop_call(struct loop *l, loop_fn fn, void *arg);

/* Timers: owner thread only; embedded in their owner; a zeroed struct is a stopped timer. */
struct loop_timer {
	uint64_t deadline_ns; /* CLOCK_BOOTTIME; never before the turn that armed it */
	uint64_t order;       /* ties fire in the order of arming */
	loop_fn fn;
	void *arg;
	struct loop *loop; /* NULL when stopped */
	struct loop_timer *child, *next,
		*prev; /* the loop's: prev is the parent of a first child */
};
/* (Re)arms: fires once at @deadline_ns (boottime); one in the past fires on the next turn. Always
 * 0: it needs no memory. */
int loop_timer_at(struct loop *l, struct loop_timer *t, uint64_t deadline_ns, loop_fn fn,
                  void *arg);
int loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn, void *arg);
void loop_timer_stop(struct loop_timer *t);

/* Descriptors: owner thread only. @events are EPOLLIN/EPOLLOUT; level-triggered. */
struct loop_fd {
	int fd;
	uint32_t events;
	void (*fn)(void *arg, uint32_t revents);
	void *arg;
	struct loop *loop; /* NULL when not added */
};
int loop_fd_add(struct loop *l, struct loop_fd *f, int fd, uint32_t events,
                void (*fn)(void *arg, uint32_t revents), void *arg);
/* EPOLLERR and EPOLLHUP are reported whatever @events says: to stop listening to a peer that may
 * hang up, delete. */
int loop_fd_mod(struct loop_fd *f, uint32_t events);
/* Does not close the descriptor. */
void loop_fd_del(struct loop_fd *f);

/* Blocks SIGINT and SIGTERM for the whole process and calls fn(arg) on the owner when one arrives.
 * Call it before any thread is started, once per process. SIGHUP goes to @hup if not NULL. SIGPIPE
 * and SIGXFSZ are ignored. The signals stay blocked after loop_free; a child process must unblock
 * them before exec. */
int loop_signals(struct loop *l, loop_fn term, loop_fn hup, void *arg);
#endif
