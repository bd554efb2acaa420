/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records that agents hand up. What an agent says is its claim: it is recorded with its origin,
 * and it can only speak of tenants that are placed on it.
 *
 * An agent bounds what one tenant makes there (agent/audit.h); a tenant at many agents would be
 * bounded nowhere. So refusals are bounded here again, per tenant and kind, over all agents; what
 * is beyond is counted. Invariants: (1) nothing is acknowledged before the commit that has it, be
 * it as a record or in a count: a batch with something to count waits for the tick, and goes to the
 * store in one transaction with the count and with its origin's seq, so that a crash neither loses
 * nor doubles it; (2) what is behind such a batch waits, too: the records of an incarnation are
 * stored in order; (3) only refusals are counted, everything else is written one by one.
 */
#include "controller/ctl.h"
#include "controller/test_switches.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define FORWARD_AGAIN_MS 5000 /* a store that is full is not asked all the time */
#define ACK_BACKLOG_MAX  4096 /* records of one agent that wait for the store */

/* Of one tenant and kind, over all agents: twice what one agent hands up by itself at most, so that
 * nothing of a tenant at one agent is ever counted twice over. */
#ifndef FORWARD_FIRST
#define FORWARD_FIRST 200
#define FORWARD_PER_S 20
#endif
#ifndef SHARES_MAX
#define SHARES_MAX 4096
#endif
#define SHARE_FORGET_NS (3600 * NS_PER_S)
/* One transaction: with a detail for each incarnation in each count. */
#define FLIGHT_ORIGINS (STORE_DETAILS_MAX - 1)
#ifndef FLIGHT_DRAFTS
#define FLIGHT_DRAFTS 4096
#endif

static struct ctl_origin *origin_get(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o;

	HASH_FIND(hh, a->origins, incarnation->b, ROS2_UID_LEN, o);
	return o;
}

uint64_t ctl_origin_acked(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o = origin_get(a, incarnation);

	return o ? o->acked : 0;
}

/* Refusals of one kind in one batch, that are to be counted together. By kind, in forward.t. */
struct folded {
	struct store_draft *d; /* in forward.t; of the first, with its tenant as it was resolved */
	uint64_t n, from, to;  /* records, and their seqs */
	uint64_t count, first_unix_ns, last_unix_ns;
	UT_hash_handle hh; /* of forward.folded */
};

struct forward {
	struct ctl *c;
	struct ros2_uid agent_uid, incarnation;
	uint64_t to;
	struct store_txn *t;   /* owned until the store has it */
	struct folded *folded; /* owned; not empty: it waits for the tick */
	struct list link;      /* of ctl_origin.waiting; of forward.with */
	struct list with;      /* of the first: others that are one transaction with it */
};

static void forward_free(struct forward *f)
{
	struct folded *x, *tmp;

	HASH_ITER (hh, f->folded, x, tmp) {
		HASH_DEL(f->folded, x);
		free(x);
	}
	store_txn_free(f->t);
	free(f);
}

static void waiting_free(struct ctl_origin *o)
{
	struct forward *f, *tmp;

	list_for_each_safe (&o->waiting, f, tmp, link) {
		list_del(&f->link);
		forward_free(f);
	}
}

static struct ctl_origin *origin_new(struct ctl_agent *a, const struct ros2_uid *incarnation)
{
	struct ctl_origin *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->incarnation = *incarnation;
	list_init(&o->waiting);
	HASH_ADD(hh, a->origins, incarnation.b, ROS2_UID_LEN, o);
	if (!HASH_TOOK(hh, o)) {
		free(o);
		return NULL;
	}
	return o;
}

int ctl_origin_load(struct ctl *c, const struct store_origin *row)
{
	struct ctl_agent *a = ctl_agent_uid(c, &row->agent_uid);
	struct ctl_origin *o = a ? origin_new(a, &row->incarnation) : NULL;

	if (!a)
		return 0;
	if (!o)
		return -ENOMEM;
	o->acked = o->queued = row->seq;
	return 0;
}

void ctl_origins_free(struct ctl_agent *a)
{
	struct ctl_origin *o, *tmp;

	loop_timer_stop(&a->forward_timer);
	HASH_ITER (hh, a->origins, o, tmp) {
		HASH_DEL(a->origins, o);
		waiting_free(o);
		free(o);
	}
}

