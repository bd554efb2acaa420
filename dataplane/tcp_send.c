/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of the tcp transport: messages are queued, then handed to the kernel many at a
 * time, payload straight from the slots. Before each system call the clock is read, and every right
 * behind what it would hand on is looked at: a process that was stopped past an expiry sends
 * nothing when it goes on.
 */
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/tcp_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static void queue(struct session *s, struct tcp_out *m)
{
	list_add_tail(&tcp_of(s)->out, &m->link);
	session_want_output(s);
}

bool tcp_has_room(const struct session *s)
{
	return !list_empty(&tcp_of(s)->small_free);
}

void tcp_queue_small(struct session *s, const struct wire_header *h, const void *payload,
                     uint32_t len)
{
	struct tcp_small *m;

	/* The receiver stops before the last one is used; an end without room loses only its words.
	 */
	if (!tcp_has_room(s))
		return;
	m = list_first(&tcp_of(s)->small_free, struct tcp_small, out.link);
	list_del(&m->out.link);
	m->out.first = *h;
	wire_seal(&m->out.first);
	m->out.payload = m->words;
	m->out.payload_len = len;
	m->out.n_parts = 0;
	m->out.has_second = false;
	m->out.req = NULL;
	if (len)
		memcpy(m->words, payload, len);
	queue(s, &m->out);
}

void tcp_refuse(struct session *s, uint64_t request_id, enum ros2_status status, const char *words)
{
	uint32_t len = words ? (uint32_t)strnlen(words, WIRE_WORDS_MAX) : 0;
	struct wire_header h = {.opcode = words ? WIRE_NAK : WIRE_COMPLETE,
	                        .request_id = request_id,
	                        .status = (uint16_t)status,
	                        .payload_len = len};

	tcp_queue_small(s, &h, words, len);
}

static struct wire_header complete_of(const struct request *req)
{
	struct wire_header h = {.opcode = WIRE_COMPLETE,
	                        .request_id = req->id,
	                        .handle = 0,
	                        .length = req->bytes,
	                        .status = (uint16_t)req->status};

	wire_seal(&h);
	return h;
}

static void only_complete(struct request *req)
{
	struct tcp_out *out = tcp_out_of(req);

	out->first = complete_of(req);
	out->payload = NULL;
	out->n_parts = 0;
	out->payload_len = 0;
	out->has_second = false;
}

void tcp_reply(struct session *s, struct request *req)
{
	struct tcp_out *out = tcp_out_of(req);

	if (req->op == REQUEST_READ && req->bytes) {
		struct wire_header h = {.opcode = WIRE_DATA,
		                        .flags = WIRE_F_LAST,
		                        .request_id = req->id,
		                        .address = req->address,
		                        .length = req->bytes,
		                        .key = req->key,
		                        .generation = req->generation,
		                        .payload_len = req->bytes};

		wire_seal(&h);
		out->first = h;
		out->payload = req->io.n_parts ? NULL : req->slot.mem;
		out->parts = req->io.parts;
		out->n_parts = req->io.n_parts;
		out->payload_len = req->bytes;
		out->second = complete_of(req);
		out->has_second = true;
	} else {
		only_complete(req);
	}
	queue(s, out);
}

void tcp_pull(struct session *s, struct request *req)
{
	struct tcp_out *out = tcp_out_of(req);

	out->payload = NULL;
	out->n_parts = 0;
	out->payload_len = 0;
	out->has_second = false;
	/* The header is sealed when it goes: only then the lease is held and its generation known.
	 */
	queue(s, out);
}

static void seal_pull(struct request *req)
{
	struct wire_header h = {.opcode = WIRE_PULL,
	                        .request_id = req->id,
	                        .address = req->address,
	                        .length = req->length,
	                        .key = req->key,
	                        .generation = req->generation};

	wire_seal(&h);
	tcp_out_of(req)->first = h;
}

/* Looks at the right behind one message. Replaces one that has not begun to leave; false when the
 * session had to end, because half of it is out already. */
