/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of the controller fail, each once and then each and all after it, on its loop, on the
 * threads of its listeners and on the store's, SQLite's own, too, while an operator and an agent
 * work with it. What is asked is done or answered with a named error; what was answered as done is
 * there, what was not is not half there; the same again succeeds; the log verifies.
 */
#include "common/util.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include "tests/controller/alloc_works.h"
#include "tests/controller/service_audit.h"
#include "tests/sweep/sweep.h"

/* What is tried again later is tried soon. */
int __real_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);
int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg);

int __wrap_loop_timer_in_ms(struct loop *l, struct loop_timer *t, uint64_t ms, loop_fn fn,
                            void *arg)
{
	return __real_loop_timer_in_ms(l, t, ms >= 1000 && ms <= 5000 ? ms / 50 : ms, fn, arg);
}

int __real_loop_timer_at(struct loop *l, struct loop_timer *t, uint64_t deadline_ns, loop_fn fn,
                         void *arg);
int __wrap_loop_timer_at(struct loop *l, struct loop_timer *t, uint64_t deadline_ns, loop_fn fn,
                         void *arg);

int __wrap_loop_timer_at(struct loop *l, struct loop_timer *t, uint64_t deadline_ns, loop_fn fn,
                         void *arg)
{
	uint64_t now = clock_boottime_ns();

	/* Of a grant that waits to be recorded as ended; its own end is an hour away. */
	if (deadline_ns > now && deadline_ns - now <= 60 * NS_PER_S)
		deadline_ns = now + (deadline_ns - now) / 200;
	return __real_loop_timer_at(l, t, deadline_ns, fn, arg);
}

/* As sf_tenant, with room for a grant in each round. */
static const char *tenant(const char *name, const char *lifetime)
{
	static char bufs[2][2200];
	static unsigned next;
	const char *from = sf_tenant(name, lifetime, "10m", "dpu-0");
	const char *max = strstr(from, "{max: 2}");
	char *out = bufs[next++ % 2];

	assert_non_null(max);
	snprintf(out, sizeof(bufs[0]), "%.*s{max: 500}%s", (int)(max - from), from, max + 8);
	return out;
}

/* ---- what is done; 0 or the error ---- */

static int apply(struct world *w, struct ros2_err *err)
{
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *r = NULL;
	Ros2__V1__GetReply *g;
	char lifetime[16], yaml[4096];
	int rc;

	snprintf(lifetime, sizeof(lifetime), "%um", 60 + w->n++ % 60);
	snprintf(yaml, sizeof(yaml), "%s---\n%s", tenant("alpha", lifetime),
	         tenant("beta", lifetime));
	file.name = (char *)"test.yaml";
	file.text = (ProtobufCBinaryData){strlen(yaml), (uint8_t *)yaml};
	q.files = &files;
	q.n_files = 1;
	rc = ros2_v1_admin_apply_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (!rc && !r->applied)
		fail_msg("good documents were not applied: %s",
		         r->n_diagnostics ? r->diagnostics[0]->message : "without a word");
	if (r)
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	sweep_off();
	/* Both or none. */
	for (int i = 0; i < 2 && w->n > 1; i++) {
		g = sf_get(w->f, KIND(TENANT), i ? "beta" : "alpha");
		if (!memmem(g->object->yaml.data, g->object->yaml.len, lifetime,
		            strlen(lifetime)) != !!rc)
			fail_msg("an apply that was answered %s is otherwise in %s",
			         rc ? err->msg : "well", i ? "beta" : "alpha");
		ros2__v1__get_reply__free_unpacked(g, NULL);
	}
	return rc;
}

/* Refused, it says why. */
static int apply_bad(struct world *w, struct ros2_err *err)
{
	static char yaml[] = "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: B}\nspec: {}\n";
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *r = NULL;
	int rc;

	file.name = (char *)"test.yaml";
	file.text = (ProtobufCBinaryData){strlen(yaml), (uint8_t *)yaml};
	q.files = &files;
	q.n_files = 1;
	rc = ros2_v1_admin_apply_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (rc)
		return rc;
	if (r->applied || !r->n_diagnostics || !r->diagnostics[0]->error)
		fail_msg("a bad document is answered without a word");
	ros2__v1__apply_reply__free_unpacked(r, NULL);
	return 0;
}

