/* SPDX-License-Identifier: Apache-2.0 */
/* What one tenant may hold of a reactor's tables and buffers, and what stays for the others; and
 * what becomes of these when it may hold what it likes. */
#include "dataplane/test_switches.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/fixture.h"
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* That the peers of some sessions read nothing, see below. */
static _Atomic bool are_deaf;

static int teardown(void **state)
{
	are_deaf = false;
	dp_test_switches = (struct dp_test_switches){0};
	return fx_teardown(state);
}

/* A second tenant with a grant. */
static struct ros2_uid second_tenant(struct fx *fx, struct ros2_uid *ret_grant)
{
	struct ros2_uid t = ros2_uid_new();

	*ret_grant = ros2_uid_new();
	fx_tenant(fx, &t);
	assert_int_equal(fx_grant(fx, ret_grant, &t, clock_boottime_ns() + 60 * NS_PER_S), 0);
	return t;
}

static void session__a_generous_tenant_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.tenant = fx->tenant, .grant = fx->grant, .a = UINT64_MAX};
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c;

	fx->limits.sessions_max = 100000;
	fx_limits(fx);
	other = second_tenant(fx, &grant);
	for (int i = 0; i < 256; i++) { /* half of what two reactors have */
		a.session = ros2_uid_new();
		assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_OK);
	}
	a.session = ros2_uid_new();
	res = fx_do(fx, FX_OPEN_SESSION, &a);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "the tenant's share of the agent's sessions: at most 128 "
	                                  "of the 256 (fixed)"));
	raw_open_as(fx, &c, &other, &grant, UINT64_MAX);
	raw_connect(&c);
	raw_close(&c);
}

static void control__sessions_of_one_tenant(void **state)
{
	struct fx *fx = *state;
	struct fx_args a = {.tenant = fx->tenant, .grant = fx->grant, .a = UINT64_MAX};

	dp_test_switches.no_session_share = true;
	fx->limits.sessions_max = 100000;
	fx_limits(fx);
	for (int i = 0; i < 512; i++) { /* all that two reactors have */
		a.session = ros2_uid_new();
		assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_OK);
	}
	a.tenant = second_tenant(fx, &a.grant);
	a.session = ros2_uid_new();
	assert_int_equal(fx_do(fx, FX_OPEN_SESSION, &a).status, ROS2_LIMIT);
}

static struct dp_result try_register(struct fx *fx, const struct raw *c)
{
	struct fx_args a = {.session = c->session, .a = FX_BASE, .b = 1024, .flags = 3};

	return fx_do(fx, FX_REGISTER, &a);
}

/* A session that has @n keys, and one of another tenant on each reactor. */
static void many_keys(struct fx *fx, int n, struct raw *c, struct raw d[2])
{
	struct ros2_uid other, mine = ros2_uid_new(), grant;

	fx->limits.regions = fx->limits.rkeys_concurrent = 100000;
	fx->limits.region_size_min = fx->limits.region_alignment = 1024;
	fx->max_keys = 100000;
	fx_limits(fx);
	other = second_tenant(fx, &grant);
	fx_grant(fx, &mine, &fx->tenant, clock_boottime_ns() + 60 * NS_PER_S);
	raw_open_as(fx, c, &fx->tenant, &mine, UINT64_MAX);
	raw_connect(c);
	for (int i = 0; i < n; i++)
		raw_register(c, FX_BASE, 1024, 3);
	for (int i = 0; i < 2; i++)
		raw_open_as(fx, &d[i], &other, &grant, UINT64_MAX);
}

static void region__a_generous_tenant_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct raw c, d[2];

	many_keys(fx, 8192, &c, d);
	res = try_register(fx, &c);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "the tenant's share of a reactor's 16384 keys (fixed): "
	                                  "at most 8192"));
	for (int i = 0; i < 2; i++)
		assert_int_equal(try_register(fx, &d[i]).status, ROS2_OK);
	raw_close(&c);
}

