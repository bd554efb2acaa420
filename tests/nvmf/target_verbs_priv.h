/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the target over RDMA: target_verbs.c connections, target_verbs_io.c work requests.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_VERBS_PRIV_H
#define ROS2_TESTS_NVMF_TARGET_VERBS_PRIV_H

#include "tests/nvmf/target_priv.h"
#include "tests/nvmf/target_verbs.h"
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define CAPSULES     136u /* received at once */
#define CAPSULE      (64u + 8192u)
#define PLACES       32u /* of payload on its way */
#define PLACE        TARGET_STRIKE_MAX
#define SENDS        192u
#define PAYLOAD_AT   ((size_t)CAPSULES * CAPSULE)
#define QUEUE_MEMORY (PAYLOAD_AT + (size_t)PLACES * PLACE)

/* One queue pair; a connection's, or kept after it. */
struct vqueue {
	struct target *t;
	struct conn *c; /* NULL: kept */
	char host_nqn[224];
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *mem;     /* owned: QUEUE_MEMORY, mapped */
	uint64_t places;  /* bits: free */
	bool no_receives; /* a lie: none is posted */
	bool struck;      /* the strike has ended */
	int strike_end;
	/* RDMA READs under way: which command, which tag, where in its data */
	struct {
		uint16_t cid, ttag;
		uint32_t off, len;
	} reads[PLACES];
};

struct vtarget {
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listener, *unanswered;
	struct ibv_pd *pd;   /* of the device of the first connection */
	struct vqueue *kept; /* owned */
	bool keep;
};

/* target_verbs_io.c */
int vqueue_post_capsule(struct vqueue *q, uint32_t i);
/* Takes the ends there are. */
void vqueue_poll(struct vqueue *q);
void verbs_conn_event(struct conn *c);
void verbs_answer(struct conn *c, const uint8_t *cqe, uint32_t len, uint32_t invalidate);
void verbs_write(struct conn *c, const struct tcmd *cmd, uint32_t off, const void *data,
                 uint32_t len);
void verbs_read(struct conn *c, const struct tcmd *cmd, uint16_t ttag, uint32_t off, uint32_t len);
#endif
