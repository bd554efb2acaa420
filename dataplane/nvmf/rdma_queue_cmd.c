// SPDX-License-Identifier: Apache-2.0
/*
 * Commands of the queue over NVMe/RDMA: checked, given a key, handed on, and answered. Everything
 * an answer says is checked: which command, that it is one in flight and answered once, how far the
 * target has read, which key it says it has invalidated.
 */
#include "dataplane/nvmf/rdma_queue_priv.h"
#include "common/clock.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- submit ---- */

static bool within(const struct fabric_region *r, const void *buf, uint32_t len)
{
	const uint8_t *mem = fabric_region_mem(r);
	uint64_t at = (uintptr_t)buf - (uintptr_t)mem;

	return mem && (uintptr_t)buf >= (uintptr_t)mem && at <= fabric_region_length(r) &&
	       len <= fabric_region_length(r) - at;
}

static int check(const struct rdma_queue *q, const struct nvmf_req *req)
{
	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	if ((req->dir == NVMF_NO_DATA) != (req->len == 0) || req->len > q->transfer_max ||
	    (unsigned int)req->dir > NVMF_TO_TARGET || (req->len && !req->buf))
		return -EINVAL;
	if (!req->len)
		return 0;
	if (req->region)
		return within(req->region, req->buf, req->len) ? 0 : -EINVAL;
	/* Copied: only what controls the target, and the ranges of a deallocate. */
	return req->len <= RDMA_OWN_BYTES && (q->qid == 0 || req->sqe.opcode == NVME_FABRICS ||
	                                      req->sqe.opcode == NVME_IO_DSM)
	               ? 0
	               : -EINVAL;
}

static int take_own(struct rdma_cmd *cmd)
{
	struct rdma_queue *q = cmd->q;
	const struct nvmf_req *req = cmd->req;

	if (!q->own_free)
		return -EAGAIN;
	cmd->own_index = (uint32_t)__builtin_ctz(q->own_free);
	q->own_free &= q->own_free - 1;
	cmd->own = fabric_region_mem(q->own_regions[cmd->own_index]);
	if (req->dir == NVMF_TO_TARGET) {
		memcpy(cmd->own, req->buf, req->len);
		q->c.copied_bytes += req->len;
	} else {
		memset(cmd->own, 0, req->len);
	}
	return 0;
}

static void give_own(struct rdma_cmd *cmd)
{
	if (cmd->own)
		cmd->q->own_free |= 1u << cmd->own_index;
	cmd->own = NULL;
}

/* How the data travels, as the descriptor says it; *ret_part is what goes in the capsule. */
static int describe(struct rdma_cmd *cmd, struct nvme_sqe *sqe, struct fabric_part *ret_part)
{
	struct rdma_queue *q = cmd->q;
	const struct nvmf_req *req = cmd->req;
	struct fabric_region *r = req->region;
	uint64_t addr = 0, offset;
	uint32_t key = 0;
	int rc = 0;

	if (!req->len)
		return nvme_sgl_keyed(sqe, 0, 0, 0, false);
	if (!r) {
		rc = take_own(cmd);
		if (rc < 0)
			return rc;
		r = q->own_regions[cmd->own_index];
	}
	offset = cmd->own ? 0 : (uintptr_t)req->buf - (uintptr_t)fabric_region_mem(r);
	if (req->dir == NVMF_TO_TARGET && req->len <= q->in_capsule_max && !cmd->own) {
		nvme_sgl_in_capsule(sqe, 0, req->len);
		*ret_part = (struct fabric_part){r, offset, req->len};
		return 0;
	}
	/* A standing key would let the target read or write what the tenant has there later. */
	rc = rdma_key_for(cmd, r, offset, req->len, cmd->own || req->tenant_memory, &addr, &key);
	if (rc < 0)
		return rc;
	cmd->invalidate = q->remote_invalidate && cmd->window;
	return nvme_sgl_keyed(sqe, addr, req->len, key, cmd->invalidate);
}

