/* SPDX-License-Identifier: Apache-2.0 */
/* The fixture over the engine behind a gate (slow_engine.h), for the library that has switches. */
#ifndef ROS2_TESTS_DATAPLANE_SLOW_FIXTURE_H
#define ROS2_TESTS_DATAPLANE_SLOW_FIXTURE_H

#include "dataplane/test_switches.h"
#include "tests/dataplane/fixture.h"
#include "tests/dataplane/slow_engine.h"

/* Before fx_setup: what a test does to slow_engine_ops comes between. */
static inline void slow_prepare(void)
{
	slow_engine_init();
	dp_test_switches = (struct dp_test_switches){.extra_engine = &slow_engine_ops};
	fx_engine_type = "slow";
}

static inline int slow_setup(void **state)
{
	slow_prepare();
	return fx_setup(state);
}

static inline int slow_teardown(void **state)
{
	int rc;

	/* Opened first: the end waits for what the engine holds. */
	slow_engine_shut(false);
	slow_engine_keep(0);
	slow_engine_shut_closes(false);
	rc = fx_teardown(state);
	dp_test_switches = (struct dp_test_switches){0};
	fx_engine_type = "mem";
	return rc;
}

static inline int slow_four_workers(void **state)
{
	fx_control_workers = 4;
	return slow_setup(state);
}

static inline int slow_no_four_workers(void **state)
{
	fx_control_workers = 0;
	return slow_teardown(state);
}

#define SLOW_TEST(f) cmocka_unit_test_setup_teardown(f, slow_setup, slow_teardown)
#define FOUR_WORKERS_TEST(f)                                                                       \
	cmocka_unit_test_setup_teardown(f, slow_four_workers, slow_no_four_workers)
#endif
