/* SPDX-License-Identifier: Apache-2.0 */
/* What ros2ctl shows of text that tenants chose: nothing in it may drive the terminal, forge a line
 * or turn the direction of writing, in any output format. */
#include "tests/testing.h"
#include "common/clock.h"
#include "common/util.h"
#include "tools/ctl/ctl.h"

/* ESC, CSI as one character, DEL, right-to-left override; behind a line feed, which YAML would show
 * as a block */
#define HOSTILE                                                                                    \
	"x\nINTACT \x1b[2J\xc2\x9b"                                                                \
	"31m\x7f\xe2\x80\xae"                                                                      \
	"gnp"

/* What fn(arg) writes to stdout. */
static void capture(void (*fn)(void *), void *arg, char *out, size_t max)
{
	FILE *f = tmpfile();
	int saved = dup(STDOUT_FILENO);
	ssize_t n;

	assert_non_null(f);
	fflush(stdout);
	dup2(fileno(f), STDOUT_FILENO);
	fn(arg);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	n = pread(fileno(f), out, max - 1, 0);
	out[n > 0 ? n : 0] = '\0';
	fclose(f);
}

static void assert_harmless(const char *out)
{
	assert_non_null(strstr(out, "INTACT"));
	assert_null(strchr(out, 0x1b));
	assert_null(strstr(out, "\xc2\x9b"));
	assert_null(strstr(out, "\xe2\x80\xae"));
	assert_null(strstr(out, "\nINTACT"));
}

static void table(void *items)
{
	static const struct ctl_column columns[] = {
		{"NAME", "name", CTL_TEXT}, {"LIST", "list", CTL_TEXT}, {0}};

	ctl_print_table(columns, items);
}

static void ctl_table__escapes_what_a_tenant_named(void **state)
{
	json_t *items = json_pack("[{s:s,s:[s]}]", "name", HOSTILE, "list", HOSTILE);
	char out[2048];

	capture(table, items, out, sizeof(out));
	assert_harmless(out);
	assert_null(strchr(out, 0x7f));
	json_decref(items);
}

static void as_yaml(void *doc)
{
	struct ctl c = {.output = CTL_YAML};

	ctl_print_doc(&c, json_incref(doc));
}

static void as_json(void *doc)
{
	struct ctl c = {.output = CTL_JSON};

	ctl_print_doc(&c, json_incref(doc));
}

static void ctl_doc__escapes_what_a_tenant_named(void **state)
{
	json_t *doc = json_pack("{s:s,s:[s]}", "name", HOSTILE, "list", HOSTILE), *back;
	char out[2048];

	capture(as_yaml, doc, out, sizeof(out));
	assert_harmless(out);
	capture(as_json, doc, out, sizeof(out));
	assert_harmless(out);
	back = json_loads(out, 0, NULL); /* still the same text for a program */
	assert_true(json_equal(back, doc));
	json_decref(back);
	json_decref(doc);
}

static void ctl_doc__leaves_text_of_any_language_as_it_is(void **state)
{
	json_t *doc = json_pack("{s:s,s:s}", "name", "gr\xc3\xbc\xc3\x9f", "yaml", "a:\n\tb\n");
	char out[2048];

	capture(as_json, doc, out, sizeof(out));
	assert_non_null(strstr(out, "gr\xc3\xbc\xc3\x9f"));
	capture(as_yaml, doc, out, sizeof(out));
	assert_non_null(strstr(out, "gr\xc3\xbc\xc3\x9f"));
	assert_non_null(strstr(out, "yaml: |\n  a:\n  \tb\n"));
	json_decref(doc);
}

static void forged(void *items)
{
	static const struct ctl_column columns[] = {{"OBJECT", "object", CTL_TEXT},
	                                            {"ACTOR", "actor", CTL_TEXT},
	                                            {"REASON", "reason", CTL_TEXT},
	                                            {0}};

	ctl_print_table(columns, items);
}

/* A tenant names its files: an auditor would read what stands behind the blanks as who did it. */
static void ctl_table__shows_blanks_that_would_pass_for_the_end_of_a_column(void **state)
{
	static const struct {
		const char *named, *shown;
	} cases[] = {
		{"x   y", "x \\x20\\x20y"},
		{"my file", "my file"},
		{" ", "\\x20"},
		{"x\xc2\xa0\xe3\x80\x80y", "x\xc2\xa0\\xe3\\x80\\x80y"},
	};
	char out[2048], want[256];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *items = json_pack("[{s:s,s:s,s:s}]", "object", cases[i].named, "actor", "a",
		                          "reason", "as  it is");

		capture(forged, items, out, sizeof(out));
		snprintf(want, sizeof(want), "%-6s   a       as  it is\n", cases[i].shown);
		assert_string_equal(strchr(out, '\n') + 1, want);
		json_decref(items);
	}
}

/* Half a name is another's. */
static void ctl_table__says_what_it_leaves_out(void **state)
{
	json_t *items = json_pack("[{s:s,s:[]}]", "name", "", "list"), *item, *list;
	char out[4096], longest[300], name[16], *at;
	int n = 0;

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	item = json_array_get(items, 0);
	list = json_object_get(item, "list");
	json_object_set_new(item, "name", json_string(longest));
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "agent-%d", i);
		json_array_append_new(list, json_string(name));
	}
	capture(table, items, out, sizeof(out));
	at = strstr(out, "x...   agent-0,");
	assert_non_null(at);
	at += strlen("x...   ");
	for (; sscanf(at, "agent-%15[0-9],", name) == 1; at += strcspn(at, ",") + 1)
		assert_int_equal(atoi(name), n++);
	assert_in_range(n, 20, 99);
	assert_string_equal(at, "...\n");
	json_decref(items);
}

