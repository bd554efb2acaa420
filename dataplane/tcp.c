/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of the tcp transport. Headers are read many at a time; a payload goes into its
 * slot, the part that came with the headers by a counted copy, the rest straight from the kernel.
 * While an invited payload (PULL) is awaited, only a header's worth is read at a time, so that none
 * of a large payload is copied. Anything wrong with a header, or a DATA nobody asked for, ends the
 * connection.
 */
#include "dataplane/tcp_priv.h"
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define READS_PER_TURN 64
/* A host that has gone without a word is given up after a minute in which it says nothing. */
#define ALIVE_IDLE_S 30
#define ALIVE_EACH_S 10
#define ALIVE_TIMES  3
/* As long as something is on its way there the kernel asks nobody, and sends it again for a quarter
 * of an hour: so many looks in a row, each so long after the last, are that minute then. */
#define ALIVE_LOOKS 6

static void tcp_init(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);

	c->s = s;
	c->source.kind = SOURCE_SESSION;
	c->fd = -1;
	list_init(&c->pulls);
	list_init(&c->out);
	list_init(&c->small_free);
	for (uint32_t i = 0; i < TCP_SMALL; i++)
		list_add_tail(&c->small_free, &c->small[i].out.link);
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		s->requests[i].out = &c->outs[i];
		c->outs[i].req = &s->requests[i];
		list_init(&c->outs[i].link);
	}
}

/* The same address at both ends, or a loopback one. */
static bool is_local(int fd)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t len = sizeof(here), there_len = sizeof(there);
	struct host_key a, b;

	if (getsockname(fd, (struct sockaddr *)&here, &len) < 0 ||
	    getpeername(fd, (struct sockaddr *)&there, &there_len) < 0)
		return false;
	a = host_key_of(&here);
	b = host_key_of(&there);
	return !memcmp(&a, &b, sizeof(a)) || (b.family == AF_INET && b.address[0] == 127);
}

static void ask_whether_alive(int fd)
{
	int one = 1, idle_s = ALIVE_IDLE_S, each_s = ALIVE_EACH_S, times = ALIVE_TIMES;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &each_s, sizeof(each_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/* What is on its way was not acknowledged, nor a question whether there is room answered, and since
 * the last look nothing at all has come. A host whose program does not read does answer that. */
static bool says_nothing(struct tcp_conn *c)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	uint32_t before = c->segments;

	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 ||
	    len < offsetof(struct tcp_info, tcpi_notsent_bytes))
		return false;
	c->segments = info.tcpi_segs_in;
	return (info.tcpi_unacked || info.tcpi_probes) && c->segments == before;
}

/* Looks are counted and not the time between two of them: the machine may have slept. */
static void tcp_tick(struct session *s, uint64_t now_ns)
{
	struct tcp_conn *c = tcp_of(s);

	if (now_ns < c->look_at_ns)
		return;
	c->look_at_ns = clock_add_ns(now_ns, ALIVE_EACH_S * NS_PER_S);
	c->silent = says_nothing(c) ? c->silent + 1 : 0;
	if (c->silent == ALIVE_LOOKS)
		session_end(s, ROS2_CLOSED, "the connection was lost");
}

int tcp_start(struct session *s, int fd, const struct wire_welcome *w)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
	                         .data.ptr = &tcp_of(s)->source};
	struct wire_header h = {.opcode = WIRE_WELCOME, .payload_len = sizeof(*w)};
	int one = 1, unsent = (int)TCP_UNSENT;

	/* A reply waits for no other; a failure only costs latency. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	ask_whether_alive(fd);
	if (epoll_ctl(s->r->epoll_fd, EPOLL_CTL_MOD, fd, &ev) < 0)
		return -errno;
	tcp_of(s)->fd = fd;
	tcp_of(s)->local = is_local(fd);
	tcp_of(s)->readable = tcp_of(s)->writable = true;
	tcp_queue_small(s, &h, w, sizeof(*w));
	session_want_input(s);
	return 0;
}

static void tcp_forget(struct session *s, struct request *req)
{
	list_del(&tcp_out_of(req)->link);
	if (tcp_of(s)->receiving == req)
		tcp_of(s)->receiving = NULL;
}

static void tcp_close(struct session *s, bool discard)
{
	struct tcp_conn *c = tcp_of(s);
	struct linger l = {.l_onoff = 1, .l_linger = 0};

	if (s->rt && s->rt->sent.next == s)
		s->rt->sent.next = NULL;
	if (s->rt && s->rt->received.next == s)
		s->rt->received.next = NULL;
	if (c->fd < 0)
		return;
	/* With a zero linger close sends RST and drops what is in the send queue. */
	if (discard)
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(TAKE_FD(c->fd));
}

/* The peer has acknowledged all that the kernel was given; asked only of a session that was told
 * BYE. What is left is out of reach once the descriptor is closed. */
