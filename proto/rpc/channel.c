/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channel: one connection of its own to one target, its queue and thread. The end follows the
 * same order as a server's: cancel, wait until every grpc_call is given back, shut down, then tell
 * those who were still waiting. Before it is shut down it must not be connecting (dialed.c).
 */
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHANNEL_MAX_MESSAGE ((size_t)4 << 20)
#define HEARD_MS            1000 /* that what is dialled was reset: a turn of the polling thread */
#define DIALS_MS            10   /* and then whether there is another address */

void rpc_channel_ref(struct rpc_channel *c)
{
	atomic_fetch_add(&c->refs, 1);
}

void rpc_channel_unref(struct rpc_channel *c)
{
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	rpc_tls_client_unref(c->tls);
	rpc_dialed_unref(c->dialed);
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

#define STR_(x) #x
#define STR(x)  STR_(x)

static grpc_metadata version_md;

static void fill_version_md(void)
{
	version_md.key = grpc_slice_from_static_string(RPC_PROTOCOL_KEY);
	version_md.value = grpc_slice_from_static_string(STR(RPC_PROTOCOL_VERSION));
}

grpc_metadata *rpc_channel_metadata(size_t *ret_n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, fill_version_md);
	*ret_n = 1;
	return &version_md;
}

grpc_call *rpc_channel_call(struct rpc_channel *c, const struct rpc_method *m, uint32_t timeout_ms)
{
	gpr_timespec deadline =
		timeout_ms ? rpc_deadline_in_ms(timeout_ms) : gpr_inf_future(GPR_CLOCK_MONOTONIC);
	bool open;

	pthread_mutex_lock(&c->lock);
	open = !c->closing;
	c->live_grpc += open;
	pthread_mutex_unlock(&c->lock);
	if (!open)
		return NULL;
	return grpc_channel_create_call(c->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, c->poller.cq,
	                                grpc_slice_from_static_string(m->path), NULL, deadline,
	                                NULL);
}

void rpc_channel_grpc_returned(struct rpc_channel *c)
{
	pthread_mutex_lock(&c->lock);
	if (--c->live_grpc == 0)
		pthread_cond_broadcast(&c->idle);
	pthread_mutex_unlock(&c->lock);
}

static grpc_channel *make_channel(const struct rpc_channel_opts *o, struct rpc_channel *c,
                                  grpc_channel_credentials *creds)
{
	size_t max_message = c->max_message_bytes;
	int keepalive = (int)(o->keepalive_ms ? o->keepalive_ms : 10000);
	int backoff = (int)(o->reconnect_max_ms ? o->reconnect_max_ms : 5000);
	grpc_arg args[] = {
		rpc_dialed_arg(c->dialed),
		/* With probes on, 50 stalled readers grew a client by 100 MB/s. */
		rpc_int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
		/* A retried call could be carried out twice. */
		rpc_int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
		rpc_int_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
		rpc_int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
		rpc_int_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
		rpc_int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
		rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, 2 * max_message),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
		rpc_int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
		rpc_int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, MIN(200, backoff)),
		rpc_int_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, MAX(5000, backoff)),
		rpc_int_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, backoff),
		rpc_int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
	};
	grpc_channel_args all = {ARRAY_SIZE(args), args};
	RPC_BLOCKS_SIGNALS;

	return grpc_channel_create(o->target, creds, &all);
}

int rpc_channel_new(const struct rpc_channel_opts *o, struct rpc_channel **ret,
                    struct ros2_err *err)
{
	grpc_channel_credentials *creds;
	pthread_condattr_t mono;
	struct rpc_channel *c;
	int rc;

	if (!o->name || !o->target || o->max_message_bytes > INT32_MAX / 2)
		return ros2_err_set(err, -EINVAL,
		                    "a channel needs name, target and max_message_bytes <= 1 GiB");
	if (!rpc_port_is_one(o->target))
		return ros2_err_set(err, -EINVAL, "%s: expected HOST:PORT", o->target);
	c = calloc(1, sizeof(*c));
	if (!c)
		return ros2_err_set(err, -ENOMEM, "no memory");
	atomic_init(&c->refs, 1);
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&mono);
	pthread_condattr_setclock(&mono, CLOCK_MONOTONIC);
	pthread_cond_init(&c->idle, &mono);
	pthread_condattr_destroy(&mono);
	list_init(&c->requests);
	list_init(&c->streams);
	snprintf(c->name, sizeof(c->name), "%s", o->name);
	c->loop = o->loop;
	c->max_message_bytes = o->max_message_bytes ? o->max_message_bytes : CHANNEL_MAX_MESSAGE;
	rc = rpc_grpc_init(err);
	if (rc) {
		ros2_err_prefix(err, "channel %s", o->name);
		rpc_channel_unref(c);
		return rc;
	}
	c->dialed = rpc_dialed_new();
	rc = c->dialed ? rpc_tls_client_new(o, &c->tls, &creds, err)
	               : ros2_err_set(err, -ENOMEM, "no memory");
	if (rc) {
		ros2_err_prefix(err, "channel %s", o->name);
		rpc_channel_unref(c);
		rpc_grpc_shutdown();
		return rc;
	}
	c->grpc = make_channel(o, c, creds);
	grpc_channel_credentials_release(creds);
	c->poller.cq = grpc_completion_queue_create_for_next(NULL);
	rc = rpc_poller_start(&c->poller, c->name, 0, NULL, NULL);
	if (rc) {
		rpc_channel_free(c);
		return ros2_err_set(err, rc, "cannot start a thread");
	}
	*ret = c;
	return 0;
}

