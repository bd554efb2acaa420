/* SPDX-License-Identifier: Apache-2.0 */
/* What must not get through, and gets a clear answer at once: methods, versions, messages, limits,
 * identities. */
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/audit.pb-c.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/rpc/bare.h"
#include <errno.h>
#include <grpc/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct bare raw_to(struct fx *f, const char *path)
{
	return (struct bare){.target = f->target,
	                     .path = path,
	                     .ca = fx_path("ca.crt"),
	                     .cert = fx_path("client.crt"),
	                     .key = fx_path("client.key"),
	                     .version = "1"};
}

#define expect_code(r, c)                                                                          \
	do {                                                                                       \
		if ((r)->code != (c))                                                              \
			fail_msg("expected code %d, found %d: %s", c, (r)->code, (r)->message);    \
	} while (0)

static void rpc_server__unknown_methods_are_unimplemented_at_once(void **state)
{
	static const char *const paths[] = {"/ros2.test.Echo/Nothing", "/a", "/ros2.test.Echo/Say/",
	                                    "/ros2.test.Echo/Unserved", "/ros2.test.Echo/Sa"};
	uint64_t t0;
	struct fx f;

	fx_start(&f, NULL);
	for (size_t i = 0; i < 5; i++) {
		struct bare r = raw_to(&f, paths[i]);

		t0 = clock_boottime_ns();
		r.keep_open = true;
		bare_call(&r);
		expect_code(&r, GRPC_STATUS_UNIMPLEMENTED);
		assert_non_null(strstr(r.message, "UNSUPPORTED: "));
		assert_true(clock_boottime_ns() - t0 < AWAIT_NS);
	}
	fx_stop(&f);
}

static void rpc_server__a_call_of_the_wrong_kind_does_not_hang(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.request_deadline_ms = 300}};
	struct bare r;
	struct fx f;

	fx_start(&f, &o);
	/* A unary method, and a server-stream, without a request: half-closed, then left open. */
	r = raw_to(&f, "/ros2.test.Echo/Say");
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_UNIMPLEMENTED);
	r = raw_to(&f, "/ros2.test.Echo/Count");
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_UNIMPLEMENTED);
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.keep_open = true;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_DEADLINE_EXCEEDED);
	assert_non_null(strstr(r.message, "request did not arrive"));
	r = raw_to(&f, "/ros2.test.Echo/Count");
	r.keep_open = true;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_DEADLINE_EXCEEDED);
	assert_int_equal(f.handled + f.opened, 0);
	fx_stop(&f);
}

static void rpc_server__another_protocol_version_is_refused_naming_both(void **state)
{
	struct rpc_server_stats st;
	struct bare r;
	struct fx f;

	fx_start(&f, NULL);
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.version = "2";
	r.bytes = "";
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_FAILED_PRECONDITION);
	assert_string_equal(r.message,
	                    "VERSION: this server speaks ros2-protocol 1, the client says 2");
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.version = NULL;
	r.bytes = "";
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_FAILED_PRECONDITION);
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.version = "1junk";
	r.bytes = "";
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_FAILED_PRECONDITION);
	/* The standard health service needs no header. */
	r = raw_to(&f, "/grpc.health.v1.Health/Check");
	r.version = NULL;
	r.bytes = "";
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_OK);
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.refused_version, 3);
	assert_int_equal(f.handled, 0);
	fx_stop(&f);
}

/* @levels of Nest inside field 4 of EchoRequest. */
static size_t nested(uint8_t *out, size_t max, unsigned levels)
{
	size_t n = 0;

	for (unsigned i = 0; i < levels; i++) {
		uint8_t head[8], *h = head;
		size_t len = n;

		*h++ = i + 1 == levels ? 0x22 : 0x0a;
		while (len >= 0x80) {
			*h++ = (uint8_t)(len | 0x80);
			len >>= 7;
		}
		*h++ = (uint8_t)len;
		assert_true(n + (size_t)(h - head) <= max);
		memmove(out + (h - head), out, n);
		memcpy(out, head, (size_t)(h - head));
		n += (size_t)(h - head);
	}
	return n;
}

static void expect_invalid(struct fx *f, const void *bytes, size_t n)
{
	struct bare r = raw_to(f, "/ros2.test.Echo/Say");

	r.bytes = bytes;
	r.n = n;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_INVALID_ARGUMENT);
}

