/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libros2 in whole programs, over real gRPC with mTLS. Each program is a process that was forked
 * before anything was connected; so is the agent. What is tried: forks with and behind a
 * connection, exits, whose signals are whose, few descriptors, and a plugin that is unloaded.
 */
#include "common/fsx.h"
#include "proto/ros2/v1/tenant.rpc.h"
#include "tests/await.h"
#include "tests/client/rig.h"
#include "tests/rpc/fixture.h"
#include "tests/takers.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define AGENT_ID "spiffe://test.example/agent/dpu-0"
#define LEASE_MS 300u
#define OK       (-1) /* of a program: all was as it must be; else the line where it was not */

/* ---- the agent ---- */

static struct {
	pid_t pid;
	int stay; /* it ends when this does */
	char target[64];
} agent;

static void serve(void *arg)
{
	struct fake_agent *a = fake_agent_new();
	struct rpc_server_opts o = {.name = "agent",
	                            .loop = arg,
	                            .client_ca_path = fx_path("ca.crt"),
	                            .cert_path = fx_path("agent.crt"),
	                            .key_path = fx_path("agent.key"),
	                            .listen = "127.0.0.1:0"};
	struct rpc_handler rows[32];
	struct rpc_server *server;

	fake_agent_file(a, "f", 1u << 20);
	a->ttl_ms = LEASE_MS;
	for (size_t i = 0; i < ros2_v1_tenant_service.n_methods; i++)
		rows[i] = (struct rpc_handler){ros2_v1_tenant_service.methods[i], fake_agent_serve,
		                               NULL, a};
	if (rpc_server_new(&o, &server, NULL) ||
	    rpc_server_add(server, &ros2_v1_tenant_service, rows, ros2_v1_tenant_service.n_methods,
	                   NULL) ||
	    rpc_server_start(server, NULL))
		abort();
	snprintf(agent.target, sizeof(agent.target), "127.0.0.1:%u", rpc_server_port(server));
}

static void be_the_agent(int stay, int told)
{
	struct loop_opts lo = {.name = "agent"};
	struct loop *loop;
	char byte;

	if (loop_new(&lo, &loop) || loop_thread_start(loop))
		abort();
	loop_call(loop, serve, loop);
	if (write(told, agent.target, sizeof(agent.target)) != sizeof(agent.target))
		abort();
	while (read(stay, &byte, 1) < 0 && errno == EINTR)
		continue;
	_exit(0);
}

static int group_setup(void **state)
{
	int stay[2], told[2];
	int rc = fx_group_setup(state);

	fx_issue("ca", "agent", AGENT_ID, 3600);
	if (rc || pipe2(stay, O_CLOEXEC) || pipe2(told, O_CLOEXEC))
		return -1;
	agent.pid = fork();
	if (agent.pid == 0) {
		close(stay[1]);
		be_the_agent(stay[0], told[1]);
	}
	close(stay[0]);
	close(told[1]);
	agent.stay = stay[1];
	rc = read(told[0], agent.target, sizeof(agent.target)) == sizeof(agent.target) ? 0 : -1;
	close(told[0]);
	return rc;
}

static int group_teardown(void **state)
{
	close(agent.stay);
	waitpid(agent.pid, NULL, 0);
	return fx_group_teardown(state);
}

/* ---- programs ---- */

static int *line; /* shared with them */

static void finish(pid_t pid, int expected)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != expected || *line != OK)
		fail_msg("the program ended with status 0x%x, at line %d", status, *line);
}

/* The end of a program, or what a child of it does. */
static pid_t start(int (*fn)(void), void (*end)(int))
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(agent.stay);
	/* What hangs is a failure. */
	signal(SIGALRM, SIG_DFL);
	alarm(AWAIT_S);
	*line = fn();
	end(*line == OK ? 7 : 1);
	abort();
}

#define EXITED_7 (7 << 8) /* as waitpid says it */

/* In the child of a program: what threads that it has not left behind is no leak. */
static bool is_child;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_child;
}

static int setup(void **state)
{
	line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return line == MAP_FAILED;
}

static int teardown(void **state)
{
	return munmap(line, 4096);
}

