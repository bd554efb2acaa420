// SPDX-License-Identifier: Apache-2.0
/*
 * What the queue over NVMe/RDMA costs for each command, in ns of this machine, with the real
 * dataplane/fabric against the stub in the place of libibverbs: its checks, its key and its work
 * requests alone (submit), and all it does (with kick, poll, and the stub, so an upper bound). Not
 * a test: run it from a release build (preset guest) on an idle machine.
 */
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/nvmf/queue.h"
#include "tests/fabric/verbs_stub.h"
#include "tests/nvmf/rdma_peer.h"
#include "tests/testing.h"
#include <arpa/inet.h>
#include <sys/epoll.h>

#define ROUNDS 2000
#define DEPTH  16u
#define LEN    4096u

static const struct nvmf_queue_ops *const ops = &nvmf_rdma_queue_ops;
static struct rdma_peer peer;
static uint32_t n_done;

struct host {
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_region *region;
	uint8_t *mem;
	struct nvmf_queue *q;
	struct nvmf_req req[DEPTH];
	int epoll_fd;
};

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	assert_int_equal(rc, 0);
	n_done++;
}

static void open_host(struct host *h, bool per_command)
{
	struct fabric_pd_opts caps = {64u << 20, 512, 2048, 8};
	struct fabric_region_opts ro = {.length = DEPTH * LEN, .bindable = true};
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct nvmf_queue_opts o = {.peer = (struct sockaddr *)&at,
	                            .qid = 1,
	                            .cntlid = 5,
	                            .depth = DEPTH,
	                            .transfer_max = LEN,
	                            .keys_per_command = per_command,
	                            .connect_timeout_ns = 3 * NS_PER_S,
	                            .now_ns = clock_boottime_ns()};
	char names[1][FABRIC_NAME_MAX];
	uint32_t n;

	stub_reset();
	assert_int_equal(fabric_list(names, 1, &n, NULL), 0);
	assert_int_equal(fabric_dev_open(names[0], &h->dev, NULL), 0);
	assert_int_equal(fabric_pd_new(h->dev, &caps, &h->pd, NULL), 0);
	rdma_peer_open(&peer, h->dev, "127.0.0.1");
	inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
	at.sin_port = htons(peer.port);
	ro.addr = h->mem = aligned_alloc(LEN, DEPTH * LEN);
	assert_int_equal(fabric_region_new(h->pd, &ro, &h->region, NULL), 0);
	o.pd = h->pd;
	o.epoll_fd = h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(ops->open(&o, &h->q, NULL), 0);
	for (int i = 0; i < 20 && ops->state(h->q) == NVMF_QUEUE_CONNECTING; i++) {
		rdma_peer_run(&peer);
		ops->poll(h->q, DEPTH, clock_boottime_ns());
	}
	assert_int_equal(ops->state(h->q), NVMF_QUEUE_READY);
	for (uint32_t i = 0; i < DEPTH; i++)
		h->req[i] = (struct nvmf_req){.sqe = {.opcode = NVME_IO_READ, .nsid = 1},
		                              .dir = NVMF_FROM_TARGET,
		                              .buf = h->mem + i * LEN,
		                              .len = LEN,
		                              .region = h->region,
		                              .timeout_ns = NS_PER_S,
		                              .done = on_done};
}

static void close_host(struct host *h)
{
	ops->free(h->q);
	rdma_peer_close(&peer);
	assert_int_equal(fabric_region_free(h->region), 0);
	assert_int_equal(fabric_pd_free(h->pd), 0);
	assert_int_equal(fabric_dev_close(h->dev), 0);
	close(h->epoll_fd);
	free(h->mem);
}

/* ns for one, the best of all rounds: what disturbs makes it only longer. */
static void measure(const char *name, bool per_command)
{
	double best_submit = 1e9, best_all = 1e9;
	struct host h = {0};

	open_host(&h, per_command);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start = clock_monotonic_ns(), submitted, kicked, answered;

		n_done = 0;
		for (uint32_t n = 0; n < DEPTH; n++)
			assert_int_equal(ops->submit(h.q, &h.req[n]), 0);
		submitted = clock_monotonic_ns();
		assert_int_equal(ops->kick(h.q, submitted), 0);
		kicked = clock_monotonic_ns();
		for (uint32_t n = 0; n < DEPTH; n++)
			rdma_peer_serve(&peer, rdma_peer_take(&peer), true);
		answered = clock_monotonic_ns();
		for (int n = 0; n < 8 && n_done < DEPTH; n++)
			ops->poll(h.q, DEPTH, answered);
		assert_int_equal(n_done, DEPTH);
		best_submit = MIN(best_submit, (double)(submitted - start) / DEPTH);
		best_all = MIN(best_all,
		               (double)(kicked - start + clock_monotonic_ns() - answered) / DEPTH);
	}
	close_host(&h);
	printf("%-22s %8.1f ns checked and queued %8.1f ns with its end, and the stub\n", name,
	       best_submit, best_all);
}

/* Both, or the one that is named (under a profiler). */
int main(int argc, char **argv)
{
	static const char *const names[] = {"nvmf-standing-key", "nvmf-key-per-command"};

	for (int k = 0; k < 2; k++)
		if (argc < 2 || !strcmp(argv[1], names[k]))
			measure(names[k], k == 1);
	return 0;
}
