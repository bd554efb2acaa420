/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer over verbs may not do, tried by one that is no library: it has the faces of the
 * device and wire.h, and posts what it likes. Each attack is refused and told, and the victim's
 * memory and connection are as before.
 */
#include "tests/verbs/peer.h"
#include "common/crypto.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include "tests/clock_ahead.h"
#include "tests/dataplane/slow_engine.h"
#include <arpa/inet.h>
#include <poll.h>

static struct wire_header ask_for(struct peer *p, struct wire_header h)
{
	peer_send(p, h, NULL);
	return peer_recv(p);
}

static void works(struct peer *p)
{
	struct wire_header h;

	memset(p->target, 0x5a, 100000);
	h = ask_for(p, peer_request(p, WIRE_WRITE, 0, 100000));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	memset(p->target, 0, 100000);
	h = ask_for(p, peer_request(p, WIRE_READ, 0, 100000));
	assert_int_equal(h.status, ROS2_OK);
	assert_int_equal(h.length, 100000);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(p->target[i], 0x5a);
}

static void expect_nak(struct peer *p, struct wire_header h, enum ros2_status want)
{
	struct wire_header got = ask_for(p, h);

	assert_int_equal(got.opcode, WIRE_NAK);
	assert_int_equal(got.status, want);
	fx_event(p->fx, DP_EVENT_VIOLATION, (int)want);
}

/* Told as what the device said, and as no more. */
static void ended_by_refusal(struct fx *fx, const char *op, uint64_t violations)
{
	struct dp_event ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	char words[64];

	snprintf(words, sizeof(words), "the tenant's device refused %s (", op);
	assert_non_null(strstr(ev.words, words));
	assert_non_null(strstr(ev.words, "its window is gone"));
	assert_int_equal(ev.stats.violations, violations);
}

/* ---- before the proof ---- */

static void ask__without_the_sessions_proof_gets_no_memory_and_no_queue_pair(void **state)
{
	struct fabric_mem_counts before, after;
	struct fx *fx = *state;

	for (int how = 0; how < 3; how++) {
		struct peer p;

		peer_device(fx, &p);
		peer_session(&p, &fx->tenant, &fx->grant);
		p.bad_proof = how == 0;
		p.other_qpn = how == 1;
		if (how == 2)
			p.session = ros2_uid_new();
		fabric_mem_counts(&before);
		peer_ask(&p);
		fabric_mem_counts(&after);
		assert_false(p.established);
		assert_int_equal(p.refused, ROS2_UNAUTHENTICATED);
		assert_int_equal(after.qps, before.qps + 1); /* its own */
		assert_int_equal(after.regions, before.regions);
		assert_int_equal(after.sets, before.sets);
		fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
		peer_close(&p);
	}
}

static void ask__is_good_for_one_connection(void **state)
{
	struct fx *fx = *state;
	struct peer p, again;

	peer_ready(fx, &p);
	peer_device(fx, &again);
	again.session = p.session;
	again.port = p.port;
	memcpy(again.secret, p.secret, sizeof(p.secret));
	peer_ask(&again);
	assert_int_equal(again.refused, ROS2_UNAUTHENTICATED);
	works(&p);
	peer_close(&again);
	peer_close(&p);
}

static void first_message__that_is_no_proof_ends_the_session(void **state)
{
	struct fx *fx = *state;

	for (int how = 0; how < 3; how++) {
		struct peer p;

		peer_device(fx, &p);
		peer_session(&p, &fx->tenant, &fx->grant);
		peer_ask(&p);
		assert_true(p.established);
		p.secret[0] ^= how == 0;
		if (how == 0)
			peer_hello(&p);
		else if (how == 1)
			peer_send(&p, peer_request(&p, WIRE_READ, 0, 100), NULL);
		else
			peer_send_bytes(&p, 20);
		assert_int_equal(peer_recv(&p).opcode, 0);
		fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_UNAUTHENTICATED);
		peer_close(&p);
	}
}

/* ---- windows ---- */

