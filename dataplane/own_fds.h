/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread with a table of descriptors of its own, that keeps nothing of the process's open. System
 * calls on descriptors that are only there are not made by the C library's names: sanitizers would
 * take them for those of the process.
 */
#ifndef ROS2_DATAPLANE_OWN_FDS_H
#define ROS2_DATAPLANE_OWN_FDS_H

/* From here on the calling thread has only @fd, and where words may have to be said. Negative
 * errno: it has the table of the others yet. */
int own_fds_keep(int fd);
#endif
