/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loop asks of a session's reactor: attach, handles, regions, close, revoke. Messages of
 * one loop keep their order, so a session named by a message that was sent before its memory was
 * given up is still there.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm_memory.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include <inttypes.h>
#include <string.h>

/* False: the operation is answered. */
static bool usable(struct dp_op *op)
{
	struct session *s = op->ds->s;

	if (s->state != SESSION_ENDED)
		return true;
	dp_op_set(op, s->end_status == ROS2_REVOKED ? ROS2_REVOKED : ROS2_CLOSED,
	          "the session has ended");
	dp_op_back(op);
	return false;
}

void session_run_attach(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	bool over_verbs = s->transport == &transport_verbs;
	bool over_shm = s->transport == &transport_shm;

	session_attach(r, s);
	memcpy(op->res.session.secret, s->secret, DP_SECRET_LEN);
	op->res.session.port = over_verbs ? verbs_port(r) : r->port;
	op->res.session.credits = DP_CREDITS;
	op->res.session.max_io = WIRE_IO_MAX;
	op->res.session.max_inline = over_shm     ? 0
	                             : over_verbs ? WIRE_VERBS_INLINE_MAX
	                                          : WIRE_INLINE_MAX;
	if (over_shm) {
		op->res.session.shm_path = r->shm_path;
		op->res.session.shm_bytes = op->ds->shm->bytes - WIRE_SHM_DATA_OFF;
	}
	dp_op_back(op);
}

void session_run_close(struct reactor *r, struct dp_op *op)
{
	session_end(op->ds->s, op->why, NULL);
	dp_op_back(op);
}

void session_run_handle_add(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	uint32_t i = op->handle & (DP_HANDLES_MAX - 1);
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	if (!usable(op))
		return;
	rc = reactor_engine_use(r, op->file->mount->engine, &err);
	if (rc == 0 && op->file->mount->engine->lends)
		rc = verbs_lend(s, &err);
	if (rc < 0) {
		dp_op_set_err(op, rc, &err);
	} else {
		dp_file_ref(op->file);
		s->handles[i].handle = op->handle;
		s->handles[i].file = op->file;
		atomic_fetch_add_explicit(&s->stats.handles, 1, memory_order_relaxed);
	}
	dp_op_back(op);
}

void session_run_handle_remove(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	uint32_t i = op->handle & (DP_HANDLES_MAX - 1);

	if (s->state != SESSION_ENDED && s->handles[i].handle == op->handle) {
		s->handles[i].handle = 0;
		dp_file_unref(TAKE_PTR(s->handles[i].file));
		atomic_fetch_sub_explicit(&s->stats.handles, 1, memory_order_relaxed);
	}
	dp_op_back(op);
}

/* ---- regions ---- */

/* Adds within a limit, or says what stands in the way. */
static bool take32(_Atomic uint32_t *v, uint32_t limit, struct dp_op *op, const char *what)
{
	uint32_t was = atomic_fetch_add_explicit(v, 1, memory_order_relaxed);

	if (was < limit)
		return true;
	atomic_fetch_sub_explicit(v, 1, memory_order_relaxed);
	dp_op_set(op, ROS2_LIMIT, "%s: the limit is %u, %u are live, asked for 1 more", what, limit,
	          was);
	return false;
}

static bool take64(_Atomic uint64_t *v, uint64_t n, uint64_t limit, struct dp_op *op,
                   const char *what)
{
	uint64_t was = atomic_fetch_add_explicit(v, n, memory_order_relaxed);

	if (was <= limit && n <= limit - was)
		return true;
	atomic_fetch_sub_explicit(v, n, memory_order_relaxed);
	dp_op_set(op, ROS2_LIMIT,
	          "%s: the limit is %" PRIu64 ", %" PRIu64 " are taken, asked for %" PRIu64, what,
	          limit, was, n);
	return false;
}

/* All four counters of a region, or none. op->max: the tenant's regions; op->mode: its rkeys;
 * op->handle: its bytes. */
