/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Over verbs: every byte of what asks for a connection and of the HELLO behind it, and then every
 * opcode and every field of the header (tests/dataplane/garbage.h). Each has the answer or the end
 * that is due, and another tenant's memory, file and connection do not notice. With a check
 * switched off the walk finds that something else came.
 */
#include "tests/dataplane/garbage.h"
#include "common/crypto.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include "tests/verbs/peer.h"
#include <poll.h>

#define BYTES 100000u

static void works(struct peer *p)
{
	static const enum wire_opcode ops[] = {WIRE_WRITE, WIRE_READ};

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct wire_header h;

		memset(p->target, i ? 0 : 'v', BYTES);
		peer_send(p, peer_request(p, ops[i], 0, BYTES), NULL);
		h = peer_recv(p);
		assert_int_equal(h.opcode, WIRE_COMPLETE);
		assert_int_equal(h.status, ROS2_OK);
		assert_int_equal(h.length, BYTES);
	}
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(p->target[i], 'v');
}

/* "file" of "ns" is the attacker's. */
static void own_file(struct peer *p)
{
	struct fx_args a = {.session = p->session, .to = "ram", .path = "other", .flags = 3};

	a.mount = fx_do(p->fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	p->handle = fx_do(p->fx, FX_OPEN, &a).open.handle;
	assert_int_not_equal(p->handle, 0);
}

static void neighbour(struct fx *fx, struct peer *p)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_connect(fx, p, &tenant, &grant);
	own_file(p);
	peer_settle(p);
	works(p);
	memset(p->target, 'w', PEER_MEMORY);
}

/* What is in its memory is what it put there, and so is what it stored. */
static void is_untouched(struct peer *p)
{
	struct wire_header h;

	assert_int_equal(fx_stats(p->fx, &p->session).violations, 0);
	for (uint32_t i = 0; i < PEER_MEMORY; i++)
		assert_int_equal(p->target[i], 'w');
	peer_send(p, peer_request(p, WIRE_READ, 0, BYTES), NULL);
	h = peer_recv(p);
	assert_int_equal(h.status, ROS2_OK);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(p->target[i], 'v');
}

static void end_session(struct peer *p)
{
	struct fx_args a = {.session = p->session};

	fx_do(p->fx, FX_CLOSE_SESSION, &a);
	assert_true(AWAIT(fx_do(p->fx, FX_CLOSE_SESSION, &a).status == ROS2_BAD_SESSION));
}

/* ---- before the proof ---- */

static void flip(void *arg, uint8_t *data, uint32_t len, uint32_t *qpn)
{
	const uint32_t *at = arg;

	assert_true(*at < len);
	data[*at] ^= (uint8_t)(1u << (*at % 8));
}

static void ask__every_byte_of_it_counts(void **state)
{
	struct fabric_mem_counts before, after;
	struct fx *fx = *state;
	struct peer victim;

	neighbour(fx, &victim);
	for (uint32_t i = 0; i < sizeof(struct wire_verbs_ask); i++) {
		bool in_front = i < offsetof(struct wire_verbs_ask, session_uid);
		enum ros2_status due = in_front ? ROS2_VERSION : ROS2_UNAUTHENTICATED;
		struct peer p;

		peer_device(fx, &p);
		peer_session(&p, &fx->tenant, &fx->grant);
		fabric_mem_counts(&before);
		fabric_mem_tamper(flip, &i);
		peer_ask(&p);
		fabric_mem_tamper(NULL, NULL);
		fabric_mem_counts(&after);
		if (p.established || p.refused != due)
			fail_msg("byte %u: %s, %s", i, p.established ? "stands" : "refused",
			         ros2_status_to_str((enum ros2_status)p.refused));
		assert_int_equal(after.qps, before.qps + 1); /* its own */
		assert_int_equal(after.regions, before.regions);
		fx_event(fx, DP_EVENT_HELLO_REFUSED, (int)due);
		fx_forget_events(fx);
		/* The control: its session waits for what is right. */
		fabric_conn_free(TAKE_PTR(p.conn));
		fabric_qp_free(TAKE_PTR(p.qp));
		p.over = false;
		peer_ask(&p);
		assert_true(p.established);
		peer_close(&p);
		end_session(&p);
	}
	is_untouched(&victim);
	peer_close(&victim);
}

/* With a secret of one's own; at the port of either. */
static void ask__for_anothers_session_is_refused_and_leaves_it_waiting(void **state)
{
	struct ros2_uid tenant = ros2_uid_new(), grant = ros2_uid_new();
	struct fx *fx = *state;
	struct peer victim, own;

	fx_tenant(fx, &tenant);
	assert_int_equal(fx_grant(fx, &grant, &tenant, UINT64_MAX), 0);
	peer_device(fx, &victim);
	peer_session(&victim, &tenant, &grant);
	for (int there = 0; there < 2; there++) {
		peer_device(fx, &own);
		peer_session(&own, &fx->tenant, &fx->grant);
		own.session = victim.session;
		own.port = there ? victim.port : own.port;
		peer_ask(&own);
		assert_false(own.established);
		assert_int_equal(own.refused, ROS2_UNAUTHENTICATED);
		fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
		fx_forget_events(fx);
		peer_close(&own);
	}
	peer_enter(&victim);
	peer_settle(&victim);
	works(&victim);
	peer_close(&victim);
}

