/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of the domain: objects, grants, outcomes, conditions, as messages. Reads only. */
#include "controller/svc_show_priv.h"
#include <stdio.h>
#include <string.h>

static uint64_t lost; /* loop thread */

uint64_t show_lost(void)
{
	return lost;
}

void show_lose(void)
{
	lost++;
}

bool show_is_whole(struct rpc_call *call, uint64_t lost_before)
{
	if (lost == lost_before)
		return true;
	rpc_call_fail(call, ROS2_BUSY, "out of memory for the answer: ask again");
	return false;
}

char *show_str(const char *s)
{
	char *copy = s && *s ? strdup(s) : NULL;

	lost += !copy && s && *s;
	return copy ? copy : (char *)protobuf_c_empty_string;
}

ProtobufCBinaryData show_bytes(const void *p, size_t n)
{
	ProtobufCBinaryData b = {0};

	if (n)
		b.data = malloc(n);
	lost += n && !b.data;
	if (b.data) {
		memcpy(b.data, p, n);
		b.len = n;
	}
	return b;
}

void show_append(void ***list, size_t *n, ProtobufCMessage *item)
{
	void **more = item ? reallocarray(*list, *n + 1, sizeof(*more)) : NULL;

	if (!more) {
		lost++;
		if (item)
			protobuf_c_message_free_unpacked(item, NULL);
		return;
	}
	*list = more;
	more[(*n)++] = item;
}

#define NEW(type, init)                                                                            \
	({                                                                                         \
		type *m_ = malloc(sizeof(*m_));                                                    \
		lost += !m_;                                                                       \
		if (m_)                                                                            \
			init(m_);                                                                  \
		m_;                                                                                \
	})

Ros2__V1__Condition *show_condition(const char *name, bool status, const char *reason,
                                    uint64_t since_unix_ns)
{
	Ros2__V1__Condition *c = NEW(Ros2__V1__Condition, ros2__v1__condition__init);

	if (!c)
		return NULL;
	c->name = show_str(name);
	c->status = status;
	c->reason = show_str(reason);
	c->since_unix_ns = since_unix_ns;
	return c;
}

static Ros2__V1__ProbeFinding *show_finding(enum probe_property p, const struct probe_finding *f)
{
	Ros2__V1__ProbeFinding *m = NEW(Ros2__V1__ProbeFinding, ros2__v1__probe_finding__init);

	if (!m)
		return NULL;
	m->property = p;
	m->result = f->result;
	m->seen = show_str(f->seen);
	return m;
}

static Ros2__V1__ProbeSubject *show_probe(const struct probe_subject *s)
{
	Ros2__V1__ProbeSubject *m = NEW(Ros2__V1__ProbeSubject, ros2__v1__probe_subject__init);

	if (!m)
		return NULL;
	m->name = show_str(s->name);
	m->transport = show_str(s->transport);
	m->device = show_str(s->device);
	m->firmware = show_str(s->firmware);
	m->kernel = show_str(s->kernel);
	m->tried_unix_ns = s->tried_unix_ns;
	m->revoke_p50_ns = s->revoke_p50_ns;
	m->revoke_p99_ns = s->revoke_p99_ns;
	m->key_bits = s->key_bits;
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		SHOW_APPEND(m->findings, m->n_findings,
		            show_finding((enum probe_property)i, &s->findings[i]));
	return m;
}

static void show_probes(const struct ctl_agent *a, Ros2__V1__AgentInfo *i)
{
	const struct probe_subject *v;
	size_t n;

	v = ctl_probes(a, &n);
	for (size_t k = 0; k < n; k++)
		SHOW_APPEND(i->probes, i->n_probes, show_probe(&v[k]));
}

static Ros2__V1__TargetInfo *show_target(const struct ctl_target *t)
{
	Ros2__V1__TargetInfo *m = NEW(Ros2__V1__TargetInfo, ros2__v1__target_info__init);

	if (!m)
		return NULL;
	m->engine = show_str(t->engine);
	m->tenant = show_str(t->tenant);
	m->state = show_str(t->state);
	m->lost = t->lost;
	m->since_unix_ns = t->since_unix_ns;
	m->reason = show_str(t->reason);
	return m;
}

