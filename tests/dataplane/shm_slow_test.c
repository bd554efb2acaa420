/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant, or anybody who can connect, whose end of the socket is in very many epoll sets: each of
 * the agent's calls that wakes it takes some tens of milliseconds (dataplane/slow.h). It is ended
 * by name, and until then no more than a few such wakes have taken the time of its neighbours; with
 * the rule switched off as many as the tenant likes. All times are of the processor, and compared
 * with what one such wake takes this machine: so no other load changes what is seen.
 */
#include "dataplane/slow.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/slow_fixture.h"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SIDE  320 /* descriptors in each of as many epoll sets: 102400 watchers */
#define BYTES 60
/* Wakes that the reactor has carried out, by the time they took: of a session at most, and where
 * calls are not timed at least. */
#define FEW  20
#define MANY 30

/* ---- the reactor's time ---- */

static uint64_t ran_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* That reactors have spent in the calls below. */
static _Atomic uint64_t spent_ns;
/* No reactor looks at what came before all of it has. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

ssize_t __real_recv(int fd, void *p, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t len, int flags);
ssize_t __real_send(int fd, const void *p, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *p, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __real_close(int fd);
int __wrap_close(int fd);

static void spent_since(uint64_t began_ns)
{
	int error = errno;
	char name[16];

	pthread_getname_np(pthread_self(), name, sizeof(name));
	if (!strncmp(name, "reactor", 7))
		spent_ns += ran_ns() - began_ns;
	errno = error;
}

#define TIMED(type, call)                                                                          \
	uint64_t began_ns = ran_ns();                                                              \
	type ret = call;                                                                           \
                                                                                                   \
	spent_since(began_ns);                                                                     \
	return ret

ssize_t __wrap_recv(int fd, void *p, size_t len, int flags)
{
	TIMED(ssize_t, __real_recv(fd, p, len, flags));
}

ssize_t __wrap_send(int fd, const void *p, size_t len, int flags)
{
	TIMED(ssize_t, __real_send(fd, p, len, flags));
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	TIMED(ssize_t, __real_sendmsg(fd, msg, flags));
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	return __real_recvmsg(fd, msg, flags);
}

int __wrap_shutdown(int fd, int how)
{
	TIMED(int, __real_shutdown(fd, how));
}

int __wrap_close(int fd)
{
	TIMED(int, __real_close(fd));
}

/* ---- watchers ---- */

struct herd {
	int fds[SIDE], sets[SIDE];
};

/* Of @fd; without room for them the test cannot be. */
static void herd_make(struct herd *h, int fd)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = MIN(r.rlim_max, (rlim_t)8192);
	setrlimit(RLIMIT_NOFILE, &r);
	for (int i = 0; i < SIDE; i++) {
		h->fds[i] = dup(fd);
		h->sets[i] = epoll_create1(EPOLL_CLOEXEC);
		if (h->fds[i] < 0 || h->sets[i] < 0) {
			puts("# skipped: no room for 1000 descriptors (RLIMIT_NOFILE)");
			skip();
		}
	}
	for (int i = 0; i < SIDE * SIDE; i++) {
		struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET};

		if (epoll_ctl(h->sets[i / SIDE], EPOLL_CTL_ADD, h->fds[i % SIDE], &ev) < 0) {
			puts("# skipped: no 102400 watchers (fs.epoll.max_user_watches)");
			skip();
		}
	}
}

