/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swept faults of libros2 outside the exchange of requests: opening a session (every call of the
 * socket, an agent that vanishes at every byte), memory, mappings, the client's thread. What fails
 * says why, leaves no descriptor, mapping or allocation behind, and works when it is tried again; a
 * session beside it goes on.
 */
#include "common/clock.h"
#include "tests/client/rig.h"
#include "tests/sweep/sweep.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LEN 32768u
/* CHALLENGE and WELCOME: what an agent says before the first answer. */
#define GREETING (2 * WIRE_HEADER_LEN + sizeof(struct wire_challenge) + sizeof(struct wire_welcome))

/* Of the test that runs: over tcp, or over shared memory. */
static struct ros2_session_opts opts;

static int over_tcp(void **state)
{
	opts.transport = ROS2_TRANSPORT_TCP;
	return rig_setup(state);
}

static int over_shm(void **state)
{
	int rc = rig_setup(state);

	opts.transport = ROS2_TRANSPORT_SHM;
	fake_agent_offer_shm(((struct rig *)*state)->agent);
	return rc;
}

/* ---- the session beside it ---- */

static void neighbour_works(struct rig *r)
{
	static uint8_t want[LEN];
	static uint32_t seed;

	rig_pattern(want, LEN, ++seed);
	memcpy(r->buf, want, LEN);
	assert_int_equal(rig_write(r, r->buf, LEN, 0).result, LEN);
	memset(r->buf, 0, LEN);
	assert_int_equal(rig_read(r, r->buf, LEN, 0).result, LEN);
	assert_memory_equal(r->buf, want, LEN);
	assert_int_equal(r->session->reconnects, 0);
}

static void has_words(int rc, const struct ros2_err *err)
{
	assert_int_equal(rc, err->code);
	assert_true(err->status != ROS2_OK && err->msg[0]);
}

/* ---- opening ---- */

static char was[16];

static void begin(struct rig *r)
{
	rig_open(r, &opts);
	pthread_getname_np(pthread_self(), was, sizeof(was));
	pthread_setname_np(pthread_self(), "sweeper");
}

static int open_and_close(struct rig *r, struct ros2_err *err)
{
	struct ros2_session *s;
	int rc = ros2_session_open(r->client, &opts, &s, err);

	if (!rc)
		ros2_session_close(s);
	return rc;
}

/* Returns how many calls were made to fail. */
static uint32_t sweep_opening_once(struct rig *r, enum sweep_kind kind, int error, bool passes)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "sweeper"};
	unsigned fds = sweep_fds();

	s.most = passes ? 20 : 0;
	while (sweep_next(&s)) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc = open_and_close(r, &err);
		bool fired = sweep_fired();

		/* While the fault lasts, too. */
		sweep_hold();
		neighbour_works(r);
		sweep_release();
		sweep_off();
		if (rc)
			has_words(rc, &err);
		assert_int_equal(rc != 0, fired && !passes);
		assert_int_equal(open_and_close(r, &err), 0);
		assert_true(sweep_fds_back(fds));
	}
	return s.points;
}

static void sweep_opening(struct rig *r, enum sweep_kind kind, int error, bool passes)
{
	uint32_t points = 0;

	begin(r);
	/* What has come already is not waited for: on a busy machine that may be every answer. */
	for (int i = 0; i < 100 && points < 2; i++)
		points += sweep_opening_once(r, kind, error, passes);
	pthread_setname_np(pthread_self(), was);
	assert_true(points >= 2);
}

#define OPENING(name, k, e, passes)                                                                \
	static void name(void **state)                                                             \
	{                                                                                          \
		sweep_opening(*state, k, e, passes);                                               \
	}
OPENING(opening__goes_on_after_eagain_of_a_send, SWEEP_SEND, EAGAIN, true)
OPENING(opening__goes_on_after_eintr_of_a_send, SWEEP_SEND, EINTR, true)
OPENING(opening__goes_on_after_sends_of_one_byte, SWEEP_SEND, SWEEP_SHORT, true)
OPENING(opening__says_so_when_a_send_is_reset, SWEEP_SEND, ECONNRESET, false)
OPENING(opening__goes_on_after_eagain_of_a_receive, SWEEP_RECV, EAGAIN, true)
OPENING(opening__goes_on_after_eintr_of_a_receive, SWEEP_RECV, EINTR, true)
OPENING(opening__goes_on_after_receives_of_one_byte, SWEEP_RECV, SWEEP_SHORT, true)
OPENING(opening__says_so_when_a_receive_is_reset, SWEEP_RECV, ECONNRESET, false)
OPENING(opening__goes_on_after_eintr_of_a_wait, SWEEP_WAIT, EINTR, true)
OPENING(opening__says_so_when_a_wait_finds_no_memory, SWEEP_WAIT, ENOMEM, false)
OPENING(opening__says_so_without_descriptors, SWEEP_FD, EMFILE, false)
OPENING(opening__says_so_when_the_agent_refuses, SWEEP_CONNECT, ECONNREFUSED, false)
OPENING(opening__goes_on_when_the_agent_takes_no_connection_yet, SWEEP_CONNECT, EAGAIN, true)
OPENING(opening__says_so_without_ports, SWEEP_CONNECT, EADDRNOTAVAIL, false)

