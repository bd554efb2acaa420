/* SPDX-License-Identifier: Apache-2.0 */
/* Directory trees of ros2-bench from an agent that lies about them: what it is asked for ends. */
#include "tests/client/rig.h"
#include "tests/testing.h"
#include "tools/bench/tree_priv.h"

static struct tree *running;
static unsigned n_submits;

int __real_ros2_submit(struct ros2_session *s, struct ros2_err *err);
int __wrap_ros2_submit(struct ros2_session *s, struct ros2_err *err);

/* What would go on for ever is stopped, and has not done its work. */
int __wrap_ros2_submit(struct ros2_session *s, struct ros2_err *err)
{
	if (++n_submits == 1000)
		atomic_store(&running->stop, true);
	return __real_ros2_submit(s, err);
}

static struct bench_opts options(void)
{
	return (struct bench_opts){.ns = "data", .transport = ROS2_TRANSPORT_TCP, .jobs = 1};
}

static int list(struct rig *r, struct tree *t)
{
	struct ros2_session_opts so = {.transport = ROS2_TRANSPORT_TCP};
	int rc;

	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	rig_ok(r, ros2_session_open(r->client, &so, &r->session, &r->err));
	rig_ok(r, ros2_mount(r->session, "data", &r->mount, &r->err));
	t->client = r->client;
	rc = tree_list_remote(t, r->mount, &r->err);
	return rc;
}

static void get__ends_when_an_agent_lists_empty_pages_without_end(void **state)
{
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = ""};
	struct rig *r = *state;

	r->agent->dir_evil = DIR_EMPTY_PAGES;
	assert_int_equal(list(r, &t), ros2_status_to_errno(ROS2_PROTOCOL));
	assert_true(r->agent->n_pages < 1000);
	tree_free(&t);
}

static void get__ends_when_an_agent_lists_links_without_end(void **state)
{
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = "", .skipped = TREE_FILES_MAX - 1000};
	struct rig *r = *state;

	r->agent->dir_evil = DIR_LINKS;
	assert_int_equal(list(r, &t), -ENOMEM);
	assert_true(r->agent->n_pages < 2000);
	tree_free(&t);
}

/* The size that a worker is told is no more than a hint. */
static void get__brings_a_file_of_which_an_agent_says_that_it_has_no_end(void **state)
{
	char *dir;
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = ""};
	struct rig *r = *state;

	assert_int_equal(testing_dir_setup((void **)&dir), 0);
	t.local = dir;
	r->agent->stat_size = UINT64_MAX;
	assert_int_equal(list(r, &t), 0);
	assert_int_equal(t.n_files, 1);
	pthread_mutex_init(&t.lock, NULL);
	running = &t;
	n_submits = 0;
	tree_worker(&t);
	assert_string_equal(t.err.msg, "");
	assert_true(t.files[0].done);
	assert_int_equal(t.files[0].size, 1u << 20);
	pthread_mutex_destroy(&t.lock);
	tree_free(&t);
	assert_int_equal(testing_dir_teardown((void **)&dir), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(get__ends_when_an_agent_lists_empty_pages_without_end),
		T(get__ends_when_an_agent_lists_links_without_end),
		T(get__brings_a_file_of_which_an_agent_says_that_it_has_no_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
