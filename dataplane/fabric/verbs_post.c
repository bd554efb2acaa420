// SPDX-License-Identifier: Apache-2.0
/*
 * Work requests: checked, queued in the ring of their queue pair, and handed on as one chain by
 * fabric_qp_flush. Nothing here allocates, locks or copies payload. A work request that the device
 * refuses although it was checked is our bug or its failure: the queue pair fails, and what was not
 * handed on is flushed.
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

static int refuse(struct fabric_qp *qp, int code)
{
	qp->set->c.refused++;
	return code;
}

uint32_t fabric_qp_send_room(const struct fabric_qp *qp)
{
	return qp->o.send_depth - (qp->s.tail - qp->s.done - qp->n_inv);
}

uint32_t fabric_qp_recv_room(const struct fabric_qp *qp)
{
	return qp->r.size - (qp->r.tail - qp->r.done);
}

/* The next place of the send ring; the caller has checked that there is one. */
struct ibv_send_wr *queue_send(struct fabric_qp *qp, uint64_t cookie, uint8_t op, uint32_t flags,
                               struct fabric_window *w)
{
	uint32_t at = qp->s.tail & qp->s.mask;
	struct ibv_send_wr *wr = &qp->wrs[at];
	bool ours = op == FABRIC_OP_INVALIDATE || op == OP_MARK;
	/* Places come back with signalled ends only: at least two in each round of the ring, not
	 * counting those that surely come back with a LOCAL_INV. Of these the last one of a chain
	 * will be signalled: its end is that of all before it. */
	bool later = w && w->untimed && flags & FABRIC_QUIET;
	bool full = !later && qp->silent + 1 >= MAX(qp->o.send_depth / 2, 1);
	bool signal = full || !(flags & FABRIC_QUIET);
	bool now = signal && op != FABRIC_OP_INVALIDATE;

	assert(qp->s.tail - qp->s.done < qp->s.size);
	qp->sent[at] = (struct send_entry){
		.cookie = cookie, .window = w, .op = op, .quiet = flags & FABRIC_QUIET};
	*wr = (struct ibv_send_wr){
		.wr_id = wr_id(qp, false, qp->s.tail),
		.send_flags = (now ? IBV_SEND_SIGNALED : 0) |
	                      (flags & FABRIC_FENCE ? IBV_SEND_FENCE : 0) |
	                      (flags & FABRIC_SOLICITED ? IBV_SEND_SOLICITED : 0),
	};
	qp->silent = signal ? 0 : qp->silent + !later;
	if (signal)
		qp->bind_open = false;
	else if (op == FABRIC_OP_BIND && !(flags & FABRIC_UNTIMED))
		qp->bind_open = true;
	if (ours)
		qp->n_inv++;
	else
		qp->outstanding++;
	qp->s.tail++;
	return wr;
}

/* 0 and the total, or why not. */
static int check_parts(const struct fabric_qp *qp, const struct fabric_wr *wr, uint32_t max,
                       uint64_t *ret_total)
{
	const struct fabric_dev_attr *a = &qp->set->pd->dev->attr;
	uint64_t total = 0;

	if (wr->n_parts > max)
		return -EINVAL;
	for (uint32_t i = 0; i < wr->n_parts; i++) {
		const struct fabric_part *p = &wr->parts[i];

		if (!p->region)
			return -EINVAL;
		if (p->region->pd != qp->set->pd)
			return -EPERM;
		/* some devices take a length of 0 for 2 GiB */
		if (p->length == 0)
			return -EINVAL;
		if (!region_covers(p->region, p->offset, p->length))
			return -ERANGE;
		total += p->length;
	}
	if (total > a->ports[qp->o.port - 1].max_message_bytes)
		return -ERANGE;
	*ret_total = total;
	return 0;
}

static uint32_t fill(struct ibv_sge *sge, struct fabric_region **held, const struct fabric_wr *wr)
{
	for (uint32_t i = 0; i < wr->n_parts; i++) {
		const struct fabric_part *p = &wr->parts[i];

		sge[i] = (struct ibv_sge){
			.addr = p->region->base + p->offset,
			.length = p->length,
			.lkey = p->region->mr->lkey,
		};
		held[i] = p->region;
		region_hold(p->region);
	}
	return wr->n_parts;
}

/* A processor copies it into the work request: not where it may not look (a dma-buf). */
static bool goes_inline(const struct fabric_qp *qp, const struct fabric_wr *wr, uint8_t op,
                        uint64_t total)
{
	if (op == FABRIC_OP_READ || !total || total > qp->inline_max)
		return false;
	for (uint32_t i = 0; i < wr->n_parts; i++)
		if (!wr->parts[i].region->mem)
			return false;
	return true;
}