static void herd_end(struct herd *h)
{
	for (int i = 0; i < SIDE; i++) {
		close(h->sets[i]);
		close(h->fds[i]);
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* What a call takes that wakes as many: most of them. */
static uint64_t one_wake_ns(void)
{
	static uint64_t found_ns;
	uint64_t took_ns[9];
	struct herd h;
	int ends[2];

	if (found_ns)
		return found_ns;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	herd_make(&h, ends[1]);
	for (size_t i = 0; i < ARRAY_SIZE(took_ns); i++) {
		uint64_t began_ns = ran_ns();

		assert_int_equal(send(ends[0], "", 1, MSG_DONTWAIT | MSG_NOSIGNAL), 1);
		took_ns[i] = ran_ns() - began_ns;
	}
	close(ends[0]);
	close(ends[1]);
	herd_end(&h);
	qsort(took_ns, ARRAY_SIZE(took_ns), sizeof(took_ns[0]), by_size);
	if (took_ns[4] / 4 < slow_allowed_ns(SLOW_NS)) {
		puts("# skipped: 102400 watchers are woken in less than a millisecond, or calls "
		     "are "
		     "slow here anyway");
		skip();
	}
	found_ns = took_ns[4];
	return found_ns;
}

/* ---- the neighbour ---- */

/* @n works until @over(arg). */
static void works_until(struct shm_raw *n, bool (*over)(void *arg), void *arg)
{
	uint64_t end_ns = clock_monotonic_ns() + AWAIT_NS;

	while (!over(arg)) {
		assert_true(clock_monotonic_ns() < end_ns);
		assert_int_equal(rs_read(n, 0, SHM_BASE, 4096), ROS2_OK);
	}
}

/* The reactors have spent so many wakes since. */
static void spent_at_most(uint64_t before_ns, uint32_t wakes, uint64_t wake_ns)
{
	uint64_t ns = spent_ns - before_ns;

	if (ns > wakes * wake_ns)
		fail_msg("expected %u times %.1f ms, found %.1f times", wakes,
		         (double)wake_ns / 1e6, (double)ns / (double)wake_ns);
}

static bool is_refused(void *arg)
{
	return fx_count_events(arg, DP_EVENT_HELLO_REFUSED, ROS2_PROTOCOL) > 0;
}

struct connected {
	struct fx *fx;
	uint32_t before;
};

static bool is_connected(void *arg)
{
	const struct connected *c = arg;

	return fx_count_events(c->fx, DP_EVENT_CONNECTED, -1) > c->before;
}

/* ---- who has proved nothing ---- */

/* As rs_connect_path, of a socket with so many watchers. What has passed since @since_ns until it
 * is made passes for nobody else; 0: all passes. */
static int watched_connection(const char *path, struct herd *h, uint64_t since_ns)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(at.sun_path, path);
	herd_make(h, fd);
	if (since_ns)
		clock_ahead_ns -= clock_monotonic_ns() - since_ns;
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void send_bytes(int fd, int n)
{
	for (int i = 0; i < n; i++)
		(void)!send(fd, "x", 1, MSG_NOSIGNAL);
}

static bool has_timed_out(void *arg)
{
	return fx_count_events(arg, DP_EVENT_HELLO_REFUSED, ROS2_TIMEOUT) > 0;
}

/* CHALLENGE, and at the end a NAK: what was sent is not taken for that. */
static void stranger__whose_bytes_are_slow_to_take_has_none_taken(void **state)
{
	uint64_t wake_ns = one_wake_ns(), before_ns = spent_ns;
	struct fx *fx = *state;
	struct shm_raw n;
	struct herd h;
	int fd;

	rs_neighbour(fx, &n);
	fd = watched_connection(n.path, &h, 0);
	send_bytes(fd, BYTES);
	for (int i = 0; i < 20; i++)
		rs_works(&n);
	clock_ahead_ns += (WIRE_HELLO_MS + 1) * NS_PER_MS;
	works_until(&n, has_timed_out, fx);
	rs_works(&n);
	spent_at_most(before_ns, FEW / 2, wake_ns);
	close(fd);
	herd_end(&h);
	rs_end(&n);
}

/* Each is too short for a rule of its own. */
static void strangers__of_one_user_have_little_time_together(void **state)
{
	uint64_t wake_ns = one_wake_ns(), since_ns = 0;
	struct fx *fx = *state;
	struct dp_event ev;
	uint32_t tries = 0;
	struct shm_raw n;

	rs_neighbour(fx, &n);
	while (!fx_count_events(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT)) {
		struct herd h;
		int fd = watched_connection(n.path, &h, since_ns);

		send_bytes(fd, WIRE_HEADER_LEN);
		rs_ping(&n);
		(void)raw_recv_end(&(struct raw){.fd = fd});
		since_ns = clock_monotonic_ns();
		close(fd);
		herd_end(&h);
		assert_true(tries++ <= SLOW_SHARE_NS / wake_ns + 2);
	}
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT);
	assert_non_null(strstr(ev.words, "less than 10 s (fixed) ago"));
	rs_ping(&n);
	rs_end(&n);
}

/* A good HELLO, byte by byte, of one with so many watchers. */
static void hello_in_pieces(struct shm_raw *t, struct herd *h)
{
	struct {
		struct wire_header h;
		struct wire_hello hello;
	} m = {.h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)}};
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_header in;

	t->c.fd = rs_connect_path(t->path);
	assert_true(raw_recv(&t->c, &in, nonce, sizeof(nonce)));
	herd_make(h, t->c.fd);
	raw_hello(&t->c, nonce, &m.hello);
	wire_seal(&m.h);
	for (size_t i = 0; i < sizeof(m); i++)
		raw_send_bytes(&t->c, (uint8_t *)&m + i, 1);
}

