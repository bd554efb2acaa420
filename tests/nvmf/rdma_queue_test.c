// SPDX-License-Identifier: Apache-2.0
/*
 * The queue over NVMe/RDMA against a scripted peer, on a device that is memory: what it says, whom
 * it believes, and that no key lives when a request is back. What a target may do wrong is a table.
 */
#include "tests/nvmf/rdma_host.h"
#include "common/clock.h"
#include "tests/verbs/fabric_mem.h"

static void fill(uint8_t *mem, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		mem[i] = rdma_peer_pattern(seed, i);
}

static void assert_pattern(const uint8_t *mem, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(mem[i], rdma_peer_pattern(seed, i));
}

/* ---- connecting ---- */

static void rdma_queue__asks_with_the_private_data_of_the_specification(void **state)
{
	struct host *h = *state;

	host_connect(h);
	assert_int_equal(h->peer.hello.recfmt, 0);
	assert_int_equal(h->peer.hello.qid, 1);
	assert_int_equal(h->peer.hello.hsqsize, 16);
	assert_int_equal(h->peer.hello.hrqsize, 17);
	assert_int_equal(h->peer.hello.cntlid, 5);
}

static void rdma_queue__says_why_a_target_refused(void **state)
{
	struct host *h = *state;

	h->peer.reject = NVME_RDMA_HSQSIZE;
	host_begin(h);
	host_turns(h, 6);
	host_assert_failed(h, nvme_rdma_status_text(NVME_RDMA_HSQSIZE));
}

static void rdma_queue__gives_a_silent_target_until_the_deadline(void **state)
{
	struct host *h = *state;

	h->peer.silent = true;
	host_begin(h);
	host_turns(h, 6);
	host_tick(h, 2 * NS_PER_S);
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_CONNECTING);
	host_tick(h, NS_PER_S);
	host_assert_failed(h, "in time");
}

static void rdma_queue__fails_when_nobody_listens(void **state)
{
	struct host *h = *state;

	fabric_listener_free(TAKE_PTR(h->peer.listener));
	host_begin(h);
	host_turns(h, 6);
	host_assert_failed(h, "refused the connection");
}

static void rdma_queue__refuses_options_that_cannot_be(void **state)
{
	struct host *h = *state;
	struct nvmf_queue_opts o = h->o;

	o.depth = 1;
	assert_int_equal(h->ops->open(&o, &h->q, &h->err), -EINVAL);
	o.depth = 1025;
	assert_int_equal(h->ops->open(&o, &h->q, &h->err), -EINVAL);
	o.depth = 32;
	o.qid = 0;
	assert_int_equal(h->ops->open(&o, &h->q, &h->err), -EINVAL);
	o = h->o;
	o.transfer_max = 1u << 24;
	assert_int_equal(h->ops->open(&o, &h->q, &h->err), -EINVAL);
	o = h->o;
	o.pd = NULL;
	assert_int_equal(h->ops->open(&o, &h->q, &h->err), -EOPNOTSUPP);
	assert_null(h->q);
}

static void rdma_queue__ends_in_every_state_of_its_connection(void **state)
{
	struct host *h = *state;

	for (uint32_t turns = 0; turns < 6; turns++) {
		struct nvmf_queue *q;

		host_begin(h);
		host_turns(h, turns);
		if (turns % 2) {
			h->ops->kill(h->q, "enough");
			host_assert_failed(h, "enough");
		}
		q = TAKE_PTR(h->q);
		h->ops->free(q);
		rdma_peer_run(&h->peer);
	}
}

/* ---- commands ---- */

