/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls of the refusals on the data port: each attack is sent twice, against the checks
 * and with ONE of them switched off. The first must be refused by name, the second must work: so it
 * is that check which refuses, and the attack is a real one. Where two refuse it, as with a region
 * that wraps, one of them off changes nothing.
 */
#include "dataplane/test_switches.h"
#include "common/util.h"
#include "dataplane/engine.h"
#include "tests/dataplane/fixture.h"
#include <string.h>

static uint8_t buf[65536];

static int setup(void **state)
{
	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return fx_setup(state);
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return rc;
}

/* A read of 4 KiB of the file to @address under @key: a NAK's status, or OK when bytes came. */
static enum ros2_status push(struct raw *c, uint32_t key, uint64_t address)
{
	struct wire_header h = raw_header(c, WIRE_READ, 0, address, 4096);
	enum ros2_status st = ROS2_INTERNAL;

	h.key = key;
	raw_send(c, &h, NULL, 0);
	while (raw_recv(c, &h, buf, sizeof(buf))) {
		if (h.opcode == WIRE_DATA) {
			assert_int_equal(h.key, key);
			assert_true(h.address == address);
			st = ROS2_OK;
		}
		if (h.opcode == WIRE_NAK || h.opcode == WIRE_COMPLETE)
			return h.status ? (enum ros2_status)h.status : st;
	}
	return ROS2_CLOSED;
}

/* Another tenant's session on the reactor of @a, since a table of leases belongs to a reactor. */
static void other_tenant(struct fx *fx, const struct raw *a, struct raw *b, struct raw *spare)
{
	struct ros2_uid beta = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &beta);
	assert_int_equal(fx_grant(fx, &grant, &beta, UINT64_MAX), 0);
	raw_open(fx, spare); /* takes the other reactor */
	raw_open_as(fx, b, &beta, &grant, UINT64_MAX);
	assert_int_equal(a->port, b->port);
	raw_connect(b);
	raw_file(b, "file");
}

static void control__key_owner(void **state)
{
	struct raw a, b, spare;

	raw_ready(*state, &a);
	assert_int_equal(raw_write(&a, 0, buf, 4096, true), ROS2_OK);
	other_tenant(*state, &a, &b, &spare);
	assert_int_equal(push(&b, a.key, FX_BASE), ROS2_BAD_KEY);
	dp_test_switches.no_key_owner = true;
	assert_int_equal(push(&b, a.key, FX_BASE), ROS2_OK);
	dp_test_switches.no_key_owner = false;
	assert_int_equal(push(&a, a.key, FX_BASE), ROS2_OK);
	raw_close(&a);
	raw_close(&b);
	raw_close(&spare);
}

