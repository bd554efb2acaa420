/* SPDX-License-Identifier: Apache-2.0 */
/* The store's fixture. The loop has a thread of its own; the test thread submits and waits. */
#include "tests/controller/store_fixture.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/log.h"
#include "proto/audit/audit.h"
#include "tests/await.h"
#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fixture_init(struct fixture *f)
{
	struct loop_opts lo = {.name = "test"};
	uint8_t pub[ED25519_PUB_LEN];

	memset(f, 0, sizeof(*f));
	log_set_level(LOG_LEVEL_ERROR + 1);
	strcpy(f->dir, "/tmp/ros2-store-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(loop_new(&lo, &f->loop), 0);
	assert_int_equal(crypto_sign_key_new(&f->key, NULL), 0);
	assert_int_equal(loop_thread_start(f->loop), 0);
	crypto_sign_key_public(f->key, pub);
	assert_int_equal(audit_vkey_format("ros2.test/audit", pub, f->vkey), 0);
	f->opts = (struct store_opts){
		.dir = f->dir,
		.trust_domain = "ros2.test",
		.loop = f->loop,
		.audit_key = f->key,
		.audit_origin = "ros2.test/audit",
		.checkpoint_ms = 50,
		.reserve_bytes = 65536,
		.arg = f,
	};
}

void fixture_fini(struct fixture *f)
{
	struct dirent *e;
	char path[128];
	DIR *d;

	fixture_close(f);
	loop_stop(f->loop);
	loop_thread_join(f->loop);
	loop_free(f->loop);
	crypto_sign_key_free(f->key);
	d = opendir(f->dir);
	while (d && (e = readdir(d))) {
		fixture_path(f, e->d_name, path);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(f->dir);
}

void fixture_path(const struct fixture *f, const char *name, char out[128])
{
	snprintf(out, 128, "%s/%.60s", f->dir, name);
}

#define COUNT(member, type)                                                                        \
	static int on_##member(void *arg, const struct type *row)                                  \
	{                                                                                          \
		((struct fixture *)arg)->member##s++;                                              \
		return 0;                                                                          \
	}
COUNT(object, store_object)
COUNT(agent, store_agent)
COUNT(revocation, store_revocation)
COUNT(receipt, store_receipt)
COUNT(token, store_token)
COUNT(origin, store_origin)

static int on_grant(void *arg, const struct store_grant *g)
{
	struct fixture *f = arg;

	f->grants++;
	f->last_grant = *g;
	f->last_grant.principal = NULL;
	return 0;
}

static int on_note(void *arg, const void *p, size_t n, int slot)
{
	struct fixture *f = arg;

	f->notes++;
	memcpy(f->last_note, p, sizeof(f->last_note));
	return 0;
}

int fixture_open(struct fixture *f, struct ros2_err *err)
{
	struct store_loader l = {.object = on_object,
	                         .agent = on_agent,
	                         .grant = on_grant,
	                         .revocation = on_revocation,
	                         .receipt = on_receipt,
	                         .token = on_token,
	                         .origin = on_origin,
	                         .note = on_note,
	                         .arg = f};
	int r = store_open(&f->opts, &f->store, err);

	f->objects = f->agents = f->grants = f->revocations = f->receipts = f->tokens = 0;
	f->origins = f->notes = 0;
	if (!r)
		r = store_load(f->store, &l, err);
	if (!r)
		r = store_start(f->store, err);
	return r;
}

static void close_on_loop(void *arg)
{
	store_close(arg);
}

void fixture_close(struct fixture *f)
{
	loop_call(f->loop, close_on_loop, f->store);
	f->store = NULL;
}

struct store_txn *fixture_grant(const struct ros2_uid *uid, const struct ros2_uid *tenant)
{
	struct store_txn *t = store_txn_new();
	struct store_mut *m = store_txn_add(t, STORE_GRANT_PUT);
	struct store_draft *d = store_txn_audit(t);

	m->grant = (struct store_grant){
		.uid = *uid,
		.tenant_uid = *tenant,
		.agent_uid = {{7}},
		.principal = store_txn_str(t, "spiffe://ros2.test/tenant/alpha/x"),
		.version = 3,
		.max_keys = 10,
		.max_bytes = UINT64_MAX,
		.lifetime_ms = 3600000,
		.issued_unix_ns = clock_unix_ns(),
		.from_boottime_ns = 77,
		.state = STORE_GRANT_LIVE,
	};
	d->action = "grant.issue";
	d->actor = "system";
	d->tenant = "alpha";
	d->tenant_uid = *tenant;
	d->object_uid = store_txn_uid(t, uid);
	return t;
}

static void on_done(void *arg, const struct store_result *r)
{
	struct wait *w = arg;

	w->failed += r->rc != 0;
	w->pending += r->record_pending;
	w->last = *r;
	atomic_fetch_add(&w->done, 1);
}

void fixture_submit(struct fixture *f, struct wait *w, struct store_txn *t)
{
	w->due++;
	assert_int_equal(store_submit(f->store, t, on_done, w, NULL), 0);
}

void fixture_wait(struct fixture *f, struct wait *w)
{
	AWAIT(atomic_load(&w->done) >= w->due);
	assert_int_equal(atomic_load(&w->done), w->due);
}

int fixture_commit(struct fixture *f, struct store_txn *t)
{
	struct wait w = {0};

	fixture_submit(f, &w, t);
	fixture_wait(f, &w);
	return w.last.rc;
}

static sqlite3 *look(const struct fixture *f)
{
	char path[128];
	sqlite3 *db = NULL;

	fixture_path(f, "ros2.db", path);
	assert_int_equal(
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
		SQLITE_OK);
	return db;
}

int64_t fixture_sql(const struct fixture *f, const char *sql)
{
	sqlite3 *db = look(f);
	sqlite3_stmt *st = NULL;
	int64_t v = -1;
	int rc;

	/* The store may be writing, or trying to. */
	sqlite3_busy_timeout(db, AWAIT_MS);
	rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	else if (rc != SQLITE_DONE && rc != SQLITE_CORRUPT)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_finalize(st);
	sqlite3_close(db);
	return v;
}

static int feed_records(sqlite3 *db, struct audit_verifier *v, struct verdict *out)
{
	sqlite3_stmt *st = NULL;
	int r = 0;

	sqlite3_prepare_v2(db,
	                   "SELECT a.seq, a.record, a.chain, c.note FROM audit a LEFT JOIN"
	                   " checkpoints c ON c.size=a.seq ORDER BY a.seq",
	                   -1, &st, NULL);
	while (!r && sqlite3_step(st) == SQLITE_ROW) {
		const char *note = (const char *)sqlite3_column_text(st, 3);

		r = audit_verifier_record(
			v, (uint64_t)sqlite3_column_int64(st, 0), sqlite3_column_blob(st, 1),
			(size_t)sqlite3_column_bytes(st, 1), sqlite3_column_blob(st, 2), &out->err);
		if (!r && note)
			r = audit_verifier_checkpoint(v, note, strlen(note), &out->err);
	}
	sqlite3_finalize(st);
	return r;
}

void fixture_verify(const struct fixture *f, struct verdict *v)
{
	struct audit_verifier *verifier;
	struct audit_verdict result;
	sqlite3 *db = look(f);

	memset(v, 0, sizeof(*v));
	assert_int_equal(audit_verifier_new(f->vkey, &verifier, NULL), 0);
	v->rc = feed_records(db, verifier, v);
	audit_verifier_result(verifier, &result);
	v->records = result.records;
	v->checkpoints = result.checkpoints;
	audit_verifier_free(verifier);
	sqlite3_close(db);
}

void fixture_remove(const struct fixture *f, const char *name)
{
	char path[128];

	fixture_path(f, name, path);
	assert_int_equal(unlink(path), 0);
}

bool fixture_has(const struct fixture *f, const char *name)
{
	char path[128];

	fixture_path(f, name, path);
	return access(path, F_OK) == 0;
}

int fixture_rename(const struct fixture *f, const char *from, const char *to)
{
	char a[128], b[128];

	fixture_path(f, from, a);
	fixture_path(f, to, b);
	return rename(a, b);
}

void fixture_copy(const struct fixture *f, const char *from, const char *to)
{
	char a[128], b[128];
	void *p;
	size_t n;

	fixture_path(f, from, a);
	fixture_path(f, to, b);
	assert_int_equal(fsx_read_file(a, SIZE_MAX / 2, &p, &n, NULL), 0);
	assert_int_equal(fsx_write_atomic(b, p, n, 0600, NULL), 0);
	free(p);
}
