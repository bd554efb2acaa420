/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller and the engine when things go wrong, over fake queues: every admin command that
 * fails or is not answered, queues that die, writes of unknown outcome and what waits for them,
 * targets that stay away.
 */
#include "common/clock.h"
#include "dataplane/nvmf/ctrl_priv.h"
#include "tests/await.h"
#include "tests/nvmf/engine_rig.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* ---- connecting ---- */

#define PROP(op, at) .opcode = NVME_FABRICS + 1, .fctype = (op) + 1, .offset = (at) + 1
static const struct fake_rule admin_commands[] = {
	{.qid = 1, .opcode = NVME_FABRICS + 1, .fctype = NVME_FC_CONNECT + 1},
	{.qid = 1, PROP(NVME_FC_PROPERTY_GET, NVME_PROP_CAP)},
	{.qid = 1, PROP(NVME_FC_PROPERTY_SET, NVME_PROP_CC)},
	{.qid = 1, PROP(NVME_FC_PROPERTY_GET, NVME_PROP_CSTS)},
	{.qid = 1, .opcode = NVME_ADMIN_IDENTIFY + 1},
	{.qid = 1, .opcode = NVME_ADMIN_SET_FEATURES + 1},
	{.qid = 1, .opcode = NVME_ADMIN_IDENTIFY + 1, .skip = 1},
};

static void expect_no_start(struct rig *g, const char *what)
{
	struct ros2_err err = ROS2_ERR_INIT;

	rig_start_engine(g);
	assert_int_equal(g->ops->ns_open(g->e, &rig_who, "t/a", &g->ns, &err), -ENOTCONN);
	assert_int_equal(err.status, ROS2_UNAVAILABLE);
	if (!err.msg[0])
		fail_msg("%s: no words", what);
	/* The next who asks hears the same, at once. */
	assert_int_equal(g->ops->ns_open(g->e, &rig_who, "t/a", &g->ns, &err), -ENOTCONN);
}

static void start_after_all(struct rig *g)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = -ENOTCONN;

	for (int i = 0; i < 200 && rc < 0; i++) {
		rc = g->ops->ns_open(g->e, &rig_who, "t/a", &g->ns, &err);
		if (rc < 0)
			rig_nap();
	}
	if (rc < 0)
		fail_msg("%s", err.msg);
	g->ops->ns_close(g->ns);
	g->ops->destroy(g->e);
	assert_int_equal(fake_stats().open, 0);
}

static void nvmf_ctrl__names_each_admin_command_that_goes_wrong(void **state)
{
	static const enum fake_action how[] = {FAKE_STATUS, FAKE_HANG, FAKE_DIE, FAKE_LOSE};
	struct rig g;

	for (size_t i = 0; i < ARRAY_SIZE(admin_commands); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(how); k++) {
			struct fake_rule r = admin_commands[i];

			rig_init(&g);
			g.config.command_timeout_ms = 60;
			r.action = how[k];
			r.arg = NVME_SC_INTERNAL | NVME_STATUS_DNR;
			fake_rule(&r);
			expect_no_start(&g, "an admin command");
			assert_true(fake_hits() > 0);
			fake_rules_off();
			start_after_all(&g);
		}
	}
}

static void nvmf_ctrl__does_not_believe_zeroes(void **state)
{
	static const struct fake_rule lies[] = {
		{.qid = 1, .opcode = NVME_ADMIN_IDENTIFY + 1, .action = FAKE_ZERO},
		{.qid = 1, PROP(NVME_FC_PROPERTY_GET, NVME_PROP_CAP), .action = FAKE_VALUE},
		{.qid = 1,
	         .opcode = NVME_FABRICS + 1,
	         .fctype = NVME_FC_CONNECT + 1,
	         .action = FAKE_VALUE,
	         .arg = 0xffff},
		{.qid = 1,
	         PROP(NVME_FC_PROPERTY_GET, NVME_PROP_CSTS),
	         .action = FAKE_VALUE,
	         .arg = NVME_CSTS_CFS},
		{.qid = 1, PROP(NVME_FC_PROPERTY_GET, NVME_PROP_CSTS), .action = FAKE_VALUE},
	};
	struct rig g;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		rig_init(&g);
		fake_rule(&lies[i]);
		expect_no_start(&g, "a lie");
		fake_rules_off();
		start_after_all(&g);
	}
}

