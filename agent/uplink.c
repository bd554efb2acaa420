/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the stream: connect, greet, beat, end, again. Must never let anything widen rights
 * under an epoch that is not durable. Between a Welcome with a newer epoch and the disk (GREETED)
 * what shrinks rights is obeyed at once, documents wait for the disk behind the epoch, and what
 * would widen at once (contact, grants) is not taken (docs/decisions/0011-epoch-on-a-full-disk.md).
 */
#include "agent/uplink_priv.h"
#include "agent/bundles.h"
#include "agent/grants_priv.h"
#include "common/clock.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "uplink"
#include "common/log.h"

#define BACKOFF_MIN_MS  200
#define BACKOFF_MAX_MS  10000
#define OPEN_TIMEOUT_MS 15000 /* Hello sent, no Welcome */
#define BEAT_MIN_MS     50
#define BEAT_MAX_MS     60000
#define SILENT_BEATS    8 /* so many beats without an answer: the stream is dead */
#define QUEUE_MAX       1024
#define PUMP_QUEUED     64 /* what can wait fills no more of the queue */
#define PUMP_LOW        16 /* and goes on here */
#define AUDIT_IN_FLIGHT 4096
#define REOPEN_RETRY_MS 1000

struct uplink {
	struct agent *a;
	struct rpc_channel *channel; /* owned */
	struct renewal *renewal;     /* owned */
	struct rpc_stream *stream;   /* borrowed: until on_closed */
	enum uplink_state state;
	uint64_t generation, last_heard_ns;
	uint32_t backoff_ms, beat_ms;
	size_t beat_skip;
	struct loop_timer timer; /* WAITING: back-off; OPENING: give up; LIVE: beat */
	char last_words[160];
	struct loop_timer reopen;
	bool freeing, reopening, pumping;
	bool stale; /* the connection is of no use: another one before the next stream */
};

const char *uplink_state_to_str(enum uplink_state s)
{
	static const char *const names[] = {"waiting", "opening", "greeted", "live"};

	return (size_t)s < ARRAY_SIZE(names) ? names[s] : "?";
}

bool uplink_is_live(const struct uplink *u)
{
	return u && u->state == UPLINK_LIVE;
}

/* Greeted: it may be talked to. */
static bool has_stream(const struct uplink *u)
{
	return u && u->state >= UPLINK_GREETED;
}

uint64_t uplink_generation(const struct uplink *u)
{
	return u ? u->generation : 0;
}

int uplink_send(struct uplink *u, const Ros2__V1__AgentMessage *m)
{
	int r;

	if (!has_stream(u))
		return -ENOTCONN;
	r = rpc_stream_send(u->stream, &m->base);
	if (r == -EAGAIN)
		rpc_stream_abort(u->stream, ROS2_BUSY, "the controller does not read");
	else if (r == -ENOMEM)
		rpc_stream_abort(u->stream, ROS2_BUSY, "no memory for a message");
	return r;
}

/* True while there is more to send than the stream takes now. */
static bool send_some(struct uplink *u)
{
	bool more = grants_send_waiting(u->a->grants);

	more |= uplink_send_states(u->a);
	if (spool_unacked(u->a->spool) - spool_unsent(u->a->spool) < AUDIT_IN_FLIGHT)
		more |= uplink_send_audit(u->a);
	return more;
}

void uplink_pump(struct uplink *u)
{
	bool more = true;

	/* Sending may find more to tell: one pump at a time. */
	if (!has_stream(u) || u->pumping)
		return;
	u->pumping = true;
	do {
		while (more && has_stream(u) && rpc_stream_queued(u->stream) < PUMP_QUEUED)
			more = send_some(u);
	} while (more && has_stream(u) && !rpc_stream_wait_low(u->stream, PUMP_LOW));
	u->pumping = false;
}

/* ---- beats ---- */

static void on_beat(void *arg)
{
	struct uplink *u = arg;
	uint64_t silent_ns = clock_boottime_ns() - u->last_heard_ns;

	if (silent_ns > (uint64_t)u->beat_ms * SILENT_BEATS * NS_PER_MS + 5 * NS_PER_S) {
		rpc_stream_abort(u->stream, ROS2_TIMEOUT, "no answer to beats");
		return;
	}
	uplink_send_beat(u->a, &u->beat_skip);
	uplink_pump(u);
	loop_timer_in_ms(u->a->o.loop, &u->timer, u->beat_ms, on_beat, u);
}

