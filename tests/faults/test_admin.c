/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an administrator changes, with the call lost before its handler, and with its answer lost:
 * once, and again and again. Of a call that was not heard nothing has changed; one that was heard
 * is carried out, whole; what was told holds; asked again, the answer is the documented one, and
 * nothing is done twice. The log has a record for each thing that was done, and after a start of
 * the controller all is as it was. At the end what these rounds look at tells when it is not so.
 */
#include "controller/store_txn.h"
#include "tests/await.h"
#include "tests/controller/service_audit.h"
#include "tests/faults/pair.h"
#include "common/util.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k

struct round;

/* One thing that can be done, under a name of its own in each round. */
struct deed {
	const char *words, *request, *reply;
	void (*prepare)(struct pair *p, struct round *r); /* may be NULL */
	enum ros2_status (*call)(struct pair *p, struct rpc_channel *c, struct round *r,
	                         struct ros2_err *err);
	int (*seen)(struct pair *p, const struct round *r); /* 0 as before, 1 done, -1 in part */
	const char *action;
	enum ros2_status again; /* the answer when it was done before */
	bool each;              /* each call that is heard does it once more */
};

struct round {
	const struct deed *d;
	char name[24];
	uint64_t version[2]; /* before, of tenant and engine; 0: there is none */
	struct ros2_uid uid; /* of the tenant */
	uint64_t after;      /* all versions, when it was over */
	bool unchanged;      /* the last answer said so */
};

/* ---- a store that does too much, or only says that it does ---- */

static _Atomic bool recorded_twice, only_recorded;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	for (size_t i = 0, n = recorded_twice ? t->n_drafts : 0; i < n; i++) {
		struct store_draft *d = store_txn_audit(t);

		*d = *t->drafts[i];
	}
	if (only_recorded && t->n_drafts)
		t->n_muts = 0;
	return __real_store_submit(s, t, done, arg, err);
}

/* ---- which calls were heard ---- */

struct hearing {
	const char *name;
	_Atomic unsigned n;
};

static void on_message(void *arg, const char *name, const ProtobufCMessage *m)
{
	struct hearing *h = arg;

	h->n += !strcmp(name, h->name);
}

/* ---- what is there ---- */

static Ros2__V1__GetReply *find(struct pair *p, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	if (ros2_v1_admin_get_sync(p->f->admin, &q, 10000, &r, &err) &&
	    err.status != ROS2_NOT_FOUND)
		fail_msg("%s", err.msg);
	return r;
}

static uint64_t version_of(struct pair *p, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetReply *r = find(p, kind, name);
	uint64_t version = r ? r->object->version : 0;

	if (r)
		ros2__v1__get_reply__free_unpacked(r, NULL);
	return version;
}

static uint64_t versions(struct pair *p, const struct round *r)
{
	return version_of(p, KIND(TENANT), r->name) + version_of(p, KIND(ENGINE), r->name);
}

static unsigned records(struct pair *p, const struct round *r)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;

	q.action = (char *)r->d->action;
	q.object = (char *)r->name;
	return sf_audit_count(p->f, &q);
}

/* ---- apply: two documents, which hold together ---- */

static const char *documents(const char *name, const char *size, const char *lifetime)
{
	static char text[3000];

	snprintf(text, sizeof(text),
	         "apiVersion: ros2/v1\nkind: Engine\nmetadata:\n  name: %s\n"
	         "spec:\n  type: mem\n  size: %s\n---\n%s",
	         name, size, sf_tenant(name, lifetime, "10m", "dpu-0"));
	return text;
}

static void check_applied(struct pair *p, struct round *r, const Ros2__V1__ApplyReply *m)
{
	if (!m->applied || m->n_results != 2) {
		pair_wrong(p, "the answer says applied %d, %zu documents", m->applied,
		           m->n_results);
		return;
	}
	r->unchanged = true;
	for (size_t i = 0; i < 2; i++) {
		const Ros2__V1__ApplyResult *a = m->results[i];

		r->unchanged &= a->action == ROS2__V1__APPLY_ACTION__APPLY_ACTION_UNCHANGED;
		if (a->version != version_of(p, a->kind, a->name))
			pair_wrong(p, "told is version %llu, and another is there",
			           (unsigned long long)a->version);
	}
}

