/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys that targets hold over the memory of a tenant's requests, seen over all queues of a
 * reactor: ended when a right ends, and waited for until the device has confirmed. A lane's memory
 * is all of its tenant's domain, so that one tenant's end reaches no other's queue.
 */
#include "common/clock.h"
#include "dataplane/nvmf/engine_priv.h"

static bool is_of(const struct nvmf_lane *l, const struct fabric_pd *pd)
{
	return !pd || nvmf_ctrl_pd(l->ctrl) == pd;
}

uint32_t nvmf_forget_regions(struct engine_reactor *r, const struct fabric_pd *pd)
{
	struct nvmf_lane *l;
	uint32_t n = 0;

	list_for_each (&r->lanes, l, link)
		if (l->q && l->ops->forget_regions && is_of(l, pd))
			n += l->ops->forget_regions(l->q, clock_boottime_ns());
	return n;
}

uint32_t nvmf_end_keys(struct engine_reactor *r, struct engine_io *io)
{
	const struct nvmf_nio *nio = (struct nvmf_nio *)(uintptr_t)io->priv[0];

	if (nio->over || !nio->lane)
		return 0;
	return nvmf_lane_end_keys(nio->lane, nio, clock_boottime_ns());
}

uint32_t nvmf_keys_ending(const struct engine_reactor *r, const struct fabric_pd *pd,
                          uint64_t until_ns, uint64_t *ret_last_ns)
{
	const struct nvmf_queue_ops *ops = r->engine->queue;
	const struct nvmf_lane *l;
	uint32_t n = ops->keys_kept ? ops->keys_kept(pd) : 0;

	list_for_each (&r->lanes, l, link) {
		struct nvmf_queue_counters c = {0};

		if (!is_of(l, pd))
			continue;
		if (l->q) {
			l->ops->counters(l->q, &c);
			n += l->ops->keys_ending ? l->ops->keys_ending(l->q, until_ns) : 0;
		}
		*ret_last_ns = MAX(*ret_last_ns, MAX(l->last_withdrawn_ns, c.last_withdrawn_ns));
	}
	return n;
}

void nvmf_keys(const struct engine_reactor *r, const struct fabric_pd *pd, bool folded,
               key_info_fn fn, void *arg)
{
	const struct nvmf_lane *l;

	list_for_each (&r->lanes, l, link)
		if (l->q && l->ops->keys && is_of(l, pd))
			l->ops->keys(l->q, folded, fn, arg);
}
