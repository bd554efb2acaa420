/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage of an attack: an agent that serves two tenants, A and B, and each tenant's own end in
 * raw verbs. With its defence the agent is the product (dataplane/fabric); without, it is one that
 * knows none of it: one protection domain, one region whose key everybody gets, revocation that
 * only forgets, and whatever else `struct stage_opts` lets it share.
 */
#ifndef ROS2_TESTS_ATTACK_VERBS_STAGE_H
#define ROS2_TESTS_ATTACK_VERBS_STAGE_H

#include "dataplane/fabric/fabric.h"
#include "tests/attack/attack.h"
#include "tests/attack/verbs_rig.h"

enum who { A, B, TENANTS };

struct stage_opts {
	bool one_tenant; /* B's connection is a second one of A's */
	bool closed;     /* the agent's queue pairs take no remote operation, as towards tenants */
	uint32_t recvs;  /* that the agent posts on each connection */
	uint32_t shared_cq;   /* without defence: one completion queue of this depth */
	uint32_t shared_srq;  /* without defence: one receive queue with so many receives */
	bool open_peers;      /* the tenants' ends take remote operations */
	bool psn_known;       /* without defence: sequence numbers that begin at 0 */
	uint8_t rnr_timer;    /* of the tenants' ends */
	bool no_peer_recvs;   /* B's end posts none */
	const char *device_b; /* B's end is on another device; NULL = the same */
};

struct stage {
	struct stage_opts o;
	bool defended;
	struct raw raw, raw_b;
	struct raw_end peer[TENANTS];
	/* the product */
	struct fabric_dev *dev;
	struct fabric_channel *chan;
	struct fabric_pd *pd[TENANTS];
	struct fabric_set *set[TENANTS];
	struct fabric_qp *qp[TENANTS];
	/* the other */
	struct raw_cq cq;
	struct raw_end agent[TENANTS];
	struct ros2_err err;
};

/* What a tenant was given for its queue pair: [addr, +length) under a key. */
struct stage_lease {
	enum who of;
	uint8_t *mem;
	uint64_t addr;
	uint32_t length, key;
	/* the product's */
	struct fabric_slot slot;
	struct fabric_window *window;
};

struct fabric_pd_opts stage_caps(void);
/* 0 or -errno; close it in either case. */
int stage_open(struct stage *s, bool defended, const struct stage_opts *o);
void stage_close(struct stage *s);

/* @length of memory, all of a lease; filled with the tenant's letter. */
int stage_lend(struct stage *s, enum who of, uint32_t length, bool writable,
               struct stage_lease *ret);
/* With its defence: another window than stage_lend's over what it lent. */
int stage_bind(struct stage *s, const struct fabric_bind *b, struct stage_lease *l);
/* What each agent calls a revocation; when it returns 0 the key should be dead. */
int stage_revoke(struct stage *s, struct stage_lease *l);
/* The agent has given up the connection of @who and made one for @next's end in its place. */
int stage_rejoin(struct stage *s, enum who who, enum who next);
/* How many bytes of the lease are not as stage_lend made them? */
uint32_t stage_changed(const struct stage_lease *l);
/* The agent takes what has ended on @who's connection: how many receives among it. */
uint32_t stage_takes(struct stage *s, enum who who);
/* Does @l's owner still read through its lease, and does a message of his arrive? */
bool stage_serves(struct stage *s, const struct stage_lease *l);
/* Work of the agent's towards @who that is not waited for: a message, or, with a key, an RDMA READ
 * of POSTED_BYTES. It stays until the stage closes. */
#define POSTED_BYTES 64u
struct stage_posted {
	enum who who;
	bool read;
	uint8_t *mem; /* where the READ goes */
	struct fabric_slot slot;
};
int stage_post(struct stage *s, enum who who, uint64_t addr, uint32_t key,
               struct stage_posted *ret);
/* How it ended: an ibv_wc_status, or -ETIMEDOUT after @patience_ms. */
int stage_posted_end(struct stage *s, const struct stage_posted *p, int patience_ms);
/* The agent sends a message to @who: an end, or -ETIMEDOUT after @patience_ms. */
int stage_send(struct stage *s, enum who who, int patience_ms);
#endif
