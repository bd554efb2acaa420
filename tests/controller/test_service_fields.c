/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every field of every message of an agent's stream, by the descriptors: dpu-1 says in it what is
 * dpu-0's, its tenant alpha's or the controller's, one field at a time. What is shown of dpu-0 and
 * of alpha stays as it is, and alpha's history has nothing of it; the fields that name something
 * that can be owned leave a record of the attempt. A field that is new is walked; a message that is
 * new fails until somebody says here what a good one is.
 */
#include "common/util.h"
#include "controller/test_switches.h"
#include "tests/await.h"
#include "tests/controller/service_attacks.h"
#include "tests/controller/service_picture.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define CASE(k) ROS2__V1__AGENT_MESSAGE__MSG_##k

struct ctl_test_switches ctl_test_switches;

/* ---- the stage ---- */

struct stage {
	struct two t;
	struct ros2_uid grant;           /* of alpha at dpu-0 */
	struct ros2_uid revocation, own; /* whose receipts dpu-0 and dpu-1 owe */
	char strings[6][128];            /* what is another's, as text */
	struct picture before;
	unsigned history; /* records of alpha */
};

#define VICTIMS 2 /* what its session's uid begins with, and its lease */

/* dpu-0 has a session and a lease, and says so at once. */
static bool answers_reports(struct fake *a, const Ros2__V1__ControllerMessage *in)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	Ros2__V1__SessionInfo s = ROS2__V1__SESSION_INFO__INIT, *sessions = &s;
	Ros2__V1__LeaseInfo l = ROS2__V1__LEASE_INFO__INIT, *leases = &l;
	struct ros2_uid uid = {.b = {VICTIMS}};

	if (in->msg_case != MSG(REPORT_REQUEST))
		return false;
	s.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, uid.b};
	s.tenant = l.tenant = (char *)"alpha";
	s.principal = (char *)TRAINER;
	l.lease_id = VICTIMS;
	r.request_id = in->report_request->request_id;
	r.last = true;
	r.sessions = &sessions;
	r.leases = &leases;
	r.n_sessions = r.n_leases = 1;
	m.msg_case = CASE(REPORT);
	m.report = &r;
	fake_send(a, &m);
	return true;
}

static void answer_on_loop(void *arg)
{
	((struct fake *)arg)->sees = answers_reports;
}

static void wait_on_loop(void *arg)
{
	((struct fake *)arg)->sees = NULL;
}

static void answers_by_itself(struct fake *a, bool yes)
{
	loop_call(a->f->client_loop, yes ? answer_on_loop : wait_on_loop, a);
}

static void heard(struct fake *a)
{
	fake_beat(a, NULL, 0);
	fake_want(a, MSG(CONTACT));
}

static unsigned history_of_alpha(struct sf *f)
{
	return sf_audit_count_action(f, "", "alpha");
}

/* Which its agent does not confirm. */
static struct ros2_uid revoke_one(struct sf *f, const struct ros2_uid *grant)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_uid revocation;
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(grant, uid);
	assert_int_equal(sf_revoke(f, KIND(GRANT), uid, 1, &r, NULL), 0);
	assert_int_equal(
		ros2_uid_from_bytes(r->revocation_uid.data, r->revocation_uid.len, &revocation), 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	return revocation;
}

static void remember(struct stage *s)
{
	answers_by_itself(&s->t.b, true);
	heard(&s->t.a);
	picture_fini(&s->before);
	picture_take(s->t.f, "dpu-1", "beta", &s->before);
	answers_by_itself(&s->t.b, false);
	s->history = history_of_alpha(s->t.f);
}

static void stage_begin(void **state, struct stage *s)
{
	static const char *const words[] = {"dpu-0", "alpha", TRAINER,
	                                    "spiffe://" TD "/agent/dpu-0"};
	struct ros2_uid gone;

	memset(s, 0, sizeof(*s));
	two_start(state, &s->t);
	answers_by_itself(&s->t.a, true);
	gone = two_grant(&s->t);
	s->revocation = revoke_one(s->t.f, &gone);
	gone = fake_granted(&s->t.b, &s->t.beta, "spiffe://" TD "/tenant/beta/trainer");
	s->own = revoke_one(s->t.f, &gone);
	s->grant = two_grant(&s->t);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		snprintf(s->strings[i], sizeof(s->strings[i]), "%s", words[i]);
	ros2_uid_to_str(&s->t.alpha, s->strings[4]);
	ros2_uid_to_str(&s->t.a.uid, s->strings[5]);
	remember(s);
}

