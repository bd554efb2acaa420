/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libros2 share. One session is used by one thread at a time ("session thread");
 * the client's background thread touches only what is marked "guarded by lock" and never user
 * memory.
 *
 * A request:  FREE -prep-> PREPARED -submit-> READY -header queued-> SENT -COMPLETE-> DONE -peek->
 * FREE SENT -connection lost, read or flush-> READY;  SENT -connection lost, write-> DONE SENT
 * -lease had ended before it was begun-> READY A link:     DOWN -OpenSession, HELLO, restore-> UP
 * -lost-> DOWN;  any -right withdrawn-> DEAD
 *
 * Invariants: (1) SENT requests <= credits of the connection; (2) a DONE request has no entry in
 * the send queue: its memory is the user's again; (3) DATA lands only inside the buffer of a SENT
 * read, in order, under the key and generation that were sent with it; (4) a WRITE of which a byte
 * was sent on a connection that is gone is never sent again, nor a ZERO or DISCARD: carried out
 * late, it would clear what was written since.
 */
#ifndef ROS2_CLIENT_INTERNAL_H
#define ROS2_CLIENT_INTERNAL_H

#include "common/err.h"
#include "common/fork_mark.h"
#include "common/spin.h"
#include "common/util.h"
#include "dataplane/client/control.h"
#include "dataplane/client/ros2.h"
#include "dataplane/client/rx_priv.h"
#include "dataplane/client/tx.h"
#include "dataplane/wire.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define INTERNAL_SLOTS   16u /* requests of pread, pwrite and flush, beside the user's depth */
#define REGIONS_MAX      4096u
#define LEASE_RETRIES    6u /* counts refusals and registrations */
#define RECONNECT_MS     30000u
#define POLL_US_MAX      1000000u
#define SHM_BYTES_MAX    ((uint64_t)1 << 40)
#define CONTROL_MS       10000u
#define CONNECT_MS       5000u
#define WHY_MS           2000u
#define UNENDED_MAX      3u
#define BACKOFF_FIRST_MS 20u
#define BACKOFF_MAX_MS   1000u
#define PING_AFTER_MS    10000u /* nothing heard for so long, and something in flight */
#define LOST_AFTER_MS    40000u
/* Silence counts while somebody listens: what a program that works on something else for a minute
 * did not read is no silence of the agent's. */
#define LISTENED_MAX_MS   2000u
#define DRAIN_MS          5000u
#define STABLE_MS         5000u /* a connection that lived so long begins again with a short pause */
#define RENEW_MIN_MS      10u
#define REGISTER_PAUSE_MS 100 /* after a registration that failed for want of the agent */

struct fabric_region;
struct fabric_window;
struct shm_arena;
struct shm_link;
struct verbs_link;

struct ros2_client {
	/* immutable after init */
	struct control *control; /* owned */
	uint32_t timeout_ms;
	pthread_t thread;
	struct fork_mark mark; /* of the process that made it */
	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t wake,
		idle; /* monotonic clock; idle: the session being renewed is free again */
	struct list sessions;
	struct list verbs_kept; /* owned: what RDMA devices keep of sessions that were closed */
	struct ros2_session *renewing; /* borrowed: the session the thread works on */
	uint32_t refs;                 /* one until ros2_disconnect, and one for each session */
	bool stopping;
};

