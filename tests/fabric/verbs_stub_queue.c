// SPDX-License-Identifier: Apache-2.0
/* The queues of the stub: completions, transfers between its queue pairs, windows. See
 * verbs_stub.h. */
#include "tests/fabric/verbs_stub_priv.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

void stub_push_event(struct ibv_async_event e)
{
	uint64_t one = 1;

	st.events[st.ev_tail++ % EVENTS] = e;
	(void)!write(st.async_fd, &one, sizeof(one));
}

void stub_push(struct ibv_cq *to, struct ibv_wc wc)
{
	struct cq *cq = container_of(to, struct cq, cq);
	struct channel *ch;
	uint64_t one = 1;

	if (st.lose)
		return;
	if (cq->tail - cq->head >= (uint32_t)cq->cq.cqe) {
		stub_blame("a completion queue overflowed");
		stub_push_event(
			(struct ibv_async_event){.element.cq = to, .event_type = IBV_EVENT_CQ_ERR});
		return;
	}
	cq->wc[cq->tail++ % ARRAY_SIZE(cq->wc)] = wc;
	if (!cq->armed || !cq->cq.channel)
		return;
	cq->armed = false;
	ch = container_of(cq->cq.channel, struct channel, channel);
	ch->events[ch->tail++ % EVENTS] = cq;
	(void)!write(ch->channel.fd, &one, sizeof(one));
}

static void end_send(struct qp *qp, const struct swr *w, enum ibv_wc_status status)
{
	if (status != IBV_WC_SUCCESS || w->flags & IBV_SEND_SIGNALED)
		stub_push(qp->qp.send_cq, (struct ibv_wc){.wr_id = w->wr_id,
		                                          .status = status,
		                                          .vendor_err = STUB_VENDOR_ERR,
		                                          .qp_num = qp->qp.qp_num});
}

static void flush(struct qp *qp)
{
	while (qp->sq_head != qp->sq_tail)
		end_send(qp, &qp->sq[qp->sq_head++ % QUEUE], IBV_WC_WR_FLUSH_ERR);
	while (qp->rq_head != qp->rq_tail)
		stub_push(qp->qp.recv_cq,
		          (struct ibv_wc){.wr_id = qp->rq[qp->rq_head++ % QUEUE].wr_id,
		                          .status = IBV_WC_WR_FLUSH_ERR,
		                          .vendor_err = STUB_VENDOR_ERR,
		                          .qp_num = qp->qp.qp_num});
}

void stub_to_error(struct qp *qp)
{
	qp->state = qp->qp.state = IBV_QPS_ERR;
	flush(qp);
}

/* ---- transfers ---- */

static uint64_t total(const struct ibv_sge *sge, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += sge[i].length;
	return sum;
}

static bool local_ok(const struct qp *qp, const struct ibv_sge *sge)
{
	for (int i = 0; i < MRS; i++) {
		const struct mr *m = &st.mrs[i];

		if (m->used && m->mr.lkey == sge->lkey)
			return m->mr.pd == qp->qp.pd && sge->addr >= (uintptr_t)m->mr.addr &&
			       sge->addr + sge->length <= (uintptr_t)m->mr.addr + m->mr.length;
	}
	return false;
}

static void move(const struct ibv_sge *sge, int n, uint8_t *flat, uint64_t limit, bool out)
{
	for (int i = 0; i < n && limit; i++) {
		uint64_t k = MIN(limit, sge[i].length);
		void *p =
			(void *)(uintptr_t)sge[i].addr; /* NOLINT: an address is what an sge has */

		if (out)
			memcpy(flat, p, k);
		else
			memcpy(p, flat, k);
		flat += k;
		limit -= k;
	}
}

struct mw *stub_window_of(uint32_t key)
{
	for (uint32_t i = 0; i < st.next_window; i++)
		if (st.windows[i].used && st.windows[i].bound && st.windows[i].key == key)
			return &st.windows[i];
	return NULL;
}

static enum ibv_wc_status do_send(struct qp *qp, const struct swr *w, struct qp *peer)
{
	struct rwr *r = &peer->rq[peer->rq_head % QUEUE];
	uint64_t n = total(w->sge, w->n_sge);
	struct ibv_wc wc = {.wr_id = r->wr_id,
	                    .byte_len = (uint32_t)n,
	                    .qp_num = peer->qp.qp_num,
	                    .opcode = IBV_WC_RECV};
	uint8_t *flat;

