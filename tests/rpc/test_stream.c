/* SPDX-License-Identifier: Apache-2.0 */
/* Server and bidirectional streams: order, ends, bounded queues, readers that do not read. */
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
	req.number = 50;
	assert_int_equal(rpc_reader_open(c, &ros2_test_echo_count, &req.base, 5000, &r, &err), 0);
	for (uint32_t i = 0; i < 50; i++) {
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_stream__bidi_echoes_in_order_and_ends_well),
		cmocka_unit_test(rpc_stream__server_stream_is_read_by_a_blocking_reader),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
