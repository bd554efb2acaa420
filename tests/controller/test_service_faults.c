/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that does not take a transaction, or says late that it did not: what holds then, what is
 * recorded later, and what a process that ends in between leaves. A batch that cannot be signed.
 */
#include "controller/ctl.h"
#include "tests/await.h"
#include "tests/controller/service_fixture.h"
#include "common/util.h"
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k

/* ---- the store in between ---- */

enum fault {
	NONE,
	REFUSED,      /* at submission */
	FAILED_LATER, /* taken, and answered -EBUSY: a lock on the file */
	LOST,         /* nobody waits for it, and the process ends before its commit */
};
static _Atomic enum fault fault;
static _Atomic int passes; /* so many go through first */
static _Atomic int fails;  /* so many do not; the rest goes through */
static struct loop *fault_loop;

int __real_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);
int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err);

struct late {
	store_done_fn done;
	void *arg;
};

static void answer_late(void *arg)
{
	struct late *l = arg;
	struct store_result r = {.rc = -EBUSY};

	ros2_err_set(&r.err, -EBUSY, "the database is locked");
	if (l->done)
		l->done(l->arg, &r);
	free(l);
}

int __wrap_store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                        struct ros2_err *err)
{
	struct late *l;

	if (fault == NONE || (fault == LOST && done) || passes-- > 0 || fails-- <= 0)
		return __real_store_submit(s, t, done, arg, err);
	store_txn_free(t);
	if (fault == REFUSED)
		return ros2_err_set(err, -EBUSY, "the store is behind");
	if (fault == FAILED_LATER) {
		l = malloc(sizeof(*l));
		*l = (struct late){done, arg};
		loop_post(fault_loop, answer_late, l);
	}
	return 0;
}

static void break_store(struct sf *f, enum fault how, int after)
{
	fault_loop = f->loop;
	passes = after;
	fails = INT_MAX;
	fault = how;
}

/* ---- a signature for which there is no memory ---- */

static _Atomic bool unsigned_once;

int __real_crypto_sign(const struct crypto_sign_key *k, const void *p, size_t n,
                       uint8_t out[ED25519_SIG_LEN]);
int __wrap_crypto_sign(const struct crypto_sign_key *k, const void *p, size_t n,
                       uint8_t out[ED25519_SIG_LEN]);
int __wrap_crypto_sign(const struct crypto_sign_key *k, const void *p, size_t n,
                       uint8_t out[ED25519_SIG_LEN])
{
	static const char batch[] = "ros2-batch-v1";

	if (n > sizeof(batch) && !memcmp(p, batch, sizeof(batch)) && unsigned_once) {
		unsigned_once = false;
		return -EIO;
	}
	return __real_crypto_sign(k, p, n, out);
}

/* ---- the world ---- */

static struct fake agent;
static struct ros2_uid alpha;

static struct sf *world(void **state, const char *lifetime)
{
	struct sf *f = *state;
	Ros2__V1__GetReply *g;

	fault = NONE;
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", lifetime, "10m", "dpu-0"));
	g = sf_get(f, KIND(TENANT), "alpha");
	memcpy(alpha.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	fake_enrol(f, &agent, "dpu-0");
	fake_connect(&agent, NULL, 0);
	fake_wait_synced(&agent);
	return f;
}

static struct ros2_uid get_grant(uint64_t id)
{
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o;
	struct ros2_uid uid;

	fake_ask_grant(&agent, id, &alpha, TRAINER);
	m = fake_next(&agent, MSG(GRANT_REPLY), AWAIT_MS);
	assert_non_null(m);
	assert_int_equal(m->grant_reply->status, 0);
	o = fake_open(&agent, m->grant_reply->grant);
	memcpy(uid.b, o->uid.data, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	return uid;
}

static unsigned grants_of(struct sf *f)
{
	Ros2__V1__GetReply *g = sf_get(f, KIND(TENANT), "alpha");
	unsigned n = g->object->tenant->grants;

	ros2__v1__get_reply__free_unpacked(g, NULL);
	return n;
}

/* How many events the records of @action tell of: a counted one of several. */
static unsigned told(struct sf *f, const char *action, unsigned *ret_records)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	unsigned n = 0;

