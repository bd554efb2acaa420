/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Withdrawal of rights, and the list of leases: calls that go to every reactor. A revocation: 1.
 * tombstones, so that nothing new begins under the uid; 2. control calls that have not begun are
 * taken back; 3. every reactor ends what it has and confirms, when devices have (session_revoke.c);
 * 4. the caller is told, with what engines and workers still hold; 5. when that is zero, it is told
 * again. A revocation of everything is many tenants': one whose device does not confirm must not
 * keep out the word that all the others have ended. So reactors answer it twice, when they have
 * ended what they have and when devices have confirmed; where that takes longer than
 * DP_REVOKE_PARTIAL_MS, the caller is told between the two, with the keys counted as draining.
 *
 * Asked again, a revocation is no better off than the first: objects that are withdrawn are found
 * as long as something of them is left, and a tombstone knows whose it was, so that it waits for
 * the keys of that tenant, too.
 *
 * Without memory, and with all that was set aside in use, a revocation cannot be held: no receipt
 * can be sent, or a uid that is not known yet cannot be remembered. Then the data plane freezes:
 * all sessions end, as by a revocation of everything whose memory was set aside, and nothing new
 * begins until dp_thaw, which wants what is set aside to be whole again. What is known stays
 * withdrawn after that; what could not be remembered is the caller's to revoke again before it
 * thaws.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct revoke {
	struct dp *dp;
	dp_done_fn done;
	void *arg;
	enum dp_scope scope;
	struct ros2_uid uid;
	struct ros2_uid tenant; /* zero: not known here, or all of them */
	uint64_t seq;           /* sessions opened later are not meant */
	bool removes;           /* a grant that is over: dp_grant_remove */
	uint32_t parts;         /* reactors that have not ended what is meant */
	uint32_t waits;         /* ... that have, and wait for devices; keys_alive is of these */
	uint32_t keys_alive;
	struct loop_timer partial;
	bool told;
	struct dp_result res;
	struct list link;    /* dp.revokes */
	struct dp_op part[]; /* one for each reactor */
};

static size_t revoke_size(const struct dp *dp)
{
	return sizeof(struct revoke) + dp->opts.reactors * sizeof(struct dp_op);
}

static bool meant(const struct revoke *v, const struct dp_session *ds)
{
	if (ds->seq > v->seq)
		return false;
	switch (v->scope) {
	case DP_SCOPE_ALL:
		return true;
	case DP_SCOPE_TENANT:
		return ros2_uid_eq(&ds->tenant->uid, &v->uid);
	case DP_SCOPE_GRANT:
		return ros2_uid_eq(&ds->grant->uid, &v->uid);
	case DP_SCOPE_SESSION:
		return ros2_uid_eq(&ds->uid, &v->uid);
	}
	return false;
}

static bool op_meant(const struct dp_op *op, void *arg)
{
	return op->ds && meant(arg, op->ds);
}

/* Withdrawn ones, too, as long as something of them is left. */
static struct dp_grant_obj *grant_left(const struct dp *dp, const struct ros2_uid *uid)
{
	struct dp_grant_obj *g;

	HASH_FIND(hh, dp->grants_by_uid, uid, sizeof(*uid), g);
	return g;
}

/* Tenants decide how many grants come and go: for each that goes without a session nobody looks at
 * those of all. */
static bool may_mean_any(const struct revoke *v)
{
	const struct dp_grant_obj *g =
		v->scope == DP_SCOPE_GRANT ? grant_left(v->dp, &v->uid) : NULL;

	return v->scope != DP_SCOPE_GRANT || (g && g->n_sessions);
}

static uint32_t sessions_left(const struct revoke *v)
{
	struct dp_session *ds;
	uint32_t n = 0;

	if (!may_mean_any(v))
		return 0;
	list_for_each (&v->dp->sessions, ds, link)
		n += !ds->gone && meant(v, ds);
	return n;
}

int dp_revokes_reserve(struct dp *dp)
{
	if (!dp->freeze)
		dp->freeze = calloc(1, revoke_size(dp));
	if (!dp->freeze)
		return -ENOMEM;
	while (dp->n_spare_revokes < DP_REVOKES_SPARE) {
		struct revoke *v = calloc(1, revoke_size(dp));

		if (!v)
			return -ENOMEM;
		list_add_tail(&dp->spare_revokes, &v->link);
		dp->n_spare_revokes++;
	}
	return 0;
}

