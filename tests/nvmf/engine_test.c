/* SPDX-License-Identifier: Apache-2.0 */
/* The nvmf engine over fake queues: names, ranges, splitting, errors, changes of namespaces. */
#include "common/clock.h"
#include "tests/nvmf/engine_rig.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void nvmf_engine__is_found_by_its_type(void **state)
{
	assert_ptr_equal(engine_ops_find("nvmf"), &engine_nvmf_ops);
}

static void nvmf_engine__tells_the_target_the_tenants_name(void **state)
{
	assert_string_equal(fake_stats().host_nqn, "nqn.2026-11.test:host:tenant-a");
}

static void nvmf_engine__writes_and_reads_what_it_wrote(void **state)
{
	struct rig *g = *state;
	uint8_t *back = malloc(RIG_BUF);

	rig_pattern(g->buf, 8192, 1);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 4096, 8192, g->buf), 8192);
	assert_memory_equal(fake_media(1) + 4096, g->buf, 8192);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 4096, 8192, back), 8192);
	assert_memory_equal(back, g->buf, 8192);
	free(back);
}

static void nvmf_engine__splits_at_what_the_target_takes(void **state)
{
	struct rig *g = *state;

	rig_pattern(g->buf, RIG_BUF, 2);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 512, RIG_BUF, g->buf), RIG_BUF);
	assert_memory_equal(fake_media(1) + 512, g->buf, RIG_BUF);
	assert_int_equal(fake_stats().writes, 8);
	assert_int_equal(fake_stats().write_blocks_max, 64);
	memset(g->buf, 0, RIG_BUF);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 512, RIG_BUF, g->buf), RIG_BUF);
	assert_memory_equal(fake_media(1) + 512, g->buf, RIG_BUF);
}

static void nvmf_engine__ends_the_keys_of_one_request_and_of_no_other(void **state)
{
	struct rig *g = *state;
	struct fake_rule hang = {.opcode = NVME_IO_READ + 1, .qid = FAKE_IO, .action = FAKE_HANG};
	struct rig_io one, eight;
	uint64_t last_ns = 0, since_ns;

	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), 512);
	fake_rule(&hang);
	rig_submit(g, &one, g->all, ENGINE_OP_READ, 0, 512, g->buf);
	rig_submit(g, &eight, g->all, ENGINE_OP_READ, 0, RIG_BUF, g->buf);
	while (fake_hits() < 9)
		rig_turn(g, 5);
	g->ops->withdraw(g->r, &eight.io);
	assert_int_equal(g->ops->end_keys(g->r, &eight.io), 8);
	assert_int_equal(fake_stats().keys_ended, 8);
	assert_int_equal(g->ops->keys_ending(g->r, NULL, UINT64_MAX, &last_ns), 8);
	/* Another tenant's memory: not this one's keys. */
	assert_int_equal(
		g->ops->keys_ending(g->r, (struct fabric_pd *)(void *)g, UINT64_MAX, &last_ns), 0);
	fake_rules_off();
	since_ns = clock_boottime_ns();
	fake_cut();
	assert_int_equal(rig_wait(g, &one), 512);
	assert_int_equal(rig_wait(g, &eight), -ECANCELED);
	/* Those that were not dead when their queue went died with it, not before. */
	g->ops->keys_ending(g->r, NULL, UINT64_MAX, &last_ns);
	assert_true(last_ns >= since_ns);
	/* Its command has come back: there is nothing to end. */
	rig_submit(g, &one, g->all, ENGINE_OP_READ, FAKE_NS_BYTES, 512, g->buf);
	assert_int_equal(g->ops->end_keys(g->r, &one.io), 0);
	assert_int_equal(rig_wait(g, &one), 0);
}

