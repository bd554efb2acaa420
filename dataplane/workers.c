/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control workers: threads that may block in an engine. First come, first served, but one tenant
 * has at most half of them at work, and who has one already leaves half of them to tenants that
 * have none: as many tenants as that get one whatever is slow for the others. Nor do calls that may
 * wait for storage that does not answer have more than half of them together, however many tenants
 * make them. Where there are several engines each has at most half, which its tenants share out in
 * the same way, and leaves a worker to each that has none (to half as many as there are workers): a
 * file system that hangs does not say so, and who uses another does not notice.
 *
 * What is closed is its tenant's work, too (the last close of a large file that was unlinked frees
 * it): nobody waits for it, and a session's end brings hundreds, so it has queues of its own, one
 * for each tenant at an engine, which take turns, and take turns with the calls; and of three
 * workers or more it has half (at least two), shared out likewise, so that no number of tenants
 * with slow closes keeps the calls.
 */
#include "common/clock.h"
#include "common/share.h"
#include "dataplane/dp_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <pthread.h>
#include <string.h>

#define WORKERS_MAX   64u
#define LOOK_AGAIN_NS (100 * NS_PER_MS)

struct worker {
	struct workers *w; /* immutable, like the thread */
	pthread_t thread;
	/* guarded by w->lock */
	struct dp_op *running; /* borrowed: while at work */
	uint64_t since_ns;
};

struct workers {
	/* immutable after init */
	struct dp *dp;
	uint32_t n, for_lost;
	struct share all, closes;
	struct worker threads[WORKERS_MAX];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* guarded by lock */
	uint32_t n_engines;
	struct list calls;
	struct list closings; /* of each owner the first at an engine; by op.behind its others */
	bool closing_next;
	bool lost_waits;                      /* a call is left out for what its storage was */
	uint32_t waiting[DP_ENGINES_MAX + 1]; /* by slot; the last: at none */
	bool stop;
};

/* Compared only. NULL: nobody's. */
static const struct dp_tenant *whose(const struct dp_op *op)
{
	return op->tenant ? op->tenant : op->closes_of;
}

static bool of_tenant(const struct dp_op *running, const struct dp_op *op)
{
	return whose(op) && whose(running) == whose(op);
}

/* How many are at work: all, of one tenant, at one engine, and of that tenant there. */
struct at_work {
	uint32_t used, of_tenant, at_engine, there;
	uint32_t engines; /* those that have some, by slot */
};

static uint32_t slot_of(const struct dp_op *op)
{
	return op->engine ? op->engine->slot : DP_ENGINES_MAX;
}

/* Lock held. Of @op's tenant and engine, which stay while a call is under way; it has none (NULL)
 * that is of memory, or closes what several have left. */
static struct at_work count(const struct workers *w, const struct dp_op *op, bool closings_only)
{
	const struct dp_engine *e = op->engine;
	struct at_work n = {0};

	for (uint32_t i = 0; i < w->n; i++) {
		const struct dp_op *o = w->threads[i].running;

		if (!o || (closings_only && !o->closing))
			continue;
		n.used++;
		n.of_tenant += of_tenant(o, op);
		n.at_engine += e && o->engine == e;
		n.there += e && o->engine == e && of_tenant(o, op);
		n.engines |= o->engine ? 1u << o->engine->slot : 0;
	}
	return n;
}

static struct share halves_of(uint32_t n)
{
	return (struct share){.total = n, .most = MAX(n / 2, 1u), .sure = 1, .kept = n / 2};
}

/* Lock held. An engine has half of @total at most, and a second one only where each that has none
 * can still get one (half of @total are kept for that at most); of its part the tenants have
 * theirs. One engine has nobody to leave workers to. */
static bool engine_allows(const struct workers *w, uint32_t total, const struct at_work *n,
                          const struct dp_engine *e)
{
	struct share of_engines = halves_of(total), part = halves_of(of_engines.most);
	uint32_t busy;

	if (!e || w->n_engines < 2 || DP_SWITCH(no_engine_share))
		return true;
	busy = (uint32_t)__builtin_popcount(n->engines | 1u << e->slot);
	of_engines.kept = MIN(of_engines.kept, w->n_engines - MIN(busy, w->n_engines));
	return share_allows(&of_engines, n->at_engine, n->used) &&
	       share_allows(&part, n->there, n->at_engine);
}

/* Lock held. */
static bool allows(const struct workers *w, const struct share *share, const struct dp_op *op,
                   bool closings_only)
{
	struct at_work n = count(w, op, closings_only);

	return share_allows(share, n.of_tenant, n.used) &&
	       engine_allows(w, share->total, &n, op->engine);
}

/* Lock held. Its tenant has as many at work as it may now, or its engine; or what is closed has. */
static bool at_its_limit(const struct workers *w, const struct dp_op *op)
{
	if (!allows(w, &w->all, op, false))
		return true;
	return op->closing && !DP_SWITCH(no_closes_share) && !allows(w, &w->closes, op, true);
}

