/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections over verbs before they have proved anything. A stranger gets no queue pair and no
 * memory: the connection request itself must carry a proof of a waiting session's secret, for the
 * very queue pair that asks; what it lacks against replays (it cannot hold a nonce of ours) the
 * first message makes up for: HELLO with the proof over both nonces, answered by WELCOME. Nothing
 * else is taken before. A wrong one after the proof in the request ends the session.
 *
 * So there is no place that an unproved connection could take from another, and no cap of an
 * address as over TCP (hello.c): a request is answered in the callback that brings it, and one
 * that was proved is its session's, which has one, and its tenant's, which has few. What waits
 * before that is the kernel's: VERBS_BACKLOG of a listener, in the order of their coming, from
 * whatever address. An address is only known of what was taken from there, and then a refusal is
 * all that is left to do, for which knowing the proof is wrong is the cheaper reason.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs_priv.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

static void peer_name(const struct sockaddr *a, char out[64])
{
	socklen_t len =
		a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	char host[48], port[8];

	if (a->sa_family == AF_UNSPEC || getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
	                                             NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(out, 64, "unknown");
	else
		snprintf(out, 64, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static void refuse(struct verbs *v, struct fabric_conn *conn, enum ros2_status st,
                   const char *words, const struct session *of)
{
	struct wire_verbs_refusal data = {.version = WIRE_VERBS_VERSION, .status = (uint16_t)st};
	struct fabric_conn_private why = {&data, sizeof(data)};
	char peer[64];

	if (DP_SWITCH(no_early_refusal))
		return; /* the connection manager's time for it ends it */
	peer_name(fabric_conn_peer(conn), peer);
	hello_refused(v->r, of, st, peer, words);
	/* An accept that failed has told the peer already. */
	if (fabric_conn_state(conn) == FABRIC_CONN_REQUESTED)
		fabric_conn_reject(conn, &why);
	fabric_conn_free(conn);
}

static struct session *waiting_session(struct reactor *r, const uint8_t uid[16])
{
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		struct session *s = r->sessions[i];

		if (s && s->state == SESSION_WAITING && s->transport == &transport_verbs &&
		    !memcmp(s->uid.b, uid, 16))
			return s;
	}
	return NULL;
}

static bool ask_is_proved(const struct session *s, const struct wire_verbs_ask *ask, uint32_t qpn)
{
	struct crypto_span parts[] = {{WIRE_LABEL_VERBS, sizeof(WIRE_LABEL_VERBS)},
	                              {ask->session_uid, sizeof(ask->session_uid)},
	                              {ask->tenant_nonce, sizeof(ask->tenant_nonce)},
	                              {&qpn, sizeof(qpn)}};
	uint8_t want[SHA256_LEN];

	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), want);
	return DP_SWITCH(no_proof) || crypto_equal(want, ask->proof, sizeof(ask->proof));
}

int verbs_post_receive(struct verbs_conn *c, struct fabric_qp *qp, uint32_t buffer)
{
	struct fabric_part part = {c->region, (uint64_t)buffer * VERBS_RECV_BYTES,
	                           VERBS_RECV_BYTES};
	struct fabric_wr wr = {
		.cookie = verbs_cookie(VERBS_RECV, buffer), .parts = &part, .n_parts = 1};

	return fabric_recv(qp, &wr);
}

static int post_receives(void *arg, struct fabric_qp *qp)
{
	struct verbs_conn *c = arg;
	int rc = 0;

	for (uint32_t i = 0; i < VERBS_RECVS && rc == 0; i++)
		rc = verbs_post_receive(c, qp, i);
	return rc == 0 ? fabric_qp_flush(qp, clock_boottime_ns()) : rc;
}

static int make_memory(struct verbs_conn *c, struct session *s, struct ros2_err *err)
{
	struct fabric_region_opts o = {.length = VERBS_MEMORY};

	c->mem = calloc(1, VERBS_MEMORY);
	if (!c->mem)
		return ros2_err_set(err, -ENOMEM, "no memory for a connection");
	o.addr = c->mem;
	return fabric_region_new(s->tenant->pd, &o, &c->region, err);
}

void verbs_conn_free(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);

	fabric_conn_free(TAKE_PTR(c->conn));
	fabric_qp_free(TAKE_PTR(c->qp));
	verbs_memory_free(s->r->verbs, TAKE_PTR(c->region), TAKE_PTR(c->mem));
	if (c->t)
		verbs_tenant_leave(s->r->verbs, TAKE_PTR(c->t));
}

/* The proof is good: the tenant's own resources. */
static int take_in(struct verbs *v, struct session *s, struct fabric_conn *conn,
                   struct ros2_err *err)
{
	struct verbs_conn *c = verbs_of(s);
	struct wire_verbs_answer answer = {.version = WIRE_VERBS_VERSION};
	struct fabric_conn_opts o = {.qp = {.cookie = (uintptr_t)s,
	                                    .send_depth = VERBS_SEND_DEPTH,
	                                    .recv_depth = VERBS_RECVS,
	                                    .inline_bytes = WIRE_HEADER_LEN,
	                                    .reads_out = VERBS_READS_OUT,
	                                    .rnr_forever = DP_SWITCH(no_rnr_limit)},
	                             .hello = {&answer, sizeof(answer)},
	                             .prepare = post_receives,
	                             .arg = c};
	int rc;

