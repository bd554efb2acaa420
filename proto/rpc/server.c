/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener: its queue and thread, its table of methods, and the gate every call passes before it
 * becomes a call or a stream. gRPC queues calls it cannot match without bound and leaves unknown
 * ones hanging, so one generic accept is always armed, and what is not wanted is answered at once.
 *
 * End of life: (1) refuse, (2) cancel what is left after the grace, (3) wait until every grpc_call
 * is given back, (4) shut the queue down, join, destroy, (5) tell streams and calls that were still
 * open, (6) drop the owner's reference; calls that a handler still holds keep the struct (not gRPC)
 * alive.
 */
#define LOG_COMPONENT "rpc"
#include "common/clock.h"
#include "common/log.h"
#include "proto/rpc/rpc_priv.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define ACCEPT_SLOTS 32
#define TICK_MS      100

struct accept_slot {
	struct rpc_tag tag;
	struct rpc_server *s;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array md;
};

/* ---- counting ---- */

void rpc_server_ref(struct rpc_server *s)
{
	atomic_fetch_add(&s->refs, 1);
}

void rpc_server_unref(struct rpc_server *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	rpc_health_fini(s);
	rpc_tls_server_free(s->tls);
	if (s->conns)
		rpc_conns_unref(s->conns);
	rpc_refusals_unref(s->refusals);
	rpc_peer_cache_free(s->peers);
	free(s->routes);
	pthread_cond_destroy(&s->idle);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void rpc_server_grpc_taken(struct rpc_server *s)
{
	pthread_mutex_lock(&s->lock);
	s->live_grpc++;
	pthread_mutex_unlock(&s->lock);
}

void rpc_server_grpc_returned(struct rpc_server *s)
{
	pthread_mutex_lock(&s->lock);
	if (--s->live_grpc == 0)
		pthread_cond_broadcast(&s->idle);
	pthread_mutex_unlock(&s->lock);
}

void rpc_server_count(struct rpc_server *s, uint64_t *counter)
{
	pthread_mutex_lock(&s->lock);
	++*counter;
	pthread_mutex_unlock(&s->lock);
}

void rpc_server_refused(struct rpc_server *s, enum rpc_refused why, const struct rpc_peer *peer,
                        const struct rpc_method *method, const struct ros2_err *err)
{
	uint64_t *const counters[RPC_REFUSED_KINDS] = {
		[RPC_REFUSED_IDENTITY] = &s->stats.refused_identity,
		[RPC_REFUSED_TRUST] = &s->stats.refused_trust,
		[RPC_REFUSED_METHOD] = &s->stats.refused_unknown_method,
		[RPC_REFUSED_VERSION] = &s->stats.refused_version,
		[RPC_REFUSED_MESSAGE] = &s->stats.refused_invalid,
		[RPC_REFUSED_LIMIT] = &s->stats.refused_limit,
	};

	rpc_server_count(s, counters[why]);
	rpc_refusals_add(s->refusals, &(struct rpc_refusal){.why = why,
	                                                    .status = err->status,
	                                                    .method = method,
	                                                    .spiffe_id = peer->spiffe_id,
	                                                    .address = peer->address,
	                                                    .words = err->msg});
}

static void run_on_stopped(void *arg)
{
	struct rpc_server *s = arg;

	if (!s->gone)
		s->on_stopped(s->on_stopped_arg);
	rpc_server_unref(s);
}

/* Under the lock. The loop may be gone once rpc_server_free has run. */
static void check_stopped(struct rpc_server *s)
{
	if (s->gone || !s->on_stopped || !s->shutdown_done || s->stopped_posted ||
	    !list_empty(&s->calls) || !list_empty(&s->streams))
		return;
	s->stopped_posted = true;
	rpc_server_ref(s);
	loop_post_urgent(s->loop, &s->stopped_post, run_on_stopped, s);
}

void rpc_server_ended(struct rpc_server *s, struct quota_entry *place, struct rpc_conn *conn,
                      struct list *link)
{
	rpc_conns_call_over(s->conns, conn);
	pthread_mutex_lock(&s->lock);
	list_del(link);
	rpc_quota_give(place);
	check_stopped(s);
	pthread_mutex_unlock(&s->lock);
	rpc_server_unref(s);
}

/* ---- the gate ---- */

struct refusal {
	struct rpc_tag tag;
	struct rpc_server *s;
	grpc_call *call;
	struct rpc_conn *conn;
	grpc_slice words;
};

static void refused(struct rpc_tag *t, bool ok)
{
	struct refusal *r = container_of(t, struct refusal, tag);

	grpc_call_unref(r->call);
	rpc_conns_refusal_over(r->s->conns, r->conn);
	rpc_server_grpc_returned(r->s);
	grpc_slice_unref(r->words);
	free(r);
}

void rpc_server_refuse(struct rpc_server *s, const struct rpc_incoming *in, enum ros2_status status,
                       const char *words)
{
	struct refusal *r = calloc(1, sizeof(*r));
	grpc_op ops[2];

	if (!r) {
		grpc_call_cancel_with_status(in->grpc, GRPC_STATUS_RESOURCE_EXHAUSTED, "BUSY",
		                             NULL);
		grpc_call_unref(in->grpc);
		rpc_conns_call_over(s->conns, in->conn);
		return;
	}
	memset(ops, 0, sizeof(ops));
	*r = (struct refusal){{refused}, s, in->grpc, in->conn, rpc_status_message(status, words)};
	rpc_conns_refused(s->conns, in->conn, &in->peer);
	rpc_server_grpc_taken(s);
	ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
	ops[1].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
	ops[1].data.send_status_from_server.status = rpc_status_to_grpc(status);
	ops[1].data.send_status_from_server.status_details = &r->words;
	if (!rpc_batch(in->grpc, ops, 2, &r->tag))
		refused(&r->tag, false);
}

void rpc_server_no_memory(struct rpc_server *s, const struct rpc_incoming *in)
{
	pthread_mutex_lock(&s->lock);
	rpc_quota_give(in->place);
	pthread_mutex_unlock(&s->lock);
	rpc_server_refuse(s, in, ROS2_BUSY, "out of memory: try again later");
}

static int route_cmp(const void *a, const void *b)
{
	return strcmp(((const struct rpc_route *)a)->row.method->path,
	              ((const struct rpc_route *)b)->row.method->path);
}

static const struct rpc_route *find_route(struct rpc_server *s, grpc_slice path)
{
	size_t n = GRPC_SLICE_LENGTH(path), lo = 0, hi = s->n_routes, mid, len;
	const char *p = (const char *)GRPC_SLICE_START_PTR(path), *q;
	int c;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		q = s->routes[mid].row.method->path;
		len = strlen(q);
		c = memcmp(p, q, MIN(n, len));
		if (!c && n == len)
			return &s->routes[mid];
		if (c < 0 || (!c && n < len))
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

bool rpc_metadata_version(const grpc_metadata_array *md, uint32_t *ret)
{
	for (size_t i = 0; i < md->count; i++) {
		grpc_slice v = md->metadata[i].value;
		uint32_t n = 0;

		if (grpc_slice_str_cmp(md->metadata[i].key, RPC_PROTOCOL_KEY))
			continue;
		for (size_t k = 0; k < GRPC_SLICE_LENGTH(v) && k < 9; k++) {
			uint8_t c = GRPC_SLICE_START_PTR(v)[k];

			if (c < '0' || c > '9')
				return false;
			n = n * 10 + (c - '0');
		}
		*ret = n;
		return true;
	}
	return false;
}

static int check_version(const struct accept_slot *a, const struct rpc_route *route,
                         struct ros2_err *err)
{
	char theirs[32] = "none";
	uint32_t v = 0;
	bool told = rpc_metadata_version(&a->md, &v);

	if (route->any_version || (told && v == RPC_PROTOCOL_VERSION))
		return 0;
	if (told)
		snprintf(theirs, sizeof(theirs), "%u", v);
	ros2_err_named(err, ROS2_VERSION, "this server speaks ros2-protocol %d, the client says %s",
	               RPC_PROTOCOL_VERSION, theirs);
	return err->code;
}

/* Where calls of this route are counted. */
static struct rpc_quota *quota_of(struct rpc_server *s, const struct rpc_route *route)
{
	if (route->row.method->kind != RPC_UNARY)
		return &s->stream_quota;
	return route->row.apart ? &s->apart_quota : &s->call_quota;
}

void rpc_group_of_stranger(const struct rpc_peer *peer, char group[RPC_GROUP_MAX + 1])
{
	struct in6_addr v6;
	char *end;

	strcpy(group, peer->address);
	end = strrchr(group, ':');
	if (end)
		*end = '\0';
	if (*group != '[')
		return;
	group[strcspn(group, "%]")] = '\0';
	if (inet_pton(AF_INET6, group + 1, &v6) != 1)
		return;
	memset(&v6.s6_addr[8], 0, 8);
	inet_ntop(AF_INET6, &v6, group + 1, INET6_ADDRSTRLEN);
}

/* What its owner says; else the identity, or the address. */
static void group_of(const struct rpc_server *s, const struct rpc_peer *peer,
                     char group[RPC_GROUP_MAX + 1])
{
	if (s->group_of)
		s->group_of(s->group_arg, peer, group);
	else if (peer->authenticated)
		strcpy(group, peer->spiffe_id);
	else
		rpc_group_of_stranger(peer, group);
}

static int check_quota(struct rpc_server *s, struct rpc_incoming *in, const char *group,
                       struct ros2_err *err)
{
	bool unary = in->route->row.method->kind == RPC_UNARY;
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = s->shutdown_begun ? ros2_err_set(err, -ENOTCONN, "the server is stopping")
	                       : rpc_quota_take(quota_of(s, in->route), group, &in->place, err);
	if (!rc)
		++*(unary ? &s->stats.calls_total : &s->stats.streams_total);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static int refuse_crowded(const struct rpc_limits *lim, struct ros2_err *err)
{
	const char *name = lim->connections_name;

	return ros2_err_set(err, -EBUSY,
	                    "too many connections with calls in flight from this caller: at most "
	                    "three quarters of %s%s%zu, or %zu from an address: use one for more "
	                    "of them, or try again later",
	                    name ? name : "", name ? ", " : "", lim->max_connections,
	                    lim->max_connections_per_source);
}

/* Everything about a call that can be told before its first message. @why is of a refusal. */
static int admit(struct rpc_server *s, const struct accept_slot *a, struct rpc_incoming *in,
                 enum rpc_refused *why, struct ros2_err *err)
{
	int rc = rpc_peer_of(s->peers, a->call, &in->peer, err);
	char group[RPC_GROUP_MAX + 1];
	bool crowded;

	group_of(s, &in->peer, group);
	in->conn = rpc_conns_called(s->conns, in->peer.address,
	                            in->peer.authenticated ? group : NULL, &crowded);
	*why = RPC_REFUSED_IDENTITY;
	if (!rc && s->wants_client_cert && !in->peer.authenticated)
		rc = ros2_err_named(err, ROS2_UNAUTHENTICATED, "a client certificate is required");
	if (rc)
		return rc;
	in->route = find_route(s, a->details.method); /* named also in what comes first */
	*why = RPC_REFUSED_TRUST;
	rc = rpc_trust_admit(s, a->call, &in->peer, err);
	if (rc)
		return rc;
	*why = RPC_REFUSED_METHOD;
	if (!in->route)
		return ros2_err_named(err, ROS2_UNSUPPORTED, "no method %.*s is served here",
		                      (int)MIN(GRPC_SLICE_LENGTH(a->details.method), 128),
		                      (const char *)GRPC_SLICE_START_PTR(a->details.method));
	*why = RPC_REFUSED_VERSION;
	rc = check_version(a, in->route, err);
	if (rc)
		return rc;
	*why = RPC_REFUSED_LIMIT;
	if (crowded)
		return refuse_crowded(&s->lim, err);
	return check_quota(s, in, group, err);
}

static void accept_next(struct rpc_server *s, struct accept_slot *a);

static void accepted(struct rpc_tag *t, bool ok)
{
	struct accept_slot *a = container_of(t, struct accept_slot, tag), now = *a;
	struct rpc_incoming in = {.grpc = a->call};
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_server *s = a->s;
	enum rpc_refused why;

	if (!ok) {
		grpc_call_details_destroy(&a->details);
		grpc_metadata_array_destroy(&a->md);
		free(a);
		rpc_server_grpc_returned(s);
		return;
	}
	/* Re-armed before anything else, so that core never has calls without a taker. */
	accept_next(s, a);
	in.deadline_ns = rpc_deadline_ns(now.details.deadline);
	if (admit(s, &now, &in, &why, &err)) {
		if (err.code != -ENOTCONN) /* our own end is no refusal of anybody */
			rpc_server_refused(s, why, &in.peer, in.route ? in.route->row.method : NULL,
			                   &err);
		/* Whatever for: else who resets them would only have to ask for what is not there.
		 */
		if (err.code != -ENOTCONN)
			rpc_conns_futile(s->conns, in.conn, &in.peer);
		rpc_server_refuse(s, &in, err.status, err.msg);
	} else if (in.route->row.method->kind == RPC_UNARY)
		rpc_call_begin(s, &in);
	else
		rpc_stream_begin(s, &in);
	grpc_call_details_destroy(&now.details);
	grpc_metadata_array_destroy(&now.md);
}

static void accept_next(struct rpc_server *s, struct accept_slot *a)
{
	grpc_call_error e;

	a->tag.fn = accepted;
	a->s = s;
	a->call = NULL;
	grpc_call_details_init(&a->details);
	grpc_metadata_array_init(&a->md);
	rpc_tag_handed_over(&a->tag);
	e = grpc_server_request_call(s->grpc, &a->call, &a->details, &a->md, s->poller.cq,
	                             s->poller.cq, &a->tag);
	if (e != GRPC_CALL_OK)
		log_error("grpc_server_request_call: %s", grpc_call_error_to_string(e));
}

static void tell_refusals(void *arg)
{
	struct rpc_server *s = arg;

	rpc_refusals_tell(s->refusals, s->gone ? NULL : s->on_refused, s->refused_arg);
	rpc_server_unref(s);
}

static void post_refusals(struct rpc_server *s)
{
	if (!rpc_refusals_take(s->refusals))
		return;
	rpc_server_ref(s);
	loop_post_urgent(s->loop, &s->refusals_post, tell_refusals, s);
}

static void tick(void *arg)
{
	struct rpc_server *s = arg;
	uint64_t now = clock_boottime_ns();

	if (now - s->swept_ns >= NS_PER_S) {
		s->swept_ns = now;
		rpc_conns_sweep(s->conns);
	}
	rpc_gate_accept_again();
	rpc_trust_sweep(s);
	post_refusals(s);

	pthread_mutex_lock(&s->lock);
	rpc_call_sweep(s, now);
	rpc_stream_sweep(s, now);
	pthread_mutex_unlock(&s->lock);
}

static bool idle(void *arg, bool idle)
{
	struct rpc_server *s = arg;

	return rpc_conns_idle(s->conns, idle);
}

/* ---- making one ---- */

static size_t or_default(size_t v, size_t d)
{
	return v ? v : d;
}

static void set_limits(struct rpc_server *s, const struct rpc_limits *l)
{
	struct rpc_limits *r = &s->lim;

	*r = *l;
	r->max_connections = or_default(l->max_connections, 1024);
	r->max_connections_per_source = or_default(l->max_connections_per_source, 256);
	r->max_calls = or_default(l->max_calls, 1024);
	r->max_calls_per_group = or_default(l->max_calls_per_group, MAX(r->max_calls / 4, 1));
	r->max_streams = or_default(l->max_streams, 1024);
	r->max_streams_per_group = or_default(l->max_streams_per_group, MAX(r->max_streams / 4, 1));
	r->max_message_bytes = or_default(l->max_message_bytes, (size_t)4 << 20);
	r->stream_queue_max = or_default(l->stream_queue_max, 256);
	r->stream_queue_bytes = or_default(l->stream_queue_bytes, 4 * r->max_message_bytes);
	r->call_deadline_ms = (uint32_t)or_default(l->call_deadline_ms, 30000);
	r->request_deadline_ms = (uint32_t)or_default(l->request_deadline_ms, 10000);
	r->receive_bytes = or_default(l->receive_bytes, 16 * 1024);
	rpc_quota_init(&s->call_quota, "calls in flight", r->max_calls, r->max_calls_per_group);
	rpc_quota_init(&s->apart_quota, "calls in flight that keep or give up what it has",
	               r->max_calls, r->max_calls_per_group);
	rpc_quota_init(&s->stream_quota, "open streams", r->max_streams, r->max_streams_per_group);
}

static int check_opts(const struct rpc_server_opts *o, struct ros2_err *err)
{
	if (!o->name || !o->loop || !o->listen || !o->cert_path || !o->key_path)
		return ros2_err_set(err, -EINVAL,
		                    "a server needs name, loop, listen, cert_path and key_path");
	if (strlen(o->listen) >= sizeof(((struct rpc_server *)0)->listen))
		return ros2_err_set(err, -EINVAL, "%s: address too long", o->listen);
	if (o->limits.max_message_bytes > INT32_MAX / 2)
		return ros2_err_set(err, -EINVAL, "max_message_bytes above 1 GiB");
	return 0;
}

int rpc_server_new(const struct rpc_server_opts *o, struct rpc_server **ret, struct ros2_err *err)
{
	struct rpc_server *s;
	int rc = check_opts(o, err);

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return ros2_err_set(err, -ENOMEM, "no memory");
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->idle, NULL);
	list_init(&s->calls);
	list_init(&s->streams);
	list_init(&s->health);
	snprintf(s->name, sizeof(s->name), "%s", o->name);
	snprintf(s->listen, sizeof(s->listen), "%s", o->listen);
	s->loop = o->loop;
	s->wants_client_cert = o->client_ca_path;
	set_limits(s, &o->limits);
	s->peers = rpc_peer_cache_new();
	s->on_refused = o->on_refused;
	s->refused_arg = o->refused_arg;
	s->group_of = o->group_of;
	s->group_arg = o->group_arg;
	s->refusals = rpc_refusals_new();
	if (s->refusals)
		s->conns = rpc_conns_new(&s->lim, s->refusals);
	if (!s->peers || !s->conns || !rpc_ssl_init())
		rc = ros2_err_set(err, -ENOMEM, "no memory");
	if (!rc)
		rc = rpc_tls_server_new(o->cert_path, o->key_path, o->client_ca_path,
		                        o->chain_append_path, &s->tls, err);
	if (!rc)
		rc = rpc_health_add(s, err);
	if (!rc)
		s->swept_generation = rpc_tls_server_generation(s->tls);
	if (rc) {
		ros2_err_prefix(err, "listener %s", o->name);
		rpc_server_unref(s);
		return rc;
	}
	*ret = s;
	return 0;
}

static int check_row(const struct rpc_service *svc, const struct rpc_handler *row,
                     struct ros2_err *err)
{
	bool known = false;

	for (size_t i = 0; i < svc->n_methods; i++)
		known |= svc->methods[i] == row->method;
	if (!known)
		return ros2_err_set(err, -EINVAL, "%s: a row's method is not of this service",
		                    svc->name);
	if (row->method->kind == RPC_UNARY ? !row->unary || row->stream
	                                   : !row->stream || row->unary)
		return ros2_err_set(err, -EINVAL, "%s is %s: its row has the wrong callback",
		                    row->method->name, rpc_kind_to_str(row->method->kind));
	return 0;
}

int rpc_server_add(struct rpc_server *s, const struct rpc_service *svc,
                   const struct rpc_handler *rows, size_t n_rows, struct ros2_err *err)
{
	struct rpc_route *routes;
	int rc = s->grpc ? ros2_err_set(err, -EINVAL, "the server has started") : 0;

	for (size_t i = 0; i < n_rows && !rc; i++)
		rc = check_row(svc, &rows[i], err);
	if (rc)
		return rc;
	routes = realloc(s->routes, (s->n_routes + n_rows) * sizeof(*routes));
	if (!routes)
		return ros2_err_set(err, -ENOMEM, "no memory");
	s->routes = routes;
	for (size_t i = 0; i < n_rows; i++)
		routes[s->n_routes + i] = (struct rpc_route){
			.row = rows[i], .any_version = !strcmp(svc->name, "grpc.health.v1.Health")};
	s->n_routes += n_rows;
	qsort(routes, s->n_routes, sizeof(*routes), route_cmp);
	for (size_t i = 1; i < s->n_routes; i++)
		if (!route_cmp(&routes[i - 1], &routes[i]))
			return ros2_err_set(err, -EINVAL, "%s has two rows",
			                    routes[i].row.method->name);
	return rpc_health_entry_add(s, svc->name) ? ros2_err_set(err, -ENOMEM, "no memory") : 0;
}

uint16_t rpc_server_port(const struct rpc_server *s)
{
	return s->port;
}

static grpc_server *make_server(struct rpc_server *s)
{
	const struct rpc_limits *l = &s->lim;
	grpc_arg args[] = {
		rpc_conns_arg(s->conns),
		/* With probes on, stalled readers grew their peers without bound. */
		rpc_int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
		/* Two servers on one port would silently share its connections. */
		rpc_int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
		/* Our limits answer; gRPC's would let calls wait. */
		rpc_int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS,
	                    (int)MIN(2 * l->max_calls + l->max_streams + 64, (size_t)100000)),
		/* Twice, so that a message somewhat too long gets our answer, not gRPC's. */
		rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)(2 * l->max_message_bytes)),
		rpc_int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
		rpc_int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 30000),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000),
		rpc_int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
		/* The less of a connection is read at once, the sooner others have their turn. */
		rpc_int_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE,
	                    (int)MIN(l->receive_bytes, RPC_READ_MAX)),
		/* Clients may ping each second; the default calls that too many and hangs up. */
		rpc_int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500),
		rpc_int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
	};
	grpc_channel_args all = {ARRAY_SIZE(args), args};

	return grpc_server_create(&all, NULL);
}