static void rdma_queue__lends_a_read_exactly_its_bytes_for_writing(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 2, 512, 8192);
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	assert_int_equal(cmd->sqe.flags, NVME_FLAG_SGL);
	assert_int_equal(cmd->sgl.type, NVME_SGL_KEYED);
	assert_int_equal(cmd->sgl.len, 8192);
	assert_int_equal(cmd->sgl.addr, (uintptr_t)r.req.buf);
	r.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	assert_int_equal(r.n_done, 0);
	host_turns(h, 2);
	assert_int_equal(r.n_done, 1);
	assert_int_equal(r.rc, 0);
	assert_pattern(r.req.buf, r.req.sqe.cdw10, 8192);
	assert_int_equal(h->slots[2].mem[511], 0);
	assert_int_equal(h->slots[2].mem[512 + 8192], 0);
	assert_int_equal(host_counters(h).bytes_in, 8192);
	assert_int_equal(host_counters(h).copied_bytes, 0);
}

static void rdma_queue__lends_a_large_write_for_reading_and_a_small_one_not_at_all(void **state)
{
	struct host *h = *state;
	struct host_req large = host_io(h, NVME_IO_WRITE, 1, 0, 131072),
			small = host_io(h, NVME_IO_WRITE, 3, 100, 4096);
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	fill(large.req.buf, 7, large.req.len);
	fill(small.req.buf, 9, small.req.len);
	host_submit_ok(h, &large);
	host_submit_ok(h, &small);
	cmd = host_taken(h);
	large.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	assert_pattern(rdma_peer_payload(&h->peer), 7, 131072);
	cmd = host_taken(h);
	assert_int_equal(cmd->sgl.type, NVME_SGL_DATA_OFFSET);
	assert_int_equal(cmd->sgl.addr, 0);
	assert_int_equal(cmd->data_len, 4096);
	assert_pattern(cmd->data, 9, 4096);
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 2);
	assert_int_equal(large.n_done + small.n_done, 2);
	assert_int_equal(host_counters(h).keys_bound, 1);
	assert_int_equal(host_counters(h).keys_revoked, 1);
	assert_int_equal(host_counters(h).bytes_out, 131072 + 4096);
}

static void rdma_queue__describes_no_data_with_an_empty_key(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_FLUSH, 0, 0, 0);
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	assert_int_equal(cmd->sgl.type, NVME_SGL_KEYED);
	assert_int_equal(cmd->sgl.len | cmd->sgl.addr | cmd->sgl.key, 0);
	rdma_peer_answer(&h->peer, cmd, NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
	host_turns(h, 2);
	assert_int_equal(r.rc, 0);
	assert_int_equal(r.status, NVME_SC_LBA_RANGE | NVME_STATUS_DNR);
}

static void rdma_queue__copies_admin_data_through_slots_of_its_own(void **state)
{
	struct host *h = *state;
	uint8_t out[1024], in[4096];
	struct host_req connect = host_io(h, NVME_FABRICS, 0, 0, 0),
			identify = host_io(h, NVME_ADMIN_IDENTIFY, 0, 0, 0);
	struct rdma_peer_cmd *cmd;

	h->o.qid = 0;
	h->o.cntlid = NVME_CNTLID_DYNAMIC;
	h->o.transfer_max = 4096;
	host_connect(h);
	fill(out, 3, sizeof(out));
	connect.req.dir = NVMF_TO_TARGET;
	connect.req.buf = out;
	connect.req.len = sizeof(out);
	identify.req.dir = NVMF_FROM_TARGET;
	identify.req.buf = in;
	identify.req.len = sizeof(in);
	host_submit_ok(h, &connect);
	host_submit_ok(h, &identify);
	cmd = host_taken(h);
	/* never in the capsule: an admin queue takes none */
	assert_int_equal(cmd->sgl.type, NVME_SGL_KEYED);
	connect.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, false);
	assert_pattern(rdma_peer_payload(&h->peer), 3, sizeof(out));
	cmd = host_taken(h);
	identify.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, false);
	host_turns(h, 2);
	assert_int_equal(connect.n_done + identify.n_done, 2);
	assert_pattern(in, identify.req.sqe.cdw10, sizeof(in));
	assert_int_equal(host_counters(h).copied_bytes, sizeof(out) + sizeof(in));
}

