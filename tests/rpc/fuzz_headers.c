/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the caller of a listener sends, followed (headers.c) and handed on (ssl.c), beside a model
 * that has all of it before it and knows only what the contract says. Claims: both see the same
 * piece as the first that is too much, and everything behind it is, too; of what came a prefix is
 * handed on, to that piece, and all where nobody is served.
 *
 * The first byte says how (enum mode), the second how much is read at once. Then parts: a byte of
 * how many follow, or (FILL) with another of how many that are all the same; LAST ends a record.
 */
#include "proto/rpc/headers_priv.h"
#include "common/util.h"
#include "proto/rpc/rpc_priv.h"
#include "tests/fuzz/fuzz.h"
#include <openssl/ssl.h>

enum mode {
	BY_TLS = 1,
	BARE = 2,   /* the preface is the caller's own */
	BEHIND = 4, /* each record is read of the socket after the one before it */
	SERVED = 8, /* by TLS: the bytes come from a server */
};

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FILL    0x40
#define LAST    0x80
#define RECORD  16384 /* of TLS, at most */
#define NEVER   SIZE_MAX
#define THE_FD  7

static struct {
	uint8_t bytes[1 << 17];
	size_t n;
	size_t records[4096]; /* where each ends */
	size_t n_records;
	size_t pieces[4096]; /* and each that is read */
	size_t n_pieces;
} in;

/* ---- what is sent ---- */

static void end_record(void)
{
	size_t begin = in.n_records ? in.records[in.n_records - 1] : 0;

	if (in.n > begin)
		in.records[in.n_records++] = in.n;
}

/* False: it is full. */
static bool send_part(const uint8_t *bytes, uint8_t fill, size_t n)
{
	size_t begin = in.n_records ? in.records[in.n_records - 1] : 0;

	if (in.n + n > sizeof(in.bytes) || in.n_records + 2 > ARRAY_SIZE(in.records))
		return false;
	if (in.n + n - begin > RECORD)
		end_record();
	if (bytes)
		memcpy(in.bytes + in.n, bytes, n);
	else
		memset(in.bytes + in.n, fill, n);
	in.n += n;
	return true;
}

static void cut(size_t each)
{
	size_t at = 0;

	in.n_pieces = 0;
	for (size_t i = 0; i < in.n_records; i++)
		while (at < in.records[i] && in.n_pieces < ARRAY_SIZE(in.pieces)) {
			at = MIN(at + each, in.records[i]);
			in.pieces[in.n_pieces++] = at;
		}
	in.n = at; /* the rest of a long one is left away */
	while (in.n_records && in.records[in.n_records - 1] > at)
		in.n_records--;
	if (at && (!in.n_records || in.records[in.n_records - 1] < at))
		in.records[in.n_records++] = at;
}

static void read_input(uint8_t mode, const uint8_t *p, size_t n)
{
	bool room = true;
	uint8_t op;
	size_t k;

	in.n = in.n_records = 0;
	if (!(mode & BARE))
		send_part((const uint8_t *)PREFACE, 0, strlen(PREFACE));
	while (n && room) {
		op = *p;
		p++, n--;
		if (op & FILL && n) {
			k = (size_t)(op & 0x3f) << 8 | *p;
			p++, n--;
			room = send_part(NULL, 1, k);
		} else {
			k = MIN((size_t)(op & 0x3f), n);
			room = send_part(p, 0, k);
			p += k, n -= k;
		}
		if (op & LAST)
			end_record();
	}
	end_record();
}

/* ---- the model ---- */

struct model {
	size_t piece; /* the next that has not begun where it looks */
	unsigned pieces;
};

static size_t begin_of(size_t piece)
{
	return piece ? in.pieces[piece - 1] : 0;
}

/* A block was open for these bytes: a piece that begins in them is one more of it. Where it was one
 * too many, or NEVER. */
static size_t open_for(struct model *m, size_t from, size_t to)
{
	while (m->piece < in.n_pieces && begin_of(m->piece) < from)
		m->piece++;
	for (; m->piece < in.n_pieces && begin_of(m->piece) < to; m->piece++)
		if (++m->pieces > RPC_HEADERS_PIECES)
			return begin_of(m->piece);
	return NEVER;
}

/* The first byte that is too much. */
static size_t too_much(void)
{
	size_t at = strlen(PREFACE), open = NEVER, bytes = 0, over, body, len;
	struct model m = {0};

	for (; at + 9 <= in.n; at = body + len) {
		const uint8_t *head = in.bytes + at;

		body = at + 9;
		len = (size_t)head[0] * 65536 + (size_t)head[1] * 256 + head[2];
		if (head[3] != 1 && head[3] != 9)
			continue;
		over = open == NEVER ? NEVER : open_for(&m, open, body);
		if (over != NEVER)
			return over;
		if (head[3] == 1)
			m.pieces = 0, bytes = 0;
		bytes += len;
		if (++m.pieces > RPC_HEADERS_PIECES || bytes > RPC_HEADERS_MAX)
			return body - 1;
		open = body;
		if (!(head[4] & 4))
			continue;
		over = open_for(&m, body, body + len);
		if (over != NEVER)
			return over;
		open = NEVER;
	}
	return open == NEVER ? NEVER : open_for(&m, open, in.n);
}

