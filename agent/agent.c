/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the agent together and takes it apart. Order of making: what is on disk before what acts on
 * it; the revocation log before anything it may forbid; listening last. Order of ending: refuse new
 * calls, end sessions, write what is to be written, then the parts in reverse.
 */
#include "agent/agent.h"
#include "agent/bundles.h"
#include "agent/grants_priv.h"
#include "agent/health.h"
#include "agent/service.h"
#include "agent/sessions.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/metrics.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "agent"
#include "common/log.h"

#define SWEEP_MS     10000
#define STOP_WAIT_MS 5000

void agent_path(const struct agent *a, const char *name, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%.3900s/%s", a->o.state_dir, name);
}

/* The next process must not give back what this one knows in memory only to have been taken away.
 */
void agent_fatal(struct agent *a, const struct ros2_err *err)
{
	if (a->revoker &&
	    (revoker_is_ahead_of_disk(a->revoker) || persist_is_ahead_of_disk(a->persist)))
		persist_end_in_doubt(a->persist);
	a->o.on_fatal(a->o.arg, err);
}

uint16_t agent_tenant_port(const struct agent *a)
{
	return service_port(a->service);
}

void agent_check_ready(struct agent *a)
{
	if (a->ready_told || !a->serving || !a->synced)
		return;
	a->ready_told = true;
	if (a->o.on_ready)
		a->o.on_ready(a->o.arg);
}

/* ---- what parts tell each other ---- */

static void on_tenant(void *arg, const struct ros2_uid *tenant)
{
	struct agent *a = arg;

	if (a->sessions)
		sessions_on_tenant(a->sessions, tenant);
}

static void on_engine_gone(void *arg, const char *engine)
{
	struct agent *a = arg;

	if (a->sessions)
		sessions_on_engine_gone(a->sessions, engine);
}

static void on_untold(void *arg)
{
	struct agent *a = arg;

	uplink_pump(a->uplink);
}

static void on_dp_event(void *arg, const struct dp_event *ev)
{
	struct agent *a = arg;

	if (a->sessions)
		sessions_on_dp_event(a->sessions, ev);
}

static void on_spool_wrote(void *arg, int r, const struct ros2_err *err)
{
	struct agent *a = arg;

	health_wrote(a->health, HEALTH_SPOOL, r, err);
}

static void on_spool_fatal(void *arg, const struct ros2_err *err)
{
	agent_fatal(arg, err);
}

static void on_sweep(void *arg)
{
	struct agent *a = arg;

	state_sweep(a->state, clock_boottime_ns());
	sessions_tick(a->sessions);
	if (!a->stopping)
		loop_timer_in_ms(a->o.loop, &a->sweep, SWEEP_MS, on_sweep, a);
}

/* ---- making ---- */

static int forget_snapshot(void *arg, struct ros2_err *err)
{
	return persist_forget(arg, err);
}

static int open_revocations(struct agent *a, struct ros2_err *err)
{
	struct revlog_opened info;
	char path[PATH_MAX];
	int r;

	agent_path(a, "revocations", path);
	r = revlog_open(path, forget_snapshot, a, &a->revlog, &info, err);
	if (r < 0)
		return r;
	if (info.damaged)
		log_error("%s: %s; the old file is kept as %s", path, info.words, info.saved_as);
	else if (info.torn)
		log_warn("%s: %s", path, info.words);
	if (info.removed)
		log_warn("%s: %u damaged logs of before were removed: the newest %u are kept", path,
		         info.removed, REVLOG_DAMAGED_KEPT);
	return 0;
}

/* Leaves out what is over, and notes which snapshot is here: an older one is known by it. No other
 * thread writes yet. A full disk is no reason not to start. */
static int tidy_revocations(struct agent *a, struct ros2_err *err)
{
	struct clock_stamp now = {.boottime_ns = clock_boottime_ns()};
	struct tombstone mark = {.kind = REVLOG_MARK,
	                         .snapshot_sequence = persist_sequence(a->persist)};
	AUTO_FREE void *p = NULL;
	size_t len;
	int r;

	memcpy(now.boot_id, a->contact.boot_id, 16);
	r = revlog_compact(a->revlog, &now, a->o.revlog_compact_bytes, &p, &len);
	if (r > 0)
		r = revlog_replace(a->revlog, p, len, err);
	if (r >= 0 && mark.snapshot_sequence > revlog_snapshot_sequence(a->revlog)) {
		r = revlog_write(a->revlog, &mark, err);
		if (!r)
			r = revlog_add(a->revlog, &mark, err);
	}
	if (r < 0 && r != -EIO)
		log_warn("revocations: %s", err->msg);
	return r == -EIO ? r : 0;
}

