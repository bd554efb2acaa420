// SPDX-License-Identifier: Apache-2.0
/*
 * Memory windows of type 2B: which one, under which key, over what; and how they end. fabric.h has
 * the states and the ladder. Must never post a second LOCAL_INV for one bind (it stops some
 * kernels), nor give a window to the pool while anything that names it is under way.
 *
 * End of life of a key: 1. the caller gives it up (revoke); 2. LOCAL_INV behind all that was
 * queued; 3. its completion, or dealloc, or the queue pair in error; 4. the memory is let go; 5.
 * the receipt; 6. when the last work request under it has ended, the window returns to the pool.
 */
#include "dataplane/fabric/verbs_priv.h"
#include "common/clock.h"
#include "common/crypto.h"
#include <assert.h>
#include <errno.h>

#define KEY_BYTE 0xffu

static bool is_waiting(enum fabric_window_state s)
{
	return s == FABRIC_WINDOW_BINDING || s == FABRIC_WINDOW_INVALIDATING;
}

static bool is_without(enum fabric_window_state s)
{
	return s == FABRIC_WINDOW_GONE || s == FABRIC_WINDOW_SET_ASIDE;
}

static bool is_live(enum fabric_window_state s)
{
	return s == FABRIC_WINDOW_BINDING || s == FABRIC_WINDOW_BOUND;
}

static void move(struct fabric_window *w, enum fabric_window_state to)
{
	struct fabric_counters *c = &w->qp->set->c;

	assert(fabric_window_state_may_follow(w->state, to));
	c->windows_bound += (to == FABRIC_WINDOW_BOUND) - (w->state == FABRIC_WINDOW_BOUND);
	c->windows_waiting += is_waiting(to) - is_waiting(w->state);
	c->windows_set_aside +=
		(to == FABRIC_WINDOW_SET_ASIDE) - (w->state == FABRIC_WINDOW_SET_ASIDE);
	w->qp->n_gone += is_without(to) - is_without(w->state);
	w->qp->n_live += is_live(to) - is_live(w->state);
	w->state = to;
	list_del(&w->waiting);
}

static void wait_until(struct fabric_window *w, struct list *list, uint64_t deadline_ns)
{
	w->deadline_ns = deadline_ns;
	list_del(&w->waiting);
	list_add_tail(list, &w->waiting);
}

int windows_make(struct fabric_qp *qp, struct ros2_err *err)
{
	uint32_t n = qp->o.windows;

	if (n == 0)
		return 0;
	qp->windows = calloc(n, sizeof(*qp->windows));
	qp->pool = calloc(n, sizeof(struct fabric_window *));
	if (!qp->windows || !qp->pool)
		return ros2_err_set(err, -ENOMEM, "no memory for %u windows", n);
	for (uint32_t i = 0; i < n; i++) {
		struct fabric_window *w = &qp->windows[i];

		errno = 0;
		w->mw = ibv_alloc_mw(qp->set->pd->pd, IBV_MW_TYPE_2);
		if (!w->mw)
			return verbs_err(err, errno, qp->set->pd->dev, "ibv_alloc_mw");
		w->qp = qp;
		w->key = w->mw->rkey;
		list_init(&w->waiting);
		list_init(&w->settling);
		qp->n_windows = i + 1;
		window_settle(w);
	}
	return 0;
}

/* Back to the pool, when nothing is under way that names it. */
void window_settle(struct fabric_window *w)
{
	struct fabric_qp *qp = w->qp;

	if (w->state != FABRIC_WINDOW_FREE || w->held || w->fn || w->grace || w->inv_pending ||
	    w->bind_pending || w->n_under || w->pooled)
		return;
	w->pooled = true;
	w->last_posted_ns = 0;
	w->dead = false;
	qp->pool[qp->n_pool++] = w;
	qp->last_back = w;
}

/* Any but the one that came back last, if there is another. */
static struct fabric_window *draw(struct fabric_qp *qp)
{
	uint32_t at = crypto_random_u32() % qp->n_pool;
	struct fabric_window *w;

	if (qp->pool[at] == qp->last_back && qp->n_pool > 1)
		at = (at + 1) % qp->n_pool;
	w = qp->pool[at];
	qp->pool[at] = qp->pool[--qp->n_pool];
	w->pooled = false;
	return w;
}

/* The index is the device's, the low byte ours (IBA 10.6.7.2.2): random, and not the last one. */
static uint32_t new_key(const struct fabric_window *w)
{
	uint32_t index = w->mw->rkey & ~KEY_BYTE, key;

	do
		key = index | (w->mw->rkey + 1 + crypto_random_u32() % KEY_BYTE) % (KEY_BYTE + 1);
	while (key == w->key);
	return key;
}

