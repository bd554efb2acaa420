/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the steady state share, of every transport: the counters of the reactors'
 * threads, and the control that they count. */
#ifndef ROS2_TESTS_DATAPLANE_STEADY_H
#define ROS2_TESTS_DATAPLANE_STEADY_H

#include "tests/bench/steady/count_calls.h"

struct count_calls *count_calls(void); /* of this process */

void steady_counter__sees_a_reactor_thread_that_allocates_and_locks(void **state);
#endif
