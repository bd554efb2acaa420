// SPDX-License-Identifier: Apache-2.0
/*
 * The connection of a queue over NVMe/RDMA: asked for with the private data of the specification
 * (NVMe/RDMA 1.0, 3.2), with a queue pair whose remote operations are open, because the target is
 * the initiator here: the opposite of tenant-facing ones.
 */
#include "dataplane/nvmf/rdma_queue_priv.h"
#include "common/clock.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>

/* By our clock or by that of the connection manager, whichever is first. */
#define NO_ANSWER "the target did not answer a request to connect in time"

int rdma_post_receive(struct rdma_queue *q, struct fabric_qp *qp, uint32_t index)
{
	struct fabric_part part = {
		.region = q->region, .offset = rdma_answer_at(q, index), .length = RDMA_ANSWER};
	struct fabric_wr wr = {
		.cookie = rdma_cookie(RDMA_RECV, index), .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

/* One for each command, and one that an honest target never needs. */
static int post_all(void *arg, struct fabric_qp *qp)
{
	struct rdma_queue *q = arg;
	int rc = 0;

	for (uint32_t i = 0; i <= q->depth && rc == 0; i++)
		rc = rdma_post_receive(q, qp, i);
	return rc == 0 ? fabric_qp_flush(qp, q->now_ns) : rc;
}

static void ask(struct rdma_queue *q)
{
	const struct fabric_dev_attr *a = fabric_dev_attr(fabric_pd_dev(q->pd));
	struct nvme_rdma_request hello;
	struct ros2_err err = ROS2_ERR_INIT;
	struct fabric_conn_opts o = {
		.qp = {.send_depth = 2 * q->depth,
	               .recv_depth = q->depth + 1,
	               .send_parts = 2,
	               .inline_bytes = RDMA_CAPSULE,
	               .windows = q->n_windows,
	               .remote_access = FABRIC_READ | FABRIC_WRITE,
	               .reads_in = (uint8_t)MIN(RDMA_READS_IN, a->max_reads_in),
	               .join_limit_ns = q->connect_deadline_ns > q->now_ns
	                                        ? q->connect_deadline_ns - q->now_ns
	                                        : 1},
		.hello = {.data = &hello, .length = sizeof(hello)},
		.prepare = post_all,
		.arg = q,
	};

	nvme_rdma_request_fill(&hello, q->qid, q->depth + 1, q->cntlid);
	if (fabric_conn_ask(q->conn, q->set, &o, &q->qp, &err) < 0)
		rdma_fail(q, "%s", err.msg);
}

static void established(struct rdma_queue *q, const struct fabric_conn_event *e)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t depth;

	if (nvme_rdma_accept_parse(e->data, e->data_len, &depth, &err) < 0) {
		rdma_fail(q, "%s", err.msg);
		return;
	}
	q->limit = MIN(q->depth, depth);
	q->state = NVMF_QUEUE_READY;
}

static void rejected(struct rdma_queue *q, const struct fabric_conn_event *e)
{
	uint16_t status;

	if (nvme_rdma_reject_parse(e->data, e->data_len, &status, NULL) < 0)
		rdma_fail(q, "the target refused the connection: %s", e->words);
	else
		rdma_fail(q, "the target refused the connection: %s",
		          nvme_rdma_status_text(status));
}

static void on_event(void *arg, const struct fabric_conn_event *e)
{
	struct rdma_queue *q = arg;

	if (q->state == NVMF_QUEUE_FAILED || e->conn != q->conn)
		return;
	switch (e->kind) {
	case FABRIC_CONN_EVENT_RESOLVED:
		ask(q);
		break;
	case FABRIC_CONN_EVENT_ESTABLISHED:
		established(q, e);
		break;
	case FABRIC_CONN_EVENT_REJECTED:
		rejected(q, e);
		break;
	default:
		/* What was answered before it ended counts. */
		q->conn_ended = true;
		rdma_collect(q);
		if (q->broken && nvmf_queue_lied(q->broken))
			rdma_fail(q, "%s", q->broken);
		else if (q->state == NVMF_QUEUE_CONNECTING && e->code == -ETIMEDOUT)
			rdma_fail(q, NO_ANSWER);
		else
			rdma_fail(q, "the connection ended: %s", e->words);
	}
}

void rdma_cm_events(struct rdma_queue *q)
{
	if (q->cm)
		(void)fabric_cm_events(q->cm, on_event, q);
}

void rdma_cm_tick(struct rdma_queue *q)
{
	rdma_cm_events(q);
	fabric_cm_tick(q->cm, q->now_ns, on_event, q);
	if (q->state == NVMF_QUEUE_CONNECTING && q->now_ns >= q->connect_deadline_ns)
		rdma_fail(q, NO_ANSWER);
}

int rdma_connect_begin(struct rdma_queue *q, const struct sockaddr *peer, struct ros2_err *err)
{
	int rc = fabric_cm_new(&(struct fabric_cm_opts){.conns_max = 1}, &q->cm, err);

	return rc == 0 ? fabric_connect(q->cm, NULL, peer, 0, &q->conn, err) : rc;
}
