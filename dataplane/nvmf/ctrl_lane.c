/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reactors ask of a controller. The count of queues and the state are each other's mirror: a
 * reactor counts itself and then looks at the state, the admin thread sets the state and then looks
 * at the count, both sequentially consistent, so that one of the two sees the other.
 */
#include "dataplane/fabric/fabric.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

void nvmf_port_add(struct nvmf_admin *a, struct nvmf_port *p)
{
	pthread_mutex_lock(&a->lock);
	list_add_tail(&a->ports, &p->link);
	pthread_mutex_unlock(&a->lock);
}

void nvmf_port_remove(struct nvmf_admin *a, struct nvmf_port *p)
{
	pthread_mutex_lock(&a->lock);
	list_del(&p->link);
	pthread_mutex_unlock(&a->lock);
}

struct nvmf_view nvmf_ctrl_view(const struct nvmf_ctrl *c)
{
	uint64_t v = atomic_load(&c->view);

	return (struct nvmf_view){(enum nvmf_ctrl_state)(v & 0xff), (uint32_t)(v >> 8)};
}

uint32_t nvmf_ctrl_index(const struct nvmf_ctrl *c)
{
	return c->index;
}

struct nvmf_admin *nvmf_ctrl_admin(const struct nvmf_ctrl *c)
{
	return c->admin;
}

struct nvmf_geometry nvmf_ctrl_geometry(const struct nvmf_ctrl *c, uint32_t volume)
{
	const struct nvmf_ns_state *ns = &c->ns[c->ns_of[volume]];
	uint64_t g = atomic_load_explicit(&ns->geometry, memory_order_acquire);

	if (g == NVMF_GEOMETRY_UNUSABLE)
		return (struct nvmf_geometry){.unusable = true};
	return (struct nvmf_geometry){.blocks = g & (((uint64_t)1 << 56) - 1),
	                              .block_shift = (uint8_t)(g >> 56),
	                              .life = atomic_load(&ns->life)};
}

void nvmf_lane_hold(struct nvmf_ctrl *c)
{
	atomic_fetch_add(&c->n_lanes, 1);
}

void nvmf_lane_drop(struct nvmf_ctrl *c)
{
	struct nvmf_admin *a = c->admin;

	/* Not touched after this. */
	atomic_fetch_sub(&c->n_lanes, 1);
	nvmf_admin_wake(a);
}

_Static_assert(NVMF_QUEUES_MAX <= 64, "one bit for each");

static int take_qid(struct nvmf_ctrl *c, uint16_t *ret)
{
	uint64_t used = atomic_load(&c->qids);

	for (;;) {
		/* Of no bit there is no first one. */
		uint32_t i = used == UINT64_MAX ? 64 : (uint32_t)__builtin_ctzll(~used);

		if (i >= c->queues_given)
			return -EDQUOT;
		if (atomic_compare_exchange_weak(&c->qids, &used, used | (uint64_t)1 << i)) {
			*ret = (uint16_t)(i + 1);
			return 0;
		}
	}
}

int nvmf_lane_begin(struct nvmf_ctrl *c, uint32_t generation, struct nvmf_live *ret,
                    uint16_t *ret_qid)
{
	struct nvmf_view v;
	int rc = -ENOTCONN;

	atomic_fetch_add(&c->n_queues, 1);
	v = nvmf_ctrl_view(c);
	if (v.state == NVMF_CTRL_LIVE && v.generation == generation)
		rc = take_qid(c, ret_qid);
	if (rc == 0)
		*ret = c->live;
	else
		nvmf_lane_end(c, 0);
	return rc;
}

void nvmf_lane_end(struct nvmf_ctrl *c, uint16_t qid)
{
	if (qid)
		atomic_fetch_and(&c->qids, ~((uint64_t)1 << (qid - 1)));
	atomic_fetch_sub(&c->n_queues, 1);
	nvmf_admin_wake(c->admin);
}

int nvmf_lane_connect_data(const struct nvmf_ctrl *c, struct nvme_connect_data *ret)
{
	return nvme_connect_data_fill(ret, c->host_id, c->live.cntlid, c->admin->config.subsystem,
	                              c->host_nqn);
}

const struct sockaddr *nvmf_ctrl_peer(const struct nvmf_ctrl *c)
{
	return &c->admin->peer.sa;
}

struct fabric_pd *nvmf_ctrl_pd(const struct nvmf_ctrl *c)
{
	return c->pd;
}

bool nvmf_peer_invalidates(const struct fabric_pd *pd)
{
	return pd && fabric_dev_peer_invalidates(fabric_pd_dev(pd));
}

void nvmf_ctrl_reset(struct nvmf_ctrl *c, uint32_t generation, const char *why)
{
	pthread_mutex_lock(&c->admin->lock);
	if (atomic_load(&c->reset) != generation)
		snprintf(c->reset_words, sizeof(c->reset_words), "%s", why);
	atomic_store(&c->reset, generation);
	pthread_mutex_unlock(&c->admin->lock);
	nvmf_admin_wake(c->admin);
}

bool nvmf_ctrl_write_cache(const struct nvmf_ctrl *c)
{
	return atomic_load(&c->write_cache);
}

uint32_t nvmf_ctrl_quiet(const struct nvmf_ctrl *c)
{
	return atomic_load(&c->quiet);
}

void nvmf_ctrl_count(struct nvmf_ctrl *c, enum nvmf_count what)
{
	atomic_fetch_add_explicit(&c->counts[what], 1, memory_order_relaxed);
}
