/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream of one agent. Before its hello is accepted nothing it says is acted on; afterwards
 * every message goes through one table. The agent's identity is its certificate: name, and the
 * public key it enrolled with; what it says about itself is compared with that.
 *
 *   opened ──hello accepted──▶ linked ──closed, replaced, isolated──▶ gone
 */
#include "controller/link_priv.h"
#include "controller/svc_priv.h"
#include "controller/test_switches.h"
#include "proto/ros2/v1/agentlink.rpc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "link"
#include "common/log.h"

#define IN_USE_MAX   4096
#define DRAFTS_MAX   512
#define REASON_SHOWN 400
#define PACE_LOW     4 /* messages in a stream's queue: more of a bulk waits for its reader */

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){.data = (uint8_t *)p, .len = n};
}

/* ---- sending ---- */

void link_send(struct link *l, const Ros2__V1__ControllerMessage *m)
{
	int r;

	if (l->ending)
		return;
	r = ros2_v1_agent_link_link_send_reply(l->stream, m);
	if (!r)
		return;
	l->ending = true;
	if (r == -ESHUTDOWN) /* it has ended, and on_closed is on its way */
		return;
	log_warn("agent %s does not read: its stream is ended (%d)", l->name, r);
	rpc_stream_abort(l->stream, ROS2_BUSY, "the agent does not read what it is sent");
}

bool link_has_enough(struct link *l)
{
	return l->ending || rpc_stream_wait_low(l->stream, PACE_LOW);
}

void link_cork(struct link *l, bool cork)
{
	if (cork)
		rpc_stream_cork(l->stream);
	else
		rpc_stream_uncork(l->stream);
}

void link_end(struct link *l, enum ros2_status status, const char *why)
{
	if (l->ending)
		return;
	l->ending = true;
	rpc_stream_close(l->stream, status, "%s", why);
}

void link_detach(struct link *l, enum ros2_status status, const char *why)
{
	report_agent_gone(l->svc, l->agent);
	l->agent = NULL;
	link_end(l, status, why);
}

const char *link_peer(const struct link *l)
{
	return rpc_stream_peer(l->stream)->address;
}

uint64_t link_next_nonce(struct link *l)
{
	return ++l->nonce;
}

static void fill_epoch(const struct ctl *c, Ros2__V1__Epoch *e)
{
	ros2__v1__epoch__init(e);
	e->lineage = bytes(c->epoch.lineage.b, ROS2_UID_LEN);
	e->counter = c->epoch.counter;
}

static void fill_stamp(const struct clock_stamp *s, Ros2__V1__Stamp *out)
{
	ros2__v1__stamp__init(out);
	out->boot_id = bytes(s->boot_id, 16);
	out->boottime_ns = s->boottime_ns;
}

uint64_t link_removals(struct link *l, const struct link_have *v, size_t n)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;
	Ros2__V1__HaveObject *have = calloc(n, sizeof(*have)), **ptrs = calloc(n, sizeof(*ptrs));

	if (!have || !ptrs) {
		link_end(l, ROS2_BUSY, "out of memory");
	} else {
		for (size_t i = 0; i < n; i++) {
			ros2__v1__have_object__init(&have[i]);
			have[i].kind = (Ros2__V1__ObjectKind)v[i].kind;
			have[i].uid = bytes(v[i].uid.b, ROS2_UID_LEN);
			have[i].version = v[i].version;
			ptrs[i] = &have[i];
		}
		d.nonce = link_next_nonce(l);
		d.removals = ptrs;
		d.n_removals = n;
		m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
		m.delta = &d;
		link_send(l, &m);
	}
	free(have);
	free(ptrs);
	return d.nonce;
}

void link_initial_done(struct link *l)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Delta d = ROS2__V1__DELTA__INIT;

	d.nonce = link_next_nonce(l);
	d.initial_done = true;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_DELTA;
	m.delta = &d;
	link_send(l, &m);
}

