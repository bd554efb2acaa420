// SPDX-License-Identifier: Apache-2.0
#include "tests/nvmf/rdma_host.h"
#include "tests/verbs/fabric_mem.h"

static uint32_t left(void)
{
	struct fabric_mem_counts c;

	fabric_mem_counts(&c);
	return c.devices + c.pds + c.sets + c.qps + c.regions + c.windows + c.conns + c.listeners;
}

static void calm(void)
{
	fabric_mem_hold(false);
	fabric_mem_hold_invalidates(false);
	fabric_mem_fail(FABRIC_MEM_MINE, 0, false);
}

const struct host_device host_device = {FABRIC_MEM_DEVICE, fabric_mem_key_lives, left, calm};
