/* SPDX-License-Identifier: Apache-2.0 */
/* Callers whose calls come to nothing (decision 0053): their connections are ended, and others are
 * heard. */
#include "proto/rpc/rpc_priv.h"
#include "proto/rpc/conns_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/rpc/http2.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sched.h>
#include <stdio.h>

/* ---- calls that come to nothing ---- */

/* At one moment: a slow machine would have them come later, and so have more of them. */
static atomic_bool no_futile;
static _Atomic uint64_t moment_ns; /* 0: the clock goes */

static uint64_t at(uint64_t now_ns)
{
	uint64_t m = moment_ns;

	return m ? m : now_ns;
}

bool __real_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns);
bool __wrap_conns_futile(struct rpc_conn *k, uint64_t now_ns)
{
	return !no_futile && __real_conns_futile(k, at(now_ns));
}

void __real_conns_sweep(struct conns_table *t, uint64_t now_ns);
void __wrap_conns_sweep(struct conns_table *t, uint64_t now_ns);
void __wrap_conns_sweep(struct conns_table *t, uint64_t now_ns)
{
	__real_conns_sweep(t, at(now_ns));
}

/* The cap is named, and that nobody sets it. */
static void assert_named(struct fx *f, const char *words)
{
	fx_wait(&f->refused[RPC_REFUSED_FUTILE], 1);
	if (!strstr(fx_refused_as(f, RPC_REFUSED_FUTILE).words, words))
		fail_msg("%s", fx_refused_as(f, RPC_REFUSED_FUTILE).words);
}

static uint64_t answered(struct fx *f)
{
	return fx_stats(f).calls_total + fx_stats(f).refused_limit;
}

/* @n calls of beta's over one connection, of which nothing comes. */
static void waste(struct fx *f, size_t n)
{
	uint64_t before = answered(f), ended = fx_stats(f).refused_futile;
	struct bare_held *h = fx_hold(f, "beta", n);
	char words[512];
	int code;

	assert_true(AWAIT(answered(f) - before >= n || fx_stats(f).refused_futile > ended));
	bare_held_free(h, 0, &code, words);
	assert_true(AWAIT(fx_stats(f).calls_now == 0));
}

static void rpc_server__ends_the_connection_whose_calls_come_to_nothing(void **state)
{
	struct rpc_channel *alpha;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.request_deadline_ms = AWAIT_MS});
	moment_ns = clock_monotonic_ns();
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	/* All that a caller may have in flight, when it gives up. */
	waste(&f, 256);
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	waste(&f, 600);
	assert_named(&f, "futile-calls: its caller has begun more than 512 calls, and 200 each "
	                 "second (fixed), that were reset");
	assert_int_equal(fx_refused_as(&f, RPC_REFUSED_FUTILE).r.status, ROS2_LIMIT);
	/* It comes again, and is no better; a neighbour at its address has heard of nothing. */
	waste(&f, 600);
	assert_true(fx_stats(&f).refused_futile >= 2);
	moment_ns = 0;
	fx_say_x(alpha);
	assert_true(AWAIT(fx_stats(&f).connections_now == 1));
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

	fx_start_limits(&f, (struct rpc_limits){0});
	moment_ns = clock_monotonic_ns();
	r.target = f.target;
	h = bare_hold(&r, 600);
	assert_true(AWAIT(fx_stats(&f).refused_futile > 0));
	moment_ns = 0;
	bare_held_free(h, 0, &code, words);
	fx_stop(&f);
}

/* "[fe80::1%2]" of this machine. False: it has none. */
static bool link_local(char out[INET6_ADDRSTRLEN + 16])
{
	char host[INET6_ADDRSTRLEN];
	struct ifaddrs *all, *i;
	bool found = false;

	assert_int_equal(getifaddrs(&all), 0);
	for (i = all; i && !found; i = i->ifa_next) {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)i->ifa_addr;

		if (!a || a->sin6_family != AF_INET6 || !IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr))
			continue;
		inet_ntop(AF_INET6, &a->sin6_addr, host, sizeof(host));
		snprintf(out, INET6_ADDRSTRLEN + 16, "[%s%%%u]", host, a->sin6_scope_id);
		found = true;
	}
	freeifaddrs(all);
	return found;
}

