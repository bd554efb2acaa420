/* SPDX-License-Identifier: Apache-2.0 */
/* A listener whose connections are all taken, by idle ones, by half-open ones, and by ones that are
 * in use: who comes in, who goes, what it costs. */
#include "proto/rpc/rpc_priv.h"
#include "proto/rpc/conns_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BETA  8 /* connections of beta's, what all may have */
#define RAW   24
#define BUSY  16
#define FLOOD 200

static struct rpc_channel *beta_channel(struct fx *f)
{
	return fx_channel_opts(f, (struct rpc_channel_opts){.cert_path = fx_path("beta.crt"),
	                                                    .key_path = fx_path("beta.key")});
}

/* A connection without a word, from 127.0.0.@host. */
static int half_open(struct fx *f, uint8_t host)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	a.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~255u) + host);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	a.sin_port = htons(rpc_server_port(f->server));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static bool is_closed(int fd)
{
	char byte;
	ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

	return n == 0 || (n < 0 && errno != EAGAIN);
}

static size_t count_closed(const int *fd, size_t n)
{
	size_t closed = 0;

	for (size_t i = 0; i < n; i++)
		closed += is_closed(fd[i]);
	return closed;
}

static void close_all(const int *fd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fd[i]);
}

/* ---- whom it lets in ---- */

static void rpc_server__half_open_connections_of_one_address_make_room(void **state)
{
	struct rpc_channel *alpha;
	int fd[RAW];
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections_per_source = RAW,
	                                        .connections_name = "--echo-connections"});
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, 1);
	assert_true(AWAIT(fx_stats(&f).connections_now == RAW));
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	assert_int_equal(fx_stats(&f).connections_now, RAW);
	assert_int_equal(fx_stats(&f).ended_connections, 1);
	assert_int_equal(fx_stats(&f).refused_connections_per_source, 1);
	assert_true(AWAIT(count_closed(fd, RAW) == 1));
	assert_true(is_closed(fd[0]));
	fx_wait(&f.refused[RPC_REFUSED_CONNECTIONS_PER_SOURCE], 1);
	assert_string_equal(fx_refused(&f).words,
	                    "max-connections-per-address of --echo-connections: the listener has "
	                    "its 24 connections from this address; without a call, this one made "
	                    "room");
	rpc_channel_free(alpha);
	close_all(fd, RAW);
	fx_stop(&f);
}

/* Connections that FLOOD handshakes, none of which goes on, keep of the @most that an address may
 * have. */
static uint64_t kept_of_a_flood(size_t most)
{
	struct rpc_server_stats st = {0};
	int fd[FLOOD];
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections_per_source = most});
	for (int i = 0; i < FLOOD; i++)
		fd[i] = half_open(&f, 2);
	assert_true(AWAIT((st = fx_stats(&f),
	                   st.connections_now + st.refused_connections_per_source >= FLOOD)));
	assert_true(AWAIT(count_closed(fd, FLOOD) == FLOOD - st.connections_now));
	close_all(fd, FLOOD);
	fx_stop(&f);
	return st.connections_now;
}

static void rpc_server__a_flood_of_handshakes_keeps_what_an_address_may_have(void **state)
{
	assert_int_equal(kept_of_a_flood(RAW), RAW);
}

/* Each with its descriptor, and what TLS keeps of it. */
static void control__without_the_cap_it_keeps_all_of_them(void **state)
{
	assert_int_equal(kept_of_a_flood(FLOOD + 1), FLOOD);
}

static char last_address[64];

/* The address from which alpha's last call came. Loop. */
static void copy_address(void *arg)
{
	struct fx *f = arg;

	snprintf(last_address, sizeof(last_address), "%s", f->last_peer.address);
}

static const char *address_of_last(struct fx *f)
{
	fx_on_loop(f, copy_address, f);
	return last_address;
}

/* Each has fewer than an address may have. Who comes in then stays. */
static void rpc_server__half_open_connections_of_many_addresses_make_room(void **state)
{
	struct rpc_channel *alpha;
	char before[64];
	int fd[2 * RAW];
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections = RAW});
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, (uint8_t)(2 + i % 4));
	assert_true(AWAIT(fx_stats(&f).connections_now == RAW));
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	strcpy(before, address_of_last(&f));
	for (int i = RAW; i < 2 * RAW; i++)
		fd[i] = half_open(&f, (uint8_t)(2 + i % 4));
	assert_true(AWAIT(fx_stats(&f).ended_connections == RAW + 1));
	fx_say_x(alpha);
	assert_string_equal(address_of_last(&f), before);
	rpc_channel_free(alpha);
	close_all(fd, 2 * RAW);
	fx_stop(&f);
}

