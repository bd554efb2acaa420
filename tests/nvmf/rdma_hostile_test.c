// SPDX-License-Identifier: Apache-2.0
/*
 * The queue over NVMe/RDMA against a peer that lies, uses keys that are not good, is late, or goes:
 * it is named, nothing moves, and everything comes back once, with its key dead.
 */
#include "tests/nvmf/rdma_host.h"
#include "common/clock.h"
#include "tests/verbs/fabric_mem.h"

/* ---- remote invalidation ---- */

static void rdma_queue__believes_an_invalidation_that_it_asked_for(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 0, 0, 8192);
	struct rdma_peer_cmd *cmd;
	struct nvme_cqe cqe = {0};

	h->o.remote_invalidate = true;
	host_connect(h);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	assert_int_equal(cmd->sgl.type, NVME_SGL_KEYED_INVALIDATE);
	r.dead_key = cmd->sgl.key;
	cqe.cid = cmd->sqe.cid;
	rdma_peer_send(&h->peer, &cqe, sizeof(cqe), cmd->sgl.key);
	host_turns(h, 2);
	assert_int_equal(r.rc, 0);
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_READY);
}

static void rdma_queue__a_target_may_answer_without_the_invalidation(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 0, 0, 8192);
	struct rdma_peer_cmd *cmd;

	h->o.remote_invalidate = true;
	host_connect(h);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	r.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 2);
	assert_int_equal(r.rc, 0);
}

static void surprise(struct host *h, bool asked)
{
	struct host_req r[2] = {host_io(h, NVME_IO_READ, 0, 0, 8192),
	                        host_io(h, NVME_IO_READ, 1, 0, 8192)};
	struct rdma_peer_cmd *cmd[2];
	struct nvme_cqe cqe = {0};

	h->o.remote_invalidate = asked;
	host_connect(h);
	for (int i = 0; i < 2; i++) {
		host_submit_ok(h, &r[i]);
		cmd[i] = host_taken(h);
		r[i].dead_key = cmd[i]->sgl.key;
	}
	cqe.cid = cmd[0]->sqe.cid;
	rdma_peer_send(&h->peer, &cqe, sizeof(cqe), cmd[asked]->sgl.key);
	host_turns(h, 3);
	host_assert_failed(h, "invalidates a key");
	assert_int_equal(r[0].rc, -EREMOTEIO);
	assert_int_equal(r[1].rc, -EREMOTEIO);
}

static void rdma_queue__an_invalidation_of_another_key_ends_it(void **state)
{
	surprise(*state, true);
}

static void rdma_queue__an_invalidation_it_did_not_ask_for_ends_it(void **state)
{
	surprise(*state, false);
}

/* On a device that does not look whose a key is, so that the message arrives. */
static void invalidate_again(struct host *h, bool for_another)
{
	struct host_req r[2] = {host_io(h, NVME_IO_READ, 0, 0, 8192),
	                        host_io(h, NVME_IO_WRITE, 1, 0, 8192)};
	struct rdma_peer_cmd cmd[2];
	struct nvme_cqe cqe = {0};

	h->o.remote_invalidate = true;
	host_connect(h);
	for (int i = 0; i < 2; i++) {
		host_submit_ok(h, &r[i]);
		cmd[i] = *host_taken(h);
		r[i].dead_key = cmd[i].sgl.key;
	}
	cqe.cid = cmd[0].sqe.cid;
	rdma_peer_send(&h->peer, &cqe, sizeof(cqe), cmd[0].sgl.key);
	host_turns(h, 3);
	assert_int_equal(r[0].rc, 0);
	assert_int_equal(r[1].n_done, 0);
	cqe.cid = cmd[for_another].sqe.cid;
	fabric_mem_obey_all(true);
	rdma_peer_send(&h->peer, &cqe, sizeof(cqe), cmd[0].sgl.key);
	host_turns(h, 3);
	fabric_mem_obey_all(false);
	host_assert_failed(h, for_another ? "found another" : "expected a command in flight");
	assert_int_equal(r[0].n_done, 1);
	assert_int_equal(r[1].rc, -EREMOTEIO);
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
}