static void request__under_a_key_without_a_window_is_a_violation(void **state)
{
	struct fx *fx = *state;
	struct peer p;

	peer_connect(fx, &p, &fx->tenant, &fx->grant);
	peer_lease(&p, PEER_MEMORY, 3);
	expect_nak(&p, peer_request(&p, WIRE_READ, 0, 4096), ROS2_BAD_KEY);
	expect_nak(&p, peer_request(&p, WIRE_WRITE, 0, 4096), ROS2_BAD_KEY);
	peer_bind(&p);
	peer_send(&p, peer_window(&p), NULL);
	works(&p);
	peer_close(&p);
}

static void window__must_be_what_was_registered(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct peer p;

	peer_connect(fx, &p, &fx->tenant, &fx->grant);
	peer_lease(&p, PEER_MEMORY, 3);
	peer_bind(&p);
	h = peer_window(&p);
	h.generation++;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = peer_window(&p);
	h.address += 4096;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = peer_window(&p);
	h.offset = (uint64_t)PEER_MEMORY * 2;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = peer_window(&p);
	h.handle |= 1ull << 32;
	expect_nak(&p, h, ROS2_INVALID);
	h = peer_window(&p);
	h.key ^= 0x10000;
	expect_nak(&p, h, ROS2_BAD_KEY);
	peer_send(&p, peer_window(&p), NULL);
	works(&p);
	peer_close(&p);
}

static void window__of_another_tenant_is_of_no_use(void **state)
{
	struct ros2_uid b_tenant = ros2_uid_new(), b_grant = ros2_uid_new();
	struct fx *fx = *state;
	struct wire_header h;
	struct peer a, b;

	fx_tenant(fx, &b_tenant);
	assert_int_equal(fx_grant(fx, &b_grant, &b_tenant, UINT64_MAX), 0);
	peer_ready(fx, &a);
	peer_connect(fx, &b, &b_tenant, &b_grant);
	peer_lease(&b, PEER_MEMORY, 3);
	/* A's key on B's connection; B's own lease with A's window: the device says no. */
	h = peer_window(&a);
	expect_nak(&b, h, ROS2_BAD_KEY);
	h = peer_request(&b, WIRE_READ, 0, 4096);
	h.key = a.key;
	h.address = (uintptr_t)a.target;
	expect_nak(&b, h, ROS2_BAD_KEY);
	h = peer_request(&b, WIRE_READ, 0, 4096);
	h.handle = a.handle;
	expect_nak(&b, h, ROS2_BAD_HANDLE);
	b.window_key = a.window_key;
	peer_send(&b, peer_window(&b), NULL);
	h = ask_for(&b, peer_request(&b, WIRE_WRITE, 0, 100000));
	assert_int_equal(h.opcode, 0);
	ended_by_refusal(fx, "read", 3);
	works(&a);
	peer_close(&b);
	peer_close(&a);
}

static void no_receipt(void *arg, const struct fabric_receipt *r)
{
}

static void window__that_has_gone_ends_the_session_by_name(void **state)
{
	struct fx *fx = *state;
	struct peer p;

	peer_ready(fx, &p);
	works(&p);
	assert_int_equal(fabric_window_revoke(p.window, 0, no_receipt, NULL), 0);
	fabric_qp_flush(p.qp, 0);
	assert_int_equal(ask_for(&p, peer_request(&p, WIRE_READ, 0, 100)).opcode, 0);
	ended_by_refusal(fx, "write", 0);
	peer_close(&p);
}

/* ---- answers that nobody has sent, and those that a tenant's device sends ---- */

