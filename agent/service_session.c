/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenSession, CloseSession, Mount. A session is made in steps that each may be the last: table
 * entry, grant, data plane, audit record on disk, reply. Before the reply nobody has its secret, so
 * whatever fails on the way is undone without a trace, but for the record of its end behind one of
 * its opening.
 */
#include "agent/grants_priv.h"
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/clock.h"
#include "common/util.h"
#include <stdio.h>
#include <string.h>

#define CLOSE_WAIT_MS 1000

static uint64_t cert_deadline(const struct rpc_peer *p)
{
	/* In this order: who is stopped between the two gives no time. */
	uint64_t now = clock_boottime_ns(), wall = clock_unix_ns() / NS_PER_S;
	uint64_t left = p->cert_not_after_unix_s > (int64_t)wall
	                        ? (uint64_t)p->cert_not_after_unix_s - wall
	                        : 0;

	if (left > UINT64_MAX / NS_PER_S)
		return UINT64_MAX;
	return clock_add_ns(now, left * NS_PER_S);
}

static void give_up(struct service_op *op, const struct ros2_err *err)
{
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);

	if (s)
		agent_session_end(s, ROS2_CANCELLED);
	op_fail_err(op, err);
}

static void fill_reply(const struct service_op *op, const struct agent_session *s,
                       const struct policy_limits *l, const char *address,
                       Ros2__V1__OpenSessionReply *r)
{
	static const Ros2__V1__Transport words[] = {
		[DP_TRANSPORT_TCP] = ROS2__V1__TRANSPORT__TRANSPORT_TCP,
		[DP_TRANSPORT_VERBS] = ROS2__V1__TRANSPORT__TRANSPORT_VERBS,
		[DP_TRANSPORT_SHM] = ROS2__V1__TRANSPORT__TRANSPORT_SHM,
	};
	const struct dp_result *res = &op->res;

	r->session_uid = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)s->uid.b};
	r->secret = (ProtobufCBinaryData){DP_SECRET_LEN, (uint8_t *)(uintptr_t)res->session.secret};
	r->data_address = (char *)(uintptr_t)address;
	r->credits = res->session.credits;
	r->max_io = res->session.max_io;
	r->max_inline = res->session.max_inline;
	r->lease_ttl_ms = (uint32_t)MIN(l->lease_ttl_ms, (uint64_t)UINT32_MAX);
	r->region_bytes_max = l->registered_bytes;
	r->regions_max = l->regions;
	r->region_size_min = l->region_size_min;
	r->region_size_max = l->region_size_max;
	r->region_alignment = l->region_alignment;
	r->tenant = (char *)(uintptr_t)s->tenant_name;
	r->transport = words[s->transport];
	r->shared_memory_bytes = res->session.shm_bytes;
}

static void data_address(const struct service_op *op, const struct agent_session *s, char *out,
                         size_t max)
{
	const struct agent_opts *o = &op->a->o;
	const char *host = s->transport == DP_TRANSPORT_VERBS ? o->rdma_host : o->data_host;

	if (s->transport == DP_TRANSPORT_SHM)
		snprintf(out, max, "unix:%s", op->res.session.shm_path);
	else
		snprintf(out, max, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host,
		         op->res.session.port);
}

/* The record is on disk, or could not be: the reply, or the undo. */
static void on_recorded(void *arg, const struct ros2_err *err)
{
	struct service_op *op = arg;
	Ros2__V1__OpenSessionReply r = ROS2__V1__OPEN_SESSION_REPLY__INIT;
	struct state_tenant t;
	struct agent_session *s;
	char address[300];

	if (err) {
		s = agent_session_find(op->a->sessions, &op->session);
		if (s)
			s->recorded = false;
		give_up(op, err);
		return;
	}
	s = op_session(op);
	if (!s)
		return;
	if (state_tenant_get(op->a->state, &op->tenant, &t) < 0) {
		struct ros2_err gone = ROS2_ERR_INIT;

		ros2_err_named(&gone, ROS2_REVOKED, "tenant %s was withdrawn", op->tenant_name);
		give_up(op, &gone);
		return;
	}
	data_address(op, s, address, sizeof(address));
	fill_reply(op, s, &t.image.limits, address, &r);
	if (agent_session_opened(s) < 0) {
		agent_session_end(s, ROS2_BUSY);
		crypto_wipe(&op->res, sizeof(op->res));
		op_fail(op, ROS2_BUSY, "no memory");
		return;
	}
	if (rpc_call_reply(op->call, &r.base) < 0)
		agent_session_end(s, ROS2_CANCELLED); /* nobody has the secret */
	crypto_wipe(&op->res, sizeof(op->res));
	op_free(op);
}

