/* SPDX-License-Identifier: Apache-2.0 */
/* Callers whose calls come to nothing (decision 0053): their connections are ended, and others are
 * heard. */
#include "proto/rpc/rpc_priv.h"
#include "proto/rpc/conns_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/rpc/http2.h"
#include <grpc/grpc_security.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>

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

uint32_t __real_conns_held_off_ms(struct conns_table *t, const struct host_key *from,
                                  uint64_t now_ns);
uint32_t __wrap_conns_held_off_ms(struct conns_table *t, const struct host_key *from,
                                  uint64_t now_ns);
uint32_t __wrap_conns_held_off_ms(struct conns_table *t, const struct host_key *from,
                                  uint64_t now_ns)
{
	return __real_conns_held_off_ms(t, from, at(now_ns));
}

void __real_conns_sweep(struct conns_table *t, uint64_t now_ns);
void __wrap_conns_sweep(struct conns_table *t, uint64_t now_ns);
void __wrap_conns_sweep(struct conns_table *t, uint64_t now_ns)
{
	__real_conns_sweep(t, at(now_ns));
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
	fx_wait(&f.refused[RPC_REFUSED_FUTILE], 1);
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

/* ---- the same without them ---- */

static atomic_bool no_watch;
static atomic_int all_the_same; /* so often */

void __real_rpc_conns_end_busiest(void);
void __wrap_rpc_conns_end_busiest(void);
void __wrap_rpc_conns_end_busiest(void)
{
	if (!no_watch || (all_the_same > 0 && all_the_same--))
		__real_rpc_conns_end_busiest();
}

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
	struct http2 *c = http2_open(h->f->target, 2, fx_path("beta.crt"), fx_path("beta.key"),
	                             "/ros2.test.Echo/Say");

	while (c && !h->stop && !http2_send(c, HTTP2_RESETS, 100))
		h->sent += 100;
	h->ended = !h->stop;
	http2_close(c);
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

/* And alpha's channel to it, in use. */
static struct rpc_channel *start_watched(struct fx *f)
{
	struct rpc_channel *alpha;

	skip_without_watch();
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

	alpha = start_watched(&f);
	for (int i = 0; i < 2; i++) {
		begin_hasty(&h, &f);
		assert_true(AWAIT(h.ended));
		fx_say_x(alpha);
		pthread_join(h.thread, NULL);
		fx_say_x(alpha);
	}
	assert_true(fx_stats(&f).refused_futile > 0);
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

	alpha = start_watched(&f);
	moment_ns = clock_monotonic_ns();
	no_futile = stuck = true;
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.ended));
	no_futile = stuck = false;
	pthread_join(h.thread, NULL);
	assert_true(h.sent > 0);
	assert_int_equal(fx_stats(&f).refused_futile, 1);
	/* Who was silent is still there; from that address one comes each second now. */
	assert_true(AWAIT(fx_stats(&f).connections_now == 1));
	fx_say_x(alpha);
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.ended));
	pthread_join(h.thread, NULL);
	assert_int_equal(h.sent, 0);
	moment_ns = 0;
	assert_true(fx_stats(&f).refused_futile > 1);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* Bytes: more than come with a handshake and a call, and no more than the kernel takes ahead of who
 * reads. A frame is 9. */
#define MUCH (6u << 10)

/* Of who has sent much, more has come each time that it is looked at: how much of it a busy machine
 * lets each of them send meanwhile is chance. */
static atomic_uint asked_mib;

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int rc = __real_getsockopt(fd, level, name, value, len);
	struct tcp_info *info = value;

	if (!rc && level == IPPROTO_TCP && name == TCP_INFO && asked_mib &&
	    info->tcpi_bytes_received > MUCH)
		info->tcpi_bytes_received = (uint64_t)asked_mib++ << 20;
	return rc;
}

/* Two connections with calls, and two on which no call ever came, at four addresses: one by one
 * each would be back before the next is ended. Whose the latter are nobody knows, so it takes two
 * looks. */
