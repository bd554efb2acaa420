/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes keys, requests, authorities and leaf certificates. Nothing of a request but its public key
 * reaches a certificate. Extensions are built from typed values, never from configuration strings,
 * so no name can smuggle in another.
 */
#include "common/pki_priv.h"
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LIFETIME_MAX_S  (100ull * 366 * 24 * 3600)
#define COMMON_NAME_MAX 64 /* ub-common-name, RFC 5280 A.1 */

static int add_ext(X509 *cert, int nid, void *value, bool critical)
{
	return X509_add1_ext_i2d(cert, nid, value, critical, X509V3_ADD_DEFAULT) == 1;
}

static int add_basic_constraints(X509 *cert, bool ca, long pathlen)
{
	BASIC_CONSTRAINTS *bc = BASIC_CONSTRAINTS_new();
	int ok = bc != NULL;

	if (ok && ca) {
		bc->ca = 0xff;
		bc->pathlen = ASN1_INTEGER_new();
		ok = bc->pathlen && ASN1_INTEGER_set(bc->pathlen, pathlen);
	}
	ok = ok && add_ext(cert, NID_basic_constraints, bc, true);
	BASIC_CONSTRAINTS_free(bc);
	return ok;
}

/* RFC 5280 4.2.1.3: bit 0 digitalSignature, 5 keyCertSign, 6 cRLSign. */
static int add_key_usage(X509 *cert, bool ca)
{
	ASN1_BIT_STRING *bits = ASN1_BIT_STRING_new();
	int ok = bits != NULL;

	if (ok && ca)
		ok = ASN1_BIT_STRING_set_bit(bits, 5, 1) && ASN1_BIT_STRING_set_bit(bits, 6, 1);
	else if (ok)
		ok = ASN1_BIT_STRING_set_bit(bits, 0, 1);
	ok = ok && add_ext(cert, NID_key_usage, bits, true);
	ASN1_BIT_STRING_free(bits);
	return ok;
}

static int add_ext_key_usage(X509 *cert)
{
	EXTENDED_KEY_USAGE *eku = sk_ASN1_OBJECT_new_null();
	int ok = eku && sk_ASN1_OBJECT_push(eku, OBJ_nid2obj(NID_client_auth)) &&
	         sk_ASN1_OBJECT_push(eku, OBJ_nid2obj(NID_server_auth)) &&
	         add_ext(cert, NID_ext_key_usage, eku, false);

	sk_ASN1_OBJECT_free(eku); /* the objects are static */
	return ok;
}

/* RFC 5280 4.2.1.2 method 1, or 160 bits of it: SHA-256 of the key, cut (RFC 7093 method 1). */
static int add_key_ids(X509 *cert, X509 *issuer)
{
	uint8_t hash[32];
	ASN1_OCTET_STRING *id = ASN1_OCTET_STRING_new();
	AUTHORITY_KEYID *aki = AUTHORITY_KEYID_new();
	const ASN1_OCTET_STRING *issuer_id;
	int ok = id && aki && pki_hash_spki(X509_get_X509_PUBKEY(cert), hash, NULL) == 0 &&
	         ASN1_OCTET_STRING_set(id, hash, 20) &&
	         add_ext(cert, NID_subject_key_identifier, id, false);

	issuer_id = ok && issuer ? X509_get0_subject_key_id(issuer) : NULL;
	if (issuer_id) {
		aki->keyid = ASN1_OCTET_STRING_dup(issuer_id);
		ok = aki->keyid && add_ext(cert, NID_authority_key_identifier, aki, false);
	}
	ASN1_OCTET_STRING_free(id);
	AUTHORITY_KEYID_free(aki);
	return ok;
}

/* Takes @value in every case. */
static int push_name(GENERAL_NAMES *names, int type, ASN1_STRING *value)
{
	GENERAL_NAME *name = value ? GENERAL_NAME_new() : NULL;

	if (!name) {
		ASN1_STRING_free(value);
		return 0;
	}
	GENERAL_NAME_set0_value(name, type, value);
	if (!sk_GENERAL_NAME_push(names, name)) {
		GENERAL_NAME_free(name);
		return 0;
	}
	return 1;
}

static int push_text(GENERAL_NAMES *names, int type, const char *text, size_t n)
{
	ASN1_STRING *s = ASN1_STRING_type_new(V_ASN1_IA5STRING);

	if (s && !ASN1_STRING_set(s, text, (int)n)) {
		ASN1_STRING_free(s);
		s = NULL;
	}
	return push_name(names, type, s);
}