static int get(struct world *w, struct ros2_err *err)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *r = NULL;
	int rc;

	ref.kind = KIND(TENANT);
	ref.name = (char *)"alpha";
	q.ref = &ref;
	rc = ros2_v1_admin_get_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (r)
		ros2__v1__get_reply__free_unpacked(r, NULL);
	return rc;
}

static int list(struct world *w, struct ros2_err *err)
{
	static const Ros2__V1__ObjectKind kinds[] = {KIND(TENANT), KIND(AGENT), KIND(GRANT)};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kinds) && !rc; i++) {
		Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
		Ros2__V1__ListReply *r = NULL;

		q.kind = kinds[i];
		rc = ros2_v1_admin_list_sync(w->f->admin, &q, AWAIT_MS, &r, err);
		if (r)
			ros2__v1__list_reply__free_unpacked(r, NULL);
	}
	return rc;
}

/* What was answered to the end is all there is: a start is in the log once. */
static int query(struct world *w, struct ros2_err *err)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	unsigned n = 0;
	int rc;

	q.action = (char *)"controller.start";
	rc = rpc_reader_open(w->f->admin, &ros2_v1_audit_query, &q.base, 8000, &r, err);
	if (rc)
		return rc;
	for (; (rc = rpc_reader_next(r, 8000, &m, err)) == 0; n++)
		protobuf_c_message_free_unpacked(m, NULL);
	rpc_reader_close(r);
	if (rc == -ENODATA && n != 1)
		fail_msg("a query was answered with %u of 1 records", n);
	return rc == -ENODATA ? 0 : rc;
}

/* The log as stored, from a record on; *ret_noted: the last one with a checkpoint, 0: none. */
static int read_raw(struct world *w, uint64_t from, uint64_t *ret_first, uint64_t *ret_noted,
                    struct ros2_err *err)
{
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	int rc;

	*ret_first = *ret_noted = 0;
	q.from_seq = from;
	rc = rpc_reader_open(w->f->admin, &ros2_v1_audit_raw, &q.base, 8000, &r, err);
	if (rc)
		return rc;
	while ((rc = rpc_reader_next(r, 8000, &m, err)) == 0) {
		Ros2__V1__AuditRawItem *it = (Ros2__V1__AuditRawItem *)m;

		if (it->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_CHECKPOINT)
			*ret_noted = it->checkpoint->size;
		if (!*ret_first)
			*ret_first = *ret_noted;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(r);
	return rc == -ENODATA ? 0 : rc;
}

static int find_checkpoint(struct world *w, struct ros2_err *err)
{
	uint64_t first;
	int rc = w->noted ? 0 : read_raw(w, 1, &first, &w->noted, err);

	return rc || w->noted ? rc : ros2_err_named(err, ROS2_BUSY, "no checkpoint yet");
}

/* No checkpoint is left out: a verifier would miss it. */
static int raw(struct world *w, struct ros2_err *err)
{
	uint64_t first, last;
	int rc = read_raw(w, w->noted, &first, &last, err);

	if (!rc && first != w->noted)
		fail_msg("the log was read to its end, without the checkpoint of record %u",
		         (unsigned)w->noted);
	return rc;
}

/* An agent has few tokens: each round has its own. */
static int new_agent(struct world *w, struct ros2_err *err)
{
	char doc[200];

	snprintf(doc, sizeof(doc),
	         "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: a-%u}\nspec: {}\n", ++w->n);
	sf_apply(w->f, doc);
	return 0;
}

static int token(struct world *w, struct ros2_err *err)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *r = NULL;
	char name[64], secret[80];
	struct fake other = {.f = w->f};
	int rc;

	snprintf(name, sizeof(name), "a-%u", w->n);
	q.agent = name;
	rc = ros2_v1_admin_create_agent_token_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (rc)
		return rc;
	assert_int_equal(sscanf(r->token, "ros2-join-v1 %*s %79s %*s", secret), 1);
	ros2__v1__create_agent_token_reply__free_unpacked(r, NULL);
	snprintf(other.name, sizeof(other.name), "%s", name);
	rc = fake_enrol_with(w->f, &other, name, secret, err);
	if (!rc || !sweep_fired())
		return rc;
	/* The token was answered, so it serves. */
	sweep_off();
	assert_int_equal(fake_enrol_with(w->f, &other, name, secret, err), 0);
	return -ENOMEM;
}

/* ---- over the agent's stream ---- */

