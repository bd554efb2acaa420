/* SPDX-License-Identifier: Apache-2.0 */
/* Names: what every engine does with paths, directories and open flags. */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

static void touch(struct fixture *fx, const char *path)
{
	fx->ops->close(fx_open(fx, path, ENGINE_WRITE | ENGINE_CREATE));
}

static void expect_open(struct fixture *fx, const char *path, uint32_t flags, int rc)
{
	struct engine_file *f = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	int got = fx->ops->open(fx->ns, path, flags, 0600, &f, NULL, &err);

	if (got != rc)
		fail_msg("open \"%.60s\" flags %u: expected %d, found %d (%s)", path, flags, rc,
		         got, err.msg);
	if (got == 0)
		fx->ops->close(f);
	else
		assert_string_not_equal(err.msg, "");
}

void engine__refuses_paths_that_are_not_below_the_root(void **state)
{
	struct fixture *fx = *state;
	char name[300], path[4400];
	const char *bad[] = {"",    "/",    "/a",   "a/",        "a//b", ".",  "..",
	                     "a/.", "a/..", "../a", "a/../../b", "./a",  name, path};
	struct engine_attr attr;
	struct engine_dirent d;
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t n;
	uint64_t next;

	memset(name, 'x', 256);
	name[256] = '\0';
	for (size_t i = 0; i < 4200; i++)
		path[i] = i % 2 ? '/' : 'p';
	path[4199] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		expect_open(fx, bad[i], ENGINE_READ, -ELIBBAD);
		expect_open(fx, bad[i], ENGINE_WRITE | ENGINE_CREATE, -ELIBBAD);
		assert_int_equal(fx->ops->mkdir(fx->ns, bad[i], 0700, &err), -ELIBBAD);
		assert_int_equal(fx->ops->unlink(fx->ns, bad[i], &err), -ELIBBAD);
		assert_int_equal(fx->ops->rmdir(fx->ns, bad[i], &err), -ELIBBAD);
		assert_int_equal(fx->ops->rename(fx->ns, bad[i], "ok", &err), -ELIBBAD);
		assert_int_equal(fx->ops->rename(fx->ns, "ok", bad[i], &err), -ELIBBAD);
		if (bad[i][0] == '\0')
			continue;
		assert_int_equal(fx->ops->stat(fx->ns, bad[i], &attr, &err), -ELIBBAD);
		assert_int_equal(fx->ops->readdir(fx->ns, bad[i], 0, &d, 1, &n, &next, &err),
		                 -ELIBBAD);
		assert_string_not_equal(err.msg, "");
	}
	/* The control: one byte less. */
	name[255] = '\0';
	touch(fx, name);
	expect_open(fx, name, ENGINE_READ, 0);
	assert_int_equal(fx->ops->stat(fx->ns, name, &attr, &err), 0);
	assert_int_equal(fx->ops->rename(fx->ns, name, "short", &err), 0);
	assert_int_equal(fx->ops->rename(fx->ns, "short", name, &err), 0);
	assert_int_equal(fx->ops->unlink(fx->ns, name, &err), 0);
	assert_int_equal(fx->ops->mkdir(fx->ns, name, 0700, &err), 0);
	assert_int_equal(fx->ops->readdir(fx->ns, name, 0, &d, 1, &n, &next, &err), 0);
	assert_int_equal(fx->ops->rmdir(fx->ns, name, &err), 0);
}

void engine__creates_opens_and_refuses_by_flags(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	expect_open(fx, "f", ENGINE_READ, -ENOENT);
	expect_open(fx, "f", ENGINE_WRITE, -ENOENT);
	expect_open(fx, "f", ENGINE_CREATE, -EINVAL);
	expect_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE | ENGINE_EXCLUSIVE, 0);
	expect_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE | ENGINE_EXCLUSIVE, -EEXIST);
	expect_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE, 0);
	expect_open(fx, "f/g", ENGINE_READ, -ENOTDIR);
	expect_open(fx, "f/g", ENGINE_WRITE | ENGINE_CREATE, -ENOTDIR);
	expect_open(fx, "no/g", ENGINE_WRITE | ENGINE_CREATE, -ENOENT);
	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), 0);
	expect_open(fx, "d", ENGINE_READ, -EISDIR);
	expect_open(fx, "d", ENGINE_WRITE, -EISDIR);
}

