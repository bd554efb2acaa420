/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: lifetime, the receiving half, and the end. See stream_priv.h for the invariants;
 * stream_send.c has the sending half, stream_server.c and stream_client.c how one begins.
 */
#include "common/clock.h"
#include "proto/rpc/stream_priv.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- lifetime ---- */

struct rpc_stream *rpc_stream_alloc(const struct rpc_stream_params *p)
{
	struct rpc_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->p = *p;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	list_init(&s->link);
	list_init(&s->queue);
	grpc_metadata_array_init(&s->init_md);
	grpc_metadata_array_init(&s->trail_md);
	s->status_words = grpc_empty_slice();
	s->close_words = grpc_empty_slice();
	s->on_written.fn = rpc_stream_written;
	s->on_status_sent.fn = rpc_stream_status_sent;
	return s;
}

static void forget(struct rpc_stream *s)
{
	struct rpc_channel *c = s->channel;

	if (s->server)
		rpc_server_ended(s->server, &s->server->stream_quota, &s->peer, &s->link);
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	list_del(&s->link);
	pthread_mutex_unlock(&c->lock);
	rpc_channel_unref(c);
}

struct rpc_stream *rpc_stream_ref(struct rpc_stream *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void rpc_stream_unref(struct rpc_stream *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	forget(s);
	rpc_stream_drop_queue(s);
	rpc_msg_free(&s->in);
	grpc_metadata_array_destroy(&s->init_md);
	grpc_metadata_array_destroy(&s->trail_md);
	grpc_slice_unref(s->status_words);
	grpc_slice_unref(s->close_words);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool rpc_stream_alive(const struct rpc_stream *s)
{
	return s->server ? !s->server->gone : !s->channel->gone;
}

void rpc_stream_post(struct rpc_stream *s, loop_fn fn)
{
	rpc_stream_ref(s);
	if (s->p.loop)
		loop_post_urgent(s->p.loop, fn, s);
	else
		fn(s);
}

void rpc_stream_put(struct rpc_stream *s)
{
	rpc_stream_unref(s);
}

bool rpc_stream_batch(struct rpc_stream *s, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
	if (!s->grpc || s->over || !rpc_batch(s->grpc, ops, n, tag))
		return false;
	s->batches++;
	rpc_stream_ref(s);
	return true;
}

/* ---- the end ---- */

static void why_it_ended(struct rpc_stream *s, struct ros2_err *ret)
{
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&s->lock);
	if (s->has_why)
		*ret = s->why;
	else if (!s->p.client)
		ros2_err_named(ret, ROS2_CANCELLED,
		               "the peer cancelled, went away or is out of time");
	else if (s->over)
		rpc_status_from_grpc(s->status, s->status_words, ret);
	else
		ros2_err_named(ret, ROS2_CANCELLED, "the channel was closed");
	pthread_mutex_unlock(&s->lock);
	if (s->channel && ret->code)
		rpc_tls_client_explain(s->channel->tls, ret);
}

static void deliver_closed(struct rpc_stream *s)
{
	struct ros2_err why;

	if (s->delivered)
		return;
	s->delivered = true;
	why_it_ended(s, &why);
	if (s->opened || s->p.client)
		if (s->p.ops->on_closed)
			s->p.ops->on_closed(s, &why, s->p.user);
	rpc_stream_unref(s);
}

static void closed_posted(void *arg)
{
	struct rpc_stream *s = arg;

	if (rpc_stream_alive(s))
		deliver_closed(s);
	rpc_stream_put(s);
}

void rpc_stream_batch_done(struct rpc_stream *s)
{
	bool back = false;

	pthread_mutex_lock(&s->lock);
	s->batches--;
	if (s->over && !s->batches && s->grpc) {
		grpc_call_unref(s->grpc);
		s->grpc = NULL;
		back = true;
	}
	pthread_mutex_unlock(&s->lock);
	if (back) {
		rpc_stream_post(s, closed_posted);
		if (s->server)
			rpc_server_grpc_returned(s->server);
		else
			rpc_channel_grpc_returned(s->channel);
	}
	rpc_stream_unref(s);
}

static struct rpc_stream *take_first(struct list *streams, pthread_mutex_t *lock)
{
	struct rpc_stream *s, *found = NULL;
	int refs;

	pthread_mutex_lock(lock);
	list_for_each (streams, s, link) {
		/* Streams without a reference are on their way out of the list. */
		refs = atomic_load(&s->refs);
		while (!s->delivered && refs && !found)
			if (atomic_compare_exchange_weak(&s->refs, &refs, refs + 1))
				found = s;
	}
	pthread_mutex_unlock(lock);
	return found;
}

void rpc_stream_abandon_all(struct list *streams, pthread_mutex_t *lock)
{
	struct rpc_stream *s;

	while ((s = take_first(streams, lock))) {
		deliver_closed(s);
		rpc_stream_unref(s);
	}
}

void rpc_stream_cancel_all(struct list *streams, pthread_mutex_t *lock)
{
	struct rpc_stream *s;

	pthread_mutex_lock(lock);
	list_for_each (streams, s, link)
		rpc_stream_end(s, true, ROS2_CANCELLED, "the channel was closed");
	pthread_mutex_unlock(lock);
}

/* Under the list's lock: whether it must end now, and with what. */
static const char *must_end(struct rpc_stream *s, uint64_t now, int64_t unix_s,
                            enum ros2_status *ret)
{
	const char *words = NULL;

	pthread_mutex_lock(&s->lock);
	if (s->over || s->aborted || !s->grpc) {
		;
	} else if (s->peer.authenticated && unix_s >= s->peer.cert_not_after_unix_s) {
		words = "the client certificate has expired";
		*ret = ROS2_UNAUTHENTICATED;
	} else if (s->p.method->kind == RPC_SERVER_STREAM && !s->have_request &&
	           now >= s->request_by_ns) {
		words = "the request did not arrive in time";
		*ret = ROS2_TIMEOUT;
	}
	pthread_mutex_unlock(&s->lock);
	return words;
}

void rpc_stream_sweep(struct rpc_server *srv, uint64_t now)
{
	int64_t unix_s = (int64_t)(clock_unix_ns() / NS_PER_S);
	enum ros2_status status;
	struct rpc_stream *s;
	const char *words;

	list_for_each (&srv->streams, s, link) {
		words = must_end(s, now, unix_s, &status);
		if (words)
			rpc_stream_end(s, true, status, words);
	}
}

/* @now: cancel; otherwise after what is queued. */
void rpc_stream_end(struct rpc_stream *s, bool now, enum ros2_status status, const char *words)
{
	char text[RPC_STATUS_TEXT_MAX];

	pthread_mutex_lock(&s->lock);
	if (s->over || s->aborted || (s->closing && !now && !s->p.client)) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	if (!s->has_why) {
		s->has_why = true;
		if (status != ROS2_OK)
			ros2_err_named(&s->why, status, "%s",
			               words && *words ? words : ros2_status_text(status));
	}
	s->closing = true;
	if (now) {
		s->aborted = true;
		rpc_stream_drop_queue(s);
		snprintf(text, sizeof(text), "%s: %s", ros2_status_to_str(status),
		         words && *words ? words : ros2_status_text(status));
		if (s->grpc)
			grpc_call_cancel_with_status(s->grpc, rpc_status_to_grpc(status), text,
			                             NULL);
	} else {
		rpc_stream_pump(s);
	}
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_close(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
{
	char words[sizeof(s->why.msg)] = "";
	va_list ap;

	va_start(ap, fmt);
	if (fmt)
		vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	if (s->p.client)
		rpc_stream_end(s, true, ROS2_CANCELLED, words);
	else
		rpc_stream_end(s, false, status, words);
}

void rpc_stream_abort(struct rpc_stream *s, enum ros2_status status, const char *fmt, ...)
{
	char words[sizeof(s->why.msg)] = "";
	va_list ap;

	va_start(ap, fmt);
	if (fmt)
		vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	rpc_stream_end(s, true, status == ROS2_OK ? ROS2_CANCELLED : status, words);
}

/* ---- receiving ---- */

static void got_message(struct rpc_tag *t, bool ok);

/* Under the lock. */
static void start_read(struct rpc_stream *s)
{
	grpc_op op;

	if (s->reading || s->held || s->read_ended || s->over)
		return;
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_RECV_MESSAGE;
	op.data.recv_message.recv_message = &s->bytes;
	s->on_read.fn = got_message;
	s->reading = rpc_stream_batch(s, &op, 1, &s->on_read);
}

void rpc_stream_read_next(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	start_read(s);
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_hold(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->held = true;
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_resume(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->held = false;
	/* A message that is still with its callback is followed by a read anyway. */
	if (!s->in.msg)
		start_read(s);
	pthread_mutex_unlock(&s->lock);
}

static void open_once(struct rpc_stream *s, const ProtobufCMessage *req)
{
	if (s->opened)
		return;
	s->opened = true;
	if (s->p.ops->on_open)
		s->p.ops->on_open(s, req, s->p.user);
}

static void message_posted(void *arg)
{
	struct rpc_stream *s = arg;
	struct rpc_msg m = s->in;

	if (rpc_stream_alive(s) && !s->delivered) {
		if (!s->p.client && s->p.method->kind == RPC_SERVER_STREAM) {
			open_once(s, m.msg);
		} else {
			open_once(s, NULL);
			if (s->p.ops->on_message)
				s->p.ops->on_message(s, m.msg, s->p.user);
			if (s->p.keep_messages)
				m = (struct rpc_msg){0};
		}
	}
	rpc_msg_free(&m);
	pthread_mutex_lock(&s->lock);
	s->in = (struct rpc_msg){0};
	if (s->p.client || s->p.method->kind == RPC_BIDI)
		start_read(s);
	pthread_mutex_unlock(&s->lock);
	rpc_stream_put(s);
}

static void half_close_posted(void *arg)
{
	struct rpc_stream *s = arg;

	if (rpc_stream_alive(s) && !s->delivered) {
		if (s->p.ops->on_half_close)
			s->p.ops->on_half_close(s, s->p.user);
		else
			rpc_stream_close(s, ROS2_OK, NULL);
	}
	rpc_stream_put(s);
}

static void bad_message(struct rpc_stream *s, const struct ros2_err *err)
{
	if (s->server)
		rpc_server_count(s->server, &s->server->stats.refused_invalid);
	rpc_stream_end(s, true, err->status, err->msg);
}

static void no_more(struct rpc_stream *s)
{
	bool request_missing;

	pthread_mutex_lock(&s->lock);
	s->read_ended = true;
	request_missing = s->p.method->kind == RPC_SERVER_STREAM && !s->have_request;
	pthread_mutex_unlock(&s->lock);
	if (s->p.client)
		return;
	if (request_missing)
		rpc_stream_end(s, true, ROS2_UNSUPPORTED,
		               "a server-stream method takes one request");
	else
		rpc_stream_post(s, half_close_posted);
}

static void got_message(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_read);
	const ProtobufCMessageDescriptor *d =
		s->p.client ? s->p.method->output : s->p.method->input;
	/* Taken out first: the callback's thread may start the next read before this one returns.
	 */
	grpc_byte_buffer *bytes = TAKE_PTR(s->bytes);
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_msg m = {0};
	int rc = 0;

	if (bytes)
		rc = rpc_msg_decode(d, bytes, s->p.max_message_bytes, s->p.keep_messages, &m, &err);
	pthread_mutex_lock(&s->lock);
	s->reading = false;
	s->in = m;
	s->have_request |= bytes != NULL;
	s->read_ended |= rc != 0;
	pthread_mutex_unlock(&s->lock);
	if (rc)
		bad_message(s, &err);
	else if (m.msg)
		rpc_stream_post(s, message_posted);
	else
		no_more(s);
	if (bytes)
		grpc_byte_buffer_destroy(bytes);
	rpc_stream_batch_done(s);
}

/* ---- what users ask ---- */

const struct rpc_peer *rpc_stream_peer(const struct rpc_stream *s)
{
	return s->server ? &s->peer : NULL;
}

const struct rpc_method *rpc_stream_method(const struct rpc_stream *s)
{
	return s->p.method;
}

void rpc_stream_set_data(struct rpc_stream *s, void *data)
{
	s->data = data;
}

void *rpc_stream_data(const struct rpc_stream *s)
{
	return s->data;
}
