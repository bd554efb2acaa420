/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PDU headers built: fields, header digest, padding up to where the receiver wants data. What the
 * specification reserves is zero.
 */
#include "dataplane/nvmf/pdu.h"
#include "common/crypto.h"
#include "common/util.h"
#include <assert.h>
#include <string.h>

/* Common header, digest and padding of a PDU whose other fields are in @out already. */
static size_t finish(uint8_t out[PDU_SEND_MAX], enum nvme_tcp_type type, uint8_t flags,
                     uint8_t hlen, uint32_t data_len, const struct pdu_params *p)
{
	struct nvme_tcp_ch ch = {.type = (uint8_t)type, .flags = flags, .hlen = hlen};
	uint32_t n = hlen, at, digest;

	if (p->header_digest) {
		ch.flags |= NVME_TCP_HDGSTF;
		n += NVME_TCP_DIGEST_LEN;
	}
	at = n;
	if (data_len) {
		at = (n + p->align - 1) / p->align * p->align;
		ch.pdo = (uint8_t)at;
		if (p->data_digest)
			ch.flags |= NVME_TCP_DDGSTF;
	}
	ch.plen = at + data_len + (ch.flags & NVME_TCP_DDGSTF ? NVME_TCP_DIGEST_LEN : 0);
	memcpy(out, &ch, sizeof(ch));
	if (p->header_digest) {
		digest = crypto_crc32c(out, hlen);
		memcpy(out + hlen, &digest, sizeof(digest));
	}
	memset(out + n, 0, at - n);
	return at;
}

static uint8_t digests(bool header_digest, bool data_digest)
{
	return (uint8_t)((header_digest ? NVME_TCP_DGST_HEADER : 0) |
	                 (data_digest ? NVME_TCP_DGST_DATA : 0));
}

static uint8_t alignment(uint32_t align)
{
	assert(align >= 4 && align <= (NVME_TCP_PDA_MAX + 1) * 4 && align % 4 == 0);
	return (uint8_t)(align / 4 - 1);
}

size_t pdu_build_icreq(uint8_t out[PDU_SEND_MAX], uint32_t align, uint32_t r2ts_max,
                       bool header_digest, bool data_digest)
{
	const struct nvme_tcp_icreq ic = {
		.ch = {.type = NVME_TCP_ICREQ, .hlen = sizeof(ic), .plen = sizeof(ic)},
		.hpda = alignment(align),
		.dgst = digests(header_digest, data_digest),
		.maxr2t = r2ts_max - 1,
	};

	assert(r2ts_max);
	memcpy(out, &ic, sizeof(ic));
	return sizeof(ic);
}

size_t pdu_build_icresp(uint8_t out[PDU_SEND_MAX], uint32_t align, uint32_t h2c_data_max,
                        bool header_digest, bool data_digest)
{
	const struct nvme_tcp_icresp ic = {
		.ch = {.type = NVME_TCP_ICRESP, .hlen = sizeof(ic), .plen = sizeof(ic)},
		.cpda = alignment(align),
		.dgst = digests(header_digest, data_digest),
		.maxh2cdata = h2c_data_max,
	};

	memcpy(out, &ic, sizeof(ic));
	return sizeof(ic);
}

size_t pdu_build_capsule_cmd(uint8_t out[PDU_SEND_MAX], const struct nvme_sqe *sqe,
                             uint32_t data_len, const struct pdu_params *params)
{
	memcpy(out + PDU_CH_LEN, sqe, sizeof(*sqe));
	return finish(out, NVME_TCP_CAPSULE_CMD, 0, sizeof(struct nvme_tcp_cmd), data_len, params);
}

size_t pdu_build_capsule_resp(uint8_t out[PDU_SEND_MAX], const struct nvme_cqe *cqe,
                              const struct pdu_params *params)
{
	memcpy(out + PDU_CH_LEN, cqe, sizeof(*cqe));
	return finish(out, NVME_TCP_CAPSULE_RESP, 0, sizeof(struct nvme_tcp_resp), 0, params);
}

size_t pdu_build_h2c_data(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint16_t tag, uint32_t offset,
                          uint32_t data_len, bool last, const struct pdu_params *params)
{
	const struct nvme_tcp_data d = {
		.cccid = cid, .ttag = tag, .offset = offset, .length = data_len};

	memcpy(out, &d, sizeof(d));
	return finish(out, NVME_TCP_H2C_DATA, last ? NVME_TCP_LAST_PDU : 0, sizeof(d), data_len,
	              params);
}

size_t pdu_build_c2h_data(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint32_t offset,
                          uint32_t data_len, bool last, bool success,
                          const struct pdu_params *params)
{
	const struct nvme_tcp_data d = {.cccid = cid, .offset = offset, .length = data_len};
	uint8_t flags =
		(uint8_t)((last ? NVME_TCP_LAST_PDU : 0) | (success ? NVME_TCP_SUCCESS : 0));

	memcpy(out, &d, sizeof(d));
	return finish(out, NVME_TCP_C2H_DATA, flags, sizeof(d), data_len, params);
}

size_t pdu_build_r2t(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint16_t tag, uint32_t offset,
                     uint32_t length, const struct pdu_params *params)
{
	const struct nvme_tcp_data d = {
		.cccid = cid, .ttag = tag, .offset = offset, .length = length};

	memcpy(out, &d, sizeof(d));
	return finish(out, NVME_TCP_R2T, 0, sizeof(d), 0, params);
}

size_t pdu_build_term(uint8_t out[NVME_TCP_TERM_MAX], enum pdu_side from,
                      const struct pdu_fault *fault, const void *bad, size_t bad_len)
{
	struct nvme_tcp_term t = {
		.ch = {.type = from == PDU_FROM_HOST ? NVME_TCP_H2C_TERM : NVME_TCP_C2H_TERM,
	               .hlen = sizeof(t)},
		.fes = (uint16_t)fault->fes,
		.fei = fault->fei,
	};
	size_t n = MIN(bad_len, NVME_TCP_TERM_MAX - sizeof(t));

	t.ch.plen = (uint32_t)(sizeof(t) + n);
	memcpy(out, &t, sizeof(t));
	if (n)
		memcpy(out + sizeof(t), bad, n);
	return sizeof(t) + n;
}