/* Of dpu-0, or of alpha; NULL: nothing. */
static const char *what_changed(struct stage *s)
{
	const char *what = NULL;
	struct picture now;

	answers_by_itself(&s->t.b, true); /* nobody waits for it */
	heard(&s->t.a);
	picture_take(s->t.f, "dpu-1", "beta", &now);
	if (!picture_same(&s->before, &now))
		what = "what is shown of them";
	else if (history_of_alpha(s->t.f) != s->history)
		what = "alpha's history";
	else if (fake_closed(&s->t.a))
		what = "dpu-0's stream";
	answers_by_itself(&s->t.b, false);
	picture_fini(&now);
	return what;
}

static void stage_end(struct stage *s)
{
	/* It is its own all the while. */
	fake_release(&s->t.a, &s->grant);
	sf_audit_wait(s->t.f, "grant.release", 1);
	picture_fini(&s->before);
	two_stop(&s->t);
}

/* ---- a good message of each kind, of what is dpu-1's own ---- */

struct good {
	Ros2__V1__AgentMessage m;
	Ros2__V1__AgentHello hello;
	Ros2__V1__HaveObject have, *haves;
	Ros2__V1__Epoch epoch, record_epoch;
	Ros2__V1__Stamp stamp;
	Ros2__V1__Beat beat;
	Ros2__V1__Condition condition, *conditions;
	Ros2__V1__TargetInfo target, *targets;
	ProtobufCBinaryData in_use;
	Ros2__V1__ObjectState state;
	Ros2__V1__GrantRequest grant_request;
	Ros2__V1__GrantRelease grant_release;
	Ros2__V1__Receipt receipt;
	Ros2__V1__PendingKeys pending, *pendings;
	Ros2__V1__AuditBatch audit;
	Ros2__V1__AuditDraft draft, *drafts;
	Ros2__V1__AuditRecord record;
	Ros2__V1__AuditOrigin origin;
	Ros2__V1__AuditAggregate aggregate;
	Ros2__V1__AuditDetail detail, *details;
	Ros2__V1__Report report;
	Ros2__V1__SessionInfo session, *sessions;
	Ros2__V1__LeaseInfo lease, *leases;
	Ros2__V1__Ack ack;
	Ros2__V1__ProbeReport probe;
	Ros2__V1__ProbeSubject subject, *subjects;
	Ros2__V1__ProbeFinding finding, *findings;
	uint8_t boot[16];
	struct ros2_uid own; /* of nothing that there is */
};

static ProtobufCBinaryData of(struct ros2_uid *u)
{
	return (ProtobufCBinaryData){ROS2_UID_LEN, u->b};
}

static void good_hello(struct good *g, struct stage *s)
{
	ros2__v1__agent_hello__init(&g->hello);
	ros2__v1__have_object__init(&g->have);
	ros2__v1__epoch__init(&g->epoch);
	g->have.kind = KIND(GRANT);
	g->have.uid = of(&g->own);
	g->have.version = 1;
	g->haves = &g->have;
	g->epoch.lineage = of(&g->own);
	g->hello.protocol = 1;
	g->hello.agent_uid = of(&s->t.b.uid);
	g->hello.incarnation = of(&s->t.b.incarnation);
	g->hello.stamp = &g->stamp;
	g->hello.epoch = &g->epoch;
	g->hello.have = &g->haves;
	g->hello.n_have = 1;
	g->m.hello = &g->hello;
}

static void good_beat(struct good *g)
{
	ros2__v1__beat__init(&g->beat);
	ros2__v1__condition__init(&g->condition);
	ros2__v1__target_info__init(&g->target);
	g->beat.stamp = &g->stamp;
	g->in_use = of(&g->own);
	g->beat.grants_in_use = &g->in_use;
	g->beat.n_grants_in_use = 1;
	g->condition.name = (char *)"Frozen";
	g->condition.status = true;
	g->conditions = &g->condition;
	g->beat.conditions = &g->conditions;
	g->beat.n_conditions = 1;
	g->targets = &g->target;
	g->beat.targets = &g->targets;
	g->beat.n_targets = 1;
	g->m.beat = &g->beat;
}

