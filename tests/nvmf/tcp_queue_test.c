/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue over NVMe/TCP beside an honest target: every kind of command, bytes in pieces of every
 * size, what is counted, time limits, and its end at every state. Lies: tcp_queue_hostile_test.c.
 */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define BIG (1u << 20)

static uint8_t buf[BIG], got[BIG], want[BIG];
static struct rig_bytes out;

/* ---- commands, one by one ---- */

static void command__without_data_goes_and_its_answer_comes(void **state)
{
	struct rig *r = *state;
	struct pdu p;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	rig_read_nothing(r); /* submit hands nothing on */
	rig_kick(r);
	p = rig_read_pdu(r, NULL, 0);
	assert_int_equal(p.head.type, NVME_TCP_CAPSULE_CMD);
	assert_int_equal(p.sqe.flags, NVME_FLAG_SGL);
	assert_int_equal(p.sqe.nsid, 1);
	assert_int_equal(p.sqe.dptr.sgl.type, NVME_SGL_TRANSPORT);
	assert_int_equal(p.sqe.dptr.sgl.length, 0);
	rig_put_resp(r, &out, p.sqe.cid, NVME_SC_SUCCESS);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 1);
	assert_int_equal(r->reqs[0].rc, 0);
	assert_int_equal(r->reqs[0].cqe.status, 0);
	assert_int_equal(r->reqs[0].cqe.cid, p.sqe.cid);
}

/* A read that comes as @n_pdus PDUs, taken @piece bytes at a time. */
static void read_one(struct rig *r, uint32_t len, uint32_t n_pdus, size_t piece, bool success)
{
	uint32_t each = len / n_pdus;
	struct pdu p;

	memset(buf, 0, len);
	rig_pattern(want, len, (uint8_t)piece);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf, len), 0);
	rig_kick(r);
	p = rig_read_pdu(r, NULL, 0);
	assert_int_equal(p.sqe.dptr.sgl.type, NVME_SGL_TRANSPORT);
	assert_int_equal(p.sqe.dptr.sgl.length, len);
	out.n = 0;
	for (uint32_t i = 0; i < n_pdus; i++) {
		bool last = i == n_pdus - 1;

		rig_put_data(r, &out, p.sqe.cid, i * each, want + i * each,
		             last ? len - i * each : each,
		             last ? NVME_TCP_LAST_PDU | (success ? NVME_TCP_SUCCESS : 0) : 0);
	}
	if (!success)
		rig_put_resp(r, &out, p.sqe.cid, NVME_SC_SUCCESS);
	r->n_done = 0;
	rig_send(r, out.b, out.n, piece);
	rig_until_done(r, 1);
	assert_int_equal(r->reqs[0].rc, 0);
	assert_int_equal(r->reqs[0].cqe.status, 0);
	assert_memory_equal(buf, want, len);
}

static void write_in_capsule(struct rig *r, uint32_t len)
{
	struct pdu p;

	rig_pattern(buf, len, 3);
	assert_int_equal(rig_submit(r, 1, NVMF_TO_TARGET, buf, len), 0);
	rig_kick(r);
	p = rig_read_pdu(r, got, sizeof(got));
	assert_int_equal(p.head.data_len, len);
	assert_int_equal(p.sqe.dptr.sgl.type, NVME_SGL_DATA_OFFSET);
	assert_int_equal(p.sqe.dptr.sgl.addr, 0);
	assert_int_equal(p.sqe.dptr.sgl.length, len);
	assert_memory_equal(got, buf, len);
	out.n = 0;
	rig_put_resp(r, &out, p.sqe.cid, NVME_SC_SUCCESS);
	r->n_done = 0;
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 1);
	assert_int_equal(r->reqs[1].rc, 0);
}