static void free_all(struct list *revokes)
{
	while (!list_empty(revokes)) {
		struct revoke *v = list_first(revokes, struct revoke, link);

		list_del(&v->link);
		free(v);
	}
}

void dp_revokes_unreserve(struct dp *dp)
{
	free_all(&dp->revokes);
	free_all(&dp->spare_revokes);
	dp->n_spare_revokes = 0;
	free(TAKE_PTR(dp->freeze));
}

/* NULL: without memory, and with all that was set aside in use. */
static struct revoke *revoke_new(struct dp *dp)
{
	struct revoke *v = calloc(1, revoke_size(dp));

	if (v)
		return v;
	if (list_empty(&dp->spare_revokes))
		return NULL;
	v = list_first(&dp->spare_revokes, struct revoke, link);
	list_del(&v->link);
	dp->n_spare_revokes--;
	return v;
}

static void revoke_unused(struct dp *dp, struct revoke *v)
{
	if (dp->n_spare_revokes == DP_REVOKES_SPARE) {
		free(v);
		return;
	}
	memset(v, 0, revoke_size(dp));
	list_add_tail(&dp->spare_revokes, &v->link);
	dp->n_spare_revokes++;
}

static void revoke_free(struct revoke *v)
{
	list_del(&v->link);
	revoke_unused(v->dp, v);
}

void dp_revokes_check(struct dp *dp)
{
	struct revoke *v, *tmp;

	list_for_each_safe (&dp->revokes, v, tmp, link) {
		struct dp_result res = v->res;

		if (!v->told || sessions_left(v) || workers_running(dp->workers, op_meant, v))
			continue;
		res.status = ROS2_OK;
		res.revoke.draining = 0;
		if (v->done)
			v->done(v->arg, &res);
		revoke_free(v);
	}
}

struct listing {
	struct dp *dp;
	void (*fn)(void *arg, const struct dp_lease_info *info);
	void *arg;
	uint32_t left, parts;
	struct list link; /* dp.listings */
};

static void listing_end(struct listing *l)
{
	l->fn(l->arg, NULL);
	list_del(&l->link);
	free(l);
}

void dp_revokes_free(struct dp *dp)
{
	struct revoke *v;

	while (!list_empty(&dp->listings))
		listing_end(list_first(&dp->listings, struct listing, link));
	/* Their parts may be under way: the memory goes with the last post. */
	list_for_each (&dp->revokes, v, link) {
		struct dp_result res = {.status = ROS2_CANCELLED};

		loop_timer_stop(&v->partial);
		if (v->done)
			v->done(v->arg, &res);
	}
}

static void tell_partial(void *arg)
{
	struct revoke *v = arg;
	struct dp_result res = v->res;

	if (!sessions_left(v))
		res.revoke.draining = 0;
	res.revoke.keys = v->keys_alive;
	res.revoke.draining += workers_running(v->dp->workers, op_meant, v) + v->keys_alive;
	if (v->done)
		v->done(v->arg, &res);
}

static void tell(struct revoke *v)
{
	if (v == v->dp->freeze) {
		v->dp->freezing = false;
		return;
	}
	loop_timer_stop(&v->partial);
	/* Reactors counted before they waited for devices. */
	if (!sessions_left(v))
		v->res.revoke.draining = 0;
	v->res.revoke.draining += workers_running(v->dp->workers, op_meant, v);
	v->told = true;
	if (v->done)
		v->done(v->arg, &v->res);
	if (v->res.revoke.draining == 0)
		revoke_free(v);
	else
		dp_revokes_check(v->dp);
}

static void keys_back(struct dp_op *op)
{
	struct revoke *v = op->revoke;

	v->res.revoke.last_window_ns =
		MAX(v->res.revoke.last_window_ns, op->res.revoke.last_window_ns);
	v->waits--;
	v->keys_alive -= op->keys_alive;
	dp_op_finish(op);
	if (!v->parts && !v->waits)
		tell(v);
}

