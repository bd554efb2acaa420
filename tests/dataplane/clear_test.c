/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZERO and DISCARD over the data port: what they clear, who may, what they cost, and how they end
 * with a right. Each refusal has its control: with that one check switched off the attack works.
 * Linked with the library that has the switches.
 */
#include "tests/dataplane/fixture.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/slow_fixture.h"
#include <errno.h>

#define MIB        (1u << 20)
#define FILE_BYTES (2 * MIB)
#define CLEARING   16u /* MiB of a tenant inside an engine */

static uint8_t out[MIB], in[MIB];
static const enum wire_opcode ops[] = {WIRE_ZERO, WIRE_DISCARD};

static bool cannot; /* the storage */
static void (*real_done)(struct engine_io *io, int64_t res);

static void cannot_done(struct engine_io *io, int64_t res)
{
	real_done(io, -EOPNOTSUPP);
}

/* The most bytes that a turn gave an engine to clear. */
static _Thread_local uint64_t turn, turn_of_bytes, turn_bytes;
static _Atomic uint64_t most_bytes;

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	turn = r->turn;
	return __real_admit_run(r);
}

static void count_bytes(uint32_t len)
{
	turn_bytes = turn_of_bytes == turn ? turn_bytes + len : len;
	turn_of_bytes = turn;
	if (turn_bytes > most_bytes)
		most_bytes = turn_bytes;
}

static int (*slow_submit)(struct engine_reactor *r, struct engine_io *io);

static int submit(struct engine_reactor *r, struct engine_io *io)
{
	if (engine_op_clears(io->op))
		count_bytes(io->len);
	if (cannot && engine_op_clears(io->op)) {
		real_done = io->done;
		io->done = cannot_done;
		io->len = 0;
	}
	return slow_submit(r, io);
}

static bool opens_all; /* the engine itself minds no access */

static int open_all(struct engine_ns *ns, const char *path, uint32_t flags, uint32_t mode,
                    struct engine_file **ret, struct engine_attr *attr, struct ros2_err *err)
{
	return engine_mem_ops.open(ns, path, flags | (opens_all ? ENGINE_WRITE : 0), mode, ret,
	                           attr, err);
}

static int setup(void **state)
{
	slow_prepare();
	slow_submit = slow_engine_ops.submit;
	slow_engine_ops.submit = submit;
	slow_engine_ops.open = open_all;
	cannot = opens_all = false;
	raw_features = WIRE_FEATURE_CLEAR;
	return fx_setup(state);
}

static int file_setup(void **state)
{
	raw_features = WIRE_FEATURE_CLEAR;
	return fx_file_setup(state);
}

/* No two blocks of 4 KiB alike, and no byte zero. */
static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(1 + (at * 7 + (at >> 12) * 13) % 251);
}

/* FILE_BYTES of the pattern in "file". */
static void filled(struct fx *fx, struct raw *c)
{
	raw_ready(fx, c);
	for (uint64_t at = 0; at < FILE_BYTES; at += MIB) {
		for (uint32_t i = 0; i < MIB; i++)
			out[i] = byte_at(at + i);
		assert_int_equal(raw_write(c, at, out, MIB, false), ROS2_OK);
	}
}

/* All of it is as it was written, but [from, to): there it is cleared. */
static void expect_file(struct raw *c, enum wire_opcode op, uint64_t from, uint64_t to)
{
	for (uint64_t at = 0; at < FILE_BYTES; at += MIB) {
		uint32_t done;

		assert_int_equal(raw_read(c, at, in, MIB, &done), ROS2_OK);
		assert_int_equal(done, MIB);
		for (uint32_t i = 0; i < MIB; i++) {
			uint8_t was = byte_at(at + i);
			bool cleared = at + i >= from && at + i < to;

			if (cleared ? in[i] == 0 || (op == WIRE_DISCARD && in[i] == was)
			            : in[i] == was)
				continue;
			fail_msg("byte %llu: %u", (unsigned long long)(at + i), in[i]);
		}
	}
}

static void expect_untouched(struct raw *c)
{
	expect_file(c, WIRE_ZERO, 0, 0);
}

static uint64_t size_of(struct raw *c)
{
	struct fx_args a = {.session = c->session, .a = c->handle};
	struct dp_result res = fx_do(c->fx, FX_FSTAT, &a);

	assert_int_equal(res.status, ROS2_OK);
	return res.attr.size;
}

/* ---- what works ---- */

