/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The TCP data transport between a tenant's library and the agent, version 1: the one place that tells its layout.
 * Little-endian. Every message is a 64-byte header followed by payload_len bytes. docs/wire.md is generated from the names
 * here and checked against them; a change needs a new version, or a feature, and a page in docs/decisions/.
 *
 *   agent  -> tenant  CHALLENGE  payload wire_challenge: at once after accept
 *   tenant -> agent   HELLO      payload wire_hello: within 10 s of OpenSession; length: the wire_features that the tenant knows
 *   agent  -> tenant  WELCOME    payload wire_welcome; or NAK and close
 *   tenant -> agent   READ       handle, offset, length, key, address; key: where the agent writes
 *   agent  -> tenant  DATA       key, address, generation, offset (within the request), payload; then COMPLETE
 *   tenant -> agent   WRITE      handle, offset, length, key, address; payload of exactly length bytes when WIRE_F_INLINE
 *                                (length <= WIRE_INLINE_MAX), else none and the agent sends
 *   agent  -> tenant  PULL       request id, key, address, generation, offset, length: answered, in the order asked, by
 *   tenant -> agent   DATA       the same fields, payload of exactly length bytes
 *   tenant -> agent   FLUSH      handle: data written before is durable when it completes (fdatasync)
 *   tenant -> agent   ZERO       handle, offset, length: these bytes of the file read as zeros when it completes
 *   tenant -> agent   DISCARD    handle, offset, length: nobody needs these bytes any more
 *   agent  -> tenant  COMPLETE   request id, status, length = bytes done; gives one credit back
 *   agent  -> tenant  NAK        request id, status: a violation; counted; payload: words (UTF-8, <= 256 bytes)
 *   both              BYE        no more requests; the peer drains and closes
 *   both              PING/PONG  request id echoed
 *
 * Over verbs (RC through librdmacm; docs/decisions/0020) every message is one SEND of header and payload, and payload of READ and
 * of long WRITEs travels by RDMA that the agent posts; there is no CHALLENGE, DATA or PULL:
 *   tenant -> agent   private data of the connection request: wire_verbs_ask; of the answer: wire_verbs_answer, or of the
 *                     rejection: wire_verbs_refusal. Then HELLO, answered by WELCOME, as above.
 *   tenant -> agent   WINDOW     key, generation, address as registered, offset: its length; handle: the rkey of the window that
 *                                the tenant bound over exactly that memory for this queue pair. Before requests under the key.
 *   agent  -> tenant  for READ: an RDMA WRITE into the window, then COMPLETE; for a WRITE that is not inline: an RDMA READ
 *
 * Over shared memory (a stream socket of this machine; docs/decisions/0032) the connection begins as over TCP. Then
 *   agent  -> tenant  MEMORY     after WELCOME, with one descriptor (SCM_RIGHTS): a memfd of offset bytes, laid out as below
 *   tenant -> agent   MAPPED     it has mapped all of it. Then the agent seals it, and only then looks at it.
 * From there on messages are in the two rings, a header in each entry (words of a NAK in the entries behind it), and a byte on the
 * socket, of any value, only wakes the other side. Payload lies in the memory itself: address is an offset in it, nothing is inline
 * (max_inline is 0), there is no DATA and no PULL, and a region is a part of what is behind WIRE_SHM_DATA_OFF.
 *
 * Rules: (1) a request id is chosen by the tenant and must not be in flight already; (2) at most `credits` requests are in
 * flight; one more is a violation; (3) a receiver checks magic, version, header CRC, reserved bits and payload_len before
 * anything else, and a failure there ends the connection; (4) every DATA the tenant receives is checked against its own
 * region table before a byte lands; (5) a key is valid only on the connection it was issued for; (6) what belongs to a
 * wire_feature is sent only after a WELCOME that has it: the tenant says in HELLO what it knows, the agent answers with what
 * both know, and a bit that is not known is ignored (docs/decisions/0024).
 */
/* clang-format on */
#ifndef ROS2_DATAPLANE_WIRE_H
#define ROS2_DATAPLANE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define WIRE_ASSERT(c, m) static_assert(c, m)
#else
#define WIRE_ASSERT(c, m) _Static_assert(c, m)
#endif

