/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels, as the specifications lay it out: NVMe Base 2.0 ("Base"; it holds NVMe over
 * Fabrics), NVM Command Set 1.0 ("NVM"), NVMe/TCP 1.0 ("TCP"), NVMe/RDMA 1.0 ("RDMA"). Packed,
 * little-endian, offsets asserted; fields that nothing here uses are `reserved`. No function is in
 * it, and nothing of it may be believed before codec.h, pdu.h or discover.h has checked it.
 */
#ifndef ROS2_DATAPLANE_NVMF_SPEC_H
#define ROS2_DATAPLANE_NVMF_SPEC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define NVME_ASSERT(c, m) static_assert(c, m)
#else
#define NVME_ASSERT(c, m) _Static_assert(c, m)
#endif
#define NVME_PACKED             __attribute__((packed))
#define NVME_SIZE(type, n)      NVME_ASSERT(sizeof(type) == (n), #type)
#define NVME_AT(type, field, n) NVME_ASSERT(offsetof(type, field) == (n), #type "." #field)
NVME_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the specifications are little-endian");

/* ---- commands and completions ---- */

#define NVME_NQN_FIELD      256 /* Base 4.5: at most 223 bytes and a NUL, in a field of 256 */
#define NVME_IDENTIFY_LEN   4096u
#define NVME_NSID_ALL       0xffffffffu
#define NVME_CNTLID_DYNAMIC 0xffffu                                /* Base 6.3 */
#define NVME_CNTLID_MAX     0xffefu                                /* Base 3.1.1 */
#define NVME_DISCOVERY_NQN  "nqn.2014-08.org.nvmexpress.discovery" /* Base 4.5.1 */

/* Base 4.1.2.1: byte 15 of a descriptor, type << 4 | subtype. */
enum nvme_sgl_type {
	NVME_SGL_DATA_OFFSET = 0x01,      /* in the capsule, at an offset from its data */
	NVME_SGL_KEYED = 0x40,            /* RDMA */
	NVME_SGL_KEYED_INVALIDATE = 0x4f, /* RDMA: the target invalidates the key when it answers */
	NVME_SGL_TRANSPORT = 0x5a,        /* TCP: data in PDUs of its own */
};
struct nvme_sgl { /* data block, and transport data block (addr reserved) */
	uint64_t addr;
	uint32_t length;
	uint8_t reserved[3];
	uint8_t type;
} NVME_PACKED;
struct nvme_sgl_keyed { /* Base 4.1.2.1, keyed SGL data block */
	uint64_t addr;
	uint8_t length[3];
	uint8_t key[4];
	uint8_t type;
} NVME_PACKED;
NVME_SIZE(struct nvme_sgl, 16);
NVME_SIZE(struct nvme_sgl_keyed, 16);
#define NVME_SGL_KEYED_LENGTH_MAX 0xffffffu

#define NVME_FLAG_SGL                                                                              \
	0x40 /* Base 3.3.3.1, PSDT 01b: the data pointer is an SGL; always in fabrics */

/* Base 3.3.3.1: common command format. */
struct nvme_sqe {
	uint8_t opcode;
	uint8_t flags;
	uint16_t cid;
	uint32_t nsid;
	uint32_t cdw2, cdw3;
	uint64_t mptr;
	union {
		struct nvme_sgl sgl;
		struct nvme_sgl_keyed keyed;
	} NVME_PACKED dptr;
	uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
} NVME_PACKED;
NVME_SIZE(struct nvme_sqe, 64);
NVME_AT(struct nvme_sqe, dptr, 24);
NVME_AT(struct nvme_sqe, cdw10, 40);

/* Base 3.3.3.2. In fabrics SQID and the phase bit are reserved. */
struct nvme_cqe {
	uint32_t dw0, dw1;
	uint16_t sq_head;
	uint16_t sqid;
	uint16_t cid;
	uint16_t status; /* bit 0 phase; the rest: NVME_STATUS_* */
} NVME_PACKED;
NVME_SIZE(struct nvme_cqe, 16);
NVME_AT(struct nvme_cqe, status, 14);

enum nvme_admin_opcode { /* Base 5 */
	                 NVME_ADMIN_GET_LOG_PAGE = 0x02,
	                 NVME_ADMIN_IDENTIFY = 0x06,
	                 NVME_ADMIN_ABORT = 0x08,
	                 NVME_ADMIN_SET_FEATURES = 0x09,
	                 NVME_ADMIN_GET_FEATURES = 0x0a,
	                 NVME_ADMIN_ASYNC_EVENT = 0x0c,
	                 NVME_ADMIN_KEEP_ALIVE = 0x18,
	                 NVME_FABRICS = 0x7f, /* Base 6; on every queue */
};
enum nvme_io_opcode { /* NVM 3.2; Base 7.1 (flush) */
	              NVME_IO_FLUSH = 0x00,
	              NVME_IO_WRITE = 0x01,
	              NVME_IO_READ = 0x02,
	              NVME_IO_WRITE_ZEROES = 0x08,
	              NVME_IO_DSM = 0x09,
};

