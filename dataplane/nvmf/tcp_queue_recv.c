/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PDUs from the target: bounded before they are read, looked at once, checked against the command
 * they name. Where the bytes go, and what is copied, is tcp_queue_place.c's.
 *
 * Every byte here is hostile. A PDU that is not exactly what the commands in flight allow ends the
 * queue, with words and a TermReq.
 */
#include "dataplane/nvmf/tcp_queue_priv.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* Offsets of fields, for TermReq. */
#define AT_CCCID 8u
#define AT_CID   20u
#define AT_SQHD  16u
#define AT_SQID  18u

#define IN_HEADER(at) (&(struct pdu_fault){NVME_TCP_FES_HEADER, (at)})
#define OF_KIND(kind) (&(struct pdu_fault){(kind), 0})
/* The header in hand is at the buffer's begin. */
#define FAULT(q, p, term, ...)                                                                     \
	tcp_queue_fail(q, term, (q)->in + (q)->in_at, (p)->head.header_bytes, __VA_ARGS__)

/* ---- answers ---- */

/* The command that @cid names, when it may be answered now. */
static struct tcp_cmd *command(struct tcp_queue *q, const struct pdu *p, uint16_t cid)
{
	uint32_t index = cid & q->index_mask;
	struct tcp_cmd *c = index < q->depth ? &q->cmds[index] : NULL;
	bool resp = p->head.type == NVME_TCP_CAPSULE_RESP;

	if (c && c->cid == cid && c->state == TCP_CMD_SENT)
		return c;
	FAULT(q, p, IN_HEADER(resp ? AT_CID : AT_CCCID),
	      "target sent %s: expected the id of a command in flight, found %u, which %s",
	      pdu_type_to_str(p->head.type), cid,
	      !c                                          ? "no command ever had"
	      : c->state == TCP_CMD_FREE || c->cid != cid ? "names none, or one that was answered"
	                                                  : "was not sent yet");
	return NULL;
}

static bool is_success(const struct nvme_cqe *cqe)
{
	return NVME_STATUS_CODE(cqe->status >> 1) == NVME_SC_SUCCESS;
}

/* What was moved fits what is claimed. */
static bool moved_all(struct tcp_queue *q, const struct pdu *p, const struct tcp_cmd *c,
                      bool success)
{
	const struct nvmf_req *req = c->req;
	uint32_t left = c->todo + (list_empty(&c->link) ? 0 : c->data_len);

	if (left) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_SEQUENCE),
		      "target sent an answer to %u: expected it after the data it asked for, found "
		      "%u "
		      "bytes of its R2T not sent",
		      c->cid, left);
		return false;
	}
	if (!success || req->dir == NVMF_NO_DATA || c->in_capsule)
		return true;
	if (tcp_queue_reads(c) ? c->got == req->len : c->asked == req->len)
		return true;
	FAULT(q, p, OF_KIND(NVME_TCP_FES_SEQUENCE),
	      "target sent success for %u: expected %u bytes %s before, found %u", c->cid, req->len,
	      tcp_queue_reads(c) ? "sent" : "asked for", tcp_queue_reads(c) ? c->got : c->asked);
	return false;
}

static bool head_is_sound(struct tcp_queue *q, const struct pdu *p)
{
	const struct nvme_cqe *cqe = &p->cqe;

	if (!q->no_sq_flow && cqe->sq_head > q->depth) {
		FAULT(q, p, IN_HEADER(AT_SQHD),
		      "target sent an answer: expected an SQ head of 0..%u, found %u", q->depth,
		      cqe->sq_head);
		return false;
	}
	/* Reserved in fabrics: nvmet writes the queue's id there, others 0. */
	if (cqe->sqid != 0 && cqe->sqid != q->qid) {
		FAULT(q, p, IN_HEADER(AT_SQID),
		      "target sent an answer: expected SQ id 0 or %u, found %u", q->qid, cqe->sqid);
		return false;
	}
	return true;
}

static void on_response(struct tcp_queue *q, const struct pdu *p)
{
	struct nvme_cqe cqe = p->cqe;
	struct tcp_cmd *c;

	if (!head_is_sound(q, p))
		return;
	c = command(q, p, cqe.cid);
	if (!c || !moved_all(q, p, c, is_success(&cqe)))
		return;
	q->in_at += p->head.header_bytes + p->head.pad;
	tcp_queue_learn_end(q, c, true);
	tcp_queue_answered(q, c, &cqe);
}

/* ---- data asked for ---- */

static void on_r2t(struct tcp_queue *q, const struct pdu *p)
{
	struct tcp_cmd *c = command(q, p, p->data.cid);
	const char *what = NULL;

	if (!c)
		return;
	if (c->req->dir != NVMF_TO_TARGET)
		what = "a command that writes";
	else if (c->in_capsule)
		what = "a command whose data was not in its capsule";
	if (what) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_SEQUENCE),
		      "target sent R2T for %u: expected %s, found another", c->cid, what);
		return;
	}
	if (c->todo || !list_empty(&c->link)) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_LIMIT),
		      "target sent R2T for %u: expected one at a time, found a second", c->cid);
		return;
	}
	if (p->data.offset != c->asked || p->data.length > c->req->len - c->asked) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_OUT_OF_RANGE),
		      "target sent R2T for %u: expected offset %u and at most %u bytes, found "
		      "offset %u "
		      "and %u bytes",
		      c->cid, c->asked, c->req->len - c->asked, p->data.offset, p->data.length);
		return;
	}
	c->asked += p->data.length;
	c->todo = p->data.length;
	c->tag = p->data.tag;
	q->in_at += p->head.header_bytes + p->head.pad;
	tcp_queue_make_h2c(q, c);
}

