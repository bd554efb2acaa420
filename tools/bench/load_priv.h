/* SPDX-License-Identifier: Apache-2.0 */
/* What `ros2-bench run` and its jobs share. */
#ifndef ROS2_TOOLS_BENCH_LOAD_PRIV_H
#define ROS2_TOOLS_BENCH_LOAD_PRIV_H

#include "tools/bench/bench.h"
#include <pthread.h>
#include <stdatomic.h>

struct slot {
	uint8_t *buf;             /* borrowed: of the session */
	uint64_t began_ns, block; /* block: index in the job's slice */
	uint32_t generation;      /* of a write */
	enum bench_rw op;         /* one of READ, WRITE, ZERO, TRIM */
};

struct load;
struct job {
	struct load *load; /* borrowed */
	pthread_t thread;
	uint32_t index;
	/* the job's thread; main reads them after joining it */
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
	struct slot *slots;           /* owned */
	uint32_t *free_slots, n_free; /* owned */
	uint64_t first_block, n_blocks, next;
	uint32_t *generations; /* owned; per block, 0 = not known, else see job.c; --verify only */
	uint8_t *busy;         /* owned; --verify only */
	uint8_t *unflushed; /* owned; per block, changed since the last good flush; --verify only */
	uint64_t rng;
	uint32_t last_generation; /* never given to two writes */
	struct hist read, write, clear;
	uint64_t verified, unknown, reconnects, copied, flush_ns;
	bool counting;       /* what ends now belongs to the measurement */
	struct ros2_err err; /* the first */
	/* any thread */
	_Atomic uint64_t moved;
};

struct load {
	const struct bench_opts *o; /* borrowed */
	struct ros2_client *client; /* owned */
	struct job *jobs;           /* owned */
	uint32_t n_jobs;
	bool layout;
	/* Of the pattern: no other run has it, so that what a run before this one wrote is no right
	 * answer. */
	uint64_t pattern;
	uint64_t began_ns, ended_ns;
	struct ros2_err err; /* of the whole; what a job met comes after it */
	/* any thread */
	atomic_bool go, stop, measuring;
	atomic_uint n_ready, n_finished;
	_Atomic int64_t bytes_left;
};

void job_init(struct job *j, struct load *l, uint32_t index);
void *job_main(void *arg);
#endif