static void hello__of_many_pieces_and_watchers_is_ended_by_name(void **state)
{
	uint64_t wake_ns = one_wake_ns(), before_ns = spent_ns;
	struct fx *fx = *state;
	struct dp_event ev;
	struct shm_raw n, t;
	struct herd h;

	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_open_at(fx, &t, n.path);
	fx_forget_events(fx);
	hello_in_pieces(&t, &h);
	works_until(&n, is_refused, fx);
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_PROTOCOL);
	assert_non_null(strstr(ev.words, "makes the agent's calls slow"));
	assert_memory_equal(&ev.session, &t.c.session, sizeof(ev.session));
	/* A call takes four bytes. */
	spent_at_most(before_ns, 4 * SLOW_IN_A_ROW + FEW / 2, wake_ns);
	herd_end(&h);
	rs_end(&t);
	rs_works(&n);
	rs_end(&n);
}

static void control__a_hello_is_taken_whatever_that_takes(void **state)
{
	uint64_t wake_ns = one_wake_ns(), before_ns = spent_ns;
	struct fx *fx = *state;
	struct connected c = {.fx = fx};
	struct shm_raw n, t;
	struct herd h;

	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_open_at(fx, &t, n.path);
	c.before = fx_count_events(fx, DP_EVENT_CONNECTED, -1);
	hello_in_pieces(&t, &h);
	works_until(&n, is_connected, &c);
	/* There are 144, and what gets free is quicker to tell than what has come. */
	assert_true(spent_ns - before_ns > MANY * 3 / 2 * wake_ns);
	herd_end(&h);
	rs_end(&t);
	rs_end(&n);
}

/* ---- sessions ---- */

/* The agent has something to tell, and is told that a byte is wanted for it. */
static void ping(struct shm_raw *t)
{
	struct wire_header h = raw_header(&t->c, WIRE_PING, 0, 0, 0);

	h.key = 0;
	__atomic_store_n(&rs_control(t)->to_tenant.sleeps, 1, __ATOMIC_SEQ_CST);
	rs_put(t, &h);
}

struct pings {
	struct fx *fx;
	struct shm_raw *t;
	int left;
};

static bool pings_are_over(void *arg)
{
	struct pings *p = arg;

	if (p->left == 0 || fx_count_events(p->fx, DP_EVENT_SESSION_ENDED, -1) > 0)
		return true;
	p->left--;
	ping(p->t);
	return false;
}