static void control__keys_of_one_tenant(void **state)
{
	struct fx *fx = *state;
	struct dp_result res;
	struct raw c, d[2];

	dp_test_switches.no_key_share = true;
	many_keys(fx, 16384, &c, d);
	for (int i = 0; i < 2; i++) {
		res = try_register(fx, &d[i]);
		assert_int_equal(res.status, d[i].port == c.port ? ROS2_LIMIT : ROS2_OK);
	}
	res = try_register(fx, &c);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_string_equal(res.words, "keys of the agent's reactor: the limit is 16384 (fixed)");
	raw_close(&c);
}

/* ---- replies that nobody reads ---- */

#define SLOTS  8u /* of 1 MiB, of a reactor */
#define UNREAD 8u /* sessions, on two reactors: of each a quarter is what one may have */

struct unread {
	struct fx *fx;
	struct raw a[UNREAD], d[2]; /* d: the neighbour's, one on each reactor */
};

static uint8_t megabyte[WIRE_IO_MAX];

/* Whose peers read nothing: for the kernel, which would keep some MiB of each, it takes none. */
static in_port_t deaf[UNREAD];

static bool is_deaf(int fd)
{
	struct sockaddr_in from = {0};
	socklen_t len = sizeof(from);
	bool is = false;

	if (!are_deaf || getpeername(fd, (struct sockaddr *)&from, &len))
		return false;
	for (unsigned i = 0; i < UNREAD; i++)
		is |= from.sin_port == deaf[i];
	return is;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (!is_deaf(fd))
		return __real_sendmsg(fd, m, flags);
	errno = EAGAIN;
	return -1;
}

static void ready(struct raw *c)
{
	raw_connect(c);
	raw_file(c, "file");
	c->key = raw_register(c, FX_BASE, WIRE_IO_MAX, 3);
}

static void ask_for_megabytes(struct raw *c, int n)
{
	for (int i = 0; i < n; i++) {
		struct wire_header h = raw_header(c, WIRE_READ, 0, FX_BASE, WIRE_IO_MAX);

		raw_send(c, &h, NULL, 0);
	}
}

/* A tenant asks in each of its sessions for as much as there is, and reads nothing of it. */
static void unread_begin(struct unread *u, struct fx *fx)
{
	struct ros2_uid other, grant;

	u->fx = fx;
	fx->limits.lease_ttl_ms = 600000; /* longer than what the clock is ahead */
	fx->limits.sessions_max = 2 * UNREAD;
	fx_limits(fx);
	other = second_tenant(fx, &grant);
	for (unsigned i = 0; i < UNREAD; i++) {
		struct sockaddr_in own = {0};
		socklen_t len = sizeof(own);

		raw_open(fx, &u->a[i]);
		ready(&u->a[i]);
		assert_int_equal(getsockname(u->a[i].fd, (struct sockaddr *)&own, &len), 0);
		deaf[i] = own.sin_port;
	}
	for (int i = 0; i < 2; i++) {
		raw_open_as(fx, &u->d[i], &other, &grant, UINT64_MAX);
		ready(&u->d[i]);
	}
	assert_int_not_equal(u->d[0].port, u->d[1].port);
	assert_int_equal(raw_write(&u->a[0], 0, megabyte, sizeof(megabyte), false), ROS2_OK);
	fx_no_slots(fx);
	are_deaf = true;
	for (unsigned i = 0; i < UNREAD; i++)
		ask_for_megabytes(&u->a[i], SLOTS);
}

static void unread_end(struct unread *u)
{
	for (unsigned i = 0; i < UNREAD; i++)
		raw_close(&u->a[i]);
	for (int i = 0; i < 2; i++)
		raw_close(&u->d[i]);
	are_deaf = false;
}

