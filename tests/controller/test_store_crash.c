/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store is killed while it works, many times over. What was acknowledged before the kill is there
 * afterwards, state and audit, and the log verifies. (kill -9 shows atomicity and recovery; that
 * the acknowledgement follows an fsync is shown by counting the syncs.)
 */
#include "tests/controller/store_fixture.h"
#include "tests/await.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct shared { /* with the child */
	_Atomic uint64_t acknowledged, epoch;
};

static struct shared *shared;

static void on_ack(void *arg, const struct store_result *r)
{
	if (!r->rc)
		atomic_fetch_add(&shared->acknowledged, 1);
}

static void work_until_killed(struct fixture *f)
{
	struct ros2_uid tenant = {{1}};

	if (loop_new(&(struct loop_opts){.name = "child"}, &f->loop) || loop_thread_start(f->loop))
		_exit(3);
	f->opts.loop = f->loop;
	if (fixture_open(f, NULL))
		_exit(4);
	atomic_store(&shared->epoch, store_epoch(f->store)->counter);
	for (;;) {
		struct ros2_uid u = ros2_uid_new();
		struct ros2_err err = ROS2_ERR_INIT;

		if (store_submit(f->store, fixture_grant(&u, &tenant), on_ack, NULL, &err) ==
		    -EBUSY)
			/* poll: the queue takes one more after a commit */
			usleep(1000);
	}
}

static void store__loses_nothing_acknowledged_when_killed(void **state)
{
	struct fixture f;
	struct verdict v;
	uint64_t total = 0;

	fixture_init(&f);
	/* A child of several threads may find a lock of the allocator held for ever. */
	loop_stop(f.loop);
	loop_thread_join(f.loop);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	assert_true(shared != MAP_FAILED);
	for (int round = 0; round < 8; round++) {
		int status;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			work_until_killed(&f);
		AWAIT(atomic_load(&shared->acknowledged) > total);
		/* time: killed at another moment each round */
		usleep(1000 * (7 + 13 * (unsigned)round));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(atomic_load(&shared->epoch), round + 1);
		assert_true(atomic_load(&shared->acknowledged) > total);
		total = atomic_load(&shared->acknowledged);
		assert_true((uint64_t)fixture_sql(&f, "SELECT count(*) FROM audit") >= total);
		assert_int_equal(fixture_sql(&f, "SELECT count(*) FROM audit"),
		                 fixture_sql(&f, "SELECT count(*) FROM grants"));
	}
	fixture_verify(&f, &v);
	assert_int_equal(v.rc, 0);
	assert_true(v.records >= total);
	munmap(shared, sizeof(*shared));
	assert_int_equal(loop_thread_start(f.loop), 0);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(store__loses_nothing_acknowledged_when_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
