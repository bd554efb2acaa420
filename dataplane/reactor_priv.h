/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One reactor: a thread with its own port, epoll set, lease table, slots and sessions; nothing of
 * it is shared but atomics. Must not be included outside dataplane/. Everything here is of the
 * reactor's thread unless it says otherwise.
 */
#ifndef ROS2_DATAPLANE_REACTOR_PRIV_H
#define ROS2_DATAPLANE_REACTOR_PRIV_H

#include "dataplane/dp_priv.h"
#include "dataplane/session_priv.h"
#include "common/host.h"
#include "common/share.h"
#include "common/spin.h"
#include "dataplane/depth.h"
#include "dataplane/slots.h"
#include "dataplane/slow.h"
#include "dataplane/source.h"
#include <pthread.h>

#define REACTOR_ENGINE_DEPTH 512u /* ios in one engine; bounds what is in flight in a reactor */
/* A tenant's part of that: flushes need no slot, so slots do not bound them. */
#define REACTOR_ENGINE_TENANT (REACTOR_ENGINE_DEPTH / 2)
#define REACTOR_ENGINE_SHARE                                                                       \
	((struct share){REACTOR_ENGINE_DEPTH, REACTOR_ENGINE_TENANT, 16, REACTOR_ENGINE_DEPTH / 4})
/* Requests whose storage is away do not count there. Of one tenant so many are given to one such
 * engine, to be the first when it comes back, and to be answered when it does not; and to all of
 * them together half of a reactor's depth. The others wait in their sessions. */
#define REACTOR_AWAY_SHARE                                                                         \
	((struct share){REACTOR_ENGINE_DEPTH / 2, 16, 1, REACTOR_ENGINE_DEPTH / 4})
/* Flushes, and requests that clear, that one engine has at once of one tenant. Slots bound what is
 * written at once, and these need none. Each may take the storage long, and where the kernel has
 * few threads for them it has no others for what neighbours write. Together they clear at most 16
 * MiB, which a target may have to write. */
#define REACTOR_SLOTLESS_MAX 16u
/* Bytes that a turn begins to clear of one tenant, and what goes beyond with the last: an engine in
 * RAM is done with them at once, and could take more again and again. */
#define REACTOR_CLEARED_TURN WIRE_IO_MAX
/* Bytes that one engine has at once of one tenant's own memory: of slots these are bounded by the
 * pool. Of each engine, so that storage which does not answer keeps nothing from other storage. */
#define REACTOR_BORROWED_MAX (16u * WIRE_IO_MAX)
#define REACTOR_TICK_NS      (20 * NS_PER_MS)
#define REACTOR_LEASES       16384u
/* Rows of keys of targets in a list; with more standing keys there is one row for each queue and
 * direction: 2 x DP_ENGINES_MAX x 256 tenants of one target. */
#define REACTOR_WINDOWS 16384u
/* A tenant's parts of a reactor (share.h): every tenant there can be gets its first keys, and 64 of
 * them a session, whatever the others hold. */
#define REACTOR_LEASE_SHARE                                                                        \
	((struct share){REACTOR_LEASES, REACTOR_LEASES / 2, 4, 4 * LEASE_TENANTS_MAX})
#define REACTOR_SESSION_SHARE                                                                      \
	((struct share){DP_SESSIONS_MAX, DP_SESSIONS_MAX / 2, 1, DP_SESSIONS_MAX / 4})
#define PREAUTH_DEFAULT 64u
#define PREAUTH_BYTES   (WIRE_HEADER_LEN + sizeof(struct wire_hello))

/* A connection that has not proved anything yet. */
struct preauth {
	struct source source;
	int fd; /* -1 = free */
	const struct transport_ops *transport;
	uint64_t since_ns;
	uint32_t have;
	uint8_t bytes[PREAUTH_BYTES], nonce[WIRE_NONCE_LEN];
	char peer[64];
	struct host_key from; /* over shm: the user, in the address's place */
	uint32_t of_address;  /* places of the same address, this one too */
	struct slow slow;     /* over shm: calls on its socket */
};

/* Bytes that a tenant's connections move in a turn, and who is first in the next, because nothing
 * was left for it. */
struct turn_bytes {
	uint64_t turn, n;
	struct session *next;
};

