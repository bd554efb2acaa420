/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file engine has synced when it says that something is durable: the names that mkdir,
 * rename and the opening of a namespace make, in the directories they are in and after they were
 * made; and with the first flush of a new file its name. A sync that fails is told. Each sync is
 * looked for by itself, so that one that is left out is missed.
 */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct variant variants[] = {
	{.name = "io_uring", .type = "file", .base = "/var/tmp"},
	{.name = "threads", .type = "file", .base = "/var/tmp", .io_features = ENGINE_IO_NO_URING},
};

/* ---- what was synced ---- */

static struct {
	ino_t dirs[16]; /* as often as they were, when the new name was there */
	unsigned n;
	char made[600]; /* the new name */
	int error;      /* each sync of a directory fails so */
} seen;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return __real_fsync(fd);
	if (seen.error) {
		errno = seen.error;
		return -1;
	}
	if (access(seen.made, F_OK) == 0 && seen.n < ARRAY_SIZE(seen.dirs))
		seen.dirs[seen.n++] = st.st_ino;
	return __real_fsync(fd);
}

static const char *path_in(const struct fixture *fx, const char *name)
{
	static char path[600];

	snprintf(path, sizeof(path), "%s/%s", fx->root, name);
	return path;
}

static void expect(const struct fixture *fx, const char *made)
{
	seen.n = 0;
	seen.error = 0;
	snprintf(seen.made, sizeof(seen.made), "%s", path_in(fx, made));
}

static bool was_synced(const struct fixture *fx, const char *dir)
{
	struct stat st;

	assert_int_equal(stat(path_in(fx, dir), &st), 0);
	for (unsigned i = 0; i < seen.n; i++)
		if (seen.dirs[i] == st.st_ino)
			return true;
	return false;
}

/* A namespace whose names are those below the root. */
static struct engine_ns *at_root(struct fixture *fx, const char *path)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns = NULL;

	if (fx->ops->ns_open(fx->e, &fixture_who, path, &ns, &err) < 0)
		fail_msg("%s: %s", path, err.msg);
	return ns;
}

static void mkdir__is_durable_when_it_returns(void **state)
{
	struct fixture *fx = *state;
	struct engine_ns *ns = at_root(fx, "");
	struct ros2_err err = ROS2_ERR_INIT;

	expect(fx, "one");
	assert_int_equal(fx->ops->mkdir(ns, "one", 0700, &err), 0);
	assert_true(was_synced(fx, ""));
	expect(fx, "one/two");
	assert_int_equal(fx->ops->mkdir(ns, "one/two", 0700, &err), 0);
	assert_true(was_synced(fx, "one"));
	seen.error = EIO;
	assert_int_equal(fx->ops->mkdir(ns, "three", 0700, &err), -EIO);
	assert_non_null(strstr(err.msg, "durable"));
	seen.error = EINVAL; /* a file system that has no such thing */
	assert_int_equal(fx->ops->mkdir(ns, "four", 0700, &err), 0);
	fx->ops->ns_close(ns);
}

static void rename__is_durable_in_both_directories_when_it_returns(void **state)
{
	struct fixture *fx = *state;
	struct engine_ns *ns = at_root(fx, "");
	struct ros2_err err = ROS2_ERR_INIT;

	expect(fx, "b/new");
	assert_int_equal(fx->ops->mkdir(ns, "a", 0700, &err), 0);
	assert_int_equal(fx->ops->mkdir(ns, "b", 0700, &err), 0);
	assert_int_equal(fx->ops->mkdir(ns, "a/old", 0700, &err), 0);
	assert_int_equal(seen.n, 0);
	assert_int_equal(fx->ops->rename(ns, "a/old", "b/new", &err), 0);
	assert_true(was_synced(fx, "a"));
	assert_true(was_synced(fx, "b"));
	seen.error = EIO;
	assert_int_equal(fx->ops->rename(ns, "b/new", "a/old", &err), -EIO);
	assert_non_null(strstr(err.msg, "durable"));
	fx->ops->ns_close(ns);
}

static void namespace__is_durable_at_each_level_when_it_is_open(void **state)
{
	struct fixture *fx = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns;

	expect(fx, "x");
	ns = at_root(fx, "x/y/z");
	assert_true(was_synced(fx, ""));
	assert_true(was_synced(fx, "x"));
	assert_true(was_synced(fx, "x/y"));
	fx->ops->ns_close(ns);
	/* As often as it fails, though its directory is there by then. */
	for (int i = 0; i < 2; i++) {
		seen.error = EIO;
		assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "v/w", &ns, &err), -EIO);
		assert_true(strlen(err.msg) > 0);
	}
	expect(fx, "v");
	ns = at_root(fx, "v/w");
	assert_true(was_synced(fx, ""));
	fx->ops->ns_close(ns);
}

/* In the ring nobody sees the call: a directory that cannot be synced tells of it. */
static void flush__of_a_new_file_syncs_its_name_once(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);
	int was = f->parent_fd;

	assert_true(was >= 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	f->parent_fd = open(fx->root, O_PATH | O_CLOEXEC);
	assert_true(f->parent_fd >= 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	fx->ops->close(f);
	f = fx_open(fx, "g", ENGINE_WRITE | ENGINE_CREATE);
	close(f->parent_fd);
	f->parent_fd = open(fx->root, O_PATH | O_CLOEXEC);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), -EIO);
	fx->ops->close(f);
	close(was);
}

/* Whoever makes a file and means to read it only is told the same. */
static void flush__of_a_new_file_that_is_only_read_syncs_its_name(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", ENGINE_READ | ENGINE_CREATE);

	expect(fx, "t/a/f");
	assert_int_equal(fx->ops->fsync(f, NULL), 0);
	assert_true(was_synced(fx, "t/a"));
	fx->ops->close(f);
}

static int setup(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return fixture_setup(state);
}

#define V(i, fn)                                                                                   \
	{                                                                                          \
#fn, fn, setup, fixture_teardown, (void *)&variants[i]                             \
	}
#define BOTH(fn) V(0, fn), V(1, fn)
int main(void)
{
	const struct CMUnitTest tests[] = {
		V(1, mkdir__is_durable_when_it_returns),
		V(1, rename__is_durable_in_both_directories_when_it_returns),
		V(1, namespace__is_durable_at_each_level_when_it_is_open),
		BOTH(flush__of_a_new_file_syncs_its_name_once),
		V(1, flush__of_a_new_file_that_is_only_read_syncs_its_name),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
