/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shm transport: how a connection begins, and what comes in. Requests are headers in a ring
 * that the tenant writes; a byte on the socket only wakes the reactor when it has said that it
 * sleeps, and the end of the socket is the end of the connection.
 *
 *   HELLO proved > WELCOME, MEMORY with the descriptor > MAPPED > sealed (shm_sealer.h) > requests
 */
#include "dataplane/shm.h"
#include "common/clock.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/shm_priv.h"
#include "dataplane/shm_sealer.h"
#include "dataplane/shm_socket.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static void shm_init(struct session *s)
{
	struct shm_conn *c = shm_of(s);

	c->s = s;
	c->m = s->ds->shm;
	c->source.kind = SOURCE_SHM;
	c->fd = -1;
	list_init(&c->link);
	list_init(&c->out);
	list_init(&c->small_free);
	for (uint32_t i = 0; i < SHM_SMALL; i++)
		list_add_tail(&c->small_free, &c->small[i].out.link);
	for (uint32_t i = 0; i < DP_CREDITS; i++) {
		s->requests[i].out = &c->outs[i];
		c->outs[i].req = &s->requests[i];
		list_init(&c->outs[i].link);
	}
}

/* With the descriptor. The socket is fresh: what it does not take at once it never will. */
static int send_memory(int fd, const struct shm_memory *m, struct slow *slow)
{
	struct wire_header h = {.opcode = WIRE_MEMORY, .offset = m->bytes};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {&h, sizeof(h)};
	struct msghdr msg = {.msg_iov = &iov,
	                     .msg_iovlen = 1,
	                     .msg_control = control.bytes,
	                     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &m->fd, sizeof(int));
	wire_seal(&h);
	return shm_socket_send(fd, &msg, slow) == (ssize_t)sizeof(h) ? 0 : -EPIPE;
}

static int send_welcome(int fd, const struct wire_welcome *w, struct slow *slow)
{
	struct wire_header h = {.opcode = WIRE_WELCOME, .payload_len = sizeof(*w)};
	struct iovec iov[] = {{&h, sizeof(h)}, {(void *)w, sizeof(*w)}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

	wire_seal(&h);
	return shm_socket_send(fd, &msg, slow) == (ssize_t)(sizeof(h) + sizeof(*w)) ? 0 : -EPIPE;
}

void shm_end_slow(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	char words[200];

	slow_words(&c->slow, slow_allowed_ns(SLOW_NS), words, sizeof(words));
	slow_user_shun(&s->r->slow_users, &c->from);
	session_end(s, ROS2_PROTOCOL, words);
}

int shm_start(struct session *s, int fd, const struct wire_welcome *w, const struct host_key *from,
              const struct slow *slow)
{
	struct shm_conn *c = shm_of(s);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = &c->source};
	int rc;

	c->from = *from;
	c->slow = *slow;
	if (!slow->last_ns) /* none was: its clock need not be read for that */
		c->slow.watched_until_ns = 0;
	rc = send_welcome(fd, w, &c->slow);
	if (rc == 0)
		rc = send_memory(fd, c->m, &c->slow);
	if (rc == 0 && epoll_ctl(s->r->epoll_fd, EPOLL_CTL_MOD, fd, &ev) < 0)
		rc = -errno;
	if (rc < 0)
		return rc;
	c->fd = fd;
	if (c->slow.over)
		shm_end_slow(s);
	return 0;
}

void *shm_data(const struct session *s, uint64_t address, uint64_t len)
{
	const struct shm_memory *m = shm_of(s)->m;

	if (address < WIRE_SHM_DATA_OFF || address > m->bytes || len > m->bytes - address)
		return NULL;
	return m->map + address;
}

static bool shm_has_region(const struct session *s, uint64_t base, uint64_t len)
{
	return shm_data(s, base, len) != NULL;
}

static void shm_forget(struct session *s, struct request *req)
{
	list_del(&((struct shm_out *)req->out)->link);
}

