/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the switches of the agent's parts show that are compiled into this test with them. Whose
 * session it is: beta gets alpha's handle and closes alpha's session only when the check is off,
 * and who is made again under alpha's name has alpha's session and grant only when theirs are.
 * Whose namespace and mount it is, and what is no path, size or region, likewise. How many calls:
 * alpha gets exactly what its document gives it, and more only when the check is off; time is what
 * the test says, so that a slow machine, which would not reach the rate, counts the same.
 * How many records: what alpha does to names leaves beta its room in the spool, and everybody the
 * disk that the log is on.
 */
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/util.h"
#include "tests/agent/world.h"
#include "tests/await.h"

struct agent_test_switches agent_test_switches;

/* The clock of service.c (CMakeLists.txt): stands at held_ns, or is the machine's, ahead_ns later.
 * Never behind what it was. */
static _Atomic uint64_t held_ns, ahead_ns;

uint64_t service_clock_ns(void);
uint64_t service_clock_ns(void)
{
	uint64_t held = held_ns;

	return held ? held : clock_boottime_ns() + ahead_ns;
}

static void clock_hold(void)
{
	held_ns = service_clock_ns();
}

static void clock_release(void)
{
	uint64_t now = clock_boottime_ns();

	ahead_ns = held_ns > now ? held_ns - now : 0;
	held_ns = 0;
}

static enum ros2_status mount_and_hear(struct rpc_channel *c, struct ros2_uid *s, char words[320])
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.namespace_name = (char *)"data";
	return world_call(c, &ros2_v1_tenant_mount, &req.base, NULL, words);
}

static enum ros2_status mount_as(struct rpc_channel *c, struct ros2_uid *s)
{
	return mount_and_hear(c, s, NULL);
}

static enum ros2_status close_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__SessionRef req = ROS2__V1__SESSION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	return world_call(c, &ros2_v1_tenant_close_session, &req.base, NULL, NULL);
}

static void control__tenant_of_the_session(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rpc_channel *a, *b;
	struct ros2_uid s;

	(void)state;
	world_start(w);
	world_agent_start(w);
	world_populate(w);
	a = world_tenant(w, "alpha");
	b = world_tenant(w, "beta");
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(mount_as(b, &s), ROS2_BAD_SESSION);
	assert_int_equal(close_as(b, &s), ROS2_BAD_SESSION);
	assert_int_equal(mount_as(a, &s), ROS2_OK);
	agent_test_switches.no_session_owner = true;
	assert_int_equal(mount_as(b, &s), ROS2_OK);
	assert_int_equal(close_as(b, &s), ROS2_OK);
	agent_test_switches.no_session_owner = false;
	assert_int_not_equal(mount_as(a, &s), ROS2_OK);
	rpc_channel_free(a);
	rpc_channel_free(b);
	world_stop(w);
	free(w);
}

/* ---- control verbs per second ---- */

#define VERBS 40

static enum ros2_status stat_as(struct rpc_channel *c, struct ros2_uid *s, char words[320])
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.handle = 77;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, words);
}

static enum ros2_status renew_and_hear(struct rpc_channel *c, struct ros2_uid *s, uint32_t key,
                                       char words[320])
{
	Ros2__V1__RegionRef req = ROS2__V1__REGION_REF__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.key = key;
	return world_call(c, &ros2_v1_tenant_renew_region, &req.base, NULL, words);
}

static enum ros2_status renew_as(struct rpc_channel *c, struct ros2_uid *s, uint32_t key)
{
	return renew_and_hear(c, s, key, NULL);
}

static uint32_t register_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	uint32_t key;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.address = 0x1000;
	req.length = 4096;
	req.access = 3;
	assert_int_equal(world_call(c, &ros2_v1_tenant_register_region, &req.base, &m, NULL),
	                 ROS2_OK);
	key = ((Ros2__V1__RegisterRegionReply *)m)->key;
	protobuf_c_message_free_unpacked(m, NULL);
	return key;
}

struct verbs {
	struct world *w;
	struct rpc_channel *a, *b;
	struct ros2_uid sa, sb;
	uint32_t key;
};

/* Without a connection it would end after 10 s, which is soon on a slow machine. */
static struct ros2_uid connected_session(struct world *w, struct rpc_channel *c)
{
	struct dp_event ev = {.type = DP_EVENT_CONNECTED};

