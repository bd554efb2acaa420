/* SPDX-License-Identifier: Apache-2.0 */
/* What peers of the probe say on a socket, over tcp and, to begin with, over shm. */
#include "common/crypto.h"
#include "common/util.h"
#include "dataplane/probe_soft_priv.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int ps_exactly(int fd, void *p, size_t n)
{
	while (n) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		ssize_t k;

		if (poll(&pfd, 1, PS_WAIT_MS) == 0)
			return -ETIMEDOUT;
		k = recv(fd, p, n, MSG_DONTWAIT);
		if (k < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (k <= 0)
			return -ECONNRESET;
		p = (uint8_t *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int ps_recv(int fd, struct wire_header *h, void *payload, uint32_t max)
{
	uint8_t bytes[WIRE_HEADER_LEN];
	const char *words;
	int r = ps_exactly(fd, bytes, sizeof(bytes));

	if (r)
		return r;
	if (wire_parse_from_agent(bytes, h, &words) != ROS2_OK || h->payload_len > max)
		return -EPROTO;
	return ps_exactly(fd, payload, h->payload_len);
}

int ps_all(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -ECONNRESET;
		p = (const uint8_t *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int ps_send(int fd, struct wire_header *h, const void *payload, uint32_t length)
{
	int r;

	h->payload_len = length;
	wire_seal(h);
	r = ps_all(fd, h, sizeof(*h));
	return r ? r : ps_all(fd, payload, length);
}

struct wire_header ps_header(struct ps_peer *c, enum wire_opcode op, uint32_t key, uint64_t address,
                             uint32_t length)
{
	return (struct wire_header){.opcode = (uint8_t)op,
	                            .request_id = ++c->next_id,
	                            .handle = c->handle,
	                            .address = address,
	                            .length = length,
	                            .key = key};
}

/* CHALLENGE received. */
static int dial(const struct ps_peer *c, struct wire_challenge *ret)
{
	struct timeval limit = {.tv_sec = PS_WAIT_MS / 1000};
	int fd = c->p->way->dial(c), r;
	struct wire_header h;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	r = ps_recv(fd, &h, ret, sizeof(*ret));
	if (!r && (h.opcode != WIRE_CHALLENGE || h.payload_len != sizeof(*ret)))
		r = -EPROTO;
	if (!r)
		return fd;
	close(fd);
	return r;
}

int ps_dial(const struct ps_peer *c)
{
	struct wire_challenge ch;

	return dial(c, &ch);
}

enum ros2_status ps_hello(struct ps_peer *c, int *ret_fd)
{
	struct wire_header h = {.opcode = WIRE_HELLO};
	struct wire_challenge ch;
	struct wire_hello hello;
	uint8_t payload[WIRE_WORDS_MAX];
	int fd = dial(c, &ch), r;
	const struct crypto_span parts[] = {
		{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
		{hello.session_uid, sizeof(hello.session_uid)},
		{ch.agent_nonce, sizeof(ch.agent_nonce)},
		{hello.tenant_nonce, sizeof(hello.tenant_nonce)},
	};

	if (fd < 0)
		return ROS2_CLOSED;
	memcpy(hello.session_uid, c->session.b, sizeof(hello.session_uid));
	crypto_random(hello.tenant_nonce, sizeof(hello.tenant_nonce));
	crypto_hmac_sha256v(c->secret, sizeof(c->secret), parts, ARRAY_SIZE(parts), hello.proof);
	r = ps_send(fd, &h, &hello, sizeof(hello));
	if (!r)
		r = ps_recv(fd, &h, payload, sizeof(payload));
	if (!r && h.opcode == WIRE_WELCOME) {
		*ret_fd = fd;
		return ROS2_OK;
	}
	close(fd);
	return !r && h.opcode == WIRE_NAK ? (enum ros2_status)h.status : ROS2_CLOSED;
}
