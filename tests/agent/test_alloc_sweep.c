/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of the agent fail, each once and then each and all after it, on its loop, on the
 * threads of its listener and of its stream, and on its writers, while a tenant and a controller
 * work with it. A call is done or answered with a named error; what was acknowledged is in force
 * and on disk, what was not comes again; what was recorded as durable reaches the controller; the
 * same again succeeds, and the neighbour is served all along.
 */
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/alloc_works.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SPARE_SEED 9

/* What is tried again later is tried soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	works_timer(l, t, ms, fn, arg);
	return __real_loop_timer_in_ms(l, t, ms >= 200 && ms <= 10000 ? ms / 20 : ms, fn, arg);
}

/* ---- waiting ---- */

/* True when @fn was so within @ms. Looked at whenever the controller hears something. */
bool works_until(struct t *t, bool (*fn)(struct t *t, const void *arg), const void *arg,
                 unsigned ms)
{
	struct timespec end;
	int r = 0;
	bool so;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_nsec += (long)(ms % 1000) * 1000000;
	end.tv_sec += ms / 1000 + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&t->w.lock);
	while (!(so = fn(t, arg)) && !r)
		r = pthread_cond_timedwait(&t->w.cond, &t->w.lock, &end);
	pthread_mutex_unlock(&t->w.lock);
	return so;
}

static bool linked(struct t *t, const void *arg)
{
	return t->w.link != NULL;
}

void works_remember(struct t *t)
{
	if (!works_until(t, linked, NULL, AWAIT_MS))
		fail_msg("no stream");
	t->was.acks = t->w.acks;
	t->was.applied = t->w.applied;
	t->was.receipts = t->w.receipts;
	t->was.hellos = t->w.hellos;
	t->was.closed = t->w.closed;
	t->was.reports = t->w.reports;
	t->was.probes = t->w.probes;
	t->was.removes = fake_dp_log.engine_removes;
}

static bool closed(struct t *t, const void *arg)
{
	return t->w.closed > t->was.closed;
}

static bool acked_or_closed(struct t *t, const void *arg)
{
	return t->w.acks > t->was.acks || closed(t, arg);
}

static bool applied(struct t *t, const void *n)
{
	return t->w.applied >= t->was.applied + *(const unsigned *)n;
}

static bool received_or_closed(struct t *t, const void *arg)
{
	return (t->w.receipts > t->was.receipts && t->w.last_durable) || closed(t, arg);
}

bool works_greeted(struct t *t, const void *arg)
{
	return t->w.hellos > t->was.hellos;
}

static bool probed(struct t *t, const void *arg)
{
	return t->w.probes > t->was.probes;
}

static bool reported_or_closed(struct t *t, const void *arg)
{
	return t->w.reports > t->was.reports || closed(t, arg);
}

static bool beaten(struct t *t, const void *beats)
{
	return t->w.beats > *(const unsigned *)beats;
}

static bool has_subject(struct t *t, const void *what)
{
	return strstr(t->w.subjects, what) != NULL;
}

static bool has_subject_or_gap(struct t *t, const void *what)
{
	return has_subject(t, what) || strstr(t->w.actions, "audit.gap") != NULL;
}

static int lost(struct ros2_err *err)
{
	return ros2_err_named(err, ROS2_CLOSED, "the stream ended");
}

/* ---- calls ---- */

static int call(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                ProtobufCMessage **ret, struct ros2_err *err)
{
	ProtobufCMessage *r = NULL;
	int rc = rpc_unary_sync(c, m, req, AWAIT_MS, &r, err);

	if (ret && !rc)
		*ret = r;
	else if (r)
		protobuf_c_message_free_unpacked(r, NULL);
	return rc;
}

static ProtobufCBinaryData uid_of(struct ros2_uid *u)
{
	return (ProtobufCBinaryData){16, u->b};
}

