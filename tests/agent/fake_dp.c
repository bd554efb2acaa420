/* SPDX-License-Identifier: Apache-2.0 */
/* Implements dp.h for tests: see fake_dp.h. Unlike the real one it trusts its caller with paths and
 * limits, so a test that passes did not lean on the data plane's own checks. */
#include "tests/agent/fake_dp.h"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/util.h"
#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define SESSIONS_MAX 256

struct fake_session {
	bool live, connected;
	struct ros2_uid uid, tenant, grant;
	uint32_t next_mount, next_key;
	uint64_t next_handle;
};
struct dp {
	struct dp_opts o;
	struct fake_session s[SESSIONS_MAX];
};
struct fake_dp_log fake_dp_log;
_Atomic enum ros2_status fake_dp_fail_put, fake_dp_fail_call;
const char *fake_dp_fail_words;
_Atomic enum fake_dp_loss fake_dp_loss;
_Atomic unsigned fake_dp_draining;
_Atomic fake_dp_health_fn fake_dp_health;
_Atomic uint64_t fake_dp_read_ops;
_Atomic bool fake_dp_no_memory, fake_dp_frozen, fake_dp_engine_busy;
static _Atomic unsigned n_sessions;

/* Of a kind that no sweep fails: the agent's memory is swept, not that of its double. */
static void *own(size_t n)
{
	void *p = memalign(_Alignof(max_align_t), n);

	assert(p);
	return memset(p, 0, n);
}

struct answer {
	struct loop_post post;
	struct list link; /* held */
	struct dp *dp;
	dp_done_fn done;
	void *arg;
	struct dp_result res;
};

static void run(void *arg)
{
	struct answer *a = arg;

	if (a->done)
		a->done(a->arg, &a->res);
	free(a);
}

_Atomic bool fake_dp_hold;
_Atomic unsigned fake_dp_held;
void *_Atomic fake_dp_held_for;
static struct list held = {&held, &held};

void fake_dp_answer(void *unused)
{
	fake_dp_hold = false;
	while (!list_empty(&held)) {
		struct answer *a = list_first(&held, struct answer, link);

		list_del(&a->link);
		fake_dp_held--;
		loop_post_urgent(a->dp->o.loop, &a->post, run, a);
	}
}

static void answer(struct dp *dp, dp_done_fn done, void *arg, const struct dp_result *res)
{
	struct answer *a = own(sizeof(*a));

	a->done = done;
	a->arg = arg;
	a->res = *res;
	if (fake_dp_fail_call) {
		a->res = (struct dp_result){.status = fake_dp_fail_call};
		strcpy(a->res.words, "the test says so");
		fake_dp_fail_call = ROS2_OK;
	}
	a->dp = dp;
	if (!fake_dp_hold) {
		loop_post_urgent(dp->o.loop, &a->post, run, a);
		return;
	}
	list_add_tail(&held, &a->link);
	fake_dp_held_for = arg;
	fake_dp_held++;
}

static struct fake_session *find(struct dp *dp, const struct ros2_uid *uid)
{
	for (int i = 0; i < SESSIONS_MAX; i++)
		if (dp->s[i].live && ros2_uid_eq(&dp->s[i].uid, uid))
			return &dp->s[i];
	return NULL;
}

unsigned fake_dp_sessions(void)
{
	return n_sessions;
}

int dp_new(const struct dp_opts *o, struct dp **ret, struct ros2_err *err)
{
	struct dp *dp = own(sizeof(*dp));

	dp->o = *o;
	*ret = dp;
	memset(&fake_dp_log, 0, sizeof(fake_dp_log));
	fake_dp_fail_put = ROS2_OK;
	fake_dp_fail_words = NULL;
	fake_dp_fail_call = ROS2_OK;
	n_sessions = 0;
	fake_dp_draining = 0;
	fake_dp_read_ops = 0;
	fake_dp_no_memory = fake_dp_frozen = fake_dp_engine_busy = false;
	return 0;
}

void dp_free(struct dp *dp)
{
	free(dp);
}

static int put(struct ros2_err *err)
{
	enum ros2_status st = fake_dp_fail_put;

	fake_dp_fail_put = ROS2_OK;
	return st ? ros2_err_named(err, st, "%s",
	                           fake_dp_fail_words ? fake_dp_fail_words : "the test says so")
	          : 0;
}

int dp_engine_put(struct dp *dp, const struct dp_engine_config *c, struct ros2_err *err)
{
	fake_dp_log.engine_puts++;
	if (c->nvmf)
		fake_dp_log.nvmf = *c->nvmf;
	return put(err);
}

