/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to an image: patterns, first match, defaults, hostile paths, placement, and that
 * explain says the same. */
#include "tests/policy/policy_testing.h"
#include "policy/text.h"

static void patterns__match_by_segments(void **state)
{
	static const struct {
		const char *pattern, *path;
		bool match;
	} table[] = {
		{"/", "", true},
		{"/", "a", false},
		{"/a", "a", true},
		{"/a", "ab", false},
		{"/a", "a/b", false},
		{"/*", "", false},
		{"/*", "a", true},
		{"/*", "a/b", false},
		{"/*/b", "a/b", true},
		{"/*/b", "b", false},
		{"/a*c", "abc", true},
		{"/a*c", "ac", true},
		{"/a*c", "a/c", false},
		{"/a*b*c", "aXbXbYc", true},
		{"/a*b*c", "aXcXb", false},
		{"/*.tmp", "x.tmp", true},
		{"/*.tmp", "x.tmp.gz", false},
		{"/**", "", true},
		{"/**", "a", true},
		{"/**", "a/b/c", true},
		{"/a/**", "a", true},
		{"/a/**", "a/b", true},
		{"/a/**", "ab", false},
		{"/a/**", "", false},
		{"/**/b", "b", true},
		{"/**/b", "a/b", true},
		{"/**/b", "a/b/c", false},
		{"/**/b", "x/b/y/b", true},
		{"/a/**/z", "a/z", true},
		{"/a/**/z", "a/b/c/z", true},
		{"/a/**/z", "a/z/y", false},
		{"/a/**/b/**/c", "a/1/b/2/3/c", true},
		{"/a/**/b/**/c", "a/1/2/c", false},
		{"/**/**", "a", true},
		{"/**/*", "", false},
		{"/**/*", "a/b", true},
		{"/**/a*/x", "ab/ac/y/ad/x", true},
		{"/*", "*", true},
		{"/a", "*", false},
		{"/**", "**", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		assert_null(text_pattern_fault(table[i].pattern));
		if (text_pattern_match(table[i].pattern, table[i].path) != table[i].match)
			fail_msg("%s on `%s`: expected %d", table[i].pattern, table[i].path,
			         table[i].match);
	}
}

/* The plainest matcher there is, to compare with: tries everything. */
static bool plain_segment(const char *p, size_t np, const char *t, size_t nt)
{
	if (!np)
		return !nt;
	if (*p == '*')
		return plain_segment(p + 1, np - 1, t, nt) ||
		       (nt && plain_segment(p, np, t + 1, nt - 1));
	return nt && *p == *t && plain_segment(p + 1, np - 1, t + 1, nt - 1);
}

static bool plain_match(const char *p, const char *t)
{
	size_t np = strcspn(p, "/"), nt = strcspn(t, "/");
	const char *p_rest = p + np + (p[np] == '/'), *t_rest = t + nt + (t[nt] == '/');

	if (!*p)
		return !*t;
	if (np == 2 && !strncmp(p, "**", 2))
		return plain_match(p_rest, t) || (*t && plain_match(p, t_rest));
	return *t && plain_segment(p, np, t, nt) && plain_match(p_rest, t_rest);
}

static void patterns__agree_with_the_plainest_matcher(void **state)
{
	static const char alphabet[] = "ab*/";
	unsigned compared = 0, matched = 0;
	char pattern[16], path[16];

	srand(7);
	for (int i = 0; i < 200000; i++) {
		size_t np = (size_t)rand() % 8, nt = (size_t)rand() % 7;

		pattern[0] = '/';
		for (size_t j = 1; j <= np; j++)
			pattern[j] = alphabet[rand() % 4];
		pattern[np + 1] = '\0';
		for (size_t j = 0; j < nt; j++)
			path[j] = "ab/"[rand() % 3];
		path[nt] = '\0';
		if (text_pattern_fault(pattern) || text_question_path(path) != path)
			continue;
		compared++;
		matched += text_pattern_match(pattern, path);
		if (text_pattern_match(pattern, path) != plain_match(pattern + 1, path))
			fail_msg("%s on `%s`: %d", pattern, path,
			         text_pattern_match(pattern, path));
	}
	assert_true(compared > 10000 && matched > 1000);
}

struct asked {
	struct policy_set *set;
	void *bytes;
	struct policy_image_tenant image;
};

static struct asked ask(const char *namespaces)
{
	struct asked a;
	char text[4096];
	size_t len;

	snprintf(text, sizeof(text), TENANT_HEAD "  namespaces:\n%s", namespaces);
	a.set = parse_good("t.yaml", text, strlen(text));
	a.bytes = compile_good(policy_set_at(a.set, 0), &len);
	assert_int_equal(policy_image_open_tenant(a.bytes, len, &a.image, NULL), 0);
	return a;
}

static void done(struct asked *a)
{
	free(a->bytes);
	policy_set_free(a->set);
}

/* The image's answer, after seeing that explain gives the same. */
static struct policy_verdict answer(const struct asked *a, const char *name, const char *path,
                                    uint32_t wanted)
{
	struct policy_explanation e;
	struct policy_namespace ns;
	struct policy_verdict v;

	assert_int_equal(policy_namespace_find(&a->image, name, &ns), 0);
	v = policy_eval_path(&a->image, &ns, path, wanted);
	assert_int_equal(policy_explain(policy_set_at(a->set, 0), name, path, wanted, &e), 0);
	assert_int_equal(e.verdict.allowed, v.allowed);
	assert_int_equal(e.verdict.rule, v.rule);
	assert_int_equal(e.verdict.reason, v.reason);
	return v;
}

#define R  POLICY_ACCESS_READ
#define W  POLICY_ACCESS_WRITE
#define RW POLICY_ACCESS_ALL

static void policy_eval__takes_the_first_rule_that_matches(void **state)
{
	static const struct {
		const char *path;
		uint32_t wanted;
		bool allowed;
		int rule;
		enum policy_reason reason;
	} table[] = {
		{"models/a", R, true, 0, POLICY_BY_RULE},
		{"/models/a", R, true, 0, POLICY_BY_RULE},
		{"models/a", W, false, 0, POLICY_BY_RULE},
		{"models/a", RW, false, 0, POLICY_BY_RULE},
		{"models", R, true, 0, POLICY_BY_RULE},
		{"secret", R, false, 1, POLICY_BY_RULE},
		{"secret/models", R, false, 1, POLICY_BY_RULE},
		{"out/x.log", W, true, 2, POLICY_BY_RULE},
		{"out/x.log", R, false, 2, POLICY_BY_RULE},
		{"out/x.txt", R, false, -1, POLICY_NO_RULE},
		{"", R, false, -1, POLICY_NO_RULE},
		{"/", R, false, -1, POLICY_NO_RULE},
		{"models/../secret/x", R, false, -1, POLICY_BAD_PATH},
		{"models/./a", R, false, -1, POLICY_BAD_PATH},
		{"models//a", R, false, -1, POLICY_BAD_PATH},
		{"models/a/", R, false, -1, POLICY_BAD_PATH},
		{"//models", R, false, -1, POLICY_BAD_PATH},
		{"models/a\n", R, false, -1, POLICY_BAD_PATH},
		{"..", R, false, -1, POLICY_BAD_PATH},
		{"models/a", 0, false, -1, POLICY_BAD_QUESTION},
		{"models/a", 4, false, -1, POLICY_BAD_QUESTION},
		{"models/a", 0x80000001u, false, -1, POLICY_BAD_QUESTION},
	};
	struct asked a =
		ask("    - name: data\n      engine: files\n      path: t\n      access: rw\n"
	            "      paths:\n"
	            "        - {pattern: /models/**, access: r}\n"
	            "        - {pattern: /secret/**, access: none}\n"
	            "        - {pattern: /out/*.log, access: w}\n");

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct policy_verdict v = answer(&a, "data", table[i].path, table[i].wanted);

		if (v.allowed != table[i].allowed || v.rule != table[i].rule ||
		    v.reason != table[i].reason)
			fail_msg("`%s` %u: found %d, rule %d, %s", table[i].path, table[i].wanted,
			         v.allowed, v.rule, policy_reason_to_str(v.reason));
	}
	done(&a);
}