/* Taken from the agent and not durable yet, of all its incarnations: it may send any number. */
static uint64_t backlog(const struct ctl_agent *a)
{
	const struct ctl_origin *o;
	uint64_t n = 0;

	/* Numbers are the agent's: each counts as one more than the bound at most. */
	for (o = a->origins; o; o = o->hh.next)
		n += MIN(o->queued - o->acked, (uint64_t)ACK_BACKLOG_MAX + 1);
	return n;
}

/* What came on this stream may come again on the next, since nobody knows which acknowledgements
 * the agent had by its end. It sends the oldest first: of what did not come it has nothing left. */
static bool may_come_again(const struct ctl_agent *a, const struct ctl_origin *o)
{
	return o->stream == a->stream && HASH_COUNT(a->origins) <= CTL_ORIGINS_SENT;
}

/* The oldest incarnations that have nothing on their way make room, but none behind @served: of
 * those the agent may not have heard on the stream before, and they come after it. */
static void origin_evict(struct ctl_agent *a, const struct ctl_origin *served, struct store_txn *t)
{
	struct ctl_origin *o, *tmp;

	HASH_ITER (hh, a->origins, o, tmp) {
		if (o == served || HASH_COUNT(a->origins) <= CTL_ORIGINS_MAX)
			return;
		if (o->queued != o->acked || may_come_again(a, o))
			continue;
		store_txn_add(t, STORE_ORIGIN_DELETE)->origin = (struct store_origin){
			.agent_uid = a->obj->uid, .incarnation = o->incarnation};
		HASH_DEL(a->origins, o);
		free(o);
	}
}

static void add_gap(struct store_txn *t, struct ctl_agent *a, const struct ros2_uid *incarnation,
                    uint64_t from, uint64_t to)
{
	struct store_draft *d =
		ctl_audit(t, &ctl_system, "audit.gap", STORE_AGENT, a->obj->name, &a->obj->uid);

	d->result = STORE_AUDIT_FAILED;
	d->reason = "records of this agent are missing";
	store_draft_detail(t, d, "incarnation", store_txn_uid(t, incarnation));
	store_draft_detail(t, d, "from_seq", store_txn_fmt(t, "%llu", (unsigned long long)from));
	store_draft_detail(t, d, "to_seq", store_txn_fmt(t, "%llu", (unsigned long long)to));
}

static void end_link(void *arg)
{
	struct ctl_agent *a = arg;

	if (a->link)
		link_end(a->link, ROS2_BUSY,
		         "records could not be stored: they are to be sent again");
}

/* The log stays without a hole: what waits behind the failed ones is the agent's again. */
static void forward_fail(struct ctl_agent *a, const struct ros2_err *err)
{
	struct ctl_origin *o, *tmp;

	HASH_ITER (hh, a->origins, o, tmp) {
		waiting_free(o);
		o->queued = o->at_store ? o->at_store : o->acked;
	}
	if (a->forward_failed || !a->link)
		return;
	a->forward_failed = true;
	loop_timer_in_ms(a->ctl->loop, &a->forward_timer, FORWARD_AGAIN_MS, end_link, a);
	log_warn("records of agent %s are not stored, it keeps them: %s", a->obj->name, err->msg);
}

void ctl_forward_begin(struct ctl_agent *a)
{
	a->forward_failed = false;
	loop_timer_stop(&a->forward_timer);
}

static void forward_next(struct ctl_agent *a, struct ctl_origin *o);

/* All of one transaction: first what is so, of each, then who is told and what goes on. */
static void forwarded_one(struct forward *f, const struct store_result *r, bool tell)
{
	struct ctl_agent *a = ctl_agent_uid(f->c, &f->agent_uid);
	struct ctl_origin *o = a ? origin_get(a, &f->incarnation) : NULL;

	if (!o)
		return;
	if (!tell) {
		o->at_store = 0;
		if (!r->rc)
			o->acked = MAX(o->acked, f->to);
		return;
	}
	if (r->rc < 0)
		forward_fail(a, &r->err);
	else if (a->link && o->acked == f->to)
		link_audit_ack(a->link, &f->incarnation, o->acked);
	forward_next(a, o);
}

