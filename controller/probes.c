/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents have tried of their devices, and which tenants may be placed there for it. A report
 * is a claim of the agent. While a changed report is on its way to the log both it and the one
 * before count, and a property holds only where both say so: what shrinks takes effect at once,
 * what widens after the commit. A report that could not be recorded stays beside the old one and is
 * tried again: the agent says it once in a stream.
 */
#include "common/utf8.h"
#include "controller/ctl.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOG_COMPONENT "controller"
#include "common/log.h"

/* Enough for the first differences; a person looks at `describe agent` for the rest. */
#define CHANGES_SHOWN 8
#define AGAIN_MS      15000 /* a store that is full is not asked all the time */

struct ctl_probes {
	size_t n;
	struct probe_subject v[];
};

static struct ctl_probes *probes_new(const struct probe_subject *v, size_t n)
{
	struct ctl_probes *p = calloc(1, sizeof(*p) + n * sizeof(*v));

	if (!p)
		return NULL;
	p->n = n;
	if (n)
		memcpy(p->v, v, n * sizeof(*v));
	return p;
}

void ctl_probes_free(struct ctl_agent *a)
{
	loop_timer_stop(&a->probes_timer);
	free(TAKE_PTR(a->probes));
	free(TAKE_PTR(a->probes_next));
}

const struct probe_subject *ctl_probes(const struct ctl_agent *a, size_t *ret_n)
{
	const struct ctl_probes *p = a->probes_next ? a->probes_next : a->probes;

	*ret_n = p ? p->n : 0;
	return p ? p->v : NULL;
}

static bool meets(const struct ctl_probes *p, uint32_t required)
{
	enum probe_property missing;

	for (size_t i = 0; p && i < p->n; i++)
		if (!probe_missing(&p->v[i], required, &missing))
			return true;
	return false;
}

bool ctl_probes_meet(const struct ctl_agent *a, uint32_t required)
{
	return !required ||
	       (meets(a->probes, required) && (!a->probes_next || meets(a->probes_next, required)));
}

void ctl_probes_why_not(const struct ctl_agent *a, uint32_t required, char *out, size_t size)
{
	enum probe_property missing;
	const struct probe_subject *v;
	size_t n, len = 0;

	v = ctl_probes(a, &n);
	if (!n)
		snprintf(out, size, "%s has not reported what its devices enforce", a->obj->name);
	for (size_t i = 0; i < n && len < size; i++) {
		if (!probe_missing(&v[i], required, &missing))
			continue;
		len += (size_t)snprintf(out + len, size - len, "%s%s: %s: %s", len ? "; " : "",
		                        v[i].name, probe_property_to_str(missing),
		                        probe_result_to_str(v[i].findings[missing].result));
	}
	if (n && !len)
		snprintf(out, size, "the report is being recorded");
	utf8_clean(out); /* a name that was cut */
}

int ctl_probe_load(struct ctl *c, const struct store_probe *row)
{
	struct ctl_agent *a = ctl_agent_uid(c, &row->agent_uid);
	struct ctl_probes *p;
	size_t n;

	if (!a)
		return 0;
	n = a->probes ? a->probes->n : 0;
	if (n >= PROBE_SUBJECTS_MAX)
		return 0;
	p = realloc(a->probes, sizeof(*p) + (n + 1) * sizeof(p->v[0]));
	if (!p)
		return -ENOMEM;
	p->n = n + 1;
	p->v[n] = *row->subject;
	a->probes = p;
	return 0;
}

/* ---- a report ---- */

static const struct probe_subject *subject_of(const struct ctl_probes *p, const char *name)
{
	for (size_t i = 0; p && i < p->n; i++)
		if (!strcmp(p->v[i].name, name))
			return &p->v[i];
	return NULL;
}

static bool same_thing(const struct probe_subject *a, const struct probe_subject *b)
{
	return !strcmp(a->transport, b->transport) && !strcmp(a->device, b->device) &&
	       !strcmp(a->firmware, b->firmware) && !strcmp(a->kernel, b->kernel);
}