static void nvmf_engine__keeps_a_volume_within_its_extent(void **state)
{
	struct rig *g = *state;
	struct engine_attr a;

	memset(fake_media(2), 0xee, FAKE_NS_BYTES);
	memset(g->buf, 1, RIG_BUF);
	assert_int_equal(g->ops->fstat(g->part, &a, NULL), 0);
	assert_int_equal(a.size, 131072);
	assert_int_equal(a.block_size, 512);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_WRITE, 131072 - 4096, 8192, g->buf), -ERANGE);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_WRITE, UINT64_MAX - 511, 1024, g->buf),
	                 -ERANGE);
	assert_int_equal(
		rig_io(g, g->part, ENGINE_OP_WRITE, (uint64_t)INT64_MAX - 511, 512, g->buf),
		-ERANGE);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_WRITE, 131072, 512, g->buf), -ERANGE);
	for (uint32_t i = 0; i < FAKE_NS_BYTES; i++)
		assert_int_equal(fake_media(2)[i], 0xee);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_WRITE, 0, 131072, g->buf), 131072);
	assert_int_equal(fake_media(2)[65535], 0xee);
	assert_int_equal(fake_media(2)[65536], 1);
	assert_int_equal(fake_media(2)[65536 + 131071], 1);
	assert_int_equal(fake_media(2)[65536 + 131072], 0xee);
}

static void nvmf_engine__reads_are_short_at_the_end_only(void **state)
{
	struct rig *g = *state;

	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, 131072 - 4096, 8192, g->buf), 4096);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, 131072, 4096, g->buf), 0);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, (uint64_t)1 << 62, 4096, g->buf), 0);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, 7, 0, g->buf), 0);
}

static void nvmf_engine__refuses_what_is_not_in_blocks(void **state)
{
	struct rig *g = *state;

	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 1, 512, g->buf), -EINVAL);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 512, 100, g->buf), -EINVAL);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 513, 512, g->buf), -EINVAL);
	assert_int_equal(fake_stats().writes + fake_stats().reads, 0);
}

