/* SPDX-License-Identifier: Apache-2.0 */
/* See fixture.h. Texts that Say understands: keep (no answer yet), fail, fail-huge, wrong-type,
 * crash-free "echo". */
#include "tests/rpc/fixture.h"
#include "common/fsx.h"
#include "common/pki.h"
#include "tests/await.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

char fx_dir[64];

const char *fx_path(const char *name)
{
	static char bufs[32][128];
	static unsigned next;
	char *b = bufs[next++ % 32];

	snprintf(b, sizeof(bufs[0]), "%s/%s", fx_dir, name);
	return b;
}

static void make_ca(const char *name, const char *domain)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char key[128], cert[128];

	snprintf(key, sizeof(key), "%s/%s.key", fx_dir, name);
	snprintf(cert, sizeof(cert), "%s/%s.crt", fx_dir, name);
	assert_int_equal(pki_key_create(key, &err), 0);
	struct pki_ca_opts o = {.common_name = name,
	                        .trust_domain = domain,
	                        .key_path = key,
	                        .cert_path = cert,
	                        .lifetime_s = 3600};
	if (pki_ca_create(&o, &err))
		fail_msg("%s", err.msg);
}

void fx_issue(const char *ca, const char *name, const char *uri, uint64_t lifetime_s)
{
	struct ros2_err err = ROS2_ERR_INIT;
	char key[128], cert[128], ca_key[128], ca_cert[128];
	char *csr = NULL, *pem = NULL;

	snprintf(key, sizeof(key), "%s/%s.key", fx_dir, name);
	snprintf(cert, sizeof(cert), "%s/%s.crt", fx_dir, name);
	snprintf(ca_key, sizeof(ca_key), "%s/%s.key", fx_dir, ca);
	snprintf(ca_cert, sizeof(ca_cert), "%s/%s.crt", fx_dir, ca);
	if (access(key, F_OK))
		assert_int_equal(pki_key_create(key, &err), 0);
	assert_int_equal(pki_csr_create(key, uri, &csr, &err), 0);
	struct pki_issue_opts o = {.csr_pem = csr,
	                           .csr_len = strlen(csr),
	                           .uri = uri,
	                           .issuer_cert_path = ca_cert,
	                           .issuer_key_path = ca_key,
	                           .lifetime_s = lifetime_s};
	if (pki_issue(&o, &pem, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(fsx_write_atomic(cert, pem, strlen(pem), 0644, &err), 0);
	free(csr);
	free(pem);
}

int fx_group_setup(void **state)
{
	snprintf(fx_dir, sizeof(fx_dir), "/tmp/ros2-rpc-test-XXXXXX");
	if (!mkdtemp(fx_dir))
		return -1;
	make_ca("ca", "test.example");
	make_ca("foreign-ca", "other.example");
	fx_issue("ca", "server", SERVER_ID, 3600);
	fx_issue("ca", "client", CLIENT_ID, 3600);
	fx_issue("foreign-ca", "foreign", "spiffe://other.example/client", 3600);
	return 0;
}

int fx_group_setup_beta(void **state)
{
	int rc = fx_group_setup(state);

	signal(SIGPIPE, SIG_IGN);
	if (!rc)
		fx_issue("ca", "beta", "spiffe://test.example/beta", 3600);
	return rc;
}

int fx_group_teardown(void **state)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", fx_dir);
	return system(cmd);
}

/* ---- handlers ---- */

static void on_cancel(void *arg)
{
	struct fx *f = arg;

	f->cancelled++;
}

struct elsewhere {
	struct fx *f;
	struct rpc_call *c;
};

static void *reply_elsewhere(void *arg)
{
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;
	struct elsewhere *e = arg;
	struct timespec us = {.tv_nsec = (long)(((uintptr_t)e->c >> 6) % 3000) * 1000};

	/* time: answers come late, each after another while */
	nanosleep(&us, NULL);
	ros2_test_echo_say_reply(e->c, &reply);
	e->f->threads--;
	free(e);
	return NULL;
}

/* Answers from a thread of its own, a little later. */
static void answer_elsewhere(struct fx *f, struct rpc_call *c)
{
	struct elsewhere *e = malloc(sizeof(*e));
	pthread_attr_t detached;
	pthread_t t;

	*e = (struct elsewhere){f, c};
	f->threads++;
	rpc_call_on_cancel(c, on_cancel, f);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	assert_int_equal(pthread_create(&t, &detached, reply_elsewhere, e), 0);
	pthread_attr_destroy(&detached);
}

static void say(struct rpc_call *c, const ProtobufCMessage *m, void *user)
{
	const Ros2__Test__EchoRequest *req = ros2_test_echo_say_in(m);
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;
	struct fx *f = user;

	f->last_peer = *rpc_call_peer(c);
	loop_assert_owner(f->loop);
	if (!strcmp(req->text, "keep")) {
		f->kept = c;
		rpc_call_on_cancel(c, on_cancel, f);
	} else if (!strcmp(req->text, "thread")) {
		answer_elsewhere(f, c);
	} else if (!strcmp(req->text, "fail")) {
		rpc_call_fail(c, ROS2_REVOKED, "tenant %s was revoked", "alpha");
	} else if (!strcmp(req->text, "wrong-type")) {
		rpc_call_reply(c, m);
	} else {
		reply.text = req->text;
		reply.blob = req->blob;
		reply.number = req->number;
		ros2_test_echo_say_reply(c, &reply);
	}
	f->handled++;
}

static void opened(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	const Ros2__Test__EchoRequest *req;
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;
	struct fx *f = user;

	rpc_stream_unref(f->stream);
	f->stream = rpc_stream_ref(s);
	f->opened++;
	if (!m)
		return;
	req = ros2_test_echo_count_in(m);
	for (reply.number = 0; reply.number < req->number; reply.number++)
		if (ros2_test_echo_count_send_reply(s, &reply))
			break;
	if (strcmp(req->text, "stay"))
		rpc_stream_close(s, ROS2_OK, NULL);
}

static void message(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	const Ros2__Test__EchoRequest *req = ros2_test_echo_chat_in(m);
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;
	struct fx *f = user;

	f->handled++;
	if (atomic_exchange(&f->hold, false))
		rpc_stream_hold(s);
	if (!strcmp(req->text, "end-badly")) {
		rpc_stream_close(s, ROS2_CONFLICT, "as you wished");
		return;
	}
	reply.text = req->text;
	reply.number = req->number;
	ros2_test_echo_chat_send_reply(s, &reply);
}

static void half_closed(struct rpc_stream *s, void *user)
{
	struct fx *f = user;

	f->half_closed++;
	rpc_stream_close(s, ROS2_OK, NULL);
}

static void writable(struct rpc_stream *s, void *user)
{
	struct fx *f = user;

	f->writable++;
}

static void closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct fx *f = user;

	f->closed_why = *why;
	f->closed++;
}

