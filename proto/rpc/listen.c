/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC says only that it could not listen; this finds out why, by trying the same with plain
 * sockets. And it takes a port modulo 65536, so that is found out before it is asked. */
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* "1.2.3.4:5", "[::1]:5", "name:5" into host and port; false when it is none of them. */
static bool split(const char *addr, char *host, size_t n, const char **ret_port)
{
	const char *colon = strrchr(addr, ':');
	size_t len;

	if (!colon || !colon[1])
		return false;
	len = (size_t)(colon - addr);
	if (*addr == '[' && len >= 2 && addr[len - 1] == ']') {
		addr++;
		len -= 2;
	}
	if (len >= n || memchr(addr, ']', len))
		return false;
	memcpy(host, addr, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return true;
}

bool rpc_port_is_one(const char *addr)
{
	const char *colon = strrchr(addr, ':');

	/* A name of a service, or no port at all, is for gRPC to judge. */
	return !colon || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	       strtoul(colon + 1, NULL, 10) <= UINT16_MAX;
}

int rpc_listen_error(const char *addr, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *ai = NULL;
	int fd, one = 1, rc = 0;
	const char *port;
	char host[128];

	if (!rpc_port_is_one(addr) || !split(addr, host, sizeof(host), &port) ||
	    getaddrinfo(host[0] ? host : NULL, port, &hints, &ai))
		return ros2_err_set(err, -EINVAL, "cannot listen on %s: expected HOST:PORT", addr);
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, 1))
		rc = -errno;
	if (fd >= 0)
		close(fd);
	freeaddrinfo(ai);
	return ros2_err_set(err, rc ? rc : -EADDRINUSE, "cannot listen on %s: %s", addr,
	                    rc ? strerror(-rc) : "the address was in use");
}
