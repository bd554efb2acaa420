/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVMe/TCP PDUs (TCP 3.6): headers built and parsed. Both sides are here, for the target of our
 * tests and the fuzz targets. Pure: no allocation, no state, any thread.
 *
 * A receiver reads 8 bytes; pdu_head_parse says from them how long everything is. It reads the rest
 * of header_bytes; pdu_parse checks the header digest and gives the fields. Then follow `pad` bytes
 * to be thrown away, data_len bytes and data_digest_len bytes of CRC32C, the receiver's to check
 * with pdu_data_digest_check. What needs the state of a command (known id, offset in order, inside
 * the buffer, R2T within what was asked) is the queue's to check; pdu_fault names it.
 */
#ifndef ROS2_DATAPLANE_NVMF_PDU_H
#define ROS2_DATAPLANE_NVMF_PDU_H

#include "common/err.h"
#include "dataplane/nvmf/spec.h"
#include <stdbool.h>

#define PDU_CH_LEN     sizeof(struct nvme_tcp_ch)
#define PDU_HEADER_MAX 132u /* IC PDUs have 128; others at most 72 and a digest */
/* Header, digest and padding of a PDU that is sent: PDO is at most (31 + 1) * 4. */
#define PDU_SEND_MAX 128u

enum pdu_side { PDU_FROM_HOST, PDU_FROM_TARGET };

/* What holds for one direction of a connection. */
struct pdu_params {
	bool header_digest, data_digest; /* agreed by ICReq and ICResp; both false before */
	uint32_t align;                  /* of data in the PDU, bytes: (HPDA or CPDA + 1) * 4 */
	/* Most bytes of data in one PDU. Receiving: this side's bound. */
	uint32_t data_max;
};

/* From the common header alone. */
struct pdu_head {
	enum nvme_tcp_type type;
	uint8_t flags;           /* enum nvme_tcp_flag: only those the type may have */
	uint32_t header_bytes;   /* from byte 0, with the digest: 24..PDU_HEADER_MAX */
	uint32_t pad;            /* between header_bytes and data */
	uint32_t data_len;       /* bytes of data; of a TermReq: of the faulty PDU's header */
	uint8_t data_digest_len; /* 0 or 4 */
};
/* -EPROTO, with words and with *ret_fes, *ret_fei for a TermReq (ret_fault may be NULL); *ret then
 * is not written. Checks type (one that @from may send), flags, HLEN, PDO, PLEN and data_max. The
 * first PDU of a connection must be ICReq or ICResp and no other may: @first. */
struct pdu_fault {
	enum nvme_tcp_fes fes;
	uint32_t fei;
};
int pdu_head_parse(const uint8_t ch[PDU_CH_LEN], enum pdu_side from, bool first,
                   const struct pdu_params *params, struct pdu_head *ret,
                   struct pdu_fault *ret_fault, struct ros2_err *err);

/* The fields of a header, in host order; which member: by head.type. */
struct pdu {
	struct pdu_head head;
	union {
		struct {
			uint32_t align;    /* HPDA: of C2HData's data, bytes */
			uint32_t r2ts_max; /* outstanding for one command, >= 1 */
			bool header_digest, data_digest;
		} icreq;
		struct {
			uint32_t align;        /* CPDA: of H2CData's and CapsuleCmd's data, bytes */
			uint32_t h2c_data_max; /* bytes in one H2CData: >= 4096, multiple of 4 */
			bool header_digest, data_digest;
		} icresp;
		struct nvme_sqe sqe; /* CapsuleCmd */
		struct nvme_cqe cqe; /* CapsuleResp */
		struct {             /* H2CData, C2HData, R2T */
			uint16_t cid;
			uint16_t tag;    /* TTAG; 0 for C2HData */
			uint32_t offset; /* in the data of the command */
			uint32_t length; /* 1 or more; offset + length does not wrap */
			bool last, success;
		} data;
		struct {
			uint16_t fes; /* enum nvme_tcp_fes, or one that is not known here */
			uint32_t fei;
		} term;
	};
};
/* @bytes: head->header_bytes of them, from byte 0. -EBADMSG: the header digest is wrong; -EPROTO:
 * a field. Faults as above. */
int pdu_parse(const uint8_t *bytes, const struct pdu_head *head, struct pdu *ret,
              struct pdu_fault *ret_fault, struct ros2_err *err);

/* "C2HData"; "unknown PDU". */
const char *pdu_type_to_str(unsigned type);
/* "PDU header field", "header digest", ...; "unknown error". */
const char *pdu_fes_to_str(unsigned fes);

/* ---- built: header, digest and padding into @out; data and its digest follow. Each returns the
 * bytes written, <= PDU_SEND_MAX (IC PDUs: 128). @data_len is checked by the caller against what
 * the peer takes. @params: of the direction in which it is sent. ---- */

/* What this side offers. @align: a multiple of 4, 4..128. */
size_t pdu_build_icreq(uint8_t out[PDU_SEND_MAX], uint32_t align, uint32_t r2ts_max,
                       bool header_digest, bool data_digest);
size_t pdu_build_icresp(uint8_t out[PDU_SEND_MAX], uint32_t align, uint32_t h2c_data_max,
                        bool header_digest, bool data_digest);
/* @data_len: of in-capsule data, 0 for none. */
size_t pdu_build_capsule_cmd(uint8_t out[PDU_SEND_MAX], const struct nvme_sqe *sqe,
                             uint32_t data_len, const struct pdu_params *params);
size_t pdu_build_capsule_resp(uint8_t out[PDU_SEND_MAX], const struct nvme_cqe *cqe,
                              const struct pdu_params *params);
size_t pdu_build_h2c_data(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint16_t tag, uint32_t offset,
                          uint32_t data_len, bool last, const struct pdu_params *params);
/* @success: with @last, and no response capsule follows. */
size_t pdu_build_c2h_data(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint32_t offset,
                          uint32_t data_len, bool last, bool success,
                          const struct pdu_params *params);
size_t pdu_build_r2t(uint8_t out[PDU_SEND_MAX], uint16_t cid, uint16_t tag, uint32_t offset,
                     uint32_t length, const struct pdu_params *params);
/* The whole TermReq, with up to 128 bytes of the header at fault. @out: NVME_TCP_TERM_MAX. */
size_t pdu_build_term(uint8_t out[NVME_TCP_TERM_MAX], enum pdu_side from,
                      const struct pdu_fault *fault, const void *bad, size_t bad_len);

/* ---- data digest: CRC32C (TCP 3.3.1.1) over data in pieces ---- */

/* Of the data so far; begin with 0. */
uint32_t pdu_data_digest(uint32_t digest, const void *p, size_t n);
/* As it travels: little-endian. */
void pdu_data_digest_put(uint32_t digest, uint8_t out[NVME_TCP_DIGEST_LEN]);
/* -EBADMSG with words. A wrong data digest is the fault of one command, not of the connection (TCP
 * 3.3.1.1.2); the queue may treat it as both. */
int pdu_data_digest_check(uint32_t digest, const uint8_t received[NVME_TCP_DIGEST_LEN],
                          struct ros2_err *err);
#endif
