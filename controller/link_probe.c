/* SPDX-License-Identifier: Apache-2.0 */
/* An agent's probe report, its targets, and its pending keys, as the domain has them: bounded,
 * printable, unknown numbers left out. */
#include "controller/link_priv.h"

static void take_subject(const Ros2__V1__ProbeSubject *in, struct probe_subject *out)
{
	*out = (struct probe_subject){.tried_unix_ns = in->tried_unix_ns,
	                              .revoke_p50_ns = in->revoke_p50_ns,
	                              .revoke_p99_ns = in->revoke_p99_ns,
	                              .key_bits = in->key_bits};
	link_take_text(out->name, sizeof(out->name), in->name);
	link_take_text(out->transport, sizeof(out->transport), in->transport);
	link_take_text(out->device, sizeof(out->device), in->device);
	link_take_text(out->firmware, sizeof(out->firmware), in->firmware);
	link_take_text(out->kernel, sizeof(out->kernel), in->kernel);
	for (size_t i = 0; i < in->n_findings; i++) {
		const Ros2__V1__ProbeFinding *f = in->findings[i];
		struct probe_finding *to;

		if (f->property >= PROBE_PROPERTIES || f->result > PROBE_NOT_SUPPORTED)
			continue;
		to = &out->findings[f->property];
		to->result = (enum probe_result)f->result;
		link_take_text(to->seen, sizeof(to->seen), f->seen);
	}
}

/* A name twice would make the report say two things at once: the first counts. */
static bool named_before(const struct probe_subject *v, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(v[i].name, name))
			return true;
	return false;
}

void link_on_probe(struct link *l, const Ros2__V1__ProbeReport *m)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct probe_subject *v;
	size_t n = 0;

	if (link_check_rate(l->agent, 0, &err) < 0) {
		link_end(l, err.status, err.msg);
		return;
	}
	if (m->n_subjects > PROBE_SUBJECTS_MAX) {
		link_end(l, ROS2_TOO_LARGE, "a probe report with more than 16 subjects");
		return;
	}
	v = calloc(PROBE_SUBJECTS_MAX, sizeof(*v));
	if (!v) {
		link_end(l, ROS2_BUSY, "out of memory");
		return;
	}
	for (size_t i = 0; i < m->n_subjects; i++) {
		take_subject(m->subjects[i], &v[n]);
		if (v[n].name[0] && !named_before(v, n, v[n].name))
			n++;
	}
	/* An agent says it once in a stream: kept is what it said before, and that may be more. */
	if (ctl_agent_probed(l->agent, v, n) < 0)
		link_end(l, ROS2_BUSY, "out of memory");
	free(v);
}

void link_take_targets(struct ctl_agent *a, const Ros2__V1__Beat *b)
{
	struct ctl_target *v = ctl_agent_targets_begin(a, b->n_targets, b->targets_left_out);

	for (size_t i = 0; i < a->n_targets; i++) {
		const Ros2__V1__TargetInfo *m = b->targets[i];

		v[i].lost = m->lost;
		v[i].since_unix_ns = m->since_unix_ns;
		link_take_text(v[i].engine, sizeof(v[i].engine), m->engine);
		link_take_text(v[i].tenant, sizeof(v[i].tenant), m->tenant);
		link_take_text(v[i].state, sizeof(v[i].state), m->state);
		link_take_text(v[i].reason, sizeof(v[i].reason), m->reason);
	}
}

/* What is no uid names nobody, and without memory the list is counted only. */
void link_take_pending(const Ros2__V1__Receipt *r, struct ctl_receipt *in)
{
	size_t n = MIN(r->n_pending, (size_t)CTL_PENDING_MAX);
	uint64_t left_out = (uint64_t)r->pending_left_out + r->n_pending;

	if (n)
		in->pending = calloc(n, sizeof(*in->pending));
	for (size_t i = 0; i < n && in->pending; i++) {
		const Ros2__V1__PendingKeys *m = r->pending[i];
		struct ctl_pending *p = &in->pending[in->n_pending];

		if (ros2_uid_from_bytes(m->tenant_uid.data, m->tenant_uid.len, &p->tenant_uid) < 0)
			continue;
		p->keys = m->keys;
		link_take_text(p->device, sizeof(p->device), m->device);
		in->n_pending++;
	}
	in->pending_left_out = (uint32_t)MIN(left_out - in->n_pending, (uint64_t)UINT32_MAX);
}
