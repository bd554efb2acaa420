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

static void hist__percentiles_are_those_of_fio(void **state)
{
	static const struct {
		unsigned n;
		double p;
		uint64_t want;
	} cases[] = {{60, 99, 60},   {51, 99, 51}, {100, 99, 99}, {101, 99, 100},
	             {10, 50, 5},    {11, 50, 6},  {1, 50, 1},    {1, 99.9, 1},
	             {50, 99.9, 50}, {20, 90, 18}, {63, 0, 1},    {0, 99, 0}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct hist *h = calloc(1, sizeof(*h));

		/* Below 64 ns values are exact. */
		for (unsigned v = 1; v <= cases[i].n; v++)
			hist_add(h, cases[i].n > 63 ? (v > 63 ? v : 63) : v);
		if (cases[i].n <= 63)
			assert_int_equal(hist_percentile(h, cases[i].p), cases[i].want);
		else
			assert_in_range(hist_percentile(h, cases[i].p), cases[i].want,
			                cases[i].want + 1);
		free(h);
	}
}

static void pattern__what_was_in_the_buffer_does_not_pass_for_what_was_read(void **state)
{
	struct ros2_err err = {0};
	uint8_t b[1300];

	for (size_t n = 1; n <= sizeof(b); n += 433) {
		pattern_fill(b, n, 7, 0, 1);
		pattern_spoil(b, n);
		assert_int_equal(pattern_check(b, n, 7, 0, 1, &err), -EBADMSG);
	}
	/* Half of a block of before, half of a new one. */
	pattern_fill(b, 1024, 7, 0, 1);
	pattern_fill(b, 512, 7, 0, 2);
	assert_int_equal(pattern_check(b, 1024, 7, 0, 2, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "offset 512: stale"));
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

static void pattern__knows_zeros_and_what_may_be_left_of_trimmed_blocks(void **state)
{
	struct ros2_err err = {0};
	uint8_t b[5000] = {0};

	assert_int_equal(pattern_check_zeros(b, sizeof(b), 40960, &err), 0);
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 40960, 3, &err), 0);
	b[4321] = 1;
	assert_int_equal(pattern_check_zeros(b, sizeof(b), 40960, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "offset 45281: 0x01"));
	memset(b, 0xff, sizeof(b));
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 40960, 3, &err), 0);
	assert_int_equal(pattern_check_zeros(b, sizeof(b), 40960, &err), -EBADMSG);
	/* As it was, and a part of it as zeros: each byte for itself. */
	pattern_fill(b, sizeof(b), 7, 40960, 3);
	memset(b + 700, 0, 1300);
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 40960, 3, &err), 0);
	/* Not what was there before that, nor another's. */
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 40960, 2, &err), -EBADMSG);
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 8, 40960, 3, &err), -EBADMSG);
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 0, 3, &err), -EBADMSG);
	/* Nor what was in the buffer. */
	pattern_spoil(b, sizeof(b));
	assert_int_equal(pattern_check_trimmed(b, sizeof(b), 7, 40960, 3, &err), -EBADMSG);
	memset(b, 0, sizeof(b));
	pattern_spoil(b, sizeof(b));
	assert_int_equal(pattern_check_zeros(b, sizeof(b), 40960, &err), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hist__percentiles_are_within_two_percent),
		cmocka_unit_test(hist__percentiles_are_those_of_fio),
		cmocka_unit_test(pattern__what_was_in_the_buffer_does_not_pass_for_what_was_read),
		cmocka_unit_test(pattern__tells_stale_misplaced_and_broken_apart),
		cmocka_unit_test(pattern__knows_zeros_and_what_may_be_left_of_trimmed_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
