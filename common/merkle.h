/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RFC 6962 Merkle tree hashing: leaf = SHA-256(0x00 || bytes), node = SHA-256(0x01 || left ||
 * right). merkle_acc is the compact range of an append-only log: O(log n) memory. merkle_batch
 * builds one small tree and its inclusion paths (a commit batch of the controller).
 */
#ifndef ROS2_COMMON_MERKLE_H
#define ROS2_COMMON_MERKLE_H

#include "common/crypto.h"

#define MERKLE_PATH_MAX 64

void merkle_leaf(const void *bytes, size_t n, uint8_t out[SHA256_LEN]);

struct merkle_acc {
	uint64_t size;                 /* leaves appended */
	uint8_t peaks[64][SHA256_LEN]; /* peaks[i] valid when bit i of size is set */
};
void merkle_acc_init(struct merkle_acc *a);
void merkle_acc_append(struct merkle_acc *a, const uint8_t leaf[SHA256_LEN]);
/* Root of all leaves so far; SHA-256("") for none (RFC 6962 2.1). */
void merkle_acc_root(const struct merkle_acc *a, uint8_t out[SHA256_LEN]);

/* Root over @n leaf hashes (n >= 1), and for each the inclusion path. @leaves: n x 32 bytes. */
void merkle_root(const uint8_t (*leaves)[SHA256_LEN], size_t n, uint8_t out[SHA256_LEN]);
/* Path of leaf @index, from the leaf up (RFC 6962 2.1.1). Returns its length (<= MERKLE_PATH_MAX).
 */
size_t merkle_path(const uint8_t (*leaves)[SHA256_LEN], size_t n, size_t index,
                   uint8_t (*out)[SHA256_LEN]);
/* True when @leaf is leaf @index of the tree of @size leaves with @root (RFC 9162 2.1.3.2). Bounded
 * work for any input. */
bool merkle_path_verify(const uint8_t leaf[SHA256_LEN], uint64_t index, uint64_t size,
                        const uint8_t (*path)[SHA256_LEN], size_t path_len,
                        const uint8_t root[SHA256_LEN]);
#endif
