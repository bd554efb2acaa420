/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The insides of dataplane/fabric: its objects with their handles of libibverbs and librdmacm, and
 * what its files owe each other. Must not be included outside this directory.
 *
 * Rings: a queue pair's send and receive side are rings of entries named by running 32-bit numbers:
 *
 *   done ......... known ......... posted ......... tail
 *        ended,           handed on        queued
 *        to be reported   to the device
 *
 * A completion makes everything up to its entry known (RC completes in order; what was not
 * signalled ended well unless the QP had failed before); polling reports and gives the place back.
 * So each end is counted exactly once.
 */
#ifndef ROS2_DATAPLANE_FABRIC_VERBS_PRIV_H
#define ROS2_DATAPLANE_FABRIC_VERBS_PRIV_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"
#include "dataplane/fabric/grace_priv.h"
#include "common/util.h"
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>

/* 7 would be for ever: a peer that posts no receive would hold our queue. */
#define RNR_RETRIES 3
#define RNR_FOREVER 7 /* as the specification has it */
/* Of what was not acknowledged. Of these, too, soft-RoCE takes 7 for without end. */
#define RETRIES 6

#define OP_MARK 0xff /* an entry of our own: its flush says that a failed QP has nothing left */

struct fabric_dev {
	/* immutable after open */
	struct fabric_dev_attr attr;
	struct ibv_context *context; /* owned */
	struct fabric_grace *grace;  /* owned; NULL: the device does what it says */
	/* any thread */
	_Atomic uint32_t n_pds, n_channels, next_vector;
	_Atomic bool removed, peer_invalidates;
};

struct fabric_pd {
	/* immutable after new */
	struct fabric_dev *dev; /* borrowed: it outlives us */
	struct ibv_pd *pd;      /* owned */
	struct fabric_pd_opts caps;
	/* any thread */
	_Atomic uint64_t pinned_bytes;
	_Atomic uint32_t regions, windows, qps, sets;
};

struct slot_place;

struct fabric_region {
	/* immutable after new */
	struct fabric_pd *pd; /* borrowed */
	struct ibv_mr *mr;    /* owned; NULL = deregistered */
	void *mem;            /* borrowed; NULL of a dma-buf */
	uint64_t base, length;
	bool bindable;
	struct slot_place *slot; /* borrowed: whose region it is; NULL = none */
	/* any thread reads */
	_Atomic uint32_t bound, held; /* windows; parts of work requests */
};

struct fabric_channel {
	struct fabric_dev *dev;           /* borrowed */
	struct ibv_comp_channel *channel; /* owned */
	int vector;                       /* interrupt of its completion queues */
	uint32_t n_sets;
};

/* One slot: in the pool, taken, or quarantined. */
struct slot_place {
	struct fabric_region region;
	struct fabric_set *set; /* borrowed: whose it is */
	uint8_t size_class;
	bool taken, quarantined;
};

struct slot_class {
	struct slot_place *places; /* owned */
	uint32_t *free;            /* owned: stack of indexes */
	uint32_t n, n_free;
};

struct send_entry {
	uint64_t cookie;
	struct fabric_window *window; /* borrowed: of bind and invalidate; else `under` */
	struct fabric_region *held[FABRIC_SGE_MAX];
	uint8_t n_held, op, end;
	bool quiet, ended, skip;
	uint32_t status, vendor_err;
};

struct recv_entry {
	uint64_t cookie;
	struct fabric_region *held[FABRIC_SGE_MAX];
	uint8_t n_held, end;
	bool ended, invalidated;
	uint32_t status, vendor_err, bytes, key;
};

struct ring {
	uint32_t size, mask; /* size: places that may be used */
	uint32_t done, known, posted, tail;
};

struct fabric_window {
	struct fabric_qp *qp;         /* borrowed */
	struct ibv_mw *mw;            /* owned; NULL when GONE */
	struct fabric_region *region; /* borrowed: while bound */
	uint64_t base, last_posted_ns, dead_ns, deadline_ns;
	uint32_t key;     /* of the last bind */
	uint32_t n_under; /* work requests that name it, not yet ended */
	enum fabric_window_state state;
	enum fabric_receipt_how how;
	bool held;        /* by the caller: bind to revoke */
	bool dead;        /* dead_ns and how are known */
	bool inv_pending; /* its LOCAL_INV has not ended */
	bool bind_pending;
	bool untimed; /* its bind has no deadline */
	bool pooled;
	uint32_t inv_seq;     /* of inv_pending */
	fabric_receipt_fn fn; /* NULL: no receipt is due */
	void *arg;
	struct list waiting;  /* of set.binding or set.invalidating */
	struct list settling; /* of set.settling: its receipt waits for grace */
	uint64_t grace;
};

