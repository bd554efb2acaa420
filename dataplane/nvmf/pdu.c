/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PDU headers read: from the first 8 bytes how long everything is, then the fields. One row of a
 * table for each type says who sends it, how long its header is, which flags it may have and
 * whether data follows. What the specification reserves is not looked at; a known flag where it
 * does not belong is a fault, because it would change where the next PDU begins.
 */
#include "dataplane/nvmf/pdu.h"
#include "common/crypto.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

enum with_data { NO_DATA, MAY_DATA, MUST_DATA, TERM_DATA };

struct row {
	uint8_t type;
	uint8_t from; /* enum pdu_side */
	uint8_t hlen;
	uint8_t flags;
	uint8_t data; /* enum with_data */
	const char *name;
};

#define DIGESTS (NVME_TCP_HDGSTF | NVME_TCP_DDGSTF)

static const struct row rows[] = {
	{NVME_TCP_ICREQ, PDU_FROM_HOST, 128, 0, NO_DATA, "ICReq"},
	{NVME_TCP_ICRESP, PDU_FROM_TARGET, 128, 0, NO_DATA, "ICResp"},
	{NVME_TCP_H2C_TERM, PDU_FROM_HOST, 24, 0, TERM_DATA, "H2CTermReq"},
	{NVME_TCP_C2H_TERM, PDU_FROM_TARGET, 24, 0, TERM_DATA, "C2HTermReq"},
	{NVME_TCP_CAPSULE_CMD, PDU_FROM_HOST, 72, DIGESTS, MAY_DATA, "CapsuleCmd"},
	{NVME_TCP_CAPSULE_RESP, PDU_FROM_TARGET, 24, NVME_TCP_HDGSTF, NO_DATA, "CapsuleResp"},
	{NVME_TCP_H2C_DATA, PDU_FROM_HOST, 24, DIGESTS | NVME_TCP_LAST_PDU, MUST_DATA, "H2CData"},
	{NVME_TCP_C2H_DATA, PDU_FROM_TARGET, 24, DIGESTS | NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS,
         MUST_DATA, "C2HData"},
	{NVME_TCP_R2T, PDU_FROM_TARGET, 24, NVME_TCP_HDGSTF, NO_DATA, "R2T"},
};

static const struct row *find(unsigned type)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].type == type)
			return &rows[i];
	return NULL;
}

const char *pdu_type_to_str(unsigned type)
{
	const struct row *row = find(type);

	return row ? row->name : "unknown PDU";
}

const char *pdu_fes_to_str(unsigned fes)
{
	static const char *const names[] = {
		[NVME_TCP_FES_HEADER] = "invalid PDU header field",
		[NVME_TCP_FES_SEQUENCE] = "PDU sequence error",
		[NVME_TCP_FES_HEADER_DIGEST] = "header digest error",
		[NVME_TCP_FES_OUT_OF_RANGE] = "data transfer out of range",
		[NVME_TCP_FES_LIMIT] = "R2T or data transfer limit exceeded",
		[NVME_TCP_FES_UNSUPPORTED] = "unsupported parameter",
	};

	return fes < ARRAY_SIZE(names) && names[fes] ? names[fes] : "unknown error";
}

static const char *sender(const struct row *row)
{
	return row->from == PDU_FROM_HOST ? "host" : "target";
}

static void fault(struct pdu_fault *ret, enum nvme_tcp_fes fes, uint32_t fei)
{
	if (ret)
		*ret = (struct pdu_fault){fes, fei};
}

/* Only the type and the side. */
static int check_turn(const struct nvme_tcp_ch *ch, const struct row *row, enum pdu_side from,
                      bool first, struct pdu_fault *ret_fault, struct ros2_err *err)
{
	bool opening = row && (row->type == NVME_TCP_ICREQ || row->type == NVME_TCP_ICRESP);
	const char *who = from == PDU_FROM_HOST ? "host" : "target";

	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, type));
	if (!row || row->from != from)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent PDU type 0x%02x (%s): expected one that a %s sends",
		                    who, ch->type, pdu_type_to_str(ch->type), who);
	fault(ret_fault, NVME_TCP_FES_SEQUENCE, 0);
	if (first && !opening && row->data != TERM_DATA)
		return ros2_err_set(err, -EPROTO, "%s sent %s as the first PDU: expected an IC PDU",
		                    who, row->name);
	if (!first && opening)
		return ros2_err_set(err, -EPROTO, "%s sent %s: expected it only as the first PDU",
		                    who, row->name);
	return 0;
}