struct ros2_region {
	/* session thread; address, length and access are immutable after registration */
	struct ros2_session *session; /* borrowed: until session close */
	uint8_t *addr;
	size_t len;
	uint32_t access;
	uint32_t users; /* requests that name it and are not DONE */
	void *mapping;  /* owned: of ros2_buf_alloc; NULL for the caller's memory */
	size_t mapping_len;
	bool is_stage;  /* over shm: see dataplane/client/shm.h; never the program's */
	bool is_device; /* of a device: nobody here may look into it; verbs only */
	int dmabuf_fd;  /* owned, if is_device */
	uint64_t dmabuf_offset;
	struct shm_arena *arena; /* a reference: what it lies in; NULL = in no shared memory */
	/* over verbs */
	struct fabric_region *fabric; /* owned: its registration with the device; NULL = not yet */
	struct fabric_window *window; /* bound over it on this connection; NULL = none */
	uint32_t window_lease, window_generation; /* the lease that the window was told for */
	uint32_t n_sent;                          /* requests with the agent that name it */
	uint32_t revoking;                        /* windows of it whose receipt is due */
	/* guarded by session->lock */
	uint32_t key, generation, ttl_ms;
	uint64_t renew_at_ns, deadline_ns; /* boottime; counted from before the call was sent */
	bool stale;                        /* must be registered anew before it is used */
};

struct ros2_mount {
	struct ros2_session *session; /* borrowed: until session close */
	struct list link;             /* session->mounts */
	struct list files;
	char *name;             /* owned */
	uint32_t id;            /* the agent counts them anew in each session; 0 = none */
	struct ros2_err broken; /* it could not be mounted again; code 0 = fine */
};

struct ros2_file {
	struct ros2_mount *mount;    /* borrowed: until unmount */
	struct list link;            /* mount->files */
	char *path;                  /* owned */
	uint32_t flags, mode, users; /* users: requests not DONE */
	uint64_t handle;
	uint64_t writes_acked, writes_flushed; /* and cuts; unequal = not all is durable */
	uint32_t losses, losses_told; /* of a connection, with writes that were not flushed */
	bool unlinked;                /* by this program: its name is gone or another's */
	struct ros2_err broken;       /* it could not be opened again; code 0 = fine */
};

enum request_kind { REQ_READ, REQ_WRITE, REQ_FLUSH, REQ_ZERO, REQ_DISCARD };
static inline bool request_kind_clears(enum request_kind k)
{
	return k == REQ_ZERO || k == REQ_DISCARD;
}
static inline bool request_kind_changes(enum request_kind k)
{
	return k == REQ_WRITE || request_kind_clears(k);
}
enum request_state { REQ_FREE, REQ_PREPARED, REQ_READY, REQ_SENT, REQ_DONE };

struct request {
	struct list link; /* of the list of its state */
	enum request_kind kind;
	enum request_state state;
	bool internal;              /* of pread, pwrite, flush: not seen by peek */
	bool on_wire;               /* all of its header and inline payload left, or a part of it */
	bool answered;              /* COMPLETE came, entries of the send queue still name it */
	bool again;                 /* answered LEASE_EXPIRED before it was begun */
	bool is_inline;             /* WRITE: the payload went with the header */
	struct ros2_file *file;     /* borrowed: ros2_close refuses while in use */
	struct ros2_region *region; /* borrowed: deregister waits; NULL where nothing is moved */
	uint8_t *buf;
	uint32_t len;
	uint64_t offset, tag, id;
	uint64_t ready_ns; /* monotonic: when it began to wait for the agent */
	uint64_t lost_ns;  /* monotonic: when it was lost with a connection first; 0 = never */
	struct ros2_region *via;           /* whose key was sent: region, or the stage over shm */
	uint32_t key, generation;          /* as sent */
	uint32_t piece_first, piece_pages; /* over shm: pages of the stage; 0 = none */
	uint32_t received;                 /* READ: bytes landed, in order */
	uint32_t pulled;                   /* WRITE: bytes promised to PULLs */
	uint32_t out_refs;                 /* entries of the send queue that name it */
	uint32_t retries;
	uint64_t covers; /* FLUSH: file->writes_acked when it was sent */
	uint32_t losses; /* FLUSH: file->losses_told when the program asked for it */
	int64_t result;
	enum ros2_status status;
	char words[160];
};

enum link_state { LINK_DOWN, LINK_UP, LINK_DEAD };

