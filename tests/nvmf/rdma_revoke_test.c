// SPDX-License-Identifier: Apache-2.0
/*
 * The end of a right at a queue over NVMe/RDMA, on a device that is memory: keys of commands in
 * flight and standing ones die there and then, the device confirms, and what the target does late
 * reaches nothing; with the controls that it does reach it while the device has not confirmed, and
 * when nobody ended the key.
 */
#include "tests/nvmf/rdma_host.h"
#include "common/clock.h"
#include "tests/verbs/fabric_mem.h"
#include <errno.h>

#define BYTES 8192u

/* A read that the target has, and has not served. */
static struct rdma_peer_cmd *in_flight(struct host *h, struct host_req *r, uint32_t slot)
{
	*r = host_io(h, NVME_IO_READ, slot, 4096, BYTES);
	memset(r->req.buf, 0x11, BYTES);
	memset(rdma_peer_payload(&h->peer), 0x77, BYTES);
	host_submit_ok(h, r);
	return host_taken(h);
}

static bool landed(const struct host_req *r)
{
	const uint8_t *mem = r->req.buf;

	for (uint32_t i = 0; i < BYTES; i++)
		if (mem[i] != 0x11)
			return true;
	return false;
}

static enum fabric_end late_write(struct host *h, const struct rdma_peer_cmd *cmd)
{
	return rdma_peer_write(&h->peer, cmd->sgl.addr, BYTES, cmd->sgl.key);
}

static uint32_t ending(struct host *h)
{
	return h->ops->keys_ending(h->q, h->now_ns);
}

static uint32_t end_key(struct host *h, struct host_req *r)
{
	uint32_t n = h->ops->end_key(h->q, &r->req, h->now_ns);

	assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
	return n;
}

static void again(struct host *h, bool per_command)
{
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
	h->o.keys_per_command = per_command;
	host_connect(h);
}

static int per_command_setup(void **state)
{
	int rc = host_setup(state);

	again(*state, true);
	return rc;
}

static int standing_setup(void **state)
{
	int rc = host_setup(state);

	again(*state, false);
	return rc;
}

static void rdma_revoke__a_late_write_reaches_nothing_after_the_confirmation(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd = in_flight(h, &r, 1);

	assert_int_equal(end_key(h, &r), 1);
	host_turns(h, 2);
	assert_int_equal(ending(h), 0);
	assert_false(fabric_mem_key_lives(cmd->sgl.key));
	assert_int_equal(host_counters(h).keys_revoked, 1);
	assert_true(host_counters(h).last_withdrawn_ns != 0);
	assert_int_equal(r.n_done, 0);
	assert_int_equal(late_write(h, cmd), FABRIC_END_REMOTE_ACCESS);
	assert_false(landed(&r));
	host_turns(h, 3);
	host_assert_failed(h, "still used a key that had ended with a right");
	assert_int_equal(r.n_done, 1);
	assert_int_equal(r.rc, -EREMOTEIO);
}

/* The control: nobody ends the key. */
static void rdma_revoke__the_same_write_lands_when_no_key_is_ended(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd = in_flight(h, &r, 1);

	h->ops->forget_regions(h->q, h->now_ns); /* idle ones: none is */
	host_turns(h, 2);
	assert_true(fabric_mem_key_lives(cmd->sgl.key));
	assert_int_equal(late_write(h, cmd), FABRIC_END_OK);
	assert_true(landed(&r));
	rdma_peer_answer(&h->peer, cmd, NVME_SC_SUCCESS);
	host_turns(h, 3);
	assert_int_equal(r.rc, 0);
	assert_int_equal(host_counters(h).last_withdrawn_ns, 0);
}

