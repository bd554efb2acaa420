/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane as a whole: made, freed; tenants, grants, contact. Loop only, but dp_contact.
 * Invariants: (1) a UID that was withdrawn stays in the map as a tombstone; (2) a tenant's index is
 * used again only after its last session is gone.
 */
#include "common/clock.h"
#include "common/group_limits.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/shm_sealer.h"
#include "dataplane/shm_socket.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Enough for some tenants whose storage is slow to leave one to the others (workers.c). */
#define WORKERS 8u
/* Of a reactor, in the kernel: some in any case; more than a reactor has such calls. */
#define IO_WORKERS_MIN 4u
#define IO_WORKERS_MAX 16384u

/* That this process may use: of a machine's it may have been given a few (cpuset, CPUAffinity=), or
 * time on them (CPUQuota=, a container's CPUs). With more reactors than that time is worth they use
 * it up together, and then all of them stand until the next period. */
static uint32_t cores(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	return MIN(n > 0 ? (uint32_t)n : 1, cpu_limit_cores(""));
}

/* A thread for each call that blocks, for one tenant's keep no others' waiting then (file_uring.c).
 * But one tenant can have hundreds of them at each reactor, and they are threads of this process:
 * at its limit no process is made that seals a tenant's memory, and no thread for a neighbour's
 * calls. So half of what it may have is for all else. */
uint32_t dp_io_workers(uint64_t tasks, uint32_t reactors)
{
	return (uint32_t)MIN(MAX(tasks / 2 / reactors, IO_WORKERS_MIN), IO_WORKERS_MAX);
}

static int start_threads(struct dp *dp, struct ros2_err *err)
{
	int rc = workers_new(dp, dp->opts.control_workers ? dp->opts.control_workers : WORKERS,
	                     &dp->workers);

	if (rc < 0)
		return ros2_err_set(err, rc, "control workers: %s", strerror(-rc));
	if (dp->opts.shm_dir) {
		rc = shm_closer_new(&dp->shm_closer, err);
		if (rc == 0)
			rc = shm_kept_open(dp, err);
		if (rc == 0 && dp->opts.seal_program)
			rc = shm_sealer_new(dp->opts.seal_program, &dp->shm_sealer, err);
		if (rc < 0)
			return rc;
	}
	for (uint32_t i = 0; i < dp->opts.reactors; i++) {
		rc = reactor_new(dp, i, &dp->reactors[i], err);
		if (rc < 0)
			return rc;
		dp->n_reactors++;
	}
	return 0;
}

static int reserve(struct dp *dp, struct ros2_err *err)
{
	if (dp_ops_reserve(dp) < 0 || dp_revokes_reserve(dp) < 0 ||
	    uidmap_reserve(&dp->uids, DP_UIDS_SPARE) < 0)
		return ros2_err_set(err, -ENOMEM, "data plane: no memory to set aside");
	return 0;
}

int dp_new(const struct dp_opts *o, struct dp **ret, struct ros2_err *err)
{
	struct dp *dp;
	int rc;

	if (!o->loop || !o->listen_host || o->reactors > DP_REACTORS_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "data plane: expected a loop, a host and at most %u reactors",
		                    DP_REACTORS_MAX);
	dp = calloc(1, sizeof(*dp));
	if (!dp)
		return ros2_err_set(err, -ENOMEM, "data plane: no memory");
	dp->loop = o->loop;
	dp->opts = *o;
	if (!dp->opts.reactors)
		dp->opts.reactors = MIN(cores(), DP_REACTORS_MAX);
	dp->shm_limit = o->shm_total_bytes ? o->shm_total_bytes : memory_limit_bytes("") / 4;
	dp->io_workers = dp_io_workers(task_limit(""), dp->opts.reactors);
	dp->descriptors = dp_descriptor_share();
	dp->shm_kept.fd = -1;
	list_init(&dp->shm_kept.all);
	list_init(&dp->kept_pds);
	list_init(&dp->tenants);
	list_init(&dp->grants);
	list_init(&dp->sessions);
	list_init(&dp->mounts);
	list_init(&dp->files);
	list_init(&dp->ops);
	list_init(&dp->revokes);
	list_init(&dp->listings);
	list_init(&dp->keys_listings);
	list_init(&dp->spare_ops);
	list_init(&dp->spare_revokes);
	rc = dp_unquiet_open(dp, err);
	if (rc == 0)
		rc = reserve(dp, err);
	if (rc == 0 && dp->opts.rdma_device)
		rc = verbs_device_open(dp, err);
	if (rc == 0)
		rc = start_threads(dp, err);
	if (rc < 0) {
		dp_free(dp);
		return rc;
	}
	*ret = dp;
	return 0;
}