/* One bit of a byte of HELLO, header and all; the header says so under a CRC that is right, but for
 * the last of the 144, which is none. */
static bool hello_is_welcome(struct fx *fx, uint32_t byte)
{
	struct wire_header h;
	struct peer p;
	uint8_t *at;
	bool welcome;

	peer_device(fx, &p);
	peer_session(&p, &fx->tenant, &fx->grant);
	peer_ask(&p);
	assert_true(p.established);
	peer_hello_bytes(&p);
	at = p.mem + PEER_MEMORY / 2;
	if (byte < WIRE_HEADER_LEN + sizeof(struct wire_hello))
		at[byte] ^= (uint8_t)(1u << (byte % 8));
	memcpy(&h, at, sizeof(h));
	if (byte < offsetof(struct wire_header, header_crc)) {
		h.header_crc = crypto_crc32c(at, offsetof(struct wire_header, header_crc));
		memcpy(at, &h, sizeof(h));
	}
	peer_send_bytes(&p, (uint32_t)sizeof(h) + (uint32_t)sizeof(struct wire_hello));
	h = peer_recv(&p);
	welcome = h.opcode == WIRE_WELCOME;
	if (!welcome) {
		assert_int_equal(h.opcode, 0);
		fx_event(fx, DP_EVENT_HELLO_REFUSED, ROS2_UNAUTHENTICATED);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_UNAUTHENTICATED);
	}
	peer_close(&p);
	end_session(&p);
	fx_forget_events(fx);
	return welcome;
}

/* What HELLO does not use of the header says nothing: request_id to generation, and status. */
static bool is_unused(uint32_t byte)
{
	return (byte >= offsetof(struct wire_header, request_id) &&
	        byte < offsetof(struct wire_header, payload_len)) ||
	       byte / 2 == offsetof(struct wire_header, status) / 2;
}

static void hello__every_byte_of_it_counts(void **state)
{
	const uint32_t whole = WIRE_HEADER_LEN + sizeof(struct wire_hello);
	struct fx *fx = *state;
	struct peer victim;

	neighbour(fx, &victim);
	for (uint32_t i = 0; i <= whole; i++)
		if (hello_is_welcome(fx, i) != (i == whole || is_unused(i)))
			fail_msg("byte %u of HELLO", i);
	is_untouched(&victim);
	peer_close(&victim);
}

static void control__without_proofs_the_bytes_of_them_do_not_count(void **state)
{
	struct fx *fx = *state;
	struct peer p;

	dp_test_switches.no_proof = true;
	assert_true(hello_is_welcome(fx, WIRE_HEADER_LEN + sizeof(struct wire_hello) - 1));
	peer_device(fx, &p);
	peer_session(&p, &fx->tenant, &fx->grant);
	p.bad_proof = true;
	peer_ask(&p);
	assert_true(p.established);
	peer_close(&p);
}

/* ---- every opcode and field ---- */

struct attack {
	struct fx *fx;
	struct peer p, victim;
	uint32_t sent;
	bool stands;
};

#define LONGEST (WIRE_HEADER_LEN + WIRE_VERBS_INLINE_MAX)

/* Each at its own place: the one before may be on its way. */
static void send_message(void *arg, const struct wire_header *h)
{
	struct attack *a = arg;
	uint32_t behind = h->payload_len <= WIRE_VERBS_INLINE_MAX ? h->payload_len : 0;
	struct fabric_part part = {a->p.buffers, PEER_MEMORY / 2 + a->sent++ % 64 * LONGEST,
	                           WIRE_HEADER_LEN + behind};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};

	memcpy(a->p.mem + part.offset, h, sizeof(*h));
	if (fabric_send(a->p.qp, &wr) == 0)
		(void)fabric_qp_flush(a->p.qp, 0);
}

static bool receive_again(struct peer *p, uint32_t i)
{
	struct fabric_part part = {p->buffers, i * 1024, 1024};
	struct fabric_wr wr = {.cookie = i, .parts = &part, .n_parts = 1};

	return fabric_recv(p->qp, &wr) == 0 && fabric_qp_flush(p->qp, 0) == 0;
}

