/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that does disk writes so that the loop never waits for a disk. Jobs run in order, one at
 * a time; the caller bounds how many it has out. Loop thread.
 */
#ifndef ROS2_AGENT_WRITER_H
#define ROS2_AGENT_WRITER_H

#include "common/loop.h"

struct writer;

/* Embedded in the caller's object, which lives until done has begun; zeroed to begin. */
struct writer_job {
	void (*work)(struct writer_job *j); /* on the writer thread */
	void (*done)(struct writer_job *j); /* on the loop, once */
	struct writer_job *next;            /* the writer's */
	struct writer *writer;              /* the writer's */
	struct loop_post post;              /* the writer's */
};

int writer_new(struct loop *loop, const char *name, struct writer **ret);
/* Finishes every job; their done callbacks are posted and run by the loop (loop_free runs them). */
void writer_free(struct writer *w);
void writer_submit(struct writer *w, struct writer_job *j);
#endif
