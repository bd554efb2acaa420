/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From waiting to the engine. Deficit round robin over tenants, and over the sessions of each,
 * decides who is next, the tenant's buckets whether it is time, the pool whether there is a slot;
 * what is admitted goes to the ready list (or is pulled first), and admit_submit gives the ready
 * list to the engines under a clock read for the purpose. Invariants: (1) a session with a waiting
 * request is in its tenant's list of that direction, and that tenant in the reactor's; (2) requests
 * of one session and direction are admitted in their order, but those whose storage is away, or
 * whose engine has all that it may have of the tenant, stand back behind those for others; (3) what
 * waits for tokens, or beyond a share for storage that is away, holds no slot, except a payload
 * that has come, and no place in the reactor; (4) a session that waits for what its tenant's other
 * sessions get, too (tokens, slots, places), is behind none of them for more than DRR_QUANTUM or
 * one request.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/verbs.h"
#include "dataplane/test_switches.h"
#include <errno.h>

#define DRR_QUANTUM  (128u * 1024)
#define COST_MIN     4096u
#define WRITE_FACTOR 2u /* a write costs the engine about twice a read */
#define FIRST_KICK   2u /* an idle device is at work while the others are made ready */
#define SECOND_KICK  8u /* and has these when it is done with those */
#define DEFICIT_MAX  (WRITE_FACTOR * WIRE_IO_MAX + DRR_QUANTUM)
_Static_assert(WIRE_IO_MAX <= ENGINE_ZERO_MAX, "an engine clears what a tenant may ask for");

/* Of a direction's two buckets (rtenant.dry). */
enum { DRY_BYTES = 1, DRY_OPS = 2 };

/* DRY: for tokens; so does everybody behind it. AWAY, FULL: for its own engine alone. */
enum verdict { ADMITTED, WAITS, DRY, NO_DEFICIT, AWAY, FULL };

static int direction_of(const struct request *req)
{
	return req->op == REQUEST_READ ? 0 : 1;
}

static void activate(struct session *s, int d)
{
	if (list_empty(&s->link_active[d]))
		list_add_tail(&s->rt->active[d], &s->link_active[d]);
	if (list_empty(&s->rt->link))
		list_add_tail(&s->r->active, &s->rt->link);
}

static bool is_active(const struct rtenant *rt)
{
	return !list_empty(&rt->active[0]) || !list_empty(&rt->active[1]);
}

void admit_enqueue(struct request *req)
{
	int d = direction_of(req);

	req->state = REQUEST_QUEUED;
	list_add_tail(&req->s->queue[d], &req->link);
	activate(req->s, d);
}

void admit_again(struct request *req)
{
	int d = direction_of(req);
	struct list *queue = &req->s->queue[d], *at = queue->next;

	while (at != queue && list_entry(at, struct request, link)->paid)
		at = at->next;
	req->state = REQUEST_QUEUED;
	list_add_tail(at, &req->link);
	activate(req->s, d);
}

void admit_forget(struct session *s)
{
	for (int d = 0; d < 2; d++)
		if (list_empty(&s->queue[d]))
			list_del(&s->link_active[d]);
	if (s->rt && !is_active(s->rt))
		list_del(&s->rt->link);
}

static uint64_t cost_of(const struct request *req)
{
	uint64_t cost = MAX(req->length, COST_MIN);

	return req->op == REQUEST_READ ? cost : cost * WRITE_FACTOR;
}

/* Both buckets of the direction, or neither. What clears pays its whole length as a write does: a
 * target may have to write as much, for 64 bytes of the tenant's (docs/decisions/0024). */
static bool take_tokens(struct request *req)
{
	struct session *s = req->s;
	enum qos_kind k = req->op == REQUEST_READ ? QOS_READ_BYTES : QOS_WRITE_BYTES;
	struct qos_bucket *b = &s->tenant->qos[k];
	struct qos_local *l = &s->rt->tokens[k];
	uint64_t at, now = s->r->now_ns;
	uint8_t dry = 0;

	if (!qos_reserve(&b[0], &l[0], req->length, now, &at))
		dry = DRY_BYTES;
	else if (!qos_reserve(&b[1], &l[1], 1, now, &at))
		dry = DRY_OPS;
	if (dry) {
		s->rt->dry |= dry;
		req->shaped = true;
		s->r->wait_at_ns = MIN(s->r->wait_at_ns, at);
		return false;
	}
	qos_spend(&b[0], &l[0], req->length);
	qos_spend(&b[1], &l[1], 1);
	if (req->shaped)
		atomic_fetch_add_explicit(&s->stats.shaped_ns, now - req->begun_ns,
		                          memory_order_relaxed);
	return true;
}

