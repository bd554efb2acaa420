/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.require with a scripted agent: a tenant is where what it requires was seen, and only
 * there. The control beside each: a tenant that requires nothing is placed all the time.
 */
#include "common/probe.h"
#include "common/util.h"
#include "controller/ctl.h"
#include "controller/store_txn.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define TRAINER "spiffe://" TD "/tenant/picky/trainer"

static const char picky[] = "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: picky}\nspec:\n"
			    "  principals: [\"" TRAINER "\"]\n"
			    "  placement: {agents: [dpu-0], require: [mr-range, qp-bound-keys]}\n"
			    "  namespaces: [{name: data, engine: ram, path: picky, access: rw}]\n"
			    "  sessions: {max: 2}\n";

struct world {
	struct sf *f;
	struct fake a;
	struct ros2_uid picky, plain;
};

static struct ros2_uid uid_of(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), tenant);
	struct ros2_uid u;

	memcpy(u.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	return u;
}

static void world(void **state, struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->f = *state;
	sf_apply(w->f, sf_engine);
	sf_apply(w->f, sf_agent0);
	sf_apply(w->f, sf_tenant("plain", "1h", "10m", "dpu-0"));
	sf_apply(w->f, picky);
	w->picky = uid_of(w->f, "picky");
	w->plain = uid_of(w->f, "plain");
	fake_enrol(w->f, &w->a, "dpu-0");
}

static void link_up(struct world *w)
{
	fake_connect(&w->a, NULL, 0);
	fake_wait_synced(&w->a);
}

/* What the store is given. Reports that may have what is kept for revocations; and the longest
 * detail. */
static _Atomic unsigned reports, shrinking;
static _Atomic size_t longest;
static _Atomic unsigned refusing; /* so many of them are not taken */

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	const struct store_draft *d = t && t->n_drafts ? t->drafts[0] : NULL;

	if (d && !strcmp(d->action, "agent.probe") && refusing) {
		refusing--;
		store_txn_free(t);
		return ros2_err_set(err, -EBUSY, "the test says so");
	}
	if (d && !strcmp(d->action, "agent.probe")) {
		reports++;
		shrinking += t->shrinks;
	}
	for (size_t i = 0; d && i < d->n_details; i++)
		longest = MAX(longest, strlen(d->details[i].value));
	return __real_store_submit(s, t, done, arg, err);
}

#define AGAIN_MS 15000 /* what is not recorded is tried again; here at once */

int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms == AGAIN_MS ? 1 : ms, fn, arg);
}

/* How often it is asked whether something may be at another agent. */
static _Atomic unsigned elsewhere;

bool __real_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a);
bool __wrap_ctl_placed(const struct ctl_object *tenant, const struct ctl_agent *a)
{
	elsewhere += strcmp(a->obj->name, "dpu-0") != 0;
	return __real_ctl_placed(tenant, a);
}

/* ---- reports ---- */

struct report {
	Ros2__V1__ProbeFinding f[PROBE_PROPERTIES], *fp[PROBE_PROPERTIES];
	Ros2__V1__ProbeSubject s, *sp;
	Ros2__V1__ProbeReport r;
};

/* All enforced but @but (PROBE_PROPERTIES: nothing). */
static struct report *report_of(struct report *p, const char *name, unsigned but)
{
	ros2__v1__probe_report__init(&p->r);
	ros2__v1__probe_subject__init(&p->s);
	for (unsigned i = 0; i < PROBE_PROPERTIES; i++) {
		ros2__v1__probe_finding__init(&p->f[i]);
		p->f[i].property = i;
		p->f[i].result = i == but ? PROBE_NOT_ENFORCED : PROBE_ENFORCED;
		p->f[i].seen = (char *)"tried";
		p->fp[i] = &p->f[i];
	}
	p->s.name = (char *)name;
	p->s.transport = (char *)"verbs";
	p->s.device = (char *)"rxe";
	p->s.firmware = (char *)"1.0";
	p->s.kernel = (char *)"6.1";
	p->s.findings = p->fp;
	p->s.n_findings = PROBE_PROPERTIES;
	p->sp = &p->s;
	p->r.subjects = &p->sp;
	p->r.n_subjects = 1;
	return p;
}

