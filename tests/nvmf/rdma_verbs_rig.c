// SPDX-License-Identifier: Apache-2.0
#include "tests/nvmf/rdma_verbs_rig.h"
#include "common/clock.h"
#include "common/util.h"
#include <arpa/inet.h>
#include <sys/epoll.h>

#define PATIENCE_MS 20000u

enum rig_spoil rig_spoil;
uint32_t rig_other_key, rig_last_key;

int __real_fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                              struct fabric_window **ret, uint32_t *ret_key);
int __wrap_fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                              struct fabric_window **ret, uint32_t *ret_key);

int __wrap_fabric_window_bind(struct fabric_qp *qp, const struct fabric_bind *b,
                              struct fabric_window **ret, uint32_t *ret_key)
{
	enum rig_spoil how = rig_spoil;
	struct fabric_bind bind = *b;
	int rc;

	rig_spoil = RIG_HONEST;
	if (how == RIG_WRONG_WAY)
		bind.access ^= FABRIC_READ | FABRIC_WRITE;
	rc = __real_fabric_window_bind(qp, &bind, ret, ret_key);
	if (rc < 0)
		return rc;
	rig_last_key = *ret_key;
	if (how == RIG_OTHER_KEY)
		*ret_key ^= 0x00ffff00;
	if (how == RIG_OLD_KEY || how == RIG_OTHER_QUEUE)
		*ret_key = rig_other_key;
	return rc;
}

void rig_device(struct rig *r)
{
	struct fabric_pd_opts caps = {256u << 20, 256, 4096, 8};
	struct fabric_set_opts so = {.cq_depth = 16, .qps_max = 1, .slots = {32, 16, 16}};
	char names[1][FABRIC_NAME_MAX];
	struct ros2_err err = ROS2_ERR_INIT;
	uint32_t n = 0;

	*r = (struct rig){.disk_fd = -1, .depth = 16};
	if (fabric_list(names, 1, &n, &err) < 0 || n == 0 || !getenv("NVMET_DISK")) {
		print_message(
			"1..0 # SKIP no RDMA device or no nvmet: run tests/nvmf/guest_rdma\n");
		exit(77);
	}
	assert_int_equal(fabric_dev_open(names[0], &r->dev, &err), 0);
	assert_int_equal(fabric_pd_new(r->dev, &caps, &r->pd, &err), 0);
	assert_int_equal(fabric_channel_new(r->dev, &r->channel, &err), 0);
	assert_int_equal(fabric_set_new(r->pd, r->channel, &so, &r->set, &err), 0);
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r->disk_fd = open(getenv("NVMET_DISK"), O_RDWR | O_DIRECT | O_CLOEXEC);
	assert_true(r->disk_fd >= 0);
}

static void turn(struct rig *r)
{
	struct nvmf_queue *all[] = {r->admin, r->io[0], r->io[1]};
	struct epoll_event ev;
	int n = epoll_wait(r->epoll_fd, &ev, 1, 20);

	for (uint32_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i])
			continue;
		if (n)
			nvmf_rdma_queue_ops.poll(all[i], 64, clock_boottime_ns());
		else
			nvmf_rdma_queue_ops.tick(all[i], clock_boottime_ns());
	}
}

bool rig_wait(struct rig *r, const uint32_t *n, uint32_t ms)
{
	uint64_t until = clock_boottime_ns() + ms * NS_PER_MS;

	while (!*n && clock_boottime_ns() < until)
		turn(r);
	return *n;
}

struct waiting {
	struct nvmf_req *req;
	uint32_t n;
	int rc;
	struct nvme_cqe cqe;
};
static struct waiting now;

static void on_done(struct nvmf_req *req, int rc, const struct nvme_cqe *cqe)
{
	assert_ptr_equal(req, now.req);
	now.n++;
	now.rc = rc;
	if (cqe)
		now.cqe = *cqe;
}

