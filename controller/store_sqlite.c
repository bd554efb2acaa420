/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's rows in SQLite: WAL, synchronous=FULL, one writer connection, one reader, one for
 * checkpoints of the WAL. SQLite is known in store_sqlite*.c only. It never starts a
 * thread, never retries, and turns SQLite's errors into -ENOSPC (nothing was changed), -EBADMSG
 * (damaged) and -EIO. Invariants: (1) the file is ours (application_id) and of a schema that is
 * known before anything is written; (2) automatic WAL checkpoints are off: a commit never pays for
 * one. The schema is told in docs/decisions/0008-store-schema.md.
 */
#include "controller/store_sqlite_priv.h"
#include "common/clock.h"
#include "common/fsx.h"
#include "common/util.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define APPLICATION_ID   0x524f5332 /* "ROS2" */
#define BUSY_MS          10000      /* a lock of another process, at the start */
#define BEGIN_MS         100        /* and later: the front tries again as long as it will */
#define WAL_SIZE_LIMIT   (64 << 20)
#define AUDIT_COLUMN_MAX 256

static const char schema_1[] =
	"CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE objects(kind INTEGER NOT NULL, name TEXT NOT NULL, uid BLOB NOT NULL UNIQUE,"
	" version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,"
	" file TEXT NOT NULL, line INTEGER NOT NULL, doc TEXT NOT NULL, image BLOB,"
	" revoked INTEGER NOT NULL, revoked_version INTEGER NOT NULL, state_reason TEXT NOT NULL,"
	" state_since INTEGER NOT NULL, PRIMARY KEY(kind, name)) WITHOUT ROWID;"
	"CREATE TABLE deleted_uids(uid BLOB PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL,"
	" time INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE agents(uid BLOB PRIMARY KEY, name TEXT NOT NULL, enrolled INTEGER NOT NULL,"
	" isolated INTEGER NOT NULL, spki BLOB NOT NULL, prev_spki BLOB NOT NULL, serial TEXT NOT "
	"NULL,"
	" not_after INTEGER NOT NULL, enrolled_time INTEGER NOT NULL,"
	" isolated_reason TEXT NOT NULL, isolated_since INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE grants(uid BLOB PRIMARY KEY, tenant_uid BLOB NOT NULL,"
	" agent_uid BLOB NOT NULL, principal TEXT NOT NULL, version INTEGER NOT NULL,"
	" max_keys INTEGER NOT NULL, max_bytes INTEGER NOT NULL, access INTEGER NOT NULL,"
	" lifetime_ms INTEGER NOT NULL, policy_version INTEGER NOT NULL, epoch INTEGER NOT NULL,"
	" issued INTEGER NOT NULL, expires INTEGER NOT NULL, ended INTEGER NOT NULL,"
	" boot_id BLOB NOT NULL, boottime INTEGER NOT NULL, state INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE INDEX grants_ended ON grants(ended) WHERE state <> 1;"
	"CREATE INDEX grants_live ON grants(tenant_uid, agent_uid) WHERE state = 1;"
	"CREATE TABLE revocations(uid BLOB PRIMARY KEY, kind INTEGER NOT NULL,"
	" target_uid BLOB NOT NULL, target_name TEXT NOT NULL, version INTEGER NOT NULL,"
	" created INTEGER NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE receipts(revocation_uid BLOB NOT NULL, agent_uid BLOB NOT NULL,"
	" durable INTEGER NOT NULL, sessions INTEGER NOT NULL, leases INTEGER NOT NULL,"
	" draining INTEGER NOT NULL, received INTEGER NOT NULL,"
	" PRIMARY KEY(revocation_uid, agent_uid)) WITHOUT ROWID;"
	"CREATE INDEX receipts_missing ON receipts(revocation_uid) WHERE durable = 0;"
	"CREATE TABLE tokens(secret BLOB PRIMARY KEY, agent_uid BLOB NOT NULL,"
	" created INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL,"
	" used_spki BLOB NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE origins(agent_uid BLOB NOT NULL, incarnation BLOB NOT NULL,"
	" seq INTEGER NOT NULL, updated INTEGER NOT NULL,"
	" PRIMARY KEY(agent_uid, incarnation)) WITHOUT ROWID;"
	"CREATE TABLE audit(seq INTEGER PRIMARY KEY, time INTEGER NOT NULL, tenant TEXT NOT NULL,"
	" action TEXT NOT NULL, actor TEXT NOT NULL, object_name TEXT NOT NULL,"
	" object_uid TEXT NOT NULL, result INTEGER NOT NULL, record BLOB NOT NULL,"
	" chain BLOB NOT NULL);"
	"CREATE INDEX audit_tenant ON audit(tenant, seq) WHERE tenant <> '';"
	"CREATE TABLE tenant_heads(uid BLOB PRIMARY KEY, seq INTEGER NOT NULL, prev BLOB NOT NULL)"
	" WITHOUT ROWID;"
	"CREATE TABLE checkpoints(size INTEGER PRIMARY KEY, note TEXT NOT NULL);";