static bool is_lost(const struct dp_op *op)
{
	const struct dp_engine *e = op->engine;

	return e && op->tenant && e->ops->lost && !DP_SWITCH(no_lost_share) &&
	       e->ops->lost(e->engine, &op->tenant->uid);
}

/* Lock held. NULL: at any. */
static uint32_t running_lost(const struct workers *w, const struct dp_engine *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->n; i++) {
		const struct dp_op *o = w->threads[i].running;

		n += o && (!e || o->engine == e) && is_lost(o);
	}
	return n;
}

/* Lock held. Of an engine's part they have half, likewise. */
static bool waits_for_lost(const struct workers *w, const struct dp_op *op)
{
	bool shared = w->n_engines > 1 && !DP_SWITCH(no_engine_share);

	return is_lost(op) && (running_lost(w, NULL) >= w->for_lost ||
	                       (shared && running_lost(w, op->engine) >= MAX(w->for_lost / 2, 1u)));
}

/* Lock held. The first whose tenant has a worker left. */
static struct dp_op *pick_call(struct workers *w)
{
	struct dp_op *op;

	w->lost_waits = false;
	list_for_each (&w->calls, op, job) {
		if (at_its_limit(w, op))
			continue;
		if (!waits_for_lost(w, op))
			return op;
		w->lost_waits = true;
	}
	return NULL;
}

/* Lock held. The first of the owner whose turn it is, of those that have a worker left. */
static struct dp_op *pick_closing(const struct workers *w)
{
	struct dp_op *op;

	list_for_each (&w->closings, op, job)
		if (!at_its_limit(w, op))
			return op;
	return NULL;
}

/* Lock held. */
static void put_closing(struct workers *w, struct dp_op *op)
{
	struct dp_op *first;

	list_init(&op->behind);
	list_for_each (&w->closings, first, job)
		if (whose(first) == whose(op) && first->engine == op->engine) {
			list_add_tail(&first->behind, &op->behind);
			return;
		}
	list_add_tail(&w->closings, &op->job);
}

/* Lock held. Its owner's next one stands where its last turn ends: behind the other owners. */
static void take_closing(struct workers *w, struct dp_op *op)
{
	struct dp_op *next =
		list_empty(&op->behind) ? NULL : list_first(&op->behind, struct dp_op, behind);

	list_del(&op->job);
	list_del(&op->behind);
	if (next)
		list_add_tail(&w->closings, &next->job);
}

/* Lock held. A call and a closing by turns, where there are both. */
static struct dp_op *pick(struct workers *w)
{
	struct dp_op *closing = pick_closing(w);
	struct dp_op *call = closing && w->closing_next ? NULL : pick_call(w);
	struct dp_op *op = call ? call : closing;

	if (!op)
		return NULL;
	w->waiting[slot_of(op)]--;
	w->closing_next = op == call;
	if (op == call)
		list_del(&op->job);
	else
		take_closing(w, op);
	return op;
}

/* It may have waited long, or the whole process was stopped: looked at right before it begins. */
static void carry_out(struct dp_op *op)
{
	const struct dp_session *ds = op->ds;
	enum ros2_status st = ds ? dp_rights_now(op->dp, ds->tenant, ds->grant,
	                                         ds->cert_deadline_ns, clock_boottime_ns())
	                         : ROS2_OK;

	if (st == ROS2_OK)
		op->work(op);
	else
		dp_op_set(op, st, "%s", ros2_status_text(st));
}

