/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a key opens: protection domain, queue pair, range, access, and what is left of it after its
 * end. Every case first shows that the access works where it must: a refusal alone proves nothing.
 */
#include "common/util.h"
#include "dataplane/fabric/probe_verbs_priv.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOTH (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static uint64_t at(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

bool vp_leased(struct vp_case *c, struct probe_finding *f, uint32_t offset, uint32_t length,
               int access)
{
	struct vp_pair *p = &c->own;
	int r;

	vp_mark(p);
	r = vp_bind(p, 0, c->a.slot_mr, at(c->a.slot + offset), length, access);
	if (r) {
		vp_found(f, r == -EOPNOTSUPP ? PROBE_NOT_SUPPORTED : PROBE_NOT_TRIED,
		         "no window of type 2 could be bound: %s", vp_end_str(r));
		return false;
	}
	if (!(access & IBV_ACCESS_REMOTE_WRITE))
		return true;
	r = vp_write(p, at(c->a.slot + offset), 64, p->windows[0].key);
	if (r || vp_landed(p, c->a.slot + offset, 64) != 64) {
		vp_found(f, PROBE_NOT_TRIED, "a leased write does not work: %s", vp_end_str(r));
		return false;
	}
	vp_mark(p);
	return true;
}

/* What an access that must be refused came to: true while everything was refused. */
static bool refused(struct probe_finding *f, int end, uint32_t landed, const char *what)
{
	if (end == IBV_WC_SUCCESS || landed) {
		vp_found(f, PROBE_NOT_ENFORCED, "%s: %u bytes moved (%s)", what, landed,
		         vp_end_str(end));
		return false;
	}
	if (!vp_refused(end)) {
		vp_found(f, PROBE_NOT_TRIED, "%s: ended otherwise: %s", what, vp_end_str(end));
		return false;
	}
	vp_found(f, PROBE_ENFORCED, "%s: %s", what, vp_end_str(end));
	return true;
}

void vp_case_pd_isolation(struct vp_case *c, struct probe_finding *f)
{
	int r = vp_write(&c->own, at(c->a.slot), 64, c->a.plain_mr->rkey);

	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "a write under a region's key does not work: %s",
		         vp_end_str(r));
		return;
	}
	vp_mark(&c->own);
	vp_mark(&c->other);
	r = vp_write(&c->other, at(c->a.slot), 64, c->a.plain_mr->rkey);
	if (!refused(f, r, vp_landed(&c->own, c->a.slot, 64),
	             "key of A's region on B's queue pair") ||
	    !c->v->windows)
		return;
	vp_pair_close(&c->other);
	if (vp_pair_open(c->v, &c->b, &c->b, NULL, &c->other)) {
		vp_found(f, PROBE_NOT_TRIED, "no more queue pairs");
		return;
	}
	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	vp_mark(&c->other);
	r = vp_write(&c->other, at(c->a.slot), 64, c->own.windows[0].key);
	refused(f, r, vp_landed(&c->own, c->a.slot, 64),
	        "keys of A's region and window on B's queue pair");
}

void vp_case_qp_bound_keys(struct vp_case *c, struct probe_finding *f)
{
	struct vp_pair second;
	int r;

	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	r = vp_pair_open(c->v, &c->a, &c->a, NULL, &second);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "no second queue pair: %s", vp_end_str(r));
		return;
	}
	vp_mark(&second);
	r = vp_write(&second, at(c->a.slot), 64, c->own.windows[0].key);
	refused(f, r, vp_landed(&second, c->a.slot, 64),
	        "key of a window on another queue pair of its own PD");
	vp_pair_close(&second);
}

