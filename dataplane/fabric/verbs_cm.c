// SPDX-License-Identifier: Apache-2.0
/*
 * The connection manager of a reactor: its event channel, its listeners, and what each event means.
 * An event is copied and acknowledged before anybody hears of it, so that whoever hears of it may
 * free the connection.
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define EVENTS_AT_ONCE   64u
#define REQUESTS_MAX     256u
#define RESOLVE_LIMIT_NS (2 * NS_PER_S)

typedef void (*event_fn)(void *arg, const struct fabric_conn_event *e);

int fabric_cm_new(const struct fabric_cm_opts *o, struct fabric_cm **ret, struct ros2_err *err)
{
	struct fabric_cm *cm = calloc(1, sizeof(*cm));
	int flags, r;

	if (!cm)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection manager");
	cm->o = *o;
	cm->o.conns_max = o->conns_max ? o->conns_max : REQUESTS_MAX;
	cm->o.resolve_limit_ns = o->resolve_limit_ns ? o->resolve_limit_ns : RESOLVE_LIMIT_NS;
	cm->o.events_at_once = o->events_at_once ? o->events_at_once : EVENTS_AT_ONCE;
	list_init(&cm->conns);
	list_init(&cm->listeners);
	errno = 0;
	cm->channel = rdma_create_event_channel();
	if (!cm->channel) {
		r = errno == ENOMEM
		            ? ros2_err_set(err, -ENOMEM, "no memory for a connection manager")
		            : ros2_err_set(
				      err, -EOPNOTSUPP,
				      "no RDMA connection manager on this machine (is the kernel "
				      "module rdma_ucm loaded?): %s",
				      strerror(errno));
		free(cm);
		return r;
	}
	flags = fcntl(cm->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		r = verbs_err(err, errno, NULL, "O_NONBLOCK on the event channel");
		fabric_cm_free(cm);
		return r;
	}
	*ret = cm;
	return 0;
}

void fabric_cm_free(struct fabric_cm *cm)
{
	if (!cm)
		return;
	assert(list_empty(&cm->conns) && list_empty(&cm->listeners));
	rdma_destroy_event_channel(cm->channel);
	free(cm);
}

int fabric_cm_fd(const struct fabric_cm *cm)
{
	return cm->channel->fd;
}

int fabric_listen(struct fabric_cm *cm, const struct sockaddr *addr, uint32_t backlog,
                  struct fabric_listener **ret, struct ros2_err *err)
{
	struct fabric_listener *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return ros2_err_set(err, -ENOMEM, "no memory for a listener");
	l->node.is_listener = true;
	l->cm = cm;
	list_init(&l->link);
	if (rdma_create_id(cm->channel, &l->id, l, RDMA_PS_TCP) != 0) {
		r = verbs_err(err, errno, NULL, "rdma_create_id");
		free(l);
		return r;
	}
	list_add_tail(&cm->listeners, &l->link);
	if (rdma_bind_addr(l->id, (struct sockaddr *)addr) != 0) /* it does not write there */
		r = verbs_err(err, errno, NULL, "rdma_bind_addr");
	else if (rdma_listen(l->id, (int)backlog) != 0)
		r = verbs_err(err, errno, NULL, "rdma_listen");
	else
		r = 0;
	if (r < 0) {
		fabric_listener_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

uint16_t fabric_listener_port(const struct fabric_listener *l)
{
	return be16toh(rdma_get_src_port(l->id));
}

void fabric_listener_free(struct fabric_listener *l)
{
	if (!l)
		return;
	rdma_destroy_id(l->id);
	list_del(&l->link);
	free(l);
}

static void tell(struct fabric_conn *c, enum fabric_conn_event_kind kind, int code,
                 const char *words, const struct cm_event *e, event_fn fn, void *arg)
{
	struct fabric_conn_event out = {
		.kind = kind,
		.conn = c,
		.data = e && e->data_len ? e->data : NULL,
		.data_len = e ? e->data_len : 0,
		.code = code,
		.words = words,
	};

	if (kind == FABRIC_CONN_EVENT_REQUEST)
		out.listener = e->listen_id->context;
	fn(arg, &out);
}

static void tell_end(struct fabric_conn *c, int code, const char *words, event_fn fn, void *arg)
{
	conn_end(c);
	tell(c, FABRIC_CONN_EVENT_ENDED, code, words, NULL, fn, arg);
}

static void on_request(struct fabric_cm *cm, const struct cm_event *e, event_fn fn, void *arg)
{
	struct fabric_conn *c = NULL;

	if (cm->n_requests < cm->o.conns_max)
		c = conn_new(cm, e->id, FABRIC_CONN_REQUESTED);
	if (!c) {
		(void)rdma_reject(e->id, NULL, 0);
		rdma_destroy_id(e->id);
		return;
	}
	c->reads_offered = e->reads_offered;
	c->peer_qpn = e->qpn;
	c->deadline_ns = clock_add_ns(clock_boottime_ns(), cm->o.resolve_limit_ns);
	conn_know_device(c);
	tell(c, FABRIC_CONN_EVENT_REQUEST, 0, "asked for a connection", e, fn, arg);
}

static void on_address(struct fabric_conn *c, event_fn fn, void *arg)
{
	if (c->state != FABRIC_CONN_RESOLVING)
		return;
	if (rdma_resolve_route(c->id, (int)(c->cm->o.resolve_limit_ns / NS_PER_MS)) != 0)
		tell_end(c, -EHOSTUNREACH, "no route to the peer", fn, arg);
}

static void on_route(struct fabric_conn *c, event_fn fn, void *arg)
{
	if (c->state != FABRIC_CONN_RESOLVING)
		return;
	conn_know_device(c);
	c->deadline_ns = clock_add_ns(clock_boottime_ns(), c->cm->o.resolve_limit_ns);
	conn_move(c, FABRIC_CONN_RESOLVED);
	tell(c, FABRIC_CONN_EVENT_RESOLVED, 0, "the way to the peer is known", NULL, fn, arg);
}

static void on_response(struct fabric_conn *c, const struct cm_event *e, event_fn fn, void *arg)
{
	int r;

	if (c->state != FABRIC_CONN_ASKED)
		return;
	c->peer_qpn = e->qpn;
	r = conn_answered(c, e);
	if (r < 0)
		tell_end(c, r, "our queue pair could not be connected", fn, arg);
	else
		tell(c, FABRIC_CONN_EVENT_ESTABLISHED, 0, "connected", e, fn, arg);
}

static void on_established(struct fabric_conn *c, const struct cm_event *e, event_fn fn, void *arg)
{
	if (c->state != FABRIC_CONN_ACCEPTED)
		return;
	conn_move(c, FABRIC_CONN_UP);
	if (c->qp && c->qp->state == FABRIC_QP_JOINING)
		qp_move(c->qp, FABRIC_QP_READY);
	tell(c, FABRIC_CONN_EVENT_ESTABLISHED, 0, "connected", e, fn, arg);
}

static void on_rejected(struct fabric_conn *c, const struct cm_event *e, event_fn fn, void *arg)
{
	conn_end(c);
	tell(c, FABRIC_CONN_EVENT_REJECTED, -ECONNREFUSED, "the peer refused the connection", e, fn,
	     arg);
}

static const struct ending {
	enum rdma_cm_event_type type;
	int code;
	const char *words;
} endings[] = {
	{RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, "no RDMA device reaches the peer's address"},
	{RDMA_CM_EVENT_ROUTE_ERROR, -EHOSTUNREACH, "no route to the peer"},
	{RDMA_CM_EVENT_CONNECT_ERROR, -ECONNABORTED, "the connection failed while it was made"},
	{RDMA_CM_EVENT_UNREACHABLE, -EHOSTUNREACH, "the peer does not answer"},
	{RDMA_CM_EVENT_DISCONNECTED, -ECONNRESET, "the peer ended the connection"},
	{RDMA_CM_EVENT_DEVICE_REMOVAL, -ENODEV, "the RDMA device is gone"},
};

static void on_ending(struct fabric_conn *c, const struct cm_event *e, event_fn fn, void *arg)
{
	for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
		if (endings[i].type == e->type) {
			tell_end(c, endings[i].code, endings[i].words, fn, arg);
			return;
		}
	/* address change, end of time-wait, multicast: nothing to do */
}

static void handle(struct fabric_cm *cm, const struct cm_event *e, event_fn fn, void *arg)
{
	struct cm_node *node = e->id->context;
	struct fabric_conn *c;

	if (e->type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(cm, e, fn, arg);
		return;
	}
	if (!node || node->is_listener)
		return;
	c = container_of(node, struct fabric_conn, node);
	if (c->state == FABRIC_CONN_ENDED)
		return;
	switch (e->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		on_address(c, fn, arg);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		on_route(c, fn, arg);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		on_response(c, e, fn, arg);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		on_established(c, e, fn, arg);
		break;
	case RDMA_CM_EVENT_REJECTED:
		on_rejected(c, e, fn, arg);
		break;
	default:
		on_ending(c, e, fn, arg);
		break;
	}
}

static struct cm_event copy(const struct rdma_cm_event *in)
{
	struct cm_event e = {
		.type = in->event, .id = in->id, .listen_id = in->listen_id, .status = in->status};

	switch (in->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
		e.reads_offered = in->param.conn.initiator_depth;
		e.qpn = in->param.conn.qp_num;
		if (in->param.conn.private_data && in->param.conn.private_data_len) {
			e.data_len = in->param.conn.private_data_len;
			memcpy(e.data, in->param.conn.private_data, e.data_len);
		}
		break;
	default:
		break;
	}
	return e;
}

uint32_t fabric_cm_events(struct fabric_cm *cm, event_fn fn, void *arg)
{
	struct rdma_cm_event *in;
	struct cm_event e;
	uint32_t n = 0;

	while (n < cm->o.events_at_once && rdma_get_cm_event(cm->channel, &in) == 0) {
		e = copy(in);
		(void)rdma_ack_cm_event(in);
		n++;
		handle(cm, &e, fn, arg);
	}
	return n;
}

static bool waits(const struct fabric_conn *c)
{
	return c->state != FABRIC_CONN_UP && c->state != FABRIC_CONN_ENDED;
}

/* @fn may free the connection, and others: so each round starts from the head. */
void fabric_cm_tick(struct fabric_cm *cm, uint64_t now_ns, event_fn fn, void *arg)
{
	struct fabric_conn *c;
	bool found = true;

	while (found) {
		found = false;
		list_for_each (&cm->conns, c, link) {
			if (!waits(c) || c->deadline_ns > now_ns)
				continue;
			found = true;
			if (c->state == FABRIC_CONN_REQUESTED)
				(void)rdma_reject(c->id, NULL, 0);
			tell_end(c, -ETIMEDOUT, "it took too long", fn, arg);
			break;
		}
	}
}
