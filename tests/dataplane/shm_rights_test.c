/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rights and their ends over shared memory, with what an engine behind a gate has meanwhile: one
 * that takes the tenant's memory as it is, and one for which payload goes through slots, copied
 * once and counted, a bounded part of it in a turn; how much of one tenant's memory engines have at
 * once; and the controls.
 */
#include "dataplane/reactor_priv.h"
#include "dataplane/shm_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/shm_raw.h"
#include "tests/dataplane/slow_fixture.h"

#define KIB4       4096u
#define MIB        (1u << 20)
#define LEASE_ENDS (40 * NS_PER_S) /* of the fixture's 30 s; its grant is good for 600 s */
#define GRANT_ENDS (700 * NS_PER_S)
#define LIFE_NS    (100 * NS_PER_S)

static int slots_setup(void **state)
{
	slow_prepare();
	slow_engine_ops.takes_any_memory = NULL;
	return fx_setup(state);
}
#define SLOTS_TEST(f) cmocka_unit_test_setup_teardown(f, slots_setup, slow_teardown)

/* ---- the process is stopped right after its look at the right ---- */

static _Atomic uint64_t jump_in_look_ns; /* the next time, once */

enum ros2_status __real_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns)
{
	enum ros2_status st = __real_request_may_hand_on(req, now_ns);

	if (st == ROS2_OK)
		clock_ahead_ns += atomic_exchange(&jump_in_look_ns, 0);
	return st;
}

/* ---- what a turn copies ---- */

#define PIECE  (64u << 10)
#define PIECES 8u /* of a session: two turns' worth, and all that there are slots for */
#define TURNS  64u

/* Of the reactor under test, between two of its turns: what was copied for each session. */
static struct {
	_Atomic(struct reactor *) r;
	uint64_t before[DP_SESSIONS_MAX];
	uint64_t bytes[TURNS];    /* of all */
	uint64_t sessions[TURNS]; /* bits: of whose */
	_Atomic uint32_t n;       /* turns in which something was copied */
} trace;

static void look_at_copies(struct reactor *r)
{
	uint64_t all = 0, whose = 0;

	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		/* Not copied_bytes: engines copy, too. */
		uint64_t now = r->sessions[i] ? shm_of(r->sessions[i])->moved : 0;

		if (now > trace.before[i]) {
			all += now - trace.before[i];
			whose |= 1ull << i % 64;
		}
		trace.before[i] = now;
	}
	if (!all || trace.n == TURNS)
		return;
	trace.bytes[trace.n] = all;
	trace.sessions[trace.n] = whose;
	trace.n++;
}

uint32_t __real_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r);
uint32_t __wrap_admit_run(struct reactor *r)
{
	if (trace.r == r)
		look_at_copies(r);
	return __real_admit_run(r);
}

static struct reactor *reactor_at(struct fx *fx, const char *path)
{
	for (uint32_t i = 0; i < fx->dp->n_reactors; i++)
		if (!strcmp(fx->dp->reactors[i]->shm_path, path))
			return fx->dp->reactors[i];
	fail_msg("no reactor is at %s", path);
	return NULL;
}

static void trace_begin(struct reactor *r)
{
	/* One look of its own before it counts. */
	trace.n = TURNS;
	trace.r = r;
}

static void put_pieces(struct shm_raw *t, enum wire_opcode op)
{
	struct wire_header h;

	for (uint32_t i = 0; i < PIECES; i++) {
		h = raw_header(&t->c, op, (uint64_t)i * PIECE, SHM_BASE + (uint64_t)i * PIECE,
		               PIECE);
		wire_seal(&h);
		rs_put_quietly(t, &h);
	}
	rs_tell(t);
}

static void take_pieces(struct shm_raw *t)
{
	struct wire_header h;

	for (uint32_t i = 0; i < PIECES; i++) {
		assert_true(rs_take(t, &h, NULL));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, PIECE);
	}
}

