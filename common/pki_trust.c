/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom a bundle makes believable: chains are verified to its authorities. A bundle is parsed once
 * and then only read, so that thousands of peers can be judged by it, on any thread.
 */
#include "common/crypto.h"
#include "common/pki_priv.h"
#include "common/util.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct pki_trust {
	atomic_int refs;
	/* immutable */
	X509_STORE *store;          /* owned; it locks itself */
	uint8_t (*ids)[SHA256_LEN]; /* owned; in the order of the text */
	size_t n;
	char *text; /* owned; what it was made of, with a NUL behind */
	size_t len;
};

static bool key_decodes(X509 *ca)
{
	EVP_PKEY *key = NULL;
	uint8_t *der = NULL;
	int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(ca), &der);
	const uint8_t *at = der;

	if (len > 0)
		key = d2i_PUBKEY(NULL, &at, len);
	OPENSSL_free(der);
	EVP_PKEY_free(key);
	return key;
}

/* What OpenSSL had no memory to read of a certificate stays unread, and it does not say so: who was
 * signed by this authority would be refused for as long as the store lives. A key that still does
 * not decode is of a kind it does not know: it verifies nobody. */
static int check_authority(X509 *ca, int which, struct ros2_err *err)
{
	bool is = X509_check_ca(ca) == 1;

	if (is && X509_get0_pubkey(ca))
		return 0;
	if (pki_no_memory() || (is && key_decodes(ca)))
		return ros2_err_set(err, -ENOMEM, "no memory for a trust store");
	ERR_clear_error();
	return is ? 0
	          : ros2_err_set(err, -EBADMSG, "certificate %d of the bundle is not an authority",
	                         which);
}

/* Every certificate of the bundle is an anchor, also an intermediate one, but only authorities
 * belong there. */
static int make_store(STACK_OF(X509) *bundle, X509_STORE **ret, struct ros2_err *err)
{
	X509_STORE *store = X509_STORE_new();
	int ok = store && X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN) &&
	         X509_STORE_set_purpose(store, X509_PURPOSE_SSL_CLIENT);
	int r = ok ? 0 : pki_ssl_fail(err, "make a trust store");

	for (int i = 0; i < sk_X509_num(bundle) && r == 0; i++) {
		X509 *ca = sk_X509_value(bundle, i);

		r = check_authority(ca, i + 1, err);
		if (r == 0 && !X509_STORE_add_cert(store, ca))
			r = pki_ssl_fail(err, "add to a trust store");
	}
	if (r < 0)
		X509_STORE_free(store);
	else
		*ret = store;
	return r;
}

/* TLS reads the same text for itself, and would also take blocks of kinds that are passed over
 * here, or end at a zero byte. What is torn off within a line is not whole either. */
static int check_text(const char *pem, size_t len, int certs, struct ros2_err *err)
{
	static const char begin[] = "-----BEGIN";
	const char *at = pem, *end = pem + len;
	int n = 0;

	if (memchr(pem, '\0', len))
		return ros2_err_set(err, -EBADMSG, "a zero byte in the bundle");
	while ((at = memmem(at, (size_t)(end - at), begin, sizeof(begin) - 1))) {
		at += sizeof(begin) - 1;
		n++;
	}
	return n == certs
	               ? 0
	               : ros2_err_set(err, -EBADMSG,
	                              "the bundle holds %d certificates, and %d blocks", certs, n);
}

static int take_ids(struct pki_trust *t, STACK_OF(X509) *bundle, struct ros2_err *err)
{
	size_t n = (size_t)sk_X509_num(bundle);
	int r = 0;

	t->ids = calloc(n + 1, sizeof(*t->ids));
	if (!t->ids)
		return ros2_err_set(err, -ENOMEM, "no memory for a trust store");
	for (size_t i = 0; i < n && r == 0; i++)
		r = pki_hash_cert(sk_X509_value(bundle, (int)i), t->ids[i], err);
	t->n = n;
	return r;
}

/* Of certificates whose text is checked; takes @text, also when it fails. */
static int build_of(STACK_OF(X509) *bundle, char *text, size_t len, struct pki_trust **ret,
                    struct ros2_err *err)
{
	struct pki_trust *t = text ? calloc(1, sizeof(*t)) : NULL;
	int r;

