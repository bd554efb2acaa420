// SPDX-License-Identifier: Apache-2.0
/*
 * From completions to reports. A completion ends its entry and, because RC completes in order, all
 * before it; an error fails the queue pair. Each entry is ended exactly once, by a completion, by
 * being dropped before it was handed on, or by the end of its queue pair; what it held is let go
 * there, before anybody is told.
 */
#include "dataplane/fabric/verbs_priv.h"
#include <assert.h>

static enum fabric_end end_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return FABRIC_END_OK;
	case IBV_WC_WR_FLUSH_ERR:
		return FABRIC_END_FLUSHED;
	case IBV_WC_LOC_LEN_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_MW_BIND_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return FABRIC_END_LOCAL;
	case IBV_WC_REM_ACCESS_ERR:
		return FABRIC_END_REMOTE_ACCESS;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_BAD_RESP_ERR:
		return FABRIC_END_REMOTE_OTHER;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return FABRIC_END_NO_ANSWER;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return FABRIC_END_NO_RECEIVE;
	default:
		return FABRIC_END_DEVICE;
	}
}

static void tally(struct fabric_counters *c, enum fabric_end end)
{
	if (end == FABRIC_END_OK)
		c->completed++;
	else if (end == FABRIC_END_FLUSHED)
		c->flushed++;
	else
		c->failed++;
}

static void end_send(struct fabric_qp *qp, uint32_t number, enum fabric_end end, uint32_t status)
{
	struct send_entry *e = &qp->sent[number & qp->s.mask];
	struct fabric_window *w = e->window;

	if (e->ended)
		return;
	e->ended = true;
	e->end = (uint8_t)end;
	e->status = status;
	if (e->op == OP_MARK)
		return;
	tally(&qp->set->c, end);
	for (uint32_t i = 0; i < e->n_held; i++)
		region_unhold(e->held[i]);
	e->n_held = 0;
	if (e->op == FABRIC_OP_INVALIDATE) {
		window_invalidated(w, end == FABRIC_END_OK);
		return;
	}
	qp->outstanding--;
	if (e->op == FABRIC_OP_BIND) {
		qp->set->c.binds_failed += end != FABRIC_END_OK && end != FABRIC_END_FLUSHED;
		window_bound(w, end == FABRIC_END_OK);
	} else if (w) {
		w->n_under--;
		window_settle(w);
	}
}

static void end_recv(struct fabric_qp *qp, uint32_t number, enum fabric_end end, uint32_t status)
{
	struct recv_entry *e = &qp->received[number & qp->r.mask];

	if (e->ended)
		return;
	e->ended = true;
	e->end = (uint8_t)end;
	e->status = status;
	tally(&qp->set->c, end);
	for (uint32_t i = 0; i < e->n_held; i++)
		region_unhold(e->held[i]);
	e->n_held = 0;
}

/* Nobody waits to hear of it. */
static bool is_ours(const struct send_entry *e)
{
	return e->op == OP_MARK || e->op == FABRIC_OP_INVALIDATE;
}

static bool is_silent(const struct send_entry *e)
{
	return is_ours(e) || (e->quiet && e->ended && e->end == FABRIC_END_OK);
}

static void advance(struct fabric_qp *qp)
{
	struct ring *s = &qp->s, *r = &qp->r;

	while (s->known != s->posted && qp->sent[s->known & s->mask].ended)
		s->known++;
	while (r->known != r->posted && qp->received[r->known & r->mask].ended)
		r->known++;
	while (s->done != s->known && is_silent(&qp->sent[s->done & s->mask]))
		if (is_ours(&qp->sent[s->done++ & s->mask]))
			qp->n_inv--;
	if ((s->known != s->done || r->known != r->done) && list_empty(&qp->report))
		list_add_tail(&qp->set->reports, &qp->report);
}

/* What lies between handed on and not known; anything else is not ours. */
static bool expected(const struct ring *ring, uint32_t number)
{
	return number - ring->known < ring->posted - ring->known;
}

static void note_send(struct fabric_qp *qp, const struct ibv_wc *wc, uint32_t number)
{
	enum fabric_end end = end_of(wc->status);

	/* Not signalled and before the first error: ended well. After it nothing did. */
	for (uint32_t k = qp->s.known; k != number; k++)
		end_send(qp, k, qp->saw_error ? FABRIC_END_FLUSHED : FABRIC_END_OK, 0);
	qp->sent[number & qp->s.mask].vendor_err = wc->vendor_err;
	end_send(qp, number, end, wc->status);
	qp->saw_error |= end != FABRIC_END_OK;
}

