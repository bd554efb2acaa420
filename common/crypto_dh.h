/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an authentication by DH-HMAC-CHAP is made of: SHA-2 in three lengths, HMAC over it, and
 * Diffie-Hellman in the groups of RFC 7919. Secrets are wiped when freed. Any thread.
 */
#ifndef ROS2_COMMON_CRYPTO_DH_H
#define ROS2_COMMON_CRYPTO_DH_H

#include "common/crypto.h"

enum crypto_hash { CRYPTO_SHA256, CRYPTO_SHA384, CRYPTO_SHA512 };
#define CRYPTO_HASH_MAX 64

size_t crypto_hash_len(enum crypto_hash h); /* 32, 48, 64 */
/* @out: crypto_hash_len bytes. Neither can fail; no allocation. */
void crypto_hash(enum crypto_hash h, const void *p, size_t n, uint8_t *out);
/* Of the concatenation. */
void crypto_hmac(enum crypto_hash h, const void *key, size_t key_len,
                 const struct crypto_span *parts, size_t n_parts, uint8_t *out);

#define CRYPTO_DH_MAX 1024 /* bytes of a public value of the largest group */
/* Our half of an exchange: a private value and its public one. */
struct crypto_dh;
/* @bits: 2048, 3072, 4096, 6144 or 8192 (else -EINVAL): a fresh private value. Takes up to
 * 10 ms in the largest group. -ENOMEM, -EIO. */
int crypto_dh_new(unsigned bits, struct crypto_dh **ret, struct ros2_err *err);
void crypto_dh_free(struct crypto_dh *d); /* NULL is accepted */
size_t crypto_dh_len(const struct crypto_dh *d);
/* Big-endian, crypto_dh_len bytes, zeroes in front. */
int crypto_dh_public(const struct crypto_dh *d, uint8_t *out, struct ros2_err *err);
/* The common secret, likewise. -EBADMSG: @peer (crypto_dh_len bytes) is not a public value of the
 * group: expected 2 to p - 2. */
int crypto_dh_secret(const struct crypto_dh *d, const uint8_t *peer, uint8_t *out,
                     struct ros2_err *err);
#endif
