/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One data connection over verbs: ask with a proof, HELLO and WELCOME, then messages by SEND in
 * both directions. It trusts nothing of the agent's: a message is as long as its header says, is
 * checked as over tcp, and names a request that is in flight. Payload that the agent moves by
 * itself reaches only what a window was bound over.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs_priv.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>

#define TAKE_PER_ROUND 64

static uint8_t *recv_mem(const struct verbs_link *v, uint32_t i)
{
	return v->mem + (size_t)i * VERBS_RECV_BYTES;
}

static uint64_t send_at(const struct verbs_link *v, uint32_t i)
{
	return (uint64_t)v->n_recv * VERBS_RECV_BYTES + (uint64_t)i * VERBS_SEND_BYTES;
}

static int post_receive(struct verbs_link *v, struct fabric_qp *qp, uint32_t i)
{
	struct fabric_part part = {v->region, (uint64_t)i * VERBS_RECV_BYTES, VERBS_RECV_BYTES};
	struct fabric_wr wr = {
		.cookie = (uint64_t)VERBS_RECV << 32 | i, .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

/* ---- connecting ---- */

static void drop_connection(struct verbs_link *v)
{
	fabric_conn_free(TAKE_PTR(v->conn));
	fabric_qp_free(TAKE_PTR(v->qp));
	verbs_give_back(v, TAKE_PTR(v->region), TAKE_PTR(v->mem), v->mem_bytes);
	free(TAKE_PTR(v->send_free));
	free(TAKE_PTR(v->send_slot));
	v->resolved = v->established = v->over = v->has_first = false;
	v->why = (struct ros2_err)ROS2_ERR_INIT;
}

void verbs_link_cut(struct ros2_session *s)
{
	if (!s->verbs)
		return;
	verbs_windows_lost(s);
	/* After this no byte of the program's memory is read or written. */
	drop_connection(s->verbs);
}

/* Sizes follow from what the agent has granted; it cannot make us take more than the protocol. */
static int make_buffers(struct ros2_session *s, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	uint32_t credits = MIN(s->granted.credits, WIRE_CREDITS_MAX);
	struct fabric_region_opts o = {0};

	v->n_recv = credits + VERBS_SPARE;
	v->n_send = v->n_send_free = credits + VERBS_SPARE;
	o.length = (uint64_t)v->n_recv * VERBS_RECV_BYTES + (uint64_t)v->n_send * VERBS_SEND_BYTES;
	v->mem_bytes = o.length;
	v->mem = verbs_pages_new(v->mem_bytes);
	v->send_free = calloc(v->n_send, sizeof(*v->send_free));
	v->send_slot = calloc(v->n_send, sizeof(*v->send_slot));
	if (!v->mem || !v->send_free || !v->send_slot)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection");
	for (uint32_t i = 0; i < v->n_send; i++)
		v->send_free[i] = i;
	o.addr = v->mem;
	return fabric_region_new(v->pd, &o, &v->region, err);
}

static void prove_ask(const struct ros2_session *s, struct wire_verbs_ask *ask, uint32_t qpn)
{
	const struct crypto_span parts[] = {{WIRE_LABEL_VERBS, sizeof(WIRE_LABEL_VERBS)},
	                                    {ask->session_uid, sizeof(ask->session_uid)},
	                                    {ask->tenant_nonce, sizeof(ask->tenant_nonce)},
	                                    {&qpn, sizeof(qpn)}};
	uint8_t mac[SHA256_LEN];

	crypto_hmac_sha256v(s->granted.secret, sizeof(s->granted.secret), parts, ARRAY_SIZE(parts),
	                    mac);
	memcpy(ask->proof, mac, sizeof(ask->proof));
}

/* The queue pair has its number: receives are posted, and the private data is made for it. */
static int prepare(void *arg, struct fabric_qp *qp)
{
	struct ros2_session *s = arg;
	struct verbs_link *v = s->verbs;
	int rc = 0;

	for (uint32_t i = 0; i < v->n_recv && rc == 0; i++)
		rc = post_receive(v, qp, i);
	v->ask = (struct wire_verbs_ask){.version = WIRE_VERBS_VERSION};
	memcpy(v->ask.session_uid, s->granted.uid, sizeof(v->ask.session_uid));
	crypto_random(v->ask.tenant_nonce, sizeof(v->ask.tenant_nonce));
	prove_ask(s, &v->ask, fabric_qp_number(qp));
	return rc == 0 ? fabric_qp_flush(qp, clock_boottime_ns()) : rc;
}

static int ask(struct ros2_session *s, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	const struct fabric_dev_attr *a;
	struct fabric_conn_opts o = {
		.qp = {.send_parts = 2,
	               .windows =
	                       MIN(s->granted.regions_max ? s->granted.regions_max : VERBS_WINDOWS,
	                           VERBS_WINDOWS),
	               .remote_access = FABRIC_READ | FABRIC_WRITE},
		.hello = {&v->ask, sizeof(v->ask)},
		.prepare = prepare,
		.arg = s,
	};
	int rc = verbs_use_device(s, fabric_conn_device(v->conn), err);

	if (rc == 0)
		rc = make_buffers(s, err);
	if (rc < 0)
		return rc;
	a = fabric_dev_attr(v->dev);
	o.qp.recv_depth = v->n_recv;
	o.qp.send_depth = v->n_send + VERBS_WINDOWS; /* binds */
	o.qp.reads_in = (uint8_t)MIN(VERBS_READS_IN, MAX(a->max_reads_in, 1));
	return fabric_conn_ask(v->conn, v->set, &o, &v->qp, err);
}

static void refused(struct verbs_link *v, const struct fabric_conn_event *e)
{
	struct wire_verbs_refusal r = {0};
	bool said = e->data_len >= sizeof(r);
	enum ros2_status st;

	if (said)
		memcpy(&r, e->data, sizeof(r));
	said = said && r.version == WIRE_VERBS_VERSION && r.status && r.status < ROS2_STATUS_COUNT;
	st = said ? r.status : ROS2_UNAVAILABLE;
	ros2_err_named(&v->why, st, "the agent refused the RDMA connection: %s",
	               said ? ros2_status_text(st) : e->words);
}

static void on_conn(void *arg, const struct fabric_conn_event *e)
{
	struct verbs_link *v = arg;

	if (e->conn != v->conn)
		return;
	switch (e->kind) {
	case FABRIC_CONN_EVENT_RESOLVED:
		v->resolved = true;
		return;
	case FABRIC_CONN_EVENT_ESTABLISHED:
		v->answer_len = MIN(e->data_len, (uint32_t)sizeof(v->answer));
		memcpy(v->answer, e->data, v->answer_len);
		v->established = true;
		return;
	case FABRIC_CONN_EVENT_REJECTED:
		refused(v, e);
		break;
	default:
		ros2_err_named(&v->why, v->established ? ROS2_CLOSED : ROS2_UNAVAILABLE,
		               "the RDMA connection: %s", e->words);
	}
	v->over = true;
}

static void take_events(struct verbs_link *v)
{
	fabric_cm_events(v->cm, on_conn, v);
	fabric_cm_tick(v->cm, clock_boottime_ns(), on_conn, v);
}

static int is_over(const struct verbs_link *v, struct ros2_err *err)
{
	if (!v->over)
		return 0;
	if (err)
		*err = v->why;
	return v->why.code;
}

static void verbs_poll(struct ros2_session *s, int timeout_ms);

/* Until @flag, the end, or the deadline. */
static int wait_for(struct ros2_session *s, const bool *flag, uint64_t deadline_ns,
                    struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	bool moved = false;
	int rc = 0;

	for (;;) {
		uint64_t now = clock_monotonic_ns();

		take_events(v);
		if (v->qp && !v->over)
			rc = verbs_take(s, &moved, err);
		if (*flag || rc < 0)
			return rc;
		rc = is_over(v, err);
		if (rc < 0)
			return rc;
		if (now >= deadline_ns)
			return ros2_err_named(err, ROS2_TIMEOUT,
			                      "the agent did not answer over RDMA in time");
		verbs_poll(s, (int)MIN((deadline_ns - now) / NS_PER_MS + 1, 500));
	}
}

static int resolve(struct ros2_session *s, uint64_t deadline_ns, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *ai;
	struct verbs_link *v = s->verbs;
	char host[256], port[8];
	int rc = link_split_address(s->granted.data_address, host, port, err);

	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, &ai);
	if (rc)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "the agent's RDMA address '%s': %s",
		                      s->granted.data_address, gai_strerror(rc));
	rc = fabric_connect(v->cm, NULL, ai->ai_addr, 1, &v->conn, err);
	freeaddrinfo(ai);
	return rc == 0 ? wait_for(s, &v->resolved, deadline_ns, err) : rc;
}

