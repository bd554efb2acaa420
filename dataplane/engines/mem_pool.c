/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mem engine's capacity: one reserved range, cut into chunks. Taking and returning is
 * lock-free, because reactors take chunks when a write meets a hole. Invariant: a chunk in the pool
 * reads as zeros.
 */
#include "dataplane/engines/mem_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

int mem_pool_init(struct mem_pool *p, uint64_t bytes, struct ros2_err *err)
{
	uint64_t chunks = bytes >> MEM_CHUNK_SHIFT;

	if (chunks == 0 || bytes > MEM_CAPACITY_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "mem engine: size: expected 64KiB to 16TiB, found %" PRIu64
		                    " bytes",
		                    bytes);
	p->next = calloc(chunks + 1, sizeof(*p->next));
	p->refs = calloc(chunks + 1, sizeof(*p->refs));
	if (!p->next || !p->refs) {
		mem_pool_fini(p);
		return ros2_err_set(err, -ENOMEM, "mem engine: no memory for the list of chunks");
	}
	p->base = mmap(NULL, chunks << MEM_CHUNK_SHIFT, PROT_READ | PROT_WRITE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->base == MAP_FAILED) {
		int rc = -errno;

		p->base = NULL;
		mem_pool_fini(p);
		return ros2_err_set(err, rc, "mem engine: cannot reserve %" PRIu64 " bytes: %s",
		                    bytes, strerror(-rc));
	}
	p->chunks = (uint32_t)chunks;
	atomic_init(&p->fresh, 1);
	atomic_init(&p->head, 0);
	atomic_init(&p->used, 0);
	return 0;
}

void mem_pool_fini(struct mem_pool *p)
{
	if (p->base)
		munmap(p->base, (size_t)p->chunks << MEM_CHUNK_SHIFT);
	free(p->next);
	free(p->refs);
	memset(p, 0, sizeof(*p));
}

static uint32_t pop(struct mem_pool *p)
{
	uint64_t head = atomic_load_explicit(&p->head, memory_order_acquire);

	while ((uint32_t)head != 0) {
		uint32_t id = (uint32_t)head;
		uint64_t next = atomic_load_explicit(&p->next[id], memory_order_relaxed);
		uint64_t want = ((head >> 32) + 1) << 32 | next;

		if (atomic_compare_exchange_weak_explicit(
			    &p->head, &head, want, memory_order_acquire, memory_order_acquire))
			return id;
	}
	return 0;
}

uint32_t mem_pool_get(struct mem_pool *p)
{
	uint32_t id = pop(p), fresh;

	if (id == 0) {
		fresh = atomic_load_explicit(&p->fresh, memory_order_relaxed);
		do {
			if (fresh > p->chunks)
				return 0;
		} while (!atomic_compare_exchange_weak_explicit(
			&p->fresh, &fresh, fresh + 1, memory_order_relaxed, memory_order_relaxed));
		id = fresh;
	}
	atomic_fetch_add_explicit(&p->used, 1, memory_order_relaxed);
	atomic_store_explicit(&p->refs[id], 1, memory_order_relaxed);
	return id;
}

void mem_pool_put_clean(struct mem_pool *p, uint32_t id)
{
	uint64_t head = atomic_load_explicit(&p->head, memory_order_relaxed), want;

	atomic_store_explicit(&p->refs[id], 0, memory_order_relaxed);
	do {
		atomic_store_explicit(&p->next[id], (uint32_t)head, memory_order_relaxed);
		want = ((head >> 32) + 1) << 32 | id;
	} while (!atomic_compare_exchange_weak_explicit(&p->head, &head, want, memory_order_release,
	                                                memory_order_relaxed));
	atomic_fetch_sub_explicit(&p->used, 1, memory_order_relaxed);
}

void mem_pool_ref(struct mem_pool *p, uint32_t id)
{
	atomic_fetch_add_explicit(&p->refs[id], 1, memory_order_relaxed);
}

void mem_pool_put(struct mem_pool *p, uint32_t id)
{
	uint8_t *at = mem_pool_at(p, id);

	/* Release: what was read through this reference; acquire: what was read through others. */
	if (atomic_fetch_sub_explicit(&p->refs[id], 1, memory_order_acq_rel) > 1)
		return;
	/* Gives zeros on the next touch and the RAM back now; where the system refuses, zeros the
	 * slow way. */
	if (madvise(at, MEM_CHUNK, MADV_DONTNEED) < 0)
		memset(at, 0, MEM_CHUNK);
	mem_pool_put_clean(p, id);
}
