/* SPDX-License-Identifier: Apache-2.0 */
/* What pki.c, pki_issue.c and pki_trust.c share. OpenSSL types must not leave these files. */
#ifndef ROS2_COMMON_PKI_PRIV_H
#define ROS2_COMMON_PKI_PRIV_H

#include "common/pki.h"
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

static inline void pki_x509_cleanup(X509 **p)
{
	X509_free(*p);
}
static inline void pki_req_cleanup(X509_REQ **p)
{
	X509_REQ_free(*p);
}
static inline void pki_pkey_cleanup(EVP_PKEY **p)
{
	EVP_PKEY_free(*p);
}
static inline void pki_bio_cleanup(BIO **p)
{
	BIO_free(*p);
}
static inline void pki_names_cleanup(GENERAL_NAMES **p)
{
	GENERAL_NAMES_free(*p);
}
static inline void pki_certs_cleanup(STACK_OF(X509) **p)
{
	sk_X509_pop_free(*p, X509_free);
}
/* Whether what OpenSSL just failed to do lacked memory, so that nothing is known of its input.
 * Empties the error queue. */
bool pki_no_memory(void);
/* -ENOMEM, or -EIO with the words of the last OpenSSL error; empties the error queue. */
int pki_ssl_fail(struct ros2_err *err, const char *what);
/* The first certificate of a PEM file, or the unencrypted private key in one. */
int pki_load_cert(const char *path, X509 **ret, struct ros2_err *err);
int pki_load_key(const char *path, EVP_PKEY **ret, struct ros2_err *err);
/* A request whose key is of our kind and whose sender holds that key. */
int pki_parse_csr(const char *pem, size_t len, X509_REQ **ret, struct ros2_err *err);
/* Every certificate of a text, at least one. Blocks of other kinds are passed over, broken ones
 * refused. */
int pki_parse_certs(const char *pem, size_t len, STACK_OF(X509) **ret, struct ros2_err *err);
int pki_hash_cert(X509 *cert, uint8_t out[32], struct ros2_err *err);
int pki_hash_spki(X509_PUBKEY *key, uint8_t out[32], struct ros2_err *err);
#endif
