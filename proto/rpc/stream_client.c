/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a stream begins at a client. "Accepted" is known from the server's headers, which carry the
 * protocol version; a refusal has none.
 */
#include "proto/rpc/stream_priv.h"
#include <errno.h>
#include <string.h>

static void over(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_over);

	pthread_mutex_lock(&s->lock);
	s->over = true;
	pthread_mutex_unlock(&s->lock);
	rpc_stream_batch_done(s);
}

static void accepted_posted(void *arg)
{
	struct rpc_stream *s = arg;

	if (rpc_stream_alive(s) && !s->delivered) {
		s->opened = true;
		if (s->p.ops->on_open)
			s->p.ops->on_open(s, NULL, s->p.user);
		rpc_stream_read_next(s);
	}
	rpc_stream_put(s);
}

static void init_done(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_init);
	uint32_t version;

	if (s->first)
		grpc_byte_buffer_destroy(TAKE_PTR(s->first));
	if (ok && rpc_metadata_version(&s->init_md, &version))
		rpc_stream_post(s, &s->open_post, accepted_posted);
	else if (ok)
		rpc_stream_read_next(s);
	rpc_stream_batch_done(s);
}

static bool first_batches(struct rpc_stream *s)
{
	grpc_op ops[4], *op = ops;
	bool ok;

	memset(ops, 0, sizeof(ops));
	pthread_mutex_lock(&s->lock);
	op->op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	op->data.recv_status_on_client.trailing_metadata = &s->trail_md;
	op->data.recv_status_on_client.status = &s->status;
	op->data.recv_status_on_client.status_details = &s->status_words;
	s->on_over.fn = over;
	ok = rpc_stream_batch(s, ops, 1, &s->on_over);
	memset(ops, 0, sizeof(ops));
	op->op = GRPC_OP_SEND_INITIAL_METADATA;
	op->data.send_initial_metadata.metadata =
		rpc_channel_metadata(&op->data.send_initial_metadata.count);
	op++;
	op->op = GRPC_OP_RECV_INITIAL_METADATA;
	op->data.recv_initial_metadata.recv_initial_metadata = &s->init_md;
	op++;
	if (s->first) {
		op->op = GRPC_OP_SEND_MESSAGE;
		op->data.send_message.send_message = s->first;
		op++;
		op->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
		op++;
		s->closing = s->close_started = true;
	}
	s->on_init.fn = init_done;
	ok = ok && rpc_stream_batch(s, ops, (size_t)(op - ops), &s->on_init);
	pthread_mutex_unlock(&s->lock);
	return ok;
}

/* Links the stream to its channel and gives it a grpc_call. */
static int attach(struct rpc_channel *c, struct rpc_stream *s, uint32_t timeout_ms)
{
	s->grpc = rpc_channel_call(c, s->p.method, timeout_ms);
	if (!s->grpc)
		return -ESHUTDOWN;
	s->channel = c;
	rpc_channel_ref(c);
	pthread_mutex_lock(&c->lock);
	list_add_tail(&c->streams, &s->link);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int rpc_stream_start_client(struct rpc_channel *c, const struct rpc_stream_params *p,
                            const ProtobufCMessage *req, uint32_t timeout_ms,
                            struct rpc_stream **ret, struct ros2_err *err)
{
	grpc_byte_buffer *first = NULL;
	struct rpc_stream *s;
	int rc = 0;

	if (p->method->kind == RPC_UNARY || !req == (p->method->kind == RPC_SERVER_STREAM))
		return ros2_err_set(err, -EINVAL, "%s is %s", p->method->name,
		                    rpc_kind_to_str(p->method->kind));
	if (req)
		rc = rpc_msg_encode(p->method->input, req, p->max_message_bytes, &first);
	if (rc)
		return ros2_err_set(err, rc, "%s: the request %s", p->method->name,
		                    rc == -EMSGSIZE ? "is longer than a message may be"
		                                    : "is of another type");
	s = rpc_stream_alloc(p);
	rc = s ? attach(c, s, timeout_ms) : -ENOMEM;
	if (rc) {
		if (first)
			grpc_byte_buffer_destroy(first);
		rpc_stream_unref(s);
		return ros2_err_set(err, rc, "%s: the channel is closed", p->method->name);
	}
	s->first = first;
	/* The caller's: without a loop the stream may be over before this returns. */
	*ret = rpc_stream_ref(s);
	first_batches(s);
	return 0;
}

int rpc_stream_open(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                    const struct rpc_stream_opts *o, struct rpc_stream **ret, struct ros2_err *err)
{
	struct rpc_stream_params p = {
		.method = m,
		.ops = o->ops,
		.user = o->user,
		.loop = c->loop,
		.client = true,
		.ahead_max = RPC_AHEAD_MAX,
		.queue_max = o->queue_max ? o->queue_max : 256,
		.queue_bytes = 4 * c->max_message_bytes,
		.max_message_bytes = c->max_message_bytes,
	};
	int rc;

	if (!c->loop || !o->ops || !o->ops->on_closed)
		return ros2_err_set(err, -EINVAL, "%s: a stream needs a loop and on_closed",
		                    m->name);
	rc = rpc_stream_start_client(c, &p, req, o->timeout_ms, ret, err);
	if (!rc)
		rpc_stream_unref(*ret); /* the loop thread is here, so on_closed is still to come */
	return rc;
}