/* Lock held. Nobody says when storage is back. */
static void wait_for_work(struct workers *w)
{
	struct timespec ts;
	uint64_t at;

	if (!w->lost_waits || DP_SWITCH(no_look_again)) {
		pthread_cond_wait(&w->cond, &w->lock);
		return;
	}
	at = clock_monotonic_ns() + LOOK_AGAIN_NS;
	ts = (struct timespec){(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
	pthread_cond_timedwait(&w->cond, &w->lock, &ts);
}

static void *worker_main(void *arg)
{
	struct worker *me = arg;
	struct workers *w = me->w;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		struct dp_op *op = pick(w);

		if (!op) {
			wait_for_work(w);
			continue;
		}
		op->stage = OP_WORKER;
		me->running = op;
		me->since_ns = clock_monotonic_ns();
		pthread_mutex_unlock(&w->lock);
		carry_out(op);
		pthread_mutex_lock(&w->lock);
		me->running = NULL;
		/* After it left running, so that a revocation that sees its end sees it gone. */
		dp_op_back(op);
		pthread_cond_broadcast(&w->cond);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void init_cond(pthread_cond_t *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(c, &a);
	pthread_condattr_destroy(&a);
}

int workers_new(struct dp *dp, uint32_t n, struct workers **ret)
{
	struct workers *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->dp = dp;
	list_init(&w->calls);
	list_init(&w->closings);
	pthread_mutex_init(&w->lock, NULL);
	init_cond(&w->cond);
	n = MIN(n, WORKERS_MAX);
	w->for_lost = MAX(n / 2, 1u);
	w->all = halves_of(n);
	w->closes = halves_of(n > 3 ? n / 2 : MIN(n, 2u));
	for (uint32_t i = 0; i < n; i++) {
		int rc;

		w->threads[i].w = w;
		pthread_mutex_lock(&w->lock);
		rc = pthread_create(&w->threads[i].thread, NULL, worker_main, &w->threads[i]);
		w->n += rc == 0;
		pthread_mutex_unlock(&w->lock);
		if (rc) {
			workers_stop(w);
			workers_free(w);
			return -rc;
		}
		pthread_setname_np(w->threads[i].thread, "control");
	}
	*ret = w;
	return 0;
}

/* Of storage, and nobody waits for it, unlike for what is made for a session. Memory that is given
 * back is none: no storage keeps that, and its tenant may wait for the room. */
static bool is_closing(const struct dp_op *op)
{
	return !op->tenant && !op->ds && (op->efile || op->ns || op->file_chain || op->mount_chain);
}

void workers_put(struct workers *w, struct dp_op *op)
{
	op->closing = is_closing(op); /* what it is told by is taken from it when it begins */
	pthread_mutex_lock(&w->lock);
	op->stage = OP_QUEUED;
	w->waiting[slot_of(op)]++;
	/* What somebody waits for is not behind what another tenant has to close. */
	if (op->closing)
		put_closing(w, op);
	else
		list_add_tail(&w->calls, &op->job);
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

/* Lock held. It has left its queue. */
static void give_back(struct workers *w, struct dp_op *op, enum ros2_status why)
{
	w->waiting[slot_of(op)]--;
	op->cancelled = true;
	dp_op_set(op, why, "withdrawn before it began");
	dp_op_back(op);
}

/* Lock held. */
static void give_back_calls(struct workers *w, bool (*match)(const struct dp_op *op),
                            enum ros2_status why)
{
	struct dp_op *op, *tmp;

	list_for_each_safe (&w->calls, op, tmp, job) {
		if (!match(op))
			continue;
		list_del(&op->job);
		give_back(w, op, why);
	}
}

/* Lock held. */
static void give_back_closings(struct workers *w)
{
	while (!list_empty(&w->closings)) {
		struct dp_op *op = list_first(&w->closings, struct dp_op, job);

		take_closing(w, op);
		give_back(w, op, ROS2_CANCELLED);
	}
}

static bool of_ended_session(const struct dp_op *op)
{
	return op->ds && op->ds->ended;
}

void workers_engines(struct workers *w, uint32_t n)
{
	pthread_mutex_lock(&w->lock);
	w->n_engines = n;
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

void workers_cancel(struct workers *w)
{
	pthread_mutex_lock(&w->lock);
	give_back_calls(w, of_ended_session, ROS2_CLOSED);
	pthread_mutex_unlock(&w->lock);
}

static bool any(const struct dp_op *op)
{
	return true;
}

uint32_t workers_running(struct workers *w, bool (*match)(const struct dp_op *op, void *arg),
                         void *arg)
{
	uint32_t n = 0;

	pthread_mutex_lock(&w->lock);
	for (uint32_t i = 0; i < w->n; i++)
		n += w->threads[i].running && match(w->threads[i].running, arg);
	pthread_mutex_unlock(&w->lock);
	return n;
}

void workers_load(struct workers *w, struct dp_control_load ret[DP_ENGINES_MAX + 1])
{
	uint64_t now;

	memset(ret, 0, (DP_ENGINES_MAX + 1) * sizeof(*ret));
	pthread_mutex_lock(&w->lock);
	now = clock_monotonic_ns();
	for (uint32_t i = 0; i <= DP_ENGINES_MAX; i++)
		ret[i].waiting = w->waiting[i];
	for (uint32_t i = 0; i < w->n; i++) {
		const struct worker *t = &w->threads[i];
		struct dp_control_load *l = t->running ? &ret[slot_of(t->running)] : NULL;

		if (!l)
			continue;
		l->inside++;
		l->oldest_ns = MAX(l->oldest_ns, now - t->since_ns);
	}
	pthread_mutex_unlock(&w->lock);
}

void workers_stop(struct workers *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	give_back_calls(w, any, ROS2_CANCELLED);
	give_back_closings(w);
	pthread_cond_broadcast(&w->cond);
	pthread_mutex_unlock(&w->lock);
	for (uint32_t i = 0; i < w->n; i++)
		pthread_join(w->threads[i].thread, NULL);
}

void workers_free(struct workers *w)
{
	if (!w)
		return;
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->cond);
	free(w);
}