/* In a program: cmocka's asserts would go on with this one's tests. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return __LINE__;                                                           \
	} while (0)

struct tenant {
	struct ros2_client *client;
	struct ros2_session *session;
	struct ros2_mount *mount;
	struct ros2_file *file;
	struct ros2_err err;
};

static struct tenant t;

static int connect_to_agent(struct ros2_client **ret)
{
	struct ros2_client_opts o = {.agent = agent.target,
	                             .cert_path = fx_path("client.crt"),
	                             .key_path = fx_path("client.key"),
	                             .ca_path = fx_path("ca.crt"),
	                             .timeout_ms = AWAIT_MS};

	return ros2_connect(&o, ret, &t.err);
}

static int read_some(void)
{
	uint8_t data[10000];

	MUST(ros2_pread(t.file, data, sizeof(data), 0, &t.err) == sizeof(data));
	MUST(t.session->reconnects == 0);
	return OK;
}

static int open_all(void)
{
	MUST(connect_to_agent(&t.client) == 0);
	MUST(ros2_session_open(t.client, NULL, &t.session, &t.err) == 0);
	MUST(ros2_mount(t.session, "data", &t.mount, &t.err) == 0);
	MUST(ros2_open(t.mount, "f", ROS2_O_RDWR, 0, &t.file, &t.err) == 0);
	return read_some();
}

static void close_all(void)
{
	ros2_session_close(t.session);
	ros2_disconnect(t.client);
}

static int open_and_close(void)
{
	MUST(open_all() == OK);
	close_all();
	return OK;
}

/* The status of a child of a program. */
static int child_of(int (*fn)(void), void (*end)(int))
{
	pid_t pid = start(fn, end);
	int status = -1;

	return waitpid(pid, &status, 0) == pid ? status : -1;
}

/* ---- forks ---- */

static int connect_again(void)
{
	/* No file is read, nor OpenSSL asked, which has locks, too. */
	const struct ros2_client_opts no_files = {
		.agent = agent.target, .cert_path = "none", .key_path = "none", .ca_path = "none"};
	struct ros2_client *c;

	is_child = true;
	MUST(ros2_connect(&no_files, &c, &t.err) == -EOPNOTSUPP);
	MUST(connect_to_agent(&c) == -EOPNOTSUPP);
	MUST(t.err.status == ROS2_UNSUPPORTED && strstr(t.err.msg, "forked"));
	return OK;
}

static int close_and_connect_again(void)
{
	close_all();
	return connect_again();
}

static int fork_while_connected(void)
{
	MUST(open_all() == OK);
	MUST(child_of(close_and_connect_again, _exit) == EXITED_7);
	MUST(read_some() == OK);
	/* With all that is done at the exit of a process. */
	MUST(child_of(close_and_connect_again, exit) == EXITED_7);
	MUST(read_some() == OK);
	close_all();
	return OK;
}

static void fork__while_connected_leaves_the_child_without_a_connection(void **state)
{
	finish(start(fork_while_connected, exit), EXITED_7);
}

/* As a server that reads its list of work, and then makes its workers: threads of gRPC's are still
 * there. */
static int fork_between_connections(void)
{
	MUST(open_and_close() == OK);
	MUST(child_of(connect_again, exit) == EXITED_7);
	return open_and_close();
}

static void fork__behind_a_connection_is_as_one_beside_it(void **state)
{
	finish(start(fork_between_connections, exit), EXITED_7);
}

/* As a server that makes its workers first; each connects by itself. */
static int connect_in_children_only(void)
{
	MUST(child_of(open_and_close, exit) == EXITED_7);
	MUST(child_of(open_and_close, exit) == EXITED_7);
	return open_and_close();
}

static void fork__before_any_connection_leaves_the_child_free(void **state)
{
	finish(start(connect_in_children_only, exit), EXITED_7);
}

/* ---- exits ---- */

static int close_at_exit(void)
{
	MUST(open_all() == OK && atexit(close_all) == 0);
	return OK;
}

static void exit__may_close_what_is_open_or_leave_it(void **state)
{
	finish(start(close_at_exit, exit), EXITED_7);
	finish(start(open_all, exit), EXITED_7);
}

/* ---- signals ---- */

static int look_at_threads(void)
{
	MUST(open_all() == OK);
	MUST(takers_count(SIGTERM) == 0);
	MUST(takers_count(SIGINT) == 0);
	close_all();
	return OK;
}

/* A program may wait for its signals by sigwait(3) or signalfd(2) and block them everywhere else
 * only after it has connected: a thread that took one would end it. */
static void signals__are_the_programs(void **state)
{
	/* The emulator's threads have masks of their own. */
	if (getenv("ROS2_EMULATED"))
		skip();
	finish(start(look_at_threads, exit), EXITED_7);
}

