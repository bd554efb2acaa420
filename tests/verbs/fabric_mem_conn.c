/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of fabric_mem: events are queued at the fabric_cm they are for. */
#include "tests/verbs/fabric_mem_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct mem_event {
	struct list link;
	struct fabric_conn_event e;
	uint8_t data[FABRIC_PRIVATE_MAX];
};

struct fabric_cm {
	int fd;
	uint32_t events_at_once, conns_max;
	uint32_t n_requests; /* that were told, and are not answered */
	struct list events, conns;
};

struct fabric_listener {
	struct list link;
	struct fabric_cm *cm;
	uint16_t port;
};

struct fabric_conn {
	struct list link; /* cm.conns */
	struct fabric_cm *cm;
	_Atomic enum fabric_conn_state state; /* its own thread asks; its peer ends it */
	bool waits;                           /* one of cm.n_requests */
	uint64_t cookie;
	struct fabric_qp *qp;
	uint32_t qpn, peer_qpn;
	struct fabric_conn *peer;
	struct sockaddr_in local, remote;
};

static struct list listeners = {&listeners, &listeners};
static uint16_t next_port = 20000;
static void (*tamper)(void *arg, uint8_t *data, uint32_t len, uint32_t *qpn);
static void *tamper_arg;

void fabric_mem_tamper(void (*fn)(void *arg, uint8_t *data, uint32_t len, uint32_t *qpn), void *arg)
{
	pthread_mutex_lock(&mem_lock);
	tamper = fn;
	tamper_arg = arg;
	pthread_mutex_unlock(&mem_lock);
}

static void tell(struct fabric_conn *c, enum fabric_conn_event_kind kind, int code,
                 const char *words, const void *data, uint32_t len)
{
	struct mem_event *m = calloc(1, sizeof(*m));
	uint64_t one = 1;

	m->e = (struct fabric_conn_event){.kind = kind,
	                                  .conn = c,
	                                  .data = m->data,
	                                  .data_len = len,
	                                  .code = code,
	                                  .words = words};
	if (len)
		memcpy(m->data, data, len);
	list_add_tail(&c->cm->events, &m->link);
	if (write(c->cm->fd, &one, sizeof(one)) < 0)
		abort();
}

int fabric_cm_new(const struct fabric_cm_opts *o, struct fabric_cm **ret, struct ros2_err *err)
{
	struct fabric_cm *cm;

	if (mem_faulty())
		return ros2_err_set(err, -ENOMEM, "no memory for a connection manager");
	cm = calloc(1, sizeof(*cm));
	cm->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	cm->events_at_once = o->events_at_once ? o->events_at_once : 64;
	cm->conns_max = o->conns_max ? o->conns_max : 256;
	list_init(&cm->events);
	list_init(&cm->conns);
	*ret = cm;
	return 0;
}

void fabric_cm_free(struct fabric_cm *cm)
{
	if (!cm)
		return;
	while (!list_empty(&cm->conns))
		fabric_conn_free(list_first(&cm->conns, struct fabric_conn, link));
	close(cm->fd);
	free(cm);
}

int fabric_cm_fd(const struct fabric_cm *cm)
{
	return cm->fd;
}

int fabric_listen(struct fabric_cm *cm, const struct sockaddr *addr, uint32_t backlog,
                  struct fabric_listener **ret, struct ros2_err *err)
{
	struct fabric_listener *l = calloc(1, sizeof(*l));

	pthread_mutex_lock(&mem_lock);
	l->cm = cm;
	l->port = next_port++;
	list_add_tail(&listeners, &l->link);
	mem_now.listeners++;
	pthread_mutex_unlock(&mem_lock);
	*ret = l;
	return 0;
}

uint16_t fabric_listener_port(const struct fabric_listener *l)
{
	return l->port;
}

void fabric_listener_free(struct fabric_listener *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&mem_lock);
	list_del(&l->link);
	mem_now.listeners--;
	pthread_mutex_unlock(&mem_lock);
	free(l);
}

static struct fabric_conn *conn_new(struct fabric_cm *cm, enum fabric_conn_state state)
{
	struct fabric_conn *c = calloc(1, sizeof(*c));

	c->cm = cm;
	c->state = state;
	c->local.sin_family = c->remote.sin_family = AF_INET;
	c->local.sin_addr.s_addr = c->remote.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	list_add_tail(&cm->conns, &c->link);
	mem_now.conns++;
	return c;
}

/* A queue pair learns of the end of its connection from whoever takes the event, as with
 * librdmacm. */
static void fail_ended(const struct fabric_conn_event *e)
{
	struct fabric_conn *c = e->conn;

	if (e->kind != FABRIC_CONN_EVENT_ENDED && e->kind != FABRIC_CONN_EVENT_REJECTED)
		return;
	if (c->qp && mem_qp_find(c->qpn) == c->qp)
		mem_qp_fail(c->qp);
}

