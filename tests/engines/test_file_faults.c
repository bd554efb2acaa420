/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures under the file engine: a flush that fails, a full file system, calls that stop half-way.
 * The steps of an operation are driven directly with the results a kernel may give; full disks and
 * failing flushes are real ones.
 */
#include "tests/engines/fixture.h"

#include "common/util.h"
#include "dataplane/engines/file_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct variant variants[] = {
	{.name = "io_uring", .type = "file", .base = "/var/tmp"},
	{.name = "threads", .type = "file", .base = "/var/tmp", .io_features = ENGINE_IO_NO_URING},
};

static uint8_t big[FIXTURE_BUF];

/* Puts a descriptor under the file whose fsync fails (a character device: EINVAL); gives the real
 * one back. */
static int break_fsync(struct engine_file *f)
{
	int was = f->fd;

	f->fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(f->fd >= 0);
	return was;
}

static void file_engine__keeps_failing_after_a_failed_flush(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);
	struct ros2_err err = ROS2_ERR_INIT;
	int was;

	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	was = break_fsync(f);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), -EIO);
	close(f->fd);
	f->fd = was; /* it would work again now, and must not */
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), -EIO);
	assert_int_equal(fx->ops->fsync(f, &err), -EIO);
	assert_string_not_equal(err.msg, "");
	fx->ops->close(f);
	f = fx_open(fx, "f", ENGINE_WRITE);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_FLUSH, 0, NULL, 0), 0);
	fx->ops->close(f);
}

static void file_engine__answers_unknown_when_a_write_fails_in_the_middle(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f = fx_open(fx, "f", ENGINE_WRITE | ENGINE_CREATE);
	int was = f->fd, pipes[2];

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	f->fd = pipes[1];
	close(pipes[0]); /* a positioned write on a pipe: an error no file system gives before it
	                    writes */
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 1, big, 100), -EREMOTEIO);
	close(pipes[1]);
	f->fd = was;
	fx->ops->close(f);
}

static int mount_small(const char *at)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	return mount("none", at, "tmpfs", 0, "size=1m,mode=0700") < 0 ? -errno : 0;
}

static void file_engine__says_when_the_file_system_is_full(void **state)
{
	struct fixture *fx = *state;
	struct engine_config c = {.name = "small", .io_features = fx->v->io_features};
	struct engine *e = fx->e;
	struct engine_ns *ns = fx->ns;
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_file *f;
	char at[300];
	int64_t res = 0;

	snprintf(at, sizeof(at), "%s/small", fx->root);
	assert_int_equal(mkdir(at, 0700), 0);
	if (mount_small(at) < 0) {
		printf("# skipped: no tmpfs can be mounted here: %s\n", strerror(errno));
		skip();
	}
	c.root = at;
	assert_int_equal(fx->ops->create(&c, &fx->e, &err), 0);
	assert_int_equal(fx->ops->ns_open(fx->e, &fixture_who, "", &fx->ns, &err), 0);
	f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	for (int i = 0; i < 40 && res >= 0; i++)
		res = fx_io(fx, f, ENGINE_OP_WRITE, (uint64_t)i * 65536, big, 65536);
	assert_int_equal(res, -ENOSPC);
	assert_int_equal(fx->ops->truncate(f, 0, &err), 0);
	assert_int_equal(fx_io(fx, f, ENGINE_OP_WRITE, 0, big, 65536), 65536);
	fx->ops->close(f);
	fx->ops->ns_close(fx->ns);
	fx->ops->destroy(fx->e);
	fx->ns = ns;
	fx->e = e;
	assert_int_equal(umount(at), 0);
}

static void file_engine__uses_what_it_was_allowed(void **state)
{
	struct fixture *fx = *state;
	const char *kind = file_reactor_kind(fx->r);

	if (fx->v->io_features & ENGINE_IO_NO_URING)
		assert_string_equal(kind, "threads");
	else if (strcmp(kind, "threads") == 0) {
		puts("# skipped: io_uring is forbidden here");
		skip();
	} else
		assert_non_null(strstr(kind, "io_uring"));
}