/* docs/decisions/0018-probe.md */
static const char schema_2[] =
	"CREATE TABLE probes(agent_uid BLOB NOT NULL, subject TEXT NOT NULL, transport TEXT NOT "
	"NULL,"
	" device TEXT NOT NULL, firmware TEXT NOT NULL, kernel TEXT NOT NULL, tried INTEGER NOT "
	"NULL,"
	" revoke_p50 INTEGER NOT NULL, revoke_p99 INTEGER NOT NULL, key_bits INTEGER NOT NULL,"
	" PRIMARY KEY(agent_uid, subject)) WITHOUT ROWID;"
	"CREATE TABLE probe_findings(agent_uid BLOB NOT NULL, subject TEXT NOT NULL,"
	" property INTEGER NOT NULL, result INTEGER NOT NULL, seen TEXT NOT NULL,"
	" PRIMARY KEY(agent_uid, subject, property)) WITHOUT ROWID;";

/* A schema of version i becomes version i + 1 by the i-th text: in order, each in its own
 * transaction. Index 0 makes a new database. */
static const char *const migrations[STORE_SCHEMA_VERSION] = {schema_1, schema_2};

static const char *const sql_of[ST_COUNT] = {
#define X(name, sql) [ST_##name] = sql,
	STATEMENTS(X)
#undef X
};

int sqlite_map_error(sqlite3 *db, int rc)
{
	int sys = sqlite3_system_errno(db);

	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
	case SQLITE_PROTOCOL: /* a lock on the log's index, in vain a hundred times */
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_IOERR:
		if ((rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_SHMSIZE) &&
		    (sys == ENOSPC || sys == EDQUOT))
			return -ENOSPC;
		return -EIO;
	case SQLITE_CANTOPEN:
		return sys == ENOSPC || sys == EDQUOT ? -ENOSPC : -EIO;
	default:
		return -EIO;
	}
}

int sqlite_say(struct backend *b, sqlite3 *db, int rc, const char *what, struct ros2_err *err)
{
	return ros2_err_set(err, sqlite_map_error(db, rc), "%s: %s: %s", b->path, what,
	                    sqlite3_errmsg(db));
}

/* u: struct ros2_uid *, i: int64_t (uint64_t keeps its bits), t: text, b: blob as (pointer,
 * size_t).
 */
static int bind_all(sqlite3_stmt *st, const char *fmt, va_list ap)
{
	int rc = SQLITE_OK, i = 1;

	for (; *fmt && rc == SQLITE_OK; fmt++, i++) {
		if (*fmt == 'u') {
			rc = sqlite3_bind_blob(st, i, va_arg(ap, const struct ros2_uid *)->b,
			                       ROS2_UID_LEN, SQLITE_STATIC);
		} else if (*fmt == 'i') {
			rc = sqlite3_bind_int64(st, i, (sqlite3_int64)va_arg(ap, uint64_t));
		} else if (*fmt == 't') {
			const char *s = va_arg(ap, const char *);

			rc = sqlite3_bind_text(st, i, s ? s : "", -1, SQLITE_STATIC);
		} else {
			const void *p = va_arg(ap, const void *);
			size_t n = va_arg(ap, size_t);

			rc = p ? sqlite3_bind_blob64(st, i, p, n, SQLITE_STATIC)
			       : sqlite3_bind_null(st, i);
		}
	}
	return rc;
}

