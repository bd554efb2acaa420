/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enrolment. The key is made once; the same key asks again after a lost answer, and the controller
 * answers the same. Waits and tries again only while nobody said no: a refusal is final and its
 * words are the person's.
 */
#include "agent/identity.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/rpc/rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "enrol"
#include "common/log.h"

#define BACKOFF_MIN_MS  500
#define BACKOFF_MAX_MS  3000
#define CALL_TIMEOUT_MS 10000

struct enrol {
	struct enrol_opts o;
	struct rpc_channel *channel;              /* owned */
	const char *name, *trust_domain, *secret; /* borrowed: of the token or the identity */
	char ca_path[PATH_MAX], key_path[PATH_MAX];
	char *csr; /* owned */
	uint32_t backoff_ms;
	bool freeing;
	struct loop_timer retry;
};

static void try_now(void *arg);

static bool may_pass(enum ros2_status s)
{
	return s == ROS2_UNAVAILABLE || s == ROS2_TIMEOUT || s == ROS2_BUSY ||
	       s == ROS2_CANCELLED || s == ROS2_CLOSED || s == ROS2_NOT_DURABLE;
}

/* A new certificate for who we are, and nothing else: no epoch says that this controller is not
 * one that has been superseded. Another uid would be another agent's history. */
static int take_again(struct enrol *e, const Ros2__V1__EnrolReply *r, const struct ros2_uid *uid,
                      struct ros2_err *err)
{
	if (!ros2_uid_eq(uid, &e->o.again->agent_uid))
		return ros2_err_named(err, ROS2_INVALID,
		                      "the controller knows another agent %s: enrol with a token",
		                      e->name);
	if (e->o.take)
		return e->o.take(e->o.arg, r->cert_pem.data, r->cert_pem.len, err);
	return identity_store_certificate(e->o.dir, e->name, e->trust_domain, r->cert_pem.data,
	                                  r->cert_pem.len, err);
}

static int take(struct enrol *e, const Ros2__V1__EnrolReply *r, struct ros2_err *err)
{
	struct identity_files f = {
		.name = e->name,
		.trust_domain = r->trust_domain,
		.cert_pem = r->cert_pem.data,
		.cert_len = r->cert_pem.len,
		.infra_pem = r->infra_bundle_pem.data,
		.infra_len = r->infra_bundle_pem.len,
		.tenant_pem = r->tenant_bundle_pem.data,
		.tenant_len = r->tenant_bundle_pem.len,
		.snapshot_key = r->snapshot_key.data,
		.snapshot_key_len = r->snapshot_key.len,
	};

	if (strcmp(r->trust_domain, e->trust_domain) != 0)
		return ros2_err_named(err, ROS2_WRONG_DOMAIN,
		                      "the controller is of trust domain %.64s, this agent of %s",
		                      r->trust_domain, e->trust_domain);
	if (ros2_uid_from_bytes(r->agent_uid.data, r->agent_uid.len, &f.agent_uid) < 0)
		return ros2_err_named(err, ROS2_PROTOCOL, "the controller gave no agent uid");
	return e->o.token ? identity_store(e->o.dir, &f, err) : take_again(e, r, &f.agent_uid, err);
}

static void on_reply(void *arg, const ProtobufCMessage *reply, const struct ros2_err *why)
{
	struct enrol *e = arg;
	struct ros2_err err = *why;

	if (e->freeing)
		return;
	if (!why->code) {
		if (take(e, ros2_v1_enrol_enrol_out(reply), &err) < 0)
			e->o.done(e->o.arg, &err);
		else
			e->o.done(e->o.arg, NULL);
		return;
	}
	if (!may_pass(err.status)) {
		ros2_err_prefix(&err, "enrolment at %s as %s was refused", e->o.address, e->name);
		e->o.done(e->o.arg, &err);
		return;
	}
	log_warn("controller %s: %s: trying again in %u ms", e->o.address, err.msg, e->backoff_ms);
	loop_timer_in_ms(e->o.loop, &e->retry, e->backoff_ms + crypto_random_u32() % 250, try_now,
	                 e);
	e->backoff_ms = MIN(e->backoff_ms * 2, (uint32_t)BACKOFF_MAX_MS);
}

