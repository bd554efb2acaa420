/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every method of the Tenant service, by a caller that is gone before it is answered: it cancels
 * when the data plane has carried the call out and has not said so. What was done was done once and
 * is recorded once; what only the answer would have told (a handle, a lease, a session) is given
 * back; the tenant goes on, and nothing of its session is left when it is closed.
 */
#include "agent/service.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"

struct lost {
	struct world *w;
	struct rpc_channel *c;    /* of the tenant that goes on */
	struct rpc_channel *gone; /* of the caller: on the controller's loop, which runs anyway */
	struct rpc_channel *beta; /* of another tenant, by whose records ours are waited for */
	struct ros2_uid beside;   /* its session */
	unsigned n_met;
	struct rpc_request *call;
	const struct rpc_method *m;
	const ProtobufCMessage *req;
	_Atomic bool ended;
	enum ros2_status status;
	/* of the session */
	struct ros2_uid session;
	uint32_t mount, key;
	uint64_t handle;
};

/* ---- the tenant ---- */

static const struct {
	const struct rpc_method *m;
	const char *action;              /* of the record, where one call has one */
	const _Atomic unsigned *counter; /* of the data plane */
	enum ros2_status again;          /* what the same call is answered afterwards */
} rows[] = {
	{&ros2_v1_tenant_open_session, "session.open", &fake_dp_log.session_opens, ROS2_OK},
	{&ros2_v1_tenant_mount, "namespace.mount", &fake_dp_log.mounts, ROS2_OK},
	{&ros2_v1_tenant_open, "file.open", &fake_dp_log.opens, ROS2_OK},
	{&ros2_v1_tenant_stat_handle, NULL, NULL, ROS2_OK},
	{&ros2_v1_tenant_stat, NULL, &fake_dp_log.paths, ROS2_OK},
	{&ros2_v1_tenant_readdir, NULL, NULL, ROS2_OK},
	{&ros2_v1_tenant_mkdir, "path.mkdir", &fake_dp_log.paths, ROS2_OK},
	{&ros2_v1_tenant_unlink, "path.unlink", &fake_dp_log.paths, ROS2_OK},
	{&ros2_v1_tenant_rmdir, "path.rmdir", &fake_dp_log.paths, ROS2_OK},
	{&ros2_v1_tenant_rename, "path.rename", &fake_dp_log.renames, ROS2_OK},
	{&ros2_v1_tenant_truncate, NULL, &fake_dp_log.truncates, ROS2_OK},
	{&ros2_v1_tenant_flush, NULL, NULL, ROS2_OK},
	{&ros2_v1_tenant_register_region, "region.register", &fake_dp_log.regions, ROS2_OK},
	{&ros2_v1_tenant_renew_region, NULL, &fake_dp_log.renewals, ROS2_OK},
	{&ros2_v1_tenant_deregister_region, "region.end", &fake_dp_log.region_ends, ROS2_OK},
	{&ros2_v1_tenant_close, NULL, &fake_dp_log.closes, ROS2_BAD_HANDLE},
	{&ros2_v1_tenant_close_session, "session.close", &fake_dp_log.session_closes, ROS2_OK},
};

