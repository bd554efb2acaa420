/* SPDX-License-Identifier: Apache-2.0 */
/* The raw client: one blocking socket, headers by hand. */
#include "common/crypto.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

uint32_t raw_features;

void raw_open_as(struct fx *fx, struct raw *c, const struct ros2_uid *tenant,
                 const struct ros2_uid *grant, uint64_t cert_deadline_ns)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = *tenant,
	                    .grant = *grant,
	                    .a = cert_deadline_ns};
	struct dp_result res = fx_do(fx, FX_OPEN_SESSION, &a);

	if (res.status != ROS2_OK)
		fail_msg("open session: %s: %s", ros2_status_to_str(res.status), res.words);
	*c = (struct raw){.fx = fx, .session = a.session, .port = res.session.port, .fd = -1};
	memcpy(c->secret, res.session.secret, sizeof(c->secret));
	assert_int_equal(res.session.max_inline, WIRE_INLINE_MAX);
}

void raw_open(struct fx *fx, struct raw *c)
{
	raw_open_as(fx, c, &fx->tenant, &fx->grant, UINT64_MAX);
}

/* After a connect that failed or was interrupted; then errno is why. libFuzzer's watch over the
 * time of an input is a signal every few seconds, and calls of sockets with a timeout are not
 * restarted. */
static bool connected(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(errno);
	int n;

	if (errno != EINTR)
		return false;
	do {
		n = poll(&p, 1, AWAIT_MS);
	} while (n < 0 && errno == EINTR);
	errno = ETIMEDOUT;
	if (n > 0)
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &len);
	return errno == 0;
}