static void try_now(void *arg)
{
	struct enrol *e = arg;
	Ros2__V1__EnrolRequest req = ROS2__V1__ENROL_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;

	req.agent = (char *)e->name;
	req.secret = (char *)e->secret;
	req.csr_pem = (ProtobufCBinaryData){strlen(e->csr), (uint8_t *)e->csr};
	req.protocol = RPC_PROTOCOL_VERSION;
	rpc_channel_reset_backoff(e->channel);
	if (rpc_unary(e->channel, &ros2_v1_enrol_enrol, &req.base, CALL_TIMEOUT_MS, on_reply, e,
	              NULL, &err) < 0)
		on_reply(e, NULL, &err);
}

/* Who is asked is judged by the token. Whom the agent believes from then on is what the answer
 * says: until it is here nothing of an identity is replaced. */
static int begin_identity(struct enrol *e, struct ros2_err *err)
{
	const struct join_token *t = e->o.token;
	int r = fsx_write_atomic(e->ca_path, t->bundle_pem, t->bundle_len, 0644, err);

	r = r < 0 ? r : pki_key_create(e->key_path, err);
	return r == -EEXIST ? 0 : r;
}

static int prepare(struct enrol *e, struct ros2_err *err)
{
	char uri[ROS2_SPIFFE_MAX * 2], server[ROS2_SPIFFE_MAX * 2];
	struct rpc_channel_opts co = {.name = "enrol",
	                              .target = e->o.address,
	                              .loop = e->o.loop,
	                              .ca_path = e->ca_path,
	                              .server_id = server,
	                              .server_id_is_prefix = true};
	int r;

	snprintf(e->ca_path, sizeof(e->ca_path), "%.3900s/%s", e->o.dir,
	         e->o.token ? "join-ca.pem" : "infra-bundle.pem");
	snprintf(e->key_path, sizeof(e->key_path), "%.3900s/tls.key", e->o.dir);
	snprintf(uri, sizeof(uri), "spiffe://%s/agent/%s", e->trust_domain, e->name);
	snprintf(server, sizeof(server), "spiffe://%s/controller/", e->trust_domain);
	r = e->o.token ? begin_identity(e, err) : 0;
	if (r < 0)
		return r;
	r = pki_csr_create(e->key_path, uri, &e->csr, err);
	r = r < 0 ? r : rpc_channel_new(&co, &e->channel, err);
	if (!r && e->o.trust)
		rpc_channel_set_trust(e->channel, e->o.trust);
	return r;
}

int enrol_start(const struct enrol_opts *o, struct enrol **ret, struct ros2_err *err)
{
	struct enrol *e = calloc(1, sizeof(*e));
	int r;

	if (!e)
		return ros2_err_set(err, -ENOMEM, "no memory to enrol");
	e->o = *o;
	e->backoff_ms = BACKOFF_MIN_MS;
	e->name = o->token ? o->token->agent : o->again->name;
	e->trust_domain = o->token ? o->token->trust_domain : o->again->trust_domain;
	e->secret = o->token ? o->token->secret : "";
	r = prepare(e, err);
	if (r < 0) {
		enrol_free(e);
		return r;
	}
	loop_timer_in_ms(o->loop, &e->retry, 0, try_now, e);
	*ret = e;
	return 0;
}

void enrol_free(struct enrol *e)
{
	if (!e)
		return;
	e->freeing = true; /* a call that is on its way ends in here */
	rpc_channel_free(e->channel);
	loop_timer_stop(&e->retry);
	if (e->o.token)
		(void)fsx_io->unlink(e->ca_path);
	free(e->csr);
	free(e);
}
