/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that a stranger sends over the socket of the shm transport. Nobody wants them, but
 * whoever drops the last reference to an open file carries out its close: of a TCP socket that
 * lingers that is a wait for as long as its owner likes. No reactor may do that, so its neighbours
 * would notice; and anybody on the machine can connect.
 */
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/slow_fixture.h"
#include <dirent.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Nobody takes what is sent before the sender has closed it: else the sender's close were the last.
 */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void pass_gate(void)
{
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

ssize_t __real_recv(int fd, void *p, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t len, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);

ssize_t __wrap_recv(int fd, void *p, size_t len, int flags)
{
	pass_gate();
	return __real_recv(fd, p, len, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	pass_gate();
	return __real_recvmsg(fd, msg, flags);
}

/* ---- whose close it is ---- */

static _Thread_local int given = -1; /* was sent to the closer, so its close is not the last */
static _Atomic unsigned closed_after, closed_here;

int __real_close(int fd);
int __wrap_close(int fd);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

static int option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int v = -1;

	return getsockopt(fd, SOL_SOCKET, name, &v, &len) < 0 ? -1 : v;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n = __real_sendmsg(fd, msg, flags);
	struct cmsghdr *c = CMSG_FIRSTHDR(msg);
	int sent = -1, error = errno;

	if (n > 0 && c && c->cmsg_type == SCM_RIGHTS)
		memcpy(&sent, CMSG_DATA(c), sizeof(sent));
	/* A session's memory is sent, too. */
	given = option(sent, SO_DOMAIN) == AF_UNIX ? sent : -1;
	errno = error;
	return n;
}

int __wrap_close(int fd)
{
	char name[16];

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (!strncmp(name, "reactor", 7) && option(fd, SO_DOMAIN) == AF_UNIX &&
	    !option(fd, SO_ACCEPTCONN))
		(*(fd == given ? &closed_after : &closed_here))++;
	given = -1;
	return __real_close(fd);
}

/* A TCP connection with bytes that nobody takes: its last close waits for them. */
struct lingering {
	int fd, peer;
};

static void lingering_make(struct lingering *l)
{
	static const char bytes[65536];
	struct linger wait = {.l_onoff = 1, .l_linger = 10 * AWAIT_S};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(at);

	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(l->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	l->peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(l->peer >= 0);
	close(listener);
	while (send(l->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		continue;
	assert_int_equal(setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
}

/* Whoever closed it last goes on. */
static void lingering_release(struct lingering *l)
{
	char bytes[65536];

	while (recv(l->peer, bytes, sizeof(bytes), 0) > 0)
		continue;
	close(l->peer);
}

/* With @len bytes, which is the last that we have of it. */
static void give_away(int to, struct lingering *l, const void *bytes, size_t len, int flags)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)bytes, len};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	struct linger none = {0};

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &l->fd, sizeof(int));
	pthread_mutex_lock(&gate);
	if (sendmsg(to, &msg, MSG_NOSIGNAL | flags) < 0) {
		/* Since Linux 6.16 the agent's end takes none. */
		assert_int_equal(errno, EPERM);
		setsockopt(l->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	}
	close(l->fd);
	pthread_mutex_unlock(&gate);
}

static bool taken(int fd)
{
	int n = 0;

	assert_int_equal(ioctl(fd, SIOCOUTQ, &n), 0);
	return n == 0;
}

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Where it is sent, and how. */
enum where { UNPROVED, UNPROVED_AND_GONE, BEFORE_MAPPED, PROVED, AT_THE_END, WHERES };

/* A connection to the same reactor as the neighbour's. */
static void connection_at(struct fx *fx, struct shm_raw *t, const char *path, enum where w)
{
	if (w <= UNPROVED_AND_GONE) {
		*t = (struct shm_raw){.c = {.fx = fx, .fd = rs_connect_path(path)}, .memfd = -1};
		return;
	}
	rs_open_at(fx, t, path);
	rs_hello(t);
	rs_memory(t);
	if (w == BEFORE_MAPPED)
		return;
	rs_mapped(t);
	rs_ping(t);
}

static void end_of(struct shm_raw *t, enum where w)
{
	if (w <= UNPROVED_AND_GONE)
		rs_close(t);
	else
		rs_end(t);
}

static void send_one(struct fx *fx, const struct shm_raw *n, enum where w, int flags)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct lingering l;
	struct shm_raw t;

	wire_seal(&h);
	lingering_make(&l);
	connection_at(fx, &t, n->path, w);
	give_away(t.c.fd, &l, &h, flags & MSG_OOB ? 1 : sizeof(h), flags);
	if (w == UNPROVED_AND_GONE || w == AT_THE_END)
		end_of(&t, w);
	rs_works((struct shm_raw *)n);
	if (w != UNPROVED_AND_GONE && w != AT_THE_END)
		end_of(&t, w);
	rs_works((struct shm_raw *)n);
	lingering_release(&l);
}

static void all_ways(struct fx *fx)
{
	struct shm_raw n;
	unsigned before;

	rs_neighbour(fx, &n);
	before = count_fds();
	for (enum where w = 0; w < WHERES; w++) {
		send_one(fx, &n, w, 0);
		send_one(fx, &n, w, MSG_OOB);
	}
	assert_true(AWAIT(count_fds() == before));
	rs_works(&n);
	rs_end(&n);
}

static void descriptors__that_are_slow_to_close_make_no_neighbour_wait(void **state)
{
	all_ways(*state);
}

/* As before Linux 6.16, where no kernel keeps them away. */
static void descriptors__that_come_make_no_neighbour_wait(void **state)
{
	all_ways(*state);
}

static void descriptors__that_come_end_the_session_by_name(void **state)
{
	struct lingering l;
	struct shm_raw t;

	lingering_make(&l);
	rs_ready(*state, &t);
	give_away(t.c.fd, &l, "x", 1, 0);
	rs_expect_end(&t, ROS2_PROTOCOL, "open files");
	rs_end(&t);
	lingering_release(&l);
}

/* Who is not listened to yet can send them, too; and then the data plane ends. */
static void descriptors__that_lie_there_at_the_end_make_it_wait_for_nobody(void **state)
{
	struct fx *fx = *state;
	struct lingering l[20];
	struct shm_raw t;

	rs_open_session(fx, &t);
	for (int i = 0; i < 20; i++) {
		int fd = rs_connect_path(t.path);

		lingering_make(&l[i]);
		give_away(fd, &l[i], "x", 1, 0);
		close(fd);
	}
	rs_close(&t);
	assert_int_equal(fx_teardown(state), 0);
	for (int i = 0; i < 20; i++)
		lingering_release(&l[i]);
	assert_int_equal(fx_setup(state), 0);
}

/* The control: taken as they come, the reactor waits as long as the owner likes. */
static void control__who_takes_them_waits_for_their_close(void **state)
{
	struct fx *fx = *state;
	struct pollfd p = {.events = POLLIN};
	struct lingering l;
	struct shm_raw n, t;
	struct wire_header h;

	rs_neighbour(fx, &n);
	rs_open_at(fx, &t, n.path);
	rs_connect(&t);
	lingering_make(&l);
	give_away(t.c.fd, &l, "x", 1, 0);
	assert_true(AWAIT(taken(t.c.fd)));
	h = raw_header(&n.c, WIRE_PING, 0, 0, 0);
	h.key = 0;
	__atomic_store_n(&rs_control(&n)->to_tenant.sleeps, 1, __ATOMIC_SEQ_CST);
	rs_put(&n, &h);
	p.fd = n.c.fd;
	/* time: that nothing comes can only be seen by waiting; a slow machine sees the same */
	assert_int_equal(poll(&p, 1, 200), 0);
	assert_true(rs_nothing(&n));
	lingering_release(&l);
	assert_true(rs_take(&n, &h, NULL));
	assert_int_equal(h.opcode, WIRE_PONG);
	rs_end(&t);
	rs_end(&n);
}

/* Before Linux 6.9 any close of such a socket may be that of what others have left in theirs: so
 * where the kernel keeps nothing away no reactor carries out one, whether something was sent or
 * not. */
static void come_and_go(struct fx *fx)
{
	struct shm_raw n, t;

	rs_neighbour(fx, &n);
	closed_after = closed_here = 0;
	for (enum where w = 0; w < WHERES; w++) {
		connection_at(fx, &t, n.path, w);
		end_of(&t, w);
		rs_works(&n);
	}
	assert_true(AWAIT(closed_after + closed_here >= WHERES));
	rs_end(&n);
}

static void sockets__of_strangers_are_closed_by_no_reactor(void **state)
{
	come_and_go(*state);
	assert_int_equal(closed_here, 0);
}

/* That the look sees them. */
static void control__where_the_kernel_refuses_a_reactor_closes_them(void **state)
{
	int no = 0, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool refuses = setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;

	close(fd);
	if (!refuses)
		skip();
	come_and_go(*state);
	assert_true(closed_here >= WHERES);
	assert_int_equal(closed_after, 0);
}

static int setup_passing(void **state)
{
	slow_prepare();
	dp_test_switches.passes_descriptors = true;
	return fx_setup(state);
}

static int setup_taking(void **state)
{
	slow_prepare();
	dp_test_switches.passes_descriptors = dp_test_switches.no_descriptor_look = true;
	return fx_setup(state);
}

#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, slow_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(descriptors__that_are_slow_to_close_make_no_neighbour_wait),
		T(descriptors__that_come_make_no_neighbour_wait, setup_passing),
		T(descriptors__that_come_end_the_session_by_name, setup_passing),
		T(descriptors__that_lie_there_at_the_end_make_it_wait_for_nobody, setup_passing),
		T(sockets__of_strangers_are_closed_by_no_reactor, setup_passing),
		SLOW_TEST(control__where_the_kernel_refuses_a_reactor_closes_them),
		T(control__who_takes_them_waits_for_their_close, setup_taking),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
