/* SPDX-License-Identifier: Apache-2.0 */
/* The places of a listener: who shares what, and what is left for the others. A place is taken by
 * headers alone, and kept until the call has ended. */
#include "proto/rpc/rpc_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include <stdio.h>
#include <string.h>

#define CALLS 16
#define EACH  (CALLS / 4) /* of a group, when nothing is said; and as many are kept */
#define CERTS 7

static char certs[CERTS][16];

static int setup(void **state)
{
	int rc = fx_group_setup(state);

	for (int i = 0; i < CERTS && !rc; i++) {
		char uri[64];

		snprintf(certs[i], sizeof(certs[i]), "alpha-%d", i);
		snprintf(uri, sizeof(uri), "spiffe://test.example/alpha/%d", i);
		fx_issue("ca", certs[i], uri, 3600);
	}
	return rc;
}

/* Says that alpha's are another's from now on. */
static atomic_bool moved;

static void group_of(void *arg, const struct rpc_peer *peer, char group[RPC_GROUP_MAX + 1])
{
	bool alpha = !strncmp(peer->spiffe_id, "spiffe://test.example/alpha/", 28);

	strcpy(group, !alpha ? "others" : moved ? "gamma" : "alpha");
}

/* The control: whoever comes first has what there is. */
static bool none_kept;
void __real_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
void __wrap_rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group)
{
	__real_rpc_quota_init(q, of, total, per_group);
	if (none_kept)
		q->share.kept = 0;
}

static void start_with(struct fx *f, rpc_group_fn fn, struct rpc_limits limits)
{
	struct rpc_server_opts o = {.name = "echo",
	                            .listen = "127.0.0.1:0",
	                            .cert_path = fx_path("server.crt"),
	                            .key_path = fx_path("server.key"),
	                            .client_ca_path = fx_path("ca.crt"),
	                            .limits = limits,
	                            .group_of = fn};

	fx_start(f, &o);
}

static void start(struct fx *f, rpc_group_fn fn, size_t per_group)
{
	start_with(f, fn,
	           (struct rpc_limits){.max_calls = CALLS, .max_calls_per_group = per_group});
}

static uint64_t answered(struct fx *f)
{
	struct rpc_server_stats st = fx_stats(f);

	return st.calls_total + st.refused_limit;
}

/* @n headers with alpha's certificate @i, each of which has a place or was refused one. */
static struct bare_held *hold(struct fx *f, int i, size_t n)
{
	uint64_t before = answered(f);
	struct bare_held *h = fx_hold(f, certs[i], n);

	assert_true(AWAIT(answered(f) - before >= n));
	return h;
}

static const char of_the_group[] =
	"BUSY: too many open at once from this caller: it has 4 calls in "
	"flight, and its share of the 16 is 4 (fixed): try again when "
	"one has ended";
static const char of_all[] = "BUSY: the server is at its limit: of its 16 calls in flight (fixed) "
			     "the last 4 are for each caller's first 1, and this one has 12: try "
			     "again later";

static void let_go(struct fx *f, struct bare_held *h, size_t refused, const char *why,
                   uint64_t calls_left)
{
	char words[512] = "";
	int code = 0;

	assert_int_equal(bare_held_free(h, refused, &code, words), refused);
	if (refused)
		assert_string_equal(words, why);
	assert_true(AWAIT(fx_stats(f).calls_now == calls_left));
}

/* With all of its certificates, and nothing behind the headers. What another got meanwhile. */
static int flood(struct fx *f, uint64_t *ret_now)
{
	struct rpc_channel *neighbour = fx_channel(f, NULL);
	struct ros2_err err = ROS2_ERR_INIT;
	struct bare_held *h[CERTS];
	char words[512];
	int rc, code;

	for (int i = 0; i < CERTS; i++)
		h[i] = hold(f, i, EACH);
	*ret_now = fx_stats(f).calls_now;
	rc = fx_say(neighbour, "x", "x", &err);
	for (int i = 0; i < CERTS; i++)
		bare_held_free(h[i], 0, &code, words);
	rpc_channel_free(neighbour);
	return rc ? (int)err.status : (int)ROS2_OK;
}