static void good_state(struct good *g, struct stage *s)
{
	ros2__v1__object_state__init(&g->state);
	g->state.kind = KIND(TENANT);
	g->state.uid = of(&s->t.beta);
	g->state.version = 1;
	g->state.failed_reason = (char *)"SAID";
	g->m.state = &g->state;
}

static void good_grants(struct good *g, struct stage *s)
{
	ros2__v1__grant_request__init(&g->grant_request);
	ros2__v1__grant_release__init(&g->grant_release);
	g->grant_request.request_id = 1;
	g->grant_request.tenant_uid = of(&s->t.beta);
	g->grant_request.principal = (char *)"spiffe://" TD "/tenant/beta/trainer";
	g->grant_request.stamp = &g->stamp;
	g->grant_release.grant_uid = of(&g->own);
	if (g->m.msg_case == CASE(GRANT_REQUEST))
		g->m.grant_request = &g->grant_request;
	else
		g->m.grant_release = &g->grant_release;
}

static void good_receipt(struct good *g, struct stage *s)
{
	ros2__v1__receipt__init(&g->receipt);
	ros2__v1__pending_keys__init(&g->pending);
	g->receipt.revocation_uid = of(&s->own);
	g->receipt.durable = true;
	g->pending.tenant_uid = of(&s->t.beta);
	g->pending.keys = 1;
	g->pendings = &g->pending;
	g->receipt.pending = &g->pendings;
	g->receipt.n_pending = 1;
	g->m.receipt = &g->receipt;
}

static void good_record(struct good *g)
{
	ros2__v1__audit_record__init(&g->record);
	ros2__v1__epoch__init(&g->record_epoch);
	ros2__v1__audit_origin__init(&g->origin);
	ros2__v1__audit_aggregate__init(&g->aggregate);
	ros2__v1__audit_detail__init(&g->detail);
	g->detail.key = (char *)"said";
	g->details = &g->detail;
	g->record.epoch = &g->record_epoch;
	g->record.action = (char *)"session.open";
	g->record.origin = &g->origin;
	g->record.aggregate = &g->aggregate;
	g->record.details = &g->details;
	g->record.n_details = 1;
}

static void good_audit(struct good *g, struct stage *s)
{
	ros2__v1__audit_batch__init(&g->audit);
	ros2__v1__audit_draft__init(&g->draft);
	good_record(g);
	g->draft.seq = 1;
	g->draft.record = &g->record;
	g->drafts = &g->draft;
	g->audit.incarnation = of(&s->t.b.incarnation);
	g->audit.drafts = &g->drafts;
	g->audit.n_drafts = 1;
	g->m.audit = &g->audit;
}

static void good_report(struct good *g)
{
	ros2__v1__report__init(&g->report);
	ros2__v1__session_info__init(&g->session);
	ros2__v1__lease_info__init(&g->lease);
	g->session.session_uid = of(&g->own);
	g->sessions = &g->session;
	g->leases = &g->lease;
	g->report.sessions = &g->sessions;
	g->report.leases = &g->leases;
	g->report.n_sessions = g->report.n_leases = 1;
	g->m.report = &g->report;
}

static void good_probe(struct good *g)
{
	ros2__v1__probe_report__init(&g->probe);
	ros2__v1__probe_subject__init(&g->subject);
	ros2__v1__probe_finding__init(&g->finding);
	g->subject.name = (char *)"tcp";
	g->findings = &g->finding;
	g->subject.findings = &g->findings;
	g->subject.n_findings = 1;
	g->subjects = &g->subject;
	g->probe.subjects = &g->subjects;
	g->probe.n_subjects = 1;
	g->m.probe = &g->probe;
}

