/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Negative controls of the file engine's paths: file_path.c and names.c are compiled into this test
 * with their switches. A link that leads out of the namespace, a mount in it and a second name of a
 * file outside give the secret only when the switch is set, and ".." only when both of those are
 * that refuse it. The races have theirs (test_file_races.c).
 */
#include "dataplane/test_switches.h"
#include "tests/engines/place.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
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

/* The text of a path and openat2 refuse it each by itself. */
static void control__path_grammar(void **state)
{
	static const char up[] = "../../outside/secret", twice[] = "inside//file";
	struct place p = place_of(state);

	assert_int_equal(mkdir(place_in(&p, "inside"), 0700), 0);
	place_put(place_in(&p, "inside"), "file", "INSIDE");
	assert_int_equal(first_byte(&p, up), 0);
	assert_int_equal(first_byte(&p, twice), 0);
	dp_test_switches.no_beneath = true;
	assert_int_equal(first_byte(&p, up), 0);
	dp_test_switches.no_beneath = false;
	dp_test_switches.no_path_grammar = true;
	assert_int_equal(first_byte(&p, up), 0);
	assert_int_equal(first_byte(&p, twice), 'I');
	dp_test_switches.no_beneath = true;
	assert_int_equal(first_byte(&p, up), 'O');
	assert_int_equal(first_byte(&p, "inside/../../../outside/./secret"), 'O');
}

/* Every call that takes a path: nothing is made, moved, told of or taken away outside. */
static void control__path_grammar_of_every_call(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct engine_attr attr;

	for (int off = 0; off < 2; off++) {
		int want = off ? 0 : -ELIBBAD;

		dp_test_switches.no_path_grammar = dp_test_switches.no_beneath = off;
		assert_int_equal(ops->stat(p.fx->ns, "../../outside/secret", &attr, NULL), want);
		assert_int_equal(ops->mkdir(p.fx->ns, "../../outside/made", 0700, NULL), want);
		assert_int_equal(ops->rename(p.fx->ns, "../../outside/made", "taken", NULL), want);
		assert_int_equal(ops->rename(p.fx->ns, "taken", "../../outside/put", NULL), want);
		assert_int_equal(ops->rmdir(p.fx->ns, "../../outside/put", NULL), want);
		if (!off)
			place_secret_untouched(&p);
		assert_int_equal(ops->unlink(p.fx->ns, "../../outside/secret", NULL), want);
	}
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

static void control__mount_point_of_every_call(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct engine_dirent d[8];
	struct engine_attr a;
	uint64_t next;
	uint32_t n;

	place_mount(&p);
	for (int off = 0; off < 2; off++) {
		int want = off ? 0 : -ELIBBAD;

		dp_test_switches.no_beneath = off;
		assert_int_equal(ops->stat(p.fx->ns, "m/secret", &a, NULL), want);
		assert_int_equal(ops->readdir(p.fx->ns, "m", 0, d, 8, &n, &next, NULL), want);
		assert_int_equal(ops->mkdir(p.fx->ns, "m/made", 0700, NULL), want);
		assert_int_equal(ops->rename(p.fx->ns, "m/made", "m/moved", NULL), want);
		assert_int_equal(ops->rmdir(p.fx->ns, "m/moved", NULL), want);
		if (!off)
			place_secret_untouched(&p);
		assert_int_equal(ops->unlink(p.fx->ns, "m/secret", NULL), want);
	}
	place_unmount(&p);
}

static void control__mounted_file(void **state)
{
	struct place p = place_of(state);

	place_put(p.ns, "f", "INSIDE");
	place_mount_file(&p, "f");
	assert_int_equal(first_byte(&p, "f"), 0);
	dp_test_switches.no_beneath = true;
	assert_int_equal(first_byte(&p, "f"), 'O');
	assert_int_equal(umount(place_in(&p, "f")), 0);
}

#define T(fn)                                                                                      \
	{                                                                                          \
#fn, fn, fixture_setup, teardown, (void *)&place_variant                           \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(control__path_beneath_the_root),
		T(control__path_grammar),
		T(control__path_grammar_of_every_call),
		T(control__second_name),
		/* Last: the process stays in its mount namespace. */
		T(control__mount_point),
		T(control__mount_point_of_every_call),
		T(control__mounted_file),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