	assert_int_equal(world_open_session(c, &ev.session), ROS2_OK);
	fake_dp_event(w->agent->dp, &ev);
	return ev.session;
}

static void verbs_start_with(struct verbs *v, uint64_t spool_quota, uint32_t records_per_s)
{
	v->w = calloc(1, sizeof(*v->w));
	fix_verbs_per_s = VERBS;
	world_start(v->w);
	v->w->spool_quota = spool_quota;
	v->w->records_per_s = records_per_s;
	world_agent_start(v->w);
	world_populate(v->w);
	fix_verbs_per_s = 0;
	v->a = world_tenant(v->w, "alpha");
	v->b = world_tenant(v->w, "beta");
	v->sa = connected_session(v->w, v->a);
	v->sb = connected_session(v->w, v->b);
	v->key = register_as(v->a, &v->sa);
}

static void verbs_start(struct verbs *v, uint64_t spool_quota)
{
	verbs_start_with(v, spool_quota, 0);
}

static void verbs_stop(struct verbs *v)
{
	rpc_channel_free(v->a);
	rpc_channel_free(v->b);
	world_stop(v->w);
	free(v->w);
}

/* Alpha calls @n times in one moment: how many were let through; the others are refused by name. */
static unsigned calls_of_alpha(struct verbs *v, unsigned n)
{
	unsigned passed = 0;
	char words[320];

	for (unsigned i = 0; i < n; i++) {
		enum ros2_status st = stat_as(v->a, &v->sa, words);

		passed += st == ROS2_BAD_HANDLE;
		if (st != ROS2_RATE && st != ROS2_BAD_HANDLE)
			fail_msg("call %u: %s: %s", i, ros2_status_to_str(st), words);
		if (st == ROS2_RATE)
			assert_non_null(strstr(words, "memory.controlVerbsPerSecond is 40: try "
			                              "again in "));
	}
	return passed;
}

/* Neither may notice that alpha calls more than it may: beta, and what alpha keeps. */
static void others_are_served(struct verbs *v)
{
	assert_int_equal(stat_as(v->b, &v->sb, NULL), ROS2_BAD_HANDLE);
	assert_int_equal(renew_as(v->a, &v->sa, v->key), ROS2_OK);
}

static void tenant__calls_within_its_control_verbs_per_second(void **state)
{
	struct verbs v;

	(void)state;
	verbs_start(&v, 0);
	clock_hold();
	/* What the quiet time has saved up: a second's, less what the start took. */
	assert_in_range(calls_of_alpha(&v, 2 * VERBS), 1, VERBS);
	assert_int_equal(calls_of_alpha(&v, 2), 0);
	for (unsigned i = 0; i < 20; i++) {
		held_ns += 4 * NS_PER_S / VERBS;
		assert_int_equal(calls_of_alpha(&v, 6), 4);
		others_are_served(&v);
	}
	/* Half a minute saves up no more than a second. */
	held_ns += 30 * NS_PER_S;
	assert_int_equal(calls_of_alpha(&v, 2 * VERBS), VERBS);
	/* Its bucket is empty, and still it renews, closes and gives up. */
	others_are_served(&v);
	clock_release();
	assert_true(AWAIT(stat_as(v.a, &v.sa, NULL) == ROS2_BAD_HANDLE));
	assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
	assert_true(world_wait_action(v.w, "file.deny"));
	verbs_stop(&v);
}

/* Whoever does nothing but keep what it has has a bucket for that, and no more. */
static void tenant__keeps_what_it_has_within_a_rate_too(void **state)
{
	enum ros2_status st = ROS2_OK;
	char words[320];
	unsigned n = 0;
	struct verbs v;

	(void)state;
	verbs_start(&v, 0);
	clock_hold();
	while (n <= SERVICE_KEEPS_PER_S && st == ROS2_OK) {
		st = renew_and_hear(v.a, &v.sa, v.key, words);
		n += st == ROS2_OK;
	}
	assert_int_equal(n, SERVICE_KEEPS_PER_S);
	assert_int_equal(st, ROS2_RATE);
	assert_non_null(strstr(words, "renews and closes more than 5000 times a second (fixed): "
	                              "try again in "));
	assert_int_equal(renew_as(v.b, &v.sb, 1), ROS2_BAD_KEY);
	agent_test_switches.no_verb_limit = true;
	assert_int_equal(renew_as(v.a, &v.sa, v.key), ROS2_OK);
	agent_test_switches.no_verb_limit = false;
	clock_release();
	verbs_stop(&v);
}