/* As its conditions: of a time that is over when it is not connected. */
static void show_targets(const struct ctl_agent *a, Ros2__V1__AgentInfo *i)
{
	if (!a->link)
		return;
	i->targets_left_out = a->targets_left_out;
	for (size_t k = 0; k < a->n_targets; k++)
		SHOW_APPEND(i->targets, i->n_targets, show_target(&a->targets[k]));
}

static Ros2__V1__AgentInfo *show_agent(struct ctl_agent *a, const struct ctl_agent_sum *sum,
                                       bool whole)
{
	Ros2__V1__AgentInfo *i = NEW(Ros2__V1__AgentInfo, ros2__v1__agent_info__init);

	if (!i)
		return NULL;
	i->enrolled = a->enrolled;
	i->connected = a->link != NULL;
	i->isolated = a->isolated;
	if (a->link)
		i->incarnation = show_bytes(a->incarnation.b, ROS2_UID_LEN);
	i->last_beat_unix_ns = a->last_beat_unix_ns;
	if (a->enrolled)
		i->contact_until_unix_ns =
			ctl_unix_of(ctl_contact_until_ns(a, sum->contact_limit_ms));
	i->address = show_str(a->address);
	i->version = show_str(a->software);
	i->sessions = a->sessions;
	i->leases = a->leases;
	i->cert_not_after_unix_s = (uint64_t)a->cert_not_after_unix_s;
	i->spool_records = a->spool_records;
	i->tenants = sum->tenants;
	if (whole) {
		show_probes(a, i);
		show_targets(a, i);
	}
	return i;
}

static Ros2__V1__TenantInfo *show_tenant(const struct ctl_agents *agents,
                                         const struct ctl_object *t)
{
	Ros2__V1__TenantInfo *i = NEW(Ros2__V1__TenantInfo, ros2__v1__tenant_info__init);

	if (!i)
		return NULL;
	i->revoked = t->revoked;
	i->grants = t->n_grants;
	i->contact_limit_ms = t->policy.limits.contact_limit_ms;
	for (size_t k = 0; k < agents->n; k++) {
		char **more, *name;

		if (!ctl_placed(t, agents->v[k]))
			continue;
		more = reallocarray(i->agents, i->n_agents + 1, sizeof(*more));
		if (more)
			i->agents = more;
		name = more ? strdup(agents->v[k]->obj->name) : NULL;
		if (!name) {
			lost++;
			break;
		}
		i->agents[i->n_agents++] = name;
	}
	return i;
}

static void show_rollout(struct svc *s, const struct ctl_object *o, Ros2__V1__ObjectInfo *i)
{
	struct ctl_object *a, *tmp;

	HASH_ITER (by_key, s->ctl->by_key, a, tmp) {
		const struct ctl_rollout *r =
			a->agent ? ctl_rollout_get(a->agent, o->kind, &o->uid, false) : NULL;
		Ros2__V1__Rollout *m;

		if (!r)
			continue;
		m = NEW(Ros2__V1__Rollout, ros2__v1__rollout__init);
		if (!m)
			return;
		m->agent = show_str(a->name);
		m->sent_version = r->sent;
		m->received_version = r->received;
		m->applied_version = r->applied;
		m->failed_reason = show_str(r->failed_reason);
		SHOW_APPEND(i->rollout, i->n_rollout, m);
	}
}

/* Agents where it would be, were it not for what it requires: the first says why. */
static void show_unmet(const struct ctl_agents *agents, const struct ctl_object *tenant,
                       Ros2__V1__ObjectInfo *i)
{
	uint32_t required = tenant->doc->tenant->require;
	char why[200] = "", all[320];
	const char *first = "";
	unsigned n = 0;

	if (!required)
		return;
	for (size_t k = 0; k < agents->n; k++) {
		struct ctl_agent *a = agents->v[k];

		if (!ctl_chosen(tenant, a) || ctl_probes_meet(a, required))
			continue;
		if (!n++) {
			first = a->obj->name;
			ctl_probes_why_not(a, required, why, sizeof(why));
		}
	}
	if (n == 1)
		snprintf(all, sizeof(all), "not placed on %s: %s", first, why);
	else
		snprintf(all, sizeof(all), "not placed on %u agents; %s: %s", n, first, why);
	SHOW_APPEND(i->conditions, i->n_conditions,
	            show_condition("RequirementsUnmet", n > 0, n ? all : "", 0));
}

