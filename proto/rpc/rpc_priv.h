/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared inside proto/rpc: tags, the polling thread, decoded messages, identity, TLS, and the
 * shapes of a server and a channel. Nothing here leaves the directory.
 *
 * Lock order: server->lock or channel->lock, then the lock of one call, request or stream. No lock
 * is held while domain code runs. grpc_* functions that start or cancel work may be called under a
 * lock: they only queue completions.
 */
#ifndef ROS2_PROTO_RPC_PRIV_H
#define ROS2_PROTO_RPC_PRIV_H

#include "common/share.h"
#include "common/util.h"
#include "proto/rpc/rpc.h"
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

/* gRPC orders what it hands from thread to thread; ThreadSanitizer does not see into it. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define rpc_tsan_release(p) __tsan_release(p)
#define rpc_tsan_acquire(p) __tsan_acquire(p)
#else
#define rpc_tsan_release(p) ((void)(p))
#define rpc_tsan_acquire(p) ((void)(p))
#endif

#define RPC_STATUS_TEXT_MAX 384
#define RPC_PROTOCOL_KEY    "ros2-protocol"

/* ---- polling ---- */

/* First member of whatever waits for a batch: @fn runs on the polling thread. */
struct rpc_tag {
	void (*fn)(struct rpc_tag *t, bool ok);
};

/* One completion queue and the thread that polls it. */
/* Work put off until the queue is empty for the moment (or for RPC_LATER_EVENTS events), so that
 * one wake-up of a loop serves all that came in one go. Polling thread. */
struct rpc_later {
	struct list link;
	void (*fn)(struct rpc_later *later);
};
#define RPC_LATER_EVENTS 64

struct rpc_poller {
	grpc_completion_queue *cq;
	struct list later; /* polling thread: struct rpc_later */
	pthread_t thread;
	bool running;
	char name[16];
	uint32_t tick_ms;        /* 0: no ticks */
	void (*tick)(void *arg); /* polling thread, about every tick_ms */
	/* Or NULL. Polling thread: nothing is left of what had come, it waits; and: it is back.
	 * True: it is not to wait long. */
	bool (*idle)(void *arg, bool idle);
	void *arg;
};
int rpc_poller_start(struct rpc_poller *p, const char *name, uint32_t tick_ms,
                     void (*tick)(void *arg), void *arg);
/* Polling thread; what is queued already stays where it is. */
void rpc_poller_later(struct rpc_poller *p, struct rpc_later *later);
/* After every batch on the queue has completed or is certain to. Drains, joins. */
void rpc_poller_stop(struct rpc_poller *p);

/* ---- core.c ---- */

/* Counted: the first init sets up gRPC.
 * UNSUPPORTED in a child that was forked from a process in which it has ever been up. */
int rpc_grpc_init(struct ros2_err *err);
void rpc_grpc_shutdown(void);
sigset_t rpc_signals_block(void);
void rpc_signals_restore(const sigset_t *before);
/* As long as the block is, where gRPC may begin a thread and the caller's may take signals. */
#define RPC_BLOCKS_SIGNALS                                                                         \
	CLEANUP(rpc_signals_restore) sigset_t signals_before = rpc_signals_block()

/* CLOCK_BOOTTIME moment of a gRPC deadline, and back. */
uint64_t rpc_deadline_ns(gpr_timespec deadline);
gpr_timespec rpc_deadline_in_ms(uint32_t ms);

grpc_arg rpc_int_arg(const char *key, size_t value);

/* Before @tag is given to gRPC other than by rpc_batch. */
void rpc_tag_handed_over(struct rpc_tag *tag);
/* Runs one operation batch. True unless gRPC calls it a misuse (our bug). */
bool rpc_batch(grpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag);

/* ---- status.c ---- */

grpc_status_code rpc_status_to_grpc(enum ros2_status s);
/* "NAME: words"; the caller unrefs it. */
grpc_slice rpc_status_message(enum ros2_status s, const char *words);
/* Returns err->code; 0 for GRPC_STATUS_OK. */
int rpc_status_from_grpc(grpc_status_code code, grpc_slice message, struct ros2_err *err);