int raw_connect_port(uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval limit = {.tv_sec = AWAIT_S};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 && !connected(fd)))
		fail_msg("%s to 127.0.0.1:%u: %s", fd < 0 ? "socket for a connection" : "connect",
		         port, strerror(errno));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	/* A header and its payload are two sends: the second waits for no acknowledgement. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void proof(const struct raw *c, const char *label, size_t n, const struct wire_hello *h,
                  const uint8_t *nonce, uint8_t out[WIRE_MAC_LEN])
{
	struct crypto_span parts[] = {
		{label, n}, {h->session_uid, 16}, {nonce, WIRE_NONCE_LEN}, {h->tenant_nonce, 32}};

	crypto_hmac_sha256v(c->secret, sizeof(c->secret), parts, 4, out);
}

void raw_prove(const struct raw *c, const uint8_t agent_nonce[WIRE_NONCE_LEN],
               const struct wire_hello *h, uint8_t ret[WIRE_MAC_LEN])
{
	proof(c, "ros2-wire-1 tenant", 19, h, agent_nonce, ret);
}

void raw_hello(struct raw *c, const uint8_t agent_nonce[WIRE_NONCE_LEN], struct wire_hello *ret)
{
	memcpy(ret->session_uid, c->session.b, 16);
	crypto_random(ret->tenant_nonce, sizeof(ret->tenant_nonce));
	raw_prove(c, agent_nonce, ret, ret->proof);
}

void raw_connect(struct raw *c)
{
	struct wire_header h;
	struct wire_hello hello;
	struct wire_welcome w;
	uint8_t nonce[WIRE_NONCE_LEN], want[WIRE_MAC_LEN];

	c->fd = raw_connect_port(c->port);
	assert_true(raw_recv(c, &h, nonce, sizeof(nonce)));
	assert_int_equal(h.opcode, WIRE_CHALLENGE);
	raw_hello(c, nonce, &hello);
	h = (struct wire_header){.opcode = WIRE_HELLO, .length = raw_features};
	raw_send(c, &h, &hello, sizeof(hello));
	assert_true(raw_recv(c, &h, &w, sizeof(w)));
	assert_int_equal(h.opcode, WIRE_WELCOME);
	assert_int_equal(w.features, raw_features & WIRE_FEATURE_CLEAR);
	proof(c, "ros2-wire-1 agent", 18, &hello, nonce, want);
	assert_memory_equal(w.proof, want, sizeof(want));
}

uint32_t raw_register(struct raw *c, uint64_t base, uint64_t length, uint32_t access)
{
	struct fx_args a = {.session = c->session, .a = base, .b = length, .flags = access};
	struct dp_result res = fx_do(c->fx, FX_REGISTER, &a);

	if (res.status != ROS2_OK)
		fail_msg("register: %s: %s", ros2_status_to_str(res.status), res.words);
	c->generation = res.region.generation;
	return res.region.key;
}

void raw_file(struct raw *c, const char *path)
{
	struct fx_args a = {.session = c->session, .to = "ram", .path = "ns", .flags = 3};
	struct dp_result res = fx_do(c->fx, FX_MOUNT, &a);

	if (res.status != ROS2_OK)
		fail_msg("mount: %s", res.words);
	a.mount = res.mount.mount;
	a.path = path;
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	res = fx_do(c->fx, FX_OPEN, &a);
	if (res.status != ROS2_OK)
		fail_msg("open: %s", res.words);
	c->handle = res.open.handle;
}

void raw_ready(struct fx *fx, struct raw *c)
{
	raw_open(fx, c);
	raw_connect(c);
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, 4u << 20, 3);
}

void raw_close(struct raw *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

struct wire_header raw_header(struct raw *c, enum wire_opcode op, uint64_t offset, uint64_t address,
                              uint32_t length)
{
	return (struct wire_header){.opcode = (uint8_t)op,
	                            .request_id = ++c->next_id,
	                            .handle = c->handle,
	                            .offset = offset,
	                            .address = address,
	                            .length = length,
	                            .key = c->key};
}

/* Errors are of no interest: what matters is what comes back. */
void raw_send_bytes(struct raw *c, const void *p, size_t n)
{
	const uint8_t *at = p;

	while (n) {
		ssize_t k = send(c->fd, at, n, MSG_NOSIGNAL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return;
		at += k;
		n -= (size_t)k;
	}
}

void raw_seal(struct wire_header *h, uint32_t payload_len)
{
	h->magic = WIRE_MAGIC;
	h->version = WIRE_VERSION;
	h->payload_len = payload_len;
	h->header_crc = crypto_crc32c(h, offsetof(struct wire_header, header_crc));
}

void raw_send(struct raw *c, struct wire_header *h, const void *payload, uint32_t len)
{
	raw_seal(h, len);
	raw_send_bytes(c, h, sizeof(*h));
	raw_send_bytes(c, payload, len);
}

static bool recv_all(int fd, void *p, size_t n)
{
	uint8_t *at = p;

	while (n) {
		ssize_t k = recv(fd, at, n, MSG_WAITALL);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		at += k;
		n -= (size_t)k;
	}
	return true;
}

bool raw_recv_bytes(struct raw *c, void *p, size_t n)
{
	return recv_all(c->fd, p, n);
}

ssize_t raw_recv_end(struct raw *c)
{
	uint8_t junk[16384];
	ssize_t n;

	do {
		n = recv(c->fd, junk, sizeof(junk), 0);
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n;
}

bool raw_recv(struct raw *c, struct wire_header *h, void *payload, size_t max)
{
	if (!recv_all(c->fd, h, sizeof(*h)))
		return false;
	assert_int_equal(h->magic, WIRE_MAGIC);
	assert_int_equal(h->header_crc, crypto_crc32c(h, offsetof(struct wire_header, header_crc)));
	assert_true(h->payload_len <= max);
	return recv_all(c->fd, payload, h->payload_len);
}

enum ros2_status raw_read(struct raw *c, uint64_t offset, void *buf, uint32_t len,
                          uint32_t *ret_done)
{
	struct wire_header h = raw_header(c, WIRE_READ, offset, FX_BASE, len), in;
	uint8_t words[WIRE_WORDS_MAX];

	raw_send(c, &h, NULL, 0);
	if (!recv_all(c->fd, &in, sizeof(in)))
		return ROS2_CLOSED;
	if (in.opcode == WIRE_DATA) {
		assert_int_equal(in.request_id, h.request_id);
		assert_int_equal(in.key, c->key);
		assert_int_equal(in.address, FX_BASE);
		assert_true(in.payload_len <= len);
		if (!recv_all(c->fd, buf, in.payload_len) ||
		    !raw_recv(c, &in, words, sizeof(words)))
			return ROS2_CLOSED;
	} else if (!recv_all(c->fd, words, in.payload_len)) {
		return ROS2_CLOSED;
	}
	assert_int_equal(in.request_id, h.request_id);
	if (ret_done)
		*ret_done = in.length;
	return in.status;
}

enum ros2_status raw_write(struct raw *c, uint64_t offset, const void *buf, uint32_t len,
                           bool in_capsule)
{
	struct wire_header h = raw_header(c, WIRE_WRITE, offset, FX_BASE, len), in, data;
	uint8_t words[WIRE_WORDS_MAX];

	h.flags = in_capsule ? WIRE_F_INLINE : 0;
	raw_send(c, &h, buf, in_capsule ? len : 0);
	if (!raw_recv(c, &in, words, sizeof(words)))
		return ROS2_CLOSED;
	if (in.opcode == WIRE_PULL) {
		assert_false(in_capsule);
		assert_int_equal(in.length, len);
		data = in;
		data.opcode = WIRE_DATA;
		raw_send(c, &data, buf, len);
		if (!raw_recv(c, &in, words, sizeof(words)))
			return ROS2_CLOSED;
	}
	assert_int_equal(in.request_id, h.request_id);
	return in.status;
}

enum ros2_status raw_flush(struct raw *c)
{
	struct wire_header h = raw_header(c, WIRE_FLUSH, 0, 0, 0), in;
	uint8_t words[WIRE_WORDS_MAX];

	raw_send(c, &h, NULL, 0);
	return raw_recv(c, &in, words, sizeof(words)) ? in.status : ROS2_CLOSED;
}

enum ros2_status raw_clear(struct raw *c, enum wire_opcode op, uint64_t offset, uint32_t len)
{
	struct wire_header h = raw_clear_header(c, op, offset, len), in;
	uint8_t words[WIRE_WORDS_MAX];

	raw_send(c, &h, NULL, 0);
	if (!raw_recv(c, &in, words, sizeof(words)))
		return ROS2_CLOSED;
	assert_int_equal(in.request_id, h.request_id);
	assert_int_equal(in.opcode == WIRE_COMPLETE ? in.length : 0,
	                 in.status == ROS2_OK ? len : 0);
	return in.status;
}

struct wire_header raw_clear_header(struct raw *c, enum wire_opcode op, uint64_t offset,
                                    uint32_t len)
{
	struct wire_header h = raw_header(c, op, offset, 0, len);

	h.key = 0;
	return h;
}

void raw_bye_unread(struct fx *fx, struct raw *c)
{
	static const uint8_t file[WIRE_IO_MAX];
	struct wire_header both[2];

	raw_ready(fx, c);
	assert_int_equal(raw_write(c, 0, file, sizeof(file), false), ROS2_OK);
	both[0] = raw_header(c, WIRE_READ, 0, FX_BASE, sizeof(file));
	both[1] = raw_header(c, WIRE_BYE, 0, 0, 0);
	for (int i = 0; i < 2; i++)
		raw_seal(&both[i], 0);
	raw_send_bytes(c, both, sizeof(both));
	assert_true(AWAIT(fx_has_read(fx, &c->session, 1)));
}

void raw_expect_nak(struct raw *c, struct wire_header *h, enum ros2_status want)
{
	struct wire_header in;
	char words[WIRE_WORDS_MAX + 1] = {0};

	raw_send(c, h, NULL, 0);
	assert_true(raw_recv(c, &in, words, WIRE_WORDS_MAX));
	assert_int_equal(in.opcode, WIRE_NAK);
	assert_string_equal(ros2_status_to_str(in.status), ros2_status_to_str(want));
	assert_int_equal(in.request_id, h->request_id);
	assert_true(strlen(words) > 0);
}

void raw_expect_end(struct raw *c)
{
	if (raw_recv_end(c) < 0)
		assert_int_equal(errno, ECONNRESET);
}
