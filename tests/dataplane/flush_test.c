/* SPDX-License-Identifier: Apache-2.0 */
/* A flush by call: the engine is asked each time, and what it says is the answer. */
#include "tests/dataplane/slow_fixture.h"
#include <stdatomic.h>

static _Atomic uint32_t asked;
static _Atomic int says;

static int told_fsync(struct engine_file *f, struct ros2_err *err)
{
	int rc = atomic_load(&says);

	atomic_fetch_add(&asked, 1);
	return rc < 0 ? ros2_err_set(err, rc, "the disk does not keep it")
	              : engine_mem_ops.fsync(f, err);
}

static int setup(void **state)
{
	slow_prepare();
	slow_engine_ops.fsync = told_fsync;
	return fx_setup(state);
}

static void dp_flush__says_what_the_engine_says(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct fx_args a;
	struct raw c;

	raw_ready(fx, &c);
	a = (struct fx_args){.session = c.session, .a = c.handle, .mount = 1};
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	assert_int_equal(atomic_load(&asked), 1);
	atomic_store(&says, -EIO);
	for (uint32_t i = 2; i < 4; i++) {
		res = fx_do(fx, FX_FLUSH, &a);
		assert_int_equal(res.status, ROS2_IO);
		assert_non_null(strstr(res.words, "does not keep it"));
		assert_int_equal(atomic_load(&asked), i);
	}
	atomic_store(&says, 0);
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	assert_int_equal(atomic_load(&asked), 4);
	raw_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(dp_flush__says_what_the_engine_says, setup,
	                                        slow_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
