/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work requests of the target over RDMA: capsules in, payload both ways with the keys that hosts
 * gave, answers out; and strikes.
 */
#include "tests/nvmf/target_verbs_priv.h"

#include "common/clock.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum kind { CAPSULE_IN = 1, ANSWER, PAYLOAD_OUT, PAYLOAD_IN, STRIKE };
#define STRIKE_LIMIT_NS (10 * NS_PER_S)
/* Of a queue pair that nobody is at: soft-RoCE tries for ever (retry_cnt 7), and some tens of its
 * packets have left by then. */
#define ENDED_LIMIT_NS (1 * NS_PER_S)

static uint64_t wr_id(enum kind kind, uint32_t i)
{
	return (uint64_t)kind << 32 | i;
}

static uint8_t *place_at(struct vqueue *q, uint32_t i)
{
	return q->mem + PAYLOAD_AT + (size_t)i * PLACE;
}

/* A place of payload, the work request's until its end. */
static uint32_t place_take(struct vqueue *q)
{
	uint32_t i;

	if (!q->places)
		abort(); /* of a test */
	i = (uint32_t)__builtin_ctzll(q->places);
	q->places &= q->places - 1;
	return i;
}

int vqueue_post_capsule(struct vqueue *q, uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)(q->mem + (size_t)i * CAPSULE), CAPSULE, q->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id(CAPSULE_IN, i), .sg_list = &sge, .num_sge = 1},
			   *bad;

	return -ibv_post_recv(q->id->qp, &wr, &bad);
}

static int post(struct vqueue *q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return -ibv_post_send(q->id->qp, wr, &bad);
}

/* One RDMA access of a place. */
static int access_memory(struct vqueue *q, enum kind kind, uint32_t place, bool read, uint64_t addr,
                         uint32_t len, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)place_at(q, place), len, q->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id(kind, place),
	                         .opcode = read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
	                         .sg_list = &sge,
	                         .num_sge = len ? 1 : 0,
	                         .wr.rdma = {.remote_addr = addr, .rkey = key}};
	int r = post(q, &wr);

	if (r)
		q->places |= 1ull << place;
	return r;
}

void verbs_answer(struct conn *c, const uint8_t *cqe, uint32_t len, uint32_t invalidate)
{
	uint8_t bytes[64] = {0};
	struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = len};
	struct ibv_send_wr wr = {.wr_id = wr_id(ANSWER, 0),
	                         .opcode = invalidate ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
	                         .invalidate_rkey = invalidate,
	                         .send_flags = IBV_SEND_INLINE,
	                         .sg_list = &sge,
	                         .num_sge = len ? 1 : 0};

	if (c->dead)
		return;
	memcpy(bytes, cqe, 16);
	if (post(c->carried, &wr))
		target_conn_end(c, true);
}

void verbs_write(struct conn *c, const struct tcmd *cmd, uint32_t off, const void *data,
                 uint32_t len)
{
	struct vqueue *q = c->carried;
	uint32_t place, key;
	uint64_t addr;

	if (c->dead || len > PLACE)
		return;
	place = place_take(q);
	target_rdma_reach(c, cmd, &addr, &key);
	if (len)
		memcpy(place_at(q, place), data, len);
	if (access_memory(q, PAYLOAD_OUT, place, false, addr + off, len, key))
		target_conn_end(c, true);
}

void verbs_read(struct conn *c, const struct tcmd *cmd, uint16_t ttag, uint32_t off, uint32_t len)
{
	struct vqueue *q = c->carried;
	uint32_t place, key;
	uint64_t addr;

	if (c->dead || len > PLACE)
		return;
	place = place_take(q);
	target_rdma_reach(c, cmd, &addr, &key);
	q->reads[place].cid = cmd->cid;
	q->reads[place].ttag = ttag;
	q->reads[place].off = off;
	q->reads[place].len = len;
	if (access_memory(q, PAYLOAD_IN, place, true, addr + off, len, key))
		target_conn_end(c, true);
}

/* ---- ends ---- */

static void capsule_came(struct conn *c, uint32_t i, uint32_t bytes)
{
	struct vqueue *q = c->carried;
	const uint8_t *p = q->mem + (size_t)i * CAPSULE;

	if (target_lies(c, NULL, PDU_CMD, FAULT_RX_CLOSE, NULL)) {
		target_conn_end(c, false);
		return;
	}
	if (bytes < 64) {
		target_violates(c, "a capsule of %u bytes", bytes);
		target_conn_end(c, true);
		return;
	}
	target_cmd_in(c, p, p + 64, bytes - 64, true);
	if (!c->dead && vqueue_post_capsule(q, i))
		target_conn_end(c, true);
}

