/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target's end of an NVMe/RDMA queue, scripted step by step by a test: it accepts, takes
 * command capsules, reads and writes the host's memory with whatever key it is told, and answers
 * whatever it is told. It is no target by itself: honest behaviour is rdma_peer_serve. One thread,
 * the test's. Works on fabric_mem and on a device.
 */
#ifndef ROS2_TESTS_NVMF_RDMA_PEER_H
#define ROS2_TESTS_NVMF_RDMA_PEER_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"
#include "dataplane/nvmf/codec.h"

#define PEER_DEPTH    64u
#define PEER_CAPSULE  (64u + 8192u)
#define PEER_BYTES    (1u << 20)
#define PEER_COMMANDS 256u

struct rdma_peer_cmd {
	struct nvme_sqe sqe;
	struct nvme_sgl_value sgl;
	uint32_t data_len; /* in the capsule */
	uint8_t data[8192];
};

struct rdma_peer {
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_cm *cm;
	struct fabric_listener *listener;
	struct fabric_conn *conn;
	struct fabric_qp *qp;
	struct fabric_region *region;
	uint8_t *mem;
	uint16_t port;
	/* how it answers requests to connect */
	bool silent;          /* not at all */
	uint16_t reject;      /* enum nvme_rdma_status; 0 = accept */
	uint16_t crqsize;     /* 0 = what was asked for */
	uint32_t no_receives; /* posts none */
	bool may_fail;        /* its queue pair, before it has taken what came */
	/* garbage: says this instead, whether it accepts or rejects */
	const void *says;
	uint32_t says_len;
	struct nvme_rdma_request hello;
	uint32_t n_requests;
	/* what came, oldest first */
	struct rdma_peer_cmd cmds[PEER_COMMANDS];
	uint32_t taken, n_cmds;
	uint32_t sq_head;
	/* of its work requests */
	uint32_t ends, bad_ends;
	enum fabric_end last_end;
};

void rdma_peer_open(struct rdma_peer *p, struct fabric_dev *dev, const char *host);
void rdma_peer_close(struct rdma_peer *p);
/* Takes what there is: requests to connect, commands, ends. */
void rdma_peer_run(struct rdma_peer *p);
/* The next command that came, or NULL. */
struct rdma_peer_cmd *rdma_peer_take(struct rdma_peer *p);
/* The peer's payload memory; behind it are its messages. */
uint8_t *rdma_peer_payload(struct rdma_peer *p);
/* One transfer of its payload; how it ended. */
enum fabric_end rdma_peer_write(struct rdma_peer *p, uint64_t addr, uint32_t len, uint32_t key);
enum fabric_end rdma_peer_read(struct rdma_peer *p, uint64_t addr, uint32_t len, uint32_t key);
/* @len bytes of @cqe (at most 64: zeros behind it); @invalidate: a key, 0 = none. */
void rdma_peer_send(struct rdma_peer *p, const struct nvme_cqe *cqe, uint32_t len,
                    uint32_t invalidate);
/* An honest answer. */
void rdma_peer_answer(struct rdma_peer *p, const struct rdma_peer_cmd *cmd, uint16_t status);
/* Moves the data of a command as it asks: READs (and Identify) get a pattern of their id and CDW10,
 * what writes bring is in the payload afterwards. Then answers. */
void rdma_peer_serve(struct rdma_peer *p, const struct rdma_peer_cmd *cmd, bool io);
uint8_t rdma_peer_pattern(uint32_t seed, uint32_t at);
#endif
