/* SPDX-License-Identifier: Apache-2.0 */
/* See tcp_rig.h. */
#include "tests/nvmf/tcp_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include "tests/await.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* ---- the queue's side ---- */

void rig_on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct rig_req *rr = (struct rig_req *)req;

	rr->done++;
	rr->rc = rc;
	assert_true((rc == 0) == (cqe != NULL));
	if (cqe)
		rr->cqe = *cqe;
	rr->rig->n_done++;
}

static void listen_anywhere(struct rig *r)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r->listener, (void *)&a, sizeof(a)), 0);
	assert_int_equal(listen(r->listener, 16), 0);
}

void rig_init(struct rig *r)
{
	memset(r, 0, sizeof(*r));
	r->ops = &nvmf_tcp_queue_ops;
	r->peer = -1;
	r->ep = epoll_create1(EPOLL_CLOEXEC);
	assert_true(r->ep >= 0);
	r->now_ns = 1000 * NS_PER_S;
	r->depth = 32;
	r->qid = 1;
	r->in_capsule_max = 8192;
	r->transfer_max = 1u << 20;
	r->maxh2c = RIG_MAXH2C;
	listen_anywhere(r);
}

void rig_fini(struct rig *r)
{
	rig_close(r);
	close(r->listener);
	close(r->ep);
}

int rig_setup(void **state)
{
	struct rig *r = malloc(sizeof(*r));

	if (!r)
		return -1;
	rig_init(r);
	*state = r;
	return 0;
}

int rig_teardown(void **state)
{
	rig_fini(*state);
	free(*state);
	return 0;
}

int rig_open(struct rig *r, struct ros2_err *err)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	struct nvmf_queue_opts o = {.peer = (struct sockaddr *)&a,
	                            .qid = r->qid,
	                            .depth = r->depth,
	                            .in_capsule_max = r->in_capsule_max,
	                            .transfer_max = r->transfer_max,
	                            .header_digest = r->header_digest,
	                            .data_digest = r->data_digest,
	                            .epoll_fd = r->ep,
	                            .epoll_word = RIG_WORD,
	                            .connect_timeout_ns = 5 * NS_PER_S,
	                            .now_ns = r->now_ns};

	r->n_done = 0;
	memset(r->reqs, 0, sizeof(r->reqs));
	r->from_peer = (struct pdu_params){.align = 4, .data_max = r->transfer_max};
	r->to_peer = (struct pdu_params){.align = (r->cpda + 1u) * 4, .data_max = 1u << 20};
	assert_int_equal(getsockname(r->listener, (void *)&a, &len), 0);
	return r->ops->open(&o, &r->q, err);
}

void rig_accept(struct rig *r)
{
	int one = 1;

	r->peer = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(r->peer >= 0);
	(void)setsockopt(r->peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void rig_take_icreq(struct rig *r)
{
	struct pdu p = rig_read_pdu(r, NULL, 0);

	assert_int_equal(p.head.type, NVME_TCP_ICREQ);
	assert_int_equal(p.icreq.align, 4);
	assert_int_equal(p.icreq.r2ts_max, 1);
	assert_int_equal(p.icreq.header_digest, r->header_digest);
	assert_int_equal(p.icreq.data_digest, r->data_digest);
}

void rig_send_icresp(struct rig *r)
{
	uint8_t pdu[PDU_SEND_MAX];
	size_t n = pdu_build_icresp(pdu, r->to_peer.align, r->maxh2c, r->header_digest,
	                            r->data_digest);

	rig_send(r, pdu, n, 0);
	r->from_peer.header_digest = r->to_peer.header_digest = r->header_digest;
	r->from_peer.data_digest = r->to_peer.data_digest = r->data_digest;
}

void rig_ready(struct rig *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(rig_open(r, &err), 0);
	rig_accept(r);
	rig_take_icreq(r);
	rig_send_icresp(r);
	rig_until_state(r, NVMF_QUEUE_READY);
}

void rig_close(struct rig *r)
{
	if (r->q)
		r->ops->counters(r->q, &r->counted);
	r->ops->free(TAKE_PTR(r->q));
	if (r->peer >= 0)
		close(TAKE_FD(r->peer));
	for (uint32_t i = 0; i < RIG_REQS; i++)
		assert_true(r->reqs[i].rig == NULL || r->reqs[i].done == 1);
	memset(r->reqs, 0, sizeof(r->reqs));
}

bool rig_turn(struct rig *r, int ms)
{
	struct epoll_event ev;
	int n = epoll_wait(r->ep, &ev, 1, ms);

	if (n <= 0)
		return false;
	assert_int_equal(ev.data.u64, RIG_WORD);
	r->ops->poll(r->q, 64, r->now_ns);
	return true;
}

void rig_until_state(struct rig *r, enum nvmf_queue_state want)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;

	while (r->ops->state(r->q) != want) {
		assert_true(clock_boottime_ns() < until);
		rig_turn(r, 100);
	}
}

void rig_until_done(struct rig *r, uint32_t n_done)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;

	while (r->n_done < n_done) {
		assert_true(clock_boottime_ns() < until);
		assert_string_equal(r->ops->fault(r->q), "");
		rig_turn(r, 100);
	}
	assert_int_equal(r->n_done, n_done);
}