/* It has no sessions. A tenant that is deleted it has no more. */
static bool answer_report(struct fake *a, const Ros2__V1__ControllerMessage *in)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;

	if (in->msg_case == MSG(REVOKE) && !strcmp(in->revoke->reason, "deleted"))
		fake_receipt(a, &in->revoke->revocation_uid, 0);
	if (in->msg_case != MSG(REPORT_REQUEST))
		return false;
	r.request_id = in->report_request->request_id;
	r.last = true;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
	return true;
}

static void link_up(struct world *w)
{
	for (int i = 0; i < 50 && !w->linked; i++) {
		fake_disconnect(&w->a);
		fake_connect(&w->a, NULL, 0);
		w->linked = fake_next(&w->a, MSG(WELCOME), 3000) != NULL;
	}
	assert_true(w->linked);
}

int works_lost(struct fake *a, struct ros2_err *err)
{
	return ros2_err_named(err, ROS2_CLOSED, "%.200s",
	                      fake_closed(a) ? a->why.msg : "no answer");
}

static int lost(struct world *w, struct ros2_err *err)
{
	w->linked = false;
	return works_lost(&w->a, err);
}

/* A link that is made anew, with all that is to be synchronised. */
static int connect_agent(struct world *w, struct ros2_err *err)
{
	Ros2__V1__ControllerMessage *m;

	fake_disconnect(&w->a);
	w->linked = false;
	fake_connect(&w->a, NULL, 0);
	if (!fake_next(&w->a, MSG(WELCOME), 3000))
		return lost(w, err);
	w->linked = true;
	do {
		m = fake_next(&w->a, MSG(DELTA), 3000);
		if (!m)
			return lost(w, err);
	} while (!m->delta->initial_done);
	return 0;
}

int works_grant(struct world *w, const Ros2__V1__GrantReply **ret, struct ros2_err *err)
{
	Ros2__V1__ControllerMessage *m;
	uint64_t id = ++w->n;

	fake_ask_grant(&w->a, id, &w->alpha, TRAINER);
	do {
		m = fake_next(&w->a, MSG(GRANT_REPLY), AWAIT_MS);
		if (!m && !fake_closed(&w->a))
			fail_msg("a request for a grant was not answered");
		if (!m)
			return lost(w, err);
	} while (m->grant_reply->request_id != id);
	if (m->grant_reply->status)
		return ros2_err_named(err, (enum ros2_status)m->grant_reply->status, "%.200s",
		                      m->grant_reply->words);
	*ret = m->grant_reply;
	return 0;
}

static int grant(struct world *w, struct ros2_err *err)
{
	const Ros2__V1__GrantReply *r;

	return works_grant(w, &r, err);
}

static int revoke_alpha(struct world *w, struct ros2_err *err)
{
	Ros2__V1__RevokeReply *r = NULL;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__GetReply *g;
	int rc = sf_revoke(w->f, KIND(TENANT), "alpha", 1, &r, err);

	if (r)
		ros2__v1__revoke_reply__free_unpacked(r, NULL);
	if (!rc) {
		m = fake_next(&w->a, MSG(REVOKE), 2000);
		if (m)
			fake_receipt(&w->a, &m->revoke->revocation_uid, 0);
		else
			w->linked = false; /* it is told at the next link */
	}
	sweep_off();
	g = sf_get(w->f, KIND(TENANT), "alpha");
	if (!rc && (!g->object->tenant->revoked || g->n_grants))
		fail_msg("revoked, and not in force");
	ros2__v1__get_reply__free_unpacked(g, NULL);
	return rc;
}

static int reinstate(struct world *w, struct ros2_err *err)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *r = NULL;
	int rc;

	q.tenant = (char *)"alpha";
	q.reason = (char *)"test";
	rc = ros2_v1_admin_reinstate_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (r)
		ros2__v1__reinstate_reply__free_unpacked(r, NULL);
	return rc;
}

static int records(struct world *w, struct ros2_err *err)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *ptr = &d;
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;
	struct ros2_uid incarnation = ros2_uid_new();
	Ros2__V1__ControllerMessage *in;

	rec.action = (char *)"test.record";
	rec.actor = (char *)TRAINER;
	rec.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	d.seq = 1;
	d.record = &rec;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, incarnation.b};
	b.drafts = &ptr;
	b.n_drafts = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(&w->a, &m);
	in = fake_next(&w->a, MSG(AUDIT_ACK), sweep_fired() ? 300 : 5000);
	if (!in)
		return lost(w, err); /* it is asked for at the next link */
	return 0;
}

