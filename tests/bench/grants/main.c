/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant-bench: durable grants per second over mTLS, a fixed number in flight, from our controller
 * (as an enrolled agent on its stream) or from etcd (LeaseGrant). Both clients are this program
 * over the same RPC layer, so what differs is the server. Prints one line of JSON.
 */
#include "common/clock.h"
#include "common/fsx.h"
#include "common/ids.h"
#include "common/util.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include "proto/rpc/rpc.h"
#include "tests/bench/grants/etcd_lease.rpc.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TENANTS_MAX 64
#define CALL_MS     20000

struct bench {
	struct loop *loop;           /* owned */
	struct rpc_channel *channel; /* owned */
	struct rpc_stream *stream;   /* borrowed: until on_closed */
	struct ros2_uid agent, tenant[TENANTS_MAX];
	char principal[TENANTS_MAX][ROS2_SPIFFE_MAX + 1];
	int n_tenants;
	bool etcd;
	uint64_t count, depth;
	uint64_t sent, done, refused;
	uint64_t *started_ns, *latency_ns; /* owned, @count each */
	uint64_t begin_ns, end_ns;
	struct ros2_err failure;
};

static void fail(struct bench *b, const struct ros2_err *err)
{
	b->failure = *err;
	if (!b->failure.code)
		b->failure.code = -ECONNRESET;
	loop_stop(b->loop);
}

static void finished(struct bench *b, uint64_t id, bool ok)
{
	b->latency_ns[id] = clock_monotonic_ns() - b->started_ns[id];
	b->done++;
	b->refused += !ok;
	if (b->done == b->count) {
		b->end_ns = clock_monotonic_ns();
		loop_stop(b->loop);
	}
}

/* ---- etcd ---- */
struct etcd_call {
	struct bench *b;
	uint64_t id;
};
static void etcd_fill(struct bench *b);

static void etcd_reply(void *arg, const ProtobufCMessage *reply, const struct ros2_err *err)
{
	struct etcd_call *call = arg;
	struct bench *b = call->b;

	if (err->code) {
		fail(b, err);
	} else {
		finished(b, call->id, true);
		etcd_fill(b);
	}
	free(call);
}

static void etcd_fill(struct bench *b)
{
	while (!b->failure.code && b->sent < b->count && b->sent - b->done < b->depth) {
		Etcdserverpb__LeaseGrantRequest req = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
		struct etcd_call *call = calloc(1, sizeof(*call));
		struct ros2_err err = ROS2_ERR_INIT;

		if (!call)
			abort();
		*call = (struct etcd_call){b, b->sent};
		req.ttl = 3600;
		b->started_ns[b->sent++] = clock_monotonic_ns();
		if (rpc_unary(b->channel, &etcdserverpb_lease_lease_grant, &req.base, CALL_MS,
		              etcd_reply, call, NULL, &err) < 0) {
			free(call);
			fail(b, &err);
		}
	}
}

/* ---- ours ---- */
static void stamp(Ros2__V1__Stamp *s, struct clock_stamp *now)
{
	ros2__v1__stamp__init(s);
	clock_stamp_now(now);
	s->boot_id.data = now->boot_id;
	s->boot_id.len = sizeof(now->boot_id);
	s->boottime_ns = now->boottime_ns;
}

static int send_hello(struct bench *b)
{
	Ros2__V1__AgentMessage msg = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AgentHello hello = ROS2__V1__AGENT_HELLO__INIT;
	struct ros2_uid incarnation = ros2_uid_new();
	struct clock_stamp now;
	Ros2__V1__Stamp st;

	stamp(&st, &now);
	hello.protocol = RPC_PROTOCOL_VERSION;
	hello.software = (char *)"grant-bench";
	hello.agent_uid.data = b->agent.b;
	hello.agent_uid.len = ROS2_UID_LEN;
	hello.incarnation.data = incarnation.b;
	hello.incarnation.len = ROS2_UID_LEN;
	hello.stamp = &st;
	hello.tenant_address = (char *)"127.0.0.1:1";
	hello.audit_next_seq = 1;
	msg.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_HELLO;
	msg.hello = &hello;
	return rpc_stream_send(b->stream, &msg.base);
}

