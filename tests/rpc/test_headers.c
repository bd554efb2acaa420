/* SPDX-License-Identifier: Apache-2.0 */
/* Headers in pieces (headers.c): by itself, and before gRPC. */
#include "proto/rpc/headers_priv.h"
#include "common/util.h"
#include "proto/rpc/rpc_priv.h"
#include "tests/await.h"
#include "tests/rpc/fixture.h"
#include "tests/rpc/http2.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define END_HEADERS 4
enum type { DATA, HEADERS, SETTINGS = 4, CONTINUATION = 9 };

/* ---- frames ---- */

static struct {
	uint8_t bytes[1 << 17];
	size_t n;
} wire;

static void preface(void)
{
	memcpy(wire.bytes, PREFACE, strlen(PREFACE));
	wire.n = strlen(PREFACE);
}

/* Its payload looks like the heads of headers that are too long. */
static void frame(enum type type, uint8_t flags, uint32_t len)
{
	const uint8_t head[] = {
		(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags, 0, 0, 0, 1};

	assert_true(wire.n + sizeof(head) + len <= sizeof(wire.bytes));
	memcpy(wire.bytes + wire.n, head, sizeof(head));
	memset(wire.bytes + wire.n + sizeof(head), HEADERS, len);
	wire.n += sizeof(head) + len;
}

/* In records of @each bytes. */
static bool follows(size_t each)
{
	struct rpc_headers h = {0};
	bool ok = true;

	for (size_t at = 0; at < wire.n; at += each)
		ok = rpc_headers_follow(&h, wire.bytes + at, MIN(each, wire.n - at));
	return ok;
}

static void rpc_headers__what_libraries_send_is_let_through(void **state)
{
	preface();
	frame(SETTINGS, 0, 36);
	frame(HEADERS, END_HEADERS, RPC_HEADERS_MAX);
	frame(DATA, 0, 16384);
	frame(DATA, 0, 0);
	for (int i = 0; i < 100; i++) {
		frame(HEADERS, END_HEADERS, 200);
		frame(DATA, 1, 5);
	}
	frame(HEADERS, 0, 8192);
	frame(CONTINUATION, END_HEADERS, 0);
	for (size_t each = 1300; each <= 16384; each += 7)
		assert_true(follows(each));
}

/* However they are cut. */
static void rpc_headers__frames_are_not_lost(void **state)
{
	preface();
	for (uint32_t i = 0; i < 40; i++)
		frame(i % 2 ? DATA : SETTINGS, 0, i);
	for (uint32_t i = 0; i < 10; i++)
		frame(HEADERS, END_HEADERS, i);
	for (size_t each = 1; each < 60; each++)
		assert_true(follows(each));
	frame(HEADERS, END_HEADERS, RPC_HEADERS_MAX + 1);
	for (size_t each = 1; each < 60; each++)
		assert_false(follows(each));
}

static void rpc_headers__in_more_pieces_they_are_not(void **state)
{
	preface();
	frame(HEADERS, 0, 100);
	for (int i = 1; i < RPC_HEADERS_PIECES; i++)
		frame(CONTINUATION, 0, 1);
	assert_true(follows(wire.n));
	frame(CONTINUATION, END_HEADERS, 1);
	assert_false(follows(wire.n));
	/* Nor what comes behind it. */
	frame(HEADERS, END_HEADERS, 100);
	assert_false(follows(wire.n));
	/* One frame, in records. */
	preface();
	frame(HEADERS, END_HEADERS, 320);
	assert_true(follows(24));
	assert_false(follows(16));
}

static void rpc_headers__longer_they_are_not(void **state)
{
	preface();
	frame(HEADERS, END_HEADERS, RPC_HEADERS_MAX + 1);
	assert_false(follows(wire.n));
	preface();
	frame(HEADERS, 0, RPC_HEADERS_MAX);
	frame(CONTINUATION, END_HEADERS, 1);
	assert_false(follows(wire.n));
}

/* ---- before gRPC ---- */

static atomic_bool no_bound;

bool __real_rpc_headers_follow(struct rpc_headers *h, const void *bytes, size_t n);
bool __wrap_rpc_headers_follow(struct rpc_headers *h, const void *bytes, size_t n);
bool __wrap_rpc_headers_follow(struct rpc_headers *h, const void *bytes, size_t n)
{
	return no_bound || __real_rpc_headers_follow(h, bytes, n);
}

/* It has made a call: so much may come as a message now. */
static struct http2 *beta(struct fx *f)
{
	struct http2 *c =
		http2_open(f->target, 2, fx_path("beta.crt"), fx_path("beta.key"), "/no/such");

	assert_non_null(c);
	assert_int_equal(http2_send(c, HTTP2_CALLS, 1), 0);
	fx_wait(&f->refused[RPC_REFUSED_METHOD], 1);
	return c;
}

static void rpc_server__headers_in_pieces_end_their_connection(void **state)
{
	struct rpc_channel *alpha;
	struct fx_refusal r;
	struct http2 *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	c = beta(&f);
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	http2_send_pieces(c, 10000, 10000);
	fx_wait(&f.refused[RPC_REFUSED_FUTILE], 1);
	r = fx_refused_as(&f, RPC_REFUSED_FUTILE);
	assert_int_equal(strncmp(r.from, "127.0.0.2:", 10), 0);
	assert_non_null(strstr(r.words, "headers of a call came in more than 16 pieces"));
	assert_int_equal(fx_stats(&f).refused_futile, 1);
	assert_int_equal(fx_stats(&f).connections_now, 1);
	fx_say_x(alpha);
	http2_close(c);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* gRPC keeps what came with the end of a handshake, and may have read of alpha's socket meanwhile.
 */
static void rpc_server__headers_in_pieces_behind_a_handshake_end_it_with_the_next(void **state)
{
	struct rpc_channel *alpha;
	struct fx_refusal r;
	struct http2 *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha);
	c = http2_open_in_pieces(f.target, 2, fx_path("beta.crt"), fx_path("beta.key"), 40);
	assert_non_null(c);
	fx_say_x(alpha);
	while (!http2_send(c, HTTP2_PINGS, 1))
		fx_say_x(alpha);
	fx_wait(&f.refused[RPC_REFUSED_FUTILE], 1);
	r = fx_refused_as(&f, RPC_REFUSED_FUTILE);
	assert_int_equal(strncmp(r.from, "127.0.0.2:", 10), 0);
	assert_non_null(strstr(r.words, "headers of a call came in more than 16 pieces"));
	assert_int_equal(fx_stats(&f).connections_now, 1);
	fx_say_x(alpha);
	http2_close(c);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

static void rpc_server__headers_in_a_few_frames_are_a_call(void **state)
{
	struct http2 *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	c = beta(&f);
	for (uint32_t i = 1; i <= 8; i++)
		assert_int_equal(http2_call_in(c, i), 0);
	assert_true(AWAIT(fx_stats(&f).refused_unknown_method == 9));
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	assert_int_equal(fx_stats(&f).connections_now, 1);
	http2_close(c);
	fx_stop(&f);
}

static void control__without_the_bound_it_goes_on(void **state)
{
	struct rpc_channel *alpha;
	struct http2 *c;
	struct fx f;

	fx_start_limits(&f, (struct rpc_limits){0});
	no_bound = true;
	c = beta(&f);
	/* 2 ms of gRPC's for each frame of a byte. */
	assert_int_equal(http2_send_pieces(c, 40000, 100), 0);
	assert_true(AWAIT(http2_arrived(c)));
	alpha = fx_channel(&f, NULL);
	fx_say_x(alpha); /* behind it */
	assert_int_equal(fx_stats(&f).refused_futile, 0);
	http2_close(c);
	rpc_channel_free(alpha);
	fx_stop(&f);
}

/* Also of a test that failed. */
static int forget_switches(void **state)
{
	no_bound = false;
	return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_teardown(name, forget_switches)
	const struct CMUnitTest tests[] = {
		T(rpc_headers__what_libraries_send_is_let_through),
		T(rpc_headers__frames_are_not_lost),
		T(rpc_headers__in_more_pieces_they_are_not),
		T(rpc_headers__longer_they_are_not),
		T(rpc_server__headers_in_pieces_end_their_connection),
		T(rpc_server__headers_in_pieces_behind_a_handshake_end_it_with_the_next),
		T(rpc_server__headers_in_a_few_frames_are_a_call),
		T(control__without_the_bound_it_goes_on),
	};

	return cmocka_run_group_tests(tests, fx_group_setup_beta, fx_group_teardown);
}
