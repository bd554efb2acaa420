/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody on the path between libros2 and the real data plane over TCP changes what HELLO and
 * WELCOME say of features, which no proof covers (docs/decisions/0024-zeroes.md): features that are
 * taken away are named UNSUPPORTED and nothing is done; those that are added give no right, neither
 * to the tenant nor at the agent. Control: the same path without a change, and one that changes
 * what the proofs cover.
 */
#include "tests/client/direct.h"
#include "dataplane/wire_codec.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEN     65536u
#define UNKNOWN (1u << 31)

/* What is changed, xor. */
static struct change {
	uint32_t hello, welcome, proof;
} change;

static struct {
	pthread_t thread;
	int listen_fd;
	uint16_t to;
	bool runs;
} path;

static bool move(int from, int to, void *buf, size_t len)
{
	return recv(from, buf, len, MSG_WAITALL) == (ssize_t)len &&
	       (to < 0 || send(to, buf, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static bool hello(int tenant, int agent)
{
	struct {
		struct wire_header h;
		struct wire_hello body;
	} m;

	if (!move(tenant, -1, &m, sizeof(m)) || m.h.opcode != WIRE_HELLO)
		return false;
	m.h.length ^= change.hello;
	wire_seal(&m.h);
	return send(agent, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m);
}

static bool welcome(int agent, int tenant)
{
	struct {
		struct wire_header h;
		struct wire_welcome body;
	} m;

	if (!move(agent, -1, &m, sizeof(m)) || m.h.opcode != WIRE_WELCOME)
		return false;
	m.body.features ^= change.welcome;
	m.body.proof[0] ^= (uint8_t)change.proof;
	return send(tenant, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m);
}

/* Until one of them ends: bytes as they come. */
static void pass(int a, int b)
{
	struct pollfd fds[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
	uint8_t buf[65536];

	for (;;) {
		if (poll(fds, 2, -1) < 0)
			return;
		for (int i = 0; i < 2; i++) {
			ssize_t n = fds[i].revents ? recv(fds[i].fd, buf, sizeof(buf), 0) : -2;

			if (n == -2)
				continue;
			if (n <= 0 || send(fds[!i].fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
				return;
		}
	}
}

static int to_agent(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(path.to)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void *run(void *arg)
{
	uint8_t challenge[sizeof(struct wire_header) + sizeof(struct wire_challenge)];
	int tenant;

	/* Ends when the listener is shut down. */
	while ((tenant = accept(path.listen_fd, NULL, NULL)) >= 0) {
		int agent = to_agent();

		if (agent >= 0 && move(agent, tenant, challenge, sizeof(challenge)) &&
		    hello(tenant, agent) && welcome(agent, tenant))
			pass(tenant, agent);
		close(tenant);
		if (agent >= 0)
			close(agent);
	}
	return NULL;
}

static uint16_t on_path(uint16_t port)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);

	assert_false(path.runs); /* one session at a time */
	path.runs = true;
	path.to = port;
	path.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(path.listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(path.listen_fd, 4), 0);
	assert_int_equal(getsockname(path.listen_fd, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(pthread_create(&path.thread, NULL, run, NULL), 0);
	return ntohs(at.sin_port);
}

static void path_ends(struct user *u)
{
	user_close(u);
	assert_true(path.runs);
	shutdown(path.listen_fd, SHUT_RDWR);
	assert_int_equal(pthread_join(path.thread, NULL), 0);
	close(path.listen_fd);
	path.runs = false;
}

static void open_with(struct fx *fx, struct user *u, struct change c)
{
	change = c;
	user_open(fx, u);
	memset(u->buf, 0x55, LEN);
	assert_int_equal(ros2_pwrite(u->file, u->buf, LEN, 0, &u->err), LEN);
}

static void file_is(struct user *u, uint8_t byte)
{
	memset(u->buf, 0x99, LEN);
	assert_int_equal(ros2_pread(u->file, u->buf, LEN, 0, &u->err), LEN);
	for (uint32_t i = 0; i < LEN; i++)
		assert_int_equal(u->buf[i], byte);
}

static void clears(struct fx *fx, struct change c)
{
	struct user u;

	open_with(fx, &u, c);
	ok(&u, ros2_zero(u.file, LEN, 0, &u.err));
	file_is(&u, 0);
	assert_int_equal(fx->violations, 0);
	path_ends(&u);
}

/* Named, nothing done, and the session goes on: the same one. */
static void unsupported(struct fx *fx, struct change c, uint64_t violations)
{
	struct user u;

	open_with(fx, &u, c);
	assert_int_equal(ros2_zero(u.file, LEN, 0, &u.err), -EOPNOTSUPP);
	assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
	assert_int_equal(ros2_discard(u.file, LEN, 0, &u.err), -EOPNOTSUPP);
	assert_int_equal(u.err.status, ROS2_UNSUPPORTED);
	file_is(&u, 0x55);
	assert_int_equal(u.session->reconnects, 0);
	if (violations)
		fx_event(fx, DP_EVENT_VIOLATION, ROS2_UNSUPPORTED);
	else
		assert_int_equal(fx->violations, 0);
	path_ends(&u);
}

static void refused(struct fx *fx, struct change c, enum ros2_status status)
{
	struct user u;

	change = c;
	assert_true(user_try(fx, &u, NULL) < 0);
	if (u.err.status != status)
		fail_msg("expected %s, found %s: %s", ros2_status_to_str(status),
		         ros2_status_to_str(u.err.status), u.err.msg);
	path_ends(&u);
}

static void on_path__that_changes_nothing_all_goes_well(void **state)
{
	clears(*state, (struct change){0});
}

static void on_path__features_taken_away_are_unsupported_by_name(void **state)
{
	unsupported(*state, (struct change){.hello = WIRE_FEATURE_CLEAR}, 0);
	unsupported(*state, (struct change){.welcome = WIRE_FEATURE_CLEAR}, 0);
}

/* The tenant is told of what the agent has not given it: the agent refuses it, as a violation. */
static void on_path__a_feature_added_to_welcome_gives_no_right(void **state)
{
	const uint32_t both = WIRE_FEATURE_CLEAR;

	unsupported(*state, (struct change){.hello = both, .welcome = both}, 2);
}

static void on_path__features_that_nobody_knows_are_ignored_in_hello(void **state)
{
	clears(*state, (struct change){.hello = ~(uint32_t)WIRE_FEATURE_CLEAR});
}

static void on_path__features_that_nobody_knows_are_refused_in_welcome(void **state)
{
	refused(*state, (struct change){.welcome = UNKNOWN}, ROS2_PROTOCOL);
	refused(*state, (struct change){.welcome = UNKNOWN | WIRE_FEATURE_CLEAR}, ROS2_PROTOCOL);
}

/* Control: this path can change what it likes, and the proof sees what it covers. */
static void on_path__what_the_proof_covers_is_seen(void **state)
{
	refused(*state, (struct change){.proof = 1}, ROS2_UNAUTHENTICATED);
}

static int setup(void **state)
{
	direct_on_path = on_path;
	return fx_setup(state);
}

static int teardown(void **state)
{
	direct_on_path = NULL;
	return fx_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(on_path__##name, setup, teardown)
		T(that_changes_nothing_all_goes_well),
		T(features_taken_away_are_unsupported_by_name),
		T(a_feature_added_to_welcome_gives_no_right),
		T(features_that_nobody_knows_are_ignored_in_hello),
		T(features_that_nobody_knows_are_refused_in_welcome),
		T(what_the_proof_covers_is_seen),
	};

	fx_from_env();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
