/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's end of the verbs transport that is no library: it has the faces of the device and
 * wire.h, and posts what it likes. Over the device that is memory (fabric_mem.h).
 */
#ifndef ROS2_TESTS_VERBS_PEER_H
#define ROS2_TESTS_VERBS_PEER_H

#include "tests/dataplane/fixture.h"
#include "tests/verbs/fabric_mem.h"

#define PEER_MEMORY (1u << 20)
#define PEER_RECVS  64u

struct peer {
	struct fx *fx;
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_cm *cm;
	struct fabric_conn *conn;
	struct fabric_qp *qp;
	struct fabric_region *buffers, *region;
	uint8_t *mem, *target; /* messages; what is leased */
	struct ros2_uid session;
	uint8_t secret[DP_SECRET_LEN], agent_nonce[WIRE_NONCE_LEN];
	uint16_t port;
	bool established, over;
	uint16_t refused; /* status of a rejection */
	struct fabric_window *window;
	uint32_t window_key, key, generation, n_recvs;
	uint64_t handle, next_id;
	/* of wrong proofs */
	bool bad_proof, other_qpn;
};

/* Its device, domain and memory. */
void peer_device(struct fx *fx, struct peer *p);
/* Asks the data plane for a session; not connected. */
void peer_session(struct peer *p, const struct ros2_uid *tenant, const struct ros2_uid *grant);
void peer_close(struct peer *p);
/* Until it stands or is refused. */
void peer_ask(struct peer *p);
/* The same in two: asks; and, without waiting, whether it stands or is refused by now. */
void peer_ask_begin(struct peer *p);
bool peer_is_told(struct peer *p);
/* What lies in the second half of mem, as one SEND. */
void peer_send_bytes(struct peer *p, uint32_t len);
/* Seals @h. */
void peer_send(struct peer *p, struct wire_header h, const void *payload);
/* The next message; opcode 0: the connection ended instead. */
struct wire_header peer_recv(struct peer *p);
/* What HELLO says that the peer knows: WIRE_FEATURE_CLEAR unless a test says otherwise. */
extern uint32_t peer_features;
/* The right one; its bytes only, where peer_send_bytes sends them from. */
void peer_hello(struct peer *p);
void peer_hello_bytes(struct peer *p);
uint32_t peer_lease(struct peer *p, uint64_t length, uint32_t access);
void peer_bind(struct peer *p);
struct wire_header peer_window(const struct peer *p);
/* A session proves itself, and has "file" of "ns" open. */
void peer_enter(struct peer *p);
/* A region leased, and a window over all of it told. */
void peer_settle(struct peer *p);
/* Device, session and peer_enter. */
void peer_connect(struct fx *fx, struct peer *p, const struct ros2_uid *tenant,
                  const struct ros2_uid *grant);
/* ... and peer_settle, for the fixture's tenant. */
void peer_ready(struct fx *fx, struct peer *p);
struct wire_header peer_request(struct peer *p, enum wire_opcode op, uint64_t offset,
                                uint32_t length);
/* The place of receive @i: 1 KiB. */
void peer_post_recv(struct peer *p, struct fabric_qp *qp, uint32_t i);

#endif
