/* SPDX-License-Identifier: Apache-2.0 */
/* The nvmf engine over NVMe/TCP beside a target of our own: data on the medium, losses, changes. */
#include "tests/nvmf/engine_rig.h"
#include "tests/await.h"
#include "tests/nvmf/target.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define NQN      "nqn.2026-11.test:sub"
#define NS_BYTES (4u << 20)

struct bed {
	struct rig g;
	struct target *t;
};

static void bed_target(struct bed *b, uint32_t in_capsule, bool write_cache)
{
	struct target_opts o = {.queue_depth = 64};
	struct target_subsys_opts so = {
		.nqn = NQN, .mdts = 5, .in_capsule = in_capsule, .write_cache = write_cache};
	struct target_ns_opts ns = {.nsid = 1, .block_size = 512, .blocks = NS_BYTES / 512};

	rig_init(&b->g);
	assert_int_equal(target_new(&o, &b->t), 0);
	assert_int_equal(target_add_subsystem(b->t, &so), 0);
	assert_int_equal(target_add_ns(b->t, NQN, &ns), 0);
	ns.nsid = 2;
	ns.block_size = 4096;
	ns.blocks = NS_BYTES / 4096;
	assert_int_equal(target_add_ns(b->t, NQN, &ns), 0);
	assert_int_equal(target_allow(b->t, NQN, "nqn.2026-11.test:host:tenant-a"), 0);
	b->g.queue = &nvmf_tcp_queue_ops;
	b->g.config.port = target_port(b->t);
}

static int bed_setup(void **state)
{
	static struct bed b;

	bed_target(&b, 8192, true);
	rig_start(&b.g);
	*state = &b;
	return 0;
}

static void bed_stop(struct bed *b)
{
	struct target_stats s;
	char words[200];

	rig_stop(&b->g);
	target_stats(b->t, &s);
	target_violations(b->t, words, sizeof(words));
	assert_string_equal(words, "");
	assert_int_equal(s.violations, 0);
	target_free(b->t);
}

static int bed_teardown(void **state)
{
	bed_stop(*state);
	return 0;
}

static void write_and_check(struct bed *b, struct engine_file *f, uint32_t nsid, uint64_t base,
                            uint64_t offset, uint32_t len)
{
	uint8_t *seen = malloc(len);

	rig_pattern(b->g.buf, len, (uint32_t)offset + len);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_WRITE, offset, len, b->g.buf), len);
	assert_int_equal(target_media_read(b->t, NQN, nsid, base + offset, seen, len), 0);
	assert_memory_equal(seen, b->g.buf, len);
	memset(seen, 0, len);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_READ, offset, len, seen), len);
	assert_memory_equal(seen, b->g.buf, len);
	free(seen);
}

static void nvmf_engine_tcp__writes_what_the_medium_then_holds(void **state)
{
	for (int v = 0; v < 8; v++) {
		struct bed b;

		bed_target(&b, v & 1 ? 8192 : 0, false);
		b.g.config.header_digest = v & 2;
		b.g.config.data_digest = v & 4;
		rig_start(&b.g);
		write_and_check(&b, b.g.all, 1, 0, 0, 512);
		write_and_check(&b, b.g.all, 1, 0, 512, 4096);
		write_and_check(&b, b.g.all, 1, 0, 65536, 8192);
		write_and_check(&b, b.g.all, 1, 0, 1024, 131072);
		write_and_check(&b, b.g.all, 1, 0, NS_BYTES - RIG_BUF, RIG_BUF);
		write_and_check(&b, b.g.part, 2, 65536, 8192, 65536);
		bed_stop(&b);
	}
}

static void nvmf_engine_tcp__flush_reaches_the_target(void **state)
{
	struct bed *b = *state;

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	assert_int_equal(rig_io(&b->g, b->g.all, ENGINE_OP_FLUSH, 0, 0, NULL), 0);
	assert_int_equal(b->g.ops->fsync(b->g.all, NULL), 0);
}

