/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP (NVMe/TCP Transport 1.0): its life, its commands, their time limits.
 * See queue.h for the contract.
 *
 * Decided here: one R2T at a time for a command (MAXR2T); data in the capsule wherever it fits,
 * because nvmet waits for ever when asked to fetch what could have come with the command; digests
 * are as the options say or the connection is refused, so nobody can talk us out of them. A command
 * of which one byte was given to the kernel counts as handed on. The end of a connection is always
 * a reset: what the kernel still holds of a write is discarded, and the target cannot reach memory
 * over TCP, so every request can be given back at once.
 *
 * Payload goes between req->buf and the kernel without a copy of ours but for what
 * tcp_queue_recv.c says; what the kernel copies is not counted. A data digest is made of, or
 * compared with, req->buf itself, so that memory which a tenant writes meanwhile is refused then.
 */
#include "dataplane/nvmf/tcp_queue_priv.h"
#include "common/clock.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define DEPTH_MIN      2u
#define DEPTH_MAX      1024u
#define READS_PER_POLL 32
/* Each costs as much as 4 KiB of payload, and a target may send 4 bytes in one: what a poll takes
 * of them is bounded too, but for what the last of its reads brought. */
#define PDUS_PER_POLL 1024u

/* ---- the end ---- */

static void disconnect(struct tcp_queue *q)
{
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	if (q->fd < 0)
		return;
	/* With a zero linger close sends RST and drops what is in the send queue. */
	(void)setsockopt(q->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	(void)epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, q->fd, NULL);
	close(TAKE_FD(q->fd));
}

static void release(struct tcp_queue *q, struct tcp_cmd *c)
{
	uint16_t step = (uint16_t)(q->index_mask + 1);

	list_del(&c->link);
	list_del(&c->req->link);
	list_del(&c->order);
	q->n_unordered -= c->unordered;
	c->state = TCP_CMD_FREE;
	c->req = NULL;
	c->cid = (uint16_t)(c->cid + step);
	if (c->cid == 0xffff) /* names no command: Base 3.3.3.1 */
		c->cid = (uint16_t)(c->cid + step);
	q->free[q->n_free++] = (uint16_t)(c - q->cmds);
	q->n_done++;
}

void tcp_queue_give_back(struct tcp_queue *q, struct tcp_cmd *c)
{
	struct nvmf_req *req = c->req;
	bool handed_on = c->handed_on;

	release(q, c);
	if (handed_on)
		q->counters.unknown++;
	else
		q->counters.cancelled++;
	req->done(req, handed_on ? -EREMOTEIO : -ECANCELED, NULL);
}

void tcp_queue_answered(struct tcp_queue *q, struct tcp_cmd *c, const struct nvme_cqe *cqe)
{
	struct nvmf_req *req = c->req;

	/* From done on its buffer is someone else's. */
	if (c->n_places)
		tcp_queue_misplaced(q);
	release(q, c);
	q->counters.answered++;
	req->done(req, 0, cqe);
}

void tcp_queue_fail(struct tcp_queue *q, const struct pdu_fault *term, const uint8_t *bad,
                    size_t bad_len, const char *fmt, ...)
{
	va_list ap;

	if (q->state == NVMF_QUEUE_FAILED)
		return;
	va_start(ap, fmt);
	vsnprintf(q->fault, sizeof(q->fault), fmt, ap);
	va_end(ap);
	if (term)
		tcp_queue_send_term(q, term, bad, bad_len);
	q->state = NVMF_QUEUE_FAILED;
	disconnect(q);
	q->rx = NULL;
	q->n_places = 0;
	for (uint32_t i = 0; i < q->depth; i++)
		if (q->cmds[i].state != TCP_CMD_FREE)
			tcp_queue_give_back(q, &q->cmds[i]);
}

static void tcp_kill(struct nvmf_queue *nq, const char *why)
{
	tcp_queue_fail(tcp_queue_of(nq), NULL, NULL, 0, "%s", why ? why : "ended by this side");
}

static void tcp_free(struct nvmf_queue *nq)
{
	struct tcp_queue *q = tcp_queue_of(nq);

	if (!q)
		return;
	tcp_queue_fail(q, NULL, NULL, 0, "the queue was closed");
	free(q->cmds);
	free(q->free);
	free(q);
}

/* ---- the beginning ---- */