static void shm_close(struct session *s, bool discard)
{
	struct shm_conn *c = shm_of(s);

	list_del(&c->link);
	if (s->rt && s->rt->copied.next == s)
		s->rt->copied.next = NULL;
	if (c->fd < 0)
		return;
	c->slow.owed_ns = 0; /* what was slow before has its own rules */
	shm_socket_close(s->dp->shm_closer, s->r->epoll_fd, TAKE_FD(c->fd), &c->slow);
	(void)slow_user_pays(&s->r->slow_users, &c->from, &c->slow);
}

static bool shm_idle(const struct session *s)
{
	const struct shm_conn *c = shm_of(s);

	return list_empty(&c->out) && c->written == c->published;
}

static bool shm_waits_for_peer(const struct session *s)
{
	return !list_empty(&shm_of(s)->out);
}

static uint64_t shm_moved(const struct session *s)
{
	return shm_of(s)->moved;
}

/* ---- messages ---- */

/* False: it has to wait. */
static bool on_request(struct session *s, const struct wire_header *h)
{
	struct request_in in = request_in_of(h);
	struct request *req;

	return request_begin(s, &in, &req) != REQUEST_WAIT;
}

static void pong(struct session *s, const struct wire_header *h)
{
	struct wire_header out = {.opcode = WIRE_PONG, .request_id = h->request_id};

	shm_queue_small(s, &out, NULL, 0);
}

static bool on_message(struct session *s, const struct wire_header *h)
{
	switch (h->opcode) {
	case WIRE_READ:
	case WIRE_WRITE:
	case WIRE_FLUSH:
	case WIRE_ZERO:
	case WIRE_DISCARD:
		return on_request(s, h);
	case WIRE_PING:
		pong(s, h);
		return true;
	case WIRE_PONG:
		return true;
	case WIRE_BYE:
		s->state = SESSION_CLOSING;
		session_maybe_closed(s);
		return true;
	default:
		session_end(s, ROS2_PROTOCOL, "a message that there is not over shm");
		return true;
	}
}

/* False: the entry stays where it is. */
static bool take_entry(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	uint8_t bytes[WIRE_HEADER_LEN];
	struct wire_header h;
	const char *words;
	enum ros2_status st;

	/* Once; from here on the tenant may write there what it likes. */
	memcpy(bytes,
	       c->m->map + WIRE_SHM_TO_AGENT_OFF +
	               c->taken % WIRE_SHM_RING_ENTRIES * WIRE_HEADER_LEN,
	       sizeof(bytes));
	st = wire_parse_from_tenant(bytes, &h, &words);
	if (st != ROS2_OK)
		session_end_bad_message(s, st, words);
	else if (h.payload_len)
		session_end(s, ROS2_PROTOCOL,
		            "a payload in the ring: over shm it lies in a region");
	else
		return on_message(s, &h);
	return true;
}

/* Either the tenant sees the room, or we see that it had none. */
static void tell_room(struct session *s, uint32_t taken_before)
{
	struct wire_shm_ring *ring = &shm_control(shm_of(s))->to_agent;
	const struct shm_conn *c = shm_of(s);

	if (c->taken == taken_before || c->fd < 0 || DP_SWITCH(no_room_byte))
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ring->written, __ATOMIC_RELAXED) - taken_before >=
	    WIRE_SHM_RING_ENTRIES)
		shm_wake(s);
}

static void take_entries(struct session *s)
{
	struct wire_shm_ring *ring = &shm_control(shm_of(s))->to_agent;
	uint32_t may_take = DP_SWITCH(no_turn_bounds) ? UINT32_MAX : SHM_MESSAGES;
	struct shm_conn *c = shm_of(s);

	c->blocked = false;
	while (c->sealed && session_alive(s)) {
		uint32_t there = __atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) - c->taken;

		if (!there)
			return;
		if (there > WIRE_SHM_RING_ENTRIES) {
			session_end(s, ROS2_PROTOCOL, "more entries in the ring than it has");
			return;
		}
		if (!may_take--) {
			s->r->again = true;
			break;
		}
		/* A message may need a short answer: without room for one the peer has to read
		 * first. */
		c->blocked = !shm_has_room(s) || !take_entry(s);
		if (c->blocked)
			break;
		__atomic_store_n(&ring->taken, ++c->taken, __ATOMIC_RELEASE);
	}
	if (session_alive(s))
		session_want_input(s);
}

