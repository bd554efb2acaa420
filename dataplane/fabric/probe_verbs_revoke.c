/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A revoke in the middle of transfers: what lands after it returned? And how long it takes. Half of
 * the tries end the window by LOCAL_INV, half by ibv_dealloc_mw. When the revoke has returned, the
 * memory is painted over; once every work request has ended, whatever is not paint came late. As a
 * control the same without a revoke, where bytes must come late. On a software device the revoke is
 * what the product's is there: with a grace period of the kernel (grace.c).
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FLIGHT_BYTES  (4u << 20)
#define FLIGHT_WRITES 16u
#define FLIGHT_TRIES  3u    /* by each of the two ways */
#define PACKET_BYTES  1024u /* the path MTU of the rig's queue pairs */
#define TIMED_REVOKES 200u
#define PAINT         0x5a

/* Memory of A's that B's writes go to, and what they come from. */
struct flight {
	uint8_t *to, *from;
	struct ibv_mr *to_mr, *from_mr;
};

static void flight_close(struct flight *fl)
{
	if (fl->to_mr)
		ibv_dereg_mr(fl->to_mr);
	if (fl->from_mr)
		ibv_dereg_mr(fl->from_mr);
	if (fl->to)
		munmap(fl->to, 2 * (size_t)FLIGHT_BYTES);
}

