/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer over verbs may not do, tried by one that is no library: it has the faces of the
 * device and wire.h, and posts what it likes. Each attack is refused and told, and the victim's
 * memory and connection are as before.
 */
#include "tests/verbs/fabric_mem.h"
#include "common/crypto.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include "tests/dataplane/fixture.h"
#include <arpa/inet.h>
#include <poll.h>

#define MEMORY (1u << 20)
#define RECVS  64u

struct peer {
	struct fx *fx;
	struct fabric_dev *dev;
	struct fabric_pd *pd;
	struct fabric_channel *channel;
	struct fabric_set *set;
	struct fabric_cm *cm;
	struct fabric_conn *conn;
	struct fabric_qp *qp;
	struct fabric_region *buffers, *region;
	uint8_t *mem, *target; /* messages; what is leased */
	struct ros2_uid session;
	uint8_t secret[DP_SECRET_LEN], agent_nonce[WIRE_NONCE_LEN];
	uint16_t port;
	bool established, over;
	uint16_t refused; /* status of a rejection */
	struct fabric_window *window;
	uint32_t window_key, key, generation, n_recvs;
	uint64_t handle, next_id;
	/* of wrong proofs */
	bool bad_proof, other_qpn;
};

/* ---- a peer ---- */

static void peer_device(struct fx *fx, struct peer *p)
{
	struct fabric_pd_opts pd = {1u << 30, 64, 64, 4};
	struct fabric_set_opts set = {.cq_depth = 4096, .qps_max = 4};
	struct fabric_region_opts r = {.bindable = true, .length = MEMORY};

	*p = (struct peer){.fx = fx};
	p->mem = calloc(1, MEMORY);
	p->target = aligned_alloc(4096, MEMORY); /* as the limits want it */
	memset(p->target, 0, MEMORY);
	assert_int_equal(fabric_dev_open(FABRIC_MEM_DEVICE, &p->dev, NULL), 0);
	assert_int_equal(fabric_pd_new(p->dev, &pd, &p->pd, NULL), 0);
	assert_int_equal(fabric_channel_new(p->dev, &p->channel, NULL), 0);
	assert_int_equal(fabric_set_new(p->pd, p->channel, &set, &p->set, NULL), 0);
	assert_int_equal(fabric_cm_new(&(struct fabric_cm_opts){0}, &p->cm, NULL), 0);
	r.addr = p->mem;
	assert_int_equal(fabric_region_new(p->pd, &r, &p->buffers, NULL), 0);
	r.addr = p->target;
	assert_int_equal(fabric_region_new(p->pd, &r, &p->region, NULL), 0);
}

static void peer_session(struct peer *p, const struct ros2_uid *tenant,
                         const struct ros2_uid *grant)
{
	struct fx_args a = {
		.session = ros2_uid_new(), .tenant = *tenant, .grant = *grant, .a = UINT64_MAX};
	struct dp_result res = fx_do(p->fx, FX_OPEN_SESSION, &a);

	assert_int_equal(res.status, ROS2_OK);
	assert_int_equal(res.session.max_inline, WIRE_VERBS_INLINE_MAX);
	p->session = a.session;
	p->port = res.session.port;
	memcpy(p->secret, res.session.secret, sizeof(p->secret));
}

static void peer_close(struct peer *p)
{
	fabric_conn_free(p->conn);
	fabric_qp_free(p->qp);
	fabric_region_free(p->buffers);
	fabric_region_free(p->region);
	fabric_set_free(p->set);
	fabric_channel_free(p->channel);
	assert_int_equal(fabric_pd_free(p->pd), 0);
	fabric_cm_free(p->cm);
	assert_int_equal(fabric_dev_close(p->dev), 0);
	free(p->mem);
	free(p->target);
}

static void on_conn(void *arg, const struct fabric_conn_event *e)
{
	struct peer *p = arg;
	struct wire_verbs_refusal r;

	if (e->kind == FABRIC_CONN_EVENT_ESTABLISHED) {
		assert_true(e->data_len >= sizeof(struct wire_verbs_answer));
		memcpy(p->agent_nonce, e->data + offsetof(struct wire_verbs_answer, agent_nonce),
		       sizeof(p->agent_nonce));
		p->established = true;
	} else if (e->kind != FABRIC_CONN_EVENT_RESOLVED) {
		p->over = true;
		if (e->kind == FABRIC_CONN_EVENT_REJECTED && e->data_len >= sizeof(r)) {
			memcpy(&r, e->data, sizeof(r));
			p->refused = r.status;
		}
	}
}

