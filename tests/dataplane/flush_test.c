/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flushes of a file: by call, and on the data path, where one of a file is with the engine at a
 * time. The engine here is as Linux and the file engine over it: a loss is told to the first flush
 * that looks, and to each that ends after that one; which ends first is another matter.
 */
#include "tests/await.h"
#include "tests/dataplane/slow_fixture.h"
#include <stdatomic.h>

#define MANY 12u

/* ---- the engine ---- */
static _Atomic uint32_t asked, given, in_call;
static _Atomic int says;
static _Atomic bool lost, call_shut;
static _Atomic uint64_t asked_ns; /* of the last that it was given */
/* of the reactor that has the file */
static struct {
	struct engine_io *io;
	int64_t res;
} ended[MANY];
static uint32_t n_ended;
static bool known;
static void (*request_done)(struct engine_io *io, int64_t res);
static int (*slow_submit)(struct engine_reactor *r, struct engine_io *io);
static uint32_t (*slow_poll)(struct engine_reactor *r, uint32_t max);

static int told_fsync(struct engine_file *f, struct ros2_err *err)
{
	int rc = atomic_load(&says);

	atomic_fetch_add(&asked, 1);
	atomic_fetch_add(&in_call, 1);
	while (atomic_load(&call_shut))
		/* poll: a switch that a test turns */
		usleep(1000);
	atomic_fetch_sub(&in_call, 1);
	return rc < 0 ? ros2_err_set(err, rc, "the disk does not keep it")
	              : engine_mem_ops.fsync(f, err);
}

static void flush_looked(struct engine_io *io, int64_t res)
{
	assert_true(n_ended < MANY);
	ended[n_ended].io = io;
	ended[n_ended++].res = atomic_exchange(&lost, false) ? -EIO : res;
}

static int told_submit(struct engine_reactor *r, struct engine_io *io)
{
	if (io->op == ENGINE_OP_FLUSH) {
		atomic_fetch_add(&given, 1);
		atomic_store(&asked_ns, io->asked_ns);
		request_done = io->done;
		io->done = flush_looked;
	}
	return slow_submit(r, io);
}

/* Who looked last ends first. */
static uint32_t told_poll(struct engine_reactor *r, uint32_t max)
{
	uint32_t n = slow_poll(r, max);

	while (n_ended > 0) {
		n_ended--;
		known |= ended[n_ended].res < 0;
		request_done(ended[n_ended].io, known ? -EIO : ended[n_ended].res);
	}
	return n;
}

/* A tenant may have two calls at work. */
static int setup(void **state)
{
	fx_control_workers = 4;
	slow_prepare();
	slow_submit = slow_engine_ops.submit;
	slow_poll = slow_engine_ops.poll;
	slow_engine_ops.submit = told_submit;
	slow_engine_ops.poll = told_poll;
	slow_engine_ops.fsync = told_fsync;
	slow_engine_ops.flushes_in_turn = true;
	atomic_store(&asked, 0);
	atomic_store(&given, 0);
	atomic_store(&says, 0);
	atomic_store(&lost, false);
	atomic_store(&call_shut, false);
	known = false;
	return fx_setup(state);
}

/* ---- by call ---- */
static void dp_flush__says_what_the_engine_says(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct fx_args a;
	struct raw c;

	raw_ready(fx, &c);
	a = (struct fx_args){.session = c.session, .a = c.handle, .mount = 1};
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	assert_int_equal(atomic_load(&asked), 1);
	atomic_store(&says, -EIO);
	for (uint32_t i = 2; i < 4; i++) {
		res = fx_do(fx, FX_FLUSH, &a);
		assert_int_equal(res.status, ROS2_IO);
		assert_non_null(strstr(res.words, "does not keep it"));
		assert_int_equal(atomic_load(&asked), i);
	}
	atomic_store(&says, 0);
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	assert_int_equal(atomic_load(&asked), 4);
	raw_close(&c);
}

/* ---- on the data path ---- */
/* @held: so many of the flushes the engine has at once. A write behind them goes the same way: when
 * it is there, they were all looked at. */
static void send_and_hold(struct fx *fx, struct raw *c, uint32_t flushes, uint32_t held)
{
	struct wire_header h;

	raw_ready(fx, c);
	slow_engine_shut(true);
	for (uint32_t i = 0; i < flushes; i++) {
		h = raw_header(c, WIRE_FLUSH, 0, 0, 0);
		raw_send(c, &h, NULL, 0);
	}
	h = raw_header(c, WIRE_WRITE, 0, FX_BASE, 1);
	h.flags = WIRE_F_INLINE;
	raw_send(c, &h, "x", 1);
	slow_engine_wait_held(held + 1);
}

/* How many of @n answers say @st. */
static uint32_t answers(struct raw *c, uint32_t n, enum ros2_status st)
{
	uint8_t words[WIRE_WORDS_MAX];
	uint32_t found = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct wire_header h;

		assert_true(raw_recv(c, &h, words, sizeof(words)));
		found += h.status == st;
	}
	return found;
}

static void flushes__at_once_all_hear_of_a_loss(void **state)
{
	struct raw c;

	send_and_hold(*state, &c, MANY, 1);
	atomic_store(&lost, true);
	slow_engine_shut(false);
	assert_int_equal(answers(&c, MANY + 1, ROS2_IO), MANY);
	assert_int_equal(raw_flush(&c), ROS2_IO);
	raw_close(&c);
}