static const struct forged {
	uint32_t length;
	enum wire_opcode ask; /* READ: the agent writes into the window; WRITE: it reads */
	enum fabric_op op;
	enum fabric_end end;
	enum ros2_status why;
} forgeries[] = {
	{0, WIRE_PING, FABRIC_OP_SEND, FABRIC_END_REMOTE_ACCESS, ROS2_CLOSED},
	{0, WIRE_PING, FABRIC_OP_SEND, FABRIC_END_REMOTE_OTHER, ROS2_CLOSED},
	{0, WIRE_PING, FABRIC_OP_SEND, FABRIC_END_NO_ANSWER, ROS2_CLOSED},
	{0, WIRE_PING, FABRIC_OP_SEND, FABRIC_END_NO_RECEIVE, ROS2_PROTOCOL},
	{4096, WIRE_READ, FABRIC_OP_WRITE, FABRIC_END_REMOTE_ACCESS, ROS2_PROTOCOL},
	{4096, WIRE_READ, FABRIC_OP_WRITE, FABRIC_END_REMOTE_OTHER, ROS2_CLOSED},
	{4096, WIRE_READ, FABRIC_OP_WRITE, FABRIC_END_NO_ANSWER, ROS2_CLOSED},
	{65536, WIRE_WRITE, FABRIC_OP_READ, FABRIC_END_REMOTE_ACCESS, ROS2_PROTOCOL},
	{65536, WIRE_WRITE, FABRIC_OP_READ, FABRIC_END_REMOTE_OTHER, ROS2_CLOSED},
	{65536, WIRE_WRITE, FABRIC_OP_READ, FABRIC_END_NO_ANSWER, ROS2_CLOSED},
};

static void forget_events(struct fx *fx)
{
	pthread_mutex_lock(&fx->lock);
	fx->n_events = 0;
	pthread_mutex_unlock(&fx->lock);
}

/* The policy ends a session at its first violation. */
static void strict(struct fx *fx)
{
	fx->limits.violations_limit = 1;
	fx->limits.violations_kill = true;
	fx_limits(fx);
}

/* An answer to the agent in the name of a tenant that did nothing; how its session ended. */
static struct dp_event forge_answer(struct fx *fx, const struct forged *f)
{
	struct wire_header h = {.opcode = WIRE_PING};
	struct dp_event ev;
	struct peer p;

	peer_ready(fx, &p);
	works(&p);
	forget_events(fx);
	fabric_mem_forge(p.qp, f->op, f->end);
	if (f->length)
		h = peer_request(&p, f->ask, 0, f->length);
	assert_int_equal(ask_for(&p, h).opcode, 0);
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, -1);
	assert_non_null(strstr(ev.words, "reports no event"));
	peer_close(&p);
	return ev;
}

static void forged_answer__ends_its_connection_and_is_nobodys_violation(void **state)
{
	struct fx *fx = *state;
	struct peer other;

	strict(fx);
	peer_ready(fx, &other); /* of the same tenant */
	for (uint32_t i = 0; i < ARRAY_SIZE(forgeries); i++) {
		const struct forged *f = &forgeries[i];
		struct dp_event ev = forge_answer(fx, f);
		bool no = f->end == FABRIC_END_REMOTE_ACCESS || f->end == FABRIC_END_REMOTE_OTHER;

		assert_int_equal(ev.status, f->why);
		assert_int_equal(ev.stats.violations, 0);
		assert_true(!no || strstr(ev.words, fabric_op_to_str(f->op)));
		assert_true(!no || strstr(ev.words, "forged in its name"));
		works(&other);
	}
	assert_int_equal(fx->violations, 0);
	peer_close(&other);
}

static void control__where_refusals_count_a_forger_has_the_tenant_punished(void **state)
{
	struct fx *fx = *state;

	dp_test_switches.refusals_count = true;
	strict(fx);
	for (uint32_t i = 0; i < ARRAY_SIZE(forgeries); i++) {
		enum fabric_end end = forgeries[i].end;
		struct dp_event ev = forge_answer(fx, &forgeries[i]);

		if (end != FABRIC_END_REMOTE_ACCESS && end != FABRIC_END_REMOTE_OTHER)
			continue;
		assert_int_equal(ev.status, ROS2_VIOLATIONS);
		assert_int_equal(ev.stats.violations, 1);
	}
	dp_test_switches.refusals_count = false;
	assert_true(fx->violations > 0);
}