static void nvmf_engine_tcp__names_a_host_that_is_not_allowed(void **state)
{
	const struct engine_who who = {{{9}}, "tenant-b"};
	struct ros2_err err = ROS2_ERR_INIT;
	struct bed *b = *state;
	struct engine_ns *ns;

	assert_int_equal(b->g.ops->ns_open(b->g.e, &who, "t/b", &ns, &err), -ENOTCONN);
	assert_non_null(strstr(err.msg, "tenant-b"));
}

static void nvmf_engine_tcp__keeps_an_idle_controller_alive(void **state)
{
	struct bed *b = *state;
	struct target_stats s;

	rig_turns_ms(&b->g, 2600);
	target_stats(b->t, &s);
	assert_int_equal(s.expired, 0);
	assert_true(s.keep_alives >= 3);
	assert_int_equal(rig_health(&b->g).lives, 1);
	write_and_check(b, b->g.all, 1, 0, 0, 4096);
}

static void nvmf_engine_tcp__goes_on_when_the_target_comes_back(void **state)
{
	struct bed *b = *state;
	struct rig_io io[8];

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	target_stop(b->t);
	for (uint32_t i = 0; i < 8; i++)
		rig_submit(&b->g, &io[i], b->g.all, i % 2 ? ENGINE_OP_READ : ENGINE_OP_WRITE,
		           8192 * i, 4096, b->g.buf);
	rig_turns_ms(&b->g, 300);
	assert_int_equal(target_start(b->t), 0);
	for (uint32_t i = 0; i < 8; i++) {
		int64_t res = rig_wait(&b->g, &io[i]);

		if (i % 2)
			assert_int_equal(res, 4096);
		else
			assert_true(res == 4096 || res == -EREMOTEIO);
	}
	assert_true(rig_health(&b->g).lives >= 2);
	write_and_check(b, b->g.all, 1, 0, 0, 4096);
}

static void nvmf_engine_tcp__an_io_queue_that_dies_alone_is_opened_again(void **state)
{
	struct bed *b = *state;

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	assert_int_equal(target_drop(b->t, 1), 1);
	write_and_check(b, b->g.all, 1, 0, 4096, 4096);
	assert_int_equal(rig_health(&b->g).lives, 1);
}

/* A write, or what clears, hangs at the target, which loses all its connections and carries it out
 * 700 ms later; a second write to the same place comes meanwhile. What is on the medium in the end?
 */
static uint8_t race(uint64_t quiesce_ms, enum engine_op op)
{
	static uint8_t first[4096], second[4096], seen[4096];
	struct rig_io w, later;
	struct target_stats s;
	struct bed b;

	bed_target(&b, 8192, false);
	b.g.config.quiesce_ms = quiesce_ms;
	b.g.config.command_timeout_ms = 1500;
	rig_start(&b.g);
	memset(first, 1, sizeof(first));
	memset(second, 2, sizeof(second));
	assert_int_equal(rig_io(&b.g, b.g.all, ENGINE_OP_READ, 0, 512, seen), 512);
	assert_int_equal(target_media_write(b.t, NQN, 1, 0, "x", 1), 0);
	target_delay(b.t, 700, true);
	rig_submit(&b.g, &w, b.g.all, op, 0, 4096, op == ENGINE_OP_WRITE ? first : NULL);
	rig_turns_ms(&b.g, 100);
	target_drop(b.t, -1);
	target_delay(b.t, 0, true);
	rig_submit(&b.g, &later, b.g.all, ENGINE_OP_WRITE, 2048, 512, second);
	assert_int_equal(rig_wait(&b.g, &w), -EREMOTEIO);
	assert_int_equal(rig_wait(&b.g, &later), 512);
	assert_int_equal(rig_health(&b.g).unknown_writes, 1);
	for (int i = 0; i < 500; i++) {
		target_stats(b.t, &s);
		if (s.orphans)
			break;
		rig_turn(&b.g, 10);
	}
	assert_int_equal(s.orphans, 1);
	assert_int_equal(target_media_read(b.t, NQN, 1, 0, seen, sizeof(seen)), 0);
	assert_int_equal(seen[0], op == ENGINE_OP_WRITE ? 1 : 0);
	bed_stop(&b);
	return seen[2048];
}