/* Targets of a beat that find no place are told as left out: none is there in part. */
static int targets(struct world *w, struct ros2_err *err)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__TargetInfo t = ROS2__V1__TARGET_INFO__INIT, *ptrs[] = {&t, &t};
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__Beat b = ROS2__V1__BEAT__INIT;
	Ros2__V1__GetReply *r = NULL;
	Ros2__V1__Stamp st;
	uint8_t boot[16];
	int rc;

	fake_stamp(&st, boot);
	t.engine = t.tenant = t.state = t.reason = (char *)"flash";
	b.stamp = &st;
	b.targets = ptrs;
	b.n_targets = 2;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_BEAT;
	m.beat = &b;
	fake_send(&w->a, &m);
	if (!fake_next(&w->a, MSG(CONTACT), sweep_fired() ? 300 : 5000))
		return lost(w, err);
	ref.kind = KIND(AGENT);
	ref.name = (char *)"dpu-0";
	q.ref = &ref;
	rc = ros2_v1_admin_get_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (!r)
		return rc;
	if (r->object->agent->connected)
		assert_int_equal(r->object->agent->n_targets + r->object->agent->targets_left_out,
		                 b.n_targets);
	for (size_t i = 0; i < r->object->agent->n_targets; i++)
		assert_string_equal(r->object->agent->targets[i]->reason, "flash");
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return rc;
}

/* dpu-1 never answers: a list that does not name it looks as if it had nothing. */
static int sessions(struct world *w, struct ros2_err *err)
{
	Ros2__V1__ListRequest q = ROS2__V1__LIST_REQUEST__INIT;
	Ros2__V1__ListReply *r = NULL;
	bool named = false;
	int rc;

	q.kind = KIND(SESSION);
	rc = ros2_v1_admin_list_sync(w->f->admin, &q, AWAIT_MS, &r, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < r->n_unreachable_agents; i++)
		named |= !strcmp(r->unreachable_agents[i], "dpu-1");
	ros2__v1__list_reply__free_unpacked(r, NULL);
	if (!named)
		fail_msg("a list of sessions leaves out who did not answer");
	return 0;
}

/* A session that dpu-0 does not have: dpu-1 may. */
static int end_session(struct world *w, struct ros2_err *err)
{
	Ros2__V1__RevokeReply *r = NULL;
	struct ros2_uid session = ros2_uid_new();
	char uid[ROS2_UID_STR_LEN];
	bool named = false;
	int rc;

	ros2_uid_to_str(&session, uid);
	rc = sf_revoke(w->f, KIND(SESSION), uid, 1, &r, err);
	if (rc)
		return rc;
	for (size_t i = 0; i < r->n_outcomes; i++)
		named |= !strcmp(r->outcomes[i]->agent, "dpu-1");
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	if (!named)
		fail_msg("who may have the session is not asked to end it");
	return 0;
}

/* ---- the sweep ---- */

static bool may_be_answered(enum ros2_status s)
{
	return s == ROS2_BUSY || s == ROS2_CLOSED || s == ROS2_UNAVAILABLE ||
	       s == ROS2_NOT_DURABLE || s == ROS2_CANCELLED;
}

static const struct {
	const char *name;
	work_fn work, before, after;
} works[] = {
	{"apply", apply, NULL, NULL},
	{"apply_bad", apply_bad, NULL, NULL},
	{"get", get, NULL, NULL},
	{"list", list, NULL, NULL},
	{"query", query, NULL, NULL},
	{"raw", raw, find_checkpoint, NULL},
	{"status", works_status, NULL, NULL},
	{"delete", works_delete_tenant, works_new_tenant, NULL},
	{"delete_agent", works_delete_agent, works_fresh_agent, NULL},
	{"isolate", works_isolate, works_fresh_agent, works_let_in},
	{"lift", works_lift, works_isolated_agent, NULL},
	{"renew", works_renew, works_fresh_agent, NULL},
	{"probe", works_probe, works_fresh_agent, NULL},
	/* From here on there are more agents with each round. */
	{"token", token, new_agent, NULL},
	{"connect", connect_agent, NULL, NULL},
	{"grant", grant, NULL, NULL},
	{"release", works_release, works_given_grant, NULL},
	{"records", records, NULL, NULL},
	{"targets", targets, connect_agent, NULL},
	{"sessions", sessions, NULL, NULL},
	{"end_session", end_session, NULL, NULL},
	{"revoke", revoke_alpha, NULL, reinstate},
	{"reinstate", reinstate, revoke_alpha, NULL},
};

