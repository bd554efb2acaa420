/* SPDX-License-Identifier: Apache-2.0 */
/* The wires between the device and who sits at their far ends, and the rules on them. */
#ifndef ROS2_TESTS_ATTACK_WIRE_H
#define ROS2_TESTS_ATTACK_WIRE_H

#include <stdbool.h>

/* Packets from peer0 and peer1 reach the device, whatever address they say they are from. 0, -EIO.
 */
int wire_open(void);
/* The rules of docs/rdma.md at the device's end of peer0's wire: own source address only. */
int wire_rule(bool on);
unsigned wire_dropped(void); /* packets that they dropped */
void wire_settle(void);      /* what was sent has arrived */
#endif