int rpc_server_start(struct rpc_server *s, struct ros2_err *err)
{
	grpc_server_credentials *creds;
	struct accept_slot *a;
	int port, rc;

	if (s->grpc)
		return ros2_err_set(err, -EINVAL, "the server has started");
	rc = rpc_grpc_init(err);
	if (rc)
		return rc;
	s->grpc = make_server(s);
	s->poller.cq = grpc_completion_queue_create_for_next(NULL);
	grpc_server_register_completion_queue(s->grpc, s->poller.cq, NULL);
	creds = rpc_tls_server_creds(s->tls);
	port = rpc_port_is_one(s->listen) ? grpc_server_add_http2_port(s->grpc, s->listen, creds)
	                                  : 0;
	grpc_server_credentials_release(creds);
	if (port <= 0)
		return rpc_listen_error(s->listen, err);
	s->port = (uint16_t)port;
	grpc_server_start(s->grpc);
	s->poller.idle = idle;
	rc = rpc_poller_start(&s->poller, s->name, TICK_MS, tick, s);
	if (rc)
		return ros2_err_set(err, rc, "cannot start a thread");
	for (int i = 0; i < ACCEPT_SLOTS; i++) {
		a = calloc(1, sizeof(*a));
		if (!a)
			return ros2_err_set(err, -ENOMEM, "no memory");
		rpc_server_grpc_taken(s);
		accept_next(s, a);
	}
	return 0;
}

