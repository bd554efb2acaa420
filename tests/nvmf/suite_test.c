/* SPDX-License-Identifier: Apache-2.0 */
/* The engines' common suite over NVMe/TCP beside a target of our own, in several shapes; what was
 * written is looked for on its media, and it has nothing to complain of. */
#include "tests/nvmf/suite.h"
#include "tests/nvmf/target.h"

#include "common/util.h"

struct shape {
	struct target_opts target;
	struct target_subsys_opts subsys;
	uint32_t block_size;
	bool digests;
};

static const struct shape shapes[] = {
	{.target = {.r2t_bytes = 32768, .c2h_bytes = 65536},
         .subsys = {.nqn = SUITE_NQN, .mdts = 4, .in_capsule = 8192, .write_cache = true},
         .block_size = 512},
	{.target = {.success_flag = true, .maxh2cdata = 16384},
         .subsys = {.nqn = SUITE_NQN, .wzsl = 2, .dmrsl = 3},
         .block_size = 4096,
         .digests = true},
};

static struct nvmf_config config;

static void begin(struct fixture *fx, struct engine_config *c)
{
	const struct shape *s = fx->v->arg;
	struct target_ns_opts n = {
		.nsid = 3, .block_size = s->block_size, .blocks = SUITE_BYTES / s->block_size};
	struct target *t = NULL;

	assert_int_equal(target_new(&s->target, &t), 0);
	assert_int_equal(target_add_subsystem(t, &s->subsys), 0);
	assert_int_equal(target_add_ns(t, SUITE_NQN, &n), 0);
	suite_config(&config, n.nsid);
	config.port = target_port(t);
	config.header_digest = config.data_digest = s->digests;
	c->nvmf = &config;
	fx->target = t;
	fx->who = &suite_who;
	fx->unit = s->block_size;
}

static void end(struct fixture *fx)
{
	char words[200];

	target_violations(fx->target, words, sizeof(words));
	assert_string_equal(words, "");
	target_free(fx->target);
}

static void look(struct fixture *fx, uint64_t at, void *buf, size_t len)
{
	assert_int_equal(target_media_read(fx->target, SUITE_NQN, 3, SUITE_AT + at, buf, len), 0);
}

static const struct fixture_volumes volumes = {begin, end, look};

static const struct variant variants[] = {
	{.name = "nvmf tcp", .type = "nvmf", .volumes = &volumes, .arg = &shapes[0]},
	{.name = "nvmf tcp, 4 KiB blocks, digests",
         .type = "nvmf",
         .volumes = &volumes,
         .arg = &shapes[1]},
};

int main(void)
{
	return fixture_run(variants, ARRAY_SIZE(variants));
}
