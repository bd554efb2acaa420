/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state: requests that move data make the reactor's thread neither allocate nor take a
 * lock, and this process copies none of their payload, but for what the mem engine stores and what
 * comes with its request (a write of up to WIRE_INLINE_MAX bytes). Counted by
 * tests/bench/steady/count_calls.c, which stands between our code and the allocator and pthread.
 */
#include "tests/dataplane/fixture.h"
#include "tests/dataplane/steady.h"
#include <time.h>

#define BIG     (1u << 20)
#define DEPTH   32u
#define REGION  (4u << 20)
#define WARM_UP 4u
#define TURNS   40u

static uint8_t buf[BIG];

/* Reads of @len, as many in flight as the region holds, at most DEPTH; all are right. */
static void read_many(struct raw *c, uint32_t len)
{
	uint32_t depth = MIN(DEPTH, REGION / len), completes = 0;
	struct wire_header h;

	for (uint32_t i = 0; i < depth; i++) {
		h = raw_header(c, WIRE_READ, (uint64_t)i * len % BIG, FX_BASE + (uint64_t)i * len,
		               len);
		raw_send(c, &h, NULL, 0);
	}
	while (completes < depth) {
		assert_true(raw_recv(c, &h, buf, sizeof(buf)));
		if (h.opcode == WIRE_DATA)
			continue;
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, len);
		completes++;
	}
}

#define SMALL 4096u

/* Reads of both sizes and large writes, which are pulled. */
static void load_pulled(struct raw *c, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		read_many(c, 4096);
		if (i % 4 == 0)
			read_many(c, BIG);
		if (i % 8 == 0)
			assert_int_equal(raw_write(c, 0, buf, BIG, false), ROS2_OK);
	}
}

/* Writes that come with their request. */
static void load_inline(struct raw *c, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++)
		assert_int_equal(raw_write(c, (uint64_t)i * SMALL % BIG, buf, SMALL, true),
		                 ROS2_OK);
	for (uint32_t i = 0; i < turns / 4; i++)
		assert_int_equal(raw_write(c, 0, buf, WIRE_INLINE_MAX, true), ROS2_OK);
}

/* What clears, both ways and in both sizes. */
static void load_clear(struct raw *c, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		assert_int_equal(raw_clear(c, WIRE_ZERO, (uint64_t)i * SMALL % BIG, SMALL),
		                 ROS2_OK);
		assert_int_equal(raw_clear(c, WIRE_DISCARD, 0, BIG), ROS2_OK);
	}
}

struct seen {
	uint64_t alloc, lock, copied, ops, written;
};

static struct seen look(struct fx *fx, struct raw *c)
{
	struct dp_session_stats st = fx_stats(fx, &c->session);

	return (struct seen){.alloc = atomic_load(&count_calls()->alloc),
	                     .lock = atomic_load(&count_calls()->lock),
	                     .copied = st.copied_bytes,
	                     .written = st.write_bytes,
	                     .ops = st.read_ops + st.write_ops + st.clear_ops};
}

static struct seen steady(struct fx *fx, void (*load)(struct raw *c, uint32_t turns))
{
	struct seen before, after;
	struct raw c;

	assert_true(atomic_load(&count_calls()->reactors) >= 2);
	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, BIG, false), ROS2_OK);
	load(&c, WARM_UP);
	before = look(fx, &c);
	load(&c, TURNS);
	after = look(fx, &c);
	raw_close(&c);
	return (struct seen){after.alloc - before.alloc, after.lock - before.lock,
	                     after.copied - before.copied, after.ops - before.ops,
	                     after.written - before.written};
}

static void steady_state__of_the_mem_engine_copies_only_what_it_stores(void **state)
{
	struct seen s = steady(*state, load_pulled);

	assert_true(s.ops > TURNS * DEPTH);
	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_true(s.written > 0);
	assert_int_equal(s.copied, s.written);
}

static void steady_state__of_the_file_engine_allocates_locks_and_copies_nothing(void **state)
{
	struct seen s = steady(*state, load_pulled);

	assert_true(s.ops > TURNS * DEPTH);
	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.copied, 0);
}

