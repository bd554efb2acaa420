/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory on the way, or the file itself, is swapped for a link that leads outside, or has
 * another mounted on it, again and again, while each call on a path is made: it acts inside or not
 * at all. file_path.c is compiled into this test with its switches; with them set, each call is
 * seen to act outside, so the race is one that can be lost.
 */
#include "dataplane/test_switches.h"
#include "tests/engines/place.h"

#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct dp_test_switches dp_test_switches;

struct race {
	struct place place;
	struct fixture *fx;
	/* Of "d", wherever it is just now, and of the other two. */
	int inside, outside, ns;
	char dir[600], link[600];
	pthread_t swapper;
	atomic_bool stop;
	uint32_t swaps;
};

enum where { REFUSED, INSIDE, OUTSIDE };

static void *swap_again_and_again(void *arg)
{
	struct race *r = arg;

	while (!atomic_load(&r->stop))
		r->swaps += renameat2(AT_FDCWD, r->dir, AT_FDCWD, r->link, RENAME_EXCHANGE) == 0;
	return NULL;
}

static void *mount_again_and_again(void *arg)
{
	struct race *r = arg;

	while (!atomic_load(&r->stop))
		r->swaps += place_mount_again(&r->place, "d");
	return NULL;
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* What is swapped: a directory for a link to one, a file for a link to one, a file for a second
 * name of one; a directory for another that is mounted there. */
enum what { DIRECTORY, FILE_LINK, FILE_NAME, MOUNT };

static void make_what(struct race *r, enum what what)
{
	char secret[600];

	if (what == DIRECTORY || what == MOUNT) {
		assert_int_equal(mkdir(r->dir, 0700), 0);
		place_put(r->dir, "secret", "INSIDE");
		place_put(r->place.outside, "only-outside", "");
		if (what == DIRECTORY)
			assert_int_equal(symlink("../../outside", r->link), 0);
		r->inside = open_dir(r->dir);
		return;
	}
	snprintf(secret, sizeof(secret), "%s/secret", r->place.outside);
	place_put(r->place.ns, "d", "INSIDE");
	if (what == FILE_LINK)
		assert_int_equal(symlink("../../outside/secret", r->link), 0);
	else
		assert_int_equal(link(secret, r->link), 0);
	r->inside = -1;
}

static void race_begin(struct race *r, void **state, enum what what)
{
	*r = (struct race){.place = place_of(state)};
	r->fx = r->place.fx;
	if (what == MOUNT) { /* a namespace of mounts where that can be done */
		place_mount(&r->place);
		place_unmount(&r->place);
	}
	snprintf(r->dir, sizeof(r->dir), "%s/d", r->place.ns);
	snprintf(r->link, sizeof(r->link), "%s/l", r->place.ns);
	make_what(r, what);
	r->outside = open_dir(r->place.outside);
	r->ns = open_dir(r->place.ns);
	assert_int_equal(
		pthread_create(&r->swapper, NULL,
	                       what == MOUNT ? mount_again_and_again : swap_again_and_again, r),
		0);
}

static void race_end(struct race *r)
{
	atomic_store(&r->stop, true);
	pthread_join(r->swapper, NULL);
	assert_true(r->swaps > 0);
	if (r->inside >= 0)
		close(r->inside);
	close(r->outside);
	close(r->ns);
}

static bool has(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void make_file(int dir, const char *name)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
}

/* ---- each call, once ---- */

static enum where race_open(struct race *r)
{
	struct engine_file *f = NULL;
	char c = '?';

	if (r->fx->ops->open(r->fx->ns, "d/secret", ENGINE_READ, 0, &f, NULL, NULL) < 0)
		return REFUSED;
	assert_int_equal(fx_io(r->fx, f, ENGINE_OP_READ, 0, &c, 1), 1);
	r->fx->ops->close(f);
	return c == 'I' ? INSIDE : OUTSIDE;
}

static enum where race_create(struct race *r)
{
	struct engine_file *f = NULL;

	if (r->fx->ops->open(r->fx->ns, "d/made", ENGINE_WRITE | ENGINE_CREATE | ENGINE_EXCLUSIVE,
	                     0600, &f, NULL, NULL) < 0)
		return REFUSED;
	r->fx->ops->close(f);
	if (unlinkat(r->outside, "made", 0) == 0)
		return OUTSIDE;
	assert_int_equal(unlinkat(r->inside, "made", 0), 0);
	return INSIDE;
}

static enum where race_stat(struct race *r)
{
	struct engine_attr a;

	if (r->fx->ops->stat(r->fx->ns, "d/secret", &a, NULL) < 0)
		return REFUSED;
	return a.size == strlen("INSIDE") ? INSIDE : OUTSIDE;
}

static enum where race_readdir(struct race *r)
{
	struct engine_dirent d[8];
	uint64_t next;
	uint32_t n;

	if (r->fx->ops->readdir(r->fx->ns, "d", 0, d, 8, &n, &next, NULL) < 0)
		return REFUSED;
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(d[i].name, "only-outside"))
			return OUTSIDE;
	return INSIDE;
}

