/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the file engine through what lies in a namespace's directory: links, devices, mounts;
 * races are in test_file_races.c. The attacker here is whoever can put things there behind the
 * engine's back; every case ends in a named refusal and an untouched victim.
 */
#include "tests/engines/place.h"

#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static void expect_open(struct place *p, const char *path, uint32_t flags, int rc)
{
	struct engine_file *f = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	int got = p->fx->ops->open(p->fx->ns, path, flags, 0600, &f, NULL, &err);

	if (got == 0)
		p->fx->ops->close(f);
	if (got != rc)
		fail_msg("open \"%s\": expected %d, found %d (%s)", path, rc, got, err.msg);
}

static void expect_refused(struct place *p, const char *path, int rc)
{
	expect_open(p, path, ENGINE_READ, rc);
	expect_open(p, path, ENGINE_READ | ENGINE_WRITE | ENGINE_TRUNCATE, rc);
	expect_open(p, path, ENGINE_WRITE | ENGINE_CREATE, rc);
}

static void file_engine__follows_no_symbolic_link(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns = NULL;
	struct engine_dirent d[8];
	struct engine_attr a;
	uint64_t next;
	uint32_t n;

	place_put(p.ns, "inside", "I");
	assert_int_equal(symlink("../../outside", place_in(&p, "root")), 0);
	assert_int_equal(ops->ns_open(p.fx->e, &fixture_who, "t/a/root", &ns, &err), -ELIBBAD);
	assert_int_equal(symlink("../../outside/secret", place_in(&p, "to-file")), 0);
	assert_int_equal(symlink("../../outside", place_in(&p, "to-dir")), 0);
	assert_int_equal(symlink(p.outside, place_in(&p, "absolute")), 0);
	assert_int_equal(symlink("inside", place_in(&p, "to-inside")), 0);
	assert_int_equal(symlink("../../outside/new", place_in(&p, "dangling")), 0);
	assert_int_equal(symlink("/proc/self/root", place_in(&p, "magic")), 0);
	expect_refused(&p, "to-file", -EMEDIUMTYPE);
	expect_refused(&p, "to-inside", -EMEDIUMTYPE);
	expect_refused(&p, "dangling", -EMEDIUMTYPE);
	expect_refused(&p, "to-dir/secret", -ELIBBAD);
	expect_refused(&p, "absolute/secret", -ELIBBAD);
	expect_refused(&p, "magic/etc/passwd", -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "to-dir/secret", &a, &err), -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "to-file", &a, &err), 0);
	assert_int_equal(a.type, ENGINE_OTHER);
	assert_true(ops->readdir(p.fx->ns, "to-dir", 0, d, 8, &n, &next, &err) < 0);
	assert_int_equal(ops->mkdir(p.fx->ns, "to-dir/x", 0700, &err), -ELIBBAD);
	assert_int_equal(ops->unlink(p.fx->ns, "to-dir/secret", &err), -ELIBBAD);
	assert_int_equal(ops->rename(p.fx->ns, "to-dir/secret", "mine", &err), -ELIBBAD);
	assert_int_equal(ops->rename(p.fx->ns, "inside", "to-dir/secret", &err), -ELIBBAD);
	/* A link by itself is a name like others: its own, and nothing behind it. */
	assert_int_equal(ops->mkdir(p.fx->ns, "to-dir", 0700, &err), -EEXIST);
	assert_int_equal(ops->rmdir(p.fx->ns, "to-dir", &err), -ENOTDIR);
	assert_int_equal(ops->rename(p.fx->ns, "to-dir", "moved", &err), 0);
	assert_int_equal(ops->stat(p.fx->ns, "moved/secret", &a, &err), -ELIBBAD);
	assert_int_equal(ops->rename(p.fx->ns, "inside", "to-file", &err), 0);
	assert_int_equal(ops->unlink(p.fx->ns, "moved", &err), 0);
	assert_int_equal(ops->unlink(p.fx->ns, "to-file", &err), 0);
	place_secret_untouched(&p);
}

static void file_engine__opens_neither_fifos_nor_sockets_nor_devices(void **state)
{
	struct place p = place_of(state);
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(mkfifo(place_in(&p, "fifo"), 0600), 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.100s", place_in(&p, "socket"));
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	expect_refused(&p, "fifo", -EMEDIUMTYPE); /* and does not hang */
	expect_refused(&p, "socket", -EMEDIUMTYPE);
	close(fd);
	if (mknod(place_in(&p, "null"), S_IFCHR | 0600, makedev(1, 3)) == 0)
		expect_refused(&p, "null", -EMEDIUMTYPE);
}

static void file_engine__refuses_files_with_a_second_name(void **state)
{
	struct place p = place_of(state);
	struct engine_attr attr = {.size = 77};
	char secret[600];

	snprintf(secret, sizeof(secret), "%s/secret", p.outside);
	assert_int_equal(link(secret, place_in(&p, "hard")), 0);
	expect_refused(&p, "hard", -ELIBBAD);
	/* Not its size either, nor when it was written. */
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "hard", &attr, NULL), -ELIBBAD);
	assert_int_equal(attr.size, 77);
	place_secret_untouched(&p);
	assert_int_equal(unlink(secret), 0);
	expect_open(&p, "hard", ENGINE_READ, 0);
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "hard", &attr, NULL), 0);
}

static uint32_t names_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint32_t)st.st_nlink;
}

