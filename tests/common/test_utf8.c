/* SPDX-License-Identifier: Apache-2.0 */
/* What is UTF-8, what may be shown, and how the rest is shown. */
#include "tests/testing.h"
#include "common/err.h"
#include "common/utf8.h"
#include "common/util.h"
#include <errno.h>

static size_t encode(uint32_t cp, char out[5])
{
	size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

	for (size_t i = n; i-- > 1; cp >>= 6)
		out[i] = (char)(0x80 | (cp & 0x3f));
	out[0] = (char)(lead[n] | cp);
	out[n] = '\0';
	return n;
}

static void utf8_decode__reads_every_character_and_no_surrogate(void **state)
{
	for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
		bool surrogate = cp >= 0xd800 && cp <= 0xdfff;
		uint32_t back = 0;
		char s[5];
		size_t n = encode(cp, s);

		if (utf8_decode(s, n, &back) != (surrogate ? 0 : n) || (!surrogate && back != cp))
			fail_msg("U+%04X", cp);
		if (n > 1 && utf8_decode(s, n - 1, &back))
			fail_msg("U+%04X cut", cp);
	}
}

static void utf8_decode__refuses_other_spellings(void **state)
{
	static const char *const bad[] = {
		"\x80",
		"\xbf",
		"\xc0\x80",
		"\xc1\xbf",
		"\xc2",
		"\xc2\x20",
		"\xe0\x80\x80",
		"\xe0\x9f\xbf",
		"\xed\xa0\x80",
		"\xe2\x80",
		"\xf0\x80\x80\x80",
		"\xf0\x8f\xbf\xbf",
		"\xff",
		"\xf4\x90\x80\x80",
		"\xf8\x88\x80\x80\x80",
		"\xfe",
	};
	uint32_t cp;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (utf8_decode(bad[i], strlen(bad[i]), &cp))
			fail_msg("spelling %zu was taken for U+%04X", i, cp);
	assert_int_equal(utf8_decode("", 0, &cp), 0);
}

static void utf8_escape__shows_what_could_forge_a_line_or_a_name(void **state)
{
	static const struct {
		const char *in, *out;
	} table[] = {
		{"", ""},
		{"plain \\ gr\xc3\xbc\xc3\x9f", "plain \\ gr\xc3\xbc\xc3\x9f"},
		{"a\nb\tc\x1b[2J\x7f", "a\\x0ab\\x09c\\x1b[2J\\x7f"},
		{"\xc2\x9b"
	         "31m",
	         "\\xc2\\x9b31m"}, /* CSI as one character */
		{"\x9b"
	         "31m",
	         "\\x9b31m"}, /* and as one byte */
		{"a\xe2\x80\xae"
	         "b",
	         "a\\xe2\\x80\\xaeb"}, /* right-to-left override */
		{"a\xe2\x81\xa6"
	         "b",
	         "a\\xe2\\x81\\xa6b"}, /* isolate */
		{"a\xe2\x80\xa8"
	         "b",
	         "a\\xe2\\x80\\xa8b"}, /* line separator */
		{"a\xe2\x80\x8b"
	         "b",
	         "a\\xe2\\x80\\x8bb"}, /* zero width space */
		{"a\xe2\x80\x8d"
	         "b",
	         "a\xe2\x80\x8d"
	         "b"}, /* joiner: writing needs it */
		{"\xf0\x9f\x9a\x80", "\xf0\x9f\x9a\x80"},
		{"\xef\xbf\xbf", "\\xef\\xbf\\xbf"},
		{"cut \xe2\x82", "cut \\xe2\\x82"},
	};
	char out[64];

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		assert_int_equal(utf8_escape(table[i].in, out, sizeof(out)), strlen(table[i].out));
		assert_string_equal(out, table[i].out);
		assert_int_equal(utf8_text_printable(table[i].in),
		                 !strcmp(table[i].in, table[i].out));
	}
}

static void utf8_escape__never_writes_half_of_anything(void **state)
{
	static const char in[] = "a\xe2\x82\xac\n\xf0\x9f\x9a\x80z";
	static const size_t whole[] = {0, 1, 4, 8, 12, 13};

	for (size_t max = 1; max <= 16; max++) {
		AUTO_FREE char *out = malloc(max);
		size_t n = utf8_escape(in, out, max), i = 0;

		assert_true(n < max);
		assert_int_equal(strlen(out), n);
		while (i < ARRAY_SIZE(whole) && whole[i] != n)
			i++;
		assert_true(i < ARRAY_SIZE(whole));
	}
}

/* The words of an error go into messages, whose strings must be UTF-8, and are one line. */
static void err__words_are_one_line_of_utf8_whatever_was_printed(void **state)
{
	char path[600];
	struct ros2_err err = ROS2_ERR_INIT;

	for (size_t i = 0; i + 2 < sizeof(path); i += 2)
		memcpy(path + i, "\xc3\xbc", 3);
	for (int cut = 1; cut < 6; cut++) {
		ros2_err_set(&err, -EINVAL, "%.*s", cut, path);
		assert_true(utf8_text_printable(err.msg));
		ros2_err_set(&err, -EINVAL, "%*s%s", cut, "", path);
		assert_true(utf8_text_printable(err.msg));
		ros2_err_prefix(&err, "%*s%s", cut, "", path);
		assert_true(utf8_text_printable(err.msg));
		ros2_err_named(&err, ROS2_DENIED, "a\nb\x1b[2J \xc3\xbc");
		assert_string_equal(err.msg, "a?b?[2J \xc3\xbc");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8_decode__reads_every_character_and_no_surrogate),
		cmocka_unit_test(utf8_decode__refuses_other_spellings),
		cmocka_unit_test(utf8_escape__shows_what_could_forge_a_line_or_a_name),
		cmocka_unit_test(utf8_escape__never_writes_half_of_anything),
		cmocka_unit_test(err__words_are_one_line_of_utf8_whatever_was_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
