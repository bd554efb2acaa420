/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant that writes to the memory of its session by a system call, from a page of its own that
 * is never there (userfaultfd; a file system in a program of its own does the same). The kernel
 * holds the memory's lock meanwhile, and who seals it waits for that with no signal that ends it.
 * So that is done by a process that can be left: its session ends by name, and nobody else notices.
 */
#include "dataplane/shm_sealer.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/dataplane/shm_raw.h"
#include <ctype.h>
#include <dirent.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SELF "/proc/self/exe"
#define SLOW                                                                                       \
	"ROS2_TEST_SEAL_SLOW" /* in the environment: the process that seals does not get to it */

/* ---- how long a worker waits for a process that seals ---- */

static _Atomic enum { AS_IT_IS, WITHOUT_END, TIME_IS_UP } limit;

int __real_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at);

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at)
{
	uint64_t soon = clock_monotonic_ns() + NS_PER_MS;
	struct timespec ts = {(time_t)(soon / NS_PER_S), (long)(soon % NS_PER_S)};
	char name[16];
	int rc;

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (limit == AS_IT_IS || strcmp(name, "control"))
		return __real_pthread_cond_timedwait(c, m, at);
	rc = __real_pthread_cond_timedwait(c, m, &ts);
	/* Nothing has come: who waits looks again, and goes on waiting. */
	return limit == TIME_IS_UP ? rc : 0;
}

/* ---- a write that is held ---- */

static int uffd = -1;

struct held {
	int memfd;
	char *page; /* NULL: it is not held */
	pthread_t thread;
};
static struct held pool[SHM_SEALER_LEFT + 2]; /* what a test that failed has left is let go, too */

static void *write_held(void *arg)
{
	struct held *w = arg;

	/* EPERM when it was sealed meanwhile. */
	(void)!pwrite(w->memfd, w->page, 4096, 0);
	return NULL;
}

/* Returns when the kernel has the memory's lock and waits for the page. */
static struct held *hold(const struct shm_raw *t)
{
	struct pollfd p = {.fd = uffd, .events = POLLIN};
	struct uffdio_register reg = {.range.len = 4096, .mode = UFFDIO_REGISTER_MODE_MISSING};
	struct held *w = pool;
	struct uffd_msg msg;

	while (w->page)
		w++;
	w->memfd = t->memfd;
	w->page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(w->page, MAP_FAILED);
	reg.range.start = (uintptr_t)w->page;
	assert_int_equal(ioctl(uffd, UFFDIO_REGISTER, &reg), 0);
	assert_int_equal(pthread_create(&w->thread, NULL, write_held, w), 0);
	assert_int_equal(poll(&p, 1, AWAIT_MS), 1);
	assert_int_equal(read(uffd, &msg, sizeof(msg)), sizeof(msg));
	assert_int_equal(msg.event, UFFD_EVENT_PAGEFAULT);
	return w;
}

static void let_go(struct held *w)
{
	struct uffdio_zeropage z = {.range = {(uintptr_t)w->page, 4096}};

	assert_int_equal(ioctl(uffd, UFFDIO_ZEROPAGE, &z), 0);
	pthread_join(w->thread, NULL);
	munmap(TAKE_PTR(w->page), 4096);
}

static bool has_userfaultfd(void)
{
	struct uffdio_api api = {.api = UFFD_API};

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	return uffd >= 0 && ioctl(uffd, UFFDIO_API, &api) == 0;
}

/* ---- who waits ---- */

struct waiter {
	int pid, parent;
	char name[32], state;
};

static bool read_stat(const char *path, struct waiter *ret)
{
	FILE *f = fopen(path, "re");
	bool is;

	if (!f)
		return false;
	is = fscanf(f, "%d (%31[^)]) %c %d", &ret->pid, ret->name, &ret->state, &ret->parent) == 4;
	fclose(f);
	return is;
}

/* Those of @dir that are called @name, wait with no signal that ends it, and are ours. */
static unsigned count_stuck(const char *dir, const char *name, int *ret_pid)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d))) {
		struct waiter w;
		char path[300];

		snprintf(path, sizeof(path), "%s/%s/stat", dir, e->d_name);
		if (!isdigit(e->d_name[0]) || !read_stat(path, &w) || strcmp(w.name, name) ||
		    w.state != 'D' || (w.parent != getpid() && ret_pid))
			continue;
		n++;
		if (ret_pid)
			*ret_pid = w.pid;
	}
	closedir(d);
	return n;
}

static unsigned stuck_workers(void)
{
	return count_stuck("/proc/self/task", "control", NULL);
}

