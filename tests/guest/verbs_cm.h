/* SPDX-License-Identifier: Apache-2.0 */
/* What the connection manager of the kernel does with more requests than a listener may have. */
#ifndef ROS2_TESTS_GUEST_VERBS_CM_H
#define ROS2_TESTS_GUEST_VERBS_CM_H

#include <stdbool.h>

#define CM_BACKLOG 8
#define CM_ASKERS  20

struct cm_seen {
	int asked;
	int early;   /* refused before the listener looked */
	int first;   /* that it found when it did */
	int later;   /* that came after those */
	int refused; /* in the end, of all */
};

/* CM_ASKERS ask a listener of CM_BACKLOG at @host. False: they could not. */
bool cm_requests(const char *host, struct cm_seen *ret);
#endif
