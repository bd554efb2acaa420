/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that forks while its session stands: the child is refused everything by name, also
 * while a thread that it does not have holds the locks; nothing that it does is done to the
 * parent's session; over shared memory it has none of it; and what the parent gives up is over,
 * although the child has its socket. Over tcp and over shm.
 */
#include "tests/await.h"
#include "tests/client/rig.h"
#include "dataplane/client/shm_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OK (-1) /* of a child: all was as it must be; else the line where it was not */

static const struct ros2_session_opts over[] = {{.transport = ROS2_TRANSPORT_TCP},
                                                {.transport = ROS2_TRANSPORT_SHM}};

static int setup(void **state)
{
	int rc = rig_setup(state);

	fake_agent_offer_shm(((struct rig *)*state)->agent);
	return rc;
}

/* Each test once over each transport. */
static struct rig *reopen(void **state, const struct ros2_session_opts *o)
{
	rig_teardown(state);
	setup(state);
	rig_open(*state, o);
	return *state;
}

/* ---- children ---- */

struct child {
	pid_t pid;
	int *line; /* shared */
};

/* Neither glibc's nor anybody's handlers run for it. */
static pid_t fork_without_handlers(void)
{
	return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0, 0, 0, 0);
}

static struct child start(struct rig *r, pid_t (*copy)(void), int (*fn)(struct rig *r))
{
	struct child c;

	c.line = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(c.line != MAP_FAILED);
	c.pid = copy();
	assert_true(c.pid >= 0);
	if (c.pid)
		return c;
	/* What hangs is a failure. */
	signal(SIGALRM, SIG_DFL);
	alarm(AWAIT_S);
	*c.line = fn(r);
	_exit(0);
}

static void finish(struct child *c)
{
	int status = -1;

	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	if (status || *c->line != OK)
		fail_msg("the child ended with status 0x%x, at line %d", status, *c->line);
	munmap(c->line, 4096);
}

static void in_child(struct rig *r, pid_t (*copy)(void), int (*fn)(struct rig *r))
{
	struct child c = start(r, copy, fn);

	finish(&c);
}

/* In a child: cmocka's asserts would go on with the parent's tests. */
#define MUST(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return __LINE__;                                                           \
	} while (0)
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		r->err = (struct ros2_err)ROS2_ERR_INIT;                                           \
		MUST((call) == -EBADFD);                                                           \
		MUST(r->err.status == ROS2_BAD_SESSION && strstr(r->err.msg, "forked"));           \
	} while (0)

static int try_files(struct rig *r)
{
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_dirent e;
	struct ros2_file *f;
	struct ros2_stat st;
	uint64_t cookie = 0;

	REFUSED(ros2_session_open(r->client, NULL, &s, &r->err));
	REFUSED(ros2_mount(r->session, "data", &m, &r->err));
	REFUSED(ros2_open(r->mount, "f", ROS2_O_RDWR | ROS2_O_TRUNC, 0, &f, &r->err));
	REFUSED(ros2_stat(r->mount, "f", &st, &r->err));
	REFUSED(ros2_fstat(r->file, &st, &r->err));
	REFUSED(ros2_mkdir(r->mount, "d", 0755, &r->err));
	REFUSED(ros2_unlink(r->mount, "f", &r->err));
	REFUSED(ros2_rmdir(r->mount, "d", &r->err));
	REFUSED(ros2_rename(r->mount, "f", "g", &r->err));
	REFUSED(ros2_truncate(r->file, 0, &r->err));
	REFUSED(ros2_readdir(r->mount, "", &cookie, &e, 1, &r->err));
	REFUSED(ros2_close(r->file, &r->err));
	return OK;
}

static int try_io(struct rig *r)
{
	struct ros2_completion c[4];
	struct ros2_region *region;
	uint8_t own[4096] = "";
	uint32_t key;
	void *buf;

	REFUSED(ros2_pread(r->file, own, sizeof(own), 0, &r->err));
	REFUSED(ros2_pwrite(r->file, own, sizeof(own), 0, &r->err));
	REFUSED(ros2_zero(r->file, 4096, 0, &r->err));
	REFUSED(ros2_discard(r->file, 4096, 0, &r->err));
	REFUSED(ros2_flush(r->file, &r->err));
	REFUSED(ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
	REFUSED(ros2_prep_write(r->file, r->buf, 4096, 0, 1, &r->err));
	REFUSED(ros2_prep_zero(r->file, 4096, 0, 1, &r->err));
	REFUSED(ros2_prep_discard(r->file, 4096, 0, 1, &r->err));
	REFUSED(ros2_prep_flush(r->file, 1, &r->err));
	REFUSED(ros2_submit(r->session, &r->err));
	REFUSED(ros2_peek(r->session, c, 4, &r->err));
	REFUSED(ros2_wait(r->session, c, 1, 4, -1, &r->err));
	REFUSED(ros2_buf_alloc(r->session, 4096, &buf, &r->err));
	REFUSED(ros2_region_register(r->session, own, sizeof(own), ROS2_REGION_READ, &region,
	                             &r->err));
	REFUSED(ros2_region_register_dmabuf(r->session, STDERR_FILENO, 0, own, sizeof(own),
	                                    ROS2_REGION_READ, &region, &r->err));
	MUST(ros2_debug_key(r->session, r->buf, &key, NULL, NULL) == -EBADFD);
	return OK;
}

/* What a program does that knows nothing of a fork: as in a destructor, or at its exit. */
static int close_all(struct rig *r)
{
	int fd = r->session->fd;

	ros2_buf_free(r->session, r->buf);
	ros2_region_deregister(r->session->regions[0]);
	ros2_unmount(r->mount);
	ros2_session_close(r->session);
	ros2_disconnect(r->client);
	MUST(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	return OK;
}

static int try_all(struct rig *r)
{
	int at = try_files(r);

	if (at == OK)
		at = try_io(r);
	return at == OK ? close_all(r) : at;
}

/* ---- tests ---- */

static void expect_unmoved(struct rig *r)
{
	struct ros2_session_info info;

	assert_int_equal(rig_read(r, r->buf, 4096, 0).result, 4096);
	rig_ok(r, ros2_flush(r->file, &r->err));
	ros2_session_info(r->session, &info);
	assert_int_equal(info.reconnects, 0);
	assert_int_equal(r->agent->n_sessions_opened, 1);
	assert_int_equal(r->agent->n_opens, 1);
	assert_false(r->agent->saw_violation);
}

static void child__is_refused_everything_by_name_and_moves_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(over); i++) {
		struct rig *r = reopen(state, &over[i]);

		in_child(r, fork, try_all);
		expect_unmoved(r);
		in_child(r, fork_without_handlers, try_all);
		expect_unmoved(r);
	}
}