static void send_report(struct world *w, struct report *p)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;

	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_PROBE;
	m.probe = &p->r;
	fake_send(&w->a, &m);
}

static void tell(struct world *w, const char *name, unsigned but)
{
	struct report p;

	send_report(w, report_of(&p, name, but));
}

/* ---- what came of it ---- */

static bool names(const Ros2__V1__Delta *d, const struct ros2_uid *uid, bool removed,
                  struct fake *a)
{
	for (size_t i = 0; removed && i < d->n_removals; i++)
		if (!memcmp(d->removals[i]->uid.data, uid->b, ROS2_UID_LEN))
			return true;
	for (size_t i = 0; !removed && i < d->n_upserts; i++) {
		Ros2__V1__AgentObject *o = fake_open(a, d->upserts[i]);
		bool is = !memcmp(o->uid.data, uid->b, ROS2_UID_LEN);

		ros2__v1__agent_object__free_unpacked(o, NULL);
		if (is)
			return true;
	}
	return false;
}

static void wait_delta(struct world *w, const struct ros2_uid *uid, bool removed)
{
	Ros2__V1__ControllerMessage *m;

	do {
		m = fake_next(&w->a, MSG(DELTA), AWAIT_MS);
		if (!m)
			fail_msg("the agent was not told (%s)", w->a.why.msg);
	} while (!names(m->delta, uid, removed, &w->a));
}

/* The stream is in order: when this is answered, what was sent before was looked at. */
static uint32_t ask_grant(struct world *w, uint64_t id, const struct ros2_uid *tenant,
                          const char *principal)
{
	Ros2__V1__ControllerMessage *m;

	fake_ask_grant(&w->a, id, tenant, principal);
	m = fake_next(&w->a, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(m);
	return m->grant_reply->status;
}

static void assert_condition(struct world *w, bool unmet, const char *words)
{
	Ros2__V1__GetReply *g = sf_get(w->f, KIND(TENANT), "picky");
	const Ros2__V1__Condition *c = NULL;

	for (size_t i = 0; i < g->object->n_conditions; i++)
		if (!strcmp(g->object->conditions[i]->name, "RequirementsUnmet"))
			c = g->object->conditions[i];
	assert_non_null(c);
	assert_int_equal(c->status, unmet);
	if (!strstr(c->reason, words))
		fail_msg("expected \"%s\" in \"%s\"", words, c->reason);
	assert_int_equal(g->object->tenant->n_agents, unmet ? 0 : 1);
	ros2__v1__get_reply__free_unpacked(g, NULL);
}

/* ---- tests ---- */

static void require__nothing_is_placed_before_it_was_seen(void **state)
{
	struct world w;

	world(state, &w);
	link_up(&w);
	assert_condition(&w, true, "dpu-0 has not reported");
	assert_int_equal(ask_grant(&w, 1, &w.picky, TRAINER), ROS2_DENIED);
	/* The control: it is not the link that is deaf. */
	assert_int_equal(ask_grant(&w, 2, &w.plain, "spiffe://" TD "/tenant/plain/trainer"), 0);
	tell(&w, "rxe0", PROBE_MR_RANGE);
	assert_int_equal(ask_grant(&w, 3, &w.picky, TRAINER), ROS2_DENIED);
	assert_condition(&w, true, "rxe0: mr-range: NOT enforced");
	tell(&w, "rxe0", PROBE_WINDOW_RANGE); /* which it does not require */
	wait_delta(&w, &w.picky, false);
	assert_int_equal(ask_grant(&w, 4, &w.picky, TRAINER), 0);
	assert_condition(&w, false, "");
	sf_audit_wait(w.f, "agent.probe", 2);
	fake_free(&w.a);
}

/* Else an agent that says now this, now that has the reserve for itself. */
static void report__has_the_space_for_revocations_only_when_it_takes_something_away(void **state)
{
	static struct world w;

	world(state, &w);
	link_up(&w);
	reports = shrinking = 0;
	tell(&w, "rxe0", PROBE_QP_BOUND_KEYS);
	sf_audit_wait(w.f, "agent.probe", 1);
	assert_int_equal(shrinking, 0);
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &w.picky, false);
	assert_int_equal(shrinking, 0);
	tell(&w, "rxe0", PROBE_WINDOW_RANGE);
	sf_audit_wait(w.f, "agent.probe", 3);
	assert_int_equal(shrinking, 1);
	tell(&w, "rxe0", PROBE_PROPERTIES);
	sf_audit_wait(w.f, "agent.probe", 4);
	assert_int_equal(shrinking, 1);
	assert_int_equal(reports, 4);
	fake_free(&w.a);
}

