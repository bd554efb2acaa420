/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller and the engine when things go wrong, where it is a matter of time: the clock goes
 * forward as the test says, so that nothing here depends on how quick the machine is.
 */
#include "dataplane/nvmf/ctrl_priv.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/nvmf/engine_rig.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define KEEP_ALIVE_MS 60000u
#define QUIESCE_MS    (KEEP_ALIVE_MS + 10000u) /* where the document does not say */
#define TIMEOUT_MS    90000u

/* Nothing times out unless it is told to. */
static void begin(struct rig *g)
{
	rig_init(g);
	fake_ready_time(UINT8_MAX);
	g->config.keep_alive_ms = KEEP_ALIVE_MS;
	g->config.command_timeout_ms = TIMEOUT_MS;
	g->config.quiesce_ms = 0;
	rig_start(g);
}

static void pass(struct rig *g, uint64_t ms)
{
	clock_ahead_ns += ms * NS_PER_MS;
	nvmf_admin_wake(g->e->admin);
}

static void until_lives(struct rig *g, uint64_t n)
{
	while (rig_health(g).lives < n)
		rig_turn(g, 5);
}

/* ---- a Keep Alive that is not answered ---- */

static void leave_keep_alive_unanswered(struct rig *g)
{
	fake_rule(&(struct fake_rule){
		.qid = 1, .opcode = NVME_ADMIN_KEEP_ALIVE + 1, .times = 1, .action = FAKE_HANG});
	pass(g, KEEP_ALIVE_MS / 2);
	assert_true(AWAIT(fake_hits() == 1));
}

/* The admin queue is given up while the target has the command. */
static void nvmf_recovery__a_reset_takes_an_unanswered_keep_alive_along(void **state)
{
	struct rig g;

	begin(&g);
	leave_keep_alive_unanswered(&g);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = FAKE_DIE});
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 0, 512, g.buf), -EREMOTEIO);
	until_lives(&g, 2);
	assert_int_equal(fake_stats().disables, 1);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 0, 512, g.buf), 512);
	rig_stop(&g);
}

/* How often the admin thread looks while there is nothing for it to do. */
static uint32_t looks(struct rig *g)
{
	uint32_t before = fake_stats().admin_polls;

	rig_turns_ms(g, 200);
	return fake_stats().admin_polls - before;
}

/* The next one is due, and cannot be sent: the target may take half of keepAlive, over and over. */
static void nvmf_recovery__an_unanswered_keep_alive_is_waited_for_in_sleep(void **state)
{
	struct rig g;

	begin(&g);
	leave_keep_alive_unanswered(&g);
	pass(&g, KEEP_ALIVE_MS / 2);
	assert_in_range(looks(&g), 0, 20);
	assert_int_equal(rig_health(&g).lives, 1);
	pass(&g, KEEP_ALIVE_MS / 2);
	until_lives(&g, 2);
	rig_stop(&g);
}

/* The time for its shutdown is over, and a reactor has not let go of it. */
static void nvmf_recovery__the_last_reactor_is_waited_for_in_sleep(void **state)
{
	uint32_t before;
	struct rig g;

	begin(&g);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	g.ops->close(TAKE_PTR(g.all));
	g.ops->close(TAKE_PTR(g.part));
	g.ops->ns_close(TAKE_PTR(g.ns));
	assert_true(AWAIT(rig_health(&g).state == NVMF_CTRL_SHUTDOWN));
	pass(&g, NVMF_SHUTDOWN_MS);
	before = fake_stats().admin_polls;
	for (int i = 0; i < 20; i++)
		rig_nap();
	assert_in_range(fake_stats().admin_polls - before, 0, 20);
	rig_turns_ms(&g, 20);
	assert_true(AWAIT(!nvmf_admin_uses(g.e->admin, &rig_who.uid)));
	rig_stop(&g);
}

/* A tenant goes while the way to its target is cut, with and without time for the shutdown. */
static void nvmf_recovery__the_last_use_ends_with_an_unanswered_keep_alive(void **state)
{
	struct rig g;

	for (int i = 0; i < 2; i++) {
		begin(&g);
		leave_keep_alive_unanswered(&g);
		fake_rule(&(struct fake_rule){
			.qid = 1, .opcode = NVME_FABRICS + 1, .action = FAKE_HANG});
		g.ops->close(TAKE_PTR(g.all));
		g.ops->close(TAKE_PTR(g.part));
		g.ops->ns_close(TAKE_PTR(g.ns));
		if (i == 0) {
			assert_true(AWAIT(fake_hits() == 2));
			pass(&g, NVMF_SHUTDOWN_MS);
			assert_true(AWAIT(!nvmf_admin_uses(g.e->admin, &rig_who.uid)));
		}
		rig_stop(&g);
	}
}