/* The thread that renews leases, say: it is not in the child, and what it held stays held. */
static void child__waits_for_no_lock_of_a_thread_that_it_has_not(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(over); i++) {
		struct rig *r = reopen(state, &over[i]);
		struct child c;

		pthread_mutex_lock(&r->client->lock);
		pthread_mutex_lock(&r->session->lock);
		c = start(r, fork, try_all);
		pthread_mutex_unlock(&r->session->lock);
		pthread_mutex_unlock(&r->client->lock);
		finish(&c);
		expect_unmoved(r);
	}
}

/* Answers that are there, requests on their way, others that are only prepared. */
static void child__takes_nothing_of_what_is_under_way(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(over); i++) {
		struct rig *r = reopen(state, &over[i]);
		struct ros2_completion c[3];
		uint32_t n = 0;

		for (uint64_t tag = 0; tag < 2; tag++)
			rig_ok(r, ros2_prep_read(r->file, r->buf + tag * 65536, 65536, 0, tag,
			                         &r->err));
		rig_ok(r, ros2_submit(r->session, &r->err));
		rig_ok(r, ros2_prep_read(r->file, r->buf + 131072, 4096, 0, 2, &r->err));
		in_child(r, fork, try_all);
		rig_ok(r, ros2_submit(r->session, &r->err));
		while (n < 3) {
			int got = ros2_wait(r->session, c + n, 1, 3 - n, AWAIT_MS, &r->err);

			assert_true(got > 0);
			n += (uint32_t)got;
		}
		for (n = 0; n < 3; n++)
			assert_int_equal(c[n].status, ROS2_OK);
		expect_unmoved(r);
	}
}

static int look_for_shared_memory(struct rig *r)
{
	unsigned char in[1];

	MUST(mincore(r->session->shm->arena->map, 4096, in) < 0 && errno == ENOMEM);
	MUST(mincore(r->buf, 4096, in) < 0 && errno == ENOMEM);
	return OK;
}

/* Neither to write into its parent's buffers and rings, nor for the agent to count. */
static void child__has_no_memory_that_is_shared_with_the_agent(void **state)
{
	struct rig *r = *state;

	/* The emulator says yes to MADV_DONTFORK, and does nothing. */
	if (getenv("ROS2_EMULATED"))
		skip();
	rig_open(r, &over[1]);
	in_child(r, fork, look_for_shared_memory);
	expect_unmoved(r);
}

static int wait_to_be_killed(struct rig *r)
{
	for (;;)
		pause();
	return OK;
}

static void kill_it(struct child *c)
{
	kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
	munmap(c->line, 4096);
}

/* With and without something that it had not answered. */
static void connection__that_is_given_up_ends_although_a_child_has_it(void **state)
{
	for (size_t i = 0; i < 2 * ARRAY_SIZE(over); i++) {
		struct rig *r = reopen(state, &over[i / 2]);
		struct child c = start(r, fork, wait_to_be_killed);

		WITH_AGENT(r->agent, r->agent->hold = true);
		if (i % 2) {
			rig_ok(r, ros2_prep_read(r->file, r->buf, 4096, 0, 1, &r->err));
			rig_ok(r, ros2_submit(r->session, &r->err));
			rig_give_up_the_connection(r);
		} else {
			ros2_session_close(TAKE_PTR(r->session));
		}
		if (!AWAIT(rig_is_over(r)))
			fail_msg("%s: %s", i / 2 ? "shm" : "tcp", i % 2 ? "given up" : "closed");
		kill_it(&c);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(child__is_refused_everything_by_name_and_moves_nothing),
		T(child__waits_for_no_lock_of_a_thread_that_it_has_not),
		T(child__takes_nothing_of_what_is_under_way),
		T(child__has_no_memory_that_is_shared_with_the_agent),
		T(connection__that_is_given_up_ends_although_a_child_has_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
