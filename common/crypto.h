/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cryptography the project uses, over OpenSSL; no other file includes an OpenSSL header except
 * common/crypto_dh.c, common/crypto_hash.c and common/pki*.c. Secrets are wiped when freed;
 * comparisons of secrets take constant time.
 */
#ifndef ROS2_COMMON_CRYPTO_H
#define ROS2_COMMON_CRYPTO_H

#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_LEN      32
#define ED25519_PUB_LEN 32
#define ED25519_SIG_LEN 64

/* Ends the process when the kernel gives no random bytes. */
void crypto_random(void *p, size_t n);
/* A cheap, buffered, fork-unsafe source for key bytes on the data path: one per thread, seeded from
 * the kernel. */
uint32_t crypto_random_u32(void);
bool crypto_equal(const void *a, const void *b, size_t n);
void crypto_wipe(void *p, size_t n);

/* Hashes cannot fail and allocate nothing: common/crypto_hash.c. */
void crypto_sha256(const void *p, size_t n, uint8_t out[SHA256_LEN]);
struct crypto_span {
	const void *p;
	size_t n;
};
/* Hash of the concatenation. */
void crypto_sha256v(const struct crypto_span *parts, size_t n_parts, uint8_t out[SHA256_LEN]);
/* Of bytes that come in pieces. Nothing has to be freed. */
struct crypto_sha256 {
	uint64_t state[16];
};
void crypto_sha256_init(struct crypto_sha256 *h);
void crypto_sha256_update(struct crypto_sha256 *h, const void *p, size_t n);
void crypto_sha256_end(struct crypto_sha256 *h, uint8_t out[SHA256_LEN]);
void crypto_hmac_sha256v(const void *key, size_t key_len, const struct crypto_span *parts,
                         size_t n_parts, uint8_t out[SHA256_LEN]);

/* Ed25519 (RFC 8032). A key pair is created by crypto_sign_key_new or read from a PKCS#8 PEM file.
 */
struct crypto_sign_key;
int crypto_sign_key_new(struct crypto_sign_key **ret, struct ros2_err *err);
int crypto_sign_key_load(const char *path, struct crypto_sign_key **ret, struct ros2_err *err);
/* Mode 0600, atomically. */
int crypto_sign_key_save(const struct crypto_sign_key *k, const char *path, struct ros2_err *err);
void crypto_sign_key_free(struct crypto_sign_key *k);
void crypto_sign_key_public(const struct crypto_sign_key *k, uint8_t out[ED25519_PUB_LEN]);
int crypto_sign(const struct crypto_sign_key *k, const void *p, size_t n,
                uint8_t out[ED25519_SIG_LEN]);
bool crypto_verify(const uint8_t pub[ED25519_PUB_LEN], const void *p, size_t n,
                   const uint8_t sig[ED25519_SIG_LEN]);

/* CRC32C (Castagnoli), as in RFC 3720 B.4: crc32c("123456789") == 0xe3069283. */
uint32_t crypto_crc32c(const void *p, size_t n);
/* Of bytes that come in pieces: @crc is that of all before, 0 at the beginning. */
uint32_t crypto_crc32c_more(uint32_t crc, const void *p, size_t n);
/* CRC-32 (IEEE 802.3, as in zlib): crypto_crc32("123456789") == 0xcbf43926. */
uint32_t crypto_crc32(const void *p, size_t n);

/* Base64 (RFC 4648 section 4) and lower-case hex. @out is always terminated. */
size_t crypto_base64_len(size_t n); /* with the NUL */
void crypto_base64(const void *p, size_t n, char *out);
/* -EBADMSG on anything that is not canonical. *ret_len <= out_max. */
int crypto_base64_decode(const char *s, size_t n, void *out, size_t out_max, size_t *ret_len);
void crypto_hex(const void *p, size_t n, char *out);       /* 2n + 1 bytes */
int crypto_hex_decode(const char *s, void *out, size_t n); /* exactly 2n digits, else -EBADMSG */
#endif
