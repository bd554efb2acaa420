/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the SQLite backend: store_sqlite.c (opening, writing), store_sqlite_read.c (rows out),
 * store_sqlite_anew.c (what a start finds), store_sqlite_names.c (whether the files are the ones
 * that were opened), store_sqlite_pair.c (and belong together), store_sqlite_wal.c (the log that
 * commits write). */
#ifndef ROS2_CONTROLLER_STORE_SQLITE_PRIV_H
#define ROS2_CONTROLLER_STORE_SQLITE_PRIV_H

#include "controller/store_priv.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

struct sqlite3;
struct sqlite3_stmt;

#define STATEMENTS(X)                                                                              \
	X(BEGIN, "BEGIN IMMEDIATE")                                                                \
	X(COMMIT, "COMMIT")                                                                        \
	X(META_PUT, "INSERT OR REPLACE INTO meta VALUES(?,?)")                                     \
	X(META_DELETE, "DELETE FROM meta WHERE key=?")                                             \
	X(META_GET, "SELECT value FROM meta WHERE key=?")                                          \
	X(OBJECT_PUT, "INSERT OR REPLACE INTO objects VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?)")        \
	X(OBJECT_DELETE, "DELETE FROM objects WHERE kind=? AND name=?")                            \
	X(UID_USED, "INSERT OR IGNORE INTO deleted_uids VALUES(?,?,?,?)")                          \
	X(AGENT_PUT, "INSERT OR REPLACE INTO agents VALUES(?,?,?,?,?,?,?,?,?,?,?)")                \
	X(AGENT_DELETE, "DELETE FROM agents WHERE uid=?")                                          \
	X(GRANT_PUT, "INSERT OR REPLACE INTO grants VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")    \
	X(GRANT_END, "UPDATE grants SET state=?, ended=? WHERE uid=? AND state=1")                 \
	X(GRANTS_END_TENANT, "UPDATE grants SET state=?, ended=? WHERE tenant_uid=? AND state=1"   \
	                     " AND version<=?")                                                    \
	X(GRANTS_END_AGENT, "UPDATE grants SET state=?, ended=? WHERE agent_uid=? AND state=1"     \
	                    " AND version<=?")                                                     \
	X(REVOCATION_PUT, "INSERT OR REPLACE INTO revocations VALUES(?,?,?,?,?,?,?)")              \
	X(REVOCATION_GET, "SELECT 1 FROM revocations WHERE uid=?")                                 \
	X(RECEIPT_PUT, "INSERT OR REPLACE INTO receipts VALUES(?,?,?,?,?,?,?)")                    \
	X(RECEIPT_OWE, "INSERT OR IGNORE INTO receipts VALUES(?,?,?,?,?,?,?)")                     \
	X(RECEIPT_DELETE, "DELETE FROM receipts WHERE revocation_uid=? AND agent_uid=?"            \
	                  " AND durable=0")                                                        \
	X(RECEIPTS_OF_AGENT, "DELETE FROM receipts WHERE agent_uid=? AND durable=0")               \
	X(TOKEN_PUT, "INSERT OR REPLACE INTO tokens VALUES(?,?,?,?,?,?)")                          \
	X(TOKEN_DELETE, "DELETE FROM tokens WHERE secret=?")                                       \
	X(TOKENS_OF_AGENT, "DELETE FROM tokens WHERE agent_uid=?")                                 \
	X(ORIGIN_PUT, "INSERT OR REPLACE INTO origins VALUES(?,?,?,?)")                            \
	X(ORIGIN_DELETE, "DELETE FROM origins WHERE agent_uid=? AND incarnation=?")                \
	X(PROBE_PUT, "INSERT OR REPLACE INTO probes VALUES(?,?,?,?,?,?,?,?,?,?)")                  \
	X(FINDING_PUT, "INSERT OR REPLACE INTO probe_findings VALUES(?,?,?,?,?)")                  \
	X(PROBES_OF_AGENT, "DELETE FROM probes WHERE agent_uid=?")                                 \
	X(FINDINGS_OF_AGENT, "DELETE FROM probe_findings WHERE agent_uid=?")                       \
	X(AUDIT_PUT, "INSERT INTO audit VALUES(?,?,?,?,?,?,?,?,?,?)")                              \
	X(AUDIT_LAST, "SELECT seq, chain FROM audit ORDER BY seq DESC LIMIT 1")                    \
	X(NOTE_LAST, "SELECT size FROM checkpoints ORDER BY size DESC LIMIT 1")                    \
	X(NOTE_PUT, "INSERT OR REPLACE INTO checkpoints VALUES(?,?)")                              \
	X(TENANT_PUT, "INSERT OR REPLACE INTO tenant_heads VALUES(?,?,?)")                         \
	X(TENANT_GET, "SELECT seq, prev FROM tenant_heads WHERE uid=?")                            \
	X(PRUNE_GRANTS, "DELETE FROM grants WHERE uid IN (SELECT uid FROM grants WHERE state <> 1" \
	                " AND ended < ? LIMIT ?)")                                                 \
	X(PRUNE_TOKENS, "DELETE FROM tokens WHERE secret IN (SELECT secret FROM tokens WHERE"      \
	                " expires < ? LIMIT ?)")