/* One row: what the kernel answers, call after call, and what comes out. */
struct row {
	enum engine_op op;
	int64_t got[5];
	int n;
	int64_t res;
};

static void file_io__ends_as_the_kernel_answers(void **state)
{
	static const struct row rows[] = {
		{ENGINE_OP_READ, {1000}, 1, 1000},
		{ENGINE_OP_READ, {400, 600}, 2, 1000},
		{ENGINE_OP_READ, {400, 0}, 2, 400},
		{ENGINE_OP_READ, {-EINTR, -EAGAIN, 1000}, 3, 1000},
		{ENGINE_OP_READ, {400, -EIO}, 2, -EIO},
		{ENGINE_OP_READ, {-EFAULT}, 1, -EIO},
		{ENGINE_OP_WRITE, {-EROFS}, 1, -EIO},
		{ENGINE_OP_WRITE, {1000}, 1, 1000},
		{ENGINE_OP_WRITE, {1, 998, 1}, 3, 1000},
		{ENGINE_OP_WRITE, {400, -ENOSPC}, 2, -ENOSPC},
		{ENGINE_OP_WRITE, {-EDQUOT}, 1, -ENOSPC},
		{ENGINE_OP_WRITE, {-EFBIG}, 1, -EFBIG},
		{ENGINE_OP_WRITE, {400, -EFBIG}, 2, -EREMOTEIO},
		{ENGINE_OP_WRITE, {400, -ENOMEM}, 2, -EREMOTEIO},
		{ENGINE_OP_WRITE, {-EINTR, -ENOMEM}, 2, -ENOMEM},
		{ENGINE_OP_WRITE, {-EIO}, 1, -EREMOTEIO},
		{ENGINE_OP_WRITE, {-ECANCELED}, 1, -EREMOTEIO},
		{ENGINE_OP_WRITE, {-ETIMEDOUT}, 1, -EREMOTEIO},
		{ENGINE_OP_WRITE, {500, 0}, 2, -EREMOTEIO},
		{ENGINE_OP_FLUSH, {0, 0}, 2, 0},
		{ENGINE_OP_FLUSH, {-EINTR, 0, -EINTR, 0}, 4, 0},
		{ENGINE_OP_FLUSH, {0, -EINVAL}, 2, 0},
		{ENGINE_OP_FLUSH, {0, -EIO}, 2, -EIO},
		{ENGINE_OP_FLUSH, {-EIO}, 1, -EIO},
		{ENGINE_OP_FLUSH, {-ENOSPC}, 1, -EIO},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct engine_file f = {.fd = 3,
		                        .direct_fd = -1,
		                        .parent_fd = 4,
		                        .flags = ENGINE_READ | ENGINE_WRITE,
		                        .name_unsynced = 1};
		struct engine_io io = {
			.file = &f, .op = rows[i].op, .offset = 7, .len = 1000, .buf = big};
		struct file_step s;
		int64_t res = 12345;

		file_io_begin(&io, &s, &res);
		for (int k = 0; k < rows[i].n; k++) {
			assert_int_not_equal(s.call, FILE_CALL_NONE);
			file_io_next(&io, rows[i].got[k], &s, &res);
		}
		if (s.call != FILE_CALL_NONE || res != rows[i].res)
			fail_msg("row %zu: expected %lld, found call %d res %lld", i,
			         (long long)rows[i].res, s.call, (long long)res);
	}
}

static void file_io__gives_up_on_endless_interruption(void **state)
{
	struct engine_file f = {.fd = 3, .direct_fd = -1, .flags = ENGINE_WRITE};
	struct engine_io io = {.file = &f, .op = ENGINE_OP_WRITE, .len = 10, .buf = big};
	struct file_step s;
	int64_t res = 0;
	int calls = 0;

	for (file_io_begin(&io, &s, &res); s.call != FILE_CALL_NONE; calls++) {
		assert_true(calls < 1000);
		file_io_next(&io, -EINTR, &s, &res);
	}
	assert_int_equal(res, -EREMOTEIO);
}

