/* SPDX-License-Identifier: Apache-2.0 */
/* Server and bidirectional streams: order, ends, bounded queues, readers that do not read. */
#include "common/util.h"
#include "proto/grpc/health/v1/health.rpc.h"
#include "tests/rpc/fixture.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a client stream saw. */
struct seen {
	atomic_int opened, messages, writable, closed;
	atomic_uint last_number;
	struct ros2_err why;
	struct rpc_stream *s;
	struct rpc_channel *c;
	const struct rpc_method *m;
	const ProtobufCMessage *req;
	int rc;
};

static void c_open(struct rpc_stream *s, const ProtobufCMessage *req, void *user)
{
	((struct seen *)user)->opened++;
}

static void c_message(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	struct seen *seen = user;

	seen->last_number = ((const Ros2__Test__EchoReply *)m)->number;
	seen->messages++;
}

static void c_writable(struct rpc_stream *s, void *user)
{
	((struct seen *)user)->writable++;
}

static void c_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct seen *seen = user;

	seen->why = *why;
	seen->closed++;
}

static const struct rpc_stream_ops client_ops = {.on_open = c_open,
                                                 .on_message = c_message,
                                                 .on_writable = c_writable,
                                                 .on_closed = c_closed};

static void open_stream(void *arg)
{
	struct seen *seen = arg;
	struct rpc_stream_opts o = {.ops = &client_ops, .user = seen, .queue_max = 8};
	struct ros2_err err = ROS2_ERR_INIT;

	seen->rc = rpc_stream_open(seen->c, seen->m, seen->req, &o, &seen->s, &err);
	if (!seen->rc)
		rpc_stream_ref(seen->s);
}

static void open_on(struct fx *f, struct seen *seen, struct rpc_channel *c,
                    const struct rpc_method *m, const ProtobufCMessage *req)
{
	memset(seen, 0, sizeof(*seen));
	seen->c = c;
	seen->m = m;
	seen->req = req;
	fx_on_loop(f, open_stream, seen);
	assert_int_equal(seen->rc, 0);
}

static int send_number(struct rpc_stream *s, uint32_t n, const char *text)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;

	req.number = n;
	req.text = (char *)text;
	return ros2_test_echo_chat_send_request(s, &req);
}

static void rpc_stream__bidi_echoes_in_order_and_ends_well(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	for (uint32_t i = 1; i <= 100;) {
		if (!send_number(seen.s, i, ""))
			i++;
		else
			/* poll: the queue takes one more when the peer has read */
			usleep(500);
	}
	fx_wait(&seen.messages, 100);
	assert_int_equal(seen.last_number, 100);
	assert_int_equal(seen.opened, 1);
	assert_int_equal(rpc_stream_half_close(seen.s), 0);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.code, 0);
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.code, 0);
	assert_int_equal(f.half_closed, 1);
	assert_int_equal(send_number(seen.s, 1, ""), -ESHUTDOWN);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

static void rpc_stream__server_stream_is_read_by_a_blocking_reader(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	req.number = 200; /* more than a reader keeps */
	assert_int_equal(rpc_reader_open(c, &ros2_test_echo_count, &req.base, 5000, &r, &err), 0);
	for (uint32_t i = 0; i < 200; i++) {
		if (rpc_reader_next(r, 5000, &m, &err))
			fail_msg("%s", err.msg);
		assert_int_equal(ros2_test_echo_count_out(m)->number, i);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rpc_reader_next(r, 5000, &m, &err), -ENODATA);
	rpc_reader_close(r);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_stream__a_cancelled_reader_hands_on_nothing_it_has_kept(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	req.number = 200;
	assert_int_equal(rpc_reader_open(c, &ros2_test_echo_count, &req.base, 5000, &r, &err), 0);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(rpc_reader_next(r, 5000, &m, &err), 0);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_cancel(r);
	assert_true(rpc_reader_next(r, 5000, &m, &err) < 0);
	assert_int_equal(err.status, ROS2_CANCELLED);
	rpc_reader_close(r);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_stream__a_refused_or_failed_stream_tells_its_name(void **state)
{
	Ros2__Test__EchoRequest bad = ROS2__TEST__ECHO_REQUEST__INIT;
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	assert_int_equal(send_number(seen.s, 1, "end-badly"), 0);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_CONFLICT);
	assert_string_equal(seen.why.msg, "as you wished");
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.status, ROS2_CONFLICT);
	rpc_stream_unref(seen.s);

	/* A message that does not decode ends the stream before the handler sees it. */
	int handled = f.handled;

	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	bad.text = (char *)"\xff";
	assert_int_equal(ros2_test_echo_chat_send_request(seen.s, &bad), 0);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_INVALID);
	assert_int_equal(f.handled, handled);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

