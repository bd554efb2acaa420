/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a tenant's sessions over shared memory may have together, and that all of it comes back,
 * however an opening or a session ends; and where the sockets are.
 */
#include "dataplane/dp_priv.h"
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/shm_raw.h"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define MIB     (1ull << 20)
#define UNIT    ((uint64_t)WIRE_SHM_DATA_UNIT)
#define WORDS   sizeof(((struct ros2_err *)0)->msg)
#define SESSION (WIRE_SHM_DATA_MIN + SHM_BASE) /* the least that one takes */

/* ---- many openings at once, and what comes right behind them ---- */

#define MANY 32

struct opening {
	struct fx *fx;
	uint32_t n;
	uint64_t bytes;
	struct ros2_uid session[MANY];
	struct dp_result res[MANY];
	uint32_t answered;
	sem_t done; /* posted for each */
	/* withdrawn in the same turn of the loop */
	const struct ros2_uid *revoke;
	enum dp_scope scope;
};

struct answer {
	struct opening *o;
	uint32_t i;
};
static struct answer answers[MANY];

static void opened(void *arg, const struct dp_result *res)
{
	struct answer *a = arg;

	a->o->res[a->i] = *res;
	sem_post(&a->o->done);
}

static void begin_all(void *arg)
{
	struct opening *o = arg;

	for (uint32_t i = 0; i < o->n; i++) {
		struct dp_session_params p = {.session = o->session[i],
		                              .tenant = o->fx->tenant,
		                              .grant = o->fx->grant,
		                              .cert_deadline_ns = UINT64_MAX,
		                              .transport = DP_TRANSPORT_SHM,
		                              .shm_bytes = o->bytes};

		answers[i] = (struct answer){o, i};
		dp_session_open(o->fx->dp, &p, opened, &answers[i]);
	}
	if (o->revoke)
		assert_int_equal(dp_revoke(o->fx->dp, o->scope, o->revoke, clock_boottime_ns(),
		                           ROS2_REVOKED, NULL, NULL),
		                 0);
}

static void open_begin(struct opening *o)
{
	sem_init(&o->done, 0, 0);
	for (uint32_t i = 0; i < o->n; i++)
		o->session[i] = ros2_uid_new();
	loop_call(o->fx->loop, begin_all, o);
}

static void open_all(struct opening *o)
{
	open_begin(o);
	for (uint32_t i = 0; i < o->n; i++)
		while (sem_wait(&o->done) < 0) /* EINTR */
			;
	sem_destroy(&o->done);
}

static uint32_t count(const struct opening *o, enum ros2_status st)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < o->n; i++)
		n += o->res[i].status == st;
	return n;
}

static void close_one(struct fx *fx, const struct ros2_uid *session)
{
	struct fx_args a = {.session = *session};

	(void)fx_do(fx, FX_CLOSE_SESSION, &a);
	assert_true(AWAIT(fx_do(fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
}

static struct dp_result open_one(struct fx *fx, uint64_t bytes, struct ros2_uid *ret)
{
	struct fx_args a = {.session = ros2_uid_new(),
	                    .tenant = fx->tenant,
	                    .grant = fx->grant,
	                    .a = UINT64_MAX,
	                    .shm_bytes = bytes};

	*ret = a.session;
	return rs_try_open(fx, &a);
}

/* Exactly that much is free, as soon as what has ended is gone. */
static void is_free(struct fx *fx, uint64_t all)
{
	uint64_t fits = (all - SHM_BASE) / UNIT * UNIT;
	struct ros2_uid s;
	struct dp_result res = open_one(fx, fits + 1, &s);

	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "--shm-memory"));
	if (!AWAIT((res = open_one(fx, fits, &s)).status == ROS2_OK))
		fail_msg("%s", res.words);
	assert_int_equal(res.session.shm_bytes, fits);
	close_one(fx, &s);
}

/* ---- sizes ---- */

static void size__is_what_was_asked_for_or_a_little_more(void **state)
{
	static const struct {
		uint64_t asked, got;
	} all[] = {{0, 64 * MIB},
	           {1, WIRE_SHM_DATA_MIN},
	           {WIRE_SHM_DATA_MIN, WIRE_SHM_DATA_MIN},
	           {WIRE_SHM_DATA_MIN + 1, WIRE_SHM_DATA_MIN + UNIT},
	           {3 * MIB + UNIT - 1, 3 * MIB + UNIT},
	           {3 * MIB + UNIT, 3 * MIB + UNIT}};
	struct ros2_uid s;
	struct dp_result res;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		res = open_one(*state, all[i].asked, &s);
		assert_int_equal(res.status, ROS2_OK);
		assert_int_equal(res.session.shm_bytes, all[i].got);
		close_one(*state, &s);
	}
}

