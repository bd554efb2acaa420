/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a session and what the agent may say about them. Every message is checked against
 * the request it names before a byte lands or leaves; the states and invariants are in
 * internal_priv.h.
 *
 * A request that was answered while the send queue still names its memory is not DONE before those
 * entries have left: the agent cannot make us read memory that the user has back.
 */
#include "common/clock.h"
#include "common/utf8.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SLOT_BITS       16
#define WINDOW_PAUSE_NS NS_PER_MS /* until answers or receipts make room for a window */

/* ---- the table ---- */

int requests_init(struct ros2_session *s)
{
	s->n_requests = s->depth + INTERNAL_SLOTS;
	s->requests = calloc(s->n_requests, sizeof(*s->requests));
	if (!s->requests)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n_requests; i++)
		list_add_tail(&s->free, &s->requests[i].link);
	return tx_init(&s->tx, MAX(4 * s->credits, 4u * RX_STAGE_MAX / WIRE_HEADER_LEN));
}

static int slot_of(const struct ros2_session *s, const struct request *r)
{
	return (int)(r - s->requests);
}

struct request *request_get(struct ros2_session *s, bool internal)
{
	uint32_t *count = internal ? &s->n_internal : &s->n_user;
	struct request *r;

	if (*count >= (internal ? INTERNAL_SLOTS : s->depth))
		return NULL;
	r = list_first(&s->free, struct request, link);
	list_del(&r->link);
	(*count)++;
	*r = (struct request){.internal = internal};
	list_init(&r->link);
	return r;
}

void request_put(struct ros2_session *s, struct request *r)
{
	(*(r->internal ? &s->n_internal : &s->n_user))--;
	list_del(&r->link);
	r->state = REQ_FREE;
	list_add_tail(&s->free, &r->link);
}

static void move_to(struct request *r, struct list *to, enum request_state state)
{
	list_del(&r->link);
	list_add_tail(to, &r->link);
	r->state = state;
}

void request_prepare(struct ros2_session *s, struct request *r)
{
	r->file->users++;
	if (r->region)
		r->region->users++;
	move_to(r, &s->prepared, REQ_PREPARED);
}

void request_set_ready(struct ros2_session *s, struct request *r, uint64_t now_ns)
{
	r->ready_ns = now_ns;
	r->losses = r->file->losses_told;
	move_to(r, &s->ready, REQ_READY);
}

/* Most have none: printing nothing costs as much as the rest of a small read's end. */
static void set_words(struct request *r, const char *words)
{
	if (words && *words)
		snprintf(r->words, sizeof(r->words), "%s", words);
	else
		r->words[0] = '\0';
}

void request_done(struct ros2_session *s, struct request *r, enum ros2_status status,
                  int64_t result, const char *words)
{
	assert(!r->out_refs);
	r->file->users--;
	if (r->region)
		r->region->users--;
	r->status = status;
	r->result = result;
	if (words != r->words)
		set_words(r, words);
	move_to(r, r->internal ? &s->done_internal : &s->done, REQ_DONE);
}

static bool is_small_read(const struct request *r)
{
	return r->kind == REQ_READ && r->len <= RX_SMALL_READ;
}

/* It is no longer with the agent. */
static void unsend(struct ros2_session *s, struct request *r)
{
	s->n_sent--;
	if (s->over == ROS2_TRANSPORT_SHM && r->on_wire && !r->answered)
		shm_request_lost(s, r);
	if (r->piece_pages)
		shm_piece_put(s, r);
	if (r->region)
		r->region->n_sent--;
	if (r->kind == REQ_READ)
		s->n_reads_sent--;
	if (is_small_read(r))
		s->n_small_reads_sent--;
}

/* ---- sending ---- */

/* The agent could not be asked for a lease now. Requests wait for it as they do for a connection.
 */
