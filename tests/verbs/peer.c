/* SPDX-License-Identifier: Apache-2.0 */
/* See peer.h. */
#include "tests/verbs/peer.h"
#include "common/crypto.h"
#include "dataplane/wire_codec.h"
#include "tests/await.h"
#include <arpa/inet.h>
#include <poll.h>

void peer_device(struct fx *fx, struct peer *p)
{
	struct fabric_pd_opts pd = {1u << 30, 64, 64, 4};
	struct fabric_set_opts set = {.cq_depth = 4096, .qps_max = 4};
	struct fabric_region_opts r = {.bindable = true, .length = PEER_MEMORY};

	*p = (struct peer){.fx = fx};
	p->mem = calloc(1, PEER_MEMORY);
	p->target = aligned_alloc(4096, PEER_MEMORY); /* as the limits want it */
	memset(p->target, 0, PEER_MEMORY);
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

void peer_session(struct peer *p, const struct ros2_uid *tenant, const struct ros2_uid *grant)
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

void peer_close(struct peer *p)
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

void peer_post_recv(struct peer *p, struct fabric_qp *qp, uint32_t i)
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
		peer_post_recv(p, qp, i);
	return 0;
}

void peer_ask_begin(struct peer *p)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(p->port)};
	struct fabric_conn_opts o = {.qp = {.send_depth = 256,
	                                    .recv_depth = PEER_RECVS,
	                                    .send_parts = 2,
	                                    .windows = 8,
	                                    .remote_access = FABRIC_READ | FABRIC_WRITE,
	                                    .reads_in = 16},
	                             .hello = {&ask, sizeof(ask)},
	                             .prepare = prepare,
	                             .arg = p};

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!p->n_recvs)
		p->n_recvs = PEER_RECVS;
	assert_int_equal(fabric_connect(p->cm, NULL, (struct sockaddr *)&to, 0, &p->conn, NULL), 0);
	assert_int_equal(fabric_conn_ask(p->conn, p->set, &o, &p->qp, NULL), 0);
}

bool peer_is_told(struct peer *p)
{
	fabric_cm_events(p->cm, on_conn, p);
	return p->established || p->over;
}

void peer_ask(struct peer *p)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;

	peer_ask_begin(p);
	while (!p->established && !p->over && clock_monotonic_ns() < until) {
		struct pollfd fd = {fabric_cm_fd(p->cm), POLLIN, 0};

		poll(&fd, 1, 100);
		(void)peer_is_told(p);
	}
	assert_true(p->established || p->over);
}

void peer_send_bytes(struct peer *p, uint32_t len)
{
	struct fabric_part part = {p->buffers, PEER_MEMORY / 2, len};
	struct fabric_wr wr = {.parts = &part, .n_parts = 1, .flags = FABRIC_QUIET};

	assert_int_equal(fabric_send(p->qp, &wr), 0);
	(void)fabric_qp_flush(p->qp, 0);
}

static uint32_t put_message(struct peer *p, struct wire_header h, const void *payload)
{
	uint8_t *at = p->mem + PEER_MEMORY / 2;

	wire_seal(&h);
	memcpy(at, &h, sizeof(h));
	if (payload)
		memcpy(at + sizeof(h), payload, h.payload_len);
	return (uint32_t)sizeof(h) + h.payload_len;
}

void peer_send(struct peer *p, struct wire_header h, const void *payload)
{
	peer_send_bytes(p, put_message(p, h, payload));
}

struct wire_header peer_recv(struct peer *p)
{
	uint64_t until = clock_monotonic_ns() + AWAIT_NS;
	struct wire_header h = {0};

	while (clock_monotonic_ns() < until) {
		struct fabric_completion c;

		if (fabric_set_poll(p->set, &c, 1) == 0) {
			(void)peer_is_told(p); /* of the end, too */
			poll(NULL, 0, 1);
			continue;
		}
		if (c.end != FABRIC_END_OK)
			return (struct wire_header){0};
		if (c.op != FABRIC_OP_RECV)
			continue;
		memcpy(&h, p->mem + c.cookie * 1024, sizeof(h));
		peer_post_recv(p, p->qp, (uint32_t)c.cookie);
		return h;
	}
	fail_msg("nothing came within 5 s");
	return h;
}

uint32_t peer_features = WIRE_FEATURE_CLEAR;

static uint32_t put_hello(struct peer *p)
{
	struct wire_header h = {.opcode = WIRE_HELLO,
	                        .length = peer_features,
	                        .payload_len = sizeof(struct wire_hello)};
	struct wire_hello hello = {0};
	struct crypto_span parts[] = {{WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT)},
	                              {hello.session_uid, 16},
	                              {p->agent_nonce, WIRE_NONCE_LEN},
	                              {hello.tenant_nonce, WIRE_NONCE_LEN}};

	memcpy(hello.session_uid, p->session.b, 16);
	crypto_hmac_sha256v(p->secret, sizeof(p->secret), parts, ARRAY_SIZE(parts), hello.proof);
	return put_message(p, h, &hello);
}

void peer_hello(struct peer *p)
{
	peer_send_bytes(p, put_hello(p));
}

void peer_hello_bytes(struct peer *p)
{
	(void)put_hello(p);
}

uint32_t peer_lease(struct peer *p, uint64_t length, uint32_t access)
{
	struct fx_args a = {
		.session = p->session, .a = (uintptr_t)p->target, .b = length, .flags = access};
	struct dp_result res = fx_do(p->fx, FX_REGISTER, &a);

	assert_int_equal(res.status, ROS2_OK);
	p->key = res.region.key;
	p->generation = res.region.generation;
	return p->key;
}

void peer_bind(struct peer *p)
{
	struct fabric_bind b = {.region = p->region,
	                        .length = PEER_MEMORY,
	                        .access = FABRIC_READ | FABRIC_WRITE,
	                        .flags = FABRIC_QUIET};

	assert_int_equal(fabric_window_bind(p->qp, &b, &p->window, &p->window_key), 0);
}

struct wire_header peer_window(const struct peer *p)
{
	return (struct wire_header){.opcode = WIRE_WINDOW,
	                            .handle = p->window_key,
	                            .offset = PEER_MEMORY,
	                            .address = (uintptr_t)p->target,
	                            .key = p->key,
	                            .generation = p->generation};
}

void peer_connect(struct fx *fx, struct peer *p, const struct ros2_uid *tenant,
                  const struct ros2_uid *grant)
{
	peer_device(fx, p);
	peer_session(p, tenant, grant);
	peer_enter(p);
}

void peer_enter(struct peer *p)
{
	struct fx_args a = {.to = "ram", .path = "ns", .flags = 3};
	struct fx *fx = p->fx;

	peer_ask(p);
	assert_true(p->established);
	peer_hello(p);
	assert_int_equal(peer_recv(p).opcode, WIRE_WELCOME);
	a.session = p->session;
	a.mount = fx_do(fx, FX_MOUNT, &a).mount.mount;
	a.path = "file";
	a.flags = ENGINE_READ | ENGINE_WRITE | ENGINE_CREATE;
	p->handle = fx_do(fx, FX_OPEN, &a).open.handle;
	assert_int_not_equal(p->handle, 0);
}

void peer_ready(struct fx *fx, struct peer *p)
{
	peer_connect(fx, p, &fx->tenant, &fx->grant);
	peer_settle(p);
}

void peer_settle(struct peer *p)
{
	peer_lease(p, PEER_MEMORY, 3);
	peer_bind(p);
	peer_send(p, peer_window(p), NULL);
}

struct wire_header peer_request(struct peer *p, enum wire_opcode op, uint64_t offset,
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
