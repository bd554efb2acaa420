/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 against an agent that attacks it: whatever it sends, no byte lands outside the buffer of
 * a read in flight, and the session ends with a named error.
 */
#include "tests/client/rig.h"
#include <errno.h>

#define GUARD 0x5a
#define LEN   8192u

struct attack {
	enum evil evil;
	bool write;
	enum ros2_status status;
	int64_t may_land; /* bytes of the buffer the attack may have changed */
};

static void expect_refused(struct rig *r, const struct attack *a)
{
	uint32_t len = a->write ? 100000 : LEN;
	uint8_t *at = r->buf + 65536;
	struct ros2_completion c;

	memset(r->buf, GUARD, r->buf_len);
	WITH_AGENT(r->agent, r->agent->evil = a->evil);
	c = a->write ? rig_write(r, at, len, 0) : rig_read(r, at, len, 0);
	if (c.status != a->status)
		fail_msg("attack %d: %s, expected %s", a->evil, ros2_status_to_str(c.status),
		         ros2_status_to_str(a->status));
	for (size_t i = 0; i < r->buf_len; i++) {
		bool inside = &r->buf[i] >= at && &r->buf[i] < at + a->may_land;

		if (!inside && r->buf[i] != GUARD)
			fail_msg("attack %d: byte %zu was changed", a->evil, i);
	}
}

static void hostile_agent__cannot_write_outside_and_ends_the_session(void **state)
{
	static const struct attack attacks[] = {
		{EVIL_DATA_OUTSIDE_REQUEST, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_OUTSIDE_REGION, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_WRONG_KEY, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_WRONG_GENERATION, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_TWICE, false, ROS2_PROTOCOL, LEN},
		{EVIL_DATA_UNKNOWN_ID, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_FOR_WRITE, true, ROS2_PROTOCOL, 0},
		{EVIL_DATA_LENGTH_LIES, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_HUGE, false, ROS2_PROTOCOL, 0},
		{EVIL_DATA_ADDRESS_WRAP, false, ROS2_PROTOCOL, 0},
		{EVIL_COMPLETE_UNKNOWN, false, ROS2_PROTOCOL, 0},
		{EVIL_COMPLETE_TOO_LONG, false, ROS2_PROTOCOL, LEN},
		{EVIL_COMPLETE_WITHOUT_DATA, false, ROS2_PROTOCOL, 0},
		{EVIL_COMPLETE_BEFORE_PULL, true, ROS2_PROTOCOL, 0},
		{EVIL_COMPLETE_PAYLOAD, false, ROS2_PROTOCOL, 0},
		{EVIL_PULL_FOREIGN, true, ROS2_PROTOCOL, 0},
		{EVIL_PULL_TOO_MUCH, true, ROS2_PROTOCOL, 0},
		{EVIL_PULL_FOR_READ, false, ROS2_PROTOCOL, 0},
		{EVIL_BAD_CRC, false, ROS2_PROTOCOL, 0},
		{EVIL_BAD_MAGIC, false, ROS2_PROTOCOL, 0},
		{EVIL_RESERVED_BITS, false, ROS2_PROTOCOL, 0},
		{EVIL_GARBAGE, false, ROS2_PROTOCOL, 0},
		{EVIL_TENANT_OPCODE, false, ROS2_PROTOCOL, 0},
		{EVIL_NAK_LONG_WORDS, false, ROS2_PROTOCOL, 0},
		{EVIL_NAK_OK, false, ROS2_PROTOCOL, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(attacks); i++) {
		void *fresh = NULL;
		struct rig *r;
		uint8_t byte;

		rig_setup(&fresh);
		r = fresh;
		rig_open(r, NULL);
		expect_refused(r, &attacks[i]);
		/* Later calls fail with the same name. */
		assert_int_equal(ros2_pread(r->file, &byte, 1, 0, &r->err), -EPROTO);
		assert_int_equal(r->err.status, ROS2_PROTOCOL);
		rig_teardown(&fresh);
	}
}

static void hostile_agent__second_completion_ends_the_session(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c[2];
	int n = 0;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->evil = EVIL_COMPLETE_TWICE);
	rig_ok(r, ros2_prep_read(r->file, r->buf, 100, 0, 1, &r->err));
	rig_ok(r, ros2_prep_read(r->file, r->buf, 100, 0, 2, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	while (n < 2)
		n += ros2_wait(r->session, c + n, 1, 2 - (uint32_t)n, 5000, &r->err);
	assert_int_equal(c[0].status, ROS2_IO);
	assert_true(c[1].status == ROS2_PROTOCOL || c[1].status == ROS2_IO);
	assert_int_equal(r->session->state == LINK_DEAD || c[1].status == ROS2_IO, 1);
}

static void hostile_agent__without_the_secret_is_not_believed(void **state)
{
	struct rig *r = *state;

	r->agent->wrong_proof = true;
	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	assert_true(ros2_session_open(r->client, NULL, &r->session, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_UNAUTHENTICATED);
}

static void hostile_agent__absurd_offers_are_refused(void **state)
{
	struct rig *r = *state;

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	r->agent->credits = WIRE_CREDITS_MAX + 1;
	assert_int_equal(ros2_session_open(r->client, NULL, &r->session, &r->err), -EPROTO);
	r->agent->credits = 0;
	assert_int_equal(ros2_session_open(r->client, NULL, &r->session, &r->err), -EPROTO);
	r->agent->credits = 8;
	r->agent->max_io = UINT32_MAX;
	assert_int_equal(ros2_session_open(r->client, NULL, &r->session, &r->err), -EPROTO);
}

/* Whoever lists it asks until there is no more: with the same question that would be for ever. */
static void hostile_agent__does_not_name_the_same_page_of_a_directory_again(void **state)
{
	struct rig *r = *state;
	struct ros2_dirent e[8];
	uint64_t cookie = 0;

	rig_open(r, NULL);
	r->agent->dir_evil = DIR_SAME_PAGE;
	assert_int_equal(ros2_readdir(r->mount, "", &cookie, e, 8, &r->err), 1);
	assert_int_equal(cookie, 1);
	assert_int_equal(ros2_readdir(r->mount, "", &cookie, e, 8, &r->err), -EPROTO);
	assert_int_equal(r->err.status, ROS2_PROTOCOL);
}

static void refusals__of_hello_carry_the_agents_name_and_words(void **state)
{
	struct rig *r = *state;

	r->agent->hello_nak = ROS2_LIMIT;
	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	assert_true(ros2_session_open(r->client, NULL, &r->session, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_LIMIT);
	assert_non_null(strstr(r->err.msg, "no such session"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hostile_agent__cannot_write_outside_and_ends_the_session),
		T(hostile_agent__second_completion_ends_the_session),
		T(hostile_agent__without_the_secret_is_not_believed),
		T(hostile_agent__absurd_offers_are_refused),
		T(hostile_agent__does_not_name_the_same_page_of_a_directory_again),
		T(refusals__of_hello_carry_the_agents_name_and_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