int rig_submit(struct rig *r, uint32_t i, enum nvmf_dir dir, void *buf, uint32_t len)
{
	struct rig_req *rr = &r->reqs[i];
	int rc;

	assert_true(rr->rig == NULL || rr->done == 1);
	*rr = (struct rig_req){.rig = r};
	rr->req.sqe.opcode = dir == NVMF_FROM_TARGET ? NVME_IO_READ
	                     : dir == NVMF_TO_TARGET ? NVME_IO_WRITE
	                                             : NVME_IO_FLUSH;
	if (r->opcode)
		rr->req.sqe.opcode = r->opcode;
	rr->req.sqe.nsid = 1;
	rr->req.sqe.cdw10 = r->cdw10 ? r->cdw10 : i;
	rr->req.dir = dir;
	rr->req.buf = buf;
	rr->req.len = len;
	rr->req.tenant_memory = r->tenant_memory;
	rr->req.timeout_ns = 2 * NS_PER_S;
	rr->req.done = r->on_done ? r->on_done : rig_on_done;
	rc = r->ops->submit(r->q, &rr->req);
	if (rc < 0)
		rr->rig = NULL;
	return rc;
}

void rig_kick(struct rig *r)
{
	assert_int_equal(r->ops->kick(r->q, r->now_ns), 0);
}

/* ---- the target's side ---- */

void rig_read(struct rig *r, void *buf, size_t n)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;
	uint8_t *at = buf;

	while (n > 0) {
		ssize_t got = recvfrom(r->peer, at, n, MSG_DONTWAIT, NULL, NULL);

		assert_true(clock_boottime_ns() < until);
		if (got < 0) {
			assert_int_equal(errno, EAGAIN);
			rig_turn(r, 10);
			continue;
		}
		assert_true(got > 0);
		at += got;
		n -= (size_t)got;
	}
}

