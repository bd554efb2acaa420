/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message: checked, unpacked, packed again. What the check lets through must unpack,
 * and its second encoding must pass the check too, unless it is shorter and takes too much for
 * that. As what the bytes are taken: all of them as each of three messages that have every kind of
 * field; and without the first two as the message that those name, of all that any method of any
 * service takes or answers.
 */
#include "common/util.h"
#include "proto/grpc/health/v1/health.pb-c.h"
#include "proto/ros2/v1/admin.pb-c.h"
#include "proto/ros2/v1/agentlink.pb-c.h"
#include "proto/ros2/v1/audit.pb-c.h"
#include "proto/ros2/v1/tenant.pb-c.h"
#include "proto/rpc/rpc.h"
#include "tests/rpc/echo.pb-c.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In the order that the corpus knows: a new one comes last, as a new method in its service does. */
static const ProtobufCServiceDescriptor *const services[] = {
	&ros2__test__echo__descriptor,         &ros2__v1__admin__descriptor,
	&ros2__v1__agent_link__descriptor,     &ros2__v1__enrol__descriptor,
	&ros2__v1__tenant__descriptor,         &ros2__v1__audit__descriptor,
	&grpc__health__v1__health__descriptor,
};

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
	/* What it may take grows with its length, and what came twice is in it once. */
	if (rpc_message_check(d, again, n, &err) &&
	    (n >= size || !strstr(err.msg, "decodes to more than is accepted")))
		abort();
	free(again);
	protobuf_c_message_free_unpacked(m, NULL);
}

/* The first byte is the service, the second the method, twice, and 1 for its answer. */
static const ProtobufCMessageDescriptor *named_by(const uint8_t name[2])
{
	const ProtobufCServiceDescriptor *s = services[name[0] % ARRAY_SIZE(services)];
	const ProtobufCMethodDescriptor *m = &s->methods[name[1] / 2 % s->n_methods];

	return name[1] & 1 ? m->output : m->input;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_as(&ros2__test__echo_request__descriptor, data, size);
	try_as(&ros2__v1__agent_message__descriptor, data, size);
	try_as(&ros2__v1__apply_request__descriptor, data, size);
	if (size >= 2)
		try_as(named_by(data), data + 2, size - 2);
	return 0;
}