/* The bytes of one R2T, in PDUs of at most MAXH2CDATA. */
static void take_h2c(struct rig *r, uint16_t cid, uint16_t tag, uint32_t offset, uint32_t len)
{
	uint32_t at = 0;

	while (at < len) {
		struct pdu p = rig_read_pdu(r, got + offset + at, sizeof(got) - offset - at);

		assert_int_equal(p.head.type, NVME_TCP_H2C_DATA);
		assert_int_equal(p.data.cid, cid);
		assert_int_equal(p.data.tag, tag);
		assert_int_equal(p.data.offset, offset + at);
		assert_int_equal(p.data.length, MIN(len - at, r->maxh2c));
		at += p.data.length;
		assert_int_equal(p.data.last, at == len);
	}
}

static void write_by_r2t(struct rig *r, uint32_t len, uint32_t each, size_t piece)
{
	uint16_t tag = 0xfff0;
	struct pdu p;

	rig_pattern(buf, len, (uint8_t)len);
	assert_int_equal(rig_submit(r, 2, NVMF_TO_TARGET, buf, len), 0);
	rig_kick(r);
	p = rig_read_pdu(r, NULL, 0);
	assert_int_equal(p.sqe.dptr.sgl.type, NVME_SGL_TRANSPORT);
	assert_int_equal(p.sqe.dptr.sgl.length, len);
	rig_read_nothing(r);
	for (uint32_t at = 0; at < len; at += each, tag++) {
		out.n = 0;
		rig_put_r2t(r, &out, p.sqe.cid, tag, at, MIN(each, len - at));
		rig_send(r, out.b, out.n, piece);
		take_h2c(r, p.sqe.cid, tag, at, MIN(each, len - at));
	}
	assert_memory_equal(got, buf, len);
	out.n = 0;
	rig_put_resp(r, &out, p.sqe.cid, NVME_SC_SUCCESS);
	r->n_done = 0;
	rig_send(r, out.b, out.n, piece);
	rig_until_done(r, 1);
	assert_int_equal(r->reqs[2].rc, 0);
}

static void everything(struct rig *r)
{
	static const size_t pieces[] = {0, 1, 7, 24, 1000};

	rig_ready(r);
	for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
		read_one(r, 512, 1, pieces[i], true);
		read_one(r, 4096, 1, pieces[i], false);
		read_one(r, 4100, 3, pieces[i], true);
		write_by_r2t(r, 20480, 20480, pieces[i]);
		write_by_r2t(r, 40000, 12000, pieces[i]);
	}
	read_one(r, 65536, 4, 333, false);
	read_one(r, BIG, 8, 0, true);
	read_one(r, BIG, 1, 0, false);
	write_in_capsule(r, 1);
	write_in_capsule(r, 512);
	write_in_capsule(r, r->in_capsule_max);
	write_by_r2t(r, r->in_capsule_max + 1, BIG, 0);
	write_by_r2t(r, BIG, BIG, 0);
	write_by_r2t(r, BIG, 65536, 0);
	assert_int_equal(r->ops->in_flight(r->q), 0);
}

static void commands__of_every_kind_in_pieces_of_every_size(void **state)
{
	everything(*state);
}

static void commands__with_a_header_digest(void **state)
{
	struct rig *r = *state;

	r->header_digest = true;
	everything(r);
}

static void commands__with_a_data_digest(void **state)
{
	struct rig *r = *state;

	r->data_digest = true;
	everything(r);
}

static void commands__with_both_digests_and_a_wide_alignment(void **state)
{
	struct rig *r = *state;

	r->header_digest = r->data_digest = true;
	r->cpda = 31;
	r->maxh2c = 4096;
	everything(r);
}

static void commands__with_an_alignment_and_no_digest(void **state)
{
	struct rig *r = *state;

	r->cpda = 15;
	r->maxh2c = 8192;
	everything(r);
}

static void write__of_the_admin_queue_and_of_fabrics_goes_in_the_capsule(void **state)
{
	struct rig *r = *state;

	r->in_capsule_max = 0;
	r->qid = 0;
	rig_ready(r);
	write_in_capsule(r, 8192);
	write_by_r2t(r, 8193, BIG, 0);
	rig_close(r);
	r->qid = 3;
	rig_ready(r);
	write_by_r2t(r, 512, BIG, 0);
	r->opcode = NVME_FABRICS;
	write_in_capsule(r, 1024);
}

