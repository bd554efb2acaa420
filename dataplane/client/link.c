/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One data connection to the agent: connect, prove both sides, move bytes. It decides nothing about
 * requests; an error from here means that the connection is of no use any more.
 */
#include "common/clock.h"
#include "common/crypto.h"
#include "common/utf8.h"
#include "dataplane/client/codec.h"
#include "dataplane/client/internal_priv.h"
#include "dataplane/client/shm.h"
#include "dataplane/client/test_switches.h"
#include "dataplane/client/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* A peer that sends without end must not keep the session thread from its other work. */
#define READS_PER_ROUND 64
#define SENDS_PER_ROUND 16
/* Of a large payload so much is worth a wake: more, and the copy would wait for the sender. Less
 * than the least is not worth the call that says so. */
#define WAKE_BYTES_MAX (512u * 1024)
#define WAKE_BYTES_MIN (16u * 1024)

/* ---- connecting ---- */

int link_split_address(const char *address, char host[256], char port[8], struct ros2_err *err)
{
	const char *colon = strrchr(address, ':');
	const char *from = address, *to = colon;

	if (!colon || colon == address || !colon[1] || strlen(colon + 1) > 5)
		goto bad;
	if (*from == '[' && to[-1] == ']') {
		from++;
		to--;
	}
	if (to <= from || to - from > 255)
		goto bad;
	snprintf(host, 256, "%.*s", (int)(to - from), from);
	snprintf(port, 8, "%s", colon + 1);
	return 0;
bad:
	return ros2_err_named(err, ROS2_PROTOCOL, "'%s' is no data address: expected host:port",
	                      address);
}

static int ms_left(uint64_t deadline_ns)
{
	uint64_t now = clock_monotonic_ns();

	return now >= deadline_ns ? 0 : (int)((deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS);
}

int link_wait(int fd, short events, uint64_t deadline_ns, struct ros2_err *err)
{
	struct pollfd p = {.fd = fd, .events = events};
	int rc;

	do {
		rc = poll(&p, 1, ms_left(deadline_ns));
	} while (rc < 0 && errno == EINTR);
	if (rc > 0)
		return 0;
	return ros2_err_named(err, ROS2_TIMEOUT, "the agent's data port did not answer in time");
}

static int connect_one(const struct addrinfo *ai, uint64_t deadline_ns, int *ret_fd,
                       struct ros2_err *err)
{
	AUTO_CLOSE int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1, failed = 0, rc;
	socklen_t len = sizeof(failed);

	if (fd < 0)
		return ros2_err_set(err, -errno, "cannot make a socket: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "cannot connect: %s", strerror(errno));
	rc = link_wait(fd, POLLOUT, deadline_ns, err);
	if (rc)
		return rc;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0 || failed)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "cannot connect: %s",
		                      strerror(failed));
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int connect_to(const char *address, uint64_t deadline_ns, int *ret_fd, struct ros2_err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	char host[256], port[8];
	int rc = link_split_address(address, host, port, err);

	if (rc)
		return rc;
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc)
		return ros2_err_named(err, ROS2_UNAVAILABLE, "the agent's data address '%s': %s",
		                      address, gai_strerror(rc));
	rc = -ENOTCONN;
	for (struct addrinfo *ai = list; ai && rc; ai = ai->ai_next)
		rc = connect_one(ai, deadline_ns, ret_fd, err);
	freeaddrinfo(list);
	if (rc)
		ros2_err_prefix(err, "data connection to %s", address);
	return rc;
}

/* ---- HELLO and WELCOME: before the proof nothing but these few exact messages is read ---- */

static int read_exact(int fd, void *p, size_t n, uint64_t deadline_ns, struct ros2_err *err)
{
	while (n) {
		ssize_t got = recv(fd, p, n, 0);
		int rc;

		if (got > 0) {
			p = (char *)p + got;
			n -= (size_t)got;
		} else if (got == 0) {
			return ros2_err_named(err, ROS2_CLOSED,
			                      "the agent closed the data connection before the "
			                      "session was proved");
		} else if (errno == EAGAIN) {
			rc = link_wait(fd, POLLIN, deadline_ns, err);
			if (rc)
				return rc;
		} else if (errno != EINTR) {
			return ros2_err_named(err, ROS2_CLOSED, "the data connection broke: %s",
			                      strerror(errno));
		}
	}
	return 0;
}

int link_refused(int fd, const struct wire_header *h, uint64_t deadline_ns, struct ros2_err *err)
{
	char words[WIRE_WORDS_MAX + 1] = "";
	enum ros2_status st =
		h->status && h->status < ROS2_STATUS_COUNT ? h->status : ROS2_PROTOCOL;
	int rc;

	if (h->payload_len > WIRE_WORDS_MAX)
		return ros2_err_named(err, ROS2_PROTOCOL, "a NAK with %u bytes of words",
		                      h->payload_len);
	rc = read_exact(fd, words, h->payload_len, deadline_ns, err);
	if (rc)
		return rc;
	utf8_clean(words);
	return ros2_err_named(err, st, "the agent refused the data connection: %s",
	                      words[0] ? words : ros2_status_text(st));
}

