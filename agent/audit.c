/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes audit drafts. Must never put a key, a secret or payload into one: callers name leases by
 * lease id. The table of bounds is itself bounded: past KINDS_MAX tenant x kind pairs, denials
 * share one entry per kind.
 */
#include "agent/audit.h"
#include "agent/test_switches.h"
#include "common/hash.h"
#include "common/clock.h"
#include "common/util.h"
#include "proto/ros2/v1/audit.pb-c.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KINDS_MAX 4096

struct bound_key {
	struct ros2_uid tenant;
	char action[32];
	uint32_t status;
};

/* The last event of a kind, as the sample of a counted record. */
struct sample {
	char tenant[ROS2_NAME_MAX + 1], actor[ROS2_SPIFFE_MAX + 1], peer[64], reason[256];
	char object_kind[24], object_name[72], object_id[40];
	enum agent_audit_result result;
	uint64_t policy_version;
};

struct bound_entry {
	struct bound_key key;
	struct audit_bound bound;
	struct sample sample;
	UT_hash_handle hh;
};

struct agent_audit {
	struct agent_audit_opts o;
	char agent_uid[ROS2_UID_STR_LEN], incarnation[ROS2_UID_STR_LEN];
	struct bound_entry *bounds; /* owned */
	uint64_t lost, lost_told, lost_first_unix_ns, lost_last_unix_ns;
	bool telling; /* of the spool's first hole; waits for the disk */
	struct loop_timer tick;
};

bool audit_bound_pass(struct audit_bound *b, uint64_t n, uint64_t now_ns, uint64_t first_unix_ns,
                      uint64_t last_unix_ns)
{
	uint64_t second = now_ns / NS_PER_S;

	if (second != b->second) {
		b->second = second;
		b->in_second = 0;
	}
	if (b->individually < AUDIT_BOUND_FIRST || b->in_second < AUDIT_BOUND_PER_S) {
		/* The first hundred do not use up the second they happen in. */
		if (b->individually++ >= AUDIT_BOUND_FIRST)
			b->in_second++;
		return true;
	}
	if (!b->held) {
		b->held_since_ns = now_ns;
		b->first_unix_ns = first_unix_ns;
	}
	b->held += n;
	b->last_unix_ns = last_unix_ns;
	return false;
}

bool audit_bound_due(const struct audit_bound *b, uint64_t now_ns)
{
	return b->held && now_ns >= b->held_since_ns + AUDIT_BOUND_HOLD_NS;
}

void audit_bound_taken(struct audit_bound *b)
{
	b->held = 0;
}

/* ---- the record ---- */

/* Length of the UTF-8 sequence at @s, 0 when it is none (also overlong, surrogates, control bytes).
 */