/* ---- greeting ---- */

/* The first beat asks for contact: its answer comes behind the revocations that the controller has
 * to say. A stamp in Welcome itself, as older controllers send it, gives nothing. */
static void greeted(struct uplink *u)
{
	u->state = UPLINK_GREETED;
	spool_rewind(u->a->spool);
	state_untell_all(u->a->state);
	loop_timer_in_ms(u->a->o.loop, &u->timer, 0, on_beat, u);
}

static void go_live(struct uplink *u)
{
	u->state = UPLINK_LIVE;
	u->backoff_ms = BACKOFF_MIN_MS;
	u->last_words[0] = '\0';
	log_info("in contact with the controller, epoch %llu",
	         (unsigned long long)u->a->epoch.counter);
	prober_tell(u->a->prober);
	uplink_pump(u);
}

/* The disk may answer when the uplink is gone. */
struct greeting {
	struct agent *a;
	uint64_t generation;
};

static void epoch_durable(void *arg)
{
	struct greeting *g = arg;
	struct uplink *u = g->a->uplink;

	if (u && u->state == UPLINK_GREETED && u->generation == g->generation) {
		go_live(u);
		/* Contact that came meanwhile was not taken: ask for it now. */
		loop_timer_in_ms(u->a->o.loop, &u->timer, 0, on_beat, u);
	}
	free(g);
}

/* The revocations came before: what an earlier process may have forgotten is obeyed. */
void uplink_told_all(struct uplink *u)
{
	if (has_stream(u))
		loop_timer_in_ms(u->a->o.loop, &u->timer, 0, on_beat, u);
}

/* 0: the epoch on disk; 1: a newer one, or one that an earlier stream could not store. */
static int welcome_epoch(struct uplink *u, const Ros2__V1__Welcome *w, struct ros2_err *err)
{
	struct agent_epoch offered = {.counter = w->epoch ? w->epoch->counter : 0};
	int r;

	if (w->epoch && w->epoch->lineage.len == 16)
		memcpy(offered.lineage, w->epoch->lineage.data, 16);
	else
		offered.counter = 0;
	r = agent_epoch_check(&u->a->epoch, &offered, err);
	if (r < 0)
		return r;
	u->a->epoch = offered;
	return memcmp(&offered, &u->a->epoch_stored, sizeof(offered)) != 0;
}

static int store_epoch(struct uplink *u, struct ros2_err *err)
{
	struct greeting *g = calloc(1, sizeof(*g));

	if (!g)
		return ros2_err_set(err, -ENOMEM, "no memory");
	*g = (struct greeting){u->a, u->generation};
	if (persist_request(u->a->persist, epoch_durable, g) == 0)
		return 0;
	free(g);
	return ros2_err_set(err, -ENOMEM, "no memory");
}

static int check_welcome(struct uplink *u, const Ros2__V1__Welcome *w, struct ros2_err *err)
{
	if (u->state != UPLINK_OPENING)
		return ros2_err_named(err, ROS2_PROTOCOL, "a second Welcome");
	if (w->protocol != RPC_PROTOCOL_VERSION)
		return ros2_err_named(err, ROS2_VERSION,
		                      "the controller speaks protocol %u, this agent %u",
		                      w->protocol, RPC_PROTOCOL_VERSION);
	return welcome_epoch(u, w, err);
}

static void on_welcome(struct uplink *u, const Ros2__V1__Welcome *w)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int newer = check_welcome(u, w, &err);

	if (newer > 0 && store_epoch(u, &err) < 0)
		newer = err.code;
	if (newer < 0) {
		rpc_stream_abort(u->stream, err.status, "%s", err.msg);
		return;
	}
	u->beat_ms = w->beat_interval_ms ? w->beat_interval_ms : 1000;
	u->beat_ms = MAX(MIN(u->beat_ms, (uint32_t)BEAT_MAX_MS), (uint32_t)BEAT_MIN_MS);
	greeted(u);
	bundles_take(u->a->bundles, BUNDLE_INFRA, w->infra_bundle_pem.data,
	             w->infra_bundle_pem.len);
	bundles_take(u->a->bundles, BUNDLE_TENANT, w->tenant_bundle_pem.data,
	             w->tenant_bundle_pem.len);
	spool_ack(u->a->spool, &u->a->incarnation, w->audit_acked_seq);
	if (!newer)
		go_live(u);
}