static enum where race_mkdir(struct race *r)
{
	if (r->fx->ops->mkdir(r->fx->ns, "d/new", 0700, NULL) < 0)
		return REFUSED;
	if (unlinkat(r->outside, "new", AT_REMOVEDIR) == 0)
		return OUTSIDE;
	assert_int_equal(unlinkat(r->inside, "new", AT_REMOVEDIR), 0);
	return INSIDE;
}

static enum where race_rmdir(struct race *r)
{
	assert_true(mkdirat(r->inside, "hollow", 0700) == 0 || errno == EEXIST);
	assert_true(mkdirat(r->outside, "hollow", 0700) == 0 || errno == EEXIST);
	if (r->fx->ops->rmdir(r->fx->ns, "d/hollow", NULL) < 0)
		return REFUSED;
	return has(r->outside, "hollow") ? INSIDE : OUTSIDE;
}

static enum where race_unlink(struct race *r)
{
	make_file(r->inside, "victim");
	make_file(r->outside, "victim");
	if (r->fx->ops->unlink(r->fx->ns, "d/victim", NULL) < 0)
		return REFUSED;
	return has(r->outside, "victim") ? INSIDE : OUTSIDE;
}

static enum where race_rename_from(struct race *r)
{
	make_file(r->inside, "from");
	make_file(r->outside, "from");
	if (r->fx->ops->rename(r->fx->ns, "d/from", "to", NULL) < 0)
		return REFUSED;
	return has(r->outside, "from") ? INSIDE : OUTSIDE;
}

static enum where race_rename_to(struct race *r)
{
	make_file(r->ns, "own");
	if (r->fx->ops->rename(r->fx->ns, "own", "d/taken", NULL) < 0)
		return REFUSED;
	if (unlinkat(r->outside, "taken", 0) == 0)
		return OUTSIDE;
	assert_int_equal(unlinkat(r->inside, "taken", 0), 0);
	return INSIDE;
}

/* ---- each call on the last name, once ---- */

static enum where race_open_last(struct race *r)
{
	struct engine_file *f = NULL;
	char c = '?';

	if (r->fx->ops->open(r->fx->ns, "d", ENGINE_READ, 0, &f, NULL, NULL) < 0)
		return REFUSED;
	assert_int_equal(fx_io(r->fx, f, ENGINE_OP_READ, 0, &c, 1), 1);
	r->fx->ops->close(f);
	return c == 'I' ? INSIDE : OUTSIDE;
}

static enum where race_stat_last(struct race *r)
{
	struct engine_attr a;

	if (r->fx->ops->stat(r->fx->ns, "d", &a, NULL) < 0 || a.type != ENGINE_REGULAR)
		return REFUSED;
	return a.size == strlen("INSIDE") ? INSIDE : OUTSIDE;
}

/* As it was again, when it was outside. */
static enum where where_it_was_cut(struct race *r)
{
	struct stat st;

	assert_int_equal(fstatat(r->outside, "secret", &st, 0), 0);
	if (st.st_size == (off_t)strlen("OUTSIDE"))
		return INSIDE;
	place_put(r->place.outside, "secret", "OUTSIDE");
	return OUTSIDE;
}

static enum where race_cut_last(struct race *r)
{
	struct engine_file *f = NULL;

	if (r->fx->ops->open(r->fx->ns, "d", ENGINE_WRITE | ENGINE_TRUNCATE, 0, &f, NULL, NULL) < 0)
		return REFUSED;
	r->fx->ops->close(f);
	return where_it_was_cut(r);
}

static enum where race_make_last(struct race *r)
{
	struct engine_file *f = NULL;

	if (r->fx->ops->open(r->fx->ns, "d", ENGINE_WRITE | ENGINE_CREATE | ENGINE_TRUNCATE, 0600,
	                     &f, NULL, NULL) < 0)
		return REFUSED;
	r->fx->ops->close(f);
	return where_it_was_cut(r);
}

/* ---- again and again ---- */

#define RENAMES 2 /* the last: Linux renames nothing from one mount to another */

/* What syncs a directory each time is raced less often. */
static const struct raced {
	const char *name;
	enum where (*once)(struct race *r);
	uint32_t times;
} calls[] = {
	{"open", race_open, 2000},          {"create", race_create, 2000},
	{"stat", race_stat, 2000},          {"readdir", race_readdir, 2000},
	{"mkdir", race_mkdir, 200},         {"rmdir", race_rmdir, 2000},
	{"unlink", race_unlink, 2000},      {"rename from", race_rename_from, 200},
	{"rename to", race_rename_to, 200},
};

