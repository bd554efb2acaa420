/* SPDX-License-Identifier: Apache-2.0 */
/* The mem engine behind a gate: while it is shut, ios and mkdir stay inside. For tests of what is
 * under way. */
#ifndef ROS2_TESTS_DATAPLANE_SLOW_ENGINE_H
#define ROS2_TESTS_DATAPLANE_SLOW_ENGINE_H

#include "dataplane/engine.h"

extern struct engine_ops slow_engine_ops; /* after slow_engine_init */
void slow_engine_init(void);
void slow_engine_shut(bool shut);
uint32_t slow_engine_held(void);
#endif