/* ---- HELLO and WELCOME ---- */

static int send_hello(struct ros2_session *s, const struct wire_hello *hello, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	struct wire_header h = {
		.opcode = WIRE_HELLO, .length = WIRE_FEATURES_KNOWN, .payload_len = sizeof(*hello)};
	uint32_t place = v->send_free[--v->n_send_free];
	struct fabric_part part = {v->region, send_at(v, place), sizeof(h) + sizeof(*hello)};
	struct fabric_wr wr = {
		.cookie = (uint64_t)VERBS_SEND << 32 | place, .parts = &part, .n_parts = 1};
	int rc;

	codec_seal(&h);
	memcpy(v->mem + part.offset, &h, sizeof(h));
	memcpy(v->mem + part.offset + sizeof(h), hello, sizeof(*hello));
	v->send_slot[place] = -1;
	rc = fabric_send(v->qp, &wr);
	if (rc == 0)
		rc = fabric_qp_flush(v->qp, clock_boottime_ns());
	return rc < 0 ? ros2_err_named(err, ROS2_CLOSED, "cannot send HELLO: %s", strerror(-rc))
	              : 0;
}

static int check_first(const struct ros2_session *s, const uint8_t *proof, struct wire_welcome *ret,
                       struct ros2_err *err)
{
	const struct verbs_link *v = s->verbs;
	struct wire_header h;
	int rc;