/* What a transport does; for the contracts see link_open and the others below. */
struct link_ops {
	int (*open)(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err);
	int (*progress)(struct ros2_session *s, bool *ret_moved, struct ros2_err *err);
	/* What was queued since progress. */
	int (*send)(struct ros2_session *s, bool *ret_moved, struct ros2_err *err);
	int (*listen)(struct ros2_session *s, struct ros2_err *err);
	void (*poll)(struct ros2_session *s, int timeout_ms);
	bool spins; /* progress again and again pays before poll; shm looks into its ring in poll */
};

/* Over TCP payload comes and goes as DATA; elsewhere the agent takes it from memory, and puts it
 * there, by itself. */
static inline bool link_has_data(enum ros2_transport over)
{
	return over == ROS2_TRANSPORT_TCP;
}

struct ros2_session {
	struct ros2_client *client; /* borrowed: sessions are closed first */
	struct list link;           /* client->sessions, guarded by client->lock */

	/* session thread */
	enum link_state state;
	struct ros2_err why;             /* DEAD: for good; DOWN: what the last attempt met */
	int fd;                          /* owned; -1 unless UP over tcp or shm */
	int wakes_at;                    /* over tcp: bytes that wake a sleeper, SO_RCVLOWAT */
	struct spin spin;                /* over tcp and shm: before a wait sleeps */
	struct verbs_link *verbs;        /* owned; NULL until one was tried */
	const struct link_ops *link_ops; /* of what this connection is */
	enum ros2_transport over;        /* the same by its name: TCP, VERBS or SHM */
	struct shm_link *shm;            /* owned; NULL until one was tried */
	bool stage_is_full;              /* over shm: until a piece of it is put back */
	uint64_t shm_bytes;              /* what the program wants */
	uint64_t copied_bytes;           /* over shm, both ways */
	bool no_verbs;                   /* AUTO found that it does not work here */
	bool verbs_failed;               /* the last attempt had a session, and no connection */
	enum ros2_transport transport;   /* what the program wants */
	struct rx rx;
	struct tx tx;
	char words[WIRE_WORDS_MAX + 1];
	struct ros2_err nak; /* the last NAK without a request: why a reset may follow */
	bool peer_said_bye;
	uint32_t features; /* enum wire_feature, of this connection */
	uint32_t credits, max_io, max_inline, depth, reconnect_ms, backoff_ms, poll_us;
	uint64_t up_since_ns, next_try_ns, register_after_ns, looked_ns; /* monotonic */
	uint64_t silent_ns, pinged_ns; /* nothing heard for so long; and when PING was sent */
	struct request *requests;      /* owned; depth + INTERNAL_SLOTS */
	uint32_t n_requests, n_sent, n_reads_sent, n_small_reads_sent, n_user, n_internal;
	uint64_t next_id;
	struct list free, prepared, ready, sent, done, done_internal;
	struct list mounts;
	struct ros2_region *bounce; /* in regions */
	struct control_session granted;
	uint32_t reconnects;
	uint8_t lost_uid[16]; /* of the session whose connection was lost ... */
	bool lost_may_go_on;  /* ... while what that brought may be carried out yet */
	uint32_t n_unended;   /* the agent was there and did not end it */

	/* guarded by lock; only the session thread changes which regions there are */
	pthread_mutex_t lock;
	uint8_t uid[16];
	uint64_t epoch;               /* of uid: renewals answered for an older one are dropped */
	struct ros2_region **regions; /* owned, sorted by address */
	uint32_t n_regions;
};

/* client.c */
/* @control becomes the client's, also on error. */
int client_new(struct control *control, uint32_t timeout_ms, struct ros2_client **ret,
               struct ros2_err *err);
/* Any thread: a deadline has changed. */
void client_wake(struct ros2_client *c);
void client_unref(struct ros2_client *c);
/* A child that was forked has the sockets of its parent's sessions, and not the threads behind
 * them: what it did with either would be done to the parent. So it is refused everything, before a
 * lock is taken or a byte moves. 0, or BAD_SESSION. */
