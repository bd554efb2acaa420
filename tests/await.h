/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for what another thread or process does and has no event for. The limit tells a hang from
 * a slow machine, and nothing else: no test may need it to be short.
 */
#ifndef ROS2_TESTS_AWAIT_H
#define ROS2_TESTS_AWAIT_H

#include "common/clock.h"
#include <stdbool.h>
#include <unistd.h>

#define AWAIT_S  60
#define AWAIT_MS (AWAIT_S * 1000)
#define AWAIT_NS (AWAIT_S * NS_PER_S)

/* Looks each millisecond until @cond holds. False: it does not after AWAIT_S. */
#define AWAIT(cond)                                                                                \
	({                                                                                         \
		uint64_t await_end_ns = clock_monotonic_ns() + AWAIT_NS;                           \
		bool await_is;                                                                     \
                                                                                                   \
		while (!(await_is = (cond)) && clock_monotonic_ns() < await_end_ns)                \
			usleep(1000); /* poll: see above */                                        \
		await_is;                                                                          \
	})
#endif
