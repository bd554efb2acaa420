/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that were handed on and not answered, until the target cannot be carrying them out any
 * more. Reactors append while their queue dies, reactors look while theirs works, so entries are
 * told by the count after them and never change; the admin thread takes them out while no reactor
 * has a queue.
 */
#include "dataplane/nvmf/ctrl_priv.h"
#include <string.h>

void nvmf_fence_add(struct nvmf_ctrl *c, uint32_t generation, uint32_t nsid, uint64_t offset,
                    uint64_t len)
{
	uint32_t n;

	pthread_mutex_lock(&c->fence_lock);
	n = atomic_load_explicit(&c->n_fences, memory_order_relaxed);
	if (n == NVMF_FENCES_MAX) {
		atomic_store(&c->fence_all, generation);
	} else {
		c->fences[n] = (struct nvmf_fence){generation, nsid, offset, len};
		atomic_store_explicit(&c->n_fences, n + 1, memory_order_release);
	}
	pthread_mutex_unlock(&c->fence_lock);
}

bool nvmf_fence_hits(const struct nvmf_ctrl *c, uint32_t nsid, uint64_t offset, uint64_t len)
{
	uint32_t n = atomic_load_explicit(&c->n_fences, memory_order_acquire), quiet;

	uint32_t all = atomic_load(&c->fence_all);

	if (n == 0 && all == 0)
		return false;
	quiet = atomic_load(&c->quiet);
	if (all > quiet)
		return true;
	for (uint32_t i = 0; i < n; i++) {
		const struct nvmf_fence *f = &c->fences[i];

		if (f->generation > quiet && f->nsid == nsid && f->offset < offset + len &&
		    offset < f->offset + f->len)
			return true;
	}
	return false;
}

void nvmf_fences_trim(struct nvmf_ctrl *c)
{
	uint32_t quiet = atomic_load(&c->quiet), n, kept = 0;

	pthread_mutex_lock(&c->fence_lock);
	n = atomic_load(&c->n_fences);
	for (uint32_t i = 0; i < n; i++)
		if (c->fences[i].generation > quiet)
			c->fences[kept++] = c->fences[i];
	atomic_store(&c->n_fences, kept);
	pthread_mutex_unlock(&c->fence_lock);
}

void nvmf_losses_add(struct nvmf_ctrl *c, uint64_t quiet_at_ns)
{
	struct nvmf_loss *last = c->n_losses ? &c->losses[c->n_losses - 1] : NULL;

	/* In order: what is lost later is quiet later. */
	if (last)
		quiet_at_ns = MAX(quiet_at_ns, last->quiet_at_ns);
	if (c->n_losses == NVMF_LOSSES_MAX)
		*last = (struct nvmf_loss){c->generation, quiet_at_ns};
	else
		c->losses[c->n_losses++] = (struct nvmf_loss){c->generation, quiet_at_ns};
}

bool nvmf_losses_run(struct nvmf_ctrl *c, uint64_t now_ns)
{
	uint32_t n = 0;

	while (n < c->n_losses && c->losses[n].quiet_at_ns <= now_ns)
		n++;
	if (n == 0)
		return false;
	atomic_store(&c->quiet, c->losses[n - 1].generation);
	c->n_losses -= n;
	memmove(c->losses, c->losses + n, c->n_losses * sizeof(c->losses[0]));
	return true;
}
