/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One face over an RDMA device: what a device can do for isolation, without a type of libibverbs.
 * Who uses it decides rights; here is decided that nothing reaches the device that was not checked
 * first, and that what was withdrawn is withdrawn. Connections: fabric_conn.h.
 *
 *   object          is                                     owner
 *   fabric_dev      one opened device                      one thread, the loop's
 *   fabric_pd       tenant x device: protection domain     the device's; reactors share it
 *   fabric_channel  reactor x device: wakes it for CQs     the reactor
 *   fabric_set      tenant x reactor: a CQ, slots, QPs     the reactor
 *   fabric_qp       an RC queue pair of a set              the reactor
 *   fabric_window   a type-2B memory window of a QP        the reactor
 *   fabric_region   registered memory of a PD              its maker; bindings: the reactor's
 *
 * Invariants: (1) no completion queue can overflow: a QP is made only if its whole depth is still
 * free in the CQ of its set; (2) every work request is checked in software before it is handed on,
 * and its end is reported at most once: always when it failed, and when it succeeded unless it was
 * FABRIC_QUIET; (3) a window is bound to one QP, the one it was allocated for, and every bind gives
 * a new key; (4) a LOCAL_INV is posted exactly once for each bind; (5) after a receipt the device
 * serves no access under that key; (6) registered memory has no remote flag: a peer reaches it
 * through a window only; (7) after fabric_set_new and fabric_qp_* nothing allocates, and nothing
 * locks.
 *
 * Errors: 0 or negative errno with words. What a caller can do about it has its own code:
 * -EOPNOTSUPP (the device cannot: the words name it), -EDQUOT (a cap of the tenant), -EBUSY (no
 * room now: take completions and try again), -ENOMEM and -ENOSPC (the device or the machine has no
 * more), -ERANGE, -EPERM, -EINVAL (the software check refused), -ENOTCONN (the QP is not ready, or
 * has failed), -ENODEV (the device is gone).
 *
 * Sources: InfiniBand Architecture Specification vol. 1, release 1.3, 10.6 (memory
 * management; 10.6.7.2 windows), 10.8 (work requests), 11.6.2 (completion status), C9-88
 * (zero-length access); ibv_post_send(3), ibv_bind_mw(3), ibv_get_async_event(3),
 * ibv_reg_dmabuf_mr(3).
 */
#ifndef ROS2_DATAPLANE_FABRIC_H
#define ROS2_DATAPLANE_FABRIC_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FABRIC_NAME_MAX     64
#define FABRIC_GID_LEN      16
#define FABRIC_PORTS_MAX    4u
#define FABRIC_GIDS_MAX     16u
#define FABRIC_SGE_MAX      4u /* parts of one SEND, RECV, READ or WRITE */
#define FABRIC_SLOT_CLASSES 3  /* 16 KiB, 128 KiB, 1 MiB: dataplane/slots.h */
#define FABRIC_DEPTH_MAX    16384u
#define FABRIC_QPS_MAX      1024u /* of one set */
#define FABRIC_WINDOWS_MAX  4096u /* of one QP */

/* ---- device ---- */

struct fabric_gid {
	uint8_t raw[FABRIC_GID_LEN];
	uint32_t index;
	bool roce_v2;
};

struct fabric_port {
	uint32_t number; /* from 1 */
	bool active, ethernet;
	uint32_t mtu_bytes;         /* the active one */
	uint32_t max_message_bytes; /* of one work request */
	uint16_t lid;
	uint32_t n_gids;
	struct fabric_gid gids[FABRIC_GIDS_MAX];
};

struct fabric_dev_attr {
	char name[FABRIC_NAME_MAX], firmware[64];
	uint32_t vendor_id, vendor_part_id, hw_version;
	uint64_t node_guid; /* as a number */
	/* limits of the device, not what is left of them */
	uint32_t max_qps, max_qp_depth, max_cqs, max_cq_depth, max_regions, max_windows, max_pds,
		max_sge;
	/* RDMA READs in flight of one QP: as target, as initiator */
	uint32_t max_reads_in, max_reads_out;
	uint64_t max_region_bytes;
	uint64_t max_window_bytes; /* of one window; 0: no limit is known */
	/* the kernel plays the device: receipts wait until it cannot be copying any more (grace.c)
	 */
	bool software;
	bool window_2b;   /* what it claims: type 2B windows and LOCAL_INV */
	uint32_t n_ports; /* at most FABRIC_PORTS_MAX are told */
	struct fabric_port ports[FABRIC_PORTS_MAX]; /* as they were when it was opened */
};

