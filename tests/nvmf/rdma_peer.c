// SPDX-License-Identifier: Apache-2.0
#include "tests/nvmf/rdma_peer.h"
#include "common/clock.h"
#include "common/util.h"
#include "tests/await.h"
#include "tests/testing.h"
#include <arpa/inet.h>

#define SENDS        64u
#define RECVS_AT     PEER_BYTES
#define SENDS_AT     (RECVS_AT + PEER_DEPTH * PEER_CAPSULE)
#define MEMORY       (SENDS_AT + SENDS * 64u)
#define COOKIE_RECV  0x100000000ull
#define COOKIE_OTHER 1u

uint8_t rdma_peer_pattern(uint32_t seed, uint32_t at)
{
	return (uint8_t)(seed * 31 + at * 7 + (at >> 8) + 1);
}

uint8_t *rdma_peer_payload(struct rdma_peer *p)
{
	return p->mem;
}

void rdma_peer_open(struct rdma_peer *p, struct fabric_dev *dev, const char *host)
{
	struct fabric_pd_opts caps = {64u << 20, 64, 64, 4};
	struct fabric_set_opts so = {.cookie = 77, .cq_depth = 1024, .qps_max = 4};
	struct fabric_region_opts ro = {.length = MEMORY};
	struct sockaddr_in at = {.sin_family = AF_INET};

	*p = (struct rdma_peer){0};
	inet_pton(AF_INET, host, &at.sin_addr);
	assert_int_equal(fabric_pd_new(dev, &caps, &p->pd, NULL), 0);
	assert_int_equal(fabric_channel_new(dev, &p->channel, NULL), 0);
	assert_int_equal(fabric_set_new(p->pd, p->channel, &so, &p->set, NULL), 0);
	ro.addr = p->mem = aligned_alloc(4096, (MEMORY + 4095) & ~4095u);
	memset(p->mem, 0, MEMORY);
	assert_int_equal(fabric_region_new(p->pd, &ro, &p->region, NULL), 0);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &p->cm, NULL), 0);
	assert_int_equal(fabric_listen(p->cm, (struct sockaddr *)&at, 8, &p->listener, NULL), 0);
	p->port = fabric_listener_port(p->listener);
}

static void drop(struct rdma_peer *p)
{
	fabric_conn_free(TAKE_PTR(p->conn));
	fabric_qp_free(TAKE_PTR(p->qp));
}

void rdma_peer_close(struct rdma_peer *p)
{
	drop(p);
	fabric_listener_free(p->listener);
	fabric_cm_free(p->cm);
	assert_int_equal(fabric_set_free(p->set), 0);
	assert_int_equal(fabric_region_free(p->region), 0);
	fabric_channel_free(p->channel);
	assert_int_equal(fabric_pd_free(p->pd), 0);
	free(p->mem);
}

