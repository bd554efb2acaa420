/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and payload over verbs. What came is looked at in order, one buffer at a time, and its
 * buffer is posted again only then: a peer that sends more than its credits meets a queue without
 * receives. What is to leave is queued, then posted many at a time with one doorbell; before each
 * doorbell the clock is read, and every right behind what it would hand on is looked at. A request
 * whose work is posted is the device's until its last end has come: done, failed or flushed.
 */
#include "common/clock.h"
#include "dataplane/test_switches.h"
#include "dataplane/verbs.h"
#include "dataplane/verbs_priv.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

const char verbs_ended_by_device[] =
	"the RDMA device ended the agent's queue pair, as it does after a request that it refuses: "
	"the tenant's, or one forged in its name";

static void verbs_init(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);

	c->s = s;
	list_init(&c->out);
	list_init(&c->small_free);
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		s->requests[i].out = &c->outs[i];
		c->outs[i] = (struct verbs_out){.req = &s->requests[i], .place = i};
		list_init(&c->outs[i].link);
	}
	for (uint32_t i = 0; i < VERBS_SMALL; i++) {
		c->small[i] = (struct verbs_out){.place = DP_CREDITS + i};
		list_add_tail(&c->small_free, &c->small[i].link);
	}
}

/* ---- queueing ---- */

static void queue(struct session *s, struct verbs_out *m)
{
	list_add_tail(&verbs_of(s)->out, &m->link);
	session_want_output(s);
}

static void put_message(struct verbs_conn *c, struct verbs_out *m, struct wire_header h,
                        const void *payload)
{
	uint8_t *at = c->mem + verbs_send_at(m->place);

	wire_seal(&h);
	memcpy(at, &h, sizeof(h));
	if (payload)
		memcpy(at + WIRE_HEADER_LEN, payload, h.payload_len);
	m->len = WIRE_HEADER_LEN + h.payload_len;
}

void verbs_queue_small(struct session *s, const struct wire_header *h, const void *payload,
                       uint32_t len)
{
	struct verbs_conn *c = verbs_of(s);
	struct verbs_out *m;

	/* The receiver stops before the last one is used; an end without room loses only its words.
	 */
	if (list_empty(&c->small_free) || !c->mem)
		return;
	m = list_first(&c->small_free, struct verbs_out, link);
	list_del(&m->link);
	put_message(c, m, *h, payload);
	queue(s, m);
}

static void verbs_refuse(struct session *s, uint64_t request_id, enum ros2_status status,
                         const char *words)
{
	uint32_t len = words ? (uint32_t)strnlen(words, WIRE_WORDS_MAX) : 0;
	struct wire_header h = {.opcode = words ? WIRE_NAK : WIRE_COMPLETE,
	                        .request_id = request_id,
	                        .status = (uint16_t)status,
	                        .payload_len = len};

	verbs_queue_small(s, &h, words, len);
}

static void verbs_queue_request(struct session *s, struct request *req)
{
	queue(s, req->out);
}

/* ---- posting ---- */

static int post_message(struct verbs_conn *c, const struct verbs_out *m, enum verbs_kind kind,
                        uint32_t index)
{
	struct fabric_part part = {c->region, verbs_send_at(m->place), m->len};
	struct fabric_wr wr = {.cookie = verbs_cookie(kind, index), .parts = &part, .n_parts = 1};

	return fabric_send(c->qp, &wr);
}

static struct fabric_wr transfer_of(const struct request *req, struct fabric_part *part,
                                    enum verbs_kind kind, uint32_t bytes)
{
	const struct verbs_conn *c = verbs_of(req->s);

	*part = (struct fabric_part){c->t->region_of[req->slot.size_class][req->slot.index], 0,
	                             bytes};
	return (struct fabric_wr){
		.cookie = verbs_cookie(kind, (uint32_t)(req - req->s->requests)),
		.parts = part,
		.n_parts = 1,
		.remote_address = req->address,
		.remote_key = req->lease->window_key,
	};
}

/* May the payload of @req move now? Its lease is held then, and has a window. */
static enum ros2_status may_move(struct request *req, uint64_t now_ns)
{
	enum ros2_status st = request_may_hand_on(req, now_ns);

	if (st == ROS2_OK && (!req->lease || !req->lease->has_window))
		st = ROS2_BAD_KEY;
	return st == ROS2_CLOSED ? ROS2_BAD_KEY : st;
}

