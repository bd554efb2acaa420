/* SPDX-License-Identifier: Apache-2.0 */
/* What ssl.c sets of a listener's connections: how many certificates are taken of a peer, and that
 * no session is kept. */
#include "common/util.h"
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

/* Of the caller "client". */
static SSL_CTX *context(int version)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	assert_int_equal(SSL_CTX_use_certificate_chain_file(ctx, fx_path("client.crt")), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, fx_path("client.key"), SSL_FILETYPE_PEM),
	                 1);
	assert_int_equal(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\x02h2", 3), 0);
	assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
	return ctx;
}

/* True: the server has taken it, and says its settings. */
static bool shake_hands(const struct fx *f, SSL_CTX *ctx, SSL_SESSION *resume, SSL_SESSION **ret,
                        bool *ret_resumed)
{
	SSL *ssl = SSL_new(ctx);
	int fd = dial(f);
	uint8_t in[64];
	bool ok;

	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	if (resume)
		assert_int_equal(SSL_set_session(ssl, resume), 1);
	ok = SSL_connect(ssl) == 1 && SSL_read(ssl, in, sizeof(in)) > 0;
	if (ret)
		*ret = SSL_get1_session(ssl);
	if (ret_resumed)
		*ret_resumed = SSL_session_reused(ssl);
	SSL_free(ssl);
	close(fd);
	return ok;
}

static void show_more(SSL_CTX *ctx, unsigned n)
{
	X509 *own = SSL_CTX_get0_certificate(ctx);

	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(X509_up_ref(own), 1);
		assert_int_equal(SSL_CTX_add_extra_chain_cert(ctx, own), 1);
	}
}

static void rpc_server__more_certificates_than_a_chain_has_are_not_taken(void **state)
{
	struct fx f;
	SSL_CTX *few = context(TLS1_3_VERSION), *many = context(TLS1_3_VERSION);

	fx_start_limits(&f, (struct rpc_limits){0});
	show_more(few, 10);
	show_more(many, 100);
	assert_true(shake_hands(&f, few, NULL, NULL, NULL));
	assert_false(shake_hands(&f, many, NULL, NULL, NULL));
	SSL_CTX_free(few);
	SSL_CTX_free(many);
	fx_stop(&f);
}

static void rpc_server__sessions_are_not_kept(void **state)
{
	struct fx f;
	SSL_CTX *ctx = context(TLS1_2_VERSION);
	SSL_SESSION *session;
	bool resumed;

	fx_start_limits(&f, (struct rpc_limits){0});
	SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
	assert_true(shake_hands(&f, ctx, NULL, &session, &resumed));
	assert_false(resumed);
	assert_true(shake_hands(&f, ctx, session, NULL, &resumed));
	assert_false(resumed);
	SSL_SESSION_free(session);
	SSL_CTX_free(ctx);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__more_certificates_than_a_chain_has_are_not_taken),
		cmocka_unit_test(rpc_server__sessions_are_not_kept),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
