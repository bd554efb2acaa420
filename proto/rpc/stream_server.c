/* SPDX-License-Identifier: Apache-2.0 */
/* How a stream begins at a server: headers are sent at once, so the client knows that it was
 * accepted. */
#include "common/clock.h"
#include "proto/rpc/stream_priv.h"
#include <string.h>

static void over(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = container_of(t, struct rpc_stream, on_over);
	bool reset;

	pthread_mutex_lock(&s->lock);
	s->over = true;
	reset = s->was_cancelled && !s->has_why;
	/* A good end that we asked for but that did not get through is not a good end. */
	if (s->was_cancelled && s->has_why && !s->why.code)
		s->has_why = false;
	pthread_mutex_unlock(&s->lock);
	if (reset)
		rpc_conns_futile(s->server->conns, s->conn, &s->peer);
	rpc_stream_batch_done(s);
}

static void init_sent(struct rpc_tag *t, bool ok)
{
	rpc_stream_batch_done(container_of(t, struct rpc_stream, on_init));
}

static void open_posted(void *arg)
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

static void first_batches(struct rpc_stream *s)
{
	grpc_op op;

	pthread_mutex_lock(&s->lock);
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	op.data.recv_close_on_server.cancelled = &s->was_cancelled;
	s->on_over.fn = over;
	rpc_stream_batch(s, &op, 1, &s->on_over);
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_SEND_INITIAL_METADATA;
	op.data.send_initial_metadata.metadata =
		rpc_channel_metadata(&op.data.send_initial_metadata.count);
	s->on_init.fn = init_sent;
	rpc_stream_batch(s, &op, 1, &s->on_init);
	pthread_mutex_unlock(&s->lock);
}

void rpc_stream_begin(struct rpc_server *srv, const struct rpc_incoming *in)
{
	const struct rpc_handler *row = &in->route->row;
	struct rpc_stream_params p = {
		.method = row->method,
		.ops = row->stream,
		.user = row->user,
		.loop = srv->loop,
		.ahead_max = RPC_AHEAD_MAX,
		.queue_max = srv->lim.stream_queue_max,
		.queue_bytes = srv->lim.stream_queue_bytes,
		.max_message_bytes = srv->lim.max_message_bytes,
		.deadline_ns = in->deadline_ns,
	};
	struct rpc_stream *s = rpc_stream_alloc(&p);

	if (!s) {
		rpc_server_no_memory(srv, in);
		return;
	}
	s->server = srv;
	s->peer = in->peer;
	s->place = in->place;
	s->conn = in->conn;
	s->judged = in->peer.trust_generation;
	s->grpc = in->grpc;
	s->request_by_ns =
		clock_add_ns(clock_boottime_ns(), srv->lim.request_deadline_ms * NS_PER_MS);
	rpc_server_ref(srv);
	rpc_server_grpc_taken(srv);
	pthread_mutex_lock(&srv->lock);
	list_add_tail(&srv->streams, &s->link);
	pthread_mutex_unlock(&srv->lock);
	first_batches(s);
	if (row->method->kind == RPC_BIDI)
		rpc_stream_post(s, &s->open_post, open_posted);
	else
		rpc_stream_read_next(s);
}
