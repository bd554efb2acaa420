/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of control calls when their session ends; and that the end of a host without a word
 * is heard of. */
#include "tests/dataplane/slow_fixture.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* Cuts behind the gate, as mkdir does. */
static int gated_open(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                      struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	if (flags & ENGINE_TRUNCATE)
		slow_engine_ops.mkdir(ns, "gate", 0755, NULL);
	return engine_mem_ops.open(ns, path, flags, mode, ret, attr, err);
}

struct held_call {
	struct fx *fx;
	enum fx_kind kind;
	struct fx_args a;
	struct dp_result res;
	pthread_t thread;
};

static void *make_call(void *arg)
{
	struct held_call *c = arg;

	c->res = fx_do(c->fx, c->kind, &c->a);
	return NULL;
}

/* Who is told CLOSED may make the call again. */
static void control__carried_out_for_a_session_that_ended_is_in_doubt_and_no_other(void **state)
{
	struct fx *fx = *state;
	struct held_call calls[] = {
		{fx, FX_PATH, {.mount = 1, .path_op = DP_MKDIR, .path = "done"}},
		{fx,
	         FX_OPEN,
	         {.mount = 1, .path = "file", .flags = ENGINE_WRITE | ENGINE_TRUNCATE}}};
	struct fx_args stat = {.mount = 1, .path_op = DP_STAT, .path = "never"};
	struct held_call waits = {fx, FX_PATH, {.mount = 1, .path_op = DP_MKDIR, .path = "never"}};

	slow_engine_ops.open = gated_open;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		struct raw c;

		raw_ready(fx, &c);
		calls[i].a.session = waits.a.session = c.session;
		slow_engine_shut(true);
		pthread_create(&calls[i].thread, NULL, make_call, &calls[i]);
		slow_engine_wait_calls(1);
		pthread_create(&waits.thread, NULL, make_call, &waits);
		raw_close(&c);
		/* A tenant has one of the two workers. */
		pthread_join(waits.thread, NULL);
		assert_int_equal(waits.res.status, ROS2_CLOSED);
		slow_engine_shut(false);
		pthread_join(calls[i].thread, NULL);
		assert_int_equal(calls[i].res.status, ROS2_OUTCOME_UNKNOWN);
		raw_ready(fx, &c);
		stat.session = c.session;
		assert_int_equal(fx_do(fx, FX_PATH, &stat).status, ROS2_NOT_FOUND);
		raw_close(&c);
	}
}

static struct sockaddr_in name_of(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_in sa = {0};
	socklen_t len = sizeof(sa);

	if (get(fd, (struct sockaddr *)&sa, &len) < 0 || sa.sin_family != AF_INET)
		sa.sin_port = 0;
	return sa;
}

/* The data plane's end of a connection: it is in this process. */
static int other_end(int fd)
{
	in_port_t port = name_of(fd, getsockname).sin_port;

	for (int i = 0; i < 1024; i++)
		if (i != fd && name_of(i, getpeername).sin_port == port)
			return i;
	fail_msg("the connection has no other end here");
	return -1;
}

static int option(int fd, int level, int name)
{
	int v = -1;
	socklen_t len = sizeof(v);

	assert_int_equal(getsockopt(fd, level, name, &v, &len), 0);
	return v;
}

/* A host that lost its power says nothing: its sessions would count until its certificate ends. */
static void host__that_says_nothing_is_asked_whether_it_is_there(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	int fd;

	raw_ready(fx, &c);
	fd = other_end(c.fd);
	assert_int_equal(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_in_range(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
	                        option(fd, IPPROTO_TCP, TCP_KEEPINTVL) *
	                                option(fd, IPPROTO_TCP, TCP_KEEPCNT),
	                10, 60);
	raw_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(control__carried_out_for_a_session_that_ended_is_in_doubt_and_no_other),
		FX_TEST(host__that_says_nothing_is_asked_whether_it_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