	q.action = (char *)action;
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_query, &q.base, 5000, &r, NULL),
	                 0);
	*ret_records = 0;
	while (rpc_reader_next(r, 5000, &m, NULL) == 0) {
		const Ros2__V1__StoredRecord *s = ((Ros2__V1__AuditQueryItem *)m)->record;
		Ros2__V1__AuditRecord *rec =
			ros2__v1__audit_record__unpack(NULL, s->record.len, s->record.data);

		assert_non_null(rec);
		++*ret_records;
		n += rec->aggregate ? (unsigned)rec->aggregate->count : 1;
		ros2__v1__audit_record__free_unpacked(rec, NULL);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	rpc_reader_close(r);
	return n;
}

static unsigned records(struct sf *f, const char *action)
{
	unsigned n;

	told(f, action, &n);
	return n;
}

static void until_told(struct sf *f, const char *action, unsigned n)
{
	uint64_t end = clock_boottime_ns() + AWAIT_NS;
	unsigned ignored;

	while (told(f, action, &ignored) != n)
		assert_true(clock_boottime_ns() < end);
}

static void until_recorded(struct sf *f, const char *action, unsigned n)
{
	uint64_t end = clock_boottime_ns() + AWAIT_NS;

	while (records(f, action) != n)
		assert_true(clock_boottime_ns() < end);
}

/* ---- tests ---- */

static void revoke__is_recorded_later_when_the_commit_failed(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__RevokeReply *r = NULL;

	get_grant(1);
	break_store(f, FAILED_LATER, 0);
	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	assert_true(r->record_pending);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	assert_non_null(fake_next(&agent, MSG(REVOKE), AWAIT_MS));
	assert_int_equal(grants_of(f), 0);
	fault = NONE;
	until_recorded(f, "tenant.revoke", 1);
	fake_disconnect(&agent);
	sf_stop(f);
	sf_start(f);
	fake_connect(&agent, NULL, 0);
	assert_non_null(fake_next(&agent, MSG(REVOKE), AWAIT_MS));
	fake_free(&agent);
}

/* The receipt is in the log before the record of what it is for: that does not ask for it again. */
static void revoke__that_is_recorded_late_keeps_the_receipt_that_was_before_it(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__RevokeReply *r = NULL;

	break_store(f, REFUSED, 0);
	fails = 1;
	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	assert_true(r->record_pending);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	m = fake_next(&agent, MSG(REVOKE), AWAIT_MS);
	assert_non_null(m);
	fake_receipt(&agent, &m->revoke->revocation_uid, 0);
	until_recorded(f, "revoke.receipt", 1);
	until_recorded(f, "tenant.revoke", 1);
	fault = NONE;
	fake_disconnect(&agent);
	sf_stop(f);
	sf_start(f);
	fake_connect(&agent, NULL, 0);
	/* What is owed comes before the answer to a beat. */
	fake_beat(&agent, NULL, 0);
	assert_non_null(fake_next(&agent, MSG(CONTACT), AWAIT_MS));
	assert_null(fake_next(&agent, MSG(REVOKE), 0));
	fake_free(&agent);
}

/* What is recorded late is what it took away, and not what the agent was given since. */
static void revoke__that_is_recorded_late_leaves_what_was_given_since(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__RevokeReply *r = NULL;

	get_grant(1);
	break_store(f, REFUSED, 0);
	fails = 1;
	assert_int_equal(sf_revoke(f, KIND(AGENT), "dpu-0", 1, &r, NULL), 0);
	assert_true(r->record_pending);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	get_grant(2);
	until_recorded(f, "agent.revoke", 1);
	fault = NONE;
	fake_disconnect(&agent);
	sf_stop(f);
	sf_start(f);
	assert_int_equal(grants_of(f), 1);
	fake_free(&agent);
}

/* All its terms: an old stamp with a new lifetime would be a right that nobody recorded. */
static void grant__keeps_the_terms_that_were_recorded(void **state)
{
	struct sf *f = world(state, "8s");
	struct ros2_uid uid = get_grant(1);
	Ros2__V1__ControllerMessage *m;
	bool seen = false;

	sf_apply(f, sf_tenant("alpha", "24h", "10m", "dpu-0"));
	usleep(4200000); /* time: half its life, a renewal is due */
	break_store(f, FAILED_LATER, 0);
	fake_beat(&agent, &uid, 1);
	assert_non_null(fake_next(&agent, MSG(CONTACT), AWAIT_MS));
	fake_disconnect(&agent);
	fake_connect(&agent, NULL, 0);
	while (!seen && (m = fake_next(&agent, MSG(DELTA), AWAIT_MS)))
		for (size_t i = 0; i < m->delta->n_upserts; i++) {
			Ros2__V1__AgentObject *o = fake_open(&agent, m->delta->upserts[i]);

			if (o->kind == KIND(GRANT)) {
				assert_int_equal(o->grant->lifetime_ms, 8000);
				seen = true;
			}
			ros2__v1__agent_object__free_unpacked(o, NULL);
		}
	assert_true(seen);
	fault = NONE;
	fake_free(&agent);
}