static void end_peer(struct fabric_conn *c, enum fabric_conn_event_kind kind, int code,
                     const char *words, const void *data, uint32_t len)
{
	struct fabric_conn *p = c->peer;

	c->peer = NULL;
	if (!p)
		return;
	p->peer = NULL;
	p->state = FABRIC_CONN_ENDED;
	tell(p, kind, code, words, data, len);
}

static void answered(struct fabric_conn *c)
{
	c->cm->n_requests -= c->waits;
	c->waits = false;
}

/* A request beyond the bound is refused without a word. */
static bool is_too_many(const struct fabric_conn_event *e)
{
	struct fabric_conn *c = e->conn;

	if (e->kind != FABRIC_CONN_EVENT_REQUEST)
		return false;
	if (c->cm->n_requests == c->cm->conns_max) {
		end_peer(c, FABRIC_CONN_EVENT_REJECTED, -ECONNREFUSED, "refused", NULL, 0);
		return true;
	}
	c->waits = true;
	c->cm->n_requests++;
	return false;
}

uint32_t fabric_cm_events(struct fabric_cm *cm,
                          void (*fn)(void *arg, const struct fabric_conn_event *e), void *arg)
{
	uint32_t n = 0;
	uint64_t count, one = 1;

	if (read(cm->fd, &count, sizeof(count)) < 0)
		return 0;
	while (n < cm->events_at_once) {
		struct mem_event *m = NULL;
		bool refused = false;

		pthread_mutex_lock(&mem_lock);
		if (!list_empty(&cm->events)) {
			m = list_first(&cm->events, struct mem_event, link);
			list_del(&m->link);
			fail_ended(&m->e);
			refused = is_too_many(&m->e);
		}
		pthread_mutex_unlock(&mem_lock);
		if (!m)
			return n;
		if (refused)
			fabric_conn_free(m->e.conn);
		else
			fn(arg, &m->e);
		free(m);
		n++;
	}
	/* There may be more. */
	if (write(cm->fd, &one, sizeof(one)) < 0)
		abort();
	return n;
}

void fabric_cm_tick(struct fabric_cm *cm, uint64_t now_ns,
                    void (*fn)(void *arg, const struct fabric_conn_event *e), void *arg)
{
}

int fabric_connect(struct fabric_cm *cm, const struct sockaddr *src, const struct sockaddr *dst,
                   uint64_t cookie, struct fabric_conn **ret, struct ros2_err *err)
{
	struct fabric_conn *c;

	if (mem_faulty())
		return ros2_err_set(err, -ENODEV, "no device leads there");
	pthread_mutex_lock(&mem_lock);
	c = conn_new(cm, FABRIC_CONN_RESOLVED);
	c->cookie = cookie;
	c->remote = *(const struct sockaddr_in *)dst;
	tell(c, FABRIC_CONN_EVENT_RESOLVED, 0, "resolved", NULL, 0);
	pthread_mutex_unlock(&mem_lock);
	*ret = c;
	return 0;
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
	return FABRIC_MEM_DEVICE;
}

enum fabric_conn_state fabric_conn_state(const struct fabric_conn *c)
{
	return c->state;
}

const struct sockaddr *fabric_conn_local(const struct fabric_conn *c)
{
	return (const struct sockaddr *)&c->local;
}

const struct sockaddr *fabric_conn_peer(const struct fabric_conn *c)
{
	return (const struct sockaddr *)&c->remote;
}

struct fabric_qp *fabric_conn_qp(const struct fabric_conn *c)
{
	return c->qp;
}

uint32_t fabric_conn_peer_qpn(const struct fabric_conn *c)
{
	return c->peer_qpn;
}

/* Locked. */
static bool has_room(const struct fabric_set *s, const struct fabric_qp_opts *o)
{
	uint32_t need = fabric_qp_cq_room(o), n = 0;
	struct fabric_qp *qp;

	list_for_each (&s->qps, qp, link) {
		need += fabric_qp_cq_room(&qp->opts);
		n++;
	}
	return n < s->opts.qps_max && need <= s->opts.cq_depth;
}

static int prepare(struct fabric_conn *c, struct fabric_set *s, const struct fabric_conn_opts *o,
                   struct ros2_err *err)
{
	pthread_mutex_lock(&mem_lock);
	if (!has_room(s, &o->qp)) {
		pthread_mutex_unlock(&mem_lock);
		return -EBUSY;
	}
	c->qp = mem_qp_new(s, &o->qp);
	c->qpn = c->qp->number;
	pthread_mutex_unlock(&mem_lock);
	return o->prepare ? o->prepare(o->arg, c->qp) : 0;
}

int fabric_conn_ask(struct fabric_conn *c, struct fabric_set *s, const struct fabric_conn_opts *o,
                    struct fabric_qp **ret, struct ros2_err *err)
{
	const struct sockaddr_in *to = &c->remote;
	struct fabric_listener *l, *found = NULL;
	uint8_t data[FABRIC_PRIVATE_MAX] = {0};
	int rc = mem_faulty() ? -ENOSPC : prepare(c, s, o, err);

