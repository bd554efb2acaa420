/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of the target over RDMA: asked for, accepted or refused with the private data of the
 * specification (NVMe/RDMA 1.0, 3.2) or with lies, and ended.
 */
#include "tests/nvmf/target_verbs_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#define BACKLOG 16
/* 4.096 us * 2^14, and seven times: a strike at a queue pair that is gone ends within a second. */
#define ACK_TIMEOUT 14

static struct vtarget *of(struct target *t)
{
	return t->carried;
}

/* ---- a queue pair ---- */

static void vqueue_free(struct vqueue *q)
{
	if (!q)
		return;
	if (q->id && q->id->qp)
		rdma_destroy_qp(q->id);
	if (q->cq)
		ibv_destroy_cq(q->cq);
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
	if (q->mr)
		ibv_dereg_mr(q->mr);
	if (q->id)
		rdma_destroy_id(q->id);
	if (q->mem)
		munmap(q->mem, QUEUE_MEMORY);
	free(q);
}

static int make_memory(struct vqueue *q)
{
	void *p = mmap(NULL, QUEUE_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
	               0);

	if (p == MAP_FAILED)
		return -ENOMEM;
	q->mem = p;
	q->mr = ibv_reg_mr(of(q->t)->pd, q->mem, QUEUE_MEMORY, IBV_ACCESS_LOCAL_WRITE);
	return q->mr ? 0 : -ENOMEM;
}

static int make_qp(struct vqueue *q)
{
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC,
	                             .sq_sig_all = 1,
	                             .cap = {.max_send_wr = SENDS,
	                                     .max_recv_wr = CAPSULES,
	                                     .max_send_sge = 1,
	                                     .max_recv_sge = 1,
	                                     .max_inline_data = 64}};

	q->channel = ibv_create_comp_channel(q->id->verbs);
	if (!q->channel || fcntl(q->channel->fd, F_SETFL, O_NONBLOCK))
		return -ENOMEM;
	q->cq = ibv_create_cq(q->id->verbs, SENDS + CAPSULES + 1, NULL, q->channel, 0);
	if (!q->cq || ibv_req_notify_cq(q->cq, 0))
		return -ENOMEM;
	a.send_cq = a.recv_cq = q->cq;
	return rdma_create_qp(q->id, of(q->t)->pd, &a) ? -errno : 0;
}

/* The id is its own from here on, whatever is returned. */
static struct vqueue *vqueue_new(struct target *t, struct rdma_cm_id *id)
{
	struct vqueue *q = calloc(1, sizeof(*q));
	int r = 0;

	if (!q) {
		rdma_destroy_id(id);
		return NULL;
	}
	q->t = t;
	q->id = id;
	q->places = (1ull << PLACES) - 1;
	if (!of(t)->pd)
		of(t)->pd = ibv_alloc_pd(id->verbs);
	if (of(t)->pd && of(t)->pd->context == id->verbs && !make_memory(q))
		r = make_qp(q);
	else
		r = -ENOMEM;
	if (r) {
		vqueue_free(q);
		return NULL;
	}
	return q;
}

/* ---- connections ---- */

static int accept_queue(struct conn *c, struct vqueue *q, const struct rdma_conn_param *asked)
{
	uint8_t hello[RDMA_HELLO];
	struct rdma_conn_param p = {.private_data = hello,
	                            .private_data_len = RDMA_HELLO,
	                            .initiator_depth = asked->initiator_depth,
	                            .rnr_retry_count = 7};
	uint8_t ack = ACK_TIMEOUT;
	int r = 0;

	q->no_receives = target_lies(c, NULL, -1, FAULT_CM_NO_RECEIVE, NULL);
	for (uint32_t i = 0; i < CAPSULES && !r && !q->no_receives; i++)
		r = vqueue_post_capsule(q, i);
	target_rdma_hello(c, asked->private_data, hello);
	if (!r && rdma_set_option(q->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack, 1))
		r = -errno;
	return r ? r : rdma_accept(q->id, &p) ? -errno : 0;
}

static void asked(struct target *t, struct rdma_cm_id *id, const struct rdma_conn_param *p)
{
	uint8_t words[RDMA_REFUSAL];
	struct conn *c = NULL;
	struct vqueue *q;

	if (target_rdma_judge(t, p->private_data, p->private_data_len, words)) {
		(void)rdma_reject(id, words, sizeof(words));
		rdma_destroy_id(id);
		return;
	}
	if (target_rdma_silent(t)) {
		/* Nobody tells it that the host has given up. */
		if (of(t)->unanswered)
			rdma_destroy_id(of(t)->unanswered);
		of(t)->unanswered = id;
		return;
	}
	q = vqueue_new(t, id);
	if (q)
		c = target_conn_new(t, q->channel->fd);
	if (!c) {
		vqueue_free(q);
		return;
	}
	c->carried = q;
	c->state = CONN_CONNECT;
	c->maxr2t = R2T_MAX;
	q->c = c;
	id->context = c;
	if (accept_queue(c, q, p))
		target_conn_end(c, true);
}

