/* SPDX-License-Identifier: Apache-2.0 */
/*
 * X.509 for the trust domain (SPIFFE X.509-SVID): certificate authorities, requests, issuing and
 * verifying. Keys are ECDSA P-256 in PKCS#8 PEM; private keys are made where they are used and
 * never travel. All functions: any thread; no global state.
 */
#ifndef ROS2_COMMON_PKI_H
#define ROS2_COMMON_PKI_H

#include "common/err.h"
#include "common/ids.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PKI_PEM_MAX    65536 /* longest PEM text accepted from a file or a peer */
#define PKI_BACKDATE_S 60    /* of what is issued: peers' clocks may be this much behind ours */

/* Makes a key at @path (0600), atomically, never over an existing file (-EEXIST). */
int pki_key_create(const char *path, struct ros2_err *err);

/* A self-signed CA (when @issuer_* are NULL) or an intermediate with pathlen 0. Writes @cert_path.
 */
struct pki_ca_opts {
	const char *common_name;
	const char *trust_domain; /* URI SAN spiffe://TRUST_DOMAIN (X509-SVID 2, signing
	                             certificates) */
	const char *key_path;     /* exists */
	const char *cert_path;    /* written, 0644 */
	const char *issuer_cert_path, *issuer_key_path; /* NULL: self-signed */
	uint64_t lifetime_s;
};
int pki_ca_create(const struct pki_ca_opts *o, struct ros2_err *err);

/* PEM certificate request for the key at @key_path, with a URI SAN hint (may be NULL). *ret_pem
 * malloc'd. */
int pki_csr_create(const char *key_path, const char *uri, char **ret_pem, struct ros2_err *err);

/* Issues a leaf for the public key of @csr_pem (its own signature is checked; its subject, SANs and
 * extensions are ignored). The URI SAN is @uri and nothing else; EKU client and server auth; DNS/IP
 * SANs from @dns (may be NULL, comma-separated). *ret_pem: leaf followed by @issuer_cert when that
 * is an intermediate. malloc'd. */
struct pki_issue_opts {
	const char *csr_pem;
	size_t csr_len;
	const char *uri;
	const char *dns;
	const char *issuer_cert_path, *issuer_key_path;
	uint64_t lifetime_s;
};
int pki_issue(const struct pki_issue_opts *o, char **ret_pem, struct ros2_err *err);

/* What a certificate says. */
struct pki_cert_info {
	char uri[ROS2_SPIFFE_MAX +
	         1]; /* the single URI SAN; "" if none; more than one is an error */
	int64_t not_before_unix_s, not_after_unix_s;
	uint8_t spki_sha256[32]; /* SHA-256 of the public key */
	uint8_t cert_sha256[32];
	char serial[65];
};
/* Of the first certificate in @pem. -EBADMSG if it does not parse. */
int pki_cert_info(const char *pem, size_t len, struct pki_cert_info *ret, struct ros2_err *err);
/* SHA-256 of the public key that a PEM certificate request names: nobody has proved to have it. */
int pki_csr_claimed_spki(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err);
/* The same of a request whose signature is good. */
int pki_csr_spki(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err);
/* Chain of @pem (leaf first) to a certificate of @bundle_pem, which holds authorities only, at the
 * present time. The leaf must not be an authority and must be usable by a TLS client.
 * ROS2_UNAUTHENTICATED; the words say what failed: expired, not yet valid, unknown issuer. -EBADMSG
 * when a text does not parse. Says nothing about the name: see pki_cert_info. */
int pki_verify(const char *pem, size_t len, const char *bundle_pem, size_t bundle_len,
               struct ros2_err *err);
/* A bundle, parsed once; counted, immutable. -EBADMSG: it is none, or holds something that TLS,
 * which reads the same text for itself, could read otherwise: a block of another kind, a zero byte,
 * a certificate that is no authority. -ENOMEM (BUSY): nothing is known of it, try again. */
struct pki_trust;
int pki_trust_new(const char *bundle_pem, size_t len, struct pki_trust **ret, struct ros2_err *err);
struct pki_trust *pki_trust_ref(struct pki_trust *t);
void pki_trust_unref(struct pki_trust *t); /* NULL is accepted */
/* pki_verify against it. -ENOMEM: no word about the chain, try again. */
int pki_trust_verify(const struct pki_trust *t, const char *pem, size_t len, struct ros2_err *err);
/* What @to has and @from has not, and the reverse: numbers, and the first few as SHA-256 of the
 * certificate in hex, with commas. Either may be NULL: no authorities. Order does not count. */
#define PKI_CHANGES_NAMED 4
#define PKI_CHANGES_TEXT  (PKI_CHANGES_NAMED * 65 + 32)
struct pki_trust_changes {
	size_t authorities, added, removed; /* of @to; new in it; no longer in it */
	char added_text[PKI_CHANGES_TEXT], removed_text[PKI_CHANGES_TEXT];
};
void pki_trust_changes(const struct pki_trust *from, const struct pki_trust *to,
                       struct pki_trust_changes *ret);
/* The text it was made of; it lives as long as @t. "" of one that names nobody. */
const char *pki_trust_text(const struct pki_trust *t, size_t *ret_len);
/* The authorities that both have, maybe none: what holds of @to while what is new in it may not.
 * A reference to one of the two where that is the same. -ENOMEM, and only with one that has both
 * lost and won authorities. */
int pki_trust_common(struct pki_trust *from, struct pki_trust *to, struct pki_trust **ret,
                     struct ros2_err *err);
/* 0 when the private key belongs to the first certificate. */
int pki_key_matches(const char *cert_pem, size_t cert_len, const char *key_pem, size_t key_len,
                    struct ros2_err *err);
/* SHA-256 over the DER of every certificate of a bundle, in order: the CA hash a join token
 * carries. */
int pki_bundle_hash(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err);
#endif
