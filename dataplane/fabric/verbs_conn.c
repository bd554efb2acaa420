// SPDX-License-Identifier: Apache-2.0
/*
 * One connection: asked for by us or by a peer, and its queue pair, which librdmacm never touches:
 * we ask it for the attributes of each step (rdma_init_qp_attr(3)) and take the step ourselves,
 * with our own access flags. So there is no moment at which the flags are those that librdmacm
 * would choose (remote WRITE, always).
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct fabric_conn *conn_new(struct fabric_cm *cm, struct rdma_cm_id *id,
                             enum fabric_conn_state state)
{
	struct fabric_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cm = cm;
	c->id = id;
	c->state = state;
	if (id)
		id->context = &c->node;
	if (state == FABRIC_CONN_REQUESTED)
		cm->n_requests++;
	list_add_tail(&cm->conns, &c->link);
	return c;
}

void conn_move(struct fabric_conn *c, enum fabric_conn_state to)
{
	assert(fabric_conn_state_may_follow(c->state, to));
	if (c->state == FABRIC_CONN_REQUESTED)
		c->cm->n_requests--;
	c->state = to;
}

void conn_end(struct fabric_conn *c)
{
	if (c->state == FABRIC_CONN_ENDED)
		return;
	conn_move(c, FABRIC_CONN_ENDED);
	if (c->qp)
		qp_fail(c->qp);
}

void conn_know_device(struct fabric_conn *c)
{
	if (c->id->verbs)
		snprintf(c->device, sizeof(c->device), "%s",
		         ibv_get_device_name(c->id->verbs->device));
}

/* Its queue pair is being freed. */
void conn_forget_qp(struct fabric_conn *c)
{
	if (c->state == FABRIC_CONN_UP || c->state == FABRIC_CONN_ACCEPTED)
		(void)rdma_disconnect(c->id);
	conn_end(c);
	c->qp->conn = NULL;
	c->qp = NULL;
}