static void good_init(struct good *g, struct stage *s, Ros2__V1__AgentMessage__MsgCase which)
{
	memset(g, 0, sizeof(*g));
	ros2__v1__agent_message__init(&g->m);
	fake_stamp(&g->stamp, g->boot);
	g->own = ros2_uid_new();
	g->m.msg_case = which;
	switch (which) {
	case CASE(HELLO):
		good_hello(g, s);
		break;
	case CASE(BEAT):
		good_beat(g);
		break;
	case CASE(STATE):
		good_state(g, s);
		break;
	case CASE(GRANT_REQUEST):
	case CASE(GRANT_RELEASE):
		good_grants(g, s);
		break;
	case CASE(RECEIPT):
		good_receipt(g, s);
		break;
	case CASE(AUDIT):
		good_audit(g, s);
		break;
	case CASE(REPORT):
		good_report(g);
		break;
	case CASE(ACK):
		ros2__v1__ack__init(&g->ack);
		g->m.ack = &g->ack;
		break;
	case CASE(PROBE):
		good_probe(g);
		break;
	default:
		fail_msg("message %d: nobody has said what a good one is", (int)which);
	}
}

/* ---- one field of it ---- */

struct walk {
	struct stage *s;
	struct good *g;
	char path[128];
	unsigned fields, said, refused;
	unsigned claims; /* that there must be by now */
	bool control;    /* a check is off: nothing is a claim */
};

/* Fields that name what can be owned, each with a value of the victim's of its own. */
static bool is_recorded(struct walk *w, const void *value)
{
	const struct ros2_uid *u = value;
	const struct {
		const char *path;
		const struct ros2_uid *uid;
	} owned[] = {
		{"hello.have.uid", &w->s->grant},
		{"beat.grants_in_use", &w->s->grant},
		{"state.uid", &w->s->grant},
		{"state.uid", &w->s->t.alpha},
		{"state.uid", &w->s->t.a.uid},
		{"grant_release.grant_uid", &w->s->grant},
		{"receipt.revocation_uid", &w->s->revocation},
	};

	for (size_t i = 0; i < ARRAY_SIZE(owned); i++)
		if (!strcmp(w->path, owned[i].path) && u == owned[i].uid)
			return true;
	return !strcmp(w->path, "audit.drafts.record.origin.agent_uid");
}

static void say_hello(struct walk *w)
{
	struct fake *b = &w->s->t.b;

	fake_disconnect(b);
	fake_say_hello(b, w->g->m.hello);
	w->refused += !fake_next(b, MSG(WELCOME), AWAIT_MS);
}

/* Each record is a new one; one of a number of its own is of an incarnation of its own. */
static void say_record(struct walk *w)
{
	struct fake *b = &w->s->t.b;
	bool number = !strcmp(w->path, "audit.drafts.seq");

	if (number)
		b->incarnation = ros2_uid_new();
	else
		w->g->draft.seq = ++b->last_seq;
	fake_send(b, &w->g->m);
	fake_want(b, MSG(AUDIT_ACK));
	if (!number)
		return;
	b->incarnation = ros2_uid_new();
	b->last_seq = 0;
}

struct question {
	struct sf *f;
	Ros2__V1__ListRequest q;
	Ros2__V1__ListReply *reply;
};

static void *ask(void *arg)
{
	struct question *q = arg;

	ros2_v1_admin_list_sync(q->f->admin, &q->q, 9000, &q->reply, NULL);
	return NULL;
}

/* Under dpu-0's name is what dpu-0 said, and nothing else. */
static void is_under_its_name(const struct walk *w, const Ros2__V1__ListReply *r)
{
	unsigned rows = 0, own = 0;

	for (size_t i = 0; i < r->n_sessions; i++) {
		const Ros2__V1__SessionInfo *x = r->sessions[i];

		rows += strcmp(x->agent, "dpu-1") != 0;
		own += !strcmp(x->agent, "dpu-0") && x->session_uid.data[0] == VICTIMS &&
		       !strcmp(x->tenant, "alpha");
	}
	for (size_t i = 0; i < r->n_leases; i++) {
		const Ros2__V1__LeaseInfo *x = r->leases[i];

		rows += strcmp(x->agent, "dpu-1") != 0;
		own += !strcmp(x->agent, "dpu-0") && x->lease_id == VICTIMS &&
		       !strcmp(x->tenant, "alpha");
	}
	if (rows != 1 || own != 1)
		fail_msg("%s: %u rows are not dpu-1's, %u are dpu-0's", w->path, rows, own);
}

