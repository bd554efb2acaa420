/* SPDX-License-Identifier: Apache-2.0 */
/* SipHash-2-4 (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012) under a key of this
 * process. Any thread. */
#include "common/hash.h"
#include "common/crypto.h"
#include <endian.h>
#include <pthread.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint8_t process_key[HASH_KEY_LEN];

static uint64_t rotate(uint64_t x, int by)
{
	return x << by | x >> (64 - by);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = rotate(v[1], 13) ^ v[0];
		v[3] = rotate(v[3], 16) ^ v[2];
		v[0] = rotate(v[0], 32);
		v[2] += v[1];
		v[0] += v[3];
		v[1] = rotate(v[1], 17) ^ v[2];
		v[3] = rotate(v[3], 21) ^ v[0];
		v[2] = rotate(v[2], 32);
	}
}

static void add_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	rounds(v, 2);
	v[0] ^= word;
}

uint64_t hash_siphash(const uint8_t key[HASH_KEY_LEN], const void *p, size_t n)
{
	uint64_t k0 = load64(key), k1 = load64(key + 8), last = (uint64_t)n << 56;
	uint64_t v[4] = {k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
	                 k1 ^ 0x7465646279746573};
	const uint8_t *at = p;

	for (; n >= 8; n -= 8, at += 8)
		add_word(v, load64(at));
	for (size_t i = 0; i < n; i++)
		last |= (uint64_t)at[i] << (8 * i);
	add_word(v, last);
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static void make_key(void)
{
	crypto_random(process_key, sizeof(process_key));
}

uint32_t hash_keyed(const void *p, size_t n)
{
	pthread_once(&once, make_key);
	return (uint32_t)hash_siphash(process_key, p, n);
}