static void rdma_queue__an_invalidation_that_comes_twice_ends_it(void **state)
{
	invalidate_again(*state, false);
	invalidate_again(*state, true);
}

static void rdma_queue__an_invalidation_of_a_standing_key_ends_it(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 0, 0, 8192);
	struct rdma_peer_cmd *cmd;
	struct nvme_cqe cqe = {0};

	h->o.keys_per_command = false;
	h->o.remote_invalidate = true; /* only for keys of one command */
	host_connect(h);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	assert_int_equal(cmd->sgl.type, NVME_SGL_KEYED);
	r.dead_key = cmd->sgl.key;
	cqe.cid = cmd->sqe.cid;
	rdma_peer_send(&h->peer, &cqe, sizeof(cqe), cmd->sgl.key);
	host_turns(h, 3);
	host_assert_failed(h, "expected none, it was not asked to");
	assert_int_equal(r.rc, -EREMOTEIO);
}

/* ---- garbage while it connects ---- */

static const struct garbage {
	const char *words;
	bool rejects;
	uint32_t len;
	uint8_t data[FABRIC_PRIVATE_MAX];
} garbage[] = {
	{"0 bytes of private data: expected 32", false, 0, {0}},
	{"31 bytes of private data: expected 32", false, 31, {0}},
	{"private data of format 1: expected 0", false, 32, {1}},
	{"private data of format 65535: expected 0", false, 56, {0xff, 0xff, 0xff, 0xff}},
	{"a receive queue of 0 entries", false, 32, {0}},
	{"refused the connection", true, 0, {0}},
	{"refused the connection", true, 3, {0, 0, 4}},
	{"refused the connection", true, 4, {1, 0, 4, 0}},
	{"refused the connection", true, 4, {0, 0, 0, 0}},
	{"refused the connection", true, 4, {0, 0, 0xff, 0xff}},
	{"refused the connection", true, 56, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
};

static void rdma_queue__garbage_of_an_accept_or_a_reject_ends_it_with_words(void **state)
{
	struct host *h = *state;

	for (uint32_t i = 0; i < ARRAY_SIZE(garbage); i++) {
		const struct garbage *g = &garbage[i];

		h->peer.says = g->data;
		h->peer.says_len = g->len;
		h->peer.reject = g->rejects;
		host_begin(h);
		host_turns(h, 6);
		host_assert_failed(h, g->words);
		if (!g->rejects)
			assert_true(nvmf_queue_lied(h->ops->fault(h->q)));
		h->ops->free(TAKE_PTR(h->q));
		rdma_peer_run(&h->peer);
	}
	/* the control: what it should say makes it work */
	h->peer.says = NULL;
	h->peer.reject = 0;
	host_connect(h);
}

/* ---- a hostile target's answers ---- */

struct lie {
	const char *words;
	void (*tell)(struct host *h, struct rdma_peer_cmd *cmd);
};

static struct nvme_cqe honest(struct host *h, const struct rdma_peer_cmd *cmd)
{
	return (struct nvme_cqe){.cid = cmd->sqe.cid, .sq_head = (uint16_t)h->peer.sq_head};
}

static void tell_unknown(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	c.cid = 0xffff;
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_another_generation(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	c.cid = (uint16_t)(c.cid + 16); /* the same place, later */
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_a_free_place(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	c.cid ^= 8;
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_twice(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_late_twice(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
	host_turns(h, 3);
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_head(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	c.sq_head = 17;
	rdma_peer_send(&h->peer, &c, sizeof(c), 0);
}

static void tell_short(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	rdma_peer_send(&h->peer, &c, 15, 0);
}

static void tell_nothing(struct host *h, struct rdma_peer_cmd *cmd)
{
	struct nvme_cqe c = honest(h, cmd);

	rdma_peer_send(&h->peer, &c, 0, 0);
}

static void leave(struct host *h, struct rdma_peer_cmd *cmd)
{
	fabric_conn_free(TAKE_PTR(h->peer.conn));
}

static const struct lie lies[] = {
	{"expected a command in flight, found id 0xffff", tell_unknown},
	{"expected a command in flight", tell_another_generation},
	{"expected a command in flight", tell_a_free_place},
	{"answered before", tell_twice},
	{"expected a command in flight", tell_late_twice},
	{"expected a queue head of 0..16, found 17", tell_head},
	{"expected 16 bytes, found 15", tell_short},
	{"expected 16 bytes, found 0", tell_nothing},
	{"connection ended", leave},
};

static void lie_once(struct host *h, const struct lie *lie, bool per_command)
{
	struct host_req r[2] = {host_io(h, NVME_IO_READ, 0, 0, 8192),
	                        host_io(h, NVME_IO_WRITE, 1, 0, 8192)};
	struct rdma_peer_cmd *cmd[2];
	bool answered = lie->tell == tell_twice || lie->tell == tell_late_twice;

	h->o.keys_per_command = per_command;
	host_connect(h);
	for (int i = 0; i < 2; i++) {
		host_submit_ok(h, &r[i]);
		cmd[i] = host_taken(h);
		r[i].dead_key = i || per_command ? cmd[i]->sgl.key : 0;
	}
	fabric_mem_hold_invalidates(lie->tell == tell_twice);
	lie->tell(h, cmd[0]);
	host_turns(h, 4);
	fabric_mem_hold_invalidates(false);
	host_assert_failed(h, lie->words);
	assert_int_equal(r[0].rc, answered ? 0 : -EREMOTEIO);
	assert_int_equal(r[1].rc, -EREMOTEIO);
	assert_int_equal(host_submit(h, &r[0]), -ENOTCONN);
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
}

static void rdma_queue__names_each_lie_of_a_target_and_ends(void **state)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(lies); i++) {
		lie_once(*state, &lies[i], true);
		lie_once(*state, &lies[i], false);
	}
}

/* ---- keys that are not good ---- */

struct misuse {
	enum fabric_end (*use)(struct host *h, struct rdma_peer_cmd *mine,
	                       struct rdma_peer_cmd *other);
};

static enum fabric_end use_foreign(struct host *h, struct rdma_peer_cmd *a, struct rdma_peer_cmd *b)
{
	return rdma_peer_write(&h->peer, a->sgl.addr, a->sgl.len, a->sgl.key ^ 0x55);
}

static enum fabric_end use_beyond(struct host *h, struct rdma_peer_cmd *a, struct rdma_peer_cmd *b)
{
	return rdma_peer_write(&h->peer, a->sgl.addr + 512, a->sgl.len, a->sgl.key);
}

static enum fabric_end use_before(struct host *h, struct rdma_peer_cmd *a, struct rdma_peer_cmd *b)
{
	return rdma_peer_write(&h->peer, a->sgl.addr - 1, 16, a->sgl.key);
}

static enum fabric_end use_to_read(struct host *h, struct rdma_peer_cmd *a, struct rdma_peer_cmd *b)
{
	return rdma_peer_read(&h->peer, a->sgl.addr, a->sgl.len, a->sgl.key);
}

static enum fabric_end use_to_write(struct host *h, struct rdma_peer_cmd *a,
                                    struct rdma_peer_cmd *b)
{
	return rdma_peer_write(&h->peer, b->sgl.addr, b->sgl.len, b->sgl.key);
}

static enum fabric_end use_for_another(struct host *h, struct rdma_peer_cmd *a,
                                       struct rdma_peer_cmd *b)
{
	return rdma_peer_write(&h->peer, b->sgl.addr, b->sgl.len, a->sgl.key);
}

static enum fabric_end use_later(struct host *h, struct rdma_peer_cmd *a, struct rdma_peer_cmd *b)
{
	struct rdma_peer_cmd mine = *a;

	rdma_peer_answer(&h->peer, &mine, NVME_SC_ABORT_REQUESTED);
	host_turns(h, 2);
	return rdma_peer_write(&h->peer, mine.sgl.addr, mine.sgl.len, mine.sgl.key);
}

static const struct misuse misuses[] = {
	{use_foreign},  {use_beyond},      {use_before}, {use_to_read},
	{use_to_write}, {use_for_another}, {use_later},
};

static void misuse_once(struct host *h, const struct misuse *m)
{
	struct host_req r[2] = {host_io(h, NVME_IO_READ, 0, 4096, 8192),
	                        host_io(h, NVME_IO_WRITE, 1, 4096, 8192)};
	struct rdma_peer_cmd *cmd[2];

	host_connect(h);
	memset(h->slots[0].mem, 0x11, HOST_SLOT);
	memset(h->slots[1].mem, 0x22, HOST_SLOT);
	memset(rdma_peer_payload(&h->peer), 0x33, 65536);
	for (int i = 0; i < 2; i++) {
		host_submit_ok(h, &r[i]);
		cmd[i] = host_taken(h);
		r[i].dead_key = cmd[i]->sgl.key;
	}
	assert_int_not_equal(m->use(h, cmd[0], cmd[1]), FABRIC_END_OK);
	host_turns(h, 3);
	host_assert_failed(h, "a key that was not good");
	assert_int_equal(r[0].rc, m->use == use_later ? 0 : -EREMOTEIO);
	assert_int_equal(r[1].rc, -EREMOTEIO);
	for (uint32_t i = 0; i < HOST_SLOT; i++)
		assert_true(h->slots[0].mem[i] == 0x11 && h->slots[1].mem[i] == 0x22);
	for (uint32_t i = 0; i < 65536; i++)
		assert_int_equal(rdma_peer_payload(&h->peer)[i], 0x33);
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
}

static void rdma_queue__a_key_that_is_not_good_moves_nothing_and_ends_it(void **state)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(misuses); i++)
		misuse_once(*state, &misuses[i]);
}

/* ---- time, and the end ---- */

static void too_late(struct host *h, bool per_command)
{
	struct host_req r = host_io(h, NVME_IO_READ, 0, 0, 8192),
			patient = host_io(h, NVME_IO_READ, 1, 0, 8192);
	struct rdma_peer_cmd *cmd, *other;

	h->o.keys_per_command = per_command;
	host_connect(h);
	memset(h->slots[0].mem, 0, 8192);
	patient.req.timeout_ns = 0;
	host_submit_ok(h, &r);
	host_submit_ok(h, &patient);
	cmd = host_taken(h);
	other = host_taken(h);
	r.dead_key = cmd->sgl.key;
	patient.dead_key = other->sgl.key;
	host_tick(h, HOST_COMMAND_NS - 1);
	assert_int_equal(r.n_done, 0);
	assert_int_equal(h->ops->tick(h->q, h->now_ns), h->now_ns + 1);
	/* the control: until then the same write lands */
	rdma_peer_payload(&h->peer)[0] = 0x77;
	assert_int_equal(rdma_peer_write(&h->peer, cmd->sgl.addr, 1, cmd->sgl.key), FABRIC_END_OK);
	assert_int_equal(h->slots[0].mem[0], 0x77);
	h->slots[0].mem[0] = 0;
	host_tick(h, 1);
	host_assert_failed(h, "had no answer in 1000 ms");
	assert_int_equal(r.rc, -EREMOTEIO);
	assert_int_equal(patient.rc, -EREMOTEIO);
	assert_int_not_equal(rdma_peer_write(&h->peer, cmd->sgl.addr, 8192, cmd->sgl.key),
	                     FABRIC_END_OK);
	for (uint32_t i = 0; i < 8192; i++)
		assert_int_equal(h->slots[0].mem[i], 0);
	h->ops->free(TAKE_PTR(h->q));
	rdma_peer_run(&h->peer);
}

static void rdma_queue__a_command_too_late_kills_its_key_before_it_comes_back(void **state)
{
	too_late(*state, true);
	too_late(*state, false);
}

static void rdma_queue__an_asynchronous_request_may_wait_for_ever(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_ADMIN_ASYNC_EVENT, 0, 0, 0);

	h->o.qid = 0;
	host_connect(h);
	r.req.timeout_ns = 0;
	host_submit_ok(h, &r);
	host_tick(h, 100000 * NS_PER_S);
	assert_int_equal(r.n_done, 0);
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_READY);
	h->ops->kill(h->q, "over");
	assert_int_equal(r.rc, -EREMOTEIO);
}