/* RFC 1123 host name: labels of letters, digits and inner dashes. */
static bool host_valid(const char *s)
{
	char label[ROS2_NAME_MAX + 1];

	for (;;) {
		size_t n = strcspn(s, ".");

		if (n >= sizeof(label))
			return false;
		memcpy(label, s, n);
		label[n] = '\0';
		if (!ros2_name_valid(label))
			return false;
		if (!s[n])
			return true;
		s += n + 1;
	}
}

/* One of a comma-separated list: an IP address if it reads as one, else a host name. */
static int push_host(GENERAL_NAMES *names, const char *text, size_t n, struct ros2_err *err)
{
	char host[254];
	ASN1_OCTET_STRING *ip;
	int ok;

	if (n == 0 || n >= sizeof(host))
		return ros2_err_set(err, -EINVAL, "a host name of %zu bytes, expected 1 to 253", n);
	memcpy(host, text, n);
	host[n] = '\0';
	ip = a2i_IPADDRESS(host);
	ERR_clear_error();
	if (!ip && !host_valid(host))
		return ros2_err_set(err, -EINVAL,
		                    "\"%.80s\" is neither an IP address nor a host name", host);
	ok = ip ? push_name(names, GEN_IPADD, ip) : push_text(names, GEN_DNS, host, n);
	return ok ? 0 : pki_ssl_fail(err, "add an alternative name");
}

/* The subject alternative names: @uri, and the hosts of @dns (may be NULL). */
static int make_names(const char *uri, const char *dns, GENERAL_NAMES **ret, struct ros2_err *err)
{
	CLEANUP(pki_names_cleanup) GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();

	if (!names || !push_text(names, GEN_URI, uri, strlen(uri)))
		return pki_ssl_fail(err, "add an alternative name");
	while (dns && *dns) {
		size_t n = strcspn(dns, ",");
		int r = push_host(names, dns, n, err);

		if (r < 0)
			return r;
		dns += n + (dns[n] == ',');
	}
	*ret = TAKE_PTR(names);
	return 0;
}

static int add_names(X509 *cert, const char *uri, const char *dns, struct ros2_err *err)
{
	CLEANUP(pki_names_cleanup) GENERAL_NAMES *names = NULL;
	int r = make_names(uri, dns, &names, err);

	if (r < 0)
		return r;
	return add_ext(cert, NID_subject_alt_name, names, false) ? 0
	                                                         : pki_ssl_fail(err, "add names");
}

/* 126 random bits and a set one: positive, never short, and at most 20 octets (RFC 5280 4.1.2.2).
 */
static int set_serial(X509 *cert)
{
	uint8_t bytes[16];
	BIGNUM *n;
	int ok;

	crypto_random(bytes, sizeof(bytes));
	bytes[0] = (uint8_t)((bytes[0] & 0x7f) | 0x40);
	n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
	BN_free(n);
	return ok;
}

/* From a minute ago to @lifetime_s from now, but not past the end of @issuer (NULL: self-signed).
 */
static int set_times(X509 *cert, uint64_t lifetime_s, const X509 *issuer, struct ros2_err *err)
{
	time_t now = time(NULL), end;
	int ok;

	if (lifetime_s == 0 || lifetime_s > LIFETIME_MAX_S)
		return ros2_err_set(err, -EINVAL, "a lifetime of %llu s, expected 1 s to 100 years",
		                    (unsigned long long)lifetime_s);
	end = now + (time_t)lifetime_s;
	if (issuer && X509_cmp_time(X509_get0_notAfter(issuer), &now) <= 0)
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "the issuing certificate has expired");
	ok = ASN1_TIME_set(X509_getm_notBefore(cert), now - PKI_BACKDATE_S) != NULL;
	if (issuer && X509_cmp_time(X509_get0_notAfter(issuer), &end) < 0)
		ok = ok && X509_set1_notAfter(cert, X509_get0_notAfter(issuer));
	else
		ok = ok && ASN1_TIME_set(X509_getm_notAfter(cert), end);
	return ok ? 0 : pki_ssl_fail(err, "set the times of a certificate");
}

static int add_name_entry(X509_NAME *name, const char *field, const char *text)
{
	size_t n = strnlen(text, COMMON_NAME_MAX);

	return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, (const uint8_t *)text, (int)n,
	                                  -1, 0);
}

struct issuer {
	X509 *cert;    /* owned; NULL for self-signed */
	EVP_PKEY *key; /* owned */
};

static void issuer_cleanup(struct issuer *i)
{
	X509_free(i->cert);
	EVP_PKEY_free(i->key);
}

static int load_issuer(const char *cert_path, const char *key_path, struct issuer *ret,
                       struct ros2_err *err)
{
	int r = pki_load_cert(cert_path, &ret->cert, err);

