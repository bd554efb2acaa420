/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a stream: a queue bounded in messages and bytes, one message in gRPC's hands
 * at a time. gRPC takes the next one only as its peer's flow control allows, so a peer that stops
 * reading fills this queue and no more.
 */
#include "proto/rpc/stream_priv.h"
#include <errno.h>
#include <string.h>

static void free_out(struct out_msg *m)
{
	grpc_byte_buffer_destroy(m->bytes);
	free(m);
}

void rpc_stream_drop_queue(struct rpc_stream *s)
{
	struct out_msg *m, *next;

	list_for_each_safe (&s->queue, m, next, link) {
		list_del(&m->link);
		free_out(m);
	}
	s->queued = s->queued_bytes = 0;
}

static void start_send(struct rpc_stream *s)
{
	struct out_msg *m = list_first(&s->queue, struct out_msg, link);
	grpc_op op;

	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_SEND_MESSAGE;
	op.data.send_message.send_message = m->bytes;
	/* More is waiting: let gRPC gather before it writes. */
	op.flags = s->queued > 1 ? GRPC_WRITE_BUFFER_HINT : 0;
	if (!rpc_stream_batch(s, &op, 1, &s->on_written))
		return;
	list_del(&m->link);
	s->sending = m;
}

static void start_close(struct rpc_stream *s)
{
	grpc_op op;

	memset(&op, 0, sizeof(op));
	s->close_started = true;
	if (s->p.client) {
		op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	} else {
		op.op = GRPC_OP_SEND_STATUS_FROM_SERVER;
		s->close_words = rpc_status_message(s->why.status, s->why.msg);
		op.data.send_status_from_server.status = rpc_status_to_grpc(s->why.status);
		op.data.send_status_from_server.status_details = &s->close_words;
	}
	rpc_stream_batch(s, &op, 1, &s->on_status_sent);
}

/* Sends of one moment leave in one go; but half a queue does not wait. */
static bool waits_for_more(const struct rpc_stream *s)
{
	return (s->corks || s->more_to_tell) && !s->closing && s->queued <= s->p.queue_max / 2 &&
	       s->queued_bytes <= s->p.queue_bytes / 2;
}

void rpc_stream_pump(struct rpc_stream *s)
{
	if (s->sending || s->over || s->aborted || waits_for_more(s))
		return;
	if (!list_empty(&s->queue))
		start_send(s);
	else if (s->closing && !s->close_started)
		start_close(s);
}

static void tell_writable(void *arg)
{
	struct rpc_stream *s = arg;

	pthread_mutex_lock(&s->lock);
	s->writable_posted = false;
	pthread_mutex_unlock(&s->lock);
	if (rpc_stream_alive(s) && !s->delivered && s->p.ops->on_writable)
		s->p.ops->on_writable(s, s->p.user);
	rpc_stream_put(s);
}

/* Whether somebody who waits for the queue to drain is told now. */
static bool told_now(struct rpc_stream *s)
{
	bool half = s->want_writable && s->queued <= s->p.queue_max / 2 &&
	            s->queued_bytes <= s->p.queue_bytes / 2;
	bool low = s->want_low && s->queued <= s->low;

	if (half)
		s->want_writable = false;
	if (low)
		s->want_low = false;
	return half || low;
}

void rpc_stream_written(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_written);
	bool tell;

	pthread_mutex_lock(&s->lock);
	if (!s->aborted) {
		s->queued--;
		s->queued_bytes -= s->sending->size;
	}
	free_out(s->sending);
	s->sending = NULL;
	if (ok)
		rpc_stream_pump(s);
	else
		rpc_stream_drop_queue(s);
	tell = ok && !s->closing && told_now(s) && !s->writable_posted;
	s->writable_posted |= tell;
	pthread_mutex_unlock(&s->lock);
	if (tell)
		rpc_stream_post(s, &s->writable_post, tell_writable);
	rpc_stream_batch_done(s);
}

void rpc_stream_status_sent(struct rpc_tag *t, bool ok)
{
	rpc_stream_batch_done(container_of(t, struct rpc_stream, on_status_sent));
}

/* Under the lock. */
static int enqueue(struct rpc_stream *s, struct out_msg *m)
{
	if (s->closing || s->over || !s->grpc)
		return -ESHUTDOWN;
	if (s->queued &&
	    (s->queued >= s->p.queue_max || s->queued_bytes + m->size > s->p.queue_bytes)) {
		s->want_writable = true;
		return -EAGAIN;
	}
	list_add_tail(&s->queue, &m->link);
	s->queued++;
	s->queued_bytes += m->size;
	rpc_stream_pump(s);
	return 0;
}

int rpc_stream_send(struct rpc_stream *s, const ProtobufCMessage *msg)
{
	const ProtobufCMessageDescriptor *d =
		s->p.client ? s->p.method->input : s->p.method->output;
	struct out_msg *m;
	int rc;

	if (s->p.client && s->p.method->kind != RPC_BIDI)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	rc = rpc_msg_encode(d, msg, s->p.max_message_bytes, &m->bytes);
	if (rc) {
		free(m);
		return rc;
	}
	m->size = grpc_byte_buffer_length(m->bytes);
	pthread_mutex_lock(&s->lock);
	rc = enqueue(s, m);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		free_out(m);
	return rc;
}

void rpc_stream_cork(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	s->corks++;
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_uncork(struct rpc_stream *s)
{
	pthread_mutex_lock(&s->lock);
	if (!--s->corks)
		rpc_stream_pump(s);
	pthread_mutex_unlock(&s->lock);
}

size_t rpc_stream_queued(const struct rpc_stream *cs)
{
	struct rpc_stream *s = (struct rpc_stream *)cs;
	size_t n;

	pthread_mutex_lock(&s->lock);
	n = s->queued;
	pthread_mutex_unlock(&s->lock);
	return n;
}

bool rpc_stream_wait_low(struct rpc_stream *s, size_t low)
{
	bool wait;

	pthread_mutex_lock(&s->lock);
	wait = s->queued > low || s->closing || s->over || s->aborted;
	s->want_low = wait;
	s->low = low;
	pthread_mutex_unlock(&s->lock);
	return wait;
}

int rpc_stream_half_close(struct rpc_stream *s)
{
	int rc = 0;

	if (!s->p.client || s->p.method->kind != RPC_BIDI)
		return -EINVAL;
	pthread_mutex_lock(&s->lock);
	if (s->closing || s->over || !s->grpc) {
		rc = -ESHUTDOWN;
	} else {
		s->closing = true;
		rpc_stream_pump(s);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}
