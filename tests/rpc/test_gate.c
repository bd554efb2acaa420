/* SPDX-License-Identifier: Apache-2.0 */
/* What gRPC is told of a socket that was reset: gate.c and socket.c by themselves, on two ends of a
 * connection. */
#include "common/util.h"
#include "proto/rpc/rpc_priv.h"
#include "tests/rpc/full.h"
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

typedef ssize_t (*recvmsg_fn)(int fd, struct msghdr *m, int flags);

/* As gRPC has them: the kernel says what is left, and epoll tells once of each event. */
struct ends {
	int ours, theirs, epoll;
};

static int setup(void **state)
{
	static struct ends e;
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
	socklen_t len = sizeof(at);
	int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* Brings gate.c into the program, and its recvmsg. */
	assert_int_equal(rpc_gate_passed(), 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	e.theirs = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(e.theirs, (struct sockaddr *)&at, sizeof(at)), 0);
	e.ours = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(e.ours >= 0);
	close(listener);
	e.epoll = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(e.epoll, EPOLL_CTL_ADD, e.ours, &ev), 0);
	*state = setsockopt(e.ours, IPPROTO_TCP, TCP_INQ, &one, sizeof(one)) ? NULL : &e;
	return 0;
}

static int teardown(void **state)
{
	struct ends *e = *state;

	if (!e)
		return 0;
	close(e->epoll);
	close(e->ours);
	if (e->theirs >= 0)
		close(e->theirs);
	return 0;
}

static struct ends *ends_or_skip(void **state)
{
	if (!*state) {
		print_message("[  SKIPPED ] no TCP_INQ here (qemu-user has none)\n");
		skip();
	}
	return *state;
}

static void reset(struct ends *e)
{
	struct linger at_once = {.l_onoff = 1};
	struct pollfd pfd = {.fd = e->ours};

	assert_int_equal(setsockopt(e->theirs, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
	                 0);
	close(TAKE_FD(e->theirs));
	assert_int_equal(poll(&pfd, 1, 5000), 1);
}

static bool has_event(struct ends *e)
{
	struct epoll_event ev;

	return epoll_wait(e->epoll, &ev, 1, 0) == 1;
}

/* What @receive says is left, when it has read @n bytes. */
static int left_by(recvmsg_fn receive, int fd, size_t n)
{
	char bytes[64];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} space;
	struct iovec iov = {bytes, n};
	struct msghdr m = {.msg_iov = &iov,
	                   .msg_iovlen = 1,
	                   .msg_control = &space,
	                   .msg_controllen = sizeof(space)};
	struct cmsghdr *cm;
	int left;

	assert_int_equal(receive(fd, &m, 0), n);
	cm = CMSG_FIRSTHDR(&m);
	assert_non_null(cm);
	assert_int_equal(cm->cmsg_type, TCP_CM_INQ);
	memcpy(&left, CMSG_DATA(cm), sizeof(left));
	return left;
}

static void say(struct ends *e)
{
	struct pollfd pfd = {.fd = e->ours, .events = POLLIN};

	assert_int_equal(send(e->theirs, "ab", 2, 0), 2);
	assert_int_equal(poll(&pfd, 1, 5000), 1);
}

