/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a turn of a reactor moves for one tenant over tcp: a part of what there is, whose sessions
 * take turns at it, and the rest in the next one. The kernel takes all that it is given here, and
 * has each payload that it is asked for: as with a peer that is as fast as memory.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/tcp_priv.h"
#include "tests/await.h"
#include "tests/dataplane/slow_fixture.h"
#include <sys/socket.h>

#define PIECE  (128u * 1024)
#define PIECES 32u /* of a session: a quarter of the slots of that size */
#define TURNS  1024u
#define MOST   (TCP_TURN_BYTES + TCP_SEND_BYTES + PIECE) /* with the last call */

static uint8_t data[PIECE];

/* ---- a kernel that is fast ---- */

static _Thread_local const struct reactor *mine; /* of this thread */
static _Atomic bool fast;
/* Of turns that moved something; guarded by lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint32_t n;
	uint64_t turn[TURNS], bytes[TURNS];
	int last_fd[TURNS];
} trace;

static void moved(int fd, size_t n)
{
	uint32_t i;

	pthread_mutex_lock(&lock);
	i = trace.n - 1;
	if (!trace.n || trace.turn[i] != mine->turn) {
		i = trace.n++;
		assert_true(i < TURNS);
		trace.turn[i] = mine->turn;
		trace.bytes[i] = 0;
	}
	trace.bytes[i] += n;
	trace.last_fd[i] = fd;
	pthread_mutex_unlock(&lock);
}

static void set_fast(bool is)
{
	pthread_mutex_lock(&lock);
	if (is)
		trace.n = 0;
	fast = is;
	pthread_mutex_unlock(&lock);
}

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	mine = r;
	return __real_admit_run(r);
}

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t n = 0;

	if (!mine || !fast)
		return __real_sendmsg(fd, m, flags);
	for (size_t i = 0; i < m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	moved(fd, n);
	return (ssize_t)n;
}

ssize_t __real_recv(int fd, void *p, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *p, size_t len, int flags)
{
	if (!mine || !fast || len <= TCP_INPUT)
		return __real_recv(fd, p, len, flags);
	moved(fd, len);
	return (ssize_t)len;
}

/* ---- tests ---- */

/* Of the fixture's tenant, on one reactor, each with a file of its own. */
static void two_ready(struct fx *fx, struct raw c[2])
{
	static const char *const names[] = {"one", "two"};
	struct raw other;

	for (int i = 0; i < 2; i++) {
		raw_open(fx, &c[i]);
		raw_connect(&c[i]);
		raw_file(&c[i], names[i]);
		c[i].key = raw_register(&c[i], FX_BASE, 1u << 20, 3);
		assert_int_equal(raw_write(&c[i], 0, data, PIECE, false), ROS2_OK);
		if (i == 0)
			raw_open(fx, &other); /* takes the other reactor */
	}
	assert_int_equal(c[0].port, c[1].port);
}

static void ask(struct raw *c, enum wire_opcode op)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		struct wire_header h = raw_header(c, op, 0, FX_BASE, PIECE);

		raw_send(c, &h, NULL, 0);
	}
}

static uint64_t most(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < trace.n; i++)
		n = MAX(n, trace.bytes[i]);
	return n;
}

/* What both read comes out of the engine together. The most that a turn gave to the kernel. */
static uint64_t read_together(struct fx *fx)
{
	struct raw c[2];

	two_ready(fx, c);
	slow_engine_shut(true);
	for (int i = 0; i < 2; i++)
		ask(&c[i], WIRE_READ);
	slow_engine_wait_held(2 * PIECES);
	set_fast(true);
	slow_engine_shut(false);
	for (int i = 0; i < 2; i++)
		assert_true(AWAIT(fx_has_read(fx, &c[i].session, PIECES)));
	set_fast(false);
	for (int i = 0; i < 2; i++)
		raw_close(&c[i]);
	return most();
}

static void turn__sends_a_bounded_part_for_a_tenant_each_session_in_its_turn(void **state)
{
	assert_in_range(read_together(*state), PIECE, MOST);
	assert_in_range(trace.n, 2 * PIECES * PIECE / MOST, 2 * PIECES);
	/* Neither is served twice in a row: but at the end, when the other has all. */
	for (uint32_t i = 1; i + 1 < trace.n; i++)
		assert_int_not_equal(trace.last_fd[i], trace.last_fd[i - 1]);
}

static void control__without_bounds_a_turn_sends_what_there_is(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_true(read_together(*state) > MOST);
}

/* The most that a turn took of payloads that have all come. */
static uint64_t write_together(struct fx *fx)
{
	static struct wire_header pulls[2][PIECES];
	struct raw c[2];

	two_ready(fx, c);
	for (int i = 0; i < 2; i++) {
		ask(&c[i], WIRE_WRITE);
		for (uint32_t k = 0; k < PIECES; k++) {
			assert_true(raw_recv(&c[i], &pulls[i][k], NULL, 0));
			assert_int_equal(pulls[i][k].opcode, WIRE_PULL);
			pulls[i][k].opcode = WIRE_DATA;
			raw_seal(&pulls[i][k], PIECE);
		}
	}
	set_fast(true);
	for (int i = 0; i < 2; i++)
		raw_send_bytes(&c[i], pulls[i], sizeof(pulls[i]));
	for (int i = 0; i < 2; i++)
		assert_true(AWAIT(fx_stats(fx, &c[i].session).write_ops == 1 + PIECES));
	set_fast(false);
	for (int i = 0; i < 2; i++)
		raw_close(&c[i]);
	return most();
}

static void turn__takes_a_bounded_part_of_what_a_tenant_writes(void **state)
{
	assert_in_range(write_together(*state), PIECE, MOST);
}

static void control__without_bounds_a_turn_takes_what_has_come(void **state)
{
	dp_test_switches.no_turn_bounds = true;
	assert_true(write_together(*state) > MOST);
}

static int setup(void **state)
{
	fx_slot_bytes = 64u << 20;
	return slow_setup(state);
}

static int teardown(void **state)
{
	fx_slot_bytes = 0;
	return slow_teardown(state);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(turn__sends_a_bounded_part_for_a_tenant_each_session_in_its_turn),
		T(control__without_bounds_a_turn_sends_what_there_is),
		T(turn__takes_a_bounded_part_of_what_a_tenant_writes),
		T(control__without_bounds_a_turn_takes_what_has_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
