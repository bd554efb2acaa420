/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server side of TLS: certificate, key and client CAs come from files that may change at any time.
 * gRPC asks for them at every handshake; a changed set replaces the one in use only when it is
 * whole: everything parses and the key belongs to the certificate. So a half-written or torn set
 * never serves and never stops the server. By which CAs peers are judged whose handshake is past
 * (trust.c) changes only when its owner says so: handshakes follow the file at once, and what
 * stands is not ended by a file that somebody is still writing.
 */
#define LOG_COMPONENT "rpc"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/log.h"
#include "common/pki.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_CERT, FILE_KEY, FILE_CLIENT_CA, FILE_APPEND, N_FILES };

struct file_sig {
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct rpc_tls_server {
	char *path[N_FILES];         /* owned; NULL: not used */
	_Atomic uint64_t generation; /* of trust; written under lock */
	pthread_mutex_t lock;
	/* guarded by lock */
	char *pem[N_FILES];
	struct file_sig sig[N_FILES];
	bool served;             /* gRPC has the present set */
	struct pki_trust *fresh; /* a reference; of pem; NULL without client CAs */
	struct pki_trust *trust; /* a reference; of standing peers */
	uint8_t fresh_hash[SHA256_LEN], trust_hash[SHA256_LEN]; /* of their texts */
	struct log_limit log;
};

static void sig_of(const char *path, struct file_sig *ret)
{
	struct stat st;

	memset(ret, 0, sizeof(*ret));
	if (stat(path, &st))
		return;
	ret->dev = st.st_dev;
	ret->ino = st.st_ino;
	ret->size = st.st_size;
	ret->mtime.tv_sec = st.st_mtim.tv_sec;
	ret->mtime.tv_nsec = st.st_mtim.tv_nsec;
}

static void free_pem(char *pem)
{
	if (pem)
		crypto_wipe(pem, strlen(pem));
	free(pem);
}

static int check_set(struct rpc_tls_server *t, char *const pem[N_FILES],
                     struct pki_trust **ret_trust, struct ros2_err *err)
{
	struct pki_cert_info info;
	uint8_t hash[32];
	int rc;

	rc = pki_cert_info(pem[FILE_CERT], strlen(pem[FILE_CERT]), &info, err);
	if (rc) {
		ros2_err_prefix(err, "%s", t->path[FILE_CERT]);
		return rc;
	}
	rc = pki_key_matches(pem[FILE_CERT], strlen(pem[FILE_CERT]), pem[FILE_KEY],
	                     strlen(pem[FILE_KEY]), err);
	if (rc) {
		ros2_err_prefix(err, "%s and %s", t->path[FILE_CERT], t->path[FILE_KEY]);
		return rc;
	}
	if (pem[FILE_APPEND]) {
		rc = pki_bundle_hash(pem[FILE_APPEND], strlen(pem[FILE_APPEND]), hash, err);
		if (rc)
			return ros2_err_prefix(err, "%s", t->path[FILE_APPEND]), rc;
	}
	if (pem[FILE_CLIENT_CA]) {
		rc = pki_trust_new(pem[FILE_CLIENT_CA], strlen(pem[FILE_CLIENT_CA]), ret_trust,
		                   err);
		if (rc)
			ros2_err_prefix(err, "%s", t->path[FILE_CLIENT_CA]);
	}
	return rc;
}

/* The chain with the appended CA: gRPC takes one text. */
static int join_chain(char *pem[N_FILES], struct ros2_err *err)
{
	char *both;

	if (!pem[FILE_APPEND])
		return 0;
	if (asprintf(&both, "%s\n%s", pem[FILE_CERT], pem[FILE_APPEND]) < 0)
		return ros2_err_set(err, -ENOMEM, "no memory for a chain");
	free(pem[FILE_CERT]);
	pem[FILE_CERT] = both;
	return 0;
}

static int load(struct rpc_tls_server *t, struct ros2_err *err)
{
	char *pem[N_FILES] = {NULL};
	struct file_sig sig[N_FILES];
	struct pki_trust *trust = NULL;
	size_t len;
	int rc = 0;

	memset(sig, 0, sizeof(sig));
	for (int i = 0; i < N_FILES && !rc; i++) {
		if (!t->path[i])
			continue;
		sig_of(t->path[i], &sig[i]);
		rc = fsx_read_file(t->path[i], PKI_PEM_MAX, (void **)&pem[i], &len, err);
	}
	if (!rc)
		rc = join_chain(pem, err);
	if (!rc)
		rc = check_set(t, pem, &trust, err);
	for (int i = 0; i < N_FILES; i++) {
		if (rc) {
			free_pem(pem[i]);
			continue;
		}
		free_pem(t->pem[i]);
		t->pem[i] = pem[i];
	}
	if (!rc) {
		pki_trust_unref(t->fresh);
		t->fresh = trust;
		if (trust)
			crypto_sha256(t->pem[FILE_CLIENT_CA], strlen(t->pem[FILE_CLIENT_CA]),
			              t->fresh_hash);
		memcpy(t->sig, sig, sizeof(sig));
		t->served = false;
	}
	return rc;
}

static bool changed(struct rpc_tls_server *t)
{
	struct file_sig now[N_FILES];

	memset(now, 0, sizeof(now));
	for (int i = 0; i < N_FILES; i++)
		if (t->path[i])
			sig_of(t->path[i], &now[i]);
	return memcmp(now, t->sig, sizeof(now));
}

/* Any gRPC thread, at every handshake. */
static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **ret)
{
	grpc_ssl_certificate_config_reload_status rc = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
	struct ros2_err err = ROS2_ERR_INIT;
	grpc_ssl_pem_key_cert_pair pair;
	struct rpc_tls_server *t = arg;
	const char *roots;

	pthread_mutex_lock(&t->lock);
	if (changed(t) && load(t, &err) && log_limit_pass(&t->log))
		log_debug("changed TLS files are not used yet: %s", err.msg);
	if (!t->served) {
		pair.private_key = t->pem[FILE_KEY];
		pair.cert_chain = t->pem[FILE_CERT];
		/* gRPC insists on roots here even where no client certificate is asked for. */
		roots = t->pem[FILE_CLIENT_CA] ? t->pem[FILE_CLIENT_CA] : t->pem[FILE_CERT];
		*ret = grpc_ssl_server_certificate_config_create(roots, &pair, 1);
		rc = *ret ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
		          : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
		t->served = *ret != NULL;
	}
	pthread_mutex_unlock(&t->lock);
	rpc_tsan_release(t);
	return rc;
}

