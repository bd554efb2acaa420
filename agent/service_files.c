/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on open objects. An open is answered only when its record is durable; until then the tenant
 * does not know the handle, and if the record fails, or nobody waits for the answer any more, it is
 * closed again. */
#include "agent/service.h"
#include "agent/test_switches.h"
#include <stdio.h>
#include <string.h>

#define FLAGS_KNOWN 31u

static uint32_t wanted_of(uint32_t flags)
{
	uint32_t w = 0;

	if (flags & ROS2__V1__OPEN_FLAG__OPEN_FLAG_READ)
		w |= POLICY_ACCESS_READ;
	if (flags & (ROS2__V1__OPEN_FLAG__OPEN_FLAG_WRITE | ROS2__V1__OPEN_FLAG__OPEN_FLAG_CREATE |
	             ROS2__V1__OPEN_FLAG__OPEN_FLAG_TRUNCATE))
		w |= POLICY_ACCESS_WRITE;
	return w;
}

static bool flags_make_sense(uint32_t f)
{
	if ((f & ~FLAGS_KNOWN) ||
	    !(f & (ROS2__V1__OPEN_FLAG__OPEN_FLAG_READ | ROS2__V1__OPEN_FLAG__OPEN_FLAG_WRITE)))
		return false;
	if ((f & ROS2__V1__OPEN_FLAG__OPEN_FLAG_EXCLUSIVE) &&
	    !(f & ROS2__V1__OPEN_FLAG__OPEN_FLAG_CREATE))
		return false;
	return !(f & ROS2__V1__OPEN_FLAG__OPEN_FLAG_TRUNCATE) ||
	       (f & ROS2__V1__OPEN_FLAG__OPEN_FLAG_WRITE);
}

static void undo_open(struct service_op *op)
{
	dp_close(op->a->dp, &op->session, op->handle, op_ignore, NULL);
}

static void on_recorded(void *arg, const struct ros2_err *err)
{
	struct service_op *op = arg;
	Ros2__V1__OpenReply r = ROS2__V1__OPEN_REPLY__INIT;
	struct ros2_err why = ROS2_ERR_INIT;
	struct agent *a = op->a;
	uint64_t handle = op->handle;
	struct agent_session *s;

	if (err) {
		undo_open(op);
		op_fail_err(op, err);
		return;
	}
	s = op_session(op);
	if (!s)
		return;
	/* The document may have changed while the record was written; op is gone if so. */
	if (op_check_path(op, op->mount, op->path, op->access, false) < 0) {
		dp_close(a->dp, &s->uid, handle, op_ignore, NULL);
		return;
	}
	if (agent_session_add_handle(s, op->handle, op->mount, op->access, op->path, &why) < 0) {
		undo_open(op);
		op_fail_err(op, &why);
		return;
	}
	r.handle = op->handle;
	r.size = op->size;
	if (rpc_call_reply(op->call, &r.base) < 0) {
		agent_session_drop_handle(s, agent_session_handle(s, op->handle));
		undo_open(op);
	}
	op_free(op);
}

static void on_opened(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	const struct agent_session *s = agent_session_find(op->a->sessions, &op->session);
	char uid[ROS2_UID_STR_LEN];
	struct agent_audit_event ev = op_event(op, "file.open", uid);
	struct ros2_err err = ROS2_ERR_INIT;

	op_event_outcome(&ev, res);
	ev.object_name = op->path;
	ev.details[ev.n_details++] = (struct agent_audit_detail){"namespace", op->ns};
	ev.details[ev.n_details++] =
		(struct agent_audit_detail){"access", policy_access_to_str(op->access)};
	/* It made or cut a file, and nobody gets the handle. */
	if (op_may_have_changed(op, res) &&
	    (res->status != ROS2_OK || !s || s->state != SESSION_LIVE))
		agent_audit_note(op->a->audit, &ev);
	if (!op_result(op, res))
		return;
	op->handle = res->open.handle;
	op->size = res->open.size;
	if (agent_audit_durable(op->a->audit, &ev, on_recorded, op, &err) < 0)
		on_recorded(op, &err);
}

void service_open(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__OpenRequest *req = ros2_v1_tenant_open_in(msg);
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);

	if (!flags_make_sense(req->flags)) {
		op_fail(op, ROS2_INVALID,
		        "open flags 0x%x: expected READ or WRITE, EXCLUSIVE only with "
		        "CREATE, TRUNCATE only with WRITE",
		        req->flags);
		return;
	}
	if (HASH_COUNT(s->handles) >= SESSION_HANDLES_MAX) {
		op_fail(op, ROS2_LIMIT,
		        "open objects of a session: the limit is %u (fixed): close some first",
		        SESSION_HANDLES_MAX);
		return;
	}
	op->flags = req->flags;
	op->changes = req->flags & (ROS2__V1__OPEN_FLAG__OPEN_FLAG_EXCLUSIVE |
	                            ROS2__V1__OPEN_FLAG__OPEN_FLAG_TRUNCATE);
	op->access = wanted_of(req->flags);
	if (op_check_path(op, req->mount, req->path, op->access, false) < 0)
		return;
	if (op_check_room(op) < 0)
		return;
	dp_open(op->a->dp, &op->session, req->mount, op->path, req->flags, req->mode & 0777,
	        on_opened, op);
}

/* The session's handle, or the call is answered. */
static struct agent_session_handle *find_handle(struct service_op *op, uint64_t handle)
{
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);
	struct agent_session_handle *h = s ? agent_session_handle(s, handle) : NULL;

	op->handle = handle;
	if (!h)
		op_fail(op, ROS2_BAD_HANDLE, "%s", ros2_status_text(ROS2_BAD_HANDLE));
	return h;
}

static void on_plain(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;

	if (op_result(op, res))
		op_done(op);
}

void service_close_handle(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__HandleRef *req = ros2_v1_tenant_close_in(msg);
	struct agent_session_handle *h = find_handle(op, req->handle);

	if (!h)
		return;
	agent_session_drop_handle(agent_session_find(op->a->sessions, &op->session), h);
	dp_close(op->a->dp, &op->session, op->handle, on_plain, op);
}

void service_stat_handle(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__HandleRef *req = ros2_v1_tenant_stat_handle_in(msg);

	if (find_handle(op, req->handle))
		dp_fstat(op->a->dp, &op->session, op->handle, service_on_stat, op);
}

void service_truncate(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__TruncateRequest *req = ros2_v1_tenant_truncate_in(msg);
	const struct agent_session_handle *h = find_handle(op, req->handle);

	if (!h)
		return;
	if (!(h->access & POLICY_ACCESS_WRITE)) {
		op_fail(op, ROS2_ACCESS, "%s", ros2_status_text(ROS2_ACCESS));
		return;
	}
	if (req->size > INT64_MAX && !AGENT_SWITCH(no_size_check)) {
		op_fail(op, ROS2_OUT_OF_RANGE, "a size above 2^63 - 1");
		return;
	}
	op->changes = true;
	dp_truncate(op->a->dp, &op->session, op->handle, req->size, on_plain, op);
}

void service_flush(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__HandleRef *req = ros2_v1_tenant_flush_in(msg);

	if (find_handle(op, req->handle))
		dp_flush(op->a->dp, &op->session, op->handle, on_plain, op);
}