/* Two sessions of one tenant at one reactor. */
static void two_ready(struct fx *fx, struct shm_raw t[2])
{
	rs_ready(fx, &t[0]);
	rs_open_at(fx, &t[1], t[0].path);
	rs_connect(&t[1]);
	raw_file(&t[1].c, "file");
	t[1].c.key = raw_register(&t[1].c, SHM_BASE, t[1].offered, 3);
	trace_begin(reactor_at(fx, t[0].path));
	/* Something to see it begin, and to be read. */
	for (int i = 0; i < 2; i++) {
		put_pieces(&t[i], WIRE_WRITE);
		take_pieces(&t[i]);
	}
}

/* Reads of both that come out of the engine together. The most that a turn copied. */
static uint64_t read_together(struct fx *fx, struct shm_raw t[2])
{
	uint64_t most = 0;

	slow_engine_shut(true);
	for (int i = 0; i < 2; i++)
		put_pieces(&t[i], WIRE_READ);
	slow_engine_wait_held(2 * PIECES);
	trace.n = 0;
	slow_engine_shut(false);
	for (int i = 0; i < 2; i++)
		take_pieces(&t[i]);
	rs_ping(&t[0]);
	for (uint32_t i = 0; i < trace.n; i++)
		most = MAX(most, trace.bytes[i]);
	trace.r = NULL;
	return most;
}

static void turn__copies_a_bounded_part_for_a_tenant_each_session_in_its_turn(void **state)
{
	uint64_t both = 0;
	struct shm_raw t[2];

	two_ready(*state, t);
	assert_in_range(read_together(*state, t), PIECE, SHM_COPY_TURN + PIECE);
	assert_true(trace.n >= 3);
	for (uint32_t i = 0; i < trace.n; i++)
		both |= trace.sessions[i];
	assert_true(both & (both - 1));
	/* Neither has a turn for itself right after one: all but the last, when the other is done.
	 */
	for (uint32_t i = 1; i + 1 < trace.n; i++)
		assert_true((trace.sessions[i] | trace.sessions[i - 1]) == both);
	for (int i = 0; i < 2; i++)
		rs_end(&t[i]);
}

static void control__without_bounds_a_turn_copies_what_there_is(void **state)
{
	struct shm_raw t[2];

	dp_test_switches.no_turn_bounds = true;
	two_ready(*state, t);
	assert_true(read_together(*state, t) > SHM_COPY_TURN + PIECE);
	for (int i = 0; i < 2; i++)
		rs_end(&t[i]);
}

/* What is written comes in by the same measure. */
static void turn__takes_a_bounded_part_of_what_a_tenant_writes(void **state)
{
	struct shm_raw t[2];

	two_ready(*state, t);
	trace.n = 0;
	for (int k = 0; k < 4; k++) {
		put_pieces(&t[k % 2], WIRE_WRITE);
		if (k % 2)
			for (int i = 0; i < 2; i++)
				take_pieces(&t[i]);
	}
	rs_ping(&t[0]);
	assert_true(trace.n > 0);
	for (uint32_t i = 0; i < trace.n; i++)
		assert_in_range(trace.bytes[i], 1, SHM_COPY_TURN + PIECE);
	trace.r = NULL;
	for (int i = 0; i < 2; i++)
		rs_end(&t[i]);
}

/* ---- what is inside ---- */

#define READS  5u
#define WRITES 3u
#define INSIDE (READS + WRITES)

static uint32_t told(const struct shm_raw *t)
{
	return __atomic_load_n(&rs_control(t)->to_tenant.written, __ATOMIC_ACQUIRE);
}

/* The file has 'f'; reads and writes of KIB4 are in the engine, those that are read to memory that
 * has 'm'. */
static void inside(struct fx *fx, struct shm_raw *t)
{
	struct wire_header h;

	rs_ready(fx, t);
	memset(t->map + SHM_BASE, 'f', MIB);
	assert_int_equal(rs_write(t, 0, SHM_BASE, MIB), ROS2_OK);
	memset(t->map + SHM_BASE, 'm', MIB);
	slow_engine_shut(true);
	for (uint32_t i = 0; i < INSIDE; i++) {
		h = raw_header(&t->c, i < READS ? WIRE_READ : WIRE_WRITE, (uint64_t)i * KIB4,
		               SHM_BASE + (uint64_t)i * KIB4, KIB4);
		rs_put(t, &h);
	}
	slow_engine_wait_held(INSIDE);
}