static const struct rpc_stream_ops stream_ops = {
	.on_open = opened,
	.on_message = message,
	.on_half_close = half_closed,
	.on_writable = writable,
	.on_closed = closed,
};

struct look {
	struct fx *f;
	enum rpc_refused why;
	struct fx_refusal seen;
};

static void look_at_refusal(void *arg)
{
	struct look *l = arg;

	l->seen = l->f->refusals[l->why == RPC_REFUSED_KINDS ? l->f->last_refused : l->why];
}

struct fx_refusal fx_refused_as(struct fx *f, enum rpc_refused why)
{
	struct look l = {.f = f, .why = why};

	fx_on_loop(f, look_at_refusal, &l);
	return l.seen;
}

struct fx_refusal fx_refused(struct fx *f)
{
	return fx_refused_as(f, RPC_REFUSED_KINDS);
}

/* ---- starting and stopping ---- */

static void on_refused(void *arg, const struct rpc_refusal *r)
{
	struct fx *f = arg;
	struct fx_refusal *last = &f->refusals[r->why];

	last->r = *r;
	snprintf(last->who, sizeof(last->who), "%s", r->spiffe_id);
	snprintf(last->from, sizeof(last->from), "%s", r->address);
	snprintf(last->words, sizeof(last->words), "%s", r->words);
	f->last_refused = r->why;
	f->refused[r->why] += (int)r->count;
}

static struct rpc_server_opts default_opts(void)
{
	return (struct rpc_server_opts){.name = "echo",
	                                .listen = "127.0.0.1:0",
	                                .cert_path = fx_path("server.crt"),
	                                .key_path = fx_path("server.key"),
	                                .client_ca_path = fx_path("ca.crt")};
}

