/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent with many grants comes back with nothing: it is sent all of them at the pace at which it
 * reads, answers and revocations go ahead of that, and what ends meanwhile is not sent. One that
 * owes receipts for many revocations is sent all of those, at its pace, too, and before anything
 * that gives it something. What it has in versions above the controller's is taken back in those.
 */
#include "tests/controller/service_audit.h"
#include "common/util.h"
#include "tests/await.h"
#include <sqlite3.h>
#include <stdio.h>

#define TRAINER "spiffe://" TD "/tenant/alpha/trainer"
#define KIND(k) ROS2__V1__OBJECT_KIND__OBJECT_KIND_##k
#define MSG(k)  ROS2__V1__CONTROLLER_MESSAGE__MSG_##k
#define GRANTS  50000
#define OWED    20000 /* more than twice what a stream's queue takes */
#define VERSION 1000  /* of each grant at the controller */

struct seen {
	_Atomic unsigned grants, replies, revokes, deltas;
	_Atomic unsigned replies_after, revokes_after; /* that many grants */
	_Atomic unsigned contact_after;                /* that many revocations; likewise: */
	_Atomic unsigned gives_after, done_after;
	_Atomic unsigned removals;
	_Atomic unsigned too_low; /* of these: of a version below the one that the agent has */
	_Atomic unsigned holds;   /* so often it has stopped to read */
	_Atomic bool done;
	bool may_hold; /* set before it is connected; likewise: */
	uint64_t has;  /* the version of each grant that it says it has */
};

static struct fake agent;
static struct seen seen;

static unsigned grants_in(const Ros2__V1__Delta *d)
{
	unsigned n = 0;

	for (size_t i = 0; i < d->n_upserts; i++) {
		Ros2__V1__AgentObject *o = ros2__v1__agent_object__unpack(
			NULL, d->upserts[i]->body.len, d->upserts[i]->body.data);

		n += o->kind == KIND(GRANT);
		ros2__v1__agent_object__free_unpacked(o, NULL);
	}
	return n;
}

/* The agent keeps what it has in a higher version. */
static unsigned too_low_in(const Ros2__V1__Delta *d, uint64_t has)
{
	unsigned n = 0;

	for (size_t i = 0; i < d->n_removals; i++)
		n += d->removals[i]->kind == KIND(GRANT) && d->removals[i]->version < has;
	return n;
}

/* Reads no further until the test lets it: what is decided meanwhile is decided while the most of
 * the grants still waits at the controller, however quick either of the two is. */
static void hold(struct fake *a)
{
	if (!seen.may_hold)
		return;
	rpc_stream_hold(a->s);
	seen.holds++;
}

static bool counts(struct fake *a, const Ros2__V1__ControllerMessage *m)
{
	if (m->msg_case == MSG(GRANT_REPLY) && !seen.replies++) {
		seen.replies_after = seen.grants;
		hold(a);
	}
	if (m->msg_case == MSG(REVOKE) && !seen.revokes++)
		seen.revokes_after = seen.grants;
	if (m->msg_case == MSG(CONTACT) && !seen.contact_after)
		seen.contact_after = seen.revokes;
	if (m->msg_case != MSG(DELTA))
		return m->msg_case == MSG(REVOKE);
	if (m->delta->n_upserts && !seen.gives_after)
		seen.gives_after = seen.revokes;
	if (m->delta->initial_done)
		seen.done_after = seen.revokes;
	seen.deltas++;
	seen.removals += (unsigned)m->delta->n_removals;
	seen.too_low += too_low_in(m->delta, seen.has);
	seen.grants += grants_in(m->delta);
	seen.done |= m->delta->initial_done != 0;
	if (seen.grants && !seen.holds)
		hold(a);
	return !m->delta->initial_done;
}

static void run_sql(struct sf *f, const char *sql)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof(path), "%s/ros2.db", f->dir);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s", sqlite3_errmsg(db));
	sqlite3_close(db);
}

