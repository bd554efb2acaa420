/* SPDX-License-Identifier: Apache-2.0 */
/* The store: group commit, state and audit together, reload, refusals at open, a full disk. */
#include "tests/controller/store_fixture.h"
#include "controller/store_priv.h"
#include "controller/test_switches.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <stdio.h>
#include <string.h>

struct ctl_test_switches ctl_test_switches; /* of store_read.c: CMakeLists.txt */

static int setup(void **state)
{
	struct fixture *f = malloc(sizeof(*f));

	fixture_init(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	fixture_fini(*state);
	free(*state);
	return 0;
}

static struct fixture *opened(void **state)
{
	struct ros2_err err = ROS2_ERR_INIT;

	if (fixture_open(*state, &err))
		fail_msg("%s", err.msg);
	return *state;
}

static void store__commits_what_waits_in_one_transaction(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid tenant = ros2_uid_new();
	struct wait w = {0};
	struct store_stats st;

	for (int i = 0; i < 2000; i++) {
		struct ros2_uid u = ros2_uid_new();

		fixture_submit(f, &w, fixture_grant(&u, &tenant));
	}
	fixture_wait(f, &w);
	assert_int_equal(w.failed, 0);
	store_stats(f->store, &st);
	assert_int_equal(st.transactions, 2000);
	assert_true(st.commits < 500);
	assert_int_equal(st.audit_records, 2000);
}

static void store__keeps_state_and_audit_over_a_restart(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new();
	struct ros2_uid lineage = store_epoch(f->store)->lineage;
	struct store_txn *t = fixture_grant(&u, &tenant);
	struct verdict v;

	assert_int_equal(store_epoch(f->store)->counter, 1);
	store_txn_set_revision(t, 41);
	assert_int_equal(fixture_commit(f, t), 0);
	fixture_close(f);
	opened(state);
	assert_int_equal(store_epoch(f->store)->counter, 2);
	assert_true(ros2_uid_eq(&lineage, &store_epoch(f->store)->lineage));
	assert_int_equal(store_revision(f->store), 41);
	assert_int_equal(f->grants, 1);
	assert_true(ros2_uid_eq(&f->last_grant.uid, &u));
	assert_true(f->last_grant.max_bytes == UINT64_MAX);
	u = ros2_uid_new();
	assert_int_equal(fixture_commit(f, fixture_grant(&u, &tenant)), 0);
	fixture_close(f);
	fixture_verify(f, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.records, 2);
	assert_true(v.checkpoints >= 1);
}

static void fill_object(struct store_txn *t, enum store_mut_kind kind, const struct ros2_uid *u)
{
	struct store_mut *m = store_txn_add(t, kind);

	m->object = (struct store_object){.kind = STORE_TENANT,
	                                  .name = "alpha",
	                                  .uid = *u,
	                                  .version = 5,
	                                  .doc = "kind: Tenant\n",
	                                  .image = store_txn_mem(t, "IMAGE", 5),
	                                  .image_len = 5};
}

static void store__stores_every_kind_of_row(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid u = ros2_uid_new(), a = ros2_uid_new();
	struct store_txn *t = store_txn_new();

	fill_object(t, STORE_OBJECT_PUT, &u);
	store_txn_add(t, STORE_AGENT_PUT)->agent = (struct store_agent){.uid = a, .name = "dpu-0"};
	store_txn_add(t, STORE_REVOCATION_PUT)->revocation =
		(struct store_revocation){.uid = u, .kind = STORE_TENANT, .target_uid = u};
	store_txn_add(t, STORE_RECEIPT_PUT)->receipt =
		(struct store_receipt){.revocation_uid = u, .agent_uid = a};
	store_txn_add(t, STORE_TOKEN_PUT)->token =
		(struct store_token){.agent_uid = a, .expires_unix_s = UINT32_MAX};
	store_txn_add(t, STORE_ORIGIN_PUT)->origin =
		(struct store_origin){.agent_uid = a, .incarnation = u, .seq = 9};
	assert_int_equal(fixture_commit(f, t), 0);
	fixture_close(f);
	opened(state);
	assert_int_equal(f->objects, 1);
	assert_int_equal(f->agents, 1);
	assert_int_equal(f->revocations, 1);
	assert_int_equal(f->receipts, 1);
	assert_int_equal(f->tokens, 1);
	assert_int_equal(f->origins, 1);
	t = store_txn_new();
	fill_object(t, STORE_OBJECT_DELETE, &u);
	store_txn_add(t, STORE_AGENT_DELETE)->agent.uid = a;
	store_txn_add(t, STORE_ORIGIN_DELETE)->origin =
		(struct store_origin){.agent_uid = a, .incarnation = u};
	assert_int_equal(fixture_commit(f, t), 0);
	fixture_close(f);
	opened(state);
	assert_int_equal(f->objects + f->agents + f->tokens + f->origins + f->revocations, 0);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM deleted_uids"), 1);
}

static void store__ends_grants_of_a_tenant_and_of_an_agent(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid ta = ros2_uid_new(), tb = ros2_uid_new(), u;
	struct store_txn *t;

	for (int i = 0; i < 4; i++) {
		u = ros2_uid_new();
		assert_int_equal(fixture_commit(f, fixture_grant(&u, i % 2 ? &ta : &tb)), 0);
	}
	t = store_txn_new();
	store_txn_add(t, STORE_GRANTS_END_TENANT)->grant = (struct store_grant){
		.tenant_uid = ta, .state = STORE_GRANT_REVOKED, .ended_unix_ns = 1};
	assert_int_equal(fixture_commit(f, t), 0);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM grants WHERE state=1"), 2);
	t = store_txn_new();
	store_txn_add(t, STORE_GRANTS_END_AGENT)->grant = (struct store_grant){
		.agent_uid = {{7}}, .state = STORE_GRANT_REVOKED, .ended_unix_ns = 1};
	assert_int_equal(fixture_commit(f, t), 0);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM grants WHERE state=1"), 0);
}

static void store__refuses_a_newer_schema_and_changes_nothing(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_err err = ROS2_ERR_INIT;

	fixture_close(f);
	fixture_sql(f, "PRAGMA user_version=99");
	assert_int_equal(fixture_open(f, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.msg, "schema 99"));
	assert_non_null(strstr(err.msg, "restore a backup"));
	assert_int_equal(fixture_sql(f, "PRAGMA user_version"), 99);
}

/* docs/decisions/0018-probe.md */
static void store__of_schema_1_is_brought_to_the_next_with_what_is_in_it(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_err err = ROS2_ERR_INIT;
	struct ros2_uid u = ros2_uid_new(), t = ros2_uid_new();

	assert_int_equal(fixture_commit(f, fixture_grant(&u, &t)), 0);
	fixture_close(f);
	fixture_sql(f, "DROP TABLE probes");
	fixture_sql(f, "DROP TABLE probe_findings");
	fixture_sql(f, "PRAGMA user_version=1");
	assert_int_equal(fixture_open(f, &err), 0);
	assert_int_equal(fixture_sql(f, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM probes"), 0);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM grants"), 1);
}

static void store__refuses_a_database_of_another_program(void **state)
{
	struct fixture *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;

	fixture_sql(f, "CREATE TABLE x(y)");
	assert_int_equal(fixture_open(f, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "another program"));
}

static void store__refuses_a_file_that_is_not_a_database(void **state)
{
	struct fixture *f = *state;
	struct ros2_err err = ROS2_ERR_INIT;
	char path[128], junk[8192];

	memset(junk, 'x', sizeof(junk));
	fixture_path(f, "ros2.db", path);
	assert_int_equal(fsx_write_atomic(path, junk, sizeof(junk), 0600, NULL), 0);
	assert_int_equal(fixture_open(f, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "not a database of ros2-controller"));
}

static void store__refuses_another_trust_domain(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_err err = ROS2_ERR_INIT;

	fixture_close(f);
	f->opts.trust_domain = "other.test";
	assert_int_equal(fixture_open(f, &err), -EXDEV);
	assert_non_null(strstr(err.msg, "ros2.test"));
	f->opts.trust_domain = "ros2.test";
	opened(state);
	/* The refused start took no epoch. */
	assert_int_equal(store_epoch(f->store)->counter, 2);
}

static void store__refuses_a_locked_directory(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_err err = ROS2_ERR_INIT;
	struct store *second = NULL;

	assert_int_equal(store_open(&f->opts, &second, &err), -EBUSY);
	assert_true(strlen(err.msg) > 0);
}

static void store__refuses_a_log_that_was_cut(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid tenant = ros2_uid_new(), u = ros2_uid_new();
	struct ros2_err err = ROS2_ERR_INIT;

	assert_int_equal(fixture_commit(f, fixture_grant(&u, &tenant)), 0);
	u = ros2_uid_new();
	assert_int_equal(fixture_commit(f, fixture_grant(&u, &tenant)), 0);
	fixture_close(f);
	fixture_sql(f, "DELETE FROM audit WHERE seq=2");
	assert_int_equal(fixture_open(f, &err), -EBADMSG);
	assert_non_null(strstr(err.msg, "audit log"));
}

static void on_fatal(void *arg, const struct ros2_err *why)
{
	fail_msg("store failed: %s", why->msg);
}

/* Fills the database up to its bound: every answer is 0 or -ENOSPC, and what was answered -ENOSPC
 * is absent, state and audit. */
static void store__says_no_space_and_applies_nothing_of_it(void **state)
{
	struct fixture *f = *state;
	struct ros2_uid tenant = ros2_uid_new();
	unsigned ok = 0, full = 0;
	struct store_stats st;
	struct verdict v;

	f->opts.max_pages = 120;
	f->opts.on_fatal = on_fatal;
	opened(state);
	for (int i = 0; i < 40; i++) {
		struct wait w = {0};

		for (int k = 0; k < 50; k++) {
			struct ros2_uid u = ros2_uid_new();

			fixture_submit(f, &w, fixture_grant(&u, &tenant));
		}
		fixture_wait(f, &w);
		assert_true(w.last.rc == 0 || w.last.rc == -ENOSPC);
		assert_false(w.last.record_pending);
		ok += w.due - w.failed;
		full += w.failed;
	}
	assert_true(ok > 100 && full > 100);
	store_stats(f->store, &st);
	assert_true(st.full);
	assert_false(st.reserve_used);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM grants"), ok);
	assert_int_equal(fixture_sql(f, "SELECT count(*) FROM audit"), ok);
	fixture_close(f);
	fixture_verify(f, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.records, ok);
}

static void nothing_waits_any_more(struct fixture *f)
{
	struct store_stats st;

	assert_true(AWAIT((store_stats(f->store, &st), !st.record_pending)));
}

static void store__keeps_revocations_that_find_no_space_and_records_them_later(void **state)
{
	struct fixture *f = *state;
	struct ros2_uid tenant = ros2_uid_new(), u;
	struct store_stats st;
	struct wait w = {0};
	char path[128];

	f->opts.max_pages = 120;
	f->opts.on_fatal = on_fatal;
	opened(state);
	for (int i = 0; i < 2000; i++) {
		u = ros2_uid_new();
		fixture_submit(f, &w, fixture_grant(&u, &tenant));
	}
	fixture_wait(f, &w);
	assert_true(w.failed > 0);
	w = (struct wait){0};
	for (int i = 0; i < 50; i++) {
		struct store_txn *t;

		u = ros2_uid_new();
		t = fixture_grant(&u, &tenant);
		store_txn_set_shrinks(t);
		fixture_submit(f, &w, t);
	}
	fixture_wait(f, &w);
	assert_true(w.pending > 0);
	assert_int_equal(w.pending, w.failed);
	store_stats(f->store, &st);
	assert_true(st.record_pending > 0);
	assert_true(st.reserve_used);
	fixture_path(f, "reserve", path);
	assert_int_not_equal(access(path, F_OK), 0);
	/* Space comes back: pages are freed inside the file. */
	fixture_sql(f, "DELETE FROM grants");
	nothing_waits_any_more(f);
	assert_true(fixture_sql(f, "SELECT count(*) FROM grants") >= w.pending);
}

struct page {
	uint64_t seqs[STORE_PAGE_MAX], next;
	size_t n;
	bool end;
	_Atomic bool ready;
};

static void on_page(void *arg, const struct store_audit_page *p)
{
	struct page *out = arg;

	out->n = p->n;
	for (size_t i = 0; i < p->n; i++)
		out->seqs[i] = p->rows[i].seq;
	out->next = p->next_seq;
	out->end = p->end;
	atomic_store(&out->ready, true);
}

static void ask(struct fixture *f, const struct store_audit_query *q, struct page *out)
{
	memset(out, 0, sizeof(*out));
	assert_int_equal(store_read_audit(f->store, q, on_page, out), 0);
	assert_true(AWAIT(atomic_load(&out->ready)));
}

static void store__answers_queries_in_pages(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid alpha = ros2_uid_new(), u;
	struct store_audit_query q = {.limit = 4};
	struct page p;

	for (int i = 0; i < 10; i++) {
		struct store_txn *t = store_txn_new();
		struct store_draft *d = store_txn_audit(t);

		u = ros2_uid_new();
		d->action = i % 2 ? "grant.issue" : "grant.renew";
		d->actor = "system";
		d->object_name = store_txn_fmt(t, "o%d", i);
		d->object_uid = store_txn_uid(t, &u);
		d->result = i == 7 ? STORE_AUDIT_DENIED : STORE_AUDIT_OK;
		if (i >= 5) {
			d->tenant = "alpha";
			d->tenant_uid = alpha;
		}
		assert_int_equal(fixture_commit(f, t), 0);
	}
	ask(f, &q, &p);
	assert_int_equal(p.n, 4);
	assert_false(p.end);
	assert_int_equal(p.next, 5);
	q.limit = 100;
	q.newest = true;
	ask(f, &q, &p);
	assert_int_equal(p.n, 10);
	assert_true(p.end);
	assert_int_equal(p.seqs[0], 10);
	strcpy(q.tenant, "alpha");
	strcpy(q.action, "grant.*");
	ask(f, &q, &p);
	assert_int_equal(p.n, 5);
	strcpy(q.action, "grant.issue");
	q.result = STORE_AUDIT_DENIED;
	ask(f, &q, &p);
	assert_int_equal(p.n, 1);
	assert_int_equal(p.seqs[0], 8);
	q = (struct store_audit_query){.object = "o3"};
	ask(f, &q, &p);
	assert_int_equal(p.n, 1);
	q = (struct store_audit_query){.from_seq = UINT64_MAX, .to_seq = UINT64_MAX};
	ask(f, &q, &p);
	assert_int_equal(p.n, 0);
	assert_true(p.end);
}

/* Who has it keeps the reader at the page that it reads. */
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint begun, told;

int __real_sqlite_page_grants(void *backend, const struct store_grant_query *q,
                              struct store_grants_page *p, struct ros2_err *err);
int __wrap_sqlite_page_grants(void *backend, const struct store_grant_query *q,
                              struct store_grants_page *p, struct ros2_err *err);
int __wrap_sqlite_page_grants(void *backend, const struct store_grant_query *q,
                              struct store_grants_page *p, struct ros2_err *err)
{
	begun++;
	pthread_mutex_lock(&reading);
	pthread_mutex_unlock(&reading);
	return __real_sqlite_page_grants(backend, q, p, err);
}

static void on_grants(void *arg, int rc, const struct store_grant *g, size_t n,
                      const struct ros2_uid *more)
{
	told += rc == 0;
}

/* How many are taken behind the one that is read, of at most so many; *ret_rc: of the last. */
static unsigned pages_that_wait(struct fixture *f, unsigned most, int *ret_rc)
{
	static const struct store_grant_query q;
	unsigned n = 0;

	begun = told = 0;
	pthread_mutex_lock(&reading);
	assert_int_equal(store_read_grants(f->store, &q, on_grants, NULL), 0);
	assert_true(AWAIT(begun == 1));
	while (n < most && !(*ret_rc = store_read_grants(f->store, &q, on_grants, NULL)))
		n++;
	pthread_mutex_unlock(&reading);
	assert_true(AWAIT(told == n + 1));
	return n;
}

static void store__has_a_number_of_pages_that_wait_to_be_read(void **state)
{
	struct fixture *f = opened(state);
	int rc;

	for (int i = 0; i < 2; i++) {
		assert_int_equal(pages_that_wait(f, 2 * STORE_READS_MAX, &rc), STORE_READS_MAX);
		assert_int_equal(rc, -EBUSY);
	}
}

static void control__without_that_number_all_wait(void **state)
{
	struct fixture *f = opened(state);
	int rc;

	ctl_test_switches.no_page_max = true;
	assert_int_equal(pages_that_wait(f, 2 * STORE_READS_MAX, &rc), 2 * STORE_READS_MAX);
	ctl_test_switches.no_page_max = false;
}

static void store__cuts_what_a_peer_can_make_too_long(void **state)
{
	struct fixture *f = opened(state);
	struct store_txn *t = store_txn_new();
	struct store_draft *d = store_txn_audit(t);
	char *longs = malloc(100001);
	struct verdict v;

	memset(longs, 'x', 100000);
	longs[100000] = '\0';
	d->action = "session.open";
	d->reason = store_txn_str(t, longs);
	d->object_name = store_txn_str(t, longs);
	for (int i = 0; i < 40; i++)
		store_draft_detail(t, d, "key", longs);
	free(longs);
	assert_int_equal(fixture_commit(f, t), 0);
	fixture_close(f);
	fixture_verify(f, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.records, 1);
}

/* Words that were cut in a character, or never were text, must not make a log that no verifier
 * takes. */
static void store__records_are_utf8_whatever_they_were_made_of(void **state)
{
	static const char *const words[] = {"cut \xe2\x82", "\xff\xfe", "\xc0\x80",
	                                    "a\x80"
	                                    "b",
	                                    "gr\xc3\xbc\xc3\x9f"};
	struct fixture *f = opened(state);
	struct verdict v;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		struct store_txn *t = store_txn_new();
		struct store_draft *d = store_txn_audit(t);

		d->action = "session.open";
		d->reason = store_txn_str(t, words[i]);
		d->object_name = store_txn_str(t, words[i]);
		store_draft_detail(t, d, "key", words[i]);
		assert_int_equal(fixture_commit(f, t), 0);
	}
	fixture_close(f);
	fixture_verify(f, &v);
	assert_int_equal(v.rc, 0);
	assert_int_equal(v.records, ARRAY_SIZE(words));
}

