/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener whose certificate or whose client CAs change while there is no memory: each allocation
 * fails once and then for good. The certificate that serves is the old one or the new one, whole;
 * whose CA is gone is never let in, who may be is answered or told to try again; and as soon as
 * there is memory the files, or the owner's word, are what counts.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_ID "spiffe://test.example/second"

/* libc's own allocation is not seen by the wrappers of malloc. */
int __wrap_asprintf(char **ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **ret, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (sweep_hit(SWEEP_ALLOC))
		return -1;
	va_start(ap, fmt);
	n = vasprintf(ret, fmt, ap);
	va_end(ap);
	return n;
}

/* ---- gRPC's side of a handshake ---- */

static grpc_ssl_server_certificate_config_callback fetch;
static void *fetch_arg;
static char *served; /* owned: the chain it was given last */

grpc_ssl_server_credentials_options *
__real_grpc_ssl_server_credentials_create_options_using_config_fetcher(
	grpc_ssl_client_certificate_request_type type,
	grpc_ssl_server_certificate_config_callback cb, void *arg);
grpc_ssl_server_credentials_options *
__wrap_grpc_ssl_server_credentials_create_options_using_config_fetcher(
	grpc_ssl_client_certificate_request_type type,
	grpc_ssl_server_certificate_config_callback cb, void *arg);
grpc_ssl_server_credentials_options *
__wrap_grpc_ssl_server_credentials_create_options_using_config_fetcher(
	grpc_ssl_client_certificate_request_type type,
	grpc_ssl_server_certificate_config_callback cb, void *arg)
{
	fetch = cb;
	fetch_arg = arg;
	return __real_grpc_ssl_server_credentials_create_options_using_config_fetcher(type, cb,
	                                                                              arg);
}

grpc_ssl_server_certificate_config *
__real_grpc_ssl_server_certificate_config_create(const char *roots,
                                                 const grpc_ssl_pem_key_cert_pair *pairs, size_t n);
grpc_ssl_server_certificate_config *
__wrap_grpc_ssl_server_certificate_config_create(const char *roots,
                                                 const grpc_ssl_pem_key_cert_pair *pairs, size_t n);
grpc_ssl_server_certificate_config *
__wrap_grpc_ssl_server_certificate_config_create(const char *roots,
                                                 const grpc_ssl_pem_key_cert_pair *pairs, size_t n)
{
	sweep_hold();
	free(served);
	served = strdup(pairs->cert_chain);
	assert_int_equal(pki_key_matches(pairs->cert_chain, strlen(pairs->cert_chain),
	                                 pairs->private_key, strlen(pairs->private_key), NULL),
	                 0);
	sweep_release();
	return __real_grpc_ssl_server_certificate_config_create(roots, pairs, n);
}

static char *text_of(const char *file)
{
	void *p = NULL;
	size_t n;

	assert_int_equal(fsx_read_file(fx_path(file), PKI_PEM_MAX, &p, &n, NULL), 0);
	return p;
}

/* A handshake: true when it is served a set other than that of before. */
static bool handshake(void)
{
	grpc_ssl_server_certificate_config *c = NULL;
	grpc_ssl_certificate_config_reload_status st = fetch(fetch_arg, &c);

	if (c)
		grpc_ssl_server_certificate_config_destroy(c);
	assert_int_not_equal(st, GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL);
	return st == GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

static bool serves(const char *chain)
{
	return strstr(served, chain) != NULL;
}

static void certificate__without_memory_is_the_old_or_the_new_one(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .chain_append_path = fx_path("ca.crt")};
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct fx f;

	fx_start(&f, &o);
	assert_non_null(served); /* gRPC asks when it binds, too */
	for (;;) {
		AUTO_FREE char *old = text_of("server.crt"), *new = NULL;
		bool is;

		fx_issue("ca", "server", SERVER_ID, 3600 + s.points + s.at);
		new = text_of("server.crt");
		if (!sweep_next(&s))
			break;
		is = handshake();
		sweep_off();
		if (!is && !sweep_fired())
			fail_msg("allocation %u: the new certificate is not used", s.at);
		if (!serves(is ? new : old))
			fail_msg("allocation %u%s: neither the old nor the new one", s.at,
			         s.persistent ? " and on" : "");
		assert_int_equal(handshake(), !is);
		assert_true(serves(new));
	}
	assert_true(s.points > 4);
	fx_stop(&f);
	free(TAKE_PTR(served));
}

