/* SPDX-License-Identifier: Apache-2.0 */
/* What protoc-gen-ros2rpc writes for one .proto file. */
#ifndef ROS2_PROTO_PLUGIN_EMIT_H
#define ROS2_PROTO_PLUGIN_EMIT_H

#include <google/protobuf/descriptor.pb-c.h>
#include <stdbool.h>
#include <stddef.h>

/* NAME.rpc.h (@header) or NAME.rpc.c of @fd. *ret_name and *ret_text are malloc'd and set even on
 * error where they were made. 0, -ENOMEM, or -EINVAL with words in @error. */
int emit_file(const Google__Protobuf__FileDescriptorProto *fd, bool header, char **ret_name,
              char **ret_text, char *error, size_t error_len);
#endif
