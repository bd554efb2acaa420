/* SPDX-License-Identifier: Apache-2.0 */
/* The Tenant service over real gRPC: who may do what, and what everybody else hears. */
#include "common/fsx.h"
#include "tests/agent/world.h"
#include <errno.h>
#include "common/log.h"
#include "common/util.h"
#include "tests/await.h"

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	world_start(w);
	world_agent_start(w);
	world_populate(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	world_stop(w);
	assert_int_equal(w->fatal.code, 0);
	free(w);
	return 0;
}

static ProtobufCBinaryData uid_bytes(struct ros2_uid *u)
{
	return (ProtobufCBinaryData){16, u->b};
}

static enum ros2_status mount(struct rpc_channel *c, struct ros2_uid *s, const char *ns,
                              uint32_t *ret)
{
	Ros2__V1__MountRequest req = ROS2__V1__MOUNT_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	enum ros2_status st;

	req.session_uid = uid_bytes(s);
	req.namespace_name = (char *)(uintptr_t)ns;
	st = world_call(c, &ros2_v1_tenant_mount, &req.base, &m, NULL);
	if (st == ROS2_OK) {
		*ret = ((Ros2__V1__MountReply *)m)->mount;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	return st;
}

static enum ros2_status open_file(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt,
                                  const char *path, uint32_t flags, uint64_t *ret)
{
	Ros2__V1__OpenRequest req = ROS2__V1__OPEN_REQUEST__INIT;
	ProtobufCMessage *m = NULL;
	enum ros2_status st;

	req.session_uid = uid_bytes(s);
	req.mount = mnt;
	req.path = (char *)(uintptr_t)path;
	req.flags = flags;
	req.mode = 0644;
	st = world_call(c, &ros2_v1_tenant_open, &req.base, &m, NULL);
	if (st == ROS2_OK) {
		if (ret)
			*ret = ((Ros2__V1__OpenReply *)m)->handle;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	return st;
}

static enum ros2_status stat_handle(struct rpc_channel *c, struct ros2_uid *s, uint64_t h)
{
	Ros2__V1__HandleRef req = ROS2__V1__HANDLE_REF__INIT;

	req.session_uid = uid_bytes(s);
	req.handle = h;
	return world_call(c, &ros2_v1_tenant_stat_handle, &req.base, NULL, NULL);
}

static void tenant__opens_mounts_and_registers_and_all_is_recorded(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	Ros2__V1__RegisterRegionRequest reg = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;
	struct ros2_uid s;
	uint32_t mnt;
	uint64_t h;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(mount(c, &s, "data", &mnt), ROS2_OK);
	assert_int_equal(open_file(c, &s, mnt, "a/b", 7, &h), ROS2_OK);
	assert_int_equal(stat_handle(c, &s, h), ROS2_OK);
	reg.session_uid = uid_bytes(&s);
	reg.address = 0x1000;
	reg.length = 4096;
	reg.access = 3;
	assert_int_equal(world_call(c, &ros2_v1_tenant_register_region, &reg.base, NULL, NULL),
	                 ROS2_OK);
	ref.session_uid = uid_bytes(&s);
	assert_int_equal(world_call(c, &ros2_v1_tenant_close_session, &ref.base, NULL, NULL),
	                 ROS2_OK);
	assert_int_equal(stat_handle(c, &s, h), ROS2_CLOSED);
	assert_true(world_wait_action(w, "session.open"));
	assert_true(world_wait_action(w, "namespace.mount"));
	assert_true(world_wait_action(w, "file.open"));
	assert_true(world_wait_action(w, "region.register"));
	assert_true(world_wait_action(w, "session.close"));
	rpc_channel_free(c);
}

/* The data plane still has it under its name, because a session that is ending used it. */
static void mount__of_an_engine_that_was_taken_away_is_refused(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	Ros2__V1__AgentObject *again = fix_engine(&w->f, "files", 9, 2);
	unsigned acks = w->acks, mounts;
	struct ros2_uid s, other;
	uint32_t mnt;
	uint64_t h;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(mount(c, &s, "data", &mnt), ROS2_OK);
	mounts = fake_dp_log.mounts;
	fake_dp_engine_busy = true;
	world_remove(w, OBJ_ENGINE, 1, 1);
	world_wait(w, &w->acks, acks + 1);
	/* Who had it mounted has no right to it any more; who comes does not get it. */
	assert_int_equal(open_file(c, &s, mnt, "a", 1, &h), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &other), ROS2_OK);
	assert_int_equal(mount(c, &other, "data", &mnt), ROS2_UNAVAILABLE);
	assert_int_equal(fake_dp_log.mounts, mounts);
	/* The control: there is one of the name again. */
	acks = w->acks;
	world_send(w, &again, 1, false);
	world_wait(w, &w->acks, acks + 1);
	assert_int_equal(mount(c, &other, "data", &mnt), ROS2_OK);
	rpc_channel_free(c);
}

/* What the data plane says of it, as the device's words over verbs: in the last record, and to the
 * tenant. */
static void session__that_the_data_plane_ended_is_told_with_its_words(void **state)
{
	static const char words[] = "the device reports: local access violation";
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct dp_event ev = {.type = DP_EVENT_SESSION_ENDED, .status = ROS2_CLOSED};
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	ev.session = s;
	snprintf(ev.words, sizeof(ev.words), "%s", words);
	fake_dp_event(w->agent->dp, &ev);
	assert_true(world_wait_action(w, "session.close"));
	pthread_mutex_lock(&w->lock);
	assert_non_null(strstr(w->reasons, words));
	pthread_mutex_unlock(&w->lock);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_CLOSED);
	rpc_channel_free(c);
}

