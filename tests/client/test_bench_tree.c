/* SPDX-License-Identifier: Apache-2.0 */
/* Directory trees of ros2-bench from an agent that lies about them, or says nothing, and files that
 * grow: what it is asked for ends. */
#include "common/clock.h"
#include "tests/client/rig.h"
#include "tests/testing.h"
#include "tools/bench/tree_priv.h"
#include <sys/stat.h>

#define PIECE    (16u << 10)
#define GROWS_BY (8 * PIECE) /* as much as is in flight */
#define GROWN    (2u << 20)

static struct tree *running;
static unsigned n_submits, n_waits;
static _Atomic bool mute, full; /* the agent closes, too */
static void (*grow)(void);
static _Atomic uint64_t ahead_ns;

uint64_t __real_clock_monotonic_ns(void);
uint64_t __wrap_clock_monotonic_ns(void);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_ros2_submit(struct ros2_session *s, struct ros2_err *err);
int __wrap_ros2_submit(struct ros2_session *s, struct ros2_err *err);
int __real_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err);
int __wrap_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err);

uint64_t __wrap_clock_monotonic_ns(void)
{
	return __real_clock_monotonic_ns() + ahead_ns;
}

/* A file system that says only at the end that what was written found no room. */
int __wrap_close(int fd)
{
	bool written = full && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY;
	int rc = __real_close(fd);

	if (!written)
		return rc;
	errno = EDQUOT;
	return -1;
}

/* What would go on for ever is stopped, and has not done its work. */
int __wrap_ros2_submit(struct ros2_session *s, struct ros2_err *err)
{
	if (++n_submits == 1000)
		atomic_store(&running->stop, true);
	if (grow)
		grow();
	return __real_ros2_submit(s, err);
}

/* Nothing comes in 40 s, again and again; somebody who waits on and on is told another error. */
int __wrap_ros2_wait(struct ros2_session *s, struct ros2_completion *out, uint32_t min,
                     uint32_t max, int timeout_ms, struct ros2_err *err)
{
	if (!mute)
		return __real_ros2_wait(s, out, min, max, timeout_ms, err);
	ahead_ns += 40 * NS_PER_S;
	return ++n_waits < 1000 ? 0 : ros2_err_named(err, ROS2_IO, "for ever");
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

/* One worker over all of @t, from or to a new directory. */
static void copy(struct tree *t)
{
	pthread_mutex_init(&t->lock, NULL);
	running = t;
	n_submits = n_waits = 0;
	tree_worker(t);
	pthread_mutex_destroy(&t->lock);
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
	copy(&t);
	assert_string_equal(t.err.msg, "");
	assert_true(t.files[0].done);
	assert_int_equal(t.files[0].size, 1u << 20);
	tree_free(&t);
	assert_int_equal(testing_dir_teardown((void **)&dir), 0);
}

/* It answers calls, and no request: its engine hangs. */
static void get__ends_when_an_agent_answers_nothing(void **state)
{
	char *dir;
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = ""};
	struct rig *r = *state;

	assert_int_equal(testing_dir_setup((void **)&dir), 0);
	t.local = dir;
	assert_int_equal(list(r, &t), 0);
	mute = true;
	copy(&t);
	mute = false;
	assert_int_equal(t.err.status, ROS2_TIMEOUT);
	assert_false(t.files[0].done);
	tree_free(&t);
	assert_int_equal(testing_dir_teardown((void **)&dir), 0);
}

static void get__fails_when_a_file_system_says_at_the_end_that_it_is_full(void **state)
{
	char *dir;
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = ""};
	struct rig *r = *state;

	assert_int_equal(testing_dir_setup((void **)&dir), 0);
	t.local = dir;
	assert_int_equal(list(r, &t), 0);
	full = true;
	copy(&t);
	full = false;
	assert_int_equal(t.err.code, -EDQUOT);
	assert_false(t.files[0].done);
	tree_free(&t);
	assert_int_equal(testing_dir_teardown((void **)&dir), 0);
}

/* ---- files that grow as fast as they are copied, up to GROWN ---- */

static struct rig *growing_at;
static char growing_path[4096];

static void grow_remote(void)
{
	struct fake_agent *a = growing_at->agent;

	WITH_AGENT(a, a->files[0].size = MIN(a->files[0].size + GROWS_BY, (uint64_t)GROWN));
}

static void grow_local(void)
{
	struct stat st;

	assert_int_equal(stat(growing_path, &st), 0);
	assert_int_equal(truncate(growing_path, MIN(st.st_size + GROWS_BY, (off_t)GROWN)), 0);
}

static void get__ends_with_a_file_that_grows(void **state)
{
	char *dir;
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_GET, .remote = ""};
	struct rig *r = growing_at = *state;

	assert_int_equal(testing_dir_setup((void **)&dir), 0);
	t.local = dir;
	r->agent->max_io = PIECE;
	r->agent->files[0].size = GROWS_BY;
	assert_int_equal(list(r, &t), 0);
	assert_int_equal(t.files[0].size, GROWS_BY);
	grow = grow_remote;
	copy(&t);
	grow = NULL;
	assert_string_equal(t.err.msg, "");
	assert_true(t.files[0].done);
	assert_in_range(t.files[0].size, GROWS_BY, GROWN / 2);
	tree_free(&t);
	assert_int_equal(testing_dir_teardown((void **)&dir), 0);
}

static void put__ends_with_a_file_that_grows(void **state)
{
	char *dir;
	struct bench_opts o = options();
	struct tree t = {.o = &o, .op = TREE_PUT, .remote = ""};
	struct rig *r = *state;
	int fd;

	assert_int_equal(testing_dir_setup((void **)&dir), 0);
	t.local = dir;
	snprintf(growing_path, sizeof(growing_path), "%s/f", dir);
	fd = open(growing_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	grow_local();
	r->agent->max_io = PIECE;
	rig_ok(r, client_new(fake_control_new(r->agent), 2000, &r->client, &r->err));
	t.client = r->client;
	assert_int_equal(tree_list_local(&t, &r->err), 0);
	grow = grow_local;
	copy(&t);
	grow = NULL;
	assert_string_equal(t.err.msg, "");
	assert_true(t.files[0].done);
	assert_in_range(t.files[0].size, GROWS_BY, GROWN / 2);
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
		T(get__ends_when_an_agent_answers_nothing),
		T(get__fails_when_a_file_system_says_at_the_end_that_it_is_full),
		T(get__ends_with_a_file_that_grows),
		T(put__ends_with_a_file_that_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
