/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes, HMAC and finite-field Diffie-Hellman over OpenSSL 3, for authentication. As in crypto.c,
 * a hash that OpenSSL cannot compute ends the process.
 */
#include "common/crypto_dh.h"
#include "common/util.h"
#include <errno.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct crypto_dh {
	EVP_PKEY *pkey; /* owned */
	unsigned bits;
};

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "fatal: %s failed\n", what);
	abort();
}

static int ssl_fail(struct ros2_err *err, int code, const char *what)
{
	char words[160];

	ERR_error_string_n(ERR_peek_last_error(), words, sizeof(words));
	ERR_clear_error();
	return ros2_err_set(err, code, "%s: %s", what, words);
}

static const struct {
	const char *name;
	size_t len;
} hashes[] = {
	[CRYPTO_SHA256] = {"SHA256", 32},
	[CRYPTO_SHA384] = {"SHA384", 48},
	[CRYPTO_SHA512] = {"SHA512", 64},
};

size_t crypto_hash_len(enum crypto_hash h)
{
	return hashes[h].len;
}

void crypto_hash(enum crypto_hash h, const void *p, size_t n, uint8_t *out)
{
	size_t len = 0;

	if (EVP_Q_digest(NULL, hashes[h].name, NULL, n ? p : "", n, out, &len) != 1 ||
	    len != hashes[h].len)
		die("a hash");
}

void crypto_hmac(enum crypto_hash h, const void *key, size_t key_len,
                 const struct crypto_span *parts, size_t n_parts, uint8_t *out)
{
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)hashes[h].name, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
	size_t len = 0;
	int ok;

	/* A NULL key would mean "keep the key of before"; an empty key is a key. */
	ok = ctx && EVP_MAC_init(ctx, key_len ? key : (const void *)"", key_len, params) == 1;
	for (size_t i = 0; i < n_parts && ok; i++)
		ok = parts[i].n == 0 || EVP_MAC_update(ctx, parts[i].p, parts[i].n) == 1;
	if (!ok || EVP_MAC_final(ctx, out, &len, hashes[h].len) != 1 || len != hashes[h].len)
		die("HMAC");
	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
}

static const char *group_name(unsigned bits)
{
	switch (bits) {
	case 2048:
		return "ffdhe2048";
	case 3072:
		return "ffdhe3072";
	case 4096:
		return "ffdhe4096";
	case 6144:
		return "ffdhe6144";
	case 8192:
		return "ffdhe8192";
	default:
		return NULL;
	}
}

static EVP_PKEY *make_key(const char *group)
{
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)group, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	EVP_PKEY *pkey = NULL;

	if (!ctx || EVP_PKEY_keygen_init(ctx) != 1 || EVP_PKEY_CTX_set_params(ctx, params) != 1 ||
	    EVP_PKEY_generate(ctx, &pkey) != 1)
		pkey = NULL;
	EVP_PKEY_CTX_free(ctx);
	return pkey;
}

int crypto_dh_new(unsigned bits, struct crypto_dh **ret, struct ros2_err *err)
{
	const char *group = group_name(bits);
	struct crypto_dh *d;

	if (!group)
		return ros2_err_set(err, -EINVAL, "no group of RFC 7919 has %u bits", bits);
	d = calloc(1, sizeof(*d));
	if (!d)
		return ros2_err_set(err, -ENOMEM, "no memory for a Diffie-Hellman value");
	d->bits = bits;
	d->pkey = make_key(group);
	if (!d->pkey) {
		free(d);
		return ssl_fail(err, -EIO, "make a Diffie-Hellman value");
	}
	*ret = d;
	return 0;
}

void crypto_dh_free(struct crypto_dh *d)
{
	if (!d)
		return;
	EVP_PKEY_free(d->pkey); /* wipes the private value */
	free(d);
}

size_t crypto_dh_len(const struct crypto_dh *d)
{
	return d->bits / 8;
}

int crypto_dh_public(const struct crypto_dh *d, uint8_t *out, struct ros2_err *err)
{
	size_t len = 0, want = crypto_dh_len(d);

	/* Of a DH key this is the value padded to the length of the prime (RFC 8446, 4.2.8.1). */
	if (EVP_PKEY_get_octet_string_param(d->pkey, OSSL_PKEY_PARAM_ENCODED_PUBLIC_KEY, out, want,
	                                    &len) != 1 ||
	    len != want)
		return ssl_fail(err, -EIO, "take the public Diffie-Hellman value");
	return 0;
}

static BIGNUM *part_of(const struct crypto_dh *d, const char *name)
{
	BIGNUM *b = NULL;

	return EVP_PKEY_get_bn_param(d->pkey, name, &b) == 1 ? b : NULL;
}

/* The groups are of safe primes, so 2 to p - 2 is all that a public value must be (RFC 7919, 5.1).
 * OpenSSL's own derivation would raise it to the order of the group as well, three times: 220 ms in
 * the largest, on a thread that others wait for. */
static int derive(const BIGNUM *p, const BIGNUM *x, const BIGNUM *y, uint8_t *out, size_t len,
                  struct ros2_err *err)
{
	BN_CTX *ctx = BN_CTX_secure_new();
	BIGNUM *limit = BN_dup(p), *z = BN_secure_new();
	int r = 0;

	if (!ctx || !limit || !z || BN_sub_word(limit, 1) != 1)
		r = ssl_fail(err, -ENOMEM, "compute the Diffie-Hellman secret");
	else if (BN_cmp(y, BN_value_one()) <= 0 || BN_cmp(y, limit) >= 0)
		r = ros2_err_set(err, -EBADMSG,
		                 "the peer's Diffie-Hellman value is none of the group: expected 2 "
		                 "to p - 2");
	else if (BN_mod_exp_mont_consttime(z, y, x, p, ctx, NULL) != 1 ||
	         BN_bn2binpad(z, out, (int)len) != (int)len)
		r = ssl_fail(err, -EIO, "compute the Diffie-Hellman secret");
	BN_clear_free(z);
	BN_free(limit);
	BN_CTX_free(ctx);
	return r;
}

int crypto_dh_secret(const struct crypto_dh *d, const uint8_t *peer, uint8_t *out,
                     struct ros2_err *err)
{
	BIGNUM *p = part_of(d, OSSL_PKEY_PARAM_FFC_P), *x = part_of(d, OSSL_PKEY_PARAM_PRIV_KEY);
	BIGNUM *y = BN_bin2bn(peer, (int)crypto_dh_len(d), NULL);
	int r;

	if (p && x && y) {
		BN_set_flags(x, BN_FLG_CONSTTIME);
		r = derive(p, x, y, out, crypto_dh_len(d), err);
	} else {
		r = ssl_fail(err, -ENOMEM, "compute the Diffie-Hellman secret");
	}
	BN_free(y);
	BN_clear_free(x);
	BN_free(p);
	return r;
}
