/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The insides of the queue over NVMe/RDMA (rdma_queue*.c). Each queue has its own completion queue,
 * channel and connection manager in the tenant's domain: what a target does to them ends with this
 * queue, and nobody else has to take its completions out.
 *
 *   command:  FREE --submit--> QUEUED --kick--> OUT --answer, key dead--> READY --done--> FREE
 *                                 \--the queue fails, key dead------------>/
 *                        \--its time is over when it would leave, key dead-->/
 *
 * A key of one command: BIND and SEND leave by one doorbell; the answer starts its LOCAL_INV; the
 * request comes back only with the receipt. A standing key is bound over a whole region for one
 * direction when a command first needs it, and stays until the queue ends or its place is needed.
 * When the right ends under a command (end_key), its key ends at once, answer or not: the command
 * stays OUT until it is answered, and what the target does under the key meanwhile the device
 * refuses, which ends the queue.
 *
 * End of a queue: 1. FAILED, nothing is handed on; 2. the queue pair goes to error and its windows
 * are deallocated: no key is good any more; 3. the connection ends, so that the target knows; 4.
 * each command comes back with its receipt; 5. what the device has not given up in FLUSH_NS is
 * taken by destroying the queue pair, as soon as the device does; 6. free: queue pair, completion
 * queue, memory.
 */
#ifndef ROS2_DATAPLANE_NVMF_RDMA_QUEUE_PRIV_H
#define ROS2_DATAPLANE_NVMF_RDMA_QUEUE_PRIV_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"
#include "dataplane/nvmf/queue.h"

#define RDMA_OWN_SLOTS 8u /* admin data without a region */
#define RDMA_OWN_BYTES 4096u
#define RDMA_READS_IN  16u /* of the target, in flight */
#define RDMA_ADMIN_MAX 31u /* an admin queue has 32 entries: what targets accept */
#define RDMA_DEPTH_MAX 1024u
#define RDMA_STANDING  192u /* keys at least: a reactor's slots of a tenant, each way */
#define RDMA_SPARE     32u  /* windows that are on their way back */
/* The device's events name sets by cookies that lead to a reactor; a queue sees its own end. */
#define NVMF_RDMA_SET_COOKIE UINT64_MAX
#define RDMA_BUCKETS         64u
#define RDMA_BATCH           32u
#define RDMA_FLUSH_NS        2000000000ull
#define RDMA_GRACE_NS        1000000ull
#define RDMA_CAPSULE         sizeof(struct nvme_sqe)
#define RDMA_ANSWER          sizeof(struct nvme_cqe)

struct rdma_queue;

enum rdma_cmd_state { RDMA_CMD_FREE, RDMA_CMD_QUEUED, RDMA_CMD_OUT, RDMA_CMD_READY };

/* A standing key. */
struct rdma_key {
	struct rdma_queue *q;
	struct list bucket, lru;      /* lru: nobody uses it */
	struct fabric_region *region; /* borrowed: bound, so it cannot go */
	struct fabric_window *window; /* NULL = place is free */
	uint64_t base;
	uint64_t id, bound_ns, ended_ns; /* ended_ns: when its end began */
	uint32_t key, users;
	uint8_t access;
	bool ending, doomed; /* doomed: ends with its last user */
	bool withdrawn;      /* it ends because a right did */
};

struct rdma_cmd {
	struct rdma_queue *q;
	struct list link;             /* of q->free, queued, out, ready */
	struct nvmf_req *req;         /* borrowed: from submit to done */
	struct fabric_window *window; /* its own key; NULL when it is dead */
	struct rdma_key *standing;
	uint8_t *own;                /* slot of the queue */
	uint64_t bound_ns, ended_ns; /* of its window; ended_ns: when its end began */
	uint32_t own_index, key;
	uint16_t index, generation, cid;
	enum rdma_cmd_state state;
	bool ending;     /* its window's receipt is due */
	bool withdrawn;  /* because a right ended */
	bool cut;        /* so its key ended before the answer */
	bool late;       /* its time was over before it left: it never will */
	bool invalidate; /* the target was asked to */
	bool wait_sent;  /* the SEND reads memory of the request, or its place must come back */
	bool sent, answered, was_out;
	struct nvme_cqe cqe;
};