static bool take_limits(struct session *s, struct dp_op *op)
{
	struct dp_tenant *t = s->tenant;
	struct dp_grant_obj *g = s->grant;
	bool rkeys_bind = op->mode < op->max;

	if (!take32(&t->regions, MIN(op->max, op->mode), op,
	            rkeys_bind ? "rkeys.concurrent of the tenant" : "memory.regions of the tenant"))
		return false;
	if (!take64(&t->registered_bytes, op->b, op->handle, op,
	            "memory.registeredBytes of the tenant"))
		goto regions;
	if (!take32(&g->keys, atomic_load_explicit(&g->max_keys, memory_order_relaxed), op,
	            "rkeys.concurrent, keys of the grant"))
		goto bytes;
	if (!take64(&g->bytes, op->b, atomic_load_explicit(&g->max_bytes, memory_order_relaxed), op,
	            "memory.registeredBytes, bytes of the grant"))
		goto keys;
	return true;
keys:
	atomic_fetch_sub_explicit(&g->keys, 1, memory_order_relaxed);
bytes:
	atomic_fetch_sub_explicit(&t->registered_bytes, op->b, memory_order_relaxed);
regions:
	atomic_fetch_sub_explicit(&t->regions, 1, memory_order_relaxed);
	return false;
}

static void give_limits(struct session *s, uint64_t bytes)
{
	atomic_fetch_sub_explicit(&s->grant->bytes, bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->grant->keys, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->tenant->registered_bytes, bytes, memory_order_relaxed);
	atomic_fetch_sub_explicit(&s->tenant->regions, 1, memory_order_relaxed);
}

/* now + ttl, but never past the grant. */
static uint64_t lease_deadline(const struct session *s, uint64_t now_ns)
{
	uint64_t ttl = atomic_load_explicit(&s->tenant->lease_ttl_ns, memory_order_relaxed);

	return MIN(clock_add_ns(now_ns, ttl),
	           atomic_load_explicit(&s->grant->deadline_ns, memory_order_relaxed));
}

static bool rights_stand(struct session *s, struct dp_op *op, uint64_t now_ns)
{
	enum ros2_status st = session_rights(s, now_ns);

	if (st == ROS2_OK)
		return true;
	dp_op_set(op, st, "%s", ros2_status_text(st));
	session_end(s, st, NULL);
	dp_op_back(op);
	return false;
}

/* A lease is told in whole ms: one of none would be no lease, and a client that is told so must
 * think that the agent does not keep to the protocol. Its grant is about to end, or was shortened
 * since rights_stand. */
static bool ends_at_once(struct dp_op *op, uint64_t deadline_ns, uint64_t now_ns)
{
	if (deadline_ns >= clock_add_ns(now_ns, NS_PER_MS))
		return false;
	dp_op_set(op, ROS2_LEASE_EXPIRED, "region: its lease would end within a millisecond");
	return true;
}

/* @l does not end at once. */
static void tell_region(struct dp_op *op, const struct lease *l, uint64_t now_ns)
{
	op->res.region.key = l->key;
	op->res.region.generation = l->generation;
	op->res.region.ttl_ms = (uint32_t)MIN((l->deadline_ns - now_ns) / NS_PER_MS, UINT32_MAX);
	op->res.region.lease_id = l->lease_id;
}

/* Keys that wait for what is in flight are held, too. */
static bool share_of_keys(struct reactor *r, const struct session *s, struct dp_op *op)
{
	struct lease_counts all, own;

	lease_counts(r->leases, UINT32_MAX, &all);
	lease_counts(r->leases, s->tenant->index, &own);
	if (share_allows(&REACTOR_LEASE_SHARE, own.live + own.draining, all.live + all.draining) ||
	    DP_SWITCH(no_key_share))
		return true;
	dp_op_set(op, ROS2_LIMIT,
	          "the tenant's share of a reactor's %u keys (fixed): at most %u, and %u stay free "
	          "for others; it holds %u of %u taken: give some up first",
	          REACTOR_LEASES, REACTOR_LEASE_SHARE.most, REACTOR_LEASE_SHARE.kept,
	          own.live + own.draining, all.live + all.draining);
	return false;
}

static bool is_there(const struct session *s, struct dp_op *op)
{
	if (!s->transport->has_region || s->transport->has_region(s, op->a, op->b))
		return true;
	dp_op_set(op, ROS2_OUT_OF_RANGE,
	          "region: over %s it is a part of what the session shares with the agent, which "
	          "is not all that is at 0x%" PRIx64 " with %" PRIu64 " bytes",
	          s->transport->name, op->a, op->b);
	return false;
}