static void on_dp_open(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	char tenant_session[ROS2_UID_STR_LEN], grant[ROS2_UID_STR_LEN];
	struct agent_audit_event ev = op_event(op, "session.open", tenant_session);
	struct agent_session *s;

	if (res->status != ROS2_OK) {
		ros2_err_named(&err, res->status, "%s",
		               res->words[0] ? res->words : ros2_status_text(res->status));
		give_up(op, &err);
		return;
	}
	s = op_session(op);
	if (!s)
		return;
	op->res = *res;
	ros2_uid_to_str(&s->grant, grant);
	ev.object_kind = "session";
	ev.object_id = tenant_session;
	ev.details[0] = (struct agent_audit_detail){"grant", grant};
	ev.details[1] = (struct agent_audit_detail){"transport", dp_transport_to_str(s->transport)};
	ev.n_details = 2;
	s->recorded = agent_audit_durable(op->a->audit, &ev, on_recorded, op, &err) == 0;
	if (!s->recorded)
		give_up(op, &err);
}

static void on_grant(void *arg, const struct ros2_uid *grant, const struct ros2_err *err)
{
	struct service_op *op = arg;
	struct dp_session_params p = {.session = op->session};
	struct state *state = op->a->state;
	struct grants *grants = op->a->grants;
	struct agent_session *s;

	if (!grant) {
		give_up(op, err);
		return;
	}
	s = op_session(op);
	if (!s) { /* and op is gone */
		state_grant_use(state, grant, -1);
		grants_on_returned(grants);
		return;
	}
	s->grant = *grant;
	s->has_grant = true;
	s->in_dp = true;
	p.tenant = state_dp_uid(state, &op->tenant);
	p.grant = *grant;
	p.cert_deadline_ns = op->length;
	p.transport = s->transport;
	p.shm_bytes = op->size;
	dp_session_open(op->a->dp, &p, on_dp_open, op);
}

/* False: the call is answered. */
static bool transport_is_offered(struct service_op *op, Ros2__V1__Transport t)
{
	if (t == ROS2__V1__TRANSPORT__TRANSPORT_TCP || t == ROS2__V1__TRANSPORT__TRANSPORT_ANY)
		return true;
	if (t == ROS2__V1__TRANSPORT__TRANSPORT_SHM && op->a->o.shm_dir)
		return true;
	if (t == ROS2__V1__TRANSPORT__TRANSPORT_SHM)
		op_fail(op, ROS2_UNSUPPORTED,
		        "transport shm: this agent shares no memory (--shm-dir)");
	else if (t != ROS2__V1__TRANSPORT__TRANSPORT_VERBS)
		op_fail(op, ROS2_UNSUPPORTED,
		        "transport %d: this version offers tcp, verbs and shm", (int)t);
	else if (!op->a->o.rdma_device)
		op_fail(op, ROS2_UNSUPPORTED,
		        "transport verbs: this agent has no RDMA device (--rdma-device)");
	else
		return true;
	return false;
}

/* What the session is over: each transport is judged by what was seen of it, verbs by what was seen
 * of the very device that sessions use. ANY takes tcp where only that is good enough. */
static int choose_transport(struct service_op *op, Ros2__V1__Transport t, uint32_t require,
                            enum dp_transport *ret, struct ros2_err *err)
{
	const char *device = op->a->o.rdma_device;
	int rc;

	*ret = t == ROS2__V1__TRANSPORT__TRANSPORT_SHM ? DP_TRANSPORT_SHM : DP_TRANSPORT_TCP;
	if (*ret == DP_TRANSPORT_SHM)
		return prober_allows_transport(op->a->prober, *ret, require, err);
	if (device && t != ROS2__V1__TRANSPORT__TRANSPORT_TCP) {
		rc = prober_allows_transport(op->a->prober, DP_TRANSPORT_VERBS, require, err);
		if (rc == 0)
			*ret = DP_TRANSPORT_VERBS;
		if (rc == 0 || t == ROS2__V1__TRANSPORT__TRANSPORT_VERBS ||
		    err->status == ROS2_BUSY)
			return rc;
	}
	return prober_allows_transport(op->a->prober, DP_TRANSPORT_TCP, require, err);
}

void service_open_session(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__OpenSessionRequest *req = ros2_v1_tenant_open_session_in(msg);
	struct ros2_err err = ROS2_ERR_INIT;
	struct state_tenant t;
	struct agent_session_params p = {.tenant = op->tenant,
	                                 .tenant_name = op->tenant_name,
	                                 .principal = op->principal,
	                                 .peer = op->peer,
	                                 .policy_version = op->policy_version};
	struct agent_session *s;
	enum dp_transport transport;

	if (req->protocol != RPC_PROTOCOL_VERSION) {
		op_fail(op, ROS2_VERSION, "the client speaks protocol %u, this agent %u",
		        req->protocol, RPC_PROTOCOL_VERSION);
		return;
	}
	if (!transport_is_offered(op, req->transport))
		return;
	if (state_tenant_get(op->a->state, &op->tenant, &t) < 0) {
		op_fail(op, ROS2_DENIED, "%s", ros2_status_text(ROS2_DENIED));
		return;
	}
	if (choose_transport(op, req->transport, t.image.require, &transport, &err) < 0) {
		op_fail_err(op, &err);
		return;
	}
	p.max_of_tenant = t.image.limits.sessions_max;
	p.judged = rpc_call_peer(op->call)->trust_generation;
	p.cert_not_after_unix_s = rpc_call_peer(op->call)->cert_not_after_unix_s;
	p.chain = rpc_call_peer_chain(op->call);
	if (!p.chain) {
		op_fail(op, ROS2_BUSY, "no memory for the certificate, or the caller is gone");
		return;
	}
	if (op_room(op, &err) < 0 || agent_session_new(op->a->sessions, &p, &s, &err) < 0) {
		free(p.chain);
		op_fail_err(op, &err);
		return;
	}
	s->transport = transport;
	op->size = req->shared_memory_bytes;
	op->session = s->uid;
	op->length = cert_deadline(rpc_call_peer(op->call));
	grants_take(op->a->grants, &op->tenant, op->principal, op->peer, on_grant, op);
}

