/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows out of SQLite: everything at start (front connection), pages of the audit log and of grants
 * (reader connection). A page looks at a bounded number of rows, so that a read transaction never
 * holds up the compaction of the write-ahead log for long.
 */
#include "controller/store_sqlite_priv.h"
#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define SCAN_ROWS 5000 /* rows one page of an audit query looks at, at most */

/* ---- rows out ---- */

static struct ros2_uid col_uid(sqlite3_stmt *st, int i)
{
	struct ros2_uid u = {{0}};

	if (sqlite3_column_bytes(st, i) == ROS2_UID_LEN)
		memcpy(u.b, sqlite3_column_blob(st, i), ROS2_UID_LEN);
	return u;
}

void sqlite_col_bytes(sqlite3_stmt *st, int i, void *out, size_t n)
{
	memset(out, 0, n);
	if ((size_t)sqlite3_column_bytes(st, i) == n)
		memcpy(out, sqlite3_column_blob(st, i), n);
}

static const char *col_text(sqlite3_stmt *st, int i)
{
	const char *s = (const char *)sqlite3_column_text(st, i);

	return s ? s : "";
}

uint64_t sqlite_col_int(sqlite3_stmt *st, int i)
{
	return (uint64_t)sqlite3_column_int64(st, i);
}

static int row_object(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_object o = {
		.kind = (enum store_kind)sqlite_col_int(st, 0),
		.name = col_text(st, 1),
		.uid = col_uid(st, 2),
		.version = sqlite_col_int(st, 3),
		.created_unix_ns = sqlite_col_int(st, 4),
		.updated_unix_ns = sqlite_col_int(st, 5),
		.file = col_text(st, 6),
		.line = (uint32_t)sqlite_col_int(st, 7),
		.doc = col_text(st, 8),
		.image = sqlite3_column_blob(st, 9),
		.image_len = (size_t)sqlite3_column_bytes(st, 9),
		.revoked = sqlite_col_int(st, 10) != 0,
		.revoked_version = sqlite_col_int(st, 11),
		.state_reason = col_text(st, 12),
		.state_since_unix_ns = sqlite_col_int(st, 13),
	};

	return l->object ? l->object(l->arg, &o) : 0;
}

static int row_agent(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_agent a = {
		.uid = col_uid(st, 0),
		.name = col_text(st, 1),
		.enrolled = sqlite_col_int(st, 2) != 0,
		.isolated = sqlite_col_int(st, 3) != 0,
		.cert_serial = col_text(st, 6),
		.cert_not_after_unix_s = (int64_t)sqlite_col_int(st, 7),
		.enrolled_unix_ns = sqlite_col_int(st, 8),
		.isolated_reason = col_text(st, 9),
		.isolated_since_unix_ns = sqlite_col_int(st, 10),
	};

	sqlite_col_bytes(st, 5, a.prev_spki_sha256, sizeof(a.prev_spki_sha256));
	sqlite_col_bytes(st, 4, a.spki_sha256, sizeof(a.spki_sha256));
	return l->agent ? l->agent(l->arg, &a) : 0;
}

static void read_grant(sqlite3_stmt *st, struct store_grant *g)
{
	*g = (struct store_grant){
		.uid = col_uid(st, 0),
		.tenant_uid = col_uid(st, 1),
		.agent_uid = col_uid(st, 2),
		.principal = col_text(st, 3),
		.version = sqlite_col_int(st, 4),
		.max_keys = (uint32_t)sqlite_col_int(st, 5),
		.max_bytes = sqlite_col_int(st, 6),
		.access = (uint32_t)sqlite_col_int(st, 7),
		.lifetime_ms = sqlite_col_int(st, 8),
		.policy_version = sqlite_col_int(st, 9),
		.epoch_counter = sqlite_col_int(st, 10),
		.issued_unix_ns = sqlite_col_int(st, 11),
		.expires_unix_ns = sqlite_col_int(st, 12),
		.ended_unix_ns = sqlite_col_int(st, 13),
		.from_boottime_ns = sqlite_col_int(st, 15),
		.state = (enum store_grant_state)sqlite_col_int(st, 16),
	};
	sqlite_col_bytes(st, 14, g->from_boot_id, sizeof(g->from_boot_id));
}

static int row_grant(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_grant g;

	read_grant(st, &g);
	return l->grant ? l->grant(l->arg, &g) : 0;
}

