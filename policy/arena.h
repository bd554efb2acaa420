/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of one document: given out zeroed, freed all at once with the document. The caller may
 * forget to look at NULL only where it hands the result straight on; `failed` stays set after the
 * first refusal.
 */
#ifndef ROS2_POLICY_ARENA_H
#define ROS2_POLICY_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct arena_chunk;
struct arena {
	struct arena_chunk *head; /* owned */
	size_t used, size;        /* of the head chunk */
	bool failed;
};

void *arena_alloc(struct arena *a, size_t n);
void *arena_array(struct arena *a, size_t n,
                  size_t size); /* never NULL for n == 0 unless out of memory */
/* A NUL-terminated copy of @n bytes. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
void arena_fini(struct arena *a);
#endif