static int check(const struct nvmf_queue_opts *o, socklen_t *ret_len, struct ros2_err *err)
{
	if (!o->peer || (o->peer->sa_family != AF_INET && o->peer->sa_family != AF_INET6))
		return ros2_err_set(err, -EINVAL, "nvmf tcp: expected an IPv4 or IPv6 address");
	if (o->depth < DEPTH_MIN || o->depth > DEPTH_MAX)
		return ros2_err_set(err, -EINVAL, "nvmf tcp: expected a depth of %u..%u, found %u",
		                    DEPTH_MIN, DEPTH_MAX, o->depth);
	if (o->transfer_max == 0 || o->transfer_max > INT32_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "nvmf tcp: expected transfers of 1..%d bytes, found %u",
		                    INT32_MAX, o->transfer_max);
	*ret_len = o->peer->sa_family == AF_INET ? sizeof(struct sockaddr_in)
	                                         : sizeof(struct sockaddr_in6);
	return 0;
}

static struct tcp_queue *queue_new(const struct nvmf_queue_opts *o)
{
	struct tcp_queue *q = calloc(1, sizeof(*q));
	uint32_t index = 1;

	if (!q)
		return NULL;
	q->fd = -1;
	list_init(&q->timed);
	list_init(&q->fresh);
	list_init(&q->out);
	list_init(&q->order);
	q->cmds = calloc(o->depth, sizeof(*q->cmds));
	q->free = calloc(o->depth, sizeof(*q->free));
	if (!q->cmds || !q->free) {
		free(q->cmds);
		free(q->free);
		free(q);
		return NULL;
	}
	while (index < o->depth)
		index *= 2;
	q->index_mask = index - 1;
	q->depth = q->n_free = o->depth;
	for (uint32_t i = 0; i < o->depth; i++) {
		q->cmds[i].cid = (uint16_t)i;
		list_init(&q->cmds[i].link);
		list_init(&q->cmds[i].order);
		q->free[i] = (uint16_t)(o->depth - 1 - i);
	}
	return q;
}

static void fill(struct tcp_queue *q, const struct nvmf_queue_opts *o)
{
	q->state = NVMF_QUEUE_CONNECTING;
	q->epoll_fd = o->epoll_fd;
	q->epoll_word = o->epoll_word;
	q->qid = o->qid;
	q->in_capsule_max = o->in_capsule_max;
	q->transfer_max = o->transfer_max;
	q->header_digest = o->header_digest;
	q->data_digest = o->data_digest;
	q->connect_deadline_ns = clock_add_ns(o->now_ns, o->connect_timeout_ns);
	q->first = true;
	q->last_ns = UINT64_MAX;
	/* HPDA 0: data may begin at any multiple of 4. */
	q->answers_follow = true;
	q->data_max = o->transfer_max;
	q->from_target = (struct pdu_params){.align = 4, .data_max = o->transfer_max};
	q->ic_len = (uint32_t)pdu_build_icreq(q->ic, 4, 1, o->header_digest, o->data_digest);
}

static int begin_connect(struct tcp_queue *q, const struct sockaddr *peer, socklen_t len,
                         struct ros2_err *err)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.u64 = q->epoll_word};
	int one = 1, rc;

	q->fd = socket(peer->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (q->fd < 0)
		return ros2_err_set(err, -errno, "nvmf tcp: socket: %s", strerror(errno));
	/* A command waits for no other; a failure only costs latency. */
	(void)setsockopt(q->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(q->fd, peer, len) < 0 && errno != EINPROGRESS && errno != EINTR) {
		rc = -errno;
		return ros2_err_set(err, rc, "nvmf tcp: connect: %s", strerror(-rc));
	}
	if (epoll_ctl(q->epoll_fd, EPOLL_CTL_ADD, q->fd, &ev) < 0) {
		rc = -errno;
		return ros2_err_set(err, rc, "nvmf tcp: epoll_ctl: %s", strerror(-rc));
	}
	q->interest = ev.events;
	return 0;
}

static int tcp_open(const struct nvmf_queue_opts *o, struct nvmf_queue **ret, struct ros2_err *err)
{
	struct tcp_queue *q;
	socklen_t len = 0;
	int rc = check(o, &len, err);

	if (rc < 0)
		return rc;
	q = queue_new(o);
	if (!q)
		return ros2_err_set(err, -ENOMEM, "nvmf tcp: no memory for a queue of %u commands",
		                    o->depth);
	fill(q, o);
	rc = begin_connect(q, o->peer, len, err);
	if (rc < 0) {
		tcp_free((struct nvmf_queue *)q);
		return rc;
	}
	*ret = (struct nvmf_queue *)q;
	return 0;
}