static void stream_fill(struct bench *b)
{
	struct clock_stamp now;
	Ros2__V1__Stamp st;

	stamp(&st, &now);
	while (b->sent < b->count && b->sent - b->done < b->depth) {
		Ros2__V1__AgentMessage msg = ROS2__V1__AGENT_MESSAGE__INIT;
		Ros2__V1__GrantRequest req = ROS2__V1__GRANT_REQUEST__INIT;
		int t = (int)(b->sent % (uint64_t)b->n_tenants);

		req.request_id = b->sent + 1;
		req.tenant_uid.data = b->tenant[t].b;
		req.tenant_uid.len = ROS2_UID_LEN;
		req.principal = b->principal[t];
		req.peer = (char *)"127.0.0.1:2";
		req.stamp = &st;
		msg.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST;
		msg.grant_request = &req;
		b->started_ns[b->sent] = clock_monotonic_ns();
		if (rpc_stream_send(b->stream, &msg.base) < 0)
			return;
		b->sent++;
	}
}

static void on_message(struct rpc_stream *s, const ProtobufCMessage *m, void *user)
{
	const Ros2__V1__ControllerMessage *msg = ros2_v1_agent_link_link_out(m);
	struct bench *b = user;

	if (msg->msg_case == ROS2__V1__CONTROLLER_MESSAGE__MSG_WELCOME)
		b->begin_ns = clock_monotonic_ns();
	if (msg->msg_case == ROS2__V1__CONTROLLER_MESSAGE__MSG_GRANT_REPLY) {
		const Ros2__V1__GrantReply *reply = msg->grant_reply;

		if (reply->request_id == 0 || reply->request_id > b->count)
			return;
		if (reply->status && !b->refused)
			fprintf(stderr, "grant-bench: first refusal: %s: %s\n",
			        ros2_status_to_str(reply->status), reply->words);
		finished(b, reply->request_id - 1, reply->status == ROS2_OK);
	}
	if (b->begin_ns && b->done < b->count)
		stream_fill(b);
}

static void on_writable(struct rpc_stream *s, void *user)
{
	stream_fill(user);
}

static void on_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct bench *b = user;

	b->stream = NULL;
	if (b->done < b->count)
		fail(b, why);
}

static const struct rpc_stream_ops stream_ops = {
	.on_message = on_message, .on_writable = on_writable, .on_closed = on_closed};

static void begin(void *arg)
{
	struct bench *b = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	const struct rpc_stream_opts o = {.ops = &stream_ops, .user = b, .queue_max = 1024};

	b->begin_ns = b->etcd ? clock_monotonic_ns() : 0;
	if (b->etcd) {
		etcd_fill(b);
		return;
	}
	if (rpc_stream_open(b->channel, &ros2_v1_agent_link_link, NULL, &o, &b->stream, &err) < 0 ||
	    send_hello(b) < 0)
		fail(b, &err);
}

/* ---- result ---- */
static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void report(struct bench *b)
{
	double seconds = (double)(b->end_ns - b->begin_ns) / 1e9;

	qsort(b->latency_ns, b->count, sizeof(*b->latency_ns), by_value);
	printf("{\"server\":\"%s\",\"grants\":%" PRIu64 ",\"refused\":%" PRIu64
	       ",\"in_flight\":%" PRIu64
	       ",\"grants_per_s\":%.0f,\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_us\":%.0f}\n",
	       b->etcd ? "etcd LeaseGrant" : "ros2-controller", b->count, b->refused, b->depth,
	       (double)b->count / seconds, (double)b->latency_ns[b->count / 2] / 1e3,
	       (double)b->latency_ns[b->count * 99 / 100] / 1e3,
	       (double)b->latency_ns[b->count - 1] / 1e3);
}

static const char usage[] =
	"grant-bench: durable grants per second over mTLS\n\n"
	"  --server ros2|etcd   what is measured\n"
	"  --target H:P         agents' listener of the controller, or etcd's client address\n"
	"  --dir DIR            tls.crt, tls.key, infra-bundle.pem of an enrolled agent (etcd: any "
	"client of its CA)\n"
	"  --server-id PREFIX   SPIFFE ID prefix of the server, e.g. "
	"spiffe://ros2.test/controller/\n"
	"  --agent-uid HEX      ros2: the agent's uid\n"
	"  --tenant UID=ID      ros2: a tenant uid and its principal; may be given again, used in "
	"turn\n"
	"  --count N --depth N  how many in all (default 20000) and in flight (default 64)\n";