/* ---- data sent ---- */

static bool data_is_sound(struct tcp_queue *q, const struct pdu *p, const struct tcp_cmd *c)
{
	uint32_t left = tcp_queue_reads(c) ? c->req->len - c->got : 0;
	bool whole = p->data.length == left;

	if (!tcp_queue_reads(c)) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_SEQUENCE),
		      "target sent C2HData for %u: expected a command that reads, found another",
		      c->cid);
		return false;
	}
	if (c->last || p->data.offset != c->got || p->data.length > left) {
		FAULT(q, p, OF_KIND(NVME_TCP_FES_OUT_OF_RANGE),
		      "target sent C2HData for %u: expected offset %u and at most %u bytes%s, "
		      "found "
		      "offset %u and %u bytes",
		      c->cid, c->got, c->last ? 0 : left, c->last ? " after LAST_PDU" : "",
		      p->data.offset, p->data.length);
		return false;
	}
	if ((whole && !p->data.last) || (p->data.success && !(whole && p->data.last))) {
		FAULT(q, p, IN_HEADER(1),
		      "target sent C2HData for %u: expected LAST_PDU with the last byte, SUCCESS "
		      "only "
		      "with it, found%s%s and %u of %u bytes left",
		      c->cid, p->data.last ? " LAST_PDU" : " no LAST_PDU",
		      p->data.success ? ", SUCCESS" : "", left - p->data.length, c->req->len);
		return false;
	}
	return true;
}

static void on_data(struct tcp_queue *q, const struct pdu *p)
{
	struct tcp_cmd *c = command(q, p, p->data.cid);

	if (!c || !data_is_sound(q, p, c))
		return;
	tcp_queue_learn_data(q, c, p->data.length, p->data.last,
	                     p->head.header_bytes + p->head.pad);
	c->last = p->data.last;
	q->rx = c;
	q->rx_begin = q->rx_at = c->got;
	q->rx_left = p->data.length;
	q->rx_digest_len = p->head.data_digest_len;
	q->rx_success = p->data.success;
	q->in_at += p->head.header_bytes + p->head.pad;
}

/* The digest, if there is one, is at the buffer's begin. */
static void data_ends(struct tcp_queue *q)
{
	struct tcp_cmd *c = q->rx;
	struct nvme_cqe cqe = {.cid = c->cid, .sqid = q->qid};
	struct ros2_err err = ROS2_ERR_INIT;

	if (q->rx_digest_len) {
		const uint8_t *begin = (const uint8_t *)c->req->buf + q->rx_begin;

		if (pdu_data_digest_check(pdu_data_digest(0, begin, c->got - q->rx_begin),
		                          q->in + q->in_at, &err) < 0) {
			tcp_queue_fail(q, NULL, NULL, 0, "%s", err.msg);
			return;
		}
		q->in_at += q->rx_digest_len;
	}
	q->rx = NULL;
	if (!q->rx_success)
		return;
	tcp_queue_learn_end(q, c, false);
	tcp_queue_answered(q, c, &cqe);
}

static void data_came(struct tcp_queue *q, uint32_t n)
{
	q->rx->got += n;
	q->rx_at += n;
	q->rx_left -= n;
	q->counters.bytes_in += n;
	if (!q->rx_left && !q->rx_digest_len)
		data_ends(q);
}

static void copy_data(struct tcp_queue *q, uint32_t have)
{
	uint32_t n = MIN(have, q->rx_left);

	memcpy((uint8_t *)q->rx->req->buf + q->rx_at, q->in + q->in_at, n);
	q->in_at += n;
	q->counters.copied_bytes += n;
	data_came(q, n);
}

/* ---- the connection ---- */

static void on_icresp(struct tcp_queue *q, const struct pdu *p)
{
	if (p->icresp.header_digest != q->header_digest ||
	    p->icresp.data_digest != q->data_digest) {
		FAULT(q, p, IN_HEADER(11),
		      "target sent ICResp: expected header digest %s and data digest %s, found %s "
		      "and %s",
		      q->header_digest ? "on" : "off", q->data_digest ? "on" : "off",
		      p->icresp.header_digest ? "on" : "off", p->icresp.data_digest ? "on" : "off");
		return;
	}
	q->from_target.header_digest = q->to_target.header_digest = q->header_digest;
	q->from_target.data_digest = q->to_target.data_digest = q->data_digest;
	q->to_target.align = p->icresp.align;
	q->to_target.data_max = q->h2c_max = p->icresp.h2c_data_max;
	q->first = false;
	q->in_at += p->head.header_bytes + p->head.pad;
	q->state = NVMF_QUEUE_READY;
}

