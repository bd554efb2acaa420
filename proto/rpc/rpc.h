/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC for domain code: servers, channels, unary calls and streams, without a gRPC type.
 *
 * Threads. Every server and channel belongs to one event loop (common/loop.h) and ALL callbacks run
 * on that loop's owner thread. The layer has one thread of its own per server and per channel; it
 * checks, decodes, posts and sends, and never runs domain code. "Any thread" below means it; "loop
 * thread" is the owner of that loop. Messages given to a callback are valid only while it runs;
 * messages given to a function are copied (encoded) before it returns.
 *
 * What never reaches a handler: a peer without exactly one valid SPIFFE ID (where client
 * certificates are asked for) or with an expired certificate, another protocol version, a message
 * that is too long, too deep, not UTF-8 or with NULs in strings, a call beyond a limit. These get a
 * named error at once, never a wait.
 *
 * Errors on the wire: an enum ros2_status becomes the nearest gRPC code and the message "NAME:
 * words"; the client side turns that back into struct ros2_err. Errors of other gRPC peers map to
 * the nearest name.
 */
#ifndef ROS2_PROTO_RPC_RPC_H
#define ROS2_PROTO_RPC_RPC_H

#include "common/err.h"
#include "common/ids.h"
#include "common/loop.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sent by clients as metadata "ros2-protocol" and required by servers (except for grpc.health.v1).
 */
#define RPC_PROTOCOL_VERSION 1

/* ---- methods: tables made by protoc-gen-ros2rpc, one NAME.rpc.h per .proto
 * -------------------------------- */

enum rpc_kind { RPC_UNARY, RPC_SERVER_STREAM, RPC_BIDI };
const char *rpc_kind_to_str(enum rpc_kind k);

struct rpc_method {
	const char *path; /* "/ros2.v1.Admin/Apply" */
	const char *name; /* "Admin.Apply", for logs and audit */
	enum rpc_kind kind;
	const ProtobufCMessageDescriptor *input, *output;
};

struct rpc_service {
	const char *name; /* "ros2.v1.Admin" */
	const struct rpc_method *const *methods;
	size_t n_methods;
};

/* ---- who is calling
 * ---------------------------------------------------------------------------------------- */

struct rpc_peer {
	char spiffe_id[ROS2_SPIFFE_MAX + 1]; /* the one URI SAN; "" when not authenticated */
	bool authenticated;                  /* a client certificate was presented and verified */
	char address[64];                    /* "127.0.0.1:4711", "[::1]:4711" */
	int64_t cert_not_after_unix_s;
	uint8_t cert_sha256[32];
	uint8_t spki_sha256[32];   /* of the public key: survives renewal of the certificate */
	uint64_t trust_generation; /* of the client CAs that its chain was judged by */
};

/* ---- server
 * ------------------------------------------------------------------------------------------------
 */

struct rpc_server;
struct rpc_call;
struct rpc_stream;

/* All zero = the default in brackets. Calls and streams beyond a limit are answered BUSY
 * (RESOURCE_EXHAUSTED). */
struct rpc_limits {
	const char *connections_name; /* what sets the next two, for words; static; may be NULL */
	/* For one more another is ended, which has made no call yet or is idle, or whose caller has
	 * no certificate (conns_priv.h); where there is none such it is closed at accept. */
	size_t max_connections;            /* [1024] */
	size_t max_connections_per_source; /* [256] of one IPv4 address, or one IPv6 /64 */
	/* Unary calls in flight, and open streams, from their headers on, whether a request follows
	 * or not; in all, and of one group (rpc_server_opts.group_of). The last quarter is for
	 * groups that have none or few: their first, or their first 1 in 256 of all. */
	size_t max_calls;             /* [1024] */
	size_t max_calls_per_group;   /* [max_calls / 4] */
	size_t max_streams;           /* [1024] */
	size_t max_streams_per_group; /* [max_streams / 4] */
	size_t max_message_bytes;     /* [4 MiB] each message in either direction */
	size_t stream_queue_max;      /* [256] messages waiting to be sent, per stream */
	size_t stream_queue_bytes; /* [4 x max_message_bytes] bytes waiting to be sent, per stream
	                            */
	/* [16 KiB] what the kernel takes of a connection that nobody has read yet (RFC 9293 calls
	 * it the window): 320 KB a second at a round trip of 50 ms. And what is read of one
	 * connection, or one group, before others have their turn, to 64 KiB. */
	size_t receive_bytes;
	/* [30000] a unary call longer than this is ended: TIMEOUT. From its answer on it has as
	 * long again for its caller to take that: who does not keeps neither place nor memory. */
	uint32_t call_deadline_ms;
	uint32_t request_deadline_ms; /* [10000] the request must have arrived by then */
};