static void control__verbs_per_second(void **state)
{
	struct verbs v;

	(void)state;
	verbs_start(&v, 0);
	clock_hold();
	agent_test_switches.no_verb_limit = true;
	assert_int_equal(calls_of_alpha(&v, 3 * VERBS), 3 * VERBS);
	agent_test_switches.no_verb_limit = false;
	assert_int_equal(calls_of_alpha(&v, 1), 0);
	clock_release();
	verbs_stop(&v);
}

/* ---- whose namespace and mount it is ---- */

static _Atomic bool any_document; /* the namespace is looked for in alpha's */
static _Atomic bool any_mount;    /* a mount is looked for in alpha's session, too */
static struct agent *agent_of_all;
static struct ros2_uid alpha_session;

int __real_state_namespace(const struct state_tenant *t, const char *name,
                           struct policy_namespace *ret);
int __wrap_state_namespace(const struct state_tenant *t, const char *name,
                           struct policy_namespace *ret);
int __wrap_state_namespace(const struct state_tenant *t, const char *name,
                           struct policy_namespace *ret)
{
	struct ros2_uid uid = fix_uid(WORLD_ALPHA_SEED);
	struct state_tenant alpha;

	if (any_document && !state_tenant_get(agent_of_all->state, &uid, &alpha))
		return __real_state_namespace(&alpha, name, ret);
	return __real_state_namespace(t, name, ret);
}

struct agent_session_mount *__real_agent_session_mount(struct agent_session *s, uint32_t mount);
struct agent_session_mount *__wrap_agent_session_mount(struct agent_session *s, uint32_t mount);
struct agent_session_mount *__wrap_agent_session_mount(struct agent_session *s, uint32_t mount)
{
	struct agent_session_mount *m = __real_agent_session_mount(s, mount);

	if (m || !any_mount)
		return m;
	s = agent_session_find(agent_of_all->sessions, &alpha_session);
	return s ? __real_agent_session_mount(s, mount) : NULL;
}

static enum ros2_status mount_named(struct rpc_channel *c, struct ros2_uid *s, const char *name)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.namespace_name = (char *)(uintptr_t)name;
	return world_call(c, &ros2_v1_tenant_mount, &req.base, NULL, NULL);
}

static enum ros2_status open_as(struct rpc_channel *c, struct ros2_uid *s, uint32_t mount,
                                const char *path, uint64_t *ret)
{
	Ros2__V1__OpenRequest req = ROS2__V1__OPEN_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	enum ros2_status st;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.mount = mount;
	req.path = (char *)(uintptr_t)path;
	req.flags = ret ? 3 : 1;
	st = world_call(c, &ros2_v1_tenant_open, &req.base, &m, NULL);
	if (ret && st == ROS2_OK)
		*ret = ((Ros2__V1__OpenReply *)m)->handle;
	if (st == ROS2_OK)
		protobuf_c_message_free_unpacked(m, NULL);
	return st;
}

/* Alpha has the mounts 1 and 2 of its namespaces, beta has 1. */
static void mounts_start(struct verbs *v)
{
	fix_namespaces = "    - {name: mine, engine: files, path: alpha-mine, access: rw}\n";
	verbs_start(v, 0);
	fix_namespaces = "";
	agent_of_all = v->w->agent;
	alpha_session = v->sa;
	assert_int_equal(mount_as(v->a, &v->sa), ROS2_OK);
	assert_int_equal(mount_as(v->b, &v->sb), ROS2_OK);
	assert_string_equal(fake_dp_log.last_mounted, "beta");
	assert_int_equal(mount_named(v->a, &v->sa, "readonly"), ROS2_OK);
}

static void control__namespace_of_the_tenant(void **state)
{
	struct verbs v;

	(void)state;
	mounts_start(&v);
	assert_int_equal(mount_named(v.b, &v.sb, "mine"), ROS2_DENIED);
	assert_string_equal(fake_dp_log.last_mounted, "alpha-ro");
	any_document = true;
	assert_int_equal(mount_named(v.b, &v.sb, "mine"), ROS2_OK);
	assert_string_equal(fake_dp_log.last_mounted, "alpha-mine");
	any_document = false;
	verbs_stop(&v);
}