static void size__beyond_the_limit_is_refused_with_the_numbers(void **state)
{
	static const uint64_t bad[] = {
		256 * MIB,  256 * MIB - SHM_BASE + 1, 1ull << 40,     1ull << 63,
		UINT64_MAX, UINT64_MAX - UNIT,        UINT64_MAX / 2, UINT64_MAX - SHM_BASE + 1};
	struct dp_result res;
	struct ros2_uid s;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		res = open_one(*state, bad[i], &s);
		assert_int_equal(res.status, ROS2_LIMIT);
		assert_non_null(strstr(res.words, "268435456"));
	}
	/* Nothing of it is taken, nor held against another session. */
	is_free(*state, 256 * MIB);
}

/* ---- the limit of a tenant ---- */

#define LIMIT_ALL (20 * SESSION + 5) /* no multiple of anything */

static int limit_setup(void **state)
{
	fx_shm_tenant_bytes = LIMIT_ALL;
	return fx_setup(state);
}

static int limit_teardown(void **state)
{
	fx_shm_tenant_bytes = 0;
	return fx_teardown(state);
}

static void limit__counts_all_sessions_of_a_tenant_and_no_others(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid one, two, three;
	struct ros2_uid tenant = fx->tenant, grant = fx->grant;
	struct dp_result res = open_one(fx, 10 * MIB, &one);

	assert_int_equal(res.status, ROS2_OK);
	is_free(fx, LIMIT_ALL - 10 * MIB - SHM_BASE);
	/* One that does not say takes what there is. */
	res = open_one(fx, 0, &two);
	assert_int_equal(res.status, ROS2_OK);
	assert_int_equal(res.session.shm_bytes,
	                 (LIMIT_ALL - 10 * MIB - 2 * SHM_BASE) / UNIT * UNIT);
	assert_int_equal(open_one(fx, 0, &three).status, ROS2_LIMIT);
	assert_int_equal(open_one(fx, 1, &three).status, ROS2_LIMIT);
	/* Another tenant has its own. */
	fx->tenant = ros2_uid_new();
	fx->grant = ros2_uid_new();
	fx_limits(fx);
	assert_int_equal(fx_grant(fx, &fx->grant, &fx->tenant, UINT64_MAX), 0);
	is_free(fx, LIMIT_ALL);
	fx->tenant = tenant;
	fx->grant = grant;
	close_one(fx, &one);
	is_free(fx, 10 * MIB + SHM_BASE + (LIMIT_ALL - 10 * MIB - 2 * SHM_BASE) % UNIT);
	close_one(fx, &two);
	is_free(fx, LIMIT_ALL);
}

static void control__without_the_limit_one_tenant_has_more(void **state)
{
	struct ros2_uid s, other;

	dp_test_switches.no_shm_limit = true;
	assert_int_equal(open_one(*state, 10 * MIB, &s).status, ROS2_OK);
	assert_int_equal(open_one(*state, LIMIT_ALL, &other).status, ROS2_OK);
	close_one(*state, &other);
	dp_test_switches.no_shm_limit = false;
	assert_int_equal(open_one(*state, LIMIT_ALL, &other).status, ROS2_LIMIT);
	close_one(*state, &s);
	is_free(*state, LIMIT_ALL);
}

static int small_setup(void **state)
{
	fx_shm_tenant_bytes = SESSION - 1;
	return fx_setup(state);
}

static void limit__below_the_least_allows_none(void **state)
{
	struct ros2_uid s;

	assert_int_equal(open_one(*state, 0, &s).status, ROS2_LIMIT);
	assert_int_equal(open_one(*state, 1, &s).status, ROS2_LIMIT);
}

static int exact_setup(void **state)
{
	fx_shm_tenant_bytes = SESSION;
	return fx_setup(state);
}

static void limit__of_exactly_one_session_allows_it(void **state)
{
	struct ros2_uid s, other;

	assert_int_equal(open_one(*state, 0, &s).status, ROS2_OK);
	assert_int_equal(open_one(*state, 0, &other).status, ROS2_LIMIT);
	close_one(*state, &s);
	is_free(*state, SESSION);
}

