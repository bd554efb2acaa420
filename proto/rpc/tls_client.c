/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client side of TLS. The chain is checked by gRPC against a bundle whose file it watches; who the
 * server is, by its one URI SAN, is checked here. Host names play no part. A client that only knows
 * the hash of the CA (a join token) takes the CA from the chain the server sends and believes it
 * only if the hash is right.
 */
#define LOG_COMPONENT "rpc"
#include "common/clock.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <grpc/support/string_util.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WATCH_INTERVAL_S 1

static int check_name(const struct rpc_tls_client *t, const char *pem, struct ros2_err *err)
{
	struct pki_cert_info info;
	size_t n = strlen(t->server_id);
	int rc;

	if (!pem)
		return ros2_err_named(err, ROS2_UNAUTHENTICATED, "the server sent no certificate");
	rc = pki_cert_info(pem, strlen(pem), &info, err);
	if (rc)
		return rc;
	if (t->server_id_is_prefix ? !strncmp(info.uri, t->server_id, n) && info.uri[n]
	                           : !strcmp(info.uri, t->server_id))
		return 0;
	return ros2_err_named(err, ROS2_UNAUTHENTICATED, "expected the server %s%s, found %s",
	                      t->server_id, t->server_id_is_prefix ? "*" : "",
	                      info.uri[0] ? info.uri : "one without a SPIFFE ID");
}

/* The chain is leaf, then the rest; the rest must be the CA. */
static int check_pin(const struct rpc_tls_client *t, const char *chain, struct ros2_err *err)
{
	static const char end[] = "-----END CERTIFICATE-----";
	const char *rest = chain ? strstr(chain, end) : NULL;
	uint8_t hash[32];
	int rc;

	if (!rest || !strstr(rest + 1, end))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "the server did not send the certificate of its CA");
	rest += sizeof(end) - 1;
	rc = pki_bundle_hash(rest, strlen(rest), hash, err);
	if (rc)
		return rc;
	if (!crypto_equal(hash, t->ca_sha256, sizeof(hash)))
		return ros2_err_named(err, ROS2_WRONG_DOMAIN,
		                      "the server's CA is not the one whose hash is known");
	return pki_verify(chain, (size_t)(rest - chain), rest, strlen(rest), err);
}

static struct pki_trust *trust_of(struct rpc_tls_client *t)
{
	struct pki_trust *trust;

	pthread_mutex_lock(&t->lock);
	trust = t->trust ? pki_trust_ref(t->trust) : NULL;
	pthread_mutex_unlock(&t->lock);
	return trust;
}

/* What holds besides the file. */
static int check_trust(struct rpc_tls_client *t, const char *chain, struct ros2_err *err)
{
	struct pki_trust *trust = trust_of(t);
	int rc = trust ? pki_trust_verify(trust, chain, strlen(chain), err) : 0;

	pki_trust_unref(trust);
	return rc;
}

void rpc_tls_client_set_trust(struct rpc_tls_client *t, struct pki_trust *trust)
{
	struct pki_trust *old;

	pthread_mutex_lock(&t->lock);
	old = t->trust;
	t->trust = trust ? pki_trust_ref(trust) : NULL;
	pthread_mutex_unlock(&t->lock);
	pki_trust_unref(old);
}

static int verify(void *arg, grpc_tls_custom_verification_check_request *req,
                  grpc_tls_on_custom_verification_check_done_cb done, void *done_arg,
                  grpc_status_code *status, char **details)
{
	struct rpc_tls_client *t = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = check_name(t, req->peer_info.peer_cert, &err);
	const char *full = req->peer_info.peer_cert_full_chain;
	char *chain = NULL;

	if (!rc && t->pinned)
		rc = check_pin(t, full, &err);
	if (!rc && !(chain = strdup(full ? full : req->peer_info.peer_cert)))
		rc = ros2_err_named(&err, ROS2_BUSY, "no memory for the server's certificates");
	if (!rc)
		rc = check_trust(t, chain, &err);
	if (rc)
		free(TAKE_PTR(chain));
	*status = rc ? GRPC_STATUS_UNAUTHENTICATED : GRPC_STATUS_OK;
	*details = rc ? gpr_strdup(err.msg) : NULL;
	pthread_mutex_lock(&t->lock);
	t->last = err;
	if (chain) {
		free(t->chain);
		t->chain = chain;
	}
	pthread_mutex_unlock(&t->lock);
	rpc_tsan_release(t);
	return 1;
}