/* Refused twice: it is none of the session's, and leads elsewhere than the tenant's document. */
static void control__mount_of_the_session(void **state)
{
	struct verbs v;
	unsigned opens;

	(void)state;
	mounts_start(&v);
	opens = fake_dp_log.opens;
	assert_int_equal(open_as(v.b, &v.sb, 2, "x", NULL), ROS2_NOT_FOUND);
	any_mount = true;
	assert_int_equal(open_as(v.b, &v.sb, 2, "x", NULL), ROS2_DENIED);
	assert_int_equal(fake_dp_log.opens, opens);
	any_document = true;
	assert_int_equal(open_as(v.b, &v.sb, 2, "x", NULL), ROS2_OK);
	assert_int_equal(fake_dp_log.opens, opens + 1);
	any_mount = any_document = false;
	verbs_stop(&v);
}

/* ---- what no name, file or memory is ---- */

/* Most of it the policy, which judges paths, refuses by itself, and an engine does. */
static void control__path_grammar(void **state)
{
	static char longest[257];
	static const struct {
		const char *path;
		enum ros2_status off; /* with the switch */
	} t[] = {
		{"../x", ROS2_BAD_PATH},  {"a/./b", ROS2_BAD_PATH}, {"a//b", ROS2_BAD_PATH},
		{"a\n", ROS2_BAD_PATH},   {"/x", ROS2_OK},          {"a\xc2\x85", ROS2_OK},
		{longest, ROS2_BAD_PATH},
	};
	struct verbs v;

	(void)state;
	memset(longest, 'n', sizeof(longest) - 1);
	verbs_start(&v, 0);
	assert_int_equal(mount_as(v.a, &v.sa), ROS2_OK);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		agent_test_switches.no_path_grammar = false;
		assert_int_equal(open_as(v.a, &v.sa, 1, t[i].path, NULL), ROS2_BAD_PATH);
		agent_test_switches.no_path_grammar = true;
		assert_int_equal(open_as(v.a, &v.sa, 1, t[i].path, NULL), t[i].off);
	}
	agent_test_switches.no_path_grammar = false;
	verbs_stop(&v);
}

static void control__size_of_a_file(void **state)
{
	Ros2__V1__TruncateRequest req = ROS2__V1__TRUNCATE_REQUEST__INIT;
	struct verbs v;

	(void)state;
	verbs_start(&v, 0);
	assert_int_equal(mount_as(v.a, &v.sa), ROS2_OK);
	assert_int_equal(open_as(v.a, &v.sa, 1, "x", &req.handle), ROS2_OK);
	req.session_uid = (ProtobufCBinaryData){16, v.sa.b};
	req.size = 1ull << 63;
	assert_int_equal(world_call(v.a, &ros2_v1_tenant_truncate, &req.base, NULL, NULL),
	                 ROS2_OUT_OF_RANGE);
	assert_int_equal(fake_dp_log.truncates, 0);
	agent_test_switches.no_size_check = true;
	assert_int_equal(world_call(v.a, &ros2_v1_tenant_truncate, &req.base, NULL, NULL), ROS2_OK);
	assert_int_equal(fake_dp_log.truncates, 1);
	agent_test_switches.no_size_check = false;
	verbs_stop(&v);
}

static void control__shape_of_a_region(void **state)
{
	static const uint64_t t[][2] = {{UINT64_MAX - 4095, 8192}, {0x1000, 0}};
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	const struct rpc_method *m = &ros2_v1_tenant_register_region;
	struct verbs v;
	unsigned asked;

	(void)state;
	verbs_start(&v, 0);
	req.session_uid = (ProtobufCBinaryData){16, v.sa.b};
	req.access = 3;
	asked = fake_dp_log.regions;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		req.address = t[i][0];
		req.length = t[i][1];
		assert_int_equal(world_call(v.a, m, &req.base, NULL, NULL), ROS2_INVALID);
		assert_int_equal(fake_dp_log.regions, asked + i);
		agent_test_switches.no_region_shape = true;
		assert_int_equal(world_call(v.a, m, &req.base, NULL, NULL), ROS2_OK);
		agent_test_switches.no_region_shape = false;
	}
	verbs_stop(&v);
}

/* ---- records of what is malformed ---- */