static void take_one(void *arg, const struct engine_health *h)
{
	assert_string_equal(h->name, "tenant-a");
	*(struct engine_health *)arg = *h;
}

static void nvmf_ctrl__a_target_that_is_not_there_is_named_and_tried_again(void **state)
{
	struct engine_health h = {0};
	struct rig g;

	rig_init(&g);
	fake_refuse(true);
	expect_no_start(&g, "refused");
	g.ops->health(g.e, take_one, &h);
	assert_true(h.lost && !h.live && h.words[0]);
	assert_int_equal(h.connects, 0);
	fake_refuse(false);
	start_after_all(&g);
}

static void nvmf_ctrl__whoever_asks_for_a_silent_target_waits_once(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_health h = {0};
	struct nvmf_ctrl *c;
	uint64_t at;
	struct rig g;

	rig_init(&g);
	g.config.command_timeout_ms = 60000;
	fake_rule(&(struct fake_rule){.qid = 1, .action = FAKE_HANG});
	rig_start_engine(&g);
	at = clock_monotonic_ns();
	assert_int_equal(nvmf_ctrl_get(g.e->admin, &rig_who, 300, &c, &err), -ENOTCONN);
	assert_true(clock_monotonic_ns() - at >= 250 * NS_PER_MS);
	at = clock_monotonic_ns();
	/* Each of them for itself would be 30 s. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(nvmf_ctrl_get(g.e->admin, &rig_who, 300, &c, &err), -ENOTCONN);
	assert_true(clock_monotonic_ns() - at < 15 * NS_PER_S);
	/* Nothing is lost that may answer in a moment. That it is after some seconds is said with
	 * words, though no attempt has ended. */
	g.ops->health(g.e, take_one, &h);
	assert_true(!h.lost && !h.live && !h.words[0]);
	for (uint32_t i = 0; i < NVMF_CTRLS_MAX; i++)
		if (g.e->admin->ctrls[i])
			atomic_fetch_sub(&g.e->admin->ctrls[i]->since_ns, 6 * NS_PER_S);
	g.ops->health(g.e, take_one, &h);
	assert_true(h.lost);
	assert_string_equal(h.words, "the target does not answer");
	g.ops->destroy(g.e);
	assert_int_equal(fake_stats().open, 0);
}

static void nvmf_engine__says_how_its_targets_are(void **state)
{
	struct engine_health h = {0};
	struct rig *g = *state;
	uint64_t at;

	g->ops->health(g->e, take_one, &h);
	assert_true(h.live && !h.lost);
	assert_int_equal(h.connects, 1);
	at = h.since_ns;
	fake_refuse(true);
	fake_cut();
	/* Its words follow its state. */
	AWAIT((rig_turn(g, 5), g->ops->health(g->e, take_one, &h), h.lost && h.words[0]));
	assert_true(h.lost && !h.live && h.words[0]);
	assert_true(h.since_ns > at);
	at = h.since_ns;
	/* The attempts that fail do not make it a loss of now. */
	rig_until(g, NVMF_CTRL_BACKOFF);
	g->ops->health(g->e, take_one, &h);
	assert_true(h.lost && h.since_ns == at);
	fake_refuse(false);
	rig_until(g, NVMF_CTRL_LIVE);
	g->ops->health(g->e, take_one, &h);
	assert_true(h.live && !h.lost && h.since_ns > at);
	assert_int_equal(h.connects, 2);
}

/* For tests that look at something while something else waits for its time: a machine that is slow
 * has two seconds for the look. */
static int patient_setup(void **state)
{
	static struct rig g;

	rig_init(&g);
	g.config.command_timeout_ms = g.config.quiesce_ms = 2000;
	g.config.keep_alive_ms = 20000;
	rig_start(&g);
	*state = &g;
	return 0;
}

