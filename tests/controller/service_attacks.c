/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attacks. dpu-1 says of what is dpu-0's what dpu-0 would say; that it was heard is known by an
 * answer to what it says behind it, for a stream is in order.
 */
#include "tests/controller/service_attacks.h"
#include "common/pki.h"
#include "common/util.h"
#include "proto/audit/audit.h"
#include "tests/await.h"

#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

/* ---- two agents ---- */

Ros2__V1__ControllerMessage *fake_want(struct fake *a, Ros2__V1__ControllerMessage__MsgCase k)
{
	Ros2__V1__ControllerMessage *m = fake_next(a, k, AWAIT_MS);

	if (!m)
		fail_msg("agent %s was not sent message %d (%s)", a->name, k, a->why.msg);
	return m;
}

void fake_link_up(struct fake *a)
{
	fake_connect(a, NULL, 0);
	fake_want(a, MSG(WELCOME));
	fake_wait_synced(a);
}

struct ros2_uid sf_uid_of(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), tenant);
	struct ros2_uid uid;

	assert_int_equal(ros2_uid_from_bytes(g->object->uid.data, g->object->uid.len, &uid), 0);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	return uid;
}

void two_start(void **state, struct two *t)
{
	memset(t, 0, sizeof(*t));
	t->f = *state;
	sf_apply(t->f, sf_engine);
	sf_apply(t->f, sf_agent0);
	sf_apply(t->f, sf_agent1);
	sf_apply(t->f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	sf_apply(t->f, sf_tenant("beta", "1h", "10m", "dpu-1"));
	t->alpha = sf_uid_of(t->f, "alpha");
	t->beta = sf_uid_of(t->f, "beta");
	fake_enrol(t->f, &t->a, "dpu-0");
	fake_enrol(t->f, &t->b, "dpu-1");
	fake_link_up(&t->a);
	fake_link_up(&t->b);
}

void two_stop(struct two *t)
{
	fake_free(&t->a);
	fake_free(&t->b);
}

unsigned sf_grants_of(struct sf *f, const char *tenant)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), tenant);
	unsigned n = g->object->tenant->grants;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return n;
}

struct ros2_uid fake_granted(struct fake *a, const struct ros2_uid *tenant, const char *principal)
{
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid uid;

	fake_ask_grant(a, 1, tenant, principal);
	m = fake_want(a, MSG(GRANT_REPLY));
	if (m->grant_reply->status)
		fail_msg("no grant: %s", m->grant_reply->words);
	o = fake_open(a, m->grant_reply->grant);
	memcpy(uid.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return uid;
}

struct ros2_uid two_grant(struct two *t)
{
	return fake_granted(&t->a, &t->alpha, TRAINER);
}

void fake_record(struct fake *a, const struct ros2_uid *tenant, const struct ros2_uid *origin)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *drafts = &d;
	Ros2__V1__AuditRecord r = ROS2__V1__AUDIT_RECORD__INIT;
	Ros2__V1__AuditOrigin o = ROS2__V1__AUDIT_ORIGIN__INIT;
	char tenant_uid[ROS2_UID_STR_LEN] = "", agent_uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(origin ? origin : &a->uid, agent_uid);
	if (tenant)
		ros2_uid_to_str(tenant, tenant_uid);
	o.agent_uid = agent_uid;
	r.action = (char *)"session.open";
	r.actor = (char *)TRAINER;
	r.tenant = (char *)(tenant ? "alpha" : "");
	r.tenant_uid = tenant_uid;
	r.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	r.origin = &o;
	d.seq = ++a->last_seq;
	d.record = &r;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, a->incarnation.b};
	b.drafts = &drafts;
	b.n_drafts = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	fake_send(a, &m);
	fake_want(a, MSG(AUDIT_ACK));
}

static void heard(struct fake *a)
{
	fake_beat(a, NULL, 0);
	fake_want(a, MSG(CONTACT));
}

/* ---- hello ---- */

enum ros2_status attack_hello(struct fake *a)
{
	enum ros2_status status = ROS2_OK;

	fake_connect(a, NULL, 0);
	if (!fake_next(a, MSG(WELCOME), AWAIT_MS)) {
		assert_int_not_equal(fake_wait_closed(a, AWAIT_MS), 0);
		status = a->why.status;
	}
	fake_disconnect(a);
	return status;
}

enum ros2_status attack_hello_as(struct fake *a, const struct ros2_uid *uid)
{
	struct ros2_uid own = a->uid;
	enum ros2_status status;

	a->uid = *uid;
	status = attack_hello(a);
	a->uid = own;
	return status;
}

