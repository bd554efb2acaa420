/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unary call, server side.
 *
 *   begun -> request read -> posted to the loop -> handler -> answered (any thread)
 *
 * Two lives: the grpc_call, given back as soon as nothing in gRPC needs it (the server's end must
 * not wait for a handler), and this struct, which the handler holds until it has answered. refs:
 * one for the handler, one per batch, one per post.
 */
#include "common/clock.h"
#include "proto/rpc/rpc_priv.h"
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct rpc_call {
	/* immutable */
	struct rpc_server *server;
	const struct rpc_route *route;
	struct rpc_peer peer;
	struct quota_entry *place;
	struct rpc_conn *conn;
	uint64_t deadline_ns, request_by_ns;
	struct list link; /* server->calls, server->lock */
	atomic_int refs;

	struct rpc_tag on_request, on_close, on_sent;
	/* polling thread, then loop thread by post */
	grpc_byte_buffer *bytes;
	struct rpc_msg req;
	int was_cancelled; /* written by gRPC before on_close */

	pthread_mutex_t lock;
	/* guarded by lock */
	grpc_call *grpc;  /* NULL once given back */
	unsigned batches; /* in flight */
	bool have_request, answered, dead, expired;
	uint64_t taken_by_ns; /* answered: by then the answer must have left */
	bool no_request;      /* its caller took it back, or sent none */
	bool handed_over;     /* the handler has run */
	loop_fn cancel_fn;
	void *cancel_arg;
	bool cancel_posted;
	struct loop_post cancel_post;
	/* the answer, while it is being sent */
	grpc_byte_buffer *reply;
	grpc_slice words;
	struct ros2_err fail;
};