static void verify_cancel(void *arg, grpc_tls_custom_verification_check_request *req)
{
}

void rpc_tls_client_unref(struct rpc_tls_client *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	rpc_tsan_acquire(t); /* gRPC's last handshake */
	pthread_mutex_destroy(&t->lock);
	pki_trust_unref(t->trust);
	free(t->chain);
	free(t);
}

static void verify_destruct(void *arg)
{
	rpc_tls_client_unref(arg);
}

/* A server that refuses our certificate only closes the socket (TLS 1.3); the usual reason shows
 * here as well. */
static void own_certificate_ended(const struct rpc_tls_client *t, struct ros2_err *err)
{
	struct pki_cert_info info;
	void *pem = NULL;
	size_t len;
	char when[32];

	if (!*t->cert_path || fsx_read_file(t->cert_path, PKI_PEM_MAX, &pem, &len, NULL))
		return;
	if (!pki_cert_info(pem, len, &info, NULL) && info.not_after_unix_s <= time(NULL)) {
		clock_format_unix_ns((uint64_t)info.not_after_unix_s * NS_PER_S, when);
		ros2_err_named(err, ROS2_UNAUTHENTICATED,
		               "%s expired at %s: a new certificate is needed", t->cert_path, when);
	}
	free(pem);
}

void rpc_tls_client_explain(struct rpc_tls_client *t, struct ros2_err *err)
{
	struct ros2_err last;

	if (err->status != ROS2_UNAVAILABLE)
		return;
	pthread_mutex_lock(&t->lock);
	last = t->last;
	pthread_mutex_unlock(&t->lock);
	if (!last.code)
		own_certificate_ended(t, &last);
	if (last.code)
		*err = last;
}

int rpc_tls_client_check(struct rpc_tls_client *t, struct ros2_err *err)
{
	struct ros2_err why = ROS2_ERR_INIT;
	char *chain, *ca = NULL;
	bool any;
	size_t len;
	int rc;

	pthread_mutex_lock(&t->lock);
	any = t->chain;
	chain = any ? strdup(t->chain) : NULL;
	pthread_mutex_unlock(&t->lock);
	if (!any || t->pinned)
		rc = 0;
	else if (!chain)
		rc = ros2_err_set(&why, -ENOMEM, "no memory");
	else if (!(rc = fsx_read_file(t->ca_path, PKI_PEM_MAX, (void **)&ca, &len, &why)))
		rc = pki_verify(chain, strlen(chain), ca, len, &why);
	if (!rc && chain)
		rc = check_trust(t, chain, &why);
	free(chain);
	free(ca);
	if (rc == -ENOMEM)
		return ros2_err_named(err, ROS2_BUSY, "the server's certificate is not judged: %s",
		                      why.msg);
	return rc ? ros2_err_named(err, ROS2_UNAUTHENTICATED,
	                           "the server's certificate is not trusted any more: %s", why.msg)
	          : 0;
}

/* We, the servers we look for and the authority that signed for them are of one trust domain. */
static int check_domain(const struct rpc_channel_opts *o, const char *path, const char *pem,
                        size_t len, struct ros2_err *err)
{
	const char *server_id = o->server_id;
	size_t n = strlen("spiffe://") + strcspn(server_id + strlen("spiffe://"), "/");
	struct pki_cert_info info;

	if (o->any_domain || pki_cert_info(pem, len, &info, NULL) || !info.uri[0] ||
	    (!strncmp(info.uri, server_id, n) && (!info.uri[n] || info.uri[n] == '/')))
		return 0;
	return ros2_err_named(err, ROS2_WRONG_DOMAIN,
	                      "%s is for %s, expected the trust domain %.*s", path, info.uri,
	                      (int)n, server_id);
}