void fx_start(struct fx *f, const struct rpc_server_opts *from)
{
	const struct rpc_handler rows[] = {
		{.method = &ros2_test_echo_say, .unary = say, .user = f},
		{.method = &ros2_test_echo_count, .stream = &stream_ops, .user = f},
		{.method = &ros2_test_echo_chat, .stream = &stream_ops, .user = f},
	};
	struct rpc_server_opts o = from ? *from : default_opts();
	struct loop_opts lo = {.name = "test"};
	struct ros2_err err = ROS2_ERR_INIT;

	memset(f, 0, sizeof(*f));
	assert_int_equal(loop_new(&lo, &f->loop), 0);
	assert_int_equal(loop_thread_start(f->loop), 0);
	o.loop = f->loop;
	o.on_refused = on_refused;
	o.refused_arg = f;
	if (rpc_server_new(&o, &f->server, &err) ||
	    rpc_server_add(f->server, &ros2_test_echo_service, rows, 3, &err) ||
	    rpc_server_start(f->server, &err))
		fail_msg("%s", err.msg);
	snprintf(f->target, sizeof(f->target), "127.0.0.1:%u", rpc_server_port(f->server));
}

void fx_start_limits(struct fx *f, struct rpc_limits limits)
{
	struct rpc_server_opts o = default_opts();

	o.limits = limits;
	fx_start(f, &o);
}

struct rpc_server_stats fx_stats(struct fx *f)
{
	struct rpc_server_stats st;

	rpc_server_stats(f->server, &st);
	return st;
}

void fx_on_loop(struct fx *f, loop_fn fn, void *arg)
{
	assert_int_equal(loop_call(f->loop, fn, arg), 0);
}

static void free_server(void *arg)
{
	struct fx *f = arg;

	rpc_server_free(f->server);
	f->server = NULL;
	rpc_stream_unref(f->stream);
	f->stream = NULL;
}

void fx_free_server(struct fx *f)
{
	fx_on_loop(f, free_server, f);
}

void fx_stop(struct fx *f)
{
	fx_on_loop(f, free_server, f);
	loop_stop(f->loop);
	loop_thread_join(f->loop);
	loop_free(f->loop);
}

struct rpc_channel *fx_channel_opts(struct fx *f, struct rpc_channel_opts o)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c = NULL;

	o.name = "test";
	o.any_domain = true; /* it is the server that is to refuse */
	o.target = f->target;
	if (!o.server_id)
		o.server_id = SERVER_ID;
	if (!o.ca_path && !o.ca_sha256)
		o.ca_path = fx_path("ca.crt");
	if (rpc_channel_new(&o, &c, &err))
		fail_msg("%s", err.msg);
	return c;
}

struct rpc_channel *fx_channel(struct fx *f, struct loop *loop)
{
	return fx_channel_opts(f, (struct rpc_channel_opts){.loop = loop,
	                                                    .cert_path = fx_path("client.crt"),
	                                                    .key_path = fx_path("client.key")});
}

static void free_channel(void *arg)
{
	rpc_channel_free(arg);
}

void fx_channel_free(struct fx *f, struct rpc_channel *c)
{
	fx_on_loop(f, free_channel, c);
}

int fx_say(struct rpc_channel *c, const char *text, const char *expect, struct ros2_err *err)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	Ros2__Test__EchoReply *reply = NULL;
	int rc;

	req.text = (char *)text;
	rc = ros2_test_echo_say_sync(c, &req, AWAIT_MS, &reply, err);
	if (!rc && expect)
		assert_string_equal(reply->text, expect);
	if (!rc)
		protobuf_c_message_free_unpacked(&reply->base, NULL);
	return rc;
}

void fx_say_x(struct rpc_channel *c)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fx_say(c, "x", "x", &err))
		fail_msg("%s", err.msg);
}

struct bare_held *fx_hold(struct fx *f, const char *who, size_t n)
{
	struct bare r = {
		.path = "/ros2.test.Echo/Say", .target = f->target, .ca = fx_path("ca.crt")};
	char file[32];

	snprintf(file, sizeof(file), "%s.crt", who);
	r.cert = fx_path(file);
	snprintf(file, sizeof(file), "%s.key", who);
	r.key = fx_path(file);
	return bare_hold(&r, n);
}

void fx_wait(atomic_int *v, int n)
{
	AWAIT(*v >= n);
	assert_true(*v >= n);
}