/* Accesses around [base, +length), each on a pair of its own, since a refusal ends it. */
static void around(struct vp_case *c, struct probe_finding *f, uint32_t base, uint32_t length,
                   const char *what)
{
	const struct {
		int64_t offset;
		const char *where;
	} tries[] = {
		{(int64_t)length, "behind it"},
		{(int64_t)length - 32, "across its end"},
		{-64, "before it"},
		{-32, "across its beginning"},
	};
	char words[80];

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		const uint8_t *addr = c->a.slot + base + tries[i].offset;
		int r;

		if (i) {
			vp_pair_close(&c->own);
			if (vp_pair_open(c->v, &c->a, &c->a, NULL, &c->own)) {
				vp_found(f, PROBE_NOT_TRIED, "no more queue pairs");
				return;
			}
		}
		if (!vp_leased(c, f, base, length, BOTH))
			return;
		r = vp_write(&c->own, at(addr), 64, c->own.windows[0].key);
		snprintf(words, sizeof(words), "%s, 64 bytes %s", what, tries[i].where);
		if (!refused(f, r, vp_landed(&c->own, addr, 64), words))
			return;
	}
	vp_found(f, PROBE_ENFORCED, "%s: refused behind, before and across both ends", what);
}

void vp_case_mr_range(struct vp_case *c, struct probe_finding *f)
{
	around(c, f, 0, VP_SLOT_BYTES, "window over all of a region");
}

void vp_case_window_range(struct vp_case *c, struct probe_finding *f)
{
	around(c, f, 8192, 4096, "window inside a region");
}

void vp_case_access_mask(struct vp_case *c, struct probe_finding *f)
{
	int r;

	if (!vp_leased(c, f, 0, 4096, IBV_ACCESS_REMOTE_READ))
		return;
	r = vp_read(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "a leased read does not work: %s", vp_end_str(r));
		return;
	}
	vp_mark(&c->own);
	r = vp_write(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	if (!refused(f, r, vp_landed(&c->own, c->a.slot, 64), "write under a key for reading"))
		return;
	vp_pair_close(&c->own);
	if (vp_pair_open(c->v, &c->a, &c->a, NULL, &c->own)) {
		vp_found(f, PROBE_NOT_TRIED, "no more queue pairs");
		return;
	}
	if (!vp_leased(c, f, 0, 4096, IBV_ACCESS_REMOTE_WRITE))
		return;
	memset(c->a.slot, 0x3c, 64);
	r = vp_read(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	refused(f, r, memchr(c->a.source, 0x3c, 64) ? 64 : 0,
	        "write under a key for reading, read under one for writing");
}

void vp_case_invalidated_key(struct vp_case *c, struct probe_finding *f)
{
	int r;

	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	r = vp_invalidate(&c->own, 0);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "LOCAL_INV failed: %s", vp_end_str(r));
		return;
	}
	r = vp_write(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	if (!refused(f, r, vp_landed(&c->own, c->a.slot, 64), "key after LOCAL_INV"))
		return;
	vp_pair_close(&c->own);
	if (vp_pair_open(c->v, &c->a, &c->a, NULL, &c->own)) {
		vp_found(f, PROBE_NOT_TRIED, "no more queue pairs");
		return;
	}
	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	r = vp_dealloc(&c->own, 0);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "ibv_dealloc_mw failed: %s", vp_end_str(r));
		return;
	}
	r = vp_write(&c->own, at(c->a.slot), 64, c->own.windows[0].key);
	refused(f, r, vp_landed(&c->own, c->a.slot, 64),
	        "key after LOCAL_INV, and after ibv_dealloc_mw");
}

void vp_case_rebound_key(struct vp_case *c, struct probe_finding *f)
{
	uint32_t old;
	int r;

	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	old = c->own.windows[0].key;
	r = vp_invalidate(&c->own, 0);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "LOCAL_INV failed: %s", vp_end_str(r));
		return;
	}
	if (!vp_leased(c, f, 0, 4096, BOTH))
		return;
	r = vp_write(&c->own, at(c->a.slot), 64, old);
	refused(f, r, vp_landed(&c->own, c->a.slot, 64), "old key of a window bound again");
}

