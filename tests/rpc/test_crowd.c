/* SPDX-License-Identifier: Apache-2.0 */
/* A listener whose connections are all taken, by idle ones, by half-open ones, and by ones that are
 * in use: who comes in, who goes, what it costs. */
#include "proto/rpc/rpc_priv.h"
#include "proto/rpc/conns_priv.h"
#include "tests/await.h"
#include "tests/rpc/resets.h"
#include "tests/rpc/bare.h"
#include "tests/rpc/fixture.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BETA  8 /* connections of beta's, what all may have */
#define RAW   24
#define BUSY  16
#define FLOOD 200

static int setup(void **state)
{
	int rc = fx_group_setup(state);

	signal(SIGPIPE, SIG_IGN);
	if (!rc)
		fx_issue("ca", "beta", "spiffe://test.example/beta", 3600);
	return rc;
}

static void start(struct fx *f, struct rpc_limits limits)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = limits};

	fx_start(f, &o);
}

static struct rpc_server_stats stats(struct fx *f)
{
	struct rpc_server_stats st;

	rpc_server_stats(f->server, &st);
	return st;
}

static struct rpc_channel *beta_channel(struct fx *f)
{
	return fx_channel_opts(f, (struct rpc_channel_opts){.cert_path = fx_path("beta.crt"),
	                                                    .key_path = fx_path("beta.key")});
}

static void say(struct rpc_channel *c)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fx_say(c, "x", "x", &err))
		fail_msg("%s", err.msg);
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

	start(&f, (struct rpc_limits){.max_connections_per_source = RAW});
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, 1);
	assert_true(AWAIT(stats(&f).connections_now == RAW));
	alpha = fx_channel(&f, NULL);
	say(alpha);
	assert_int_equal(stats(&f).connections_now, RAW);
	assert_int_equal(stats(&f).ended_connections, 1);
	assert_int_equal(stats(&f).refused_connections_per_source, 1);
	assert_true(AWAIT(count_closed(fd, RAW) == 1));
	assert_true(is_closed(fd[0]));
	fx_wait(&f.refused[RPC_REFUSED_CONNECTIONS_PER_SOURCE], 1);
	assert_string_equal(fx_refused(&f).words,
	                    "max-connections-per-address: the listener has its 24 connections from "
	                    "this address; without a call, this one made room");
	rpc_channel_free(alpha);
	close_all(fd, RAW);
	fx_stop(&f);
}

/* Each has fewer than an address may have. Who comes in then stays. */
static void rpc_server__half_open_connections_of_many_addresses_make_room(void **state)
{
	struct rpc_channel *alpha;
	char before[64];
	int fd[2 * RAW];
	struct fx f;

	start(&f, (struct rpc_limits){.max_connections = RAW});
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, (uint8_t)(2 + i % 4));
	assert_true(AWAIT(stats(&f).connections_now == RAW));
	alpha = fx_channel(&f, NULL);
	say(alpha);
	strcpy(before, f.last_peer.address);
	for (int i = RAW; i < 2 * RAW; i++)
		fd[i] = half_open(&f, (uint8_t)(2 + i % 4));
	assert_true(AWAIT(stats(&f).ended_connections == RAW + 1));
	say(alpha);
	assert_string_equal(f.last_peer.address, before);
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

	start(&f, (struct rpc_limits){.max_connections_per_source = BETA});
	for (int i = 0; i < BETA; i++) {
		beta[i] = beta_channel(&f);
		say(beta[i]);
	}
	assert_int_equal(stats(&f).connections_now, BETA);
	alpha = fx_channel(&f, NULL);
	say(alpha);
	strcpy(before, f.last_peer.address);
	for (int i = BETA; i < 2 * BETA; i++) {
		beta[i] = beta_channel(&f);
		say(beta[i]);
	}
	assert_true(stats(&f).connections_now <= BETA);
	assert_int_equal(stats(&f).ended_connections, BETA + 1);
	say(alpha);
	assert_string_equal(f.last_peer.address, before);
	/* Those that were ended come again when they are used, without a word. */
	assert_true(AWAIT(rpc_channel_state(beta[0], false) != RPC_CHANNEL_READY));
	say(beta[0]);
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

	start(&f, (struct rpc_limits){.max_connections = BETA});
	stay = beta_channel(&f);
	req.number = 1;
	req.text = (char *)"stay";
	assert_int_equal(rpc_reader_open(stay, &ros2_test_echo_count, &req.base, 0, &r, &err), 0);
	assert_int_equal(rpc_reader_next(r, AWAIT_MS, &msg, &err), 0);
	protobuf_c_message_free_unpacked(msg, NULL);
	for (int i = 0; i < BETA; i++) {
		c[i] = beta_channel(&f);
		say(c[i]);
	}
	assert_int_equal(stats(&f).ended_connections, 1);
	assert_int_equal(stats(&f).streams_now, 1);
	rpc_reader_close(r);
	rpc_channel_free(stay);
	for (int i = 0; i < BETA; i++)
		rpc_channel_free(c[i]);
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

	start(&f, (struct rpc_limits){.max_connections_per_source = 4});
	in_one_64 = true;
	for (int i = 0; i < RAW; i++)
		fd[i] = half_open(&f, 1);
	AWAIT(stats(&f).connections_now + stats(&f).refused_connections_per_source >= RAW);
	assert_int_equal(stats(&f).connections_now, 4);
	assert_int_equal(stats(&f).refused_connections_per_source, RAW - 4);
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

