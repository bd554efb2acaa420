/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power is cut under a whole controller while an administrator and an agent work with it over
 * gRPC: at every call that its database and its other files make of the disk, at its start, too.
 * What somebody was answered is there at the next start; there is at most the one step more that
 * nobody was answered, whole commits of it; the log verifies. Negative control: syncs that do
 * nothing.
 *
 * What the tables are after each commit is learned by a run without a cut, and after which of them
 * each step was answered.
 */
#include "common/fsx.h"
#include "common/pki.h"
#include "controller/store.h"
#include "controller/store_priv.h"
#include "tests/await.h"
#include "tests/common/disk_fsx.h"
#include "tests/controller/power_points.h"
#include "tests/controller/power_vfs.h"
#include "tests/controller/service_attacks.h"
#include <semaphore.h>
#include <sqlite3.h>

#define SEED         20261126
#define STATES_MAX   64
#define STATE_MAX    4096
#define EVERY_UP_TO  40 /* cuts at each of the first calls; then a sample */
#define AT_LEAST     6  /* however slow the machine is */
#define STEP_MS      10000
#define KIND(k)      ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)       ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define AGENT_MSG(k) ROS2__V1__AGENT_MESSAGE__MSG_##k

static struct run {
	struct sf *f;
	struct disk *disk;
	struct fake a;
	struct ros2_uid alpha;
	char *secret;
	unsigned answered; /* steps, the first so many */
	bool joined;       /* the agent has its certificate */
} run;

/* ---- what the tables are ---- */

/* Without what differs from run to run, and without what nobody waits for: a receipt that is lost
 * is asked for again. */
static const char *const queries[] = {
	"SELECT 'object', kind, name, revoked FROM objects ORDER BY kind, name",
	"SELECT 'deleted', kind, name FROM deleted_uids ORDER BY kind, name",
	"SELECT 'agent', name, enrolled, isolated, length(serial)>0 FROM agents ORDER BY name",
	"SELECT 'token', used FROM tokens ORDER BY created, used",
	"SELECT 'grant', state, principal FROM grants ORDER BY version, state",
	"SELECT 'revocation', kind, target_name FROM revocations ORDER BY version, kind",
	"SELECT 'record', action, result, object_name FROM audit WHERE action NOT IN"
	" ('controller.start', 'agent.connect', 'agent.disconnect', 'agent.contact.lost',"
	" 'revoke.receipt') ORDER BY seq",
};

static void add_rows(sqlite3 *db, const char *sql, char text[STATE_MAX])
{
	sqlite3_stmt *st = NULL;
	size_t n = strlen(text);

	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
	while (sqlite3_step(st) == SQLITE_ROW) {
		for (int i = 0; i < sqlite3_column_count(st); i++)
			n += (size_t)snprintf(text + n, STATE_MAX - n, "%s ",
			                      (const char *)sqlite3_column_text(st, i));
		n += (size_t)snprintf(text + n, STATE_MAX - n, "\n");
		assert_true(n < STATE_MAX);
	}
	assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
}

static void look(char text[STATE_MAX])
{
	char path[128];
	sqlite3 *db = NULL;

	text[0] = '\0';
	snprintf(path, sizeof(path), "%s/ros2.db", run.f->dir);
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++)
		add_rows(db, queries[i], text);
	sqlite3_close(db);
}

/* ---- learning ---- */

static struct {
	char state[STATES_MAX][STATE_MAX]; /* one after the other */
	_Atomic unsigned n;
	unsigned at_answer[STATES_MAX]; /* the state that was there when so many were answered */
	uint64_t calls;
} path;
static _Atomic bool learning;

static void learn_state(void)
{
	char now[STATE_MAX];
	unsigned n = path.n;

	look(now);
	if (n && !strcmp(path.state[n - 1], now))
		return;
	assert_true(n < STATES_MAX);
	strcpy(path.state[n], now);
	path.n = n + 1;
}

static struct store_ops ops;