static void forwarded(void *arg, const struct store_result *r)
{
	struct forward *lead = arg, *f, *tmp;

	forwarded_one(lead, r, false);
	list_for_each (&lead->with, f, link)
		forwarded_one(f, r, false);
	list_for_each_safe (&lead->with, f, tmp, link) {
		forwarded_one(f, r, true);
		list_del(&f->link);
		forward_free(f);
	}
	forwarded_one(lead, r, true);
	forward_free(lead);
}

/* @lead is in no list; what it holds goes with it. */
static int forward_submit(struct ctl *c, struct forward *lead, struct ros2_err *err)
{
	struct store_txn *t = TAKE_PTR(lead->t);

	return store_submit(c->store, t, forwarded, lead, err);
}

/* One transaction of an incarnation at a time is at the store: the next is handed over when it is
 * durable. What holds refusals to be counted waits for the tick, and what is behind it, too. */
static void forward_next(struct ctl_agent *a, struct ctl_origin *o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct forward *f;

	if (o->at_store || list_empty(&o->waiting))
		return;
	f = list_first(&o->waiting, struct forward, link);
	if (f->folded)
		return;
	list_del(&f->link);
	o->at_store = f->to;
	if (!forward_submit(a->ctl, f, &err))
		return;
	o->at_store = 0;
	forward_free(f);
	forward_fail(a, &err);
}

/* ---- refusals of one tenant at many agents ---- */

struct share_key {
	struct ros2_uid tenant; /* zero: of nobody that is known here */
	char action[32], status[24];
};

/* One kind of refusal, over all agents. */
struct ctl_forward_share {
	struct share_key key;
	uint64_t total, last_ns;
	uint32_t this_second;
	UT_hash_handle hh;
};

/* With many kinds what comes new shares one: of its name, and beyond that of all names. */
static struct ctl_forward_share *share_get(struct ctl *c, const struct store_draft *d)
{
	struct ctl_forward_share *s = NULL;
	struct share_key key;

	memset(&key, 0, sizeof(key));
	key.tenant = d->tenant_uid;
	snprintf(key.action, sizeof(key.action), "%s", d->action);
	snprintf(key.status, sizeof(key.status), "%s", d->status);
	HASH_FIND(hh, c->forward_shares, &key, sizeof(key), s);
	if (!s && HASH_COUNT(c->forward_shares) >= SHARES_MAX) {
		if (HASH_COUNT(c->forward_shares) >= 2 * SHARES_MAX)
			memset(&key, 0, sizeof(key));
		key.tenant = (struct ros2_uid){{0}};
		HASH_FIND(hh, c->forward_shares, &key, sizeof(key), s);
	}
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->key = key;
	HASH_ADD(hh, c->forward_shares, key, sizeof(s->key), s);
	if (!HASH_TOOK(hh, s)) {
		free(s);
		return NULL;
	}
	return s;
}

/* Without memory nothing is counted: every record is written. */
static bool is_within_share(struct ctl *c, const struct store_draft *d)
{
	struct ctl_forward_share *s;

	if (d->result != STORE_AUDIT_DENIED)
		return true;
	s = share_get(c, d);
	if (!s)
		return true;
	s->last_ns = clock_boottime_ns();
	if (++s->total <= FORWARD_FIRST)
		return true;
	return s->this_second++ < FORWARD_PER_S;
}

static void shares_tick(struct ctl *c)
{
	struct ctl_forward_share *s, *tmp;
	uint64_t now = clock_boottime_ns();

	HASH_ITER (hh, c->forward_shares, s, tmp) {
		s->this_second = 0;
		if (now - s->last_ns <= SHARE_FORGET_NS)
			continue;
		HASH_DEL(c->forward_shares, s);
		free(s);
	}
}

/* What is counted together: tenant, action and status as the agent says them, whole. It may make up
 * a kind for each record, so they are looked up, not compared with each other. */
struct kind {
	size_t len;
	char bytes[ROS2_UID_LEN + 2 * STORE_FMT_MAX];
};

static void kind_of(const struct store_draft *d, struct kind *ret)
{
	memcpy(ret->bytes, d->tenant_uid.b, ROS2_UID_LEN);
	ret->len = ROS2_UID_LEN + (size_t)snprintf(ret->bytes + ROS2_UID_LEN, 2 * STORE_FMT_MAX,
	                                           "%s%c%s", d->action, '\0', d->status);
}