static void nvmf_engine__names_are_volumes_and_what_stands_before(void **state)
{
	struct rig *g = *state;
	struct engine_dirent d[8];
	struct engine_attr a;
	struct engine_file *f;
	struct engine_ns *ns;
	uint64_t next;
	uint32_t n;

	assert_int_equal(g->ops->readdir(g->ns, "", 0, d, 8, &n, &next, NULL), 0);
	assert_int_equal(n, 3);
	assert_int_equal(next, 0);
	assert_string_equal(d[0].name, "all");
	assert_int_equal(d[2].type, ENGINE_DIRECTORY);
	assert_string_equal(d[2].name, "deep");
	assert_int_equal(g->ops->readdir(g->ns, "", 0, d, 1, &n, &next, NULL), 0);
	assert_int_equal(n, 1);
	assert_int_equal(g->ops->readdir(g->ns, "", next, d, 8, &n, &next, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(g->ops->stat(g->ns, "deep", &a, NULL), 0);
	assert_int_equal(a.type, ENGINE_DIRECTORY);
	assert_int_equal(g->ops->stat(g->ns, "all", &a, NULL), 0);
	assert_int_equal(a.size, FAKE_NS_BYTES);
	assert_int_equal(g->ops->stat(g->ns, "deep/gone", &a, NULL), -ENOENT);
	assert_int_equal(g->ops->open(g->ns, "none", ENGINE_READ, 0, &f, NULL, NULL), -ENOENT);
	assert_int_equal(g->ops->open(g->ns, "n", ENGINE_WRITE | ENGINE_CREATE, 0, &f, NULL, NULL),
	                 -ENOENT);
	assert_int_equal(
		g->ops->open(g->ns, "all", ENGINE_WRITE | ENGINE_TRUNCATE, 0, &f, NULL, NULL),
		-EOPNOTSUPP);
	assert_int_equal(g->ops->open(g->ns, "all", ENGINE_WRITE | ENGINE_CREATE | ENGINE_EXCLUSIVE,
	                              0, &f, NULL, NULL),
	                 -EEXIST);
	assert_int_equal(g->ops->open(g->ns, "deep", ENGINE_READ, 0, &f, NULL, NULL), -EISDIR);
	assert_int_equal(g->ops->open(g->ns, "../b/other", ENGINE_READ, 0, &f, NULL, NULL),
	                 -ELIBBAD);
	assert_int_equal(g->ops->open(g->ns, "other", ENGINE_READ, 0, &f, NULL, NULL), -ENOENT);
	assert_int_equal(g->ops->mkdir(g->ns, "d", 0700, NULL), -EOPNOTSUPP);
	assert_int_equal(g->ops->unlink(g->ns, "all", NULL), -EOPNOTSUPP);
	assert_int_equal(g->ops->rename(g->ns, "all", "b", NULL), -EOPNOTSUPP);
	assert_int_equal(g->ops->truncate(g->all, 0, NULL), -EOPNOTSUPP);
	assert_int_equal(g->ops->ns_open(g->e, &rig_who, "t/a/all", &ns, NULL), -ENOTDIR);
	assert_int_equal(g->ops->ns_open(g->e, &rig_who, "t/", &ns, NULL), -ELIBBAD);
	assert_int_equal(g->ops->ns_open(g->e, &rig_who, "t/al", &ns, NULL), -ENOENT);
}

static void nvmf_engine__access_is_as_it_was_opened(void **state)
{
	struct rig *g = *state;
	struct engine_file *f;

	assert_int_equal(g->ops->open(g->ns, "all", ENGINE_READ, 0, &f, NULL, NULL), 0);
	assert_int_equal(rig_io(g, f, ENGINE_OP_WRITE, 0, 512, g->buf), -EBADF);
	assert_int_equal(rig_io(g, f, ENGINE_OP_READ, 0, 512, g->buf), 512);
	g->ops->close(f);
	assert_int_equal(fake_stats().writes, 0);
}

static void nvmf_engine__flushes_only_where_there_is_a_cache(void **state)
{
	struct rig g;

	for (int cache = 0; cache < 2; cache++) {
		rig_init(&g);
		fake_write_cache(cache);
		rig_start(&g);
		assert_int_equal(rig_io(&g, g.all, ENGINE_OP_FLUSH, 0, 0, NULL), 0);
		assert_int_equal(fake_stats().flushes, cache);
		assert_int_equal(g.ops->fsync(g.all, NULL), 0);
		assert_int_equal(fake_stats().flushes, 2 * cache);
		rig_stop(&g);
	}
}

static void nvmf_engine__names_what_the_target_refuses(void **state)
{
	static const struct {
		uint32_t status;
		int error;
	} all[] = {{NVME_SC_LBA_RANGE, -ERANGE},       {NVME_SC_INVALID_NAMESPACE, -ENOENT},
	           {NVME_SC_WRITE_PROTECTED, -EACCES}, {NVME_SC_CAPACITY, -ENOSPC},
	           {NVME_SC_READ_ERROR, -EIO},         {NVME_SC_RESERVATION, -EBUSY}};
	struct rig *g = *state;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		fake_rules_off();
		fake_rule(&(struct fake_rule){.qid = FAKE_IO,
		                              .opcode = NVME_IO_WRITE + 1,
		                              .action = FAKE_STATUS,
		                              .arg = all[i].status | NVME_STATUS_DNR});
		assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 4096, g->buf), all[i].error);
	}
	fake_rules_off();
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 4096, g->buf), 4096);
	assert_int_equal(rig_health(g).lives, 1);
}

static void nvmf_engine__tries_again_what_the_target_says_may_go_better(void **state)
{
	struct rig *g = *state;

	fake_rule(&(struct fake_rule){.qid = FAKE_IO,
	                              .opcode = NVME_IO_WRITE + 1,
	                              .times = 2,
	                              .action = FAKE_STATUS,
	                              .arg = NVME_SC_NS_NOT_READY});
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 4096, g->buf), 4096);
	assert_int_equal(rig_health(g).retries, 2);
	fake_rules_off();
	fake_rule(&(struct fake_rule){.qid = FAKE_IO,
	                              .opcode = NVME_IO_WRITE + 1,
	                              .action = FAKE_STATUS,
	                              .arg = NVME_SC_NS_NOT_READY});
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 4096, g->buf), -EIO);
}