/* What a freeze ended is not waited for: who asks again for what was refused waits for its own. */
static bool waits_for_device(struct revoke *v, struct dp_op *op)
{
	if (!op->keys_alive || v->scope != DP_SCOPE_ALL || v == v->dp->freeze)
		return false;
	v->waits++;
	v->keys_alive += op->keys_alive;
	dp_op_to_reactor(op, v->dp->reactors[op - v->part], session_run_keys, keys_back);
	return true;
}

static void part_back(struct dp_op *op)
{
	struct revoke *v = op->revoke;
	const struct dp_result *part = &op->res;

	v->res.revoke.sessions += part->revoke.sessions;
	v->res.revoke.leases += part->revoke.leases;
	v->res.revoke.draining += part->revoke.draining;
	v->res.revoke.windows += part->revoke.windows;
	v->res.revoke.last_window_ns =
		MAX(v->res.revoke.last_window_ns, part->revoke.last_window_ns);
	v->res.revoke.last_byte_ns = MAX(v->res.revoke.last_byte_ns, part->revoke.last_byte_ns);
	v->res.revoke.last_engine_ns =
		MAX(v->res.revoke.last_engine_ns, part->revoke.last_engine_ns);
	if (!waits_for_device(v, op))
		dp_op_finish(op);
	if (--v->parts)
		return;
	if (!v->waits)
		tell(v);
	else if (loop_timer_in_ms(v->dp->loop, &v->partial, DP_REVOKE_PARTIAL_MS, tell_partial, v) <
	         0)
		tell_partial(v);
}

/* ---- tombstones ---- */

static void kill_grant(struct dp *dp, struct dp_grant_obj *g)
{
	/* It is in the map: cannot fail. */
	(void)uidmap_kill(&dp->uids, &g->uid, &g->tenant);
	g->dead = true;
	g->removed = false;
}

static void kill_grants_of(struct dp *dp, const struct ros2_uid *tenant)
{
	struct dp_grant_obj *g;

	list_for_each (&dp->grants, g, link)
		if (!tenant || ros2_uid_eq(&g->tenant, tenant))
			kill_grant(dp, g);
}

static void kill_sessions(const struct revoke *v)
{
	struct dp *dp = v->dp;
	struct dp_session *ds;

	list_for_each (&dp->sessions, ds, link) {
		if (!meant(v, ds))
			continue;
		ds->removed = v->removes &&
		              (ds->removed || uidmap_get(&dp->uids, &ds->uid, NULL) != UID_DEAD);
		(void)uidmap_kill(&dp->uids, &ds->uid, &ds->tenant->uid);
	}
}

/* Withdraws what the uid names, and the sessions under it. -ENOMEM: an unknown uid could not be
 * remembered. */
static int kill_uids(const struct revoke *v)
{
	struct dp *dp = v->dp;
	struct dp_tenant *t = dp_tenant_find(dp, &v->uid);
	struct dp_grant_obj *g = v->scope == DP_SCOPE_GRANT ? grant_left(dp, &v->uid) : NULL;
	int rc = 0;

	if (v->scope == DP_SCOPE_TENANT || v->scope == DP_SCOPE_ALL)
		kill_grants_of(dp, v->scope == DP_SCOPE_ALL ? NULL : &v->uid);
	if (v->scope != DP_SCOPE_ALL)
		rc = uidmap_kill(&dp->uids, &v->uid,
		                 ros2_uid_is_zero(&v->tenant) ? NULL : &v->tenant);
	if (v->scope == DP_SCOPE_TENANT && t)
		t->dead = true;
	if (g) {
		g->dead = true;
		g->removed = v->removes;
	}
	if (may_mean_any(v))
		kill_sessions(v);
	return rc;
}

static void end_sessions(const struct revoke *v)
{
	struct dp_session *ds;

	if (!may_mean_any(v))
		return;
	list_for_each (&v->dp->sessions, ds, link)
		if (meant(v, ds))
			dp_session_ended(ds);
}

static void send_part(struct revoke *v, struct reactor *r, const struct dp_op *like)
{
	struct dp_op *op = &v->part[v->parts];

	dp_op_begin(op, v->dp, NULL, NULL);
	op->revoke = v;
	op->scope = v->scope;
	op->why = like->why;
	op->received_ns = like->received_ns;
	op->of_tenant = like->of_tenant;
	op->of_grant = like->of_grant;
	op->of_session = like->of_session;
	op->of_pd = like->of_pd;
	v->parts++;
	dp_op_to_reactor(op, r, session_run_revoke, part_back);
}