static void rdma_queue__an_answer_without_data_shows_nothing_old(void **state)
{
	struct host *h = *state;
	uint8_t in[4096];
	struct host_req r[2];

	h->o.qid = 0;
	host_connect(h);
	for (int i = 0; i < 2; i++) {
		struct rdma_peer_cmd *cmd;

		memset(in, 0xee, sizeof(in));
		r[i] = host_io(h, NVME_ADMIN_IDENTIFY, 0, 0, 0);
		r[i].req.dir = NVMF_FROM_TARGET;
		r[i].req.buf = in;
		r[i].req.len = sizeof(in);
		host_submit_ok(h, &r[i]);
		cmd = host_taken(h);
		if (i == 0)
			rdma_peer_serve(&h->peer, cmd, false);
		else
			rdma_peer_answer(&h->peer, cmd, NVME_SC_SUCCESS);
		host_turns(h, 2);
		assert_int_equal(r[i].n_done, 1);
	}
	for (uint32_t i = 0; i < sizeof(in); i++)
		assert_int_equal(in[i], 0);
}

static void rdma_queue__waits_for_a_slot_of_its_own_and_for_a_place(void **state)
{
	struct host *h = *state;
	struct host_req r[20];
	uint8_t in[20][512];
	uint32_t n = 0;

	h->o.qid = 0;
	h->o.depth = 12;
	host_connect(h);
	for (; n < 20; n++) {
		r[n] = host_io(h, NVME_ADMIN_IDENTIFY, 0, 0, 0);
		r[n].req.dir = NVMF_FROM_TARGET;
		r[n].req.buf = in[n];
		r[n].req.len = 512;
		if (host_submit(h, &r[n]) < 0)
			break;
	}
	assert_int_equal(n, 8);
	assert_int_equal(host_submit(h, &r[8]), -EAGAIN);
	for (; n < 12; n++) {
		r[n] = host_io(h, NVME_ADMIN_KEEP_ALIVE, 0, 0, 0);
		assert_int_equal(host_submit(h, &r[n]), 0);
	}
	r[n] = host_io(h, NVME_ADMIN_KEEP_ALIVE, 0, 0, 0);
	assert_int_equal(host_submit(h, &r[n]), -EAGAIN);
	assert_int_equal(h->ops->in_flight(h->q), 12);
	assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
	for (uint32_t i = 0; i < 12; i++)
		rdma_peer_serve(&h->peer, host_taken(h), false);
	host_turns(h, 3);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(r[i].n_done, 1);
	assert_int_equal(host_submit(h, &r[12]), 0);
	h->ops->kill(h->q, "over");
	assert_int_equal(r[12].rc, -ECANCELED);
}

/* The ranges of a deallocate are the queue's to copy, one command at a time, under a key over just
 * them; what moves data of the tenant's never is. */
static void rdma_queue__copies_the_ranges_of_a_deallocate(void **state)
{
	struct nvme_dsm_range range = {.blocks = 8, .slba = 99};
	struct host *h = *state;
	struct host_req r[2], read;
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	for (int i = 0; i < 2; i++) {
		r[i] = host_io(h, NVME_IO_DSM, 0, 0, 0);
		r[i].req.dir = NVMF_TO_TARGET;
		r[i].req.buf = &range;
		r[i].req.len = sizeof(range);
	}
	host_submit_ok(h, &r[0]);
	assert_int_equal(host_submit(h, &r[1]), -EAGAIN);
	cmd = host_taken(h);
	assert_int_equal(cmd->sqe.opcode, NVME_IO_DSM);
	assert_int_equal(cmd->sgl.len, sizeof(range));
	r[0].dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	assert_memory_equal(rdma_peer_payload(&h->peer), &range, sizeof(range));
	host_turns(h, 2);
	assert_int_equal(r[0].n_done, 1);
	assert_int_equal(r[0].rc, 0);
	host_submit_ok(h, &r[1]);
	cmd = host_taken(h);
	assert_int_not_equal(cmd->sgl.key, r[0].dead_key);
	r[1].dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 2);
	assert_int_equal(r[1].n_done, 1);
	read = host_io(h, NVME_IO_READ, 0, 0, 512);
	read.req.region = NULL;
	assert_int_equal(host_submit(h, &read), -EINVAL);
}