enum ros2_status attack_hello_of_epoch(struct fake *a, bool of_another, uint64_t counter)
{
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__Epoch e = ROS2__V1__EPOCH__INIT;
	Ros2__V1__StatusReply *st = NULL;
	enum ros2_status status;

	assert_int_equal(ros2_v1_admin_status_sync(a->f->admin, &q, 5000, &st, NULL), 0);
	e.lineage = st->epoch->lineage;
	e.lineage.data[0] ^= of_another;
	e.counter = counter;
	a->epoch = &e;
	status = attack_hello(a);
	a->epoch = NULL;
	ros2__v1__status_reply__free_unpacked(st, NULL);
	return status;
}

static char *request_of(const char *cert)
{
	char *csr = NULL;

	assert_int_equal(pki_csr_create(sf_path("%s/tls.key", cert), NULL, &csr, NULL), 0);
	return csr;
}

static enum ros2_status said(int rc, const struct ros2_err *err)
{
	assert_int_equal(!rc, err->status == ROS2_OK);
	return err->status;
}

enum ros2_status attack_link(struct sf *f, const char *cert)
{
	struct fake a = {.f = f};
	enum ros2_status status;

	snprintf(a.dir, sizeof(a.dir), "%s", cert);
	pthread_mutex_init(&a.lock, NULL);
	pthread_cond_init(&a.cond, NULL);
	status = attack_hello(&a);
	fake_free(&a);
	return status;
}

enum ros2_status attack_renew(struct sf *f, const char *cert)
{
	struct rpc_channel *c = sf_channel(f, cert, f->ports.agent, NULL);
	Ros2__V1__RenewRequest q = ROS2__V1__RENEW_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *csr = request_of(cert);
	Ros2__V1__EnrolReply *r = NULL;
	int rc;

	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	rc = ros2_v1_agent_link_renew_sync(c, &q, 5000, &r, &err);
	if (!rc)
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	rpc_channel_free(c);
	return said(rc, &err);
}

enum ros2_status attack_enrol(struct sf *f, const char *cert, const char *agent, const char *secret)
{
	struct rpc_channel *c = sf_channel(f, cert, f->ports.enrol, NULL);
	Ros2__V1__EnrolRequest q = ROS2__V1__ENROL_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	AUTO_FREE char *csr = request_of(cert);
	Ros2__V1__EnrolReply *r = NULL;
	int rc;

	q.protocol = RPC_PROTOCOL_VERSION;
	q.agent = (char *)agent;
	q.secret = (char *)secret;
	q.csr_pem = (ProtobufCBinaryData){strlen(csr), (uint8_t *)csr};
	rc = ros2_v1_enrol_enrol_sync(c, &q, 10000, &r, &err);
	if (!rc)
		ros2__v1__enrol_reply__free_unpacked(r, NULL);
	rpc_channel_free(c);
	return said(rc, &err);
}

/* ---- one agent, the other's objects ---- */

enum ros2_status attack_grant(struct fake *a, const struct ros2_uid *tenant, const char *principal)
{
	Ros2__V1__ControllerMessage *m;

	fake_ask_grant(a, 1, tenant, principal);
	m = fake_want(a, MSG(GRANT_REPLY));
	assert_int_equal(!m->grant_reply->status, m->grant_reply->grant != NULL);
	return (enum ros2_status)m->grant_reply->status;
}

static unsigned records_of_grant(struct sf *f, const char *action, const struct ros2_uid *grant)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	char uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(grant, uid);
	q.action = (char *)action;
	q.object = uid;
	return sf_audit_count(f, &q);
}

void fake_release(struct fake *a, struct ros2_uid *grant)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__GrantRelease r = ROS2__V1__GRANT_RELEASE__INIT;

	r.grant_uid = (ProtobufCBinaryData){ROS2_UID_LEN, grant->b};
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_GRANT_RELEASE;
	m.grant_release = &r;
	fake_send(a, &m);
}

bool attack_release(struct two *t, struct ros2_uid *grant)
{
	unsigned before = sf_grants_of(t->f, "alpha");

	fake_release(&t->b, grant);
	fake_record(&t->b, NULL, NULL); /* at the store behind it */
	return records_of_grant(t->f, "grant.release", grant) &&
	       sf_grants_of(t->f, "alpha") == before - 1;
}

