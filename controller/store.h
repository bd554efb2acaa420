/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the controller remembers: desired objects, agents' identities, grants, revocations, tokens
 * and the audit log, in one transactional store. The domain hands over transactions (typed
 * mutations and audit drafts); the store thread commits everything that waits in ONE transaction
 * (group commit) and posts the results back. Invariants: (1) state rows and the audit rows of a
 * transaction are in the same commit; (2) a result is posted only after the commit is on stable
 * storage; (3) transactions commit in the order of submission; (4) an I/O error ends the process: a
 * commit is never retried on a file that may be broken, and a revocation that waited for it is in
 * the journal before; (5) no SQLite type leaves store_sqlite.c.
 */
#ifndef ROS2_CONTROLLER_STORE_H
#define ROS2_CONTROLLER_STORE_H

#include "common/crypto.h"
#include "common/err.h"
#include "common/ids.h"
#include "common/loop.h"
#include "common/probe.h"
#include "common/util.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_SCHEMA_VERSION 2
#define STORE_BATCH_MAX      1024  /* transactions in one commit */
#define STORE_QUEUE_MAX      16384 /* transactions that wait; more are answered BUSY */
#define STORE_DETAILS_MAX    32    /* of one audit record */
#define STORE_FMT_MAX        512   /* bytes of a formatted string, with its NUL */
#define STORE_PAGE_MAX       512   /* rows of one page */
#define STORE_READS_MAX      256   /* pages that wait to be read; more are answered BUSY */
#define STORE_LOCK_WAIT_MS   10000 /* for a lock of another process on the file (store.c) */
#define STORE_ENDING_MS      1000  /* after a failed sync, to tell of revocations (store_end.c) */

/* ---- rows. Pointers inside rows belong to the transaction (store_txn_str) or, when loading, are
 * valid during the callback only ---- */

enum store_kind { /* numbers of ObjectKind in proto/ros2/v1/common.proto */
	          STORE_TENANT = 1,
	          STORE_ENGINE = 2,
	          STORE_AGENT = 3,
	          STORE_GRANT = 4,
	          STORE_SESSION = 5,
	          STORE_LEASE = 6,
};

struct store_object {
	enum store_kind kind; /* TENANT, ENGINE, AGENT */
	const char *name;
	struct ros2_uid uid;
	uint64_t version;
	uint64_t created_unix_ns, updated_unix_ns;
	const char *file; /* the source's name when it was applied */
	uint32_t line;
	const char *doc;   /* YAML as written */
	const void *image; /* compiled policy; NULL for agents */
	size_t image_len;
	bool revoked;             /* tenants */
	uint64_t revoked_version; /* the last revocation's; objects up to it are dead */
	const char *state_reason;
	uint64_t state_since_unix_ns;
};

struct store_agent { /* the identity that belongs to an Agent object */
	struct ros2_uid uid;
	const char *name;
	bool enrolled, isolated;
	uint8_t spki_sha256[32], prev_spki_sha256[32]; /* the key before the last renewal, too */
	const char *cert_serial;
	int64_t cert_not_after_unix_s;
	uint64_t enrolled_unix_ns;
	const char *isolated_reason;
	uint64_t isolated_since_unix_ns;
};

enum store_grant_state {
	STORE_GRANT_LIVE = 1,
	STORE_GRANT_EXPIRED = 2,
	STORE_GRANT_REVOKED = 3,
	STORE_GRANT_RELEASED = 4,
};
const char *store_grant_state_to_str(enum store_grant_state s);

struct store_grant {
	struct ros2_uid uid, tenant_uid, agent_uid;
	const char *principal;
	uint64_t version;
	uint32_t max_keys, access;
	uint64_t max_bytes, lifetime_ms, policy_version, epoch_counter;
	uint64_t issued_unix_ns, expires_unix_ns, ended_unix_ns;
	uint8_t from_boot_id[16];
	uint64_t from_boottime_ns;
	enum store_grant_state state;
	/* Out of store_read_grants only: the names of a tenant and an agent that were deleted. */
	const char *tenant_gone, *agent_gone;
};

struct store_revocation {
	struct ros2_uid uid;
	enum store_kind kind;
	struct ros2_uid target_uid;
	const char *target_name;
	uint64_t version;
	uint64_t created_unix_ns;
	const char *reason;
};

/* What one agent owes for one revocation; put again when the receipt is in. */
struct store_receipt {
	struct ros2_uid revocation_uid, agent_uid;
	bool durable;
	uint32_t sessions, leases, draining;
	uint64_t received_unix_ns; /* 0, and not durable: it is owed, unless there is one */
};