static void show_conditions(const struct ctl_agents *agents, const struct ctl_object *o,
                            Ros2__V1__ObjectInfo *i)
{
	const struct ctl_agent *a = o->agent;

	if (o->kind == STORE_TENANT) {
		SHOW_APPEND(
			i->conditions, i->n_conditions,
			show_condition("Revoked", o->revoked, o->reason, o->state_since_unix_ns));
		show_unmet(agents, o, i);
		return;
	}
	if (!a)
		return;
	SHOW_APPEND(i->conditions, i->n_conditions,
	            show_condition("Ready", a->link && !a->contact_lost && !a->isolated,
	                           !a->enrolled      ? "not enrolled"
	                           : a->isolated     ? "isolated"
	                           : !a->link        ? "not connected"
	                           : a->contact_lost ? "no beat"
	                                             : "",
	                           a->last_beat_unix_ns));
	SHOW_APPEND(i->conditions, i->n_conditions,
	            show_condition("Isolated", a->isolated, a->isolated_reason,
	                           a->isolated_since_unix_ns));
	/* What it said last is of a time that is over when it is not connected. */
	for (size_t k = 0; a->link && k < a->n_conditions; k++)
		SHOW_APPEND(i->conditions, i->n_conditions,
		            show_condition(a->conditions[k].name, true, a->conditions[k].reason,
		                           a->conditions[k].since_unix_ns));
}

Ros2__V1__ObjectInfo *show_object(struct svc *s, const struct ctl_object *o,
                                  const struct ctl_agent_sum *sum, const struct ctl_agents *agents,
                                  bool whole)
{
	Ros2__V1__ObjectInfo *i = NEW(Ros2__V1__ObjectInfo, ros2__v1__object_info__init);

	if (!i)
		return NULL;
	i->kind = (Ros2__V1__ObjectKind)o->kind;
	i->name = show_str(o->name);
	i->uid = show_bytes(o->uid.b, ROS2_UID_LEN);
	i->version = o->version;
	i->created_unix_ns = o->created_unix_ns;
	i->updated_unix_ns = o->updated_unix_ns;
	if (whole) {
		i->yaml = show_bytes(o->doc->text, strlen(o->doc->text));
		show_rollout(s, o, i);
	}
	show_conditions(agents, o, i);
	if (o->kind == STORE_TENANT)
		i->tenant = show_tenant(agents, o);
	if (o->agent)
		i->agent = show_agent(o->agent, sum, whole);
	return i;
}

/* By the clock on the wall as it is now. Where that was put to no other time since, the same each
 * time it is asked. */
static uint64_t ends_at(const struct ctl_grant *g)
{
	uint64_t then = g->t.expires_unix_ns, now = ctl_unix_of(g->t.expires_ns);
	uint64_t between = now > then ? now - then : then - now;

	return g->overdue || between < NS_PER_S ? then : now;
}

Ros2__V1__GrantInfo *show_grant(const struct ctl_grant *g)
{
	Ros2__V1__GrantInfo *i = NEW(Ros2__V1__GrantInfo, ros2__v1__grant_info__init);

	if (!i)
		return NULL;
	i->grant_uid = show_bytes(g->uid.b, ROS2_UID_LEN);
	i->tenant = show_str(g->tenant->name);
	i->tenant_uid = show_bytes(g->tenant->uid.b, ROS2_UID_LEN);
	i->agent = show_str(g->agent->obj->name);
	i->principal = show_str(g->principal);
	i->state = show_str(
		store_grant_state_to_str(g->overdue ? STORE_GRANT_EXPIRED : STORE_GRANT_LIVE));
	i->max_keys = g->t.max_keys;
	i->max_bytes = g->t.max_bytes;
	i->access = show_str(policy_access_to_str(g->t.access));
	i->issued_unix_ns = g->issued_unix_ns;
	i->expires_unix_ns = ends_at(g);
	i->policy_version = g->t.policy_version;
	i->epoch_counter = g->t.epoch_counter;
	return i;
}

