/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of a stream. The polling thread reads ahead: what has arrived is decoded and
 * put into the inbox, and the loop is woken once for all of it. The inbox is bounded in messages
 * and in memory; beyond that nothing is read, so gRPC's flow control pushes back on the sender.
 * Order on the callback thread: messages, the peer's half-close, the end.
 */
#include "proto/rpc/stream_priv.h"
#include <errno.h>
#include <string.h>

static void got_message(struct rpc_tag *t, bool ok);

/* ---- the inbox (under the lock) ---- */

static void inbox_put(struct rpc_stream *s, struct in_msg *m)
{
	list_add_tail(&s->inbox, &m->link);
	s->inbox_n++;
	s->inbox_cost += m->m.cost;
}

static struct in_msg *inbox_take(struct rpc_stream *s)
{
	struct in_msg *m = list_first(&s->inbox, struct in_msg, link);

	list_del(&m->link);
	s->inbox_n--;
	s->inbox_cost -= m->m.cost;
	return m;
}

void rpc_stream_drop_inbox(struct rpc_stream *s)
{
	struct in_msg *m;

	while (!list_empty(&s->inbox)) {
		m = inbox_take(s);
		rpc_msg_free(&m->m);
		free(m);
	}
}

static bool reads_on(const struct rpc_stream *s)
{
	return s->p.client || s->p.method->kind == RPC_BIDI;
}