static int add_tenant(struct bench *b, const char *text)
{
	char uid[ROS2_UID_STR_LEN];
	const char *eq = strchr(text, '=');

	if (!eq || eq - text != ROS2_UID_STR_LEN - 1 || b->n_tenants == TENANTS_MAX)
		return -EINVAL;
	snprintf(uid, sizeof(uid), "%.32s", text);
	snprintf(b->principal[b->n_tenants], sizeof(b->principal[0]), "%s", eq + 1);
	return ros2_uid_from_str(uid, &b->tenant[b->n_tenants++]);
}

struct flags {
	const char *target, *dir, *server_id;
};

static int parse(struct bench *b, struct flags *f, int argc, char **argv)
{
	static const struct option longs[] = {
		{"server", 1, NULL, 's'},    {"target", 1, NULL, 't'},
		{"dir", 1, NULL, 'd'},       {"server-id", 1, NULL, 'i'},
		{"agent-uid", 1, NULL, 'a'}, {"tenant", 1, NULL, 'n'},
		{"count", 1, NULL, 'c'},     {"depth", 1, NULL, 'q'},
		{"help", 0, NULL, 'h'},      {0}};
	int opt, r = 0;

	while (r == 0 && (opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (opt) {
		case 's':
			b->etcd = !strcmp(optarg, "etcd");
			break;
		case 't':
			f->target = optarg;
			break;
		case 'd':
			f->dir = optarg;
			break;
		case 'i':
			f->server_id = optarg;
			break;
		case 'a':
			r = ros2_uid_from_str(optarg, &b->agent);
			break;
		case 'n':
			r = add_tenant(b, optarg);
			break;
		case 'c':
			b->count = strtoull(optarg, NULL, 10);
			break;
		case 'q':
			b->depth = strtoull(optarg, NULL, 10);
			break;
		default:
			r = -EINVAL;
		}
	}
	if (r < 0 || !f->target || !f->dir || !f->server_id || !b->count || b->count > 10000000 ||
	    !b->depth || b->depth > 1024 || (!b->etcd && !b->n_tenants))
		return -EINVAL;
	return 0;
}

static int connect_channel(struct bench *b, const struct flags *f, struct ros2_err *err)
{
	char cert[512], key[512], ca[512];
	const struct rpc_channel_opts o = {.name = "bench",
	                                   .target = f->target,
	                                   .loop = b->loop,
	                                   .ca_path = ca,
	                                   .cert_path = cert,
	                                   .key_path = key,
	                                   .server_id = f->server_id,
	                                   .server_id_is_prefix = true};

	snprintf(cert, sizeof(cert), "%s/tls.crt", f->dir);
	snprintf(key, sizeof(key), "%s/tls.key", f->dir);
	snprintf(ca, sizeof(ca), "%s/infra-bundle.pem", f->dir);
	return rpc_channel_new(&o, &b->channel, err);
}

int main(int argc, char **argv)
{
	struct bench b = {.count = 20000, .depth = 64};
	struct flags f = {0};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = 1;

	if (parse(&b, &f, argc, argv) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	b.started_ns = calloc(b.count, sizeof(uint64_t));
	b.latency_ns = calloc(b.count, sizeof(uint64_t));
	if (!b.started_ns || !b.latency_ns ||
	    loop_new(&(struct loop_opts){.name = "bench"}, &b.loop) < 0)
		return 1;
	if (connect_channel(&b, &f, &err) < 0 ||
	    rpc_channel_wait_ready(b.channel, CALL_MS, &err) < 0) {
		fprintf(stderr, "grant-bench: %s\n", err.msg);
	} else {
		loop_post(b.loop, begin, &b);
		loop_run(b.loop);
		if (b.failure.code)
			fprintf(stderr, "grant-bench: after %" PRIu64 " grants: %s: %s\n", b.done,
			        ros2_status_to_str(b.failure.status), b.failure.msg);
		rc = b.failure.code || b.refused ? 1 : 0;
		if (!b.failure.code)
			report(&b);
	}
	rpc_channel_free(b.channel);
	loop_free(b.loop);
	free(b.started_ns);
	free(b.latency_ns);
	return rc;
}