static bool take_message(void *arg, struct wire_header *h)
{
	struct attack *a = arg;
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;
	struct fabric_completion c;

	while (clock_monotonic_ns() < until) {
		if (fabric_set_poll(a->p.set, &c, 1) == 0) {
			(void)peer_is_told(&a->p);
			if (fabric_qp_state(a->p.qp) != FABRIC_QP_READY)
				return false;
			/* poll: the device that is memory has no descriptor to wait for here */
			poll(NULL, 0, 1);
		} else if (c.end != FABRIC_END_OK) {
			return false;
		} else if (c.op == FABRIC_OP_RECV) {
			memcpy(h, a->p.mem + c.cookie * 1024, sizeof(*h));
			(void)receive_again(&a->p, (uint32_t)c.cookie);
			return true;
		}
	}
	fail_msg("nothing comes from the agent");
	return false;
}

static void leave(struct attack *a)
{
	end_session(&a->p);
	peer_close(&a->p);
}

static enum ros2_status new_session(void *arg, struct garbage *g)
{
	struct attack *a = arg;
	enum ros2_status st = ROS2_OK;

	if (a->stands) {
		struct fx_args close = {.session = a->p.session};

		fx_do(a->fx, FX_CLOSE_SESSION, &close);
		st = fx_ended(a->fx, &a->p.session).status;
		leave(a);
	}
	fx_forget_events(a->fx);
	peer_ready(a->fx, &a->p);
	a->stands = true;
	g->handle = a->p.handle;
	g->key = a->p.key;
	g->generation = a->p.generation;
	g->address = (uintptr_t)a->p.target;
	g->window = peer_window(&a->p);
	return st;
}

static void begin(struct fx *fx, struct attack *a, struct garbage *g)
{
	*a = (struct attack){.fx = fx};
	neighbour(fx, &a->victim);
	*g = (struct garbage){.arg = a,
	                      .send = send_message,
	                      .take = take_message,
	                      .renew = new_session,
	                      .inline_max = WIRE_VERBS_INLINE_MAX,
	                      .other_handle = a->victim.handle,
	                      .other_key = a->victim.key};
	(void)new_session(a, g);
}

static void walk__every_opcode_and_field_over_verbs_has_what_is_due(void **state)
{
	struct attack a;
	struct garbage g;

	begin(*state, &a, &g);
	garbage_walk(&g);
	assert_int_equal(g.wrong, 0);
	assert_true(g.ended > 237 && g.naks > 80 && g.done > 100);
	/* Each that was answered so is told, and no other. */
	assert_true(AWAIT(fx_violations(*state) >= g.naks));
	assert_int_equal(fx_violations(*state), g.naks);
	is_untouched(&a.victim);
	leave(&a);
	peer_close(&a.victim);
}

static void message__of_another_transport_ends_the_connection_by_its_name(void **state)
{
	static const struct {
		enum wire_opcode op;
		const char *words;
	} messages[] = {{WIRE_DATA, "DATA: "}, {WIRE_MAPPED, "MAPPED: "}};
	struct fx *fx = *state;

	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		struct peer p;

		peer_ready(fx, &p);
		peer_send(&p, (struct wire_header){.opcode = (uint8_t)messages[i].op}, NULL);
		assert_int_equal(peer_recv(&p).opcode, 0);
		assert_non_null(strstr(fx_ended(fx, &p.session).words, messages[i].words));
		peer_close(&p);
	}
}

static unsigned walked(struct fx *fx, enum wire_opcode op, const char *field)
{
	struct attack a;
	struct garbage g;

	begin(fx, &a, &g);
	garbage_walk_some(&g, op, field);
	leave(&a);
	end_session(&a.victim);
	peer_close(&a.victim);
	return g.wrong;
}

static void control__without_its_check_a_field_is_found(void **state)
{
	struct fx *fx = *state;

	assert_int_equal(walked(fx, WIRE_FLUSH, "handle"), 0);
	dp_test_switches.no_handle_check = true;
	assert_true(walked(fx, WIRE_FLUSH, "handle") > 0);
}

static int setup(void **state)
{
	fx_transport = DP_TRANSPORT_VERBS;
	fx_rdma_device = FABRIC_MEM_DEVICE;
	fx_rdma_host = "127.0.0.1";
	if (fx_setup(state) < 0)
		return -1;
	/* The victim's stands for as long as a walk takes. */
	((struct fx *)*state)->limits.lease_ttl_ms = 600000;
	fx_limits(*state);
	return 0;
}

/* Nothing of the agent's is left at the device. */
static int teardown(void **state)
{
	struct fabric_mem_counts now;
	int rc;

	dp_test_switches = (struct dp_test_switches){0};
	rc = fx_teardown(state);
	fabric_mem_counts(&now);
	assert_int_equal(now.devices + now.pds + now.sets + now.qps + now.regions + now.windows +
	                         now.conns + now.listeners,
	                 0);
	return rc;
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ask__every_byte_of_it_counts),
		T(ask__for_anothers_session_is_refused_and_leaves_it_waiting),
		T(hello__every_byte_of_it_counts),
		T(control__without_proofs_the_bytes_of_them_do_not_count),
		T(walk__every_opcode_and_field_over_verbs_has_what_is_due),
		T(message__of_another_transport_ends_the_connection_by_its_name),
		T(control__without_its_check_a_field_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
