/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands built, and answers turned into checked values in host order (spec.h has the layout).
 * Pure: no allocation, no state, any thread. Builders fill the whole SQE but for the command id and
 * the data pointer, which are the queue's: it knows the transport. Parsers read hostile bytes: they
 * write *ret only on success; else -EPROTO with words "target sent ...: expected ..., found ...",
 * and the controller must not be used.
 */
#ifndef ROS2_DATAPLANE_NVMF_CODEC_H
#define ROS2_DATAPLANE_NVMF_CODEC_H

#include "common/err.h"
#include "dataplane/nvmf/config.h"
#include "dataplane/nvmf/spec.h"
#include <stdbool.h>

/* ---- names ---- */

/* @status: of a CQE without its phase bit (cqe.status >> 1); DNR, More and CRD are ignored. "LBA
 * out of range"; "unknown status" for a code that spec.h does not have. Never NULL. */
const char *nvme_status_text(uint16_t status);
/* "READ", "Connect", "unknown command"; @io: of an I/O queue. Fabrics commands by their type. */
const char *nvme_sqe_name(const struct nvme_sqe *sqe, bool io);
const char *nvme_rdma_status_text(uint16_t sts); /* of a rejected connection request */

/* ---- data pointers (Base 4.1.2); the queue calls one of them for each command ---- */

/* -EINVAL if @len has more than 24 bits. @invalidate: the target invalidates the key as it answers.
 * A command without data has length 0, address 0, key 0. */
int nvme_sgl_keyed(struct nvme_sqe *sqe, uint64_t addr, uint32_t len, uint32_t key,
                   bool invalidate);
/* Data at @offset of the data of this capsule; @offset 0 unless ICDOFF says other. */
void nvme_sgl_in_capsule(struct nvme_sqe *sqe, uint64_t offset, uint32_t len);
/* NVMe/TCP: the data travels in PDUs of its own; length 0 for a command without data. */
void nvme_sgl_transport(struct nvme_sqe *sqe, uint32_t len);
/* What a target reads: any of the three kinds. -EINVAL for another type. Key 0 unless keyed. */
struct nvme_sgl_value {
	enum nvme_sgl_type type;
	uint64_t addr; /* or offset */
	uint32_t len, key;
};
int nvme_sgl_parse(const struct nvme_sqe *sqe, struct nvme_sgl_value *ret, struct ros2_err *err);

/* ---- Fabrics commands (Base 6) ---- */

/* @depth: entries of the queue (2..65536). @kato_ms: admin queue only, else 0. Data to the target:
 * struct nvme_connect_data. */
void nvme_cmd_connect(struct nvme_sqe *sqe, uint16_t qid, uint32_t depth, uint8_t cattr,
                      uint32_t kato_ms);
/* -EINVAL unless both are NQNs. @cntlid: NVME_CNTLID_DYNAMIC for the admin queue. */
int nvme_connect_data_fill(struct nvme_connect_data *data, const uint8_t hostid[16],
                           uint16_t cntlid, const char *subnqn, const char *hostnqn);
struct nvme_connected {
	uint16_t cntlid;     /* 0..NVME_CNTLID_MAX */
	bool authentication; /* the target wants DH-HMAC-CHAP before anything else */
};
/* For status 0. A demand for a secure channel is -EOPNOTSUPP. */
int nvme_connect_parse(const struct nvme_cqe *cqe, struct nvme_connected *ret,
                       struct ros2_err *err);
/* For another status: words that name the bad parameter, where the target told it. */
void nvme_connect_refusal(const struct nvme_cqe *cqe, char *buf, size_t len);
/* CAP has 8 bytes, the others have 4: the builders know. */
void nvme_cmd_property_get(struct nvme_sqe *sqe, uint32_t offset);
void nvme_cmd_property_set(struct nvme_sqe *sqe, uint32_t offset, uint64_t value);
uint64_t nvme_property_value(const struct nvme_cqe *cqe, uint32_t offset);
/* Data: to, and from, the target. */
void nvme_cmd_auth_send(struct nvme_sqe *sqe, uint32_t len);
void nvme_cmd_auth_receive(struct nvme_sqe *sqe, uint32_t len);
void nvme_cmd_disconnect(struct nvme_sqe *sqe);