/* A tenant at this reactor: its queue for admission, its drawn tokens, its slots. */
struct rtenant {
	struct dp_tenant *tenant; /* borrowed: while it has sessions here; NULL = unused */
	uint32_t n_sessions;
	uint64_t deficit;
	struct list active[2]; /* sessions with waiting requests, by direction (session.queue) */
	struct list link;      /* reactor.active */
	uint8_t dry;           /* scratch of admit.c: in this turn somebody waits for tokens */
	struct qos_local tokens[QOS_KINDS];
	struct slot_use slots;
	uint32_t n_begun;                     /* requests that are ready, or inside an engine */
	struct depth_use at[DP_ENGINES_MAX];  /* of them, by engine */
	uint64_t shared_at_ns;                /* the tick that has seen `at` */
	uint16_t slotless_at[DP_ENGINES_MAX]; /* and of those: flushes, and what clears */
	uint64_t borrowed_at[DP_ENGINES_MAX]; /* and that those of them have of its memory */
	/* Over shm, where payload goes through slots: what was copied in the turn, and who is first
	 * in the next, because nothing was left for it. */
	struct {
		uint64_t turn, bytes;
		struct session *next;
	} copied;
	struct {
		uint64_t turn, bytes;
	} cleared;
	struct turn_bytes sent, received; /* over tcp */
};

struct rengine {
	struct source source;
	struct dp_engine *engine;  /* borrowed: until dropped; NULL = not here */
	struct engine_reactor *er; /* owned */
	int event_fd;
	bool kick, readable;
	uint64_t copied_seen;
	struct slot_use slots; /* of the reactor's own pool: of requests for it, of all tenants */
	struct depth_least least; /* as of the last tick */
};

/* Refused connections, folded until the loop has taken the last report: by a cap or the time they
 * had, and for what their HELLO was. */
enum { REFUSED_HELLO, REFUSED_CAP, REFUSED_KINDS };
struct refused {
	struct dp_post post;
	_Atomic bool posted;
	struct dp_event out, pending;
};

struct reactor {
	/* immutable after init */
	struct dp *dp;
	uint32_t index;
	uint16_t port;
	pthread_t thread;
	int epoll_fd, wake_fd;
	struct source wake_source;
	struct listener {
		struct source source;
		int fd; /* -1 = it offers none */
		const struct transport_ops *transport;
		bool paused; /* no descriptors: until the next tick */
	} tcp_listener, shm_listener;
	char shm_path[108]; /* "" = none */
	/* any thread */
	bool no_pwait2; /* before Linux 5.11, or forbidden: whole milliseconds, rounded up */
	_Atomic(struct dp_op *) inbox; /* newest first */
	_Atomic uint32_t n_leases;
	_Atomic bool stop;
	/* loop */
	uint32_t n_sessions;
	uint16_t of_tenant[LEASE_TENANTS_MAX]; /* sessions, by the tenant's index */
	/* reactor */
	struct lease_table *leases; /* owned */
	struct slots *slots;        /* owned */
	struct session
		*sessions[DP_SESSIONS_MAX]; /* borrowed: the loop frees them when they are gone */
	uint32_t n_attached;
	uint64_t turn; /* which */
	uint64_t next_generation;
	struct rtenant *tenants; /* owned: LEASE_TENANTS_MAX of them */
	struct rengine engines[DP_ENGINES_MAX];
	uint32_t engines_here;   /* bits: which of them are */
	uint32_t crowded;        /* bits: of which somebody has missed a slot since the last tick */
	struct list active;      /* rtenants with waiting requests */
	struct list ready;       /* requests to be given to their engine */
	struct list input;       /* sessions that may have something to read */
	struct list output;      /* sessions that have something to send */
	struct list gone;        /* sessions without any request, ended */
	struct dp_op *revokes;   /* by op.next: wait until devices have ended what they ended */
	uint32_t n_engine;       /* ios inside engines */
	uint32_t n_device;       /* requests that devices hold */
	uint32_t n_begun;        /* those, and the ready ones */
	uint32_t n_parked;       /* of them, as last seen: inside engines whose storage is away */
	uint32_t n_sent_away;    /* to such engines, since then */
	bool own_pace;           /* the engine that replied last works by itself, not in its poll */
	bool again;              /* something changed: do not sleep before another turn */
	uint64_t now_ns;         /* read once per turn; never good enough to hand something on */
	uint64_t awake_until_ns; /* dp_opts.poll_us after something came or was done */
	uint64_t wait_at_ns; /* when the first waiting request gets its tokens; UINT64_MAX = none */
	uint64_t tick_at_ns;
	uint32_t n_preauth;
	struct preauth *preauth; /* owned; preauth_max of them */
	uint32_t preauth_max, preauth_per_address;
	struct verbs *verbs; /* owned; NULL = no device */
	struct list shm;     /* shm_conn: connected */
	struct spin spin;
	uint64_t spin_until_ns; /* 0 = rings are not watched */
	struct refused refused[REFUSED_KINDS];
	struct slow_users slow_users; /* over shm */
};