/* ---- openings that fail half-way ---- */

/* All have their memory made before the first has its place. */
static void memory__comes_back_when_the_sessions_of_the_tenant_are_all_there(void **state)
{
	struct fx *fx = *state;
	struct opening o = {.fx = fx, .n = 8, .bytes = 1};

	fx->limits.sessions_max = 3;
	fx_limits(fx);
	open_all(&o);
	assert_int_equal(count(&o, ROS2_OK), 3);
	assert_int_equal(count(&o, ROS2_LIMIT), 5);
	for (uint32_t i = 0; i < o.n; i++)
		if (o.res[i].status == ROS2_OK)
			close_one(fx, &o.session[i]);
	is_free(fx, LIMIT_ALL);
}

static void memory__comes_back_when_there_are_too_many_calls_at_once(void **state)
{
	struct fx *fx = *state;
	struct opening o = {.fx = fx, .n = DP_CONTROL_PER_TENANT + 4, .bytes = 1};

	fx->limits.sessions_max = MANY;
	fx_limits(fx);
	open_all(&o);
	assert_int_equal(count(&o, ROS2_OK), DP_CONTROL_PER_TENANT);
	assert_int_equal(count(&o, ROS2_BUSY), 4);
	for (uint32_t i = 0; i < o.n; i++)
		if (o.res[i].status == ROS2_OK)
			close_one(fx, &o.session[i]);
		else
			assert_non_null(strstr(o.res[i].words, "control calls of the tenant: the "
			                                       "limit is 16 at once (fixed)"));
	is_free(fx, LIMIT_ALL);
}

static void control__without_that_bound_all_calls_are_begun_at_once(void **state)
{
	struct fx *fx = *state;
	struct opening o = {.fx = fx, .n = DP_CONTROL_PER_TENANT + 4, .bytes = 1};

	dp_test_switches.no_control_bound = true;
	fx->limits.sessions_max = MANY;
	fx_limits(fx);
	open_all(&o);
	dp_test_switches.no_control_bound = false;
	assert_int_equal(count(&o, ROS2_OK), DP_CONTROL_PER_TENANT + 4);
	for (uint32_t i = 0; i < o.n; i++)
		close_one(fx, &o.session[i]);
	is_free(fx, LIMIT_ALL);
}

static void memory__comes_back_when_the_same_session_is_opened_twice(void **state)
{
	struct fx *fx = *state;
	struct opening o = {.fx = fx, .n = 2, .bytes = 1};

	sem_init(&o.done, 0, 0);
	o.session[0] = o.session[1] = ros2_uid_new();
	loop_call(fx->loop, begin_all, &o);
	for (uint32_t i = 0; i < o.n; i++)
		while (sem_wait(&o.done) < 0) /* EINTR */
			;
	sem_destroy(&o.done);
	assert_int_equal(count(&o, ROS2_OK), 1);
	assert_int_equal(count(&o, ROS2_EXISTS), 1);
	close_one(fx, &o.session[0]);
	is_free(fx, LIMIT_ALL);
}

static void memory__comes_back_when_the_grant_is_withdrawn_meanwhile(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid old = fx->grant;
	struct opening o = {.fx = fx, .n = 5, .bytes = 1, .revoke = &old, .scope = DP_SCOPE_GRANT};

	open_all(&o);
	assert_int_equal(count(&o, ROS2_REVOKED), 5);
	fx->grant = ros2_uid_new();
	assert_int_equal(fx_grant(fx, &fx->grant, &fx->tenant, UINT64_MAX), 0);
	is_free(fx, LIMIT_ALL);
}

/* With the tenant goes what it had: nothing is to be leaked, or used when it is gone. */
static void memory__of_a_tenant_that_is_withdrawn_meanwhile_goes_with_it(void **state)
{
	struct fx *fx = *state;
	struct opening o = {
		.fx = fx, .n = 5, .bytes = 1, .revoke = &fx->tenant, .scope = DP_SCOPE_TENANT};

	open_all(&o);
	assert_int_equal(count(&o, ROS2_REVOKED), 5);
}