static void new_cid(struct rdma_cmd *cmd)
{
	do {
		cmd->generation++;
		cmd->cid = (uint16_t)(cmd->generation << cmd->q->index_bits | cmd->index);
	} while (cmd->cid == 0xffff); /* Base 4.1.1: not to be used */
}

static int send_capsule(struct rdma_cmd *cmd, const struct fabric_part *data)
{
	struct rdma_queue *q = cmd->q;
	struct fabric_part parts[2] = {{.region = q->region,
	                                .offset = (uint64_t)cmd->index * RDMA_CAPSULE,
	                                .length = RDMA_CAPSULE},
	                               *data};
	struct fabric_wr wr = {.cookie = rdma_cookie(RDMA_SEND, cmd->cid),
	                       .parts = parts,
	                       .n_parts = data->length ? 2 : 1,
	                       /* the end of its LOCAL_INV says that it was sent */
	                       .flags = cmd->window ? FABRIC_QUIET : 0,
	                       .under = cmd->window};

	cmd->wait_sent = !cmd->window;
	return fabric_send(q->qp, &wr);
}

/* It was never handed on: a key made for it is revoked, and nobody waits for that. */
static int undo(struct rdma_cmd *cmd, int rc)
{
	struct rdma_queue *q = cmd->q;

	if (cmd->window) {
		(void)fabric_window_revoke(TAKE_PTR(cmd->window), q->now_ns, NULL, NULL);
		q->ends_queued = true;
		q->c.keys_revoked++;
	}
	rdma_key_drop(cmd);
	give_own(cmd);
	cmd->req = NULL;
	return rc;
}

int rdma_submit(struct rdma_queue *q, struct nvmf_req *req)
{
	struct fabric_part data = {0};
	struct nvme_sqe *sqe;
	struct rdma_cmd *cmd;
	int rc = check(q, req);

	if (rc < 0)
		return rc;
	if (q->n_busy >= q->limit || list_empty(&q->free) || fabric_qp_send_room(q->qp) < 2)
		return -EAGAIN;
	cmd = list_first(&q->free, struct rdma_cmd, link);
	cmd->req = req;
	cmd->invalidate = cmd->sent = cmd->answered = cmd->was_out = cmd->cut = cmd->late = false;
	new_cid(cmd);
	sqe = (struct nvme_sqe *)(void *)rdma_capsule(q, cmd->index);
	*sqe = req->sqe;
	sqe->cid = cmd->cid;
	sqe->flags = NVME_FLAG_SGL;
	rc = describe(cmd, sqe, &data);
	if (rc == 0)
		rc = send_capsule(cmd, &data);
	if (rc < 0)
		return undo(cmd, rc == -EBUSY ? -EAGAIN : rc);
	cmd->state = RDMA_CMD_QUEUED;
	req->priv[0] = (uintptr_t)cmd;
	list_del(&cmd->link);
	list_add_tail(&q->queued, &cmd->link);
	q->n_busy++;
	q->c.submitted++;
	q->last_ns = MIN(q->last_ns, req->until_ns - 1); /* 0, no limit, is far away */
	return 0;
}

/* A right has ended since it was submitted: the capsule stays here, and a key made for it ends
 * without anybody having been told of it. */
static void withdraw_late(struct rdma_queue *q)
{
	uint64_t now_ns = q->last_ns == UINT64_MAX ? 0 : clock_boottime_ns();
	struct rdma_cmd *cmd, *tmp;

	if (now_ns <= q->last_ns)
		return;
	list_for_each_safe (&q->queued, cmd, tmp, link) {
		if (!cmd->req->until_ns || now_ns < cmd->req->until_ns)
			continue;
		if (!fabric_send_withdraw(q->qp, rdma_cookie(RDMA_SEND, cmd->cid)))
			continue;
		list_del(&cmd->link);
		cmd->late = true;
		cmd->wait_sent = cmd->invalidate = false;
		rdma_key_drop(cmd);
		rdma_settle(cmd);
	}
}