bool attack_in_use(struct two *t)
{
	struct ros2_uid grant;
	bool renewed = false;

	/* At home at both: so that nothing but whose grant it is decides. */
	sf_apply(t->f, sf_tenant("alpha", "2s", "10m", "dpu-0, dpu-1"));
	grant = two_grant(t);
	while (!renewed && !records_of_grant(t->f, "grant.expire", &grant)) {
		fake_beat(&t->b, &grant, 1);
		fake_want(&t->b, MSG(CONTACT));
		/* poll: the log */
		usleep(20000);
		renewed = records_of_grant(t->f, "grant.renew", &grant);
	}
	return renewed;
}

void fake_failed(struct fake *a, const struct ros2_uid *tenant, uint64_t version, const char *words)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__ObjectState st = ROS2__V1__OBJECT_STATE__INIT;

	st.kind = KIND(TENANT);
	st.uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)tenant->b};
	st.version = version;
	st.failed_reason = (char *)words;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_STATE;
	m.state = &st;
	fake_send(a, &m);
	heard(a);
}

bool sf_rollout_says(struct sf *f, const char *words)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), "alpha");
	bool found = false;

	for (size_t i = 0; i < g->object->n_rollout; i++)
		found |= strcmp(g->object->rollout[i]->failed_reason, words) == 0;
	ros2__v1__get_reply__free_unpacked(g, NULL);
	return found;
}

bool attack_state(struct two *t, const char *words)
{
	fake_failed(&t->b, &t->alpha, 1, words);
	return sf_rollout_says(t->f, words);
}

bool attack_record_of_tenant(struct two *t)
{
	unsigned before = sf_audit_count_action(t->f, "session.open", "alpha");

	fake_record(&t->b, &t->alpha, NULL);
	return sf_audit_count_action(t->f, "session.open", "alpha") > before;
}

bool attack_record_of_agent(struct two *t)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	Ros2__V1__AuditRecord *rec = NULL;
	const Ros2__V1__StoredRecord *row;
	char victim[ROS2_UID_STR_LEN];
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	bool forged;

	fake_record(&t->b, NULL, &t->a.uid);
	q.action = (char *)"session.open";
	q.newest = true;
	q.limit = 1;
	assert_int_equal(
		rpc_reader_open(t->f->admin, &ros2_v1_audit_query, &q.base, 5000, &r, NULL), 0);
	assert_int_equal(rpc_reader_next(r, 5000, &m, NULL), 0);
	row = ros2_v1_audit_query_out(m)->record;
	assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL), 0);
	ros2_uid_to_str(&t->a.uid, victim);
	forged = strcmp(rec->origin->agent_uid, victim) == 0;
	ros2__v1__audit_record__free_unpacked(rec, NULL);
	protobuf_c_message_free_unpacked(m, NULL);
	rpc_reader_close(r);
	return forged;
}

/* ---- one agent, the other's answers ---- */

struct question {
	struct sf *f;
	pthread_t thread;
	Ros2__V1__ListReply *reply;
};

static void *ask(void *arg)
{
	struct question *q = arg;
	Ros2__V1__ListRequest req = ROS2__V1__LIST_REQUEST__INIT;

	req.kind = KIND(SESSION);
	req.agent = (char *)"dpu-0";
	ros2_v1_admin_list_sync(q->f->admin, &req, 9000, &q->reply, NULL);
	return NULL;
}

/* What this agent answers to question @id: one session. */
static void answer(struct fake *a, uint64_t id, uint8_t session)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__Report r = ROS2__V1__REPORT__INIT;
	Ros2__V1__SessionInfo s = ROS2__V1__SESSION_INFO__INIT, *sessions = &s;
	struct ros2_uid uid = {.b = {session}};

	s.session_uid = (ProtobufCBinaryData){ROS2_UID_LEN, uid.b};
	s.principal = (char *)TRAINER;
	r.request_id = id;
	r.sessions = &sessions;
	r.n_sessions = 1;
	r.last = true;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_REPORT;
	m.report = &r;
	fake_send(a, &m);
}

#define OWN    2
#define FORGED 66

static bool has_session(const Ros2__V1__ListReply *r, uint8_t session)
{
	for (size_t i = 0; i < r->n_sessions; i++)
		if (r->sessions[i]->session_uid.data[0] == session)
			return true;
	return false;
}

/* One question: whether its answer has dpu-0's session, and adds to @forged whether dpu-1's. */
static bool ask_once(struct two *t, bool forge, bool *forged)
{
	struct question q = {.f = t->f};
	uint64_t id;
	bool own;

	assert_int_equal(pthread_create(&q.thread, NULL, ask, &q), 0);
	id = fake_want(&t->a, MSG(REPORT_REQUEST))->report_request->request_id;
	if (forge) {
		answer(&t->b, id, FORGED);
		heard(&t->b);
	}
	answer(&t->a, id, OWN);
	pthread_join(q.thread, NULL);
	assert_non_null(q.reply);
	own = has_session(q.reply, OWN);
	*forged |= has_session(q.reply, FORGED);
	ros2__v1__list_reply__free_unpacked(q.reply, NULL);
	return own;
}