/* Somebody before it waits for the tokens that it would take: small requests do not live on what a
 * large one is short of. */
static bool finds_dry(const struct request *req)
{
	uint8_t dry = req->s->rt->dry;

	return !req->paid && (dry & DRY_OPS || (dry & DRY_BYTES && req->length));
}

static void go(struct request *req)
{
	struct session *s = req->s;

	list_del(&req->link);
	if (req->op != REQUEST_FLUSH && req->length == 0) {
		request_reply_empty(req);
	} else if (req->op == REQUEST_WRITE && !req->has_payload) {
		req->state = REQUEST_PULLING;
		s->transport->pull(s, req);
	} else {
		request_ready(req);
	}
}

/* May it wait inside its engine, whose storage is away? */
static bool may_wait(const struct request *req, bool needs_slot)
{
	const struct session *s = req->s;
	uint32_t held = s->rt->at[req->file->mount->engine->slot].n;

	return share_allows(&REACTOR_AWAY_SHARE, held, s->r->n_parked + s->r->n_sent_away) &&
	       (!needs_slot || slots_may_wait(req->from->pool, req->length, req->from->tenant));
}

/* False: in the next turn, which comes at once. */
static bool turn_may_clear(const struct session *s)
{
	const struct rtenant *rt = s->rt;

	if (rt->cleared.turn != s->r->turn || rt->cleared.bytes < REACTOR_CLEARED_TURN ||
	    DP_SWITCH(no_clear_bounds))
		return true;
	s->r->again = true;
	return false;
}

static void count_cleared(const struct request *req)
{
	struct rtenant *rt = req->s->rt;

	if (rt->cleared.turn != req->s->r->turn)
		rt->cleared.bytes = 0;
	rt->cleared.turn = req->s->r->turn;
	rt->cleared.bytes += req->length;
}

/* A place inside the engines. */
static enum verdict place_for(const struct request *req, bool away, bool needs_slot)
{
	const struct session *s = req->s;
	const struct reactor *r = s->r;
	uint32_t engine = req->file->mount->engine->slot;

	if (request_is_slotless(req) && s->rt->slotless_at[engine] >= REACTOR_SLOTLESS_MAX &&
	    !DP_SWITCH(no_clear_bounds))
		return away ? AWAY : FULL;
	if (request_op_clears(req->op) && !turn_may_clear(s))
		return WAITS;
	if (request_borrows(req) &&
	    s->rt->borrowed_at[engine] + req->length > REACTOR_BORROWED_MAX &&
	    !DP_SWITCH(no_borrowed_bound))
		return away ? AWAY : FULL;
	if (away)
		return may_wait(req, needs_slot) ? ADMITTED : AWAY;
	if (!depth_allows(&s->rt->at[engine], &r->engines[engine].least) &&
	    !DP_SWITCH(no_depth_bound))
		return FULL;
	return share_allows(&REACTOR_ENGINE_SHARE, s->rt->n_begun,
	                    r->n_begun - MIN(r->n_parked, r->n_begun))
	               ? ADMITTED
	               : WAITS;
}

/* While it was asked for its payload it had no place: a tenant that does not answer takes none. So
 * many of one tenant may be asked at once that there is none for all of them when they answer. */
void admit_pulled(struct request *req)
{
	struct session *s = req->s;
	bool away = request_away(s, req->file);

	if (place_for(req, away, false) == ADMITTED || DP_SWITCH(no_pulled_places)) {
		s->r->n_sent_away += away;
		request_ready(req);
		return;
	}
	req->has_payload = req->paid = true;
	admit_again(req);
}

static enum verdict try_one(struct request *req)
{
	struct session *s = req->s;
	struct reactor *r = s->r;
	struct slot_source *from = req->from;
	uint64_t cost = cost_of(req);
	bool needs_slot = request_moves_bytes(req) && !req->slot.mem;
	bool away = request_away(s, req->file);
	enum verdict v = finds_dry(req) ? DRY : place_for(req, away, needs_slot);

	if (v != ADMITTED)
		return v;
	if (s->rt->deficit < cost)
		return NO_DEFICIT;
	if (needs_slot && request_crowds(s, req->file, from, req->length))
		return AWAY;
	if (needs_slot && !slots_may_take(from->pool, req->length, &from->use, from->tenant)) {
		slots_missed(from->pool, req->length);
		return WAITS;
	}
	if (!req->paid && !take_tokens(req))
		return DRY;
	if (needs_slot)
		(void)request_take_slot(s, req->file, from, req->length, &req->slot);
	s->rt->deficit -= cost;
	s->spent[direction_of(req)] += cost;
	r->n_sent_away += away;
	if (request_op_clears(req->op))
		count_cleared(req);
	go(req);
	return ADMITTED;
}