/* One of each request; freed as a message. */
static ProtobufCMessage *request_of(struct lost *l, const struct rpc_method *m)
{
	ProtobufCMessage *req = calloc(1, m->input->sizeof_message);
	ProtobufCBinaryData *uid = &((Ros2__V1__SessionRef *)req)->session_uid;

	protobuf_c_message_init(m->input, req);
	if (m == &ros2_v1_tenant_open_session) {
		((Ros2__V1__OpenSessionRequest *)req)->protocol = RPC_PROTOCOL_VERSION;
		((Ros2__V1__OpenSessionRequest *)req)->transport =
			ROS2__V1__TRANSPORT__TRANSPORT_TCP;
		return req;
	}
	*uid = (ProtobufCBinaryData){16, malloc(16)};
	memcpy(uid->data, l->session.b, 16);
	if (m == &ros2_v1_tenant_mount) {
		((Ros2__V1__MountRequest *)req)->namespace_name = strdup("data");
	} else if (m == &ros2_v1_tenant_register_region) {
		((Ros2__V1__RegisterRegionRequest *)req)->length = 4096;
		((Ros2__V1__RegisterRegionRequest *)req)->access = 3;
	} else if (m->input == &ros2__v1__region_ref__descriptor) {
		((Ros2__V1__RegionRef *)req)->key = l->key;
	} else if (m->input == &ros2__v1__handle_ref__descriptor || m == &ros2_v1_tenant_truncate) {
		((Ros2__V1__HandleRef *)req)->handle = l->handle;
	} else if (m != &ros2_v1_tenant_close_session) {
		/* Mount and path are where PathRequest has them. */
		((Ros2__V1__PathRequest *)req)->mount = l->mount;
		((Ros2__V1__PathRequest *)req)->path = strdup("x");
	}
	if (m == &ros2_v1_tenant_open)
		((Ros2__V1__OpenRequest *)req)->flags = 15;
	if (m == &ros2_v1_tenant_rename)
		((Ros2__V1__RenameRequest *)req)->to = strdup("y");
	return req;
}

static enum ros2_status call(struct lost *l, const struct rpc_method *m, ProtobufCMessage **ret)
{
	ProtobufCMessage *req = request_of(l, m);
	enum ros2_status st = world_call(l->c, m, req, ret, NULL);

	protobuf_c_message_free_unpacked(req, NULL);
	return st;
}

static void open_all(struct lost *l)
{
	ProtobufCMessage *m;

	assert_int_equal(world_open_session(l->c, &l->session), ROS2_OK);
	fake_dp_connect(l->w->agent->dp, &l->session);
	assert_int_equal(call(l, &ros2_v1_tenant_mount, &m), ROS2_OK);
	l->mount = ((Ros2__V1__MountReply *)m)->mount;
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(call(l, &ros2_v1_tenant_open, &m), ROS2_OK);
	l->handle = ((Ros2__V1__OpenReply *)m)->handle;
	protobuf_c_message_free_unpacked(m, NULL);
	assert_int_equal(call(l, &ros2_v1_tenant_register_region, &m), ROS2_OK);
	l->key = ((Ros2__V1__RegisterRegionReply *)m)->key;
	protobuf_c_message_free_unpacked(m, NULL);
}

/* ---- the caller that is gone ---- */

static void on_answer(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct lost *l = arg;

	l->status = err->status;
	l->ended = true;
}

static void send_call(void *arg)
{
	struct lost *l = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	l->ended = false;
	if (rpc_unary(l->gone, l->m, l->req, AWAIT_MS, on_answer, l, &l->call, &err))
		fail_msg("%s", err.msg);
}

static void cancel(void *arg)
{
	rpc_request_cancel(((struct lost *)arg)->call);
}

static unsigned calls_now(struct world *w)
{
	struct rpc_server_stats st;

	service_stats(w->agent->service, &st);
	return (unsigned)st.calls_now;
}

/* CloseSession waits for nothing but the end of what the session had. */
static void hold(const struct rpc_method *m)
{
	if (m == &ros2_v1_tenant_close_session)
		fake_dp_hold_gone = true;
	else
		fake_dp_hold = true;
}

static bool is_held(const struct rpc_method *m)
{
	return m == &ros2_v1_tenant_close_session ? fake_dp_waiting == 1 : fake_dp_held == 1;
}

static void answer(struct lost *l)
{
	fake_dp_hold_gone = false;
	loop_call(l->w->loop, fake_dp_let_go, NULL);
	loop_call(l->w->loop, fake_dp_answer, NULL);
}