static void clear__reaches_exactly_the_bytes_that_are_named(void **state)
{
	static const struct {
		uint32_t at, len;
	} ranges[] = {{0, 1}, {4095, 2}, {4096, 65536}, {1000001, 70001}, {MIB, MIB}, {512, MIB}};
	struct raw c;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(ranges); i++) {
		uint32_t at = ranges[i / 2].at, len = ranges[i / 2].len;

		filled(*state, &c);
		assert_int_equal(raw_clear(&c, ops[i % 2], at, len), ROS2_OK);
		expect_file(&c, ops[i % 2], at, at + len);
		assert_int_equal(size_of(&c), FILE_BYTES);
		/* and they take new bytes */
		for (uint32_t k = 0; k < len; k++)
			out[k] = byte_at(at + k);
		assert_int_equal(raw_write(&c, at, out, len, false), ROS2_OK);
		expect_untouched(&c);
		raw_close(&c);
	}
	assert_int_equal(((struct fx *)*state)->violations, 0);
}

static void clear__makes_no_file_longer_and_needs_no_region(void **state)
{
	struct raw c, bare;

	filled(*state, &c);
	raw_open(*state, &bare);
	raw_connect(&bare);
	raw_file(&bare, "file");
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		assert_int_equal(raw_clear(&bare, ops[i], FILE_BYTES, 4096), ROS2_OK);
		assert_int_equal(raw_clear(&bare, ops[i], FILE_BYTES - 100, MIB), ROS2_OK);
		assert_int_equal(raw_clear(&bare, ops[i], 1ull << 39, 4096), ROS2_OK);
		assert_int_equal(raw_clear(&bare, ops[i], 0, 0), ROS2_OK);
		assert_int_equal(size_of(&c), FILE_BYTES);
	}
	expect_file(&c, WIRE_ZERO, FILE_BYTES - 100, FILE_BYTES);
	raw_close(&c);
	raw_close(&bare);
}

static void clear__is_counted_apart_from_writes(void **state)
{
	struct fx *fx = *state;
	struct dp_session_stats st;
	struct dp_event ev;
	struct raw c;

	filled(fx, &c);
	assert_int_equal(raw_clear(&c, WIRE_ZERO, 0, 8192), ROS2_OK);
	assert_int_equal(raw_clear(&c, WIRE_DISCARD, 0, 4096), ROS2_OK);
	st = fx_stats(fx, &c.session);
	assert_int_equal(st.cleared_bytes, 12288);
	assert_int_equal(st.clear_ops, 2);
	assert_int_equal(st.write_bytes, FILE_BYTES);
	assert_int_equal(st.write_ops, 2);
	assert_int_equal(st.read_ops, 0);
	raw_close(&c);
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_int_equal(ev.stats.cleared_bytes, 12288);
	fx_no_slots(fx);
}

static void clear__that_the_storage_cannot_do_is_named_and_no_violation(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	filled(fx, &c);
	cannot = true;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		assert_int_equal(raw_clear(&c, ops[i], 0, 4096), ROS2_UNSUPPORTED);
	expect_untouched(&c);
	assert_int_equal(fx_stats(fx, &c.session).violations, 0);
	assert_int_equal(fx_stats(fx, &c.session).clear_ops, 0);
	raw_close(&c);
}

/* ---- peers of other releases ---- */

static void clear__of_a_peer_that_did_not_ask_for_it_is_refused_by_name(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c;

	raw_features = 0; /* raw_connect sees that WELCOME is as it was */
	filled(fx, &c);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		h = raw_clear_header(&c, ops[i], 0, 4096);
		raw_expect_nak(&c, &h, ROS2_UNSUPPORTED);
	}
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_UNSUPPORTED);
	expect_untouched(&c);
	raw_close(&c);
	/* The same by one that asked. */
	raw_features = WIRE_FEATURE_CLEAR;
	filled(fx, &c);
	assert_int_equal(raw_clear(&c, WIRE_ZERO, 0, 4096), ROS2_OK);
	raw_close(&c);
}

static void hello__with_features_that_nobody_knows_gets_those_that_are_known(void **state)
{
	struct raw c;

	raw_features = UINT32_MAX; /* raw_connect sees what WELCOME answers */
	raw_open(*state, &c);
	raw_connect(&c);
	raw_close(&c);
	raw_features = ~(uint32_t)WIRE_FEATURE_CLEAR;
	raw_open(*state, &c);
	raw_connect(&c);
	raw_close(&c);
}