/* A thousand of a tenant may wait there. */
static void grant__takes_of_an_agents_words_what_the_log_takes(void **state)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRequest g = ROS2__V1__GRANT_REQUEST__INIT;
	AUTO_FREE char *words = malloc(1000001);
	Ros2__V1__ControllerMessage *reply;
	static struct world w;
	Ros2__V1__Stamp st;
	uint8_t boot[16];

	memset(words, 'p', 1000000);
	words[1000000] = '\0';
	world(state, &w);
	link_up(&w);
	longest = 0;
	fake_stamp(&st, boot);
	g.request_id = 1;
	g.tenant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, w.plain.b};
	g.principal = (char *)"spiffe://" TD "/tenant/plain/trainer";
	g.peer = words;
	g.stamp = &st;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_REQUEST;
	m.grant_request = &g;
	fake_send(&w.a, &m);
	reply = fake_next(&w.a, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(reply);
	assert_int_equal(reply->grant_reply->status, ROS2_OK);
	assert_in_range(longest, 1, 512);
	fake_free(&w.a);
}

static void require__rights_end_with_the_answer(void **state)
{
	struct world w;

	world(state, &w);
	link_up(&w);
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &w.picky, false);
	assert_int_equal(ask_grant(&w, 1, &w.picky, TRAINER), 0);
	tell(&w, "rxe0", PROBE_QP_BOUND_KEYS);
	wait_delta(&w, &w.picky, true);
	assert_int_equal(ask_grant(&w, 2, &w.picky, TRAINER), ROS2_DENIED);
	assert_condition(&w, true, "rxe0: qp-bound-keys: NOT enforced");
	sf_audit_wait(w.f, "grant.revoke", 1);
	/* A device that is not told of any more enforces nothing. */
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &w.picky, false);
	tell(&w, "rxe1", PROBE_MR_RANGE);
	wait_delta(&w, &w.picky, true);
	fake_free(&w.a);
}

static void require__is_judged_by_what_is_stored_after_a_restart(void **state)
{
	struct world w;

	world(state, &w);
	link_up(&w);
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &w.picky, false);
	assert_int_equal(ask_grant(&w, 1, &w.picky, TRAINER), 0);
	fake_disconnect(&w.a);
	sf_stop(w.f);
	sf_start(w.f);
	assert_condition(&w, false, "");
	assert_int_equal(sf_audit_count_action(w.f, "grant.revoke", ""), 0);
	fake_free(&w.a);
}

static void report__of_the_same_answers_is_recorded_once(void **state)
{
	struct world w;
	struct report p;

	world(state, &w);
	link_up(&w);
	tell(&w, "rxe0", PROBE_MR_RANGE);
	sf_audit_wait(w.f, "agent.probe", 1);
	report_of(&p, "rxe0", PROBE_MR_RANGE);
	p.s.tried_unix_ns = 77;
	p.s.revoke_p50_ns = 1234;
	for (int i = 0; i < 50; i++)
		send_report(&w, &p);
	assert_int_equal(ask_grant(&w, 1, &w.picky, TRAINER), ROS2_DENIED);
	p.s.firmware = (char *)"1.1"; /* the same answers, of another thing */
	send_report(&w, &p);
	sf_audit_wait(w.f, "agent.probe", 2);
	fake_free(&w.a);
}

