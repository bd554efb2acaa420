/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of the shm transport: replies wait in a list until the tenant's ring has room.
 * An engine that took the tenant's memory as it is has put the payload there already; where it went
 * through a slot it is copied here, right after a look at the right behind it.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/shm_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static struct shm_out *out_of(const struct request *req)
{
	return req->out;
}

static void queue(struct session *s, struct shm_out *m)
{
	list_add_tail(&shm_of(s)->out, &m->link);
	session_want_output(s);
}

bool shm_has_room(const struct session *s)
{
	return !list_empty(&shm_of(s)->small_free);
}

void shm_queue_small(struct session *s, const struct wire_header *h, const void *words,
                     uint32_t len)
{
	struct shm_small *m;

	/* The receiver stops before the last one is used; an end without room loses only its words.
	 */
	if (!shm_has_room(s))
		return;
	m = list_first(&shm_of(s)->small_free, struct shm_small, out.link);
	list_del(&m->out.link);
	m->head = *h;
	m->head.payload_len = len;
	wire_seal(&m->head);
	if (len)
		memcpy(m->words, words, len);
	queue(s, &m->out);
}

void shm_refuse(struct session *s, uint64_t request_id, enum ros2_status status, const char *words)
{
	uint32_t len = words ? (uint32_t)strnlen(words, WIRE_WORDS_MAX) : 0;
	struct wire_header h = {.opcode = words ? WIRE_NAK : WIRE_COMPLETE,
	                        .request_id = request_id,
	                        .status = (uint16_t)status};

	shm_queue_small(s, &h, words, len);
}

void shm_reply(struct session *s, struct request *req)
{
	queue(s, out_of(req));
}

void shm_pull(struct session *s, struct request *req)
{
	queue(s, out_of(req));
}

/* ---- the tenant's ring ---- */

static void put(struct shm_conn *c, const void *p, uint32_t len)
{
	memcpy(c->m->map + WIRE_SHM_TO_TENANT_OFF +
	               c->written++ % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN,
	       p, len);
}

static void put_message(struct shm_conn *c, const struct wire_header *h, const uint8_t *words)
{
	put(c, h, sizeof(*h));
	for (uint32_t at = 0; at < h->payload_len; at += WIRE_HEADER_LEN)
		put(c, words + at, MIN(h->payload_len - at, (uint32_t)WIRE_HEADER_LEN));
}

static uint32_t entries_of(const struct shm_out *m)
{
	const struct shm_small *small = (const struct shm_small *)m;

	if (m->req)
		return 1;
	return 1 + (small->head.payload_len + WIRE_HEADER_LEN - 1) / WIRE_HEADER_LEN;
}

/* False: the tenant's count cannot be, and the session has ended. */
static bool room(struct session *s, uint32_t *ret)
{
	struct shm_conn *c = shm_of(s);
	uint32_t taken = __atomic_load_n(&shm_control(c)->to_tenant.taken, __ATOMIC_ACQUIRE);

	if (c->written - taken > WIRE_SHM_RING_ENTRIES) {
		session_end(s, ROS2_PROTOCOL, "more was taken from the ring than was written");
		return false;
	}
	*ret = WIRE_SHM_RING_ENTRIES - (c->written - taken);
	return true;
}

bool shm_may_go_on(const struct shm_conn *c)
{
	uint32_t taken;

	if (list_empty(&c->out))
		return false;
	taken = __atomic_load_n(&shm_control(c)->to_tenant.taken, __ATOMIC_RELAXED);
	/* What cannot be may go on, too: to the end of the session. */
	return WIRE_SHM_RING_ENTRIES - (c->written - taken) >=
	       entries_of(list_first(&c->out, struct shm_out, link));
}

/* ---- payload ---- */

/* What handing @req on copies. */
static uint32_t to_copy(const struct request *req)
{
	if (req->state == REQUEST_PULLING)
		return req->length;
	return req->op == REQUEST_READ && req->slot.size_class != SLOT_BORROWED ? req->bytes : 0;
}

/* Whose turn it was to be first has been, whether or not it has anything to copy now. */
static void begin_copies(struct session *s)
{
	struct rtenant *rt = s->rt;

	if (rt->copied.turn != s->r->turn)
		rt->copied.bytes = 0;
	rt->copied.turn = s->r->turn;
	if (rt->copied.next == s)
		rt->copied.next = NULL;
}

/* False: its tenant has had its part of this turn, or another session of it is first. */
static bool may_copy(struct session *s, const struct request *req)
{
	struct rtenant *rt = s->rt;

	if (!to_copy(req) || DP_SWITCH(no_turn_bounds))
		return true;
	if (rt->copied.next)
		return false;
	if (rt->copied.bytes < SHM_COPY_TURN)
		return true;
	if (shm_of(s)->copied_turn != s->r->turn)
		rt->copied.next = s;
	return false;
}

static void copied(struct session *s, uint32_t n)
{
	s->rt->copied.bytes += n;
	shm_of(s)->copied_turn = s->r->turn;
	shm_of(s)->moved += n;
	atomic_fetch_add_explicit(&s->stats.copied_bytes, n, memory_order_relaxed);
}