/* Store thread. */
static int learning_commit(void *b, struct ros2_err *err)
{
	int r = store_sqlite_ops.commit(b, err);

	if (!r && learning)
		learn_state();
	return r;
}

/* ---- a process that ends, without an end of this one ---- */

static sem_t over;
static pthread_t ender;
static _Atomic bool dead; /* the program would have ended: nobody hears what it says from here on */

static void on_fatal(void *arg, const struct ros2_err *why)
{
	dead = true;
	sem_post(&over);
}

int __real_store_open(const struct store_opts *o, struct store **ret, struct ros2_err *err);
int __wrap_store_open(const struct store_opts *o, struct store **ret, struct ros2_err *err);

int __wrap_store_open(const struct store_opts *o, struct store **ret, struct ros2_err *err)
{
	struct store_opts with = *o;

	ops = store_sqlite_ops;
	ops.commit = learning_commit;
	with.ops = &ops;
	with.on_fatal = on_fatal;
	with.ending_ms = 1;
	return __real_store_open(&with, ret, err);
}

static void free_on_loop(void *arg)
{
	controller_free(arg);
}

/* Whoever waits for an answer of it has none. */
static void *end_it(void *arg)
{
	while (sem_wait(&over) < 0)
		;
	loop_call(run.f->loop, free_on_loop, run.f->c);
	return NULL;
}

static bool start(void)
{
	if (sf_try(run.f, NULL) < 0)
		return false;
	dead = false;
	sem_init(&over, 0, 0);
	assert_int_equal(pthread_create(&ender, NULL, end_it, NULL), 0);
	run.f->admin = sf_channel(run.f, "root", run.f->ports.admin, NULL);
	return true;
}

static void stop(void)
{
	sem_post(&over);
	pthread_join(ender, NULL);
	sem_destroy(&over);
	rpc_channel_free(run.f->admin);
	loop_stop(run.f->loop);
	loop_thread_join(run.f->loop);
	loop_free(run.f->loop);
}

/* ---- the steps: true when it was answered ---- */

static bool apply(const char *yaml)
{
	Ros2__V1__ApplyRequest q = ROS2__V1__APPLY_REQUEST__INIT;
	Ros2__V1__SourceFile file = ROS2__V1__SOURCE_FILE__INIT, *files = &file;
	Ros2__V1__ApplyReply *r = NULL;
	bool ok;

	file.name = (char *)"test.yaml";
	file.text = (ProtobufCBinaryData){strlen(yaml), (uint8_t *)yaml};
	q.files = &files;
	q.n_files = 1;
	ok = !ros2_v1_admin_apply_sync(run.f->admin, &q, STEP_MS, &r, NULL) && r->applied;
	if (r)
		ros2__v1__apply_reply__free_unpacked(r, NULL);
	return ok;
}

static bool step_apply(void)
{
	char text[4096];

	snprintf(text, sizeof(text), "%s---\n%s---\n%s", sf_agent0, sf_engine,
	         sf_tenant("alpha", "1h", "10m", "dpu-0"));
	return apply(text);
}

static bool step_token(void)
{
	Ros2__V1__CreateAgentTokenRequest q = ROS2__V1__CREATE_AGENT_TOKEN_REQUEST__INIT;
	Ros2__V1__CreateAgentTokenReply *r = NULL;
	char secret[80];

	q.agent = (char *)"dpu-0";
	if (ros2_v1_admin_create_agent_token_sync(run.f->admin, &q, STEP_MS, &r, NULL))
		return false;
	assert_int_equal(sscanf(r->token, "ros2-join-v1 %*s %79s", secret), 1);
	free(run.secret);
	run.secret = strdup(secret);
	ros2__v1__create_agent_token_reply__free_unpacked(r, NULL);
	return true;
}

static bool step_enrol(void)
{
	run.joined = !fake_enrol_with(run.f, &run.a, "dpu-0", run.secret, NULL);
	return run.joined;
}

/* At its revocations the agent's answer is on its way before anything else. */
static bool answers_revocations(struct fake *a, const Ros2__V1__ControllerMessage *m)
{
	if (m->msg_case == MSG(REVOKE))
		fake_receipt(a, &m->revoke->revocation_uid, 0);
	return false;
}