/* ---- codec.c ---- */

struct rpc_arena;
struct rpc_msg {
	ProtobufCMessage *msg;
	struct rpc_arena *arena; /* NULL: msg is protobuf-c's own allocation */
	size_t cost;             /* bytes of memory it takes, about */
};
/* Errors have the status INVALID or TOO_LARGE. @heap: so that msg can be given away. */
int rpc_msg_decode(const ProtobufCMessageDescriptor *d, grpc_byte_buffer *bb, size_t max, bool heap,
                   struct rpc_msg *ret, struct ros2_err *err);
void rpc_msg_free(struct rpc_msg *m);
/* -EINVAL: not a @d; -EMSGSIZE. */
int rpc_msg_encode(const ProtobufCMessageDescriptor *d, const ProtobufCMessage *m, size_t max,
                   grpc_byte_buffer **ret);

/* ---- peer.c ---- */

struct rpc_peer_cache;
struct rpc_peer_cache *rpc_peer_cache_new(void);
void rpc_peer_cache_free(struct rpc_peer_cache *c);
/* Who is at the other end of @call. Polling thread. 0; -EKEYREJECTED with words when a certificate
 * was presented that names nobody, or more than one, or has expired. */
int rpc_peer_of(struct rpc_peer_cache *c, grpc_call *call, struct rpc_peer *ret,
                struct ros2_err *err);

/* ---- tls.c ---- */

struct rpc_tls_server;
/* Loads and checks the files. */
int rpc_tls_server_new(const char *cert, const char *key, const char *client_ca, const char *append,
                       struct rpc_tls_server **ret, struct ros2_err *err);
grpc_server_credentials *rpc_tls_server_creds(struct rpc_tls_server *t);
void rpc_tls_server_free(struct rpc_tls_server *t);
/* True: they are others than before. It needs nothing, so it is always done. Any thread. */
struct pki_trust;
bool rpc_tls_server_set_trust(struct rpc_tls_server *t, struct pki_trust *trust);
/* RPC_TRUST_FIRST, and one more for each change; 0 without client CAs. Any thread, at no cost. */
uint64_t rpc_tls_server_generation(const struct rpc_tls_server *t);
/* The same, and a reference to what it counts, or NULL. */
uint64_t rpc_tls_server_trust(struct rpc_tls_server *t, struct pki_trust **ret);

/* What the last refused server was; for words when calls fail. */
struct rpc_tls_client {
	pthread_mutex_t lock;
	atomic_int refs; /* the channel, and gRPC's verifier */
	char server_id[ROS2_SPIFFE_MAX + 1];
	bool server_id_is_prefix;
	bool pinned;              /* to ca_sha256 instead of a bundle */
	char cert_path[PATH_MAX]; /* "": none */
	char ca_path[PATH_MAX];   /* "": pinned */
	uint8_t ca_sha256[32];
	grpc_tls_certificate_verifier_external ext;
	/* guarded by lock */
	struct ros2_err last;
	char *chain;             /* owned; of the server that was believed last; NULL: none yet */
	struct pki_trust *trust; /* a reference; NULL: the file says it all */
};
int rpc_tls_client_new(const struct rpc_channel_opts *o, struct rpc_tls_client **ret,
                       grpc_channel_credentials **ret_creds, struct ros2_err *err);
void rpc_tls_client_unref(struct rpc_tls_client *t);
/* Makes UNAVAILABLE say why the server was refused, if it was, or that our certificate has ended.
 */
void rpc_tls_client_explain(struct rpc_tls_client *t, struct ros2_err *err);
/* A server must verify to it, too, from here on; NULL takes that back. */
void rpc_tls_client_set_trust(struct rpc_tls_client *t, struct pki_trust *trust);
/* Whether that server's chain verifies to the bundle as its file is now. */
int rpc_tls_client_check(struct rpc_tls_client *t, struct ros2_err *err);

