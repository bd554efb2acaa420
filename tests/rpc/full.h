/* SPDX-License-Identifier: Apache-2.0 */
/* A process without a descriptor left. */
#ifndef ROS2_TESTS_RPC_FULL_H
#define ROS2_TESTS_RPC_FULL_H

#include <sys/resource.h>

#define FULL_ABOVE 128 /* the limit meanwhile: so many above what is in use */

struct full {
	struct rlimit was;
	int fds[2 * FULL_ABOVE], n;
};

/* Every descriptor below the limit, which is lowered to what is in use. */
void full_take(struct full *f);
void full_give(struct full *f);
#endif
