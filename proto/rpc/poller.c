/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that polls one completion queue and calls the tags. It must never block on a loop or
 * run domain code: a server is torn down by its loop thread waiting for this one.
 */
#define LOG_COMPONENT "grpc"
#include "common/clock.h"
#include "common/log.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SOON_MS 5

void rpc_tag_handed_over(struct rpc_tag *tag)
{
	rpc_tsan_release(tag);
}

void rpc_poller_later(struct rpc_poller *p, struct rpc_later *later)
{
	if (list_empty(&later->link))
		list_add_tail(&p->later, &later->link);
}

static void run_later(struct rpc_poller *p)
{
	while (!list_empty(&p->later)) {
		struct rpc_later *l = list_first(&p->later, struct rpc_later, link);

		list_del(&l->link);
		l->fn(l);
	}
}

static gpr_timespec wait_until(const struct rpc_poller *p, uint32_t ms)
{
	if (!list_empty(&p->later))
		return gpr_inf_past(GPR_CLOCK_MONOTONIC);
	return ms ? rpc_deadline_in_ms(ms) : gpr_inf_future(GPR_CLOCK_MONOTONIC);
}

/* ---- polling ---- */

/* What is in the queue comes first: only who finds nothing there has handled everything. */
static grpc_event next_event(struct rpc_poller *p)
{
	grpc_event ev;
	bool soon;

	if (!p->idle)
		return grpc_completion_queue_next(p->cq, wait_until(p, p->tick_ms), NULL);
	ev = grpc_completion_queue_next(p->cq, gpr_inf_past(GPR_CLOCK_MONOTONIC), NULL);
	if (ev.type != GRPC_QUEUE_TIMEOUT || !list_empty(&p->later))
		return ev;
	soon = p->idle(p->arg, true);
	ev = grpc_completion_queue_next(p->cq, wait_until(p, soon ? SOON_MS : p->tick_ms), NULL);
	p->idle(p->arg, false);
	return ev;
}

static void *poll_main(void *arg)
{
	struct rpc_poller *p = arg;
	uint64_t next_tick = clock_boottime_ns() + p->tick_ms * NS_PER_MS;
	struct rpc_tag *tag;
	unsigned events = 0;
	grpc_event ev;

	for (;;) {
		ev = next_event(p);
		if (ev.type == GRPC_OP_COMPLETE) {
			tag = ev.tag;
			rpc_tsan_acquire(tag);
			tag->fn(tag, ev.success);
		}
		if (ev.type != GRPC_OP_COMPLETE || ++events >= RPC_LATER_EVENTS) {
			events = 0;
			run_later(p);
		}
		if (ev.type == GRPC_QUEUE_SHUTDOWN)
			return NULL;
		if (p->tick_ms && clock_boottime_ns() >= next_tick) {
			p->tick(p->arg);
			next_tick = clock_boottime_ns() + p->tick_ms * NS_PER_MS;
		}
	}
}

int rpc_poller_start(struct rpc_poller *p, const char *name, uint32_t tick_ms,
                     void (*tick)(void *arg), void *arg)
{
	RPC_BLOCKS_SIGNALS; /* they belong to the loop */
	int rc;

	list_init(&p->later);
	p->tick_ms = tick_ms;
	p->tick = tick;
	p->arg = arg;
	snprintf(p->name, sizeof(p->name), "rpc-%s", name);
	rc = pthread_create(&p->thread, NULL, poll_main, p);
	if (rc)
		return -rc;
	pthread_setname_np(p->thread, p->name);
	p->running = true;
	return 0;
}

void rpc_poller_stop(struct rpc_poller *p)
{
	if (!p->cq)
		return;
	grpc_completion_queue_shutdown(p->cq);
	if (p->running) {
		pthread_join(p->thread, NULL);
	} else {
		/* Never started: nothing was ever queued beyond the shutdown itself. */
		while (grpc_completion_queue_next(p->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL)
		               .type != GRPC_QUEUE_SHUTDOWN)
			;
	}
	p->running = false;
	grpc_completion_queue_destroy(p->cq);
	p->cq = NULL;
}

uint64_t rpc_deadline_ns(gpr_timespec deadline)
{
	gpr_timespec left;

	deadline = gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC);
	if (!gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)))
		return UINT64_MAX;
	left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC));
	if (left.tv_sec < 0)
		return clock_boottime_ns();
	if (left.tv_sec > INT64_C(1000000000))
		return UINT64_MAX;
	return clock_add_ns(clock_boottime_ns(),
	                    (uint64_t)left.tv_sec * NS_PER_S + (uint64_t)left.tv_nsec);
}

gpr_timespec rpc_deadline_in_ms(uint32_t ms)
{
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

bool rpc_batch(grpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
	grpc_call_error e;

	rpc_tag_handed_over(tag);
	e = grpc_call_start_batch(call, ops, n, tag, NULL);
	if (e != GRPC_CALL_OK)
		log_error("grpc_call_start_batch: %s", grpc_call_error_to_string(e));
	return e == GRPC_CALL_OK;
}

grpc_arg rpc_int_arg(const char *key, size_t value)
{
	grpc_arg a = {.type = GRPC_ARG_INTEGER, .key = (char *)key};

	a.value.integer = (int)MIN(value, (size_t)INT32_MAX);
	return a;
}
