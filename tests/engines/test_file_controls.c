/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls of the file engine's paths: file_path.c is compiled into this test with its
 * switches. A link that leads out of the namespace, a mount in it and a second name of a file
 * outside give the secret only when the switch is set. The races have theirs (test_file_races.c).
 */
#include "dataplane/test_switches.h"
#include "tests/engines/place.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

struct dp_test_switches dp_test_switches;

static int teardown(void **state)
{
	dp_test_switches = (struct dp_test_switches){0};
	return fixture_teardown(state);
}

/* What the file gives that is opened by @path: 'O' of the secret outside, 0 for a refusal. */
static char first_byte(struct place *p, const char *path)
{
	struct engine_file *f = NULL;
	char c = '?';
	int rc = p->fx->ops->open(p->fx->ns, path, ENGINE_READ, 0, &f, NULL, NULL);

	if (rc < 0) {
		assert_int_equal(rc, -ELIBBAD);
		return 0;
	}
	assert_int_equal(fx_io(p->fx, f, ENGINE_OP_READ, 0, &c, 1), 1);
	p->fx->ops->close(f);
	return c;
}

static void control__path_beneath_the_root(void **state)
{
	struct place p = place_of(state);

	assert_int_equal(symlink("../../outside", place_in(&p, "way-out")), 0);
	assert_int_equal(first_byte(&p, "way-out/secret"), 0);
	dp_test_switches.no_beneath = true;
	assert_int_equal(first_byte(&p, "way-out/secret"), 'O');
}

static void control__second_name(void **state)
{
	struct place p = place_of(state);
	struct engine_attr attr = {.size = 77};
	char secret[600];

	snprintf(secret, sizeof(secret), "%s/secret", p.outside);
	assert_int_equal(link(secret, place_in(&p, "hard")), 0);
	assert_int_equal(first_byte(&p, "hard"), 0);
	dp_test_switches.no_one_name = true;
	assert_int_equal(first_byte(&p, "hard"), 'O');
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "hard", &attr, NULL), 0);
	assert_int_equal(attr.size, 7);
}

static void control__mount_point(void **state)
{
	struct place p = place_of(state);

	place_mount(&p);
	assert_int_equal(first_byte(&p, "m/secret"), 0);
	dp_test_switches.no_beneath = true;
	assert_int_equal(first_byte(&p, "m/secret"), 'O');
	place_unmount(&p);
}

#define T(fn)                                                                                      \
	{                                                                                          \
#fn, fn, fixture_setup, teardown, (void *)&place_variant                           \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control__path_beneath_the_root), T(control__second_name),
		T(control__mount_point), /* last: the process stays in its mount namespace */
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