static bool all_is_taken(const struct tcp_conn *c)
{
	int left = 1;

	return DP_SWITCH(bye_leaves) || (ioctl(c->fd, SIOCOUTQ, &left) == 0 && left == 0);
}

static bool tcp_idle(const struct session *s)
{
	return list_empty(&tcp_of(s)->out) && all_is_taken(tcp_of(s));
}

static bool tcp_waits_for_peer(const struct session *s)
{
	const struct tcp_conn *c = tcp_of(s);

	return !list_empty(&c->out) || !list_empty(&c->pulls) || c->receiving;
}

static uint64_t tcp_moved(const struct session *s)
{
	return tcp_of(s)->moved;
}

void tcp_event(struct tcp_conn *c, uint32_t events)
{
	struct session *s = c->s;

	if (!session_alive(s))
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		c->readable = true;
		c->peer_closed |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
		session_want_input(s);
	}
	if (events & EPOLLOUT) {
		c->writable = true;
		if (!list_empty(&c->out))
			session_want_output(s);
	}
}

/* ---- what a turn moves ---- */

void tcp_turn_begin(struct session *s, struct turn_bytes *b)
{
	if (b->turn != s->r->turn)
		b->n = 0;
	b->turn = s->r->turn;
	if (b->next == s)
		b->next = NULL;
}

bool tcp_turn_allows(struct session *s, struct turn_bytes *b, bool had)
{
	if (DP_SWITCH(no_turn_bounds))
		return true;
	if (!b->next && b->n < TCP_TURN_BYTES)
		return true;
	if (!b->next && !had)
		b->next = s;
	s->r->again = true;
	return false;
}

/* ---- messages ---- */

static void pong(struct session *s, const struct wire_header *h)
{
	struct wire_header out = {.opcode = WIRE_PONG, .request_id = h->request_id};

	tcp_queue_small(s, &out, NULL, 0);
}

static bool on_request(struct session *s, const struct wire_header *h)
{
	struct request_in in = request_in_of(h);
	struct request *req;

	switch (request_begin(s, &in, &req)) {
	case REQUEST_WAIT:
		return false;
	case REQUEST_REFUSED:
		tcp_of(s)->skip = h->payload_len;
		return true;
	case REQUEST_TAKEN:
		tcp_of(s)->receiving = h->payload_len ? req : NULL;
		return true;
	}
	return true;
}

static bool answers(const struct wire_header *h, const struct request *req)
{
	return h->request_id == req->id && h->key == req->key && h->address == req->address &&
	       h->generation == req->generation && h->length == req->length && h->offset == 0;
}

/* The answer to the oldest PULL, field by field. */
static void on_data(struct session *s, const struct wire_header *h)
{
	struct tcp_conn *c = tcp_of(s);
	struct request *req =
		list_empty(&c->pulls) ? NULL : list_first(&c->pulls, struct request, link);

	if (!req || !(answers(h, req) || DP_SWITCH(no_pull_check))) {
		session_end(s, ROS2_PROTOCOL, "DATA that does not answer the oldest PULL");
		return;
	}
	list_del(&req->link);
	c->receiving = req;
}

/* False: it must wait; the header stays where it is. */
static bool on_message(struct session *s, const struct wire_header *h)
{
	switch (h->opcode) {
	case WIRE_READ:
	case WIRE_WRITE:
	case WIRE_FLUSH:
	case WIRE_ZERO:
	case WIRE_DISCARD:
		return on_request(s, h);
	case WIRE_DATA:
		on_data(s, h);
		return true;
	case WIRE_PING:
		pong(s, h);
		return true;
	case WIRE_PONG:
		return true;
	case WIRE_BYE:
		s->state = SESSION_CLOSING;
		session_maybe_closed(s);
		return true;
	case WIRE_WINDOW:
		session_end(s, ROS2_PROTOCOL, "WINDOW: windows are of verbs, this is tcp");
		return true;
	case WIRE_MAPPED:
		session_end(s, ROS2_PROTOCOL, "MAPPED: memory is mapped over shm, this is tcp");
		return true;
	default:
		session_end(s, ROS2_PROTOCOL, "a second HELLO");
		return true;
	}
}

/* ---- bytes ---- */

static void payload_progress(struct session *s, uint32_t n)
{
	struct tcp_conn *c = tcp_of(s);
	struct request *req = c->receiving;

	req->got += n;
	c->moved += n;
	if (req->got < req->length)
		return;
	c->receiving = NULL;
	request_payload_arrived(req);
}

static void take_buffered_payload(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);
	uint32_t len, n;
	uint8_t *buf = request_buffer(c->receiving, &len);

	n = MIN(c->in_end - c->in_at, len - c->receiving->got);
	memcpy(buf + c->receiving->got, c->in + c->in_at, n);
	atomic_fetch_add_explicit(&s->stats.copied_bytes, n, memory_order_relaxed);
	c->in_at += n;
	payload_progress(s, n);
}