static void grant__that_expires_on_a_broken_store_ends_when_it_can(void **state)
{
	struct sf *f = world(state, "2s");

	get_grant(1);
	break_store(f, FAILED_LATER, 0);
	/* time: renewals fail for a while */
	usleep(2500000);
	fault = NONE;
	until_recorded(f, "grant.expire", 0);
	assert_int_equal(grants_of(f), 1);
	sf_stop(f);
	sf_start(f);
	until_recorded(f, "grant.expire", 1);
	assert_int_equal(grants_of(f), 0);
	fake_free(&agent);
}

/* The document is one commit, the end of the grants it no longer allows the next. */
static void grant__does_not_come_back_when_the_process_ended_in_between(void **state)
{
	struct sf *f = world(state, "1h");

	get_grant(1);
	sf_apply(f, sf_agent1);
	break_store(f, LOST, 0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	sf_stop(f);
	fault = NONE;
	sf_start(f);
	until_recorded(f, "grant.revoke", 1);
	assert_int_equal(grants_of(f), 0);
	fake_free(&agent);
}

static _Atomic bool no_settling; /* the control */

int __real_ctl_grants_settle(struct ctl *c, struct ros2_err *err);
int __wrap_ctl_grants_settle(struct ctl *c, struct ros2_err *err);
int __wrap_ctl_grants_settle(struct ctl *c, struct ros2_err *err)
{
	return no_settling ? 0 : __real_ctl_grants_settle(c, err);
}

static int apply(struct sf *f, const char *yaml, struct ros2_err *err)
{
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__ApplyReply *r = NULL;
	int rc;

	file.name = (char *)"test.yaml";
	file.text = (ProtobufCBinaryData){strlen(yaml), (uint8_t *)yaml};
	q.files = &files;
	q.n_files = 1;
	rc = ros2_v1_admin_apply_sync(f->admin, &q, 20000, &r, err);
	if (!rc)
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	return rc;
}

static void restart(struct sf *f)
{
	fake_disconnect(&agent);
	sf_stop(f);
	sf_start(f);
}

/* The store takes the document, and not the end of the grant that it no longer allows. What allows
 * it again comes after that end: otherwise a start would find the grant in force. */
static void grant__whose_end_was_refused_does_not_come_back(void **state)
{
	struct sf *f = world(state, "1h");
	struct ros2_err err = ROS2_ERR_INIT;

	get_grant(1);
	sf_apply(f, sf_agent1);
	break_store(f, REFUSED, 1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	assert_int_equal(grants_of(f), 0);
	passes = 0;
	assert_true(apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"), &err) < 0);
	assert_int_equal(err.status, ROS2_BUSY);
	fault = NONE;
	until_recorded(f, "grant.revoke", 1);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	restart(f);
	assert_int_equal(grants_of(f), 0);
	assert_int_equal(records(f, "grant.revoke"), 1);
	fake_free(&agent);
}

static void control__whose_end_is_not_settled_comes_back(void **state)
{
	struct sf *f = world(state, "1h");

	get_grant(1);
	sf_apply(f, sf_agent1);
	no_settling = true;
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	assert_int_equal(grants_of(f), 0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	no_settling = false;
	restart(f);
	assert_int_equal(grants_of(f), 1);
	fake_free(&agent);
}

static void delete__that_failed_leaves_the_agent_as_it_was(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__DeleteRequest d = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *dr = NULL;
	struct fake other;

	sf_apply(f, "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: spare}\nspec: {}\n");
	fake_enrol(f, &other, "spare");
	ref.kind = KIND(AGENT);
	ref.name = (char *)"spare";
	d.ref = &ref;
	break_store(f, REFUSED, 1); /* the revocation before it is taken */
	assert_int_not_equal(ros2_v1_admin_delete_sync(f->admin, &d, 20000, &dr, NULL), 0);
	fault = NONE;
	fake_connect(&other, NULL, 0);
	fake_wait_synced(&other);
	fake_free(&other);
	fake_free(&agent);
}

static void enrol__with_another_key_ends_the_stream_of_the_old_one(void **state)
{
	struct sf *f = world(state, "1h");
	AUTO_FREE char *secret = sf_token(f, "dpu-0", 0);
	static struct fake again;
	struct ros2_err err = ROS2_ERR_INIT;

	again = (struct fake){.f = f, .dir = "the-same-agent-elsewhere"};
	assert_int_equal(fake_enrol_with(f, &again, "dpu-0", secret, &err), 0);
	fake_wait_closed(&agent, AWAIT_MS);
	assert_int_equal(agent.why.status, ROS2_UNAUTHENTICATED);
	fake_free(&agent);
}

/* A narrower document of an agent that goes on with the wider one otherwise: nothing else tells it.
 */
static void document__that_could_not_be_signed_arrives_on_the_next_stream(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__HaveObject have = ROS2__V1__HAVE_OBJECT__INIT;
	Ros2__V1__GetReply *wide = sf_get(f, KIND(TENANT), "alpha"), *narrow;
	Ros2__V1__ControllerMessage *m;
	Ros2__V1__AgentObject *o = NULL;

	unsigned_once = true;
	sf_apply(f, sf_tenant("alpha", "20s", "10m", "dpu-0"));
	assert_int_equal(fake_wait_closed(&agent, AWAIT_MS), -EBUSY);
	assert_false(unsigned_once);
	assert_int_equal(agent.why.status, ROS2_BUSY);
	fake_disconnect(&agent);
	narrow = sf_get(f, KIND(TENANT), "alpha");
	assert_true(narrow->object->version > wide->object->version);
	have.kind = KIND(TENANT);
	have.uid = wide->object->uid;
	have.version = wide->object->version;
	fake_connect(&agent, &have, 1);
	while (!o) {
		m = fake_next(&agent, MSG(DELTA), AWAIT_MS);
		assert_non_null(m);
		for (size_t i = 0; i < m->delta->n_upserts && !o; i++) {
			o = fake_open(&agent, m->delta->upserts[i]);
			if (o->kind == KIND(TENANT) && o->version == narrow->object->version)
				break;
			ros2__v1__agent_object__free_unpacked(o, NULL);
			o = NULL;
		}
	}
	assert_memory_equal(o->uid.data, alpha.b, ROS2_UID_LEN);
	ros2__v1__agent_object__free_unpacked(o, NULL);
	ros2__v1__get_reply__free_unpacked(wide, NULL);
	ros2__v1__get_reply__free_unpacked(narrow, NULL);
	fake_free(&agent);
}

static void each_record_has_a_checkpoint(struct sf *f)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/ros2.db", f->dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
	                              "INSERT OR IGNORE INTO checkpoints SELECT seq, "
	                              "hex(zeroblob(1000)) FROM audit",
	                              NULL, NULL, NULL),
	                 SQLITE_OK);
	sqlite3_close(db);
}

static void audit__raw_stream_waits_for_a_slow_reader(void **state)
{
	struct sf *f = *state;
	Ros2__V1__AuditRawRequest q = ROS2__V1__AUDIT_RAW_REQUEST__INIT;
	struct ros2_err err = ROS2_ERR_INIT;
	static char text[200 * 1000];
	struct rpc_reader *r = NULL;
	unsigned n = 0, notes = 0;
	ProtobufCMessage *m;
	size_t at = 0;
	int rc;

	for (int i = 0; i < 1500; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
		                       "---\napiVersion: ros2/v1\nkind: Agent\nmetadata: {name: "
		                       "a-%d}\nspec: {}\n",
		                       i);
	sf_apply(f, text);
	sf_stop(f);
	each_record_has_a_checkpoint(f);
	sf_start(f);
	assert_int_equal(rpc_reader_open(f->admin, &ros2_v1_audit_raw, &q.base, 20000, &r, &err),
	                 0);
	/* time: the reader is slow */
	usleep(500000);
	while ((rc = rpc_reader_next(r, 5000, &m, &err)) == 0) {
		const Ros2__V1__AuditRawItem *item = (Ros2__V1__AuditRawItem *)m;

		if (item->item_case == ROS2__V1__AUDIT_RAW_ITEM__ITEM_RECORD)
			n++;
		else
			notes++;
		protobuf_c_message_free_unpacked(m, NULL);
	}
	if (rc != -ENODATA)
		fail_msg("%s", err.msg);
	assert_true(n > 1500);
	assert_true(notes > 1500);
	rpc_reader_close(r);
}

/* ---- a full disk, and a process that is killed ---- */

static void shell(const char *fmt, const char *a, const char *b)
{
	char cmd[400];

	snprintf(cmd, sizeof(cmd), fmt, a, b);
	assert_int_equal(system(cmd), 0);
}

static void fill_disk(struct sf *f, const char *prefix, int pad)
{
	for (int i = 0; i < 2000; i++) {
		AUTO_FREE char *text = malloc(4200);
		Ros2__V1__ApplyReply *r = NULL;
		Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
		Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
		int n = snprintf(text, 4200,
		                 "apiVersion: ros2/v1\nkind: Agent\nmetadata: {name: %s-%d}\nspec: "
		                 "{}\n# %0*d\n",
		                 prefix, i, pad, 0);

		file.name = (char *)"fill.yaml";
		file.text = (ProtobufCBinaryData){(size_t)n, (uint8_t *)text};
		q.files = &files;
		q.n_files = 1;
		if (ros2_v1_admin_apply_sync(f->admin, &q, 5000, &r, NULL))
			return;
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	}
	fail_msg("the disk does not get full");
}

/* What a kill -9 leaves is what is in the files at that moment: they are copied while it runs. */
static struct sf *killed_on_a_full_disk(void **state, bool with_journal)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__RevokeReply *r = NULL;
	char dead[128];

	get_grant(1);
	sf_stop(f);
	f->opts.store_max_pages = 120;
	sf_start(f);
	fill_disk(f, "big", 2000);
	fill_disk(f, "small", 1);
	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	assert_true(r->record_pending);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	snprintf(dead, sizeof(dead), "%s-killed", f->dir);
	shell("cp -r %s %s", f->dir, dead);
	if (!with_journal)
		shell("rm %s/%s", dead, "revocations");
	sf_stop(f);
	shell("rm -rf %s %s.none", f->dir, f->dir);
	shell("mv %s %s", dead, f->dir);
	f->opts.store_max_pages = 0;
	sf_start(f);
	return f;
}