struct fabric_dev;

/* Names of the devices of this machine; *ret_n may be 0. No library or kernel support is 0 devices,
 * not an error. -ENOMEM. Any thread. */
int fabric_list(char (*names)[FABRIC_NAME_MAX], uint32_t max, uint32_t *ret_n,
                struct ros2_err *err);

/* For a program that may fork: afterwards that takes no registered page from under a device (the
 * first of parent and child that writes to it would have another one from then on, and the device
 * the old one). 0, also where the kernel sees to that by itself; else whole pages that are
 * registered are not there in children. -EOPNOTSUPP: too late, somebody has registered memory
 * without it. Sources: ibv_fork_init(3), ibv_is_fork_initialized(3). */
int fabric_fork_init(struct ros2_err *err);

/* -ENODEV with the names there are, -EACCES, -ENOMEM, -EIO. */
int fabric_dev_open(const char *name, struct fabric_dev **ret, struct ros2_err *err);
/* -EBUSY while it has protection domains or channels: then nothing happened. NULL is accepted. */
int fabric_dev_close(struct fabric_dev *d);
/* Immutable; any thread. */
const struct fabric_dev_attr *fabric_dev_attr(const struct fabric_dev *d);
/* Whether a peer's SEND invalidates keys of its own queue pair and no others, as was seen by trying
 * (common/probe.h: foreign-invalidate), so that a peer may be asked to. False until it is told, and
 * always on a software device, whose kernel may stop at it. Any thread. */
void fabric_dev_set_peer_invalidates(struct fabric_dev *d, bool seen_safe);
bool fabric_dev_peer_invalidates(const struct fabric_dev *d);
/* Asks the device how the port is now. -EINVAL, -EIO. Owner. */
int fabric_dev_port(struct fabric_dev *d, uint32_t number, struct fabric_port *ret,
                    struct ros2_err *err);

enum fabric_event_kind {
	FABRIC_EVENT_DEVICE_REMOVED, /* everything made from it has failed: end it, then close */
	FABRIC_EVENT_PORT_UP,
	FABRIC_EVENT_PORT_DOWN,
	FABRIC_EVENT_QP_FAILED, /* the reactor of its set must call fabric_qp_failed */
	FABRIC_EVENT_CQ_FAILED, /* the reactor of the set must call fabric_set_failed */
	FABRIC_EVENT_OTHER,     /* nothing to do: GID or LID change, last WQE, path migration ... */
};
const char *fabric_event_kind_to_str(enum fabric_event_kind k);

struct fabric_event {
	enum fabric_event_kind kind;
	uint32_t port;       /* of PORT_*, else 0 */
	uint64_t set_cookie; /* fabric_set_opts.cookie of QP_FAILED, CQ_FAILED */
	uint64_t qp_id;      /* fabric_qp_id of QP_FAILED; may be gone by now */
	const char *words;   /* static */
};
/* Non-blocking; for the owner's epoll (EPOLLIN). */
int fabric_dev_event_fd(const struct fabric_dev *d);
/* Owner: takes what there is, at most 64, and says how many. Events name no pointer, so that they
 * can be posted to another thread. ibv_get_async_event(3). */
uint32_t fabric_dev_events(struct fabric_dev *d,
                           void (*fn)(void *arg, const struct fabric_event *e), void *arg);

/* It has said so (DEVICE_REMOVED), and that was taken: a device that was reset is there again under
 * its name, but for whoever opens it anew. Any thread. */
bool fabric_dev_removed(const struct fabric_dev *d);

/* ---- protection domain: tenant x device ---- */

struct fabric_pd;

/* Caps of one tenant on this device; each must be at least 1. */
struct fabric_pd_opts {
	uint64_t pinned_bytes_max; /* slots and regions */
	uint32_t regions_max;      /* slots count too */
	uint32_t windows_max, qps_max;
};
/* Owner of the device. -EINVAL, -ENOMEM, -ENOSPC. */
int fabric_pd_new(struct fabric_dev *d, const struct fabric_pd_opts *o, struct fabric_pd **ret,
                  struct ros2_err *err);
/* Owner of the device. -EBUSY while it has sets or regions: then nothing happened. NULL is
 * accepted. */
