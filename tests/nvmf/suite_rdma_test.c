/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines' common suite over NVMe/RDMA, on a device that is memory and checks each key, beside
 * the target of our own: a key for each command, and standing ones. What was written is looked for
 * on its media, it has nothing to complain of, no key was refused, and none is left.
 */
#include "tests/nvmf/suite.h"
#include "tests/nvmf/target_rdma.h"
#include "tests/verbs/fabric_mem.h"

#include "common/util.h"

struct shape {
	struct target_subsys_opts subsys;
	uint32_t block_size;
	bool per_command;
};

static const struct shape shapes[] = {
	{.subsys = {.nqn = SUITE_NQN, .mdts = 4, .in_capsule = 4096, .write_cache = true},
         .block_size = 512,
         .per_command = true},
	{.subsys = {.nqn = SUITE_NQN, .mdts = 5, .wzsl = 2, .dmrsl = 3}, .block_size = 4096},
};

static struct nvmf_config config;
static struct engine_who who;
static struct fabric_dev *dev;
static struct fabric_pd *pd;

static void register_memory(struct fixture *fx)
{
	struct fabric_pd_opts caps = {256u << 20, 256, 16384, 64};
	struct fabric_region_opts o = {
		.addr = fx->memory, .length = FIXTURE_MEMORY, .bindable = true};

	assert_int_equal(fabric_dev_open(FABRIC_MEM_DEVICE, &dev, NULL), 0);
	assert_int_equal(fabric_pd_new(dev, &caps, &pd, NULL), 0);
	assert_int_equal(fabric_region_new(pd, &o, &fx->region, NULL), 0);
	who = suite_who;
	who.pd = pd;
}

static void begin(struct fixture *fx, struct engine_config *c)
{
	const struct shape *s = fx->v->arg;
	struct target_ns_opts n = {
		.nsid = 3, .block_size = s->block_size, .blocks = SUITE_BYTES / s->block_size};
	struct target_opts none = {0};
	struct target *t = NULL;

	assert_int_equal(target_new(&none, &t), 0);
	target_rdma_open(t, FABRIC_MEM_DEVICE);
	assert_int_equal(target_add_subsystem(t, &s->subsys), 0);
	assert_int_equal(target_add_ns(t, SUITE_NQN, &n), 0);
	register_memory(fx);
	suite_config(&config, n.nsid);
	config.transport = NVMF_RDMA;
	config.port = target_rdma_port(t);
	config.keys_per_command = s->per_command;
	c->nvmf = &config;
	fx->target = t;
	fx->who = &who;
	fx->unit = s->block_size;
}

static void end(struct fixture *fx)
{
	struct fabric_mem_counts n;
	char words[200];

	target_violations(fx->target, words, sizeof(words));
	assert_string_equal(words, "");
	target_rdma_close(fx->target);
	target_free(fx->target);
	assert_int_equal(fabric_region_free(fx->region), 0);
	assert_int_equal(fabric_pd_free(TAKE_PTR(pd)), 0);
	assert_int_equal(fabric_dev_close(TAKE_PTR(dev)), 0);
	fabric_mem_counts(&n);
	/* It went by keys, and each of a command ended by itself. */
	assert_true(n.binds > 0 && n.reads + n.writes > 0);
	assert_true(n.invalidates > 0 || !((const struct shape *)fx->v->arg)->per_command);
	assert_int_equal(n.refused + n.no_receive, 0);
	assert_int_equal(n.qps + n.regions + n.windows + n.conns + n.pds + n.sets, 0);
}

static void look(struct fixture *fx, uint64_t at, void *buf, size_t len)
{
	assert_int_equal(target_media_read(fx->target, SUITE_NQN, 3, SUITE_AT + at, buf, len), 0);
}

static const struct fixture_volumes volumes = {begin, end, look};

static const struct variant variants[] = {
	{.name = "nvmf rdma, a key for each command",
         .type = "nvmf",
         .volumes = &volumes,
         .arg = &shapes[0]},
	{.name = "nvmf rdma, standing keys, 4 KiB blocks",
         .type = "nvmf",
         .volumes = &volumes,
         .arg = &shapes[1]},
};

int main(void)
{
	return fixture_run(variants, ARRAY_SIZE(variants));
}