static void note_recv(struct fabric_qp *qp, const struct ibv_wc *wc, uint32_t number)
{
	struct recv_entry *e = &qp->received[number & qp->r.mask];
	enum fabric_end end = end_of(wc->status);

	for (uint32_t k = qp->r.known; k != number; k++)
		end_recv(qp, k, FABRIC_END_FLUSHED, IBV_WC_WR_FLUSH_ERR);
	if (end == FABRIC_END_OK && !e->ended) {
		e->bytes = wc->byte_len;
		e->invalidated = wc->wc_flags & IBV_WC_WITH_INV;
		e->key = e->invalidated ? wc->invalidated_rkey : 0;
		if (e->invalidated)
			window_foreign(qp, e->key);
		/* The peer's first message may overtake the word that it is connected (rdma_cm(7)).
		 */
		if (qp->state == FABRIC_QP_JOINING)
			qp_move(qp, FABRIC_QP_READY);
	}
	e->vendor_err = wc->vendor_err;
	end_recv(qp, number, end, wc->status);
}

void qp_note(struct fabric_qp *qp, const struct ibv_wc *wc)
{
	bool recv = wc->wr_id >> 32 & 1;
	uint32_t number = (uint32_t)wc->wr_id;

	if (!expected(recv ? &qp->r : &qp->s, number)) {
		qp->set->c.stale++;
		return;
	}
	if (recv)
		note_recv(qp, wc, number);
	else
		note_send(qp, wc, number);
	if (wc->status != IBV_WC_SUCCESS)
		qp_fail(qp);
	advance(qp);
}

/* What is queued will not be handed on any more. It is reported after all that was. */
void qp_drop_queued(struct fabric_qp *qp)
{
	for (uint32_t k = qp->s.posted; k != qp->s.tail; k++)
		end_send(qp, k, FABRIC_END_FLUSHED, IBV_WC_WR_FLUSH_ERR);
	for (uint32_t k = qp->r.posted; k != qp->r.tail; k++)
		end_recv(qp, k, FABRIC_END_FLUSHED, IBV_WC_WR_FLUSH_ERR);
	qp->s.posted = qp->s.tail;
	qp->r.posted = qp->r.tail;
	advance(qp);
}

void qp_skipped(struct fabric_qp *qp)
{
	advance(qp);
}

uint32_t qp_report(struct fabric_qp *qp, struct fabric_completion *out, uint32_t max)
{
	uint32_t n = 0;

	while (qp->s.done != qp->s.known && n < max) {
		const struct send_entry *e = &qp->sent[qp->s.done++ & qp->s.mask];

		if (is_ours(e))
			qp->n_inv--;
		if (is_silent(e) || qp->zombie)
			continue;
		out[n++] = (struct fabric_completion){
			.cookie = e->cookie,
			.qp = qp,
			.op = (enum fabric_op)e->op,
			.end = (enum fabric_end)e->end,
			.device_status = e->status,
			.vendor_err = e->end == FABRIC_END_OK ? 0 : e->vendor_err,
		};
	}
	while (qp->r.done != qp->r.known && n < max) {
		const struct recv_entry *e = &qp->received[qp->r.done++ & qp->r.mask];

		if (qp->zombie)
			continue;
		out[n++] = (struct fabric_completion){
			.cookie = e->cookie,
			.qp = qp,
			.op = FABRIC_OP_RECV,
			.end = (enum fabric_end)e->end,
			.bytes = e->bytes,
			.device_status = e->status,
			.vendor_err = e->end == FABRIC_END_OK ? 0 : e->vendor_err,
			.invalidated = e->invalidated,
			.key = e->key,
		};
	}
	if (qp->s.done == qp->s.known && qp->r.done == qp->r.known)
		list_del(&qp->report);
	return n;
}

uint32_t qp_unreported(const struct fabric_qp *qp)
{
	uint32_t n = qp->r.tail - qp->r.done;

	for (uint32_t k = qp->s.done; k != qp->s.tail; k++)
		if (!is_silent(&qp->sent[k & qp->s.mask]))
			n++;
	return n;
}

/* The queue pair is destroyed: the device touches nothing of it any more. */
void qp_forget(struct fabric_qp *qp)
{
	for (uint32_t k = qp->s.known; k != qp->s.tail; k++)
		end_send(qp, k, FABRIC_END_FLUSHED, IBV_WC_WR_FLUSH_ERR);
	for (uint32_t k = qp->r.known; k != qp->r.tail; k++)
		end_recv(qp, k, FABRIC_END_FLUSHED, IBV_WC_WR_FLUSH_ERR);
}