static void rpc_server__those_who_keep_it_together_are_ended_together(void **state)
{
	static const enum http2_flood kinds[] = {HTTP2_CALLS, HTTP2_UNKNOWN, HTTP2_CALLS,
	                                         HTTP2_UNKNOWN};
	static const unsigned calls = 100, frames = 1000;
	struct http2 *c[ARRAY_SIZE(kinds)];
	struct rpc_channel *alpha;
	struct fx f;

	alpha = start_watched(&f);
	no_futile = no_watch = true;
	for (uint8_t i = 0; i < ARRAY_SIZE(c); i++) {
		c[i] = http2_open(f.target, i + 2, fx_path("beta.crt"), fx_path("beta.key"),
		                  "/ros2.test.Echo/Say");
		assert_non_null(c[i]);
		assert_int_equal(
			http2_send(c[i], kinds[i], kinds[i] == HTTP2_CALLS ? calls : frames), 0);
	}
	assert_true(AWAIT(fx_stats(&f).calls_now == 2 * calls));
	asked_mib = 1;
	all_the_same = 2;
	stuck = true;
	for (size_t i = 0; i < ARRAY_SIZE(c); i++) {
		assert_true(AWAIT(http2_send(c[i], kinds[i], 1) < 0));
		http2_close(c[i]);
	}
	assert_int_equal(all_the_same, 0);
	no_futile = no_watch = stuck = false;
	asked_mib = 0;
	assert_int_equal(fx_stats(&f).refused_futile, ARRAY_SIZE(c));
	fx_say_x(alpha);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* Of what alpha sends ten times as much becomes messages: that keeps nobody. */
static void rpc_server__who_sends_messages_is_not_taken_for_who_keeps_it(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *alpha;
	char text[4096] = "";
	struct http2 *beta;
	struct fx f;

	alpha = start_watched(&f);
	beta = http2_open(f.target, 2, fx_path("beta.crt"), fx_path("beta.key"),
	                  "/ros2.test.Echo/Say");
	assert_non_null(beta);
	memset(text, 'y', sizeof(text) - 1);
	rpc_conns_look();
	for (int i = 0; i < 50; i++)
		assert_int_equal(fx_say(alpha, text, text, &err), 0);
	assert_int_equal(http2_send(beta, HTTP2_UNKNOWN, 2000), 0);
	assert_true(AWAIT(http2_arrived(beta)));
	__real_rpc_conns_end_busiest();
	assert_true(AWAIT(http2_send(beta, HTTP2_UNKNOWN, 1) < 0));
	fx_say_x(alpha);
	assert_int_equal(fx_stats(&f).refused_futile, 1);
	http2_close(beta);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* Works until it is told to end, when a channel that is never used has not changed for 300 ms. */
struct worker {
	struct rpc_tag tag;
	struct rpc_poller poller;
	grpc_channel *channel;
	atomic_bool at_work, stop;
};

static void work(struct rpc_tag *tag, bool ok)
{
	struct worker *w = container_of(tag, struct worker, tag);

	w->at_work = true;
	while (!w->stop)
		;
	w->at_work = false;
}

static void rest(struct worker *w)
{
	w->stop = true;
	assert_true(AWAIT(!w->at_work));
}

static void wake(struct worker *w)
{
	w->stop = false;
	grpc_channel_watch_connectivity_state(w->channel, GRPC_CHANNEL_IDLE,
	                                      rpc_deadline_in_ms(300), w->poller.cq, &w->tag);
}

static uint64_t cpu_of_process_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* gRPC lets a channel's polling thread work for the connections of a listener, too. */
static void rpc_poller__that_of_a_channel_is_watched_where_there_is_a_listener(void **state)
{
	struct worker w = {.tag.fn = work};
	grpc_channel_credentials *creds;
	uint64_t from_ns;
	struct fx f;

	rpc_grpc_init();
	w.poller.cq = grpc_completion_queue_create_for_next(NULL);
	creds = grpc_insecure_credentials_create();
	w.channel = grpc_channel_create("127.0.0.1:1", creds, NULL);
	grpc_channel_credentials_release(creds);
	assert_int_equal(rpc_poller_start(&w.poller, "worker", 0, NULL, NULL), 0);
	/* Alone it would only come back when it is needed: what it does meanwhile says nothing. */
	wake(&w);
	assert_true(AWAIT(w.at_work));
	from_ns = cpu_of_process_ns();
	assert_int_equal(rpc_poller_longest_turn_ns(), 0);
	assert_true(AWAIT(cpu_of_process_ns() - from_ns > 300 * NS_PER_MS));
	assert_int_equal(rpc_poller_longest_turn_ns(), 0);
	rest(&w);

	fx_start_limits(&f, (struct rpc_limits){0});
	wake(&w); /* so that it has come round by then */
	assert_true(AWAIT(w.at_work));
	rest(&w);
	wake(&w);
	assert_true(AWAIT(rpc_poller_longest_turn_ns() > 300 * NS_PER_MS));
	assert_true(w.at_work);
	rest(&w);
	fx_stop(&f);
	grpc_channel_destroy(w.channel);
	rpc_poller_stop(&w.poller);
	rpc_grpc_shutdown();
}

static void control__without_both_it_goes_on(void **state)
{
	struct hasty h;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	no_futile = no_watch = true;
	begin_hasty(&h, &f);
	assert_true(AWAIT(h.sent > 20000));
	assert_false(h.ended);
	h.stop = true;
	pthread_join(h.thread, NULL);
	no_futile = no_watch = false;
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_server__ends_the_connection_whose_calls_come_to_nothing),
		cmocka_unit_test(rpc_server__calls_of_what_is_not_there_come_to_nothing_too),
		cmocka_unit_test(control__without_the_bound_its_calls_may_come_to_nothing),
		cmocka_unit_test(rpc_server__who_resets_without_end_is_ended_and_others_are_heard),
		cmocka_unit_test(rpc_server__who_keeps_the_polling_thread_is_ended),
		cmocka_unit_test(rpc_server__those_who_keep_it_together_are_ended_together),
		cmocka_unit_test(rpc_server__who_sends_messages_is_not_taken_for_who_keeps_it),
		cmocka_unit_test(
			rpc_poller__that_of_a_channel_is_watched_where_there_is_a_listener),
		cmocka_unit_test(control__without_both_it_goes_on),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