void tcp_queue_watch(struct tcp_queue *q, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = q->epoll_word};
	int rc;

	if (q->state == NVMF_QUEUE_FAILED || q->interest == events)
		return;
	if (epoll_ctl(q->epoll_fd, EPOLL_CTL_MOD, q->fd, &ev) == 0) {
		q->interest = events;
		return;
	}
	rc = errno;
	tcp_queue_fail(q, NULL, NULL, 0, "the connection cannot be watched: %s", strerror(rc));
}

/* ---- commands ---- */

static bool is_sound(const struct tcp_queue *q, const struct nvmf_req *req)
{
	if (!req->done)
		return false;
	if (req->dir == NVMF_NO_DATA)
		return req->len == 0;
	if (req->tenant_memory && q->data_digest)
		return false;
	return (req->dir == NVMF_FROM_TARGET || req->dir == NVMF_TO_TARGET) && req->buf &&
	       req->len > 0 && req->len <= q->transfer_max;
}

/* TCP 3.3.1: commands of the admin queue, and Fabrics commands anywhere, may carry 8192 bytes. */
static bool fits_capsule(const struct tcp_queue *q, const struct nvmf_req *req)
{
	uint32_t max = q->qid == 0 || req->sqe.opcode == NVME_FABRICS ? NVME_TCP_ADMIN_INLINE_MAX
	                                                              : q->in_capsule_max;

	return req->dir == NVMF_TO_TARGET && req->len <= max;
}

static void notice_connect(struct tcp_queue *q, const struct nvmf_req *req)
{
	const struct nvme_connect_cmd *cmd = (const void *)&req->sqe;

	if (cmd->opcode == NVME_FABRICS && cmd->fctype == NVME_FC_CONNECT)
		q->no_sq_flow = (cmd->cattr & NVME_CONNECT_NO_SQ_FLOW) != 0;
}

static int tcp_submit(struct nvmf_queue *nq, struct nvmf_req *req)
{
	struct tcp_queue *q = tcp_queue_of(nq);
	struct tcp_cmd *c;

	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	if (!is_sound(q, req))
		return -EINVAL;
	if (q->n_free == 0)
		return -EAGAIN;
	c = &q->cmds[q->free[--q->n_free]];
	c->req = req;
	c->state = TCP_CMD_FRESH;
	c->handed_on = c->last = c->unordered = false;
	c->in_capsule = fits_capsule(q, req);
	c->got = c->asked = c->todo = 0;
	c->n_places = 0;
	list_init(&req->link);
	req->priv[0] = (uintptr_t)c;
	list_add_tail(&q->fresh, &c->link);
	q->n_unstamped++;
	q->counters.submitted++;
	notice_connect(q, req);
	return 0;
}

/* Into the list by deadline: from its end, where it nearly always belongs. */
static void time_limit(struct tcp_queue *q, struct nvmf_req *req, uint64_t now_ns)
{
	struct list *at = q->timed.prev;

	if (!req->timeout_ns)
		return;
	req->deadline_ns = clock_add_ns(now_ns, req->timeout_ns);
	while (at != &q->timed &&
	       list_entry(at, struct nvmf_req, link)->deadline_ns > req->deadline_ns)
		at = at->prev;
	list_add_head(at, &req->link);
}

/* submit is told no time, so the first call after it that is gives it to those that have none. */
static void stamp(struct tcp_queue *q, uint64_t now_ns)
{
	struct list *at = q->fresh.prev;

	for (; q->n_unstamped; q->n_unstamped--, at = at->prev)
		time_limit(q, list_entry(at, struct tcp_cmd, link)->req, now_ns);
}

static int tcp_kick(struct nvmf_queue *nq, uint64_t now_ns)
{
	struct tcp_queue *q = tcp_queue_of(nq);

	if (q->state != NVMF_QUEUE_READY)
		return -ENOTCONN;
	stamp(q, now_ns);
	while (!list_empty(&q->fresh)) {
		struct tcp_cmd *c = list_first(&q->fresh, struct tcp_cmd, link);

		list_del(&c->link);
		c->state = TCP_CMD_QUEUED;
		tcp_queue_make_capsule(q, c);
		list_add_tail(&q->out, &c->link);
		q->last_ns = MIN(q->last_ns, c->req->until_ns - 1); /* 0, no limit, is far away */
	}
	/* Without room the socket says when there is some. */
	if (!q->blocked)
		tcp_queue_flush(q);
	return q->state == NVMF_QUEUE_READY ? 0 : -ENOTCONN;
}