/* And nobody waits: until the device confirms the key is good. */
static void rdma_revoke__is_not_over_before_the_device_says_so(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd = in_flight(h, &r, 1);

	fabric_mem_hold_invalidates(true);
	assert_int_equal(end_key(h, &r), 1);
	host_turns(h, 3);
	assert_int_equal(ending(h), 1);
	assert_int_equal(end_key(h, &r), 0); /* once */
	assert_int_equal(late_write(h, cmd), FABRIC_END_OK);
	assert_true(landed(&r));
	fabric_mem_hold_invalidates(false);
	host_turns(h, 3);
	assert_int_equal(ending(h), 0);
	memset(r.req.buf, 0x11, BYTES);
	assert_int_equal(late_write(h, cmd), FABRIC_END_REMOTE_ACCESS);
	assert_false(landed(&r));
	host_turns(h, 3);
	assert_int_equal(r.n_done, 1);
}

/* A device that never says so: the end of the queue pair does, for all of them. */
static void rdma_revoke__a_device_that_does_not_confirm_loses_the_queue_pair(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd = in_flight(h, &r, 1);

	fabric_mem_hold_invalidates(true);
	assert_int_equal(end_key(h, &r), 1);
	host_tick(h, HOST_COMMAND_NS - 1);
	assert_int_equal(ending(h), 1);
	host_tick(h, 1); /* its time is over, and so is the queue */
	host_turn(h);
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_FAILED);
	assert_int_equal(ending(h), 0);
	assert_false(fabric_mem_key_lives(cmd->sgl.key));
	assert_int_equal(r.rc, -EREMOTEIO);
	fabric_mem_hold_invalidates(false);
}

static void rdma_revoke__a_target_that_was_done_ends_the_command_and_nothing_else(void **state)
{
	struct host *h = *state;

	/* More often than there are places for keys. */
	for (uint32_t n = 0; n < 300; n++) {
		struct host_req r, other;
		struct rdma_peer_cmd *cmd = in_flight(h, &r, 1), *second;

		second = in_flight(h, &other, 2);
		assert_int_equal(late_write(h, cmd), FABRIC_END_OK);
		assert_int_equal(end_key(h, &r), 1);
		host_turns(h, 2);
		assert_true(fabric_mem_key_lives(second->sgl.key));
		rdma_peer_answer(&h->peer, cmd, NVME_SC_SUCCESS);
		rdma_peer_serve(&h->peer, second, true);
		host_turns(h, 3);
		assert_int_equal(r.rc, 0);
		assert_int_equal(other.rc, 0);
		assert_int_equal(ending(h), 0);
		assert_int_equal(h->ops->end_key(h->q, &r.req, h->now_ns), 0);
	}
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_READY);
	assert_int_equal(host_counters(h).keys_bound - host_counters(h).keys_revoked,
	                 h->o.keys_per_command ? 0 : 1);
}

static void rdma_revoke__waits_for_what_had_begun_to_end_and_not_for_later_ends(void **state)
{
	struct host *h = *state;
	struct host_req r, late;
	struct rdma_peer_cmd *cmd;
	uint64_t until;

	host_connect(h);
	cmd = in_flight(h, &r, 1);
	in_flight(h, &late, 2);
	fabric_mem_hold_invalidates(true);
	rdma_peer_serve(&h->peer, cmd, true); /* the answer begins its key's end */
	host_turns(h, 2);
	until = h->now_ns++;
	assert_int_equal(h->ops->keys_ending(h->q, until), 1);
	assert_int_equal(end_key(h, &late), 1);
	assert_int_equal(h->ops->keys_ending(h->q, until), 1);
	assert_int_equal(ending(h), 2);
	fabric_mem_hold_invalidates(false);
	host_turns(h, 3);
	assert_int_equal(ending(h), 0);
	h->ops->kill(h->q, "over");
}

