/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CA leaves the bundle while its peers are connected: calls are refused, streams end, others do
 * not notice. Negative controls: with the judgement off (the functions are wrapped) the old
 * connection goes on.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "common/util.h"
#include "tests/rpc/fixture.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_ID "spiffe://test.example/second"
#define DEEP_ID   "spiffe://test.example/deep"

/* ---- negative controls ---- */

static atomic_bool judge_calls = true, judge_streams = true;
struct grpc_call;
int __real_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err);
int __wrap_rpc_trust_admit(void *s, struct grpc_call *call, struct rpc_peer *peer,
                           struct ros2_err *err)
{
	return judge_calls ? __real_rpc_trust_admit(s, call, peer, err) : 0;
}
void __real_rpc_trust_sweep(void *s);
void __wrap_rpc_trust_sweep(void *s);
void __wrap_rpc_trust_sweep(void *s)
{
	if (judge_streams)
		__real_rpc_trust_sweep(s);
}

/* ---- gRPC and the network, as they can be ---- */

/* It could not use other CAs, and goes on with these. */
static char *_Atomic stale_roots;
struct grpc_config;
struct grpc_config *__real_grpc_ssl_server_certificate_config_create(const char *roots,
                                                                     const void *pairs, size_t n);
struct grpc_config *__wrap_grpc_ssl_server_certificate_config_create(const char *roots,
                                                                     const void *pairs, size_t n);
struct grpc_config *__wrap_grpc_ssl_server_certificate_config_create(const char *roots,
                                                                     const void *pairs, size_t n)
{
	const char *stale = stale_roots;

	return __real_grpc_ssl_server_certificate_config_create(stale ? stale : roots, pairs, n);
}

/* All calls seem to come from here. */
static char one_address[64];
static atomic_bool same_address;
int __real_rpc_peer_of(void *peers, struct grpc_call *call, struct rpc_peer *ret,
                       struct ros2_err *err);
int __wrap_rpc_peer_of(void *peers, struct grpc_call *call, struct rpc_peer *ret,
                       struct ros2_err *err);
int __wrap_rpc_peer_of(void *peers, struct grpc_call *call, struct rpc_peer *ret,
                       struct ros2_err *err)
{
	int rc = __real_rpc_peer_of(peers, call, ret, err);

	if (same_address && one_address[0])
		snprintf(ret->address, sizeof(ret->address), "%s", one_address);
	else if (same_address)
		snprintf(one_address, sizeof(one_address), "%.63s", ret->address);
	return rc;
}

/* ---- bundles ---- */

static void make_ca(const char *name, const char *issuer)
{
	char crt[32], key[32], icrt[32], ikey[32];
	struct ros2_err err = ROS2_ERR_INIT;
	struct pki_ca_opts o = {
		.common_name = name, .trust_domain = "test.example", .lifetime_s = 3600};

	snprintf(crt, sizeof(crt), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	snprintf(icrt, sizeof(icrt), "%s.crt", issuer ? issuer : "");
	snprintf(ikey, sizeof(ikey), "%s.key", issuer ? issuer : "");
	o.cert_path = fx_path(crt);
	o.key_path = fx_path(key);
	o.issuer_cert_path = issuer ? fx_path(icrt) : NULL;
	o.issuer_key_path = issuer ? fx_path(ikey) : NULL;
	assert_int_equal(pki_key_create(o.key_path, &err), 0);
	if (pki_ca_create(&o, &err))
		fail_msg("%s", err.msg);
}

static int setup(void **state)
{
	if (fx_group_setup(state))
		return -1;
	make_ca("second-ca", NULL);
	make_ca("issuing-ca", "second-ca");
	fx_issue("second-ca", "second", SECOND_ID, 3600);
	fx_issue("issuing-ca", "deep", DEEP_ID, 3600);
	return 0;
}

/* The bundle of the listener: these CAs, in this order. */
static void bundle(const char *a, const char *b)
{
	const char *const names[] = {a, b};
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *all = strdup("");

	for (size_t i = 0; i < ARRAY_SIZE(names) && names[i]; i++) {
		char file[32];
		size_t n;
		void *p;
		char *more;

		snprintf(file, sizeof(file), "%s.crt", names[i]);
		assert_int_equal(fsx_read_file(fx_path(file), 65536, &p, &n, &err), 0);
		assert_true(asprintf(&more, "%s%s", all, (char *)p) > 0);
		free(p);
		free(all);
		all = more;
	}
	assert_int_equal(fsx_write_atomic(fx_path("bundle.pem"), all, strlen(all), 0600, &err), 0);
}

/* The file's word is given. True: they are others. */
static int reload(struct fx *f)
{
	AUTO_FREE char *pem = NULL;
	struct pki_trust *t = NULL;
	size_t n;
	bool other;

	assert_int_equal(fsx_read_file(fx_path("bundle.pem"), 65536, (void **)&pem, &n, NULL), 0);
	assert_int_equal(pki_trust_new(pem, n, &t, NULL), 0);
	other = rpc_server_set_trust(f->server, t);
	pki_trust_unref(t);
	return other;
}

static void start(struct fx *f)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("bundle.pem")};

	bundle("ca", "second-ca");
	fx_start(f, &o);
	assert_int_equal(rpc_server_trust_generation(f->server), RPC_TRUST_FIRST);
}