static sqlite3_stmt *statement(struct backend *b, enum statement id)
{
	if (!b->st[id])
		sqlite3_prepare_v3(b->db, sql_of[id], -1, SQLITE_PREPARE_PERSISTENT, &b->st[id],
		                   NULL);
	return b->st[id];
}

/* Binds and steps once: SQLITE_ROW or SQLITE_DONE, else -errno with words. The statement is reset
 * unless it has a row. */
static int step_first(struct backend *b, struct ros2_err *err, enum statement id, const char *fmt,
                      va_list ap)
{
	sqlite3_stmt *st = statement(b, id);
	int rc;

	if (!st)
		return sqlite_say(b, b->db, sqlite3_extended_errcode(b->db), sql_of[id], err);
	rc = bind_all(st, fmt, ap);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		return rc;
	if (rc != SQLITE_DONE)
		rc = sqlite_say(b, b->db, rc, sql_of[id], err);
	sqlite3_reset(st);
	return rc;
}

/* Runs a statement that gives no rows. */
static int run(struct backend *b, struct ros2_err *err, enum statement id, const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = step_first(b, err, id, fmt, ap);
	va_end(ap);
	if (rc == SQLITE_ROW) {
		rc = sqlite_say(b, b->db, SQLITE_ERROR, sql_of[id], err);
		sqlite3_reset(b->st[id]);
	}
	return rc == SQLITE_DONE ? 0 : rc;
}

/* Steps a query on the front connection: 0 with a row (the caller resets @ret), -ENOENT without. */
static int first_row(struct backend *b, struct ros2_err *err, sqlite3_stmt **ret, enum statement id,
                     const char *fmt, ...)
{
	va_list ap;
	int rc;

	va_start(ap, fmt);
	rc = step_first(b, err, id, fmt, ap);
	va_end(ap);
	if (rc == SQLITE_ROW) {
		*ret = b->st[id];
		return 0;
	}
	return rc == SQLITE_DONE ? -ENOENT : rc;
}

/* ---- open ---- */

static int exec(struct backend *b, sqlite3 *db, const char *sql, struct ros2_err *err)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK
	               ? 0
	               : sqlite_say(b, db, sqlite3_extended_errcode(db), "cannot set it up", err);
}

int64_t sqlite_pragma_int(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *st = NULL;
	int64_t v = -1;

	if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
	    sqlite3_step(st) == SQLITE_ROW)
		v = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	return v;
}

static int connect_db(struct backend *b, int flags, sqlite3 **ret, struct ros2_err *err)
{
	int rc = sqlite3_open_v2(b->path, ret, flags | SQLITE_OPEN_NOMUTEX, NULL);

	if (rc != SQLITE_OK)
		return *ret ? sqlite_say(b, *ret, sqlite3_extended_errcode(*ret), "cannot open",
		                         err)
		            : ros2_err_set(err, -ENOMEM, "%s: out of memory", b->path);
	sqlite3_extended_result_codes(*ret, 1);
	sqlite3_busy_timeout(*ret, BUSY_MS);
	return 0;
}

/* A lock of another process, a want of memory or an I/O error says nothing of what the file is. */
static int identity_int(struct backend *b, const char *sql, int64_t *ret, struct ros2_err *err)
{
	int r;

	*ret = sqlite_pragma_int(b->db, sql);
	if (*ret >= 0)
		return 0;
	r = sqlite_map_error(b->db, sqlite3_extended_errcode(b->db));
	if (r && r != -EBADMSG)
		return ros2_err_set(err, r, "%s: cannot read it: %s", b->path,
		                    sqlite3_errmsg(b->db));
	return ros2_err_set(err, -EBADMSG,
	                    "%s is not a database of ros2-controller (%s): restore a backup or "
	                    "choose another --data-dir",
	                    b->path, sqlite3_errmsg(b->db));
}