/* Base 3.3.3.2.1: the status of a completion without its phase bit. */
#define NVME_STATUS_CODE(status) ((uint16_t)((status)&0x7ff)) /* SCT << 8 | SC */
#define NVME_STATUS_CRD(status)  (((status) >> 11) & 3)
#define NVME_STATUS_MORE         0x2000
#define NVME_STATUS_DNR          0x4000 /* do not retry */

/* X(SCT << 8 | SC, NAME, "what it means"): those a fabrics host meets. 180h.. are of Base 6.3 and
 * 6.4 in answers to Fabrics commands, of NVM 3.2 in others: the words tell both. */
/* clang-format off */
#define NVME_STATUS_LIST(X)                                                                        \
	X(0x000, SUCCESS, "success")                                                               \
	X(0x001, INVALID_OPCODE, "invalid command opcode")                                         \
	X(0x002, INVALID_FIELD, "invalid field in command")                                        \
	X(0x003, CID_CONFLICT, "command id conflict")                                              \
	X(0x004, DATA_TRANSFER_ERROR, "data transfer error")                                       \
	X(0x005, POWER_LOSS, "aborted due to power loss")                                          \
	X(0x006, INTERNAL, "internal error of the target")                                         \
	X(0x007, ABORT_REQUESTED, "aborted by request")                                            \
	X(0x008, ABORT_SQ_DELETED, "aborted as its queue was deleted")                             \
	X(0x00b, INVALID_NAMESPACE, "invalid namespace or format")                                 \
	X(0x00c, SEQUENCE_ERROR, "command sequence error")                                         \
	X(0x00d, SGL_SEGMENT, "invalid SGL segment descriptor")                                    \
	X(0x00e, SGL_COUNT, "invalid number of SGL descriptors")                                   \
	X(0x00f, SGL_DATA_LENGTH, "data SGL length invalid")                                       \
	X(0x010, SGL_METADATA_LENGTH, "metadata SGL length invalid")                               \
	X(0x011, SGL_TYPE, "SGL descriptor type invalid")                                          \
	X(0x015, OPERATION_DENIED, "operation denied")                                             \
	X(0x016, SGL_OFFSET, "SGL offset invalid")                                                 \
	X(0x018, HOSTID_FORMAT, "inconsistent format of the host identifier")                      \
	X(0x019, KEEP_ALIVE_EXPIRED, "keep alive timer expired")                                   \
	X(0x01a, KEEP_ALIVE_INVALID, "keep alive time-out invalid")                                \
	X(0x01b, PREEMPTED, "aborted by preempt and abort")                                        \
	X(0x01c, SANITIZE_FAILED, "sanitize failed")                                               \
	X(0x01d, SANITIZE_IN_PROGRESS, "sanitize in progress")                                     \
	X(0x01e, SGL_GRANULARITY, "SGL data block granularity invalid")                            \
	X(0x020, WRITE_PROTECTED, "the namespace is write protected")                              \
	X(0x021, INTERRUPTED, "command interrupted")                                               \
	X(0x022, TRANSPORT_ERROR, "transient transport error")                                     \
	X(0x024, MEDIA_NOT_READY, "media not ready")                                               \
	X(0x080, LBA_RANGE, "LBA out of range")                                                    \
	X(0x081, CAPACITY, "capacity exceeded")                                                    \
	X(0x082, NS_NOT_READY, "namespace not ready")                                              \
	X(0x083, RESERVATION, "reservation conflict")                                              \
	X(0x084, FORMATTING, "format in progress")                                                 \
	X(0x101, INVALID_QID, "invalid queue identifier")                                          \
	X(0x102, INVALID_QUEUE_SIZE, "invalid queue size")                                         \
	X(0x105, ASYNC_LIMIT, "asynchronous event request limit exceeded")                         \
	X(0x109, INVALID_LOG_PAGE, "invalid log page")                                             \
	X(0x10d, NOT_SAVEABLE, "feature identifier not saveable")                                  \
	X(0x10e, NOT_CHANGEABLE, "feature not changeable")                                         \
	X(0x180, CONNECT_FORMAT, "incompatible format of Connect, or conflicting attributes")      \
	X(0x181, CONNECT_BUSY, "controller busy, or invalid protection information")               \
	X(0x182, CONNECT_PARAMETER, "invalid parameters of Connect, or write to a read-only range")\
	X(0x183, CONNECT_RESTART, "restart discovery, or command size limit exceeded")             \
	X(0x184, CONNECT_HOST, "this host is not allowed")                                         \
	X(0x185, DISCONNECT_QUEUE, "invalid queue type for Disconnect")                            \
	X(0x190, DISCOVER_RESTART, "the log changed: read it again")                               \
	X(0x191, AUTH_REQUIRED, "authentication required")                                         \
	X(0x280, WRITE_FAULT, "write fault")                                                       \
	X(0x281, READ_ERROR, "unrecovered read error")                                             \
	X(0x282, GUARD, "end-to-end guard check error")                                            \
	X(0x283, APPTAG, "end-to-end application tag check error")                                 \
	X(0x284, REFTAG, "end-to-end reference tag check error")                                   \
	X(0x285, COMPARE, "compare failure")                                                       \
	X(0x286, ACCESS_DENIED, "access denied")                                                   \
	X(0x287, UNWRITTEN, "deallocated or unwritten block")                                      \
	X(0x300, PATH_INTERNAL, "internal path error")                                             \
	X(0x301, ANA_PERSISTENT_LOSS, "asymmetric access: persistent loss")                        \
	X(0x302, ANA_INACCESSIBLE, "asymmetric access: inaccessible")                              \
	X(0x303, ANA_TRANSITION, "asymmetric access: transition")                                  \
	X(0x360, PATH_CONTROLLER, "controller path error")                                         \
	X(0x370, PATH_HOST, "host path error")                                                     \
	X(0x371, PATH_ABORTED, "aborted by the host")