void link_grant_denied(struct link *l, uint64_t request_id, enum ros2_status status,
                       const char *words)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__GrantReply r = ROS2__V1__GRANT_REPLY__INIT;

	r.request_id = request_id;
	r.status = status;
	r.words = (char *)words;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_GRANT_REPLY;
	m.grant_reply = &r;
	link_send(l, &m);
}

void link_revoke(struct link *l, const struct ctl_revocation *r)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Revoke v = ROS2__V1__REVOKE__INIT;
	Ros2__V1__Epoch e;

	fill_epoch(l->svc->ctl, &e);
	v.revocation_uid = bytes(r->uid.b, ROS2_UID_LEN);
	v.kind = (Ros2__V1__ObjectKind)r->kind;
	v.uid = bytes(r->target_uid.b, ROS2_UID_LEN);
	v.version = r->version;
	v.epoch = &e;
	v.reason = (char *)r->reason;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_REVOKE;
	m.revoke = &v;
	link_send(l, &m);
}

void link_audit_ack(struct link *l, const struct ros2_uid *incarnation, uint64_t seq)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__AuditAck a = ROS2__V1__AUDIT_ACK__INIT;

	a.incarnation = bytes(incarnation->b, ROS2_UID_LEN);
	a.seq = seq;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_AUDIT_ACK;
	m.audit_ack = &a;
	link_send(l, &m);
}

/* ---- who it is ---- */

/* The agent whose certificate this is; NULL with words when the door stays closed. */
static struct ctl_agent *identify(struct svc *s, const struct rpc_peer *p, struct ros2_err *err)
{
	const char *path = NULL;
	size_t domain_len;
	struct ctl_agent *a;

	if (!ros2_spiffe_valid(p->spiffe_id, &domain_len, &path) ||
	    domain_len != strlen(s->cfg->trust_domain) ||
	    strncmp(p->spiffe_id + 9, s->cfg->trust_domain, domain_len) != 0 ||
	    strncmp(path, "/agent/", 7) != 0) {
		ros2_err_named(err, ROS2_DENIED,
		               "%s is not an agent of trust domain %s: this listener is for agents",
		               p->spiffe_id, s->cfg->trust_domain);
		return NULL;
	}
	a = ctl_agent(s->ctl, path + 7);
	if (!a || !a->enrolled) {
		ros2_err_named(err, ROS2_DENIED, "agent \"%s\" is not enrolled here", path + 7);
		return NULL;
	}
	if (!CTL_SWITCH(no_agent_key) && !crypto_equal(a->spki, p->spki_sha256, 32) &&
	    !crypto_equal(a->prev_spki, p->spki_sha256, 32)) {
		ros2_err_named(err, ROS2_DENIED,
		               "agent \"%s\" enrolled with another key: enrol again", path + 7);
		return NULL;
	}
	if (!CTL_SWITCH(no_isolation) && (a->isolated || a->deleting)) {
		ros2_err_named(err, ROS2_REVOKED, "agent \"%s\" is isolated", path + 7);
		return NULL;
	}
	return a;
}

static void refused(struct svc *s, const struct rpc_peer *p, const char *action,
                    const struct ros2_err *err)
{
	struct ctl_caller who = {.role = CTL_AGENT};
	char key[80];

	snprintf(who.spiffe, sizeof(who.spiffe), "%s", p->spiffe_id);
	snprintf(who.peer, sizeof(who.peer), "%s", p->address);
	snprintf(key, sizeof(key), "link/%.70s", p->spiffe_id);
	ctl_audit_denied(s->ctl, key, &who, action, NULL, "agent", p->spiffe_id, err->status,
	                 err->msg);
}

/* ---- hello ---- */

/* As it is in force; nothing of one that is empty. */
static ProtobufCBinaryData bundle(const struct config *cfg, enum config_bundle b)
{
	size_t len;
	const char *text = pki_trust_text(cfg->rights.trust[b], &len);

	return bytes(text, len);
}

/* No stamp: it would give time before the revocations that follow, and again with each stream that
 * is cut between the two. The answer to the first beat comes behind them. */
