/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that have not proved anything, over tcp or to the socket of the shm transport:
 * accept, CHALLENGE, HELLO, WELCOME. Two caps per reactor, in all and of one address (there: of one
 * user) (--unproved-connections), each with one header and one HELLO of buffer and WIRE_HELLO_MS to
 * live. One more of an address that has its share takes that address's oldest place; one more in
 * all the oldest of the address that has most of them, the newcomer's own among equals. Who loses
 * its place hears which cap it was, if its socket takes the words at once. So a flood from one
 * address costs no other that has fewer, and one with a quarter of the places loses some only when
 * four addresses or more share them all; nor can idle connections keep a tenant of their own
 * address out that is quick. A refusal says the same whatever was wrong; the session's secret stays
 * good until its own time is over, so a stranger who knows the session's id cannot use it up.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm.h"
#include "dataplane/shm_socket.h"
#include "dataplane/tcp_priv.h"
#include "dataplane/test_switches.h"
#include "dataplane/wire_codec.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define ACCEPTS_PER_TURN 32
#define UIDS_OF_ONE      65536u

static int bind_listen(int fd, const struct addrinfo *ai, uint16_t *ret_port)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);

	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, 128) < 0 ||
	    getsockname(fd, (struct sockaddr *)&bound, &len) < 0)
		return -errno;
	*ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
	                                              : ((struct sockaddr_in *)&bound)->sin_port);
	return 0;
}

int hello_listens(struct reactor *r, struct listener *l, const struct transport_ops *t)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &l->source};

	l->source.kind = SOURCE_LISTENER;
	l->transport = t;
	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, l->fd, &ev) < 0 ? -errno : 0;
}

int tcp_listen(struct reactor *r, const char *host, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
	                         .ai_flags = AI_PASSIVE | AI_NUMERICHOST},
			*ai;
	struct listener *l = &r->tcp_listener;
	int rc = getaddrinfo(host, "0", &hints, &ai);

	slow_measure();
	if (rc)
		return ros2_err_set(err, -EINVAL,
		                    "data address: expected a numeric host, found '%s': %s", host,
		                    gai_strerror(rc));
	l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	rc = l->fd < 0 ? -errno : bind_listen(l->fd, ai, &r->port);
	freeaddrinfo(ai);
	if (rc == 0)
		rc = hello_listens(r, l, &transport_tcp);
	return rc < 0 ? ros2_err_set(err, rc, "cannot listen on %s: %s", host, strerror(-rc)) : 0;
}

/* On the other end of a socket of this machine; nobody can say another. */
static struct ucred user_of(int fd)
{
	struct ucred who = {.uid = (uid_t)-1};
	socklen_t len = sizeof(who);

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
	return who;
}

static struct host_key address_of(int fd, const struct sockaddr_storage *a)
{
	struct host_key h = host_key_of(a);
	struct ucred who;

	if (a->ss_family == AF_UNIX) {
		who = user_of(fd);
		/* Whoever has a user namespace of its own has such a block of ids, and may be each
		 * of them in turn. */
		if (who.uid >= UIDS_OF_ONE)
			who.uid -= who.uid % UIDS_OF_ONE;
		memcpy(h.address, &who.uid, sizeof(who.uid));
	}
	return h;
}

static bool same_address(const struct preauth *p, const struct host_key *from)
{
	return p->fd >= 0 && !memcmp(&p->from, from, sizeof(*from));
}

/* Its place is taken, or free again: the others of its address know. */
static void preauth_count(struct reactor *r, const struct host_key *from)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->preauth_max; i++)
		n += same_address(&r->preauth[i], from);
	for (uint32_t i = 0; i < r->preauth_max; i++)
		if (same_address(&r->preauth[i], from))
			r->preauth[i].of_address = n;
}

/* Out of its place; the descriptor is the caller's. */
static int preauth_leave(struct reactor *r, struct preauth *p)
{
	int fd = TAKE_FD(p->fd);

	r->n_preauth--;
	preauth_count(r, &p->from);
	return fd;
}

static bool is_shm(const struct preauth *p)
{
	return p->transport == &transport_shm;
}

