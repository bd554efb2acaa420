/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this process is the one that made something, or a child that was forked of it. A child
 * has a copy of the memory, and the same open files, but of the threads only the one that forked;
 * a lock that another one held stays locked. What rests on threads, or on files that it shares with
 * nobody, looks here before it touches any of that.
 *
 * Where the kernel wipes a page for children (MADV_WIPEONFORK, Linux 4.14) a look is one load, and
 * right however the process was copied; else it is a system call, and a child that is process 1 of
 * a new PID namespace is taken for a parent that was process 1 of its own.
 */
#ifndef ROS2_COMMON_FORK_MARK_H
#define ROS2_COMMON_FORK_MARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fork_mark {
	volatile uint32_t *here; /* owned: a page, 0 in a child; NULL: the kernel wipes none */
	pid_t pid;
};

/* This process is the one. */
void fork_mark_init(struct fork_mark *m);
/* Not in a child. */
void fork_mark_fini(struct fork_mark *m);
/* From now on this process is the one, and its parent's mark stays as it is. Any thread, and more
 * than one. */
void fork_mark_adopt(struct fork_mark *m);

/* Any thread. */
static inline bool fork_mark_is_child(const struct fork_mark *m)
{
	return m->here ? !__atomic_load_n(m->here, __ATOMIC_RELAXED)
	               : __atomic_load_n(&m->pid, __ATOMIC_RELAXED) != getpid();
}

#ifdef __cplusplus
}
#endif
#endif