/* ---- ssl.c ---- */

/* Before the first listener. False: no memory. Any thread. */
bool rpc_ssl_init(void);

/* ---- refusals.c: what is refused here, for who records it ---- */

struct rpc_refusals;
struct rpc_refusals *rpc_refusals_new(void);
struct rpc_refusals *rpc_refusals_ref(struct rpc_refusals *f);
void rpc_refusals_unref(struct rpc_refusals *f);
/* Any thread, under any lock. @r is copied; its count and times are set here. */
void rpc_refusals_add(struct rpc_refusals *f, const struct rpc_refusal *r);
/* Polling thread. True: there are some, and rpc_refusals_tell must run once. */
bool rpc_refusals_take(struct rpc_refusals *f);
/* Loop thread. @fn NULL: they are dropped. */
void rpc_refusals_tell(struct rpc_refusals *f, rpc_refused_fn fn, void *arg);

/* ---- conns.c: limits on connections, applied as they are accepted ---- */

struct rpc_conns;
/* The caps of @lim; @refusals is referenced. */
struct rpc_conns *rpc_conns_new(const struct rpc_limits *lim, struct rpc_refusals *refusals);
void rpc_conns_unref(struct rpc_conns *c);
grpc_arg rpc_conns_arg(struct rpc_conns *c);
/* On the connection from @address ("127.0.0.1:4711") a call of @group (NULL: not known) begins.
 * What is returned (NULL: no such connection) is for rpc_conns_call_over, once, whether the call
 * was refused or has ended. @ret_crowded: it must be refused (conns_crowded). Any thread. */
struct rpc_conn;
struct rpc_conn *rpc_conns_called(struct rpc_conns *c, const char *address, const char *group,
                                  bool *ret_crowded);
void rpc_conns_call_over(struct rpc_conns *c, struct rpc_conn *k); /* NULL is accepted */
/* The call on @k (NULL is accepted) has come to nothing, by @peer's doing; one too many ends the
 * connection (conns_futile). Before rpc_conns_call_over. Any thread. */
void rpc_conns_futile(struct rpc_conns *c, struct rpc_conn *k, const struct rpc_peer *peer);
/* The call on @k (NULL is accepted) is refused: one too many whose refusal nobody has taken ends
 * the connection (conns_refused). rpc_conns_refusal_over instead of rpc_conns_call_over. Any
 * thread. */
void rpc_conns_refused(struct rpc_conns *c, struct rpc_conn *k, const struct rpc_peer *peer);
void rpc_conns_refusal_over(struct rpc_conns *c, struct rpc_conn *k);
/* Of @fd came a header block in more pieces than one may (headers.c): it is ended. Any thread. */
void rpc_conns_headers(struct rpc_conns *c, int fd);
/* A message has come over it (NULL is accepted), in a call that has not ended. Any thread. */
void rpc_conns_message(struct rpc_conns *c, struct rpc_conn *k);
/* How a call's certificate (its SHA-256) was judged on that connection, by this generation of
 * client CAs: 1: well; -1: ill; 0: not yet. */
int rpc_conns_trust(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                    uint64_t generation);
void rpc_conns_judged(struct rpc_conns *c, const char *address, const uint8_t cert[32],
                      uint64_t generation, bool well);
/* Finds those that ended without one, and forgets what is long ago. Any thread. */
void rpc_conns_sweep(struct rpc_conns *c);
/* Fills in what is about connections. */
void rpc_conns_stats(struct rpc_conns *c, struct rpc_server_stats *ret);

/* What gRPC may be given now of @fd (conns_may_read). SIZE_MAX: it is not of this listener any
 * more. */
size_t rpc_conns_may_read(struct rpc_conns *c, int fd);
void rpc_conns_has_read(struct rpc_conns *c, int fd, size_t bytes);
/* So many more in the turn: conns_owes. */
void rpc_conns_owes(struct rpc_conns *c, int fd, size_t bytes);
/* The listener's polling thread has handled all that was read (@idle), and waits; or it has come
 * back. True: somebody was held, and may be so again while it waits. */