void engine__makes_and_removes_directories(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), 0);
	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), -EEXIST);
	assert_int_equal(fx->ops->mkdir(fx->ns, "x/d", 0700, &err), -ENOENT);
	assert_int_equal(fx->ops->mkdir(fx->ns, "d/e", 0700, &err), 0);
	touch(fx, "d/e/f");
	assert_int_equal(fx->ops->mkdir(fx->ns, "d/e/f/g", 0700, &err), -ENOTDIR);
	assert_int_equal(fx->ops->rmdir(fx->ns, "d/e", &err), -ENOTEMPTY);
	assert_int_equal(fx->ops->unlink(fx->ns, "d/e", &err), -EISDIR);
	assert_int_equal(fx->ops->rmdir(fx->ns, "d/e/f", &err), -ENOTDIR);
	assert_int_equal(fx->ops->unlink(fx->ns, "d/e/f", &err), 0);
	assert_int_equal(fx->ops->unlink(fx->ns, "d/e/f", &err), -ENOENT);
	assert_int_equal(fx->ops->rmdir(fx->ns, "d/e", &err), 0);
	assert_int_equal(fx->ops->rmdir(fx->ns, "d/e", &err), -ENOENT);
}

void engine__renames_files_and_directories(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), 0);
	assert_int_equal(fx->ops->mkdir(fx->ns, "empty", 0700, &err), 0);
	touch(fx, "a");
	touch(fx, "b");
	assert_int_equal(fx->ops->rename(fx->ns, "a", "a", &err), 0);
	assert_int_equal(fx->ops->rename(fx->ns, "a", "d/a", &err), 0);
	expect_open(fx, "a", ENGINE_READ, -ENOENT);
	assert_int_equal(fx->ops->rename(fx->ns, "b", "d/a", &err), 0);
	expect_open(fx, "d/a", ENGINE_READ, 0);
	assert_int_equal(fx->ops->rename(fx->ns, "b", "c", &err), -ENOENT);
	assert_int_equal(fx->ops->rename(fx->ns, "d/a", "empty", &err), -EISDIR);
	assert_int_equal(fx->ops->rename(fx->ns, "empty", "d/a", &err), -ENOTDIR);
	assert_int_equal(fx->ops->rename(fx->ns, "empty", "d", &err), -ENOTEMPTY);
	assert_int_equal(fx->ops->rename(fx->ns, "d", "d/e", &err), -EINVAL);
	assert_int_equal(fx->ops->rename(fx->ns, "d", "empty", &err), 0);
	expect_open(fx, "empty/a", ENGINE_READ, 0);
	expect_open(fx, "d/a", ENGINE_READ, -ENOENT);
	assert_int_equal(fx->ops->rename(fx->ns, "empty/a", "no/a", &err), -ENOENT);
}

void engine__keeps_an_open_file_alive_after_unlink_and_rename(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t in[5000], out[5000];
	struct engine_file *f;

	f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	fx_pattern(in, 0, sizeof(in), 1);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, in, sizeof(in)), sizeof(in));
	assert_int_equal(fx->ops->rename(fx->ns, "f", "g", &err), 0);
	assert_int_equal(fx->ops->unlink(fx->ns, "g", &err), 0);
	touch(fx, "g");
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, out, sizeof(out)), sizeof(out));
	fx_expect_pattern(out, 0, sizeof(out), 1);
	fx->ops->close(f);
	f = fx_open(fx, "g", ENGINE_READ);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_READ, 0, out, sizeof(out)), 0);
	fx->ops->close(f);
}

/* Pages of @page; every entry's number is counted in @seen. */
static uint32_t list_all(struct fixture *fx, const char *path, uint32_t page, uint8_t *seen,
                         uint32_t n_seen)
{
	struct engine_dirent d[97];
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t cookie = 0;
	uint32_t total = 0, n;

	do {
		unsigned int i;

		assert_int_equal(fx->ops->readdir(fx->ns, path, cookie, d, page, &n, &cookie, &err),
		                 0);
		assert_true(n <= page);
		for (uint32_t k = 0; k < n; k++) {
			assert_int_equal(sscanf(d[k].name, "n%u", &i), 1);
			assert_true(i < n_seen);
			assert_int_equal(d[k].type, ENGINE_REGULAR);
			seen[i]++;
		}
		total += n;
	} while (cookie != 0);
	return total;
}