/* What is in the file, before anything is written into it. */
static int check_identity(struct backend *b, int64_t *ret_version, struct ros2_err *err)
{
	int64_t tables, app;
	int r = identity_int(b, "SELECT count(*) FROM sqlite_schema", &tables, err);

	if (!r)
		r = identity_int(b, "PRAGMA application_id", &app, err);
	if (!r)
		r = identity_int(b, "PRAGMA user_version", ret_version, err);
	if (r < 0)
		return r;
	if (tables == 0 && app == 0)
		return 0;
	if (app != APPLICATION_ID)
		return ros2_err_set(err, -EBADMSG,
		                    "%s is a SQLite database of another program (application id "
		                    "%#llx): choose another --data-dir",
		                    b->path, (unsigned long long)app);
	if (*ret_version > STORE_SCHEMA_VERSION)
		return ros2_err_set(
			err, -EPROTONOSUPPORT,
			"%s has schema %lld, this ros2-controller knows up to %d: use the "
			"newer version, or restore a backup made before the upgrade",
			b->path, (long long)*ret_version, STORE_SCHEMA_VERSION);
	return 0;
}

static int migrate(struct backend *b, int64_t from, struct ros2_err *err)
{
	char head[128];
	int r;

	for (int64_t v = from; v < STORE_SCHEMA_VERSION; v++) {
		snprintf(head, sizeof(head), "PRAGMA application_id=%d; PRAGMA user_version=%lld;",
		         APPLICATION_ID, (long long)v + 1);
		r = exec(b, b->db, "BEGIN EXCLUSIVE", err);
		if (!r)
			r = exec(b, b->db, migrations[v], err);
		if (!r)
			r = exec(b, b->db, head, err);
		if (!r)
			r = exec(b, b->db, "COMMIT", err);
		if (r < 0) {
			sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
			return ros2_err_prefix(err, "schema %lld to %lld", (long long)v,
			                       (long long)v + 1);
		}
	}
	return 0;
}

static void sqlite_close(void *backend)
{
	struct backend *b = backend;

	if (!b)
		return;
	sqlite_names_last(b);
	for (int i = 0; i < ST_COUNT; i++)
		sqlite3_finalize(b->st[i]);
	sqlite3_close(b->reader);
	sqlite3_close(b->compactor);
	sqlite3_close(b->db);
	sqlite_turn_fini(&b->turn);
	free(b);
}

/* A connection that has read nothing does not know of the WAL, nor has it open. */
static int read_something(struct backend *b, sqlite3 *db, struct ros2_err *err)
{
	if (sqlite_pragma_int(db, "SELECT count(*) FROM sqlite_schema") < 0)
		return sqlite_say(b, db, sqlite3_extended_errcode(db), "cannot read", err);
	return 0;
}

/* Its files, and what is in them. All of it takes seconds where there is much to write anew or to
 * migrate: the files that are looked for at the end are those that were opened. */
static int open_writer(struct backend *b, int64_t *ret_version, struct ros2_err *err)
{
	int r = sqlite_pair_missing(b, err);

	if (!r)
		r = connect_db(b, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &b->db, err);
	if (!r)
		r = sqlite_names_take(b, 1, err);
	if (!r)
		r = sqlite_pair_check(b, err);
	if (!r)
		r = check_identity(b, ret_version, err);
	if (!r) /* has read: what there is of a log SQLite has open */
		r = sqlite_names_take_there(b, err);
	if (!r)
		r = sqlite_write_anew(b, err);
	if (!r)
		r = exec(b, b->db,
		         "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
		         "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=-65536;"
		         "PRAGMA trusted_schema=OFF; PRAGMA temp_store=MEMORY;",
		         err);
	if (!r)
		r = read_something(b, b->db, err);
	if (!r)
		r = sqlite_names_take(b, SQLITE_FILES, err);
	if (!r) /* what is noted is believed by the next start */
		r = sqlite_names_check(b, err);
	if (!r)
		sqlite_pair_note(b);
	return r;
}