static void lose(struct lost *l, const struct rpc_method *m)
{
	ProtobufCMessage *req = request_of(l, m);

	l->m = m;
	l->req = req;
	hold(m);
	loop_call(l->w->ctl_loop, send_call, l);
	assert_true(AWAIT(is_held(m)));
	loop_call(l->w->ctl_loop, cancel, l);
	assert_true(AWAIT(l->ended));
	assert_int_equal(l->status, ROS2_CANCELLED);
	if (m != &ros2_v1_tenant_close_session) {
		const struct service_op *op = fake_dp_held_for;

		assert_true(AWAIT(rpc_call_is_cancelled(op->call)));
	}
	answer(l);
	assert_true(AWAIT(calls_now(l->w) == 0));
	protobuf_c_message_free_unpacked(req, NULL);
}

/* ---- what is left ---- */

struct tables {
	struct lost *l;
	bool live;
	uint32_t sessions, mounts, handles;
};

static void look(void *arg)
{
	struct tables *t = arg;
	const struct agent_session *s =
		agent_session_find(t->l->w->agent->sessions, &t->l->session);

	t->live = s && s->state == SESSION_LIVE;
	t->sessions = sessions_live(t->l->w->agent->sessions);
	t->mounts = s ? s->n_mounts : 0;
	t->handles = s ? HASH_COUNT(s->handles) : 0;
}

static struct tables tables_of(struct lost *l)
{
	struct tables t = {l};

	loop_call(l->w->loop, look, &t);
	return t;
}

static unsigned records_of(struct world *w, const char *action)
{
	unsigned n = 0;

	pthread_mutex_lock(&w->lock);
	for (const char *at = w->actions; (at = strstr(at, action)); at += strlen(action))
		n++;
	pthread_mutex_unlock(&w->lock);
	return n;
}

static bool is_recorded(struct world *w, const char *subject)
{
	bool is;

	pthread_mutex_lock(&w->lock);
	is = strstr(w->subjects, subject);
	pthread_mutex_unlock(&w->lock);
	return is;
}

/* Records arrive in order: what came before this one is there. */
static void meet_records(struct lost *l)
{
	Ros2__V1__PathRequest req = ROS2__V1__PATH_REQUEST__INIT;
	char path[32];

	snprintf(path, sizeof(path), "meet-%u.", ++l->n_met);
	req.session_uid = (ProtobufCBinaryData){16, l->beside.b};
	req.mount = 1;
	req.path = path;
	assert_int_equal(world_call(l->beta, &ros2_v1_tenant_mkdir, &req.base, NULL, NULL),
	                 ROS2_OK);
	assert_true(AWAIT(is_recorded(l->w, path)));
}

struct before {
	struct tables t;
	unsigned done, records, ends, opens, closes, regions, region_ends, dp_sessions;
};

static struct before before_of(struct lost *l, size_t i)
{
	return (struct before){.t = tables_of(l),
	                       .done = rows[i].counter ? *rows[i].counter : 0,
	                       .records = rows[i].action ? records_of(l->w, rows[i].action) : 0,
	                       .ends = records_of(l->w, "region.end"),
	                       .opens = fake_dp_log.opens,
	                       .closes = fake_dp_log.closes,
	                       .regions = fake_dp_log.regions,
	                       .region_ends = fake_dp_log.region_ends,
	                       .dp_sessions = fake_dp_sessions()};
}

/* Of what one call did, nothing is left that nobody was told of. */
static void is_given_back(struct lost *l, size_t i, const struct before *b)
{
	struct tables t = tables_of(l);
	bool closed = rows[i].m == &ros2_v1_tenant_close_session;

	assert_int_equal(t.live, !closed);
	assert_int_equal(t.sessions, b->t.sessions - closed);
	assert_int_equal(fake_dp_sessions(), b->dp_sessions - closed);
	/* There is no call that ends a mount: it goes with its session. */
	if (!closed)
		assert_int_equal(t.mounts, b->t.mounts + (rows[i].m == &ros2_v1_tenant_mount));
	if (rows[i].m == &ros2_v1_tenant_close)
		assert_int_equal(t.handles, b->t.handles - 1);
	else if (!closed)
		assert_int_equal(t.handles, b->t.handles);
	if (rows[i].m == &ros2_v1_tenant_open)
		assert_int_equal(fake_dp_log.closes - b->closes, fake_dp_log.opens - b->opens);
	if (rows[i].m == &ros2_v1_tenant_register_region)
		assert_int_equal(fake_dp_log.region_ends - b->region_ends,
		                 fake_dp_log.regions - b->regions);
}

