/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A controller of Linux nvmet-rdma reached through the queue over RDMA, on a real device: the least
 * that brings one up. Keys can be spoiled between the window and the command
 * (fabric_window_bind is wrapped), which the queue itself offers no way to.
 */
#ifndef ROS2_TESTS_NVMF_RDMA_VERBS_RIG_H
#define ROS2_TESTS_NVMF_RDMA_VERBS_RIG_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/nvmf/codec.h"
#include "dataplane/nvmf/queue.h"
#include "tests/testing.h"

#define RIG_IOS 2u /* I/O queues at most */

enum rig_spoil {
	RIG_HONEST,
	RIG_OTHER_KEY,   /* a key that nobody has */
	RIG_OLD_KEY,     /* of the command before it, revoked */
	RIG_WRONG_WAY,   /* bound for the other direction */
	RIG_OTHER_QUEUE, /* bound on the other I/O queue */
};
/* What the next bind is. */
extern enum rig_spoil rig_spoil;
extern uint32_t rig_other_key; /* of RIG_OLD_KEY, RIG_OTHER_QUEUE */
extern uint32_t rig_last_key;  /* of the last bind */

struct rig {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set; /* slots, as a tenant has them */
	int epoll_fd, disk_fd;
	struct nvmf_queue *admin, *io[RIG_IOS];
	struct nvme_controller ctrl;
	uint16_t cntlid;
	bool per_command;
	uint32_t depth;
};

void rig_device(struct rig *r);
/* Connects, enables and identifies; @n_io I/O queues. */
void rig_up(struct rig *r, uint32_t n_io, bool per_command);
void rig_down(struct rig *r);  /* the queues; may be called again */
void rig_close(struct rig *r); /* asserts that nothing is left */
/* Both queues' polls and ticks until @n is not 0, at most @ms. */
bool rig_wait(struct rig *r, const uint32_t *n, uint32_t ms);
/* One command to its end. The return: rc; *ret may be NULL. */
int rig_exec(struct rig *r, struct nvmf_queue *q, struct nvmf_req *req, struct nvme_cqe *ret);
/* A READ or WRITE of @len bytes at @at, in @slot from its beginning. */
struct nvmf_req rig_io(struct rig *r, bool write, struct fabric_slot *slot, uint64_t at,
                       uint32_t len);
bool rig_is_enabled(struct rig *r); /* CSTS.RDY through the admin queue */
#endif
