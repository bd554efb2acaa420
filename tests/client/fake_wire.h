/* SPDX-License-Identifier: Apache-2.0 */
/* The wire half of the fake agent: one blocking thread per data connection. */
#ifndef ROS2_TESTS_FAKE_WIRE_H
#define ROS2_TESTS_FAKE_WIRE_H

#include "tests/client/fake_agent.h"

#define FAKE_WRITES 64

struct fake_conn {
	struct fake_agent *agent;
	struct fake_thread *thread;
	int fd, session;
	int left; /* bytes it may still send; -1 = all */
	struct {
		uint64_t id;
		uint64_t file, offset;
		uint32_t left, length;
		bool expire;
	} writes[FAKE_WRITES]; /* waiting for their PULLs to be answered; id 0 = free */
};
void *fake_wire_thread(void *arg); /* a struct fake_conn, which it frees */
#endif