static enum ros2_status call_apply(struct pair *p, struct rpc_channel *c, struct round *r,
                                   struct ros2_err *err)
{
	Ros2__V1__ExpectedVersion e[2] = {ROS2__V1__EXPECTED_VERSION__INIT,
	                                  ROS2__V1__EXPECTED_VERSION__INIT};
	Ros2__V1__ExpectedVersion *expect[2] = {&e[0], &e[1]};
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *m = NULL;
	bool anew = !r->version[0];
	const char *text = documents(r->name, anew ? "1MiB" : "2MiB", anew ? "1h" : "2h");

	file.name = (char *)"test.yaml";
	file.text = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
	q.files = &files;
	q.n_files = 1;
	for (size_t i = 0; i < 2; i++) {
		e[i].kind = i ? KIND(ENGINE) : KIND(TENANT);
		e[i].name = r->name;
		e[i].version = r->version[i];
	}
	q.expect = expect;
	q.n_expect = anew ? 0 : 2;
	if (ros2_v1_admin_apply_sync(c, &q, 20000, &m, err))
		return err->status;
	check_applied(p, r, m);
	ros2__v1__apply_reply__free_unpacked(m, NULL);
	return ROS2_OK;
}

static int seen_applied(struct pair *p, const struct round *r)
{
	bool tenant = version_of(p, KIND(TENANT), r->name) != r->version[0];
	bool engine = version_of(p, KIND(ENGINE), r->name) != r->version[1];

	return tenant == engine ? tenant : -1;
}

static void prepare_applied(struct pair *p, struct round *r)
{
	Ros2__V1__GetReply *g;

	sf_apply(p->f, documents(r->name, "1MiB", "1h"));
	g = find(p, KIND(TENANT), r->name);
	r->version[0] = g->object->version;
	assert_int_equal(ros2_uid_from_bytes(g->object->uid.data, g->object->uid.len, &r->uid), 0);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	r->version[1] = version_of(p, KIND(ENGINE), r->name);
}

/* ---- delete, of the tenant ---- */

static enum ros2_status call_delete(struct pair *p, struct rpc_channel *c, struct round *r,
                                    struct ros2_err *err)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *m = NULL;

	ref.kind = KIND(TENANT);
	ref.name = r->name;
	q.ref = &ref;
	q.expect_uid = (ProtobufCBinaryData){ROS2_UID_LEN, r->uid.b};
	if (ros2_v1_admin_delete_sync(c, &q, 20000, &m, err))
		return err->status;
	if (m->uid.len != ROS2_UID_LEN || memcmp(m->uid.data, r->uid.b, ROS2_UID_LEN) != 0)
		pair_wrong(p, "another tenant was deleted");
	if (version_of(p, KIND(TENANT), r->name))
		pair_wrong(p, "told is that it was deleted, and it is there");
	ros2__v1__delete_reply__free_unpacked(m, NULL);
	return ROS2_OK;
}

/* Between the two it is revoked. */
static int seen_deleted(struct pair *p, const struct round *r)
{
	Ros2__V1__GetReply *g = find(p, KIND(TENANT), r->name);
	int seen = g ? 0 : 1;

	if (g) {
		seen = g->object->tenant->revoked ? -1 : 0;
		ros2__v1__get_reply__free_unpacked(g, NULL);
	}
	return seen;
}

/* ---- reinstate ---- */

static void prepare_revoked(struct pair *p, struct round *r)
{
	Ros2__V1__RevokeReply *m = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	prepare_applied(p, r);
	if (sf_revoke(p->f, KIND(TENANT), r->name, 1, &m, &err))
		fail_msg("%s", err.msg);
	ros2__v1__revoke_reply__free_unpacked(m, NULL);
}

static enum ros2_status call_reinstate(struct pair *p, struct rpc_channel *c, struct round *r,
                                       struct ros2_err *err)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *m = NULL;

	q.tenant = r->name;
	q.reason = (char *)"test";
	if (ros2_v1_admin_reinstate_sync(c, &q, 20000, &m, err))
		return err->status;
	if (m->version != version_of(p, KIND(TENANT), r->name))
		pair_wrong(p, "told is version %llu, and another is there",
		           (unsigned long long)m->version);
	ros2__v1__reinstate_reply__free_unpacked(m, NULL);
	return ROS2_OK;
}

static int seen_reinstated(struct pair *p, const struct round *r)
{
	Ros2__V1__GetReply *g = find(p, KIND(TENANT), r->name);
	int seen = !g->object->tenant->revoked;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return seen;
}

/* ---- a token: nobody sees one, so its record says that it was made ---- */

