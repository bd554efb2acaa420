/* SPDX-License-Identifier: Apache-2.0 */
/* How peers of the probe speak over tcp: payload is what comes in DATA. */
#include "dataplane/probe_soft_priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BASE 0x7f0000000000ull /* tenants' addresses: nothing here looks there */

static int tcp_dial(const struct ps_peer *c)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static int tcp_ask(struct ps_peer *c, struct wire_header *h)
{
	return ps_send(c->fd, h, NULL, 0);
}

static int next(struct ps_peer *c, struct wire_header *h)
{
	uint8_t payload[PS_REGION_BYTES];

	return ps_recv(c->fd, h, payload, sizeof(payload));
}

static int tcp_answer(struct ps_peer *c, struct wire_header *h)
{
	int r;

	do
		r = next(c, h);
	while (!r && h->opcode == WIRE_DATA);
	return r;
}

static enum ros2_status tcp_read(struct ps_peer *c, uint32_t key, uint64_t address, uint32_t length,
                                 uint32_t *ret_bytes)
{
	struct wire_header h = ps_header(c, WIRE_READ, key, address, length);

	*ret_bytes = 0;
	if (tcp_ask(c, &h))
		return ROS2_CLOSED;
	while (!next(c, &h)) {
		if (h.opcode == WIRE_DATA)
			*ret_bytes += h.payload_len;
		if (h.opcode == WIRE_NAK || h.opcode == WIRE_COMPLETE)
			return (enum ros2_status)h.status;
	}
	return ROS2_CLOSED;
}

static int tcp_await(struct ps_peer *c)
{
	struct pollfd pfd = {.fd = c->fd, .events = POLLIN};

	return poll(&pfd, 1, PS_WAIT_MS) <= 0 ? -ETIMEDOUT : 0;
}

/* What is in the peer's socket by now was handed to the kernel before. */
static void tcp_mark(struct ps_peer *c)
{
	int queued = 0;

	c->marked_bytes = ioctl(c->fd, FIONREAD, &queued) < 0 ? 0 : (uint64_t)queued;
}

static uint64_t tcp_came(struct ps_peer *c, int quiet_ms)
{
	static uint8_t junk[65536];
	struct pollfd pfd = {.fd = c->fd, .events = POLLIN};
	uint64_t n = 0;

	while (poll(&pfd, 1, quiet_ms) > 0) {
		ssize_t k = recv(c->fd, junk, sizeof(junk), MSG_DONTWAIT);

		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			break;
		n += (uint64_t)k;
	}
	return n > c->marked_bytes ? n - c->marked_bytes : 0;
}

static uint64_t tcp_had_come(const struct ps_peer *c)
{
	return c->marked_bytes;
}

static uint32_t tcp_flood(struct ps_peer *c, enum wire_opcode op, uint32_t key, bool takes)
{
	uint32_t posted = 0;

	for (; c->flooded < c->credits; c->flooded++, posted++) {
		struct wire_header h = ps_header(c, op, key, BASE, PS_FILE_BYTES);

		if (tcp_ask(c, &h))
			break;
	}
	return posted;
}

const struct ps_way ps_way_tcp = {
	.name = "tcp",
	.transport = DP_TRANSPORT_TCP,
	.base = BASE,
	.quiet_ms = PS_WAIT_MS, /* it ends before: the agent closes the connection */
	.no_dmabuf = "tcp carries bytes: it registers no memory of a device",
	.in_flight = "in flight",
	.receives_full = "never sends the data it was asked for",
	.dial = tcp_dial,
	.ask = tcp_ask,
	.answer = tcp_answer,
	.read = tcp_read,
	.await = tcp_await,
	.mark = tcp_mark,
	.came = tcp_came,
	.had_come = tcp_had_come,
	.flood = tcp_flood,
};
