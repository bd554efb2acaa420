/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that turn single checks of libros2 off, for negative controls: a test of a check means
 * something only if the attack works without it. They exist only in the library ros2_client_unsafe,
 * which no shipped program links; elsewhere CLIENT_SWITCH is the constant false and no symbol
 * remains.
 */
#ifndef ROS2_CLIENT_TEST_SWITCHES_H
#define ROS2_CLIENT_TEST_SWITCHES_H

#include <stdbool.h>

#ifdef ROS2_CLIENT_TEST_SWITCHES
struct client_test_switches {
	bool no_piece_check;     /* key, generation and range of DATA and PULL */
	bool no_seal_check;      /* of memory that the agent shares */
	bool passes_descriptors; /* as a kernel that cannot keep them away */
	bool no_descriptor_look; /* at what comes with bytes that only wake */
	bool keeps_shared_pages; /* of what was with an agent that is lost */
	bool no_agent_proof;     /* whoever answers is the agent */
	bool no_pacing;          /* a call over the tenant's rate fails at once */
	bool no_fence;           /* a lost session may go on at the agent beside the next */
	bool replay_writes;      /* a write in doubt is sent again */
	/* windows end by LOCAL_INV on soft-RoCE, too */
	bool invalidates_windows;
};
extern struct client_test_switches client_test_switches; /* set before a session is opened */
#define CLIENT_SWITCH(name) (client_test_switches.name)
#else
#define CLIENT_SWITCH(name) false
#endif
#endif
