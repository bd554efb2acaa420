/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents: every file under bad/ says in its last lines which diagnostics it gives, all of them
 * and no others; every file under good/ gives none. Then the bounds, the sets, and the n-th
 * allocation failing.
 */
#include "tests/policy/policy_testing.h"
#include "common/utf8.h"
#include "policy/limits.h"
#include "policy/nvmf.h"
#include <dirent.h>

#define EXPECT "# expect: "

/* The n-th allocation from now on fails, and all after it when persistent. The linker puts these in
 * the way. */
static struct {
	bool on, persistent;
	unsigned long left, failed;
} fault;

static bool fails(void)
{
	if (!fault.on)
		return false;
	if (fault.left) {
		fault.left--;
		return false;
	}
	if (fault.failed && !fault.persistent)
		return false;
	fault.failed++;
	return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}
void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

static char *read_text(const char *path, size_t *ret_len)
{
	char *p = read_whole(path, ret_len);
	char *copy = __real_malloc(*ret_len + 1);

	memcpy(copy, p, *ret_len + 1);
	free(p);
	return copy;
}

/* What parse, and check when parse is content, say about a file: "line:col: severity: msg\n" each.
 */
static char *diagnose(const char *path, const char *text, size_t len)
{
	struct policy_source src = {"", text, len, 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	int rc = policy_parse(&src, 1, &s, &d);
	char *all, *out;
	size_t n = 0;

	if (!rc)
		rc = policy_check(s, &d);
	if (rc != -EINVAL)
		fail_msg("%s: expected -EINVAL, found %d", path, rc);
	all = policy_diags_to_str(&d);
	out = calloc(1, strlen(all) + 1);
	/* the file has no name here, so every line begins with ':' */
	for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n"))
		n += (size_t)sprintf(out + n, "%s\n", line + 1);
	free(all);
	policy_set_free(s);
	policy_diags_fini(&d);
	return out;
}

static char *expectations(const char *text)
{
	char *out = calloc(1, strlen(text) + 1);
	const char *p = text;

	while ((p = strstr(p, EXPECT))) {
		size_t n = strcspn(p += strlen(EXPECT), "\n");

		strncat(out, p, n);
		strcat(out, "\n");
	}
	return out;
}

static void compare_bad(const char *path)
{
	size_t len;
	char *text = read_text(path, &len), *expected, *found;
	char *at;

	/* a file name in a message is the source's name, which is empty here */
	expected = expectations(memmem(text, len, EXPECT, strlen(EXPECT))
	                                ? memmem(text, len, EXPECT, strlen(EXPECT))
	                                : "");
	while ((at = strstr(expected, strrchr(path, '/') + 1)))
		memmove(at, at + strlen(strrchr(path, '/') + 1),
		        strlen(at + strlen(strrchr(path, '/') + 1)) + 1);
	found = diagnose(path, text, len);
	if (!expected[0])
		fail_msg("%s: it says nothing about what is expected", path);
	if (strcmp(expected, found) != 0)
		fail_msg("%s\nexpected:\n%sfound:\n%s", path, expected, found);
	free(text);
	free(expected);
	free(found);
}

static void each_file(const char *dir, void (*fn)(const char *path), unsigned at_least)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char path[512];

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		fn(path);
		n++;
	}
	closedir(d);
	assert_true(n >= at_least);
}

static void policy_parse__names_every_fault_of_every_bad_document(void **state)
{
	each_file("tests/policy/bad", compare_bad, 20);
}

static void assert_canonical_stable(const struct policy_doc *d)
{
	struct policy_set *again = parse_good("canonical", d->canonical, strlen(d->canonical));
	const struct policy_doc *c = policy_set_at(again, 0);

	assert_int_equal(policy_set_count(again), 1);
	assert_string_equal(c->canonical, d->canonical);
	assert_int_equal(c->kind, d->kind);
	assert_string_equal(c->name, d->name);
	policy_set_free(again);
}

