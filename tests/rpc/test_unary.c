/* SPDX-License-Identifier: Apache-2.0 */
/* Unary calls over loopback mTLS: answers, named errors, deadlines, cancelling, stopping. */
#include "common/clock.h"
#include "proto/rpc/rpc_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void rpc_unary__answers_over_mtls_and_tells_who_called(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server_stats st;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	if (fx_say(c, "hello", "hello", &err))
		fail_msg("%s", err.msg);
	fx_wait(&f.handled, 1);
	assert_string_equal(f.last_peer.spiffe_id, CLIENT_ID);
	assert_true(f.last_peer.authenticated);
	assert_non_null(strstr(f.last_peer.address, "127.0.0.1:"));
	assert_true(f.last_peer.cert_not_after_unix_s > time(NULL));
	rpc_server_stats(f.server, &st);
	assert_int_equal(st.calls_total, 1);
	assert_int_equal(st.connections_now, 1);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_unary__named_errors_arrive_with_name_and_words(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "fail", NULL, &err), -EKEYREVOKED);
	assert_int_equal(err.status, ROS2_REVOKED);
	assert_string_equal(err.msg, "tenant alpha was revoked");
	assert_int_equal(fx_say(c, "wrong-type", NULL, &err), ros2_status_to_errno(ROS2_INTERNAL));
	assert_int_equal(err.status, ROS2_INTERNAL);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_unary__every_status_survives_the_wire(void **state)
{
	for (int s = 1; s < ROS2_STATUS_COUNT; s++) {
		struct ros2_err err = ROS2_ERR_INIT;

		grpc_slice m = rpc_status_message((enum ros2_status)s, "some words");

		rpc_status_from_grpc(rpc_status_to_grpc((enum ros2_status)s), m, &err);
		grpc_slice_unref(m);
		assert_int_equal(err.status, s);
		assert_string_equal(err.msg, "some words");
	}
}

static void fail_kept(void *arg)
{
	struct fx *f = arg;

	rpc_call_fail(f->kept, ROS2_IO, "too late");
}

static void reply_kept(void *arg)
{
	struct fx *f = arg;
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;

	assert_int_equal(ros2_test_echo_say_reply(f->kept, &reply), -ECANCELED);
}

static void rpc_unary__ends_at_the_clients_deadline_and_tells_the_handler(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	Ros2__Test__EchoReply *reply;
	struct rpc_channel *c;
	uint64_t t0;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "warm", NULL, &err), 0);
	req.text = (char *)"keep";
	t0 = clock_boottime_ns();
	assert_int_equal(ros2_test_echo_say_sync(c, &req, 200, &reply, &err), -ETIMEDOUT);
	assert_int_equal(err.status, ROS2_TIMEOUT);
	assert_in_range((clock_boottime_ns() - t0) / NS_PER_MS, 150, AWAIT_MS);
	fx_wait(&f.cancelled, 1);
	fx_on_loop(&f, reply_kept, &f);
	rpc_channel_free(c);
	fx_stop(&f);
}

static void rpc_unary__ends_at_the_servers_limit(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = {.call_deadline_ms = 200}};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, &o);
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "keep", NULL, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.msg, "server's limit"));
	fx_wait(&f.cancelled, 1);
	fx_on_loop(&f, fail_kept, &f);
	rpc_channel_free(c);
	fx_stop(&f);
}

/* ---- asynchronous ---- */

struct async {
	struct rpc_channel *c;
	struct rpc_request *r;
	const char *text;
	atomic_int done;
	struct ros2_err err;
	uint32_t number;
	int rc;
};

static void async_done(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct async *a = arg;

	a->err = *err;
	if (reply)
		a->number = ros2_test_echo_say_out(reply)->number;
	a->done++;
}

static void async_start(void *arg)
{
	struct async *a = arg;
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;

	req.text = (char *)a->text;
	req.number = 7;
	a->rc = ros2_test_echo_say_async(a->c, &req, 5000, async_done, a, &a->r, &a->err);
}

static void async_cancel(void *arg)
{
	rpc_request_cancel(((struct async *)arg)->r);
}

static void rpc_unary__async_answers_on_the_loop(void **state)
{
	struct async a = {.text = "x"};
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	assert_int_equal(a.rc, 0);
	fx_wait(&a.done, 1);
	assert_int_equal(a.err.code, 0);
	assert_int_equal(a.number, 7);
	fx_channel_free(&f, a.c);
	fx_stop(&f);
}

static void rpc_unary__cancelling_tells_both_sides(void **state)
{
	struct async a = {.text = "keep"};
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	fx_wait(&f.handled, 1);
	fx_on_loop(&f, async_cancel, &a);
	fx_wait(&a.done, 1);
	assert_int_equal(a.err.status, ROS2_CANCELLED);
	fx_wait(&f.cancelled, 1);
	assert_true(rpc_call_is_cancelled(f.kept));
	fx_on_loop(&f, fail_kept, &f);
	fx_channel_free(&f, a.c);
	fx_stop(&f);
}

static void rpc_unary__freeing_a_channel_ends_its_calls_once(void **state)
{
	struct async a = {.text = "keep"};
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	fx_wait(&f.handled, 1);
	fx_channel_free(&f, a.c);
	assert_int_equal(a.done, 1);
	assert_int_equal(a.err.status, ROS2_CANCELLED);
	fx_wait(&f.cancelled, 1);
	fx_on_loop(&f, fail_kept, &f);
	/* time: long enough for what must not happen */
	usleep(20000);
	assert_int_equal(a.done, 1);
	fx_stop(&f);
}

