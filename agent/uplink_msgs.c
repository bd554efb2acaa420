/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What flows: hello, beats, states and audit drafts up; deltas, stamps and acknowledgements down.
 * A delta is acknowledged only when it is durable, on the stream it came on.
 */
#include "agent/health.h"
#include "agent/sessions.h"
#include "agent/targets.h"
#include "agent/uplink_priv.h"
#include "common/clock.h"
#include "common/utf8.h"
#include "common/util.h"
#include "dataplane/dp.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "uplink"
#include "common/log.h"

#define GRANTS_PER_BEAT 4096
#define AUDIT_PER_BATCH 256
#define AUDIT_BYTES     (512u * 1024u)
#define STATES_PER_TURN 32

/* A hello names every object; it has to fit into one message, or the agent could never connect. */
#define HAVE_BYTES_MAX 33u
_Static_assert(STATE_OBJECTS_MAX *HAVE_BYTES_MAX + 65536u <= 4u * 1024u * 1024u, "hello fits");

static ProtobufCBinaryData bytes(const void *p, size_t n)
{
	return (ProtobufCBinaryData){n, (uint8_t *)(uintptr_t)p};
}

/* ---- up ---- */

struct have_list {
	Ros2__V1__HaveObject *v;
	Ros2__V1__HaveObject **ptrs;
	struct ros2_uid *uids;
	size_t n, max;
};

static void add_have(void *arg, const struct state_have *h)
{
	struct have_list *l = arg;
	Ros2__V1__HaveObject *o;

	if (l->n == l->max)
		return;
	o = &l->v[l->n];
	l->uids[l->n] = h->uid;
	ros2__v1__have_object__init(o);
	o->kind = (Ros2__V1__ObjectKind)h->kind;
	o->uid = bytes(l->uids[l->n].b, 16);
	o->version = h->version;
	l->ptrs[l->n++] = o;
}

/* All that is here. Without the list the controller would not know what to take away from here. */
static bool list_have(struct agent *a, struct have_list *l)
{
	struct state_counts c;

	state_counts(a->state, &c);
	l->max = (size_t)c.tenants + c.engines + c.grants;
	l->v = calloc(l->max + 1, sizeof(*l->v));
	l->ptrs = calloc(l->max + 1, sizeof(Ros2__V1__HaveObject *));
	l->uids = calloc(l->max + 1, sizeof(*l->uids));
	if (!l->v || !l->ptrs || !l->uids)
		return false;
	state_each_have(a->state, add_have, l);
	return true;
}

static void free_have(struct have_list *l)
{
	free(l->v);
	free(l->ptrs);
	free(l->uids);
}

static void stamp_of(struct agent *a, struct clock_stamp *s, Ros2__V1__Stamp *m)
{
	*s = contact_stamp(&a->contact, clock_boottime_ns());
	ros2__v1__stamp__init(m);
	m->boot_id = bytes(s->boot_id, 16);
	m->boottime_ns = s->boottime_ns;
}

void uplink_send_hello(struct agent *a, struct rpc_stream *s)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AgentHello h = ROS2__V1__AGENT_HELLO__INIT;
	Ros2__V1__Stamp stamp;
	Ros2__V1__Epoch epoch = ROS2__V1__EPOCH__INIT;
	struct clock_stamp now;
	struct have_list l = {0};
	char address[300];
	int r = -ENOMEM;

	if (!list_have(a, &l))
		goto out;
	h.protocol = RPC_PROTOCOL_VERSION;
	h.software = (char *)"ros2-agent " ROS2_VERSION_STRING;
	h.agent_uid = bytes(a->o.identity.agent_uid.b, 16);
	h.incarnation = bytes(a->incarnation.b, 16);
	stamp_of(a, &now, &stamp);
	h.stamp = &stamp;
	if (a->epoch.counter) {
		epoch.lineage = bytes(a->epoch.lineage, 16);
		epoch.counter = a->epoch.counter;
		h.epoch = &epoch;
	}
	h.n_have = l.n;
	h.have = l.ptrs;
	snprintf(address, sizeof(address), "%.*s:%u",
	         (int)(strrchr(a->o.listen, ':') - a->o.listen), a->o.listen, agent_tenant_port(a));
	h.tenant_address = address;
	h.audit_next_seq = spool_next_seq(a->spool);
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_HELLO;
	m.hello = &h;
	r = rpc_stream_send(s, &m.base);