static void prepare_agent(struct pair *p, struct round *r)
{
	char text[200];

	snprintf(text, sizeof(text),
	         "apiVersion: ros2/v1\nkind: Agent\nmetadata:\n  name: %s\nspec: {}\n", r->name);
	sf_apply(p->f, text);
}

static enum ros2_status call_token(struct pair *p, struct rpc_channel *c, struct round *r,
                                   struct ros2_err *err)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *m = NULL;
	struct ros2_err why = ROS2_ERR_INIT;
	char secret[80] = "";
	struct fake a = {0};

	q.agent = r->name;
	if (ros2_v1_admin_create_agent_token_sync(c, &q, 20000, &m, err))
		return err->status;
	if (sscanf(m->token, "ros2-join-v1 %*63s %79s", secret) != 1 ||
	    fake_enrol_with(p->f, &a, r->name, secret, &why))
		pair_wrong(p, "the token that was given is not good: %s", why.msg);
	ros2__v1__create_agent_token_reply__free_unpacked(m, NULL);
	return ROS2_OK;
}

static int seen_token(struct pair *p, const struct round *r)
{
	return records(p, r) > 0;
}

/* ---- isolation, and its end ---- */

static enum ros2_status isolate(struct rpc_channel *c, const char *agent, bool lift,
                                struct ros2_err *err)
{
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *m = NULL;

	q.agent = (char *)agent;
	q.reason = (char *)"test";
	q.lift = lift;
	if (ros2_v1_admin_isolate_agent_sync(c, &q, 20000, &m, err))
		return err->status;
	ros2__v1__isolate_agent_reply__free_unpacked(m, NULL);
	return ROS2_OK;
}

static int seen_isolated(struct pair *p, const struct round *r)
{
	Ros2__V1__GetReply *g = find(p, KIND(AGENT), r->name);
	int seen = g->object->agent->isolated;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return seen;
}

static int seen_lifted(struct pair *p, const struct round *r)
{
	return !seen_isolated(p, r);
}

static enum ros2_status call_isolate(struct pair *p, struct rpc_channel *c, struct round *r,
                                     struct ros2_err *err)
{
	enum ros2_status s = isolate(c, r->name, false, err);

	if (s == ROS2_OK && !seen_isolated(p, r))
		pair_wrong(p, "told is that it is isolated, and it is not");
	return s;
}

static enum ros2_status call_lift(struct pair *p, struct rpc_channel *c, struct round *r,
                                  struct ros2_err *err)
{
	enum ros2_status s = isolate(c, r->name, true, err);

	if (s == ROS2_OK && seen_isolated(p, r))
		pair_wrong(p, "told is that it is not isolated any more, and it is");
	return s;
}

/* ---- rounds ---- */

static bool was_not_heard(enum ros2_status s)
{
	return s == ROS2_UNAVAILABLE || s == ROS2_CANCELLED || s == ROS2_CLOSED;
}

struct attempt {
	struct round *r;
	const struct cut *cut;
	enum ros2_status status;
	struct ros2_err err;
};

/* One that lasts is met by whoever asks again and again. */
static bool has_tried(struct pair *p, void *arg)
{
	struct attempt *a = arg;

	a->err = (struct ros2_err)ROS2_ERR_INIT;
	rpc_channel_reset_backoff(p->admin);
	a->status = a->r->d->call(p, p->admin, a->r, &a->err);
	return !a->cut->for_good || !was_not_heard(a->status) || cut_fired() >= CUT_FOR_GOOD;
}

/* The connection that was cut may be found dead only by the call. */
static bool is_answered(struct pair *p, void *arg)
{
	struct attempt *a = arg;

	a->err = (struct ros2_err)ROS2_ERR_INIT;
	rpc_channel_reset_backoff(p->admin);
	a->status = a->r->d->call(p, p->admin, a->r, &a->err);
	return !was_not_heard(a->status);
}

static bool is_done(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return r->d->seen(p, r) == 1;
}

/* The same once more, by somebody who does not know what came of it; @done: it was done. */
static void ask_again(struct pair *p, struct round *r, bool done)
{
	enum ros2_status expected = done ? r->d->again : ROS2_OK;
	uint64_t before = versions(p, r);
	struct attempt a = {.r = r};

	r->unchanged = false;
	if (!pair_until(p, is_answered, &a) || a.status != expected)
		fail_msg("%s, and again: %s: %s", r->name, ros2_status_to_str(a.status), a.err.msg);
	if (r->d->seen(p, r) != 1)
		pair_wrong(p, "asked again it is not done");
	if (done && (before != versions(p, r) ||
	             (r->d->call == call_apply && !r->unchanged && expected == ROS2_OK)))
		pair_wrong(p, "asked again it was done twice");
}

