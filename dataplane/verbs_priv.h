/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs transport: what it keeps of a session (session.channel), of a tenant and of a reactor.
 * The agent is the only initiator: payload moves by RDMA that it posts, from and into windows that
 * the tenant bound; messages are SENDs. Nothing here is shared by two tenants: each has its
 * protection domain, and at each reactor its completion queue, its slots and its queue pairs.
 *
 * End of a connection: 1. nothing more is posted; 2. the queue pair goes to error, which drops what
 * was queued and flushes what was posted; 3. every flush gives its request back; 4. when none is
 * left, or VERBS_FLUSH_NS have passed, the queue pair is destroyed, and then its memory is
 * freed, or kept until the device gives it up, and so are the slots of what was never flushed; 5.
 * its slots and its completion queue go VERBS_KEPT_MS after the tenant's last connection at this
 * reactor, or with it when the tenant is withdrawn, or somebody else finds no room: making them is
 * by far the dearest part of a connection, and whoever comes and goes must not make the reactor do
 * it each time.
 */
#ifndef ROS2_DATAPLANE_VERBS_PRIV_H
#define ROS2_DATAPLANE_VERBS_PRIV_H

#include "dataplane/fabric/fabric.h"
#include "dataplane/fabric/fabric_conn.h"
#include "dataplane/reactor_priv.h"
#include "dataplane/session_priv.h"
#include "dataplane/source.h"

#define VERBS_SMALL      32u /* short messages: WELCOME, NAK, PONG, COMPLETE of what was refused */
#define VERBS_RECVS      (DP_CREDITS + 32u)
#define VERBS_RECV_BYTES (WIRE_HEADER_LEN + WIRE_VERBS_INLINE_MAX)
#define VERBS_SEND_BYTES (WIRE_HEADER_LEN + WIRE_WORDS_MAX)
#define VERBS_SENDS      (DP_CREDITS + VERBS_SMALL) /* places in a connection's send memory */
#define VERBS_MEMORY     (VERBS_RECVS * VERBS_RECV_BYTES + VERBS_SENDS * VERBS_SEND_BYTES)
/* An answer is two work requests at most, and a WRITE's RDMA READ is over before its answer. One
 * more asks whether the host is there. */
#define VERBS_SEND_DEPTH (2 * DP_CREDITS + VERBS_SMALL + 1)
#define VERBS_READS_OUT  16u
#define VERBS_QPS        16u /* connections of a tenant at a reactor */
#define VERBS_BATCH      32u /* requests of one doorbell: rights are looked at before each */
#define VERBS_POLL       64u
#define VERBS_SLOTS                                                                                \
	{                                                                                          \
		64, 16, 8                                                                          \
	} /* of a tenant at a reactor: 11 MiB */
#define VERBS_FLUSH_NS (2 * NS_PER_S)
#define VERBS_KEPT_MS  10000u
/* So long after somebody found none left no set is kept: a client that waits asks more often. */
#define VERBS_SHORT_NS NS_PER_S
/* Of what a reactor keeps, somebody else's need ends one set each time, no sooner: its owner, who
 * makes it again, and who takes turns with him cost the reactor some hundred calls of the device.
 */
#define VERBS_ROOM_MS 100u
/* A connection over which nothing was sent for so long is asked whether its host is there. */
#define VERBS_ASK_NS (30 * NS_PER_S)
/* Of a turn: each is some ten system calls at most, and makes or ends one queue pair. */
#define VERBS_CONN_EVENTS 4u
/* Requests that the kernel keeps for a listener until a turn takes them; one more it drops, and who
 * asked asks again. A turn takes VERBS_CONN_EVENTS: the last has waited 32 turns. */
#define VERBS_BACKLOG 128u

struct verbs_out {
	struct list link;
	struct request *req; /* NULL: a short message */
	uint32_t place;      /* in the connection's send memory */
	uint32_t len;
};

/* A tenant at a reactor; made with its first connection. */
struct verbs_tenant {
	struct fabric_set *set;     /* owned; NULL = not here */
	const struct fabric_pd *pd; /* borrowed: outlives the set */
	struct slots *pool;         /* owned: over all slots of the set */
	struct slot_use use;
	struct fabric_slot *slots;                      /* owned: taken from the set */
	struct fabric_region **region_of[SLOT_CLASSES]; /* owned: by slot.index */
	uint32_t n_slots, n_conns;
	uint64_t idle_ns;   /* n_conns is 0 since then */
	bool failed;        /* the device gave up on its completion queue */
	bool withdrawn;     /* the tenant is: nothing is kept longer than a tick */
	struct list link;   /* verbs.sets */
	struct list active; /* verbs.active: to be polled */
};