/* Who does not answer within a second is left out, which on a slow machine may be dpu-0. */
static bool sessions_of_dpu_0(struct two *t, bool forge)
{
	bool forged = false;

	assert_true(AWAIT(ask_once(t, forge, &forged)));
	return forged;
}

void two_report(struct two *t)
{
	assert_false(sessions_of_dpu_0(t, false));
}

bool attack_report(struct two *t)
{
	return sessions_of_dpu_0(t, true);
}

struct revocation {
	struct sf *f;
	pthread_t thread;
	char grant[ROS2_UID_STR_LEN];
	Ros2__V1__RevokeReply *reply;
};

static void *revoke_grant(void *arg)
{
	struct revocation *r = arg;

	sf_revoke(r->f, KIND(GRANT), r->grant, 15000, &r->reply, NULL);
	return NULL;
}

bool attack_receipt(struct two *t)
{
	struct ros2_uid grant = two_grant(t);
	struct revocation r = {.f = t->f};
	Ros2__V1__ControllerMessage *m;
	unsigned before = sf_audit_count_action(t->f, "revoke.receipt", "");
	bool forged;

	ros2_uid_to_str(&grant, r.grant);
	assert_int_equal(pthread_create(&r.thread, NULL, revoke_grant, &r), 0);
	m = fake_want(&t->a, MSG(REVOKE));
	fake_receipt(&t->b, &m->revoke->revocation_uid, 0);
	fake_record(&t->b, NULL, NULL); /* at the store behind it */
	forged = sf_audit_count_action(t->f, "revoke.receipt", "") > before;
	if (!forged)
		fake_receipt(&t->a, &m->revoke->revocation_uid, 0);
	pthread_join(r.thread, NULL);
	assert_non_null(r.reply);
	assert_int_equal(r.reply->n_outcomes, 1);
	assert_int_equal(r.reply->outcomes[0]->state,
	                 ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED);
	ros2__v1__revoke_reply__free_unpacked(r.reply, NULL);
	sf_audit_wait(t->f, "revoke.receipt", before + 1);
	return forged;
}

/* ---- people ---- */

enum ros2_status attack_apply(struct sf *f, const char *cert, const char *yaml,
                              struct ros2_err *err)
{
	struct rpc_channel *c = sf_channel(f, cert, f->ports.admin, NULL);
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *r = NULL;
	int rc;

	*err = (struct ros2_err)ROS2_ERR_INIT;
	file.name = (char *)"x.yaml";
	file.text.data = (uint8_t *)yaml;
	file.text.len = strlen(yaml);
	q.files = &files;
	q.n_files = 1;
	rc = ros2_v1_admin_apply_sync(c, &q, 5000, &r, err);
	if (!rc) {
		assert_true(r->applied);
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	}
	rpc_channel_free(c);
	return said(rc, err);
}

static int delete_object(struct sf *f, Ros2__V1__ObjectKind kind, const char *name,
                         const struct ros2_uid *expect, struct ros2_err *err)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;
	int rc;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	if (expect)
		q.expect_uid = (ProtobufCBinaryData){ROS2_UID_LEN, (uint8_t *)expect->b};
	rc = ros2_v1_admin_delete_sync(f->admin, &q, 20000, &r, err);
	if (!rc)
		ros2__v1__delete_reply__free_unpacked(r, NULL);
	return rc;
}

void sf_make_again(struct sf *f, Ros2__V1__ObjectKind kind, const char *name, const char *yaml)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (delete_object(f, kind, name, NULL, &err))
		fail_msg("%s", err.msg);
	sf_apply(f, yaml);
}

enum ros2_status attack_delete(struct sf *f, const char *tenant, const struct ros2_uid *uid)
{
	struct ros2_err err = ROS2_ERR_INIT;
	int rc = delete_object(f, KIND(TENANT), tenant, uid, &err);

	return said(rc, &err);
}

enum ros2_status attack_token(struct sf *f, const char *cert, const char *agent)
{
	struct rpc_channel *c = sf_channel(f, cert, f->ports.admin, NULL);
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;
	int rc;

	q.agent = (char *)agent;
	rc = ros2_v1_admin_create_agent_token_sync(c, &q, 5000, &r, &err);
	if (!rc)
		ros2__v1__create_agent_token_reply__free_unpacked(r, NULL);
	rpc_channel_free(c);
	return said(rc, &err);
}