/* clang-format on */
enum nvme_status {
#define X(num, name, text) NVME_SC_##name = num,
	NVME_STATUS_LIST(X)
#undef X
};

/* ---- Fabrics commands: Base 6 ---- */

enum nvme_fctype {
	NVME_FC_PROPERTY_SET = 0x00,
	NVME_FC_CONNECT = 0x01,
	NVME_FC_PROPERTY_GET = 0x04,
	NVME_FC_AUTH_SEND = 0x05,
	NVME_FC_AUTH_RECEIVE = 0x06,
	NVME_FC_DISCONNECT = 0x08,
};
enum nvme_connect_attribute { /* Base 6.3, CATTR */
	                      NVME_CONNECT_NO_SQ_FLOW = 1u << 2,
	                      NVME_CONNECT_QUEUE_DELETION = 1u << 3,
};
struct nvme_connect_cmd { /* Base 6.3 */
	uint8_t opcode, flags;
	uint16_t cid;
	uint8_t fctype;
	uint8_t reserved5[19];
	struct nvme_sgl sgl;
	uint16_t recfmt;
	uint16_t qid;
	uint16_t sqsize; /* entries - 1 */
	uint8_t cattr;
	uint8_t reserved47;
	uint32_t kato_ms; /* admin queue only */
	uint8_t reserved52[12];
} NVME_PACKED;
NVME_SIZE(struct nvme_connect_cmd, 64);
NVME_AT(struct nvme_connect_cmd, sgl, 24);
NVME_AT(struct nvme_connect_cmd, kato_ms, 48);
struct nvme_connect_data { /* Base 6.3 */
	uint8_t hostid[16];
	uint16_t cntlid;
	uint8_t reserved18[238];
	char subnqn[NVME_NQN_FIELD];
	char hostnqn[NVME_NQN_FIELD];
	uint8_t reserved768[256];
} NVME_PACKED;
NVME_SIZE(struct nvme_connect_data, 1024);
NVME_AT(struct nvme_connect_data, subnqn, 256);
NVME_AT(struct nvme_connect_data, hostnqn, 512);
/* Base 6.3: DW0 of the answer. With status CONNECT_PARAMETER: offset (15:0), in the data (16). */
#define NVME_CONNECT_CNTLID(dw0)      ((uint16_t)((dw0)&0xffff))
#define NVME_CONNECT_AUTH             (1u << 17) /* AUTHREQ.ATR: an authentication transaction */
#define NVME_CONNECT_AUTH_CHANNEL     (1u << 18) /* AUTHREQ.ASCR: and a secure channel */
#define NVME_CONNECT_BAD_OFFSET(dw0)  ((uint16_t)((dw0)&0xffff))
#define NVME_CONNECT_BAD_IN_DATA(dw0) (((dw0) >> 16) & 1)

struct nvme_property_cmd { /* Base 6.5 (get: value reserved), 6.6 */
	uint8_t opcode, flags;
	uint16_t cid;
	uint8_t fctype;
	uint8_t reserved5[35];
	uint8_t attrib; /* bits 2:0: 0 = 4 bytes, 1 = 8 bytes */
	uint8_t reserved41[3];
	uint32_t offset;
	uint64_t value;
	uint8_t reserved56[8];
} NVME_PACKED;
NVME_SIZE(struct nvme_property_cmd, 64);
NVME_AT(struct nvme_property_cmd, offset, 44);
NVME_AT(struct nvme_property_cmd, value, 48);

#define NVME_AUTH_SECP  0xe9 /* Base 6.1, 6.2: SECP, SPSP0, SPSP1 of in-band authentication */
#define NVME_AUTH_SPSP0 0x01
#define NVME_AUTH_SPSP1 0x01
struct nvme_auth_cmd { /* Base 6.1 (receive), 6.2 (send) */
	uint8_t opcode, flags;
	uint16_t cid;
	uint8_t fctype;
	uint8_t reserved5[19];
	struct nvme_sgl sgl;
	uint8_t reserved40;
	uint8_t spsp0, spsp1, secp;
	uint32_t length; /* send: transfer length; receive: allocation length */
	uint8_t reserved48[16];
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_cmd, 64);
NVME_AT(struct nvme_auth_cmd, length, 44);

