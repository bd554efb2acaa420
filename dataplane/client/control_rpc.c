/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control calls over a gRPC channel of their own. The agent is known by its SPIFFE ID, never by its
 * host name: without a given one, any agent of the trust domain of our own certificate.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "dataplane/client/control.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RETRY_CONNECT_MS 250u

struct control_rpc {
	struct control base;
	struct rpc_channel *channel; /* owned */
};

static int call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);

	/* The session has its own back-off: one of the channel's on top would only add to it, and a
	 * call on a channel that has failed would fail with the old news. */
	if (rpc_channel_state(rpc->channel, false) == RPC_CHANNEL_FAILED) {
		rpc_channel_reset_backoff(rpc->channel);
		rpc_channel_wait_ready(rpc->channel, MIN(timeout_ms, RETRY_CONNECT_MS), NULL);
	}
	return rpc_unary_sync(rpc->channel, m, req, timeout_ms, ret_reply, err);
}

static int wait_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);

	return rpc_channel_wait_ready(rpc->channel, timeout_ms, err);
}

static void control_rpc_free(struct control *c)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);

	rpc_channel_free(rpc->channel);
	free(rpc);
}

/* "spiffe://DOMAIN/agent/" from our own certificate. */
static int any_agent_of_our_domain(const char *cert_path, char out[ROS2_SPIFFE_MAX + 1],
                                   struct ros2_err *err)
{
	AUTO_FREE void *pem = NULL;
	struct pki_cert_info info;
	size_t len = 0, domain_len = 0;
	int rc = fsx_read_file(cert_path, PKI_PEM_MAX, &pem, &len, err);

	if (!rc)
		rc = pki_cert_info(pem, len, &info, err);
	if (rc) {
		ros2_err_prefix(err, "certificate %s", cert_path);
		return rc;
	}
	if (!ros2_spiffe_valid(info.uri, &domain_len, NULL))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "certificate %s: expected one SPIFFE ID, found '%s'",
		                      cert_path, info.uri);
	rc = snprintf(out, ROS2_SPIFFE_MAX + 1, "%.*s/agent/", (int)(9 + domain_len), info.uri);
	return rc <= ROS2_SPIFFE_MAX ? 0 : ros2_err_set(err, -EINVAL, "trust domain too long");
}

int control_rpc_new(const struct ros2_client_opts *o, struct control **ret, struct ros2_err *err)
{
	char prefix[ROS2_SPIFFE_MAX + 1];
	struct rpc_channel_opts co = {
		.name = "libros2",
		.target = o->agent,
		.ca_path = o->ca_path,
		.cert_path = o->cert_path,
		.key_path = o->key_path,
		.server_id = o->agent_id ? o->agent_id : prefix,
		.server_id_is_prefix = !o->agent_id,
		.reconnect_max_ms = 1000,
	};
	struct control_rpc *rpc;
	int rc = o->agent_id ? 0 : any_agent_of_our_domain(o->cert_path, prefix, err);

	if (rc)
		return rc;
	rpc = calloc(1, sizeof(*rpc));
	if (!rpc)
		return ros2_err_set(err, -ENOMEM, "no memory for a client");
	rpc->base = (struct control){call, wait_ready, control_rpc_free, 0};
	rc = rpc_channel_new(&co, &rpc->channel, err);
	if (rc) {
		free(rpc);
		return rc;
	}
	*ret = &rpc->base;
	return 0;
}
