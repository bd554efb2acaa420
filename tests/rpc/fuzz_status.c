/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer says when a call fails: a gRPC status code (the first byte) and its text. The error
 * made of it always has words on one printable line and a status of ours; the text that we send is
 * read as the status it was made of.
 */
#include "proto/rpc/rpc_priv.h"
#include "common/utf8.h"
#include "tests/fuzz/fuzz.h"

static void read_back(enum ros2_status s, const char *words)
{
	grpc_slice slice = rpc_status_message(s, words);
	struct ros2_err err = ROS2_ERR_INIT;

	rpc_status_from_grpc(rpc_status_to_grpc(s), slice, &err);
	must(s == ROS2_OK || err.status == s);
	grpc_slice_unref(slice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ros2_err err = ROS2_ERR_INIT;
	grpc_slice slice;
	char *text;
	int r;

	if (!size)
		return 0;
	slice = grpc_slice_from_copied_buffer((const char *)data + 1, size - 1);
	r = rpc_status_from_grpc((grpc_status_code)(data[0] % 20), slice, &err);
	if (data[0] % 20 != GRPC_STATUS_OK) {
		must_refuse(r, &err);
		must((unsigned)err.status < ROS2_STATUS_COUNT && err.status != ROS2_OK);
		must(utf8_text_printable(err.msg));
	}
	grpc_slice_unref(slice);
	text = fuzz_text(data + 1, size - 1);
	read_back((enum ros2_status)(data[0] % ROS2_STATUS_COUNT), text);
	free(text);
	return 0;
}
