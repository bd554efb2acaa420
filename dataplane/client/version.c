/* SPDX-License-Identifier: Apache-2.0 */
/* Which libros2 a program was linked with. */
#include "dataplane/client/ros2.h"

const char *ros2_client_version(void)
{
	return ROS2_VERSION_STRING;
}
