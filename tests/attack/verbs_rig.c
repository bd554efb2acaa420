/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs by hand: verbs_rig.h says what for. */
#include "tests/attack/verbs_rig.h"
#include "common/crypto.h"
#include "common/util.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define WR_SEND 1 /* receives have 0 */

/* The RoCE v2 address over IPv4. */
static int find_gid(struct raw *r)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	struct ibv_gid_entry e[32];
	ssize_t n = ibv_query_gid_table(r->ctx, e, ARRAY_SIZE(e), 0);

	for (ssize_t i = 0; i < n; i++) {
		if (e[i].gid_type != IBV_GID_TYPE_ROCE_V2 || memcmp(e[i].gid.raw, v4, sizeof(v4)))
			continue;
		r->gid = e[i].gid;
		r->gid_index = (uint8_t)e[i].gid_index;
		return 0;
	}
	return -ENOTCONN;
}

int raw_open(struct raw *r, const char *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int ret = -ENODEV;

	*r = (struct raw){0};
	for (int i = 0; list && list[i] && !r->ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			r->ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (r->ctx)
		ret = find_gid(r);
	if (ret)
		raw_close(r);
	return ret;
}

void raw_close(struct raw *r)
{
	if (r->ctx)
		ibv_close_device(r->ctx);
	r->ctx = NULL;
}

int raw_cq_open(struct raw *r, uint32_t depth, struct raw_cq *ret)
{
	*ret = (struct raw_cq){.channel = ibv_create_comp_channel(r->ctx)};
	if (ret->channel)
		ret->cq = ibv_create_cq(r->ctx, (int)depth, NULL, ret->channel, 0);
	if (ret->cq)
		return 0;
	raw_cq_close(ret);
	return -ENOMEM;
}

void raw_cq_close(struct raw_cq *q)
{
	if (q->cq)
		ibv_destroy_cq(q->cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
	*q = (struct raw_cq){0};
}

static int make_qp(struct raw_end *e)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
	                             .sq_sig_all = 1,
	                             .send_cq = e->cq->cq,
	                             .recv_cq = e->cq->cq,
	                             .srq = e->srq,
	                             .cap = {.max_send_wr = RAW_DEPTH,
	                                     .max_recv_wr = RAW_DEPTH,
	                                     .max_send_sge = 1,
	                                     .max_recv_sge = 1}};

	e->qp = ibv_create_qp(e->pd, &a);
	return e->qp ? 0 : -ENOMEM;
}

int raw_end_open(struct raw *r, const struct raw_opts *o, struct raw_end *ret)
{
	static const struct raw_opts none;
	int code = 0;

	o = o ? o : &none;
	*ret = (struct raw_end){
		.raw = r, .pd = o->pd, .shares_pd = o->pd, .srq = o->srq, .cq = o->cq};
	ret->shares_srq = o->srq;
	if (!o->psn_known)
		crypto_random(&ret->psn, 3);
	ret->mem = aligned_alloc(4096, RAW_BYTES);
	if (!ret->mem)
		return -ENOMEM;
	memset(ret->mem, 0, RAW_BYTES);
	if (!ret->pd)
		ret->pd = ibv_alloc_pd(r->ctx);
	if (ret->pd)
		ret->mr = ibv_reg_mr(ret->pd, ret->mem, RAW_BYTES, RAW_ALL);
	if (!ret->mr)
		code = -ENOMEM;
	if (!code && !ret->cq) {
		ret->cq = &ret->own_cq;
		code = raw_cq_open(r, o->cq_depth ? o->cq_depth : 2 * RAW_DEPTH, &ret->own_cq);
	}
	if (!code && o->srq_depth) {
		struct ibv_srq_init_attr a = {.attr = {.max_wr = o->srq_depth, .max_sge = 1}};

		ret->srq = ibv_create_srq(ret->pd, &a);
		code = ret->srq ? 0 : -ENOMEM;
	}
	if (!code)
		code = make_qp(ret);
	if (code)
		raw_end_close(ret);
	return code;
}

void raw_end_close(struct raw_end *e)
{
	if (e->qp)
		ibv_destroy_qp(e->qp);
	if (e->srq && !e->shares_srq)
		ibv_destroy_srq(e->srq);
	raw_cq_close(&e->own_cq);
	if (e->mr)
		ibv_dereg_mr(e->mr);
	if (e->pd && !e->shares_pd)
		ibv_dealloc_pd(e->pd);
	free(e->mem);
	*e = (struct raw_end){0};
}