/* ---- losses ---- */

static void nvmf_ctrl__is_lost_when_keep_alive_fails(void **state)
{
	static const enum fake_action how[] = {FAKE_STATUS, FAKE_HANG, FAKE_DIE};
	struct rig g;

	for (size_t k = 0; k < ARRAY_SIZE(how); k++) {
		rig_init(&g);
		g.config.keep_alive_ms = 100;
		rig_start(&g);
		fake_rule(&(struct fake_rule){.qid = 1,
		                              .opcode = NVME_ADMIN_KEEP_ALIVE + 1,
		                              .times = 1,
		                              .action = how[k],
		                              .arg = NVME_SC_INTERNAL});
		while (rig_health(&g).lives < 2)
			rig_turn(&g, 5);
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 0, 512, g.buf), 512);
		rig_stop(&g);
	}
}

static void nvmf_recovery__reads_and_flushes_are_made_again(void **state)
{
	static const enum engine_op ops[] = {ENGINE_OP_READ, ENGINE_OP_FLUSH};
	static const uint8_t codes[] = {NVME_IO_READ, NVME_IO_FLUSH};
	struct rig g;

	for (int i = 0; i < 2; i++) {
		uint32_t len = i ? 0 : 65536;

		rig_init(&g);
		fake_write_cache(true);
		rig_start(&g);
		memset(fake_media(1), 5, FAKE_NS_BYTES);
		fake_rule(&(struct fake_rule){
			.qid = FAKE_IO, .opcode = codes[i] + 1, .times = 2, .action = FAKE_DIE});
		assert_int_equal(rig_io(&g, g.all, ops[i], 0, len, g.buf), len);
		if (!i)
			assert_int_equal(g.buf[65535], 5);
		assert_true(rig_health(&g).retries > 0);
		/* The I/O queue was opened again within the same controller. */
		assert_int_equal(rig_health(&g).lives, 1);
		rig_stop(&g);
	}
}

/* The target's machine loses its power, and what lay in the cache with it. */
static void lose_power(struct rig *g, uint8_t before)
{
	uint64_t lives = rig_health(g).lives;

	fake_cut();
	memset(fake_media(1), before, FAKE_NS_BYTES);
	while (rig_health(g).lives == lives)
		rig_turn(g, 5);
	rig_until(g, NVMF_CTRL_LIVE);
}

static int64_t flush(struct rig *g)
{
	return rig_io(g, g->all, ENGINE_OP_FLUSH, 0, 0, NULL);
}

static void write_all(struct rig *g, uint8_t with)
{
	memset(g->buf, with, 65536);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 65536, g->buf), 65536);
}

static void nvmf_recovery__a_flush_after_the_loss_of_a_cache_says_so_once(void **state)
{
	struct rig g;

	rig_init(&g);
	fake_write_cache(true);
	rig_start(&g);
	write_all(&g, 7);
	lose_power(&g, 0);
	assert_int_equal(flush(&g), -EREMOTEIO);
	assert_int_equal(flush(&g), 0);
	/* What was flushed before is not in doubt; nor by a control thread. */
	write_all(&g, 8);
	assert_int_equal(flush(&g), 0);
	lose_power(&g, 8);
	assert_int_equal(flush(&g), 0);
	write_all(&g, 9);
	lose_power(&g, 8);
	assert_int_equal(g.ops->fsync(g.all, NULL), -EREMOTEIO);
	assert_int_equal(g.ops->fsync(g.all, NULL), 0);
	rig_stop(&g);
}

/* A target that comes back without a cache: what its old one had is gone all the same. */
static void nvmf_recovery__a_flush_says_so_where_there_is_no_cache_any_more(void **state)
{
	struct rig g;

	for (int thread = 0; thread < 2; thread++) {
		rig_init(&g);
		fake_write_cache(true);
		rig_start(&g);
		write_all(&g, 7);
		fake_write_cache(false);
		lose_power(&g, 0);
		assert_int_equal(thread ? g.ops->fsync(g.all, NULL) : flush(&g), -EREMOTEIO);
		assert_int_equal(thread ? g.ops->fsync(g.all, NULL) : flush(&g), 0);
		/* What is written from now on lies in none. */
		write_all(&g, 8);
		lose_power(&g, 8);
		assert_int_equal(flush(&g), 0);
		rig_stop(&g);
	}
}