/* What the cuts of a test met. */
struct met {
	unsigned requests, replies;
};

static void one(struct pair *p, struct cut *cut, struct round *r, struct met *met)
{
	struct hearing h = {.name = r->d->request};
	struct attempt a = {.r = r, .cut = cut};
	unsigned want;

	if (r->d->prepare)
		r->d->prepare(p, r);
	want = records(p, r);
	cut_witness(on_message, &h);
	assert_true(pair_until(p, has_tried, &a));
	cut_off();
	if (a.status != ROS2_OK && !was_not_heard(a.status))
		fail_msg("%s: %s: %s", r->name, ros2_status_to_str(a.status), a.err.msg);
	if (a.status == ROS2_OK ? !h.n : !h.n && r->d->seen(p, r) != 0)
		pair_wrong(p, "it was not heard, and is done");
	if (h.n && !pair_until(p, is_done, r))
		pair_wrong(p, "it was heard, and is not done, or in part");
	met->requests += !h.n;
	met->replies += h.n && a.status != ROS2_OK;
	ask_again(p, r, h.n);
	want += r->d->each ? h.n : 1;
	cut_witness(NULL, NULL);
	if (records(p, r) != want)
		pair_wrong(p, "%u records, expected %u", records(p, r), want);
	r->after = versions(p, r);
}

/* The controller starts again, on other ports. */
static void restart(struct pair *p)
{
	sf_stop(p->f);
	sf_start(p->f);
	relay_target(p->relay, CUT_LINK, p->f->ports.agent);
	relay_target(p->relay, CUT_ENROL, p->f->ports.enrol);
	relay_target(p->relay, CUT_ADMIN, p->f->ports.admin);
}

static void check_kept(struct pair *p, const struct round *r)
{
	if (r->d->seen(p, r) != 1 || versions(p, r) != r->after)
		pair_wrong(p, "it is another thing after the start");
	pair_check(p, r->name);
}

static void sweep(struct pair *p, const struct deed *d)
{
	const struct cut points[] = {{.name = d->request, .when = CUT_BEFORE},
	                             {.name = d->request, .when = CUT_AFTER},
	                             {.name = d->reply, .when = CUT_BEFORE}};
	struct round rounds[2 * ARRAY_SIZE(points)] = {0};
	struct met met = {0};

	for (size_t i = 0; i < ARRAY_SIZE(rounds); i++) {
		struct cut c = points[i / 2];
		unsigned before = cut_points();

		c.for_good = i % 2;
		rounds[i].d = d;
		snprintf(rounds[i].name, sizeof(rounds[i].name), "%s-%zu", d->words, i);
		assert_true(cut_next(&c, 1));
		one(p, &c, &rounds[i], &met);
		pair_check(p, rounds[i].name);
		if (cut_points() == before)
			fail_msg("%s never came", c.name);
	}
	assert_true(met.requests && met.replies);
	restart(p);
	for (size_t i = 0; i < ARRAY_SIZE(rounds); i++)
		check_kept(p, &rounds[i]);
	pair_verify_log(p);
}

static const struct deed create = {.words = "create",
                                   .request = "ApplyRequest",
                                   .reply = "ApplyReply",
                                   .call = call_apply,
                                   .seen = seen_applied,
                                   .action = "tenant.apply",
                                   .again = ROS2_OK};

static void apply__of_new_documents_is_whole_and_once(void **state)
{
	sweep(*state, &create);
}

static void apply__with_the_versions_expected_is_whole_and_once(void **state)
{
	static const struct deed d = {.words = "configure",
	                              .request = "ApplyRequest",
	                              .reply = "ApplyReply",
	                              .prepare = prepare_applied,
	                              .call = call_apply,
	                              .seen = seen_applied,
	                              .action = "tenant.apply",
	                              .again = ROS2_CONFLICT};

	sweep(*state, &d);
}

static const struct deed delete = {.words = "delete",
                                   .request = "DeleteRequest",
                                   .reply = "DeleteReply",
                                   .prepare = prepare_applied,
                                   .call = call_delete,
                                   .seen = seen_deleted,
                                   .action = "tenant.delete",
                                   .again = ROS2_NOT_FOUND};