static int post_receive(struct rdma_peer *p, struct fabric_qp *qp, uint32_t i)
{
	struct fabric_part part = {
		.region = p->region, .offset = RECVS_AT + i * PEER_CAPSULE, .length = PEER_CAPSULE};
	struct fabric_wr wr = {.cookie = COOKIE_RECV | i, .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

static int post_all(void *arg, struct fabric_qp *qp)
{
	struct rdma_peer *p = arg;
	int rc = 0;

	for (uint32_t i = 0; i < PEER_DEPTH && rc == 0 && !p->no_receives; i++)
		rc = post_receive(p, qp, i);
	return rc == 0 ? fabric_qp_flush(qp, clock_boottime_ns()) : rc;
}

static void asked(struct rdma_peer *p, const struct fabric_conn_event *e)
{
	struct nvme_rdma_accept yes = {0};
	struct nvme_rdma_reject no = {.sts = p->reject};
	struct fabric_conn_private garbage = {p->says, p->says_len};
	struct fabric_conn_opts o = {
		.qp = {.send_depth = SENDS, .recv_depth = PEER_DEPTH, .reads_out = 16},
		.hello = {&yes, sizeof(yes)},
		.prepare = post_all,
		.arg = p};

	memcpy(&p->hello, e->data, MIN(e->data_len, sizeof(p->hello)));
	p->n_requests++;
	drop(p);
	p->conn = e->conn;
	if (p->silent)
		return;
	if (p->reject) {
		fabric_conn_reject(e->conn,
		                   p->says ? &garbage
		                           : &(struct fabric_conn_private){&no, sizeof(no)});
		return;
	}
	yes.crqsize = p->crqsize ? p->crqsize : p->hello.hsqsize + 1;
	if (p->says)
		o.hello = garbage;
	/* a host that has gone meanwhile cannot be accepted */
	(void)fabric_conn_accept(e->conn, p->set, &o, &p->qp, NULL);
}

static void on_event(void *arg, const struct fabric_conn_event *e)
{
	struct rdma_peer *p = arg;

	if (e->kind == FABRIC_CONN_EVENT_REQUEST)
		asked(p, e);
}

static void came(struct rdma_peer *p, const struct fabric_completion *e)
{
	uint32_t i = (uint32_t)e->cookie;
	const uint8_t *at = p->mem + RECVS_AT + (size_t)i * PEER_CAPSULE;
	struct rdma_peer_cmd *cmd = &p->cmds[p->n_cmds++ % PEER_COMMANDS];

	assert_true(e->bytes >= 64 && p->n_cmds - p->taken <= PEER_COMMANDS);
	memcpy(&cmd->sqe, at, 64);
	cmd->data_len = e->bytes - 64;
	memcpy(cmd->data, at + 64, cmd->data_len);
	assert_int_equal(nvme_sgl_parse(&cmd->sqe, &cmd->sgl, NULL), 0);
	p->sq_head = (p->sq_head + 1) % (p->hello.hsqsize + 1u);
	assert_true(post_receive(p, p->qp, i) == 0 || p->may_fail);
	assert_true(fabric_qp_flush(p->qp, clock_boottime_ns()) == 0 || p->may_fail);
}

void rdma_peer_run(struct rdma_peer *p)
{
	struct fabric_completion e[16];
	int n;

	fabric_cm_events(p->cm, on_event, p);
	while ((n = fabric_set_poll(p->set, e, 16)) > 0)
		for (int i = 0; i < n; i++) {
			if (e[i].cookie & COOKIE_RECV) {
				if (e[i].end == FABRIC_END_OK && e[i].qp == p->qp)
					came(p, &e[i]);
				continue;
			}
			p->ends++;
			p->bad_ends += e[i].end != FABRIC_END_OK;
			if (e[i].cookie == COOKIE_OTHER)
				p->last_end = e[i].end;
		}
}

struct rdma_peer_cmd *rdma_peer_take(struct rdma_peer *p)
{
	rdma_peer_run(p);
	return p->taken == p->n_cmds ? NULL : &p->cmds[p->taken++ % PEER_COMMANDS];
}

static enum fabric_end transfer(struct rdma_peer *p, bool write, uint64_t addr, uint32_t len,
                                uint32_t key)
{
	struct fabric_part part = {.region = p->region, .length = len};
	struct fabric_wr wr = {.cookie = COOKIE_OTHER,
	                       .parts = &part,
	                       .n_parts = 1,
	                       .remote_address = addr,
	                       .remote_key = key};
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;
	uint32_t before = p->ends;

	if ((write ? fabric_write(p->qp, &wr) : fabric_read(p->qp, &wr)) < 0 ||
	    fabric_qp_flush(p->qp, clock_boottime_ns()) < 0)
		return FABRIC_END_FLUSHED;
	p->last_end = FABRIC_END_DEVICE;
	while (p->ends == before && clock_monotonic_ns() < until)
		rdma_peer_run(p);
	return p->last_end;
}

enum fabric_end rdma_peer_write(struct rdma_peer *p, uint64_t addr, uint32_t len, uint32_t key)
{
	return transfer(p, true, addr, len, key);
}

enum fabric_end rdma_peer_read(struct rdma_peer *p, uint64_t addr, uint32_t len, uint32_t key)
{
	return transfer(p, false, addr, len, key);
}

void rdma_peer_send(struct rdma_peer *p, const struct nvme_cqe *cqe, uint32_t len,
                    uint32_t invalidate)
{
	static uint32_t place;
	uint64_t at = SENDS_AT + (uint64_t)(place++ % SENDS) * 64u;
	struct fabric_part part = {.region = p->region, .offset = at, .length = len};
	struct fabric_wr wr = {.cookie = 0,
	                       .parts = &part,
	                       .n_parts = len ? 1 : 0,
	                       .remote_key = invalidate,
	                       .flags = invalidate ? FABRIC_REMOTE_INVALIDATE : 0};

	memset(p->mem + at, 0, 64);
	memcpy(p->mem + at, cqe, sizeof(*cqe));
	if (fabric_send(p->qp, &wr) == 0)
		(void)fabric_qp_flush(p->qp, clock_boottime_ns());
}

void rdma_peer_answer(struct rdma_peer *p, const struct rdma_peer_cmd *cmd, uint16_t status)
{
	struct nvme_cqe cqe = {.sq_head = (uint16_t)p->sq_head,
	                       .cid = cmd->sqe.cid,
	                       .status = (uint16_t)(status << 1)};

	rdma_peer_send(p, &cqe, sizeof(cqe), 0);
}

void rdma_peer_serve(struct rdma_peer *p, const struct rdma_peer_cmd *cmd, bool io)
{
	uint8_t op = cmd->sqe.opcode;
	bool to_us = io ? op == NVME_IO_WRITE || op == NVME_IO_DSM : op == NVME_FABRICS;
	uint8_t *payload = rdma_peer_payload(p);

	if (cmd->sgl.type == NVME_SGL_DATA_OFFSET) {
		assert_int_equal(cmd->data_len, cmd->sgl.len);
		memcpy(payload, cmd->data, cmd->data_len);
	} else if (cmd->sgl.len && to_us) {
		assert_int_equal(rdma_peer_read(p, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key),
		                 FABRIC_END_OK);
	} else if (cmd->sgl.len) {
		for (uint32_t i = 0; i < cmd->sgl.len; i++)
			payload[i] = rdma_peer_pattern(cmd->sqe.cdw10, i);
		assert_int_equal(rdma_peer_write(p, cmd->sgl.addr, cmd->sgl.len, cmd->sgl.key),
		                 FABRIC_END_OK);
	}
	rdma_peer_answer(p, cmd, NVME_SC_SUCCESS);
}