/* ---- when an old write cannot happen any more ---- */

/* It takes CC.EN = 0 and is never done with it: until this side gives up it hears from it, so it
 * may live as long as its keep alive lets it from then on. */
static void
nvmf_recovery__the_time_to_quiesce_begins_with_the_last_word_to_the_old_controller(void **state)
{
	struct rig_io old, newer;
	uint8_t two[4096];
	struct rig g;

	begin(&g);
	fake_rule(&(struct fake_rule){.qid = 1,
	                              .opcode = NVME_FABRICS + 1,
	                              .fctype = NVME_FC_PROPERTY_GET + 1,
	                              .offset = NVME_PROP_CSTS + 1,
	                              .action = FAKE_VALUE,
	                              .arg = NVME_CSTS_RDY});
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = FAKE_DIE});
	memset(g.buf, 1, 4096);
	rig_submit(&g, &old, g.all, ENGINE_OP_WRITE, 0, 4096, g.buf);
	rig_until(&g, NVMF_CTRL_QUIESCING);
	pass(&g, TIMEOUT_MS);
	until_lives(&g, 2);
	memset(two, 2, sizeof(two));
	rig_submit(&g, &newer, g.all, ENGINE_OP_WRITE, 0, 4096, two);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 4096, 4096, two), 4096);
	/* The old one happens now, as late as it can. */
	fake_orphans();
	pass(&g, QUIESCE_MS);
	assert_int_equal(rig_wait(&g, &newer), 4096);
	assert_int_equal(rig_wait(&g, &old), -EREMOTEIO);
	assert_int_equal(fake_media(1)[0], 2);
	rig_stop(&g);
}

/* ---- what is told of a write that the target has had ---- */

enum end { TOO_LATE, TARGET_AWAY, OUT_OF_IT };

/* A write whose second command the target ends with @status, which says that another try may go
 * better; before that this side ends it. With @first that was the first: nothing else was done. */
static int64_t ended_between_tries(uint32_t status, bool first, enum end how)
{
	struct rig_io w;
	struct rig g;
	int64_t res;

	begin(&g);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	fake_rule(&(struct fake_rule){.qid = FAKE_IO,
	                              .opcode = NVME_IO_WRITE + 1,
	                              .skip = first ? 0 : 1,
	                              .action = FAKE_STATUS,
	                              .arg = status});
	rig_submit_until(&g, &w, g.all, ENGINE_OP_WRITE, 0, first ? 4096 : 65536, g.buf,
	                 how == TOO_LATE ? clock_boottime_ns() + TIMEOUT_MS * NS_PER_MS : 0);
	/* Nothing of it is tried again but in a turn. */
	while (fake_hits() == 0)
		rig_turn(&g, 5);
	if (how == TOO_LATE) {
		clock_ahead_ns += TIMEOUT_MS * NS_PER_MS;
	} else if (how == TARGET_AWAY) {
		fake_refuse(true);
		fake_cut();
		rig_until(&g, NVMF_CTRL_BACKOFF);
		clock_ahead_ns += NVMF_DEADLINES * TIMEOUT_MS * NS_PER_MS;
	} else {
		fake_resize(1, 1);
		assert_true(AWAIT(nvmf_ctrl_geometry(g.all->ctrl, 0).blocks == 1));
	}
	res = rig_wait(&g, &w);
	fake_refuse(false);
	fake_rules_off();
	nvmf_admin_wake(g.e->admin);
	rig_stop(&g);
	return res;
}

static void nvmf_recovery__a_write_that_the_target_ended_may_have_happened(void **state)
{
	for (int first = 0; first < 2; first++) {
		assert_int_equal(ended_between_tries(NVME_SC_INTERRUPTED, first, TOO_LATE),
		                 -EREMOTEIO);
		assert_int_equal(ended_between_tries(NVME_SC_INTERRUPTED, first, TARGET_AWAY),
		                 -EREMOTEIO);
		assert_int_equal(ended_between_tries(NVME_SC_INTERRUPTED, first, OUT_OF_IT),
		                 -EREMOTEIO);
	}
	/* The control: of what it says it did not begin nothing was done. */
	assert_int_equal(ended_between_tries(NVME_SC_NS_NOT_READY, true, TOO_LATE), ENGINE_LATE);
	assert_int_equal(ended_between_tries(NVME_SC_NS_NOT_READY, true, TARGET_AWAY), -ENOTCONN);
	assert_int_equal(ended_between_tries(NVME_SC_NS_NOT_READY, true, OUT_OF_IT), -ERANGE);
}

