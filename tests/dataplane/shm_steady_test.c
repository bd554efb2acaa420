/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steady state over shared memory: requests of a tenant make the reactor's thread neither
 * allocate nor take a lock, and this process copies none of the payload of files; of the mem engine
 * what it stores and gives. Counted as in steady_test.c.
 */
#include "dataplane/wire_codec.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/steady.h"

#define BIG     (1u << 20)
#define SMALL   4096u
#define DEPTH   32u
#define WARM_UP 4u
#define TURNS   40u

static void many(struct shm_raw *t, enum wire_opcode op, uint32_t len)
{
	uint32_t depth = MIN(DEPTH, (uint32_t)(SHM_BYTES / len));
	struct wire_header h;

	for (uint32_t i = 0; i < depth; i++) {
		uint64_t address = op == WIRE_ZERO ? 0 : SHM_BASE + (uint64_t)i * len;

		h = raw_header(&t->c, op, (uint64_t)i * len % BIG, address, len);
		if (op == WIRE_ZERO)
			h.key = 0;
		rs_put(t, &h);
	}
	for (uint32_t i = 0; i < depth; i++) {
		assert_true(rs_take(t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, len);
	}
}

/* With pings and sleeping between. */
static void load(struct shm_raw *t, uint32_t turns)
{
	for (uint32_t i = 0; i < turns; i++) {
		many(t, WIRE_READ, SMALL);
		many(t, WIRE_WRITE, SMALL);
		if (i % 4 == 0)
			many(t, WIRE_READ, BIG);
		if (i % 8 == 0)
			many(t, WIRE_WRITE, BIG);
		many(t, WIRE_ZERO, SMALL);
		assert_int_equal(rs_write(t, 0, SHM_BASE, BIG), ROS2_OK);
		assert_int_equal(rs_do(t, WIRE_FLUSH, 0, 0, 0, NULL), ROS2_OK);
		rs_ping(t);
	}
}

struct seen {
	uint64_t alloc, lock, copied, ops, bytes;
};

static struct seen look(struct fx *fx, struct shm_raw *t)
{
	struct dp_session_stats st = fx_stats(fx, &t->c.session);

	return (struct seen){.alloc = atomic_load(&count_calls()->alloc),
	                     .lock = atomic_load(&count_calls()->lock),
	                     .copied = st.copied_bytes,
	                     .bytes = st.write_bytes + st.read_bytes,
	                     .ops = st.read_ops + st.write_ops + st.clear_ops};
}

static struct seen steady(struct fx *fx)
{
	struct seen before, after;
	struct shm_raw t;

	assert_true(atomic_load(&count_calls()->reactors) >= 2);
	rs_ready(fx, &t);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, BIG), ROS2_OK);
	assert_int_equal(rs_write(&t, BIG, SHM_BASE, BIG), ROS2_OK);
	load(&t, WARM_UP);
	before = look(fx, &t);
	load(&t, TURNS);
	after = look(fx, &t);
	assert_int_equal(fx_slots(fx), 0);
	rs_end(&t);
	assert_true(after.ops - before.ops > TURNS * DEPTH);
	return (struct seen){after.alloc - before.alloc, after.lock - before.lock,
	                     after.copied - before.copied, after.ops - before.ops,
	                     after.bytes - before.bytes};
}

static void steady_state__of_the_mem_engine_copies_what_it_stores_and_gives(void **state)
{
	struct seen s = steady(*state);

	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.copied, s.bytes);
}

static void steady_state__of_the_file_engine_allocates_locks_and_copies_nothing(void **state)
{
	struct seen s = steady(*state);

	assert_int_equal(s.alloc, 0);
	assert_int_equal(s.lock, 0);
	assert_int_equal(s.copied, 0);
	assert_true(s.bytes > 0);
}

/* The control. */
static void counter__sees_the_locks_of_the_file_engines_thread_mode(void **state)
{
	assert_true(steady(*state).lock > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steady_counter__sees_a_reactor_thread_that_allocates_and_locks),
		FX_FILE_TEST(counter__sees_the_locks_of_the_file_engines_thread_mode,
	                     fx_threads_setup),
		FX_TEST(steady_state__of_the_mem_engine_copies_what_it_stores_and_gives),
		FX_FILE_TEST(steady_state__of_the_file_engine_allocates_locks_and_copies_nothing,
	                     fx_file_setup),
	};

	fx_shm = true;
	raw_features = WIRE_FEATURE_CLEAR;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