static void post_recv(struct peer *p, struct fabric_qp *qp, uint32_t i)
{
	struct fabric_part part = {p->buffers, i * 1024, 1024};
	struct fabric_wr wr = {.cookie = i, .parts = &part, .n_parts = 1};

	assert_int_equal(fabric_recv(qp, &wr), 0);
}

static struct wire_verbs_ask ask;

static int prepare(void *arg, struct fabric_qp *qp)
{
	struct peer *p = arg;
	uint32_t qpn = fabric_qp_number(qp) + p->other_qpn;
	struct crypto_span parts[] = {{WIRE_LABEL_VERBS, sizeof(WIRE_LABEL_VERBS)},
	                              {ask.session_uid, 16},
	                              {ask.tenant_nonce, WIRE_VERBS_NONCE_LEN},
	                              {&qpn, sizeof(qpn)}};
	uint8_t mac[SHA256_LEN];

	ask = (struct wire_verbs_ask){.version = WIRE_VERBS_VERSION};
	memcpy(ask.session_uid, p->session.b, 16);
	crypto_hmac_sha256v(p->secret, sizeof(p->secret), parts, ARRAY_SIZE(parts), mac);
	memcpy(ask.proof, mac, sizeof(ask.proof));
	ask.proof[3] ^= p->bad_proof;
	for (uint32_t i = 0; i < p->n_recvs; i++)
		post_recv(p, qp, i);
	return 0;
}

/* Until it stands or is refused. */
static void peer_ask(struct peer *p)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->port)};
	struct fabric_conn_opts o = {.qp = {.send_depth = 256,
	                                    .recv_depth = RECVS,
	                                    .send_parts = 2,
	                                    .windows = 8,
	                                    .remote_access = FABRIC_READ | FABRIC_WRITE,
	                                    .reads_in = 16},
	                             .hello = {&ask, sizeof(ask)},
	                             .prepare = prepare,
	                             .arg = p};
	uint64_t until = clock_monotonic_ns() + 5 * NS_PER_S;

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!p->n_recvs)
		p->n_recvs = RECVS;
	assert_int_equal(fabric_connect(p->cm, NULL, (struct sockaddr *)&to, 0, &p->conn, NULL), 0);
	assert_int_equal(fabric_conn_ask(p->conn, p->set, &o, &p->qp, NULL), 0);
	while (!p->established && !p->over && clock_monotonic_ns() < until) {
		struct pollfd fd = {fabric_cm_fd(p->cm), POLLIN, 0};

		poll(&fd, 1, 100);
		fabric_cm_events(p->cm, on_conn, p);
	}
	assert_true(p->established || p->over);
}

static void send_bytes(struct peer *p, uint32_t len)
{
	struct fabric_part part = {p->buffers, MEMORY / 2, len};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};

	assert_int_equal(fabric_send(p->qp, &wr), 0);
	(void)fabric_qp_flush(p->qp, 0);
}

static void send_message(struct peer *p, struct wire_header h, const void *payload)
{
	uint8_t *at = p->mem + MEMORY / 2;

	wire_seal(&h);
	memcpy(at, &h, sizeof(h));
	if (payload)
		memcpy(at + sizeof(h), payload, h.payload_len);
	send_bytes(p, (uint32_t)sizeof(h) + h.payload_len);
}

/* The next message; opcode 0: the connection ended instead. */
static struct wire_header recv_message(struct peer *p)
{
	uint64_t until = clock_monotonic_ns() + 5 * NS_PER_S;
	struct wire_header h = {0};

	while (clock_monotonic_ns() < until) {
		struct fabric_completion c;

		if (fabric_set_poll(p->set, &c, 1) == 0) {
			poll(NULL, 0, 1);
			continue;
		}
		if (c.end != FABRIC_END_OK)
			return (struct wire_header){0};
		if (c.op != FABRIC_OP_RECV)
			continue;
		memcpy(&h, p->mem + c.cookie * 1024, sizeof(h));
		post_recv(p, p->qp, (uint32_t)c.cookie);
		return h;
	}
	fail_msg("nothing came within 5 s");
	return h;
}

