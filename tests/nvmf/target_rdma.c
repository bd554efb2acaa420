/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See target_rdma.h. Everything here runs with the target's lock held. A slot is memory for the
 * data of one command and its answer, from the READ or SEND that is posted to its end.
 */
#include "tests/nvmf/target_rdma.h"
#include "dataplane/fabric/fabric_conn.h"
#include "tests/nvmf/target_priv.h"
#include "tests/testing.h"

#include "common/clock.h"
#include <arpa/inet.h>
#include <sys/epoll.h>

#define SLOTS     1024u /* of which most are never touched */
#define SLOT      (TARGET_RDMA_BYTES + 4096)
#define CQE_AT    TARGET_RDMA_BYTES
#define CAPSULE   (64u + ADMIN_CAPSULE)
#define QUEUE_MAX 256u

enum cookie { COOKIE_RECV = 1, COOKIE_READ, COOKIE_WRITE, COOKIE_SEND };

struct slot {
	struct conn *c; /* NULL = free */
	uint16_t cid;
};

struct side {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_cm *cm;
	struct fabric_listener *listener;
	struct fabric_region *region;
	uint8_t *mem; /* owned: SLOTS * SLOT */
	struct slot slots[SLOTS];
};

struct queue {
	struct fabric_conn *conn;
	struct fabric_qp *qp;
	struct fabric_region *region;
	uint8_t *mem; /* owned: depth * CAPSULE */
	uint32_t depth;
};

static struct side *side_of(const struct conn *c)
{
	return c->t->side_arg;
}

/* ---- slots ---- */

static uint32_t slot_take(struct conn *c, uint16_t cid)
{
	struct side *s = side_of(c);
	uint32_t i = 0;

	while (i < SLOTS && s->slots[i].c)
		i++;
	if (i == SLOTS)
		abort(); /* of a test */
	s->slots[i] = (struct slot){c, cid};
	return i;
}

static struct fabric_part part_of(const struct conn *c, uint32_t slot, uint32_t at, uint32_t len)
{
	return (struct fabric_part){
		.region = side_of(c)->region, .offset = (uint64_t)slot * SLOT + at, .length = len};
}

static uint64_t cookie(enum cookie kind, uint32_t i)
{
	return (uint64_t)kind << 32 | i;
}

/* What cannot be handed on has lost its connection, which is heard of. */
static void hand_on(struct conn *c, int rc)
{
	struct queue *q = c->side;

	if (rc == 0)
		rc = fabric_qp_flush(q->qp, clock_boottime_ns());
	if (rc < 0)
		target_conn_end(c, true);
}

/* ---- what commands ask for ---- */

static int send_cqe(struct conn *c, uint32_t slot, uint16_t cid, uint16_t status, uint64_t result)
{
	struct fabric_part part = part_of(c, slot, CQE_AT, 16);
	struct fabric_wr wr = {.cookie = cookie(COOKIE_SEND, slot), .parts = &part, .n_parts = 1};
	uint8_t *p = side_of(c)->mem + part.offset;
	struct queue *q = c->side;

	put64(p, result);
	put16(p + 8, c->sqhd);
	put16(p + 10, c->qid);
	put16(p + 12, cid);
	put16(p + 14, (uint16_t)(status << 1));
	return fabric_send(q->qp, &wr);
}

static void side_answer(struct conn *c, uint16_t cid, uint16_t status, uint64_t result)
{
	hand_on(c, send_cqe(c, slot_take(c, cid), cid, status, result));
}

static struct fabric_wr data_wr(const struct tcmd *cmd, const struct fabric_part *part)
{
	return (struct fabric_wr){.parts = part,
	                          .n_parts = 1,
	                          .remote_address = le64(cmd->sqe + 24),
	                          .remote_key = le32(cmd->sqe + 35)};
}

static void side_give(struct conn *c, const struct tcmd *cmd, uint64_t result)
{
	struct queue *q = c->side;
	struct fabric_part part;
	struct fabric_wr wr;
	uint32_t slot;
	int rc = 0;

	if (c->dead)
		return;
	assert_true(cmd->len <= TARGET_RDMA_BYTES);
	slot = slot_take(c, cmd->cid);
	part = part_of(c, slot, 0, cmd->len);
	wr = data_wr(cmd, &part);
	wr.cookie = cookie(COOKIE_WRITE, slot);
	if (cmd->len) {
		memcpy(side_of(c)->mem + part.offset, cmd->data, cmd->len);
		rc = fabric_write(q->qp, &wr);
	}
	if (rc == 0)
		rc = send_cqe(c, slot, cmd->cid, ST_OK, result);
	hand_on(c, rc);
}

