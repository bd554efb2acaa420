/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making and checking the 64-byte header of dataplane/wire.h, and the two proofs of HELLO and
 * WELCOME. Pure; nothing here trusts a byte of what it is given.
 */
#ifndef ROS2_CLIENT_CODEC_H
#define ROS2_CLIENT_CODEC_H

#include "common/err.h"
#include "dataplane/wire.h"
#include <stddef.h>
#include <stdint.h>

/* Sets magic, version, reserved and the CRC: the last step before a header is sent. */
void codec_seal(struct wire_header *h);
/* Magic, version, CRC, flags, reserved bits, a known opcode. 0 or -EPROTO (VERSION for another
 * version) with words. */
int codec_check(const struct wire_header *h, struct ros2_err *err);
/* "READ"; "UNKNOWN" for a number that is none. */
const char *codec_opcode_to_str(uint8_t opcode);

struct codec_proof {
	const uint8_t *secret;       /* WIRE_SECRET_LEN */
	const uint8_t *session_uid;  /* 16 */
	const uint8_t *agent_nonce;  /* WIRE_NONCE_LEN */
	const uint8_t *tenant_nonce; /* WIRE_NONCE_LEN */
};
/* @label: WIRE_LABEL_TENANT or WIRE_LABEL_AGENT; its NUL is part of what is proved. */
void codec_prove(const struct codec_proof *p, const char *label, uint8_t out[WIRE_MAC_LEN]);
#endif
