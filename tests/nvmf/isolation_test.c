/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one tenant's lost target keeps from others, over fake queues: places of a reactor, buffers,
 * and the order of writes when a volume changes hands.
 */
#include "common/clock.h"
#include "tests/nvmf/engine_rig.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define MANY 24u

static unsigned unneeded;

static void on_unneeded(struct engine_io *io)
{
	unneeded++;
}

/* As the data plane does it. */
static void submit(struct rig *g, struct rig_io *i, enum engine_op op, uint64_t offset)
{
	rig_blank(i, g->all, op, offset, 512, g->buf);
	i->io.may_return = true;
	i->io.unneeded = on_unneeded;
	assert_int_equal(g->ops->submit(g->r, &i->io), 0);
}

static uint32_t ended(const struct rig_io *ios, int64_t res)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MANY; i++)
		n += ios[i].done && ios[i].res == res;
	return n;
}

static void turn_until(struct rig *g, const struct rig_io *ios, int64_t res, uint32_t n)
{
	uint64_t until = clock_monotonic_ns() + 10 * NS_PER_S;

	while (ended(ios, res) < n) {
		rig_turn(g, 5);
		assert_true(clock_monotonic_ns() < until);
	}
}

static void nvmf_lane__keeps_the_oldest_and_gives_the_others_back(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	assert_true(g->ops->away(g->r, g->all)); /* nothing is known yet */
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	assert_false(g->ops->away(g->r, g->all));
	assert_int_equal(g->ops->parked(g->r), 0);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_HANG});
	for (uint32_t i = 0; i < MANY; i++)
		submit(g, &ios[i], ENGINE_OP_READ, 0);
	rig_turn(g, 5);
	/* It hangs: nobody has said so, but nothing of it is answered. */
	while (!g->ops->away(g->r, g->all))
		rig_turn(g, 5);
	assert_int_equal(g->ops->parked(g->r), MANY);
	assert_int_equal(ended(ios, ENGINE_AWAY), 0);
	fake_refuse(true);
	fake_cut();
	turn_until(g, ios, ENGINE_AWAY, MANY - NVMF_WAITERS_MAX);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(ios[i].done, i >= NVMF_WAITERS_MAX);
	assert_true(ios[MANY - 1].order < ios[NVMF_WAITERS_MAX].order);
	assert_int_equal(g->ops->parked(g->r), NVMF_WAITERS_MAX);
	fake_rules_off();
	fake_refuse(false);
	turn_until(g, ios, 512, NVMF_WAITERS_MAX);
	assert_false(g->ops->away(g->r, g->all));
}

static void nvmf_lane__answers_what_was_given_back_when_it_has_given_up(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_HANG});
	for (uint32_t i = 0; i < MANY; i++)
		submit(g, &ios[i], ENGINE_OP_READ, 0);
	rig_turn(g, 5);
	fake_refuse(true);
	fake_cut();
	turn_until(g, ios, -ENOTCONN, NVMF_WAITERS_MAX);
	assert_int_equal(ended(ios, ENGINE_AWAY), MANY - NVMF_WAITERS_MAX);
	/* From now on there is no reason to keep the others. */
	assert_false(g->ops->away(g->r, g->all));
	submit(g, &ios[MANY - 1], ENGINE_OP_READ, 0);
	rig_turn(g, 0);
	assert_true(ios[MANY - 1].done);
	assert_int_equal(ios[MANY - 1].res, -ENOTCONN);
	fake_rules_off();
	fake_refuse(false);
	rig_until(g, NVMF_CTRL_LIVE);
}

static void nvmf_lane__lets_go_of_the_buffer_of_a_write_of_unknown_outcome(void **state)
{
	static struct rig_io ios[MANY];
	struct rig *g = *state;

	unneeded = 0;
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .action = FAKE_HANG});
	submit(g, &ios[0], ENGINE_OP_WRITE, 0);
	rig_turn(g, 5);
	fake_cut();
	while (!unneeded)
		rig_turn(g, 5);
	assert_false(ios[0].done);
	assert_int_equal(rig_wait(g, &ios[0]), -EREMOTEIO);
	assert_int_equal(unneeded, 1);
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(nvmf_lane__keeps_the_oldest_and_gives_the_others_back),
		RIG_TEST(nvmf_lane__answers_what_was_given_back_when_it_has_given_up),
		RIG_TEST(nvmf_lane__lets_go_of_the_buffer_of_a_write_of_unknown_outcome),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