/* Why something did not become a call. */
enum rpc_refused {
	RPC_REFUSED_CONNECTIONS,            /* max_connections: closed at accept, or for others */
	RPC_REFUSED_CONNECTIONS_PER_SOURCE, /* max_connections_per_source: likewise */
	/* A connection that ended without a call: no certificate, one that this listener does not
	 * accept or that has expired, another error of TLS, or who connected gave it up. Which of
	 * these, gRPC does not say. */
	RPC_REFUSED_HANDSHAKE,
	RPC_REFUSED_IDENTITY, /* a verified certificate that names nobody, or has expired since */
	/* Verified once, not any more: its CA is gone from the bundle (rpc_server_set_trust). */
	RPC_REFUSED_TRUST,
	RPC_REFUSED_METHOD,
	RPC_REFUSED_VERSION,
	RPC_REFUSED_MESSAGE, /* NUL, not UTF-8, too long, too deep, not decodable */
	RPC_REFUSED_LIMIT,   /* calls or streams in flight */
	RPC_REFUSED_FUTILE,  /* a connection ended for calls that came to nothing */
	RPC_REFUSED_KINDS
};
/* "max-connections", "handshake", ...: for logs, metrics and records. */
const char *rpc_refused_to_str(enum rpc_refused why);

struct rpc_refusal {
	enum rpc_refused why;
	enum ros2_status status;                 /* as it was answered, or would have been */
	const struct rpc_method *method;         /* NULL when it is not known */
	const char *spiffe_id, *address, *words; /* "" when not known; valid during the callback */
	/* More than one when they came faster than they can be told: the fields are the last
	 * one's, and spiffe_id is "". */
	uint64_t count, first_unix_ns, last_unix_ns;
};
typedef void (*rpc_refused_fn)(void *arg, const struct rpc_refusal *r);

/* Names those who share what one group may have of the calls and streams in flight: fills in
 * @group. Not the loop's thread, at every call: must not wait for the loop. */
#define RPC_GROUP_MAX ROS2_SPIFFE_MAX
typedef void (*rpc_group_fn)(void *arg, const struct rpc_peer *peer, char group[RPC_GROUP_MAX + 1]);

struct rpc_server_opts {
	const char *name;   /* copied; for logs and the thread's name */
	struct loop *loop;  /* borrowed: until rpc_server_free */
	const char *listen; /* "127.0.0.1:0", "[::]:7443"; copied */
	/* PEM files, copied names. Read again when they change, at the next handshake; a pair that
	 * does not match, or a file that does not parse, is ignored and the last good set stays in
	 * use. */
	const char *cert_path, *key_path;
	const char *client_ca_path; /* NULL: no client certificates are asked for (enrolment
	                               listener) */
	/* NULL, or PEM sent after the chain in handshakes: the CA itself, for clients that only
	 * know its hash. */
	const char *chain_append_path;
	struct rpc_limits limits;
	/* May be NULL. Loop thread, within about a second of what it tells; bounded: at most 64
	 * each 100 ms, and nothing is left uncounted. */
	rpc_refused_fn on_refused;
	void *refused_arg; /* borrowed: until rpc_server_free */
	/* NULL: each SPIFFE ID is a group, and each address (IPv6: /64) where there is none. */
	rpc_group_fn group_of;
	void *group_arg; /* borrowed: until rpc_server_free */
};

/* The handler of a unary call. Loop thread. It, or code it hands @call to, calls rpc_call_reply or
 * rpc_call_fail exactly once; @req is valid until it returns. */
typedef void (*rpc_unary_fn)(struct rpc_call *call, const ProtobufCMessage *req, void *user);

/* Callbacks of a stream, server and client side alike. Loop thread. Any may be NULL except
 * on_closed at clients. Order: on_open, then any of on_message / on_writable, at most one
 * on_half_close, exactly one on_closed, last. */
