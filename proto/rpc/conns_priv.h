/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a listener's open connections, and who of them goes when it is full. Knows nothing
 * of sockets or locks: conns.c does, and calls this under its lock.
 */
#ifndef ROS2_PROTO_RPC_CONNS_PRIV_H
#define ROS2_PROTO_RPC_CONNS_PRIV_H

#include "common/hash.h"
#include "common/host.h"
#include "common/util.h"
#include "proto/rpc/rpc.h"
#include <stdbool.h>
#include <sys/types.h>

/* A handshake takes some round trips; who has made no call for so long has had the time for it. */
#define CONNS_YOUNG_MS 1000
/* And one address has so many that are young before its oldest goes for a newcomer all the same. */
#define CONNS_YOUNG_EACH 8
/* Who has no more than so many never loses one on which there was a call within this time. */
#define CONNS_FEW       4
#define CONNS_RECENT_MS 30000

/* Calls that come to nothing: reset before their answer, or refused before any handler. Who is in
 * trouble has as many as it has in flight, when all time out at once; who has more, each second, is
 * after the processor (CVE-2023-44487): each costs the listener as much as one that is answered,
 * and its caller next to nothing. */
#define CONNS_FUTILE       512
#define CONNS_FUTILE_PER_S 200

/* Calls that were refused, and whose callers have not taken that yet: of a group, of an address
 * where no group is known. Each keeps 11 KB. */
#define CONNS_REFUSALS (2 * CONNS_FUTILE)

/* gRPC is given no more of a connection until it has polled again, and no more of a group (of an
 * address, while no group is known) until all that came of it before has been handled. So much is
 * read at once, rpc_limits.receive_bytes; before the first call so much: a handshake has 2 to 4
 * KiB. And so many times that while nothing is left to be handled: what came may be no call yet, so
 * the listener's thread is not woken for it, and ends the turn when it comes round. */
#define CONNS_READ_UNCALLED 4096
#define CONNS_READ_IDLE     16
struct conn_reads {
	uint64_t turn; /* of the table */
	size_t n;      /* bytes in it */
};

/* Bytes that become nothing: frames that gRPC swallows, headers without an end (which it keeps),
 * pings. A connection has so many until its next call or message, and before its first call; so
 * many more each second (who pings once a second has 60), and one for each CONNS_USELESS_SENT that
 * we sent (WINDOW_UPDATE answers what we send). After its first call a message may be on its way,
 * which gRPC takes to its end even if it is too long, or its call is over; and all connections of a
 * group together have so many of both. */
#define CONNS_USELESS       (128ul * 1024) /* twice HTTP/2's first window (RFC 9113, 6.9.2) */
#define CONNS_USELESS_GROUP (32ul * 1024 * 1024)
#define CONNS_USELESS_PER_S 128
#define CONNS_USELESS_SENT  8

/* Those of one address (host.h). */
struct conn_source {
	struct host_key key;
	size_t n, uncalled, refusals;
	struct conn_reads reads;
	struct list conns; /* struct rpc_conn, the oldest first */
	UT_hash_handle hh;
};

/* Those of one group of callers (rpc_group_fn), known from their first call on; without any, while
 * its futile calls count. */
struct conn_owner {
	char name[RPC_GROUP_MAX + 1];
	uint64_t futile_ns; /* by then its futile calls are forgotten */
	struct conn_reads reads;
	size_t useless; /* of all its connections; and so are: */
	size_t refusals;
	size_t n, busy; /* busy: with a call in flight */
	size_t tally;   /* scratch of conns_choose */
	UT_hash_handle hh;
};

struct rpc_conn {
	int fd;
	ino_t ino;
	char address[64];           /* as peers are named */
	bool nameless;              /* calls do not find it: nothing is known of what it does */
	bool called;                /* or nameless */
	uint32_t calls;             /* in flight; each is a reference */
	uint32_t refusals;          /* of them: refused, and not taken yet */
	uint64_t since_ns;          /* of its last call's begin or end, or of itself */
	uint64_t futile_ns;         /* likewise, while no group is known */
	size_t read;                /* bytes since gRPC was last told that there is nothing */
	uint8_t refused;            /* how often it was, since it had all it may */
	bool seen;                  /* something was ever read of it */
	bool held;                  /* it was told so, and waits for the next turn */
	size_t useless;             /* bytes since a call began, or the last ended, or a message */
	uint64_t useless_ns;        /* until then they were forgiven */
	uint64_t sent;              /* bytes for which some were forgiven */
	uint64_t judged;            /* by this generation of client CAs; 0: by TLS only */
	bool distrusted;            /* how */
	uint8_t cert[32];           /* who: a call of an earlier connection may still come */
	struct conn_source *source; /* NULL: not in the table (any more) */
	struct conn_owner *owner;   /* NULL: not known */
	struct list of_source;
	struct list of_waiting; /* since it was held first, until it has something */
	UT_hash_handle hh, hh_fd;
};