int rig_exec(struct rig *r, struct nvmf_queue *q, struct nvmf_req *req, struct nvme_cqe *ret)
{
	now = (struct waiting){.req = req};
	req->done = on_done;
	assert_int_equal(nvmf_rdma_queue_ops.submit(q, req), 0);
	assert_int_equal(nvmf_rdma_queue_ops.kick(q, clock_boottime_ns()), 0);
	if (!rig_wait(r, &now.n, PATIENCE_MS))
		fail_msg("command %#x did not come back", req->sqe.opcode);
	if (now.rc == -EREMOTEIO)
		print_message("# %s\n", nvmf_rdma_queue_ops.fault(q));
	if (ret)
		*ret = now.cqe;
	return now.rc;
}

static struct nvmf_req command(enum nvmf_dir dir, void *buf, uint32_t len)
{
	return (struct nvmf_req){.dir = dir, .buf = buf, .len = len, .timeout_ns = 15 * NS_PER_S};
}

static struct nvmf_queue *open_queue(struct rig *r, uint16_t qid)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
	                         .sin_port = htons((uint16_t)atoi(getenv("NVMET_PORT")))};
	struct nvmf_queue_opts o = {.peer = (struct sockaddr *)&at,
	                            .qid = qid,
	                            .cntlid = qid ? r->cntlid : NVME_CNTLID_DYNAMIC,
	                            .depth = qid ? r->depth : 31,
	                            .transfer_max = 4096,
	                            .keys_per_command = qid ? r->per_command : true,
	                            .pd = r->pd,
	                            .epoll_fd = r->epoll_fd,
	                            .epoll_word = qid,
	                            .connect_timeout_ns = 10 * NS_PER_S,
	                            .now_ns = clock_boottime_ns()};
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvmf_queue *q = NULL;
	uint64_t until = clock_boottime_ns() + 15 * NS_PER_S;

	inet_pton(AF_INET, getenv("NVMET_ADDRESS"), &at.sin_addr);
	if (qid) {
		o.in_capsule_max = r->ctrl.in_capsule_bytes;
		o.transfer_max = (uint32_t)MIN(r->ctrl.max_transfer, 1u << 20);
	}
	if (nvmf_rdma_queue_ops.open(&o, &q, &err) < 0)
		fail_msg("%s", err.msg);
	if (qid)
		r->io[qid - 1] = q;
	else
		r->admin = q;
	while (nvmf_rdma_queue_ops.state(q) == NVMF_QUEUE_CONNECTING && clock_boottime_ns() < until)
		turn(r);
	if (nvmf_rdma_queue_ops.state(q) != NVMF_QUEUE_READY)
		fail_msg("queue %u: %s", qid, nvmf_rdma_queue_ops.fault(q));
	return q;
}

static void fabrics_connect(struct rig *r, struct nvmf_queue *q, uint16_t qid)
{
	static const uint8_t host[16] = {1,    2,  3,  4,  5,  6,  0x47, 8,
	                                 0x89, 10, 11, 12, 13, 14, 15,   16};
	struct nvme_connect_data data;
	struct nvmf_req req = command(NVMF_TO_TARGET, &data, sizeof(data));
	struct nvme_connected c;
	struct nvme_cqe cqe;

	assert_int_equal(nvme_connect_data_fill(&data, host, qid ? r->cntlid : NVME_CNTLID_DYNAMIC,
	                                        getenv("NVMET_NQN"), "nqn.2024-01.test:host"),
	                 0);
	nvme_cmd_connect(&req.sqe, qid, qid ? r->depth + 1 : 32, 0, qid ? 0 : 60000);
	assert_int_equal(rig_exec(r, q, &req, &cqe), 0);
	assert_int_equal(cqe.status >> 1, 0);
	assert_int_equal(nvme_connect_parse(&cqe, &c, NULL), 0);
	r->cntlid = c.cntlid;
}

