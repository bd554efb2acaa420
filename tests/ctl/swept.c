/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked to ros2ctl: its ROS2_SWEEP_AT-th allocation fails, and with ROS2_SWEEP_ON all after it.
 * Whether one failed is told on descriptor 9 at the end.
 */
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void begin(void)
{
	const char *at = getenv("ROS2_SWEEP_AT");
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};

	s.at = at ? (uint32_t)atoi(at) : 0;
	s.persistent = getenv("ROS2_SWEEP_ON") != NULL;
	if (s.at)
		sweep_arm(&s);
}

__attribute__((destructor)) static void tell(void)
{
	sweep_off();
	if (sweep_fired() && write(9, "failed\n", 7) != 7)
		_exit(99);
}
