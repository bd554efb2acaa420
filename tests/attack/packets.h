/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE v2 packets by hand, sent through a raw socket of a network namespace that is not the
 * device's: somebody on the wire, with any source address (IBA annex A17; vol. 1, 9.2). */
#ifndef ROS2_TESTS_ATTACK_PACKETS_H
#define ROS2_TESTS_ATTACK_PACKETS_H

#include <stdint.h>

struct forged {
	uint32_t src, dst; /* IPv4 addresses, network order */
	uint32_t qpn, psn; /* 24 bits each */
	uint64_t addr;
	uint32_t key, length; /* at most 1024 bytes of 'x' */
};

/* A raw socket in the namespace /run/netns/@ns, or -errno. */
int packets_socket(const char *ns);
/* One RDMA WRITE ONLY with a right invariant CRC. 0 or -errno. */
int packets_write(int fd, const struct forged *f);
#endif