/* Out of its place before or not: calls on @fd are those of @p. */
static void close_socket(struct reactor *r, struct preauth *p, int fd)
{
	if (is_shm(p)) {
		shm_socket_close(r->dp->shm_closer, r->epoll_fd, fd, &p->slow);
		(void)slow_user_pays(&r->slow_users, &p->from, &p->slow);
	} else {
		close(fd);
	}
}

static void preauth_close(struct reactor *r, struct preauth *p)
{
	if (p->fd >= 0)
		close_socket(r, p, preauth_leave(r, p));
}

/* All are taken: whose goes? */
static struct preauth *preauth_victim(struct reactor *r, const struct host_key *from)
{
	struct preauth *victim = &r->preauth[0];

	for (uint32_t i = 1; i < r->preauth_max; i++) {
		struct preauth *p = &r->preauth[i];
		bool own = same_address(p, from), own_victim = same_address(victim, from);

		if (p->of_address != victim->of_address) {
			if (p->of_address > victim->of_address)
				victim = p;
		} else if (own != own_victim) {
			if (own)
				victim = p;
		} else if (p->since_ns < victim->since_ns) {
			victim = p;
		}
	}
	return victim;
}

static void peer_name(int fd, const struct sockaddr_storage *a, socklen_t len, char out[64])
{
	char host[48], port[8];
	struct ucred who;

	if (a->ss_family == AF_UNIX) {
		who = user_of(fd);
		snprintf(out, 64, "uid %u, pid %d", who.uid, who.pid);
	} else if (getnameinfo((const struct sockaddr *)a, len, host, sizeof(host), port,
	                       sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(out, 64, "unknown");
	else
		snprintf(out, 64, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static bool send_now(struct preauth *p, struct wire_header *h, const void *payload, uint32_t len)
{
	struct iovec iov[] = {{h, WIRE_HEADER_LEN}, {(void *)payload, len}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	ssize_t n;

	h->payload_len = len;
	wire_seal(h);
	/* A fresh socket has room for this; one that has not is not worth waiting for. */
	n = is_shm(p) ? shm_socket_send(p->fd, &msg, &p->slow)
	              : sendmsg(p->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n == (ssize_t)(WIRE_HEADER_LEN + len);
}

static void report_refused(struct dp_post *post)
{
	struct refused *f = container_of(post, struct refused, post);
	const struct dp *dp = post->dp;

	if (dp->opts.on_event)
		dp->opts.on_event(dp->opts.arg, &f->out);
	atomic_store_explicit(&f->posted, false, memory_order_release);
}

static void post_refused_kind(struct reactor *r, struct refused *f)
{
	if (!f->pending.count || atomic_load_explicit(&f->posted, memory_order_acquire))
		return;
	f->out = f->pending;
	f->pending.count = 0;
	atomic_store_explicit(&f->posted, true, memory_order_relaxed);
	dp_post(r->dp, &f->post, report_refused);
}

static void post_refused(struct reactor *r)
{
	for (int i = 0; i < REFUSED_KINDS; i++)
		post_refused_kind(r, &r->refused[i]);
}

void hello_refused(struct reactor *r, const struct session *of, enum ros2_status st,
                   const char *peer, const char *words)
{
	bool cap = st == ROS2_LIMIT || st == ROS2_TIMEOUT;
	struct dp_event *ev = &r->refused[cap ? REFUSED_CAP : REFUSED_HELLO].pending;
	uint64_t count = ev->count, first = ev->first_unix_ns;

	*ev = (struct dp_event){.type = DP_EVENT_HELLO_REFUSED, .status = st, .count = count + 1};
	ev->last_unix_ns = clock_unix_ns();
	ev->first_unix_ns = count ? first : ev->last_unix_ns;
	if (of) {
		ev->session = of->uid;
		ev->tenant = of->tenant->uid;
		ev->grant = of->grant->uid;
	}
	snprintf(ev->words, sizeof(ev->words), "%s: %s", peer, words);
	post_refused(r);
}

static void refuse(struct reactor *r, struct preauth *p, enum ros2_status st, const char *words,
                   const struct session *of)
{
	struct wire_header h = {.opcode = WIRE_NAK, .status = (uint16_t)st};

	hello_refused(r, of, st, p->peer, words);
	if (!p->slow.over && !slow_user_is_shunned(&r->slow_users, &p->from))
		(void)send_now(p, &h, words, (uint32_t)strlen(words));
	preauth_close(r, p);
}

/* Of a user whose connections made calls slow. */
static void refused_shunned(struct reactor *r, const char *peer)
{
	char words[200];

	snprintf(words, sizeof(words),
	         "expected a user whose connections let the agent's calls be quick: this one's did "
	         "not, less than %llu s (fixed) ago: let fewer epoll sets wait on its sockets, and "
	         "come "
	         "again",
	         (unsigned long long)(SLOW_PENALTY_NS / NS_PER_S));
	hello_refused(r, NULL, ROS2_LIMIT, peer, words);
}

/* True: it has ended, because calls on its socket, or on others of its user, are slow. */
static bool ends_slow(struct reactor *r, struct preauth *p, const struct session *of)
{
	char words[200];

	if (!is_shm(p))
		return false;
	if (p->slow.over)
		slow_user_shun(&r->slow_users, &p->from);
	else
		p->slow.over = slow_user_pays(&r->slow_users, &p->from, &p->slow);
	if (p->slow.over) {
		slow_words(&p->slow, slow_allowed_ns(SLOW_NS), words, sizeof(words));
		hello_refused(r, of, ROS2_PROTOCOL, p->peer, words);
	} else if (slow_user_is_shunned(&r->slow_users, &p->from)) {
		refused_shunned(r, p->peer);
		p->slow.over = true;
	}
	if (p->slow.over)
		preauth_close(r, p);
	return p->fd < 0;
}

/* The oldest of an address that has all it may have; NULL: it has not. */
static struct preauth *preauth_own_oldest(struct reactor *r, const struct host_key *from)
{
	struct preauth *oldest = NULL;

	for (uint32_t i = 0; i < r->preauth_max; i++) {
		struct preauth *p = &r->preauth[i];

		if (!same_address(p, from))
			continue;
		if (p->of_address < r->preauth_per_address)
			return NULL;
		if (!oldest || p->since_ns < oldest->since_ns)
			oldest = p;
	}
	return oldest;
}

static struct preauth *preauth_place(struct reactor *r, const struct host_key *from)
{
	struct preauth *victim = preauth_own_oldest(r, from);
	char words[128];

	if (victim) {
		snprintf(words, sizeof(words),
		         "--unproved-connections: an address has at most %u that have proved "
		         "nothing here",
		         r->preauth_per_address);
		refuse(r, victim, ROS2_LIMIT, words, NULL);
		return victim;
	}
	for (uint32_t i = 0; i < r->preauth_max; i++)
		if (r->preauth[i].fd < 0)
			return &r->preauth[i];
	victim = preauth_victim(r, from);
	snprintf(words, sizeof(words),
	         "--unproved-connections: there are %u that have proved nothing here, and of this "
	         "address most",
	         r->preauth_max);
	refuse(r, victim, ROS2_LIMIT, words, NULL);
	return victim;
}

static void preauth_start(struct reactor *r, const struct listener *l, int fd,
                          const struct host_key *from, const char *peer)
{
	struct wire_header h = {.opcode = WIRE_CHALLENGE};
	struct preauth *p = preauth_place(r, from);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = &p->source};
	bool sent;

	*p = (struct preauth){.source = {SOURCE_PREAUTH},
	                      .fd = fd,
	                      .transport = l->transport,
	                      .since_ns = clock_boottime_ns(),
	                      .from = *from};
	slow_watch(&p->slow, p->since_ns);
	snprintf(p->peer, sizeof(p->peer), "%s", peer);
	crypto_random(p->nonce, sizeof(p->nonce));
	r->n_preauth++;
	preauth_count(r, from);
	/* What comes stays where it is until all of it is there. */
	if (is_shm(p))
		ev.events |= EPOLLET;
	sent = epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0 &&
	       send_now(p, &h, p->nonce, sizeof(p->nonce));
	if (!ends_slow(r, p, NULL) && !sent)
		preauth_close(r, p);
}

/* Another of a user whose connections made calls slow: it is closed, by who may be kept waiting. */
static bool is_shunned(struct reactor *r, int fd, const struct host_key *from, const char *peer)
{
	struct slow slow = {.over = true};

	if (!slow_user_is_shunned(&r->slow_users, from))
		return false;
	refused_shunned(r, peer);
	shm_socket_close(r->dp->shm_closer, r->epoll_fd, fd, &slow);
	return true;
}

static void accept_events(struct reactor *r, struct listener *l, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = &l->source};

	/* One that failed is made again: at the next tick, or when the listener is ready again. */
	if (epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, l->fd, &ev) == 0)
		l->paused = !events;
}

void hello_accept_again(struct reactor *r)
{
	if (r->tcp_listener.paused)
		accept_events(r, &r->tcp_listener, EPOLLIN);
	if (r->shm_listener.paused)
		accept_events(r, &r->shm_listener, EPOLLIN);
}

void hello_accept(struct reactor *r, struct listener *l)
{
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct sockaddr_storage addr;
		socklen_t len = sizeof(addr);
		struct host_key from;
		char peer[64];
		int fd = accept4(l->fd, (struct sockaddr *)&addr, &len,
		                 SOCK_NONBLOCK | SOCK_CLOEXEC);

		/* Without descriptors or memory the listener would stay readable: not to spin, it
		 * rests until the next tick. */
		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
			accept_events(r, l, 0);
		if (fd < 0)
			return;
		if (l->transport == &transport_shm)
			shm_socket_accepted(fd);
		peer_name(fd, &addr, len, peer);
		from = address_of(fd, &addr);
		if (l->transport != &transport_shm || !is_shunned(r, fd, &from, peer))
			preauth_start(r, l, fd, &from, peer);
	}
}

static void proof_of(const struct session *s, const char *label, size_t label_len,
                     const struct wire_hello *hello, const uint8_t *agent_nonce,
                     uint8_t out[WIRE_MAC_LEN])
{
	struct crypto_span parts[] = {{label, label_len},
	                              {hello->session_uid, sizeof(hello->session_uid)},
	                              {agent_nonce, WIRE_NONCE_LEN},
	                              {hello->tenant_nonce, WIRE_NONCE_LEN}};

	crypto_hmac_sha256v(s->secret, sizeof(s->secret), parts, ARRAY_SIZE(parts), out);
}

static struct session *waiting_session(struct reactor *r, const struct transport_ops *t,
                                       const uint8_t uid[16])
{
	for (uint32_t i = 0; i < DP_SESSIONS_MAX; i++) {
		struct session *s = r->sessions[i];

		if (s && s->state == SESSION_WAITING && s->transport == t &&
		    !memcmp(s->uid.b, uid, 16))
			return s;
	}
	return NULL;
}

static void welcome(struct reactor *r, struct preauth *p, struct session *s,
                    const struct wire_hello *hello, uint32_t features)
{
	struct wire_welcome w = {
		.credits = DP_CREDITS, .max_io = WIRE_IO_MAX, .max_inline = WIRE_INLINE_MAX};
	bool over_shm = is_shm(p);
	int fd = preauth_leave(r, p), rc;

	proof_of(s, WIRE_LABEL_AGENT, sizeof(WIRE_LABEL_AGENT), hello, p->nonce, w.proof);
	w.features = session_connected(s, p->peer, features);
	if (over_shm)
		w.max_inline = 0;
	rc = over_shm ? shm_start(s, fd, &w, &p->from, &p->slow) : tcp_start(s, fd, &w);
	if (rc < 0) {
		close_socket(r, p, fd);
		session_end(s, ROS2_INTERNAL, "the connection ended before it began");
	}
}

/* Over shm it was only looked at. False: the connection has ended. */
static bool take_hello(struct reactor *r, struct preauth *p, const struct session *of)
{
	uint8_t same[PREAUTH_BYTES];
	ssize_t n;

	if (!is_shm(p))
		return true;
	n = shm_socket_take(p->fd, same, sizeof(same), &p->slow);
	if (ends_slow(r, p, of))
		return false;
	if (n == (ssize_t)sizeof(same))
		return true;
	preauth_close(r, p);
	return false;
}

static void on_hello(struct reactor *r, struct preauth *p)
{
	uint64_t now_ns = clock_boottime_ns();
	struct wire_hello hello;
	struct wire_header h;
	struct session *s;
	uint8_t want[WIRE_MAC_LEN];
	const char *words;
	enum ros2_status st = wire_parse_from_tenant(p->bytes, &h, &words);

	if (st != ROS2_OK || h.opcode != WIRE_HELLO) {
		refuse(r, p, st != ROS2_OK ? st : ROS2_PROTOCOL,
		       st != ROS2_OK ? words : "expected HELLO", NULL);
		return;
	}
	memcpy(&hello, p->bytes + WIRE_HEADER_LEN, sizeof(hello));
	s = waiting_session(r, p->transport, hello.session_uid);
	if (s)
		proof_of(s, WIRE_LABEL_TENANT, sizeof(WIRE_LABEL_TENANT), &hello, p->nonce, want);
	if (!s || now_ns >= s->hello_deadline_ns || session_rights(s, now_ns) != ROS2_OK ||
	    !(DP_SWITCH(no_proof) || crypto_equal(want, hello.proof, sizeof(want)))) {
		refuse(r, p, ROS2_UNAUTHENTICATED, "no session waits for this proof", s);
		return;
	}
	if (take_hello(r, p, s))
		welcome(r, p, s, &hello, h.length);
}

/* Over shm all that is there is looked at again each time; how much of it there is by now. */
static ssize_t receive(struct preauth *p)
{
	ssize_t n;

	if (is_shm(p))
		return shm_socket_look(p->fd, p->bytes, sizeof(p->bytes));
	n = recv(p->fd, p->bytes + p->have, sizeof(p->bytes) - p->have, MSG_DONTWAIT);
	return n > 0 ? n + (ssize_t)p->have : n;
}

static bool has_gone(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

void hello_receive(struct reactor *r, struct preauth *p, uint32_t events)
{
	struct wire_header h;
	const char *words;
	enum ros2_status st;
	ssize_t n;

	if (p->fd < 0 || ends_slow(r, p, NULL))
		return;
	n = receive(p);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 && errno == EPERM && is_shm(p)) {
		refuse(r, p, ROS2_PROTOCOL, "open files came, and nobody takes any here", NULL);
		return;
	}
	if (n <= 0) {
		preauth_close(r, p);
		return;
	}
	p->have = (uint32_t)n;
	if (p->have == sizeof(p->bytes)) {
		on_hello(r, p);
		return;
	}
	if (p->have >= WIRE_HEADER_LEN) {
		/* Garbage is not worth waiting for more of it. */
		st = wire_parse_from_tenant(p->bytes, &h, &words);
		if (st != ROS2_OK || h.opcode != WIRE_HELLO) {
			on_hello(r, p);
			return;
		}
	}
	/* Told once, and behind what is there it is not seen. Asked, because the event may have
	 * been of who had the place before. */
	if (is_shm(p) && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) && has_gone(p->fd))
		preauth_close(r, p);
}

void hello_expire(struct reactor *r)
{
	uint64_t now_ns = clock_boottime_ns();

	for (uint32_t i = 0; i < r->preauth_max && r->n_preauth; i++)
		if (r->preauth[i].fd >= 0 &&
		    now_ns - r->preauth[i].since_ns > WIRE_HELLO_MS * NS_PER_MS)
			refuse(r, &r->preauth[i], ROS2_TIMEOUT,
			       "no HELLO came within the time for it", NULL);
	post_refused(r);
}

void hello_close_all(struct reactor *r)
{
	for (uint32_t i = 0; i < r->preauth_max; i++)
		preauth_close(r, &r->preauth[i]);
}
