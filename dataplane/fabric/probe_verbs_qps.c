/* SPDX-License-Identifier: Apache-2.0 */
/* What one tenant's queue pairs and completion queues let it do to another's. */
#include "common/util.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include <errno.h>
#include <string.h>

#define BOTH (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

static void not_tried(struct probe_finding *f, const char *what, int end)
{
	vp_found(f, PROBE_NOT_TRIED, "%s: %s", what, vp_end_str(end));
}

/* A's target queue pair is reset and joined to a peer of B's, as if B were next on it. */
void vp_case_qp_reuse(struct vp_case *c, struct probe_finding *f)
{
	struct vp_pair *own = &c->own;
	uint32_t key, landed;
	int r;

	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	key = own->windows[0].key;
	r = vp_qp_join(c->v, &own->t, &c->other.i, BOTH);
	if (!r)
		r = vp_qp_join(c->v, &c->other.i, &own->t, 0);
	if (r) {
		not_tried(f, "the queue pair could not be reset and joined again", r);
		return;
	}
	vp_mark(&c->other);
	r = vp_write(&c->other, at(c->a.slot), 64, key);
	landed = vp_landed(own, c->a.slot, 64);
	if (r == IBV_WC_SUCCESS || landed)
		vp_found(f, PROBE_NOT_ENFORCED,
		         "reset and joined to a new peer: the old key moved %u bytes", landed);
	else if (vp_refused(r))
		vp_found(f, PROBE_ENFORCED, "reset and joined to a new peer: old key: %s",
		         vp_end_str(r));
	else
		not_tried(f, "the new peer's write ended otherwise", r);
}

/* Only a window that is bound is named: see probe.h. */
void vp_case_foreign_invalidate(struct vp_case *c, struct probe_finding *f)
{
	int end, r;

	if (!c->v->remote_invalidate) {
		vp_found(f, PROBE_NOT_SUPPORTED, "the device has no SEND with invalidate");
		return;
	}
	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	r = vp_recv(&c->other);
	if (r) {
		not_tried(f, "no receive could be posted", r);
		return;
	}
	end = vp_send(&c->other, c->own.windows[0].key);
	/* Whatever became of it: it is not ours to invalidate any more, only to deallocate. */
	c->own.windows[0].bound = false;
	r = vp_write(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	if (r == IBV_WC_SUCCESS)
		vp_found(f, PROBE_ENFORCED, "B's SEND naming A's window: %s; A's key still works",
		         vp_end_str(end));
	else if (vp_refused(r))
		vp_found(f, PROBE_NOT_ENFORCED, "B's SEND naming A's window: %s; A's key is dead",
		         vp_end_str(end));
	else
		not_tried(f, "A's write afterwards ended otherwise", r);
}

void vp_case_zero_length(struct vp_case *c, struct probe_finding *f)
{
	static const struct vp_pair_opts closed = {.no_access = true};
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		int r;

		vp_pair_close(&c->own);
		r = vp_pair_open(c->v, &c->a, &c->a, &closed, &c->own);
		if (!r)
			r = ibv_query_qp(c->own.t.qp, &attr, IBV_QP_ACCESS_FLAGS, &init);
		if (!r)
			r = vp_recv(&c->own);
		if (!r)
			r = vp_send(&c->own, 0);
		if (r) {
			not_tried(f, "no queue pair without remote operations", r);
			return;
		}
		if (attr.qp_access_flags & (BOTH | IBV_ACCESS_REMOTE_ATOMIC)) {
			vp_found(f, PROBE_NOT_ENFORCED,
			         "asked for no access, the device shows 0x%x",
			         attr.qp_access_flags);
			return;
		}
		r = vp_access(&c->own, &c->own.i, ops[i], at(c->a.slot), 0, 0x1234);
		if (r == IBV_WC_SUCCESS) {
			vp_found(f, PROBE_NOT_ENFORCED, "a %s of length zero succeeded",
			         i ? "READ" : "WRITE");
			return;
		}
		if (!vp_refused(r)) {
			not_tried(f, "length zero ended otherwise", r);
			return;
		}
	}
	vp_found(f, PROBE_ENFORCED, "qp_access_flags 0: WRITE and READ of length zero refused");
}

/* Eight writes of A's under a lease. */
static int a_works(struct vp_case *c)
{
	int r = 0;

	for (int i = 0; i < 8 && !r; i++)
		r = vp_write(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	return r;
}

/* B has more completions than its queue holds, and takes none; A has a queue of its own. */
void vp_case_cq_separation(struct vp_case *c, struct probe_finding *f)
{
	static const struct vp_pair_opts small = {.cq_depth = 8, .overcommit = 8};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	uint32_t posted = 0;
	int r;

	vp_pair_close(&c->other);
	r = vp_pair_open(c->v, &c->b, &c->b, &small, &c->other);
	if (r) {
		not_tried(f, "no queue pair with a small completion queue", r);
		return;
	}
	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	wr.wr.rdma.remote_addr = at(c->b.slot);
	wr.wr.rdma.rkey = c->b.plain_mr->rkey;
	while (posted < (uint32_t)c->other.i.cq->cqe + 8 && !vp_post(&c->other.i, &wr))
		posted++;
	if (posted <= (uint32_t)c->other.i.cq->cqe) {
		vp_found(f, PROBE_ENFORCED, "B cannot post more than its queue of %d holds",
		         c->other.i.cq->cqe);
		return;
	}
	r = a_works(c);
	/* Before B's ends were there, and after: B's last write is done when A's 16th is. */
	if (!r)
		r = a_works(c);
	if (r)
		vp_found(f, PROBE_NOT_ENFORCED, "B put %u ends in its queue of %d; A: %s", posted,
		         c->other.i.cq->cqe, vp_end_str(r));
	else
		vp_found(f, PROBE_ENFORCED,
		         "B put %u ends in its queue of %d; A's 16 writes went on", posted,
		         c->other.i.cq->cqe);
}

/* B's receives are used up; A has receives of its own. */
void vp_case_rq_separation(struct vp_case *c, struct probe_finding *f)
{
	int b = vp_recv(&c->other), a = vp_recv(&c->own);

	if (!a && !b)
		b = vp_send(&c->other, 0);
	if (a || b) {
		not_tried(f, "a message does not arrive", a ? a : b);
		return;
	}
	b = vp_send(&c->other, 0);
	a = vp_send(&c->own, 0);
	if (b == IBV_WC_SUCCESS)
		not_tried(f, "B's message without a receive", b);
	else if (a)
		vp_found(f, PROBE_NOT_ENFORCED, "B without receives: %s; then A: %s", vp_end_str(b),
		         vp_end_str(a));
	else
		vp_found(f, PROBE_ENFORCED, "B without receives: %s; A's message arrived",
		         vp_end_str(b));
}