static void policy_eval__without_rules_gives_the_namespaces_access(void **state)
{
	struct asked a = ask("    - {name: ro, engine: files, path: t, access: r}\n"
	                     "    - {name: wo, engine: files, path: u, access: w}\n");

	assert_true(answer(&a, "ro", "any/where", R).allowed);
	assert_true(answer(&a, "ro", "", R).allowed);
	assert_false(answer(&a, "ro", "any", W).allowed);
	assert_false(answer(&a, "ro", "any", RW).allowed);
	assert_true(answer(&a, "wo", "any", W).allowed);
	assert_false(answer(&a, "wo", "any", R).allowed);
	assert_false(answer(&a, "ro", "..", R).allowed);
	assert_int_equal(answer(&a, "ro", "x", R).reason, POLICY_BY_NAMESPACE);
	done(&a);
}

static void policy_below__is_allowed_only_when_no_rule_can_say_otherwise(void **state)
{
	static const struct {
		const char *dir;
		uint32_t wanted;
		bool allowed;
	} table[] = {
		{"free", RW, false},  {"free/x/y", RW, true}, {"a", RW, false},
		{"a", R, false},      {"a/b", RW, true},      {"a/secret", RW, false},
		{"", RW, false},      {"logs", RW, false},    {"logs", R, false},
		{"x/tmp1", RW, true}, {"ro", RW, false},      {"ro", R, true},
		{"a/..", RW, false},  {"free", 0, false},     {"q/keys", RW, false},
		{"q", RW, false},
	};
	struct asked a =
		ask("    - name: data\n      engine: files\n      path: t\n      access: rw\n"
	            "      paths:\n"
	            "        - {pattern: /a/secret/**, access: none}\n"
	            "        - {pattern: /logs/*.log, access: r}\n"
	            "        - {pattern: /ro/**, access: r}\n"
	            "        - {pattern: /*/keys/**, access: none}\n"
	            "        - {pattern: /**, access: rw}\n");
	struct asked some =
		ask("    - name: data\n      engine: files\n      path: t\n      access: rw\n"
	            "      paths:\n        - {pattern: /out/*, access: rw}\n");
	struct policy_namespace ns;

	assert_int_equal(policy_namespace_find(&a.image, "data", &ns), 0);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (policy_allows_below(&a.image, &ns, table[i].dir, table[i].wanted) !=
		    table[i].allowed)
			fail_msg("below `%s` %u", table[i].dir, table[i].wanted);
	/* What no rule names is denied. */
	assert_int_equal(policy_namespace_find(&some.image, "data", &ns), 0);
	assert_false(policy_allows_below(&some.image, &ns, "out", RW));
	assert_false(policy_allows_below(&some.image, &ns, "else", RW));
	done(&a);
	done(&some);
}

