// SPDX-License-Identifier: Apache-2.0
/*
 * Queue pairs: made within the caps of the tenant and the room of the CQ, taken through INIT, RTR
 * and RTS with the access flags that were asked for and no others, verified by a query, and ended.
 * A failed queue pair never recovers: it is in error, its windows are deallocated, and it is freed;
 * so no key outlives a reset.
 *
 * End of life: 1. no new work (FAILED); 2. to error; 3. what was queued is dropped; 4. windows
 * deallocated; 5. the connection ends; 6. the queue pair is destroyed; 7. its completions leave the
 * CQ; 8. its room is given back.
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

#define PSN_MASK      0xffffffu
#define RNR_TIMER     12 /* 0.64 ms */
#define ACK_TIMEOUT   17 /* 4.096 us * 2^17 = 0.5 s */
#define ACK_LONGEST   20 /* 4.3 s, for each of the tries */
#define HOP_LIMIT     64
#define JOIN_LIMIT_NS (5 * NS_PER_S)
#define REMOTE_FLAGS  (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static _Atomic uint64_t next_id = 1;

static uint32_t ring_places(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size *= 2;
	return size;
}

static uint32_t send_places(const struct fabric_qp_opts *o)
{
	return o->send_depth + o->windows +
	       1; /* LOCAL_INVs and the mark have places of their own */
}

static int check_reads(const struct fabric_dev_attr *a, const struct fabric_qp_opts *o,
                       struct ros2_err *err)
{
	if (o->remote_access & ~(FABRIC_READ | FABRIC_WRITE))
		return ros2_err_set(
			err, -EINVAL,
			"remote access %#x of a queue pair: expected read, write or none",
			o->remote_access);
	if (!!(o->remote_access & FABRIC_READ) != !!o->reads_in)
		return ros2_err_set(err, -EINVAL,
		                    "%u READs in flight of a peer that %s read: expected %s",
		                    o->reads_in, o->reads_in ? "must not" : "may",
		                    o->reads_in ? "0" : "at least 1");
	if (o->reads_in > a->max_reads_in || o->reads_out > a->max_reads_out)
		return ros2_err_set(
			err, -EINVAL, "%u READs in and %u out: %s takes at most %u and %u",
			o->reads_in, o->reads_out, a->name, a->max_reads_in, a->max_reads_out);
	return 0;
}

static int check_opts(const struct fabric_dev_attr *a, const struct fabric_qp_opts *o,
                      struct ros2_err *err)
{
	if (!o->send_depth || o->send_depth > FABRIC_DEPTH_MAX || !o->recv_depth ||
	    o->recv_depth > FABRIC_DEPTH_MAX || o->recv_depth > a->max_qp_depth)
		return ros2_err_set(
			err, -EINVAL, "a queue pair of %u sends and %u receives: expected 1..%u",
			o->send_depth, o->recv_depth, MIN(FABRIC_DEPTH_MAX, a->max_qp_depth));
	if (o->windows > FABRIC_WINDOWS_MAX || send_places(o) > a->max_qp_depth)
		return ros2_err_set(
			err, -EINVAL,
			"%u sends and %u windows: at most %u windows, and %s takes %u work "
			"requests in all",
			o->send_depth, o->windows, FABRIC_WINDOWS_MAX, a->name, a->max_qp_depth);
	if (o->windows && !a->window_2b)
		return ros2_err_set(err, -EOPNOTSUPP,
		                    "memory windows of type 2B: not supported by %s", a->name);
	if (o->send_parts > MIN(FABRIC_SGE_MAX, a->max_sge) ||
	    o->recv_parts > MIN(FABRIC_SGE_MAX, a->max_sge))
		return ros2_err_set(err, -EINVAL,
		                    "%u parts of a send and %u of a receive: expected at most %u",
		                    o->send_parts, o->recv_parts, MIN(FABRIC_SGE_MAX, a->max_sge));
	return check_reads(a, o, err);
}