/* Bytes that the agent has sent, each a call that woke all. */
static int wakes_of(const struct shm_raw *t)
{
	uint8_t bytes[256];
	ssize_t n, all = 0;

	while ((n = recv(t->c.fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		all += n;
	return (int)all;
}

static void session__that_makes_answers_slow_is_ended_by_name(void **state)
{
	uint64_t wake_ns = one_wake_ns(), before_ns = spent_ns;
	struct fx *fx = *state;
	struct shm_raw n, t;
	struct pings p = {fx, &t, 40};
	struct herd h;

	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_open_at(fx, &t, n.path);
	rs_connect(&t);
	rs_ping(&t);
	fx_forget_events(fx);
	(void)wakes_of(&t);
	herd_make(&h, t.c.fd);
	works_until(&n, pings_are_over, &p);
	rs_expect_end(&t, ROS2_PROTOCOL, "makes the agent's calls slow");
	/* The first is not counted, because nobody knew how long it ran. */
	assert_in_range(wakes_of(&t), 0, SLOW_IN_A_ROW + 1);
	spent_at_most(before_ns, FEW, wake_ns);
	herd_end(&h);
	rs_end(&t);
	rs_works(&n);
	rs_end(&n);
}

static void control__a_session_may_make_answers_slow(void **state)
{
	struct fx *fx = *state;
	struct shm_raw n, t;
	struct pings p = {fx, &t, 40};
	struct herd h;

	(void)one_wake_ns();
	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_open_at(fx, &t, n.path);
	rs_connect(&t);
	rs_ping(&t);
	fx_forget_events(fx);
	(void)wakes_of(&t);
	herd_make(&h, t.c.fd);
	works_until(&n, pings_are_over, &p);
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), 0);
	assert_true(wakes_of(&t) >= MANY);
	herd_end(&h);
	rs_end(&t);
	rs_end(&n);
}

static int unread(int fd)
{
	int n = 0;

	assert_int_equal(ioctl(fd, SIOCOUTQ, &n), 0);
	return n;
}

/* What a byte that nobody has taken yet counts there. */
static int unread_byte(void)
{
	int ends[2], n;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(send(ends[0], "", 1, MSG_NOSIGNAL), 1);
	n = unread(ends[0]);
	close(ends[0]);
	close(ends[1]);
	return n;
}

/* What reactors spend until a revocation is answered, of one that has sent BYTES bytes, some of
 * which have been taken. */
static uint64_t revocation_ns(struct fx *fx)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fx_revoked r = {0};
	int one = unread_byte();
	uint64_t took_ns;
	struct shm_raw t;
	struct herd h;

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	rs_open_as(fx, &t, &tenant, &grant, UINT64_MAX);
	rs_connect(&t);
	rs_ping(&t);
	herd_make(&h, t.c.fd);
	pthread_mutex_lock(&gate);
	send_bytes(t.c.fd, BYTES);
	pthread_mutex_unlock(&gate);
	assert_true(AWAIT(unread(t.c.fd) <= (BYTES - 2) * one));
	took_ns = spent_ns;
	fx_revoke(fx, DP_SCOPE_TENANT, &tenant, &r);
	took_ns = spent_ns - took_ns;
	herd_end(&h);
	rs_end(&t);
	return took_ns;
}

static void revocation__of_one_whose_bytes_are_slow_to_take_comes_in_time(void **state)
{
	uint64_t wake_ns = one_wake_ns(), took_ns = revocation_ns(*state);

	if (took_ns > FEW * wake_ns)
		fail_msg("it took %.1f times %.1f ms", (double)took_ns / (double)wake_ns,
		         (double)wake_ns / 1e6);
}

static void control__a_revocation_waits_for_all_that_was_sent(void **state)
{
	uint64_t wake_ns = one_wake_ns();

	assert_true(revocation_ns(*state) > MANY * wake_ns);
}

/* ---- afterwards ---- */

static bool is_talked_to(const char *path)
{
	struct raw c = {.fd = rs_connect_path(path)};
	uint8_t nonce[WIRE_NONCE_LEN];
	struct wire_header h;
	bool is = raw_recv(&c, &h, nonce, sizeof(nonce));

	raw_close(&c);
	return is;
}

