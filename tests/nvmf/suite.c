/* SPDX-License-Identifier: Apache-2.0 */
/* See suite.h. */
#include "tests/nvmf/suite.h"

#include "common/log.h"

const struct engine_who suite_who = {{{7}}, "tenant-a"};

static void volume(struct nvmf_volume *v, const char *name, uint32_t nsid, uint64_t offset)
{
	*v = (struct nvmf_volume){.nsid = nsid, .offset = offset, .size = FIXTURE_VOLUME};
	snprintf(v->name, sizeof(v->name), "%s", name);
}

void suite_config(struct nvmf_config *k, uint32_t nsid)
{
	log_set_level(LOG_LEVEL_ERROR);
	*k = (struct nvmf_config){.transport = NVMF_TCP,
	                          .address = "127.0.0.1",
	                          .subsystem = SUITE_NQN,
	                          .host_nqn = "nqn.2026-11.test:host:" NVMF_TENANT_MARK,
	                          .queue_depth = 16,
	                          .keep_alive_ms = 5000,
	                          .command_timeout_ms = 5000,
	                          .quiesce_ms = 300,
	                          .n_volumes = 2};
	volume(&k->volumes[0], "t/a/f", nsid, SUITE_AT);
	volume(&k->volumes[1], "t/b/f", nsid, SUITE_AT + FIXTURE_VOLUME);
}
