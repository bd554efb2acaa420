/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: three free stacks of indexes over one mapping. A quarter of the memory is 16 KiB slots, a
 * quarter 128 KiB, half 1 MiB. The last given back is the next taken: it is the one in the cache.
 */
#include "dataplane/slots.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>

static const uint32_t class_size[SLOT_CLASSES] = {16u * 1024, 128u * 1024, 1024u * 1024};
static const uint32_t class_quarters[SLOT_CLASSES] = {1, 1, 2};

struct size_class {
	uint32_t *free; /* owned: stack of free indexes */
	uint32_t n, n_free;
	uint8_t *base; /* borrowed: of slots.mem */
};

struct slots {
	uint8_t *mem; /* owned: mmap */
	uint32_t bytes;
	struct size_class c[SLOT_CLASSES];
	_Atomic uint32_t taken; /* written by the owner only */
};

static int class_init(struct size_class *c, uint8_t *base, uint32_t bytes, uint32_t size)
{
	c->n = c->n_free = bytes / size;
	c->base = base;
	c->free = calloc(c->n, sizeof(*c->free));
	if (!c->free)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->n; i++)
		c->free[i] = c->n - 1 - i;
	return 0;
}

int slots_new(uint32_t bytes, struct slots **ret)
{
	struct slots *s = calloc(1, sizeof(*s));
	uint8_t *base;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->bytes = MAX(bytes, SLOTS_MIN_BYTES) & ~(SLOTS_MIN_BYTES - 1);
	s->mem = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem == MAP_FAILED) {
		free(s);
		return -ENOMEM;
	}
	base = s->mem;
	for (int i = 0; i < SLOT_CLASSES && r == 0; i++) {
		uint32_t part = s->bytes / 4 * class_quarters[i];

		r = class_init(&s->c[i], base, part, class_size[i]);
		base += part;
	}
	if (r < 0) {
		slots_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	munmap(s->mem, s->bytes);
	for (int i = 0; i < SLOT_CLASSES; i++)
		free(s->c[i].free);
	free(s);
}

struct iovec slots_memory(const struct slots *s)
{
	return (struct iovec){.iov_base = s->mem, .iov_len = s->bytes};
}

static uint32_t class_of(uint32_t len)
{
	uint32_t i = 0;

	while (i < SLOT_CLASSES - 1 && class_size[i] < len)
		i++;
	assert(len <= class_size[i]);
	return i;
}

/* A session gets at most a quarter of a size and a tenant half of it, but always one. */
bool slots_may_take(const struct slots *s, uint32_t len, const struct slot_use *session,
                    const struct slot_use *tenant)
{
	uint32_t i = class_of(len);
	const struct size_class *c = &s->c[i];

	return c->n_free && session->n[i] < MAX(c->n / 4, 1) && tenant->n[i] < MAX(c->n / 2, 1);
}

bool slots_used_up(const struct slots *s, uint32_t len)
{
	return s->c[class_of(len)].n_free == 0;
}

/* One writer: a load and a store, no locked instruction. */
static void count(struct slots *s, int by)
{
	uint32_t n = atomic_load_explicit(&s->taken, memory_order_relaxed);

	atomic_store_explicit(&s->taken, n + (uint32_t)by, memory_order_relaxed);
}

bool slots_take(struct slots *s, uint32_t len, struct slot_use *session, struct slot_use *tenant,
                struct slot *ret)
{
	uint32_t i = class_of(len);
	struct size_class *c = &s->c[i];

	if (!slots_may_take(s, len, session, tenant))
		return false;
	ret->size_class = i;
	ret->index = c->free[--c->n_free];
	ret->mem = c->base + (size_t)ret->index * class_size[i];
	session->n[i]++;
	tenant->n[i]++;
	count(s, 1);
	return true;
}

void slots_give(struct slots *s, struct slot *slot, struct slot_use *session,
                struct slot_use *tenant)
{
	struct size_class *c = &s->c[slot->size_class];

	assert(slot->mem && c->n_free < c->n);
	c->free[c->n_free++] = slot->index;
	session->n[slot->size_class]--;
	tenant->n[slot->size_class]--;
	slot->mem = NULL;
	count(s, -1);
}

uint32_t slots_taken(const struct slots *s)
{
	return atomic_load_explicit(&((struct slots *)s)->taken, memory_order_relaxed);
}

uint32_t slots_total(const struct slots *s)
{
	uint32_t n = 0;

	for (int i = 0; i < SLOT_CLASSES; i++)
		n += s->c[i].n;
	return n;
}