struct fabric_qp {
	struct fabric_set *set;   /* borrowed */
	struct ibv_qp *qp;        /* owned */
	struct fabric_conn *conn; /* borrowed: ends before us, or forgets us */
	uint64_t id;              /* immutable */
	uint64_t last_posted_ns;
	uint32_t outstanding; /* of the caller, on the send side */
	struct fabric_qp_opts o;
	uint32_t index, generation; /* of set.qps */
	uint32_t psn, inline_max, access, sge_send, sge_recv;
	enum fabric_qp_state state;
	bool zombie;     /* freed by the caller, kept by the device */
	bool in_error;   /* the device accepted the move to error */
	bool saw_error;  /* a send has ended without success; flushed receives say nothing */
	bool bind_open;  /* a quiet bind is queued, and nothing signalled behind it */
	uint32_t silent; /* work requests since the last signalled one */
	/* send side */
	struct ring s;
	struct send_entry *sent; /* owned */
	struct ibv_send_wr *wrs; /* owned */
	struct ibv_sge *sges;    /* owned: sge_send for each place */
	uint32_t n_inv;          /* places taken by LOCAL_INV and the mark */
	/* receive side */
	struct ring r;
	struct recv_entry *received; /* owned */
	struct ibv_recv_wr *rwrs;    /* owned */
	struct ibv_sge *rsges;       /* owned */
	/* windows */
	struct fabric_window *windows; /* owned */
	uint32_t n_windows, n_pool;
	struct fabric_window **pool; /* owned: free ones */
	struct fabric_window *last_back;
	uint32_t n_gone;    /* GONE or SET_ASIDE */
	uint32_t n_live;    /* BINDING or BOUND: a LOCAL_INV is to come */
	struct list link;   /* set.all */
	struct list report; /* set.reports, when there is something to report */
};

struct fabric_set {
	struct fabric_pd *pd;        /* borrowed */
	struct fabric_channel *chan; /* borrowed */
	struct ibv_cq *cq;           /* owned; its context is the set */
	struct fabric_set_opts o;
	struct fabric_qp **qps;   /* owned array; entries owned */
	uint32_t *qp_generations; /* owned */
	uint32_t n_qps;
	struct list all, reports, binding, invalidating, settling, zombies;
	struct slot_class slots[FABRIC_SLOT_CLASSES];
	uint8_t *slot_mem; /* owned: mmap */
	size_t slot_bytes;
	struct fabric_counters c;
	/* The clock after the completions that are being taken out came out; 0 = none are, or it
	 * was not read. */
	uint64_t batch_ns;
	bool taking; /* batch_ns may be used */
	bool failed, has_event;
	struct list event; /* for the time of fabric_channel_events */
};

/* verbs_dev.c: turns an errno of libibverbs (positive; 0 = it did not say) into ours, with words.
 */
int verbs_err(struct ros2_err *err, int code, const struct fabric_dev *d, const char *what);
void verbs_port_fill(struct fabric_port *p, const struct ibv_port_attr *a, uint32_t number);

/* verbs_mem.c */
int pd_take(_Atomic uint32_t *count, uint32_t n, uint32_t max);
int region_init(struct fabric_region *r, struct fabric_pd *pd, const struct fabric_region_opts *o,
                struct ros2_err *err);
int region_fini(struct fabric_region *r);
/* [offset, +length) lies within. */
bool region_covers(const struct fabric_region *r, uint64_t offset, uint64_t length);
void region_hold(struct fabric_region *r);
void region_unhold(struct fabric_region *r);
void region_unbind(struct fabric_region *r);

/* verbs_slots.c */
int slots_make(struct fabric_set *s, struct ros2_err *err);
int slots_unmake(struct fabric_set *s);
void slot_settle(struct slot_place *p); /* nothing names it any more */

