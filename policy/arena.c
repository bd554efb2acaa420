/* SPDX-License-Identifier: Apache-2.0 */
/* A chunked bump allocator; pieces are aligned for any type and never move. */
#include "policy/arena.h"
#include "common/util.h"
#include <stdint.h>
#include <string.h>

#define CHUNK_SIZE 8192u

struct arena_chunk {
	struct arena_chunk *next;
	max_align_t data[];
};

static int grow(struct arena *a, size_t n)
{
	size_t size = MAX(n, (size_t)CHUNK_SIZE);
	struct arena_chunk *c = calloc(1, sizeof(*c) + size);

	if (!c) {
		a->failed = true;
		return -1;
	}
	c->next = a->head;
	a->head = c;
	a->used = 0;
	a->size = size;
	return 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
	size_t align = _Alignof(max_align_t);
	void *p;

	if (n > SIZE_MAX / 2) {
		a->failed = true;
		return NULL;
	}
	n = n ? (n + align - 1) / align * align : align;
	if ((!a->head || a->size - a->used < n) && grow(a, n) < 0)
		return NULL;
	p = (char *)a->head->data + a->used;
	a->used += n;
	return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		a->failed = true;
		return NULL;
	}
	return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	if (p)
		memcpy(p, s, n);
	return p;
}

void arena_fini(struct arena *a)
{
	while (a->head) {
		struct arena_chunk *next = a->head->next;

		free(a->head);
		a->head = next;
	}
	*a = (struct arena){0};
}