/* To a question that both were asked; false when not both were in time. */
static bool say_report(struct walk *w)
{
	bool leases = !strncmp(w->path, "report.leases", strlen("report.leases"));
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report last = ROS2__V1__REPORT__INIT;
	struct question q = {.f = w->s->t.f};
	struct fake *b = &w->s->t.b;
	pthread_t thread;
	bool both;

	ros2__v1__list_request__init(&q.q);
	q.q.kind = leases ? KIND(LEASE) : KIND(SESSION);
	assert_int_equal(pthread_create(&thread, NULL, ask, &q), 0);
	last.request_id = fake_want(b, MSG(REPORT_REQUEST))->report_request->request_id;
	last.last = true;
	if (strcmp(w->path, "report.request_id") != 0)
		w->g->report.request_id = last.request_id;
	fake_send(b, &w->g->m);
	m.msg_case = CASE(REPORT);
	m.report = &last;
	fake_send(b, &m);
	pthread_join(thread, NULL);
	assert_non_null(q.reply);
	both = !q.reply->n_unreachable_agents;
	if (both)
		is_under_its_name(w, q.reply);
	ros2__v1__list_reply__free_unpacked(q.reply, NULL);
	return both;
}

static void say_other(struct walk *w)
{
	struct fake *b = &w->s->t.b;

	fake_send(b, &w->g->m);
	if (w->g->m.msg_case == CASE(BEAT))
		fake_want(b, MSG(CONTACT));
}

/* As it is now; it was heard when this returns. */
static void say(struct walk *w, const void *value)
{
	w->said++;
	if (w->g->m.msg_case == CASE(HELLO))
		say_hello(w);
	else if (w->g->m.msg_case == CASE(AUDIT))
		say_record(w);
	else if (w->g->m.msg_case == CASE(REPORT))
		assert_true(AWAIT(say_report(w)));
	else
		say_other(w);
	if (w->g->m.msg_case != CASE(HELLO))
		heard(&w->s->t.b);
	if (w->control || !is_recorded(w, value))
		return;
	w->claims++;
	sf_audit_wait(w->s->t.f, "agent.claim", w->claims);
}

static void try_bytes(struct walk *w, ProtobufCBinaryData *at)
{
	struct ros2_uid *const values[] = {&w->s->t.alpha, &w->s->t.a.uid, &w->s->grant,
	                                   &w->s->revocation, &w->s->t.a.incarnation};
	ProtobufCBinaryData was = *at;

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		*at = of(values[i]);
		say(w, values[i]);
	}
	*at = was;
}

static void try_string(struct walk *w, char **at)
{
	char *was = *at;

	for (size_t i = 0; i < ARRAY_SIZE(w->s->strings); i++) {
		*at = w->s->strings[i];
		say(w, *at);
	}
	*at = was;
}

/* The kinds of objects; what was sent to dpu-0 last; more than there is. */
static void try_number(struct walk *w, void *at, size_t size)
{
	const uint64_t values[] = {1, 4, w->s->t.a.last_nonce, UINT64_MAX};
	uint64_t was;

	memcpy(&was, at, size);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		memcpy(at, &values[i], size);
		say(w, at);
	}
	memcpy(at, &was, size);
}

static void try_bool(struct walk *w, protobuf_c_boolean *at)
{
	*at = !*at;
	say(w, at);
	*at = !*at;
}

static void walk(struct walk *w, ProtobufCMessage *m);

static void walk_field(struct walk *w, const ProtobufCFieldDescriptor *f, void *at)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_MESSAGE:
		if (!*(ProtobufCMessage **)at)
			fail_msg("%s: nobody has said what a good one is", w->path);
		walk(w, *(ProtobufCMessage **)at);
		return;
	case PROTOBUF_C_TYPE_STRING:
		try_string(w, at);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		try_bytes(w, at);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		try_bool(w, at);
		break;
	case PROTOBUF_C_TYPE_UINT64:
		try_number(w, at, 8);
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_ENUM:
		try_number(w, at, 4);
		break;
	default:
		fail_msg("%s: a type that nobody walks", w->path);
	}
	w->fields++;
}

