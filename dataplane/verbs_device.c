/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's part of the verbs transport: the device, a protection domain for each tenant that uses
 * it, and what the device reports by itself, which is carried to the reactors it concerns.
 */
#include "common/log.h"
#include "common/group_limits.h"
#include "common/probe.h"
#include "dataplane/nvmf/queue.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/verbs.h"
#include "dataplane/verbs_priv.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define LOG_COMPONENT "dataplane"

static void tell_lost(struct dp *dp, uint32_t i);

static void lost_told(struct dp_op *op)
{
	struct dp *dp = op->dp;
	uint32_t i = (uint32_t)(op - dp->rdma_lost);
	uint64_t bit = (uint64_t)1 << i;

	dp_op_finish(op);
	dp->lost_busy &= ~bit;
	if (!(dp->lost_again & bit))
		return;
	dp->lost_again &= ~bit;
	tell_lost(dp, i);
}

/* There is no memory to say which connection failed, so all of the reactor did: what goes on over
 * one that has failed would hang. */
static void tell_lost(struct dp *dp, uint32_t i)
{
	struct dp_op *op = &dp->rdma_lost[i];
	uint64_t bit = (uint64_t)1 << i;

	if (dp->lost_busy & bit) {
		dp->lost_again |= bit;
		return;
	}
	dp->lost_busy |= bit;
	dp_op_begin(op, dp, NULL, NULL);
	op->handle = 1;
	dp_op_to_reactor(op, dp->reactors[i], verbs_run_failed, lost_told);
}

static void tell_reactor(struct dp *dp, uint32_t i, const struct fabric_event *e)
{
	struct dp_op *op = dp_op_try(dp, NULL, NULL);

	if (!op) {
		tell_lost(dp, i);
		return;
	}
	op->a = e->set_cookie;
	op->b = e->kind == FABRIC_EVENT_QP_FAILED ? e->qp_id : 0;
	op->handle = e->kind == FABRIC_EVENT_DEVICE_REMOVED;
	dp_op_to_reactor(op, dp->reactors[i], verbs_run_failed, dp_op_finish);
}

static void remember(struct dp *dp, const struct fabric_event *e)
{
	dp->rdma_said[dp->rdma_said_n].qp_id = e->qp_id;
	dp->rdma_said[dp->rdma_said_n].words = e->words;
	dp->rdma_said_n = (dp->rdma_said_n + 1) % DP_RDMA_SAID;
}

static void on_device_event(void *arg, const struct fabric_event *e)
{
	struct dp *dp = arg;
	uint32_t reactor = verbs_cookie_reactor(e->set_cookie);

	if (e->kind == FABRIC_EVENT_QP_FAILED)
		remember(dp, e);
	switch (e->kind) {
	case FABRIC_EVENT_DEVICE_REMOVED:
		if (!dp->rdma_gone)
			log_error("the RDMA device %s was removed, or reset: nothing goes over it "
			          "until the agent is started again",
			          dp->opts.rdma_device);
		dp->rdma_gone = true;
		for (uint32_t i = 0; i < dp->n_reactors; i++)
			tell_reactor(dp, i, e);
		break;
	case FABRIC_EVENT_QP_FAILED:
	case FABRIC_EVENT_CQ_FAILED:
		if (reactor < dp->n_reactors)
			tell_reactor(dp, reactor, e);
		break;
	default: /* a port that goes down shows itself in retries */
		break;
	}
}

/* As the channel of a reactor (verbs_event): one that is gone has nothing more to say. */
static void on_device_fd(void *arg, uint32_t revents)
{
	struct dp *dp = arg;

	(void)fabric_dev_events(dp->rdma, on_device_event, dp);
	if (!(revents & (EPOLLERR | EPOLLHUP)))
		return;
	loop_fd_del(&dp->rdma_fd);
	dp->rdma_watched = false;
}

