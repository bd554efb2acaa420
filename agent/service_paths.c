/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that name a path. Each asks the policy for the access it needs before the data plane hears
 * of it; paths go on as they came, already normal. */
#include "agent/paths.h"
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

#define READDIR_DEFAULT 256
/* So many of the longest names, each with what frames it, fit into one message. */
#define READDIR_MAX 960
_Static_assert(READDIR_MAX *(255 + 16) < SERVICE_MESSAGE_MAX, "a full reply fits");

static int evaluate(struct service_op *op, const struct agent_session_mount *m, const char *path,
                    uint32_t wanted, struct ros2_err *err)
{
	struct policy_verdict v;
	struct policy_namespace ns;
	struct state_tenant t;

	if (state_tenant_get(op->a->state, &op->tenant, &t) < 0 ||
	    state_namespace(&t, m->name, &ns) < 0 || strcmp(ns.engine, m->engine) != 0 ||
	    strcmp(ns.path, m->path) != 0)
		return ros2_err_named(err, ROS2_DENIED,
		                      "the namespace changed since it was mounted: mount it again");
	snprintf(op->ns, sizeof(op->ns), "%s", m->name);
	v = state_eval_path(&t, m->name, path, wanted);
	if (v.allowed)
		return 0;
	return ros2_err_named(err, v.reason == POLICY_BAD_PATH ? ROS2_BAD_PATH : ROS2_DENIED,
	                      "namespace %s does not allow %s here", m->name,
	                      policy_access_to_str(wanted));
}

int op_check_path(struct service_op *op, uint32_t mount, const char *path, uint32_t wanted,
                  bool root_ok)
{
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);
	struct ros2_err err = ROS2_ERR_INIT;
	const struct agent_session_mount *m = s ? agent_session_mount(s, mount) : NULL;

	if (!op->path) {
		op->path = strndup(path, AGENT_PATH_MAX + 1);
		if (!op->path) {
			op_fail(op, ROS2_BUSY, "no memory");
			return -1;
		}
	}
	op->mount = mount;
	op->foreign = !m;
	if (!m)
		ros2_err_named(&err, ROS2_NOT_FOUND, "no mount %u in this session", mount);
	else if (AGENT_SWITCH(no_path_grammar) || agent_path_check(path, root_ok, &err) == 0)
		evaluate(op, m, path, wanted, &err);
	if (!err.code)
		return 0;
	op_fail_err(op, &err);
	return -1;
}

void service_fill_stat(const struct dp_attr *a, Ros2__V1__StatReply *ret)
{
	static const Ros2__V1__FileType types[] = {0, ROS2__V1__FILE_TYPE__FILE_TYPE_REGULAR,
	                                           ROS2__V1__FILE_TYPE__FILE_TYPE_DIRECTORY,
	                                           ROS2__V1__FILE_TYPE__FILE_TYPE_OTHER};

	ret->type =
		a->type < ARRAY_SIZE(types) ? types[a->type] : ROS2__V1__FILE_TYPE__FILE_TYPE_OTHER;
	ret->size = a->size;
	ret->mtime_unix_ns = a->mtime_unix_ns;
	ret->mode = a->mode;
	ret->blocks_512 = a->blocks_512;
	ret->block_size = a->block_size;
}

/* ---- stat, readdir ---- */

void service_on_stat(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	Ros2__V1__StatReply r = ROS2__V1__STAT_REPLY__INIT;

	if (!op_result(op, res))
		return;
	service_fill_stat(&res->attr, &r);
	op_reply(op, &r.base);
}

void service_stat(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__PathRequest *req = ros2_v1_tenant_stat_in(msg);

	if (op_check_path(op, req->mount, req->path, POLICY_ACCESS_READ, true) == 0)
		dp_path(op->a->dp, &op->session, req->mount, DP_STAT, op->path, "", 0,
		        service_on_stat, op);
}

static void on_readdir(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	Ros2__V1__ReaddirReply r = ROS2__V1__READDIR_REPLY__INIT;
	Ros2__V1__DirEntry *entries, **ptrs;
	uint32_t n;

	if (!op_result(op, res))
		return;
	n = MIN(res->dir.n, (uint32_t)READDIR_MAX);
	entries = calloc(n + 1, sizeof(*entries));
	ptrs = calloc(n + 1, sizeof(Ros2__V1__DirEntry *));
	if (!entries || !ptrs) {
		op_fail(op, ROS2_BUSY, "no memory");
	} else {
		for (uint32_t i = 0; i < n; i++) {
			ros2__v1__dir_entry__init(&entries[i]);
			entries[i].name = (char *)(uintptr_t)res->dir.entries[i].name;
			entries[i].type = (Ros2__V1__FileType)res->dir.entries[i].type;
			/* A name that is not UTF-8 cannot be told in a message, nor opened. */
			if (agent_path_check(entries[i].name, false, NULL) == 0)
				ptrs[r.n_entries++] = &entries[i];
		}
		r.entries = ptrs;
		r.next_cookie = res->dir.next;
		op_reply(op, &r.base);
	}
	free(entries);
	free(ptrs);
}