static void clear__that_names_memory_ends_the_connection(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c, d;

	filled(fx, &d);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		raw_ready(fx, &c);
		h = raw_clear_header(&c, ops[i], 0, 4096);
		h.key = c.key;
		raw_send(&c, &h, NULL, 0);
		raw_expect_end(&c);
		raw_close(&c);
	}
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	expect_untouched(&d);
	raw_close(&d);
}

/* ---- what must not work ---- */

static void clear__through_anothers_or_a_closed_handle_is_refused(void **state)
{
	struct ros2_uid beta = ros2_uid_new(), grant = ros2_uid_new();
	struct fx *fx = *state;
	struct wire_header h;
	struct fx_args args;
	struct raw a, b;

	fx_tenant(fx, &beta);
	assert_int_equal(fx_grant(fx, &grant, &beta, UINT64_MAX), 0);
	filled(fx, &a);
	raw_open_as(fx, &b, &beta, &grant, UINT64_MAX);
	raw_connect(&b);
	raw_file(&b, "b");
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		for (uint32_t len = 0; len <= 4096; len += 4096) {
			h = raw_clear_header(&b, ops[i], 0, len);
			h.handle = a.handle;
			raw_expect_nak(&b, &h, ROS2_BAD_HANDLE);
			h = raw_clear_header(&b, ops[i], 0, len);
			h.handle = b.handle ^ 4096;
			raw_expect_nak(&b, &h, ROS2_BAD_HANDLE);
		}
	args = (struct fx_args){.session = b.session, .a = b.handle};
	assert_int_equal(fx_do(fx, FX_CLOSE, &args).status, ROS2_OK);
	h = raw_clear_header(&b, WIRE_ZERO, 0, 4096);
	raw_expect_nak(&b, &h, ROS2_BAD_HANDLE);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_HANDLE);
	expect_untouched(&a);
	raw_close(&a);
	raw_close(&b);
}

static void control__without_the_handle_check_a_closed_handle_clears_the_next_file(void **state)
{
	struct fx_args a;
	struct raw c;
	uint64_t old;

	raw_ready(*state, &c);
	old = c.handle;
	a = (struct fx_args){.session = c.session, .a = old};
	assert_int_equal(fx_do(c.fx, FX_CLOSE, &a).status, ROS2_OK);
	raw_file(&c, "second");
	memset(out, 9, 4096);
	assert_int_equal(raw_write(&c, 0, out, 4096, true), ROS2_OK);
	a.a = c.handle;
	dp_test_switches.no_handle_check = true;
	c.handle = old;
	assert_int_equal(raw_clear(&c, WIRE_ZERO, 0, 4096), ROS2_OK);
	c.handle = a.a;
	assert_int_equal(raw_read(&c, 0, in, 4096, NULL), ROS2_OK);
	assert_true(in[0] == 0 && !memcmp(in, in + 1, 4095));
	raw_close(&c);
}

/* A second session of the tenant, that may only read. */
static void reader_of(struct fx *fx, struct raw *r)
{
	struct fx_args a;
	struct dp_result res;

	raw_open(fx, r);
	raw_connect(r);
	a = (struct fx_args){.session = r->session, .to = "ram", .path = "ns", .flags = 1};
	res = fx_do(fx, FX_MOUNT, &a);
	assert_int_equal(res.status, ROS2_OK);
	a.mount = res.mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE;
	assert_int_equal(fx_do(fx, FX_OPEN, &a).status, ROS2_DENIED);
	a.flags = ENGINE_READ;
	res = fx_do(fx, FX_OPEN, &a);
	assert_int_equal(res.status, ROS2_OK);
	r->handle = res.open.handle;
}

static void clear__by_who_may_only_read_is_refused(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct raw c, r;

	filled(fx, &c);
	opens_all = true; /* so that it is not the engine that refuses */
	reader_of(fx, &r);
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		for (uint32_t len = 0; len <= 4096; len += 4096) {
			h = raw_clear_header(&r, ops[i], 0, len);
			raw_expect_nak(&r, &h, ROS2_ACCESS);
		}
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_ACCESS);
	expect_untouched(&c);
	/* Control: that check alone. */
	dp_test_switches.no_open_check = true;
	assert_int_equal(raw_clear(&r, WIRE_ZERO, 0, 4096), ROS2_OK);
	expect_file(&c, WIRE_ZERO, 0, 4096);
	raw_close(&c);
	raw_close(&r);
}

