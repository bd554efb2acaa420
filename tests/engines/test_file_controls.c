/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative control of the file engine's paths: file_path.c is compiled into this test with its
 * switch, and a link that leads out of the namespace is followed only when the switch is set.
 */
#include "dataplane/test_switches.h"
#include "tests/engines/fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct dp_test_switches dp_test_switches;

static const struct variant file_variant = {.name = "file", .type = "file", .base = "/var/tmp"};

static int teardown(void **state)
{
	dp_test_switches.no_beneath = false;
	return fixture_teardown(state);
}

static void control__path_beneath_the_root(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = NULL;
	char path[600], c = '?';
	FILE *out;

	snprintf(path, sizeof(path), "%s/outside", fx->root);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/outside/secret", fx->root);
	out = fopen(path, "w");
	assert_non_null(out);
	fputs("OUTSIDE", out);
	fclose(out);
	snprintf(path, sizeof(path), "%s/t/a/way-out", fx->root);
	assert_int_equal(symlink("../../outside", path), 0);
	assert_int_equal(fx->ops->open(fx->ns, "way-out/secret", ENGINE_READ, 0, &f, NULL, NULL),
	                 -ELIBBAD);
	dp_test_switches.no_beneath = true;
	assert_int_equal(fx->ops->open(fx->ns, "way-out/secret", ENGINE_READ, 0, &f, NULL, NULL),
	                 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, &c, 1), 1);
	assert_int_equal(c, 'O');
	fx->ops->close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{"control__path_beneath_the_root", control__path_beneath_the_root, fixture_setup,
	         teardown, (void *)&file_variant},
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
