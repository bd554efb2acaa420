/* SPDX-License-Identifier: Apache-2.0 */
/* Runs every scenario over every engine and fallback; a test's name says which. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <stdio.h>

static const struct variant variants[] = {
	{.name = "mem", .type = "mem"},
	{.name = "file", .type = "file", .base = "/var/tmp"},
	{.name = "file, no deferral",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER},
	{.name = "file, plain",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP},
	{.name = "file, plain, no fixed buffers",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP | ENGINE_IO_NO_FIXED},
	{.name = "file, no fixed buffers",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_FIXED},
	{.name = "file, no direct",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DIRECT},
	{.name = "file, threads",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_URING},
	{.name = "file, threads, no direct",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_URING | ENGINE_IO_NO_DIRECT},
	{.name = "file on tmpfs", .type = "file", .base = "/dev/shm"},
};

struct scenario {
	const char *name;
	CMUnitTestFunction fn;
};
#define X(fn) {#fn, fn},
static const struct scenario names_scenarios[] = {SCENARIOS_NAMES(X)};
static const struct scenario data_scenarios[] = {SCENARIOS_DATA(X)};
#undef X

#define TESTS_MAX                                                                                  \
	(ARRAY_SIZE(variants) * (ARRAY_SIZE(names_scenarios) + ARRAY_SIZE(data_scenarios)))
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

int main(void)
{
	bool files = testing_has_openat2();

	for (size_t v = 0; v < ARRAY_SIZE(variants); v++) {
		if (!files && variants[v].base) {
			snprintf(titles[n_tests], sizeof(titles[0]),
			         "%s: no openat2 here (Linux before 5.6, or qemu-user)",
			         variants[v].name);
			tests[n_tests] = (struct CMUnitTest){titles[n_tests], testing_no_openat2,
			                                     NULL, NULL, NULL};
			n_tests++;
			continue;
		}
		add(&variants[v], data_scenarios, ARRAY_SIZE(data_scenarios));
		if (variants[v].io_features == 0) /* how bytes move makes no difference to names */
			add(&variants[v], names_scenarios, ARRAY_SIZE(names_scenarios));
	}
	return _cmocka_run_group_tests("engines", tests, n_tests, NULL, NULL);
}