static void send_welcome(struct link *l, struct ctl_agent *a)
{
	const struct config *cfg = l->svc->cfg;
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Welcome w = ROS2__V1__WELCOME__INIT;
	Ros2__V1__Epoch e;

	fill_epoch(l->svc->ctl, &e);
	w.protocol = RPC_PROTOCOL_VERSION;
	w.epoch = &e;
	w.beat_interval_ms = CTL_BEAT_MS;
	w.audit_acked_seq = ctl_origin_acked(a, &a->incarnation);
	w.tenant_bundle_pem = bundle(cfg, CONFIG_TENANT);
	w.infra_bundle_pem = bundle(cfg, CONFIG_INFRA);
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_WELCOME;
	m.welcome = &w;
	link_send(l, &m);
}

/* Another stream of the same agent: the newer one counts. */
static void replace(struct ctl_agent *a)
{
	struct link *old = a->link;

	if (!old)
		return;
	ctl_agent_disconnected(a, "replaced by a newer connection");
	report_agent_gone(old->svc, a);
	old->agent = NULL;
	link_end(old, ROS2_CANCELLED, "replaced by a newer connection of the same agent");
}

static void on_hello(struct link *l, const Ros2__V1__AgentHello *h)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_agent *a = identify(l->svc, rpc_stream_peer(l->stream), &err);

	if (!a || link_check_hello(l, a, h, &err) < 0 || link_check_documents(l, h, &err) < 0) {
		refused(l->svc, rpc_stream_peer(l->stream), "agent.connect", &err);
		link_end(l, err.status, err.msg);
		return;
	}
	replace(a);
	if (!link_take_have(a, h)) {
		link_end(l, ROS2_BUSY, "out of memory");
		return;
	}
	l->agent = a;
	link_take_stamp(h->stamp, &a->stamp);
	ros2_uid_from_bytes(h->incarnation.data, h->incarnation.len, &a->incarnation);
	link_take_text(a->address, sizeof(a->address), h->tenant_address);
	link_take_text(a->software, sizeof(a->software), h->software);
	a->link = l;
	a->welcomed = true;
	send_welcome(l, a);
	ctl_agent_connected(a, l);
}

/* ---- the other messages ---- */

static void on_beat(struct link *l, const Ros2__V1__Beat *b)
{
	Ros2__V1__ControllerMessage m = ROS2__V1__CONTROLLER_MESSAGE__INIT;
	Ros2__V1__Contact c = ROS2__V1__CONTACT__INIT;
	struct ros2_uid in_use[IN_USE_MAX];
	struct ctl_agent *a = l->agent;
	struct clock_stamp stamp;
	Ros2__V1__Epoch e;
	Ros2__V1__Stamp st;
	size_t n = 0;

	/* Contact comes behind all revocations that it owes (docs/decisions/0045). */
	if (link_take_stamp(b->stamp, &stamp) < 0 || a->isolated || a->owes)
		return;
	ctl_agent_contact(a, &stamp);
	a->sessions = b->sessions;
	a->leases = b->leases;
	a->spool_records = b->spool_records;
	ctl_agent_conditions_begin(a);
	for (size_t i = 0; i < b->n_conditions; i++)
		if (b->conditions[i]->status)
			ctl_agent_condition(a, b->conditions[i]->name, b->conditions[i]->reason,
			                    b->conditions[i]->since_unix_ns);
	link_take_targets(a, b);
	fill_epoch(l->svc->ctl, &e);
	fill_stamp(&stamp, &st);
	c.epoch = &e;
	c.stamp = &st;
	m.msg_case = ROS2__V1__CONTROLLER_MESSAGE__MSG_CONTACT;
	m.contact = &c;
	link_send(l, &m);
	for (size_t i = 0; i < b->n_grants_in_use && n < IN_USE_MAX; i++)
		if (!ros2_uid_from_bytes(b->grants_in_use[i].data, b->grants_in_use[i].len,
		                         &in_use[n]))
			n++;
	ctl_grants_in_use(a, in_use, n);
}

