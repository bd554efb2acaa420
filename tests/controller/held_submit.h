/* SPDX-License-Identifier: Apache-2.0 */
/* A store that keeps a transaction to itself, for programs linked with --wrap=store_submit: what
 * waits for its commit waits until the test lets it go. */
#ifndef ROS2_TESTS_CONTROLLER_HELD_SUBMIT_H
#define ROS2_TESTS_CONTROLLER_HELD_SUBMIT_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool hold_next; /* the next that somebody waits for; false again when it has come */
/* Hands it to the store. The controller's loop (loop_call); the argument is not used. */
void held_let_go(void *arg);
#endif