static bool may_wait(struct ros2_session *s, const struct request *r, const struct ros2_err *err)
{
	uint64_t now = clock_monotonic_ns();

	if (err->status != ROS2_UNAVAILABLE && err->status != ROS2_TIMEOUT &&
	    err->status != ROS2_BUSY)
		return false;
	s->register_after_ns = clock_add_ns(now, REGISTER_PAUSE_MS * NS_PER_MS);
	return s->reconnect_ms != UINT32_MAX && now - r->ready_ns < s->reconnect_ms * NS_PER_MS;
}

/* Looks at the lease now, not at prep time: it may have been renewed in between. Returns false when
 * the request ended or has to wait instead. */
static bool take_key(struct ros2_session *s, struct request *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (!r->via || region_key(s, r->via, &r->key, &r->generation))
		return true;
	/* A lease that has ended before it can be used must not keep us here for ever. */
	if (r->retries >= LEASE_RETRIES)
		ros2_err_named(&err, ROS2_LEASE_EXPIRED, "leases end sooner than they can be used");
	else if (!region_register(s, r->via, &err) && ++r->retries)
		return region_key(s, r->via, &r->key, &r->generation);
	if (may_wait(s, r, &err))
		return false;
	if (err.status == ROS2_BAD_SESSION || err.status == ROS2_CLOSED)
		session_lost(s, &err);
	else if (status_is_final(err.status) && err.status != ROS2_DENIED)
		session_die(s, &err);
	else
		request_done(s, r, err.status, err.code, err.msg);
	return false;
}

/* Through which region the agent reaches the payload. False: the request ended. */
static bool choose_region(struct ros2_session *s, struct request *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	r->via = r->region;
	if (r->region && r->region->is_device && s->over != ROS2_TRANSPORT_VERBS) {
		(void)verbs_know_region(s, r->region, &err);
		request_done(s, r, err.status, err.code, err.msg);
		return false;
	}
	if (s->over != ROS2_TRANSPORT_SHM || !r->buf)
		return true;
	r->via = shm_region_for(s, r, &err);
	if (!r->via)
		request_done(s, r, err.status, err.code, err.msg);
	return r->via;
}

/* Over verbs the agent reaches memory through a window. False: the request ended, or has to wait.
 */
static bool take_window(struct ros2_session *s, struct request *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	switch (verbs_window_ready(s, r, &err)) {
	case VERBS_WINDOW_READY:
		return true;
	case VERBS_WINDOW_WAIT:
		s->register_after_ns = clock_add_ns(clock_monotonic_ns(), WINDOW_PAUSE_NS);
		return false;
	case VERBS_WINDOW_FAILED:
		break;
	}
	request_done(s, r, err.status, err.code, err.msg);
	return false;
}

static bool take_memory(struct ros2_session *s, struct request *r)
{
	switch (s->over) {
	case ROS2_TRANSPORT_VERBS:
		return take_window(s, r);
	case ROS2_TRANSPORT_SHM:
		return shm_piece_take(s, r);
	default:
		return true;
	}
}

/* What a request must meet now, on this connection. */
static bool may_be_sent(struct ros2_session *s, struct request *r)
{
	const struct ros2_err *broken = &r->file->broken;

	if (broken->code)
		request_done(s, r, broken->status, broken->code, broken->msg);
	else if (r->len > s->max_io)
		request_done(s, r, ROS2_TOO_LARGE, ros2_status_to_errno(ROS2_TOO_LARGE),
		             "after a reconnect the agent takes less in one request");
	else if (request_kind_clears(r->kind) && !(s->features & WIRE_FEATURE_CLEAR))
		request_done(s, r, ROS2_UNSUPPORTED, ros2_status_to_errno(ROS2_UNSUPPORTED),
		             "this agent is of a release that knows neither zero nor discard");
	else
		return choose_region(s, r) && take_key(s, r) && take_memory(s, r);
	return false;
}

