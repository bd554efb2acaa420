/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stub share: its objects, its lock, its faults. */
#ifndef ROS2_TESTS_FABRIC_VERBS_STUB_PRIV_H
#define ROS2_TESTS_FABRIC_VERBS_STUB_PRIV_H

#include "tests/fabric/verbs_stub.h"
#include "common/util.h"
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <pthread.h>

#define QPS     256
#define WINDOWS 8192
#define MRS     8192
#define QUEUE   4096
#define SGES    4
#define DEVICES 3
#define EVENTS  64

struct mw {
	struct ibv_mw mw;
	bool used, bound;
	uint32_t key; /* the device's truth; mw.rkey is what the user keeps */
	struct mr *mr;
	struct qp *qp;
	uint64_t addr, length;
	unsigned int access;
};

struct mr {
	struct ibv_mr mr;
	bool used;
	int access;
	uint32_t n_bound;
};

struct swr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	struct ibv_sge sge[SGES];
	int n_sge;
	uint64_t remote;
	uint32_t key, bind_key, mw_key;
	struct mw *mw;
	struct ibv_mw_bind_info info;
	uint8_t copy[1024];
};

struct rwr {
	uint64_t wr_id;
	struct ibv_sge sge[SGES];
	int n_sge;
};

struct cq {
	struct ibv_cq cq;
	struct ibv_wc wc[QUEUE * 4];
	uint32_t head, tail;
	bool armed;
};

struct qp {
	struct ibv_qp qp;
	bool used;
	enum ibv_qp_state state;
	unsigned int access;
	uint8_t ack_timeout, retries;
	uint32_t dest, max_inline, sq_max, rq_max;
	struct swr *sq; /* QUEUE */
	struct rwr *rq;
	uint32_t sq_head, sq_tail, rq_head, rq_tail;
};

struct channel {
	struct ibv_comp_channel channel;
	struct cq *events[EVENTS];
	uint32_t head, tail;
};

struct stub_state {
	pthread_mutex_t lock;
	struct ibv_device devices[DEVICES];
	struct ibv_context contexts[DEVICES];
	uint32_t n_devices, alive;
	const char *violation;
	struct {
		uint32_t after, code;
		bool armed, for_good;
		uint64_t count;
	} calls[STUB_N_CALLS];
	uint32_t any_after, failures;
	bool any_armed, any_for_good, paused;
	char order[4096];
	uint32_t held, end_op;
	int end_status;
	bool lose, port_active, no_windows, sticks, software, mellanox, dmabuf_as_linux;
	uint32_t cq_vectors;
	enum stub_forks forks;
	int fork_code;
	int show_access;
	uint32_t inline_limit;
	struct qp qps[QPS];
	struct mw windows[WINDOWS];
	struct mr mrs[MRS];
	struct ibv_async_event events[EVENTS];
	uint32_t ev_head, ev_tail, next_qpn, next_window;
	int async_fd;
};
extern struct stub_state st;

/* Never fails: a test may sweep the allocations of its user. */
void *stub_zalloc(size_t n, size_t size);
pthread_mutex_t *stub_lock(void);
static inline void stub_unlock(pthread_mutex_t **m)
{
	pthread_mutex_unlock(*m);
}
#define STUB_LOCK                                                                                  \
	CLEANUP(stub_unlock) __attribute__((unused)) pthread_mutex_t *stub_guard = stub_lock()

/* 0, or the errno (also set) that was ordered for this call. Locked. */
int stub_fault(enum stub_call c);
void stub_blame(const char *words);
void stub_born(int n); /* +1, -1 */
struct ibv_context *stub_context(uint32_t device);
void stub_cm_reset(void);
void stub_order_add(const char *name);
/* NULL = none. */
struct mw *stub_window_of(uint32_t key); /* that is bound under it */
struct qp *stub_qp_of(uint32_t qpn);

/* verbs_stub_queue.c */
void stub_push_event(struct ibv_async_event e);
void stub_push(struct ibv_cq *to, struct ibv_wc wc);
void stub_to_error(struct qp *qp);
void stub_run_all(void);
int stub_post_send(struct ibv_qp *to, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int stub_post_recv(struct ibv_qp *to, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int stub_poll_cq(struct ibv_cq *from, int n, struct ibv_wc *out);
int stub_req_notify_cq(struct ibv_cq *on, int solicited_only);
struct ibv_mw *stub_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int stub_dealloc_mw(struct ibv_mw *mw);
#endif