int fabric_pd_free(struct fabric_pd *pd);

struct fabric_dev *fabric_pd_dev(const struct fabric_pd *pd); /* any thread */

struct fabric_pd_use {
	uint64_t pinned_bytes;
	uint32_t regions, windows, qps, sets;
};
void fabric_pd_use(const struct fabric_pd *pd, struct fabric_pd_use *ret); /* any thread */

/* ---- regions ---- */

enum fabric_access { FABRIC_READ = 1, FABRIC_WRITE = 2 }; /* what a peer may do */

struct fabric_region;

struct fabric_region_opts {
	void *addr; /* borrowed: until fabric_region_free; of a dma-buf see below */
	uint64_t length;
	bool bindable; /* windows may be bound over it (MW_BIND); always without a remote flag */
	/* the memory is [dmabuf_offset, +length) of dmabuf_fd (GPU memory); its addresses begin at
	 * addr, which is a number only and is never looked into */
	bool dmabuf;
	int dmabuf_fd; /* borrowed: for the call */
	uint64_t dmabuf_offset;
};
/* Any thread. -EINVAL (zero, wraps, beyond the device's limit), -EDQUOT (a cap of the PD),
 * -EOPNOTSUPP (`dma-buf: not supported by DEVICE`), -ENOMEM, -EFAULT. */
int fabric_region_new(struct fabric_pd *pd, const struct fabric_region_opts *o,
                      struct fabric_region **ret, struct ros2_err *err);
/* Any thread when nothing uses it. -EBUSY while a window is bound over it, or work requests name
 * it, or the device says so (ibv_dereg_mr(3): EINVAL with a bound window): then nothing happened.
 * NULL is accepted. */
int fabric_region_free(struct fabric_region *r);
/* The address a peer names. */
uint64_t fabric_region_base(const struct fabric_region *r);
uint64_t fabric_region_length(const struct fabric_region *r);
void *fabric_region_mem(const struct fabric_region *r); /* NULL of a dma-buf */

/* ---- channel: reactor x device ---- */

struct fabric_channel;
/* Any thread; what is made belongs to one. -ENOMEM, -ENOSPC. */
int fabric_channel_new(struct fabric_dev *d, struct fabric_channel **ret, struct ros2_err *err);
/* After its sets. NULL is accepted. */
void fabric_channel_free(struct fabric_channel *c);
/* Non-blocking; for the reactor's epoll (EPOLLIN). */
int fabric_channel_fd(const struct fabric_channel *c);
struct fabric_set;
/* Takes the events that are there; @fn runs once for each set that has work, and may poll it, but
 * free no set. Returns how many sets. */
uint32_t fabric_channel_events(struct fabric_channel *c,
                               void (*fn)(void *arg, struct fabric_set *s), void *arg);

/* ---- set: tenant x reactor ---- */

struct fabric_set_opts {
	uint64_t cookie;   /* the caller's name for it; comes back in events */
	uint32_t cq_depth; /* sum of fabric_qp_cq_room of all its QPs; 1..device limit */
	uint32_t qps_max;  /* 1..FABRIC_QPS_MAX */
	uint32_t slots[FABRIC_SLOT_CLASSES];
	uint64_t bind_limit_ns, invalidate_limit_ns; /* 0 = 1 s, 100 ms: see the ladder below */
	/* A window that is bound ends by dealloc at once, a call of the kernel, instead of by
	 * LOCAL_INV: for devices that let any peer invalidate it unseen and whose kernel stops at
	 * the second invalidation (soft-RoCE). One that is BINDING still gets its LOCAL_INV. */
	bool end_by_dealloc;
};
/* Reactor. Made on a tenant's first use here. -EINVAL, -EDQUOT, -ENOMEM, -ENOSPC; what was made is
 * undone. */
int fabric_set_new(struct fabric_pd *pd, struct fabric_channel *c, const struct fabric_set_opts *o,
                   struct fabric_set **ret, struct ros2_err *err);
/* Windows, then QPs, then slots, then the CQ. -EBUSY if the device keeps something: what is left
 * can be freed by calling again; nothing else may be done with the set. Work requests that had not
 * ended are forgotten. NULL is accepted. */
int fabric_set_free(struct fabric_set *s);
uint64_t fabric_set_cookie(const struct fabric_set *s);