const char *verbs_device_said(struct dp *dp, uint64_t qp_id)
{
	/* It speaks before it flushes, but on another road: what is there is taken first. */
	if (dp->rdma && dp->rdma_watched)
		(void)fabric_dev_events(dp->rdma, on_device_event, dp);
	for (uint32_t i = 0; i < DP_RDMA_SAID && qp_id; i++)
		if (dp->rdma_said[i].qp_id == qp_id)
			return dp->rdma_said[i].words;
	return NULL;
}

static uint64_t set_bytes(void)
{
	const uint32_t slots[SLOT_CLASSES] = VERBS_SLOTS;
	uint64_t n = 0;

	for (uint32_t i = 0; i < SLOT_CLASSES; i++)
		n += (uint64_t)slots[i] * slots_class_bytes(i);
	return n;
}

static uint32_t sets_max(const struct dp_opts *o)
{
	uint64_t bytes = o->rdma_total_bytes ? o->rdma_total_bytes : memory_limit_bytes("") / 4;

	assert(set_bytes() == DP_RDMA_LEAST);
	return (uint32_t)MAX(MIN(bytes / set_bytes(), (uint64_t)UINT32_MAX), 1u);
}

int verbs_device_open(struct dp *dp, struct ros2_err *err)
{
	const struct fabric_dev_attr *a;
	int rc = fabric_dev_open(dp->opts.rdma_device, &dp->rdma, err);

	if (rc < 0)
		return rc;
	dp->rdma_sets_max = sets_max(&dp->opts);
	a = fabric_dev_attr(dp->rdma);
	dp->rdma_lost = calloc(dp->opts.reactors, sizeof(*dp->rdma_lost));
	if (!dp->rdma_lost)
		return ros2_err_set(err, -ENOMEM, "no memory for the RDMA device");
	dp->rdma_qps = MIN(VERBS_QPS, a->max_cq_depth / verbs_cq_room());
	if (!dp->rdma_qps)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "RDMA device %s: completion queues of %u entries, a connection "
		                    "needs %u",
		                    a->name, a->max_cq_depth, verbs_cq_room());
	rc = loop_fd_add(dp->loop, &dp->rdma_fd, fabric_dev_event_fd(dp->rdma), EPOLLIN,
	                 on_device_fd, dp);
	if (rc < 0)
		return ros2_err_set(err, rc, "cannot watch the RDMA device: %s", strerror(-rc));
	dp->rdma_watched = true;
	return 0;
}

void dp_rdma_seen(struct dp *dp, uint32_t enforced)
{
	atomic_store_explicit(&dp->rdma_seen, enforced, memory_order_relaxed);
	if (dp->rdma)
		fabric_dev_set_peer_invalidates(dp->rdma,
		                                enforced & 1u << PROBE_FOREIGN_INVALIDATE);
}

void verbs_device_close(struct dp *dp)
{
	if (dp->rdma_watched)
		loop_fd_del(&dp->rdma_fd);
	dp->rdma_watched = false;
	/* BUSY: the device kept something of a tenant to the end; the kernel takes it back with the
	 * process. */
	if (dp->rdma && fabric_dev_close(dp->rdma) == 0)
		dp->rdma = NULL;
}

#define KEPT_LOOK_MS     10u /* and twice as long after each look */
#define KEPT_LOOK_MAX_MS 500u

/* A domain whose tenant has gone: a reactor's set of it may still be dying, and an engine's
 * controller of the tenant may end later. */
struct kept_pd {
	struct ros2_uid tenant;
	struct fabric_pd *pd;
	struct list link;
};

static bool take_kept(struct dp *dp, struct dp_tenant *t)
{
	struct kept_pd *k;

	list_for_each (&dp->kept_pds, k, link) {
		if (!ros2_uid_eq(&k->tenant, &t->uid))
			continue;
		t->pd = k->pd;
		list_del(&k->link);
		free(k);
		return true;
	}
	return false;
}

static bool engines_use(const struct dp *dp, const struct ros2_uid *tenant)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct dp_engine *e = dp->engines[i];

		if (e && e->lends &&
		    (e->ending || !e->ops->uses || e->ops->uses(e->engine, tenant)))
			return true;
	}
	return false;
}

