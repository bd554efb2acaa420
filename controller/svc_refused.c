/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller's listeners refused before a handler saw it: recorded like any other refusal,
 * within the same bounds, never waited for. One key per listener and reason, so that strangers with
 * many addresses make no more of them; the record has the address.
 */
#include "controller/svc_priv.h"
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

/* What a call that was refused would have been. */
static const char *action_of(const struct svc_listener *l, const struct rpc_refusal *r)
{
	if (r->why == RPC_REFUSED_CONNECTIONS || r->why == RPC_REFUSED_CONNECTIONS_PER_SOURCE ||
	    r->why == RPC_REFUSED_HANDSHAKE || r->why == RPC_REFUSED_FUTILE)
		return "connection.refused";
	if (!strcmp(l->name, "enrol"))
		return "agent.enrol";
	if (!strcmp(l->name, "admin"))
		return "admin.denied";
	return r->method && !strcmp(r->method->name, "AgentLink.Renew") ? "agent.renew"
	                                                                : "agent.connect";
}

void svc_on_refused(void *arg, const struct rpc_refusal *r)
{
	static struct log_limit limit;
	const struct svc_listener *l = arg;
	struct ctl_caller who = {.role = CTL_NOBODY};
	char key[80], words[256];

	snprintf(who.spiffe, sizeof(who.spiffe), "%s", r->spiffe_id);
	snprintf(who.peer, sizeof(who.peer), "%s", r->address);
	if (*r->spiffe_id && !strcmp(l->name, "admin"))
		who.role = (enum ctl_role)config_role_of(l->svc->cfg, r->spiffe_id);
	else if (*r->spiffe_id)
		who.role = CTL_AGENT;
	snprintf(key, sizeof(key), "refused-%s/%s", l->name, rpc_refused_to_str(r->why));
	snprintf(words, sizeof(words), "%s%s%s", r->method ? r->method->name : "",
	         r->method ? ": " : "", r->words);
	if (r->status == ROS2_LIMIT && log_limit_pass(&limit))
		log_warn("the %s listener refuses connections: %s (%s)", l->name, r->words,
		         r->address);
	ctl_audit_denied_n(l->svc->ctl, key, &who, action_of(l, r), NULL, "listener", l->name,
	                   r->status, words, r->count);
}
