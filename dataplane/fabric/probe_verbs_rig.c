/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of the probe: probe_verbs_priv.h tells what it is and what it must not do. */
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define QP_DEPTH 64u

static bool is_ipv4(const union ibv_gid *g)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(g->raw, prefix, sizeof(prefix)) == 0;
}

/* RoCE v2 over IPv4, else RoCE v2, else the first there is. */
static int pick_gid(struct vp *v)
{
	struct ibv_gid_entry e[64];
	ssize_t n = ibv_query_gid_table(v->ctx, e, ARRAY_SIZE(e), 0);
	int best = -1, best_rank = 0;

	for (ssize_t i = 0; i < n; i++) {
		int rank = 1;

		if (e[i].port_num != v->port_num || e[i].gid_index > UINT8_MAX)
			continue;
		if (e[i].gid_type == IBV_GID_TYPE_ROCE_V2)
			rank = is_ipv4(&e[i].gid) ? 3 : 2;
		if (rank > best_rank) {
			best_rank = rank;
			best = (int)i;
		}
	}
	if (best < 0)
		return -ENOTCONN;
	v->gid = e[best].gid;
	v->gid_index = (uint8_t)e[best].gid_index;
	return 0;
}

static int pick_port(struct vp *v)
{
	for (uint8_t n = 1; n <= v->attr.phys_port_cnt; n++) {
		v->port_num = n;
		if (ibv_query_port(v->ctx, n, &v->port) == 0 && v->port.state == IBV_PORT_ACTIVE)
			return pick_gid(v);
	}
	return -ENOTCONN;
}

static struct ibv_context *open_named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	errno = ENODEV;
	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return ctx;
}

int vp_open(struct vp *v, const char *name, struct ros2_err *err)
{
	int r;

	*v = (struct vp){.ctx = open_named(name)};
	if (!v->ctx)
		return ros2_err_set(err, -errno, "%s: %s", name, strerror(errno));
	r = ibv_query_device(v->ctx, &v->attr) ? -EIO : pick_port(v);
	if (r) {
		vp_close(v);
		return ros2_err_set(err, r, "%s: %s", name,
		                    r == -EIO ? "cannot be asked for its attributes"
		                              : "no port is active");
	}
	crypto_random(&v->psn, sizeof(v->psn));
	v->windows = v->attr.device_cap_flags &
	             (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	v->software = v->attr.vendor_id == 0xffffff || v->attr.vendor_id == 0x626d74;
	v->remote_invalidate = v->attr.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS;
	return 0;
}

void vp_close(struct vp *v)
{
	if (v->ctx)
		ibv_close_device(v->ctx);
	v->ctx = NULL;
}

int vp_tenant_open(struct vp *v, struct vp_tenant *t)
{
	size_t total = 2 * VP_GUARD_BYTES + VP_SLOT_BYTES + VP_SOURCE_BYTES;
	void *mem = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*t = (struct vp_tenant){0};
	if (mem == MAP_FAILED)
		return -ENOMEM;
	t->mem = mem;
	t->slot = t->mem + VP_GUARD_BYTES;
	t->source = t->slot + VP_SLOT_BYTES + VP_GUARD_BYTES;
	t->pd = ibv_alloc_pd(v->ctx);
	if (t->pd) {
		t->slot_mr = ibv_reg_mr(t->pd, t->slot, VP_SLOT_BYTES,
		                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
		t->plain_mr = ibv_reg_mr(t->pd, t->slot, VP_SLOT_BYTES,
		                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		                                 IBV_ACCESS_REMOTE_WRITE);
		t->source_mr =
			ibv_reg_mr(t->pd, t->source, VP_SOURCE_BYTES, IBV_ACCESS_LOCAL_WRITE);
	}
	if (t->slot_mr && t->plain_mr && t->source_mr)
		return 0;
	vp_tenant_close(t);
	return -ENOMEM;
}

void vp_tenant_close(struct vp_tenant *t)
{
	struct ibv_mr *mrs[] = {t->slot_mr, t->plain_mr, t->source_mr};

	for (size_t i = 0; i < ARRAY_SIZE(mrs); i++)
		if (mrs[i])
			ibv_dereg_mr(mrs[i]);
	if (t->pd)
		ibv_dealloc_pd(t->pd);
	if (t->mem)
		munmap(t->mem, 2 * VP_GUARD_BYTES + VP_SLOT_BYTES + VP_SOURCE_BYTES);
	*t = (struct vp_tenant){0};
}

int vp_qp_open(struct vp *v, struct vp_tenant *t, uint32_t cq_depth, uint32_t overcommit,
               struct vp_qp *ret)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .sq_sig_all = 1};

	*ret = (struct vp_qp){.psn = ++v->psn & 0xffffff};
	ret->channel = ibv_create_comp_channel(v->ctx);
	if (ret->channel)
		ret->cq = ibv_create_cq(v->ctx, cq_depth ? (int)cq_depth : 2 * (int)QP_DEPTH, NULL,
		                        ret->channel, 0);
	if (ret->cq) {
		a.send_cq = a.recv_cq = ret->cq;
		a.cap.max_send_wr = overcommit ? (uint32_t)ret->cq->cqe + overcommit : QP_DEPTH;
		a.cap.max_recv_wr = QP_DEPTH;
		a.cap.max_send_sge = a.cap.max_recv_sge = 1;
		ret->qp = ibv_create_qp(t->pd, &a);
	}
	if (ret->qp)
		return 0;
	vp_qp_close(ret);
	return -ENOMEM;
}