static void gate__a_reset_behind_the_last_bytes_is_still_to_be_read(void **state)
{
	struct ends *e = ends_or_skip(state);
	char byte;

	say(e);
	reset(e);
	assert_int_equal(left_by(recvmsg, e->ours, 2), 1);
	assert_int_equal(recv(e->ours, &byte, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

static void gate__where_nothing_is_left_it_says_so(void **state)
{
	struct ends *e = ends_or_skip(state);

	say(e);
	assert_int_equal(left_by(recvmsg, e->ours, 2), 0);
}

static void gate__where_something_is_left_the_number_stands(void **state)
{
	struct ends *e = ends_or_skip(state);

	say(e);
	say(e);
	reset(e);
	assert_int_equal(left_by(recvmsg, e->ours, 1), 3);
}

static void gate__who_asks_for_no_word_gets_none(void **state)
{
	struct ends *e = ends_or_skip(state);
	char bytes[8];
	struct iovec iov = {bytes, sizeof(bytes)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	say(e);
	reset(e);
	assert_int_equal(recvmsg(e->ours, &m, 0), 2);
	assert_int_equal(m.msg_controllen, 0);
}

/* One event, of the bytes and of the reset; then "nothing" was said. */
static void gate__a_reset_is_told_again(void **state)
{
	struct ends *e = ends_or_skip(state);

	(void)has_event(e);
	reset(e);
	assert_true(has_event(e));
	assert_false(has_event(e));
	rpc_socket_look_again(e->ours, rpc_socket_ino(e->ours));
	assert_true(has_event(e));
	assert_int_equal(recv(e->ours, (char[1]){0}, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

/* Its descriptor is another's by now. */
static void gate__what_is_not_that_socket_is_left_alone(void **state)
{
	struct ends *e = ends_or_skip(state);

	(void)has_event(e);
	reset(e);
	assert_true(has_event(e));
	rpc_socket_look_again(e->ours, rpc_socket_ino(e->ours) + 1);
	assert_false(has_event(e));
}

static void gate__bytes_are_told_again_and_the_connection_goes_on(void **state)
{
	struct ends *e = ends_or_skip(state);

	say(e);
	assert_true(has_event(e));
	assert_false(has_event(e));
	rpc_socket_look_again(e->ours, rpc_socket_ino(e->ours));
	assert_true(has_event(e));
	assert_int_equal(left_by(recvmsg, e->ours, 2), 0);
	say(e);
	assert_int_equal(left_by(recvmsg, e->ours, 2), 0);
}

/* ---- where there is no descriptor left ---- */

static int descriptors_of(ino_t ino)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += rpc_socket_ino(fd) == ino;
	return n;
}

static void without_descriptors__the_one_that_is_kept_ends_a_socket(void **state)
{
	struct ends *e = ends_or_skip(state);
	ino_t ino = rpc_socket_ino(e->ours);
	struct full f;
	bool ended[3];

	rpc_socket_reserve();
	rpc_socket_reserve();
	rpc_socket_unreserve();
	full_take(&f);
	ended[0] = rpc_socket_end(e->ours, ino + 1);
	ended[1] = rpc_socket_end(e->epoll, ino);
	ended[2] = rpc_socket_end(e->ours, ino);
	full_give(&f);
	/* The one that is kept is of nothing again. */
	assert_int_equal(descriptors_of(ino), 1);
	rpc_socket_unreserve();
	assert_false(ended[0]);
	assert_false(ended[1]);
	assert_true(ended[2]);
	assert_int_equal(recv(e->theirs, (char[1]){0}, 1, 0), 0);
}

static void control__without_it_nothing_is_ended(void **state)
{
	struct ends *e = ends_or_skip(state);
	ino_t ino = rpc_socket_ino(e->ours);
	struct full f;
	bool ended;

	full_take(&f);
	ended = rpc_socket_end(e->ours, ino);
	full_give(&f);
	assert_false(ended);
	assert_int_equal(recv(e->theirs, (char[1]){0}, 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
}

/* Else none of this is needed any more. */
static void control__the_kernel_says_that_nothing_is_left(void **state)
{
	struct ends *e = ends_or_skip(state);
	void *symbol = dlsym(RTLD_NEXT, "recvmsg");
	recvmsg_fn of_libc;

	assert_non_null(symbol);
	memcpy(&of_libc, &symbol, sizeof(of_libc));
	say(e);
	reset(e);
	assert_int_equal(left_by(of_libc, e->ours, 2), 0);
}

static void control__the_low_water_mark_alone_does_not_tell(void **state)
{
	struct ends *e = ends_or_skip(state);
	int one = 1;

	(void)has_event(e);
	reset(e);
	assert_true(has_event(e));
	assert_int_equal(setsockopt(e->ours, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)), 0);
	assert_false(has_event(e));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(gate__a_reset_behind_the_last_bytes_is_still_to_be_read),
		T(gate__where_nothing_is_left_it_says_so),
		T(gate__where_something_is_left_the_number_stands),
		T(gate__who_asks_for_no_word_gets_none),
		T(gate__a_reset_is_told_again),
		T(gate__what_is_not_that_socket_is_left_alone),
		T(gate__bytes_are_told_again_and_the_connection_goes_on),
		T(without_descriptors__the_one_that_is_kept_ends_a_socket),
		T(control__without_it_nothing_is_ended),
		T(control__the_kernel_says_that_nothing_is_left),
		T(control__the_low_water_mark_alone_does_not_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