static int post_pull(struct request *req)
{
	struct fabric_part part;
	struct fabric_wr wr = transfer_of(req, &part, VERBS_PULL, req->length);
	int rc = fabric_read(verbs_of(req->s)->qp, &wr);

	if (rc == 0)
		request_to_device(req);
	return rc;
}

/* The payload and the COMPLETE behind it: the peer's device delivers them in this order. */
static int post_reply(struct request *req)
{
	struct verbs_conn *c = verbs_of(req->s);
	struct verbs_out *m = req->out;
	struct wire_header h = {.opcode = WIRE_COMPLETE,
	                        .request_id = req->id,
	                        .length = req->bytes,
	                        .status = (uint16_t)req->status};
	struct fabric_part part;
	struct fabric_wr wr;
	int rc;

	if (req->op == REQUEST_READ && req->bytes) {
		wr = transfer_of(req, &part, VERBS_DATA, req->bytes);
		wr.flags = FABRIC_QUIET;
		rc = fabric_write(c->qp, &wr);
		if (rc < 0)
			return rc;
	}
	put_message(c, m, h, NULL);
	rc = post_message(c, m, VERBS_REPLY, (uint32_t)(req - req->s->requests));
	if (rc == 0)
		request_to_device(req);
	return rc;
}

static int post_one(struct session *s, struct verbs_out *m, uint64_t now_ns, uint64_t *until_ns)
{
	struct request *req = m->req;
	enum ros2_status st = ROS2_OK;
	bool moves;

	if (!req)
		return post_message(verbs_of(s), m, VERBS_SHORT, m->place);
	moves = req->state == REQUEST_PULLING || (req->op == REQUEST_READ && req->bytes);
	if (moves)
		st = may_move(req, now_ns);
	/* The answer to a WRITE that is done may come after the end of its lease. */
	if (moves && st == ROS2_OK)
		*until_ns = MIN(*until_ns, request_until(req));
	if (st == ROS2_OK && req->state == REQUEST_PULLING)
		return post_pull(req);
	if (st != ROS2_OK) {
		req->status = st;
		req->bytes = 0;
		req->state = REQUEST_REPLY;
	}
	return post_reply(req);
}

/* A right ended between the look at it and the doorbell, which needs a process that was stopped:
 * what is queued at the queue pair cannot be taken back singly, so the connection ends. */
static int ring(struct session *s, uint64_t until_ns)
{
	uint64_t now_ns = clock_boottime_ns();
	enum ros2_status st;

	if (now_ns < until_ns)
		return fabric_qp_flush(verbs_of(s)->qp, now_ns);
	st = session_rights(s, now_ns);
	session_end(s, st == ROS2_OK ? ROS2_LEASE_EXPIRED : st,
	            "a right ended before the device was told of what was prepared");
	return 0;
}

/* One doorbell. False: no more now. */
static bool post_batch(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);
	uint64_t until_ns = session_rights_until(s), now_ns = clock_boottime_ns();
	enum ros2_status rights =
		DP_SWITCH(no_deadline_recheck) ? ROS2_OK : session_rights(s, now_ns);
	int rc = 0;

	if (rights != ROS2_OK) {
		session_end(s, rights, NULL);
		return false;
	}
	for (uint32_t n = 0; n < VERBS_BATCH && !list_empty(&c->out) && rc == 0; n++) {
		struct verbs_out *m = list_first(&c->out, struct verbs_out, link);

		if (fabric_qp_send_room(c->qp) < 2)
			break;
		list_del(&m->link);
		rc = post_one(s, m, now_ns, &until_ns);
	}
	if (rc == 0)
		rc = ring(s, until_ns);
	if (!session_alive(s))
		return false;
	s->last_send_ns = clock_boottime_ns();
	if (rc < 0)
		session_end(s, rc == -ENOTCONN ? ROS2_CLOSED : ROS2_INTERNAL,
		            "the RDMA connection takes no more work");
	return rc == 0 && fabric_qp_send_room(c->qp) >= 2;
}

static void verbs_flush(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);

	/* Before the connection stands nothing may be sent; its event brings us here again. */
	if (!c->qp || fabric_conn_state(c->conn) != FABRIC_CONN_UP)
		return;
	while (session_alive(s) && !list_empty(&c->out))
		if (!post_batch(s))
			break;
}

/* ---- is the host there? ---- */

/* A write of no bytes reaches no memory and needs no key, but the peer's device has to answer it:
 * one whose host has gone without a word ends as any work request there would. */
static const struct fabric_wr whether_there = {.cookie = (uint64_t)VERBS_ASK << 32};

