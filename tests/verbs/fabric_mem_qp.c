/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs of fabric_mem. What is handed on is carried out at once, by whoever hands it on, in
 * order; with fabric_mem_hold transfers wait, and all that is behind them.
 */
#include "tests/verbs/fabric_mem_priv.h"
#include "common/crypto.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct list all_qps = {&all_qps, &all_qps};
static uint64_t next_id;
static uint32_t next_number = 100;
static bool holding, holding_invalidates, obeys_all, hanging, lax;
static uint64_t beyond;

struct fabric_qp *mem_qp_find(uint32_t number)
{
	struct fabric_qp *qp;

	list_for_each (&all_qps, qp, all)
		if (number && qp->number == number)
			return qp;
	return NULL;
}

struct fabric_qp *mem_qp_new(struct fabric_set *s, const struct fabric_qp_opts *o)
{
	struct fabric_qp *qp = calloc(1, sizeof(*qp));

	qp->set = s;
	qp->opts = *o;
	qp->id = ++next_id;
	qp->number = ++next_number;
	qp->state = FABRIC_QP_MADE;
	list_init(&qp->queued);
	list_init(&qp->receives);
	list_init(&qp->held);
	qp->windows = calloc(o->windows + 1, sizeof(*qp->windows));
	mem_now.windows += o->windows;
	mem_now.qps++;
	list_add_tail(&s->qps, &qp->link);
	list_add_tail(&all_qps, &qp->all);
	return qp;
}

/* ---- ends ---- */

static void end_wr(struct mem_wr *wr, enum fabric_end end, uint32_t bytes)
{
	const struct fabric_mem_failure *f = wr->qp->failure;
	bool as_told = f && f->end == end;
	struct fabric_completion c = {.cookie = wr->cookie,
	                              .qp = wr->qp,
	                              .op = wr->op,
	                              .end = end,
	                              .bytes = bytes,
	                              .device_status = as_told ? f->status : end,
	                              .vendor_err = as_told ? f->vendor_err : 0,
	                              .invalidated = wr->invalidated != 0,
	                              .key = wr->invalidated};

	list_del(&wr->link);
	for (uint32_t i = 0; i < wr->n_parts; i++)
		wr->parts[i].region->users--;
	if (wr->op != FABRIC_OP_RECV)
		wr->qp->outstanding--;
	mem_now.flushed += end == FABRIC_END_FLUSHED;
	if (!wr->internal && (end != FABRIC_END_OK || !(wr->flags & FABRIC_QUIET)))
		mem_tell(wr->qp->set, &c, NULL);
	free(wr);
}

static void window_gone(struct fabric_window *w)
{
	if (w->state != FABRIC_WINDOW_BINDING && w->state != FABRIC_WINDOW_BOUND &&
	    w->state != FABRIC_WINDOW_INVALIDATING)
		return;
	w->region->users--;
	if (w->state == FABRIC_WINDOW_INVALIDATING) {
		w->state = FABRIC_WINDOW_FREE;
		mem_tell(w->qp->set, NULL, w);
	} else {
		w->state = FABRIC_WINDOW_GONE;
	}
}

static void flush_list(struct list *l)
{
	while (!list_empty(l))
		end_wr(list_first(l, struct mem_wr, link), FABRIC_END_FLUSHED, 0);
}

void mem_qp_fail(struct fabric_qp *qp)
{
	if (qp->state == FABRIC_QP_FAILED && !holding && list_empty(&qp->held) &&
	    list_empty(&qp->receives))
		return;
	qp->state = FABRIC_QP_FAILED;
	for (uint32_t i = 0; i < qp->opts.windows; i++)
		window_gone(&qp->windows[i]);
	if (hanging)
		return;
	/* A device that is still at a transfer flushes it when it comes to it. */
	if (!holding) {
		flush_list(&qp->held);
		flush_list(&qp->queued);
	}
	flush_list(&qp->receives);
}

/* ---- carrying out ---- */

static uint8_t *region_place(const struct fabric_region *r, uint64_t at, uint64_t bytes)
{
	if (at < r->base || bytes > r->length || at - r->base > r->length - bytes)
		return NULL;
	return r->mem + (at - r->base);
}