static void replies__that_nobody_reads_leave_others_their_buffers(void **state)
{
	struct unread u;

	unread_begin(&u, *state);
	assert_true(AWAIT(fx_slots(u.fx) == 2 * SLOTS / 2));
	for (int i = 0; i < 2; i++)
		assert_int_equal(raw_read(&u.d[i], 0, megabyte, sizeof(megabyte), NULL), ROS2_OK);
	assert_true(AWAIT(fx_slots(u.fx) == 2 * SLOTS / 2));
	unread_end(&u);
}

/* One tenant has all the buffers, and each neighbour waits for one. */
static void take_all(struct unread *u, struct fx *fx)
{
	dp_test_switches.no_slot_share = true;
	unread_begin(u, fx);
	assert_true(AWAIT(fx_slots(fx) == 2 * SLOTS));
	for (int i = 0; i < 2; i++)
		ask_for_megabytes(&u->d[i], 1);
}

static void has_its_megabyte(struct raw *c)
{
	struct wire_header h;

	do
		assert_true(raw_recv(c, &h, megabyte, sizeof(megabyte)));
	while (h.opcode == WIRE_DATA);
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
}

static void buffers__that_are_kept_from_others_are_given_up_in_time(void **state)
{
	struct dp_event ev;
	struct unread u;

	take_all(&u, *state);
	clock_ahead_ns += 20 * NS_PER_S;
	for (int i = 0; i < 2; i++)
		has_its_megabyte(&u.d[i]);
	ev = fx_event(u.fx, DP_EVENT_SESSION_ENDED, ROS2_TIMEOUT);
	assert_string_equal(ev.words, "the tenant held buffers that others waited for: it moved "
	                              "less than 1 MiB in 5 s (fixed)");
	unread_end(&u);
}

/* That the time is over is seen at sessions that nobody connects to, which the timer ends after it
 * has looked at the others. */