static void open_badly(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__RegisterRegionRequest req = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__PathRequest path = ROS2__V1__PATH_REQUEST__INIT;
	Ros2__V1__OpenRequest open = ROS2__V1__OPEN_REQUEST__INIT;

	open.session_uid = path.session_uid = req.session_uid = (ProtobufCBinaryData){16, s->b};
	open.mount = 1; /* none: a number of somebody else's, maybe */
	open.path = (char *)"x";
	open.flags = 1;
	assert_int_equal(world_call(c, &ros2_v1_tenant_open, &open.base, NULL, NULL),
	                 ROS2_NOT_FOUND);
	/* The RPC layer refuses this before the service sees it. */
	path.path = (char *)"a\xff";
	assert_int_equal(world_call(c, &ros2_v1_tenant_stat, &path.base, NULL, NULL), ROS2_INVALID);
	req.address = UINT64_MAX - 4095;
	req.length = 8192;
	req.access = 4;
	assert_int_equal(world_call(c, &ros2_v1_tenant_register_region, &req.base, NULL, NULL),
	                 ROS2_INVALID);
}

static void refusal__of_what_is_malformed_is_recorded(void **state)
{
	struct verbs v;

	(void)state;
	/* Control: with the recording off the calls are refused the same, and nothing is said. */
	for (int on = 0; on < 2; on++) {
		verbs_start(&v, 0);
		agent_test_switches.no_refusal_records = !on;
		open_badly(v.a, &v.sa);
		if (on) {
			assert_true(world_wait_action(v.w, "file.deny"));
			assert_true(world_wait_action(v.w, "region.deny"));
		}
		/* time: what the RPC layer refused is told within a second */
		usleep(1200 * 1000);
		assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
		assert_true(world_wait_action(v.w, "session.close"));
		if (!on)
			assert_null(strstr(v.w->actions, ".deny"));
		verbs_stop(&v);
	}
}

/* ---- the room for records ---- */

#define RENAMES 400 /* more than the whole spool of this test has room for */

static enum ros2_status rename_as(struct rpc_channel *c, struct ros2_uid *s)
{
	Ros2__V1__RenameRequest req = ROS2__V1__RENAME_REQUEST__INIT;
	static char from[200], to[200];

	memset(from, 'a', sizeof(from) - 1);
	memset(to, 'b', sizeof(to) - 1);
	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.mount = 1;
	req.from = from;
	req.to = to;
	return world_call(c, &ros2_v1_tenant_rename, &req.base, NULL, NULL);
}

/* Of the calls that change a name. */
static enum ros2_status path_as(struct rpc_channel *c, const struct rpc_method *m,
                                struct ros2_uid *s)
{
	Ros2__V1__PathRequest req = ROS2__V1__PATH_REQUEST__INIT;

	req.session_uid = (ProtobufCBinaryData){16, s->b};
	req.mount = 1;
	req.path = (char *)"x";
	return world_call(c, m, &req.base, NULL, NULL);
}

/* Alpha renames while the controller takes no records: how often it was let. */
static unsigned renames_of_alpha(struct verbs *v)
{
	enum ros2_status st = ROS2_OK;
	unsigned n = 0;

	for (; n < RENAMES && st == ROS2_OK; n += st == ROS2_OK)
		st = rename_as(v->a, &v->sa);
	if (st != ROS2_OK)
		assert_int_equal(st, ROS2_BUSY);
	return n;
}

static void room_start(struct verbs *v)
{
	verbs_start(v, 256 * 1024);
	agent_test_switches.no_verb_limit = true;
	assert_int_equal(mount_as(v->a, &v->sa), ROS2_OK);
	v->w->no_audit_acks = true;
}

static void tenant__that_renames_leaves_its_neighbour_room_for_records(void **state)
{
	struct ros2_uid s;
	char words[320];
	struct verbs v;

	(void)state;
	room_start(&v);
	assert_in_range(renames_of_alpha(&v), 1, RENAMES - 1);
	assert_int_equal(path_as(v.a, &ros2_v1_tenant_mkdir, &v.sa), ROS2_BUSY);
	assert_int_equal(path_as(v.a, &ros2_v1_tenant_unlink, &v.sa), ROS2_BUSY);
	assert_int_equal(path_as(v.a, &ros2_v1_tenant_rmdir, &v.sa), ROS2_BUSY);
	assert_int_equal(mount_and_hear(v.a, &v.sa, words), ROS2_BUSY);
	assert_non_null(strstr(words, "this tenant's share of the audit spool is full"));
	assert_non_null(strstr(words, "7/32 of --spool-bytes)"));
	assert_int_equal(world_open_session(v.b, &s), ROS2_OK);
	assert_int_equal(mount_as(v.b, &s), ROS2_OK);
	assert_int_equal(path_as(v.b, &ros2_v1_tenant_mkdir, &s), ROS2_OK);
	/* What it gives up is recorded out of the reserve. */
	assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
	assert_true(world_wait_action(v.w, "session.close"));
	agent_test_switches.no_verb_limit = false;
	verbs_stop(&v);
}

