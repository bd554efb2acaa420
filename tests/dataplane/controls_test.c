/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls of the refusals on the data port: each attack is sent twice, against the checks
 * and with ONE of them switched off. The first must be refused by name, the second must work: so it
 * is that check which refuses, and the attack is a real one.
 */
#include "dataplane/test_switches.h"
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control__key_owner), T(control__key_generation), T(control__range),
		T(control__access),    T(control__handle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
