// SPDX-License-Identifier: Apache-2.0
/*
 * Slots of a set: one mapping (huge pages where there are), each slot registered alone, so that its
 * bounds hold even on a device that checks a window only against its region. A slot that comes back
 * while something may still reach it is quarantined; the end of the last thing that names it brings
 * it back to the pool.
 */
#include "dataplane/fabric/verbs_priv.h"
#include <assert.h>
#include <errno.h>
#include <linux/mman.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define SLOTS_MAX  65536u /* of one size */

static const uint32_t class_bytes[FABRIC_SLOT_CLASSES] = {16u << 10, 128u << 10, 1u << 20};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static void *map(size_t bytes, int flags)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
	            0);
}

/* Of this size: where the machine's own is another one (default_hugepagesz=1G), each set would take
 * a whole page of it, and munmap would give none back. And touched at once: a control group that
 * allows none says so only then, not to mmap. */
static void *map_huge(size_t bytes)
{
	void *m = map(bytes, MAP_HUGETLB | MAP_HUGE_2MB);

	if (m == MAP_FAILED || madvise(m, bytes, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return m;
	munmap(m, bytes);
	return MAP_FAILED;
}

static int map_memory(struct fabric_set *s, size_t bytes)
{
	void *m;

	bytes = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
	m = map_huge(bytes);
	if (m == MAP_FAILED) {
		m = map(bytes, 0);
		if (m == MAP_FAILED)
			return -ENOMEM;
		/* transparent ones, if the kernel likes; it is only about speed */
		(void)madvise(m, bytes, MADV_HUGEPAGE);
	}
	s->slot_mem = m;
	s->slot_bytes = bytes;
	return 0;
}

static int make_class(struct fabric_set *s, uint32_t size_class, uint8_t *mem, struct ros2_err *err)
{
	struct slot_class *c = &s->slots[size_class];
	uint32_t n = s->o.slots[size_class], bytes = class_bytes[size_class];

	if (n == 0)
		return 0;
	c->places = calloc(n, sizeof(*c->places));
	c->free = calloc(n, sizeof(*c->free));
	if (!c->places || !c->free)
		return ros2_err_set(err, -ENOMEM, "no memory for %u slots", n);
	for (uint32_t i = 0; i < n; i++) {
		struct slot_place *p = &c->places[i];
		struct fabric_region_opts o = {
			.addr = mem + (size_t)i * bytes, .length = bytes, .bindable = true};
		int r = region_init(&p->region, s->pd, &o, err);

		if (r < 0)
			return r;
		p->region.slot = p;
		p->set = s;
		p->size_class = (uint8_t)size_class;
		c->n = i + 1;
	}
	for (c->n_free = 0; c->n_free < n; c->n_free++)
		c->free[c->n_free] = n - 1 - c->n_free;
	return 0;
}

int slots_make(struct fabric_set *s, struct ros2_err *err)
{
	size_t total = 0, at = 0;
	int r;

	for (int i = 0; i < FABRIC_SLOT_CLASSES; i++) {
		if (s->o.slots[i] > SLOTS_MAX)
			return ros2_err_set(err, -EINVAL,
			                    "%u slots of %u bytes: expected at most %u",
			                    s->o.slots[i], class_bytes[i], SLOTS_MAX);
		total += (size_t)s->o.slots[i] * class_bytes[i];
	}
	if (total == 0)
		return 0;
	if (map_memory(s, total) < 0)
		return ros2_err_set(err, -ENOMEM, "no memory for %zu bytes of slots", total);
	/* the largest first, so that each is aligned to its size */
	for (int i = FABRIC_SLOT_CLASSES - 1; i >= 0; i--) {
		r = make_class(s, (uint32_t)i, s->slot_mem + at, err);
		if (r < 0)
			return r;
		at += (size_t)s->o.slots[i] * class_bytes[i];
	}
	return 0;
}

int slots_unmake(struct fabric_set *s)
{
	int busy = 0;

	for (int i = 0; i < FABRIC_SLOT_CLASSES; i++) {
		struct slot_class *c = &s->slots[i];

		for (uint32_t k = 0; k < c->n; k++)
			busy |= region_fini(&c->places[k].region);
	}
	/* what the device may still reach is never given to anything else */
	if (busy)
		return -EBUSY;
	for (int i = 0; i < FABRIC_SLOT_CLASSES; i++) {
		free(s->slots[i].places);
		free(s->slots[i].free);
		s->slots[i] = (struct slot_class){0};
	}
	if (s->slot_mem)
		munmap(s->slot_mem, s->slot_bytes);
	s->slot_mem = NULL;
	return 0;
}

bool fabric_slot_take(struct fabric_set *s, uint32_t len, struct fabric_slot *ret)
{
	assert(len > 0);
	for (uint32_t i = 0; i < FABRIC_SLOT_CLASSES; i++) {
		struct slot_class *c = &s->slots[i];
		struct slot_place *p;

		if (len > class_bytes[i] || c->n_free == 0)
			continue;
		p = &c->places[c->free[--c->n_free]];
		assert(!p->taken && !p->quarantined);
		p->taken = true;
		s->c.slots_taken++;
		*ret = (struct fabric_slot){
			.mem = p->region.mem,
			.region = &p->region,
			.size_class = i,
			.index = (uint32_t)(p - c->places),
			.size_bytes = class_bytes[i],
		};
		return true;
	}
	return false;
}

static void back_to_pool(struct slot_place *p)
{
	struct slot_class *c = &p->set->slots[p->size_class];

	assert(c->n_free < c->n);
	c->free[c->n_free++] = (uint32_t)(p - c->places);
}

bool fabric_slot_give(struct fabric_set *s, struct fabric_slot *slot)
{
	struct slot_place *p = slot->region->slot;

	assert(slot->mem && p && p->set == s && p->taken);
	*slot = (struct fabric_slot){0};
	p->taken = false;
	s->c.slots_taken--;
	if (p->region.bound || p->region.held) {
		p->quarantined = true;
		s->c.slots_quarantined++;
		return false;
	}
	back_to_pool(p);
	return true;
}

void slot_settle(struct slot_place *p)
{
	if (!p->quarantined || p->region.bound || p->region.held)
		return;
	p->quarantined = false;
	p->set->c.slots_quarantined--;
	back_to_pool(p);
}