/* Loop. The reactor's thread runs when it returns 0. */
int reactor_new(struct dp *dp, uint32_t index, struct reactor **ret, struct ros2_err *err);
/* Loop: ends all sessions, waits until engines gave everything back, joins. */
void reactor_stop(struct reactor *r);
void reactor_free(struct reactor *r);
/* Any thread; never fails: @op is its own message. */
void reactor_send(struct reactor *r, struct dp_op *op);

/* Slots from @from are of the reactor's own pool: all sessions share it, so they count in the
 * shares of engines. Others are memory of the session's tenant alone. */
static inline bool session_slots_shared(const struct session *s, const struct slot_source *from)
{
	return from->pool == s->r->slots;
}

/* reactor_engines.c */
/* A worker, before the reactor uses it: what would take the reactor's time is done now. */
int reactor_engine_ready(const struct reactor *r, struct dp_engine *e, struct ros2_err *err);
int reactor_engine_use(struct reactor *r, struct dp_engine *e, struct ros2_err *err);
void reactor_engine_drop(struct reactor *r, uint32_t slot);
void reactor_engines_kick(struct reactor *r);
uint32_t reactor_engines_poll(struct reactor *r);
bool reactor_engines_must_poll(const struct reactor *r);
/* Counts what waits for storage that is away. */
void reactor_engines_look(struct reactor *r);
/* How much each tenant may have inside while others are there, until the next tick. */
void reactor_engines_share(struct reactor *r);
/* Keys of targets over a domain's memory (NULL = any): engine.h has the meaning of each. */
uint32_t reactor_engines_forget(struct reactor *r, const struct fabric_pd *pd);
uint32_t reactor_engine_end_keys(struct reactor *r, const struct dp_engine *e,
                                 struct engine_io *io);
uint32_t reactor_engines_ending(const struct reactor *r, const struct fabric_pd *pd,
                                uint64_t until_ns, uint64_t *ret_last_ns);
void reactor_run_engine_drop(struct reactor *r, struct dp_op *op); /* op->engine */

/* @io is inside @e: what of it waits there for its storage comes back soon. */
void reactor_engine_withdraw(struct reactor *r, const struct dp_engine *e, struct engine_io *io);

/* Requests went into an engine that works by itself, all of them came back, and nobody has asked
 * for more. */
static inline bool reactor_engine_idles(const struct reactor *r)
{
	return r->own_pace && r->n_engine == 0;
}

/* admit.c: deficit round robin over tenants; from queues to engines. */
void admit_enqueue(struct request *req);
/* The same for one that was admitted before: it is the next, behind those that were, too. */
void admit_again(struct request *req);
/* Its payload has come that it was asked for: it is ready, or the next. */
void admit_pulled(struct request *req);
void admit_forget(struct session *s); /* it has no waiting requests any more */
uint32_t admit_run(struct reactor *r);
uint32_t admit_submit(struct reactor *r);

/* flush.c; all but flush_by_call do nothing for what is no flush, or of an engine that takes any */
/* True: it waits for the one that is with the engine, and is not in the ready list any more. */
bool flush_stands_by(struct request *req);
void flush_given(struct request *req); /* the engine has it */
/* The engine gave it back with *res, which may become another. NULL, or what flush_answer gets when
 * @req is answered, released, or ready again. */
struct dp_file *flush_is_over(struct request *req, int64_t *res);
void flush_answer(struct reactor *r, struct dp_file *f, int64_t res);
/* Of those who stand by the first is ready, where none is with the engine. */
void flush_next(struct reactor *r, struct dp_file *f);

/* hello.c */
int tcp_listen(struct reactor *r, const char *host, struct ros2_err *err);
/* What is accepted at @l may begin a session over @t. */
int hello_listens(struct reactor *r, struct listener *l, const struct transport_ops *t);
void hello_accept(struct reactor *r, struct listener *l);
void hello_accept_again(struct reactor *r);
/* @events: of epoll. */
void hello_receive(struct reactor *r, struct preauth *p, uint32_t events);
void hello_expire(struct reactor *r);
void hello_close_all(struct reactor *r);
/* Counts and tells a refusal of any transport; @of NULL: of no session that is known. */
void hello_refused(struct reactor *r, const struct session *of, enum ros2_status st,
                   const char *peer, const char *words);
#endif
