/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tenants' listener refused before a handler saw it: recorded like any other denial,
 * within the same bounds. A tenant whose certificate was verified is named; everybody else is
 * anonymous and all that is known is an address. Loop thread; must not wait for anything.
 */
#define LOG_COMPONENT "agent"
#include "agent/service.h"
#include "agent/test_switches.h"
#include "common/log.h"
#include <string.h>

static bool is_connection(enum rpc_refused why)
{
	return why == RPC_REFUSED_CONNECTIONS || why == RPC_REFUSED_CONNECTIONS_PER_SOURCE ||
	       why == RPC_REFUSED_HANDSHAKE || why == RPC_REFUSED_FUTILE;
}

void service_on_refused(void *arg, const struct rpc_refusal *r)
{
	static struct log_limit limit;
	const struct service_row *row = r->method ? service_row_of(r->method) : NULL;
	struct agent *a = arg;
	struct state_tenant t;
	struct agent_audit_event ev = {
		.action = is_connection(r->why) ? "connection.refused"
	                  : row && row->denied  ? row->denied
	                                        : "session.deny",
		.actor = *r->spiffe_id ? r->spiffe_id : "anonymous",
		.peer = r->address,
		.object_kind = "listener",
		.object_name = "tenants",
		.result = AGENT_AUDIT_DENIED,
		.status = r->status,
		.reason = r->words,
		.details = {{"refused", rpc_refused_to_str(r->why)},
	                    {"method", r->method ? r->method->name : ""}},
		.n_details = r->method ? 2 : 1,
		.count = r->count > 1 ? r->count : 0,
		.first_unix_ns = r->first_unix_ns,
		.last_unix_ns = r->last_unix_ns,
	};

	if (a->stopping || AGENT_SWITCH(no_refusal_records))
		return;
	if (*r->spiffe_id && state_tenant_of(a->state, r->spiffe_id, &t) == 0) {
		ev.tenant = t.name;
		ev.tenant_uid = t.uid;
		ev.policy_version = t.version;
	}
	if (r->status == ROS2_LIMIT && log_limit_pass(&limit))
		log_warn("the tenants' listener refuses connections: %s (%s)", r->words,
		         r->address);
	agent_audit_denied(a->audit, &ev);
}