static void shm_receive(struct session *s)
{
	uint32_t before = shm_of(s)->taken;

	take_entries(s);
	if (session_alive(s))
		tell_room(s, before);
}

/* ---- MAPPED ---- */

static int add_seals(const struct dp_session *ds)
{
	struct shm_sealer *sealer = ds->dp->shm_sealer;

	return sealer ? shm_sealer_seal(sealer, &ds->tenant->uid, ds, ds->shm->fd)
	              : shm_memory_add_seals(ds->shm->fd);
}

static void seal(struct dp_op *op)
{
	int rc = add_seals(op->ds);

	if (rc == 0)
		rc = shm_memory_sealed(op->ds->shm);
	if (rc == -ENODATA)
		dp_op_set(op, ROS2_PROTOCOL, "holes in the shared memory");
	else if (rc == -ETIMEDOUT)
		dp_op_set(op, ROS2_PROTOCOL,
		          "the shared memory is being written to while it is sealed: MAPPED comes "
		          "when no system call writes to it");
	else if (rc == -EAGAIN)
		dp_op_set(op, ROS2_UNAVAILABLE,
		          "the shared memory was not sealed in time: this machine is busy, try "
		          "again");
	else if (rc == -EDQUOT)
		dp_op_set(op, ROS2_LIMIT, SHM_SEALER_LIMIT, SHM_SEALER_LEFT);
	else if (rc == -ECANCELED)
		dp_op_set(op, ROS2_CLOSED, "%s", ros2_status_text(ROS2_CLOSED));
	else if (rc < 0)
		dp_op_set(op, ROS2_INTERNAL, "the shared memory could not be sealed: %s",
		          strerror(-rc));
}

static void run_sealed(struct reactor *r, struct dp_op *op)
{
	struct session *s = op->ds->s;
	struct shm_conn *c = shm_of(s);

	if (session_alive(s) && op->res.status != ROS2_OK) {
		session_end(s, op->res.status, op->res.words);
	} else if (session_alive(s)) {
		c->sealed = true;
		list_add_tail(&r->shm, &c->link);
		session_want_input(s);
		session_want_output(s);
	}
	dp_op_back(op);
}

static void sealed(struct dp_op *op)
{
	dp_op_to_reactor(op, op->ds->reactor, run_sealed, dp_op_finish);
}

/* Loop. */
static void seal_begin(struct dp_post *p)
{
	struct dp_session *ds = container_of(p, struct shm_conn, mapped_post)->s->ds;
	struct dp_op *op = &ds->seal_op;

	dp_op_begin(op, ds->dp, NULL, NULL);
	op->ds = ds;
	ds->n_ops++;
	/* As work of its tenant, but none of the calls that a tenant may have under way. */
	op->closes_of = ds->tenant;
	dp_op_to_worker(op, NULL, seal, sealed);
}

static void on_mapped(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	struct wire_header h;
	const char *words;
	enum ros2_status st = wire_parse_from_tenant(c->first, &h, &words);

	if (st != ROS2_OK) {
		session_end_bad_message(s, st, words);
	} else if (h.opcode != WIRE_MAPPED) {
		session_end(s, ROS2_PROTOCOL, "expected MAPPED");
	} else {
		c->mapped = true;
		dp_post(s->dp, &c->mapped_post, seal_begin);
	}
}

/* Before MAPPED a message, afterwards bytes that only wake: one at a time. A tenant sends one when
 * it was told that the reactor sleeps; of more the socket stays readable. */
static ssize_t take_bytes(struct session *s)
{
	struct shm_conn *c = shm_of(s);
	uint8_t wakes[256], *to = c->mapped ? wakes : c->first + c->got;
	size_t len = c->mapped ? 1 : sizeof(c->first) - c->got;
	ssize_t n;

	if (c->mapped && DP_SWITCH(no_slow_end))
		len = sizeof(wakes);
	n = shm_socket_look(c->fd, to, len);
	if (n > 0)
		n = shm_socket_take(c->fd, to, (size_t)n, &c->slow);
	if (n <= 0 || c->mapped)
		return n;
	c->got += (uint32_t)n;
	if (c->got == sizeof(c->first))
		on_mapped(s);
	return n;
}

