// SPDX-License-Identifier: Apache-2.0
/*
 * The steady state over verbs: requests that move data make the reactor's thread neither allocate
 * nor take a lock, and this process copies none of their payload but what comes with its request (a
 * WRITE of up to 4096 bytes) and what the mem engine stores or hands out. Counted in our own code
 * (tests/bench/steady/count_calls.c, by the linker): what a device library does inside is not ours.
 * Natively over the device that is memory, a shared object so that its calls are not counted
 * either; in the guest over libibverbs and soft-RoCE with the real dataplane/fabric.
 */
#include "tests/client/direct.h"
#include "tests/dataplane/steady.h"

#define DEPTH   16u
#define SMALL   4096u
#define BIG     (1u << 20)
#define WARM_UP 4u
#define TURNS   20u

/* @n requests at once; all are right. */
static void at_once(struct user *u, bool write, uint32_t len, uint32_t n)
{
	struct ros2_completion c[DEPTH];

	for (uint32_t i = 0; i < n; i++) {
		uint8_t *at = u->buf + (uint64_t)i * len % USER_BUF;
		uint64_t offset = (uint64_t)i * len % BIG;

		ok(u, write ? ros2_prep_write(u->file, at, len, offset, i, &u->err)
		            : ros2_prep_read(u->file, at, len, offset, i, &u->err));
	}
	assert_int_equal(ros2_submit(u->session, &u->err), n);
	while (n) {
		int got = ros2_wait(u->session, c, 1, DEPTH, 5000, &u->err);

		assert_true(got > 0);
		for (int i = 0; i < got; i++) {
			assert_int_equal(c[i].status, ROS2_OK);
			assert_int_equal(c[i].result, len);
		}
		n -= (uint32_t)got;
	}
}

static void reads(struct user *u, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		at_once(u, false, SMALL, DEPTH);
		at_once(u, false, BIG, 2);
	}
}

static void pulled(struct user *u, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		at_once(u, true, 16384, DEPTH);
		at_once(u, true, BIG, 2);
	}
}

static void with_requests(struct user *u, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++)
		at_once(u, true, SMALL, DEPTH);
}

struct seen {
	uint64_t alloc, lock, copied, ops, moved;
};

static struct seen look(struct fx *fx, struct user *u)
{
	struct dp_session_stats st;
	struct ros2_uid session;

	ros2_uid_from_bytes(u->session->uid, 16, &session);
	st = fx_stats(fx, &session);
	return (struct seen){.alloc = atomic_load(&count_calls()->alloc),
	                     .lock = atomic_load(&count_calls()->lock),
	                     .copied = st.copied_bytes,
	                     .ops = st.read_ops + st.write_ops,
	                     .moved = st.read_bytes + st.write_bytes};
}

static struct seen steady(struct fx *fx, void (*load)(struct user *u, uint32_t turns))
{
	struct seen before, after;
	struct user u;

	assert_true(atomic_load(&count_calls()->reactors) >= 2);
	user_open(fx, &u);
	at_once(&u, true, BIG, 1);
	load(&u, WARM_UP);
	before = look(fx, &u);
	load(&u, TURNS);
	after = look(fx, &u);
	user_close(&u);
	assert_int_equal(fx->violations, 0);
	after = (struct seen){after.alloc - before.alloc, after.lock - before.lock,
	                      after.copied - before.copied, after.ops - before.ops,
	                      after.moved - before.moved};
	assert_true(after.ops >= TURNS * DEPTH && after.moved >= after.ops * SMALL);
	return after;
}

static void assert_none(struct fx *fx, void (*load)(struct user *u, uint32_t turns),
                        uint64_t copies)
{
	struct seen s = steady(fx, load);

	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.copied, copies * s.moved);
}

static void steady_verbs__of_files_allocates_locks_and_copies_nothing(void **state)
{
	assert_none(*state, reads, 0);
	assert_none(*state, pulled, 0);
}

static void steady_verbs__of_writes_with_their_requests_into_files_copies_once(void **state)
{
	assert_none(*state, with_requests, 1);
}

static void steady_verbs__of_the_mem_engine_copies_what_it_stores_and_hands_out(void **state)
{
	assert_none(*state, reads, 1);
	assert_none(*state, pulled, 1);
	assert_none(*state, with_requests, 2);
}

/* ---- negative controls ---- */

/* Sessions and leases that come and go are no steady state. */
static void come_and_go(struct user *u, uint32_t turns)
{
	struct user other;

	for (uint32_t i = 0; i < turns; i++) {
		user_open(u->control->fx, &other);
		at_once(&other, false, SMALL, 1);
		user_close(&other);
		at_once(u, false, SMALL, DEPTH);
	}
}

static void counter__sees_sessions_that_come_and_go(void **state)
{
	assert_true(steady(*state, come_and_go).alloc > 0);
}

static void counter__sees_the_locks_of_the_file_engines_thread_mode(void **state)
{
	assert_true(steady(*state, reads).lock > 0);
}

static int mem_setup(void **state)
{
	fx_from_env();
	return fx_setup(state);
}

static int file_setup(void **state)
{
	fx_from_env();
	return fx_file_setup(state);
}

static int threads_setup(void **state)
{
	fx_from_env();
	return fx_threads_setup(state);
}

#define MEM_TEST(f) cmocka_unit_test_setup_teardown(f, mem_setup, fx_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steady_counter__sees_a_reactor_thread_that_allocates_and_locks),
		MEM_TEST(counter__sees_sessions_that_come_and_go),
		FX_FILE_TEST(counter__sees_the_locks_of_the_file_engines_thread_mode,
	                     threads_setup),
		FX_FILE_TEST(steady_verbs__of_files_allocates_locks_and_copies_nothing, file_setup),
		FX_FILE_TEST(steady_verbs__of_writes_with_their_requests_into_files_copies_once,
	                     file_setup),
		MEM_TEST(steady_verbs__of_the_mem_engine_copies_what_it_stores_and_hands_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