/* The stored text alone, at the same lines, is the same document. */
static void assert_text_stands_alone(const struct policy_doc *d)
{
	struct policy_source src = {d->file, d->text, strlen(d->text), d->line};
	struct policy_diags diags = POLICY_DIAGS_INIT;
	struct policy_set *again;
	const struct policy_doc *c;

	assert_int_equal(policy_parse(&src, 1, &again, &diags), 0);
	c = policy_set_at(again, 0);
	assert_int_equal(policy_set_count(again), 1);
	assert_string_equal(c->canonical, d->canonical);
	assert_string_equal(c->text, d->text);
	assert_int_equal(c->line, d->line);
	assert_int_equal(c->name_line, d->name_line);
	policy_set_free(again);
	policy_diags_fini(&diags);
}

static void check_good(const char *path)
{
	struct policy_set *s = parse_good_file(path);
	struct policy_diags d = POLICY_DIAGS_INIT;

	assert_int_equal(policy_check(s, &d), 0);
	assert_int_equal(d.n, 0);
	assert_true(policy_set_count(s) > 0);
	for (size_t i = 0; i < policy_set_count(s); i++) {
		const struct policy_doc *doc = policy_set_at(s, i);
		void *image;
		size_t len;

		assert_canonical_stable(doc);
		assert_text_stands_alone(doc);
		if (doc->kind == POLICY_KIND_AGENT)
			continue;
		image = compile_good(doc, &len);
		free(image);
	}
	policy_set_free(s);
	policy_diags_fini(&d);
}

static void policy_parse__accepts_the_good_documents_and_their_canonical_text(void **state)
{
	each_file("tests/policy/good", check_good, 2);
}

static void examples__are_good_together_once_the_root_is_filled_in(void **state)
{
	static const char *const names[] = {"engines", "agents", "alpha", "beta"};
	struct policy_source src[ARRAY_SIZE(names)];
	struct policy_diags d = POLICY_DIAGS_INIT;
	char path[128], *text[ARRAY_SIZE(names)], *token;
	struct policy_set *s;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "examples/policies/%s.yaml", names[i]);
		src[i] = (struct policy_source){.name = names[i]};
		text[i] = read_text(path, &src[i].len);
		src[i].text = text[i];
	}
	assert_int_equal(policy_parse(src, ARRAY_SIZE(src), &s, &d), -EINVAL);
	assert_non_null(strstr(d.v[0].msg, "placeholder"));
	policy_diags_fini(&d);
	token = strstr(text[0], "${ROS2_DATA}");
	assert_non_null(token);
	memcpy(token, "/srv/ros2/xy", 12);
	assert_int_equal(policy_parse(src, ARRAY_SIZE(src), &s, &d), 0);
	assert_int_equal(policy_check(s, &d), 0);
	assert_int_equal(d.n, 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		free(text[i]);
	assert_int_equal(policy_set_count(s), 6);
	assert_int_equal(policy_set_find(s, POLICY_KIND_TENANT, "beta")->tenant->limits.regions, 4);
	policy_set_free(s);
	policy_diags_fini(&d);
}

static void examples__of_nvmf_are_good(void **state)
{
	struct policy_set *s = parse_good_file("examples/nvmf.yaml");
	struct policy_diags d = POLICY_DIAGS_INIT;

	assert_int_equal(policy_check(s, &d), 0);
	assert_int_equal(d.n, 0);
	assert_non_null(policy_set_find(s, POLICY_KIND_ENGINE, "flash")->engine->nvmf);
	policy_set_free(s);
	policy_diags_fini(&d);
}

static void defaults__are_those_of_the_documentation(void **state)
{
	struct policy_set *s = parse_good("t", TENANT_HEAD "  namespaces: []\n",
	                                  strlen(TENANT_HEAD "  namespaces: []\n"));
	const struct policy_limits *l = &policy_set_at(s, 0)->tenant->limits;

	assert_int_equal(l->lease_ttl_ms, 30000);
	assert_int_equal(l->grant_lifetime_ms, 3600000);
	assert_int_equal(l->contact_limit_ms, 600000);
	assert_false(l->offline_restart);
	assert_int_equal(l->registered_bytes, 256 << 20);
	assert_int_equal(l->regions, 64);
	assert_int_equal(l->region_size_min, 4096);
	assert_int_equal(l->region_size_max, 64 << 20);
	assert_int_equal(l->region_alignment, 4096);
	assert_int_equal(l->region_access, POLICY_ACCESS_ALL);
	assert_int_equal(l->leases_max, 64);
	assert_int_equal(l->violations_limit, 100);
	assert_int_equal(l->violations_action, POLICY_VIOLATION_KILL);
	assert_int_equal(l->sessions_max, 16);
	assert_int_equal(l->read.bytes_per_s | l->read.ops_per_s, 0);
	assert_int_equal(l->write.bytes_per_s | l->write.ops_per_s, 0);
	assert_int_equal(l->burst_ms, 100);
	policy_set_free(s);
}

