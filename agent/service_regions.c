/* SPDX-License-Identifier: Apache-2.0 */
/* Memory regions. The data plane judges sizes, sums and keys; here: who asks, what the record says
 * (the lease id, never the key), and that it is durable before the tenant learns the key. */
#include "agent/service.h"
#include "agent/test_switches.h"
#include <stdio.h>

static void note_end(const struct service_op *op, uint64_t lease_id)
{
	char uid[ROS2_UID_STR_LEN], lease[24];
	struct agent_audit_event ev = op_event(op, "region.end", uid);

	ev.object_kind = "lease";
	if (lease_id) {
		snprintf(lease, sizeof(lease), "%llu", (unsigned long long)lease_id);
		ev.object_id = lease;
	}
	agent_audit_note(op->a->audit, &ev);
}

static void on_given_back(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;

	if (res->status == ROS2_OK)
		note_end(op, op->res.region.lease_id);
	op_free(op);
}

static void on_recorded(void *arg, const struct ros2_err *err)
{
	struct service_op *op = arg;
	Ros2__V1__RegisterRegionReply r = ROS2__V1__REGISTER_REGION_REPLY__INIT;

	if (err) {
		dp_region_deregister(op->a->dp, &op->session, op->res.region.key, op_ignore, NULL);
		op_fail_err(op, err);
		return;
	}
	if (!op_session(op))
		return;
	r.key = op->res.region.key;
	r.generation = op->res.region.generation;
	r.ttl_ms = op->res.region.ttl_ms;
	r.lease_id = op->res.region.lease_id;
	if (rpc_call_reply(op->call, &r.base) == 0)
		op_free(op);
	else /* nobody knows the key, so nobody would give it up */
		dp_region_deregister(op->a->dp, &op->session, op->res.region.key, on_given_back,
		                     op);
}

static void on_registered(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	char uid[ROS2_UID_STR_LEN], lease[24], length[24];
	struct agent_audit_event ev;
	struct ros2_err err = ROS2_ERR_INIT;

	if (!op_result(op, res))
		return;
	op->res = *res;
	snprintf(lease, sizeof(lease), "%llu", (unsigned long long)res->region.lease_id);
	snprintf(length, sizeof(length), "%llu", (unsigned long long)op->length);
	ev = op_event(op, "region.register", uid);
	ev.object_kind = "lease";
	ev.object_id = lease;
	ev.details[ev.n_details++] = (struct agent_audit_detail){"length", length};
	ev.details[ev.n_details++] =
		(struct agent_audit_detail){"access", policy_access_to_str(op->access)};
	if (agent_audit_durable(op->a->audit, &ev, on_recorded, op, &err) < 0)
		on_recorded(op, &err);
}

void service_register(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__RegisterRegionRequest *req = ros2_v1_tenant_register_region_in(msg);

	bool no_shape = !req->length || req->length > UINT64_MAX - req->address;

	if ((no_shape && !AGENT_SWITCH(no_region_shape)) || !req->access ||
	    req->access > POLICY_ACCESS_ALL) {
		op_fail(op, ROS2_INVALID,
		        "a region of %llu bytes with access %u: expected a length that does not "
		        "wrap and "
		        "access 1, 2 or 3",
		        (unsigned long long)req->length, req->access);
		return;
	}
	if (op_check_room(op) < 0)
		return;
	op->length = req->length;
	op->access = req->access;
	dp_region_register(op->a->dp, &op->session, req->address, req->length, req->access,
	                   on_registered, op);
}

static void on_renewed(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;
	Ros2__V1__RenewRegionReply r = ROS2__V1__RENEW_REGION_REPLY__INIT;

	if (!op_result(op, res))
		return;
	r.key = res->region.key;
	r.generation = res->region.generation;
	r.ttl_ms = res->region.ttl_ms;
	op_reply(op, &r.base);
}

void service_renew(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__RegionRef *req = ros2_v1_tenant_renew_region_in(msg);

	dp_region_renew(op->a->dp, &op->session, req->key, on_renewed, op);
}

static void on_ended(void *arg, const struct dp_result *res)
{
	struct service_op *op = arg;

	if (!op_result(op, res))
		return;
	note_end(op, res->region.lease_id);
	op_done(op);
}

void service_deregister(struct service_op *op, const ProtobufCMessage *msg)
{
	const Ros2__V1__RegionRef *req = ros2_v1_tenant_deregister_region_in(msg);

	dp_region_deregister(op->a->dp, &op->session, req->key, on_ended, op);
}
