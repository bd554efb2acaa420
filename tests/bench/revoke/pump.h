/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that reads without pause, by hand over wire.h: one session, one thread. What has arrived
 * is the kernel's count of the socket (TCP_INFO), so that bytes which nobody has read yet count,
 * too. It ends when the agent cuts the connection.
 */
#ifndef ROS2_TESTS_BENCH_PUMP_H
#define ROS2_TESTS_BENCH_PUMP_H

#include "tests/client/raw/raw.h"
#include <pthread.h>
#include <stdatomic.h>

struct pump {
	struct raw_session session;
	uint64_t handle;
	uint32_t key, bytes, depth;
	int fd;
	pthread_t thread;
	_Atomic uint64_t replies;
	_Atomic int end; /* 0 while it runs; then why: -ECONNRESET is what a revocation gives */
};

/* A session with file and region, then @depth reads of @bytes in flight. Errors by name; REVOKED
 * while the agent has not heard of a reinstatement yet. */
int pump_start(struct pump *p, struct raw *r, const char *ns, uint32_t bytes, uint32_t depth,
               struct ros2_err *err);
/* Bytes that have reached the socket so far; also after its end. */
uint64_t pump_arrived(const struct pump *p);
/* Waits for the end; -ETIMEDOUT when the connection outlives @timeout_ms. Cuts it then. */
int pump_join(struct pump *p, int timeout_ms);
#endif