bool rpc_conns_idle(struct rpc_conns *c, bool idle);

/* ---- socket.c: sockets that gRPC owns, and may close meanwhile; any thread, under any lock ----
 */

/* From the first of these to the last of those two descriptors are kept, so that a socket can be
 * ended where no descriptor is left. */
void rpc_socket_reserve(void);
void rpc_socket_unreserve(void);
/* Its inode, by which it is known; 0: @fd is no socket (any more). */
ino_t rpc_socket_ino(int fd);
/* @fd, if it is still the socket with @ino. False: it is not; or there is no descriptor to be had,
 * and none is kept. */
bool rpc_socket_end(int fd, ino_t ino);
/* And what it sent and nobody read is thrown away: after shutdown(2) that would still be read, and
 * connections that come each second, from some addresses, would keep a thread with it. */
bool rpc_socket_abort(int fd, ino_t ino);
/* It was reset, or ended both ways (tcp_poll): what is left may be read, nothing more comes. */
bool rpc_socket_is_over(int fd);
/* gRPC is told anew what there is of @fd, the socket with @ino: something to read, or its end. */
void rpc_socket_look_again(int fd, ino_t ino);
/* The same of what waits at a listener. */
void rpc_socket_accept_again(int fd);

/* ---- gate.c: the listeners decide what gRPC gets to read ---- */

/* From now on recvmsg(2) of @fd asks @c. False: descriptors of this number it does not know. Any
 * thread, under any lock. */
bool rpc_gate_add(int fd, struct rpc_conns *c);
/* Not any more, if it did. */
void rpc_gate_remove(int fd, struct rpc_conns *c);
/* Between the two nobody asks a listener: one may go. Not under a listener's lock. */
void rpc_gate_close(void);
void rpc_gate_closed(void);
/* From now on a connection that cannot be accepted at @fd, for want of a descriptor or of memory,
 * waits until rpc_gate_accept_again has been called. Until @fd is closed. Any thread. */
void rpc_gate_listen(int fd);
/* Of all listeners. Any thread, at no cost while nobody waits. */
void rpc_gate_accept_again(void);
/* Bytes that have come this way, of all listeners: whether it is in the way. Any thread. */
uint64_t rpc_gate_passed(void);
/* The descriptor of the listener's connection that this thread was given bytes of last (-1: none),
 * and a number that is of those only. */
uint64_t rpc_gate_last(int *ret_fd);
/* Of what this thread was given last, a record of TLS with so many bytes: where they are fewer than
 * RPC_RECORD_LEAST they count as that, for it is the record that costs gRPC its time. */
#define RPC_RECORD_LEAST 256
void rpc_gate_record(size_t bytes);
/* rpc_conns_headers of whose it is. Any thread. */
void rpc_gate_headers(int fd);

/* ---- quota.c: how much one group of peers uses ---- */

struct quota_entry;
struct rpc_quota {
	const char *of;              /* what is counted, for words; static */
	struct quota_entry *entries; /* uthash by group */
	struct share share;
	uint32_t used;
};
void rpc_quota_init(struct rpc_quota *q, const char *of, size_t total, size_t per_group);
/* Not locked: the server's lock is. -EBUSY over a limit; *ret is what rpc_quota_give takes. */
int rpc_quota_take(struct rpc_quota *q, const char *group, struct quota_entry **ret,
                   struct ros2_err *err);
void rpc_quota_give(struct quota_entry *e);

/* ---- server ---- */

#define RPC_READ_MAX (64 * 1024ul) /* of a connection, at once; nor more than receive_bytes */

struct rpc_route {
	struct rpc_handler row;
	bool any_version; /* grpc.health.v1 */
};

/* Why nothing could listen on @addr. */
int rpc_listen_error(const char *addr, struct ros2_err *err);
/* False: a number behind the last ':' that no port has. */
bool rpc_port_is_one(const char *addr);

