/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream, either side. The sending half is guarded by the lock and driven from any thread. The
 * receiving half: the polling thread reads ahead into the inbox within a bound; a drain, at most
 * one at a time, runs on the callback thread and hands on what is there: messages, then the peer's
 * half-close, then the end. The grpc_call is given back when its closing batch and all others have
 * completed; only then is there an end to hand on, and nothing after it. refs: one until on_closed
 * was delivered, one per batch, one per post or drain, and the users'.
 */
#ifndef ROS2_PROTO_RPC_STREAM_PRIV_H
#define ROS2_PROTO_RPC_STREAM_PRIV_H

#include "proto/rpc/rpc_priv.h"

struct out_msg {
	struct list link;
	grpc_byte_buffer *bytes;
	size_t size;
};

/* Read, decoded, not yet handed on. */
struct in_msg {
	struct list link;
	struct rpc_msg m;
};

struct rpc_stream {
	/* immutable */
	struct rpc_stream_params p;
	struct rpc_server *server; /* one of the two */
	struct rpc_channel *channel;
	struct rpc_peer peer; /* server side; as is: */
	struct quota_entry *place;
	struct rpc_conn *conn;
	uint64_t request_by_ns;
	struct list link; /* server's or channel's streams, under its lock */
	atomic_int refs;

	struct rpc_tag on_init, on_read, on_written, on_status_sent, on_over;
	/* polling thread */
	grpc_byte_buffer *bytes; /* of the read that is under way */
	struct rpc_later later;  /* queued while a drain is due */
	uint64_t judged;         /* server: by this generation of client CAs */
	grpc_byte_buffer *first; /* client: the request of a server-stream, while it is sent */
	/* written by gRPC before on_over or on_init */
	int was_cancelled;
	grpc_metadata_array init_md, trail_md;
	grpc_status_code status;
	grpc_slice status_words;

	/* callback thread (the loop's, or the polling thread for readers) */
	void *data;
	bool opened;    /* on_open was called */
	bool delivered; /* on_closed was called */

	/* open: once; drain: while draining; writable: while writable_posted */
	struct loop_post open_post, drain_post, writable_post;

	pthread_mutex_t lock;
	/* guarded by lock */
	grpc_call *grpc; /* NULL once given back */
	unsigned batches;
	struct list queue; /* struct out_msg, to be sent */
	size_t queued, queued_bytes;
	struct out_msg *sending;
	bool want_writable, want_low, writable_posted;
	size_t low; /* want_low: told when so many wait */
	unsigned corks;
	bool more_to_tell; /* on_message runs and more messages wait: sends wait for the last */
	bool closing;      /* server: a status is to be sent; client: half-closed */
	bool close_started;
	uint64_t closed_by_ns; /* server: an end with an error must have left by then; 0: none */
	bool over;             /* the closing batch has completed: no new batch */
	bool have_request;     /* server-stream: the request has arrived */
	bool reading, held, read_ended;
	struct list inbox; /* struct in_msg */
	size_t inbox_n, inbox_cost;
	bool draining;    /* a drain is due, posted or running */
	bool half_closed; /* by the peer, behind the inbox */
	bool half_close_told;
	bool ended;   /* grpc was given back: on_closed is due */
	bool unheard; /* ended by the user: the inbox is dropped */
	bool aborted;
	struct ros2_err why; /* our own reason for the end, when set */
	bool has_why;
	grpc_slice close_words;
};

/* stream.c */
struct rpc_stream *rpc_stream_alloc(const struct rpc_stream_params *p);
/* Under the lock. False when gRPC refused. */
bool rpc_stream_batch(struct rpc_stream *s, const grpc_op *ops, size_t n, struct rpc_tag *tag);
/* At the end of every tag. */
void rpc_stream_batch_done(struct rpc_stream *s);
/* Runs @fn(stream) on the callback thread, with a reference; @p is one of the stream's, not posted
 * now. */
void rpc_stream_post(struct rpc_stream *s, struct loop_post *p, loop_fn fn);
/* True while callbacks may run: the server or channel is not being freed. */
bool rpc_stream_alive(const struct rpc_stream *s);
/* Callback thread; at most once per stream. */
void rpc_stream_deliver_closed(struct rpc_stream *s);
void rpc_stream_put(struct rpc_stream *s); /* drops a posted reference */
void rpc_stream_end(struct rpc_stream *s, bool now, enum ros2_status status, const char *words);

/* stream_recv.c */
/* Starts reading. */
void rpc_stream_read_next(struct rpc_stream *s);
/* Polling thread, under the lock: makes sure that a drain follows. */
void rpc_stream_drain_later(struct rpc_stream *s);
void rpc_stream_drop_inbox(struct rpc_stream *s);
/* Any thread: no message is handed on any more. */
void rpc_stream_unhear(struct rpc_stream *s);

/* stream_send.c */
/* Under the lock: starts the next send, or the end when the queue is empty and an end was asked
 * for. */
void rpc_stream_pump(struct rpc_stream *s);
void rpc_stream_drop_queue(struct rpc_stream *s);
void rpc_stream_written(struct rpc_tag *t, bool ok);
void rpc_stream_status_sent(struct rpc_tag *t, bool ok);
#endif
