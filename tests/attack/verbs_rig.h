/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attacker's tools: raw verbs, nothing checked before it is posted. An end is a queue pair with
 * memory of its own. What may be shared between ends (protection domain, completion queue, receive
 * queue) is shared only by rigs whose defence is left out.
 */
#ifndef ROS2_TESTS_ATTACK_VERBS_RIG_H
#define ROS2_TESTS_ATTACK_VERBS_RIG_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define RAW_BYTES   (1u << 20) /* memory of an end, all of it registered */
#define RAW_DEPTH   64u
#define RAW_WAIT_MS 10000
#define RAW_ALL     (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct raw {
	struct ibv_context *ctx;
	uint8_t gid_index;
	union ibv_gid gid;
};

struct raw_cq {
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
};

struct raw_end {
	struct raw *raw;
	struct ibv_pd *pd;
	struct raw_cq own_cq, *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	uint32_t psn;
	bool shares_pd, shares_srq;
};

struct raw_opts {
	struct ibv_pd *pd; /* NULL = its own, and so on */
	struct raw_cq *cq;
	struct ibv_srq *srq;
	uint32_t cq_depth, srq_depth; /* srq_depth: makes a shared receive queue */
	bool psn_known;               /* 0, and not random */
};

struct raw_addr {
	union ibv_gid gid;
	uint32_t qpn, psn;
};

/* How the other side is reached. */
struct raw_join {
	struct raw_addr peer;
	int access;                   /* remote operations that are taken */
	uint8_t rnr_retry, rnr_timer; /* timer: of what we tell a sender; 0 = 0.64 ms */
	enum ibv_mtu mtu;
};

int raw_open(struct raw *r, const char *device);
void raw_close(struct raw *r);
int raw_cq_open(struct raw *r, uint32_t depth, struct raw_cq *ret);
void raw_cq_close(struct raw_cq *q);
int raw_end_open(struct raw *r, const struct raw_opts *o, struct raw_end *ret);
void raw_end_close(struct raw_end *e);
void raw_end_addr(const struct raw_end *e, struct raw_addr *ret);
/* From any state to RTS. */
int raw_end_join(struct raw_end *e, const struct raw_join *j);
/* To INIT, where receives may be posted. */
int raw_end_reset(struct raw_end *e, int access);

/* How one work request ended: an ibv_wc_status; or -errno when it was not posted, -ETIMEDOUT. */
int raw_wait(struct raw_cq *q, struct ibv_wc *ret, int timeout_ms);
/* The same of work requests that are no receives; the ends of receives are dropped. */
int raw_wait_sent(struct raw_cq *q, int timeout_ms);
int raw_post(struct raw_end *e, enum ibv_wr_opcode op, uint64_t addr, uint32_t length,
             uint32_t key);
int raw_do(struct raw_end *e, enum ibv_wr_opcode op, uint64_t addr, uint32_t length, uint32_t key);
int raw_recv(struct raw_end *e);
bool raw_refused(int end); /* did the other device say no? */
const char *raw_end_str(int end);
#endif
