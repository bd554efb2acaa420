/* SPDX-License-Identifier: Apache-2.0 */
/* See prober.h. */
#include "agent/prober.h"
#include "agent/sessions.h"
#include "agent/uplink_priv.h"
#include "agent/writer.h"
#include "common/util.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_COMPONENT "probe"
#include "common/log.h"

struct message {
	Ros2__V1__ProbeFinding f[PROBE_SUBJECTS_MAX][PROBE_PROPERTIES],
		*fp[PROBE_SUBJECTS_MAX][PROBE_PROPERTIES];
	Ros2__V1__ProbeSubject s[PROBE_SUBJECTS_MAX], *sp[PROBE_SUBJECTS_MAX];
};

struct prober {
	struct agent *a;
	struct writer *thread; /* owned */
	/* the job's while busy, then the loop's */
	struct writer_job job;
	int rc;
	struct ros2_err err;
	size_t n_tried;
	struct probe_subject tried[PROBE_SUBJECTS_MAX];
	/* loop */
	size_t n;
	struct probe_subject v[PROBE_SUBJECTS_MAX];
	struct message m; /* the report, while it is sent: telling needs no memory */
	bool busy, known;
};

static void try_all(struct writer_job *j)
{
	struct prober *p = container_of(j, struct prober, job);

	p->rc = p->a->o.probe(p->a->o.shm_dir != NULL, p->tried, &p->n_tried, &p->err);
}

static void log_subject(const struct probe_subject *s)
{
	char lacks[256] = "";
	size_t len = 0;

	for (unsigned i = 0; i < PROBE_PROPERTIES && len < sizeof(lacks); i++)
		if (s->findings[i].result == PROBE_NOT_ENFORCED)
			len += (size_t)snprintf(lacks + len, sizeof(lacks) - len, "%s%s",
			                        len ? ", " : "",
			                        probe_property_to_str((enum probe_property)i));
	log_info("%s (%s, %s): %d properties enforced; NOT enforced: %s", s->name, s->transport,
	         s->device, __builtin_popcount(probe_enforced(s)), len ? lacks : "none");
}

/* A device of which nothing was seen is told that. */
static void tell_device(struct prober *p)
{
	const char *device = p->a->o.rdma_device;
	uint32_t enforced = 0;

	for (size_t i = 0; i < p->n && device; i++)
		if (!strcmp(p->v[i].transport, "verbs") && !strcmp(p->v[i].name, device))
			enforced = probe_enforced(&p->v[i]);
	if (device && p->a->dp)
		dp_rdma_seen(p->a->dp, enforced);
}

static void on_tried(struct writer_job *j)
{
	struct prober *p = container_of(j, struct prober, job);

	p->busy = false;
	if (p->rc < 0 || p->n_tried > PROBE_SUBJECTS_MAX) {
		log_error("nothing is known of this agent's devices: %s: tenants that require "
		          "something of them are not served",
		          p->err.msg);
		p->n_tried = 0;
	}
	p->n = p->n_tried;
	memcpy(p->v, p->tried, sizeof(p->v));
	for (size_t i = 0; i < p->n; i++)
		log_subject(&p->v[i]);
	p->known = true;
	if (!p->a->ended)
		tell_device(p);
	if (p->a->sessions && !p->a->ended)
		sessions_on_probe(p->a->sessions);
	prober_tell(p);
}