static void nvmf_engine_tcp__no_late_write_overtakes_one_that_came_after_it(void **state)
{
	assert_int_equal(race(1200, ENGINE_OP_WRITE), 2);
	assert_int_equal(race(1200, ENGINE_OP_ZERO), 2);
	assert_int_equal(race(1200, ENGINE_OP_DISCARD), 2);
}

/* The control: told that the target is quiet at once, which it is not, the later write is lost. */
static void nvmf_engine_tcp__too_short_a_time_to_quiesce_loses_the_later_write(void **state)
{
	assert_int_equal(race(1, ENGINE_OP_WRITE), 1);
	assert_int_equal(race(1, ENGINE_OP_ZERO), 0);
	assert_int_equal(race(1, ENGINE_OP_DISCARD), 0);
}

static void nvmf_engine_tcp__follows_namespaces_that_change(void **state)
{
	struct bed *b = *state;
	struct engine_attr a = {0};

	assert_int_equal(target_resize_ns(b->t, NQN, 1, 64), 0);
	AWAIT((rig_turn(&b->g, 5), b->g.ops->fstat(b->g.all, &a, NULL) || a.size == 32768));
	assert_int_equal(a.size, 32768);
	assert_int_equal(rig_io(&b->g, b->g.all, ENGINE_OP_WRITE, 32768, 512, b->g.buf), -ERANGE);
	assert_int_equal(target_remove_ns(b->t, NQN, 1), 0);
	AWAIT((rig_turn(&b->g, 5), b->g.ops->fstat(b->g.all, &a, NULL)));
	assert_int_equal(rig_io(&b->g, b->g.all, ENGINE_OP_READ, 0, 512, b->g.buf), -ENOENT);
	write_and_check(b, b->g.part, 2, 65536, 0, 4096);
}

/* Both before the log is read, and, as Linux nvmet has it, the one that changed first is first in
 * it. */
static void nvmf_engine_tcp__follows_several_that_change_in_whatever_order(void **state)
{
	struct bed *b = *state;
	struct engine_attr a = {0};

	assert_int_equal(target_resize_ns(b->t, NQN, 2, NS_BYTES / 8192), 0);
	assert_int_equal(target_resize_ns(b->t, NQN, 1, 64), 0);
	AWAIT((rig_turn(&b->g, 5), b->g.ops->fstat(b->g.all, &a, NULL) || a.size == 32768));
	assert_int_equal(a.size, 32768);
	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	write_and_check(b, b->g.part, 2, 65536, 0, 4096);
	assert_int_equal(rig_health(&b->g).lives, 1);
}

static void add_first(struct bed *b, uint64_t blocks)
{
	struct target_ns_opts ns = {.nsid = 1, .block_size = 512, .blocks = blocks};

	assert_int_equal(target_add_ns(b->t, NQN, &ns), 0);
}

static void assert_untouched(struct bed *b)
{
	static const uint8_t none[8192];
	uint8_t seen[sizeof(none)];

	assert_int_equal(target_media_read(b->t, NQN, 1, 0, seen, sizeof(seen)), 0);
	assert_memory_equal(seen, none, sizeof(seen));
}

/* Whatever is asked of it, it says that it is of a namespace that is gone. */
static void assert_ended(struct bed *b, struct engine_file *f)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct engine_attr a;

	assert_int_equal(b->g.ops->fstat(f, &a, &err), -ESTALE);
	assert_non_null(strstr(err.msg, "namespace 1: it is another one than was opened"));
	memset(b->g.buf, 7, 4096);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_WRITE, 0, 4096, b->g.buf), -ESTALE);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_ZERO, 0, 4096, NULL), -ESTALE);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_READ, 0, 4096, b->g.buf), -ESTALE);
	assert_int_equal(rig_io(&b->g, f, ENGINE_OP_FLUSH, 0, 0, NULL), -ESTALE);
	assert_untouched(b);
}

/* Who opens again has the one that is there now, and what was open in the one before stays ended.
 */
