/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster of real processes, attacked by tenants alpha and beta that its controller knows. */
#ifndef ROS2_TESTS_ATTACK_AGENT_SITE_H
#define ROS2_TESTS_ATTACK_AGENT_SITE_H

#include "tests/attack/agent.h"
#include "tests/client/raw/raw.h"

struct cluster {
	struct raw channels[2];
	bool quiet; /* refused calls are not printed */
	uint64_t answers[ROS2_STATUS_COUNT];
	char words[ROS2_STATUS_COUNT][160]; /* of the first answer of each kind */
};

/* The directory of tests/integration/lib.sh; ROS2_AGENT is set. cluster_close in any case. */
int cluster_connect(struct cluster *c, const char *dir, struct site *ret);
void cluster_close(struct cluster *c);
#endif
