/* SPDX-License-Identifier: Apache-2.0 */
/* What shm_link.c and shm_memory.c share. */
#ifndef ROS2_CLIENT_SHM_PRIV_H
#define ROS2_CLIENT_SHM_PRIV_H

#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"

#define SHM_PAGE      4096u
#define SHM_STAGE_MAX (8u << 20)

struct shm_arena {
	uint8_t *map; /* owned: the whole memfd */
	size_t len;
	uint32_t refs; /* the connection's, and one for each region in it */
};

struct shm_link {
	struct shm_arena *arena; /* a reference; NULL: not connected */
	/* Our own counts of the two rings: what the agent says of them is never believed. */
	uint32_t written, taken;
	uint32_t n_idle; /* rounds in which nothing came */
	bool is_over;    /* the agent has hung up ... */
	int error;       /* ... with this; 0 = an orderly end */
	bool sent_files; /* ... or is to be: open files came from it */
	/* The stage of this arena, or of the last one: in session->regions; NULL: no room for it.
	 * A bit for each of its pages that is with the agent. */
	struct ros2_region *stage;
	uint32_t n_pages;
	uint64_t pages_in_use[SHM_STAGE_MAX / SHM_PAGE / 64];
};

/* Maps @fd whole. */
int shm_arena_new(int fd, size_t len, struct shm_arena **ret, struct ros2_err *err);
/* @a becomes the connection's, also on error; with a stage of its own. */
int shm_arena_adopt(struct ros2_session *s, struct shm_arena *a, struct ros2_err *err);
#endif