struct nvme_disconnect_cmd { /* Base 6.4 */
	uint8_t opcode, flags;
	uint16_t cid;
	uint8_t fctype;
	uint8_t reserved5[35];
	uint16_t recfmt;
	uint8_t reserved42[22];
} NVME_PACKED;
NVME_SIZE(struct nvme_disconnect_cmd, 64);
NVME_AT(struct nvme_disconnect_cmd, recfmt, 40);

/* ---- controller properties: Base 3.1.3 ---- */

enum nvme_property {
	NVME_PROP_CAP = 0x00, /* 8 bytes, the others 4 */
	NVME_PROP_VS = 0x08,
	NVME_PROP_CC = 0x14,
	NVME_PROP_CSTS = 0x1c,
	NVME_PROP_NSSR = 0x20,
	NVME_PROP_CRTO = 0x68,
};
#define NVME_CAP_MQES(cap)   ((uint32_t)((cap)&0xffff))       /* entries - 1 */
#define NVME_CAP_TO(cap)     ((uint32_t)((cap) >> 24 & 0xff)) /* 500 ms */
#define NVME_CAP_CSS(cap)    ((uint32_t)((cap) >> 37 & 0xff))
#define NVME_CAP_MPSMIN(cap) ((uint32_t)((cap) >> 48 & 0xf)) /* 2^(12 + n) bytes */
#define NVME_CAP_MPSMAX(cap) ((uint32_t)((cap) >> 52 & 0xf))
#define NVME_CAP_CRMS(cap)   ((uint32_t)((cap) >> 59 & 3))
#define NVME_CAP_CSS_NVM     0x01u
#define NVME_CAP_CSS_IOCS    0x40u /* one or more I/O command sets */
#define NVME_CAP_CSS_NO_IO   0x80u
#define NVME_CC_EN           1u
#define NVME_CC_CSS_IOCS     (6u << 4) /* all supported I/O command sets */
#define NVME_CC_MPS(n)       ((uint32_t)(n) << 7)
#define NVME_CC_SHN_NORMAL   (1u << 14)
#define NVME_CC_SHN_MASK     (3u << 14)
#define NVME_CC_IOSQES       (6u << 16) /* 64 bytes */
#define NVME_CC_IOCQES       (4u << 20) /* 16 bytes */
#define NVME_CSTS_RDY        1u
#define NVME_CSTS_CFS        2u /* fatal */
#define NVME_CSTS_SHST(csts) (((csts) >> 2) & 3)
#define NVME_SHST_DONE       2u

/* ---- admin commands: Base 5 ---- */

enum nvme_cns { /* Base 5.17 */
	        NVME_CNS_NAMESPACE = 0x00,
	        NVME_CNS_CONTROLLER = 0x01,
	        NVME_CNS_ACTIVE_LIST = 0x02,
	        NVME_CNS_NS_DESCRIPTORS = 0x03,
	        NVME_CNS_COMMAND_SET = 0x06, /* controller, of the NVM command set: CSI 0 */
};
#define NVME_NS_LIST_MAX 1024u
enum nvme_log { /* Base 5.16 */
	        NVME_LOG_CHANGED_NAMESPACES = 0x04,
	        NVME_LOG_DISCOVERY = 0x70,
};
#define NVME_LOG_RAE (1u << 15) /* retain the asynchronous event, in CDW10 */
enum nvme_feature {             /* Base 5.27.1 */
	            NVME_FEAT_VOLATILE_WRITE_CACHE = 0x06,
	            NVME_FEAT_QUEUES = 0x07,
	            NVME_FEAT_ASYNC_EVENTS = 0x0b,
	            NVME_FEAT_KEEP_ALIVE = 0x0f,
};
enum nvme_async_config { /* Base 5.27.1.8; the same bits in OAES */
	                 NVME_AEC_NS_ATTRIBUTE = 1u << 8,
	                 NVME_AEC_ANA = 1u << 11,
	                 NVME_AEC_DISCOVERY = 1u << 31,
};
enum nvme_event_type { /* Base 5.2.1: DW0 bits 2:0 */
	               NVME_EVENT_ERROR = 0,
	               NVME_EVENT_SMART = 1,
	               NVME_EVENT_NOTICE = 2,
	               NVME_EVENT_IO_SPECIFIC = 6,
	               NVME_EVENT_VENDOR = 7,
};
enum nvme_event_notice { /* DW0 bits 15:8 of a notice */
	                 NVME_NOTICE_NS_ATTRIBUTE = 0x00,
	                 NVME_NOTICE_ANA = 0x03,
	                 NVME_NOTICE_DISCOVERY = 0xf0,
};