static size_t utf8_len(const unsigned char *s)
{
	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7f;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		return (s[1] & 0xc0) == 0x80 ? 2 : 0;
	if ((s[0] & 0xf0) == 0xe0) {
		if ((s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
			return 0;
		if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))
			return 0;
		return 3;
	}
	if (s[0] >= 0xf0 && s[0] <= 0xf4) {
		if ((s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 || (s[3] & 0xc0) != 0x80)
			return 0;
		if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
			return 0;
		return 4;
	}
	return 0;
}

static char *clean(const char *in, char *out, size_t size)
{
	const unsigned char *s = (const unsigned char *)(in ? in : "");
	size_t n = 0;

	while (*s) {
		size_t k = utf8_len(s);

		if (n + MAX(k, (size_t)1) >= size)
			break;
		if (!k) {
			out[n++] = '?';
			s++;
			continue;
		}
		memcpy(out + n, s, k);
		n += k;
		s += k;
	}
	out[n] = '\0';
	return out;
}

struct text {
	char actor[ROS2_SPIFFE_MAX + 1], peer[64], name[AGENT_AUDIT_TEXT], id[64];
	char reason[AGENT_AUDIT_TEXT], tenant[ROS2_NAME_MAX + 1], tenant_uid[ROS2_UID_STR_LEN];
	char value[AGENT_AUDIT_DETAILS][AGENT_AUDIT_TEXT];
};

static size_t pack(const struct agent_audit *a, const struct agent_audit_event *ev, uint8_t *out)
{
	Ros2__V1__AuditRecord r = ROS2__V1__AUDIT_RECORD__INIT;
	Ros2__V1__AuditOrigin origin = ROS2__V1__AUDIT_ORIGIN__INIT;
	Ros2__V1__AuditAggregate agg = ROS2__V1__AUDIT_AGGREGATE__INIT;
	Ros2__V1__AuditDetail details[AGENT_AUDIT_DETAILS], *detail_ptrs[AGENT_AUDIT_DETAILS];
	struct text t;

	r.format = 1;
	r.actor = ev->actor ? clean(ev->actor, t.actor, sizeof(t.actor)) : (char *)"system";
	r.role = (char *)(ev->actor ? "tenant" : "agent");
	r.peer = clean(ev->peer, t.peer, sizeof(t.peer));
	r.action = (char *)ev->action;
	r.object_kind = (char *)(ev->object_kind ? ev->object_kind : "");
	r.object_name = clean(ev->object_name, t.name, sizeof(t.name));
	r.object_uid = clean(ev->object_id, t.id, sizeof(t.id));
	r.result = (Ros2__V1__AuditResult)ev->result;
	r.status = (char *)ros2_status_to_str(ev->status);
	r.reason = clean(ev->reason, t.reason, sizeof(t.reason));
	r.policy_version = ev->policy_version;
	r.tenant = clean(ev->tenant, t.tenant, sizeof(t.tenant));
	if (!ros2_uid_is_zero(&ev->tenant_uid)) {
		ros2_uid_to_str(&ev->tenant_uid, t.tenant_uid);
		r.tenant_uid = t.tenant_uid;
	}
	origin.agent = (char *)a->o.agent;
	origin.agent_uid = (char *)a->agent_uid;
	origin.incarnation = (char *)a->incarnation;
	origin.time_unix_ns = clock_unix_ns(); /* seq: set when the draft is sent */
	r.origin = &origin;
	if (ev->count) {
		agg.count = ev->count;
		agg.first_unix_ns = ev->first_unix_ns;
		agg.last_unix_ns = ev->last_unix_ns;
		r.aggregate = &agg;
	}
	for (size_t i = 0; i < ev->n_details; i++) {
		ros2__v1__audit_detail__init(&details[i]);
		details[i].key = (char *)ev->details[i].key;
		details[i].value = clean(ev->details[i].value, t.value[i], sizeof(t.value[i]));
		detail_ptrs[i] = &details[i];
	}
	r.n_details = ev->n_details;
	r.details = detail_ptrs;
	if (ros2__v1__audit_record__get_packed_size(&r) > SPOOL_RECORD_MAX)
		return 0;
	return ros2__v1__audit_record__pack(&r, out);
}

static int put(struct agent_audit *a, enum spool_class c, const struct agent_audit_event *ev,
               spool_done_fn fn, void *arg, struct ros2_err *err)
{
	uint8_t bytes[SPOOL_RECORD_MAX];
	size_t n = pack(a, ev, bytes);

	return spool_put(a->o.spool, c, &ev->tenant_uid, bytes, n, fn, arg, err);
}

int agent_audit_durable(struct agent_audit *a, const struct agent_audit_event *ev, spool_done_fn fn,
                        void *arg, struct ros2_err *err)
{
	return put(a, SPOOL_WIDEN, ev, fn, arg, err);
}

static void lost(struct agent_audit *a, uint64_t n)
{
	uint64_t now = clock_unix_ns();

	if (a->lost == a->lost_told)
		a->lost_first_unix_ns = now;
	a->lost += n;
	a->lost_last_unix_ns = now;
}

void agent_audit_note(struct agent_audit *a, const struct agent_audit_event *ev)
{
	if (put(a, SPOOL_SHRINK, ev, NULL, NULL, NULL) < 0)
		lost(a, MAX(ev->count, (uint64_t)1));
}

bool agent_audit_counted(struct agent_audit *a, const struct agent_audit_event *ev)
{
	return put(a, SPOOL_DENIAL, ev, NULL, NULL, NULL) == 0;
}

/* ---- denials ---- */

static struct bound_entry *bound_get(struct agent_audit *a, const struct agent_audit_event *ev)
{
	struct bound_key key;
	struct bound_entry *e;

	memset(&key, 0, sizeof(key));
	key.tenant = ev->tenant_uid;
	key.status = (uint32_t)ev->status;
	snprintf(key.action, sizeof(key.action), "%s", ev->action);
	if (HASH_COUNT(a->bounds) >= KINDS_MAX) {
		HASH_FIND(hh, a->bounds, &key, sizeof(key), e);
		if (e)
			return e;
		memset(&key.tenant, 0, sizeof(key.tenant));
	}
	HASH_FIND(hh, a->bounds, &key, sizeof(key), e);
	if (e)
		return e;
	e = calloc(1, sizeof(*e));
	if (!e)
		return NULL;
	e->key = key;
	HASH_ADD(hh, a->bounds, key, sizeof(e->key), e);
	if (!HASH_TOOK(hh, e)) {
		free(e);
		return NULL;
	}
	return e;
}

/* Of an entry that many share no tenant is named: what is counted was not all its own. */
static void take_sample(struct bound_entry *e, const struct agent_audit_event *ev)
{
	struct sample *s = &e->sample;

	clean(ros2_uid_is_zero(&e->key.tenant) ? "" : ev->tenant, s->tenant, sizeof(s->tenant));
	clean(ev->actor, s->actor, sizeof(s->actor));
	clean(ev->peer, s->peer, sizeof(s->peer));
	clean(ev->reason, s->reason, sizeof(s->reason));
	clean(ev->object_kind, s->object_kind, sizeof(s->object_kind));
	clean(ev->object_name, s->object_name, sizeof(s->object_name));
	clean(ev->object_id, s->object_id, sizeof(s->object_id));
	s->result = ev->result;
	s->policy_version = ev->policy_version;
}

void agent_audit_denied(struct agent_audit *a, const struct agent_audit_event *ev)
{
	struct bound_entry *e = bound_get(a, ev);
	uint64_t n = MAX(ev->count, (uint64_t)1), wall = clock_unix_ns();

	if (!e) {
		lost(a, n);
		return;
	}
	if (AGENT_SWITCH(no_record_bound) ||
	    audit_bound_pass(&e->bound, n, a->o.now_ns(), ev->count ? ev->first_unix_ns : wall,
	                     ev->count ? ev->last_unix_ns : wall)) {
		if (put(a, SPOOL_DENIAL, ev, NULL, NULL, NULL) < 0)
			lost(a, n);
		return;
	}
	take_sample(e, ev);
}

/* What goes on being counted when it finds no room leaves the reserve alone, or who is refused for
 * long enough would fill it; but @last has no later. */
static enum spool_class class_of_counted(bool last)
{
	return last ? SPOOL_SHRINK : SPOOL_DENIAL;
}

static void put_held(struct agent_audit *a, struct bound_entry *e, bool last)
{
	const struct sample *s = &e->sample;
	struct agent_audit_event ev = {
		.action = e->key.action,
		.actor = s->actor[0] ? s->actor : NULL,
		.peer = s->peer,
		.object_kind = s->object_kind,
		.object_name = s->object_name,
		.object_id = s->object_id,
		.result = s->result,
		.status = (enum ros2_status)e->key.status,
		.reason = s->reason,
		.tenant = s->tenant,
		.tenant_uid = e->key.tenant,
		.policy_version = s->policy_version,
		.details = {{"sample", "the fields of the last one"}},
		.n_details = 1,
		.count = e->bound.held,
		.first_unix_ns = e->bound.first_unix_ns,
		.last_unix_ns = e->bound.last_unix_ns,
	};

	if (put(a, class_of_counted(last), &ev, NULL, NULL, NULL) == 0)
		audit_bound_taken(&e->bound); /* else it goes on counting */
}

static void put_lost(struct agent_audit *a, bool last)
{
	struct agent_audit_event ev = {
		.action = "audit.gap",
		.object_kind = "agent",
		.object_name = a->o.agent,
		.object_id = a->agent_uid,
		.result = AGENT_AUDIT_FAILED,
		.status = ROS2_NOT_DURABLE,
		.reason = "records that found no place in the agent's spool, or were taken out "
			  "of it",
		.count = a->lost - a->lost_told,
		.first_unix_ns = a->lost_first_unix_ns,
		.last_unix_ns = a->lost_last_unix_ns,
	};

	if (put(a, class_of_counted(last), &ev, NULL, NULL, NULL) == 0)
		a->lost_told = a->lost;
}

static void tell_hole(struct agent_audit *a);

static void hole_told(void *arg, const struct ros2_err *err)
{
	struct agent_audit *a = arg;
	uint64_t n;

	a->telling = false;
	if (err || !spool_hole(a->o.spool, &n))
		return; /* it is tried again by the next tick, or start */
	a->lost += n;
	a->lost_told += n;
	spool_hole_told(a->o.spool);
	tell_hole(a);
}

/* Its file goes when this is durable, so each is told, and twice where the agent ends in between:
 * under the same name. */
static void tell_hole(struct agent_audit *a)
{
	uint64_t n = 0, now = clock_unix_ns();
	const char *segment = spool_hole(a->o.spool, &n);
	struct agent_audit_event ev = {
		.action = "audit.gap",
		.object_kind = "agent",
		.object_name = a->o.agent,
		.object_id = a->agent_uid,
		.result = AGENT_AUDIT_FAILED,
		.status = ROS2_NOT_DURABLE,
		.reason = "records in the agent's spool that cannot be read",
		.details = {{"segment", segment}},
		.n_details = 1,
		.count = n,
		.first_unix_ns = now,
		.last_unix_ns = now,
	};

	if (segment && !a->telling)
		a->telling = agent_audit_durable(a, &ev, hole_told, a, NULL) == 0;
}

void agent_audit_tick(struct agent_audit *a, bool all)
{
	uint64_t now = a->o.now_ns(), n_gone;
	struct bound_entry *e, *tmp;

	HASH_ITER (hh, a->bounds, e, tmp) {
		if (audit_bound_due(&e->bound, now) || (all && e->bound.held))
			put_held(a, e, all);
	}
	n_gone = spool_take_gone(a->o.spool);
	if (n_gone)
		lost(a, n_gone);
	if (a->lost > a->lost_told)
		put_lost(a, all);
	if (!all) /* no answer would be heard; its file stays */
		tell_hole(a);
}

static void on_tick(void *arg)
{
	struct agent_audit *a = arg;

	agent_audit_tick(a, false);
	loop_timer_in_ms(a->o.loop, &a->tick, 1000, on_tick, a);
}

int agent_audit_new(const struct agent_audit_opts *o, struct agent_audit **ret)
{
	struct agent_audit *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->o = *o;
	if (!a->o.now_ns)
		a->o.now_ns = clock_boottime_ns;
	ros2_uid_to_str(&o->agent_uid, a->agent_uid);
	ros2_uid_to_str(&o->incarnation, a->incarnation);
	loop_timer_in_ms(o->loop, &a->tick, 1000, on_tick, a);
	*ret = a;
	return 0;
}

void agent_audit_free(struct agent_audit *a)
{
	struct bound_entry *e, *tmp;

	if (!a)
		return;
	agent_audit_tick(a, true);
	loop_timer_stop(&a->tick);
	HASH_ITER (hh, a->bounds, e, tmp) {
		HASH_DEL(a->bounds, e);
		free(e);
	}
	free(a);
}

uint64_t agent_audit_lost(const struct agent_audit *a)
{
	return a->lost;
}