static void without_turns__some_are_told_that_all_is_well(void **state)
{
	struct raw c;

	dp_test_switches.flushes_at_once = true;
	send_and_hold(*state, &c, MANY, MANY);
	atomic_store(&lost, true);
	slow_engine_shut(false);
	assert_int_equal(answers(&c, MANY + 1, ROS2_IO), 1);
	raw_close(&c);
}

static void flushes__that_stand_by_are_served_by_one(void **state)
{
	struct raw c;

	send_and_hold(*state, &c, MANY, 1);
	slow_engine_shut(false);
	assert_int_equal(answers(&c, MANY + 1, ROS2_OK), MANY + 1);
	assert_int_equal(atomic_load(&given), 2);
	assert_int_equal(raw_flush(&c), ROS2_OK);
	raw_close(&c);
}

/* Not since the engine has them: it may be told of a loss for another one meanwhile. */
static void flushes__say_since_when_they_wait(void **state)
{
	uint64_t since_ns = clock_boottime_ns(), until_ns;
	struct raw c;

	send_and_hold(*state, &c, 2, 1);
	until_ns = clock_boottime_ns();
	slow_engine_shut(false);
	assert_int_equal(answers(&c, 3, ROS2_OK), 3);
	assert_int_equal(atomic_load(&given), 2);
	assert_in_range(atomic_load(&asked_ns), since_ns, until_ns);
	raw_close(&c);
}

static void flushes__that_stand_by_go_with_their_session(void **state)
{
	struct fx *fx = *state;
	struct fx_args a;
	struct raw c, d;

	send_and_hold(fx, &c, MANY, 1);
	a = (struct fx_args){.session = c.session};
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &a).status, ROS2_OK);
	raw_close(&c);
	slow_engine_shut(false);
	raw_ready(fx, &d);
	assert_int_equal(raw_flush(&d), ROS2_OK);
	raw_close(&d);
}

/* ---- both ---- */
static void dp_flush__beside_one_on_the_data_path_is_busy(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct fx_args a;
	struct raw c;

	send_and_hold(fx, &c, 1, 1);
	a = (struct fx_args){.session = c.session, .a = c.handle, .mount = 1};
	res = fx_do(fx, FX_FLUSH, &a);
	assert_int_equal(res.status, ROS2_BUSY);
	assert_non_null(strstr(res.words, "ask again"));
	slow_engine_shut(false);
	assert_int_equal(answers(&c, 2, ROS2_OK), 2);
	assert_int_equal(fx_do(fx, FX_FLUSH, &a).status, ROS2_OK);
	raw_close(&c);
}

struct caller {
	struct fx *fx;
	struct fx_args args;
	struct dp_result res;
};

static void *call(void *arg)
{
	struct caller *c = arg;

	c->res = fx_do(c->fx, FX_FLUSH, &c->args);
	return NULL;
}

static void a_flush__beside_one_by_call_is_busy(void **state)
{
	struct caller by_call = {.fx = *state};
	pthread_t thread;
	struct raw c;

	raw_ready(by_call.fx, &c);
	by_call.args = (struct fx_args){.session = c.session, .a = c.handle, .mount = 1};
	atomic_store(&call_shut, true);
	assert_int_equal(pthread_create(&thread, NULL, call, &by_call), 0);
	assert_true(AWAIT(atomic_load(&in_call) == 1));
	assert_int_equal(raw_flush(&c), ROS2_BUSY);
	atomic_store(&call_shut, false);
	pthread_join(thread, NULL);
	assert_int_equal(by_call.res.status, ROS2_BUSY);
	assert_int_equal(raw_flush(&c), ROS2_OK);
	raw_close(&c);
}

/* Two calls that were with the engine at once, both told that all is well by it. */
static void call_twice_at_once(struct fx *fx, struct raw *c, struct caller by_call[2])
{
	pthread_t thread[2];

	raw_ready(fx, c);
	atomic_store(&call_shut, true);
	for (unsigned i = 0; i < 2; i++) {
		by_call[i] = (struct caller){.fx = fx};
		by_call[i].args =
			(struct fx_args){.session = c->session, .a = c->handle, .mount = 1};
		assert_int_equal(pthread_create(&thread[i], NULL, call, &by_call[i]), 0);
		assert_true(AWAIT(atomic_load(&in_call) == i + 1));
	}
	atomic_store(&call_shut, false);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}

static void dp_flush__of_two_calls_at_once_neither_is_believed(void **state)
{
	struct caller by_call[2];
	struct raw c;

	call_twice_at_once(*state, &c, by_call);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(by_call[i].res.status, ROS2_BUSY);
		assert_non_null(strstr(by_call[i].res.words, "ask again"));
	}
	assert_int_equal(fx_do(*state, FX_FLUSH, &by_call[0].args).status, ROS2_OK);
	assert_int_equal(raw_flush(&c), ROS2_OK);
	raw_close(&c);
}

static void without_turns__two_calls_at_once_are_both_believed(void **state)
{
	struct caller by_call[2];
	struct raw c;

	dp_test_switches.flushes_at_once = true;
	call_twice_at_once(*state, &c, by_call);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(by_call[i].res.status, ROS2_OK);
	raw_close(&c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, slow_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(dp_flush__says_what_the_engine_says),
		T(flushes__at_once_all_hear_of_a_loss),
		T(without_turns__some_are_told_that_all_is_well),
		T(flushes__that_stand_by_are_served_by_one),
		T(flushes__say_since_when_they_wait),
		T(flushes__that_stand_by_go_with_their_session),
		T(dp_flush__beside_one_on_the_data_path_is_busy),
		T(a_flush__beside_one_by_call_is_busy),
		T(dp_flush__of_two_calls_at_once_neither_is_believed),
		T(without_turns__two_calls_at_once_are_both_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