static bool is_news(const struct ctl_probes *was, const struct ctl_probes *now)
{
	enum probe_property differs;

	if (!was || was->n != now->n)
		return true;
	for (size_t i = 0; i < now->n; i++) {
		const struct probe_subject *old = subject_of(was, now->v[i].name);

		if (!old || !same_thing(old, &now->v[i]) ||
		    !probe_same_answers(old, &now->v[i], &differs))
			return true;
	}
	return false;
}

static void tell_subject(struct store_txn *t, struct store_draft *d,
                         const struct probe_subject *was, const struct probe_subject *now)
{
	uint32_t enforced = probe_enforced(now);
	enum probe_property differs;

	if (was && same_thing(was, now) && probe_same_answers(was, now, &differs))
		return;
	store_draft_detail(t, d, now->name,
	                   store_txn_fmt(t, "%s %s, firmware %s, kernel %s", now->transport,
	                                 now->device, now->firmware, now->kernel));
	for (unsigned i = 0, shown = 0; i < PROBE_PROPERTIES && shown < CHANGES_SHOWN; i++) {
		const char *name = probe_property_to_str((enum probe_property)i);
		const char *result = probe_result_to_str(now->findings[i].result);

		if (was ? was->findings[i].result == now->findings[i].result
		        : (enforced & 1u << i) != 0)
			continue;
		store_draft_detail(t, d, store_txn_fmt(t, "%s %s", now->name, name),
		                   was ? store_txn_fmt(t, "%s, was %s", result,
		                                       probe_result_to_str(was->findings[i].result))
		                       : result);
		shown++;
	}
}

/* For who watches logs and metrics; the record has all of it. */
static void say_change(const struct ctl_agent *a)
{
	static struct log_limit limit;
	const struct probe_subject *was = NULL, *now = NULL;
	enum probe_property differs;

	a->ctl->probe_changes++;
	if (!log_limit_pass(&limit))
		return;
	for (size_t i = 0; i < a->probes->n; i++) {
		was = &a->probes->v[i];
		now = subject_of(a->probes_next, was->name);
		if (!now || !probe_same_answers(was, now, &differs))
			break;
	}
	if (!was || (now && probe_same_answers(was, now, &differs)))
		log_warn("agent %s reports other devices or transports than before: see its record "
		         "agent.probe",
		         a->obj->name);
	else if (!now)
		log_warn("agent %s does not report %s any more: what was seen of it counts no "
		         "longer",
		         a->obj->name, was->name);
	else
		log_warn("agent %s: %s answers differently: %s: %s, was %s", a->obj->name,
		         now->name, probe_property_to_str(differs),
		         probe_result_to_str(now->findings[differs].result),
		         probe_result_to_str(was->findings[differs].result));
}

static struct store_draft *record(struct ctl_agent *a, struct store_txn *t)
{
	struct ctl_caller who = ctl_agent_caller(a);
	struct store_draft *d =
		ctl_audit(t, &who, "agent.probe", STORE_AGENT, a->obj->name, &a->obj->uid);

	d->reason = a->probes ? "an answer, or what it depends on, has changed" : "first report";
	for (size_t i = 0; i < a->probes_next->n; i++)
		tell_subject(t, d, subject_of(a->probes, a->probes_next->v[i].name),
		             &a->probes_next->v[i]);
	for (size_t i = 0; a->probes && i < a->probes->n; i++)
		if (!subject_of(a->probes_next, a->probes->v[i].name))
			store_draft_detail(t, d, store_txn_str(t, a->probes->v[i].name), "gone");
	return d;
}

/* Something enforced there is so no longer, by what is recorded. Only such a report may have of
 * what is kept for revocations: an agent that says now this, now that finds no room for the second.
 */
static bool takes_away(const struct ctl_agent *a)
{
	for (size_t i = 0; a->probes && i < a->probes->n; i++) {
		const struct probe_subject *was = &a->probes->v[i];
		const struct probe_subject *now = subject_of(a->probes_next, was->name);

		if (!now || (probe_enforced(was) & ~probe_enforced(now)))
			return true;
	}
	return false;
}

/* The commit of one report; the agent may be gone by then. */
struct reported {
	struct ctl *c;
	struct ros2_uid agent;
	struct ctl_probes *given; /* owned: what the store has then */
};

static void reported_free(struct reported *p)
{
	if (p)
		free(p->given);
	free(p);
}

