/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets in a sweep: what sends and what receives fails, or moves one byte (error 0). A descriptor
 * that an edge-triggered epoll watches is armed again after a fault, as the kernel would tell of
 * room or bytes after a true EAGAIN.
 */
#include "tests/sweep/sweep.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define FDS_MAX 4096

ssize_t __real_send(int fd, const void *p, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t n, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __real_recv(int fd, void *p, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t n, int flags);
ssize_t __real_readv(int fd, const struct iovec *v, int n);
ssize_t __wrap_readv(int fd, const struct iovec *v, int n);
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);

/* Written and read by the descriptor's reactor. */
static struct {
	int ep;
	struct epoll_event ev;
} watched[FDS_MAX];

int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	int err;

	if (fd >= 0 && fd < FDS_MAX) {
		watched[fd].ep = ev ? ep : -1;
		watched[fd].ev = ev ? *ev : (struct epoll_event){0};
	}
	err = op == EPOLL_CTL_DEL ? 0 : sweep_hit(SWEEP_EPOLL_CTL);
	if (!err)
		return __real_epoll_ctl(ep, op, fd, ev);
	errno = err;
	return -1;
}

static void arm_again(int fd)
{
	if (fd < FDS_MAX && (watched[fd].ev.events & EPOLLET))
		(void)__real_epoll_ctl(watched[fd].ep, EPOLL_CTL_MOD, fd, &watched[fd].ev);
}

static ssize_t failed(int fd, int err)
{
	if (err == EAGAIN)
		arm_again(fd);
	errno = err;
	return -1;
}

ssize_t __wrap_send(int fd, const void *p, size_t n, int flags)
{
	int err = sweep_hit(SWEEP_SEND);

	if (err > 0)
		return failed(fd, err);
	return __real_send(fd, p, err == SWEEP_SHORT && n > 1 ? 1 : n, flags);
}

/* The first byte of what would be moved; NULL when there is none. */
static const struct iovec *first_of(const struct iovec *v, size_t n, struct iovec *one)
{
	for (size_t i = 0; i < n; i++) {
		if (v[i].iov_len) {
			*one = (struct iovec){v[i].iov_base, 1};
			return one;
		}
	}
	return NULL;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	int err = sweep_hit(SWEEP_SEND);
	struct iovec one;

	if (err > 0)
		return failed(fd, err);
	if (err == SWEEP_SHORT && first_of(m->msg_iov, m->msg_iovlen, &one))
		return __real_send(fd, one.iov_base, 1, flags);
	return __real_sendmsg(fd, m, flags);
}

ssize_t __wrap_recv(int fd, void *p, size_t n, int flags)
{
	int err = sweep_hit(SWEEP_RECV);
	ssize_t got;

	if (err > 0)
		return failed(fd, err);
	got = __real_recv(fd, p, err == SWEEP_SHORT && n > 1 ? 1 : n, flags);
	if (err == SWEEP_SHORT)
		arm_again(fd);
	return got;
}

ssize_t __wrap_readv(int fd, const struct iovec *v, int n)
{
	int err = sweep_hit(SWEEP_RECV);
	struct iovec one;

	if (err > 0)
		return failed(fd, err);
	if (err == SWEEP_SHORT && first_of(v, (size_t)n, &one))
		return __real_recv(fd, one.iov_base, 1, 0);
	return __real_readv(fd, v, n);
}