static void is_recorded_once(struct lost *l, size_t i, const struct before *b)
{
	unsigned by_meeting = rows[i].m == &ros2_v1_tenant_mkdir;

	if (rows[i].counter)
		assert_int_equal(*rows[i].counter - b->done, 1);
	meet_records(l);
	if (rows[i].action)
		assert_int_equal(records_of(l->w, rows[i].action) - b->records, 1 + by_meeting);
	assert_int_equal(records_of(l->w, "region.end") - b->ends,
	                 rows[i].m == &ros2_v1_tenant_register_region ||
	                         rows[i].m == &ros2_v1_tenant_deregister_region);
}

static void caller__that_is_gone_leaves_one_record_and_nothing_that_nobody_knows(void **state)
{
	struct lost *l = *state;

	assert_int_equal(ARRAY_SIZE(rows), ros2_v1_tenant_service.n_methods);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct before b;

		open_all(l);
		meet_records(l);
		b = before_of(l, i);
		lose(l, rows[i].m);
		is_given_back(l, i, &b);
		is_recorded_once(l, i, &b);
		/* The tenant goes on. */
		assert_int_equal(call(l, rows[i].m, NULL), rows[i].again);
		assert_int_equal(call(l, &ros2_v1_tenant_close_session, NULL), ROS2_OK);
		assert_false(tables_of(l).live);
	}
}

static void make_channel(void *arg)
{
	struct lost *l = arg;
	char crt[4200], key[4200], ca[4200], target[64];
	struct rpc_channel_opts o = {.name = "gone",
	                             .target = target,
	                             .loop = l->w->ctl_loop,
	                             .ca_path = ca,
	                             .cert_path = crt,
	                             .key_path = key,
	                             .server_id = "spiffe://ros2.test/agent/",
	                             .server_id_is_prefix = true};

	testing_path(crt, l->w->dir, "alpha.crt");
	testing_path(key, l->w->dir, "alpha.key");
	testing_path(ca, l->w->dir, "infra.crt");
	snprintf(target, sizeof(target), "127.0.0.1:%u", agent_tenant_port(l->w->agent));
	if (rpc_channel_new(&o, &l->gone, NULL))
		abort();
}

static void free_channel(void *arg)
{
	rpc_channel_free(((struct lost *)arg)->gone);
}

static void open_beside(struct lost *l)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;

	l->beta = world_tenant(l->w, "beta");
	assert_int_equal(world_open_session(l->beta, &l->beside), ROS2_OK);
	fake_dp_connect(l->w->agent->dp, &l->beside);
	req.session_uid = (ProtobufCBinaryData){16, l->beside.b};
	req.namespace_name = (char *)"data";
	assert_int_equal(world_call(l->beta, &ros2_v1_tenant_mount, &req.base, NULL, NULL),
	                 ROS2_OK);
}

static int setup(void **state)
{
	struct lost *l = calloc(1, sizeof(*l));

	l->w = calloc(1, sizeof(*l->w));
	world_start(l->w);
	world_agent_start(l->w);
	world_populate(l->w);
	l->c = world_tenant(l->w, "alpha");
	loop_call(l->w->ctl_loop, make_channel, l);
	open_beside(l);
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	struct lost *l = *state;

	answer(l);
	loop_call(l->w->ctl_loop, free_channel, l);
	rpc_channel_free(l->beta);
	rpc_channel_free(l->c);
	world_stop(l->w);
	assert_int_equal(l->w->fatal.code, 0);
	free(l->w);
	free(l);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			caller__that_is_gone_leaves_one_record_and_nothing_that_nobody_knows, setup,
			teardown),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