static int read_message(int fd, uint8_t opcode, void *payload, uint32_t len, uint64_t deadline_ns,
                        struct ros2_err *err)
{
	struct wire_header h;
	int rc = read_exact(fd, &h, sizeof(h), deadline_ns, err);

	if (rc)
		return rc;
	rc = codec_check(&h, err);
	if (rc)
		return rc;
	if (h.opcode == WIRE_NAK)
		return link_refused(fd, &h, deadline_ns, err);
	if (h.opcode != opcode || h.payload_len != len)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "expected %s with %u bytes, the agent sent %s with %u",
		                      codec_opcode_to_str(opcode), len,
		                      codec_opcode_to_str(h.opcode), h.payload_len);
	return read_exact(fd, payload, len, deadline_ns, err);
}

int link_send_all(int fd, const void *p, size_t n, uint64_t deadline_ns, struct ros2_err *err)
{
	while (n) {
		ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
		int rc = 0;

		if (sent >= 0) {
			p = (const char *)p + sent;
			n -= (size_t)sent;
		} else if (errno == EAGAIN) {
			rc = link_wait(fd, POLLOUT, deadline_ns, err);
		} else if (errno != EINTR) {
			rc = ros2_err_named(err, ROS2_CLOSED, "cannot send to the agent: %s",
			                    strerror(errno));
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int send_hello(int fd, const struct wire_hello *hello, uint64_t deadline_ns,
                      struct ros2_err *err)
{
	struct {
		struct wire_header h;
		struct wire_hello hello;
	} msg = {.h = {.opcode = WIRE_HELLO,
	               .length = WIRE_FEATURES_KNOWN,
	               .payload_len = sizeof(*hello)},
	         .hello = *hello};

	codec_seal(&msg.h);
	return link_send_all(fd, &msg, sizeof(msg), deadline_ns, err);
}

static int check_welcome(const struct wire_welcome *w, struct ros2_err *err)
{
	if (!w->credits || w->credits > WIRE_CREDITS_MAX || !w->max_io || w->max_io > WIRE_IO_MAX ||
	    w->max_inline > WIRE_INLINE_MAX || w->features & ~WIRE_FEATURES_KNOWN)
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "WELCOME offers %u credits, %u bytes per request, %u "
		                      "inline, features 0x%x",
		                      w->credits, w->max_io, w->max_inline, w->features);
	return 0;
}

int link_shake_hands(struct ros2_session *s, int fd, uint64_t deadline_ns, struct wire_welcome *ret,
                     struct ros2_err *err)
{
	struct wire_challenge challenge;
	struct wire_hello hello;
	uint8_t proof[WIRE_MAC_LEN];
	struct codec_proof p = {s->granted.secret, hello.session_uid, challenge.agent_nonce,
	                        hello.tenant_nonce};
	int rc = read_message(fd, WIRE_CHALLENGE, &challenge, sizeof(challenge), deadline_ns, err);

	if (rc)
		return rc;
	memcpy(hello.session_uid, s->granted.uid, sizeof(hello.session_uid));
	crypto_random(hello.tenant_nonce, sizeof(hello.tenant_nonce));
	codec_prove(&p, WIRE_LABEL_TENANT, hello.proof);
	rc = send_hello(fd, &hello, deadline_ns, err);
	if (rc)
		return rc;
	rc = read_message(fd, WIRE_WELCOME, ret, sizeof(*ret), deadline_ns, err);
	if (rc)
		return rc;
	codec_prove(&p, WIRE_LABEL_AGENT, proof);
	if (!crypto_equal(proof, ret->proof, sizeof(proof)) && !CLIENT_SWITCH(no_agent_proof))
		return ros2_err_named(err, ROS2_UNAUTHENTICATED,
		                      "whoever answers at %s does not know the session's secret",
		                      s->granted.data_address);
	return check_welcome(ret, err);
}

int link_take_welcome(struct ros2_session *s, const struct wire_welcome *w, struct ros2_err *err)
{
	int rc = check_welcome(w, err);

	if (rc)
		return rc;
	s->credits = w->credits;
	s->max_io = w->max_io;
	s->max_inline = w->max_inline;
	s->features = w->features;
	s->peer_said_bye = false;
	s->nak = (struct ros2_err)ROS2_ERR_INIT;
	spin_init(&s->spin);
	s->silent_ns = s->pinged_ns = 0;
	s->up_since_ns = s->looked_ns = clock_monotonic_ns();
	rx_reset(&s->rx, &requests_rx_ops, s);
	return 0;
}

static const struct link_ops tcp_ops;

static int open_tcp(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err)
{
	uint64_t deadline = clock_add_ns(clock_monotonic_ns(), timeout_ms * NS_PER_MS);
	struct wire_welcome w;
	AUTO_CLOSE int fd = -1;
	int rc = connect_to(s->granted.data_address, deadline, &fd, err);

	if (!rc)
		rc = link_shake_hands(s, fd, deadline, &w, err);
	if (!rc)
		rc = link_take_welcome(s, &w, err);
	if (!rc) {
		s->fd = TAKE_FD(fd);
		s->wakes_at = 1;
	}
	return rc;
}

static const struct link_ops *ops_of(enum ros2_transport over)
{
	switch (over) {
	case ROS2_TRANSPORT_VERBS:
		return &verbs_link_ops;
	case ROS2_TRANSPORT_SHM:
		return &shm_link_ops;
	default:
		return &tcp_ops;
	}
}

int link_open(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err)
{
	int rc;

	s->over = s->granted.transport;
	s->link_ops = ops_of(s->over);
	rc = s->link_ops->open(s, timeout_ms, err);
	/* It was good for this one proof. */
	crypto_wipe(s->granted.secret, sizeof(s->granted.secret));
	return rc;
}

/* What the kernel has not sent yet of requests that are given up is not to be sent: it would go on
 * with it for minutes. So they are reset: see connect(2). A connection without any ends in order.
 * Both are done to the connection itself: where a child that was forked has the socket, too,
 * close(2) alone would leave it standing, and sending. Some sandboxes do not know that connect
 * (gVisor): there close(2) resets it, where no child has it. */
static void close_socket(struct ros2_session *s)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	static const struct linger none = {.l_onoff = 1};

	if (s->over == ROS2_TRANSPORT_TCP && s->n_sent &&
	    connect(s->fd, &nobody, sizeof(nobody)) < 0)
		(void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	(void)shutdown(s->fd, SHUT_RDWR);
	close(s->fd);
}

void link_cut(struct ros2_session *s)
{
	if (s->fd >= 0)
		close_socket(s);
	s->fd = -1;
	verbs_link_cut(s);
	shm_link_cut(s);
}

void link_leave(struct ros2_session *s)
{
	if (s->fd >= 0)
		close(TAKE_FD(s->fd));
}

void link_close(struct ros2_session *s)
{
	link_cut(s);
	tx_drop(&s->tx);
}

/* ---- moving bytes ---- */

int link_broke(struct ros2_session *s, int error, struct ros2_err *err)
{
	if (s->nak.code) {
		if (err)
			*err = s->nak;
		return s->nak.code;
	}
	return ros2_err_named(err, ROS2_CLOSED, "the agent ended the data connection%s%s",
	                      error ? ": " : "", error ? strerror(error) : "");
}

/* Not the connection's fault: a region's memory was unmapped, or cannot be read or written. On a
 * new connection it would only happen again. */
static int unmapped(struct ros2_err *err)
{
	return ros2_err_set(err, -EFAULT,
	                    "a region that requests use is no longer memory of this program, or "
	                    "not with the access it was registered for");
}

bool link_can_read(const struct ros2_session *s)
{
	return s->tx.capacity - s->tx.count > RX_STAGE_MAX / WIRE_HEADER_LEN;
}

static int send_waiting(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	struct iovec iov[TX_IOV_MAX];

	for (int i = 0; i < SENDS_PER_ROUND; i++) {
		struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)tx_iov(&s->tx, iov)};
		ssize_t n;

		if (!m.msg_iovlen)
			return 0;
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EFAULT)
			return unmapped(err);
		/* What the agent said before it went is worth more than EPIPE: read first. */
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET) && link_can_read(s))
			return 0;
		if (n < 0)
			return link_broke(s, errno, err);
		tx_advance(&s->tx, (size_t)n, requests_entry_sent, s);
		*ret_moved = true;
	}
	return 0;
}