static void well(struct world *w, work_fn fn, const char *name)
{
	struct ros2_err err = ROS2_ERR_INIT;

	for (int i = 0; i < 100; i++) {
		/* Which makes a link of its own: a hello saved, of the ten a second. */
		if (fn != connect_agent)
			link_up(w);
		if (!fn || !fn(w, &err))
			return;
		/* time: until what waits is tried again */
		usleep(i > 2 ? 20000 : 0);
	}
	fail_msg("%s: %s: %s", name, ros2_status_to_str(err.status), err.msg);
}

static unsigned sweep_one(struct world *w, size_t i, enum sweep_kind kind, const char *thread)
{
	struct sweep s = {.kind = kind, .error = ENOMEM, .thread = thread};

	for (;;) {
		struct ros2_err err = ROS2_ERR_INIT;
		int rc;

		well(w, works[i].before, works[i].name);
		if (!sweep_next(&s))
			break;
		rc = works[i].work(w, &err);
		sweep_off();
		if (rc && err.code && !may_be_answered(err.status))
			fail_msg("%s, %s, allocation %u%s: %s: %s", works[i].name, thread, s.at,
			         s.persistent ? " and on" : "", ros2_status_to_str(err.status),
			         err.msg);
		if (rc && !sweep_fired())
			fail_msg("%s: %s", works[i].name, err.msg);
		if (rc)
			well(w, works[i].work, works[i].name);
		else
			link_up(w);
		well(w, works[i].after, works[i].name);
	}
	return s.points;
}

static void verify_log(struct world *w)
{
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct audit_verifier *v = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	int bad;

	assert_int_equal(audit_verifier_new(NULL, &v, &err), 0);
	assert_int_equal(rpc_reader_open(w->f->admin, &ros2_v1_audit_raw, &q.base, 20000, &r, &err),
	                 0);
	while (!rpc_reader_next(r, 5000, &m, &err)) {
		Ros2__V1__AuditRawItem *it = (Ros2__V1__AuditRawItem *)m;

		if (it->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD)
			bad = audit_verifier_record(v, it->record->seq, it->record->record.data,
			                            it->record->record.len, it->record->chain.data,
			                            &err);
		else
			bad = audit_verifier_checkpoint(v, it->checkpoint->note.data,
			                                it->checkpoint->note.len, &err);
		if (bad)
			fail_msg("%s", err.msg);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	audit_verifier_free(v);
	rpc_reader_close(r);
}

static void sweep_all(void **state, enum sweep_kind kind, const char *thread)
{
	struct world w = {.f = *state};
	struct fake away;
	unsigned points = 0;
	Ros2__V1__GetReply *g;

	sf_apply(w.f, sf_engine);
	sf_apply(w.f, sf_agent0);
	sf_apply(w.f, tenant("alpha", "1h"));
	sf_apply(w.f, tenant("beta", "1h"));
	g = sf_get(w.f, KIND(TENANT), "alpha");
	memcpy(w.alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	sf_apply(w.f, sf_agent1);
	fake_enrol(w.f, &away, "dpu-1");
	fake_enrol(w.f, &w.a, "dpu-0");
	w.a.sees = answer_report;
	for (size_t i = 0; i < ARRAY_SIZE(works); i++) {
		points += sweep_one(&w, i, kind, thread);
	}
	assert_true(points > 0);
	verify_log(&w);
	if (w.fresh.f)
		fake_free(&w.fresh);
	fake_free(&w.a);
	fake_free(&away);
}

static void alloc__of_the_loop(void **state)
{
	sweep_all(state, SWEEP_ALLOC, "controller");
}

static void alloc__of_the_listeners(void **state)
{
	sweep_all(state, SWEEP_ALLOC, "rpc-rpc-");
}

static void alloc__of_the_store(void **state)
{
	sweep_all(state, SWEEP_ALLOC, "store");
}

static void alloc__of_the_library_below_the_store(void **state)
{
	sweep_all(state, SWEEP_SQLITE, "store");
}

#define T(f) cmocka_unit_test_setup_teardown(f, sf_setup, sf_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(alloc__of_the_loop),
		T(alloc__of_the_listeners),
		T(alloc__of_the_store),
		T(alloc__of_the_library_below_the_store),
	};

	/* The program's own name begins as the loop's. */
	pthread_setname_np(pthread_self(), "test");
	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
