/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of fabric_mem: all of them are guarded by one lock, mem_lock. */
#ifndef ROS2_TESTS_VERBS_FABRIC_MEM_PRIV_H
#define ROS2_TESTS_VERBS_FABRIC_MEM_PRIV_H

#include "common/util.h"
#include "tests/verbs/fabric_mem.h"
#include <pthread.h>

struct fabric_dev {
	struct fabric_dev_attr attr;
	int event_fd;
	_Atomic bool peer_invalidates;
	_Atomic uint32_t users;    /* as in the real one: reactors and engines give up channels */
	struct fabric_event event; /* words NULL: none */
	bool reset, removed;       /* removed: it has said so */
};

struct fabric_pd {
	struct fabric_dev *dev;
	struct fabric_pd_opts opts;
	struct fabric_pd_use use;
};

struct fabric_region {
	struct fabric_pd *pd;
	struct list link;
	uint8_t *mem;          /* where the device sees it; of a dma-buf mapped for it alone */
	uint64_t base, length; /* base: what peers call its first byte */
	bool bindable, owned, dmabuf;
	uint32_t users; /* windows bound, work requests */
};

struct fabric_channel {
	int fd;
	struct list sets; /* fabric_set.ready: have an event */
	struct fabric_dev *dev;
};

struct mem_wr {
	struct list link;
	struct fabric_qp *qp;
	enum fabric_op op;
	uint64_t cookie, remote_address;
	uint32_t flags, remote_key, n_parts;
	struct fabric_part parts[FABRIC_SGE_MAX];
	struct fabric_window *window;
	bool internal;        /* a LOCAL_INV: its end is a receipt, no completion */
	uint32_t invalidated; /* RECV: the key that the message invalidated */
};

struct mem_end {
	struct list link;
	struct fabric_completion c;
	struct fabric_window *receipt; /* instead of a completion */
};

struct fabric_set {
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set_opts opts;
	struct list ends; /* mem_end */
	struct list ready, qps, zombies;
	bool armed;
	uint32_t n_slots;
	struct fabric_slot *slots;
	bool *taken;
};

struct fabric_window {
	struct fabric_qp *qp;
	enum fabric_window_state state;
	struct fabric_region *region;
	uint64_t offset, length;
	uint8_t access;
	uint32_t key;
	bool held; /* by its caller: bind to revoke */
	fabric_receipt_fn fn;
	void *arg;
	uint64_t last_posted_ns;
};

struct fabric_qp {
	struct list link; /* set.qps */
	struct list all;
	struct fabric_set *set;
	struct fabric_qp_opts opts;
	uint64_t id;
	uint32_t number, peer, outstanding, n_recvs;
	enum fabric_qp_state state;
	bool zombie; /* freed while the device hung: nobody is told of it any more */
	struct list queued, receives, held; /* mem_wr */
	struct fabric_window *windows;
	const struct fabric_mem_failure *failure; /* borrowed: while it is being broken */
	/* fabric_mem_forge; FABRIC_END_OK: nothing */
	enum fabric_end forged;
	enum fabric_op forged_op;
};

/* Is it this call's turn to fail? Any thread. */
bool mem_faulty(void);

extern pthread_mutex_t mem_lock;
extern struct fabric_mem_counts mem_now;

struct fabric_qp *mem_qp_find(uint32_t number); /* locked */
/* Locked: to error; everything posted is flushed. */
void mem_qp_fail(struct fabric_qp *qp);
/* Locked: queue pairs that were freed while the device hung; false: it does still. */
bool mem_zombies_end(struct fabric_set *s);
struct fabric_qp *mem_qp_new(struct fabric_set *s, const struct fabric_qp_opts *o);
void mem_tell(struct fabric_set *s, const struct fabric_completion *c,
              struct fabric_window *receipt);
#endif