static void tenant__paths_are_judged_by_the_policy(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	static const struct {
		const char *ns, *path;
		uint32_t flags;
		enum ros2_status want;
	} t[] = {
		{"data", "secret/key", 1, ROS2_DENIED},
		{"data", "ro/file", 1, ROS2_OK},
		{"data", "ro/file", 2, ROS2_DENIED},
		{"data", "ro/file", 5, ROS2_DENIED},
		{"data", "x", 3, ROS2_OK},
		{"data", "../x", 1, ROS2_BAD_PATH},
		{"data", "a//b", 1, ROS2_BAD_PATH},
		{"data", "/a", 1, ROS2_BAD_PATH},
		{"data", "", 1, ROS2_BAD_PATH},
		{"data", "x", 0, ROS2_INVALID},
		{"data", "x", 33, ROS2_INVALID},
		{"data", "x", 17, ROS2_INVALID},
		{"readonly", "x", 1, ROS2_OK},
		{"readonly", "x", 6, ROS2_DENIED},
	};
	struct ros2_uid s;
	unsigned opens;
	uint32_t data, readonly, none;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(mount(c, &s, "data", &data), ROS2_OK);
	assert_int_equal(mount(c, &s, "readonly", &readonly), ROS2_OK);
	assert_int_equal(mount(c, &s, "nothing", &none), ROS2_DENIED);
	assert_int_equal(mount(c, &s, "NOT A NAME", &none), ROS2_INVALID);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		opens = fake_dp_log.opens;
		assert_int_equal(open_file(c, &s, t[i].ns[0] == 'd' ? data : readonly, t[i].path,
		                           t[i].flags, NULL),
		                 t[i].want);
		assert_int_equal(fake_dp_log.opens - opens, t[i].want == ROS2_OK);
	}
	assert_int_equal(open_file(c, &s, 999, "x", 1, NULL), ROS2_NOT_FOUND);
	assert_true(world_wait_action(w, "file.deny"));
	rpc_channel_free(c);
}

static void assert_recorded(struct world *w)
{
	assert_true(world_wait_action(w, "session.deny"));
	assert_true(world_wait_action(w, "file.deny"));
	assert_true(world_wait_action(w, "region.deny"));
}

/* With another's session, one that is nowhere, and no uid at all: the same words. */
static void assert_nowhere(struct rpc_channel *c, const struct rpc_method *m, ProtobufCMessage *req,
                           struct ros2_uid *other)
{
	ProtobufCBinaryData *uid = &((Ros2__V1__SessionRef *)req)->session_uid;
	struct ros2_uid none = fix_uid(77);
	char words[320], words_none[320];

	*uid = uid_bytes(other);
	assert_int_equal(world_call(c, m, req, NULL, words), ROS2_BAD_SESSION);
	*uid = uid_bytes(&none);
	assert_int_equal(world_call(c, m, req, NULL, words_none), ROS2_BAD_SESSION);
	assert_string_equal(words, words_none);
	uid->len = 3;
	assert_int_equal(world_call(c, m, req, NULL, NULL), ROS2_BAD_SESSION);
}