/* Withdrawn ones, too, as long as something of them is left. */
static struct dp_tenant *tenant_left(struct dp *dp, const struct ros2_uid *uid)
{
	struct dp_tenant *t;

	list_for_each (&dp->tenants, t, link)
		if (ros2_uid_eq(&t->uid, uid))
			return t;
	return NULL;
}

static struct dp_session *session_left(struct dp *dp, const struct ros2_uid *uid)
{
	struct dp_session *ds;

	list_for_each (&dp->sessions, ds, link)
		if (ros2_uid_eq(&ds->uid, uid))
			return ds;
	return NULL;
}

static const struct fabric_pd *pd_left(struct dp *dp, const struct ros2_uid *tenant)
{
	const struct dp_tenant *t = tenant_left(dp, tenant);

	return t && t->pd ? t->pd : verbs_kept_pd(dp, tenant);
}

/* The objects reactors compare with; NULL matches none. */
static void name_objects(struct revoke *v, struct dp_op *like)
{
	struct dp *dp = v->dp;
	struct dp_session *ds = v->scope == DP_SCOPE_SESSION ? session_left(dp, &v->uid) : NULL;

	like->of_session = ds ? ds->s : NULL;
	if (v->scope == DP_SCOPE_TENANT)
		like->of_tenant = tenant_left(dp, &v->uid);
	if (v->scope == DP_SCOPE_GRANT)
		like->of_grant = grant_left(dp, &v->uid);
	if (v->scope == DP_SCOPE_TENANT)
		v->tenant = v->uid;
	else if (ds)
		v->tenant = ds->tenant->uid;
	else if (like->of_grant)
		v->tenant = like->of_grant->tenant;
	else
		(void)uidmap_tenant_of(&dp->uids, &v->uid, &v->tenant);
	like->of_pd = ros2_uid_is_zero(&v->tenant) ? NULL : pd_left(dp, &v->tenant);
}

/* What no session holds any more goes at once. */
static void release_dead(const struct revoke *is)
{
	struct dp *dp = is->dp;
	struct dp_grant_obj *g = grant_left(dp, &is->uid), *g_next;
	struct dp_tenant *t, *t_next;

	if (is->scope == DP_SCOPE_TENANT || is->scope == DP_SCOPE_ALL)
		list_for_each_safe (&dp->grants, g, g_next, link)
			dp_grant_release(dp, g);
	else if (g)
		dp_grant_release(dp, g);
	list_for_each_safe (&dp->tenants, t, t_next, link)
		dp_tenant_release(dp, t);
}

/* Everything ends, on memory that was set aside. Again while frozen: nothing has begun since. */
static void freeze(struct dp *dp, uint64_t received_ns)
{
	struct dp_op like = {.why = ROS2_BUSY, .received_ns = received_ns};
	struct revoke *v = dp->freeze;

	if (dp->frozen)
		return;
	dp->frozen = dp->freezing = true;
	*v = (struct revoke){.dp = dp, .scope = DP_SCOPE_ALL, .seq = dp->next_seq};
	for (uint32_t i = 0; i < dp->n_reactors; i++)
		send_part(v, dp->reactors[i], &like);
	end_sessions(v);
}

bool dp_is_frozen(const struct dp *dp)
{
	return dp->frozen;
}

int dp_frozen_check(const struct dp *dp, struct ros2_err *err)
{
	if (!dp->frozen || DP_SWITCH(no_freeze))
		return 0;
	return ros2_err_named(err, ROS2_BUSY,
	                      "the agent is frozen: it had no memory to hold a revocation");
}

int dp_thaw(struct dp *dp)
{
	int rc = 0;

	loop_assert_owner(dp->loop);
	if (!dp->frozen)
		return 0;
	if (dp->freezing)
		return -EBUSY;
	if (dp_ops_reserve(dp) < 0 || dp_revokes_reserve(dp) < 0)
		rc = -ENOMEM;
	if (rc == 0)
		rc = uidmap_restore(&dp->uids);
	if (rc == 0)
		dp->frozen = false;
	return rc;
}

