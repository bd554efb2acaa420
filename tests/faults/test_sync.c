/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents' stream cut at each message of greeting and synchronisation. In each round the link
 * is made anew, alpha's document changes (its limits, or it leaves the agent or comes back) and an
 * audit record is due; the cut falls into all that.
 */
#include "tests/faults/pair.h"
#include "tests/faults/witness.h"
#include "common/util.h"
#include "tests/agent/fake_dp.h"
#include "common/log.h"

struct round {
	const struct cut *cut;
	bool placed;
	uint64_t version;
};

/* Applied where it belongs, gone where it does not, on both sides' word. */
static bool is_settled(struct pair *p, void *arg)
{
	const struct round *r = arg;
	struct pair_rollout ro;
	struct pair_held h;

	pair_rollout(p, &ro);
	h.uid = ro.uid;
	pair_held(p, &h);
	if (r->placed != h.is || (r->placed && h.version != ro.version))
		return false;
	if (r->placed ? ro.applied != ro.version || ro.received != ro.version : ro.applied != 0)
		return false;
	return pair_is_quiet(p);
}

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut) || is_settled(p, arg);
}

/* What the controller says is never more than what the agent has. Of a document that leaves the
 * agent it may be, until it hears that it has gone: is_settled asks for that. */
static void compare(struct pair *p, const struct round *r, const char *where)
{
	struct pair_rollout ro;
	struct pair_held h;

	pair_rollout(p, &ro);
	h.uid = ro.uid;
	pair_held(p, &h);
	if (r->placed && ro.applied && (!h.is || h.version < ro.applied))
		fail_msg("%s: version %llu is told applied, the agent has %llu", where,
		         (unsigned long long)ro.applied, (unsigned long long)h.version);
	pair_check(p, where);
}

/* A call that is refused, for a record that goes up. */
static void be_refused(struct pair *p)
{
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid none;

	assert_int_equal(pair_open(p->nobody, &none, &err), ROS2_DENIED);
}

static void one(struct pair *p, struct cut *cut, unsigned n)
{
	static const char *const lifetimes[] = {"1h", "2h"};
	struct round r = {.cut = cut, .placed = n % 4 != 3};
	char where[CUT_WHERE_MAX];

	cut_where(cut, where);
	relay_cut(p->relay, CUT_LINK);
	be_refused(p);
	pair_apply_alpha(p, lifetimes[n % 2], r.placed ? "dpu-0, dpu-1" : "dpu-1");
	if (!pair_until(p, has_cut, &r))
		fail_msg("%s: neither cut nor settled", where);
	compare(p, &r, where);
	cut_off();
	if (!pair_until(p, is_settled, &r))
		fail_msg("%s: not settled after it was mended", where);
	compare(p, &r, where);
}

static void sweep(struct pair *p, const char *name, unsigned max)
{
	static unsigned n;

	for (int kind = 0; kind < 4; kind++) {
		struct cut c = {.name = name,
		                .when = kind & 1 ? CUT_AFTER : CUT_BEFORE,
		                .for_good = kind & 2};
		unsigned before = cut_points();

		while (cut_next(&c, max))
			one(p, &c, n++);
		if (cut_points() == before)
			fail_msg("%s never came", name);
	}
}

static void run(void **state, const char *const *names, size_t n_names, unsigned max)
{
	struct pair *p = *state;
	struct witness *w = witness_new(p);

	for (size_t i = 0; i < n_names; i++)
		sweep(p, names[i], max);
	assert_true(witness_counts(w)->deltas > 0 && witness_counts(w)->states > 0 &&
	            witness_counts(w)->records > 0);
	witness_free(w);
	pair_verify_log(p);
}

static void sync__greeting_cut_at_each_message(void **state)
{
	static const char *const names[] = {"AgentMessage.hello", "ControllerMessage.welcome",
	                                    "AgentMessage.beat", "ControllerMessage.contact"};

	run(state, names, ARRAY_SIZE(names), 2);
}

static void sync__documents_cut_at_each_message(void **state)
{
	static const char *const names[] = {"ControllerMessage.delta", "AgentMessage.ack",
	                                    "AgentMessage.state"};

	run(state, names, ARRAY_SIZE(names), 4);
}

static void sync__records_cut_at_each_message(void **state)
{
	static const char *const names[] = {"AgentMessage.audit", "ControllerMessage.audit_ack"};

	run(state, names, ARRAY_SIZE(names), 3);
}

/* ---- what was seen of its devices ---- */

static int seen_of_one(bool shm, struct probe_subject out[PROBE_SUBJECTS_MAX], size_t *ret_n,
                       struct ros2_err *err)
{
	memset(out, 0, sizeof(*out));
	strcpy(out->name, "tcp");
	strcpy(out->transport, "tcp");
	strcpy(out->device, "software");
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++)
		out->findings[i].result = PROBE_ENFORCED;
	*ret_n = 1;
	return 0;
}

static void probed(struct agent_opts *o)
{
	o->probe = seen_of_one;
}

static int setup_probed(void **state)
{
	pair_agent_opts = probed;
	return pair_setup_running(state);
}

static int teardown_probed(void **state)
{
	pair_agent_opts = NULL;
	return pair_teardown(state);
}

/* It is told with each link, whatever became of the last one. */
static bool is_known(struct pair *p, void *arg)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_AGENT, "dpu-0");
	const Ros2__V1__AgentInfo *a = r->object->agent;
	bool is = a->n_probes == 1 && !strcmp(a->probes[0]->name, "tcp") &&
	          a->probes[0]->n_findings == PROBE_PROPERTIES;

	ros2__v1__get_reply__free_unpacked(r, NULL);
	return is;
}

static void sync__probe_cut_at_each_message(void **state)
{
	static const char *const names[] = {"AgentMessage.probe"};

	run(state, names, ARRAY_SIZE(names), 2);
	assert_true(pair_until(*state, is_known, NULL));
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(sync__greeting_cut_at_each_message),
		T(sync__documents_cut_at_each_message),
		T(sync__records_cut_at_each_message),
		cmocka_unit_test_setup_teardown(sync__probe_cut_at_each_message, setup_probed,
	                                        teardown_probed),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
