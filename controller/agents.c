/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents: identity as stored, connection and contact as seen. A beat is never stored; contact lost
 * and regained are recorded once each.
 *
 *   away ──hello──▶ connected ──stream ends──▶ away
 *   contact ──no beat for CTL_CONTACT_LOST_MS──▶ lost ──beat──▶ contact
 */
#include "controller/ctl.h"
#include "policy/limits.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

#define DEFAULT_CONTACT_LIMIT_MS 600000 /* of an agent without tenants */

struct ctl_agent *ctl_agent_new(struct ctl *c, struct ctl_object *o)
{
	struct ctl_agent *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->obj = o;
	a->ctl = c;
	/* Another process may have echoed a stamp until just before this one began. */
	a->last_contact_ns = c->started_ns;
	list_init(&a->unacked);
	list_init(&a->replies);
	list_init(&a->bulk);
	list_init(&a->in_outbox);
	list_init(&a->grants);
	return a;
}

void ctl_agent_free(struct ctl_agent *a)
{
	if (!a)
		return;
	loop_timer_stop(&a->contact_timer);
	if (a->link) {
		a->ctl->agents_connected--;
		link_detach(a->link, ROS2_REVOKED, "the agent was deleted");
	}
	outbox_forget(a);
	ctl_rollout_free(a);
	ctl_origins_free(a);
	ctl_probes_free(a);
	free(a->targets);
	free(a);
}

int ctl_agent_load(struct ctl *c, const struct store_agent *row)
{
	struct ctl_agent *a = ctl_agent_uid(c, &row->uid);

	if (!a)
		return 0; /* its document is gone: nothing to remember */
	a->enrolled = a->from_store = row->enrolled;
	a->isolated = row->isolated;
	memcpy(a->spki, row->spki_sha256, sizeof(a->spki));
	memcpy(a->prev_spki, row->prev_spki_sha256, sizeof(a->prev_spki));
	snprintf(a->cert_serial, sizeof(a->cert_serial), "%s", row->cert_serial);
	a->cert_not_after_unix_s = row->cert_not_after_unix_s;
	a->enrolled_unix_ns = row->enrolled_unix_ns;
	a->isolated_since_unix_ns = row->isolated_since_unix_ns;
	snprintf(a->isolated_reason, sizeof(a->isolated_reason), "%s", row->isolated_reason);
	a->contact_lost = a->enrolled;
	return 0;
}

void ctl_agent_row(struct store_txn *t, const struct ctl_agent *a, struct store_agent *row)
{
	*row = (struct store_agent){
		.uid = a->obj->uid,
		.name = store_txn_str(t, a->obj->name),
		.enrolled = a->enrolled,
		.isolated = a->isolated,
		.cert_serial = store_txn_str(t, a->cert_serial),
		.cert_not_after_unix_s = a->cert_not_after_unix_s,
		.enrolled_unix_ns = a->enrolled_unix_ns,
		.isolated_reason = store_txn_str(t, a->isolated_reason),
		.isolated_since_unix_ns = a->isolated_since_unix_ns,
	};
	memcpy(row->spki_sha256, a->spki, sizeof(a->spki));
	memcpy(row->prev_spki_sha256, a->prev_spki, sizeof(a->prev_spki));
}

/* @who: the agent for what it does, the controller for what it notices. */
static void record(struct ctl_agent *a, const struct ctl_caller *who, const char *action,
                   const char *reason)
{
	struct store_txn *t = store_txn_new();
	struct store_draft *d = ctl_audit(t, who, action, STORE_AGENT, a->obj->name, &a->obj->uid);
	char incarnation[ROS2_UID_STR_LEN];

	d->reason = store_txn_str(t, reason);
	ros2_uid_to_str(&a->incarnation, incarnation);
	store_draft_detail(t, d, "incarnation", incarnation);
	if (a->link)
		d->peer = store_txn_str(t, link_peer(a->link));
	ctl_audit_submit(a->ctl, t, action);
}

/* ---- contact ---- */

static void contact_due(void *arg)
{
	struct ctl_agent *a = arg;

	if (a->contact_lost)
		return;
	a->contact_lost = true;
	log_warn("agent %s: no beat for %d ms", a->obj->name, CTL_CONTACT_LOST_MS);
	record(a, &ctl_system, "agent.contact.lost",
	       a->link ? "connected, but no beat" : "not connected");
}

static void expect_beat(struct ctl_agent *a)
{
	loop_timer_in_ms(a->ctl->loop, &a->contact_timer, CTL_CONTACT_LOST_MS, contact_due, a);
}

void ctl_agent_contact(struct ctl_agent *a, const struct clock_stamp *stamp)
{
	a->stamp = *stamp;
	a->last_beat_unix_ns = clock_unix_ns();
	a->last_contact_ns = clock_boottime_ns();
	a->ctl->beats++;
	expect_beat(a);
	if (!a->contact_lost)
		return;
	a->contact_lost = false;
	record(a, &ctl_system, "agent.contact.regained", "");
}

/* ---- conditions ---- */

const char *const ctl_agent_conditions[] = {
	"DiskFull", "StateReadOnly", "RecordsPending", "SpoolDropping",
	"Frozen",   "TargetLost",    "ReloadFailed",   NULL};

void ctl_agent_conditions_begin(struct ctl_agent *a)
{
	a->n_conditions = 0;
}

