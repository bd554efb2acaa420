/* SPDX-License-Identifier: Apache-2.0 */
/* Where tenants of this machine connect: one socket for each reactor, in dp_opts.shm_dir. */
#include "dataplane/reactor_priv.h"
#include "dataplane/shm.h"
#include "dataplane/shm_socket.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

_Static_assert(sizeof(((struct reactor *)0)->shm_path) ==
                       sizeof(((struct sockaddr_un *)0)->sun_path),
               "a path is as long as an address of a socket may be");

/* Left by an agent that was killed: nobody answers there. So says the system of what is no socket,
 * too: that is somebody's. */
static bool is_left_over(const struct sockaddr_un *at)
{
	struct stat st;
	bool refused;
	int fd;

	if (lstat(at->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	refused =
		connect(fd, (const struct sockaddr *)at, sizeof(*at)) < 0 && errno == ECONNREFUSED;
	close(fd);
	return refused;
}

static int bind_listen(int fd, const struct sockaddr_un *at)
{
	int rc = bind(fd, (const struct sockaddr *)at, sizeof(*at));

	if (rc < 0 && errno == EADDRINUSE && is_left_over(at)) {
		if (unlink(at->sun_path) < 0)
			return -errno;
		rc = bind(fd, (const struct sockaddr *)at, sizeof(*at));
	}
	if (rc < 0)
		return -errno;
	shm_socket_listens(fd);
	/* Who may do what is proved by HELLO, not by who may open a file. */
	if (chmod(at->sun_path, 0666) < 0 || listen(fd, 128) < 0) {
		rc = -errno;
		unlink(at->sun_path);
		return rc;
	}
	return 0;
}

/* Who may write to it may put a socket of his own where tenants look for the agent's, stand between
 * the two, and have each session's memory. */
static int own_directory(const char *dir, struct ros2_err *err)
{
	struct stat st;

	/* Whatever the umask is: tenants must get through. */
	if ((mkdir(dir, 0755) < 0 || chmod(dir, 0755) < 0) && errno != EEXIST)
		return ros2_err_set(err, -errno, "%s: cannot make the directory: %s", dir,
		                    strerror(errno));
	if (stat(dir, &st) < 0)
		return ros2_err_set(err, -errno, "%s: cannot look at the directory: %s", dir,
		                    strerror(errno));
	if (S_ISDIR(st.st_mode) &&
	    ((st.st_uid != geteuid() && st.st_uid != 0) || st.st_mode & (S_IWGRP | S_IWOTH)))
		return ros2_err_set(err, -EPERM,
		                    "%s: others may write to the directory (owner %u, mode %03o): "
		                    "expected one that is this agent's alone",
		                    dir, st.st_uid, st.st_mode & 0777);
	return 0;
}

int shm_listen(struct reactor *r, struct ros2_err *err)
{
	const char *dir = r->dp->opts.shm_dir;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct listener *l = &r->shm_listener;
	int n, rc;

	if (!dir)
		return 0;
	n = snprintf(at.sun_path, sizeof(at.sun_path), "%s/reactor%u.sock", dir, r->index);
	if (n < 0 || (size_t)n >= sizeof(at.sun_path))
		return ros2_err_set(err, -ENAMETOOLONG,
		                    "%s: a directory for sockets has at most %zu bytes of name",
		                    dir, sizeof(at.sun_path) - sizeof("/reactor00.sock"));
	rc = own_directory(dir, err);
	if (rc < 0)
		return rc;
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	rc = l->fd < 0 ? -errno : bind_listen(l->fd, &at);
	if (rc == 0) {
		memcpy(r->shm_path, at.sun_path, sizeof(r->shm_path));
		rc = hello_listens(r, l, &transport_shm);
	}
	return rc < 0 ? ros2_err_set(err, rc, "cannot listen at %s: %s", at.sun_path, strerror(-rc))
	              : 0;
}

void shm_unlisten(struct reactor *r)
{
	/* Before the socket: who finds the name finds somebody. */
	if (r->shm_path[0])
		unlink(r->shm_path);
	r->shm_path[0] = '\0';
	shm_socket_close_listener(r->dp->shm_closer, TAKE_FD(r->shm_listener.fd));
}