static struct rpc_channel *channel(struct fx *f, const char *name, struct loop *loop)
{
	char cert[32], key[32];

	snprintf(cert, sizeof(cert), "%s.crt", name);
	snprintf(key, sizeof(key), "%s.key", name);
	return fx_channel_opts(f, (struct rpc_channel_opts){.loop = loop,
	                                                    .cert_path = fx_path(cert),
	                                                    .key_path = fx_path(key)});
}

static uint64_t connections(struct fx *f)
{
	struct rpc_server_stats st;

	rpc_server_stats(f->server, &st);
	return st.connections_now;
}

/* ---- calls ---- */

static void trust__a_connection_whose_ca_is_gone_is_refused_at_its_next_call(void **state)
{
	struct rpc_channel *first, *second;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server_stats st;
	struct fx f;

	start(&f);
	first = channel(&f, "client", NULL);
	second = channel(&f, "second", NULL);
	assert_int_equal(fx_say(first, "x", "x", &err), 0);
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	assert_int_equal(reload(&f), 0);
	bundle("ca", NULL);
	/* Until somebody says so, what is being written to a file ends nothing. */
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	assert_int_equal(reload(&f), 1);
	for (int i = 1; i <= 2; i++) {
		assert_true(fx_say(second, "x", "x", &err) < 0);
		assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
		assert_non_null(strstr(err.msg, "not trusted any more"));
		fx_wait(&f.refused[RPC_REFUSED_TRUST], i);
	}
	assert_string_equal(fx_refused(&f).who, SECOND_ID);
	assert_int_equal(fx_refused(&f).r.status, ROS2_UNAUTHENTICATED);
	assert_string_equal(fx_refused(&f).r.method->name, "Echo.Say");
	assert_int_equal(fx_say(first, "x", "x", &err), 0);
	fx_wait(&f.handled, 4);
	assert_int_equal(f.handled, 4);
	assert_int_equal(connections(&f), 2); /* nobody had to connect again */
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.refused_trust, 2);
	/* Its CA comes back: the same connection is judged anew. */
	bundle("ca", "second-ca");
	assert_int_equal(reload(&f), 1);
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	assert_int_equal(rpc_server_trust_generation(f.server), RPC_TRUST_FIRST + 2);
	rpc_channel_free(first);
	rpc_channel_free(second);
	fx_stop(&f);
}

static void control__without_the_judgement_the_old_connection_works(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *second;
	struct fx f;

	start(&f);
	second = channel(&f, "second", NULL);
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	judge_calls = false;
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	judge_calls = true;
	assert_true(fx_say(second, "x", "x", &err) < 0);
	rpc_channel_free(second);
	fx_stop(&f);
}

