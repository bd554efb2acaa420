/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A withdrawal at one reactor. 1. Sessions that are meant end: nothing of theirs is handed on any
 * more. 2. Keys that storage targets hold for what they have inside engines end, answered or not,
 * and so do idle ones over the tenant's memory. 3. The device confirms, or the ladder of
 * dataplane/fabric does it by stronger means: the answer waits for that, this reactor for nothing.
 * 4. The answer. What is inside engines still is `draining`.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"

static bool in_scope(const struct session *s, const struct dp_op *op)
{
	switch (op->scope) {
	case DP_SCOPE_ALL:
		return true;
	case DP_SCOPE_TENANT:
		return s->tenant == op->of_tenant;
	case DP_SCOPE_GRANT:
		return s->grant == op->of_grant;
	case DP_SCOPE_SESSION:
		return s == op->of_session;
	}
	return false;
}

static uint64_t latest(uint64_t so_far, uint64_t at, uint64_t since)
{
	return at >= since ? MAX(so_far, at) : so_far;
}

static void end_one(struct session *s, struct dp_op *op)
{
	if (DP_SWITCH(no_session_end))
		return;
	if (s->state != SESSION_ENDED) {
		session_end(s, op->why, NULL);
		op->res.revoke.sessions++;
		op->res.revoke.leases += s->leases_ended;
	} else {
		/* It ended before, and has something inside an engine still. */
		s->keys_ended = 0;
		session_end_keys(s);
	}
	op->res.revoke.windows += s->keys_ended;
	op->res.revoke.draining += session_held(s);
	op->res.revoke.last_byte_ns =
		latest(op->res.revoke.last_byte_ns, s->last_send_ns, op->received_ns);
	op->res.revoke.last_engine_ns =
		latest(op->res.revoke.last_engine_ns, s->last_engine_ns, op->received_ns);
}

/* How many of them the device may honour yet. */
static uint32_t keys_alive(const struct reactor *r, struct dp_op *op)
{
	uint64_t last_ns = 0;
	uint32_t n;

	if (!op->of_pd && op->scope != DP_SCOPE_ALL)
		return 0; /* nothing of the tenant was ever lent, or nothing is any more */
	n = reactor_engines_ending(r, op->of_pd, op->keys_ended_ns, &last_ns);
	if (n && !DP_SWITCH(no_key_wait))
		return n;
	if (!op->res.revoke.windows)
		return 0;
	/* A queue that went meanwhile took its times along: not later than now. */
	op->res.revoke.last_window_ns = latest(0, last_ns, op->received_ns);
	if (!op->res.revoke.last_window_ns)
		op->res.revoke.last_window_ns = clock_boottime_ns();
	return 0;
}

static void wait_for_devices(struct reactor *r, struct dp_op *op)
{
	op->next = r->revokes;
	r->revokes = op;
}

void session_run_revoke(struct reactor *r, struct dp_op *op)
{
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++)
		if (r->sessions[i] && in_scope(r->sessions[i], op))
			end_one(r->sessions[i], op);
	/* No target keeps a key from before it, but for what other rights of the tenant are using:
	 * that ends with its command. */
	if ((op->of_pd || op->scope == DP_SCOPE_ALL) && !DP_SWITCH(no_key_end))
		op->res.revoke.windows += reactor_engines_forget(r, op->of_pd);
	if (op->scope == DP_SCOPE_ALL || (op->scope == DP_SCOPE_TENANT && op->of_pd))
		verbs_forget_pd(r, op->of_pd);
	op->keys_ended_ns = clock_boottime_ns();
	op->keys_alive = keys_alive(r, op);
	/* Of everything: what has ended is told before what is waited for, see dp_revoke.c. */
	if (!op->keys_alive || op->scope == DP_SCOPE_ALL)
		dp_op_back(op);
	else
		wait_for_devices(r, op);
}

void session_run_keys(struct reactor *r, struct dp_op *op)
{
	if (keys_alive(r, op))
		wait_for_devices(r, op);
	else
		dp_op_back(op);
}

static void answer(struct reactor *r, bool all)
{
	struct dp_op *waiting = r->revokes;

	r->revokes = NULL;
	while (waiting) {
		struct dp_op *op = waiting;

		waiting = op->next;
		if (all || !keys_alive(r, op))
			dp_op_back(op);
		else
			wait_for_devices(r, op);
	}
}

void session_revokes_check(struct reactor *r)
{
	if (r->revokes)
		answer(r, false);
}

void session_revokes_drop(struct reactor *r)
{
	answer(r, true);
}
