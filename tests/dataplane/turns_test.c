/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of one tenant, on one reactor, take turns at what they have together: tokens of its
 * rates, and places in an engine. Each test sends all that is asked for before it looks, so that
 * which session is served is the reactor's choice alone.
 */
#include "tests/await.h"
#include "tests/dataplane/slow_fixture.h"
#include <poll.h>

#define MANY  100
#define BLOCK 65536

static uint8_t data[WIRE_IO_MAX];

/* Two sessions of the fixture's tenant on one reactor, each with a file of its own. */
static void two_sessions(struct fx *fx, struct raw c[2])
{
	static const char *const names[] = {"one", "two"};
	struct raw other;

	raw_features = WIRE_FEATURE_CLEAR;
	for (int i = 0; i < 2; i++) {
		raw_open(fx, &c[i]);
		raw_connect(&c[i]);
		raw_file(&c[i], names[i]);
		c[i].key = raw_register(&c[i], FX_BASE, 4u << 20, 3);
		if (i == 0)
			raw_open(fx, &other); /* takes the other reactor */
	}
	assert_int_equal(c[0].port, c[1].port);
}

static void fill(struct raw *c)
{
	assert_int_equal(raw_write(c, 0, data, sizeof(data), false), ROS2_OK);
}

static void ask(struct raw *c, enum wire_opcode op, uint32_t length, unsigned n)
{
	while (n--) {
		struct wire_header h = op == WIRE_ZERO ? raw_clear_header(c, op, 0, length)
		                                       : raw_header(c, op, 0, FX_BASE, length);

		raw_send(c, &h, NULL, 0);
	}
}

/* The end of one request, whatever comes before it. */
static void take_end(struct raw *c)
{
	struct wire_header h = {.opcode = WIRE_DATA};

	while (h.opcode == WIRE_DATA)
		assert_true(raw_recv(c, &h, data, sizeof(data)));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
}

/* Waits for the next end of either, which is counted. */
static void take_next(struct raw c[2], unsigned n[2])
{
	struct pollfd p[2] = {{.fd = c[0].fd, .events = POLLIN}, {.fd = c[1].fd, .events = POLLIN}};

	assert_true(poll(p, 2, 20000) > 0);
	for (int i = 0; i < 2; i++) {
		if (!p[i].revents)
			continue;
		take_end(&c[i]);
		n[i]++;
	}
}

static void close_both(struct raw c[2])
{
	raw_close(&c[0]);
	raw_close(&c[1]);
}

static uint32_t ends(struct fx *fx, const struct raw *c)
{
	struct dp_session_stats st = fx_stats(fx, &c->session);

	return (uint32_t)(st.read_ops + st.write_ops + st.clear_ops);
}

static bool has_all(struct fx *fx, const struct raw *c, unsigned n)
{
	return fx_stats(fx, &c->session).in_flight + ends(fx, c) >= n;
}

/* ---- what the engine is given, in this order ---- */

static _Atomic(struct engine_file *) given[2 * MANY];
static atomic_uint n_given;
static int (*submit_inner)(struct engine_reactor *r, struct engine_io *io);

static int noting_submit(struct engine_reactor *r, struct engine_io *io)
{
	given[n_given++ % ARRAY_SIZE(given)] = io->file;
	return submit_inner(r, io);
}

static int noting_setup(void **state)
{
	slow_prepare();
	n_given = 0;
	submit_inner = slow_engine_ops.submit;
	slow_engine_ops.submit = noting_submit;
	return fx_setup(state);
}

#define NOTING_TEST(f) cmocka_unit_test_setup_teardown(f, noting_setup, slow_teardown)

/* How many of those from @from on to before @until are of the file that was given first. */
static unsigned of_first_file(unsigned from, unsigned until)
{
	unsigned of_first = 0;

	for (unsigned i = from; i < until; i++)
		of_first += given[i] == given[0];
	return of_first;
}

/* One is ahead, and paid for later; behind it come those of both, and then the rate that they
 * share: of the next 48 each has its half. */
static void both_take_turns(struct fx *fx, struct raw c[2], enum wire_opcode op)
{
	unsigned n[2] = {0}, from;

	n_given = 0;
	ask(&c[0], op, BLOCK, MANY);
	assert_true(AWAIT(n_given > 0 && has_all(fx, &c[0], MANY)));
	ask(&c[1], op, BLOCK, MANY);
	assert_true(AWAIT(has_all(fx, &c[1], MANY)));
	from = n_given;
	assert_in_range(from, 1, 8);
	fx->limits.read_bytes_per_s = 64u << 20;
	fx->limits.write_iops = 1000;
	fx_limits(fx);
	while (n[0] + n[1] < 2 * MANY)
		take_next(c, n);
	assert_in_range(of_first_file(from, from + 48), 18, 30);
	close_both(c);
}

