/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the target sends: ICResp, answers, data and R2T as NVMe/TCP 1.0 says, and each of the ways
 * in which they can be wrong. A lie about a PDU's header keeps the header digest right, so that the
 * field is what is found and not the digest.
 */
#include "tests/nvmf/target_priv.h"

#include "common/crypto.h"
#include <string.h>

static uint8_t *tx_room(struct conn *c, size_t n)
{
	if (c->tx_len + n > c->tx_cap) {
		size_t cap = MAX(c->tx_cap * 2, c->tx_len + n + 4096);
		uint8_t *p = realloc(c->tx, cap);

		if (!p)
			abort(); /* of a test */
		c->tx = p;
		c->tx_cap = cap;
	}
	c->tx_len += n;
	return c->tx + c->tx_len - n;
}

static void tx_random(struct conn *c, size_t n)
{
	crypto_random(tx_room(c, n), n);
}

static void ending(struct conn *c, bool reset)
{
	c->state = CONN_ENDING;
	c->reset = reset;
	target_wake(c->t);
}

static void lie_about_header(struct conn *c, const struct tcmd *cmd, uint8_t *p)
{
	int type = p[0];
	uint64_t arg;

	if (target_lies(c, cmd, type, FAULT_PDU_TYPE, &arg))
		p[0] = arg ? (uint8_t)arg : 0xff;
	if (target_lies(c, cmd, type, FAULT_PDU_FLAGS, &arg))
		p[1] = (uint8_t)arg;
	if (target_lies(c, cmd, type, FAULT_PDU_HDGST_UNASKED, &arg))
		p[1] |= F_HDGST;
	if (target_lies(c, cmd, type, FAULT_PDU_HLEN, &arg))
		p[2] = (uint8_t)arg;
	if (target_lies(c, cmd, type, FAULT_PDU_PDO, &arg))
		p[3] = arg ? (uint8_t)arg : 4;
	if (target_lies(c, cmd, type, FAULT_PDU_PLEN_HUGE, &arg))
		put32(p + 4, arg ? (uint32_t)arg : 0xffffffffu);
	if (target_lies(c, cmd, type, FAULT_PDU_PLEN_SHORT, &arg))
		put32(p + 4, p[2] - 1u);
}

/* The header that was wrong is this PDU's data, without alignment or digest. */
static void term_put(struct conn *c, uint16_t fes, uint32_t fei, const uint8_t *pdu, size_t len)
{
	uint8_t *p = tx_room(c, 24 + MIN(len, 128));

	memset(p, 0, 24);
	p[0] = PDU_C2HTERM;
	p[2] = 24;
	put32(p + 4, (uint32_t)(24 + MIN(len, 128)));
	put16(p + 8, fes);
	put32(p + 10, fei);
	memcpy(p + 24, pdu, MIN(len, 128));
}

/* What comes before a PDU, or in its place (true). */
static bool lie_instead(struct conn *c, const struct tcmd *cmd, int type)
{
	uint64_t arg;

	if (target_lies(c, cmd, type, FAULT_PDU_GARBAGE, NULL)) {
		tx_random(c, 512);
		return true;
	}
	if (target_lies(c, cmd, type, FAULT_PDU_TERM, NULL)) {
		term_put(c, 1, 0, c->rx, 24);
		return true;
	}
	if (target_lies(c, cmd, type, FAULT_PDU_TERM_GARBAGE, NULL)) {
		uint8_t *p = tx_room(c, 24);

		memset(p, 0xa5, 24);
		memcpy(p, (uint8_t[]){PDU_C2HTERM, 0, 24, 0, 0xff, 0xff, 0, 0}, 8);
		tx_random(c, 0xffff - 24);
		return true;
	}
	if (target_lies(c, cmd, type, FAULT_PDU_ICRESP_AGAIN, NULL))
		target_icresp_send(c, (uint8_t)(c->hdgst | c->ddgst << 1));
	if (target_lies(c, cmd, type, FAULT_PDU_COMMAND, NULL)) {
		uint8_t *p = tx_room(c, 72);

		memset(p, 0, 72);
		memcpy(p, (uint8_t[]){PDU_CMD, 0, 72, 0, 72, 0, 0, 0}, 8);
	}
	if (target_lies(c, cmd, type, FAULT_PDU_SLOW, &arg))
		c->slow_ns = (arg ? arg : 1000) * 1000000ull;
	return false;
}

/* Cuts what lies from @begin on in the output. */
static void lie_by_ending(struct conn *c, const struct tcmd *cmd, int type, size_t begin)
{
	uint64_t arg;
	bool reset = target_lies(c, cmd, type, FAULT_PDU_RESET, &arg);

	if (!reset && !target_lies(c, cmd, type, FAULT_PDU_CLOSE, &arg))
		return;
	c->tx_len = MIN(c->tx_len, begin + arg);
	ending(c, reset);
}

static void digests(struct conn *c, const struct tcmd *cmd, uint8_t *p, const struct pdu *d,
                    uint32_t pdo, bool hdgst, bool ddgst)
{
	uint32_t crc;

	if (hdgst) {
		crc = crypto_crc32c(p, d->hlen);
		put32(p + d->hlen, crc ^ target_lies(c, cmd, d->type, FAULT_PDU_HDGST, NULL));
	}
	if (!d->len)
		return;
	if (ddgst) {
		crc = crypto_crc32c(p + pdo, d->len);
		put32(p + pdo + d->len, crc ^ target_lies(c, cmd, d->type, FAULT_PDU_DDGST, NULL));
	}
	if (target_lies(c, cmd, d->type, FAULT_PDU_BIT, NULL))
		p[pdo + d->len / 2] ^= 0x10;
}