/* The process may have been stopped behind the look at the right. */
static enum ros2_status ended_meanwhile(const struct request *req)
{
	uint64_t now_ns = clock_boottime_ns();
	enum ros2_status st;

	if (now_ns < request_until(req))
		return ROS2_OK;
	st = session_rights(req->s, now_ns);
	return st != ROS2_OK ? st : ROS2_LEASE_EXPIRED;
}

/* What @req moves may be handed on right now, to where its lease says; else why not. */
static enum ros2_status may_move(struct request *req, uint32_t len, void **ret)
{
	enum ros2_status st = request_may_hand_on(req, clock_boottime_ns());

	if (st == ROS2_OK)
		st = ended_meanwhile(req);
	if (st != ROS2_OK)
		return st == ROS2_CLOSED ? ROS2_BAD_KEY : st;
	*ret = shm_data(req->s, req->address, len);
	return *ret ? ROS2_OK : ROS2_OUT_OF_RANGE;
}

/* The payload of a WRITE comes into its slot. True: the engine's turn; else it is answered. */
static bool take_payload(struct request *req)
{
	void *from;
	enum ros2_status st = may_move(req, req->length, &from);

	if (st != ROS2_OK) {
		req->status = st;
		req->bytes = 0;
		req->state = REQUEST_REPLY;
		return false;
	}
	memcpy(req->slot.mem, from, req->length);
	copied(req->s, req->length);
	list_del(&out_of(req)->link);
	request_payload_arrived(req);
	req->s->r->again = true;
	return true;
}

static void give_payload(struct request *req)
{
	void *to;
	enum ros2_status st;

	if (req->op != REQUEST_READ || !req->bytes)
		return;
	st = may_move(req, req->bytes, &to);
	if (st != ROS2_OK) {
		req->status = st;
		req->bytes = 0;
	} else if (req->slot.size_class != SLOT_BORROWED) {
		memcpy(to, req->slot.mem, req->bytes);
		copied(req->s, req->bytes);
	}
}

static void put_reply(struct session *s, struct request *req)
{
	struct wire_header h = {.opcode = WIRE_COMPLETE, .request_id = req->id};

	give_payload(req);
	h.length = req->bytes;
	h.status = (uint16_t)req->status;
	wire_seal(&h);
	put_message(shm_of(s), &h, NULL);
	list_del(&out_of(req)->link);
	request_handed_on(req);
}

static void hand_on(struct session *s, struct shm_out *m)
{
	struct shm_small *small = (struct shm_small *)m;

	if (!m->req) {
		put_message(shm_of(s), &small->head, small->words);
		list_del(&m->link);
		list_add_tail(&shm_of(s)->small_free, &m->link);
		s->r->again = true;
	} else if (m->req->state != REQUEST_PULLING || !take_payload(m->req)) {
		put_reply(s, m->req);
	}
}

/* A socket that takes no more is readable. One that fails otherwise would leave the tenant asleep.
 */
void shm_wake(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	uint8_t byte = 0;
	struct slow_call call;
	ssize_t n;

	do {
		slow_begin(&call, &c->slow, clock_boottime_ns());
		n = send(c->fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		slow_done(&c->slow, &call, slow_allowed_ns(SLOW_NS), clock_boottime_ns());
	} while (n < 0 && errno == EINTR);
	if (c->slow.over)
		shm_end_slow(s);
	else if (n < 0 && errno != EAGAIN)
		session_end(s, ROS2_CLOSED, "the connection was lost");
}

/* The tenant sees what was put. */
static void publish(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	struct wire_shm_ring *ring = &shm_control(c)->to_tenant;

	if (c->written == c->published)
		return;
	__atomic_store_n(&ring->written, c->written, __ATOMIC_RELEASE);
	c->published = c->written;
	s->last_send_ns = clock_boottime_ns();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->sleeps, __ATOMIC_RELAXED) && c->fd >= 0)
		shm_wake(s);
}

/* Looked at again for each: to copy many payloads takes its time. False: the session has ended. */
static bool rights_stand(struct session *s)
{
	enum ros2_status rights = session_rights(s, clock_boottime_ns());

	if (rights == ROS2_OK || DP_SWITCH(no_deadline_recheck))
		return true;
	session_end(s, rights, NULL);
	return false;
}

void shm_flush(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	uint32_t free_entries;

	if (!c->sealed)
		return;
	begin_copies(s);
	while (session_alive(s) && !list_empty(&c->out)) {
		struct shm_out *m = list_first(&c->out, struct shm_out, link);

		if (!rights_stand(s) || !room(s, &free_entries))
			return;
		if (free_entries < entries_of(m))
			break;
		if (m->req && !may_copy(s, m->req)) {
			session_want_output(s);
			s->r->again = true;
			break;
		}
		hand_on(s, m);
	}
	/* A right that ended behind the last of them. */
	if (session_alive(s) && !rights_stand(s))
		return;
	publish(s);
	session_maybe_closed(s);
}