/* ---- stopping ---- */

static void shut_down(struct rpc_tag *t, bool ok)
{
	struct rpc_server *s = container_of(t, struct rpc_server, shutdown_tag);

	pthread_mutex_lock(&s->lock);
	s->shutdown_done = true;
	pthread_cond_broadcast(&s->idle);
	check_stopped(s);
	pthread_mutex_unlock(&s->lock);
}

static void begin_shutdown(struct rpc_server *s)
{
	bool first;

	pthread_mutex_lock(&s->lock);
	first = !s->shutdown_begun;
	s->shutdown_begun = true;
	pthread_mutex_unlock(&s->lock);
	if (!first)
		return;
	s->shutdown_tag.fn = shut_down;
	rpc_tag_handed_over(&s->shutdown_tag);
	grpc_server_shutdown_and_notify(s->grpc, s->poller.cq, &s->shutdown_tag);
}

static void grace_over(void *arg)
{
	struct rpc_server *s = arg;

	grpc_server_cancel_all_calls(s->grpc);
}

void rpc_server_stop(struct rpc_server *s, uint32_t grace_ms, loop_fn on_stopped, void *arg)
{
	loop_assert_owner(s->loop);
	if (s->stopping || !s->poller.running)
		return;
	s->stopping = true;
	pthread_mutex_lock(&s->lock);
	s->on_stopped = on_stopped;
	s->on_stopped_arg = arg;
	pthread_mutex_unlock(&s->lock);
	begin_shutdown(s);
	loop_timer_in_ms(s->loop, &s->grace, grace_ms, grace_over, s);
}

