/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a session's reactor tells the loop, turned into events for the agent. Runs on the loop.
 * Reads of the reactor's half only what is atomic, what was posted, or, after the end, what the
 * reactor no longer touches.
 */
#include "common/clock.h"
#include "dataplane/session_priv.h"
#include <stdio.h>
#include <string.h>

static struct dp_event event_of(const struct session *s, enum dp_event_type type,
                                enum ros2_status status)
{
	struct dp_event ev = {.type = type, .status = status, .count = 1};

	ev.session = s->uid;
	ev.tenant = s->ds->tenant->uid;
	ev.grant = s->ds->grant->uid;
	ev.first_unix_ns = ev.last_unix_ns = clock_unix_ns();
	return ev;
}

static void emit(const struct dp *dp, const struct dp_event *ev)
{
	if (dp->opts.on_event)
		dp->opts.on_event(dp->opts.arg, ev);
}

void session_stats(const struct session *s, struct dp_session_stats *ret)
{
	struct session *c = (struct session *)
		s; /* atomic_load takes no const in gnu17 of gcc 12 with _Atomic members */

	*ret = (struct dp_session_stats){
		.read_bytes = atomic_load_explicit(&c->stats.read_bytes, memory_order_relaxed),
		.write_bytes = atomic_load_explicit(&c->stats.write_bytes, memory_order_relaxed),
		.read_ops = atomic_load_explicit(&c->stats.read_ops, memory_order_relaxed),
		.write_ops = atomic_load_explicit(&c->stats.write_ops, memory_order_relaxed),
		.cleared_bytes =
			atomic_load_explicit(&c->stats.cleared_bytes, memory_order_relaxed),
		.clear_ops = atomic_load_explicit(&c->stats.clear_ops, memory_order_relaxed),
		.violations = atomic_load_explicit(&c->stats.violations, memory_order_relaxed),
		.copied_bytes = atomic_load_explicit(&c->stats.copied_bytes, memory_order_relaxed),
		.shaped_ns = atomic_load_explicit(&c->stats.shaped_ns, memory_order_relaxed),
		.regions = atomic_load_explicit(&c->stats.regions, memory_order_relaxed),
		.handles = atomic_load_explicit(&c->stats.handles, memory_order_relaxed),
		.in_flight = atomic_load_explicit(&c->stats.in_flight, memory_order_relaxed),
		.connected = atomic_load_explicit(&c->stats.connected, memory_order_relaxed),
	};
}

static void emit_violations(const struct session *s, const struct violations *v)
{
	for (uint32_t i = 0; i < SESSION_VIOLATION_KINDS; i++) {
		struct dp_event ev = event_of(s, DP_EVENT_VIOLATION, v[i].status);

		if (!v[i].count)
			continue;
		ev.count = v[i].count;
		ev.first_unix_ns = v[i].first_unix_ns;
		ev.last_unix_ns = v[i].last_unix_ns;
		session_stats(s, &ev.stats);
		snprintf(ev.words, sizeof(ev.words), "%s", v[i].words);
		emit(s->dp, &ev);
	}
}

void session_on_connected(struct dp_post *p)
{
	struct session *s = container_of(p, struct session, connected_post);
	struct dp_event ev = event_of(s, DP_EVENT_CONNECTED, ROS2_OK);

	session_stats(s, &ev.stats);
	snprintf(ev.words, sizeof(ev.words), "%s", s->peer);
	emit(s->dp, &ev);
}

void session_on_violations(struct dp_post *p)
{
	struct session *s = container_of(p, struct session, violations_post);

	emit_violations(s, s->violations_out);
	atomic_store_explicit(&s->violations_posted, false, memory_order_release);
}

void session_on_ended(struct dp_post *p)
{
	struct session *s = container_of(p, struct session, ended_post);
	struct dp_event ev = event_of(s, DP_EVENT_SESSION_ENDED, s->end_status);
	size_t n;

	/* Posts keep their order, so what was posted before has been told; this is the rest. */
	emit_violations(s, s->violations);
	session_stats(s, &ev.stats);
	snprintf(ev.words, sizeof(ev.words), "%s", s->end_words);
	n = strlen(ev.words);
	if (s->transport->end_more)
		s->transport->end_more(s, ev.words + n, sizeof(ev.words) - n);
	dp_session_ended(s->ds);
	emit(s->dp, &ev);
}

void session_on_gone(struct dp_post *p)
{
	dp_session_gone(container_of(p, struct session, gone_post)->ds);
}
