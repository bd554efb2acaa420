/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures over OpenSSL 3, random bytes, and the encodings bytes travel in. A kernel that gives
 * no random bytes ends the process: no key may be made without. It is asked without O_NONBLOCK and
 * needs no memory for it.
 */
#include "common/crypto.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <isa-l/crc.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define KEY_PEM_MAX 16384

struct crypto_sign_key {
	EVP_PKEY *pkey; /* owned */
	uint8_t pub[ED25519_PUB_LEN];
};

/* gRPC's threads may use OpenSSL until the process is gone, so it must not be taken down at exit:
 * they would find freed tables, or leave states behind that nobody frees. This has to be said
 * before anything else is. */
__attribute__((constructor)) static void keep_at_exit(void)
{
	OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

__attribute__((noreturn)) static void die(const char *what)
{
	fprintf(stderr, "fatal: %s\n", what);
	abort();
}

void crypto_random(void *p, size_t n)
{
	uint8_t *at = p;

	while (n) {
		ssize_t k = getrandom(at, n, 0);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			die("the kernel gives no random bytes");
		at += k;
		n -= (size_t)k;
	}
}

uint32_t crypto_random_u32(void)
{
	static _Thread_local uint32_t pool[64];
	static _Thread_local size_t left;
	uint32_t v;

	if (!left) {
		crypto_random(pool, sizeof(pool));
		left = ARRAY_SIZE(pool);
	}
	v = pool[--left];
	pool[left] = 0; /* a value that was handed out is nowhere else */
	return v;
}

bool crypto_equal(const void *a, const void *b, size_t n)
{
	return CRYPTO_memcmp(a, b, n) == 0;
}

void crypto_wipe(void *p, size_t n)
{
	OPENSSL_cleanse(p, n);
}

static int ssl_fail(struct ros2_err *err, int code, const char *what)
{
	char words[160];

	ERR_error_string_n(ERR_peek_last_error(), words, sizeof(words));
	ERR_clear_error();
	return ros2_err_set(err, code, "%s: %s", what, words);
}

/* Takes @pkey in every case. */
static int wrap_key(EVP_PKEY *pkey, struct crypto_sign_key **ret, struct ros2_err *err)
{
	struct crypto_sign_key *k = calloc(1, sizeof(*k));
	size_t len = sizeof(k->pub);

	if (!k) {
		EVP_PKEY_free(pkey);
		return ros2_err_set(err, -ENOMEM, "no memory for a signing key");
	}
	k->pkey = pkey;
	if (EVP_PKEY_get_raw_public_key(pkey, k->pub, &len) != 1 || len != sizeof(k->pub)) {
		crypto_sign_key_free(k);
		return ssl_fail(err, -EIO, "take the public part of a signing key");
	}
	*ret = k;
	return 0;
}

int crypto_sign_key_new(struct crypto_sign_key **ret, struct ros2_err *err)
{
	EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

	if (!pkey)
		return ssl_fail(err, -EIO, "make an Ed25519 key");
	return wrap_key(pkey, ret, err);
}

/* OpenSSL would ask on the terminal; a daemon must not. */
static int no_password(char *buf, int size, int rwflag, void *arg)
{
	return -1;
}

int crypto_sign_key_load(const char *path, struct crypto_sign_key **ret, struct ros2_err *err)
{
	EVP_PKEY *pkey = NULL;
	void *pem = NULL;
	size_t len;
	BIO *bio;
	int r;

	r = fsx_read_file(path, KEY_PEM_MAX, &pem, &len, err);
	if (r < 0)
		return r;
	bio = BIO_new_mem_buf(pem, (int)len);
	if (bio)
		pkey = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
	BIO_free(bio);
	crypto_wipe(pem, len);
	free(pem);
	ERR_clear_error();
	if (!pkey)
		return ros2_err_set(err, -EBADMSG, "%s: not an unencrypted private key in PEM",
		                    path);
	if (!EVP_PKEY_is_a(pkey, "ED25519")) {
		r = ros2_err_set(err, -EBADMSG, "%s: expected an Ed25519 key, found %s", path,
		                 EVP_PKEY_get0_type_name(pkey));
		EVP_PKEY_free(pkey);
		return r;
	}
	return wrap_key(pkey, ret, err);
}

int crypto_sign_key_save(const struct crypto_sign_key *k, const char *path, struct ros2_err *err)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	char *pem;
	long len;
	int r;

	if (!bio || PEM_write_bio_PKCS8PrivateKey(bio, k->pkey, NULL, NULL, 0, NULL, NULL) != 1) {
		BIO_free(bio);
		return ssl_fail(err, -EIO, "write a signing key as PEM");
	}
	len = BIO_get_mem_data(bio, &pem);
	r = fsx_write_atomic(path, pem, (size_t)len, 0600, err);
	crypto_wipe(pem, (size_t)len);
	BIO_free(bio);
	return r;
}

void crypto_sign_key_free(struct crypto_sign_key *k)
{
	if (!k)
		return;
	EVP_PKEY_free(k->pkey);
	free(k);
}

