/* SPDX-License-Identifier: Apache-2.0 */
/* The operational log: its levels, its escaping, its bound per line and per second. */
#include "tests/testing.h"
#include "common/log.h"
#include "common/clock.h"
#include <errno.h>
#include <fcntl.h>

/* What fn(arg) writes to stderr. */
static void capture(void (*fn)(const char *), const char *arg, char *out, size_t max)
{
	FILE *f = tmpfile();
	int saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_non_null(f);
	dup2(fileno(f), STDERR_FILENO);
	fn(arg);
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fileno(f), out, max - 1, 0);
	out[n > 0 ? n : 0] = '\0';
	fclose(f);
}

static void write_words(const char *words)
{
	log_write(LOG_LEVEL_WARN, "test", "%s", words);
}

static void log__writes_one_line_with_time_level_and_component(void **state)
{
	char out[2048];

	capture(write_words, "hello", out, sizeof(out));
	assert_int_equal(out[4], '-');
	assert_non_null(strstr(out, "Z warn test: hello\n"));
}

static void log__escapes_what_could_forge_a_line_or_move_the_cursor(void **state)
{
	char out[2048];

	capture(write_words, "a\nb\x1b[2Jc\x7f\xc2\x9b gr\xc3\xbc\xc3\x9f", out, sizeof(out));
	assert_non_null(strstr(out, "a\\x0ab\\x1b[2Jc\\x7f\\xc2\\x9b gr\xc3\xbc\xc3\x9f\n"));
}

static void log__bounds_a_line(void **state)
{
	char words[5000], out[4096];

	memset(words, 1, sizeof(words) - 1);
	words[sizeof(words) - 1] = '\0';
	capture(write_words, words, out, sizeof(out));
	assert_true(strlen(out) <= 1024);
	assert_int_equal(out[strlen(out) - 1], '\n');
	memset(words, 'x', sizeof(words) - 1);
	capture(write_words, words, out, sizeof(out));
	assert_true(strlen(out) <= 1024);
	assert_int_equal(out[strlen(out) - 1], '\n');
}

static void log__keeps_errno(void **state)
{
	char out[2048];

	errno = EXDEV;
	capture(write_words, "x", out, sizeof(out));
	errno = EXDEV;
	log_write(LOG_LEVEL_DEBUG, "test", "%s", "");
	assert_int_equal(errno, EXDEV);
}

static void log__level_words_are_checked(void **state)
{
	assert_int_equal(log_set_level_str("warn"), 0);
	assert_false(log_enabled(LOG_LEVEL_INFO));
	assert_true(log_enabled(LOG_LEVEL_WARN));
	assert_int_equal(log_set_level_str("verbose"), -EINVAL);
	assert_int_equal(log_set_level_str(""), -EINVAL);
	assert_true(log_enabled(LOG_LEVEL_ERROR));
	log_set_level(LOG_LEVEL_INFO);
}

static void log_limit__passes_ten_a_second_and_counts_the_rest(void **state)
{
	struct log_limit l = {0};
	int passed = 0;

	for (int i = 0; i < 25; i++)
		passed += log_limit_pass(&l);
	assert_int_equal(passed, 10);
	assert_int_equal(l.swallowed, 15);
	l.window_start_ns -= NS_PER_S;
	assert_true(log_limit_pass(&l));
}

static void clock__formats_the_wall_clock(void **state)
{
	char out[32];

	clock_format_unix_ns(1767225600123456789ull, out);
	assert_string_equal(out, "2026-01-01T00:00:00.123456Z");
	clock_format_unix_ns(0, out);
	assert_string_equal(out, "1970-01-01T00:00:00.000000Z");
	clock_format_unix_ns(UINT64_MAX, out);
	assert_string_equal(out, "2554-07-21T23:34:33.709551Z");
}

static void clock__addition_saturates(void **state)
{
	assert_true(clock_add_ns(1, 2) == 3);
	assert_true(clock_add_ns(UINT64_MAX, 1) == UINT64_MAX);
	assert_true(clock_add_ns(1ull << 63, 1ull << 63) == UINT64_MAX);
}

static void clock__stamps_of_one_boot_compare(void **state)
{
	struct clock_stamp a, b;

	assert_int_equal(clock_stamp_now(&a), 0);
	assert_int_equal(clock_stamp_now(&b), 0);
	assert_true(clock_stamp_same_boot(&a, &b));
	assert_true(b.boottime_ns >= a.boottime_ns);
	b.boot_id[15] ^= 1;
	assert_false(clock_stamp_same_boot(&a, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log__writes_one_line_with_time_level_and_component),
		cmocka_unit_test(log__escapes_what_could_forge_a_line_or_move_the_cursor),
		cmocka_unit_test(log__bounds_a_line),
		cmocka_unit_test(log__keeps_errno),
		cmocka_unit_test(log__level_words_are_checked),
		cmocka_unit_test(log_limit__passes_ten_a_second_and_counts_the_rest),
		cmocka_unit_test(clock__formats_the_wall_clock),
		cmocka_unit_test(clock__addition_saturates),
		cmocka_unit_test(clock__stamps_of_one_boot_compare),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