static int open_all(struct backend *b, const struct store_opts *o, struct ros2_err *err)
{
	char sql[96];
	int64_t version;
	int r = open_writer(b, &version, err);

	if (r < 0)
		return r;
	snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit=%d", WAL_SIZE_LIMIT);
	r = exec(b, b->db, sql, err);
	if (!r)
		r = migrate(b, version, err);
	if (!r && o->max_pages) {
		snprintf(sql, sizeof(sql), "PRAGMA max_page_count=%llu",
		         (unsigned long long)o->max_pages);
		r = exec(b, b->db, sql, err);
	}
	if (!r)
		r = connect_db(b, SQLITE_OPEN_READONLY, &b->reader, err);
	if (!r)
		r = connect_db(b, SQLITE_OPEN_READWRITE, &b->compactor, err);
	/* It would find nothing to move, for ever, and say so with success. */
	if (!r)
		r = read_something(b, b->compactor, err);
	if (r < 0)
		return r;
	b->page_size = (uint64_t)sqlite_pragma_int(b->db, "PRAGMA page_size");
	sqlite3_busy_timeout(b->db, BEGIN_MS);
	sqlite_wal_start(b);
	return sqlite_names_check(b, err);
}

static int sqlite_open(const struct store_opts *o, void **ret, struct ros2_err *err)
{
	struct backend *b = calloc(1, sizeof(*b));
	mode_t old;
	int r;

	if (!b)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	sqlite_turn_init(&b->turn);
	snprintf(b->path, sizeof(b->path), "%s/ros2.db", o->dir);
	old = umask(0077);
	r = open_all(b, o, err);
	umask(old);
	if (r < 0) {
		sqlite_close(b);
		return r;
	}
	*ret = b;
	return 0;
}

/* ---- rows in ---- */

static int sqlite_begin(void *backend, struct ros2_err *err)
{
	struct backend *b = backend;
	int r = sqlite_turn_commit(&b->turn, err);

	return r ? r : run(b, err, ST_BEGIN, "");
}

static void undo(struct backend *b)
{
	if (!sqlite3_get_autocommit(b->db))
		sqlite3_exec(b->db, "ROLLBACK", NULL, NULL, NULL);
}

static void sqlite_rollback(void *backend)
{
	struct backend *b = backend;

	undo(b);
	sqlite_turn_committed(&b->turn);
}

/* SQLite may be out of memory for the log's index when the frames of a commit are in the log, and
 * synced: what is refused then would be there after the next start. The next commit overwrites
 * them, so one is made, that leaves nothing behind; where that fails, too, nobody knows what a
 * start finds, and the store ends. */
static int take_back(struct backend *b, struct ros2_err *err)
{
	static const char name[] = "taken back";
	struct ros2_err why = ROS2_ERR_INIT;
	int r;

	undo(b);
	r = run(b, &why, ST_BEGIN, "");
	/* A page that is written: what leaves it as it is would not be (btreeOverwriteContent). */
	r = r ? r : run(b, &why, ST_META_PUT, "tb", name, name, sizeof(name));
	r = r ? r : run(b, &why, ST_META_DELETE, "t", name);
	r = r ? r : run(b, &why, ST_COMMIT, "");
	if (!r)
		return -ENOMEM;
	return ros2_err_set(err, -EIO, "a commit was refused, and cannot be taken back: %s",
	                    why.msg);
}

static int sqlite_commit(void *backend, struct ros2_err *err)
{
	struct backend *b = backend;
	int r = run(b, err, ST_COMMIT, "");

	if (!r)
		sqlite_turn_committed(&b->turn);
	else
		return r == -ENOMEM ? take_back(b, err) : r;
	return sqlite_names_check(b, err);
}

static int put_object(struct backend *b, const struct store_object *o, struct ros2_err *err)
{
	return run(b, err, ST_OBJECT_PUT, "ituiiititbiiti", (uint64_t)o->kind, o->name, &o->uid,
	           o->version, o->created_unix_ns, o->updated_unix_ns, o->file, (uint64_t)o->line,
	           o->doc, o->image, o->image_len, (uint64_t)o->revoked, o->revoked_version,
	           o->state_reason, o->state_since_unix_ns);
}