/* From one host, all with certificates. Beta goes on, and only its own go for it. */
static void rpc_server__idle_connections_of_a_neighbour_make_room(void **state)
{
	struct rpc_channel *beta[2 * BETA], *alpha;
	char before[64];
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections_per_source = BETA});
	for (int i = 0; i < BETA; i++) {
		beta[i] = beta_channel(&f);
		fx_say_x(beta[i]);
	}
	assert_int_equal(fx_stats(&f).connections_now, BETA);
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	strcpy(before, address_of_last(&f));
	for (int i = BETA; i < 2 * BETA; i++) {
		beta[i] = beta_channel(&f);
		fx_say_x(beta[i]);
	}
	assert_true(fx_stats(&f).connections_now <= BETA);
	assert_int_equal(fx_stats(&f).ended_connections, BETA + 1);
	fx_say_x(alpha);
	assert_string_equal(address_of_last(&f), before);
	/* Those that were ended come again when they are used, without a word. */
	assert_true(AWAIT(rpc_channel_state(beta[0], false) != RPC_CHANNEL_READY));
	fx_say_x(beta[0]);
	rpc_channel_free(alpha);
	for (int i = 0; i < 2 * BETA; i++)
		rpc_channel_free(beta[i]);
	fx_stop(&f);
}

static void rpc_server__a_connection_with_a_call_in_flight_stays(void **state)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c[BETA], *stay = NULL;
	struct rpc_reader *r;
	ProtobufCMessage *msg;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections = BETA});
	stay = beta_channel(&f);
	req.number = 1;
	req.text = (char *)"stay";
	assert_int_equal(rpc_reader_open(stay, &ros2_test_echo_count, &req.base, 0, &r, &err), 0);
	assert_int_equal(rpc_reader_next(r, AWAIT_MS, &msg, &err), 0);
	protobuf_c_message_free_unpacked(msg, NULL);
	for (int i = 0; i < BETA; i++) {
		c[i] = beta_channel(&f);
		fx_say_x(c[i]);
	}
	assert_int_equal(fx_stats(&f).ended_connections, 1);
	assert_int_equal(fx_stats(&f).streams_now, 1);
	rpc_reader_close(r);
	rpc_channel_free(stay);
	for (int i = 0; i < BETA; i++)
		rpc_channel_free(c[i]);
	fx_stop(&f);
}

/* Where nobody has a certificate, as to enrol, a few addresses would keep all others out for good.
 */
static void rpc_server__strangers_with_calls_in_flight_make_room(void **state)
{
	static const uint8_t say_x[] = {0x0a, 1, 'x'};
	struct rpc_server_opts o = {
		.name = "echo",
		.listen = "127.0.0.1:0",
		.cert_path = fx_path("server.crt"),
		.key_path = fx_path("server.key"),
		.limits = {.max_connections = BETA, .request_deadline_ms = AWAIT_MS}};
	struct bare r = {.path = "/ros2.test.Echo/Say",
	                 .ca = fx_path("ca.crt"),
	                 .version = "1",
	                 .bytes = say_x,
	                 .n = sizeof(say_x),
	                 .timeout_ms = AWAIT_MS};
	struct bare_held *h[BETA];
	char words[512];
	struct fx f;
	int code;

	fx_start(&f, &o);
	r.target = f.target;
	for (int i = 0; i < BETA; i++)
		h[i] = bare_hold(&r, 1);
	assert_true(AWAIT(fx_stats(&f).calls_now == BETA));
	assert_int_equal(fx_stats(&f).connections_now, BETA);
	bare_call(&r);
	assert_int_equal(r.code, 0);
	assert_true(r.got_reply);
	assert_true(fx_stats(&f).ended_connections > 0);
	for (int i = 0; i < BETA; i++)
		bare_held_free(h[i], 0, &code, words);
	fx_stop(&f);
}

/* ---- addresses ---- */

