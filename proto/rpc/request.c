/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unary call, client side: one batch, one completion, one callback. The one reference
 * passes from the batch to the post.
 */
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <string.h>

struct rpc_request {
	struct rpc_tag tag;
	/* immutable */
	struct rpc_channel *channel;
	const struct rpc_method *method;
	rpc_reply_fn fn;
	void *arg;
	bool on_poller;
	struct list link; /* channel->requests, channel->lock */
	atomic_int refs;

	/* written by gRPC before the tag */
	grpc_byte_buffer *out, *in;
	grpc_metadata_array init_md, trail_md;
	grpc_status_code status;
	grpc_slice words;

	/* polling thread, then callback thread */
	struct rpc_msg reply;
	struct ros2_err err;
	bool delivered;
	struct loop_post post; /* once */

	/* guarded by channel->lock */
	grpc_call *grpc;
};

static void request_unref(struct rpc_request *r)
{
	struct rpc_channel *c = r->channel;

	if (atomic_fetch_sub(&r->refs, 1) != 1)
		return;
	pthread_mutex_lock(&c->lock);
	list_del(&r->link);
	c->n_requests--;
	pthread_mutex_unlock(&c->lock);
	rpc_msg_free(&r->reply);
	free(r);
	rpc_channel_unref(c);
}

static void deliver(struct rpc_request *r)
{
	if (r->delivered)
		return;
	r->delivered = true;
	r->fn(r->arg, r->err.code ? NULL : r->reply.msg, &r->err);
	if (r->on_poller)
		r->reply = (struct rpc_msg){0};
}

static void deliver_posted(void *arg)
{
	struct rpc_request *r = arg;

	if (!r->channel->gone)
		deliver(r);
	request_unref(r);
}

static void read_result(struct rpc_request *r)
{
	int rc = rpc_status_from_grpc(r->status, r->words, &r->err);

	if (!rc && !r->in)
		ros2_err_named(&r->err, ROS2_PROTOCOL, "%s: the server sent no answer",
		               r->method->name);
	else if (!rc)
		rpc_msg_decode(r->method->output, r->in, r->channel->max_message_bytes,
		               r->on_poller, &r->reply, &r->err);
	else
		rpc_tls_client_explain(r->channel->tls, &r->err);
}

static void completed(struct rpc_tag *t, bool ok)
{
	struct rpc_request *r = container_of(t, struct rpc_request, tag);
	struct rpc_channel *c = r->channel;
	grpc_call *call;

	read_result(r);
	grpc_byte_buffer_destroy(r->out);
	if (r->in)
		grpc_byte_buffer_destroy(r->in);
	grpc_metadata_array_destroy(&r->init_md);
	grpc_metadata_array_destroy(&r->trail_md);
	grpc_slice_unref(r->words);
	pthread_mutex_lock(&c->lock);
	call = TAKE_PTR(r->grpc);
	pthread_mutex_unlock(&c->lock);
	grpc_call_unref(call);
	/* While this request still counts, the channel (and its loop) is there. */
	rpc_channel_ref(c);
	if (r->on_poller) {
		deliver(r);
		request_unref(r);
	} else {
		loop_post_urgent(c->loop, &r->post, deliver_posted, r);
	}
	rpc_channel_grpc_returned(c);
	rpc_channel_unref(c);
}

static bool start(struct rpc_request *r)
{
	grpc_op ops[6];

	memset(ops, 0, sizeof(ops));
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[0].data.send_initial_metadata.metadata =
		rpc_channel_metadata(&ops[0].data.send_initial_metadata.count);
	ops[1].op = GRPC_OP_SEND_MESSAGE;
	ops[1].data.send_message.send_message = r->out;
	ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
	ops[3].data.recv_initial_metadata.recv_initial_metadata = &r->init_md;
	ops[4].op = GRPC_OP_RECV_MESSAGE;
	ops[4].data.recv_message.recv_message = &r->in;
	ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
	ops[5].data.recv_status_on_client.trailing_metadata = &r->trail_md;
	ops[5].data.recv_status_on_client.status = &r->status;
	ops[5].data.recv_status_on_client.status_details = &r->words;
	return rpc_batch(r->grpc, ops, ARRAY_SIZE(ops), &r->tag);
}

/* Counts the request and makes its grpc_call. */
static int enlist(struct rpc_channel *c, struct rpc_request *r, uint32_t timeout_ms)
{
	grpc_call *call = rpc_channel_call(c, r->method, timeout_ms);
	int rc = 0;

	if (!call)
		return -ESHUTDOWN;
	pthread_mutex_lock(&c->lock);
	if (c->n_requests >= RPC_REQUESTS_MAX) {
		rc = -EBUSY;
	} else {
		c->n_requests++;
		list_add_tail(&c->requests, &r->link);
		r->grpc = call;
		rpc_channel_ref(c);
	}
	pthread_mutex_unlock(&c->lock);
	if (rc) {
		grpc_call_unref(call);
		rpc_channel_grpc_returned(c);
	}
	return rc;
}