static void fill(struct fx *f, struct rpc_stream *s, int *ret_sent, size_t size)
{
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;
	int rc = 0;

	reply.text = (char *)"";
	reply.blob.len = size;
	reply.blob.data = calloc(1, size);
	for (*ret_sent = 0; *ret_sent < 100000; ++*ret_sent) {
		rc = ros2_test_echo_chat_send_reply(s, &reply);
		/* Wait until gRPC takes no more: the peer's window is full. */
		for (int i = 0; i < 20 && rc == -EAGAIN; i++) {
			/* poll: gRPC does not tell when its window is full */
			usleep(10000);
			rc = ros2_test_echo_chat_send_reply(s, &reply);
		}
		if (rc)
			break;
	}
	free(reply.blob.data);
	assert_int_equal(rc, -EAGAIN);
}

static void hold_client(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	struct seen *seen = user;

	if (seen->messages++ == 0)
		rpc_stream_hold(s);
}

static const struct rpc_stream_ops holding_ops = {.on_message = hold_client, .on_closed = c_closed};

static void open_holding(void *arg)
{
	struct seen *seen = arg;
	struct rpc_stream_opts o = {.ops = &holding_ops, .user = seen};
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rpc_stream_open(seen->c, &ros2_test_echo_chat, NULL, &o, &seen->s, &err),
	                 0);
	rpc_stream_ref(seen->s);
}

static void rpc_stream__a_reader_that_stops_fills_a_bounded_queue(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.stream_queue_max = 16}};
	struct rpc_channel *c;
	struct seen seen = {0};
	int sent, got;
	struct fx f;

	fx_start(&f, &o);
	c = seen.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, open_holding, &seen);
	fx_wait(&f.opened, 1);
	fill(&f, f.stream, &sent, 8192);
	assert_int_equal(rpc_stream_queued(f.stream), 16);
	/* What is in flight is bounded by the queue and HTTP/2 windows, not by what we tried. */
	assert_in_range(sent, 16, 2000);
	assert_int_equal(seen.messages, 1);
	f.writable = 0;
	rpc_stream_resume(seen.s);
	fx_wait(&seen.messages, sent);
	fx_wait(&f.writable, 1);
	got = seen.messages;
	assert_int_equal(got, sent);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.status, ROS2_CANCELLED);
	fx_stop(&f);
}

static void rpc_stream__abort_ends_a_stream_whose_peer_does_not_read(void **state)
{
	struct rpc_channel *c;
	struct seen seen = {0};
	struct fx f;
	int sent;

	fx_start(&f, NULL);
	c = seen.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, open_holding, &seen);
	fx_wait(&f.opened, 1);
	fill(&f, f.stream, &sent, 8192);
	rpc_stream_abort(f.stream, ROS2_BUSY, "you do not read");
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.status, ROS2_BUSY);
	/* The client learns it once it reads on. */
	rpc_stream_resume(seen.s);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_BUSY);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