void rig_read_nothing(struct rig *r)
{
	uint8_t byte;

	for (int i = 0; i < 3; i++)
		rig_turn(r, 1);
	assert_int_equal(recv(r->peer, &byte, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

struct pdu rig_read_pdu(struct rig *r, void *data, size_t max)
{
	struct ros2_err err = ROS2_ERR_INIT;
	uint8_t bytes[PDU_HEADER_MAX], pad[256], digest[4];
	struct pdu_head head;
	struct pdu p;

	rig_read(r, bytes, PDU_CH_LEN);
	if (pdu_head_parse(bytes, PDU_FROM_HOST, bytes[0] == NVME_TCP_ICREQ, &r->to_peer, &head,
	                   NULL, &err) < 0)
		fail_msg("%s", err.msg);
	rig_read(r, bytes + PDU_CH_LEN, head.header_bytes - PDU_CH_LEN);
	if (pdu_parse(bytes, &head, &p, NULL, &err) < 0)
		fail_msg("%s", err.msg);
	rig_read(r, pad, head.pad);
	assert_true(head.data_len <= max);
	rig_read(r, data, head.data_len);
	if (head.data_digest_len) {
		rig_read(r, digest, sizeof(digest));
		assert_int_equal(pdu_data_digest_check(pdu_data_digest(0, data, head.data_len),
		                                       digest, &err),
		                 0);
	}
	return p;
}

uint16_t rig_read_cmd(struct rig *r, void *data, size_t max)
{
	struct pdu p = rig_read_pdu(r, data, max);

	assert_int_equal(p.head.type, NVME_TCP_CAPSULE_CMD);
	return p.sqe.cid;
}

void rig_send(struct rig *r, const void *bytes, size_t n, size_t piece)
{
	uint64_t until = clock_boottime_ns() + AWAIT_NS;
	const uint8_t *at = bytes;

	while (n > 0 && r->ops->state(r->q) != NVMF_QUEUE_FAILED) {
		size_t now = piece && piece < n ? piece : n;
		ssize_t sent = sendto(r->peer, at, now, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);

		assert_true(clock_boottime_ns() < until);
		if (sent > 0) {
			at += sent;
			n -= (size_t)sent;
		}
		if (piece || sent < 0)
			rig_turn(r, 10);
	}
}

void rig_put_resp(struct rig *r, struct rig_bytes *to, uint16_t cid, uint16_t status)
{
	struct nvme_cqe cqe = {.cid = cid, .sqid = r->qid, .status = (uint16_t)(status << 1)};

	to->n += pdu_build_capsule_resp(to->b + to->n, &cqe, &r->from_peer);
}

void rig_put_data(struct rig *r, struct rig_bytes *to, uint16_t cid, uint32_t offset,
                  const void *data, uint32_t len, uint8_t flags)
{
	to->n += pdu_build_c2h_data(to->b + to->n, cid, offset, len, flags & NVME_TCP_LAST_PDU,
	                            flags & NVME_TCP_SUCCESS, &r->from_peer);
	memcpy(to->b + to->n, data, len);
	to->n += len;
	if (!r->from_peer.data_digest)
		return;
	pdu_data_digest_put(pdu_data_digest(0, data, len), to->b + to->n);
	to->n += NVME_TCP_DIGEST_LEN;
}

void rig_put_r2t(struct rig *r, struct rig_bytes *to, uint16_t cid, uint16_t tag, uint32_t offset,
                 uint32_t len)
{
	to->n += pdu_build_r2t(to->b + to->n, cid, tag, offset, len, &r->from_peer);
}

/* What the queue still sent before it ended the connection: a TermReq at most, at its end. */
static uint16_t read_to_the_end(struct rig *r)
{
	static uint8_t bytes[4u << 20];
	size_t n = 0;

	for (;;) {
		ssize_t got = recv(r->peer, bytes + n, sizeof(bytes) - n, 0);

		if (got <= 0) {
			assert_true(got < 0 && errno == ECONNRESET);
			break;
		}
		n += (size_t)got;
	}
	for (size_t at = n >= NVME_TCP_TERM_MAX ? n - NVME_TCP_TERM_MAX : 0; at + 24 <= n; at++) {
		struct nvme_tcp_term t;

		memcpy(&t, bytes + at, sizeof(t));
		if (t.ch.type == NVME_TCP_H2C_TERM && t.ch.hlen == 24 && t.ch.plen == n - at)
			return t.fes;
	}
	return 0;
}

void rig_expect_fault(struct rig *r, const char *words, uint16_t *ret_fes)
{
	uint16_t fes;

	rig_until_state(r, NVMF_QUEUE_FAILED);
	if (!strstr(r->ops->fault(r->q), words))
		fail_msg("expected \"%s\" in \"%s\"", words, r->ops->fault(r->q));
	for (uint32_t i = 0; i < RIG_REQS; i++)
		assert_true(r->reqs[i].rig == NULL || r->reqs[i].done == 1);
	assert_int_equal(r->ops->in_flight(r->q), 0);
	assert_int_equal(r->ops->poll(r->q, 64, r->now_ns), 0);
	assert_int_equal(r->ops->kick(r->q, r->now_ns), -ENOTCONN);
	assert_true(r->ops->tick(r->q, r->now_ns + 3600 * NS_PER_S) == UINT64_MAX);
	assert_int_equal(rig_submit(r, RIG_REQS - 1, NVMF_NO_DATA, NULL, 0), -ENOTCONN);
	fes = read_to_the_end(r);
	if (ret_fes)
		*ret_fes = fes;
}

struct nvmf_queue_counters rig_counters(const struct rig *r)
{
	struct nvmf_queue_counters c;

	r->ops->counters(r->q, &c);
	return c;
}