static bool untouched(const struct shm_raw *t)
{
	for (uint32_t i = 0; i < MIB; i++)
		if (t->map[SHM_BASE + i] != 'm')
			return false;
	return true;
}

static void revoke_inside(struct fx *fx, enum dp_scope scope, bool slots)
{
	struct fx_revoked r;
	struct wire_header h;
	struct shm_raw t;
	uint32_t before;

	inside(fx, &t);
	assert_int_equal(fx_slots(fx), slots ? INSIDE : 0);
	before = told(&t);
	fx_revoke(fx, scope,
	          scope == DP_SCOPE_SESSION  ? &t.c.session
	          : scope == DP_SCOPE_TENANT ? &fx->tenant
	                                     : &fx->grant,
	          &r);
	assert_int_equal(r.first.status, ROS2_OK);
	assert_int_equal(r.first.revoke.sessions, 1);
	assert_int_equal(r.first.revoke.leases, 1);
	assert_int_equal(r.first.revoke.draining, INSIDE);
	rs_expect_end(&t, ROS2_REVOKED, NULL);
	/* More is put, to nobody. */
	for (uint32_t i = 0; i < 10; i++) {
		h = raw_header(&t.c, WIRE_WRITE, 0, SHM_BASE, KIB4);
		rs_put(&t, &h);
	}
	/* time: long enough for what must not happen */
	usleep(50 * 1000);
	fx_wait_calls(fx, &r, 1);
	slow_engine_wait_held(INSIDE);
	slow_engine_shut(false);
	fx_wait_calls(fx, &r, 2);
	assert_int_equal(r.last.status, ROS2_OK);
	assert_int_equal(r.last.revoke.draining, 0);
	assert_int_equal(told(&t), before);
	slow_engine_wait_held(0);
	/* What the engine had of the memory itself lands there: decision 0032. */
	assert_int_equal(untouched(&t), slots);
	fx_no_slots(fx);
	assert_int_equal(fx_lease_count(fx), 0);
	rs_close(&t);
}

static void revoke__of_a_session_drains_what_has_its_memory(void **state)
{
	revoke_inside(*state, DP_SCOPE_SESSION, false);
}

static void revoke__of_a_tenant_drains_what_has_its_memory(void **state)
{
	revoke_inside(*state, DP_SCOPE_TENANT, false);
}

static void revoke__of_a_grant_drains_what_has_its_memory(void **state)
{
	revoke_inside(*state, DP_SCOPE_GRANT, false);
}

static void revoke__of_a_session_hands_on_nothing_of_slots(void **state)
{
	revoke_inside(*state, DP_SCOPE_SESSION, true);
}

static void revoke__of_a_tenant_hands_on_nothing_of_slots(void **state)
{
	revoke_inside(*state, DP_SCOPE_TENANT, true);
}

static void revoke__of_a_grant_hands_on_nothing_of_slots(void **state)
{
	revoke_inside(*state, DP_SCOPE_GRANT, true);
}

/* ---- ends by time, while something is inside ---- */

/* What the answers say, of all the same; 0 when nothing is answered. */
static enum ros2_status answers(struct shm_raw *t)
{
	enum ros2_status st = ROS2_CLOSED;
	struct wire_header h;

	for (uint32_t i = 0; i < INSIDE && rs_take(t, &h, NULL); i++) {
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.length, h.status == ROS2_OK ? KIB4 : 0);
		assert_true(i == 0 || h.status == st);
		st = h.status;
	}
	return st;
}

/* The lease ends while reads and writes are inside. */
static enum ros2_status expire_inside(struct fx *fx, struct shm_raw *t)
{
	enum ros2_status st;

	inside(fx, t);
	clock_ahead_ns += LEASE_ENDS;
	slow_engine_shut(false);
	st = answers(t);
	assert_int_equal(fx_stats(fx, &t->c.session).violations, 0);
	return st;
}

static void lease__that_expires_while_requests_are_inside_is_named(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	assert_int_equal(expire_inside(fx, &t), ROS2_LEASE_EXPIRED);
	assert_true(untouched(&t));
	/* The session goes on, with a new one. */
	t.c.key = raw_register(&t.c, SHM_BASE, t.offered, 3);
	assert_int_equal(rs_read(&t, READS * KIB4, SHM_BASE, KIB4), ROS2_OK);
	assert_int_equal(t.map[SHM_BASE], 'f');
	fx_no_slots(fx);
	rs_end(&t);
}

