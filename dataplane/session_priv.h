/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's half of a session: its requests, handles and leases, and the transport's part, all
 * in one allocation made by the loop before the session starts. Owned by its reactor from attach
 * until it is gone. Must not be included outside dataplane/.
 *
 *   WAITING --HELLO--> OPEN --BYE--> CLOSING --all is answered, and taken--> ENDED --engines and
 * devices gave back--> gone
 *      \________________\______________\_______any end, any time______/
 *
 * End of a session: 1. state ENDED, nothing is begun any more; 2. its leases end; 3. the connection
 * is reset, so that unsent data is discarded; 4. requests that no engine or device holds are
 * released; 5. the loop is told; 6. engines and devices give back the rest, each with its slot and
 * lease hold; 7. gone: the loop frees it.
 */
#ifndef ROS2_DATAPLANE_SESSION_PRIV_H
#define ROS2_DATAPLANE_SESSION_PRIV_H

#include "dataplane/dp_priv.h"
#include "dataplane/slots.h"
#include "dataplane/transport.h"
#include "dataplane/wire.h"

enum request_state {
	REQUEST_FREE,
	REQUEST_POSTED,  /* answered as far as the tenant knows; the device still has the slot */
	REQUEST_PAYLOAD, /* the payload that came with it is arriving */
	REQUEST_QUEUED,  /* waits for tokens, a slot or its turn */
	REQUEST_PULLING, /* the tenant was, or is about to be, asked for the payload */
	REQUEST_READY,   /* to be given to the engine */
	REQUEST_ENGINE,  /* the engine owns io and slot */
	REQUEST_REPLY,   /* the reply is queued */
};

struct slot_source;
struct verbs_tenant;

struct request {
	struct engine_io io;
	struct session *s;
	struct dp_file *file;     /* referenced */
	struct slot_source *from; /* borrowed: whose its slot is */
	struct lease *lease;      /* held; NULL = not now */
	struct slot slot;
	struct shm_piece *piece; /* borrowed: in use; NULL = what slot.mem lies in is no piece */
	enum request_state state;
	enum request_op op;
	enum ros2_status status;
	bool has_payload, shaped, begun; /* begun: counted in n_begun */
	bool paid;                       /* its tokens are taken */
	bool on_device;                  /* PULLING or POSTED: posted work names its slot */
	uint32_t depth_mark;             /* of depth_enter, while begun */
	uint32_t length, key, generation;
	uint32_t bytes; /* done */
	uint32_t got;   /* of the payload */
	uint64_t id, offset, address, begun_ns;
	struct list link; /* free, queue, pulls or ready list, by state */
	void *out;        /* the transport's part of it, within the session's channel */
};

enum session_state { SESSION_WAITING, SESSION_OPEN, SESSION_CLOSING, SESSION_ENDED };
const char *session_state_to_str(enum session_state s);

#define SESSION_VIOLATION_KINDS 8u
/* A session whose slots wait for its peer moves at least this much in this time, or ends when
 * others wait for slots. */
#define SESSION_STALL_NS    (5 * NS_PER_S)
#define SESSION_STALL_BYTES (1024u * 1024)
/* In this time it takes what it was sent, when it has said BYE and everything was answered. */
#define SESSION_LINGER_NS SESSION_STALL_NS

/* Violations of one kind (a status) not reported yet. */
struct violations {
	enum ros2_status status;
	uint64_t count, first_unix_ns, last_unix_ns;
	char words[200];
};

/* A pool, and what of it is out. */
struct slot_source {
	struct slots *pool;      /* borrowed; NULL = none */
	struct slot_use use;     /* the session's */
	struct slot_use *tenant; /* borrowed: its tenant's */
};

