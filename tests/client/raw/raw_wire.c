/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h by hand: whatever header is wanted, right or wrong, and whatever comes back. */
#include "common/crypto.h"
#include "common/util.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/client/raw/raw.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const struct {
	uint8_t opcode;
	const char *name;
} opcodes[] = {
	{WIRE_CHALLENGE, "CHALLENGE"}, {WIRE_HELLO, "HELLO"}, {WIRE_WELCOME, "WELCOME"},
	{WIRE_READ, "READ"},           {WIRE_WRITE, "WRITE"}, {WIRE_FLUSH, "FLUSH"},
	{WIRE_WINDOW, "WINDOW"},       {WIRE_ZERO, "ZERO"},   {WIRE_DISCARD, "DISCARD"},
	{WIRE_MAPPED, "MAPPED"},       {WIRE_DATA, "DATA"},   {WIRE_PULL, "PULL"},
	{WIRE_COMPLETE, "COMPLETE"},   {WIRE_NAK, "NAK"},     {WIRE_MEMORY, "MEMORY"},
	{WIRE_PING, "PING"},           {WIRE_PONG, "PONG"},   {WIRE_BYE, "BYE"},
};

const char *raw_opcode(uint8_t opcode)
{
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++)
		if (opcodes[i].opcode == opcode)
			return opcodes[i].name;
	return "UNKNOWN";
}

int raw_opcode_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(opcodes); i++)
		if (!strcmp(opcodes[i].name, name))
			return opcodes[i].opcode;
	return 0;
}

void raw_seal(struct wire_header *h)
{
	h->magic = WIRE_MAGIC;
	h->version = WIRE_VERSION;
	h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
}

int raw_session_open(struct raw *r, struct raw_session *ret, struct ros2_err *err)
{
	Ros2__V1__OpenSessionRequest req = ROS2__V1__OPEN_SESSION_REQUEST__INIT;
	Ros2__V1__OpenSessionReply *p = NULL;
	int rc;

	req.protocol = WIRE_VERSION;
	req.transport = r->over_shm     ? ROS2__V1__TRANSPORT__TRANSPORT_SHM
	                : r->over_verbs ? ROS2__V1__TRANSPORT__TRANSPORT_VERBS
	                                : ROS2__V1__TRANSPORT__TRANSPORT_TCP;
	req.shared_memory_bytes = r->shm_bytes;
	req.software = (char *)"ros2-raw";
	rc = ros2_v1_tenant_open_session_sync(r->channel, &req, r->timeout_ms, &p, err);
	if (rc)
		return rc;
	if (p->session_uid.len == 16 && p->secret.len == 32) {
		memcpy(ret->uid, p->session_uid.data, 16);
		memcpy(ret->secret, p->secret.data, 32);
		snprintf(ret->data_address, sizeof(ret->data_address), "%s", p->data_address);
	} else {
		rc = ros2_err_named(err, ROS2_PROTOCOL, "odd OpenSession reply");
	}
	protobuf_c_message_free_unpacked(&p->base, NULL);
	return rc;
}

void raw_session_close(struct raw *r, const struct raw_session *s)
{
	Ros2__V1__SessionRef req = ROS2__V1__SESSION_REF__INIT;
	Ros2__V1__Empty *reply = NULL;

	req.session_uid = (ProtobufCBinaryData){16, (uint8_t *)s->uid};
	if (!ros2_v1_tenant_close_session_sync(r->channel, &req, r->timeout_ms, &reply, NULL))
		protobuf_c_message_free_unpacked(&reply->base, NULL);
}

static int dial_unix(const char *path, struct ros2_err *err)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = fd < 0 ? -errno : 0;

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	if (!rc && !connect(fd, (struct sockaddr *)&to, sizeof(to)))
		return fd;
	if (!rc) {
		rc = -errno;
		close(fd);
	}
	return ros2_err_set(err, rc, "connect to %s: %s", path, strerror(-rc));
}

