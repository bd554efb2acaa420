/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PDUs to the target: capsules and H2CData, many in one system call, data straight from req->buf.
 * A PDU whose first byte is with the kernel is always finished before another begins. See
 * tcp_queue.c for what was decided.
 */
#include "dataplane/nvmf/tcp_queue_priv.h"
#include "common/clock.h"
#include "dataplane/nvmf/codec.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#define IOV          192u
#define IOV_PER_PDU  3u
#define BYTES_A_CALL (1024u * 1024)

/* ---- making PDUs ---- */

static void set_data(struct tcp_queue *q, struct tcp_cmd *c, uint32_t at, uint32_t len)
{
	c->data_at = at;
	c->data_len = len;
	c->digest_len = len && q->to_target.data_digest ? NVME_TCP_DIGEST_LEN : 0;
	c->digest_made = false;
}

void tcp_queue_make_capsule(struct tcp_queue *q, struct tcp_cmd *c)
{
	const struct nvmf_req *req = c->req;
	struct nvme_sqe sqe = req->sqe;

	sqe.cid = c->cid;
	sqe.flags = NVME_FLAG_SGL;
	if (c->in_capsule)
		nvme_sgl_in_capsule(&sqe, 0, req->len);
	else
		nvme_sgl_transport(&sqe, req->len);
	set_data(q, c, 0, c->in_capsule ? req->len : 0);
	c->head_len = (uint32_t)pdu_build_capsule_cmd(c->head, &sqe, c->data_len, &q->to_target);
}

void tcp_queue_make_h2c(struct tcp_queue *q, struct tcp_cmd *c)
{
	uint32_t len = MIN(c->todo, q->h2c_max);

	set_data(q, c, c->asked - c->todo, len);
	c->todo -= len;
	c->head_len = (uint32_t)pdu_build_h2c_data(c->head, c->cid, c->tag, c->data_at, len,
	                                           c->todo == 0, &q->to_target);
	list_add_tail(&q->out, &c->link);
}

/* Made once for a PDU, as late as can be: just before its bytes are handed on. */
static void make_digest(struct tcp_cmd *c)
{
	if (!c->digest_len || c->digest_made)
		return;
	pdu_data_digest_put(
		pdu_data_digest(0, (const uint8_t *)c->req->buf + c->data_at, c->data_len),
		c->digest);
	c->digest_made = true;
}

/* ---- sending ---- */

static void add_iov(struct iovec *iov, uint32_t *n, const void *p, size_t len, size_t *skip)
{
	if (*skip >= len) {
		*skip -= len;
		return;
	}
	iov[*n].iov_base = (uint8_t *)p + *skip;
	iov[(*n)++].iov_len = len - *skip;
	*skip = 0;
}

static uint32_t gather(struct tcp_queue *q, struct iovec iov[IOV], size_t *ret_bytes)
{
	size_t skip = q->sent, bytes = 0;
	struct tcp_cmd *c;
	uint32_t n = 0;

	list_for_each (&q->out, c, link) {
		if (n + IOV_PER_PDU > IOV || bytes >= BYTES_A_CALL)
			break;
		make_digest(c);
		add_iov(iov, &n, c->head, c->head_len, &skip);
		if (c->data_len)
			add_iov(iov, &n, (const uint8_t *)c->req->buf + c->data_at, c->data_len,
			        &skip);
		add_iov(iov, &n, c->digest, c->digest_len, &skip);
		bytes += (size_t)c->head_len + c->data_len + c->digest_len;
	}
	*ret_bytes = bytes - q->sent;
	return n;
}

/* How many of the first @n bytes of its PDU are data. */
static uint32_t data_in(const struct tcp_cmd *c, size_t n)
{
	return n <= c->head_len ? 0 : (uint32_t)MIN(n - c->head_len, (size_t)c->data_len);
}