static void rpc_server__a_group_has_its_places_however_many_certificates_it_has(void **state)
{
	uint64_t now;
	struct fx f;

	start(&f, group_of, 0);
	assert_int_equal(flood(&f, &now), ROS2_OK);
	assert_int_equal(now, EACH);
	fx_stop(&f);
}

static void control__where_each_certificate_counts_for_itself_they_take_every_place(void **state)
{
	uint64_t now;
	struct fx f;

	start(&f, NULL, 0);
	assert_int_equal(flood(&f, &now), ROS2_BUSY);
	assert_int_equal(now, CALLS);
	fx_stop(&f);
}

static void rpc_server__keeps_the_last_places_for_who_has_none(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct bare_held *h;
	struct fx f;

	start(&f, group_of, CALLS);
	h = hold(&f, 0, CALLS);
	assert_int_equal(fx_stats(&f).calls_now, CALLS - EACH);
	c = fx_channel(&f, NULL);
	assert_int_equal(fx_say(c, "x", "x", &err), 0);
	rpc_channel_free(c);
	let_go(&f, h, EACH, of_all, 0);
	fx_stop(&f);
}

static void control__where_none_are_kept_it_finds_none(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct bare_held *h;
	struct fx f;

	none_kept = true;
	start(&f, group_of, CALLS);
	none_kept = false;
	h = hold(&f, 0, CALLS);
	assert_int_equal(fx_stats(&f).calls_now, CALLS);
	c = fx_channel(&f, NULL);
	assert_int_not_equal(fx_say(c, "x", "x", &err), 0);
	assert_int_equal(err.status, ROS2_BUSY);
	rpc_channel_free(c);
	let_go(&f, h, 0, NULL, 0);
	fx_stop(&f);
}

/* ---- streams ---- */

#define STREAMS 8 /* a quarter of them for each group, and as many are kept */

static void start_streams(struct fx *f, size_t per_group)
{
	start_with(f, group_of,
	           (struct rpc_limits){.max_streams = STREAMS, .max_streams_per_group = per_group});
}

static struct rpc_channel *channel_of_alpha(struct fx *f, int i)
{
	char cert[32], key[32];

	snprintf(cert, sizeof(cert), "%s.crt", certs[i]);
	snprintf(key, sizeof(key), "%s.key", certs[i]);
	return fx_channel_opts(
		f, (struct rpc_channel_opts){.cert_path = fx_path(cert), .key_path = fx_path(key)});
}

/* NULL: it is refused, with these words. */
static struct rpc_reader *open_stream(struct rpc_channel *c, struct ros2_err *err)
{
	Ros2__Test__EchoRequest req = ROS2__TEST__ECHO_REQUEST__INIT;
	ProtobufCMessage *msg;
	struct rpc_reader *r;

	req.number = 1;
	req.text = (char *)"stay";
	assert_int_equal(rpc_reader_open(c, &ros2_test_echo_count, &req.base, 0, &r, err), 0);
	if (rpc_reader_next(r, AWAIT_MS, &msg, err) == 0) {
		protobuf_c_message_free_unpacked(msg, NULL);
		return r;
	}
	assert_int_equal(err->status, ROS2_BUSY);
	rpc_reader_close(r);
	return NULL;
}

/* Alpha, with two of its certificates, opens as many as it gets; then its neighbour one. */
static unsigned open_streams(struct fx *f, struct ros2_err *ret_alpha, struct ros2_err *ret_other)
{
	struct rpc_reader *r[STREAMS + 1] = {NULL};
	struct rpc_channel *alpha[2], *other = fx_channel(f, NULL);
	unsigned n = 0;

	*ret_alpha = *ret_other = (struct ros2_err)ROS2_ERR_INIT;
	for (int i = 0; i < 2; i++) {
		alpha[i] = channel_of_alpha(f, i);
		while (n < STREAMS && (r[n] = open_stream(alpha[i], ret_alpha)))
			n++;
	}
	r[STREAMS] = open_stream(other, ret_other);
	for (int i = 0; i <= STREAMS; i++)
		rpc_reader_close(r[i]);
	for (int i = 0; i < 2; i++)
		rpc_channel_free(alpha[i]);
	rpc_channel_free(other);
	return n;
}

