/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One queue pair of a fabrics controller (admin or I/O), over TCP or RDMA: commands go in, each
 * comes back exactly once. It knows capsules, PDUs, keys and connections, and nothing of
 * controllers, volumes or tenants' rights.
 *
 *   CONNECTING --transport says yes--> READY --kill, fault, time-out, peer's end--> FAILED
 *       \-------------------------------------------------------------------------> FAILED
 *
 * Invariants: (1) a request is the queue's from submit to done; done runs exactly once, only in
 * poll, tick, kill, withdraw or free, and only when the target cannot reach the request's memory
 * any more: of TCP that is so when the connection is ended or the answer is here, of RDMA when the
 * key was invalidated and the device said so, or the queue pair is gone; (2) a key names exactly
 * the bytes of one request, for exactly the access it needs, on this queue pair (standing keys,
 * where the policy allows them, over slots: the request's whole region, until the queue ends); (3)
 * an answer that names no command in flight, or one answered already, is a fault; (4) a fault ends
 * the queue, with words; (5) after open nothing allocates and nothing blocks; (6) everything is of
 * one thread, the one that polls.
 *
 * Sources: NVM Express Base 2.0, 3.3 and 6; NVMe/TCP Transport 1.0; NVMe/RDMA Transport 1.0.
 */
#ifndef ROS2_DATAPLANE_NVMF_QUEUE_H
#define ROS2_DATAPLANE_NVMF_QUEUE_H

#include "common/err.h"
#include "common/util.h"
#include "dataplane/key_info.h"
#include "dataplane/nvmf/config.h"
#include "dataplane/nvmf/spec.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct fabric_pd;
struct fabric_region;
struct nvmf_queue;

enum nvmf_dir {
	NVMF_NO_DATA,
	NVMF_FROM_TARGET, /* READ, Identify, Get Log Page, Authentication Receive */
	NVMF_TO_TARGET,   /* WRITE, Connect, Authentication Send, Dataset Management */
};

/* Embedded in the caller's object. */
struct nvmf_req {
	/* By the caller: opcode, nsid, command dwords, Fabrics fields. Command identifier, flags
	 * and SGL are the queue's. */
	struct nvme_sqe sqe;
	enum nvmf_dir dir;
	void *buf;                    /* borrowed: until done */
	uint32_t len;                 /* 0 with NVMF_NO_DATA; at most opts.transfer_max */
	struct fabric_region *region; /* rdma: what buf lies in, or NULL: a slot of the queue's own
	                                 is used and copied, for admin and Fabrics commands and
	                                 dataset management of at most 4 KiB only */
	/* tcp without data digest, rdma in a region: a tenant reads and writes buf meanwhile. What
	 * is not surely this request's goes never there, and nothing is read back from it but, once
	 * for each time that it is sent, what is sent. Over rdma its key is its own, and ends with
	 * it, also where others stand. */
	bool tenant_memory;
	/* By the queue's clock, from submit; 0 = none (asynchronous event requests). */
	uint64_t timeout_ns;
	/* CLOCK_BOOTTIME from which on it is not handed on any more: it comes back with -ECANCELED
	 * if it waits in the queue until then. 0 = no such time. Data that the target asks for of
	 * a command that was handed on in time still goes. */
	uint64_t until_ns;
	/*
	 * @rc 0: the target answered, @cqe (valid in the call) says what. FROM_TARGET with success
	 * moved exactly @len bytes, or as many as the answer allows; else it is a fault.
	 * -ECANCELED: never handed on, so surely not carried out (of one that is late also in
	 * kick). -EREMOTEIO: handed on and no answer: the outcome is unknown. May submit; must not
	 * free the queue.
	 */
	void (*done)(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe);
	/* the queue's own, while it owns the request */
	struct list link;
	uint64_t deadline_ns;
	uint64_t priv[4];
};

enum nvmf_queue_state { NVMF_QUEUE_CONNECTING, NVMF_QUEUE_READY, NVMF_QUEUE_FAILED };
const char *nvmf_queue_state_to_str(enum nvmf_queue_state s);

struct nvmf_queue_opts {
	const struct sockaddr *peer; /* borrowed: for the call */
	uint16_t qid;                /* 0 = admin */
	uint16_t cntlid;             /* rdma private data; 0xffff for admin */
	uint32_t depth;              /* commands in flight, 2..1024; the SQ has one more place */
	/* From Identify Controller; of an admin queue, and before it is known: 0 and 4096. */
	uint32_t in_capsule_max;         /* bytes of data a command capsule takes */
	uint32_t transfer_max;           /* bytes of one command */
	bool header_digest, data_digest; /* tcp */
	bool keys_per_command;           /* rdma */
	/* rdma: the probe saw that a peer's SEND with invalidate is safe here, so the target may be
	 * asked for it; per command only */
	bool remote_invalidate;
	/* rdma: the tenant's domain; borrowed, outlives the queue, which makes its own completion
	 * queue in it: a target's faults end there */
	struct fabric_pd *pd;
	/* rdma: numbers for key_info.id are drawn from it; borrowed, outlives the queue, of its
	 * thread. NULL = none */
	uint64_t *key_ids;
	/* The queue watches its descriptors in the caller's epoll set under this word, and takes
	 * them out in free. Readable: call poll. */
	int epoll_fd;
	uint64_t epoll_word;
	uint64_t connect_timeout_ns; /* until READY */
	uint64_t now_ns;             /* CLOCK_BOOTTIME, as everywhere here */
};

struct nvmf_queue_counters {
	uint64_t submitted, answered, unknown, cancelled;
	uint64_t bytes_in, bytes_out; /* payload */
	uint64_t copied_bytes;        /* by this process */
	uint64_t calls;               /* system calls, or doorbells, that handed commands on */
	uint64_t keys_bound, keys_revoked;
	uint64_t revoke_calls;      /* doorbells that handed on nothing but ends of keys */
	uint64_t last_withdrawn_ns; /* the device's end of the last key that a right's end ended */
};

struct nvmf_queue_ops {
	const char *name; /* "tcp", "rdma" */
	/* Begins to connect; does not wait. -EINVAL, -ENOMEM, -EOPNOTSUPP, or as the system says.
	 * What goes wrong later is told by the state. */
	int (*open)(const struct nvmf_queue_opts *o, struct nvmf_queue **ret, struct ros2_err *err);
	/* Kills it first. NULL is accepted. */
	void (*free)(struct nvmf_queue *q);
	enum nvmf_queue_state (*state)(const struct nvmf_queue *q);
	/* Why it failed: what was expected, what was found. "" before. Valid until free. Of a
	 * target that went against the specification the words begin with "target sent", or
	 * "target used" where it was a key. */
	const char *(*fault)(const struct nvmf_queue *q);
	/* 0 = the queue's; -EAGAIN: depth, or no key free: after some done; -ENOTCONN: not READY;
	 * -EINVAL: length, direction, memory. Hands nothing on by itself. */
	int (*submit)(struct nvmf_queue *q, struct nvmf_req *req);
	/* Hands on what was submitted, as one call if it can. 0 or -ENOTCONN. */
	int (*kick)(struct nvmf_queue *q, uint64_t now_ns);
	/* Takes what has come; runs at most about @max done. Returns how many. */
	uint32_t (*poll)(struct nvmf_queue *q, uint32_t max, uint64_t now_ns);
	/* Time-outs: an overdue command fails the queue. Returns the next deadline, UINT64_MAX =
	 * none. At least each second. */
	uint64_t (*tick)(struct nvmf_queue *q, uint64_t now_ns);
	/* Ends the connection now; everything in it comes back, in this call or, when a device has
	 * to confirm first, in later polls and ticks. @why: words, static or copied. */
	void (*kill)(struct nvmf_queue *q, const char *why);
	/* The right of this request, which is the queue's, has ended: if nothing of it was handed
	 * on it comes back in this call, with -ECANCELED. NULL: nothing waits here between kick and
	 * its being handed on. */
	void (*withdraw)(struct nvmf_queue *q, struct nvmf_req *req, uint64_t now_ns);
	/*
	 * What a right's end, or an operator, asks for. NULL, all five: there are no keys.
	 * keys_ending says when the device has confirmed.
	 */
	/* Standing keys end, each as soon as no command uses it; nobody finds them any more. What
	 * end_key has begun leaves with it. How many ended at once. */
	uint32_t (*forget_regions)(struct nvmf_queue *q, uint64_t now_ns);
	/* The key of this request, which is the queue's, ends now, not with the answer; the request
	 * comes back when it is answered, or with the queue, which a target ends that still uses
	 * the key. How many: 0 or 1. Leaves with the next kick, poll, tick or forget_regions. */
	uint32_t (*end_key)(struct nvmf_queue *q, struct nvmf_req *req, uint64_t now_ns);
	/* Keys whose end began at @until_ns or before, and which the device has not yet confirmed
	 * to be dead. Looks at all of them: for callers who wait for a right's end. */
	uint32_t (*keys_ending)(const struct nvmf_queue *q, uint64_t until_ns);
	/* The same of queues that were freed, over memory of @pd (NULL = any): what the device
	 * would not give up. Any thread. */
	uint32_t (*keys_kept)(const struct fabric_pd *pd);
	/* Runs @fn for each standing key to a slot, or, @folded, once for each direction; for keys
	 * of commands once for each direction, once there was one. */
	void (*keys)(const struct nvmf_queue *q, bool folded, key_info_fn fn, void *arg);
	uint32_t (*in_flight)(const struct nvmf_queue *q);
	void (*counters)(const struct nvmf_queue *q, struct nvmf_queue_counters *ret);
};

/* Do these words of a queue's fault, alone or in longer ones, say that the target lied, not that it
 * or the way to it ended? */
bool nvmf_queue_lied(const char *fault);

/* What one queue over RDMA may take of the tenant's domain. */
#define NVMF_RDMA_REGIONS_MAX 9u
#define NVMF_RDMA_PINNED_MAX  (256u * 1024)
#define NVMF_RDMA_WINDOWS_MAX 1096u

extern const struct nvmf_queue_ops nvmf_tcp_queue_ops;
extern const struct nvmf_queue_ops nvmf_rdma_queue_ops;

#endif