/* docs/policy.md says for every number what the table of limits says. */
static void documentation__tells_every_number_as_it_is(void **state)
{
	size_t len;
	char *docs = read_text("docs/policy.md", &len);

	for (int i = 0; i < LIMIT_COUNT; i++) {
		const struct limit_field *f = &limit_fields[i];
		char min[UNIT_STR_LEN], max[UNIT_STR_LEN], fallback[UNIT_STR_LEN], row[256];

		snprintf(row, sizeof(row), "| `spec.%s` | %s | %s to %s | ", f->path,
		         f->fallback ? unit_format(f->unit, f->fallback, fallback) : "unlimited",
		         unit_format(f->unit, f->min, min), unit_format(f->unit, f->max, max));
		if (!strstr(docs, row))
			fail_msg("docs/policy.md has no row `%s`", row);
	}
	for (int i = 0; i < NVMF_NUMBERS; i++) {
		const struct nvmf_number *f = &nvmf_numbers[i];
		char min[UNIT_STR_LEN], max[UNIT_STR_LEN], fallback[UNIT_STR_LEN], row[256];

		snprintf(row, sizeof(row), "| `spec.%s` | %s, %s to %s | ", f->key,
		         f->fallback ? unit_format(f->unit, f->fallback, fallback) : "not said",
		         unit_format(f->unit, f->min, min), unit_format(f->unit, f->max, max));
		if (!strstr(docs, row))
			fail_msg("docs/policy.md has no row `%s`", row);
	}
	free(docs);
}

/* ---- bounds ---- */

static void policy_parse__keeps_a_hundred_diagnostics_and_counts_the_rest(void **state)
{
	struct policy_diags d = POLICY_DIAGS_INIT;
	char *text = calloc(1, 300 * 64), *words;
	struct policy_set *s = NULL;
	size_t n = 0;

	for (int i = 0; i < 300; i++)
		n += (size_t)sprintf(text + n, "---\nkind: Nope%d\n", i);
	assert_int_equal(parse_text_into(text, &s, &d), -EINVAL);
	assert_null(s);
	assert_int_equal(d.n, POLICY_DIAGS_MAX);
	assert_int_equal(d.errors, 900); /* kind, apiVersion and metadata of each */
	words = policy_diags_to_str(&d);
	assert_non_null(strstr(words, "and 800 more\n"));
	free(words);
	policy_diags_fini(&d);
	free(text);
}