static void verbs_event(struct target *t)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(of(t)->cm, &e)) {
		enum rdma_cm_event_type what = e->event;
		struct rdma_conn_param p = e->param.conn;
		uint8_t data[RDMA_HELLO] = {0};
		struct rdma_cm_id *id = e->id;
		struct conn *c = id->context;

		if (p.private_data)
			memcpy(data, p.private_data, MIN(p.private_data_len, RDMA_HELLO));
		p.private_data = data;
		/* An id cannot go while it has an event. */
		rdma_ack_cm_event(e);
		if (what == RDMA_CM_EVENT_CONNECT_REQUEST) {
			asked(t, id, &p);
			continue;
		}
		if (c && !c->dead && what != RDMA_CM_EVENT_ESTABLISHED) {
			/* What it sent before it left counts. */
			vqueue_poll(c->carried);
			target_conn_end(c, false);
		}
	}
}

/* Both ways to end are one here. */
static void verbs_end(struct conn *c, bool reset)
{
	struct vqueue *q = c->carried;
	struct vtarget *v = of(c->t);

	(void)epoll_ctl(c->t->epoll_fd, EPOLL_CTL_DEL, q->channel->fd, NULL);
	if (c->ctrl)
		memcpy(q->host_nqn, c->ctrl->host_nqn, sizeof(q->host_nqn));
	q->c = NULL;
	q->id->context = NULL;
	if (!v->keep || !c->qid)
		(void)rdma_disconnect(q->id);
}

static void verbs_free(struct conn *c)
{
	struct vqueue *q = TAKE_PTR(c->carried);
	struct vtarget *v = of(c->t);

	if (v->keep && c->qid) {
		vqueue_free(v->kept);
		v->kept = q;
	} else {
		vqueue_free(q);
	}
}

void target_verbs_keep(struct target *t, bool on)
{
	pthread_mutex_lock(&t->lock);
	of(t)->keep = on;
	if (!on)
		vqueue_free(TAKE_PTR(of(t)->kept));
	pthread_mutex_unlock(&t->lock);
}

/* ---- the listener ---- */

static int verbs_open(struct target *t)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &t->carried_fd};
	struct vtarget *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	t->carried = v;
	v->cm = rdma_create_event_channel();
	if (!v->cm)
		return -errno;
	t->carried_fd = v->cm->fd;
	if (fcntl(v->cm->fd, F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, v->cm->fd, &ev) < 0)
		return -errno;
	return 0;
}

static void verbs_unlisten(struct target *t)
{
	if (t->carried && of(t)->listener)
		rdma_destroy_id(TAKE_PTR(of(t)->listener));
}

static int verbs_listen(struct target *t)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(t->port)};
	struct vtarget *v;
	int r = t->carried ? 0 : verbs_open(t);

	if (r)
		return r;
	v = of(t);
	if (v->listener)
		return 0;
	if (inet_pton(AF_INET, t->o.address, &a.sin_addr) != 1)
		return -EINVAL;
	if (rdma_create_id(v->cm, &v->listener, NULL, RDMA_PS_TCP))
		return -errno;
	if (rdma_bind_addr(v->listener, (struct sockaddr *)&a) ||
	    rdma_listen(v->listener, BACKLOG)) {
		r = -errno;
		verbs_unlisten(t);
		return r;
	}
	t->port = ntohs(rdma_get_src_port(v->listener));
	return 0;
}

static void verbs_close(struct target *t)
{
	struct vtarget *v = of(t);

	if (!v)
		return;
	verbs_unlisten(t);
	vqueue_free(v->kept);
	if (v->unanswered)
		rdma_destroy_id(v->unanswered);
	if (v->pd)
		ibv_dealloc_pd(v->pd);
	if (v->cm)
		rdma_destroy_event_channel(v->cm);
	free(v);
	t->carried = NULL;
}

const struct target_carrier target_verbs = {
	.trtype = 1,
	.listen = verbs_listen,
	.unlisten = verbs_unlisten,
	.close = verbs_close,
	.event = verbs_event,
	.conn_event = verbs_conn_event,
	.end = verbs_end,
	.free = verbs_free,
	.answer = verbs_answer,
	.write = verbs_write,
	.read = verbs_read,
};
