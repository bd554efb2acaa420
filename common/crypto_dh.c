/* SPDX-License-Identifier: Apache-2.0 */
/* Finite-field Diffie-Hellman over OpenSSL 3, for authentication. */
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

static int ssl_fail(struct ros2_err *err, int code, const char *what)
{
	char words[160];

	ERR_error_string_n(ERR_peek_last_error(), words, sizeof(words));
	ERR_clear_error();
	return ros2_err_set(err, code, "%s: %s", what, words);
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