/* The end of a work request. */
enum fabric_op {
	FABRIC_OP_SEND,
	FABRIC_OP_RECV,
	FABRIC_OP_READ,
	FABRIC_OP_WRITE,
	FABRIC_OP_BIND,
	FABRIC_OP_INVALIDATE, /* in no completion: the receipt of the window tells its end */
};
const char *fabric_op_to_str(enum fabric_op op);

enum fabric_end {
	FABRIC_END_OK,
	FABRIC_END_FLUSHED, /* the QP had failed or was ended before it was done */
	FABRIC_END_LOCAL,   /* our own side was wrong: length, protection, QP operation, bind */
	FABRIC_END_REMOTE_ACCESS, /* the peer's device refused the key, the range or the access */
	FABRIC_END_REMOTE_OTHER,  /* the peer's device refused or failed otherwise */
	FABRIC_END_NO_ANSWER,     /* retries exceeded: also a READ whose key was withdrawn */
	FABRIC_END_NO_RECEIVE,    /* the peer had no receive posted (RNR retries exceeded) */
	FABRIC_END_DEVICE,        /* fatal, or a status this version does not know */
};
const char *fabric_end_to_str(enum fabric_end e);

struct fabric_qp;
struct fabric_window;

struct fabric_completion {
	uint64_t cookie;
	struct fabric_qp *qp; /* valid until fabric_qp_free */
	enum fabric_op op;
	enum fabric_end end;
	uint32_t bytes;         /* RECV: received */
	uint32_t device_status; /* ibv_wc_status, for records */
	uint32_t vendor_err;    /* the device's own number for it, for records; 0 = it says none */
	bool invalidated;       /* RECV of a SEND that also invalidated one of our windows: @key */
	uint32_t key;
};
/* Takes up to @max ends; less than @max means that there is no more now. Receipts of windows run
 * inside. A QP with a failed work request has failed (fabric_qp_state) when this returns; all its
 * others follow as FLUSHED. -ENODEV when the CQ cannot be polled: then the set has failed. Reactor.
 */
int fabric_set_poll(struct fabric_set *s, struct fabric_completion *out, uint32_t max);
/* The channel's fd becomes readable with the next completion. Poll once more afterwards: what came
 * in between gives no event (ibv_req_notify_cq(3)). -ENODEV. Reactor. */
int fabric_set_arm(struct fabric_set *s);
/* What has waited too long moves on (binds, invalidates, joins), windows and slots that were set
 * aside are tried again. At least every invalidate_limit_ns. Returns when the next deadline is
 * (CLOCK_BOOTTIME), UINT64_MAX = none. Reactor. */
uint64_t fabric_set_tick(struct fabric_set *s, uint64_t now_ns);
/* The device reported it, or it is gone: all QPs have failed, nothing can be made. Receipts run
 * inside. Reactor. */
void fabric_set_failed(struct fabric_set *s);

struct fabric_counters {
	/* work requests; completed = with success, quiet ones too */
	uint64_t posted, completed, failed, flushed;
	uint64_t doorbells;          /* calls that handed work requests to the device */
	uint64_t cqes;               /* taken out of the CQ: what was not signalled has none */
	uint64_t refused;            /* by the checks in software */
	uint64_t binds, invalidates; /* handed on */
	uint64_t binds_failed;
	uint64_t fallback_deallocs; /* windows that were deallocated because LOCAL_INV could not, or
	                               did not, do it */
	uint64_t fallback_errors;   /* ... and QPs taken to error because that failed, too */
	uint64_t late;              /* waiting states that ran into their deadline */
	uint64_t stale;             /* completions of something that had been given up: dropped */
	uint64_t foreign_invalidates; /* windows that a peer invalidated */
	uint64_t receipts;
	uint32_t windows_bound, windows_waiting, windows_set_aside; /* now */
	uint32_t slots_taken, slots_quarantined;                    /* now */
	uint32_t cq_depth, cq_reserved;                             /* now */
};
void fabric_set_counters(const struct fabric_set *s, struct fabric_counters *ret);

/* ---- slots: agent memory, each its own region ---- */

/* A slot is borrowed from its set between take and give; NULL = none. */
struct fabric_slot {
	uint8_t *mem;
	struct fabric_region *region; /* exactly this slot: bindable, no remote flag */
	uint32_t size_class, index, size_bytes;
};
/* The smallest free one of at least @len bytes (1..1 MiB). False: none. Reactor. */
bool fabric_slot_take(struct fabric_set *s, uint32_t len, struct fabric_slot *ret);
/* Back to the pool; if a window is still bound over it, or a work request still names it, it is
 * quarantined until neither is. True: back in the pool. Reactor. */