static void read__with_an_error_needs_no_data(void **state)
{
	struct rig *r = *state;
	uint16_t cid;

	rig_ready(r);
	for (int with_data = 0; with_data < 2; with_data++) {
		assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf, 4096), 0);
		rig_kick(r);
		cid = rig_read_cmd(r, NULL, 0);
		out.n = 0;
		if (with_data)
			rig_put_data(r, &out, cid, 0, want, 512, 0);
		rig_put_resp(r, &out, cid, NVME_SC_LBA_RANGE);
		r->n_done = 0;
		rig_send(r, out.b, out.n, 0);
		rig_until_done(r, 1);
		assert_int_equal(r->reqs[0].rc, 0);
		assert_int_equal(r->reqs[0].cqe.status >> 1, NVME_SC_LBA_RANGE);
	}
}

static void write__refused_before_its_data_was_asked_for_is_answered(void **state)
{
	struct rig *r = *state;
	uint16_t cid;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_TO_TARGET, buf, 65536), 0);
	rig_kick(r);
	cid = rig_read_cmd(r, NULL, 0);
	out.n = 0;
	rig_put_resp(r, &out, cid, NVME_SC_WRITE_PROTECTED);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 1);
	assert_int_equal(r->reqs[0].cqe.status >> 1, NVME_SC_WRITE_PROTECTED);
	rig_read_nothing(r);
}

/* ---- many at once ---- */

static void commands__of_a_batch_leave_in_one_call_and_come_back_in_any_order(void **state)
{
	struct rig *r = *state;
	struct nvmf_queue_counters c;
	uint16_t cids[32];

	rig_ready(r);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(rig_submit(r, i, NVMF_FROM_TARGET, buf + (size_t)i * 4096, 4096),
		                 0);
	assert_int_equal(rig_submit(r, 32, NVMF_NO_DATA, NULL, 0), -EAGAIN);
	rig_kick(r);
	assert_int_equal(rig_counters(r).calls, 1);
	for (uint32_t i = 0; i < 32; i++)
		cids[i] = rig_read_cmd(r, NULL, 0);
	rig_pattern(want, 32 * 4096, 9);
	out.n = 0;
	for (uint32_t k = 0; k < 32; k++) {
		uint32_t i = k * 13 % 32;

		rig_put_data(r, &out, cids[i], 0, want + (size_t)i * 4096, 4096,
		             NVME_TCP_LAST_PDU | (k & 1 ? NVME_TCP_SUCCESS : 0));
		if (!(k & 1))
			rig_put_resp(r, &out, cids[i], 0);
	}
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 32);
	assert_memory_equal(buf, want, 32 * 4096);
	c = rig_counters(r);
	assert_int_equal(c.submitted, 32);
	assert_int_equal(c.answered, 32);
	assert_int_equal(c.bytes_in, 32 * 4096);
	assert_int_equal(c.bytes_out, 0);
	assert_true(c.copied_bytes <= c.bytes_in);
	assert_int_equal(c.calls, 1);
}

/* Reads whose PDUs come in pieces, among each other. */
static void reads__whose_data_is_interleaved_are_all_right(void **state)
{
	struct rig *r = *state;
	uint16_t cids[4];

	rig_ready(r);
	rig_pattern(want, 4 * 65536, 77);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(rig_submit(r, i, NVMF_FROM_TARGET, buf + (size_t)i * 65536, 65536),
		                 0);
	rig_kick(r);
	for (uint32_t i = 0; i < 4; i++)
		cids[i] = rig_read_cmd(r, NULL, 0);
	out.n = 0;
	for (uint32_t part = 0; part < 16; part++)
		for (uint32_t i = 0; i < 4; i++)
			rig_put_data(r, &out, cids[i], part * 4096,
			             want + (size_t)i * 65536 + part * 4096, 4096,
			             part == 15 ? NVME_TCP_LAST_PDU | NVME_TCP_SUCCESS : 0);
	rig_send(r, out.b, out.n, 5001);
	rig_until_done(r, 4);
	assert_memory_equal(buf, want, 4 * 65536);
}

