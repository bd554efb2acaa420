/* SPDX-License-Identifier: Apache-2.0 */
/* What a controller sends as a stream: silence has an end and a name. */
#include "common/util.h"
#include "tools/ctl/ctl.h"
#include <errno.h>

#define STREAM_IDLE_MS 30000u

int ctl_next(const struct ctl *c, struct rpc_reader *rd, ProtobufCMessage **ret,
             struct ros2_err *err)
{
	uint32_t wait_ms = MAX(c->timeout_ms, STREAM_IDLE_MS);
	int r = rpc_reader_next(rd, wait_ms, ret, err);

	if (r != -EAGAIN)
		return r;
	return ros2_err_named(err, ROS2_TIMEOUT,
	                      "the controller sent nothing for %u s: it is busy or stands; in a "
	                      "long log what is seldom found needs --since "
	                      "or a longer --timeout",
	                      wait_ms / 1000);
}