static void until_size(struct rig *g, struct engine_file *f, int rc, uint64_t size)
{
	struct engine_attr a = {0};

	for (int i = 0; i < 1000; i++) {
		int got = g->ops->fstat(f, &a, NULL);

		if (got == rc && (rc < 0 || a.size == size))
			return;
		rig_turn(g, 5);
	}
	fail_msg("the size stayed %lu", (unsigned long)a.size);
}

static void nvmf_engine__follows_a_namespace_that_changes(void **state)
{
	struct rig *g = *state;

	fake_resize(1, 100);
	until_size(g, g->all, 0, 51200);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 51200, 512, g->buf), -ERANGE);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 51200 - 512, 1024, g->buf), 512);
	fake_resize(1, 2000);
	until_size(g, g->all, 0, 1024000);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 1024000 - 512, 512, g->buf), 512);
	fake_resize(1, 0);
	until_size(g, g->all, -ENOENT, 0);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_READ, 0, 512, g->buf), -ENOENT);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, 0, 512, g->buf), 512);
	/* One that no longer holds the volume's extent. */
	fake_resize(2, 200);
	until_size(g, g->part, -ERANGE, 0);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_READ, 0, 512, g->buf), -ERANGE);
	assert_int_equal(rig_health(g).lives, 1);
}

/* As Linux nvmet has them: a UUID, and no other name. */
static void nvmf_engine__ends_what_is_open_in_a_namespace_of_another_uuid(void **state)
{
	struct rig *g = *state;
	struct engine_file *again;

	fake_uuid(2, 9); /* which it had not before: in doubt it is another one */
	until_size(g, g->part, -ESTALE, 0);
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_WRITE, 0, 512, g->buf), -ESTALE);
	/* There is no cache, so what was written was durable: in the other one. */
	assert_int_equal(rig_io(g, g->part, ENGINE_OP_FLUSH, 0, 0, NULL), -ESTALE);
	assert_int_equal(g->ops->fsync(g->part, NULL), -ESTALE);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 512, g->buf), 512);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_FLUSH, 0, 0, NULL), 0);
	assert_int_equal(fake_stats().flushes, 0);
	assert_int_equal(
		g->ops->open(g->ns, "part", ENGINE_READ | ENGINE_WRITE, 0, &again, NULL, NULL), 0);
	assert_int_equal(rig_io(g, again, ENGINE_OP_WRITE, 0, 512, g->buf), 512);
	/* Gone, and there again: the same one. */
	fake_resize(2, 0);
	until_size(g, again, -ENOENT, 0);
	fake_resize(2, FAKE_NS_BYTES / FAKE_BLOCK);
	until_size(g, again, 0, 128 * 1024);
	/* Gone, and another one there; and then the first one: what was ended stays so. */
	fake_resize(2, 0);
	until_size(g, again, -ENOENT, 0);
	fake_uuid(2, 8);
	fake_resize(2, FAKE_NS_BYTES / FAKE_BLOCK);
	until_size(g, again, -ESTALE, 0);
	fake_uuid(2, 9);
	fake_resize(2, 0);
	until_size(g, again, -ENOENT, 0);
	fake_resize(2, FAKE_NS_BYTES / FAKE_BLOCK);
	until_size(g, again, -ESTALE, 0);
	g->ops->close(again);
	assert_int_equal(rig_health(g).lives, 1);
}

/* The control: of what a target does not tell nothing can be compared. */
static void nvmf_engine__goes_on_where_a_target_knows_no_descriptors(void **state)
{
	struct rig *g = *state;

	fake_descriptors(NVME_SC_INVALID_FIELD | NVME_STATUS_DNR);
	fake_uuid(1, 9);
	fake_resize(1, 100);
	until_size(g, g->all, 0, 51200);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 512, g->buf), 512);
	assert_int_equal(rig_health(g).lives, 1);
}

static void nvmf_engine__asks_a_target_again_that_does_not_tell_the_descriptors_now(void **state)
{
	struct rig *g = *state;

	fake_descriptors(NVME_SC_INTERNAL);
	fake_resize(1, 100);
	rig_until(g, NVMF_CTRL_BACKOFF);
	fake_descriptors(0);
	until_size(g, g->all, 0, 51200);
	assert_int_equal(rig_io(g, g->all, ENGINE_OP_WRITE, 0, 512, g->buf), 512);
	assert_int_equal(rig_health(g).lives, 2);
}