bool fabric_slot_give(struct fabric_set *s, struct fabric_slot *slot);

/* ---- queue pairs ---- */

enum fabric_qp_state {
	FABRIC_QP_MADE,    /* receives may be posted */
	FABRIC_QP_JOINING, /* the peer has been named; waits for it, until a deadline */
	FABRIC_QP_READY,
	FABRIC_QP_FAILED, /* in error: only flushes come; its windows have been deallocated */
};
#define FABRIC_QP_STATES 4
const char *fabric_qp_state_to_str(enum fabric_qp_state s);
bool fabric_qp_state_may_follow(enum fabric_qp_state from, enum fabric_qp_state to);

struct fabric_qp_opts {
	uint64_t cookie; /* the caller's; fabric_qp_cookie */
	/* work requests of the caller, binds too; LOCAL_INVs have room of their own */
	uint32_t send_depth;
	uint32_t recv_depth;
	uint32_t send_parts, recv_parts; /* 0 = 1; at most FABRIC_SGE_MAX */
	uint32_t inline_bytes;           /* wished for; fabric_qp_inline_max says what it became */
	uint32_t windows;                /* allocated after it, freed before it */
	/* enum fabric_access: what peers' keys are good for here; 0 = no remote operation at all,
	 * not even a zero-length one */
	uint8_t remote_access;
	/* RDMA READs a peer may have in flight (responder_resources): 0 unless FABRIC_READ, then
	 * not 0 */
	uint8_t reads_in;
	uint8_t reads_out; /* ours in flight; 0: no RDMA READ can be queued */
	bool rnr_forever;  /* for tests: a peer without receives is waited for without end */
	uint32_t port;     /* hand-made connections; 0 = 1 */
	uint32_t gid_index;
	uint64_t join_limit_ns; /* 0 = 5 s */
};

/* Places in the completion queue of its set that a queue pair reserves: for its sends, its
 * receives, the LOCAL_INVs of its windows, and one of our own. */
static inline uint32_t fabric_qp_cq_room(const struct fabric_qp_opts *o)
{
	return o->send_depth + o->recv_depth + o->windows + 1;
}

struct fabric_qp_addr {
	uint8_t gid[FABRIC_GID_LEN];
	uint16_t lid;
	uint32_t qpn, psn; /* 24 bits each */
	uint32_t mtu_bytes;
};

/* A hand-made connection: make, exchange addresses by other means, join. Reactor. -EINVAL, -EDQUOT,
 * -EBUSY (its depth is not free in the CQ), -EOPNOTSUPP (windows), -ENOMEM, -ENOSPC; what was made
 * is undone. */
int fabric_qp_new(struct fabric_set *s, const struct fabric_qp_opts *o, struct fabric_qp **ret,
                  struct ros2_err *err);
/* The PSN is random. */
void fabric_qp_address(const struct fabric_qp *qp, struct fabric_qp_addr *ret);
/* MADE -> READY. Verified by ibv_query_qp: -EPERM when the device shows other access flags than
 * were asked for; the QP has failed then. -EINVAL, -EIO, -ENOTCONN (not MADE). */
int fabric_qp_join(struct fabric_qp *qp, const struct fabric_qp_addr *peer, struct ros2_err *err);

uint64_t fabric_qp_id(const struct fabric_qp *qp); /* never repeats in a process */
uint64_t fabric_qp_cookie(const struct fabric_qp *qp);
enum fabric_qp_state fabric_qp_state(const struct fabric_qp *qp);
uint32_t fabric_qp_number(const struct fabric_qp *qp); /* the device's */
uint32_t fabric_qp_inline_max(const struct fabric_qp *qp);
struct fabric_qp *fabric_qp_find(struct fabric_set *s, uint64_t id); /* NULL = gone */
/* Work requests of the caller that may still be queued before -EBUSY. */
uint32_t fabric_qp_send_room(const struct fabric_qp *qp);
uint32_t fabric_qp_recv_room(const struct fabric_qp *qp);
/* Queued or handed on, and not yet ended (receives are not counted). */
uint32_t fabric_qp_outstanding(const struct fabric_qp *qp);

