/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least host there can be on the queue over NVMe/TCP: one admin queue, one I/O queue, and a
 * scenario that writes and reads in every way there is and compares each byte. One thread; every
 * wait has an end, so that a stall is a failure with words.
 */
#ifndef ROS2_TESTS_NVMF_HOST_H
#define ROS2_TESTS_NVMF_HOST_H

#include "dataplane/nvmf/queue.h"
#include "tests/nvmf/target.h"
#include <arpa/inet.h>

#define HOST_DEPTH 16u
#define HOST_LEN   131072u /* of one command of the scenario: by R2T */
#define HOST_SMALL 4096u   /* in the capsule */

struct host_req {
	struct nvmf_req req; /* first */
	struct host *host;
	unsigned done; /* times */
	int rc;
	struct nvme_cqe cqe;
};

struct host {
	struct nvmf_queue *admin, *io; /* owned */
	int epoll_fd;
	struct host_req reqs[HOST_DEPTH];
	struct host_req aer; /* held by the target: an event request */
	uint16_t cntlid;
	uint32_t in_capsule, transfer_max;
	uint64_t timeout_ms;
	bool digests;
	bool tenant_memory; /* of commands of the I/O queue from here on; without digests */
	uint8_t seed;
	char words[512]; /* why it failed, as the queue said it; "" */
	uint8_t *buf;    /* owned: HOST_DEPTH times HOST_LEN, guarded on both sides */
};

struct host_opts {
	uint16_t port;
	const char *nqn, *host_nqn;
	bool digests;
	uint64_t timeout_ms; /* of a command: 30000 */
	uint8_t cattr;       /* of the Connect of the I/O queue */
};

/* Connects both queues. 0, or -EPROTO, -ENOTCONN ... and host.words. */
int host_open(struct host *h, const struct host_opts *o);
void host_close(struct host *h);
/* One admin or I/O command, waited for: what done said; *ret_cqe with 0. */
int host_run(struct host *h, struct nvmf_queue *q, const struct nvme_sqe *sqe, enum nvmf_dir dir,
             void *buf, uint32_t len, struct nvme_cqe *ret_cqe);
/* Writes, reads and flushes namespace 1 (512 bytes a block) with several commands in flight and
 * compares. 0, or what failed first; -EILSEQ when bytes were other than they should be, or written
 * beside a buffer. */
int host_scenario(struct host *h);
/* What request or queue went wrong: the words of a failed queue, or "". */
const char *host_words(struct host *h);
#endif