static void assert_refused(const char *text, size_t len, const char *words)
{
	struct policy_source src = {"t.yaml", text, len, 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	char *all;

	assert_int_equal(policy_parse(&src, 1, &s, &d), -EINVAL);
	assert_null(s);
	all = policy_diags_to_str(&d);
	if (!strstr(all, words))
		fail_msg("expected `%s`, found:\n%s", words, all);
	free(all);
	policy_diags_fini(&d);
}

static void policy_parse__refuses_texts_and_mappings_beyond_their_bounds(void **state)
{
	size_t max = POLICY_SOURCE_MAX + 1, n;
	char *text = calloc(1, max + 64);

	memset(text, '#', max);
	assert_refused(text, max, "longer than 1 MiB");
	n = (size_t)sprintf(text,
	                    "apiVersion: ros2/v1\nkind: Agent\nmetadata:\n  name: a\n  labels:\n");
	for (int i = 0; i < 200; i++)
		n += (size_t)sprintf(text + n, "    k%d: v\n", i);
	assert_refused(text, n, "more than 128 keys");
	n = (size_t)sprintf(text, "a: [");
	for (int i = 0; i < 70000; i++)
		n += (size_t)sprintf(text + n, "1,");
	assert_refused(text, n, "more than 65536 values");
	memset(text, '[', 100000);
	assert_refused(text, 100000, "nested deeper");
	memset(text, '{', 100000);
	assert_refused(text, 100000, "key");
	n = (size_t)sprintf(text, TENANT_HEAD "  namespaces:\n");
	for (int i = 0; i < 1025; i++) {
		if (i % 64 == 0)
			n += (size_t)sprintf(text + n,
			                     "    - name: n%d\n      engine: e\n      path: p%d\n"
			                     "      access: r\n      paths:\n",
			                     i, i);
		n += (size_t)sprintf(text + n, "        - {pattern: /%d, access: r}\n", i);
	}
	assert_refused(text, n, "at most 1024 path rules in all, found 1025");
	n = 0;
	for (int i = 0; i < 4200; i++)
		n += (size_t)sprintf(
			text + n, "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: a%d}\n",
			i);
	assert_refused(text, n, "more than 4096 documents");
	n = 0;
	for (int i = 0; i < 5000; i++)
		n += (size_t)sprintf(text + n, "---\n");
	assert_refused(text, n, "more than 4096 documents");
	free(text);
}

/* Each document has it, and more than once. */
static void policy_parse__refuses_a_file_name_beyond_its_bound(void **state)
{
	static const char text[] = "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: a}\n";
	char name[POLICY_FILE_NAME_MAX + 2];
	struct policy_source src = {name, text, sizeof(text) - 1, 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;

	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(policy_parse(&src, 1, &s, &d), -EINVAL);
	assert_non_null(strstr(policy_diags_first_error(&d)->msg, "more than 4096 bytes"));
	policy_diags_fini(&d);
	name[POLICY_FILE_NAME_MAX] = '\0';
	policy_set_free(parse_good(name, text, sizeof(text) - 1));
}

static void policy_parse__takes_no_documents_as_a_warning(void **state)
{
	static const char *const texts[] = {"", "# only words\n", "---\n---\n~\n", "\xef\xbb\xbf"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct policy_diags d = POLICY_DIAGS_INIT;
		struct policy_set *s = NULL;

		assert_int_equal(parse_text_into(texts[i], &s, &d), 0);
		assert_int_equal(policy_set_count(s), 0);
		assert_int_equal(d.warnings, 1);
		assert_int_equal(d.errors, 0);
		policy_set_free(s);
		policy_diags_fini(&d);
	}
}

/* What an older version accepted is loaded at a start of a newer one, as it meant then. */
static void policy_parse__takes_stored_text_however_it_is_written(void **state)
{
	static const char text[] = "# an old line end\rapiVersion: ros2/v1\rkind: Agent\r"
				   "metadata: {name: a} # \xe2\x80\xae\n";
	struct policy_source src = {"t.yaml", text, sizeof(text) - 1, 7, .stored = true};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;

	assert_int_equal(policy_parse(&src, 1, &s, &d), 0);
	assert_int_equal(policy_set_find(s, POLICY_KIND_AGENT, "a")->name_line, 10);
	policy_set_free(s);
	/* the control */
	src.stored = false;
	assert_int_equal(policy_parse(&src, 1, &s, &d), -EINVAL);
	policy_diags_fini(&d);
}

static void policy_parse__finds_one_name_defined_in_two_files(void **state)
{
	static const char text[] = "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: a}\n";
	struct policy_source src[] = {{"one.yaml", text, sizeof(text) - 1, 0},
	                              {"two.yaml", text, sizeof(text) - 1, 100}};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	char line[512];

	assert_int_equal(policy_parse(src, 2, &s, &d), -EINVAL);
	policy_diag_format(&d.v[0], line, sizeof(line));
	assert_string_equal(line,
	                    "two.yaml:102:18: error: Agent `a` is already defined in one.yaml:3");
	assert_int_equal(policy_diag_format(&d.v[0], line, 10), 9);
	policy_diags_fini(&d);
}

/* ---- sets ---- */

static struct policy_set *one_agent(const char *name, const char *rack)
{
	char text[256];

	snprintf(text, sizeof(text),
	         "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: %s, labels: {rack: %s}}\n",
	         name, rack);
	return parse_good("agent", text, strlen(text));
}

static void policy_set__puts_replaces_finds_and_removes(void **state)
{
	struct policy_set *all, *other;
	char name[32];

	assert_int_equal(policy_set_new(&all), 0);
	assert_null(policy_set_find(all, POLICY_KIND_AGENT, "a0"));
	assert_int_equal(policy_set_remove(all, POLICY_KIND_AGENT, "a0"), -ENOENT);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		other = one_agent(name, "r1");
		assert_int_equal(policy_set_put(all, policy_set_at(other, 0)), 0);
		policy_set_free(other); /* the set keeps its document */
	}
	other = one_agent("a7", "r2");
	assert_int_equal(policy_set_put(all, policy_set_at(other, 0)), 0);
	policy_set_free(other);
	assert_int_equal(policy_set_count(all), 100);
	assert_string_equal(policy_set_at(all, 7)->labels[0].value, "r2");
	assert_null(policy_set_find(all, POLICY_KIND_TENANT, "a7"));
	assert_int_equal(policy_set_remove(all, POLICY_KIND_AGENT, policy_set_at(all, 7)->name), 0);
	assert_null(policy_set_find(all, POLICY_KIND_AGENT, "a7"));
	for (int i = 8; i < 100; i++) {
		snprintf(name, sizeof(name), "a%d", i);
		assert_string_equal(policy_set_find(all, POLICY_KIND_AGENT, name)->name, name);
	}
	assert_null(policy_set_at(all, 99));
	policy_set_free(all);
	policy_set_free(NULL);
	policy_doc_unref(NULL);
}

static void policy_check__finds_what_a_removed_engine_leaves_behind(void **state)
{
	struct policy_set *s = parse_good_file("tests/policy/good/everything.yaml");
	struct policy_diags d = POLICY_DIAGS_INIT;

	assert_int_equal(policy_check(s, &d), 0);
	assert_int_equal(policy_set_remove(s, POLICY_KIND_ENGINE, "files"), 0);
	assert_int_equal(policy_check(s, &d), -EINVAL);
	assert_int_equal(d.errors, 1);
	assert_ptr_equal(policy_diags_first_error(&d), &d.v[0]);
	assert_non_null(strstr(d.v[0].msg, "there is no Engine `files`"));
	policy_set_free(s);
	policy_diags_fini(&d);
}

/* Ten thousand claims on one engine, chained and side by side: must not take the square of it. */
static void policy_check__is_quick_on_many_namespaces(void **state)
{
	struct policy_set *all;
	struct policy_diags d = POLICY_DIAGS_INIT;
	static const char engine[] = "apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: e}\n"
				     "spec: {type: mem, size: 1GiB}\n";
	char *text = malloc(65536);

	all = parse_good("e", engine, strlen(engine));
	for (int i = 0; i < 160; i++) {
		size_t n =
			(size_t)sprintf(text,
		                        "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: t%d}\n"
		                        "spec:\n  principals: [spiffe://x.test/t%d]\n"
		                        "  placement: {agents: [a]}\n  namespaces:\n",
		                        i, i);
		struct policy_set *one;

		for (int j = 0; j < 64; j++)
			n += (size_t)sprintf(
				text + n,
				"    - {name: n%d, engine: e, path: all/%s%d, access: r, "
				"shared: true}\n",
				j, j % 2 ? "t/" : "", j % 2 ? i : j);
		one = parse_good("t", text, n);
		assert_int_equal(policy_set_put(all, policy_set_at(one, 0)), 0);
		policy_set_free(one);
	}
	assert_int_equal(policy_check(all, &d), 0);
	assert_int_equal(d.warnings, 160); /* the agent does not exist */
	assert_null(policy_diags_first_error(&d));
	policy_set_free(all);
	policy_diags_fini(&d);
	free(text);
}

/* 64 volumes each on 200 engines of one subsystem. */
static void policy_check__is_quick_on_many_volumes(void **state)
{
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *all;
	char *text = malloc(65536);

	assert_int_equal(policy_set_new(&all), 0);
	for (int i = 0; i < 200; i++) {
		size_t n = (size_t)sprintf(
			text,
			"apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: e%d}\nspec:\n"
			"  type: nvmf\n  transport: tcp\n  address: 192.0.2.%d\n"
			"  subsystem: nqn.2014-08.org.example:s\n"
			"  hostNqn: nqn.2014-08.org.example:{tenant}\n  volumes:\n",
			i, i + 1);
		struct policy_set *one;

		for (int j = 0; j < 64; j++)
			n += (size_t)sprintf(text + n,
			                     "    - {name: v%d, nsid: %d, offset: %dMiB, "
			                     "size: 1MiB}\n",
			                     j, 1 + j % 3, 64 * i + j);
		one = parse_good("e", text, n);
		assert_int_equal(policy_set_put(all, policy_set_at(one, 0)), 0);
		policy_set_free(one);
	}
	assert_int_equal(policy_check(all, &d), 0);
	assert_int_equal(d.n, 0);
	policy_set_free(all);
	policy_diags_fini(&d);
	free(text);
}

/* A hundred warnings about others must not hide the one error of what is applied. */
static void policy_check__keeps_errors_before_warnings(void **state)
{
	struct policy_diags d = POLICY_DIAGS_INIT;
	char text[512], line[1024], *words;
	struct policy_set *all = NULL;

	assert_int_equal(policy_set_new(&all), 0);
	for (int i = 0; i < 150; i++) {
		struct policy_set *one;

		snprintf(text, sizeof(text),
		         "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: t%03d}\nspec:\n"
		         "  principals: [spiffe://x.test/t%d]\n  placement: {agents: [away]}\n"
		         "  namespaces: [%s]\n",
		         i, i,
		         i < 148 ? ""
		                 : "{name: n, engine: none, path: p, access: r, shared: true}");
		one = parse_good(i < 148 ? "a.yaml" : "b.yaml", text, strlen(text));
		assert_int_equal(policy_set_put(all, policy_set_at(one, 0)), 0);
		policy_set_free(one);
	}
	assert_int_equal(policy_check(all, &d), -EINVAL);
	assert_int_equal(d.n, POLICY_DIAGS_MAX);
	assert_int_equal(d.errors, 2);
	assert_int_equal(d.warnings, 150);
	assert_non_null(policy_diags_first_error(&d));
	policy_diag_format(policy_diags_first_error(&d), line, sizeof(line));
	assert_string_equal(line, "b.yaml:7:16: error: there is no Engine `none`");
	for (size_t i = 1; i < d.n; i++)
		assert_true(strcmp(d.v[i - 1].file, d.v[i].file) <= 0);
	words = policy_diags_to_str(&d);
	assert_non_null(strstr(words, "and 52 more\n"));
	free(words);
	/* the same list goes on: errors of a second call push out warnings of the first */
	assert_int_equal(policy_check(all, &d), -EINVAL);
	assert_int_equal(d.n, POLICY_DIAGS_MAX);
	assert_int_equal(d.errors, 4);
	assert_string_equal(d.v[98].file, "b.yaml");
	assert_int_equal(d.v[99].severity, POLICY_ERROR);
	policy_set_free(all);
	policy_diags_fini(&d);
}

/* Names and file names are not quoted in every message; they must not reach a terminal raw. */
static void policy_diags__are_printable_whatever_the_document_and_its_name_are(void **state)
{
	static const char text[] =
		"apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: \"a\\e[2J\\u009b31m\"}\n---\n"
		"apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: \"a\\e[2J\\u009b31m\"}\n---\n"
		"apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: \"a\\u202egnp.exe\"}\n";
	struct policy_source src = {"x\n\x1b]0;y\xc2\x9b"
	                            "1m\xff.yaml",
	                            text, sizeof(text) - 1, 0};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;

	assert_int_equal(policy_parse(&src, 1, &s, &d), -EINVAL);
	assert_int_equal(d.errors, 4);
	for (size_t i = 0; i < d.n; i++) {
		assert_true(utf8_text_printable(d.v[i].msg));
		assert_true(utf8_text_printable(d.v[i].file));
	}
	assert_non_null(strstr(d.v[2].msg, "is already defined in x\\x0a"));
	policy_diags_fini(&d);
}

/* The longest names there are: what is wrong stands at the end, and must not be cut off. */
static void policy_check__tells_the_longest_clash_to_its_end(void **state)
{
	char name[4][64], text[2048];
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(name); i++) {
		memset(name[i], 'a' + (int)i, 63);
		name[i][63] = '\0';
	}
	snprintf(text, sizeof(text),
	         "apiVersion: ros2/v1\nkind: Engine\nmetadata: {name: %s}\n"
	         "spec: {type: mem, size: 1MiB}\n---\n"
	         "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: %s}\nspec:\n"
	         "  principals: [spiffe://x.test/t]\n  placement: {agents: [a]}\n  namespaces:\n"
	         "    - {name: %s, engine: %s, path: %s%s, access: r}\n"
	         "    - {name: %s, engine: %s, path: %s%s, access: r}\n",
	         name[0], name[1], name[2], name[0], name[0], name[0], name[3], name[0], name[0],
	         name[0]);
	assert_int_equal(parse_text_into(text, &s, &d), 0);
	assert_int_equal(policy_check(s, &d), -EINVAL);
	assert_non_null(strstr(policy_diags_first_error(&d)->msg, "neither says `shared: true`"));
	policy_set_free(s);
	policy_diags_fini(&d);
}