	if (!t) {
		free(text);
		return ros2_err_set(err, -ENOMEM, "no memory for a trust store");
	}
	atomic_init(&t->refs, 1);
	t->text = text;
	t->len = len;
	r = take_ids(t, bundle, err);
	if (r == 0)
		r = make_store(bundle, &t->store, err);
	if (r < 0)
		pki_trust_unref(t);
	else
		*ret = t;
	return r;
}

static int build(const char *bundle_pem, size_t len, struct pki_trust **ret, struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *bundle = NULL;
	int r = pki_parse_certs(bundle_pem, len, &bundle, err);

	if (r == 0)
		r = check_text(bundle_pem, len, sk_X509_num(bundle), err);
	return r < 0 ? r : build_of(bundle, strndup(bundle_pem, len), len, ret, err);
}

/* A word against it is heard twice: OpenSSL also says so for a piece of memory that it did not get
 * once, and does not always tell. A bundle that is called broken would be given up. */
int pki_trust_new(const char *bundle_pem, size_t len, struct pki_trust **ret, struct ros2_err *err)
{
	int r = build(bundle_pem, len, ret, NULL);

	return r < 0 ? build(bundle_pem, len, ret, err) : r;
}

struct pki_trust *pki_trust_ref(struct pki_trust *t)
{
	atomic_fetch_add(&t->refs, 1);
	return t;
}

void pki_trust_unref(struct pki_trust *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	X509_STORE_free(t->store);
	free(t->text);
	free(t->ids);
	free(t);
}

/* ---- verifying ---- */

static int explain(X509_STORE_CTX *ctx, struct ros2_err *err)
{
	int code = X509_STORE_CTX_get_error(ctx), depth = X509_STORE_CTX_get_error_depth(ctx);
	const char *words;

	/* It began with "unspecified" and came to no word. */
	if (pki_no_memory() || code == X509_V_ERR_OUT_OF_MEM || code == X509_V_ERR_UNSPECIFIED ||
	    code == X509_V_OK)
		return ros2_err_set(err, -ENOMEM, "no memory to verify a certificate");
	switch (code) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		words = "expired";
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		words = "not yet valid";
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
		words = "unknown issuer";
		break;
	default:
		words = X509_verify_cert_error_string(code);
	}
	return ros2_err_named(err, ROS2_UNAUTHENTICATED, "%s: %s",
	                      depth ? "issuing certificate" : "certificate", words);
}

static int verify(STACK_OF(X509) *chain, const struct pki_trust *t, struct ros2_err *err)
{
	X509 *leaf = sk_X509_value(chain, 0);
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	int r = 0;

	if (!ctx || !X509_STORE_CTX_init(ctx, t->store, leaf, chain))
		r = pki_ssl_fail(err, "begin to verify a certificate");
	else if (X509_check_ca(leaf) != 0)
		r = ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                   "certificate: an authority is not an identity");
	else if (X509_verify_cert(ctx) != 1)
		r = explain(ctx, err);
	X509_STORE_CTX_free(ctx);
	return r;
}

static int verify_text(const struct pki_trust *t, const char *pem, size_t len, struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *chain = NULL;
	int r = pki_parse_certs(pem, len, &chain, err);

	return r < 0 ? r : verify(chain, t, err);
}

/* Twice, as above: who is refused has lost his connection. */
int pki_trust_verify(const struct pki_trust *t, const char *pem, size_t len, struct ros2_err *err)
{
	return verify_text(t, pem, len, NULL) ? verify_text(t, pem, len, err) : 0;
}

int pki_verify(const char *pem, size_t len, const char *bundle_pem, size_t bundle_len,
               struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *chain = NULL;
	struct pki_trust *t = NULL;
	int r = pki_parse_certs(pem, len, &chain, err);

	if (r == 0)
		r = pki_trust_new(bundle_pem, bundle_len, &t, err);
	if (r == 0)
		r = pki_trust_verify(t, pem, len, err);
	pki_trust_unref(t);
	return r;
}