/* What cuts the file is behind those that look at it. */
static const struct raced lasts[] = {
	{"open", race_open_last, 2000},
	{"stat", race_stat_last, 2000},
	{"truncate", race_cut_last, 500},
	{"create", race_make_last, 500},
};

#define LONGEST_NS (10 * NS_PER_S)

static void is_never_outside(struct race *r, const struct raced *v, size_t n_calls)
{
	for (size_t k = 0; k < n_calls; k++) {
		uint64_t end = clock_add_ns(clock_monotonic_ns(), LONGEST_NS);
		uint32_t seen[3] = {0}, n = 0;

		/* at least one of each, so that the race was real */
		while ((n++ < v[k].times || !seen[INSIDE] || !seen[REFUSED]) &&
		       clock_monotonic_ns() < end)
			seen[v[k].once(r)]++;
		if (seen[OUTSIDE] || !seen[INSIDE] || !seen[REFUSED])
			fail_msg("%s: %u inside, %u refused, %u outside", v[k].name, seen[INSIDE],
			         seen[REFUSED], seen[OUTSIDE]);
	}
}

static void is_outside_once(struct race *r, const struct raced *v, size_t n_calls)
{
	for (size_t k = 0; k < n_calls; k++) {
		uint64_t end = clock_add_ns(clock_monotonic_ns(), LONGEST_NS);
		bool outside = false;

		while (!outside && clock_monotonic_ns() < end)
			outside = v[k].once(r) == OUTSIDE;
		if (!outside)
			fail_msg("%s: never outside", v[k].name);
	}
}

static void file_engine__is_not_fooled_by_a_link_swapped_in_meanwhile(void **state)
{
	struct race r;

	race_begin(&r, state, DIRECTORY);
	is_never_outside(&r, calls, ARRAY_SIZE(calls));
	race_end(&r);
	place_secret_untouched(&r.place);
}

static void file_engine__is_not_fooled_by_a_link_in_place_of_the_file(void **state)
{
	struct race r;

	race_begin(&r, state, FILE_LINK);
	is_never_outside(&r, lasts, ARRAY_SIZE(lasts));
	race_end(&r);
	place_secret_untouched(&r.place);
}

static void file_engine__is_not_fooled_by_a_second_name_in_place_of_the_file(void **state)
{
	struct race r;

	race_begin(&r, state, FILE_NAME);
	is_never_outside(&r, lasts, ARRAY_SIZE(lasts));
	race_end(&r);
	place_secret_untouched(&r.place);
}

static void file_engine__is_not_fooled_by_a_mount_that_appears_meanwhile(void **state)
{
	struct race r;

	race_begin(&r, state, MOUNT);
	is_never_outside(&r, calls, ARRAY_SIZE(calls));
	race_end(&r);
	place_secret_untouched(&r.place);
}

static void control__each_call_loses_the_race_without_its_flags(void **state)
{
	struct race r;

	race_begin(&r, state, DIRECTORY);
	dp_test_switches.no_beneath = true;
	is_outside_once(&r, calls, ARRAY_SIZE(calls));
	race_end(&r);
}

static void control__each_call_sees_what_is_mounted_without_its_flags(void **state)
{
	struct race r;

	race_begin(&r, state, MOUNT);
	dp_test_switches.no_beneath = true;
	is_outside_once(&r, calls, ARRAY_SIZE(calls) - RENAMES);
	race_end(&r);
}

static void control__each_call_on_a_file_loses_it_too(void **state)
{
	struct race r;

	race_begin(&r, state, FILE_LINK);
	dp_test_switches.no_beneath = true;
	is_outside_once(&r, lasts, ARRAY_SIZE(lasts));
	race_end(&r);
}

static void control__second_names_lose_it_where_they_are_not_counted(void **state)
{
	struct race r;

	race_begin(&r, state, FILE_NAME);
	dp_test_switches.no_one_name = true;
	is_outside_once(&r, lasts, ARRAY_SIZE(lasts));
	race_end(&r);
}

static int teardown(void **state)
{
	dp_test_switches = (struct dp_test_switches){0};
	return fixture_teardown(state);
}

#define T(fn)                                                                                      \
	{                                                                                          \
#fn, fn, fixture_setup, teardown, (void *)&place_variant                           \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(file_engine__is_not_fooled_by_a_link_swapped_in_meanwhile),
		T(file_engine__is_not_fooled_by_a_link_in_place_of_the_file),
		T(file_engine__is_not_fooled_by_a_second_name_in_place_of_the_file),
		T(file_engine__is_not_fooled_by_a_mount_that_appears_meanwhile),
		T(control__each_call_loses_the_race_without_its_flags),
		T(control__each_call_sees_what_is_mounted_without_its_flags),
		T(control__each_call_on_a_file_loses_it_too),
		T(control__second_names_lose_it_where_they_are_not_counted),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