static void control__without_the_deadline_recheck_all_is_handed_on(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_deadline_recheck = true;
	assert_int_equal(expire_inside(*state, &t), ROS2_OK);
	assert_false(untouched(&t));
	rs_end(&t);
}

static enum ros2_status lose_contact_inside(struct fx *fx, struct shm_raw *t)
{
	fx->limits.lease_ttl_ms = 5 * LIFE_NS / NS_PER_MS;
	fx_limits(fx);
	inside(fx, t);
	fx->limits.contact_limit_ms = LIFE_NS / NS_PER_MS;
	fx_contact(fx, clock_boottime_ns());
	fx_limits(fx);
	clock_ahead_ns += LIFE_NS;
	if (!dp_test_switches.no_contact_check)
		assert_int_equal(fx_ended(fx, &t->c.session).status, ROS2_CONTACT_LOST);
	slow_engine_shut(false);
	return answers(t);
}

static void contact__that_is_lost_ends_the_session_and_nothing_is_answered(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	assert_int_equal(lose_contact_inside(fx, &t), ROS2_CLOSED);
	rs_end(&t);
	slow_engine_wait_held(0);
	fx_no_slots(fx);
	assert_int_equal(fx_lease_count(fx), 0);
}

static void control__without_the_contact_check_all_is_answered(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_contact_check = true;
	assert_int_equal(lose_contact_inside(*state, &t), ROS2_OK);
	rs_end(&t);
}

static void grant__that_ends_ends_the_session_and_nothing_is_answered(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	inside(fx, &t);
	clock_ahead_ns += GRANT_ENDS;
	assert_int_equal(fx_ended(fx, &t.c.session).status, ROS2_GRANT_EXPIRED);
	slow_engine_shut(false);
	assert_int_equal(answers(&t), ROS2_CLOSED);
	rs_end(&t);
}

/* ---- payload that goes through slots ---- */

/* Of this process for a write and for a read of MIB. */
static void copied(struct fx *fx, uint64_t *ret_write, uint64_t *ret_read)
{
	uint64_t before, between;
	struct shm_raw t;

	rs_ready(fx, &t);
	memset(t.map + SHM_BASE, 'c', MIB);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, MIB), ROS2_OK);
	before = fx_stats(fx, &t.c.session).copied_bytes;
	assert_int_equal(rs_write(&t, 0, SHM_BASE, MIB), ROS2_OK);
	between = fx_stats(fx, &t.c.session).copied_bytes;
	memset(t.map + SHM_BASE, 0, 2 * MIB);
	assert_int_equal(rs_read(&t, 1, SHM_BASE + 7, MIB - 1), ROS2_OK);
	*ret_read = fx_stats(fx, &t.c.session).copied_bytes - between;
	*ret_write = between - before;
	assert_int_equal(t.map[SHM_BASE + 6], 0);
	for (uint32_t i = 7; i < MIB + 6; i++)
		assert_int_equal(t.map[SHM_BASE + i], 'c');
	assert_int_equal(t.map[SHM_BASE + MIB + 6], 0);
	fx_no_slots(fx);
	rs_end(&t);
}

/* The engine is mem: what it stores, and gives, is a copy in any case. */
static void payload__through_slots_is_copied_once_more_and_counted(void **state)
{
	uint64_t w, r;

	copied(*state, &w, &r);
	assert_int_equal(w, 2 * MIB);
	assert_int_equal(r, 2 * (MIB - 1));
}

static void control__payload_that_needs_no_slot_is_not(void **state)
{
	uint64_t w, r;

	copied(*state, &w, &r);
	assert_int_equal(w, MIB);
	assert_int_equal(r, MIB - 1);
}