/* A connection with @n calls in flight, by their headers. */
static struct bare_held *hold_some(struct fx *f, const char *who, size_t n)
{
	struct bare r = {.path = "/ros2.test.Echo/Say", .target = f->target};
	char file[32];

	r.ca = fx_path("ca.crt");
	snprintf(file, sizeof(file), "%s.crt", who);
	r.cert = fx_path(file);
	snprintf(file, sizeof(file), "%s.key", who);
	r.key = fx_path(file);
	return bare_hold(&r, n);
}

static struct bare_held *hold(struct fx *f, const char *who)
{
	return hold_some(f, who, 1);
}

/* All are in use, so that each that comes is refused. */
static void rpc_server__who_is_refused_does_not_cost_a_look_at_each_that_is_open(void **state)
{
	struct bare_held *h[BUSY];
	uint64_t begin, took_ms;
	char words[512];
	int fd[FLOOD], code;
	struct fx f;

	start(&f, (struct rpc_limits){.max_connections_per_source = BUSY,
	                              .request_deadline_ms = AWAIT_MS});
	for (int i = 0; i < BUSY; i++)
		h[i] = hold(&f, i < BUSY / 2 ? "client" : "beta");
	assert_true(AWAIT(stats(&f).calls_now == BUSY));
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
	assert_int_equal(stats(&f).calls_now, BUSY);
	assert_int_equal(stats(&f).ended_connections, 0);
	close_all(fd, FLOOD);
	for (int i = 0; i < BUSY; i++)
		bare_held_free(h[i], 0, &code, words);
	fx_stop(&f);
}

/* Each with a call in flight, so that none can be ended: some are left for others. */
static void rpc_server__a_group_keeps_three_quarters_by_calls_in_flight(void **state)
{
	struct rpc_channel *alpha;
	struct bare_held *h[BUSY];
	char words[512] = "";
	size_t refused = 0;
	int code = 0;
	struct fx f;

	start(&f, (struct rpc_limits){.max_connections_per_source = BUSY,
	                              .request_deadline_ms = AWAIT_MS});
	for (int i = 0; i < BUSY; i++)
		h[i] = hold(&f, "beta");
	assert_true(AWAIT(stats(&f).calls_now + stats(&f).refused_limit == BUSY));
	assert_int_equal(stats(&f).calls_now, BUSY - BUSY / 4);
	alpha = fx_channel(&f, NULL);
	say(alpha);
	rpc_channel_free(alpha);
	for (int i = 0; i < BUSY; i++)
		refused += bare_held_free(h[i], 0, &code, words);
	assert_int_equal(refused, BUSY / 4);
	assert_non_null(strstr(words, "too many connections with calls in flight"));
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
	start(&f, (struct rpc_limits){.max_connections = 2});
	fd[0] = half_open(&f, 1);
	fd[1] = half_open(&f, 1);
	assert_true(AWAIT(stats(&f).connections_now == 2));
	swap = true;
	fd[2] = half_open(&f, 1);
	assert_true(AWAIT(stats(&f).refused_connections == 1));
	assert_true(swapped >= 0);
	/* So nobody went, and the one that came has no place. */
	assert_true(AWAIT(is_closed(fd[2])));
	assert_int_equal(count_closed(fd, 2), 0);
	assert_int_equal(stats(&f).ended_connections, 0);
	assert_int_equal(send(pair[1], "x", 1, MSG_NOSIGNAL), 1);
	assert_false(is_closed(pair[0]));
	close_all(fd, 3);
	close_all(pair, 2);
	fx_stop(&f);
}