static void rpc_server__a_group_has_its_streams_and_leaves_others_theirs(void **state)
{
	static const char words[] = "too many open at once from this caller: it has 2 open "
				    "streams, and its share of the 8 is 2 (fixed)";
	struct ros2_err alpha, other;
	struct fx f;

	start_streams(&f, 0);
	assert_int_equal(open_streams(&f, &alpha, &other), STREAMS / 4);
	assert_non_null(strstr(alpha.msg, words));
	assert_int_equal(other.code, 0);
	fx_wait(&f.refused[RPC_REFUSED_LIMIT], 1);
	assert_non_null(strstr(fx_refused_as(&f, RPC_REFUSED_LIMIT).words, words));
	fx_stop(&f);
}

static void control__without_its_share_one_group_has_every_stream(void **state)
{
	struct ros2_err alpha, other;
	struct fx f;

	none_kept = true;
	start_streams(&f, STREAMS);
	none_kept = false;
	assert_int_equal(open_streams(&f, &alpha, &other), STREAMS);
	assert_int_equal(other.status, ROS2_BUSY);
	fx_stop(&f);
}

/* A place goes back to whom it was taken from. */
static void rpc_server__a_caller_may_come_to_another_group_while_its_calls_are_open(void **state)
{
	struct bare_held *before, *after, *again;
	struct fx f;

	start(&f, group_of, 0);
	before = hold(&f, 0, EACH);
	moved = true;
	after = hold(&f, 0, EACH + 1);
	assert_int_equal(fx_stats(&f).calls_now, 2 * EACH);
	let_go(&f, before, 0, NULL, EACH);
	again = hold(&f, 0, 1);
	assert_int_equal(fx_stats(&f).calls_now, EACH);
	let_go(&f, again, 1, of_the_group, EACH);
	moved = false;
	again = hold(&f, 0, EACH);
	assert_int_equal(fx_stats(&f).calls_now, 2 * EACH);
	let_go(&f, after, 1, of_the_group, EACH);
	let_go(&f, again, 0, NULL, 0);
	fx_stop(&f);
}

static void group_of_stranger__is_the_address_or_a_64_of_ipv6_whatever_its_scope(void **state)
{
	static const char *const cases[][2] = {
		{"192.0.2.1:4711", "192.0.2.1"},
		{"[2001:db8:1:2:3:4:5:6]:4711", "[2001:db8:1:2::"},
		{"[2001:db8:1:2::9]:1", "[2001:db8:1:2::"},
		{"[fe80::1%2]:4711", "[fe80::"},
		{"[fe80::ffff:ffff:ffff:ffff%4294967295]:65535", "[fe80::"},
		{"", ""},
	};
	char group[RPC_GROUP_MAX + 1];
	struct rpc_peer peer = {0};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(peer.address, sizeof(peer.address), "%s", cases[i][0]);
		rpc_group_of_stranger(&peer, group);
		assert_string_equal(group, cases[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			rpc_server__a_group_has_its_places_however_many_certificates_it_has),
		cmocka_unit_test(
			control__where_each_certificate_counts_for_itself_they_take_every_place),
		cmocka_unit_test(rpc_server__keeps_the_last_places_for_who_has_none),
		cmocka_unit_test(control__where_none_are_kept_it_finds_none),
		cmocka_unit_test(rpc_server__a_group_has_its_streams_and_leaves_others_theirs),
		cmocka_unit_test(control__without_its_share_one_group_has_every_stream),
		cmocka_unit_test(
			rpc_server__a_caller_may_come_to_another_group_while_its_calls_are_open),
		cmocka_unit_test(
			group_of_stranger__is_the_address_or_a_64_of_ipv6_whatever_its_scope),
	};

	return cmocka_run_group_tests(tests, setup, fx_group_teardown);
}