static int delete_object(struct backend *b, const struct store_object *o, struct ros2_err *err)
{
	int r = run(b, err, ST_OBJECT_DELETE, "it", (uint64_t)o->kind, o->name);

	if (!r)
		r = run(b, err, ST_UID_USED, "uiti", &o->uid, (uint64_t)o->kind, o->name,
		        o->updated_unix_ns);
	return r;
}

static int put_agent(struct backend *b, const struct store_agent *a, struct ros2_err *err)
{
	return run(b, err, ST_AGENT_PUT, "utiibbtiiti", &a->uid, a->name, (uint64_t)a->enrolled,
	           (uint64_t)a->isolated, a->spki_sha256, sizeof(a->spki_sha256),
	           a->prev_spki_sha256, sizeof(a->prev_spki_sha256), a->cert_serial,
	           (uint64_t)a->cert_not_after_unix_s, a->enrolled_unix_ns, a->isolated_reason,
	           a->isolated_since_unix_ns);
}

static int delete_probes(struct backend *b, const struct ros2_uid *agent, struct ros2_err *err)
{
	int r = run(b, err, ST_PROBES_OF_AGENT, "u", agent);

	return r ? r : run(b, err, ST_FINDINGS_OF_AGENT, "u", agent);
}

static int put_probe(struct backend *b, const struct store_probe *p, struct ros2_err *err)
{
	const struct probe_subject *s = p->subject;
	int r = run(b, err, ST_PROBE_PUT, "utttttiiii", &p->agent_uid, s->name, s->transport,
	            s->device, s->firmware, s->kernel, s->tried_unix_ns, (uint64_t)s->revoke_p50_ns,
	            (uint64_t)s->revoke_p99_ns, (uint64_t)s->key_bits);

	for (unsigned i = 0; i < PROBE_PROPERTIES && !r; i++)
		r = run(b, err, ST_FINDING_PUT, "utiit", &p->agent_uid, s->name, (uint64_t)i,
		        (uint64_t)s->findings[i].result, s->findings[i].seen);
	return r;
}

static int delete_agent(struct backend *b, const struct store_agent *a, struct ros2_err *err)
{
	int r = run(b, err, ST_AGENT_DELETE, "u", &a->uid);

	if (!r)
		r = run(b, err, ST_TOKENS_OF_AGENT, "u", &a->uid);
	if (!r)
		r = delete_probes(b, &a->uid, err);
	return r ? r : run(b, err, ST_RECEIPTS_OF_AGENT, "u", &a->uid);
}

static int put_grant(struct backend *b, const struct store_grant *g, struct ros2_err *err)
{
	return run(b, err, ST_GRANT_PUT, "uuutiiiiiiiiiibii", &g->uid, &g->tenant_uid,
	           &g->agent_uid, g->principal, g->version, (uint64_t)g->max_keys, g->max_bytes,
	           (uint64_t)g->access, g->lifetime_ms, g->policy_version, g->epoch_counter,
	           g->issued_unix_ns, g->expires_unix_ns, g->ended_unix_ns, g->from_boot_id,
	           sizeof(g->from_boot_id), g->from_boottime_ns, (uint64_t)g->state);
}

static int end_grants(struct backend *b, enum statement st, const struct store_grant *g,
                      const struct ros2_uid *which, struct ros2_err *err)
{
	return run(b, err, st, "iiui", (uint64_t)g->state, g->ended_unix_ns, which,
	           g->version ? g->version : (uint64_t)INT64_MAX);
}

static int put_revocation(struct backend *b, const struct store_revocation *v, struct ros2_err *err)
{
	return run(b, err, ST_REVOCATION_PUT, "uiutiit", &v->uid, (uint64_t)v->kind, &v->target_uid,
	           v->target_name, v->version, v->created_unix_ns, v->reason);
}