out:
	if (r == -ENOMEM)
		rpc_stream_abort(s, ROS2_BUSY, "no memory for a hello");
	else if (r < 0)
		rpc_stream_abort(s, ROS2_TOO_LARGE, "the hello with %zu objects was not taken",
		                 l.n);
	free_have(&l);
}

/* The conditions that hold. */
static size_t fill_conditions(const struct health *h, Ros2__V1__Condition *v,
                              Ros2__V1__Condition **ptrs)
{
	size_t n = 0;

	for (size_t i = 0; i < HEALTH_KINDS; i++) {
		const struct health_condition *c = health_condition(h, (enum health_kind)i);

		if (!c->is)
			continue;
		ros2__v1__condition__init(&v[n]);
		v[n].name = (char *)(uintptr_t)health_kind_to_str((enum health_kind)i);
		v[n].status = true;
		v[n].reason = (char *)(uintptr_t)c->reason;
		v[n].since_unix_ns = c->since_unix_ns;
		ptrs[n] = &v[n];
		n++;
	}
	return n;
}

/* Storage that is elsewhere: what is reached, and what is not. */
static void fill_targets(struct agent *a, Ros2__V1__Beat *b)
{
	static struct target v[TARGETS_MAX];
	static Ros2__V1__TargetInfo m[TARGETS_MAX], *ptrs[TARGETS_MAX];

	b->n_targets = targets_list(a->dp, v, &b->targets_left_out);
	b->targets = ptrs;
	for (size_t i = 0; i < b->n_targets; i++) {
		ros2__v1__target_info__init(&m[i]);
		m[i].engine = v[i].engine;
		m[i].tenant = v[i].tenant;
		m[i].state = v[i].state;
		m[i].lost = v[i].lost;
		m[i].since_unix_ns = v[i].since_unix_ns;
		m[i].reason = v[i].reason;
		ptrs[i] = &m[i];
	}
}

void uplink_send_beat(struct agent *a, size_t *skip)
{
	static struct ros2_uid uids[GRANTS_PER_BEAT];
	static ProtobufCBinaryData in_use[GRANTS_PER_BEAT];
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Beat b = ROS2__V1__BEAT__INIT;
	Ros2__V1__Stamp stamp;
	struct clock_stamp now;
	Ros2__V1__Condition conditions[HEALTH_KINDS], *ptrs[HEALTH_KINDS];
	size_t n = state_grants_in_use(a->state, *skip, uids, GRANTS_PER_BEAT);

	*skip = n == GRANTS_PER_BEAT ? *skip + n : 0;
	for (size_t i = 0; i < n; i++)
		in_use[i] = bytes(uids[i].b, 16);
	stamp_of(a, &now, &stamp);
	b.stamp = &stamp;
	b.sessions = sessions_live(a->sessions);
	b.leases = dp_lease_count(a->dp);
	b.spool_records = spool_unacked(a->spool);
	b.n_grants_in_use = n;
	b.grants_in_use = in_use;
	b.n_conditions = fill_conditions(a->health, conditions, ptrs);
	b.conditions = ptrs;
	fill_targets(a, &b);
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_BEAT;
	m.beat = &b;
	uplink_send(a->uplink, &m);
}

bool uplink_send_states(struct agent *a)
{
	struct state_report rep;

	for (int i = 0; i < STATES_PER_TURN; i++) {
		Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
		Ros2__V1__ObjectState s = ROS2__V1__OBJECT_STATE__INIT;

		if (!state_next_untold(a->state, &rep))
			return false;
		s.kind = (Ros2__V1__ObjectKind)rep.what.kind;
		s.uid = bytes(rep.what.uid.b, 16);
		s.version = rep.what.version;
		s.applied = rep.applied;
		s.failed_reason = rep.reason;
		m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
		m.state = &s;
		if (uplink_send(a->uplink, &m) < 0)
			return false;
		state_told(a->state, &rep);
	}
	return true;
}