static int row_revocation(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_revocation r = {
		.uid = col_uid(st, 0),
		.kind = (enum store_kind)sqlite_col_int(st, 1),
		.target_uid = col_uid(st, 2),
		.target_name = col_text(st, 3),
		.version = sqlite_col_int(st, 4),
		.created_unix_ns = sqlite_col_int(st, 5),
		.reason = col_text(st, 6),
	};

	return l->revocation ? l->revocation(l->arg, &r) : 0;
}

static int row_receipt(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_receipt r = {
		.revocation_uid = col_uid(st, 0),
		.agent_uid = col_uid(st, 1),
		.durable = sqlite_col_int(st, 2) != 0,
		.sessions = (uint32_t)sqlite_col_int(st, 3),
		.leases = (uint32_t)sqlite_col_int(st, 4),
		.draining = (uint32_t)sqlite_col_int(st, 5),
		.received_unix_ns = sqlite_col_int(st, 6),
	};

	return l->receipt ? l->receipt(l->arg, &r) : 0;
}

static int row_token(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_token t = {
		.agent_uid = col_uid(st, 1),
		.created_unix_s = sqlite_col_int(st, 2),
		.expires_unix_s = sqlite_col_int(st, 3),
		.used = sqlite_col_int(st, 4) != 0,
	};

	sqlite_col_bytes(st, 0, t.secret_sha256, sizeof(t.secret_sha256));
	sqlite_col_bytes(st, 5, t.used_spki, sizeof(t.used_spki));
	return l->token ? l->token(l->arg, &t) : 0;
}

static int row_origin(sqlite3_stmt *st, const struct store_loader *l)
{
	struct store_origin o = {
		.agent_uid = col_uid(st, 0),
		.incarnation = col_uid(st, 1),
		.seq = sqlite_col_int(st, 2),
		.updated_unix_ns = sqlite_col_int(st, 3),
	};

	return l->origin ? l->origin(l->arg, &o) : 0;
}

static void col_str(sqlite3_stmt *st, int i, char *out, size_t size)
{
	snprintf(out, size, "%s", col_text(st, i));
}

static int findings_of(sqlite3 *db, const struct ros2_uid *agent, struct probe_subject *s)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db,
	                            "SELECT property, result, seen FROM probe_findings"
	                            " WHERE agent_uid=? AND subject=?",
	                            -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_bind_blob(st, 1, agent->b, ROS2_UID_LEN, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(st, 2, s->name, -1, SQLITE_STATIC);
	while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
		uint64_t property = sqlite_col_int(st, 0), result = sqlite_col_int(st, 1);

		rc = SQLITE_OK;
		if (property >= PROBE_PROPERTIES || result > PROBE_NOT_SUPPORTED)
			continue;
		s->findings[property].result = (enum probe_result)result;
		col_str(st, 2, s->findings[property].seen, sizeof(s->findings[property].seen));
	}
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? 0 : -EIO;
}

static int row_probe(sqlite3_stmt *st, const struct store_loader *l)
{
	struct probe_subject s = {
		.tried_unix_ns = sqlite_col_int(st, 6),
		.revoke_p50_ns = (uint32_t)sqlite_col_int(st, 7),
		.revoke_p99_ns = (uint32_t)sqlite_col_int(st, 8),
		.key_bits = (uint32_t)sqlite_col_int(st, 9),
	};
	struct store_probe p = {.agent_uid = col_uid(st, 0), .subject = &s};
	int r;

	col_str(st, 1, s.name, sizeof(s.name));
	col_str(st, 2, s.transport, sizeof(s.transport));
	col_str(st, 3, s.device, sizeof(s.device));
	col_str(st, 4, s.firmware, sizeof(s.firmware));
	col_str(st, 5, s.kernel, sizeof(s.kernel));
	r = findings_of(sqlite3_db_handle(st), &p.agent_uid, &s);
	return r || !l->probe ? r : l->probe(l->arg, &p);
}

