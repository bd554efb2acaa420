/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More revocations at once than memory was set aside for, and no memory: nothing aborts, every
 * session ends, nothing begins, and what could not be remembered is revoked again before the data
 * plane goes on. The control: without the freeze a grant that was revoked is taken, and works.
 */
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/fixture.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <string.h>

#define MANY 400 /* more than DP_REVOKES_SPARE, DP_UIDS_SPARE and DP_OPS_SPARE */

static uint8_t buf[4096];

struct one {
	struct ros2_uid uid;
	int r;
	_Atomic uint32_t calls;
	_Atomic enum ros2_status status;
};

struct batch {
	struct fx *fx;
	uint32_t n;
	struct one v[MANY];
};
static struct batch batch;

static int setup(void **state)
{
	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return fx_setup(state);
}

static int teardown(void **state)
{
	int rc = fx_teardown(state);

	sweep_off();
	memset(&dp_test_switches, 0, sizeof(dp_test_switches));
	return rc;
}

static void answered(void *arg, const struct dp_result *res)
{
	struct one *o = arg;

	o->status = res->status;
	o->calls++;
}

static void batch_of(struct fx *fx, uint32_t n)
{
	batch.fx = fx;
	batch.n = n;
	for (uint32_t i = 0; i < n; i++)
		batch.v[i] = (struct one){.uid = ros2_uid_new()};
}

/* In one turn of the loop: no part of the first has come back when the last is asked for. */
static void revoke_batch(void *arg)
{
	struct batch *b = arg;

	for (uint32_t i = 0; i < b->n; i++)
		b->v[i].r = dp_revoke(b->fx->dp, DP_SCOPE_GRANT, &b->v[i].uid, clock_boottime_ns(),
		                      ROS2_REVOKED, answered, &b->v[i]);
}

static void revoke_refused(void *arg)
{
	struct batch *b = arg;

	for (uint32_t i = 0; i < b->n; i++)
		if (b->v[i].r < 0)
			b->v[i].r =
				dp_revoke(b->fx->dp, DP_SCOPE_GRANT, &b->v[i].uid,
			                  clock_boottime_ns(), ROS2_REVOKED, answered, &b->v[i]);
}

/* Each that was taken is answered once, and well; returns how many were not taken. */
static uint32_t settle(struct batch *b)
{
	uint32_t refused = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		struct one *o = &b->v[i];

		AWAIT(o->r || o->calls);
		assert_int_equal(o->calls, o->r == 0);
		if (o->r == 0)
			assert_int_equal(o->status, ROS2_OK);
		else
			assert_int_equal(o->r, -ENOMEM);
		refused += o->r != 0;
	}
	return refused;
}

struct asked {
	struct fx *fx;
	int r;
	bool frozen;
};

static void ask_thaw(void *arg)
{
	struct asked *a = arg;

	a->frozen = dp_is_frozen(a->fx->dp);
	a->r = dp_thaw(a->fx->dp);
}

/* Asks until the freeze has reached every reactor. */
static int thaw(struct fx *fx, bool *ret_was_frozen)
{
	struct asked a = {.fx = fx};

	/* Until then dp_thaw says BUSY. */
	AWAIT((loop_call(fx->loop, ask_thaw, &a), a.r != -EBUSY));
	*ret_was_frozen = a.frozen;
	return a.r;
}

static enum ros2_status open_with(struct fx *fx, const struct ros2_uid *grant, char words[200])
{
	struct fx_args a = {.session = ros2_uid_new(), .tenant = fx->tenant, .grant = *grant};
	struct dp_result res;

	a.a = UINT64_MAX;
	res = fx_do(fx, FX_OPEN_SESSION, &a);
	if (words)
		memcpy(words, res.words, 200);
	return res.status;
}

/* Any that was not taken: with the data plane frozen, of one that it could not remember. */
static const struct ros2_uid *first_refused(const struct batch *b)
{
	for (uint32_t i = 0; i < b->n; i++)
		if (b->v[i].r < 0)
			return &b->v[i].uid;
	fail_msg("all were taken");
	return NULL;
}

static void revoke__that_cannot_be_held_freezes_and_ends_everything(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	struct ros2_uid lost;
	char words[200];
	struct raw c;
	bool frozen;

	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, sizeof(buf), true), ROS2_OK);
	batch_of(fx, MANY);
	assert_true(sweep_next(&s));
	loop_call(fx->loop, revoke_batch, &batch);
	assert_true(settle(&batch) > MANY - 2 * 64 - 1);
	lost = *first_refused(&batch);
	/* A session that none of them named has ended, too, and says why. */
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_BUSY);
	raw_expect_end(&c);
	assert_int_equal(thaw(fx, &frozen), -ENOMEM);
	assert_true(frozen);
	assert_int_equal(open_with(fx, &fx->grant, words), ROS2_BUSY);
	sweep_off();
	/* Memory is back, and it stays as it is until somebody thaws it. */
	assert_int_equal(open_with(fx, &fx->grant, words), ROS2_BUSY);
	assert_non_null(strstr(words, "frozen"));
	assert_int_equal(fx_grant(fx, &lost, &fx->tenant, UINT64_MAX),
	                 ros2_status_to_errno(ROS2_BUSY));
	loop_call(fx->loop, revoke_refused, &batch);
	assert_int_equal(settle(&batch), 0);
	assert_int_equal(thaw(fx, &frozen), 0);
	assert_true(frozen);
	for (uint32_t i = 0; i < batch.n; i++)
		assert_int_equal(fx_grant(fx, &batch.v[i].uid, &fx->tenant, UINT64_MAX),
		                 ros2_status_to_errno(ROS2_REVOKED));
	raw_close(&c);
	raw_ready(fx, &c);
	assert_int_equal(raw_write(&c, 0, buf, sizeof(buf), true), ROS2_OK);
	raw_close(&c);
}

