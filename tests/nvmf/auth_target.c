/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offsets and numbers are those of the figures of Base 8.13, by hand. The Diffie-Hellman is plain
 * modular exponentiation with the prime that OpenSSL has for the group.
 */
#include "tests/nvmf/auth_target.h"
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_FAILED = 1, WHY_PROTOCOL, WHY_CHANNEL, WHY_HASH, WHY_GROUP, WHY_PAYLOAD, WHY_MESSAGE };
enum next { NEGOTIATE, CHALLENGE, REPLY, SUCCESS1, SUCCESS2, FAILURE1, GOOD, BAD };

struct secret {
	uint8_t key[64];
	size_t len;
	int hash;
};

struct auth_target {
	struct secret host, own;
	bool has_own;
	char hostnqn[224], subnqn[224];
	uint8_t hash, group, why;
	enum next next;
	uint8_t tid[2], seq1[4], seq2[4], c1[64], c2[64];
	bool host_asked;
	BIGNUM *p, *y; /* owned; with a group */
	uint8_t shared[1024];
};

static void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "auth_target: %s\n", what);
	abort();
}

static const EVP_MD *md(int hash)
{
	return hash == 1 ? EVP_sha256() : hash == 2 ? EVP_sha384() : EVP_sha512();
}

static size_t md_len(int hash)
{
	return hash == 1 ? 32 : hash == 2 ? 48 : 64;
}

static size_t group_len(int group)
{
	static const size_t lens[] = {0, 256, 384, 512, 768, 1024};

	return lens[group];
}

static BIGNUM *group_prime(int group)
{
	static const char *const names[] = {"",          "ffdhe2048", "ffdhe3072",
	                                    "ffdhe4096", "ffdhe6144", "ffdhe8192"};
	OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, (char *)names[group],
	                                         0),
		OSSL_PARAM_construct_end(),
	};
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
	EVP_PKEY *pkey = NULL;
	BIGNUM *p = NULL;

	must(EVP_PKEY_fromdata_init(ctx) == 1 &&
	             EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_KEY_PARAMETERS, params) == 1 &&
	             EVP_PKEY_get_bn_param(pkey, OSSL_PKEY_PARAM_FFC_P, &p) == 1,
	     "no such group");
	EVP_PKEY_free(pkey);
	EVP_PKEY_CTX_free(ctx);
	return p;
}

static struct secret secret(const char *text)
{
	struct secret s;
	uint8_t raw[128];
	char base64[128];
	int n;

	must(sscanf(text, "DHHC-1:%02d:%127[^:]:", &s.hash, base64) == 2, "malformed secret");
	n = EVP_DecodeBlock(raw, (const uint8_t *)base64, (int)strlen(base64));
	for (size_t i = strlen(base64); i > 0 && base64[i - 1] == '='; i--)
		n--;
	must(n == 36 || n == 52 || n == 68, "a secret of another length");
	s.len = (size_t)n - 4;
	memcpy(s.key, raw, s.len);
	return s;
}

struct auth_target *auth_target_new(const char *host_secret, const char *own_secret,
                                    const char *hostnqn, const char *subnqn, uint8_t hash,
                                    uint8_t group)
{
	struct auth_target *t = calloc(1, sizeof(*t));

	must(t && strlen(hostnqn) < 224 && strlen(subnqn) < 224, "names");
	t->host = secret(host_secret);
	t->has_own = own_secret;
	if (own_secret)
		t->own = secret(own_secret);
	strcpy(t->hostnqn, hostnqn);
	strcpy(t->subnqn, subnqn);
	t->hash = hash;
	t->group = group;
	if (group)
		t->p = group_prime(group);
	return t;
}

void auth_target_free(struct auth_target *t)
{
	if (!t)
		return;
	BN_free(t->p);
	BN_clear_free(t->y);
	free(t);
}

/* g^y, or base^y, into the length of the group. */
static void power(struct auth_target *t, const BIGNUM *base, uint8_t *out)
{
	BN_CTX *ctx = BN_CTX_new();
	BIGNUM *r = BN_new();

	must(BN_mod_exp(r, base, t->y, t->p, ctx) == 1 &&
	             BN_bn2binpad(r, out, (int)group_len(t->group)) > 0,
	     "modular exponentiation");
	BN_free(r);
	BN_CTX_free(ctx);
}

static void fail(struct auth_target *t, int why)
{
	t->why = (uint8_t)why;
	t->next = FAILURE1;
}

static void take_negotiate(struct auth_target *t, const uint8_t *m, size_t len)
{
	if (len < 72 || m[7] < 1)
		return fail(t, WHY_PAYLOAD);
	if (m[6] != 0)
		return fail(t, WHY_CHANNEL);
	if (m[8] != 1)
		return fail(t, WHY_PROTOCOL);
	if (m[10] > 30 || m[11] > 30)
		return fail(t, WHY_PAYLOAD);
	if (!memchr(m + 12, t->hash, m[10]))
		return fail(t, WHY_HASH);
	if (!memchr(m + 42, t->group, m[11]))
		return fail(t, WHY_GROUP);
	memcpy(t->tid, m + 4, 2);
	t->next = CHALLENGE;
}

