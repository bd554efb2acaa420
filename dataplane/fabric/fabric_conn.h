/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of queue pairs through librdmacm, without waiting: a listener and what it hears,
 * connections that we ask for, up to 56 bytes of private data each way (the proof of a HELLO). The
 * queue pair is our own all the way (librdmacm only says with which attributes), so that it never
 * has an access flag that was not asked for; that is verified by a query before the peer hears of
 * it, and a mismatch refuses the connection.
 *
 *   listener: REQUEST > fabric_conn_accept or fabric_conn_reject > ESTABLISHED, or ENDED
 *   asking: fabric_connect > RESOLVED > fabric_conn_ask > ESTABLISHED, or REJECTED, or ENDED
 *
 * Sources: rdma_cm(7), rdma_accept(3), rdma_establish(3), rdma_init_qp_attr(3); IBA vol. 1,
 * chapter 12. Everything here is of the reactor that owns the fabric_cm.
 */
#ifndef ROS2_DATAPLANE_FABRIC_CONN_H
#define ROS2_DATAPLANE_FABRIC_CONN_H

#include "dataplane/fabric/fabric.h"
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What RC over IP leaves of the 92 bytes of a REQ (IBA annex A11). */
#define FABRIC_PRIVATE_MAX 56u

struct fabric_cm;
struct fabric_conn;
struct fabric_listener;

struct fabric_cm_opts {
	/* requests of peers that have not been answered; beyond it they are rejected; 0 = 256 */
	uint32_t conns_max;
	uint64_t resolve_limit_ns; /* 0 = 2 s */
	uint32_t events_at_once;   /* that fabric_cm_events takes; 0 = 64 */
};
/* -EOPNOTSUPP when this machine has no connection manager (kernel module rdma_ucm), -ENOMEM. */
int fabric_cm_new(const struct fabric_cm_opts *o, struct fabric_cm **ret, struct ros2_err *err);
/* After its listeners and connections. NULL is accepted. */
void fabric_cm_free(struct fabric_cm *cm);
/* Non-blocking; for the reactor's epoll (EPOLLIN). */
int fabric_cm_fd(const struct fabric_cm *cm);

/* Port 0 takes a free one. -EADDRINUSE, -EADDRNOTAVAIL, -ENODEV (no RDMA device has that address).
 */
int fabric_listen(struct fabric_cm *cm, const struct sockaddr *addr, uint32_t backlog,
                  struct fabric_listener **ret, struct ros2_err *err);
uint16_t fabric_listener_port(const struct fabric_listener *l);
void fabric_listener_free(struct fabric_listener *l); /* NULL is accepted */

enum fabric_conn_state {
	FABRIC_CONN_RESOLVING,
	FABRIC_CONN_RESOLVED,
	FABRIC_CONN_ASKED,     /* waits for the peer, until join_limit_ns of its QP */
	FABRIC_CONN_REQUESTED, /* waits for our answer, until resolve_limit_ns: then rejected */
	FABRIC_CONN_ACCEPTED,  /* waits for the peer, until join_limit_ns */
	FABRIC_CONN_UP,
	FABRIC_CONN_ENDED,
};
#define FABRIC_CONN_STATES 7
const char *fabric_conn_state_to_str(enum fabric_conn_state s);
bool fabric_conn_state_may_follow(enum fabric_conn_state from, enum fabric_conn_state to);
enum fabric_conn_state fabric_conn_state(const struct fabric_conn *c);

enum fabric_conn_event_kind {
	FABRIC_CONN_EVENT_REQUEST,  /* a peer asks: @conn is the caller's now */
	FABRIC_CONN_EVENT_RESOLVED, /* fabric_conn_device is known: find the PD, call
	                               fabric_conn_ask */
	FABRIC_CONN_EVENT_ESTABLISHED,
	FABRIC_CONN_EVENT_REJECTED, /* with the peer's private data */
	FABRIC_CONN_EVENT_ENDED,    /* disconnected, unreachable, timed out, device removed: @words
	                               says which */
};
const char *fabric_conn_event_kind_to_str(enum fabric_conn_event_kind k);