static void pdu_sent(struct tcp_queue *q, struct tcp_cmd *c)
{
	list_del(&c->link);
	if (c->state == TCP_CMD_QUEUED)
		tcp_queue_expect(q, c);
	c->state = TCP_CMD_SENT;
	if (c->todo)
		tcp_queue_make_h2c(q, c);
}

static void advance(struct tcp_queue *q, size_t n)
{
	while (n > 0) {
		struct tcp_cmd *c = list_first(&q->out, struct tcp_cmd, link);
		size_t size = (size_t)c->head_len + c->data_len + c->digest_len;
		size_t now = MIN(n, size - q->sent);

		c->handed_on = true;
		q->counters.bytes_out += data_in(c, q->sent + now) - data_in(c, q->sent);
		q->sent += now;
		n -= now;
		if (q->sent < size)
			return;
		q->sent = 0;
		pdu_sent(q, c);
	}
}

/* False: no more now. */
static bool send_some(struct tcp_queue *q)
{
	struct iovec iov[IOV];
	size_t bytes;
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = gather(q, iov, &bytes)};
	ssize_t n = sendmsg(q->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	int rc = errno;

	if (n < 0 && rc != EAGAIN && rc != EINTR) {
		tcp_queue_fail(q, NULL, NULL, 0, "the connection was lost: %s", strerror(rc));
		return false;
	}
	if (n > 0) {
		q->counters.calls++;
		advance(q, (size_t)n);
	}
	q->blocked = n < 0 || (size_t)n < bytes;
	return !q->blocked;
}

/* Capsules of which nothing was sent, and whose time is over, go back. */
static void drop_late(struct tcp_queue *q)
{
	uint64_t now_ns;
	struct tcp_cmd *c, *tmp;

	if (q->last_ns == UINT64_MAX)
		return;
	now_ns = clock_boottime_ns();
	if (now_ns <= q->last_ns)
		return;
	q->last_ns = UINT64_MAX;
	list_for_each_safe (&q->out, c, tmp, link) {
		uint64_t until_ns = c->req->until_ns;

		if (c->state != TCP_CMD_QUEUED || c->handed_on || !until_ns)
			continue;
		if (now_ns >= until_ns)
			tcp_queue_give_back(q, c);
		else
			q->last_ns = MIN(q->last_ns, until_ns - 1);
	}
}

void tcp_queue_flush(struct tcp_queue *q)
{
	q->blocked = false;
	drop_late(q);
	while (!list_empty(&q->out))
		if (!send_some(q))
			break;
	if (list_empty(&q->out))
		q->last_ns = UINT64_MAX;
	tcp_queue_watch(q, q->blocked ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool tcp_queue_send_ic(struct tcp_queue *q)
{
	/* A socket that still connects says EAGAIN, one that could not says why. */
	ssize_t n = send(q->fd, q->ic + q->ic_sent, q->ic_len - q->ic_sent,
	                 MSG_DONTWAIT | MSG_NOSIGNAL);
	int rc = errno;

	if (n < 0 && rc != EAGAIN && rc != EINTR) {
		tcp_queue_fail(q, NULL, NULL, 0, "the target cannot be reached: %s", strerror(rc));
		return false;
	}
	if (n > 0)
		q->ic_sent += (uint32_t)n;
	if (q->ic_sent < q->ic_len)
		return false;
	tcp_queue_watch(q, EPOLLIN);
	return q->state != NVMF_QUEUE_FAILED;
}

void tcp_queue_send_term(struct tcp_queue *q, const struct pdu_fault *f, const uint8_t *bad,
                         size_t bad_len)
{
	uint8_t term[NVME_TCP_TERM_MAX];
	size_t len;

	/* In the middle of a PDU it would be taken for data. */
	if (q->sent > 0 || q->ic_sent < q->ic_len)
		return;
	len = pdu_build_term(term, PDU_FROM_HOST, f, bad, bad_len);
	if (send(q->fd, term, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return; /* it is ended all the same */
}
