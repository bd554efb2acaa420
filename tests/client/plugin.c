/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a shared object with libros2 in it: loaded, used and unloaded by plugin_host.c. */
#include "dataplane/client/ros2.h"
#include "tests/client/plugin.h"

int plugin_run(const struct ros2_client_opts *o)
{
	struct ros2_client *c;
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_file *f;
	char data[4096];
	int rc = ros2_connect(o, &c, NULL);

	if (rc)
		return rc;
	rc = ros2_session_open(c, NULL, &s, NULL);
	if (!rc) {
		rc = ros2_mount(s, "data", &m, NULL);
		if (!rc)
			rc = ros2_open(m, "f", ROS2_O_RDONLY, 0, &f, NULL);
		if (!rc)
			rc = (int)ros2_pread(f, data, sizeof(data), 0, NULL);
		ros2_session_close(s);
	}
	ros2_disconnect(c);
	return rc;
}