/* More than the slots of all: some wait, all are answered. */
static void payload__through_slots_waits_for_them(void **state)
{
	struct wire_header h;
	struct shm_raw t;

	rs_ready(*state, &t);
	for (uint32_t i = 0; i < 120; i++) {
		h = raw_header(&t.c, i % 2 ? WIRE_READ : WIRE_WRITE, 0,
		               SHM_BASE + (uint64_t)(i % 4) * MIB, MIB);
		rs_put(&t, &h);
	}
	for (uint32_t i = 0; i < 120; i++) {
		assert_true(rs_take(&t, &h, NULL));
		assert_int_equal(h.status, ROS2_OK);
	}
	fx_no_slots(*state);
	rs_end(&t);
}

/* The right ends right after it was looked at, before the copy. Returns the status. */
static enum ros2_status stopped_in_look(struct fx *fx, struct shm_raw *t, enum wire_opcode op,
                                        uint64_t ns)
{
	enum ros2_status st;

	rs_ready(fx, t);
	memset(t->map + SHM_BASE, 'f', MIB);
	assert_int_equal(rs_write(t, 0, SHM_BASE, MIB), ROS2_OK);
	memset(t->map + SHM_BASE, 'm', MIB);
	jump_in_look_ns = ns;
	st = rs_do(t, op, 0, SHM_BASE, KIB4, NULL);
	assert_int_equal(jump_in_look_ns, 0);
	return st;
}

static void read__of_an_agent_stopped_past_the_lease_is_not_handed_on(void **state)
{
	struct shm_raw t;

	assert_int_equal(stopped_in_look(*state, &t, WIRE_READ, LEASE_ENDS), ROS2_LEASE_EXPIRED);
	assert_true(untouched(&t));
	rs_end(&t);
}

static void read__of_an_agent_stopped_past_the_grant_is_not_handed_on(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;

	assert_int_equal(stopped_in_look(fx, &t, WIRE_READ, GRANT_ENDS), ROS2_CLOSED);
	assert_true(untouched(&t));
	rs_expect_end(&t, ROS2_GRANT_EXPIRED, NULL);
	rs_end(&t);
}

static void write__of_an_agent_stopped_past_the_lease_is_not_taken(void **state)
{
	struct fx *fx = *state;
	struct shm_raw t;
	uint64_t before;

	rs_ready(fx, &t);
	assert_int_equal(rs_write(&t, 0, SHM_BASE, KIB4), ROS2_OK);
	before = fx_stats(fx, &t.c.session).copied_bytes;
	jump_in_look_ns = LEASE_ENDS;
	assert_int_equal(rs_write(&t, 0, SHM_BASE, KIB4), ROS2_LEASE_EXPIRED);
	assert_int_equal(fx_stats(fx, &t.c.session).copied_bytes, before);
	rs_end(&t);
}

static void control__without_the_last_look_it_is_handed_on(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_last_look = true;
	assert_int_equal(stopped_in_look(*state, &t, WIRE_READ, LEASE_ENDS), ROS2_OK);
	assert_false(untouched(&t));
	rs_end(&t);
}

/* ---- how much engines have of one tenant ---- */

#define MOST  (REACTOR_BORROWED_MAX / WIRE_IO_MAX)
#define ASKED 40u

static void ask(struct shm_raw *t, uint32_t n)
{
	struct wire_header h;

	for (uint32_t i = 0; i < n; i++) {
		h = raw_header(&t->c, i % 2 ? WIRE_READ : WIRE_WRITE, 0,
		               SHM_BASE + (uint64_t)(i % 8) * MIB, MIB);
		rs_put(t, &h);
	}
}

struct greedy {
	struct shm_raw n, t[2];
};

static void greedy_begin(struct fx *fx, struct greedy *g)
{
	rs_neighbour(fx, &g->n);
	fx->limits.registered_bytes = 64 * MIB;
	for (int i = 0; i < 2; i++) {
		rs_open_at(fx, &g->t[i], g->n.path);
		rs_connect(&g->t[i]);
		raw_file(&g->t[i].c, "file");
		g->t[i].c.key = raw_register(&g->t[i].c, SHM_BASE, g->t[i].offered, 3);
	}
	assert_int_equal(rs_write(&g->t[0], 0, SHM_BASE, MIB), ROS2_OK);
	slow_engine_shut(true);
	ask(&g->t[0], ASKED);
	ask(&g->t[1], ASKED);
}

