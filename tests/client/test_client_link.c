/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection over TCP that libros2 gives up leaves behind: of requests that have not ended
 * nothing that the kernel had not sent yet arrives, also where the kernel knows no connect(2) to
 * nobody, as a sandbox's (gVisor) does not; one without any ends in order, with all that was sent.
 */
#include "tests/testing.h"
#include "dataplane/client/internal_priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static bool knows_nobody; /* connect(2) to nobody works here */

int __real_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	if (to->sa_family != AF_UNSPEC || knows_nobody)
		return __real_connect(fd, to, len);
	errno = EOPNOTSUPP;
	return -1;
}

/* @ret: the end of libros2, and the agent's, which takes little unread. */
static void pair(int ret[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), little = 4096;
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(ret[0], (struct sockaddr *)&at, sizeof(at)), 0);
	ret[1] = accept(listener, NULL, NULL);
	assert_true(ret[1] >= 0);
	close(listener);
}

/* More than the other end takes: as much as the kernel does. */
static size_t fill(int fd)
{
	static const uint8_t bytes[65536];
	size_t sum = 0;
	ssize_t n;

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while ((n = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL)) > 0)
		sum += (size_t)n;
	assert_int_equal(errno, EAGAIN);
	return sum;
}

/* Until the end, which is @ret_error, 0 in order. */
static size_t arrives(int fd, int *ret_error)
{
	uint8_t bytes[65536];
	size_t sum = 0;
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
		sum += (size_t)n;
	*ret_error = n < 0 ? errno : 0;
	close(fd);
	return sum;
}

static void cut(bool knows, uint32_t n_sent, int end)
{
	struct ros2_session s = {.over = ROS2_TRANSPORT_TCP, .n_sent = n_sent};
	size_t sent, came;
	int fds[2], error;

	knows_nobody = knows;
	pair(fds);
	sent = fill(fds[0]);
	s.fd = fds[0];
	link_cut(&s);
	assert_int_equal(s.fd, -1);
	came = arrives(fds[1], &error);
	assert_int_equal(error, end);
	if (end)
		assert_true(came < sent);
	else
		assert_int_equal(came, sent);
}

static void cut__sends_nothing_more_of_requests_that_have_not_ended(void **state)
{
	cut(true, 1, ECONNRESET);
}

static void cut__sends_nothing_more_where_there_is_no_connect_to_nobody(void **state)
{
	cut(false, 1, ECONNRESET);
}

/* Control: it is there to be sent, and is. */
static void cut__without_requests_ends_in_order(void **state)
{
	cut(true, 0, 0);
	cut(false, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cut__sends_nothing_more_of_requests_that_have_not_ended),
		cmocka_unit_test(cut__sends_nothing_more_where_there_is_no_connect_to_nobody),
		cmocka_unit_test(cut__without_requests_ends_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