/* The agent says it once: nobody has to end its stream for the store's sake. */
static void report__that_the_store_did_not_take_is_tried_again(void **state)
{
	struct world w;

	world(state, &w);
	link_up(&w);
	refusing = 3;
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &w.picky, false);
	assert_int_equal(refusing, 0);
	sf_audit_wait(w.f, "agent.probe", 1);
	assert_int_equal(sf_audit_count_action(w.f, "agent.probe", ""), 1);
	assert_int_equal(ask_grant(&w, 1, &w.picky, TRAINER), 0);
	fake_free(&w.a);
}

static void report__is_shown_cleaned_and_without_what_is_not_known(void **state)
{
	struct world w;
	struct report p;
	Ros2__V1__GetReply *g;
	Ros2__V1__ProbeSubject *two[2], *s;

	world(state, &w);
	link_up(&w);
	report_of(&p, "rx\x1b[31me0", PROBE_PROPERTIES);
	p.f[0].property = 4711;
	p.f[1].result = 9;
	p.f[2].seen = (char *)"a\xc2\x9b"
			      "b";
	two[0] = two[1] = &p.s;
	p.r.subjects = two;
	p.r.n_subjects = 2;
	send_report(&w, &p);
	sf_audit_wait(w.f, "agent.probe", 1);
	g = sf_get(w.f, KIND(AGENT), "dpu-0");
	assert_int_equal(g->object->agent->n_probes, 1); /* the same name twice is one */
	s = g->object->agent->probes[0];
	assert_string_equal(s->name, "rx?[31me0");
	assert_int_equal(s->n_findings, PROBE_PROPERTIES);
	assert_int_equal(s->findings[0]->result, PROBE_NOT_TRIED);
	assert_int_equal(s->findings[1]->result, PROBE_NOT_TRIED);
	assert_string_equal(s->findings[2]->seen, "a??b");
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_free(&w.a);
}

/* Many devices with long names: of the reason only a part is shown, whatever it is made of. */
static void report__names_that_are_cut_leave_lists_readable(void **state)
{
	Ros2__V1__ProbeSubject *all[PROBE_SUBJECTS_MAX];
	static struct report p[PROBE_SUBJECTS_MAX];
	char names[PROBE_SUBJECTS_MAX][PROBE_NAME_MAX + 1];
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	struct world w;

	world(state, &w);
	link_up(&w);
	q.kind = KIND(TENANT);
	for (unsigned pad = 1; pad <= 3; pad++) {
		struct ros2_err err = ROS2_ERR_INIT;
		Ros2__V1__ListReply *r = NULL;

		for (unsigned i = 0; i < PROBE_SUBJECTS_MAX; i++) {
			unsigned before = i ? 1 : pad; /* so that what follows lies elsewhere */

			memset(names[i], 0, sizeof(names[i]));
			memset(names[i], 'a' + (int)i, before);
			for (unsigned k = 0; k < 20; k++)
				memcpy(names[i] + before + 3 * k, "\xe2\x82\xac", 3);
			report_of(&p[i], names[i], PROBE_MR_RANGE);
			all[i] = &p[i].s;
		}
		p[0].r.subjects = all;
		p[0].r.n_subjects = PROBE_SUBJECTS_MAX;
		send_report(&w, &p[0]);
		sf_audit_wait(w.f, "agent.probe", pad);
		if (ros2_v1_admin_list_sync(w.f->admin, &q, 9000, &r, &err))
			fail_msg("tenants: %s", err.msg);
		assert_int_equal(r->n_objects, 2);
		ros2__v1__list_reply__free_unpacked(r, NULL);
		assert_condition(&w, true, "a\xe2\x82\xac");
	}
	fake_free(&w.a);
}