static void user__that_was_slow_is_not_talked_to_for_a_while(void **state)
{
	struct fx *fx = *state;
	struct shm_raw n, t;
	struct pings p = {fx, &t, 40};
	struct herd h;
	struct dp_event ev;

	(void)one_wake_ns();
	rs_neighbour(fx, &n);
	rs_works(&n);
	rs_open_at(fx, &t, n.path);
	rs_connect(&t);
	assert_true(is_talked_to(n.path));
	fx_forget_events(fx);
	herd_make(&h, t.c.fd);
	works_until(&n, pings_are_over, &p);
	rs_expect_end(&t, ROS2_PROTOCOL, "makes the agent's calls slow");
	for (int i = 0; i < 3; i++)
		assert_false(is_talked_to(n.path));
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT);
	assert_non_null(strstr(ev.words, "less than 10 s (fixed) ago"));
	/* What it has already goes on; and then it is one as any other. */
	rs_works(&n);
	clock_ahead_ns += SLOW_PENALTY_NS;
	assert_true(is_talked_to(n.path));
	herd_end(&h);
	rs_end(&t);
	rs_end(&n);
}

/* ---- over tcp, on this machine ---- */

static void tcp_ping(struct raw *c)
{
	struct wire_header h = {.opcode = WIRE_PING, .request_id = 7};

	raw_send(c, &h, NULL, 0);
}

static void tcp__session_that_makes_sending_slow_is_ended_by_name(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct dp_event ev;
	struct raw c;
	struct herd herd;
	uint32_t pongs = 0;

	if (one_wake_ns() < 6 * NS_PER_MS) {
		puts("# skipped: 102400 watchers are woken in less than 6 ms");
		skip();
	}
	raw_open(fx, &c);
	raw_connect(&c);
	herd_make(&herd, c.fd);
	for (tcp_ping(&c); pongs < MANY && raw_recv(&c, &h, NULL, 0); tcp_ping(&c))
		pongs++;
	assert_in_range(pongs, 0, SLOW_IN_A_ROW + 1);
	ev = fx_ended(fx, &c.session);
	assert_int_equal(ev.status, ROS2_PROTOCOL);
	assert_non_null(strstr(ev.words, "makes the agent's calls slow"));
	herd_end(&herd);
	raw_close(&c);
}

static void control__a_session_over_tcp_may_make_sending_slow(void **state)
{
	struct wire_header h;
	struct raw c;
	struct herd herd;

	raw_open(*state, &c);
	raw_connect(&c);
	herd_make(&herd, c.fd);
	for (int i = 0; i < MANY; i++) {
		tcp_ping(&c);
		assert_true(raw_recv(&c, &h, NULL, 0));
		assert_int_equal(h.opcode, WIRE_PONG);
	}
	herd_end(&herd);
	raw_close(&c);
}

/* ---- the rules ---- */

static void run_for(uint64_t ns)
{
	for (uint64_t end_ns = ran_ns() + ns; ran_ns() < end_ns;)
		continue;
}

/* A call that ran for so long, and was stopped for @stopped_ns in it. */
static void call(struct slow *s, uint64_t run_ns, uint64_t stopped_ns)
{
	struct slow_call c;

	slow_begin(&c, s, clock_boottime_ns() - stopped_ns);
	run_for(run_ns);
	slow_done(s, &c, SLOW_NS, clock_boottime_ns());
}

static void calls__that_are_stopped_end_nobody(void **state)
{
	struct slow s = {0};

	(void)state;
	for (int i = 0; i < 200; i++)
		call(&s, 0, 10 * NS_PER_MS);
	assert_false(s.over);
	assert_int_equal(s.owed_ns, 0);
}

static void calls__that_are_slow_now_and_then_end_nobody(void **state)
{
	struct slow s = {0};

	(void)state;
	slow_watch(&s, clock_boottime_ns());
	for (int i = 0; i < 20; i++) {
		for (uint32_t k = 0; k < SLOW_IN_A_ROW - 1; k++)
			call(&s, 2 * SLOW_NS, 0);
		/* However long it is stopped there. */
		call(&s, 0, NS_PER_S);
	}
	assert_false(s.over);
}