/* What bounds a tenant whose windows are bad: its connection, at the first of them. */
static void bad_windows__are_one_try_for_each_connection(void **state)
{
	struct fabric_mem_counts before, after;
	struct fx *fx = *state;
	struct peer good;

	peer_ready(fx, &good);
	for (uint32_t i = 0; i < 3; i++) {
		struct peer p;

		works(&good); /* there is something to read, too */
		peer_connect(fx, &p, &fx->tenant, &fx->grant);
		peer_lease(&p, PEER_MEMORY, 3);
		p.window_key = 0x4711 + i;
		peer_send(&p, peer_window(&p), NULL);
		forget_events(fx);
		fabric_mem_counts(&before);
		fabric_mem_hold(true);
		for (int n = 0; n < 16; n++)
			peer_send(&p, peer_request(&p, n % 2 ? WIRE_WRITE : WIRE_READ, 0, 4096),
			          NULL);
		while (fabric_mem_held() < 16)
			/* poll: the agent's device has all of them */
			usleep(200);
		fabric_mem_hold(false);
		assert_int_equal(peer_recv(&p).opcode, 0);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
		fabric_mem_counts(&after);
		assert_int_equal(after.refused, before.refused + 1);
		assert_int_equal(after.reads + after.writes, before.reads + before.writes);
		peer_close(&p);
	}
	assert_int_equal(fx->violations, 0);
	works(&good);
	peer_close(&good);
}

/* What a tenant says itself, over a connection that it proved, counts as before. */
static void bad_keys__in_messages_are_violations_up_to_the_limit(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct dp_event ev;
	struct peer p;

	fx->limits.violations_limit = 3;
	fx->limits.violations_kill = true;
	fx_limits(fx);
	peer_ready(fx, &p);
	h = peer_request(&p, WIRE_READ, 0, 4096);
	h.key ^= 0x10000;
	expect_nak(&p, h, ROS2_BAD_KEY);
	expect_nak(&p, h, ROS2_BAD_KEY);
	peer_send(&p, h, NULL);
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_VIOLATIONS);
	assert_int_equal(ev.stats.violations, 3);
	peer_close(&p);
}

/* Same key, same window, which it does not end either. */
static void lease__used_on_after_its_end_moves_nothing(void **state)
{
	struct fabric_mem_counts before, after;
	struct fx *fx = *state;
	struct wire_header h;
	struct peer p;
	uint32_t n = 0;

	fx->limits.lease_ttl_ms = 300;
	fx_limits(fx);
	peer_ready(fx, &p);
	works(&p);
	do {
		h = ask_for(&p, peer_request(&p, n++ % 2 ? WIRE_WRITE : WIRE_READ, 0, 65536));
		assert_int_equal(h.opcode, WIRE_COMPLETE);
	} while (h.status == ROS2_OK);
	fabric_mem_counts(&before);
	for (int i = 0; i < 64; i++) {
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_LEASE_EXPIRED);
		h = ask_for(&p, peer_request(&p, i % 2 ? WIRE_WRITE : WIRE_READ, 0, 65536));
	}
	fabric_mem_counts(&after);
	assert_int_equal(after.reads + after.writes, before.reads + before.writes);
	assert_true(n > 1);
	assert_true(fabric_mem_key_lives(p.window_key));
	assert_int_equal(fx_count_events(fx, DP_EVENT_VIOLATION, -1), 0);
	peer_close(&p);
}

/* As after a forged packet: no work request of the agent's says why, the device perhaps does. */
static void queue_pair__that_the_device_ended_is_told_with_its_reason(void **state)
{
	static const char *const said[] = {"local access violation work queue error", NULL};
	struct fx *fx = *state;

	for (uint32_t i = 0; i < ARRAY_SIZE(said); i++) {
		struct dp_event ev;
		struct peer p;

		peer_ready(fx, &p);
		works(&p);
		pthread_mutex_lock(&fx->lock);
		fx->n_events = 0;
		pthread_mutex_unlock(&fx->lock);
		fabric_mem_break_peer(p.qp, said[i]);
		ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
		assert_non_null(strstr(ev.words, "or one forged in its name"));
		assert_non_null(strstr(ev.words, said[i] ? said[i] : "reports no event"));
		assert_int_equal(fx_count_events(fx, DP_EVENT_VIOLATION, -1), 0);
		peer_close(&p);
	}
}

/* The agent's kernel ends a connection, too, when a request comes in the name of its queue pair
 * (guest_facts), and does not say so: nobody is blamed. */