static void rdma_queue__takes_no_memory_that_is_not_the_requests(void **state)
{
	struct host *h = *state;
	struct host_req r;

	host_connect(h);
	r = host_io(h, NVME_IO_READ, 0, HOST_SLOT - 512, 1024); /* over the end */
	assert_int_equal(host_submit(h, &r), -EINVAL);
	r = host_io(h, NVME_IO_READ, 0, 0, 512);
	r.req.buf = h->slots[1].mem; /* of another region */
	assert_int_equal(host_submit(h, &r), -EINVAL);
	r = host_io(h, NVME_IO_READ, 0, 0, 512);
	r.req.region = h->peer.region; /* another tenant's */
	r.req.buf = rdma_peer_payload(&h->peer);
	assert_int_equal(host_submit(h, &r), -EINVAL);
	r = host_io(h, NVME_IO_READ, 0, 0, 512);
	r.req.region = NULL;
	assert_int_equal(host_submit(h, &r), -EINVAL);
	r = host_io(h, NVME_IO_READ, 0, 0, 512);
	r.req.len = 0;
	assert_int_equal(host_submit(h, &r), -EINVAL);
	r = host_io(h, NVME_IO_READ, 0, 0, 512);
	r.req.len = (1u << 20) + 512;
	assert_int_equal(host_submit(h, &r), -EINVAL);
	assert_int_equal(h->ops->in_flight(h->q), 0);
}

static void rdma_queue__hands_on_a_batch_by_one_doorbell_and_ends_its_keys_by_another(void **state)
{
	struct host *h = *state;
	struct fabric_mem_counts before, after;
	struct host_req r[16];

	host_connect(h);
	for (uint32_t i = 0; i < 16; i++) {
		r[i] = host_io(h, NVME_IO_READ, i % HOST_SLOTS, 8192 * (i / HOST_SLOTS), 4096);
		assert_int_equal(host_submit(h, &r[i]), 0);
	}
	fabric_mem_counts(&before);
	assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
	fabric_mem_counts(&after);
	assert_int_equal(after.doorbells - before.doorbells, 1);
	for (uint32_t i = 0; i < 16; i++)
		rdma_peer_serve(&h->peer, host_taken(h), true);
	fabric_mem_counts(&before);
	host_turns(h, 3);
	fabric_mem_counts(&after);
	assert_int_equal(after.doorbells - before.doorbells, 1);
	assert_int_equal(host_counters(h).calls, 1);
	assert_int_equal(host_counters(h).revoke_calls, 1);
	assert_int_equal(host_counters(h).keys_bound, 16);
	assert_int_equal(host_counters(h).keys_revoked, 16);
}

/* Its right ends between submit and kick, as when the process was stopped there: the command comes
 * back, and nothing else is held up by it. */