static void fill(struct sf *f, const struct ros2_uid *tenant, const struct ros2_uid *agent_uid)
{
	char sql[1024], t[ROS2_UID_STR_LEN], a[ROS2_UID_STR_LEN], boot[2 * ROS2_UID_LEN + 1];
	struct clock_stamp now;

	ros2_uid_to_str(tenant, t);
	ros2_uid_to_str(agent_uid, a);
	assert_int_equal(clock_stamp_now(&now), 0);
	crypto_hex(now.boot_id, sizeof(now.boot_id), boot);
	snprintf(sql, sizeof(sql),
	         "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT "
	         "INTO grants SELECT CAST(printf('%%016d',i) AS BLOB),x'%s',x'%s','%s',2,8,"
	         "67108864,3,3600000,2,1,%d,%llu,0,x'%s',%llu,1 FROM n",
	         GRANTS, t, a, TRAINER, VERSION,
	         (unsigned long long)(clock_unix_ns() + 3600 * NS_PER_S), boot,
	         (unsigned long long)now.boottime_ns);
	run_sql(f, sql);
}

/* Grants of before, each revoked by itself while the agent was away. */
static void fill_owed(struct sf *f, const struct ros2_uid *agent_uid)
{
	char sql[1024], a[ROS2_UID_STR_LEN];

	ros2_uid_to_str(agent_uid, a);
	snprintf(sql, sizeof(sql),
	         "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<%d) INSERT "
	         "INTO revocations SELECT CAST(printf('r%%015d',i) AS BLOB),4,"
	         "CAST(printf('g%%015d',i) AS BLOB),'%s',2,1000,'left' FROM n;"
	         "INSERT INTO receipts SELECT uid,x'%s',0,0,0,0,0 FROM revocations",
	         OWED, TRAINER, a);
	run_sql(f, sql);
}

static struct ros2_uid uid_of(struct sf *f, Ros2__V1__ObjectKind kind, const char *name)
{
	Ros2__V1__GetReply *g = sf_get(f, kind, name);
	struct ros2_uid u;

	memcpy(u.b, g->object->uid.data, ROS2_UID_LEN);
	ros2__v1__get_reply__free_unpacked(g, NULL);
	return u;
}

/* A controller with GRANTS live grants of one tenant at one agent. */
static struct sf *world(void **state, struct ros2_uid *alpha, struct ros2_uid *beta)
{
	struct sf *f = *state;
	struct ros2_uid a;

	memset(&seen, 0, sizeof(seen));
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	sf_apply(f, sf_tenant("beta", "1h", "10m", "dpu-0"));
	fake_enrol(f, &agent, "dpu-0");
	agent.sees = counts;
	*alpha = uid_of(f, KIND(TENANT), "alpha");
	*beta = uid_of(f, KIND(TENANT), "beta");
	a = uid_of(f, KIND(AGENT), "dpu-0");
	sf_stop(f);
	fill(f, alpha, &a);
	sf_start(f);
	return f;
}

static void sync__of_many_grants_is_paced_by_the_reader(void **state)
{
	struct ros2_uid alpha, beta;

	world(state, &alpha, &beta);
	fake_connect(&agent, NULL, 0);
	AWAIT(seen.done || fake_closed(&agent));
	if (fake_closed(&agent))
		fail_msg("the stream ended: %s", agent.why.msg);
	assert_true(seen.done);
	assert_int_equal(seen.grants, GRANTS);
	fake_free(&agent);
}

static void sync__lets_answers_and_revocations_go_ahead(void **state)
{
	struct ros2_uid alpha, beta;
	struct sf *f = world(state, &alpha, &beta);
	Ros2__V1__RevokeReply *r = NULL;
	unsigned n;

	seen.may_hold = true;
	fake_connect(&agent, NULL, 0);
	assert_true(AWAIT(seen.holds == 1));
	fake_ask_grant(&agent, 7, &beta, "spiffe://" TD "/tenant/beta/trainer");
	assert_true(AWAIT(sf_audit_count_action(f, "grant.issue", "beta") == 1));
	rpc_stream_resume(agent.s);
	assert_true(AWAIT(seen.holds == 2));
	assert_int_equal(seen.replies, 1);
	/* What is left of alpha's grants is not sent once they are revoked. */
	assert_int_equal(sf_revoke(f, KIND(TENANT), "alpha", 1, &r, NULL), 0);
	ros2__v1__revoke_reply__free_unpacked(r, NULL);
	rpc_stream_resume(agent.s);
	/* With nothing left, that may be said before the order, which waits for its commit. */
	AWAIT(seen.done && seen.revokes);
	n = seen.grants;
	assert_true(seen.done);
	assert_int_equal(seen.revokes, 1);
	/* A turn of them leaves (1024), and then no more than the reader takes. */
	assert_true(seen.replies_after < GRANTS / 10);
	assert_true(seen.revokes_after < GRANTS / 10);
	assert_true(n < GRANTS / 10);
	fake_free(&agent);
}