struct rpc_server {
	/* immutable after rpc_server_start */
	char name[32];
	char listen[128];
	struct loop *loop;
	struct rpc_limits lim;
	bool wants_client_cert;
	struct rpc_route *routes; /* sorted by path */
	size_t n_routes;
	uint16_t port;
	struct rpc_tls_server *tls;
	struct rpc_conns *conns;
	struct rpc_refusals *refusals;
	rpc_refused_fn on_refused;
	void *refused_arg;
	rpc_group_fn group_of; /* NULL: each peer is one */
	void *group_arg;
	grpc_server *grpc;
	struct rpc_poller poller;

	/* polling thread */
	struct rpc_peer_cache *peers;
	uint64_t swept_ns;
	uint64_t swept_generation;      /* of client CAs that every open stream was judged by */
	struct loop_post refusals_post; /* one at a time: rpc_refusals_take */

	/* loop thread */
	bool stopping;
	atomic_bool gone; /* rpc_server_free has begun: no callback any more */
	struct loop_timer grace;
	struct rpc_tag shutdown_tag;

	atomic_int refs; /* owner, each call, each stream */
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* guarded by lock */
	struct list calls, streams;
	struct rpc_quota call_quota, apart_quota, stream_quota;
	size_t live_grpc; /* grpc_calls and accept slots not yet given back */
	bool shutdown_begun, shutdown_done, stopped_posted;
	struct loop_post stopped_post; /* once */
	loop_fn on_stopped;
	void *on_stopped_arg;
	struct rpc_server_stats stats;
	struct list health; /* struct health_entry */
};

/* What a new call brings, moved into a call or a stream. */
struct rpc_incoming {
	grpc_call *grpc;
	const struct rpc_route *route;
	struct rpc_peer peer;
	struct quota_entry *place; /* owned: rpc_server_ended, or rpc_server_no_memory */
	struct rpc_conn *conn;     /* likewise */
	uint64_t deadline_ns;
};

/* As connections are counted (host.h): "192.0.2.1", "[2001:db8::"; whatever its scope. */
void rpc_group_of_stranger(const struct rpc_peer *peer, char group[RPC_GROUP_MAX + 1]);

void rpc_server_ref(struct rpc_server *s);
void rpc_server_unref(struct rpc_server *s);
/* A grpc_call was taken or given back. */
void rpc_server_grpc_taken(struct rpc_server *s);
void rpc_server_grpc_returned(struct rpc_server *s);
/* A call or stream ended for good; posts on_stopped after the last. */
void rpc_server_ended(struct rpc_server *s, struct quota_entry *place, struct rpc_conn *conn,
                      struct list *link);
void rpc_server_count(struct rpc_server *s, uint64_t *counter);
/* The same for what a peer is answered, which is told to who records it. @method may be NULL. */
void rpc_server_refused(struct rpc_server *s, enum rpc_refused why, const struct rpc_peer *peer,
                        const struct rpc_method *method, const struct ros2_err *err);
/* Ends the call with a named error; takes it over, and its connection. Polling thread. */
void rpc_server_refuse(struct rpc_server *s, const struct rpc_incoming *in, enum ros2_status status,
                       const char *words);
/* The same for what had a place already, which it gives back, and found no memory. */
void rpc_server_no_memory(struct rpc_server *s, const struct rpc_incoming *in);

/* call.c */
void rpc_call_begin(struct rpc_server *s, const struct rpc_incoming *in);
/* Under server->lock: ends calls that are over their time. */
void rpc_call_sweep(struct rpc_server *s, uint64_t now_ns);
/* Loop thread, when gRPC is down: runs outstanding cancel callbacks. */
void rpc_call_abandon_all(struct rpc_server *s);

/* stream.c */
void rpc_stream_begin(struct rpc_server *s, const struct rpc_incoming *in);
void rpc_stream_sweep(struct rpc_server *s, uint64_t now_ns);
/* Delivers on_closed now, for every stream in @list (guarded by @lock). */
void rpc_stream_abandon_all(struct list *streams, pthread_mutex_t *lock);