static int reserve(struct fabric_set *s, const struct fabric_qp_opts *o, struct ros2_err *err)
{
	uint32_t need = fabric_qp_cq_room(o);

	if (s->failed)
		return ros2_err_set(err, -ENODEV, "the completion queue of the set has failed");
	if (s->n_qps == s->o.qps_max)
		return ros2_err_set(err, -EBUSY, "the set has its %u queue pairs", s->o.qps_max);
	if (need > s->c.cq_depth - s->c.cq_reserved)
		return ros2_err_set(err, -EBUSY,
		                    "the queue pair may have %u completions, the completion queue "
		                    "has room for %u "
		                    "of %u",
		                    need, s->c.cq_depth - s->c.cq_reserved, s->c.cq_depth);
	if (pd_take(&s->pd->qps, 1, s->pd->caps.qps_max) < 0)
		return ros2_err_set(err, -EDQUOT,
		                    "one queue pair more than the %u of the tenant at %s",
		                    s->pd->caps.qps_max, s->pd->dev->attr.name);
	if (pd_take(&s->pd->windows, o->windows, s->pd->caps.windows_max) < 0) {
		s->pd->qps--;
		return ros2_err_set(err, -EDQUOT, "%u windows more: the tenant has %u of %u at %s",
		                    o->windows, s->pd->windows, s->pd->caps.windows_max,
		                    s->pd->dev->attr.name);
	}
	s->c.cq_reserved += need;
	s->n_qps++;
	return 0;
}

static void unreserve(struct fabric_set *s, const struct fabric_qp_opts *o)
{
	s->c.cq_reserved -= fabric_qp_cq_room(o);
	s->n_qps--;
	s->pd->qps--;
	s->pd->windows -= o->windows;
}

static struct fabric_qp *alloc_qp(const struct fabric_qp_opts *o)
{
	struct fabric_qp *qp = calloc(1, sizeof(*qp));
	uint32_t sends = ring_places(send_places(o)), recvs = ring_places(o->recv_depth);

	if (!qp)
		return NULL;
	qp->o = *o;
	qp->sge_send = MAX(o->send_parts, 1);
	qp->sge_recv = MAX(o->recv_parts, 1);
	qp->s = (struct ring){.size = send_places(o), .mask = sends - 1};
	qp->r = (struct ring){.size = o->recv_depth, .mask = recvs - 1};
	list_init(&qp->link);
	list_init(&qp->report);
	qp->sent = calloc(sends, sizeof(*qp->sent));
	qp->wrs = calloc(sends, sizeof(*qp->wrs));
	qp->sges = calloc((size_t)sends * qp->sge_send, sizeof(*qp->sges));
	qp->received = calloc(recvs, sizeof(*qp->received));
	qp->rwrs = calloc(recvs, sizeof(*qp->rwrs));
	qp->rsges = calloc((size_t)recvs * qp->sge_recv, sizeof(*qp->rsges));
	return qp;
}

static bool is_whole(const struct fabric_qp *qp)
{
	return qp->sent && qp->wrs && qp->sges && qp->received && qp->rwrs && qp->rsges;
}

static void free_memory(struct fabric_qp *qp)
{
	free(qp->sent);
	free(qp->wrs);
	free(qp->sges);
	free(qp->received);
	free(qp->rwrs);
	free(qp->rsges);
	free(qp->windows);
	free(qp->pool);
	free(qp);
}

static int device_make(struct fabric_qp *qp, struct ros2_err *err)
{
	struct fabric_set *s = qp->set;
	struct ibv_qp_init_attr a = {
		.qp_context = qp,
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = qp->s.size,
	                .max_recv_wr = qp->r.size,
	                .max_send_sge = qp->sge_send,
	                .max_recv_sge = qp->sge_recv,
	                .max_inline_data = qp->o.inline_bytes},
	};
	struct ibv_qp_init_attr without = a;

	without.cap.max_inline_data = 0;
	errno = 0;
	qp->qp = ibv_create_qp(s->pd->pd, &a);
	if (!qp->qp && errno == EINVAL && qp->o.inline_bytes) {
		/* more inline data than it can: then none */
		a = without;
		qp->qp = ibv_create_qp(s->pd->pd, &a);
	}
	if (!qp->qp)
		return verbs_err(err, errno, s->pd->dev, "ibv_create_qp");
	qp->inline_max = MIN(a.cap.max_inline_data, qp->o.inline_bytes);
	return 0;
}