static void start_read(struct rpc_stream *s)
{
	grpc_op op;

	if (s->reading || s->held || s->read_ended || s->over || s->inbox_n >= s->p.ahead_max ||
	    s->inbox_cost >= RPC_AHEAD_BYTES)
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

/* ---- handing on (callback thread) ---- */

static void open_once(struct rpc_stream *s, const ProtobufCMessage *req)
{
	if (s->opened)
		return;
	s->opened = true;
	if (s->p.ops->on_open)
		s->p.ops->on_open(s, req, s->p.user);
}

static void tell_message(struct rpc_stream *s, struct in_msg *m)
{
	if (!s->p.client && s->p.method->kind == RPC_SERVER_STREAM) {
		open_once(s, m->m.msg);
	} else {
		open_once(s, NULL);
		if (s->p.ops->on_message)
			s->p.ops->on_message(s, m->m.msg, s->p.user);
		if (s->p.keep_messages)
			m->m = (struct rpc_msg){0};
	}
	rpc_msg_free(&m->m);
	free(m);
}

static void tell_half_close(struct rpc_stream *s)
{
	if (s->p.ops->on_half_close)
		s->p.ops->on_half_close(s, s->p.user);
	else
		rpc_stream_close(s, ROS2_OK, NULL);
}

enum news { NEWS_NONE, NEWS_MESSAGE, NEWS_HALF_CLOSE, NEWS_CLOSED };

/* Under the lock: what the callback thread is told next. At a client that holds, the end waits
 * behind the messages that came before it; at a server it does not: nobody would be left to
 * answer. */
static enum news next_news(struct rpc_stream *s)
{
	if (s->unheard || (s->ended && s->held && !s->p.client))
		rpc_stream_drop_inbox(s);
	if (!list_empty(&s->inbox))
		return s->held ? NEWS_NONE : NEWS_MESSAGE;
	if (s->ended)
		return NEWS_CLOSED;
	if (s->half_closed && !s->half_close_told && !s->held) {
		s->half_close_told = true;
		return NEWS_HALF_CLOSE;
	}
	return NEWS_NONE;
}

/* False when there is nothing more for now. */
static bool tell_next(struct rpc_stream *s)
{
	struct in_msg *m = NULL;
	enum news news;

	pthread_mutex_lock(&s->lock);
	/* Not after every message: reading comes in runs, too. */
	if (reads_on(s) && s->inbox_n <= s->p.ahead_max / 2)
		start_read(s);
	news = rpc_stream_alive(s) && !s->delivered ? next_news(s) : NEWS_NONE;
	if (news == NEWS_MESSAGE)
		m = inbox_take(s);
	else if (news == NEWS_NONE)
		s->draining = false;
	s->more_to_tell = news == NEWS_MESSAGE && !list_empty(&s->inbox);
	if (!s->more_to_tell)
		rpc_stream_pump(s);
	pthread_mutex_unlock(&s->lock);
	if (news == NEWS_MESSAGE)
		tell_message(s, m);
	else if (news == NEWS_HALF_CLOSE)
		tell_half_close(s);
	else if (news == NEWS_CLOSED)
		rpc_stream_deliver_closed(s);
	return news != NEWS_NONE;
}

/* One stream's run is bounded: the loop has others. */
static void drain(void *arg)
{
	struct rpc_stream *s = arg;

	for (unsigned n = 0; n < RPC_AHEAD_MAX; n++) {
		if (!tell_next(s)) {
			rpc_stream_put(s);
			return;
		}
	}
	rpc_stream_post(s, &s->drain_post, drain);
	rpc_stream_put(s);
}

static void drain_now(struct rpc_later *later)
{
	struct rpc_stream *s = container_of(later, struct rpc_stream, later);

	rpc_stream_post(s, &s->drain_post, drain);
	rpc_stream_put(s);
}

void rpc_stream_drain_later(struct rpc_stream *s)
{
	if (s->draining)
		return;
	s->draining = true;
	rpc_stream_ref(s);
	s->later.fn = drain_now;
	rpc_poller_later(s->server ? &s->server->poller : &s->channel->poller, &s->later);
}

void rpc_stream_hold(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->held = true;
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_unhear(struct rpc_stream *s)
{
	bool post;

	pthread_mutex_lock(&s->lock);
	s->unheard = true;
	/* The end may be waiting behind what is not to be heard. */
	post = s->ended && !s->draining && !list_empty(&s->inbox);
	s->draining |= post;
	pthread_mutex_unlock(&s->lock);
	if (post)
		rpc_stream_post(s, &s->drain_post, drain);
}

void rpc_stream_resume(struct rpc_stream *s)
{
	bool post;

	pthread_mutex_lock(&s->lock);
	s->held = false;
	start_read(s);
	post = !s->draining && (!list_empty(&s->inbox) || s->half_closed);
	s->draining |= post;
	pthread_mutex_unlock(&s->lock);
	if (post)
		rpc_stream_post(s, &s->drain_post, drain);
}

/* ---- reading (polling thread) ---- */

static void bad_message(struct rpc_stream *s, const struct ros2_err *err)
{
	if (s->server)
		rpc_server_refused(s->server, RPC_REFUSED_MESSAGE, &s->peer, s->p.method, err);
	rpc_stream_end(s, true, err->status, err->msg);
}

static void no_more(struct rpc_stream *s)
{
	bool request_missing;

	pthread_mutex_lock(&s->lock);
	s->read_ended = true;
	request_missing = s->p.method->kind == RPC_SERVER_STREAM && !s->have_request;
	if (!s->p.client && !request_missing) {
		s->half_closed = true;
		rpc_stream_drain_later(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (!s->p.client && request_missing)
		rpc_stream_end(s, true, ROS2_UNSUPPORTED,
		               "a server-stream method takes one request");
}

static int decode(struct rpc_stream *s, grpc_byte_buffer *bytes, struct in_msg **ret,
                  struct ros2_err *err)
{
	const ProtobufCMessageDescriptor *d =
		s->p.client ? s->p.method->output : s->p.method->input;
	struct in_msg *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return ros2_err_named(err, ROS2_BUSY, "no memory for a message");
	rc = rpc_msg_decode(d, bytes, s->p.max_message_bytes, s->p.keep_messages, &m->m, err);
	if (rc)
		free(m);
	else
		*ret = m;
	return rc;
}

static void got_message(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_read);
	grpc_byte_buffer *bytes = TAKE_PTR(s->bytes);
	struct ros2_err err = ROS2_ERR_INIT;
	struct in_msg *m = NULL;
	int rc = bytes ? decode(s, bytes, &m, &err) : 0;

	pthread_mutex_lock(&s->lock);
	s->reading = false;
	s->have_request |= bytes != NULL;
	s->read_ended |= rc != 0;
	if (m) {
		inbox_put(s, m);
		if (reads_on(s))
			start_read(s);
		rpc_stream_drain_later(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (rc)
		bad_message(s, &err);
	else if (!m)
		no_more(s);
	if (bytes) {
		if (s->conn)
			rpc_conns_message(s->server->conns, s->conn);
		grpc_byte_buffer_destroy(bytes);
	}
	rpc_stream_batch_done(s);
}