/* The peer does not read until the socket is full: nothing is lost, nothing blocks. */
static void writes__that_fill_the_socket_go_on_when_there_is_room(void **state)
{
	struct rig *r = *state;
	struct nvmf_queue_counters c;
	uint16_t cids[16];
	uint32_t n = 0;

	r->in_capsule_max = BIG;
	r->depth = 16;
	rig_ready(r);
	rig_pattern(want, BIG, 5);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, want, BIG), 0);
	rig_kick(r);
	assert_true(rig_counters(r).bytes_out < 16ull * BIG);
	for (; n < 16; n++) {
		cids[n] = rig_read_cmd(r, got, sizeof(got));
		assert_memory_equal(got, want, BIG);
	}
	c = rig_counters(r);
	assert_int_equal(c.bytes_out, 16ull * BIG);
	assert_int_equal(c.copied_bytes, 0);
	out.n = 0;
	for (n = 0; n < 16; n++)
		rig_put_resp(r, &out, cids[n], 0);
	rig_send(r, out.b, out.n, 0);
	rig_until_done(r, 16);
}

static void ids__come_back_only_after_many_others(void **state)
{
	static uint8_t seen[65536];
	struct rig *r = *state;

	r->depth = 2;
	rig_ready(r);
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < 2000; i++) {
		uint16_t cid;

		assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
		rig_kick(r);
		cid = rig_read_cmd(r, NULL, 0);
		assert_int_not_equal(cid, 0xffff);
		assert_int_equal(seen[cid]++, 0);
		out.n = 0;
		rig_put_resp(r, &out, cid, 0);
		r->n_done = 0;
		rig_send(r, out.b, out.n, 0);
		rig_until_done(r, 1);
	}
}

static void payload__of_large_reads_is_not_copied(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	for (uint32_t i = 0; i < 8; i++)
		read_one(r, BIG, 8, 0, i & 1);
	assert_int_equal(rig_counters(r).bytes_in, 8ull * BIG);
	assert_true(rig_counters(r).copied_bytes < 8ull * BIG / 100);
}

static void submit__refuses_what_is_not_sound(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, NULL, 512), -EINVAL);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf, 0), -EINVAL);
	assert_int_equal(rig_submit(r, 0, NVMF_TO_TARGET, buf, r->transfer_max + 1), -EINVAL);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 1), -EINVAL);
	assert_int_equal(rig_submit(r, 0, (enum nvmf_dir)7, buf, 512), -EINVAL);
	assert_int_equal(r->ops->in_flight(r->q), 0);
}

/* ---- the beginning ---- */

static void open__refuses_options_that_are_not_sound(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvmf_queue_opts o = {.peer = &(struct sockaddr){.sa_family = AF_UNIX},
	                            .depth = 32,
	                            .transfer_max = 4096,
	                            .epoll_fd = r->ep};

	assert_int_equal(r->ops->open(&o, &r->q, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "address"));
	r->depth = 1;
	assert_int_equal(rig_open(r, &err), -EINVAL);
	r->depth = 1025;
	assert_int_equal(rig_open(r, &err), -EINVAL);
	r->depth = 32;
	r->transfer_max = 0;
	assert_int_equal(rig_open(r, &err), -EINVAL);
	assert_null(r->q);
}

static void connect__to_nobody_fails(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	struct nvmf_queue_opts o = {.peer = (struct sockaddr *)&a,
	                            .depth = 2,
	                            .transfer_max = 4096,
	                            .epoll_fd = r->ep,
	                            .epoll_word = RIG_WORD,
	                            .connect_timeout_ns = NS_PER_S};
	int rc;

	assert_int_equal(getsockname(r->listener, (void *)&a, &len), 0);
	assert_int_equal(shutdown(r->listener, SHUT_RDWR), 0);
	rc = r->ops->open(&o, &r->q, &err);
	if (rc < 0) {
		assert_int_equal(rc, -ECONNREFUSED);
		return;
	}
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_CONNECTING);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), -ENOTCONN);
	rig_until_state(r, NVMF_QUEUE_FAILED);
	assert_non_null(strstr(r->ops->fault(r->q), "cannot be reached"));
}

