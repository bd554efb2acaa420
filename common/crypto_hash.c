/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-2 and HMAC (RFC 2104) over it, without an allocation: none of them can fail, so a caller
 * whose guarantee rests on one has nothing to handle and nothing to abort for. That is why these
 * are OpenSSL's low-level functions, which it calls deprecated: what it recommends allocates a
 * context per hash. They do not go through a provider.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "common/crypto_dh.h"
#include "common/util.h"
#include <openssl/sha.h>
#include <string.h>

#define BLOCK_MAX 128

union hash_state {
	SHA256_CTX s256;
	SHA512_CTX s512; /* and SHA-384 */
};

size_t crypto_hash_len(enum crypto_hash h)
{
	static const size_t len[] = {32, 48, 64};

	return len[h];
}

static size_t block_len(enum crypto_hash h)
{
	return h == CRYPTO_SHA256 ? 64 : 128;
}

static void begin(enum crypto_hash h, union hash_state *s)
{
	if (h == CRYPTO_SHA256)
		SHA256_Init(&s->s256);
	else if (h == CRYPTO_SHA384)
		SHA384_Init(&s->s512);
	else
		SHA512_Init(&s->s512);
}

static void more(enum crypto_hash h, union hash_state *s, const void *p, size_t n)
{
	if (!n)
		return;
	if (h == CRYPTO_SHA256)
		SHA256_Update(&s->s256, p, n);
	else if (h == CRYPTO_SHA384)
		SHA384_Update(&s->s512, p, n);
	else
		SHA512_Update(&s->s512, p, n);
}

static void end(enum crypto_hash h, union hash_state *s, uint8_t *out)
{
	if (h == CRYPTO_SHA256)
		SHA256_Final(out, &s->s256);
	else if (h == CRYPTO_SHA384)
		SHA384_Final(out, &s->s512);
	else
		SHA512_Final(out, &s->s512);
	crypto_wipe(s, sizeof(*s));
}

static void hashv(enum crypto_hash h, const struct crypto_span *parts, size_t n_parts, uint8_t *out)
{
	union hash_state s;

	begin(h, &s);
	for (size_t i = 0; i < n_parts; i++)
		more(h, &s, parts[i].p, parts[i].n);
	end(h, &s, out);
}

void crypto_hash(enum crypto_hash h, const void *p, size_t n, uint8_t *out)
{
	const struct crypto_span part = {p, n};

	hashv(h, &part, 1, out);
}

void crypto_hmac(enum crypto_hash h, const void *key, size_t key_len,
                 const struct crypto_span *parts, size_t n_parts, uint8_t *out)
{
	uint8_t block[BLOCK_MAX] = {0}, inner[CRYPTO_HASH_MAX];
	size_t len = block_len(h);
	union hash_state s;

	if (key_len > len)
		crypto_hash(h, key, key_len, block);
	else if (key_len)
		memcpy(block, key, key_len);
	for (size_t i = 0; i < len; i++)
		block[i] ^= 0x36;
	begin(h, &s);
	more(h, &s, block, len);
	for (size_t i = 0; i < n_parts; i++)
		more(h, &s, parts[i].p, parts[i].n);
	end(h, &s, inner);
	for (size_t i = 0; i < len; i++)
		block[i] ^= 0x36 ^ 0x5c;
	begin(h, &s);
	more(h, &s, block, len);
	more(h, &s, inner, crypto_hash_len(h));
	end(h, &s, out);
	crypto_wipe(block, sizeof(block));
	crypto_wipe(inner, sizeof(inner));
}

/* ---- SHA-256 by itself ---- */

void crypto_sha256(const void *p, size_t n, uint8_t out[SHA256_LEN])
{
	crypto_hash(CRYPTO_SHA256, p, n, out);
}

void crypto_sha256v(const struct crypto_span *parts, size_t n_parts, uint8_t out[SHA256_LEN])
{
	hashv(CRYPTO_SHA256, parts, n_parts, out);
}

void crypto_hmac_sha256v(const void *key, size_t key_len, const struct crypto_span *parts,
                         size_t n_parts, uint8_t out[SHA256_LEN])
{
	crypto_hmac(CRYPTO_SHA256, key, key_len, parts, n_parts, out);
}

_Static_assert(sizeof(SHA256_CTX) <= sizeof(((struct crypto_sha256 *)0)->state), "it fits");

void crypto_sha256_init(struct crypto_sha256 *h)
{
	SHA256_Init((SHA256_CTX *)(void *)h->state);
}

void crypto_sha256_update(struct crypto_sha256 *h, const void *p, size_t n)
{
	if (n)
		SHA256_Update((SHA256_CTX *)(void *)h->state, p, n);
}

void crypto_sha256_end(struct crypto_sha256 *h, uint8_t out[SHA256_LEN])
{
	SHA256_Final(out, (SHA256_CTX *)(void *)h->state);
	crypto_wipe(h, sizeof(*h));
}
