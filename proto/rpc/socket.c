/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that gRPC owns: which one a descriptor is, how it is ended, and how gRPC is made to look
 * at it again. gRPC may close any of them at any moment. */
#include "common/util.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
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

/* ---- a descriptor where there is none ---- */

/* Of a process that has no descriptor left a connection could not be ended, and with it would go
 * one of those that are missed. So one is kept: it is of the socket for a moment, and otherwise of
 * nothing. */
static struct {
	pthread_mutex_t lock;
	/* guarded by lock */
	unsigned users;
	int spare, nothing;
} reserve = {PTHREAD_MUTEX_INITIALIZER, 0, -1, -1};

void rpc_socket_reserve(void)
{
	pthread_mutex_lock(&reserve.lock);
	reserve.users++;
	if (reserve.nothing < 0)
		reserve.nothing = eventfd(0, EFD_CLOEXEC);
	if (reserve.nothing >= 0 && reserve.spare < 0)
		reserve.spare = fcntl(reserve.nothing, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&reserve.lock);
}

void rpc_socket_unreserve(void)
{
	pthread_mutex_lock(&reserve.lock);
	if (!--reserve.users) {
		if (reserve.spare >= 0)
			close(TAKE_FD(reserve.spare));
		if (reserve.nothing >= 0)
			close(TAKE_FD(reserve.nothing));
	}
	pthread_mutex_unlock(&reserve.lock);
}

static bool by_the_spare(int fd, ino_t ino, void (*act)(int own))
{
	bool is = false;

	pthread_mutex_lock(&reserve.lock);
	if (reserve.spare >= 0 && dup3(fd, reserve.spare, O_CLOEXEC) >= 0) {
		is = rpc_socket_ino(reserve.spare) == ino;
		if (is)
			act(reserve.spare);
		dup3(reserve.nothing, reserve.spare, O_CLOEXEC);
	}
	pthread_mutex_unlock(&reserve.lock);
	return is;
}

/* Not by its number: that may be another's before we come to use it. */
static bool by_own(int fd, ino_t ino, void (*act)(int own))
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	bool is;

	if (own < 0)
		return errno == EMFILE && by_the_spare(fd, ino, act);
	is = rpc_socket_ino(own) == ino;
	if (is)
		act(own);
	close(own);
	return is;
}

static void end_it(int own)
{
	shutdown(own, SHUT_RDWR);
}

bool rpc_socket_end(int fd, ino_t ino)
{
	return by_own(fd, ino, end_it);
}

/* See connect(2). */
static void abort_it(int own)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (connect(own, &nobody, sizeof(nobody)))
		shutdown(own, SHUT_RDWR);
}

bool rpc_socket_abort(int fd, ino_t ino)
{
	return by_own(fd, ino, abort_it);
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

/* Setting TCP_NOTSENT_LOWAT, to what it is, makes the kernel say that there is room to write (since
 * Linux 3.12), and who polls for both learns what there is to accept. */
void rpc_socket_accept_again(int fd)
{
	uint32_t low = 0;
	socklen_t len = sizeof(low);

	if (!getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, &len))
		setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof(low));
}
