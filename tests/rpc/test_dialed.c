/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel that is freed while it connects leaves nothing behind, however far it has come. The
 * server is done by hand: TLS, and of HTTP/2 (RFC 9113, 3.4) what begins a connection.
 */
#include "common/util.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PREFACE_LEN 24
#define FRAME_LEN   9

static const uint8_t settings[FRAME_LEN] = {[3] = 4}, settings_ack[FRAME_LEN] = {[3] = 4, [4] = 1};

struct hand {
	SSL_CTX *ctx;
	SSL *ssl;
	int listener, fd;
	bool shook;
	char target[32];
};

static int choose_h2(SSL *ssl, const uint8_t **out, uint8_t *out_len, const uint8_t *in,
                     unsigned in_len, void *arg)
{
	uint8_t *chosen;

	if (SSL_select_next_proto(&chosen, out_len, (const uint8_t *)"\x02h2", 3, in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static void hand_listen(struct hand *h)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_sec = AWAIT_S};
	socklen_t len = sizeof(a);

	*h = (struct hand){.fd = -1};
	h->ctx = SSL_CTX_new(TLS_server_method());
	assert_non_null(h->ctx);
	assert_int_equal(SSL_CTX_use_certificate_chain_file(h->ctx, fx_path("server.crt")), 1);
	assert_int_equal(
		SSL_CTX_use_PrivateKey_file(h->ctx, fx_path("server.key"), SSL_FILETYPE_PEM), 1);
	SSL_CTX_set_alpn_select_cb(h->ctx, choose_h2, NULL);
	h->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* What it accepts has it, too. */
	setsockopt(h->listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(bind(h->listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(h->listener, 1), 0);
	assert_int_equal(getsockname(h->listener, (struct sockaddr *)&a, &len), 0);
	snprintf(h->target, sizeof(h->target), "127.0.0.1:%u", ntohs(a.sin_port));
}

static void hand_close(struct hand *h)
{
	SSL_free(h->ssl);
	SSL_CTX_free(h->ctx);
	if (h->fd >= 0)
		close(h->fd);
	close(h->listener);
}

/* True: the client has come so far that it waits for SETTINGS. */
static bool hand_shake(struct hand *h)
{
	uint8_t in[PREFACE_LEN + FRAME_LEN];
	size_t n = 0;

	h->ssl = SSL_new(h->ctx);
	if (!h->ssl || SSL_set_fd(h->ssl, h->fd) != 1 || SSL_accept(h->ssl) != 1)
		return false;
	while (n < sizeof(in)) {
		int k = SSL_read(h->ssl, in + n, (int)(sizeof(in) - n));

		if (k <= 0)
			return false;
		n += (size_t)k;
	}
	return true;
}

/* SETTINGS, which come too late; until the client has taken them, or is gone. */
static void hand_settings(struct hand *h)
{
	uint8_t in[1024];
	int n = 0, k;

	if (SSL_write(h->ssl, settings, FRAME_LEN) != FRAME_LEN)
		return;
	while ((k = SSL_read(h->ssl, in + n, (int)sizeof(in) - n)) > 0) {
		n += k;
		if (memmem(in, (size_t)n, settings_ack, FRAME_LEN))
			return;
	}
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* One that has begun to connect to @target, of which @h comes first and has accepted it. */
static struct rpc_channel *dial(struct hand *h, const char *target)
{
	struct rpc_channel *c;
	struct fx there = {0};

	snprintf(there.target, sizeof(there.target), "%s", target);
	c = fx_channel(&there, NULL);
	assert_int_not_equal(rpc_channel_state(c, true), RPC_CHANNEL_READY);
	h->fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(h->fd >= 0);
	return c;
}

/* With the thread of @f there is somebody who hears what comes behind the channel's end. */
static void leave(bool after_tls)
{
	struct rpc_channel *c;
	struct hand h;
	unsigned fds;
	struct fx f;

	fx_start(&f, NULL);
	fds = count_fds();
	hand_listen(&h);
	c = dial(&h, h.target);
	if (after_tls)
		assert_true(hand_shake(&h));
	rpc_channel_free(c);
	if (after_tls)
		hand_settings(&h);
	hand_close(&h);
	assert_true(AWAIT(count_fds() <= fds));
	fx_stop(&f);
}

static void rpc_dialed__a_channel_freed_in_its_handshake_leaves_nothing(void **state)
{
	leave(false);
}

static void rpc_dialed__a_channel_freed_before_the_servers_settings_leaves_nothing(void **state)
{
	leave(true);
}

static void *take_second(void *arg)
{
	struct hand *h = arg;

	h->fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
	h->shook = h->fd >= 0 && hand_shake(h);
	return NULL;
}

/* As soon as the first address is given up, the second is dialled. */
static void rpc_dialed__a_channel_freed_between_two_addresses_leaves_nothing(void **state)
{
	struct hand first, second;
	struct rpc_channel *c;
	pthread_t thread;
	char target[72];
	unsigned fds;
	struct fx f;

	fx_start(&f, NULL);
	fds = count_fds();
	hand_listen(&first);
	hand_listen(&second);
	snprintf(target, sizeof(target), "ipv4:%s,%s", first.target, second.target);
	c = dial(&first, target);
	assert_int_equal(pthread_create(&thread, NULL, take_second, &second), 0);
	rpc_channel_free(c);
	shutdown(second.listener, SHUT_RDWR); /* perhaps nobody comes */
	pthread_join(thread, NULL);
	if (second.shook)
		hand_settings(&second);
	hand_close(&first);
	hand_close(&second);
	assert_true(AWAIT(count_fds() <= fds));
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_dialed__a_channel_freed_in_its_handshake_leaves_nothing),
		cmocka_unit_test(
			rpc_dialed__a_channel_freed_before_the_servers_settings_leaves_nothing),
		cmocka_unit_test(rpc_dialed__a_channel_freed_between_two_addresses_leaves_nothing),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