/* ---- client CAs ---- */

static struct pki_trust *trust_of(const char *file)
{
	AUTO_FREE char *pem = text_of(file);
	struct pki_trust *t = NULL;

	assert_int_equal(pki_trust_new(pem, strlen(pem), &t, NULL), 0);
	return t;
}

static struct rpc_channel *channel(struct fx *f, const char *crt, const char *key)
{
	return fx_channel_opts(
		f, (struct rpc_channel_opts){.cert_path = fx_path(crt), .key_path = fx_path(key)});
}

/* What somebody is told that is not let in for want of memory. */
static bool may_be_told(enum ros2_status s)
{
	return s == ROS2_BUSY || s == ROS2_UNAVAILABLE || s == ROS2_CANCELLED || s == ROS2_CLOSED ||
	       s == ROS2_TIMEOUT;
}

static void cas__without_memory_let_nobody_in_who_is_gone(void **state)
{
	struct pki_trust *of[2] = {trust_of("ca.crt"), trust_of("second-ca.crt")}, *both;
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .thread = "rpc-echo"};
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("both.crt")};
	struct rpc_channel *c[2];
	struct ros2_err err;
	struct fx f;

	both = trust_of("both.crt");
	fx_start(&f, &o);
	c[0] = channel(&f, "client.crt", "client.key");
	c[1] = channel(&f, "second.crt", "second.key");
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(fx_say(c[i], "x", "x", NULL), 0);
	for (unsigned kept = 0; sweep_next(&s); kept = !kept) {
		rpc_server_set_trust(f.server, of[kept]);
		for (int i = 0; i < 2; i++) {
			memset(&err, 0, sizeof(err));
			if (!fx_say(c[!kept], "x", NULL, &err))
				fail_msg("allocation %u%s: he is let in", s.at,
				         s.persistent ? " and on" : "");
			memset(&err, 0, sizeof(err));
			if (fx_say(c[kept], "x", NULL, &err) && !may_be_told(err.status))
				fail_msg("allocation %u%s: %s: %s", s.at,
				         s.persistent ? " and on" : "",
				         ros2_status_to_str(err.status), err.msg);
		}
		sweep_off();
		memset(&err, 0, sizeof(err));
		if (!AWAIT(!fx_say(c[kept], "x", NULL, &err)))
			fail_msg("allocation %u%s: %s", s.at, s.persistent ? " and on" : "",
			         err.msg);
		assert_true(AWAIT(fx_say(c[!kept], "x", NULL, &err) < 0 &&
		                  err.status == ROS2_UNAUTHENTICATED));
		rpc_server_set_trust(f.server, both);
		for (unsigned i = 0; i < 2; i++)
			assert_true(AWAIT(!fx_say(c[i], "x", NULL, &err)));
	}
	assert_true(s.points > 4);
	for (unsigned i = 0; i < 2; i++) {
		rpc_channel_free(c[i]);
		pki_trust_unref(of[i]);
	}
	pki_trust_unref(both);
	fx_stop(&f);
	free(TAKE_PTR(served));
}

static int setup(void **state)
{
	struct pki_ca_opts o = {
		.common_name = "second-ca", .trust_domain = "test.example", .lifetime_s = 3600};
	AUTO_FREE char *a = NULL, *b = NULL, *both = NULL;

	if (fx_group_setup(state))
		return -1;
	o.cert_path = fx_path("second-ca.crt");
	o.key_path = fx_path("second-ca.key");
	assert_int_equal(pki_key_create(o.key_path, NULL), 0);
	assert_int_equal(pki_ca_create(&o, NULL), 0);
	fx_issue("second-ca", "second", SECOND_ID, 3600);
	a = text_of("ca.crt");
	b = text_of("second-ca.crt");
	both = malloc(strlen(a) + strlen(b) + 1);
	strcpy(stpcpy(both, a), b);
	return fsx_write_atomic(fx_path("both.crt"), both, strlen(both), 0600, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(certificate__without_memory_is_the_old_or_the_new_one),
		cmocka_unit_test(cas__without_memory_let_nobody_in_who_is_gone),
	};

	return cmocka_run_group_tests(tests, setup, fx_group_teardown);
}