static int check_flags(const struct nvme_tcp_ch *ch, const struct row *row, bool has_data,
                       const struct pdu_params *p, struct ros2_err *err)
{
	uint8_t expected = ch->flags & row->flags & (NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS);

	if (row->flags & NVME_TCP_HDGSTF && p->header_digest)
		expected |= NVME_TCP_HDGSTF;
	if (row->flags & NVME_TCP_DDGSTF && has_data && p->data_digest)
		expected |= NVME_TCP_DDGSTF;
	if (ch->flags != expected)
		return ros2_err_set(err, -EPROTO, "%s sent %s with flags 0x%02x: expected 0x%02x",
		                    sender(row), row->name, ch->flags, expected);
	if (expected & NVME_TCP_SUCCESS && !(expected & NVME_TCP_LAST_PDU))
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with SUCCESS: expected LAST_PDU with it",
		                    sender(row), row->name);
	return 0;
}

/* Where data begins and how much of it there is. */
static int measure(const struct nvme_tcp_ch *ch, const struct row *row, const struct pdu_params *p,
                   struct pdu_head *h, struct pdu_fault *ret_fault, struct ros2_err *err)
{
	uint32_t tail = h->data_digest_len;

	assert(p->align >= 4);

	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, pdo));
	if (ch->pdo < h->header_bytes || ch->pdo % p->align)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with PDO %u: expected at least %u and a multiple "
		                    "of %u",
		                    sender(row), row->name, ch->pdo, h->header_bytes, p->align);
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, plen));
	if (ch->plen <= ch->pdo + tail)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with PLEN %u: expected more than %u, for data",
		                    sender(row), row->name, ch->plen, ch->pdo + tail);
	h->pad = ch->pdo - h->header_bytes;
	h->data_len = ch->plen - ch->pdo - tail;
	fault(ret_fault,
	      row->from == PDU_FROM_HOST ? NVME_TCP_FES_LIMIT : NVME_TCP_FES_OUT_OF_RANGE, 0);
	if (h->data_len > p->data_max)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with %u bytes of data: expected at most %u",
		                    sender(row), row->name, h->data_len, p->data_max);
	return 0;
}

static int measure_term(const struct nvme_tcp_ch *ch, const struct row *row, struct pdu_head *h,
                        struct ros2_err *err)
{
	if (ch->plen < row->hlen || ch->plen > NVME_TCP_TERM_MAX)
		return ros2_err_set(err, -EPROTO, "%s sent %s with PLEN %u: expected %u to %u",
		                    sender(row), row->name, ch->plen, row->hlen, NVME_TCP_TERM_MAX);
	h->data_len = ch->plen - row->hlen;
	return 0;
}

int pdu_head_parse(const uint8_t bytes[PDU_CH_LEN], enum pdu_side from, bool first,
                   const struct pdu_params *params, struct pdu_head *ret,
                   struct pdu_fault *ret_fault, struct ros2_err *err)
{
	struct pdu_head h = {0};
	struct nvme_tcp_ch ch;
	const struct row *row;
	bool has_data;
	int r;