void service_readdir(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__ReaddirRequest *req = ros2_v1_tenant_readdir_in(msg);
	uint32_t max = req->limit ? MIN(req->limit, (uint32_t)READDIR_MAX) : READDIR_DEFAULT;

	if (op_check_path(op, req->mount, req->path, POLICY_ACCESS_READ, true) == 0)
		dp_readdir(op->a->dp, &op->session, req->mount, op->path, req->cookie, max,
		           on_readdir, op);
}

/* ---- what changes names ----
 *
 * Recorded when it has happened, so that the record may use the reserve; let through only while
 * there is room without it.
 */

static const char *const actions[] = {[DP_MKDIR] = "path.mkdir",
                                      [DP_UNLINK] = "path.unlink",
                                      [DP_RMDIR] = "path.rmdir",
                                      [DP_RENAME] = "path.rename"};

static void note_change(const struct service_op *op, const struct dp_result *res)
{
	char uid[ROS2_UID_STR_LEN];
	struct agent_audit_event ev = op_event(op, actions[op->flags], uid);

	op_event_outcome(&ev, res);
	ev.object_name = op->path;
	ev.details[ev.n_details++] = (struct agent_audit_detail){"namespace", op->ns};
	if (op->to)
		ev.details[ev.n_details++] = (struct agent_audit_detail){"to", op->to};
	agent_audit_note(op->a->audit, &ev);
}

static void on_changed(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;

	if (op_may_have_changed(op, res))
		note_change(op, res);
	if (op_result(op, res))
		op_done(op);
}

static void change(struct service_op *op, enum dp_path_op what, const Ros2__V1__PathRequest *req)
{
	op->flags = what;
	op->changes = true;
	if (op_check_path(op, req->mount, req->path, POLICY_ACCESS_WRITE, false) == 0 &&
	    op_check_room(op) == 0)
		dp_path(op->a->dp, &op->session, req->mount, what, op->path, "", req->mode & 0777,
		        on_changed, op);
}

void service_mkdir(struct service_op *op, const ProtobufCMessage *msg)
{
	change(op, DP_MKDIR, ros2_v1_tenant_mkdir_in(msg));
}

void service_unlink(struct service_op *op, const ProtobufCMessage *msg)
{
	change(op, DP_UNLINK, ros2_v1_tenant_unlink_in(msg));
}

void service_rmdir(struct service_op *op, const ProtobufCMessage *msg)
{
	change(op, DP_RMDIR, ros2_v1_tenant_rmdir_in(msg));
}

static void rename_now(struct service_op *op)
{
	op->changes = true;
	dp_path(op->a->dp, &op->session, op->mount, DP_RENAME, op->path, op->to, 0, on_changed, op);
}

/* A directory takes along what is below it, whose rules are not those of its own name. */
static bool may_move_directory(const struct service_op *op)
{
	struct state_tenant t;

	return state_tenant_get(op->a->state, &op->tenant, &t) == 0 &&
	       state_allows_below(&t, op->ns, op->path, POLICY_ACCESS_ALL) &&
	       state_allows_below(&t, op->ns, op->to, POLICY_ACCESS_WRITE);
}

/* A file put in the directory's place meanwhile is a file; a directory in a file's place is a new
 * one: the old cannot have been moved away. */
static void on_rename_stat(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	Ros2__V1__StatReply st = ROS2__V1__STAT_REPLY__INIT;

	if (!op_result(op, res) ||
	    op_check_path(op, op->mount, op->path, POLICY_ACCESS_ALL, false) < 0 ||
	    op_check_path(op, op->mount, op->to, POLICY_ACCESS_WRITE, false) < 0)
		return;
	service_fill_stat(&res->attr, &st);
	if (st.type == ROS2__V1__FILE_TYPE__FILE_TYPE_REGULAR)
		rename_now(op);
	else
		op_fail(op, ROS2_DENIED,
		        "namespace %s: path rules apply below this directory or below where it "
		        "would go, so it cannot be moved as a whole",
		        op->ns);
}

void service_rename(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__RenameRequest *req = ros2_v1_tenant_rename_in(msg);

	op->flags = DP_RENAME;
	/* Moving away and moving in both write; what is moved away must also be readable, or a
	 * rename would carry it past a rule that hides it. */
	if (op_check_path(op, req->mount, req->from, POLICY_ACCESS_ALL, false) < 0 ||
	    op_check_path(op, req->mount, req->to, POLICY_ACCESS_WRITE, false) < 0 ||
	    op_check_room(op) < 0)
		return;
	op->to = strdup(req->to);
	if (!op->to) {
		op_fail(op, ROS2_BUSY, "no memory");
		return;
	}
	if (may_move_directory(op))
		rename_now(op);
	else
		dp_path(op->a->dp, &op->session, req->mount, DP_STAT, op->path, "", 0,
		        on_rename_stat, op);
}