static int check_send(struct fabric_qp *qp, const struct fabric_wr *wr, uint8_t op)
{
	const struct fabric_window *w = wr->under;
	uint32_t allowed = FABRIC_QUIET | FABRIC_FENCE;

	if (op == FABRIC_OP_SEND)
		allowed |= FABRIC_SOLICITED | FABRIC_REMOTE_INVALIDATE;
	if (qp->state != FABRIC_QP_READY)
		return -ENOTCONN;
	if (wr->flags & ~allowed || (op == FABRIC_OP_READ && qp->o.reads_out == 0))
		return -EINVAL;
	if (w && w->qp != qp)
		return -EPERM;
	if (w &&
	    (!w->held || (w->state != FABRIC_WINDOW_BOUND && w->state != FABRIC_WINDOW_BINDING)))
		return -EKEYREVOKED;
	return fabric_qp_send_room(qp) ? 0 : -EBUSY;
}

static int queue_checked(struct fabric_qp *qp, const struct fabric_wr *in, uint8_t op,
                         enum ibv_wr_opcode opcode)
{
	uint64_t total = 0;
	struct ibv_send_wr *wr;
	struct send_entry *e;
	struct ibv_sge *sge;
	uint32_t at;
	int r = check_send(qp, in, op);

	if (r == 0)
		r = check_parts(qp, in, qp->sge_send, &total);
	if (r < 0)
		return refuse(qp, r);
	at = qp->s.tail & qp->s.mask;
	sge = &qp->sges[(size_t)at * qp->sge_send];
	wr = queue_send(qp, in->cookie, op, in->flags, in->under);
	e = &qp->sent[at];
	e->n_held = (uint8_t)fill(sge, e->held, in);
	if (in->under)
		in->under->n_under++;
	wr->opcode = opcode;
	wr->sg_list = in->n_parts ? sge : NULL;
	wr->num_sge = (int)in->n_parts;
	if (goes_inline(qp, in, op, total))
		wr->send_flags |= IBV_SEND_INLINE;
	if (opcode == IBV_WR_SEND_WITH_INV)
		wr->invalidate_rkey = in->remote_key;
	if (op != FABRIC_OP_SEND) {
		wr->wr.rdma.remote_addr = in->remote_address;
		wr->wr.rdma.rkey = in->remote_key;
	}
	return 0;
}

int fabric_send(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	bool invalidate = wr->flags & FABRIC_REMOTE_INVALIDATE;

	return queue_checked(qp, wr, FABRIC_OP_SEND,
	                     invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND);
}

static void withdraw(struct fabric_qp *qp, uint32_t number)
{
	struct send_entry *e = &qp->sent[number & qp->s.mask];

	for (uint32_t i = 0; i < e->n_held; i++)
		region_unhold(e->held[i]);
	e->n_held = 0;
	e->skip = e->ended = e->quiet = true;
	qp->outstanding--;
	if (e->window) {
		e->window->n_under--;
		window_settle(e->window);
	}
	/* What is quiet before it counted on its end: the last of the chain tells it instead. */
	if (qp->wrs[number & qp->s.mask].send_flags & IBV_SEND_SIGNALED)
		qp->bind_open = true;
}

bool fabric_send_withdraw(struct fabric_qp *qp, uint64_t cookie)
{
	for (uint32_t k = qp->s.posted; k != qp->s.tail; k++) {
		const struct send_entry *e = &qp->sent[k & qp->s.mask];

		if (e->op != FABRIC_OP_SEND || e->cookie != cookie || e->ended)
			continue;
		withdraw(qp, k);
		return true;
	}
	return false;
}

int fabric_read(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return queue_checked(qp, wr, FABRIC_OP_READ, IBV_WR_RDMA_READ);
}

int fabric_write(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return queue_checked(qp, wr, FABRIC_OP_WRITE, IBV_WR_RDMA_WRITE);
}

int fabric_recv(struct fabric_qp *qp, const struct fabric_wr *in)
{
	uint32_t at = qp->r.tail & qp->r.mask;
	struct ibv_sge *sge = &qp->rsges[(size_t)at * qp->sge_recv];
	struct recv_entry *e = &qp->received[at];
	uint64_t total;
	int r = 0;

	if (qp->state == FABRIC_QP_FAILED)
		r = -ENOTCONN;
	else if (in->flags || in->under)
		r = -EINVAL;
	else if (!fabric_qp_recv_room(qp))
		r = -EBUSY;
	if (r == 0)
		r = check_parts(qp, in, qp->sge_recv, &total);
	if (r < 0)
		return refuse(qp, r);
	*e = (struct recv_entry){.cookie = in->cookie};
	e->n_held = (uint8_t)fill(sge, e->held, in);
	qp->rwrs[at] = (struct ibv_recv_wr){
		.wr_id = wr_id(qp, true, qp->r.tail),
		.sg_list = in->n_parts ? sge : NULL,
		.num_sge = (int)in->n_parts,
	};
	qp->r.tail++;
	return 0;
}