/* The server's peers, as it sees them: each has an address of its own in one /64. */
static atomic_bool in_one_64;
int __real_getpeername(int fd, struct sockaddr *a, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *a, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *a, socklen_t *len)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	struct sockaddr_in v4;
	socklen_t n = sizeof(v4);

	if (!in_one_64)
		return __real_getpeername(fd, a, len);
	if (__real_getpeername(fd, (struct sockaddr *)&v4, &n))
		return -1;
	inet_pton(AF_INET6, "2001:db8::", &v6.sin6_addr);
	memcpy(&v6.sin6_addr.s6_addr[8], &v4.sin_port, sizeof(v4.sin_port));
	v6.sin6_port = v4.sin_port;
	memcpy(a, &v6, sizeof(v6));
	*len = sizeof(v6);
	return 0;
}

static void rpc_server__a_64_is_one_address(void **state)
{
	int fd[RAW];
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections_per_source = 4});
	in_one_64 = true;
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, 1);
	AWAIT(fx_stats(&f).connections_now + fx_stats(&f).refused_connections_per_source >= RAW);
	assert_int_equal(fx_stats(&f).connections_now, 4);
	assert_int_equal(fx_stats(&f).refused_connections_per_source, RAW - 4);
	in_one_64 = false;
	close_all(fd, RAW);
	fx_stop(&f);
}

/* ---- what it costs, and whom it must not hit ---- */

static atomic_int looks;
int __real_fstatat(int dir, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *path, struct stat *st, int flags)
{
	looks++;
	return __real_fstatat(dir, path, st, flags);
}

/* All are in use, so that each that comes is refused. */
static void rpc_server__who_is_refused_does_not_cost_a_look_at_each_that_is_open(void **state)
{
	struct bare_held *h[BUSY];
	uint64_t begin, took_ms;
	char words[512];
	int fd[FLOOD], code;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.max_connections_per_source = BUSY,
	                                        .request_deadline_ms = AWAIT_MS});
	for (int i = 0; i < BUSY; i++)
		h[i] = fx_hold(&f, i < BUSY / 2 ? "client" : "beta", 1);
	assert_true(AWAIT(fx_stats(&f).calls_now == BUSY));
	begin = clock_monotonic_ns();
	looks = 0;
	for (int i = 0; i < FLOOD; i++)
		fd[i] = half_open(&f, 1);
	/* Not by rpc_server_stats: that looks at all of them. */
	fx_wait(&f.refused[RPC_REFUSED_CONNECTIONS_PER_SOURCE], FLOOD);
	took_ms = (clock_monotonic_ns() - begin) / NS_PER_MS;
	/* One for each, and all of them ten times a second. */
	if (looks > FLOOD + BUSY * (int)(took_ms / 100 + 2))
		fail_msg("%d looks for %d refused in %d ms", (int)looks, FLOOD, (int)took_ms);
	assert_int_equal(fx_stats(&f).calls_now, BUSY);
	assert_int_equal(fx_stats(&f).ended_connections, 0);
	close_all(fd, FLOOD);
	for (int i = 0; i < BUSY; i++)
		bare_held_free(h[i], 0, &code, words);
	fx_stop(&f);
}

static atomic_bool no_crowd;

bool __real_conns_crowded(const struct conns_table *t, const struct rpc_conn *k, size_t each,
                          size_t all);
bool __wrap_conns_crowded(const struct conns_table *t, const struct rpc_conn *k, size_t each,
                          size_t all);
bool __wrap_conns_crowded(const struct conns_table *t, const struct rpc_conn *k, size_t each,
                          size_t all)
{
	return !no_crowd && __real_conns_crowded(t, k, each, all);
}

/* As many of beta's as an address may have, each with a call in flight. */
static void all_busy(struct fx *f, struct bare_held *h[BUSY])
{
	fx_start_limits(f, (struct rpc_limits){.max_connections_per_source = BUSY,
	                                       .connections_name = "--echo-connections",
	                                       .request_deadline_ms = AWAIT_MS});
	for (int i = 0; i < BUSY; i++)
		h[i] = fx_hold(f, "beta", 1);
	assert_true(AWAIT(fx_stats(f).calls_now + fx_stats(f).refused_limit == BUSY));
}