static void memory__comes_back_when_the_session_is_withdrawn(void **state)
{
	struct fx *fx = *state;
	struct fx_revoked r;
	struct shm_raw t;

	rs_ready(fx, &t);
	fx_revoke(fx, DP_SCOPE_SESSION, &t.c.session, &r);
	assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_REVOKED);
	close_one(fx, &t.c.session);
	rs_close(&t);
	is_free(fx, LIMIT_ALL);
}

/* ---- what a tenant keeps ---- */

static void unmap(struct shm_raw *t)
{
	munmap(TAKE_PTR(t->map), t->bytes);
}

static int only_mapping(struct shm_raw *t)
{
	close(TAKE_FD(t->memfd));
	return -1;
}

static int only_reading(struct shm_raw *t)
{
	void *p = mmap(NULL, t->bytes, PROT_READ, MAP_SHARED, t->memfd, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	unmap(t);
	t->map = p;
	close(TAKE_FD(t->memfd));
	return -1;
}

static int only_descriptor(struct shm_raw *t)
{
	unmap(t);
	return TAKE_FD(t->memfd);
}

/* Not even open, but it keeps the pages. */
static int only_path(struct shm_raw *t)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", t->memfd);
	fd = open(path, O_PATH | O_CLOEXEC);
	assert_true(fd >= 0);
	unmap(t);
	close(TAKE_FD(t->memfd));
	return fd;
}

/* On its way between two sockets that one process has. */
static int only_message(struct shm_raw *t)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(char[]){"m"}, 1};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &t->memfd, sizeof(int));
	assert_int_equal(sendmsg(ends[0], &msg, 0), 1);
	close(ends[0]);
	unmap(t);
	close(TAKE_FD(t->memfd));
	return ends[1];
}

/* Else a tenant that opens and closes sessions, and keeps what it got, has all of the machine's
 * memory in the end. */
static void memory__that_the_tenant_keeps_counts_until_nobody_has_it(void **state)
{
	static int (*const ways[])(struct shm_raw * t) = {only_mapping, only_reading,
	                                                  only_descriptor, only_path, only_message};
	struct fx *fx = *state;

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct shm_raw t;
		int kept;

		rs_ready(fx, &t);
		close_one(fx, &t.c.session);
		raw_close(&t.c);
		kept = ways[i](&t);
		is_free(fx, LIMIT_ALL - SHM_BYTES - SHM_BASE);
		if (kept >= 0)
			close(kept);
		else
			unmap(&t);
		is_free(fx, LIMIT_ALL);
	}
}

static struct opening last;

static void end__of_the_data_plane_while_memory_is_made_leaks_nothing(void **state)
{
	last = (struct opening){.fx = *state, .n = 10, .bytes = 1};
	open_begin(&last);
	/* The teardown ends it. */
}

static void memory__comes_back_when_the_tenant_goes_while_it_is_sealed(void **state)
{
	/* What drains is told when it has, which may be after the test: in the teardown. */
	static struct fx_revoked r[60];
	struct fx *fx = *state;

	for (int i = 0; i < 60; i++) {
		struct shm_raw t;

		rs_open_session(fx, &t);
		rs_hello(&t);
		rs_memory(&t);
		rs_mapped(&t);
		if (i % 2) {
			fx_revoke(fx, DP_SCOPE_SESSION, &t.c.session, &r[i]);
			assert_int_equal(r[i].first.status, ROS2_OK);
		}
		rs_close(&t);
		close_one(fx, &t.c.session);
		fx_forget_events(fx);
	}
	is_free(fx, LIMIT_ALL);
}

static void end__of_the_data_plane_while_memory_is_sealed_leaks_nothing(void **state)
{
	struct shm_raw t[2];

	for (int i = 0; i < 2; i++) {
		rs_open_session(*state, &t[i]);
		rs_hello(&t[i]);
		rs_memory(&t[i]);
	}
	for (int i = 0; i < 2; i++) {
		rs_mapped(&t[i]);
		rs_close(&t[i]);
	}
	/* The teardown ends it. */
}

static void memory__of_a_session_that_nobody_connects_to_comes_back(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	rs_open_session(fx, &t);
	is_free(fx, LIMIT_ALL - SHM_BYTES - SHM_BASE);
	clock_ahead_ns += 10 * NS_PER_S; /* which a HELLO may take */
	assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_TIMEOUT);
	close_one(fx, &t.c.session);
	is_free(fx, LIMIT_ALL);
}