static enum rx_expect expect(const struct ros2_session *s)
{
	if (!s->n_reads_sent)
		return RX_EXPECT_NO_PAYLOAD;
	/* No PULL can come, so a stage full of headers asks for no answers. */
	return s->n_small_reads_sent == s->n_sent ? RX_EXPECT_SMALL_READS : RX_EXPECT_PAYLOAD;
}

static int receive(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	for (int i = 0; i < READS_PER_ROUND && link_can_read(s); i++) {
		enum rx_expect what = expect(s);
		struct iovec iov[2];
		int n_iov = rx_iov(&s->rx, what, iov);
		ssize_t n = readv(s->fd, iov, n_iov);
		size_t room = iov[0].iov_len + (n_iov > 1 ? iov[1].iov_len : 0);
		int rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0 && errno == EFAULT)
			return unmapped(err);
		if (n <= 0)
			return link_broke(s, n < 0 ? errno : 0, err);
		*ret_moved = true;
		s->silent_ns = s->pinged_ns = 0;
		s->looked_ns = clock_monotonic_ns();
		rc = rx_advance(&s->rx, (size_t)n, err);
		if (rc)
			return rc;
		/* A short read: the socket is empty, the next one would only say so. */
		if ((size_t)n < room)
			return 0;
		/* A stage full of replies: what they make room for is asked for before the rest is
		 * taken, so that the agent has work meanwhile. */
		if (what == RX_EXPECT_SMALL_READS)
			return 0;
	}
	return 0;
}