/* None of them can be ended: some are left for others. */
static void rpc_server__a_group_keeps_three_quarters_by_calls_in_flight(void **state)
{
	struct rpc_channel *alpha;
	struct bare_held *h[BUSY];
	char words[512] = "";
	size_t refused = 0;
	int code = 0;
	struct fx f;

	all_busy(&f, h);
	assert_int_equal(fx_stats(&f).calls_now, BUSY - BUSY / 4);
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	rpc_channel_free(alpha);
	for (int i = 0; i < BUSY; i++)
		refused += bare_held_free(h[i], 0, &code, words);
	assert_int_equal(refused, BUSY / 4);
	assert_string_equal(words, "BUSY: too many connections with calls in flight from this "
	                           "caller: at most three quarters of --echo-connections, 1024, "
	                           "or 16 from an address: use one for more of them, or try again "
	                           "later");
	fx_stop(&f);
}

static void control__without_that_one_group_keeps_them_all(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *alpha;
	struct bare_held *h[BUSY];
	char words[512];
	struct fx f;
	int code;

	no_crowd = true;
	all_busy(&f, h);
	assert_int_equal(fx_stats(&f).calls_now, BUSY);
	alpha = fx_channel(&f, NULL);
	assert_int_not_equal(fx_say(alpha, "x", "x", &err), 0);
	assert_true(fx_stats(&f).refused_connections_per_source > 0);
	rpc_channel_free(alpha);
	for (int i = 0; i < BUSY; i++)
		bare_held_free(h[i], 0, &code, words);
	no_crowd = false;
	fx_stop(&f);
}

/* Closes what has that descriptor and gives it to another, just when it is looked for, as two other
 * threads may; and gives it back. */
static int stranger = -1, swapped = -1;
static atomic_bool swap;
int __real_fcntl(int fd, int cmd, long arg);
int __wrap_fcntl(int fd, int cmd, long arg);
int __wrap_fcntl(int fd, int cmd, long arg)
{
	int own, before;

	if (cmd != F_DUPFD_CLOEXEC || !atomic_exchange(&swap, false))
		return __real_fcntl(fd, cmd, arg);
	before = __real_fcntl(fd, cmd, arg);
	dup2(stranger, fd);
	own = __real_fcntl(fd, cmd, arg);
	dup2(before, fd);
	close(before);
	swapped = fd;
	return own;
}

static void rpc_server__never_ends_whoever_has_the_descriptor_by_then(void **state)
{
	int pair[2], fd[3];
	struct fx f;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	stranger = pair[0];
	fx_start_limits(&f, (struct rpc_limits){.max_connections = 2});
	fd[0] = half_open(&f, 1);
	fd[1] = half_open(&f, 1);
	assert_true(AWAIT(fx_stats(&f).connections_now == 2));
	swap = true;
	fd[2] = half_open(&f, 1);
	assert_true(AWAIT(fx_stats(&f).refused_connections == 1));
	assert_true(swapped >= 0);
	/* So nobody went, and the one that came has no place. */
	assert_true(AWAIT(is_closed(fd[2])));
	assert_int_equal(count_closed(fd, 2), 0);
	assert_int_equal(fx_stats(&f).ended_connections, 0);
	assert_int_equal(send(pair[1], "x", 1, MSG_NOSIGNAL), 1);
	assert_false(is_closed(pair[0]));
	close_all(fd, 3);
	close_all(pair, 2);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__half_open_connections_of_one_address_make_room),
		cmocka_unit_test(rpc_server__a_flood_of_handshakes_keeps_what_an_address_may_have),
		cmocka_unit_test(control__without_the_cap_it_keeps_all_of_them),
		cmocka_unit_test(rpc_server__half_open_connections_of_many_addresses_make_room),
		cmocka_unit_test(rpc_server__idle_connections_of_a_neighbour_make_room),
		cmocka_unit_test(rpc_server__a_connection_with_a_call_in_flight_stays),
		cmocka_unit_test(rpc_server__strangers_with_calls_in_flight_make_room),
		cmocka_unit_test(rpc_server__a_64_is_one_address),
		cmocka_unit_test(
			rpc_server__who_is_refused_does_not_cost_a_look_at_each_that_is_open),
		cmocka_unit_test(rpc_server__a_group_keeps_three_quarters_by_calls_in_flight),
		cmocka_unit_test(control__without_that_one_group_keeps_them_all),
		cmocka_unit_test(rpc_server__never_ends_whoever_has_the_descriptor_by_then),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