enum statement {
#define X(name, sql) ST_##name,
	STATEMENTS(X)
#undef X
		ST_COUNT
};

/* Who writes: a commit, from BEGIN to its end (front thread), or who begins the log anew
 * (compaction thread), which waits for the one under way and is waited for by the next. */
struct wal_turn {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t patience_ns;   /* of a commit; immutable */
	bool commits, restarts; /* under lock */
};

#define SQLITE_FILES 3 /* the database, its log and the log's index */

struct backend {
	char path[4096];
	struct {
		dev_t dev;
		ino_t ino;
	} files[SQLITE_FILES];             /* as they were opened; so many: */
	unsigned n_files;                  /* immutable when it is open */
	bool names_told;                   /* that one is another's; front thread */
	struct sqlite3 *db;                /* writer: front thread */
	struct sqlite3 *reader;            /* reader thread */
	struct sqlite3 *compactor;         /* compaction thread */
	struct sqlite3_stmt *st[ST_COUNT]; /* front thread */
	struct wal_turn turn;
	_Atomic uint64_t wal_pages;
	_Atomic uint64_t wal_moved; /* at the last compaction; the log may have begun anew since */
	uint64_t page_size;
};

/* Sets the words and gives the errno. */
int sqlite_say(struct backend *b, struct sqlite3 *db, int rc, const char *what,
               struct ros2_err *err);
/* The first column of the first row; -1 when there is none. */
int64_t sqlite_pragma_int(struct sqlite3 *db, const char *sql);
void sqlite_col_bytes(struct sqlite3_stmt *st, int i, void *out, size_t n);
uint64_t sqlite_col_int(struct sqlite3_stmt *st, int i);

/* -ENOSPC only where SQLite has undone, or will undo at rollback, what it had begun. */
int sqlite_map_error(struct sqlite3 *db, int rc);

void sqlite_turn_init(struct wal_turn *t);
void sqlite_turn_fini(struct wal_turn *t);
/* Waits for its turn; -EBUSY with words: not within patience_ns (10 s). */
int sqlite_turn_commit(struct wal_turn *t, struct ros2_err *err);
void sqlite_turn_committed(struct wal_turn *t);
void sqlite_wal_start(struct backend *b); /* when it is open */
int sqlite_compact(void *backend, bool hard);
uint64_t sqlite_wal_bytes(void *backend);
uint64_t sqlite_wal_left(void *backend);

/* The first @n of them, those that are not taken yet: each as soon as SQLite has it open. */
int sqlite_names_take(struct backend *b, unsigned n, struct ros2_err *err);
/* Likewise, up to the first that is not there. */
int sqlite_names_take_there(struct backend *b, struct ros2_err *err);
/* -EIO with words: a start would not find what was committed. Where the database is another's our
 * log does not stay beside it. Front thread. */
int sqlite_names_check(struct backend *b, struct ros2_err *err);
/* Likewise, before SQLite closes them; the words go to the log, unless they were given before. */
void sqlite_names_last(struct backend *b);

/* -EBADMSG: there is a log, and no database, or an empty one. Before SQLite opens it. */
int sqlite_pair_missing(const struct backend *b, struct ros2_err *err);
/* Before SQLite reads: -EBADMSG with words where the log is another database's, that was here. */
int sqlite_pair_check(const struct backend *b, struct ros2_err *err);
/* For the next start; when both are open, and before anything is committed. */
void sqlite_pair_note(const struct backend *b);

/* Before anything is committed: what is in the files is on the disk. */
int sqlite_write_anew(struct backend *b, struct ros2_err *err);
int sqlite_load(void *backend, const struct store_loader *l, struct ros2_err *err);
int sqlite_page_audit(void *backend, const struct store_audit_query *q, struct store_audit_page *p,
                      struct ros2_err *err);
int sqlite_page_grants(void *backend, const struct store_grant_query *q,
                       struct store_grants_page *p, struct ros2_err *err);
#endif