/* HMAC of the parts under the key of @s, as transformed for @nqn. */
static void respond(struct auth_target *t, const struct secret *s, const char *nqn,
                    const uint8_t *challenge, const uint8_t *seq, const char *role, const char *to,
                    uint8_t *out)
{
	uint8_t key[64], ca[64], ks[64], text[1024];
	size_t key_len = s->len, n = 0;
	unsigned len = (unsigned)md_len(t->hash);

	memcpy(key, s->key, s->len);
	if (s->hash) {
		n = (size_t)sprintf((char *)text, "%sNVMe-over-Fabrics", nqn);
		HMAC(md(s->hash), s->key, (int)s->len, text, n, key, NULL);
		key_len = md_len(s->hash);
	}
	memcpy(ca, challenge, len);
	if (t->group) {
		EVP_Digest(t->shared, group_len(t->group), ks, NULL, md(t->hash), NULL);
		HMAC(md(t->hash), ks, (int)len, challenge, len, ca, NULL);
	}
	memcpy(text, ca, len);
	memcpy(text + len, seq, 4);
	memcpy(text + len + 4, t->tid, 2);
	text[len + 6] = 0;
	n = len + 7;
	n += (size_t)sprintf((char *)text + n, "%s%s", role, nqn) + 1; /* and its NUL */
	n += (size_t)sprintf((char *)text + n, "%s", to);
	HMAC(md(t->hash), key, (int)key_len, text, n, out, NULL);
}

static void take_reply(struct auth_target *t, const uint8_t *m, size_t len)
{
	size_t hl = md_len(t->hash), dhl = group_len(t->group);
	uint8_t expected[64];

	if (len < 16 + 2 * hl + dhl || m[6] != hl || (m[10] | m[11] << 8) != (int)dhl)
		return fail(t, WHY_PAYLOAD);
	if (memcmp(m + 4, t->tid, 2) != 0)
		return fail(t, WHY_MESSAGE);
	if (t->group) {
		BIGNUM *peer = BN_bin2bn(m + 16 + 2 * hl, (int)dhl, NULL);

		power(t, peer, t->shared);
		BN_free(peer);
	}
	respond(t, &t->host, t->hostnqn, t->c1, t->seq1, "HostHost", t->subnqn, expected);
	if (memcmp(expected, m + 16, hl) != 0)
		return fail(t, WHY_FAILED);
	t->host_asked = m[8] & 1;
	memcpy(t->c2, m + 16 + hl, hl);
	memcpy(t->seq2, m + 12, 4);
	t->next = SUCCESS1;
}

void auth_target_take(struct auth_target *t, const void *msg, size_t len)
{
	const uint8_t *m = msg;
	bool common;

	if (len < 8)
		return fail(t, WHY_PAYLOAD);
	common = m[0] == 0;
	if (common && m[1] == 0xf0) {
		t->why = m[7];
		t->next = BAD;
	} else if (t->next == NEGOTIATE && common && m[1] == 0) {
		take_negotiate(t, m, len);
	} else if (t->next == REPLY && m[0] == 1 && m[1] == 2) {
		take_reply(t, m, len);
	} else if (t->next == SUCCESS2 && m[0] == 1 && m[1] == 4 && len >= 16) {
		t->next = GOOD;
	} else {
		fail(t, WHY_MESSAGE);
	}
}

static size_t reply_challenge(struct auth_target *t, uint8_t *m)
{
	size_t hl = md_len(t->hash), dhl = group_len(t->group);

	m[0] = 1, m[1] = 1;
	m[6] = (uint8_t)hl;
	m[8] = t->hash, m[9] = t->group;
	m[10] = (uint8_t)dhl, m[11] = (uint8_t)(dhl >> 8);
	must(RAND_bytes(t->seq1, 4) == 1 && RAND_bytes(t->c1, (int)hl) == 1, "random bytes");
	memcpy(m + 12, t->seq1, 4);
	memcpy(m + 16, t->c1, hl);
	if (t->group) {
		BIGNUM *g = BN_new();

		t->y = BN_new();
		must(BN_set_word(g, 2) == 1 && BN_priv_rand(t->y, 512, 0, 0) == 1, "private value");
		power(t, g, m + 16 + hl);
		BN_free(g);
	}
	t->next = REPLY;
	return 16 + hl + dhl;
}

static size_t reply_success1(struct auth_target *t, uint8_t *m)
{
	size_t hl = md_len(t->hash);

	m[0] = 1, m[1] = 3;
	m[6] = (uint8_t)hl;
	if (!t->host_asked || !t->has_own) {
		t->next = t->host_asked ? SUCCESS2 : GOOD;
		return 16;
	}
	m[8] = 1;
	respond(t, &t->own, t->subnqn, t->c2, t->seq2, "Controller", t->hostnqn, m + 16);
	t->next = SUCCESS2;
	return 16 + hl;
}

size_t auth_target_reply(struct auth_target *t, uint8_t m[AUTH_TARGET_MESSAGE_MAX])
{
	size_t n = 0;

	memset(m, 0, AUTH_TARGET_MESSAGE_MAX);
	if (t->next == CHALLENGE) {
		n = reply_challenge(t, m);
	} else if (t->next == SUCCESS1) {
		n = reply_success1(t, m);
	} else if (t->next == FAILURE1) {
		m[1] = 0xf1;
		m[6] = 1, m[7] = t->why;
		t->next = BAD;
		n = 8;
	}
	memcpy(m + 4, t->tid, 2);
	return n;
}

enum auth_target_state auth_target_state(const struct auth_target *t)
{
	return t->next == GOOD  ? AUTH_TARGET_GOOD
	       : t->next == BAD ? AUTH_TARGET_BAD
	                        : AUTH_TARGET_GOING;
}

uint8_t auth_target_why(const struct auth_target *t)
{
	return t->why;
}
