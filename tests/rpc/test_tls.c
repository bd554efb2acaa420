/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk to whom: certificates, SPIFFE IDs, rotation, files that are missing or do not belong
 * together. */
#include "common/fsx.h"
#include "common/pki.h"
#include "tests/rpc/fixture.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void copy(const char *from, const char *to)
{
	struct ros2_err err = ROS2_ERR_INIT;
	size_t n;
	void *p;

	assert_int_equal(fsx_read_file(fx_path(from), 65536, &p, &n, &err), 0);
	assert_int_equal(fsx_write_atomic(fx_path(to), p, n, 0600, &err), 0);
	free(p);
}

static struct rpc_server_opts server_opts(const char *name)
{
	char cert[32], key[32];

	snprintf(cert, sizeof(cert), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	return (struct rpc_server_opts){.name = "echo",
	                                .listen = "127.0.0.1:0",
	                                .cert_path = fx_path(cert),
	                                .key_path = fx_path(key),
	                                .client_ca_path = fx_path("ca.crt")};
}

/* One call on a fresh channel. */
static int say_once(struct fx *f, struct rpc_channel_opts o, struct ros2_err *err)
{
	struct rpc_channel *c = fx_channel_opts(f, o);
	int rc = fx_say(c, "x", "x", err);

	rpc_channel_free(c);
	return rc;
}

static struct rpc_channel_opts as(const char *name)
{
	char cert[32], key[32];

	snprintf(cert, sizeof(cert), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	return (struct rpc_channel_opts){.cert_path = fx_path(cert), .key_path = fx_path(key)};
}

static void rpc_tls__missing_and_foreign_client_certificates_are_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct fx f;

	fx_start(&f, NULL);
	assert_int_equal(say_once(&f, as("client"), &err), 0);
	assert_int_not_equal(say_once(&f, (struct rpc_channel_opts){0}, &err), 0);
	assert_int_not_equal(say_once(&f, as("foreign"), &err), 0);
	assert_int_equal(f.handled, 1);
	fx_stop(&f);
}

static _Atomic bool no_memory; /* for reading a client's certificate */

int __real_pki_cert_info(const char *pem, size_t len, struct pki_cert_info *ret,
                         struct ros2_err *err);
int __wrap_pki_cert_info(const char *pem, size_t len, struct pki_cert_info *ret,
                         struct ros2_err *err);
int __wrap_pki_cert_info(const char *pem, size_t len, struct pki_cert_info *ret,
                         struct ros2_err *err)
{
	int rc = __real_pki_cert_info(pem, len, ret, err);

