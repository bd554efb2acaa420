/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers whose handshake is past, when the client CAs change. TLS judged them by the CAs of then; a
 * connection can outlive those by days. Each change has a number (generation). After the first
 * change each connection is judged once under each generation, when its next call comes; open
 * streams are judged by the polling thread, at most SWEEP_PER_TICK at each tick, so that thousands
 * of them keep nobody waiting. Whose chain does not verify is refused UNAUTHENTICATED, and told
 * (refusals.c). Invariants: (1) that a connection is new proves nothing: gRPC goes on with the CAs
 * of before, and says so to nobody, when it cannot use others; (2) a word is about an address and a
 * certificate: a call may be looked at when its connection is gone and another has its port; (3)
 * without memory there is no word: BUSY, and the next call asks again.
 */
#include "common/crypto.h"
#include "common/pki.h"
#include "proto/rpc/stream_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SWEEP_PER_TICK 64

static const grpc_auth_property *property(const grpc_auth_context *auth, const char *name)
{
	grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(auth, name);

	return grpc_auth_property_iterator_next(&it);
}

char *rpc_trust_chain(grpc_call *call)
{
	grpc_auth_context *auth = grpc_call_auth_context(call);
	const grpc_auth_property *leaf, *rest;
	char *text = NULL;

	if (!auth)
		return NULL;
	/* OpenSSL leaves the leaf out of a server's chain, other libraries do not: twice is well.
	 */
	leaf = property(auth, GRPC_X509_PEM_CERT_PROPERTY_NAME);
	rest = property(auth, GRPC_X509_PEM_CERT_CHAIN_PROPERTY_NAME);
	if (leaf && asprintf(&text, "%.*s\n%.*s", (int)MIN(leaf->value_length, PKI_PEM_MAX),
	                     leaf->value, rest ? (int)MIN(rest->value_length, PKI_PEM_MAX) : 0,
	                     rest ? rest->value : "") < 0)
		text = NULL;
	grpc_auth_context_release(auth);
	return text;
}

/* False: there is none. */
static bool cert_of(grpc_call *call, uint8_t ret[SHA256_LEN])
{
	grpc_auth_context *auth = grpc_call_auth_context(call);
	const grpc_auth_property *leaf;

	if (!auth)
		return false;
	leaf = property(auth, GRPC_X509_PEM_CERT_PROPERTY_NAME);
	if (leaf)
		crypto_sha256(leaf->value, leaf->value_length, ret);
	grpc_auth_context_release(auth);
	return leaf;
}

int rpc_trust_judge(struct rpc_server *s, char *chain, uint64_t *ret_generation,
                    struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	struct pki_trust *trust;
	int rc;

	if (!chain)
		return ros2_err_named(err, ROS2_BUSY, "no memory for a chain: try again later");
	*ret_generation = rpc_tls_server_trust(s->tls, &trust);
	rc = pki_trust_verify(trust, chain, strlen(chain), &why);
	pki_trust_unref(trust);
	free(chain);
	if (rc == -ENOMEM)
		return ros2_err_named(err, ROS2_BUSY,
		                      "no memory to judge a chain: try again later");
	return rc ? ros2_err_named(err, ROS2_UNAUTHENTICATED,
	                           "the client certificate is not trusted any more: %s", why.msg)
	          : 0;
}

int rpc_trust_admit(struct rpc_server *s, grpc_call *call, struct rpc_peer *peer,
                    struct ros2_err *err)
{
	uint64_t now = rpc_tls_server_generation(s->tls);
	uint8_t cert[SHA256_LEN];
	int rc;

	peer->trust_generation = now;
	if (now <= RPC_TRUST_FIRST)
		return 0;
	if (!cert_of(call, cert))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED, "no client certificate is known");
	rc = rpc_conns_trust(s->conns, peer->address, cert, now);
	if (rc > 0)
		return 0;
	if (rc < 0)
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "the client certificate is not trusted any more");
	rc = rpc_trust_judge(s, rpc_trust_chain(call), &now, err);
	if (!rc || err->status == ROS2_UNAUTHENTICATED)
		rpc_conns_judged(s->conns, peer->address, cert, now, !rc);
	peer->trust_generation = now;
	return rc;
}

/* ---- open streams ---- */

/* Up to SWEEP_PER_TICK that no judgement of @now let pass yet, referenced. */
static size_t collect(struct rpc_server *s, uint64_t now, struct rpc_stream **ret)
{
	struct rpc_stream *st;
	size_t n = 0;
	int refs;

	pthread_mutex_lock(&s->lock);
	list_for_each (&s->streams, st, link) {
		if (n == SWEEP_PER_TICK)
			break;
		if (st->judged == now || !st->peer.authenticated)
			continue;
		/* Streams without a reference are on their way out of the list. */
		refs = atomic_load(&st->refs);
		while (refs && !atomic_compare_exchange_weak(&st->refs, &refs, refs + 1))
			;
		if (refs)
			ret[n++] = st;
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}

static void judge_stream(struct rpc_server *s, struct rpc_stream *st, uint64_t now)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char *chain = NULL;
	bool over;

	pthread_mutex_lock(&st->lock);
	over = !st->grpc || st->over || st->aborted;
	if (!over)
		chain = rpc_trust_chain(st->grpc);
	pthread_mutex_unlock(&st->lock);
	st->judged = now;
	if (over || !rpc_trust_judge(s, chain, &st->judged, &err))
		return;
	rpc_server_refused(s, RPC_REFUSED_TRUST, &st->peer, st->p.method, &err);
	rpc_stream_end(st, true, err.status, err.msg);
}

void rpc_trust_sweep(struct rpc_server *s)
{
	uint64_t now = rpc_tls_server_generation(s->tls);
	struct rpc_stream *due[SWEEP_PER_TICK];
	size_t n;

	if (now == s->swept_generation)
		return;
	n = collect(s, now, due);
	for (size_t i = 0; i < n; i++) {
		judge_stream(s, due[i], now);
		rpc_stream_unref(due[i]);
	}
	if (n < SWEEP_PER_TICK)
		s->swept_generation = now;
}

bool rpc_server_set_trust(struct rpc_server *s, struct pki_trust *trust)
{
	return rpc_tls_server_set_trust(s->tls, trust);
}

uint64_t rpc_server_trust_generation(const struct rpc_server *s)
{
	return rpc_tls_server_generation(s->tls);
}