/* The listener's queue is full, so that SYNs are dropped: what a machine that is gone looks like.
 */
static void connect__that_nobody_takes_has_a_time_limit(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	int fds[8];

	assert_int_equal(getsockname(r->listener, (void *)&a, &len), 0);
	assert_int_equal(listen(r->listener, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(fds[i], (void *)&a, sizeof(a));
	}
	assert_int_equal(rig_open(r, &err), 0);
	assert_int_equal(r->ops->poll(r->q, 64, r->now_ns), 0);
	assert_false(rig_turn(r, 20));
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_CONNECTING);
	r->now_ns += 5 * NS_PER_S;
	assert_true(r->ops->tick(r->q, r->now_ns) == UINT64_MAX);
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_FAILED);
	assert_string_equal(r->ops->fault(r->q), "the target did not take the connection in time");
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

static void connect__has_a_time_limit(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	rig_take_icreq(r);
	assert_int_equal(r->ops->kick(r->q, r->now_ns), -ENOTCONN);
	assert_true(r->ops->tick(r->q, r->now_ns) == r->now_ns + 5 * NS_PER_S);
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_CONNECTING);
	r->now_ns += 5 * NS_PER_S;
	assert_true(r->ops->tick(r->q, r->now_ns) == UINT64_MAX);
	rig_expect_fault(r, "did not answer ICReq in time", NULL);
}

static void icresp__byte_by_byte_makes_it_ready(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t pdu[PDU_SEND_MAX];
	size_t n;

	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	rig_take_icreq(r);
	n = pdu_build_icresp(pdu, 4, 4096, false, false);
	rig_send(r, pdu, n - 1, 1);
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_CONNECTING);
	rig_send(r, pdu + n - 1, 1, 1);
	rig_until_state(r, NVMF_QUEUE_READY);
}

/* ---- time limits ---- */

static void command__overdue_ends_the_queue(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf, 4096), 0);
	rig_kick(r);
	rig_read_cmd(r, NULL, 0);
	r->now_ns += NS_PER_S;
	assert_int_equal(rig_submit(r, 1, NVMF_NO_DATA, NULL, 0), 0);
	r->reqs[1].req.timeout_ns = NS_PER_S / 2;
	rig_kick(r);
	assert_int_equal(rig_submit(r, 2, NVMF_NO_DATA, NULL, 0), 0);
	r->reqs[2].req.timeout_ns = 0;
	/* The nearest, which is not the oldest. */
	assert_true(r->ops->tick(r->q, r->now_ns) == r->now_ns + NS_PER_S / 2);
	assert_true(r->ops->tick(r->q, r->now_ns + NS_PER_S / 2 - 1) == r->now_ns + NS_PER_S / 2);
	assert_int_equal(r->ops->tick(r->q, r->now_ns + NS_PER_S / 2), UINT64_MAX);
	assert_int_equal(r->reqs[0].rc, -EREMOTEIO);
	assert_int_equal(r->reqs[1].rc, -EREMOTEIO);
	assert_int_equal(r->reqs[2].rc, -ECANCELED); /* was not kicked */
	assert_int_equal(rig_counters(r).unknown, 2);
	assert_int_equal(rig_counters(r).cancelled, 1);
	rig_expect_fault(r, "no answer to Flush within 500 ms", NULL);
}

