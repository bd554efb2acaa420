/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults: the loop of a test in which the 1st, 2nd, 3rd ... call of a kind fails, until a
 *round ends in which none did; first only that call, then that call and all after it.
 *
 *	struct sweep s = {.kind = SWEEP_URING_SUBMIT, .error = EAGAIN};
 *	while (sweep_next(&s)) {
 *		rc = work();
 *		sweep_off();
 *		(check rc, sweep_fired(), the invariants; work again must succeed)
 *	}
 *
 * With ROS2_SWEEP_STRIDE=N in the environment (an ordinary run, emulated processors) only every Nth
 * call after the 20th is tried; every Mth with ROS2_SWEEP_STRIDE_OWN=M beside it (a test whose
 *calls are many and alike). Without the first all are, whatever the second says.
 *
 * One sweep at a time per process. Calls are counted in all threads, from sweep_next to sweep_off,
 * but for what a thread does between sweep_hold and sweep_release: a test's own peer.
 */
#ifndef ROS2_TESTS_SWEEP_SWEEP_H
#define ROS2_TESTS_SWEEP_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

enum sweep_kind {
	SWEEP_URING_SETUP = 1, /* queue_init_params, register_*, get_probe, enabling */
	SWEEP_URING_SUBMIT,
	SWEEP_URING_RESULT, /* the result of a completion becomes -error */
	SWEEP_SEND,         /* send, sendmsg */
	SWEEP_RECV,         /* recv, readv */
	SWEEP_ALLOC,        /* malloc, calloc, realloc, reallocarray, strdup, strndup, *_aligned */
	SWEEP_OPEN,         /* openat2 */
	SWEEP_FD,           /* socket, eventfd, epoll_create1, timerfd_create */
	SWEEP_ACCEPT,       /* accept, accept4 */
	SWEEP_CONNECT,
	SWEEP_EPOLL_CTL, /* ADD and MOD */
	SWEEP_WAIT,      /* epoll_wait, epoll_pwait2, poll */
	SWEEP_THREAD,    /* pthread_create */
	SWEEP_MMAP,
	SWEEP_READ,   /* read, pread of regular files */
	SWEEP_WRITE,  /* write, pwrite of regular files, rename */
	SWEEP_SYNC,   /* fsync */
	SWEEP_BIND,   /* bind, listen, getsockname */
	SWEEP_MEMFD,  /* memfd_create, ftruncate, fallocate, fcntl of seals */
	SWEEP_SQLITE, /* what SQLite allocates */
};

/* As error: the call moves one byte. */
#define SWEEP_SHORT (-1)

struct sweep {
	enum sweep_kind kind;
	int error;          /* positive errno, or SWEEP_SHORT */
	const char *thread; /* only calls of threads whose name begins so; NULL = all */
	uint32_t most;      /* a persistent fault ends after so many calls; 0 = never */
	/* filled by sweep_next */
	bool persistent;
	uint32_t at;     /* the call that fails, from 1 */
	uint32_t points; /* calls up to the last that failed, both ways of failing */
};

/* Begins the next round and arms it; false after the last. */
bool sweep_next(struct sweep *s);
/* One round by itself: the call @s->at fails, with @s->persistent all after it, too. */
void sweep_arm(const struct sweep *s);
/* No call fails from here on. */
void sweep_off(void);
/* A call failed in this round. */
bool sweep_fired(void);
/* Calls of the kind so far in this round. */
uint32_t sweep_calls(void);

/* Descriptors this process has open. */
unsigned sweep_fds(void);
/* True when there are no more than @before, or soon: another thread may be closing some. */
bool sweep_fds_back(unsigned before);
void sweep_hold(void);
void sweep_release(void);

/* For the wrappers: the errno this call fails with, or 0. */
int sweep_hit(enum sweep_kind kind);
#endif
