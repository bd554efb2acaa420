/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to the sockets of the shm transport that have proved nothing, or another thing than
 * they should: their caps, of a user and in all, their time, and HELLO.
 */
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/shm_raw.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- connections that have proved nothing ---- */

static int socket_of(struct fx *fx, uint32_t reactor)
{
	char path[320];

	snprintf(path, sizeof(path), "%s/reactor%u.sock", fx->shm_dir, reactor);
	return rs_connect_path(path);
}

static void expect_challenge(int fd)
{
	uint8_t challenge[WIRE_HEADER_LEN + WIRE_NONCE_LEN];

	assert_int_equal(recv(fd, challenge, sizeof(challenge), MSG_WAITALL), sizeof(challenge));
}

static void expect_farewell(int fd, enum ros2_status status, const char *words)
{
	struct raw c = {.fd = fd};
	char said[WIRE_WORDS_MAX + 1] = "";
	struct wire_header h;

	expect_challenge(fd);
	assert_true(raw_recv(&c, &h, said, WIRE_WORDS_MAX));
	assert_int_equal(h.opcode, WIRE_NAK);
	assert_int_equal(h.status, status);
	if (!strstr(said, words))
		fail_msg("expected \"%s\", found \"%s\"", words, said);
	raw_expect_end(&c);
}

static int setup_two_per_user(void **state)
{
	int rc;

	fx_unproved_per_address = 2;
	rc = fx_setup(state);
	fx_unproved_per_address = 0;
	return rc;
}

/* As another user, if we may be one: a thread's own id, as the kernel has it. */
static void be_user(uid_t uid)
{
	syscall(SYS_setresuid, -1, uid, -1);
}

static void unproved__of_a_user_have_their_own_cap(void **state)
{
	struct fx *fx = *state;
	struct dp_event ev;
	int own[3], other = -1;
	char who[32];
	struct shm_raw t;

	rs_open_session(fx, &t);
	if (geteuid() == 0) {
		assert_int_equal(chmod(fx->base, 0755), 0);
		be_user(4242);
		other = socket_of(fx, 0);
		be_user(0);
	} else {
		print_message("# not root: without a second user\n");
	}
	for (int i = 0; i < 3; i++)
		own[i] = socket_of(fx, 0);
	expect_farewell(own[0], ROS2_LIMIT, "--unproved-connections");
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT);
	snprintf(who, sizeof(who), "uid %u, pid %d", geteuid(), getpid());
	assert_non_null(strstr(ev.words, who));
	if (other >= 0) {
		uint8_t byte;

		expect_challenge(other);
		assert_true(recv(other, &byte, 1, MSG_DONTWAIT) < 0);
		close(other);
	}
	for (int i = 0; i < 3; i++)
		close(own[i]);
	rs_connect(&t);
	rs_ping(&t);
	rs_end(&t);
}

/* A container with a user namespace may be each of its ids in turn: it is one all the same. */
static void unproved__of_all_ids_of_a_container_share_a_cap(void **state)
{
	static const uid_t ids[] = {3 * 65536, 4 * 65536, 3 * 65536 + 1, 4 * 65536 - 1};
	struct fx *fx = *state;
	uint8_t byte;
	int fd[4];

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(fx->base, 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		be_user(ids[i]);
		fd[i] = socket_of(fx, 0);
		be_user(0);
	}
	expect_farewell(fd[0], ROS2_LIMIT, "--unproved-connections");
	for (size_t i = 1; i < ARRAY_SIZE(ids); i++) {
		expect_challenge(fd[i]);
		assert_true(recv(fd[i], &byte, 1, MSG_DONTWAIT) < 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		close(fd[i]);
}

static void unproved__share_a_cap_in_all(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;
	int idle[65];

	rs_open_session(fx, &t);
	for (int i = 0; i < 65; i++)
		idle[i] = socket_of(fx, 0);
	expect_farewell(idle[0], ROS2_LIMIT, "--unproved-connections");
	for (int i = 1; i < 65; i++)
		expect_challenge(idle[i]);
	/* Who is quick is not kept out. */
	rs_connect(&t);
	rs_ping(&t);
	for (int i = 0; i < 65; i++)
		close(idle[i]);
	rs_end(&t);
}

/* ---- users that really are others: processes of theirs ---- */

#define USER_MOST 96u

struct user {
	pid_t pid;
	int orders[2], answers[2]; /* pipes */
};

/* As far as the CHALLENGE: then all that the agent did for this connection's place is done. */
static int connect_challenged(const char *path)
{
	uint8_t challenge[WIRE_HEADER_LEN + WIRE_NONCE_LEN];
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(at.sun_path, path, MIN(strlen(path), sizeof(at.sun_path) - 1));
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    recv(fd, challenge, sizeof(challenge), MSG_WAITALL) != (ssize_t)sizeof(challenge))
		_exit(2);
	return fd;
}

static bool is_over(int fd)
{
	uint8_t bytes[512];
	ssize_t n;

	do
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	while (n > 0);
	return n == 0 || errno != EAGAIN;
}

/* An order is how many connections more; 0: how many are over? */
static void user_main(const struct user *u, const char *path, uid_t uid)
{
	int fd[USER_MOST];
	uint32_t n = 0;
	uint8_t order;

	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		_exit(1);
	while (read(u->orders[0], &order, 1) == 1) {
		uint8_t answer = 0;

		for (uint32_t i = 0; !order && i < n; i++)
			answer += is_over(fd[i]);
		for (; order && n < USER_MOST; order--)
			fd[n++] = connect_challenged(path);
		if (write(u->answers[1], &answer, 1) != 1)
			_exit(3);
	}
	_exit(0);
}

static void user_start(struct user *u, const char *path, uid_t uid)
{
	assert_int_equal(pipe2(u->orders, O_CLOEXEC) | pipe2(u->answers, O_CLOEXEC), 0);
	u->pid = fork();
	assert_true(u->pid >= 0);
	if (!u->pid)
		user_main(u, path, uid);
	close(u->orders[0]);
	close(u->answers[1]);
}

static uint32_t user_does(struct user *u, uint8_t order)
{
	uint8_t answer;

	assert_int_equal(write(u->orders[1], &order, 1), 1);
	assert_int_equal(read(u->answers[0], &answer, 1), 1);
	return answer;
}

static void user_end(struct user *u)
{
	kill(u->pid, SIGKILL);
	assert_int_equal(waitpid(u->pid, NULL, 0), u->pid);
	close(u->orders[1]);
	close(u->answers[0]);
}

static void unproved__of_a_user_cost_another_user_none(void **state)
{
	struct fx *fx = *state;
	struct user many, few;
	struct dp_event ev;
	char path[320];
	struct shm_raw t;

	if (geteuid() != 0) {
		print_message("# not root: nobody else to be\n");
		skip();
	}
	rs_open_session(fx, &t);
	snprintf(path, sizeof(path), "%s/reactor0.sock", fx->shm_dir);
	assert_int_equal(chmod(fx->base, 0755), 0);
	user_start(&many, path, 4242);
	user_start(&few, path, 4343);
	/* All places are taken; then they go from the one who has most to the other. */
	assert_int_equal(user_does(&many, 64), 0);
	assert_int_equal(user_does(&many, 0), 0);
	assert_int_equal(user_does(&few, 8), 0);
	assert_int_equal(user_does(&many, 0), 8);
	ev = fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_LIMIT);
	assert_non_null(strstr(ev.words, "uid 4242, pid"));
	/* Who has most pays for its own next ones, too. */
	user_does(&many, 8);
	assert_int_equal(user_does(&many, 0), 16);
	assert_int_equal(user_does(&few, 0), 0);
	/* A third is served beside them. */
	rs_connect(&t);
	rs_ping(&t);
	assert_int_equal(user_does(&few, 0), 0);
	user_end(&few);
	user_end(&many);
	rs_end(&t);
}

