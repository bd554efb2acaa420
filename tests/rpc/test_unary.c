/* SPDX-License-Identifier: Apache-2.0 */
/* Unary calls over loopback mTLS: answers, named errors, deadlines, cancelling, refusals. */
#include "tests/rpc/fixture.h"
#include <errno.h>
#include <string.h>
#include <time.h>

static void rpc_unary__answers_over_mtls_and_tells_who_called(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_channel *c;
	struct fx f;

	fx_start(&f, NULL);
	c = fx_channel(&f, NULL);
	if (fx_say(c, "hello", "hello", &err))
		fail_msg("%s", err.msg);
	assert_string_equal(f.last_peer.spiffe_id, CLIENT_ID);
	assert_true(f.last_peer.authenticated);
	assert_non_null(strstr(f.last_peer.address, "127.0.0.1:"));
	assert_true(f.last_peer.cert_not_after_unix_s > time(NULL));
	rpc_channel_free(c);
	fx_stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rpc_unary__answers_over_mtls_and_tells_who_called),
	};

	return cmocka_run_group_tests(tests, fx_group_setup, fx_group_teardown);
}