static int open_spool(struct agent *a, struct ros2_err *err)
{
	char path[PATH_MAX];
	struct spool_opts so = {.dir = path,
	                        .incarnation = a->incarnation,
	                        .quota_bytes = a->o.spool_quota_bytes,
	                        .loop = a->o.loop,
	                        .writer = a->disk_writer,
	                        .on_fatal = on_spool_fatal,
	                        .on_wrote = on_spool_wrote,
	                        .on_ready = on_untold,
	                        .arg = a};
	struct agent_audit_opts ao = {.agent = a->o.identity.name,
	                              .agent_uid = a->o.identity.agent_uid,
	                              .incarnation = a->incarnation,
	                              .loop = a->o.loop};
	struct spool_opened info;
	int r;

	agent_path(a, "spool", path);
	r = spool_open(&so, &a->spool, &info, err);
	if (r < 0)
		return r;
	if (info.records || info.damaged)
		log_info("spool: %llu audit records wait to be sent, %u segments are damaged",
		         (unsigned long long)info.records, info.damaged);
	if (info.removed)
		log_warn("spool: %u segments of which nothing could be read were removed: the "
		         "newest %u are kept",
		         info.removed, SPOOL_BAD_KEPT);
	ao.spool = a->spool;
	r = agent_audit_new(&ao, &a->audit);
	return r < 0 ? ros2_err_set(err, r, "no memory") : 0;
}

static int open_parts(struct agent *a, struct ros2_err *err)
{
	struct dp_opts dpo = {.loop = a->o.loop,
	                      .reactors = a->o.reactors,
	                      .poll_us = a->o.poll_us,
	                      .listen_host = a->o.data_host,
	                      .unproved = a->o.unproved_connections,
	                      .unproved_per_address = a->o.unproved_connections_per_address,
	                      .secrets_dir = a->o.secrets_dir,
	                      .state_dir = a->o.state_dir,
	                      .rdma_device = a->o.rdma_device,
	                      .rdma_host = a->o.rdma_host,
	                      .rdma_total_bytes = a->o.rdma_total_bytes,
	                      .shm_dir = a->o.shm_dir,
	                      .shm_tenant_bytes = a->o.shm_tenant_bytes,
	                      .shm_total_bytes = a->o.shm_total_bytes,
	                      .seal_program = a->o.seal_program,
	                      .on_event = on_dp_event,
	                      .arg = a};
	struct state_opts so = {.io_features = a->o.io_features,
	                        .on_tenant = on_tenant,
	                        .on_engine_gone = on_engine_gone,
	                        .on_untold = on_untold,
	                        .arg = a};
	/* A process that was killed may have left names that only the page cache knows: they stay,
	 * before anybody is told what is here. */
	int r = fsx_sync_dir(a->o.state_dir, err);

	if (!r)
		r = open_revocations(a, err);
	if (!r)
		r = open_spool(a, err);
	if (!r)
		r = dp_new(&dpo, &a->dp, err);
	if (r < 0)
		return r;
	so.dp = a->dp;
	so.revlog = a->revlog;
	memcpy(so.boot_id, a->contact.boot_id, 16);
	r = state_new(&so, &a->state);
	if (!r)
		r = persist_new(a, &a->persist);
	if (!r)
		r = sessions_new(a, &a->sessions);
	if (!r)
		r = grants_new(a, &a->grants);
	if (!r)
		r = revoker_new(a, &a->revoker);
	if (!r)
		r = health_new(a, &a->health);
	if (!r)
		r = bundles_new(a, &a->bundles);
	if (!r)
		r = prober_new(a, &a->prober);
	if (r < 0)
		return ros2_err_set(err, r, "no memory for the agent");
	r = persist_load(a, err);
	return r < 0 ? r : tidy_revocations(a, err);
}

