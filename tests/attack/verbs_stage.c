/* SPDX-License-Identifier: Apache-2.0 */
/* Both agents: verbs_stage.h tells them apart. */
#include "tests/attack/verbs_stage.h"
#include "common/clock.h"
#include <errno.h>
#include <string.h>

#define HALF        (RAW_BYTES / 2) /* without defence: where B's part of the one region begins */
#define PATIENCE_NS (10 * NS_PER_S)
#define DEVICE      "rxe0"

static uint8_t letter(enum who w)
{
	return w == A ? 'a' : 'b';
}

/* ---- the product ---- */

struct fabric_pd_opts stage_caps(void)
{
	return (struct fabric_pd_opts){
		.pinned_bytes_max = 32u << 20, .regions_max = 128, .windows_max = 64, .qps_max = 8};
}

static struct fabric_qp_opts qp_opts(const struct stage *s)
{
	struct fabric_qp_opts o = {.send_depth = 32,
	                           .recv_depth = 32,
	                           .windows = s->o.closed ? 0 : 4,
	                           .reads_out = 4,
	                           .gid_index = s->raw.gid_index};

	if (!s->o.closed) {
		o.remote_access = FABRIC_READ | FABRIC_WRITE;
		o.reads_in = 4;
	}
	return o;
}

static int fab_sets(struct stage *s)
{
	struct fabric_set_opts so = {.cq_depth = 512, .qps_max = 4, .slots = {16, 4, 2}};
	struct fabric_pd_opts caps = stage_caps();
	int r = fabric_dev_open(DEVICE, &s->dev, &s->err);

	if (!r)
		r = fabric_channel_new(s->dev, &s->chan, &s->err);
	for (int w = 0; w < TENANTS && !r; w++) {
		if (w == B && s->o.one_tenant) {
			s->set[B] = s->set[A];
			break;
		}
		r = fabric_pd_new(s->dev, &caps, &s->pd[w], &s->err);
		so.cookie = (uint64_t)w + 1;
		if (!r)
			r = fabric_set_new(s->pd[w], s->chan, &so, &s->set[w], &s->err);
	}
	return r;
}

static int fab_receives(struct stage *s, enum who w)
{
	for (uint32_t i = 0; i < s->o.recvs; i++) {
		struct fabric_slot slot;
		struct fabric_part part = {.length = 4096};
		int r;

		if (!fabric_slot_take(s->set[w], 1, &slot))
			return -ENOMEM;
		part.region = slot.region;
		r = fabric_recv(s->qp[w], &(struct fabric_wr){.parts = &part, .n_parts = 1});
		(void)fabric_slot_give(s->set[w], &slot); /* held until the receive ends */
		if (r)
			return r;
	}
	return fabric_qp_flush(s->qp[w], clock_boottime_ns());
}

/* A queue pair for @w in its set, joined to the end of @next. */
static int fab_join(struct stage *s, enum who w, enum who next)
{
	struct fabric_qp_opts o = qp_opts(s);
	struct raw_addr there;
	struct fabric_qp_addr at = {.mtu_bytes = 1024}, here;
	struct raw_join j = {.rnr_timer = s->o.rnr_timer, .access = s->o.open_peers ? RAW_ALL : 0};
	int r = fabric_qp_new(s->set[w], &o, &s->qp[w], &s->err);

	if (r)
		return r;
	raw_end_addr(&s->peer[next], &there);
	memcpy(at.gid, there.gid.raw, sizeof(at.gid));
	at.qpn = there.qpn;
	at.psn = there.psn;
	fabric_qp_address(s->qp[w], &here);
	memcpy(j.peer.gid.raw, here.gid, sizeof(here.gid));
	j.peer.qpn = here.qpn;
	j.peer.psn = here.psn;
	r = fab_receives(s, w);
	if (!r)
		r = fabric_qp_join(s->qp[w], &at, &s->err);
	return r ? r : raw_end_join(&s->peer[next], &j);
}

static int fab_wait(struct stage *s, enum who w, enum fabric_op op, uint64_t patience_ns,
                    struct fabric_completion *ret)
{
	uint64_t until = clock_monotonic_ns() + patience_ns;

	while (clock_monotonic_ns() < until) {
		int n = fabric_set_poll(s->set[w], ret, 1);

		if (n < 0)
			return n;
		if (n == 1 && ret->op == op && ret->qp == s->qp[w])
			return 0;
		(void)fabric_set_tick(s->set[w], clock_boottime_ns());
	}
	return -ETIMEDOUT;
}

int stage_bind(struct stage *s, const struct fabric_bind *b, struct stage_lease *l)
{
	struct fabric_completion c;
	int r = fabric_window_bind(s->qp[l->of], b, &l->window, &l->key);

	if (!r)
		r = fabric_qp_flush(s->qp[l->of], clock_boottime_ns());
	if (!r)
		r = fab_wait(s, l->of, FABRIC_OP_BIND, PATIENCE_NS, &c);
	if (r)
		return r;
	l->addr = fabric_window_base(l->window);
	return c.end == FABRIC_END_OK ? 0 : -EIO;
}