static int open_on(struct t *t, struct rpc_channel *c, struct ros2_uid *ret, struct ros2_err *err)
{
	Ros2__V1__OpenSessionRequest q = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	Ros2__V1__OpenSessionReply *r;
	ProtobufCMessage *m;
	char uid[ROS2_UID_STR_LEN];
	int rc;

	q.protocol = RPC_PROTOCOL_VERSION;
	q.transport = ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	rc = call(c, &ros2_v1_tenant_open_session, &q.base, &m, err);
	if (rc)
		return rc;
	r = (Ros2__V1__OpenSessionReply *)m;
	memcpy(ret->b, r->session_uid.data, 16);
	protobuf_c_message_free_unpacked(m, NULL);
	fake_dp_connect(t->w.agent->dp, ret);
	sweep_off();
	ros2_uid_to_str(ret, uid);
	if (!works_until(t, has_subject, uid, AWAIT_MS))
		fail_msg("a session was opened whose record did not come");
	return 0;
}

static int close_on(struct rpc_channel *c, struct ros2_uid *session, struct ros2_err *err)
{
	Ros2__V1__SessionRef q = ROS2__V1__SESSION_REF__INIT;

	q.session_uid = uid_of(session);
	return call(c, &ros2_v1_tenant_close_session, &q.base, NULL, err);
}

static int mount_on(struct rpc_channel *c, struct ros2_uid *session, uint32_t *ret,
                    struct ros2_err *err)
{
	Ros2__V1__MountRequest q = ROS2__V1__MOUNT_REQUEST__INIT;
	ProtobufCMessage *m;
	int rc;

	q.session_uid = uid_of(session);
	q.namespace_name = (char *)"data";
	rc = call(c, &ros2_v1_tenant_mount, &q.base, &m, err);
	if (rc)
		return rc;
	*ret = ((Ros2__V1__MountReply *)m)->mount;
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

static int open_file(struct t *t, uint64_t *ret, struct ros2_err *err)
{
	Ros2__V1__OpenRequest q = ROS2__V1__OPEN_REQUEST__INIT;
	ProtobufCMessage *m;
	char path[32];
	int rc;

	snprintf(path, sizeof(path), "f-%u-", ++t->n);
	q.session_uid = uid_of(&t->session);
	q.mount = t->mount;
	q.path = path;
	q.flags = 3;
	rc = call(t->alpha, &ros2_v1_tenant_open, &q.base, &m, err);
	if (rc)
		return rc;
	*ret = ((Ros2__V1__OpenReply *)m)->handle;
	protobuf_c_message_free_unpacked(m, NULL);
	sweep_off();
	if (!works_until(t, has_subject, path, AWAIT_MS))
		fail_msg("a file was opened whose record did not come");
	return 0;
}

/* ---- what is done; 0 or the error ---- */

static int open_session(struct t *t, struct ros2_err *err)
{
	unsigned before = fake_dp_sessions();
	int rc = open_on(t, t->alpha, &t->other, err);

	sweep_off();
	/* Nobody has the secret: it is undone, at the latest when the loop comes to it. */
	if (rc)
		assert_true(AWAIT(fake_dp_sessions() <= before));
	return rc;
}

static int close_session(struct t *t, struct ros2_err *err)
{
	return close_on(t->alpha, &t->other, err);
}

static int mount_data(struct t *t, struct ros2_err *err)
{
	uint32_t m;

	return mount_on(t->alpha, &t->other, &m, err);
}

static int open_handle(struct t *t, struct ros2_err *err)
{
	return open_file(t, &t->opened, err);
}

static int on_handle(struct t *t, const struct rpc_method *method, uint64_t handle,
                     struct ros2_err *err)
{
	Ros2__V1__HandleRef q = ROS2__V1__HANDLE_REF__INIT;