struct verbs_conn {
	struct session *s;
	struct verbs_tenant *t;       /* borrowed: counted in n_conns */
	struct fabric_conn *conn;     /* owned; NULL = none */
	struct fabric_qp *qp;         /* owned; NULL = none */
	struct fabric_region *region; /* owned: of mem */
	uint8_t *mem;                 /* owned: receives, then sends */
	uint8_t agent_nonce[WIRE_NONCE_LEN];
	char peer[64];
	uint64_t moved, ended_ns;
	uint64_t asked_ns;           /* when it was asked last whether its host is there */
	uint64_t qp_id;              /* of qp, when that has gone, too; 0 = there was none */
	bool by_device;              /* the device ended the connection: it may have said why */
	bool asking;                 /* that is posted, and has not ended */
	bool kept;                   /* qp has gone from here, but the device does not destroy it */
	struct list out, small_free; /* verbs_out */
	struct verbs_out outs[DP_CREDITS], small[VERBS_SMALL];
	struct {
		uint32_t buffer, bytes;
	} rx[VERBS_RECVS]; /* what came, oldest first, not yet looked at */
	uint32_t rx_at, rx_n;
};

/* A reactor's part; reactor.verbs, NULL without a device. */
struct verbs {
	struct reactor *r;
	struct fabric_channel *channel; /* owned */
	struct fabric_cm *cm;           /* owned */
	struct fabric_listener *listener;
	uint16_t port;
	struct source channel_source, cm_source;
	struct verbs_tenant tenants[LEASE_TENANTS_MAX]; /* by the tenant's index */
	struct list sets, active;
	uint32_t n_idle;  /* of sets: kept without a connection */
	uint64_t kept_ns; /* so long */
	uint64_t room_ns; /* when one went last because somebody else had none; 0 = never */
	/* What the device does not give up is tried again with the ticks. From VERBS_QPS of either
	 * on nobody gets more of it, so there is a place for all that was made before. */
	struct fabric_set *dying[LEASE_TENANTS_MAX + VERBS_QPS]; /* owned */
	struct {
		struct fabric_region *region; /* owned */
		uint8_t *mem;                 /* owned: the device may write into it still */
	} held[DP_SESSIONS_MAX + VERBS_QPS];
	uint32_t n_dying, n_held;
	uint32_t n_made; /* sets */
};

/* The cookie of a set tells it from those that had the tenant's index before it: what the device
 * says late of one of them is nothing to this one. */
static inline uint64_t verbs_set_cookie(uint32_t reactor, uint32_t nth, uint32_t tenant)
{
	return (uint64_t)reactor << 48 | (uint64_t)nth << 16 | tenant;
}

static inline uint32_t verbs_cookie_reactor(uint64_t cookie)
{
	return (uint32_t)(cookie >> 48);
}

static inline uint32_t verbs_cookie_tenant(uint64_t cookie)
{
	return cookie & 0xffff;
}
_Static_assert(LEASE_TENANTS_MAX <= 1u << 16, "the index of a tenant has 16 bits in a cookie");

static inline struct verbs_conn *verbs_of(const struct session *s)
{
	return s->channel;
}

/* Cookies of work requests. */
enum verbs_kind { VERBS_RECV, VERBS_SHORT, VERBS_REPLY, VERBS_DATA, VERBS_PULL, VERBS_ASK };
static inline uint64_t verbs_cookie(enum verbs_kind k, uint32_t index)
{
	return (uint64_t)k << 32 | index;
}

/* Places of a connection in its tenant's completion queue. */
static inline uint32_t verbs_cq_room(void)
{
	const struct fabric_qp_opts o = {.send_depth = VERBS_SEND_DEPTH, .recv_depth = VERBS_RECVS};

	return fabric_qp_cq_room(&o);
}

/* verbs.c */
struct verbs_tenant *verbs_tenant_enter(struct verbs *v, struct session *s, struct ros2_err *err);
void verbs_tenant_leave(struct verbs *v, struct verbs_tenant *t);
void verbs_activate(struct verbs *v, struct verbs_tenant *t);
/* @mem is freed when the device does not know @region (NULL: it never did) any more. */
void verbs_memory_free(struct verbs *v, struct fabric_region *region, uint8_t *mem);

/* verbs_hello.c */
void verbs_conn_event(void *arg, const struct fabric_conn_event *e); /* arg: struct verbs */
void verbs_hello(struct session *s, const uint8_t *bytes, uint32_t len);
/* All of the connection that has not gone yet; its requests must be back. */
void verbs_conn_free(struct session *s);
int verbs_post_receive(struct verbs_conn *c, struct fabric_qp *qp, uint32_t buffer);

/* verbs_io.c */
extern const char verbs_ended_by_device[]; /* and not a work request of ours */
void verbs_completed(struct session *s, const struct fabric_completion *e);
/* Of a connection that is silent: with the ticks. */
void verbs_ask_whether_there(struct session *s, uint64_t now_ns);
void verbs_queue_small(struct session *s, const struct wire_header *h, const void *payload,
                       uint32_t len);
static inline uint8_t *verbs_recv_mem(const struct verbs_conn *c, uint32_t buffer)
{
	return c->mem + (size_t)buffer * VERBS_RECV_BYTES;
}
static inline uint64_t verbs_send_at(uint32_t place)
{
	return (uint64_t)VERBS_RECVS * VERBS_RECV_BYTES + (uint64_t)place * VERBS_SEND_BYTES;
}
#endif
