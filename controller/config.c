/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and checks the configuration directory. Every fault names its file and what to do. */
#include "controller/config_priv.h"
#include "controller/ctl.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "proto/audit/audit.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static int read_text(const char *path, char **ret, size_t *ret_len, struct ros2_err *err)
{
	void *p = NULL;
	int r = fsx_read_file(path, FILE_MAX, &p, ret_len, err);

	if (r == -ENOENT)
		return ros2_err_set(
			err, r,
			"%s does not exist: make the directory with `ros2ctl init`, and give "
			"its controller/ part as --config-dir",
			path);
	if (!r)
		*ret = p;
	return r;
}

static char *trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

static int load_domain(struct config *c, struct ros2_err *err)
{
	char path[2200], id[ROS2_SPIFFE_MAX + 40];
	AUTO_FREE char *text = NULL;
	size_t n;
	int r;

	snprintf(path, sizeof(path), "%s/trust-domain", c->dir);
	r = read_text(path, &text, &n, err);
	if (r < 0)
		return r;
	snprintf(id, sizeof(id), "spiffe://%.255s/x", trim(text));
	if (strlen(trim(text)) > 200 || !ros2_spiffe_valid(id, NULL, NULL))
		return ros2_err_set(err, -EINVAL, "%s: \"%.80s\" is not a trust domain name", path,
		                    trim(text));
	snprintf(c->trust_domain, sizeof(c->trust_domain), "%s", trim(text));
	return 0;
}

/* ---- certificates ---- */

struct pem {
	char *text; /* owned */
	size_t len;
};

static int check_own_cert(const struct config *c, const struct pki_trust *infra,
                          const struct pem *crt, int64_t *ret_not_after, struct ros2_err *err)
{
	char prefix[ROS2_SPIFFE_MAX + 40];
	struct pki_cert_info info;
	int r = pki_cert_info(crt->text, crt->len, &info, err);

	if (!r)
		r = pki_trust_verify(infra, crt->text, crt->len, err);
	if (r < 0) {
		ros2_err_prefix(err, "%s", c->tls_crt);
		return r;
	}
	snprintf(prefix, sizeof(prefix), "spiffe://%s/controller/", c->trust_domain);
	if (strncmp(info.uri, prefix, strlen(prefix)) != 0)
		return ros2_err_named(
			err, ROS2_WRONG_DOMAIN,
			"%s is for \"%s\"; a controller of this trust domain has %sNAME",
			c->tls_crt, info.uri, prefix);
	*ret_not_after = info.not_after_unix_s;
	return 0;
}

static int check_pair(const char *crt_path, const char *key_path, struct pem *crt,
                      struct ros2_err *err)
{
	AUTO_FREE char *key = NULL;
	size_t key_len;
	int r = read_text(crt_path, &crt->text, &crt->len, err);

	if (!r)
		r = read_text(key_path, &key, &key_len, err);
	if (!r) {
		r = pki_key_matches(crt->text, crt->len, key, key_len, err);
		if (r < 0)
			ros2_err_prefix(err, "%s and %s do not belong together", crt_path,
			                key_path);
	}
	if (key)
		crypto_wipe(key, key_len);
	return r;
}

/* Issues a certificate for our own key and verifies it as agents will: the only test that counts.
 */
static int check_issuer(const struct config *c, const struct pki_trust *infra, struct ros2_err *err)
{
	AUTO_FREE char *csr = NULL, *pem = NULL;
	char uri[ROS2_SPIFFE_MAX + 40];
	struct pki_issue_opts o = {.uri = uri,
	                           .issuer_cert_path = c->issuer_crt,
	                           .issuer_key_path = c->issuer_key,
	                           .lifetime_s = 60};
	int r = pki_csr_create(c->tls_key, NULL, &csr, err);

	if (r < 0)
		return r;
	snprintf(uri, sizeof(uri), "spiffe://%s/agent/self-check", c->trust_domain);
	o.csr_pem = csr;
	o.csr_len = strlen(csr);
	r = pki_issue(&o, &pem, err);
	if (!r)
		r = pki_trust_verify(infra, pem, strlen(pem), err);
	if (r < 0)
		ros2_err_prefix(err, "%s cannot issue certificates that %s trusts", c->issuer_crt,
		                c->infra_bundle);
	return r;
}

const char *config_bundle_to_str(enum config_bundle b)
{
	static const char *const names[CONFIG_BUNDLES] = {"infra-bundle", "tenant-bundle",
	                                                  "admin-bundle"};

	return (size_t)b < CONFIG_BUNDLES ? names[b] : "?";
}

