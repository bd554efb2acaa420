/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads certificates and requests. Everything a peer sends (requests, chains) is bounded before it
 * is parsed, and its key type is checked before its signature is. Verifying chains is in
 * pki_trust.c, making certificates in pki_issue.c.
 */
#include "common/pki_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>
#include <time.h>

#define CERTS_MAX 64

static void wipe_pem(void *pem, size_t len)
{
	crypto_wipe(pem, len);
	free(pem);
}

/* OpenSSL would ask on the terminal; a daemon must not. */
static int no_password(char *buf, int size, int rwflag, void *arg)
{
	return -1;
}

bool pki_no_memory(void)
{
	bool is = false;

	for (unsigned long e = ERR_get_error(); e; e = ERR_get_error())
		is |= ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE;
	return is;
}

int pki_ssl_fail(struct ros2_err *err, const char *what)
{
	char words[160];

	ERR_error_string_n(ERR_peek_last_error(), words, sizeof(words));
	if (pki_no_memory())
		return ros2_err_set(err, -ENOMEM, "%s: no memory", what);
	return ros2_err_set(err, -EIO, "%s: %s", what, words);
}

static int bad_pem(struct ros2_err *err, const char *what)
{
	if (pki_no_memory())
		return ros2_err_set(err, -ENOMEM, "no memory for %s", what);
	return ros2_err_set(err, -EBADMSG, "expected %s in PEM, found something else", what);
}

static BIO *pem_bio(const char *pem, size_t len)
{
	return len <= PKI_PEM_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
}

int pki_parse_certs(const char *pem, size_t len, STACK_OF(X509) **ret, struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *certs = sk_X509_new_null();
	CLEANUP(pki_bio_cleanup) BIO *bio = pem_bio(pem, len);
	unsigned long last;
	X509 *cert;

	if (len > PKI_PEM_MAX)
		return ros2_err_set(err, -EBADMSG, "certificates of %zu bytes, at most %d accepted",
		                    len, PKI_PEM_MAX);
	if (!certs || !bio)
		return ros2_err_set(err, -ENOMEM, "no memory for certificates");
	ERR_clear_error();
	while ((cert = PEM_read_bio_X509(bio, NULL, no_password, NULL))) {
		if (sk_X509_num(certs) < CERTS_MAX && sk_X509_push(certs, cert))
			continue;
		X509_free(cert);
		if (sk_X509_num(certs) < CERTS_MAX)
			return pki_ssl_fail(err, "certificates");
		return ros2_err_set(err, -EBADMSG, "more than %d certificates", CERTS_MAX);
	}
	last = ERR_peek_last_error();
	if (sk_X509_num(certs) == 0 || ERR_GET_LIB(last) != ERR_LIB_PEM ||
	    ERR_GET_REASON(last) != PEM_R_NO_START_LINE)
		return bad_pem(err, "a certificate");
	ERR_clear_error();
	*ret = TAKE_PTR(certs);
	return 0;
}

static int parse_first_cert(const char *pem, size_t len, X509 **ret, struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *certs = NULL;
	int r = pki_parse_certs(pem, len, &certs, err);

	if (r < 0)
		return r;
	*ret = sk_X509_shift(certs);
	return 0;
}

static int parse_key(const char *pem, size_t len, EVP_PKEY **ret, struct ros2_err *err)
{
	CLEANUP(pki_bio_cleanup) BIO *bio = pem_bio(pem, len);

	*ret = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
	return *ret ? 0 : bad_pem(err, "an unencrypted private key");
}