static void clear__beyond_what_a_file_or_a_request_may_have_is_refused(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t len;
		enum ros2_status status;
	} bad[] = {{INT64_MAX, 1, ROS2_OUT_OF_RANGE},
	           {1ull << 63, 0, ROS2_OUT_OF_RANGE},
	           {1ull << 63, 4096, ROS2_OUT_OF_RANGE},
	           {(1ull << 63) - 4095, 4096, ROS2_OUT_OF_RANGE},
	           {UINT64_MAX - 4095, 4096, ROS2_OUT_OF_RANGE},
	           {UINT64_MAX, 1, ROS2_OUT_OF_RANGE},
	           {UINT64_MAX, MIB, ROS2_OUT_OF_RANGE},
	           {0, MIB + 1, ROS2_TOO_LARGE},
	           {0, ENGINE_ZERO_MAX, ROS2_TOO_LARGE},
	           {0, UINT32_MAX, ROS2_TOO_LARGE}};
	struct wire_header h;
	struct raw c;

	filled(*state, &c);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(bad); i++) {
		h = raw_clear_header(&c, ops[i % 2], bad[i / 2].offset, bad[i / 2].len);
		raw_expect_nak(&c, &h, bad[i / 2].status);
	}
	expect_untouched(&c);
	assert_int_equal(size_of(&c), FILE_BYTES);
	raw_close(&c);
}

/* ---- shares and rates ---- */

static void send_clears(struct raw *c, uint32_t n, uint32_t len)
{
	for (uint32_t i = 0; i < n; i++) {
		struct wire_header h = raw_clear_header(c, ops[i % 2], 0, len);

		raw_send(c, &h, NULL, 0);
	}
}

/* The header after this is taken when what was sent before it is. */
static void ping(struct raw *c)
{
	struct wire_header h = {.opcode = WIRE_PING, .request_id = 99999};

	raw_send(c, &h, NULL, 0);
	assert_true(raw_recv(c, &h, in, sizeof(in)));
	assert_int_equal(h.opcode, WIRE_PONG);
}

static void clear__fills_no_engine_and_holds_up_neither_reads_nor_others(void **state)
{
	struct ros2_uid beta = ros2_uid_new(), grant = ros2_uid_new();
	struct fx *fx = *state;
	struct wire_header h;
	struct raw a, b, spare;

	fx_tenant(fx, &beta);
	assert_int_equal(fx_grant(fx, &grant, &beta, UINT64_MAX), 0);
	filled(fx, &a);
	raw_open(fx, &spare); /* takes the other reactor */
	raw_open_as(fx, &b, &beta, &grant, UINT64_MAX);
	assert_int_equal(a.port, b.port);
	raw_connect(&b);
	raw_file(&b, "b");
	slow_engine_shut(true);
	send_clears(&a, 40, MIB);
	slow_engine_wait_held(CLEARING);
	ping(&a);
	h = raw_header(&a, WIRE_READ, 0, FX_BASE, 4096);
	raw_send(&a, &h, NULL, 0);
	slow_engine_wait_held(CLEARING + 1);
	send_clears(&b, 3, MIB);
	slow_engine_wait_held(CLEARING + 4);
	/* All of it comes to its end. */
	slow_engine_shut(false);
	for (uint32_t completes = 0; completes < 41;) {
		assert_true(raw_recv(&a, &h, in, sizeof(in)));
		if (h.opcode == WIRE_DATA)
			continue;
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		completes++;
	}
	assert_int_equal(fx_stats(fx, &a.session).cleared_bytes, 40ull * MIB);
	raw_close(&a);
	raw_close(&b);
	raw_close(&spare);
}

/* How long @n of @len take, one after the other. */
static uint64_t time_of(struct raw *c, enum wire_opcode op, uint32_t n, uint32_t len)
{
	uint64_t began = clock_boottime_ns();

	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(raw_clear(c, op, 0, len), ROS2_OK);
	return clock_boottime_ns() - began;
}

/* At least so long, whatever the machine does: a slow one takes longer. */
static void rate__of_written_bytes_is_paid_by_what_clears(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		fx->limits.write_bytes_per_s = 0;
		fx_limits(fx);
		raw_ready(fx, &c);
		/* Control: without the rate nothing waits. */
		time_of(&c, ops[i], 8, MIB);
		assert_int_equal(fx_stats(fx, &c.session).shaped_ns, 0);
		fx->limits.write_bytes_per_s = 16 * MIB;
		fx_limits(fx);
		/* The first is a debt, each of the others waits until it is paid. */
		assert_true(time_of(&c, ops[i], 8, MIB) >= 7 * NS_PER_S / 16 - 100 * NS_PER_MS);
		assert_true(fx_stats(fx, &c.session).shaped_ns > 0);
		raw_close(&c);
	}
}

