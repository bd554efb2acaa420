// SPDX-License-Identifier: Apache-2.0
/*
 * The queue over RDMA against Linux nvmet-rdma on soft-RoCE (tests/nvmf/guest_rdma): bytes are
 * equal with the block device; what happens when a key is not good is what the notes say; what
 * rotation costs is counted. Times inside the guest are emulated: compared only with each other.
 */
#include "tests/nvmf/rdma_verbs_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <time.h>

static struct rig rig;
#define ops nvmf_rdma_queue_ops

static int setup(void **state)
{
	rig_device(&rig);
	return 0;
}

static int teardown(void **state)
{
	rig_close(&rig);
	return 0;
}

static struct fabric_slot slot_of(uint32_t len)
{
	struct fabric_slot s;

	assert_true(fabric_slot_take(rig.set, len, &s));
	return s;
}

static void fill(uint8_t *mem, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		mem[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8) + (i >> 16) + 1);
}

static void exec_ok(struct nvmf_queue *q, struct nvmf_req req)
{
	struct nvme_cqe cqe;

	assert_int_equal(rig_exec(&rig, q, &req, &cqe), 0);
	assert_int_equal(cqe.status >> 1, 0);
}

static const uint32_t sizes[] = {512, 4096, 131072, 1u << 20};

/* Written here, read at the device; written at the device, read here. */
static void both_ways(bool per_command)
{
	uint8_t *disk = aligned_alloc(4096, 1u << 20), *want = malloc(1u << 20);

	rig_up(&rig, 1, per_command);
	for (uint32_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct fabric_slot s = slot_of(sizes[i]);
		uint64_t at = (i + 1) * (2u << 20);

		for (uint32_t round = 0; round < 3; round++) {
			fill(s.mem, round * 10 + i, sizes[i]);
			exec_ok(rig.io[0], rig_io(&rig, true, &s, at, sizes[i]));
			assert_int_equal(pread(rig.disk_fd, disk, sizes[i], (off_t)at), sizes[i]);
			assert_memory_equal(disk, s.mem, sizes[i]);
			fill(disk, round * 10 + i + 100, sizes[i]);
			assert_int_equal(pwrite(rig.disk_fd, disk, sizes[i], (off_t)at), sizes[i]);
			memset(s.mem, 0, s.size_bytes);
			exec_ok(rig.io[0], rig_io(&rig, false, &s, at, sizes[i]));
			assert_memory_equal(disk, s.mem, sizes[i]);
			for (uint32_t k = sizes[i]; k < s.size_bytes; k++)
				assert_int_equal(s.mem[k], 0);
		}
		fabric_slot_give(rig.set, &s);
	}
	free(disk);
	free(want);
}

static void
nvmf_rdma__bytes_are_equal_with_the_block_device_under_a_key_for_each_command(void **state)
{
	struct nvmf_queue_counters c;

	both_ways(true);
	ops.counters(rig.io[0], &c);
	print_message("# mdts %llu in-capsule %u; keys bound %llu revoked %llu copied %llu\n",
	              (unsigned long long)rig.ctrl.max_transfer, rig.ctrl.in_capsule_bytes,
	              (unsigned long long)c.keys_bound, (unsigned long long)c.keys_revoked,
	              (unsigned long long)c.copied_bytes);
	assert_int_equal(c.keys_bound, c.keys_revoked);
	assert_int_equal(c.copied_bytes, 1024); /* of the Connect */
	assert_true(c.keys_bound >= 3 * ARRAY_SIZE(sizes));
}

static void nvmf_rdma__bytes_are_equal_under_standing_keys(void **state)
{
	struct nvmf_queue_counters c;

	both_ways(false);
	ops.counters(rig.io[0], &c);
	assert_int_equal(c.keys_revoked, 1); /* of the Connect */
	assert_true(c.keys_bound <= 1 + 2 * ARRAY_SIZE(sizes));
	ops.kill(rig.io[0], "over");
	ops.counters(rig.io[0], &c);
	while (c.keys_revoked != c.keys_bound) { /* on a software device after its grace period */
		uint32_t never = 0;

		(void)rig_wait(&rig, &never, 10);
		ops.counters(rig.io[0], &c);
	}
}

/* ---- keys that are not good ---- */

static struct fabric_slot victim, bystander;