void vp_qp_close(struct vp_qp *q)
{
	if (q->qp)
		ibv_destroy_qp(q->qp);
	if (q->cq)
		ibv_destroy_cq(q->cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
	*q = (struct vp_qp){0};
}

static int to_init(struct vp *v, struct vp_qp *q, int access)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	if (ibv_modify_qp(q->qp, &a, IBV_QP_STATE))
		return -EIO;
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
	                         .port_num = v->port_num,
	                         .qp_access_flags = (unsigned)access};
	return ibv_modify_qp(q->qp, &a,
	                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
	               ? -EIO
	               : 0;
}

static int to_ready(struct vp *v, struct vp_qp *q, const struct vp_qp *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = MIN(v->port.active_mtu, IBV_MTU_1024),
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.port_num = v->port_num,
	                    .dlid = v->port.lid,
	                    .is_global = 1,
	                    .grh = {.dgid = v->gid, .sgid_index = v->gid_index, .hop_limit = 1}}};

	if (ibv_modify_qp(q->qp, &a,
	                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -EIO;
	/* 67 ms * 7: long enough for emulated machines, short enough to wait for */
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
	                         .timeout = 14,
	                         .retry_cnt = 7,
	                         .rnr_retry = 1,
	                         .sq_psn = q->psn,
	                         .max_rd_atomic = 1};
	return ibv_modify_qp(q->qp, &a,
	                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)
	               ? -EIO
	               : 0;
}

int vp_qp_join(struct vp *v, struct vp_qp *q, const struct vp_qp *peer, int access)
{
	int r = to_init(v, q, access);

	return r ? r : to_ready(v, q, peer);
}

int vp_pair_open(struct vp *v, struct vp_tenant *target, struct vp_tenant *initiator,
                 const struct vp_pair_opts *o, struct vp_pair *ret)
{
	static const struct vp_pair_opts none;
	int r, access;

	o = o ? o : &none;
	access = o->no_access ? 0 : IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	*ret = (struct vp_pair){.v = v, .target = target, .initiator = initiator};
	r = vp_qp_open(v, target, 0, 0, &ret->t);
	if (!r)
		r = vp_qp_open(v, initiator, o->cq_depth, o->overcommit, &ret->i);
	if (!r)
		r = vp_qp_join(v, &ret->t, &ret->i, access);
	if (!r)
		r = vp_qp_join(v, &ret->i, &ret->t, 0);
	if (r)
		vp_pair_close(ret);
	return r;
}

void vp_pair_close(struct vp_pair *p)
{
	for (unsigned w = 0; w < VP_WINDOWS; w++)
		vp_dealloc(p, w);
	vp_qp_close(&p->i);
	vp_qp_close(&p->t);
}

int vp_wait(struct vp_qp *q, struct ibv_wc *ret, int timeout_ms)
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
		if (n != 0)
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