/* ---- an agent that vanishes ---- */

static void vanish(struct rig *r, bool reset)
{
	unsigned fds;
	int n = 0, rc;

	rig_open(r, &opts);
	fds = sweep_fds();
	do {
		struct ros2_err err = ROS2_ERR_INIT;

		WITH_AGENT(r->agent, r->agent->greet_bytes = n; r->agent->greet_reset = reset);
		rc = open_and_close(r, &err);
		if (rc) {
			has_words(rc, &err);
			/* A reset can come before the connection is looked at. */
			assert_true(err.status == ROS2_CLOSED ||
			            (reset && err.status == ROS2_UNAVAILABLE));
			assert_int_equal(open_and_close(r, &err), 0);
		}
		neighbour_works(r);
		assert_true(sweep_fds_back(fds));
	} while (rc && n++ < 10000);
	assert_int_equal(n, GREETING);
}

static void opening__says_so_wherever_the_agent_hangs_up(void **state)
{
	vanish(*state, false);
}

static void opening__says_so_wherever_the_agent_resets(void **state)
{
	vanish(*state, true);
}

/* The same on the way back: what waits is made on the attempt after it. */
static void reconnect__goes_on_wherever_the_agent_vanishes(void **state)
{
	static const int at[] = {0, 1, 63, 64, 95, 96, 97, 159, 160, 161, GREETING - 1};
	uint8_t *file = fake_agent_file(((struct rig *)*state)->agent, "f", 1u << 20);
	struct rig *r = *state;

	rig_open(r, &opts);
	rig_pattern(file, LEN, 3);
	for (size_t i = 0; i < 2 * ARRAY_SIZE(at); i++) {
		unsigned opened, before;

		WITH_AGENT(r->agent, r->agent->greet_bytes = at[i / 2];
		           r->agent->greet_reset = i % 2; before = r->agent->n_sessions_opened);
		r->session->backoff_ms = BACKOFF_FIRST_MS;
		fake_agent_reset_all(r->agent);
		memset(r->buf, 0, LEN);
		assert_int_equal(rig_read(r, r->buf, LEN, 0).result, LEN);
		assert_memory_equal(r->buf, file, LEN);
		WITH_AGENT(r->agent, opened = r->agent->n_sessions_opened);
		assert_int_equal(opened - before, 2);
	}
}

/* ---- memory ---- */

/* Control calls are answered in the caller's thread: the agent's memory is not swept. */
struct held_control {
	struct control base;
	struct control *agent;
};

static int held_call(struct control *c, const struct rpc_method *m, const ProtobufCMessage *req,
                     uint32_t timeout_ms, ProtobufCMessage **ret, struct ros2_err *err)
{
	struct control *agent = container_of(c, struct held_control, base)->agent;
	int rc;

	sweep_hold();
	rc = agent->call(agent, m, req, timeout_ms, ret, err);
	sweep_release();
	return rc;
}

static int held_wait_ready(struct control *c, uint32_t timeout_ms, struct ros2_err *err)
{
	return 0;
}

static void held_free(struct control *c)
{
	struct held_control *h = container_of(c, struct held_control, base);

	h->agent->free(h->agent);
	free(h);
}

static struct control *held_new(struct fake_agent *a)
{
	struct held_control *h;

	sweep_hold();
	h = calloc(1, sizeof(*h));
	h->base = (struct control){held_call, held_wait_ready, held_free, 0};
	h->agent = fake_control_new(a);
	sweep_release();
	return &h->base;
}

struct life {
	struct rig *r;
	int error; /* what a call may fail with */
	unsigned failed;
};

/* @rc is 0 (or a count), or the fault's own error with words. */
static bool went(struct life *l, int rc, const struct ros2_err *err)
{
	if (rc >= 0)
		return true;
	if (rc != -l->error)
		fail_msg("expected %d, found %d: %s", -l->error, rc, err->msg);
	has_words(rc, err);
	assert_true(sweep_fired());
	l->failed++;
	return false;
}

static void use_file(struct life *l, struct ros2_session *s, struct ros2_mount *m,
                     struct ros2_file *f)
{
	static uint8_t own[LEN] __attribute__((aligned(4096)));
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_region *region;
	struct ros2_stat st;
	char small[100];
	void *buf;

	if (went(l, ros2_buf_alloc(s, LEN, &buf, &err), &err)) {
		went(l, (int)ros2_pwrite(f, buf, LEN, 0, &err), &err);
		went(l, (int)ros2_pread(f, buf, LEN, 0, &err), &err);
		ros2_buf_free(s, buf);
	}
	if (went(l,
	         ros2_region_register(s, own, LEN, ROS2_REGION_READ | ROS2_REGION_WRITE, &region,
	                              &err),
	         &err)) {
		went(l, (int)ros2_pread(f, own, LEN, 0, &err), &err);
		ros2_region_deregister(region);
	}
	/* Through the library's own buffer. */
	went(l, (int)ros2_pread(f, small, sizeof(small), 0, &err), &err);
	/* Without memory for the new name the file goes on, as one without a name. */
	went(l, ros2_rename(m, "g", "h", &err), &err);
	went(l, ros2_rename(m, "h", "g", &err), &err);
	went(l, ros2_fstat(f, &st, &err), &err);
	went(l, ros2_flush(f, &err), &err);
	went(l, ros2_close(f, &err), &err);
}