static void send_hello(struct peer *p)
{
	struct wire_header h = {.opcode = WIRE_HELLO, .payload_len = sizeof(struct wire_hello)};
	struct wire_hello hello = {0};
	struct crypto_span parts[] = {{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
	                              {hello.session_uid, 16},
	                              {p->agent_nonce, WIRE_NONCE_LEN},
	                              {hello.tenant_nonce, WIRE_NONCE_LEN}};

	memcpy(hello.session_uid, p->session.b, 16);
	crypto_hmac_sha256v(p->secret, sizeof(p->secret), parts, ARRAY_SIZE(parts), hello.proof);
	send_message(p, h, &hello);
}

static uint32_t lease_of(struct peer *p, uint64_t length, uint32_t access)
{
	struct fx_args a = {
		.session = p->session, .a = (uintptr_t)p->target, .b = length, .flags = access};
	struct dp_result res = fx_do(p->fx, FX_REGISTER, &a);

	assert_int_equal(res.status, ROS2_OK);
	p->key = res.region.key;
	p->generation = res.region.generation;
	return p->key;
}

static void bind_window(struct peer *p)
{
	struct fabric_bind b = {.region = p->region,
	                        .length = MEMORY,
	                        .access = FABRIC_READ | FABRIC_WRITE,
	                        .flags = FABRIC_QUIET};

	assert_int_equal(fabric_window_bind(p->qp, &b, &p->window, &p->window_key), 0);
}

static struct wire_header window_message(const struct peer *p)
{
	return (struct wire_header){.opcode = WIRE_WINDOW,
	                            .handle = p->window_key,
	                            .offset = MEMORY,
	                            .address = (uintptr_t)p->target,
	                            .key = p->key,
	                            .generation = p->generation};
}

static void peer_connect(struct fx *fx, struct peer *p, const struct ros2_uid *tenant,
                         const struct ros2_uid *grant)
{
	struct fx_args a = {.to = "ram", .path = "ns", .flags = 3};

	peer_device(fx, p);
	peer_session(p, tenant, grant);
	peer_ask(p);
	assert_true(p->established);
	send_hello(p);
	assert_int_equal(recv_message(p).opcode, WIRE_WELCOME);
	a.session = p->session;
	a.mount = fx_do(fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	p->handle = fx_do(fx, FX_OPEN, &a).open.handle;
	assert_int_not_equal(p->handle, 0);
}

static void peer_ready(struct fx *fx, struct peer *p)
{
	peer_connect(fx, p, &fx->tenant, &fx->grant);
	lease_of(p, MEMORY, 3);
	bind_window(p);
	send_message(p, window_message(p), NULL);
}

static struct wire_header request(struct peer *p, enum wire_opcode op, uint64_t offset,
                                  uint32_t length)
{
	return (struct wire_header){.opcode = op,
	                            .request_id = ++p->next_id,
	                            .handle = p->handle,
	                            .offset = offset,
	                            .address = (uintptr_t)p->target,
	                            .length = length,
	                            .key = p->key,
	                            .generation = p->generation};
}

static struct wire_header ask_for(struct peer *p, struct wire_header h)
{
	send_message(p, h, NULL);
	return recv_message(p);
}

static void works(struct peer *p)
{
	struct wire_header h;

	memset(p->target, 0x5a, 100000);
	h = ask_for(p, request(p, WIRE_WRITE, 0, 100000));
	assert_int_equal(h.opcode, WIRE_COMPLETE);
	assert_int_equal(h.status, ROS2_OK);
	memset(p->target, 0, 100000);
	h = ask_for(p, request(p, WIRE_READ, 0, 100000));
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
			send_hello(&p);
		else if (how == 1)
			send_message(&p, request(&p, WIRE_READ, 0, 100), NULL);
		else
			send_bytes(&p, 20);
		assert_int_equal(recv_message(&p).opcode, 0);
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
	lease_of(&p, MEMORY, 3);
	expect_nak(&p, request(&p, WIRE_READ, 0, 4096), ROS2_BAD_KEY);
	expect_nak(&p, request(&p, WIRE_WRITE, 0, 4096), ROS2_BAD_KEY);
	bind_window(&p);
	send_message(&p, window_message(&p), NULL);
	works(&p);
	peer_close(&p);
}

static void window__must_be_what_was_registered(void **state)
{
	struct fx *fx = *state;
	struct wire_header h;
	struct peer p;

	peer_connect(fx, &p, &fx->tenant, &fx->grant);
	lease_of(&p, MEMORY, 3);
	bind_window(&p);
	h = window_message(&p);
	h.generation++;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = window_message(&p);
	h.address += 4096;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = window_message(&p);
	h.offset = (uint64_t)MEMORY * 2;
	expect_nak(&p, h, ROS2_OUT_OF_RANGE);
	h = window_message(&p);
	h.handle |= 1ull << 32;
	expect_nak(&p, h, ROS2_INVALID);
	h = window_message(&p);
	h.key ^= 0x10000;
	expect_nak(&p, h, ROS2_BAD_KEY);
	send_message(&p, window_message(&p), NULL);
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
	lease_of(&b, MEMORY, 3);
	/* A's key on B's connection; B's own lease with A's window: the device says no. */
	h = window_message(&a);
	expect_nak(&b, h, ROS2_BAD_KEY);
	h = request(&b, WIRE_READ, 0, 4096);
	h.key = a.key;
	h.address = (uintptr_t)a.target;
	expect_nak(&b, h, ROS2_BAD_KEY);
	h = request(&b, WIRE_READ, 0, 4096);
	h.handle = a.handle;
	expect_nak(&b, h, ROS2_BAD_HANDLE);
	b.window_key = a.window_key;
	send_message(&b, window_message(&b), NULL);
	h = ask_for(&b, request(&b, WIRE_WRITE, 0, 100000));
	assert_int_equal(h.opcode, 0);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_KEY);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
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
	assert_int_equal(ask_for(&p, request(&p, WIRE_READ, 0, 100)).opcode, 0);
	fx_event(fx, DP_EVENT_VIOLATION, ROS2_BAD_KEY);
	fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
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
		h = request(&p, how == 2 ? WIRE_DATA : WIRE_WRITE, 0, 100);
		h.flags = how == 2 ? 0 : WIRE_F_INLINE;
		h.payload_len = 100;
		wire_seal(&h);
		memcpy(p.mem + MEMORY / 2, &h, sizeof(h));
		send_bytes(&p, how == 0 ? 163 : how == 1 ? 165 : 164);
		assert_int_equal(recv_message(&p).opcode, 0);
		fx_event(fx, DP_EVENT_SESSION_ENDED, ROS2_PROTOCOL);
		peer_close(&p);
	}
}

