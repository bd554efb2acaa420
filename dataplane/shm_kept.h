/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of sessions over shm that this side has let go. A tenant's mapping or descriptor of it, in
 * whatever process it is, keeps its pages, and nothing can take them away once the memory is
 * sealed: so it counts for the tenant until nobody has it. The kernel tells that of each by inotify
 * (IN_DELETE_SELF), with the last mapping, descriptor (O_PATH, too) or message on its way gone.
 * Where its queue was full (IN_Q_OVERFLOW) the watches that it still has are read instead.
 */
#ifndef ROS2_DATAPLANE_SHM_KEPT_H
#define ROS2_DATAPLANE_SHM_KEPT_H

#include "common/err.h"
#include "common/loop.h"
#include "common/util.h"

struct dp;
struct ros2_uid;
struct shm_memory;

struct shm_kept {
	int fd;          /* inotify; -1 = no transport over shm */
	int always;      /* a watch that never ends; -1: none was had */
	bool lost;       /* the kernel had no room for some ends: who is gone has to be found */
	struct list all; /* shm_memory.link; owned */
	struct loop_fd watch;
};

/* Loop. */
int shm_kept_open(struct dp *dp, struct ros2_err *err);
/* Nothing is told of any more; takes one that was not opened. */
void shm_kept_stop(struct dp *dp);
void shm_kept_close(struct dp *dp);
/* Lets go of @m, which counts for @tenant; it is no longer the caller's. Counted down here when
 * nobody else has it by now. */
void shm_kept_put(struct dp *dp, const struct ros2_uid *tenant, struct shm_memory *m);
/* Takes what the kernel has told by now. */
void shm_kept_look(struct dp *dp);
#endif