static void until(struct host *h, bool per_command)
{
	h->o.keys_per_command = per_command;
	host_connect(h);
	for (uint32_t round = 0; round < 100; round++) {
		struct host_req late[] = {host_io(h, NVME_IO_READ, 0, 0, 8192),
		                          host_io(h, NVME_IO_WRITE, 1, 0, 8192),
		                          host_io(h, NVME_IO_WRITE, 2, 0, 512),
		                          host_io(h, NVME_IO_FLUSH, 3, 0, 0)},
				good = host_io(h, NVME_IO_READ, 4, 0, 8192);
		uint64_t now_ns = clock_boottime_ns();

		for (uint32_t i = 0; i < ARRAY_SIZE(late); i++) {
			late[i].req.until_ns = now_ns;
			assert_int_equal(host_submit(h, &late[i]), 0);
			good.req.until_ns = now_ns + 1000 * NS_PER_S;
			if (i == round % ARRAY_SIZE(late))
				assert_int_equal(host_submit(h, &good), 0);
		}
		assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
		host_turns(h, 3);
		for (uint32_t i = 0; i < ARRAY_SIZE(late); i++) {
			assert_int_equal(late[i].n_done, 1);
			assert_int_equal(late[i].rc, -ECANCELED);
		}
		/* The control: what is in time leaves with the same doorbell. */
		rdma_peer_serve(&h->peer, host_taken(h), true);
		assert_null(rdma_peer_take(&h->peer));
		host_turns(h, 3);
		assert_int_equal(good.rc, 0);
		assert_int_equal(h->ops->in_flight(h->q), 0);
		assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_READY);
	}
	if (per_command)
		assert_int_equal(host_counters(h).keys_bound, host_counters(h).keys_revoked);
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
}

static void rdma_queue__hands_on_nothing_from_its_time_on(void **state)
{
	until(*state, true);
	until(*state, false);
}

static void again(struct host_req *r)
{
	struct host *h = r->arg;

	if (r->req.sqe.cdw11-- == 0)
		return;
	r->n_done = 0;
	assert_int_equal(h->ops->submit(h->q, &r->req), 0);
}

static void rdma_queue__done_may_submit_and_everything_comes_back_once(void **state)
{
	struct host *h = *state;
	struct host_req r[16];
	uint32_t served = 0;

	host_connect(h);
	for (uint32_t i = 0; i < 16; i++) {
		r[i] = host_io(h, i % 3 ? NVME_IO_READ : NVME_IO_WRITE, i % HOST_SLOTS,
		               8192 * (i / HOST_SLOTS), i % 2 ? 4096 : 8192);
		r[i].req.sqe.cdw11 = 99;
		r[i].then = again;
		r[i].arg = h;
		host_submit_ok(h, &r[i]);
	}
	while (served < 1600) {
		struct rdma_peer_cmd *cmd = rdma_peer_take(&h->peer);

		if (cmd)
			rdma_peer_serve(&h->peer, cmd, true);
		served += cmd != NULL;
		if (!cmd || served % 5 == 0)
			host_turn(h);
		assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_READY);
	}
	host_turns(h, 3);
	assert_int_equal(host_counters(h).answered, 1600);
	assert_int_equal(h->ops->in_flight(h->q), 0);
	assert_int_equal(host_counters(h).keys_bound, host_counters(h).keys_revoked);
}

static void rdma_queue__keeps_to_what_the_target_has_receives_for(void **state)
{
	struct host *h = *state;
	struct host_req r[4];

	h->peer.crqsize = 3;
	host_connect(h);
	for (uint32_t i = 0; i < 4; i++) {
		r[i] = host_io(h, NVME_IO_FLUSH, 0, 0, 0);
		assert_int_equal(host_submit(h, &r[i]), i < 3 ? 0 : -EAGAIN);
	}
	h->ops->kill(h->q, "over");
}

/* ---- standing keys ---- */

static uint32_t standing_io(struct host *h, uint8_t opcode, uint32_t slot)
{
	struct host_req r = host_io(h, opcode, slot, 4096, 8192);
	struct rdma_peer_cmd *cmd;
	uint32_t key;

	fill(r.req.buf, 1, 8192);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	key = cmd->sgl.key;
	assert_int_equal(cmd->sgl.addr, (uintptr_t)r.req.buf);
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 2);
	assert_int_equal(r.rc, 0);
	return key;
}