static bool link_up(void)
{
	Ros2__V1__ControllerMessage *m = NULL;

	run.a.sees = answers_revocations;
	fake_connect(&run.a, NULL, 0);
	do
		m = fake_next(&run.a, MSG(DELTA), STEP_MS);
	while (m && !m->delta->initial_done);
	return m;
}

static bool ask_grant(uint64_t id)
{
	Ros2__V1__ControllerMessage *m;

	fake_ask_grant(&run.a, id, &run.alpha, TRAINER);
	m = fake_next(&run.a, MSG(GRANT_REPLY), STEP_MS);
	return m && !m->grant_reply->status;
}

static bool step_grant(void)
{
	Ros2__V1__GetRequest q = ROS2__V1__GET_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__GetReply *r = NULL;

	ref.kind = KIND(TENANT);
	ref.name = (char *)"alpha";
	q.ref = &ref;
	if (ros2_v1_admin_get_sync(run.f->admin, &q, STEP_MS, &r, NULL))
		return false;
	assert_int_equal(ros2_uid_from_bytes(r->object->uid.data, r->object->uid.len, &run.alpha),
	                 0);
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return link_up() && ask_grant(1);
}

/* The agent's own record, until it is told that the log has it. */
static bool step_record(void)
{
	Ros2__V1__AgentMessage m = ROS2__V1__AGENT_MESSAGE__INIT;
	Ros2__V1__AuditBatch b = ROS2__V1__AUDIT_BATCH__INIT;
	Ros2__V1__AuditDraft d = ROS2__V1__AUDIT_DRAFT__INIT, *drafts = &d;
	Ros2__V1__AuditRecord r = ROS2__V1__AUDIT_RECORD__INIT;
	Ros2__V1__AuditOrigin o = ROS2__V1__AUDIT_ORIGIN__INIT;
	char agent_uid[ROS2_UID_STR_LEN];

	ros2_uid_to_str(&run.a.uid, agent_uid);
	o.agent_uid = agent_uid;
	r.action = (char *)"session.open";
	r.actor = (char *)TRAINER;
	r.result = ROS2__V1__AUDIT_RESULT__AUDIT_RESULT_OK;
	r.origin = &o;
	d.seq = ++run.a.last_seq;
	d.record = &r;
	b.incarnation = (ProtobufCBinaryData){ROS2_UID_LEN, run.a.incarnation.b};
	b.drafts = &drafts;
	b.n_drafts = 1;
	m.msg_case = AGENT_MSG(AUDIT);
	m.audit = &b;
	fake_send(&run.a, &m);
	return fake_next(&run.a, MSG(AUDIT_ACK), STEP_MS);
}

/* Until it is confirmed. */
static bool step_revoke(void)
{
	Ros2__V1__RevokeReply *r = NULL;
	bool ok = !sf_revoke(run.f, KIND(TENANT), "alpha", STEP_MS, &r, NULL);

	ok = ok && r->n_outcomes == 1 &&
	     r->outcomes[0]->state == ROS2__V1__RECEIPT_STATE__RECEIPT_STATE_CONFIRMED;
	if (r)
		ros2__v1__revoke_reply__free_unpacked(r, NULL);
	return ok;
}

static bool step_reinstate(void)
{
	Ros2__V1__ReinstateRequest q = ROS2__V1__REINSTATE_REQUEST__INIT;
	Ros2__V1__ReinstateReply *r = NULL;

	q.tenant = (char *)"alpha";
	q.reason = (char *)"test";
	if (ros2_v1_admin_reinstate_sync(run.f->admin, &q, STEP_MS, &r, NULL))
		return false;
	ros2__v1__reinstate_reply__free_unpacked(r, NULL);
	return true;
}

static bool step_again(void)
{
	return ask_grant(2);
}

