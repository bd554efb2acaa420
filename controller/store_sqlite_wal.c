/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write-ahead log: moved into the database by a thread of its own, so that a commit never pays
 * for it (SQLite's wal.html, "Avoiding Excessively Large WAL Files"). PASSIVE holds up nobody, but
 * under load there is always a commit that it has not seen, and the log goes on growing; from a
 * length on it is begun anew by RESTART, which nobody may write beside.
 *
 * The two that write, the front thread and this one, take turns here: SQLite's own lock is waited
 * for in sleeps of 1, 2, 5, 10 ms and more, whoever holds it and for however short.
 */
#include "common/clock.h"
#include "common/util.h"
#include "controller/store_sqlite_priv.h"
#include <errno.h>
#include <sqlite3.h>

#define COMPACT_BUSY_MS 20    /* for readers, while commits wait */
#define TURN_S          10    /* for the other one: what SQLite's lock is waited for, too */
#define RESTART_PAGES   64    /* few enough to be moved while commits wait */
#define RESTART_MOST    512   /* where commits leave no fewer */
#define INDEX_PAGE_SIZE 32768 /* SQLite's walformat.html, 2.2 */
#define INDEX_PAGES     16    /* for a log of 256 MiB: more than it comes to */

/* ---- turns ---- */

void sqlite_turn_init(struct wal_turn *t)
{
	pthread_condattr_t a;

	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&t->changed, &a);
	pthread_condattr_destroy(&a);
	t->patience_ns = TURN_S * NS_PER_S;
}

void sqlite_turn_fini(struct wal_turn *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->changed);
}

int sqlite_turn_commit(struct wal_turn *t, struct ros2_err *err)
{
	uint64_t due = clock_monotonic_ns() + t->patience_ns;
	struct timespec until = {.tv_sec = (time_t)(due / NS_PER_S),
	                         .tv_nsec = (long)(due % NS_PER_S)};
	bool mine;

	pthread_mutex_lock(&t->lock);
	while (t->restarts && pthread_cond_timedwait(&t->changed, &t->lock, &until) != ETIMEDOUT)
		;
	mine = t->commits = !t->restarts;
	pthread_mutex_unlock(&t->lock);
	if (mine)
		return 0;
	return ros2_err_set(
		err, -EBUSY,
		"the write-ahead log is being begun anew, for %.3g s by now: the disk is "
		"slow; try again",
		(double)t->patience_ns / NS_PER_S);
}

/* No commit begins once it waits: the front thread would have the next one under way before it is
 * awake. */
static void turn_restart(struct wal_turn *t)
{
	pthread_mutex_lock(&t->lock);
	t->restarts = true;
	while (t->commits)
		pthread_cond_wait(&t->changed, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static void turn_ends(struct wal_turn *t, bool *whose)
{
	pthread_mutex_lock(&t->lock);
	*whose = false;
	pthread_cond_signal(&t->changed);
	pthread_mutex_unlock(&t->lock);
}

void sqlite_turn_committed(struct wal_turn *t)
{
	turn_ends(t, &t->commits);
}

/* ---- its length ---- */

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct backend *b = arg;

	atomic_store(&b->wal_pages, (uint64_t)pages);
	return SQLITE_OK;
}

uint64_t sqlite_wal_bytes(void *backend)
{
	struct backend *b = backend;

	return atomic_load(&b->wal_pages) * b->page_size;
}

/* A log that began anew since it was moved is counted whole, or, once it is longer than what was
 * moved then, without that: one compaction comes late. */
uint64_t sqlite_wal_left(void *backend)
{
	struct backend *b = backend;
	uint64_t pages = atomic_load(&b->wal_pages), moved = atomic_load(&b->wal_moved);

	return (pages >= moved ? pages - moved : pages) * b->page_size;
}

/* ---- moving it: compaction thread ---- */

static sqlite3_file *database_file(struct backend *b)
{
	sqlite3_file *f = NULL;

	return sqlite3_file_control(b->compactor, "main", SQLITE_FCNTL_FILE_POINTER, &f) ==
	                       SQLITE_OK
	               ? f
	               : NULL;
}

/* The index of the log grows with the log, at commits whose frames are in it already: a disk that
 * is full just then, or a want of memory, would leave a commit that was refused. So its pages are
 * there before. Where they cannot be had, commits go on, as far as the index reaches; each
 * compaction tries again. Thread: that of the compactor, or none yet. */
static void reserve_index(struct backend *b)
{
	sqlite3_file *f = database_file(b);
	void volatile *page;

	if (f && f->pMethods && f->pMethods->iVersion >= 2)
		f->pMethods->xShmMap(f, INDEX_PAGES - 1, INDEX_PAGE_SIZE, 1, &page);
}

void sqlite_wal_start(struct backend *b)
{
	sqlite3_busy_timeout(b->compactor, COMPACT_BUSY_MS);
	reserve_index(b);
	sqlite3_wal_hook(b->db, on_wal, b);
}

static int move(struct backend *b, int mode, int *log, int *done)
{
	int rc;

	*log = *done = 0;
	rc = sqlite3_wal_checkpoint_v2(b->compactor, NULL, mode, log, done);
	if (rc == SQLITE_OK && *done >= 0)
		atomic_store(&b->wal_moved, (uint64_t)*done);
	return rc;
}

/* The next commit begins the log anew where all of it is moved, unless somebody reads it. */
static int move_passive(struct backend *b, int *log, int *done)
{
	int rc = move(b, SQLITE_CHECKPOINT_PASSIVE, log, done);
	uint64_t seen = (uint64_t)*log;

	if (rc == SQLITE_OK && *log == *done)
		atomic_compare_exchange_strong(&b->wal_pages, &seen, 0);
	return rc;
}

/* PASSIVE syncs the database only where no commit came meanwhile: under load RESTART would, all of
 * it, and commits wait. Where this fails nothing may follow that would seem to work (rule 10). */
static int sync_database(struct backend *b)
{
	sqlite3_file *f = database_file(b);

	return f && f->pMethods ? f->pMethods->xSync(f, SQLITE_SYNC_NORMAL) : SQLITE_OK;
}

static int restart(struct backend *b)
{
	int log, done, rc = sync_database(b);

	if (rc != SQLITE_OK)
		return rc;
	turn_restart(&b->turn);
	rc = move(b, SQLITE_CHECKPOINT_RESTART, &log, &done);
	if (rc == SQLITE_OK)
		atomic_store(&b->wal_pages, 0);
	turn_ends(&b->turn, &b->turn.restarts);
	return rc;
}

/* What is committed meanwhile is moved, too, as long as that becomes less (half as much where there
 * is no hurry): on a quiet store all of it, so that the log begins anew by itself. Commits wait for
 * RESTART, and with them RESTART for readers: nearly all is moved before, or it waits for another
 * time (somebody reads what is old). */
int sqlite_compact(void *backend, bool hard)
{
	struct backend *b = backend;
	int64_t before, left = INT64_MAX, enough = hard ? RESTART_PAGES : 0;
	int log, done, rc;

	reserve_index(b);
	do {
		before = left;
		rc = move_passive(b, &log, &done);
		left = (int64_t)atomic_load(&b->wal_pages) - done;
	} while (rc == SQLITE_OK && done == log && left > enough &&
	         left < (hard ? before : before / 2));
	if (rc == SQLITE_OK && hard && left <= RESTART_MOST)
		rc = restart(b);
	return sqlite_map_error(b->compactor, rc);
}