static void control__key_generation(void **state)
{
	struct raw c;
	uint32_t beside;

	raw_ready(*state, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	/* As an older key of the same index: equal but for its random bits. */
	beside = c.key ^ 1u << 31;
	assert_int_equal(push(&c, beside, FX_BASE), ROS2_BAD_KEY);
	dp_test_switches.no_key_generation = true;
	assert_int_equal(push(&c, beside, FX_BASE), ROS2_OK);
	raw_close(&c);
}

static void control__range(void **state)
{
	struct raw c;

	raw_ready(*state, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	assert_int_equal(push(&c, c.key, FX_BASE - 1), ROS2_OUT_OF_RANGE);
	assert_int_equal(push(&c, c.key, UINT64_MAX - 10), ROS2_OUT_OF_RANGE);
	dp_test_switches.no_range_check = true;
	assert_int_equal(push(&c, c.key, FX_BASE - 1), ROS2_OK);
	assert_int_equal(push(&c, c.key, UINT64_MAX - 10), ROS2_OK);
	raw_close(&c);
}

static void control__access(void **state)
{
	struct raw c;
	uint32_t key;

	raw_ready(*state, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	key = raw_register(&c, FX_BASE, 65536, 1); /* the agent may only read it */
	assert_int_equal(push(&c, key, FX_BASE), ROS2_ACCESS);
	dp_test_switches.no_access_check = true;
	assert_int_equal(push(&c, key, FX_BASE), ROS2_OK);
	raw_close(&c);
}

static void control__handle(void **state)
{
	struct fx *fx = *state;
	struct raw c;
	uint64_t old;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	old = c.handle;
	fx_do(fx, FX_CLOSE, &(struct fx_args){.session = c.session, .a = old});
	raw_file(&c, "second");
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	c.handle = old;
	assert_int_equal(push(&c, c.key, FX_BASE), ROS2_BAD_HANDLE);
	dp_test_switches.no_handle_check = true;
	assert_int_equal(push(&c, c.key, FX_BASE), ROS2_OK);
	raw_close(&c);
}

/* ---- numbers that no file and no memory has ---- */

static void control__length_of_a_request(void **state)
{
	struct raw c;

	raw_features = WIRE_FEATURE_CLEAR;
	raw_ready(*state, &c);
	assert_int_equal(raw_clear(&c, WIRE_ZERO, 0, WIRE_IO_MAX + 1), ROS2_TOO_LARGE);
	dp_test_switches.no_length_check = true;
	assert_int_equal(raw_clear(&c, WIRE_ZERO, 0, WIRE_IO_MAX + 1), ROS2_OK);
	raw_close(&c);
	raw_features = 0;
}

static void control__offset_of_a_request(void **state)
{
	static const uint64_t beyond[] = {INT64_MAX, 1ull << 63, UINT64_MAX - 10};
	struct raw c;

	raw_ready(*state, &c);
	for (int off = 0; off < 2; off++) {
		enum ros2_status want = off ? ROS2_OK : ROS2_OUT_OF_RANGE;

		dp_test_switches.no_offset_check = off;
		for (size_t i = 0; i < ARRAY_SIZE(beyond); i++)
			assert_int_equal(raw_read(&c, beyond[i], buf, 4096, NULL), want);
	}
	raw_close(&c);
}

/* The last page of memory and one behind it, or no memory at all. */
static struct dp_result register_beyond(struct raw *c, bool none)
{
	return fx_do(c->fx, FX_REGISTER,
	             &(struct fx_args){.session = c->session,
	                               .a = UINT64_MAX - 4095,
	                               .b = none ? 0 : 8192,
	                               .flags = 3});
}

/* Who is asked for a region and the table of leases refuse it each by itself. */
static void control__region_that_wraps_or_is_empty(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct raw c;

	fx->limits.region_size_min = 0;
	fx_limits(fx);
	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, 4096, true), ROS2_OK);
	for (int none = 0; none < 2; none++) {
		dp_test_switches.no_region_shape = dp_test_switches.no_lease_shape = false;
		assert_int_equal(register_beyond(&c, none).status, ROS2_INVALID);
		dp_test_switches.no_region_shape = true;
		assert_int_equal(register_beyond(&c, none).status, ROS2_INVALID);
		dp_test_switches.no_lease_shape = true;
		res = register_beyond(&c, none);
		assert_int_equal(res.status, ROS2_OK);
		assert_int_equal(push(&c, res.region.key, UINT64_MAX - 4095),
		                 none ? ROS2_OUT_OF_RANGE : ROS2_OK);
	}
	raw_close(&c);
}

static uint64_t cut_to; /* what an engine that minds no size was asked for */

static int cut(struct engine_file *f, uint64_t size, struct ros2_err *err)
{
	(void)f;
	(void)err;
	cut_to = size;
	return 0;
}

static int setup_cut(void **state)
{
	static struct engine_ops ops;

	ops = engine_mem_ops;
	ops.type = "cut";
	ops.truncate = cut;
	cut_to = 0;
	dp_test_switches = (struct dp_test_switches){.extra_engine = &ops};
	fx_engine_type = "cut";
	return fx_setup(state);
}

static int teardown_cut(void **state)
{
	fx_engine_type = "mem";
	return teardown(state);
}

static void control__size_of_a_file(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.b = 1ull << 63};
	struct raw c;

	raw_ready(fx, &c);
	a.session = c.session;
	a.a = c.handle;
	assert_int_equal(fx_do(fx, FX_TRUNCATE, &a).status, ROS2_OUT_OF_RANGE);
	assert_true(cut_to == 0);
	dp_test_switches.no_size_check = true;
	assert_int_equal(fx_do(fx, FX_TRUNCATE, &a).status, ROS2_OK);
	assert_true(cut_to == a.b);
	raw_close(&c);
}