	if (n > total(r->sge, r->n_sge))
		return IBV_WC_REM_INV_REQ_ERR;
	flat = stub_zalloc(1, n + 1);
	move(w->sge, w->n_sge, flat, n, true);
	move(r->sge, r->n_sge, flat, n, false);
	free(flat);
	if (w->opcode == IBV_WR_SEND_WITH_INV) {
		struct mw *mw = stub_window_of(w->key);

		if (!mw || mw->qp != peer)
			return IBV_WC_REM_ACCESS_ERR;
		mw->bound = false;
		mw->mr->n_bound--;
		wc.wc_flags = IBV_WC_WITH_INV;
		wc.invalidated_rkey = w->key;
	}
	peer->rq_head++;
	stub_push(peer->qp.recv_cq, wc);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status do_rdma(struct qp *qp, const struct swr *w, struct qp *peer)
{
	bool is_read = w->opcode == IBV_WR_RDMA_READ;
	unsigned int need = is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	uint64_t n = total(w->sge, w->n_sge);
	const struct mw *mw = stub_window_of(w->key);

	if (!(peer->access & need))
		return IBV_WC_REM_ACCESS_ERR;
	if (n == 0)
		return IBV_WC_SUCCESS;
	if (!mw || mw->qp != peer || !(mw->access & need) || w->remote < mw->addr ||
	    w->remote + n > mw->addr + mw->length)
		return IBV_WC_REM_ACCESS_ERR;
	move(w->sge, w->n_sge, (uint8_t *)(uintptr_t)w->remote, n, !is_read); /* NOLINT */
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status do_bind(struct qp *qp, const struct swr *w)
{
	struct mw *mw = w->mw;
	struct mr *mr = container_of(w->info.mr, struct mr, mr);

	if (!mw->used || mw->bound || w->mw_key != mw->key || w->info.length == 0 || !mr->used) {
		stub_blame("a bind of a window that is gone, bound, or under another key than was "
		           "said");
		return IBV_WC_MW_BIND_ERR;
	}
	if (mw->mw.pd != qp->qp.pd || mr->mr.pd != qp->qp.pd ||
	    !(mr->access & IBV_ACCESS_MW_BIND) || w->info.addr < (uintptr_t)mr->mr.addr ||
	    w->info.addr + w->info.length > (uintptr_t)mr->mr.addr + mr->mr.length) {
		stub_blame("a bind that the region does not allow");
		return IBV_WC_MW_BIND_ERR;
	}
	if ((w->bind_key ^ mw->key) & ~0xffu || w->bind_key == mw->key)
		stub_blame("a bind under an index that is not the window's, or under its last key");
	mw->bound = true;
	mw->qp = qp;
	mw->mr = mr;
	mw->key = w->bind_key;
	mw->addr = w->info.addr;
	mw->length = w->info.length;
	mw->access = w->info.mw_access_flags;
	mr->n_bound++;
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status do_invalidate(struct qp *qp, const struct swr *w)
{
	struct mw *mw = stub_window_of(w->key);

	if (!mw || mw->qp != qp) {
		stub_blame("LOCAL_INV of a window that is not bound to this queue pair");
		return IBV_WC_MW_BIND_ERR;
	}
	mw->bound = false;
	mw->mr->n_bound--;
	return IBV_WC_SUCCESS;
}

static enum stub_op op_of(enum ibv_wr_opcode o)
{
	switch (o) {
	case IBV_WR_RDMA_READ:
		return STUB_READ;
	case IBV_WR_RDMA_WRITE:
		return STUB_WRITE;
	case IBV_WR_BIND_MW:
		return STUB_BIND;
	case IBV_WR_LOCAL_INV:
		return STUB_INV;
	default:
		return STUB_SEND;
	}
}

static bool peer_listens(const struct qp *peer)
{
	return peer && (peer->state == IBV_QPS_RTR || peer->state == IBV_QPS_RTS);
}

static void run(struct qp *qp)
{
	while (qp->state == IBV_QPS_RTS && qp->sq_head != qp->sq_tail) {
		struct swr *w = &qp->sq[qp->sq_head % QUEUE];
		struct qp *peer = stub_qp_of(qp->dest);
		enum stub_op op = op_of(w->opcode);
		enum ibv_wc_status status;

		if (st.held & op)
			return;
		if (st.end_op == op) {
			status = (enum ibv_wc_status)st.end_status;
			st.end_op = 0;
		} else if (op == STUB_BIND) {
			status = do_bind(qp, w);
		} else if (op == STUB_INV) {
			status = do_invalidate(qp, w);
		} else if (peer && peer->state == IBV_QPS_ERR) {
			status = IBV_WC_RETRY_EXC_ERR;
		} else if (!peer_listens(peer) ||
		           (op == STUB_SEND && peer->rq_head == peer->rq_tail)) {
			return; /* it waits */
		} else {
			status = op == STUB_SEND ? do_send(qp, w, peer) : do_rdma(qp, w, peer);
		}
		qp->sq_head++;
		end_send(qp, w, status);
		if (status != IBV_WC_SUCCESS)
			stub_to_error(qp);
	}
}

void stub_run_all(void)
{
	for (int i = 0; i < QPS; i++)
		if (st.qps[i].used)
			run(&st.qps[i]);
}

/* ---- the tables of a context ---- */

static int post_send_one(struct qp *qp, const struct ibv_send_wr *in)
{
	struct swr *w = &qp->sq[qp->sq_tail % QUEUE];
	size_t at = 0;

	if (in->num_sge > SGES || qp->sq_tail - qp->sq_head >= qp->sq_max) {
		stub_blame("more in the send queue than it was made for");
		return ENOMEM;
	}
	*w = (struct swr){.wr_id = in->wr_id,
	                  .opcode = in->opcode,
	                  .flags = in->send_flags,
	                  .n_sge = in->num_sge,
	                  .remote = in->wr.rdma.remote_addr,
	                  .key = in->wr.rdma.rkey};
	if (in->num_sge)
		memcpy(w->sge, in->sg_list, sizeof(w->sge[0]) * (size_t)in->num_sge);
	if (in->opcode == IBV_WR_LOCAL_INV || in->opcode == IBV_WR_SEND_WITH_INV)
		w->key = in->invalidate_rkey;
	if (in->opcode == IBV_WR_BIND_MW && st.mellanox &&
	    in->bind_mw.bind_info.length > 1ull << 31)
		return EOPNOTSUPP;
	if (in->opcode == IBV_WR_BIND_MW) {
		if (in->num_sge != 0 || in->imm_data != 0)
			stub_blame("a bind with num_sge or imm_data");
		w->mw = container_of(in->bind_mw.mw, struct mw, mw);
		w->mw_key = in->bind_mw.mw->rkey;
		w->bind_key = in->bind_mw.rkey;
		w->info = in->bind_mw.bind_info;
	}
	for (int i = 0; i < w->n_sge; i++) {
		if (w->sge[i].length == 0 || !local_ok(qp, &w->sge[i]))
			stub_blame("a work request names memory that is not registered");
		if (!(w->flags & IBV_SEND_INLINE))
			continue;
		if (at + w->sge[i].length > MIN(qp->max_inline, sizeof(w->copy))) {
			stub_blame("more inline data than the queue pair takes");
			return EINVAL;
		}
		memcpy(w->copy + at, (void *)(uintptr_t)w->sge[i].addr,
		       w->sge[i].length); /* NOLINT */
		w->sge[i].addr = (uintptr_t)w->copy + at;
		at += w->sge[i].length;
	}
	qp->sq_tail++;
	return 0;
}

int stub_post_send(struct ibv_qp *to, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	STUB_LOCK;
	struct qp *qp = container_of(to, struct qp, qp);
	int r = stub_fault(STUB_post_send);

	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR && r == 0) {
		stub_blame("a send on a queue pair that is not ready");
		r = EINVAL;
	}
	for (; wr && r == 0; wr = wr->next) {
		r = post_send_one(qp, wr);
		if (r)
			break;
	}
	if (r)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR)
		flush(qp);
	stub_run_all();
	return r;
}

int stub_post_recv(struct ibv_qp *to, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	STUB_LOCK;
	struct qp *qp = container_of(to, struct qp, qp);
	int r = stub_fault(STUB_post_recv);

	if (qp->state == IBV_QPS_RESET && r == 0) {
		stub_blame("a receive on a queue pair in RESET");
		r = EINVAL;
	}
	for (; wr && r == 0; wr = wr->next) {
		struct rwr *w = &qp->rq[qp->rq_tail % QUEUE];

		if (qp->rq_tail - qp->rq_head >= qp->rq_max) {
			stub_blame("more in the receive queue than it was made for");
			r = ENOMEM;
			break;
		}
		*w = (struct rwr){.wr_id = wr->wr_id, .n_sge = wr->num_sge};
		for (int i = 0; i < wr->num_sge; i++) {
			w->sge[i] = wr->sg_list[i];
			if (!local_ok(qp, &w->sge[i]))
				stub_blame("a receive names memory that is not registered");
		}
		qp->rq_tail++;
	}
	if (r)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR)
		flush(qp);
	stub_run_all();
	return r;
}

