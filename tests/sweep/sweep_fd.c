/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors in a sweep: making them, accepting, connecting, waiting for them. A wait or an accept
 * of a descriptor that stays ready is asked again; an EINTR of a wait that was about to sleep is a
 * wait that ended early.
 */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_eventfd(unsigned int count, int flags);
int __wrap_eventfd(unsigned int count, int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __real_accept(int fd, struct sockaddr *a, socklen_t *len);
int __wrap_accept(int fd, struct sockaddr *a, socklen_t *len);
int __real_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags);
int __real_connect(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len);
int __real_poll(struct pollfd *p, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout);
int __real_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout);
int __wrap_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout);
int __real_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *ts,
                        const sigset_t *set);
int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *ts,
                        const sigset_t *set);

int __real_bind(int fd, const struct sockaddr *a, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t len);
int __real_listen(int fd, int backlog);
int __wrap_listen(int fd, int backlog);
int __real_getsockname(int fd, struct sockaddr *a, socklen_t *len);
int __wrap_getsockname(int fd, struct sockaddr *a, socklen_t *len);

static int fails(enum sweep_kind kind)
{
	int err = sweep_hit(kind);

	if (err)
		errno = err;
	return err;
}

int __wrap_socket(int domain, int type, int protocol)
{
	return fails(SWEEP_FD) ? -1 : __real_socket(domain, type, protocol);
}

int __wrap_eventfd(unsigned int count, int flags)
{
	return fails(SWEEP_FD) ? -1 : __real_eventfd(count, flags);
}

int __wrap_epoll_create1(int flags)
{
	return fails(SWEEP_FD) ? -1 : __real_epoll_create1(flags);
}

int __wrap_timerfd_create(int clock, int flags)
{
	return fails(SWEEP_FD) ? -1 : __real_timerfd_create(clock, flags);
}

int __wrap_accept(int fd, struct sockaddr *a, socklen_t *len)
{
	return fails(SWEEP_ACCEPT) ? -1 : __real_accept(fd, a, len);
}

int __wrap_accept4(int fd, struct sockaddr *a, socklen_t *len, int flags)
{
	return fails(SWEEP_ACCEPT) ? -1 : __real_accept4(fd, a, len, flags);
}

int __wrap_connect(int fd, const struct sockaddr *a, socklen_t len)
{
	return fails(SWEEP_CONNECT) ? -1 : __real_connect(fd, a, len);
}

int __wrap_bind(int fd, const struct sockaddr *a, socklen_t len)
{
	return fails(SWEEP_BIND) ? -1 : __real_bind(fd, a, len);
}

int __wrap_listen(int fd, int backlog)
{
	return fails(SWEEP_BIND) ? -1 : __real_listen(fd, backlog);
}

int __wrap_getsockname(int fd, struct sockaddr *a, socklen_t *len)
{
	return fails(SWEEP_BIND) ? -1 : __real_getsockname(fd, a, len);
}

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	return fails(SWEEP_WAIT) ? -1 : __real_poll(p, n, timeout);
}

int __wrap_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout)
{
	return fails(SWEEP_WAIT) ? -1 : __real_epoll_wait(ep, ev, max, timeout);
}

int __wrap_epoll_pwait2(int ep, struct epoll_event *ev, int max, const struct timespec *ts,
                        const sigset_t *set)
{
	return fails(SWEEP_WAIT) ? -1 : __real_epoll_pwait2(ep, ev, max, ts, set);
}