/* A revocation that is recorded late may find that the receipt for it was before it. */
static int put_receipt(struct backend *b, const struct store_receipt *p, struct ros2_err *err)
{
	bool owed = !p->durable && !p->received_unix_ns;
	enum statement st = owed ? ST_RECEIPT_OWE : ST_RECEIPT_PUT;

	return run(b, err, st, "uuiiiii", &p->revocation_uid, &p->agent_uid, (uint64_t)p->durable,
	           (uint64_t)p->sessions, (uint64_t)p->leases, (uint64_t)p->draining,
	           p->received_unix_ns);
}

static int put_token(struct backend *b, const struct store_token *t, struct ros2_err *err)
{
	return run(b, err, ST_TOKEN_PUT, "buiiib", t->secret_sha256, sizeof(t->secret_sha256),
	           &t->agent_uid, t->created_unix_s, t->expires_unix_s, (uint64_t)t->used,
	           t->used_spki, sizeof(t->used_spki));
}

static int sqlite_apply(void *backend, const struct store_mut *m, struct ros2_err *err)
{
	struct backend *b = backend;

	switch (m->kind) {
	case STORE_OBJECT_PUT:
		return put_object(b, &m->object, err);
	case STORE_OBJECT_DELETE:
		return delete_object(b, &m->object, err);
	case STORE_AGENT_PUT:
		return put_agent(b, &m->agent, err);
	case STORE_AGENT_DELETE:
		return delete_agent(b, &m->agent, err);
	case STORE_GRANT_PUT:
		return put_grant(b, &m->grant, err);
	case STORE_GRANT_END:
		return run(b, err, ST_GRANT_END, "iiu", (uint64_t)m->grant.state,
		           m->grant.ended_unix_ns, &m->grant.uid);
	case STORE_GRANTS_END_TENANT:
		return end_grants(b, ST_GRANTS_END_TENANT, &m->grant, &m->grant.tenant_uid, err);
	case STORE_GRANTS_END_AGENT:
		return end_grants(b, ST_GRANTS_END_AGENT, &m->grant, &m->grant.agent_uid, err);
	case STORE_REVOCATION_PUT:
		return put_revocation(b, &m->revocation, err);
	case STORE_RECEIPT_PUT:
		return put_receipt(b, &m->receipt, err);
	case STORE_RECEIPT_DELETE:
		return run(b, err, ST_RECEIPT_DELETE, "uu", &m->receipt.revocation_uid,
		           &m->receipt.agent_uid);
	case STORE_TOKEN_PUT:
		return put_token(b, &m->token, err);
	case STORE_TOKEN_DELETE:
		return run(b, err, ST_TOKEN_DELETE, "b", m->token.secret_sha256,
		           sizeof(m->token.secret_sha256));
	case STORE_ORIGIN_PUT:
		return run(b, err, ST_ORIGIN_PUT, "uuii", &m->origin.agent_uid,
		           &m->origin.incarnation, m->origin.seq, m->origin.updated_unix_ns);
	case STORE_ORIGIN_DELETE:
		return run(b, err, ST_ORIGIN_DELETE, "uu", &m->origin.agent_uid,
		           &m->origin.incarnation);
	case STORE_PROBE_PUT:
		return put_probe(b, &m->probe, err);
	case STORE_PROBES_DELETE:
		return delete_probes(b, &m->probe.agent_uid, err);
	}
	return ros2_err_set(err, -EINVAL, "mutation %d is not known", m->kind);
}

static int sqlite_audit(void *backend, const struct store_row_audit *r, struct ros2_err *err)
{
	const struct store_draft *d = r->draft;

	return run(backend, err, ST_AUDIT_PUT, "iitttttibb", r->seq, r->time_unix_ns, d->tenant,
	           d->action, d->actor, d->object_name, d->object_uid, (uint64_t)d->result,
	           r->record, r->record_len, (const void *)r->chain, (size_t)SHA256_LEN);
}

static int sqlite_note(void *backend, uint64_t size, const char *note, struct ros2_err *err)
{
	return run(backend, err, ST_NOTE_PUT, "it", size, note);
}

static int sqlite_meta_put(void *backend, const char *key, const void *p, size_t n,
                           struct ros2_err *err)
{
	return run(backend, err, ST_META_PUT, "tb", key, p, n);
}

