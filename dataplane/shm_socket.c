/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shm_socket.h. How a socket is closed where the kernel does not keep open files away, so that
 * nobody waits:
 *
 * 1. It is sent to the closer and then closed, in this order, because what is on its way keeps it
 *    open; the closer takes it afterwards. Whatever lies in it: before Linux 6.9 the close of any
 *    socket of this kind also closes what anybody on the machine has left in others that only hold
 *    each other.
 * 2. The closer has a table of descriptors of its own, so that its threads keep nothing open of the
 *    process's. For what was sent it starts a thread, which makes a table of its own again,
 * receives into that, and ends. The kernel closes what was in the table while the thread ends: what
 * would linger does not do so for who is ending (PF_EXITING), and all else takes nobody's time but
 *    that thread's.
 */
#include "dataplane/shm_socket.h"
#include "common/util.h"
#include "dataplane/own_fds.h"
#include "dataplane/slow.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#define AT_ONCE 64 /* sockets that one thread closes */
/* Of such a thread. aarch64 takes none of less than 128 KiB: it would have the default one, of 8
 * MiB or what the process was given, for each thread that strangers keep. */
#define STACK (128u << 10)
/* Bytes that a call takes: as many buffers they may have come in. */
#define STEP  4u
#define TRIES 64u /* of a call that says there is nothing, or was interrupted */

struct shm_closer {
	int to, from; /* from: the closer's own table has it, too, and there alone it is open */
	pthread_t thread;
	sem_t ready, sent, taken; /* sent: and closed by who sent it */
	pthread_mutex_t lock;     /* of who sends: sent counts in the order of what was sent */
	bool refuses; /* the kernel keeps open files away from sockets here; immutable after start
	               */
	int rc;       /* of the start */
	bool over;    /* nothing more is sent */
};

/* ---- the closer ---- */

struct parcel {
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov;
	struct msghdr msg;
};

static void parcel_init(struct parcel *p)
{
	*p = (struct parcel){.iov = {&p->byte, 1}};
	p->msg = (struct msghdr){.msg_iov = &p->iov,
	                         .msg_iovlen = 1,
	                         .msg_control = p->control.bytes,
	                         .msg_controllen = sizeof(p->control.bytes)};
}

/* The next into the table of the calling thread; -1: that was the last, or none came. */
static int take_parcel(struct shm_closer *c)
{
	struct parcel p;
	ssize_t n;
	int fd = -1;

	parcel_init(&p);
	n = syscall(SYS_recvmsg, c->from, &p.msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	c->over = n == 0;
	if (n > 0 && CMSG_FIRSTHDR(&p.msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&p.msg)), sizeof(fd));
	return fd;
}

static void *close_one(void *arg)
{
	struct shm_closer *c = arg;
	bool own = unshare(CLONE_FILES) == 0;
	int fd = take_parcel(c);

	for (int i = 1; own && !c->over && i < AT_ONCE && sem_trywait(&c->sent) == 0; i++)
		(void)take_parcel(c);
	sem_post(&c->taken);
	/* What is left to do takes as long as strangers make it, and nobody waits for it. */
	(void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19);
	/* Without a table of its own: the others go on meanwhile. */
	if (!own && fd >= 0)
		(void)syscall(SYS_close, fd);
	return NULL;
}

static int start_one(struct shm_closer *c)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	rc = pthread_create(&thread, &attr, close_one, c);
	pthread_attr_destroy(&attr);
	return rc;
}

static void wait_for(sem_t *s)
{
	while (sem_wait(s) < 0) /* EINTR */
		;
}

static void *closer_main(void *arg)
{
	struct shm_closer *c = arg;
	int fd;

	c->rc = own_fds_keep(c->from);
	sem_post(&c->ready);
	if (c->rc < 0)
		return NULL;
	while (!c->over) {
		wait_for(&c->sent);
		if (start_one(c) == 0) {
			wait_for(&c->taken);
			continue;
		}
		/* No thread for it: those behind wait for this one, and no reactor. */
		fd = take_parcel(c);
		if (fd >= 0)
			(void)syscall(SYS_close, fd);
	}
	(void)syscall(SYS_close, c->from);
	return NULL;
}

/* False: the kernel does not know how. */
static bool refuse_files(int fd)
{
	int no = 0;

	return !DP_SWITCH(passes_descriptors) &&
	       setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;
}

static int start(struct shm_closer *c)
{
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	c->refuses = refuse_files(ends[0]);
	c->to = ends[0];
	c->from = ends[1];
	rc = -pthread_create(&c->thread, NULL, closer_main, c);
	if (rc == 0) {
		pthread_setname_np(c->thread, "closer");
		wait_for(&c->ready);
		rc = c->rc;
		if (rc < 0)
			pthread_join(c->thread, NULL);
	}
	close(ends[1]);
	if (rc < 0)
		close(c->to);
	return rc;
}