/* ---- not offered ---- */

static int without_setup(void **state)
{
	int rc;

	fx_shm = false;
	rc = fx_setup(state);
	fx_shm = true;
	return rc;
}

static void session__without_a_directory_is_refused_by_name(void **state)
{
	struct ros2_uid s;
	struct dp_result res = open_one(*state, 0, &s);

	assert_int_equal(res.status, ROS2_UNSUPPORTED);
	assert_non_null(strstr(res.words, "--shm-dir"));
}

/* ---- where the sockets are ---- */

struct start {
	struct fx *fx;
	const char *dir;
	struct ros2_err err;
	int rc;
};

static void start_and_end(void *arg)
{
	struct start *s = arg;
	struct dp_opts o = {.loop = s->fx->loop,
	                    .reactors = 2,
	                    .listen_host = "127.0.0.1",
	                    .slot_bytes_total = 4u << 20,
	                    .control_workers = 1,
	                    .shm_dir = s->dir};
	struct dp *dp;

	s->rc = dp_new(&o, &dp, &s->err);
	if (s->rc == 0)
		dp_free(dp);
}

static int start_at(struct fx *fx, const char *dir, char words[WORDS])
{
	struct start s = {.fx = fx, .dir = dir, .err = ROS2_ERR_INIT};

	loop_call(fx->loop, start_and_end, &s);
	snprintf(words, WORDS, "%s", s.rc < 0 ? s.err.msg : "");
	return s.rc;
}

/* As an agent that was killed leaves it, or, with @listens, one that is there. */
static int socket_at(const char *dir, const char *name, bool listens)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_in_range(snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir, name), 1,
	                sizeof(at.sun_path) - 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	if (listens)
		assert_int_equal(listen(fd, 1), 0);
	return fd;
}

/* Of its own, below the fixture's; it has to be taken away. */
static void own_dir(struct fx *fx, char dir[300])
{
	snprintf(dir, 300, "%s/own", (const char *)fx->base);
	assert_int_equal(mkdir(dir, 0755), 0);
}

static bool exists(const char *dir, const char *name)
{
	char path[320];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return lstat(path, &st) == 0;
}

static void socket__that_was_left_over_is_taken_away(void **state)
{
	char dir[300], words[WORDS];

	own_dir(*state, dir);
	close(socket_at(dir, "reactor0.sock", false));
	close(socket_at(dir, "reactor1.sock", true));
	assert_int_equal(start_at(*state, dir, words), 0);
	/* And its own with the end, before or when the last result is told. */
	assert_true(AWAIT(!exists(dir, "reactor0.sock") && !exists(dir, "reactor1.sock")));
}

static void socket__that_somebody_listens_on_is_left_alone(void **state)
{
	char dir[300], words[WORDS], path[320];
	int fd;

	own_dir(*state, dir);
	fd = socket_at(dir, "reactor1.sock", true);
	assert_int_equal(start_at(*state, dir, words), -EADDRINUSE);
	assert_non_null(strstr(words, "reactor1.sock"));
	assert_true(exists(dir, "reactor1.sock"));
	/* That of the reactor that had one by then is gone. */
	assert_true(AWAIT(!exists(dir, "reactor0.sock")));
	snprintf(path, sizeof(path), "%s/reactor1.sock", dir);
	close(rs_connect_path(path));
	close(fd);
}