/* A peer that is stopped, or whose machine is gone, says nothing: TCP alone would wait for ever. */
static int check_silence(struct ros2_session *s, struct ros2_err *err)
{
	uint64_t now = clock_monotonic_ns(), listened = now - s->looked_ns;
	struct wire_header ping = {.opcode = WIRE_PING};

	s->looked_ns = now;
	if (!s->n_sent) {
		s->silent_ns = s->pinged_ns = 0;
		return 0;
	}
	s->silent_ns += MIN(listened, LISTENED_MAX_MS * NS_PER_MS);
	if (s->silent_ns > LOST_AFTER_MS * NS_PER_MS)
		return ros2_err_named(err, ROS2_TIMEOUT,
		                      "nothing was heard from the agent for %u s",
		                      LOST_AFTER_MS / 1000);
	if (s->silent_ns - s->pinged_ns > PING_AFTER_MS * NS_PER_MS && !tx_is_full(&s->tx)) {
		s->pinged_ns = s->silent_ns;
		tx_push(&s->tx, &ping, NULL, -1);
	}
	return 0;
}

int link_progress(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	int rc = s->link_ops->progress(s, ret_moved, err);

	if (!rc)
		rc = check_silence(s, err);
	if (!rc && s->tx.count)
		rc = s->link_ops->send(s, ret_moved, err);
	if (!rc && s->peer_said_bye && !s->n_sent)
		rc = link_broke(s, 0, err);
	return rc;
}

int link_listen(struct ros2_session *s, struct ros2_err *err)
{
	return s->link_ops->listen(s, err);
}

/* Who takes answers as they come asks for more sooner, and the agent need not wake anybody. */
static int spin(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	uint64_t until;
	int rc;

	if (!s->n_sent || s->tx.count || !spin_begin(&s->spin))
		return 0;
	until = clock_monotonic_ns() + SPIN_NS;
	do {
		rc = link_progress(s, ret_moved, err);
	} while (!rc && !*ret_moved && clock_monotonic_ns() < until);
	spin_end(&s->spin, *ret_moved);
	return rc;
}

int link_await(struct ros2_session *s, int timeout_ms, bool *ret_moved, struct ros2_err *err)
{
	int rc = s->link_ops->spins ? spin(s, ret_moved, err) : 0;

	if (rc || *ret_moved)
		return rc;
	s->link_ops->poll(s, timeout_ms);
	return link_progress(s, ret_moved, err);
}

/* ---- over TCP ---- */

static int progress_tcp(struct ros2_session *s, bool *ret_moved, struct ros2_err *err)
{
	int rc = send_waiting(s, ret_moved, err);

	return rc ? rc : receive(s, ret_moved, err);
}

static int listen_tcp(struct ros2_session *s, struct ros2_err *err)
{
	bool moved = false;

	return receive(s, &moved, err);
}

/* Else each segment of a large payload wakes the sleeper, and its sender pays for that: to wake
 * another processor costs more than to copy 64 KiB. Never more than what this message still has to
 * bring, for nothing else may come; an end wakes whatever is missing (tcp(7), SO_RCVLOWAT). Where
 * it cannot be set, more wakes are all that happens. */
static void wake_for_enough(struct ros2_session *s)
{
	uint32_t left = s->rx.in_payload ? s->rx.left : 0;
	int bytes = left < WAKE_BYTES_MIN ? 1 : (int)MIN(left, WAKE_BYTES_MAX);

	if (bytes == s->wakes_at)
		return;
	(void)setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
	s->wakes_at = bytes;
}

static void poll_tcp(struct ros2_session *s, int timeout_ms)
{
	struct pollfd p = {.fd = s->fd};

	wake_for_enough(s);
	if (link_can_read(s))
		p.events |= POLLIN;
	if (s->tx.count)
		p.events |= POLLOUT;
	/* An interrupted or failed poll only means that the caller looks again. */
	(void)poll(&p, 1, timeout_ms);
}

static const struct link_ops tcp_ops = {
	.open = open_tcp,
	.progress = progress_tcp,
	.send = send_waiting,
	.listen = listen_tcp,
	.poll = poll_tcp,
	.spins = true,
};