static void on_state(struct link *l, const Ros2__V1__ObjectState *s)
{
	char reason[REASON_SHOWN + 1];
	struct ros2_uid u;

	link_take_text(reason, sizeof(reason), s->failed_reason);
	if (!ros2_uid_from_bytes(s->uid.data, s->uid.len, &u))
		ctl_rollout_state(l->agent, (enum store_kind)s->kind, &u, s->version, s->applied,
		                  reason);
}

static void on_grant_request(struct link *l, const Ros2__V1__GrantRequest *g)
{
	struct ctl_grant_ask ask = {
		.request_id = g->request_id, .principal = g->principal, .peer = g->peer};

	if (ros2_uid_from_bytes(g->tenant_uid.data, g->tenant_uid.len, &ask.tenant_uid) < 0 ||
	    link_take_stamp(g->stamp, &ask.stamp) < 0)
		link_grant_denied(l, g->request_id, ROS2_INVALID, "tenant uid or stamp is missing");
	else
		ctl_grant_request(l->agent, &ask);
}

static void on_release(struct link *l, const Ros2__V1__GrantRelease *g)
{
	struct ros2_uid u;

	if (!ros2_uid_from_bytes(g->grant_uid.data, g->grant_uid.len, &u))
		ctl_grant_release(l->agent, &u);
}

static void on_receipt(struct link *l, const Ros2__V1__Receipt *r)
{
	struct ctl_receipt in = {.durable = r->durable,
	                         .sessions = r->sessions,
	                         .leases = r->leases,
	                         .windows = r->windows,
	                         .draining = r->draining,
	                         .last_byte_ns = r->receive_to_last_byte_ns,
	                         .last_engine_ns = r->receive_to_last_engine_ns,
	                         .last_window_ns = r->receive_to_last_window_ns,
	                         .durable_ns = r->receive_to_durable_ns};

	link_take_pending(r, &in);
	if (!ros2_uid_from_bytes(r->revocation_uid.data, r->revocation_uid.len, &in.revocation_uid))
		ctl_receipt(l->agent, &in);
	free(in.pending);
}

static void take_draft(const Ros2__V1__AuditDraft *in, struct ctl_forward *f)
{
	const Ros2__V1__AuditRecord *r = in->record;
	struct store_draft *d = &f->draft;

	memset(f, 0, sizeof(*f));
	f->seq = in->seq;
	d->actor = r->actor;
	d->role = r->role;
	d->peer = r->peer;
	d->action = r->action;
	d->object_kind = r->object_kind;
	d->object_name = r->object_name;
	d->object_uid = r->object_uid;
	d->result = r->result >= ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK &&
	                            r->result <= ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_FAILED
	                    ? (enum store_audit_result)r->result
	                    : STORE_AUDIT_FAILED;
	d->status = r->status;
	d->reason = r->reason;
	d->policy_version = r->policy_version;
	d->tenant = r->tenant;
	ros2_uid_from_str(r->tenant_uid, &d->tenant_uid);
	f->claimed_agent_uid = r->origin ? r->origin->agent_uid : "";
	d->origin_time_unix_ns = r->origin ? r->origin->time_unix_ns : r->time_unix_ns;
	if (r->aggregate) {
		d->count = r->aggregate->count;
		d->first_unix_ns = r->aggregate->first_unix_ns;
		d->last_unix_ns = r->aggregate->last_unix_ns;
	}
	d->n_details = MIN(r->n_details, (size_t)STORE_DETAILS_MAX);
	for (size_t i = 0; i < d->n_details; i++) {
		d->details[i].key = r->details[i]->key;
		d->details[i].value = r->details[i]->value;
	}
}

static void on_audit(struct link *l, const Ros2__V1__AuditBatch *b)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_forward *v;
	struct ros2_uid incarnation;
	size_t n = 0;

	if (b->n_drafts > DRAFTS_MAX ||
	    ros2_uid_from_bytes(b->incarnation.data, b->incarnation.len, &incarnation) < 0) {
		link_end(l, ROS2_INVALID, "audit batch without incarnation, or too long");
		return;
	}
	v = calloc(b->n_drafts ? b->n_drafts : 1, sizeof(*v));
	for (size_t i = 0; v && i < b->n_drafts; i++)
		if (b->drafts[i]->record)
			take_draft(b->drafts[i], &v[n++]);
	if (!v || ctl_forward(l->svc->ctl, l->agent, &incarnation, v, n, &err) < 0)
		link_end(l, ROS2_BUSY, v ? err.msg : "out of memory");
	free(v);
}

