/* SPDX-License-Identifier: Apache-2.0 */
/* A job of ros2-bench against an agent that may lose what was not flushed. */
#include "common/clock.h"
#include "tests/client/rig.h"
#include "tools/bench/load_priv.h"

#define BLOCKS 8u
#define BS     4096u

/* ---- an agent that is there, and whose engine hangs behind the first flush ---- */
static bool hangs, hung;
static _Atomic uint64_t ahead_ns;
static unsigned n_waits;

uint64_t __real_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void);
int __real_ros2_flush(struct ros2_file *f, struct ros2_err *err);
int __wrap_ros2_flush(struct ros2_file *f, struct ros2_err *err);
int __real_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err);
int __wrap_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err);

uint64_t __wrap_clock_monotonic_ns(void)
{
	return __real_clock_monotonic_ns() + ahead_ns;
}

int __wrap_ros2_flush(struct ros2_file *f, struct ros2_err *err)
{
	int rc = __real_ros2_flush(f, err);

	hung = hangs;
	return rc;
}

/* Nothing comes in 40 s, again and again; somebody who waits on and on is told another error. */
int __wrap_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err)
{
	if (!hung)
		return __real_ros2_wait(s, out, min, max, timeout_ms, err);
	ahead_ns += 40 * NS_PER_S;
	return ++n_waits < 1000 ? 0 : ros2_err_named(err, ROS2_IO, "for ever");
}

/* Writes each block once, flushes, and reads back what it knows. */
static void write_and_verify(struct rig *r, struct job *ret)
{
	static char ns[] = "data", name[] = "f";
	struct bench_opts o = {.ns = ns,
	                       .file = name,
	                       .size = BLOCKS * BS,
	                       .bytes = BLOCKS * BS,
	                       .bs = BS,
	                       .depth = 4,
	                       .rw = RW_WRITE,
	                       .transport = ROS2_TRANSPORT_TCP,
	                       .verify = true};
	struct load l = {.o = &o, .n_jobs = 1, .pattern = 7, .bytes_left = BLOCKS * BS};

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &l.client, &r->err));
	atomic_store(&l.go, true);
	*ret = (struct job){0};
	job_init(ret, &l, 0);
	job_main(ret);
	ros2_disconnect(l.client);
}

static void bench__verifies_what_was_flushed(void **state)
{
	struct rig *r = *state;
	struct job *j = calloc(1, sizeof(*j));

	write_and_verify(r, j);
	assert_int_equal(j->err.code, 0);
	assert_int_equal(j->unknown, 0);
	assert_int_equal(j->verified, BLOCKS);
	free(j);
}

/* The flush said so: that is no corruption. */
static void bench__does_not_take_what_a_flush_said_may_be_gone_for_corrupt(void **state)
{
	struct rig *r = *state;
	struct job *j = calloc(1, sizeof(*j));

	WITH_AGENT(r->agent, r->agent->drop_after = BLOCKS + 1; r->agent->drop_wipes = true);
	write_and_verify(r, j);
	assert_int_equal(r->agent->n_flushes, 2);
	assert_string_equal(j->err.msg, "");
	assert_int_equal(j->unknown, 1);
	assert_int_equal(j->verified, 0);
	free(j);
}

static void bench__ends_when_an_agent_answers_nothing_while_it_reads_back(void **state)
{
	struct rig *r = *state;
	struct job *j = calloc(1, sizeof(*j));

	hangs = true;
	write_and_verify(r, j);
	hangs = hung = false;
	assert_int_equal(j->err.status, ROS2_TIMEOUT);
	assert_int_equal(j->verified, 0);
	free(j);
}

/* What is to be moved is no time, which would be over. */
static void bench__ends_when_an_agent_answers_nothing_while_it_moves_so_many_bytes(void **state)
{
	struct rig *r = *state;
	struct job *j = calloc(1, sizeof(*j));

	hung = true;
	n_waits = 0;
	write_and_verify(r, j);
	hung = false;
	assert_int_equal(j->err.status, ROS2_TIMEOUT);
	free(j);
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bench__verifies_what_was_flushed),
		T(bench__does_not_take_what_a_flush_said_may_be_gone_for_corrupt),
		T(bench__ends_when_an_agent_answers_nothing_while_it_reads_back),
		T(bench__ends_when_an_agent_answers_nothing_while_it_moves_so_many_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
