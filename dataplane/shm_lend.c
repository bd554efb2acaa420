/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a session over shm that an RDMA device knows; see shm_lend_priv.h. */
#include "dataplane/shm_lend_priv.h"
#include "common/probe.h"
#include "dataplane/fabric/fabric.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/shm_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <string.h>

#define NONE        UINT32_MAX
#define LOOK_MS     10u /* and twice as long after each look */
#define LOOK_MAX_MS 500u

static struct shm_lend *lend_of(const struct session *s)
{
	return &shm_of(s)->lend;
}

static struct dp_session *session_of(const struct shm_lend *d)
{
	return container_of(d, struct shm_conn, lend)->s->ds;
}

/* ---- what there may be ---- */

/* Of all tenants: each one's first few whatever the others have. */
static struct share share_of_pieces(const struct dp *dp)
{
	uint32_t regions = fabric_dev_attr(dp->rdma)->max_regions;
	uint32_t all = regions ? MIN(SHM_PIECES_ALL, regions / 4) : SHM_PIECES_ALL;

	return (struct share){
		.total = all, .most = MIN(SHM_PIECES_TENANT, all / 2), .sure = 8, .kept = all / 4};
}

void shm_lend_caps(const struct dp *dp, uint32_t *regions, uint64_t *bytes)
{
	*regions = dp->opts.shm_dir ? share_of_pieces(dp).most : 0;
	*bytes = dp->opts.shm_dir ? dp_shm_tenant_bytes(dp) : 0;
}

/* Loop. One more, which is counted then. */
static bool count_one(struct dp_session *ds)
{
	struct dp *dp = ds->dp;
	struct share share = share_of_pieces(dp);

	if (!share_allows(&share, ds->tenant->n_lent, dp->lent.pieces)) {
		dp->lent.refused++;
		return false;
	}
	ds->tenant->n_lent++;
	dp->lent.pieces++;
	shm_of(ds->s)->lend.n++;
	return true;
}

static void uncount(struct dp_session *ds, uint32_t n)
{
	ds->tenant->n_lent -= n;
	ds->dp->lent.pieces -= n;
	shm_of(ds->s)->lend.n -= n;
}

/* ---- asking: reactor, loop, worker, loop, reactor ---- */

static void published(struct reactor *r, struct dp_op *op)
{
	struct shm_lend *d = container_of(op, struct shm_lend, op);
	struct shm_piece *p = &d->pieces[d->place];

	d->asking = false;
	d->full = op->res.status == ROS2_LIMIT;
	d->bytes -= p->bytes;
	p->bytes = p->region ? fabric_region_length(p->region) : 0;
	d->bytes += p->bytes;
	p->used_ns = r->now_ns;
	if (op->res.status == ROS2_OK) {
		d->base[d->place] = d->want_base;
		d->length[d->place] = d->want_length;
	} else {
		d->not_before_ns = clock_add_ns(r->now_ns, SHM_PIECE_IDLE_NS);
	}
	dp_op_back(op);
}

/* Loop. */
static void made(struct dp_op *op)
{
	struct shm_lend *d = container_of(op, struct shm_lend, op);
	struct dp_session *ds = op->ds;

	if (!d->pieces[d->place].region)
		uncount(ds, 1);
	else if (op->res.status == ROS2_OK && d->want_length)
		ds->dp->lent.made++;
	if (op->res.status == ROS2_IO)
		ds->dp->lent.failed++;
	dp_op_to_reactor(op, ds->reactor, published, dp_op_finish);
}

/* Worker. What was there goes first: a piece is never larger than its session lets it be. */
static void make(struct dp_op *op)
{
	struct shm_lend *d = container_of(op, struct shm_lend, op);
	struct shm_piece *p = &d->pieces[d->place];
	struct fabric_region_opts o = {.addr = op->ds->shm->map + d->want_base,
	                               .length = d->want_length,
	                               .bindable = true};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = fabric_region_free(p->region);

	if (rc == 0)
		p->region = NULL;
	if (rc == 0 && o.length)
		rc = fabric_region_new(op->ds->tenant->pd, &o, &p->region, &err);
	if (rc < 0)
		dp_op_set(op, ROS2_IO, "%s", err.msg);
}

/* Loop. The place is the asker's, so its region is looked at here. */
static void begin(struct dp_post *post)
{
	struct shm_lend *d = container_of(post, struct shm_lend, post);
	struct dp_session *ds = session_of(d);
	struct dp_op *op = &d->op;

	dp_op_begin(op, ds->dp, NULL, NULL);
	op->ds = ds;
	ds->n_ops++;
	/* As its tenant's work, but none of the calls that a tenant may have under way. */
	op->closes_of = ds->tenant;
	if (d->pieces[d->place].region || count_one(ds)) {
		dp_op_to_worker(op, NULL, make, made);
		return;
	}
	dp_op_set(op, ROS2_LIMIT, "pieces of the tenant's memory that the device knows");
	dp_op_to_reactor(op, ds->reactor, published, dp_op_finish);
}

