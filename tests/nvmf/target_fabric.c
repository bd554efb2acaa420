/* SPDX-License-Identifier: Apache-2.0 */
/* See target_fabric.h. Each connection has a completion queue of its own; all that is called runs
 * under the target's lock. */
#include "tests/nvmf/target_fabric.h"
#include "common/clock.h"
#include "dataplane/fabric/fabric_conn.h"
#include "tests/nvmf/target_priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define CAPSULES   136u
#define CAPSULE    (64u + 8192u)
#define PLACES     32u /* of payload on its way */
#define PLACE      196608u
#define ANSWERS    256u /* in turn: more than are under way */
#define SENDS      192u
#define PAYLOAD_AT ((uint64_t)CAPSULES * CAPSULE)
#define ANSWERS_AT (PAYLOAD_AT + (uint64_t)PLACES * PLACE)
#define MEMORY     (ANSWERS_AT + ANSWERS * 64u)

enum kind { CAPSULE_IN = 1, ANSWER, PAYLOAD_OUT, PAYLOAD_IN };

struct ftarget {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_cm *cm;
	struct fabric_listener *listener;
};

struct fqueue {
	struct fabric_conn *conn;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_qp *qp;
	struct fabric_region *region;
	uint8_t *mem; /* owned */
	uint32_t next_answer;
	uint64_t places; /* bits: free */
	struct {
		uint16_t cid, ttag;
		uint32_t off, len;
	} reads[PLACES];
};

static struct ftarget *of(struct target *t)
{
	return t->carried;
}

static uint64_t cookie(enum kind kind, uint32_t i)
{
	return (uint64_t)kind << 32 | i;
}

/* ---- work requests ---- */

