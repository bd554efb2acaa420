/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is stored of a file is each document's own text, and a controller that cannot read one of
 * them again does not start: so whatever is accepted, however it stands in its file, is the same
 * document alone.
 */
#include "tests/policy/policy_testing.h"

#define X    "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: x}\n"
#define Y    "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: y}\n"
#define FLOW "{apiVersion: ros2/v1, kind: Agent, metadata: {name: x}}\n"

static void same_when_read_again(const struct policy_doc *d)
{
	struct policy_source src = {.name = d->file,
	                            .text = d->text,
	                            .len = strlen(d->text),
	                            .first_line = d->line,
	                            .stored = true};
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *again = NULL;

	/* that is read only because it once was written */
	assert_null(memchr(d->text, '\t', strspn(d->text, " \t")));
	if (policy_parse(&src, 1, &again, &diags) != 0)
		fail_msg("stored as `%.40s...` it is refused: %s", d->text,
		         policy_diags_first_error(&diags)->msg);
	assert_int_equal(policy_set_count(again), 1);
	assert_string_equal(policy_set_at(again, 0)->canonical, d->canonical);
	assert_int_equal(policy_set_at(again, 0)->name_line, d->name_line);
	policy_set_free(again);
	policy_diags_fini(&diags);
}

static void all_same_when_read_again(const char *text, size_t len, size_t documents)
{
	struct policy_set *s = parse_good("x.yaml", text, len);

	assert_int_equal(policy_set_count(s), documents);
	for (size_t i = 0; i < documents; i++)
		same_when_read_again(policy_set_at(s, i));
	policy_set_free(s);
}

static void stored__is_the_same_document_whatever_stands_beside_the_marker(void **state)
{
	static const struct {
		const char *text;
		size_t documents;
	} rows[] = {
		{X, 1},
		{"---\t# of rack 7\n" X, 1},
		{"--- \t# of rack 7\n" X, 1},
		{"--- # of rack 7\n" X, 1},
		{"---\t\r\n" X, 1},
		{"---\t" FLOW, 1},
		{"--- " FLOW, 1},
		{"---\n" FLOW, 1},
		{"---\n{apiVersion: ros2/v1,\nkind: Agent, metadata: {name: x}\n}\n", 1},
		{X "---\t# of rack 8\n" Y, 2},
		{X "---\t\n" Y, 2},
		{X "... # end\n---\t# of rack 8\n" Y, 2},
		{X "...\n---\n" Y, 2},
		{"%YAML 1.1\n---\n" X, 1},
		{"%YAML 1.1\n---\t# of rack 7\n" X, 1},
		{"---\n  apiVersion: ros2/v1\n  kind: Agent\n  metadata: {name: x}\n", 1},
		{"---\t# of rack 7\n  apiVersion: ros2/v1\n  kind: Agent\n  metadata: {name: x}\n",
	         1},
		{"  apiVersion: ros2/v1\n  kind: Agent\n  metadata: {name: x}\n", 1},
		{"\xef\xbb\xbf  apiVersion: ros2/v1\n  kind: Agent\n  metadata: {name: x}\n", 1},
		{"\xef\xbb\xbf---\t# of rack 7\n" X, 1},
		{"---\n? apiVersion\n: ros2/v1\n? kind\n: Agent\n? metadata\n: {name: x}\n", 1},
		{"---\n" X "  # the last line has no end", 1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		all_same_when_read_again(rows[i].text, strlen(rows[i].text), rows[i].documents);
}

/* Each byte of white space or mark that a typist may leave, at each place of a file of two: what is
 * accepted is the same alone. */
static void stored__is_the_same_document_whatever_is_typed_into_the_file(void **state)
{
	static const char file[] = "%YAML 1.1\n--- # one\n" X "... # of one\n---\n  # two\n" Y;
	static const char *const typed[] = {" ", "\t",     "\n",    "\r\n",
	                                    "#", " # c\t", "---\t", "...\t"};
	char text[sizeof(file) + 8];
	unsigned accepted = 0;

	for (size_t at = 0; at < sizeof(file); at++) {
		for (size_t k = 0; k < ARRAY_SIZE(typed); k++) {
			struct policy_diags d = POLICY_DIAGS_INIT;
			struct policy_set *s = NULL;

			snprintf(text, sizeof(text), "%.*s%s%s", (int)at, file, typed[k],
			         file + at);
			accepted += parse_text_into(text, &s, &d) == 0;
			for (size_t i = 0; s && i < policy_set_count(s); i++)
				same_when_read_again(policy_set_at(s, i));
			policy_set_free(s);
			policy_diags_fini(&d);
		}
	}
	assert_true(accepted > sizeof(file)); /* not just refusals */
}

/* A file of just the size that is taken, whose last line has no end: its stored text has one. */
static void stored__may_be_as_long_as_what_is_taken_and_its_last_line_end(void **state)
{
	size_t n = POLICY_SOURCE_MAX;
	char *text = malloc(n + 1);

	memset(text, '#', n);
	text[n] = '\0';
	for (size_t i = sizeof(X) - 1; i + 100 < n; i += 100)
		text[i] = '\n';
	memcpy(text, X, sizeof(X) - 1);
	all_same_when_read_again(text, n, 1);
	free(text);
}

/* They were stored so until 2026, and are read. */
static void stored__of_an_older_controller_may_begin_with_the_tab_behind_the_marker(void **state)
{
	static const char *const texts[] = {"\t# of rack 7\n" X, " \t# of rack 7\n" X, "\t" FLOW};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct policy_source src = {"x.yaml", texts[i], strlen(texts[i]), 1, true};
		struct policy_diags d = POLICY_DIAGS_INIT;
		struct policy_set *s = NULL;

		assert_int_equal(policy_parse(&src, 1, &s, &d), 0);
		assert_string_equal(policy_set_at(s, 0)->name, "x");
		policy_set_free(s);
		src.stored = false; /* what is written today is judged */
		assert_int_equal(policy_parse(&src, 1, &s, &d), -EINVAL);
		policy_diags_fini(&d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stored__is_the_same_document_whatever_stands_beside_the_marker),
		cmocka_unit_test(stored__is_the_same_document_whatever_is_typed_into_the_file),
		cmocka_unit_test(stored__may_be_as_long_as_what_is_taken_and_its_last_line_end),
		cmocka_unit_test(
			stored__of_an_older_controller_may_begin_with_the_tab_behind_the_marker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
