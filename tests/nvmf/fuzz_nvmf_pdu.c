/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of PDUs, from either side. The first byte says: bit 0 from the host, bit 1 header digest
 * (made right before it is checked, so that mutations reach the fields), bit 2 data digest, bit 3
 * it begins with an IC PDU, bits 4 and 5 the alignment. Claimed: lengths stay within their bounds
 * and inside the stream, a refusal has words and a fault for a TermReq, what is accepted is built
 * again the same but for what is reserved.
 */
#include "common/crypto.h"
#include "dataplane/nvmf/pdu.h"
#include "tests/fuzz/fuzz.h"
#include <errno.h>

/* The fields that a receiver looks at; reserved ones were not copied, so they are zero. */
static void built_again(const struct pdu *p, const uint8_t *bytes, const struct pdu_params *prm)
{
	uint8_t out[PDU_SEND_MAX];
	struct pdu again;
	size_t n;

	switch (p->head.type) {
	case NVME_TCP_CAPSULE_CMD:
		n = pdu_build_capsule_cmd(out, &p->sqe, p->head.data_len, prm);
		must(memcmp(out + 8, bytes + 8, 64) == 0);
		break;
	case NVME_TCP_CAPSULE_RESP:
		n = pdu_build_capsule_resp(out, &p->cqe, prm);
		must(memcmp(out + 8, bytes + 8, 16) == 0);
		break;
	case NVME_TCP_H2C_DATA:
		n = pdu_build_h2c_data(out, p->data.cid, p->data.tag, p->data.offset,
		                       p->data.length, p->data.last, prm);
		break;
	case NVME_TCP_C2H_DATA:
		n = pdu_build_c2h_data(out, p->data.cid, p->data.offset, p->data.length,
		                       p->data.last, p->data.success, prm);
		break;
	case NVME_TCP_R2T:
		n = pdu_build_r2t(out, p->data.cid, p->data.tag, p->data.offset, p->data.length,
		                  prm);
		break;
	default:
		return;
	}
	must(pdu_head_parse(out,
	                    p->head.type == NVME_TCP_CAPSULE_CMD ||
	                                    p->head.type == NVME_TCP_H2C_DATA
	                            ? PDU_FROM_HOST
	                            : PDU_FROM_TARGET,
	                    false, prm, &again.head, NULL, NULL) == 0);
	must(again.head.header_bytes + again.head.pad == n);
	must(again.head.data_len == p->head.data_len && again.head.flags == p->head.flags);
	must(pdu_parse(out, &again.head, &again, NULL, NULL) == 0);
	if (p->head.type != NVME_TCP_CAPSULE_CMD && p->head.type != NVME_TCP_CAPSULE_RESP)
		must(memcmp(&again.data, &p->data, sizeof(p->data)) == 0);
}

/* Returns how many bytes of the stream it takes; 0: the connection is over. */
static size_t one(const uint8_t *data, size_t size, enum pdu_side from, bool first,
                  struct pdu_params *prm)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct pdu_fault fault = {0};
	uint8_t bytes[PDU_HEADER_MAX];
	struct pdu_head h;
	struct pdu p;
	int r = pdu_head_parse(data, from, first, prm, &h, &fault, &err);

	if (r < 0) {
		must(r == -EPROTO && fault.fes);
		must_refuse(r, &err);
		return 0;
	}
	must(h.header_bytes >= 24 && h.header_bytes <= PDU_HEADER_MAX && h.pad < 256);
	must(h.data_len <= prm->data_max || h.data_len <= 128);
	if (size < h.header_bytes)
		return 0;
	memcpy(bytes, data, h.header_bytes);
	if (h.flags & NVME_TCP_HDGSTF) {
		uint32_t crc = crypto_crc32c(bytes, h.header_bytes - 4);

		memcpy(bytes + h.header_bytes - 4, &crc, 4);
	}
	memset(&p, 0, sizeof(p));
	r = pdu_parse(bytes, &h, &p, &fault, &err);
	if (r < 0) {
		must(fault.fes);
		must_refuse(r, &err);
		return 0;
	}
	if (h.type == NVME_TCP_ICREQ)
		must(p.icreq.align >= 4 && p.icreq.align <= 128 && p.icreq.r2ts_max >= 1);
	if (h.type == NVME_TCP_ICRESP)
		must(p.icresp.align >= 4 && p.icresp.h2c_data_max >= 4096);
	built_again(&p, bytes, prm);
	return (size_t)h.header_bytes + h.pad + h.data_len + h.data_digest_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pdu_params prm = {.data_max = 1u << 20};
	enum pdu_side from;
	bool first;

	if (size < 1)
		return 0;
	from = data[0] & 1 ? PDU_FROM_HOST : PDU_FROM_TARGET;
	prm.header_digest = data[0] & 2;
	prm.data_digest = data[0] & 4;
	first = data[0] & 8;
	prm.align = 4u << (data[0] >> 4 & 3);
	data++, size--;
	while (size >= PDU_CH_LEN) {
		size_t n = one(data, size, from, first, &prm);

		if (!n || n > size)
			break;
		data += n;
		size -= n;
		first = false;
	}
	return 0;
}
