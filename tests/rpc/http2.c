/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/rpc/http2.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* RFC 9113: 3.4, 4.1, 6. */
#define PREFACE   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAME_LEN 9
enum frame {
	DATA,
	HEADERS,
	PRIORITY,
	RST_STREAM,
	SETTINGS,
	PING = 6,
	WINDOW_UPDATE = 8,
	CONTINUATION,
	NOBODY_KNOWS = 0x42
};
#define END_STREAM  1
#define END_HEADERS 4
#define ACK         1
#define CANCEL      8
#define BLOCK_MAX   512
#define AT_ONCE     100
#define PIECE_MAX   16384
#define PATIENCE_MS 10000

struct http2 {
	SSL_CTX *ctx;
	SSL *ssl;
	int fd;
	bool deaf;
	int record; /* bytes in one of TLS at most; 0: as many as it takes */
	uint32_t next_stream;
	uint8_t block[BLOCK_MAX]; /* the headers of each call */
	uint32_t block_len;
	uint8_t out[AT_ONCE * (BLOCK_MAX + 32)], *end; /* what is sent next */
};

static void frame(struct http2 *h, enum frame type, uint8_t flags, uint32_t stream,
                  const void *bytes, uint32_t len)
{
	const uint8_t head[FRAME_LEN] = {(uint8_t)(len >> 16),
	                                 (uint8_t)(len >> 8),
	                                 (uint8_t)len,
	                                 (uint8_t)type,
	                                 flags,
	                                 (uint8_t)(stream >> 24),
	                                 (uint8_t)(stream >> 16),
	                                 (uint8_t)(stream >> 8),
	                                 (uint8_t)stream};

	memcpy(h->end, head, sizeof(head));
	memcpy(h->end + sizeof(head), bytes, len);
	h->end += sizeof(head) + len;
}

/* RFC 7541, 6.2.2: not indexed, strings as they are. */
static void text(struct http2 *h, const char *s)
{
	size_t n = strlen(s);

	h->block[h->block_len++] = (uint8_t)n;
	memcpy(h->block + h->block_len, s, n);
	h->block_len += (uint32_t)n;
}

static void header(struct http2 *h, const char *name, const char *value)
{
	h->block[h->block_len++] = 0x00;
	text(h, name);
	text(h, value);
}

static void put_headers(struct http2 *h, const char *path)
{
	h->block[h->block_len++] = 0x83; /* :method POST */
	h->block[h->block_len++] = 0x87; /* :scheme https */
	h->block[h->block_len++] = 0x04; /* :path */
	text(h, path);
	h->block[h->block_len++] = 0x01; /* :authority */
	text(h, "localhost");
	header(h, "content-type", "application/grpc");
	header(h, "te", "trailers");
	header(h, "ros2-protocol", "1");
}

static int dial(const char *target, uint8_t host)
{
	struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
	const char *colon = strrchr(target, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	from.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~255u) + host);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(colon ? colon + 1 : "0"));
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&from, sizeof(from)) ||
	                connect(fd, (struct sockaddr *)&to, sizeof(to))))
		close(TAKE_FD(fd));
	return fd;
}

/* What the server says is dropped. False: it has ended the connection. */
static bool take(struct http2 *h)
{
	uint8_t in[16384];
	int n;

	do
		n = SSL_read(h->ssl, in, sizeof(in));
	while (n > 0);
	n = SSL_get_error(h->ssl, n);
	return n == SSL_ERROR_WANT_READ || n == SSL_ERROR_WANT_WRITE;
}

static int put(struct http2 *h)
{
	struct pollfd pfd = {.fd = h->fd, .events = POLLIN | POLLOUT};
	const uint8_t *p = h->out;

	while (p < h->end) {
		int n = (int)(h->end - p);
		int k = SSL_write(h->ssl, p, h->record ? MIN(n, h->record) : n);

		if (k > 0)
			p += k;
		if (!h->deaf && !take(h))
			return -EPIPE;
		if (k <= 0 && (SSL_get_error(h->ssl, k) == SSL_ERROR_SSL ||
		               SSL_get_error(h->ssl, k) == SSL_ERROR_SYSCALL))
			return -EPIPE;
		if (k <= 0 && poll(&pfd, 1, PATIENCE_MS) <= 0)
			return -EPIPE;
	}
	h->end = h->out;
	return 0;
}