static void queue_request(struct ros2_session *s, struct request *r)
{
	static const uint8_t opcodes[] = {[REQ_READ] = WIRE_READ,
	                                  [REQ_WRITE] = WIRE_WRITE,
	                                  [REQ_FLUSH] = WIRE_FLUSH,
	                                  [REQ_ZERO] = WIRE_ZERO,
	                                  [REQ_DISCARD] = WIRE_DISCARD};
	bool is_inline = r->kind == REQ_WRITE && r->len <= s->max_inline;
	struct wire_header h = {
		.opcode = opcodes[r->kind],
		.flags = is_inline ? WIRE_F_INLINE : 0,
		.handle = r->file->handle,
		.offset = r->offset,
		.address = s->over == ROS2_TRANSPORT_SHM ? shm_address_of(s, r) : (uintptr_t)r->buf,
		.length = r->len,
		.key = r->key,
		.generation = r->generation,
		.payload_len = is_inline ? r->len : 0,
	};

	/* Never used twice on a connection, so a late answer to an older request is seen. */
	r->id = ++s->next_id << SLOT_BITS | (uint64_t)slot_of(s, r);
	h.request_id = r->id;
	r->received = r->pulled = 0;
	r->on_wire = r->answered = false;
	r->out_refs = 1;
	r->is_inline = is_inline;
	r->covers = r->file->writes_acked;
	/* Where there is no DATA the agent takes it when it likes. */
	if (is_inline || (!link_has_data(s->over) && r->kind == REQ_WRITE))
		r->pulled = r->len;
	tx_push(&s->tx, &h, r->buf, slot_of(s, r));
	s->n_sent++;
	if (r->region)
		r->region->n_sent++;
	if (r->kind == REQ_READ)
		s->n_reads_sent++;
	if (is_small_read(r))
		s->n_small_reads_sent++;
	move_to(r, &s->sent, REQ_SENT);
}

bool requests_dispatch(struct ros2_session *s)
{
	bool ended = false;

	if (s->register_after_ns && clock_monotonic_ns() < s->register_after_ns)
		return false;
	s->register_after_ns = 0;
	while (s->state == LINK_UP && !s->peer_said_bye && !list_empty(&s->ready) &&
	       !s->register_after_ns && !s->stage_is_full && s->n_sent < s->credits &&
	       s->tx.capacity - s->tx.count > s->tx.capacity / 2) {
		struct request *r = list_first(&s->ready, struct request, link);

		if (may_be_sent(s, r))
			queue_request(s, r);
		else
			ended |= r->state == REQ_DONE;
	}
	return ended;
}

/* ---- the end of a request ---- */

/* Refused before it was begun, and not because of the user: again, with a new key. */
static void send_again(struct ros2_session *s, struct request *r)
{
	r->again = false;
	region_set_stale(s, r->via);
	move_to(r, &s->ready, REQ_READY);
}

/* What an answer means for the flushes that follow. */
static void count_answer(struct request *r)
{
	struct ros2_file *f = r->file;

	if (request_kind_changes(r->kind) && r->status == ROS2_OK)
		f->writes_acked++;
	if (r->kind != REQ_FLUSH || r->status != ROS2_OK)
		return;
	f->writes_flushed = MAX(f->writes_flushed, r->covers);
	if (r->losses == f->losses)
		return;
	/* As fsync reports a lost page: once, but to each who asked before anybody was told. Who
	 * waits for one of several has only its word (docs/libros2.md). */
	f->losses_told = f->losses;
	r->status = ROS2_OUTCOME_UNKNOWN;
	r->result = ros2_status_to_errno(r->status);
	snprintf(r->words, sizeof(r->words),
	         "the agent was lost after it had taken writes that were not flushed: they may be "
	         "gone");
}

static void settle(struct ros2_session *s, struct request *r)
{
	unsend(s, r);
	if (r->again) {
		send_again(s, r);
		return;
	}
	count_answer(r);
	request_done(s, r, r->status, r->result, r->words);
}

