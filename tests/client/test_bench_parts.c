/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of ros2-bench that judge: histogram and block pattern. */
#include "tools/bench/bench.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void hist__percentiles_are_within_two_percent(void **state)
{
	struct hist *h = calloc(1, sizeof(*h));

	for (uint64_t i = 1; i <= 100000; i++)
		hist_add(h, i * 1000);
	for (int p = 10; p <= 99; p += 7) {
		double want = p * 1e6, got = (double)hist_percentile(h, p);

		assert_true(got > want * 0.98 && got < want * 1.02);
	}
	assert_int_equal(hist_percentile(h, 100), 100000000);
	assert_int_equal(h->max, 100000000);
	hist_add(h, UINT64_MAX);
	hist_add(h, 0);
	assert_int_equal(hist_percentile(h, 100), UINT64_MAX);
	free(h);
}

static void pattern__tells_stale_misplaced_and_broken_apart(void **state)
{
	struct ros2_err err = {0};
	uint8_t b[5000];

	pattern_fill(b, sizeof(b), 7, 40960, 3);
	assert_int_equal(pattern_check(b, sizeof(b), 7, 40960, 3, &err), 0);
	assert_int_equal(pattern_check(b, sizeof(b), 7, 40960, 4, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "stale"));
	assert_int_equal(pattern_check(b, sizeof(b), 7, 0, 3, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "misplaced"));
	assert_int_equal(pattern_check(b, sizeof(b), 8, 40960, 3, &err), -EBADMSG);
	b[4999] ^= 1;
	assert_int_equal(pattern_check(b, sizeof(b), 7, 40960, 3, &err), -EBADMSG);
	memset(b, 0, sizeof(b));
	assert_int_equal(pattern_check(b, sizeof(b), 7, 40960, 3, &err), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hist__percentiles_are_within_two_percent),
		cmocka_unit_test(pattern__tells_stale_misplaced_and_broken_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