void ctl_agent_condition(struct ctl_agent *a, const char *name, const char *reason,
                         uint64_t since_unix_ns)
{
	const char *const *known = ctl_agent_conditions;
	struct ctl_condition *c = &a->conditions[a->n_conditions];

	while (*known && strcmp(*known, name) != 0)
		known++;
	if (!*known || a->n_conditions == CTL_CONDITIONS_MAX)
		return;
	for (size_t i = 0; i < a->n_conditions; i++)
		if (a->conditions[i].name == *known)
			return;
	a->n_conditions++;
	c->name = *known;
	c->since_unix_ns = since_unix_ns;
	snprintf(c->reason, sizeof(c->reason), "%s", reason);
	for (char *p = c->reason; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
}

struct ctl_target *ctl_agent_targets_begin(struct ctl_agent *a, size_t n, uint32_t left_out)
{
	uint32_t too_many = n > CTL_TARGETS_MAX ? (uint32_t)(n - CTL_TARGETS_MAX) : 0;

	n -= too_many;
	if (n != a->n_targets) {
		free(a->targets);
		a->targets = n ? calloc(n, sizeof(*a->targets)) : NULL;
	}
	a->n_targets = a->targets ? n : 0;
	too_many += (uint32_t)(n - a->n_targets);
	a->targets_left_out = left_out > UINT32_MAX - too_many ? UINT32_MAX : left_out + too_many;
	return a->targets;
}

/* From the last echo sent, plus 0.1 % for the agent's clock. */
uint64_t ctl_contact_until_ns(const struct ctl_agent *a, uint64_t limit_ms)
{
	uint64_t limit = clock_add_ns(limit_ms * NS_PER_MS, limit_ms * NS_PER_MS / 1000);

	return clock_add_ns(a->last_contact_ns, limit);
}

uint64_t ctl_unix_of(uint64_t boottime_ns)
{
	uint64_t now = clock_boottime_ns();

	return clock_add_ns(clock_unix_ns(), MAX(boottime_ns, now) - now);
}

static uint64_t limit_of(const struct ctl_object *tenant, const struct ctl_agent *a, bool placed)
{
	const struct ctl_rollout *r = ctl_rollout_find(a, STORE_TENANT, &tenant->uid);
	uint64_t limit_ms = placed ? tenant->policy.limits.contact_limit_ms : 0;

	if (ctl_agent_unheard(a))
		return limit_fields[LIMIT_CONTACT].max;
	return r ? MAX(limit_ms, r->limit_ms) : limit_ms;
}

uint64_t ctl_contact_limit_ms(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	return limit_of(tenant, a, ctl_placed(tenant, a));
}

void ctl_agents_sum(const struct ctl *c, struct ctl_agent_sum *v, size_t n)
{
	struct ctl_object *o, *tmp;

	for (size_t i = 0; i < n; i++) {
		v[i].tenants = 0;
		/* Also of tenants that were deleted. */
		v[i].contact_limit_ms = ctl_agent_unheard(v[i].agent)
		                                ? limit_fields[LIMIT_CONTACT].max
		                                : v[i].agent->gone_limit_ms;
	}
	HASH_ITER (by_key, c->by_key, o, tmp)
		for (size_t i = 0; o->kind == STORE_TENANT && i < n; i++) {
			bool placed = ctl_placed(o, v[i].agent);

			v[i].tenants += placed;
			v[i].contact_limit_ms =
				MAX(v[i].contact_limit_ms, limit_of(o, v[i].agent, placed));
		}
	for (size_t i = 0; i < n; i++)
		if (!v[i].contact_limit_ms)
			v[i].contact_limit_ms = DEFAULT_CONTACT_LIMIT_MS;
}

int ctl_agents_list(const struct ctl *c, struct ctl_agents *ret)
{
	struct ctl_agents all = {.v = NULL};
	struct ctl_object *o, *tmp;
	size_t cap = 0;

	HASH_ITER (by_key, c->by_key, o, tmp) {
		if (!o->agent)
			continue;
		if (all.n == cap) {
			struct ctl_agent **more;

			cap = cap ? 2 * cap : 64;
			more = reallocarray(all.v, cap, sizeof(*more));
			if (!more) {
				free(all.v);
				return -ENOMEM;
			}
			all.v = more;
		}
		all.v[all.n++] = o->agent;
	}
	*ret = all;
	return 0;
}

uint64_t ctl_agent_contact_limit_ms(const struct ctl_agent *a)
{
	struct ctl_agent_sum sum = {.agent = a};
	const struct ctl_rollout *r;
	uint64_t limit_ms;

	ctl_agents_sum(a->ctl, &sum, 1);
	limit_ms = sum.contact_limit_ms;
	/* It may have tenants that are no more. */
	for (r = a->rollout; r; r = r->hh.next)
		if (r->key.kind == STORE_TENANT)
			limit_ms = MAX(limit_ms, r->limit_ms);
	return limit_ms;
}

/* ---- connection ---- */

void ctl_agent_connected(struct ctl_agent *a, struct link *l)
{
	struct ctl_caller who;

	a->link = l;
	a->stream++;
	who = ctl_agent_caller(a);
	ctl_agent_conditions_begin(a);
	ctl_agent_targets_begin(a, 0, 0);
	ctl_forward_begin(a);
	a->ctl->agents_connected++;
	log_info("agent %s connected from %s", a->obj->name, link_peer(l));
	record(a, &who, "agent.connect", a->software);
	a->owes = ctl_revocations_resend(a);
	ctl_grants_heard(a);
	ctl_rollout_sync(a);
	outbox_initial(a);
	outbox_flush(a->ctl);
	if (!a->contact_timer.loop) /* many hellos and no beat are no contact */
		expect_beat(a);
}

void ctl_agent_disconnected(struct ctl_agent *a, const char *why)
{
	log_info("agent %s disconnected: %s", a->obj->name, why);
	outbox_forget(a);
	record(a, &ctl_system, "agent.disconnect", why);
	a->link = NULL;
	a->initial_due = false;
	a->ctl->agents_connected--;
	a->sessions = a->leases = 0;
	ctl_rollout_reset(a);
}