/* What a struct nvmf_queue of nvmf_rdma_queue_ops is. */
struct rdma_queue {
	/* immutable after open */
	uint16_t qid, cntlid;
	uint32_t depth, in_capsule_max, transfer_max, n_keys, n_own, n_windows;
	uint32_t index_bits; /* of a command id; the others are its generation */
	bool per_command, remote_invalidate;
	int epoll_fd, timer_fd;
	struct fabric_pd *pd;
	/* the device's */
	struct fabric_channel *channel; /* owned */
	struct fabric_set *set;         /* owned */
	struct fabric_cm *cm;           /* owned */
	struct fabric_conn *conn;       /* owned; NULL = ended */
	struct fabric_qp *qp;           /* owned; NULL = none */
	uint64_t kept_id;               /* of one that was freed and is not destroyed; 0 = none */
	struct fabric_region *region;   /* owned: of mem, not bindable */
	uint8_t *mem;                   /* owned: capsules, answers, slots of our own */
	size_t mem_bytes;
	struct fabric_region *own_regions[RDMA_OWN_SLOTS]; /* owned */
	uint32_t own_free;                                 /* bits */
	/* state */
	enum nvmf_queue_state state;
	char fault[320];
	const char
		*broken; /* the queue pair has failed: told when all answers were taken; static */
	uint64_t now_ns, connect_deadline_ns, failed_ns;
	uint64_t last_ns;    /* CLOCK_BOOTTIME until which all that is queued may leave */
	uint32_t limit;      /* commands at once */
	uint32_t n_busy;     /* requests that are the queue's */
	uint32_t n_receipts; /* that are due */
	uint32_t keys_live;  /* standing */
	uint32_t n_ends;     /* of work requests, ever */
	bool receives_queued, ends_queued; /* ends: LOCAL_INVs */
	bool conn_ended;                   /* so the queue pair fails, too */
	bool armed, timer_armed, running;
	struct rdma_cmd *cmds; /* owned */
	struct rdma_key *keys; /* owned */
	struct list free, queued, out, ready;
	struct list key_free, key_lru, buckets[RDMA_BUCKETS];
	struct nvmf_queue_counters c;
	uint64_t *ids;                  /* borrowed; NULL = nobody asks for keys */
	uint64_t row_ids[2], issued[2]; /* keys of commands, by direction: access - 1 */
	struct list buried;
};

enum rdma_cookie { RDMA_RECV = 1, RDMA_SEND, RDMA_BIND };
static inline uint64_t rdma_cookie(enum rdma_cookie kind, uint32_t which)
{
	return (uint64_t)kind << 32 | which;
}

/* rdma_queue.c. Ends the queue, with words; must not be called from a receipt. */
void rdma_fail(struct rdma_queue *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* It is READY as soon as nothing reaches its memory. */
void rdma_settle(struct rdma_cmd *cmd);
/* Takes all ends there are; does not judge those of the queue pair. */
void rdma_collect(struct rdma_queue *q);

/* rdma_queue_conn.c */
int rdma_connect_begin(struct rdma_queue *q, const struct sockaddr *peer, struct ros2_err *err);
void rdma_cm_events(struct rdma_queue *q);
void rdma_cm_tick(struct rdma_queue *q);
int rdma_post_receive(struct rdma_queue *q, struct fabric_qp *qp, uint32_t index);

/* rdma_queue_cmd.c */
int rdma_submit(struct rdma_queue *q, struct nvmf_req *req);
int rdma_hand_on(struct rdma_queue *q);
void rdma_ended(struct rdma_queue *q, const struct fabric_completion *e);
void rdma_release(struct rdma_cmd *cmd);

/* rdma_queue_keys.c. 0, -EAGAIN, -EINVAL, -ENOTCONN; *ret_addr and *ret_key for the descriptor. */
int rdma_key_for(struct rdma_cmd *cmd, struct fabric_region *r, uint64_t offset, uint32_t len,
                 bool own, uint64_t *ret_addr, uint32_t *ret_key);
/* The command needs it no longer; of its own key the end begins. */
void rdma_key_drop(struct rdma_cmd *cmd);
void rdma_keys_end(struct rdma_queue *q); /* all; the queue pair has failed */
/* Each as soon as no command uses it; how many at once. */
uint32_t rdma_keys_forget(struct rdma_queue *q);
/* The right under the command has ended: so does its key, now. How many. */
uint32_t rdma_key_withdraw(struct rdma_cmd *cmd);
/* Keys whose end began by then, and whose receipts are due. */
uint32_t rdma_keys_ending(const struct rdma_queue *q, uint64_t until_ns);
/* As nvmf_queue_ops.keys. */
void rdma_keys_tell(const struct rdma_queue *q, bool folded, key_info_fn fn, void *arg);

static inline uint8_t *rdma_capsule(const struct rdma_queue *q, uint32_t index)
{
	return q->mem + (size_t)index * RDMA_CAPSULE;
}
static inline uint64_t rdma_answer_at(const struct rdma_queue *q, uint32_t index)
{
	return (uint64_t)q->depth * RDMA_CAPSULE + (uint64_t)index * RDMA_ANSWER;
}
#endif