static void nvmf_engine__more_requests_than_the_queue_is_deep_all_end(void **state)
{
	struct rig *g = *state;
	struct rig_io io[RIG_DEPTH], more;

	for (uint32_t i = 0; i < RIG_DEPTH; i++)
		rig_submit(g, &io[i], g->all, ENGINE_OP_READ, i * 512, 65536, g->buf);
	more.io = io[0].io;
	assert_int_equal(g->ops->submit(g->r, &more.io), -EAGAIN);
	for (uint32_t i = 0; i < RIG_DEPTH; i++)
		assert_int_equal(rig_wait(g, &io[i]), 65536);
	assert_int_equal(g->ops->in_flight(g->r), 0);
}

static void nvmf_engine__shuts_the_controller_down_after_the_last_use(void **state)
{
	struct rig g;

	rig_init(&g);
	rig_start(&g);
	assert_int_equal(rig_io(&g, g.all, ENGINE_OP_READ, 0, 512, g.buf), 512);
	rig_stop(&g);
	assert_int_equal(fake_stats().shutdowns, 1);
}

/* What it asks of the target then is answered when the last use has ended. */
static void nvmf_engine__shuts_the_controller_down_in_the_middle_of_a_look_at_changes(void **state)
{
	const struct fake_rule wait = {
		.qid = 1, .opcode = NVME_ADMIN_GET_LOG_PAGE + 1, .action = FAKE_WAIT};
	struct rig g;

	rig_init(&g);
	g.config.command_timeout_ms = 10000; /* that it is late is not what this is about */
	rig_start(&g);
	fake_rule(&wait);
	fake_resize(1, 100);
	while (!fake_hits())
		rig_turn(&g, 5);
	g.ops->close(TAKE_PTR(g.all));
	g.ops->close(TAKE_PTR(g.part));
	g.ops->ns_close(TAKE_PTR(g.ns));
	rig_until(&g, NVMF_CTRL_SHUTDOWN);
	fake_rules_off();
	rig_stop(&g);
	assert_int_equal(fake_stats().shutdowns, 1);
}

#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nvmf_engine__is_found_by_its_type),
		RIG_TEST(nvmf_engine__tells_the_target_the_tenants_name),
		RIG_TEST(nvmf_engine__writes_and_reads_what_it_wrote),
		RIG_TEST(nvmf_engine__splits_at_what_the_target_takes),
		RIG_TEST(nvmf_engine__ends_the_keys_of_one_request_and_of_no_other),
		RIG_TEST(nvmf_engine__keeps_a_volume_within_its_extent),
		RIG_TEST(nvmf_engine__reads_are_short_at_the_end_only),
		RIG_TEST(nvmf_engine__refuses_what_is_not_in_blocks),
		RIG_TEST(nvmf_engine__names_are_volumes_and_what_stands_before),
		RIG_TEST(nvmf_engine__access_is_as_it_was_opened),
		cmocka_unit_test(nvmf_engine__flushes_only_where_there_is_a_cache),
		RIG_TEST(nvmf_engine__names_what_the_target_refuses),
		RIG_TEST(nvmf_engine__tries_again_what_the_target_says_may_go_better),
		RIG_TEST(nvmf_engine__follows_a_namespace_that_changes),
		RIG_TEST(nvmf_engine__ends_what_is_open_in_a_namespace_of_another_uuid),
		RIG_TEST(nvmf_engine__goes_on_where_a_target_knows_no_descriptors),
		RIG_TEST(nvmf_engine__asks_a_target_again_that_does_not_tell_the_descriptors_now),
		RIG_TEST(nvmf_engine__more_requests_than_the_queue_is_deep_all_end),
		cmocka_unit_test(nvmf_engine__shuts_the_controller_down_after_the_last_use),
		cmocka_unit_test(
			nvmf_engine__shuts_the_controller_down_in_the_middle_of_a_look_at_changes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