static void walk(struct walk *w, ProtobufCMessage *m)
{
	size_t above = strlen(w->path);

	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		uint8_t *at = (uint8_t *)m + f->offset;

		snprintf(w->path + above, sizeof(w->path) - above, "%s%s", above ? "." : "",
		         f->name);
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			if (*(size_t *)((uint8_t *)m + f->quantifier_offset) != 1)
				fail_msg("%s: nobody has said what a good one is", w->path);
			at = *(uint8_t **)at;
		}
		walk_field(w, f, at);
		w->path[above] = '\0';
	}
}

/* ---- all of them ---- */

static const ProtobufCFieldDescriptor *message_at(unsigned i)
{
	return i < ros2__v1__agent_message__descriptor.n_fields
	               ? &ros2__v1__agent_message__descriptor.fields[i]
	               : NULL;
}

static void walk_message(struct stage *s, struct walk *w, const ProtobufCFieldDescriptor *f)
{
	struct good g;

	good_init(&g, s, (Ros2__V1__AgentMessage__MsgCase)f->id);
	*w = (struct walk){.s = s, .g = &g, .claims = w->claims, .control = w->control};
	snprintf(w->path, sizeof(w->path), "%s", f->name);
	walk(w, *(ProtobufCMessage **)((uint8_t *)&g.m + f->offset));
	assert_true(w->fields > 0);
	if (f->id != CASE(HELLO))
		fake_record(&s->t.b, NULL, NULL); /* at the store behind all of it */
	if (!w->control && what_changed(s))
		fail_msg("%s: %s has changed", f->name, what_changed(s));
}

static void field__that_says_what_is_anothers_changes_nothing_of_its(void **state)
{
	const ProtobufCFieldDescriptor *f;
	struct walk w = {.claims = 0};
	struct stage s;

	stage_begin(state, &s);
	for (unsigned i = 0; (f = message_at(i)); i++)
		if (f->id != CASE(HELLO))
			walk_message(&s, &w, f);
	stage_end(&s);
}

/* The controls: of a message with one check off something is found. */
static bool is_found(struct stage *s, Ros2__V1__AgentMessage__MsgCase which)
{
	struct walk w = {.control = true};
	bool found;

	for (unsigned i = 0; message_at(i); i++)
		if (message_at(i)->id == which)
			walk_message(s, &w, message_at(i));
	found = what_changed(s) != NULL;
	remember(s);
	return found;
}

static void control__without_its_check_a_field_is_found(void **state)
{
	struct stage s;

	stage_begin(state, &s);
	assert_false(is_found(&s, CASE(GRANT_RELEASE)));
	ctl_test_switches.no_grant_owner = true;
	assert_true(is_found(&s, CASE(GRANT_RELEASE)));
	ctl_test_switches.no_grant_owner = false;
	assert_false(is_found(&s, CASE(AUDIT)));
	ctl_test_switches.no_record_tenant = true;
	assert_true(is_found(&s, CASE(AUDIT)));
	ctl_test_switches.no_record_tenant = false;
	picture_fini(&s.before);
	two_stop(&s.t);
}

static unsigned refused_hellos(struct sf *f)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)"agent.connect";
	q.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_DENIED;
	return sf_audit_count(f, &q);
}

static void field__of_a_hello_that_says_what_is_anothers_changes_nothing_of_its(void **state)
{
	struct walk w = {.claims = 0};
	struct stage s;

	stage_begin(state, &s);
	walk_message(&s, &w, message_at(0));
	assert_true(w.fields >= 13);
	/* Another's uid is refused, and so is an epoch of another lineage. */
	assert_true(w.refused >= 9 && w.refused < w.said);
	assert_true(AWAIT(refused_hellos(s.t.f) == w.refused));
	/* And it may come in by what is its own. */
	fake_disconnect(&s.t.b);
	fake_link_up(&s.t.b);
	stage_end(&s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(field__that_says_what_is_anothers_changes_nothing_of_its),
		T(field__of_a_hello_that_says_what_is_anothers_changes_nothing_of_its),
		T(control__without_its_check_a_field_is_found),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
