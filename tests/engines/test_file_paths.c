/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks on the file engine through what lies in a namespace's directory: links, devices, mounts,
 * races. The attacker here is whoever can put things there behind the engine's back; every case
 * ends in a named refusal and an untouched victim.
 */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const struct variant file_variant = {.name = "file", .type = "file", .base = "/var/tmp"};

struct place {
	struct fixture *fx;
	char ns[300];      /* the namespace's directory */
	char outside[300]; /* a directory next to it, with the file "secret" */
};

static void put(const char *dir, const char *name, const char *text)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *in(const struct place *p, const char *name)
{
	static char path[600];

	snprintf(path, sizeof(path), "%s/%s", p->ns, name);
	return path;
}

static struct place place_of(void **state)
{
	struct place p = {.fx = *state};

	snprintf(p.ns, sizeof(p.ns), "%s/t/a", p.fx->root);
	snprintf(p.outside, sizeof(p.outside), "%s/outside", p.fx->root);
	assert_int_equal(mkdir(p.outside, 0700), 0);
	put(p.outside, "secret", "OUTSIDE");
	return p;
}

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

static void expect_secret_untouched(struct place *p)
{
	char path[600], text[16] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/secret", p->outside);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	assert_string_equal(text, "OUTSIDE");
}

static void file_engine__follows_no_symbolic_link(void **state)
{
	struct place p = place_of(state);
	const struct engine_ops *ops = p.fx->ops;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_dirent d[8];
	struct engine_attr a;
	uint64_t next;
	uint32_t n;

	put(p.ns, "inside", "I");
	assert_int_equal(symlink("../../outside/secret", in(&p, "to-file")), 0);
	assert_int_equal(symlink("../../outside", in(&p, "to-dir")), 0);
	assert_int_equal(symlink(p.outside, in(&p, "absolute")), 0);
	assert_int_equal(symlink("inside", in(&p, "to-inside")), 0);
	assert_int_equal(symlink("../../outside/new", in(&p, "dangling")), 0);
	assert_int_equal(symlink("/proc/self/root", in(&p, "magic")), 0);
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
	assert_int_equal(ops->unlink(p.fx->ns, "to-file", &err), 0);
	expect_secret_untouched(&p);
}

static void file_engine__opens_neither_fifos_nor_sockets_nor_devices(void **state)
{
	struct place p = place_of(state);
	struct sockaddr_un sun = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(mkfifo(in(&p, "fifo"), 0600), 0);
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.100s", in(&p, "socket"));
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	expect_refused(&p, "fifo", -EMEDIUMTYPE); /* and does not hang */
	expect_refused(&p, "socket", -EMEDIUMTYPE);
	close(fd);
	if (mknod(in(&p, "null"), S_IFCHR | 0600, makedev(1, 3)) == 0)
		expect_refused(&p, "null", -EMEDIUMTYPE);
}

static void file_engine__refuses_files_with_a_second_name(void **state)
{
	struct place p = place_of(state);
	struct engine_attr attr = {.size = 77};
	char secret[600];

	snprintf(secret, sizeof(secret), "%s/secret", p.outside);
	assert_int_equal(link(secret, in(&p, "hard")), 0);
	expect_refused(&p, "hard", -ELIBBAD);
	/* Not its size either, nor when it was written. */
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "hard", &attr, NULL), -ELIBBAD);
	assert_int_equal(attr.size, 77);
	expect_secret_untouched(&p);
	assert_int_equal(unlink(secret), 0);
	expect_open(&p, "hard", ENGINE_READ, 0);
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "hard", &attr, NULL), 0);
}

struct swapper {
	char dir[600], link[600];
	atomic_bool stop;
	uint32_t swaps;
};

static void *swap_again_and_again(void *arg)
{
	struct swapper *s = arg;

	while (!atomic_load(&s->stop))
		s->swaps += renameat2(AT_FDCWD, s->dir, AT_FDCWD, s->link, RENAME_EXCHANGE) == 0;
	return NULL;
}