int pki_load_cert(const char *path, X509 **ret, struct ros2_err *err)
{
	AUTO_FREE void *pem = NULL;
	size_t len;
	int r = fsx_read_file(path, PKI_PEM_MAX, &pem, &len, err);

	if (r < 0)
		return r;
	r = parse_first_cert(pem, len, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s", path);
	return r;
}

int pki_load_key(const char *path, EVP_PKEY **ret, struct ros2_err *err)
{
	void *pem;
	size_t len;
	int r = fsx_read_file(path, PKI_PEM_MAX, &pem, &len, err);

	if (r < 0)
		return r;
	r = parse_key(pem, len, ret, err);
	if (r < 0)
		ros2_err_prefix(err, "%s", path);
	wipe_pem(pem, len);
	return r;
}

/* The named curve. OpenSSL also recognises it when a peer spells out its parameters; that is
 * refused. */
static bool is_p256(const EVP_PKEY *key)
{
	char group[32];
	size_t len;
	int spelled_out = 1;

	return EVP_PKEY_is_a(key, "EC") &&
	       EVP_PKEY_get_group_name(key, group, sizeof(group), &len) == 1 &&
	       !strcmp(group, SN_X9_62_prime256v1) &&
	       EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS,
	                              &spelled_out) == 1 &&
	       !spelled_out;
}

/* A request whose key is of our kind. */
static int parse_unproved(const char *pem, size_t len, X509_REQ **ret, struct ros2_err *err)
{
	CLEANUP(pki_bio_cleanup) BIO *bio = pem_bio(pem, len);
	CLEANUP(pki_req_cleanup)
	X509_REQ *req = bio ? PEM_read_bio_X509_REQ(bio, NULL, no_password, NULL) : NULL;
	EVP_PKEY *key;

	if (!req)
		return bad_pem(err, "a certificate request");
	key = X509_REQ_get0_pubkey(req);
	if (!key || !is_p256(key)) {
		ERR_clear_error();
		return ros2_err_set(err, -EBADMSG,
		                    "certificate request: expected an ECDSA P-256 key, found %s",
		                    key ? EVP_PKEY_get0_type_name(key) : "none that parses");
	}
	*ret = TAKE_PTR(req);
	return 0;
}

/* And whose sender holds that key. */
int pki_parse_csr(const char *pem, size_t len, X509_REQ **ret, struct ros2_err *err)
{
	CLEANUP(pki_req_cleanup) X509_REQ *req = NULL;
	int r = parse_unproved(pem, len, &req, err);

	if (r < 0)
		return r;
	if (X509_REQ_verify(req, X509_REQ_get0_pubkey(req)) != 1) {
		ERR_clear_error();
		return ros2_err_set(err, -EBADMSG,
		                    "certificate request: its signature is not by its own key");
	}
	*ret = TAKE_PTR(req);
	return 0;
}

static void hash_and_free_der(uint8_t *der, int len, uint8_t out[32])
{
	crypto_sha256(der, (size_t)len, out);
	OPENSSL_free(der);
}

int pki_hash_spki(X509_PUBKEY *key, uint8_t out[32], struct ros2_err *err)
{
	uint8_t *der = NULL;
	int len = i2d_X509_PUBKEY(key, &der);

	if (len <= 0)
		return pki_ssl_fail(err, "encode a public key");
	hash_and_free_der(der, len, out);
	return 0;
}

int pki_hash_cert(X509 *cert, uint8_t out[32], struct ros2_err *err)
{
	uint8_t *der = NULL;
	int len = i2d_X509(cert, &der);

	if (len <= 0)
		return pki_ssl_fail(err, "encode a certificate");
	hash_and_free_der(der, len, out);
	return 0;
}
static int unix_time(const ASN1_TIME *t, int64_t *ret)
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(t, &tm))
		return 0;
	*ret = timegm(&tm);
	return 1;
}

static int copy_serial(const X509 *cert, char out[65])
{
	const ASN1_INTEGER *serial = X509_get0_serialNumber(cert);
	int n = ASN1_STRING_length(serial);

	if (n <= 0 || n > 32)
		return 0;
	crypto_hex(ASN1_STRING_get0_data(serial), (size_t)n, out);
	return 1;
}

/* The single URI name. Bytes that could be read differently by another reader (NUL, controls,
 * non-ASCII) are refused. */