static uint64_t property(struct rig *r, uint32_t offset)
{
	struct nvmf_req req = command(NVMF_NO_DATA, NULL, 0);
	struct nvme_cqe cqe;

	nvme_cmd_property_get(&req.sqe, offset);
	assert_int_equal(rig_exec(r, r->admin, &req, &cqe), 0);
	assert_int_equal(cqe.status >> 1, 0);
	return nvme_property_value(&cqe, offset);
}

bool rig_is_enabled(struct rig *r)
{
	return property(r, NVME_PROP_CSTS) & NVME_CSTS_RDY;
}

static void enable(struct rig *r)
{
	struct nvmf_req req = command(NVMF_NO_DATA, NULL, 0);
	struct nvme_cap cap;
	uint32_t tries = 0;

	assert_int_equal(nvme_cap_parse(property(r, NVME_PROP_CAP), &cap, NULL), 0);
	nvme_cmd_property_set(&req.sqe, NVME_PROP_CC, cap.cc);
	assert_int_equal(rig_exec(r, r->admin, &req, NULL), 0);
	while (!rig_is_enabled(r))
		assert_true(tries++ < 1000);
}

static void identify(struct rig *r)
{
	static uint8_t data[NVME_IDENTIFY_LEN];
	struct nvmf_req req = command(NVMF_FROM_TARGET, data, sizeof(data));
	struct ros2_err err = ROS2_ERR_INIT;
	struct nvme_cqe cqe;

	nvme_cmd_identify(&req.sqe, NVME_CNS_CONTROLLER, 0);
	assert_int_equal(rig_exec(r, r->admin, &req, &cqe), 0);
	assert_int_equal(cqe.status >> 1, 0);
	if (nvme_controller_parse(data, r->cntlid, getenv("NVMET_NQN"), 4096, &r->ctrl, &err) < 0)
		fail_msg("%s", err.msg);
}

void rig_up(struct rig *r, uint32_t n_io, bool per_command)
{
	struct nvmf_req req = command(NVMF_NO_DATA, NULL, 0);
	struct nvme_cqe cqe;

	r->per_command = per_command;
	fabrics_connect(r, open_queue(r, 0), 0);
	enable(r);
	identify(r);
	nvme_cmd_set_feature(&req.sqe, NVME_FEAT_QUEUES, nvme_queues_value(n_io));
	assert_int_equal(rig_exec(r, r->admin, &req, &cqe), 0);
	for (uint32_t i = 0; i < n_io; i++)
		fabrics_connect(r, open_queue(r, (uint16_t)(i + 1)), (uint16_t)(i + 1));
}

void rig_down(struct rig *r)
{
	for (uint32_t i = 0; i < RIG_IOS; i++)
		nvmf_rdma_queue_ops.free(TAKE_PTR(r->io[i]));
	nvmf_rdma_queue_ops.free(TAKE_PTR(r->admin));
}

void rig_close(struct rig *r)
{
	struct fabric_pd_use use;

	rig_down(r);
	assert_int_equal(fabric_set_free(r->set), 0);
	fabric_pd_use(r->pd, &use);
	assert_int_equal(use.pinned_bytes, 0);
	assert_int_equal(use.regions + use.windows + use.qps + use.sets, 0);
	fabric_channel_free(r->channel);
	assert_int_equal(fabric_pd_free(r->pd), 0);
	assert_int_equal(fabric_dev_close(r->dev), 0);
	close(r->epoll_fd);
	close(r->disk_fd);
}

struct nvmf_req rig_io(struct rig *r, bool write, struct fabric_slot *slot, uint64_t at,
                       uint32_t len)
{
	struct nvmf_req req = command(write ? NVMF_TO_TARGET : NVMF_FROM_TARGET, slot->mem, len);

	req.region = slot->region;
	if (write)
		nvme_cmd_write(&req.sqe, 1, at / 512, len / 512, false);
	else
		nvme_cmd_read(&req.sqe, 1, at / 512, len / 512);
	return req;
}