int vp_post(struct vp_qp *q, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return -ibv_post_send(q->qp, wr, &bad);
}

static int post_and_wait(struct vp_qp *q, struct ibv_send_wr *wr)
{
	int r = vp_post(q, wr);

	return r ? r : vp_wait(q, NULL, VP_WAIT_MS);
}

int vp_bind(struct vp_pair *p, unsigned w, struct ibv_mr *mr, uint64_t addr, uint64_t length,
            int access)
{
	struct vp_window *win = &p->windows[w];
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	int r;

	if (!win->mw)
		win->mw = ibv_alloc_mw(p->target->pd, IBV_MW_TYPE_2);
	if (!win->mw)
		return -errno;
	wr.bind_mw.mw = win->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(win->mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr, .addr = addr, .length = length, .mw_access_flags = (unsigned)access};
	r = post_and_wait(&p->t, &wr);
	if (r == IBV_WC_SUCCESS) {
		win->mw->rkey = win->key = wr.bind_mw.rkey;
		win->bound = true;
	}
	return r;
}

int vp_invalidate(struct vp_pair *p, unsigned w)
{
	struct vp_window *win = &p->windows[w];
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = win->key};

	if (!win->bound)
		return -EALREADY;
	win->bound = false;
	return post_and_wait(&p->t, &wr);
}

int vp_dealloc(struct vp_pair *p, unsigned w)
{
	struct ibv_mw *mw = p->windows[w].mw;

	p->windows[w].mw = NULL;
	p->windows[w].bound = false;
	return mw ? -ibv_dealloc_mw(mw) : 0;
}

int vp_access(struct vp_pair *p, struct vp_qp *q, enum ibv_wr_opcode op, uint64_t addr,
              uint32_t length, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)p->initiator->source, length,
	                      p->initiator->source_mr->lkey};
	struct ibv_send_wr wr = {.opcode = op, .sg_list = &sge, .num_sge = length ? 1 : 0};

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = key;
	return post_and_wait(q, &wr);
}

int vp_write(struct vp_pair *p, uint64_t addr, uint32_t length, uint32_t key)
{
	return vp_access(p, &p->i, IBV_WR_RDMA_WRITE, addr, length, key);
}

int vp_read(struct vp_pair *p, uint64_t addr, uint32_t length, uint32_t key)
{
	return vp_access(p, &p->i, IBV_WR_RDMA_READ, addr, length, key);
}

int vp_recv(struct vp_pair *p)
{
	struct ibv_sge sge = {(uintptr_t)p->target->source, 64, p->target->source_mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	return -ibv_post_recv(p->t.qp, &wr, &bad);
}

int vp_send(struct vp_pair *p, uint32_t key)
{
	struct ibv_sge sge = {(uintptr_t)p->initiator->source, 8, p->initiator->source_mr->lkey};
	struct ibv_send_wr wr = {.opcode = key ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
	                         .sg_list = &sge,
	                         .num_sge = 1,
	                         .invalidate_rkey = key};

	return post_and_wait(&p->i, &wr);
}

bool vp_refused(int end)
{
	return end == IBV_WC_REM_ACCESS_ERR || end == IBV_WC_REM_INV_REQ_ERR ||
	       end == IBV_WC_REM_OP_ERR;
}

const char *vp_end_str(int end)
{
	if (end < 0)
		return strerror(-end);
	return ibv_wc_status_str((enum ibv_wc_status)end);
}

void vp_mark(struct vp_pair *p)
{
	memset(p->target->mem, 0, 2 * VP_GUARD_BYTES + VP_SLOT_BYTES);
	memset(p->initiator->source, 0xa5, VP_SOURCE_BYTES);
}

uint32_t vp_landed(const struct vp_pair *p, const void *addr, uint32_t length)
{
	const uint8_t *at = addr;
	uint32_t n = 0;

	for (uint32_t i = 0; i < length; i++)
		n += at[i] == 0xa5;
	return n;
}

void vp_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
{
	va_list ap;

	f->result = r;
	va_start(ap, fmt);
	vsnprintf(f->seen, sizeof(f->seen), fmt, ap);
	va_end(ap);
}