struct nvme_identify_ctrl { /* Base 5.17.2.1 (CNS 01h) */
	uint16_t vid, ssvid;
	char sn[20];
	char mn[40];
	char fr[8];
	uint8_t rab, ieee[3], cmic;
	uint8_t mdts; /* 2^n pages of CAP.MPSMIN; 0 = no limit */
	uint16_t cntlid;
	uint32_t ver, rtd3r, rtd3e;
	uint32_t oaes;
	uint32_t ctratt;
	uint8_t reserved100[11];
	uint8_t cntrltype; /* enum nvme_cntrltype */
	uint8_t fguid[16];
	uint8_t reserved128[128];
	uint16_t oacs;
	uint8_t acl, aerl, frmw, lpa;
	uint8_t reserved262[58];
	uint16_t kas; /* 100 ms */
	uint8_t reserved322[64];
	uint16_t cqt; /* ms; Base 2.1 */
	uint8_t reserved388[124];
	uint8_t sqes, cqes;
	uint16_t maxcmd;
	uint32_t nn;
	uint16_t oncs;
	uint16_t fuses;
	uint8_t fna, vwc;
	uint16_t awun, awupf;
	uint8_t icsvscc, nwpc;
	uint16_t acwu, ocfs;
	uint32_t sgls;
	uint32_t mnan;
	uint8_t reserved544[224];
	char subnqn[NVME_NQN_FIELD];
	uint8_t reserved1024[768];
	uint32_t ioccsz; /* 16 bytes */
	uint32_t iorcsz; /* 16 bytes */
	uint16_t icdoff; /* 16 bytes */
	uint8_t fcatt;
	uint8_t msdbd;
	uint16_t ofcs;
	uint8_t dctype;
	uint8_t reserved1807[2289];
} NVME_PACKED;
NVME_SIZE(struct nvme_identify_ctrl, 4096);
NVME_AT(struct nvme_identify_ctrl, mdts, 77);
NVME_AT(struct nvme_identify_ctrl, cntlid, 78);
NVME_AT(struct nvme_identify_ctrl, ver, 80);
NVME_AT(struct nvme_identify_ctrl, oaes, 92);
NVME_AT(struct nvme_identify_ctrl, ctratt, 96);
NVME_AT(struct nvme_identify_ctrl, cntrltype, 111);
NVME_AT(struct nvme_identify_ctrl, oacs, 256);
NVME_AT(struct nvme_identify_ctrl, kas, 320);
NVME_AT(struct nvme_identify_ctrl, cqt, 386);
NVME_AT(struct nvme_identify_ctrl, sqes, 512);
NVME_AT(struct nvme_identify_ctrl, maxcmd, 514);
NVME_AT(struct nvme_identify_ctrl, nn, 516);
NVME_AT(struct nvme_identify_ctrl, oncs, 520);
NVME_AT(struct nvme_identify_ctrl, vwc, 525);
NVME_AT(struct nvme_identify_ctrl, sgls, 536);
NVME_AT(struct nvme_identify_ctrl, subnqn, 768);
NVME_AT(struct nvme_identify_ctrl, ioccsz, 1792);
NVME_AT(struct nvme_identify_ctrl, icdoff, 1800);
NVME_AT(struct nvme_identify_ctrl, msdbd, 1803);
enum nvme_cntrltype {
	NVME_CNTRLTYPE_UNREPORTED = 0,
	NVME_CNTRLTYPE_IO = 1,
	NVME_CNTRLTYPE_DISCOVERY = 2,
	NVME_CNTRLTYPE_ADMIN = 3,
};
struct nvme_identify_nvm { /* NVM 4.1.5.2 (CNS 06h, CSI 0); 0 = no limit told */
	uint8_t vsl;
	uint8_t wzsl; /* write zeroes: 2^n pages of CAP.MPSMIN */
	uint8_t wusl;
	uint8_t dmrl;   /* dataset management: ranges of one command */
	uint32_t dmrsl; /* blocks of one range */
	uint64_t dmsl;  /* blocks of one command */
	uint8_t reserved16[4080];
} NVME_PACKED;
NVME_SIZE(struct nvme_identify_nvm, 4096);
NVME_AT(struct nvme_identify_nvm, wzsl, 1);
NVME_AT(struct nvme_identify_nvm, dmrsl, 4);
NVME_AT(struct nvme_identify_nvm, dmsl, 8);
#define NVME_CTRATT_TBKAS (1u << 6) /* traffic based keep alive */
#define NVME_ONCS_DSM     (1u << 2)
#define NVME_ONCS_ZEROES  (1u << 3)
#define NVME_VWC_PRESENT  1u
#define NVME_SGLS_MASK    3u /* 1, 2: SGLs supported, aligned as it says */
#define NVME_SGLS_DWORD   2u /* dword granularity and alignment */
#define NVME_SGLS_KEYED   (1u << 2)
#define NVME_SGLS_OFFSET  (1u << 20) /* data block with an offset: in-capsule data */
#define NVME_CAPSULE_UNIT 16u

