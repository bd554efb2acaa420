// SPDX-License-Identifier: Apache-2.0
#include "tests/nvmf/rdma_host.h"
#include "common/clock.h"
#include <arpa/inet.h>
#include <sys/epoll.h>

static struct sockaddr_in peer_at;

void host_open(struct host *h)
{
	struct fabric_pd_opts caps = {64u << 20, 512, 2048, 8};

	*h = (struct host){.ops = &nvmf_rdma_queue_ops, .now_ns = 1000 * NS_PER_S};
	assert_int_equal(fabric_dev_open(host_device.name, &h->dev, &h->err), 0);
	assert_int_equal(fabric_pd_new(h->dev, &caps, &h->pd, &h->err), 0);
	rdma_peer_open(&h->peer, h->dev, "127.0.0.1");
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	for (uint32_t i = 0; i < HOST_SLOTS; i++) {
		struct fabric_region_opts o = {.length = HOST_SLOT, .bindable = true};

		o.addr = h->slots[i].mem = calloc(1, HOST_SLOT);
		assert_int_equal(fabric_region_new(h->pd, &o, &h->slots[i].region, NULL), 0);
	}
	peer_at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(h->peer.port)};
	inet_pton(AF_INET, "127.0.0.1", &peer_at.sin_addr);
	h->o = (struct nvmf_queue_opts){.peer = (struct sockaddr *)&peer_at,
	                                .qid = 1,
	                                .cntlid = 5,
	                                .depth = 16,
	                                .in_capsule_max = 4096,
	                                .transfer_max = 1u << 20,
	                                .keys_per_command = true,
	                                .pd = h->pd,
	                                .epoll_fd = h->epoll_fd,
	                                .epoll_word = HOST_WORD,
	                                .connect_timeout_ns = 3 * NS_PER_S};
}

void host_close(struct host *h)
{
	h->ops->free(h->q);
	rdma_peer_close(&h->peer);
	for (uint32_t i = 0; i < HOST_SLOTS; i++) {
		assert_int_equal(fabric_region_free(h->slots[i].region), 0);
		free(h->slots[i].mem);
	}
	assert_int_equal(fabric_pd_free(h->pd), 0);
	assert_int_equal(fabric_dev_close(h->dev), 0);
	close(h->epoll_fd);
	assert_int_equal(host_device.left(), 0);
}

void host_turn(struct host *h)
{
	struct epoll_event ev;

	rdma_peer_run(&h->peer);
	if (epoll_wait(h->epoll_fd, &ev, 1, 0) == 1) {
		assert_int_equal(ev.data.u64, HOST_WORD);
		h->ops->poll(h->q, 64, h->now_ns);
	}
}

void host_turns(struct host *h, uint32_t n)
{
	while (n--)
		host_turn(h);
}

void host_tick(struct host *h, uint64_t in_ns)
{
	h->now_ns += in_ns;
	h->ops->tick(h->q, h->now_ns);
}

void host_begin(struct host *h)
{
	h->o.now_ns = h->now_ns;
	assert_int_equal(h->ops->open(&h->o, &h->q, &h->err), 0);
}

void host_connect(struct host *h)
{
	host_begin(h);
	host_turns(h, 6);
	if (h->ops->state(h->q) != NVMF_QUEUE_READY)
		fail_msg("the queue is %s: %s", nvmf_queue_state_to_str(h->ops->state(h->q)),
		         h->ops->fault(h->q));
}

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	struct host_req *r = container_of(req, struct host_req, req);

	assert_true((rc == 0) == (cqe != NULL));
	assert_int_equal(++r->n_done, 1);
	r->rc = rc;
	r->status = cqe ? cqe->status >> 1 : 0;
	if (r->dead_key)
		assert_false(host_device.key_lives(r->dead_key));
	if (r->then)
		r->then(r);
}

struct host_req host_io(struct host *h, uint8_t opcode, uint32_t slot, uint32_t offset,
                        uint32_t len)
{
	struct host_req r = {.rc = 1};

	r.req.sqe.opcode = opcode;
	r.req.sqe.nsid = 1;
	r.req.sqe.cdw10 = slot * 1000 + offset;
	r.req.dir = !len                      ? NVMF_NO_DATA
	            : opcode == NVME_IO_WRITE ? NVMF_TO_TARGET
	                                      : NVMF_FROM_TARGET;
	r.req.len = len;
	if (len) {
		r.req.region = h->slots[slot].region;
		r.req.buf = h->slots[slot].mem + offset;
	}
	r.req.timeout_ns = HOST_COMMAND_NS;
	return r;
}

int host_submit(struct host *h, struct host_req *r)
{
	r->req.done = on_done;
	return h->ops->submit(h->q, &r->req);
}

void host_submit_ok(struct host *h, struct host_req *r)
{
	assert_int_equal(host_submit(h, r), 0);
	assert_int_equal(h->ops->kick(h->q, h->now_ns), 0);
}

struct rdma_peer_cmd *host_taken(struct host *h)
{
	struct rdma_peer_cmd *cmd = rdma_peer_take(&h->peer);

	assert_non_null(cmd);
	return cmd;
}

int host_setup(void **state)
{
	struct host *h = calloc(1, sizeof(*h));

	host_open(h);
	*state = h;
	return 0;
}

int host_teardown(void **state)
{
	host_device.calm();
	host_close(*state);
	free(*state);
	return 0;
}

struct nvmf_queue_counters host_counters(struct host *h)
{
	struct nvmf_queue_counters c;

	h->ops->counters(h->q, &c);
	return c;
}

void host_assert_failed(struct host *h, const char *words)
{
	assert_int_equal(h->ops->state(h->q), NVMF_QUEUE_FAILED);
	if (!strstr(h->ops->fault(h->q), words))
		fail_msg("expected words with '%s', found '%s'", words, h->ops->fault(h->q));
	assert_int_equal(h->ops->in_flight(h->q), 0);
}