static void control__room_for_records(void **state)
{
	struct ros2_uid s;
	struct verbs v;

	(void)state;
	room_start(&v);
	agent_test_switches.no_spool_room = true;
	assert_int_equal(renames_of_alpha(&v), RENAMES);
	agent_test_switches.no_spool_room = agent_test_switches.no_verb_limit = false;
	assert_int_equal(world_open_session(v.b, &s), ROS2_NOT_DURABLE);
	verbs_stop(&v);
}

/* ---- the same name, another tenant ---- */

#define TWIN_SEED 9

struct twins {
	struct world *w;
	struct rpc_channel *a; /* alpha's certificate, which both of them name */
	struct ros2_uid old;   /* a session of the first */
	uint32_t key;          /* a region of it */
};

/* The first has a session and an idle grant, which no message takes away; then one delta removes
 * it and brings another of the same name, principal and namespaces. */
static void twins_start(struct twins *t)
{
	struct ros2_uid idle;

	t->w = calloc(1, sizeof(*t->w));
	world_start(t->w);
	world_agent_start(t->w);
	world_populate(t->w);
	t->a = world_tenant(t->w, "alpha");
	t->old = connected_session(t->w, t->a);
	t->key = register_as(t->a, &t->old);
	idle = connected_session(t->w, t->a);
	assert_int_equal(close_as(t->a, &idle), ROS2_OK);
	assert_int_equal(t->w->grant_requests, 2);
	/* What the data plane ends by itself is not what this is about. */
	fake_dp_no_memory = true;
	world_replace(t->w, WORLD_ALPHA_SEED, 1,
	              fix_tenant(&t->w->f, "alpha", FIX_ALPHA, TWIN_SEED, 1));
	world_wait(t->w, &t->w->acks, 2);
}

static void twins_stop(struct twins *t)
{
	fake_dp_no_memory = false;
	rpc_channel_free(t->a);
	world_stop(t->w);
	free(t->w);
}

/* How many grants there were to be asked for when the second had its first session. */
static unsigned grants_of_both(struct twins *t)
{
	struct ros2_uid s;

	assert_true(AWAIT(world_open_session(t->a, &s) == ROS2_OK));
	return t->w->grant_requests;
}

static void tenant__made_again_has_no_right_of_the_first(void **state)
{
	struct twins t;

	(void)state;
	twins_start(&t);
	for (unsigned known = 0; known < 2; known++) {
		assert_int_equal(mount_as(t.a, &t.old), ROS2_REVOKED);
		assert_int_equal(stat_as(t.a, &t.old, NULL), ROS2_REVOKED);
		assert_int_equal(renew_as(t.a, &t.old, t.key), ROS2_REVOKED);
		assert_int_equal(path_as(t.a, &ros2_v1_tenant_mkdir, &t.old), ROS2_REVOKED);
		assert_int_equal(grants_of_both(&t), 3 + known);
	}
	twins_stop(&t);
}

/* It has ended with its tenant; one that had not would be nobody's who comes after. */
static void control__session_of_a_tenant_that_is_gone(void **state)
{
	struct twins t;

	(void)state;
	agent_test_switches.no_tenant_end = true;
	twins_start(&t);
	grants_of_both(&t);
	assert_int_equal(mount_as(t.a, &t.old), ROS2_BAD_SESSION);
	assert_int_equal(renew_as(t.a, &t.old, t.key), ROS2_BAD_SESSION);
	assert_int_equal(close_as(t.a, &t.old), ROS2_BAD_SESSION);
	agent_test_switches.no_session_tenant = true;
	assert_int_equal(mount_as(t.a, &t.old), ROS2_OK);
	assert_int_equal(renew_as(t.a, &t.old, t.key), ROS2_OK);
	agent_test_switches.no_session_tenant = agent_test_switches.no_tenant_end = false;
	twins_stop(&t);
}