/* ---- I/O queues that do not last ---- */

static struct nvmf_lane *lane(struct rig *g)
{
	return g->r->by_index[nvmf_ctrl_index(g->all->ctrl)];
}

/* What is due then is done: a queue that is opened ends, or a read is answered. */
static void lane_after(struct rig *g, uint64_t ms, const struct rig_io *r)
{
	clock_ahead_ns += ms * NS_PER_MS;
	nvmf_lane_heat(lane(g));
	do
		rig_turn(g, 5);
	while (!r->done && lane(g)->state != LANE_DOWN);
}

static void nvmf_recovery__a_queue_that_joins_and_dies_is_opened_ever_more_seldom(void **state)
{
	const struct fake_rule die = {
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_LOSE};
	struct rig_io r;
	struct rig g;

	begin(&g);
	fake_rule(&die);
	rig_submit(&g, &r, g.all, ENGINE_OP_READ, 0, 512, g.buf);
	for (int i = 0; i < 200; i++)
		lane_after(&g, NVMF_RETRY_MS, &r);
	assert_false(r.done);
	/* After 0.1 s, 0.2 s and so on: within 20 s eight times, and not 200. */
	assert_in_range(fake_stats().io_connects, 4, 20);
	assert_int_equal(rig_health(&g).lives, 1);
	fake_rules_off();
	lane_after(&g, NVMF_RETRY_MAX_MS, &r);
	assert_int_equal(rig_wait(&g, &r), 512);
	/* One that lived is opened again at once. */
	clock_ahead_ns += NVMF_RETRY_MAX_MS * NS_PER_MS;
	fake_rule(&die);
	rig_submit(&g, &r, g.all, ENGINE_OP_READ, 0, 512, g.buf);
	lane_after(&g, 0, &r);
	assert_false(r.done);
	assert_true(lane(&g)->open_at_ns <= clock_boottime_ns() + NVMF_RETRY_MS * NS_PER_MS);
	fake_rules_off();
	lane_after(&g, NVMF_RETRY_MS, &r);
	assert_int_equal(rig_wait(&g, &r), 512);
	rig_stop(&g);
}

/* Nothing of it waits inside any more when the target is back: who asks hears that it is away,
 * once, and that it asked is enough. */
static void nvmf_recovery__who_is_refused_makes_the_queue_be_opened_again(void **state)
{
	struct rig_io r;
	struct rig g;

	begin(&g);
	fake_refuse(true);
	fake_cut();
	rig_until(&g, NVMF_CTRL_BACKOFF);
	rig_submit(&g, &r, g.all, ENGINE_OP_READ, 0, 512, g.buf);
	clock_ahead_ns += NVMF_DEADLINES * TIMEOUT_MS * NS_PER_MS;
	assert_int_equal(rig_wait(&g, &r), -ENOTCONN);
	fake_refuse(false);
	nvmf_admin_wake(g.e->admin);
	until_lives(&g, 2);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), -ENOTCONN);
	assert_true(AWAIT((rig_turn(&g, 5), lane(&g)->state == LANE_READY)));
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	rig_stop(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_recovery__a_reset_takes_an_unanswered_keep_alive_along),
		cmocka_unit_test(nvmf_recovery__the_last_use_ends_with_an_unanswered_keep_alive),
		cmocka_unit_test(nvmf_recovery__an_unanswered_keep_alive_is_waited_for_in_sleep),
		cmocka_unit_test(nvmf_recovery__the_last_reactor_is_waited_for_in_sleep),
		cmocka_unit_test(
			nvmf_recovery__the_time_to_quiesce_begins_with_the_last_word_to_the_old_controller),
		cmocka_unit_test(nvmf_recovery__a_write_that_the_target_ended_may_have_happened),
		cmocka_unit_test(
			nvmf_recovery__a_queue_that_joins_and_dies_is_opened_ever_more_seldom),
		cmocka_unit_test(nvmf_recovery__who_is_refused_makes_the_queue_be_opened_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