static struct rpc_request *make(struct rpc_channel *c, const struct rpc_method *m, bool on_poller,
                                rpc_reply_fn fn, void *arg)
{
	struct rpc_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	atomic_init(&r->refs, 1);
	r->tag.fn = completed;
	r->channel = c;
	r->method = m;
	r->fn = fn;
	r->arg = arg;
	r->on_poller = on_poller;
	r->words = grpc_empty_slice();
	grpc_metadata_array_init(&r->init_md);
	grpc_metadata_array_init(&r->trail_md);
	return r;
}

int rpc_request_start(struct rpc_channel *c, const struct rpc_method *m,
                      const ProtobufCMessage *req, uint32_t timeout_ms, bool on_poller,
                      rpc_reply_fn fn, void *arg, struct rpc_request **ret, struct ros2_err *err)
{
	RPC_BLOCKS_SIGNALS;
	struct rpc_request *r;
	grpc_byte_buffer *out;
	int rc;

	if (m->kind != RPC_UNARY || (!c->loop && !on_poller))
		return ros2_err_set(err, -EINVAL, "%s is %s, or the channel has no loop", m->name,
		                    rpc_kind_to_str(m->kind));
	rc = rpc_msg_encode(m->input, req, c->max_message_bytes, &out);
	if (rc)
		return ros2_err_set(err, rc, "%s: %s", m->name,
		                    rc == -EMSGSIZE ? "the request is longer than a message may be"
		                    : rc == -ENOMEM ? "no memory for a call"
		                                    : "the request is of another type");
	r = make(c, m, on_poller, fn, arg);
	rc = r ? enlist(c, r, timeout_ms) : -ENOMEM;
	if (rc) {
		grpc_byte_buffer_destroy(out);
		free(r);
		return ros2_err_set(err, rc, "%s: %s", m->name,
		                    rc == -EBUSY    ? "too many calls in flight on this channel"
		                    : rc == -ENOMEM ? "no memory for a call"
		                                    : "the channel is closed");
	}
	r->out = out;
	if (ret)
		*ret = r;
	start(r);
	return 0;
}

int rpc_unary(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
              uint32_t timeout_ms, rpc_reply_fn fn, void *arg, struct rpc_request **ret_req,
              struct ros2_err *err)
{
	return rpc_request_start(c, m, req, timeout_ms, false, fn, arg, ret_req, err);
}

/* ---- cancelling ---- */

/* Under channel->lock. */
static void cancel(struct rpc_request *r)
{
	if (r->grpc)
		grpc_call_cancel_with_status(r->grpc, GRPC_STATUS_CANCELLED,
		                             "CANCELLED: by the caller", NULL);
}

void rpc_request_cancel(struct rpc_request *r)
{
	pthread_mutex_lock(&r->channel->lock);
	cancel(r);
	pthread_mutex_unlock(&r->channel->lock);
}

void rpc_request_cancel_all(struct rpc_channel *c)
{
	struct rpc_request *r;

	pthread_mutex_lock(&c->lock);
	list_for_each (&c->requests, r, link)
		cancel(r);
	pthread_mutex_unlock(&c->lock);
}

/* Only the loop thread is left: it runs this, or has ended. */
void rpc_request_abandon_all(struct rpc_channel *c)
{
	struct rpc_request *r, *found;

	do {
		found = NULL;
		pthread_mutex_lock(&c->lock);
		list_for_each (&c->requests, r, link)
			if (!r->delivered && !found)
				found = r;
		pthread_mutex_unlock(&c->lock);
		if (found) {
			ros2_err_named(&found->err, ROS2_CANCELLED, "the channel was closed");
			deliver(found);
		}
	} while (found);
}

/* ---- blocking ---- */

struct sync_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	ProtobufCMessage *reply;
	struct ros2_err err;
};

static void sync_done(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct sync_wait *w = arg;

	pthread_mutex_lock(&w->lock);
	w->reply = (ProtobufCMessage *)reply;
	w->err = *err;
	w->done = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

int rpc_unary_sync(struct rpc_channel *c, const struct rpc_method *m, const ProtobufCMessage *req,
                   uint32_t timeout_ms, ProtobufCMessage **ret_reply, struct ros2_err *err)
{
	struct sync_wait w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	int rc;

	rc = rpc_request_start(c, m, req, timeout_ms, true, sync_done, &w, NULL, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.cond);
	pthread_mutex_destroy(&w.lock);
	if (w.err.code) {
		if (err)
			*err = w.err;
		return w.err.code;
	}
	*ret_reply = w.reply;
	return 0;
}