/* ---- calls that come to nothing ---- */

/* At one moment: a slow machine would have them come later, and so have more of them. */
static atomic_bool no_futile;
static _Atomic uint64_t moment_ns; /* 0: the clock goes */

bool __real_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns)
{
	return !no_futile && __real_conns_futile(k, moment_ns ? moment_ns : now_ns);
}

static uint64_t answered(struct fx *f)
{
	return stats(f).calls_total + stats(f).refused_limit;
}

/* @n calls of beta's over one connection, of which nothing comes. */
static void waste(struct fx *f, size_t n)
{
	uint64_t before = answered(f), ended = stats(f).refused_futile;
	struct bare_held *h = hold_some(f, "beta", n);
	char words[512];
	int code;

	assert_true(AWAIT(answered(f) - before >= n || stats(f).refused_futile > ended));
	bare_held_free(h, 0, &code, words);
	assert_true(AWAIT(stats(f).calls_now == 0));
}

static void rpc_server__ends_the_connection_whose_calls_come_to_nothing(void **state)
{
	struct rpc_channel *alpha;
	struct fx f;

	start(&f, (struct rpc_limits){.request_deadline_ms = AWAIT_MS});
	moment_ns = clock_monotonic_ns();
	alpha = fx_channel(&f, NULL);
	say(alpha);
	/* All that a caller may have in flight, when it gives up. */
	waste(&f, 256);
	assert_int_equal(stats(&f).refused_futile, 0);
	waste(&f, 600);
	fx_wait(&f.refused[RPC_REFUSED_FUTILE], 1);
	/* It comes again, and is no better; a neighbour at its address has heard of nothing. */
	waste(&f, 600);
	assert_true(stats(&f).refused_futile >= 2);
	moment_ns = 0;
	say(alpha);
	assert_int_equal(stats(&f).connections_now, 1);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

static void rpc_server__calls_of_what_is_not_there_come_to_nothing_too(void **state)
{
	struct bare r = {.path = "/no/such",
	                 .ca = fx_path("ca.crt"),
	                 .cert = fx_path("beta.crt"),
	                 .key = fx_path("beta.key")};
	struct bare_held *h;
	char words[512];
	struct fx f;
	int code;

	start(&f, (struct rpc_limits){0});
	moment_ns = clock_monotonic_ns();
	r.target = f.target;
	h = bare_hold(&r, 600);
	assert_true(AWAIT(stats(&f).refused_futile > 0));
	moment_ns = 0;
	bare_held_free(h, 0, &code, words);
	fx_stop(&f);
}

/* ---- the same without them ---- */

static atomic_bool no_watch;

void __real_rpc_conns_end_busiest(void);
void __wrap_rpc_conns_end_busiest(void);
void __wrap_rpc_conns_end_busiest(void)
{
	if (!no_watch)
		__real_rpc_conns_end_busiest();
}

static void control__without_the_bound_its_calls_may_come_to_nothing(void **state)
{
	struct fx f;

	start(&f, (struct rpc_limits){.request_deadline_ms = AWAIT_MS});
	no_futile = true;
	waste(&f, 600);
	waste(&f, 600);
	no_futile = false;
	assert_int_equal(stats(&f).refused_futile, 0);
	fx_stop(&f);
}

/* Calls that are reset in the same breath, as fast as they can be sent, until it is ended. */
struct hasty {
	struct fx *f;
	pthread_t thread;
	atomic_bool stop, ended;
	atomic_ulong sent;
};

static void *hasten(void *arg)
{
	struct hasty *h = arg;
	struct resets *r = resets_open(h->f->target, fx_path("beta.crt"), fx_path("beta.key"),
	                               "/ros2.test.Echo/Say");

	while (r && !h->stop && !resets_send(r, 100))
		h->sent += 100;
	h->ended = !h->stop;
	resets_close(r);
	return NULL;
}

static void begin_hasty(struct hasty *h, struct fx *f)
{
	*h = (struct hasty){.f = f};
	assert_int_equal(pthread_create(&h->thread, NULL, hasten, h), 0);
}

static void skip_without_watch(void)
{
	if (!getenv("ROS2_EMULATED"))
		return;
	print_message(
		"# SKIP: qemu-user does not know TCP_INFO, by which the watch finds whom to end\n");
	skip();
}

static void rpc_server__who_resets_without_end_is_ended_and_others_are_heard(void **state)
{
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	skip_without_watch();
	start(&f, (struct rpc_limits){0});
	alpha = fx_channel(&f, NULL);
	say(alpha);
	for (int i = 0; i < 2; i++) {
		begin_hasty(&h, &f);
		assert_true(AWAIT(h.ended));
		say(alpha);
		pthread_join(h.thread, NULL);
		say(alpha);
	}
	assert_true(stats(&f).refused_futile > 0);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

static atomic_bool stuck; /* a polling thread */

uint64_t __real_rpc_poller_longest_turn_ns(void);
uint64_t __wrap_rpc_poller_longest_turn_ns(void);
uint64_t __wrap_rpc_poller_longest_turn_ns(void)
{
	return stuck ? NS_PER_S : __real_rpc_poller_longest_turn_ns();
}

/* By the watch alone, for the polling thread does not come to count calls. */
static void rpc_server__who_keeps_the_polling_thread_is_ended(void **state)
{
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	skip_without_watch();
	start(&f, (struct rpc_limits){0});
	alpha = fx_channel(&f, NULL);
	say(alpha);
	no_futile = stuck = true;
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.ended));
	no_futile = stuck = false;
	pthread_join(h.thread, NULL);
	assert_true(h.sent > 0);
	assert_int_equal(stats(&f).refused_futile, 1);
	/* Who was silent is still there; from that address one comes each second now. */
	assert_true(AWAIT(stats(&f).connections_now == 1));
	say(alpha);
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.ended));
	pthread_join(h.thread, NULL);
	assert_int_equal(h.sent, 0);
	assert_true(stats(&f).refused_futile > 1);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

