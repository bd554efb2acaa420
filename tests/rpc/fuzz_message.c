/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message: checked, unpacked, packed again. What the check lets through must unpack,
 * and its second encoding must pass the check too.
 */
#include "proto/ros2/v1/admin.pb-c.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "proto/rpc/rpc.h"
#include "tests/rpc/echo.pb-c.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_as(const ProtobufCMessageDescriptor *d, const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	ProtobufCMessage *m = NULL;
	uint8_t *again;
	size_t n;

	if (rpc_message_check(d, data, size, &err)) {
		if (rpc_message_decode(d, data, size, &m, NULL) != err.code || !err.msg[0])
			abort();
		return;
	}
	if (rpc_message_decode(d, data, size, &m, &err))
		abort();
	n = protobuf_c_message_get_packed_size(m);
	again = malloc(n + 1);
	if (!again || protobuf_c_message_pack(m, again) != n)
		abort();
	if (rpc_message_check(d, again, n, &err))
		abort();
	free(again);
	protobuf_c_message_free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_as(&ros2__test__echo_request__descriptor, data, size);
	try_as(&ros2__v1__agent_message__descriptor, data, size);
	try_as(&ros2__v1__apply_request__descriptor, data, size);
	return 0;
}