static void revoke__on_a_full_disk_survives_a_kill(void **state)
{
	struct sf *f = killed_on_a_full_disk(state, true);
	Ros2__V1__ControllerMessage *m;

	for (int starts = 0; starts < 2; starts++) {
		until_recorded(f, "tenant.revoke", 1);
		assert_int_equal(grants_of(f), 0);
		fake_disconnect(&agent);
		fake_connect(&agent, NULL, 0);
		assert_non_null(fake_next(&agent, MSG(REVOKE), AWAIT_MS));
		fake_ask_grant(&agent, 9, &alpha, TRAINER);
		m = fake_next(&agent, MSG(GRANT_REPLY), AWAIT_MS);
		assert_non_null(m);
		assert_int_equal(m->grant_reply->status, ROS2_REVOKED);
		sf_stop(f);
		sf_start(f);
	}
	fake_free(&agent);
}

/* The negative control: without the journal the right comes back. */
static void revoke__on_a_full_disk_rests_on_the_journal(void **state)
{
	struct sf *f = killed_on_a_full_disk(state, false);

	assert_int_equal(records(f, "tenant.revoke"), 0);
	assert_int_equal(grants_of(f), 1);
	fake_free(&agent);
}

/* ---- records of agents ---- */

static void forward(uint64_t from, uint64_t to)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *p = &d;
	Ros2__V1__AuditRecord rec = ROS2__V1__AUDIT_RECORD__INIT;

	rec.action = (char *)"session.open";
	rec.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	d.record = &rec;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, agent.incarnation.b};
	b.drafts = &p;
	b.n_drafts = 1;
	m.msg_case = ROS2__V1__AGENT_MESSAGE__MSG_AUDIT;
	m.audit = &b;
	for (d.seq = from; d.seq <= to; d.seq++)
		fake_send(&agent, &m);
}

