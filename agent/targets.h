/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the engines' ways to storage that is elsewhere are, in words that may be shown: what a target
 * said is escaped and cut. Each tenant has a way of its own. Nothing is kept: it is asked of the
 * data plane each time. Loop thread.
 */
#ifndef ROS2_AGENT_TARGETS_H
#define ROS2_AGENT_TARGETS_H

#include "common/ids.h"
#include "dataplane/dp.h"

#define TARGETS_MAX       64u /* told in one beat */
#define TARGET_REASON_MAX 255

struct target {
	char engine[ROS2_NAME_MAX + 1], tenant[ROS2_NAME_MAX + 1];
	char state[16];
	bool lost;
	uint64_t since_unix_ns;
	char reason[TARGET_REASON_MAX + 1]; /* while lost */
};

/* The lost ones first; how many, at most TARGETS_MAX. *ret_left_out: how many more there are. */
size_t targets_list(struct dp *dp, struct target v[TARGETS_MAX], uint32_t *ret_left_out);
/* How many are lost, and one line of it in @words: the one that has been for longest; "" = none. */
uint32_t targets_lost(struct dp *dp, char *words, size_t size);
#endif