static bool isolate(bool lift)
{
	Ros2__V1__IsolateAgentRequest q = ROS2__V1__ISOLATE_AGENT_REQUEST__INIT;
	Ros2__V1__IsolateAgentReply *r = NULL;

	q.agent = (char *)"dpu-0";
	q.reason = (char *)"test";
	q.lift = lift;
	if (ros2_v1_admin_isolate_agent_sync(run.f->admin, &q, STEP_MS, &r, NULL))
		return false;
	ros2__v1__isolate_agent_reply__free_unpacked(r, NULL);
	return true;
}

static bool step_isolate(void)
{
	return isolate(false);
}

static bool step_lift(void)
{
	return isolate(true);
}

static bool drop(Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__DeleteRequest q = ROS2__V1__DELETE_REQUEST__INIT;
	Ros2__V1__ObjectRef ref = ROS2__V1__OBJECT_REF__INIT;
	Ros2__V1__DeleteReply *r = NULL;

	ref.kind = kind;
	ref.name = (char *)name;
	q.ref = &ref;
	if (ros2_v1_admin_delete_sync(run.f->admin, &q, STEP_MS, &r, NULL))
		return false;
	ros2__v1__delete_reply__free_unpacked(r, NULL);
	return true;
}

static bool step_drop_tenant(void)
{
	return drop(KIND(TENANT), "alpha");
}

static bool step_drop_agent(void)
{
	return drop(KIND(AGENT), "dpu-0");
}

static bool (*const steps[])(void) = {
	step_apply,     step_token, step_enrol,   step_grant, step_record,      step_revoke,
	step_reinstate, step_again, step_isolate, step_lift,  step_drop_tenant, step_drop_agent,
};

/* ---- one run ---- */

static void begin(bool sync_lies)
{
	assert_int_equal(nftw(run.f->dir, testing_remove_one, 16, FTW_DEPTH | FTW_PHYS) < 0 &&
	                         errno != ENOENT,
	                 0);
	assert_int_equal(mkdir(run.f->dir, 0700), 0);
	run.answered = 0;
	run.joined = false;
	memset(&run.a, 0, sizeof(run.a));
	run.a.f = run.f;
	snprintf(run.a.name, sizeof(run.a.name), "dpu-0");
	snprintf(run.a.dir, sizeof(run.a.dir), "power-dpu-0"); /* one key for all runs */
	run.a.incarnation = ros2_uid_new();
	pthread_mutex_init(&run.a.lock, NULL);
	pthread_cond_init(&run.a.cond, NULL);
	run.disk = disk_new(run.f->dir);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk, .sync_lies = sync_lies});
	disk_fsx_use(&(struct disk_fsx_opts){.disk = run.disk, .only_root = run.f->dir});
}

static void live(void)
{
	if (!start())
		return;
	if (learning)
		path.at_answer[0] = path.n - 1;
	while (run.answered < ARRAY_SIZE(steps) && steps[run.answered]() && !dead) {
		run.answered++;
		if (learning)
			path.at_answer[run.answered] = path.n - 1;
	}
	fake_disconnect(&run.a);
	stop();
}

static void end(void)
{
	fake_free(&run.a);
	disk_free(run.disk);
	disk_fsx_end();
}

/* ---- after the cut ---- */

/* Between what was there when the last answer was given, and when the next one would have been. */
static bool is_on_the_path(char state[STATE_MAX])
{
	unsigned last = MIN(run.answered + 1, (unsigned)ARRAY_SIZE(steps));

	look(state);
	for (unsigned i = run.answered ? path.at_answer[run.answered] : 0;
	     i <= path.at_answer[last]; i++)
		if (!strcmp(path.state[i], state))
			return true;
	return false;
}

static bool no_patience; /* what is to be found has no end to be waited for */