/* ---- end ---- */

static void cancel_ops(struct dp *dp)
{
	struct dp_op *op;

	list_for_each (&dp->ops, op, link) {
		struct dp_result res = {.status = ROS2_CANCELLED};

		if (op->ns)
			op->engine->ops->ns_close(TAKE_PTR(op->ns));
		if (op->efile)
			op->engine->ops->close(TAKE_PTR(op->efile));
		if (op->done)
			op->done(op->arg, &res);
	}
}

static void close_engines(struct dp *dp)
{
	struct dp_file *f;
	struct dp_mount_obj *m;

	list_for_each (&dp->files, f, link)
		if (f->file)
			f->mount->engine->ops->close(TAKE_PTR(f->file));
	list_for_each (&dp->mounts, m, link)
		if (m->ns)
			m->engine->ops->ns_close(TAKE_PTR(m->ns));
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++) {
		if (!dp->engines[i])
			continue;
		dp_engine_destroy(dp->engines[i]);
		dp_engine_free(TAKE_PTR(dp->engines[i]));
	}
}

/* The reactors have let go of everything. */
static void close_device(struct dp *dp)
{
	struct dp_session *ds;
	struct dp_tenant *t;

	for (uint32_t i = 0; i < dp->n_reactors; i++)
		verbs_free(dp->reactors[i]);
	/* Engines may still be ending connections of theirs. */
	close_engines(dp);
	list_for_each (&dp->sessions, ds, link)
		shm_lend_drop(ds);
	list_for_each (&dp->tenants, t, link)
		verbs_tenant_pd_free(dp, t);
	verbs_kept_free(dp);
	loop_timer_stop(&dp->pds_timer);
	verbs_device_close(dp);
}

/* Frees every member of a list whose element begins at @offset before its link. */
static void free_all(struct list *head, size_t offset)
{
	while (!list_empty(head)) {
		struct list *n = head->next;

		list_del(n);
		free((char *)n - offset);
	}
}

void dp_freed(struct dp *dp)
{
	while (!list_empty(&dp->ops))
		dp_op_free(list_first(&dp->ops, struct dp_op, link));
	while (!list_empty(&dp->sessions))
		dp_session_free(list_first(&dp->sessions, struct dp_session, link));
	shm_kept_close(dp);
	free_all(&dp->files, offsetof(struct dp_file, link));
	free_all(&dp->mounts, offsetof(struct dp_mount_obj, link));
	HASH_CLEAR(hh, dp->grants_by_uid);
	free_all(&dp->grants, offsetof(struct dp_grant_obj, link));
	free_all(&dp->tenants, offsetof(struct dp_tenant, link));
	for (uint32_t i = 0; i < dp->n_reactors; i++)
		reactor_free(dp->reactors[i]);
	shm_closer_free(dp->shm_closer);
	for (uint32_t i = 0; i < DP_ENGINES_MAX; i++)
		free(dp->engine_drops[i]);
	free(dp->rdma_lost);
	dp_ops_unreserve(dp);
	dp_revokes_unreserve(dp);
	uidmap_fini(&dp->uids);
	free(dp);
}

void dp_free(struct dp *dp)
{
	if (!dp)
		return;
	loop_assert_owner(dp->loop);
	shm_sealer_stop(dp->shm_sealer);
	if (dp->workers) {
		workers_stop(dp->workers);
		workers_free(TAKE_PTR(dp->workers));
	}
	shm_sealer_free(TAKE_PTR(dp->shm_sealer));
	for (uint32_t i = 0; i < dp->n_reactors; i++)
		reactor_stop(dp->reactors[i]);
	dp_revokes_free(dp);
	dp_keys_free(dp);
	dp_denied_cancel(dp);
	cancel_ops(dp);
	close_device(dp);
	dp_unquiet_close(dp, true);
	shm_kept_stop(dp);
	dp->freed = true;
	if (atomic_load(&dp->n_posts) == 0)
		dp_freed(dp);
}