static void side_take(struct conn *c, struct tcmd *cmd)
{
	struct queue *q = c->side;
	uint32_t slot = slot_take(c, cmd->cid);
	struct fabric_part part = part_of(c, slot, 0, cmd->len);
	struct fabric_wr wr = data_wr(cmd, &part);

	assert_true(cmd->len <= TARGET_RDMA_BYTES);
	wr.cookie = cookie(COOKIE_READ, slot);
	hand_on(c, fabric_read(q->qp, &wr));
}

static void taken(struct conn *c, uint32_t slot)
{
	struct side *s = side_of(c);
	struct tcmd *cmd = target_cmd_find(c, s->slots[slot].cid);

	s->slots[slot].c = NULL;
	if (!cmd)
		return;
	memcpy(cmd->data, s->mem + (size_t)slot * SLOT, cmd->len);
	target_cmd_taken(c, cmd);
}

/* ---- connections ---- */

static int post_receive(struct queue *q, struct fabric_qp *qp, uint32_t i)
{
	struct fabric_part part = {
		.region = q->region, .offset = (uint64_t)i * CAPSULE, .length = CAPSULE};
	struct fabric_wr wr = {.cookie = cookie(COOKIE_RECV, i), .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

static int post_all(void *arg, struct fabric_qp *qp)
{
	struct queue *q = arg;
	int rc = 0;

	for (uint32_t i = 0; i < q->depth && rc == 0; i++)
		rc = post_receive(q, qp, i);
	return rc == 0 ? fabric_qp_flush(qp, clock_boottime_ns()) : rc;
}

static void queue_free(struct queue *q)
{
	fabric_conn_free(q->conn);
	fabric_qp_free(q->qp);
	assert_int_equal(fabric_region_free(q->region), 0);
	free(q->mem);
	free(q);
}

static void side_end(struct conn *c)
{
	struct side *s = side_of(c);

	for (uint32_t i = 0; i < SLOTS; i++)
		if (s->slots[i].c == c)
			s->slots[i].c = NULL;
	queue_free(TAKE_PTR(c->side));
}

static void asked(struct target *t, const struct fabric_conn_event *e)
{
	const uint8_t no[4] = {0, 0, 6, 0}; /* record format, status: no resources */
	struct side *s = t->side_arg;
	uint8_t yes[32] = {0};
	struct queue *q;
	struct fabric_conn_opts o = {
		.qp = {.send_depth = 2 * QUEUE_MAX, .recv_depth = QUEUE_MAX, .reads_out = 16},
		.hello = {yes, sizeof(yes)},
		.prepare = post_all};
	struct fabric_region_opts ro = {0};

	if (t->stopped || t->refusing || e->data_len < 32 || le16(e->data + 6) >= QUEUE_MAX) {
		fabric_conn_reject(e->conn, &(struct fabric_conn_private){no, sizeof(no)});
		fabric_conn_free(e->conn);
		return;
	}
	q = calloc(1, sizeof(*q));
	assert_non_null(q);
	q->conn = e->conn;
	q->depth = le16(e->data + 6) + 1u;
	ro.length = (uint64_t)q->depth * CAPSULE;
	ro.addr = q->mem = malloc(ro.length);
	assert_int_equal(fabric_region_new(s->pd, &ro, &q->region, NULL), 0);
	put16(yes + 2, (uint16_t)q->depth);
	o.arg = q;
	/* A host that has gone meanwhile cannot be accepted. */
	if (fabric_conn_accept(e->conn, s->set, &o, &q->qp, NULL) < 0 || !target_conn_aside(t, q))
		queue_free(q);
}

static struct conn *find(struct target *t, const struct fabric_conn *conn,
                         const struct fabric_qp *qp)
{
	struct conn *c;

	list_for_each (&t->conns, c, link) {
		const struct queue *q = c->side;

		if (q && ((conn && q->conn == conn) || (qp && q->qp == qp)))
			return c;
	}
	return NULL;
}

static void on_event(void *arg, const struct fabric_conn_event *e)
{
	struct target *t = arg;
	struct conn *c = find(t, e->conn, NULL);

	if (e->kind == FABRIC_CONN_EVENT_REQUEST)
		asked(t, e);
	else if (e->kind != FABRIC_CONN_EVENT_ESTABLISHED && c)
		target_conn_end(c, false);
}

/* ---- what has come ---- */

static void came(struct conn *c, uint32_t i, uint32_t bytes)
{
	struct queue *q = c->side;
	uint8_t capsule[CAPSULE];

	memcpy(capsule, q->mem + (size_t)i * CAPSULE, bytes);
	hand_on(c, post_receive(q, q->qp, i));
	if (c->dead)
		return;
	if (bytes < 64) {
		target_violates(c, "a capsule of %u bytes", bytes);
		target_conn_end(c, true);
		return;
	}
	target_cmd_in(c, capsule, capsule + 64, bytes - 64, true);
}

static void ended(struct target *t, const struct fabric_completion *e)
{
	struct side *s = t->side_arg;
	struct conn *c = find(t, NULL, e->qp);
	uint32_t i = (uint32_t)e->cookie;

	if (!c)
		return;
	if (e->end != FABRIC_END_OK) {
		target_conn_end(c, true);
		return;
	}
	switch ((enum cookie)(e->cookie >> 32)) {
	case COOKIE_RECV:
		came(c, i, e->bytes);
		break;
	case COOKIE_READ:
		taken(c, i);
		break;
	case COOKIE_SEND:
		s->slots[i].c = NULL;
		break;
	case COOKIE_WRITE:
		break;
	}
}

static void drain(struct target *t)
{
	struct side *s = t->side_arg;
	struct fabric_completion e[32];
	int n;

	while ((n = fabric_set_poll(s->set, e, ARRAY_SIZE(e))) > 0)
		for (int i = 0; i < n; i++)
			ended(t, &e[i]);
}

static void on_set(void *arg, struct fabric_set *set)
{
}

static void side_turn(struct target *t)
{
	struct side *s = t->side_arg;

	if (!s) /* closed since the event */
		return;
	fabric_cm_events(s->cm, on_event, t);
	fabric_channel_events(s->channel, on_set, NULL);
	drain(t);
	assert_int_equal(fabric_set_arm(s->set), 0);
	drain(t); /* what came in between gives no event */
}

/* ---- its life ---- */

static const struct target_side ops = {side_turn, side_answer, side_give, side_take, side_end};

static void open_device(struct side *s, const char *device)
{
	struct fabric_pd_opts caps = {512u << 20, 256, 64, 256};
	struct fabric_set_opts so = {.cq_depth = 65536, .qps_max = 128};
	struct fabric_region_opts ro = {.length = (uint64_t)SLOTS * SLOT};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	assert_int_equal(fabric_dev_open(device, &s->dev, NULL), 0);
	assert_int_equal(fabric_pd_new(s->dev, &caps, &s->pd, NULL), 0);
	assert_int_equal(fabric_channel_new(s->dev, &s->channel, NULL), 0);
	assert_int_equal(fabric_set_new(s->pd, s->channel, &so, &s->set, NULL), 0);
	ro.addr = s->mem = malloc(ro.length);
	assert_int_equal(fabric_region_new(s->pd, &ro, &s->region, NULL), 0);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &s->cm, NULL), 0);
	assert_int_equal(fabric_listen(s->cm, (struct sockaddr *)&at, 16, &s->listener, NULL), 0);
	assert_int_equal(fabric_set_arm(s->set), 0);
}