void crypto_sign_key_public(const struct crypto_sign_key *k, uint8_t out[ED25519_PUB_LEN])
{
	memcpy(out, k->pub, ED25519_PUB_LEN);
}

int crypto_sign(const struct crypto_sign_key *k, const void *p, size_t n,
                uint8_t out[ED25519_SIG_LEN])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	size_t len = ED25519_SIG_LEN;
	int ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
	         EVP_DigestSign(ctx, out, &len, n ? p : "", n) == 1 && len == ED25519_SIG_LEN;

	EVP_MD_CTX_free(ctx);
	if (!ok)
		ERR_clear_error();
	return ok ? 0 : -EIO;
}

bool crypto_verify(const uint8_t pub[ED25519_PUB_LEN], const void *p, size_t n,
                   const uint8_t sig[ED25519_SIG_LEN])
{
	EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, pub, ED25519_PUB_LEN);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool ok = pkey && ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
	          EVP_DigestVerify(ctx, sig, ED25519_SIG_LEN, n ? p : (const void *)"", n) == 1;

	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
	if (!ok)
		ERR_clear_error();
	return ok;
}

uint32_t crypto_crc32c(const void *p, size_t n)
{
	return crypto_crc32c_more(0, p, n);
}

uint32_t crypto_crc32c_more(uint32_t crc, const void *p, size_t n)
{
	/* ISA-L reads only, but its prototype lacks const; it takes lengths as int and inverts
	 * neither end. */
	unsigned char *at = (unsigned char *)p;

	crc = ~crc;
	while (n) {
		int k = (int)MIN(n, (size_t)(1 << 30));

		crc = crc32_iscsi(at, k, crc);
		at += k;
		n -= (size_t)k;
	}
	return ~crc;
}

uint32_t crypto_crc32(const void *p, size_t n)
{
	return crc32_gzip_refl(0, p, n);
}

static const char b64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t crypto_base64_len(size_t n)
{
	return (n + 2) / 3 * 4 + 1;
}

void crypto_base64(const void *p, size_t n, char *out)
{
	const uint8_t *s = p;

	for (; n >= 3; n -= 3, s += 3) {
		*out++ = b64[s[0] >> 2];
		*out++ = b64[(s[0] & 3) << 4 | s[1] >> 4];
		*out++ = b64[(s[1] & 15) << 2 | s[2] >> 6];
		*out++ = b64[s[2] & 63];
	}
	if (n) {
		uint8_t second = n == 2 ? s[1] : 0;

		*out++ = b64[s[0] >> 2];
		*out++ = b64[(s[0] & 3) << 4 | second >> 4];
		*out++ = n == 2 ? b64[(second & 15) << 2] : '=';
		*out++ = '=';
	}
	*out = '\0';
}

static int b64_value(char c)
{
	const char *at = c ? strchr(b64, c) : NULL;

	return at ? (int)(at - b64) : -1;
}

/* One group of four digits, the last @pad of them '='. Canonical: the bits that padding leaves over
 * are zero. */
static int b64_group(const char *s, int pad, uint8_t out[3])
{
	uint32_t v = 0;

	for (int i = 0; i < 4; i++) {
		int d = i < 4 - pad ? b64_value(s[i]) : 0;

		if (d < 0 || (i >= 4 - pad && s[i] != '='))
			return -EBADMSG;
		v = v << 6 | (uint32_t)d;
	}
	if ((pad == 1 && v & 0xff) || (pad == 2 && v & 0xffff))
		return -EBADMSG;
	out[0] = (uint8_t)(v >> 16);
	out[1] = (uint8_t)(v >> 8);
	out[2] = (uint8_t)v;
	return 0;
}

int crypto_base64_decode(const char *s, size_t n, void *out, size_t out_max, size_t *ret_len)
{
	uint8_t *to = out;
	size_t len = 0;

	if (n % 4)
		return -EBADMSG;
	for (size_t i = 0; i < n; i += 4) {
		bool last = i + 4 == n;
		int pad = !last || s[i + 3] != '=' ? 0 : s[i + 2] == '=' ? 2 : 1;
		size_t k = 3 - (size_t)pad;
		uint8_t group[3];

		if (b64_group(s + i, pad, group) < 0 || k > out_max - len)
			return -EBADMSG;
		memcpy(to + len, group, k);
		len += k;
	}
	*ret_len = len;
	return 0;
}

void crypto_hex(const void *p, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *s = p;

	for (size_t i = 0; i < n; i++) {
		*out++ = digits[s[i] >> 4];
		*out++ = digits[s[i] & 15];
	}
	*out = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int crypto_hex_decode(const char *s, void *out, size_t n)
{
	uint8_t *to = out;

	for (size_t i = 0; i < n; i++) {
		int hi = hex_value(s[2 * i]);
		int lo = hi < 0 ? -1 : hex_value(s[2 * i + 1]);

		if (lo < 0)
			return -EBADMSG;
		to[i] = (uint8_t)(hi << 4 | lo);
	}
	return s[2 * n] == '\0' ? 0 : -EBADMSG;
}