/* All of a slot, which is a region of its own: exact bounds. */
static int fab_lend(struct stage *s, uint32_t length, bool writable, struct stage_lease *l)
{
	struct fabric_bind b = {.access = FABRIC_READ};

	if (!fabric_slot_take(s->set[l->of], length, &l->slot))
		return -ENOMEM;
	l->length = l->slot.size_bytes;
	l->mem = l->slot.mem;
	b.region = l->slot.region;
	b.length = l->length;
	if (writable)
		b.access |= FABRIC_WRITE;
	return stage_bind(s, &b, l);
}

static void on_receipt(void *arg, const struct fabric_receipt *r)
{
	*(bool *)arg = true;
}

static int fab_revoke(struct stage *s, struct stage_lease *l)
{
	uint64_t now = clock_boottime_ns(), until = now + PATIENCE_NS;
	struct fabric_completion c;
	bool got = false;
	int r = fabric_window_revoke(l->window, now, on_receipt, &got);

	l->window = NULL;
	(void)fabric_qp_flush(s->qp[l->of], now);
	while (!r && !got && now < until) {
		(void)fabric_set_poll(s->set[l->of], &c, 1);
		now = clock_boottime_ns();
		(void)fabric_set_tick(s->set[l->of], now);
	}
	return r ? r : got ? 0 : -ETIMEDOUT;
}

/* ---- the one without defence ---- */

static int bare_sets(struct stage *s)
{
	struct raw_opts o = {.psn_known = s->o.psn_known, .srq_depth = s->o.shared_srq};
	int r = 0;

	if (s->o.shared_cq) {
		r = raw_cq_open(&s->raw, s->o.shared_cq, &s->cq);
		o.cq = &s->cq;
	}
	if (!r)
		r = raw_end_open(&s->raw, &o, &s->agent[A]);
	o.pd = s->agent[A].pd;
	o.srq_depth = 0;
	o.srq = s->agent[A].srq;
	return r ? r : raw_end_open(&s->raw, &o, &s->agent[B]);
}

static int bare_join(struct stage *s, enum who w, enum who next)
{
	struct raw_join j = {.access = s->o.closed ? IBV_ACCESS_REMOTE_WRITE : RAW_ALL,
	                     .rnr_retry = 7};
	int r;

	/* endless retries, and whatever the peer names is welcome */
	raw_end_addr(&s->peer[next], &j.peer);
	r = raw_end_join(&s->agent[w], &j);
	for (uint32_t i = 0; i < (s->o.shared_srq ? 0 : s->o.recvs) && !r; i++)
		r = raw_recv(&s->agent[w]);
	j = (struct raw_join){.rnr_timer = s->o.rnr_timer, .access = s->o.open_peers ? RAW_ALL : 0};
	raw_end_addr(&s->agent[w], &j.peer);
	return r ? r : raw_end_join(&s->peer[next], &j);
}

static int bare_lend(struct stage *s, uint32_t length, struct stage_lease *l)
{
	l->mem = s->agent[A].mem + (l->of == B ? HALF : 0);
	l->addr = (uintptr_t)l->mem;
	l->length = length;
	l->key = s->agent[A].mr->rkey;
	return 0;
}

/* ---- either ---- */

int stage_open(struct stage *s, bool defended, const struct stage_opts *o)
{
	struct raw *of_b = &s->raw;
	int r;

	*s = (struct stage){.o = *o, .defended = defended};
	r = raw_open(&s->raw, DEVICE);
	if (!r && o->device_b) {
		r = raw_open(&s->raw_b, o->device_b);
		of_b = &s->raw_b;
	}
	if (!r)
		r = raw_end_open(&s->raw, NULL, &s->peer[A]);
	if (!r)
		r = raw_end_open(of_b, NULL, &s->peer[B]);
	if (!r)
		r = defended ? fab_sets(s) : bare_sets(s);
	for (uint32_t i = 0; !defended && i < o->shared_srq && !r; i++)
		r = raw_recv(&s->agent[A]);
	for (int w = 0; w < TENANTS && !r; w++)
		if (w == A || !o->device_b)
			r = defended ? fab_join(s, w, w) : bare_join(s, w, w);
	/* what the agent sends must meet a receive */
	for (int w = 0; w < TENANTS && !r; w++)
		if (w == A || (!o->no_peer_recvs && !o->device_b))
			r = raw_recv(&s->peer[w]);
	return r;
}

void stage_close(struct stage *s)
{
	for (int w = 0; w < TENANTS; w++)
		fabric_qp_free(s->qp[w]);
	for (int w = 0; w < TENANTS; w++) {
		if (w == A || s->set[w] != s->set[A])
			fabric_set_free(s->set[w]);
		fabric_pd_free(s->pd[w]);
	}
	fabric_channel_free(s->chan);
	fabric_dev_close(s->dev);
	raw_end_close(&s->agent[B]);
	raw_end_close(&s->agent[A]);
	raw_cq_close(&s->cq);
	for (int w = 0; w < TENANTS; w++)
		raw_end_close(&s->peer[w]);
	raw_close(&s->raw_b);
	raw_close(&s->raw);
}

