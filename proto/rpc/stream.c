/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: lifetime and the end. See stream_priv.h for the invariants; stream_recv.c has the
 * receiving half, stream_send.c the sending half, stream_server.c and stream_client.c how one
 * begins.
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
	list_init(&s->inbox);
	list_init(&s->later.link);
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
		rpc_server_ended(s->server, s->place, s->conn, &s->link);
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
	rpc_stream_drop_inbox(s);
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

void rpc_stream_post(struct rpc_stream *s, struct loop_post *p, loop_fn fn)
{
	rpc_stream_ref(s);
	if (s->p.loop)
		loop_post_urgent(s->p.loop, p, fn, s);
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

void rpc_stream_deliver_closed(struct rpc_stream *s)
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

void rpc_stream_batch_done(struct rpc_stream *s)
{
	bool back = false;

	pthread_mutex_lock(&s->lock);
	s->batches--;
	if (s->over && !s->batches && s->grpc) {
		grpc_call_unref(s->grpc);
		s->grpc = NULL;
		s->ended = back = true;
		rpc_stream_drain_later(s);
	}
	pthread_mutex_unlock(&s->lock);
	if (back) {
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
		rpc_stream_deliver_closed(s);
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
	const char *words = NULL; /* static, or those of why: set once */

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
	} else if (s->closed_by_ns && now >= s->closed_by_ns) {
		words = s->why.msg;
		*ret = s->why.status;
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
	/* Who reads at its own pace may be behind a good end for as long as it likes. */
	if (s->server && s->why.status != ROS2_OK)
		s->closed_by_ns = clock_add_ns(clock_boottime_ns(),
		                               s->server->lim.call_deadline_ms * NS_PER_MS);
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

/* The user's own end: what was read ahead is of no interest any more. */
static void end_unheard(struct rpc_stream *s, enum ros2_status status, const char *words)
{
	rpc_stream_unhear(s);
	rpc_stream_end(s, true, status, words);
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
		end_unheard(s, ROS2_CANCELLED, words);
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
	end_unheard(s, status == ROS2_OK ? ROS2_CANCELLED : status, words);
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