struct rpc_stream_ops {
	/* Server: a stream was opened; @req is its request for RPC_SERVER_STREAM, NULL for
	 * RPC_BIDI. Set rpc_stream_set_data here. Client: the server has accepted the stream (its
	 * first bytes arrived); @req NULL. */
	void (*on_open)(struct rpc_stream *s, const ProtobufCMessage *req, void *user);
	/* One message. The layer reads ahead of this, at most 64 messages and 256 KiB of memory
	 * (or one larger message) per stream; then nothing more is read from the network until this
	 * has returned (back-pressure); see rpc_stream_hold. */
	void (*on_message)(struct rpc_stream *s, const ProtobufCMessage *msg, void *user);
	/* The peer will send no more. A server still owes rpc_stream_close (without a callback the
	 * layer closes a bidirectional stream OK). Not called at clients: there on_closed follows.
	 */
	void (*on_half_close)(struct rpc_stream *s, void *user);
	/* After a send was answered -EAGAIN: the queue has drained to half. */
	void (*on_writable)(struct rpc_stream *s, void *user);
	/* The end; @s is gone after it returns (unless referenced). @why->code is 0 for a good end.
	 */
	void (*on_closed)(struct rpc_stream *s, const struct ros2_err *why, void *user);
};

/* One row per method the server implements; methods without a row are answered UNSUPPORTED
 * (UNIMPLEMENTED). */
struct rpc_handler {
	const struct rpc_method *method;     /* borrowed, static */
	rpc_unary_fn unary;                  /* for RPC_UNARY */
	const struct rpc_stream_ops *stream; /* for the others; borrowed, static */
	void *user;                          /* borrowed: until rpc_server_free */
	/* Unary: its calls in flight are counted apart from the others, within the same limits
	 * again, so that a flood of the others leaves these their places. */
	bool apart;
};

/* Checks the options and loads the certificates; does not listen. Loop thread or before the loop
 * runs. -EINVAL; the errno of a missing or unreadable file; -EBADMSG for one that does not parse or
 * a key that does not belong to the certificate. */
int rpc_server_new(const struct rpc_server_opts *o, struct rpc_server **ret, struct ros2_err *err);
/* Before rpc_server_start. Every row's method must be of @svc, once, with the right callback: else
 * -EINVAL.
 * @svc is borrowed (static), @rows are copied. The service's health becomes SERVING. */
int rpc_server_add(struct rpc_server *s, const struct rpc_service *svc,
                   const struct rpc_handler *rows, size_t n_rows, struct ros2_err *err);
/* Binds and serves. -EADDRINUSE, -EINVAL for an address that does not parse. grpc.health.v1 is
 * added. */
int rpc_server_start(struct rpc_server *s, struct ros2_err *err);
/* The port that was bound; 0 before rpc_server_start. */
uint16_t rpc_server_port(const struct rpc_server *s);
/* Before rpc_server_start. A name of grpc.health.v1 that is no service: a state of the process that
 * people watch. SERVING at first. -ENOMEM. */
int rpc_server_add_health(struct rpc_server *s, const char *name, struct ros2_err *err);
/* Any thread. The answer of grpc.health.v1 for @service ("" = the whole server). Watchers are told.
 * -ENOENT for a service that was not added. */
int rpc_server_set_health(struct rpc_server *s, const char *service, bool serving);
/* Loop thread. Refuses new calls at once; those in flight get @grace_ms to end and are then
 * cancelled.
 * @on_stopped (may be NULL) runs on the loop when the last has ended. At most once per server.
 * Streams do not end by themselves: close them first, or the grace runs out. */
void rpc_server_stop(struct rpc_server *s, uint32_t grace_ms, loop_fn on_stopped, void *arg);
/* Loop thread, or any thread when the loop no longer runs. Cancels what is left; on_closed of open
 * streams and cancel callbacks run before it returns, no callback runs after. Unanswered struct
 * rpc_call stay valid to reply to (nothing is sent). Not from inside a callback of this server.
 * NULL is accepted. */
void rpc_server_free(struct rpc_server *s);

/* From here on peers are judged by these client CAs, in handshakes and where theirs is past: calls
 * are refused, and open streams end, UNAUTHENTICATED, within about a second and one more for each
 * 640 streams. Calls in flight end as they would. The file of client_ca_path is read once, at
 * rpc_server_new; certificate and key are followed without a word. True: they are others than
 * before. It cannot fail. Takes a reference. Not of a server without client_ca_path. Any thread. */
struct pki_trust;
bool rpc_server_set_trust(struct rpc_server *s, struct pki_trust *trust);
/* How often that was true, from RPC_TRUST_FIRST; 0 without client_ca_path. Any thread. */
#define RPC_TRUST_FIRST 1
uint64_t rpc_server_trust_generation(const struct rpc_server *s);

