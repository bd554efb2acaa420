/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that stand: somebody has a file's lock and does not give it back, as a storage does that
 * hangs. What one tenant has there keeps no other's waiting. The lock is a write's whose payload is
 * not there until the test brings it (userfaultfd(2), which needs a privilege).
 */
#include "tests/await.h"
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include <errno.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PLAIN (ENGINE_IO_NO_DEFER | ENGINE_IO_NO_COOP)

static const struct variant variants[] = {
	{.name = "deferred", .type = "file", .base = "/var/tmp"},
	{.name = "cooperative",
         .type = "file",
         .base = "/var/tmp",
         .io_features = ENGINE_IO_NO_DEFER},
	{.name = "plain", .type = "file", .base = "/var/tmp", .io_features = PLAIN},
};

/* ---- a lock that is held ---- */

struct holder {
	struct engine_file *f;
	int fault_fd; /* owned */
	uint8_t *page;
	size_t size;
	pthread_t thread;
};

static void *hold(void *arg)
{
	struct holder *h = arg;

	return pwrite(h->f->fd, h->page, h->size, 0) == (ssize_t)h->size ? h : NULL;
}

/* Ends the test where that is not allowed. */
static int fault_fd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0)
		fx_skip("userfaultfd is not allowed here: nothing makes a call stand");
	return fd;
}

/* Until release. */
static void hold_lock(struct holder *h, int fault_fd, struct engine_file *f)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffd_msg m;

	*h = (struct holder){.f = f, .fault_fd = fault_fd, .size = (size_t)sysconf(_SC_PAGESIZE)};
	h->page = mmap(NULL, h->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(h->page != MAP_FAILED);
	reg.range = (struct uffdio_range){(uintptr_t)h->page, h->size};
	assert_int_equal(ioctl(h->fault_fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(h->fault_fd, UFFDIO_REGISTER, &reg), 0);
	assert_int_equal(pthread_create(&h->thread, NULL, hold, h), 0);
	assert_int_equal(read(h->fault_fd, &m, sizeof(m)), sizeof(m));
}

static void release(struct holder *h)
{
	struct uffdio_zeropage z = {.range = {(uintptr_t)h->page, h->size}};
	void *ok;

	assert_int_equal(ioctl(h->fault_fd, UFFDIO_ZEROPAGE, &z), 0);
	assert_int_equal(pthread_join(h->thread, &ok), 0);
	assert_non_null(ok);
	munmap(h->page, h->size);
	close(h->fault_fd);
}

/* ---- who waits for it ---- */

static void begin(struct fixture *fx, struct fx_counted *c, struct engine_file *f,
                  enum engine_op op, uint32_t len, int *ended)
{
	*c = (struct fx_counted){fx_prepare(fx, f, op, 0, NULL, len), ended};
	c->io.done = fx_count_end;
	assert_int_equal(fx->ops->submit(fx->r, &c->io), 0);
	assert_int_equal(fx->ops->kick(fx->r), 0);
}

static bool polled(struct fixture *fx, const int *ended, int want)
{
	return AWAIT((fx->ops->poll(fx->r, 32), *ended >= want));
}

static bool kernel_takes_a_bound(void)
{
	struct utsname u;
	int major, minor;

	return uname(&u) == 0 && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 5 || (major == 5 && minor >= 15));
}

struct io_uring;
static uint32_t told; /* the kernel, how many threads it may make */

int __real_io_uring_register_iowq_max_workers(struct io_uring *ring, unsigned int *values);
int __wrap_io_uring_register_iowq_max_workers(struct io_uring *ring, unsigned int *values);
int __wrap_io_uring_register_iowq_max_workers(struct io_uring *ring, unsigned int *values)
{
	told = values[0];
	return __real_io_uring_register_iowq_max_workers(ring, values);
}

/* They count for what this process and its neighbours may have of them. */
static void uring__tells_the_kernel_how_many_threads_it_may_make(void **state)
{
	struct fixture *fx = *state;
	struct engine_reactor_opts o = {.depth = 4, .io_workers = 5};
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_reactor *r;

	if (!strcmp(file_reactor_kind(fx->r), "threads"))
		fx_skip("io_uring is not allowed here");
	assert_int_equal(fx->ops->reactor_new(fx->e, &o, &r, &err), 0);
	assert_int_equal(told, 5);
	fx->ops->reactor_free(r);
	o.io_workers = 0;
	assert_int_equal(fx->ops->reactor_new(fx->e, &o, &r, &err), 0);
	assert_in_range(told, 1024, UINT32_MAX);
	fx->ops->reactor_free(r);
}

/* The kernel's own bound is four for each processor. */
static void uring__calls_that_stand_keep_no_others_waiting(void **state)
{
	static struct fx_counted slow[FIXTURE_DEPTH - 1], quick;
	struct fixture *fx = *state;
	struct engine_file *f, *g;
	uint8_t *buf = fx_memory(fx, 65536);
	int stood = 0, went = 0, fd;
	struct holder h;
	bool went_on;

	if (strcmp(file_reactor_kind(fx->r), "threads") == 0)
		fx_skip("io_uring is forbidden here");
	if (!kernel_takes_a_bound())
		fx_skip("before Linux 5.15 the kernel's own number of threads stands");
	fd = fault_fd();
	f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);
	g = fx_open(fx, "g", ENGINE_WRITE | ENGINE_CREATE);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, buf, 65536), 65536);
	assert_int_equal(fx_io(fx, g, ENGINE_OP_WRITE, 0, buf, 65536), 65536);
	hold_lock(&h, fd, f);
	for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
		begin(fx, &slow[i], f, ENGINE_OP_DISCARD, 4096, &stood);
	begin(fx, &quick, g, ENGINE_OP_FLUSH, 0, &went);
	went_on = polled(fx, &went, 1);
	release(&h);
	assert_true(polled(fx, &stood, ARRAY_SIZE(slow)));
	assert_true(went_on);
	fx->ops->close(f);
	fx->ops->close(g);
}

#define V(i)                                                                                       \
	{                                                                                          \
		"uring__calls_that_stand_keep_no_others_waiting",                                  \
			uring__calls_that_stand_keep_no_others_waiting, fixture_setup,             \
			fixture_teardown, (void *)&variants[i]                                     \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		V(0),
		V(1),
		V(2),
		cmocka_unit_test_prestate_setup_teardown(
			uring__tells_the_kernel_how_many_threads_it_may_make, fixture_setup,
			fixture_teardown, (void *)&variants[0]),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
