/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager hears when a program serves, through sockets as it makes them. */
#include "common/notify.h"
#include "common/util.h"
#include "tests/testing.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The manager's socket at @name ('@': an abstract address), which the environment names. */
static int listens(const char *name)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t len = strlen(name);

	assert_true(fd >= 0 && len <= sizeof(at.sun_path));
	memcpy(at.sun_path, name, len);
	if (name[0] == '@')
		at.sun_path[0] = '\0';
	assert_int_equal(bind(fd, (struct sockaddr *)&at,
	                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
	                 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
	return fd;
}

static void hears_ready_once(int fd)
{
	char got[64];

	assert_int_equal(recv(fd, got, sizeof(got), 0), strlen("READY=1"));
	assert_memory_equal(got, "READY=1", strlen("READY=1"));
	assert_true(recv(fd, got, sizeof(got), 0) < 0 && errno == EAGAIN);
}

static void notify__says_ready_at_a_path(void **state)
{
	char path[4200];
	AUTO_CLOSE int fd = -1;

	testing_path(path, *state, "notify");
	fd = listens(path);
	assert_int_equal(notify_ready(NULL), 0);
	hears_ready_once(fd);
}

static void notify__says_ready_at_an_abstract_address(void **state)
{
	char name[64];
	AUTO_CLOSE int fd = -1;

	(void)state;
	snprintf(name, sizeof(name), "@ros2-notify-%d", getpid());
	fd = listens(name);
	assert_int_equal(notify_ready(NULL), 0);
	hears_ready_once(fd);
}

static void notify__is_silent_when_nobody_asked(void **state)
{
	(void)state;
	unsetenv("NOTIFY_SOCKET");
	assert_int_equal(notify_ready(NULL), 0);
	setenv("NOTIFY_SOCKET", "", 1);
	assert_int_equal(notify_ready(NULL), 0);
}

static void refuses(const char *name, int code)
{
	struct ros2_err err = ROS2_ERR_INIT;

	setenv("NOTIFY_SOCKET", name, 1);
	assert_int_equal(notify_ready(&err), code);
	assert_non_null(strstr(err.msg, "NOTIFY_SOCKET"));
}

static void notify__refuses_what_names_no_socket(void **state)
{
	char path[4200], longest[sizeof(((struct sockaddr_un *)0)->sun_path) + 2];

	memset(longest, 'a', sizeof(longest) - 1);
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	refuses(longest, -EINVAL);
	refuses("/", -EINVAL);
	refuses("@", -EINVAL);
	refuses("run/notify", -EINVAL);
	refuses("vsock:2:1", -EINVAL);
	testing_path(path, *state, "nobody");
	refuses(path, -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(notify__says_ready_at_a_path, testing_dir_setup,
	                                        testing_dir_teardown),
		cmocka_unit_test(notify__says_ready_at_an_abstract_address),
		cmocka_unit_test(notify__is_silent_when_nobody_asked),
		cmocka_unit_test_setup_teardown(notify__refuses_what_names_no_socket,
	                                        testing_dir_setup, testing_dir_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