/* Where the first piece begins that is too much; all there is: none. */
static size_t good(void)
{
	size_t over = too_much(), i = 0;

	while (i < in.n_pieces && in.pieces[i] <= over)
		i++;
	return i < in.n_pieces ? begin_of(i) : in.n;
}

/* ---- followed ---- */

static void follow_all(void)
{
	struct rpc_headers h = {0}, whole = {0};
	size_t at = 0, end = good();
	bool ok;

	for (size_t i = 0; i < in.n_pieces; at = in.pieces[i++]) {
		uint8_t *own = malloc(in.pieces[i] - at); /* a byte too many is seen */

		must(own != NULL);
		memcpy(own, in.bytes + at, in.pieces[i] - at);
		ok = rpc_headers_follow(&h, own, in.pieces[i] - at);
		must(ok == (in.pieces[i] <= end));
		must(!ok || (h.block <= RPC_HEADERS_MAX && h.pieces <= RPC_HEADERS_PIECES));
		free(own);
	}
	/* Fewer pieces are never worse. */
	must(rpc_headers_follow(&whole, in.bytes, in.n) || end < in.n);
}

/* ---- handed on ---- */

static uint64_t received; /* of the socket, as gate.c counts */
static unsigned told;     /* that a connection ends */

uint64_t __wrap_rpc_gate_last(int *ret_fd);
uint64_t __wrap_rpc_gate_last(int *ret_fd)
{
	*ret_fd = THE_FD;
	return received;
}

void __wrap_rpc_gate_headers(int fd);
void __wrap_rpc_gate_headers(int fd)
{
	must(fd == THE_FD);
	told++;
}

static unsigned key_of_client(SSL *ssl, const char *hint, char *ret_name, unsigned max_name,
                              unsigned char *ret_key, unsigned max_key)
{
	must(max_name > 1 && max_key >= 16);
	memcpy(ret_name, "c", 2);
	memset(ret_key, 1, 16);
	return 16;
}

static unsigned key_of_server(SSL *ssl, const char *name, unsigned char *ret_key, unsigned max_key)
{
	must(max_key >= 16);
	memset(ret_key, 1, 16);
	return 16;
}

/* By a key that both know, without a certificate: that is quick. */
static SSL_CTX *context(const SSL_METHOD *method)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	must(ctx && rpc_ssl_init());
	must(SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION) == 1);
	must(SSL_CTX_set_cipher_list(ctx, "PSK-AES128-GCM-SHA256") == 1);
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_psk_client_callback(ctx, key_of_client);
	SSL_CTX_set_psk_server_callback(ctx, key_of_server);
	return ctx;
}

struct pair {
	SSL *client, *server;
};

static void pair_init(struct pair *p)
{
	static SSL_CTX *client, *server;
	BIO *up = BIO_new(BIO_s_mem()), *down = BIO_new(BIO_s_mem());
	int done = 0;

	if (!client) {
		client = context(TLS_client_method());
		server = context(TLS_server_method());
	}
	*p = (struct pair){SSL_new(client), SSL_new(server)};
	must(up && down && p->client && p->server && BIO_up_ref(up) && BIO_up_ref(down));
	SSL_set_bio(p->client, down, up);
	SSL_set_bio(p->server, up, down);
	SSL_set_connect_state(p->client);
	SSL_set_accept_state(p->server);
	for (int i = 0; i < 4 && done != 2; i++)
		done = (SSL_do_handshake(p->client) == 1) + (SSL_do_handshake(p->server) == 1);
	must(done == 2);
}

static void pair_fini(struct pair *p)
{
	SSL_free(p->client);
	SSL_free(p->server);
}

/* All there is now. How much is handed on. */
static size_t read_all(SSL *to, size_t at, size_t each, bool *ret_ended)
{
	uint8_t *buf = malloc(each);
	size_t n = 0;
	int got;

	must(buf != NULL);
	while ((got = SSL_read(to, buf, (int)each)) > 0) {
		must((size_t)got <= each && at + n + (size_t)got <= in.n);
		must(!memcmp(buf, in.bytes + at + n, (size_t)got));
		n += (size_t)got;
	}
	/* What gRPC makes of it: it waits for more, or the connection is over. */
	*ret_ended = SSL_get_error(to, got) != SSL_ERROR_WANT_READ;
	free(buf);
	return n;
}

static void hand_on(uint8_t mode, size_t each)
{
	size_t at = 0, sent = 0, end = mode & SERVED ? in.n : good();
	bool ended = false, known;
	struct pair p;

	pair_init(&p);
	received = told = 0;
	for (size_t i = 0; i < in.n_records && !ended; sent = in.records[i++]) {
		int n = (int)(in.records[i] - sent);

		if (mode & BEHIND)
			received++;
		must(SSL_write(mode & SERVED ? p.server : p.client, in.bytes + sent, n) == n);
		at += read_all(mode & SERVED ? p.client : p.server, at, each, &ended);
		must(at == MIN(end, in.records[i]));
		/* Of what came first nobody knows the socket. */
		known = i && mode & BEHIND;
		must(ended == (known && in.records[i] > end) && told == ended);
	}
	pair_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t each;

	if (size < 2)
		return 0;
	each = data[1] ? (size_t)data[1] * 65 : RECORD;
	read_input(data[0], data + 2, size - 2);
	if (data[0] & BY_TLS) {
		cut(each);
		hand_on(data[0], each);
	} else {
		cut(data[1] ? data[1] : RECORD);
		follow_all();
	}
	return 0;
}
