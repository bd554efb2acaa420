/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where somebody connects from, as far as places are counted by it: an IPv4 address, whichever way
 * it is written, or the first 64 bits of an IPv6 address. One host has all of a /64 (RFC 4291,
 * 2.5.1; RFC 4862), so counted by its whole address it would be as many as it likes.
 */
#ifndef ROS2_COMMON_HOST_H
#define ROS2_COMMON_HOST_H

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* No padding, zero behind what the family uses: compared and hashed as bytes. */
struct host_key {
	uint8_t family, address[8];
};

/* Of another family: nothing but that. */
static inline struct host_key host_key_of(const struct sockaddr_storage *a)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	struct host_key h = {.family = (uint8_t)a->ss_family};

	if (a->ss_family == AF_INET) {
		memcpy(h.address, &((const struct sockaddr_in *)a)->sin_addr, 4);
	} else if (a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
		h.family = AF_INET;
		memcpy(h.address, v6->sin6_addr.s6_addr + 12, 4);
	} else if (a->ss_family == AF_INET6) {
		memcpy(h.address, v6->sin6_addr.s6_addr, 8);
	}
	return h;
}
#endif
