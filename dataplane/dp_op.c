/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous calls: made on the loop, carried to a reactor or a worker, ended on the loop exactly
 * once. An operation holds a count on whatever it names, so nothing it points to goes away under
 * it.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run_post(void *arg)
{
	struct dp_post *p = arg;
	struct dp *dp = p->dp;

	if (!dp->freed)
		p->fn(p);
	/* Not touched after this: the callback may have freed what held @p. */
	if (atomic_fetch_sub(&dp->n_posts, 1) == 1 && dp->freed)
		dp_freed(dp);
}

void dp_post(struct dp *dp, struct dp_post *p, void (*fn)(struct dp_post *p))
{
	p->dp = dp;
	p->fn = fn;
	atomic_fetch_add(&dp->n_posts, 1);
	loop_post_urgent(dp->loop, &p->post, run_post, p);
}

int dp_ops_reserve(struct dp *dp)
{
	while (dp->n_spare_ops < DP_OPS_SPARE) {
		struct dp_op *op = calloc(1, sizeof(*op));

		if (!op)
			return -ENOMEM;
		list_add_tail(&dp->spare_ops, &op->link);
		dp->n_spare_ops++;
	}
	return 0;
}

void dp_ops_unreserve(struct dp *dp)
{
	while (!list_empty(&dp->spare_ops)) {
		struct dp_op *op = list_first(&dp->spare_ops, struct dp_op, link);

		list_del(&op->link);
		free(op);
	}
	dp->n_spare_ops = 0;
}

/* ---- calls for which there is nothing at all ---- */

static void deny_next(struct dp *dp)
{
	struct dp_result res = {.status = ROS2_BUSY};
	struct dp_denied d = dp->denied.v[dp->denied.first];

	dp->denied.first = (dp->denied.first + 1) % DP_DENIED;
	dp->denied.n--;
	snprintf(res.words, sizeof(res.words), "the agent has no memory");
	d.done(d.arg, &res);
}

static void on_denied(struct dp_post *p)
{
	struct dp *dp = container_of(p, struct dp, denied.post);

	/* Those that are denied by what is called from here are another turn's. */
	dp->denied.posted = false;
	for (uint32_t n = dp->denied.n; n && dp->denied.n; n--)
		deny_next(dp);
	if (dp->denied.n && !dp->denied.posted) {
		dp->denied.posted = true;
		dp_post(dp, &dp->denied.post, on_denied);
	}
}

/* Its end is told later, as every other; when too many wait for that, the first is told now, which
 * is a call of before and none that is under way. */
static void deny(struct dp *dp, dp_done_fn done, void *arg)
{
	if (!done)
		return;
	if (dp->denied.n == DP_DENIED)
		deny_next(dp);
	dp->denied.v[(dp->denied.first + dp->denied.n) % DP_DENIED] = (struct dp_denied){done, arg};
	dp->denied.n++;
	if (dp->denied.posted)
		return;
	dp->denied.posted = true;
	dp_post(dp, &dp->denied.post, on_denied);
}

void dp_denied_cancel(struct dp *dp)
{
	struct dp_result res = {.status = ROS2_CANCELLED};

	while (dp->denied.n) {
		struct dp_denied d = dp->denied.v[dp->denied.first];

		dp->denied.first = (dp->denied.first + 1) % DP_DENIED;
		dp->denied.n--;
		d.done(d.arg, &res);
	}
}

/* NULL: there is none. */
static struct dp_op *take_spare(struct dp *dp)
{
	struct dp_op *op;

	if (list_empty(&dp->spare_ops))
		return NULL;
	op = list_first(&dp->spare_ops, struct dp_op, link);
	list_del(&op->link);
	dp->n_spare_ops--;
	op->spare = true;
	return op;
}

static void begin(struct dp_op *op, struct dp *dp, dp_done_fn done, void *arg)
{
	op->dp = dp;
	op->done = done;
	op->arg = arg;
	list_init(&op->job);
	list_add_tail(&dp->ops, &op->link);
}

struct dp_op *dp_op_try(struct dp *dp, dp_done_fn done, void *arg)
{
	struct dp_op *op = calloc(1, sizeof(*op));

	if (op)
		begin(op, dp, done, arg);
	return op;
}

void dp_op_begin(struct dp_op *op, struct dp *dp, dp_done_fn done, void *arg)
{
	*op = (struct dp_op){.lent = true};
	begin(op, dp, done, arg);
}

struct dp_op *dp_op_new(struct dp *dp, dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_try(dp, done, arg);

	if (op)
		return op;
	op = take_spare(dp);
	if (op)
		begin(op, dp, done, arg);
	else
		deny(dp, done, arg);
	return op;
}

void dp_op_set(struct dp_op *op, enum ros2_status s, const char *fmt, ...)
{
	va_list ap;

	op->res.status = s;
	va_start(ap, fmt);
	vsnprintf(op->res.words, sizeof(op->res.words), fmt, ap);
	va_end(ap);
}