struct nvme_cap {
	uint32_t entries_max;   /* of one I/O queue: 2..65536 */
	uint32_t ready_ms;      /* CC.EN to CSTS.RDY, either way: at least 500 */
	uint64_t page_size_min; /* bytes: the unit of MDTS */
	uint32_t cc;            /* what to write to CC to enable it: EN, entry sizes, command set */
};
int nvme_cap_parse(uint64_t cap, struct nvme_cap *ret, struct ros2_err *err);

/* ---- admin commands (Base 5) ---- */

/* Data from the target: NVME_IDENTIFY_LEN. */
void nvme_cmd_identify(struct nvme_sqe *sqe, enum nvme_cns cns, uint32_t nsid);
/* Data from the target: @len, a multiple of 4 and not 0; @offset too. @retain: the event stays. */
void nvme_cmd_get_log(struct nvme_sqe *sqe, enum nvme_log log, uint64_t offset, uint32_t len,
                      bool retain);
void nvme_cmd_set_feature(struct nvme_sqe *sqe, enum nvme_feature feature, uint32_t value);
void nvme_cmd_get_feature(struct nvme_sqe *sqe, enum nvme_feature feature);
void nvme_cmd_keep_alive(struct nvme_sqe *sqe);
void nvme_cmd_async_event(struct nvme_sqe *sqe);
void nvme_cmd_abort(struct nvme_sqe *sqe, uint16_t sqid, uint16_t cid);

/* Feature 07h, value of Set Features and answer: I/O queues (pairs) wanted and given, >= 1. */
uint32_t nvme_queues_value(uint32_t n);
uint32_t nvme_queues_given(const struct nvme_cqe *cqe);

struct nvme_event {
	uint8_t type; /* enum nvme_event_type, or one that is not known here */
	uint8_t info; /* of a notice: enum nvme_event_notice */
	uint8_t log;  /* to be read before the next event of its kind is sent */
};
void nvme_event_parse(const struct nvme_cqe *cqe, struct nvme_event *ret);

struct nvme_controller {
	uint16_t cntlid;
	enum nvme_cntrltype type;
	uint64_t max_transfer;     /* bytes of one command; UINT64_MAX: no limit told */
	uint32_t in_capsule_bytes; /* data an I/O command may carry: IOCCSZ less the SQE; 0: none */
	uint32_t in_capsule_offset;
	uint32_t max_commands;       /* outstanding on one queue; 0: not told */
	uint32_t namespaces;         /* greatest possible NSID; 0 for a discovery controller */
	uint32_t keep_alive_unit_ms; /* 0: not told */
	uint32_t command_quiesce_ms; /* CQT; 0: not told */
	uint32_t events;             /* OAES: enum nvme_async_config */
	uint8_t sgl_descriptors_max; /* MSDBD; 0: no limit told */
	uint8_t async_events_max;    /* AERL: outstanding requests, >= 1 */
	bool sgl_keyed, sgl_offset, sgl_dword_aligned;
	bool volatile_write_cache, has_dsm, has_write_zeroes, traffic_keeps_alive;
	char subnqn[NVMF_NQN_MAX + 1];
};
/* @data: NVME_IDENTIFY_LEN bytes. @cntlid: of the Connect; @subnqn: of the configuration, which a
 * discovery controller may answer with its own unique name. @page_size_min: of nvme_cap_parse. */
int nvme_controller_parse(const void *data, uint16_t cntlid, const char *subnqn,
                          uint64_t page_size_min, struct nvme_controller *ret,
                          struct ros2_err *err);