static void policy_eval__bounds_the_path(void **state)
{
	struct asked a = ask("    - {name: d, engine: files, path: t, access: r}\n");
	char *path = malloc(POLICY_PATH_MAX + 2);

	for (size_t i = 0; i <= POLICY_PATH_MAX; i++)
		path[i] = i % 200 == 199 ? '/' : 'x';
	path[POLICY_PATH_MAX + 1] = '\0';
	assert_int_equal(answer(&a, "d", path, R).reason, POLICY_BAD_PATH);
	path[POLICY_PATH_MAX] = '\0';
	assert_true(answer(&a, "d", path, R).allowed);
	memset(path, 'x', 256);
	path[256] = '\0';
	assert_int_equal(answer(&a, "d", path, R).reason, POLICY_BAD_PATH);
	path[255] = '\0';
	assert_true(answer(&a, "d", path, R).allowed);
	assert_int_equal(answer(&a, "d", NULL, R).reason, POLICY_BAD_PATH);
	free(path);
	done(&a);
}

static void policy_explain__leads_to_the_line(void **state)
{
	struct asked a =
		ask("    - name: data\n      engine: files\n      path: t\n      access: rw\n"
	            "      paths:\n"
	            "        - {pattern: /a/**, access: r}\n");
	const struct policy_doc *d = policy_set_at(a.set, 0);
	struct policy_explanation e;

	assert_int_equal(policy_explain(d, "data", "/a/b", W, &e), 0);
	assert_string_equal(e.text,
	                    "denied: t.yaml:13:11: rule 0 `/a/**` of namespace `data` gives r, "
	                    "w was asked for");
	assert_int_equal(policy_explain(d, "data", "/b", R, &e), 0);
	assert_string_equal(e.text,
	                    "denied: t.yaml:8:7: none of the 1 path rules of namespace `data` "
	                    "matches, r was asked for");
	assert_int_equal(policy_explain(d, "data", "/a", R, &e), 0);
	assert_int_equal(e.line, 13);
	assert_true(e.verdict.allowed);
	assert_int_equal(policy_explain(d, "date", "/a", R, &e), -ENOENT);
	assert_false(e.verdict.allowed);
	assert_non_null(strstr(e.text, "no namespace `date`, it has: data"));
	done(&a);
}