/* The process was stopped; the answer came meanwhile. */
static void command__answered_before_anyone_looked_is_not_overdue(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	rig_kick(r);
	out.n = 0;
	rig_put_resp(r, &out, rig_read_cmd(r, NULL, 0), 0);
	assert_int_equal(send(r->peer, out.b, out.n, 0), (ssize_t)out.n);
	r->now_ns += 3600 * NS_PER_S;
	assert_true(r->ops->tick(r->q, r->now_ns) == UINT64_MAX);
	assert_int_equal(r->reqs[0].rc, 0);
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_READY);
}

static void command__without_a_limit_waits_for_ever(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	r->reqs[0].req.timeout_ns = 0;
	rig_kick(r);
	assert_true(r->ops->tick(r->q, UINT64_MAX - 1) == UINT64_MAX);
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_READY);
}

/* ---- its end ---- */

static void kill__while_connecting(void **state)
{
	struct rig *r = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rig_open(r, &err), 0);
	r->ops->kill(r->q, "tired of it");
	assert_int_equal(r->ops->state(r->q), NVMF_QUEUE_FAILED);
	assert_string_equal(r->ops->fault(r->q), "tired of it");
	r->ops->kill(r->q, "again");
	assert_string_equal(r->ops->fault(r->q), "tired of it");
	rig_accept(r); /* the connection was there before anyone took it */
	rig_close(r);
	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	rig_take_icreq(r);
	r->ops->kill(r->q, NULL);
	rig_expect_fault(r, "ended by this side", NULL);
}

/* One command in each state: not kicked, not sent for want of room, half sent, sent, half
 * received, data asked for. */
static void kill__gives_back_commands_in_every_state(void **state)
{
	struct rig *r = *state;
	uint16_t read, write;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, got, 65536), 0);
	assert_int_equal(rig_submit(r, 1, NVMF_TO_TARGET, buf, BIG), 0);
	rig_kick(r);
	read = rig_read_cmd(r, NULL, 0);
	write = rig_read_cmd(r, NULL, 0);
	out.n = 0;
	rig_put_r2t(r, &out, write, 1, 0, BIG);
	rig_put_data(r, &out, read, 0, want, 4096, 0);
	rig_send(r, out.b, out.n - 1000, 0);
	while (rig_counters(r).bytes_in < 3000)
		rig_turn(r, 100);
	for (uint32_t i = 2; i < 20; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, buf, r->in_capsule_max), 0);
	rig_kick(r);
	assert_int_equal(rig_submit(r, 20, NVMF_NO_DATA, NULL, 0), 0);
	assert_int_equal(r->ops->in_flight(r->q), 21);
	r->ops->kill(r->q, "enough");
	assert_int_equal(r->reqs[0].rc, -EREMOTEIO);
	assert_int_equal(r->reqs[1].rc, -EREMOTEIO);
	assert_int_equal(r->reqs[20].rc, -ECANCELED);
	assert_int_equal(rig_counters(r).unknown + rig_counters(r).cancelled, 21);
	rig_expect_fault(r, "enough", NULL);
}

/* What the kernel still had is gone: the peer gets a reset before the end of it. */
static void kill__discards_what_was_not_sent(void **state)
{
	struct rig *r = *state;
	uint64_t bytes = 0, handed;
	ssize_t n;

	r->in_capsule_max = BIG;
	r->depth = 16;
	rig_ready(r);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(rig_submit(r, i, NVMF_TO_TARGET, buf, BIG), 0);
	rig_kick(r);
	handed = rig_counters(r).bytes_out;
	r->ops->kill(r->q, "revoked");
	while ((n = recv(r->peer, got, sizeof(got), 0)) > 0)
		bytes += (uint64_t)n;
	assert_int_equal(n, -1);
	assert_int_equal(errno, ECONNRESET);
	assert_true(bytes < handed);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(r->reqs[i].rc,
		                 i * (uint64_t)BIG < handed ? -EREMOTEIO : -ECANCELED);
}

static void close__of_the_target_gives_everything_back(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_FROM_TARGET, buf, 4096), 0);
	rig_kick(r);
	rig_read_cmd(r, NULL, 0);
	assert_int_equal(shutdown(r->peer, SHUT_WR), 0);
	rig_until_state(r, NVMF_QUEUE_FAILED);
	assert_int_equal(r->reqs[0].rc, -EREMOTEIO);
	rig_expect_fault(r, "the target closed the connection", NULL);
}

