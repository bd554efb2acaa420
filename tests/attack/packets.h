/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE v2 packets by hand, sent through a raw socket of a network namespace that is not the
 * device's: somebody on the wire, with any source address (IBA annex A17; vol. 1, 9.2). */
#ifndef ROS2_TESTS_ATTACK_PACKETS_H
#define ROS2_TESTS_ATTACK_PACKETS_H

#include <stdint.h>

/* Opcodes of reliable connections (IBA vol. 1, table 38). */
enum forged_kind {
	FORGED_SEND = 0x04,        /* SEND ONLY */
	FORGED_WRITE = 0x0a,       /* RDMA WRITE ONLY */
	FORGED_READ_ANSWER = 0x10, /* RDMA READ RESPONSE ONLY */
	FORGED_ACKNOWLEDGE = 0x11, /* ACKNOWLEDGE: an ACK, or a NAK */
};

/* Syndromes of the AETH (IBA vol. 1, 9.7.5.1.1). */
#define SYNDROME_ACK        0x1f /* without credits */
#define SYNDROME_NAK_ACCESS 0x62 /* remote access error */

struct forged {
	enum forged_kind kind; /* 0 = FORGED_WRITE */
	uint32_t src, dst;     /* IPv4 addresses, network order */
	uint32_t qpn, psn;     /* 24 bits each */
	uint64_t addr;
	uint32_t key, length; /* at most 1024 bytes of 'x', or of @payload; a multiple of 4 */
	const void *payload;
	uint8_t syndrome; /* of answers */
};

/* A raw socket in the namespace /run/netns/@ns, or -errno. */
int packets_socket(const char *ns);
/* One packet with a right invariant CRC. 0 or -errno. */
int packets_send(int fd, const struct forged *f);
#endif