/* Limits of commands that clear blocks; UINT64_MAX: none was told. */
struct nvme_clear_limits {
	uint64_t zeroes_bytes;   /* of one Write Zeroes: WZSL */
	uint64_t discard_blocks; /* of one range alone in its command: DMRSL, DMSL */
};
/* @data: NVME_IDENTIFY_LEN bytes of CNS 06h. Any bytes have a meaning. */
void nvme_clear_limits_parse(const void *data, uint64_t page_size_min,
                             struct nvme_clear_limits *ret);

/* What a namespace is known by wherever it is seen, and as long as it lives; zeroes: not told. */
struct nvme_ns_ids {
	uint8_t nguid[16], eui64[8], uuid[16];
};

struct nvme_namespace {
	uint64_t blocks;        /* NSZE: 1 or more, and blocks << block_shift <= INT64_MAX */
	uint64_t capacity;      /* NCAP, blocks */
	uint8_t block_shift;    /* 9..16 */
	bool shared;            /* may be attached to more than one controller */
	struct nvme_ns_ids ids; /* but for the UUID */
};
/* @data: NVME_IDENTIFY_LEN bytes. -ENOENT: no active namespace of that id (all zeroes).
 * -EOPNOTSUPP: metadata, protection information, or a block size beyond 512..65536: sound, but not
 * for us. */
int nvme_namespace_parse(const void *data, struct nvme_namespace *ret, struct ros2_err *err);
/* @data: NVME_IDENTIFY_LEN bytes of CNS 03h. What it tells goes over what is in @ids, which an
 * error leaves alone. */
int nvme_ns_ids_parse(const void *data, struct nvme_ns_ids *ids, struct ros2_err *err);

/* A list of namespace ids: CNS 02h, log 04h; @data: 4096 bytes. *ret_n ids, 1..0xfffffffe, strictly
 * rising and above @above. Log 04h may say "too many to tell": then *ret_n is 0 and *ret_all. */
int nvme_ns_list_parse(const void *data, uint32_t above, uint32_t ret[NVME_NS_LIST_MAX],
                       uint32_t *ret_n, bool *ret_all, struct ros2_err *err);

/* ---- I/O commands (NVM 3.2) ---- */

/* @blocks: 1..NVME_RW_BLOCKS_MAX; the caller has checked the range against the namespace. */
void nvme_cmd_read(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks);
void nvme_cmd_write(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks, bool fua);
void nvme_cmd_flush(struct nvme_sqe *sqe, uint32_t nsid);
void nvme_cmd_write_zeroes(struct nvme_sqe *sqe, uint32_t nsid, uint64_t lba, uint32_t blocks,
                           bool deallocate);
/* Deallocate @n ranges (1..NVME_DSM_RANGES_MAX): data to the target, n * struct nvme_dsm_range. */
void nvme_cmd_deallocate(struct nvme_sqe *sqe, uint32_t nsid, uint32_t n);

/* ---- NVMe/RDMA private data (RDMA 3.2) ---- */

/* @depth: entries of the queue, 2..65535. */
void nvme_rdma_request_fill(struct nvme_rdma_request *req, uint16_t qid, uint32_t depth,
                            uint16_t cntlid);
/* Of an accepted connection: *ret_depth entries of the target's receive queue, 1 or more. Longer
 * private data than asked for is normal (the CM pads). */
int nvme_rdma_accept_parse(const void *data, size_t len, uint32_t *ret_depth, struct ros2_err *err);
/* Of a rejected one: 0 and *ret_status, or -EPROTO where the rejection is not the target's. */
int nvme_rdma_reject_parse(const void *data, size_t len, uint16_t *ret_status,
                           struct ros2_err *err);

/* ---- text ---- */

/* "nqn.", at most 223 bytes of UTF-8 without control characters (Base 4.5). */
bool nvme_nqn_valid(const char *nqn);
/* A fixed field (padded with NUL, or blanks at its end) as text: -EPROTO if it does not fit
 * @ret_size with a NUL or is not printable UTF-8. @what names it in the words. */
int nvme_text_parse(const char *field, size_t len, const char *what, char *ret, size_t ret_size,
                    struct ros2_err *err);
#endif