struct nvme_lbaf { /* NVM 4.1.5.1 */
	uint16_t ms;
	uint8_t lbads; /* 2^n bytes */
	uint8_t rp;
} NVME_PACKED;
#define NVME_LBAF_COUNT 64
struct nvme_identify_ns { /* NVM 4.1.5.1 (CNS 00h) */
	uint64_t nsze, ncap, nuse;
	uint8_t nsfeat, nlbaf, flbas, mc, dpc, dps, nmic, rescap;
	uint8_t fpi, dlfeat;
	uint8_t reserved34[48];
	uint8_t nulbaf;
	uint8_t reserved83[21];
	uint8_t nguid[16];
	uint8_t eui64[8];
	struct nvme_lbaf lbaf[NVME_LBAF_COUNT];
	uint8_t reserved384[3712];
} NVME_PACKED;
NVME_SIZE(struct nvme_identify_ns, 4096);
NVME_AT(struct nvme_identify_ns, nlbaf, 25);
NVME_AT(struct nvme_identify_ns, flbas, 26);
NVME_AT(struct nvme_identify_ns, dps, 29);
NVME_AT(struct nvme_identify_ns, nmic, 30);
NVME_AT(struct nvme_identify_ns, dlfeat, 33);
NVME_AT(struct nvme_identify_ns, nulbaf, 82);
NVME_AT(struct nvme_identify_ns, nguid, 104);
NVME_AT(struct nvme_identify_ns, eui64, 120);
NVME_AT(struct nvme_identify_ns, lbaf, 128);
#define NVME_DPS_TYPE_MASK 7u
#define NVME_NMIC_SHARED   1u

enum nvme_nidt { /* Base 5.17.2.3 (CNS 03h) */
	         NVME_NIDT_EUI64 = 1,
	         NVME_NIDT_NGUID = 2,
	         NVME_NIDT_UUID = 3,
};
struct nvme_ns_descriptor { /* before its value; a type of 0 ends the list */
	uint8_t nidt, nidl;
	uint8_t reserved2[2];
} NVME_PACKED;
NVME_SIZE(struct nvme_ns_descriptor, 4);

/* ---- I/O commands: NVM 3.2 ---- */

#define NVME_RW_FUA         (1u << 30) /* CDW12 */
#define NVME_ZEROES_DEALLOC (1u << 25) /* CDW12 of write zeroes */
#define NVME_RW_BLOCKS_MAX  65536u     /* CDW12 bits 15:0 are blocks - 1 */
#define NVME_DSM_DEALLOCATE (1u << 2)  /* CDW11 */
#define NVME_DSM_RANGES_MAX 256u
struct nvme_dsm_range { /* NVM 3.2.3 */
	uint32_t attributes;
	uint32_t blocks;
	uint64_t slba;
} NVME_PACKED;
NVME_SIZE(struct nvme_dsm_range, 16);

/* ---- discovery log page: Base 5.16.1.23 ---- */

struct nvme_discovery_entry {
	uint8_t trtype, adrfam, subtype, treq;
	uint16_t portid, cntlid, asqsz, eflags;
	uint8_t reserved12[20];
	char trsvcid[32];
	uint8_t reserved64[192];
	char subnqn[NVME_NQN_FIELD];
	char traddr[256];
	uint8_t tsas[256];
} NVME_PACKED;
NVME_SIZE(struct nvme_discovery_entry, 1024);
NVME_AT(struct nvme_discovery_entry, trsvcid, 32);
NVME_AT(struct nvme_discovery_entry, subnqn, 256);
NVME_AT(struct nvme_discovery_entry, traddr, 512);
NVME_AT(struct nvme_discovery_entry, tsas, 768);
struct nvme_discovery_header {
	uint64_t genctr;
	uint64_t numrec;
	uint16_t recfmt;
	uint8_t reserved18[1006];
} NVME_PACKED;
NVME_SIZE(struct nvme_discovery_header, 1024);
NVME_AT(struct nvme_discovery_header, recfmt, 16);
enum nvme_trtype {
	NVME_TRTYPE_RDMA = 1,
	NVME_TRTYPE_FC = 2,
	NVME_TRTYPE_TCP = 3,
	NVME_TRTYPE_LOOP = 254,
};
enum nvme_adrfam {
	NVME_ADRFAM_IPV4 = 1,
	NVME_ADRFAM_IPV6 = 2,
	NVME_ADRFAM_IB = 3,
	NVME_ADRFAM_FC = 4,
	NVME_ADRFAM_LOOP = 254,
};
enum nvme_subtype {
	NVME_SUBTYPE_REFERRAL = 1,
	NVME_SUBTYPE_NVM = 2,
	NVME_SUBTYPE_CURRENT = 3,
};
#define NVME_TREQ_SECURE_MASK       3u /* 1 required, 2 not required */
#define NVME_TREQ_NO_SQ_FLOW        4u
#define NVME_TSAS_TCP_SECTYPE_NONE  0 /* TCP 3.6, figure 17: byte 0 of TSAS */
#define NVME_TSAS_TCP_SECTYPE_TLS13 2

/* ---- NVMe/TCP PDUs: TCP 3.6.2 ---- */

