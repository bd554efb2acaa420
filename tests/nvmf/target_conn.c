/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the target: bytes to whole PDUs, each checked against NVMe/TCP 1.0 as strictly
 * as the text allows, and bytes out, at the pace of a fault where one says so.
 */
#include "tests/nvmf/target_priv.h"

#include "common/clock.h"
#include "common/crypto.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* Fatal error status of C2HTermReq: NVMe/TCP 1.0, 3.6.2.4. */
enum fes { FES_HEADER = 1, FES_SEQUENCE = 2, FES_DIGEST = 3, FES_RANGE = 4, FES_UNSUPPORTED = 6 };

void target_violates(struct conn *c, const char *fmt, ...)
{
	struct target *t = c->t;
	int at;
	va_list ap;

	if (c->lied) /* what it does then is no fault of its own */
		return;
	t->stats.violations++;
	at = snprintf(t->violation, sizeof(t->violation),
	              "%.100s qid %u: ", c->ctrl ? c->ctrl->host_nqn : "(before Connect)", c->qid);
	va_start(ap, fmt);
	vsnprintf(t->violation + at, sizeof(t->violation) - (size_t)at, fmt, ap);
	va_end(ap);
}

struct conn *target_conn_new(struct target *t, int fd)
{
	struct conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};

	if (!c)
		return NULL;
	c->rx = malloc(RX_MAX);
	c->cmds = calloc(TARGET_DEPTH_MAX + 1, sizeof(*c->cmds));
	if (!c->rx || !c->cmds || epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		goto no_memory;
	c->t = t;
	c->fd = fd;
	c->events = EPOLLIN;
	list_add_tail(&t->conns, &c->link);
	t->stats.connections++;
	return c;
no_memory:
	free(c->rx);
	free(c->cmds);
	free(c);
	return NULL;
}

struct conn *target_conn_aside(struct target *t, void *side)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->cmds = calloc(TARGET_DEPTH_MAX + 1, sizeof(*c->cmds));
	if (!c->cmds) {
		free(c);
		return NULL;
	}
	c->t = t;
	c->fd = -1;
	c->side = side;
	c->aside = true;
	c->state = CONN_CONNECT;
	list_add_tail(&t->conns, &c->link);
	t->stats.connections++;
	return c;
}

void target_accept(struct target *t)
{
	int one = 1;

	for (;;) {
		int fd = t->listen_fd < 0
		                 ? -1
		                 : accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (!target_conn_new(t, fd))
			close(fd);
	}
}

void target_conn_end(struct conn *c, bool reset)
{
	struct linger now = {.l_onoff = 1};
	struct ctrl *k = c->ctrl;

	if (c->dead)
		return;
	c->dead = true;
	if (c->aside)
		c->t->side->end(c);
	if (c->carried)
		c->t->o.carrier->end(c, reset);
	if (reset && c->fd >= 0 && !c->carried)
		setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (c->fd >= 0 && !c->carried)
		close(c->fd);
	target_cmds_orphan(c);
	c->ctrl = NULL;
	/* The association ends with its admin queue: NVMe Base 2.0, 3.3.2. */
	if (k && k->admin == c) {
		k->admin = NULL;
		target_ctrl_end(k, reset);
	}
	target_wake(c->t);
}

void target_conn_free(struct conn *c)
{
	for (unsigned i = 0; i <= TARGET_DEPTH_MAX; i++)
		free(c->cmds[i].data);
	list_del(&c->link);
	if (c->carried)
		c->t->o.carrier->free(c);
	target_auth_end(c);
	free(c->cmds);
	free(c->rx);
	free(c->tx);
	free(c);
}