static void on_message(struct rpc_stream *stream, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__AgentMessage *m = ros2_v1_agent_link_link_in(msg);
	struct link *l = rpc_stream_data(stream);

	if (!l || l->ending)
		return;
	if (!l->agent) {
		if (m->msg_case == ROS2__V1__AGENT_MESSAGE__MSG_HELLO)
			on_hello(l, m->hello);
		else
			link_end(l, ROS2_PROTOCOL, "the first message must be a hello");
		return;
	}
	switch (m->msg_case) {
	case ROS2__V1__AGENT_MESSAGE__MSG_BEAT:
		on_beat(l, m->beat);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_STATE:
		on_state(l, m->state);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST:
		on_grant_request(l, m->grant_request);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_GRANT_RELEASE:
		on_release(l, m->grant_release);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_RECEIPT:
		on_receipt(l, m->receipt);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_AUDIT:
		on_audit(l, m->audit);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_REPORT:
		report_in(l->svc, l->agent, m->report);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_ACK:
		ctl_rollout_acked(l->agent, m->ack->nonce);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_PROBE:
		link_on_probe(l, m->probe);
		break;
	case ROS2__V1__AGENT_MESSAGE__MSG_HELLO:
		link_end(l, ROS2_PROTOCOL, "a second hello on one stream");
		break;
	default:
		break; /* of a newer minor version: ignored */
	}
}

/* ---- open and close ---- */

static void on_open(struct rpc_stream *stream, const ProtobufCMessage *req, void *user)
{
	struct svc *s = user;
	const struct rpc_peer *p = rpc_stream_peer(stream);
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_agent *a = identify(s, p, &err);
	struct link *l;

	if (!a) {
		refused(s, p, "agent.connect", &err);
		rpc_stream_close(stream, err.status, "%s", err.msg);
		return;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		rpc_stream_close(stream, ROS2_BUSY, "out of memory");
		return;
	}
	l->stream = stream;
	l->svc = s;
	snprintf(l->name, sizeof(l->name), "%s", a->obj->name);
	snprintf(l->spiffe, sizeof(l->spiffe), "%s", p->spiffe_id);
	list_add_tail(&s->links, &l->all);
	rpc_stream_set_data(stream, l);
}

static void on_writable(struct rpc_stream *stream, void *user)
{
	struct link *l = rpc_stream_data(stream);

	if (l && l->agent)
		outbox_writable(l->agent);
}

static void on_half_close(struct rpc_stream *stream, void *user)
{
	struct link *l = rpc_stream_data(stream);

	if (l)
		link_end(l, ROS2_OK, "");
}

static void on_closed(struct rpc_stream *stream, const struct ros2_err *why, void *user)
{
	struct link *l = rpc_stream_data(stream);

	if (!l)
		return;
	l->ending = true;
	if (l->agent) {
		ctl_agent_disconnected(l->agent, why->code ? why->msg : "closed by the agent");
		report_agent_gone(l->svc, l->agent);
	}
	list_del(&l->all);
	free(l);
}

const struct rpc_stream_ops svc_link_ops = {
	.on_open = on_open,
	.on_message = on_message,
	.on_writable = on_writable,
	.on_half_close = on_half_close,
	.on_closed = on_closed,
};

void svc_close_links(struct svc *s)
{
	struct link *l;

	list_for_each (&s->links, l, all)
		link_end(l, ROS2_UNAVAILABLE, "the controller is stopping");
}

void svc_renew_links(struct svc *s)
{
	struct link *l;

	list_for_each (&s->links, l, all)
		link_end(l, ROS2_UNAVAILABLE, "the trust bundles have changed: connect again");
}

/* ---- renewal and enrolment ---- */