	q.session_uid = uid_of(&t->session);
	q.handle = handle;
	return call(t->alpha, method, &q.base, NULL, err);
}

static int close_handle(struct t *t, struct ros2_err *err)
{
	return on_handle(t, &ros2_v1_tenant_close, t->opened, err);
}

static int stat_handle(struct t *t, struct ros2_err *err)
{
	return on_handle(t, &ros2_v1_tenant_stat_handle, t->handle, err);
}

static int flush(struct t *t, struct ros2_err *err)
{
	return on_handle(t, &ros2_v1_tenant_flush, t->handle, err);
}

static int truncate_to(struct t *t, struct ros2_err *err)
{
	Ros2__V1__TruncateRequest q = ROS2__V1__TRUNCATE_REQUEST__INIT;

	q.session_uid = uid_of(&t->session);
	q.handle = t->handle;
	q.size = 7;
	return call(t->alpha, &ros2_v1_tenant_truncate, &q.base, NULL, err);
}

static int on_path(struct t *t, const struct rpc_method *method, bool recorded,
                   struct ros2_err *err)
{
	Ros2__V1__PathRequest q = ROS2__V1__PATH_REQUEST__INIT;
	char path[32];
	int rc;

	snprintf(path, sizeof(path), "p-%u-", ++t->n);
	q.session_uid = uid_of(&t->session);
	q.mount = t->mount;
	q.path = path;
	rc = call(t->alpha, method, &q.base, NULL, err);
	sweep_off();
	if (!rc && recorded && !works_until(t, has_subject_or_gap, path, AWAIT_MS))
		fail_msg("a change left neither a record nor a gap");
	return rc;
}

static int stat_path(struct t *t, struct ros2_err *err)
{
	return on_path(t, &ros2_v1_tenant_stat, false, err);
}

static int make_dir(struct t *t, struct ros2_err *err)
{
	return on_path(t, &ros2_v1_tenant_mkdir, true, err);
}

static int unlink_path(struct t *t, struct ros2_err *err)
{
	return on_path(t, &ros2_v1_tenant_unlink, true, err);
}

static int remove_dir(struct t *t, struct ros2_err *err)
{
	return on_path(t, &ros2_v1_tenant_rmdir, true, err);
}

static int rename_path(struct t *t, struct ros2_err *err)
{
	Ros2__V1__RenameRequest q = ROS2__V1__RENAME_REQUEST__INIT;
	char from[32];
	int rc;

	snprintf(from, sizeof(from), "r-%u-", ++t->n);
	q.session_uid = uid_of(&t->session);
	q.mount = t->mount;
	q.from = from;
	q.to = (char *)"to";
	rc = call(t->alpha, &ros2_v1_tenant_rename, &q.base, NULL, err);
	sweep_off();
	if (!rc && !works_until(t, has_subject_or_gap, from, AWAIT_MS))
		fail_msg("a rename left neither a record nor a gap");
	return rc;
}

static int read_dir(struct t *t, struct ros2_err *err)
{
	Ros2__V1__ReaddirRequest q = ROS2__V1__READDIR_REQUEST__INIT;
	ProtobufCMessage *m;
	int rc;

	q.session_uid = uid_of(&t->session);
	q.mount = t->mount;
	q.path = (char *)"dir";
	rc = call(t->alpha, &ros2_v1_tenant_readdir, &q.base, &m, err);
	if (rc)
		return rc;
	assert_int_equal(((Ros2__V1__ReaddirReply *)m)->n_entries, 2);
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

static int add_region(struct t *t, struct ros2_err *err)
{
	Ros2__V1__RegisterRegionRequest q = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	ProtobufCMessage *m;
	int rc;

	q.session_uid = uid_of(&t->session);
	q.address = 1 << 20;
	q.length = 65536;
	q.access = 3;
	rc = call(t->alpha, &ros2_v1_tenant_register_region, &q.base, &m, err);
	if (rc)
		return rc;
	t->key = ((Ros2__V1__RegisterRegionReply *)m)->key;
	protobuf_c_message_free_unpacked(m, NULL);
	return 0;
}

static int on_region(struct t *t, const struct rpc_method *method, struct ros2_err *err)
{
	Ros2__V1__RegionRef q = ROS2__V1__REGION_REF__INIT;

	q.session_uid = uid_of(&t->session);
	q.key = t->key;
	return call(t->alpha, method, &q.base, NULL, err);
}

static int renew_region(struct t *t, struct ros2_err *err)
{
	return on_region(t, &ros2_v1_tenant_renew_region, err);
}

static int end_region(struct t *t, struct ros2_err *err)
{
	return on_region(t, &ros2_v1_tenant_deregister_region, err);
}

/* ---- over the stream ---- */

/* Acknowledged: then @n objects are in force. Or the stream ended: then all of it comes again. */
static int taken(struct t *t, unsigned n, struct ros2_err *err)
{
	bool done = works_until(t, acked_or_closed, NULL, 300);

	sweep_off();
	if (!done && !works_until(t, acked_or_closed, NULL, AWAIT_MS))
		fail_msg("a delta was neither acknowledged nor did the stream end");
	if (t->w.acks == t->was.acks)
		return lost(err);
	if (!works_until(t, applied, &n, AWAIT_MS))
		fail_msg("a delta was acknowledged that is not in force");
	return 0;
}

static int upsert(struct t *t, struct ros2_err *err)
{
	Ros2__V1__AgentObject *objs[] = {
		fix_engine(&t->w.f, "spare", SPARE_SEED, t->spare),
		fix_tenant(&t->w.f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, t->version),
	};

	works_remember(t);
	world_send(&t->w, objs, 2, false);
	return taken(t, 2, err);
}

static int newer(struct t *t, struct ros2_err *err)
{
	t->w.grant_policy = ++t->version;
	t->spare++;
	return upsert(t, err);
}

/* Before upsert: what it sends is new. */
static int next_version(struct t *t, struct ros2_err *err)
{
	t->w.grant_policy = ++t->version;
	t->spare++;
	return 0;
}

static int remove_engine(struct t *t, struct ros2_err *err)
{
	int rc;

	works_remember(t);
	world_remove(&t->w, OBJ_ENGINE, SPARE_SEED, t->spare);
	rc = taken(t, 0, err);
	if (!rc && !sweep_fired())
		assert_true(fake_dp_log.engine_removes > t->was.removes);
	return rc;
}

static int open_again(struct t *t, struct ros2_err *err)
{
	int rc = open_on(t, t->alpha, &t->session, err);

	if (!rc)
		rc = mount_on(t->alpha, &t->session, &t->mount, err);
	return rc ? rc : open_file(t, &t->handle, err);
}

static int new_revocation(struct t *t, struct ros2_err *err)
{
	t->revocation = ros2_uid_new();
	return 0;
}

static int end_right(struct t *t, enum obj_kind kind, uint8_t seed, uint64_t version,
                     struct ros2_err *err)
{
	bool done;

	works_remember(t);
	t->w.last_durable = false;
	world_revoke_as(&t->w, kind, seed, version, &t->revocation);
	done = works_until(t, received_or_closed, NULL, 300);
	sweep_off();
	if (!done && !works_until(t, received_or_closed, NULL, AWAIT_MS))
		fail_msg("a revocation had no durable receipt, nor did the stream end");
	return t->w.receipts > t->was.receipts && t->w.last_durable ? 0 : lost(err);
}

static int revoke_alpha(struct t *t, struct ros2_err *err)
{
	struct ros2_err denied = ROS2_ERR_INIT;
	struct ros2_uid session;
	int rc = end_right(t, OBJ_TENANT, WORLD_ALPHA_SEED, t->version, err);

	if (rc)
		return rc;
	if (!open_on(t, t->alpha, &session, &denied))
		fail_msg("a revocation with a receipt, and a session after it");
	assert_int_equal(denied.status, ROS2_REVOKED);
	if (!stat_handle(t, &denied))
		fail_msg("a revocation with a receipt, and an open file works");
	return 0;
}

static int reinstate(struct t *t, struct ros2_err *err)
{
	int rc = newer(t, err);

	return rc ? rc : open_again(t, err);
}

/* The grant that `other` has used: the next session asks for one. */
static int revoke_grant(struct t *t, struct ros2_err *err)
{
	return end_right(t, OBJ_GRANT, (uint8_t)(t->w.next_grant - 1), 1, err);
}

static int no_idle_grant(struct t *t, struct ros2_err *err)
{
	int rc = open_session(t, err);

	if (!rc)
		rc = close_session(t, err);
	new_revocation(t, NULL);
	return rc ? rc : revoke_grant(t, err);
}

/* A new stream: it says what is here, and what was probed. */
static int again(struct t *t, struct ros2_err *err)
{
	bool done;

	works_remember(t);
	world_cut(&t->w);
	done = works_until(t, works_greeted, NULL, 200);
	sweep_off();
	if (!done && !works_until(t, works_greeted, NULL, AWAIT_MS))
		fail_msg("no new stream");
	/* Two engines or one, two tenants, two grants: a hello without them would keep here what
	 * was taken away meanwhile. */
	assert_true(t->w.last_have >= 5);
	if (!works_until(t, probed, NULL, AWAIT_MS))
		fail_msg("the new stream was not told what was probed");
	return 0;
}

static int report(struct t *t, struct ros2_err *err)
{
	bool done;

	works_remember(t);
	world_ask_report(&t->w);
	done = works_until(t, reported_or_closed, NULL, 200);
	sweep_off();
	if (!done && !sweep_fired())
		done = works_until(t, reported_or_closed, NULL, AWAIT_MS);
	if (!done)
		return ros2_err_named(err, ROS2_BUSY, "no report");
	if (t->w.reports == t->was.reports)
		return lost(err);
	if (t->w.report_sessions < 2)
		fail_msg("a report with %u sessions", t->w.report_sessions);
	return 0;
}

/* ---- the sweep ---- */

static bool may_be_answered(enum ros2_status s)
{
	return s == ROS2_BUSY || s == ROS2_CLOSED || s == ROS2_UNAVAILABLE ||
	       s == ROS2_NOT_DURABLE || s == ROS2_CANCELLED;
}

static const struct {
	const char *name;
	work_fn before, work, after;
} works[] = {
	{"OpenSession", NULL, open_session, close_session},
	{"CloseSession", open_session, close_session, NULL},
	{"Mount", open_session, mount_data, close_session},
	{"Open", NULL, open_handle, close_handle},
	{"Close", open_handle, close_handle, NULL},
	{"StatHandle", NULL, stat_handle, NULL},
	{"Flush", NULL, flush, NULL},
	{"Truncate", NULL, truncate_to, NULL},
	{"Stat", NULL, stat_path, NULL},
	{"Readdir", NULL, read_dir, NULL},
	{"Mkdir", NULL, make_dir, NULL},
	{"Unlink", NULL, unlink_path, NULL},
	{"Rmdir", NULL, remove_dir, NULL},
	{"Rename", NULL, rename_path, NULL},
	{"RegisterRegion", NULL, add_region, end_region},
	{"RenewRegion", add_region, renew_region, end_region},
	{"DeregisterRegion", add_region, end_region, NULL},
	{"grant", no_idle_grant, open_session, close_session},
	{"upsert", next_version, upsert, NULL},
	{"removal", newer, remove_engine, NULL},
	{"revoke", new_revocation, revoke_alpha, reinstate},

	{"stream", newer, again, NULL},
	{"report", NULL, report, NULL},
	{"probe", NULL, works_probe, NULL},
	{"renewal", NULL, works_renew, NULL},
};

static void well(struct t *t, work_fn fn, const char *name)
{
	struct ros2_err err = ROS2_ERR_INIT;

	for (int i = 0; fn && i < 40; i++) {
		unsigned beats = t->w.beats;

		if (!fn(t, &err))
			return;
		works_until(t, beaten, &beats, 400); /* there is a stream again */
	}
	if (fn)
		fail_msg("%s: %s: %s", name, ros2_status_to_str(err.status), err.msg);
}

static void forget_records(struct t *t)
{
	pthread_mutex_lock(&t->w.lock);
	t->w.actions[0] = t->w.subjects[0] = '\0';
	pthread_mutex_unlock(&t->w.lock);
}

static void neighbour_is_served(struct t *t)
{
	Ros2__V1__PathRequest q = ROS2__V1__PATH_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;

	q.session_uid = uid_of(&t->neighbour);
	q.mount = t->beta_mount;
	q.path = (char *)"theirs";
	if (call(t->beta, &ros2_v1_tenant_stat, &q.base, NULL, &err))
		fail_msg("the neighbour: %s: %s", ros2_status_to_str(err.status), err.msg);
}

static unsigned sweep_one(struct t *t, size_t i, const char *thread)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = thread};