static void rpc_unary__without_a_server_fails_at_once_as_unavailable(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	strcpy(f.target, "127.0.0.1:1");
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "x", NULL, &err), -ENOTCONN);
	assert_int_equal(err.status, ROS2_UNAVAILABLE);
	rpc_channel_free(c);
	fx_stop(&f);
}

/* Many calls answered by other threads, every other one cancelled. */
struct storm {
	struct rpc_channel *c;
	struct rpc_request *r[200];
	atomic_int done, good;
};

static void storm_done(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct storm *st = arg;

	st->good += !err->code;
	st->done++;
}

static void storm_start(void *arg)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct storm *st = arg;

	req.text = (char *)"thread";
	for (int i = 0; i < 200; i++)
		assert_int_equal(ros2_test_echo_say_async(st->c, &req, 5000, storm_done, st,
		                                          &st->r[i], &err),
		                 0);
	/* Nothing was delivered yet: this is the loop thread. */
	for (int i = 0; i < 200; i += 2)
		rpc_request_cancel(st->r[i]);
}

static void rpc_unary__answers_from_other_threads_race_with_cancelling_safely(void **state)
{
	struct storm st = {0};
	struct fx f;

	fx_start(&f, NULL);
	st.c = fx_channel(&f, f.loop);
	for (int round = 1; round <= 3; round++) {
		fx_on_loop(&f, storm_start, &st);
		fx_wait(&st.done, 200 * round);
	}
	assert_true(st.good >= 300);
	/* And with the end of the server. */
	fx_on_loop(&f, storm_start, &st);
	/* time: the end comes in the middle of the storm */
	usleep(2000);
	fx_free_server(&f);
	fx_wait(&st.done, 800);
	AWAIT(!f.threads);
	assert_int_equal(f.threads, 0);
	fx_channel_free(&f, st.c);
	fx_stop(&f);
}

/* ---- stopping ---- */

static void stopped(void *arg)
{
	struct fx *f = arg;

	f->stopped++;
}

static void stop_gently(void *arg)
{
	struct fx *f = arg;

	rpc_server_stop(f->server, 3000, stopped, f);
}

static void stop_hard(void *arg)
{
	struct fx *f = arg;

	rpc_server_stop(f->server, 50, stopped, f);
}

static void reply_kept_well(void *arg)
{
	struct fx *f = arg;
	Ros2__Test__EchoReply reply = ROS2__TEST__ECHO_REPLY__INIT;

	reply.number = 9;
	assert_int_equal(ros2_test_echo_say_reply(f->kept, &reply), 0);
}

static void rpc_server__stop_lets_calls_in_flight_end(void **state)
{
	struct async a = {.text = "keep"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	fx_wait(&f.handled, 1);
	fx_on_loop(&f, stop_gently, &f);
	/* time: long enough for what must not happen */
	usleep(50000);
	assert_int_equal(f.stopped, 0);
	assert_int_not_equal(fx_say(a.c, "late", NULL, &err), 0);
	fx_on_loop(&f, reply_kept_well, &f);
	fx_wait(&a.done, 1);
	assert_int_equal(a.err.code, 0);
	assert_int_equal(a.number, 9);
	fx_wait(&f.stopped, 1);
	fx_channel_free(&f, a.c);
	fx_stop(&f);
}

static void rpc_server__stop_cancels_after_the_grace(void **state)
{
	struct async a = {.text = "keep"};
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	fx_wait(&f.handled, 1);
	fx_on_loop(&f, stop_hard, &f);
	fx_wait(&f.cancelled, 1);
	fx_wait(&a.done, 1);
	assert_int_not_equal(a.err.code, 0);
	assert_int_equal(f.stopped, 0);
	fx_on_loop(&f, fail_kept, &f);
	fx_wait(&f.stopped, 1);
	fx_channel_free(&f, a.c);
	fx_stop(&f);
}

static void rpc_server__free_leaves_unanswered_calls_safe_to_answer(void **state)
{
	struct async a = {.text = "keep"};
	struct fx f;

	fx_start(&f, NULL);
	a.c = fx_channel(&f, f.loop);
	fx_on_loop(&f, async_start, &a);
	fx_wait(&f.handled, 1);
	fx_free_server(&f);
	assert_int_equal(f.cancelled, 1);
	fx_channel_free(&f, a.c);
	assert_int_equal(a.done, 1);
	fx_stop(&f);
	/* Server and loop are gone, the call is still the handler's. */
	rpc_call_fail(f.kept, ROS2_IO, "nobody hears this");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_unary__answers_over_mtls_and_tells_who_called),
		cmocka_unit_test(rpc_unary__named_errors_arrive_with_name_and_words),
		cmocka_unit_test(rpc_unary__every_status_survives_the_wire),
		cmocka_unit_test(rpc_unary__ends_at_the_clients_deadline_and_tells_the_handler),
		cmocka_unit_test(rpc_unary__ends_at_the_servers_limit),
		cmocka_unit_test(rpc_unary__async_answers_on_the_loop),
		cmocka_unit_test(rpc_unary__cancelling_tells_both_sides),
		cmocka_unit_test(rpc_unary__freeing_a_channel_ends_its_calls_once),
		cmocka_unit_test(rpc_unary__without_a_server_fails_at_once_as_unavailable),
		cmocka_unit_test(rpc_unary__answers_from_other_threads_race_with_cancelling_safely),
		cmocka_unit_test(rpc_server__stop_lets_calls_in_flight_end),
		cmocka_unit_test(rpc_server__stop_cancels_after_the_grace),
		cmocka_unit_test(rpc_server__free_leaves_unanswered_calls_safe_to_answer),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