static int copy_uri(const X509 *cert, char out[ROS2_SPIFFE_MAX + 1], struct ros2_err *err)
{
	CLEANUP(pki_names_cleanup) GENERAL_NAMES *names = NULL;
	int critical, found = 0;

	out[0] = '\0';
	names = X509_get_ext_d2i(cert, NID_subject_alt_name, &critical, NULL);
	ERR_clear_error();
	if (!names && critical != -1)
		return ros2_err_set(err, -EBADMSG,
		                    "the alternative names do not parse, or come twice");
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		const ASN1_STRING *s = name->d.ia5;
		int n;

		if (name->type != GEN_URI)
			continue;
		n = ASN1_STRING_length(s);
		if (++found > 1)
			return ros2_err_set(err, -EBADMSG, "more than one URI name");
		if (n <= 0 || n > ROS2_SPIFFE_MAX)
			return ros2_err_set(err, -EBADMSG, "a URI name of %d bytes", n);
		memcpy(out, ASN1_STRING_get0_data(s), (size_t)n);
		out[n] = '\0';
		for (int k = 0; k < n; k++)
			if (out[k] <= 0x20 || out[k] >= 0x7f)
				return ros2_err_set(err, -EBADMSG, "a URI name with byte 0x%02x",
				                    (unsigned char)out[k]);
	}
	return 0;
}

int pki_cert_info(const char *pem, size_t len, struct pki_cert_info *ret, struct ros2_err *err)
{
	CLEANUP(pki_x509_cleanup) X509 *cert = NULL;
	struct pki_cert_info info = {0};
	int r = parse_first_cert(pem, len, &cert, err);

	if (r == 0)
		r = copy_uri(cert, info.uri, err);
	if (r == 0)
		r = pki_hash_spki(X509_get_X509_PUBKEY(cert), info.spki_sha256, err);
	if (r == 0)
		r = pki_hash_cert(cert, info.cert_sha256, err);
	if (r < 0)
		return r;
	if (!unix_time(X509_get0_notBefore(cert), &info.not_before_unix_s) ||
	    !unix_time(X509_get0_notAfter(cert), &info.not_after_unix_s) ||
	    !copy_serial(cert, info.serial))
		return ros2_err_set(err, -EBADMSG,
		                    "a certificate with a broken time or serial number");
	*ret = info;
	return 0;
}

int pki_csr_claimed_spki(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err)
{
	CLEANUP(pki_req_cleanup) X509_REQ *req = NULL;
	int r = parse_unproved(pem, len, &req, err);

	return r < 0 ? r : pki_hash_spki(X509_REQ_get_X509_PUBKEY(req), out, err);
}

int pki_csr_spki(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err)
{
	CLEANUP(pki_req_cleanup) X509_REQ *req = NULL;
	int r = pki_parse_csr(pem, len, &req, err);

	return r < 0 ? r : pki_hash_spki(X509_REQ_get_X509_PUBKEY(req), out, err);
}

int pki_key_matches(const char *cert_pem, size_t cert_len, const char *key_pem, size_t key_len,
                    struct ros2_err *err)
{
	CLEANUP(pki_x509_cleanup) X509 *cert = NULL;
	CLEANUP(pki_pkey_cleanup) EVP_PKEY *key = NULL;
	int r = parse_first_cert(cert_pem, cert_len, &cert, err);

	if (r == 0)
		r = parse_key(key_pem, key_len, &key, err);
	if (r < 0)
		return r;
	if (X509_check_private_key(cert, key) == 1)
		return 0;
	ERR_clear_error();
	return ros2_err_set(err, -EINVAL, "the private key does not belong to the certificate");
}

int pki_bundle_hash(const char *pem, size_t len, uint8_t out[32], struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *certs = NULL;
	struct crypto_span ders[CERTS_MAX];
	int n, r = pki_parse_certs(pem, len, &certs, err);

	if (r < 0)
		return r;
	for (n = 0; n < sk_X509_num(certs); n++) {
		uint8_t *der = NULL;
		int der_len = i2d_X509(sk_X509_value(certs, n), &der);

		if (der_len <= 0) {
			r = pki_ssl_fail(err, "encode a certificate");
			break;
		}
		ders[n] = (struct crypto_span){der, (size_t)der_len};
	}
	if (r == 0)
		crypto_sha256v(ders, (size_t)n, out);
	while (n--)
		OPENSSL_free((void *)ders[n].p);
	return r;
}