static void rdma_revoke__idle_keys_are_counted_and_those_in_use_end_with_their_command(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd;
	uint32_t idle, used;

	h->o.keys_per_command = false;
	host_connect(h);
	cmd = in_flight(h, &r, 2);
	idle = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 3);
	cmd = in_flight(h, &r, 1);
	used = cmd->sgl.key;
	assert_int_equal(h->ops->forget_regions(h->q, h->now_ns), 1);
	host_turns(h, 2);
	assert_int_equal(ending(h), 0);
	assert_false(fabric_mem_key_lives(idle));
	assert_true(fabric_mem_key_lives(used));
	/* The right that uses it ends, too. */
	assert_int_equal(end_key(h, &r), 1);
	host_turns(h, 2);
	assert_int_equal(ending(h), 0);
	assert_false(fabric_mem_key_lives(used));
	rdma_peer_answer(&h->peer, cmd, NVME_SC_LBA_RANGE);
	host_turns(h, 3);
	assert_int_equal(r.n_done, 1);
	assert_int_equal(r.status, NVME_SC_LBA_RANGE);
}

struct told {
	struct key_info k[16];
	uint32_t n;
};

static void on_key(void *arg, const struct key_info *k)
{
	struct told *t = arg;

	assert_true(t->n < ARRAY_SIZE(t->k));
	t->k[t->n++] = *k;
}

static struct told told(struct host *h, bool folded)
{
	struct told t = {0};

	h->ops->keys(h->q, folded, on_key, &t);
	return t;
}

static void rdma_revoke__keys_of_commands_are_told_by_direction(void **state)
{
	struct host *h = *state;
	struct host_req r[3];
	uint64_t ids = 40;
	struct told t;

	h->o.key_ids = &ids;
	h->o.in_capsule_max = 0;
	host_connect(h);
	assert_int_equal(told(h, false).n, 0);
	in_flight(h, &r[0], 1);
	h->now_ns += 5;
	rdma_peer_serve(&h->peer, in_flight(h, &r[1], 2), true);
	r[2] = host_io(h, NVME_IO_WRITE, 3, 0, 512);
	host_submit_ok(h, &r[2]);
	rdma_peer_serve(&h->peer, host_taken(h), true);
	t = told(h, false);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.k[0].access, FABRIC_READ);
	assert_int_equal(t.k[0].count, 1);
	assert_int_equal(t.k[0].bytes, 512);
	assert_int_equal(t.k[0].id, 41);
	assert_int_equal(t.k[1].access, FABRIC_WRITE);
	assert_int_equal(t.k[1].count, 2);
	assert_int_equal(t.k[1].bytes, 2 * BYTES);
	assert_int_equal(t.k[1].since_ns, h->now_ns - 5);
	assert_true(t.k[0].per_command && t.k[1].per_command);
	host_turns(h, 3);
	t = told(h, true);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.k[0].count, 0);
	assert_int_equal(t.k[0].since_ns, 0);
	assert_int_equal(t.k[0].issued, 1);
	assert_int_equal(t.k[1].count, 1);
	assert_int_equal(t.k[1].issued, 2);
	h->ops->kill(h->q, "over");
}

static void rdma_revoke__standing_keys_are_told_one_by_one_until_they_are_dead(void **state)
{
	struct host *h = *state;
	struct host_req r;
	uint64_t ids = 0;
	struct told t;

	h->o.key_ids = &ids;
	h->o.keys_per_command = false;
	host_connect(h);
	for (uint32_t i = 0; i < 3; i++) {
		rdma_peer_serve(&h->peer, in_flight(h, &r, i), true);
		host_turns(h, 3);
	}
	t = told(h, true);
	assert_int_equal(t.n, 1);
	assert_int_equal(t.k[0].count, 3);
	assert_int_equal(t.k[0].bytes, 3 * HOST_SLOT);
	fabric_mem_hold_invalidates(true);
	assert_int_equal(h->ops->forget_regions(h->q, h->now_ns), 3);
	t = told(h, false);
	assert_int_equal(t.n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(t.k[i].ending && !t.k[i].per_command);
		assert_int_equal(t.k[i].count, 1);
		assert_true(t.k[i].id > 2 && t.k[i].id <= ids);
	}
	fabric_mem_hold_invalidates(false);
	host_turns(h, 3);
	assert_int_equal(told(h, false).n, 0);
}

