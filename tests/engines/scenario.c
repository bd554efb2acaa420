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

static const struct {
	const char *name;
	CMUnitTestFunction fn;
} scenarios[] = {
#define X(fn) {#fn, fn},
	SCENARIOS_NAMES(X) SCENARIOS_DATA(X)
#undef X
};

int main(void)
{
	static struct CMUnitTest tests[ARRAY_SIZE(variants) * ARRAY_SIZE(scenarios)];
	static char names[ARRAY_SIZE(tests)][128];
	size_t n = 0;

	for (size_t v = 0; v < ARRAY_SIZE(variants); v++)
		for (size_t s = 0; s < ARRAY_SIZE(scenarios); s++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s: %s", variants[v].name,
			         scenarios[s].name);
			tests[n] = (struct CMUnitTest){names[n], scenarios[s].fn, fixture_setup,
			                               fixture_teardown, (void *)&variants[v]};
		}
	return _cmocka_run_group_tests("engines", tests, n, NULL, NULL);
}
