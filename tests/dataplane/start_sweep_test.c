/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of a data plane's start: memory, mappings (the slots), descriptors, epoll, threads.
 * A start that fails says why and leaves nothing behind, neither thread nor descriptor nor memory;
 * the next one works, and so does a tenant there.
 */
#include "tests/dataplane/fixture.h"
#include "tests/await.h"
#include "tests/sweep/sweep.h"
#include <dirent.h>
#include <errno.h>

/* One that has ended may still be seen for a moment after it was joined, also by who counts before
 * a start. */
static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void no_more_threads(unsigned before)
{
	assert_true(AWAIT(threads() <= before));
}

/* No socket is left in it. */
static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n == 2;
}

struct start {
	struct loop *loop;
	const char *shm_dir;
	int rc;
	struct ros2_err err;
};

/* Made, given an engine, freed. */
static void start(void *arg)
{
	struct start *s = arg;
	struct dp_opts o = {.loop = s->loop,
	                    .reactors = 2,
	                    .listen_host = "127.0.0.1",
	                    .slot_bytes_total = 16u << 20,
	                    .shm_dir = s->shm_dir,
	                    .seal_program = "/proc/self/exe", /* never begun */
	                    .control_workers = 2};
	struct dp_engine_config mem = {.name = "ram", .type = "mem", .size_bytes = 1u << 20};
	struct dp *dp = NULL;

	s->err = (struct ros2_err)ROS2_ERR_INIT;
	s->rc = dp_new(&o, &dp, &s->err);
	if (s->rc) {
		assert_null(dp);
		return;
	}
	s->rc = dp_engine_put(dp, &mem, &s->err);
	dp_free(dp);
}

static void sweep_start(enum sweep_kind kind, int error, uint32_t points)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "test"};
	const struct loop_opts lo = {.name = "test"};
	unsigned fds, n_threads;
	struct start st = {0};
	void *state, *dir;

	assert_int_equal(testing_dir_setup(&dir), 0);
	st.shm_dir = dir;
	assert_int_equal(loop_new(&lo, &st.loop), 0);
	assert_int_equal(loop_thread_start(st.loop), 0);
	n_threads = threads();
	loop_call(st.loop, start, &st);
	assert_int_equal(st.rc, 0);
	no_more_threads(n_threads);
	fds = sweep_fds();
	while (sweep_next(&s)) {
		assert_int_equal(loop_call(st.loop, start, &st), 0);
		sweep_off();
		assert_int_equal(st.rc != 0, sweep_fired());
		if (st.rc) {
			assert_int_equal(st.rc, -error);
			assert_int_equal(st.err.code, st.rc);
			assert_true(st.err.status != ROS2_OK && st.err.msg[0]);
		}
		no_more_threads(n_threads);
		assert_true(AWAIT(is_empty(dir)));
		assert_true(sweep_fds_back(fds));
		assert_int_equal(loop_call(st.loop, start, &st), 0);
		assert_int_equal(st.rc, 0);
	}
	loop_stop(st.loop);
	loop_thread_join(st.loop);
	loop_free(st.loop);
	assert_int_equal(testing_dir_teardown(&dir), 0);
	assert_true(s.points >= points);
	/* And a tenant works. */
	assert_int_equal(fx_setup(&state), 0);
	{
		struct raw c;
		uint8_t byte = 7;

		raw_ready(state, &c);
		assert_int_equal(raw_write(&c, 0, &byte, 1, true), ROS2_OK);
		raw_close(&c);
	}
	fx_teardown(&state);
}

#define SWEEP(name, k, e, n)                                                                       \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_start(k, e, n);                                                              \
	}
SWEEP(start__without_memory_says_so, SWEEP_ALLOC, ENOMEM, 40)
SWEEP(start__without_memory_for_slots_says_so, SWEEP_MMAP, ENOMEM, 4)
SWEEP(start__without_descriptors_says_so, SWEEP_FD, EMFILE, 12)
SWEEP(start__without_room_in_epoll_says_so, SWEEP_EPOLL_CTL, ENOSPC, 8)
SWEEP(start__without_threads_says_so, SWEEP_THREAD, EAGAIN, 8)

/* ---- io_uring: made at a reactor with a tenant's first file ---- */

static void works(struct raw *c, uint8_t seed)
{
	uint8_t out[4096], in[sizeof(out)] = {0};
	uint32_t done = 0;

	memset(out, seed, sizeof(out));
	assert_int_equal(raw_write(c, 0, out, sizeof(out), true), ROS2_OK);
	assert_int_equal(raw_flush(c), ROS2_OK);
	assert_int_equal(raw_read(c, 0, in, sizeof(in), &done), ROS2_OK);
	assert_int_equal(done, sizeof(in));
	assert_memory_equal(in, out, sizeof(in));
}

/* The ring is set up, its buffers and its descriptor registered, what it can do asked, and it is
 * enabled: whichever of these fails, the tenant has its file, over io_uring with less or over
 * threads. A request under way when the ring was to be enabled may be answered with an error; no
 * byte is wrong, and the next request is served. */
static void sweep_ring(int error)
{
	struct sweep s = {.kind = SWEEP_URING_SETUP, .error = error};
	char dir[] = "/var/tmp/ros2-dp-start-XXXXXX", cmd[128];
	const char *type_was = fx_engine_type;
	struct raw c, other;
	uint8_t seed = 1;
	void *state;
	unsigned fds;

	if (!testing_has_openat2()) {
		puts("# skipped: no openat2 here (Linux before 5.6, or qemu-user): no file engine");
		skip();
	}
	assert_non_null(mkdtemp(dir));
	fx_engine_type = "file";
	fx_engine_root = dir;
	fds = sweep_fds();
	while (sweep_next(&s)) {
		uint8_t byte = seed;
		enum ros2_status st;

		assert_int_equal(fx_setup(&state), 0);
		raw_ready(state, &c);
		st = raw_write(&c, 0, &byte, 1, true);
		assert_true(st == ROS2_OK || sweep_fired());
		sweep_off();
		works(&c, seed++);
		raw_ready(state, &other);
		works(&other, seed++);
		raw_close(&other);
		raw_close(&c);
		assert_int_equal(fx_teardown(&state), 0);
		assert_true(sweep_fds_back(fds));
	}
	fx_engine_type = type_was;
	fx_engine_root = NULL;
	snprintf(cmd, sizeof(cmd), "rm -r '%s'", dir);
	assert_int_equal(system(cmd), 0);
	if (!s.points)
		skip(); /* this kernel has no io_uring, or forbids it */
	assert_true(s.points >= 8);
}

static void ring__that_cannot_be_set_up_leaves_the_tenant_its_file(void **state)
{
	sweep_ring(ENOMEM);
}

/* What a container without io_uring, or a limit of memory that is locked, answers. */
static void ring__that_is_forbidden_leaves_the_tenant_its_file(void **state)
{
	sweep_ring(EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(start__without_memory_says_so),
		cmocka_unit_test(start__without_memory_for_slots_says_so),
		cmocka_unit_test(start__without_descriptors_says_so),
		cmocka_unit_test(start__without_room_in_epoll_says_so),
		cmocka_unit_test(start__without_threads_says_so),
		cmocka_unit_test(ring__that_cannot_be_set_up_leaves_the_tenant_its_file),
		cmocka_unit_test(ring__that_is_forbidden_leaves_the_tenant_its_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
