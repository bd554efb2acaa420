/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc.health.v1, an ordinary service of every listener: it answers on the loop, so a loop that
 * hangs is seen as not healthy. It needs no ros2-protocol header. Entries are added before the
 * server starts and never removed; watchers hang on the entry they watch, on the loop thread.
 */
#include "proto/grpc/health/v1/health.rpc.h"
#include "proto/rpc/rpc_priv.h"
#include <errno.h>
#include <string.h>

struct health_entry {
	struct list link; /* server->health; immutable after start */
	struct rpc_server *server;
	atomic_bool serving, posted;
	struct loop_post post;
	struct list watchers; /* loop thread */
	char service[];
};

struct watcher {
	struct list link;
	struct rpc_stream *stream; /* borrowed: until on_closed */
	bool serving;              /* as last told */
};

static struct health_entry *find(struct rpc_server *s, const char *service)
{
	struct health_entry *e;

	list_for_each (&s->health, e, link)
		if (!strcmp(e->service, service))
			return e;
	return NULL;
}

static Grpc__Health__V1__HealthCheckResponse__ServingStatus status_of(bool serving)
{
	return serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
	               : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

static void check(struct rpc_call *c, const ProtobufCMessage *m, void *user)
{
	const Grpc__Health__V1__HealthCheckRequest *req = grpc_health_v1_health_check_in(m);
	Grpc__Health__V1__HealthCheckResponse reply = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
	struct health_entry *e = find(user, req->service);

	if (!e) {
		rpc_call_fail(c, ROS2_NOT_FOUND, "no service %s here", req->service);
		return;
	}
	reply.status = status_of(e->serving);
	grpc_health_v1_health_check_reply(c, &reply);
}

static void tell(struct rpc_stream *s, Grpc__Health__V1__HealthCheckResponse__ServingStatus status)
{
	Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

	m.status = status;
	if (grpc_health_v1_health_watch_send_reply(s, &m) == -EAGAIN)
		rpc_stream_abort(s, ROS2_BUSY, "the watcher does not read");
}

static void watch_open(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	const Grpc__Health__V1__HealthCheckRequest *req = grpc_health_v1_health_watch_in(m);
	struct health_entry *e = find(user, req->service);
	struct watcher *w;

	if (!e) {
		/* The standard: say so and keep the stream open. */
		tell(s, GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) {
		rpc_stream_abort(s, ROS2_BUSY, "out of memory");
		return;
	}
	w->stream = s;
	w->serving = e->serving;
	list_add_tail(&e->watchers, &w->link);
	rpc_stream_set_data(s, w);
	tell(s, status_of(w->serving));
}

static void watch_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct watcher *w = rpc_stream_data(s);

	if (w)
		list_del(&w->link);
	free(w);
}

static const struct rpc_stream_ops watch_ops = {.on_open = watch_open, .on_closed = watch_closed};

int rpc_health_entry_add(struct rpc_server *s, const char *service)
{
	size_t n = strlen(service) + 1;
	struct health_entry *e;

	if (find(s, service))
		return 0;
	e = calloc(1, sizeof(*e) + n);
	if (!e)
		return -ENOMEM;
	e->server = s;
	e->serving = true;
	list_init(&e->watchers);
	memcpy(e->service, service, n);
	list_add_tail(&s->health, &e->link);
	return 0;
}

int rpc_server_add_health(struct rpc_server *s, const char *name, struct ros2_err *err)
{
	return rpc_health_entry_add(s, name) < 0 ? ros2_err_set(err, -ENOMEM, "no memory") : 0;
}

int rpc_health_add(struct rpc_server *s, struct ros2_err *err)
{
	const struct rpc_handler rows[] = {
		{.method = &grpc_health_v1_health_check, .unary = check, .user = s},
		{.method = &grpc_health_v1_health_watch, .stream = &watch_ops, .user = s},
	};

	if (rpc_health_entry_add(s, ""))
		return ros2_err_set(err, -ENOMEM, "no memory");
	return rpc_server_add(s, &grpc_health_v1_health_service, rows, ARRAY_SIZE(rows), err);
}

void rpc_health_fini(struct rpc_server *s)
{
	struct health_entry *e, *next;

	list_for_each_safe (&s->health, e, next, link)
		free(e);
}

static void tell_watchers(void *arg)
{
	struct health_entry *e = arg;
	struct watcher *w;
	bool now;

	/* A change from here on is told by a post of its own. */
	e->posted = false;
	now = e->serving;
	if (!e->server->gone)
		list_for_each (&e->watchers, w, link) {
			if (w->serving == now)
				continue;
			w->serving = now;
			tell(w->stream, status_of(now));
		}
	rpc_server_unref(e->server);
}

int rpc_server_set_health(struct rpc_server *s, const char *service, bool serving)
{
	struct health_entry *e = find(s, service);

	if (!e)
		return -ENOENT;
	if (atomic_exchange(&e->serving, serving) == serving)
		return 0;
	if (atomic_exchange(&e->posted, true))
		return 0;
	rpc_server_ref(s);
	loop_post_urgent(s->loop, &e->post, tell_watchers, e);
	return 0;
}