/* Which step of the ladder did it. */
enum fabric_receipt_how { FABRIC_BY_INVALIDATE, FABRIC_BY_DEALLOC, FABRIC_BY_QP_ERROR };
const char *fabric_receipt_how_to_str(enum fabric_receipt_how h);
/* What a revocation achieved; times are CLOCK_BOOTTIME. */
struct fabric_receipt {
	uint64_t last_posted_ns; /* the last work request under the right was handed on; 0 = none */
	uint64_t invalidated_ns; /* since then the device serves nothing under it */
	uint32_t draining;       /* work requests handed on before, not yet ended; slots are held */
	enum fabric_receipt_how how;
};
typedef void (*fabric_receipt_fn)(void *arg, const struct fabric_receipt *r);

/* Stops new work, drops what was queued and not handed on, takes the QP to error: what a peer was
 * given is dead, what we had handed on comes back as FLUSHED or as it ended. *ret (may be NULL) is
 * the receipt; bound windows are deallocated, and their own receipts run inside. 0, or -EIO when
 * the device refuses even that: then free it. Reactor. */
int fabric_qp_kill(struct fabric_qp *qp, struct fabric_receipt *ret);
/* The device said so (FABRIC_EVENT_QP_FAILED). As kill. */
void fabric_qp_failed(struct fabric_qp *qp);
/* Windows, then the QP. Ends the connection. Work requests that have not ended are forgotten: their
 * slots come back, no completion names them; returns how many. Receipts run inside. If the device
 * keeps a window or the QP it stays with the set, which tries again in tick and in fabric_set_free.
 * NULL is accepted. Reactor. */
uint32_t fabric_qp_free(struct fabric_qp *qp);
/* The device keeps a queue pair of that id, which was freed: it may still do what was posted.
 * Reactor. */
bool fabric_qp_kept(const struct fabric_set *s, uint64_t id);

/* ---- work requests ---- */

/* [offset, +length) of a region of the same PD. */
struct fabric_part {
	struct fabric_region *region;
	uint64_t offset;
	uint32_t length;
};

enum fabric_wr_flags {
	/* Success is not reported; what it holds comes back with a later one that is not quiet. */
	FABRIC_QUIET = 1,
	FABRIC_FENCE = 2,     /* after all earlier READs of the QP */
	FABRIC_SOLICITED = 4, /* SEND: wakes a peer that armed for solicited events */
	/* SEND: also invalidates @remote_key at the peer; for tests */
	FABRIC_REMOTE_INVALIDATE = 8,
	/* BIND, with FABRIC_QUIET: its end, and that of quiet work requests under its window, is
	 * known with that of a later one, at the latest of its LOCAL_INV, and has no deadline
	 * before. Nothing is signalled for their sake. For a caller who waits for an answer that
	 * comes only after them, watches that time himself, and then revokes the window. */
	FABRIC_UNTIMED = 16,
};

struct fabric_wr {
	uint64_t cookie;
	const struct fabric_part *parts; /* borrowed: for the call; may be none: zero length */
	uint32_t n_parts, flags;
	uint64_t remote_address; /* READ, WRITE */
	uint32_t remote_key;
	struct fabric_window *under; /* may be NULL: the window whose receipt must know about it */
};
/* Queue; nothing reaches the device before fabric_qp_flush, which hands on all of it, in order,
 * with one doorbell for the sends and one for the receives. The memory must stay as it is until the
 * end of the work request; of a SEND or WRITE of at most inline_max bytes until it is flushed.
 * -EBUSY, -ENOTCONN, -ERANGE (outside the region), -EINVAL, -EPERM (region of another PD),
 * -EKEYREVOKED
 * (@under is not bound). Reactor; no allocation. */
int fabric_send(struct fabric_qp *qp, const struct fabric_wr *wr);
int fabric_read(struct fabric_qp *qp, const struct fabric_wr *wr);
int fabric_write(struct fabric_qp *qp, const struct fabric_wr *wr);
int fabric_recv(struct fabric_qp *qp, const struct fabric_wr *wr); /* from MADE on */
/* The SEND of that cookie that is queued does not leave, and has no end; what it names may be used
 * again at once. For who hears right before fabric_qp_flush that it must not go. False: none is
 * queued. Reactor; no allocation. */
