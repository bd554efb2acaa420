/* SPDX-License-Identifier: Apache-2.0 */
/* libros2's zero and discard: with an agent that behaves, one of an older release, one that lies
 * and one that is lost. */
#include "tests/client/rig.h"
#include <errno.h>

#define MIB (1u << 20)

static struct ros2_completion one(struct rig *r, bool zero, uint32_t len, uint64_t offset)
{
	struct ros2_completion c = {0};

	rig_ok(r, zero ? ros2_prep_zero(r->file, len, offset, 7, &r->err)
	               : ros2_prep_discard(r->file, len, offset, 7, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	assert_int_equal(ros2_wait(r->session, &c, 1, 1, 20000, &r->err), 1);
	assert_int_equal(c.tag, 7);
	return c;
}

static void expect_cleared(const uint8_t *file, size_t from, size_t to)
{
	for (size_t i = 0; i < MIB; i++)
		if (file[i] != (i >= from && i < to ? 0 : 0x77))
			fail_msg("byte %zu is %02x", i, file[i]);
}

static void ring__clears_what_it_is_told_without_a_region(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", MIB);

	memset(file, 0x77, MIB);
	rig_open(r, NULL);
	assert_int_equal(one(r, true, 1, 9999).result, 1);
	expect_cleared(file, 9999, 10000);
	file[9999] = 0x77;
	assert_int_equal(one(r, true, 262144, 4097).result, 262144);
	expect_cleared(file, 4097, 4097 + 262144);
	memset(file, 0x77, MIB);
	assert_int_equal(one(r, false, 8192, 100).result, 8192);
	expect_cleared(file, 100, 8292);
	assert_int_equal(r->agent->n_clears, 3);
	assert_false(r->agent->saw_violation);
}

static void plain__clears_any_length_in_pieces(void **state)
{
	struct rig *r = *state;
	uint8_t *file = fake_agent_file(r->agent, "f", MIB);

	memset(file, 0x77, MIB);
	rig_open(r, NULL);
	rig_ok(r, ros2_zero(r->file, 0, 5, &r->err));
	assert_int_equal(r->agent->n_clears, 0);
	rig_ok(r, ros2_zero(r->file, MIB - 200, 100, &r->err));
	expect_cleared(file, 100, MIB - 100);
	assert_int_equal(r->agent->n_clears, 4); /* of 256 KiB */
	memset(file, 0x77, MIB);
	rig_ok(r, ros2_discard(r->file, 300000, 0, &r->err));
	expect_cleared(file, 0, 300000);
	assert_false(r->agent->saw_violation);
}

static void clear__that_no_file_can_have_is_refused_before_it_is_sent(void **state)
{
	struct rig *r = *state;
	struct ros2_file *reads;

	rig_open(r, NULL);
	assert_int_equal(ros2_prep_zero(r->file, 0, 0, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_zero(r->file, r->session->max_io + 1, 0, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_zero(r->file, 1, INT64_MAX, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_prep_discard(r->file, 4096, UINT64_MAX - 4095, 1, &r->err), -EINVAL);
	assert_int_equal(ros2_zero(r->file, 2, INT64_MAX - 1ull, &r->err), -EINVAL);
	assert_int_equal(ros2_zero(r->file, UINT64_MAX, 0, &r->err), -EINVAL);
	assert_int_equal(ros2_discard(r->file, UINT64_MAX, UINT64_MAX, &r->err), -EINVAL);
	rig_ok(r, ros2_open(r->mount, "f", ROS2_O_RDONLY, 0, &reads, &r->err));
	assert_true(ros2_prep_zero(reads, 1, 0, 1, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_ACCESS);
	assert_true(ros2_discard(reads, 1, 0, &r->err) < 0);
	assert_int_equal(r->err.status, ROS2_ACCESS);
	assert_int_equal(r->agent->n_clears, 0);
}

static void clear__of_pieces_that_fail_is_an_error_and_no_count(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->nak_next = ROS2_UNSUPPORTED);
	assert_int_equal(ros2_zero(r->file, MIB, 0, &r->err), -EOPNOTSUPP);
	assert_int_equal(r->err.status, ROS2_UNSUPPORTED);
	/* The session goes on. */
	assert_int_equal(one(r, true, 4096, 0).result, 4096);
}

static void older_agent__is_sent_nothing_that_it_does_not_know(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c;

	r->agent->features = 0;
	rig_open(r, NULL);
	for (int zero = 0; zero < 2; zero++) {
		c = one(r, zero, 4096, 0);
		assert_int_equal(c.status, ROS2_UNSUPPORTED);
		assert_int_equal(c.result, -EOPNOTSUPP);
	}
	assert_int_equal(ros2_zero(r->file, MIB, 0, &r->err), -EOPNOTSUPP);
	assert_int_equal(r->err.status, ROS2_UNSUPPORTED);
	assert_non_null(strstr(r->err.msg, "release"));
	assert_int_equal(r->agent->n_clears, 0);
	assert_int_equal(rig_write(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(r->session->reconnects, 0);
	assert_false(r->agent->saw_violation);
}

/* Also one that takes the place of a newer one, while a request waits for it. */
static void older_agent__met_after_a_reconnect_is_sent_nothing_either(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	assert_int_equal(one(r, true, 4096, 0).result, 4096);
	WITH_AGENT(r->agent, r->agent->features = 0);
	fake_agent_reset_all(r->agent);
	/* What never left waits for the new connection. */
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(one(r, true, 4096, 0).status, ROS2_UNSUPPORTED);
	WITH_AGENT(r->agent, r->agent->features = WIRE_FEATURE_CLEAR);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(one(r, true, 4096, 0).result, 4096);
	assert_int_equal(r->agent->n_clears, 2);
	assert_false(r->agent->saw_violation);
}

static void hostile_agent__with_features_that_nobody_asked_for_is_refused(void **state)
{
	struct rig *r = *state;

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	r->agent->features = WIRE_FEATURE_CLEAR | 1u << 31;
	assert_int_equal(ros2_session_open(r->client, NULL, &r->session, &r->err), -EPROTO);
	assert_int_equal(r->err.status, ROS2_PROTOCOL);
}

static void hostile_agent__that_cleared_a_part_or_sends_payload_ends_the_session(void **state)
{
	static const enum evil attacks[] = {
		EVIL_COMPLETE_SHORT,   EVIL_COMPLETE_TWICE, EVIL_COMPLETE_UNKNOWN,
		EVIL_COMPLETE_PAYLOAD, EVIL_PULL_FOR_READ,  EVIL_DATA_FOR_WRITE,
		EVIL_TENANT_OPCODE,    EVIL_NAK_OK,
	};

	for (size_t i = 0; i < ARRAY_SIZE(attacks); i++) {
		struct ros2_completion c;
		void *fresh = NULL;
		struct rig *r;

		rig_setup(&fresh);
		r = fresh;
		rig_open(r, NULL);
		WITH_AGENT(r->agent, r->agent->evil = attacks[i]);
		c = one(r, true, 4096, 0);
		/* The first of two answers is good; then the session ends. */
		if (attacks[i] == EVIL_COMPLETE_TWICE)
			assert_int_equal(c.status, ROS2_IO);
		else if (c.status != ROS2_PROTOCOL)
			fail_msg("attack %d: %s", attacks[i], ros2_status_to_str(c.status));
		rig_teardown(&fresh);
	}
}

static void lost_connection__what_clears_is_in_doubt_and_not_replayed(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	for (unsigned zero = 0; zero < 2; zero++) {
		WITH_AGENT(r->agent, r->agent->drop_after = 1);
		assert_int_equal(one(r, zero, 4096, 0).status, ROS2_OUTCOME_UNKNOWN);
		assert_int_equal(r->agent->n_clears, 2 * zero + 1);
		assert_int_equal(one(r, zero, 4096, 0).result, 4096);
		assert_int_equal(r->agent->n_clears, 2 * zero + 2);
	}
}

static void lost_connection__a_flush_after_an_unflushed_clear_says_so_once(void **state)
{
	struct rig *r = *state;

	rig_open(r, NULL);
	assert_int_equal(one(r, true, 4096, 0).result, 4096);
	fake_agent_reset_all(r->agent);
	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	assert_int_equal(ros2_flush(r->file, &r->err), -EREMOTEIO);
	assert_int_equal(r->err.status, ROS2_OUTCOME_UNKNOWN);
	rig_ok(r, ros2_flush(r->file, &r->err));
}

static void revocation__ends_what_clears_by_name(void **state)
{
	struct rig *r = *state;
	struct ros2_completion c[2];
	int n = 0;

	rig_open(r, NULL);
	WITH_AGENT(r->agent, r->agent->hold = true);
	rig_ok(r, ros2_prep_zero(r->file, 4096, 0, 1, &r->err));
	rig_ok(r, ros2_prep_discard(r->file, 4096, 0, 2, &r->err));
	rig_ok(r, ros2_submit(r->session, &r->err));
	WITH_AGENT(r->agent, r->agent->session_status = r->agent->open_status = ROS2_REVOKED);
	fake_agent_reset_all(r->agent);
	while (n < 2)
		n += ros2_wait(r->session, c + n, 1, 2 - (uint32_t)n, 20000, &r->err);
	assert_int_equal(c[0].status, ROS2_REVOKED);
	assert_int_equal(c[1].status, ROS2_REVOKED);
	assert_int_equal(ros2_zero(r->file, 1, 0, &r->err), -EKEYREVOKED);
	assert_int_equal(ros2_prep_zero(r->file, 1, 0, 1, &r->err), -EKEYREVOKED);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ring__clears_what_it_is_told_without_a_region),
		T(plain__clears_any_length_in_pieces),
		T(clear__that_no_file_can_have_is_refused_before_it_is_sent),
		T(clear__of_pieces_that_fail_is_an_error_and_no_count),
		T(older_agent__is_sent_nothing_that_it_does_not_know),
		T(older_agent__met_after_a_reconnect_is_sent_nothing_either),
		T(hostile_agent__with_features_that_nobody_asked_for_is_refused),
		cmocka_unit_test(
			hostile_agent__that_cleared_a_part_or_sends_payload_ends_the_session),
		T(lost_connection__what_clears_is_in_doubt_and_not_replayed),
		T(lost_connection__a_flush_after_an_unflushed_clear_says_so_once),
		T(revocation__ends_what_clears_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
