/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether it pays to look at a ring a little longer before sleeping: to be woken takes longer than
 * most answers do. Both sides of a ring in shared memory may use it, each for itself. It is bounded
 * (a look takes at most RING_WATCH_NS), it learns (a side whose looks bring nothing sleeps at once,
 * and only now and then tries again), and where there is one processor it is never done: the other
 * side could not run meanwhile. Pure but for the number of processors.
 */
#ifndef ROS2_COMMON_RING_WATCH_H
#define ROS2_COMMON_RING_WATCH_H

#include "common/clock.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define RING_WATCH_LOOKS 64u              /* between two looks at anything else */
#define RING_WATCH_NS    (50 * NS_PER_US) /* about what a wake-up costs */
/* A look that brought something counts one, one in vain two: it is worth it when more than two of
 * three do. */
#define RING_WATCH_LUCK  16u
#define RING_WATCH_RETRY 64u

struct ring_watch {
	bool alone;     /* there is one processor */
	uint32_t luck;  /* 0: only one time in RING_WATCH_RETRY */
	uint32_t slept; /* times without a look since the last one */
};

static inline void ring_watch_init(struct ring_watch *w)
{
	cpu_set_t set;

	/* More than a set has room for are more than one. */
	*w = (struct ring_watch){.luck = RING_WATCH_LUCK / 2};
	w->alone = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
}

/* Is it to be tried now? Then its outcome is told. */
static inline bool ring_watch_begin(struct ring_watch *w)
{
	if (w->alone || (!w->luck && ++w->slept < RING_WATCH_RETRY))
		return false;
	w->slept = 0;
	return true;
}

static inline void ring_watch_end(struct ring_watch *w, bool came)
{
	if (came)
		w->luck += w->luck < RING_WATCH_LUCK;
	else
		w->luck -= w->luck < 2 ? w->luck : 2;
}

/* A moment, for a loop that looks at memory. */
static inline void ring_watch_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
#endif