/* One batch of many fails: those behind it are not stored before it, and nothing is missing. */
static void audit__forwarded_records_that_failed_are_sent_again(void **state)
{
	struct sf *f = world(state, "1h");
	Ros2__V1__ControllerMessage *m;
	uint64_t acked;

	fault_loop = f->loop;
	passes = 2;
	fails = 1;
	fault = FAILED_LATER;
	forward(1, 9);
	assert_int_not_equal(fake_wait_closed(&agent, 9000), 0);
	assert_int_equal(records(f, "session.open"), 2);
	fault = NONE;
	fake_disconnect(&agent);
	fake_connect(&agent, NULL, 0);
	m = fake_next(&agent, MSG(WELCOME), AWAIT_MS);
	assert_non_null(m);
	acked = m->welcome->audit_acked_seq;
	assert_int_equal(acked, 2);
	forward(acked + 1, 9);
	until_recorded(f, "session.open", 9);
	assert_int_equal(records(f, "audit.gap"), 0);
	fake_free(&agent);
}

/* ---- what nobody waits for ---- */

/* Who has no role asks @n times. */
static void be_refused(struct sf *f, unsigned n)
{
	struct rpc_channel *ch = sf_channel(f, "nobody", f->ports.admin, NULL);
	Ros2__V1__StatusRequest q = ROS2__V1__STATUS_REQUEST__INIT;
	Ros2__V1__StatusReply *r = NULL;
	struct ros2_err err = ROS2_ERR_INIT;

	while (n--) {
		assert_true(ros2_v1_admin_status_sync(ch, &q, 20000, &r, &err) < 0);
		assert_int_equal(err.status, ROS2_DENIED);
	}
	rpc_channel_free(ch);
}