int dp_engine_remove(struct dp *dp, const char *name, struct ros2_err *err)
{
	fake_dp_log.engine_removes++;
	return fake_dp_engine_busy ? ros2_err_named(err, ROS2_BUSY, "the test says so") : 0;
}

int dp_tenant_put(struct dp *dp, const struct ros2_uid *tenant, const char *name,
                  const struct dp_tenant_limits *l, struct ros2_err *err)
{
	fake_dp_log.tenant_puts++;
	return put(err);
}

int dp_tenant_remove(struct dp *dp, const struct ros2_uid *tenant, struct ros2_err *err)
{
	return 0;
}

int dp_grant_put(struct dp *dp, const struct dp_grant *g, struct ros2_err *err)
{
	fake_dp_log.grant_puts++;
	return put(err);
}

void dp_contact(struct dp *dp, uint64_t stamp_ns)
{
	fake_dp_log.contact_ns = stamp_ns;
}

void dp_session_open(struct dp *dp, const struct dp_session_params *p, dp_done_fn done, void *arg)
{
	struct dp_result res = {
		.session = {.port = 7000, .credits = 64, .max_io = 1 << 20, .max_inline = 16384}};

	fake_dp_log.session_opens++;
	if (p->transport == DP_TRANSPORT_SHM)
		res.session.shm_path = "/nobody/listens/here";
	for (int i = 0; i < SESSIONS_MAX && !fake_dp_fail_call; i++)
		if (!dp->s[i].live) {
			dp->s[i] = (struct fake_session){.live = true,
			                                 .uid = p->session,
			                                 .tenant = p->tenant,
			                                 .grant = p->grant,
			                                 .next_mount = 1,
			                                 .next_handle = 100,
			                                 .next_key = 4000};
			n_sessions++;
			break;
		}
	memset(res.session.secret, 0x5a, DP_SECRET_LEN);
	answer(dp, done, arg, &res);
}

static void end(struct dp *dp, struct fake_session *s, enum ros2_status why)
{
	struct dp_event ev = {.type = DP_EVENT_SESSION_ENDED,
	                      .session = s->uid,
	                      .tenant = s->tenant,
	                      .grant = s->grant,
	                      .status = why};

	s->live = false;
	n_sessions--;
	ev.stats.read_bytes = 4096;
	fake_dp_event(dp, &ev);
}

void dp_session_close(struct dp *dp, const struct ros2_uid *session, enum ros2_status why,
                      dp_done_fn done, void *arg)
{
	struct dp_result res = {.status = ROS2_OK};
	struct fake_session *s = find(dp, session);

	fake_dp_log.session_closes++;
	if (s)
		end(dp, s, why);
	answer(dp, done, arg, &res);
}

_Atomic bool fake_dp_hold_gone;
_Atomic unsigned fake_dp_waiting;
static struct list waiting = {&waiting, &waiting};

bool dp_session_await_gone(struct dp *dp, const struct ros2_uid *session, struct dp_gone *w)
{
	if (!fake_dp_hold_gone)
		return false;
	list_add_tail(&waiting, &w->link);
	fake_dp_waiting++;
	return true;
}

void dp_gone_cancel(struct dp_gone *w)
{
	list_del(&w->link);
	fake_dp_waiting--;
}

void fake_dp_let_go(void *unused)
{
	while (!list_empty(&waiting)) {
		struct dp_gone *w = list_first(&waiting, struct dp_gone, link);

		list_del(&w->link);
		fake_dp_waiting--;
		w->fn(w);
	}
}

int dp_session_stats(struct dp *dp, const struct ros2_uid *session, struct dp_session_stats *ret)
{
	struct fake_session *s = find(dp, session);

	if (!s)
		return -ENOENT;
	*ret = (struct dp_session_stats){
		.connected = s->connected, .read_bytes = 4096, .read_ops = fake_dp_read_ops};
	return 0;
}

/* The answer to a call that was carried out, which may come for a session that has ended. */
static void carried_out(struct dp *dp, struct fake_session *s, dp_done_fn done, void *arg,
                        const struct dp_result *res)
{
	enum fake_dp_loss loss = s ? atomic_exchange(&fake_dp_loss, FAKE_DP_STAYS) : FAKE_DP_STAYS;

	if (loss == FAKE_DP_LOST_BEFORE)
		end(dp, s, ROS2_CLOSED);
	answer(dp, done, arg, res);
	if (loss == FAKE_DP_LOST_BEHIND)
		end(dp, s, ROS2_CLOSED);
}