static int post_capsule(struct fqueue *q, struct fabric_qp *qp, uint32_t i)
{
	struct fabric_part part = {
		.region = q->region, .offset = (uint64_t)i * CAPSULE, .length = CAPSULE};
	struct fabric_wr wr = {.cookie = cookie(CAPSULE_IN, i), .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

static void hand_on(struct conn *c, int rc)
{
	struct fqueue *q = c->carried;

	if (rc < 0 || fabric_qp_flush(q->qp, clock_boottime_ns()) < 0)
		target_conn_end(c, true);
}

static void carry_answer(struct conn *c, const uint8_t *cqe, uint32_t len, uint32_t invalidate)
{
	struct fqueue *q = c->carried;
	uint64_t at = ANSWERS_AT + q->next_answer++ % ANSWERS * 64ull;
	struct fabric_part part = {.region = q->region, .offset = at, .length = len};
	struct fabric_wr wr = {.cookie = cookie(ANSWER, 0),
	                       .parts = &part,
	                       .n_parts = len ? 1 : 0,
	                       .remote_key = invalidate,
	                       .flags = invalidate ? FABRIC_REMOTE_INVALIDATE : 0};

	if (c->dead)
		return;
	memset(q->mem + at, 0, 64);
	memcpy(q->mem + at, cqe, 16);
	hand_on(c, fabric_send(q->qp, &wr));
}

static uint32_t place_take(struct fqueue *q)
{
	uint32_t i;

	if (!q->places)
		abort(); /* of a test */
	i = (uint32_t)__builtin_ctzll(q->places);
	q->places &= q->places - 1;
	return i;
}

static void move(struct conn *c, enum kind kind, uint32_t place, uint64_t addr, uint32_t len,
                 uint32_t key)
{
	struct fqueue *q = c->carried;
	struct fabric_part part = {
		.region = q->region, .offset = PAYLOAD_AT + (uint64_t)place * PLACE, .length = len};
	struct fabric_wr wr = {.cookie = cookie(kind, place),
	                       .parts = &part,
	                       .n_parts = len ? 1 : 0,
	                       .remote_address = addr,
	                       .remote_key = key};

	hand_on(c, kind == PAYLOAD_IN ? fabric_read(q->qp, &wr) : fabric_write(q->qp, &wr));
}

static void carry_write(struct conn *c, const struct tcmd *cmd, uint32_t off, const void *data,
                        uint32_t len)
{
	struct fqueue *q = c->carried;
	uint32_t place, key;
	uint64_t addr;

	if (c->dead || len > PLACE)
		return;
	place = place_take(q);
	if (len)
		memcpy(q->mem + PAYLOAD_AT + (size_t)place * PLACE, data, len);
	target_rdma_reach(c, cmd, &addr, &key);
	move(c, PAYLOAD_OUT, place, addr + off, len, key);
}

static void carry_read(struct conn *c, const struct tcmd *cmd, uint16_t ttag, uint32_t off,
                       uint32_t len)
{
	struct fqueue *q = c->carried;
	uint32_t place, key;
	uint64_t addr;

	if (c->dead || len > PLACE)
		return;
	place = place_take(q);
	q->reads[place].cid = cmd->cid;
	q->reads[place].ttag = ttag;
	q->reads[place].off = off;
	q->reads[place].len = len;
	target_rdma_reach(c, cmd, &addr, &key);
	move(c, PAYLOAD_IN, place, addr + off, len, key);
}

static void capsule_came(struct conn *c, uint32_t i, uint32_t bytes)
{
	struct fqueue *q = c->carried;
	const uint8_t *p = q->mem + (size_t)i * CAPSULE;

	if (bytes < 64 || target_lies(c, NULL, PDU_CMD, FAULT_RX_CLOSE, NULL)) {
		target_conn_end(c, false);
		return;
	}
	target_cmd_in(c, p, p + 64, bytes - 64, true);
	if (!c->dead)
		hand_on(c, post_capsule(q, q->qp, i));
}

static void payload_came(struct conn *c, uint32_t place)
{
	struct fqueue *q = c->carried;
	uint8_t head[16] = {0};

	put16(head, q->reads[place].cid);
	put16(head + 2, q->reads[place].ttag);
	put32(head + 4, q->reads[place].off);
	put32(head + 8, q->reads[place].len);
	(void)target_cmd_data_in(c, head, q->mem + PAYLOAD_AT + (size_t)place * PLACE,
	                         q->reads[place].len, true, true);
}

static void ended(struct conn *c, const struct fabric_completion *e)
{
	struct fqueue *q = c->carried;
	enum kind kind = (enum kind)(e->cookie >> 32);
	uint32_t i = (uint32_t)e->cookie;

	if (e->end != FABRIC_END_OK) {
		if (!c->dead)
			target_conn_end(c, false);
		return;
	}
	if (!c->dead && kind == CAPSULE_IN)
		capsule_came(c, i, e->bytes);
	else if (!c->dead && kind == PAYLOAD_IN)
		payload_came(c, i);
	if (kind == PAYLOAD_IN || kind == PAYLOAD_OUT)
		q->places |= 1ull << i;
}

static void take_ends(struct conn *c)
{
	struct fqueue *q = c->carried;
	struct fabric_completion e;

	while (q->set && fabric_set_poll(q->set, &e, 1) == 1)
		ended(c, &e);
}

static void no_set(void *arg, struct fabric_set *s)
{
}

static void carry_conn_event(struct conn *c)
{
	struct fqueue *q = c->carried;

	(void)fabric_channel_events(q->channel, no_set, NULL);
	take_ends(c);
	/* What came before it is armed gives no event. */
	if (!c->dead && fabric_set_arm(q->set) == 0)
		take_ends(c);
}

/* ---- connections ---- */

static void fqueue_free(struct fqueue *q)
{
	if (!q)
		return;
	fabric_conn_free(q->conn);
	(void)fabric_qp_free(q->qp);
	(void)fabric_set_free(q->set);
	fabric_channel_free(q->channel);
	(void)fabric_region_free(q->region);
	free(q->mem);
	free(q);
}

static struct fqueue *fqueue_new(struct target *t, struct fabric_conn *conn)
{
	struct fabric_set_opts so = {.cookie = 77, .cq_depth = SENDS + CAPSULES + 8, .qps_max = 1};
	struct fabric_region_opts ro = {.length = MEMORY};
	struct fqueue *q = calloc(1, sizeof(*q));

	if (!q)
		abort(); /* of a test */
	q->conn = conn;
	q->places = (1ull << PLACES) - 1;
	ro.addr = q->mem = calloc(1, MEMORY);
	if (!q->mem || fabric_channel_new(of(t)->dev, &q->channel, NULL) < 0 ||
	    fabric_set_new(of(t)->pd, q->channel, &so, &q->set, NULL) < 0 ||
	    fabric_region_new(of(t)->pd, &ro, &q->region, NULL) < 0) {
		fqueue_free(q);
		return NULL;
	}
	return q;
}

static int post_all(void *arg, struct fabric_qp *qp)
{
	struct conn *c = arg;
	int rc = 0;

	if (target_lies(c, NULL, -1, FAULT_CM_NO_RECEIVE, NULL))
		return 0;
	for (uint32_t i = 0; i < CAPSULES && rc == 0; i++)
		rc = post_capsule(c->carried, qp, i);
	return rc == 0 ? fabric_qp_flush(qp, clock_boottime_ns()) : rc;
}

static void take_in(struct target *t, struct fabric_conn *conn, const uint8_t *asked)
{
	uint8_t hello[RDMA_HELLO];
	struct fabric_conn_opts o = {
		.qp = {.send_depth = SENDS, .recv_depth = CAPSULES, .reads_out = 16},
		.hello = {hello, sizeof(hello)},
		.prepare = post_all};
	struct fqueue *q = fqueue_new(t, conn);
	struct conn *c = q ? target_conn_new(t, fabric_channel_fd(q->channel)) : NULL;

	if (!c) {
		fqueue_free(q);
		return;
	}
	c->carried = q;
	c->state = CONN_CONNECT;
	c->maxr2t = R2T_MAX;
	target_rdma_hello(c, asked, hello);
	o.arg = c;
	if (fabric_conn_accept(conn, q->set, &o, &q->qp, NULL) < 0 || fabric_set_arm(q->set) < 0)
		target_conn_end(c, true);
	else
		take_ends(c);
}

static struct conn *conn_of(struct target *t, const struct fabric_conn *conn)
{
	struct conn *c;

	list_for_each (&t->conns, c, link)
		if (!c->dead && ((struct fqueue *)c->carried)->conn == conn)
			return c;
	return NULL;
}

static void on_event(void *arg, const struct fabric_conn_event *e)
{
	struct target *t = arg;
	struct conn *c = conn_of(t, e->conn);
	uint8_t words[RDMA_REFUSAL], asked[RDMA_HELLO] = {0};

	if (e->kind == FABRIC_CONN_EVENT_ENDED && c) {
		take_ends(c);
		if (!c->dead)
			target_conn_end(c, false);
	}
	if (e->kind != FABRIC_CONN_EVENT_REQUEST)
		return;
	memcpy(asked, e->data, MIN(e->data_len, sizeof(asked)));
	if (target_rdma_judge(t, asked, e->data_len, words)) {
		fabric_conn_reject(e->conn, &(struct fabric_conn_private){words, sizeof(words)});
		fabric_conn_free(e->conn);
	} else if (target_rdma_silent(t)) {
		fabric_conn_free(e->conn);
	} else {
		take_in(t, e->conn, asked);
	}
}

static void carry_event(struct target *t)
{
	(void)fabric_cm_events(of(t)->cm, on_event, t);
}

static void carry_end(struct conn *c, bool reset)
{
	struct fqueue *q = c->carried;

	(void)epoll_ctl(c->t->epoll_fd, EPOLL_CTL_DEL, fabric_channel_fd(q->channel), NULL);
	fabric_conn_free(TAKE_PTR(q->conn));
}

static void carry_free(struct conn *c)
{
	fqueue_free(TAKE_PTR(c->carried));
}

/* ---- the listener ---- */

static int carry_open(struct target *t)
{
	struct fabric_pd_opts caps = {1u << 30, 64, 64, 64};
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &t->carried_fd};
	struct ftarget *f = calloc(1, sizeof(*f));
	char names[1][FABRIC_NAME_MAX];
	uint32_t n = 0;
	int r;

	if (!f)
		return -ENOMEM;
	t->carried = f;
	r = fabric_list(names, 1, &n, NULL);
	if (r == 0)
		r = n ? fabric_dev_open(names[0], &f->dev, NULL) : -ENODEV;
	if (r == 0)
		r = fabric_pd_new(f->dev, &caps, &f->pd, NULL);
	if (r == 0)
		r = fabric_cm_new(&(struct fabric_cm_opts){0}, &f->cm, NULL);
	if (r < 0)
		return r;
	t->carried_fd = fabric_cm_fd(f->cm);
	return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, t->carried_fd, &ev) < 0 ? -errno : 0;
}