/* The longest rule there may be, and names that would drive a terminal. */
static void policy_explain__is_one_whole_line_whatever_is_asked(void **state)
{
	char pattern[POLICY_PATTERN_MAX + 1], text[2048];
	struct asked a;
	struct policy_explanation e;

	memset(pattern, 'p', POLICY_PATTERN_MAX);
	pattern[0] = '/';
	pattern[POLICY_PATTERN_MAX] = '\0';
	snprintf(text, sizeof(text),
	         "    - name: %.63s\n      engine: files\n      path: t\n      access: rw\n"
	         "      paths:\n        - {pattern: %s, access: none}\n",
	         pattern + 1, pattern);
	a = ask(text);
	snprintf(text, sizeof(text), "%.63s", pattern + 1);
	assert_int_equal(policy_explain(policy_set_at(a.set, 0), text, pattern, R, &e), 0);
	assert_non_null(strstr(e.text, "gives none, r was asked for"));
	assert_int_equal(policy_explain(policy_set_at(a.set, 0), "x\n\x1b[2J", "/", R, &e),
	                 -ENOENT);
	assert_non_null(strstr(e.text, "no namespace `x??[2J`, it has: ppp"));
	done(&a);
}

static void principals__match_exactly(void **state)
{
	struct asked a = ask("    - {name: d, engine: files, path: t, access: r}\n");

	assert_true(policy_principal_match(&a.image, "spiffe://ros2.test/tenant/t/a"));
	assert_false(policy_principal_match(&a.image, "spiffe://ros2.test/tenant/t/ab"));
	assert_false(policy_principal_match(&a.image, "spiffe://ros2.test/tenant/t/"));
	assert_false(policy_principal_match(&a.image, "SPIFFE://ros2.test/tenant/t/a"));
	assert_false(policy_principal_match(&a.image, ""));
	assert_false(policy_principal_match(&a.image, NULL));
	assert_string_equal(policy_principal_at(&a.image, 0), "spiffe://ros2.test/tenant/t/a");
	assert_null(policy_principal_at(&a.image, 1));
	done(&a);
}

static void policy_placed__is_by_name_or_by_all_labels(void **state)
{
	static const struct policy_label both[] = {{"rack", "r1"}, {"zone", "z1"}};
	static const struct policy_label wrong[] = {{"rack", "r2"}, {"zone", "z1"}};
	static const char text[] =
		"apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: p}\nspec:\n"
		"  principals: []\n  namespaces: []\n"
		"  placement: {agents: [named], selector: {zone: z1, rack: r1}}\n"
		"---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: x, labels: {rack: r1, "
		"zone: z1}}\n"
		"---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: y, labels: {rack: r1}}\n";
	struct policy_source src = {"t", text, strlen(text), 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_image_tenant t;
	struct policy_set *s;
	void *bytes;
	size_t len;

	assert_int_equal(policy_parse(&src, 1, &s, &d), 0);
	assert_int_equal(d.warnings, 1); /* no principals */
	bytes = compile_good(policy_set_at(s, 0), &len);
	assert_int_equal(policy_image_open_tenant(bytes, len, &t, NULL), 0);
	assert_true(policy_placed(&t, "named", NULL, 0));
	assert_false(policy_placed(&t, "other", NULL, 0));
	assert_true(policy_placed(&t, "other", both, 2));
	assert_false(policy_placed(&t, "other", both, 1));
	assert_false(policy_placed(&t, "other", wrong, 2));
	assert_true(policy_placed(&t, NULL, both, 2));
	assert_true(policy_doc_placed(policy_set_at(s, 0), policy_set_at(s, 1)));
	assert_false(policy_doc_placed(policy_set_at(s, 0), policy_set_at(s, 2)));
	assert_false(policy_doc_placed(policy_set_at(s, 1), policy_set_at(s, 1)));
	assert_false(policy_doc_placed(policy_set_at(s, 0), policy_set_at(s, 0)));
	free(bytes);
	policy_set_free(s);
	policy_diags_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns__match_by_segments),
		cmocka_unit_test(patterns__agree_with_the_plainest_matcher),
		cmocka_unit_test(policy_eval__takes_the_first_rule_that_matches),
		cmocka_unit_test(policy_eval__without_rules_gives_the_namespaces_access),
		cmocka_unit_test(policy_below__is_allowed_only_when_no_rule_can_say_otherwise),
		cmocka_unit_test(policy_eval__bounds_the_path),
		cmocka_unit_test(policy_explain__leads_to_the_line),
		cmocka_unit_test(policy_explain__is_one_whole_line_whatever_is_asked),
		cmocka_unit_test(principals__match_exactly),
		cmocka_unit_test(policy_placed__is_by_name_or_by_all_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