static void greedy_end(struct greedy *g)
{
	struct wire_header h;

	slow_engine_shut(false);
	for (uint32_t i = 0; i < 2 * ASKED; i++) {
		assert_true(rs_take(&g->t[i % 2], &h, NULL));
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, MIB);
	}
	rs_end(&g->t[0]);
	rs_end(&g->t[1]);
	rs_end(&g->n);
}

static void engines__have_a_bounded_part_of_a_tenants_memory_at_once(void **state)
{
	struct wire_header h;
	struct greedy g;

	greedy_begin(*state, &g);
	slow_engine_wait_held(MOST);
	/* time: long enough for what must not happen */
	usleep(50 * 1000);
	slow_engine_wait_held(MOST);
	h = raw_header(&g.n.c, WIRE_READ, 0, SHM_BASE, MIB);
	rs_put(&g.n, &h);
	slow_engine_wait_held(MOST + 1);
	slow_engine_shut(false);
	assert_true(rs_take(&g.n, &h, NULL));
	assert_int_equal(h.status, ROS2_OK);
	greedy_end(&g);
}

static void control__without_the_bound_they_have_all_that_is_asked(void **state)
{
	struct greedy g;

	dp_test_switches.no_borrowed_bound = true;
	greedy_begin(*state, &g);
	slow_engine_wait_held(2 * ASKED);
	greedy_end(&g);
}

/* ---- the proof ---- */

static void control__without_the_proof_anybody_is_welcome(void **state)
{
	struct shm_raw t;

	dp_test_switches.no_proof = true;
	rs_open_session(*state, &t);
	t.c.secret[0] ^= 1;
	rs_connect(&t);
	rs_ping(&t);
	rs_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SLOTS_TEST(turn__copies_a_bounded_part_for_a_tenant_each_session_in_its_turn),
		SLOTS_TEST(turn__takes_a_bounded_part_of_what_a_tenant_writes),
		SLOTS_TEST(control__without_bounds_a_turn_copies_what_there_is),
		SLOW_TEST(revoke__of_a_session_drains_what_has_its_memory),
		SLOW_TEST(revoke__of_a_tenant_drains_what_has_its_memory),
		SLOW_TEST(revoke__of_a_grant_drains_what_has_its_memory),
		SLOTS_TEST(revoke__of_a_session_hands_on_nothing_of_slots),
		SLOTS_TEST(revoke__of_a_tenant_hands_on_nothing_of_slots),
		SLOTS_TEST(revoke__of_a_grant_hands_on_nothing_of_slots),
		SLOW_TEST(lease__that_expires_while_requests_are_inside_is_named),
		SLOTS_TEST(lease__that_expires_while_requests_are_inside_is_named),
		SLOW_TEST(control__without_the_deadline_recheck_all_is_handed_on),
		SLOTS_TEST(control__without_the_deadline_recheck_all_is_handed_on),
		SLOW_TEST(contact__that_is_lost_ends_the_session_and_nothing_is_answered),
		SLOTS_TEST(contact__that_is_lost_ends_the_session_and_nothing_is_answered),
		SLOW_TEST(control__without_the_contact_check_all_is_answered),
		SLOTS_TEST(control__without_the_contact_check_all_is_answered),
		SLOW_TEST(grant__that_ends_ends_the_session_and_nothing_is_answered),
		SLOTS_TEST(grant__that_ends_ends_the_session_and_nothing_is_answered),
		SLOTS_TEST(payload__through_slots_is_copied_once_more_and_counted),
		SLOW_TEST(control__payload_that_needs_no_slot_is_not),
		SLOTS_TEST(payload__through_slots_waits_for_them),
		SLOTS_TEST(read__of_an_agent_stopped_past_the_lease_is_not_handed_on),
		SLOTS_TEST(read__of_an_agent_stopped_past_the_grant_is_not_handed_on),
		SLOTS_TEST(write__of_an_agent_stopped_past_the_lease_is_not_taken),
		SLOTS_TEST(control__without_the_last_look_it_is_handed_on),
		SLOW_TEST(engines__have_a_bounded_part_of_a_tenants_memory_at_once),
		SLOW_TEST(control__without_the_bound_they_have_all_that_is_asked),
		SLOW_TEST(control__without_the_proof_anybody_is_welcome),
	};

	fx_shm = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
