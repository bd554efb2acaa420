/* SPDX-License-Identifier: Apache-2.0 */
/* `ros2-agent discover`: what a discovery controller of NVMe over Fabrics knows of, for writing
 * Engine documents. Needs no identity and no controller of ours. */
#ifndef ROS2_AGENT_DISCOVER_COMMAND_H
#define ROS2_AGENT_DISCOVER_COMMAND_H

/* @argv[0] is "discover". Returns the exit code: 0 shown, 1 failed, 2 usage. */
int agent_discover_command(int argc, char **argv);

#endif