int sqlite_load(void *backend, const struct store_loader *l, struct ros2_err *err)
{
	static const struct {
		const char *sql;
		int (*row)(sqlite3_stmt *st, const struct store_loader *l);
	} tables[] = {
		{"SELECT * FROM objects ORDER BY kind, name", row_object},
		{"SELECT * FROM agents", row_agent},
		/* By uid, as they came; of the live ones only, however many ended ones are kept. */
		{"SELECT * FROM grants INDEXED BY grants_live WHERE state=1 ORDER BY uid",
	         row_grant},
		{"SELECT * FROM revocations WHERE uid IN (SELECT revocation_uid FROM receipts"
	         " WHERE durable=0)",
	         row_revocation},
		{"SELECT * FROM receipts WHERE revocation_uid IN (SELECT revocation_uid FROM"
	         " receipts WHERE durable=0)",
	         row_receipt},
		{"SELECT * FROM tokens", row_token},
		{"SELECT * FROM origins ORDER BY updated", row_origin},
		{"SELECT * FROM probes ORDER BY agent_uid, subject", row_probe},
	};
	struct backend *b = backend;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(tables) && !r; i++) {
		sqlite3_stmt *st = NULL;
		int rc = sqlite3_prepare_v2(b->db, tables[i].sql, -1, &st, NULL);

		while (rc == SQLITE_OK && !r) {
			int step = sqlite3_step(st);

			if (step == SQLITE_ROW)
				r = tables[i].row(st, l);
			else
				rc = step;
		}
		sqlite3_finalize(st);
		if (!r && rc != SQLITE_DONE)
			r = sqlite_say(b, b->db, rc, tables[i].sql, err);
		else if (r < 0 && err && !err->code)
			ros2_err_set(err, r, "%s: a row cannot be used (%s)", b->path,
			             tables[i].sql);
	}
	return r;
}

/* ---- reader thread ---- */

static bool prefix_match(const char *want, const char *have)
{
	size_t n = strlen(want);

	if (n && want[n - 1] == '*')
		return strncmp(want, have, n - 1) == 0;
	return strcmp(want, have) == 0;
}

/* Columns: seq, record, chain, time, action, actor, object_name, object_uid, result, note. */
static bool row_matches(sqlite3_stmt *st, const struct store_audit_query *q)
{
	uint64_t t = sqlite_col_int(st, 3);

	if (q->since_unix_ns && t < q->since_unix_ns)
		return false;
	if (q->until_unix_ns && t > q->until_unix_ns)
		return false;
	if (q->action[0] && !prefix_match(q->action, col_text(st, 4)))
		return false;
	if (q->actor[0] && strcmp(q->actor, col_text(st, 5)) != 0)
		return false;
	if (q->object[0] && strcmp(q->object, col_text(st, 6)) != 0 &&
	    strcmp(q->object, col_text(st, 7)) != 0)
		return false;
	return !q->result || q->result == sqlite_col_int(st, 8);
}

static int take_row(sqlite3_stmt *st, struct store_audit_row *row)
{
	size_t n = (size_t)sqlite3_column_bytes(st, 1);
	void *copy = malloc(n ? n : 1);

	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy, sqlite3_column_blob(st, 1), n);
	row->seq = sqlite_col_int(st, 0);
	row->record = copy;
	row->record_len = n;
	sqlite_col_bytes(st, 2, row->chain, sizeof(row->chain));
	if (sqlite3_column_type(st, 9) == SQLITE_NULL)
		return 0;
	row->note = strdup(col_text(st, 9));
	return row->note ? 0 : -ENOMEM;
}

static int fill_page(sqlite3_stmt *st, const struct store_audit_query *q,
                     struct store_audit_page *p, struct store_audit_row *rows, uint32_t limit)
{
	uint32_t looked = 0;
	int rc;

	p->end = true;
	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		uint64_t seq = sqlite_col_int(st, 0);

		if (p->n == limit || looked == SCAN_ROWS) {
			p->end = false;
			break;
		}
		looked++;
		p->next_seq = q->newest ? seq - 1 : seq + 1;
		if (row_matches(st, q) && take_row(st, &rows[p->n++]) < 0)
			return SQLITE_NOMEM;
	}
	return rc;
}

static int log_end(struct backend *b, uint64_t *ret, struct ros2_err *err)
{
	int64_t seq = sqlite_pragma_int(b->reader, "SELECT coalesce(max(seq),0) FROM audit");

	if (seq < 0)
		return sqlite_say(b, b->reader, sqlite3_extended_errcode(b->reader),
		                  "reading the end of the audit log", err);
	*ret = (uint64_t)seq;
	return 0;
}