/* The first ends well and the second badly, and nobody takes anything of either. */
static void rpc_stream__a_bad_end_that_is_not_taken_is_given_up(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.call_deadline_ms = 200, .stream_queue_max = 16}};
	struct seen well = {0}, badly = {0};
	struct rpc_channel *c;
	struct fx f;
	int sent;

	fx_start(&f, &o);
	c = well.c = badly.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, open_holding, &well);
	fx_wait(&f.opened, 1);
	fill(&f, f.stream, &sent, 8192);
	rpc_stream_close(f.stream, ROS2_OK, NULL);
	fx_on_loop(&f, open_holding, &badly);
	fx_wait(&f.opened, 2);
	fill(&f, f.stream, &sent, 8192);
	rpc_stream_close(f.stream, ROS2_REVOKED, "you are out");
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.status, ROS2_REVOKED);
	assert_int_equal(f.closed, 1);
	rpc_stream_resume(badly.s);
	fx_wait(&badly.closed, 1);
	assert_int_equal(badly.why.status, ROS2_REVOKED);
	rpc_stream_resume(well.s);
	fx_wait(&well.closed, 1);
	assert_int_equal(well.why.code, 0);
	rpc_stream_unref(badly.s);
	rpc_stream_unref(well.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

static void rpc_stream__a_handler_that_holds_pushes_back_on_the_sender(void **state)
{
	char *text = calloc(1, 8193);
	struct rpc_channel *c;
	struct seen seen;
	int sent = 0, rc = 0;
	struct fx f;

	memset(text, 'x', 8192);
	fx_start(&f, NULL);
	f.hold = true;
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	fx_wait(&seen.opened, 1);
	for (; sent < 20000; sent++) {
		rc = send_number(seen.s, (uint32_t)sent, text);
		for (int i = 0; i < 20 && rc == -EAGAIN; i++) {
			/* poll: gRPC does not tell when its window is full */
			usleep(10000);
			rc = send_number(seen.s, (uint32_t)sent, text);
		}
		if (rc)
			break;
	}
	assert_int_equal(rc, -EAGAIN);
	assert_in_range(sent, 8, 2000);
	assert_int_equal(f.handled, 1);
	rpc_stream_resume(f.stream);
	fx_wait(&f.handled, sent);
	fx_wait(&seen.writable, 1);
	rpc_stream_close(seen.s, ROS2_OK, NULL);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_CANCELLED);
	fx_wait(&f.closed, 1);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
	free(text);
}

static void rpc_stream__corked_sends_leave_at_uncork_and_never_fill_the_queue(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	fx_wait(&seen.opened, 1);
	rpc_stream_cork(seen.s);
	rpc_stream_cork(seen.s);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(send_number(seen.s, i, ""), 0);
	rpc_stream_uncork(seen.s);
	/* time: long enough for what must not happen */
	usleep(50000);
	assert_int_equal(f.handled, 0);
	assert_int_equal(rpc_stream_queued(seen.s), 3);
	rpc_stream_uncork(seen.s);
	fx_wait(&seen.messages, 3);
	/* The queue's bound is 8: a cork does not fill it, and an end waits for nothing. */
	rpc_stream_cork(seen.s);
	for (uint32_t i = 0; i < 20; i++)
		for (int tries = 0; send_number(seen.s, i, "") && tries < 1000; tries++)
			/* poll: the queue takes one more when the peer has read */
			usleep(1000);
	assert_int_equal(rpc_stream_half_close(seen.s), 0);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.code, 0);
	assert_int_equal(f.handled, 23);
	rpc_stream_uncork(seen.s);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

/* A client that holds after the first of three replies, and a server that has ended the stream. */
static void hold_at_the_end(struct fx *f, struct seen *seen)
{
	*seen = (struct seen){.c = fx_channel(f, f->loop)};
	fx_on_loop(f, open_holding, seen);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(send_number(seen->s, i, ""), 0);
	assert_int_equal(send_number(seen->s, 3, "end-badly"), 0);
	fx_wait(&f->closed, 1);
	fx_wait(&seen->messages, 1);
	/* time: long enough for what must not happen */
	usleep(50000);
	assert_int_equal(seen->messages, 1);
	assert_int_equal(seen->closed, 0);
}

static void rpc_stream__a_client_that_holds_hears_what_came_before_the_end(void **state)
{
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	hold_at_the_end(&f, &seen);
	rpc_stream_resume(seen.s);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.messages, 3);
	assert_int_equal(seen.why.status, ROS2_CONFLICT);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, seen.c);
	fx_stop(&f);
}

static void rpc_stream__after_an_abort_nothing_read_ahead_is_heard(void **state)
{
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	hold_at_the_end(&f, &seen);
	rpc_stream_abort(seen.s, ROS2_CANCELLED, "enough");
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.messages, 1);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, seen.c);
	fx_stop(&f);
}

static void rpc_stream__half_close_comes_after_the_messages_that_are_held(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	f.hold = true;
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(send_number(seen.s, i, ""), 0);
	assert_int_equal(rpc_stream_half_close(seen.s), 0);
	fx_wait(&f.handled, 1);
	/* time: long enough for what must not happen */
	usleep(50000);
	assert_int_equal(f.handled, 1);
	assert_int_equal(f.half_closed, 0);
	rpc_stream_resume(f.stream);
	fx_wait(&f.half_closed, 1);
	assert_int_equal(f.handled, 3);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.code, 0);
	assert_int_equal(seen.messages, 3);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