static void report__of_too_many_devices_ends_the_link(void **state)
{
	struct world w;
	struct report p;
	Ros2__V1__ProbeSubject *many[PROBE_SUBJECTS_MAX + 1];

	world(state, &w);
	link_up(&w);
	report_of(&p, "rxe0", PROBE_PROPERTIES);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = &p.s;
	p.r.subjects = many;
	p.r.n_subjects = ARRAY_SIZE(many);
	send_report(&w, &p);
	fake_wait_closed(&w.a, AWAIT_MS);
	assert_int_equal(w.a.why.status, ROS2_TOO_LARGE);
	assert_condition(&w, true, "has not reported");
	fake_free(&w.a);
}

/* What thousands of agents have is not looked at because one says something. */
static void report__looks_at_the_grants_of_its_agent_only(void **state)
{
	static struct world w, other;

	world(state, &w);
	sf_apply(w.f, sf_agent1);
	sf_apply(w.f, "apiVersion: ros2/v1\nkind: Tenant\nmetadata: {name: both}\nspec:\n"
	              "  principals: [\"spiffe://" TD "/tenant/both/trainer\"]\n"
	              "  placement: {agents: [dpu-0, dpu-1], require: [mr-range]}\n"
	              "  namespaces: [{name: data, engine: ram, path: both, access: rw}]\n"
	              "  sessions: {max: 2}\n");
	other = (struct world){.f = w.f, .plain = uid_of(w.f, "both")};
	fake_enrol(w.f, &other.a, "dpu-1");
	link_up(&other);
	tell(&other, "rxe0", PROBE_PROPERTIES);
	wait_delta(&other, &other.plain, false);
	assert_int_equal(ask_grant(&other, 1, &other.plain, "spiffe://" TD "/tenant/both/trainer"),
	                 0);
	link_up(&w);
	elsewhere = 0;
	tell(&w, "rxe0", PROBE_PROPERTIES);
	wait_delta(&w, &other.plain, false);
	tell(&w, "rxe0", PROBE_MR_RANGE);
	wait_delta(&w, &other.plain, true);
	assert_int_equal(elsewhere, 0);
	/* The control: a document may concern all of them. */
	sf_apply(w.f, sf_tenant("plain", "2h", "10m", "dpu-0"));
	assert_int_not_equal(elsewhere, 0);
	fake_free(&w.a);
	fake_free(&other.a);
}

/* Each costs a look at all that the agent has, on a loop that is everybody's. */
static void report__of_an_agent_that_says_nothing_else_ends_the_link(void **state)
{
	static struct world w;
	struct report p;

	world(state, &w);
	link_up(&w);
	report_of(&p, "rxe0", PROBE_MR_RANGE);
	for (int i = 0; i < 1000; i++)
		send_report(&w, &p);
	fake_wait_closed(&w.a, AWAIT_MS);
	assert_int_equal(w.a.why.status, ROS2_BUSY);
	fake_free(&w.a);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(require__nothing_is_placed_before_it_was_seen),
		T(report__has_the_space_for_revocations_only_when_it_takes_something_away),
		T(grant__takes_of_an_agents_words_what_the_log_takes),
		T(require__rights_end_with_the_answer),
		T(require__is_judged_by_what_is_stored_after_a_restart),
		T(report__of_the_same_answers_is_recorded_once),
		T(report__that_the_store_did_not_take_is_tried_again),
		T(report__is_shown_cleaned_and_without_what_is_not_known),
		T(report__names_that_are_cut_leave_lists_readable),
		T(report__of_too_many_devices_ends_the_link),
		T(report__looks_at_the_grants_of_its_agent_only),
		T(report__of_an_agent_that_says_nothing_else_ends_the_link),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