static enum ros2_status rename_path(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt,
                                    const char *from, const char *to)
{
	Ros2__V1__RenameRequest req = ROS2__V1__RENAME_REQUEST__INIT;

	req.session_uid = uid_bytes(s);
	req.mount = mnt;
	req.from = (char *)(uintptr_t)from;
	req.to = (char *)(uintptr_t)to;
	return world_call(c, &ros2_v1_tenant_rename, &req.base, NULL, NULL);
}

static void rename__does_not_carry_a_hidden_directory_past_its_rule(void **state)
{
	static const struct {
		const char *from, *to;
		enum ros2_status want;
	} t[] = {
		{"deep", "shallow", ROS2_DENIED}, /* deep/secret/... would be shallow/secret/... */
		{"dir1", "deep", ROS2_DENIED},     {"dir1", "dir2", ROS2_OK},
		{"file1", "file2", ROS2_OK},       {"secret", "open", ROS2_DENIED},
		{"file1", "ro/file", ROS2_DENIED},
	};
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid s;
	uint32_t data;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(mount(c, &s, "data", &data), ROS2_OK);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		unsigned n = fake_dp_log.renames;

		assert_int_equal(rename_path(c, &s, data, t[i].from, t[i].to), t[i].want);
		assert_int_equal(fake_dp_log.renames - n, t[i].want == ROS2_OK);
	}
	rpc_channel_free(c);
}

/* Every method, with alpha's ids in beta's mouth: the same words as for a session that is nowhere.
 */
static void tenant__of_another_gets_nothing_with_known_ids(void **state)
{
	struct world *w = *state;
	struct rpc_channel *a = world_tenant(w, "alpha"), *b = world_tenant(w, "beta");
	Ros2__V1__MountRequest mreq = ROS2__V1__MOUNT_REQUEST__INIT;
	Ros2__V1__OpenRequest oreq = ROS2__V1__OPEN_REQUEST__INIT;
	Ros2__V1__HandleRef href = ROS2__V1__HANDLE_REF__INIT;
	Ros2__V1__PathRequest preq = ROS2__V1__PATH_REQUEST__INIT;
	Ros2__V1__ReaddirRequest rd = ROS2__V1__READDIR_REQUEST__INIT;
	Ros2__V1__RenameRequest ren = ROS2__V1__RENAME_REQUEST__INIT;
	Ros2__V1__TruncateRequest tr = ROS2__V1__TRUNCATE_REQUEST__INIT;
	Ros2__V1__RegisterRegionRequest reg = ROS2__V1__REGISTER_REGION_REQUEST__INIT;
	Ros2__V1__RegionRef rr = ROS2__V1__REGION_REF__INIT;
	Ros2__V1__SessionRef sref = ROS2__V1__SESSION_REF__INIT;
	struct {
		const struct rpc_method *m;
		ProtobufCMessage *req;
	} calls[] = {
		{&ros2_v1_tenant_mount, &mreq.base},
		{&ros2_v1_tenant_open, &oreq.base},
		{&ros2_v1_tenant_close, &href.base},
		{&ros2_v1_tenant_stat_handle, &href.base},
		{&ros2_v1_tenant_stat, &preq.base},
		{&ros2_v1_tenant_readdir, &rd.base},
		{&ros2_v1_tenant_mkdir, &preq.base},
		{&ros2_v1_tenant_unlink, &preq.base},
		{&ros2_v1_tenant_rmdir, &preq.base},
		{&ros2_v1_tenant_rename, &ren.base},
		{&ros2_v1_tenant_truncate, &tr.base},
		{&ros2_v1_tenant_flush, &href.base},
		{&ros2_v1_tenant_register_region, &reg.base},
		{&ros2_v1_tenant_renew_region, &rr.base},
		{&ros2_v1_tenant_deregister_region, &rr.base},
		{&ros2_v1_tenant_close_session, &sref.base},
	};
	struct ros2_uid s, own;
	uint32_t mnt;
	uint64_t h;

	assert_int_equal(ARRAY_SIZE(calls) + 1, ros2_v1_tenant_service.n_methods);
	assert_int_equal(world_open_session(a, &s), ROS2_OK);
	assert_int_equal(mount(a, &s, "data", &mnt), ROS2_OK);
	assert_int_equal(open_file(a, &s, mnt, "x", 7, &h), ROS2_OK);
	assert_int_equal(world_open_session(b, &own), ROS2_OK);
	href.handle = tr.handle = h;
	preq.mount = oreq.mount = rd.mount = ren.mount = mnt;
	rr.key = 4000;
	mreq.namespace_name = (char *)"data";
	preq.path = oreq.path = ren.from = (char *)"x";
	ren.to = (char *)"y";
	oreq.flags = 1;
	reg.length = 4096;
	reg.access = 3;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		assert_nowhere(b, calls[i].m, calls[i].req, &s);
	/* Alpha's handle and mount in beta's own session. */
	assert_int_equal(stat_handle(b, &own, h), ROS2_BAD_HANDLE);
	assert_int_equal(open_file(b, &own, mnt, "x", 1, NULL), ROS2_NOT_FOUND);
	/* The victim did not notice. */
	assert_int_equal(stat_handle(a, &s, h), ROS2_OK);
	assert_recorded(w);
	rpc_channel_free(a);
	rpc_channel_free(b);
}