	for (;;) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		forget_records(t);
		well(t, works[i].before, works[i].name);
		if (!sweep_next(&s))
			break;
		rc = works[i].work(t, &err);
		sweep_off();
		if (rc && (!sweep_fired() || !may_be_answered(err.status)))
			fail_msg("%s, %s, allocation %u%s: %s: %s", works[i].name, thread, s.at,
			         s.persistent ? " and on" : "", ros2_status_to_str(err.status),
			         err.msg);
		neighbour_is_served(t);
		if (rc)
			well(t, works[i].work, works[i].name);
		well(t, works[i].after, works[i].name);
		if (t->w.fatal.code)
			fail_msg("%s: the agent ended: %s", works[i].name, t->w.fatal.msg);
	}
	well(t, works[i].work, works[i].name);
	well(t, works[i].after, works[i].name);
	return s.points;
}

static int begin_beta(struct t *t, struct ros2_err *err)
{
	int rc = open_on(t, t->beta, &t->neighbour, err);

	return rc ? rc : mount_on(t->beta, &t->neighbour, &t->beta_mount, err);
}

/* What had a receipt is revoked for the next process, too. */
static void still_revoked(struct t *t)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid session;

	new_revocation(t, NULL);
	well(t, revoke_alpha, "the last revocation");
	rpc_channel_free(t->alpha);
	world_agent_stop(&t->w);
	world_agent_start(&t->w);
	t->alpha = world_tenant(&t->w, "alpha");
	assert_int_not_equal(open_on(t, t->alpha, &session, &err), 0);
	assert_int_equal(err.status, ROS2_REVOKED);
}