struct enrol_call {
	struct svc *s;
	struct rpc_call *call;
	struct ctl_caller who;
	struct ros2_uid agent_uid; /* in the gate for it */
	char agent[ROS2_NAME_MAX + 1], secret[80];
	void *csr; /* owned */
	size_t csr_len;
	bool renewal;
};

static void enrol_free(struct enrol_call *e)
{
	struct ctl_agent *a = ctl_agent_uid(e->s->ctl, &e->agent_uid);

	if (a)
		a->identity_waits = false;
	crypto_wipe(e->secret, sizeof(e->secret));
	free(e->csr);
	free(e);
}

static void enrol_reply(void *arg, const struct ros2_err *err, const struct ctl_enrolled *r)
{
	struct enrol_call *e = arg;
	const struct config *cfg = e->s->cfg;
	Ros2__V1__EnrolReply m = ROS2__V1__ENROL_REPLY__INIT;

	if (err->code) {
		rpc_call_fail_err(e->call, err);
	} else {
		m.agent_uid = bytes(r->agent_uid.b, ROS2_UID_LEN);
		m.trust_domain = (char *)cfg->trust_domain;
		m.cert_pem = bytes(r->cert_pem, strlen(r->cert_pem));
		m.infra_bundle_pem = bundle(cfg, CONFIG_INFRA);
		m.tenant_bundle_pem = bundle(cfg, CONFIG_TENANT);
		m.snapshot_key = bytes(cfg->snapshot_pub, ED25519_PUB_LEN);
		m.cert_not_after_unix_s = (uint64_t)r->not_after_unix_s;
		rpc_call_reply(e->call, &m.base);
	}
	enrol_free(e);
}

/* What is told of a distrusted authority is recorded where it is found (svc_refused.c). */
static struct ctl_agent *identify_again(struct enrol_call *e, struct ros2_err *err)
{
	struct ctl_agent *a;

	if (rpc_call_judge(e->call, err) < 0)
		return NULL;
	a = identify(e->s, rpc_call_peer(e->call), err);
	if (!a)
		refused(e->s, rpc_call_peer(e->call), "agent.renew", err);
	return a;
}

static void enrol_go(void *arg)
{
	struct enrol_call *e = arg;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_agent *a;

	if (!e->renewal) {
		ctl_enrol(e->s->ctl, &e->who, e->agent, e->secret, e->csr, e->csr_len, enrol_reply,
		          e);
		return;
	}
	/* Once more: while this waited, the agent may have enrolled with another key, because this
	 * one was stolen, and a reload may have taken its authority (docs/decisions/0034). */
	a = identify_again(e, &err);
	if (a) {
		ctl_renew(e->s->ctl, &e->who, a, e->csr, e->csr_len, enrol_reply, e);
		return;
	}
	ctl_gate_leave(e->s->ctl);
	rpc_call_fail_err(e->call, &err);
	enrol_free(e);
}

/* The places in the gate are everybody's: an agent has one of them. */
static void enrol_enter(struct enrol_call *e)
{
	struct ctl_agent *a = ctl_agent(e->s->ctl, e->agent);
	struct rpc_call *call = e->call;

	if (a->identity_waits) {
		enrol_free(e);
		rpc_call_fail(call, ROS2_BUSY,
		              "a certificate of this agent is being made: try again in a moment");
		return;
	}
	a->identity_waits = true;
	e->agent_uid = a->obj->uid;
	if (ctl_gate_enter(e->s->ctl, enrol_go, e) < 0) {
		enrol_free(e);
		rpc_call_fail(call, ROS2_BUSY,
		              "too many changes wait, of at most %d (fixed): try again in a moment",
		              CTL_GATE_MAX);
	}
}

/* A new token is an administrator's word, and opens once: whoever loops with a key that was stolen
 * does not use up the rate of who comes with one. */
static int enrol_check(struct enrol_call *e, struct ros2_err *err)
{
	struct ctl *c = e->s->ctl;
	bool again;
	int r = ctl_enrol_check(c, &e->who, e->agent, e->secret, e->csr, e->csr_len, &again, err);

	return r || !again ? r : link_check_rate(ctl_agent(c, e->agent), 0, err);
}

