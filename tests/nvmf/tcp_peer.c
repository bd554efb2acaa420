/* SPDX-License-Identifier: Apache-2.0 */
/* See tcp_peer.h. */
#include "tests/nvmf/tcp_peer.h"
#include "common/util.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

void peer_init(struct peer *p, const struct peer_opts *o, int fd)
{
	memset(p, 0, sizeof(*p));
	p->o = *o;
	p->o.maxh2c = o->maxh2c ? o->maxh2c : 1u << 20;
	p->o.c2h_max = o->c2h_max ? o->c2h_max : UINT32_MAX;
	p->o.r2t_max = o->r2t_max ? o->r2t_max : UINT32_MAX;
	p->fd = fd;
	p->rx = (struct pdu_params){.align = (o->cpda + 1u) * 4, .data_max = 1u << 20};
	p->tx = (struct pdu_params){.align = 4, .data_max = 1u << 20};
}

/* True once in @n times, with chaos. */
static bool now_and_then(struct peer *p, uint32_t n)
{
	if (!p->o.chaos)
		return false;
	p->o.chaos = p->o.chaos * 1664525 + 1013904223;
	return (p->o.chaos >> 8) % n == 0;
}

/* ---- answers ---- */

static void put_resp_with(struct peer *p, uint16_t cid, uint16_t status)
{
	struct nvme_cqe cqe = {.cid = cid, .status = (uint16_t)(status << 1)};

	p->out_n += pdu_build_capsule_resp(p->out + p->out_n, &cqe, &p->tx);
}

static void put_resp(struct peer *p, uint16_t cid)
{
	put_resp_with(p, cid, NVME_SC_SUCCESS);
}

static void put_r2t(struct peer *p, uint16_t cid)
{
	uint32_t n = MIN(p->writes[cid].len - p->writes[cid].asked, p->o.r2t_max);

	p->out_n += pdu_build_r2t(p->out + p->out_n, cid, (uint16_t)~cid, p->writes[cid].asked, n,
	                          &p->tx);
	p->writes[cid].asked += n;
}

static void put_data(struct peer *p, const struct nvme_sqe *sqe)
{
	uint32_t len = sqe->dptr.sgl.length, at = 0;

	while (at < len) {
		uint32_t n = MIN(len - at, p->o.c2h_max);
		bool last, success = p->o.success && !now_and_then(p, 8);
		uint8_t *to;

		if (now_and_then(p, 12)) {
			put_resp_with(p, sqe->cid, NVME_SC_INTERNAL);
			return;
		}
		if (now_and_then(p, 6))
			n = MAX(n / 3, 1u);
		last = at + n == len;
		p->out_n += pdu_build_c2h_data(p->out + p->out_n, sqe->cid, at, n, last,
		                               last && success, &p->tx);
		to = p->out + p->out_n;
		if (!p->o.any_data)
			rig_pattern_at(to, at, n, (uint8_t)sqe->cdw10);
		p->out_n += n;
		if (p->tx.data_digest) {
			pdu_data_digest_put(pdu_data_digest(0, to, n), p->out + p->out_n);
			p->out_n += NVME_TCP_DIGEST_LEN;
		}
		at += n;
		if (last && success)
			return;
	}
	put_resp(p, sqe->cid);
}

static void check_written(struct peer *p, uint32_t seed, uint32_t at, const uint8_t *data,
                          uint32_t n)
{
	static _Thread_local uint8_t want[1u << 20];

	if (p->o.any_data)
		return;
	rig_pattern_at(want, at, n, (uint8_t)seed);
	p->wrong += memcmp(want, data, n) != 0;
}

static void on_command(struct peer *p, const struct pdu *pdu, const uint8_t *data)
{
	const struct nvme_sqe *sqe = &pdu->sqe;
	uint16_t cid = sqe->cid;

	p->commands++;
	if (sqe->opcode == NVME_IO_READ && p->n_held < ARRAY_SIZE(p->held) &&
	    (p->o.reverse || now_and_then(p, 40))) {
		p->held[p->n_held++] = *sqe;
	} else if (sqe->opcode == NVME_IO_READ) {
		put_data(p, sqe);
	} else if (sqe->opcode == NVME_IO_WRITE && pdu->head.data_len) {
		check_written(p, sqe->cdw10, 0, data, pdu->head.data_len);
		put_resp(p, cid);
	} else if (sqe->opcode == NVME_IO_WRITE) {
		p->writes[cid].len = sqe->dptr.sgl.length;
		p->writes[cid].asked = p->writes[cid].got = 0;
		p->writes[cid].seed = sqe->cdw10;
		put_r2t(p, cid);
	} else {
		put_resp(p, cid);
	}
}