static bool take_header(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);
	struct wire_header h;
	const char *words;
	enum ros2_status st;

	/* A message may need a short answer: without room for one the peer has to read first. */
	if (!tcp_has_room(s))
		return false;
	if (!c->may_take) {
		s->r->again = true;
		return false;
	}
	st = wire_parse_from_tenant(c->in + c->in_at, &h, &words);
	if (st != ROS2_OK) {
		session_end_bad_message(s, st, words);
		return true;
	}
	if (!on_message(s, &h))
		return false;
	c->may_take--;
	c->in_at += WIRE_HEADER_LEN;
	return true;
}

/* Everything that is in the buffer and can be taken. False: something must happen first. */
static bool take_buffered(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);

	while (session_alive(s) && c->in_at < c->in_end) {
		uint32_t have = c->in_end - c->in_at;

		if (c->skip) {
			uint32_t n = MIN(have, c->skip);

			c->in_at += n;
			c->skip -= n;
		} else if (c->receiving) {
			take_buffered_payload(s);
		} else if (have < WIRE_HEADER_LEN) {
			break;
		} else if (!take_header(s)) {
			return false;
		}
	}
	return true;
}

/* Where the next bytes go, and how many. */
static void *place(struct session *s, uint32_t *ret_len)
{
	struct tcp_conn *c = tcp_of(s);
	uint32_t len, have = c->in_end - c->in_at;

	if (c->receiving) {
		uint8_t *buf = request_buffer(c->receiving, &len);

		*ret_len = len - c->receiving->got;
		return buf + c->receiving->got;
	}
	memmove(c->in, c->in + c->in_at, have);
	c->in_at = 0;
	c->in_end = have;
	*ret_len =
		list_empty(&c->pulls) ? TCP_INPUT - have : WIRE_HEADER_LEN - have % WIRE_HEADER_LEN;
	return c->in + have;
}

/* It said BYE, closed its half, and reads to the end what it asked for before: nothing of that
 * needs anything more of it. */
static bool only_reads(const struct session *s)
{
	const struct tcp_conn *c = tcp_of(s);

	if (s->state != SESSION_CLOSING || c->receiving || c->skip || c->in_at < c->in_end)
		return false;
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		const struct request *req = &s->requests[i];

		if (req->state == REQUEST_PULLING ||
		    (req->state == REQUEST_QUEUED && req->op == REQUEST_WRITE && req->length &&
		     !req->has_payload))
			return false;
	}
	return true;
}

/* False: nothing more now. */
static bool read_some(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);
	uint32_t want;
	void *to = place(s, &want);
	ssize_t n = recv(c->fd, to, want, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		c->readable = errno == EINTR;
		return false;
	}
	if (n == 0 && only_reads(s)) {
		c->readable = false;
		return false;
	}
	if (n <= 0) {
		session_end(s, ROS2_CLOSED,
		            n == 0 ? "the tenant closed the connection"
		                   : "the connection was lost");
		return false;
	}
	s->rt->received.n += (size_t)n;
	if (c->receiving)
		payload_progress(s, (uint32_t)n);
	else
		c->in_end += (uint32_t)n;
	/* A short read means empty, unless the peer's end is waiting behind it: that is told only
	 * once. */
	if ((uint32_t)n < want && !c->peer_closed)
		c->readable = false;
	return true;
}

static void tcp_receive(struct session *s)
{
	struct tcp_conn *c = tcp_of(s);

	c->may_take = DP_SWITCH(no_turn_bounds) ? UINT32_MAX : TCP_MESSAGES;
	tcp_turn_begin(s, &s->rt->received);
	for (int i = 0; i < READS_PER_TURN && session_alive(s); i++) {
		if (!take_buffered(s)) {
			session_want_input(s);
			return;
		}
		if (!session_alive(s) || !c->readable)
			return;
		if (!tcp_turn_allows(s, &s->rt->received, i > 0) || !read_some(s))
			break;
	}
	if (!session_alive(s))
		return;
	if (c->readable || c->in_at < c->in_end) {
		session_want_input(s);
		s->r->again |= c->readable;
	}
}

const struct transport_ops transport_tcp = {
	.name = "tcp",
	.takes_parts = true,
	.channel_size = sizeof(struct tcp_conn),
	.init = tcp_init,
	.reply = tcp_reply,
	.pull = tcp_pull,
	.refuse = tcp_refuse,
	.receive = tcp_receive,
	.flush = tcp_flush,
	.close = tcp_close,
	.forget = tcp_forget,
	.idle = tcp_idle,
	.waits_for_peer = tcp_waits_for_peer,
	.moved = tcp_moved,
	.tick = tcp_tick,
};
