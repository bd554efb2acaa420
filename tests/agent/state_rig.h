/* SPDX-License-Identifier: Apache-2.0 */
/* A state by itself: the data plane is fake_dp, and nobody asks for what is to be told. */
#ifndef ROS2_TESTS_AGENT_STATE_RIG_H
#define ROS2_TESTS_AGENT_STATE_RIG_H

#include "agent/state_priv.h"
#include "tests/agent/fixture.h"

struct env {
	struct fixture f;
	struct loop *loop;
	struct dp *dp;
	struct revlog *log;
	struct state *s;
	unsigned tenant_calls, untold_calls;
	char *dir;
};

int state_rig_setup(void **state);
int state_rig_teardown(void **state);
#endif