static void enter(struct fabric_qp *qp)
{
	struct fabric_set *s = qp->set;
	uint32_t i = 0;

	while (s->qps[i])
		i++;
	s->qp_generations[i] = (s->qp_generations[i] + 1) & ((1u << 21) - 1);
	qp->index = i;
	qp->generation = s->qp_generations[i];
	qp->id = next_id++;
	s->qps[i] = qp;
	list_add_tail(&s->all, &qp->link);
}

int qp_make(struct fabric_set *s, const struct fabric_qp_opts *o, struct fabric_qp **ret,
            struct ros2_err *err)
{
	struct fabric_qp *qp;
	int r = check_opts(&s->pd->dev->attr, o, err);

	if (r == 0)
		r = reserve(s, o, err);
	if (r < 0)
		return r;
	qp = alloc_qp(o);
	if (!qp || !is_whole(qp)) {
		if (qp)
			free_memory(qp);
		unreserve(s, o);
		return ros2_err_set(err, -ENOMEM, "no memory for a queue pair");
	}
	qp->set = s;
	qp->psn = crypto_random_u32() & PSN_MASK;
	if (!qp->o.port)
		qp->o.port = 1;
	if (!qp->o.join_limit_ns)
		qp->o.join_limit_ns = JOIN_LIMIT_NS;
	if (o->remote_access & FABRIC_READ)
		qp->access |= IBV_ACCESS_REMOTE_READ;
	if (o->remote_access & FABRIC_WRITE)
		qp->access |= IBV_ACCESS_REMOTE_WRITE;
	enter(qp);
	r = device_make(qp, err);
	if (r == 0)
		r = windows_make(qp, err);
	if (r < 0) {
		fabric_qp_free(qp);
		return r;
	}
	*ret = qp;
	return 0;
}

int qp_modify(struct fabric_qp *qp, struct ibv_qp_attr *a, int mask, const char *what,
              struct ros2_err *err)
{
	int code = ibv_modify_qp(qp->qp, a, mask);

	return code == 0 ? 0 : verbs_err(err, code > 0 ? code : errno, qp->set->pd->dev, what);
}

int fabric_qp_new(struct fabric_set *s, const struct fabric_qp_opts *o, struct fabric_qp **ret,
                  struct ros2_err *err)
{
	struct fabric_qp *qp;
	int r;

	if (o->port > s->pd->dev->attr.n_ports)
		return ros2_err_set(err, -EINVAL, "port %u: %s has %u", o->port,
		                    s->pd->dev->attr.name, s->pd->dev->attr.n_ports);
	r = qp_make(s, o, &qp, err);
	if (r < 0)
		return r;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = (uint8_t)qp->o.port,
		.qp_access_flags = qp->access,
	};
	r = qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	              "ibv_modify_qp to INIT", err);
	if (r < 0) {
		fabric_qp_free(qp);
		return r;
	}
	*ret = qp;
	return 0;
}

static const struct fabric_port *port_of(const struct fabric_qp *qp)
{
	return &qp->set->pd->dev->attr.ports[qp->o.port - 1];
}

void fabric_qp_address(const struct fabric_qp *qp, struct fabric_qp_addr *ret)
{
	const struct fabric_port *p = port_of(qp);

	*ret = (struct fabric_qp_addr){
		.lid = p->lid, .qpn = qp->qp->qp_num, .psn = qp->psn, .mtu_bytes = p->mtu_bytes};
	for (uint32_t i = 0; i < p->n_gids; i++)
		if (p->gids[i].index == qp->o.gid_index)
			memcpy(ret->gid, p->gids[i].raw, FABRIC_GID_LEN);
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu m = IBV_MTU_256;

	while (m < IBV_MTU_4096 && (128u << (m + 1)) <= bytes)
		m++;
	return m;
}

static int to_rtr(struct fabric_qp *qp, const struct fabric_qp_addr *peer, struct ros2_err *err)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_of(MIN(port_of(qp)->mtu_bytes, peer->mtu_bytes)),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = qp->o.reads_in,
		.min_rnr_timer = RNR_TIMER,
		.ah_attr = {.is_global = 1,
	                    .dlid = peer->lid,
	                    .port_num = (uint8_t)qp->o.port,
	                    .grh = {.sgid_index = (uint8_t)qp->o.gid_index,
	                            .hop_limit = HOP_LIMIT}},
	};

	memcpy(a.ah_attr.grh.dgid.raw, peer->gid, FABRIC_GID_LEN);
	return qp_modify(qp, &a,
	                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	                 "ibv_modify_qp to RTR", err);
}