/* Somebody's file, link or directory is no socket that was left over. */
static void name__of_something_else_is_left_alone(void **state)
{
	char dir[300], words[WORDS], path[320];
	int fd;

	own_dir(*state, dir);
	snprintf(path, sizeof(path), "%s/reactor0.sock", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(start_at(*state, dir, words), -EADDRINUSE);
	assert_true(exists(dir, "reactor0.sock"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(start_at(*state, dir, words), -EADDRINUSE);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("nowhere", path), 0);
	assert_int_equal(start_at(*state, dir, words), -EADDRINUSE);
	assert_true(exists(dir, "reactor0.sock"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(start_at(*state, dir, words), 0);
}

static void directory__that_cannot_be_is_refused_by_name(void **state)
{
	struct fx *fx = *state;
	char dir[300], words[WORDS];
	int fd;

	memset(dir, 'x', sizeof(dir));
	dir[0] = '/';
	dir[107 - strlen("/reactor0.sock") + 1] = '\0';
	assert_int_equal(start_at(fx, dir, words), -ENAMETOOLONG);
	assert_non_null(strstr(words, "bytes"));
	snprintf(dir, sizeof(dir), "%s/no/where", (const char *)fx->base);
	assert_int_equal(start_at(fx, dir, words), -ENOENT);
	assert_non_null(strstr(words, "cannot make the directory"));
	snprintf(dir, sizeof(dir), "%s/file", (const char *)fx->base);
	fd = open(dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(start_at(fx, dir, words), -ENOTDIR);
	assert_non_null(strstr(words, dir));
}

/* They could put a socket in the place of the agent's, and stand between it and its tenants. */
static void directory__that_others_may_write_to_is_refused(void **state)
{
	static const mode_t bad[] = {0777, 01777, 0775, 0757};
	char dir[300], words[WORDS];

	own_dir(*state, dir);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(chmod(dir, bad[i]), 0);
		assert_int_equal(start_at(*state, dir, words), -EPERM);
		assert_non_null(strstr(words, "alone"));
		assert_false(exists(dir, "reactor0.sock"));
	}
	assert_int_equal(chmod(dir, 0755), 0);
	if (geteuid() == 0) {
		assert_int_equal(chown(dir, 4242, 4242), 0);
		assert_int_equal(start_at(*state, dir, words), -EPERM);
		assert_non_null(strstr(words, "4242"));
		assert_int_equal(chown(dir, 0, 0), 0);
	}
	assert_int_equal(start_at(*state, dir, words), 0);
}

/* One byte less is a path. */
static void directory__of_the_longest_name_works(void **state)
{
	struct fx *fx = *state;
	size_t all = 107 - strlen("/reactor0.sock");
	char dir[300], words[WORDS];
	int n = snprintf(dir, sizeof(dir), "%s/", (const char *)fx->base);

	memset(dir + n, 'x', all - (size_t)n);
	dir[all] = '\0';
	assert_int_equal(start_at(fx, dir, words), 0);
}

static void socket__is_for_everybody(void **state)
{
	struct fx *fx = *state;
	char path[320];
	struct stat st;

	snprintf(path, sizeof(path), "%s/reactor0.sock", fx->shm_dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0666);
}

#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, limit_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FX_TEST(size__is_what_was_asked_for_or_a_little_more),
		FX_TEST(size__beyond_the_limit_is_refused_with_the_numbers),
		T(limit__counts_all_sessions_of_a_tenant_and_no_others, limit_setup),
		T(control__without_the_limit_one_tenant_has_more, limit_setup),
		T(limit__below_the_least_allows_none, small_setup),
		T(limit__of_exactly_one_session_allows_it, exact_setup),
		T(memory__comes_back_when_the_sessions_of_the_tenant_are_all_there, limit_setup),
		T(memory__comes_back_when_there_are_too_many_calls_at_once, limit_setup),
		T(control__without_that_bound_all_calls_are_begun_at_once, limit_setup),
		T(memory__comes_back_when_the_same_session_is_opened_twice, limit_setup),
		T(memory__comes_back_when_the_grant_is_withdrawn_meanwhile, limit_setup),
		T(memory__of_a_tenant_that_is_withdrawn_meanwhile_goes_with_it, limit_setup),
		T(memory__comes_back_when_the_session_is_withdrawn, limit_setup),
		T(memory__that_the_tenant_keeps_counts_until_nobody_has_it, limit_setup),
		T(end__of_the_data_plane_while_memory_is_made_leaks_nothing, limit_setup),
		T(memory__comes_back_when_the_tenant_goes_while_it_is_sealed, limit_setup),
		T(end__of_the_data_plane_while_memory_is_sealed_leaks_nothing, limit_setup),
		T(memory__of_a_session_that_nobody_connects_to_comes_back, limit_setup),
		FX_TEST(socket__that_was_left_over_is_taken_away),
		FX_TEST(socket__that_somebody_listens_on_is_left_alone),
		FX_TEST(name__of_something_else_is_left_alone),
		FX_TEST(directory__that_cannot_be_is_refused_by_name),
		FX_TEST(directory__that_others_may_write_to_is_refused),
		FX_TEST(directory__of_the_longest_name_works),
		FX_TEST(socket__is_for_everybody),
		cmocka_unit_test_setup_teardown(session__without_a_directory_is_refused_by_name,
	                                        without_setup, fx_teardown),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