int raw_dial(const char *address, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
	const char *colon = strrchr(address, ':');
	char host[256];
	int fd, rc;

	if (!strncmp(address, "unix:", 5))
		return dial_unix(address + 5, err);
	if (!colon)
		return ros2_err_set(err, -EINVAL, "'%s': expected host:port", address);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	rc = getaddrinfo(host, colon + 1, &hints, &list);
	if (rc)
		return ros2_err_set(err, -EINVAL, "'%s': %s", address, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen) ? -errno : 0;
	freeaddrinfo(list);
	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	return ros2_err_set(err, rc, "connect to %s: %s", address, strerror(-rc));
}

int raw_send(int fd, const struct wire_header *h, const void *payload)
{
	size_t n = payload ? h->payload_len : 0;

	if (send(fd, h, sizeof(*h), MSG_NOSIGNAL) != (ssize_t)sizeof(*h))
		return -ECONNRESET;
	while (n) {
		ssize_t k = send(fd, payload, n, MSG_NOSIGNAL);

		if (k <= 0)
			return -ECONNRESET;
		payload = (const char *)payload + k;
		n -= (size_t)k;
	}
	return 0;
}

static int receive_exact(int fd, void *p, size_t n, int timeout_ms)
{
	while (n) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		ssize_t k;

		if (poll(&pfd, 1, timeout_ms) <= 0)
			return -ETIMEDOUT;
		k = recv(fd, p, n, 0);
		if (k <= 0)
			return -ECONNRESET;
		p = (char *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int raw_receive(int fd, struct wire_header *h, uint8_t *payload, int timeout_ms)
{
	int rc = receive_exact(fd, h, sizeof(*h), timeout_ms);

	if (rc)
		return rc;
	if (h->magic != WIRE_MAGIC || h->payload_len > WIRE_IO_MAX)
		return -EPROTO;
	return receive_exact(fd, payload, h->payload_len, timeout_ms);
}

void raw_prove(const struct raw_session *s, const uint8_t *agent_nonce, struct wire_hello *h)
{
	const struct crypto_span parts[] = {
		{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
		{h->session_uid, sizeof(h->session_uid)},
		{agent_nonce, WIRE_NONCE_LEN},
		{h->tenant_nonce, WIRE_NONCE_LEN},
	};

	memcpy(h->session_uid, s->uid, sizeof(h->session_uid));
	crypto_random(h->tenant_nonce, sizeof(h->tenant_nonce));
	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), h->proof);
}

int raw_hello(int fd, const struct raw_session *s, enum ros2_status *ret_status, char words[257])
{
	struct wire_header h, out = {.opcode = WIRE_HELLO,
	                             .length = WIRE_FEATURES_KNOWN,
	                             .payload_len = sizeof(struct wire_hello)};
	AUTO_FREE uint8_t *payload = malloc(WIRE_IO_MAX);
	struct wire_hello hello;
	int rc = raw_receive(fd, &h, payload, 5000);

	if (rc || h.opcode != WIRE_CHALLENGE || h.payload_len != sizeof(struct wire_challenge))
		return rc ? rc : -EPROTO;
	raw_prove(s, payload, &hello);
	raw_seal(&out);
	rc = raw_send(fd, &out, &hello);
	if (!rc)
		rc = raw_receive(fd, &h, payload, 5000);
	if (rc)
		return rc;
	snprintf(words, 257, "%.*s", h.opcode == WIRE_NAK ? (int)MIN(h.payload_len, 256u) : 0,
	         (const char *)payload);
	*ret_status = h.opcode == WIRE_WELCOME ? ROS2_OK : (enum ros2_status)h.status;
	return h.opcode == WIRE_WELCOME || h.opcode == WIRE_NAK ? 0 : -EPROTO;
}

json_t *raw_message_json(const struct wire_header *h, const uint8_t *payload)
{
	json_t *j = json_pack("{s:s, s:s, s:I, s:s, s:I}", "from", "agent", "opcode",
	                      raw_opcode(h->opcode), "request_id", (json_int_t)h->request_id,
	                      "status", ros2_status_to_str((enum ros2_status)h->status), "length",
	                      (json_int_t)h->length);

	if (h->opcode == WIRE_NAK)
		json_object_set_new(
			j, "words",
			json_stringn((const char *)payload, MIN(h->payload_len, WIRE_WORDS_MAX)));
	else if (h->payload_len)
		json_object_set_new(j, "payload_bytes", json_integer(h->payload_len));
	return j;
}