/* The first flush hears that some is gone, though it is the second that goes well. */
static void nvmf_recovery__a_flush_that_fails_keeps_what_the_next_has_to_say(void **state)
{
	struct rig g;

	rig_init(&g);
	fake_write_cache(true);
	rig_start(&g);
	write_all(&g, 7);
	lose_power(&g, 0);
	fake_rule(&(struct fake_rule){.qid = FAKE_IO,
	                              .opcode = NVME_IO_FLUSH + 1,
	                              .times = 1,
	                              .action = FAKE_STATUS,
	                              .arg = NVME_SC_INTERNAL | NVME_STATUS_DNR});
	assert_int_equal(flush(&g), -EIO);
	assert_int_equal(flush(&g), -EREMOTEIO);
	assert_int_equal(flush(&g), 0);
	rig_stop(&g);
}

/* Each of those that were under way when it was lost speaks for what was written before it: of two
 * threads that write and flush the second would else believe what the first was told is gone. */
static void nvmf_recovery__each_flush_that_a_loss_met_says_so(void **state)
{
	struct rig_io f[3];
	struct rig g;

	rig_init(&g);
	fake_write_cache(true);
	rig_start(&g);
	write_all(&g, 7);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_FLUSH + 1, .times = 3, .action = FAKE_HANG});
	for (int i = 0; i < 3; i++)
		rig_submit(&g, &f[i], g.all, ENGINE_OP_FLUSH, 0, 0, NULL);
	while (fake_hits() < 3)
		rig_turn(&g, 5);
	lose_power(&g, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_wait(&g, &f[i]), -EREMOTEIO);
	assert_int_equal(flush(&g), 0);
	rig_stop(&g);
}

/* Where there is no cache any more there is nothing to flush, but what the first has to say. */
static void nvmf_recovery__no_flush_overtakes_the_one_that_says_so(void **state)
{
	struct rig_io first;
	struct rig g;

	for (int thread = 0; thread < 2; thread++) {
		rig_init(&g);
		fake_write_cache(true);
		rig_start(&g);
		write_all(&g, 7);
		fake_write_cache(false);
		lose_power(&g, 0);
		fake_rule(&(struct fake_rule){.qid = FAKE_IO,
		                              .opcode = NVME_IO_FLUSH + 1,
		                              .times = 1,
		                              .action = FAKE_HANG});
		rig_submit(&g, &first, g.all, ENGINE_OP_FLUSH, 0, 0, NULL);
		while (fake_hits() < 1)
			rig_turn(&g, 5);
		assert_int_equal(thread ? g.ops->fsync(g.all, NULL) : flush(&g), -EREMOTEIO);
		assert_int_equal(rig_wait(&g, &first), -EREMOTEIO);
		assert_int_equal(flush(&g), 0);
		rig_stop(&g);
	}
}

/* So does one that was asked for before that, and came to the engine after it. */
static void nvmf_recovery__a_flush_that_waited_while_another_was_told_says_so(void **state)
{
	struct rig_io f;
	struct rig g;

	rig_init(&g);
	fake_write_cache(true);
	rig_start(&g);
	for (int later = 0; later < 2; later++) {
		write_all(&g, 7);
		lose_power(&g, 0);
		rig_blank(&f, g.all, ENGINE_OP_FLUSH, 0, 0, NULL);
		f.io.asked_ns = later ? 0 : clock_boottime_ns();
		assert_int_equal(flush(&g), -EREMOTEIO);
		if (later)
			f.io.asked_ns = clock_boottime_ns();
		assert_int_equal(g.ops->submit(g.r, &f.io), 0);
		assert_int_equal(rig_wait(&g, &f), later ? 0 : -EREMOTEIO);
	}
	rig_stop(&g);
}