	memcpy(&ch, bytes, sizeof(ch));
	row = find(ch.type);
	r = check_turn(&ch, row, from, first, ret_fault, err);
	if (r < 0)
		return r;
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, hlen));
	if (ch.hlen != row->hlen)
		return ros2_err_set(err, -EPROTO, "%s sent %s with HLEN %u: expected %u",
		                    sender(row), row->name, ch.hlen, row->hlen);
	h.type = (enum nvme_tcp_type)ch.type;
	h.flags = ch.flags;
	h.header_bytes = row->hlen + (ch.flags & NVME_TCP_HDGSTF ? NVME_TCP_DIGEST_LEN : 0);
	has_data = row->data == MUST_DATA || (row->data == MAY_DATA && ch.plen > h.header_bytes);
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, flags));
	r = check_flags(&ch, row, has_data, params, err);
	if (r < 0)
		return r;
	h.data_digest_len = ch.flags & NVME_TCP_DDGSTF ? NVME_TCP_DIGEST_LEN : 0;
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_ch, plen));
	if (row->data == TERM_DATA)
		r = measure_term(&ch, row, &h, err);
	else if (has_data)
		r = measure(&ch, row, params, &h, ret_fault, err);
	else if (ch.plen != h.header_bytes)
		r = ros2_err_set(err, -EPROTO, "%s sent %s with PLEN %u: expected %u", sender(row),
		                 row->name, ch.plen, h.header_bytes);
	if (r < 0)
		return r;
	*ret = h;
	return 0;
}

static int check_header_digest(const uint8_t *bytes, const struct pdu_head *h,
                               const struct row *row, struct pdu_fault *ret_fault,
                               struct ros2_err *err)
{
	uint32_t received, expected;

	if (!(h->flags & NVME_TCP_HDGSTF))
		return 0;
	memcpy(&received, bytes + row->hlen, sizeof(received));
	expected = crypto_crc32c(bytes, row->hlen);
	if (received == expected)
		return 0;
	fault(ret_fault, NVME_TCP_FES_HEADER_DIGEST, received);
	return ros2_err_set(err, -EBADMSG, "%s sent %s with header digest 0x%08x: expected 0x%08x",
	                    sender(row), row->name, received, expected);
}

/* The two fields that ICReq and ICResp share. */
static int check_ic(uint16_t pfv, uint8_t pda, const struct row *row, struct pdu_fault *ret_fault,
                    struct ros2_err *err)
{
	fault(ret_fault, NVME_TCP_FES_UNSUPPORTED, offsetof(struct nvme_tcp_icreq, pfv));
	if (pfv)
		return ros2_err_set(err, -EPROTO, "%s sent %s with format version %u: expected 0",
		                    sender(row), row->name, pfv);
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_icreq, hpda));
	if (pda > NVME_TCP_PDA_MAX)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with data alignment %u: expected at most %u",
		                    sender(row), row->name, pda, NVME_TCP_PDA_MAX);
	return 0;
}

static int parse_icreq(const uint8_t *bytes, const struct row *row, struct pdu *ret,
                       struct pdu_fault *ret_fault, struct ros2_err *err)
{
	struct nvme_tcp_icreq ic;
	int r;

	memcpy(&ic, bytes, sizeof(ic));
	r = check_ic(ic.pfv, ic.hpda, row, ret_fault, err);
	if (r < 0)
		return r;
	ret->icreq.align = (ic.hpda + 1u) * 4;
	ret->icreq.r2ts_max = ic.maxr2t == UINT32_MAX ? UINT32_MAX : ic.maxr2t + 1;
	ret->icreq.header_digest = ic.dgst & NVME_TCP_DGST_HEADER;
	ret->icreq.data_digest = ic.dgst & NVME_TCP_DGST_DATA;
	return 0;
}

static int parse_icresp(const uint8_t *bytes, const struct row *row, struct pdu *ret,
                        struct pdu_fault *ret_fault, struct ros2_err *err)
{
	struct nvme_tcp_icresp ic;
	int r;

	memcpy(&ic, bytes, sizeof(ic));
	r = check_ic(ic.pfv, ic.cpda, row, ret_fault, err);
	if (r < 0)
		return r;
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_icresp, maxh2cdata));
	if (ic.maxh2cdata < NVME_TCP_MAXH2CDATA_MIN || ic.maxh2cdata % 4)
		return ros2_err_set(err, -EPROTO,
		                    "target sent ICResp with MAXH2CDATA %u: expected at least %u "
		                    "and a multiple of 4",
		                    ic.maxh2cdata, NVME_TCP_MAXH2CDATA_MIN);
	ret->icresp.align = (ic.cpda + 1u) * 4;
	ret->icresp.h2c_data_max = ic.maxh2cdata;
	ret->icresp.header_digest = ic.dgst & NVME_TCP_DGST_HEADER;
	ret->icresp.data_digest = ic.dgst & NVME_TCP_DGST_DATA;
	return 0;
}