static void watch(int epoll_fd, int fd, void *ptr)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = ptr};

	assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev), 0);
}

void target_rdma_open(struct target *t, const char *device)
{
	struct side *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	open_device(s, device);
	pthread_mutex_lock(&t->lock);
	t->side = &ops;
	t->side_arg = s;
	t->side_fd = epoll_create1(EPOLL_CLOEXEC);
	watch(t->side_fd, fabric_channel_fd(s->channel), NULL);
	watch(t->side_fd, fabric_cm_fd(s->cm), NULL);
	watch(t->epoll_fd, t->side_fd, &t->side_fd);
	pthread_mutex_unlock(&t->lock);
}

uint16_t target_rdma_port(struct target *t)
{
	const struct side *s = t->side_arg;

	return fabric_listener_port(s->listener);
}

void target_rdma_close(struct target *t)
{
	struct side *s = t->side_arg;
	struct conn *c;

	pthread_mutex_lock(&t->lock);
	list_for_each (&t->conns, c, link)
		if (c->side)
			target_conn_end(c, true);
	assert_int_equal(epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, t->side_fd, NULL), 0);
	close(t->side_fd);
	t->side_arg = NULL;
	fabric_listener_free(s->listener);
	fabric_cm_free(s->cm);
	assert_int_equal(fabric_set_free(s->set), 0);
	assert_int_equal(fabric_region_free(s->region), 0);
	fabric_channel_free(s->channel);
	assert_int_equal(fabric_pd_free(s->pd), 0);
	assert_int_equal(fabric_dev_close(s->dev), 0);
	pthread_mutex_unlock(&t->lock);
	free(s->mem);
	free(s);
}
