/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoll event of a reactor points to: the first or an embedded member of the object that
 * owns the descriptor. */
#ifndef ROS2_DATAPLANE_SOURCE_H
#define ROS2_DATAPLANE_SOURCE_H

enum source_kind {
	SOURCE_WAKE,
	SOURCE_LISTENER,
	SOURCE_PREAUTH,
	SOURCE_SESSION,
	SOURCE_ENGINE,
	SOURCE_VERBS,
	SOURCE_SHM
};
struct source {
	enum source_kind kind;
};
#endif