struct conns_table {
	struct rpc_conn *by_address, *by_fd; /* owned; the same ones, the oldest first */
	struct conn_source *sources;         /* owned */
	struct conn_owner *owners;           /* owned; also of those not there: conns_sweep */
	size_t uncalled;
	uint64_t turn;       /* ends when all that was read in it has been handled */
	bool idle;           /* it has been: whoever polls has nothing else to do */
	size_t held;         /* connections */
	struct list waiting; /* struct rpc_conn, who waits longest first */
};

void conns_init(struct conns_table *t);
size_t conns_count(const struct conns_table *t);
/* How many of this address. */
size_t conns_count_source(const struct conns_table *t, const struct host_key *key);
/* Takes @k over, whose fd, ino, address and since_ns are set. False: no memory, and it is still the
 * caller's. */
bool conns_add(struct conns_table *t, struct rpc_conn *k, const struct host_key *from);
/* Frees it, or leaves that to the end of its last call. */
void conns_remove(struct conns_table *t, struct rpc_conn *k);
struct rpc_conn *conns_find(const struct conns_table *t, const char *address);
struct rpc_conn *conns_find_fd(const struct conns_table *t, int fd);
/* A call of @group (NULL: not known) begins; and ends. */
void conns_called(struct conns_table *t, struct rpc_conn *k, const char *group, uint64_t now_ns);
void conns_call_over(struct rpc_conn *k, uint64_t now_ns);
/* A call on @k has come to nothing. True: its group has had more of them than it may
 * (CONNS_FUTILE), and this is the connection that it goes on with. */
bool conns_futile(struct rpc_conn *k, uint64_t now_ns);
/* A call on @k is refused, until its end has left. True: too many are that nobody takes. */
bool conns_refused(struct rpc_conn *k);
void conns_refusal_over(struct rpc_conn *k, uint64_t now_ns);
/* How many bytes gRPC may be given of @k, @each at a time. 0: it is to be told that there are none;
 * and to look again at once (*ret_again), or when @k is let go on. */
size_t conns_may_read(struct conns_table *t, struct rpc_conn *k, size_t each, bool *ret_again);
void conns_has_read(struct conns_table *t, struct rpc_conn *k, size_t n);
/* What was read was worth so many bytes more: it counts in the turn, and against nobody. */
void conns_owes(struct conns_table *t, struct rpc_conn *k, size_t n);
/* A message has come over it. */
void conns_message(struct rpc_conn *k);
/* Whether of what came over @k more became nothing than may: CONNS_USELESS, and from its first
 * call on @message more; or of its group more than CONNS_USELESS_GROUP. @sent: what the peer has
 * had of us, 0 where that is not known yet. */
bool conns_is_useless(struct rpc_conn *k, size_t message, uint64_t sent, uint64_t now_ns);
/* All that was read has been handled: the next turn. @go_on is called of each that was held, who
 * waits longest first: of many only some have something in a turn. True: there were some. */
bool conns_next_turn(struct conns_table *t, void (*go_on)(const struct rpc_conn *k));
/* Drops groups without a connection of which nothing is to be remembered. */
void conns_sweep(struct conns_table *t, uint64_t now_ns);
/* Whether @k, on which a call has begun, is one of more than three quarters of an address's places,
 * or of all, that its group keeps by calls in flight. Those stay whoever comes, so this is the
 * bound of what one group can take for good. */
bool conns_crowded(const struct conns_table *t, const struct rpc_conn *k, size_t places_of_source,
                   size_t places);
/*
 * Who has the least claim to its place, of one address (@from) or of all (NULL); NULL: nobody may
 * be ended for another. In this order:
 * (1) who has made no call yet, of the address with most such, the oldest: if it is young no longer
 *     (CONNS_YOUNG_MS), or its address has more than CONNS_YOUNG_EACH, or all such have more than
 *     a quarter of @places;
 * (2) of the group of callers that holds most, the one that is longest without a call; of a group
 *     that holds no more than CONNS_FEW only one without a call for CONNS_RECENT_MS;
 * (3) with a call in flight, of callers who are not known: of the address with most connections,
 *     the one whose call began first; else a few addresses would have all places for good;
 * (4) who has made no call, as in (1), without its ifs.
 * Never another with a call in flight (conns_crowded). Young ones come behind the others because
 * otherwise whoever keeps the table full of his own would end each newcomer in its handshake, by
 * the next of his.
 */
struct rpc_conn *conns_choose(struct conns_table *t, const struct host_key *from, size_t places,
                              uint64_t now_ns);
/* All of them. */
void conns_clear(struct conns_table *t);
#endif