/* A queue that is opened anew within the same controller has lost nothing; nor has a target
 * without a cache. */
static void nvmf_recovery__a_flush_is_in_doubt_only_where_a_cache_was_lost(void **state)
{
	struct rig g;

	for (int cache = 0; cache < 2; cache++) {
		rig_init(&g);
		fake_write_cache(cache);
		rig_start(&g);
		write_all(&g, 7);
		if (!cache)
			lose_power(&g, 7);
		fake_rule(&(struct fake_rule){.qid = FAKE_IO,
		                              .opcode = NVME_IO_READ + 1,
		                              .times = 1,
		                              .action = FAKE_DIE});
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
		assert_int_equal(flush(&g), 0);
		rig_stop(&g);
	}
}

static void nvmf_recovery__a_read_that_never_goes_well_ends(void **state)
{
	struct rig *g = *state;

	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_READ + 1, .action = FAKE_DIE});
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), -ETIMEDOUT);
	assert_int_equal(fake_hits(), NVMF_TRIES_MAX);
}

static void nvmf_recovery__a_write_that_was_not_handed_on_is(void **state)
{
	struct rig *g = *state;

	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 2, .action = FAKE_LOSE});
	memset(g->buf, 9, 65536);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 65536, g->buf), 65536);
	assert_int_equal(fake_media(1)[65535], 9);
	assert_int_equal(rig_health(g).unknown_writes, 0);
	assert_int_equal(rig_health(g).lives, 1);
}

static void
nvmf_recovery__an_unanswered_write_resets_the_controller_and_is_not_made_again(void **state)
{
	static const enum fake_action how[] = {FAKE_DIE, FAKE_HANG};
	struct rig g;

	for (int i = 0; i < 2; i++) {
		rig_init(&g);
		rig_start(&g);
		fake_rule(&(struct fake_rule){
			.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = how[i]});
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 0, 512, g.buf), -EREMOTEIO);
		assert_int_equal(ros2_status_from_errno(-EREMOTEIO), ROS2_OUTCOME_UNKNOWN);
		rig_until(&g, NVMF_CTRL_LIVE);
		assert_int_equal(fake_stats().writes, 0);
		assert_int_equal(fake_stats().disables, 1);
		assert_int_equal(rig_health(&g).lives, 2);
		assert_int_equal(rig_health(&g).unknown_writes, 1);
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_WRITE, 0, 512, g.buf), 512);
		rig_stop(&g);
	}
}

/* The whole target goes with a write in it: admin queue, too, so only time tells when it is quiet.
 */
static void lose_with_write(struct rig *g, struct rig_io *w)
{
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = FAKE_HANG});
	memset(g->buf, 1, 4096);
	rig_submit(g, w, g->all, ENGINE_OP_WRITE, 4096, 4096, g->buf);
	rig_turn(g, 20);
	fake_cut();
	while (rig_health(g).lives < 2)
		rig_turn(g, 5);
}

static void nvmf_recovery__what_overlaps_an_unknown_write_waits_and_the_rest_goes_on(void **state)
{
	struct rig_io w, over, beside, read, small;
	uint8_t two[8192], back[512];
	struct rig *g = *state;

	lose_with_write(g, &w);
	memset(two, 2, sizeof(two));
	rig_submit(g, &over, g->all, ENGINE_OP_WRITE, 0, 4096 + 512, two);
	rig_submit(g, &small, g->all, ENGINE_OP_WRITE, 8192 - 512, 512, two);
	rig_submit(g, &beside, g->all, ENGINE_OP_WRITE, 8192, 4096, two);
	rig_submit(g, &read, g->all, ENGINE_OP_READ, 4096, 512, back);
	assert_int_equal(rig_wait(g, &beside), 4096);
	assert_int_equal(rig_wait(g, &read), 512);
	assert_false(w.done || over.done || small.done);
	/* The old write happens now, as late as it can. */
	fake_orphans();
	assert_int_equal(rig_wait(g, &w), -EREMOTEIO);
	assert_int_equal(rig_wait(g, &over), 4096 + 512);
	assert_int_equal(rig_wait(g, &small), 512);
	assert_true(w.order < over.order && w.order < small.order);
	assert_int_equal(fake_media(1)[4096], 2);
	assert_int_equal(fake_media(1)[4096 + 512], 1);
	assert_int_equal(fake_media(1)[8192 - 1], 2);
}