struct fabric_conn_event {
	enum fabric_conn_event_kind kind;
	struct fabric_conn *conn;
	struct fabric_listener *listener; /* of REQUEST */
	const uint8_t *data; /* the peer's private data: hostile; valid in the callback */
	uint32_t data_len;   /* may be longer than what the peer sent: transports pad with zeros */
	int code;            /* negative errno of REJECTED, ENDED */
	const char *words;   /* static */
};
/* Takes what there is, at most events_at_once, and says how many: with more there the descriptor
 * stays readable. @fn may free the event's connection.
 * After a QP's connection has ended, the QP has failed. */
uint32_t fabric_cm_events(struct fabric_cm *cm,
                          void (*fn)(void *arg, const struct fabric_conn_event *e), void *arg);
/* Ends what has waited too long, with ENDED and -ETIMEDOUT; requests that nobody answered are
 * rejected. At least every second. */
void fabric_cm_tick(struct fabric_cm *cm, uint64_t now_ns,
                    void (*fn)(void *arg, const struct fabric_conn_event *e), void *arg);

/* @src may be NULL. *ret is the caller's. -EINVAL, -ENODEV, -ENOMEM. */
int fabric_connect(struct fabric_cm *cm, const struct sockaddr *src, const struct sockaddr *dst,
                   uint64_t cookie, struct fabric_conn **ret, struct ros2_err *err);
uint64_t fabric_conn_cookie(const struct fabric_conn *c);
void fabric_conn_set_cookie(struct fabric_conn *c, uint64_t cookie);
/* The name of the device it runs over; "" until RESOLVED. */
const char *fabric_conn_device(const struct fabric_conn *c);
/* Addresses of both ends, as far as known (AF_UNSPEC else). */
const struct sockaddr *fabric_conn_local(const struct fabric_conn *c);
const struct sockaddr *fabric_conn_peer(const struct fabric_conn *c);
/* The number of the peer's queue pair, as its request or its answer says; 0 before. */
uint32_t fabric_conn_peer_qpn(const struct fabric_conn *c);
struct fabric_qp *fabric_conn_qp(const struct fabric_conn *c); /* NULL = none */

struct fabric_conn_private {
	const void *data; /* borrowed: for the call */
	uint32_t length;  /* at most FABRIC_PRIVATE_MAX */
};
/* REQUESTED -> ACCEPTED: makes the queue pair in @s and answers. It may receive at once (post
 * receives and flush before, through @prepare, which runs when the queue pair is made and before
 * the peer can know of it; may be NULL; its error refuses the connection), and may send from
 * ESTABLISHED on. Errors as fabric_qp_new and fabric_qp_join (-EPERM), -EXDEV (another device than
 * the set's); the peer has been rejected then, and @c has ENDED. */
struct fabric_conn_opts {
	struct fabric_qp_opts qp;
	struct fabric_conn_private hello;
	int (*prepare)(void *arg, struct fabric_qp *qp);
	void *arg;
};
int fabric_conn_accept(struct fabric_conn *c, struct fabric_set *s,
                       const struct fabric_conn_opts *o, struct fabric_qp **ret,
                       struct ros2_err *err);
/* REQUESTED -> ENDED. */
void fabric_conn_reject(struct fabric_conn *c, const struct fabric_conn_private *why);
/* RESOLVED -> ASKED: makes the queue pair and asks the peer. As accept. */
int fabric_conn_ask(struct fabric_conn *c, struct fabric_set *s, const struct fabric_conn_opts *o,
                    struct fabric_qp **ret, struct ros2_err *err);
/* Ends it in whatever state. Its queue pair, if any, is left without a connection and has failed;
 * free it, too. NULL is accepted. */
void fabric_conn_free(struct fabric_conn *c);

#ifdef __cplusplus
}
#endif
#endif