int fabric_connect(struct fabric_cm *cm, const struct sockaddr *src, const struct sockaddr *dst,
                   uint64_t cookie, struct fabric_conn **ret, struct ros2_err *err)
{
	struct fabric_conn *c = conn_new(cm, NULL, FABRIC_CONN_RESOLVING);
	int r = 0;

	if (!c)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection");
	c->cookie = cookie;
	/* address and route, each in its time */
	c->deadline_ns = clock_add_ns(clock_boottime_ns(), 2 * cm->o.resolve_limit_ns);
	if (rdma_create_id(cm->channel, &c->id, &c->node, RDMA_PS_TCP) != 0)
		r = verbs_err(err, errno, NULL, "rdma_create_id");
	else if (rdma_resolve_addr(c->id, (struct sockaddr *)src, (struct sockaddr *)dst,
	                           (int)(cm->o.resolve_limit_ns / NS_PER_MS)) != 0)
		r = verbs_err(err, errno, NULL, "rdma_resolve_addr");
	if (r < 0) {
		fabric_conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

enum fabric_conn_state fabric_conn_state(const struct fabric_conn *c)
{
	return c->state;
}

uint64_t fabric_conn_cookie(const struct fabric_conn *c)
{
	return c->cookie;
}

void fabric_conn_set_cookie(struct fabric_conn *c, uint64_t cookie)
{
	c->cookie = cookie;
}

const char *fabric_conn_device(const struct fabric_conn *c)
{
	return c->device;
}

const struct sockaddr *fabric_conn_local(const struct fabric_conn *c)
{
	return &c->id->route.addr.src_addr;
}

const struct sockaddr *fabric_conn_peer(const struct fabric_conn *c)
{
	return &c->id->route.addr.dst_addr;
}

uint32_t fabric_conn_peer_qpn(const struct fabric_conn *c)
{
	return c->peer_qpn;
}

struct fabric_qp *fabric_conn_qp(const struct fabric_conn *c)
{
	return c->qp;
}

static int check(const struct fabric_conn *c, enum fabric_conn_state wanted,
                 const struct fabric_set *s, const struct fabric_conn_opts *o, struct ros2_err *err)
{
	const struct fabric_dev_attr *a = &s->pd->dev->attr;

	if (c->state != wanted)
		return ros2_err_set(err, -EINVAL, "a connection that is %s: expected %s",
		                    fabric_conn_state_to_str(c->state),
		                    fabric_conn_state_to_str(wanted));
	if (o->hello.length > FABRIC_PRIVATE_MAX)
		return ros2_err_set(err, -EINVAL, "%u bytes of private data: at most %u",
		                    o->hello.length, FABRIC_PRIVATE_MAX);
	if (strcmp(c->device, a->name) != 0)
		return ros2_err_set(err, -EXDEV,
		                    "the connection is over %s, the protection domain of %s",
		                    c->device, a->name);
	if (c->id->port_num == 0 || c->id->port_num > a->n_ports)
		return ros2_err_set(err, -EXDEV,
		                    "the connection is over port %u of %s: only 1..%u are used",
		                    c->id->port_num, a->name, a->n_ports);
	return 0;
}

/* The queue pair in INIT, with what its maker wants to post on it before a peer can know it. */
static int make(struct fabric_conn *c, struct fabric_set *s, const struct fabric_conn_opts *o,
                uint8_t reads_out, struct ros2_err *err)
{
	struct fabric_qp_opts q = o->qp;
	struct fabric_qp *qp;
	int r;

	q.port = c->id->port_num;
	q.reads_out = reads_out;
	r = qp_make(s, &q, &qp, err);
	if (r < 0)
		return r;
	c->qp = qp;
	qp->conn = c;
	r = qp_join_manager(qp, c->id, IBV_QPS_INIT, err);
	if (r == 0 && o->prepare) {
		r = o->prepare(o->arg, qp);
		if (r < 0)
			(void)ros2_err_set(err, r,
			                   "the queue pair was made, but not what it is for");
	}
	if (r < 0)
		return r;
	qp_move(qp, FABRIC_QP_JOINING);
	c->deadline_ns = clock_add_ns(clock_boottime_ns(), qp->o.join_limit_ns);
	return 0;
}

static void drop_qp(struct fabric_conn *c)
{
	struct fabric_qp *qp = c->qp;

	if (!qp)
		return;
	c->qp = NULL;
	qp->conn = NULL;
	(void)fabric_qp_free(qp);
}

static struct rdma_conn_param param(const struct fabric_qp *qp,
                                    const struct fabric_conn_private *hello)
{
	return (struct rdma_conn_param){
		.private_data = hello->length ? hello->data : NULL,
		.private_data_len = (uint8_t)hello->length,
		.responder_resources = qp->o.reads_in,
		.initiator_depth = qp->o.reads_out,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = qp->o.rnr_forever ? RNR_FOREVER : RNR_RETRIES,
		.qp_num = qp->qp->qp_num,
	};
}

static int connect_qp(struct fabric_conn *c, struct ros2_err *err)
{
	int r = qp_join_manager(c->qp, c->id, IBV_QPS_RTR, err);

	if (r == 0)
		r = qp_join_manager(c->qp, c->id, IBV_QPS_RTS, err);
	return r == 0 ? qp_verify(c->qp, err) : r;
}

int fabric_conn_accept(struct fabric_conn *c, struct fabric_set *s,
                       const struct fabric_conn_opts *o, struct fabric_qp **ret,
                       struct ros2_err *err)
{
	struct rdma_conn_param p;
	int r = check(c, FABRIC_CONN_REQUESTED, s, o, err);

	if (c->state != FABRIC_CONN_REQUESTED)
		return r;
	if (r == 0)
		r = make(c, s, o, MIN(o->qp.reads_out, c->reads_offered), err);
	if (r == 0)
		r = connect_qp(c, err);
	if (r == 0) {
		p = param(c->qp, &o->hello);
		if (rdma_accept(c->id, &p) != 0)
			r = verbs_err(err, errno, s->pd->dev, "rdma_accept");
	}
	if (r < 0) {
		drop_qp(c);
		fabric_conn_reject(c, NULL);
		return r;
	}
	conn_move(c, FABRIC_CONN_ACCEPTED);
	*ret = c->qp;
	return 0;
}

void fabric_conn_reject(struct fabric_conn *c, const struct fabric_conn_private *why)
{
	uint32_t length = why ? MIN(why->length, FABRIC_PRIVATE_MAX) : 0;

	if (c->state != FABRIC_CONN_REQUESTED)
		return;
	(void)rdma_reject(c->id, length ? why->data : NULL, (uint8_t)length);
	conn_end(c);
}

int fabric_conn_ask(struct fabric_conn *c, struct fabric_set *s, const struct fabric_conn_opts *o,
                    struct fabric_qp **ret, struct ros2_err *err)
{
	struct rdma_conn_param p;
	int r = check(c, FABRIC_CONN_RESOLVED, s, o, err);

	if (c->state != FABRIC_CONN_RESOLVED)
		return r;
	if (r == 0)
		r = make(c, s, o, o->qp.reads_out, err);
	if (r == 0) {
		p = param(c->qp, &o->hello);
		if (rdma_connect(c->id, &p) != 0)
			r = verbs_err(err, errno, s->pd->dev, "rdma_connect");
	}
	if (r < 0) {
		drop_qp(c);
		conn_end(c);
		return r;
	}
	conn_move(c, FABRIC_CONN_ASKED);
	*ret = c->qp;
	return 0;
}

/* The peer has accepted: our side of the queue pair follows, and then it is told. */
int conn_answered(struct fabric_conn *c, const struct cm_event *e)
{
	int r;

	c->qp->o.reads_out = MIN(c->qp->o.reads_out, e->reads_offered);
	r = connect_qp(c, NULL);
	if (r == 0 && rdma_establish(c->id) != 0)
		r = verbs_err(NULL, errno, c->qp->set->pd->dev, "rdma_establish");
	if (r < 0) {
		(void)rdma_reject(c->id, NULL, 0);
		return r;
	}
	conn_move(c, FABRIC_CONN_UP);
	if (c->qp->state == FABRIC_QP_JOINING)
		qp_move(c->qp, FABRIC_QP_READY);
	return 0;
}

void fabric_conn_free(struct fabric_conn *c)
{
	if (!c)
		return;
	conn_end(c);
	if (c->qp)
		c->qp->conn = NULL;
	if (c->id)
		rdma_destroy_id(c->id);
	list_del(&c->link);
	free(c);
}