void vp_case_bind_own_pd(struct vp_case *c, struct probe_finding *f)
{
	int r;

	if (!vp_leased(c, f, 0, 4096, BOTH)) /* binds work at all */
		return;
	r = vp_invalidate(&c->own, 0);
	if (r) {
		vp_found(f, PROBE_NOT_TRIED, "LOCAL_INV failed: %s", vp_end_str(r));
		return;
	}
	vp_mark(&c->other);
	r = vp_bind(&c->own, 0, c->b.slot_mr, at(c->b.slot), 4096, BOTH);
	if (r != IBV_WC_SUCCESS) {
		vp_found(f, PROBE_ENFORCED, "A's window over B's region: %s", vp_end_str(r));
		return;
	}
	r = vp_write(&c->own, at(c->b.slot), 64, c->own.windows[0].key);
	vp_found(f, PROBE_NOT_ENFORCED, "A's window over B's region: bound; a write moved %u bytes",
	         vp_landed(&c->other, c->b.slot, 64));
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Bits that guessing by the commonest step leaves unknown: -log2 of its share, rounded down. */
static uint32_t unknown_bits(uint32_t *steps, uint32_t n, uint32_t *ret_step, uint32_t *ret_most)
{
	uint32_t run = 0, bits = 0;

	*ret_most = 0;
	qsort(steps, n, sizeof(*steps), by_number);
	for (uint32_t i = 0; i < n; i++) {
		run = i && steps[i] == steps[i - 1] ? run + 1 : 1;
		if (run > *ret_most) {
			*ret_most = run;
			*ret_step = steps[i];
		}
	}
	while (*ret_most && (*ret_most << (bits + 1)) <= n)
		bits++;
	return bits;
}

#define KEY_SAMPLES 129u
#define KEY_BITS    6u /* of the 7 that so many samples can show */

/* Keys of windows or, where there are none, of regions; without their lowest byte, which is the
 * consumer's own (IBA 10.6.3.3). */
void vp_case_key_randomness(struct vp_case *c, struct probe_finding *f)
{
	struct ibv_mw *mw[KEY_SAMPLES] = {0};
	uint32_t index[KEY_SAMPLES], n = 0, most = 0, step = 0;

	for (; c->v->windows && n < KEY_SAMPLES; n++) {
		mw[n] = ibv_alloc_mw(c->a.pd, IBV_MW_TYPE_2);
		if (!mw[n])
			break;
		index[n] = mw[n]->rkey >> 8;
	}
	for (uint32_t i = 0; i < n; i++)
		ibv_dealloc_mw(mw[i]);
	if (n < 32) {
		vp_found(f, PROBE_NOT_TRIED, "only %u windows could be allocated", n);
		return;
	}
	for (uint32_t i = 0; i + 1 < n; i++)
		index[i] = index[i + 1] - index[i];
	c->s->key_bits = unknown_bits(index, n - 1, &step, &most);
	vp_found(f, c->s->key_bits >= KEY_BITS ? PROBE_ENFORCED : PROBE_NOT_ENFORCED,
	         "%u of %u new key indexes are the last one %+d: %u bits unknown, besides our byte",
	         most, n - 1, (int32_t)step, c->s->key_bits);
}

/* Asked for as regions are (verbs_mem.c): what no window can be bound over is of no use. A kernel
 * without it, or without the flag, says so before it looks at the descriptor. */
void vp_case_dmabuf(struct vp_case *c, struct probe_finding *f)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_dmabuf_mr(c->a.pd, 0, 4096, 0, -1,
	                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (mr)
		ibv_dereg_mr(mr);
	if (!mr && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EPROTONOSUPPORT))
		vp_found(f, PROBE_NOT_SUPPORTED, "ibv_reg_dmabuf_mr: %s", strerror(errno));
	else if (!mr && errno == EINVAL)
		vp_found(f, PROBE_NOT_SUPPORTED,
		         "no windows over dma-bufs (asked with MW_BIND: %s)", strerror(errno));
	else if (!mr && errno == EBADF)
		vp_found(f, PROBE_ENFORCED, "the driver takes dma-bufs (asked without one: %s)",
		         strerror(errno));
	else
		vp_found(f, PROBE_NOT_TRIED, "ibv_reg_dmabuf_mr without a dma-buf: %s",
		         mr ? "it succeeded" : strerror(errno));
}
