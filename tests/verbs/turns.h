/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactors of a data plane, one turn at a time, and a clock that a test sets: what is shown is
 * counted and the same on any machine. For tests that link with --wrap of epoll_pwait2,
 * fabric_set_poll and clock_boottime_ns.
 */
#ifndef ROS2_TESTS_VERBS_TURNS_H
#define ROS2_TESTS_VERBS_TURNS_H

#include "dataplane/fabric/fabric.h"
#include "tests/dataplane/fixture.h"
#include <stdatomic.h>

#define TURNS_REACTORS 2u
#define TURNS_SETS     16u

/* All reactors stand at the start of a turn, and the loop has heard what they had to say. */
void turns_hold(struct fx *fx);
/* One turn of each. */
void turns_step(struct fx *fx);
void turns_go_on(void);
/* Ends of work requests that reactors took: the most in a turn from one set, and all of each set
 * (by its cookie, which at an agent is the tenant's index). */
extern _Atomic uint32_t turns_most_taken;
extern _Atomic uint64_t turns_taken[TURNS_SETS];
/* 0: the clock goes on, so much ahead; else it stands still there. */
extern _Atomic uint64_t turns_still_ns, turns_later_ns;
#endif