static void rdma_queue__a_request_waits_for_its_receipt(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_READ, 0, 0, 8192);
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	fabric_mem_hold_invalidates(true);
	host_submit_ok(h, &r);
	cmd = host_taken(h);
	r.dead_key = cmd->sgl.key;
	rdma_peer_serve(&h->peer, cmd, true);
	host_turns(h, 5);
	assert_int_equal(r.n_done, 0);
	assert_int_equal(h->ops->in_flight(h->q), 1);
	fabric_mem_hold_invalidates(false);
	host_turns(h, 2);
	assert_int_equal(r.rc, 0);
}

/* A capsule with its data that has not left, on a device that neither flushes nor destroys: it may
 * leave yet, so its memory is nobody else's. */
static void rdma_queue__a_capsule_that_the_device_keeps_keeps_its_memory(void **state)
{
	struct fabric_mem_counts c;
	struct host *h = *state;
	struct host_req a, w;

	host_connect(h);
	fabric_mem_hold_invalidates(true);
	a = host_io(h, NVME_IO_READ, 0, 0, 4096);
	host_submit_ok(h, &a);
	host_turns(h, 3);
	rdma_peer_serve(&h->peer, host_taken(h), true);
	host_turns(h, 3);
	/* Behind the end of that one's key. */
	w = host_io(h, NVME_IO_WRITE, 1, 0, 512);
	host_submit_ok(h, &w);
	fabric_mem_hang(true);
	h->ops->kill(h->q, "the test ends it");
	host_tick(h, 3 * NS_PER_S);
	fabric_mem_counts(&c);
	assert_int_equal(c.qps_kept, 1);
	assert_int_equal(a.n_done, 1);
	host_tick(h, NS_PER_S);
	assert_int_equal(w.n_done, 0);
	assert_int_equal(h->ops->in_flight(h->q), 1);
	fabric_mem_hang(false);
	fabric_mem_hold_invalidates(false);
	host_tick(h, NS_PER_S);
	assert_int_equal(w.n_done, 1);
	assert_int_equal(w.rc, -EREMOTEIO);
}