int agent_new(const struct agent_opts *o, struct agent **ret, struct ros2_err *err)
{
	struct agent *a = calloc(1, sizeof(*a));
	struct clock_stamp now;
	int r = a ? clock_stamp_now(&now) : -ENOMEM;

	if (r < 0) {
		free(a);
		loop_free(o->loop);
		return ros2_err_set(err, r, "no memory, or the kernel tells no boot id");
	}
	a->o = *o;
	a->incarnation = ros2_uid_new();
	a->trust.agent_uid = o->identity.agent_uid;
	memcpy(a->trust.snapshot_pub, o->identity.snapshot_pub, ED25519_PUB_LEN);
	contact_init(&a->contact, now.boot_id);
	r = writer_new(o->loop, "revocations", &a->revoke_writer);
	if (!r)
		r = writer_new(o->loop, "disk", &a->disk_writer);
	if (r < 0)
		ros2_err_set(err, r, "cannot start a thread");
	else
		r = open_parts(a, err);
	if (!r && a->contact.known)
		dp_contact(a->dp, a->contact.last_ns);
	if (!r)
		r = service_new(a, &a->service, err);
	if (!r && o->controller)
		r = uplink_new(a, &a->uplink, err);
	if (r < 0) {
		agent_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

int agent_start(struct agent *a, struct ros2_err *err)
{
	int r = service_start(a->service, err);

	if (r < 0)
		return ros2_err_prefix(err, "--listen %s", a->o.listen), r;
	r = agent_metrics_start(a, err);
	if (r < 0)
		return r;
	a->serving = true;
	loop_timer_in_ms(a->o.loop, &a->sweep, SWEEP_MS, on_sweep, a);
	prober_start(a->prober);
	if (a->uplink)
		uplink_start(a->uplink);
	agent_check_ready(a);
	return 0;
}

/* ---- ending ---- */

struct stopping {
	struct agent *a;
	loop_fn fn;
	void *arg;
	bool service_stopped;
	uint64_t until_ns;
	struct loop_timer timer;
};

static void poll_stop(void *arg)
{
	struct stopping *s = arg;
	struct agent *a = s->a;
	bool quiet = s->service_stopped && !sessions_live(a->sessions) && spool_is_idle(a->spool) &&
	             persist_is_idle(a->persist) && !bundles_writing(a->bundles);

	if (!quiet && clock_boottime_ns() < s->until_ns) {
		loop_timer_in_ms(a->o.loop, &s->timer, 20, poll_stop, s);
		return;
	}
	s->fn(s->arg);
}

static void on_service_stopped(void *arg)
{
	((struct stopping *)arg)->service_stopped = true;
}

void agent_stop(struct agent *a, loop_fn fn, void *arg)
{
	struct stopping *s;

	if (a->stopping)
		return;
	a->stopping = true;
	s = calloc(1, sizeof(*s));
	if (!s) {
		fn(arg);
		return;
	}
	*s = (struct stopping){.a = a, .fn = fn, .arg = arg};
	a->stop = s;
	s->until_ns = clock_boottime_ns() + STOP_WAIT_MS * NS_PER_MS;
	loop_timer_stop(&a->sweep);
	sessions_end_all(a->sessions, ROS2_CLOSED);
	agent_audit_tick(a->audit, true);
	if (a->contact.known)
		persist_contact(a->persist, true);
	if (a->serving)
		service_stop(a->service, on_service_stopped, s);
	else
		s->service_stopped = true;
	loop_timer_in_ms(a->o.loop, &s->timer, 0, poll_stop, s);
}

void agent_free(struct agent *a)
{
	if (!a)
		return;
	a->stopping = a->ended = true;
	loop_timer_stop(&a->sweep);
	metrics_stop(a->metrics);
	if (a->spool)
		spool_shut(a->spool);
	uplink_free(a->uplink);
	a->uplink = NULL;
	dp_free(a->dp);
	service_close(a->service);
	grants_free(TAKE_PTR(a->grants));
	agent_audit_free(a->audit);
	prober_stop(a->prober);
	writer_free(a->revoke_writer);
	writer_free(a->disk_writer);
	/* The last callbacks of writers and data plane are posted: they find everything still here.
	 */
	loop_free(a->o.loop);
	service_free(a->service);
	sessions_free(a->sessions);
	revoker_free(a->revoker);
	bundles_free(a->bundles);
	health_free(a->health);
	prober_free(a->prober);
	persist_free(a->persist);
	spool_free(a->spool);
	state_free(a->state);
	revlog_free(a->revlog);
	free(a->stop);
	free(a);
}
