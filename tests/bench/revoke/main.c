/* SPDX-License-Identifier: Apache-2.0 */
/*
 * revoke-bench: revokes a busy tenant over one kept administrator's connection, N times: session,
 * reads without pause, revoke at a random moment, receipt, count what still arrives, reinstate.
 * One line of JSON per try. With --control the count begins before the command instead of after
 * the receipt: it must find bytes then, or it could not find any.
 */
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/admin.rpc.h"
#include "tests/bench/revoke/pump.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

/* Bounds, not measures: a machine may be an emulated one. */
#define CALL_MS  60000
#define AGAIN_MS 60000 /* a reinstated tenant works within this */

struct bench {
	struct rpc_channel *admin; /* owned */
	struct raw raw;
	const char *tenant, *ns, *context, *controller;
	uint64_t tries, seed;
	uint32_t bytes, depth;
	bool control;
};

struct result {
	uint64_t reply_ns;                             /* this process's clock */
	uint64_t receipt_ns, last_byte_ns, durable_ns; /* as the outcome says */
	uint32_t sessions, draining;
	uint64_t busy_bytes; /* arrived between command and end */
	uint64_t late_bytes; /* arrived after the reply */
};

static int connect_admin(struct bench *b, struct ros2_err *err)
{
	char cert[512], key[512], ca[512];
	const struct rpc_channel_opts o = {.name = "revoke-bench",
	                                   .target = b->controller,
	                                   .ca_path = ca,
	                                   .cert_path = cert,
	                                   .key_path = key,
	                                   .server_id = "spiffe://ros2.test/controller/",
	                                   .server_id_is_prefix = true};

	snprintf(cert, sizeof(cert), "%s/tls.crt", b->context);
	snprintf(key, sizeof(key), "%s/tls.key", b->context);
	snprintf(ca, sizeof(ca), "%s/infra-bundle.pem", b->context);
	if (rpc_channel_new(&o, &b->admin, err) < 0)
		return err->code;
	return rpc_channel_wait_ready(b->admin, CALL_MS, err);
}

static int reinstate(struct bench *b, struct ros2_err *err)
{
	Ros2__V1__ReinstateRequest req = ROS2__V1__REINSTATE_REQUEST__INIT;
	ProtobufCMessage *reply = NULL;
	int rc;

	req.tenant = (char *)b->tenant;
	req.reason = (char *)"benchmark";
	rc = rpc_unary_sync(b->admin, &ros2_v1_admin_reinstate, &req.base, CALL_MS, &reply, err);
	if (!rc)
		protobuf_c_message_free_unpacked(reply, NULL);
	return rc;
}

static int take_outcome(const Ros2__V1__RevokeReply *reply, struct result *r, struct ros2_err *err)
{
	const Ros2__V1__RevokeOutcome *o;

	if (reply->n_outcomes != 1)
		return ros2_err_set(err, -EPROTO, "%zu outcomes, expected 1", reply->n_outcomes);
	o = reply->outcomes[0];
	if (o->state == ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED)
		return ros2_err_set(err, -ETIMEDOUT, "the agent gave no receipt in time");
	r->receipt_ns = o->controller_to_receipt_ns;
	r->last_byte_ns = o->agent_receive_to_last_byte_ns;
	r->durable_ns = o->agent_receive_to_durable_ns;
	r->sessions = o->sessions;
	r->draining = o->draining;
	return 0;
}

static int revoke_now(struct bench *b, struct result *r, struct ros2_err *err)
{
	Ros2__V1__RevokeRequest req = ROS2__V1__REVOKE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	ProtobufCMessage *reply = NULL;
	uint64_t began = clock_monotonic_ns();
	int rc;

	ref.kind = ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT;
	ref.name = (char *)b->tenant;
	req.ref = &ref;
	req.reason = (char *)"benchmark";
	rc = rpc_unary_sync(b->admin, &ros2_v1_admin_revoke, &req.base, CALL_MS, &reply, err);
	r->reply_ns = clock_monotonic_ns() - began;
	if (rc)
		return rc;
	rc = take_outcome(ros2_v1_admin_revoke_out(reply), r, err);
	protobuf_c_message_free_unpacked(reply, NULL);
	return rc;
}

/* The agent learns of a reinstatement a moment after the administrator does. */
static int start(struct bench *b, struct pump *p, struct ros2_err *err)
{
	uint64_t end = clock_monotonic_ns() + AGAIN_MS * NS_PER_MS;
	int rc;

	do {
		*err = (struct ros2_err)ROS2_ERR_INIT;
		rc = pump_start(p, &b->raw, b->ns, b->bytes, b->depth, err);
		if (rc && err->status == ROS2_REVOKED)
			poll(NULL, 0, 1);
	} while (rc && err->status == ROS2_REVOKED && clock_monotonic_ns() < end);
	return rc;
}

/* Until it moves data, and then up to 3 ms more, so that every phase of it is met. */
static int until_busy(struct bench *b, struct pump *p, struct ros2_err *err)
{
	uint64_t end = clock_monotonic_ns() + AGAIN_MS * NS_PER_MS;
	struct timespec some = {0};

	while (atomic_load(&p->replies) < 2 * p->depth) {
		if (atomic_load(&p->end) || clock_monotonic_ns() > end)
			return ros2_err_set(err, -EIO, "the tenant's reads do not run: %s",
			                    strerror(-atomic_load(&p->end)));
		poll(NULL, 0, 1);
	}
	b->seed = b->seed * 6364136223846793005ull + 1442695040888963407ull;
	some.tv_nsec = (long)((b->seed >> 33) % 3000000);
	/* time: the revocation comes at another moment each time */
	nanosleep(&some, NULL);
	return 0;
}