/* -ENOMEM: a record that is whole found no room here. What cannot be read is left out: its seq
 * becomes a gap. */
static int add_drafts(const struct spool_batch *b, Ros2__V1__AuditDraft *drafts,
                      Ros2__V1__AuditDraft **ptrs, size_t *n)
{
	for (uint32_t i = 0; i < b->n; i++) {
		Ros2__V1__AuditDraft *d = &drafts[*n];
		ProtobufCMessage *m;
		int r = rpc_message_decode(&ros2__v1__audit_record__descriptor, b->v[i].p,
		                           b->v[i].len, &m, NULL);

		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		ros2__v1__audit_draft__init(d);
		d->seq = b->v[i].seq;
		d->record = (Ros2__V1__AuditRecord *)m;
		if (d->record->origin)
			d->record->origin->seq = d->seq;
		ptrs[(*n)++] = d;
	}
	return 0;
}

bool uplink_send_audit(struct agent *a)
{
	static struct spool_batch b;
	Ros2__V1__AuditDraft drafts[AUDIT_PER_BATCH], *ptrs[AUDIT_PER_BATCH];
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch batch = ROS2__V1__AUDIT_BATCH__INIT;
	bool sent = false;

	if (!spool_next(a->spool, AUDIT_PER_BATCH, AUDIT_BYTES, &b))
		return false;
	batch.incarnation = bytes(b.incarnation.b, 16);
	batch.drafts = ptrs;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &batch;
	/* A record left out would count as taken with the next that is: the next stream brings all.
	 */
	if (add_drafts(&b, drafts, ptrs, &batch.n_drafts) < 0)
		uplink_abort(a->uplink, ROS2_BUSY, "no memory for audit records");
	else
		sent = uplink_send(a->uplink, &m) == 0;
	for (size_t i = 0; i < batch.n_drafts; i++)
		ros2__v1__audit_record__free_unpacked(drafts[i].record, NULL);
	return sent;
}

/* ---- down ---- */

void uplink_on_stamp(struct agent *a, const Ros2__V1__Stamp *m)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct clock_stamp s;
	int r;

	if (m->boot_id.len != 16 || a->in_doubt)
		return;
	memcpy(s.boot_id, m->boot_id.data, 16);
	s.boottime_ns = m->boottime_ns;
	r = contact_echo(&a->contact, &s, &err);
	if (r < 0)
		log_warn("%s: it gives nothing", err.msg);
	if (r <= 0)
		return;
	dp_contact(a->dp, a->contact.last_ns);
	persist_contact(a->persist, false);
}

void uplink_on_audit_ack(struct agent *a, const Ros2__V1__AuditAck *ack)
{
	struct ros2_uid inc;

	if (!ros2_uid_from_bytes(ack->incarnation.data, ack->incarnation.len, &inc))
		spool_ack(a->spool, &inc, ack->seq);
}

int uplink_open_sealed(struct agent *a, const Ros2__V1__SealedObject *s, struct agent_object **ret,
                       struct ros2_err *err)
{
	size_t n = ros2__v1__sealed_object__get_packed_size(s);
	struct agent_object *o = NULL;
	AUTO_FREE uint8_t *p = NULL;
	int r;

	if (n > AGENT_SEALED_MAX)
		return ros2_err_named(err, ROS2_TOO_LARGE, "a sealed object of %zu bytes", n);
	p = malloc(n);
	if (!p)
		return ros2_err_set(err, -ENOMEM, "no memory for a sealed object");
	ros2__v1__sealed_object__pack(s, p);
	r = agent_object_open(&a->trust, &a->epoch, p, n, &o, err);
	if (r < 0)
		return r;
	if (o->epoch.counter > a->epoch.counter) {
		agent_object_free(o);
		return ros2_err_named(err, ROS2_PROTOCOL,
		                      "sealed object: of an epoch that was not "
		                      "announced");
	}
	if (o->epoch.counter > a->last_counter ||
	    (o->epoch.counter == a->last_counter && o->batch > a->last_batch)) {
		a->last_counter = o->epoch.counter;
		a->last_batch = o->batch;
	}
	*ret = o;
	return 0;
}