void raw_end_addr(const struct raw_end *e, struct raw_addr *ret)
{
	*ret = (struct raw_addr){.gid = e->raw->gid, .qpn = e->qp->qp_num, .psn = e->psn};
}

int raw_end_reset(struct raw_end *e, int access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct ibv_wc wc;

	if (ibv_modify_qp(e->qp, &a, IBV_QP_STATE))
		return -EIO;
	/* what had ended before is nobody's now */
	while (e->cq == &e->own_cq && ibv_poll_cq(e->cq->cq, 1, &wc) == 1)
		;
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
	return ibv_modify_qp(e->qp, &a,
	                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
	               ? -EIO
	               : 0;
}

int raw_end_join(struct raw_end *e, const struct raw_join *j)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = j->mtu ? j->mtu : IBV_MTU_1024,
	                        .dest_qp_num = j->peer.qpn,
	                        .rq_psn = j->peer.psn,
	                        .max_dest_rd_atomic = 4,
	                        .min_rnr_timer = j->rnr_timer ? j->rnr_timer : 12,
	                        .ah_attr = {.port_num = 1,
	                                    .is_global = 1,
	                                    .grh = {.dgid = j->peer.gid,
	                                            .sgid_index = e->raw->gid_index,
	                                            .hop_limit = 64}}};
	int r = raw_end_reset(e, j->access);

	if (r)
		return r;
	if (ibv_modify_qp(e->qp, &a,
	                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -EIO;
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                         .timeout = 14,
	                         .retry_cnt = 7,
	                         .rnr_retry = j->rnr_retry,
	                         .sq_psn = e->psn,
	                         .max_rd_atomic = 4};
	return ibv_modify_qp(e->qp, &a,
	                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)
	               ? -EIO
	               : 0;
}

int raw_wait(struct raw_cq *q, struct ibv_wc *ret, int timeout_ms)
{
	struct pollfd pfd = {.fd = q->channel->fd, .events = POLLIN};
	struct ibv_wc wc;
	int n = ibv_poll_cq(q->cq, 1, &wc);

	while (n == 0) {
		struct ibv_cq *cq;
		void *ctx;

		if (ibv_req_notify_cq(q->cq, 0))
			return -EIO;
		/* What came before arming gives no event. */
		n = ibv_poll_cq(q->cq, 1, &wc);
		if (n)
			break;
		if (poll(&pfd, 1, timeout_ms) <= 0)
			return -ETIMEDOUT;
		if (ibv_get_cq_event(q->channel, &cq, &ctx))
			return -EIO;
		ibv_ack_cq_events(cq, 1);
		n = ibv_poll_cq(q->cq, 1, &wc);
	}
	if (n < 0)
		return -EIO;
	if (ret)
		*ret = wc;
	return (int)wc.status;
}

int raw_wait_sent(struct raw_cq *q, int timeout_ms)
{
	struct ibv_wc wc;
	int r;

	do
		r = raw_wait(q, &wc, timeout_ms);
	while (r >= 0 && wc.wr_id != WR_SEND);
	return r;
}

int raw_post(struct raw_end *e, enum ibv_wr_opcode op, uint64_t addr, uint32_t length, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)e->mem, length, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = WR_SEND,
	                         .opcode = op,
	                         .sg_list = &sge,
	                         .num_sge = length ? 1 : 0},
			   *bad;

	if (op == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = key;
	} else if (op != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = key;
	}
	return -ibv_post_send(e->qp, &wr, &bad);
}

int raw_do(struct raw_end *e, enum ibv_wr_opcode op, uint64_t addr, uint32_t length, uint32_t key)
{
	int r = raw_post(e, op, addr, length, key);

	return r ? r : raw_wait_sent(e->cq, RAW_WAIT_MS);
}

int raw_recv(struct raw_end *e)
{
	struct ibv_sge sge = {(uintptr_t)e->mem + RAW_BYTES / 2, 64, e->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	return e->srq ? -ibv_post_srq_recv(e->srq, &wr, &bad) : -ibv_post_recv(e->qp, &wr, &bad);
}

bool raw_refused(int end)
{
	return end == IBV_WC_REM_ACCESS_ERR || end == IBV_WC_REM_INV_REQ_ERR ||
	       end == IBV_WC_REM_OP_ERR;
}

const char *raw_end_str(int end)
{
	return end < 0 ? strerror(-end) : ibv_wc_status_str((enum ibv_wc_status)end);
}
