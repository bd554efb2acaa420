/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a table that all share one of them may hold, so that generous tenants cannot use it
 * up for the others. Three numbers: nobody holds more than @most; what goes beyond a tenant's first
 * @sure must leave @kept entries free. So only first entries come out of the last @kept, and every
 * one of kept / sure tenants gets its first @sure entries whatever the others do and in whatever
 * order.
 */
#ifndef ROS2_COMMON_SHARE_H
#define ROS2_COMMON_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct share {
	uint32_t total, most, sure, kept;
};

/* One more for a tenant that holds @held, of a table of which @used are taken by all? */
static inline bool share_allows(const struct share *s, uint32_t held, uint32_t used)
{
	if (held >= s->most || used >= s->total)
		return false;
	return held < s->sure || s->total - used > s->kept;
}
#endif