static int check_bind(const struct fabric_qp *qp, const struct fabric_bind *b)
{
	uint64_t most = qp->set->pd->dev->attr.max_window_bytes;

	if (qp->state != FABRIC_QP_READY)
		return -ENOTCONN;
	if (!b->region || !b->length || !b->access || b->access & ~(FABRIC_READ | FABRIC_WRITE) ||
	    b->flags & ~(FABRIC_QUIET | FABRIC_UNTIMED) || !b->region->bindable)
		return -EINVAL;
	if (b->region->pd != qp->set->pd || b->access & ~qp->o.remote_access)
		return -EPERM;
	if (!region_covers(b->region, b->offset, b->length))
		return -ERANGE;
	/* The device would refuse the whole chain, and the queue pair with it. */
	if (most && b->length > most)
		return -EMSGSIZE;
	/* The LOCAL_INV of each bind has its place before the bind is queued. */
	if (qp->n_inv + qp->n_live >= qp->o.windows)
		return -EBUSY;
	return qp->n_pool && fabric_qp_send_room(qp) ? 0 : -EBUSY;
}

static unsigned int access_flags(uint8_t access)
{
	return (access & FABRIC_READ ? IBV_ACCESS_REMOTE_READ : 0) |
	       (access & FABRIC_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
}

int fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                       struct fabric_window **ret, uint32_t *ret_key)
{
	struct fabric_window *w;
	struct ibv_send_wr *wr;
	int r = check_bind(qp, b);

	if (r < 0) {
		qp->set->c.refused++;
		return r;
	}
	w = draw(qp);
	w->key = new_key(w);
	w->region = b->region;
	w->base = b->region->base + b->offset;
	w->held = true;
	w->bind_pending = true;
	w->untimed = b->flags & FABRIC_UNTIMED;
	atomic_fetch_add_explicit(&b->region->bound, 1, memory_order_relaxed);
	move(w, FABRIC_WINDOW_BINDING);
	wr = queue_send(qp, b->cookie, FABRIC_OP_BIND, b->flags, w);
	wr->opcode = IBV_WR_BIND_MW;
	wr->bind_mw.mw = w->mw;
	wr->bind_mw.rkey = w->key;
	wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = b->region->mr,
		.addr = w->base,
		.length = b->length,
		.mw_access_flags = access_flags(b->access),
	};
	*ret = w;
	*ret_key = w->key;
	return 0;
}

/* Its bind or its LOCAL_INV is being handed on: from now on it must end in time. */
void window_leaves(struct fabric_window *w, uint8_t op, uint64_t now_ns)
{
	struct fabric_set *s = w->qp->set;

	if (op == FABRIC_OP_BIND && w->state == FABRIC_WINDOW_BINDING && !w->untimed)
		wait_until(w, &s->binding, clock_add_ns(now_ns, s->o.bind_limit_ns));
	if (op == FABRIC_OP_INVALIDATE && w->state == FABRIC_WINDOW_INVALIDATING)
		wait_until(w, &s->invalidating, clock_add_ns(now_ns, s->o.invalidate_limit_ns));
}

static void give_receipt(struct fabric_window *w)
{
	struct fabric_receipt r = {
		.last_posted_ns = w->last_posted_ns,
		.invalidated_ns = w->dead_ns,
		.draining = w->n_under,
		.how = w->how,
	};
	fabric_receipt_fn fn = w->fn;

	if (!fn || !w->dead)
		return;
	w->fn = NULL;
	w->qp->set->c.receipts++;
	fn(w->arg, &r);
}

static void let_go(struct fabric_window *w)
{
	struct fabric_region *r = w->region;

	w->region = NULL;
	if (r)
		region_unbind(r);
}

/* Nothing of it is under way in the device, either. The device may still know a window that is
 * SET_ASIDE. */
static void end_now(struct fabric_window *w)
{
	if (w->state != FABRIC_WINDOW_SET_ASIDE)
		let_go(w);
	give_receipt(w);
	window_settle(w);
}

/* The device says that it serves nothing under it any more. */
static void died(struct fabric_window *w, enum fabric_receipt_how how)
{
	struct fabric_set *s = w->qp->set;

	if (!w->dead) {
		w->dead = true;
		w->how = how;
		/* A completion tells of what was before it; all else is now. */
		w->dead_ns = how == FABRIC_BY_INVALIDATE ? set_now(s) : clock_boottime_ns();
	}
	if (!s->pd->dev->grace || !w->fn) {
		end_now(w);
	} else if (!w->grace) {
		w->grace = grace_ask(s->pd->dev->grace);
		list_add_tail(&s->settling, &w->settling);
	}
}