static inline bool client_is_childs(const struct ros2_client *c)
{
	return fork_mark_is_child(&c->mark);
}
int client_check_own(const struct ros2_client *c, struct ros2_err *err);

/* link.c: one data connection */
/* Connects to granted.data_address and proves both sides. Sets fd, credits, max_io. */
int link_open(struct ros2_session *s, uint32_t timeout_ms, struct ros2_err *err);
/* The parts of link_open: "host:port" or "[v6]:port"; CHALLENGE, HELLO and WELCOME on a connection
 * that does not block, with s->granted. 0 only when the agent has proved itself and what it offers
 * is within the protocol's bounds. */
int link_split_address(const char *address, char host[256], char port[8], struct ros2_err *err);
int link_shake_hands(struct ros2_session *s, int fd, uint64_t deadline_ns, struct wire_welcome *ret,
                     struct ros2_err *err);
/* What a WELCOME offers is within the protocol's bounds: the connection is this. Else PROTOCOL. */
int link_take_welcome(struct ros2_session *s, const struct wire_welcome *w, struct ros2_err *err);
/* What connections over a socket begin with. Waits for @events: 0 or TIMEOUT. Sends all of @p. The
 * error that a NAK with header @h tells, whose words are still to be read. */
int link_wait(int fd, short events, uint64_t deadline_ns, struct ros2_err *err);
int link_send_all(int fd, const void *p, size_t n, uint64_t deadline_ns, struct ros2_err *err);
int link_refused(int fd, const struct wire_header *h, uint64_t deadline_ns, struct ros2_err *err);
/* The error of a connection that the agent has ended: what its last NAK said, or @error (errno). */
int link_broke(struct ros2_session *s, int error, struct ros2_err *err);
/* PULLs and PINGs are answered through the send queue: without room there nothing is read. */
bool link_can_read(const struct ros2_session *s);
/* The connection ends; the send queue stays as it was. */
void link_cut(struct ros2_session *s);
/* In a child that was forked: it goes on, and this process has no part in it any more. */
void link_leave(struct ros2_session *s);
/* And the send queue is dropped. */
void link_close(struct ros2_session *s);
/* Sends what waits and takes what came, without blocking. *ret_moved: something happened. An error
 * means that the connection is of no use any more. */
int link_progress(struct ros2_session *s, bool *ret_moved, struct ros2_err *err);
/* Takes what came, sends nothing: whether the agent has hung up is known before a write leaves. */
int link_listen(struct ros2_session *s, struct ros2_err *err);
/* Waits for something to come, at most so long, and makes progress with it. */
int link_await(struct ros2_session *s, int timeout_ms, bool *ret_moved, struct ros2_err *err);

/* requests.c */
extern const struct rx_ops requests_rx_ops;
int requests_init(struct ros2_session *s);
/* A free slot or NULL; the caller fills it and calls request_prepare. */
struct request *request_get(struct ros2_session *s, bool internal);
void request_prepare(struct ros2_session *s, struct request *r);
void request_set_ready(struct ros2_session *s, struct request *r, uint64_t now_ns);
/* Moves READY requests to the send queue while there are credits. True: one ended instead. */
bool requests_dispatch(struct ros2_session *s);
void request_done(struct ros2_session *s, struct request *r, enum ros2_status status,
                  int64_t result, const char *words);
void request_put(struct ros2_session *s, struct request *r);
/* An entry of the send queue was handed on, and has left. */
void requests_entry_begun(struct ros2_session *s, int slot);
void requests_entry_sent(void *arg, int slot);
/* The connection is gone and its send queue dropped. */
void requests_link_lost(struct ros2_session *s);
/* PREPARED requests that name @region or @file (one of them NULL) end with @why, with @ready READY
 * ones too. */
void requests_cancel(struct ros2_session *s, const struct ros2_region *region,
                     const struct ros2_file *file, bool ready, const struct ros2_err *why);