/* Tells the controller that an object it sent is not taken. The body is only used to name it.
 * -ENOMEM: it was not told. */
static int tell_refused(struct agent *a, const Ros2__V1__SealedObject *s,
                        const struct ros2_err *err)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ObjectState st = ROS2__V1__OBJECT_STATE__INIT;
	const Ros2__V1__AgentObject *o;
	ProtobufCMessage *body;
	char words[300];
	int r;

	log_error("an object from the controller is refused: %s: %s",
	          ros2_status_to_str(err->status), err->msg);
	r = rpc_message_decode(&ros2__v1__agent_object__descriptor, s->body.data, s->body.len,
	                       &body, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	o = (const Ros2__V1__AgentObject *)body;
	snprintf(words, sizeof(words), "%s: %.250s", ros2_status_to_str(err->status), err->msg);
	utf8_clean(words);
	st.kind = o->kind;
	st.uid = o->uid;
	st.version = o->version;
	st.failed_reason = words;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
	m.state = &st;
	uplink_send(a->uplink, &m);
	protobuf_c_message_free_unpacked(body, NULL);
	return 0;
}

struct delta_wait {
	struct agent *a;
	uint64_t nonce, generation;
	bool initial_done;
};

static void delta_durable(void *arg)
{
	struct delta_wait *d = arg;
	struct agent *a = d->a;
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Ack ack = ROS2__V1__ACK__INIT;

	ack.nonce = d->nonce;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_ACK;
	m.ack = &ack;
	if (d->generation == uplink_generation(a->uplink))
		uplink_send(a->uplink, &m);
	if (d->initial_done && !a->synced) {
		a->synced = true;
		agent_check_ready(a);
	}
	free(d);
	uplink_pump(a->uplink);
}

/* -ENOMEM: it has to come again. What is refused for what it is, the controller is told. */
static int take_upsert(struct agent *a, const Ros2__V1__SealedObject *s)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct agent_object *o;
	int r = uplink_open_sealed(a, s, &o, &err);

	if (!r)
		r = state_receive(a->state, o, &err);
	if (r == -ENOMEM)
		return r;
	return r < 0 ? tell_refused(a, s, &err) : 0;
}

void uplink_on_delta(struct agent *a, const Ros2__V1__Delta *m)
{
	struct delta_wait *d = calloc(1, sizeof(*d));
	bool whole = d;

	if (m->initial_done) {
		revoker_synced(a->revoker);
		if (a->in_doubt)
			uplink_told_all(a->uplink);
		a->in_doubt = false;
	}

	for (size_t i = 0; i < m->n_removals; i++) {
		const Ros2__V1__HaveObject *h = m->removals[i];
		struct ros2_uid uid;

		if (!ros2_uid_from_bytes(h->uid.data, h->uid.len, &uid))
			state_remove(a->state, (enum obj_kind)h->kind, &uid, h->version);
	}
	for (size_t i = 0; i < m->n_upserts; i++)
		whole &= take_upsert(a, m->upserts[i]) == 0;
	if (whole) {
		*d = (struct delta_wait){a, m->nonce, uplink_generation(a->uplink),
		                         m->initial_done};
		whole = persist_request(a->persist, delta_durable, d) == 0;
	} else {
		persist_request(a->persist, NULL, NULL);
	}
	if (whole)
		return;
	/* What there was memory for is obeyed; nothing is acknowledged, and all of it comes again.
	 */
	free(d);
	log_error("no memory for what the controller sent: it has to send it again");
	uplink_abort(a->uplink, ROS2_BUSY, "no memory for a delta");
}