enum nvme_tcp_type { /* TCP 3.3, figure 10 */
	             NVME_TCP_ICREQ = 0x00,
	             NVME_TCP_ICRESP = 0x01,
	             NVME_TCP_H2C_TERM = 0x02,
	             NVME_TCP_C2H_TERM = 0x03,
	             NVME_TCP_CAPSULE_CMD = 0x04,
	             NVME_TCP_CAPSULE_RESP = 0x05,
	             NVME_TCP_H2C_DATA = 0x06,
	             NVME_TCP_C2H_DATA = 0x07,
	             NVME_TCP_R2T = 0x09,
};
enum nvme_tcp_flag {
	NVME_TCP_HDGSTF = 1u << 0,
	NVME_TCP_DDGSTF = 1u << 1,
	NVME_TCP_LAST_PDU = 1u << 2, /* H2CData, C2HData */
	NVME_TCP_SUCCESS = 1u << 3,  /* C2HData, with LAST_PDU: no response capsule follows */
};
#define NVME_TCP_DIGEST_LEN     4u
#define NVME_TCP_TERM_MAX       152u /* TCP 3.6.2.4: header of 24, then at most 128 of the faulty PDU */
#define NVME_TCP_MAXH2CDATA_MIN 4096u
#define NVME_TCP_PDA_MAX        31u /* HPDA, CPDA: alignment is (n + 1) * 4 bytes */
#define NVME_TCP_DGST_HEADER    1u
#define NVME_TCP_DGST_DATA      2u
/* TCP 3.3.1: what the admin queue's command capsule may carry beside the SQE. */
#define NVME_TCP_ADMIN_INLINE_MAX 8192u

struct nvme_tcp_ch { /* TCP 3.6.2.1: common header */
	uint8_t type, flags;
	uint8_t hlen; /* of the header, without digest */
	uint8_t pdo;  /* where data begins, from the start of the PDU; 0 = none */
	uint32_t plen;
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_ch, 8);
struct nvme_tcp_icreq { /* TCP 3.6.2.2 */
	struct nvme_tcp_ch ch;
	uint16_t pfv;
	uint8_t hpda, dgst;
	uint32_t maxr2t; /* outstanding R2Ts of a command - 1 */
	uint8_t reserved[112];
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_icreq, 128);
NVME_AT(struct nvme_tcp_icreq, maxr2t, 12);
struct nvme_tcp_icresp { /* TCP 3.6.2.3 */
	struct nvme_tcp_ch ch;
	uint16_t pfv;
	uint8_t cpda, dgst;
	uint32_t maxh2cdata; /* bytes */
	uint8_t reserved[112];
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_icresp, 128);
NVME_AT(struct nvme_tcp_icresp, maxh2cdata, 12);
struct nvme_tcp_term { /* TCP 3.6.2.4, 3.6.2.5 */
	struct nvme_tcp_ch ch;
	uint16_t fes;
	uint32_t fei;
	uint8_t reserved[10];
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_term, 24);
NVME_AT(struct nvme_tcp_term, fei, 10);
struct nvme_tcp_cmd { /* TCP 3.6.2.6 */
	struct nvme_tcp_ch ch;
	struct nvme_sqe sqe;
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_cmd, 72);
struct nvme_tcp_resp { /* TCP 3.6.2.7 */
	struct nvme_tcp_ch ch;
	struct nvme_cqe cqe;
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_resp, 24);
struct nvme_tcp_data { /* TCP 3.6.2.8 (H2CData), 3.6.2.9 (C2HData: ttag reserved), 3.6.2.10 (R2T) */
	struct nvme_tcp_ch ch;
	uint16_t cccid;
	uint16_t ttag;
	uint32_t offset; /* DATAO, R2TO */
	uint32_t length; /* DATAL, R2TL */
	uint8_t reserved[4];
} NVME_PACKED;
NVME_SIZE(struct nvme_tcp_data, 24);
NVME_AT(struct nvme_tcp_data, length, 16);
enum nvme_tcp_fes {                          /* TCP 3.6.2.4: fatal error status */
	            NVME_TCP_FES_HEADER = 1, /* FEI: byte offset of the field */
	            NVME_TCP_FES_SEQUENCE = 2,
	            NVME_TCP_FES_HEADER_DIGEST = 3, /* FEI: the digest received */
	            NVME_TCP_FES_OUT_OF_RANGE = 4,
	            NVME_TCP_FES_LIMIT = 5,       /* H2C: R2T limit; C2H: data transfer limit */
	            NVME_TCP_FES_UNSUPPORTED = 6, /* FEI: byte offset of the field */
};

/* ---- in-band authentication, DH-HMAC-CHAP: Base 8.13 ---- */