static void unproved__have_ten_seconds(void **state)
{
	struct fx *fx = *state;
	int fd = socket_of(fx, 1);
	uint8_t challenge[WIRE_HEADER_LEN + WIRE_NONCE_LEN];

	assert_int_equal(recv(fd, challenge, sizeof(challenge), MSG_PEEK | MSG_WAITALL),
	                 sizeof(challenge));
	clock_ahead_ns += 11 * NS_PER_S;
	expect_farewell(fd, ROS2_TIMEOUT, "no HELLO");
	fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_TIMEOUT);
	close(fd);
}

/* What comes after the CHALLENGE on @fd, when the one who knows @c's secret says HELLO there. */
static void expect_unauthenticated(struct raw *c, int fd, uint8_t spoil)
{
	uint8_t nonce[WIRE_NONCE_LEN];
	char words[WIRE_WORDS_MAX];
	struct wire_hello hello;
	struct wire_header h;

	c->fd = fd;
	assert_true(raw_recv(c, &h, nonce, sizeof(nonce)));
	raw_hello(c, nonce, &hello);
	hello.proof[31] ^= spoil;
	h = (struct wire_header){.opcode = WIRE_HELLO};
	raw_send(c, &h, &hello, sizeof(hello));
	assert_true(raw_recv(c, &h, words, sizeof(words)));
	assert_int_equal(h.opcode, WIRE_NAK);
	assert_int_equal(h.status, ROS2_UNAUTHENTICATED);
	raw_expect_end(c);
	raw_close(c);
}

static void hello__with_a_wrong_proof_is_refused_and_does_not_use_the_secret_up(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	rs_open_session(fx, &t);
	expect_unauthenticated(&t.c, rs_connect_path(t.path), 1);
	fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
	rs_connect(&t);
	rs_ping(&t);
	/* But one that was welcome does. */
	{
		struct raw again = t.c;

		expect_unauthenticated(&again, rs_connect_path(t.path), 0);
	}
	rs_ping(&t);
	rs_end(&t);
}

static void hello__of_a_session_over_another_transport_is_refused(void **state)
{
	struct fx *fx = *state;
	struct raw c[2];
	struct shm_raw t;

	rs_open_session(fx, &t);
	for (uint32_t i = 0; i < 2; i++)
		raw_open(fx, &c[i]);
	/* One at each reactor. */
	assert_int_not_equal(c[0].port, c[1].port);
	for (uint32_t i = 0; i < 2; i++) {
		expect_unauthenticated(&t.c, raw_connect_port(c[i].port), 0);
		expect_unauthenticated(&c[i], socket_of(fx, 0), 0);
		expect_unauthenticated(&c[i], socket_of(fx, 1), 0);
	}
	for (uint32_t i = 0; i < 2; i++) {
		raw_connect(&c[i]);
		raw_close(&c[i]);
	}
	rs_connect(&t);
	rs_ping(&t);
	rs_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(unproved__of_all_ids_of_a_container_share_a_cap,
	                                        setup_two_per_user, fx_teardown),
		cmocka_unit_test_setup_teardown(unproved__of_a_user_have_their_own_cap,
	                                        setup_two_per_user, fx_teardown),
		FX_TEST(unproved__share_a_cap_in_all),
		FX_TEST(unproved__of_a_user_cost_another_user_none),
		FX_TEST(unproved__have_ten_seconds),
		FX_TEST(hello__with_a_wrong_proof_is_refused_and_does_not_use_the_secret_up),
		FX_TEST(hello__of_a_session_over_another_transport_is_refused),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
