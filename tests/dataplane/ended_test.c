/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of control calls when their session ends; and that the end of a host without a word
 * is heard of. */
#include "tests/dataplane/slow_fixture.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static uint8_t buf[WIRE_IO_MAX];
static _Atomic uint32_t looks; /* of the data plane, at what the kernel knows of a connection */

int __real_getsockopt(int fd, int level, int name, void *v, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *v, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *v, socklen_t *len)
{
	int rc = __real_getsockopt(fd, level, name, v, len);

	looks += level == IPPROTO_TCP && name == TCP_INFO;
	return rc;
}

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

/* Not where another program plays the kernel (qemu-user). */
static bool kernel_counts_segments(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	return __real_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       len >= offsetof(struct tcp_info, tcpi_notsent_bytes);
}

static bool is_acknowledged(int fd)
{
	int left = 1;

	return ioctl(fd, SIOCOUTQ, &left) == 0 && left == 0;
}

/* As a host that has lost its power: what comes for it is heard by nobody. */
static void go_dark(const struct raw *c)
{
	struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog p = {1, &nothing};

	assert_true(AWAIT(is_acknowledged(c->fd)));
	assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_ATTACH_FILTER, &p, sizeof(p)), 0);
}

/* Looks at connections, ten seconds apart, until one session or so has ended. */
static bool ends_after_looks(struct fx *fx, uint32_t most)
{
	for (uint32_t n = 0; n < most; n++) {
		uint32_t seen = looks;

		clock_ahead_ns += 10 * NS_PER_S;
		if (!AWAIT(looks != seen || fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1)))
			return false;
		if (fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1))
			return true;
	}
	return false;
}

/* A connection with a file of 1 MiB, whose leases last longer than what the clock is ahead. False:
 * nobody counts here what comes. */
static bool reader(struct fx *fx, struct raw *c)
{
	fx->limits.lease_ttl_ms = 600000;
	fx_limits(fx);
	raw_ready(fx, c);
	assert_int_equal(raw_write(c, 0, buf, sizeof(buf), false), ROS2_OK);
	return kernel_counts_segments(c->fd);
}

/* What is on its way keeps the kernel from asking: it would send it again for a quarter of an hour.
 */
static void host__that_acknowledges_nothing_is_given_up_after_a_minute(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct dp_event ev;
	struct raw c;

	if (!reader(fx, &c)) {
		raw_close(&c);
		skip();
	}
	slow_engine_shut(true);
	h = raw_header(&c, WIRE_READ, 0, FX_BASE, 4096);
	raw_send(&c, &h, NULL, 0);
	slow_engine_wait_held(1);
	go_dark(&c);
	slow_engine_shut(false);
	assert_true(AWAIT(fx_has_read(fx, &c.session, 1)));
	assert_true(ends_after_looks(fx, 12));
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_string_equal(ev.words, "the connection was lost");
	raw_close(&c);
}

/* What was sent is acknowledged within a fifth of a second, a question within one or two: ten
 * seconds on, which here are none, that is long ago. */
static bool has_answered(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	return __real_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       !info.tcpi_unacked && !info.tcpi_probes;
}

/* The other control is what answers: its kernel, when it is asked whether there is room by now. */
static void host__whose_program_does_not_read_stays(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c;
	int asked = 8, end;

	if (!reader(fx, &c)) {
		raw_close(&c);
		skip();
	}
	for (int i = 0; i < asked; i++) {
		h = raw_header(&c, WIRE_READ, 0, FX_BASE, sizeof(buf));
		raw_send(&c, &h, NULL, 0);
	}
	assert_true(AWAIT(fx_stats(fx, &c.session).read_ops > 0));
	end = other_end(c.fd);
	for (int i = 0; i < 20; i++) {
		assert_true(AWAIT(has_answered(end)));
		assert_false(ends_after_looks(fx, 1));
	}
	for (int i = 0; i < asked; i++) {
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
		assert_int_equal(h.opcode, WIRE_DATA);
		assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
	}
	raw_close(&c);
}

/* The reactor of @c has looked at everything that was there before. */
static void turns_pass(const struct raw *c)
{
	const struct fx_args a = {.session = c->session, .key = c->key};

	/* One comes in the midst of a turn, the next begins with the second, and ends with the
	 * third. */
	for (int i = 0; i < 3; i++)
		assert_string_equal(ros2_status_to_str(fx_do(c->fx, FX_RENEW, &a).status), "OK");
}

static void send_and_bye(struct raw *c, struct wire_header h)
{
	struct wire_header both[2] = {h, raw_header(c, WIRE_BYE, 0, 0, 0)};

	for (int i = 0; i < 2; i++)
		raw_seal(&both[i], 0);
	raw_send_bytes(c, both, sizeof(both));
}

/* What is in flight is completed, whoever has no more to say. */
static void bye__with_its_half_closed_hears_what_it_asked_for_before(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	slow_engine_shut(true);
	send_and_bye(&c, raw_header(&c, WIRE_READ, 0, FX_BASE, 4096));
	slow_engine_wait_held(1);
	shutdown(c.fd, SHUT_WR);
	turns_pass(&c);
	slow_engine_shut(false);
	assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_DATA);
	assert_true(raw_recv(&c, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	assert_int_equal(raw_recv_end(&c), 0);
	assert_int_equal(fx_ended(fx, &c.session).status, ROS2_CLOSED);
	raw_close(&c);
}

/* Nor does it wait for a payload that cannot come any more. */
static void bye__with_its_half_closed_before_a_payload_ends_the_session(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	raw_ready(fx, &c);
	send_and_bye(&c, raw_header(&c, WIRE_WRITE, 0, FX_BASE, 65536));
	shutdown(c.fd, SHUT_WR);
	assert_string_equal(fx_ended(fx, &c.session).words, "the tenant closed the connection");
	raw_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(control__carried_out_for_a_session_that_ended_is_in_doubt_and_no_other),
		FX_TEST(host__that_says_nothing_is_asked_whether_it_is_there),
		SLOW_TEST(host__that_acknowledges_nothing_is_given_up_after_a_minute),
		FX_TEST(host__whose_program_does_not_read_stays),
		SLOW_TEST(bye__with_its_half_closed_hears_what_it_asked_for_before),
		FX_TEST(bye__with_its_half_closed_before_a_payload_ends_the_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
