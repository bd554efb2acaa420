/* SPDX-License-Identifier: Apache-2.0 */
/* What queues of every transport share: names. See queue.h. */
#include "dataplane/nvmf/queue.h"
#include <string.h>

const char *nvmf_queue_state_to_str(enum nvmf_queue_state s)
{
	switch (s) {
	case NVMF_QUEUE_CONNECTING:
		return "connecting";
	case NVMF_QUEUE_READY:
		return "ready";
	case NVMF_QUEUE_FAILED:
		return "failed";
	}
	return "unknown";
}

bool nvmf_queue_lied(const char *fault)
{
	return (strstr(fault, "target sent ") &&
	        !strstr(fault, "target sent C2HTermReq and ends")) ||
	       strstr(fault, "target used a key that was not good");
}