static void tenant__unknown_here_is_denied(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "other");
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_DENIED);
	assert_int_equal(fake_dp_log.session_opens, 0);
	rpc_channel_free(c);
}

static void tenant__gets_no_session_without_a_grant(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid s;

	w->grant_status = ROS2_NO_GRANT;
	assert_int_equal(world_open_session(c, &s), ROS2_NO_GRANT);
	assert_int_equal(fake_dp_log.session_opens, 0);
	w->grant_status = 0;
	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	rpc_channel_free(c);
}

static void tenant__has_at_most_the_sessions_of_its_policy(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha"), *b = world_tenant(w, "beta");
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	struct ros2_uid s[4];
	char words[320];

	for (int i = 0; i < 3; i++)
		assert_int_equal(world_open_session(c, &s[i]), ROS2_OK);
	req.protocol = RPC_PROTOCOL_VERSION;
	req.transport = ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	assert_int_equal(world_call(c, &ros2_v1_tenant_open_session, &req.base, NULL, words),
	                 ROS2_LIMIT);
	assert_non_null(strstr(words, "tenant alpha: sessions.max is 3, and it has 3 open at this "
	                              "agent: close one first"));
	assert_int_equal(world_open_session(b, &s[3]), ROS2_OK);
	assert_int_equal(w->grant_requests, 4);
	rpc_channel_free(c);
	rpc_channel_free(b);
}

static void tenant__revoked_loses_its_sessions_with_a_receipt(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha"), *b = world_tenant(w, "beta");
	Ros2__V1__AgentObject *again;
	struct ros2_uid s, other;
	unsigned receipts;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(world_open_session(b, &other), ROS2_OK);
	fake_dp_draining = 2;
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	/* One that says draining and one that says drained; one is enough when the disk is slower.
	 */
	world_wait(w, &w->receipts, 1);
	AWAIT(!w->last_draining);
	assert_true(w->last_durable);
	assert_int_equal(w->last_draining, 0);
	receipts = w->receipts;
	assert_int_equal(w->last_sessions, 1);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &s), ROS2_REVOKED);
	assert_int_equal(stat_handle(b, &other, 1), ROS2_BAD_HANDLE);
	/* Sent again: the same answer, nothing else. */
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, receipts + 1);
	/* Reinstated: a higher version. */
	again = fix_tenant(&w->f, "alpha", FIX_ALPHA, WORLD_ALPHA_SEED, 2);
	world_send(w, &again, 1, false);
	world_wait(w, &w->acks, 2);
	w->next_grant = 60;
	/* Grants of the old version stay dead. */
	assert_int_equal(world_open_session(c, &s), ROS2_REVOKED);
	rpc_channel_free(c);
	rpc_channel_free(b);
}

static void tenant__that_loses_its_principal_loses_its_session(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	Ros2__V1__AgentObject *o;
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	o = fix_tenant(&w->f, "alpha", "spiffe://ros2.test/tenant/alpha/other", WORLD_ALPHA_SEED,
	               2);
	world_send(w, &o, 1, false);
	world_wait(w, &w->acks, 2);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &s), ROS2_DENIED);
	rpc_channel_free(c);
}

/* A disk that takes no snapshot. */
static _Atomic bool disk_full;
static const struct fsx_ops *real_io;