void session_run_register(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	uint64_t now_ns = clock_boottime_ns();
	struct lease_params p = {.base = op->a, .length = op->b, .access = (uint8_t)op->flags};
	const struct lease *l;
	enum ros2_status st;

	if (!usable(op) || !rights_stand(s, op, now_ns))
		return;
	p.deadline_ns = lease_deadline(s, now_ns);
	if (!is_there(s, op) || ends_at_once(op, p.deadline_ns, now_ns) ||
	    !share_of_keys(r, s, op) || !take_limits(s, op)) {
		dp_op_back(op);
		return;
	}
	p.grant = s->grant->id;
	p.conn = s->conn;
	p.tenant = p.pd = s->tenant->index;
	st = lease_issue(r->leases, &p, &l);
	if (st == ROS2_OK) {
		atomic_fetch_add_explicit(&s->stats.regions, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&r->n_leases, 1, memory_order_relaxed);
		tell_region(op, l, now_ns);
	} else {
		give_limits(s, op->b);
		dp_op_set(op, st,
		          st == ROS2_LIMIT ? "keys of the agent's reactor: the limit is %u (fixed)"
		                           : "the region is not one (limit %u)",
		          REACTOR_LEASES);
	}
	dp_op_back(op);
}

/* What the tenant's document allows by now, not what it allowed when the region was registered. A
 * lease that is refused ends with the time it has. */
static bool still_allowed(const struct session *s, const struct lease *l, struct dp_op *op)
{
	const struct dp_tenant_limits *now = &op->limits;
	uint32_t live = atomic_load_explicit(&s->tenant->regions, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(&s->tenant->registered_bytes, memory_order_relaxed);

	if (l->access & ~now->access)
		dp_op_set(op, ROS2_DENIED, "region access: allowed is %u by now, the lease has %u",
		          now->access, l->access);
	else if (l->length < now->region_size_min || l->length > now->region_size_max)
		dp_op_set(op, ROS2_LIMIT,
		          "memory.regionSize: the limits are %" PRIu64 " to %" PRIu64
		          " by now, the lease has %" PRIu64,
		          now->region_size_min, now->region_size_max, l->length);
	else if (now->region_alignment && l->base % now->region_alignment)
		dp_op_set(op, ROS2_LIMIT,
		          "memory.alignment is %" PRIu64 " by now, the lease has base 0x%" PRIx64,
		          now->region_alignment, l->base);
	else if (live > MIN(now->regions, now->rkeys_concurrent))
		dp_op_set(op, ROS2_LIMIT, "%s of the tenant: the limit is %u by now, %u are live",
		          now->rkeys_concurrent < now->regions ? "rkeys.concurrent"
		                                               : "memory.regions",
		          MIN(now->regions, now->rkeys_concurrent), live);
	else if (bytes > now->registered_bytes)
		dp_op_set(op, ROS2_LIMIT,
		          "memory.registeredBytes of the tenant: the limit is %" PRIu64
		          " by now, %" PRIu64 " are taken",
		          now->registered_bytes, bytes);
	else
		return true;
	return false;
}

void session_run_renew(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	uint64_t now_ns = clock_boottime_ns(), deadline_ns;
	const struct lease *l;
	enum ros2_status st;

	if (!usable(op) || !rights_stand(s, op, now_ns))
		return;
	deadline_ns = lease_deadline(s, now_ns);
	st = lease_look(r->leases, op->key, s->conn, now_ns, &l);
	if (st == ROS2_OK && (!still_allowed(s, l, op) ||
	                      ends_at_once(op, MAX(l->deadline_ns, deadline_ns), now_ns))) {
		dp_op_back(op);
		return;
	}
	if (st == ROS2_OK)
		st = lease_renew(r->leases, op->key, s->conn, now_ns, deadline_ns, &l);
	if (st == ROS2_OK)
		tell_region(op, l, now_ns);
	else
		dp_op_set(op, st, "%s", ros2_status_text(st));
	dp_op_back(op);
}

void session_run_deregister(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	enum ros2_status st;

	if (!usable(op))
		return;
	st = lease_end(r->leases, op->key, s->conn, ROS2_CLOSED);
	if (st != ROS2_OK)
		dp_op_set(op, st, "%s", ros2_status_text(st));
	dp_op_back(op);
}
