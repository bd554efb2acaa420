/* SPDX-License-Identifier: Apache-2.0 */
/* A stream that says nothing is no log that has ended, and no error without a name. */
#include "proto/rpc/rpc.h"
#include "tests/testing.h"
#include "tools/ctl/ctl.h"
#include <errno.h>
#include <string.h>

static int answer;
static uint32_t waited_ms;

int __wrap_rpc_reader_next(struct rpc_reader *r, uint32_t wait_ms, ProtobufCMessage **ret_msg,
                           struct ros2_err *err);
int __wrap_rpc_reader_next(struct rpc_reader *r, uint32_t wait_ms, ProtobufCMessage **ret_msg,
                           struct ros2_err *err)
{
	waited_ms = wait_ms;
	return answer;
}

static void stream__that_is_silent_is_a_timeout_with_words(void **state)
{
	static const uint32_t timeout_ms[] = {10000, 90000}, expect_ms[] = {30000, 90000};

	answer = -EAGAIN;
	for (int i = 0; i < 2; i++) {
		struct ctl c = {.timeout_ms = timeout_ms[i]};
		struct ros2_err err = ROS2_ERR_INIT;
		ProtobufCMessage *m = NULL;

		assert_true(ctl_next(&c, NULL, &m, &err) < 0);
		assert_int_equal(err.status, ROS2_TIMEOUT);
		assert_non_null(strstr(err.msg, i ? "90 s" : "30 s"));
		assert_int_equal(waited_ms, expect_ms[i]);
	}
}

static void stream__that_ends_or_goes_on_is_told_as_it_is(void **state)
{
	static const int answers[] = {0, -ENODATA, -ECONNRESET};
	struct ctl c = {.timeout_ms = 10000};

	for (int i = 0; i < 3; i++) {
		struct ros2_err err = ROS2_ERR_INIT;
		ProtobufCMessage *m = NULL;

		answer = answers[i];
		assert_int_equal(ctl_next(&c, NULL, &m, &err), answer);
		assert_int_equal(err.status, ROS2_OK);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stream__that_is_silent_is_a_timeout_with_words),
		cmocka_unit_test(stream__that_ends_or_goes_on_is_told_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