	if (DP_SWITCH(remote_operations)) {
		o.qp.remote_access = FABRIC_READ | FABRIC_WRITE;
		o.qp.reads_in = VERBS_READS_OUT;
	}
	c->t = verbs_tenant_enter(v, s, err);
	if (!c->t)
		return -ENOSPC;
	rc = make_memory(c, s, err);
	if (rc < 0)
		return rc;
	crypto_random(c->agent_nonce, sizeof(c->agent_nonce));
	memcpy(answer.agent_nonce, c->agent_nonce, sizeof(answer.agent_nonce));
	rc = fabric_conn_accept(conn, c->t->set, &o, &c->qp, err);
	c->qp_id = rc == 0 ? fabric_qp_id(c->qp) : 0;
	return rc;
}

static void on_ask(struct verbs *v, const struct fabric_conn_event *e)
{
	uint64_t now_ns = clock_boottime_ns();
	struct ros2_err err = ROS2_ERR_INIT;
	struct wire_verbs_ask ask;
	struct session *s;

	if (e->data_len < sizeof(ask)) {
		refuse(v, e->conn, ROS2_PROTOCOL, "a connection request without a proof", NULL);
		return;
	}
	memcpy(&ask, e->data, sizeof(ask));
	if (ask.version != WIRE_VERBS_VERSION || ask.reserved[0] || ask.reserved[1] ||
	    ask.reserved[2]) {
		refuse(v, e->conn, ROS2_VERSION, "a connection request of another version", NULL);
		return;
	}
	s = waiting_session(v->r, ask.session_uid);
	if (!s || verbs_of(s)->t || now_ns >= s->hello_deadline_ns ||
	    session_rights(s, now_ns) != ROS2_OK ||
	    !ask_is_proved(s, &ask, fabric_conn_peer_qpn(e->conn))) {
		refuse(v, e->conn, ROS2_UNAUTHENTICATED, "no session waits for this proof", s);
		return;
	}
	peer_name(fabric_conn_peer(e->conn), verbs_of(s)->peer);
	if (take_in(v, s, e->conn, &err) < 0) {
		/* Not for what it is, but for what there is: the next session may find room. */
		refuse(v, e->conn, ROS2_LIMIT, err.msg, s);
		verbs_conn_free(s);
		session_end(s, ROS2_CLOSED, err.msg);
		return;
	}
	verbs_of(s)->conn = e->conn;
	fabric_conn_set_cookie(e->conn, (uintptr_t)s);
}

void verbs_conn_event(void *arg, const struct fabric_conn_event *e)
{
	struct verbs *v = arg;
	struct session *s = (struct session *)(uintptr_t)fabric_conn_cookie(e->conn);

	if (e->kind == FABRIC_CONN_EVENT_REQUEST)
		on_ask(v, e);
	else if (!s)
		fabric_conn_free(e->conn); /* one that was refused, or has gone */
	else if (e->kind == FABRIC_CONN_EVENT_ESTABLISHED)
		session_want_output(s);
	else
		session_end(s, ROS2_CLOSED,
		            session_alive(s) ? "the tenant, or a request in the name of its queue "
		                               "pair, ended the connection"
		                             : "the connection ended before it was proved");
}

/* ---- HELLO ---- */

static void proof_of(const struct session *s, const char *label, size_t label_len,
                     const struct wire_hello *hello, uint8_t out[WIRE_MAC_LEN])
{
	struct crypto_span parts[] = {{label, label_len},
	                              {hello->session_uid, sizeof(hello->session_uid)},
	                              {verbs_of(s)->agent_nonce, WIRE_NONCE_LEN},
	                              {hello->tenant_nonce, WIRE_NONCE_LEN}};

	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), out);
}

static bool hello_is_good(struct session *s, const uint8_t *bytes, uint32_t len,
                          struct wire_hello *ret, uint32_t *ret_features)
{
	uint64_t now_ns = clock_boottime_ns();
	uint8_t want[WIRE_MAC_LEN];
	struct wire_header h;
	const char *words;

	if (len != WIRE_HEADER_LEN + sizeof(*ret) ||
	    wire_parse_from_tenant(bytes, &h, &words) != ROS2_OK || h.opcode != WIRE_HELLO)
		return false;
	memcpy(ret, bytes + WIRE_HEADER_LEN, sizeof(*ret));
	*ret_features = h.length;
	proof_of(s, WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT), ret, want);
	return (DP_SWITCH(no_proof) || crypto_equal(want, ret->proof, sizeof(want))) &&
	       !memcmp(ret->session_uid, s->uid.b, sizeof(ret->session_uid)) &&
	       now_ns < s->hello_deadline_ns && session_rights(s, now_ns) == ROS2_OK;
}

void verbs_hello(struct session *s, const uint8_t *bytes, uint32_t len)
{
	struct wire_header h = {.opcode = WIRE_WELCOME, .payload_len = sizeof(struct wire_welcome)};
	struct wire_welcome w = {
		.credits = DP_CREDITS, .max_io = WIRE_IO_MAX, .max_inline = WIRE_VERBS_INLINE_MAX};
	struct verbs_conn *c = verbs_of(s);
	struct wire_hello hello;
	uint32_t features;

	if (!hello_is_good(s, bytes, len, &hello, &features)) {
		hello_refused(s->r, s, ROS2_UNAUTHENTICATED, c->peer,
		              "the first message over verbs is no HELLO with this session's proof");
		session_end(s, ROS2_UNAUTHENTICATED, "a connection of it proved nothing");
		return;
	}
	proof_of(s, WIRE_LABEL_AGENT, sizeof(WIRE_LABEL_AGENT), &hello, w.proof);
	s->own = (struct slot_source){.pool = c->t->pool, .tenant = &c->t->use};
	w.features = session_connected(s, c->peer, features);
	verbs_queue_small(s, &h, &w, sizeof(w));
}