static void control__without_both_it_goes_on(void **state)
{
	struct hasty h;
	struct fx f;

	start(&f, (struct rpc_limits){0});
	no_futile = no_watch = true;
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.sent > 20000));
	assert_false(h.ended);
	h.stop = true;
	pthread_join(h.thread, NULL);
	no_futile = no_watch = false;
	assert_int_equal(stats(&f).refused_futile, 0);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__calls_of_what_is_not_there_come_to_nothing_too),
		cmocka_unit_test(control__without_the_bound_its_calls_may_come_to_nothing),
		cmocka_unit_test(rpc_server__who_resets_without_end_is_ended_and_others_are_heard),
		cmocka_unit_test(rpc_server__who_keeps_the_polling_thread_is_ended),
		cmocka_unit_test(control__without_both_it_goes_on),
		cmocka_unit_test(rpc_server__ends_the_connection_whose_calls_come_to_nothing),
		cmocka_unit_test(rpc_server__half_open_connections_of_one_address_make_room),
		cmocka_unit_test(rpc_server__half_open_connections_of_many_addresses_make_room),
		cmocka_unit_test(rpc_server__idle_connections_of_a_neighbour_make_room),
		cmocka_unit_test(rpc_server__a_connection_with_a_call_in_flight_stays),
		cmocka_unit_test(rpc_server__a_64_is_one_address),
		cmocka_unit_test(
			rpc_server__who_is_refused_does_not_cost_a_look_at_each_that_is_open),
		cmocka_unit_test(rpc_server__a_group_keeps_three_quarters_by_calls_in_flight),
		cmocka_unit_test(rpc_server__never_ends_whoever_has_the_descriptor_by_then),
	};

	return cmocka_run_group_tests(tests, setup, fx_group_teardown);
}