static void call_unref(struct rpc_call *c)
{
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	rpc_msg_free(&c->req);
	rpc_server_ended(c->server, c->place, c->conn, &c->link);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Under the lock: gives gRPC's part back when it is over. True: the caller tells the server after
 * unlocking. */
static bool give_back(struct rpc_call *c)
{
	if (!c->grpc || c->batches || !c->dead)
		return false;
	grpc_call_unref(c->grpc);
	c->grpc = NULL;
	return true;
}

static void batch_done(struct rpc_call *c)
{
	bool back;

	pthread_mutex_lock(&c->lock);
	c->batches--;
	back = give_back(c);
	pthread_mutex_unlock(&c->lock);
	if (back)
		rpc_server_grpc_returned(c->server);
	call_unref(c);
}

/* Under the lock. */
static bool start(struct rpc_call *c, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
	if (!rpc_batch(c->grpc, ops, n, tag))
		return false;
	c->batches++;
	atomic_fetch_add(&c->refs, 1);
	return true;
}

/* ---- answering ---- */

static void sent(struct rpc_tag *t, bool ok)
{
	struct rpc_call *c = container_of(t, struct rpc_call, on_sent);

	if (c->reply)
		grpc_byte_buffer_destroy(c->reply);
	c->reply = NULL;
	grpc_slice_unref(c->words);
	batch_done(c);
}

/* Takes @reply over. Ends the handler's reference. */
static int answer(struct rpc_call *c, grpc_byte_buffer *reply, enum ros2_status status,
                  const char *words)
{
	grpc_op ops[3];
	size_t n = 0;
	int rc = 0;

	memset(ops, 0, sizeof(ops));
	pthread_mutex_lock(&c->lock);
	assert(!c->answered);
	c->answered = true;
	c->taken_by_ns =
		clock_add_ns(clock_boottime_ns(), c->server->lim.call_deadline_ms * NS_PER_MS);
	if (c->dead) {
		rc = -ECANCELED;
		if (reply)
			grpc_byte_buffer_destroy(reply);
	} else {
		c->reply = reply;
		c->words = rpc_status_message(status, words);
		ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
		if (reply) {
			ops[n].op = GRPC_OP_SEND_MESSAGE;
			ops[n++].data.send_message.send_message = reply;
		}
		ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
		ops[n].data.send_status_from_server.status = rpc_status_to_grpc(status);
		ops[n++].data.send_status_from_server.status_details = &c->words;
		if (!start(c, ops, n, &c->on_sent))
			rc = -EINVAL;
	}
	pthread_mutex_unlock(&c->lock);
	call_unref(c);
	return rc;
}

int rpc_call_reply(struct rpc_call *c, const ProtobufCMessage *reply)
{
	grpc_byte_buffer *bytes = NULL;
	int rc = rpc_msg_encode(c->route->row.method->output, reply,
	                        c->server->lim.max_message_bytes, &bytes);

	if (rc) {
		answer(c, NULL, ROS2_INTERNAL,
		       rc == -EMSGSIZE ? "the answer is longer than a message may be"
		                       : "the handler answered with another type");
		return rc;
	}
	return answer(c, bytes, ROS2_OK, NULL);
}

void rpc_call_fail(struct rpc_call *c, enum ros2_status status, const char *fmt, ...)
{
	char words[sizeof(((struct ros2_err *)0)->msg)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(words, sizeof(words), fmt, ap);
	va_end(ap);
	answer(c, NULL, status == ROS2_OK ? ROS2_INTERNAL : status, words);
}

void rpc_call_fail_err(struct rpc_call *c, const struct ros2_err *err)
{
	enum ros2_status s = err->status;

	if (s == ROS2_OK)
		s = err->code ? ros2_status_from_errno(err->code) : ROS2_INTERNAL;
	answer(c, NULL, s, err->msg);
}

/* ---- the request ---- */

static void dispatch(void *arg)
{
	struct rpc_call *c = arg;
	bool dead;

	pthread_mutex_lock(&c->lock);
	dead = c->dead || c->server->gone;
	c->handed_over = !dead;
	pthread_mutex_unlock(&c->lock);
	if (dead)
		rpc_call_fail(c, ROS2_CANCELLED, "the caller is gone");
	else
		c->route->row.unary(c, c->req.msg, c->route->row.user);
	/* The handler may have answered: only this post's reference is left to stand on. */
	rpc_msg_free(&c->req);
	call_unref(c);
}

static void got_request(struct rpc_tag *t, bool ok)
{
	struct rpc_call *c = container_of(t, struct rpc_call, on_request);
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	pthread_mutex_lock(&c->lock);
	c->have_request = true;
	c->no_request = !ok || !c->bytes;
	pthread_mutex_unlock(&c->lock);
	if (c->no_request)
		rc = ros2_err_named(&err, ROS2_UNSUPPORTED, "%s is unary: it takes one request",
		                    c->route->row.method->name);
	else
		rc = rpc_msg_decode(c->route->row.method->input, c->bytes,
		                    c->server->lim.max_message_bytes, false, &c->req, &err);
	if (c->bytes) {
		rpc_conns_message(c->server->conns, c->conn);
		grpc_byte_buffer_destroy(c->bytes);
	}
	c->bytes = NULL;
	if (rc) {
		rpc_server_refused(c->server, RPC_REFUSED_MESSAGE, &c->peer, c->route->row.method,
		                   &err);
		rpc_call_fail_err(c, &err);
	} else {
		atomic_fetch_add(&c->refs, 1);
		rc = loop_post(c->server->loop, dispatch, c);
		if (rc) {
			atomic_fetch_sub(&c->refs, 1);
			rpc_call_fail(c, rc == -ESHUTDOWN ? ROS2_UNAVAILABLE : ROS2_BUSY,
			              rc == -ESHUTDOWN ? "the server is stopping"
			                               : "too much is waiting: try again later");
		}
	}
	batch_done(c);
}

/* ---- the end, and cancellation ---- */

static void run_cancel(struct rpc_call *c)
{
	loop_fn fn;

	pthread_mutex_lock(&c->lock);
	fn = c->answered ? NULL : c->cancel_fn;
	c->cancel_fn = NULL;
	pthread_mutex_unlock(&c->lock);
	if (fn)
		fn(c->cancel_arg);
}

static void cancel_posted(void *arg)
{
	struct rpc_call *c = arg;

	pthread_mutex_lock(&c->lock);
	c->cancel_posted = false;
	pthread_mutex_unlock(&c->lock);
	if (!c->server->gone)
		run_cancel(c);
	call_unref(c);
}

/* Under the lock. */
static void post_cancel(struct rpc_call *c)
{
	if (!c->cancel_fn || c->answered || c->cancel_posted)
		return;
	atomic_fetch_add(&c->refs, 1);
	c->cancel_posted = true;
	loop_post_urgent(c->server->loop, &c->cancel_post, cancel_posted, c);
}

static void closed(struct rpc_tag *t, bool ok)
{
	struct rpc_call *c = container_of(t, struct rpc_call, on_close);
	bool reset;

	pthread_mutex_lock(&c->lock);
	c->dead = true;
	reset = c->was_cancelled && (!c->answered || c->no_request) && !c->expired;
	post_cancel(c);
	pthread_mutex_unlock(&c->lock);
	if (reset)
		rpc_conns_futile(c->server->conns, c->conn, &c->peer);
	batch_done(c);
}

void rpc_call_on_cancel(struct rpc_call *c, loop_fn fn, void *arg)
{
	pthread_mutex_lock(&c->lock);
	c->cancel_fn = fn;
	c->cancel_arg = arg;
	if (c->dead)
		post_cancel(c);
	pthread_mutex_unlock(&c->lock);
}

bool rpc_call_is_cancelled(const struct rpc_call *cc)
{
	struct rpc_call *c = (struct rpc_call *)cc;
	bool dead;

	pthread_mutex_lock(&c->lock);
	dead = c->dead;
	pthread_mutex_unlock(&c->lock);
	return dead;
}

/* Under the lock. */
static void expire(struct rpc_call *c, const char *words)
{
	c->expired = true;
	grpc_call_cancel_with_status(c->grpc, GRPC_STATUS_DEADLINE_EXCEEDED, words, NULL);
}

void rpc_call_sweep(struct rpc_server *s, uint64_t now)
{
	struct rpc_call *c;

	list_for_each (&s->calls, c, link) {
		pthread_mutex_lock(&c->lock);
		if (!c->grpc || c->expired || c->dead)
			;
		else if (now >= c->deadline_ns && !c->answered)
			expire(c, "TIMEOUT: the server's limit for a call is reached");
		else if (c->answered && now >= c->taken_by_ns)
			expire(c, "TIMEOUT: the answer was not taken in time");
		else if (now >= c->request_by_ns && !c->have_request)
			expire(c, "TIMEOUT: the request did not arrive in time");
		pthread_mutex_unlock(&c->lock);
	}
}

/* Calls without a reference are on their way out of the list. */
static bool try_ref(struct rpc_call *c)
{
	int refs = atomic_load(&c->refs);

	while (refs)
		if (atomic_compare_exchange_weak(&c->refs, &refs, refs + 1))
			return true;
	return false;
}

void rpc_call_abandon_all(struct rpc_server *s)
{
	struct rpc_call *c, *found;

	do {
		found = NULL;
		pthread_mutex_lock(&s->lock);
		list_for_each (&s->calls, c, link) {
			pthread_mutex_lock(&c->lock);
			if (c->cancel_fn && !c->answered && !found && try_ref(c))
				found = c;
			pthread_mutex_unlock(&c->lock);
		}
		pthread_mutex_unlock(&s->lock);
		if (found) {
			run_cancel(found);
			call_unref(found);
		}
	} while (found);
}

/* ---- begin ---- */

static void first_batches(struct rpc_call *c)
{
	grpc_op op;

	pthread_mutex_lock(&c->lock);
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
	op.data.recv_close_on_server.cancelled = &c->was_cancelled;
	start(c, &op, 1, &c->on_close);
	memset(&op, 0, sizeof(op));
	op.op = GRPC_OP_RECV_MESSAGE;
	op.data.recv_message.recv_message = &c->bytes;
	start(c, &op, 1, &c->on_request);
	pthread_mutex_unlock(&c->lock);
}

void rpc_call_begin(struct rpc_server *s, const struct rpc_incoming *in)
{
	struct rpc_call *c = calloc(1, sizeof(*c));
	uint64_t now = clock_boottime_ns();

	if (!c) {
		rpc_server_no_memory(s, in);
		return;
	}
	pthread_mutex_init(&c->lock, NULL);
	atomic_init(&c->refs, 1);
	c->server = s;
	c->route = in->route;
	c->peer = in->peer;
	c->place = in->place;
	c->conn = in->conn;
	c->grpc = in->grpc;
	c->deadline_ns =
		MIN(in->deadline_ns, clock_add_ns(now, s->lim.call_deadline_ms * NS_PER_MS));
	c->request_by_ns = clock_add_ns(now, s->lim.request_deadline_ms * NS_PER_MS);
	c->on_request.fn = got_request;
	c->on_close.fn = closed;
	c->on_sent.fn = sent;
	rpc_server_ref(s);
	rpc_server_grpc_taken(s);
	pthread_mutex_lock(&s->lock);
	list_add_tail(&s->calls, &c->link);
	pthread_mutex_unlock(&s->lock);
	first_batches(c);
}

/* ---- what handlers ask ---- */

const struct rpc_peer *rpc_call_peer(const struct rpc_call *c)
{
	return &c->peer;
}

const struct rpc_method *rpc_call_method(const struct rpc_call *c)
{
	return c->route->row.method;
}

char *rpc_call_peer_chain(struct rpc_call *c)
{
	char *chain = NULL;

	pthread_mutex_lock(&c->lock);
	if (c->grpc)
		chain = rpc_trust_chain(c->grpc);
	pthread_mutex_unlock(&c->lock);
	return chain;
}

int rpc_call_judge(struct rpc_call *c, struct ros2_err *err)
{
	uint64_t generation = rpc_tls_server_generation(c->server->tls);
	int rc;

	if (!c->peer.authenticated || c->peer.trust_generation == generation)
		return 0;
	rc = rpc_trust_judge(c->server, rpc_call_peer_chain(c), &generation, err);
	if (rc && err->status == ROS2_UNAUTHENTICATED)
		rpc_server_refused(c->server, RPC_REFUSED_TRUST, &c->peer, rpc_call_method(c), err);
	return rc;
}

uint64_t rpc_call_deadline_ns(const struct rpc_call *c)
{
	return c->deadline_ns;
}

const char *rpc_kind_to_str(enum rpc_kind k)
{
	static const char *const names[] = {"unary", "server-stream", "bidirectional"};

	return (size_t)k < ARRAY_SIZE(names) ? names[k] : "unknown";
}
