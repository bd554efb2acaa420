/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue over NVMe/TCP and its peer, in one thread: the test is the target, over loopback, and
 * sends exact bytes. Nothing runs by itself: rig_turn polls the queue once, and every function that
 * waits for the queue takes turns until a limit of time, so that a stall is a failure.
 */
#ifndef ROS2_TESTS_NVMF_TCP_RIG_H
#define ROS2_TESTS_NVMF_TCP_RIG_H

#include "dataplane/nvmf/pdu.h"
#include "dataplane/nvmf/queue.h"
#include "tests/nvmf/tcp_peer.h"
#include "tests/testing.h"

#define RIG_REQS   1024u
#define RIG_WORD   0x5157u
#define RIG_MAXH2C 131072u

struct rig_req {
	struct nvmf_req req; /* first */
	uint32_t done;       /* times */
	int rc;
	struct nvme_cqe cqe; /* with rc 0 */
	struct rig *rig;
};

struct rig {
	const struct nvmf_queue_ops *ops;
	struct nvmf_queue *q;
	int listener, peer, ep; /* peer: this side of the connection, -1 = none */
	uint64_t now_ns;        /* the queue's clock: only tests move it */
	bool header_digest, data_digest;
	uint32_t depth, in_capsule_max, transfer_max;
	uint16_t qid;
	uint8_t cpda;
	uint8_t opcode; /* instead of one that fits the direction; 0 = none */
	uint32_t maxh2c;
	bool tenant_memory; /* of requests */
	uint32_t n_done;    /* of all requests */
	uint32_t cdw10;     /* of requests; 0 = their number */
	/* instead of rig_on_done, which it calls; NULL = that */
	void (*on_done)(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe);
	struct nvmf_queue_counters counted; /* of the last queue, when it was closed */
	struct pdu_params from_peer, to_peer;
	struct rig_req reqs[RIG_REQS];
};

/* cmocka setup: an I/O queue of depth 32 that is not open yet; teardown checks that each request
 * came back once. */
int rig_setup(void **state);
int rig_teardown(void **state);
/* Without cmocka: for the fuzz target. */
void rig_init(struct rig *r);
void rig_fini(struct rig *r);

int rig_open(struct rig *r, struct ros2_err *err);
/* The peer takes the connection. */
void rig_accept(struct rig *r);
/* Takes ICReq, which must be as the options say. */
void rig_take_icreq(struct rig *r);
void rig_send_icresp(struct rig *r);
/* All of that; READY. */
void rig_ready(struct rig *r);
/* Frees the queue and closes the connection; reqs can be used again. */
void rig_close(struct rig *r);

/* Waits (at most @ms) until the queue's descriptor tells something, then polls. False: it did not.
 */
bool rig_turn(struct rig *r, int ms);
void rig_until_state(struct rig *r, enum nvmf_queue_state want);
void rig_until_done(struct rig *r, uint32_t n_done);

/* Request @i; submitted, not kicked. Returns what submit does. */
int rig_submit(struct rig *r, uint32_t i, enum nvmf_dir dir, void *buf, uint32_t len);
void rig_kick(struct rig *r);
void rig_on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe);

/* What the queue sends. */
void rig_read(struct rig *r, void *buf, size_t n);
/* No byte of the queue's is there, and none comes. */
void rig_read_nothing(struct rig *r);
/* One PDU, its data (digest checked) into @data, which holds @max bytes. */
struct pdu rig_read_pdu(struct rig *r, void *data, size_t max);
/* A capsule for request @i; returns its command id. */
uint16_t rig_read_cmd(struct rig *r, void *data, size_t max);

/* To the queue: taken in turns, @piece bytes at a time (0 = all at once). Stops when it failed. */
void rig_send(struct rig *r, const void *bytes, size_t n, size_t piece);

/* Bytes of whole PDUs, put together. */
struct rig_bytes {
	size_t n;
	uint8_t b[4u << 20];
};
void rig_put_resp(struct rig *r, struct rig_bytes *to, uint16_t cid, uint16_t status);
void rig_put_data(struct rig *r, struct rig_bytes *to, uint16_t cid, uint32_t offset,
                  const void *data, uint32_t len, uint8_t flags);
void rig_put_r2t(struct rig *r, struct rig_bytes *to, uint16_t cid, uint16_t tag, uint32_t offset,
                 uint32_t len);
/* It failed, every request came back, as unknown, and the connection was reset; the words hold
 * @words. *ret_fes (may be NULL): of the H2CTermReq it sent before, 0 = none. */
void rig_expect_fault(struct rig *r, const char *words, uint16_t *ret_fes);
struct nvmf_queue_counters rig_counters(const struct rig *r);
#endif
