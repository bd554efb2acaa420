/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: the claim that ends a run, and the text form of an input. */
#ifndef ROS2_TESTS_FUZZ_FUZZ_H
#define ROS2_TESTS_FUZZ_FUZZ_H

#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program where the claim is false, so that the input is kept. */
static inline void must(bool holds)
{
	if (!holds)
		abort();
}

/* A refusal has a negative code, and words. */
static inline void must_refuse(int r, const struct ros2_err *err)
{
	must(r < 0 && err->code == r && err->msg[0]);
	must(memchr(err->msg, '\0', sizeof(err->msg)) != NULL);
}

/* A copy of exactly size + 1 bytes that ends with a NUL: a read of one byte more is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
	char *s = (char *)malloc(size + 1);

	must(s != NULL);
	if (size)
		memcpy(s, data, size);
	s[size] = '\0';
	return s;
}
#endif