/* ---- memory ---- */

static int everything_once(const char *text, size_t len, enum policy_kind kind, const char *name)
{
	struct policy_source src = {"t", text, len, 0};
	static const struct ros2_uid uid = {.b = {1}};
	struct policy_diags d = POLICY_DIAGS_INIT;
	struct policy_set *s = NULL;
	struct policy_explanation e;
	void *image = NULL;
	size_t image_len;
	int rc = policy_parse(&src, 1, &s, &d);

	if (!rc)
		rc = policy_check(s, &d);
	if (!rc)
		rc = policy_compile_doc(policy_set_find(s, kind, name), &uid, 1, &image, &image_len,
		                        NULL);
	if (!rc && kind == POLICY_KIND_TENANT)
		rc = policy_explain(policy_set_find(s, kind, name), "data", "/a", 1, &e);
	free(image);
	policy_set_free(s);
	policy_diags_fini(&d);
	return rc;
}

static void sweep(const char *path, enum policy_kind kind, const char *name)
{
	size_t len;
	char *text = read_text(path, &len);

	for (int persistent = 0; persistent < 2; persistent++) {
		for (unsigned long n = 0;; n++) {
			int rc;

			fault.on = true;
			fault.persistent = persistent;
			fault.left = n;
			fault.failed = 0;
			rc = everything_once(text, len, kind, name);
			fault.on = false;
			if (!fault.failed) {
				assert_int_equal(rc, 0);
				assert_true(n > 20);
				break;
			}
			assert_int_equal(rc, -ENOMEM);
		}
	}
	free(text);
}

