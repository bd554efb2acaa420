/* SPDX-License-Identifier: Apache-2.0 */
/* What the connection manager of the kernel does with more requests than a listener may have, and
 * with one that names another's queue pair. */
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

struct cm_named {
	bool stood; /* the one connection */
	int status; /* of the rejection of who asked in the name of its queue pair; 0: of none */
	bool heard; /* the listener, of that request */
	bool ended; /* the connection, at the end of who had it */
};

/* One is connected to a listener at @host, another asks with the number of its queue pair. False:
 * they could not. */
bool cm_names_anothers(const char *host, struct cm_named *ret);
#endif
