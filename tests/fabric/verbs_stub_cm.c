// SPDX-License-Identifier: Apache-2.0
/*
 * The symbols of librdmacm: event channels, ids, and connections between ids of this process. Like
 * the real one it pads private data with zeros, and proposes remote WRITE for every queue pair. See
 * verbs_stub.h.
 */
#include "tests/fabric/verbs_stub_priv.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#define IDS      64
#define CHANNELS 8
#define QUEUED   256

struct id {
	struct rdma_cm_id id;
	bool used, listening;
	struct id *peer; /* the other end, once it is known */
	uint32_t qpn;
	uint8_t responder, initiator;
	uint16_t port;
};

struct event {
	struct rdma_cm_event e;
	uint8_t data[256];
};

struct cm_channel {
	struct rdma_event_channel channel;
	bool used;
	struct event *queue[QUEUED];
	uint32_t head, tail;
};

static struct {
	struct id ids[IDS];
	struct cm_channel channels[CHANNELS];
	uint16_t next_port;
	bool silent;
	uint8_t ack_timeout;
} cm;

void stub_cm_reset(void)
{
	for (int i = 0; i < CHANNELS; i++)
		while (cm.channels[i].head != cm.channels[i].tail)
			free(cm.channels[i].queue[cm.channels[i].head++ % QUEUED]);
	memset(&cm, 0, sizeof(cm));
	cm.next_port = 40001;
	cm.ack_timeout = 18;
}

static struct event *post(struct id *to, enum rdma_cm_event_type type, int status)
{
	struct cm_channel *c = container_of(to->id.channel, struct cm_channel, channel);
	struct event *e = stub_zalloc(1, sizeof(*e));
	uint64_t one = 1;

	e->e.id = &to->id;
	e->e.event = type;
	e->e.status = status;
	c->queue[c->tail++ % QUEUED] = e;
	(void)!write(c->channel.fd, &one, sizeof(one));
	return e;
}

static void put_params(struct event *e, const struct rdma_conn_param *p, uint32_t padded)
{
	e->e.param.conn.private_data = e->data;
	e->e.param.conn.private_data_len = (uint8_t)padded;
	if (p->private_data)
		memcpy(e->data, p->private_data, p->private_data_len);
	/* seen from the other side */
	e->e.param.conn.responder_resources = p->initiator_depth;
	e->e.param.conn.initiator_depth = p->responder_resources;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	STUB_LOCK;

	if (stub_fault(STUB_create_event_channel))
		return NULL;
	for (int i = 0; i < CHANNELS; i++) {
		struct cm_channel *c = &cm.channels[i];

		if (c->used)
			continue;
		*c = (struct cm_channel){.used = true, .channel.fd = eventfd(0, EFD_NONBLOCK)};
		stub_born(1);
		return &c->channel;
	}
	errno = ENOMEM;
	return NULL;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	STUB_LOCK;

	close(channel->fd);
	container_of(channel, struct cm_channel, channel)->used = false;
	stub_born(-1);
}

static struct id *id_new(struct rdma_event_channel *channel, void *context)
{
	for (int i = 0; i < IDS; i++) {
		struct id *d = &cm.ids[i];

		if (d->used)
			continue;
		*d = (struct id){.used = true,
		                 .id = {.channel = channel, .context = context, .ps = RDMA_PS_TCP}};
		stub_born(1);
		return d;
	}
	errno = ENOMEM;
	return NULL;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space ps)
{
	STUB_LOCK;
	struct id *d = stub_fault(STUB_create_id) ? NULL : id_new(channel, context);

	if (!d)
		return -1;
	*id = &d->id;
	return 0;
}

