/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between gRPC and OpenSSL. What gate.c lets through is encrypted; gRPC decrypts it by SSL_read(3),
 * and an executable's function of that name is taken before libssl's, like its recvmsg(2). This one
 * follows what callers send (headers.c): where that is too much, nothing more of it is handed on,
 * and their connection ends. Where libssl is linked in, too (preset static), there is nothing to be
 * taken before: the linker gives gRPC this one (--wrap).
 *
 * And what OpenSSL has by default, and gRPC gives nobody a way to change: it shows each new
 * connection to who has asked for a place at it (CRYPTO_EX_new), and there it is set. Of a peer's
 * certificates it takes 100 KiB, which it parses before anything is known of who that is, and keeps
 * as long as the connection is there, parsed and as text: of the least ones that is hundreds.
 * And whom it has let in it would let in again by a ticket, or by what it keeps of him: that is
 * 20480 of them, with their certificates, for two hours. Who comes so shows his own certificate and
 * none that leads from it to a CA, so nobody could judge him when the CAs change (trust.c). Each
 * connection is a handshake of its own.
 */
#include "proto/rpc/headers_priv.h"
#include "proto/rpc/rpc_priv.h"
#include <dlfcn.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#define CERTS_MAX 16384 /* encoded: a chain of five has about half of it */

/* ---- each connection ---- */

/* Of one, for as long as its SSL is there; gRPC reads it on one thread at a time. */
struct seen {
	struct rpc_headers headers;
	uint64_t first; /* rpc_gate_last of its first bytes */
};

static atomic_int place = -1; /* of a struct seen at its SSL */

static void set(void *parent, void *unused, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
	SSL_set_max_cert_list(parent, CERTS_MAX);
	SSL_set_options(parent, SSL_OP_NO_TICKET);
	SSL_set_num_tickets(parent, 0); /* TLS 1.3 has others */
}

/* Of all connections by it: TLS 1.2 without tickets. */
static void keep_none(void *parent, void *unused, CRYPTO_EX_DATA *ad, int idx, long argl,
                      void *argp)
{
	SSL_CTX_set_session_cache_mode(parent, SSL_SESS_CACHE_OFF);
}

static void drop(void *parent, void *seen, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
	if (seen)
		rpc_tsan_acquire(seen); /* what was read of it last */
	free(seen);
}

bool rpc_ssl_init(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool is;

	pthread_mutex_lock(&lock);
	if (place < 0 && SSL_CTX_get_ex_new_index(0, NULL, keep_none, NULL, NULL) >= 0)
		place = SSL_get_ex_new_index(0, NULL, set, NULL, drop);
	is = place >= 0;
	pthread_mutex_unlock(&lock);
	return is;
}

/* NULL: no memory. */
static struct seen *seen_of(SSL *ssl)
{
	struct seen *s = SSL_get_ex_data(ssl, place);
	int fd;

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->first = rpc_gate_last(&fd);
	if (SSL_set_ex_data(ssl, place, s) == 1)
		return s;
	free(s);
	return NULL;
}

/* ---- SSL_read(3) ---- */

#ifdef ROS2_SSL_WRAPPED
/* Weak: programs with libros2, which serves nobody, are linked without the wrapper. */
int __real_SSL_read(SSL *ssl, void *buf, int n) __attribute__((weak));
int __wrap_SSL_read(SSL *ssl, void *buf, int n);
#define SSL_read __wrap_SSL_read

static int next_read(SSL *ssl, void *buf, int n)
{
	return __real_SSL_read(ssl, buf, n);
}
#else
typedef int (*ssl_read_fn)(SSL *ssl, void *buf, int n);

static int next_read(SSL *ssl, void *buf, int n)
{
	static _Atomic(ssl_read_fn) next;
	ssl_read_fn fn = atomic_load_explicit(&next, memory_order_relaxed);
	void *symbol;

	if (!fn) {
		symbol = dlsym(RTLD_NEXT, "SSL_read");
		memcpy(&fn, &symbol, sizeof(fn));
		atomic_store_explicit(&next, fn, memory_order_relaxed);
	}
	return fn(ssl, buf, n);
}
#endif

static bool follow(struct seen *s, const void *bytes, int n)
{
	bool ok;

	rpc_tsan_acquire(s);
	ok = rpc_headers_follow(&s->headers, bytes, (size_t)n);
	rpc_tsan_release(s);
	return ok;
}

/* gRPC decrypts what it has read before it reads of another socket; but what came with the end of a
 * handshake it keeps a while, so of its first bytes nobody knows by which socket they came. */
static bool end(const struct seen *s)
{
	int fd;
	bool known = rpc_gate_last(&fd) != s->first;

	if (known)
		rpc_gate_headers(fd);
	return known;
}

/* Without memory to follow a connection nobody knows what it would send: it ends, too. */
int SSL_read(SSL *ssl, void *buf, int n)
{
	int got = next_read(ssl, buf, n);
	struct seen *s;

	if (got <= 0 || place < 0 || !SSL_is_server(ssl))
		return got;
	rpc_gate_record((size_t)got);
	s = seen_of(ssl);
	if (!s)
		return -1;
	if (follow(s, buf, got))
		return got;
	if (end(s))
		return -1;
	/* It is dropped meanwhile, and ended by what comes next. */
	while (got > 0)
		got = next_read(ssl, buf, n);
	return got;
}