static int spoiled(enum rig_spoil how, bool write)
{
	struct nvmf_req req;

	victim = slot_of(131072);
	bystander = slot_of(131072);
	memset(victim.mem, 0x11, victim.size_bytes);
	memset(bystander.mem, 0x22, bystander.size_bytes);
	if (how == RIG_OLD_KEY) {
		exec_ok(rig.io[0], rig_io(&rig, false, &bystander, 0, 131072));
		rig_other_key = rig_last_key;
		memset(bystander.mem, 0x22, bystander.size_bytes);
	} else if (how == RIG_OTHER_QUEUE) {
		/* of a command of the other queue, which has answered: its standing key lives on */
		exec_ok(rig.io[1], rig_io(&rig, false, &bystander, 0, 131072));
		rig_other_key = rig_last_key;
		memset(bystander.mem, 0x22, bystander.size_bytes);
	}
	req = rig_io(&rig, write, &victim, 4u << 20, 131072);
	rig_spoil = how;
	return rig_exec(&rig, rig.io[0], &req, NULL);
}

static void untouched(void)
{
	for (uint32_t i = 0; i < 131072; i++)
		assert_true(victim.mem[i] == 0x11 && bystander.mem[i] == 0x22);
	assert_true(fabric_slot_give(rig.set, &victim));
}

static void bad_read(enum rig_spoil how, bool per_command)
{
	struct fabric_slot s;

	rig_up(&rig, 2, per_command);
	assert_int_equal(spoiled(how, false), -EREMOTEIO);
	assert_int_equal(ops.state(rig.io[0]), NVMF_QUEUE_FAILED);
	untouched();
	/* nvmet says nothing; the others go on */
	assert_true(rig_is_enabled(&rig));
	s = slot_of(4096);
	exec_ok(rig.io[1], rig_io(&rig, false, &s, 0, 4096));
	fabric_slot_give(rig.set, &s);
	rig_down(&rig);
	fabric_slot_give(rig.set, &bystander);
}

static void nvmf_rdma__a_read_under_a_bad_key_ends_one_queue_and_moves_nothing(void **state)
{
	bad_read(RIG_OTHER_KEY, true);
	bad_read(RIG_OLD_KEY, true);
	bad_read(RIG_WRONG_WAY, true);
	bad_read(RIG_OTHER_QUEUE, false);
}

static void bad_write(enum rig_spoil how, bool per_command)
{
	uint8_t *disk = aligned_alloc(4096, 131072);
	uint32_t gone = 0;

	memset(disk, 0x77, 131072);
	assert_int_equal(pwrite(rig.disk_fd, disk, 131072, 4 << 20), 131072);
	rig_up(&rig, 2, per_command);
	assert_int_equal(spoiled(how, true), -EREMOTEIO);
	untouched();
	/* nvmet tears down the whole controller; each queue notices by itself */
	for (uint32_t i = 0; i < 500 && !gone; i++) {
		uint32_t never = 0;

		(void)rig_wait(&rig, &never, 10);
		gone = ops.state(rig.admin) == NVMF_QUEUE_FAILED &&
		       ops.state(rig.io[1]) == NVMF_QUEUE_FAILED;
	}
	assert_true(gone);
	assert_int_equal(pread(rig.disk_fd, disk, 131072, 4 << 20), 131072);
	for (uint32_t i = 0; i < 131072; i++)
		assert_int_equal(disk[i], 0x77);
	rig_down(&rig);
	fabric_slot_give(rig.set, &bystander);
	/* and a new controller opens */
	rig_up(&rig, 1, per_command);
	rig_down(&rig);
	free(disk);
}

static void nvmf_rdma__a_write_under_a_bad_key_ends_the_controller_and_writes_nothing(void **state)
{
	bad_write(RIG_OTHER_KEY, true);
	bad_write(RIG_OLD_KEY, true);
	bad_write(RIG_WRONG_WAY, true);
	bad_write(RIG_OTHER_QUEUE, false);
}

/* ---- the end, with commands in flight ---- */

#define MANY 16u

struct many {
	struct nvmf_req req[MANY];
	struct fabric_slot slot[MANY];
	uint32_t n_done, n_unknown, n_answered;
	bool ending;
};
static struct many many;

/* Asked again until the end: then there is always something under way, on a machine of any speed.
 */
static void one_of_many(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	many.n_unknown += rc == -EREMOTEIO;
	many.n_answered += rc == 0;
	if (rc == 0 && !many.ending) {
		assert_int_equal(ops.submit(rig.io[0], req), 0);
		return;
	}
	many.n_done++;
	/* no byte after its return: looked at later */
	memset(req->buf, 0x5a, req->len);
}

