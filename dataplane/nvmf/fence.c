/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that were handed on and not answered, until the target cannot be carrying them out any
 * more. Reactors append while their queue dies, reactors look while theirs works, so entries are
 * told by the count after them and never change; the admin thread takes them out while no reactor
 * has a queue. A volume may be another tenant's by now, or be shared: so that its writes do not
 * come before an old one either, each volume's are told to all controllers of the engine as one
 * range. An engine lives as long as such a write is not over, so its end ends no fence.
 */
#include "dataplane/nvmf/ctrl_priv.h"
#include <string.h>

/* Before the fence itself, so that none is without. */
static void box_add(struct nvmf_ctrl *c, uint32_t generation, uint32_t volume, uint32_t nsid,
                    uint64_t from, uint64_t to)
{
	struct nvmf_admin *a = c->admin;
	struct nvmf_fence_box *b = &c->boxes[volume];

	pthread_mutex_lock(&a->boxes_lock);
	if (!b->to) {
		*b = (struct nvmf_fence_box){.nsid = nsid, .from = from, .to = to};
		if (c->n_boxes++ == 0)
			list_add_tail(&a->boxed, &c->link_boxes);
		atomic_fetch_add(&a->n_boxes, 1);
	}
	b->generation = MAX(b->generation, generation);
	b->from = MIN(b->from, from);
	b->to = MAX(b->to, to);
	pthread_mutex_unlock(&a->boxes_lock);
}

void nvmf_boxes_trim(struct nvmf_ctrl *c, bool all)
{
	uint32_t quiet = atomic_load(&c->quiet);
	struct nvmf_admin *a = c->admin;

	pthread_mutex_lock(&a->boxes_lock);
	for (uint32_t i = 0; i < NVMF_VOLUMES_MAX && c->n_boxes; i++) {
		if (!c->boxes[i].to || (!all && c->boxes[i].generation > quiet))
			continue;
		c->boxes[i] = (struct nvmf_fence_box){0};
		if (--c->n_boxes == 0)
			list_del(&c->link_boxes);
		atomic_fetch_sub(&a->n_boxes, 1);
	}
	pthread_mutex_unlock(&a->boxes_lock);
}

static bool box_hits(const struct nvmf_fence_box *b, uint32_t nsid, uint64_t from, uint64_t to)
{
	return b->to && b->nsid == nsid && b->from < to && from < b->to;
}

/* Does it overlap what another tenant's lost controller may still write? */
static bool others_hit(const struct nvmf_ctrl *c, uint32_t nsid, uint64_t from, uint64_t to)
{
	struct nvmf_admin *a = c->admin;
	struct list *at;
	bool hits = false;

	if (atomic_load_explicit(&a->n_boxes, memory_order_acquire) == 0)
		return false;
	/* No reactor waits here: it asks again. */
	if (pthread_mutex_trylock(&a->boxes_lock))
		return true;
	/* By hand: the head is in no controller, and these are aligned to pages. */
	for (at = a->boxed.next; at != &a->boxed && !hits; at = at->next) {
		const struct nvmf_ctrl *o = container_of(at, struct nvmf_ctrl, link_boxes);

		for (uint32_t i = 0; i < NVMF_VOLUMES_MAX && o != c && !hits; i++)
			hits = box_hits(&o->boxes[i], nsid, from, to);
	}
	pthread_mutex_unlock(&a->boxes_lock);
	return hits;
}

void nvmf_fence_add(struct nvmf_ctrl *c, uint32_t generation, uint32_t volume, uint32_t nsid,
                    uint64_t offset, uint64_t len)
{
	uint32_t n;

	box_add(c, generation, volume, nsid, offset, offset + len);
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

static bool own_hit(const struct nvmf_ctrl *c, uint32_t nsid, uint64_t offset, uint64_t len)
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

bool nvmf_fence_hits(const struct nvmf_ctrl *c, uint32_t nsid, uint64_t offset, uint64_t len)
{
	return !atomic_load(&c->settled) || own_hit(c, nsid, offset, len) ||
	       others_hit(c, nsid, offset, offset + len);
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
	nvmf_boxes_trim(c, false);
	c->n_losses -= n;
	memmove(c->losses, c->losses + n, c->n_losses * sizeof(c->losses[0]));
	return true;
}