/* As the test before, with a fence that is not there: then the old write comes last. */
static void nvmf_recovery__without_the_time_to_quiesce_the_old_write_comes_last(void **state)
{
	struct rig_io w, over;
	uint8_t two[4096];
	struct rig g;

	rig_init(&g);
	g.config.quiesce_ms = 1;
	rig_start(&g);
	lose_with_write(&g, &w);
	memset(two, 2, sizeof(two));
	rig_submit(&g, &over, g.all, ENGINE_OP_WRITE, 4096, 4096, two);
	assert_int_equal(rig_wait(&g, &over), 4096);
	fake_orphans();
	assert_int_equal(fake_media(1)[4096], 1);
	assert_int_equal(rig_wait(&g, &w), -EREMOTEIO);
	rig_stop(&g);
}

/* A write hangs, the controller is disabled and says that it is; then the old write happens after
 * all. What the medium shows at last: 1, the old one, or 2, the later. */
static uint8_t late_though_disabled(uint64_t quiesce_ms)
{
	struct rig_io w, over;
	uint8_t two[4096], last;
	struct rig g;

	rig_init(&g);
	g.config.quiesce_ms = quiesce_ms;
	rig_start(&g);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = FAKE_HANG});
	memset(g.buf, 1, 4096);
	rig_submit(&g, &w, g.all, ENGINE_OP_WRITE, 4096, 4096, g.buf);
	while (rig_health(&g).lives < 2)
		rig_turn(&g, 5);
	assert_int_equal(fake_stats().disables, 1);
	memset(two, 2, sizeof(two));
	rig_submit(&g, &over, g.all, ENGINE_OP_WRITE, 4096, 4096, two);
	if (!quiesce_ms)
		assert_int_equal(rig_wait(&g, &over), 4096);
	fake_orphans();
	assert_int_equal(rig_wait(&g, &over), 4096);
	assert_int_equal(rig_wait(&g, &w), -EREMOTEIO);
	last = fake_media(1)[4096];
	rig_stop(&g);
	return last;
}

static void nvmf_recovery__a_time_to_quiesce_holds_against_the_targets_word(void **state)
{
	assert_int_equal(late_though_disabled(600), 2);
}

static void nvmf_recovery__without_one_the_target_is_believed(void **state)
{
	assert_int_equal(late_though_disabled(0), 1);
}

static void nvmf_recovery__a_target_that_stays_away_is_given_up_by_name(void **state)
{
	struct rig_io w, r;
	struct rig *g = *state;
	uint64_t at;

	fake_refuse(true);
	fake_cut();
	rig_submit(g, &w, g->all, ENGINE_OP_WRITE, 0, 512, g->buf);
	rig_submit(g, &r, g->all, ENGINE_OP_READ, 0, 512, g->buf);
	assert_int_equal(rig_wait(g, &w), -ENOTCONN);
	assert_int_equal(rig_wait(g, &r), -ENOTCONN);
	assert_int_equal(rig_health(g).expired, 2);
	/* From then on nobody waits that long: as long as these two, a hundred would for 40 s. */
	at = clock_monotonic_ns();
	for (int i = 0; i < 100; i++)
		assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), -ENOTCONN);
	assert_true(clock_monotonic_ns() - at < 20 * NS_PER_S);
	fake_refuse(false);
	rig_until(g, NVMF_CTRL_LIVE);
	assert_true(AWAIT(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf) == 512));
}