/* trust.c; polling thread */
/* The peer's certificate and what it sent with it, malloc'd PEM; NULL: none, or no memory. */
char *rpc_trust_chain(grpc_call *call);
/* Whether a chain (taken over) verifies now; UNAUTHENTICATED with words, BUSY for NULL. Only where
 * there are client CAs. */
int rpc_trust_judge(struct rpc_server *s, char *chain, uint64_t *ret_generation,
                    struct ros2_err *err);
/* Whether the connection of a new call is still trusted; fills in peer->trust_generation. */
int rpc_trust_admit(struct rpc_server *s, grpc_call *call, struct rpc_peer *peer,
                    struct ros2_err *err);
void rpc_trust_sweep(struct rpc_server *s);

/* health.c */
int rpc_health_add(struct rpc_server *s, struct ros2_err *err);
int rpc_health_entry_add(struct rpc_server *s, const char *service);
void rpc_health_fini(struct rpc_server *s);

/* ---- channel ---- */

struct rpc_channel {
	/* immutable */
	char name[32];
	struct loop *loop;
	size_t max_message_bytes;
	grpc_channel *grpc;
	struct rpc_tls_client *tls;
	struct rpc_dialed *dialed; /* a reference */
	struct rpc_poller poller;

	atomic_bool gone;
	atomic_int refs; /* owner, each request, each stream */
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* guarded by lock */
	bool closing;
	struct list requests, streams;
	size_t n_requests;
	size_t live_grpc;
};

/* dialed.c: what a channel connects by. Any thread; NULL: no memory. */
struct rpc_dialed *rpc_dialed_new(void);
void rpc_dialed_unref(struct rpc_dialed *d);
grpc_arg rpc_dialed_arg(struct rpc_dialed *d);
/* Resets it, connected or not. False: it is none any more. */
bool rpc_dialed_abort(struct rpc_dialed *d);

void rpc_channel_ref(struct rpc_channel *c);
void rpc_channel_unref(struct rpc_channel *c);
/* A new grpc_call, counted; NULL after rpc_channel_free began. */
grpc_call *rpc_channel_call(struct rpc_channel *c, const struct rpc_method *m, uint32_t timeout_ms);
void rpc_channel_grpc_returned(struct rpc_channel *c);
/* The metadata every call of ours carries; static storage. */
grpc_metadata *rpc_channel_metadata(size_t *ret_n);
bool rpc_metadata_version(const grpc_metadata_array *md, uint32_t *ret);

/* request.c */
/* @fn runs on the polling thread when @on_poller; the message is then its to free. */
int rpc_request_start(struct rpc_channel *c, const struct rpc_method *m,
                      const ProtobufCMessage *req, uint32_t timeout_ms, bool on_poller,
                      rpc_reply_fn fn, void *arg, struct rpc_request **ret, struct ros2_err *err);
void rpc_request_cancel_all(struct rpc_channel *c);
void rpc_request_abandon_all(struct rpc_channel *c);

#define RPC_AHEAD_MAX   64
#define RPC_AHEAD_BYTES (256u << 10) /* of memory; one message may be larger */

/* stream.c, for stream_client.c and reader.c */
struct rpc_stream_params {
	const struct rpc_method *method;
	const struct rpc_stream_ops *ops;
	void *user;
	struct loop *loop; /* NULL: callbacks run on the polling thread (readers) */
	bool client, keep_messages;
	size_t ahead_max; /* messages read and not yet handed on, at least 1 */
	size_t queue_max, queue_bytes, max_message_bytes;
	uint64_t deadline_ns;
};
/* *ret comes with a reference of the caller's. */
int rpc_stream_start_client(struct rpc_channel *c, const struct rpc_stream_params *p,
                            const ProtobufCMessage *req, uint32_t timeout_ms,
                            struct rpc_stream **ret, struct ros2_err *err);
void rpc_stream_cancel_all(struct list *streams, pthread_mutex_t *lock);
#endif