void dp_mount(struct dp *dp, const struct ros2_uid *session, const char *engine, const char *path,
              uint32_t access, dp_done_fn done, void *arg)
{
	struct fake_session *s = find(dp, session);
	struct dp_result res = {.status = s ? ROS2_OK : ROS2_BAD_SESSION};

	fake_dp_log.mounts++;
	snprintf(fake_dp_log.last_mounted, sizeof(fake_dp_log.last_mounted), "%s", path);
	if (s)
		res.mount.mount = s->next_mount++;
	answer(dp, done, arg, &res);
}

void dp_open(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
             uint32_t flags, uint32_t mode, dp_done_fn done, void *arg)
{
	struct fake_session *s = find(dp, session);
	struct dp_result res = {.status = s ? ROS2_OK : ROS2_BAD_SESSION};

	fake_dp_log.opens++;
	snprintf(fake_dp_log.last_path, sizeof(fake_dp_log.last_path), "%s", path);
	if (s)
		res.open.handle = s->next_handle++;
	res.open.size = 42;
	carried_out(dp, s, done, arg, &res);
}

static void plain(struct dp *dp, dp_done_fn done, void *arg)
{
	struct dp_result res = {.status = ROS2_OK};

	answer(dp, done, arg, &res);
}

void dp_close(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	fake_dp_log.closes++;
	plain(dp, done, arg);
}

void dp_fstat(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	struct dp_result res = {.attr = {.type = 1, .size = 42}};

	answer(dp, done, arg, &res);
}

void dp_truncate(struct dp *dp, const struct ros2_uid *session, uint64_t handle, uint64_t size,
                 dp_done_fn done, void *arg)
{
	struct dp_result res = {.status = ROS2_OK};

	fake_dp_log.truncates++;
	carried_out(dp, find(dp, session), done, arg, &res);
}

void dp_flush(struct dp *dp, const struct ros2_uid *session, uint64_t handle, dp_done_fn done,
              void *arg)
{
	plain(dp, done, arg);
}

void dp_path(struct dp *dp, const struct ros2_uid *session, uint32_t mount, enum dp_path_op op,
             const char *path, const char *to, uint32_t mode, dp_done_fn done, void *arg)
{
	/* Directories are those whose names say so. */
	bool is_dir = !strncmp(path, "dir", 3) || !strcmp(path, "deep");
	struct dp_result res = {.attr = {.type = is_dir ? 2 : 1, .size = 42}};

	fake_dp_log.paths++;
	fake_dp_log.renames += op == DP_RENAME;
	snprintf(fake_dp_log.last_path, sizeof(fake_dp_log.last_path), "%s", path);
	carried_out(dp, find(dp, session), done, arg, &res);
}

void dp_readdir(struct dp *dp, const struct ros2_uid *session, uint32_t mount, const char *path,
                uint64_t cookie, uint32_t max, dp_done_fn done, void *arg)
{
	static const struct dp_dirent entries[] = {{"a", 1}, {"b", 2}};
	struct dp_result res = {.dir = {.entries = entries, .n = 2}};

	answer(dp, done, arg, &res);
}

void dp_region_register(struct dp *dp, const struct ros2_uid *session, uint64_t base,
                        uint64_t length, uint32_t access, dp_done_fn done, void *arg)
{
	struct fake_session *s = find(dp, session);
	struct dp_result res = {.status = s ? ROS2_OK : ROS2_BAD_SESSION};

	fake_dp_log.regions++;
	if (s)
		res.region.key = s->next_key++;
	res.region.lease_id = 77;
	res.region.ttl_ms = 30000;
	answer(dp, done, arg, &res);
}

void dp_region_renew(struct dp *dp, const struct ros2_uid *session, uint32_t key, dp_done_fn done,
                     void *arg)
{
	struct dp_result res = {.region = {.key = key, .ttl_ms = 30000}};

	fake_dp_log.renewals++;
	if (key < 4000)
		res.status = ROS2_BAD_KEY;
	answer(dp, done, arg, &res);
}

void dp_region_deregister(struct dp *dp, const struct ros2_uid *session, uint32_t key,
                          dp_done_fn done, void *arg)
{
	struct dp_result res = {.status = key < 4000 ? ROS2_BAD_KEY : ROS2_OK};

	fake_dp_log.region_ends++;
	answer(dp, done, arg, &res);
}

bool dp_is_frozen(const struct dp *dp)
{
	return fake_dp_frozen;
}

