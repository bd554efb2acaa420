/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities: what people may write, what is refused, and that formatting gives back the same
 * number. */
#include "tests/policy/policy_testing.h"
#include "policy/diags.h"
#include "policy/units.h"

static const struct {
	enum unit_kind kind;
	const char *text;
	uint64_t value;
} good[] = {
	{UNIT_COUNT, "0", 0},
	{UNIT_COUNT, "64", 64},
	{UNIT_COUNT, "18446744073709551615", UINT64_MAX},
	{UNIT_OPS, "500", 500},
	{UNIT_OPS, "400k", 400000},
	{UNIT_OPS, "1.5M", 1500000},
	{UNIT_BYTES, "0B", 0},
	{UNIT_BYTES, "1B", 1},
	{UNIT_BYTES, "4KiB", 4096},
	{UNIT_BYTES, "1.5GiB", 3ull << 29},
	{UNIT_BYTES, "0.125KiB", 128},
	{UNIT_BYTES, "16777215TiB", 16777215ull << 40},
	{UNIT_RATE, "4GiB/s", 4ull << 30},
	{UNIT_RATE, "500MiB/s", 500ull << 20},
	{UNIT_DURATION, "100ms", 100},
	{UNIT_DURATION, "30s", 30000},
	{UNIT_DURATION, "0.25s", 250},
	{UNIT_DURATION, "10m", 600000},
	{UNIT_DURATION, "1.5h", 5400000},
	{UNIT_DURATION, "7d", 604800000},
};

static void unit_parse__reads_what_people_write(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		const char *why;
		uint64_t v = 1;

		if (unit_parse(good[i].kind, good[i].text, &v, &why) < 0)
			fail_msg("%s: expected %s", good[i].text, why);
		assert_int_equal(v, good[i].value);
	}
}

static void unit_parse__refuses_what_could_be_meant_in_two_ways(void **state)
{
	static const struct {
		enum unit_kind kind;
		const char *text;
	} bad[] = {
		{UNIT_COUNT, ""},
		{UNIT_COUNT, "-1"},
		{UNIT_COUNT, "+1"},
		{UNIT_COUNT, "010"},
		{UNIT_COUNT, "0x10"},
		{UNIT_COUNT, "1_000"},
		{UNIT_COUNT, "1,000"},
		{UNIT_COUNT, "1e3"},
		{UNIT_COUNT, " 1"},
		{UNIT_COUNT, "1 "},
		{UNIT_COUNT, "1.5"},
		{UNIT_COUNT, "4k"},
		{UNIT_COUNT, "18446744073709551616"},
		{UNIT_OPS, "100K"},
		{UNIT_OPS, "1m"},
		{UNIT_OPS, "1k/s"},
		{UNIT_OPS, "0.0001k"},
		{UNIT_OPS, "1.k"},
		{UNIT_OPS, ".5k"},
		{UNIT_OPS, "18446744073709551615k"},
		{UNIT_BYTES, "64"},
		{UNIT_BYTES, "64MB"},
		{UNIT_BYTES, "64M"},
		{UNIT_BYTES, "64 MiB"},
		{UNIT_BYTES, "64mib"},
		{UNIT_BYTES, "MiB"},
		{UNIT_BYTES, "1.1KiB"},
		{UNIT_BYTES, "0.5B"},
		{UNIT_BYTES, "16777216TiB"},
		{UNIT_BYTES, "16777215.9999TiB"},
		{UNIT_RATE, "1GiB"},
		{UNIT_RATE, "1Gb/s"},
		{UNIT_RATE, "1GB/s"},
		{UNIT_RATE, "1GiB/h"},
		{UNIT_RATE, "1"},
		{UNIT_DURATION, "30"},
		{UNIT_DURATION, "1M"},
		{UNIT_DURATION, "100us"},
		{UNIT_DURATION, "1h30m"},
		{UNIT_DURATION, "inf"},
		{UNIT_DURATION, "1.5ms"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *why = NULL;
		uint64_t v = 4711;

		if (unit_parse(bad[i].kind, bad[i].text, &v, &why) != -EINVAL)
			fail_msg("`%s` was accepted as %llu", bad[i].text, (unsigned long long)v);
		assert_int_equal(v, 4711);
		assert_non_null(why);
	}
}

static void unit_format__gives_back_the_same_number(void **state)
{
	static const uint64_t values[] = {
		0,          1,          2,          999,     1000,       1023,
		1024,       1025,       59999,      60000,   3600000,    86400000,
		86400001,   1ull << 20, 1ull << 40, 1500000, UINT64_MAX, UINT64_MAX - 1,
		3ull << 29,
	};

	for (int kind = UNIT_COUNT; kind <= UNIT_DURATION; kind++) {
		for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
			char text[UNIT_STR_LEN];
			const char *why;
			uint64_t v;

			unit_format((enum unit_kind)kind, values[i], text);
			assert_int_equal(unit_parse((enum unit_kind)kind, text, &v, &why), 0);
			assert_int_equal(v, values[i]);
		}
	}
}

static void diag_suggest__finds_the_near_word_and_no_far_one(void **state)
{
	static const char *const words[] = {"regions", "regionSize", "alignment", NULL, "max"};
	size_t n = ARRAY_SIZE(words);
	char longer[100];

	assert_string_equal(diag_suggest("region", words, n), "regions");
	assert_string_equal(diag_suggest("REGIONSIZE", words, n), "regionSize");
	assert_string_equal(diag_suggest("alignemnt", words, n), "alignment");
	assert_string_equal(diag_suggest("mx", words, n), "max");
	assert_null(diag_suggest("bandwidth", words, n));
	assert_null(diag_suggest("a", words, n));
	assert_null(diag_suggest("", words, n));
	memset(longer, 'a', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_null(diag_suggest(longer, words, n));
}

static void diag_quote__lets_nothing_drive_a_terminal(void **state)
{
	char q[DIAG_QUOTE_MAX], text[200];

	assert_string_equal(diag_quote("a\x1b[31m\n\x7f", q), "`a\\x1b[31m\\x0a\\x7f`");
	assert_string_equal(diag_quote("\xc2\x9b"
	                               "1m",
	                               q),
	                    "`\\xc2\\x9b1m`");
	for (size_t lead = 0; lead < 4; lead++) {
		/* wherever the cut falls, what remains is whole characters */
		memset(text, 'x', lead);
		for (size_t i = lead; i + 3 <= sizeof(text); i += 3)
			memcpy(text + i, "\xe2\x82\xac", 3);
		text[lead + 150] = '\0';
		diag_quote(text, q);
		assert_true(strlen(q) < sizeof(q));
		assert_int_equal((strlen(q) - lead - 5) % 3, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unit_parse__reads_what_people_write),
		cmocka_unit_test(unit_parse__refuses_what_could_be_meant_in_two_ways),
		cmocka_unit_test(unit_format__gives_back_the_same_number),
		cmocka_unit_test(diag_suggest__finds_the_near_word_and_no_far_one),
		cmocka_unit_test(diag_quote__lets_nothing_drive_a_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