/* And one that stands still under the spool. */
static _Atomic bool hold_spool;
static _Atomic unsigned spool_held;

static ssize_t full_write(int fd, const void *p, size_t n)
{
	char link[64], path[4200];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = disk_full || hold_spool ? readlink(link, path, sizeof(path) - 1) : 0;
	path[len > 0 ? len : 0] = '\0';
	if (hold_spool && strstr(path, "/spool/")) {
		spool_held++;
		/* poll: until the test lets it go on */
		(void)AWAIT(!hold_spool);
	}
	if (!disk_full || !strstr(path, "snapshot"))
		return real_io->write(fd, p, n);
	errno = ENOSPC;
	return -1;
}

static int full_rename(const char *from, const char *to)
{
	const char *name = strrchr(to, '/');

	if (!disk_full || !name || strcmp(name, "/snapshot") != 0)
		return real_io->rename(from, to);
	errno = ENOSPC;
	return -1;
}

static void tenant__narrowed_by_a_document_that_cannot_be_stored_loses_at_once(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	Ros2__V1__AgentObject *o;
	struct ros2_uid s;
	unsigned applied;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	disk_full = true;
	o = fix_tenant(&w->f, "alpha", "spiffe://ros2.test/tenant/alpha/other", WORLD_ALPHA_SEED,
	               2);
	world_send(w, &o, 1, false);
	world_wait(w, &w->failed, 1);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_REVOKED);
	assert_int_equal(world_open_session(c, &s), ROS2_DENIED);
	pthread_mutex_lock(&w->lock);
	applied = w->applied;
	pthread_mutex_unlock(&w->lock);
	disk_full = false;
	world_wait(w, &w->applied, applied + 1);
	assert_int_equal(world_open_session(c, &s), ROS2_DENIED);
	rpc_channel_free(c);
}

struct opening {
	struct rpc_channel *c;
	enum ros2_status st;
	pthread_t thread;
};

static void *open_one(void *arg)
{
	struct opening *o = arg;
	struct ros2_uid s;

	o->st = world_open_session(o->c, &s);
	return NULL;
}

static void grant__that_comes_after_its_session_was_ended_is_left_idle(void **state)
{
	struct world *w = *state;
	struct opening o = {.c = world_tenant(w, "alpha")};
	Ros2__V1__AgentObject *doc;
	struct ros2_uid s;

	w->hold_grants = true;
	pthread_create(&o.thread, NULL, open_one, &o);
	world_wait(w, &w->grant_requests, 1);
	doc = fix_tenant(&w->f, "alpha", "spiffe://ros2.test/tenant/alpha/other", WORLD_ALPHA_SEED,
	                 2);
	world_send(w, &doc, 1, false);
	world_wait(w, &w->acks, 2);
	world_answer_grant(w);
	pthread_join(o.thread, NULL);
	assert_int_equal(o.st, ROS2_CLOSED);
	assert_int_equal(world_open_session(o.c, &s), ROS2_DENIED);
	rpc_channel_free(o.c);
}

static void session__that_ends_while_its_record_is_written_is_closed_in_the_log(void **state)
{
	struct world *w = *state;
	struct opening o = {.c = world_tenant(w, "alpha")};

	spool_held = 0;
	hold_spool = true;
	pthread_create(&o.thread, NULL, open_one, &o);
	/* poll: of a writer; the first thing that it records is this session */
	assert_true(AWAIT(spool_held == 1));
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_int_equal(fake_dp_sessions(), 0);
	hold_spool = false;
	pthread_join(o.thread, NULL);
	assert_int_equal(o.st, ROS2_CLOSED);
	assert_true(world_wait_action(w, "session.open"));
	assert_true(world_wait_action(w, "session.close"));
	rpc_channel_free(o.c);
}

static void tenant__is_served_by_a_restarted_agent_while_the_controller_is_away(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	rpc_channel_free(c);
	world_controller_stop(w);
	world_agent_stop(w);
	world_agent_start(w);
	c = world_tenant(w, "alpha");
	/* The idle grant of the last process is taken again. */
	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	assert_int_equal(w->grant_requests, 1);
	/* A second one would need the controller. */
	assert_int_equal(world_open_session(c, &s), ROS2_UNAVAILABLE);
	rpc_channel_free(c);
	w->hellos = 0;
	world_controller_start(w);
	world_wait(w, &w->hellos, 1);
	assert_true(w->last_have >= 4);
}