static void rdma_queue__a_standing_key_serves_one_slot_one_way_until_the_end(void **state)
{
	struct host *h = *state;
	uint32_t read, write;

	h->o.keys_per_command = false;
	host_connect(h);
	read = standing_io(h, NVME_IO_READ, 1);
	write = standing_io(h, NVME_IO_WRITE, 1);
	assert_int_not_equal(read, write);
	assert_int_equal(standing_io(h, NVME_IO_READ, 1), read);
	assert_int_not_equal(standing_io(h, NVME_IO_READ, 2), read);
	assert_int_equal(host_counters(h).keys_bound, 3);
	assert_int_equal(host_counters(h).keys_revoked, 0);
	assert_true(fabric_mem_key_lives(read) && fabric_mem_key_lives(write));
	h->ops->kill(h->q, "over");
	assert_false(fabric_mem_key_lives(read) || fabric_mem_key_lives(write));
	assert_int_equal(host_counters(h).keys_revoked, 3);
}

static void rdma_queue__forgotten_keys_end_each_with_its_last_command(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 1, 4096, 8192);
	uint32_t idle, used;
	struct rdma_peer_cmd *cmd;

	h->o.keys_per_command = false;
	host_connect(h);
	idle = standing_io(h, NVME_IO_READ, 2);
	used = standing_io(h, NVME_IO_READ, 1);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	assert_int_equal(cmd->sgl.key, used);
	h->ops->forget_regions(h->q, h->now_ns);
	assert_false(fabric_mem_key_lives(idle));
	assert_true(fabric_mem_key_lives(used));
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 3);
	assert_int_equal(r.rc, 0);
	assert_false(fabric_mem_key_lives(used));
	assert_int_equal(host_counters(h).keys_revoked, 2);
	assert_int_not_equal(standing_io(h, NVME_IO_READ, 1), used);
}

static void rdma_queue__a_standing_key_makes_room_for_another(void **state)
{
	struct host *h = *state;
	struct fabric_region *r[300];
	uint8_t *mem = h->slots[0].mem;

	h->o.keys_per_command = false;
	host_connect(h);
	for (uint32_t i = 0; i < 300; i++) {
		struct fabric_region_opts o = {
			.addr = mem + i * 512, .length = 512, .bindable = true};
		struct host_req io = host_io(h, NVME_IO_READ, 0, i * 512, 512);

		assert_int_equal(fabric_region_new(h->pd, &o, &r[i], &h->err), 0);
		io.req.region = r[i];
		host_submit_ok(h, &io);
		rdma_peer_serve(&h->peer, host_taken(h), true);
		host_turns(h, 2);
		assert_int_equal(io.rc, 0);
	}
	assert_int_equal(host_counters(h).keys_bound, 300);
	assert_true(host_counters(h).keys_bound - host_counters(h).keys_revoked <= 192);
	h->ops->free(TAKE_PTR(h->q));
	for (uint32_t i = 0; i < 300; i++)
		assert_int_equal(fabric_region_free(r[i]), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(rdma_queue__##name, host_setup, host_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(asks_with_the_private_data_of_the_specification),
		T(says_why_a_target_refused),
		T(gives_a_silent_target_until_the_deadline),
		T(fails_when_nobody_listens),
		T(refuses_options_that_cannot_be),
		T(ends_in_every_state_of_its_connection),
		T(lends_a_read_exactly_its_bytes_for_writing),
		T(lends_a_large_write_for_reading_and_a_small_one_not_at_all),
		T(describes_no_data_with_an_empty_key),
		T(copies_admin_data_through_slots_of_its_own),
		T(an_answer_without_data_shows_nothing_old),
		T(waits_for_a_slot_of_its_own_and_for_a_place),
		T(copies_the_ranges_of_a_deallocate),
		T(takes_no_memory_that_is_not_the_requests),
		T(hands_on_a_batch_by_one_doorbell_and_ends_its_keys_by_another),
		T(hands_on_nothing_from_its_time_on),
		T(done_may_submit_and_everything_comes_back_once),
		T(keeps_to_what_the_target_has_receives_for),
		T(a_standing_key_serves_one_slot_one_way_until_the_end),
		T(forgotten_keys_end_each_with_its_last_command),
		T(a_standing_key_makes_room_for_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