static void far_off(void *items)
{
	static const struct ctl_column columns[] = {
		{"MS", "ms", CTL_MS}, {"S", "s", CTL_TIME_UNIX_S}, {0}};

	ctl_print_table(columns, items);
}

static void ctl_table__shows_no_time_that_is_too_far_off_as_a_near_one(void **state)
{
	json_t *items =
		json_pack("[{s:I,s:I}]", "ms", (json_int_t)1 << 58, "s", (json_int_t)1 << 55);
	char out[2048];

	capture(far_off, items, out, sizeof(out));
	assert_string_equal(strchr(out, '\n') + 1, "213504d   2554-07-21T23:34:33.709551Z\n");
	json_decref(items);
}

/* Half of a character, or DEL as it is, and those who read YAML refuse the whole document. */
static void ctl_doc__yaml_escapes_as_yaml_does(void **state)
{
	static const struct {
		const char *text, *shown;
		size_t n;
	} cases[] = {
		{"\xf3\xa0\x81\x81", "t: \"\\U000e0041\"\n", 4},
		{"\xf0\x9f\x98\x80\x1b\"\\", "t: \"\xf0\x9f\x98\x80\\x1b\\\"\\\\\"\n", 7},
		{"\x7f", "t: \"\\x7f\"\n", 1},
		{"a\nb\0c", "t: \"a\\x0ab\\x00c\"\n", 5},
	};
	char out[2048];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *doc = json_object();

		json_object_set_new(doc, "t", json_stringn(cases[i].text, cases[i].n));
		capture(as_yaml, doc, out, sizeof(out));
		assert_string_equal(out, cases[i].shown);
		json_decref(doc);
	}
}

static void times(void *items)
{
	static const struct ctl_column columns[] = {{"BOUND", "bound", CTL_MS},
	                                            {"AGE", "never", CTL_AGE_UNIX_NS},
	                                            {"AT", "never", CTL_TIME_UNIX_NS},
	                                            {0}};

	ctl_print_table(columns, items);
}

static void ctl_table__shows_ten_minutes_as_such_and_what_never_was_as_nothing(void **state)
{
	json_t *items = json_pack("[{s:i,s:i}]", "bound", 600000, "never", 0);
	char out[2048];

	capture(times, items, out, sizeof(out));
	assert_string_equal(strchr(out, '\n') + 1, "10m     -     -\n");
	json_decref(items);
}

static void narrow(void *items)
{
	static const struct ctl_column columns[] = {{"NAME", "name", CTL_TEXT},
	                                            {"EMPTY", "empty", CTL_TEXT},
	                                            {"AGE", "at", CTL_AGE_UNIX_NS},
	                                            {"PEER", "peer", CTL_TEXT, .wide = true},
	                                            {"ENDS", "s", CTL_TIME_UNIX_S, .wide = true},
	                                            {0}};

	ctl_print_columns(columns, items, json_array_size(items) > 1);
}

/* Whoever takes a table apart by its blanks finds as many cells in each row as there are titles. */
static void ctl_table__has_no_empty_cell_and_wide_columns_only_when_asked(void **state)
{
	json_t *items = json_pack("[{s:s,s:s,s:I,s:s,s:I}]", "name", "a", "empty", "", "at",
	                          (json_int_t)(clock_unix_ns() - 1900 * NS_PER_MS), "peer", "p",
	                          "s", (json_int_t)86400);
	char out[2048];
	unsigned tenths = 0;

	capture(narrow, items, out, sizeof(out));
	assert_int_equal(sscanf(out, "NAME EMPTY AGE a - %*u.%us", &tenths), 1);
	assert_null(strstr(out, "PEER"));
	json_array_append(items, json_array_get(items, 0));
	capture(narrow, items, out, sizeof(out));
	assert_non_null(strstr(out, "PEER   ENDS"));
	assert_non_null(strstr(out, "p      1970-01-02T00:00:00"));
	json_decref(items);
}

static void ctl_doc__yaml_keeps_the_end_of_a_text_to_the_byte(void **state)
{
	static const struct {
		const char *text, *shown;
	} cases[] = {
		{"a\nb", "t: |-\n  a\n  b\n"},
		{"a\nb\n", "t: |\n  a\n  b\n"},
		{"a\nb\n\n", "t: |+\n  a\n  b\n  \n"},
		{" a\nb\n", "t: \" a\\nb\\n\"\n"}, /* its indent would be taken for the block's */
		{"\ta\nb\n", "t: \"\\ta\\nb\\n\"\n"}, /* libyaml does not take it in a block */
	};
	char out[2048];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *doc = json_pack("{s:s}", "t", cases[i].text);

		capture(as_yaml, doc, out, sizeof(out));
		assert_string_equal(out, cases[i].shown);
		json_decref(doc);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ctl_table__escapes_what_a_tenant_named),
		cmocka_unit_test(ctl_doc__escapes_what_a_tenant_named),
		cmocka_unit_test(ctl_table__shows_blanks_that_would_pass_for_the_end_of_a_column),
		cmocka_unit_test(ctl_table__says_what_it_leaves_out),
		cmocka_unit_test(ctl_table__shows_no_time_that_is_too_far_off_as_a_near_one),
		cmocka_unit_test(ctl_doc__yaml_escapes_as_yaml_does),
		cmocka_unit_test(ctl_doc__leaves_text_of_any_language_as_it_is),
		cmocka_unit_test(
			ctl_table__shows_ten_minutes_as_such_and_what_never_was_as_nothing),
		cmocka_unit_test(ctl_table__has_no_empty_cell_and_wide_columns_only_when_asked),
		cmocka_unit_test(ctl_doc__yaml_keeps_the_end_of_a_text_to_the_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