/* All requests that are not DONE end with @why. */
void requests_fail(struct ros2_session *s, const struct ros2_err *why);

/* session.c */
/* Not connected; NULL without memory. */
struct ros2_session *session_make(struct ros2_client *c, const struct ros2_session_opts *o);
void session_unmake(struct ros2_session *s);
/* One round: reconnect when due, renew what is stale, send, receive; waits at most @timeout_ms for
 * something to happen. 0, or the error of a DEAD session. */
int session_step(struct ros2_session *s, int timeout_ms, struct ros2_err *err);
/* Waits until the link is UP, at most the session's reconnect time. */
int session_need_up(struct ros2_session *s, struct ros2_err *err);
/* The connection is of no use: asks the agent why, ends the session for good or schedules a
 * reconnect. */
void session_lost(struct ros2_session *s, const struct ros2_err *how);
void session_die(struct ros2_session *s, const struct ros2_err *why);
/* Afterwards no request names @region or @file (one of them NULL): waits for those with the agent
 * at most DRAIN_MS, then cuts the connection; what is left ends with @why. */
void session_drain(struct ros2_session *s, const struct ros2_region *region,
                   const struct ros2_file *file, const struct ros2_err *why);
/* A control call of this session, made again after a reconnect when the agent did not know the
 * session any more, and also when it was lost during the call if @repeatable. */
typedef int (*session_call_fn)(struct ros2_session *s, void *arg, struct ros2_err *err);
int session_call(struct ros2_session *s, bool repeatable, const char *what, session_call_fn fn,
                 void *arg, struct ros2_err *err);

/* restore.c: what is made again on a new session */
int session_open_and_restore(struct ros2_session *s, struct ros2_err *err);
/* What the lost connection brought, or still carries, must not be carried out after what comes
 * next: the program may have written the same bytes anew. The agent answers when nothing of the
 * session is left, or after a second. True: it has ended. */
bool session_end_lost(struct ros2_session *s);

/* memory.c */
/* The region that holds all of [addr, addr+len), or NULL. */
struct ros2_region *region_find(struct ros2_session *s, const void *addr, size_t len);
/* Some of it is memory of a device, which the library must not touch. */
bool region_is_device(const struct ros2_session *s, const void *addr, size_t len);
/* A new key from the agent for memory the table knows already. */
int region_register(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err);
/* Registered memory of the library's, made on first use. */
int region_bounce(struct ros2_session *s, struct ros2_region **ret, struct ros2_err *err);
void regions_free(struct ros2_session *s);
/* The table only: no call to the agent. EXISTS, LIMIT, -ENOMEM. */
int region_insert(struct ros2_session *s, struct ros2_region *r, struct ros2_err *err);
void region_remove(struct ros2_session *s, struct ros2_region *r);
/* With the memory that it owns. */
void region_free(struct ros2_region *r);
/* *len becomes what the policy wants a region of so many bytes to be, *ret_align what its address
 * has to be a multiple of. */
int region_shape(const struct ros2_session *s, size_t *len, size_t *ret_align,
                 struct ros2_err *err);
/* Key and generation to send; false when it has to be registered first. */
bool region_key(struct ros2_session *s, struct ros2_region *r, uint32_t *ret_key,
                uint32_t *ret_generation);
/* From ttl_ms, counted from @asked_ns: before the call was sent, as the agent's own clock cannot
 * have begun earlier. Under session->lock. */
void region_set_times(struct ros2_region *r, uint64_t asked_ns);
void region_set_stale(struct ros2_session *s, struct ros2_region *r);

/* files.c */
int file_open_again(struct ros2_session *s, struct ros2_file *f, struct ros2_err *err);
int mount_again(struct ros2_session *s, struct ros2_mount *m, struct ros2_err *err);

/* True for an error that no reconnect can mend: REVOKED, DENIED, VIOLATIONS, UNAUTHENTICATED ... */
bool status_is_final(enum ros2_status st);
#endif
