/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions on the loop's side: opened against tenant, grant, contact and certificate, placed on the
 * reactor that has the fewest, forgotten when the reactor has nothing of them left and no operation
 * names them. And regions, whose static rules are checked here and whose shared limits are checked
 * by the reactor.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/shm_memory.h"
#include "dataplane/shm_sealer.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include <inttypes.h>
#include <sys/mman.h>

#define SHM_DEFAULT        (64ull << 20)
#define SHM_TENANT_DEFAULT (256ull << 20)
/* Of what all tenants have together: each one's first so many bytes, the least that a session
 * takes, come out of the whole; what goes beyond must leave a quarter for those of others. */
#define SHM_SURE  ((uint64_t)WIRE_SHM_DATA_OFF + WIRE_SHM_DATA_MIN)
#define SHM_PARTS 4

static const struct transport_ops *const transports[] = {
	[DP_TRANSPORT_TCP] = &transport_tcp,
	[DP_TRANSPORT_VERBS] = &transport_verbs,
	[DP_TRANSPORT_SHM] = &transport_shm,
};

struct dp_session *dp_session_find(struct dp *dp, const struct ros2_uid *uid)
{
	void *obj = NULL;

	return uidmap_get(&dp->uids, uid, &obj) == UID_SESSION ? obj : NULL;
}

static struct dp_grant_obj *grant_find(struct dp *dp, const struct ros2_uid *uid)
{
	void *obj = NULL;

	return uidmap_get(&dp->uids, uid, &obj) == UID_GRANT ? obj : NULL;
}

/* Of those where the tenant's share has room; NULL: none. */
static struct reactor *least_loaded(struct dp *dp, const struct dp_tenant *t)
{
	struct reactor *best = NULL;

	for (uint32_t i = 0; i < dp->n_reactors; i++) {
		struct reactor *r = dp->reactors[i];

		bool room = DP_SWITCH(no_session_share)
		                    ? r->n_sessions < DP_SESSIONS_MAX
		                    : share_allows(&REACTOR_SESSION_SHARE, r->of_tenant[t->index],
		                                   r->n_sessions);

		if (room && (!best || r->n_sessions < best->n_sessions))
			best = r;
	}
	return best;
}

/* NULL: the operation has failed. */
static struct dp_tenant *check_parties(struct dp *dp, const struct dp_session_params *p,
                                       struct dp_op *op, struct dp_grant_obj **ret_grant)
{
	struct dp_tenant *t = dp_tenant_find(dp, &p->tenant);
	struct dp_grant_obj *g = grant_find(dp, &p->grant);
	struct ros2_err err = ROS2_ERR_INIT;
	enum ros2_status st;

	if (uidmap_get(&dp->uids, &p->tenant, NULL) == UID_DEAD ||
	    uidmap_get(&dp->uids, &p->grant, NULL) == UID_DEAD ||
	    uidmap_get(&dp->uids, &p->session, NULL) == UID_DEAD) {
		dp_op_fail(op, ROS2_REVOKED, "the tenant, grant or session was revoked");
		return NULL;
	}
	if (dp_frozen_check(dp, &err) < 0) {
		dp_op_fail(op, err.status, "%s", err.msg);
		return NULL;
	}
	if (!t || !g || !ros2_uid_eq(&g->tenant, &p->tenant)) {
		dp_op_fail(op, t ? ROS2_NO_GRANT : ROS2_NOT_FOUND,
		           t ? "no live grant of this tenant" : "no such tenant");
		return NULL;
	}
	if (uidmap_get(&dp->uids, &p->session, NULL) != UID_NONE) {
		dp_op_fail(op, ROS2_EXISTS, "a session of that id exists");
		return NULL;
	}
	st = dp_rights_now(dp, t, g, p->cert_deadline_ns, clock_boottime_ns());
	if (st != ROS2_OK) {
		dp_op_fail(op, st, "%s", ros2_status_text(st));
		return NULL;
	}
	*ret_grant = g;
	return t;
}

static void shm_count(struct dp *dp, struct dp_tenant *t, uint64_t bytes)
{
	t->shm_bytes += bytes;
	dp->shm_bytes += bytes;
}

static void shm_uncount(struct dp *dp, struct dp_tenant *t, uint64_t bytes)
{
	t->shm_bytes -= bytes;
	dp->shm_bytes -= bytes;
}