int stage_lend(struct stage *s, enum who of, uint32_t length, bool writable,
               struct stage_lease *ret)
{
	int r;

	*ret = (struct stage_lease){.of = of};
	r = s->defended ? fab_lend(s, length, writable, ret) : bare_lend(s, length, ret);
	if (!r)
		memset(ret->mem, letter(of), ret->length);
	return r;
}

int stage_revoke(struct stage *s, struct stage_lease *l)
{
	return s->defended ? fab_revoke(s, l) : 0;
}

int stage_rejoin(struct stage *s, enum who who, enum who next)
{
	struct fabric_completion c;

	if (!s->defended)
		return bare_join(s, who, next);
	while (fabric_set_poll(s->set[who], &c, 1) == 1)
		;
	fabric_qp_free(s->qp[who]);
	s->qp[who] = NULL;
	return fab_join(s, who, next);
}

uint32_t stage_changed(const struct stage_lease *l)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->length; i++)
		n += l->mem[i] != letter(l->of);
	return n;
}

uint32_t stage_takes(struct stage *s, enum who who)
{
	struct fabric_completion c;
	struct ibv_wc wc;
	uint32_t n = 0;

	if (s->defended)
		while (fabric_set_poll(s->set[who], &c, 1) == 1)
			n += c.op == FABRIC_OP_RECV && c.end == FABRIC_END_OK;
	else
		while (ibv_poll_cq(s->agent[who].cq->cq, 1, &wc) == 1)
			n += wc.opcode == IBV_WC_RECV && wc.status == IBV_WC_SUCCESS &&
			     wc.qp_num == s->agent[who].qp->qp_num;
	return n;
}

bool stage_serves(struct stage *s, const struct stage_lease *l)
{
	struct raw_end *e = &s->peer[l->of];

	memset(e->mem, 0, 64);
	if (raw_do(e, IBV_WR_RDMA_READ, l->addr, 64, l->key) != IBV_WC_SUCCESS ||
	    e->mem[0] != letter(l->of))
		return false;
	return !s->o.recvs || raw_do(e, IBV_WR_SEND, 0, 8, 0) == IBV_WC_SUCCESS;
}

int stage_send(struct stage *s, enum who who, int patience_ms)
{
	struct fabric_completion c = {0};
	struct fabric_slot slot;
	struct fabric_part part = {.length = 8};
	int r;

	if (!s->defended) {
		r = raw_post(&s->agent[who], IBV_WR_SEND, 0, 8, 0);
		return r ? r : raw_wait_sent(s->agent[who].cq, patience_ms);
	}
	if (!fabric_slot_take(s->set[who], 8, &slot))
		return -ENOMEM;
	part.region = slot.region;
	r = fabric_send(s->qp[who], &(struct fabric_wr){.parts = &part, .n_parts = 1});
	if (!r)
		r = fabric_qp_flush(s->qp[who], clock_boottime_ns());
	if (!r)
		r = fab_wait(s, who, FABRIC_OP_SEND, (uint64_t)patience_ms * NS_PER_MS, &c);
	(void)fabric_slot_give(s->set[who], &slot);
	return r ? r : (int)c.device_status;
}

int stage_post(struct stage *s, enum who who, uint64_t addr, uint32_t key, struct stage_posted *ret)
{
	struct fabric_part part = {.length = POSTED_BYTES};
	struct fabric_wr wr = {
		.parts = &part, .n_parts = 1, .remote_address = addr, .remote_key = key};
	int r;

	*ret = (struct stage_posted){.who = who, .read = key, .mem = s->agent[who].mem};
	if (!s->defended)
		return raw_post(&s->agent[who], key ? IBV_WR_RDMA_READ : IBV_WR_SEND, addr,
		                POSTED_BYTES, key);
	if (!fabric_slot_take(s->set[who], POSTED_BYTES, &ret->slot))
		return -ENOMEM;
	ret->mem = ret->slot.mem;
	part.region = ret->slot.region;
	r = key ? fabric_read(s->qp[who], &wr) : fabric_send(s->qp[who], &wr);
	return r ? r : fabric_qp_flush(s->qp[who], clock_boottime_ns());
}

int stage_posted_end(struct stage *s, const struct stage_posted *p, int patience_ms)
{
	struct fabric_completion c = {0};
	int r;

	if (!s->defended)
		return raw_wait_sent(s->agent[p->who].cq, patience_ms);
	r = fab_wait(s, p->who, p->read ? FABRIC_OP_READ : FABRIC_OP_SEND,
	             (uint64_t)patience_ms * NS_PER_MS, &c);
	return r ? r : (int)c.device_status;
}