/* What is known needs no memory to be withdrawn: after the thaw it is as dead as before. */
static void revoke__of_what_is_known_stays_after_the_thaw(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	bool frozen;

	batch_of(fx, MANY);
	batch.v[MANY - 1].uid = fx->grant;
	assert_true(sweep_next(&s));
	loop_call(fx->loop, revoke_batch, &batch);
	settle(&batch);
	assert_int_equal(batch.v[MANY - 1].r, -ENOMEM);
	sweep_off();
	assert_int_equal(open_with(fx, &fx->grant, NULL), ROS2_REVOKED);
	assert_int_equal(thaw(fx, &frozen), 0);
	assert_true(frozen);
	assert_int_equal(open_with(fx, &fx->grant, NULL), ROS2_REVOKED);
	assert_int_equal(fx_grant(fx, &fx->grant, &fx->tenant, UINT64_MAX),
	                 ros2_status_to_errno(ROS2_REVOKED));
}

static void control__without_the_freeze_a_revoked_grant_works(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	struct ros2_uid lost;

	dp_test_switches.no_freeze = true;
	batch_of(fx, MANY);
	assert_true(sweep_next(&s));
	loop_call(fx->loop, revoke_batch, &batch);
	settle(&batch);
	lost = *first_refused(&batch);
	sweep_off();
	assert_int_equal(fx_grant(fx, &lost, &fx->tenant, UINT64_MAX), 0);
	assert_int_equal(open_with(fx, &lost, NULL), ROS2_OK);
}

/* One allocation after another, once and for good: taken or frozen, never anything between. */
static void sweep__of_many_revocations(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM};
	struct fx *fx = *state;
	uint32_t froze = 0;

	while (sweep_next(&s)) {
		bool frozen = false, was_refused;
		struct raw c;

		batch_of(fx, 80);
		loop_call(fx->loop, revoke_batch, &batch);
		was_refused = settle(&batch) != 0;
		sweep_off();
		loop_call(fx->loop, revoke_refused, &batch);
		assert_int_equal(settle(&batch), 0);
		assert_int_equal(thaw(fx, &frozen), 0);
		assert_int_equal(frozen, was_refused);
		froze += frozen;
		assert_int_equal(fx_grant(fx, &batch.v[79].uid, &fx->tenant, UINT64_MAX),
		                 ros2_status_to_errno(ROS2_REVOKED));
		raw_ready(fx, &c);
		raw_close(&c);
	}
	assert_true(s.points >= 80);
	assert_true(froze > 0);
}

/* ---- calls ---- */

static void close_batch(void *arg)
{
	struct batch *b = arg;

	for (uint32_t i = 0; i < b->n; i++)
		dp_session_close(b->fx->dp, &b->v[i].uid, ROS2_CLOSED, answered, &b->v[i]);
}

static void calls__beyond_what_was_set_aside_are_answered_once(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;
	uint32_t busy = 0;

	batch_of(fx, MANY);
	assert_true(sweep_next(&s));
	/* Twice: what was set aside is there again after the first. */
	for (int round = 1; round <= 2; round++) {
		loop_call(fx->loop, close_batch, &batch);
		for (uint32_t i = 0; i < batch.n; i++) {
			for (int k = 0; k < 5000 && batch.v[i].calls < (uint32_t)round; k++)
				/* poll: a counter of the loop's thread */
				usleep(1000);
			assert_int_equal(batch.v[i].calls, round);
			busy += batch.v[i].status == ROS2_BUSY;
			assert_true(batch.v[i].status == ROS2_BUSY ||
			            batch.v[i].status == ROS2_BAD_SESSION);
		}
	}
	assert_true(busy >= 2 * (MANY - 256));
	assert_true(busy < 2 * MANY);
}

/* More than wait for their denial at once: 256 set aside, 256 of the ring, and some. */
static void close_thrice(void *arg)
{
	for (int i = 0; i < 3; i++)
		close_batch(arg);
}

static void calls__beyond_the_ring_are_answered_once(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;

	batch_of(fx, MANY);
	assert_true(sweep_next(&s));
	loop_call(fx->loop, close_thrice, &batch);
	for (uint32_t i = 0; i < batch.n; i++) {
		for (int k = 0; k < 5000 && batch.v[i].calls < 3; k++)
			/* poll: a counter of the loop's thread */
			usleep(1000);
		assert_int_equal(batch.v[i].calls, 3);
	}
}

static void close_and_end(void *arg)
{
	struct batch *b = arg;

	close_batch(b);
	dp_free(TAKE_PTR(b->fx->dp));
}

static void end__answers_what_waits_for_its_denial(void **state)
{
	struct sweep s = {.kind = SWEEP_ALLOC, .error = ENOMEM, .persistent = true};
	struct fx *fx = *state;

	batch_of(fx, MANY);
	assert_true(sweep_next(&s));
	loop_call(fx->loop, close_and_end, &batch);
	for (uint32_t i = 0; i < batch.n; i++)
		assert_int_equal(batch.v[i].calls, 1);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(revoke__that_cannot_be_held_freezes_and_ends_everything),
		T(revoke__of_what_is_known_stays_after_the_thaw),
		T(control__without_the_freeze_a_revoked_grant_works),
		T(sweep__of_many_revocations),
		T(calls__beyond_what_was_set_aside_are_answered_once),
		T(calls__beyond_the_ring_are_answered_once),
		T(end__answers_what_waits_for_its_denial),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