static void store__catches_up_with_grants_that_ended_long_ago(void **state)
{
	struct fixture *f = *state;

	f->opts.checkpoint_ms = 20;
	opened(state);
	fixture_close(f);
	fixture_sql(f,
	            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<9000)"
	            " INSERT INTO grants SELECT randomblob(16),zeroblob(16),zeroblob(16),'p',1,1,1,"
	            "1,1,1,1,1,1,1,zeroblob(16),1,2 FROM n");
	opened(state);
	assert_true(AWAIT(fixture_sql(f, "SELECT count(*) FROM grants") == 0));
}

/* The size of a file of the data directory; 0 when there is none. */
static int64_t size_of(const struct fixture *f, const char *name)
{
	char path[128];
	struct stat st;

	fixture_path(f, name, path);
	return stat(path, &st) < 0 ? 0 : st.st_size;
}

static void store__moves_the_write_ahead_log_into_the_database(void **state)
{
	struct fixture *f = opened(state);
	struct ros2_uid tenant = ros2_uid_new();

	for (int round = 0; round < 60; round++) {
		struct wait w = {0};

		for (int i = 0; i < 500; i++) {
			struct ros2_uid u = ros2_uid_new();

			fixture_submit(f, &w, fixture_grant(&u, &tenant));
		}
		fixture_wait(f, &w);
		assert_int_equal(w.failed, 0);
	}
	assert_true(AWAIT(size_of(f, "ros2.db") >= 4 << 20));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(store__commits_what_waits_in_one_transaction),
		T(store__keeps_state_and_audit_over_a_restart),
		T(store__stores_every_kind_of_row),
		T(store__ends_grants_of_a_tenant_and_of_an_agent),
		T(store__refuses_a_newer_schema_and_changes_nothing),
		T(store__of_schema_1_is_brought_to_the_next_with_what_is_in_it),
		T(store__refuses_a_database_of_another_program),
		T(store__refuses_a_file_that_is_not_a_database),
		T(store__refuses_another_trust_domain),
		T(store__refuses_a_locked_directory),
		T(store__refuses_a_log_that_was_cut),
		T(store__says_no_space_and_applies_nothing_of_it),
		T(store__keeps_revocations_that_find_no_space_and_records_them_later),
		T(store__answers_queries_in_pages),
		T(store__has_a_number_of_pages_that_wait_to_be_read),
		T(control__without_that_number_all_wait),
		T(store__cuts_what_a_peer_can_make_too_long),
		T(store__records_are_utf8_whatever_they_were_made_of),
		T(store__moves_the_write_ahead_log_into_the_database),
		cmocka_unit_test_setup_teardown(store__catches_up_with_grants_that_ended_long_ago,
	                                        setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
