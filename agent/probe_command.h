/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2-agent probe`: tries devices and transports here and now, needs no identity and no
 * controller, and prints what was seen. */
#ifndef ROS2_AGENT_PROBE_COMMAND_H
#define ROS2_AGENT_PROBE_COMMAND_H

/* @argv[0] is "probe". Returns the exit code: 0 whatever was seen, 1 failed, 2 usage. */
int agent_probe_command(int argc, char **argv);

#endif