static void rpc_server__bad_messages_reach_no_handler(void **state)
{
	static uint8_t buf[1 << 20];
	struct rpc_server_stats st;
	struct bare r;
	struct fx f;

	fx_start(&f, NULL);
	expect_invalid(&f, buf, nested(buf, sizeof(buf), 17));
	expect_invalid(&f, buf, nested(buf, sizeof(buf), 9000));
	expect_invalid(&f, "\x0a\x02\xff\xfe", 4); /* not UTF-8 */
	expect_invalid(&f,
	               "\x0a\x03"
	               "a\0b",
	               5);                             /* NUL in a string */
	expect_invalid(&f, "\x0a\x03\xed\xa0\x80", 5); /* a surrogate */
	expect_invalid(&f, "\x0a\x02\xc0\x80", 4);     /* overlong */
	expect_invalid(&f,
	               "\x0a\x7f"
	               "short",
	               7); /* longer than the message */
	expect_invalid(&f, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10); /* 2^63 */
	expect_invalid(&f, "\x0b", 1);                                      /* a group */
	expect_invalid(&f, "\x0d\x01\x02\x03\x04", 5);                      /* text as fixed32 */
	expect_invalid(&f, "\x00", 1);                                      /* field number 0 */
	expect_invalid(&f, "\x22\x00\x22\x00", 4); /* a submessage that comes again */
	/* A hundred thousand empty submessages: small on the wire, large in memory. */
	for (size_t i = 0; i < 100000; i++)
		memcpy(buf + 2 * i, "\x2a\x00", 2);
	expect_invalid(&f, buf, 200000);
	assert_int_equal(f.handled, 0);
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.refused_invalid, 13);
	/* Just deep enough, unknown fields and packed numbers are fine. */
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.bytes = buf;
	r.n = nested(buf, sizeof(buf), 15);
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_OK);
	r.bytes = "\x32\x03\x01\x02\x03\xfa\x01\x02hi";
	r.n = 10;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_OK);
	fx_stop(&f);
}

/* An AuditDraft with its record @n times, the first with so many details, the others with one. */
static size_t joined(uint8_t *out, size_t n, size_t first_details)
{
	static const uint8_t detail[] = "\xb2\x01\x05\x0a\x03"
					"key",
			     actor[] = "\x2a\x08"
				       "somebody";
	uint8_t *p = out;

	for (size_t i = 0; i < n; i++) {
		size_t details = i ? 1 : first_details, len = details * 8 + 10;

		*p++ = 0x12;
		for (; len >= 0x80; len >>= 7)
			*p++ = (uint8_t)(len | 0x80);
		*p++ = (uint8_t)len;
		p = mempcpy(p, actor, 10);
		while (details--)
			p = mempcpy(p, detail, 8);
	}
	return (size_t)(p - out);
}

/* 52 KB from an agent: protobuf-c would copy a list that grows to 5,000 entries a thousand times,
 * each time into memory that the message keeps. */
static void rpc_message__lists_in_what_comes_again_are_not_joined(void **state)
{
	const ProtobufCMessageDescriptor *draft = &ros2__v1__audit_draft__descriptor;
	struct ros2_err err = ROS2_ERR_INIT;
	static uint8_t buf[64 * 1024];

	assert_int_equal(rpc_message_check(draft, buf, joined(buf, 1, 4000), &err), 0);
	assert_int_equal(rpc_message_check(draft, buf, joined(buf, 1000, 4000), &err), -EBADMSG);
	assert_string_equal(err.msg,
	                    "ros2.v1.AuditDraft.record: expected once at most, comes again");
}

static void rpc_server__oversized_messages_are_refused(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.max_message_bytes = 10000}};
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__Test__EchoReply *reply = NULL;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, &o);
	c = fx_channel(&f, NULL);
	req.text = (char *)"";
	req.blob.data = calloc(1, 5000000);
	req.blob.len = 9000;
	assert_int_equal(ros2_test_echo_say_sync(c, &req, 5000, &reply, &err), 0);
	ros2__test__echo_reply__free_unpacked(reply, NULL);
	req.blob.len = 10001;
	assert_int_equal(ros2_test_echo_say_sync(c, &req, 5000, &reply, &err), -EMSGSIZE);
	assert_int_equal(err.status, ROS2_TOO_LARGE);
	assert_non_null(strstr(err.msg, "at most 10000 (fixed) are accepted"));
	fx_wait(&f.refused[RPC_REFUSED_MESSAGE], 1);
	assert_non_null(strstr(fx_refused_as(&f, RPC_REFUSED_MESSAGE).words,
	                       "at most 10000 (fixed) are accepted"));
	req.blob.len = 1000000;
	assert_int_equal(ros2_test_echo_say_sync(c, &req, 5000, &reply, &err), -EMSGSIZE);
	req.blob.len = 5000000; /* above the client's own limit: not sent */
	assert_int_equal(ros2_test_echo_say_sync(c, &req, 5000, &reply, &err), -EMSGSIZE);
	assert_int_equal(f.handled, 1);
	free(req.blob.data);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void control__where_the_limit_is_far_away_they_are_handled(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	Ros2__Test__EchoReply *reply = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_message_bytes = 2000000});
	c = fx_channel(&f, NULL);
	req.text = (char *)"";
	req.blob.data = calloc(1, 1000000);
	for (req.blob.len = 10001; req.blob.len <= 1000000; req.blob.len += 989999) {
		assert_int_equal(ros2_test_echo_say_sync(c, &req, AWAIT_MS, &reply, &err), 0);
		ros2__test__echo_reply__free_unpacked(reply, NULL);
	}
	assert_int_equal(f.handled, 2);
	free(req.blob.data);
	rpc_channel_free(c);
	fx_stop(&f);
}