static void free_unused(void *arg)
{
	struct dp *dp = arg;
	struct kept_pd *k, *tmp;

	list_for_each_safe (&dp->kept_pds, k, tmp, link) {
		if (engines_use(dp, &k->tenant) || fabric_pd_free(k->pd) < 0)
			continue;
		list_del(&k->link);
		free(k);
	}
	if (list_empty(&dp->kept_pds))
		return;
	loop_timer_in_ms(dp->loop, &dp->pds_timer, dp->pds_look_ms, free_unused, dp);
	dp->pds_look_ms = MIN(2 * dp->pds_look_ms, KEPT_LOOK_MAX_MS);
}

int verbs_tenant_pd_free(struct dp *dp, struct dp_tenant *t)
{
	struct kept_pd *k;

	if (!t->pd)
		return 0;
	/* Forgotten, it would answer a later revocation of the tenant as if nothing were lent. */
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->tenant = t->uid;
	k->pd = TAKE_PTR(t->pd);
	list_add_tail(&dp->kept_pds, &k->link);
	dp->pds_look_ms = KEPT_LOOK_MS;
	free_unused(dp);
	return 0;
}

const struct fabric_pd *verbs_kept_pd(const struct dp *dp, const struct ros2_uid *tenant)
{
	const struct kept_pd *k;

	list_for_each (&dp->kept_pds, k, link)
		if (ros2_uid_eq(&k->tenant, tenant))
			return k->pd;
	return NULL;
}

uint32_t verbs_kept_pds(const struct dp *dp, struct dp_keys_of *v)
{
	const struct kept_pd *k;
	uint32_t n = 0;

	list_for_each (&dp->kept_pds, k, link) {
		if (v)
			v[n] = (struct dp_keys_of){.tenant = k->tenant, .pd = k->pd};
		n++;
	}
	return n;
}

void verbs_kept_free(struct dp *dp)
{
	while (!list_empty(&dp->kept_pds)) {
		struct kept_pd *k = list_first(&dp->kept_pds, struct kept_pd, link);

		list_del(&k->link);
		(void)fabric_pd_free(k->pd);
		free(k);
	}
}

int verbs_tenant_pd(struct dp *dp, struct dp_tenant *t, struct ros2_err *err)
{
	const uint32_t slots[SLOT_CLASSES] = VERBS_SLOTS;
	uint64_t per_reactor = (uint64_t)dp->rdma_qps * VERBS_MEMORY + set_bytes();
	/* I/O queues of engines that lend, one for each reactor; and their admin queues. */
	uint32_t queues = DP_ENGINES_MAX * (dp->n_reactors + 2);
	struct fabric_pd_opts o = {.windows_max = queues * NVMF_RDMA_WINDOWS_MAX};
	uint64_t lent_bytes;
	uint32_t lent;

	if (dp->rdma_gone)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "the RDMA device %s was removed",
		                      dp->opts.rdma_device);
	if (t->pd || take_kept(dp, t))
		return 0;
	for (uint32_t i = 0; i < SLOT_CLASSES; i++)
		o.regions_max += slots[i];
	/* Twice the slots: those of a set that is dying are still there when the next is made. */
	o.regions_max = (2 * o.regions_max + dp->rdma_qps) * dp->n_reactors +
	                queues * NVMF_RDMA_REGIONS_MAX;
	o.pinned_bytes_max =
		2 * per_reactor * dp->n_reactors + (uint64_t)queues * NVMF_RDMA_PINNED_MAX;
	/* Memory of its sessions over shm. It has caps of its own, so it takes none of those. */
	shm_lend_caps(dp, &lent, &lent_bytes);
	o.regions_max += lent;
	o.pinned_bytes_max += lent_bytes;
	o.qps_max = dp->rdma_qps * dp->n_reactors + queues;
	return fabric_pd_new(dp->rdma, &o, &t->pd, err);
}
