/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the shm transport: its part of a session (session.channel). The memory is the
 * session's (dp_session.shm) and the tenant writes to it at any time: a header is copied out once,
 * then checked; a count is loaded once, then checked; nothing that decides is kept there.
 */
#ifndef ROS2_DATAPLANE_SHM_PRIV_H
#define ROS2_DATAPLANE_SHM_PRIV_H

#include "common/util.h"
#include "dataplane/session_priv.h"
#include "dataplane/shm.h"
#include "dataplane/shm_lend_priv.h"
#include "dataplane/shm_memory.h"
#include "dataplane/slow.h"
#include "dataplane/source.h"
#include "dataplane/wire.h"

#define SHM_SMALL 64u
/* Messages that a turn takes of one connection; see TCP_MESSAGES. */
#define SHM_MESSAGES (2 * DP_CREDITS)
/* Bytes of payload that a turn copies for one tenant, and the payload that goes beyond: some
 * tens of us. The rest waits for the next turn, and others are served in between. */
#define SHM_COPY_TURN (256u << 10)

struct shm_out {
	struct list link;
	struct request *req; /* NULL for a short message */
};

struct shm_small {
	struct shm_out out; /* first */
	struct wire_header head;
	uint8_t words[WIRE_WORDS_MAX];
};

struct shm_conn {
	struct source source;
	struct session *s;
	struct list link;     /* reactor.shm, while connected and sealed */
	struct shm_memory *m; /* borrowed: as long as the session */
	int fd;               /* -1 = none */
	uint32_t got;         /* of MAPPED */
	bool mapped;          /* the tenant has said so */
	bool sealed;          /* the memory may be looked at */
	bool armed;           /* the tenant was told that a byte is wanted */
	bool blocked;         /* what is in the ring waits for room on this side */
	uint32_t taken;       /* of the ring to the agent */
	uint32_t written;     /* to the ring to the tenant, */
	uint32_t published;   /* and as the tenant sees it: when a flush ends */
	uint64_t moved;       /* bytes, see transport_ops.moved */
	uint64_t copied_turn; /* the reactor's turn in which payload was copied last */
	struct slow slow;     /* calls on the socket */
	struct host_key from; /* whose they are */
	struct dp_post mapped_post;
	uint8_t first[WIRE_HEADER_LEN]; /* MAPPED as it comes */
	struct list out;                /* shm_out */
	struct list small_free;
	struct shm_small small[SHM_SMALL];
	struct shm_out outs[DP_CREDITS]; /* of session.requests[i] */
	struct shm_lend lend;
};

static inline struct shm_conn *shm_of(const struct session *s)
{
	return s->channel;
}
static inline struct wire_shm_control *shm_control(const struct shm_conn *c)
{
	return (struct wire_shm_control *)(void *)c->m->map;
}
/* [address, address + len) of the data; NULL: it is not there. */
void *shm_data(const struct session *s, uint64_t address, uint64_t len);

/* shm_send.c */
void shm_flush(struct session *s);
void shm_reply(struct session *s, struct request *req);
void shm_pull(struct session *s, struct request *req);
void shm_refuse(struct session *s, uint64_t request_id, enum ros2_status status, const char *words);
void shm_queue_small(struct session *s, const struct wire_header *h, const void *words,
                     uint32_t len);
bool shm_has_room(const struct session *s);
/* What waits for room in the tenant's ring has some now. */
bool shm_may_go_on(const struct shm_conn *c);
/* Ends the session whose calls on the socket are slow. */
void shm_end_slow(struct session *s);
/* A byte on the socket. */
void shm_wake(struct session *s);
#endif