/* Where the bytes are that it may touch; NULL: it may not. */
static uint8_t *window_place(const struct fabric_qp *peer, const struct mem_wr *wr, uint64_t bytes)
{
	uint8_t need = wr->op == FABRIC_OP_READ ? FABRIC_READ : FABRIC_WRITE;
	static uint8_t nowhere;

	/* Of no bytes no key is asked for (C9-88). */
	if (!bytes)
		return peer->opts.remote_access & need ? &nowhere : NULL;
	for (uint32_t i = 0; i < peer->opts.windows; i++) {
		const struct fabric_window *w = &peer->windows[i];
		uint64_t base;

		/* Good until its LOCAL_INV is carried out. */
		if ((w->state != FABRIC_WINDOW_BOUND && w->state != FABRIC_WINDOW_INVALIDATING) ||
		    w->key != wr->remote_key)
			continue;
		base = w->region->base + w->offset;
		if (lax && w->access & need)
			return region_place(w->region, wr->remote_address, bytes);
		if (!(w->access & need) || wr->remote_address < base || bytes > w->length ||
		    wr->remote_address - base > w->length - bytes)
			return NULL;
		return w->region->mem + w->offset + (wr->remote_address - base);
	}
	return NULL;
}

static uint64_t length_of(const struct mem_wr *wr)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < wr->n_parts; i++)
		n += wr->parts[i].length;
	return n;
}

/* Both are told that it failed, as a responder that answers NAK goes to error, too. */
static void fail_both(struct mem_wr *wr, struct fabric_qp *peer, enum fabric_end end)
{
	struct fabric_qp *qp = wr->qp;

	end_wr(wr, end, 0);
	mem_qp_fail(qp);
	if (peer && end == FABRIC_END_REMOTE_ACCESS)
		mem_qp_fail(peer);
}

static bool do_transfer(struct mem_wr *wr, struct fabric_qp *peer)
{
	uint64_t bytes = length_of(wr);
	uint8_t *at;

	wr->remote_address += beyond;
	beyond = 0;
	at = window_place(peer, wr, bytes);
	if (!at) {
		mem_now.refused++;
		fail_both(wr, peer, FABRIC_END_REMOTE_ACCESS);
		return false;
	}
	for (uint32_t i = 0; i < wr->n_parts; i++) {
		uint8_t *mine = wr->parts[i].region->mem + wr->parts[i].offset;

		if (wr->op == FABRIC_OP_READ)
			memcpy(mine, at, wr->parts[i].length);
		else
			memcpy(at, mine, wr->parts[i].length);
		at += wr->parts[i].length;
	}
	(*(wr->op == FABRIC_OP_READ ? &mem_now.reads : &mem_now.writes))++;
	end_wr(wr, FABRIC_END_OK, (uint32_t)bytes);
	return true;
}

static bool invalidate_by_peer(struct fabric_qp *peer, uint32_t key)
{
	if (obeys_all)
		return true;
	for (uint32_t i = 0; i < peer->opts.windows; i++) {
		struct fabric_window *w = &peer->windows[i];

		if (w->state != FABRIC_WINDOW_BOUND || w->key != key)
			continue;
		w->state = FABRIC_WINDOW_FREE;
		w->region->users--;
		return true;
	}
	return false;
}

static bool do_send(struct mem_wr *wr, struct fabric_qp *peer)
{
	uint64_t bytes = length_of(wr), at = 0;
	struct mem_wr *recv;
	uint8_t *to;

	if (list_empty(&peer->receives)) {
		mem_now.no_receive++;
		fail_both(wr, NULL, FABRIC_END_NO_RECEIVE);
		return false;
	}
	recv = list_first(&peer->receives, struct mem_wr, link);
	if (bytes > length_of(recv)) {
		fail_both(wr, NULL, FABRIC_END_REMOTE_OTHER);
		return false;
	}
	to = recv->parts[0].region->mem + recv->parts[0].offset;
	for (uint32_t i = 0; i < wr->n_parts; at += wr->parts[i++].length)
		memcpy(to + at, wr->parts[i].region->mem + wr->parts[i].offset,
		       wr->parts[i].length);
	if (wr->flags & FABRIC_REMOTE_INVALIDATE) {
		if (!invalidate_by_peer(peer, wr->remote_key)) {
			fail_both(wr, peer, FABRIC_END_REMOTE_ACCESS);
			return false;
		}
		recv->invalidated = wr->remote_key;
	}
	mem_now.sends++;
	peer->n_recvs--;
	end_wr(recv, FABRIC_END_OK, (uint32_t)bytes);
	end_wr(wr, FABRIC_END_OK, (uint32_t)bytes);
	return true;
}