/* Of the piece that nobody has used for longest; NONE: all have to stay. */
static uint32_t idle_place(const struct shm_lend *d, uint64_t now_ns)
{
	uint32_t best = NONE;

	for (uint32_t i = 0; i < SHM_PIECES; i++) {
		const struct shm_piece *p = &d->pieces[i];

		if (!p->region || p->users || now_ns < clock_add_ns(p->used_ns, SHM_PIECE_IDLE_NS))
			continue;
		if (best == NONE || p->used_ns < d->pieces[best].used_ns)
			best = i;
	}
	return best;
}

static uint32_t place_for(const struct shm_lend *d, bool may_grow, uint64_t now_ns)
{
	for (uint32_t i = 0; may_grow && i < SHM_PIECES; i++)
		if (!d->pieces[i].region)
			return i;
	return idle_place(d, now_ns);
}

static void ask(struct session *s, uint64_t base, uint64_t length)
{
	struct shm_lend *d = lend_of(s);
	uint64_t now_ns = s->r->now_ns, most = shm_of(s)->m->bytes - WIRE_SHM_DATA_OFF;
	bool fits = d->bytes + length <= most;
	uint32_t at;

	if (d->asking || now_ns < d->not_before_ns || !shm_data(s, base, length))
		return;
	at = place_for(d, fits && !d->full, now_ns);
	/* With nothing of its own to give up: others may have left room since. */
	if (at == NONE && fits)
		at = place_for(d, true, now_ns);
	if (at == NONE) {
		d->not_before_ns = clock_add_ns(now_ns, SHM_PIECE_IDLE_NS / 64);
		return;
	}
	/* One that goes may not be enough: then the next request that asks finds less there. */
	if (d->bytes - d->pieces[at].bytes + length > most)
		length = 0;
	d->asking = true;
	d->place = at;
	d->length[at] = 0;
	d->want_base = base;
	d->want_length = length;
	dp_post(s->dp, &d->post, begin);
}

/* ---- using ---- */

static uint32_t find(struct shm_lend *d, uint64_t base, uint64_t length)
{
	for (uint32_t n = 0, i = d->last; n < SHM_PIECES; n++, i = (i + 1) % SHM_PIECES) {
		if (d->base[i] != base || d->length[i] != length)
			continue;
		d->last = i;
		return i;
	}
	return NONE;
}

struct shm_piece *shm_lend_take(struct session *s, const struct lease *l, uint64_t address,
                                uint32_t len)
{
	uint32_t seen = atomic_load_explicit(&s->dp->rdma_seen, memory_order_relaxed), i;
	bool inside = seen & 1u << PROBE_WINDOW_RANGE || DP_SWITCH(lends_unseen);
	uint64_t base = inside ? l->base : address, length = inside ? l->length : len;

	if (!(seen & 1u << PROBE_MR_RANGE) || !s->lender)
		return NULL;
	i = find(lend_of(s), base, length);
	if (i == NONE) {
		ask(s, base, length);
		return NULL;
	}
	lend_of(s)->pieces[i].users++;
	return &lend_of(s)->pieces[i];
}

void shm_lend_give(struct shm_piece *p, uint64_t now_ns)
{
	p->users--;
	p->used_ns = now_ns;
}

/* ---- end ---- */

/* How many the device keeps. */
static uint32_t take_back(struct shm_lend *d)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < SHM_PIECES; i++) {
		struct shm_piece *p = &d->pieces[i];

		if (p->region && fabric_region_free(p->region) < 0)
			left++;
		else
			p->region = NULL;
	}
	return left;
}

/* Worker. */
static void take_all(struct dp_op *op)
{
	op->a = take_back(container_of(op, struct shm_lend, op));
}

static void look_again(void *arg);

/* Loop. */
static void taken(struct dp_op *op)
{
	struct shm_lend *d = container_of(op, struct shm_lend, op);
	struct dp_session *ds = session_of(d);

	uncount(ds, d->n - (uint32_t)op->a);
	dp_op_finish(op);
	ds->n_ops--;
	if (d->n) {
		loop_timer_in_ms(ds->dp->loop, &d->timer, d->look_ms, look_again, d);
		d->look_ms = MIN(2 * d->look_ms, LOOK_MAX_MS);
		return;
	}
	d->ending = false;
	dp_session_release(ds);
}

static void begin_end(struct shm_lend *d)
{
	struct dp_session *ds = session_of(d);

	if (DP_SWITCH(no_lend_wait))
		shm_memory_unmap(ds->shm);
	ds->n_ops++;
	/* It names no session: it is carried out whatever became of the session's rights. */
	dp_op_begin(&d->op, ds->dp, NULL, NULL);
	d->op.closes_of = ds->tenant;
	dp_op_to_worker(&d->op, NULL, take_all, taken);
}

static void look_again(void *arg)
{
	begin_end(arg);
}

bool shm_lend_ends(struct dp_session *ds)
{
	struct shm_lend *d = ds->shm ? &shm_of(ds->s)->lend : NULL;

	if (!d || !d->n)
		return false;
	if (!d->ending) {
		d->ending = true;
		d->look_ms = LOOK_MS;
		begin_end(d);
	}
	return true;
}

void shm_lend_drop(struct dp_session *ds)
{
	struct shm_lend *d = ds->shm ? &shm_of(ds->s)->lend : NULL;

	if (!d)
		return;
	loop_timer_stop(&d->timer);
	if (take_back(d))
		ds->shm->map = NULL;
}