/* ---- waking ---- */

void shm_event(struct source *src, uint32_t events)
{
	struct shm_conn *c = container_of(src, struct shm_conn, source);
	struct session *s = c->s;
	ssize_t n;

	if (!session_alive(s))
		return;
	n = take_bytes(s);
	if (c->slow.over) {
		if (session_alive(s))
			shm_end_slow(s);
		return;
	}
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	if (n < 0 && errno == EPERM) {
		session_end(s, ROS2_PROTOCOL, "open files came, and nobody takes any here");
		return;
	}
	/* What it has said before it went, such as BYE. */
	shm_receive(s);
	if (session_alive(s))
		session_end(s, ROS2_CLOSED,
		            n == 0 ? "the tenant closed the connection"
		                   : "the connection was lost");
}

/* Looked into for a little longer before the reactor sleeps, as long as that brings something: then
 * no tenant has to wake it. All else is looked at in between. */
static void watch(struct reactor *r, bool came)
{
	bool watched = r->spin_until_ns;

	if (watched && (came || r->now_ns >= r->spin_until_ns)) {
		spin_end(&r->spin, came);
		r->spin_until_ns = 0;
	}
	if (came && spin_begin(&r->spin))
		r->spin_until_ns = UINT64_MAX;
}

void shm_poll(struct reactor *r)
{
	struct shm_conn *c;
	bool came = false;

	list_for_each (&r->shm, c, link) {
		struct wire_shm_ring *ring = &shm_control(c)->to_agent;

		if (c->armed)
			__atomic_store_n(&ring->sleeps, 0, __ATOMIC_RELAXED);
		c->armed = false;
		if (__atomic_load_n(&ring->written, __ATOMIC_RELAXED) != c->taken) {
			session_want_input(c->s);
			came |= !c->blocked;
		}
		/* A tenant may have made room without a byte for it. */
		if (!list_empty(&c->out))
			session_want_output(c->s);
	}
	watch(r, came);
}

/* A few looks without a turn around them: what else there is waits two microseconds for it. */
static void look_a_while(struct reactor *r)
{
	uint32_t looks = 0;
	struct shm_conn *c;

	do {
		list_for_each (&r->shm, c, link) {
			if (__atomic_load_n(&shm_control(c)->to_agent.written, __ATOMIC_RELAXED) !=
			    c->taken)
				return;
			looks++;
			spin_pause();
		}
	} while (looks && looks < SPIN_LOOKS);
}

bool shm_must_poll(struct reactor *r)
{
	struct shm_conn *c;

	/* From now on: what came first has been worked on meanwhile. */
	if (r->spin_until_ns == UINT64_MAX)
		r->spin_until_ns = clock_boottime_ns() + SPIN_NS;
	if (r->spin_until_ns) {
		look_a_while(r);
		return true;
	}
	list_for_each (&r->shm, c, link) {
		__atomic_store_n(&shm_control(c)->to_agent.sleeps, 1, __ATOMIC_RELAXED);
		c->armed = true;
	}
	/* Either the tenant sees that a byte is wanted, or we see what it wrote; and either it sees
	 * that its ring is full, or we see that it has room. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	list_for_each (&r->shm, c, link) {
		if (!c->blocked && __atomic_load_n(&shm_control(c)->to_agent.written,
		                                   __ATOMIC_RELAXED) != c->taken)
			return true;
		if (shm_may_go_on(c))
			return true;
	}
	return false;
}

const struct transport_ops transport_shm = {
	.name = "shm",
	.channel_size = sizeof(struct shm_conn),
	.init = shm_init,
	.reply = shm_reply,
	.pull = shm_pull,
	.refuse = shm_refuse,
	.receive = shm_receive,
	.flush = shm_flush,
	.close = shm_close,
	.forget = shm_forget,
	.idle = shm_idle,
	.waits_for_peer = shm_waits_for_peer,
	.moved = shm_moved,
	.memory = shm_data,
	.piece = shm_lend_take,
	.has_region = shm_has_region,
};