int rdma_hand_on(struct rdma_queue *q)
{
	bool commands;
	int rc;

	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	withdraw_late(q);
	q->last_ns = UINT64_MAX;
	commands = !list_empty(&q->queued);
	if (!commands && !q->ends_queued && !q->receives_queued)
		return 0;
	/* Before the device is asked: what it does with a part of them is not told. */
	while (!list_empty(&q->queued)) {
		struct rdma_cmd *cmd = list_first(&q->queued, struct rdma_cmd, link);
		uint64_t limit = cmd->req->timeout_ns;

		cmd->state = RDMA_CMD_OUT;
		cmd->was_out = true;
		cmd->req->deadline_ns = limit ? clock_add_ns(q->now_ns, limit) : UINT64_MAX;
		list_del(&cmd->link);
		list_add_tail(&q->out, &cmd->link);
	}
	q->c.calls += commands;
	q->c.revoke_calls += !commands && q->ends_queued;
	q->ends_queued = q->receives_queued = false;
	rc = fabric_qp_flush(q->qp, q->now_ns);
	if (rc == 0)
		return 0;
	rdma_fail(q, "%s",
	          rc == -ENOTCONN ? "the queue pair has failed"
	                          : "the RDMA device refused to send");
	return -ENOTCONN;
}

/* ---- ends ---- */

void rdma_settle(struct rdma_cmd *cmd)
{
	struct rdma_queue *q = cmd->q;
	bool failed = q->state == NVMF_QUEUE_FAILED;

	if (cmd->state != RDMA_CMD_OUT && cmd->state != RDMA_CMD_QUEUED)
		return;
	if ((!cmd->answered && !cmd->late && !failed) || cmd->window ||
	    (cmd->wait_sent && !cmd->sent))
		return;
	if (failed && cmd->standing && cmd->standing->window)
		return;
	cmd->state = RDMA_CMD_READY;
	list_del(&cmd->link);
	list_add_tail(&q->ready, &cmd->link);
}

/* Of the request, after its command is no more: what moved. */
static void account(struct rdma_cmd *cmd, int rc)
{
	struct rdma_queue *q = cmd->q;
	struct nvmf_req *req = cmd->req;

	q->c.answered += rc == 0;
	q->c.unknown += rc == -EREMOTEIO;
	q->c.cancelled += rc == -ECANCELED;
	if (rc != 0 || cmd->cqe.status >> 1 != NVME_SC_SUCCESS)
		return;
	if (req->dir == NVMF_TO_TARGET)
		q->c.bytes_out += req->len;
	else
		q->c.bytes_in += req->len;
	if (cmd->own && req->dir == NVMF_FROM_TARGET) {
		memcpy(req->buf, cmd->own, req->len);
		q->c.copied_bytes += req->len;
	}
}

void rdma_release(struct rdma_cmd *cmd)
{
	struct rdma_queue *q = cmd->q;
	struct nvmf_req *req = cmd->req;
	int rc = cmd->answered ? 0 : cmd->was_out ? -EREMOTEIO : -ECANCELED;
	struct nvme_cqe cqe = cmd->cqe;

	account(cmd, rc);
	rdma_key_drop(cmd);
	give_own(cmd);
	cmd->req = NULL;
	cmd->state = RDMA_CMD_FREE;
	list_del(&cmd->link);
	list_add_tail(&q->free, &cmd->link);
	q->n_busy--;
	req->done(req, rc, rc == 0 ? &cqe : NULL);
}

static struct rdma_cmd *cmd_of(struct rdma_queue *q, uint16_t cid)
{
	uint32_t index = cid & ((1u << q->index_bits) - 1);
	struct rdma_cmd *cmd = index < q->depth ? &q->cmds[index] : NULL;

	return cmd && cmd->cid == cid && cmd->req ? cmd : NULL;
}

