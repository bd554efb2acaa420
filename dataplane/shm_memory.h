/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a session over shm shares with its tenant: a memfd of wire.h's layout. What seals
 * give, and why in this order: docs/decisions/0006-shm-sealing.md.
 *
 * made (SHRINK, GROW) --descriptor sent, MAPPED came--> sealed (and FUTURE_WRITE, SEAL) --> freed
 */
#ifndef ROS2_DATAPLANE_SHM_MEMORY_H
#define ROS2_DATAPLANE_SHM_MEMORY_H

#include "common/err.h"
#include "common/ids.h"
#include "common/util.h"
#include <stdint.h>

struct shm_memory {
	int fd;       /* -1 once it is sealed: nobody needs it any more */
	uint8_t *map; /* all of it, readable and writable; NULL once it was let go */
	uint64_t bytes;
	/* shm_kept.c */
	int watch;
	struct ros2_uid tenant;
	struct list link;
};

/* @data_bytes behind WIRE_SHM_DATA_OFF, watched by @inotify_fd. Allocates every page, so it takes
 * milliseconds: not on a reactor. 0, -ENOMEM, -EMFILE, -ENFILE, -ENOSPC. */
int shm_memory_new(uint64_t data_bytes, int inotify_fd, struct shm_memory **ret,
                   struct ros2_err *err);
/* The tenant has mapped it: nobody can map it for writing, write to it or punch holes into it from
 * here on. Waits while the tenant punches one, or writes by a system call, which may never end, and
 * no signal ends the wait: where that matters a process of its own does it (shm_sealer.h). So does
 * fstat of some kernels (6.6.60, 6.1.116), which is why the look for holes is here, too. -EPERM,
 * -EINVAL: it is not what was made, or Linux is older than 5.1; -ENODATA: pages of it were taken
 * away. */
int shm_memory_add_seals(int fd);
/* That was done by whoever it was: looked at again, which waits for nobody, and ready for a
 * reactor. Takes milliseconds: not on one. -EINVAL: it was not. */
int shm_memory_sealed(struct shm_memory *m);
/* The tenant's own mapping stays with the tenant. */
void shm_memory_unmap(struct shm_memory *m);
/* Unmaps, too. NULL is fine. */
void shm_memory_free(struct shm_memory *m);
#endif