static bool prepare(struct session *s, struct tcp_out *m, bool begun, uint64_t now_ns,
                    uint64_t *until_ns)
{
	struct request *req = m->req;
	enum ros2_status st;

	if (!req || (req->state == REQUEST_REPLY && !m->payload_len))
		return true;
	st = request_may_hand_on(req, now_ns);
	if (st == ROS2_OK) {
		*until_ns = MIN(*until_ns, request_until(req));
		if (req->state == REQUEST_PULLING && !begun)
			seal_pull(req);
		return true;
	}
	if (!begun) {
		req->status = st == ROS2_CLOSED ? ROS2_BAD_KEY : st;
		req->bytes = 0;
		req->state = REQUEST_REPLY;
		only_complete(req);
		return true;
	}
	/* Ended by the tenant itself: no right was withdrawn, the message may end well. */
	if (st == ROS2_CLOSED || req->state == REQUEST_PULLING)
		return true;
	session_end(s, st,
	            "the lease ended while its payload was half sent: the tenant did not read");
	return false;
}

static void add_iov(struct iovec *iov, int *n, const void *p, size_t len, uint32_t *skip)
{
	if (*skip >= len) {
		*skip -= (uint32_t)len;
		return;
	}
	iov[*n].iov_base = (uint8_t *)p + *skip;
	iov[(*n)++].iov_len = len - *skip;
	*skip = 0;
}

static void add_parts(struct iovec *iov, int *n, const struct tcp_out *m, uint32_t *skip)
{
	for (uint32_t i = 0; i < m->n_parts; i++)
		add_iov(iov, n, m->parts[i].iov_base, m->parts[i].iov_len, skip);
}

/* Returns the number of parts, or -1 when the session has ended. *until_ns becomes the time from
 * which on they may not be handed on, if that is before. */
static int gather(struct session *s, struct iovec iov[TCP_IOV], uint64_t now_ns, uint64_t *until_ns)
{
	struct tcp_conn *c = tcp_of(s);
	uint32_t skip = c->sent, bytes = 0;
	struct tcp_out *m;
	int n = 0;

	list_for_each (&c->out, m, link) {
		if (n + 3 + (int)m->n_parts > (int)TCP_IOV || bytes >= c->piece)
			break;
		if (!prepare(s, m, n == 0 && c->sent > 0, now_ns, until_ns))
			return -1;
		add_iov(iov, &n, &m->first, WIRE_HEADER_LEN, &skip);
		if (m->n_parts)
			add_parts(iov, &n, m, &skip);
		else
			add_iov(iov, &n, m->payload, m->payload_len, &skip);
		if (m->has_second)
			add_iov(iov, &n, &m->second, WIRE_HEADER_LEN, &skip);
		bytes += m->payload_len;
	}
	return n;
}

static uint32_t size_of(const struct tcp_out *m)
{
	return WIRE_HEADER_LEN * (m->has_second ? 2 : 1) + m->payload_len;
}

static void sent_one(struct session *s, struct tcp_out *m)
{
	list_del(&m->link);
	if (!m->req) {
		list_add_tail(&tcp_of(s)->small_free, &m->link);
		s->r->again = true;
	} else {
		if (m->req->state == REQUEST_PULLING)
			list_add_tail(&tcp_of(s)->pulls, &m->req->link);
		request_handed_on(m->req);
	}
}

static void advance(struct session *s, size_t n)
{
	struct tcp_conn *c = tcp_of(s);

	c->sent += (uint32_t)n;
	c->moved += n;
	while (!list_empty(&c->out)) {
		struct tcp_out *m = list_first(&c->out, struct tcp_out, link);
		uint32_t size = size_of(m);

		if (c->sent < size)
			return;
		c->sent -= size;
		sent_one(s, m);
		if (!session_alive(s))
			return;
	}
	session_maybe_closed(s);
}

/* The socket still has room, so it will not tell of any. */
static void try_again(struct session *s)
{
	session_want_output(s);
	s->r->again = true;
}

