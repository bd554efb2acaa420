/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control calls over a gRPC channel of their own. The agent is known by its SPIFFE ID, never by its
 * host name: without a given one, any agent of the trust domain of our own certificate.
 *
 * A connection is who it was made by, for as long as it stands: an agent refuses its calls when
 * that certificate has ended, or is trusted no more. So where the file has another by then, the
 * channel is replaced by one that has that, too; calls that others have on the old one end there.
 */
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "dataplane/client/control.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RETRY_CONNECT_MS 250u

struct conn {
	struct rpc_channel *channel; /* owned */
	uint8_t cert[SHA256_LEN];    /* of the file before the channel was made; 0: not read */
	unsigned users;              /* calls, and being the present one; guarded by lock */
};

struct control_rpc {
	struct control base;
	struct rpc_channel_opts opts; /* immutable; its strings are owned */
	pthread_mutex_t lock;
	/* guarded by lock */
	struct conn *conn; /* the present one */
};

/* ---- connections ---- */

static bool hash_of_cert(const char *path, uint8_t ret[SHA256_LEN])
{
	AUTO_FREE void *pem = NULL;
	size_t len = 0;

	if (fsx_read_file(path, PKI_PEM_MAX, &pem, &len, NULL))
		return false;
	crypto_sha256(pem, len, ret);
	return true;
}

static int conn_new(const struct rpc_channel_opts *o, struct conn **ret, struct ros2_err *err)
{
	struct conn *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return ros2_err_set(err, -ENOMEM, "no memory for a client");
	k->users = 1;
	(void)hash_of_cert(o->cert_path, k->cert);
	rc = rpc_channel_new(o, &k->channel, err);
	if (rc)
		free(k);
	else
		*ret = k;
	return rc;
}

static struct conn *conn_get(struct control_rpc *rpc)
{
	struct conn *k;

	pthread_mutex_lock(&rpc->lock);
	k = rpc->conn;
	k->users++;
	pthread_mutex_unlock(&rpc->lock);
	return k;
}

static void conn_put(struct control_rpc *rpc, struct conn *k)
{
	bool last;

	pthread_mutex_lock(&rpc->lock);
	last = !--k->users;
	pthread_mutex_unlock(&rpc->lock);
	if (!last)
		return;
	rpc_channel_free(k->channel);
	free(k);
}

/* @k, which is in use, was refused. True: there is another now, with another certificate. */
static bool conn_replace(struct control_rpc *rpc, struct conn *k)
{
	uint8_t cert[SHA256_LEN];
	struct conn *fresh;
	bool other;

	if (!hash_of_cert(rpc->opts.cert_path, cert) || !memcmp(cert, k->cert, sizeof(cert)))
		return false;
	pthread_mutex_lock(&rpc->lock);
	other = rpc->conn != k;
	if (!other && !conn_new(&rpc->opts, &fresh, NULL)) {
		rpc->conn = fresh;
		k->users--;
		other = true;
	}
	pthread_mutex_unlock(&rpc->lock);
	return other;
}

/* ---- calls ---- */

static int call_on(struct conn *k, const struct rpc_method *m, const ProtobufCMessage *req,
                   uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err)
{
	/* The session has its own back-off: one of the channel's on top would only add to it, and a
	 * call on a channel that has failed would fail with the old news. */
	if (rpc_channel_state(k->channel, false) == RPC_CHANNEL_FAILED) {
		rpc_channel_reset_backoff(k->channel);
		rpc_channel_wait_ready(k->channel, MIN(timeout_ms, RETRY_CONNECT_MS), NULL);
	}
	return rpc_unary_sync(k->channel, m, req, timeout_ms, ret_reply, err);
}

/* What is UNAUTHENTICATED was not begun, so all calls may be made again. */
static int call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);
	struct conn *k = conn_get(rpc);
	int rc = call_on(k, m, req, timeout_ms, ret_reply, err);
	bool again = rc && err->status == ROS2_UNAUTHENTICATED && conn_replace(rpc, k);

	conn_put(rpc, k);
	if (!again)
		return rc;
	*err = (struct ros2_err)ROS2_ERR_INIT;
	k = conn_get(rpc);
	rc = call_on(k, m, req, timeout_ms, ret_reply, err);
	conn_put(rpc, k);
	return rc;
}

static int wait_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);
	struct conn *k = conn_get(rpc);
	int rc = rpc_channel_wait_ready(k->channel, timeout_ms, err);

	conn_put(rpc, k);
	return rc;
}

/* Also of one without a connection. */
static void control_rpc_free(struct control *c)
{
	struct control_rpc *rpc = container_of(c, struct control_rpc, base);
	const struct rpc_channel_opts *o = &rpc->opts;

	if (rpc->conn)
		conn_put(rpc, rpc->conn);
	pthread_mutex_destroy(&rpc->lock);
	free((char *)o->target);
	free((char *)o->ca_path);
	free((char *)o->cert_path);
	free((char *)o->key_path);
	free((char *)o->server_id);
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

/* What the caller's strings say is kept: a channel may be made anew at any time. */
static bool keep_opts(struct rpc_channel_opts *to, const struct ros2_client_opts *o,
                      const char *prefix)
{
	*to = (struct rpc_channel_opts){
		.name = "libros2",
		.target = strdup(o->agent),
		.ca_path = strdup(o->ca_path),
		.cert_path = strdup(o->cert_path),
		.key_path = strdup(o->key_path),
		.server_id = strdup(o->agent_id ? o->agent_id : prefix),
		.server_id_is_prefix = !o->agent_id,
		.reconnect_max_ms = 1000,
	};
	return to->target && to->ca_path && to->cert_path && to->key_path && to->server_id;
}

int control_rpc_new(const struct ros2_client_opts *o, struct control **ret, struct ros2_err *err)
{
	char prefix[ROS2_SPIFFE_MAX + 1];
	struct control_rpc *rpc;
	int rc = o->agent_id ? 0 : any_agent_of_our_domain(o->cert_path, prefix, err);

	if (rc)
		return rc;
	rpc = calloc(1, sizeof(*rpc));
	if (!rpc)
		return ros2_err_set(err, -ENOMEM, "no memory for a client");
	rpc->base = (struct control){call, wait_ready, control_rpc_free, 0};
	pthread_mutex_init(&rpc->lock, NULL);
	rc = keep_opts(&rpc->opts, o, prefix)
	             ? conn_new(&rpc->opts, &rpc->conn, err)
	             : ros2_err_set(err, -ENOMEM, "no memory for a client");
	if (rc) {
		control_rpc_free(&rpc->base);
		return rc;
	}
	*ret = &rpc->base;
	return 0;
}
