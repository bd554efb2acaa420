/* SPDX-License-Identifier: Apache-2.0 */
/* What ssl.c sets of a listener's connections: how many certificates are taken of a peer, and that
 * nothing of one is kept for another. */
#include "proto/rpc/rpc_priv.h"
#include "tests/rpc/fixture.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int dial(const struct fx *f)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)atoi(strrchr(f->target, ':') + 1));
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

static SSL_CTX *context(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	assert_int_equal(SSL_CTX_use_certificate_chain_file(ctx, fx_path("client.crt")), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, fx_path("client.key"), SSL_FILETYPE_PEM),
	                 1);
	assert_int_equal(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\x02h2", 3), 0);
	return ctx;
}

/* The certificate of "client", and @more times the same: nobody needs those, nor asks whose they
 * are. True: the server has taken it, and says its settings. */
static bool shows(const struct fx *f, unsigned more)
{
	SSL_CTX *ctx = context();
	int fd = dial(f);
	uint8_t in[64];
	X509 *own;
	SSL *ssl;
	bool ok;

	own = SSL_CTX_get0_certificate(ctx);
	for (unsigned i = 0; i < more; i++) {
		assert_int_equal(X509_up_ref(own), 1);
		assert_int_equal(SSL_CTX_add_extra_chain_cert(ctx, own), 1);
	}
	ssl = SSL_new(ctx);
	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	ok = SSL_connect(ssl) == 1 && SSL_read(ssl, in, sizeof(in)) > 0;
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	close(fd);
	return ok;
}

static void rpc_server__more_certificates_than_a_chain_has_are_not_taken(void **state)
{
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	assert_true(shows(&f, 10));
	assert_false(shows(&f, 100));
	fx_wait(&f.refused[RPC_REFUSED_HANDSHAKE], 1);
	fx_stop(&f);
}

/* ---- sessions ---- */

static _Atomic(SSL_CTX *) served; /* of the newest connection to the server */

static void see(void *parent, void *unused, CRYPTO_EX_DATA *ad, int idx, long argl, void *argp)
{
	if (SSL_is_server(parent))
		served = SSL_get_SSL_CTX(parent);
}

/* Tells of itself what a later connection may go on with; *ret_reused: this one did, with @of. */
static SSL_SESSION *session(const struct fx *f, SSL_CTX *ctx, SSL_SESSION *of, bool *ret_reused)
{
	int fd = dial(f);
	SSL_SESSION *is;
	uint8_t in[64];
	SSL *ssl = SSL_new(ctx);

	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	assert_int_equal(of ? SSL_set_session(ssl, of) : 1, 1);
	assert_int_equal(SSL_connect(ssl), 1);
	/* what comes with a ticket comes before it */
	assert_true(SSL_read(ssl, in, sizeof(in)) > 0);
	*ret_reused = SSL_session_reused(ssl);
	is = SSL_get1_session(ssl);
	SSL_shutdown(ssl);
	SSL_free(ssl);
	close(fd);
	return is;
}

/* One that is resumed shows its own certificate and no others, and what it showed before would lie
 * with the server, for each of whom it has let in. */
static void rpc_server__keeps_no_session_that_another_connection_goes_on_with(void **state)
{
	static const struct {
		int version;
		uint64_t options;
	} as[] = {{TLS1_3_VERSION, 0}, {TLS1_2_VERSION, 0}, {TLS1_2_VERSION, SSL_OP_NO_TICKET}};
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	assert_true(SSL_get_ex_new_index(0, NULL, see, NULL, NULL) >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(as); i++) {
		SSL_CTX *ctx = context();
		SSL_SESSION *first, *second;
		bool reused;

		assert_int_equal(SSL_CTX_set_min_proto_version(ctx, as[i].version), 1);
		assert_int_equal(SSL_CTX_set_max_proto_version(ctx, as[i].version), 1);
		SSL_CTX_set_options(ctx, as[i].options);
		first = session(&f, ctx, NULL, &reused);
		second = session(&f, ctx, first, &reused);
		assert_false(reused);
		assert_false(SSL_SESSION_is_resumable(second));
		assert_int_equal(SSL_CTX_sess_number(served), 0);
		SSL_SESSION_free(first);
		SSL_SESSION_free(second);
		SSL_CTX_free(ctx);
	}
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__more_certificates_than_a_chain_has_are_not_taken),
		cmocka_unit_test(rpc_server__keeps_no_session_that_another_connection_goes_on_with),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