static bool shake_hands(struct http2 *h, const char *cert, const char *key)
{
	h->ctx = SSL_CTX_new(TLS_client_method());
	if (!h->ctx || SSL_CTX_use_certificate_chain_file(h->ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(h->ctx, key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_set_alpn_protos(h->ctx, (const uint8_t *)"\x02h2", 3))
		return false;
	SSL_CTX_set_mode(h->ctx,
	                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	h->ssl = SSL_new(h->ctx);
	return h->ssl && SSL_set_fd(h->ssl, h->fd) == 1 && SSL_connect(h->ssl) == 1;
}

static bool cork(struct http2 *h, int on)
{
	return !setsockopt(h->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
}

/* And behind the handshake, in the same packet, so many frames of headers that have no end. */
static struct http2 *open_with(const char *target, uint8_t host, const char *cert, const char *key,
                               const char *path, unsigned pieces)
{
	struct http2 *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	h->next_stream = 1;
	h->end = h->out;
	h->fd = dial(target, host);
	put_headers(h, path);
	memcpy(h->end, PREFACE, strlen(PREFACE));
	h->end += strlen(PREFACE);
	frame(h, SETTINGS, 0, 0, "", 0);
	frame(h, SETTINGS, ACK, 0, "", 0); /* of what the server sets, whatever that is */
	for (unsigned i = 0; i < pieces; i++)
		frame(h, i ? CONTINUATION : HEADERS, 0, 1, "", 0);
	if (h->fd >= 0 && cork(h, pieces > 0) && shake_hands(h, cert, key) &&
	    fcntl(h->fd, F_SETFL, fcntl(h->fd, F_GETFL) | O_NONBLOCK) == 0 && !put(h) && cork(h, 0))
		return h;
	http2_close(h);
	return NULL;
}

struct http2 *http2_open(const char *target, uint8_t host, const char *cert, const char *key,
                         const char *path)
{
	return open_with(target, host, cert, key, path, 0);
}

struct http2 *http2_open_in_pieces(const char *target, uint8_t host, const char *cert,
                                   const char *key, unsigned n)
{
	return open_with(target, host, cert, key, "/", n);
}

/* ---- floods ---- */

static uint32_t begin_call(struct http2 *h, uint8_t flags)
{
	uint32_t stream = h->next_stream;

	h->next_stream += 2;
	frame(h, HEADERS, flags, stream, h->block, h->block_len);
	return stream;
}

/* The one of the floods that need one call. */
static uint32_t the_call(struct http2 *h, uint8_t flags)
{
	return h->next_stream > 1 ? h->next_stream - 2 : begin_call(h, flags);
}

static void reset(struct http2 *h)
{
	uint32_t stream = begin_call(h, END_HEADERS);

	frame(h, RST_STREAM, 0, stream, (const uint8_t[]){0, 0, 0, CANCEL}, 4);
}

static void call(struct http2 *h)
{
	begin_call(h, END_HEADERS);
}

static void ping(struct http2 *h)
{
	frame(h, PING, 0, 0, "12345678", 8);
}

static void setting(struct http2 *h)
{
	frame(h, SETTINGS, 0, 0, (const uint8_t[]){0, 4, 0, 0, 0xff, 0xff}, 6); /* its window */
}

static void empty(struct http2 *h)
{
	frame(h, DATA, 0, the_call(h, END_HEADERS), "", 0);
}

static void continuation(struct http2 *h)
{
	static const char more[] = "\0\4more\4more";

	frame(h, CONTINUATION, 0, the_call(h, 0), more, sizeof(more) - 1);
}

static void window(struct http2 *h)
{
	frame(h, WINDOW_UPDATE, 0, 0, (const uint8_t[]){0, 0, 0, 1}, 4);
}

static void priority(struct http2 *h)
{
	frame(h, PRIORITY, 0, the_call(h, END_HEADERS), (const uint8_t[]){0, 0, 0, 0, 1}, 5);
}

static void unknown(struct http2 *h)
{
	frame(h, NOBODY_KNOWS, 0, 0, "whatever", 8);
}

/* With an empty message, which is answered: not a byte of that may be sent. */
static void unread(struct http2 *h)
{
	if (h->next_stream == 1)
		frame(h, SETTINGS, 0, 0, (const uint8_t[]){0, 4, 0, 0, 0, 0}, 6);
	frame(h, DATA, END_STREAM, begin_call(h, END_HEADERS), "\0\0\0\0", 5);
}

static const struct {
	const char *name;
	void (*put)(struct http2 *h);
} floods[HTTP2_FLOODS] = {
	[HTTP2_RESETS] = {"resets", reset},
	[HTTP2_CALLS] = {"begun", call},
	[HTTP2_PINGS] = {"pings", ping},
	[HTTP2_SETTINGS] = {"settings", setting},
	[HTTP2_EMPTY] = {"empty", empty},
	[HTTP2_CONTINUATIONS] = {"continuations", continuation},
	[HTTP2_WINDOWS] = {"windows", window},
	[HTTP2_PRIORITIES] = {"priorities", priority},
	[HTTP2_UNKNOWN] = {"unknown", unknown},
	[HTTP2_UNREAD] = {"answers", unread},
};

enum http2_flood http2_find(const char *name)
{
	enum http2_flood k = 0;

	while (k < HTTP2_FLOODS && strcmp(floods[k].name, name))
		k++;
	return k;
}

int http2_send(struct http2 *h, enum http2_flood kind, unsigned n)
{
	int rc = 0;

	for (unsigned i = 0; i < n && !rc; i++) {
		floods[kind].put(h);
		if (i % AT_ONCE == AT_ONCE - 1 || i == n - 1)
			rc = put(h);
	}
	return rc;
}

/* RFC 7541, 5.1, with a prefix of seven bits. @n is at least 127. */
static size_t length(uint8_t *out, uint8_t bit, uint32_t n)
{
	size_t at = 0;

	out[at++] = bit | 0x7f;
	for (n -= 0x7f; n >= 0x80; n >>= 7)
		out[at++] = (uint8_t)(n | 0x80);
	out[at++] = (uint8_t)n;
	return at;
}

/* Huffman's code of '0' is five zero bits (RFC 7541, appendix B). */
static int put_name(struct http2 *h, uint32_t len)
{
	static const uint8_t zeroes[PIECE_MAX];
	uint8_t begin[8] = {0x00};
	size_t n = 1 + length(begin + 1, 0x80, len);
	int rc = 0;

	frame(h, HEADERS, 0, h->next_stream, begin, (uint32_t)n);
	for (uint32_t left = len, k; left && !rc; left -= k) {
		k = left < PIECE_MAX ? left : PIECE_MAX;
		frame(h, CONTINUATION, 0, h->next_stream, zeroes, k);
		rc = put(h);
	}
	return rc;
}

int http2_send_pieces(struct http2 *h, uint32_t name, unsigned n)
{
	uint8_t begin[8];
	int rc = put_name(h, name);

	frame(h, CONTINUATION, 0, h->next_stream, begin,
	      (uint32_t)length(begin, 0, 1u << 24)); /* of its value */
	for (unsigned i = 0; i < n && !rc; i++) {
		frame(h, CONTINUATION, 0, h->next_stream, "x", 1);
		if (i % AT_ONCE == AT_ONCE - 1 || i == n - 1)
			rc = put(h);
	}
	return rc;
}

int http2_call_in(struct http2 *h, uint32_t frames)
{
	uint32_t each = h->block_len / frames, at = 0;

	for (uint32_t i = 0; i < frames; i++) {
		uint32_t n = i == frames - 1 ? h->block_len - at : each;

		frame(h, i ? CONTINUATION : HEADERS, i == frames - 1 ? END_HEADERS : 0,
		      h->next_stream, h->block + at, n);
		at += n;
	}
	h->next_stream += 2;
	return put(h);
}

void http2_cut(struct http2 *h, int bytes)
{
	h->record = bytes;
}

void http2_deafen(struct http2 *h)
{
	int bytes = 4096;

	setsockopt(h->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	h->deaf = true;
}

int http2_call_unread(struct http2 *h, const void *message, uint32_t n)
{
	uint8_t body[5 + BLOCK_MAX] = {0, 0, 0, (uint8_t)(n >> 8), (uint8_t)n};
	uint32_t stream;

	if (n > BLOCK_MAX)
		abort();
	memcpy(body + 5, message, n);
	frame(h, SETTINGS, 0, 0, (const uint8_t[]){0, 4, 0, 0, 0, 0}, 6);
	stream = begin_call(h, END_HEADERS);
	frame(h, DATA, END_STREAM, stream, body, 5 + n);
	return put(h);
}

void http2_close(struct http2 *h)
{
	if (!h)
		return;
	SSL_free(h->ssl);
	SSL_CTX_free(h->ctx);
	if (h->fd >= 0)
		close(h->fd);
	free(h);
}

bool http2_arrived(const struct http2 *h)
{
	int n = 0;

	return !ioctl(h->fd, SIOCOUTQ, &n) && !n;
}