/* gRPC takes a message to its end before it says that it is too long. */
static void rpc_server__a_message_without_an_end_is_not_taken_to_it(void **state)
{
	AUTO_FREE uint8_t *zero = calloc(1, 9u << 20);
	struct bare r;
	struct fx f;

	/* A busy machine takes longer for the first than a request may otherwise. */
	fx_start_limits(&f, (struct rpc_limits){.request_deadline_ms = AWAIT_MS});
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.timeout_ms = AWAIT_MS;
	r.bytes = zero;
	r.n = 8u << 20;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_INVALID_ARGUMENT);
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	r.n = 9u << 20;
	bare_call(&r);
	expect_code(&r, GRPC_STATUS_UNAVAILABLE);
	assert_int_equal(fx_stats(&f).refused_futile, 1);
	fx_stop(&f);
}

/* ---- limits ---- */

struct many {
	struct rpc_channel *c;
	atomic_int busy, other, done;
};

static void many_done(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct many *m = arg;

	if (err->status == ROS2_BUSY)
		m->busy++;
	else if (err->code)
		m->other++;
	m->done++;
}

static void many_start(void *arg)
{
	struct many *m = arg;
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err;

	req.text = (char *)"keep";
	for (int i = 0; i < 10; i++)
		assert_int_equal(
			ros2_test_echo_say_async(m->c, &req, 5000, many_done, m, NULL, &err), 0);
}

static void rpc_server__calls_beyond_the_limit_are_answered_busy_at_once(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.max_calls = 8, .max_calls_per_group = 1}};
	struct rpc_server_stats st;
	struct many m = {0};
	struct fx f;

	fx_start(&f, &o);
	m.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, many_start, &m);
	fx_wait(&m.done, 9);
	assert_int_equal(m.busy, 9);
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.refused_limit, 9);
	assert_int_equal(st.calls_now, 1);
	fx_wait(&f.handled, 1);
	rpc_call_fail(f.kept, ROS2_IO, "done");
	fx_wait(&m.done, 10);
	fx_channel_free(&f, m.c);
	fx_stop(&f);
}

static void rpc_server__streams_beyond_the_limit_are_answered_busy_at_once(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.max_streams = 2, .max_streams_per_group = 2}};
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r[3];
	struct rpc_channel *c;
	ProtobufCMessage *msg;
	struct fx f;

	fx_start(&f, &o);
	c = fx_channel(&f, NULL);
	req.number = 1;
	req.text = (char *)"stay";
	for (int i = 0; i < 3; i++) {
		assert_int_equal(
			rpc_reader_open(c, &ros2_test_echo_count, &req.base, 0, &r[i], &err), 0);
		if (i == 2)
			break;
		assert_int_equal(rpc_reader_next(r[i], 5000, &msg, &err), 0);
		protobuf_c_message_free_unpacked(msg, NULL);
	}
	assert_int_equal(rpc_reader_next(r[2], 5000, &msg, &err), -EBUSY);
	assert_int_equal(err.status, ROS2_BUSY);
	assert_non_null(strstr(err.msg, "it has 2 open streams, and its share of the 2 is 2 "
	                                "(fixed)"));
	rpc_reader_close(r[2]);
	rpc_reader_close(r[0]);
	rpc_reader_close(r[1]);
	fx_wait(&f.closed, 2);
	/* Room again. */
	assert_int_equal(rpc_reader_open(c, &ros2_test_echo_count, &req.base, 0, &r[0], &err), 0);
	assert_int_equal(rpc_reader_next(r[0], 5000, &msg, &err), 0);
	protobuf_c_message_free_unpacked(msg, NULL);
	rpc_reader_close(r[0]);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_server__connections_beyond_the_limit_are_closed(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.max_connections_per_source = 2}};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server_stats st;
	struct rpc_channel *c[3];
	struct fx f;

	fx_start(&f, &o);
	for (int i = 0; i < 3; i++) {
		c[i] = fx_channel(&f, NULL);
		assert_int_equal(!fx_say(c[i], "x", "x", &err), i < 2);
	}
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.connections_now, 2);
	assert_true(st.refused_connections_per_source >= 1);
	assert_int_equal(st.refused_connections, 0);
	fx_wait(&f.refused[RPC_REFUSED_CONNECTIONS_PER_SOURCE], 1);
	assert_string_equal(fx_refused(&f).words,
	                    "max-connections-per-address: the listener has its 2 "
	                    "connections from this address");
	assert_int_equal(fx_refused(&f).r.status, ROS2_LIMIT);
	assert_non_null(strstr(fx_refused(&f).from, "127.0.0.1:"));
	rpc_channel_free(c[0]);
	/* time: the server hears of the closed socket by itself */
	usleep(100000);
	rpc_channel_reset_backoff(c[2]);
	if (rpc_channel_wait_ready(c[2], 5000, &err) || fx_say(c[2], "x", "x", &err))
		fail_msg("%s", err.msg);
	rpc_channel_free(c[1]);
	rpc_channel_free(c[2]);
	fx_stop(&f);
}