static void turns__at_a_rate_of_bytes(void **state)
{
	struct fx *fx = *state;
	struct raw c[2];

	fx->limits.read_bytes_per_s = 256;
	fx_limits(fx);
	two_sessions(fx, c);
	for (int i = 0; i < 2; i++)
		fill(&c[i]);
	both_take_turns(fx, c, WIRE_READ);
}

/* The first pays with what was saved up, and each other one a second. */
static void turns__at_a_rate_of_operations(void **state)
{
	struct fx *fx = *state;
	struct raw c[2];

	fx->limits.write_iops = 1;
	fx_limits(fx);
	two_sessions(fx, c);
	both_take_turns(fx, c, WIRE_ZERO);
}

/* What clears needs no slot, and a tenant has few of it in one engine. */
static void turns__at_places_in_an_engine(void **state)
{
	struct fx *fx = *state;
	unsigned n[2] = {0};
	struct raw c[2];

	two_sessions(fx, c);
	slow_engine_shut(true);
	for (int i = 0; i < 2; i++) {
		ask(&c[i], WIRE_ZERO, 4096, MANY);
		assert_true(AWAIT(has_all(fx, &c[i], MANY)));
	}
	slow_engine_shut(false);
	while (n[0] + n[1] < 2 * MANY)
		take_next(c, n);
	assert_in_range(of_first_file(0, MANY), MANY / 3, 2 * MANY / 3);
	close_both(c);
}

#define LARGE 6 /* requests of 1 MiB */

/* A large request goes, and is paid for in an hour; behind it come all others, and then the rate
 * that they share. How many large ones the engine is given before it has all small ones. */
static unsigned large_beside(struct fx *fx, uint32_t small)
{
	unsigned n[2] = {0}, last = 0;
	struct raw c[2];

	fx->limits.read_bytes_per_s = 256;
	fx_limits(fx);
	two_sessions(fx, c);
	for (int i = 0; i < 2; i++)
		fill(&c[i]);
	n_given = 0;
	ask(&c[0], WIRE_READ, WIRE_IO_MAX, LARGE);
	assert_true(AWAIT(n_given == 1 && has_all(fx, &c[0], LARGE)));
	ask(&c[1], WIRE_READ, small, MANY);
	assert_true(AWAIT(has_all(fx, &c[1], MANY)));
	assert_int_equal(n_given, 1);
	fx->limits.read_bytes_per_s = 8u << 20;
	fx_limits(fx);
	while (n[0] + n[1] < LARGE + MANY)
		take_next(c, n);
	for (unsigned i = 0; i < LARGE + MANY; i++)
		if (given[i] != given[0])
			last = i;
	close_both(c);
	return of_first_file(1, last);
}

/* Bytes, not requests, are what they share. */
static void turns__of_small_requests_beside_large_ones(void **state)
{
	assert_in_range(large_beside(*state, 4096), 0, 2);
}

/* 1.6 MB of them; in as much no large one would be over if it were never its turn. */
static void turns__of_large_requests_beside_small_ones(void **state)
{
	assert_in_range(large_beside(*state, 16384), 1, 3);
}

/* A flush costs no bytes: neither those that another session waits for, a minute from now, nor
 * whose turn it is keeps it. */
static void turns__what_needs_no_tokens_waits_for_none(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c[2];

	fx->limits.write_bytes_per_s = 1024;
	fx_limits(fx);
	two_sessions(fx, c);
	assert_int_equal(raw_write(&c[1], 0, data, BLOCK, false), ROS2_OK);
	for (int i = 0; i < 8; i++) {
		h = raw_header(&c[0], WIRE_WRITE, 0, FX_BASE, 16384);
		h.flags = WIRE_F_INLINE;
		raw_send(&c[0], &h, data, 16384);
	}
	assert_true(AWAIT(fx_stats(fx, &c[0].session).in_flight == 8));
	ask(&c[1], WIRE_FLUSH, 0, 1);
	take_end(&c[1]);
	assert_int_equal(fx_stats(fx, &c[0].session).write_ops, 0);
	close_both(c);
}

/* His turn is never over. */
static void turns__of_one_session_alone(void **state)
{
	struct fx *fx = *state;
	struct raw c[2];

	two_sessions(fx, c);
	fill(&c[0]);
	ask(&c[0], WIRE_READ, BLOCK, MANY);
	for (int i = 0; i < MANY; i++)
		take_end(&c[0]);
	close_both(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FX_TEST(turns__what_needs_no_tokens_waits_for_none),
		FX_TEST(turns__of_one_session_alone),
		NOTING_TEST(turns__at_a_rate_of_bytes),
		NOTING_TEST(turns__at_a_rate_of_operations),
		NOTING_TEST(turns__at_places_in_an_engine),
		NOTING_TEST(turns__of_small_requests_beside_large_ones),
		NOTING_TEST(turns__of_large_requests_beside_small_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
