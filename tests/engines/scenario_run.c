/* SPDX-License-Identifier: Apache-2.0 */
/* The suite over any variants, as one program: fixture.h. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <stdio.h>

struct scenario {
	const char *name;
	CMUnitTestFunction fn;
};
#define X(fn) {#fn, fn},
static const struct scenario all[] = {SCENARIOS_ALL(X)}, names[] = {SCENARIOS_NAMES(X)},
			     sizes[] = {SCENARIOS_SIZES(X)}, volumes[] = {SCENARIOS_VOLUMES(X)};
#undef X

#define VARIANTS_MAX 16
#define TESTS_MAX                                                                                  \
	(VARIANTS_MAX *                                                                            \
	 (ARRAY_SIZE(all) + ARRAY_SIZE(names) + ARRAY_SIZE(sizes) + ARRAY_SIZE(volumes)))
static struct CMUnitTest tests[TESTS_MAX];
static char titles[TESTS_MAX][128];
static size_t n_tests;

static void add(const struct variant *v, const struct scenario *s, size_t n)
{
	for (size_t i = 0; i < n; i++, n_tests++) {
		snprintf(titles[n_tests], sizeof(titles[0]), "%s: %s", v->name, s[i].name);
		tests[n_tests] = (struct CMUnitTest){titles[n_tests], s[i].fn, fixture_setup,
		                                     fixture_teardown, (void *)v};
	}
}

static void no_tree(void **state)
{
	fx_skip("volumes are made, named and given their size by others");
}

static void skip_one(const struct variant *v, const char *name, CMUnitTestFunction why)
{
	snprintf(titles[n_tests], sizeof(titles[0]), "%s: %s", v->name, name);
	tests[n_tests] = (struct CMUnitTest){titles[n_tests], why, NULL, NULL, NULL};
	n_tests++;
}

static void skip_all(const struct variant *v, const struct scenario *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		skip_one(v, s[i].name, no_tree);
}

static void add_variant(const struct variant *v)
{
	add(v, all, ARRAY_SIZE(all));
	if (v->volumes) {
		add(v, volumes, ARRAY_SIZE(volumes));
		skip_all(v, sizes, ARRAY_SIZE(sizes));
		skip_all(v, names, ARRAY_SIZE(names));
		return;
	}
	add(v, sizes, ARRAY_SIZE(sizes));
	if (v->io_features == 0) /* how bytes move makes no difference to names */
		add(v, names, ARRAY_SIZE(names));
}

int fixture_run(const struct variant *variants, size_t n)
{
	bool files = testing_has_openat2();

	assert_true(n <= VARIANTS_MAX);
	for (size_t i = 0; i < n; i++)
		if (files || !variants[i].base)
			add_variant(&variants[i]);
		else
			skip_one(&variants[i], "no openat2 here (Linux before 5.6, or qemu-user)",
			         testing_no_openat2);
	return _cmocka_run_group_tests("engines", tests, n_tests, NULL, NULL);
}