static unsigned stuck_processes(void)
{
	int pid;

	return count_stuck("/proc", DP_SEAL_COMMAND, &pid);
}

/* Nothing that was started is left, not even to be reaped. */
static bool no_process(void)
{
	siginfo_t si;

	return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/* ---- */

struct hostile {
	struct ros2_uid tenant, grant;
};

static void hostile_make(struct fx *fx, struct hostile *b)
{
	b->tenant = ros2_uid_new();
	b->grant = ros2_uid_new();
	fx_tenant(fx, &b->tenant);
	assert_int_equal(fx_grant(fx, &b->grant, &b->tenant, UINT64_MAX), 0);
}

static void open_unmapped(struct fx *fx, const struct hostile *b, struct shm_raw *t)
{
	rs_open_as(fx, t, &b->tenant, &b->grant, UINT64_MAX);
	rs_hello(t);
	rs_memory(t);
}

static enum ros2_status try_open(struct fx *fx, const struct hostile *b, char *words)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = b->tenant,
	                    .grant = b->grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = SHM_BYTES};
	struct dp_result res = rs_try_open(fx, &a);

	strcpy(words, res.words);
	return res.status;
}

static void expect_ended(struct fx *fx, const struct shm_raw *t, enum ros2_status st,
                         const char *words)
{
	struct dp_event ev = fx_ended(fx, &t->c.session);

	assert_int_equal(ev.status, st);
	if (words && !strstr(ev.words, words))
		fail_msg("ended with: %s", ev.words);
}

static void sealed__by_a_process_that_ends_and_is_reaped(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	for (int i = 0; i < 3; i++) {
		rs_neighbour(fx, &t);
		rs_works(&t);
		rs_end(&t);
	}
	assert_true(AWAIT(no_process()));
}

/* As on a machine that is so busy that it gets nowhere: nobody's fault, and not the end of a tenant
 * that asks again. */
static void sealed__by_a_process_that_is_slow_is_no_breach_of_the_tenants(void **state)
{
	struct fx *fx = *state;
	struct hostile b;
	struct shm_raw t;

	hostile_make(fx, &b);
	assert_int_equal(setenv(SLOW, "1", 1), 0);
	open_unmapped(fx, &b, &t);
	rs_mapped(&t);
	expect_ended(fx, &t, ROS2_UNAVAILABLE, "was not sealed in time");
	assert_true(AWAIT(no_process()));
	rs_close(&t);
	unsetenv(SLOW);
	open_unmapped(fx, &b, &t);
	rs_mapped(&t);
	rs_ping(&t);
	rs_end(&t);
}

static void held__write_ends_the_session_by_name(void **state)
{
	struct fx *fx = *state;
	struct hostile b;
	struct shm_raw t;
	struct held *w;

	hostile_make(fx, &b);
	open_unmapped(fx, &b, &t);
	w = hold(&t);
	rs_mapped(&t);
	expect_ended(fx, &t, ROS2_PROTOCOL, "being written to while it is sealed");
	assert_true(AWAIT(stuck_workers() == 0));
	let_go(w);
	assert_true(AWAIT(no_process()));
	rs_close(&t);
	open_unmapped(fx, &b, &t);
	rs_mapped(&t);
	rs_ping(&t);
	rs_end(&t);
}

/* What it has open it keeps so: a lock or a port would be the agent's after its end. A write that
 * ends in time is no harm. */
static void held__process_has_the_memory_and_nothing_else(void **state)
{
	struct fx *fx = *state;
	char path[64], to[256];
	unsigned n = 0;
	struct dirent *e;
	struct hostile b;
	struct shm_raw t;
	struct held *w;
	int pid;
	DIR *d;

	hostile_make(fx, &b);
	limit = WITHOUT_END;
	open_unmapped(fx, &b, &t);
	w = hold(&t);
	rs_mapped(&t);
	assert_true(AWAIT(count_stuck("/proc", DP_SEAL_COMMAND, &pid) == 1));
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		if (isdigit(e->d_name[0])) {
			ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);

			to[MAX(len, 0)] = 0;
			assert_string_equal(e->d_name, "3");
			assert_non_null(strstr(to, "memfd:ros2-session"));
			n++;
		}
	closedir(d);
	assert_int_equal(n, 1);
	let_go(w);
	rs_ping(&t);
	assert_true(no_process());
	rs_end(&t);
}