static int withdraw(struct revoke *is, uint64_t received_ns, enum ros2_status why)
{
	struct dp *dp = is->dp;
	struct revoke *v = revoke_new(dp);
	struct dp_op like = {.why = why, .received_ns = received_ns};

	loop_assert_owner(dp->loop);
	name_objects(is, &like);
	if (kill_uids(is) < 0 || !v) {
		if (v)
			revoke_unused(dp, v);
		freeze(dp, received_ns);
		end_sessions(is);
		release_dead(is);
		return -ENOMEM;
	}
	*v = *is;
	list_add_tail(&dp->revokes, &v->link);
	for (uint32_t i = 0; i < dp->n_reactors; i++)
		send_part(v, dp->reactors[i], &like);
	end_sessions(v);
	release_dead(is);
	return 0;
}

int dp_revoke(struct dp *dp, enum dp_scope scope, const struct ros2_uid *uid, uint64_t received_ns,
              enum ros2_status why, dp_done_fn done, void *arg)
{
	struct revoke is = {.dp = dp,
	                    .done = done,
	                    .arg = arg,
	                    .scope = scope,
	                    .uid = uid ? *uid : (struct ros2_uid){{0}},
	                    .seq = dp->next_seq};

	return withdraw(&is, received_ns, why);
}

void dp_grant_remove(struct dp *dp, const struct ros2_uid *grant, enum ros2_status why)
{
	struct revoke is = {.dp = dp,
	                    .scope = DP_SCOPE_GRANT,
	                    .uid = *grant,
	                    .seq = dp->next_seq,
	                    .removes = true};

	/* Not held: it has ended all the same, and everything with it. */
	if (uidmap_get(&dp->uids, grant, NULL) == UID_GRANT)
		(void)withdraw(&is, clock_boottime_ns(), why);
}

/* ---- the list of leases ---- */

static void listing_back(struct dp_op *op)
{
	struct listing *l = op->arg;

	for (uint32_t i = 0; i < op->n_infos && l->left; i++, l->left--) {
		struct dp_lease_info *info = &op->infos[i];
		const struct dp_engine *e = l->dp->engines[info->engine_slot];

		if (info->kind != DP_LEASE_REGION && e)
			snprintf(info->engine, sizeof(info->engine), "%s", e->name);
		l->fn(l->arg, info);
	}
	dp_op_finish(op);
	if (--l->parts == 0)
		listing_end(l);
}

static void listing_part(struct listing *l, struct reactor *r, struct dp_tenant *t,
                         struct dp_op *op)
{
	op->arg = l;
	op->of_tenant = t;
	op->max = MIN(l->left, REACTOR_LEASES);
	l->parts++;
	dp_op_to_reactor(op, r, session_run_leases, listing_back);
}

/* NULL: without memory. */
static struct dp_op *listing_op(struct dp *dp, uint32_t max)
{
	struct dp_op *op = dp_op_try(dp, NULL, NULL);

	if (!op)
		return NULL;
	op->infos = calloc((size_t)MIN(max, REACTOR_LEASES) + REACTOR_WINDOWS, sizeof(*op->infos));
	if (op->infos)
		return op;
	dp_op_free(op);
	return NULL;
}

int dp_leases(struct dp *dp, const struct ros2_uid *tenant, uint32_t max,
              void (*fn)(void *arg, const struct dp_lease_info *info), void *arg)
{
	struct dp_tenant *t = tenant ? tenant_left(dp, tenant) : NULL;
	struct dp_op *parts[DP_REACTORS_MAX] = {0};
	struct listing *l = calloc(1, sizeof(*l));
	bool ok = l != NULL;

	loop_assert_owner(dp->loop);
	/* All of it first: a list that lacks a reactor's leases must not look whole. */
	for (uint32_t i = 0; ok && i < dp->n_reactors; i++) {
		parts[i] = listing_op(dp, max);
		ok = parts[i] != NULL;
	}
	if (!ok) {
		for (uint32_t i = 0; i < dp->n_reactors && parts[i]; i++)
			dp_op_free(parts[i]);
		free(l);
		return -ENOMEM;
	}
	*l = (struct listing){.dp = dp, .fn = fn, .arg = arg, .left = tenant && !t ? 0 : max};
	list_add_tail(&dp->listings, &l->link);
	for (uint32_t i = 0; i < dp->n_reactors; i++)
		listing_part(l, dp->reactors[i], t, parts[i]);
	return 0;
}
