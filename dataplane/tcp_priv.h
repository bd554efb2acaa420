/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the tcp transport: its part of a session (session.channel). Bounds: input
 * TCP_INPUT bytes, output one message per request plus TCP_SMALL short ones; when those are used up
 * the connection is not read any more, so a peer that does not read stalls only itself.
 */
#ifndef ROS2_DATAPLANE_TCP_PRIV_H
#define ROS2_DATAPLANE_TCP_PRIV_H

#include "common/util.h"
#include "common/status.h"
#include "dataplane/session_priv.h"
#include "dataplane/slow.h"
#include "dataplane/source.h"
#include "dataplane/wire.h"
#include <stdbool.h>
#include <sys/uio.h>

#define TCP_INPUT (64u * 1024)
#define TCP_SMALL 64u
#define TCP_IOV   384u
/* Messages that a turn takes of one connection: all the requests and payloads there can be. Some,
 * such as PONG, cost their sender nothing, so that its other connections and its neighbours would
 * wait for as many as it likes to send. */
#define TCP_MESSAGES (2 * DP_CREDITS)
/* Bytes that a turn gives to the kernel for one tenant, and that it takes from there, and what goes
 * beyond with the last call: half a millisecond. Who reads as fast as that, or has sent it all
 * before, has the rest in the next turn, which comes at once, and others are served in between. */
#define TCP_TURN_BYTES (1024u * 1024)
/* Of a connection, in the kernel and not sent: the largest answer. What a peer does not read is
 * counted for its tenant as long as it is here, and not there, where enough of it slows all of the
 * machine's connections. */
#define TCP_UNSENT WIRE_IO_MAX
/* The first piece of what waits while the engine idles is half of it, in these bounds: enough
 * requests come back for it to keep a device at work until those of the rest are there, too. Each
 * further piece is twice as large (docs/benchmarks.md, the file engine). */
#define TCP_SEND_FIRST     4096u
#define TCP_SEND_FIRST_MAX (64u * 1024)
#define TCP_SEND_BYTES     (1024u * 1024) /* of one system call: rights are looked at before each */

/* What one of them may take that sends to a peer on this machine. It does the peer's receiving,
 * too, and perhaps what else came for the machine meanwhile: the kernel stops doing that after 2 ms
 * (MAX_SOFTIRQ_TIME), so twice that is slow for none without a payload. A payload takes 0.4 to 0.7
 * ns a byte, and 16 leave room for a machine that is emulated. On two processors with 15 others
 * that wanted them 42 of 250000 calls took longer, and no two in a row; with 250000 watchers each
 * takes 29 to 157 ms. */
#define TCP_SLOW_NS          (4 * NS_PER_MS)
#define TCP_SLOW_NS_PER_BYTE 16u

/* A queued message: a header, perhaps a payload, perhaps a second header (DATA + COMPLETE). */
struct tcp_out {
	struct list link;
	struct request *req; /* NULL for a short message */
	struct wire_header first, second;
	const void *payload;       /* NULL when it is in parts */
	const struct iovec *parts; /* borrowed: lent to the request until it is over */
	uint32_t n_parts, payload_len;
	bool has_second;
};

struct tcp_small {
	struct tcp_out out; /* first */
	uint8_t words[WIRE_WORDS_MAX];
};

struct turn_bytes; /* reactor_priv.h */

struct tcp_conn {
	struct source source;
	struct session *s;
	int fd; /* -1 = none */
	bool readable, writable, peer_closed;
	uint32_t in_at, in_end;    /* of in */
	uint32_t may_take;         /* messages, in this turn */
	struct request *receiving; /* its payload comes next */
	uint32_t skip;             /* bytes of a refused payload to throw away */
	struct list pulls;         /* requests whose PULL has been sent, oldest first */
	struct list out;           /* tcp_out */
	uint32_t piece;            /* bytes the next system call may begin with; see next_piece */
	uint32_t sent;             /* bytes of the first of out that the kernel has */
	uint64_t moved;            /* bytes sent, and payload received, so far */
	uint64_t look_at_ns;       /* when it is looked at whether its host says anything */
	uint32_t segments;         /* that had come from there by the last look */
	uint32_t silent;           /* looks in a row that found none, though it has to answer */
	bool local;                /* the peer is on this machine */
	struct slow slow;          /* system calls that send to it */
	struct list small_free;
	struct tcp_small small[TCP_SMALL];
	struct tcp_out outs[DP_CREDITS]; /* of session.requests[i] */
	uint8_t in[TCP_INPUT];
};

static inline struct tcp_conn *tcp_of(const struct session *s)
{
	return s->channel;
}
static inline struct tcp_out *tcp_out_of(const struct request *req)
{
	return req->out;
}
/* The session proved itself on @fd, which it takes. */
int tcp_start(struct session *s, int fd, const struct wire_welcome *w);
void tcp_event(struct tcp_conn *c, uint32_t events);
/* Whose turn it was to be first has been, whether or not it has anything. */
void tcp_turn_begin(struct session *s, struct turn_bytes *b);
/* False: its tenant has had its part of this turn, or another session of it is first. @had: this
 * one had some of it. */
bool tcp_turn_allows(struct session *s, struct turn_bytes *b, bool had);
/* tcp_send.c */
void tcp_flush(struct session *s);
void tcp_queue_small(struct session *s, const struct wire_header *h, const void *payload,
                     uint32_t len);
void tcp_reply(struct session *s, struct request *req);
void tcp_pull(struct session *s, struct request *req);
void tcp_refuse(struct session *s, uint64_t request_id, enum ros2_status status, const char *words);
bool tcp_has_room(const struct session *s);
#endif