static void control__buffers_of_one_tenant(void **state)
{
	struct raw late[2];
	struct unread u;

	dp_test_switches.no_stall_end = true;
	take_all(&u, *state);
	for (int i = 0; i < 2; i++)
		raw_open(u.fx, &late[i]);
	clock_ahead_ns += 20 * NS_PER_S;
	for (int i = 0; i < 2; i++)
		assert_non_null(strstr(fx_ended(u.fx, &late[i].session).words, "no HELLO"));
	for (int i = 0; i < 2; i++) {
		struct pollfd p = {.fd = u.d[i].fd, .events = POLLIN};

		/* Behind what waits, and of another size. */
		assert_int_equal(raw_write(&u.d[i], 0, megabyte, 4096, true), ROS2_OK);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	assert_true(AWAIT(fx_slots(u.fx) == 2 * SLOTS));
	/* The end of those that hold them lets the others go on. */
	for (unsigned i = 0; i < UNREAD; i++)
		raw_close(&u.a[i]);
	for (int i = 0; i < 2; i++)
		has_its_megabyte(&u.d[i]);
	unread_end(&u);
}

/* ---- descriptors: few in all, so that one tenant could have them ---- */

#define ALL    400 /* RLIMIT_NOFILE: half of it for open files, half of that for one tenant */
#define MOST   (ALL / 4)
#define A_FILE 3 /* of the file engine */

static struct rlimit before;

static int few_setup(void **state)
{
	struct rlimit few;

	if (!testing_has_openat2()) {
		*state = NULL;
		return 0;
	}
	if (getrlimit(RLIMIT_NOFILE, &before) < 0)
		return -1;
	few = (struct rlimit){ALL, before.rlim_max};
	return setrlimit(RLIMIT_NOFILE, &few) || fx_file_setup(state);
}

static int few_teardown(void **state)
{
	if (!*state)
		return 0;
	dp_test_switches = (struct dp_test_switches){0};
	setrlimit(RLIMIT_NOFILE, &before);
	return fx_file_teardown(state);
}

static struct dp_result mount(struct fx *fx, struct raw *c)
{
	struct fx_args a = {.session = c->session, .path = "ns", .to = "ram", .flags = 3};

	return fx_do(fx, FX_MOUNT, &a);
}

static struct dp_result open_file(struct fx *fx, const struct raw *c, unsigned n)
{
	char name[16];
	struct fx_args a = {.session = c->session,
	                    .mount = 1,
	                    .path = name,
	                    .flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE};

	snprintf(name, sizeof(name), "f-%u", n);
	return fx_do(fx, FX_OPEN, &a);
}

/* How many until one is refused, which is @ret_last. */
static unsigned open_many(struct fx *fx, const struct raw *c, unsigned most,
                          struct dp_result *ret_last)
{
	unsigned n = 0;

	while (n < most && (*ret_last = open_file(fx, c, n)).status == ROS2_OK)
		n++;
	return n;
}

static bool can_open(struct fx *fx, const struct raw *c)
{
	struct dp_result res = open_file(fx, c, 0);
	struct fx_args a = {.session = c->session, .a = res.open.handle};

	if (res.status == ROS2_OK)
		assert_int_equal(fx_do(fx, FX_CLOSE, &a).status, ROS2_OK);
	return res.status == ROS2_OK;
}

static void file__a_tenant_that_opens_many_leaves_others_theirs(void **state)
{
	struct fx *fx = *state;
	struct fx_args close = {.a = 0};
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c, d;

	if (!fx)
		testing_no_openat2(state);
	other = second_tenant(fx, &grant);
	raw_open(fx, &c);
	assert_int_equal(mount(fx, &c).status, ROS2_OK);
	assert_int_equal(open_many(fx, &c, 256, &res), (MOST - 1) / A_FILE);
	assert_int_equal(res.status, ROS2_LIMIT);
	assert_non_null(strstr(res.words, "the tenant's share of the agent's open files: at most "
	                                  "100 of 200 descriptors (half of LimitNOFILE)"));
	raw_open_as(fx, &d, &other, &grant, UINT64_MAX);
	assert_int_equal(mount(fx, &d).status, ROS2_OK);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(open_file(fx, &d, i).status, ROS2_OK);
	/* What a session had is there again when it has ended, as soon as the engine has closed it.
	 */
	close.session = c.session;
	assert_int_equal(fx_do(fx, FX_CLOSE_SESSION, &close).status, ROS2_OK);
	raw_open(fx, &c);
	assert_true(AWAIT(mount(fx, &c).status == ROS2_OK));
	assert_true(AWAIT(can_open(fx, &c)));
}

static void control__descriptors_of_one_tenant(void **state)
{
	struct fx *fx = *state;
	struct ros2_uid other, grant;
	struct dp_result res;
	struct raw c, d;

	if (!fx)
		testing_no_openat2(state);
	dp_test_switches.no_descriptor_share = true;
	other = second_tenant(fx, &grant);
	raw_open(fx, &c);
	assert_int_equal(mount(fx, &c).status, ROS2_OK);
	raw_open_as(fx, &d, &other, &grant, UINT64_MAX);
	assert_int_equal(mount(fx, &d).status, ROS2_OK);
	assert_in_range(open_many(fx, &c, 256, &res), MOST, 2 * MOST);
	assert_int_not_equal(open_file(fx, &d, 0).status, ROS2_OK);
}

int main(void)
{
#define T(name)   cmocka_unit_test_setup_teardown(name, fx_setup, teardown)
#define FEW(name) cmocka_unit_test_setup_teardown(name, few_setup, few_teardown)
	const struct CMUnitTest tests[] = {
		T(session__a_generous_tenant_leaves_others_theirs),
		T(control__sessions_of_one_tenant),
		T(region__a_generous_tenant_leaves_others_theirs),
		T(control__keys_of_one_tenant),
		T(replies__that_nobody_reads_leave_others_their_buffers),
		T(buffers__that_are_kept_from_others_are_given_up_in_time),
		T(control__buffers_of_one_tenant),
		FEW(file__a_tenant_that_opens_many_leaves_others_theirs),
		FEW(control__descriptors_of_one_tenant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