static void calls__that_are_slow_in_a_row_are_over(void **state)
{
	struct slow s = {0};

	(void)state;
	/* Of the first it is not known how long it ran. */
	for (uint32_t i = 0; i < SLOW_IN_A_ROW; i++)
		call(&s, 2 * SLOW_NS, 0);
	assert_false(s.over);
	call(&s, 2 * SLOW_NS, 0);
	assert_true(s.over);
}

/* Every second one quick, as the peer likes. */
static void calls__that_take_too_much_together_are_over(void **state)
{
	struct slow s = {0};
	int n = 0;

	(void)state;
	slow_watch(&s, clock_boottime_ns());
	while (!s.over && n++ < 100) {
		s.since_ns = clock_boottime_ns(); /* a slow machine has the window, too */
		call(&s, 30 * NS_PER_MS, 0);
		call(&s, 0, 0);
	}
	assert_in_range(n, 1, SLOW_SHARE_NS / (30 * NS_PER_MS) + 1);
}

static struct host_key user(uint8_t n)
{
	return (struct host_key){.family = AF_UNIX, .address = {n}};
}

static void users__are_remembered_and_the_oldest_goes(void **state)
{
	struct slow_users u = {0};
	struct slow s = {.owed_ns = SLOW_SHARE_NS - 1};
	struct host_key k = user(0);

	(void)state;
	assert_false(slow_user_pays(&u, &k, &s));
	assert_int_equal(s.owed_ns, 0);
	assert_false(slow_user_is_shunned(&u, &k));
	s.owed_ns = 1;
	assert_true(slow_user_pays(&u, &k, &s));
	assert_true(slow_user_is_shunned(&u, &k));
	for (uint8_t i = 1; i < SLOW_USERS; i++) {
		clock_ahead_ns++;
		k = user(i);
		slow_user_shun(&u, &k);
	}
	k = user(0);
	assert_true(slow_user_is_shunned(&u, &k));
	k = user(100);
	slow_user_shun(&u, &k);
	assert_true(slow_user_is_shunned(&u, &k));
	k = user(0);
	assert_false(slow_user_is_shunned(&u, &k));
	k = user(1);
	assert_true(slow_user_is_shunned(&u, &k));
	clock_ahead_ns += SLOW_PENALTY_NS;
	assert_false(slow_user_is_shunned(&u, &k));
}

static int setup_untimed(void **state)
{
	slow_prepare();
	dp_test_switches.no_slow_end = true;
	return fx_setup(state);
}

#define CONTROL(f) cmocka_unit_test_setup_teardown(f, setup_untimed, slow_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOW_TEST(stranger__whose_bytes_are_slow_to_take_has_none_taken),
		SLOW_TEST(strangers__of_one_user_have_little_time_together),
		SLOW_TEST(hello__of_many_pieces_and_watchers_is_ended_by_name),
		CONTROL(control__a_hello_is_taken_whatever_that_takes),
		SLOW_TEST(session__that_makes_answers_slow_is_ended_by_name),
		CONTROL(control__a_session_may_make_answers_slow),
		SLOW_TEST(revocation__of_one_whose_bytes_are_slow_to_take_comes_in_time),
		CONTROL(control__a_revocation_waits_for_all_that_was_sent),
		SLOW_TEST(user__that_was_slow_is_not_talked_to_for_a_while),
		SLOW_TEST(tcp__session_that_makes_sending_slow_is_ended_by_name),
		CONTROL(control__a_session_over_tcp_may_make_sending_slow),
		cmocka_unit_test(calls__that_are_stopped_end_nobody),
		cmocka_unit_test(calls__that_are_slow_now_and_then_end_nobody),
		cmocka_unit_test(calls__that_are_slow_in_a_row_are_over),
		cmocka_unit_test(calls__that_take_too_much_together_are_over),
		cmocka_unit_test(users__are_remembered_and_the_oldest_goes),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