static void tcp_withdraw(struct nvmf_queue *nq, struct nvmf_req *req, uint64_t now_ns)
{
	struct tcp_cmd *c = (struct tcp_cmd *)(uintptr_t)req->priv[0];
	struct tcp_queue *q = tcp_queue_of(nq);

	if (q->state != NVMF_QUEUE_READY || c->req != req || c->handed_on)
		return;
	stamp(q, now_ns);
	tcp_queue_give_back(q, c);
	/* Else the socket would tell of its room for ever. */
	if (list_empty(&q->out))
		tcp_queue_flush(q);
}

static uint32_t take_in(struct tcp_queue *q, uint32_t max, uint32_t pdus)
{
	uint32_t before = q->n_done, pdus_before = q->n_pdus;

	if (q->polling || q->state == NVMF_QUEUE_FAILED)
		return 0;
	q->polling = true;
	if (q->ic_sent == q->ic_len || tcp_queue_send_ic(q)) {
		for (int i = 0; i < READS_PER_POLL && q->n_done - before < max; i++)
			if (!tcp_queue_receive(q) || q->n_pdus - pdus_before >= pdus)
				break;
		if (q->state == NVMF_QUEUE_READY && !list_empty(&q->out))
			tcp_queue_flush(q);
	}
	q->polling = false;
	return q->n_done - before;
}

static uint32_t tcp_poll(struct nvmf_queue *nq, uint32_t max, uint64_t now_ns)
{
	return take_in(tcp_queue_of(nq), max, PDUS_PER_POLL);
}

static uint64_t next_deadline(const struct tcp_queue *q)
{
	if (q->state == NVMF_QUEUE_CONNECTING)
		return q->connect_deadline_ns;
	if (q->state == NVMF_QUEUE_FAILED || list_empty(&q->timed))
		return UINT64_MAX;
	return list_first(&q->timed, struct nvmf_req, link)->deadline_ns;
}

static void overdue(struct tcp_queue *q)
{
	const struct nvmf_req *req;

	if (q->state == NVMF_QUEUE_CONNECTING) {
		tcp_queue_fail(q, NULL, NULL, 0, "%s in time",
		               q->ic_sent < q->ic_len ? "the target did not take the connection"
		                                      : "the target did not answer ICReq");
		return;
	}
	req = list_first(&q->timed, struct nvmf_req, link);
	tcp_queue_fail(q, NULL, NULL, 0, "no answer to %s within %llu ms",
	               nvme_sqe_name(&req->sqe, q->qid != 0),
	               (unsigned long long)(req->timeout_ns / NS_PER_MS));
}

static uint64_t tcp_tick(struct nvmf_queue *nq, uint64_t now_ns)
{
	struct tcp_queue *q = tcp_queue_of(nq);

	if (q->state == NVMF_QUEUE_READY)
		stamp(q, now_ns);
	/* This process may have been stopped while the answer came. */
	if (next_deadline(q) <= now_ns)
		(void)take_in(q, UINT32_MAX, UINT32_MAX);
	if (next_deadline(q) <= now_ns)
		overdue(q);
	return next_deadline(q);
}

static enum nvmf_queue_state tcp_state(const struct nvmf_queue *nq)
{
	return tcp_queue_of(nq)->state;
}

static const char *tcp_fault(const struct nvmf_queue *nq)
{
	return tcp_queue_of(nq)->fault;
}

static uint32_t tcp_in_flight(const struct nvmf_queue *nq)
{
	const struct tcp_queue *q = tcp_queue_of(nq);

	return q->depth - q->n_free;
}

static void tcp_counters(const struct nvmf_queue *nq, struct nvmf_queue_counters *ret)
{
	*ret = tcp_queue_of(nq)->counters;
}

const struct nvmf_queue_ops nvmf_tcp_queue_ops = {
	.name = "tcp",
	.open = tcp_open,
	.free = tcp_free,
	.state = tcp_state,
	.fault = tcp_fault,
	.submit = tcp_submit,
	.kick = tcp_kick,
	.poll = tcp_poll,
	.tick = tcp_tick,
	.kill = tcp_kill,
	.withdraw = tcp_withdraw,
	.in_flight = tcp_in_flight,
	.counters = tcp_counters,
};