static void assert_opens_again(struct bed *b)
{
	struct engine_file *again;

	assert_int_equal(
		b->g.ops->open(b->g.ns, "all", ENGINE_READ | ENGINE_WRITE, 0, &again, NULL, NULL),
		0);
	write_and_check(b, again, 1, 0, 0, 4096);
	assert_int_equal(rig_io(&b->g, b->g.all, ENGINE_OP_READ, 0, 4096, b->g.buf), -ESTALE);
	b->g.ops->close(again);
	write_and_check(b, b->g.part, 2, 65536, 0, 4096);
}

static void nvmf_engine_tcp__what_was_opened_is_not_in_a_namespace_made_anew(void **state)
{
	struct bed *b = *state;
	struct engine_attr a;

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	assert_int_equal(target_remove_ns(b->t, NQN, 1), 0);
	add_first(b, NS_BYTES / 512);
	AWAIT((rig_turn(&b->g, 5), b->g.ops->fstat(b->g.all, &a, NULL) == -ESTALE));
	assert_ended(b, b->g.all);
	assert_opens_again(b);
	assert_int_equal(rig_health(&b->g).lives, 1);
}

static void
nvmf_engine_tcp__what_was_opened_is_not_in_one_made_while_the_target_was_away(void **state)
{
	struct bed *b = *state;
	struct rig_io io[4];

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	target_stop(b->t);
	/* Its end is seen, so that what is asked for now was handed to nobody. */
	rig_until(&b->g, NVMF_CTRL_BACKOFF);
	memset(b->g.buf, 7, 4096);
	for (uint32_t i = 0; i < 4; i++)
		rig_submit(&b->g, &io[i], b->g.all, i % 2 ? ENGINE_OP_READ : ENGINE_OP_WRITE,
		           4096 * (i / 2), 4096, b->g.buf);
	assert_int_equal(target_remove_ns(b->t, NQN, 1), 0);
	add_first(b, NS_BYTES / 512);
	assert_int_equal(target_start(b->t), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_wait(&b->g, &io[i]), -ESTALE);
	assert_ended(b, b->g.all);
	assert_opens_again(b);
}

/* The control: away for as long, another size, and the same names. */
static void nvmf_engine_tcp__goes_on_in_a_namespace_that_is_the_same(void **state)
{
	struct bed *b = *state;
	struct engine_attr a = {0};

	write_and_check(b, b->g.all, 1, 0, 0, 4096);
	target_stop(b->t);
	assert_int_equal(target_resize_ns(b->t, NQN, 1, NS_BYTES / 1024), 0);
	assert_int_equal(target_start(b->t), 0);
	AWAIT((rig_turn(&b->g, 5), b->g.ops->fstat(b->g.all, &a, NULL) || a.size == NS_BYTES / 2));
	write_and_check(b, b->g.all, 1, 0, 0, 4096);
}

#define BED_TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_engine_tcp__writes_what_the_medium_then_holds),
		BED_TEST(nvmf_engine_tcp__flush_reaches_the_target),
		BED_TEST(nvmf_engine_tcp__names_a_host_that_is_not_allowed),
		BED_TEST(nvmf_engine_tcp__keeps_an_idle_controller_alive),
		BED_TEST(nvmf_engine_tcp__goes_on_when_the_target_comes_back),
		BED_TEST(nvmf_engine_tcp__an_io_queue_that_dies_alone_is_opened_again),
		cmocka_unit_test(nvmf_engine_tcp__no_late_write_overtakes_one_that_came_after_it),
		cmocka_unit_test(
			nvmf_engine_tcp__too_short_a_time_to_quiesce_loses_the_later_write),
		BED_TEST(nvmf_engine_tcp__follows_namespaces_that_change),
		BED_TEST(nvmf_engine_tcp__follows_several_that_change_in_whatever_order),
		BED_TEST(nvmf_engine_tcp__what_was_opened_is_not_in_a_namespace_made_anew),
		BED_TEST(
			nvmf_engine_tcp__what_was_opened_is_not_in_one_made_while_the_target_was_away),
		BED_TEST(nvmf_engine_tcp__goes_on_in_a_namespace_that_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
