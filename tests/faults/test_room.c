/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session for which our agent gives an idle grant of another principal back, because its tenant
 * has no place left: with the link cut at each message on that way, before it leaves and when it
 * has arrived; once, and again and again. The session comes about all the same; both sides come to
 * the same grants; each grant that was given back was ended once, by one record, and its place is
 * free: each principal of the tenant has its session afterwards.
 */
#include "controller/ctl.h"
#include "proto/audit/audit.h"
#include "tests/controller/service_audit.h"
#include "tests/faults/deaf.h"
#include "tests/faults/pair.h"

#define PLACES   CTL_GRANTS_PER_SLOT /* sessions.max is 1 */
#define JOBS     (2 * PLACES + 1)    /* more than both sides keep a grant for */
#define ENDS_MAX 1000

/* ---- many principals ---- */

static struct rpc_channel *jobs[JOBS];

static const char *principal_of(int job)
{
	static char name[64];

	snprintf(name, sizeof(name), "spiffe://" TD "/tenant/alpha/job-%d", job);
	return name;
}

static void apply_jobs(struct pair *p)
{
	char text[2000];
	size_t n = 0;

	n += (size_t)snprintf(text, sizeof(text),
	                      "apiVersion: ros2/v1\nkind: Tenant\nmetadata:\n  name: alpha\n"
	                      "spec:\n  principals:\n");
	for (int i = 0; i < JOBS; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "    - %s\n", principal_of(i));
	snprintf(text + n, sizeof(text) - n,
	         "  placement:\n    agents: [dpu-0]\n"
	         "  namespaces:\n    - name: data\n      engine: ram\n      path: alpha\n"
	         "      access: rw\n"
	         "  memory:\n    registeredBytes: 64MiB\n    regions: 4\n"
	         "    access: [read, write]\n"
	         "  rkeys: {leaseTtl: 1s}\n"
	         "  times: {grantLifetime: 1h, contactLimit: 10m}\n  sessions: {max: 1}\n");
	sf_apply(p->f, text);
}

static struct rpc_channel *channel_of(struct pair *p, int job)
{
	char name[32], id[64], ca[512], crt[512], key[512];
	struct rpc_channel_opts o = {.name = name,
	                             .target = p->target[CUT_TENANT],
	                             .ca_path = ca,
	                             .cert_path = crt,
	                             .key_path = key,
	                             .server_id = "spiffe://" TD "/agent/",
	                             .server_id_is_prefix = true};
	struct rpc_channel *c = NULL;

	snprintf(name, sizeof(name), "job-%d", job);
	snprintf(id, sizeof(id), "tenant/alpha/%s", name);
	sf_cert("tenant", name, id);
	snprintf(ca, sizeof(ca), "%s", sf_path("controller/infra-bundle.pem"));
	snprintf(crt, sizeof(crt), "%s", sf_path("%s/tls.crt", name));
	snprintf(key, sizeof(key), "%s", sf_path("%s/tls.key", name));
	assert_int_equal(rpc_channel_new(&o, &c, NULL), 0);
	return c;
}

static bool is_in_force(struct pair *p, void *arg)
{
	struct pair_rollout r;

	pair_rollout(p, &r);
	return r.applied == r.version;
}

static int setup(void **state)
{
	struct pair *p;

	if (pair_setup_running(state))
		return -1;
	p = *state;
	apply_jobs(p);
	assert_true(pair_until(p, is_in_force, NULL));
	for (int i = 0; i < JOBS; i++)
		jobs[i] = channel_of(p, i);
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < JOBS; i++)
		rpc_channel_free(TAKE_PTR(jobs[i]));
	return pair_teardown(state);
}

static bool is_settled(struct pair *p, void *arg)
{
	return pair_is_quiet(p) && pair_grants_agree(p);
}

static bool has_grant(const Ros2__V1__GetReply *r, int job)
{
	for (size_t i = 0; i < r->n_grants; i++)
		if (!strcmp(r->grants[i]->principal, principal_of(job)))
			return true;
	return false;
}