/* Two at once: as many workers as are theirs. */
static void two_held(struct fx *fx, struct shm_raw *b, struct held **w, unsigned before)
{
	struct shm_raw n;

	limit = WITHOUT_END;
	for (unsigned i = 0; i < 2; i++) {
		w[i] = hold(&b[i]);
		rs_mapped(&b[i]);
	}
	assert_true(AWAIT(stuck_processes() == before + 2));
	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_end(&n);
	limit = TIME_IS_UP;
	for (unsigned i = 0; i < 2; i++)
		expect_ended(fx, &b[i], ROS2_PROTOCOL, "being written to");
	limit = WITHOUT_END;
	assert_int_equal(stuck_processes(), before + 2);
}

static void held__writes_are_few_and_a_neighbour_opens_meanwhile(void **state)
{
	struct shm_raw b[SHM_SEALER_LEFT], late, n;
	struct held *w[SHM_SEALER_LEFT];
	struct fx *fx = *state;
	struct hostile bad;
	char words[200];

	hostile_make(fx, &bad);
	open_unmapped(fx, &bad, &late);
	for (unsigned i = 0; i < SHM_SEALER_LEFT; i++)
		open_unmapped(fx, &bad, &b[i]);
	for (unsigned i = 0; i < SHM_SEALER_LEFT; i += 2)
		two_held(fx, &b[i], &w[i], i);
	assert_int_equal(try_open(fx, &bad, words), ROS2_LIMIT);
	assert_non_null(strstr(words, "the limit is 4 (fixed)"));
	rs_mapped(&late);
	expect_ended(fx, &late, ROS2_LIMIT, "the limit is 4");
	rs_close(&late);
	rs_neighbour(fx, &n);
	rs_works(&n);
	for (unsigned i = 0; i < SHM_SEALER_LEFT; i++) {
		let_go(w[i]);
		rs_close(&b[i]);
	}
	rs_end(&n);
	assert_true(AWAIT(no_process()));
	open_unmapped(fx, &bad, &late);
	rs_mapped(&late);
	rs_ping(&late);
	rs_end(&late);
}

static void control__without_that_bound_more_are_held(void **state)
{
	struct shm_raw b[SHM_SEALER_LEFT + 2];
	struct held *w[SHM_SEALER_LEFT + 2];
	struct fx *fx = *state;
	struct hostile bad;
	char words[200];

	dp_test_switches.no_seals_share = true;
	hostile_make(fx, &bad);
	for (unsigned i = 0; i < SHM_SEALER_LEFT + 2; i++)
		open_unmapped(fx, &bad, &b[i]);
	for (unsigned i = 0; i < SHM_SEALER_LEFT + 2; i += 2)
		two_held(fx, &b[i], &w[i], i);
	assert_int_equal(try_open(fx, &bad, words), ROS2_OK);
	dp_test_switches.no_seals_share = false;
	assert_int_equal(try_open(fx, &bad, words), ROS2_LIMIT);
	for (unsigned i = 0; i < SHM_SEALER_LEFT + 2; i++) {
		let_go(w[i]);
		rs_close(&b[i]);
	}
	assert_true(AWAIT(no_process()));
}

/* Not by the limit of time, which is far away. */
static void held__write_makes_no_revocation_wait(void **state)
{
	struct fx_revoked r = {0};
	struct fx *fx = *state;
	struct hostile b;
	struct shm_raw t;
	struct held *w;

	hostile_make(fx, &b);
	limit = WITHOUT_END;
	open_unmapped(fx, &b, &t);
	w = hold(&t);
	rs_mapped(&t);
	assert_true(AWAIT(stuck_processes() == 1));
	fx_revoke_begin(fx, DP_SCOPE_TENANT, &b.tenant, &r);
	assert_true(AWAIT(__atomic_load_n(&r.calls, __ATOMIC_ACQUIRE) > 0));
	assert_int_equal(r.first.status, ROS2_OK);
	if (r.first.revoke.draining) {
		fx_wait_calls(fx, &r, 2);
		assert_int_equal(r.last.revoke.draining, 0);
	}
	expect_ended(fx, &t, ROS2_REVOKED, NULL);
	assert_int_equal(stuck_processes(), 1);
	let_go(w);
	assert_true(AWAIT(no_process()));
	rs_close(&t);
}

