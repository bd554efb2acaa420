/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server-stream for programs without a loop: the callbacks of a stream run on the polling thread
 * and keep what came, at most RPC_AHEAD_MAX messages and RPC_AHEAD_BYTES (or one larger message);
 * then they hold the stream until a quarter is left, so that two threads change places once for
 * many messages.
 */
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <time.h>

struct rpc_reader {
	struct rpc_stream *stream; /* referenced */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* guarded by lock */
	struct {
		ProtobufCMessage *msg; /* owned */
		size_t bytes;
	} ring[RPC_AHEAD_MAX];
	uint32_t first, n;
	size_t bytes; /* of all of them, as they were on the wire */
	bool held, ended;
	struct ros2_err why;
};

static void on_message(struct rpc_stream *s, const ProtobufCMessage *msg, void *user)
{
	size_t bytes = protobuf_c_message_get_packed_size(msg);
	struct rpc_reader *r = user;
	uint32_t at;

	pthread_mutex_lock(&r->lock);
	at = (r->first + r->n++) % RPC_AHEAD_MAX;
	r->ring[at].msg = (ProtobufCMessage *)msg;
	r->ring[at].bytes = bytes;
	r->bytes += bytes;
	if (r->n == RPC_AHEAD_MAX || r->bytes >= RPC_AHEAD_BYTES) {
		r->held = true;
		rpc_stream_hold(s);
	}
	if (r->n == 1)
		pthread_cond_broadcast(&r->cond);
	pthread_mutex_unlock(&r->lock);
}

/* Under the lock; there is one. *ret_resume: the stream has to be resumed. */
static ProtobufCMessage *take(struct rpc_reader *r, bool *ret_resume)
{
	ProtobufCMessage *msg = r->ring[r->first].msg;

	r->bytes -= r->ring[r->first].bytes;
	r->first = (r->first + 1) % RPC_AHEAD_MAX;
	r->n--;
	*ret_resume =
		r->held && r->n <= RPC_AHEAD_MAX / 4 && (r->n == 0 || r->bytes < RPC_AHEAD_BYTES);
	r->held = r->held && !*ret_resume;
	return msg;
}

/* Under the lock. */
static void drop_all(struct rpc_reader *r)
{
	bool resume;

	while (r->n)
		protobuf_c_message_free_unpacked(take(r, &resume), NULL);
}

static void on_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct rpc_reader *r = user;

	pthread_mutex_lock(&r->lock);
	r->why = *why;
	r->ended = true;
	pthread_cond_broadcast(&r->cond);
	pthread_mutex_unlock(&r->lock);
}

static const struct rpc_stream_ops reader_ops = {.on_message = on_message, .on_closed = on_closed};

int rpc_reader_open(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                    uint32_t timeout_ms, struct rpc_reader **ret, struct ros2_err *err)
{
	struct rpc_reader *r = calloc(1, sizeof(*r));
	struct rpc_stream_params p = {
		.method = m,
		.ops = &reader_ops,
		.user = r,
		.client = true,
		.keep_messages = true,
		.ahead_max = RPC_AHEAD_MAX,
		.queue_max = 1,
		.queue_bytes = c->max_message_bytes,
		.max_message_bytes = c->max_message_bytes,
	};
	pthread_condattr_t mono;
	struct rpc_stream *s;
	int rc;

	if (!r)
		return ros2_err_set(err, -ENOMEM, "no memory");
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&mono);
	pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
	pthread_cond_init(&r->cond, &mono);
	pthread_condattr_destroy(&mono);
	if (m->kind != RPC_SERVER_STREAM)
		rc = ros2_err_set(err, -EINVAL, "%s is %s, not a server-stream", m->name,
		                  rpc_kind_to_str(m->kind));
	else
		rc = rpc_stream_start_client(c, &p, req, timeout_ms, &s, err);
	if (rc) {
		pthread_cond_destroy(&r->cond);
		pthread_mutex_destroy(&r->lock);
		free(r);
		return rc;
	}
	r->stream = s;
	*ret = r;
	return 0;
}

/* Under the lock; false when nothing came within the time. */
static bool wait_for_news(struct rpc_reader *r, uint32_t wait_ms)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	while (!r->n && !r->ended && rc != ETIMEDOUT)
		rc = wait_ms == UINT32_MAX ? pthread_cond_wait(&r->cond, &r->lock)
		                           : pthread_cond_timedwait(&r->cond, &r->lock, &until);
	return r->n || r->ended;
}

int rpc_reader_next(struct rpc_reader *r, uint32_t wait_ms, ProtobufCMessage **ret_msg,
                    struct ros2_err *err)
{
	bool resume = false;
	int rc = 0;

	pthread_mutex_lock(&r->lock);
	if (!wait_for_news(r, wait_ms)) {
		rc = -EAGAIN;
	} else if (r->n) {
		*ret_msg = take(r, &resume);
	} else {
		rc = r->why.code ? r->why.code : -ENODATA;
		if (r->why.code && err)
			*err = r->why;
	}
	pthread_mutex_unlock(&r->lock);
	if (resume)
		rpc_stream_resume(r->stream);
	return rc;
}

void rpc_reader_cancel(struct rpc_reader *r)
{
	rpc_stream_abort(r->stream, ROS2_CANCELLED, "cancelled by the reader");
	pthread_mutex_lock(&r->lock);
	drop_all(r);
	pthread_mutex_unlock(&r->lock);
}

void rpc_reader_close(struct rpc_reader *r)
{
	if (!r)
		return;
	rpc_reader_cancel(r);
	pthread_mutex_lock(&r->lock);
	while (!r->ended)
		pthread_cond_wait(&r->cond, &r->lock);
	pthread_mutex_unlock(&r->lock);
	rpc_stream_unref(r->stream);
	drop_all(r);
	pthread_cond_destroy(&r->cond);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