static void free__gives_everything_back(void **state)
{
	struct rig *r = *state;

	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	rig_kick(r);
	assert_int_equal(rig_submit(r, 1, NVMF_NO_DATA, NULL, 0), 0);
	r->ops->free(TAKE_PTR(r->q));
	assert_int_equal(r->reqs[0].rc, -EREMOTEIO);
	assert_int_equal(r->reqs[1].rc, -ECANCELED);
	r->ops->free(NULL);
}

static void on_done_again(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct rig_req *rr = (struct rig_req *)req;
	struct rig *r = rr->rig;

	rr->rc = rc;
	rr->done++;
	r->n_done++;
	if (rc == 0 && rr == &r->reqs[0]) {
		/* Its place is free already; it polls and kicks as others do. */
		assert_int_equal(rig_submit(r, 1, NVMF_NO_DATA, NULL, 0), 0);
		assert_int_equal(r->ops->poll(r->q, 64, r->now_ns), 0);
		rig_kick(r);
	} else if (rc == 0) {
		r->ops->kill(r->q, "from done");
	} else {
		assert_int_equal(r->ops->submit(r->q, req), -ENOTCONN);
	}
}

static void done__may_submit_and_kill(void **state)
{
	struct rig *r = *state;

	r->depth = 2;
	rig_ready(r);
	assert_int_equal(rig_submit(r, 0, NVMF_NO_DATA, NULL, 0), 0);
	assert_int_equal(rig_submit(r, 2, NVMF_NO_DATA, NULL, 0), 0);
	r->reqs[0].req.done = r->reqs[2].req.done = on_done_again;
	rig_kick(r);
	out.n = 0;
	rig_put_resp(r, &out, rig_read_cmd(r, NULL, 0), 0);
	rig_put_resp(r, &out, rig_read_cmd(r, NULL, 0), 0);
	rig_put_resp(r, &out, 0, 0); /* is not looked at any more */
	rig_send(r, out.b, out.n, 0);
	rig_until_state(r, NVMF_QUEUE_FAILED);
	assert_string_equal(r->ops->fault(r->q), "from done");
	assert_int_equal(r->n_done, 3);
	assert_int_equal(r->reqs[1].rc, -EREMOTEIO);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(command__without_data_goes_and_its_answer_comes),
		T(commands__of_every_kind_in_pieces_of_every_size),
		T(commands__with_a_header_digest),
		T(commands__with_a_data_digest),
		T(commands__with_both_digests_and_a_wide_alignment),
		T(commands__with_an_alignment_and_no_digest),
		T(write__of_the_admin_queue_and_of_fabrics_goes_in_the_capsule),
		T(read__with_an_error_needs_no_data),
		T(write__refused_before_its_data_was_asked_for_is_answered),
		T(commands__of_a_batch_leave_in_one_call_and_come_back_in_any_order),
		T(reads__whose_data_is_interleaved_are_all_right),
		T(writes__that_fill_the_socket_go_on_when_there_is_room),
		T(ids__come_back_only_after_many_others),
		T(payload__of_large_reads_is_not_copied),
		T(submit__refuses_what_is_not_sound),
		T(open__refuses_options_that_are_not_sound),
		T(connect__to_nobody_fails),
		T(connect__that_nobody_takes_has_a_time_limit),
		T(connect__has_a_time_limit),
		T(icresp__byte_by_byte_makes_it_ready),
		T(command__overdue_ends_the_queue),
		T(command__answered_before_anyone_looked_is_not_overdue),
		T(command__without_a_limit_waits_for_ever),
		T(kill__while_connecting),
		T(kill__gives_back_commands_in_every_state),
		T(kill__discards_what_was_not_sent),
		T(close__of_the_target_gives_everything_back),
		T(free__gives_everything_back),
		T(done__may_submit_and_kill),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