#define WIRE_MAGIC       0x57324f52u /* "RO2W" in memory order */
#define WIRE_VERSION     1
#define WIRE_HEADER_LEN  64
#define WIRE_NONCE_LEN   32
#define WIRE_MAC_LEN     32
#define WIRE_SECRET_LEN  32
#define WIRE_INLINE_MAX  (16u * 1024)
#define WIRE_IO_MAX      (1024u * 1024) /* length of one READ, WRITE, ZERO or DISCARD */
#define WIRE_WORDS_MAX   256u
#define WIRE_CREDITS_MAX 1024u
#define WIRE_HELLO_MS    10000u

enum wire_opcode {
	WIRE_CHALLENGE = 1,
	WIRE_HELLO = 2,
	WIRE_WELCOME = 3,
	WIRE_READ = 16,
	WIRE_WRITE = 17,
	WIRE_FLUSH = 18,
	WIRE_WINDOW = 19,
	WIRE_ZERO = 20,
	WIRE_DISCARD = 21,
	WIRE_MAPPED = 22,
	WIRE_DATA = 32,
	WIRE_PULL = 33,
	WIRE_COMPLETE = 34,
	WIRE_NAK = 35,
	WIRE_MEMORY = 36,
	WIRE_PING = 48,
	WIRE_PONG = 49,
	WIRE_BYE = 50,
};

enum wire_flag {
	WIRE_F_INLINE = 1u << 0,      /* WRITE: the payload follows */
	WIRE_F_LAST = 1u << 1,        /* DATA: the last of this request */
	WIRE_F_PAYLOAD_CRC = 1u << 8, /* reserved, must be 0 in version 1 */
	WIRE_F_TLS = 1u << 9,         /* reserved, must be 0 in version 1 */
};
#define WIRE_F_KNOWN (WIRE_F_INLINE | WIRE_F_LAST)

enum wire_feature {
	WIRE_FEATURE_CLEAR = 1u << 0, /* ZERO and DISCARD */
};
#define WIRE_FEATURES_KNOWN WIRE_FEATURE_CLEAR

struct wire_header {
	uint32_t magic;
	uint8_t version;
	uint8_t opcode;
	uint16_t flags;
	uint64_t request_id;
	uint64_t handle;
	uint64_t offset;
	uint64_t address;
	uint32_t length;
	uint32_t key;
	uint32_t generation;
	uint32_t payload_len;
	uint16_t status;     /* common/status.h */
	uint16_t reserved;   /* 0 */
	uint32_t header_crc; /* CRC32C of the 60 bytes before it */
};
WIRE_ASSERT(sizeof(struct wire_header) == WIRE_HEADER_LEN, "header is 64 bytes");
WIRE_ASSERT(offsetof(struct wire_header, request_id) == 8, "request_id");
WIRE_ASSERT(offsetof(struct wire_header, handle) == 16, "handle");
WIRE_ASSERT(offsetof(struct wire_header, offset) == 24, "offset");
WIRE_ASSERT(offsetof(struct wire_header, address) == 32, "address");
WIRE_ASSERT(offsetof(struct wire_header, length) == 40, "length");
WIRE_ASSERT(offsetof(struct wire_header, key) == 44, "key");
WIRE_ASSERT(offsetof(struct wire_header, generation) == 48, "generation");
WIRE_ASSERT(offsetof(struct wire_header, payload_len) == 52, "payload_len");
WIRE_ASSERT(offsetof(struct wire_header, status) == 56, "status");
WIRE_ASSERT(offsetof(struct wire_header, header_crc) == 60, "header_crc");

struct wire_challenge {
	uint8_t agent_nonce[WIRE_NONCE_LEN];
};

/* proof = HMAC-SHA256(secret, "ros2-wire-1 tenant\0" || session_uid || agent_nonce || tenant_nonce)
 */
struct wire_hello {
	uint8_t session_uid[16];
	uint8_t tenant_nonce[WIRE_NONCE_LEN];
	uint8_t proof[WIRE_MAC_LEN];
};
WIRE_ASSERT(sizeof(struct wire_hello) == 80, "hello");

/* proof = HMAC-SHA256(secret, "ros2-wire-1 agent\0" || session_uid || agent_nonce || tenant_nonce)
 */
struct wire_welcome {
	uint8_t proof[WIRE_MAC_LEN];
	uint32_t credits;
	uint32_t max_io;
	uint32_t max_inline;
	uint32_t features; /* of those that HELLO named: what this connection may use */
};
WIRE_ASSERT(sizeof(struct wire_welcome) == 48, "welcome");
WIRE_ASSERT(offsetof(struct wire_welcome, features) == 44, "features");