/* Who is refused before a handler is told, by whom and for what; who is served is not. */
static void rpc_server__tells_what_it_refused(void **state)
{
	static const char nul[] = {0x0a, 3, 'a', 0, 'b'};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct bare r;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	expect_invalid(&f, nul, sizeof(nul));
	fx_wait(&f.refused[RPC_REFUSED_MESSAGE], 1);
	assert_int_equal(fx_refused(&f).r.status, ROS2_INVALID);
	assert_ptr_equal(fx_refused(&f).r.method, &ros2_test_echo_say);
	assert_string_equal(fx_refused(&f).who, CLIENT_ID);
	assert_non_null(strstr(fx_refused(&f).from, "127.0.0.1:"));
	r = raw_to(&f, "/ros2.test.Echo/Nothing");
	bare_call(&r);
	fx_wait(&f.refused[RPC_REFUSED_METHOD], 1);
	assert_null(fx_refused(&f).r.method);
	r = raw_to(&f, "/ros2.test.Echo/Say");
	r.version = "9";
	bare_call(&r);
	fx_wait(&f.refused[RPC_REFUSED_VERSION], 1);
	rpc_channel_free(c);
	/* time: two looks at the connections that are gone */
	sleep(2);
	for (int i = 0; i < RPC_REFUSED_KINDS; i++)
		assert_int_equal(f.refused[i], i == RPC_REFUSED_MESSAGE ||
		                                       i == RPC_REFUSED_METHOD ||
		                                       i == RPC_REFUSED_VERSION);
	fx_stop(&f);
}

/* More than can be told one by one is told as a number, and none is left out. */
static void rpc_server__counts_every_refusal_of_a_flood(void **state)
{
	static const char nul[] = {0x0a, 3, 'a', 0, 'b'};
	struct bare r;
	struct fx f;

	fx_start(&f, NULL);
	for (int i = 0; i < 100; i++) {
		r = raw_to(&f, "/ros2.test.Echo/Say");
		r.bytes = nul;
		r.n = sizeof(nul);
		bare_call(&r);
	}
	fx_wait(&f.refused[RPC_REFUSED_MESSAGE], 100);
	assert_int_equal(f.refused[RPC_REFUSED_MESSAGE], 100);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__unknown_methods_are_unimplemented_at_once),
		cmocka_unit_test(rpc_server__a_call_of_the_wrong_kind_does_not_hang),
		cmocka_unit_test(rpc_server__another_protocol_version_is_refused_naming_both),
		cmocka_unit_test(rpc_server__bad_messages_reach_no_handler),
		cmocka_unit_test(rpc_message__lists_in_what_comes_again_are_not_joined),
		cmocka_unit_test(rpc_server__oversized_messages_are_refused),
		cmocka_unit_test(control__where_the_limit_is_far_away_they_are_handled),
		cmocka_unit_test(rpc_server__a_message_without_an_end_is_not_taken_to_it),
		cmocka_unit_test(rpc_server__calls_beyond_the_limit_are_answered_busy_at_once),
		cmocka_unit_test(rpc_server__streams_beyond_the_limit_are_answered_busy_at_once),
		cmocka_unit_test(rpc_server__connections_beyond_the_limit_are_closed),
		cmocka_unit_test(rpc_server__tells_what_it_refused),
		cmocka_unit_test(rpc_server__counts_every_refusal_of_a_flood),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