static void nvmf_rdma__no_byte_moves_after_a_request_is_back(void **state)
{
	uint32_t cut = 0, answered = 0;

	for (uint32_t round = 0; round < 20; round++) {
		struct timespec pause = {.tv_nsec = round % 10 * 300000};
		uint32_t never = 0;

		rig_up(&rig, 1, round % 2);
		many = (struct many){0};
		for (uint32_t i = 0; i < MANY; i++) {
			many.slot[i] = slot_of(1u << 20);
			many.req[i] = rig_io(&rig, false, &many.slot[i], i << 20, 1u << 20);
			many.req[i].done = one_of_many;
			assert_int_equal(ops.submit(rig.io[0], &many.req[i]), 0);
		}
		assert_int_equal(ops.kick(rig.io[0], clock_boottime_ns()), 0);
		(void)rig_wait(&rig, &never, round * 3);
		many.ending = true;
		/* time: what has just been asked is at another stage in each round */
		nanosleep(&pause, NULL);
		ops.kill(rig.io[0], "the tenant was revoked");
		for (uint32_t i = 0; i < 500 && many.n_done < MANY; i++)
			(void)rig_wait(&rig, &never, 10);
		assert_int_equal(many.n_done, MANY);
		cut += many.n_unknown;
		answered += many.n_answered;
		(void)rig_wait(&rig, &never, 50);
		for (uint32_t i = 0; i < MANY; i++) {
			const uint8_t *m = many.slot[i].mem;

			for (uint32_t k = 0; k < 1u << 20; k++)
				if (m[k] != 0x5a)
					fail_msg("round %u: byte %u of slot %u moved late", round,
					         k, i);
		}
		rig_down(&rig);
		for (uint32_t i = 0; i < MANY; i++)
			assert_true(fabric_slot_give(rig.set, &many.slot[i]));
	}
	print_message("# %u commands were cut, %u answered\n", cut, answered);
	assert_true(cut > MANY && answered > 0);
}

/* ---- what rotation costs ---- */

#define LOAD 1024u

static uint32_t left;

static void load_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	assert_int_equal(rc, 0);
	many.n_done++;
	if (left) {
		left--;
		assert_int_equal(ops.submit(rig.io[0], req), 0);
	}
}

static void load(bool per_command)
{
	struct nvmf_queue_counters before, c;
	uint64_t began, took;

	rig_up(&rig, 1, per_command);
	many = (struct many){0};
	ops.counters(rig.io[0], &before);
	left = LOAD - MANY;
	began = clock_monotonic_ns();
	for (uint32_t i = 0; i < MANY; i++) {
		many.slot[i] = slot_of(4096);
		many.req[i] = rig_io(&rig, false, &many.slot[i], i * 4096, 4096);
		many.req[i].done = load_done;
		assert_int_equal(ops.submit(rig.io[0], &many.req[i]), 0);
	}
	assert_int_equal(ops.kick(rig.io[0], clock_boottime_ns()), 0);
	while (many.n_done < LOAD) {
		uint32_t none = 0;

		(void)rig_wait(&rig, &none, 1);
		assert_int_equal(ops.state(rig.io[0]), NVMF_QUEUE_READY);
	}
	took = clock_monotonic_ns() - began;
	ops.counters(rig.io[0], &c);
	print_message("# %s: %u READs of 4 KiB at depth %u: %llu us each; doorbells with commands "
	              "%llu, for ends of keys alone %llu; keys bound %llu\n",
	              per_command ? "a key for each command" : "standing keys", LOAD, MANY,
	              (unsigned long long)(took / LOAD / 1000),
	              (unsigned long long)(c.calls - before.calls),
	              (unsigned long long)(c.revoke_calls - before.revoke_calls),
	              (unsigned long long)(c.keys_bound - before.keys_bound));
	assert_int_equal(c.keys_bound - before.keys_bound, per_command ? LOAD : MANY);
	/* one at most beyond that of the command */
	assert_true(c.calls - before.calls <= LOAD);
	assert_true(c.revoke_calls - before.revoke_calls <= (per_command ? LOAD : 0));
	rig_down(&rig);
	for (uint32_t i = 0; i < MANY; i++)
		assert_true(fabric_slot_give(rig.set, &many.slot[i]));
}

/* What it costs is counted by rdma_cost.c. */
static void nvmf_rdma__rotation_takes_one_doorbell_more_at_most(void **state)
{
	load(false);
	load(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(nvmf_rdma__##name, setup, teardown)
		T(bytes_are_equal_with_the_block_device_under_a_key_for_each_command),
		T(bytes_are_equal_under_standing_keys),
		T(a_read_under_a_bad_key_ends_one_queue_and_moves_nothing),
		T(a_write_under_a_bad_key_ends_the_controller_and_writes_nothing),
		T(no_byte_moves_after_a_request_is_back),
		T(rotation_takes_one_doorbell_more_at_most),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
