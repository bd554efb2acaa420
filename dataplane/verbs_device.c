/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's part of the verbs transport: the device, a protection domain for each tenant that uses
 * it, and what the device reports by itself, which is carried to the reactors it concerns.
 */
#include "dataplane/verbs.h"
#include "dataplane/verbs_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

static void tell_reactor(struct dp *dp, struct reactor *r, const struct fabric_event *e)
{
	struct dp_op *op = dp_op_new(dp, NULL, NULL);

	op->a = e->set_cookie;
	op->b = e->kind == FABRIC_EVENT_QP_FAILED ? e->qp_id : 0;
	op->handle = e->kind == FABRIC_EVENT_DEVICE_REMOVED;
	dp_op_to_reactor(op, r, verbs_run_failed, dp_op_finish);
}

static void on_device_event(void *arg, const struct fabric_event *e)
{
	struct dp *dp = arg;
	uint32_t reactor = (uint32_t)(e->set_cookie >> 32);

	switch (e->kind) {
	case FABRIC_EVENT_DEVICE_REMOVED:
		dp->rdma_gone = true;
		for (uint32_t i = 0; i < dp->n_reactors; i++)
			tell_reactor(dp, dp->reactors[i], e);
		break;
	case FABRIC_EVENT_QP_FAILED:
	case FABRIC_EVENT_CQ_FAILED:
		if (reactor < dp->n_reactors)
			tell_reactor(dp, dp->reactors[reactor], e);
		break;
	default: /* a port that goes down shows itself in retries */
		break;
	}
}

static void on_device_fd(void *arg, uint32_t revents)
{
	struct dp *dp = arg;

	(void)fabric_dev_events(dp->rdma, on_device_event, dp);
}

int verbs_device_open(struct dp *dp, struct ros2_err *err)
{
	const struct fabric_dev_attr *a;
	int rc = fabric_dev_open(dp->opts.rdma_device, &dp->rdma, err);

	if (rc < 0)
		return rc;
	a = fabric_dev_attr(dp->rdma);
	dp->rdma_qps = MIN(VERBS_QPS, a->max_cq_depth / (VERBS_SEND_DEPTH + VERBS_RECVS));
	if (!dp->rdma_qps)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "RDMA device %s: completion queues of %u entries, a connection "
		                    "needs %u",
		                    a->name, a->max_cq_depth, VERBS_SEND_DEPTH + VERBS_RECVS);
	rc = loop_fd_add(dp->loop, &dp->rdma_fd, fabric_dev_event_fd(dp->rdma), EPOLLIN,
	                 on_device_fd, dp);
	if (rc < 0)
		return ros2_err_set(err, rc, "cannot watch the RDMA device: %s", strerror(-rc));
	dp->rdma_watched = true;
	return 0;
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

int verbs_tenant_pd(struct dp *dp, struct dp_tenant *t, struct ros2_err *err)
{
	const uint32_t slots[SLOT_CLASSES] = VERBS_SLOTS;
	uint64_t per_reactor = (uint64_t)dp->rdma_qps * VERBS_MEMORY;
	struct fabric_pd_opts o = {.windows_max = 1};

	if (dp->rdma_gone)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "the RDMA device %s was removed",
		                      dp->opts.rdma_device);
	if (t->pd)
		return 0;
	for (uint32_t i = 0; i < SLOT_CLASSES; i++) {
		per_reactor += (uint64_t)slots[i] * slots_class_bytes(i);
		o.regions_max += slots[i];
	}
	o.regions_max = (o.regions_max + dp->rdma_qps) * dp->n_reactors;
	o.pinned_bytes_max = per_reactor * dp->n_reactors;
	o.qps_max = dp->rdma_qps * dp->n_reactors;
	return fabric_pd_new(dp->rdma, &o, &t->pd, err);
}

void verbs_tenant_pd_free(struct dp *dp, struct dp_tenant *t)
{
	/* BUSY: a set of it is still dying at a reactor; then it goes with the process. */
	if (t->pd)
		(void)fabric_pd_free(TAKE_PTR(t->pd));
}