static void shm_give_back(struct dp *dp, struct dp_tenant *t, struct shm_memory *m)
{
	if (m)
		shm_kept_put(dp, &t->uid, m);
}

static struct dp_session *new_session(struct dp *dp, struct dp_op *op, struct dp_tenant *t,
                                      struct dp_grant_obj *g, struct reactor *r)
{
	const struct dp_session_params *p = &op->session;
	struct dp_session *ds = calloc(1, sizeof(*ds));

	if (!ds)
		return NULL;
	ds->uid = p->session;
	ds->dp = dp;
	ds->tenant = t;
	ds->grant = g;
	ds->reactor = r;
	ds->seq = ++dp->next_seq;
	ds->cert_deadline_ns = p->cert_deadline_ns;
	ds->shm = op->shm;
	list_init(&ds->waiting);
	ds->s = session_new(ds, transports[p->transport]);
	if (!ds->s || uidmap_put(&dp->uids, &ds->uid, UID_SESSION, ds) < 0) {
		free(ds->s);
		free(ds);
		return NULL;
	}
	op->shm = NULL;
	t->n_sessions++;
	g->n_sessions++;
	r->n_sessions++;
	r->of_tenant[t->index]++;
	list_add_tail(&dp->sessions, &ds->link);
	return ds;
}

/* False: the operation has failed. */
bool dp_device_for(struct dp *dp, struct dp_tenant *t, struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	if (!dp->rdma) {
		dp_op_fail(op, ROS2_UNSUPPORTED, "this agent has no RDMA device: it offers tcp");
		return false;
	}
	rc = verbs_tenant_pd(dp, t, &err);
	if (rc < 0)
		dp_op_fail(op, err.status ? err.status : ROS2_LIMIT, "%s", err.msg);
	return rc == 0;
}

/* Whoever may open a session now. NULL: the operation has failed. */
static struct dp_tenant *check_tenant(struct dp_op *op, struct dp_grant_obj **ret_grant)
{
	struct dp_tenant *t = check_parties(op->dp, &op->session, op, ret_grant);

	if (!t || t->n_sessions < t->limits.sessions_max)
		return t;
	dp_op_fail(op, ROS2_LIMIT,
	           "sessions.max of the tenant: the limit is %u, %u are open, asked for 1 more",
	           t->limits.sessions_max, t->n_sessions);
	return NULL;
}

static void place(struct dp_op *op)
{
	struct dp *dp = op->dp;
	struct dp_grant_obj *g;
	struct dp_tenant *t = check_tenant(op, &g);
	struct reactor *r;

	if (!t)
		return;
	if (op->session.transport == DP_TRANSPORT_VERBS && !dp_device_for(dp, t, op))
		return;
	r = least_loaded(dp, t);
	if (!r) {
		dp_op_fail(
			op, ROS2_LIMIT,
			"the tenant's share of the agent's sessions: at most %u of the %u (fixed) "
			"of each of %u reactors, and %u stay free for others; it holds %u: close "
			"some first",
			REACTOR_SESSION_SHARE.most, DP_SESSIONS_MAX, dp->n_reactors,
			REACTOR_SESSION_SHARE.kept, t->n_sessions);
		return;
	}
	op->ds = new_session(dp, op, t, g, r);
	if (!op->ds) {
		dp_op_fail(op, ROS2_BUSY, "the agent has no memory for a session");
		return;
	}
	op->ds->n_ops++;
	dp_op_to_reactor(op, r, session_run_attach, dp_op_finish);
}

/* ---- over shm: first the memory, which takes its time, on a worker ---- */

static void make_memory(struct dp_op *op)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = shm_memory_new(op->a, op->dp->shm_kept.fd, &op->shm, &err);

	if (rc < 0)
		dp_op_set_err(op, rc, &err);
}

/* Meanwhile anything may have been withdrawn: who may open a session is looked at again. */
static void memory_made(struct dp_op *op)
{
	struct dp_tenant *t = op->tenant;

	/* What was set aside is what is there. */
	if (t && !op->shm)
		shm_uncount(op->dp, t, WIRE_SHM_DATA_OFF + op->a);
	if (op->res.status != ROS2_OK)
		dp_op_finish(op);
	else
		place(op);
}