struct session {
	/* immutable after attach */
	struct dp *dp;
	struct dp_session *ds; /* the loop's half; the reactor only passes it on */
	struct dp_tenant *tenant;
	struct dp_grant_obj *grant;
	struct ros2_uid uid;
	struct reactor *r;
	struct rtenant *rt;
	const struct transport_ops *transport;
	void *channel; /* the transport's part, behind the session in its memory */
	uint32_t index;
	uint64_t conn, cert_deadline_ns;
	/* any thread: counters, relaxed */
	struct {
		_Atomic uint64_t read_bytes, write_bytes, cleared_bytes, read_ops, write_ops,
			clear_ops, violations, copied_bytes, shaped_ns;
		_Atomic uint32_t regions, handles, in_flight;
		_Atomic bool connected;
	} stats;
	/* reactor */
	enum session_state state;
	enum ros2_status end_status;
	uint8_t secret[WIRE_SECRET_LEN];
	uint64_t hello_deadline_ns, last_send_ns, last_engine_ns;
	uint32_t leases_ended; /* by the end of the session */
	uint32_t keys_ended;   /* of targets, with a right of the session */
	uint32_t n_requests, n_engine, n_device, n_posted;
	uint32_t features;          /* enum wire_feature, of both sides */
	uint32_t engines;           /* bit n: it had requests for the engine in slot n */
	struct list free, queue[2]; /* queue: reads; what changes bytes, and flushes */
	struct list link_active[2], link_gone, link_input, link_output;
	uint64_t away_turn[2];       /* in which all that waits was looked at: storage is away */
	uint64_t full_turn[2];       /* in which those stood back whose engine was full */
	uint64_t spent[2];           /* bytes, in its turn among its tenant's sessions */
	struct slot_source own;      /* where its slots come from */
	struct slot_source lent;     /* for engines that lend memory to a target, unless own can */
	struct verbs_tenant *lender; /* borrowed: counted there; whose lent is; NULL = nobody's */
	uint64_t stall_since_ns, stall_moved; /* transport->moved() then */
	uint64_t lingers_since_ns;            /* as the timer saw it; 0 = it did not */
	struct {
		uint64_t handle;      /* 0 = free */
		struct dp_file *file; /* referenced */
	} handles[DP_HANDLES_MAX];
	uint64_t ids[DP_CREDITS]; /* of requests[i], beside each other because every request
	                             searches them */
	struct request requests[DP_CREDITS];
	/* events; *_out are the loop's while posted */
	struct violations violations[SESSION_VIOLATION_KINDS],
		violations_out[SESSION_VIOLATION_KINDS];
	_Atomic bool violations_posted;
	struct dp_post violations_post, ended_post, gone_post, connected_post;
	char end_words[200], peer[64];
};

static inline bool session_alive(const struct session *s)
{
	return s->state == SESSION_OPEN || s->state == SESSION_CLOSING;
}

/* Where the slots of requests on @f come from: an engine that lends its memory needs the tenant's.
 */
static inline struct slot_source *session_slots_for(struct session *s, const struct dp_file *f)
{
	return f->mount->engine->lends && s->lent.pool ? &s->lent : &s->own;
}

/* Loop: the memory; NULL when there is none. */
struct session *session_new(struct dp_session *ds, const struct transport_ops *transport);
/* Reactor */
void session_attach(struct reactor *r, struct session *s);
/* @features: what HELLO says that the tenant knows. Returns what both know, for WELCOME. */
uint32_t session_connected(struct session *s, const char *peer, uint32_t features);
enum ros2_status session_rights(const struct session *s, uint64_t now_ns);
/* From when on they do not stand if nothing changes; at least 1. Between the look and the call that
 * hands on, the process may be stopped: whoever hands on reads the clock again then. */