void dp_op_set_err(struct dp_op *op, int code, const struct ros2_err *err)
{
	enum ros2_status s = err->status != ROS2_OK ? err->status : ros2_status_from_errno(code);

	/* What an engine says without a name of ours is its failure, not a bug of this side. */
	if (s == ROS2_INTERNAL)
		s = ROS2_IO;
	dp_op_set(op, s, "%s", err->msg[0] ? err->msg : ros2_status_text(s));
}

void dp_op_fail(struct dp_op *op, enum ros2_status s, const char *fmt, ...)
{
	va_list ap;

	op->res.status = s;
	va_start(ap, fmt);
	vsnprintf(op->res.words, sizeof(op->res.words), fmt, ap);
	va_end(ap);
	op->back = dp_op_finish;
	dp_op_back(op);
}

void dp_op_free(struct dp_op *op)
{
	struct dp *dp = op->dp;

	list_del(&op->link);
	free(op->path);
	free(op->to);
	free(op->entries);
	free(op->infos);
	free(op->keys_of);
	dp_session_give_back(op);
	if (op->lent)
		return;
	if (dp->freed || dp->n_spare_ops == DP_OPS_SPARE) {
		free(op);
		return;
	}
	*op = (struct dp_op){0};
	list_add_tail(&dp->spare_ops, &op->link);
	dp->n_spare_ops++;
}

void dp_op_finish(struct dp_op *op)
{
	struct dp_mount_obj *mount = op->mount;
	struct dp_tenant *tenant = op->tenant;
	struct dp_session *ds = op->ds;
	struct dp_file *file = op->file;
	struct dp *dp = op->dp;

	if (op->done)
		op->done(op->arg, &op->res);
	/* First: it may be a part of what goes below. */
	dp_op_free(op);
	if (tenant) {
		tenant->n_control--;
		dp_tenant_release(dp, tenant);
	}
	if (file)
		dp_file_unref(file);
	if (mount)
		dp_mount_unref(dp, mount);
	if (ds) {
		ds->n_ops--;
		dp_session_release(ds);
	}
	/* A call inside an engine is part of what a revocation waits for. */
	if (!list_empty(&dp->revokes))
		dp_revokes_check(dp);
}

void dp_op_to_reactor(struct dp_op *op, struct reactor *r,
                      void (*run)(struct reactor *r, struct dp_op *op),
                      void (*back)(struct dp_op *op))
{
	op->stage = OP_REACTOR;
	op->run = run;
	op->back = back;
	reactor_send(r, op);
}

static void on_back(struct dp_post *p)
{
	struct dp_op *op = container_of(p, struct dp_op, post);

	op->stage = OP_LOOP;
	op->back(op);
}

void dp_op_back(struct dp_op *op)
{
	dp_post(op->dp, &op->post, on_back);
}

void dp_op_to_worker(struct dp_op *op, struct dp_tenant *tenant, void (*work)(struct dp_op *op),
                     void (*back)(struct dp_op *op))
{
	/* A second round trip of the same call keeps its place. */
	if (tenant && !op->tenant) {
		if (tenant->n_control >= DP_CONTROL_PER_TENANT && !DP_SWITCH(no_control_bound)) {
			/* The back function still undoes what the call prepared. */
			dp_op_set(
				op, ROS2_BUSY,
				"control calls of the tenant: the limit is %u at once (fixed): try "
				"again when one has been answered",
				DP_CONTROL_PER_TENANT);
			op->back = back;
			dp_op_back(op);
			return;
		}
		op->tenant = tenant;
		tenant->n_control++;
	}
	op->work = work;
	op->back = back;
	workers_put(op->dp->workers, op);
}

struct dp_op *dp_op_of_session(struct dp *dp, const struct ros2_uid *session, dp_done_fn done,
                               void *arg)
{
	struct dp_op *op = dp_op_of_session_shrinking(dp, session, done, arg);

	if (!op || !op->spare)
		return op;
	dp_op_fail(op, ROS2_BUSY, "the agent has no memory");
	return NULL;
}

struct dp_op *dp_op_of_session_shrinking(struct dp *dp, const struct ros2_uid *session,
                                         dp_done_fn done, void *arg)
{
	struct dp_op *op = dp_op_new(dp, done, arg);
	struct dp_session *ds = dp_session_find(dp, session);
	enum ros2_status st;

	loop_assert_owner(dp->loop);
	if (!op)
		return NULL;
	if (!ds) {
		st = uidmap_get(&dp->uids, session, NULL) == UID_DEAD ? ROS2_REVOKED
		                                                      : ROS2_BAD_SESSION;
	} else if (ds->ended) {
		st = ROS2_CLOSED;
	} else {
		st = dp_rights_now(dp, ds->tenant, ds->grant, ds->cert_deadline_ns,
		                   clock_boottime_ns());
	}
	if (st != ROS2_OK) {
		dp_op_fail(op, st, "%s", ros2_status_text(st));
		return NULL;
	}
	op->ds = ds;
	ds->n_ops++;
	return op;
}