struct waiter {
	struct rpc_tag tag;
	struct rpc_channel *c;
	bool done;
};

static void state_changed(struct rpc_tag *t, bool ok)
{
	struct waiter *w = container_of(t, struct waiter, tag);

	pthread_mutex_lock(&w->c->lock);
	w->done = true;
	pthread_cond_broadcast(&w->c->idle);
	pthread_mutex_unlock(&w->c->lock);
}

/* Until it is not @st any more, or @until. */
static void wait_for_change(struct rpc_channel *c, grpc_connectivity_state st, gpr_timespec until)
{
	struct waiter w = {.tag = {state_changed}, .c = c};
	sigset_t signals_before = rpc_signals_block();

	rpc_tag_handed_over(&w.tag);
	grpc_channel_watch_connectivity_state(c->grpc, st, until, c->poller.cq, &w.tag);
	rpc_signals_restore(&signals_before);
	pthread_mutex_lock(&c->lock);
	while (!w.done)
		pthread_cond_wait(&c->idle, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

/* See dialed.c. Of an attempt that has failed gRPC forgets nothing. But of a target with several
 * addresses it dials the next. */
static void stop_dialling(struct rpc_channel *c)
{
	grpc_connectivity_state st = grpc_channel_check_connectivity_state(c->grpc, 0);
	gpr_timespec until = rpc_deadline_in_ms(HEARD_MS);

	if (st == GRPC_CHANNEL_READY || !c->poller.running || !rpc_dialed_abort(c->dialed))
		return;
	while (st == GRPC_CHANNEL_CONNECTING &&
	       gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), until) < 0) {
		wait_for_change(c, st, rpc_deadline_in_ms(DIALS_MS));
		rpc_dialed_abort(c->dialed);
		st = grpc_channel_check_connectivity_state(c->grpc, 0);
	}
}

static void destroy(struct rpc_channel *c)
{
	RPC_BLOCKS_SIGNALS;

	grpc_channel_destroy(c->grpc);
}

void rpc_channel_free(struct rpc_channel *c)
{
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_mutex_unlock(&c->lock);
	c->gone = true;
	rpc_request_cancel_all(c);
	rpc_stream_cancel_all(&c->streams, &c->lock);
	pthread_mutex_lock(&c->lock);
	while (c->live_grpc)
		pthread_cond_wait(&c->idle, &c->lock);
	pthread_mutex_unlock(&c->lock);
	stop_dialling(c);
	destroy(c);
	rpc_poller_stop(&c->poller);
	rpc_request_abandon_all(c);
	rpc_stream_abandon_all(&c->streams, &c->lock);
	rpc_grpc_shutdown();
	rpc_channel_unref(c);
}

/* ---- connectivity ---- */

const char *rpc_channel_state_to_str(enum rpc_channel_state st)
{
	static const char *const names[] = {"idle", "connecting", "ready", "failed"};

	return (size_t)st < ARRAY_SIZE(names) ? names[st] : "unknown";
}

static enum rpc_channel_state to_state(grpc_connectivity_state st)
{
	switch (st) {
	case GRPC_CHANNEL_IDLE:
		return RPC_CHANNEL_IDLE;
	case GRPC_CHANNEL_CONNECTING:
		return RPC_CHANNEL_CONNECTING;
	case GRPC_CHANNEL_READY:
		return RPC_CHANNEL_READY;
	default:
		return RPC_CHANNEL_FAILED;
	}
}

static grpc_connectivity_state look(struct rpc_channel *c, bool try_to_connect)
{
	RPC_BLOCKS_SIGNALS;

	return grpc_channel_check_connectivity_state(c->grpc, try_to_connect);
}

enum rpc_channel_state rpc_channel_state(struct rpc_channel *c, bool try_to_connect)
{
	return to_state(look(c, try_to_connect));
}

int rpc_channel_wait_ready(struct rpc_channel *c, uint32_t timeout_ms, struct ros2_err *err)
{
	gpr_timespec until = rpc_deadline_in_ms(timeout_ms);
	struct ros2_err why = {.status = ROS2_UNAVAILABLE};
	grpc_connectivity_state st;

	for (;;) {
		st = look(c, true);
		if (st == GRPC_CHANNEL_READY)
			return 0;
		if (gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), until) >= 0)
			break;
		wait_for_change(c, st, until);
	}
	rpc_tls_client_explain(c->tls, &why);
	return ros2_err_set(err, -ETIMEDOUT, "not connected after %u ms%s%s", timeout_ms,
	                    why.code ? ": " : "", why.msg);
}

int rpc_channel_check_server(struct rpc_channel *c, struct ros2_err *err)
{
	return rpc_tls_client_check(c->tls, err);
}

void rpc_channel_reset_backoff(struct rpc_channel *c)
{
	RPC_BLOCKS_SIGNALS;

	grpc_channel_reset_connect_backoff(c->grpc);
}

void rpc_channel_set_trust(struct rpc_channel *c, struct pki_trust *trust)
{
	rpc_tls_client_set_trust(c->tls, trust);
}