void target_pdu_send(struct conn *c, const struct tcmd *cmd, const struct pdu *d)
{
	bool hdgst = c->hdgst, ddgst = c->ddgst && d->len;
	uint32_t pdo = 0, plen, align = (c->hpda + 1u) * 4;
	size_t begin;
	uint8_t *p;

	if (c->dead || c->state == CONN_ENDING || lie_instead(c, cmd, d->type))
		return;
	if (hdgst && target_lies(c, cmd, d->type, FAULT_PDU_NO_HDGST, NULL))
		hdgst = false;
	plen = d->hlen + (hdgst ? 4u : 0);
	if (d->len) {
		pdo = (plen + align - 1) / align * align;
		plen = pdo + d->len + (ddgst ? 4u : 0);
	}
	begin = c->tx_len;
	p = tx_room(c, plen);
	memset(p, 0, plen);
	p[0] = d->type;
	p[1] = (uint8_t)(d->flags | (hdgst ? F_HDGST : 0) | (ddgst ? F_DDGST : 0));
	p[2] = d->hlen;
	p[3] = (uint8_t)pdo;
	put32(p + 4, plen);
	memcpy(p + 8, d->head, d->hlen - 8u);
	if (d->len)
		memcpy(p + pdo, d->data, d->len);
	lie_about_header(c, cmd, p);
	digests(c, cmd, p, d, pdo, hdgst, ddgst);
	lie_by_ending(c, cmd, d->type, begin);
}

void target_icresp_send(struct conn *c, uint8_t dgst)
{
	uint8_t *p;
	uint64_t arg;

	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_NEVER, NULL))
		return;
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_PDU_SLOW, &arg))
		c->slow_ns = (arg ? arg : 1000) * 1000000ull;
	p = tx_room(c, 128);
	memset(p, 0, 128);
	p[0] = PDU_ICRESP;
	p[2] = 128;
	put32(p + 4, 128);
	p[10] = c->t->o.cpda;
	p[11] = dgst;
	put32(p + 12, c->t->o.maxh2cdata);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_TYPE, &arg))
		p[0] = (uint8_t)arg;
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_HLEN, &arg))
		p[2] = (uint8_t)arg;
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_PLEN, &arg))
		put32(p + 4, (uint32_t)arg);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_PFV, &arg))
		put16(p + 8, arg ? (uint16_t)arg : 1);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_CPDA, &arg))
		p[10] = arg ? (uint8_t)arg : 32;
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_DIGEST, NULL))
		p[11] ^= 3;
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_MAXDATA, &arg))
		put32(p + 12, (uint32_t)arg);
	if (target_lies(c, NULL, PDU_ICRESP, FAULT_IC_GARBAGE, NULL))
		crypto_random(p, 128);
	lie_by_ending(c, NULL, PDU_ICRESP, c->tx_len - 128);
}

void target_term_send(struct conn *c, uint16_t fes, uint32_t fei, const uint8_t *pdu, size_t len)
{
	if (c->dead || c->state == CONN_ENDING)
		return;
	if (c->aside || c->carried) {
		target_conn_end(c, true);
		return;
	}
	term_put(c, fes, fei, pdu, len);
	ending(c, false);
}

uint16_t target_free_cid(const struct conn *c, uint16_t cid)
{
	for (uint16_t d = 1;; d++)
		for (int sign = 1; sign >= -1; sign -= 2)
			if (!target_cmd_find((struct conn *)c, (uint16_t)(cid + sign * d)))
				return (uint16_t)(cid + sign * d);
}

static void cqe_one(struct conn *c, const struct tcmd *cmd, uint16_t cid, uint16_t status,
                    uint64_t result)
{
	struct pdu d = {.type = PDU_RESP, .hlen = 24};
	uint64_t arg;

	if (c->aside) {
		if (!c->dead)
			c->t->side->answer(c, cid, status, result);
		return;
	}
	put64(d.head, result);
	put16(d.head + 8, c->no_flow ? 0xffff : c->sqhd);
	put16(d.head + 12, cid);
	put16(d.head + 14, (uint16_t)(status << 1));
	if (!c->carried) {
		target_pdu_send(c, cmd, &d);
		return;
	}
	if (target_lies(c, cmd, -1, FAULT_CQE_SQHD, &arg))
		put16(d.head + 8, (uint16_t)arg);
	if (!target_lies(c, cmd, -1, FAULT_CQE_SIZE, &arg))
		arg = 16;
	c->t->o.carrier->answer(c, d.head, (uint32_t)MIN(arg, 64), target_rdma_invalidates(c, cmd));
}

void target_cqe_send(struct conn *c, struct tcmd *cmd, uint16_t status, uint64_t result)
{
	uint64_t arg;
	uint16_t cid = cmd->cid;

	if (target_lies(c, cmd, -1, FAULT_CQE_NEVER, NULL)) {
		target_cmd_free(c, cmd);
		return;
	}
	if (target_lies(c, cmd, -1, FAULT_CQE_FREE_ID, NULL))
		cqe_one(c, cmd, target_free_cid(c, cid), status, result);
	if (target_lies(c, cmd, -1, FAULT_CQE_WRONG_ID, &arg))
		cid ^= arg ? (uint16_t)arg : 0x8000;
	if (target_lies(c, cmd, -1, FAULT_CQE_WRONG_STATUS, &arg))
		status = arg & 0x7fff;
	if (target_lies(c, cmd, -1, FAULT_CQE_RESULT, &arg))
		result = arg;
	cqe_one(c, cmd, cid, status, result);
	if (target_lies(c, cmd, -1, FAULT_CQE_TWICE, NULL))
		cqe_one(c, cmd, cid, status, result);
	target_cmd_free(c, cmd);
}