/* The agent's last word on @r. */
static void answer(struct ros2_session *s, struct request *r, enum ros2_status status,
                   int64_t result, const char *words)
{
	bool lease = status == ROS2_LEASE_EXPIRED || status == ROS2_BAD_KEY;

	set_words(r, words);
	r->answered = true;
	r->result = result;
	r->status = status;
	if (lease && r->via) {
		/* Elsewhere we do not see a PULL, but an agent says this only of what no engine
		 * has got (docs/decisions/0020). */
		bool begun = r->kind == REQ_WRITE && r->pulled && !r->is_inline &&
		             link_has_data(s->over);

		r->again = !begun && r->retries++ < LEASE_RETRIES;
		if (begun) {
			r->status = ROS2_OUTCOME_UNKNOWN;
			r->result = ros2_status_to_errno(r->status);
		}
	}
	if (!r->out_refs)
		settle(s, r);
}

void requests_entry_begun(struct ros2_session *s, int slot)
{
	s->requests[slot].on_wire = true;
}

void requests_entry_sent(void *arg, int slot)
{
	struct ros2_session *s = arg;
	struct request *r = &s->requests[slot];

	r->out_refs--;
	r->on_wire = true;
	if (r->answered && !r->out_refs)
		settle(s, r);
}

/* ---- what the agent says ---- */

static int violation(struct ros2_err *err, const struct wire_header *h, const char *what)
{
	return ros2_err_named(err, ROS2_PROTOCOL, "the agent sent %s %s",
	                      codec_opcode_to_str(h->opcode), what);
}

/* The request a message names: in flight, not yet answered. Over shared memory also not still in
 * our send queue: what is said of it then is no answer. */
static struct request *find(struct ros2_session *s, const struct wire_header *h)
{
	uint64_t slot = h->request_id & ((1u << SLOT_BITS) - 1);
	struct request *r;

	if (slot >= s->n_requests)
		return NULL;
	r = &s->requests[slot];
	if (s->over == ROS2_TRANSPORT_SHM && r->out_refs)
		return NULL;
	return r->state == REQ_SENT && r->id == h->request_id && !r->answered ? r : NULL;
}

/* The same for DATA and PULL: a piece of the buffer of @r under the lease that was sent. */
static const char *check_piece(const struct request *r, const struct wire_header *h)
{
	if (CLIENT_SWITCH(no_piece_check))
		return NULL;
	if (h->key != r->key)
		return "with a key that this request did not name";
	if (h->generation != r->generation)
		return "of another generation of the lease";
	if (!h->length)
		return "of no bytes";
	if (h->offset > r->len || h->length > r->len - h->offset)
		return "outside the request";
	if (h->address != (uintptr_t)r->buf + h->offset)
		return "with an address outside the buffer";
	/* The region holds the buffer since prep and cannot go before the request does. */
	if ((uintptr_t)r->buf < (uintptr_t)r->region->addr ||
	    r->buf + r->len > r->region->addr + r->region->len)
		return "outside the region";
	return NULL;
}

static int on_data(struct ros2_session *s, const struct wire_header *h, void **ret_dst,
                   struct ros2_err *err)
{
	struct request *r = find(s, h);
	const char *wrong;

	if (!r || r->kind != REQ_READ)
		return violation(err, h, "for no read that is in flight");
	wrong = check_piece(r, h);
	if (wrong)
		return violation(err, h, wrong);
	if (!(r->region->access & ROS2_REGION_WRITE))
		return violation(err, h, "into memory it may not write");
	if (h->payload_len != h->length)
		return violation(err, h, "whose payload is not as long as it says");
	if (h->offset != r->received && !CLIENT_SWITCH(no_piece_check))
		return violation(err, h, "out of order or twice");
	*ret_dst = r->buf + h->offset;
	return 0;
}