uint64_t session_rights_until(const struct session *s);
/* Harmless when it has ended already. */
void session_end(struct session *s, enum ros2_status why, const char *words);
/* After a message that does not parse: nothing behind it can be believed. */
void session_end_bad_message(struct session *s, enum ros2_status what, const char *words);
/* Nothing in flight and the tenant said BYE: ends it in order, when the peer has taken it all. */
void session_maybe_closed(struct session *s);
/* It said BYE and all is answered; what was sent to it may not have been taken yet. */
static inline bool session_lingers(const struct session *s)
{
	return s->state == SESSION_CLOSING && s->n_requests == 0;
}
/* Requests that an engine or a device holds. */
static inline uint32_t session_held(const struct session *s)
{
	return s->n_engine + s->n_device;
}
/* An engine or device gave something back, or a request was released: is it gone? */
void session_maybe_gone(struct session *s);
void session_tick(struct session *s, uint64_t now_ns);
struct dp_file *session_file(const struct session *s, uint64_t handle);
/* Counts, records, answers with a NAK; past the tenant's limit the session ends. */
void session_violation(struct session *s, uint64_t request_id, enum ros2_status status,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void session_release_requests(struct session *s);
/* A right has ended: the keys that targets were given for what it has inside engines end now. */
void session_end_keys(struct session *s);
void session_want_input(struct session *s);
void session_want_output(struct session *s);
void session_post_violations(struct session *s);
/* The lease table's on_end; arg is the reactor. */
void session_lease_ended(void *arg, const struct lease *l);

/* session_ops.c: what the loop asks a reactor to do */
void session_run_attach(struct reactor *r, struct dp_op *op);
void session_run_close(struct reactor *r, struct dp_op *op);
void session_run_handle_add(struct reactor *r, struct dp_op *op);
void session_run_handle_remove(struct reactor *r, struct dp_op *op);
void session_run_register(struct reactor *r, struct dp_op *op);
void session_run_renew(struct reactor *r, struct dp_op *op);
void session_run_deregister(struct reactor *r, struct dp_op *op);

/* session_list.c */
void session_run_leases(struct reactor *r, struct dp_op *op);

/* session_revoke.c */
void session_run_revoke(struct reactor *r, struct dp_op *op);
/* After it: back when the keys that it ended are dead. */
void session_run_keys(struct reactor *r, struct dp_op *op);
/* Answers those whose keys are dead by now. */
void session_revokes_check(struct reactor *r);
/* Engines and devices are gone from here: so are the keys. */
void session_revokes_drop(struct reactor *r);

/* session_events.c: on the loop */
void session_on_ended(struct dp_post *p);
void session_on_gone(struct dp_post *p);
void session_on_connected(struct dp_post *p);
void session_on_violations(struct dp_post *p);
void session_stats(const struct session *s, struct dp_session_stats *ret);

/* request.c */
void request_init_all(struct session *s);
void request_release(struct request *req);
void request_ready(struct request *req); /* it is the engine's turn */
void request_reply(struct request *req, enum ros2_status status);
/* One without bytes: answered, and counted as the operation that its tenant pays for. */
void request_reply_empty(struct request *req);
/* request_reply with what an engine said: bytes or negative errno. */
void request_answer(struct request *req, int64_t res);
void request_engine_done(struct engine_io *io, int64_t res);
void request_engine_unneeded(struct engine_io *io);
/* Would a request on @f wait in its engine, because the storage does not answer? */
bool request_away(const struct session *s, const struct dp_file *f);
/* Requests for that storage hold what they may together, where there is other storage. */
bool request_crowds(struct session *s, const struct dp_file *f, const struct slot_source *from,
                    uint32_t len);
/* False: none, or over a cap. */
bool request_take_slot(struct session *s, const struct dp_file *f, struct slot_source *from,
                       uint32_t len, struct slot *ret);
/* As session_rights_until, with the lease that @req holds. */
uint64_t request_until(const struct request *req);
/* Checks the lease now and holds it. */
enum ros2_status request_hold_lease(struct request *req, uint64_t now_ns);
/* Its payload is in memory that the tenant has, too, and in no slot. */
static inline bool request_borrows(const struct request *req)
{
	return req->slot.mem && req->slot.size_class == SLOT_BORROWED;
}
/* It asks much of the storage, and of the buffers nothing. */
static inline bool request_is_slotless(const struct request *req)
{
	return req->op == REQUEST_FLUSH || request_op_clears(req->op);
}
static inline bool request_moves_bytes(const struct request *req)
{
	return (req->op == REQUEST_READ || req->op == REQUEST_WRITE) && req->length > 0;
}
#endif