/* How many an agent says it counted is its word: a sum that wraps would hide those of others. */
static uint64_t add_counts(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* NULL: no memory. */
static struct folded *folded_new(struct forward *f, const struct store_draft *d,
                                 const struct kind *kind)
{
	struct store_draft *copy = store_txn_mem(f->t, d, sizeof(*d));
	const void *key = store_txn_mem(f->t, kind->bytes, kind->len);
	struct folded *x = copy && key ? calloc(1, sizeof(*x)) : NULL;

	if (!x)
		return NULL;
	x->d = copy;
	HASH_ADD_KEYPTR(hh, f->folded, key, kind->len, x);
	if (HASH_TOOK(hh, x))
		return x;
	free(x);
	return NULL;
}

/* False: no memory, it has to be written by itself. */
static bool fold(struct forward *f, const struct store_draft *d, uint64_t seq)
{
	uint64_t first = d->count ? d->first_unix_ns : d->origin_time_unix_ns;
	uint64_t last = d->count ? d->last_unix_ns : d->origin_time_unix_ns;
	struct folded *at;
	struct kind kind;

	kind_of(d, &kind);
	HASH_FIND(hh, f->folded, kind.bytes, kind.len, at);
	if (!at) {
		at = folded_new(f, d, &kind);
		if (!at)
			return false;
		at->from = seq;
		at->first_unix_ns = first;
	}
	at->n++;
	at->count = add_counts(at->count, MAX(d->count, (uint64_t)1));
	at->to = seq;
	at->first_unix_ns = MIN(at->first_unix_ns, first);
	at->last_unix_ns = MAX(at->last_unix_ns, last);
	return true;
}

/* ---- the tick: what was folded, of several incarnations in one transaction ---- */

struct part { /* of one incarnation */
	const char *agent, *agent_uid, *incarnation;
	uint64_t n, from, to;
};

struct sum {                   /* of one kind, by what is in the transaction's memory */
	struct store_draft *d; /* without memory one of nobody: only written */
	struct part v[FLIGHT_ORIGINS];
	size_t n_parts;
	UT_hash_handle hh;
};

struct flight {
	struct forward *lead; /* owned until it is submitted; NULL: nothing yet */
	struct sum *sums;     /* owned */
	size_t n_origins, n_drafts;
};

/* Without memory the transaction is refused as a whole, and all of it is the agents' again. */
static struct sum *sum_of(struct flight *fl, const struct folded *x)
{
	struct store_txn *t = fl->lead->t;
	struct sum *s;

	HASH_FIND(hh, fl->sums, x->hh.key, x->hh.keylen, s);
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (s)
		HASH_ADD_KEYPTR(hh, fl->sums, x->hh.key, x->hh.keylen, s);
	if (!s || !HASH_TOOK(hh, s)) {
		free(s);
		store_txn_spoil(t);
		return NULL;
	}
	s->d = store_txn_audit(t);
	*s->d = *x->d;
	s->d->count = s->d->last_unix_ns = 0;
	s->d->first_unix_ns = UINT64_MAX;
	s->d->n_details = 0;
	return s;
}

static void sum_add(struct sum *s, const struct folded *x)
{
	struct part *p = s->n_parts ? &s->v[s->n_parts - 1] : NULL;

	s->d->count = add_counts(s->d->count, x->count);
	s->d->first_unix_ns = MIN(s->d->first_unix_ns, x->first_unix_ns);
	s->d->last_unix_ns = MAX(s->d->last_unix_ns, x->last_unix_ns);
	/* Batches of one incarnation come one after the other. Two agents may say the same one:
	 * that is a lie, of which the other's records know nothing. */
	if (!p || strcmp(p->incarnation, x->d->origin_incarnation) != 0 ||
	    strcmp(p->agent_uid, x->d->origin_agent_uid) != 0) {
		p = &s->v[s->n_parts++];
		*p = (struct part){.agent = x->d->origin_agent,
		                   .agent_uid = x->d->origin_agent_uid,
		                   .incarnation = x->d->origin_incarnation,
		                   .from = x->from};
	}
	p->n += x->n;
	p->to = x->to;
}

/* Which records it stands for. */
static void sum_end(struct store_txn *t, struct sum *s)
{
	store_draft_detail(t, s->d, "sample", "the fields of one of them");
	for (size_t i = 0; i < s->n_parts; i++)
		store_draft_detail(t, s->d, "records",
		                   store_txn_fmt(t, "%s %s %" PRIu64 "-%" PRIu64 ": %" PRIu64,
		                                 s->v[i].agent, s->v[i].incarnation, s->v[i].from,
		                                 s->v[i].to, s->v[i].n));
}

static void flight_add(struct flight *fl, struct forward *f)
{
	const struct folded *x;

	fl->n_drafts += store_txn_drafts(f->t);
	if (!fl->lead) {
		fl->lead = f;
	} else {
		list_add_tail(&fl->lead->with, &f->link);
		store_txn_join(fl->lead->t, TAKE_PTR(f->t));
	}
	/* It is refused: what it would point into is gone. */
	if (!fl->lead->t)
		return;
	/* Each may be of a kind of its own, and a draft more. */
	for (x = f->folded; x; x = x->hh.next) {
		struct sum *s = sum_of(fl, x);

		fl->n_drafts++;
		if (s)
			sum_add(s, x);
	}
}

static void flight_leave(struct ctl *c, struct flight *fl)
{
	struct store_result r = {.rc = 0, .err = ROS2_ERR_INIT};
	struct sum *s, *tmp;

	if (!fl->lead)
		return;
	HASH_ITER (hh, fl->sums, s, tmp) {
		sum_end(fl->lead->t, s);
		HASH_DEL(fl->sums, s);
		free(s);
	}
	r.rc = forward_submit(c, fl->lead, &r.err);
	if (r.rc < 0)
		forwarded(fl->lead, &r);
	fl->lead = NULL;
	fl->n_origins = fl->n_drafts = 0;
}

/* All that waits of an incarnation whose first has something folded. */
static void flight_board(struct ctl *c, struct flight *fl, struct ctl_origin *o)
{
	if (o->at_store || list_empty(&o->waiting))
		return;
	if (fl->n_origins == FLIGHT_ORIGINS || fl->n_drafts >= FLIGHT_DRAFTS)
		flight_leave(c, fl);
	fl->n_origins++;
	while (!list_empty(&o->waiting) && fl->n_drafts < FLIGHT_DRAFTS) {
		struct forward *f = list_first(&o->waiting, struct forward, link);

		list_del(&f->link);
		o->at_store = f->to;
		flight_add(fl, f);
	}
}

void ctl_forward_tick(struct ctl *c)
{
	struct flight fl = {0};
	struct ctl_object *obj, *tmp;
	struct ctl_origin *o, *otmp;

	HASH_ITER (by_key, c->by_key, obj, tmp) {
		if (!obj->agent)
			continue;
		HASH_ITER (hh, obj->agent->origins, o, otmp)
			flight_board(c, &fl, o);
	}
	flight_leave(c, &fl);
	shares_tick(c);
}

void ctl_forward_shares_free(struct ctl *c)
{
	struct ctl_forward_share *s, *tmp;

	HASH_ITER (hh, c->forward_shares, s, tmp) {
		HASH_DEL(c->forward_shares, s);
		free(s);
	}
}

/* ---- taking them ---- */

/* As much of it as the log takes: what waits here is bounded in records, and so in memory. */
static const char *cut(struct store_txn *t, const char *s)
{
	return store_txn_fmt(t, "%s", s ? s : "");
}

/* Into @d, with what it points to in @t. */
static void copy_forwarded(struct store_txn *t, struct ctl_agent *a,
                           const struct ros2_uid *incarnation, const struct ctl_forward *f,
                           struct store_draft *d)
{
	const struct store_draft *s = &f->draft;
	struct ctl_object *tenant =
		ros2_uid_is_zero(&s->tenant_uid) ? NULL : ctl_find_uid(a->ctl, &s->tenant_uid);

	*d = *s;
	d->actor = cut(t, s->actor);
	d->role = cut(t, s->role);
	d->peer = cut(t, s->peer);
	d->action = cut(t, s->action);
	d->object_kind = cut(t, s->object_kind);
	d->object_name = cut(t, s->object_name);
	d->object_uid = cut(t, s->object_uid);
	d->status = cut(t, s->status);
	d->reason = cut(t, s->reason);
	d->tenant = NULL;
	d->tenant_uid = (struct ros2_uid){{0}};
	d->has_origin = true;
	d->origin_agent = store_txn_str(t, a->obj->name);
	d->origin_agent_uid = CTL_SWITCH(no_record_origin) ? cut(t, f->claimed_agent_uid)
	                                                   : store_txn_uid(t, &a->obj->uid);
	d->origin_incarnation = store_txn_uid(t, incarnation);
	d->origin_seq = f->seq;
	d->n_details = 0;
	for (size_t i = 0; i < s->n_details; i++)
		store_draft_detail(t, d, cut(t, s->details[i].key), cut(t, s->details[i].value));
	if (tenant && tenant->kind == STORE_TENANT &&
	    (ctl_placed(tenant, a) || CTL_SWITCH(no_record_tenant)))
		ctl_audit_tenant(t, d, tenant);
	else if (s->tenant && *s->tenant)
		store_draft_detail(t, d, "claimed_tenant", cut(t, s->tenant));
	if (f->claimed_agent_uid && *f->claimed_agent_uid &&
	    strcmp(f->claimed_agent_uid, d->origin_agent_uid) != 0) {
		store_draft_detail(t, d, "claimed_agent_uid", cut(t, f->claimed_agent_uid));
		ctl_agent_claim(a, "a record that names another agent as its origin");
	}
}

/* A refusal beyond its tenant's share is counted with others. */
static void add_forwarded(struct forward *to, struct ctl_agent *a, const struct ctl_forward *f)
{
	struct store_draft d;

	copy_forwarded(to->t, a, &to->incarnation, f, &d);
	if (is_within_share(to->c, &d) || !fold(to, &d, f->seq))
		*store_txn_audit(to->t) = d;
}

/* Adds what follows @last to @to, gaps as records of their own; the last of it. */
static uint64_t take_new(struct forward *to, struct ctl_agent *a, uint64_t last,
                         const struct ctl_forward *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].seq <= last)
			continue; /* sent again: it is in the log, or on its way */
		if (v[i].seq > last + 1)
			add_gap(to->t, a, &to->incarnation, last + 1, v[i].seq - 1);
		add_forwarded(to, a, &v[i]);
		last = v[i].seq;
	}
	return last;
}