static int on_pull(struct ros2_session *s, const struct wire_header *h, struct ros2_err *err)
{
	struct request *r = find(s, h);
	struct wire_header data = *h;
	const char *wrong;

	if (!r || r->kind != REQ_WRITE)
		return violation(err, h, "for no write that is in flight");
	wrong = check_piece(r, h);
	if (wrong)
		return violation(err, h, wrong);
	if (!(r->region->access & ROS2_REGION_READ))
		return violation(err, h, "from memory it may not read");
	if (h->length > r->len - r->pulled)
		return violation(err, h, "for more bytes than the write has");
	if (tx_is_full(&s->tx))
		return violation(err, h, "more often than can be answered");
	r->pulled += h->length;
	r->out_refs++;
	data.opcode = WIRE_DATA;
	data.flags = r->pulled == r->len ? WIRE_F_LAST : 0;
	data.payload_len = h->length;
	data.status = 0;
	tx_push(&s->tx, &data, r->buf + h->offset, slot_of(s, r));
	return 0;
}

static int on_complete(struct ros2_session *s, const struct wire_header *h, struct ros2_err *err)
{
	struct request *r = find(s, h);
	enum ros2_status status = h->status < ROS2_STATUS_COUNT ? h->status : ROS2_INTERNAL;

	if (!r)
		return violation(err, h, "for no request that is in flight, or twice");
	if (status) {
		answer(s, r, status, ros2_status_to_errno(status), "");
		return 0;
	}
	if (h->length > r->len)
		return violation(err, h, "for more bytes than were asked for");
	if (r->kind == REQ_READ && h->length != r->received && link_has_data(s->over))
		return violation(err, h, "for a read with another length than its DATA had");
	if (request_kind_clears(r->kind) && h->length != r->len)
		return violation(err, h, "for a part of what was to be cleared");
	/* Over verbs its end of the SEND may come later than the answer. */
	if (r->kind == REQ_WRITE &&
	    (h->length > r->pulled || (r->out_refs && s->over != ROS2_TRANSPORT_VERBS)))
		return violation(err, h, "for bytes of a write that it has not got yet");
	if (r->kind == REQ_READ && r->piece_pages)
		shm_piece_read(s, r, h->length);
	answer(s, r, ROS2_OK, h->length, "");
	return 0;
}

static int on_nak(struct ros2_session *s, const struct wire_header *h, struct ros2_err *err)
{
	enum ros2_status status = h->status < ROS2_STATUS_COUNT ? h->status : ROS2_INTERNAL;
	struct request *r = find(s, h);

	if (!status)
		return violation(err, h, "with the status OK");
	s->words[h->payload_len] = 0;
	utf8_clean(s->words);
	if (r) {
		answer(s, r, status, ros2_status_to_errno(status), s->words);
		return 0;
	}
	if (h->request_id)
		return violation(err, h, "for no request that is in flight");
	ros2_err_named(&s->nak, status, "%s", s->words[0] ? s->words : ros2_status_text(status));
	return 0;
}

static int on_ping(struct ros2_session *s, const struct wire_header *h, struct ros2_err *err)
{
	struct wire_header pong = {.opcode = WIRE_PONG, .request_id = h->request_id};

	if (tx_is_full(&s->tx))
		return violation(err, h, "more often than can be answered");
	tx_push(&s->tx, &pong, NULL, -1);
	return 0;
}

static int on_header(void *arg, const struct wire_header *h, void **ret_dst, struct ros2_err *err)
{
	struct ros2_session *s = arg;

	if (!link_has_data(s->over) && (h->opcode == WIRE_DATA || h->opcode == WIRE_PULL))
		return violation(err, h, "over a transport that has none");
	if (h->opcode == WIRE_DATA)
		return on_data(s, h, ret_dst, err);
	if (h->opcode == WIRE_NAK) {
		if (h->payload_len > WIRE_WORDS_MAX)
			return violation(err, h, "with too many words");
		*ret_dst = s->words;
		return 0;
	}
	if (h->payload_len)
		return violation(err, h, "with a payload");
	return 0;
}