static void policy__survives_every_failing_allocation(void **state)
{
	sweep("tests/policy/good/everything.yaml", POLICY_KIND_TENANT, "full");
	sweep("tests/policy/good/nvmf.yaml", POLICY_KIND_ENGINE, "flash");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(policy_parse__names_every_fault_of_every_bad_document),
		cmocka_unit_test(policy_parse__accepts_the_good_documents_and_their_canonical_text),
		cmocka_unit_test(examples__are_good_together_once_the_root_is_filled_in),
		cmocka_unit_test(examples__of_nvmf_are_good),
		cmocka_unit_test(defaults__are_those_of_the_documentation),
		cmocka_unit_test(documentation__tells_every_number_as_it_is),
		cmocka_unit_test(policy_parse__keeps_a_hundred_diagnostics_and_counts_the_rest),
		cmocka_unit_test(policy_parse__refuses_texts_and_mappings_beyond_their_bounds),
		cmocka_unit_test(policy_parse__refuses_a_file_name_beyond_its_bound),
		cmocka_unit_test(policy_parse__takes_no_documents_as_a_warning),
		cmocka_unit_test(policy_parse__takes_stored_text_however_it_is_written),
		cmocka_unit_test(policy_parse__finds_one_name_defined_in_two_files),
		cmocka_unit_test(policy_set__puts_replaces_finds_and_removes),
		cmocka_unit_test(policy_check__finds_what_a_removed_engine_leaves_behind),
		cmocka_unit_test(policy_check__is_quick_on_many_namespaces),
		cmocka_unit_test(policy_check__is_quick_on_many_volumes),
		cmocka_unit_test(policy_check__keeps_errors_before_warnings),
		cmocka_unit_test(
			policy_diags__are_printable_whatever_the_document_and_its_name_are),
		cmocka_unit_test(policy_check__tells_the_longest_clash_to_its_end),
		cmocka_unit_test(policy__survives_every_failing_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
