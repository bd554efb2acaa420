/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the queue over NVMe/TCP costs: nvmf_tcp_bench [read|write] [bytes] [depth] [seconds]
 * [options], options out of "success", "reverse", "digest", "mix" (every third is the other),
 * "tenant" (the memory is a tenant's). The peer is tests/nvmf/tcp_peer.c on a thread of its own and
 * sends memory as it is, so what is measured is the queue, the kernel and loopback: commands a
 * second, processor time of the queue's thread for each, its system calls, its copies.
 */
#include "tests/nvmf/tcp_peer.h"
#include "common/clock.h"
#include "common/util.h"
#include "dataplane/nvmf/queue.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>

static struct peer peer;
static struct peer_opts peer_opts = {.any_data = true};
static const struct nvmf_queue_ops *const ops = &nvmf_tcp_queue_ops;
static struct nvmf_queue *q;
static uint64_t n_done, n_errors;
static bool mix, tenant;
static _Atomic bool stopping;

static void *run_peer(void *arg)
{
	struct pollfd p = {.fd = *(int *)arg, .events = POLLIN};

	peer_init(&peer, &peer_opts, p.fd);
	while (!peer.ended && !stopping)
		if (!peer_turn(&peer)) {
			p.events = peer.out_at < peer.out_n ? POLLIN | POLLOUT : POLLIN;
			poll(&p, 1, 100);
		}
	return NULL;
}

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	n_done++;
	n_errors += rc != 0 || cqe->status != 0;
	if (!stopping && ops->submit(q, req) < 0)
		n_errors++;
}

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void turn(int ep)
{
	struct epoll_event ev;

	if (epoll_wait(ep, &ev, 1, 100) > 0) {
		ops->poll(q, UINT32_MAX, clock_boottime_ns());
		(void)ops->kick(q, clock_boottime_ns());
	}
}

static int connect_both(int ep, uint32_t depth, uint32_t len, pthread_t *t, int *ret_fd)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct ros2_err err = ROS2_ERR_INIT;
	socklen_t alen = sizeof(a);
	struct nvmf_queue_opts o = {.peer = (struct sockaddr *)&a,
	                            .qid = 1,
	                            .depth = depth,
	                            .in_capsule_max = 8192,
	                            .transfer_max = MAX(len, 4096u),
	                            .header_digest = peer_opts.header_digest,
	                            .data_digest = peer_opts.data_digest,
	                            .epoll_fd = ep,
	                            .connect_timeout_ns = 5 * NS_PER_S,
	                            .now_ns = clock_boottime_ns()};

	if (bind(listener, (void *)&a, sizeof(a)) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (void *)&a, &alen) < 0 || ops->open(&o, &q, &err) < 0) {
		fprintf(stderr, "nvmf_tcp_bench: %s\n", err.msg[0] ? err.msg : strerror(errno));
		return -1;
	}
	*ret_fd = accept(listener, NULL, NULL);
	close(listener);
	if (*ret_fd < 0 || pthread_create(t, NULL, run_peer, ret_fd) != 0)
		return -1;
	while (ops->state(q) == NVMF_QUEUE_CONNECTING)
		turn(ep);
	return ops->state(q) == NVMF_QUEUE_READY ? 0 : -1;
}

static void measure(int ep, const char *what, uint32_t len, uint32_t depth, uint64_t seconds)
{
	uint64_t begin = clock_boottime_ns(), now = begin, cpu = cpu_ns(), d = n_done;
	struct nvmf_queue_counters a, b;
	struct rusage ra, rb;
	double n, s;

	ops->counters(q, &a);
	getrusage(RUSAGE_THREAD, &ra);
	while (now - begin < seconds * NS_PER_S && ops->state(q) == NVMF_QUEUE_READY) {
		turn(ep);
		now = clock_boottime_ns();
	}
	ops->counters(q, &b);
	getrusage(RUSAGE_THREAD, &rb);
	n = (double)(n_done - d);
	s = (double)(now - begin) / 1e9;
	printf("%s %u depth %u: %.0f/s, %.1f MiB/s, %.0f ns of processor each, %.3f sends each, "
	       "copied %.2f %%, waits %.3f each, errors %llu\n",
	       what, len, depth, n / s, n * len / s / 1048576, (double)(cpu_ns() - cpu) / n,
	       (double)(b.calls - a.calls) / n,
	       100.0 * (double)(b.copied_bytes - a.copied_bytes) / (n * len),
	       (double)(rb.ru_nvcsw - ra.ru_nvcsw) / n, (unsigned long long)n_errors);
}

int main(int argc, char **argv)
{
	bool write = argc > 1 && !strcmp(argv[1], "write");
	uint32_t len = argc > 2 ? (uint32_t)atoi(argv[2]) : 4096;
	uint32_t depth = argc > 3 ? (uint32_t)atoi(argv[3]) : 32;
	uint32_t seconds = argc > 4 ? (uint32_t)atoi(argv[4]) : 3;
	struct nvmf_req *reqs = calloc(depth, sizeof(*reqs));
	uint8_t *mem = calloc(depth, len);
	int ep = epoll_create1(EPOLL_CLOEXEC), fd;
	pthread_t t;

	for (int i = 5; i < argc; i++) {
		peer_opts.success |= !strcmp(argv[i], "success");
		peer_opts.reverse |= !strcmp(argv[i], "reverse");
		mix |= !strcmp(argv[i], "mix");
		tenant |= !strcmp(argv[i], "tenant");
		if (!strcmp(argv[i], "digest"))
			peer_opts.header_digest = peer_opts.data_digest = true;
	}
	if (!reqs || !mem || len == 0 || connect_both(ep, depth, len, &t, &fd) < 0) {
		fprintf(stderr, "nvmf_tcp_bench: cannot begin\n");
		return 1;
	}
	for (uint32_t i = 0; i < depth; i++) {
		bool writes = mix && i % 3 == 2 ? !write : write;

		reqs[i] = (struct nvmf_req){.sqe.opcode = writes ? NVME_IO_WRITE : NVME_IO_READ,
		                            .dir = writes ? NVMF_TO_TARGET : NVMF_FROM_TARGET,
		                            .buf = mem + (size_t)i * len,
		                            .len = len,
		                            .tenant_memory = tenant,
		                            .timeout_ns = 30 * NS_PER_S,
		                            .done = on_done};
		if (ops->submit(q, &reqs[i]) < 0)
			return 1;
	}
	(void)ops->kick(q, clock_boottime_ns());
	measure(ep, write ? "write" : "read", len, depth, seconds);
	stopping = true;
	ops->free(q);
	pthread_join(t, NULL);
	close(fd);
	close(ep);
	free(reqs);
	free(mem);
	return n_errors > depth; /* those in flight at the end are not answered */
}
