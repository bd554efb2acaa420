// SPDX-License-Identifier: Apache-2.0
/*
 * The queue over NVMe/RDMA while it moves data: it allocates nothing, takes no lock, copies
 * nothing, and a batch of commands costs one doorbell, one more for the ends of their keys. Counted
 * by tests/bench/steady/count_calls.c in this thread; the device that is memory is a shared object
 * that it does not see. On the real dataplane/fabric: nvmf_guest_rdma_cost.
 */
#include "tests/nvmf/rdma_host.h"
#include "tests/bench/steady/count_calls.h"
#include "tests/verbs/fabric_mem.h"
#include <pthread.h>

struct count_calls *count_calls(void);

#define DEPTH   16u
#define WARM_UP 4u
#define TURNS   16u

static struct host_req reqs[DEPTH];

static void one_turn(struct host *h, uint8_t opcode, uint32_t len)
{
	uint32_t served = 0;

	for (uint32_t i = 0; i < DEPTH; i++) {
		reqs[i] = host_io(h, opcode, i % HOST_SLOTS, 131072 * (i / HOST_SLOTS), len);
		assert_int_equal(host_submit(h, &reqs[i]), 0);
	}
	assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
	while (served < DEPTH) {
		struct rdma_peer_cmd *cmd = host_taken(h);

		reqs[served++].dead_key = h->o.keys_per_command && len > 4096 ? cmd->sgl.key : 0;
		rdma_peer_serve(&h->peer, cmd, true);
	}
	host_turns(h, 3);
	for (uint32_t i = 0; i < DEPTH; i++)
		assert_int_equal(reqs[i].n_done, 1);
}

struct seen {
	uint64_t alloc, lock, copied, doorbells;
};

static struct seen look(struct host *h)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return (struct seen){.alloc = atomic_load(&count_calls()->alloc),
	                     .lock = atomic_load(&count_calls()->lock),
	                     .copied = host_counters(h).copied_bytes,
	                     .doorbells = host_counters(h).calls + host_counters(h).revoke_calls};
}

static struct seen steady(struct host *h, uint8_t opcode, uint32_t len)
{
	struct seen before, after;

	for (uint32_t i = 0; i < WARM_UP; i++)
		one_turn(h, opcode, len);
	before = look(h);
	for (uint32_t i = 0; i < TURNS; i++)
		one_turn(h, opcode, len);
	after = look(h);
	return (struct seen){after.alloc - before.alloc, after.lock - before.lock,
	                     after.copied - before.copied, after.doorbells - before.doorbells};
}

static const struct load {
	uint8_t opcode;
	uint32_t len;
	bool keyed; /* small writes go in the capsule */
} loads[] = {
	{NVME_IO_READ, 512, true},    {NVME_IO_READ, 4096, true},    {NVME_IO_READ, 131072, true},
	{NVME_IO_WRITE, 4096, false}, {NVME_IO_WRITE, 131072, true},
};

static void assert_none(struct host *h, bool per_command)
{
	h->o.keys_per_command = per_command;
	host_connect(h);
	for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
		struct seen s = steady(h, loads[i].opcode, loads[i].len);

		assert_int_equal(s.alloc, 0);
		assert_int_equal(s.lock, 0);
		assert_int_equal(s.copied, 0);
		assert_int_equal(s.doorbells, (per_command && loads[i].keyed ? 2 : 1) * TURNS);
	}
}

static void rdma_queue_steady__with_a_key_for_each_command(void **state)
{
	struct nvmf_queue_counters c;

	assert_none(*state, true);
	c = host_counters(*state);
	assert_int_equal(c.keys_bound, 4 * (TURNS + WARM_UP) * DEPTH);
	assert_int_equal(c.keys_revoked, c.keys_bound);
}

static void rdma_queue_steady__with_standing_keys(void **state)
{
	assert_none(*state, false);
	assert_int_equal(host_counters(*state).keys_bound, 2 * HOST_SLOTS);
}

/* ---- negative controls ---- */

static void counter__sees_queues_that_come_and_go(void **state)
{
	struct host *h = *state;
	struct seen before, after;

	host_connect(h);
	before = look(h);
	h->ops->free(TAKE_PTR(h->q));
	host_connect(h);
	after = look(h);
	assert_true(after.alloc > before.alloc);
	assert_true(after.lock > before.lock);
}

/* Payload without a region is copied: of admin commands only. */
static void counter__sees_what_is_copied(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_ADMIN_IDENTIFY, 0, 0, 0);
	uint8_t in[4096];

	h->o.qid = 0;
	h->o.cntlid = NVME_CNTLID_DYNAMIC;
	h->o.transfer_max = sizeof(in);
	host_connect(h);
	r.req.dir = NVMF_FROM_TARGET;
	r.req.buf = in;
	r.req.len = sizeof(in);
	host_submit_ok(h, &r);
	rdma_peer_serve(&h->peer, host_taken(h), false);
	host_turns(h, 3);
	assert_int_equal(r.n_done, 1);
	assert_int_equal(look(h).copied, sizeof(in));
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, host_setup, host_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(rdma_queue_steady__with_a_key_for_each_command),
		T(rdma_queue_steady__with_standing_keys),
		T(counter__sees_queues_that_come_and_go),
		T(counter__sees_what_is_copied),
	};

	/* what is counted is threads of this name */
	pthread_setname_np(pthread_self(), "reactor0");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