/* What may be handed on right now: the clock is read before the look and after it, until no right
 * ended in between. -1: the session has ended. *ret_ns: the last it said. */
static int gather_now(struct session *s, struct iovec iov[TCP_IOV], uint64_t *ret_ns)
{
	uint64_t until_ns, now_ns = clock_boottime_ns();
	int n;

	do {
		enum ros2_status rights =
			DP_SWITCH(no_deadline_recheck) ? ROS2_OK : session_rights(s, now_ns);

		if (rights != ROS2_OK) {
			session_end(s, rights, NULL);
			return -1;
		}
		until_ns = session_rights_until(s);
		n = gather(s, iov, now_ns, &until_ns);
	} while (n >= 0 && (now_ns = clock_boottime_ns()) >= until_ns);
	*ret_ns = now_ns;
	return n;
}

static uint64_t allowed_ns(size_t bytes)
{
	return slow_allowed_ns(TCP_SLOW_NS + bytes * TCP_SLOW_NS_PER_BYTE);
}

/* False: the session has ended, because its peer makes these calls slow. */
static bool was_quick(struct session *s, const struct slow_call *call, size_t bytes)
{
	struct tcp_conn *c = tcp_of(s);
	char words[200];

	slow_done(&c->slow, call, allowed_ns(bytes), s->last_send_ns);
	if (!c->slow.over)
		return true;
	slow_words(&c->slow, allowed_ns(bytes), words, sizeof(words));
	session_end(s, ROS2_PROTOCOL, words);
	return false;
}

/* False: no more now. */
static bool send_some(struct session *s)
{
	struct iovec iov[TCP_IOV];
	struct msghdr msg = {.msg_iov = iov};
	struct slow_call call;
	int parts;
	ssize_t n;

	slow_begin(&call, &tcp_of(s)->slow, 0);
	parts = gather_now(s, iov, &call.began_ns);
	if (parts < 0)
		return false;
	msg.msg_iovlen = (size_t)parts;
	n = sendmsg(tcp_of(s)->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0) {
		if (errno == EAGAIN)
			tcp_of(s)->writable = false;
		else if (errno == EINTR)
			try_again(s);
		else
			session_end(s, ROS2_CLOSED, "the connection was lost");
		return false;
	}
	s->rt->sent.n += (size_t)n;
	s->last_send_ns = clock_boottime_ns();
	if (tcp_of(s)->local && !was_quick(s, &call, (size_t)n))
		return false;
	advance(s, (size_t)n);
	return true;
}

static uint32_t first_piece(const struct tcp_conn *c)
{
	uint32_t waits = 0;
	const struct tcp_out *m;

	list_for_each (&c->out, m, link) {
		waits += m->payload_len;
		if (waits >= 2 * TCP_SEND_FIRST_MAX)
			return TCP_SEND_FIRST_MAX;
	}
	return MAX(waits / 2, TCP_SEND_FIRST);
}

/* An engine that idles gets work only from tenants that have been answered: then the first replies
 * leave at once, and input is looked at before the rest. */
static bool next_piece(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);
	bool small = reactor_engine_idles(s->r);

	if (!small)
		c->piece = TCP_SEND_BYTES;
	else if (c->piece == 0 || c->piece == TCP_SEND_BYTES)
		c->piece = first_piece(c);
	else
		c->piece = MIN(2 * c->piece, TCP_SEND_BYTES / 2);
	return small;
}

void tcp_flush(struct session *s)
{
	bool had = false;

	tcp_turn_begin(s, &s->rt->sent);
	while (session_alive(s) && tcp_of(s)->writable && !list_empty(&tcp_of(s)->out)) {
		bool small;

		if (!tcp_turn_allows(s, &s->rt->sent, had)) {
			try_again(s);
			return;
		}
		small = next_piece(s);
		if (!send_some(s) || !session_alive(s))
			return;
		had = true;
		if (small && !list_empty(&tcp_of(s)->out)) {
			try_again(s);
			return;
		}
	}
	tcp_of(s)->piece = 0;
}