static void live(struct life *l)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_client *c;
	struct ros2_session *s;
	struct ros2_mount *m;
	struct ros2_file *f;

	if (!went(l, client_new(held_new(l->r->agent), 2000, &c, &err), &err))
		return;
	if (went(l, ros2_session_open(c, &opts, &s, &err), &err)) {
		if (went(l, ros2_mount(s, "data", &m, &err), &err) &&
		    went(l, ros2_open(m, "g", ROS2_O_RDWR | ROS2_O_CREAT, 0644, &f, &err), &err))
			use_file(l, s, m, f);
		ros2_session_close(s);
	}
	ros2_disconnect(c);
}

static unsigned live_sessions(struct fake_agent *a)
{
	unsigned n = 0;

	WITH_AGENT(a, for (int i = 0; i < FAKE_SESSIONS; i++) n += a->sessions[i].live);
	return n;
}

static void sweep_life(struct rig *r, enum sweep_kind kind, int error, uint32_t points)
{
	struct sweep s = {.kind = kind, .error = error, .thread = "sweeper"};
	unsigned fds;

	fake_agent_file(r->agent, "g", LEN);
	begin(r);
	fds = sweep_fds();
	while (sweep_next(&s)) {
		struct life l = {.r = r, .error = error}, again = {.r = r};

		live(&l);
		sweep_hold();
		neighbour_works(r);
		sweep_release();
		sweep_off();
		live(&again);
		assert_int_equal(again.failed, 0);
		assert_int_equal(live_sessions(r->agent), 1);
		assert_true(sweep_fds_back(fds));
	}
	pthread_setname_np(pthread_self(), was);
	assert_true(s.points >= points);
}

static void library__without_memory_says_so_wherever_it_fails(void **state)
{
	/* client, session, its requests and send queue; mount, file and their names; three regions
	 * and the first place in their table, which grows by one each; names of two renames. */
	sweep_life(*state, SWEEP_ALLOC, ENOMEM, 30);
}

static void library__without_mappings_says_so(void **state)
{
	/* Over shared memory, of the whole: buffers are parts of it. */
	sweep_life(*state, SWEEP_MMAP, ENOMEM, opts.transport == ROS2_TRANSPORT_SHM ? 2 : 4);
}

static void library__without_a_thread_says_so(void **state)
{
	sweep_life(*state, SWEEP_THREAD, EAGAIN, 2);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, over_tcp, rig_teardown)
#define S(fn) cmocka_unit_test_setup_teardown(fn, over_shm, rig_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(opening__goes_on_after_eagain_of_a_send),
		T(opening__goes_on_after_eintr_of_a_send),
		T(opening__goes_on_after_sends_of_one_byte),
		T(opening__says_so_when_a_send_is_reset),
		T(opening__goes_on_after_eagain_of_a_receive),
		T(opening__goes_on_after_eintr_of_a_receive),
		T(opening__goes_on_after_receives_of_one_byte),
		T(opening__says_so_when_a_receive_is_reset),
		T(opening__goes_on_after_eintr_of_a_wait),
		T(opening__says_so_when_a_wait_finds_no_memory),
		T(opening__says_so_without_descriptors),
		T(opening__says_so_when_the_agent_refuses),
		T(opening__says_so_without_ports),
		T(opening__says_so_wherever_the_agent_hangs_up),
		T(opening__says_so_wherever_the_agent_resets),
		T(reconnect__goes_on_wherever_the_agent_vanishes),
		T(library__without_memory_says_so_wherever_it_fails),
		T(library__without_mappings_says_so),
		T(library__without_a_thread_says_so),
		S(opening__goes_on_after_eagain_of_a_send),
		S(opening__goes_on_after_eintr_of_a_send),
		S(opening__goes_on_after_sends_of_one_byte),
		S(opening__says_so_when_a_send_is_reset),
		S(opening__goes_on_after_eagain_of_a_receive),
		S(opening__goes_on_after_eintr_of_a_receive),
		S(opening__goes_on_after_receives_of_one_byte),
		S(opening__says_so_when_a_receive_is_reset),
		S(opening__goes_on_after_eintr_of_a_wait),
		S(opening__says_so_when_a_wait_finds_no_memory),
		S(opening__says_so_without_descriptors),
		S(opening__says_so_when_the_agent_refuses),
		S(opening__goes_on_when_the_agent_takes_no_connection_yet),
		S(opening__says_so_wherever_the_agent_hangs_up),
		S(reconnect__goes_on_wherever_the_agent_vanishes),
		S(library__without_memory_says_so_wherever_it_fails),
		S(library__without_mappings_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