void verbs_ask_whether_there(struct session *s, uint64_t now_ns)
{
	struct verbs_conn *c = verbs_of(s);
	uint64_t last_ns = MAX(s->last_send_ns, c->asked_ns);

	if (!session_alive(s) || !c->qp || fabric_conn_state(c->conn) != FABRIC_CONN_UP ||
	    c->asking || now_ns < clock_add_ns(last_ns, VERBS_ASK_NS) ||
	    !fabric_qp_send_room(c->qp))
		return;
	c->asked_ns = now_ns;
	c->asking = fabric_write(c->qp, &whether_there) == 0;
	if (c->asking)
		/* What it fails at is flushed, and ends the session when that is told. */
		(void)fabric_qp_flush(c->qp, now_ns);
}

/* ---- ends of work requests ---- */

/* A receive that failed: nobody checks who sent it but the device, so it is no violation. */
static void message_failed(struct session *s, const struct fabric_completion *e)
{
	char words[200];

	snprintf(words, sizeof(words),
	         "a message or request to the agent's queue pair that it does not take (%s, status "
	         "%u, vendor error %u): the tenant's, or forged in its name",
	         fabric_end_to_str(e->end), e->device_status, e->vendor_err);
	session_end(s, ROS2_PROTOCOL, words);
}

/*
 * A NAK names neither its sender nor a key: it may be forged, and where a device lets a peer
 * invalidate what is not its own (foreign-invalidate), another tenant ended the window. So it is
 * told what was refused and how, and this connection ends, but nothing is counted against the
 * tenant that it did not provably do. Who does name bad windows has one try for each connection:
 * a device carries out nothing behind what was refused.
 */
static void answered_no(struct session *s, const struct fabric_completion *e)
{
	bool moves = e->op == FABRIC_OP_READ || e->op == FABRIC_OP_WRITE;
	bool key = moves && e->end == FABRIC_END_REMOTE_ACCESS;
	char words[200];

	snprintf(words, sizeof(words),
	         "the tenant's device refused %s (status %u, vendor error %u): %sthe answer was "
	         "forged in its name",
	         fabric_op_to_str(e->op), e->device_status, e->vendor_err,
	         key ? "its window is gone, or not what was registered, or " : "it failed, or ");
	if (DP_SWITCH(refusals_count))
		session_violation(s, 0, ROS2_BAD_KEY, "%s", words);
	session_end(s, key ? ROS2_PROTOCOL : ROS2_CLOSED, words);
}

static void connection_failed(struct session *s, const struct fabric_completion *e)
{
	char words[200];

	if (s->state != SESSION_ENDED)
		verbs_of(s)->by_device = true;
	if (e->op == FABRIC_OP_RECV && e->end != FABRIC_END_FLUSHED) {
		message_failed(s, e);
		return;
	}
	switch (e->end) {
	case FABRIC_END_REMOTE_ACCESS:
	case FABRIC_END_REMOTE_OTHER:
		answered_no(s, e);
		break;
	case FABRIC_END_NO_RECEIVE:
		session_end(s, ROS2_PROTOCOL,
		            "the tenant posts no receives for its answers, or somebody says so in "
		            "its name");
		break;
	case FABRIC_END_NO_ANSWER:
		session_end(s, ROS2_CLOSED, "the tenant's device does not answer");
		break;
	case FABRIC_END_FLUSHED:
		session_end(s, ROS2_CLOSED, verbs_ended_by_device);
		break;
	default:
		snprintf(words, sizeof(words),
		         "the RDMA device failed at %s: %s (status %u, vendor error %u)",
		         fabric_op_to_str(e->op), fabric_end_to_str(e->end), e->device_status,
		         e->vendor_err);
		session_end(s, ROS2_INTERNAL, words);
	}
}

static void received(struct session *s, uint32_t buffer, uint32_t bytes)
{
	struct verbs_conn *c = verbs_of(s);

	if (s->state == SESSION_WAITING) {
		verbs_hello(s, verbs_recv_mem(c, buffer), bytes);
		if (session_alive(s) && verbs_post_receive(c, c->qp, buffer) == 0)
			fabric_qp_flush(c->qp, clock_boottime_ns());
		return;
	}
	c->rx[(c->rx_at + c->rx_n) % VERBS_RECVS].buffer = buffer;
	c->rx[(c->rx_at + c->rx_n++) % VERBS_RECVS].bytes = bytes;
	session_want_input(s);
}

/* Nobody has lent this peer a key, so it named another's. A device that holds to the specification
 * refuses the message; from one that does not we hear who it was only here. */