static void on_h2c(struct peer *p, const struct pdu *pdu, const uint8_t *data)
{
	uint16_t cid = pdu->data.cid;

	p->wrong += pdu->data.offset != p->writes[cid].got;
	check_written(p, p->writes[cid].seed, pdu->data.offset, data, pdu->head.data_len);
	p->writes[cid].got += pdu->head.data_len;
	if (p->writes[cid].got == p->writes[cid].len)
		put_resp(p, cid);
	else if (p->writes[cid].got == p->writes[cid].asked)
		put_r2t(p, cid);
}

static void on_icreq(struct peer *p)
{
	p->out_n += pdu_build_icresp(p->out + p->out_n, p->rx.align, p->o.maxh2c,
	                             p->o.header_digest, p->o.data_digest);
	p->rx.header_digest = p->tx.header_digest = p->o.header_digest;
	p->rx.data_digest = p->tx.data_digest = p->o.data_digest;
	p->hello = true;
}

/* Bytes of one PDU at @at, 0 when it is not whole. */
static size_t take(struct peer *p, const uint8_t *at, size_t have)
{
	struct pdu_head h;
	struct pdu pdu;
	size_t begin;

	if (have < PDU_CH_LEN)
		return 0;
	if (pdu_head_parse(at, PDU_FROM_HOST, !p->hello, &p->rx, &h, NULL, NULL) < 0)
		goto wrong;
	begin = h.header_bytes + h.pad;
	if (have < begin + h.data_len + h.data_digest_len)
		return 0;
	if (pdu_parse(at, &h, &pdu, NULL, NULL) < 0)
		goto wrong;
	if (h.data_digest_len && pdu_data_digest_check(pdu_data_digest(0, at + begin, h.data_len),
	                                               at + begin + h.data_len, NULL) < 0)
		goto wrong;
	if (h.type == NVME_TCP_ICREQ)
		on_icreq(p);
	else if (h.type == NVME_TCP_CAPSULE_CMD)
		on_command(p, &pdu, at + begin);
	else if (h.type == NVME_TCP_H2C_DATA)
		on_h2c(p, &pdu, at + begin);
	else
		p->ended = true;
	return begin + h.data_len + h.data_digest_len;
wrong:
	p->wrong++;
	p->ended = true;
	return 0;
}

/* ---- bytes ---- */

static bool flush(struct peer *p)
{
	size_t len = p->out_n - p->out_at;
	ssize_t n;

	if (p->out_at == p->out_n)
		return false;
	if (p->o.piece)
		len = MIN(len, p->o.piece);
	n = sendto(p->fd, p->out + p->out_at, len, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	if (n < 0 && errno != EAGAIN)
		p->ended = true;
	if (n > 0)
		p->out_at += (size_t)n;
	if (p->out_at == p->out_n)
		p->out_at = p->out_n = 0;
	return n > 0;
}

static bool fill(struct peer *p)
{
	ssize_t n =
		recvfrom(p->fd, p->in + p->in_n, sizeof(p->in) - p->in_n, MSG_DONTWAIT, NULL, NULL);

	if (n == 0 || (n < 0 && errno != EAGAIN))
		p->ended = true;
	if (n > 0)
		p->in_n += (size_t)n;
	return n > 0;
}

bool peer_turn(struct peer *p)
{
	bool moved = fill(p);
	size_t at = 0, n;

	/* Room for the largest answer: 1 MiB of data in PDUs of 512 bytes or more. */
	while (!p->ended && p->out_n + (2u << 20) < sizeof(p->out)) {
		n = take(p, p->in + at, p->in_n - at);
		if (!n)
			break;
		at += n;
	}
	memmove(p->in, p->in + at, p->in_n - at);
	p->in_n -= at;
	while (p->n_held && p->out_n + (2u << 20) < sizeof(p->out))
		put_data(p, &p->held[--p->n_held]);
	return flush(p) || moved;
}