static void rate__of_writes_is_paid_by_what_clears(void **state)
{
	struct fx *fx = *state;
	struct raw c;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		fx->limits.write_iops = 0;
		fx_limits(fx);
		raw_ready(fx, &c);
		time_of(&c, ops[i], 8, 0);
		assert_int_equal(fx_stats(fx, &c.session).shaped_ns, 0);
		fx->limits.write_iops = 20;
		fx_limits(fx);
		assert_true(time_of(&c, ops[i], 8, 0) >= 7 * NS_PER_S / 20 - 100 * NS_PER_MS);
		assert_true(fx_stats(fx, &c.session).shaped_ns > 0);
		raw_close(&c);
	}
}

/* ---- the end of a right ---- */

static void victim_of_another_grant(struct fx *fx, struct raw *v)
{
	struct ros2_uid other = ros2_uid_new();

	assert_int_equal(fx_grant(fx, &other, &fx->tenant, UINT64_MAX), 0);
	raw_open_as(fx, v, &fx->tenant, &other, UINT64_MAX);
	raw_connect(v);
	raw_file(v, "file");
	v->key = raw_register(v, FX_BASE, MIB, 3);
}

static void revoke__ends_what_waits_and_counts_what_the_engine_clears(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct wire_header h;
	struct raw c, v;

	filled(fx, &c);
	victim_of_another_grant(fx, &v);
	slow_engine_shut(true);
	/* Of the first MiB, and then of the second: those wait. */
	send_clears(&c, CLEARING, MIB);
	slow_engine_wait_held(CLEARING);
	h = raw_clear_header(&c, WIRE_ZERO, MIB, MIB);
	raw_send(&c, &h, NULL, 0);
	ping(&c);
	fx_revoke(fx, DP_SCOPE_GRANT, &fx->grant, &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.draining, CLEARING);
	/* After the receipt nothing is taken any more. */
	h = raw_clear_header(&c, WIRE_ZERO, MIB, MIB);
	raw_send(&c, &h, NULL, 0);
	raw_expect_end(&c);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
	assert_int_equal(r.last.revoke.draining, 0);
	expect_file(&v, WIRE_DISCARD, 0, MIB);
	raw_close(&c);
	raw_close(&v);
}

/* The engine is as quick as RAM is, so that a turn could give it more again and again: the most
 * that one did. */
static uint64_t clear_a_hundred(struct fx *fx)
{
	static struct wire_header all[100];
	struct wire_header h;
	struct raw c;

	filled(fx, &c);
	most_bytes = 0;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		all[i] = raw_clear_header(&c, WIRE_ZERO, 0, MIB);
		wire_seal(&all[i]);
	}
	raw_send_bytes(&c, all, sizeof(all));
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_true(raw_recv(&c, &h, in, sizeof(in)));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
	raw_close(&c);
	return most_bytes;
}

static void turn__clears_a_bounded_number_of_bytes_of_a_tenant(void **state)
{
	assert_in_range(clear_a_hundred(*state), MIB, 2 * MIB - 1);
}

static void control__without_bounds_a_turn_clears_more(void **state)
{
	dp_test_switches.no_clear_bounds = true;
	assert_true(clear_a_hundred(*state) >= 2 * MIB);
}

/* The bound, of flushes, too, is looked at in hostile_test.c. */
static void control__without_bounds_all_clears_are_in_the_engine(void **state)
{
	struct wire_header h;
	struct raw c;

	dp_test_switches.no_clear_bounds = true;
	filled(*state, &c);
	slow_engine_shut(true);
	send_clears(&c, 4 * REACTOR_SLOTLESS_MAX, 4096);
	slow_engine_wait_held(4 * REACTOR_SLOTLESS_MAX);
	slow_engine_shut(false);
	for (uint32_t i = 0; i < 4 * REACTOR_SLOTLESS_MAX; i++)
		assert_true(raw_recv(&c, &h, in, sizeof(in)));
	raw_close(&c);
}