static void rpc_stream__freeing_the_server_ends_streams_before_it_returns(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	fx_wait(&seen.opened, 1);
	fx_wait(&f.opened, 1); /* the headers leave before the handler runs */
	fx_free_server(&f);
	assert_int_equal(f.closed, 1);
	fx_wait(&seen.closed, 1);
	assert_int_not_equal(seen.why.code, 0);
	assert_int_equal(send_number(seen.s, 1, ""), -ESHUTDOWN);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

static void rpc_stream__freeing_the_channel_ends_streams_before_it_returns(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, f.loop);
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	fx_wait(&seen.opened, 1);
	fx_channel_free(&f, c);
	assert_int_equal(seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_CANCELLED);
	fx_wait(&f.closed, 1);
	rpc_stream_unref(seen.s);
	fx_stop(&f);
}

/* Frees the channel in whatever callback comes first after @armed. */
struct freeing {
	struct rpc_channel *c;
	atomic_int on_message, closed, answered;
};

static void free_on_message(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	struct freeing *fr = user;

	if (fr->on_message++ == 0)
		rpc_channel_free(TAKE_PTR(fr->c));
}

static void free_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct freeing *fr = user;
	struct rpc_channel *c = TAKE_PTR(fr->c);

	fr->closed++;
	rpc_channel_free(c);
}

static const struct rpc_stream_ops freeing_ops = {.on_message = free_on_message,
                                                  .on_closed = free_closed};

static void free_answered(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct freeing *fr = arg;
	struct rpc_channel *c = TAKE_PTR(fr->c);

	fr->answered++;
	rpc_channel_free(c);
}

static void open_freeing(void *arg)
{
	struct freeing *fr = arg;
	struct rpc_stream_opts o = {.ops = &freeing_ops, .user = fr};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_stream *s;

	assert_int_equal(rpc_stream_open(fr->c, &ros2_test_echo_chat, NULL, &o, &s, &err), 0);
	assert_int_equal(send_number(s, 1, ""), 0);
	assert_int_equal(send_number(s, 2, ""), 0);
}

static void open_ending(void *arg)
{
	struct freeing *fr = arg;
	struct rpc_stream_opts o = {.ops = &freeing_ops, .user = fr};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_stream *s;

	assert_int_equal(rpc_stream_open(fr->c, &ros2_test_echo_chat, NULL, &o, &s, &err), 0);
	assert_int_equal(send_number(s, 1, "end-badly"), 0);
}

static void call_freeing(void *arg)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct freeing *fr = arg;

	assert_int_equal(ros2_test_echo_say_async(fr->c, &req, 5000, free_answered, fr, NULL, &err),
	                 0);
}

static void open_nothing(void *arg)
{
}

static void rpc_channel__may_be_freed_inside_its_callbacks(void **state)
{
	struct freeing fr = {0};
	struct fx f;

	fx_start(&f, NULL);
	fr.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, open_freeing, &fr);
	fx_wait(&fr.closed, 1);
	fr.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, open_ending, &fr);
	fx_wait(&fr.closed, 2);
	fr.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, call_freeing, &fr);
	fx_wait(&fr.answered, 1);
	fx_on_loop(&f, open_nothing, &fr);
	assert_int_equal(fr.on_message, 1);
	assert_int_equal(fr.closed, 2);
	fx_stop(&f);
}

static void rpc_stream__ends_when_the_certificate_expires(void **state)
{
	struct rpc_channel *c;
	struct seen seen;
	struct fx f;

	fx_start(&f, NULL);
	fx_issue("ca", "brief", CLIENT_ID, 2);
	c = fx_channel_opts(&f, (struct rpc_channel_opts){.loop = f.loop,
	                                                  .cert_path = fx_path("brief.crt"),
	                                                  .key_path = fx_path("brief.key")});
	open_on(&f, &seen, c, &ros2_test_echo_chat, NULL);
	fx_wait(&seen.opened, 1);
	fx_wait(&seen.closed, 1);
	assert_int_equal(seen.why.status, ROS2_UNAUTHENTICATED);
	fx_wait(&f.closed, 1);
	assert_int_equal(f.closed_why.status, ROS2_UNAUTHENTICATED);
	rpc_stream_unref(seen.s);
	fx_channel_free(&f, c);
	fx_stop(&f);
}