struct rpc_server_stats {
	uint64_t calls_total, streams_total; /* admitted */
	uint64_t calls_now, streams_now, connections_now;
	uint64_t refused_limit;                  /* calls and streams beyond a limit */
	uint64_t refused_connections;            /* max_connections */
	uint64_t refused_connections_per_source; /* max_connections_per_source */
	uint64_t ended_connections;  /* of these two those that were open and made room */
	uint64_t refused_handshakes; /* connections that ended without a call */
	uint64_t refused_futile;     /* connections ended for calls that came to nothing */
	uint64_t refused_identity;   /* no or bad SPIFFE ID, expired certificate */
	uint64_t refused_trust;      /* calls and open streams of peers whose CA is gone */
	uint64_t refused_invalid;    /* undecodable messages */
	uint64_t refused_version, refused_unknown_method;
};
/* Any thread. */
void rpc_server_stats(const struct rpc_server *s, struct rpc_server_stats *ret);

/* Unary calls, server side. */
/* Valid until the call was answered. Any thread. Never NULL. */
const struct rpc_peer *rpc_call_peer(const struct rpc_call *c);
const struct rpc_method *rpc_call_method(const struct rpc_call *c);
/* The certificate of the peer and what it sent with it, PEM, malloc'd, for who keeps something for
 * it that outlives the call. NULL: no certificate, nobody waits any more, or no memory. */
char *rpc_call_peer_chain(struct rpc_call *c);
/* Whether the peer is still trusted, for a handler that waited before it acts: 0; UNAUTHENTICATED,
 * when the client CAs have changed and its chain does not verify to them; BUSY, when that cannot be
 * known: no memory, or nobody waits any more. UNAUTHENTICATED is counted and told like the refusal
 * of a new call. Costs nothing while the CAs are the same. Any thread, before the answer. */
int rpc_call_judge(struct rpc_call *c, struct ros2_err *err);
/* Nanoseconds of CLOCK_BOOTTIME by which the client (or the server's limit) gives up. */
uint64_t rpc_call_deadline_ns(const struct rpc_call *c);
/* Loop thread, in the handler: @fn(@arg) runs once on the loop if the client cancels, its deadline
 * passes or its connection breaks before the call is answered. The call must still be answered.
 * When another thread answers,
 * @fn may run concurrently with that, but not after it has returned on the loop thread. */
void rpc_call_on_cancel(struct rpc_call *c, loop_fn fn, void *arg);
/* Any thread: true once the answer will reach nobody. */
bool rpc_call_is_cancelled(const struct rpc_call *c);
/* Any thread; ends @c, whatever is returned: 0, -ECANCELED when nobody waits any more (nothing to
 * do about it), -EMSGSIZE or -EINVAL (not the method's output type): the client then gets INTERNAL.
 */
int rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *reply);
/* Any thread; ends @c. @status is not ROS2_OK. */
void rpc_call_fail(struct rpc_call *c, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Any thread; ends @c with err->status and err->msg (INTERNAL when @err holds no error). */
void rpc_call_fail_err(struct rpc_call *c, const struct ros2_err *err);

/* ---- streams, both sides
 * ----------------------------------------------------------------------------------- */

/* A server ends a stream UNAUTHENTICATED when the certificate it was opened with expires: the
 * client opens it again with its renewed one.
 *
 * A stream is valid until its on_closed has returned, on the loop thread. To use it on other
 * threads or for longer, hold a reference; functions on an ended stream answer -ESHUTDOWN. */
struct rpc_stream *rpc_stream_ref(struct rpc_stream *s);
void rpc_stream_unref(struct rpc_stream *s); /* NULL is accepted */

/* Any thread. 0 = queued in order; -EAGAIN: the queue is full, nothing was taken, on_writable will
 * follow; -ESHUTDOWN: the stream is ending; -EMSGSIZE; -EINVAL: not the method's type, or a
 * client's server-stream. */
int rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *msg);
/* Any thread: between the two (they nest) what is sent is queued and leaves together. A queue that
 * is more than half full is drained all the same, and the end of the stream does not wait. What is
 * sent while on_message runs waits in the same way for what the next messages bring about, as long
 * as some have arrived already. */
void rpc_stream_cork(struct rpc_stream *s);
void rpc_stream_uncork(struct rpc_stream *s);
/* Any thread: messages that wait to be sent. */
size_t rpc_stream_queued(const struct rpc_stream *s);
/* Any thread. False: at most @low messages wait to be sent, go on. True: more do, and on_writable
 * will follow when it is so (or on_closed). For much that is sent at the pace of its reader, while
 * the queue keeps room for what cannot wait. */