/* What the client sent with its certificate is needed to judge it. */
static void trust__the_intermediate_a_peer_sent_is_remembered(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *deep;
	struct fx f;

	start(&f);
	deep = channel(&f, "deep", NULL);
	assert_int_equal(fx_say(deep, "x", "x", &err), 0);
	bundle("second-ca", NULL);
	assert_int_equal(reload(&f), 1);
	if (fx_say(deep, "x", "x", &err))
		fail_msg("%s", err.msg);
	bundle("issuing-ca", NULL);
	assert_int_equal(reload(&f), 1);
	if (fx_say(deep, "x", "x", &err))
		fail_msg("%s", err.msg);
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	assert_true(fx_say(deep, "x", "x", &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	rpc_channel_free(deep);
	fx_stop(&f);
}

static void trust__a_bundle_that_is_not_whole_is_refused_by_its_name(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("bundle.pem")};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server *s = NULL;
	struct fx f;

	start(&f);
	o.loop = f.loop;
	bundle("ca", "client"); /* not an authority */
	assert_int_equal(rpc_server_new(&o, &s, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "bundle.pem"));
	assert_non_null(strstr(err.msg, "certificate 2 of the bundle is not an authority"));
	fx_stop(&f);
}

/* The client CAs are rights: what somebody writes to their file lets nobody in, and ends nobody. */
static void trust__a_file_that_changes_is_nothing_without_a_word(void **state)
{
	struct rpc_channel *first, *second;
	struct ros2_err err = ROS2_ERR_INIT;
	struct fx f;

	start(&f);
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	bundle("ca", "second-ca");
	second = channel(&f, "second", NULL);
	assert_true(fx_say(second, "x", "x", &err) < 0);
	rpc_channel_free(second);
	/* Nor a certificate of ours that comes meanwhile, which handshakes do follow. */
	fx_issue("ca", "server", SERVER_ID, 3000);
	second = channel(&f, "second", NULL);
	assert_true(fx_say(second, "x", "x", &err) < 0);
	rpc_channel_free(second);
	assert_int_equal(reload(&f), 1);
	second = channel(&f, "second", NULL);
	if (fx_say(second, "x", "x", &err))
		fail_msg("%s", err.msg);
	assert_int_equal(unlink(fx_path("bundle.pem")), 0);
	first = channel(&f, "client", NULL);
	assert_int_equal(fx_say(first, "x", "x", &err), 0);
	rpc_channel_free(first);
	rpc_channel_free(second);
	fx_stop(&f);
}

static struct pki_trust *trust_of(const char *name)
{
	AUTO_FREE char *pem = NULL;
	struct pki_trust *t = NULL;
	char file[32];
	size_t n;

	snprintf(file, sizeof(file), "%s.crt", name);
	assert_int_equal(fsx_read_file(fx_path(file), 65536, (void **)&pem, &n, NULL), 0);
	assert_int_equal(pki_trust_new(pem, n, &t, NULL), 0);
	return t;
}

/* All CAs are exchanged, and the new ones may not count yet. */
static void trust__of_no_ca_at_all_lets_nobody_in(void **state)
{
	struct pki_trust *a = trust_of("ca"), *b = trust_of("second-ca"), *none = NULL;
	const char *const names[] = {"client", "second"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *stands;
	struct fx f;

	start(&f);
	stands = channel(&f, "client", NULL);
	assert_int_equal(fx_say(stands, "x", "x", &err), 0);
	assert_int_equal(pki_trust_common(a, b, &none, &err), 0);
	assert_string_equal(pki_trust_text(none, NULL), "");
	assert_true(rpc_server_set_trust(f.server, none));
	assert_true(fx_say(stands, "x", "x", &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct rpc_channel *c = channel(&f, names[i], NULL);

		assert_true(fx_say(c, "x", "x", &err) < 0);
		rpc_channel_free(c);
	}
	assert_true(rpc_server_set_trust(f.server, a));
	assert_int_equal(fx_say(stands, "x", "x", &err), 0);
	rpc_channel_free(stands);
	fx_stop(&f);
	pki_trust_unref(a);
	pki_trust_unref(b);
	pki_trust_unref(none);
}

/* That TLS let somebody in is no proof that it knows the new CAs. */
static void trust__a_new_connection_under_cas_of_before_is_refused(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *first, *second;
	AUTO_FREE char *old = NULL;
	struct fx f;
	size_t n;

	start(&f);
	assert_int_equal(fsx_read_file(fx_path("bundle.pem"), 65536, (void **)&old, &n, &err), 0);
	stale_roots = old;
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	first = channel(&f, "client", NULL);
	second = channel(&f, "second", NULL);
	if (fx_say(first, "x", "x", &err))
		fail_msg("%s", err.msg);
	judge_calls = false; /* control: TLS lets him in */
	if (fx_say(second, "x", "x", &err))
		fail_msg("%s", err.msg);
	judge_calls = true;
	assert_true(fx_say(second, "x", "x", &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "not trusted any more"));
	stale_roots = NULL;
	rpc_channel_free(first);
	rpc_channel_free(second);
	fx_stop(&f);
}

/* A call of a connection that ended, when another has its port. */
static void trust__a_call_is_not_judged_by_anothers_certificate(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *first, *second;
	struct fx f;

	start(&f);
	first = channel(&f, "client", NULL);
	second = channel(&f, "second", NULL);
	assert_int_equal(fx_say(second, "x", "x", &err), 0);
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	same_address = true;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fx_say(first, "x", "x", &err), 0);
		assert_true(fx_say(second, "x", "x", &err) < 0);
		assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	}
	same_address = false;
	rpc_channel_free(first);
	rpc_channel_free(second);
	fx_stop(&f);
	one_address[0] = '\0'; /* the polling thread's until here */
}

/* ---- streams ---- */

struct chat {
	atomic_int opened, heard, closed;
	struct ros2_err why;
	struct rpc_stream *s;
	struct rpc_channel *c;
};

static void chat_opened(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	((struct chat *)user)->opened++;
}

static void chat_heard(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	((struct chat *)user)->heard++;
}

static void chat_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct chat *c = user;

	c->why = *why;
	c->closed++;
}

