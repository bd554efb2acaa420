/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines' common suite at Linux nvmet over TCP or RDMA, in the guest: guest_engine makes the
 * target and says where it is. What was written, and what was made zeros, is looked for on the
 * block devices behind it, past every cache.
 */
#include "dataplane/fabric/fabric.h"
#include "tests/nvmf/suite.h"

#include "common/util.h"

struct place {
	uint32_t nsid;
	const char *disk; /* the environment's name of it */
	bool rdma, per_command, digests;
};

static struct nvmf_config config;
static struct engine_who who;
static struct fabric_dev *dev;
static struct fabric_pd *pd;

static void need_device(void)
{
	struct fabric_pd_opts caps = {256u << 20, 256, 16384, 64};
	struct ros2_err err = ROS2_ERR_INIT;

	if (pd)
		return;
	if (fabric_dev_open(getenv("NVMET_DEVICE"), &dev, &err) < 0 ||
	    fabric_pd_new(dev, &caps, &pd, &err) < 0)
		fail_msg("%s", err.msg);
}

static void register_memory(struct fixture *fx)
{
	struct fabric_region_opts o = {
		.addr = fx->memory, .length = FIXTURE_MEMORY, .bindable = true};
	struct ros2_err err = ROS2_ERR_INIT;

	need_device();
	who.pd = pd;
	if (fabric_region_new(pd, &o, &fx->region, &err) < 0)
		fail_msg("%s", err.msg);
}

static void begin(struct fixture *fx, struct engine_config *c)
{
	const struct place *p = fx->v->arg;

	suite_config(&config, p->nsid);
	snprintf(config.subsystem, sizeof(config.subsystem), "nqn.2026-11.test:one");
	snprintf(config.address, sizeof(config.address), "%s", getenv("NVMET_ADDRESS"));
	config.port = (uint16_t)atoi(getenv("NVMET_PORT"));
	config.header_digest = config.data_digest = p->digests;
	config.keys_per_command = p->per_command;
	config.command_timeout_ms = 20000;
	config.keep_alive_ms = 20000;
	who = suite_who;
	if (p->rdma) {
		config.transport = NVMF_RDMA;
		register_memory(fx);
	}
	c->nvmf = &config;
	fx->who = &who;
	fx->unit = 512;
}

static void end(struct fixture *fx)
{
	assert_int_equal(fabric_region_free(fx->region), 0);
}

static void look(struct fixture *fx, uint64_t at, void *buf, size_t len)
{
	const struct place *p = fx->v->arg;
	int fd = open(getenv(p->disk), O_RDONLY | O_DIRECT | O_CLOEXEC);
	void *aligned = NULL;

	assert_true(fd >= 0);
	assert_int_equal(posix_memalign(&aligned, 4096, len), 0);
	assert_int_equal(pread(fd, aligned, len, (off_t)(SUITE_AT + at)), len);
	memcpy(buf, aligned, len);
	free(aligned);
	close(fd);
}

static const struct fixture_volumes volumes = {begin, end, look};

static const struct place places[] = {
	{1, "NVMET_DISK1", .digests = true},
	{2, "NVMET_DISK2"},
	{3, "NVMET_DISK3"},
	{1, "NVMET_DISK1", .rdma = true, .per_command = true},
	{2, "NVMET_DISK2", .rdma = true},
	{3, "NVMET_DISK3", .rdma = true},
};
#define V(what, i)                                                                                 \
	{                                                                                          \
		.name = what, .type = "nvmf", .volumes = &volumes, .arg = &places[i]               \
	}
static const struct variant tcp[] = {V("nvmet-tcp, null_blk, digests", 0), V("nvmet-tcp, brd", 1),
                                     V("nvmet-tcp, loop file", 2)},
			    rdma[] = {V("nvmet-rdma, null_blk, a key for each command", 3),
                                      V("nvmet-rdma, brd", 4), V("nvmet-rdma, loop file", 5)};

int main(void)
{
	int rc;

	if (!getenv("NVMET_PORT") || !getenv("NVMET_ADDRESS") || !getenv("NVMET_DISK3")) {
		puts("1..0 # SKIP runs in the guest only (tests/nvmf/guest_engine)");
		return 77;
	}
	rc = getenv("NVMET_DEVICE") ? fixture_run(rdma, ARRAY_SIZE(rdma))
	                            : fixture_run(tcp, ARRAY_SIZE(tcp));
	if (pd && fabric_pd_free(pd) < 0)
		rc = 1;
	if (dev && fabric_dev_close(dev) < 0)
		rc = 1;
	return rc;
}
