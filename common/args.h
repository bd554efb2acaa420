/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as people give them to programs: decimal digits and a unit, nothing before, between or
 * behind. No sign, no blank, no 0x, no value that wraps. Pure; any thread.
 */
#ifndef ROS2_COMMON_ARGS_H
#define ROS2_COMMON_ARGS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct args_unit {
	const char *name; /* "" = no unit */
	uint64_t factor;  /* not 0 */
};

/* -EINVAL: no number, or none of the units; -ERANGE: beyond 64 bits. Then *ret is as it was. */
int args_with_unit(const char *s, const struct args_unit *units, size_t n, uint64_t *ret);
/* Digits only. -ERANGE above @max. */
int args_u64(const char *s, uint64_t max, uint64_t *ret);
/* "500ms", "30s", "5m", "24h", "7d". */
int args_duration_ms(const char *s, uint64_t *ret);

/* "ALL" or "ALL,EACH": two caps from 1 to @max, the second not above the first. Without EACH it
 * becomes the smaller of ALL and what it was (0 stays 0). -EINVAL, -ERANGE; then both are as they
 * were. */
int args_caps(const char *s, uint32_t max, uint32_t *all, uint32_t *each);

#ifdef __cplusplus
}
#endif
#endif