int sqlite_page_audit(void *backend, const struct store_audit_query *q, struct store_audit_page *p,
                      struct ros2_err *err)
{
	static const char *const sql[2][2] = {
#define COLS                                                                                       \
	"SELECT seq,record,chain,time,action,actor,object_name,object_uid,result,note FROM audit " \
	"LEFT JOIN checkpoints ON size=seq "
		{COLS "WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
	         COLS "WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq DESC"},
		{COLS "WHERE tenant=?3 AND tenant<>'' AND seq BETWEEN ?1 AND ?2 ORDER BY seq",
	         COLS "WHERE tenant=?3 AND tenant<>'' AND seq BETWEEN ?1 AND ?2 ORDER BY seq DESC"},
	};
	struct backend *b = backend;
	uint32_t limit = MIN(q->limit ? q->limit : STORE_PAGE_MAX, STORE_PAGE_MAX);
	struct store_audit_row *rows = calloc(limit, sizeof(*rows));
	sqlite3_stmt *st = NULL;
	int rc;

	*p = (struct store_audit_page){.rows = rows, .next_seq = q->from_seq, .to_seq = q->to_seq};
	if (!rows)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	rc = p->to_seq ? 0 : log_end(b, &p->to_seq, err);
	if (rc < 0)
		return rc;
	rc = sqlite3_prepare_v2(b->reader, sql[q->tenant[0] != '\0'][q->newest], -1, &st, NULL);
	if (rc == SQLITE_OK) {
		sqlite3_bind_int64(st, 1, (sqlite3_int64)MIN(q->from_seq, (uint64_t)INT64_MAX));
		sqlite3_bind_int64(st, 2, (sqlite3_int64)MIN(p->to_seq, (uint64_t)INT64_MAX));
		if (q->tenant[0])
			sqlite3_bind_text(st, 3, q->tenant, -1, SQLITE_STATIC);
		rc = fill_page(st, q, p, rows, limit);
	}
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		rc = sqlite_say(b, b->reader, rc, "reading the audit log", err);
	else
		rc = 0;
	sqlite3_finalize(st);
	return rc;
}

#define GRANTS_FROM                                                                                \
	"SELECT grants.*, t.name, a.name FROM grants LEFT JOIN deleted_uids t ON t.uid=tenant_uid" \
	" LEFT JOIN deleted_uids a ON a.uid=agent_uid "

static bool grant_asked(const struct store_grant_query *q, const struct store_grant *g)
{
	return (ros2_uid_is_zero(&q->tenant_uid) || ros2_uid_eq(&q->tenant_uid, &g->tenant_uid)) &&
	       (ros2_uid_is_zero(&q->agent_uid) || ros2_uid_eq(&q->agent_uid, &g->agent_uid));
}

static int take_grants(sqlite3_stmt *st, const struct store_grant_query *q,
                       struct store_grants_page *p, uint32_t limit)
{
	uint32_t looked = 0;
	struct store_grant g;
	int rc;

	while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
		if (p->n == limit || looked++ == SCAN_ROWS) {
			p->more = true;
			break;
		}
		read_grant(st, &g);
		p->next = g.uid;
		if (!grant_asked(q, &g))
			continue;
		g.principal = strdup(g.principal);
		g.tenant_gone = strdup(col_text(st, 17));
		g.agent_gone = strdup(col_text(st, 18));
		p->v[p->n++] = g;
		if (!g.principal || !g.tenant_gone || !g.agent_gone)
			return SQLITE_NOMEM;
	}
	return rc;
}

int sqlite_page_grants(void *backend, const struct store_grant_query *q,
                       struct store_grants_page *p, struct ros2_err *err)
{
	struct backend *b = backend;
	uint32_t limit = q->one ? 1 : MIN(q->limit ? q->limit : STORE_PAGE_MAX, STORE_PAGE_MAX);
	sqlite3_stmt *st = NULL;
	int rc;

	p->v = calloc(limit, sizeof(*p->v));
	if (!p->v)
		return ros2_err_set(err, -ENOMEM, "out of memory");
	rc = sqlite3_prepare_v2(b->reader,
	                        q->one ? GRANTS_FROM "WHERE grants.uid=?1"
	                               : GRANTS_FROM
	                                "WHERE state<>1 AND grants.uid>?1 ORDER BY grants.uid",
	                        -1, &st, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_blob(st, 1, q->after.b, ROS2_UID_LEN, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = take_grants(st, q, p, limit);
	rc = rc == SQLITE_ROW || rc == SQLITE_DONE
	             ? 0
	             : sqlite_say(b, b->reader, rc, "reading grants", err);
	sqlite3_finalize(st);
	return rc;
}