/* Under the lock. Makes what handshakes use what standing peers are judged by; it needs nothing, so
 * that a reload that read its files is in force. 1: it is another. */
static int take_trust(struct rpc_tls_server *t)
{
	if (!t->fresh || (t->trust && !memcmp(t->fresh_hash, t->trust_hash, SHA256_LEN)))
		return 0;
	pki_trust_unref(t->trust);
	t->trust = pki_trust_ref(t->fresh);
	memcpy(t->trust_hash, t->fresh_hash, SHA256_LEN);
	t->generation++;
	return 1;
}

int rpc_tls_server_reload(struct rpc_tls_server *t, struct ros2_err *err)
{
	int rc;

	pthread_mutex_lock(&t->lock);
	rc = load(t, err);
	if (!rc)
		rc = take_trust(t);
	pthread_mutex_unlock(&t->lock);
	return rc;
}

uint64_t rpc_tls_server_trust(struct rpc_tls_server *t, struct rpc_tls_trust *ret)
{
	uint64_t generation;
	bool same;

	pthread_mutex_lock(&t->lock);
	generation = t->generation;
	same = !memcmp(t->fresh_hash, t->trust_hash, SHA256_LEN);
	ret->in_force = t->trust ? pki_trust_ref(t->trust) : NULL;
	ret->of_handshakes = t->trust && !same ? pki_trust_ref(t->fresh) : NULL;
	pthread_mutex_unlock(&t->lock);
	return generation;
}

uint64_t rpc_tls_server_generation(const struct rpc_tls_server *t)
{
	return t->generation;
}

int rpc_tls_server_new(const char *cert, const char *key, const char *client_ca, const char *append,
                       struct rpc_tls_server **ret, struct ros2_err *err)
{
	const char *paths[N_FILES] = {cert, key, client_ca, append};
	struct rpc_tls_server *t = calloc(1, sizeof(*t));
	int rc = 0;

	if (!t)
		return ros2_err_set(err, -ENOMEM, "no memory");
	pthread_mutex_init(&t->lock, NULL);
	for (int i = 0; i < N_FILES && !rc; i++) {
		t->path[i] = paths[i] ? strdup(paths[i]) : NULL;
		if (paths[i] && !t->path[i])
			rc = ros2_err_set(err, -ENOMEM, "no memory");
	}
	if (!rc)
		rc = load(t, err);
	if (rc < 0) {
		rpc_tls_server_free(t);
		return rc;
	}
	take_trust(t);
	*ret = t;
	return 0;
}

grpc_server_credentials *rpc_tls_server_creds(struct rpc_tls_server *t)
{
	return grpc_ssl_server_credentials_create_with_options(
		grpc_ssl_server_credentials_create_options_using_config_fetcher(
			t->path[FILE_CLIENT_CA]
				? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
				: GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
			fetch, t));
}

void rpc_tls_server_free(struct rpc_tls_server *t)
{
	if (!t)
		return;
	rpc_tsan_acquire(t); /* gRPC's last handshake */
	for (int i = 0; i < N_FILES; i++) {
		free(t->path[i]);
		free_pem(t->pem[i]);
	}
	pki_trust_unref(t->trust);
	pki_trust_unref(t->fresh);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
