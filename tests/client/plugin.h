/* SPDX-License-Identifier: Apache-2.0 */
/* What plugin_host.c finds in the shared object of plugin.c. */
#ifndef ROS2_TESTS_CLIENT_PLUGIN_H
#define ROS2_TESTS_CLIENT_PLUGIN_H

#include "dataplane/client/ros2.h"

/* Reads something of "f" of "data". Bytes, or negative errno. */
int plugin_run(const struct ros2_client_opts *o);
typedef int (*plugin_run_fn)(const struct ros2_client_opts *o);
/* gRPC's, which stays in the process when the shared object goes. */
typedef void (*plugin_log_fn)(const char *file, int line, int severity, const char *fmt, ...);
#define PLUGIN_LOG_ERROR 2
#endif