static void delete__is_whole_and_once(void **state)
{
	sweep(*state, &delete);
}

static void reinstate__is_whole_and_once(void **state)
{
	static const struct deed d = {.words = "reinstate",
	                              .request = "ReinstateRequest",
	                              .reply = "ReinstateReply",
	                              .prepare = prepare_revoked,
	                              .call = call_reinstate,
	                              .seen = seen_reinstated,
	                              .action = "tenant.reinstate",
	                              .again = ROS2_CONFLICT};

	sweep(*state, &d);
}

static void token__is_another_one_each_time(void **state)
{
	static const struct deed d = {.words = "token",
	                              .request = "CreateAgentTokenRequest",
	                              .reply = "CreateAgentTokenReply",
	                              .prepare = prepare_agent,
	                              .call = call_token,
	                              .seen = seen_token,
	                              .action = "agent.token.create",
	                              .again = ROS2_OK,
	                              .each = true};

	sweep(*state, &d);
}

static void isolation__is_recorded_each_time(void **state)
{
	static const struct deed d = {.words = "isolate",
	                              .request = "IsolateAgentRequest",
	                              .reply = "IsolateAgentReply",
	                              .prepare = prepare_agent,
	                              .call = call_isolate,
	                              .seen = seen_isolated,
	                              .action = "agent.isolate",
	                              .again = ROS2_OK,
	                              .each = true};

	sweep(*state, &d);
}

static void prepare_isolated(struct pair *p, struct round *r)
{
	struct ros2_err err = ROS2_ERR_INIT;

	prepare_agent(p, r);
	if (isolate(p->f->admin, r->name, false, &err) != ROS2_OK)
		fail_msg("%s", err.msg);
}

static void lift__is_whole_and_once(void **state)
{
	static const struct deed d = {.words = "lift",
	                              .request = "IsolateAgentRequest",
	                              .reply = "IsolateAgentReply",
	                              .prepare = prepare_isolated,
	                              .call = call_lift,
	                              .seen = seen_lifted,
	                              .action = "agent.isolate",
	                              .again = ROS2_CONFLICT};

	sweep(*state, &d);
}

/* ---- what the sweep cannot say ---- */

/* Whoever did not hear that it was deleted deletes nothing of who has the name by then. */
static void delete__asked_again_leaves_who_has_the_name_now(void **state)
{
	struct cut c = {.name = "DeleteReply", .when = CUT_BEFORE};
	struct round r = {.d = &delete, .name = "reused"};
	struct attempt a = {.r = &r, .cut = &c};
	struct pair *p = *state;
	uint64_t version;

	prepare_applied(p, &r);
	assert_true(cut_next(&c, 1));
	assert_true(has_tried(p, &a));
	assert_true(was_not_heard(a.status));
	assert_int_equal(cut_fired(), 1);
	cut_off();
	sf_apply(p->f, documents("reused", "1MiB", "1h"));
	version = version_of(p, KIND(TENANT), "reused");
	assert_true(pair_until(p, is_answered, &a));
	assert_int_equal(a.status, ROS2_CONFLICT);
	assert_int_equal(version_of(p, KIND(TENANT), "reused"), version);
	assert_int_equal(seen_deleted(p, &r), 0);
	pair_check(p, "afterwards");
}

struct opening {
	enum ros2_status status;
	struct ros2_uid session;
	struct ros2_err err;
};

static bool opens(struct pair *p, void *arg)
{
	struct opening *o = arg;

	o->err = (struct ros2_err)ROS2_ERR_INIT;
	o->status = pair_open(p->tenant, &o->session, &o->err);
	return o->status == ROS2_OK;
}

static void lose_the_answer(struct pair *p, const struct deed *d, struct round *r)
{
	struct cut c = {.name = d->reply, .when = CUT_BEFORE};
	struct attempt a = {.r = r, .cut = &c};

	r->d = d;
	assert_true(cut_next(&c, 1));
	assert_true(has_tried(p, &a));
	assert_true(was_not_heard(a.status));
	assert_int_equal(cut_fired(), 1);
	cut_off();
}