/* verbs_set.c */
uint32_t set_pull(struct fabric_set *s, uint32_t max, int *ret);
/* CLOCK_BOOTTIME, read once for all completions that came out of the CQ together: what they tell of
 * was over before. */
uint64_t set_now(struct fabric_set *s);
uint64_t wr_id(const struct fabric_qp *qp, bool recv, uint32_t number);

/* verbs_qp.c */
int qp_make(struct fabric_set *s, const struct fabric_qp_opts *o, struct fabric_qp **ret,
            struct ros2_err *err);
int qp_modify(struct fabric_qp *qp, struct ibv_qp_attr *a, int mask, const char *what,
              struct ros2_err *err);
int qp_join_manager(struct fabric_qp *qp, struct rdma_cm_id *id, enum ibv_qp_state to,
                    struct ros2_err *err);
int qp_verify(struct fabric_qp *qp, struct ros2_err *err);
void qp_move(struct fabric_qp *qp, enum fabric_qp_state to);
void qp_fail(struct fabric_qp *qp);
int qp_destroy(struct fabric_qp *qp);

/* verbs_ends.c: from completions to reports. */
void qp_note(struct fabric_qp *qp, const struct ibv_wc *wc);
void qp_drop_queued(struct fabric_qp *qp);
void qp_skipped(struct fabric_qp *qp);
uint32_t qp_report(struct fabric_qp *qp, struct fabric_completion *out, uint32_t max);
uint32_t
qp_unreported(const struct fabric_qp *qp); /* what the caller will not hear of, if it ends now */
void qp_forget(struct fabric_qp *qp);

/* verbs_post.c */
void post_mark(struct fabric_qp *qp);
struct ibv_send_wr *queue_send(struct fabric_qp *qp, uint64_t cookie, uint8_t op, uint32_t flags,
                               struct fabric_window *w);

/* verbs_window.c */
int windows_make(struct fabric_qp *qp, struct ros2_err *err);
int windows_unmake(struct fabric_qp *qp);  /* 0, or -EBUSY */
void windows_fail(struct fabric_qp *qp);   /* its QP is unusable */
void windows_refill(struct fabric_qp *qp); /* successors, and another try of what was refused */
void window_leaves(struct fabric_window *w, uint8_t op, uint64_t now_ns);
void window_bound(struct fabric_window *w, bool ok);
void window_invalidated(struct fabric_window *w, bool ok);
void window_foreign(struct fabric_qp *qp, uint32_t key);
void window_late(struct fabric_window *w, uint64_t now_ns);
void window_settle(struct fabric_window *w);
void windows_grace(struct fabric_set *s); /* receipts whose time has come */
void windows_over(struct fabric_qp *qp);  /* it is destroyed: nothing is under way */

/* What the context of an rdma_cm_id points to. */
struct cm_node {
	bool is_listener;
};

struct fabric_cm {
	struct rdma_event_channel *channel; /* owned */
	struct fabric_cm_opts o;
	struct list conns, listeners;
	uint32_t n_requests; /* connections in REQUESTED */
};

struct fabric_listener {
	struct cm_node node;   /* first */
	struct fabric_cm *cm;  /* borrowed */
	struct rdma_cm_id *id; /* owned */
	struct list link;
};

struct fabric_conn {
	struct cm_node node;   /* first */
	struct fabric_cm *cm;  /* borrowed */
	struct rdma_cm_id *id; /* owned */
	struct fabric_qp *qp;  /* borrowed: until it is freed */
	enum fabric_conn_state state;
	uint64_t cookie, deadline_ns;
	uint8_t reads_offered; /* READs that the peer lets us have in flight */
	uint32_t peer_qpn;
	char device[FABRIC_NAME_MAX];
	struct list link;
};

/* An event of librdmacm after it was acknowledged. */
struct cm_event {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id, *listen_id;
	int status;
	uint32_t qpn;
	uint8_t data[256], data_len, reads_offered;
};

/* verbs_conn.c */
struct fabric_conn *conn_new(struct fabric_cm *cm, struct rdma_cm_id *id,
                             enum fabric_conn_state state);
void conn_move(struct fabric_conn *c, enum fabric_conn_state to);
void conn_end(struct fabric_conn *c);
void conn_know_device(struct fabric_conn *c);
int conn_answered(struct fabric_conn *c, const struct cm_event *e);
void conn_forget_qp(struct fabric_conn *c);

#endif