static void rdma_queue__kill_gives_back_each_command_as_far_as_it_came(void **state)
{
	for (int by_free = 0; by_free < 2; by_free++) {
		struct host *h = *state;
		struct host_req answered = host_io(h, NVME_IO_READ, 0, 0, 8192),
				out = host_io(h, NVME_IO_READ, 1, 0, 8192),
				small = host_io(h, NVME_IO_WRITE, 2, 0, 512),
				queued = host_io(h, NVME_IO_READ, 3, 0, 8192),
				small_queued = host_io(h, NVME_IO_WRITE, 4, 0, 512);

		host_connect(h);
		fabric_mem_hold_invalidates(true);
		host_submit_ok(h, &answered);
		host_submit_ok(h, &out);
		host_submit_ok(h, &small);
		rdma_peer_serve(&h->peer, host_taken(h), true);
		host_turns(h, 3);
		assert_int_equal(answered.n_done, 0);
		assert_int_equal(host_submit(h, &queued), 0);
		assert_int_equal(host_submit(h, &small_queued), 0);
		if (by_free) {
			h->ops->free(TAKE_PTR(h->q));
		} else {
			h->ops->kill(h->q, "the tenant was revoked");
			host_assert_failed(h, "the tenant was revoked");
			h->ops->free(TAKE_PTR(h->q));
		}
		fabric_mem_hold_invalidates(false);
		assert_int_equal(answered.rc, 0);
		assert_int_equal(out.rc, -EREMOTEIO);
		assert_int_equal(small.rc, -EREMOTEIO);
		assert_int_equal(queued.rc, -ECANCELED);
		assert_int_equal(small_queued.rc, -ECANCELED);
		rdma_peer_run(&h->peer);
		h->peer.taken = h->peer.n_cmds;
	}
}