	if (r == 0)
		r = pki_load_key(key_path, &ret->key, err);
	if (r < 0)
		return r;
	if (X509_check_ca(ret->cert) != 1)
		return ros2_err_set(err, -EINVAL, "%s is not a certificate authority", cert_path);
	if (X509_check_private_key(ret->cert, ret->key) != 1) {
		ERR_clear_error();
		return ros2_err_set(err, -EINVAL, "the key %s does not belong to %s", key_path,
		                    cert_path);
	}
	return 0;
}

struct body {
	const char *common_name, *organization, *uri, *dns;
	EVP_PKEY *public_key;
	bool ca;
	long pathlen;
	uint64_t lifetime_s;
};

/* A signed certificate. @issuer->cert NULL: by its own key, under its own name. */
static int build_cert(const struct body *b, const struct issuer *issuer, X509 **ret,
                      struct ros2_err *err)
{
	CLEANUP(pki_x509_cleanup) X509 *cert = X509_new();
	X509_NAME *subject;
	int r;

	if (!cert || !X509_set_version(cert, X509_VERSION_3) || !set_serial(cert) ||
	    !X509_set_pubkey(cert, b->public_key))
		return pki_ssl_fail(err, "make a certificate");
	r = set_times(cert, b->lifetime_s, issuer->cert, err);
	if (r < 0)
		return r;
	subject = X509_get_subject_name(cert);
	if (!add_name_entry(subject, "O", b->organization) ||
	    !add_name_entry(subject, "CN", b->common_name) ||
	    !X509_set_issuer_name(cert,
	                          issuer->cert ? X509_get_subject_name(issuer->cert) : subject))
		return pki_ssl_fail(err, "name a certificate");
	if (!add_basic_constraints(cert, b->ca, b->pathlen) || !add_key_usage(cert, b->ca) ||
	    (!b->ca && !add_ext_key_usage(cert)) || !add_key_ids(cert, issuer->cert))
		return pki_ssl_fail(err, "extend a certificate");
	r = add_names(cert, b->uri, b->dns, err);
	if (r < 0)
		return r;
	if (!X509_sign(cert, issuer->key, EVP_sha256()))
		return pki_ssl_fail(err, "sign a certificate");
	*ret = TAKE_PTR(cert);
	return 0;
}

/* malloc'd text of @first, then of @second unless NULL. */
static int certs_to_pem(X509 *first, X509 *second, char **ret, struct ros2_err *err)
{
	CLEANUP(pki_bio_cleanup) BIO *bio = BIO_new(BIO_s_mem());
	char *data;
	long len;

	if (!bio || !PEM_write_bio_X509(bio, first) || (second && !PEM_write_bio_X509(bio, second)))
		return pki_ssl_fail(err, "write certificates as PEM");
	len = BIO_get_mem_data(bio, &data);
	*ret = strndup(data, (size_t)len);
	return *ret ? 0 : ros2_err_set(err, -ENOMEM, "no memory for certificates");
}

/* The public face */