static void nvmf_recovery__what_waits_can_be_withdrawn_and_what_is_unknown_not(void **state)
{
	struct rig *g = *state;
	struct rig_io w, waits;

	lose_with_write(g, &w);
	fake_refuse(true);
	fake_cut();
	rig_submit(g, &waits, g->all, ENGINE_OP_WRITE, 4096, 512, g->buf);
	g->ops->withdraw(g->r, &waits.io);
	g->ops->withdraw(g->r, &w.io);
	assert_int_equal(rig_wait(g, &waits), -ECANCELED);
	/* That one waits until it is known what became of it. */
	assert_false(w.done);
	assert_int_equal(g->ops->in_flight(g->r), 1);
	assert_int_equal(rig_wait(g, &w), -EREMOTEIO);
	fake_refuse(false);
}

/* A write that waits for its target, or for another try, when its right ends. @part: of some of it
 * is known that it is done. */
static void late(struct rig *g, bool part, uint64_t within_ms, int64_t expected)
{
	uint8_t before[FAKE_BLOCK];
	struct rig_io w;

	memset(before, 7, sizeof(before));
	memset(fake_media(1), 7, FAKE_NS_BYTES);
	memset(g->buf, 9, RIG_BUF);
	if (part) {
		fake_rule(&(struct fake_rule){.qid = FAKE_IO,
		                              .opcode = NVME_IO_WRITE + 1,
		                              .skip = 1,
		                              .action = FAKE_STATUS,
		                              .arg = NVME_SC_NS_NOT_READY});
	} else {
		fake_refuse(true);
		fake_cut();
		do /* a turn at least: the I/O queue sees its end here, the controller elsewhere */
			rig_turn(g, 5);
		while (rig_health(g).state == NVMF_CTRL_LIVE);
	}
	rig_submit_until(g, &w, g->all, ENGINE_OP_WRITE, 0, 65536, g->buf,
	                 clock_boottime_ns() + within_ms * NS_PER_MS);
	if (expected == 65536)
		fake_refuse(false);
	assert_int_equal(rig_wait(g, &w), expected);
	fake_refuse(false);
	fake_rules_off();
	if (expected != 65536)
		assert_memory_equal(fake_media(1) + 65536 - FAKE_BLOCK, before, FAKE_BLOCK);
}

static void nvmf_recovery__nothing_is_handed_on_when_its_right_has_ended(void **state)
{
	struct rig *g = *state;

	late(g, false, 20, ENGINE_LATE);
	rig_until(g, NVMF_CTRL_LIVE);
	late(g, true, 50, -EREMOTEIO);
	late(g, true, 0, ENGINE_LATE);
	/* the control: there is time */
	late(g, false, 60000, 65536);
	assert_int_equal(rig_health(g).unknown_writes, 0);
}

static void nvmf_recovery__a_target_with_too_few_queues_is_named(void **state)
{
	struct engine_reactor_opts o = {.depth = 4};
	struct engine_reactor *first;
	struct rig g;

	rig_init(&g);
	fake_give_queues(1);
	rig_start(&g);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	first = g.r;
	assert_int_equal(g.ops->reactor_new(g.e, &o, &g.r, NULL), 0);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), -EDQUOT);
	g.ops->reactor_free(first);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	rig_stop(&g);
}

/* As many as there are at all: one more has none, and nobody's. */
static void nvmf_recovery__the_last_of_all_queues_is_given_once(void **state)
{
	struct engine_reactor_opts o = {.depth = 4};
	struct engine_reactor *r[NVMF_QUEUES_MAX];
	struct rig g;

	rig_init(&g);
	fake_give_queues(NVMF_QUEUES_MAX + 1);
	rig_start(&g);
	for (uint32_t i = 0; i < NVMF_QUEUES_MAX; i++) {
		r[i] = g.r;
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
		assert_int_equal(g.ops->reactor_new(g.e, &o, &g.r, NULL), 0);
	}
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), -EDQUOT);
	g.ops->reactor_free(r[0]);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	for (uint32_t i = 1; i < NVMF_QUEUES_MAX; i++)
		g.ops->reactor_free(r[i]);
	rig_stop(&g);
}

