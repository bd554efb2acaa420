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
 * here on. Waits while the tenant punches one: not on a reactor, nor is the memory to be touched
 * before. -EPERM, -EINVAL: it is not what was made, or Linux is older than 5.1; -ENODATA: pages of
 * it were taken away. */
int shm_memory_seal(struct shm_memory *m);
/* The tenant's own mapping stays with the tenant. */
void shm_memory_unmap(struct shm_memory *m);
/* Unmaps, too. NULL is fine. */
void shm_memory_free(struct shm_memory *m);
#endif