static void connection__that_was_ended_is_not_told_as_the_tenants_doing(void **state)
{
	struct fx *fx = *state;
	struct dp_event ev;
	struct peer p;

	peer_ready(fx, &p);
	works(&p);
	fabric_conn_free(TAKE_PTR(p.conn));
	ev = fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_CLOSED);
	assert_non_null(strstr(ev.words, "or a request in the name of its queue pair"));
	peer_close(&p);
}

/* ---- messages ---- */

static void message__that_is_not_as_long_as_it_says_ends_the_connection(void **state)
{
	struct fx *fx = *state;

	for (int how = 0; how < 3; how++) {
		struct peer p;
		struct wire_header h;

		peer_ready(fx, &p);
		h = peer_request(&p, how == 2 ? WIRE_DATA : WIRE_WRITE, 0, 100);
		h.flags = how == 2 ? 0 : WIRE_F_INLINE;
		h.payload_len = 100;
		wire_seal(&h);
		memcpy(p.mem + PEER_MEMORY / 2, &h, sizeof(h));
		peer_send_bytes(&p, how == 0 ? 163 : how == 1 ? 165 : 164);
		assert_int_equal(peer_recv(&p).opcode, 0);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
		peer_close(&p);
	}
}

static void message__that_invalidates_a_key_is_a_violation_and_ends_the_session(void **state)
{
	struct fabric_part part = {.offset = PEER_MEMORY / 2, .length = WIRE_HEADER_LEN};
	struct fabric_wr wr = {
		.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET | FABRIC_REMOTE_INVALIDATE};
	struct wire_header ping = {.opcode = WIRE_PING};
	struct fx *fx = *state;
	struct peer a, p;

	peer_ready(fx, &a);
	peer_ready(fx, &p);
	part.region = p.buffers;
	wr.remote_key = a.window_key;
	wire_seal(&ping);
	memcpy(p.mem + PEER_MEMORY / 2, &ping, sizeof(ping));
	fabric_mem_obey_all(true);
	assert_int_equal(fabric_send(p.qp, &wr), 0);
	(void)fabric_qp_flush(p.qp, 0);
	fabric_mem_obey_all(false);
	assert_int_equal(peer_recv(&p).opcode, 0);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_KEY);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	works(&a);
	peer_close(&p);
	peer_close(&a);
}

static void peer__without_receives_for_its_answers_is_ended(void **state)
{
	struct fx *fx = *state;
	struct peer p = {0};

	peer_device(fx, &p);
	p.n_recvs = 1;
	peer_session(&p, &fx->tenant, &fx->grant);
	peer_ask(&p);
	peer_hello(&p); /* WELCOME takes the only one */
	while (fabric_mem_held() || fx_count_events(fx, DP_EVENT_CONNECTED, -1) == 0)
		poll(NULL, 0, 1);
	peer_send(&p, (struct wire_header){.opcode = WIRE_PING}, NULL);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	peer_close(&p);
}

static void id__may_be_used_again_as_soon_as_it_is_answered(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct peer p;

	peer_ready(fx, &p);
	for (int i = 0; i < 500; i++) {
		h = peer_request(&p, WIRE_READ, 0, 4096);
		h.request_id = 7;
		h = ask_for(&p, h);
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
	}
	assert_int_equal(fx->violations, 0);
	peer_close(&p);
}

/* ---- revocation ---- */

static void revoke__counts_posted_transfers_and_nothing_is_posted_after_it(void **state)
{
	struct fabric_mem_counts before, after;
	struct fx_revoked revoked;
	struct fx *fx = *state;
	struct peer p;

	peer_ready(fx, &p);
	works(&p);
	fabric_mem_counts(&before);
	fabric_mem_hold(true);
	for (int i = 0; i < 4; i++)
		peer_send(&p, peer_request(&p, WIRE_READ, 0, 50000), NULL);
	while (fabric_mem_held() < 4)
		poll(NULL, 0, 1);
	memset(p.target, 0x11, PEER_MEMORY);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	assert_int_equal(revoked.first.revoke.sessions, 1);
	assert_int_equal(revoked.first.revoke.draining, 4);
	assert_int_equal(revoked.calls, 1);
	fabric_mem_hold(false);
	fx_wait_calls(fx, &revoked, 2);
	assert_int_equal(revoked.last.revoke.draining, 0);
	fabric_mem_counts(&after);
	assert_int_equal(after.writes, before.writes);
	for (uint32_t i = 0; i < PEER_MEMORY; i++)
		assert_int_equal(p.target[i], 0x11);
	peer_close(&p);
}