static int try_once(struct bench *b, struct result *r, struct ros2_err *err)
{
	uint64_t at_command, at_reply;
	struct pump p;
	int rc = start(b, &p, err);

	if (rc)
		return rc;
	rc = until_busy(b, &p, err);
	at_command = at_reply = pump_arrived(&p);
	if (!rc)
		rc = revoke_now(b, r, err);
	if (!b->control)
		at_reply = pump_arrived(&p);
	if (!rc) {
		rc = pump_join(&p, CALL_MS);
		rc = rc == -ECONNRESET ? 0
		                       : ros2_err_set(err, rc ? rc : -EPROTO,
		                                      "the connection did not end by a reset: %s",
		                                      strerror(-rc));
	} else {
		pump_join(&p, 0);
	}
	r->busy_bytes = pump_arrived(&p) - at_command;
	r->late_bytes = pump_arrived(&p) - at_reply;
	util_close_cleanup(&p.fd);
	if (!rc && r->sessions == 0)
		rc = ros2_err_set(err, -EPROTO, "the receipt counts no session");
	return rc;
}

static void print(uint64_t n, const struct result *r)
{
	/* The agent received the command no earlier than it was committed: a last byte later than
	 * this came after the receipt for certain. */
	uint64_t late = r->last_byte_ns > r->receipt_ns ? r->last_byte_ns - r->receipt_ns : 0;

	printf("{\"try\":%" PRIu64 ",\"reply_ms\":%.4f,\"receipt_ms\":%.4f,\"last_byte_ms\":%.4f,"
	       "\"durable_ms\":%.4f,\"late_agent_ms\":%.4f,\"draining\":%u,\"busy_bytes\":%" PRIu64
	       ",\"late_bytes\":%" PRIu64 "}\n",
	       n, (double)r->reply_ns / 1e6, (double)r->receipt_ns / 1e6,
	       (double)r->last_byte_ns / 1e6, (double)r->durable_ns / 1e6, (double)late / 1e6,
	       r->draining, r->busy_bytes, r->late_bytes);
	fflush(stdout);
}

static int run(struct bench *b)
{
	char patience[] = "timeout_ms=60000", *words[] = {patience};
	const struct raw_args args = {words, 1};
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = connect_admin(b, &err);

	if (!rc)
		rc = raw_connect(&b->raw, &args, &err);
	for (uint64_t i = 1; !rc && i <= b->tries; i++) {
		struct result r = {0};

		rc = try_once(b, &r, &err);
		if (!rc)
			print(i, &r);
		if (!rc)
			rc = reinstate(b, &err);
	}
	if (rc)
		fprintf(stderr, "revoke-bench: %s: %s\n", ros2_status_to_str(err.status), err.msg);
	rpc_channel_free(b->raw.channel);
	rpc_channel_free(b->admin);
	return rc ? 1 : 0;
}

static const char usage[] =
	"revoke-bench --tenant NAME --namespace NS [options]\n"
	"Revokes a busy tenant again and again; one line of JSON per try.\n\n"
	"  --tries N        how often [1000]\n"
	"  --bs BYTES       of one read [65536]      --depth N  in flight [16]\n"
	"  --control        count from the command on: what a broken revocation would show\n"
	"Administrator: ROS2CTL_CONTEXT, ROS2_CONTROLLER. Tenant: ROS2_AGENT, ROS2_CERT, ROS2_KEY, "
	"ROS2_CA.\n";

static int parse(struct bench *b, int argc, char **argv)
{
	static const struct option longs[] = {{"tenant", 1, NULL, 't'}, {"namespace", 1, NULL, 'n'},
	                                      {"tries", 1, NULL, 'c'},  {"bs", 1, NULL, 'b'},
	                                      {"depth", 1, NULL, 'd'},  {"control", 0, NULL, 'k'},
	                                      {"help", 0, NULL, 'h'},   {0}};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 't')
			b->tenant = optarg;
		else if (c == 'n')
			b->ns = optarg;
		else if (c == 'c')
			b->tries = strtoull(optarg, NULL, 10);
		else if (c == 'b')
			b->bytes = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'd')
			b->depth = (uint32_t)strtoul(optarg, NULL, 10);
		else if (c == 'k')
			b->control = true;
		else
			return c == 'h' ? 1 : -1;
	}
	b->context = getenv("ROS2CTL_CONTEXT");
	b->controller = getenv("ROS2_CONTROLLER");
	if (!b->tenant || !b->ns || !b->context || !b->controller || !b->tries || !b->bytes ||
	    b->bytes > WIRE_IO_MAX || !b->depth || b->depth > 128 || optind < argc)
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	struct bench b = {.tries = 1000, .bytes = 65536, .depth = 16};
	int rc = parse(&b, argc, argv);

	if (rc) {
		fputs(usage, rc > 0 ? stdout : stderr);
		return rc > 0 ? 0 : 2;
	}
	b.seed = clock_monotonic_ns();
	return run(&b);
}