/* ---- health ---- */

static int health(struct rpc_channel *c, const char *service, struct ros2_err *err)
{
	Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	Grpc__Health__V1__HealthCheckResponse *reply = NULL;
	int rc;

	req.service = (char *)service;
	rc = grpc_health_v1_health_check_sync(c, &req, 5000, &reply, err);
	if (rc)
		return rc;
	rc = (int)reply->status;
	protobuf_c_message_free_unpacked(&reply->base, NULL);
	return rc;
}

static int next_status(struct rpc_reader *r)
{
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m;
	int rc = rpc_reader_next(r, 5000, &m, &err);

	if (rc)
		return rc;
	rc = (int)grpc_health_v1_health_watch_out(m)->status;
	protobuf_c_message_free_unpacked(m, NULL);
	return rc;
}

static void rpc_health__answers_checks_and_tells_watchers(void **state)
{
	Grpc__Health__V1__HealthCheckRequest req = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r, *unknown;
	struct rpc_channel *c;
	ProtobufCMessage *m;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	assert_int_equal(health(c, "", &err), 1);
	assert_int_equal(health(c, "ros2.test.Echo", &err), 1);
	assert_int_equal(health(c, "no.such.Service", &err), -ENOENT);
	req.service = (char *)"ros2.test.Echo";
	assert_int_equal(rpc_reader_open(c, &grpc_health_v1_health_watch, &req.base, 0, &r, &err),
	                 0);
	assert_int_equal(next_status(r), 1);
	assert_int_equal(rpc_server_set_health(f.server, "ros2.test.Echo", false), 0);
	assert_int_equal(next_status(r), 2);
	assert_int_equal(health(c, "ros2.test.Echo", &err), 2);
	assert_int_equal(health(c, "", &err), 1);
	assert_int_equal(rpc_server_set_health(f.server, "ros2.test.Echo", true), 0);
	assert_int_equal(next_status(r), 1);
	assert_int_equal(rpc_server_set_health(f.server, "no.such.Service", true), -ENOENT);
	assert_int_equal(rpc_reader_next(r, 50, &m, &err), -EAGAIN);
	req.service = (char *)"no.such.Service";
	assert_int_equal(
		rpc_reader_open(c, &grpc_health_v1_health_watch, &req.base, 0, &unknown, &err), 0);
	assert_int_equal(next_status(unknown), 3);
	rpc_reader_close(unknown);
	rpc_reader_close(r);
	rpc_channel_free(c);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_stream__bidi_echoes_in_order_and_ends_well),
		cmocka_unit_test(rpc_stream__server_stream_is_read_by_a_blocking_reader),
		cmocka_unit_test(rpc_stream__a_cancelled_reader_hands_on_nothing_it_has_kept),
		cmocka_unit_test(rpc_stream__a_refused_or_failed_stream_tells_its_name),
		cmocka_unit_test(rpc_stream__a_reader_that_stops_fills_a_bounded_queue),
		cmocka_unit_test(rpc_stream__abort_ends_a_stream_whose_peer_does_not_read),
		cmocka_unit_test(rpc_stream__a_bad_end_that_is_not_taken_is_given_up),
		cmocka_unit_test(rpc_stream__a_handler_that_holds_pushes_back_on_the_sender),
		cmocka_unit_test(rpc_stream__corked_sends_leave_at_uncork_and_never_fill_the_queue),
		cmocka_unit_test(rpc_stream__a_client_that_holds_hears_what_came_before_the_end),
		cmocka_unit_test(rpc_stream__after_an_abort_nothing_read_ahead_is_heard),
		cmocka_unit_test(rpc_stream__half_close_comes_after_the_messages_that_are_held),
		cmocka_unit_test(rpc_stream__freeing_the_server_ends_streams_before_it_returns),
		cmocka_unit_test(rpc_stream__freeing_the_channel_ends_streams_before_it_returns),
		cmocka_unit_test(rpc_channel__may_be_freed_inside_its_callbacks),
		cmocka_unit_test(rpc_stream__ends_when_the_certificate_expires),
		cmocka_unit_test(rpc_health__answers_checks_and_tells_watchers),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