static bool keys_agree(struct rdma_queue *q, const struct rdma_cmd *cmd,
                       const struct fabric_completion *e)
{
	if (!e->invalidated || (cmd->invalidate && e->key == cmd->key))
		return true;
	rdma_fail(q, "target sent an answer that invalidates a key: expected %s",
	          cmd->invalidate ? "the key of its command, found another"
	                          : "none, it was not asked to");
	return false;
}

static void answered(struct rdma_queue *q, const struct nvme_cqe *cqe,
                     const struct fabric_completion *e)
{
	struct rdma_cmd *cmd = cmd_of(q, cqe->cid);

	if (!cmd || cmd->state != RDMA_CMD_OUT || cmd->answered) {
		rdma_fail(q,
		          "target sent an answer: expected a command in flight, found id %#06x%s",
		          cqe->cid, cmd && cmd->answered ? ", answered before" : "");
		return;
	}
	if (cqe->sq_head > q->depth) {
		rdma_fail(q, "target sent an answer: expected a queue head of 0..%u, found %u",
		          q->depth, cqe->sq_head);
		return;
	}
	if (!keys_agree(q, cmd, e))
		return;
	cmd->answered = true;
	cmd->cqe = *cqe;
	rdma_key_drop(cmd);
	rdma_settle(cmd);
}

static void received(struct rdma_queue *q, const struct fabric_completion *e)
{
	uint32_t index = (uint32_t)e->cookie;
	struct nvme_cqe cqe;

	if (e->bytes != RDMA_ANSWER) {
		rdma_fail(q, "target sent an answer: expected %zu bytes, found %u", RDMA_ANSWER,
		          e->bytes);
		return;
	}
	memcpy(&cqe, q->mem + rdma_answer_at(q, index), sizeof(cqe));
	answered(q, &cqe, e);
	if (q->state == NVMF_QUEUE_READY && rdma_post_receive(q, q->qp, index) == 0)
		q->receives_queued = true;
}

static void capsule_sent(struct rdma_queue *q, const struct fabric_completion *e)
{
	struct rdma_cmd *cmd = cmd_of(q, (uint16_t)e->cookie);

	if (!cmd)
		return;
	cmd->sent = true;
	rdma_settle(cmd);
}

/* A target that was honest may still be at a command whose right has ended. */
static bool any_cut(const struct rdma_queue *q)
{
	const struct rdma_cmd *cmd;

	list_for_each (&q->out, cmd, link)
		if (cmd->cut && !cmd->answered)
			return true;
	return false;
}

static const char *words_of(const struct rdma_queue *q, const struct fabric_completion *e)
{
	switch (e->end) {
	case FABRIC_END_NO_ANSWER:
		return "the target does not answer";
	case FABRIC_END_NO_RECEIVE:
		return "the target has no receive posted: expected one for each command";
	case FABRIC_END_LOCAL:
		return e->op == FABRIC_OP_RECV
		               ? "target sent an answer that is too long: expected 16 bytes"
		               : "the RDMA device refused a work request";
	case FABRIC_END_FLUSHED:
		/* Before the connection ended, of which the queue pair learns from us only. */
		if (q->conn_ended)
			return "the queue pair went to error with its connection";
		return any_cut(q) ? "the queue pair went to error: the target still used a key "
		                    "that had ended with a right"
		                  : "target used a key that was not good, or the RDMA device "
		                    "failed: the queue pair went to error";
	case FABRIC_END_REMOTE_ACCESS:
	case FABRIC_END_REMOTE_OTHER:
		return "the target refused a message";
	default:
		return "the RDMA device failed";
	}
}

void rdma_ended(struct rdma_queue *q, const struct fabric_completion *e)
{
	/* Answers that came before the end count: see take_ends. */
	if (e->end != FABRIC_END_OK && (!q->broken || e->end != FABRIC_END_FLUSHED))
		q->broken = words_of(q, e);
	if (e->op == FABRIC_OP_SEND)
		capsule_sent(q, e);
	else if (e->op == FABRIC_OP_RECV && e->end == FABRIC_END_OK && q->state == NVMF_QUEUE_READY)
		received(q, e);
}