int prober_new(struct agent *a, struct prober **ret)
{
	struct prober *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->a = a;
	p->job.work = try_all;
	p->job.done = on_tried;
	r = a->o.probe ? writer_new(a->o.loop, "probe", &p->thread) : 0;
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void prober_start(struct prober *p)
{
	if (!p->thread) {
		p->known = true;
		return;
	}
	if (p->busy)
		return;
	p->busy = true;
	p->err = (struct ros2_err)ROS2_ERR_INIT;
	p->n_tried = 0;
	writer_submit(p->thread, &p->job);
}

void prober_stop(struct prober *p)
{
	if (p)
		writer_free(TAKE_PTR(p->thread));
}

void prober_free(struct prober *p)
{
	prober_stop(p);
	free(p);
}

/* ---- the report ---- */

static char *borrowed(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void fill_subject(const struct probe_subject *s, struct message *m, size_t i)
{
	Ros2__V1__ProbeSubject *out = m->sp[i] = &m->s[i];

	ros2__v1__probe_subject__init(out);
	out->name = borrowed(s->name);
	out->transport = borrowed(s->transport);
	out->device = borrowed(s->device);
	out->firmware = borrowed(s->firmware);
	out->kernel = borrowed(s->kernel);
	out->tried_unix_ns = s->tried_unix_ns;
	out->revoke_p50_ns = s->revoke_p50_ns;
	out->revoke_p99_ns = s->revoke_p99_ns;
	out->key_bits = s->key_bits;
	for (unsigned k = 0; k < PROBE_PROPERTIES; k++) {
		Ros2__V1__ProbeFinding *f = m->fp[i][k] = &m->f[i][k];

		ros2__v1__probe_finding__init(f);
		f->property = k;
		f->result = s->findings[k].result;
		f->seen = borrowed(s->findings[k].seen);
	}
	out->n_findings = PROBE_PROPERTIES;
	out->findings = m->fp[i];
}

void prober_tell(struct prober *p)
{
	Ros2__V1__AgentMessage out = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ProbeReport r = ROS2__V1__PROBE_REPORT__INIT;
	struct message *m = &p->m;

	/* An agent that tried nothing says nothing: it counts as never seen. */
	if (!p->known || !p->a->o.probe || !p->a->uplink)
		return;
	for (size_t i = 0; i < p->n; i++)
		fill_subject(&p->v[i], m, i);
	r.n_subjects = p->n;
	r.subjects = m->sp;
	out.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_PROBE;
	out.probe = &r;
	uplink_send(p->a->uplink, &out);
}

/* ---- asked ---- */

static int allows(const struct prober *p, const char *transport, const char *name,
                  uint32_t required, struct ros2_err *err)
{
	enum probe_property missing = (enum probe_property)__builtin_ffs((int)required) - 1;
	enum probe_result result = PROBE_NOT_TRIED;

	if (!required)
		return 0;
	if (!p->known)
		return ros2_err_named(err, ROS2_BUSY,
		                      "the tenant's placement.require is being looked at: try "
		                      "again in a moment");
	for (size_t i = 0; i < p->n; i++) {
		if (strcmp(p->v[i].transport, transport) != 0 || strcmp(p->v[i].name, name) != 0)
			continue;
		if (!probe_missing(&p->v[i], required, &missing))
			return 0;
		result = p->v[i].findings[missing].result;
	}
	return ros2_err_named(
		err, ROS2_DENIED, "placement.require: %s over transport %s of this agent: %s",
		probe_property_to_str(missing), transport, probe_result_to_str(result));
}

int prober_allows_transport(const struct prober *p, enum dp_transport t, uint32_t required,
                            struct ros2_err *err)
{
	const char *name = dp_transport_to_str(t);

	return allows(p, name, t == DP_TRANSPORT_VERBS ? p->a->o.rdma_device : name, required, err);
}

int prober_allows_engine(const struct prober *p, const char *engine, uint32_t required,
                         struct ros2_err *err)
{
	const char *device = p->a->o.rdma_device;
	int rc;

	if (!required || state_engine_transport(p->a->state, engine) != POLICY_TRANSPORT_RDMA)
		return 0;
	if (!device)
		return ros2_err_named(err, ROS2_DENIED,
		                      "placement.require: engine %s is reached over RDMA, and this "
		                      "agent has no device of which anything was seen "
		                      "(--rdma-device)",
		                      engine);
	rc = allows(p, "verbs", device, required, err);
	if (rc < 0)
		ros2_err_prefix(err, "engine %s", engine);
	return rc;
}