/* NULL, or what is wrong. */
static const char *check(void)
{
	static char state[STATE_MAX];
	const char *bad = NULL;

	if (!start())
		return "the controller does not start";
	/* What only the journal has holds at once, and is in the tables a moment later. */
	if (!is_on_the_path(state) && (no_patience || !AWAIT(is_on_the_path(state)))) {
		printf("# %u steps were answered, then there is:\n%s", run.answered, state);
		bad = "an answer is lost, or there is what nobody asked for";
	}
	/* A certificate that was given out is one. */
	if (!bad && run.joined && run.answered < ARRAY_SIZE(steps) - 4 && !link_up())
		bad = "the agent is not known any more";
	if (!bad && !apply("apiVersion: ros2/v1\nkind: Engine\nmetadata:\n  name: more\n"
	                   "spec:\n  type: mem\n  size: 16MiB\n"))
		bad = "nothing can be written";
	if (!bad)
		sf_verify_log(run.f);
	fake_disconnect(&run.a);
	stop();
	return bad;
}

static const char *cut_at(uint64_t call, enum disk_loss loss, bool sync_lies, bool *ret_cut)
{
	const char *bad;

	begin(sync_lies);
	disk_arm(run.disk, call);
	live();
	*ret_cut = disk_is_off(run.disk);
	disk_restore(run.disk, loss, SEED + call);
	power_vfs_use(&(struct power_vfs_opts){.disk = run.disk});
	bad = check();
	end();
	return bad;
}

/* ---- tests ---- */

/* How many calls a run without a cut makes, and what the tables are on the way. */
static void learn(void)
{
	begin(false);
	disk_arm(run.disk, UINT64_MAX);
	path.n = 0;
	learning = true;
	live();
	learning = false;
	assert_int_equal(run.answered, ARRAY_SIZE(steps));
	path.calls = disk_calls(run.disk);
	end();
}

static int setup(void **state)
{
	if (sf_group_setup(state) || sf_setup((void **)&run.f))
		return -1;
	sf_stop(run.f);
	learn();
	return 0;
}

static int teardown(void **state)
{
	begin(false);
	sf_start(run.f);
	sf_teardown((void **)&run.f);
	end();
	free(run.secret);
	return sf_group_teardown(state);
}

/* What waits together may share a commit or not: of 13 runs the shortest made 338 calls, and the
 * longest 349. */
#define SLACK 20

/* With ROS2_SWEEP_STRIDE (an ordinary run) each eighth of the first, and a sample for
 * ROS2_POWER_SECONDS; with ROS2_POWER_ALL all. */
static void sweep(enum disk_loss loss)
{
	struct power_points p = {.calls = path.calls,
	                         .first = EVERY_UP_TO,
	                         .every = power_stride() > 1 ? 8 : 1,
	                         .at_least = AT_LEAST + EVERY_UP_TO / 8,
	                         .seconds = 60,
	                         .from = loss * path.calls / 2};

	while (power_points_next(&p)) {
		const char *bad = cut_at(p.at, loss, false, &p.cut);

		if (bad)
			fail_msg("cut at call %llu of %llu: %s", (unsigned long long)p.at,
			         (unsigned long long)path.calls, bad);
	}
	assert_true(p.cuts >= AT_LEAST);
	printf("# %llu cuts in a run of %llu calls and %u states\n", (unsigned long long)p.cuts,
	       (unsigned long long)path.calls, path.n);
	power_points_end(&p, SLACK);
}

static void controller__keeps_what_it_answered_when_the_unsynced_is_lost(void **state)
{
	sweep(DISK_LOSE_UNSYNCED);
}

static void controller__keeps_what_it_answered_when_the_unsynced_is_torn(void **state)
{
	sweep(DISK_TEAR);
}

/* Each cut must find something then: the first that does is enough. */
static void control__syncs_that_do_nothing_lose_what_was_answered(void **state)
{
	const char *bad = NULL;
	bool cut;

	no_patience = true;
	for (uint64_t at = path.calls / 2; at < path.calls && !bad; at += path.calls / 40)
		bad = cut_at(at, DISK_LOSE_UNSYNCED, true, &cut);
	no_patience = false;
	assert_non_null(bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(controller__keeps_what_it_answered_when_the_unsynced_is_lost),
		cmocka_unit_test(controller__keeps_what_it_answered_when_the_unsynced_is_torn),
		cmocka_unit_test(control__syncs_that_do_nothing_lose_what_was_answered),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
