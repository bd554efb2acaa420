/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes the header of wire.h. Reading is the first thing done with bytes of a peer: it
 * copies the header out once, checks it, and says what is wrong in words. Pure; allocates nothing.
 */
#ifndef ROS2_DATAPLANE_WIRE_CODEC_H
#define ROS2_DATAPLANE_WIRE_CODEC_H

#include "common/status.h"
#include "dataplane/wire.h"

/* "READ"; "UNKNOWN" for a number that is no opcode. */
const char *wire_opcode_to_str(unsigned opcode);
/* Checks rule (3) of wire.h for a message sent by a tenant: magic, version, CRC, reserved bits,
 * opcode, payload_len. OK and *ret; or PROTOCOL, VERSION, TOO_LARGE, CORRUPT and *ret_words (a
 * constant). */
enum ros2_status wire_parse_from_tenant(const uint8_t bytes[WIRE_HEADER_LEN],
                                        struct wire_header *ret, const char **ret_words);
/* The same for a message of the agent's, for the library and for tests. */
enum ros2_status wire_parse_from_agent(const uint8_t bytes[WIRE_HEADER_LEN],
                                       struct wire_header *ret, const char **ret_words);
/* Fills magic, version and header_crc. */
void wire_seal(struct wire_header *h);
#endif
