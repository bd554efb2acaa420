/* SPDX-License-Identifier: Apache-2.0 */
/* The least host: see host.h. */
#include "tests/nvmf/host.h"

#include "common/clock.h"
#include "dataplane/nvmf/codec.h"
#include "tests/await.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define GUARD 64u
#define OPS   (&nvmf_tcp_queue_ops)
/* One that waits beside others on a slow machine must not be taken for dead, and sends nothing. */
#define KEEP_ALIVE_MS 3600000u
#define TIMEOUT_MS    30000u

static void done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct host_req *r = (struct host_req *)req;

	r->done++;
	r->rc = rc;
	if (rc == 0)
		r->cqe = *cqe;
}

const char *host_words(struct host *h)
{
	const char *io = h->io ? OPS->fault(h->io) : "",
		   *admin = h->admin ? OPS->fault(h->admin) : "";

	snprintf(h->words, sizeof(h->words), "%s%s%s", io, *io && *admin ? "; " : "", admin);
	return h->words;
}

static void turn(struct host *h)
{
	uint64_t next = UINT64_MAX, now = clock_boottime_ns();
	struct epoll_event ev[4];
	struct nvmf_queue *qs[] = {h->admin, h->io};

	for (unsigned i = 0; i < ARRAY_SIZE(qs); i++)
		if (qs[i])
			next = MIN(next, OPS->tick(qs[i], now));
	next = MIN(next, now + 100 * NS_PER_MS);
	epoll_wait(h->epoll_fd, ev, ARRAY_SIZE(ev),
	           next > now ? (int)((next - now) / NS_PER_MS + 1) : 0);
	now = clock_boottime_ns();
	for (unsigned i = 0; i < ARRAY_SIZE(qs); i++) {
		if (!qs[i])
			continue;
		OPS->poll(qs[i], 64, now);
		OPS->tick(qs[i], now);
	}
}

static int submit(struct host *h, struct nvmf_queue *q, struct host_req *r,
                  const struct nvme_sqe *sqe, enum nvmf_dir dir, void *buf, uint32_t len)
{
	*r = (struct host_req){.host = h,
	                       .req = {.sqe = *sqe,
	                               .dir = dir,
	                               .buf = buf,
	                               .len = len,
	                               .tenant_memory = h->tenant_memory && q == h->io,
	                               .timeout_ns = h->timeout_ms * NS_PER_MS,
	                               .done = done}};
	return OPS->submit(q, &r->req);
}

/* Until all of these came back. -ETIME: one never does, which is the queue's fault. */
static int wait_all(struct host *h, struct host_req *r, unsigned n)
{
	uint64_t end = clock_boottime_ns() + AWAIT_NS;

	for (unsigned i = 0; i < n; i++)
		while (!r[i].done)
			if (turn(h), clock_boottime_ns() > end)
				return -ETIME;
	for (unsigned i = 0; i < n; i++)
		if (r[i].done != 1)
			return -EALREADY;
	return 0;
}

int host_run(struct host *h, struct nvmf_queue *q, const struct nvme_sqe *sqe, enum nvmf_dir dir,
             void *buf, uint32_t len, struct nvme_cqe *ret_cqe)
{
	struct host_req *r = &h->reqs[0];
	int rc = submit(h, q, r, sqe, dir, buf, len);

	if (rc)
		return rc;
	OPS->kick(q, clock_boottime_ns());
	rc = wait_all(h, r, 1);
	if (rc)
		return rc;
	if (r->rc == 0)
		*ret_cqe = r->cqe;
	return r->rc;
}

static int queue_open(struct host *h, const struct host_opts *o, uint16_t qid,
                      struct nvmf_queue **ret)
{
	struct sockaddr_in peer = {.sin_family = AF_INET,
	                           .sin_port = htons(o->port),
	                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct nvmf_queue_opts qo = {
		.peer = (const struct sockaddr *)&peer,
		.qid = qid,
		.cntlid = qid ? h->cntlid : 0xffff,
		.depth = qid ? HOST_DEPTH : 4,
		.in_capsule_max = h->in_capsule,
		.transfer_max = h->transfer_max,
		.header_digest = o->digests,
		.data_digest = o->digests,
		.epoll_fd = h->epoll_fd,
		.connect_timeout_ns = h->timeout_ms * NS_PER_MS,
		.now_ns = clock_boottime_ns(),
	};
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t end = clock_boottime_ns() + AWAIT_NS;
	int rc = OPS->open(&qo, ret, &err);

	if (rc)
		return rc;
	while (OPS->state(*ret) == NVMF_QUEUE_CONNECTING)
		if (turn(h), clock_boottime_ns() > end)
			return -ETIME;
	return OPS->state(*ret) == NVMF_QUEUE_READY ? 0 : -ENOTCONN;
}

static int command(struct host *h, struct nvmf_queue *q, const struct nvme_sqe *sqe,
                   enum nvmf_dir dir, void *buf, uint32_t len, struct nvme_cqe *cqe)
{
	int rc = host_run(h, q, sqe, dir, buf, len, cqe);