static int to_rts(struct fabric_qp *qp, struct ros2_err *err)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = RETRIES,
		.rnr_retry = qp->o.rnr_forever ? RNR_FOREVER : RNR_RETRIES,
		.sq_psn = qp->psn,
		.max_rd_atomic = qp->o.reads_out,
	};

	return qp_modify(qp, &a,
	                 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	                 "ibv_modify_qp to RTS", err);
}

/* The peer's request or answer says it, 0 meaning without end; while we wait for an ACK, what was
 * posted is the device's. */
static uint8_t ack_timeout(uint8_t said)
{
	return said == 0 || said > ACK_LONGEST ? ACK_LONGEST : said;
}

int qp_join_manager(struct fabric_qp *qp, struct rdma_cm_id *id, enum ibv_qp_state to,
                    struct ros2_err *err)
{
	struct ibv_qp_attr a = {.qp_state = to};
	int mask = 0;

	if (rdma_init_qp_attr(id, &a, &mask) != 0)
		return verbs_err(err, errno, qp->set->pd->dev, "rdma_init_qp_attr");
	/* What the connection manager would choose allows remote WRITEs always. */
	if (to == IBV_QPS_INIT) {
		a.qp_access_flags = qp->access;
		mask |= IBV_QP_ACCESS_FLAGS;
	} else if (to == IBV_QPS_RTR) {
		a.max_dest_rd_atomic = qp->o.reads_in;
		a.min_rnr_timer = RNR_TIMER;
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	} else {
		a.timeout = ack_timeout(a.timeout);
		a.retry_cnt = RETRIES;
		a.max_rd_atomic = qp->o.reads_out;
		a.rnr_retry = qp->o.rnr_forever ? RNR_FOREVER : RNR_RETRIES;
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_MAX_QP_RD_ATOMIC |
		        IBV_QP_RNR_RETRY;
	}
	return qp_modify(qp, &a, mask,
	                 to == IBV_QPS_INIT  ? "ibv_modify_qp to INIT"
	                 : to == IBV_QPS_RTR ? "ibv_modify_qp to RTR"
	                                     : "ibv_modify_qp to RTS",
	                 err);
}

static int query_access(struct fabric_qp *qp, unsigned int *ret, struct ros2_err *err)
{
	struct ibv_qp_attr a = {0};
	struct ibv_qp_init_attr init;
	int code = ibv_query_qp(qp->qp, &a, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, &init);

	if (code != 0)
		return verbs_err(err, code > 0 ? code : errno, qp->set->pd->dev, "ibv_query_qp");
	*ret = a.qp_access_flags & REMOTE_FLAGS;
	return 0;
}

/* The flags were set at INIT; a device that shows others is told once more, and then not used. */
int qp_verify(struct fabric_qp *qp, struct ros2_err *err)
{
	struct ibv_qp_attr a = {.qp_access_flags = qp->access};
	unsigned int seen = 0;
	int r = query_access(qp, &seen, err);

	if (r < 0 || seen == qp->access)
		return r;
	r = qp_modify(qp, &a, IBV_QP_ACCESS_FLAGS, "ibv_modify_qp of the access flags", err);
	if (r == 0)
		r = query_access(qp, &seen, err);
	if (r < 0 || seen == qp->access)
		return r;
	return ros2_err_set(
		err, -EPERM,
		"%s shows remote access %#x on a queue pair that was asked for %#x: not used",
		qp->set->pd->dev->attr.name, seen, qp->access);
}

void qp_move(struct fabric_qp *qp, enum fabric_qp_state to)
{
	assert(fabric_qp_state_may_follow(qp->state, to));
	qp->state = to;
}