static int sqlite_tenant_put(void *backend, const struct ros2_uid *u,
                             const struct store_tenant_head *h, struct ros2_err *err)
{
	return run(backend, err, ST_TENANT_PUT, "uib", u, h->seq, (const void *)h->prev,
	           sizeof(h->prev));
}

static int sqlite_meta_get(void *backend, const char *key, void **ret, size_t *ret_len,
                           struct ros2_err *err)
{
	sqlite3_stmt *st;
	size_t n;
	int r = first_row(backend, err, &st, ST_META_GET, "t", key);

	if (r < 0)
		return r;
	n = (size_t)sqlite3_column_bytes(st, 0);
	*ret = malloc(n + 1);
	if (*ret && n)
		memcpy(*ret, sqlite3_column_blob(st, 0), n);
	if (*ret)
		((char *)*ret)[n] = '\0';
	*ret_len = n;
	sqlite3_reset(st);
	return *ret ? 0 : ros2_err_set(err, -ENOMEM, "out of memory");
}

static int sqlite_tenant_get(void *backend, const struct ros2_uid *u, struct store_tenant_head *ret,
                             struct ros2_err *err)
{
	sqlite3_stmt *st;
	int r = first_row(backend, err, &st, ST_TENANT_GET, "u", u);

	if (r < 0)
		return r;
	ret->seq = sqlite_col_int(st, 0);
	sqlite_col_bytes(st, 1, ret->prev, sizeof(ret->prev));
	sqlite3_reset(st);
	return 0;
}

static int sqlite_revocation_get(void *backend, const struct ros2_uid *u, struct ros2_err *err)
{
	sqlite3_stmt *st;
	int r = first_row(backend, err, &st, ST_REVOCATION_GET, "u", u);

	if (!r)
		sqlite3_reset(st);
	return r;
}

static int sqlite_audit_last(void *backend, uint64_t *ret_seq, uint8_t chain[SHA256_LEN],
                             uint64_t *ret_note_size, struct ros2_err *err)
{
	sqlite3_stmt *st;
	int r = first_row(backend, err, &st, ST_AUDIT_LAST, "");

	*ret_seq = 0;
	*ret_note_size = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	*ret_seq = sqlite_col_int(st, 0);
	sqlite_col_bytes(st, 1, chain, SHA256_LEN);
	sqlite3_reset(st);
	r = first_row(backend, err, &st, ST_NOTE_LAST, "");
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	*ret_note_size = sqlite_col_int(st, 0);
	sqlite3_reset(st);
	return 0;
}

static int sqlite_prune(void *backend, uint64_t before_unix_ns, struct ros2_err *err)
{
	struct backend *b = backend;
	int r = run(b, err, ST_PRUNE_GRANTS, "ii", before_unix_ns, (uint64_t)STORE_PRUNE_ROWS);
	int n = sqlite3_changes(b->db);

	if (!r)
		r = run(b, err, ST_PRUNE_TOKENS, "ii", before_unix_ns / NS_PER_S,
		        (uint64_t)STORE_PRUNE_ROWS);
	return r ? r : n;
}

const struct store_ops store_sqlite_ops = {
	.open = sqlite_open,
	.close = sqlite_close,
	.load = sqlite_load,
	.begin = sqlite_begin,
	.apply = sqlite_apply,
	.audit = sqlite_audit,
	.note = sqlite_note,
	.meta_put = sqlite_meta_put,
	.tenant_put = sqlite_tenant_put,
	.commit = sqlite_commit,
	.rollback = sqlite_rollback,
	.meta_get = sqlite_meta_get,
	.tenant_get = sqlite_tenant_get,
	.revocation_get = sqlite_revocation_get,
	.audit_last = sqlite_audit_last,
	.prune = sqlite_prune,
	.page_audit = sqlite_page_audit,
	.page_grants = sqlite_page_grants,
	.compact = sqlite_compact,
	.wal_bytes = sqlite_wal_bytes,
	.wal_left = sqlite_wal_left,
};
