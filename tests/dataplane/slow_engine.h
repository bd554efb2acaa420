/* SPDX-License-Identifier: Apache-2.0 */
/* The mem engine behind a gate: while it is shut, ios and mkdir stay inside; behind another, what
 * closes files. For tests of what is under way. */
#ifndef ROS2_TESTS_DATAPLANE_SLOW_ENGINE_H
#define ROS2_TESTS_DATAPLANE_SLOW_ENGINE_H

#include "dataplane/engine.h"

extern struct engine_ops slow_engine_ops; /* after slow_engine_init */
void slow_engine_init(void);
void slow_engine_shut(bool shut);
/* Of those that are inside, the first so many of each reactor stay when the gate opens. */
void slow_engine_keep(uint32_t n);
/* Waits until so many ios, or calls of mkdir, are inside behind the gate: not more of them. */
void slow_engine_wait_held(uint32_t n);
void slow_engine_wait_calls(uint32_t n);
void slow_engine_shut_closes(bool shut);
void slow_engine_wait_closes(uint32_t n);
#endif
