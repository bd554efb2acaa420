/* SPDX-License-Identifier: Apache-2.0 */
/* What test_journal_power.c revokes: tenants, and as the last an agent. */
#ifndef ROS2_TESTS_CONTROLLER_JOURNAL_TARGETS_H
#define ROS2_TESTS_CONTROLLER_JOURNAL_TARGETS_H

#define JOURNAL_TENANTS 8
#define JOURNAL_TARGETS (JOURNAL_TENANTS + 1)

/* Of four calls the results hold; one thread at a time. */
const char *journal_name(unsigned i);
const char *journal_reason(unsigned i); /* until the next call */
/* Those tenants, their engine, and the agents dpu-0 and dpu-1. */
const char *journal_documents(void);
#endif
