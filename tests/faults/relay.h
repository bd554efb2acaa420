/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP relay on loopback with a thread of its own: what comes in on a port of its own goes to
 * another. Its connections can be cut: both sides see the end, and what was on its way is lost. The
 * end, not a reset: gRPC 1.51 does not notice a reset that arrives together with data before its
 * keepalive (it trusts TCP_INQ), and a sweep has no time for that. Any thread.
 */
#ifndef ROS2_TESTS_FAULTS_RELAY_H
#define ROS2_TESTS_FAULTS_RELAY_H

#include <stdint.h>

#define RELAY_LINES 4

struct relay;

struct relay *relay_new(void);
void relay_free(struct relay *r);
/* A line to 127.0.0.1:@target (0: not known yet, connections are ended); its own port. @line:
 * 0 to RELAY_LINES - 1, once each. */
uint16_t relay_line(struct relay *r, unsigned line, uint16_t target);
/* Where new connections of the line go from now on; 0: nowhere, they are ended. */
void relay_target(struct relay *r, unsigned line, uint16_t target);
/* When it has returned nothing more goes through any connection of the line. */
void relay_cut(struct relay *r, unsigned line);
/* The next connection of the line ends as it comes in: what has no connection yet is lost too. */
void relay_refuse_next(struct relay *r, unsigned line);
/* Those that were not needed are forgotten. */
void relay_refuse_none(struct relay *r);
#endif