int pki_key_create(const char *path, struct ros2_err *err)
{
	CLEANUP(pki_pkey_cleanup) EVP_PKEY *key = EVP_EC_gen("P-256");
	CLEANUP(pki_bio_cleanup) BIO *bio = BIO_new(BIO_s_secmem());
	char *pem;
	long len;
	int r;

	if (!key || !bio || PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
		return pki_ssl_fail(err, "make an ECDSA P-256 key");
	len = BIO_get_mem_data(bio, &pem);
	r = fsx_create_atomic(path, pem, (size_t)len, 0600, err);
	crypto_wipe(pem, (size_t)len);
	return r;
}

/* "spiffe://DOMAIN" when DOMAIN is one. */
static int domain_uri(const char *domain, char out[ROS2_SPIFFE_MAX + 1], struct ros2_err *err)
{
	char probe[ROS2_SPIFFE_MAX + 3];
	size_t n;

	if (snprintf(probe, sizeof(probe), "spiffe://%s/x", domain) >= (int)sizeof(probe) ||
	    !ros2_spiffe_valid(probe, &n, NULL) || n != strlen(domain))
		return ros2_err_set(err, -EINVAL, "\"%.80s\" is not a SPIFFE trust domain", domain);
	snprintf(out, ROS2_SPIFFE_MAX + 1, "spiffe://%.240s", domain);
	return 0;
}

int pki_ca_create(const struct pki_ca_opts *o, struct ros2_err *err)
{
	CLEANUP(issuer_cleanup) struct issuer issuer = {0};
	CLEANUP(pki_pkey_cleanup) EVP_PKEY *key = NULL;
	CLEANUP(pki_x509_cleanup) X509 *cert = NULL;
	AUTO_FREE char *pem = NULL;
	char uri[ROS2_SPIFFE_MAX + 1];
	struct body body = {
		.common_name = o->common_name,
		.organization = o->trust_domain,
		.uri = uri,
		.ca = true,
		.pathlen = o->issuer_cert_path ? 0 : 1,
		.lifetime_s = o->lifetime_s,
	};
	int r = domain_uri(o->trust_domain, uri, err);

	if (r == 0)
		r = pki_load_key(o->key_path, &key, err);
	if (r == 0 && o->issuer_cert_path)
		r = load_issuer(o->issuer_cert_path, o->issuer_key_path, &issuer, err);
	if (r < 0)
		return r;
	body.public_key = key;
	if (!issuer.key) {
		EVP_PKEY_up_ref(key);
		issuer.key = key;
	}
	r = build_cert(&body, &issuer, &cert, err);
	if (r == 0)
		r = certs_to_pem(cert, NULL, &pem, err);
	if (r == 0)
		r = fsx_write_atomic(o->cert_path, pem, strlen(pem), 0644, err);
	return r;
}

static int add_csr_names(X509_REQ *req, const char *uri, struct ros2_err *err)
{
	CLEANUP(pki_names_cleanup) GENERAL_NAMES *names = NULL;
	STACK_OF(X509_EXTENSION) *exts = NULL;
	int r = make_names(uri, NULL, &names, err);
	int ok;

	if (r < 0)
		return r;
	ok = X509V3_add1_i2d(&exts, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1 &&
	     X509_REQ_add_extensions(req, exts) == 1;
	sk_X509_EXTENSION_pop_free(exts, X509_EXTENSION_free);
	return ok ? 0 : pki_ssl_fail(err, "add names to a certificate request");
}

int pki_csr_create(const char *key_path, const char *uri, char **ret_pem, struct ros2_err *err)
{
	CLEANUP(pki_req_cleanup) X509_REQ *req = X509_REQ_new();
	CLEANUP(pki_bio_cleanup) BIO *bio = BIO_new(BIO_s_mem());
	CLEANUP(pki_pkey_cleanup) EVP_PKEY *key = NULL;
	char *data;
	long len;
	int r = pki_load_key(key_path, &key, err);

	if (r < 0)
		return r;
	if (!req || !bio || !X509_REQ_set_version(req, X509_REQ_VERSION_1) ||
	    !X509_REQ_set_pubkey(req, key))
		return pki_ssl_fail(err, "make a certificate request");
	if (uri) {
		r = add_csr_names(req, uri, err);
		if (r < 0)
			return r;
	}
	if (!X509_REQ_sign(req, key, EVP_sha256()) || !PEM_write_bio_X509_REQ(bio, req))
		return pki_ssl_fail(err, "sign a certificate request");
	len = BIO_get_mem_data(bio, &data);
	*ret_pem = strndup(data, (size_t)len);
	return *ret_pem ? 0 : ros2_err_set(err, -ENOMEM, "no memory for a certificate request");
}

/* The organization is the trust domain; the common name is for people only, nothing decides by it.
 */
static int issue(const struct pki_issue_opts *o, const struct issuer *issuer, X509_REQ *req,
                 char **ret_pem, struct ros2_err *err)
{
	CLEANUP(pki_x509_cleanup) X509 *cert = NULL;
	char domain[ROS2_SPIFFE_MAX + 1];
	size_t domain_len;
	const char *path;
	struct body body = {
		.organization = domain,
		.uri = o->uri,
		.dns = o->dns,
		.public_key = X509_REQ_get0_pubkey(req),
		.lifetime_s = o->lifetime_s,
	};
	int r;

	if (!ros2_spiffe_valid(o->uri, &domain_len, &path))
		return ros2_err_set(err, -EINVAL, "\"%.120s\" is not a SPIFFE ID", o->uri);
	snprintf(domain, sizeof(domain), "%.*s", (int)domain_len, path - domain_len);
	body.common_name = path + 1;
	r = build_cert(&body, issuer, &cert, err);
	if (r < 0)
		return r;
	return certs_to_pem(cert, X509_self_signed(issuer->cert, 0) == 1 ? NULL : issuer->cert,
	                    ret_pem, err);
}

int pki_issue(const struct pki_issue_opts *o, char **ret_pem, struct ros2_err *err)
{
	CLEANUP(issuer_cleanup) struct issuer issuer = {0};
	CLEANUP(pki_req_cleanup) X509_REQ *req = NULL;
	int r = pki_parse_csr(o->csr_pem, o->csr_len, &req, err);

	if (r == 0)
		r = load_issuer(o->issuer_cert_path, o->issuer_key_path, &issuer, err);
	if (r < 0)
		return r;
	return issue(o, &issuer, req, ret_pem, err);
}
