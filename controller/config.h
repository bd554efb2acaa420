/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration directory that `ros2ctl init` makes: certificates, keys, roles. Everything is
 * read and checked at start, so that a fault is told then and by the name of the file. Immutable,
 * except whom the roles and the trust bundles name, which SIGHUP reads again (reload.c): a set that
 * is not whole and good changes nothing.
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
	int line; /* of the file: of two for one identity the first holds */
};

enum config_bundle { CONFIG_INFRA, CONFIG_TENANT, CONFIG_ADMIN };
#define CONFIG_BUNDLES 3
const char *config_bundle_to_str(enum config_bundle b); /* "infra-bundle", as the file */

/* Immutable once it is made; loop thread. */
struct config_roles {
	unsigned refs;
	size_t n;
	struct config_role v[]; /* by SPIFFE ID, each once */
};

/* Whom the files name: who is let in, and as what. Members are references, shared with others. */
struct config_rights {
	struct pki_trust *trust[CONFIG_BUNDLES];
	struct config_roles *roles;
	uint8_t infra_hash[32]; /* of the infrastructure bundle; zeros of one that is empty */
};

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
	struct config_rights rights; /* in force */
	char reload_failed[256]; /* why the last SIGHUP left something as it was; "": it did not */
	uint64_t reload_failed_unix_ns;
	char reload_pending[256]; /* what of it waits for its record; "": nothing */
	uint64_t reload_pending_unix_ns;
};

/* -ENOENT, -EBADMSG, ... with words that name the file, what was expected and found, what to do. */
int config_load(const char *dir, struct config *c, struct ros2_err *err);
void config_fini(struct config *c);
/* What the files name now. Nothing is in force by it. -ENOMEM and -EINTR are no word about them. */
int config_read_roles(const struct config *c, struct config_roles **ret, struct ros2_err *err);
/* Good only when certificates, keys and bundles are all as a start wants them. Fills all of @ret
 * but the roles. */
int config_read_bundles(struct config *c, struct config_rights *ret, struct ros2_err *err);

/* ---- rights ---- */

struct config_changes {
	struct pki_trust_changes bundles[CONFIG_BUNDLES];
	size_t roles, roles_added, roles_removed;            /* of @to; lines that came and went */
	char roles_added_text[480], roles_removed_text[480]; /* the first few: "ID role, ..." */
};
void config_rights_changes(const struct config_rights *from, const struct config_rights *to,
                           struct config_changes *ret);
bool config_takes(const struct config_changes *c); /* somebody loses something by it */
bool config_gives(const struct config_changes *c);
/* What of @to nobody has who had it not in @from. -ENOMEM. */
int config_rights_common(const struct config_rights *from, const struct config_rights *to,
                         struct config_rights *ret, struct ros2_err *err);
/* @ret, filled or zero, becomes references to what @from has. It needs nothing. */
void config_rights_set(struct config_rights *ret, const struct config_rights *from);
void config_rights_fini(struct config_rights *r);
void config_roles_unref(struct config_roles *r); /* NULL is accepted */
/* The text of a roles file: "SPIFFE-ID ROLE" lines, '#' begins a comment. @ret is malloc'd, also
 * for no roles at all. -EINVAL, -EFBIG with words that begin "@path:LINE: "; no identity outside
 * @trust_domain passes, and none with two roles. */
int config_roles_parse(const char *text, size_t len, const char *trust_domain, const char *path,
                       struct config_role **ret, size_t *ret_n, struct ros2_err *err);
/* CTL_NOBODY for an identity without a binding. */
int config_role_of(const struct config *c, const char *spiffe);
#endif