static void rdma_revoke__never_invalidates_from_both_ends(void **state)
{
	struct host *h = *state;
	struct host_req r;
	struct rdma_peer_cmd *cmd;

	h->o.remote_invalidate = true;
	host_connect(h);
	cmd = in_flight(h, &r, 1);
	assert_int_equal(h->ops->end_key(h->q, &r.req, h->now_ns), 1);
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_FAILED);
	assert_false(fabric_mem_key_lives(cmd->sgl.key));
	host_tick(h, 1);
	assert_int_equal(r.rc, -EREMOTEIO);
}

/* ---- faults ---- */

/* Two commands, the right of one ends, then that of all; nothing lives when the device has
 * confirmed, whatever fails on the way, and each comes back once. */
static void run_with_faults(struct host *h, uint32_t nth, bool for_good)
{
	struct host_req r[2];
	struct rdma_peer_cmd *cmd[2] = {0};

	for (uint32_t i = 0; i < 2; i++) {
		r[i] = host_io(h, NVME_IO_READ, i, 0, BYTES);
		if (host_submit(h, &r[i]) == 0)
			(void)h->ops->kick(h->q, h->now_ns);
		else
			r[i].n_done = 1;
		rdma_peer_run(&h->peer);
		cmd[i] = rdma_peer_take(&h->peer);
	}
	fabric_mem_fail(FABRIC_MEM_MINE, nth, for_good);
	for (uint32_t i = 0; i < 2; i++) {
		if (!r[i].n_done)
			(void)h->ops->end_key(h->q, &r[i].req, h->now_ns);
		(void)h->ops->forget_regions(h->q, h->now_ns);
	}
	host_turns(h, 4);
	host_tick(h, 1);
	/* A device that tells nothing any more: the queue pair is destroyed when its time is over.
	 */
	if (ending(h)) {
		assert_true(fabric_mem_asked() >= nth);
		host_tick(h, 2 * NS_PER_S);
	}
	assert_int_equal(ending(h), 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_false(cmd[i] && fabric_mem_key_lives(cmd[i]->sgl.key));
	h->ops->kill(h->q, "over");
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(r[i].n_done, 1);
}

static void rdma_revoke__ends_keys_whatever_the_device_refuses(void **state)
{
	struct host *h = *state;

	for (uint32_t k = 0; k < 4; k++) {
		bool for_good = k & 1, fired = true;

		for (uint32_t nth = 1; fired; nth++) {
			again(h, k & 2);
			run_with_faults(h, nth, for_good);
			fired = fabric_mem_asked() >= nth;
			fabric_mem_fail(FABRIC_MEM_MINE, 0, false);
			assert_true(nth < 100);
		}
	}
}

#define T(name) cmocka_unit_test_setup_teardown(rdma_revoke__##name, host_setup, host_teardown)
/* Once with a key for each command, once with standing ones. */
#define BOTH(name)                                                                                 \
	{"rdma_revoke__" #name ", keys of commands", rdma_revoke__##name, per_command_setup,       \
	 host_teardown, NULL},                                                                     \
	{                                                                                          \
		"rdma_revoke__" #name ", standing keys", rdma_revoke__##name, standing_setup,      \
			host_teardown, NULL                                                        \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(a_late_write_reaches_nothing_after_the_confirmation),
		BOTH(the_same_write_lands_when_no_key_is_ended),
		BOTH(is_not_over_before_the_device_says_so),
		BOTH(a_device_that_does_not_confirm_loses_the_queue_pair),
		BOTH(a_target_that_was_done_ends_the_command_and_nothing_else),
		T(waits_for_what_had_begun_to_end_and_not_for_later_ends),
		T(idle_keys_are_counted_and_those_in_use_end_with_their_command),
		T(keys_of_commands_are_told_by_direction),
		T(standing_keys_are_told_one_by_one_until_they_are_dead),
		T(never_invalidates_from_both_ends),
		T(ends_keys_whatever_the_device_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