static void foreign_invalidate(struct session *s)
{
	static const char words[] =
		"a message that invalidates a key at the agent's device, where it has none";

	if (!session_alive(s))
		return;
	session_violation(s, 0, ROS2_BAD_KEY, "%s", words);
	session_end(s, ROS2_PROTOCOL, words);
}

static void reply_left(struct request *req)
{
	verbs_of(req->s)->moved += req->bytes + WIRE_HEADER_LEN;
	if (request_from_device(req))
		request_handed_on(req);
}

static void payload_came(struct request *req)
{
	verbs_of(req->s)->moved += req->length;
	if (!request_from_device(req))
		return;
	req->got = req->length;
	request_payload_arrived(req);
}

void verbs_completed(struct session *s, const struct fabric_completion *e)
{
	struct verbs_conn *c = verbs_of(s);
	uint32_t index = (uint32_t)e->cookie;

	if (e->end != FABRIC_END_OK)
		connection_failed(s, e); /* harmless when it has ended */
	switch ((enum verbs_kind)(e->cookie >> 32)) {
	case VERBS_RECV:
		if (e->end == FABRIC_END_OK && e->invalidated)
			foreign_invalidate(s);
		else if (e->end == FABRIC_END_OK && s->state != SESSION_ENDED)
			received(s, index, e->bytes);
		break;
	case VERBS_SHORT:
		list_add_tail(&c->small_free, &c->small[index - DP_CREDITS].link);
		if (session_alive(s) && c->rx_n)
			session_want_input(s);
		break;
	case VERBS_REPLY:
		reply_left(&s->requests[index]);
		break;
	case VERBS_PULL:
		payload_came(&s->requests[index]);
		break;
	case VERBS_DATA: /* told only when it failed; its request ends with its COMPLETE */
		break;
	case VERBS_ASK:
		c->asking = false;
		break;
	}
	if (session_alive(s))
		session_maybe_closed(s);
	session_maybe_gone(s);
}

/* ---- receiving ---- */

static bool on_request(struct session *s, const struct wire_header *h, const uint8_t *payload)
{
	struct request_in in = request_in_of(h);
	struct request *req;
	uint32_t len;

	switch (request_begin(s, &in, &req)) {
	case REQUEST_WAIT:
		return false;
	case REQUEST_REFUSED:
		return true;
	case REQUEST_TAKEN:
		break;
	}
	if (h->payload_len) {
		memcpy(request_buffer(req, &len), payload, h->payload_len);
		atomic_fetch_add_explicit(&s->stats.copied_bytes, h->payload_len,
		                          memory_order_relaxed);
		verbs_of(s)->moved += h->payload_len;
		req->got = h->payload_len;
		request_payload_arrived(req);
	}
	return true;
}

static void on_window(struct session *s, const struct wire_header *h)
{
	struct lease_window w = {.key = h->key,
	                         .generation = h->generation,
	                         .base = h->address,
	                         .length = h->offset, /* regions may be longer than 4 GiB */
	                         .window_key = (uint32_t)h->handle};
	enum ros2_status st =
		h->handle > UINT32_MAX || h->length
			? ROS2_INVALID
			: lease_set_window(s->r->leases, &w, s->conn, clock_boottime_ns());

	/* One that has ended meanwhile: a request under it will hear of that. */
	if (st != ROS2_OK && st != ROS2_LEASE_EXPIRED && st != ROS2_REVOKED)
		session_violation(s, h->request_id, st, "WINDOW: %s",
		                  st == ROS2_OUT_OF_RANGE ? "not the memory that was registered"
		                  : st == ROS2_BUSY       ? "the key's window is in use"
		                                          : ros2_status_text(st));
}

/* False: it must wait, with its buffer. */
static bool on_message(struct session *s, const struct wire_header *h, const uint8_t *payload)
{
	struct wire_header pong = {.opcode = WIRE_PONG, .request_id = h->request_id};

	switch (h->opcode) {
	case WIRE_READ:
	case WIRE_WRITE:
	case WIRE_FLUSH:
	case WIRE_ZERO:
	case WIRE_DISCARD:
		return on_request(s, h, payload);
	case WIRE_WINDOW:
		on_window(s, h);
		return true;
	case WIRE_PING:
		verbs_queue_small(s, &pong, NULL, 0);
		return true;
	case WIRE_PONG:
		return true;
	case WIRE_BYE:
		s->state = SESSION_CLOSING;
		return true;
	case WIRE_DATA:
		session_end(s, ROS2_PROTOCOL, "DATA: over verbs payload is not sent");
		return true;
	case WIRE_MAPPED:
		session_end(s, ROS2_PROTOCOL, "MAPPED: memory is mapped over shm, this is verbs");
		return true;
	default:
		session_end(s, ROS2_PROTOCOL, "a second HELLO");
		return true;
	}
}

