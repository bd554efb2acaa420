/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of probe_verbs*.c: two tenants, queue pairs between them and themselves on one port, and
 * single work requests whose end is waited for. Nothing is checked before it is posted, since what
 * the device checks is what is asked; only the state of windows is tracked, because a window that
 * is free must not be invalidated (probe.h). Ends in the order windows, queue pairs, regions, PDs:
 * otherwise drivers block for a minute.
 */
#ifndef ROS2_DATAPLANE_PROBE_VERBS_PRIV_H
#define ROS2_DATAPLANE_PROBE_VERBS_PRIV_H

#include "common/probe.h"
#include <infiniband/verbs.h>

#define VP_SLOT_BYTES   32768u /* one tenant's region */
#define VP_GUARD_BYTES  16384u /* memory of the tenant's before and behind it, not registered */
#define VP_SOURCE_BYTES 32768u
#define VP_WINDOWS      4
#define VP_WAIT_MS      10000

struct vp {
	struct ibv_context *ctx;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint8_t port_num, gid_index;
	union ibv_gid gid;
	uint32_t psn; /* of the last queue pair */
	bool windows, remote_invalidate;
	bool software; /* rxe, siw: as verbs_dev.c tells them */
};

/* The memory: guard, slot, guard, source. */
struct vp_tenant {
	struct ibv_pd *pd;
	uint8_t *mem, *slot, *source;
	struct ibv_mr *slot_mr;  /* MW_BIND, no remote flag */
	struct ibv_mr *plain_mr; /* the slot again, with remote read and write */
	struct ibv_mr *source_mr;
};

struct vp_qp {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	uint32_t psn;
};

struct vp_window {
	struct ibv_mw *mw;
	uint32_t key;
	bool bound; /* as far as we did it */
};

struct vp_pair_opts {
	bool no_access;      /* the target takes no remote operation */
	uint32_t cq_depth;   /* of the initiator; 0 = 64 */
	uint32_t overcommit; /* work requests of the initiator beyond its CQ's depth */
};

/* A target with windows, and an initiator that accesses it. */
struct vp_pair {
	struct vp *v;
	struct vp_tenant *target, *initiator;
	struct vp_qp t, i;
	struct vp_window windows[VP_WINDOWS];
};

int vp_open(struct vp *v, const char *name, struct ros2_err *err);
void vp_close(struct vp *v);
int vp_tenant_open(struct vp *v, struct vp_tenant *t);
void vp_tenant_close(struct vp_tenant *t);

int vp_qp_open(struct vp *v, struct vp_tenant *t, uint32_t cq_depth, uint32_t overcommit,
               struct vp_qp *ret);
void vp_qp_close(struct vp_qp *q);
/* From any state through RESET to RTS, towards @peer. */
int vp_qp_join(struct vp *v, struct vp_qp *q, const struct vp_qp *peer, int access);

/* NULL options are those of zeroes. */
int vp_pair_open(struct vp *v, struct vp_tenant *target, struct vp_tenant *initiator,
                 const struct vp_pair_opts *o, struct vp_pair *ret);
void vp_pair_close(struct vp_pair *p);

/* The end of one work request: an ibv_wc_status, or -errno: it was not posted (as the provider
 * said), or -ETIMEDOUT. */
int vp_wait(struct vp_qp *q, struct ibv_wc *ret, int timeout_ms);
int vp_post(struct vp_qp *q, struct ibv_send_wr *wr);
int vp_bind(struct vp_pair *p, unsigned w, struct ibv_mr *mr, uint64_t addr, uint64_t length,
            int access);
int vp_invalidate(struct vp_pair *p, unsigned w);
int vp_dealloc(struct vp_pair *p, unsigned w);
/* The initiator's @q writes from its source, or reads into it. */
int vp_access(struct vp_pair *p, struct vp_qp *q, enum ibv_wr_opcode op, uint64_t addr,
              uint32_t length, uint32_t key);
int vp_write(struct vp_pair *p, uint64_t addr, uint32_t length, uint32_t key);
int vp_read(struct vp_pair *p, uint64_t addr, uint32_t length, uint32_t key);
/* One message of 8 bytes; the target has posted a receive. With @key not 0 it invalidates that. */
int vp_send(struct vp_pair *p, uint32_t key);
int vp_recv(struct vp_pair *p);

/* Did the peer's device say no? Retries that ran out are no answer. */
bool vp_refused(int end);
const char *vp_end_str(int end);
/* The source gets bytes that the slot has not; how many of [addr, +length) are they? */
void vp_mark(struct vp_pair *p);
uint32_t vp_landed(const struct vp_pair *p, const void *addr, uint32_t length);

void vp_found(struct probe_finding *f, enum probe_result r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a case works with; fresh tenants for each. */
struct vp_case {
	struct vp *v;
	struct vp_tenant a, b;
	struct vp_pair own;   /* A to A */
	struct vp_pair other; /* B to B */
	struct probe_subject *s;
};
/* Transfers of 16 x 4 MiB that are cut by a revoke, or not (the control), and what came after it
 * had returned. With @grace the revoke returns when the kernel can have nothing under way any more,
 * as the receipts of software devices do (grace.c). 0 or -errno. */
enum vp_how { VP_BY_INVALIDATE, VP_BY_DEALLOC, VP_NOT_AT_ALL };
struct vp_flights {
	uint32_t cut;       /* tries that had not ended by themselves */
	uint32_t with_late; /* tries with late bytes */
	uint32_t most_late; /* bytes, of one try */
	uint64_t late_bytes;
};
int vp_flights(struct vp_case *c, enum vp_how how, bool grace, unsigned tries,
               struct vp_flights *ret);

typedef void (*vp_case_fn)(struct vp_case *c, struct probe_finding *f);

/* Window 0 of the own pair over [offset, +length) of A's slot. True when it is bound and, if it
 * may be written, shown to work; else the finding says why it cannot go on. */
bool vp_leased(struct vp_case *c, struct probe_finding *f, uint32_t offset, uint32_t length,
               int access);

void vp_case_pd_isolation(struct vp_case *c, struct probe_finding *f);
void vp_case_qp_bound_keys(struct vp_case *c, struct probe_finding *f);
void vp_case_mr_range(struct vp_case *c, struct probe_finding *f);
void vp_case_window_range(struct vp_case *c, struct probe_finding *f);
void vp_case_access_mask(struct vp_case *c, struct probe_finding *f);
void vp_case_invalidated_key(struct vp_case *c, struct probe_finding *f);
void vp_case_rebound_key(struct vp_case *c, struct probe_finding *f);
void vp_case_bind_own_pd(struct vp_case *c, struct probe_finding *f);
void vp_case_qp_reuse(struct vp_case *c, struct probe_finding *f);
void vp_case_foreign_invalidate(struct vp_case *c, struct probe_finding *f);
void vp_case_key_randomness(struct vp_case *c, struct probe_finding *f);
void vp_case_zero_length(struct vp_case *c, struct probe_finding *f);
void vp_case_revoke_complete(struct vp_case *c, struct probe_finding *f);
void vp_case_cq_separation(struct vp_case *c, struct probe_finding *f);
void vp_case_rq_separation(struct vp_case *c, struct probe_finding *f);
void vp_case_dmabuf(struct vp_case *c, struct probe_finding *f);
#endif