static void stand_last(struct list *queue, struct request *req)
{
	list_del(&req->link);
	list_add_tail(queue, &req->link);
}

/* It is its turn; or turns are not passed on, and it needs nothing of what is waited for. */
static bool may_go_on(const struct session *s, int d)
{
	if (s->spent[d] < DRR_QUANTUM)
		return true;
	return s->rt->dry && !finds_dry(list_first(&s->queue[d], struct request, link));
}

/* What its storage is away for waits until an engine has said something, which is in another turn:
 * so many are looked at once in each, however often the others are served in it. */
static bool all_looked_at(const struct session *s, int d)
{
	return s->away_turn[d] == s->r->turn && !DP_SWITCH(no_turn_bounds);
}

/* Those that its engine is full for stand back once in a turn; then the first of them ends the
 * look, as all else does that waits. Of one engine only what holds for the first holds for all. */
static bool may_stand_back(const struct session *s, int d, enum verdict v)
{
	bool several = s->engines & (s->engines - 1);

	return several && (v == AWAY || s->full_turn[d] != s->r->turn || DP_SWITCH(no_turn_bounds));
}

/* A queue in which some stood back, before all had been looked at, is in its order again: who has
 * its tokens, or a slot with its payload, is first, and not behind who waits for these. */
static void make_first(struct list *queue, struct request *req)
{
	list_del(queue);
	list_add_tail(&req->link, queue);
}

/* Requests for other engines are behind it: they do not wait for that one. After a whole round they
 * all are in their order. */
static uint32_t serve_session(struct session *s, int d, bool *more)
{
	struct request *round = NULL; /* who stood back first */
	enum verdict v = ADMITTED;
	bool whole = false, full = false, away = false;
	uint32_t n = 0;

	if (all_looked_at(s, d))
		return 0;
	while (v == ADMITTED && !list_empty(&s->queue[d]) && may_go_on(s, d)) {
		struct request *req = list_first(&s->queue[d], struct request, link);

		whole = req == round;
		if (whole)
			break;
		v = try_one(req);
		n += v == ADMITTED;
		full |= v == FULL;
		away |= v == AWAY;
		if ((v != AWAY && v != FULL) || !may_stand_back(s, d, v))
			continue;
		stand_last(&s->queue[d], req);
		round = round ? round : req;
		v = ADMITTED;
	}
	if (round && !whole && !list_empty(&s->queue[d]))
		make_first(&s->queue[d], round);
	*more |= v == NO_DEFICIT;
	/* It is served again in this run, and has got something then. */
	if (v == NO_DEFICIT || (v == ADMITTED && !whole))
		return n;
	if (full)
		s->full_turn[d] = s->r->turn;
	if (away && !n)
		s->away_turn[d] = s->r->turn;
	return n;
}

/* Who has had a quantum (or a large request, which is several) goes behind the others; who waits
 * keeps its place, so that it is next whenever there is something. While it waits for tokens, for
 * the others no turn passes. */
static bool had_its_turn(struct rtenant *rt, struct session *s, int d)
{
	if (s->spent[d] < DRR_QUANTUM)
		return false;
	s->spent[d] -= DRR_QUANTUM;
	list_del(&s->link_active[d]);
	list_add_tail(&rt->active[d], &s->link_active[d]);
	return true;
}

/* One turn of a tenant's sessions. True in *more when only the deficit stopped it, or that each had
 * had its quantum. */
static uint32_t serve_direction(struct rtenant *rt, int d, bool *more)
{
	uint32_t n = 0, sessions = 0;
	bool short_of = false;
	struct session *s, *next;

	rt->dry = 0;
	list_for_each (&rt->active[d], s, link_active[d])
		sessions++;
	if (sessions == 1) /* with nobody to take turns with */
		list_first(&rt->active[d], struct session, link_active[d])->spent[d] = 0;
	list_for_each_safe (&rt->active[d], s, next, link_active[d]) {
		if (!sessions-- || short_of)
			break;
		n += serve_session(s, d, &short_of);
		if (list_empty(&s->queue[d]))
			list_del(&s->link_active[d]);
		else if (!rt->dry && had_its_turn(rt, s, d))
			*more = true;
	}
	*more |= short_of;
	return n;
}

static uint32_t serve(struct rtenant *rt, bool *more)
{
	rt->deficit = MIN(rt->deficit + DRR_QUANTUM, DEFICIT_MAX);
	return serve_direction(rt, 0, more) + serve_direction(rt, 1, more);
}