static void do_window(struct mem_wr *wr)
{
	struct fabric_window *w = wr->window;

	if (wr->op == FABRIC_OP_BIND) {
		/* Revoked before it was handed on: the LOCAL_INV is behind it. */
		if (w->state == FABRIC_WINDOW_BINDING)
			w->state = FABRIC_WINDOW_BOUND;
		mem_now.binds++;
	} else if (w->state == FABRIC_WINDOW_INVALIDATING) {
		w->state = FABRIC_WINDOW_FREE;
		w->region->users--;
		mem_now.invalidates++;
		mem_tell(wr->qp->set, NULL, w);
	}
	end_wr(wr, FABRIC_END_OK, 0);
}

/* False: nothing behind it may be carried out now. */
static bool carry_out(struct mem_wr *wr)
{
	struct fabric_qp *peer = mem_qp_find(wr->qp->peer);
	bool transfer = wr->op == FABRIC_OP_READ || wr->op == FABRIC_OP_WRITE;

	if (wr->op == FABRIC_OP_BIND || wr->op == FABRIC_OP_INVALIDATE) {
		do_window(wr);
		return true;
	}
	if (!peer || peer->state == FABRIC_QP_FAILED) {
		fail_both(wr, NULL, FABRIC_END_NO_ANSWER);
		return false;
	}
	if (peer->forged != FABRIC_END_OK && peer->forged_op == wr->op) {
		enum fabric_end end = peer->forged;

		peer->forged = FABRIC_END_OK;
		fail_both(wr, NULL, end);
		return false;
	}
	return transfer ? do_transfer(wr, peer) : do_send(wr, peer);
}

static void run_held(struct fabric_qp *qp)
{
	while (!list_empty(&qp->held) && qp->state == FABRIC_QP_READY) {
		struct mem_wr *wr = list_first(&qp->held, struct mem_wr, link);

		if (holding && (wr->op == FABRIC_OP_READ || wr->op == FABRIC_OP_WRITE))
			return;
		if (holding_invalidates && wr->op == FABRIC_OP_INVALIDATE)
			return;
		if (!carry_out(wr))
			return;
	}
}