struct store_token { /* only the hash of the secret is kept */
	uint8_t secret_sha256[32];
	struct ros2_uid agent_uid;
	uint64_t created_unix_s, expires_unix_s;
	bool used;
	uint8_t used_spki[32];
};

struct store_probe { /* what an agent tried on one of its devices */
	struct ros2_uid agent_uid;
	const struct probe_subject *subject;
};

struct store_origin { /* how far an agent's forwarded records are in the log */
	struct ros2_uid agent_uid, incarnation;
	uint64_t seq;
	uint64_t updated_unix_ns;
};

/* ---- audit ---- */

enum store_audit_result { STORE_AUDIT_OK = 1, STORE_AUDIT_DENIED = 2, STORE_AUDIT_FAILED = 3 };

/* A record before the log gives it a place. NULL strings are empty. */
struct store_draft {
	const char *actor, *role, *peer;
	const char *action, *object_kind, *object_name, *object_uid;
	enum store_audit_result result;
	const char *status, *reason;
	uint64_t policy_version;
	const char *tenant;
	struct ros2_uid tenant_uid; /* zero: touches no tenant */
	bool has_origin;
	const char *origin_agent, *origin_agent_uid, *origin_incarnation;
	uint64_t origin_seq, origin_time_unix_ns;
	uint64_t count, first_unix_ns, last_unix_ns; /* count 0: a single event */
	size_t n_details;
	struct {
		const char *key, *value;
	} details[STORE_DETAILS_MAX];
};

/* ---- transactions ---- */

enum store_mut_kind {
	STORE_OBJECT_PUT,        /* object */
	STORE_OBJECT_DELETE,     /* object: kind, uid; the uid is remembered as used */
	STORE_AGENT_PUT,         /* agent */
	STORE_AGENT_DELETE,      /* agent: uid */
	STORE_GRANT_PUT,         /* grant */
	STORE_GRANT_END,         /* grant: uid, state, ended_unix_ns */
	STORE_GRANTS_END_TENANT, /* grant: tenant_uid, state, ended_unix_ns: every live one, or */
	STORE_GRANTS_END_AGENT,  /* agent_uid, likewise; version, if not 0: up to it */
	STORE_REVOCATION_PUT,    /* revocation */
	STORE_RECEIPT_PUT,       /* receipt */
	STORE_RECEIPT_DELETE,    /* receipt: revocation_uid, agent_uid; of one that is owed */
	STORE_TOKEN_PUT,         /* token */
	STORE_TOKEN_DELETE,      /* token: secret_sha256 */
	STORE_ORIGIN_PUT,        /* origin */
	STORE_ORIGIN_DELETE,     /* origin: agent_uid, incarnation */
	STORE_PROBE_PUT,         /* probe */
	STORE_PROBES_DELETE,     /* probe: agent_uid: all of it */
};

struct store_mut {
	enum store_mut_kind kind;
	union {
		struct store_object object;
		struct store_agent agent;
		struct store_grant grant;
		struct store_revocation revocation;
		struct store_receipt receipt;
		struct store_token token;
		struct store_origin origin;
		struct store_probe probe;
	};
};

struct store_result {
	int rc; /* 0; -ENOSPC: nothing was changed; -EIO and -ENOSYS: a bug or a broken row */
	/* rc is -ENOSPC, or for the moment -EBUSY or -ENOMEM, and the transaction shrinks rights:
	 * the store keeps it and commits it when it can. */
	bool record_pending;
	/* With record_pending: a sync failed, and the process ends in STORE_ENDING_MS. The next
	 * start carries it out. */
	bool ending;
	uint64_t committed_boottime_ns;
	struct ros2_err err;
};
typedef void (*store_done_fn)(void *arg, const struct store_result *r);

struct store;
struct store_txn;
/* Loop thread, all of these. A transaction is built, then submitted or freed. Without memory every
 * function still returns something usable and store_submit says -ENOMEM. */
struct store_txn *store_txn_new(void); /* NULL without memory: store_submit takes it: -ENOMEM */
void store_txn_free(struct store_txn *t);
/* @t takes over what is in @from, behind its own, and frees it. Only of mutations and drafts. */
void store_txn_join(struct store_txn *t, struct store_txn *from);
/* Memory was missing for something that belongs into it: it is refused as a whole. */
void store_txn_spoil(struct store_txn *t);
size_t store_txn_drafts(const struct store_txn *t);
/* A zeroed mutation of @kind to fill in; a place of rest without memory. Valid until the next add.
 */
