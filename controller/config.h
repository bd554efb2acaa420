/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration directory that `ros2ctl init` makes: certificates, keys, roles. Everything is
 * read and checked at start, so that a fault is told then and by the name of the file. Immutable,
 * except the roles and the trust bundles given to agents, which SIGHUP reads again: a set that is
 * not whole and good changes nothing.
 */
#ifndef ROS2_CONTROLLER_CONFIG_H
#define ROS2_CONTROLLER_CONFIG_H

#include "common/pki.h"
#include "common/crypto.h"
#include "common/err.h"
#include "common/ids.h"
#include <stdbool.h>

#define CONFIG_ROLES_MAX 4096

struct config_role {
	char spiffe[ROS2_SPIFFE_MAX + 1];
	int role; /* enum ctl_role */
};

enum config_bundle { CONFIG_INFRA, CONFIG_TENANT, CONFIG_ADMIN };
#define CONFIG_BUNDLES 3
const char *config_bundle_to_str(enum config_bundle b); /* "infra-bundle", as the file */

struct config {
	char dir[2048], trust_domain[ROS2_SPIFFE_MAX + 1];
	char tls_crt[2200], tls_key[2200], infra_bundle[2200], admin_bundle[2200];
	char tenant_bundle[2200], issuer_crt[2200], issuer_key[2200];
	struct crypto_sign_key *audit_key, *snapshot_key; /* owned */
	uint8_t snapshot_pub[ED25519_PUB_LEN];
	uint8_t mac_key[32];
	char audit_origin[300], audit_vkey[512];
	uint64_t agent_cert_ttl_s;
	/* loop thread */
	int64_t cert_not_after_unix_s;
	char *infra_pem, *tenant_pem; /* owned */
	size_t infra_len, tenant_len;
	uint8_t infra_hash[32];
	struct pki_trust *trust[CONFIG_BUNDLES]; /* references */
	char reload_failed[256]; /* why the last SIGHUP left something as it was; "": it did not */
	uint64_t reload_failed_unix_ns;
	struct config_role *roles; /* owned */
	size_t n_roles;
};

/* -ENOENT, -EBADMSG, ... with words that name the file, what was expected and found, what to do. */
int config_load(const char *dir, struct config *c, struct ros2_err *err);
void config_fini(struct config *c);
/* Keeps the roles in use when the file is bad. */
int config_reload_roles(struct config *c, struct ros2_err *err);
/* Keeps the bundles in use unless certificates, keys and bundles are all as a start wants them. 1:
 * what agents are given has changed; 0: it has not. @ret: the authorities that came and went. */
int config_reload_bundles(struct config *c, struct pki_trust_changes ret[CONFIG_BUNDLES],
                          struct ros2_err *err);
/* The text of a roles file: "SPIFFE-ID ROLE" lines, '#' begins a comment. @ret is malloc'd, also
 * for no roles at all. -EINVAL, -EFBIG with words that begin "@path:LINE: "; no identity outside
 * @trust_domain passes. */
int config_roles_parse(const char *text, size_t len, const char *trust_domain, const char *path,
                       struct config_role **ret, size_t *ret_n, struct ros2_err *err);
/* CTL_NOBODY for an identity without a binding. */
int config_role_of(const struct config *c, const char *spiffe);
#endif