	return rc ? rc : cqe->status >> 1 ? -EREMOTE : 0;
}

static int connect_queue(struct host *h, const struct host_opts *o, struct nvmf_queue *q,
                         uint16_t qid)
{
	static const uint8_t hostid[16] = {1, 2, 3};
	struct nvme_connect_data data;
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	int rc = nvme_connect_data_fill(&data, hostid, qid ? h->cntlid : 0xffff, o->nqn,
	                                o->host_nqn);

	if (rc)
		return rc;
	nvme_cmd_connect(&sqe, qid, (qid ? HOST_DEPTH : 4) + 1, qid ? o->cattr : 0,
	                 qid ? 0 : KEEP_ALIVE_MS);
	rc = command(h, q, &sqe, NVMF_TO_TARGET, &data, sizeof(data), &cqe);
	if (!rc && !qid)
		h->cntlid = le16toh((uint16_t)cqe.dw0);
	return rc;
}

static int enable(struct host *h)
{
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	int rc;

	nvme_cmd_property_set(&sqe, NVME_PROP_CC, NVME_CC_EN | NVME_CC_IOSQES | NVME_CC_IOCQES);
	rc = command(h, h->admin, &sqe, NVMF_NO_DATA, NULL, 0, &cqe);
	for (int i = 0; !rc && i < 1000; i++) {
		nvme_cmd_property_get(&sqe, NVME_PROP_CSTS);
		rc = command(h, h->admin, &sqe, NVMF_NO_DATA, NULL, 0, &cqe);
		if (!rc && nvme_property_value(&cqe, NVME_PROP_CSTS) & NVME_CSTS_RDY)
			return 0;
	}
	return rc ? rc : -ETIME;
}

static int identify(struct host *h, const char *nqn)
{
	uint8_t *data = h->buf + GUARD;
	struct nvme_controller c;
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	nvme_cmd_identify(&sqe, NVME_CNS_CONTROLLER, 0);
	rc = command(h, h->admin, &sqe, NVMF_FROM_TARGET, data, 4096, &cqe);
	if (!rc)
		rc = nvme_controller_parse(data, h->cntlid, nqn, 4096, &c, &err);
	if (!rc) {
		h->in_capsule = c.in_capsule_bytes;
		h->transfer_max = (uint32_t)MIN(c.max_transfer, (uint64_t)HOST_LEN);
	}
	return rc;
}

int host_open(struct host *h, const struct host_opts *o)
{
	int rc;

	*h = (struct host){.timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_MS,
	                   .digests = o->digests,
	                   .transfer_max = 4096};
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->buf = malloc(HOST_DEPTH * (size_t)(HOST_LEN + 2 * GUARD));
	if (h->epoll_fd < 0 || !h->buf)
		return -ENOMEM;
	memset(h->buf, 0x5a, HOST_DEPTH * (size_t)(HOST_LEN + 2 * GUARD));
	rc = queue_open(h, o, 0, &h->admin);
	if (!rc)
		rc = connect_queue(h, o, h->admin, 0);
	if (!rc)
		rc = enable(h);
	if (!rc)
		rc = identify(h, o->nqn);
	if (!rc)
		rc = queue_open(h, o, 1, &h->io);
	return rc ? rc : connect_queue(h, o, h->io, 1);
}

void host_close(struct host *h)
{
	OPS->free(h->io);
	OPS->free(h->admin);
	if (h->epoll_fd > 0)
		close(h->epoll_fd);
	free(h->buf);
	*h = (struct host){.epoll_fd = -1};
}

static uint8_t *slot(struct host *h, unsigned i)
{
	return h->buf + i * (size_t)(HOST_LEN + 2 * GUARD) + GUARD;
}

static uint8_t pattern(const struct host *h, unsigned i, uint32_t at)
{
	return (uint8_t)(at * 31 + at / 251 + i * 67 + h->seed);
}

static bool slots_are_right(struct host *h, uint32_t len)
{
	for (unsigned i = 0; i < HOST_DEPTH; i++) {
		const uint8_t *p = slot(h, i);

		for (uint32_t at = 0; at < len; at++)
			if (p[at] != pattern(h, i, at))
				return false;
		for (uint32_t at = 1; at <= GUARD; at++)
			if (*(p - at) != 0x5a || p[HOST_LEN + at - 1] != 0x5a)
				return false;
	}
	return true;
}

/* HOST_DEPTH commands of @len bytes at once, each on its own blocks. */
static int batch(struct host *h, bool write, uint32_t len)
{
	struct nvme_sqe sqe;
	int rc;

	for (unsigned i = 0; i < HOST_DEPTH; i++) {
		if (write)
			nvme_cmd_write(&sqe, 1, i * (HOST_LEN / 512), len / 512, false);
		else
			nvme_cmd_read(&sqe, 1, i * (HOST_LEN / 512), len / 512);
		rc = submit(h, h->io, &h->reqs[i], &sqe, write ? NVMF_TO_TARGET : NVMF_FROM_TARGET,
		            slot(h, i), len);
		if (rc)
			return rc;
	}
	OPS->kick(h->io, clock_boottime_ns());
	rc = wait_all(h, h->reqs, HOST_DEPTH);
	for (unsigned i = 0; !rc && i < HOST_DEPTH; i++)
		rc = h->reqs[i].rc ? h->reqs[i].rc : h->reqs[i].cqe.status >> 1 ? -EREMOTE : 0;
	return rc;
}

static int write_read_compare(struct host *h, uint32_t len)
{
	int rc;

	h->seed++;
	for (unsigned i = 0; i < HOST_DEPTH; i++)
		for (uint32_t at = 0; at < len; at++)
			slot(h, i)[at] = pattern(h, i, at);
	rc = batch(h, true, len);
	if (rc)
		return rc;
	for (unsigned i = 0; i < HOST_DEPTH; i++)
		memset(slot(h, i), 0, len);
	rc = batch(h, false, len);
	return rc ? rc : slots_are_right(h, len) ? 0 : -EILSEQ;
}

int host_scenario(struct host *h)
{
	struct nvme_sqe sqe;
	struct nvme_cqe cqe;
	int rc = write_read_compare(h, HOST_SMALL);

	if (!rc)
		rc = write_read_compare(h, HOST_LEN);
	if (rc)
		return rc;
	nvme_cmd_flush(&sqe, 1);
	return command(h, h->io, &sqe, NVMF_NO_DATA, NULL, 0, &cqe);
}