/* A program that closes and opens again without a controller: its right comes back a moment after
 * it was asked for. */
static void session__that_waits_without_a_controller_takes_a_right_that_comes_back(void **state)
{
	struct world *w = *state;
	struct opening o = {.c = world_tenant(w, "alpha")}, other = {.c = world_tenant(w, "beta")};
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;
	struct ros2_uid s;

	assert_int_equal(world_open_session(o.c, &s), ROS2_OK);
	w->hold_grants = true;
	pthread_create(&other.thread, NULL, open_one, &other);
	world_wait(w, &w->grant_requests, 2);
	pthread_create(&o.thread, NULL, open_one, &o);
	world_wait(w, &w->grant_requests, 3);
	world_controller_stop(w);
	ref.session_uid = uid_bytes(&s);
	assert_int_equal(world_call(o.c, &ros2_v1_tenant_close_session, &ref.base, NULL, NULL),
	                 ROS2_OK);
	pthread_join(o.thread, NULL);
	assert_int_equal(o.st, ROS2_OK);
	/* Nobody else's: who came first is of another tenant. */
	pthread_join(other.thread, NULL);
	assert_int_equal(other.st, ROS2_UNAVAILABLE);
	rpc_channel_free(o.c);
	rpc_channel_free(other.c);
	world_controller_start(w);
}

static enum ros2_status cut_by_name(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt)
{
	return open_file(c, s, mnt, "cut", 2 | 16, NULL);
}

static enum ros2_status cut_by_handle(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt)
{
	Ros2__V1__TruncateRequest tr = ROS2__V1__TRUNCATE_REQUEST__INIT;

	assert_int_equal(open_file(c, s, mnt, "x", 3, &tr.handle), ROS2_OK);
	tr.session_uid = uid_bytes(s);
	fake_dp_loss = FAKE_DP_LOST_BEFORE;
	return world_call(c, &ros2_v1_tenant_truncate, &tr.base, NULL, NULL);
}

static enum ros2_status rename_one(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt)
{
	return rename_path(c, s, mnt, "file1", "file2");
}

/* libros2 takes CLOSED for a call that was not begun, and makes it again. */
static void change__that_was_carried_out_for_a_session_that_ended_is_in_doubt(void **state)
{
	static const struct {
		enum ros2_status (*make)(struct rpc_channel *c, struct ros2_uid *s, uint32_t mnt);
		enum fake_dp_loss loss;
		const char *recorded;
	} t[] = {{rename_one, FAKE_DP_LOST_BEFORE, "path.rename"},
	         {cut_by_name, FAKE_DP_LOST_BEFORE, "file.open"},
	         {cut_by_name, FAKE_DP_LOST_BEHIND, "file.open"},
	         {cut_by_handle, FAKE_DP_STAYS, "session.close"}};
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha");
	struct ros2_uid s;
	uint32_t mnt;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		assert_int_equal(world_open_session(c, &s), ROS2_OK);
		assert_int_equal(mount(c, &s, "data", &mnt), ROS2_OK);
		pthread_mutex_lock(&w->lock);
		w->actions[0] = 0;
		pthread_mutex_unlock(&w->lock);
		fake_dp_loss = t[i].loss;
		assert_int_equal(t[i].make(c, &s, mnt), ROS2_OUTCOME_UNKNOWN);
		assert_true(world_wait_action(w, t[i].recorded));
		assert_true(world_wait_action(w, "session.close"));
	}
	rpc_channel_free(c);
}

struct ending {
	struct rpc_channel *c;
	struct ros2_uid session;
	_Atomic bool answered;
	enum ros2_status st;
	pthread_t thread;
};

static void *close_it(void *arg)
{
	struct ending *e = arg;
	Ros2__V1__SessionRef ref = ROS2__V1__SESSION_REF__INIT;

	ref.session_uid = uid_bytes(&e->session);
	e->st = world_call(e->c, &ros2_v1_tenant_close_session, &ref.base, NULL, NULL);
	e->answered = true;
	return NULL;
}