bool rpc_stream_wait_low(struct rpc_stream *s, size_t low);
/* Server, any thread: end with @status (ROS2_OK: a good end, @fmt may be NULL) after what is queued
 * was sent; with an error no later than call_deadline_ms: what is not taken by then is dropped, and
 * so is a peer that does not read. Client: the same as rpc_stream_abort with CANCELLED. Later calls
 * are ignored. */
void rpc_stream_close(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Any thread: end now; what is queued is dropped. For a peer that does not read, or that must go.
 */
void rpc_stream_abort(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Client, any thread: no more sends from this side, after what is queued. */
int rpc_stream_half_close(struct rpc_stream *s);
/* Loop thread, inside on_message: hand on nothing more, neither messages nor the half-close, and
 * read no further than what is read already, until rpc_stream_resume (any thread). The end is
 * handed on all the same, at a client after the messages before it: so only after it has resumed.
 * After rpc_stream_abort no message is handed on. */
void rpc_stream_hold(struct rpc_stream *s);
void rpc_stream_resume(struct rpc_stream *s);

/* Server side; never NULL there. NULL at clients. Valid as long as @s. */
const struct rpc_peer *rpc_stream_peer(const struct rpc_stream *s);
const struct rpc_method *rpc_stream_method(const struct rpc_stream *s);
/* Loop thread: a pointer of the owner's, NULL at first. */
void rpc_stream_set_data(struct rpc_stream *s, void *data);
void *rpc_stream_data(const struct rpc_stream *s);

/* ---- client
 * ------------------------------------------------------------------------------------------------
 */

/* Unary calls in flight per channel. */
#define RPC_REQUESTS_MAX 4096

struct rpc_channel;
struct rpc_request;
struct rpc_reader;

struct rpc_channel_opts {
	const char *name;    /* copied; for logs and the thread's name */
	const char *target;  /* "host:port"; copied */
	struct loop *loop;   /* borrowed; NULL: only the blocking functions may be used */
	const char *ca_path; /* PEM bundle that must have issued the server's certificate */
	/* Instead of ca_path: pki_bundle_hash of the CA, which the server must send
	 * (chain_append_path); 32 bytes, copied. */
	const uint8_t *ca_sha256;
	const char *cert_path, *key_path; /* both NULL: no client certificate (enrolment) */
	/* Files that change are picked up, within a second, for the next connection; torn pairs are
	 * ignored. */
	const char *
		server_id; /* the SPIFFE ID the server must have (its host name is not looked at) */
	bool server_id_is_prefix; /* @server_id ends in '/': any ID that begins with it */
	bool any_domain; /* files of another trust domain than @server_id's are tried: for tests of
	                    servers; else WRONG_DOMAIN with the file's name */
	size_t max_message_bytes; /* [4 MiB] */
	uint32_t keepalive_ms; /* [10000] ping interval; a dead peer is noticed after at most twice
	                          that */
	uint32_t reconnect_max_ms; /* [5000] longest pause between connection attempts (exponential,
	                              with jitter) */
};

/* 0, or UNSUPPORTED: this process was forked from one in which there has been a channel or a
 * server: it can have neither. Any thread; takes no lock. */
int rpc_check_process(struct ros2_err *err);
/* Does not connect: the first call does. Any thread. -EINVAL; the errno of a missing file, -EBADMSG
 * for a bad one; UNSUPPORTED as above; -EMFILE: gRPC has no descriptors to begin with. Channels
 * never share a connection. */
int rpc_channel_new(const struct rpc_channel_opts *o, struct rpc_channel **ret,
                    struct ros2_err *err);
/* Loop thread (any thread when the channel has no loop). Open calls and streams end with CANCELLED:
 * their callbacks run before it returns, none after. Allowed inside a callback of this channel.
 * Readers must have been closed and blocking calls have returned. NULL is accepted. */
void rpc_channel_free(struct rpc_channel *c);

enum rpc_channel_state {
	RPC_CHANNEL_IDLE,
	RPC_CHANNEL_CONNECTING,
	RPC_CHANNEL_READY,
	RPC_CHANNEL_FAILED
};
const char *rpc_channel_state_to_str(enum rpc_channel_state st);
/* Any thread. @try_to_connect starts connecting when idle. */
enum rpc_channel_state rpc_channel_state(struct rpc_channel *c, bool try_to_connect);
/* Any thread but the loop's: waits until READY. -ETIMEDOUT; words say what the last attempt met. */
int rpc_channel_wait_ready(struct rpc_channel *c, uint32_t timeout_ms, struct ros2_err *err);
/* Any thread. After ca_path has changed: does the server of the last connection still verify to it?
 * 0, also when there was no connection; UNAUTHENTICATED with words, also when the file cannot be
 * read; BUSY without memory: nothing ends by it, the owner frees the channel and makes another.
 * @err is not NULL. */
int rpc_channel_check_server(struct rpc_channel *c, struct ros2_err *err);
/* Servers must verify to @trust besides, from the next handshake on: what a file that cannot be
 * written does not say yet. NULL takes that back. Takes a reference. Any thread. */
void rpc_channel_set_trust(struct rpc_channel *c, struct pki_trust *trust);
/* Any thread: the next attempt to connect starts now. */
void rpc_channel_reset_backoff(struct rpc_channel *c);

/* Loop thread; once. @reply is NULL when @err->code is not 0. Both valid only during the callback.
 */
typedef void (*rpc_reply_fn)(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err);
/* Any thread. Fails without a callback: -EINVAL (kind or type), -EMSGSIZE, -ESHUTDOWN, -EBUSY
 * with RPC_REQUESTS_MAX in flight. Otherwise
 * @fn runs exactly once; errors then are named: TIMEOUT at the deadline, UNAVAILABLE when not
 * connected (calls do not wait for a connection that failed), what the server said. @ret_req may be
 * NULL. */
int rpc_unary(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
              uint32_t timeout_ms, rpc_reply_fn fn, void *arg, struct rpc_request **ret_req,
              struct ros2_err *err);
/* Loop thread, before @fn has begun: it will run with CANCELLED, unless an answer is already on its
 * way. */
void rpc_request_cancel(struct rpc_request *r);

/* Any thread but the loop's. *ret_reply: protobuf_c_message_free_unpacked(reply, NULL). 0 or
 * err->code. */
int rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                   uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err);

struct rpc_stream_opts {
	const struct rpc_stream_ops *ops; /* borrowed, static */
	void *user;
	uint32_t timeout_ms; /* 0: no deadline */
	size_t queue_max;    /* [256] messages waiting to be sent */
};
/* Loop thread. @req: the request of an RPC_SERVER_STREAM, NULL for RPC_BIDI. 0: on_closed will run
 * exactly once. *ret is borrowed until then (rpc_stream_ref to keep it). -EINVAL, -EMSGSIZE,
 * -ESHUTDOWN. */
int rpc_stream_open(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                    const struct rpc_stream_opts *o, struct rpc_stream **ret, struct ros2_err *err);

/* A server-stream read by a blocking program. One thread at a time per reader, not the loop's.
 * @timeout_ms 0: no deadline for the whole stream. */
int rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                    uint32_t timeout_ms, struct rpc_reader **ret, struct ros2_err *err);
/* 0 and a message (free as above); -ENODATA: the server ended the stream well; -EAGAIN: nothing
 * within @wait_ms (UINT32_MAX: no limit), call again; otherwise err->code, and the stream is over.
 */
int rpc_reader_next(struct rpc_reader *r, uint32_t wait_ms, ProtobufCMessage **ret_msg,
                    struct ros2_err *err);
/* Any thread, also while another is in rpc_reader_next, which then fails with CANCELLED. */
void rpc_reader_cancel(struct rpc_reader *r);
/* Cancels if the stream is still open. NULL is accepted. */
void rpc_reader_close(struct rpc_reader *r);

/* ---- messages
 * ---------------------------------------------------------------------------------------------- */

/* What every received message goes through; for other bytes from outside (files, stored rows) that
 * hold messages. Checks @n bytes against @d: well-formed, at most RPC_DEPTH_MAX levels, strings
 * UTF-8 without NUL, decoded size bounded. -EBADMSG with words that name the field. Any thread. */
#define RPC_DEPTH_MAX 16
int rpc_message_check(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n,
                      struct ros2_err *err);
/* Check, then unpack; -ENOMEM says nothing of the bytes. *ret:
 * protobuf_c_message_free_unpacked(msg, NULL). */
int rpc_message_decode(const ProtobufCMessageDescriptor *d, const void *bytes, size_t n,
                       ProtobufCMessage **ret, struct ros2_err *err);

#ifdef __cplusplus
}
#endif
#endif