enum nvme_auth_type { NVME_AUTH_COMMON = 0, NVME_AUTH_DHCHAP = 1 };
enum nvme_auth_id { /* of which type: Base 8.13.4 (common), 8.13.5 (DH-HMAC-CHAP) */
	            NVME_AUTH_NEGOTIATE = 0x00, /* common */
	            NVME_AUTH_CHALLENGE = 0x01,
	            NVME_AUTH_REPLY = 0x02,
	            NVME_AUTH_SUCCESS1 = 0x03,
	            NVME_AUTH_SUCCESS2 = 0x04,
	            NVME_AUTH_FAILURE2 = 0xf0, /* common; from the host */
	            NVME_AUTH_FAILURE1 = 0xf1, /* common; from the target */
};
enum nvme_auth_hash {
	NVME_AUTH_SHA256 = 1,
	NVME_AUTH_SHA384 = 2,
	NVME_AUTH_SHA512 = 3,
};
enum nvme_auth_group { /* RFC 7919 */
	               NVME_AUTH_DH_NULL = 0,
	               NVME_AUTH_DH_2048 = 1,
	               NVME_AUTH_DH_3072 = 2,
	               NVME_AUTH_DH_4096 = 3,
	               NVME_AUTH_DH_6144 = 4,
	               NVME_AUTH_DH_8192 = 5,
};
enum nvme_auth_reason { /* reason code is always 1; these are its explanations */
	                NVME_AUTH_WHY_FAILED = 1,
	                NVME_AUTH_WHY_PROTOCOL = 2,
	                NVME_AUTH_WHY_CHANNEL = 3,
	                NVME_AUTH_WHY_HASH = 4,
	                NVME_AUTH_WHY_GROUP = 5,
	                NVME_AUTH_WHY_PAYLOAD = 6,
	                NVME_AUTH_WHY_MESSAGE = 7,
};
struct nvme_auth_head { /* what every message begins with */
	uint8_t type, id;
	uint16_t reserved2;
	uint16_t tid;
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_head, 6);
struct nvme_auth_negotiate { /* Base 8.13.4.1, with one protocol descriptor */
	struct nvme_auth_head head;
	uint8_t sc_c; /* secure channel concatenation: 0 = none */
	uint8_t napd;
	uint8_t authid; /* 1 = DH-HMAC-CHAP */
	uint8_t reserved9;
	uint8_t halen, dhlen;
	uint8_t hashes[30];
	uint8_t groups[30];
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_negotiate, 72);
NVME_AT(struct nvme_auth_negotiate, groups, 42);
struct nvme_auth_failure { /* Base 8.13.4.2 */
	struct nvme_auth_head head;
	uint8_t reason, why;
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_failure, 8);
struct nvme_auth_challenge { /* Base 8.13.5; then CVAL (hl bytes) and DHV (dhvlen bytes) */
	struct nvme_auth_head head;
	uint8_t hl;
	uint8_t reserved7;
	uint8_t hash, group;
	uint16_t dhvlen;
	uint32_t seqnum;
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_challenge, 16);
NVME_AT(struct nvme_auth_challenge, dhvlen, 10);
struct nvme_auth_reply { /* then RVAL (hl), CVAL (hl), DHV (dhvlen) */
	struct nvme_auth_head head;
	uint8_t hl;
	uint8_t reserved7;
	uint8_t cvalid;
	uint8_t reserved9;
	uint16_t dhvlen;
	uint32_t seqnum;
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_reply, 16);
NVME_AT(struct nvme_auth_reply, cvalid, 8);
struct nvme_auth_success1 { /* with rvalid then RVAL (hl) */
	struct nvme_auth_head head;
	uint8_t hl;
	uint8_t reserved7;
	uint8_t rvalid;
	uint8_t reserved9[7];
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_success1, 16);
struct nvme_auth_success2 {
	struct nvme_auth_head head;
	uint8_t reserved6[10];
} NVME_PACKED;
NVME_SIZE(struct nvme_auth_success2, 16);

/* ---- NVMe/RDMA: private data of the connection, RDMA 3.2 ---- */

struct nvme_rdma_request {
	uint16_t recfmt;
	uint16_t qid;
	uint16_t hrqsize; /* entries of the host's receive queue */
	uint16_t hsqsize; /* entries - 1 of its send queue */
	uint16_t cntlid;
	uint8_t reserved[22];
} NVME_PACKED;
NVME_SIZE(struct nvme_rdma_request, 32);
NVME_AT(struct nvme_rdma_request, cntlid, 8);
struct nvme_rdma_accept {
	uint16_t recfmt;
	uint16_t crqsize;
	uint8_t reserved[28];
} NVME_PACKED;
NVME_SIZE(struct nvme_rdma_accept, 32);
struct nvme_rdma_reject {
	uint16_t recfmt;
	uint16_t sts; /* enum nvme_rdma_status */
} NVME_PACKED;
NVME_SIZE(struct nvme_rdma_reject, 4);
enum nvme_rdma_status {
	NVME_RDMA_LENGTH = 1,
	NVME_RDMA_RECFMT = 2,
	NVME_RDMA_QID = 3,
	NVME_RDMA_HSQSIZE = 4,
	NVME_RDMA_HRQSIZE = 5,
	NVME_RDMA_RESOURCES = 6,
	NVME_RDMA_IRD = 7,
	NVME_RDMA_ORD = 8,
	NVME_RDMA_CNTLID = 9,
};
#endif