static void rdma_queue__a_target_without_receives_is_named(void **state)
{
	struct host *h = *state;
	struct host_req r = host_io(h, NVME_IO_FLUSH, 0, 0, 0);

	h->peer.no_receives = 1;
	host_connect(h);
	host_submit_ok(h, &r);
	host_turns(h, 3);
	host_assert_failed(h, "no receive posted");
	assert_int_equal(r.rc, -EREMOTEIO);
}

static void rdma_queue__answers_that_came_before_the_end_count(void **state)
{
	struct host *h = *state;
	struct host_req r[3];
	struct rdma_peer_cmd *cmd;

	host_connect(h);
	for (int i = 0; i < 3; i++) {
		r[i] = host_io(h, NVME_IO_READ, (uint32_t)i, 0, 8192);
		host_submit_ok(h, &r[i]);
	}
	for (int i = 0; i < 2; i++) {
		cmd = host_taken(h);
		r[i].dead_key = cmd->sgl.key;
		rdma_peer_serve(&h->peer, cmd, true);
	}
	fabric_mem_break(h->peer.qp);
	leave(h, NULL);
	host_turns(h, 3);
	assert_int_equal(r[0].rc, 0);
	assert_int_equal(r[1].rc, 0);
	assert_int_equal(r[2].rc, -EREMOTEIO);
	assert_int_equal(h->ops->in_flight(h->q), 0);
}