int dp_thaw(struct dp *dp)
{
	fake_dp_log.thaws++;
	fake_dp_frozen = false;
	return 0;
}

/* It lends no keys: no revocation says that some are pending. */
int dp_keys_pending(struct dp *dp, uint64_t until_ns, dp_keys_fn fn, void *arg)
{
	return -ENOMEM;
}

/* How many sessions it ended. -ENOMEM: it is frozen. */
static int end_all_of(struct dp *dp, enum dp_scope scope, const struct ros2_uid *uid,
                      enum ros2_status why)
{
	int n = 0;

	if (fake_dp_no_memory) {
		fake_dp_frozen = true;
		return -ENOMEM;
	}
	for (int i = 0; i < SESSIONS_MAX; i++) {
		struct fake_session *s = &dp->s[i];
		const struct ros2_uid *of = scope == DP_SCOPE_TENANT  ? &s->tenant
		                            : scope == DP_SCOPE_GRANT ? &s->grant
		                                                      : &s->uid;

		if (s->live && (scope == DP_SCOPE_ALL || ros2_uid_eq(of, uid))) {
			n++;
			end(dp, s, why);
		}
	}
	return n;
}

int dp_revoke(struct dp *dp, enum dp_scope scope, const struct ros2_uid *uid, uint64_t received_ns,
              enum ros2_status why, dp_done_fn done, void *arg)
{
	struct dp_result res = {.status = ROS2_OK};
	int n;

	fake_dp_log.revokes++;
	fake_dp_log.last_scope = scope;
	fake_dp_log.last_uid = *uid;
	n = end_all_of(dp, scope, uid, why);
	if (n < 0)
		return n;
	res.revoke.sessions = (uint32_t)n;
	res.revoke.draining = fake_dp_draining;
	res.revoke.last_byte_ns = clock_boottime_ns();
	answer(dp, done, arg, &res);
	if (fake_dp_draining) {
		fake_dp_draining = 0;
		res.revoke.draining = 0;
		answer(dp, done, arg, &res);
	}
	return 0;
}

void dp_grant_remove(struct dp *dp, const struct ros2_uid *grant, enum ros2_status why)
{
	fake_dp_log.grant_removes++;
	(void)end_all_of(dp, DP_SCOPE_GRANT, grant, why);
}

int dp_leases(struct dp *dp, const struct ros2_uid *tenant, uint32_t max,
              void (*fn)(void *arg, const struct dp_lease_info *info), void *arg)
{
	fn(arg, NULL);
	return 0;
}

uint32_t dp_lease_count(struct dp *dp)
{
	return 0;
}

void dp_control_load(struct dp *dp, void (*fn)(void *arg, const struct dp_control_load *l),
                     void *arg)
{
	fn(arg, &(struct dp_control_load){.engine = ""});
}

void dp_engines_health(struct dp *dp, void (*fn)(void *arg, const struct dp_engine_health *h),
                       void *arg)
{
	fake_dp_health_fn says = fake_dp_health;

	if (says)
		says(fn, arg);
}

void dp_rdma_seen(struct dp *dp, uint32_t enforced)
{
	fake_dp_log.rdma_seen = enforced;
	fake_dp_log.rdma_told++;
}

bool dp_slots(struct dp *dp, uint32_t i, struct dp_slots *ret)
{
	return false;
}

void dp_lent(const struct dp *dp, struct dp_lent *ret)
{
	*ret = (struct dp_lent){0};
}

void dp_shm(const struct dp *dp, struct dp_shm *ret)
{
	*ret = (struct dp_shm){0};
}

struct posted_event {
	struct loop_post post;
	struct dp *dp;
	struct dp_event ev;
};

static void run_event(void *arg)
{
	struct posted_event *p = arg;
	struct fake_session *s = find(p->dp, &p->ev.session);

	if (s && p->ev.type == DP_EVENT_CONNECTED)
		s->connected = true;
	if (p->dp->o.on_event)
		p->dp->o.on_event(p->dp->o.arg, &p->ev);
	free(p);
}

void fake_dp_event(struct dp *dp, const struct dp_event *ev)
{
	struct posted_event *p = own(sizeof(*p));

	p->dp = dp;
	p->ev = *ev;
	if (!p->ev.count)
		p->ev.count = 1;
	loop_post_urgent(dp->o.loop, &p->post, run_event, p);
}

void fake_dp_connect(struct dp *dp, const struct ros2_uid *session)
{
	struct dp_event ev = {.type = DP_EVENT_CONNECTED, .session = *session};

	fake_dp_event(dp, &ev);
}
