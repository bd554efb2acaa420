/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them. What could be meant in two ways ("10MB", "64", "1_000", "010")
 * is refused with the words that say how to write it; nothing is rounded and nothing overflows.
 */
#ifndef ROS2_POLICY_UNITS_H
#define ROS2_POLICY_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum unit_kind {
	UNIT_COUNT,    /* 64 */
	UNIT_OPS,      /* 400k: per second */
	UNIT_BYTES,    /* 4KiB */
	UNIT_RATE,     /* 1GiB/s */
	UNIT_DURATION, /* 30s; in milliseconds */
};

/* 0 and *ret; or -EINVAL and *ret_why: what was expected (static words). */
int unit_parse(enum unit_kind kind, const char *s, uint64_t *ret, const char **ret_why);

#define UNIT_STR_LEN 32
/* The shortest exact way to write @v; unit_parse gives @v back. Returns @out. */
const char *unit_format(enum unit_kind kind, uint64_t v, char out[UNIT_STR_LEN]);
#endif