static void session__is_answered_closed_when_it_is_gone_or_a_second_later(void **state)
{
	struct world *w = *state;
	struct ending e = {.c = world_tenant(w, "alpha")};

	for (int late = 0; late < 2; late++) {
		e.answered = false;
		assert_int_equal(world_open_session(e.c, &e.session), ROS2_OK);
		fake_dp_hold_gone = true;
		pthread_create(&e.thread, NULL, close_it, &e);
		assert_true(AWAIT(fake_dp_waiting == 1));
		/* It has ended all the same, and others are served. */
		assert_int_equal(stat_handle(e.c, &e.session, 1), ROS2_CLOSED);
		if (!late) {
			assert_false(e.answered);
			loop_call(w->loop, fake_dp_let_go, NULL);
		}
		pthread_join(e.thread, NULL);
		assert_int_equal(e.st, ROS2_OK);
		assert_int_equal(fake_dp_waiting, 0);
		fake_dp_hold_gone = false;
	}
	rpc_channel_free(e.c);
}

static void agent__obeys_a_newer_epoch_it_cannot_store_only_where_rights_shrink(void **state)
{
	struct world *w = *state;
	struct rpc_channel *c = world_tenant(w, "alpha"), *b = world_tenant(w, "beta");
	Ros2__V1__AgentObject *o;
	struct ros2_uid s;

	assert_int_equal(world_open_session(c, &s), ROS2_OK);
	world_controller_stop(w);
	disk_full = true;
	w->f.epoch.counter++;
	w->beats = w->receipts = w->grant_requests = 0;
	world_controller_start(w);
	world_wait(w, &w->beats, 2);
	/* A revocation: carried out, with a receipt, on disk in the room kept for it. */
	world_revoke(w, OBJ_TENANT, WORLD_ALPHA_SEED, 1);
	world_wait(w, &w->receipts, 1);
	assert_true(w->last_durable);
	assert_int_equal(stat_handle(c, &s, 1), ROS2_REVOKED);
	/* Nothing that widens: no grant is asked for, no contact is taken, no document applies. */
	assert_int_equal(world_open_session(b, &s), ROS2_UNAVAILABLE);
	assert_int_equal(w->grant_requests, 0);
	fix_contact_limit = "1s";
	o = fix_tenant(&w->f, "beta", FIX_BETA, WORLD_BETA_SEED, 7);
	fix_contact_limit = "60s";
	w->failed = 0;
	world_send(w, &o, 1, false);
	world_wait(w, &w->failed, 1);
	w->beats = 0;
	world_wait(w, &w->beats, 12);
	assert_int_equal(world_open_session(b, &s), ROS2_CONTACT_LOST);
	/* With room again all of it goes on. */
	w->acks = 0;
	disk_full = false;
	world_wait(w, &w->acks, 1);
	w->beats = 0;
	world_wait(w, &w->beats, 2);
	assert_int_equal(world_open_session(b, &s), ROS2_OK);
	rpc_channel_free(b);
	rpc_channel_free(c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	static struct fsx_ops io;

	const struct CMUnitTest tests[] = {
		T(tenant__opens_mounts_and_registers_and_all_is_recorded),
		T(mount__of_an_engine_that_was_taken_away_is_refused),
		T(session__that_the_data_plane_ended_is_told_with_its_words),
		T(tenant__paths_are_judged_by_the_policy),
		T(rename__does_not_carry_a_hidden_directory_past_its_rule),
		T(tenant__of_another_gets_nothing_with_known_ids),
		T(tenant__unknown_here_is_denied),
		T(tenant__gets_no_session_without_a_grant),
		T(tenant__has_at_most_the_sessions_of_its_policy),
		T(tenant__revoked_loses_its_sessions_with_a_receipt),
		T(tenant__that_loses_its_principal_loses_its_session),
		T(tenant__narrowed_by_a_document_that_cannot_be_stored_loses_at_once),
		T(grant__that_comes_after_its_session_was_ended_is_left_idle),
		T(session__that_ends_while_its_record_is_written_is_closed_in_the_log),
		T(session__that_waits_without_a_controller_takes_a_right_that_comes_back),
		T(tenant__is_served_by_a_restarted_agent_while_the_controller_is_away),
		T(change__that_was_carried_out_for_a_session_that_ended_is_in_doubt),
		T(session__is_answered_closed_when_it_is_gone_or_a_second_later),
		T(agent__obeys_a_newer_epoch_it_cannot_store_only_where_rights_shrink),
	};

	log_set_level_str("error");
	real_io = fsx_io;
	io = *real_io;
	io.rename = full_rename;
	io.write = full_write;
	fsx_io = &io;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