static void file_io__goes_direct_only_when_all_is_aligned(void **state)
{
	static _Alignas(4096) uint8_t page[3 * 4096];
	static const struct {
		uint64_t offset;
		uint32_t len;
		size_t at;
		int fd;
	} rows[] = {{0, 4096, 0, 9}, {4096, 8192, 512, 9}, {512, 4096, 0, 3}, {0, 4097, 0, 3},
	            {0, 512, 0, 3},  {4096, 4096, 1, 3},   {1, 1, 1, 3}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct engine_file f = {.fd = 3,
		                        .direct_fd = 9,
		                        .flags = ENGINE_READ,
		                        .mem_align = 512,
		                        .off_align = 4096};
		struct engine_io io = {.file = &f,
		                       .op = ENGINE_OP_READ,
		                       .offset = rows[i].offset,
		                       .len = rows[i].len,
		                       .buf = page + rows[i].at};
		struct file_step s;
		int64_t res;

		file_io_begin(&io, &s, &res);
		assert_int_equal(s.fd, rows[i].fd);
	}
	/* what is left after a partial direct read is not aligned any more */
	struct engine_file f = {
		.fd = 3, .direct_fd = 9, .flags = ENGINE_READ, .mem_align = 512, .off_align = 4096};
	struct engine_io io = {.file = &f, .op = ENGINE_OP_READ, .len = 8192, .buf = page};
	struct file_step s;
	int64_t res;

	file_io_begin(&io, &s, &res);
	file_io_next(&io, 5000, &s, &res);
	assert_int_equal(s.fd, 3);
	assert_int_equal(s.offset, 5000);
	assert_int_equal(s.len, 3192);
	/* a device that wants more than it said: the same part again, buffered, and only then an
	 * error */
	file_io_begin(&io, &s, &res);
	assert_int_equal(s.fd, 9);
	file_io_next(&io, -EINVAL, &s, &res);
	assert_int_equal(s.fd, 3);
	assert_int_equal(s.len, 8192);
	file_io_next(&io, -EINVAL, &s, &res);
	assert_int_equal(s.call, FILE_CALL_NONE);
	assert_int_equal(res, -EIO);
}

static long page_bytes; /* as the system says; 0 = what it really says */

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name)
{
	return page_bytes && name == _SC_PAGESIZE ? page_bytes : __real_sysconf(name);
}

/* As on many a machine with Arm's processors: what is smaller than a page of the cache shares it
 * with what may be there of a write that is not aligned, and that would be written over it. */
static void file_engine__goes_direct_with_whole_pages_only(void **state)
{
	struct fixture *fx = *state;
	struct engine_file *f;
	struct engine_io io;
	struct file_step s;
	int64_t res;

	page_bytes = 65536;
	f = fx_open(fx, "f", ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE);
	page_bytes = 0;
	if (f->direct_fd < 0) {
		fx->ops->close(f);
		fx_skip("the file system has no direct I/O");
	}
	io = (struct engine_io){.file = f,
	                        .op = ENGINE_OP_WRITE,
	                        .offset = 65536,
	                        .len = 4096,
	                        .buf = fx->buffers[0].iov_base};
	file_io_begin(&io, &s, &res);
	assert_int_equal(s.fd, f->fd);
	io.len = 65536;
	file_io_begin(&io, &s, &res);
	assert_int_equal(s.fd, f->direct_fd);
	fx->ops->close(f);
}

#define V(i, fn)                                                                                   \
	{                                                                                          \
#fn, fn, fixture_setup, fixture_teardown, (void *)&variants[i]                     \
	}
#define BOTH(fn) V(0, fn), V(1, fn)
int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(file_engine__keeps_failing_after_a_failed_flush),
		BOTH(file_engine__answers_unknown_when_a_write_fails_in_the_middle),
		BOTH(file_engine__uses_what_it_was_allowed),
		cmocka_unit_test(file_io__ends_as_the_kernel_answers),
		cmocka_unit_test(file_io__gives_up_on_endless_interruption),
		cmocka_unit_test(file_io__goes_direct_only_when_all_is_aligned),
		V(0, file_engine__goes_direct_with_whole_pages_only),
		BOTH(file_engine__says_when_the_file_system_is_full),
	};

	fixture_need_openat2();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