int stub_poll_cq(struct ibv_cq *from, int n, struct ibv_wc *out)
{
	STUB_LOCK;
	struct cq *cq = container_of(from, struct cq, cq);
	int k = 0;

	if (stub_fault(STUB_poll_cq))
		return -1;
	while (k < n && cq->head != cq->tail)
		out[k++] = cq->wc[cq->head++ % ARRAY_SIZE(cq->wc)];
	return k;
}

int stub_req_notify_cq(struct ibv_cq *on, int solicited_only)
{
	STUB_LOCK;
	int r = stub_fault(STUB_req_notify_cq);

	if (r == 0)
		container_of(on, struct cq, cq)->armed = true;
	return r;
}

struct ibv_mw *stub_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	STUB_LOCK;
	struct mw *w;

	if (stub_fault(STUB_alloc_mw))
		return NULL;
	assert(type == IBV_MW_TYPE_2 && st.next_window < WINDOWS);
	w = &st.windows[st.next_window];
	*w = (struct mw){.used = true, .key = (st.next_window + 1) << 8 | 7};
	st.next_window++;
	w->mw = (struct ibv_mw){.context = pd->context, .pd = pd, .rkey = w->key, .type = type};
	stub_born(1);
	return &w->mw;
}

int stub_dealloc_mw(struct ibv_mw *mw)
{
	STUB_LOCK;
	struct mw *w = container_of(mw, struct mw, mw);
	int r = stub_fault(STUB_dealloc_mw);

	if (r)
		return r;
	if (!w->used)
		stub_blame("a window was deallocated twice");
	if (w->bound)
		w->mr->n_bound--;
	w->used = w->bound = false;
	stub_born(-1);
	stub_order_add("dealloc_mw");
	return 0;
}