/* A document takes them all away in one moment: the agent hears of it, and its stream, which is its
 * other tenants', too, stands. */
static void sync__of_many_grants_that_a_document_ends_keeps_the_stream(void **state)
{
	struct ros2_uid alpha, beta;
	struct sf *f = world(state, &alpha, &beta);

	sf_apply(f, sf_agent1);
	fake_connect(&agent, NULL, 0);
	assert_true(AWAIT(seen.done || fake_closed(&agent)));
	assert_int_equal(seen.grants, GRANTS);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	AWAIT(seen.removals > GRANTS || fake_closed(&agent));
	if (fake_closed(&agent))
		fail_msg("after %u the stream ended: %s", seen.removals, agent.why.msg);
	/* And the tenant. */
	assert_int_equal(seen.removals, GRANTS + 1);
	fake_free(&agent);
}

/* A controller on a backup gives out numbers again that its agents have seen: what it wants there
 * in a lower version may be taken away before that has left. */
static void sync__takes_back_what_came_in_higher_versions_as_it_came(void **state)
{
	Ros2__V1__HaveObject *have = calloc(GRANTS, sizeof(*have));
	uint8_t(*uids)[ROS2_UID_LEN + 1] = calloc(GRANTS, sizeof(*uids));
	struct ros2_uid alpha, beta;
	struct sf *f = world(state, &alpha, &beta);

	sf_apply(f, sf_agent1);
	seen.may_hold = true;
	seen.has = VERSION + 1000;
	for (int i = 0; i < GRANTS; i++) {
		ros2__v1__have_object__init(&have[i]);
		snprintf((char *)uids[i], sizeof(uids[i]), "%016d", i + 1);
		have[i].kind = KIND(GRANT);
		have[i].uid = (ProtobufCBinaryData){ROS2_UID_LEN, uids[i]};
		have[i].version = seen.has;
	}
	fake_connect(&agent, have, GRANTS);
	assert_true(AWAIT(seen.holds == 1 || fake_closed(&agent)));
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-1"));
	rpc_stream_resume(agent.s);
	AWAIT(seen.removals > GRANTS || fake_closed(&agent));
	if (fake_closed(&agent))
		fail_msg("after %u the stream ended: %s", seen.removals, agent.why.msg);
	assert_int_equal(seen.removals, GRANTS + 1);
	assert_true(seen.grants < GRANTS);
	assert_int_equal(seen.too_low, 0);
	fake_free(&agent);
	free(have);
	free(uids);
}

/* What the stream does not take at once is sent when it has read that: else it would be ended for
 * it, each time it comes. */
static void sync__of_many_revocations_is_paced_and_goes_ahead(void **state)
{
	struct sf *f = *state;
	struct ros2_uid a;

	memset(&seen, 0, sizeof(seen));
	sf_apply(f, sf_engine);
	sf_apply(f, sf_agent0);
	sf_apply(f, sf_tenant("alpha", "1h", "10m", "dpu-0"));
	fake_enrol(f, &agent, "dpu-0");
	agent.sees = counts;
	a = uid_of(f, KIND(AGENT), "dpu-0");
	sf_stop(f);
	fill_owed(f, &a);
	sf_start(f);
	fake_connect(&agent, NULL, 0);
	fake_beat(&agent, NULL, 0);
	AWAIT(seen.done || fake_closed(&agent));
	if (fake_closed(&agent))
		fail_msg("after %u the stream ended: %s", seen.revokes, agent.why.msg);
	assert_int_equal(seen.revokes, OWED);
	assert_int_equal(seen.gives_after, OWED);
	assert_int_equal(seen.done_after, OWED);
	/* A beat of before is answered with nothing. */
	fake_beat(&agent, NULL, 0);
	assert_true(AWAIT(seen.contact_after));
	assert_int_equal(seen.contact_after, OWED);
	fake_free(&agent);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, sf_setup, sf_teardown)
	const struct CMUnitTest tests[] = {
		T(sync__of_many_grants_is_paced_by_the_reader),
		T(sync__lets_answers_and_revocations_go_ahead),
		T(sync__of_many_grants_that_a_document_ends_keeps_the_stream),
		T(sync__takes_back_what_came_in_higher_versions_as_it_came),
		T(sync__of_many_revocations_is_paced_and_goes_ahead),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