uint64_t dp_shm_tenant_bytes(const struct dp *dp)
{
	return dp->opts.shm_tenant_bytes ? dp->opts.shm_tenant_bytes : SHM_TENANT_DEFAULT;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* For data, when so many bytes may be taken. */
static uint64_t shm_data_of(uint64_t bytes)
{
	bytes = less(bytes, WIRE_SHM_DATA_OFF);
	return bytes - bytes % WIRE_SHM_DATA_UNIT;
}

/* What @t may take of what all tenants have together. */
static uint64_t shm_total_room(const struct dp *dp, const struct dp_tenant *t)
{
	uint64_t left = less(dp->shm_limit, dp->shm_bytes);
	uint64_t first = MIN(less(SHM_SURE, t->shm_bytes), left);

	if (DP_SWITCH(no_shm_share))
		return left;
	return MAX(first, less(left, dp->shm_limit / SHM_PARTS));
}

/* False: the operation has failed. What the others have is not said: it is theirs. */
static bool shm_size(struct dp_op *op, const struct dp_tenant *t)
{
	const struct dp *dp = op->dp;
	uint64_t limit = dp_shm_tenant_bytes(dp);
	uint64_t own = shm_data_of(less(limit, t->shm_bytes)), want = op->session.shm_bytes;
	uint64_t all = shm_data_of(shm_total_room(dp, t));

	op->a = want ? MAX(want, WIRE_SHM_DATA_MIN)
	             : MAX(MIN(SHM_DEFAULT, MIN(own, all)), WIRE_SHM_DATA_MIN);
	if (op->a > own && !DP_SWITCH(no_shm_limit))
		dp_op_fail(op, ROS2_LIMIT,
		           "shared memory of the tenant's sessions: the limit is %" PRIu64
		           " (--shm-memory), %" PRIu64 " are taken, asked for %" PRIu64,
		           limit, t->shm_bytes, op->a);
	else if (op->a > all)
		dp_op_fail(op, ROS2_LIMIT,
		           "shared memory of all tenants' sessions: the limit is %" PRIu64
		           " (--shm-memory-total, set by who runs the agent), a quarter of it is "
		           "kept for each tenant's first %" PRIu64 "; this one holds %" PRIu64
		           ", asked for %" PRIu64,
		           dp->shm_limit, SHM_SURE, t->shm_bytes, op->a);
	else
		return true;
	return false;
}

/* False: the operation has failed. */
static bool seals_left(struct dp_op *op, const struct dp_tenant *t)
{
	bool may = shm_sealer_may(op->dp->shm_sealer, &t->uid);

	if (!may)
		dp_op_fail(op, ROS2_LIMIT, SHM_SEALER_LIMIT, SHM_SEALER_LEFT);
	return may;
}

static void begin_shm(struct dp_op *op)
{
	struct dp *dp = op->dp;
	struct dp_grant_obj *g;
	struct dp_tenant *t;

	if (!dp->opts.shm_dir) {
		dp_op_fail(op, ROS2_UNSUPPORTED, "this agent shares no memory (--shm-dir)");
		return;
	}
	/* Who has let go of memory and asks for some at once finds its room. */
	shm_kept_look(dp);
	t = check_tenant(op, &g);
	if (!t || !seals_left(op, t) || !shm_size(op, t))
		return;
	op->a = (op->a + WIRE_SHM_DATA_UNIT - 1) / WIRE_SHM_DATA_UNIT * WIRE_SHM_DATA_UNIT;
	dp_op_to_worker(op, t, make_memory, memory_made);
	/* Or it has as many calls under way as it may, and this one is over. */
	if (op->tenant)
		shm_count(dp, t, WIRE_SHM_DATA_OFF + op->a);
}

void dp_shm(const struct dp *dp, struct dp_shm *ret)
{
	*ret = (struct dp_shm){dp->shm_bytes, dp->shm_limit};
}

void dp_lent(const struct dp *dp, struct dp_lent *ret)
{
	*ret = dp->lent;
}

void dp_session_open(struct dp *dp, const struct dp_session_params *p, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_new(dp, done, arg);

	loop_assert_owner(dp->loop);
	if (!op)
		return;
	op->session = *p;
	if (op->spare)
		dp_op_fail(op, ROS2_BUSY, "the agent has no memory for a session");
	else if (p->transport == DP_TRANSPORT_SHM)
		begin_shm(op);
	else
		place(op);
}

/* A session that could not be placed leaves its memory with the operation. */
void dp_session_give_back(struct dp_op *op)
{
	shm_give_back(op->dp, op->tenant, TAKE_PTR(op->shm));
}

static void drop_loop_handles(struct dp_session *ds)
{
	for (uint32_t i = 0; i < DP_HANDLES_MAX; i++) {
		/* One being opened has no file yet; its operation cleans up. */
		if (!ds->handles[i].file)
			continue;
		ds->handles[i].handle = 0;
		dp_file_unref(TAKE_PTR(ds->handles[i].file));
	}
}

void dp_session_ended(struct dp_session *ds)
{
	if (ds->ended)
		return;
	ds->ended = true;
	drop_loop_handles(ds);
	for (uint32_t i = 0; i < ds->n_mounts; i++)
		dp_mount_unref(ds->dp, TAKE_PTR(ds->mounts[i]));
	ds->n_mounts = 0;
	workers_cancel(ds->dp->workers);
	shm_sealer_cancel(ds->dp->shm_sealer, ds);
}

void dp_session_gone(struct dp_session *ds)
{
	struct dp *dp = ds->dp;

	ds->gone = true;
	dp_session_release(ds);
	dp_revokes_check(dp);
}

/* What of the memory is mapped and open here: given back once, by whoever comes first. */
static void unmap(struct dp_op *op)
{
	if (op->b)
		munmap((void *)(uintptr_t)op->a, op->b);
	if (op->handle)
		close((int)op->handle - 1);
	op->b = op->handle = 0;
}

bool dp_session_await_gone(struct dp *dp, const struct ros2_uid *session, struct dp_gone *w)
{
	struct dp_session *ds = dp_session_find(dp, session);

	loop_assert_owner(dp->loop);
	if (ds)
		list_add_tail(&ds->waiting, &w->link);
	return ds != NULL;
}

void dp_gone_cancel(struct dp_gone *w)
{
	list_del(&w->link);
}

static void tell_gone(struct list *waiting)
{
	while (!list_empty(waiting)) {
		struct dp_gone *w = list_first(waiting, struct dp_gone, link);

		list_del(&w->link);
		w->fn(w);
	}
}

static void move_waiting(struct dp_session *ds, struct list *to)
{
	list_init(to);
	while (!list_empty(&ds->waiting)) {
		struct dp_gone *w = list_first(&ds->waiting, struct dp_gone, link);

		list_del(&w->link);
		list_add_tail(to, &w->link);
	}
}

void dp_session_free(struct dp_session *ds)
{
	tell_gone(&ds->waiting);
	list_del(&ds->link);
	free(ds->s);
	shm_give_back(ds->dp, ds->tenant, ds->shm);
	unmap(&ds->unmap_op);
	free(ds);
}

static void unmapped(struct dp_op *op)
{
	struct dp_session *ds = container_of(op, struct dp_session, unmap_op);

	/* When nobody else has it the kernel has said so by now. */
	shm_kept_look(ds->dp);
	dp_op_finish(op);
	ds->n_ops--;
	dp_session_release(ds);
}

/* To give pages back takes the longer the more there are, and the loop would stand meanwhile. It
 * counts for its tenant until nobody has it (shm_kept.h), and is listed there first: the kernel
 * tells it while the worker is still at it. The session is there until then, so who opens another
 * when this one is gone finds its room. */
static void begin_unmap(struct dp_session *ds)
{
	struct shm_memory *m = TAKE_PTR(ds->shm);
	struct dp_op *op = &ds->unmap_op;

	ds->n_ops++;
	dp_op_begin(op, ds->dp, NULL, NULL);
	/* It names no session: it is carried out whatever became of the session's rights. */
	op->closes_of = ds->tenant;
	op->a = (uintptr_t)m->map;
	op->b = m->map ? m->bytes : 0;
	op->handle = m->fd >= 0 ? (uint64_t)m->fd + 1 : 0;
	m->map = NULL;
	m->fd = -1;
	shm_give_back(ds->dp, ds->tenant, m);
	dp_op_to_worker(op, NULL, unmap, unmapped);
}

void dp_session_release(struct dp_session *ds)
{
	struct dp *dp = ds->dp;
	struct dp_tenant *t = ds->tenant;
	struct dp_grant_obj *g = ds->grant;
	struct list waiting;

	if (!ds->gone || ds->n_ops || shm_lend_ends(ds))
		return;
	if (ds->shm) {
		begin_unmap(ds);
		return;
	}
	uidmap_remove(&dp->uids, &ds->uid);
	if (ds->removed)
		uidmap_pass(&dp->uids, &ds->uid);
	ds->reactor->n_sessions--;
	ds->reactor->of_tenant[t->index]--;
	t->n_sessions--;
	g->n_sessions--;
	move_waiting(ds, &waiting);
	dp_session_free(ds);
	dp_tenant_release(dp, t);
	dp_grant_release(dp, g);
	tell_gone(&waiting);
}

void dp_session_close(struct dp *dp, const struct ros2_uid *session, enum ros2_status why,
                      dp_done_fn done, void *arg)
{
	struct dp_session *ds = dp_session_find(dp, session);
	struct dp_op *op;

	loop_assert_owner(dp->loop);
	if (ds && !ds->ended && !ds->closing) {
		ds->closing = true;
		op = &ds->close_op;
		dp_op_begin(op, dp, done, arg);
	} else {
		op = dp_op_new(dp, done, arg);
		if (!op)
			return;
	}
	if (!ds || ds->ended) {
		dp_op_fail(op, ds ? ROS2_CLOSED : ROS2_BAD_SESSION, "no such session is open");
		return;
	}
	op->ds = ds;
	ds->n_ops++;
	op->why = why;
	dp_op_to_reactor(op, ds->reactor, session_run_close, dp_op_finish);
}

int dp_session_stats(struct dp *dp, const struct ros2_uid *session, struct dp_session_stats *ret)
{
	struct dp_session *ds = dp_session_find(dp, session);

	loop_assert_owner(dp->loop);
	if (!ds)
		return ros2_status_to_errno(ROS2_BAD_SESSION);
	session_stats(ds->s, ret);
	return 0;
}

/* ---- regions ---- */

static bool region_allowed(struct dp_op *op, uint64_t base, uint64_t length, uint32_t access)
{
	const struct dp_tenant_limits *l = &op->ds->tenant->limits;
	uint64_t align = l->region_alignment ? l->region_alignment : 1, end;
	uint32_t may = l->access & op->ds->grant->access;

	if ((!length || __builtin_add_overflow(base, length, &end)) && !DP_SWITCH(no_region_shape))
		dp_op_fail(op, ROS2_INVALID, "region: length is zero, or base + length wraps");
	else if (length < l->region_size_min || length > l->region_size_max)
		dp_op_fail(op, ROS2_LIMIT,
		           "memory.regionSize: the limits are %" PRIu64 " to %" PRIu64
		           ", asked for %" PRIu64,
		           l->region_size_min, l->region_size_max, length);
	else if (base % align)
		dp_op_fail(op, ROS2_LIMIT,
		           "memory.alignment is %" PRIu64 ", asked for base 0x%" PRIx64, align,
		           base);
	else if (!access || access & ~(uint32_t)(LEASE_READ | LEASE_WRITE))
		dp_op_fail(op, ROS2_INVALID, "region access: expected 1, 2 or 3, found %u", access);
	else if (access & ~may)
		dp_op_fail(op, ROS2_DENIED, "region access: allowed is %u, asked for %u", may,
		           access);
	else
		return true;
	return false;
}

void dp_region_register(struct dp *dp, const struct ros2_uid *session, uint64_t base,
                        uint64_t length, uint32_t access, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op || !region_allowed(op, base, length, access))
		return;
	op->a = base;
	op->b = length;
	op->flags = access;
	op->max = op->ds->tenant->limits.regions;
	op->mode = op->ds->tenant->limits.rkeys_concurrent;
	op->handle = op->ds->tenant->limits.registered_bytes;
	dp_op_to_reactor(op, op->ds->reactor, session_run_register, dp_op_finish);
}

void dp_region_renew(struct dp *dp, const struct ros2_uid *session, uint32_t key, dp_done_fn done,
                     void *arg)
{
	struct dp_op *op = dp_op_of_session(dp, session, done, arg);

	if (!op)
		return;
	op->key = key;
	op->limits = op->ds->tenant->limits;
	op->limits.access &= op->ds->grant->access;
	dp_op_to_reactor(op, op->ds->reactor, session_run_renew, dp_op_finish);
}

void dp_region_deregister(struct dp *dp, const struct ros2_uid *session, uint32_t key,
                          dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_of_session_shrinking(dp, session, done, arg);

	if (!op)
		return;
	op->key = key;
	dp_op_to_reactor(op, op->ds->reactor, session_run_deregister, dp_op_finish);
}
