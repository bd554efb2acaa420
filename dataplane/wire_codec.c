/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded reader of headers; a message is known by one row of a table: who sends it, and how
 * long its payload may be. */
#include "dataplane/wire_codec.h"
#include "common/crypto.h"
#include "common/util.h"
#include <stdbool.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the header is little-endian and so must this machine be");

enum sender { FROM_TENANT = 1, FROM_AGENT = 2 };

struct message {
	const char *name;
	unsigned senders;
	uint16_t flags; /* allowed */
	uint32_t payload_min, payload_max;
	bool payload_is_length; /* payload_len == length, when there is a payload */
};

static const struct message messages[] = {
	[WIRE_CHALLENGE] = {"CHALLENGE", FROM_AGENT, 0, WIRE_NONCE_LEN, WIRE_NONCE_LEN, false},
	[WIRE_HELLO] = {"HELLO", FROM_TENANT, 0, sizeof(struct wire_hello),
                        sizeof(struct wire_hello), false},
	[WIRE_WELCOME] = {"WELCOME", FROM_AGENT, 0, sizeof(struct wire_welcome),
                          sizeof(struct wire_welcome), false},
	[WIRE_READ] = {"READ", FROM_TENANT, 0, 0, 0, false},
	[WIRE_WRITE] = {"WRITE", FROM_TENANT, WIRE_F_INLINE, 0, WIRE_INLINE_MAX, true},
	[WIRE_FLUSH] = {"FLUSH", FROM_TENANT, 0, 0, 0, false},
	[WIRE_WINDOW] = {"WINDOW", FROM_TENANT, 0, 0, 0, false},
	[WIRE_ZERO] = {"ZERO", FROM_TENANT, 0, 0, 0, false},
	[WIRE_DISCARD] = {"DISCARD", FROM_TENANT, 0, 0, 0, false},
	[WIRE_MAPPED] = {"MAPPED", FROM_TENANT, 0, 0, 0, false},
	[WIRE_DATA] = {"DATA", FROM_TENANT | FROM_AGENT, WIRE_F_LAST, 0, WIRE_IO_MAX, true},
	[WIRE_PULL] = {"PULL", FROM_AGENT, 0, 0, 0, false},
	[WIRE_COMPLETE] = {"COMPLETE", FROM_AGENT, 0, 0, 0, false},
	[WIRE_NAK] = {"NAK", FROM_AGENT, 0, 0, WIRE_WORDS_MAX, false},
	[WIRE_MEMORY] = {"MEMORY", FROM_AGENT, 0, 0, 0, false},
	[WIRE_PING] = {"PING", FROM_TENANT | FROM_AGENT, 0, 0, 0, false},
	[WIRE_PONG] = {"PONG", FROM_TENANT | FROM_AGENT, 0, 0, 0, false},
	[WIRE_BYE] = {"BYE", FROM_TENANT | FROM_AGENT, 0, 0, 0, false},
};

static const struct message *message_of(unsigned opcode)
{
	return opcode < ARRAY_SIZE(messages) && messages[opcode].name ? &messages[opcode] : NULL;
}

const char *wire_opcode_to_str(unsigned opcode)
{
	const struct message *m = message_of(opcode);

	return m ? m->name : "UNKNOWN";
}

static enum ros2_status say(enum ros2_status s, const char *words, const char **ret_words)
{
	*ret_words = words;
	return s;
}

static enum ros2_status check_payload(const struct wire_header *h, const struct message *m,
                                      const char **ret_words)
{
	bool inline_write = h->opcode == WIRE_WRITE && (h->flags & WIRE_F_INLINE);

	if (h->payload_len < m->payload_min || h->payload_len > m->payload_max)
		return say(ROS2_TOO_LARGE, "payload_len is not one this message may have",
		           ret_words);
	if (h->opcode == WIRE_WRITE && !inline_write && h->payload_len)
		return say(ROS2_PROTOCOL, "WRITE has a payload but not the inline flag", ret_words);
	if (m->payload_is_length && (inline_write || h->opcode == WIRE_DATA) &&
	    h->payload_len != h->length)
		return say(ROS2_PROTOCOL, "payload_len is not length", ret_words);
	return ROS2_OK;
}

static enum ros2_status parse(const uint8_t bytes[WIRE_HEADER_LEN], enum sender from,
                              struct wire_header *ret, const char **ret_words)
{
	const struct message *m;
	struct wire_header h;
	enum ros2_status s;

	memcpy(&h, bytes, sizeof(h));
	if (h.magic != WIRE_MAGIC)
		return say(ROS2_PROTOCOL, "no magic: not a ros2 data connection", ret_words);
	if (h.version != WIRE_VERSION)
		return say(ROS2_VERSION, "header version is not 1", ret_words);
	if (h.header_crc != crypto_crc32c(bytes, offsetof(struct wire_header, header_crc)))
		return say(ROS2_CORRUPT, "header CRC32C does not match", ret_words);
	if (h.reserved || (h.flags & ~WIRE_F_KNOWN))
		return say(ROS2_PROTOCOL, "a reserved bit is set", ret_words);
	m = message_of(h.opcode);
	if (!m || !(m->senders & from))
		return say(ROS2_PROTOCOL, "not an opcode this side may receive", ret_words);
	if (h.flags & ~m->flags)
		return say(ROS2_PROTOCOL, "a flag this message may not have", ret_words);
	/* They move no bytes: memory that they name would be memory that nothing is checked of. */
	if ((h.opcode == WIRE_ZERO || h.opcode == WIRE_DISCARD) &&
	    (h.key || h.address || h.generation))
		return say(ROS2_PROTOCOL, "ZERO or DISCARD that names memory", ret_words);
	s = check_payload(&h, m, ret_words);
	if (s == ROS2_OK)
		*ret = h;
	return s;
}

enum ros2_status wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                        struct wire_header *ret, const char **ret_words)
{
	return parse(bytes, FROM_TENANT, ret, ret_words);
}

enum ros2_status wire_parse_from_agent(const uint8_t bytes[WIRE_HEADER_LEN],
                                       struct wire_header *ret, const char **ret_words)
{
	return parse(bytes, FROM_AGENT, ret, ret_words);
}

void wire_seal(struct wire_header *h)
{
	h->magic = WIRE_MAGIC;
	h->version = WIRE_VERSION;
	h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
}