/* ---- the stream ---- */

/* Everything but Welcome. What gives rights at once counts only on a live stream. */
static void on_other_message(struct uplink *u, const Ros2__V1__ControllerMessage *m)
{
	struct agent *a = u->a;

	switch (m->msg_case) {
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_CONTACT:
		if (m->contact->stamp && u->state == UPLINK_LIVE)
			uplink_on_stamp(a, m->contact->stamp);
		break;
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA:
		uplink_on_delta(a, m->delta);
		break;
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_GRANT_REPLY:
		if (u->state == UPLINK_LIVE)
			grants_on_reply(a->grants, m->grant_reply);
		break;
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_REVOKE:
		revoker_on_revoke(a, m->revoke);
		break;
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_AUDIT_ACK:
		uplink_on_audit_ack(a, m->audit_ack);
		uplink_pump(u);
		break;
	case ROS2__V1__CONTROLLER_MESSAGE__MSG_REPORT_REQUEST:
		report_on_request(a, m->report_request);
		break;
	default:
		log_debug("a message this version does not know: %d", (int)m->msg_case);
	}
}

static void on_message(struct rpc_stream *s, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__ControllerMessage *m = ros2_v1_agent_link_link_out(msg);
	struct uplink *u = user;

	u->last_heard_ns = clock_boottime_ns();
	if (m->msg_case == ROS2__V1__CONTROLLER_MESSAGE__MSG_WELCOME)
		on_welcome(u, m->welcome);
	else if (has_stream(u))
		on_other_message(u, m);
	else
		rpc_stream_abort(s, ROS2_PROTOCOL, "the controller did not begin with Welcome");
}

static void on_writable(struct rpc_stream *s, void *user)
{
	uplink_pump(user);
}

static void connect_now(void *arg);

static void wait_again(struct uplink *u, const struct ros2_err *why)
{
	uint32_t ms = u->backoff_ms + crypto_random_u32() % (u->backoff_ms / 2 + 1);

	u->state = UPLINK_WAITING;
	/* Said once, not each time: a controller may be away for days. */
	if (strncmp(u->last_words, why->msg, sizeof(u->last_words) - 1) != 0) {
		snprintf(u->last_words, sizeof(u->last_words), "%.159s", why->msg);
		log_warn("no contact with the controller: %s: %s", ros2_status_to_str(why->status),
		         why->code ? why->msg : "the stream ended");
	}
	u->backoff_ms = MIN(u->backoff_ms * 2, (uint32_t)BACKOFF_MAX_MS);
	loop_timer_in_ms(u->a->o.loop, &u->timer, ms, connect_now, u);
}

static void on_closed(struct rpc_stream *s, const struct ros2_err *why, void *user)
{
	struct uplink *u = user;

	u->stream = NULL;
	u->generation++;
	loop_timer_stop(&u->timer);
	if (u->freeing)
		return;
	grants_on_lost(u->a->grants);
	if (u->reopening)
		return;
	wait_again(u, why);
	/* Who we are is not believed on this connection, and never will be. */
	if (why->status == ROS2_UNAUTHENTICATED) {
		u->stale = true;
		renewal_refused(u->renewal);
	}
}

static void give_up(void *arg)
{
	struct uplink *u = arg;

	rpc_stream_abort(u->stream, ROS2_TIMEOUT, "no Welcome within %d s", OPEN_TIMEOUT_MS / 1000);
}

static int open_channel(struct agent *a, struct rpc_channel **ret, struct ros2_err *err)
{
	char ca[PATH_MAX], cert[PATH_MAX], key[PATH_MAX], server[ROS2_SPIFFE_MAX * 2];
	struct rpc_channel_opts co = {.name = "uplink",
	                              .target = a->o.controller,
	                              .loop = a->o.loop,
	                              .ca_path = ca,
	                              .cert_path = cert,
	                              .key_path = key,
	                              .server_id = server,
	                              .server_id_is_prefix = true};

	agent_path(a, "infra-bundle.pem", ca);
	agent_path(a, "tls.crt", cert);
	agent_path(a, "tls.key", key);
	snprintf(server, sizeof(server), "spiffe://%s/controller/", a->o.identity.trust_domain);
	return rpc_channel_new(&co, ret, err);
}

