/* SPDX-License-Identifier: Apache-2.0 */
/* agent/writer.h without a thread: jobs wait until the test lets them run, so that a test sees
 * every state between "asked" and "on disk". */
#ifndef ROS2_TESTS_AGENT_STEP_WRITER_H
#define ROS2_TESTS_AGENT_STEP_WRITER_H

#include "agent/writer.h"
/* Runs what waits, and what that brings; returns how many jobs ran. */
unsigned step_writer_run(struct writer *w);
#endif