static void revoke__ends_what_a_device_never_gives_back_with_its_queue_pair(void **state)
{
	struct fx_revoked revoked;
	struct fx *fx = *state;
	struct peer p;

	peer_ready(fx, &p);
	fabric_mem_hold(true);
	peer_send(&p, peer_request(&p, WIRE_WRITE, 0, 50000), NULL);
	while (fabric_mem_held() < 1)
		poll(NULL, 0, 1);
	fx_revoke(fx, DP_SCOPE_SESSION, &p.session, &revoked);
	assert_int_equal(revoked.first.revoke.draining, 1);
	fx_wait_calls(fx, &revoked, 2); /* after 2 s: the hold still stands */
	assert_int_equal(revoked.last.revoke.draining, 0);
	fabric_mem_hold(false);
	peer_close(&p);
}

/* ---- an agent that was stopped between its look at the rights and the doorbell ---- */

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

/* A read, and the agent stopped for 40 s in the middle of it: the lease is good for 30. Returns
 * whether a byte of it came. */
static bool read_and_stop(struct fx *fx, struct wire_header *ret)
{
	struct peer p;
	bool came;

	peer_ready(fx, &p);
	works(&p);
	memset(p.target, 0, 4096);
	jump_in_look_ns = 40 * NS_PER_S;
	*ret = ask_for(&p, peer_request(&p, WIRE_READ, 0, 4096));
	assert_int_equal(jump_in_look_ns, 0);
	came = p.target[0] || p.target[4095];
	peer_close(&p);
	return came;
}

static void payload__of_an_agent_stopped_past_the_lease_is_not_moved(void **state)
{
	struct wire_header h;

	assert_false(read_and_stop(*state, &h));
	assert_int_equal(h.opcode, 0);
	fx_event(*state, DP_EVENT_SESSION_ENDED, ROS2_LEASE_EXPIRED);
}

static void control__without_the_last_look_it_is_moved(void **state)
{
	struct wire_header h;

	dp_test_switches.no_last_look = true;
	assert_true(read_and_stop(*state, &h));
	dp_test_switches.no_last_look = false;
	assert_int_equal(h.opcode, WIRE_COMPLETE);
}

/* The lease ends while the engine has the write: its answer moves none of the tenant's memory, and
 * ends nothing. */
static void lease__that_ends_inside_the_engine_ends_no_session(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct peer p;

	fx->limits.lease_ttl_ms = 100000;
	fx_limits(fx);
	peer_ready(fx, &p);
	slow_engine_shut(true);
	peer_send(&p, peer_request(&p, WIRE_WRITE, 0, 65536), NULL);
	slow_engine_wait_held(1);
	clock_ahead_ns += 100 * NS_PER_S;
	slow_engine_shut(false);
	h = peer_recv(&p);
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	h = ask_for(&p, peer_request(&p, WIRE_READ, 0, 65536));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_LEASE_EXPIRED);
	assert_int_equal(fx_count_events(fx, DP_EVENT_SESSION_ENDED, -1), 0);
	peer_close(&p);
}

static struct wire_header clear_request(struct peer *p, enum wire_opcode op, uint64_t offset,
                                        uint32_t length)
{
	struct wire_header h = peer_request(p, op, offset, length);

	h.key = h.generation = 0;
	h.address = 0;
	return h;
}