int shm_closer_new(struct shm_closer **ret, struct ros2_err *err)
{
	struct shm_closer *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return ros2_err_set(err, -ENOMEM, "no memory for a thread that closes sockets");
	sem_init(&c->ready, 0, 0);
	sem_init(&c->sent, 0, 0);
	sem_init(&c->taken, 0, 0);
	pthread_mutex_init(&c->lock, NULL);
	rc = start(c);
	if (rc < 0) {
		free(c);
		return ros2_err_set(err, rc, "cannot start a thread that closes sockets: %s",
		                    strerror(-rc));
	}
	*ret = c;
	return 0;
}

void shm_closer_free(struct shm_closer *c)
{
	if (!c)
		return;
	close(c->to);
	sem_post(&c->sent);
	pthread_join(c->thread, NULL);
	sem_destroy(&c->ready);
	sem_destroy(&c->sent);
	sem_destroy(&c->taken);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Waits at most for the closer, which waits for no stranger. Where it cannot be sent, its close
 * takes the caller's time after all. */
static void give(struct shm_closer *c, int fd)
{
	struct parcel p;
	ssize_t n;

	parcel_init(&p);
	p.control.head.cmsg_level = SOL_SOCKET;
	p.control.head.cmsg_type = SCM_RIGHTS;
	p.control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&p.control.head), &fd, sizeof(fd));
	pthread_mutex_lock(&c->lock);
	do {
		n = sendmsg(c->to, &p.msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	close(fd);
	if (n == 1)
		sem_post(&c->sent);
	pthread_mutex_unlock(&c->lock);
}

/* ---- sockets ---- */

void shm_socket_listens(int fd)
{
	/* What connects inherits it. Without, the bytes are looked at. */
	(void)refuse_files(fd);
}

void shm_socket_accepted(int fd)
{
	int yes = 1;

	/* Else a byte that is sent out of band would be passed over by a look, and dropped, with
	 * what comes with it, by the call that takes those around it. */
	(void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof(yes));
}

ssize_t shm_socket_look(int fd, void *p, size_t len)
{
	struct iovec iov = {p, len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n = recvmsg(fd, &msg, MSG_PEEK | MSG_DONTWAIT);

	if (n > 0 && msg.msg_flags & MSG_CTRUNC && !DP_SWITCH(no_descriptor_look)) {
		errno = EPERM;
		return -1;
	}
	return n;
}

ssize_t shm_socket_take(int fd, void *p, size_t len, struct slow *slow)
{
	size_t step = DP_SWITCH(no_slow_end) ? len : STEP, at = 0;
	struct slow_call call;
	uint32_t tries = 0;
	ssize_t n;

	while (at < len && !slow->over) {
		slow_begin(&call, slow, clock_boottime_ns());
		n = recv(fd, (uint8_t *)p + at, MIN(len - at, step), MSG_DONTWAIT);
		slow_done(slow, &call, slow_allowed_ns(SLOW_NS), clock_boottime_ns());
		/* They are there: nobody else takes any. */
		if (n < 0 && (errno == EAGAIN || errno == EINTR) && tries++ < TRIES)
			continue;
		if (n <= 0)
			return at ? (ssize_t)at : n;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

ssize_t shm_socket_send(int fd, const struct msghdr *msg, struct slow *slow)
{
	struct slow_call call;
	ssize_t n;

	slow_begin(&call, slow, clock_boottime_ns());
	n = sendmsg(fd, msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	slow_done(slow, &call, slow_allowed_ns(SLOW_NS), clock_boottime_ns());
	return n;
}

/* The stranger sees its end at once; and nothing more can come. */
static void end_both_ways(int fd, struct slow *slow)
{
	struct slow_call call;

	slow_watch(slow, clock_boottime_ns());
	slow_begin(&call, slow, clock_boottime_ns());
	(void)shutdown(fd, SHUT_RDWR);
	slow_done(slow, &call, slow_allowed_ns(SLOW_NS), clock_boottime_ns());
}

static bool is_empty(int fd)
{
	int left = 1;

	return ioctl(fd, SIOCINQ, &left) == 0 && left == 0;
}

void shm_socket_close(struct shm_closer *c, int epoll_fd, int fd, struct slow *slow)
{
	/* While it is on its way it is open yet. */
	(void)epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	if (!slow->over && !slow->in_a_row)
		end_both_ways(fd, slow);
	if (c->refuses && !slow->over && !slow->in_a_row && is_empty(fd))
		close(fd);
	else
		give(c, fd);
}

void shm_socket_close_listener(struct shm_closer *c, int fd)
{
	if (fd >= 0)
		give(c, fd);
}