/* The name is the directory's, which is the tenant's; the file is not, by no name that it gets. */
static void file_engine__moves_and_removes_only_the_name_of_a_file_with_two(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_dirent d[8];
	struct engine_attr a;
	char secret[600];
	uint64_t next;
	uint32_t n;

	snprintf(secret, sizeof(secret), "%s/secret", p.outside);
	assert_int_equal(link(secret, place_in(&p, "hard")), 0);
	place_put(p.ns, "own", "I");
	expect_open(&p, "hard", ENGINE_WRITE | ENGINE_CREATE | ENGINE_EXCLUSIVE, -EEXIST);
	assert_int_equal(ops->mkdir(p.fx->ns, "hard", 0700, &err), -EEXIST);
	assert_int_equal(ops->rmdir(p.fx->ns, "hard", &err), -ENOTDIR);
	assert_int_equal(ops->readdir(p.fx->ns, "hard", 0, d, 8, &n, &next, &err), -ENOTDIR);
	/* From it, and over it. */
	assert_int_equal(ops->rename(p.fx->ns, "hard", "moved", &err), 0);
	expect_refused(&p, "moved", -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "moved", &a, &err), -ELIBBAD);
	assert_int_equal(names_of(secret), 2);
	assert_int_equal(ops->rename(p.fx->ns, "own", "moved", &err), 0);
	assert_int_equal(names_of(secret), 1);
	place_secret_untouched(&p);
	expect_open(&p, "moved", ENGINE_READ, 0); /* what was "own" */
	assert_int_equal(link(secret, place_in(&p, "hard")), 0);
	assert_int_equal(ops->unlink(p.fx->ns, "hard", &err), 0);
	assert_int_equal(names_of(secret), 1);
	place_secret_untouched(&p);
}

static void file_engine__does_not_cross_a_mount_point(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_ns *ns = NULL;
	struct engine_dirent d[8];
	struct engine_attr a;
	uint64_t next;
	uint32_t n;

	place_put(p.ns, "own", "I");
	place_mount(&p);
	expect_refused(&p, "m/secret", -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "m", &a, &err), -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "m/secret", &a, &err), -ELIBBAD);
	assert_int_equal(ops->readdir(p.fx->ns, "m", 0, d, 8, &n, &next, &err), -ELIBBAD);
	assert_int_equal(ops->mkdir(p.fx->ns, "m/x", 0700, &err), -ELIBBAD);
	assert_int_equal(ops->rmdir(p.fx->ns, "m/x", &err), -ELIBBAD);
	assert_int_equal(ops->unlink(p.fx->ns, "m/secret", &err), -ELIBBAD);
	assert_int_equal(ops->rename(p.fx->ns, "m/secret", "stolen", &err), -ELIBBAD);
	assert_int_equal(ops->rename(p.fx->ns, "own", "m/secret", &err), -ELIBBAD);
	assert_int_equal(ops->ns_open(p.fx->e, &fixture_who, "t/a/m", &ns, &err), -ELIBBAD);
	/* It is in use, for the kernel. */
	assert_true(ops->rmdir(p.fx->ns, "m", &err) < 0);
	assert_true(ops->unlink(p.fx->ns, "m", &err) < 0);
	assert_true(ops->rename(p.fx->ns, "m", "n", &err) < 0);
	place_unmount(&p);
	place_secret_untouched(&p);
}

static void file_engine__does_not_open_a_file_that_is_mounted_over_another(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a;

	place_put(p.ns, "f", "I");
	place_put(p.ns, "own", "I");
	place_mount_file(&p, "f");
	expect_refused(&p, "f", -ELIBBAD);
	assert_int_equal(ops->stat(p.fx->ns, "f", &a, &err), -ELIBBAD);
	assert_true(ops->unlink(p.fx->ns, "f", &err) < 0);
	assert_true(ops->rename(p.fx->ns, "f", "stolen", &err) < 0);
	assert_true(ops->rename(p.fx->ns, "own", "f", &err) < 0);
	assert_int_equal(umount(place_in(&p, "f")), 0);
	place_secret_untouched(&p);
	expect_open(&p, "f", ENGINE_READ, 0);
}

static void file_engine__refuses_roots_it_cannot_trust(void **state)
{
	struct fixture *fx = *state;
	struct engine_config c = {.name = "e"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine *e = NULL;
	char path[600];
	struct stat st;

	assert_int_equal(fx->ops->create(&c, &e, &err), -EINVAL);
	c.root = "relative";
	assert_int_equal(fx->ops->create(&c, &e, &err), -EINVAL);
	c.root = "/dev/null";
	assert_true(fx->ops->create(&c, &e, &err) < 0);
	snprintf(path, sizeof(path), "%s/new/deep", fx->root);
	c.root = path;
	assert_int_equal(fx->ops->create(&c, &e, &err), 0);
	fx->ops->destroy(e);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(fx->ops->create(&c, &e, &err), -EPERM);
}

#define T(fn)                                                                                      \
	{                                                                                          \
#fn, fn, fixture_setup, fixture_teardown, (void *)&place_variant                   \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(file_engine__follows_no_symbolic_link),
		T(file_engine__opens_neither_fifos_nor_sockets_nor_devices),
		T(file_engine__refuses_files_with_a_second_name),
		T(file_engine__moves_and_removes_only_the_name_of_a_file_with_two),
		T(file_engine__refuses_roots_it_cannot_trust),
		T(file_engine__does_not_cross_a_mount_point),
		T(file_engine__does_not_open_a_file_that_is_mounted_over_another),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
