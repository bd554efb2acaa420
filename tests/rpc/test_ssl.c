/* SPDX-License-Identifier: Apache-2.0 */
/* What ssl.c sets of a listener's connections: how many certificates are taken of a peer. */
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

/* The certificate of "client", and @more times the same: nobody needs those, nor asks whose they
 * are. True: the server has taken it, and says its settings. */
static bool shows(const struct fx *f, unsigned more)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int fd = dial(f);
	uint8_t in[64];
	X509 *own;
	SSL *ssl;
	bool ok;

	assert_int_equal(SSL_CTX_use_certificate_chain_file(ctx, fx_path("client.crt")), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey_file(ctx, fx_path("client.key"), SSL_FILETYPE_PEM),
	                 1);
	assert_int_equal(SSL_CTX_set_alpn_protos(ctx, (const uint8_t *)"\x02h2", 3), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__more_certificates_than_a_chain_has_are_not_taken),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