static void peer__without_receives_for_its_answers_is_ended(void **state)
{
	struct fx *fx = *state;
	struct peer p = {0};

	peer_device(fx, &p);
	p.n_recvs = 1;
	peer_session(&p, &fx->tenant, &fx->grant);
	peer_ask(&p);
	send_hello(&p); /* WELCOME takes the only one */
	while (fabric_mem_held() || fx_count_events(fx, DP_EVENT_CONNECTED, -1) == 0)
		poll(NULL, 0, 1);
	send_message(&p, (struct wire_header){.opcode = WIRE_PING}, NULL);
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
		h = request(&p, WIRE_READ, 0, 4096);
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
		send_message(&p, request(&p, WIRE_READ, 0, 50000), NULL);
	while (fabric_mem_held() < 4)
		poll(NULL, 0, 1);
	memset(p.target, 0x11, MEMORY);
	fx_revoke(fx, DP_SCOPE_TENANT, &fx->tenant, &revoked);
	assert_int_equal(revoked.first.revoke.sessions, 1);
	assert_int_equal(revoked.first.revoke.draining, 4);
	assert_int_equal(revoked.calls, 1);
	fabric_mem_hold(false);
	fx_wait_calls(fx, &revoked, 2);
	assert_int_equal(revoked.last.revoke.draining, 0);
	fabric_mem_counts(&after);
	assert_int_equal(after.writes, before.writes);
	for (uint32_t i = 0; i < MEMORY; i++)
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
	send_message(&p, request(&p, WIRE_WRITE, 0, 50000), NULL);
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

static _Atomic uint64_t jumped_ns, jump_in_look_ns; /* the next time, once */

uint64_t __real_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void);
uint64_t __wrap_clock_boottime_ns(void)
{
	return __real_clock_boottime_ns() + jumped_ns;
}

enum ros2_status __real_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns);
enum ros2_status __wrap_request_may_hand_on(struct request *req, uint64_t now_ns)
{
	enum ros2_status st = __real_request_may_hand_on(req, now_ns);

	if (st == ROS2_OK)
		jumped_ns += atomic_exchange(&jump_in_look_ns, 0);
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
	*ret = ask_for(&p, request(&p, WIRE_READ, 0, 4096));
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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ask__without_the_sessions_proof_gets_no_memory_and_no_queue_pair),
		T(ask__is_good_for_one_connection),
		T(first_message__that_is_no_proof_ends_the_session),
		T(request__under_a_key_without_a_window_is_a_violation),
		T(window__must_be_what_was_registered),
		T(window__of_another_tenant_is_of_no_use),
		T(window__that_has_gone_ends_the_session_by_name),
		T(message__that_is_not_as_long_as_it_says_ends_the_connection),
		T(peer__without_receives_for_its_answers_is_ended),
		T(id__may_be_used_again_as_soon_as_it_is_answered),
		T(revoke__counts_posted_transfers_and_nothing_is_posted_after_it),
		T(revoke__ends_what_a_device_never_gives_back_with_its_queue_pair),
		T(payload__of_an_agent_stopped_past_the_lease_is_not_moved),
		T(control__without_the_last_look_it_is_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