static void tear_down(struct rpc_server *s)
{
	if (s->poller.running) {
		begin_shutdown(s);
		grpc_server_cancel_all_calls(s->grpc);
		pthread_mutex_lock(&s->lock);
		while (!s->shutdown_done || s->live_grpc)
			pthread_cond_wait(&s->idle, &s->lock);
		pthread_mutex_unlock(&s->lock);
		rpc_poller_stop(&s->poller);
		grpc_server_destroy(s->grpc);
	} else {
		/* Never served: the queue must still see the shutdown. */
		s->shutdown_begun = true;
		grpc_server_shutdown_and_notify(s->grpc, s->poller.cq, NULL);
		grpc_completion_queue_next(s->poller.cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
		grpc_server_destroy(s->grpc);
		rpc_poller_stop(&s->poller);
	}
	s->grpc = NULL;
	rpc_grpc_shutdown();
}

void rpc_server_free(struct rpc_server *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->gone = true;
	pthread_mutex_unlock(&s->lock);
	loop_timer_stop(&s->grace);
	if (s->grpc)
		tear_down(s);
	rpc_call_abandon_all(s);
	rpc_stream_abandon_all(&s->streams, &s->lock);
	rpc_server_unref(s);
}

void rpc_server_stats(const struct rpc_server *cs, struct rpc_server_stats *ret)
{
	struct rpc_server *s = (struct rpc_server *)cs;

	pthread_mutex_lock(&s->lock);
	*ret = s->stats;
	ret->calls_now = s->call_quota.used + s->apart_quota.used;
	ret->streams_now = s->stream_quota.used;
	pthread_mutex_unlock(&s->lock);
	rpc_conns_stats(s->conns, ret);
}
