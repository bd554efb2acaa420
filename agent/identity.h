/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who this agent is: files of the state directory, and how it comes by them (enrolment with a join
 * token, renewal at half-life). The private key is made here and never leaves.
 */
#ifndef ROS2_AGENT_IDENTITY_H
#define ROS2_AGENT_IDENTITY_H

#include "common/crypto.h"
#include "common/err.h"
#include "common/ids.h"
#include "common/loop.h"
#include <limits.h>

struct pki_trust;

struct identity {
	char name[ROS2_NAME_MAX + 1];
	char trust_domain[ROS2_SPIFFE_MAX + 1];
	struct ros2_uid agent_uid;
	uint8_t snapshot_pub[ED25519_PUB_LEN];
};

/* Reads the files of DIR. -ENOENT: not enrolled yet. Otherwise words say which file is wrong and
 * what to do: another agent's directory, a key that does not fit, a damaged file. */
int identity_load(const char *dir, const char *name, struct identity *ret, struct ros2_err *err);
/* Is one to be made with a join token? @load_r and @why are identity_load's. There is none: yes.
 * @token, one was given: also when it is damaged, or its certificate has ended. One that could not
 * be read, or is another agent's, stays. */
bool identity_must_enrol(const char *dir, const char *name, int load_r, const struct ros2_err *why,
                         bool token);
/* UNAUTHENTICATED with words when the certificate has ended; *ret_renew_in_s: until half-life. */
int identity_check_certificate(const char *dir, const char *name, uint64_t *ret_renew_in_s,
                               struct ros2_err *err);
/* It does not begin yet: this machine's clock is behind, or the one that it was made by was ahead,
 * and if that is put right no server takes it. */
bool identity_certificate_is_early(const char *dir);

/* ---- the texts of these files; @text needs no NUL at its end ---- */
#define IDENTITY_JSON_MAX 512
/* Sets agent_uid, name and trust_domain; on CORRUPT nothing. */
int identity_json_parse(const char *text, size_t len, struct identity *ret, struct ros2_err *err);
/* The length of the text in @out, or -EINVAL for what identity_json_parse would not take. */
int identity_json_format(const struct ros2_uid *agent_uid, const char *name,
                         const char *trust_domain, char out[IDENTITY_JSON_MAX]);
/* snapshot.pub: 64 hex digits, and a newline that may be missing. CORRUPT. */
int identity_key_parse(const char *text, size_t len, uint8_t ret[ED25519_PUB_LEN],
                       struct ros2_err *err);
/* Goes into identity.json and SPIFFE IDs: 1 to 200 characters of a domain name. */
bool identity_trust_domain_valid(const char *s);

struct join_token {
	char agent[ROS2_NAME_MAX + 1];
	char secret[129];
	uint8_t bundle_hash[SHA256_LEN];
	char trust_domain[ROS2_SPIFFE_MAX + 1]; /* as the CA's certificate says */
	char *bundle_pem;                       /* owned */
	size_t bundle_len;
};
/* Words for every way it can be wrong: format, another agent's, CA that does not match its hash. */
int join_token_load(const char *path, const char *agent, struct join_token *ret,
                    struct ros2_err *err);
int join_token_parse(const char *text, size_t len, const char *agent, struct join_token *ret,
                     struct ros2_err *err);
void join_token_fini(struct join_token *t);

/* Enrols on the loop: tries again while the controller cannot be reached, gives up when it says no.
 * @done runs once. With a token a new identity is made of what comes; without one, @again gets a
 * new certificate, and nothing else, for the key there is: the old one has ended, which mTLS would
 * refuse, not long ago. What comes is written on the loop's thread, before done: nobody is served
 * yet. Or, with
 * @take, it is the taker's, valid during the call; what that gives is an error for done. */
struct enrol;
struct enrol_opts {
	struct loop *loop;
	const char *dir, *address;      /* borrowed: until done */
	const struct join_token *token; /* or NULL; borrowed, as @again is */
	const struct identity *again;
	/* With @again: servers must verify to it besides (rpc_channel_set_trust); or NULL */
	struct pki_trust *trust;
	/* or NULL */
	int (*take)(void *arg, const void *cert_pem, size_t len, struct ros2_err *err);
	void (*done)(void *arg,
	             const struct ros2_err *err); /* NULL: enrolled, the files are there or taken */
	void *arg;
};
int enrol_start(const struct enrol_opts *o, struct enrol **ret, struct ros2_err *err);
void enrol_free(struct enrol *e); /* not from inside done; NULL is fine */

/* What the controller gave: checked against the key and the bundle, then written; identity.json
 * last, so that an enrolment is whole or not there. In the place of another agent's it is that
 * agent's no more, or still to be made with a token (identity_must_enrol). */
struct identity_files {
	const char *name, *trust_domain;
	struct ros2_uid agent_uid;
	const void *cert_pem, *infra_pem, *tenant_pem, *snapshot_key;
	size_t cert_len, infra_len, tenant_len, snapshot_key_len;
};
int identity_store(const char *dir, const struct identity_files *f, struct ros2_err *err);
/* A renewed certificate for the same key. */
int identity_store_certificate(const char *dir, const char *name, const char *trust_domain,
                               const void *cert_pem, size_t len, struct ros2_err *err);
/* Replaces a bundle when it differs: 1; 0: it is the same, durably, or empty. CORRUPT: not a
 * bundle. */
int identity_store_bundle(const char *dir, const char *file, const void *pem, size_t len,
                          struct ros2_err *err);
#endif