	if (!rc && no_memory && !strcmp(ret->uri, CLIENT_ID))
		rc = ros2_err_set(err, -ENOMEM, "out of memory");
	return rc;
}

/* A client takes UNAUTHENTICATED as final; it may come again. */
static void rpc_tls__a_client_that_is_not_known_for_want_of_memory_may_come_again(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel_opts(&f, as("client"));
	no_memory = true;
	assert_int_not_equal(fx_say(c, "x", "x", &err), 0);
	no_memory = false;
	assert_int_equal(err.status, ROS2_BUSY);
	assert_int_equal(f.handled, 0);
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void connect_and_say(struct fx *f, const char *bytes)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
	                        .sin_port = htons(rpc_server_port(f->server)),
	                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(write(fd, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
	shutdown(fd, SHUT_WR);
	while (read(fd, (char[64]){0}, 64) > 0)
		;
	close(fd);
}

/* TLS says nothing to us: who came and made no call is told, with the address, and counted. */
static void rpc_tls__who_is_refused_by_the_handshake_is_told(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server_stats st;
	struct fx f;
	int told;

	fx_start(&f, NULL);
	fx_issue("ca", "past", CLIENT_ID, 1);
	assert_int_equal(say_once(&f, as("client"), &err), 0);
	assert_int_not_equal(say_once(&f, (struct rpc_channel_opts){0}, &err), 0);
	fx_wait(&f.refused[RPC_REFUSED_HANDSHAKE], 1);
	assert_int_equal(fx_refused(&f).r.status, ROS2_UNAUTHENTICATED);
	assert_string_equal(fx_refused(&f).who, "");
	assert_non_null(strstr(fx_refused(&f).from, "127.0.0.1:"));
	told = f.refused[RPC_REFUSED_HANDSHAKE];
	assert_int_not_equal(say_once(&f, as("foreign"), &err), 0);
	fx_wait(&f.refused[RPC_REFUSED_HANDSHAKE], told + 1);
	told = f.refused[RPC_REFUSED_HANDSHAKE];
	/* time: the certificate lives one second */
	sleep(2);
	assert_int_not_equal(say_once(&f, as("past"), &err), 0);
	fx_wait(&f.refused[RPC_REFUSED_HANDSHAKE], told + 1);
	told = f.refused[RPC_REFUSED_HANDSHAKE];
	connect_and_say(&f, "GET / HTTP/1.0\r\n\r\n");
	fx_wait(&f.refused[RPC_REFUSED_HANDSHAKE], told + 1);
	/* time: two looks at the connections that are gone: who tried twice is told by then */
	sleep(2);
	told = f.refused[RPC_REFUSED_HANDSHAKE];
	/* Control: who is let in is not told, also when the connection ends. */
	assert_int_equal(say_once(&f, as("client"), &err), 0);
	/* time: two looks at the connections that are gone */
	sleep(2);
	assert_int_equal(f.refused[RPC_REFUSED_HANDSHAKE], told);
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.refused_handshakes, told);
	fx_stop(&f);
}

static void rpc_tls__a_certificate_must_name_exactly_one_spiffe_id(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char cmd[1024];
	struct fx f;

	/* pki_issue makes no such certificates, openssl does. */
	for (int i = 0; i < 3; i++) {
		static const char *const san[] = {"DNS:x", "URI:https://x/y",
		                                  "URI:spiffe://test.example/a,URI:spiffe://"
		                                  "test.example/b"};

		snprintf(cmd, sizeof(cmd),
		         "cd %s && openssl req -new -newkey rsa:2048 -nodes -keyout odd.key -out "
		         "odd.csr -subj /CN=odd 2>/dev/null && printf 'subjectAltName=%s\n"
		         "keyUsage=digitalSignature\n' > odd.ext && openssl x509 -req -in odd.csr "
		         "-CA ca.crt -CAkey ca.key -CAcreateserial -days 1 -extfile odd.ext -out "
		         "odd.crt 2>/dev/null",
		         fx_dir, san[i]);
		assert_int_equal(system(cmd), 0);
		fx_start(&f, NULL);
		assert_int_equal(say_once(&f, as("odd"), &err),
		                 ros2_status_to_errno(ROS2_UNAUTHENTICATED));
		assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
		assert_int_equal(f.handled, 0);
		fx_stop(&f);
	}
}

static void rpc_tls__an_expired_certificate_ends_an_open_connection(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	fx_issue("ca", "brief", CLIENT_ID, 2);
	c = fx_channel_opts(&f, as("brief"));
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	/* time: the certificate lives two seconds */
	sleep(3);
	assert_int_equal(fx_say(c, "x", "x", &err), ros2_status_to_errno(ROS2_UNAUTHENTICATED));
	assert_non_null(strstr(err.msg, "expired"));
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_tls__the_server_must_have_the_expected_spiffe_id(void **state)
{
	struct rpc_channel_opts o = as("client");
	struct ros2_err err = ROS2_ERR_INIT;
	struct fx f;

	fx_start(&f, NULL);
	o.server_id = "spiffe://test.example/serve";
	assert_int_equal(say_once(&f, o, &err), ros2_status_to_errno(ROS2_UNAUTHENTICATED));
	assert_non_null(strstr(err.msg, "expected the server spiffe://test.example/serve, found "
	                                "spiffe://test.example/server"));
	o.server_id = "spiffe://test.example/other/";
	o.server_id_is_prefix = true;
	assert_int_not_equal(say_once(&f, o, &err), 0);
	o.server_id = "spiffe://test.example/";
	assert_int_equal(say_once(&f, o, &err), 0);
	o.server_id = "spiffe://test.example/server";
	o.server_id_is_prefix = false;
	o.ca_path = fx_path("foreign-ca.crt");
	assert_int_not_equal(say_once(&f, o, &err), 0);
	assert_int_equal(f.handled, 1);
	fx_stop(&f);
}

static void rpc_tls__a_client_may_know_only_the_hash_of_the_ca(void **state)
{
	struct rpc_server_opts so = server_opts("server");
	struct rpc_channel_opts o = {0};
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t hash[32];
	size_t n;
	void *p;
	struct fx f;

	assert_int_equal(fsx_read_file(fx_path("ca.crt"), 65536, &p, &n, &err), 0);
	assert_int_equal(pki_bundle_hash(p, n, hash, &err), 0);
	free(p);
	so.client_ca_path = NULL;
	so.chain_append_path = fx_path("ca.crt");
	fx_start(&f, &so);
	o.ca_sha256 = hash;
	if (say_once(&f, o, &err))
		fail_msg("%s", err.msg);
	fx_wait(&f.handled, 1);
	assert_false(f.last_peer.authenticated);
	hash[0] ^= 1;
	assert_int_not_equal(say_once(&f, o, &err), 0);
	assert_int_equal(err.status, ROS2_WRONG_DOMAIN);
	hash[0] ^= 1;
	fx_stop(&f);

	/* Without the CA in the chain there is nothing to compare. */
	so.chain_append_path = NULL;
	fx_start(&f, &so);
	assert_int_not_equal(say_once(&f, o, &err), 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	fx_stop(&f);

	/* A foreign server that appends the known CA did not get its certificate from it. */
	fx_issue("foreign-ca", "imposter", SERVER_ID, 3600);
	so.cert_path = fx_path("imposter.crt");
	so.key_path = fx_path("imposter.key");
	so.chain_append_path = fx_path("ca.crt");
	fx_start(&f, &so);
	assert_int_not_equal(say_once(&f, o, &err), 0);
	assert_int_equal(f.handled, 0);
	fx_stop(&f);
}

static void rpc_tls__the_server_picks_up_rotated_files_and_ignores_torn_ones(void **state)
{
	struct rpc_server_opts so = server_opts("rot");
	struct rpc_channel_opts o = as("client"), o2 = as("client");
	struct ros2_err err = ROS2_ERR_INIT;
	struct fx f;

	copy("server.crt", "rot.crt");
	copy("server.key", "rot.key");
	fx_issue("ca", "server2", "spiffe://test.example/server2", 3600);
	fx_start(&f, &so);
	o2.server_id = "spiffe://test.example/server2";
	assert_int_equal(say_once(&f, o, &err), 0);
	copy("server2.crt", "rot.crt"); /* torn: the key is still the old one */
	assert_int_equal(say_once(&f, o, &err), 0);
	copy("ca.key", "rot.key"); /* a key of neither */
	assert_int_equal(say_once(&f, o, &err), 0);
	unlink(fx_path("rot.crt"));
	assert_int_equal(say_once(&f, o, &err), 0);
	copy("server2.key", "rot.key");
	copy("server2.crt", "rot.crt"); /* whole */
	assert_int_not_equal(say_once(&f, o, &err), 0);
	assert_int_equal(say_once(&f, o2, &err), 0);
	fx_stop(&f);
}

/* Client CAs are given, not picked up: test_trust.c. */
static void rpc_tls__handshakes_follow_the_client_cas_that_were_given(void **state)
{
	struct rpc_server_opts so = server_opts("server");
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_trust *trust = NULL;
	void *pem = NULL;
	struct fx f;
	size_t n;

	copy("ca.crt", "rot-ca.crt");
	so.client_ca_path = fx_path("rot-ca.crt");
	fx_start(&f, &so);
	assert_int_not_equal(say_once(&f, as("foreign"), &err), 0);
	copy("foreign-ca.crt", "rot-ca.crt");
	assert_int_not_equal(say_once(&f, as("foreign"), &err), 0);
	assert_int_equal(say_once(&f, as("client"), &err), 0);
	assert_int_equal(fsx_read_file(fx_path("rot-ca.crt"), PKI_PEM_MAX, &pem, &n, &err), 0);
	assert_int_equal(pki_trust_new(pem, n, &trust, &err), 0);
	rpc_server_set_trust(f.server, trust);
	assert_int_equal(say_once(&f, as("foreign"), &err), 0);
	assert_int_not_equal(say_once(&f, as("client"), &err), 0);
	pki_trust_unref(trust);
	free(pem);
	fx_stop(&f);
}

static void rpc_tls__a_channel_uses_rotated_files_for_its_next_connection(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f, g;

	copy("client.crt", "crot.crt");
	copy("client.key", "crot.key");
	fx_issue("ca", "client2", "spiffe://test.example/client2", 3600);
	fx_start(&f, NULL);
	c = fx_channel_opts(&f, as("crot"));
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	fx_wait(&f.handled, 1);
	assert_string_equal(f.last_peer.spiffe_id, CLIENT_ID);
	copy("client2.key", "crot.key");
	copy("client2.crt", "crot.crt");
	/* time: gRPC looks at its files once a second, and shows nobody when */
	sleep(3);
	/* Another server on the same port: the channel must connect anew. */
	struct rpc_server_opts so = server_opts("server");
	char listen[64];

	snprintf(listen, sizeof(listen), "%s", f.target);
	fx_stop(&f);
	so.listen = listen;
	fx_start(&g, &so);
	rpc_channel_reset_backoff(c);
	if (rpc_channel_wait_ready(c, 5000, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	fx_wait(&g.handled, 1);
	assert_string_equal(g.last_peer.spiffe_id, "spiffe://test.example/client2");
	rpc_channel_free(c);
	fx_stop(&g);
}

static void rpc_tls__bad_files_and_addresses_are_told_clearly(void **state)
{
	struct rpc_server_opts o = server_opts("server");
	struct rpc_channel_opts co = as("client");
	struct ros2_err err = ROS2_ERR_INIT;
	struct loop_opts lo = {.name = "t"};
	struct rpc_server *s = NULL;
	struct rpc_channel *c = NULL;
	struct loop *l;
	struct fx f;

	fx_start(&f, NULL);
	assert_int_equal(loop_new(&lo, &l), 0);
	o.loop = l;
	o.cert_path = fx_path("none.crt");
	assert_int_equal(rpc_server_new(&o, &s, &err), -ENOENT);
	assert_non_null(strstr(err.msg, "none.crt"));
	o.cert_path = fx_path("client.crt");
	assert_true(rpc_server_new(&o, &s, &err) < 0); /* key of another certificate */
	o.cert_path = fx_path("server.crt");
	o.listen = f.target;
	assert_int_equal(rpc_server_new(&o, &s, &err), 0);
	assert_int_equal(rpc_server_start(s, &err), -EADDRINUSE);
	assert_non_null(strstr(err.msg, f.target));
	rpc_server_free(s);
	o.listen = "nonsense";
	assert_int_equal(rpc_server_new(&o, &s, &err), 0);
	assert_int_equal(rpc_server_start(s, &err), -EINVAL);
	rpc_server_free(s);
	/* Never started; and rows that do not fit their service. */
	const struct rpc_handler no_callback = {.method = &ros2_test_echo_say};

	o.listen = "127.0.0.1:0";
	assert_int_equal(rpc_server_new(&o, &s, &err), 0);
	assert_int_equal(rpc_server_add(s, &ros2_test_echo_service, &no_callback, 1, &err),
	                 -EINVAL);
	assert_int_equal(rpc_server_port(s), 0);
	rpc_server_free(s);
	co.name = "t";
	co.target = f.target;
	co.server_id = SERVER_ID;
	co.ca_path = fx_path("none.crt");
	assert_int_equal(rpc_channel_new(&co, &c, &err), -ENOENT);
	co.ca_path = fx_path("foreign-ca.crt");
	assert_true(rpc_channel_new(&co, &c, &err) < 0);
	assert_int_equal(err.status, ROS2_WRONG_DOMAIN);
	assert_non_null(strstr(err.msg, "foreign-ca.crt is for spiffe://other.example, expected"));
	co.ca_path = fx_path("ca.crt");
	co.key_path = fx_path("server.key");
	assert_true(rpc_channel_new(&co, &c, &err) < 0);
	co.key_path = NULL;
	assert_int_equal(rpc_channel_new(&co, &c, &err), -EINVAL);
	loop_free(l);
	fx_stop(&f);
}

/* gRPC takes it modulo 65536: as any free one, or as another's. */
static void rpc_tls__a_port_that_there_is_not_is_no_other_one(void **state)
{
	struct rpc_server_opts o = server_opts("server");
	struct rpc_channel_opts co = {
		.name = "t", .server_id = SERVER_ID, .ca_path = fx_path("ca.crt")};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server *s = NULL;
	struct rpc_channel *c = NULL;
	char beyond[64];
	struct fx f;

	fx_start(&f, NULL);
	assert_int_equal(loop_new(&(struct loop_opts){.name = "t"}, &o.loop), 0);
	snprintf(beyond, sizeof(beyond), "127.0.0.1:%u", rpc_server_port(f.server) + 65536u);
	co.target = beyond;
	assert_int_equal(rpc_channel_new(&co, &c, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "expected HOST:PORT"));
	o.listen = "127.0.0.1:65536";
	assert_int_equal(rpc_server_new(&o, &s, &err), 0);
	assert_int_equal(rpc_server_start(s, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "127.0.0.1:65536: expected HOST:PORT"));
	rpc_server_free(s);
	loop_free(o.loop);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_tls__missing_and_foreign_client_certificates_are_refused),
		cmocka_unit_test(
			rpc_tls__a_client_that_is_not_known_for_want_of_memory_may_come_again),
		cmocka_unit_test(rpc_tls__who_is_refused_by_the_handshake_is_told),
		cmocka_unit_test(rpc_tls__a_certificate_must_name_exactly_one_spiffe_id),
		cmocka_unit_test(rpc_tls__an_expired_certificate_ends_an_open_connection),
		cmocka_unit_test(rpc_tls__the_server_must_have_the_expected_spiffe_id),
		cmocka_unit_test(rpc_tls__a_client_may_know_only_the_hash_of_the_ca),
		cmocka_unit_test(rpc_tls__the_server_picks_up_rotated_files_and_ignores_torn_ones),
		cmocka_unit_test(rpc_tls__handshakes_follow_the_client_cas_that_were_given),
		cmocka_unit_test(rpc_tls__a_channel_uses_rotated_files_for_its_next_connection),
		cmocka_unit_test(rpc_tls__bad_files_and_addresses_are_told_clearly),
		cmocka_unit_test(rpc_tls__a_port_that_there_is_not_is_no_other_one),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