void fabric_mem_lax_windows(bool is)
{
	pthread_mutex_lock(&mem_lock);
	lax = is;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_aim(uint64_t at)
{
	pthread_mutex_lock(&mem_lock);
	beyond = at;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_hold(bool hold)
{
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	holding = hold;
	list_for_each (&all_qps, qp, all) {
		if (hold)
			continue;
		if (qp->state == FABRIC_QP_FAILED)
			mem_qp_fail(qp);
		else
			run_held(qp);
	}
	pthread_mutex_unlock(&mem_lock);
}

/* What a device may do with memory that it was given until it gives it up. */
static void write_in_hand(struct fabric_qp *qp)
{
	struct mem_wr *wr;

	list_for_each (&qp->receives, wr, link)
		for (uint32_t i = 0; i < wr->n_parts; i++)
			wr->parts[i].region->mem[wr->parts[i].offset] = 0xdd;
}

void fabric_mem_hang(bool hang)
{
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	hanging = hang;
	list_for_each (&all_qps, qp, all) {
		if (hang || qp->state != FABRIC_QP_FAILED)
			continue;
		write_in_hand(qp);
		if (!qp->zombie)
			mem_qp_fail(qp);
	}
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_obey_all(bool obey)
{
	pthread_mutex_lock(&mem_lock);
	obeys_all = obey;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_hold_invalidates(bool hold)
{
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	holding_invalidates = hold;
	list_for_each (&all_qps, qp, all)
		if (!hold && qp->state == FABRIC_QP_READY)
			run_held(qp);
	pthread_mutex_unlock(&mem_lock);
}

bool fabric_mem_key_lives(uint32_t key)
{
	struct fabric_qp *qp;
	bool lives = false;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&all_qps, qp, all)
		for (uint32_t i = 0; i < qp->opts.windows; i++)
			lives |= qp->windows[i].key == key &&
			         (qp->windows[i].state == FABRIC_WINDOW_BOUND ||
			          qp->windows[i].state == FABRIC_WINDOW_BINDING ||
			          qp->windows[i].state == FABRIC_WINDOW_INVALIDATING);
	pthread_mutex_unlock(&mem_lock);
	return lives;
}

void fabric_mem_break_all(void)
{
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&all_qps, qp, all)
		mem_qp_fail(qp);
	pthread_mutex_unlock(&mem_lock);
}

/* Locked. */
static void say(const struct fabric_qp *qp, uint64_t id, const char *words)
{
	struct fabric_dev *d = qp->set->pd->dev;
	uint64_t one = 1;

	d->event = (struct fabric_event){.kind = FABRIC_EVENT_QP_FAILED,
	                                 .set_cookie = qp->set->opts.cookie,
	                                 .qp_id = id,
	                                 .words = words};
	if (words)
		(void)!write(d->event_fd, &one, sizeof(one));
}

void fabric_mem_reset(struct fabric_qp *of)
{
	struct fabric_dev *d = of->set->pd->dev;
	struct fabric_qp *qp;

	pthread_mutex_lock(&mem_lock);
	d->reset = true;
	say(of, 0, "device fatal");
	d->event.kind = FABRIC_EVENT_DEVICE_REMOVED;
	d->event.set_cookie = 0;
	list_for_each (&all_qps, qp, all)
		if (qp->set->pd->dev == d)
			mem_qp_fail(qp);
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_break(struct fabric_qp *qp)
{
	pthread_mutex_lock(&mem_lock);
	mem_qp_fail(qp);
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_break_peer(struct fabric_qp *qp, const char *words)
{
	struct fabric_qp *peer;

	pthread_mutex_lock(&mem_lock);
	peer = mem_qp_find(qp->peer);
	mem_qp_fail(peer);
	say(peer, peer->id, words);
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_report(struct fabric_qp *qp, enum fabric_event_kind kind, const char *words)
{
	struct fabric_qp *peer;

	pthread_mutex_lock(&mem_lock);
	peer = mem_qp_find(qp->peer);
	say(peer, peer->id, words);
	peer->set->pd->dev->event.kind = kind;
	if (kind != FABRIC_EVENT_QP_FAILED)
		peer->set->pd->dev->event.qp_id = 0;
	if (kind != FABRIC_EVENT_QP_FAILED && kind != FABRIC_EVENT_CQ_FAILED)
		peer->set->pd->dev->event.set_cookie = 0;
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_break_as(struct fabric_qp *qp, const struct fabric_mem_failure *how)
{
	pthread_mutex_lock(&mem_lock);
	qp->failure = how;
	if (how->end != FABRIC_END_FLUSHED && !list_empty(&qp->receives))
		end_wr(list_first(&qp->receives, struct mem_wr, link), how->end, 0);
	mem_qp_fail(qp);
	qp->failure = NULL;
	say(qp, qp->id + how->of_another, how->words);
	pthread_mutex_unlock(&mem_lock);
}

void fabric_mem_forge(struct fabric_qp *qp, enum fabric_op op, enum fabric_end end)
{
	pthread_mutex_lock(&mem_lock);
	qp->forged_op = op;
	qp->forged = end;
	pthread_mutex_unlock(&mem_lock);
}

uint32_t fabric_mem_held(void)
{
	struct fabric_qp *qp;
	struct mem_wr *wr;
	uint32_t n = 0;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&all_qps, qp, all)
		list_for_each (&qp->held, wr, link)
			n += wr->op == FABRIC_OP_READ || wr->op == FABRIC_OP_WRITE;
	pthread_mutex_unlock(&mem_lock);
	return n;
}

/* ---- posting ---- */

static int check(struct fabric_qp *qp, enum fabric_op op, const struct fabric_wr *wr)
{
	if (qp->state == FABRIC_QP_FAILED || (op != FABRIC_OP_RECV && qp->state != FABRIC_QP_READY))
		return -ENOTCONN;
	if (op == FABRIC_OP_RECV ? qp->n_recvs >= qp->opts.recv_depth
	                         : qp->outstanding >= qp->opts.send_depth)
		return -EBUSY;
	if (wr->n_parts > MAX(op == FABRIC_OP_RECV ? qp->opts.recv_parts : qp->opts.send_parts, 1))
		return -EINVAL;
	for (uint32_t i = 0; i < wr->n_parts; i++) {
		const struct fabric_part *p = &wr->parts[i];

		if (p->region->pd != qp->set->pd)
			return -EPERM;
		if (p->offset > p->region->length || p->length > p->region->length - p->offset)
			return -ERANGE;
	}
	return 0;
}

static int post(struct fabric_qp *qp, enum fabric_op op, const struct fabric_wr *wr)
{
	struct mem_wr *m;
	int rc;

	pthread_mutex_lock(&mem_lock);
	if (mem_faulty())
		mem_qp_fail(qp);
	rc = check(qp, op, wr);
	if (rc == 0) {
		m = calloc(1, sizeof(*m));
		*m = (struct mem_wr){.qp = qp,
		                     .op = op,
		                     .cookie = wr->cookie,
		                     .remote_address = wr->remote_address,
		                     .flags = wr->flags,
		                     .remote_key = wr->remote_key,
		                     .n_parts = wr->n_parts};
		for (uint32_t i = 0; i < wr->n_parts; i++) {
			m->parts[i] = wr->parts[i];
			m->parts[i].region->users++;
		}
		if (op == FABRIC_OP_RECV)
			qp->n_recvs++;
		else
			qp->outstanding++;
		list_add_tail(op == FABRIC_OP_RECV ? &qp->receives : &qp->queued, &m->link);
	}
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

int fabric_send(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return post(qp, FABRIC_OP_SEND, wr);
}

bool fabric_send_withdraw(struct fabric_qp *qp, uint64_t cookie)
{
	struct mem_wr *wr, *tmp;
	bool found = false;

	pthread_mutex_lock(&mem_lock);
	list_for_each_safe (&qp->queued, wr, tmp, link) {
		if (found || wr->op != FABRIC_OP_SEND || wr->cookie != cookie)
			continue;
		found = true;
		list_del(&wr->link);
		for (uint32_t i = 0; i < wr->n_parts; i++)
			wr->parts[i].region->users--;
		qp->outstanding--;
		free(wr);
	}
	pthread_mutex_unlock(&mem_lock);
	return found;
}

int fabric_read(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return post(qp, FABRIC_OP_READ, wr);
}

int fabric_write(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return post(qp, FABRIC_OP_WRITE, wr);
}

int fabric_recv(struct fabric_qp *qp, const struct fabric_wr *wr)
{
	return post(qp, FABRIC_OP_RECV, wr);
}

int fabric_qp_flush(struct fabric_qp *qp, uint64_t now_ns)
{
	int rc = 0;

	pthread_mutex_lock(&mem_lock);
	if (qp->state == FABRIC_QP_FAILED) {
		rc = -ENOTCONN;
	} else if (mem_faulty()) {
		mem_qp_fail(qp);
		rc = -EIO;
	}
	mem_now.doorbells += rc == 0 && !list_empty(&qp->queued);
	while (rc == 0 && !list_empty(&qp->queued)) {
		struct mem_wr *wr = list_first(&qp->queued, struct mem_wr, link);

		list_del(&wr->link);
		list_add_tail(&qp->held, &wr->link);
	}
	if (rc == 0)
		run_held(qp);
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

/* ---- the rest of a queue pair ---- */

uint64_t fabric_qp_id(const struct fabric_qp *qp)
{
	return qp->id;
}

uint64_t fabric_qp_cookie(const struct fabric_qp *qp)
{
	return qp->opts.cookie;
}

enum fabric_qp_state fabric_qp_state(const struct fabric_qp *qp)
{
	return qp->state;
}

uint32_t fabric_qp_number(const struct fabric_qp *qp)
{
	return qp->number;
}

uint32_t fabric_qp_inline_max(const struct fabric_qp *qp)
{
	return qp->opts.inline_bytes;
}

struct fabric_qp *fabric_qp_find(struct fabric_set *s, uint64_t id)
{
	struct fabric_qp *qp;

	list_for_each (&s->qps, qp, link)
		if (qp->id == id)
			return qp;
	return NULL;
}

uint32_t fabric_qp_send_room(const struct fabric_qp *qp)
{
	uint32_t n;

	pthread_mutex_lock(&mem_lock);
	n = qp->opts.send_depth - MIN(qp->outstanding, qp->opts.send_depth);
	pthread_mutex_unlock(&mem_lock);
	return n;
}

uint32_t fabric_qp_outstanding(const struct fabric_qp *qp)
{
	uint32_t n;

	pthread_mutex_lock(&mem_lock);
	n = qp->outstanding;
	pthread_mutex_unlock(&mem_lock);
	return n;
}

int fabric_qp_kill(struct fabric_qp *qp, struct fabric_receipt *ret)
{
	pthread_mutex_lock(&mem_lock);
	/* What was not handed on is dropped at once. */
	flush_list(&qp->queued);
	mem_qp_fail(qp);
	pthread_mutex_unlock(&mem_lock);
	return 0;
}

void fabric_qp_failed(struct fabric_qp *qp)
{
	fabric_qp_kill(qp, NULL);
}

static void drop_ends(struct fabric_qp *qp)
{
	struct mem_end *e, *next;

	list_for_each_safe (&qp->set->ends, e, next, link) {
		if (e->receipt ? e->receipt->qp != qp : e->c.qp != qp)
			continue;
		list_del(&e->link);
		free(e);
	}
}

static void drop_list(struct list *l)
{
	while (!list_empty(l)) {
		struct mem_wr *wr = list_first(l, struct mem_wr, link);

		list_del(&wr->link);
		for (uint32_t i = 0; i < wr->n_parts; i++)
			wr->parts[i].region->users--;
		free(wr);
	}
}

/* Locked. */
static void qp_drop(struct fabric_qp *qp)
{
	drop_list(&qp->queued);
	drop_list(&qp->held);
	drop_list(&qp->receives);
	drop_ends(qp);
	list_del(&qp->link);
	list_del(&qp->all);
	mem_now.qps--;
	mem_now.qps_freed++;
	mem_now.windows -= qp->opts.windows;
}

static void qp_delete(struct fabric_qp *qp)
{
	free(qp->windows);
	free(qp);
}

bool fabric_qp_kept(const struct fabric_set *s, uint64_t id)
{
	const struct fabric_qp *qp;
	bool kept = false;

	pthread_mutex_lock(&mem_lock);
	list_for_each (&s->zombies, qp, link)
		kept |= qp->id == id;
	pthread_mutex_unlock(&mem_lock);
	return kept;
}

bool mem_zombies_end(struct fabric_set *s)
{
	mem_now.qps_refused += hanging && !list_empty(&s->zombies);
	while (!hanging && !list_empty(&s->zombies)) {
		struct fabric_qp *qp = list_first(&s->zombies, struct fabric_qp, link);

		mem_now.qps_kept--;
		qp_drop(qp);
		qp_delete(qp);
	}
	return list_empty(&s->zombies);
}

uint32_t fabric_qp_free(struct fabric_qp *qp)
{
	struct fabric_receipt r = {.how = FABRIC_BY_QP_ERROR};
	bool kept;
	uint32_t n;

	if (!qp)
		return 0;
	pthread_mutex_lock(&mem_lock);
	n = qp->outstanding;
	kept = hanging;
	for (uint32_t i = 0; i < qp->opts.windows; i++)
		window_gone(&qp->windows[i]);
	if (kept) {
		mem_now.qps_kept++;
		qp->zombie = true;
		qp->state = FABRIC_QP_FAILED;
		drop_ends(qp);
		list_del(&qp->link);
		list_add_tail(&qp->set->zombies, &qp->link);
	} else {
		qp_drop(qp);
	}
	pthread_mutex_unlock(&mem_lock);
	for (uint32_t i = 0; i < qp->opts.windows; i++)
		if (qp->windows[i].fn)
			qp->windows[i].fn(qp->windows[i].arg, &r);
	if (!kept)
		qp_delete(qp);
	return n;
}