/* How many grants of alpha live, and the first principal that has none. One whose answer was lost
 * may have two: what is idle is given back when it is needed. */
static unsigned live(struct pair *p, int *ret_without)
{
	Ros2__V1__GetReply *r = sf_get(p->f, ROS2__V1__OBJECT_KIND__OBJECT_KIND_TENANT, "alpha");
	unsigned n = (unsigned)r->n_grants;

	*ret_without = 0;
	while (*ret_without < JOBS && has_grant(r, *ret_without))
		++*ret_without;
	ros2__v1__get_reply__free_unpacked(r, NULL);
	return n;
}

/* ---- what the log says ---- */

struct ends {
	unsigned n;
	char uid[ENDS_MAX][ROS2_UID_STR_LEN];
};

static void add_end(struct pair *p, struct ends *e, const Ros2__V1__StoredRecord *row)
{
	Ros2__V1__AuditRecord *rec = NULL;

	assert_int_equal(audit_record_parse(row->record.data, row->record.len, &rec, NULL), 0);
	for (unsigned i = 0; i < e->n; i++)
		if (!strcmp(e->uid[i], rec->object_uid))
			pair_wrong(p, "grant %s ended twice", rec->object_uid);
	assert_true(e->n < ENDS_MAX);
	snprintf(e->uid[e->n++], ROS2_UID_STR_LEN, "%s", rec->object_uid);
	ros2__v1__audit_record__free_unpacked(rec, NULL);
}

