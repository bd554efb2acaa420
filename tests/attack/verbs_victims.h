/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which queue pairs a process has, and what packet is next on them: what an eavesdropper on the
 * fabric reads from the packets themselves. Both ends of a connection are on one soft-RoCE device
 * here, whose packets to itself no interface shows, so the kernel's table is read instead.
 */
#ifndef ROS2_TESTS_ATTACK_VERBS_VICTIMS_H
#define ROS2_TESTS_ATTACK_VERBS_VICTIMS_H

#include <stdint.h>

struct victim {
	uint32_t thread, qpn, peer; /* thread: who made it; peer: queue pair at the other end */
	uint32_t sends_next;        /* sequence number of its next packet */
};

/* A socket for the questions, or -errno. */
int victims_open(void);
/* The connected queue pairs of device number @dev, at most @max; how many, or -errno. */
int victims_look(int fd, uint32_t dev, struct victim *out, unsigned max);
#endif
