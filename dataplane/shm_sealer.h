/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who seals the memory of sessions over shm: for each a process of its own that has that descriptor
 * and nothing else. The kernel lets nobody seal while a system call writes to the memory, such a
 * call may be held for as long as the tenant likes (a page of its own that is never there), and no
 * signal ends the wait. A thread that waits so can be neither given up nor joined, and keeps what
 * the agent's process has open (its lock, its port) after SIGKILL. That process is given up instead
 * (docs/decisions/0056-sealed-by-a-process.md).
 *
 * sent to the thread that starts it > runs > over
 *                                     runs > left (nobody waits: killed) > ends when it may
 */
#ifndef ROS2_DATAPLANE_SHM_SEALER_H
#define ROS2_DATAPLANE_SHM_SEALER_H

#include "common/err.h"
#include "common/ids.h"
#include <stdbool.h>

/* Of one tenant, that were left and have not ended. */
#define SHM_SEALER_LEFT 4u
#define SHM_SEALER_LIMIT                                                                           \
	"shared memory of the tenant's sessions that is still being written to by system calls: "  \
	"the limit is %u (fixed): let these calls end"

struct shm_sealer;

/* @program: dp_opts.seal_program, borrowed. */
int shm_sealer_new(const char *program, struct shm_sealer **ret, struct ros2_err *err);
/* Nobody waits any more, from here on. NULL is fine, as for all below. */
void shm_sealer_stop(struct shm_sealer *s);
/* After it was stopped and who waited has gone. Does not wait for what was left. */
void shm_sealer_free(struct shm_sealer *s);
/* True: what @tenant maps can be sealed. False: it holds as many as it may. */
bool shm_sealer_may(struct shm_sealer *s, const struct ros2_uid *tenant);
/* A worker: as shm_memory_add_seals of @fd. @whose names it to shm_sealer_cancel. -ETIMEDOUT: it
 * is being written to; -ECANCELED; -EDQUOT: shm_sealer_may is false; -EAGAIN: the process
 * found no time to; or why it could not. */
int shm_sealer_seal(struct shm_sealer *s, const struct ros2_uid *tenant, const void *whose, int fd);
/* Who waits for what is @whose does so no more. Any thread. */
void shm_sealer_cancel(struct shm_sealer *s, const void *whose);
#endif