/* What "d/secret" gives now: 'I' or 'O' for inside and outside, 0 for a refusal. */
static char read_secret(struct place *p)
{
	struct engine_file *f = NULL;
	char c = '?';

	if (p->fx->ops->open(p->fx->ns, "d/secret", ENGINE_READ, 0, &f, NULL, NULL) < 0)
		return 0;
	assert_int_equal(fx_io(p->fx, f, ENGINE_OP_READ, 0, &c, 1), 1);
	p->fx->ops->close(f);
	return c;
}

static void file_engine__is_not_fooled_by_a_link_swapped_in_during_the_open(void **state)
{
	struct place p = place_of(state);
	struct swapper s = {.swaps = 0};
	time_t end = time(NULL) + 5;
	uint32_t inside = 0, refused = 0;
	pthread_t t;

	assert_int_equal(mkdir(in(&p, "d"), 0700), 0);
	put(in(&p, "d"), "secret", "INSIDE");
	assert_int_equal(symlink("../../outside", in(&p, "l")), 0);
	snprintf(s.dir, sizeof(s.dir), "%s/d", p.ns);
	snprintf(s.link, sizeof(s.link), "%s/l", p.ns);
	assert_int_equal(pthread_create(&t, NULL, swap_again_and_again, &s), 0);
	/* at least one of each, so that the race was real */
	for (uint32_t i = 0; (i < 2000 || !inside || !refused) && time(NULL) < end; i++) {
		char c = read_secret(&p);

		if (c != 'I' && c != 0)
			fail_msg("read '%c' from outside", c);
		c ? inside++ : refused++;
	}
	atomic_store(&s.stop, true);
	pthread_join(t, NULL);
	assert_true(inside > 0 && refused > 0 && s.swaps > 0);
}

static void file_engine__does_not_cross_a_mount_point(void **state)
{
	struct place p = place_of(state);
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_config c = {.name = "e", .root = p.fx->root};
	struct engine *e = NULL;
	struct engine_ns *ns = NULL;
	struct engine_attr a;

	assert_int_equal(mkdir(in(&p, "m"), 0700), 0);
	/* a namespace of our own, so that nothing stays mounted */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(p.outside, in(&p, "m"), NULL, MS_BIND, NULL) < 0) {
		printf("# skipped: no mount namespace of our own here: %s\n", strerror(errno));
		rmdir(in(&p, "m"));
		skip();
	}
	/* descriptors opened before still see the old mounts */
	assert_int_equal(p.fx->ops->create(&c, &e, &err), 0);
	assert_int_equal(p.fx->ops->ns_open(e, &fixture_who, "t/a", &ns, &err), 0);
	p.fx->ops->ns_close(p.fx->ns);
	p.fx->ops->destroy(p.fx->e);
	p.fx->e = e;
	p.fx->ns = ns;
	expect_refused(&p, "m/secret", -ELIBBAD);
	assert_int_equal(p.fx->ops->stat(p.fx->ns, "m", &a, &err), -ELIBBAD);
	assert_int_equal(p.fx->ops->ns_open(p.fx->e, &fixture_who, "t/a/m", &ns, &err), -ELIBBAD);
	assert_true(p.fx->ops->rmdir(p.fx->ns, "m", &err) < 0);
	assert_int_equal(umount(in(&p, "m")), 0);
	expect_secret_untouched(&p);
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
#fn, fn, fixture_setup, fixture_teardown, (void *)&file_variant                    \
	}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(file_engine__follows_no_symbolic_link),
		T(file_engine__opens_neither_fifos_nor_sockets_nor_devices),
		T(file_engine__refuses_files_with_a_second_name),
		T(file_engine__is_not_fooled_by_a_link_swapped_in_during_the_open),
		T(file_engine__refuses_roots_it_cannot_trust),
		T(file_engine__does_not_cross_a_mount_point),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
