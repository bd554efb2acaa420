/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what the reactors' threads call of the allocator and of pthread's locks: preloaded into a
 * whole agent (LD_PRELOAD, ROS2_COUNT_FILE) or linked into a test with --wrap. A reactor's thread
 * is one that was named "reactor..." with pthread_setname_np. The counters lie in a file that
 * others may map while the process runs.
 */
#ifndef ROS2_TESTS_BENCH_COUNT_CALLS_H
#define ROS2_TESTS_BENCH_COUNT_CALLS_H

#include <stdatomic.h>
#include <stdint.h>

#define COUNT_MAGIC 0x524f5332434e5431ull

struct count_calls {
	uint64_t magic;
	_Atomic uint64_t reactors; /* threads that are counted */
	_Atomic uint64_t alloc;    /* malloc, calloc, realloc, aligned kinds, free */
	_Atomic uint64_t lock;     /* mutexes, rwlocks, spinlocks, semaphores, condition waits */
	_Atomic uint64_t tid;      /* of the reactor that was named last */
};

#endif
