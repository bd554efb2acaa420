/* SPDX-License-Identifier: Apache-2.0 */
/*
 * At which calls of a run the power is cut. With ROS2_POWER_ALL=1 in the environment (tests/run
 * --long) at each of them, in order, and on until a run ends without its cut. Otherwise at the
 * first, and then in an order that is spread evenly and has each call once, until time is over
 * (ROS2_POWER_SECONDS): with enough of it at each, and at none twice.
 *
 *	struct power_points p = {.calls = calls, .first = 40, .seconds = 12};
 *	while (power_points_next(&p))
 *		cut at call p.at; p.cut = it came to that call
 *	power_points_end(&p, slack);
 */
#ifndef ROS2_TESTS_CONTROLLER_POWER_POINTS_H
#define ROS2_TESTS_CONTROLLER_POWER_POINTS_H

#include <stdbool.h>
#include <stdint.h>

struct power_points {
	uint64_t calls;    /* of a run without a cut: the points are 0 ... calls - 1 */
	uint64_t first;    /* those below are tried in order ... */
	uint64_t every;    /* ... each so-manieth of them; 0: each */
	uint64_t at_least; /* so many points, however slow the machine is */
	uint64_t seconds;  /* without ROS2_POWER_SECONDS; 0: whatever that says, no more */
	uint64_t from;     /* the sample begins with this one of its order: others in each sweep */
	bool cut;          /* the run before had its cut */
	/* filled by power_points_next */
	uint64_t at;
	uint64_t tried; /* points so far */
	uint64_t cuts;  /* of them */
	uint64_t in_order, walked, step, end_ns;
};

/* False: no more. */
bool power_points_next(struct power_points *p);
/* After the last: power_all_tried. */
void power_points_end(const struct power_points *p, uint64_t slack);

bool power_all(void);
/* With ROS2_POWER_ALL fails the test unless it came to @n of @calls, or to @slack less. */
void power_all_tried(uint64_t n, uint64_t calls, uint64_t slack);
/* ROS2_SWEEP_STRIDE: of what fails one by one only so many; 1 with ROS2_POWER_ALL. */
uint64_t power_stride(void);
#endif
