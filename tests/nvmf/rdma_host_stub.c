// SPDX-License-Identifier: Apache-2.0
#include "tests/fabric/verbs_stub.h"
#include "tests/nvmf/rdma_host.h"

static void calm(void)
{
	stub_lose(false);
	stub_fail_any(0, false);
	stub_release();
}

const struct host_device host_device = {"stub0", stub_key_lives, stub_alive, calm};
