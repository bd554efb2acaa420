/* SPDX-License-Identifier: Apache-2.0 */
/* See power_points.h. */
#include "tests/controller/power_points.h"
#include "common/clock.h"
#include "tests/testing.h"

#define GOLDEN 0.6180339887 /* multiples of it, without their whole part, are spread evenly */

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 10) : otherwise;
}

bool power_all(void)
{
	return number("ROS2_POWER_ALL", 0) > 0;
}

uint64_t power_stride(void)
{
	uint64_t n = power_all() ? 1 : number("ROS2_SWEEP_STRIDE", 1);

	return n ? n : 1;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static void begin(struct power_points *p)
{
	p->every = p->every ? p->every : 1;
	p->first = p->first < p->calls ? p->first : p->calls;
	p->end_ns = !p->seconds ? 0
	                        : clock_monotonic_ns() +
	                                  NS_PER_S * number("ROS2_POWER_SECONDS", p->seconds);
	/* Without a common divisor its multiples come to each point before they come to one again.
	 */
	p->step = (uint64_t)(GOLDEN * (double)p->calls);
	while (common_divisor(p->calls, p->step) != 1)
		p->step++;
}

static bool next_of_all(struct power_points *p)
{
	p->at = p->tried;
	return p->at < p->calls || p->cut;
}

static bool next_of_sample(struct power_points *p)
{
	if (p->in_order < p->first) {
		p->at = p->in_order;
		p->in_order += p->every;
		return true;
	}
	if (p->tried >= p->at_least && clock_monotonic_ns() >= p->end_ns)
		return false;
	while (p->walked < p->calls) {
		p->at = (p->from + p->walked++) * p->step % p->calls;
		if (p->at >= p->first || p->at % p->every)
			return true;
	}
	return false;
}

bool power_points_next(struct power_points *p)
{
	assert_true(p->calls > 0);
	if (!p->tried)
		begin(p);
	else
		p->cuts += p->cut;
	if (power_all() ? !next_of_all(p) : !next_of_sample(p))
		return false;
	p->tried++;
	return true;
}

void power_points_end(const struct power_points *p, uint64_t slack)
{
	if (power_all())
		assert_true(p->tried >= p->calls);
	power_all_tried(p->cuts, p->calls, slack);
}

void power_all_tried(uint64_t n, uint64_t calls, uint64_t slack)
{
	if (!power_all())
		return;
	printf("# %llu of %llu calls\n", (unsigned long long)n, (unsigned long long)calls);
	if (n + slack < calls)
		fail_msg("it came to %llu of %llu calls", (unsigned long long)n,
		         (unsigned long long)calls);
}
