/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as people write them out of a specification: "7f 40 0100 00*19 61626364", blanks where one
 * likes, XX*N for N times the byte XX. For vectors written by hand, never made by the code that is
 * tested.
 */
#ifndef ROS2_TESTS_NVMF_HEX_H
#define ROS2_TESTS_NVMF_HEX_H

#include "tests/testing.h"
#include <ctype.h>

/* Fails the test on a vector that is not of this form. Returns the number of bytes. */
static inline size_t hex_bytes(const char *s, uint8_t *out, size_t max)
{
	size_t n = 0;

	while (*s) {
		unsigned value, times = 1;
		int used = 0;

		if (isspace((unsigned char)*s)) {
			s++;
			continue;
		}
		if (sscanf(s, "%2x%n", &value, &used) != 1 || used != 2)
			fail_msg("not hex: %.20s", s);
		s += 2;
		if (*s == '*') {
			times = (unsigned)strtoul(s + 1, (char **)&s, 10);
		}
		while (times--) {
			assert_true(n < max);
			out[n++] = (uint8_t)value;
		}
	}
	return n;
}

#define assert_bytes(p, n, hex)                                                                    \
	do {                                                                                       \
		uint8_t expected_[8192];                                                           \
		size_t n_ = hex_bytes(hex, expected_, sizeof(expected_));                          \
		assert_int_equal(n, n_);                                                           \
		assert_memory_equal(p, expected_, n_);                                             \
	} while (0)

#endif
