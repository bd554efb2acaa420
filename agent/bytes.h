/* SPDX-License-Identifier: Apache-2.0 */
/* Little- and big-endian numbers in byte layouts, and a growing buffer, for the files of agent/. */
#ifndef ROS2_AGENT_BYTES_H
#define ROS2_AGENT_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline void put_le32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}
static inline void put_le64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}
static inline void put_be64(uint8_t *p, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(v >> (56 - 8 * i));
}
static inline uint32_t get_le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t get_le64(const uint8_t *p)
{
	return get_le32(p) | (uint64_t)get_le32(p + 4) << 32;
}

/* A zeroed struct is empty. After a failed allocation `failed` stays set and puts do nothing, so
 * one check at the end is enough. */
struct buf {
	uint8_t *p; /* owned */
	size_t n, cap;
	bool failed;
};

static inline void buf_put(struct buf *b, const void *p, size_t n)
{
	if (b->failed)
		return;
	if (b->n + n > b->cap) {
		size_t cap = b->cap ? b->cap * 2 : 4096;
		void *q;

		while (cap < b->n + n)
			cap *= 2;
		q = realloc(b->p, cap);
		if (!q) {
			b->failed = true;
			return;
		}
		b->p = (uint8_t *)q;
		b->cap = cap;
	}
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
}
static inline void buf_fini(struct buf *b)
{
	free(b->p);
	*b = (struct buf){0};
}
#endif