	if (v->first_len < sizeof(h))
		return ros2_err_named(err, ROS2_PROTOCOL, "a message shorter than a header");
	memcpy(&h, v->first, sizeof(h));
	rc = codec_check(&h, err);
	if (rc)
		return rc;
	if (h.opcode != WIRE_WELCOME || h.payload_len != sizeof(*ret) ||
	    v->first_len != sizeof(h) + sizeof(*ret))
		return ros2_err_named(err, ROS2_PROTOCOL, "expected WELCOME, the agent sent %s",
		                      codec_opcode_to_str(h.opcode));
	memcpy(ret, v->first + sizeof(h), sizeof(*ret));
	if (!crypto_equal(proof, ret->proof, sizeof(ret->proof)) && !CLIENT_SWITCH(no_agent_proof))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "whoever answers at %s does not know the session's secret",
		                      s->granted.data_address);
	if (!ret->credits || ret->credits > v->n_recv - VERBS_SPARE)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "WELCOME offers %u credits, the session was opened with %u",
		                      ret->credits, v->n_recv - VERBS_SPARE);
	return 0;
}

static int shake_hands(struct ros2_session *s, uint64_t deadline_ns, struct wire_welcome *ret,
                       struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	struct wire_verbs_answer answer;
	struct wire_hello hello;
	uint8_t proof[WIRE_MAC_LEN];
	struct codec_proof p = {s->granted.secret, hello.session_uid, answer.agent_nonce,
	                        hello.tenant_nonce};
	int rc;

	if (v->answer_len < sizeof(answer) || v->answer[0] != WIRE_VERBS_VERSION)
		return ros2_err_named(err, ROS2_VERSION,
		                      "the agent answered the RDMA connection in another version");
	memcpy(&answer, v->answer, sizeof(answer));
	memcpy(hello.session_uid, s->granted.uid, sizeof(hello.session_uid));
	crypto_random(hello.tenant_nonce, sizeof(hello.tenant_nonce));
	codec_prove(&p, WIRE_LABEL_TENANT, hello.proof);
	rc = send_hello(s, &hello, err);
	if (rc == 0)
		rc = wait_for(s, &v->has_first, deadline_ns, err);
	if (rc)
		return rc;
	codec_prove(&p, WIRE_LABEL_AGENT, proof);
	rc = check_first(s, proof, ret, err);
	if (rc == 0 &&
	    post_receive(v, v->qp, (uint32_t)((v->first - v->mem) / VERBS_RECV_BYTES)) < 0)
		rc = ros2_err_named(err, ROS2_CLOSED, "the RDMA connection has ended");
	v->first = NULL;
	return rc;
}