/* From the same link, where addresses have a scope. */
static void rpc_server__a_link_local_caller_is_known_like_any_other(void **state)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "[::]:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt")};
	struct bare r = {.path = "/no/such",
	                 .ca = fx_path("ca.crt"),
	                 .cert = fx_path("beta.crt"),
	                 .key = fx_path("beta.key")};
	struct bare_held *h;
	char words[512], host[INET6_ADDRSTRLEN + 16], target[sizeof(host) + 16];
	struct fx f;
	int code;

	if (!link_local(host)) {
		print_message("[  SKIPPED ] no link-local address here\n");
		skip();
	}
	fx_start(&f, &o);
	snprintf(target, sizeof(target), "%s:%u", host, rpc_server_port(f.server));
	r.target = target;
	moment_ns = clock_monotonic_ns();
	h = bare_hold(&r, 600);
	assert_true(AWAIT(fx_stats(&f).refused_futile > 0));
	moment_ns = 0;
	bare_held_free(h, 0, &code, words);
	fx_stop(&f);
}

/* ---- the same without them ---- */

static void control__without_the_bound_its_calls_may_come_to_nothing(void **state)
{
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.request_deadline_ms = AWAIT_MS});
	no_futile = true;
	waste(&f, 600);
	waste(&f, 600);
	no_futile = false;
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	fx_stop(&f);
}

/* ---- who sends as fast as it can ---- */

/* Until it is ended. */
struct hasty {
	struct fx *f;
	enum http2_flood kind;
	unsigned long most;     /* 0: without end */
	int record;             /* http2_cut */
	const char *cert, *key; /* fx_path is for one thread */
	pthread_t thread;
	atomic_bool stop, ended;
	atomic_ulong sent;
};

static void *hasten(void *arg)
{
	struct hasty *h = arg;
	struct http2 *c = http2_open(h->f->target, 2, h->cert, h->key, "/ros2.test.Echo/Say");

	if (c)
		http2_cut(c, h->record);
	while (c && !h->stop && !http2_send(c, h->kind, 100)) {
		h->sent += 100;
		while (h->most && h->sent >= h->most && !h->stop)
			sched_yield();
	}
	h->ended = !h->stop;
	http2_close(c);
	return NULL;
}

static void begin_hasty_in(struct hasty *h, struct fx *f, enum http2_flood kind, unsigned long most,
                           int record)
{
	*h = (struct hasty){.f = f,
	                    .kind = kind,
	                    .most = most,
	                    .record = record,
	                    .cert = fx_path("beta.crt"),
	                    .key = fx_path("beta.key")};
	assert_int_equal(pthread_create(&h->thread, NULL, hasten, h), 0);
}

static void begin_hasty(struct hasty *h, struct fx *f, enum http2_flood kind, unsigned long most)
{
	begin_hasty_in(h, f, kind, most, 0);
}

static void end_hasty(struct hasty *h)
{
	h->stop = true;
	pthread_join(h->thread, NULL);
}

/* And alpha's channel to it, in use. */
static struct rpc_channel *start_with_alpha(struct fx *f)
{
	struct rpc_channel *alpha;

	fx_start_limits(f, (struct rpc_limits){0});
	alpha = fx_channel(f, NULL);
	fx_say_x(alpha);
	return alpha;
}

static void rpc_server__who_resets_without_end_is_ended_and_others_are_heard(void **state)
{
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	alpha = start_with_alpha(&f);
	for (int i = 0; i < 2; i++) {
		begin_hasty(&h, &f, HTTP2_RESETS, 0);
		assert_true(AWAIT(h.ended));
		fx_say_x(alpha);
		pthread_join(h.thread, NULL);
		fx_say_x(alpha);
	}
	assert_true(fx_stats(&f).refused_futile > 0);
	assert_named(&f, "begun more than 512 calls, and 200 each second (fixed)");
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* ---- whose answers nobody takes ---- */

static void rpc_server__an_answer_that_nobody_takes_gives_its_place_back(void **state)
{
	static const uint8_t say_x[] = {0x0a, 1, 'x'};
	struct http2 *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){.call_deadline_ms = 200});
	c = http2_open(f.target, 2, fx_path("beta.crt"), fx_path("beta.key"),
	               "/ros2.test.Echo/Say");
	assert_non_null(c);
	for (int i = 0; i < 4; i++)
		assert_int_equal(http2_call_unread(c, say_x, sizeof(say_x)), 0);
	fx_wait(&f.handled, 4);
	assert_true(AWAIT(fx_stats(&f).calls_now == 0));
	/* Not because it is gone: it only has to answer a ping. */
	assert_int_equal(fx_stats(&f).connections_now, 1);
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	http2_close(c);
	fx_stop(&f);
}