static int on_message(void *arg, const struct wire_header *h, struct ros2_err *err)
{
	struct ros2_session *s = arg;

	switch (h->opcode) {
	case WIRE_DATA:
		find(s, h)->received += h->length;
		return 0;
	case WIRE_PULL:
		return on_pull(s, h, err);
	case WIRE_COMPLETE:
		return on_complete(s, h, err);
	case WIRE_NAK:
		return on_nak(s, h, err);
	case WIRE_PING:
		return on_ping(s, h, err);
	case WIRE_PONG:
		return 0;
	case WIRE_BYE:
		s->peer_said_bye = true;
		return 0;
	default:
		return violation(err, h, "which only a tenant may send");
	}
}

#ifdef ROS2_CLIENT_TEST_SWITCHES
struct client_test_switches client_test_switches;
#endif

const struct rx_ops requests_rx_ops = {.on_header = on_header, .on_message = on_message};

/* ---- the end of a connection ---- */

/* Sent in part or whole, so it may have happened. What never left is not in doubt. */
static bool is_in_doubt(const struct request *r, int begun_slot, int slot)
{
	return request_kind_changes(r->kind) && (r->on_wire || slot == begun_slot) &&
	       !CLIENT_SWITCH(replay_writes);
}

/* Lost again and again, for as long as a request may wait: perhaps the agent ends the connection
 * because of this one. */
static bool is_hopeless(const struct ros2_session *s, struct request *r)
{
	uint64_t now = clock_monotonic_ns();

	if (!r->lost_ns)
		r->lost_ns = now;
	return now - r->lost_ns > s->reconnect_ms * NS_PER_MS;
}

void requests_link_lost(struct ros2_session *s)
{
	int begun = -1;

	if (!tx_first_begun(&s->tx, &begun))
		begun = -1;
	tx_drop(&s->tx);
	while (!list_empty(&s->sent)) {
		struct request *r = list_entry(s->sent.prev, struct request, link);

		unsend(s, r);
		r->out_refs = 0;
		if (r->answered && !r->again) {
			count_answer(r);
			request_done(s, r, r->status, r->result, r->words);
		} else if (is_in_doubt(r, begun, slot_of(s, r)) && !r->answered) {
			request_done(s, r, ROS2_OUTCOME_UNKNOWN,
			             ros2_status_to_errno(ROS2_OUTCOME_UNKNOWN),
			             "the agent was lost before it answered this write");
		} else if (is_hopeless(s, r)) {
			request_done(s, r, ROS2_UNAVAILABLE, ros2_status_to_errno(ROS2_UNAVAILABLE),
			             "the agent was lost each time that this was asked of it");
		} else {
			r->again = false;
			/* From the last to the first, each to the front: the order stays. */
			r->ready_ns = clock_monotonic_ns();
			list_del(&r->link);
			list_add_head(&s->ready, &r->link);
			r->state = REQ_READY;
		}
	}
}

static void fail_list(struct ros2_session *s, struct list *l, const struct ros2_err *why)
{
	while (!list_empty(l)) {
		struct request *r = list_first(l, struct request, link);

		if (r->state == REQ_SENT)
			unsend(s, r);
		r->out_refs = 0;
		request_done(s, r, why->status, why->code, why->msg);
	}
}

void requests_cancel(struct ros2_session *s, const struct ros2_region *region,
                     const struct ros2_file *file, bool ready, const struct ros2_err *why)
{
	struct list *lists[] = {&s->prepared, &s->ready};
	struct request *r, *tmp;

	for (int i = 0; i < (ready ? 2 : 1); i++) {
		list_for_each_safe (lists[i], r, tmp, link)
			if (region ? r->region == region : r->file == file)
				request_done(s, r, why->status, why->code, why->msg);
	}
}

void requests_fail(struct ros2_session *s, const struct ros2_err *why)
{
	link_close(s);
	fail_list(s, &s->sent, why);
	fail_list(s, &s->ready, why);
	fail_list(s, &s->prepared, why);
}
