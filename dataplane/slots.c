/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: three free stacks of indexes. Of a pool's own mapping a quarter is 16 KiB slots, a quarter
 * 128 KiB, half 1 MiB. The last given back is the next taken: it is the one in the cache.
 */
#include "dataplane/slots.h"
#include "common/share.h"
#include "common/util.h"
#include "dataplane/test_switches.h"
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

static const uint32_t class_size[SLOT_CLASSES] = {16u * 1024, 128u * 1024, 1024u * 1024};
static const uint32_t class_quarters[SLOT_CLASSES] = {1, 1, 2};

struct size_class {
	uint32_t *free; /* owned: stack of free indexes */
	uint32_t n, n_free;
	uint8_t **mem; /* owned: where each is */
};

struct slots {
	uint8_t *mem; /* owned: mmap; NULL = the slots are others' memory */
	uint32_t bytes;
	uint32_t session_part, tenant_part; /* at most 1 / so much of a size */
	bool starved;
	struct size_class c[SLOT_CLASSES];
	_Atomic uint32_t taken; /* written by the owner only */
};

static int class_init(struct size_class *c, uint32_t n)
{
	c->n = c->n_free = n;
	c->free = calloc(MAX(n, 1), sizeof(*c->free));
	c->mem = calloc(MAX(n, 1), sizeof(*c->mem));
	if (!c->free || !c->mem)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		c->free[i] = n - 1 - i;
	return 0;
}

int slots_new(uint32_t bytes, struct slots **ret)
{
	struct slots *s = calloc(1, sizeof(*s));
	uint8_t *base;
	int r = 0;

	if (!s)
		return -ENOMEM;
	s->session_part = 4;
	s->tenant_part = 2;
	s->bytes = MAX(bytes, SLOTS_MIN_BYTES) & ~(SLOTS_MIN_BYTES - 1);
	s->mem = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem == MAP_FAILED) {
		free(s);
		return -ENOMEM;
	}
	base = s->mem;
	for (int i = 0; i < SLOT_CLASSES && r == 0; i++) {
		uint32_t part = s->bytes / 4 * class_quarters[i];

		r = class_init(&s->c[i], part / class_size[i]);
		for (uint32_t j = 0; r == 0 && j < s->c[i].n; j++)
			s->c[i].mem[j] = base + (size_t)j * class_size[i];
		base += part;
	}
	if (r < 0) {
		slots_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

int slots_new_over(const struct slot *pieces, uint32_t n, struct slots **ret)
{
	struct slots *s = calloc(1, sizeof(*s));
	uint32_t counts[SLOT_CLASSES] = {0};
	int r = s ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < n; i++)
		counts[pieces[i].size_class]++;
	for (int i = 0; i < SLOT_CLASSES && r == 0; i++)
		r = class_init(&s->c[i], counts[i]);
	if (r < 0) {
		slots_free(s);
		return r;
	}
	s->session_part = 2;
	s->tenant_part = 1;
	memset(counts, 0, sizeof(counts));
	for (uint32_t i = 0; i < n; i++)
		s->c[pieces[i].size_class].mem[counts[pieces[i].size_class]++] = pieces[i].mem;
	*ret = s;
	return 0;
}

void slots_free(struct slots *s)
{
	if (!s)
		return;
	if (s->mem)
		munmap(s->mem, s->bytes);
	for (int i = 0; i < SLOT_CLASSES; i++) {
		free(s->c[i].free);
		free(s->c[i].mem);
	}
	free(s);
}

uint32_t slots_class_bytes(uint32_t size_class)
{
	return class_size[size_class];
}

int slots_buf_index(const struct slots *s)
{
	return s->mem ? 0 : -1;
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

/* The first few of a tenant, which the last quarter is kept for. */
static uint32_t first_of(const struct size_class *c)
{
	return MAX(c->n / 64, 1u);
}

static uint32_t kept_of(const struct slots *s, const struct size_class *c)
{
	return s->mem ? c->n / 4 : 0;
}

/* Of the reactor's own pool a session gets at most a quarter of a size and a tenant half of it, but
 * always one; and its first ones whatever the others hold, as long as not too many come. */
bool slots_may_take(const struct slots *s, uint32_t len, const struct slot_use *session,
                    const struct slot_use *tenant)
{
	uint32_t i = class_of(len);
	const struct size_class *c = &s->c[i];
	const struct share share = {.total = c->n,
	                            .most = MAX(c->n / s->tenant_part, 1u),
	                            .sure = first_of(c),
	                            .kept = kept_of(s, c)};

	if (DP_SWITCH(no_slot_share))
		return c->n_free > 0;
	return session->n[i] < MAX(c->n / s->session_part, 1u) &&
	       share_allows(&share, tenant->n[i], c->n - c->n_free);
}

bool slots_may_wait(const struct slots *s, uint32_t len, const struct slot_use *tenant)
{
	uint32_t i = class_of(len);
	const struct size_class *c = &s->c[i];

	return !s->mem || tenant->n[i] < first_of(c) || c->n_free > c->n / 2;
}

uint32_t slots_storage_share(const struct slots *s, uint32_t len, uint32_t storages)
{
	const struct size_class *c = &s->c[class_of(len)];

	return s->mem ? MAX((c->n - kept_of(s, c)) / 2 / storages, 1u) : 0;
}

uint32_t slots_used(const struct slot_use *use, uint32_t len)
{
	return use->n[class_of(len)];
}

bool slots_may_crowd(const struct slots *s, uint32_t len, const struct slot_use *tenant,
                     const struct slot_use *storage, uint32_t share, uint32_t due)
{
	uint32_t i = class_of(len);
	const struct size_class *c = &s->c[i];

	if (!s->mem || tenant->n[i] < first_of(c))
		return true;
	return storage->n[i] < c->n / 2 &&
	       (storage->n[i] < share || c->n_free > kept_of(s, c) + due);
}

void slots_missed(struct slots *s, uint32_t len)
{
	const struct size_class *c = &s->c[class_of(len)];

	s->starved |= c->n_free <= kept_of(s, c);
}

bool slots_starved(const struct slots *s)
{
	return s->starved;
}

void slots_unstarve(struct slots *s)
{
	s->starved = false;
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
	ret->mem = c->mem[ret->index];
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
