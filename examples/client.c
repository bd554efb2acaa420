/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest useful tenant: connect, mount, write, read back, list. Where and who come from the
 * environment (ROS2_AGENT, ROS2_CERT, ROS2_KEY, ROS2_CA). Outside this tree:
 *   cc client.c $(pkg-config --cflags --libs ros2) -o client && ./client data */
#include <ros2.h>
#include <stdio.h>
#include <string.h>

static struct ros2_err err;

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", what, ros2_status_to_str(err.status), err.msg);
	return 1;
}

static int use(struct ros2_session *s, const char *namespace_name)
{
	static const char text[] = "written by examples/client.c";
	struct ros2_dirent entries[64];
	struct ros2_mount *m;
	struct ros2_file *f;
	void *buf = NULL;
	uint64_t cookie = 0;

	if (ros2_mount(s, namespace_name, &m, &err))
		return fail("mount");
	if (ros2_open(m, "hello", ROS2_O_RDWR | ROS2_O_CREAT | ROS2_O_TRUNC, 0644, &f, &err))
		return fail("open");
	/* Memory the agent reaches without a copy, under a lease that is renewed for us. */
	if (ros2_buf_alloc(s, 4096, &buf, &err))
		return fail("buffer");
	strcpy(buf, text);
	if (ros2_pwrite(f, buf, sizeof(text), 0, &err) < 0 || ros2_flush(f, &err))
		return fail("write");
	memset(buf, 0, 4096);
	if (ros2_pread(f, buf, sizeof(text), 0, &err) < 0)
		return fail("read");
	printf("read back: %s\n", (char *)buf);
	if (ros2_close(f, &err))
		return fail("close");
	do {
		int n = ros2_readdir(m, "", &cookie, entries, 64, &err);

		if (n < 0)
			return fail("list");
		for (int i = 0; i < n; i++)
			printf("%s%s\n", entries[i].name, entries[i].type == 2 ? "/" : "");
	} while (cookie);
	return strcmp(buf, text) != 0;
}

int main(int argc, char **argv)
{
	struct ros2_client_opts opts;
	struct ros2_client *c = NULL;
	struct ros2_session *s = NULL;
	int rc = 1;

	if (ros2_client_opts_from_env(&opts, &err) || ros2_connect(&opts, &c, &err))
		return fail("connect");
	if (ros2_session_open(c, NULL, &s, &err))
		fail("session");
	else
		rc = use(s, argc > 1 ? argv[1] : "data");
	ros2_session_close(s);
	ros2_disconnect(c);
	return rc;
}
