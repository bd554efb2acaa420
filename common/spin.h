/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether it pays to look at a ring or a socket a little longer before sleeping: to be woken takes
 * longer than most answers do, and its price is paid by who answers. Each side may use it, for
 * itself. It is bounded (a look takes at most SPIN_NS), it learns (a side whose looks bring nothing
 * sleeps at once, and only now and then tries again), and where there is one processor it is never
 * done: the other side could not run meanwhile. Pure but for the number of processors. The idea is
 * that of the kernel's halt polling (Documentation/virt/guest-halt-polling.rst).
 */
#ifndef ROS2_COMMON_SPIN_H
#define ROS2_COMMON_SPIN_H

#include "common/clock.h"
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define SPIN_LOOKS 64u              /* between two looks at anything else */
#define SPIN_NS    (50 * NS_PER_US) /* about what a wake-up costs */
/* A look that brought something counts one, one in vain two: it is worth it when more than two of
 * three do. */
#define SPIN_LUCK  16u
#define SPIN_RETRY 64u

struct spin {
	bool alone;     /* there is one processor */
	uint32_t luck;  /* 0: only one time in SPIN_RETRY */
	uint32_t slept; /* times without a look since the last one */
};

static inline void spin_init(struct spin *w)
{
	cpu_set_t set;

	/* More than a set has room for are more than one. */
	*w = (struct spin){.luck = SPIN_LUCK / 2};
	w->alone = sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
}

/* Is it to be tried now? Then its outcome is told. */
static inline bool spin_begin(struct spin *w)
{
	if (w->alone || (!w->luck && ++w->slept < SPIN_RETRY))
		return false;
	w->slept = 0;
	return true;
}

static inline void spin_end(struct spin *w, bool came)
{
	if (came)
		w->luck += w->luck < SPIN_LUCK;
	else
		w->luck -= w->luck < 2 ? w->luck : 2;
}

/* A moment, for a loop that looks at memory. */
static inline void spin_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
#endif