Ros2__V1__GrantInfo *show_stored_grant(struct svc *s, const struct store_grant *g)
{
	Ros2__V1__GrantInfo *i = NEW(Ros2__V1__GrantInfo, ros2__v1__grant_info__init);
	const struct ctl_object *t = ctl_find_uid(s->ctl, &g->tenant_uid);
	const struct ctl_object *a = ctl_find_uid(s->ctl, &g->agent_uid);

	if (!i)
		return NULL;
	i->grant_uid = show_bytes(g->uid.b, ROS2_UID_LEN);
	i->tenant = show_str(t ? t->name : g->tenant_gone);
	i->tenant_uid = show_bytes(g->tenant_uid.b, ROS2_UID_LEN);
	i->agent = show_str(a ? a->name : g->agent_gone);
	i->principal = show_str(g->principal);
	i->state = show_str(store_grant_state_to_str(g->state));
	i->max_keys = g->max_keys;
	i->max_bytes = g->max_bytes;
	i->access = show_str(policy_access_to_str(g->access));
	i->issued_unix_ns = g->issued_unix_ns;
	i->expires_unix_ns = g->ended_unix_ns ? g->ended_unix_ns : g->expires_unix_ns;
	i->policy_version = g->policy_version;
	i->epoch_counter = g->epoch_counter;
	return i;
}

static Ros2__V1__ReceiptState receipt_state(enum ctl_receipt_state s)
{
	if (s == CTL_CONFIRMED)
		return ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED;
	return s == CTL_DRAINING ? ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_DRAINING
	                         : ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_UNCONFIRMED;
}

static Ros2__V1__PendingKeys *show_pending(struct ctl *c, const struct ctl_pending *p)
{
	Ros2__V1__PendingKeys *m = NEW(Ros2__V1__PendingKeys, ros2__v1__pending_keys__init);
	const struct ctl_object *o = ctl_find_uid(c, &p->tenant_uid);

	if (!m)
		return NULL;
	m->tenant_uid = show_bytes(p->tenant_uid.b, ROS2_UID_LEN);
	m->tenant = show_str(o && o->kind == STORE_TENANT ? o->name : "");
	m->keys = p->keys;
	m->device = show_str(p->device);
	return m;
}

static Ros2__V1__RevokeOutcome *show_outcome(struct ctl *c, const struct ctl_revocation *r,
                                             const struct ctl_owed *o)
{
	Ros2__V1__RevokeOutcome *m = NEW(Ros2__V1__RevokeOutcome, ros2__v1__revoke_outcome__init);

	if (!m)
		return NULL;
	m->agent = show_str(o->agent);
	m->state = receipt_state(o->state);
	m->sessions = o->sessions;
	m->leases = o->leases;
	m->windows = o->windows;
	m->agent_receive_to_last_window_ns = o->last_window_ns;
	m->draining = o->draining;
	if (o->received_ns > r->committed_ns)
		m->controller_to_receipt_ns = o->received_ns - r->committed_ns;
	m->agent_receive_to_last_byte_ns = o->last_byte_ns;
	m->agent_receive_to_last_engine_ns = o->last_engine_ns;
	m->agent_receive_to_durable_ns = o->durable_ns;
	if (o->state == CTL_OWED)
		m->unconfirmed_until_unix_ns = ctl_unix_of(o->until_ns);
	for (uint32_t i = 0; i < o->n_pending; i++)
		SHOW_APPEND(m->pending, m->n_pending, show_pending(c, &o->pending[i]));
	m->pending_left_out = o->pending_left_out;
	return m;
}

size_t show_outcomes(struct ctl *c, const struct ctl_revocation *r, Ros2__V1__RevokeOutcome ***ret)
{
	const struct ctl_owed *o;
	size_t n = 0;

	*ret = NULL;
	list_for_each (&r->owed, o, link)
		SHOW_APPEND(*ret, n, show_outcome(c, r, o));
	return n;
}