static int carry_listen(struct target *t)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(t->port)};
	int r = t->carried ? 0 : carry_open(t);

	if (r < 0 || of(t)->listener)
		return r;
	if (inet_pton(AF_INET, t->o.address, &a.sin_addr) != 1)
		return -EINVAL;
	r = fabric_listen(of(t)->cm, (struct sockaddr *)&a, 16, &of(t)->listener, NULL);
	if (r == 0)
		t->port = fabric_listener_port(of(t)->listener);
	return r;
}

static void carry_unlisten(struct target *t)
{
	if (t->carried)
		fabric_listener_free(TAKE_PTR(of(t)->listener));
}

static void carry_close(struct target *t)
{
	struct ftarget *f = of(t);

	if (!f)
		return;
	carry_unlisten(t);
	fabric_cm_free(f->cm);
	(void)fabric_pd_free(f->pd);
	(void)fabric_dev_close(f->dev);
	free(f);
	t->carried = NULL;
}

const struct target_carrier target_fabric = {
	.trtype = 1,
	.listen = carry_listen,
	.unlisten = carry_unlisten,
	.close = carry_close,
	.event = carry_event,
	.conn_event = carry_conn_event,
	.end = carry_end,
	.free = carry_free,
	.answer = carry_answer,
	.write = carry_write,
	.read = carry_read,
};