static int parse_data(const uint8_t *bytes, const struct row *row, struct pdu *ret,
                      struct pdu_fault *ret_fault, struct ros2_err *err)
{
	struct nvme_tcp_data d;

	memcpy(&d, bytes, sizeof(d));
	fault(ret_fault, NVME_TCP_FES_HEADER, offsetof(struct nvme_tcp_data, length));
	if (row->data == MUST_DATA && d.length != ret->head.data_len)
		return ros2_err_set(err, -EPROTO,
		                    "%s sent %s with DATAL %u: expected %u, as PLEN says",
		                    sender(row), row->name, d.length, ret->head.data_len);
	if (!d.length || d.length > UINT32_MAX - d.offset)
		return ros2_err_set(
			err, -EPROTO,
			"%s sent %s for %u bytes at %u: expected 1 or more, below 4 GiB",
			sender(row), row->name, d.length, d.offset);
	ret->data.cid = d.cccid;
	ret->data.tag = row->type == NVME_TCP_C2H_DATA ? 0 : d.ttag;
	ret->data.offset = d.offset;
	ret->data.length = d.length;
	ret->data.last = ret->head.flags & NVME_TCP_LAST_PDU;
	ret->data.success = ret->head.flags & NVME_TCP_SUCCESS;
	return 0;
}

static void parse_term(const uint8_t *bytes, struct pdu *ret)
{
	struct nvme_tcp_term t;

	memcpy(&t, bytes, sizeof(t));
	ret->term.fes = t.fes;
	ret->term.fei = t.fei;
}

int pdu_parse(const uint8_t *bytes, const struct pdu_head *head, struct pdu *ret,
              struct pdu_fault *ret_fault, struct ros2_err *err)
{
	const struct row *row = find(head->type);
	struct pdu p = {.head = *head};
	int r = check_header_digest(bytes, head, row, ret_fault, err);

	if (r < 0)
		return r;
	switch (head->type) {
	case NVME_TCP_ICREQ:
		r = parse_icreq(bytes, row, &p, ret_fault, err);
		break;
	case NVME_TCP_ICRESP:
		r = parse_icresp(bytes, row, &p, ret_fault, err);
		break;
	case NVME_TCP_H2C_TERM:
	case NVME_TCP_C2H_TERM:
		parse_term(bytes, &p);
		break;
	case NVME_TCP_CAPSULE_CMD:
		memcpy(&p.sqe, bytes + sizeof(struct nvme_tcp_ch), sizeof(p.sqe));
		break;
	case NVME_TCP_CAPSULE_RESP:
		memcpy(&p.cqe, bytes + sizeof(struct nvme_tcp_ch), sizeof(p.cqe));
		break;
	case NVME_TCP_H2C_DATA:
	case NVME_TCP_C2H_DATA:
	case NVME_TCP_R2T:
		r = parse_data(bytes, row, &p, ret_fault, err);
		break;
	}
	if (r < 0)
		return r;
	*ret = p;
	return 0;
}

uint32_t pdu_data_digest(uint32_t digest, const void *p, size_t n)
{
	return crypto_crc32c_more(digest, p, n);
}

void pdu_data_digest_put(uint32_t digest, uint8_t out[NVME_TCP_DIGEST_LEN])
{
	memcpy(out, &digest, NVME_TCP_DIGEST_LEN);
}

int pdu_data_digest_check(uint32_t digest, const uint8_t received[NVME_TCP_DIGEST_LEN],
                          struct ros2_err *err)
{
	uint32_t got;

	memcpy(&got, received, sizeof(got));
	if (got == digest)
		return 0;
	return ros2_err_set(err, -EBADMSG,
	                    "the peer sent data with data digest 0x%08x: expected 0x%08x", got,
	                    digest);
}
