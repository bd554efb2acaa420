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
#include <stdint.h>

struct shm_memory {
	int fd;       /* -1 once it is sealed: nobody needs it any more */
	uint8_t *map; /* all of it, readable and writable */
	uint64_t bytes;
};

/* @data_bytes behind WIRE_SHM_DATA_OFF. Allocates every page, so it takes milliseconds: not on a
 * reactor. 0, -ENOMEM, -EMFILE, -ENFILE, -ENOSPC. */
int shm_memory_new(uint64_t data_bytes, struct shm_memory **ret, struct ros2_err *err);
/* The tenant has mapped it: nobody can map it for writing, write to it or punch holes into it from
 * here on. Waits while the tenant punches one: not on a reactor, nor is the memory to be touched
 * before. -EPERM, -EINVAL: it is not what was made, or Linux is older than 5.1; -ENODATA: pages of
 * it were taken away. */
int shm_memory_seal(struct shm_memory *m);
/* NULL is fine. The tenant's own mapping stays with the tenant. */
void shm_memory_free(struct shm_memory *m);
#endif