/* ---- DATA ---- */

/* Two writes wait for their bytes; those of the second come first. */
static void answer_the_second(struct raw *c)
{
	struct wire_header h, pulls[2];

	memset(buf, 'B', sizeof(buf));
	for (int i = 0; i < 2; i++) {
		h = raw_header(c, WIRE_WRITE, (uint64_t)i * 65536, FX_BASE + (uint64_t)i * 65536,
		               65536);
		raw_send(c, &h, NULL, 0);
	}
	for (int i = 0; i < 2; i++) {
		assert_true(raw_recv(c, &pulls[i], NULL, 0));
		assert_int_equal(pulls[i].opcode, WIRE_PULL);
	}
	pulls[1].opcode = WIRE_DATA;
	raw_send(c, &pulls[1], buf, pulls[1].length);
}

static void control__data_of_another_pull(void **state)
{
	struct raw c, d;
	struct wire_header h;

	raw_ready(*state, &c);
	answer_the_second(&c);
	raw_expect_end(&c);
	raw_close(&c);
	dp_test_switches.no_pull_check = true;
	raw_ready(*state, &d);
	answer_the_second(&d);
	assert_true(raw_recv(&d, &h, buf, sizeof(buf)));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	/* The first has them. */
	memset(buf, 0, sizeof(buf));
	assert_int_equal(raw_read(&d, 0, buf, 4096, NULL), ROS2_OK);
	assert_int_equal(buf[0], 'B');
	raw_close(&d);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
/* Writes whose payload never comes: how many are refused for their number. */
static uint32_t refused_writes(struct raw *c, uint32_t n)
{
	struct wire_header h;
	uint32_t naks = 0;

	for (uint32_t i = 0; i < n; i++) {
		h = raw_header(c, WIRE_WRITE, 0, FX_BASE, 32768);
		raw_send(c, &h, NULL, 0);
	}
	h = raw_header(c, WIRE_PING, 0, 0, 0);
	raw_send(c, &h, NULL, 0);
	do {
		assert_true(raw_recv(c, &h, buf, sizeof(buf)));
		if (h.opcode != WIRE_NAK)
			continue;
		assert_int_equal(h.status, ROS2_LIMIT);
		buf[h.payload_len] = '\0';
		assert_string_equal(buf, "more than 8 requests in flight (fixed)");
		naks++;
	} while (h.opcode != WIRE_PONG);
	return naks;
}

/* There is no memory for more than DP_CREDITS, so the bound is made smaller here: what it refuses
 * is in flight where it is not reached. */
static void credits__bound_what_is_in_flight(void **state)
{
	struct raw c;

	dp_test_switches.few_credits = true;
	raw_ready(*state, &c);
	assert_int_equal(refused_writes(&c, 3 * DP_CREDITS_FEW), 2 * DP_CREDITS_FEW);
	raw_close(&c);
	dp_test_switches.few_credits = false;
	raw_ready(*state, &c);
	assert_int_equal(refused_writes(&c, 3 * DP_CREDITS_FEW), 0);
	raw_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control__key_owner),
		T(control__key_generation),
		T(control__range),
		T(control__access),
		T(control__handle),
		T(control__length_of_a_request),
		T(control__offset_of_a_request),
		T(control__region_that_wraps_or_is_empty),
		cmocka_unit_test_setup_teardown(control__size_of_a_file, setup_cut, teardown_cut),
		T(control__data_of_another_pull),
		T(credits__bound_what_is_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
