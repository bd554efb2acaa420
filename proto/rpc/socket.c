/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that gRPC owns: which one a descriptor is, how it is ended, and how gRPC is made to look
 * at it again. gRPC may close any of them at any moment. */
#include "proto/rpc/rpc_priv.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The descriptor may be closed, or be something else's by now, at any moment: that is the question.
 * (ThreadSanitizer would call an fstat of it a race.) */
ino_t rpc_socket_ino(int fd)
{
	struct stat st;

	return fstatat(fd, "", &st, AT_EMPTY_PATH) || !S_ISSOCK(st.st_mode) ? 0 : st.st_ino;
}

/* Not by its number: that may be another's before we come to use it. To be closed; -1: it is
 * closed, or there is no descriptor to be had. */
static int own_socket(int fd, ino_t ino)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (own < 0 || rpc_socket_ino(own) == ino)
		return own;
	close(own);
	return -1;
}

bool rpc_socket_end(int fd, ino_t ino)
{
	int own = own_socket(fd, ino);

	if (own < 0)
		return false;
	shutdown(own, SHUT_RDWR);
	close(own);
	return true;
}

/* See connect(2). */
bool rpc_socket_abort(int fd, ino_t ino)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	int own = own_socket(fd, ino);

	if (own < 0)
		return false;
	if (connect(own, &nobody, sizeof(nobody)))
		shutdown(own, SHUT_RDWR);
	close(own);
	return true;
}

bool rpc_socket_is_over(int fd)
{
	struct pollfd pfd = {.fd = fd};

	return poll(&pfd, 1, 0) == 1 && pfd.revents & POLLHUP;
}

/* Setting SO_RCVLOWAT, to what it is, makes the kernel look anew whether there is something to
 * read, and say so (tcp_set_rcvlowat, since Linux 4.18). Of a reset that says nothing; ending it
 * once more does, whatever it answers (inet_shutdown). */
void rpc_socket_look_again(int fd, ino_t ino)
{
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
	if (rpc_socket_is_over(fd))
		rpc_socket_end(fd, ino);
}