	if (rc < 0) {
		c->state = FABRIC_CONN_ENDED;
		fabric_qp_free(TAKE_PTR(c->qp));
		return ros2_err_set(err, rc, "the connection was not prepared");
	}
	pthread_mutex_lock(&mem_lock);
	list_for_each (&listeners, l, link)
		if (l->port == ntohs(to->sin_port))
			found = l;
	c->state = FABRIC_CONN_ASKED;
	memcpy(data, o->hello.data, o->hello.length);
	if (!found) {
		c->state = FABRIC_CONN_ENDED;
		tell(c, FABRIC_CONN_EVENT_REJECTED, -ECONNREFUSED, "nobody listens", NULL, 0);
	} else {
		struct fabric_conn *p = conn_new(found->cm, FABRIC_CONN_REQUESTED);
		uint32_t qpn = c->qpn;

		if (tamper)
			tamper(tamper_arg, data, sizeof(data), &qpn);
		p->peer = c;
		c->peer = p;
		p->peer_qpn = qpn;
		p->remote.sin_port = htons(4000);
		tell(p, FABRIC_CONN_EVENT_REQUEST, 0, "a peer asks", data, sizeof(data));
	}
	pthread_mutex_unlock(&mem_lock);
	*ret = c->qp;
	return 0;
}

int fabric_conn_accept(struct fabric_conn *c, struct fabric_set *s,
                       const struct fabric_conn_opts *o, struct fabric_qp **ret,
                       struct ros2_err *err)
{
	int rc = mem_faulty() ? -ENOSPC : prepare(c, s, o, err);

	pthread_mutex_lock(&mem_lock);
	answered(c);
	if (rc < 0 || !c->peer) {
		c->state = FABRIC_CONN_ENDED;
		end_peer(c, FABRIC_CONN_EVENT_REJECTED, -ECONNREFUSED, "refused", NULL, 0);
		pthread_mutex_unlock(&mem_lock);
		fabric_qp_free(TAKE_PTR(c->qp));
		return ros2_err_set(err, rc < 0 ? rc : -ENOTCONN, "the peer has gone");
	}
	c->peer->peer_qpn = c->qpn;
	c->qp->peer = c->peer->qpn;
	c->peer->qp->peer = c->qpn;
	c->qp->state = c->peer->qp->state = FABRIC_QP_READY;
	c->state = c->peer->state = FABRIC_CONN_UP;
	tell(c, FABRIC_CONN_EVENT_ESTABLISHED, 0, "established", NULL, 0);
	tell(c->peer, FABRIC_CONN_EVENT_ESTABLISHED, 0, "established", o->hello.data,
	     o->hello.length);
	pthread_mutex_unlock(&mem_lock);
	*ret = c->qp;
	return 0;
}

void fabric_conn_reject(struct fabric_conn *c, const struct fabric_conn_private *why)
{
	pthread_mutex_lock(&mem_lock);
	answered(c);
	c->state = FABRIC_CONN_ENDED;
	end_peer(c, FABRIC_CONN_EVENT_REJECTED, -ECONNREFUSED, "the peer refused", why->data,
	         why->length);
	pthread_mutex_unlock(&mem_lock);
}

void fabric_conn_free(struct fabric_conn *c)
{
	struct mem_event *m, *next;

	if (!c)
		return;
	pthread_mutex_lock(&mem_lock);
	answered(c);
	end_peer(c, FABRIC_CONN_EVENT_ENDED, -ECONNRESET, "the peer disconnected", NULL, 0);
	if (c->qp && mem_qp_find(c->qpn) == c->qp)
		mem_qp_fail(c->qp);
	list_for_each_safe (&c->cm->events, m, next, link) {
		if (m->e.conn != c)
			continue;
		list_del(&m->link);
		free(m);
	}
	list_del(&c->link);
	mem_now.conns--;
	pthread_mutex_unlock(&mem_lock);
	free(c);
}

/* ---- what a device says late ---- */

uint64_t fabric_mem_peer_cookie(struct fabric_qp *qp)
{
	uint64_t cookie;

	pthread_mutex_lock(&mem_lock);
	cookie = mem_qp_find(qp->peer)->set->opts.cookie;
	pthread_mutex_unlock(&mem_lock);
	return cookie;
}

void fabric_mem_report_failed(struct fabric_qp *qp, uint64_t cookie)
{
	uint64_t one = 1;
	struct fabric_dev *d;

	pthread_mutex_lock(&mem_lock);
	d = mem_qp_find(qp->peer)->set->pd->dev;
	d->event = (struct fabric_event){
		.kind = FABRIC_EVENT_CQ_FAILED, .set_cookie = cookie, .words = "the test says so"};
	(void)!write(d->event_fd, &one, sizeof(one));
	pthread_mutex_unlock(&mem_lock);
}

bool fabric_mem_is_heard(struct fabric_qp *qp)
{
	struct pollfd p = {.events = POLLIN};

	pthread_mutex_lock(&mem_lock);
	p.fd = mem_qp_find(qp->peer)->set->pd->dev->event_fd;
	pthread_mutex_unlock(&mem_lock);
	return poll(&p, 1, 0) == 0;
}
