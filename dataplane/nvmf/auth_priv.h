/* SPDX-License-Identifier: Apache-2.0 */
/* What DH-HMAC-CHAP computes, apart from the messages it travels in: for auth.c and its vectors. */
#ifndef ROS2_DATAPLANE_NVMF_AUTH_PRIV_H
#define ROS2_DATAPLANE_NVMF_AUTH_PRIV_H

#include "common/crypto_dh.h"
#include "dataplane/nvmf/auth.h"

/* False for a number that names no hash. */
bool auth_hash(uint8_t id, enum crypto_hash *ret);
/* Bits of the group; 0 for the null group; -1 for a number that names none. */
int auth_group_bits(uint8_t id);

/* Base 8.13.5.8: HMAC(key, nqn || "NVMe-over-Fabrics"), or the key itself. Returns the length. */
size_t auth_transform(const struct nvme_auth_secret *s, const char *nqn,
                      uint8_t out[CRYPTO_HASH_MAX]);
/* The augmented challenge: HMAC(H(shared), challenge). @inout: the challenge, replaced. */
void auth_augment(enum crypto_hash h, const uint8_t *shared, size_t shared_len, uint8_t *inout);
/* The response: HMAC(key, challenge || seqnum || tid || sc_c || role || from || 00h || to). */
struct auth_proof {
	enum crypto_hash hash;
	const uint8_t *key;
	size_t key_len;
	const uint8_t *challenge; /* augmented unless the group is null; length of the hash */
	uint32_t seqnum;
	uint16_t tid;
	const char *role; /* "HostHost" or "Controller" */
	const char *from, *to;
};
void auth_response(const struct auth_proof *p, uint8_t out[CRYPTO_HASH_MAX]);
#endif