static bool take_one(struct session *s, uint32_t buffer, uint32_t bytes)
{
	const uint8_t *mem = verbs_recv_mem(verbs_of(s), buffer);
	struct wire_header h;
	const char *words;
	enum ros2_status st = ROS2_PROTOCOL;

	if (bytes < WIRE_HEADER_LEN)
		words = "a message shorter than a header";
	else
		st = wire_parse_from_tenant(mem, &h, &words);
	if (st == ROS2_OK && bytes != WIRE_HEADER_LEN + h.payload_len) {
		st = ROS2_PROTOCOL;
		words = "a message is not as long as its header says";
	}
	if (st == ROS2_OK)
		return on_message(s, &h, mem + WIRE_HEADER_LEN);
	session_end_bad_message(s, st, words);
	return true;
}

static void verbs_receive(struct session *s)
{
	struct verbs_conn *c = verbs_of(s);
	bool posted = false;
	int rc = 0;

	while (session_alive(s) && c->rx_n && rc == 0) {
		uint32_t buffer = c->rx[c->rx_at].buffer;

		/* A message may need a short answer: without room for one the peer has to take
		 * those it has first. */
		if (list_empty(&c->small_free))
			break;
		if (!take_one(s, buffer, c->rx[c->rx_at].bytes)) {
			session_want_input(s);
			break;
		}
		if (!session_alive(s))
			return;
		c->rx_at = (c->rx_at + 1) % VERBS_RECVS;
		c->rx_n--;
		rc = verbs_post_receive(c, c->qp, buffer);
		posted = true;
	}
	if (session_alive(s) && posted && rc == 0)
		rc = fabric_qp_flush(c->qp, clock_boottime_ns());
	if (session_alive(s) && rc < 0)
		session_end(s, ROS2_CLOSED, "the RDMA connection takes no more work");
	session_maybe_closed(s);
}

/* ---- the rest of the table ---- */

/* Steps 1 and 2 of the end of a connection; whatever the peer has not got yet it will not get. */
static void verbs_close(struct session *s, bool discard)
{
	struct verbs_conn *c = verbs_of(s);

	c->ended_ns = clock_boottime_ns();
	if (c->qp)
		fabric_qp_kill(c->qp, NULL);
	fabric_conn_free(TAKE_PTR(c->conn));
}

static void verbs_forget(struct session *s, struct request *req)
{
	list_del(&((struct verbs_out *)req->out)->link);
}

/* What is posted is on its way until the peer's device has said that it is there. */
static bool verbs_idle(const struct session *s)
{
	const struct verbs_conn *c = verbs_of(s);

	return list_empty(&c->out) && !(c->qp && fabric_qp_outstanding(c->qp));
}

static bool verbs_waits_for_peer(const struct session *s)
{
	return s->n_device || !list_empty(&verbs_of(s)->out);
}

static uint64_t verbs_moved(const struct session *s)
{
	return verbs_of(s)->moved;
}

static bool verbs_still_busy(const struct session *s)
{
	const struct verbs_conn *c = verbs_of(s);

	return c->qp && fabric_qp_outstanding(c->qp) > 0;
}

static void verbs_end_more(const struct session *s, char *out, size_t max)
{
	const struct verbs_conn *c = verbs_of(s);
	const char *said = c->by_device ? verbs_device_said(s->dp, c->qp_id) : NULL;

	if (c->by_device)
		snprintf(out, max, "; the device %s%s", said ? "reports: " : "reports no event",
		         said ? said : "");
}

const struct transport_ops transport_verbs = {
	.name = "verbs",
	.needs_window = true,
	.channel_size = sizeof(struct verbs_conn),
	.init = verbs_init,
	.reply = verbs_queue_request,
	.pull = verbs_queue_request,
	.refuse = verbs_refuse,
	.receive = verbs_receive,
	.flush = verbs_flush,
	.close = verbs_close,
	.forget = verbs_forget,
	.idle = verbs_idle,
	.waits_for_peer = verbs_waits_for_peer,
	.moved = verbs_moved,
	.busy = verbs_still_busy,
	.end_more = verbs_end_more,
	.gone = verbs_conn_free,
};