#define GIVEN_UP_NS (10 * NS_PER_S) /* by gRPC: the keepalive's timeout, as TCP_USER_TIMEOUT */

/* As many as it may begin, in time. What the kernel keeps of refusals is some tens of thousands; a
 * peer that then acknowledges nothing for ten seconds is given up by the kernel, whoever it is, and
 * where a call takes a hundred times as long as here that comes first. */
static void rpc_server__who_takes_no_refusals_is_ended(void **state)
{
	struct rpc_channel *alpha = NULL;
	uint64_t ended, began_ns = clock_monotonic_ns();
	unsigned long sent = 0;
	struct http2 *c;
	struct fx f;

	alpha = start_with_alpha(&f);
	no_futile = true;
	c = http2_open(f.target, 2, fx_path("beta.crt"), fx_path("beta.key"), "/no/such");
	assert_non_null(c);
	http2_deafen(c);
	while (sent < 200000 && !http2_send(c, HTTP2_CALLS, 100))
		sent += 100;
	assert_true(AWAIT(fx_stats(&f).connections_now == 1));
	ended = fx_stats(&f).refused_futile;
	fx_say_x(alpha);
	http2_close(c);
	rpc_channel_free(alpha);
	if (ended)
		assert_named(&f, "not taken the answers to more than 1024 calls (fixed)");
	fx_stop(&f);
	if (!ended && clock_monotonic_ns() - began_ns > GIVEN_UP_NS)
		skip(); /* too slow here, see above */
	assert_int_equal(ended, 1);
}

/* ---- what is no call and no message ---- */

static atomic_bool no_useless;

bool __real_conns_is_useless(struct rpc_conn *k, size_t message, uint64_t sent, uint64_t now_ns);
bool __wrap_conns_is_useless(struct rpc_conn *k, size_t message, uint64_t sent, uint64_t now_ns);
bool __wrap_conns_is_useless(struct rpc_conn *k, size_t message, uint64_t sent, uint64_t now_ns)
{
	return !no_useless && __real_conns_is_useless(k, message, sent, now_ns);
}

