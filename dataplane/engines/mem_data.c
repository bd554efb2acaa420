/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of one file in the mem engine: a table of chunks that grows without a lock, and
 * truncate, which has the file to itself (mem_priv.h, rules 2 and 3).
 */
#include "dataplane/engines/mem_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <sched.h>
#include <string.h>

struct mem_data *mem_data_new(void)
{
	struct mem_data *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	pthread_mutex_init(&d->truncate_lock, NULL);
	atomic_init(&d->mtime_unix_ns, clock_unix_ns());
	return d;
}

/* What @slot names, made when it is 0. Two reactors may race: one wins, the other's chunk goes back
 * unused. */
static uint32_t fill_slot(struct engine *e, struct mem_data *d, _Atomic uint32_t *slot)
{
	uint32_t id = atomic_load_explicit(slot, memory_order_acquire), none = 0;

	if (id)
		return id;
	id = mem_pool_get(&e->pool);
	if (id == 0)
		return 0;
	if (!atomic_compare_exchange_strong_explicit(slot, &none, id, memory_order_acq_rel,
	                                             memory_order_acquire)) {
		mem_pool_put_clean(&e->pool, id);
		return none;
	}
	atomic_fetch_add_explicit(&d->chunks, 1, memory_order_relaxed);
	return id;
}

_Atomic uint32_t *mem_slot(struct engine *e, struct mem_data *d, uint64_t index, bool make)
{
	_Atomic uint32_t *slot;
	uint32_t table;

	if (index < MEM_DIRECT)
		slot = &d->direct[index];
	else if (index / MEM_PER_TABLE >= MEM_TABLES)
		return NULL;
	else {
		slot = &d->tables[index / MEM_PER_TABLE];
		table = make ? fill_slot(e, d, slot)
		             : atomic_load_explicit(slot, memory_order_acquire);
		if (table == 0)
			return NULL;
		slot = (_Atomic uint32_t *)mem_pool_at(&e->pool, table) + index % MEM_PER_TABLE;
	}
	if (make && fill_slot(e, d, slot) == 0)
		return NULL;
	return slot;
}

static void drop(struct engine *e, struct mem_data *d, _Atomic uint32_t *slot)
{
	uint32_t id = atomic_exchange_explicit(slot, 0, memory_order_acq_rel);

	if (id == 0)
		return;
	mem_pool_put(&e->pool, id);
	atomic_fetch_sub_explicit(&d->chunks, 1, memory_order_relaxed);
}

/* Drops every chunk from @first on. The caller is alone with the file. */
static void drop_from(struct engine *e, struct mem_data *d, uint64_t first)
{
	for (uint64_t i = first; i < MEM_DIRECT; i++)
		drop(e, d, &d->direct[i]);
	for (uint64_t t = first / MEM_PER_TABLE; t < MEM_TABLES; t++) {
		uint32_t id = atomic_load_explicit(&d->tables[t], memory_order_acquire);
		uint64_t from = t == first / MEM_PER_TABLE ? first % MEM_PER_TABLE : 0;
		_Atomic uint32_t *slots;

		if (id == 0)
			continue;
		slots = (_Atomic uint32_t *)mem_pool_at(&e->pool, id);
		for (uint64_t i = from; i < MEM_PER_TABLE; i++)
			drop(e, d, &slots[i]);
		if (from == 0 || (t == 0 && from <= MEM_DIRECT))
			drop(e, d, &d->tables[t]);
	}
}

void mem_data_free(struct engine *e, struct mem_data *d)
{
	if (!d)
		return;
	drop_from(e, d, 0);
	pthread_mutex_destroy(&d->truncate_lock);
	free(d);
}

/* Bytes behind the new end must read as zeros when the file grows again. */
static void zero_tail(struct engine *e, struct mem_data *d, uint64_t size)
{
	size_t in = size % MEM_CHUNK;
	_Atomic uint32_t *slot = in ? mem_slot(e, d, size >> MEM_CHUNK_SHIFT, false) : NULL;
	uint32_t id = slot ? atomic_load_explicit(slot, memory_order_acquire) : 0;

	if (id)
		memset(mem_pool_at(&e->pool, id) + in, 0, MEM_CHUNK - in);
}

int mem_data_truncate(struct engine *e, struct mem_data *d, uint64_t size)
{
	if (size > MEM_FILE_MAX)
		return -EFBIG;
	pthread_mutex_lock(&d->truncate_lock);
	atomic_store(&d->gate, 1);
	mem_reactors_pass(e);
	/* Also at its own size: a write that was refused for want of room leaves what it had taken
	 * beyond that, and this is how it is given back while the file stays. */
	if (size <= atomic_load(&d->size)) {
		zero_tail(e, d, size);
		drop_from(e, d, (size + MEM_CHUNK - 1) >> MEM_CHUNK_SHIFT);
	}
	atomic_store(&d->size, size);
	atomic_store(&d->mtime_unix_ns, clock_unix_ns());
	atomic_store(&d->gate, 0);
	pthread_mutex_unlock(&d->truncate_lock);
	return 0;
}