static void payload_came(struct conn *c, uint32_t place)
{
	struct vqueue *q = c->carried;
	uint8_t head[16] = {0};

	put16(head, q->reads[place].cid);
	put16(head + 2, q->reads[place].ttag);
	put32(head + 4, q->reads[place].off);
	put32(head + 8, q->reads[place].len);
	(void)target_cmd_data_in(c, head, place_at(q, place), q->reads[place].len, true, true);
}

static void ended(struct vqueue *q, const struct ibv_wc *wc)
{
	enum kind kind = (enum kind)(wc->wr_id >> 32);
	uint32_t i = (uint32_t)wc->wr_id;
	bool good = wc->status == IBV_WC_SUCCESS, misused;
	struct conn *c = q->c;

	if (kind == STRIKE) {
		q->struck = true;
		q->strike_end = (int)wc->status;
		return; /* its place is the strike's still */
	}
	if (c && !c->dead && good && kind == CAPSULE_IN)
		capsule_came(c, i, wc->byte_len);
	else if (c && !c->dead && good && kind == PAYLOAD_IN)
		payload_came(c, i);
	if (kind == PAYLOAD_IN || kind == PAYLOAD_OUT)
		q->places |= 1ull << i;
	/* After a misused key, and all that it flushed, the host is to notice by itself. */
	misused = c && c->lied && (kind != ANSWER || wc->status == IBV_WC_WR_FLUSH_ERR);
	if (c && !c->dead && !good && !misused)
		target_conn_end(c, false);
}

void vqueue_poll(struct vqueue *q)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(q->cq, 1, &wc) == 1)
		ended(q, &wc);
}

void verbs_conn_event(struct conn *c)
{
	struct vqueue *q = c->carried;
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(q->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
	/* What comes before it is armed gives no event. */
	(void)ibv_req_notify_cq(q->cq, 0);
	vqueue_poll(q);
}

/* ---- strikes ---- */

static const struct seen_key *find_key(const struct target *t, const struct target_strike *s)
{
	unsigned back = s->back;

	for (unsigned i = 0; i < MIN(t->n_seen, SEEN_KEYS); i++) {
		const struct seen_key *k = &t->seen[(t->n_seen - 1 - i) % SEEN_KEYS];

		if (k->opcode == s->opcode && !strcmp(k->host_nqn, s->key_host) && back-- == 0)
			return k;
	}
	return NULL;
}

static struct vqueue *find_queue(struct target *t, const struct target_strike *s)
{
	struct vqueue *found = NULL, *kept = ((struct vtarget *)t->carried)->kept;
	struct conn *c;

	if (s->ended)
		return kept && !strcmp(kept->host_nqn, s->on_host) ? kept : NULL;
	list_for_each (&t->conns, c, link)
		if (!c->dead && c->ctrl && c->qid && !strcmp(c->ctrl->host_nqn, s->on_host))
			found = c->carried;
	return found;
}

int target_verbs_strike(struct target *t, const struct target_strike *s, void *got)
{
	uint64_t until = clock_monotonic_ns() + (s->ended ? ENDED_LIMIT_NS : STRIKE_LIMIT_NS);
	const struct seen_key *k;
	struct vqueue *q;
	uint32_t place, len;
	int r = -ENOENT;

	pthread_mutex_lock(&t->lock);
	k = find_key(t, s);
	q = find_queue(t, s);
	if (k && q) {
		if (q->c)
			q->c->lied = true;
		len = s->len ? s->len : k->len;
		place = place_take(q);
		memset(place_at(q, place), TARGET_STRIKE_BYTE, len);
		q->struck = false;
		r = access_memory(q, STRIKE, place, s->read, k->addr + (uint64_t)s->offset, len,
		                  k->key ^ s->key_xor);
		while (!r && !q->struck) { /* poll: the lock is held, nobody else takes ends */
			vqueue_poll(q);
			if (clock_monotonic_ns() > until)
				r = -ETIMEDOUT;
			sched_yield();
		}
		if (!r)
			r = q->strike_end == IBV_WC_WR_FLUSH_ERR ? -ESHUTDOWN : q->strike_end;
		if (!r && s->read && got)
			memcpy(got, place_at(q, place), len);
		if (r != -ETIMEDOUT)
			q->places |= 1ull << place;
	}
	target_wake(t);
	pthread_mutex_unlock(&t->lock);
	return r;
}