static int stop_for_a_while(void)
{
	uint32_t before, after;
	void *buf = NULL;

	MUST(open_all() == OK);
	MUST(ros2_buf_alloc(t.session, 4096, &buf, &t.err) == 0);
	MUST(ros2_pread(t.file, buf, 4096, 0, &t.err) == 4096);
	MUST(raise(SIGSTOP) == 0);
	ros2_debug_key(t.session, buf, &before, NULL, NULL);
	MUST(ros2_pread(t.file, buf, 4096, 0, &t.err) == 4096);
	ros2_debug_key(t.session, buf, &after, NULL, NULL);
	MUST(before != after && t.session->reconnects == 0);
	close_all();
	return OK;
}

static void stop__for_longer_than_a_lease_is_not_noticed(void **state)
{
	pid_t pid = start(stop_for_a_while, exit);
	int status;

	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	usleep(2 * LEASE_MS * 1000); /* time: the lease ends */
	kill(pid, SIGCONT);
	finish(pid, EXITED_7);
}

/* ---- descriptors ---- */

#define DESCRIPTORS_MAX 256 /* of this test */

static int open_and_look_at_descriptors(void)
{
	bool was[DESCRIPTORS_MAX];
	int n = 0;

	for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
		was[fd] = fcntl(fd, F_GETFD) >= 0;
	MUST(open_all() == OK);
	for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
		int flags = was[fd] ? -1 : fcntl(fd, F_GETFD);

		MUST(flags < 0 || flags & FD_CLOEXEC);
		n += flags >= 0;
	}
	/* At least a socket each for control and data. */
	MUST(n >= 2);
	close_all();
	return OK;
}

static void descriptors__are_for_no_program_that_is_begun(void **state)
{
	finish(start(open_and_look_at_descriptors, exit), EXITED_7);
}

static rlim_t most; /* that the next program may have open */

static int connect_with_few(void)
{
	struct ros2_session_opts o = {.reconnect_ms = UINT32_MAX};
	struct rlimit before, few;
	int rc;

	MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
	few = (struct rlimit){most, before.rlim_max};
	MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
	rc = connect_to_agent(&t.client);
	if (!rc)
		rc = ros2_session_open(t.client, &o, &t.session, &t.err);
	MUST(rc == 0 || (rc < 0 && t.err.msg[0]));
	close_all();
	/* What has failed once is no harm to what comes later. */
	MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
	return open_and_close();
}

/* gRPC would end a program that has none left for it. */
static void descriptors__that_are_not_there_end_no_program(void **state)
{
	for (most = 3; most < 20; most++)
		finish(start(connect_with_few, exit), EXITED_7);
}

static int connect_twice(void)
{
	MUST(open_and_close() == OK);
	return open_and_close();
}

static int fork_behind_a_failure(void)
{
	struct rlimit before, few;
	struct ros2_client *c;
	int rc;

	MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
	few = (struct rlimit){most, before.rlim_max};
	MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
	rc = connect_to_agent(&c);
	MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
	if (!rc)
		ros2_disconnect(c);
	if (!rc || !strstr(t.err.msg, "gRPC needs"))
		return OK;
	line[1]++;
	MUST(child_of(connect_twice, exit) == EXITED_7);
	MUST(child_of(connect_twice, exit) == EXITED_7);
	MUST(open_and_close() == OK);
	/* Now it is one that has connected. */
	MUST(child_of(connect_again, exit) == EXITED_7);
	return OK;
}

/* gRPC did not come up: nothing of it is in the way of children. */
static void descriptors__that_were_not_there_leave_children_free(void **state)
{
	for (most = 3; most < 20 && line[1] < 2; most++)
		finish(start(fork_behind_a_failure, exit), EXITED_7);
	assert_int_equal(line[1], 2);
}

/* ---- shared objects ---- */

static int be_host(void)
{
	(void)execl(PLUGIN_HOST, PLUGIN_HOST, PLUGIN, agent.target, fx_path("client.crt"),
	            fx_path("client.key"), fx_path("ca.crt"), NULL);
	return __LINE__;
}

/* gRPC stays, with threads of its own, and calls what it was given. */
static void unload__behind_the_last_disconnect_ends_no_program(void **state)
{
	if (getenv("ROS2_EMULATED"))
		skip();
	*line = OK;
	finish(start(be_host, exit), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(fork__while_connected_leaves_the_child_without_a_connection),
		T(fork__behind_a_connection_is_as_one_beside_it),
		T(fork__before_any_connection_leaves_the_child_free),
		T(exit__may_close_what_is_open_or_leave_it),
		T(signals__are_the_programs),
		T(stop__for_longer_than_a_lease_is_not_noticed),
		T(descriptors__are_for_no_program_that_is_begun),
		T(descriptors__that_are_not_there_end_no_program),
		T(descriptors__that_were_not_there_leave_children_free),
		T(unload__behind_the_last_disconnect_ends_no_program),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
