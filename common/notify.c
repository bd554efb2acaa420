/* SPDX-License-Identifier: Apache-2.0 */
/* One datagram to the socket that NOTIFY_SOCKET names: a path, or with '@' an abstract address. */
#include "common/notify.h"
#include "common/util.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int notify_ready(struct ros2_err *err)
{
	static const char ready[] = "READY=1";
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len = name ? strlen(name) : 0;
	AUTO_CLOSE int fd = -1;

	if (!len)
		return 0;
	if (len < 2 || len > sizeof(at.sun_path) || (name[0] != '/' && name[0] != '@'))
		return ros2_err_set(err, -EINVAL,
		                    "NOTIFY_SOCKET: expected a path or @NAME, found \"%s\"", name);
	memcpy(at.sun_path, name, len);
	if (name[0] == '@')
		at.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, ready, strlen(ready), MSG_NOSIGNAL, (const struct sockaddr *)&at,
	                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		return ros2_err_set(err, -errno, "NOTIFY_SOCKET %s: %s", name, strerror(errno));
	return 0;
}