/* ---- tenants and grants ---- */

struct dp_tenant *dp_tenant_find(struct dp *dp, const struct ros2_uid *uid)
{
	void *obj = NULL;

	return uidmap_get(&dp->uids, uid, &obj) == UID_TENANT ? obj : NULL;
}

static uint64_t ms_to_ns(uint64_t ms)
{
	return ms > UINT64_MAX / NS_PER_MS ? UINT64_MAX : ms * NS_PER_MS;
}

static void apply_limits(struct dp_tenant *t, const struct dp_tenant_limits *l)
{
	uint64_t burst = ms_to_ns(l->burst_ms), now = clock_boottime_ns();

	t->limits = *l;
	atomic_store_explicit(&t->contact_limit_ns, ms_to_ns(l->contact_limit_ms),
	                      memory_order_relaxed);
	atomic_store_explicit(&t->lease_ttl_ns, ms_to_ns(l->lease_ttl_ms), memory_order_relaxed);
	atomic_store_explicit(&t->violations_limit, l->violations_limit, memory_order_relaxed);
	atomic_store_explicit(&t->violations_kill, l->violations_kill, memory_order_relaxed);
	qos_bucket_set(&t->qos[QOS_READ_BYTES], l->read_bytes_per_s, burst, now);
	qos_bucket_set(&t->qos[QOS_READ_OPS], l->read_iops, burst, now);
	qos_bucket_set(&t->qos[QOS_WRITE_BYTES], l->write_bytes_per_s, burst, now);
	qos_bucket_set(&t->qos[QOS_WRITE_OPS], l->write_iops, burst, now);
}

static int add_tenant(struct dp *dp, const struct ros2_uid *uid, const char *name,
                      struct dp_tenant **ret, struct ros2_err *err)
{
	struct dp_tenant *t;
	uint32_t i = 0;

	while (i < LEASE_TENANTS_MAX && dp->by_index[i])
		i++;
	if (i == LEASE_TENANTS_MAX)
		return ros2_err_named(err, ROS2_LIMIT,
		                      "tenants of an agent: the limit is %u (fixed)",
		                      LEASE_TENANTS_MAX);
	t = calloc(1, sizeof(*t));
	if (!t || uidmap_put(&dp->uids, uid, UID_TENANT, t) < 0) {
		free(t);
		return ros2_err_set(err, -ENOMEM, "no memory for a tenant");
	}
	t->uid = *uid;
	t->index = i;
	snprintf(t->name, sizeof(t->name), "%s", name);
	dp->by_index[i] = t;
	list_add_tail(&dp->tenants, &t->link);
	*ret = t;
	return 0;
}

int dp_tenant_put(struct dp *dp, const struct ros2_uid *tenant, const char *name,
                  const struct dp_tenant_limits *l, struct ros2_err *err)
{
	enum uid_kind kind = uidmap_get(&dp->uids, tenant, NULL);
	struct dp_tenant *t = dp_tenant_find(dp, tenant);

	loop_assert_owner(dp->loop);
	if (kind == UID_DEAD)
		return ros2_err_named(err, ROS2_REVOKED, "tenant '%s': this uid was withdrawn",
		                      name);
	if (kind != UID_NONE && kind != UID_TENANT)
		return ros2_err_named(err, ROS2_EXISTS, "tenant '%s': the uid names something else",
		                      name);
	if (!t) {
		int rc = dp_frozen_check(dp, err);

		if (rc == 0)
			rc = add_tenant(dp, tenant, name, &t, err);
		if (rc < 0)
			return rc;
	}
	apply_limits(t, l);
	return 0;
}

void dp_tenant_release(struct dp *dp, struct dp_tenant *t)
{
	if (!t->dead || t->n_sessions || t->n_control || t->n_descriptors)
		return;
	/* Without memory it goes with the next one that does. */
	if (verbs_tenant_pd_free(dp, t) < 0)
		return;
	dp->by_index[t->index] = NULL;
	list_del(&t->link);
	free(t);
}

void dp_grant_release(struct dp *dp, struct dp_grant_obj *g)
{
	if (!g->dead || g->n_sessions)
		return;
	if (g->removed)
		uidmap_pass(&dp->uids, &g->uid);
	HASH_DEL(dp->grants_by_uid, g);
	list_del(&g->link);
	free(g);
}