static unsigned sweep_all(const char *thread)
{
	struct t *t = calloc(1, sizeof(*t));
	unsigned points = 0;

	fake_dp_fail_put = ROS2_OK;
	world_start(&t->w);
	t->w.probe = works_all_enforced;
	world_agent_start(&t->w);
	world_populate(&t->w);
	t->version = t->spare = 1;
	t->alpha = world_tenant(&t->w, "alpha");
	t->beta = world_tenant(&t->w, "beta");
	well(t, begin_beta, "beta");
	well(t, newer, "the first delta");
	well(t, open_again, "alpha");
	for (size_t i = 0; i < ARRAY_SIZE(works); i++)
		points += sweep_one(t, i, thread);
	still_revoked(t);
	rpc_channel_free(t->alpha);
	rpc_channel_free(t->beta);
	world_stop(&t->w);
	free(t);
	return points;
}

static void alloc__of_the_loop(void **state)
{
	assert_true(sweep_all("agent") > 100);
}

static void alloc__of_the_listener(void **state)
{
	assert_true(sweep_all("rpc-tenants") > 20);
}

static void alloc__of_the_stream(void **state)
{
	assert_true(sweep_all("rpc-uplink") > 5);
}

/* They may need none. */
static void alloc__of_the_writers(void **state)
{
	sweep_all("disk");
	sweep_all("revocations");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alloc__of_the_loop),
		cmocka_unit_test(alloc__of_the_listener),
		cmocka_unit_test(alloc__of_the_stream),
		cmocka_unit_test(alloc__of_the_writers),
	};

	/* The program's own name begins as the loop's. */
	pthread_setname_np(pthread_self(), "test");
	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