/* Missing and mismatched files are told at once, not as a failed handshake later. */
static int check_files(const struct rpc_channel_opts *o, struct ros2_err *err)
{
	char *ca = NULL, *cert = NULL, *key = NULL;
	size_t ca_len, cert_len, key_len;
	uint8_t hash[32];
	int rc = 0;

	if (o->ca_path) {
		rc = fsx_read_file(o->ca_path, PKI_PEM_MAX, (void **)&ca, &ca_len, err);
		if (!rc && (rc = pki_bundle_hash(ca, ca_len, hash, err)))
			ros2_err_prefix(err, "%s", o->ca_path);
		rc = rc ? rc : check_domain(o, o->ca_path, ca, ca_len, err);
	}
	if (!rc && o->cert_path) {
		rc = fsx_read_file(o->cert_path, PKI_PEM_MAX, (void **)&cert, &cert_len, err);
		if (!rc)
			rc = fsx_read_file(o->key_path, PKI_PEM_MAX, (void **)&key, &key_len, err);
		if (!rc && (rc = pki_key_matches(cert, cert_len, key, key_len, err)))
			ros2_err_prefix(err, "%s and %s", o->cert_path, o->key_path);
		rc = rc ? rc : check_domain(o, o->cert_path, cert, cert_len, err);
	}
	free(ca);
	free(cert);
	if (key)
		crypto_wipe(key, key_len);
	free(key);
	return rc;
}

static grpc_channel_credentials *make_creds(struct rpc_tls_client *t,
                                            const struct rpc_channel_opts *o)
{
	grpc_tls_credentials_options *opts = grpc_tls_credentials_options_create();
	grpc_tls_certificate_verifier *v;
	grpc_tls_certificate_provider *p;
	RPC_BLOCKS_SIGNALS;

	if (o->ca_path || o->cert_path) {
		p = grpc_tls_certificate_provider_file_watcher_create(o->key_path, o->cert_path,
		                                                      o->ca_path, WATCH_INTERVAL_S);
		grpc_tls_credentials_options_set_certificate_provider(opts, p);
		grpc_tls_certificate_provider_release(p);
	}
	if (o->ca_path)
		grpc_tls_credentials_options_watch_root_certs(opts);
	else
		grpc_tls_credentials_options_set_verify_server_cert(opts, 0);
	if (o->cert_path)
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(opts);
	grpc_tls_credentials_options_set_check_call_host(opts, 0);
	t->ext = (grpc_tls_certificate_verifier_external){.user_data = t,
	                                                  .verify = verify,
	                                                  .cancel = verify_cancel,
	                                                  .destruct = verify_destruct};
	atomic_fetch_add(&t->refs, 1);
	v = grpc_tls_certificate_verifier_external_create(&t->ext);
	grpc_tls_credentials_options_set_certificate_verifier(opts, v);
	grpc_tls_certificate_verifier_release(v);
	return grpc_tls_credentials_create(opts);
}

int rpc_tls_client_new(const struct rpc_channel_opts *o, struct rpc_tls_client **ret,
                       grpc_channel_credentials **ret_creds, struct ros2_err *err)
{
	struct rpc_tls_client *t;
	int rc;

	if (!o->ca_path == !o->ca_sha256 || !o->cert_path != !o->key_path || !o->server_id ||
	    !*o->server_id || strlen(o->server_id) > ROS2_SPIFFE_MAX)
		return ros2_err_set(err, -EINVAL,
		                    "a channel needs ca_path or ca_sha256, server_id, and both or "
		                    "none of cert_path and key_path");
	if (o->server_id_is_prefix && o->server_id[strlen(o->server_id) - 1] != '/')
		return ros2_err_set(err, -EINVAL, "a prefix of server IDs ends in '/'");
	rc = check_files(o, err);
	if (rc)
		return rc;
	t = calloc(1, sizeof(*t));
	if (!t)
		return ros2_err_set(err, -ENOMEM, "no memory");
	pthread_mutex_init(&t->lock, NULL);
	atomic_init(&t->refs, 1);
	snprintf(t->server_id, sizeof(t->server_id), "%s", o->server_id);
	t->server_id_is_prefix = o->server_id_is_prefix;
	t->pinned = o->ca_sha256;
	snprintf(t->cert_path, sizeof(t->cert_path), "%s", o->cert_path ? o->cert_path : "");
	snprintf(t->ca_path, sizeof(t->ca_path), "%s", o->ca_path ? o->ca_path : "");
	if (o->ca_sha256)
		memcpy(t->ca_sha256, o->ca_sha256, sizeof(t->ca_sha256));
	*ret_creds = make_creds(t, o);
	*ret = t;
	return 0;
}