/* Control of the one above: not revoked, that which waited is carried out. */
static void control__what_waits_for_its_share_is_carried_out_when_nothing_ends(void **state)
{
	struct wire_header h;
	struct raw c;

	filled(*state, &c);
	slow_engine_shut(true);
	send_clears(&c, CLEARING, MIB);
	slow_engine_wait_held(CLEARING);
	h = raw_clear_header(&c, WIRE_ZERO, MIB, MIB);
	raw_send(&c, &h, NULL, 0);
	ping(&c);
	slow_engine_shut(false);
	for (uint32_t i = 0; i <= CLEARING; i++) {
		assert_true(raw_recv(&c, &h, in, sizeof(in)));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
	assert_int_equal(raw_read(&c, MIB, in, MIB, NULL), ROS2_OK);
	assert_true(in[0] == 0 && !memcmp(in, in + 1, MIB - 1));
	raw_close(&c);
}

/* A clear waits for its tokens when its grant ends. Returns whether it was carried out. */
static bool cleared_after_expiry(struct fx *fx)
{
	struct wire_header h, got = {0};
	struct raw c, v;
	bool done;

	filled(fx, &c);
	victim_of_another_grant(fx, &v);
	fx->limits.write_bytes_per_s = MIB;
	fx_limits(fx);
	assert_int_equal(raw_clear(&c, WIRE_ZERO, FILE_BYTES, MIB), ROS2_OK);
	assert_int_equal(
		fx_grant(fx, &fx->grant, &fx->tenant, clock_boottime_ns() + 200 * NS_PER_MS), 0);
	h = raw_clear_header(&c, WIRE_ZERO, 0, MIB);
	raw_send(&c, &h, NULL, 0);
	done = raw_recv(&c, &got, in, sizeof(in)) && got.opcode == WIRE_COMPLETE &&
	       got.status == ROS2_OK;
	assert_int_equal(raw_read(&v, 0, in, MIB, NULL), ROS2_OK);
	assert_int_equal(in[0] == 0, done);
	raw_close(&c);
	raw_close(&v);
	return done;
}

static void clear__that_waits_until_its_grant_has_ended_is_not_carried_out(void **state)
{
	assert_false(cleared_after_expiry(*state));
	fx_event(*state, DP_EVENT_SESSION_ENDED, ROS2_GRANT_EXPIRED);
}

static void control__without_the_deadline_recheck_it_is_carried_out(void **state)
{
	dp_test_switches.no_deadline_recheck = true;
	assert_true(cleared_after_expiry(*state));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, slow_teardown)
#define F(f) FX_FILE_TEST(f, file_setup)

int main(void)
{
	const struct CMUnitTest mem[] = {
		T(clear__reaches_exactly_the_bytes_that_are_named),
		T(clear__makes_no_file_longer_and_needs_no_region),
		T(clear__is_counted_apart_from_writes),
		T(clear__that_the_storage_cannot_do_is_named_and_no_violation),
		T(clear__of_a_peer_that_did_not_ask_for_it_is_refused_by_name),
		T(hello__with_features_that_nobody_knows_gets_those_that_are_known),
		T(clear__that_names_memory_ends_the_connection),
		T(clear__through_anothers_or_a_closed_handle_is_refused),
		T(control__without_the_handle_check_a_closed_handle_clears_the_next_file),
		T(clear__by_who_may_only_read_is_refused),
		T(clear__beyond_what_a_file_or_a_request_may_have_is_refused),
		T(clear__fills_no_engine_and_holds_up_neither_reads_nor_others),
		T(rate__of_written_bytes_is_paid_by_what_clears),
		T(rate__of_writes_is_paid_by_what_clears),
		T(revoke__ends_what_waits_and_counts_what_the_engine_clears),
		T(turn__clears_a_bounded_number_of_bytes_of_a_tenant),
		T(control__without_bounds_a_turn_clears_more),
		T(control__without_bounds_all_clears_are_in_the_engine),
		T(control__what_waits_for_its_share_is_carried_out_when_nothing_ends),
		T(clear__that_waits_until_its_grant_has_ended_is_not_carried_out),
		T(control__without_the_deadline_recheck_it_is_carried_out),
	};
	const struct CMUnitTest file[] = {
		F(clear__reaches_exactly_the_bytes_that_are_named),
		F(clear__makes_no_file_longer_and_needs_no_region),
		F(clear__is_counted_apart_from_writes),
		F(clear__beyond_what_a_file_or_a_request_may_have_is_refused),
	};
	int failed = cmocka_run_group_tests_name("mem engine", mem, NULL, NULL);

	return failed + cmocka_run_group_tests_name("file engine", file, NULL, NULL);
}
