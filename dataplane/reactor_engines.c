/* SPDX-License-Identifier: Apache-2.0 */
/* Engines at one reactor: made on first use, kicked once per turn, polled while something is in
 * flight, dropped when empty. */
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <sys/epoll.h>

#define POLL_MAX 256u

static int watch(struct reactor *r, struct rengine *re)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &re->source};

	re->source.kind = SOURCE_ENGINE;
	re->event_fd = re->engine->ops->event_fd(re->er);
	if (re->event_fd >= 0 && epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, re->event_fd, &ev) < 0)
		return -errno;
	return 0;
}

static int make(const struct reactor *r, const struct dp_engine *e, struct engine_reactor **ret,
                struct ros2_err *err)
{
	struct iovec memory = slots_memory(r->slots);
	struct engine_reactor_opts o = {.depth = REACTOR_ENGINE_DEPTH,
	                                .tenant_depth = REACTOR_ENGINE_TENANT,
	                                .buffers = &memory,
	                                .n_buffers = 1,
	                                .io_workers = r->dp->io_workers};

	return e->ops->reactor_new(e->engine, &o, ret, err);
}

int reactor_engine_ready(const struct reactor *r, struct dp_engine *e, struct ros2_err *err)
{
	struct dp_engine_at *at = &e->at[r->index];
	struct engine_reactor *er;
	int rc = 0;

	if (!e->ops->reactor_new_is_slow)
		return 0;
	pthread_mutex_lock(&e->ready_lock);
	if (!at->made) {
		rc = make(r, e, &er, err);
		if (rc == 0)
			atomic_store(&at->ready, er);
		at->made = rc == 0;
	}
	pthread_mutex_unlock(&e->ready_lock);
	return rc;
}

int reactor_engine_use(struct reactor *r, struct dp_engine *e, struct ros2_err *err)
{
	struct rengine *re = &r->engines[e->slot];
	int rc = 0;

	if (re->engine == e)
		return 0;
	re->er = atomic_exchange(&e->at[r->index].ready, NULL);
	if (!re->er)
		rc = make(r, e, &re->er, err);
	if (rc < 0)
		return rc;
	re->engine = e;
	r->engines_here |= 1u << e->slot;
	re->copied_seen = 0;
	depth_least_begin(&re->least);
	re->kick = re->readable = false;
	rc = watch(r, re);
	if (rc < 0) {
		re->event_fd = -1;
		reactor_engine_drop(r, e->slot);
		return ros2_err_set(err, rc, "cannot watch the engine's descriptor");
	}
	return 0;
}

void reactor_engine_drop(struct reactor *r, uint32_t slot)
{
	struct rengine *re = &r->engines[slot];

	if (!re->engine)
		return;
	if (re->event_fd >= 0)
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, re->event_fd, NULL);
	re->engine->ops->reactor_free(re->er);
	r->engines_here &= ~(1u << slot);
	re->engine = NULL;
	re->er = NULL;
}

void reactor_engine_withdraw(struct reactor *r, const struct dp_engine *e, struct engine_io *io)
{
	if (!e->ops->withdraw)
		return;
	e->ops->withdraw(r->engines[e->slot].er, io);
	r->again = true;
}

uint32_t reactor_engine_end_keys(struct reactor *r, const struct dp_engine *e, struct engine_io *io)
{
	return e->ops->end_keys ? e->ops->end_keys(r->engines[e->slot].er, io) : 0;
}

uint32_t reactor_engines_forget(struct reactor *r, const struct fabric_pd *pd)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct rengine *re = &r->engines[i];

		if (re->engine && re->engine->ops->forget_regions)
			n += re->engine->ops->forget_regions(re->er, pd);
	}
	return n;
}

uint32_t reactor_engines_ending(const struct reactor *r, const struct fabric_pd *pd,
                                uint64_t until_ns, uint64_t *ret_last_ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct rengine *re = &r->engines[i];

		if (re->engine && re->engine->ops->keys_ending)
			n += re->engine->ops->keys_ending(re->er, pd, until_ns, ret_last_ns);
	}
	return n;
}

void reactor_engines_look(struct reactor *r)
{
	r->n_parked = r->n_sent_away = 0;
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct rengine *re = &r->engines[i];

		if (re->engine && re->engine->ops->parked && !DP_SWITCH(no_lost_share))
			r->n_parked += re->engine->ops->parked(re->er);
	}
}

static void share_of(struct reactor *r, struct rtenant *rt)
{
	if (rt->shared_at_ns == r->now_ns)
		return; /* by another of its sessions */
	rt->shared_at_ns = r->now_ns;
	for (uint32_t here = r->engines_here; here; here &= here - 1) {
		int i = __builtin_ctz(here);

		depth_least_add(&r->engines[i].least, &rt->at[i]);
	}
}

void reactor_engines_share(struct reactor *r)
{
	for (uint32_t here = r->engines_here; here; here &= here - 1)
		depth_least_begin(&r->engines[__builtin_ctz(here)].least);
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++)
		if (r->sessions[i])
			share_of(r, r->sessions[i]->rt);
}

void reactor_run_engine_drop(struct reactor *r, struct dp_op *op)
{
	reactor_engine_drop(r, op->engine->slot);
	dp_op_back(op);
}

void reactor_engines_kick(struct reactor *r)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		struct rengine *re = &r->engines[i];

		if (!re->engine || !re->kick)
			continue;
		/* What could not be handed on stays with the engine and is handed on by the next
		 * kick. */
		re->kick = re->engine->ops->kick(re->er) < 0;
	}
}

uint32_t reactor_engines_poll(struct reactor *r)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		struct rengine *re = &r->engines[i];

		/* Also with nothing in flight: a wake-up may come after what it was for, and only
		 * poll takes it back. Left there, the descriptor would wake us for ever. */
		if (re->engine && (re->event_fd >= 0 || re->engine->ops->in_flight(re->er)))
			n += re->engine->ops->poll(re->er, POLL_MAX);
	}
	return n;
}

bool reactor_engines_must_poll(const struct reactor *r)
{
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		const struct rengine *re = &r->engines[i];

		if (re->engine && (re->event_fd < 0 || re->kick) &&
		    re->engine->ops->in_flight(re->er))
			return true;
	}
	return false;
}