static int flush_recv(struct fabric_qp *qp)
{
	struct ibv_recv_wr *first = &qp->rwrs[qp->r.posted & qp->r.mask], *bad = NULL;
	uint32_t n = qp->r.tail - qp->r.posted;
	int code;

	for (uint32_t k = qp->r.posted; k + 1 != qp->r.tail; k++)
		qp->rwrs[k & qp->r.mask].next = &qp->rwrs[(k + 1) & qp->r.mask];
	code = ibv_post_recv(qp->qp, first, &bad);
	if (code != 0)
		n = bad ? (uint32_t)bad->wr_id - qp->r.posted : 0;
	qp->set->c.doorbells++;
	qp->set->c.posted += n;
	qp->r.posted += n;
	return code;
}

/* Links what is queued, stamps the windows that it is about, signals the last LOCAL_INV, and finds
 * the last work request. */
static struct ibv_send_wr *link_sends(struct fabric_qp *qp, uint64_t now_ns,
                                      struct ibv_send_wr **ret_last)
{
	struct ibv_send_wr *first = NULL, *last = NULL, *last_inv = NULL;

	for (uint32_t k = qp->s.posted; k != qp->s.tail; k++) {
		struct send_entry *e = &qp->sent[k & qp->s.mask];
		struct ibv_send_wr *wr = &qp->wrs[k & qp->s.mask];

		if (e->skip)
			continue;
		if (last)
			last->next = wr;
		else
			first = wr;
		last = wr;
		if (!e->window)
			continue;
		if (e->op == FABRIC_OP_INVALIDATE)
			last_inv = wr;
		else
			e->window->last_posted_ns = now_ns;
		window_leaves(e->window, e->op, now_ns);
	}
	if (last_inv)
		last_inv->send_flags |= IBV_SEND_SIGNALED;
	*ret_last = last;
	return first;
}

static void count_sends(struct fabric_qp *qp, uint32_t end)
{
	struct fabric_counters *c = &qp->set->c;

	for (uint32_t k = qp->s.posted; k != end; k++) {
		const struct send_entry *e = &qp->sent[k & qp->s.mask];

		if (e->skip)
			continue;
		c->posted++;
		if (e->op == FABRIC_OP_BIND)
			c->binds++;
		else if (e->op == FABRIC_OP_INVALIDATE)
			c->invalidates++;
	}
	c->doorbells++;
}

static int flush_send(struct fabric_qp *qp, uint64_t now_ns)
{
	struct ibv_send_wr *last, *bad = NULL, *first = link_sends(qp, now_ns, &last);
	uint32_t end = qp->s.tail;
	int code = 0;

	if (first) {
		/* A bind must not wait for its end until somebody signals something. */
		if (qp->bind_open) {
			last->send_flags |= IBV_SEND_SIGNALED;
			qp->bind_open = false;
			qp->silent = 0;
		}
		qp->last_posted_ns = now_ns;
		code = ibv_post_send(qp->qp, first, &bad);
		if (code != 0)
			end = bad ? (uint32_t)bad->wr_id : (uint32_t)first->wr_id;
		count_sends(qp, end);
	}
	qp->s.posted = end;
	return code;
}

int fabric_qp_flush(struct fabric_qp *qp, uint64_t now_ns)
{
	int code = 0;

	if (qp->state == FABRIC_QP_FAILED)
		return -ENOTCONN;
	if (qp->r.posted != qp->r.tail)
		code = flush_recv(qp);
	if (code == 0 && qp->s.posted != qp->s.tail)
		code = flush_send(qp, now_ns);
	if (code != 0) {
		qp_fail(qp);
		return -EIO;
	}
	qp_skipped(qp);
	return 0;
}

/* A queue pair in error flushes this at once: then all before it has ended, also what was quiet
 * (IBA 10.3.1.4). */
void post_mark(struct fabric_qp *qp)
{
	struct ibv_send_wr *wr, *bad = NULL;

	if (!qp->in_error || qp->s.known == qp->s.posted)
		return;
	wr = queue_send(qp, 0, OP_MARK, 0, NULL);
	wr->opcode = IBV_WR_SEND;
	if (ibv_post_send(qp->qp, wr, &bad) != 0) {
		qp->s.tail--;
		qp->n_inv--;
		return;
	}
	qp->s.posted = qp->s.tail;
}