static void control__tenant_of_a_grant(void **state)
{
	struct twins t;

	(void)state;
	agent_test_switches.no_grant_tenant = true;
	twins_start(&t);
	assert_int_equal(grants_of_both(&t), 2);
	agent_test_switches.no_grant_tenant = false;
	twins_stop(&t);
}

/* ---- the rate of records ---- */

#define AN_HOUR 3600 /* of one record a second */

static void records_start(struct verbs *v)
{
	verbs_start_with(v, 0, 1);
	agent_test_switches.no_verb_limit = true;
	assert_int_equal(mount_as(v->a, &v->sa), ROS2_OK);
	assert_int_equal(mount_as(v->b, &v->sb), ROS2_OK);
	clock_hold();
}

static void records_stop(struct verbs *v)
{
	agent_test_switches.no_verb_limit = false;
	clock_release();
	verbs_stop(v);
}

/* What alpha is allowed to do, and told of in the log for good, until it is refused: how often. */
static unsigned mkdirs_of_alpha(struct verbs *v, unsigned most)
{
	enum ros2_status st = ROS2_OK;
	unsigned n = 0;

	while (n < most && (st = path_as(v->a, &ros2_v1_tenant_mkdir, &v->sa)) == ROS2_OK)
		n++;
	if (st != ROS2_OK)
		assert_int_equal(st, ROS2_RATE);
	return n;
}

static void tenant__has_an_hour_of_records_at_once_and_then_its_rate(void **state)
{
	struct verbs v;
	char words[320];

	(void)state;
	records_start(&v);
	/* Less what came before: a session, a region, a mount, and a second of a slow machine. */
	assert_in_range(mkdirs_of_alpha(&v, 2 * AN_HOUR), AN_HOUR - 4, AN_HOUR + 20);
	assert_int_equal(mkdirs_of_alpha(&v, 1), 0);
	assert_int_equal(mount_and_hear(v.a, &v.sa, words), ROS2_RATE);
	assert_non_null(strstr(words, "--tenant-records is 1 a second"));
	for (unsigned i = 0; i < 5; i++) {
		held_ns += 3 * NS_PER_S;
		assert_int_equal(mkdirs_of_alpha(&v, 10), 3);
	}
	/* It keeps and gives up what it has, and its neighbour has its own. */
	others_are_served(&v);
	assert_int_equal(path_as(v.b, &ros2_v1_tenant_mkdir, &v.sb), ROS2_OK);
	assert_int_equal(close_as(v.a, &v.sa), ROS2_OK);
	records_stop(&v);
}

static void control__rate_of_records(void **state)
{
	struct verbs v;

	(void)state;
	records_start(&v);
	agent_test_switches.no_record_limit = true;
	assert_int_equal(mkdirs_of_alpha(&v, AN_HOUR + 100), AN_HOUR + 100);
	agent_test_switches.no_record_limit = false;
	assert_int_equal(mkdirs_of_alpha(&v, 1), 0);
	records_stop(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(control__tenant_of_the_session),
		cmocka_unit_test(tenant__made_again_has_no_right_of_the_first),
		cmocka_unit_test(control__session_of_a_tenant_that_is_gone),
		cmocka_unit_test(control__tenant_of_a_grant),
		cmocka_unit_test(control__namespace_of_the_tenant),
		cmocka_unit_test(control__mount_of_the_session),
		cmocka_unit_test(control__path_grammar),
		cmocka_unit_test(control__size_of_a_file),
		cmocka_unit_test(control__shape_of_a_region),
		cmocka_unit_test(tenant__calls_within_its_control_verbs_per_second),
		cmocka_unit_test(tenant__keeps_what_it_has_within_a_rate_too),
		cmocka_unit_test(control__verbs_per_second),
		cmocka_unit_test(refusal__of_what_is_malformed_is_recorded),
		cmocka_unit_test(tenant__that_renames_leaves_its_neighbour_room_for_records),
		cmocka_unit_test(control__room_for_records),
		cmocka_unit_test(tenant__has_an_hour_of_records_at_once_and_then_its_rate),
		cmocka_unit_test(control__rate_of_records),
	};

	log_set_level_str("error");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