int fabric_qp_join(struct fabric_qp *qp, const struct fabric_qp_addr *peer, struct ros2_err *err)
{
	int r;

	if (qp->state != FABRIC_QP_MADE)
		return ros2_err_set(err, -ENOTCONN, "a queue pair that is %s cannot join a peer",
		                    fabric_qp_state_to_str(qp->state));
	if (peer->qpn > PSN_MASK || peer->psn > PSN_MASK || peer->mtu_bytes < 256)
		return ros2_err_set(err, -EINVAL,
		                    "peer %#x, PSN %#x, MTU %u: expected 24 bits, 24 bits, >= 256",
		                    peer->qpn, peer->psn, peer->mtu_bytes);
	qp_move(qp, FABRIC_QP_JOINING);
	r = to_rtr(qp, peer, err);
	if (r == 0)
		r = to_rts(qp, err);
	if (r == 0)
		r = qp_verify(qp, err);
	if (r < 0) {
		qp_fail(qp);
		return r;
	}
	qp_move(qp, FABRIC_QP_READY);
	return 0;
}

uint64_t fabric_qp_id(const struct fabric_qp *qp)
{
	return qp->id;
}

uint64_t fabric_qp_cookie(const struct fabric_qp *qp)
{
	return qp->o.cookie;
}

enum fabric_qp_state fabric_qp_state(const struct fabric_qp *qp)
{
	return qp->state;
}

uint32_t fabric_qp_number(const struct fabric_qp *qp)
{
	return qp->qp->qp_num;
}

uint32_t fabric_qp_inline_max(const struct fabric_qp *qp)
{
	return qp->inline_max;
}

struct fabric_qp *fabric_qp_find(struct fabric_set *s, uint64_t id)
{
	struct fabric_qp *qp;

	list_for_each (&s->all, qp, link)
		if (qp->id == id)
			return qp;
	return NULL;
}

bool fabric_qp_kept(const struct fabric_set *s, uint64_t id)
{
	const struct fabric_qp *qp;

	list_for_each (&s->zombies, qp, link)
		if (qp->id == id)
			return true;
	return false;
}

uint32_t fabric_qp_outstanding(const struct fabric_qp *qp)
{
	return qp->outstanding;
}

static void to_error(struct fabric_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (!qp->in_error && qp->qp)
		qp->in_error =
			ibv_modify_qp(qp->qp, &a, IBV_QP_STATE) == 0 || qp->set->pd->dev->removed;
}

void qp_fail(struct fabric_qp *qp)
{
	if (qp->state != FABRIC_QP_FAILED) {
		qp_move(qp, FABRIC_QP_FAILED);
		to_error(qp);
		qp_drop_queued(qp);
		post_mark(qp);
	} else {
		to_error(qp);
	}
	windows_fail(qp);
}

int fabric_qp_kill(struct fabric_qp *qp, struct fabric_receipt *ret)
{
	qp_fail(qp);
	if (ret)
		*ret = (struct fabric_receipt){
			.last_posted_ns = qp->last_posted_ns,
			.invalidated_ns = clock_boottime_ns(),
			.draining = qp->outstanding,
			.how = FABRIC_BY_QP_ERROR,
		};
	return qp->in_error ? 0 : -EIO;
}

void fabric_qp_failed(struct fabric_qp *qp)
{
	qp_fail(qp);
}

/* -EBUSY: the device keeps a window or the queue pair; destroying it with a bound window would wait
 * for 50 s. */
int qp_destroy(struct fabric_qp *qp)
{
	struct fabric_set *s = qp->set;
	int r;

	if (windows_unmake(qp) < 0)
		return -EBUSY;
	if (qp->qp && ibv_destroy_qp(qp->qp) != 0 && !s->pd->dev->removed)
		return -EBUSY;
	qp->qp = NULL;
	windows_over(qp);
	/* Some devices leave its completions in the queue: they must be out before its room is
	 * given away. */
	(void)set_pull(s, s->c.cq_depth, &r);
	qp_forget(qp);
	list_del(&qp->report);
	list_del(&qp->link);
	s->qps[qp->index] = NULL;
	unreserve(s, &qp->o);
	free_memory(qp);
	return 0;
}

uint32_t fabric_qp_free(struct fabric_qp *qp)
{
	struct fabric_set *s;
	uint32_t forgotten;
	int r;

	if (!qp)
		return 0;
	s = qp->set;
	if (qp->conn)
		conn_forget_qp(qp->conn);
	qp_fail(qp);
	qp->zombie = true;
	(void)set_pull(s, s->c.cq_depth, &r);
	forgotten = qp_unreported(qp);
	list_del(&qp->link);
	list_add_tail(&s->zombies, &qp->link);
	(void)qp_destroy(qp);
	return forgotten;
}