static void refill(struct fabric_window *w);

static void grace_over(struct fabric_window *w)
{
	list_del(&w->settling);
	w->grace = 0;
	w->dead_ns = clock_boottime_ns();
	end_now(w);
}

/* In the order of asking. */
void windows_grace(struct fabric_set *s)
{
	while (!list_empty(&s->settling)) {
		struct fabric_window *w = list_first(&s->settling, struct fabric_window, settling);

		if (!grace_reached(s->pd->dev->grace, w->grace))
			return;
		grace_over(w);
		/* Who waits for a receipt may wait for a free window, too. */
		if (w->state == FABRIC_WINDOW_GONE)
			refill(w);
	}
}

void windows_over(struct fabric_qp *qp)
{
	for (uint32_t i = 0; i < qp->n_windows; i++)
		if (!list_empty(&qp->windows[i].settling))
			grace_over(&qp->windows[i]);
}

void window_bound(struct fabric_window *w, bool ok)
{
	w->bind_pending = false;
	/* ibv_post_send does not do it, and the next bind needs it. */
	if (ok && w->mw)
		w->mw->rkey = w->key;
	if (ok && w->state == FABRIC_WINDOW_BINDING)
		move(w, FABRIC_WINDOW_BOUND);
	/* A failed bind fails its queue pair, which ends the window. */
	window_settle(w);
}

void window_invalidated(struct fabric_window *w, bool ok)
{
	w->inv_pending = false;
	if (w->state == FABRIC_WINDOW_INVALIDATING && ok) {
		move(w, FABRIC_WINDOW_FREE);
		died(w, FABRIC_BY_INVALIDATE);
	}
	window_settle(w);
}

/* Its LOCAL_INV is queued, and has not been handed on. */
static bool is_queued(const struct fabric_window *w)
{
	const struct ring *s = &w->qp->s;

	return w->inv_pending && w->inv_seq - s->posted < s->tail - s->posted;
}

/* It must not leave any more: the window is free already. */
static void withdraw(struct fabric_window *w)
{
	struct fabric_qp *qp = w->qp;
	struct send_entry *e = &qp->sent[w->inv_seq & qp->s.mask];

	if (!is_queued(w))
		return;
	e->skip = e->ended = true;
	w->inv_pending = false;
}

void window_foreign(struct fabric_qp *qp, uint32_t key)
{
	for (uint32_t i = 0; i < qp->n_windows; i++) {
		struct fabric_window *w = &qp->windows[i];

		if (w->key != key || !(is_live(w->state) || is_waiting(w->state)))
			continue;
		qp->set->c.foreign_invalidates++;
		if (w->state == FABRIC_WINDOW_BINDING) {
			w->mw->rkey = w->key;
			move(w, FABRIC_WINDOW_BOUND);
		}
		withdraw(w);
		move(w, FABRIC_WINDOW_FREE);
		died(w, FABRIC_BY_INVALIDATE);
		window_settle(w);
		return;
	}
}

/* True: deallocated. False: the device keeps it. */
static bool dealloc(struct fabric_window *w)
{
	struct fabric_set *s = w->qp->set;

	if (ibv_dealloc_mw(w->mw) != 0 && !s->pd->dev->removed)
		return false;
	w->mw = NULL;
	return true;
}

static bool give_up(struct fabric_window *w)
{
	if (!dealloc(w)) {
		move(w, FABRIC_WINDOW_SET_ASIDE);
		return false;
	}
	w->qp->set->c.fallback_deallocs++;
	move(w, FABRIC_WINDOW_GONE);
	died(w, FABRIC_BY_DEALLOC);
	return true;
}

/* The queue pair is unusable: LOCAL_INV would only be flushed. What cannot be deallocated is out of
 * reach because the queue pair answers nothing in error (IBA 10.3.1.6). */
void windows_fail(struct fabric_qp *qp)
{
	for (uint32_t i = 0; i < qp->n_windows; i++) {
		struct fabric_window *w = &qp->windows[i];

		if (is_waiting(w->state) || w->state == FABRIC_WINDOW_BOUND)
			(void)give_up(w);
		if (w->state == FABRIC_WINDOW_SET_ASIDE && qp->in_error)
			died(w, FABRIC_BY_QP_ERROR);
	}
}