int ctl_forward(struct ctl *c, struct ctl_agent *a, const struct ros2_uid *incarnation,
                const struct ctl_forward *v, size_t n, struct ros2_err *err)
{
	struct ctl_origin *o = origin_get(a, incarnation);
	struct forward *f = calloc(1, sizeof(*f));
	uint64_t last = o ? o->queued : 0;

	if (a->forward_failed) {
		free(f);
		return 0;
	}
	if (backlog(a) > ACK_BACKLOG_MAX) {
		free(f);
		return ros2_err_named(err, ROS2_BUSY,
		                      "%d records of this agent wait for the store, the most there "
		                      "may be (fixed): they are to be sent again",
		                      ACK_BACKLOG_MAX);
	}
	if (f) {
		*f = (struct forward){.c = c,
		                      .agent_uid = a->obj->uid,
		                      .incarnation = *incarnation,
		                      .t = store_txn_new()};
		list_init(&f->with);
		f->to = take_new(f, a, last, v, n);
	}
	if (o)
		o->stream = a->stream;
	if (f && f->to == last) {
		forward_free(f);
		if (a->link && (!o || o->acked == last))
			link_audit_ack(a->link, incarnation, last);
		return 0;
	}
	if (f && !o)
		o = origin_new(a, incarnation);
	if (!f || !o) {
		if (f)
			forward_free(f);
		return ros2_err_set(err, -ENOMEM, "out of memory");
	}
	store_txn_add(f->t, STORE_ORIGIN_PUT)->origin =
		(struct store_origin){.agent_uid = a->obj->uid,
	                              .incarnation = *incarnation,
	                              .seq = f->to,
	                              .updated_unix_ns = clock_unix_ns()};
	o->queued = f->to;
	o->stream = a->stream;
	origin_evict(a, o, f->t);
	list_add_tail(&o->waiting, &f->link);
	forward_next(a, o);
	return 0;
}