static const struct rpc_stream_ops chat_ops = {
	.on_open = chat_opened, .on_message = chat_heard, .on_closed = chat_closed};

static void chat_begin(void *arg)
{
	struct chat *c = arg;
	struct rpc_stream_opts o = {.ops = &chat_ops, .user = c};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rpc_stream_open(c->c, &ros2_test_echo_chat, NULL, &o, &c->s, &err), 0);
}

static void chat_say(struct chat *c)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	int heard = c->heard;

	req.text = (char *)"x";
	assert_int_equal(rpc_stream_send(c->s, &req.base), 0);
	fx_wait(&c->heard, heard + 1);
}

#define CHATS 150 /* more than one tick judges */

static void trust__open_streams_of_a_ca_that_is_gone_end_and_others_do_not(void **state)
{
	static struct chat gone[CHATS], stays;
	struct rpc_channel *first, *second;
	struct fx f;

	start(&f);
	first = channel(&f, "client", f.loop);
	second = channel(&f, "second", f.loop);
	memset(gone, 0, sizeof(gone));
	stays = (struct chat){.c = first};
	fx_on_loop(&f, chat_begin, &stays);
	for (int i = 0; i < CHATS; i++) {
		gone[i].c = second;
		fx_on_loop(&f, chat_begin, &gone[i]);
	}
	fx_wait(&f.opened, CHATS + 1);
	for (int i = 0; i < CHATS; i++)
		fx_wait(&gone[i].opened, 1);
	/* Control: with the sweep off they go on. */
	judge_streams = false;
	bundle("ca", NULL);
	assert_int_equal(reload(&f), 1);
	for (int i = 0; i < CHATS; i++)
		chat_say(&gone[i]);
	assert_int_equal(f.refused[RPC_REFUSED_TRUST], 0);
	judge_streams = true;
	for (int i = 0; i < CHATS; i++) {
		fx_wait(&gone[i].closed, 1);
		assert_int_equal(gone[i].why.status, ROS2_UNAUTHENTICATED);
		assert_non_null(strstr(gone[i].why.msg, "not trusted any more"));
	}
	fx_wait(&f.refused[RPC_REFUSED_TRUST], CHATS);
	fx_wait(&f.closed, CHATS);
	assert_int_equal(f.closed_why.status, ROS2_UNAUTHENTICATED);
	chat_say(&stays);
	assert_int_equal(stays.closed, 0);
	fx_channel_free(&f, first);
	fx_channel_free(&f, second);
	assert_int_equal(f.refused[RPC_REFUSED_TRUST], CHATS);
	fx_stop(&f);
}

/* ---- the other direction ---- */

static void trust__a_channel_judges_its_server_by_the_bundle_of_now(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	start(&f);
	bundle("ca", "second-ca");
	c = fx_channel_opts(&f, (struct rpc_channel_opts){.cert_path = fx_path("client.crt"),
	                                                  .key_path = fx_path("client.key"),
	                                                  .ca_path = fx_path("bundle.pem")});
	bundle("second-ca", NULL);
	assert_int_equal(rpc_channel_check_server(c, &err), 0); /* not connected */
	bundle("ca", "second-ca");
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	assert_int_equal(rpc_channel_check_server(c, &err), 0);
	bundle("ca", NULL);
	assert_int_equal(rpc_channel_check_server(c, &err), 0);
	bundle("second-ca", NULL);
	assert_true(rpc_channel_check_server(c, &err) < 0);
	assert_int_equal(err.status, ROS2_UNAUTHENTICATED);
	assert_non_null(strstr(err.msg, "unknown issuer"));
	assert_int_equal(unlink(fx_path("bundle.pem")), 0);
	assert_true(rpc_channel_check_server(c, &err) < 0);
	rpc_channel_free(c);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trust__a_connection_whose_ca_is_gone_is_refused_at_its_next_call),
		cmocka_unit_test(control__without_the_judgement_the_old_connection_works),
		cmocka_unit_test(trust__the_intermediate_a_peer_sent_is_remembered),
		cmocka_unit_test(trust__a_bundle_that_is_not_whole_is_refused_by_its_name),
		cmocka_unit_test(trust__a_file_that_changes_is_nothing_without_a_word),
		cmocka_unit_test(trust__of_no_ca_at_all_lets_nobody_in),
		cmocka_unit_test(trust__a_new_connection_under_cas_of_before_is_refused),
		cmocka_unit_test(trust__a_call_is_not_judged_by_anothers_certificate),
		cmocka_unit_test(trust__open_streams_of_a_ca_that_is_gone_end_and_others_do_not),
		cmocka_unit_test(trust__a_channel_judges_its_server_by_the_bundle_of_now),
	};

	return cmocka_run_group_tests(tests, setup, fx_group_teardown);
}