/* With an agent that is there: what nobody was told is in force in its data plane. */
static void delete__whose_answer_is_lost_ends_sessions(void **state)
{
	struct round r = {.name = "alpha"};
	struct opening o = {0};
	struct pair *p = *state;
	struct pair_rollout ro;
	struct attempt a = {.r = &r};

	assert_true(pair_until(p, opens, &o));
	assert_int_equal(pair_mount(p->tenant, &o.session), ROS2_OK);
	pair_rollout(p, &ro);
	r.uid = ro.uid;
	lose_the_answer(p, &delete, &r);
	assert_int_equal(seen_deleted(p, &r), 1);
	assert_int_not_equal(pair_mount(p->tenant, &o.session), ROS2_OK);
	assert_true(pair_until(p, is_answered, &a));
	assert_int_equal(a.status, ROS2_NOT_FOUND);
	assert_int_not_equal(pair_open(p->tenant, &o.session, &o.err), ROS2_OK);
	assert_int_equal(records(p, &r), 1);
	pair_check(p, "afterwards");
}

static bool is_quiet(struct pair *p, void *arg)
{
	return pair_is_quiet(p);
}

static void isolation__whose_answer_is_lost_keeps_the_agent_out(void **state)
{
	static const struct deed d = {
		.reply = "IsolateAgentReply", .call = call_isolate, .action = "agent.isolate"};
	struct round r = {.name = "dpu-0"};
	struct opening o = {0};
	struct pair *p = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	pair_longest_ms = 100;
	assert_true(pair_until(p, opens, &o));
	lose_the_answer(p, &d, &r);
	assert_int_equal(seen_isolated(p, &r), 1);
	assert_int_not_equal(pair_mount(p->tenant, &o.session), ROS2_OK);
	/* Of an agent that is out already nothing more is confirmed. */
	assert_int_equal(isolate(p->f->admin, "dpu-0", false, &err), ROS2_OK);
	assert_false(pair_is_quiet(p));
	assert_int_equal(isolate(p->f->admin, "dpu-0", true, &err), ROS2_OK);
	assert_true(pair_until(p, is_quiet, NULL));
	assert_true(pair_until(p, opens, &o));
	assert_int_equal(pair_mount(p->tenant, &o.session), ROS2_OK);
	assert_int_equal(records(p, &r), 3);
	pair_check(p, "afterwards");
	pair_longest_ms = 0;
}

/* ---- controls ---- */

static void expect_wrong(struct pair *p, const char *words)
{
	char wrong[sizeof(p->wrong)];

	pthread_mutex_lock(&p->lock);
	strcpy(wrong, p->wrong);
	p->wrong[0] = '\0';
	pthread_mutex_unlock(&p->lock);
	if (!strstr(wrong, words))
		fail_msg("found \"%s\", expected \"%s\"", wrong, words);
}

static void create_cut(struct pair *p, struct round *r, const char *name)
{
	struct cut c = {.name = "ApplyReply", .when = CUT_BEFORE};
	struct met met = {0};

	*r = (struct round){.d = &create};
	snprintf(r->name, sizeof(r->name), "%s", name);
	assert_true(cut_next(&c, 1));
	one(p, &c, r, &met);
	assert_int_equal(met.replies, 1);
}

static void control__change_recorded_twice_is_noticed(void **state)
{
	struct pair *p = *state;
	struct round r;

	recorded_twice = true;
	create_cut(p, &r, "twice");
	recorded_twice = false;
	expect_wrong(p, "2 records, expected 1");
}

static void control__change_that_is_only_in_memory_is_noticed(void **state)
{
	struct pair *p = *state;
	struct round r;

	only_recorded = true;
	create_cut(p, &r, "lost");
	only_recorded = false;
	pair_check(p, "before the start");
	restart(p);
	if (r.d->seen(p, &r) != 0 || versions(p, &r) == r.after)
		fail_msg("it was kept, though nothing wrote it");
}

#define T(f) cmocka_unit_test_setup_teardown(f, pair_setup, pair_teardown)
#define R(f) cmocka_unit_test_setup_teardown(f, pair_setup_running, pair_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(apply__of_new_documents_is_whole_and_once),
		T(apply__with_the_versions_expected_is_whole_and_once),
		T(delete__is_whole_and_once),
		T(reinstate__is_whole_and_once),
		T(token__is_another_one_each_time),
		T(isolation__is_recorded_each_time),
		T(lift__is_whole_and_once),
		T(delete__asked_again_leaves_who_has_the_name_now),
		R(delete__whose_answer_is_lost_ends_sessions),
		R(isolation__whose_answer_is_lost_keeps_the_agent_out),
		T(control__change_recorded_twice_is_noticed),
		T(control__change_that_is_only_in_memory_is_noticed),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