static void clear__is_refused_over_verbs_as_over_tcp(void **state)
{
	struct ros2_uid beta = ros2_uid_new(), grant = ros2_uid_new();
	struct fx *fx = *state;
	struct wire_header h;
	struct peer a, b;

	fx_tenant(fx, &beta);
	assert_int_equal(fx_grant(fx, &grant, &beta, UINT64_MAX), 0);
	peer_ready(fx, &a);
	works(&a);
	peer_connect(fx, &b, &beta, &grant);
	h = clear_request(&b, WIRE_ZERO, 0, 4096);
	h.handle = a.handle;
	expect_nak(&b, h, ROS2_BAD_HANDLE);
	expect_nak(&b, clear_request(&b, WIRE_DISCARD, UINT64_MAX - 4095, 4096), ROS2_OUT_OF_RANGE);
	expect_nak(&b, clear_request(&b, WIRE_ZERO, 0, WIRE_IO_MAX + 1), ROS2_TOO_LARGE);
	peer_close(&b);
	/* One that did not ask for it. */
	peer_features = 0;
	peer_connect(fx, &b, &beta, &grant);
	peer_features = WIRE_FEATURE_CLEAR;
	expect_nak(&b, clear_request(&b, WIRE_ZERO, 0, 4096), ROS2_UNSUPPORTED);
	peer_close(&b);
	/* No window is needed; what is named all the same ends the session. */
	peer_connect(fx, &b, &fx->tenant, &fx->grant);
	h = ask_for(&b, clear_request(&b, WIRE_ZERO, 0, 50000));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	assert_int_equal(h.length, 50000);
	h = ask_for(&a, peer_request(&a, WIRE_READ, 0, 100000));
	assert_int_equal(h.status, ROS2_OK);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(a.target[i], i < 50000 ? 0 : 0x5a);
	h = peer_request(&b, WIRE_ZERO, 0, 4096);
	assert_int_equal(ask_for(&b, h).opcode, 0);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
	peer_close(&b);
	peer_close(&a);
}

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	return fx_setup(state);
}

/* Nothing of the agent's is left at the device. */
static int teardown(void **state)
{
	struct fabric_mem_counts now;
	int rc = fx_teardown(state);

	fabric_mem_counts(&now);
	assert_int_equal(now.devices + now.pds + now.sets + now.qps + now.regions + now.windows +
	                         now.conns + now.listeners,
	                 0);
	return rc;
}

static int slow_setup(void **state)
{
	slow_engine_init();
	dp_test_switches.extra_engine = &slow_engine_ops;
	fx_engine_type = "slow";
	return setup(state);
}

static int slow_teardown(void **state)
{
	int rc;

	slow_engine_shut(false);
	rc = teardown(state);
	dp_test_switches.extra_engine = NULL;
	fx_engine_type = "mem";
	return rc;
}

#define S(f) cmocka_unit_test_setup_teardown(f, slow_setup, slow_teardown)
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ask__without_the_sessions_proof_gets_no_memory_and_no_queue_pair),
		T(ask__is_good_for_one_connection),
		T(clear__is_refused_over_verbs_as_over_tcp),
		T(first_message__that_is_no_proof_ends_the_session),
		T(request__under_a_key_without_a_window_is_a_violation),
		T(window__must_be_what_was_registered),
		T(window__of_another_tenant_is_of_no_use),
		T(window__that_has_gone_ends_the_session_by_name),
		T(forged_answer__ends_its_connection_and_is_nobodys_violation),
		T(control__where_refusals_count_a_forger_has_the_tenant_punished),
		T(bad_windows__are_one_try_for_each_connection),
		T(bad_keys__in_messages_are_violations_up_to_the_limit),
		T(lease__used_on_after_its_end_moves_nothing),
		S(lease__that_ends_inside_the_engine_ends_no_session),
		T(queue_pair__that_the_device_ended_is_told_with_its_reason),
		T(connection__that_was_ended_is_not_told_as_the_tenants_doing),
		T(message__that_is_not_as_long_as_it_says_ends_the_connection),
		T(message__that_invalidates_a_key_is_a_violation_and_ends_the_session),
		T(peer__without_receives_for_its_answers_is_ended),
		T(id__may_be_used_again_as_soon_as_it_is_answered),
		T(revoke__counts_posted_transfers_and_nothing_is_posted_after_it),
		T(revoke__ends_what_a_device_never_gives_back_with_its_queue_pair),
		T(payload__of_an_agent_stopped_past_the_lease_is_not_moved),
		T(control__without_the_last_look_it_is_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