/* The id's own events go with it; its peer hears of the end. */
int rdma_destroy_id(struct rdma_cm_id *id)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);
	struct cm_channel *c = container_of(id->channel, struct cm_channel, channel);
	uint32_t to = c->head;

	for (uint32_t i = c->head; i != c->tail; i++) {
		struct event *e = c->queue[i % QUEUED];

		if (e->e.id == id)
			free(e);
		else
			c->queue[to++ % QUEUED] = e;
	}
	c->tail = to;
	if (d->peer) {
		d->peer->peer = NULL;
		if (!cm.silent)
			post(d->peer,
			     d->peer->qpn ? RDMA_CM_EVENT_DISCONNECTED : RDMA_CM_EVENT_UNREACHABLE,
			     0);
	}
	*d = (struct id){0};
	stub_born(-1);
	return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (stub_fault(STUB_bind_addr))
		return -1;
	d->port = ntohs(((struct sockaddr_in *)addr)->sin_port);
	if (!d->port)
		d->port = cm.next_port++;
	memcpy(&id->route.addr.src_sin, addr, sizeof(struct sockaddr_in));
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	STUB_LOCK;

	if (stub_fault(STUB_listen))
		return -1;
	container_of(id, struct id, id)->listening = true;
	return 0;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(container_of(id, struct id, id)->port);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
                      int timeout_ms)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (stub_fault(STUB_resolve_addr))
		return -1;
	memcpy(&id->route.addr.dst_sin, dst_addr, sizeof(struct sockaddr_in));
	d->port = ntohs(((struct sockaddr_in *)dst_addr)->sin_port);
	if (cm.silent)
		return 0;
	id->verbs = stub_context(0);
	id->port_num = 1;
	post(d, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	STUB_LOCK;

	if (stub_fault(STUB_resolve_route))
		return -1;
	post(container_of(id, struct id, id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (stub_fault(STUB_init_qp_attr))
		return -1;
	*mask = IBV_QP_STATE;
	if (a->qp_state == IBV_QPS_INIT) {
		a->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
		a->port_num = 1;
		*mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX;
	} else if (a->qp_state == IBV_QPS_RTR) {
		if (!d->peer || !d->peer->qpn) {
			errno = EINVAL;
			return -1;
		}
		a->dest_qp_num = d->peer->qpn;
		*mask |= IBV_QP_DEST_QPN | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN;
	} else {
		a->timeout = cm.ack_timeout;
		a->retry_cnt = 7;
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
	}
	return 0;
}

static struct id *listener_at(uint16_t port)
{
	for (int i = 0; i < IDS; i++)
		if (cm.ids[i].used && cm.ids[i].listening && cm.ids[i].port == port)
			return &cm.ids[i];
	return NULL;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id), *l = listener_at(d->port), *n;
	struct event *e;

	if (stub_fault(STUB_connect))
		return -1;
	if (p->private_data_len > 56)
		stub_blame("more private data than a request has room for");
	d->qpn = p->qp_num;
	if (cm.silent)
		return 0;
	if (!l) {
		put_params(post(d, RDMA_CM_EVENT_REJECTED, 8), &(struct rdma_conn_param){0}, 148);
		return 0;
	}
	n = id_new(l->id.channel, l->id.context);
	assert(n);
	n->id.verbs = stub_context(0);
	n->id.port_num = 1;
	n->peer = d;
	d->peer = n;
	e = post(n, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	e->e.listen_id = &l->id;
	put_params(e, p, 56);
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (stub_fault(STUB_accept))
		return -1;
	if (!d->peer) {
		errno = EINVAL;
		return -1;
	}
	d->qpn = p->qp_num;
	if (!cm.silent)
		put_params(post(d->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0), p, 196);
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (stub_fault(STUB_establish))
		return -1;
	if (d->peer)
		post(d->peer, RDMA_CM_EVENT_ESTABLISHED, 0);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);
	struct rdma_conn_param p = {.private_data = private_data,
	                            .private_data_len = private_data_len};

	if (stub_fault(STUB_reject))
		return -1;
	if (d->peer && !cm.silent)
		put_params(post(d->peer, RDMA_CM_EVENT_REJECTED, 28), &p, 148);
	if (d->peer)
		d->peer->peer = NULL;
	d->peer = NULL;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	STUB_LOCK;
	struct id *d = container_of(id, struct id, id);

	if (d->peer && !cm.silent)
		post(d->peer, RDMA_CM_EVENT_DISCONNECTED, 0);
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	STUB_LOCK;
	struct cm_channel *c = container_of(channel, struct cm_channel, channel);
	uint64_t n;

	if (c->head == c->tail) {
		(void)!read(channel->fd, &n, sizeof(n));
		errno = EAGAIN;
		return -1;
	}
	*event = &c->queue[c->head++ % QUEUED]->e;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	free(container_of(event, struct event, e));
	return 0;
}

static void post_all(enum rdma_cm_event_type type)
{
	for (int i = 0; i < IDS; i++)
		if (cm.ids[i].used && !cm.ids[i].listening)
			post(&cm.ids[i], type, 0);
}

void stub_cm_disconnect_all(void)
{
	STUB_LOCK;

	post_all(RDMA_CM_EVENT_DISCONNECTED);
}

void stub_cm_remove_device(void)
{
	STUB_LOCK;

	post_all(RDMA_CM_EVENT_DEVICE_REMOVAL);
}

void stub_cm_silent(bool on)
{
	cm.silent = on;
}

void stub_cm_ack_timeout(uint8_t said)
{
	cm.ack_timeout = said;
}