static int verbs_open(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err)
{
	uint64_t deadline = clock_add_ns(clock_monotonic_ns(), timeout_ms * NS_PER_MS);
	struct wire_welcome w;
	int rc = 0;

	if (!s->verbs) {
		s->verbs = calloc(1, sizeof(*s->verbs));
		if (!s->verbs)
			return ros2_err_set(err, -ENOMEM, "no memory for a connection");
		rc = fabric_cm_new(&(struct fabric_cm_opts){0}, &s->verbs->cm, err);
		if (rc < 0) {
			free(TAKE_PTR(s->verbs));
			return rc;
		}
	}
	verbs_link_cut(s);
	rc = resolve(s, deadline, err);
	if (rc == 0)
		rc = ask(s, err);
	if (rc == 0)
		rc = wait_for(s, &s->verbs->established, deadline, err);
	if (rc == 0)
		rc = shake_hands(s, deadline, &w, err);
	if (rc == 0)
		rc = link_take_welcome(s, &w, err);
	if (rc < 0) {
		verbs_link_cut(s);
		return ros2_err_prefix(err, "RDMA connection to %s", s->granted.data_address);
	}
	return 0;
}

/* ---- messages ---- */

struct said {
	uint64_t qp_id;
	const char *words; /* static; NULL = nothing */
};

static void on_device(void *arg, const struct fabric_event *e)
{
	struct said *said = arg;

	if (e->kind == FABRIC_EVENT_DEVICE_REMOVED ||
	    (e->kind == FABRIC_EVENT_QP_FAILED && e->qp_id == said->qp_id))
		said->words = e->words;
}

static int broke(struct ros2_session *s, const struct fabric_completion *e, struct ros2_err *err)
{
	struct said said = {.qp_id = fabric_qp_id(e->qp)};

	/* The connection manager, or a NAK, may have said more. */
	take_events(s->verbs);
	if (s->nak.code) {
		if (err)
			*err = s->nak;
		return s->nak.code;
	}
	if (s->verbs->over)
		return is_over(s->verbs, err);
	(void)fabric_dev_events(s->verbs->dev, on_device, &said);
	return ros2_err_named(
		err, ROS2_CLOSED,
		"the RDMA connection to the agent failed at %s: %s (status %u, vendor "
		"error %u); the device %s%s",
		fabric_op_to_str(e->op), fabric_end_to_str(e->end), e->device_status, e->vendor_err,
		said.words ? "reports: " : "reports no event", said.words ? said.words : "");
}

/* Anything but 0 ends the connection. */
static int on_message(struct ros2_session *s, uint8_t *mem, uint32_t bytes, struct ros2_err *err)
{
	struct wire_header h;
	void *to = NULL;
	int rc;

	if (bytes < sizeof(h))
		return ros2_err_named(err, ROS2_PROTOCOL, "a message shorter than a header");
	memcpy(&h, mem, sizeof(h));
	rc = codec_check(&h, err);
	if (rc == 0 && bytes - sizeof(h) != h.payload_len)
		rc = ros2_err_named(err, ROS2_PROTOCOL,
		                    "the agent sent %s that is not as long as it says",
		                    codec_opcode_to_str(h.opcode));
	if (rc == 0)
		rc = requests_rx_ops.on_header(s, &h, &to, err);
	if (rc)
		return rc;
	if (h.payload_len)
		memcpy(to, mem + sizeof(h), h.payload_len);
	return requests_rx_ops.on_message(s, &h, err);
}

static int received(struct ros2_session *s, uint32_t i, uint32_t bytes, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	int rc;

	s->silent_ns = s->pinged_ns = 0;
	s->looked_ns = clock_monotonic_ns();
	if (!v->has_first) {
		v->first = recv_mem(v, i);
		v->first_len = bytes;
		v->has_first = true;
		return 0;
	}
	rc = on_message(s, recv_mem(v, i), bytes, err);
	if (rc == 0 && post_receive(v, v->qp, i) < 0)
		rc = ros2_err_named(err, ROS2_CLOSED, "the RDMA connection has ended");
	return rc;
}

static void sent(struct ros2_session *s, uint32_t place)
{
	struct verbs_link *v = s->verbs;

	v->send_free[v->n_send_free++] = place;
	if (v->send_slot[place] >= 0)
		requests_entry_sent(s, v->send_slot[place]);
}

static int completed(struct ros2_session *s, const struct fabric_completion *e,
                     struct ros2_err *err)
{
	uint32_t i = (uint32_t)e->cookie;

	if (e->end != FABRIC_END_OK)
		return broke(s, e, err);
	switch ((enum verbs_kind)(e->cookie >> 32)) {
	case VERBS_RECV:
		return received(s, i, e->bytes, err);
	case VERBS_SEND:
		sent(s, i);
		return 0;
	default:
		return 0;
	}
}