bool fabric_send_withdraw(struct fabric_qp *qp, uint64_t cookie);
/* @now_ns becomes the last_posted_ns of what it hands on. 0, -ENOTCONN (has failed), -EIO: the
 * device refused, so the QP has failed; what was not handed on is reported as FLUSHED. Reactor. */
int fabric_qp_flush(struct fabric_qp *qp, uint64_t now_ns);

/* ---- windows ---- */

/*
 *   FREE -> BINDING            bind queued
 *   BINDING -> BOUND           it succeeded
 *   BINDING -> INVALIDATING    revoked: the LOCAL_INV goes behind the bind
 *   BOUND -> INVALIDATING      revoked: LOCAL_INV queued
 *   BOUND, INVALIDATING -> FREE   a peer invalidated it (SEND with invalidate)
 *   INVALIDATING -> FREE       LOCAL_INV succeeded
 *   BINDING, BOUND, INVALIDATING -> GONE       the QP is unusable or the end is late: deallocated
 *   BINDING, BOUND, INVALIDATING -> SET_ASIDE  the device refused to deallocate it
 *   SET_ASIDE -> GONE          deallocated at last, or its QP is destroyed
 *   GONE -> FREE               a new window has taken its place
 *
 * A window is its caller's from bind to revoke, whatever happens to it meanwhile: it returns to the
 * pool only after both. The ladder: 1. no new work; 2. LOCAL_INV on the bound QP, exactly once; 3.
 * if the QP is unusable or the completion late: dealloc; 4. if that is refused: the QP to error,
 * and the window stays SET_ASIDE until it can be deallocated. The receipt runs at the first of
 * these that took effect (with end_by_dealloc step 2 is left out); on a software device when it
 * cannot be copying any more, either (grace.c: soft-RoCE lets the packet land that it has in hand).
 * A GONE window gets a successor only when its LOCAL_INV has ended, so that a late one hits
 * nothing.
 */
enum fabric_window_state {
	FABRIC_WINDOW_FREE,
	FABRIC_WINDOW_BINDING, /* deadline bind_limit_ns: then the QP is taken to error */
	FABRIC_WINDOW_BOUND,
	FABRIC_WINDOW_INVALIDATING, /* deadline invalidate_limit_ns: then dealloc */
	FABRIC_WINDOW_GONE,         /* deallocated */
	FABRIC_WINDOW_SET_ASIDE,
};
#define FABRIC_WINDOW_STATES 6
const char *fabric_window_state_to_str(enum fabric_window_state s);
bool fabric_window_state_may_follow(enum fabric_window_state from, enum fabric_window_state to);

struct fabric_bind {
	uint64_t cookie;
	struct fabric_region *region; /* bindable, same PD */
	uint64_t offset, length;      /* not zero; at most max_window_bytes */
	uint8_t access; /* enum fabric_access, not zero, within the QP's remote_access */
	/* FABRIC_QUIET: a failed bind still is reported, and fails the QP; FABRIC_UNTIMED */
	uint32_t flags;
};
/* Queues a bind of a window drawn from the QP's free pool, under a key that no window of this QP
 * had last. The key may leave at once by a SEND queued behind it on the same QP, by any other road
 * only after the bind's completion (ibv_bind_mw(3)). *ret belongs to the caller until it
 * revokes it, which it must. -EBUSY (no free window, no room), -ENOTCONN, -ERANGE, -EINVAL, -EPERM,
 * -EMSGSIZE (longer than a window may be).
 */
int fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                       struct fabric_window **ret, uint32_t *ret_key);
/* Starts the ladder; @fn runs exactly once, in this call or in flush, poll, tick, kill, failed or
 * free, and the window is not the caller's any more from this call on. The LOCAL_INV is queued and
 * leaves with the next flush, at the latest in tick after invalidate_limit_ns from @now_ns; from
 * then it has invalidate_limit_ns. @fn may be NULL (a key is rotated: nobody needs to know); it
 * must not poll, and must not free the QP or its set. -EALREADY when it is not bound (any more):
 * @fn does not run. Reactor. */
int fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn, void *arg);
enum fabric_window_state fabric_window_state(const struct fabric_window *w);
uint32_t fabric_window_key(const struct fabric_window *w);
/* The address that a peer names for its first byte. */
uint64_t fabric_window_base(const struct fabric_window *w);
uint32_t fabric_qp_windows_free(const struct fabric_qp *qp);

#ifdef __cplusplus
}
#endif
#endif