static struct reported *reported_new(const struct ctl_agent *a)
{
	struct reported *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	*p = (struct reported){.c = a->ctl, .agent = a->obj->uid};
	p->given = probes_new(a->probes_next->v, a->probes_next->n);
	if (p->given)
		return p;
	free(p);
	return NULL;
}

static void submit(struct ctl_agent *a);

static void submit_again(void *arg)
{
	submit(arg);
}

/* What takes away the store has kept. What gives waits for a commit that is told. */
static void not_recorded(struct ctl_agent *a, const struct ros2_err *err, bool kept)
{
	if (!a->probes_late)
		log_error("what agent %s tried is not recorded: %s: what it newly enforces places "
		          "no tenant there until it is",
		          a->obj->name, err->msg);
	a->probes_late = true;
	a->probes_kept |= kept;
	loop_timer_in_ms(a->ctl->loop, &a->probes_timer, AGAIN_MS, submit_again, a);
}

static void reported_done(void *arg, const struct store_result *r)
{
	struct reported *p = arg;
	struct ctl_agent *a = ctl_agent_uid(p->c, &p->agent);

	if (a && !r->rc) {
		free(a->probes);
		a->probes = TAKE_PTR(p->given);
	}
	reported_free(p);
	if (!a)
		return;
	a->probes_busy = false;
	if (a->probes_again) {
		submit(a);
		ctl_rollout_sync(a);
	} else if (r->rc == 0) {
		free(a->probes);
		a->probes = TAKE_PTR(a->probes_next);
		ctl_rollout_sync(a);
		a->probes_late = a->probes_kept = false;
	} else {
		not_recorded(a, &r->err, r->record_pending);
	}
}

static int submit_report(struct ctl_agent *a, struct ros2_err *err)
{
	struct reported *p = reported_new(a);
	struct store_txn *t = store_txn_new();
	int r;

	if (!a->probes_kept)
		record(a, t);
	if (a->probes && !a->probes_late)
		say_change(a);
	store_txn_add(t, STORE_PROBES_DELETE)->probe.agent_uid = a->obj->uid;
	for (size_t i = 0; i < a->probes_next->n; i++)
		store_txn_add(t, STORE_PROBE_PUT)->probe = (struct store_probe){
			.agent_uid = a->obj->uid,
			.subject = store_txn_mem(t, &a->probes_next->v[i],
		                                 sizeof(a->probes_next->v[i]))};
	if (!a->probes_kept && takes_away(a))
		store_txn_set_shrinks(t);
	store_txn_set_order(t, &a->obj->uid);
	/* Without memory for the answer the rows are right, and the next try tells memory so. */
	r = store_submit(a->ctl->store, t, p ? reported_done : NULL, p, err);
	if (r < 0)
		reported_free(p);
	else
		a->probes_busy = p != NULL;
	return r;
}

/* One at a time: an agent that reports faster than commits go writes no more records than those.
 * What earlier reports ended comes before it: it may allow that again. */
static void submit(struct ctl_agent *a)
{
	struct ros2_err err = ROS2_ERR_INIT;

	a->probes_again = false;
	if (ctl_grants_settle(a->ctl, &err) < 0 || submit_report(a, &err) < 0)
		not_recorded(a, &err, false);
	else if (!a->probes_busy)
		not_recorded(a, &err, true);
	/* Grants of tenants that require what is no longer seen there end with the report. */
	ctl_grants_recheck_agent(a);
	(void)ctl_grants_settle(a->ctl, NULL);
}

int ctl_agent_probed(struct ctl_agent *a, const struct probe_subject *v, size_t n)
{
	struct ctl_probes *now = probes_new(v, n);

	if (!now)
		return -ENOMEM;
	if (!a->probes_next && !is_news(a->probes, now)) {
		free(a->probes); /* other words or times: shown, not recorded */
		a->probes = now;
		return 0;
	}
	free(a->probes_next);
	a->probes_next = now;
	a->probes_late = a->probes_kept = false;
	loop_timer_stop(&a->probes_timer);
	if (a->probes_busy)
		a->probes_again = true;
	else
		submit(a);
	ctl_rollout_sync(a);
	return 0;
}