static void on_gone(struct dp_gone *w)
{
	struct service_op *op = container_of(w, struct service_op, gone);

	loop_timer_stop(&op->late);
	op_done(op);
}

static void close_is_late(void *arg)
{
	struct service_op *op = arg;

	dp_gone_cancel(&op->gone);
	op_done(op);
}

/* Ended at once; answered when nothing of it counts any more, so that who opens another finds the
 * room. What does not end soon, a transfer that storage does not answer, goes on counting: it has
 * memory and places still. */
void service_close_session(struct service_op *op, const ProtobufCMessage *msg)
{
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);

	if (s)
		agent_session_end(s, ROS2_CLOSED);
	op->gone.fn = on_gone;
	if (dp_session_await_gone(op->a->dp, &op->session, &op->gone))
		loop_timer_in_ms(op->a->o.loop, &op->late, CLOSE_WAIT_MS, close_is_late, op);
	else
		op_done(op);
}

/* ---- mount ---- */

static int engine_holds(const struct service_op *op, const struct policy_namespace *ns,
                        uint32_t require, struct ros2_err *err)
{
	int rc = state_engine_in_force(op->a->state, ns->engine, ns->path, err);

	if (rc < 0 || AGENT_SWITCH(no_transport_check))
		return rc;
	return prober_allows_engine(op->a->prober, ns->engine, require, err);
}

/* Those that had it mounted ended when it went, or when the way to it did not hold any more what is
 * required; this one had it already, and nobody knew. */
static void mounted_late(struct service_op *op, struct agent_session *s, const struct ros2_err *err)
{
	snprintf(s->end_words, sizeof(s->end_words), "%.199s", err->msg);
	agent_session_end(s, ROS2_REVOKED);
	op_fail_err(op, err);
}

static void on_mounted(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	struct agent_session *s = op_result(op, res);
	Ros2__V1__MountReply r = ROS2__V1__MOUNT_REPLY__INIT;
	char uid[ROS2_UID_STR_LEN];
	struct agent_audit_event ev;
	struct ros2_err err = ROS2_ERR_INIT;
	struct policy_namespace ns;
	struct state_tenant t;

	if (!s)
		return;
	/* What was mounted is what the document named then. */
	if (state_tenant_get(op->a->state, &op->tenant, &t) < 0 ||
	    t.version != op->policy_version || state_namespace(&t, op->ns, &ns) < 0) {
		op_fail(op, ROS2_DENIED, "namespace %s changed meanwhile: mount it again", op->ns);
		return;
	}
	if (engine_holds(op, &ns, t.image.require, &err) < 0) {
		mounted_late(op, s, &err);
		return;
	}
	if (agent_session_add_mount(s, &ns, res->mount.mount, &err) < 0) {
		op_fail_err(op, &err);
		return;
	}
	ev = op_event(op, "namespace.mount", uid);
	ev.object_name = op->ns;
	agent_audit_note(op->a->audit, &ev);
	r.mount = res->mount.mount;
	r.writable = (ns.access & POLICY_ACCESS_WRITE) != 0;
	op_reply(op, &r.base);
}

void service_mount(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__MountRequest *req = ros2_v1_tenant_mount_in(msg);
	struct agent_session *s = agent_session_find(op->a->sessions, &op->session);
	struct ros2_err err = ROS2_ERR_INIT;
	struct policy_namespace ns;
	struct state_tenant t;

	if (!ros2_name_valid(req->namespace_name)) {
		op_fail(op, ROS2_INVALID, "not a namespace's name");
		return;
	}
	strcpy(op->ns, req->namespace_name);
	/* Another tenant's namespace and one that is nowhere: the same words. */
	if (state_tenant_get(op->a->state, &op->tenant, &t) < 0 ||
	    state_namespace(&t, op->ns, &ns) < 0 || !ns.access) {
		op_fail(op, ROS2_DENIED, "tenant %s has no namespace %s", op->tenant_name, op->ns);
		return;
	}
	if (s->n_mounts == SESSION_MOUNTS_MAX) {
		op_fail(op, ROS2_LIMIT, "mounts of a session: the limit is %u (fixed)",
		        SESSION_MOUNTS_MAX);
		return;
	}
	if (engine_holds(op, &ns, t.image.require, &err) < 0) {
		op_fail_err(op, &err);
		return;
	}
	if (op_check_room(op) < 0)
		return;
	dp_mount(op->a->dp, &op->session, ns.engine, ns.path, ns.access, on_mounted, op);
}