/* ---- verbs: private data of the connection manager, at most 56 bytes ---- */

#define WIRE_VERBS_VERSION    1
#define WIRE_VERBS_INLINE_MAX 4096u
#define WIRE_VERBS_NONCE_LEN  16
#define WIRE_VERBS_MAC_LEN    16

/* proof = the first 16 bytes of HMAC-SHA256(secret, "ros2-wire-1 verbs\0" || session_uid ||
 * tenant_nonce || number of the asking queue pair, 4 bytes): who has no session gets no memory and
 * no queue pair, and a copy of this is of no use on another queue pair. */
struct wire_verbs_ask {
	uint8_t version;
	uint8_t reserved[3];
	uint8_t session_uid[16];
	uint8_t tenant_nonce[WIRE_VERBS_NONCE_LEN];
	uint8_t proof[WIRE_VERBS_MAC_LEN];
};
WIRE_ASSERT(sizeof(struct wire_verbs_ask) == 52, "ask");

/* The nonce of HELLO's and WELCOME's proofs. */
struct wire_verbs_answer {
	uint8_t version;
	uint8_t reserved[3];
	uint8_t agent_nonce[WIRE_NONCE_LEN];
};
WIRE_ASSERT(sizeof(struct wire_verbs_answer) == 36, "answer");

struct wire_verbs_refusal {
	uint8_t version;
	uint8_t reserved;
	uint16_t status; /* common/status.h */
};
WIRE_ASSERT(sizeof(struct wire_verbs_refusal) == 4, "refusal");

/* ---- shared memory: the memfd of a session ---- */

#define WIRE_SHM_RING_ENTRIES 512u
#define WIRE_SHM_TO_AGENT_OFF 4096u /* WIRE_SHM_RING_ENTRIES headers */
#define WIRE_SHM_TO_TENANT_OFF                                                                     \
	(WIRE_SHM_TO_AGENT_OFF + WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN) /* as many */
#define WIRE_SHM_DATA_OFF  (128u * 1024)
#define WIRE_SHM_DATA_MIN  (2u * 1024 * 1024)
#define WIRE_SHM_DATA_UNIT 65536u /* what is behind WIRE_SHM_DATA_OFF is a multiple of this */

/* Counts of entries written and taken so far, modulo 2^32; entry n is at n % WIRE_SHM_RING_ENTRIES.
 * Only the writer stores written, after the entry; only the reader stores taken. Each side keeps
 * its own count to itself and believes of the other's only what can be: written - taken is at most
 * WIRE_SHM_RING_ENTRIES, or the connection ends.
 *
 * A writer without room for its next message stores written, looks at taken once more, and waits
 * for a byte on the socket. A reader that took entries stores taken, looks at written once more,
 * and sends that byte when, before it took them, the longest message had no room: one entry to the
 * agent, five to the tenant. Between the store and the look of each there is a full barrier, so one
 * of them sees the other. The first release sent no such byte; the agent looks again each 20 ms,
 * and libros2 when something came. */
struct wire_shm_ring {
	uint32_t written;
	uint8_t pad1[60];
	uint32_t taken;
	uint8_t pad2[60];
	/* Stored by the reader before it looks at written a last time and sleeps, until it is
	 * awake: 1 = a byte on the socket is wanted. The writer looks at it after it has stored
	 * written. */
	uint32_t sleeps;
	uint8_t pad3[60];
};
WIRE_ASSERT(sizeof(struct wire_shm_ring) == 192, "ring");
WIRE_ASSERT(offsetof(struct wire_shm_ring, taken) == 64, "taken");
WIRE_ASSERT(offsetof(struct wire_shm_ring, sleeps) == 128, "sleeps");

/* At offset 0. */
struct wire_shm_control {
	struct wire_shm_ring to_agent, to_tenant;
};
WIRE_ASSERT(sizeof(struct wire_shm_control) <= WIRE_SHM_TO_AGENT_OFF, "control page");
WIRE_ASSERT(offsetof(struct wire_shm_control, to_tenant) == 192, "to_tenant");
WIRE_ASSERT(WIRE_SHM_TO_TENANT_OFF + WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN <= WIRE_SHM_DATA_OFF,
            "rings");

#define WIRE_LABEL_VERBS  "ros2-wire-1 verbs"
#define WIRE_LABEL_TENANT "ros2-wire-1 tenant"
#define WIRE_LABEL_AGENT  "ros2-wire-1 agent"
#endif