/* Not from inside a callback of the channel. */
static int replace_channel(struct uplink *u, struct ros2_err *err)
{
	struct rpc_channel *fresh = NULL;
	int r = open_channel(u->a, &fresh, err);

	if (r < 0)
		return r;
	rpc_channel_set_trust(fresh, bundles_unwritten(u->a->bundles, BUNDLE_INFRA));
	u->reopening = true;
	rpc_channel_free(u->channel);
	u->reopening = false;
	u->channel = fresh;
	u->stale = false;
	return 0;
}

static void connect_now(void *arg)
{
	static const struct rpc_stream_ops ops = {
		.on_message = on_message, .on_writable = on_writable, .on_closed = on_closed};
	struct uplink *u = arg;
	struct rpc_stream_opts so = {.ops = &ops, .user = u, .queue_max = QUEUE_MAX};
	struct ros2_err err = ROS2_ERR_INIT;
	uint64_t renew_in_s;

	if (identity_check_certificate(u->a->o.state_dir, u->a->o.identity.name, &renew_in_s,
	                               &err) < 0 &&
	    !renewal_stands(u->renewal)) {
		wait_again(u, &err);
		return;
	}
	if (u->stale && replace_channel(u, &err) < 0) {
		wait_again(u, &err);
		return;
	}
	u->state = UPLINK_OPENING;
	rpc_channel_reset_backoff(u->channel);
	if (rpc_stream_open(u->channel, &ros2_v1_agent_link_link, NULL, &so, &u->stream, &err) <
	    0) {
		wait_again(u, &err);
		return;
	}
	u->last_heard_ns = clock_boottime_ns();
	loop_timer_in_ms(u->a->o.loop, &u->timer, OPEN_TIMEOUT_MS, give_up, u);
	uplink_send_hello(u->a, u->stream);
}

static void reopen_now(void *arg)
{
	struct uplink *u = arg;
	struct ros2_err err = ROS2_ERR_INIT;

	if (replace_channel(u, &err) < 0) {
		log_warn("new certificate: %s", err.msg);
		loop_timer_in_ms(u->a->o.loop, &u->reopen, REOPEN_RETRY_MS, reopen_now, u);
		return;
	}
	u->state = UPLINK_WAITING;
	loop_timer_in_ms(u->a->o.loop, &u->timer, 0, connect_now, u);
}

void uplink_reopen(struct uplink *u)
{
	/* Not from inside a callback of the channel. */
	loop_timer_in_ms(u->a->o.loop, &u->reopen, 0, reopen_now, u);
}

void uplink_abort(struct uplink *u, enum ros2_status status, const char *words)
{
	if (has_stream(u))
		rpc_stream_abort(u->stream, status, "%s", words);
}

struct rpc_channel *uplink_channel(const struct uplink *u)
{
	return u->channel;
}

int uplink_new(struct agent *a, struct uplink **ret, struct ros2_err *err)
{
	struct uplink *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return ros2_err_set(err, -ENOMEM, "no memory for the uplink");
	u->a = a;
	u->backoff_ms = BACKOFF_MIN_MS;
	u->beat_ms = 1000;
	r = open_channel(a, &u->channel, err);
	if (!r && renewal_new(a, &u->renewal) < 0)
		r = ros2_err_set(err, -ENOMEM, "no memory for the uplink");
	if (r < 0) {
		uplink_free(u);
		return r;
	}
	*ret = u;
	return 0;
}

void uplink_start(struct uplink *u)
{
	loop_timer_in_ms(u->a->o.loop, &u->timer, 0, connect_now, u);
}

void uplink_free(struct uplink *u)
{
	if (!u)
		return;
	u->freeing = true;
	loop_timer_stop(&u->timer);
	loop_timer_stop(&u->reopen);
	rpc_channel_free(u->channel); /* runs what is open with CANCELLED */
	renewal_free(u->renewal);
	free(u);
}
