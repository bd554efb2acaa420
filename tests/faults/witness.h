/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said to be durable is on disk when it arrives: an acknowledged delta and an applied
 * object in the agent's snapshot, a receipt's revocation in its log; a grant and the record that is
 * acknowledged to the agent in the controller's database. What is not becomes pair_wrong.
 */
#ifndef ROS2_TESTS_FAULTS_WITNESS_H
#define ROS2_TESTS_FAULTS_WITNESS_H

#include "tests/faults/pair.h"

struct witness;
struct witness *witness_new(struct pair *p); /* from now on */
void witness_free(struct witness *w);
/* How often it looked. */
struct witness_counts {
	_Atomic unsigned deltas, states, receipts, grants, records;
};
const struct witness_counts *witness_counts(const struct witness *w);
#endif