static int flight_open(struct vp_tenant *t, struct flight *ret)
{
	void *mem = mmap(NULL, 2 * (size_t)FLIGHT_BYTES, PROT_READ | PROT_WRITE,
	                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*ret = (struct flight){0};
	if (mem == MAP_FAILED)
		return -ENOMEM;
	ret->to = mem;
	ret->from = ret->to + FLIGHT_BYTES;
	memset(ret->from, 0xa5, FLIGHT_BYTES);
	ret->to_mr = ibv_reg_mr(t->pd, ret->to, FLIGHT_BYTES,
	                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	ret->from_mr = ibv_reg_mr(t->pd, ret->from, FLIGHT_BYTES, IBV_ACCESS_LOCAL_WRITE);
	if (ret->to_mr && ret->from_mr)
		return 0;
	flight_close(ret);
	return -ENOMEM;
}

static int launch(struct vp_pair *p, const struct flight *fl, unsigned writes)
{
	struct ibv_sge sge = {(uintptr_t)fl->from, FLIGHT_BYTES, fl->from_mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	int r = 0;

	wr.wr.rdma.remote_addr = (uintptr_t)fl->to;
	wr.wr.rdma.rkey = p->windows[0].key;
	for (unsigned i = 0; i < writes && !r; i++)
		r = vp_post(&p->i, &wr);
	return r;
}

/* Until the first bytes are there; memory sends no event. */
static bool under_way(const struct flight *fl)
{
	const volatile uint8_t *at = fl->to + FLIGHT_BYTES / 8;
	struct timespec pause = {.tv_nsec = 20000};

	for (unsigned i = 0; i < 100000 && *at == 0; i++)
		nanosleep(&pause, NULL); /* poll: see above */
	return *at != 0;
}

static uint32_t count_late(const struct flight *fl)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < FLIGHT_BYTES; i++)
		n += fl->to[i] != PAINT;
	return n;
}

static int end_window(struct vp_pair *p, enum vp_how how)
{
	int r;

	if (how == VP_NOT_AT_ALL)
		return 0;
	r = how == VP_BY_DEALLOC ? vp_dealloc(p, 0) : vp_invalidate(p, 0);
	/* The first access that the revoke refused has ended the queue pair, so that the end of the
	 * LOCAL_INV itself was flushed: unknown, and the ladder's next step decides. */
	return r == IBV_WC_WR_FLUSH_ERR ? vp_dealloc(p, 0) : r;
}

/* One try. 1: it counts (something was still in flight), 0: all had arrived before, or -errno. */
static int one_flight(struct vp_case *c, const struct flight *fl, enum vp_how how, bool grace,
                      uint32_t *late)
{
	/* The control goes to its end: two show it. */
	const unsigned writes = how == VP_NOT_AT_ALL ? 2 : FLIGHT_WRITES;
	struct vp_pair *p = &c->own;
	bool cut = false;
	int r;

	vp_pair_close(p);
	r = vp_pair_open(c->v, &c->a, &c->a, NULL, p);
	if (!r)
		r = vp_bind(p, 0, fl->to_mr, (uintptr_t)fl->to, FLIGHT_BYTES,
		            IBV_ACCESS_REMOTE_WRITE);
	memset(fl->to, 0, FLIGHT_BYTES);
	if (!r)
		r = launch(p, fl, writes);
	if (r)
		return r < 0 ? r : -EIO;
	if (!under_way(fl))
		return -ETIMEDOUT;
	r = end_window(p, how);
	if (!r && grace && syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0)
		r = -errno;
	memset(fl->to, PAINT, FLIGHT_BYTES);
	if (r)
		return r < 0 ? r : -EIO;
	for (unsigned i = 0; i < writes; i++) {
		r = vp_wait(&p->i, NULL, VP_WAIT_MS);
		if (r < 0)
			return r;
		cut = cut || r != IBV_WC_SUCCESS;
	}
	*late += count_late(fl);
	return cut;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* From the order to its end, with nothing else going on. */
static int time_revokes(struct vp_case *c)
{
	uint32_t ns[TIMED_REVOKES];
	struct vp_pair *p = &c->own;
	int r;

	vp_pair_close(p);
	r = vp_pair_open(c->v, &c->a, &c->a, NULL, p);
	for (unsigned i = 0; i < TIMED_REVOKES && !r; i++) {
		uint64_t began;

		r = vp_bind(p, 0, c->a.slot_mr, (uintptr_t)c->a.slot, 4096,
		            IBV_ACCESS_REMOTE_WRITE);
		began = clock_boottime_ns();
		if (!r)
			r = vp_invalidate(p, 0);
		ns[i] = (uint32_t)MIN(clock_boottime_ns() - began, UINT32_MAX);
	}
	if (r)
		return r;
	qsort(ns, TIMED_REVOKES, sizeof(*ns), by_number);
	c->s->revoke_p50_ns = ns[TIMED_REVOKES / 2 - 1];
	c->s->revoke_p99_ns = ns[TIMED_REVOKES * 99 / 100 - 1];
	return 0;
}

int vp_flights(struct vp_case *c, enum vp_how how, bool grace, unsigned tries,
               struct vp_flights *ret)
{
	struct flight fl;
	int r = flight_open(&c->a, &fl);

	*ret = (struct vp_flights){0};
	for (unsigned i = 0; i < tries && r >= 0; i++) {
		uint32_t late = 0;

		r = one_flight(c, &fl, how, grace, &late);
		ret->cut += r == 1;
		ret->with_late += late > 0;
		ret->late_bytes += late;
		ret->most_late = MAX(ret->most_late, late);
	}
	vp_pair_close(&c->own);
	flight_close(&fl);
	return MIN(r, 0);
}

void vp_case_revoke_complete(struct vp_case *c, struct probe_finding *f)
{
	struct vp_flights control, inv, dealloc;
	const bool grace = c->v->software;
	uint32_t cut, late, most;
	int r;

	if (!vp_leased(c, f, 0, 4096, IBV_ACCESS_REMOTE_WRITE))
		return;
	r = vp_flights(c, VP_NOT_AT_ALL, false, 1, &control);
	if (!r)
		r = vp_flights(c, VP_BY_INVALIDATE, grace, FLIGHT_TRIES, &inv);
	if (!r)
		r = vp_flights(c, VP_BY_DEALLOC, grace, FLIGHT_TRIES, &dealloc);
	if (!r)
		r = time_revokes(c);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "transfers or revokes failed: %s", vp_end_str(r));
		return;
	}
	cut = inv.cut + dealloc.cut;
	late = inv.with_late + dealloc.with_late;
	most = MAX(inv.most_late, dealloc.most_late);
	if (late)
		vp_found(f, PROBE_NOT_ENFORCED,
		         "%u of %u revokes: bytes landed after it returned, at most %u%s", late,
		         cut, most, most <= PACKET_BYTES ? ", of one packet being copied" : "");
	else if (!cut || !control.late_bytes)
		vp_found(f, PROBE_NOT_TRIED, "%u transfers were cut; %u bytes without a revoke",
		         cut, (uint32_t)control.late_bytes);
	else
		vp_found(f, PROBE_ENFORCED,
		         "0 bytes landed after the revoke%s returned, %u x %u MiB in flight, %u "
		         "times",
		         grace ? " and a grace period" : "", FLIGHT_WRITES, FLIGHT_BYTES >> 20,
		         cut);
}