static void held__write_makes_no_end_of_the_data_plane_wait(void **state)
{
	struct fx *fx = *state;
	struct hostile b;
	struct shm_raw t;
	struct held *w;
	int status;

	hostile_make(fx, &b);
	limit = WITHOUT_END;
	open_unmapped(fx, &b, &t);
	w = hold(&t);
	rs_mapped(&t);
	assert_true(AWAIT(stuck_processes() == 1));
	assert_int_equal(fx_teardown(state), 0);
	assert_int_equal(stuck_processes(), 1);
	let_go(w);
	rs_close(&t);
	/* Nobody is there to do it: it is the process's own now. */
	assert_true(waitpid(-1, &status, 0) > 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(no_process());
	assert_int_equal(fx_setup(state), 0);
}

static void program__that_is_not_there_ends_the_session_by_name(void **state)
{
	struct fx *fx = *state;
	struct hostile b;
	struct shm_raw t;

	hostile_make(fx, &b);
	open_unmapped(fx, &b, &t);
	rs_mapped(&t);
	expect_ended(fx, &t, ROS2_INTERNAL, "could not be sealed: No such file");
	rs_close(&t);
	assert_true(no_process());
}

static void *tear_down(void *state)
{
	fx_teardown(state);
	return NULL;
}

/* The control: without a program of its own the worker waits, and the data plane with it. */
static void control__a_worker_that_seals_waits_and_is_waited_for(void **state)
{
	struct fx *fx = *state;
	struct timespec until;
	struct hostile b;
	struct shm_raw t;
	pthread_t end;
	struct held *w;

	hostile_make(fx, &b);
	open_unmapped(fx, &b, &t);
	w = hold(&t);
	rs_mapped(&t);
	assert_true(AWAIT(stuck_workers() == 1));
	assert_int_equal(pthread_create(&end, NULL, tear_down, state), 0);
	/* time: that it does not end can only be seen by waiting; a slow machine sees the same */
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 3;
	assert_int_equal(pthread_timedjoin_np(end, NULL, &until), ETIMEDOUT);
	assert_int_equal(stuck_workers(), 1);
	let_go(w);
	pthread_join(end, NULL);
	rs_close(&t);
	assert_int_equal(fx_setup(state), 0);
}

/* ---- */

static int setup_with(void **state, const char *program)
{
	fx_seal_program = program;
	fx_control_workers = 4;
	return fx_setup(state);
}

static int setup(void **state)
{
	return setup_with(state, SELF);
}

static int setup_missing(void **state)
{
	return setup_with(state, "/proc/self/none");
}

static int setup_without(void **state)
{
	return setup_with(state, NULL);
}

static int teardown(void **state)
{
	int rc;

	limit = AS_IT_IS;
	dp_test_switches.no_seals_share = false;
	for (size_t i = 0; i < ARRAY_SIZE(pool); i++)
		if (pool[i].page)
			let_go(&pool[i]);
	rc = fx_teardown(state);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	return rc;
}

static void no_userfaultfd(void **state)
{
	puts("# skipped: no userfaultfd for faults of the kernel here "
	     "(vm.unprivileged_userfaultfd)");
	skip();
}

static void no_program(void **state)
{
	puts("# skipped: an emulated program neither starts one of its kind by itself nor hears "
	     "that there is none");
	skip();
}

#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define HELD(f, setup)                                                                             \
	{                                                                                          \
#f, uffd >= 0 ? f : no_userfaultfd, uffd >= 0 ? setup : NULL,                      \
			uffd >= 0 ? teardown : NULL, NULL                                          \
	}

static int run(void)
{
	const bool emulated = getenv("ROS2_EMULATED");
	const struct CMUnitTest tests[] = {
		{"sealed__by_a_process_that_ends_and_is_reaped",
	         emulated ? no_program : sealed__by_a_process_that_ends_and_is_reaped,
	         emulated ? NULL : setup, emulated ? NULL : teardown, NULL},
		{"sealed__by_a_process_that_is_slow_is_no_breach_of_the_tenants",
	         emulated ? no_program
	                  : sealed__by_a_process_that_is_slow_is_no_breach_of_the_tenants,
	         emulated ? NULL : setup, emulated ? NULL : teardown, NULL},
		{"program__that_is_not_there_ends_the_session_by_name",
	         emulated ? no_program : program__that_is_not_there_ends_the_session_by_name,
	         emulated ? NULL : setup_missing, emulated ? NULL : teardown, NULL},
		HELD(held__write_ends_the_session_by_name, setup),
		HELD(held__process_has_the_memory_and_nothing_else, setup),
		HELD(held__writes_are_few_and_a_neighbour_opens_meanwhile, setup),
		HELD(control__without_that_bound_more_are_held, setup),
		HELD(held__write_makes_no_revocation_wait, setup),
		HELD(held__write_makes_no_end_of_the_data_plane_wait, setup),
		HELD(control__a_worker_that_seals_waits_and_is_waited_for, setup_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], DP_SEAL_COMMAND))
		_exit(getenv(SLOW) ? pause() : dp_seal_memory());
	if (!has_userfaultfd() && uffd >= 0)
		close(TAKE_FD(uffd));
	fx_shm = true;
	return run();
}