void engine__pages_through_five_thousand_names(void **state)
{
	static uint8_t seen[5000];
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_dirent d;
	uint64_t next = 7;
	uint32_t n = 7;
	char path[64];

	memset(seen, 0, sizeof(seen));
	assert_int_equal(fx->ops->mkdir(fx->ns, "d", 0700, &err), 0);
	assert_int_equal(fx->ops->readdir(fx->ns, "d", 0, &d, 1, &n, &next, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(next, 0);
	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(path, sizeof(path), "d/n%u", i);
		touch(fx, path);
	}
	assert_int_equal(list_all(fx, "d", 97, seen, 5000), 5000);
	for (uint32_t i = 0; i < 5000; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(fx->ops->readdir(fx->ns, "d/n1", 0, &d, 1, &n, &next, &err), -ENOTDIR);
	assert_int_equal(fx->ops->readdir(fx->ns, "no", 0, &d, 1, &n, &next, &err), -ENOENT);
	assert_int_equal(fx->ops->readdir(fx->ns, "", 0, &d, 1, &n, &next, &err), 0);
	assert_string_equal(d.name, "d");
	assert_int_equal(d.type, ENGINE_DIRECTORY);
}

/* A tmpfs before Linux 6.6 numbers names by their place (docs/decisions/0005-engines.md). */
static bool names_have_no_cookies(const struct fixture *fx)
{
	unsigned int major = 0, minor = 0;
	struct statfs fs;
	struct utsname u;

	if (!fx->root[0])
		return false;
	assert_int_equal(statfs(fx->root, &fs), 0);
	assert_int_equal(uname(&u), 0);
	assert_int_equal(sscanf(u.release, "%u.%u", &major, &minor), 2);
	return fs.f_type == TMPFS_MAGIC && (major < 6 || (major == 6 && minor < 6));
}

void engine__pages_stably_while_names_go(void **state)
{
	struct fixture *fx = *state;
	struct engine_dirent d[8];
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t seen[200] = {0}, gone[200] = {0};
	uint64_t cookie = 0;
	char path[64];
	uint32_t n;
	unsigned int i;

	if (names_have_no_cookies(fx))
		fx_skip("a tmpfs before Linux 6.6 numbers names by their place");
	for (i = 0; i < 200; i++) {
		snprintf(path, sizeof(path), "n%u", i);
		touch(fx, path);
	}
	do {
		assert_int_equal(fx->ops->readdir(fx->ns, "", cookie, d, 8, &n, &cookie, &err), 0);
		for (uint32_t k = 0; k < n; k++) {
			assert_int_equal(sscanf(d[k].name, "n%u", &i), 1);
			assert_false(gone[i]);
			seen[i]++;
			gone[i] = 1;
			assert_int_equal(fx->ops->unlink(fx->ns, d[k].name, &err), 0);
		}
	} while (cookie != 0);
	for (i = 0; i < 200; i++)
		assert_int_equal(seen[i], 1);
}

void engine__keeps_namespaces_apart(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *a = fx->ns, *b = NULL, *bad = NULL;

	touch(fx, "f");
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "t/b", &b, &err), 0);
	fx->ns = b;
	expect_open(fx, "f", ENGINE_READ, -ENOENT);
	touch(fx, "f");
	assert_int_equal(fx->ops->unlink(fx->ns, "f", &err), 0);
	fx->ns = a;
	expect_open(fx, "f", ENGINE_READ, 0);
	fx->ops->ns_close(b);
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "t/a/f", &bad, &err), -ENOTDIR);
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "t/../a", &bad, &err), -ELIBBAD);
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "//t", &bad, &err), -ELIBBAD);
}

void engine__reports_types_and_sizes(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f;
	struct engine_attr a;
	char byte = 'x';

	f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 99999, &byte, 1), 1);
	assert_int_equal(fx->ops->fstat(f, &a, &err), 0);
	assert_int_equal(a.type, ENGINE_REGULAR);
	assert_int_equal(a.size, 100000);
	assert_int_equal(a.mode, 0600);
	assert_int_equal(a.block_size, 1); /* one byte at 99999 was written */
	assert_true(a.mtime_unix_ns > 1600000000000000000u);
	assert_int_equal(fx->ops->stat(fx->ns, "f", &a, &err), 0);
	assert_int_equal(a.size, 100000);
	assert_int_equal(fx->ops->stat(fx->ns, "", &a, &err), 0);
	assert_int_equal(a.type, ENGINE_DIRECTORY);
	assert_int_equal(a.block_size, 0);
	assert_int_equal(fx->ops->stat(fx->ns, "no", &a, &err), -ENOENT);
	assert_int_equal(fx->ops->stat(fx->ns, "f/x", &a, &err), -ENOTDIR);
	fx->ops->close(f);
}