static void refusals__that_were_not_stored_are_counted_later(void **state)
{
	static const enum fault how[] = {REFUSED, FAILED_LATER};
	struct sf *f = *state;

	for (unsigned i = 0; i < ARRAY_SIZE(how); i++) {
		break_store(f, how[i], 0);
		be_refused(f, 5);
		fault = NONE;
		until_told(f, "admin.denied", 5 * (i + 1));
	}
}

/* Above a hundred they wait for the end of the second to be counted. */
static void refusals__are_counted_before_an_end_in_order(void **state)
{
	struct sf *f = *state;

	be_refused(f, 140);
	sf_stop(f);
	sf_start(f);
	until_told(f, "admin.denied", 140);
}

static void link__whose_records_were_not_stored_leaves_a_gap_that_says_so(void **state)
{
	static const enum fault how[] = {REFUSED, FAILED_LATER};
	struct sf *f = world(state, "1h");

	for (unsigned i = 0; i < ARRAY_SIZE(how); i++) {
		break_store(f, how[i], 0);
		fake_disconnect(&agent);
		fake_connect(&agent, NULL, 0);
		fake_wait_synced(&agent);
		fault = NONE;
		until_told(f, "audit.gap", 2 * (i + 1));
	}
	assert_int_equal(records(f, "agent.disconnect"), 0);
	assert_int_equal(records(f, "agent.connect"), 1);
	fake_free(&agent);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(revoke__is_recorded_later_when_the_commit_failed),
		T(revoke__that_is_recorded_late_keeps_the_receipt_that_was_before_it),
		T(revoke__that_is_recorded_late_leaves_what_was_given_since),
		T(grant__keeps_the_terms_that_were_recorded),
		T(grant__that_expires_on_a_broken_store_ends_when_it_can),
		T(grant__does_not_come_back_when_the_process_ended_in_between),
		T(grant__whose_end_was_refused_does_not_come_back),
		T(control__whose_end_is_not_settled_comes_back),
		T(delete__that_failed_leaves_the_agent_as_it_was),
		T(enrol__with_another_key_ends_the_stream_of_the_old_one),
		T(document__that_could_not_be_signed_arrives_on_the_next_stream),
		T(audit__raw_stream_waits_for_a_slow_reader),
		T(audit__forwarded_records_that_failed_are_sent_again),
		T(refusals__that_were_not_stored_are_counted_later),
		T(refusals__are_counted_before_an_end_in_order),
		T(link__whose_records_were_not_stored_leaves_a_gap_that_says_so),
		T(revoke__on_a_full_disk_survives_a_kill),
		T(revoke__on_a_full_disk_rests_on_the_journal),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
