/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who ends the key of a command, on a device that is memory, with the engine and a target of our
 * own: the target, where the device was seen to be safe for it and keys are per command (subtype
 * 0xF, no LOCAL_INV); else we (subtype 0). An invalidation that nobody asked for, or of another
 * key, ends the controller by name, and no request comes back under a key that lives.
 */
#include "tests/nvmf/target_fabric.h"
#include "tests/nvmf/vol.h"
#include "tests/testing.h"
#include "tests/verbs/fabric_mem.h"

#include "common/clock.h"
#include "common/log.h"

#define WAIT_MS 20000u
enum { OP_WRITE = 1, OP_READ = 2 };

static struct target *target_open(void)
{
	struct target_opts o = {.carrier = &target_fabric};
	struct target_subsys_opts s = {.nqn = VOL_NQN, .in_capsule = 4096, .mdts = 4};
	struct target_ns_opts n = {.nsid = 1, .block_size = 512, .blocks = VOL_BYTES / 512};
	struct target *t = NULL;

	assert_int_equal(target_new(&o, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s), 0);
	assert_int_equal(target_add_ns(t, VOL_NQN, &n), 0);
	return t;
}

static void open_at(struct vol *v, struct target *t, bool safe, bool per_command)
{
	vol_init(v, t, "tenant-a");
	v->config.transport = NVMF_RDMA;
	v->config.keys_per_command = per_command;
	v->config.command_timeout_ms = v->config.keep_alive_ms = 20000;
	v->config.quiesce_ms = 100;
	v->device = FABRIC_MEM_DEVICE;
	v->peer_invalidates = safe;
	if (vol_open(v))
		fail_msg("%s", v->words);
}

/* What a load asked for, and what the device did for it. */
struct seen {
	uint64_t keyed, to_invalidate, binds, invalidates;
};

static struct seen load(bool safe, bool per_command)
{
	struct fabric_mem_counts before, after;
	struct target_stats s;
	struct target *t = target_open();
	char words[256];
	struct vol v;

	fabric_mem_counts(&before);
	open_at(&v, t, safe, per_command);
	assert_int_equal(vol_scenario(&v), 0);
	assert_int_equal(vol_health(&v).lives, 1);
	fabric_mem_counts(&after);
	target_stats(t, &s);
	target_violations(t, words, sizeof(words));
	assert_string_equal(words, "");
	vol_close(&v);
	target_free(t);
	return (struct seen){s.keyed, s.to_invalidate, after.binds - before.binds,
	                     after.invalidates - before.invalidates};
}

static void nvmf_invalidate__the_target_ends_keys_where_the_device_is_safe(void **state)
{
	struct seen s = load(true, true);

	assert_true(s.keyed > 4 * VOL_IOS);
	assert_int_equal(s.to_invalidate, s.keyed);
	assert_int_equal(s.binds, s.keyed);
	assert_int_equal(s.invalidates, 0);
}

static void nvmf_invalidate__nobody_is_asked_where_it_is_not(void **state)
{
	struct seen s = load(false, true);

	assert_true(s.keyed > 4 * VOL_IOS);
	assert_int_equal(s.to_invalidate, 0);
	assert_int_equal(s.binds, s.keyed);
	assert_int_equal(s.invalidates, s.keyed);
}

static void nvmf_invalidate__standing_keys_are_nobodys_to_end(void **state)
{
	struct seen s = load(true, false);

	assert_true(s.keyed > s.binds);
	assert_int_equal(s.to_invalidate, 0);
}

static void hold_read(struct vol *v, struct target *t)
{
	struct target_rule r = {
		.fault = FAULT_ABORT_LATE, .qid = 1 + 1, .times = 1, .opcode = OP_READ + 1};
	uint64_t end = clock_monotonic_ns() + WAIT_MS * NS_PER_MS;

	assert_int_equal(target_fault_on(t, &r), 0);
	vol_submit(v, &v->ios[0], ENGINE_OP_READ, 0, v->buf, 16384);
	while (!target_fault_hits(t, r.fault)) {
		vol_turn(v, 5);
		assert_true(clock_monotonic_ns() < end);
	}
}

/* A read is held at the target; the answer to the next invalidates a key that it should not. */
static void surprise(bool safe, enum target_fault fault, const char *said)
{
	struct target_rule r = {.fault = fault, .qid = 1 + 1, .times = 1, .opcode = OP_READ + 1};
	struct target *t = target_open();
	struct target_stats s;
	char words[256];
	uint8_t *bytes = malloc(16384);
	struct vol v;

	vol_pattern(bytes, 16384, 7);
	open_at(&v, t, safe, true);
	assert_int_equal(target_media_write(t, VOL_NQN, 1, 0, bytes, 16384), 0);
	assert_int_equal(target_media_write(t, VOL_NQN, 1, VOL_IO, bytes, 16384), 0);
	hold_read(&v, t);
	assert_int_equal(target_fault_on(t, &r), 0);
	/* Reads: both are asked again, of the next controller. */
	vol_submit(&v, &v.ios[1], ENGINE_OP_READ, VOL_IO, v.buf + VOL_IO, 16384);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(vol_wait(&v, &v.ios[i], WAIT_MS), 16384);
		assert_memory_equal(v.buf + (size_t)i * VOL_IO, bytes, 16384);
	}
	assert_int_equal(target_fault_hits(t, fault), 1);
	assert_int_equal(vol_health(&v).lives, 2);
	snprintf(words, sizeof(words), "%s", vol_health(&v).words);
	if (!strstr(words, "invalidates a key") || !strstr(words, said))
		fail_msg("expected \"%s\", found \"%s\"", said, words);
	target_stats(t, &s);
	assert_int_equal(s.to_invalidate, safe ? s.keyed : 0);
	vol_close(&v);
	target_free(t);
	free(bytes);
}

static void nvmf_invalidate__of_another_key_ends_the_controller(void **state)
{
	surprise(true, FAULT_INV_WRONG, "expected the key of its command");
}

static void nvmf_invalidate__that_nobody_asked_for_ends_the_controller(void **state)
{
	surprise(false, FAULT_INV_UNASKED, "not asked to");
}

/* What a device was seen to do is told again when it is seen again, and counts for new queues. */
static void nvmf_invalidate__what_was_seen_can_be_taken_back(void **state)
{
	struct target *t = target_open();
	struct target_stats before, after;
	struct vol v;

	open_at(&v, t, true, true);
	assert_int_equal(vol_io(&v, ENGINE_OP_READ, 0, v.buf, 16384), 16384);
	fabric_dev_set_peer_invalidates(v.dev, false);
	target_stats(t, &before);
	assert_int_equal(before.to_invalidate, before.keyed);
	assert_true(target_drop(t, -1) > 0);
	assert_int_equal(vol_io(&v, ENGINE_OP_READ, 0, v.buf, 16384), 16384);
	target_stats(t, &after);
	assert_int_equal(after.to_invalidate, before.to_invalidate);
	assert_true(after.keyed > before.keyed);
	vol_close(&v);
	target_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test(nvmf_invalidate__##name)
		T(the_target_ends_keys_where_the_device_is_safe),
		T(nobody_is_asked_where_it_is_not),
		T(standing_keys_are_nobodys_to_end),
		T(of_another_key_ends_the_controller),
		T(that_nobody_asked_for_ends_the_controller),
		T(what_was_seen_can_be_taken_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