/* Its bind or its LOCAL_INV has not ended in time. One that nobody has flushed leaves now, and gets
 * its time: a revocation must not depend on whether its caller has more to send. */
void window_late(struct fabric_window *w, uint64_t now_ns)
{
	struct fabric_qp *qp = w->qp;

	qp->set->c.late++;
	if (is_queued(w) && fabric_qp_flush(qp, now_ns) == 0)
		return;
	if (!is_waiting(w->state))
		return; /* the flush failed the queue pair, and that ended it */
	if (w->state == FABRIC_WINDOW_INVALIDATING && give_up(w))
		return;
	if (w->state == FABRIC_WINDOW_SET_ASIDE)
		qp->set->c.fallback_errors++;
	qp_fail(qp);
}

static void refill(struct fabric_window *w)
{
	struct fabric_qp *qp = w->qp;

	if (w->held || w->fn || w->grace || w->inv_pending || w->bind_pending || w->n_under ||
	    qp->state == FABRIC_QP_FAILED)
		return;
	w->mw = ibv_alloc_mw(qp->set->pd->pd, IBV_MW_TYPE_2);
	if (!w->mw)
		return;
	move(w, FABRIC_WINDOW_FREE);
	window_settle(w);
}

static bool try_again(struct fabric_window *w)
{
	if (!dealloc(w))
		return false;
	move(w, FABRIC_WINDOW_GONE);
	died(w, FABRIC_BY_DEALLOC);
	return true;
}

void windows_refill(struct fabric_qp *qp)
{
	if (qp->state == FABRIC_QP_FAILED)
		qp_fail(qp); /* the device may accept now what it refused then */
	for (uint32_t i = 0; i < qp->n_windows; i++) {
		struct fabric_window *w = &qp->windows[i];

		if (w->state == FABRIC_WINDOW_SET_ASIDE)
			(void)try_again(w);
		if (w->state == FABRIC_WINDOW_GONE)
			refill(w);
	}
}

int windows_unmake(struct fabric_qp *qp)
{
	int busy = 0;

	for (uint32_t i = 0; i < qp->n_windows; i++) {
		struct fabric_window *w = &qp->windows[i];

		if (w->state == FABRIC_WINDOW_SET_ASIDE)
			busy |= !try_again(w);
		else if (w->mw)
			busy |= !dealloc(w);
	}
	return busy ? -EBUSY : 0;
}

static void invalidate(struct fabric_window *w, uint64_t now_ns)
{
	struct fabric_qp *qp = w->qp;
	struct ibv_send_wr *wr;

	assert(!w->inv_pending);
	w->inv_pending = true;
	w->inv_seq = qp->s.tail;
	wr = queue_send(qp, 0, FABRIC_OP_INVALIDATE, 0, w);
	wr->opcode = IBV_WR_LOCAL_INV;
	wr->invalidate_rkey = w->key;
	move(w, FABRIC_WINDOW_INVALIDATING);
	wait_until(w, &qp->set->invalidating, clock_add_ns(now_ns, qp->set->o.invalidate_limit_ns));
}

static void end_by_dealloc(struct fabric_window *w)
{
	struct fabric_qp *qp = w->qp;

	if (!give_up(w)) {
		qp->set->c.fallback_errors++;
		qp_fail(qp);
	} else {
		refill(w); /* unless its receipt waits */
	}
}

/* By its peer, or with its queue pair; what is SET_ASIDE and not dead must wait. */
static void ended_before(struct fabric_window *w)
{
	if (w->dead)
		died(w, w->how);
}

int fabric_window_revoke(struct fabric_window *w, uint64_t now_ns, fabric_receipt_fn fn, void *arg)
{
	if (!w->held)
		return -EALREADY;
	w->held = false;
	w->fn = fn;
	w->arg = arg;
	if (w->state == FABRIC_WINDOW_BOUND && w->qp->set->o.end_by_dealloc)
		end_by_dealloc(w);
	else if (w->state == FABRIC_WINDOW_BINDING || w->state == FABRIC_WINDOW_BOUND)
		invalidate(w, now_ns);
	else
		ended_before(w);
	window_settle(w);
	return 0;
}

enum fabric_window_state fabric_window_state(const struct fabric_window *w)
{
	return w->state;
}

uint32_t fabric_window_key(const struct fabric_window *w)
{
	return w->key;
}

uint64_t fabric_window_base(const struct fabric_window *w)
{
	return w->base;
}

uint32_t fabric_qp_windows_free(const struct fabric_qp *qp)
{
	return qp->n_pool;
}