const char *pki_trust_text(const struct pki_trust *t, size_t *ret_len)
{
	if (ret_len)
		*ret_len = t->len;
	return t->text;
}

/* ---- what has changed ---- */

static bool has(const struct pki_trust *t, const uint8_t id[SHA256_LEN])
{
	for (size_t i = 0; t && i < t->n; i++)
		if (!memcmp(t->ids[i], id, SHA256_LEN))
			return true;
	return false;
}

/* Those of @a that @b has not: how many, and the first few by name. */
static size_t only_in(const struct pki_trust *a, const struct pki_trust *b,
                      char out[PKI_CHANGES_TEXT])
{
	size_t n = 0, o = 0;

	out[0] = '\0';
	for (size_t i = 0; a && i < a->n; i++) {
		if (has(b, a->ids[i]))
			continue;
		if (n++ >= PKI_CHANGES_NAMED)
			continue;
		if (o)
			out[o++] = ',';
		crypto_hex(a->ids[i], SHA256_LEN, out + o);
		o += 2 * SHA256_LEN;
	}
	if (n > PKI_CHANGES_NAMED)
		snprintf(out + o, PKI_CHANGES_TEXT - o, " and %zu more", n - PKI_CHANGES_NAMED);
	return n;
}

void pki_trust_changes(const struct pki_trust *from, const struct pki_trust *to,
                       struct pki_trust_changes *ret)
{
	ret->authorities = to ? to->n : 0;
	ret->added = only_in(to, from, ret->added_text);
	ret->removed = only_in(from, to, ret->removed_text);
}

/* Appends it to a text that ends in a NUL. */
static int append_pem(BIO *out, X509 *cert, struct ros2_err *err)
{
	return PEM_write_bio_X509(out, cert)
	               ? 0
	               : ros2_err_set(err, -ENOMEM, "no memory for the text of a bundle");
}

/* Those of @to that @from has; the others leave the stack. */
static int keep_common(STACK_OF(X509) *certs, const struct pki_trust *from,
                       const struct pki_trust *to, char **ret_text, size_t *ret_len,
                       struct ros2_err *err)
{
	CLEANUP(pki_bio_cleanup) BIO *out = BIO_new(BIO_s_mem());
	int at = 0, r = out ? 0 : ros2_err_set(err, -ENOMEM, "no memory for a bundle");
	char *p;
	long n;

	for (size_t i = 0; i < to->n && r == 0; i++) {
		if (has(from, to->ids[i]))
			r = append_pem(out, sk_X509_value(certs, at++), err);
		else
			X509_free(sk_X509_delete(certs, at));
	}
	if (r < 0) {
		ERR_clear_error();
		return r;
	}
	n = BIO_get_mem_data(out, &p);
	*ret_text = n > 0 ? strndup(p, (size_t)n) : strdup("");
	*ret_len = n > 0 ? (size_t)n : 0;
	return *ret_text ? 0 : ros2_err_set(err, -ENOMEM, "no memory for a bundle");
}

static int build_common(const struct pki_trust *from, const struct pki_trust *to,
                        struct pki_trust **ret, struct ros2_err *err)
{
	CLEANUP(pki_certs_cleanup) STACK_OF(X509) *certs = NULL;
	char *text = NULL;
	size_t len;
	int r = 0;

	/* An empty text does not parse; there are none to be had of it. */
	if (to->n)
		r = pki_parse_certs(to->text, to->len, &certs, err);
	else if (!(certs = sk_X509_new_null()))
		r = ros2_err_set(err, -ENOMEM, "no memory for a bundle");
	if (r == 0)
		r = keep_common(certs, from, to, &text, &len, err);
	return r < 0 ? r : build_of(certs, text, len, ret, err);
}

int pki_trust_common(struct pki_trust *from, struct pki_trust *to, struct pki_trust **ret,
                     struct ros2_err *err)
{
	struct pki_trust_changes c;
	int r;

	pki_trust_changes(from, to, &c);
	if (!c.added || !c.removed) {
		*ret = pki_trust_ref(c.added ? from : to);
		return 0;
	}
	/* Twice, as above: both were read before. */
	r = build_common(from, to, ret, NULL);
	return r < 0 ? build_common(from, to, ret, err) : r;
}
