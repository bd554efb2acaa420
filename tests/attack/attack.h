/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attack is tried twice with the same code: against what the product does, and against a rig
 * whose defence is left out (the negative control). It must fail there and work here; if it fails
 * here, too, the test proved nothing and is not ok. An attack that works although the product does
 * what it can is a device's defect: then the probe must have seen it, `placement.require` must
 * refuse the device, and docs/rdma.md must say what to do, or the test is not ok.
 */
#ifndef ROS2_TESTS_ATTACK_H
#define ROS2_TESTS_ATTACK_H

#include "common/probe.h"
#include "common/util.h"
#include <stdbool.h>
#include <stdint.h>

#define ATTACK_SEEN_MAX 256

/* One of the two tries. */
struct attack_try {
	bool defended;
	bool worked;                /* the attacker got what he wanted */
	bool neighbour_harmed;      /* or the tenant that is not attacked was cut off */
	char seen[ATTACK_SEEN_MAX]; /* one line: what came of it, with its numbers */
};

struct attack {
	const char *name, *words; /* of the test, of the table */
	const char *source;       /* who published it */
	const char *defence;
	/* Fills @t; 0, or -errno with words in t->seen: could not be tried, or the victim does not
	 * work before the attack. */
	int (*run)(struct attack_try *t);
	bool defect;                  /* works in spite of the product, on this device */
	enum probe_property property; /* ... and what the probe calls it */
};

void attack_seen(struct attack_try *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The families. */
extern const struct attack attacks_keys[], attacks_ends[], attacks_floods[], attacks_packets[],
	attacks_forged[];
extern const unsigned n_attacks_keys, n_attacks_ends, n_attacks_floods, n_attacks_packets,
	n_attacks_forged;
#endif