int dp_tenant_remove(struct dp *dp, const struct ros2_uid *tenant, struct ros2_err *err)
{
	loop_assert_owner(dp->loop);
	if (!dp_tenant_find(dp, tenant))
		return ros2_err_named(err, ROS2_NOT_FOUND, "no such tenant");
	/* Its uid is known: it ends also when nothing of it can be held. */
	(void)dp_revoke(dp, DP_SCOPE_TENANT, tenant, clock_boottime_ns(), ROS2_REVOKED, NULL, NULL);
	return 0;
}

/* NULL: no memory. */
static struct dp_grant_obj *new_grant(struct dp *dp, const struct dp_grant *g)
{
	struct dp_grant_obj *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->uid = g->grant;
	HASH_ADD(hh, dp->grants_by_uid, uid, sizeof(o->uid), o);
	if (!HASH_TOOK(hh, o)) {
		free(o);
		return NULL;
	}
	if (uidmap_put(&dp->uids, &g->grant, UID_GRANT, o) == 0)
		return o;
	HASH_DEL(dp->grants_by_uid, o);
	free(o);
	return NULL;
}

static void set_terms(struct dp_grant_obj *o, const struct dp_grant *g)
{
	o->access = g->access;
	atomic_store(&o->max_keys, g->max_keys);
	atomic_store(&o->max_bytes, g->max_bytes);
	atomic_store(&o->deadline_ns, g->deadline_ns);
}

static int add_grant(struct dp *dp, const struct dp_grant *g, struct ros2_err *err)
{
	struct dp_grant_obj *o;
	int rc = dp_frozen_check(dp, err);

	if (rc < 0)
		return rc;
	if (!dp_tenant_find(dp, &g->tenant))
		return ros2_err_named(err,
		                      uidmap_get(&dp->uids, &g->tenant, NULL) == UID_DEAD
		                              ? ROS2_REVOKED
		                              : ROS2_NOT_FOUND,
		                      "the grant's tenant is not here");
	o = new_grant(dp, g);
	if (!o)
		return ros2_err_set(err, -ENOMEM, "no memory for a grant");
	o->tenant = g->tenant;
	o->id = ++dp->next_grant;
	set_terms(o, g);
	list_add_tail(&dp->grants, &o->link);
	return 0;
}

int dp_grant_put(struct dp *dp, const struct dp_grant *g, struct ros2_err *err)
{
	void *obj = NULL;
	struct dp_grant_obj *o;

	loop_assert_owner(dp->loop);
	switch (uidmap_get(&dp->uids, &g->grant, &obj)) {
	case UID_NONE:
		return add_grant(dp, g, err);
	case UID_DEAD:
		return ros2_err_named(err, ROS2_REVOKED, "this grant was withdrawn");
	case UID_GRANT:
		break;
	default:
		return ros2_err_named(err, ROS2_EXISTS, "the grant's uid names something else");
	}
	o = obj;
	if (!ros2_uid_eq(&o->tenant, &g->tenant))
		return ros2_err_named(err, ROS2_CONFLICT, "the grant belongs to another tenant");
	/* Its end has passed: sessions have ended by it, so it cannot be taken back. */
	if (clock_boottime_ns() >= atomic_load(&o->deadline_ns)) {
		(void)dp_revoke(dp, DP_SCOPE_GRANT, &g->grant, clock_boottime_ns(),
		                ROS2_GRANT_EXPIRED, NULL, NULL);
		return ros2_err_named(err, ROS2_REVOKED, "this grant has ended");
	}
	set_terms(o, g);
	return 0;
}

void dp_contact(struct dp *dp, uint64_t stamp_ns)
{
	uint64_t was = atomic_load_explicit(&dp->contact_ns, memory_order_relaxed);

	while (was < stamp_ns && !atomic_compare_exchange_weak(&dp->contact_ns, &was, stamp_ns))
		;
}

uint32_t dp_lease_count(struct dp *dp)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < dp->n_reactors; i++)
		n += atomic_load_explicit(&dp->reactors[i]->n_leases, memory_order_relaxed);
	return n;
}

bool dp_slots(struct dp *dp, uint32_t i, struct dp_slots *ret)
{
	if (i >= dp->n_reactors)
		return false;
	*ret = (struct dp_slots){slots_taken(dp->reactors[i]->slots),
	                         slots_total(dp->reactors[i]->slots)};
	return true;
}