static void nvmf_recovery__one_tenants_loss_is_not_anothers(void **state)
{
	const struct engine_who who = {{{8}}, "tenant-b"};
	struct rig *g = *state;
	struct engine_file *f;
	struct engine_ns *ns;
	struct rig_io stuck;

	assert_int_equal(g->ops->ns_open(g->e, &who, "t/b", &ns, NULL), 0);
	assert_int_equal(g->ops->open(ns, "other", ENGINE_READ | ENGINE_WRITE, 0, &f, NULL, NULL),
	                 0);
	assert_ptr_not_equal(f->ctrl, g->all->ctrl);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	assert_int_equal(rig_io(g, f, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&(struct fake_rule){
		.qid = FAKE_IO, .opcode = NVME_IO_WRITE + 1, .times = 1, .action = FAKE_HANG});
	rig_submit(g, &stuck, g->all, ENGINE_OP_WRITE, 0, 512, g->buf);
	rig_turn(g, 5);
	for (int i = 0; i < 50; i++)
		assert_int_equal(rig_io(g, f, ENGINE_OP_WRITE, 512 * i, 512, g->buf), 512);
	assert_false(stuck.done);
	assert_int_equal(rig_wait(g, &stuck), -EREMOTEIO);
	g->ops->close(f);
	g->ops->ns_close(ns);
}

#define RIG_TEST(f)     cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
#define PATIENT_TEST(f) cmocka_unit_test_setup_teardown(f, patient_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_ctrl__names_each_admin_command_that_goes_wrong),
		cmocka_unit_test(nvmf_ctrl__does_not_believe_zeroes),
		cmocka_unit_test(nvmf_ctrl__a_target_that_is_not_there_is_named_and_tried_again),
		cmocka_unit_test(nvmf_ctrl__whoever_asks_for_a_silent_target_waits_once),
		RIG_TEST(nvmf_engine__says_how_its_targets_are),
		cmocka_unit_test(nvmf_ctrl__is_lost_when_keep_alive_fails),
		cmocka_unit_test(nvmf_recovery__reads_and_flushes_are_made_again),
		cmocka_unit_test(nvmf_recovery__a_flush_after_the_loss_of_a_cache_says_so_once),
		cmocka_unit_test(nvmf_recovery__a_flush_says_so_where_there_is_no_cache_any_more),
		cmocka_unit_test(nvmf_recovery__a_flush_that_fails_keeps_what_the_next_has_to_say),
		cmocka_unit_test(nvmf_recovery__each_flush_that_a_loss_met_says_so),
		cmocka_unit_test(nvmf_recovery__no_flush_overtakes_the_one_that_says_so),
		cmocka_unit_test(nvmf_recovery__a_flush_that_waited_while_another_was_told_says_so),
		cmocka_unit_test(nvmf_recovery__a_flush_is_in_doubt_only_where_a_cache_was_lost),
		PATIENT_TEST(nvmf_recovery__a_read_that_never_goes_well_ends),
		RIG_TEST(nvmf_recovery__a_write_that_was_not_handed_on_is),
		cmocka_unit_test(
			nvmf_recovery__an_unanswered_write_resets_the_controller_and_is_not_made_again),
		PATIENT_TEST(
			nvmf_recovery__what_overlaps_an_unknown_write_waits_and_the_rest_goes_on),
		cmocka_unit_test(
			nvmf_recovery__without_the_time_to_quiesce_the_old_write_comes_last),
		cmocka_unit_test(nvmf_recovery__a_time_to_quiesce_holds_against_the_targets_word),
		cmocka_unit_test(nvmf_recovery__without_one_the_target_is_believed),
		RIG_TEST(nvmf_recovery__a_target_that_stays_away_is_given_up_by_name),
		PATIENT_TEST(nvmf_recovery__what_waits_can_be_withdrawn_and_what_is_unknown_not),
		PATIENT_TEST(nvmf_recovery__nothing_is_handed_on_when_its_right_has_ended),
		cmocka_unit_test(nvmf_recovery__a_target_with_too_few_queues_is_named),
		cmocka_unit_test(nvmf_recovery__the_last_of_all_queues_is_given_once),
		PATIENT_TEST(nvmf_recovery__one_tenants_loss_is_not_anothers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