static void enrol_begin(struct svc *s, struct rpc_call *call, const char *agent, const char *secret,
                        const ProtobufCBinaryData *csr, bool renewal)
{
	struct enrol_call *e = calloc(1, sizeof(*e));
	const struct rpc_peer *p = rpc_call_peer(call);
	struct ros2_err err = ROS2_ERR_INIT;

	if (e)
		e->csr = malloc(csr->len + 1);
	if (!e || !e->csr) {
		free(e);
		rpc_call_fail(call, ROS2_BUSY, "out of memory");
		return;
	}
	e->s = s;
	e->call = call;
	e->renewal = renewal;
	e->csr_len = csr->len;
	memcpy(e->csr, csr->data, csr->len);
	((char *)e->csr)[csr->len] = '\0';
	snprintf(e->agent, sizeof(e->agent), "%s", agent);
	snprintf(e->secret, sizeof(e->secret), "%s", secret);
	e->who.role = CTL_AGENT;
	snprintf(e->who.spiffe, sizeof(e->who.spiffe), "%s", p->spiffe_id);
	snprintf(e->who.peer, sizeof(e->who.peer), "%s", p->address);
	if (!renewal && enrol_check(e, &err) < 0) {
		enrol_free(e);
		rpc_call_fail_err(call, &err);
		return;
	}
	enrol_enter(e);
}

static void on_renew(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__RenewRequest *q = ros2_v1_agent_link_renew_in(msg);
	struct svc *s = user;
	struct ros2_err err = ROS2_ERR_INIT;
	struct ctl_agent *a = identify(s, rpc_call_peer(call), &err);

	if (!a) {
		refused(s, rpc_call_peer(call), "agent.renew", &err);
		rpc_call_fail_err(call, &err);
	} else if (link_check_rate(a, 0, &err) < 0) {
		rpc_call_fail_err(call, &err);
	} else if (!q->csr_pem.len || q->csr_pem.len > 65536) {
		rpc_call_fail(call, ROS2_INVALID, "csr_pem is empty or longer than 64 KiB");
	} else {
		enrol_begin(s, call, a->obj->name, "", &q->csr_pem, true);
	}
}

static void on_enrol(struct rpc_call *call, const ProtobufCMessage *msg, void *user)
{
	const Ros2__V1__EnrolRequest *q = ros2_v1_enrol_enrol_in(msg);

	if (q->protocol != RPC_PROTOCOL_VERSION)
		rpc_call_fail(call, ROS2_VERSION, "agent speaks protocol %u, controller %u",
		              q->protocol, RPC_PROTOCOL_VERSION);
	else if (!ros2_name_valid(q->agent))
		rpc_call_fail(call, ROS2_INVALID, "agent is not a name (1 to 63 of a-z, 0-9, -)");
	else if (!q->csr_pem.len || q->csr_pem.len > 65536 || strlen(q->secret) > 79)
		rpc_call_fail(call, ROS2_INVALID, "csr_pem or secret has an impossible length");
	else
		enrol_begin(user, call, q->agent, q->secret, &q->csr_pem, false);
}

int svc_add_link(struct svc *s, struct rpc_server *server, struct ros2_err *err)
{
	const struct rpc_handler rows[] = {
		{.method = &ros2_v1_agent_link_link, .stream = &svc_link_ops, .user = s},
		{.method = &ros2_v1_agent_link_renew, .unary = on_renew, .user = s},
	};

	return rpc_server_add(server, &ros2_v1_agent_link_service, rows, ARRAY_SIZE(rows), err);
}

int svc_add_enrol(struct svc *s, struct rpc_server *server, struct ros2_err *err)
{
	const struct rpc_handler rows[] = {
		{.method = &ros2_v1_enrol_enrol, .unary = on_enrol, .user = s},
	};

	return rpc_server_add(server, &ros2_v1_enrol_service, rows, ARRAY_SIZE(rows), err);
}