/* gRPC keeps headers that have no end, and swallows frames that nobody knows. */
static void rpc_server__who_sends_only_what_becomes_nothing_is_ended(void **state)
{
	static const char useless[] = "that were no call and no message, of at most ";
	static const struct {
		enum http2_flood kind;
		const char *cap;
	} floods[] = {{HTTP2_CONTINUATIONS, "headers of a call came in more than 16 pieces"},
	              {HTTP2_UNKNOWN, useless},
	              {HTTP2_WINDOWS, useless}};
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	alpha = start_with_alpha(&f);
	for (size_t i = 0; i < ARRAY_SIZE(floods); i++) {
		begin_hasty(&h, &f, floods[i].kind, 0);
		assert_true(AWAIT(h.ended));
		pthread_join(h.thread, NULL);
		fx_say_x(alpha);
		assert_int_equal(fx_stats(&f).refused_futile, i + 1);
		fx_wait(&f.refused[RPC_REFUSED_FUTILE], (int)i + 1);
		assert_named(&f, floods[i].cap);
		assert_named(&f, " (fixed): this connection was ended");
	}
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* Of what alpha sends all becomes messages, in calls and in one of them. */
static void rpc_server__who_sends_messages_is_not(void **state)
{
	static char text[4096];
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *alpha;
	struct fx f;

	alpha = start_with_alpha(&f);
	assert_true(rpc_gate_passed() > 0);
	memset(text, 'y', sizeof(text) - 1);
	for (size_t n = 0; n < 4 * CONNS_USELESS; n += sizeof(text))
		assert_int_equal(fx_say(alpha, text, text, &err), 0);
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

static void control__without_that_bound_it_goes_on(void **state)
{
	struct hasty h;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	no_useless = true;
	begin_hasty(&h, &f, HTTP2_UNKNOWN, 0);
	assert_true(AWAIT(h.sent > 100000)); /* of 17 bytes: more than all that is ever forgiven */
	assert_false(h.ended);
	end_hasty(&h);
	no_useless = false;
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	fx_stop(&f);
}

/* ---- what is read while nobody handles it ---- */

/* Bytes: of a turn that the listener's thread ended just when the first call had come and it had
 * not looked; of the next, in which it finds it; and before them of the handshake. */
#define MOST_UNHANDLED (2 * CONNS_READ_IDLE * CONNS_READ_UNCALLED + 8192)

static atomic_bool no_gate, busy; /* busy: the listener's polling thread, at beta's first call */
static atomic_bool at_work;
static atomic_ulong read_of_beta; /* bytes */

struct rpc_conn *__real_rpc_conns_called(struct rpc_conns *c, const char *address,
                                         const char *group, bool *ret_crowded);
struct rpc_conn *__wrap_rpc_conns_called(struct rpc_conns *c, const char *address,
                                         const char *group, bool *ret_crowded);
struct rpc_conn *__wrap_rpc_conns_called(struct rpc_conns *c, const char *address,
                                         const char *group, bool *ret_crowded)
{
	uint64_t until_ns = clock_monotonic_ns() + AWAIT_MS * NS_PER_MS;

	at_work = busy;
	while (busy && clock_monotonic_ns() < until_ns)
		sched_yield();
	return __real_rpc_conns_called(c, address, group, ret_crowded);
}

size_t __real_rpc_conns_may_read(struct rpc_conns *c, int fd);
size_t __wrap_rpc_conns_may_read(struct rpc_conns *c, int fd);
size_t __wrap_rpc_conns_may_read(struct rpc_conns *c, int fd)
{
	size_t n = __real_rpc_conns_may_read(c, fd);

	return no_gate && n != SIZE_MAX ? 65536 : n;
}

/* 127.0.0.2, as hasten has it, at a socket of both kinds. */
static bool is_of_beta(int fd)
{
	struct sockaddr_in6 from = {0};
	socklen_t len = sizeof(from);

	return !getpeername(fd, (struct sockaddr *)&from, &len) && from.sin6_family == AF_INET6 &&
	       from.sin6_addr.s6_addr[15] == 2;
}

void __real_rpc_conns_has_read(struct rpc_conns *c, int fd, size_t bytes);
void __wrap_rpc_conns_has_read(struct rpc_conns *c, int fd, size_t bytes);
void __wrap_rpc_conns_has_read(struct rpc_conns *c, int fd, size_t bytes)
{
	if (is_of_beta(fd))
		read_of_beta += bytes;
	__real_rpc_conns_has_read(c, fd, bytes);
}

/* Another thread of the process, that of a channel, polls for all; it shakes the hands of those who
 * come meanwhile. */
static struct rpc_channel *start_busy(struct fx *f, struct hasty *h, unsigned long most)
{
	struct rpc_channel *alpha = start_with_alpha(f);

	no_futile = no_useless = busy = true;
	read_of_beta = 0;
	begin_hasty(h, f, HTTP2_RESETS, most);
	assert_true(AWAIT(at_work));
	return alpha;
}

static void end_busy(struct fx *f, struct hasty *h, struct rpc_channel *alpha)
{
	busy = false;
	end_hasty(h);
	no_futile = no_useless = false;
	rpc_channel_free(alpha);
	fx_stop(f);
}

static void rpc_server__no_more_is_read_of_a_caller_than_is_handled(void **state)
{
	struct rpc_channel *alpha;
	unsigned long before;
	struct hasty h;
	struct fx f;

	alpha = start_busy(&f, &h, 0);
	for (uint8_t i = 0; i < 20; i++) {
		struct http2 *other = http2_open(f.target, 3 + i, fx_path("client.crt"),
		                                 fx_path("client.key"), "/ros2.test.Echo/Say");

		assert_non_null(other);
		http2_close(other);
	}
	before = read_of_beta;
	assert_in_range(before, 1, MOST_UNHANDLED);
	/* When it is handled, more is. */
	busy = false;
	assert_true(AWAIT(read_of_beta > 4 * MOST_UNHANDLED));
	fx_say_x(alpha);
	end_busy(&f, &h, alpha);
}

static void control__without_the_gate_all_is_read_that_comes(void **state)
{
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	no_gate = true;
	alpha = start_busy(&f, &h, 4000); /* no more: each is to be handled in the end */
	assert_true(AWAIT(read_of_beta > 2 * MOST_UNHANDLED));
	no_gate = false;
	end_busy(&f, &h, alpha);
}

/* ---- records of a byte ---- */

static atomic_ulong owed_by_beta; /* bytes */

void __real_rpc_conns_owes(struct rpc_conns *c, int fd, size_t bytes);
void __wrap_rpc_conns_owes(struct rpc_conns *c, int fd, size_t bytes);
void __wrap_rpc_conns_owes(struct rpc_conns *c, int fd, size_t bytes)
{
	if (is_of_beta(fd))
		owed_by_beta += bytes;
	__real_rpc_conns_owes(c, fd, bytes);
}

/* A record of one byte has 23 on its way and is told to cost 256: so much more counts in a turn. Of
 * what comes in long records next to nothing is owed. */
static void rpc_server__records_of_a_byte_count_as_many(void **state)
{
	struct rpc_channel *alpha;
	struct hasty h;
	struct fx f;

	for (int record = 0; record < 2; record++) {
		alpha = start_with_alpha(&f);
		no_useless = true;
		begin_hasty_in(&h, &f, HTTP2_UNKNOWN, 0, record);
		assert_true(AWAIT(h.sent >= 100)); /* and its handshake is over */
		read_of_beta = owed_by_beta = 0;
		assert_true(AWAIT(read_of_beta > 100000));
		fx_say_x(alpha);
		end_hasty(&h);
		no_useless = false;
		rpc_channel_free(alpha);
		fx_stop(&f);
		if (record)
			assert_true(owed_by_beta > 8 * read_of_beta);
		else
			assert_true(owed_by_beta < read_of_beta);
	}
}

static void control__without_all_of_it_it_goes_on(void **state)
{
	struct hasty h;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	no_futile = no_gate = no_useless = true;
	begin_hasty(&h, &f, HTTP2_RESETS, 0);
	assert_true(AWAIT(h.sent > 20000));
	assert_false(h.ended);
	end_hasty(&h);
	no_futile = no_gate = no_useless = false;
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	fx_stop(&f);
}

/* Also of a test that failed. */
static int forget_switches(void **state)
{
	no_futile = no_useless = no_gate = busy = false;
	moment_ns = 0;
	return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_teardown(name, forget_switches)
	const struct CMUnitTest tests[] = {
		T(rpc_server__ends_the_connection_whose_calls_come_to_nothing),
		T(rpc_server__calls_of_what_is_not_there_come_to_nothing_too),
		T(rpc_server__a_link_local_caller_is_known_like_any_other),
		T(control__without_the_bound_its_calls_may_come_to_nothing),
		T(rpc_server__who_resets_without_end_is_ended_and_others_are_heard),
		T(rpc_server__an_answer_that_nobody_takes_gives_its_place_back),
		T(rpc_server__who_takes_no_refusals_is_ended),
		T(rpc_server__who_sends_only_what_becomes_nothing_is_ended),
		T(rpc_server__who_sends_messages_is_not),
		T(control__without_that_bound_it_goes_on),
		T(rpc_server__no_more_is_read_of_a_caller_than_is_handled),
		T(control__without_the_gate_all_is_read_that_comes),
		T(control__without_all_of_it_it_goes_on),
		T(rpc_server__records_of_a_byte_count_as_many),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