static void kill_now(struct host_req *r)
{
	struct host *h = r->arg;

	h->ops->kill(h->q, "from done");
}

static void rdma_queue__done_may_kill(void **state)
{
	struct host *h = *state;
	struct host_req r[3];

	host_connect(h);
	for (int i = 0; i < 3; i++) {
		r[i] = host_io(h, NVME_IO_READ, (uint32_t)i, 0, 8192);
		r[i].arg = h;
		host_submit_ok(h, &r[i]);
	}
	r[0].then = kill_now;
	rdma_peer_serve(&h->peer, host_taken(h), true);
	host_turns(h, 3);
	host_assert_failed(h, "from done");
	assert_int_equal(r[0].rc, 0);
	assert_int_equal(r[1].rc, -EREMOTEIO);
	assert_int_equal(r[2].rc, -EREMOTEIO);
}

#define T(name) cmocka_unit_test_setup_teardown(rdma_queue__##name, host_setup, host_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(believes_an_invalidation_that_it_asked_for),
		T(a_target_may_answer_without_the_invalidation),
		T(an_invalidation_of_another_key_ends_it),
		T(an_invalidation_it_did_not_ask_for_ends_it),
		T(an_invalidation_that_comes_twice_ends_it),
		T(an_invalidation_of_a_standing_key_ends_it),
		T(garbage_of_an_accept_or_a_reject_ends_it_with_words),
		T(names_each_lie_of_a_target_and_ends),
		T(a_key_that_is_not_good_moves_nothing_and_ends_it),
		T(a_command_too_late_kills_its_key_before_it_comes_back),
		T(an_asynchronous_request_may_wait_for_ever),
		T(a_request_waits_for_its_receipt),
		T(a_capsule_that_the_device_keeps_keeps_its_memory),
		T(kill_gives_back_each_command_as_far_as_it_came),
		T(a_target_without_receives_is_named),
		T(answers_that_came_before_the_end_count),
		T(done_may_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
