/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server side of TLS: certificate and key come from files that may change at any time. gRPC asks
 * for them at every handshake; a changed set replaces the one in use only when it is whole:
 * everything parses and the key belongs to the certificate. So a half-written or torn set never
 * serves and never stops the server. The client CAs are rights: they are read once, and from then
 * on only their owner's word changes them, for handshakes and for who is connected (trust.c) alike.
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

enum { FILE_CERT, FILE_KEY, FILE_APPEND, N_FILES };

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
	struct pki_trust *trust; /* a reference; NULL without client CAs */
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

static int check_set(struct rpc_tls_server *t, char *const pem[N_FILES], struct ros2_err *err)
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
			ros2_err_prefix(err, "%s", t->path[FILE_APPEND]);
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
		rc = check_set(t, pem, err);
	for (int i = 0; i < N_FILES; i++) {
		if (rc) {
			free_pem(pem[i]);
			continue;
		}
		free_pem(t->pem[i]);
		t->pem[i] = pem[i];
	}
	if (!rc) {
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

/* gRPC insists on roots also where no client certificate is asked for, and of CAs of which none is
 * left: whom it lets in by these is refused at his first call (trust.c). */
static const char *roots_of(const struct rpc_tls_server *t)
{
	const char *text = t->trust ? pki_trust_text(t->trust, NULL) : "";

	return *text ? text : t->pem[FILE_CERT];
}

/* Any gRPC thread, at every handshake. */
static grpc_ssl_certificate_config_reload_status fetch(void *arg,
                                                       grpc_ssl_server_certificate_config **ret)
{
	grpc_ssl_certificate_config_reload_status rc = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
	struct ros2_err err = ROS2_ERR_INIT;
	grpc_ssl_pem_key_cert_pair pair;
	struct rpc_tls_server *t = arg;

	pthread_mutex_lock(&t->lock);
	if (changed(t) && load(t, &err) && log_limit_pass(&t->log))
		log_debug("changed TLS files are not used yet: %s", err.msg);
	if (!t->served) {
		pair.private_key = t->pem[FILE_KEY];
		pair.cert_chain = t->pem[FILE_CERT];
		*ret = grpc_ssl_server_certificate_config_create(roots_of(t), &pair, 1);
		rc = *ret ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
		          : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
		t->served = *ret != NULL;
	}
	pthread_mutex_unlock(&t->lock);
	rpc_tsan_release(t);
	return rc;
}

bool rpc_tls_server_set_trust(struct rpc_tls_server *t, struct pki_trust *trust)
{
	struct pki_trust *old = NULL;

	pthread_mutex_lock(&t->lock);
	if (t->trust && strcmp(pki_trust_text(t->trust, NULL), pki_trust_text(trust, NULL)) != 0) {
		old = t->trust;
		t->trust = pki_trust_ref(trust);
		t->served = false;
		t->generation++;
	}
	pthread_mutex_unlock(&t->lock);
	pki_trust_unref(old);
	return old;
}

uint64_t rpc_tls_server_trust(struct rpc_tls_server *t, struct pki_trust **ret)
{
	uint64_t generation;

	pthread_mutex_lock(&t->lock);
	generation = t->generation;
	*ret = t->trust ? pki_trust_ref(t->trust) : NULL;
	pthread_mutex_unlock(&t->lock);
	return generation;
}

uint64_t rpc_tls_server_generation(const struct rpc_tls_server *t)
{
	return t->generation;
}

/* The first client CAs. */
static int load_trust(struct rpc_tls_server *t, const char *path, struct ros2_err *err)
{
	char *pem = NULL;
	size_t len;
	int rc = fsx_read_file(path, PKI_PEM_MAX, (void **)&pem, &len, err);

	if (!rc && (rc = pki_trust_new(pem, len, &t->trust, err)))
		ros2_err_prefix(err, "%s", path);
	free(pem);
	t->generation = RPC_TRUST_FIRST;
	return rc;
}

int rpc_tls_server_new(const char *cert, const char *key, const char *client_ca, const char *append,
                       struct rpc_tls_server **ret, struct ros2_err *err)
{
	const char *paths[N_FILES] = {cert, key, append};
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
	if (!rc && client_ca)
		rc = load_trust(t, client_ca, err);
	if (rc < 0) {
		rpc_tls_server_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

grpc_server_credentials *rpc_tls_server_creds(struct rpc_tls_server *t)
{
	return grpc_ssl_server_credentials_create_with_options(
		grpc_ssl_server_credentials_create_options_using_config_fetcher(
			t->trust ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
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
	pthread_mutex_destroy(&t->lock);
	free(t);
}