/* How many grants were given back; none twice. */
static unsigned given_back(struct pair *p)
{
	Ros2__V1__AuditQueryRequest q = ROS2__V1__AUDIT_QUERY_REQUEST__INIT;
	AUTO_FREE struct ends *e = calloc(1, sizeof(*e));
	struct rpc_reader *r = NULL;
	ProtobufCMessage *m;
	int rc;

	q.action = (char *)"grant.release";
	q.limit = ENDS_MAX;
	assert_int_equal(
		rpc_reader_open(p->f->admin, &ros2_v1_audit_query, &q.base, 10000, &r, NULL), 0);
	while ((rc = rpc_reader_next(r, 5000, &m, NULL)) == 0) {
		add_end(p, e, ros2_v1_audit_query_out(m)->record);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	assert_int_equal(rc, -ENODATA);
	rpc_reader_close(r);
	return e->n;
}

/* Who was issued one has it, or it was given back; and no more live than there are places. */
static void check_grants(struct pair *p, const char *where)
{
	unsigned issued = sf_audit_count_action(p->f, "grant.issue", "alpha");
	unsigned ended = given_back(p), now, other;
	int without;

	now = live(p, &without);
	other = sf_audit_count_action(p->f, "grant.expire", "alpha") +
	        sf_audit_count_action(p->f, "grant.revoke", "alpha");
	if (now > PLACES || issued != now + ended || other)
		pair_wrong(p, "%u were issued, %u given back, %u live, %u ended otherwise", issued,
		           ended, now, other);
	pair_check(p, where);
}

/* ---- one session ---- */

struct opening {
	int job;
	pthread_t thread;
	_Atomic bool done;
	enum ros2_status status;
	struct ros2_uid session;
	struct ros2_err err;
};

/* The agent waits for a grant for a time only, and may be cut off for longer. */
static void *open_main(void *arg)
{
	struct opening *o = arg;

	do
		o->status = pair_open(jobs[o->job], &o->session, &o->err);
	while (o->status == ROS2_UNAVAILABLE);
	o->done = true;
	return NULL;
}

static void session_of(struct pair *p, int job, const char *where)
{
	struct opening o = {.job = job};

	open_main(&o);
	if (o.status)
		fail_msg("%s: job %d: %s: %s", where, job, ros2_status_to_str(o.status), o.err.msg);
	pair_close(jobs[job], &o.session);
}

/* All places are taken by grants that nobody uses; the principal that has none. */
static int fill(struct pair *p, const char *where)
{
	int without;

	while (live(p, &without) < PLACES)
		session_of(p, without, where);
	assert_in_range(without, 0, JOBS - 1);
	return without;
}

struct round {
	const struct cut *cut;
	struct opening o;
};

static bool has_cut(struct pair *p, void *arg)
{
	const struct round *r = arg;

	return cut_is_over(r->cut) || r->o.done;
}

static void one(struct pair *p, struct cut *c)
{
	struct round r = {.cut = c};
	char where[CUT_WHERE_MAX];

	cut_where(c, where);
	cut_off();
	r.o.job = fill(p, where);
	if (!pair_until(p, is_settled, NULL))
		fail_msg("%s: the two do not agree before it", where);
	cut_at(c);
	assert_int_equal(pthread_create(&r.o.thread, NULL, open_main, &r.o), 0);
	if (!pair_until(p, has_cut, &r))
		fail_msg("%s: not cut", where);
	if (!cut_fired())
		fail_msg("%s: it never came", where);
	cut_off();
	pthread_join(r.o.thread, NULL);
	if (r.o.status)
		fail_msg("%s: %s: %s", where, ros2_status_to_str(r.o.status), r.o.err.msg);
	pair_close(jobs[r.o.job], &r.o.session);
	if (!pair_until(p, is_settled, NULL))
		fail_msg("%s: the two do not agree after it was mended", where);
	check_grants(p, where);
}

/* @at: the request and its answer are the second ones where the grant has been given back. */
static void sweep(struct pair *p, const char *name, unsigned at)
{
	for (int kind = 0; kind < 4; kind++) {
		struct cut c = {.name = name,
		                .when = kind & 1 ? CUT_AFTER : CUT_BEFORE,
		                .for_good = kind & 2,
		                .at = at};

		one(p, &c);
	}
}

static void end(struct pair *p)
{
	cut_off();
	for (int i = 0; i < JOBS; i++)
		session_of(p, i, "afterwards");
	if (!pair_until(p, is_settled, NULL))
		fail_msg("the two do not agree at the end");
	check_grants(p, "at the end");
	pair_verify_log(p);
}

/* Each has one session and ends it; nobody has one when the next comes. */
static void session__is_not_refused_for_idle_grants_of_others(void **state)
{
	struct pair *p = *state;

	for (int i = 0; i < 2 * JOBS; i++)
		session_of(p, i % JOBS, "in turn");
	end(p);
}

static void give_back__cut_at_each_message_frees_the_place_once(void **state)
{
	struct pair *p = *state;

	sweep(p, "AgentMessage.grant_request", 1);
	sweep(p, "ControllerMessage.grant_reply", 1);
	sweep(p, "AgentMessage.grant_release", 1);
	sweep(p, "AgentMessage.grant_request", 2);
	sweep(p, "ControllerMessage.grant_reply", 2);
	end(p);
}

/* What the agent has given back and the controller did not hear takes a place, and is seen. */
static void control__place_that_stays_taken_is_noticed(void **state)
{
	struct pair *p = *state;
	struct opening o = {0};

	o.job = fill(p, "the control");
	assert_true(pair_until(p, is_settled, NULL));
	deaf_to_releases = true;
	open_main(&o);
	deaf_to_releases = false;
	assert_int_equal(o.status, ROS2_LIMIT);
	assert_false(pair_grants_agree(p));
	/* The next stream brings it back to the agent. */
	relay_cut(p->relay, CUT_LINK);
	assert_true(pair_until(p, is_settled, NULL));
	end(p);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(session__is_not_refused_for_idle_grants_of_others),
		T(give_back__cut_at_each_message_frees_the_place_once),
		T(control__place_that_stays_taken_is_noticed),
	};

	return cmocka_run_group_tests(tests, sf_group_setup, sf_group_teardown);
}