static void on_term(struct tcp_queue *q, const struct pdu *p)
{
	tcp_queue_fail(q, NULL, NULL, 0,
	               "target sent C2HTermReq and ends the connection: %s (%u), field or value %u",
	               pdu_fes_to_str(p->term.fes), p->term.fes, p->term.fei);
}

static void on_pdu(struct tcp_queue *q, const struct pdu *p)
{
	q->n_pdus++;
	switch (p->head.type) {
	case NVME_TCP_ICRESP:
		on_icresp(q, p);
		return;
	case NVME_TCP_C2H_TERM:
		on_term(q, p);
		return;
	case NVME_TCP_CAPSULE_RESP:
		on_response(q, p);
		return;
	case NVME_TCP_C2H_DATA:
		on_data(q, p);
		return;
	case NVME_TCP_R2T:
		on_r2t(q, p);
		return;
	default: /* the parser lets none of these through */
		tcp_queue_fail(q, NULL, NULL, 0, "target sent %s: expected a PDU of a target",
		               pdu_type_to_str(p->head.type));
	}
}

/* False: @have bytes are not all of the next header. */
static bool take_header(struct tcp_queue *q, uint32_t have)
{
	struct ros2_err err = ROS2_ERR_INIT;
	const uint8_t *at = q->in + q->in_at;
	struct pdu_fault fault;
	struct pdu_head head;
	struct pdu p;

	if (have < PDU_CH_LEN)
		return false;
	if (pdu_head_parse(at, PDU_FROM_TARGET, q->first, &q->from_target, &head, &fault, &err) <
	    0) {
		tcp_queue_fail(q, &fault, at, PDU_CH_LEN, "%s", err.msg);
		return true;
	}
	q->head_want = have < head.header_bytes + head.pad ? head.header_bytes + head.pad : 0;
	if (q->head_want)
		return false;
	if (pdu_parse(at, &head, &p, &fault, &err) < 0)
		tcp_queue_fail(q, &fault, at, head.header_bytes, "%s", err.msg);
	else
		on_pdu(q, &p);
	return true;
}

/* Something of the next @have bytes of the buffer; false: they are not whole. */
static bool take_some(struct tcp_queue *q, uint32_t have)
{
	if (!q->rx)
		return take_header(q, have);
	if (q->rx_left && q->rx->n_places) /* a copy would overwrite what lies there */
		tcp_queue_misplaced(q);
	else if (q->rx_left)
		copy_data(q, have);
	else if (have < q->rx_digest_len)
		return false;
	else
		data_ends(q);
	return true;
}

/* The bytes of a place are next in the stream: they lie right if they are what it was for. */
static void take_place(struct tcp_queue *q)
{
	struct tcp_place *p = &q->places[q->place_at];
	uint32_t n = MIN(p->len, q->rx_left);

	if (q->rx != p->cmd || q->rx_at != p->at || n == 0) {
		tcp_queue_misplaced(q);
		return;
	}
	p->at += n;
	p->len -= n;
	if (p->len == 0) {
		p->cmd->n_places--;
		q->place_at++;
		q->n_places--;
	}
	data_came(q, n);
}

/* All that has come and that is whole. */
static void take_all(struct tcp_queue *q)
{
	while (q->state != NVMF_QUEUE_FAILED) {
		uint32_t end = q->n_places ? q->places[q->place_at].pos : q->in_end;

		if (q->in_at < end) {
			if (take_some(q, end - q->in_at))
				continue;
			if (!q->n_places)
				return;
			tcp_queue_misplaced(q);
		} else if (q->n_places) {
			take_place(q);
		} else {
			return;
		}
	}
}

static void lost(struct tcp_queue *q, ssize_t n, int rc)
{
	const char *when = q->state == NVMF_QUEUE_CONNECTING ? " before ICResp"
	                   : q->rx || q->in_end > q->in_at   ? " in the middle of a PDU"
	                                                     : "";

	if (n == 0)
		tcp_queue_fail(q, NULL, NULL, 0, "the target closed the connection%s", when);
	else
		tcp_queue_fail(q, NULL, NULL, 0, "the connection was lost%s: %s", when,
		               strerror(rc));
}

bool tcp_queue_receive(struct tcp_queue *q)
{
	struct iovec iov[TCP_QUEUE_IOV];
	size_t want = 0;
	ssize_t n;
	int parts;

	if (q->state == NVMF_QUEUE_FAILED)
		return false;
	parts = tcp_queue_place(q, iov);
	for (int i = 0; i < parts; i++)
		want += iov[i].iov_len;
	n = parts == 1 ? recv(q->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT)
	               : readv(q->fd, iov, parts);
	if (n <= 0) {
		q->n_places = 0;
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			lost(q, n, errno);
		return false;
	}
	tcp_queue_placed(q, iov, parts, (size_t)n);
	take_all(q);
	/* A short read: it is empty, and the descriptor tells when it is not. */
	return q->state != NVMF_QUEUE_FAILED && (size_t)n == want;
}