static void steady_state__of_what_clears_allocates_locks_and_copies_nothing(void **state)
{
	struct seen s = steady(*state, load_clear);

	assert_int_equal(s.ops, 2 * TURNS);
	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.copied, 0);
}

/* An inline payload that was received with its header is moved into its slot once; that is counted,
 * and one copy in the cache costs less than a system call for each. */
static void steady_state__of_inline_writes_into_files_copies_each_byte_once_at_most(void **state)
{
	struct seen s = steady(*state, load_inline);

	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.written, TURNS * SMALL + TURNS / 4 * WIRE_INLINE_MAX);
	assert_true(s.copied <= s.written);
}

static void steady_state__of_inline_writes_into_memory_copies_each_byte_twice_at_most(void **state)
{
	struct seen s = steady(*state, load_inline);

	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.written, TURNS * SMALL + TURNS / 4 * WIRE_INLINE_MAX);
	assert_true(s.copied >= s.written);
	assert_true(s.copied <= 2 * s.written);
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

#define IDLE_TURNS 10u
#define IDLE_NS    (100 * NS_PER_MS)

/* CPU time of this process while nobody asks for anything: in @turns of IDLE_NS each after a
 * request, or until it is @enough. */
static uint64_t idle_cpu_ns(struct fx *fx, uint32_t turns, uint64_t enough)
{
	uint64_t sum = 0, before;
	struct raw c;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, BIG, false), ROS2_OK);
	for (uint32_t i = 0; i < turns && sum < enough; i++) {
		read_many(&c, 4096);
		before = cpu_ns();
		/* time: that nothing is done is seen over a time only */
		usleep(IDLE_NS / NS_PER_US);
		sum += cpu_ns() - before;
	}
	raw_close(&c);
	return sum;
}

/* Ticks, which come every 20 ms, do not keep it awake. */
static void reactor__that_looks_before_it_sleeps_does_sleep(void **state)
{
	assert_true(idle_cpu_ns(*state, IDLE_TURNS, UINT64_MAX) < 3 * IDLE_NS);
}

/* ---- negative controls ---- */
static void cpu_time__shows_a_reactor_that_looks_all_the_time(void **state)
{
	assert_true(idle_cpu_ns(*state, 20 * IDLE_TURNS, 4 * IDLE_NS) >= 4 * IDLE_NS);
}

static void counter__sees_the_locks_of_the_file_engines_thread_mode(void **state)
{
	assert_true(steady(*state, load_pulled).lock > 0);
}

static int poll_setup(void **state)
{
	fx_poll_us = 1000;
	return fx_setup(state);
}

static int poll_all_setup(void **state)
{
	fx_poll_us = DP_POLL_US_MAX;
	return fx_setup(state);
}

static int poll_teardown(void **state)
{
	fx_poll_us = 0;
	return fx_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steady_counter__sees_a_reactor_thread_that_allocates_and_locks),
		FX_FILE_TEST(counter__sees_the_locks_of_the_file_engines_thread_mode,
	                     fx_threads_setup),
		FX_TEST(steady_state__of_the_mem_engine_copies_only_what_it_stores),
		FX_FILE_TEST(steady_state__of_the_file_engine_allocates_locks_and_copies_nothing,
	                     fx_file_setup),
		FX_TEST(steady_state__of_what_clears_allocates_locks_and_copies_nothing),
		FX_FILE_TEST(steady_state__of_what_clears_allocates_locks_and_copies_nothing,
	                     fx_file_setup),
		FX_FILE_TEST(
			steady_state__of_inline_writes_into_files_copies_each_byte_once_at_most,
			fx_file_setup),
		FX_TEST(steady_state__of_inline_writes_into_memory_copies_each_byte_twice_at_most),
		cmocka_unit_test_setup_teardown(reactor__that_looks_before_it_sleeps_does_sleep,
	                                        poll_setup, poll_teardown),
		cmocka_unit_test_setup_teardown(cpu_time__shows_a_reactor_that_looks_all_the_time,
	                                        poll_all_setup, poll_teardown),
	};

	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