static void watch(struct conn *c)
{
	uint32_t want = EPOLLIN;
	struct epoll_event ev = {.data.ptr = c};

	if (c->tx_at < c->tx_len && !c->slow_ns)
		want |= EPOLLOUT;
	if (want == c->events)
		return;
	ev.events = c->events = want;
	epoll_ctl(c->t->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

/* False when the connection has ended. */
static bool send_some(struct conn *c, size_t most)
{
	while (most && c->tx_at < c->tx_len) {
		ssize_t n = send(c->fd, c->tx + c->tx_at, MIN(c->tx_len - c->tx_at, most),
		                 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0) {
			target_conn_end(c, false);
			return false;
		}
		c->tx_at += (size_t)n;
		most -= (size_t)n;
	}
	if (c->tx_at == c->tx_len)
		c->tx_at = c->tx_len = 0;
	return true;
}

void target_conn_flush(struct conn *c)
{
	size_t most = SIZE_MAX;

	if (c->carried)
		return;
	if (c->slow_ns) {
		if (c->t->now_ns < c->slow_next_ns)
			return;
		most = 1;
		c->slow_next_ns = c->t->now_ns + c->slow_ns;
	}
	if (!send_some(c, most))
		return;
	if (c->state == CONN_ENDING && c->tx_at == c->tx_len)
		target_conn_end(c, c->reset);
	else
		watch(c);
}

/* Ends it with C2HTermReq and words. */
static void fatal(struct conn *c, enum fes fes, uint32_t at, const uint8_t *pdu, const char *why)
{
	target_violates(c, "PDU of type 0x%02x: %s", pdu[0], why);
	target_term_send(c, (uint16_t)fes, at, pdu, MIN(pdu[2], 128));
}

static void icreq_in(struct conn *c, const uint8_t *pdu)
{
	uint8_t dgst = pdu[11];

	if (le16(pdu + 8) != 0) {
		fatal(c, FES_UNSUPPORTED, 8, pdu, "PFV is not 0");
		return;
	}
	if (pdu[10] > 31 || dgst & ~3u) {
		fatal(c, FES_HEADER, 10, pdu, "HPDA or DGST out of range");
		return;
	}
	c->hpda = pdu[10];
	c->maxr2t = (uint32_t)MIN((uint64_t)le32(pdu + 12) + 1, R2T_MAX);
	c->hdgst = dgst & 1 && !c->t->o.no_header_digest;
	c->ddgst = dgst & 2 && !c->t->o.no_data_digest;
	c->state = CONN_CONNECT;
	target_icresp_send(c, (uint8_t)(c->hdgst | c->ddgst << 1));
}

static bool digest_ok(const uint8_t *p, size_t len, const uint8_t *digest)
{
	return crypto_crc32c(p, len) == le32(digest);
}

/* Where the data of this PDU lie: their length, or -1 when the header cannot be right. */
static int64_t data_of(struct conn *c, const uint8_t *pdu, const uint8_t **ret)
{
	uint32_t head = pdu[2] + (c->hdgst ? 4u : 0), tail = c->ddgst ? 4 : 0, plen = le32(pdu + 4);
	uint32_t pdo = pdu[3];

	*ret = NULL;
	if (plen == head && !(pdu[1] & F_DDGST))
		return 0;
	if (pdo < head || pdo % 4 || pdo % ((c->t->o.cpda + 1u) * 4) || plen < pdo + tail ||
	    plen == pdo + tail || !(pdu[1] & F_DDGST) != !c->ddgst)
		return -1;
	*ret = pdu + pdo;
	return plen - pdo - tail;
}

static void cmd_in(struct conn *c, const uint8_t *pdu)
{
	const uint8_t *data;
	int64_t len = data_of(c, pdu, &data);

	if (len < 0)
		fatal(c, FES_HEADER, 3, pdu, "PDO, PLEN and the digest flag do not fit");
	else
		target_cmd_in(c, pdu + 8, data, (uint32_t)len,
		              !len || !c->ddgst || digest_ok(data, (size_t)len, data + len));
}

static void data_in(struct conn *c, const uint8_t *pdu)
{
	const uint8_t *data;
	int64_t len = data_of(c, pdu, &data);

	if (len <= 0 || len != le32(pdu + 16) || len > c->t->o.maxh2cdata)
		fatal(c, FES_HEADER, 16, pdu, "DATAL, PDO, PLEN and MAXH2CDATA do not fit");
	else if (!target_cmd_data_in(c, pdu + 8, data, (uint32_t)len, pdu[1] & F_LAST,
	                             !c->ddgst || digest_ok(data, (size_t)len, data + len)) &&
	         !c->dead)
		fatal(c, FES_RANGE, 12, pdu, "no R2T asked for these data");
}

static void pdu_in(struct conn *c, const uint8_t *pdu)
{
	uint64_t arg;
	uint8_t allowed = (c->hdgst ? F_HDGST : 0) | (c->ddgst ? F_DDGST : 0);

	if (target_lies(c, NULL, pdu[0], FAULT_RX_CLOSE, &arg)) {
		target_conn_end(c, false);
		return;
	}
	if (pdu[0] == PDU_H2CTERM) {
		target_violates(c, "the host ends with H2CTermReq, status %u", le16(pdu + 8));
		target_conn_end(c, false);
		return;
	}
	if ((pdu[0] == PDU_ICREQ) != (c->state == CONN_IC)) {
		fatal(c, FES_SEQUENCE, 0, pdu, "not in this state");
		return;
	}
	if (pdu[0] != PDU_ICREQ && c->hdgst && !digest_ok(pdu, pdu[2], pdu + pdu[2])) {
		fatal(c, FES_DIGEST, 0, pdu, "wrong header digest");
		return;
	}
	if (pdu[0] == PDU_H2CDATA)
		allowed |= F_LAST;
	if (pdu[0] != PDU_ICREQ && (pdu[1] & ~allowed || (c->hdgst && !(pdu[1] & F_HDGST)))) {
		fatal(c, FES_HEADER, 1, pdu, "flags");
		return;
	}
	if (pdu[0] == PDU_ICREQ)
		icreq_in(c, pdu);
	else if (pdu[0] == PDU_CMD)
		cmd_in(c, pdu);
	else
		data_in(c, pdu);
}

/* Bytes of a header of this type, 0 = not for a controller. */
static uint8_t hlen_of(uint8_t type)
{
	switch (type) {
	case PDU_ICREQ:
		return 128;
	case PDU_CMD:
		return 72;
	case PDU_H2CDATA:
	case PDU_H2CTERM:
		return 24;
	default:
		return 0;
	}
}

/* Whether a PDU of this header may come at all. */
static bool header_ok(struct conn *c, const uint8_t *pdu)
{
	uint32_t plen = le32(pdu + 4), most = (uint32_t)RX_MAX / 2 + 256;
	uint8_t hlen = hlen_of(pdu[0]);

	if (!hlen)
		fatal(c, FES_HEADER, 0, pdu, "unknown type");
	else if (pdu[2] != hlen)
		fatal(c, FES_HEADER, 2, pdu, "HLEN is not that of the type");
	else if (pdu[0] == PDU_ICREQ && plen != 128)
		fatal(c, FES_HEADER, 4, pdu, "PLEN is not 128");
	else if (pdu[0] == PDU_ICREQ && (pdu[1] || pdu[3]))
		fatal(c, FES_HEADER, 1, pdu, "flags or PDO of ICReq");
	else if (plen < hlen + (c->hdgst && pdu[0] != PDU_H2CTERM ? 4u : 0) || plen > most)
		fatal(c, FES_HEADER, 4, pdu, "PLEN out of range");
	else
		return true;
	return false;
}

static void parse(struct conn *c)
{
	size_t at = 0;

	while (!c->dead && c->state != CONN_ENDING && c->rx_len - at >= 8) {
		if (!header_ok(c, c->rx + at))
			break;
		if (c->rx_len - at < le32(c->rx + at + 4))
			break;
		pdu_in(c, c->rx + at);
		at += le32(c->rx + at + 4);
	}
	c->rx_len -= at;
	memmove(c->rx, c->rx + at, c->rx_len);
}

void target_conn_event(struct conn *c, uint32_t revents)
{
	ssize_t n;

	if (c->carried) {
		c->t->o.carrier->conn_event(c);
		return;
	}
	n = recv(c->fd, c->rx + c->rx_len, RX_MAX - c->rx_len, MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		target_conn_end(c, false);
		return;
	}
	if (c->state == CONN_ENDING) /* listens no more, sends what is left */
		return;
	if (n > 0)
		c->rx_len += (size_t)n;
	parse(c);
}