static int load_bundle(const char *path, struct pki_trust **ret, struct ros2_err *err)
{
	AUTO_FREE char *text = NULL;
	size_t len;
	int r = read_text(path, &text, &len, err);

	if (r < 0)
		return r;
	r = pki_trust_new(text, len, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s", path);
	return r;
}

/* The issuer is tried once, because trying it costs a signature. */
static int check_certs(struct config *c, const struct pki_trust *infra, struct ros2_err *err)
{
	struct pem own = {0}, issuer = {0};
	int64_t not_after = 0;
	int r = check_pair(c->tls_crt, c->tls_key, &own, err);

	if (!r)
		r = check_own_cert(c, infra, &own, &not_after, err);
	if (!r)
		r = check_pair(c->issuer_crt, c->issuer_key, &issuer, err);
	if (!r)
		r = check_issuer(c, infra, err);
	if (!r)
		c->cert_not_after_unix_s = not_after;
	free(own.text);
	free(issuer.text);
	return r;
}

int config_read_bundles(struct config *c, struct config_rights *ret, struct ros2_err *err)
{
	const char *const paths[CONFIG_BUNDLES] = {c->infra_bundle, c->tenant_bundle,
	                                           c->admin_bundle};
	struct config_rights new = {0};
	int r = 0;

	for (size_t i = 0; i < CONFIG_BUNDLES && !r; i++)
		r = load_bundle(paths[i], &new.trust[i], err);
	if (!r)
		r = config_hash_infra(&new, err);
	if (!r)
		r = check_certs(c, new.trust[CONFIG_INFRA], err);
	if (r < 0) {
		config_rights_fini(&new);
		return r;
	}
	memcpy(ret->trust, new.trust, sizeof(new.trust));
	memcpy(ret->infra_hash, new.infra_hash, sizeof(new.infra_hash));
	return 0;
}

/* ---- keys ---- */

static int load_keys(struct config *c, struct ros2_err *err)
{
	char path[2200];
	AUTO_FREE char *text = NULL;
	uint8_t pub[ED25519_PUB_LEN];
	size_t n;
	int r;

	snprintf(path, sizeof(path), "%s/audit.key", c->dir);
	r = crypto_sign_key_load(path, &c->audit_key, err);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/snapshot.key", c->dir);
	r = crypto_sign_key_load(path, &c->snapshot_key, err);
	if (r < 0)
		return r;
	crypto_sign_key_public(c->snapshot_key, c->snapshot_pub);
	crypto_sign_key_public(c->audit_key, pub);
	snprintf(c->audit_origin, sizeof(c->audit_origin), "%s/audit", c->trust_domain);
	r = audit_vkey_format(c->audit_origin, pub, c->audit_vkey);
	if (r < 0)
		return ros2_err_set(err, r,
		                    "trust domain %s is too long for the audit log's origin",
		                    c->trust_domain);
	snprintf(path, sizeof(path), "%s/mac.key", c->dir);
	r = read_text(path, &text, &n, err);
	if (r < 0)
		return r;
	r = crypto_hex_decode(trim(text), c->mac_key, sizeof(c->mac_key));
	crypto_wipe(text, n);
	return r < 0 ? ros2_err_set(err, -EINVAL, "%s: expected 64 hex digits", path) : 0;
}

/* ---- roles ---- */

int config_read_roles(const struct config *c, struct config_roles **ret, struct ros2_err *err)
{
	AUTO_FREE struct config_role *v = NULL;
	AUTO_FREE char *text = NULL;
	char path[2200];
	size_t len, n;
	int r;

	snprintf(path, sizeof(path), "%s/roles", c->dir);
	r = read_text(path, &text, &len, err);
	if (!r)
		r = config_roles_parse(text, len, c->trust_domain, path, &v, &n, err);
	if (!r)
		r = config_roles_new(v, n, ret, err);
	return r;
}

int config_load(const char *dir, struct config *c, struct ros2_err *err)
{
	int r;

	memset(c, 0, sizeof(*c));
	if (strlen(dir) >= sizeof(c->dir))
		return ros2_err_set(err, -ENAMETOOLONG, "--config-dir is too long");
	strcpy(c->dir, dir);
	snprintf(c->tls_crt, sizeof(c->tls_crt), "%s/tls.crt", dir);
	snprintf(c->tls_key, sizeof(c->tls_key), "%s/tls.key", dir);
	snprintf(c->infra_bundle, sizeof(c->infra_bundle), "%s/infra-bundle.pem", dir);
	snprintf(c->admin_bundle, sizeof(c->admin_bundle), "%s/admin-bundle.pem", dir);
	snprintf(c->tenant_bundle, sizeof(c->tenant_bundle), "%s/tenant-bundle.pem", dir);
	snprintf(c->issuer_crt, sizeof(c->issuer_crt), "%s/issuer.crt", dir);
	snprintf(c->issuer_key, sizeof(c->issuer_key), "%s/issuer.key", dir);
	c->agent_cert_ttl_s = 24 * 3600;
	r = load_domain(c, err);
	if (!r)
		r = config_read_bundles(c, &c->rights, err);
	if (!r)
		r = load_keys(c, err);
	if (!r)
		r = config_read_roles(c, &c->rights.roles, err);
	if (r < 0)
		config_fini(c);
	return r;
}

void config_fini(struct config *c)
{
	crypto_sign_key_free(c->audit_key);
	crypto_sign_key_free(c->snapshot_key);
	crypto_wipe(c->mac_key, sizeof(c->mac_key));
	config_rights_fini(&c->rights);
	memset(c, 0, sizeof(*c));
}