uint32_t admit_run(struct reactor *r)
{
	uint32_t n = 0;
	bool more;

	r->wait_at_ns = UINT64_MAX;
	if (list_empty(&r->active))
		return 0;
	reactor_engines_look(r);
	do {
		struct rtenant *rt, *tmp;

		more = false;
		list_for_each_safe (&r->active, rt, tmp, link) {
			n += serve(rt, &more);
			if (is_active(rt))
				continue;
			rt->deficit = 0; /* an idle tenant saves nothing up */
			list_del(&rt->link);
		}
	} while (more);
	/* Who was first is last the next time: what comes free one by one goes round. */
	if (!list_empty(&r->active)) {
		struct list *first = r->active.next;

		list_del(first);
		list_add_tail(&r->active, first);
	}
	return n;
}

static enum ros2_status may_submit(struct request *req, uint64_t now_ns)
{
	enum ros2_status st =
		DP_SWITCH(no_deadline_recheck) ? ROS2_OK : session_rights(req->s, now_ns);

	if (st == ROS2_OK)
		return request_hold_lease(req, now_ns);
	/* Ends all of its requests, this one too. */
	session_end(req->s, st, NULL);
	return st;
}

/* What an engine that lends makes keys over. */
static struct fabric_region *region_of(const struct dp_engine *e, const struct request *req)
{
	if (!e->lends || !req->slot.mem)
		return NULL;
	return req->piece ? req->piece->region : verbs_lent_region(req->s, &req->slot);
}

static int submit(struct reactor *r, struct request *req)
{
	static const enum engine_op ops[] = {[REQUEST_READ] = ENGINE_OP_READ,
	                                     [REQUEST_WRITE] = ENGINE_OP_WRITE,
	                                     [REQUEST_FLUSH] = ENGINE_OP_FLUSH,
	                                     [REQUEST_ZERO] = ENGINE_OP_ZERO,
	                                     [REQUEST_DISCARD] = ENGINE_OP_DISCARD};
	struct dp_engine *e = req->file->mount->engine;
	struct rengine *re = &r->engines[e->slot];

	req->io.file = req->file->file;
	req->io.op = ops[req->op];
	req->io.offset = req->op == REQUEST_FLUSH ? 0 : req->offset;
	req->io.len = req->length;
	req->io.buf = req->slot.mem;
	req->io.buf_index =
		req->slot.mem && !request_borrows(req) ? slots_buf_index(req->from->pool) : -1;
	req->io.tenant_memory = request_borrows(req);
	req->io.region = region_of(e, req);
	req->io.done = request_engine_done;
	req->io.unneeded = request_engine_unneeded;
	req->io.may_return = !DP_SWITCH(no_lost_share);
	req->io.until_ns = request_until(req);
	req->io.asked_ns = req->begun_ns;
	req->io.may_lend = req->op == REQUEST_READ && req->s->transport->takes_parts;
	re->kick = true;
	return e->ops->submit(re->er, &req->io);
}

/* It leaves without having been with the engine: whoever stood by for it goes next. */
static void refuse(struct request *req, enum ros2_status st)
{
	struct reactor *r = req->s->r;
	struct dp_file *f = req->file;

	dp_file_ref(f);
	request_reply(req, st);
	flush_next(r, f);
	dp_file_unref(f);
}

uint32_t admit_submit(struct reactor *r)
{
	uint64_t now_ns = list_empty(&r->ready) ? 0 : clock_boottime_ns();
	uint32_t n = 0;

	while (!list_empty(&r->ready)) {
		struct request *req = list_first(&r->ready, struct request, link);
		struct session *s = req->s;
		enum ros2_status st;
		int rc;

		if (flush_stands_by(req))
			continue;
		st = may_submit(req, now_ns);
		if (s->state == SESSION_ENDED)
			continue;
		if (st != ROS2_OK) {
			refuse(req, st);
			continue;
		}
		rc = submit(r, req);
		if (rc == -EAGAIN)
			break;
		if (rc < 0) {
			refuse(req, ROS2_IO);
			continue;
		}
		list_del(&req->link);
		req->state = REQUEST_ENGINE;
		flush_given(req);
		s->n_engine++;
		r->n_engine++;
		n++;
		if (r->n_engine != FIRST_KICK && r->n_engine != SECOND_KICK)
			continue;
		/* A process that was stopped in this system call gives the others nothing by the
		 * time before it. */
		reactor_engines_kick(r);
		now_ns = clock_boottime_ns();
	}
	reactor_engines_kick(r);
	return n;
}