struct store_mut *store_txn_add(struct store_txn *t, enum store_mut_kind kind);
struct store_draft *store_txn_audit(struct store_txn *t);
/* Copies into the transaction; "" for NULL. */
const char *store_txn_str(struct store_txn *t, const char *s);
const char *store_txn_uid(struct store_txn *t, const struct ros2_uid *u);
/* What does not fit into STORE_FMT_MAX bytes, with its NUL, is cut. */
const char *store_txn_fmt(struct store_txn *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void *store_txn_mem(struct store_txn *t, const void *p, size_t n);
void store_draft_detail(struct store_txn *t, struct store_draft *d, const char *key,
                        const char *value);
/* This transaction only takes rights away: reserved space is used for it, and it is kept when even
 * that does not suffice (ARCHITECTURE, rule 10). */
void store_txn_set_shrinks(struct store_txn *t);
/* Likewise, and however many wait: for it the queue is never full, nor is there no place among
 * those that wait for space. The caller has a bound. */
void store_txn_set_kept(struct store_txn *t);
/* Of what takes rights away: it does not overtake an earlier one with the same @uid that waits for
 * space, as it would when it is smaller. */
void store_txn_set_order(struct store_txn *t, const struct ros2_uid *uid);
/* What a start needs to carry this revocation out again, at most STORE_NOTE_MAX bytes, the first 16
 * of which are its uid. Without space for its rows the note is synced to a file that needs none
 * before the result is delivered; it counts until the rows are committed. @slot: where it was found
 * at start, else -1. With a note the queue is never full. */
#define STORE_NOTE_MAX 4080
void store_txn_set_note(struct store_txn *t, const void *p, size_t n, int slot);
/* What the note is about, for when there is no place for it: a start is told that this may have
 * been taken away, or something else may (store_doubts). @kind: any number, the caller's. */
void store_txn_add_target(struct store_txn *t, uint32_t kind, const struct ros2_uid *uid);
/* The highest object version given out in this transaction: durable before anybody sees it. */
void store_txn_set_revision(struct store_txn *t, uint64_t revision);

/* Takes @t whatever it returns. 0: @done (may be NULL) runs once on the loop. -ENOMEM, -EBUSY (the
 * queue is full), -ESHUTDOWN: it will not run, nothing is changed. */
int store_submit(struct store *s, struct store_txn *t, store_done_fn done, void *arg,
                 struct ros2_err *err);

/* ---- life ---- */

struct store_ops;
extern const struct store_ops store_sqlite_ops;

struct store_opts {
	const struct store_ops *ops; /* NULL: store_sqlite_ops */
	const char *dir;             /* data directory: exists or is made, 0700; copied */
	const char *trust_domain;    /* a store of another one is refused; copied */
	struct loop *loop;           /* borrowed: until store_close */
	const struct crypto_sign_key *audit_key; /* borrowed; NULL: no checkpoints */
	const char *audit_origin;                /* name of the log in its checkpoints; copied */
	uint32_t checkpoint_ms;                  /* 0 = 1000 */
	/* Instead of the end of the process, of a store that can no longer be trusted. NULL: one
	 * line is logged, and it ends. Store thread. */
	void (*on_fatal)(void *arg, const struct ros2_err *why);
	void *arg;
	uint32_t lock_wait_ms;  /* 0 = STORE_LOCK_WAIT_MS; another for tests */
	uint32_t ending_ms;     /* 0 = STORE_ENDING_MS; another for tests */
	uint64_t max_pages;     /* 0 = no bound; of the database file, for tests of a full disk */
	unsigned journal_slots; /* 0 = all; less of them, for tests of a journal that is full */
	uint64_t reserve_bytes; /* 0 = 8 MiB; freed for revocations when the disk is full */
};

struct store_epoch {
	struct ros2_uid lineage;
	uint64_t counter;
};

/* Locks the directory, checks and migrates the database, increments the epoch durably. Before the
 * loop runs. Errors name the file and what to do: -EBUSY (locked), -EXDEV (another trust domain),
 * -EPROTONOSUPPORT (newer schema), -EBADMSG (not our database, or damaged), -ENOSPC
 * (also on the reserve). */
int store_open(const struct store_opts *o, struct store **ret, struct ros2_err *err);

struct store_loader {
	int (*object)(void *arg, const struct store_object *o);
	int (*agent)(void *arg, const struct store_agent *a);
	int (*grant)(void *arg, const struct store_grant *g);           /* live ones */
	int (*revocation)(void *arg, const struct store_revocation *r); /* with receipts missing */
	int (*receipt)(void *arg, const struct store_receipt *r); /* of those, after them all */
	int (*token)(void *arg, const struct store_token *t);
	int (*origin)(void *arg, const struct store_origin *o);
	int (*probe)(void *arg, const struct store_probe *p); /* after the objects */
	/* Last: a revocation that is not in the database. 1: its slot is not needed. */
	int (*note)(void *arg, const void *p, size_t n, int slot);
	/* After the notes: there were revocations without one. What store_doubts names has to be
	 * taken away, and store_doubt_owe told, before it returns. */
	int (*doubt)(void *arg);
	void *arg;
};
/* Once, after store_open and before store_start. NULL members are skipped; a callback's negative
 * result ends it. */
int store_load(struct store *s, const struct store_loader *l, struct ros2_err *err);
/* In store_loader.doubt only. False: no revocation without a note has this target. */
bool store_doubts(const struct store *s, uint32_t kind, const struct ros2_uid *uid);
/* The highest version that one of them was given. */
uint64_t store_doubt_revision(const struct store *s);
/* Nothing that gives rights is committed before the note that begins so is. -ENOMEM. */
int store_doubt_owe(struct store *s, const struct ros2_uid *revocation);
/* After the results of one commit were delivered, on the loop. Before store_start. */
void store_set_on_batch(struct store *s, loop_fn fn, void *arg);
/* Before store_start: commits @t, which it takes, on this thread; the reserve is for it, too. On
 * error nothing is changed. */
int store_commit_now(struct store *s, struct store_txn *t, struct ros2_err *err);
/* Starts the threads. From here on store_submit works. */
int store_start(struct store *s, struct ros2_err *err);
/* Commits what was submitted, signs the last checkpoint, ends the threads. Results that were not
 * delivered yet are posted to the loop first. Owner of the loop. NULL is accepted. */
void store_close(struct store *s);

const struct store_epoch *store_epoch(const struct store *s);
uint64_t store_revision(const struct store *s); /* highest version ever given out, at open */

struct store_stats {
	uint64_t commits, transactions;
	uint64_t audit_records, checkpoint_size;
	uint64_t waiting, record_pending;
	uint64_t wal_bytes;
	bool full; /* the last widening transaction found no space */
	uint64_t full_since_unix_ns;
	bool reserve_used;
	/* A write or sync of the journal of revocations failed, and it could not be written anew:
	 * a revocation that finds no space is kept in memory only. */
	bool journal_failed;
};
/* Any thread. */
void store_stats(struct store *s, struct store_stats *ret);
struct metrics_latency;
/* Of commits since the start; any thread may read it. */
struct metrics_latency *store_commit_latency(struct store *s);

/* ---- reading in pages, on a thread of its own; results on the loop ---- */

struct store_audit_query {
	char tenant[ROS2_NAME_MAX + 1]; /* "" = any, for all strings */
	char action[64];                /* exact, or a prefix ending in '*' */
	char actor[ROS2_SPIFFE_MAX + 1];
	char object[ROS2_SPIFFE_MAX + 1]; /* name or uid */
	uint32_t result;                  /* 0 = any */
	uint64_t from_seq, to_seq;        /* inclusive; to_seq 0 = the end at the first page */
	uint64_t since_unix_ns, until_unix_ns;
	uint32_t limit; /* of this page, at most STORE_PAGE_MAX */
	bool newest;    /* from to_seq downwards */
};
struct store_audit_row {
	uint64_t seq;
	const void *record;
	size_t record_len;
	uint8_t chain[SHA256_LEN];
	const char *note; /* the checkpoint that ends with this record; NULL: none */
};
struct store_audit_page {
	int rc;
	size_t n;
	const struct store_audit_row *rows;
	bool end; /* nothing more matches */
	/* Where the next page begins: from_seq, or to_seq when newest. Pages may be empty: a page
	 * looks at a bounded number of rows. */
	uint64_t next_seq;
	uint64_t to_seq; /* the bound that was used */
};
typedef void (*store_audit_fn)(void *arg, const struct store_audit_page *p);
/* Loop thread. -EBUSY when too many reads wait; otherwise @fn runs once on the loop. */
int store_read_audit(struct store *s, const struct store_audit_query *q, store_audit_fn fn,
                     void *arg);

struct store_grant_query {
	struct ros2_uid tenant_uid, agent_uid; /* zero = any */
	struct ros2_uid after;                 /* uid order */
	uint32_t limit;                        /* at most STORE_PAGE_MAX */
	bool one;                              /* exactly the uid @after, ended or not */
};
/* @more: where the next page goes on (`after`); NULL: there is nothing more. A page looks at a
 * bounded number of rows, so it may be empty and not the last. */
typedef void (*store_grants_fn)(void *arg, int rc, const struct store_grant *g, size_t n,
                                const struct ros2_uid *more);
/* Ended grants that are still kept (a day); live ones are in memory. */
int store_read_grants(struct store *s, const struct store_grant_query *q, store_grants_fn fn,
                      void *arg);
#endif
