// SPDX-License-Identifier: Apache-2.0
/* Names and legal moves, against tables written by hand a second time. */
#include "dataplane/fabric/fabric_conn.h"
#include "tests/testing.h"

static void fabric_states__windows_move_as_the_header_says(void **state)
{
	static const char *const may[FABRIC_WINDOW_STATES] = {
		[FABRIC_WINDOW_FREE] = ".x....",  [FABRIC_WINDOW_BINDING] = "..xxxx",
		[FABRIC_WINDOW_BOUND] = "x..xxx", [FABRIC_WINDOW_INVALIDATING] = "x...xx",
		[FABRIC_WINDOW_GONE] = "x.....",  [FABRIC_WINDOW_SET_ASIDE] = "....x.",
	};

	for (int f = 0; f < FABRIC_WINDOW_STATES; f++)
		for (int t = 0; t < FABRIC_WINDOW_STATES; t++)
			assert_int_equal(fabric_window_state_may_follow(f, t), may[f][t] == 'x');
	assert_false(fabric_window_state_may_follow(FABRIC_WINDOW_FREE, FABRIC_WINDOW_STATES));
	assert_false(fabric_window_state_may_follow(FABRIC_WINDOW_STATES, FABRIC_WINDOW_FREE));
}

static void fabric_states__a_failed_queue_pair_stays_failed(void **state)
{
	static const char *const may[FABRIC_QP_STATES] = {".x.x", "..xx", "...x", "...."};

	for (int f = 0; f < FABRIC_QP_STATES; f++)
		for (int t = 0; t < FABRIC_QP_STATES; t++)
			assert_int_equal(fabric_qp_state_may_follow(f, t), may[f][t] == 'x');
}

static void fabric_states__connections_move_as_the_header_says(void **state)
{
	static const char *const may[FABRIC_CONN_STATES] = {
		".x....x", "..x...x", ".....xx", "....x.x", ".....xx", "......x", "......."};

	for (int f = 0; f < FABRIC_CONN_STATES; f++)
		for (int t = 0; t < FABRIC_CONN_STATES; t++)
			assert_int_equal(fabric_conn_state_may_follow(f, t), may[f][t] == 'x');
}

static void fabric_states__every_value_has_a_name(void **state)
{
#define NAMED(n, fn)                                                                               \
	for (int i = 0; i < (n); i++)                                                              \
		assert_string_not_equal(fn(i), "unknown");                                         \
	assert_string_equal(fn(n), "unknown")
	NAMED(FABRIC_WINDOW_STATES, fabric_window_state_to_str);
	NAMED(FABRIC_QP_STATES, fabric_qp_state_to_str);
	NAMED(FABRIC_CONN_STATES, fabric_conn_state_to_str);
	NAMED(FABRIC_EVENT_OTHER + 1, fabric_event_kind_to_str);
	NAMED(FABRIC_CONN_EVENT_ENDED + 1, fabric_conn_event_kind_to_str);
	NAMED(FABRIC_OP_INVALIDATE + 1, fabric_op_to_str);
	NAMED(FABRIC_END_DEVICE + 1, fabric_end_to_str);
	NAMED(FABRIC_BY_QP_ERROR + 1, fabric_receipt_how_to_str);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fabric_states__windows_move_as_the_header_says),
		cmocka_unit_test(fabric_states__a_failed_queue_pair_stays_failed),
		cmocka_unit_test(fabric_states__connections_move_as_the_header_says),
		cmocka_unit_test(fabric_states__every_value_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
