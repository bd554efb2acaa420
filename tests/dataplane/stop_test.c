/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that is stopped (SIGSTOP) past the end of its rights and then continued must do no I/O
 * under them, although requests wait in its sockets. The data plane runs in a child process; the
 * parent is the tenant. With the checks off it does I/O: the negative control.
 */
#include "tests/dataplane/fixture.h"
#include "dataplane/test_switches.h"
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LIFE_NS NS_PER_S
#define READS   100
#define READ    4096

static uint8_t buf[1u << 20];

/* The child: a session whose grant ends soon from when the parent says so; lives until the pipe
 * closes. */
static void serve(int to_parent, int from_parent, bool checks)
{
	void *state;
	struct raw c;
	char byte;

	dp_test_switches.no_deadline_recheck = dp_test_switches.no_lease_check = !checks;
	if (fx_setup(&state))
		_exit(1);
	raw_open(state, &c);
	raw_file(&c, "file");
	c.key = raw_register(&c, FX_BASE, 4u << 20, 3);
	if (write(to_parent, &c, sizeof(c)) != sizeof(c) || read(from_parent, &byte, 1) != 1)
		_exit(1);
	fx_grant(state, &((struct fx *)state)->grant, &((struct fx *)state)->tenant,
	         clock_boottime_ns() + LIFE_NS);
	if (write(to_parent, &byte, 1) != 1 || read(from_parent, &byte, 1) != 0)
		_exit(1);
	fx_teardown(&state);
	_exit(0);
}

static void send_reads(struct raw *c, int n)
{
	for (int i = 0; i < n; i++) {
		struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, READ);

		raw_send(c, &h, NULL, 0);
	}
}

/* Until the end, or what all replies come to. */
static uint64_t drain(int fd, int flags)
{
	uint64_t got = 0;
	ssize_t n;

	while (got < READS * READ && (n = recv(fd, buf, sizeof(buf), flags)) > 0)
		got += (uint64_t)n;
	return got;
}

/* Bytes of replies that came after the process had gone on. */
static uint64_t bytes_after_stop(bool checks)
{
	int up[2], down[2], status;
	uint64_t before, after;
	struct raw c;
	pid_t pid;

	assert_int_equal(pipe(up), 0);
	assert_int_equal(pipe(down), 0);
	pid = fork();
	if (pid == 0) {
		close(down[1]);
		serve(up[1], down[0], checks);
	}
	assert_int_equal(read(up[0], &c, sizeof(c)), sizeof(c));
	raw_connect(&c);
	assert_int_equal(raw_write(&c, 0, buf, 16384, true), ROS2_OK);
	assert_int_equal(raw_read(&c, 0, buf, READ, NULL), ROS2_OK);
	assert_int_equal(write(down[1], "", 1), 1);
	assert_int_equal(read(up[0], buf, 1), 1);
	kill(pid, SIGSTOP);
	waitpid(pid, &status, WUNTRACED);
	send_reads(&c, READS);
	/* time: past the end of every right, with the process stopped */
	usleep((LIFE_NS + 300 * NS_PER_MS) / 1000);
	before = drain(c.fd, MSG_DONTWAIT);
	assert_int_equal(before, 0);
	kill(pid, SIGCONT);
	after = drain(c.fd, 0);
	raw_close(&c);
	close(down[1]);
	close(up[0]);
	close(up[1]);
	close(down[0]);
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	return after;
}

static void stopped_process__does_no_io_after_its_rights_have_ended(void **state)
{
	assert_int_equal(bytes_after_stop(true), 0);
}

static void control__without_the_checks_it_does(void **state)
{
	assert_true(bytes_after_stop(false) >= READS * READ);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stopped_process__does_no_io_after_its_rights_have_ended),
		cmocka_unit_test(control__without_the_checks_it_does),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
