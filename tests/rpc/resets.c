/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rpc/resets.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* RFC 9113: 3.4, 4.1, 6. */
#define PREFACE       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAME_LEN     9
#define FRAME_HEADERS 1
#define FRAME_RESET   3
#define FRAME_SET     4
#define END_HEADERS   4
#define ACK           1
#define CANCEL        8
#define CALL_MAX      512
#define AT_ONCE       100
#define PATIENCE_MS   10000

struct resets {
	SSL_CTX *ctx;
	SSL *ssl;
	int fd;
	uint32_t next_stream;
	uint8_t block[CALL_MAX]; /* the headers of each call */
	size_t block_len;
	uint8_t out[AT_ONCE * (CALL_MAX + 32)];
};

static void frame(uint8_t **p, uint32_t len, uint8_t type, uint8_t flags, uint32_t stream)
{
	const uint8_t head[FRAME_LEN] = {(uint8_t)(len >> 16),
	                                 (uint8_t)(len >> 8),
	                                 (uint8_t)len,
	                                 type,
	                                 flags,
	                                 (uint8_t)(stream >> 24),
	                                 (uint8_t)(stream >> 16),
	                                 (uint8_t)(stream >> 8),
	                                 (uint8_t)stream};

	memcpy(*p, head, sizeof(head));
	*p += sizeof(head);
}

/* RFC 7541, 6.2.2: not indexed, strings as they are. */
static void text(struct resets *r, const char *s)
{
	size_t n = strlen(s);

	r->block[r->block_len++] = (uint8_t)n;
	memcpy(r->block + r->block_len, s, n);
	r->block_len += n;
}

static void put_headers(struct resets *r, const char *path)
{
	r->block[r->block_len++] = 0x83; /* :method POST */
	r->block[r->block_len++] = 0x87; /* :scheme https */
	r->block[r->block_len++] = 0x04; /* :path */
	text(r, path);
	r->block[r->block_len++] = 0x01; /* :authority */
	text(r, "localhost");
	r->block[r->block_len++] = 0x00;
	text(r, "content-type");
	text(r, "application/grpc");
	r->block[r->block_len++] = 0x00;
	text(r, "te");
	text(r, "trailers");
	r->block[r->block_len++] = 0x00;
	text(r, "ros2-protocol");
	text(r, "1");
}

static int dial(const char *target)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	const char *colon = strrchr(target, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : "0"));
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	                connect(fd, (struct sockaddr *)&to, sizeof(to))))
		close(TAKE_FD(fd));
	return fd;
}

/* What the server says is dropped. False: it has ended the connection. */
static bool take(struct resets *r)
{
	uint8_t in[16384];
	int n;

	do
		n = SSL_read(r->ssl, in, sizeof(in));
	while (n > 0);
	n = SSL_get_error(r->ssl, n);
	return n == SSL_ERROR_WANT_READ || n == SSL_ERROR_WANT_WRITE;
}

static int put(struct resets *r, const uint8_t *p, size_t n)
{
	struct pollfd pfd = {.fd = r->fd, .events = POLLIN | POLLOUT};

	while (n) {
		int k = SSL_write(r->ssl, p, (int)n);

		if (k > 0) {
			p += k;
			n -= (size_t)k;
		}
		if (!take(r))
			return -EPIPE;
		if (k <= 0 && (SSL_get_error(r->ssl, k) == SSL_ERROR_SSL ||
		               SSL_get_error(r->ssl, k) == SSL_ERROR_SYSCALL))
			return -EPIPE;
		if (k <= 0 && poll(&pfd, 1, PATIENCE_MS) <= 0)
			return -EPIPE;
	}
	return 0;
}

static bool shake_hands(struct resets *r, const char *cert, const char *key)
{
	r->ctx = SSL_CTX_new(TLS_client_method());
	if (!r->ctx || SSL_CTX_use_certificate_chain_file(r->ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(r->ctx, key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_set_alpn_protos(r->ctx, (const uint8_t *)"\x02h2", 3))
		return false;
	SSL_CTX_set_mode(r->ctx,
	                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	r->ssl = SSL_new(r->ctx);
	return r->ssl && SSL_set_fd(r->ssl, r->fd) == 1 && SSL_connect(r->ssl) == 1;
}

struct resets *resets_open(const char *target, const char *cert, const char *key, const char *path)
{
	struct resets *r = calloc(1, sizeof(*r));
	uint8_t hello[64], *p = hello;

	if (!r)
		abort();
	r->next_stream = 1;
	r->fd = dial(target);
	put_headers(r, path);
	memcpy(p, PREFACE, strlen(PREFACE));
	p += strlen(PREFACE);
	frame(&p, 0, FRAME_SET, 0, 0);
	frame(&p, 0, FRAME_SET, ACK, 0); /* of what the server sets, whatever that is */
	if (r->fd >= 0 && shake_hands(r, cert, key) &&
	    fcntl(r->fd, F_SETFL, fcntl(r->fd, F_GETFL) | O_NONBLOCK) == 0 &&
	    !put(r, hello, (size_t)(p - hello)))
		return r;
	resets_close(r);
	return NULL;
}

int resets_send(struct resets *r, unsigned n)
{
	while (n) {
		unsigned now = MIN(n, (unsigned)AT_ONCE);
		uint8_t *p = r->out;
		int rc;

		for (unsigned i = 0; i < now; i++, r->next_stream += 2) {
			frame(&p, (uint32_t)r->block_len, FRAME_HEADERS, END_HEADERS,
			      r->next_stream);
			memcpy(p, r->block, r->block_len);
			p += r->block_len;
			frame(&p, 4, FRAME_RESET, 0, r->next_stream);
			memcpy(p, (const uint8_t[4]){0, 0, 0, CANCEL}, 4);
			p += 4;
		}
		rc = put(r, r->out, (size_t)(p - r->out));
		if (rc)
			return rc;
		n -= now;
	}
	return 0;
}

void resets_close(struct resets *r)
{
	if (!r)
		return;
	SSL_free(r->ssl);
	SSL_CTX_free(r->ctx);
	if (r->fd >= 0)
		close(r->fd);
	free(r);
}
