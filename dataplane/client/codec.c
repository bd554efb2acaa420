/* SPDX-License-Identifier: Apache-2.0 */
/* Headers and proofs of the wire protocol, as dataplane/wire.h tells them. Pure. */
#include "dataplane/client/codec.h"
#include "common/crypto.h"
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "wire.h is little-endian in memory");

void codec_seal(struct wire_header *h)
{
	h->magic = WIRE_MAGIC;
	h->version = WIRE_VERSION;
	h->reserved = 0;
	h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
}

const char *codec_opcode_to_str(uint8_t opcode)
{
	switch (opcode) {
	case WIRE_CHALLENGE:
		return "CHALLENGE";
	case WIRE_HELLO:
		return "HELLO";
	case WIRE_WELCOME:
		return "WELCOME";
	case WIRE_READ:
		return "READ";
	case WIRE_WRITE:
		return "WRITE";
	case WIRE_FLUSH:
		return "FLUSH";
	case WIRE_WINDOW:
		return "WINDOW";
	case WIRE_ZERO:
		return "ZERO";
	case WIRE_DISCARD:
		return "DISCARD";
	case WIRE_MAPPED:
		return "MAPPED";
	case WIRE_DATA:
		return "DATA";
	case WIRE_PULL:
		return "PULL";
	case WIRE_COMPLETE:
		return "COMPLETE";
	case WIRE_NAK:
		return "NAK";
	case WIRE_MEMORY:
		return "MEMORY";
	case WIRE_PING:
		return "PING";
	case WIRE_PONG:
		return "PONG";
	case WIRE_BYE:
		return "BYE";
	default:
		return "UNKNOWN";
	}
}

int codec_check(const struct wire_header *h, struct ros2_err *err)
{
	uint32_t crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));

	if (h->magic != WIRE_MAGIC)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "a header begins with 0x%08x, expected 0x%08x", h->magic,
		                      WIRE_MAGIC);
	if (h->version != WIRE_VERSION)
		return ros2_err_named(err, ROS2_VERSION,
		                      "the agent speaks data protocol version %u, this library %u",
		                      h->version, WIRE_VERSION);
	if (h->header_crc != crc)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "a header's CRC is 0x%08x, expected 0x%08x", h->header_crc,
		                      crc);
	if (h->flags & ~WIRE_F_KNOWN || h->reserved)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "a header has reserved bits set (flags 0x%x, reserved 0x%x)",
		                      h->flags, h->reserved);
	if (!strcmp(codec_opcode_to_str(h->opcode), "UNKNOWN"))
		return ros2_err_named(err, ROS2_PROTOCOL, "opcode %u is none of version %u",
		                      h->opcode, WIRE_VERSION);
	return 0;
}

void codec_prove(const struct codec_proof *p, const char *label, uint8_t out[WIRE_MAC_LEN])
{
	const struct crypto_span parts[] = {
		{label, strlen(label) + 1},
		{p->session_uid, 16},
		{p->agent_nonce, WIRE_NONCE_LEN},
		{p->tenant_nonce, WIRE_NONCE_LEN},
	};

	crypto_hmac_sha256v(p->secret, WIRE_SECRET_LEN, parts, sizeof(parts) / sizeof(parts[0]),
	                    out);
}