int verbs_take(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	struct fabric_completion ends[32];
	int rc = 0;

	for (int round = 0; round < TAKE_PER_ROUND; round++) {
		int n = fabric_set_poll(v->set, ends, ARRAY_SIZE(ends));

		if (n < 0)
			return ros2_err_named(err, ROS2_CLOSED, "the RDMA device failed");
		for (int i = 0; i < n && rc == 0; i++)
			rc = completed(s, &ends[i], err);
		if (rc)
			return rc;
		*ret_moved |= n > 0;
		if (n < (int)ARRAY_SIZE(ends))
			break;
	}
	/* The receives that were posted again. */
	if (*ret_moved && v->qp && fabric_qp_flush(v->qp, clock_boottime_ns()) < 0)
		return ros2_err_named(err, ROS2_CLOSED, "the RDMA connection has ended");
	return 0;
}

/* The header from our memory, payload from where the program has it. */
static int post_entry(struct ros2_session *s, const struct tx_entry *e)
{
	struct verbs_link *v = s->verbs;
	uint32_t place = v->send_free[v->n_send_free - 1];
	struct fabric_part parts[2] = {{v->region, send_at(v, place), WIRE_HEADER_LEN}};
	struct fabric_wr wr = {
		.cookie = (uint64_t)VERBS_SEND << 32 | place, .parts = parts, .n_parts = 1};
	int rc;

	memcpy(v->mem + parts[0].offset, &e->head, WIRE_HEADER_LEN);
	if (e->head.payload_len) {
		const struct ros2_region *r = s->requests[e->slot].region;

		parts[1] = (struct fabric_part){r->fabric,
		                                (uint64_t)((const uint8_t *)e->payload - r->addr),
		                                e->head.payload_len};
		wr.n_parts = 2;
	}
	rc = fabric_send(v->qp, &wr);
	if (rc < 0)
		return rc;
	v->send_slot[place] = e->slot;
	v->n_send_free--;
	if (e->slot >= 0)
		requests_entry_begun(s, e->slot);
	return 0;
}

static int send_waiting(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct verbs_link *v = s->verbs;
	const struct tx_entry *e;
	int rc = 0;

	while (v->n_send_free && (e = tx_peek(&s->tx)) != NULL) {
		rc = post_entry(s, e);
		if (rc < 0)
			break;
		tx_pop(&s->tx);
		*ret_moved = true;
	}
	if (rc == 0 || rc == -EBUSY)
		rc = fabric_qp_flush(v->qp, clock_boottime_ns());
	if (rc == 0)
		return 0;
	/* Why is in the completions. */
	rc = verbs_take(s, ret_moved, err);
	return rc < 0 ? rc : ros2_err_named(err, ROS2_CLOSED, "the RDMA connection has ended");
}

static int verbs_progress(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	int rc;

	verbs_windows_expire(s);
	fabric_set_tick(s->verbs->set, clock_boottime_ns());
	take_events(s->verbs);
	rc = verbs_take(s, ret_moved, err);
	if (rc == 0)
		rc = is_over(s->verbs, err);
	if (rc == 0)
		rc = send_waiting(s, ret_moved, err);
	return rc;
}

static int verbs_listen(struct ros2_session *s, struct ros2_err *err)
{
	bool moved = false;
	int rc;

	take_events(s->verbs);
	rc = verbs_take(s, &moved, err);
	return rc == 0 ? is_over(s->verbs, err) : rc;
}

static void no_set(void *arg, struct fabric_set *set)
{
}

static void verbs_poll(struct ros2_session *s, int timeout_ms)
{
	struct verbs_link *v = s->verbs;
	struct ros2_err err = ROS2_ERR_INIT;
	bool moved = false;
	struct pollfd p[] = {
		{.fd = fabric_cm_fd(v->cm), .events = POLLIN},
		{.fd = v->channel ? fabric_channel_fd(v->channel) : -1, .events = POLLIN}};

	/* What came before it was armed gives no event. */
	if (v->qp && !v->over) {
		fabric_set_arm(v->set);
		if (verbs_take(s, &moved, &err) < 0) {
			v->over = true;
			v->why = err;
		}
	}
	if (moved || v->over)
		return;
	/* An interrupted or failed poll only means that the caller looks again. */
	(void)poll(p, ARRAY_SIZE(p), timeout_ms);
	if (v->channel)
		fabric_channel_events(v->channel, no_set, NULL);
}

const struct link_ops verbs_link_ops = {
	.open = verbs_open,
	.progress = verbs_progress,
	.send = verbs_progress,
	.listen = verbs_listen,
	.poll = verbs_poll,
};
